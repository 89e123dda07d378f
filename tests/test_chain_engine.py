"""Structures and features of sequences, through the engine, against the reference."""

import functools
import itertools

import numpy as np
import pytest
from fastm4n.features._chain import ChainFeatures
from fastm4n.features._linear import LinearFeatures, row_norms
from fastm4n.solvers._block_coordinate import BlockCoordinateEngine, Sampling, Step
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import fastm4n.reference as ref
import fastm4n.solvers.certificates as certificates
from fastm4n.outputs import ChainOutputs, Layout, SimplexOutputs
from fastm4n.solvers.block_coordinate import solve
from fastm4n.solvers.certificates import certify, certify_average
from fastm4n.solvers.history import HISTORY_KEYS
from fastm4n.surrogates import MaxMargin, MaxMinMirrorProx, make_surrogate

SURROGATES = ("max_margin", "max_min", "log")
SAMPLINGS = {"permutation": Sampling.PERMUTATION, "uniform": Sampling.UNIFORM, "gap": Sampling.GAP}
PARTS = ref.ChainWeights._fields
# what is fitted beside the emissions
FITS = [
    PARTS,
    ("emissions", "transitions"),
    ("emissions", "intercept"),
    ("emissions", "start", "end"),
]
FORMATS = {
    "dense64": np.ascontiguousarray,
    "dense32": lambda X: X.astype(np.float32),
    "csr64": sparse.csr_matrix,
    "csr32": lambda X: sparse.csr_array(X.astype(np.float32)),
}


def zero_one(R):
    return 1.0 - np.eye(R)


def random_cost(R, seed=99):
    cost = np.random.default_rng(seed).uniform(0.2, 2.0, (R, R))
    np.fill_diagonal(cost, 0.0)
    return cost


class Problem:
    """Sequences, and their engine in any format and under any surrogate."""

    def __init__(self, seed, lengths=(3, 1, 5, 2, 4, 1, 6), d=3, R=3, cost=None, alpha=0.1,
                 fit=PARTS, weighted=True, noise=0.7):
        rng = np.random.default_rng(seed)
        # quarters, which float32 holds as well, and some zeros
        values = np.round(4 * rng.normal(size=(sum(lengths), d))) / 4
        values[rng.random(values.shape) < 0.2] = 0.0
        self.X = np.split(values, np.cumsum(lengths)[:-1])
        truth = rng.normal(size=(d, R))
        self.y = [
            np.argmax(x @ truth + noise * rng.normal(size=(len(x), R)), axis=1) for x in self.X]
        self.lengths = np.array(lengths)
        p = rng.uniform(0.3, 2.0, len(lengths)) if weighted else np.ones(len(lengths))
        self.p = p / p.sum()
        self.R, self.alpha, self.fit = R, alpha, fit
        self.cost = random_cost(R) if cost is None else cost

    def features(self, kind="dense64"):
        values = FORMATS[kind](np.concatenate(self.X))
        starts = np.cumsum(self.lengths) - self.lengths
        return ChainFeatures(
            values, starts, Layout.of_chains(self.lengths, self.R), float("intercept" in self.fit),
            "start" in self.fit, "transitions" in self.fit)

    def structure(self, surrogate, oracle=None):
        y = np.concatenate(self.y)
        if oracle is not None:
            return MaxMinMirrorProx(ChainOutputs(y, self.lengths, self.cost, cost_scale="mean"), *oracle)
        return make_surrogate(
            surrogate, ChainOutputs(y, self.lengths, self.cost, cost_scale="mean"))

    def engine(self, surrogate, kind="dense64", seed=0, averaging=False, oracle=None):
        return BlockCoordinateEngine(
            self.structure(surrogate, oracle), self.features(kind), self.p, self.alpha, seed,
            averaging)

    def solve(self, surrogate, oracle=None, kind="dense64", **options):
        return solve(
            self.structure(surrogate, oracle), self.features(kind), self.p, self.alpha, **options)

    def reference(self, surrogate, **options):
        return ref.chain_block_coordinate_frank_wolfe(
            self.X, self.y, n_labels=self.R, surrogate=surrogate, cost=self.cost, alpha=self.alpha,
            weights=self.p, fit=self.fit, **options)

    def certificate(self, surrogate, states):
        return ref.chain_certificate(
            self.X, self.y, states, self.p, self.alpha, surrogate, self.cost, self.fit)

    def truth(self):
        return [
            (nodes, edges.sum(axis=0))
            for nodes, edges in (ref.chain_indicator(y, self.R) for y in self.y)]

    def unpack(self, mu, structure):
        """Nodes and transitions of each sequence, from the engine's flat array."""
        rows = np.array(mu).reshape(-1, structure.outputs.layout.stride)
        assert np.all(rows[:, self.R :] == 0)
        cuts = np.cumsum(self.lengths + self.R)
        return [
            (part[:T, : self.R], part[T:, : self.R])
            for part, T in zip(np.split(rows, cuts[:-1]), self.lengths)]

    def pack(self, points, structure):
        rows = np.concatenate([part for point in points for part in point])
        return np.pad(rows, [(0, 0), (0, structure.outputs.layout.stride - self.R)]).ravel()

    def random_points(self, seed):
        """Mixtures of three labellings each."""
        rng = np.random.default_rng(seed)
        points = []
        for T in self.lengths:
            parts = [
                (nodes, edges.sum(axis=0)) for nodes, edges in (
                    ref.chain_indicator(rng.integers(self.R, size=T), self.R) for _ in range(3))]
            share = rng.dirichlet(np.ones(3))
            points.append(tuple(sum(s * part[k] for s, part in zip(share, parts)) for k in (0, 1)))
        return points

    def weights(self, features):
        rows = np.array(features.all_weights())[:, : self.R]
        d = self.X[0].shape[1]
        return ref.ChainWeights(rows[:d].T, rows[d], rows[d + 1], rows[d + 2], rows[d + 3 :])

    def primal(self, surrogate, w):
        """P(w), from nothing but the weights."""
        total = 0.5 * self.alpha * sum(np.sum(part**2) for part in w)
        for x, y, weight in zip(self.X, self.y, self.p):
            v = ref.chain_scores(x, w)
            upper = ref.chain_oracle(*v, surrogate, y, self.cost)[3]
            total += weight * (upper - ref.score_labelling(y, *v))
        return total


