"""What holds of permutations alone, through the engine, against the reference."""

import functools

import numpy as np
import pytest
from engine_cases import SURROGATES, Permutations, Rankings, run, zero_one
from numpy.testing import assert_allclose

import fastm4n.reference as ref
from fastm4n.features._pairs import PairFeatures
from fastm4n.outputs import PermutationOutputs
from fastm4n.solvers.blocks._engine import Step
from fastm4n.solvers.blocks.block_coordinate import solve
from fastm4n.surrogates import MaxMinLoss

permutations = functools.partial(Permutations, sizes=(3, 1, 2, 4, 3, 1, 2), noise=0.7)


@pytest.mark.parametrize(("sizes", "d"), [
    ((1, 1), 1), ((2, 1, 2), 1), ((5, 6), 2), ((3,) * 20, 7), ((4, 4, 1), 40)])
@pytest.mark.parametrize("kernel", [False, True])
def test_max_margin_of_other_shapes(kernel, sizes, d):
    problem = Permutations(4, sizes, d, alpha=1.0, noise=0.7, kernel=kernel)
    engine = problem.engine("max_margin", 1)
    run(engine, "permutation", Step.LINE_SEARCH, 3)
    expected = ref.block_coordinate_frank_wolfe(
        problem.blocks("max_margin"), sampling="permutation", n_passes=3, random_state=1)
    assert_allclose(engine.mu, problem.pack(expected.states), atol=1e-9)


@pytest.mark.parametrize("name", SURROGATES)
def test_two_items_are_two_labels(name):
    problem = Permutations(11, sizes=(2,) * 6, cost=zero_one, alpha=0.3)
    Z = np.array(
        [x[0, 0] + x[1, 1] - x[0, 1] - x[1, 0] for x in problem.X]) / np.sqrt(2)
    labels = ref.SimplexBlocks(Z, [places[0] for places in problem.y], 2, name, 0.3, problem.p)
    expected = ref.block_coordinate_frank_wolfe(labels, n_passes=200, gap_every=200).history[-1]
    found = problem.solve(name, tol=1e-3, max_iter=2000)[0].certificate
    assert_allclose(found.dual, expected[2], atol=1e-3 + expected[3])
    assert_allclose(found.primal, expected[1], atol=1e-3 + expected[3])


@pytest.mark.parametrize("make", [permutations, Rankings])
@pytest.mark.parametrize("name", SURROGATES)
def test_a_linear_kernel_gives_the_path_of_its_features(make, name):
    points = []
    for kernel in (False, True):
        engine = make(12, kernel=kernel, alpha=0.5).engine(name)
        run(engine, "permutation", Step.LINE_SEARCH, 3)
        points.append(np.array(engine.mu))
    assert_allclose(points[0], points[1], atol=1e-6 if name == "max_min" else 1e-10)


@pytest.mark.parametrize("name", SURROGATES)
def test_scores_of_vectors_are_those_of_their_pairs(name):
    """The linear map against the map of pairs, over kron(e_(i, j), x)."""
    problem, pairs = Rankings(13), Rankings(13)
    pairs.X = ref.vector_pairs(problem.X, 3)
    blocks = ref.PermutationBlocks(pairs.X, pairs.y, name, pairs.alpha, pairs.p, pairs.cost)
    for features in (problem.features(), Permutations.features(pairs)):
        engine = problem.engine(name, 5, features=features)
        run(engine, "uniform", Step.LINE_SEARCH, 3)
        z = blocks.primal_weights([(*state, 0.0) for state in problem.unpack(engine.mu)])[0]
        w = features.coef()
        assert_allclose(w if w.ndim == 1 else w.T.ravel(), z, atol=1e-9)


def test_no_blocks():
    surrogate = MaxMinLoss(PermutationOutputs(
        np.zeros(0, int), np.zeros(0, int), np.zeros((1, 1)), cost_scale="mean"))
    features = PairFeatures(np.zeros((0, 2)), np.zeros(0, int), surrogate.outputs.layout)
    solution = solve(surrogate, features, np.zeros(0), 1.0, max_iter=2)
    assert solution.converged and solution.mu.shape == (0,)
    assert solution.certificate.primal == 0.0


@pytest.mark.parametrize("M", [2, 4])
@pytest.mark.parametrize("n_iter", [1, 4])
@pytest.mark.parametrize("warm_start", [False, True])
def test_mirror_prox_step_by_step(M, n_iter, warm_start):
    """Visits in plain NumPy, from uniform starts or the last averages; both project to 1e-6."""
    problem = permutations(16, sizes=(M,), alpha=8.0)
    x, y, cost = problem.X[0], problem.y[0], problem.cost
    engine = problem.engine("max_min", oracle=(n_iter, warm_start))
    blocks = problem.blocks("max_min")
    mu, start = ref.permutation_indicator(y), None
    steps = []
    for _ in range(4):
        h = ref.PermutationOutputs.concave_part((mu,), "max_min", cost=cost)
        v = x @ blocks.primal_weights([(mu, 0.0)])[0]
        s, nu, lower, upper = ref.max_min_permutation_mirror_prox(
            v, cost, n_iter, start=start, tol=1e-9)
        start = (s, nu) if warm_start else None
        direction = np.tensordot(s - mu, x, axes=2)
        ascent = lower - h - np.sum(v * mu)
        gamma = min(1.0, max(0.0, problem.alpha * ascent / (direction @ direction)))
        mu = mu + gamma * (s - mu)
        run(engine, "permutation", Step.LINE_SEARCH)
        assert_allclose(problem.unpack(engine.mu)[0][0], mu, atol=5e-5)
        assert_allclose(engine.oracle_error, upper - lower, atol=5e-5)
        steps.append(gamma)
    assert 0.05 < max(steps)


def test_the_first_scores_of_the_log_surrogate():
    """By itself an item is at its true position with probability 0.99, of max_items ones."""
    problem = permutations(21, sizes=(3, 2, 4, 2))
    theta = problem.surrogate("log").state()["theta"]
    for i, (scores,) in enumerate(problem.unpack(theta)):
        assert_allclose(scores, np.log(99 * 3) * problem.truth(i)[0])


def test_no_exact_step():
    with pytest.raises(ValueError, match="step='exact' needs .* MaxMinLoss over PermutationOutputs"):
        permutations(0).solve("max_min", step="exact")


def test_no_average_where_entropies_are_not_known():
    with pytest.raises(ValueError, match="step='fixed' averages dual points.*PermutationOutputs"):
        permutations(0).solve("log", step="fixed")
