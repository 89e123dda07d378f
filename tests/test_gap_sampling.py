"""The toy problem of Osokin et al. (2016), appendix C: where gap sampling is n times faster.

Of n examples one is hard and the others are easy.  An output has a label 0, which is right, or
1, ..., K, which all cost one; phi(x, 0) = 0, alpha = 1 / n, and

    hard   phi(x_1, k) = -e_k / sqrt(2),    easy   phi(x_i, k) = -e_{K+1},    k = 1, ..., K.

The easy examples are done with as soon as one of them has been visited.  The hard one needs a visit
for each of its labels that the dual point is to contain.  All blocks have the same curvature, by
which they cannot be told apart.

Here an output is the permutation of K + 1 items, its label the position of item 0: no other item
has features or a cost.
"""

from unittest import mock

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fastm4n.features._pairs import PairFeatures
from fastm4n.outputs import Layout, PermutationOutputs
from fastm4n.solvers.blocks import block_coordinate
from fastm4n.solvers.blocks.block_coordinate import solve
from fastm4n.surrogates import MaxMarginLoss

N, K = 32, 64
# for the share of n the hard block must need no fewer visits than n: about 1 / tol here, at most K
TOLS = (0.017, 0.01, 1e-4)


def toy_features():
    """(2, K + 1, K + 1, K + 1): of each item at each position, in the hard and an easy example."""
    pairs = np.zeros((2, K + 1, K + 1, K + 1))
    for k in range(1, K + 1):
        pairs[0, 0, k, k - 1] = -np.sqrt(0.5)
        pairs[1, 0, k, K] = -1.0
    return pairs


def solve_toy(sampling, tol, seed=0, **options):
    """The solution and the weights; tol is that of n times the gap."""
    size = (K + 1) ** 2
    # the easy examples have the same rows
    starts, layout = np.where(np.arange(N) == 0, 0, size), Layout.of_squares(np.full(N, K + 1))
    features = PairFeatures(toy_features().reshape(2 * size, K + 1), starts, layout)
    cost = np.zeros((K + 1, K + 1))
    # the loss is the mean over items
    cost[0, 1:] = K + 1
    truth = np.tile(np.arange(K + 1), N).astype(np.intc)
    structure = MaxMarginLoss(PermutationOutputs(truth, np.full(N, K + 1), cost, cost_scale="mean"))
    solution = solve(
        structure, features, np.full(N, 1 / N), 1 / N, sampling=sampling, tol=tol / N,
        seed=seed, **options)
    return solution, features.coef()


def oracle_calls(solution):
    """Of visits, and of certificates."""
    return solution.history["oracle_calls"][-1] + N * len(solution.history["gap"])


def test_the_blocks_have_the_same_curvature():
    for row in toy_features()[:, 0]:
        distances = np.sum((row[:, np.newaxis] - row) ** 2, axis=2)
        assert_allclose(distances.max(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("sampling", ["gap", "uniform", "permutation"])
def test_the_optimum(sampling):
    solution, w = solve_toy(sampling, 1e-9)
    assert solution.converged
    # mu_1 is uniform over the wrong labels, and those of the easy examples sum to one
    expected = np.append(np.full(K, np.sqrt(0.5) / K), 1.0)
    assert_allclose(w, expected, atol=1e-7)
    assert_allclose(N * solution.certificate.dual, (1 - 1 / (4 * K)) + 1 / 2, atol=N * 1e-9)


@pytest.mark.parametrize("sampling", ["gap", "uniform"])
def test_one_pass_over_the_easy_is_enough(sampling):
    solution, w = solve_toy(sampling, 0.03)
    # what is left of the gap is the hard example's, and no less than its visits allow
    assert np.all(solution.certificate.block_gaps[1:] <= 1e-12)
    assert w[K] == 1.0
    n_met = np.count_nonzero(w[:K])
    assert 0 < n_met < K
    assert solution.certificate.block_gaps[0] >= (1 - 1e-9) / (2 * n_met)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("tol", TOLS)
def test_gap_sampling_needs_fewer_calls_by_a_quarter_of_n(tol, seed, monkeypatch):
    # one block at a time, as the theorem has it: blocks of one window are drawn by the same gaps
    monkeypatch.setattr(block_coordinate, "Windows", mock.Mock(pay=lambda engine: False))
    # of the dual points as they are: the best bound among all of them helps uniform sampling more
    by_gap, uniform = (
        solve_toy(sampling, tol, seed, keep_best=False)[0] for sampling in ("gap", "uniform"))
    assert by_gap.converged and uniform.converged
    # of the same certified gap
    assert max(by_gap.certificate.gap, uniform.certificate.gap) <= tol / N
    assert oracle_calls(uniform) >= N / 4 * oracle_calls(by_gap)