def assert_points(found, expected, atol=1e-9):
    for one, other in zip(found, expected, strict=True):
        for part, right in zip(one, other):
            assert_allclose(part, right, atol=atol)


def assert_in_polytope(points):
    """Nodes and the sums of edges that they belong to."""
    for nodes, transitions in points:
        assert np.all(nodes >= -1e-12) and np.all(transitions >= -1e-12)
        assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-9)
        assert_allclose(transitions.sum(axis=1), nodes[:-1].sum(axis=0), atol=1e-9)
        assert_allclose(transitions.sum(axis=0), nodes[1:].sum(axis=0), atol=1e-9)


def assert_weights(found, expected, atol=1e-9):
    for part, right in zip(found, expected):
        assert_allclose(part, right, atol=atol)


def assert_certified(found, expected, rtol=1e-9):
    for name in ("primal", "dual", "gap", "block_gaps"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, atol=rtol)


def run(engine, sampling, n_passes, step=Step.LINE_SEARCH):
    for i in range(n_passes):
        first = sampling == "gap" and i == 0
        engine.run_pass(Sampling.PERMUTATION if first else SAMPLINGS[sampling], step)


# features


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("R", [1, 2, 3, 4, 5, 8, 9, 17, 26, 33, 70])
def test_scores_and_updates(kind, R):
    for seed, (fit, d) in enumerate(itertools.product(FITS, (1, 6))):
        problem = Problem(seed, lengths=(2, 1, 70, 5, 1, 64, 65), d=d, R=R, fit=fit)
        engine = problem.engine("max_margin", kind)
        assert engine.features.stride == engine.surrogate.outputs.layout.stride >= R
        for points in (problem.truth(), problem.random_points(seed)):
            engine.set_mu(problem.pack(points, engine.surrogate))
            assert_points(problem.unpack(engine.mu, engine.surrogate), points)
            found = certify(engine, engine.mu)
            assert_certified(found, problem.certificate("max_margin", points), 1e-10)
        expected = ref.chain_primal_weights(
            problem.X, problem.y, [ref.ChainPoint(*point, 0.0) for point in points], problem.p,
            problem.alpha, fit)
        assert_weights(problem.weights(engine.features), expected, 1e-11)
        norm = sum(np.sum(part**2) for part in expected)
        assert_allclose(engine.features.weight_norm(), norm, rtol=1e-12, atol=1e-14)
        assert_allclose(engine.features.constant_scores(), expected.intercept, atol=1e-11)


