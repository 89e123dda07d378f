"""Scores of matchings, and what all matchings of a few rows and columns say of them."""

import math

import numpy as np
from numpy.testing import assert_allclose

import fastm4n.reference as ref


def all_matchings(scores, complete=False):
    """Labels of all matchings of finite score, (n_matchings, n), and their scores, exact sums."""
    n, m = scores.shape[0], scores.shape[1] - 1
    labels = ref.list_matchings(n, m, complete)
    values = np.array([
        -np.inf if -np.inf in of else math.fsum(of) for of in scores[np.arange(n), labels]])
    return labels[values > -np.inf], values[values > -np.inf]


def masked(scores, allowed):
    """Scores with -inf for the pairs that are not allowed."""
    scores = scores.copy()
    scores[:, :-1][~allowed] = -np.inf
    return scores


def assert_matching(labels, m, complete=False):
    """labels are at most m, and no column occurs twice."""
    matched = labels[labels < m]
    assert np.all(labels >= 0) and np.all(labels <= m)
    assert len(set(matched.tolist())) == len(matched)
    if complete:
        assert len(matched) == min(len(labels), m)


def assert_in_polytope(mu, complete=False, atol=1e-12):
    n, m = mu.shape[0], mu.shape[1] - 1
    assert mu.min(initial=0.0) >= 0.0
    assert_allclose(mu.sum(axis=1), 1.0, rtol=0, atol=atol)
    assert mu[:, :m].sum(axis=0).max(initial=0.0) <= 1.0 + atol
    if complete:
        assert_allclose(mu[:, :m].sum(), min(n, m), rtol=0, atol=min(n, m) * atol)
