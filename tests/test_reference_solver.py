"""The reference's solver for every kind of output: certificates, steps, policies, repeatability.

Held to enumeration of all outputs and to generic solvers (`Listed`).
"""

import copy
import functools

import numpy as np
import pytest
from covering import covering
from engine_cases import Chains, Labels, Permutations, absolute, random_cost, zero_one
from listed import Listed, flat
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import entr, softmax

import fastm4n.reference as ref
from fastm4n.reference import block_coordinate

SURROGATES = ("max_margin", "max_min", "log")
SAMPLINGS = ("gap", "uniform", "permutation")
STEPS = ("line_search", "fixed", "exact")
PARTS = ref.ChainWeights._fields
FEW_PARTS = ("emissions", "transitions")
KINDS = {
    "labels": functools.partial(Labels, cost=zero_one),
    "levels": functools.partial(Labels, cost=absolute),
    "costs": functools.partial(Labels, cost=random_cost),
    "chains": Chains,
    "zero-one chains": functools.partial(Chains, cost=zero_one, fit=FEW_PARTS, weighted=False),
    "permutations": Permutations,
}
# those that have steps of their own
OUTPUTS = ("labels", "chains", "permutations")
SMALL = {"labels": {"n": 15}, "chains": {"lengths": (3, 1, 2)}, "permutations": {"alpha": 1.0}}
# a visit of max_min may be some linear programs
N_PASSES = {"max_margin": 150, "max_min": 36, "log": 60}


def solve(blocks, n_passes=10, **options):
    return ref.block_coordinate_frank_wolfe(blocks, n_passes=n_passes, **options)


def listed(problem, name):
    return Listed(
        problem.blocks(name), [problem.listed(i) for i in range(problem.n)], problem.indicator,
        problem.cost)


def labels(seed, n=12, d=4, k=3, noise=0.5):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, d - 1)), np.ones(n)])
    return X, np.argmax(X @ rng.normal(size=(d, k)) + noise * rng.normal(size=(n, k)), axis=1)


def label_blocks(seed, surrogate, alpha=0.1, n=12, k=3, **options):
    return ref.SimplexBlocks(*labels(seed, n=n, k=k), k, surrogate, alpha, **options)


# the generator


def test_split_mix_64():
    rng = ref.SplitMix64(1234567)
    assert [rng.next() for _ in range(5)] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423,
        4593380528125082431, 16408922859458223821,
    ]
    draws = [rng.below(5) for _ in range(5000)]
    assert set(draws) == set(range(5))
    assert np.all(np.abs(np.bincount(draws) - 1000) < 150)
    assert 0.48 < np.mean([rng.uniform() for _ in range(5000)]) < 0.52


def test_draws_follow_the_masses():
    rng = ref.SplitMix64(0)
    masses = np.array([0.0, 1.0, 0.0, 3.0, 0.0])
    counts = np.bincount([block_coordinate._draw(masses, rng) for _ in range(4000)], minlength=5)
    assert_array_equal(counts[[0, 2, 4]], 0)
    assert abs(counts[1] - 1000) < 120
    assert block_coordinate._draw(np.zeros(3), rng) is None


# scores and features


def features_of(kind, x, y, k):
    """Phi(x) phi(y), flat, position by position."""
    if kind == "labels":
        return np.outer(x, np.eye(k)[y[0]]).ravel()
    if kind == "permutations":
        return sum(x[item, place] for item, place in enumerate(y))
    parts = ref.ChainWeights(
        np.zeros((k, x.shape[1])), np.zeros(k), np.eye(k)[y[0]], np.eye(k)[y[-1]], np.zeros((k, k)))
    for t, label in enumerate(y):
        parts.emissions[label] += x[t]
        parts.intercept[label] += 1.0
    for here, there in zip(y[:-1], y[1:]):
        parts.transitions[here, there] += 1.0
    return parts


@pytest.mark.parametrize(("kind", "fit"), [
    ("labels", None), ("permutations", None), ("chains", PARTS), ("chains", FEW_PARTS),
    ("chains", ("intercept", "end"))])