def test_the_value_of_the_constant():
    problem = Problem(0, fit=("emissions", "start", "end", "transitions"))
    with_column = Problem(0, fit=problem.fit)
    with_column.X = [np.column_stack([x, np.full(len(x), 3.0)]) for x in problem.X]
    starts = np.cumsum(problem.lengths) - problem.lengths
    features = ChainFeatures(
        np.concatenate(problem.X), starts, Layout.of_chains(problem.lengths, problem.R), 3.0,
        True, True)
    engine = BlockCoordinateEngine(
        problem.structure("max_margin"), features, problem.p, problem.alpha, 0)
    run(engine, "permutation", 3)
    other = with_column.engine("max_margin")
    run(other, "permutation", 3)
    assert_allclose(engine.mu, other.mu, atol=1e-12)
    assert_allclose(
        features.constant_scores(), 3.0 * with_column.weights(other.features).emissions[:, -1],
        atol=1e-12)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("T", [1, 2, 63, 64, 65, 130])
def test_norms_of_directions(kind, T):
    """The first steps of one sequence, whose length is the norm's only use.

    Norms come from the Gram matrix of the positions up to 64 of them, from sums over the
    positions beyond.
    """
    steps = []
    for seed, (fit, R, d) in enumerate(itertools.product(FITS, (2, 5, 70), (1, 5))):
        problem = Problem(seed, lengths=(T,), d=d, R=R, fit=fit, alpha=0.1 * T)
        engine = problem.engine("max_margin", kind)
        for n_passes in (1, 2):
            run(engine, "permutation", 1)
            expected = problem.reference("max_margin", n_passes=n_passes, sampling="permutation")
            assert_points(problem.unpack(engine.mu, engine.surrogate), expected.states, 1e-11)
            assert_weights(problem.weights(engine.features), expected.w, 1e-11)
            steps.append(1.0 - np.min(expected.states[0][0][np.arange(T), problem.y[0]]))
    # most are neither nothing nor whole, and depend on the norm
    assert np.mean((1e-4 < np.array(steps)) & (np.array(steps) < 1.0)) > 0.7


def test_long_and_short_blocks_that_share_rows():
    """Blocks may name any rows, in any order, and overlap."""
    problem = Problem(0, lengths=(80, 3))
    values = np.concatenate(problem.X)
    for kind in FORMATS:
        starts, lengths = np.array([5, 0, 81, 13]), np.array([66, 64, 2, 70])
        y = np.random.default_rng(0).integers(3, size=lengths.sum())
        p = np.full(4, 0.25)
        cost = problem.cost
        engine = BlockCoordinateEngine(
            MaxMargin(ChainOutputs(y, lengths, cost, cost_scale="mean")),
            ChainFeatures(
                FORMATS[kind](values), starts, Layout.of_chains(lengths, 3), 1.0, True, True),
            p, 20.0, 3)
        run(engine, "permutation", 3)
        expected = ref.chain_block_coordinate_frank_wolfe(
            [values[a : a + n] for a, n in zip(starts, lengths)],
            np.split(y, np.cumsum(lengths)[:-1]), n_labels=3, surrogate="max_margin", cost=cost,
            alpha=20.0, sampling="permutation", n_passes=3, random_state=3)
        cuts = np.cumsum(lengths + 3)[:-1]
        for part, state in zip(
                np.split(engine.mu.reshape(-1, engine.surrogate.outputs.layout.stride), cuts), expected.states):
            assert_allclose(part[:, :3], np.concatenate(state), atol=1e-10)


@pytest.mark.parametrize(("starts", "lengths"), [
    ([0, 3], [2, 3]), ([-1, 3], [2, 2]), ([0, 3], [2, 0])])
def test_blocks_outside_the_features(starts, lengths):
    with pytest.raises(IndexError, match="blocks must (have positions|lie in 0 ... 4)"):
        ChainFeatures(
            np.ones((5, 2)), np.array(starts), Layout.of_chains(lengths, 3), 1.0, True, True)


