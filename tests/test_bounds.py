"""Box constraints on w: feature maps that truncate, through the engine, against the reference."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import fastm4n.reference as ref
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.features._base import Penalty
from fastm4n.features._pairs import PairFeatures
from fastm4n.features._positions import ChainFeatures
from fastm4n.outputs import ChainOutputs, Layout, PermutationOutputs, SimplexOutputs
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.blocks.block_coordinate import solve
from fastm4n.solvers.certificates import certify, certify_average
from fastm4n.surrogates import make_surrogate

SURROGATES = ("max_margin", "max_min", "log")
SAMPLINGS = {"permutation": Sampling.PERMUTATION, "uniform": Sampling.UNIFORM, "gap": Sampling.GAP}
STEPS = {"line_search": Step.LINE_SEARCH, "fixed": Step.FIXED, "exact": Step.BLOCK}
FORMATS = {
    "dense64": np.ascontiguousarray,
    "dense32": lambda X: X.astype(np.float32),
    "csr64": sparse.csr_matrix,
    "csr32": lambda X: sparse.csr_array(X.astype(np.float32)),
}


def bound(features, lower, upper):
    """Give a map bounds, arrays of the shape of its weights."""
    lower, upper = np.atleast_2d(lower), np.atleast_2d(upper)
    n_shared = 0 if isinstance(features, PairFeatures) else features.n_features
    features.set_penalty(Penalty(lower.shape, n_shared, lower, upper))


def zero_one(k):
    return 1.0 - np.eye(k)


def box(shape, seed=0, scale=0.3):
    """Bounds of every kind: none, one-sided, away from zero, equal."""
    rng = np.random.default_rng(seed)
    ends = np.sort(scale * rng.normal(size=(2, *shape)), axis=0)
    ends[1] = np.where(rng.random(shape) < 0.1, ends[0], ends[1])
    ends[0][rng.random(shape) < 0.3] = -np.inf
    ends[1][rng.random(shape) < 0.3] = np.inf
    return ends[0], ends[1]


def quarters(rng, shape):
    """Values that float32 holds as well, and some zeros."""
    X = np.round(4 * rng.normal(size=shape)) / 4
    X[rng.random(shape) < 0.3] = 0.0
    return X


def padded(bounds, shape):
    """Bounds in rows of whole vectors: none behind the labels, and none of the rows that miss."""
    out = np.full(shape, -np.inf), np.full(shape, np.inf)
    for to, bound in zip(out, bounds):
        to[: bound.shape[0], : bound.shape[1]] = bound
    return out


def assert_certified(found, expected, rtol=1e-9):
    for name in ("primal", "dual", "gap", "block_gaps"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, atol=rtol)


# labels


class Labels:
    """Examples of k labels with a constant feature, whose weights have no bounds."""

    def __init__(self, seed=0, n=20, d=4, k=4, scale=0.3, shared=False):
        rng = np.random.default_rng(seed)
        self.X = quarters(rng, (n, d))
        self.y = np.argmax(self.X @ rng.normal(size=(d, k)) + rng.normal(size=(n, k)), axis=1)
        self.p = rng.dirichlet(np.full(n, 5.0))
        self.k, self.d = k, d
        self.bounds = box((1, k) if shared else (d, k), seed, scale)
        self.box = tuple(
            np.vstack([np.broadcast_to(bound, (d, k)), np.full(k, none)])
            for bound, none in zip(self.bounds, (-np.inf, np.inf)))

    def blocks(self, surrogate):
        Z = np.column_stack([self.X, np.full(len(self.y), 2.0)])
        return ref.SimplexBlocks(Z, self.y, self.k, surrogate, 0.05, self.p, penalty=self.box)

    def features(self, kind="dense64", bounded=True):
        X = FORMATS[kind](self.X)
        features = LinearFeatures(
            X, np.arange(len(self.y)), row_norms(X, 2.0), self.k, 2.0)
        if bounded:
            bound(features, *padded(self.box, (self.d + 1, features.stride)))
        return features

    def engine(self, surrogate, kind="dense64", alpha=0.05, seed=7, averaging=False, bounded=True):
        return BlockCoordinateEngine(
            make_surrogate(surrogate, SimplexOutputs(self.y, zero_one(self.k))), self.features(kind, bounded), self.p,
            alpha, seed, averaging)


@pytest.mark.parametrize("shared", [False, True], ids=["each", "shared"])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 9, 17, 33, 70])
def test_weights_of_linear_features(kind, k, shared):
    problem = Labels(k, d=6, k=k, shared=shared)
    lower, upper = (np.broadcast_to(bound, (6, k)) for bound in problem.bounds)
    engine = problem.engine("max_margin", kind)
    features = engine.features
    assert features.penalised and features.penalty.bound_step == (0 if shared else features.stride)
    start = features.coef()
    assert_array_equal(start, np.clip(0.0, lower, upper).T)
    for _ in range(3):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        z = features.state()["weights"]
        assert not z[:, k:].any()
        assert_array_equal(features.coef(), np.clip(z[:6, :k], lower, upper).T)
        assert_array_equal(features.constant_scores(), 2.0 * z[6, :k])
    if k > 1:
        assert np.abs(z[:6, :k] - features.coef().T).max() > 0.1
        assert np.abs(features.coef() - start).max() > 0.01
    w = np.vstack([features.coef().T, z[6, :k]])
    assert_allclose(features.weight_norm(), np.sum(w**2), rtol=1e-12)
    assert_allclose(features.penalty_value(), 0.5 * np.sum(w**2), rtol=1e-12)
    assert_allclose(
        features.conjugate_value(), np.sum(w * (z[:, :k] - 0.5 * w)), rtol=1e-12, atol=1e-12)
    coef = features.coef()
    engine.rebuild_weights(engine.mu.copy())
    assert_allclose(features.coef(), coef, atol=1e-12)
    features.clear()
    assert_array_equal(features.coef(), start)
    features.restore({"weights": z})
    assert_array_equal(features.coef(), coef)
    # other bounds, in the place of these
    bound(features, *padded((lower - 1.0, upper + 1.0), (7, features.stride)))
    assert_array_equal(features.coef(), np.clip(z[:6, :k], lower - 1.0, upper + 1.0).T)
    assert_array_equal(features.state()["weights"], z)


@pytest.mark.parametrize("kind", FORMATS)
def test_certificate_at_any_point(kind):
    problem = Labels(3, k=5)
    rng = np.random.default_rng(4)
    for surrogate in SURROGATES:
        engine = problem.engine(surrogate, kind)
        for mu in (np.eye(5)[problem.y], rng.dirichlet(np.ones(5), 20)):
            engine.set_mu(mu.ravel())
            found = certify(engine, engine.mu)
            assert_certified(found, problem.blocks(surrogate).certificate(zip(mu)))
            assert_allclose(found.primal - found.dual, found.gap, rtol=1e-9)


@pytest.mark.parametrize(("surrogate", "sampling", "step"), [
    combination for combination in itertools.product(SURROGATES, SAMPLINGS, STEPS)
    if combination[0] != "log" or combination[2] != "exact"])
def test_every_policy_takes_the_steps_of_the_reference(surrogate, sampling, step):
    problem = Labels(1)
    n_passes = 3 if sampling == "gap" and step == "exact" else 5
    engine = problem.engine(surrogate, averaging=step == "fixed")
    for i in range(n_passes):
        first = sampling == "gap" and i == 0
        engine.run_pass(Sampling.PERMUTATION if first else SAMPLINGS[sampling], STEPS[step])
    expected = ref.block_coordinate_frank_wolfe(
        problem.blocks(surrogate), sampling=sampling, step=step, n_passes=n_passes, random_state=7)
    assert_allclose(engine.mu, np.ravel(expected.states), atol=1e-9)
    assert_allclose(engine.features.coef(), expected.w[0][:-1].T, atol=1e-8)
    certificate = expected.history[-1, 1:]
    if step == "fixed":
        average, found = certify_average(engine)
        assert_allclose(average, np.ravel(expected.average), atol=1e-9)
        engine.rebuild_weights(average)
        assert_allclose(engine.features.coef(), expected.w_average[0][:-1].T, atol=1e-8)
    else:
        found = certify(engine, engine.mu)
    assert_allclose((found.primal, found.dual, found.gap), certificate, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("step", ["line_search", "exact"])
@pytest.mark.parametrize("scale", [0.01, 1.0, 1e6])
def test_the_dual_rises_to_the_primal(surrogate, step, scale):
    """Whatever the bounds, also where they do not let the weights near their best values."""
    if surrogate == "log" and step == "exact":
        step = "line_search"
    problem = Labels(2, scale=scale)
    engine = problem.engine(surrogate)
    duals, gaps = [], []
    for _ in range(400):
        engine.run_pass(Sampling.PERMUTATION, STEPS[step])
        certificate = certify(engine, engine.mu)
        duals.append(certificate.dual)
        gaps.append(certificate.gap)
    size = max(1.0, abs(duals[-1]))
    assert np.all(np.diff(duals) >= -1e-13 * size)
    assert gaps[-1] < 1e-2 * size and gaps[-1] < 0.1 * gaps[0] + 1e-9 * size


def test_bounds_that_leave_one_point():
    problem = Labels(5)
    fixed = np.random.default_rng(0).normal(size=(4, 4))
    problem.box = tuple(
        np.vstack([fixed, np.full(4, none)]) for none in (-np.inf, np.inf))
    engine = problem.engine("max_min")
    for _ in range(100):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    assert_array_equal(engine.features.coef(), fixed.T)
    assert certify(engine, engine.mu).gap < 2e-3


def test_features_refuse_other_shapes():
    features = Labels().features()
    for shape in ((4, 4), (5, 3), (1, 5)):
        with pytest.raises(ValueError, match="do not fit"):
            bound(features, np.zeros(shape), np.zeros(shape))
    with pytest.raises(ValueError, match="do not fit"):
        bound(features, np.zeros((5, features.stride)), np.zeros((5, 3)))


# sequences


class Chains:
    """Sequences; every weight may have bounds, also those that the estimators leave free."""

    def __init__(self, seed=0, lengths=(3, 1, 5, 2, 4, 1, 6), d=3, R=3, per_edge=False,
                 used=False):
        rng = np.random.default_rng(seed)
        values = quarters(rng, (sum(lengths), d))
        self.X = np.split(values, np.cumsum(lengths)[:-1])
        truth = rng.normal(size=(d, R))
        self.y = [np.argmax(x @ truth + rng.normal(size=(len(x), R)), axis=1) for x in self.X]
        self.lengths, self.R, self.d = np.array(lengths), R, d
        self.p = rng.dirichlet(np.full(len(lengths), 5.0))
        self.rows = box((d + 3 + (0 if per_edge else R), R), seed)
        self.per_edge = per_edge
        self.edge_rows = box((d + 1, R * R), seed + 1)
        self.used = rng.random((d + 3 + R, R)) < 0.5 if used else None
        if used:
            self.used[d : d + 3] = True  # intercept and ends always have all their weights

    def features(self, kind="dense64", bounded=True):
        X = FORMATS[kind](np.concatenate(self.X))
        starts = np.cumsum(self.lengths) - self.lengths
        used = edge_X = None
        layout = Layout.of_chains(self.lengths, self.R, self.per_edge)
        if self.used is not None:
            used = np.zeros((self.d + 3 + self.R, layout.stride), dtype=np.uint8)
            used[:, : self.R] = self.used
        if self.per_edge:
            edge_X = X
        features = ChainFeatures(
            X, starts, layout, 1.0, True, True, edge_X, used=used)
        if bounded:
            bound(features, *padded(self.rows, features.all_weights().shape))
            if self.per_edge:
                bound(features.edges, *self.edge_bounds(features))
        return features

    def edge_bounds(self, features):
        rows, R = self.d + 1, self.R
        out = []
        for bound, none in zip(self.edge_rows, (-np.inf, np.inf)):
            edges = np.full((rows, R, features.stride), none)
            edges[:, :, :R] = bound.reshape(rows, R, R)
            out.append(edges.reshape(rows, -1))
        return out

    def engine(self, surrogate, kind="dense64", bounded=True, alpha=0.05):
        structure = make_surrogate(surrogate, ChainOutputs(
            np.concatenate(self.y), self.lengths, zero_one(self.R), self.per_edge, cost_scale="mean"))
        return BlockCoordinateEngine(structure, self.features(kind, bounded), self.p, alpha, 7)

    def parts(self, rows):
        """The rows of a map as the parts of `ChainWeights`."""
        d, R = self.d, self.R
        return rows[:d, :R].T, rows[d, :R], rows[d + 1, :R], rows[d + 2, :R], rows[d + 3 :, :R]

    def bounds(self):
        return tuple(map(self.parts, self.rows))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("R", [2, 3, 5, 9])
def test_chains_take_the_steps_of_the_reference(kind, R):
    problem = Chains(R, R=R)
    engine = problem.engine("max_margin", kind)
    for _ in range(4):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    expected = ref.block_coordinate_frank_wolfe(
        ref.ChainBlocks(
            problem.X, problem.y, R, "max_margin", 0.05, problem.p, penalty=problem.bounds()),
        sampling="permutation", n_passes=4, random_state=7)
    for found, right in zip(problem.parts(engine.features.all_weights()), expected.w):
        assert_allclose(found, right, atol=1e-9)
    found = certify(engine, engine.mu)
    assert_allclose((found.primal, found.dual, found.gap), expected.history[-1, 1:], rtol=1e-9)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_chains_and_the_reference_come_to_one_optimum(surrogate):
    problem = Chains(1)
    engine = problem.engine(surrogate, alpha=0.5)
    duals = []
    for _ in range(150):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        duals.append(certify(engine, engine.mu).dual)
    assert np.all(np.diff(duals) >= -1e-12)
    found = certify(engine, engine.mu)
    expected = ref.block_coordinate_frank_wolfe(
        ref.ChainBlocks(
            problem.X, problem.y, 3, surrogate, 0.5, problem.p, oracle_tol=1e-7,
            penalty=problem.bounds()),
        n_passes=20)
    _, primal, dual, gap = expected.history[-1]
    assert found.dual <= primal + 1e-9 and dual <= found.primal + 1e-9
    assert found.gap < 1e-2 and gap < 5e-2


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("case", ["shared", "per_edge", "used"])
def test_weights_of_chain_features(kind, case):
    problem = Chains(2, d=4, R=5, per_edge=case == "per_edge", used=case == "used")
    engine = problem.engine("max_margin", kind)
    features = engine.features

    def maps():
        """Each map, its weights, and its bounds."""
        yield features, padded(problem.rows, features.all_weights().shape)
        if features.edges is not None:
            yield features.edges, problem.edge_bounds(features)

    for i in range(4):
        for part, (lower, upper) in maps():
            z, w = part.state()["weights"], np.array(part.all_weights())
            if case == "used":
                lower[:, :5][~problem.used], upper[:, :5][~problem.used] = -np.inf, np.inf
                assert not w[:, :5][~problem.used].any()
                assert (problem.rows[0][~problem.used] > 0).any()
            assert_array_equal(w, np.clip(z, lower, upper))
            assert not i or np.abs(z - w).max() > 0.1
        found = certify(engine, engine.mu)
        assert_allclose(found.primal - found.dual, found.gap, rtol=1e-9)
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    state, before = features.state(), [np.array(part.all_weights()) for part, _ in maps()]
    features.clear()
    for part, (lower, upper) in maps():
        if case != "used":
            assert_array_equal(part.all_weights(), np.clip(0.0, lower, upper))
    features.restore(state)
    for (part, _), weights in zip(maps(), before):
        assert_array_equal(part.all_weights(), weights)


# permutations


class Pairs:
    def __init__(self, seed=0, sizes=(3, 1, 2, 4, 3, 1, 2), d=5):
        rng = np.random.default_rng(seed)
        self.X = [rng.normal(size=(M, M, d)) for M in sizes]
        truth = rng.normal(size=d)
        self.y = [
            ref.best_permutation(x @ truth + rng.normal(size=x.shape[:2]))[0] for x in self.X]
        self.sizes, self.d = np.array(sizes), d
        self.p = rng.dirichlet(np.full(len(sizes), 5.0))
        self.bounds = box((d,), seed)

    def engine(self, surrogate, bounded=True, alpha=0.05):
        counts = self.sizes**2
        rows = np.concatenate([x.reshape(-1, self.d) for x in self.X])
        features = PairFeatures(
            rows, np.cumsum(counts) - counts, Layout.of_squares(self.sizes))
        if bounded:
            bound(features, *self.bounds)
        structure = make_surrogate(surrogate, PermutationOutputs(
            np.concatenate(self.y), self.sizes, zero_one(4), "mean"))
        return BlockCoordinateEngine(structure, features, self.p, alpha, 7)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_permutations(surrogate):
    problem = Pairs(3)
    blocks = ref.PermutationBlocks(
        problem.X, problem.y, surrogate, 0.3, problem.p, penalty=problem.bounds)
    engine = problem.engine(surrogate, alpha=0.3)
    features = engine.features
    duals = []
    for n_passes in range(1, 61):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        assert_array_equal(features.coef(), np.clip(features.state()["weights"][0], *problem.bounds))
        found = certify(engine, engine.mu)
        duals.append(found.dual)
        assert_allclose(found.primal - found.dual, found.gap, rtol=1e-9, atol=1e-12)
        if n_passes == 4 and surrogate == "max_margin":
            expected = ref.block_coordinate_frank_wolfe(
                blocks, sampling="permutation", n_passes=4, random_state=7)
            assert_allclose(features.coef(), expected.w[0], atol=1e-9)
            assert_allclose(
                (found.primal, found.dual, found.gap), expected.history[-1, 1:], rtol=1e-9)
    assert np.all(np.diff(duals) >= -1e-12)
    assert np.abs(features.state()["weights"] - features.coef()).max() > 0.1
    expected = ref.block_coordinate_frank_wolfe(blocks, n_passes=30)
    _, primal, dual, gap = expected.history[-1]
    assert found.dual <= primal + 1e-9 and dual <= found.primal + 1e-9
    assert found.gap < 1e-2 and gap < 5e-2
    state, coef = features.state(), features.coef()
    features.clear()
    assert_array_equal(features.coef(), np.clip(0.0, *problem.bounds))
    features.restore(state)
    assert_array_equal(features.coef(), coef)
    with pytest.raises(ValueError, match="do not fit"):
        bound(features, np.zeros(4), np.zeros(5))


# no bounds at all


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("make", [
    lambda: Labels(1), lambda: Chains(1), lambda: Chains(1, per_edge=True), lambda: Pairs(1)],
    ids=["labels", "chains", "per_edge", "pairs"])
def test_infinite_bounds_are_none_to_the_bit(surrogate, make):
    histories, states = [], []
    for bounded in (False, True):
        problem = make()
        for name in ("bounds", "box", "rows", "edge_rows"):
            if isinstance(getattr(problem, name, None), tuple):
                infinite = [np.full_like(bound, none) for bound, none in zip(
                    getattr(problem, name), (-np.inf, np.inf))]
                setattr(problem, name, tuple(infinite))
        engine = problem.engine(surrogate, bounded=bounded)
        assert engine.features.has_penalty() == bounded
        solution = solve(
            engine.surrogate, engine.features, problem.p, 0.05, max_iter=25, tol=0.0, seed=3)
        histories.append(solution.history)
        states.append(solution.mu)
    assert_array_equal(*states)
    for name in ("primal", "dual", "gap"):
        assert_array_equal(histories[0][name], histories[1][name])