def test_scores_and_features_are_adjoint(kind, fit):
    rng = np.random.default_rng(0)
    options = {"labels": {"k": 3}, "permutations": {"sizes": (1, 2, 4)},
               "chains": {"lengths": (1, 2, 4), "R": 3, "fit": fit}}[kind]
    problem = KINDS[kind](0, **options)
    blocks = problem.blocks("max_margin")
    for i in range(problem.n):
        for y in problem.listed(i):
            phi = problem.indicator(i, y)
            found, expected = blocks.features(i, phi), features_of(kind, problem.X[i], y, 3)
            if fit:
                expected = flat([part * (name in fit) for name, part in zip(PARTS, expected)])
            assert_allclose(flat(found), expected, atol=1e-12)
            w = blocks.fitted(tuple(rng.normal(size=part.shape) for part in found))
            scores = sum(np.sum(v * part) for v, part in zip(blocks.scores(i, w), phi))
            assert_allclose(scores, flat(w) @ expected, atol=1e-12)


def test_vectors_as_pairs():
    rng = np.random.default_rng(1)
    X, w, mu = rng.normal(size=(3, 2)), rng.normal(size=(2, 9)), rng.normal(size=(3, 3))
    for x, pair in zip(X, ref.vector_pairs(X, 3)):
        assert_allclose(pair @ w.ravel(), (x @ w).reshape(3, 3))
        assert_allclose(
            np.tensordot(mu, pair, axes=2).reshape(2, 9), np.outer(x, mu.ravel()), atol=1e-15)


# the certificate


def random_point(problem, every, i, name, rng):
    """A state, the probabilities of all outputs that it stands for, and its h."""
    outputs = [problem.indicator(i, y) for y in problem.listed(i)]
    if name == "log" and problem.blocks(name).is_natural:
        state = tuple(rng.normal(size=part.shape) for part in outputs[0])
        q = softmax([sum(np.sum(a * b) for a, b in zip(state, phi)) for phi in outputs])
    else:
        q = rng.dirichlet(np.full(len(outputs), 0.5)) * (rng.random(len(outputs)) < 0.8)
        q = q / q.sum() if q.any() else np.eye(len(outputs))[0]
        state = tuple(
            sum(share * part for share, part in zip(q, parts)) for parts in zip(*outputs))
    h = {
        "max_margin": lambda: every.losses[i][every.true[i]] @ q,
        "max_min": lambda: np.min(q @ every.losses[i]),
        "log": lambda: np.sum(entr(q)),
    }[name]()
    return state, q, h


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", KINDS)
def test_certificate(kind, surrogate):
    """At random points, against P and D by enumeration of all outputs."""
    rng = np.random.default_rng(1)
    for seed in range(3):
        problem = KINDS[kind](seed, alpha=10.0 ** rng.uniform(-2, 1))
        every, blocks, p = listed(problem, surrogate), problem.blocks(surrogate), problem.p
        states, q, h = zip(*(
            random_point(problem, every, i, surrogate, rng) for i in range(problem.n)))
        w = sum(
            share / problem.alpha * (rows[t] - of @ rows)
            for share, rows, t, of in zip(p, every.rows, every.true, q))
        primal, dual, gap, gaps = blocks.certificate(states)
        points = [blocks.point(i, state) for i, state in enumerate(states)]
        assert_allclose(flat(blocks.primal_weights(points)), w, atol=1e-9)
        assert_allclose(primal, every.primal(w), rtol=1e-7, atol=1e-7)
        assert_allclose(dual, p @ h - problem.alpha / 2 * w @ w, rtol=1e-9, atol=1e-9)
        assert_allclose(gap, primal - dual, rtol=1e-8, atol=1e-8)
        assert np.all(gaps >= 0) and np.isclose(gap, p @ gaps)
        if isinstance(problem, Labels):
            gram = ref.SimplexBlocks(
                problem.X @ problem.X.T, problem.y, 3, surrogate, problem.alpha, p, problem.cost,
                gram=True)
            assert_allclose(gram.certificate(states)[:3], (primal, dual, gap), rtol=1e-7, atol=1e-7)