def test_weights_that_do_not_fit():
    features = ChainFeatures(
        np.ones((5, 2)), np.array([0]), Layout.of_chains([5], 3), 1.0, True, True)
    weights = np.array(features.all_weights())
    for wrong in (weights[1:], np.zeros((len(weights), 2 * weights.shape[1]))):
        with pytest.raises(ValueError, match="weights do not fit"):
            features.use(wrong)


# max-margin, step by step


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("fit", FITS)
def test_max_margin_step_by_step(sampling, kind, fit):
    problem = Problem(1, fit=fit)
    engine = problem.engine("max_margin", kind, seed=7)
    run(engine, sampling, 5)
    expected = problem.reference("max_margin", sampling=sampling, n_passes=5, random_state=7)
    assert_points(problem.unpack(engine.mu, engine.surrogate), expected.states)
    assert_weights(problem.weights(engine.features), expected.w)
    assert engine.n_visits == engine.oracle_calls == 5 * len(problem.y)
    assert_certified(
        certify(engine, engine.mu), problem.certificate("max_margin", expected.states), 1e-8)


@pytest.mark.parametrize(("lengths", "R", "d"), [
    ((1, 1, 1, 1), 2, 2), ((1, 7), 2, 1), ((2, 2, 2), 9, 4), ((70, 3, 66), 5, 3),
    ((4,) * 30, 17, 5)])
def test_max_margin_of_other_shapes(lengths, R, d):
    for kind in FORMATS:
        problem = Problem(2, lengths=lengths, R=R, d=d, alpha=1.0)
        engine = problem.engine("max_margin", kind, seed=1)
        run(engine, "permutation", 3)
        expected = problem.reference(
            "max_margin", sampling="permutation", n_passes=3, random_state=1)
        assert_points(problem.unpack(engine.mu, engine.surrogate), expected.states)


@pytest.mark.parametrize("sampling", ["permutation", "uniform"])
@pytest.mark.parametrize("step", [Step.LINE_SEARCH, Step.FIXED])
def test_sequences_of_length_one_are_the_simplex(sampling, step):
    problem = Problem(3, lengths=(1,) * 20, R=4, fit=("emissions", "intercept"))
    engine = problem.engine("max_margin", seed=5, averaging=step == Step.FIXED)
    run(engine, sampling, 4, step)
    values, y = np.concatenate(problem.X), np.concatenate(problem.y)
    simplex = BlockCoordinateEngine(
        MaxMargin(SimplexOutputs(y, problem.cost)),
        LinearFeatures(values, np.arange(20), row_norms(values, 1.0), 4, 1.0), problem.p,
        problem.alpha, 5, step == Step.FIXED)
    run(simplex, sampling, 4, step)
    nodes = [nodes[0] for nodes, _ in problem.unpack(engine.mu, engine.surrogate)]
    assert_allclose(nodes, simplex.mu.reshape(20, 4), atol=1e-12)
    if step == Step.FIXED:
        average, found = certify_average(engine)
        expected, right = certify_average(simplex)
        nodes = [nodes[0] for nodes, _ in problem.unpack(average, engine.surrogate)]
        assert_allclose(nodes, expected.reshape(20, 4), atol=1e-12)
    else:
        found, right = certify(engine, engine.mu), certify(simplex, simplex.mu)
    assert_certified(found, right)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_averages_of_fixed_steps(surrogate, sampling):
    problem = Problem(4)
    engine = problem.engine(surrogate, averaging=True)
    run(engine, sampling, 6, Step.FIXED)
    average, found = certify_average(engine)
    points = problem.unpack(average, engine.surrogate)
    assert_in_polytope(points)
    assert_certified_above(found, problem.certificate(surrogate, points))
    # the weights of the last iterate are left
    assert_weights(
        problem.weights(engine.features),
        ref.chain_primal_weights(
            problem.X, problem.y,
            [ref.ChainPoint(*point, 0.0)
             for point in problem.unpack(engine.mu, engine.surrogate)], problem.p, problem.alpha))


def assert_certified_above(found, exact):
    """The dual is exact, the primal may lie above by the share that oracles may err."""
    assert_allclose(found.dual, exact.dual, rtol=1e-9, atol=1e-9)
    error = found.primal - exact.primal
    assert -1e-8 <= error <= 0.021 * found.gap + 1e-8
    assert_allclose(found.gap, found.primal - found.dual, atol=1e-8)
    assert np.all(found.block_gaps >= exact.block_gaps - 1e-8)


