"""Scores, costs and points of the simplex, and the game as a linear program."""

import numpy as np
from numpy.testing import assert_allclose
from scipy.optimize import linprog

SURROGATES = ("max_margin", "max_min", "log")


def zero_one(k):
    return 1.0 - np.eye(k)


def absolute(k):
    return np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)


def random_cost(rng, k):
    cost = rng.uniform(0.0, 3.0, (k, k))
    np.fill_diagonal(cost, 0.0)
    return cost


def random_mu(rng, k):
    """A point of the simplex, often on its boundary."""
    mu = rng.dirichlet(np.full(k, rng.choice([0.3, 1.0, 5.0])))
    if k > 1 and rng.random() < 0.5:
        mu[rng.integers(k)] = 0.0
    return mu / mu.sum()


def assert_distribution(mu):
    assert np.all(mu >= 0)
    assert_allclose(np.sum(mu, axis=-1), 1.0, atol=1e-12)


def game_value(v, cost):
    """max over (mu, z) of z + <v, mu> under z <= (cost' mu)_j."""
    k = len(v)
    solution = linprog(
        -np.append(v, 1.0),
        A_ub=np.column_stack([-cost.T, np.ones(k)]), b_ub=np.zeros(k),
        A_eq=np.append(np.ones(k), 0.0)[None], b_eq=[1.0],
        bounds=[(0, None)] * k + [(None, None)],
    )
    assert solution.status == 0
    return -solution.fun