# the solver


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", KINDS)
def test_gap_bounds_the_suboptimality(kind, surrogate):
    problem = KINDS[kind](2, alpha=0.3, **({"lengths": (3, 1, 2)} if "chains" in kind else {}))
    blocks, every = problem.blocks(surrogate), listed(problem, surrogate)
    best = every.optimum(-np.inf, np.inf)
    n_passes = N_PASSES[surrogate]
    result = solve(blocks, n_passes, gap_every=n_passes // 6, random_state=1)
    for _, primal, dual, gap in result.history:
        assert gap >= primal - best - 1e-7
        assert dual <= best + 1e-7 <= primal + 2e-7
        assert_allclose(gap, primal - dual, atol=1e-8)
    _, primal, dual, gap = result.history[-1]
    assert gap < (1e-7 if surrogate == "log" else 0.05 * blocks.certificate(blocks.start()).gap)
    assert_allclose(dual, best, atol=gap + 1e-7)
    if isinstance(problem, Chains):
        for name, part in zip(PARTS, result.w):
            assert np.any(part) == (name in problem.fit)


@pytest.mark.parametrize(("kind", "step", "surrogate", "sampling"), covering(
    (*both, surrogate, sampling) for surrogate in SURROGATES for sampling in SAMPLINGS
    for both in (
        *((kind, "line_search") for kind in OUTPUTS), ("labels", "exact"), ("labels", "fixed"))))
def test_every_policy(kind, surrogate, sampling, step):
    """The dual never falls, the gap does, and all follows from the states; runs repeat."""
    problem = KINDS[kind](4, **SMALL[kind])
    blocks = problem.blocks(surrogate)
    # visits of labels cost little
    every, share = (7, 0.1) if kind == "labels" else (2, 0.4)
    options = {"sampling": sampling, "step": step, "gap_every": every}
    result = solve(blocks, 4 * every, **options)
    number, _, dual, gap = result.history.T
    assert_array_equal(number, every * np.arange(1, 5))
    start = blocks.certificate(blocks.start())
    if step != "fixed":
        assert np.all(np.diff(np.append(start.dual, dual)) >= -1e-12)
    assert dual[-1] > start.dual and np.all(gap >= 0)
    assert gap[-1] < share * start.gap and gap[-1] < gap[0]
    # w and the last row are those of the states
    points = [blocks.point(i, state) for i, state in enumerate(result.states)]
    for i, (*mu, _) in enumerate(points):
        assert all(np.all(part >= 0.0) for part in mu)
        problem.assert_consistent(i, *mu)
    assert_allclose(flat(result.w), flat(blocks.primal_weights(points)), atol=1e-10)
    final = blocks.certificate(result.average if step == "fixed" else result.states)
    assert_allclose(result.history[-1, 1:], final[:3], atol=1e-8)
    again, other = (solve(blocks, every, random_state=seed, **options) for seed in (0, 1))
    assert_array_equal(result.history[0], again.history[0])
    assert not np.array_equal(again.history, other.history)


def test_exact_steps_and_line_search_meet():
    for surrogate in ("max_margin", "max_min"):
        blocks = label_blocks(8, surrogate, 0.3, n=10)
        exact, searched = (
            solve(blocks, 300, sampling="permutation", step=step, gap_every=300).history[-1]
            for step in ("exact", "line_search"))
        assert exact[3] < 1e-9
        assert abs(exact[2] - searched[2]) <= searched[3] + 1e-9


def test_fixed_steps_and_their_average():
    """Against a replay in which every iterate is kept."""
    (X, y), n, k, alpha = labels(6, n=7), 7, 3, 0.2
    rng, order, mu, iterates = ref.SplitMix64(11), list(range(7)), np.eye(3)[y], []
    for t in range(4 * n):
        if t % n == 0:
            for j in range(n - 1, 0, -1):
                i = rng.below(j + 1)
                order[j], order[i] = order[i], order[j]
        b = order[t % n]
        w = X.T @ (np.eye(k)[y] - mu) / (alpha * n)
        s = np.eye(k)[np.argmax(X[b] @ w + zero_one(k)[y[b]])]
        gamma = 2 * n / (t + 2 * n)
        mu = mu.copy()
        mu[b] = (1 - gamma) * mu[b] + gamma * s
        iterates.append(mu)
    numbers = np.arange(1, len(iterates) + 1)
    average = np.einsum("t,tbj->bj", numbers / numbers.sum(), iterates)
    blocks = ref.SimplexBlocks(X, y, k, "max_margin", alpha)
    result = solve(blocks, 4, sampling="permutation", step="fixed", random_state=11)
    assert_allclose(np.ravel(result.states), iterates[-1].ravel(), atol=1e-12)
    assert_allclose(np.ravel(result.average), average.ravel(), atol=1e-12)
    assert_allclose(
        result.w_average[0], X.T @ (np.eye(k)[y] - average) / (alpha * n), atol=1e-12)
    assert_allclose(result.history[-1, 1:], blocks.certificate(zip(average))[:3])


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("step", STEPS)
def test_gram_matrix_in_place_of_features(surrogate, step):
    X, y = labels(seed=9)
    # exact steps leave gaps of rounding size, whose draws depend on the last digits
    options = {"step": step, "sampling": "permutation" if step == "exact" else "gap"}
    linear, gram = (
        solve(ref.SimplexBlocks(Z, y, 3, surrogate, 0.1, gram=Z is not X), 8, **options)
        for Z in (X, X @ X.T))
    assert_allclose(np.ravel(gram.states), np.ravel(linear.states), atol=1e-8)
    assert_allclose(X.T @ gram.w[0], linear.w[0], atol=1e-8)
    assert_allclose(gram.history, linear.history, atol=1e-8)


@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("step", ["line_search", "fixed"])
def test_mirror_prox_as_the_oracle(warm_start, step):
    rough, exact = (
        solve(label_blocks(10, "max_min", n=15, k=4, cost=absolute(4), **more), n, **options)
        for more, n, options in (
            ({"oracle_iter": 20, "oracle_warm_start": warm_start}, 20, {"step": step}),
            ({}, 100, {})))
    assert rough.history[-1, 3] < 0.3
    # both certificates bracket the same optimum
    assert rough.history[-1, 2] <= exact.history[-1, 1]
    assert exact.history[-1, 2] <= rough.history[-1, 1]


def test_an_inexact_oracle_leaves_the_certificate_valid():
    problem = Chains(2, lengths=(3, 1, 2), R=3)
    rough, exact = (
        ref.ChainBlocks(
            problem.X, problem.y, 3, "max_min", 0.1, cost=problem.cost, oracle_tol=tol)
        for tol in (0.2, 1e-9))
    found, best = (
        solve(blocks, 8, sampling="permutation", gap_every=8) for blocks in (rough, exact))
    _, primal, dual, _ = found.history[-1]
    assert dual <= best.history[-1, 1] and best.history[-1, 2] <= primal
    at_rough = exact.certificate(found.states)
    assert at_rough.primal < primal <= at_rough.primal + 0.2
    assert_allclose(dual, at_rough.dual)
    assert abs(dual - best.history[-1, 2]) > 1e-6


# the log surrogate


def test_the_log_step_is_the_secant():
    problem = Chains(3, lengths=(3,), d=2, alpha=4.0)
    blocks, rows = problem.blocks("log"), listed(problem, "log").rows[0]
    first, second = (solve(blocks, n) for n in (0, 1))
    theta, v = first.states[0], blocks.scores(0, first.w)
    q, target = (
        softmax([
            sum(np.sum(a * b) for a, b in zip(scores, problem.indicator(0, y)))
            for y in problem.listed(0)])
        for scores in (theta, v))
    symmetric = (target - q) @ (np.log(target) - np.log(q))
    move = (target - q) @ rows
    step = symmetric / (symmetric + move @ move / 4.0)
    assert 0.1 < step < 0.95
    for new, old, end in zip(second.states[0], theta, v):
        assert_allclose(new, (1 - step) * old + step * end, atol=1e-10)


@pytest.mark.parametrize(("kind", "seed", "alpha", "options", "share"), [
    ("chains", 1, 1e-3, {"lengths": (6, 5, 4)}, 0.05),
    ("permutations", 2, 0.3, {"sizes": (4, 4, 3)}, 0.4)])
def test_the_log_step_is_halved_where_it_would_fall(kind, seed, alpha, options, share):
    """Confident scores, far from the truth's probability of the start: full steps overshoot."""
    problem = KINDS[kind](seed, alpha=alpha, noise=0.7, weighted=False, **options)
    problem.X = [5.0 * x for x in problem.X]
    _, _, dual, gap = solve(
        problem.blocks("log"), 25, gap_every=1, sampling="permutation").history.T
    assert np.all(np.diff(dual) >= -1e-12)
    assert gap[-1] < share * gap[0] and dual[-1] > 50 * dual[0]


# what is alike


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_sequences_of_length_one_are_labels(surrogate):
    problem = Chains(6, lengths=(1,) * 8, R=3, fit=("emissions",), cost=zero_one)
    vectors = ref.SimplexBlocks(
        np.vstack(problem.X), np.concatenate(problem.y), 3, surrogate, 0.1, problem.p)
    n_passes = 40 if surrogate == "log" else 5
    sequences, vectors = (
        solve(blocks, n_passes, sampling="permutation", gap_every=n_passes)
        for blocks in (problem.blocks(surrogate), vectors))
    assert_allclose(sequences.history, vectors.history, atol=1e-8)
    assert_allclose(sequences.w[0].T, vectors.w[0], atol=1e-4 if surrogate == "log" else 1e-7)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_two_items_are_two_labels(surrogate):
    """v[0, 0] + v[1, 1] is the score of one label, v[0, 1] + v[1, 0] that of the other."""
    pairs = Permutations(5, sizes=(2,) * 6, cost=zero_one, alpha=0.3)
    # Phi(x) (phi(p) - phi(p')) = +- z, and two labels with features z / sqrt(2) have norm z too
    Z = [(x[0, 0] + x[1, 1] - x[0, 1] - x[1, 0]) / np.sqrt(2) for x in pairs.X]
    vectors = ref.SimplexBlocks(
        Z, [places[0] for places in pairs.y], 2, surrogate, 0.3, pairs.p)
    found, expected = (
        solve(blocks, 30, gap_every=30, sampling="permutation").history[-1]
        for blocks in (pairs.blocks(surrogate), vectors))
    gap = max(found[3], expected[3])
    assert gap < (1e-8 if surrogate == "log" else 0.05)
    assert_allclose(found[2], expected[2], atol=gap + 1e-9)


@pytest.mark.parametrize(("kind", "surrogate", "step"), [
    ("labels", "max_min", "exact"), *((kind, "log", "line_search") for kind in OUTPUTS)])
def test_weights_are_copies(kind, surrogate, step):
    """An example of weight two is two examples; a scale of the weights is nothing."""
    problem = KINDS[kind](7, alpha=1.0)
    repeats = 1 + np.arange(problem.n) % 3

    def run(repeats, p):
        other = copy.copy(problem)
        other.X = [x for x, k in zip(problem.X, repeats) for _ in range(k)]
        other.y = [y for y, k in zip(problem.y, repeats) for _ in range(k)]
        other.p = p
        return solve(other.blocks(surrogate), 80, step=step, gap_every=80)

    once = np.ones_like(repeats)
    weighted, scaled = (run(once, scale * repeats) for scale in (1.0, 4.0))
    repeated = run(repeats, np.ones(repeats.sum()))
    assert_allclose(flat(weighted.w), flat(scaled.w), atol=1e-12)
    assert weighted.history[-1, 3] < 1e-8
    assert_allclose(flat(weighted.w), flat(repeated.w), atol=1e-3)
    assert_allclose(weighted.history[-1, 2], repeated.history[-1, 2], atol=1e-6)


def test_restart_from_a_dual_point():
    blocks = label_blocks(13, "log")
    first = solve(blocks)
    given = np.ravel(first.states)
    second = solve(blocks, states=first.states)
    assert_array_equal(np.ravel(first.states), given)
    assert second.history[-1, 2] >= first.history[-1, 2] - 1e-14
    idle = solve(blocks, 0, states=first.states)
    assert_allclose(idle.w[0], first.w[0], atol=1e-12)
    assert idle.history.shape == (0, 4)


# one output only; no features, so that the oracle's point is optimal at once; one example
DEGENERATE = {
    "labels": (
        (ref.SimplexBlocks, np.ones((3, 2)), np.zeros(3, int), 1),
        (ref.SimplexBlocks, np.zeros((4, 2)), np.array([0, 1, 2, 0]), 3),
        (ref.SimplexBlocks, np.array([[1.0, 2.0]]), np.array([1]), 2)),
    "chains": (
        (ref.ChainBlocks, [np.ones((3, 2)), np.ones((1, 2))],
         [np.zeros(3, int), np.zeros(1, int)], 1),
        (functools.partial(ref.ChainBlocks, fit=()), [np.ones((3, 2))], [np.array([0, 1, 0])], 2),
        (ref.ChainBlocks, [np.ones((3, 2))], [np.array([0, 1, 0])], 2)),
    "permutations": (
        (ref.PermutationBlocks, [np.ones((1, 1, 2))] * 2, [np.zeros(1, int)] * 2),
        (ref.PermutationBlocks, [np.ones((3, 3, 0))], [np.array([0, 2, 1])]),
        (ref.PermutationBlocks, [np.ones((2, 2, 1))], [np.array([0, 1])])),
}


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize(("kind", "step"), [
    *((kind, "line_search") for kind in OUTPUTS), ("labels", "exact"), ("labels", "fixed")])
def test_degenerate_problems(kind, surrogate, step):
    one_output, nothing, one_example = (
        make(*data, surrogate, 0.1) for make, *data in DEGENERATE[kind])
    result = solve(one_output, 12, step=step)
    assert_allclose(result.history[:, 1:], 0.0, atol=1e-15)
    assert_array_equal(flat(result.w), 0.0)
    result = solve(nothing, 12, step=step)
    assert_allclose(result.history[-1, 3], 0.0, atol=0.02 if step == "fixed" else 1e-7)
    assert_array_equal(flat(result.w), 0.0)
    assert solve(one_example, 12, step=step).history[-1, 3] < 0.3
    assert solve(one_example, 0, step=step).history.shape == (0, 4)


@pytest.mark.parametrize("kind", OUTPUTS)
def test_unknown_policies(kind):
    problem = KINDS[kind](0)
    blocks = problem.blocks("log")
    with pytest.raises(ValueError, match="unknown sampling 'random'"):
        solve(blocks, sampling="random")
    with pytest.raises(ValueError, match="unknown step 'newton'"):
        solve(blocks, step="newton")
    with pytest.raises(ValueError, match="surrogate must be"):
        solve(problem.blocks("hinge"))
    if kind == "labels":
        with pytest.raises(ValueError, match="0-1 cost"):
            solve(label_blocks(15, "max_min", cost=absolute(3)), step="exact")
        return
    with pytest.raises(ValueError, match="steps of natural parameters are not fixed"):
        solve(blocks, step="fixed")
    with pytest.raises(ValueError, match="only labels have exact steps"):
        solve(problem.blocks("max_margin"), step="exact")
    if kind == "chains":
        with pytest.raises(ValueError, match="bias"):
            ref.ChainBlocks(problem.X, problem.y, 2, "log", 0.1, fit=("emissions", "bias"))
