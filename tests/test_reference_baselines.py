"""Batch Frank-Wolfe and the stochastic subgradient method against the block-coordinate solver."""

import functools

import numpy as np
import pytest
from covering import covering
from engine_cases import Chains, Labels, Permutations, absolute
from listed import flat
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logsumexp

import fastm4n.reference as ref

SURROGATES = ("max_margin", "max_min", "log")
KINDS = {
    "simplex": functools.partial(Labels, n=6, d=2, cost=absolute),
    "chain": functools.partial(
        Chains, lengths=(2, 1, 2), d=2, fit=("emissions", "start", "transitions")),
    "permutation": functools.partial(Permutations, sizes=(3, 1, 2)),
}
N_PASSES = {"max_margin": 400, "max_min": 30, "log": 60}
N_ITER = {"max_margin": 300, "max_min": 30, "log": 20}
CASES = [(kind, surrogate) for kind in KINDS for surrogate in SURROGATES]


def small_blocks(kind, surrogate, **options):
    return KINDS[kind](0, alpha=0.5, noise=2.0, **options).blocks(surrogate)


@functools.cache
def best(kind, surrogate):
    """The last row of a long run of the block-coordinate solver, and its w."""
    result = ref.block_coordinate_frank_wolfe(
        small_blocks(kind, surrogate), n_passes=N_PASSES[surrogate], gap_every=100)
    _, primal, dual, gap = result.history[-1]
    assert gap < 2e-2
    return max(primal, dual), dual, result.w  # equal up to rounding, where the gap is zero


@functools.cache
def batch(kind, surrogate):
    return ref.batch_frank_wolfe(small_blocks(kind, surrogate), n_iter=N_ITER[surrogate])


def box_optimum(blocks, lower, upper):
    """min P(w) over a box, of labels under the log surrogate, by a generic solver."""
    def primal(w):
        scores = blocks.X @ w.reshape(-1, blocks.n_classes)
        losses = logsumexp(scores, axis=1) - scores[np.arange(blocks.n), blocks.y]
        return blocks.p @ losses + blocks.alpha / 2 * (w @ w)

    size = blocks.X.shape[1] * blocks.n_classes
    start = np.clip(np.zeros(size), lower, upper)
    return minimize(
        primal, start, method="L-BFGS-B", bounds=[(lower, upper)] * size,
        options={"ftol": 1e-14, "gtol": 1e-9}).fun


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_simplex_blocks_with_extreme_features(surrogate):
    blocks = ref.SimplexBlocks([[1e6], [-1e6]], [0, 1], 2, surrogate, alpha=1.0)
    history = ref.batch_frank_wolfe(blocks, n_iter=20).history
    assert np.all(np.isfinite(history)) and np.all(np.diff(history[:, 2]) >= 0)
    result = ref.stochastic_subgradient(blocks, n_passes=5)
    assert np.all(np.isfinite(result.history)) and np.all(np.isfinite(flat(result.w)))