# all surrogates


COMBINATIONS = [
    ("max_margin", None), ("max_min", None), ("log", None), ("max_min", (12, True)),
    ("max_min", (0, False))]


@functools.cache
def accurate(surrogate, seed, **options):
    """The certificate of a long fit."""
    tol = 1e-9 if surrogate == "log" else 3e-3
    solution = Problem(seed, **options).solve(surrogate, tol=tol, max_iter=1500)
    assert solution.converged
    return solution.certificate


@pytest.mark.parametrize(("surrogate", "oracle"), COMBINATIONS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", ["dense64", "csr32"])
def test_passes(surrogate, oracle, sampling, kind):
    """The dual never falls; points stay feasible, weights their own, certificates honest."""
    options = {"lengths": (3, 1, 5, 2, 4, 1, 12), "alpha": 0.5}
    problem = Problem(5, **options)
    engine = problem.engine(surrogate, kind, seed=2, oracle=oracle)
    best = accurate(surrogate, 5, **options)
    dual = 0.0
    for i in range(6):
        run(engine, "permutation" if i == 0 else sampling, 1)
        found = certify(engine, engine.mu)
        assert found.dual >= dual - 1e-12
        dual = found.dual
        assert found.gap >= found.primal - best.primal - 1e-9
        assert found.dual <= best.primal + 1e-9
    points = problem.unpack(engine.mu, engine.surrogate)
    assert_in_polytope(points)
    running = problem.weights(engine.features)
    if surrogate == "log":
        exact = certificate_of_log(problem, engine, points)
    else:
        exact = problem.certificate(surrogate, points)
    if surrogate == "max_min":
        assert_certified_above(found, exact)
    else:
        assert_certified(found, exact, 1e-8)
    engine.rebuild_weights(engine.mu)
    assert_weights(running, problem.weights(engine.features), 1e-11)
    assert_weights(
        running,
        ref.chain_primal_weights(
            problem.X, problem.y, [ref.ChainPoint(*point, 0.0) for point in points], problem.p,
            problem.alpha), 1e-10)
    start = problem.engine(surrogate, kind)
    assert found.gap < 0.5 * certify(start, start.mu).gap


def certificate_of_log(problem, engine, points):
    """After a visit of each block, theta is known, whose marginals and entropy all follow from."""
    theta, is_first = engine.surrogate.state().values()
    assert not is_first.any()
    states = problem.unpack(theta, engine.surrogate)
    expected = [ref.chain_point(state, "log", None, None) for state in states]
    assert_points(points, [(point.nodes, point.transitions) for point in expected])
    assert_allclose(engine.concave, [point.h for point in expected], atol=1e-9)
    return problem.certificate("log", states)


@pytest.mark.parametrize(("surrogate", "oracle"), COMBINATIONS)
@pytest.mark.parametrize("fit", FITS)
def test_solutions(surrogate, oracle, fit):
    options = {"lengths": (3, 1, 4, 2), "R": 2, "fit": fit, "alpha": 0.5}
    problem = Problem(6, **options)
    best = accurate(surrogate, 6, **options)
    features = problem.features()
    tol = 0.02
    solution = solve(
        problem.structure(surrogate, oracle), features, problem.p, problem.alpha, tol=tol,
        max_iter=1000)
    found = solution.certificate
    assert solution.converged and found.gap <= tol
    assert 0 <= found.primal - best.dual <= tol + 3e-3
    assert found.dual <= best.primal + 1e-9
    w = problem.weights(features)
    assert -1e-8 <= found.primal - problem.primal(surrogate, w) <= 0.02 * tol + 1e-8
    for name, part in zip(PARTS, w):
        assert np.any(part) == (name in fit)
    history = solution.history
    assert tuple(history) == HISTORY_KEYS
    assert np.all(np.diff(np.append(0.0, history["dual"])) >= -1e-12)
    assert history["gap"][-1] == found.gap and history["pass"][-1] == solution.n_iter


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_optimum_is_the_references(surrogate):
    problem = Problem(7, lengths=(3, 1, 2, 3), R=2, alpha=0.3)
    n_passes = {"max_margin": 400, "max_min": 40, "log": 60}[surrogate]
    _, primal, dual, gap = problem.reference(
        surrogate, n_passes=n_passes, gap_every=n_passes).history[-1]
    assert gap < {"max_margin": 0.2, "max_min": 0.03, "log": 1e-8}[surrogate]
    tol = 1e-7 if surrogate == "log" else 0.01
    found = problem.solve(surrogate, tol=tol, max_iter=1000).certificate
    assert found.gap <= tol
    assert dual - 1e-9 <= found.primal and found.dual <= primal + 1e-9
    if surrogate == "log":
        assert_allclose(found.primal, primal, atol=2e-7)


def test_the_log_solution_is_the_references():
    problem = Problem(8, lengths=(3, 1, 6, 3), alpha=0.2)
    expected = problem.reference("log", n_passes=100, gap_every=100)
    features = problem.features("csr64")
    solution = solve(
        problem.structure("log"), features, problem.p, problem.alpha, tol=1e-12, max_iter=500)
    assert solution.converged
    assert_weights(problem.weights(features), expected.w, 1e-5)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_log_steps_that_would_fall_are_halved(sampling):
    """Confident scores and small alpha: full steps overshoot."""
    for alpha in (1e-2, 1e-3, 1e-4):
        problem = Problem(0, lengths=(6, 5, 4, 1), alpha=alpha)
        problem.X = [5.0 * x for x in problem.X]
        engine = problem.engine("log")
        duals = [0.0]
        for i in range(15):
            run(engine, "permutation" if i == 0 else sampling, 1)
            duals.append(certify(engine, engine.mu).dual)
        assert np.all(np.diff(duals) >= -1e-12 * max(duals))
        assert duals[1] > 0 and duals[-1] > 1.1 * duals[1]


def test_max_min_against_the_reference_at_equal_passes():
    """The maximisers of a game are not unique, and visits stop early: the ways differ a little."""
    for seed in range(3):
        problem = Problem(seed, lengths=(3, 1, 2, 4), cost=zero_one(3), alpha=0.2)
        engine = problem.engine("max_min", seed=1)
        run(engine, "permutation", 10)
        found = certify(engine, engine.mu)
        _, primal, dual, gap = problem.reference(
            "max_min", sampling="permutation", n_passes=10, random_state=1).history[-1]
        assert found.dual <= primal + 1e-9 and dual <= found.primal + 1e-9
        assert found.gap < 3 * gap + 0.1


@pytest.mark.parametrize(("surrogate", "oracle"), COMBINATIONS)
def test_extremes(surrogate, oracle):
    """One label, two labels, single positions; strong and weak regularisation."""
    for R, lengths, alpha in (
            (1, (3, 1), 0.1), (2, (1,), 1e-3), (2, (1, 1), 1e3), (2, (9,), 1e-5), (3, (2, 1), 1e6)):
        problem = Problem(1, lengths=lengths, R=R, alpha=alpha)
        engine = problem.engine(surrogate, oracle=oracle)
        run(engine, "permutation", 8)
        found = certify(engine, engine.mu)
        assert np.isfinite(found.primal) and found.dual <= found.primal + 1e-12
        assert_in_polytope(problem.unpack(engine.mu, engine.surrogate))
        if R == 1:
            assert_allclose([found.primal, found.dual, found.gap], 0.0, atol=1e-14)
        if alpha == 1e6 and oracle is None:
            assert found.gap < 1e-3


@pytest.mark.parametrize(("surrogate", "oracle"), COMBINATIONS[:3])
def test_nothing_is_left_to_draw(surrogate, oracle):
    """Without features a visit solves its block; draws by gap then end a pass at once."""
    problem = Problem(0, fit=(), cost=zero_one(3))
    problem.X = [np.zeros_like(x) for x in problem.X]
    engine = problem.engine(surrogate, oracle=oracle)
    for _ in range(40):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        if engine.stale_gap() == 0.0:
            break
    n_visits = engine.n_visits
    engine.run_pass(Sampling.GAP, Step.LINE_SEARCH)
    assert engine.n_visits == n_visits
    assert_allclose(certify(engine, engine.mu).gap, 0.0, atol=1e-9)


# mirror prox


@pytest.mark.parametrize("n_iter", [3, 0])
def test_mirror_prox_step_by_step(n_iter):
    """Visits from uniform starts, in plain NumPy."""
    problem = Problem(9, lengths=(4,), R=3, alpha=0.7)
    x, y, cost, T = problem.X[0], problem.y[0], problem.cost, 4
    engine = problem.engine("max_min", oracle=(n_iter, False))
    (nodes, transitions), = problem.truth()
    for _ in range(3):
        h = np.mean(np.min(nodes @ cost, axis=1))
        w = ref.chain_primal_weights(
            [x], [y], [ref.ChainPoint(nodes, transitions, h)], None, problem.alpha)
        v = ref.chain_scores(x, w)
        s_nodes, s_edges, _, lower, _ = ref.max_min_mirror_prox_chain(
            *v, cost, n_iter or 10 * T)
        s_transitions = s_edges.sum(axis=0)
        current = h + np.sum(v[0] * nodes) + np.sum(v[1] * transitions)
        direction = ref.chain_features(x, s_nodes - nodes, s_transitions - transitions)
        norm = sum(np.sum(part**2) for part in direction)
        gamma = min(1.0, max(0.0, problem.alpha * (lower - current) / norm))
        nodes = nodes + gamma * (s_nodes - nodes)
        transitions = transitions + gamma * (s_transitions - transitions)
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        assert_points(problem.unpack(engine.mu, engine.surrogate), [(nodes, transitions)], 1e-10)
        assert engine.oracle_error > 0


def test_a_warm_start_makes_mirror_prox_better():
    """Of the last visits of a fit, at the same budget."""
    problem = Problem(10, lengths=(6, 5, 7, 6), alpha=0.5)
    errors = []
    for warm_start in (True, False):
        engine = problem.engine("max_min", oracle=(5, warm_start))
        run(engine, "permutation", 30)
        errors.append(engine.oracle_error)
    assert errors[0] < 0.7 * errors[1]


# warm starts of the driver


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("shrink", [1.0, 0.7, 0.05])
def test_a_shrunk_start_keeps_its_bound(surrogate, shrink):
    """Section 4 of the path: w stays, and the gap grows by (1 - shrink) Delta at most."""
    problem = Problem(11, lengths=(3, 1, 5, 2), alpha=0.4)
    structure = problem.structure(surrogate)
    first = solve(structure, problem.features(), problem.p, problem.alpha, tol=0.02, max_iter=500)
    old = first.certificate
    points = problem.unpack(first.mu, structure)
    features = problem.features()
    engine = BlockCoordinateEngine(structure, features, problem.p, problem.alpha, 0)
    engine.set_mu(first.mu, old.concave)
    w = problem.weights(features)
    delta = 0.0
    for point, truth, x, h, weight in zip(
            points, problem.truth(), problem.X, old.concave, problem.p):
        v = ref.chain_scores(x, w)
        delta += weight * (h + sum(np.sum(a * (b - c)) for a, b, c in zip(v, point, truth)))

    problem.alpha *= shrink
    best = problem.solve(surrogate, tol=5e-3, max_iter=1000).certificate
    again = problem.structure(surrogate)
    again.restore(structure.state())
    features = problem.features()
    options = {"mu": first.mu, "concave": old.concave, "shrink": shrink}
    stopped = solve(again, features, problem.p, problem.alpha, max_iter=0, tol=0.0, **options)
    start = stopped.certificate
    assert_weights(problem.weights(features), w, 1e-10)
    slack = 0.05 * start.gap if surrogate == "max_min" else 0.0  # of the oracles
    assert start.gap <= old.gap + (1 - shrink) * delta + slack + 1e-9
    assert start.gap >= start.primal - best.primal - 1e-9
    assert start.dual <= best.primal + 1e-9
    # concave is below what it bounds
    if surrogate == "log":
        for bound, point in zip(start.concave, problem.unpack(stopped.mu, again)):
            # the entropies of the positions, of which the chain's is no larger
            upper = -np.sum(point[0] * np.log(np.maximum(point[0], 1e-300)))
            assert -1e-12 <= bound <= upper + 1e-9
    else:
        exact = problem.certificate(surrogate, problem.unpack(stopped.mu, again))
        assert_allclose(start.dual, exact.dual, atol=1e-9)

    duals = []
    further = solve(
        again, problem.features(), problem.p, problem.alpha, tol=0.02, max_iter=1000,
        callback=lambda row: duals.append(row["dual"]), **options)
    assert further.converged
    assert duals[0] == start.dual and np.all(np.diff(duals) >= -1e-12)
    assert 0 <= further.certificate.primal - best.dual <= 0.02 + best.gap


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_a_start_from_the_dual_point_of_other_labels(surrogate):
    """Any point is feasible for any labels, weights and alpha."""
    problem, other = Problem(12, alpha=0.2), Problem(12, alpha=0.5, noise=5.0, weighted=False)
    structure = problem.structure(surrogate)
    first = solve(structure, problem.features(), problem.p, problem.alpha, tol=1e-2)
    assert any(not np.array_equal(a, b) for a, b in zip(problem.y, other.y))
    best = other.solve(surrogate, tol=5e-3, max_iter=1000).certificate
    again = other.structure(surrogate)
    again.restore(structure.state())
    duals = []
    found = solve(
        again, other.features(), other.p, other.alpha, mu=first.mu,
        concave=first.certificate.concave, tol=0.02, max_iter=1000,
        callback=lambda row: duals.append(row["dual"]))
    assert found.converged and np.all(np.diff(duals) >= -1e-12)
    assert max(duals) <= best.primal + 1e-9
    assert 0 <= found.certificate.primal - best.dual <= 0.02 + best.gap


def test_the_state_of_the_log_surrogate():
    problem = Problem(13)
    structure = problem.structure("log")
    theta, is_first = structure.state().values()
    assert is_first.all()
    solution = solve(structure, problem.features(), problem.p, problem.alpha, tol=1e-3)
    after, moved = structure.state().values()
    assert not np.array_equal(theta, after) and not moved.any()
    again = problem.structure("log")
    again.restore({"theta": after, "is_first": moved})
    assert_array_equal(again.state()["theta"], after)
    # copies
    after[:] = 7.0
    assert not np.any(structure.state()["theta"] == 7.0)
    assert np.array_equal(again.state()["theta"], structure.state()["theta"])
    resumed = solve(
        again, problem.features(), problem.p, problem.alpha, mu=solution.mu,
        concave=solution.certificate.concave, tol=1e-3)
    assert resumed.n_iter == 0
    assert_allclose(resumed.certificate.gap, solution.certificate.gap, atol=1e-10)
    # max-margin keeps nothing
    assert problem.structure("max_margin").state() == {}


# repeatable


@pytest.mark.parametrize(("surrogate", "oracle"), COMBINATIONS)
def test_bits_repeat_whatever_the_threads(surrogate, oracle, monkeypatch):
    calls = []
    original = certificates.ThreadPoolExecutor
    monkeypatch.setattr("fastm4n.solvers.certificates.PARALLEL_COST", 0.0)
    monkeypatch.setattr(certificates, "ThreadPoolExecutor", lambda n: calls.append(n) or original(n))
    problem = Problem(14, lengths=(3, 1, 5, 2, 4, 1, 6) * 3, alpha=0.05)
    options = {"max_iter": 22, "tol": 1e-9, "seed": 3}
    one = problem.solve(surrogate, oracle, **options)
    assert not calls
    for n_jobs in (1, 2, 3, 50):
        other = problem.solve(surrogate, oracle, n_jobs=n_jobs, **options)
        assert_array_equal(other.mu, one.mu)
        for name in ("primal", "dual", "gap"):
            assert getattr(other.certificate, name) == getattr(one.certificate, name)
        for key in set(HISTORY_KEYS) - {"seconds"}:
            assert_array_equal(other.history[key], one.history[key])
    assert set(calls) == {2, 3, 21}  # a thread has a block at least
    different = problem.solve(surrogate, oracle, **{**options, "seed": 4, "max_iter": 2})
    assert not np.array_equal(different.mu, one.mu)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_formats_of_the_same_numbers_give_the_same_path(surrogate):
    problem = Problem(15, lengths=(3, 70, 5, 1, 2), alpha=0.5)
    points = []
    for kind in FORMATS:
        engine = problem.engine(surrogate, kind)
        run(engine, "permutation", 3)
        points.append(np.array(engine.mu))
    for other in points[1:]:
        assert_allclose(other, points[0], atol=1e-6 if surrogate == "max_min" else 1e-10)
