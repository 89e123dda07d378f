"""Scores of permutations, and what all permutations of a few items say of them."""

import itertools
import math

import numpy as np
from numpy.testing import assert_allclose


def all_permutations(scores):
    """Places (M!, M) of all permutations, and their scores as exact sums."""
    places = np.array(list(itertools.permutations(range(len(scores)))), dtype=int)
    rows = np.arange(len(scores))
    return places, np.array([math.fsum(scores[rows, place]) for place in places])


def assert_doubly_stochastic(mu, atol=1e-12):
    assert mu.min(initial=0.0) >= 0.0
    assert_allclose(mu.sum(axis=-1), 1.0, rtol=0, atol=atol)
    assert_allclose(mu.sum(axis=-2), 1.0, rtol=0, atol=atol)