# batch Frank-Wolfe


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_batch_dual_rises_below_every_primal(kind, surrogate):
    iteration, primal, dual, gap = batch(kind, surrogate).history.T
    assert iteration.tolist() == list(range(N_ITER[surrogate] + 1))
    assert np.all(np.diff(dual) >= -1e-13)
    assert dual[-1] > dual[0] + 0.01
    assert dual[-1] <= primal.min() + 1e-12
    assert_allclose(primal - dual, gap, atol=1e-9)


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_batch_gap_bounds_the_distance(kind, surrogate):
    best_primal, best_dual, _ = best(kind, surrogate)
    _, primal, dual, gap = batch(kind, surrogate).history.T
    # P* lies between the best dual and the best primal that anyone has found
    assert np.all(gap >= primal - min(best_primal, primal.min()) - 1e-12)
    assert np.all(dual <= best_primal + 1e-12) and np.all(primal >= best_dual - 1e-12)


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_batch_comes_to_the_optimum(kind, surrogate):
    best_primal, best_dual, w = best(kind, surrogate)
    result = batch(kind, surrogate)
    _, primal, dual, gap = result.history[-1]
    tol = 1e-6 if surrogate == "log" else 2e-2
    assert gap < tol
    assert best_primal - dual < 2 * tol + (best_primal - best_dual)
    # by strong convexity both are within sqrt(2 (P - P*) / alpha) of w*
    alpha = small_blocks(kind, surrogate).alpha
    assert np.linalg.norm(flat(w) - flat(result.w)) <= (
        np.sqrt(2 * gap / alpha) + np.sqrt(2 * (best_primal - best_dual) / alpha)) + 1e-6


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_batch_history_follows_from_the_states(kind, surrogate):
    result = batch(kind, surrogate)
    row = small_blocks(kind, surrogate).certificate(result.states)
    assert_allclose(result.history[-1, 1:], row[:3], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_line_search_of_max_margin_is_exact(kind):
    blocks = small_blocks(kind, "max_margin")
    first = ref.batch_frank_wolfe(blocks, n_iter=1)
    truth = blocks.start()
    scores, answers, _ = blocks.examine(blocks.primal_weights(
        [blocks.point(i, state) for i, state in enumerate(truth)]))

    def dual(gamma):
        return blocks.certificate([
            tuple((1 - gamma) * a + gamma * b for a, b in zip(state, answer[:-2]))
            for state, answer in zip(truth, answers)]).dual

    assert first.history[1, 2] >= max(map(dual, np.linspace(0, 1, 101))) - 1e-12


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_with_one_example_a_pass_is_a_batch_step(kind, surrogate):
    one = {"simplex": {"n": 1}, "chain": {"lengths": (3,)}, "permutation": {"sizes": (3,)}}[kind]
    blocks = small_blocks(kind, surrogate, **one)
    rows = ref.batch_frank_wolfe(blocks, n_iter=8).history[1:]
    expected = ref.block_coordinate_frank_wolfe(
        blocks, sampling="permutation", n_passes=8, gap_every=1).history
    assert_allclose(rows, expected, rtol=1e-9, atol=1e-12)


# the stochastic subgradient method


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_the_ball_holds_the_optimum(kind, surrogate):
    primal, dual, w = best(kind, surrogate)
    blocks = small_blocks(kind, surrogate)
    radius = ref.optimum_radius(blocks)
    # the long run's w is within sqrt(2 gap / alpha) of the optimum's
    assert np.linalg.norm(flat(w)) - np.sqrt(2 * (primal - dual) / blocks.alpha) <= radius
    zeros = tuple(np.zeros_like(part) for part in w)
    assert_allclose(radius, np.sqrt(blocks.examine(zeros)[-1] / blocks.alpha), rtol=1e-12)


@pytest.mark.parametrize(("kind", "surrogate", "sampling"), covering(
    (*case, sampling) for case in CASES for sampling in ("uniform", "permutation")))
def test_subgradient_average_comes_to_the_optimum(kind, surrogate, sampling):
    best_primal, best_dual, _ = best(kind, surrogate)
    blocks = small_blocks(kind, surrogate)
    # visits of max_min are linear programs
    passes = [20, 30] if surrogate == "max_min" else [20, 40, 50]
    result = ref.stochastic_subgradient(
        blocks, n_passes=passes[-1], sampling=sampling, primal_every=20)
    assert result.history[:, 0].tolist() == passes
    assert result.history[-1, 1] >= best_dual - 1e-12
    assert result.history[-1, 1] - best_primal < 0.05
    assert_allclose(result.history[-1, 1], blocks.examine(result.w_average)[-1], rtol=1e-12)
    assert np.linalg.norm(flat(result.w)) <= ref.optimum_radius(blocks) * (1 + 1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_subgradient_keeps_the_rate_in_the_mean(surrogate):
    blocks = small_blocks("simplex", surrogate)
    best_primal, _, _ = best("simplex", surrogate)
    # ||g|| <= alpha ||w|| + n p_b ||x_b|| ||phi(y_b) - s||
    largest = blocks.alpha * ref.optimum_radius(blocks) + np.sqrt(2) * np.max(
        blocks.n * blocks.p * np.linalg.norm(blocks.X, axis=1))
    rows = np.mean([
        ref.stochastic_subgradient(blocks, n_passes=20, random_state=seed).history
        for seed in range(10)], axis=0)
    bound = 5 * largest**2 / (blocks.alpha * (blocks.n * rows[:, 0] + 1))
    assert np.all(rows[:, 1] - best_primal <= bound)
    assert rows[-1, 1] < rows[0, 1]


def test_subgradient_steps_are_those_of_the_formula():
    blocks = small_blocks("simplex", "max_margin", n=1)
    x, y = blocks.X[0], blocks.y[0]
    w, iterates = np.zeros((2, 3)), []
    for t in range(1, 6):
        s, _, _ = blocks.oracle(0, (x @ w,))
        w = w - (blocks.alpha * w + np.outer(x, s - np.eye(3)[y])) / (blocks.alpha * t)
        w *= min(1.0, ref.optimum_radius(blocks) / np.linalg.norm(w))
        iterates.append(w)
    result = ref.stochastic_subgradient(blocks, n_passes=5)
    assert_allclose(result.w[0], w, atol=1e-12)
    assert_allclose(
        result.w_average[0], np.average(iterates, axis=0, weights=range(1, 6)), atol=1e-12)


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_bounds_are_respected(kind, surrogate):
    blocks = small_blocks(kind, surrogate)
    result = ref.stochastic_subgradient(blocks, n_passes=5, bounds=(-0.02, 0.05))
    for w in result.w, result.w_average:
        assert flat(w).min() >= -0.02 - 1e-15 and flat(w).max() <= 0.05 + 1e-15
    # of the iterates some are at a bound, so that it matters
    assert flat(result.w).max() == 0.05 or flat(result.w).min() == -0.02


@pytest.mark.parametrize("bounds", [(0.0, 0.2), (-0.1, 0.1), (0.1, np.inf), (-np.inf, np.inf)])
def test_subgradient_comes_to_the_optimum_within_bounds(bounds):
    blocks = small_blocks("simplex", "log")
    result = ref.stochastic_subgradient(
        blocks, n_passes=300, bounds=bounds, primal_every=300)
    expected = box_optimum(blocks, *bounds)
    assert -1e-9 <= result.history[-1, 1] - expected < 0.01


def test_bounds_of_parts():
    blocks = small_blocks("chain", "max_margin")
    shapes = [(2, 2), (2,), (2,), (2,), (2, 2)]
    lower = tuple(np.full(shape, 0.1 * k) for k, shape in enumerate(shapes))
    upper = (0.2, 0.3, 0.4, 0.5, np.full((2, 2), 0.6))
    w = ref.ChainWeights(
        *ref.stochastic_subgradient(blocks, n_passes=3, bounds=(lower, upper)).w)
    # intercept and end are not fitted, and stay zero
    assert np.all(w.intercept == 0) and np.all(w.end == 0)
    for name in blocks.fit:
        k = ref.ChainWeights._fields.index(name)
        part = getattr(w, name)
        assert np.all(part >= lower[k]) and np.all(part <= upper[k])


def test_no_passes():
    blocks = small_blocks("chain", "max_margin")
    result = ref.stochastic_subgradient(blocks, n_passes=0, bounds=(0.5, 1.0))
    assert result.history.shape == (0, 2)
    w = ref.ChainWeights(*result.w)
    assert np.all(w.emissions == 0.5) and np.all(w.end == 0.0)
    assert ref.batch_frank_wolfe(blocks, n_iter=0).history[:, 0].tolist() == [0]


def test_equal_seeds_give_equal_runs():
    blocks = small_blocks("permutation", "max_margin")
    runs = [ref.stochastic_subgradient(blocks, n_passes=3, random_state=s) for s in (7, 7, 8)]
    assert np.array_equal(flat(runs[0].w), flat(runs[1].w))
    assert not np.array_equal(flat(runs[0].w), flat(runs[2].w))


# errors


def test_errors():
    blocks = small_blocks("simplex", "max_margin")
    with pytest.raises(ValueError, match="sampling must be 'uniform' or 'permutation', got 'gap'"):
        ref.stochastic_subgradient(blocks, n_passes=1, sampling="gap")
    with pytest.raises(ValueError, match="bounds of part 0 of w have a lower one above"):
        ref.stochastic_subgradient(blocks, n_passes=1, bounds=(1.0, 0.0))
    with pytest.raises(ValueError, match="bounds of part 0 of w have a lower one above"):
        ref.stochastic_subgradient(blocks, n_passes=1, bounds=(np.nan, 0.0))
    with pytest.raises(ValueError, match="the upper bounds have 2 parts, but w has 1"):
        ref.stochastic_subgradient(blocks, n_passes=1, bounds=(0.0, (1.0, 1.0)))
    empty = ref.SimplexBlocks(np.zeros((0, 2)), [], 3, "max_margin", 0.1, weights=[])
    for call in (
        lambda: ref.batch_frank_wolfe(empty, n_iter=1),
        lambda: ref.stochastic_subgradient(empty, n_passes=1),
        lambda: ref.optimum_radius(empty),
    ):
        with pytest.raises(ValueError, match="blocks has no examples"):
            call()


def test_a_kind_of_blocks_must_say_what_it_is():
    blocks = ref.Blocks(1, "max_margin", 1.0, None)
    with pytest.raises(NotImplementedError):
        ref.batch_frank_wolfe(blocks, n_iter=1)
