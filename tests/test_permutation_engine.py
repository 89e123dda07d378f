"""Structures and features of permutations, through the engine, against the reference."""

import functools

import numpy as np
import pytest
from fastm4n.features._kernel import KernelFeatures
from fastm4n.features._linear import LinearFeatures, row_norms
from fastm4n.features._pairs import PairFeatures, PairKernelFeatures
from fastm4n.solvers._block_coordinate import BlockCoordinateEngine, Sampling, Step
from numpy.testing import assert_allclose, assert_array_equal

import fastm4n.reference as ref
import fastm4n.solvers.certificates as certificates
from fastm4n.outputs import Layout, PermutationOutputs
from fastm4n.reference.block_coordinate import _visits
from fastm4n.solvers.block_coordinate import solve
from fastm4n.solvers.certificates import certify, certify_average
from fastm4n.solvers.history import HISTORY_KEYS
from fastm4n.surrogates import MaxMin, MaxMinMirrorProx, make_surrogate

SURROGATES = ("max_margin", "max_min", "log")
SAMPLINGS = {"permutation": Sampling.PERMUTATION, "uniform": Sampling.UNIFORM, "gap": Sampling.GAP}
# pairs have a row of features for each score; vectors one a block, and weights for each score
PAIRS = ("pairs", "pair_kernel")
VECTORS = ("linear", "kernel")
KINDS = PAIRS + VECTORS
COMBINATIONS = [
    ("max_margin", None), ("max_min", None), ("log", None), ("max_min", (12, True)),
    ("max_min", (5, False))]
SIZES = (3, 1, 2, 4, 3, 1, 2)


def random_cost(M, seed=99):
    cost = np.random.default_rng(seed).uniform(0.2, 2.0, (M, M))
    np.fill_diagonal(cost, 0.0)
    return cost


class Problem:
    """Permutations, and their engine over any features and under any surrogate."""

    def __init__(self, seed, sizes=SIZES, d=3, cost=None, alpha=0.1, weighted=True, noise=0.7,
                 kind="pairs"):
        rng = np.random.default_rng(seed)
        if kind in VECTORS:
            sizes = (3,) * len(sizes)
            self.vectors = rng.normal(size=(len(sizes), d))
            self.X = ref.vector_pairs(self.vectors, 3)
        else:
            self.X = [rng.normal(size=(M, M, d)) for M in sizes]
        truth = rng.normal(size=self.X[0].shape[-1])
        self.y = [
            ref.best_permutation(x @ truth + noise * rng.normal(size=x.shape[:2]))[0]
            for x in self.X]
        p = rng.uniform(0.3, 2.0, len(sizes)) if weighted else np.ones(len(sizes))
        self.p = p / p.sum()
        self.sizes, self.alpha, self.kind = np.array(sizes), alpha, kind
        self.cost = random_cost(max(sizes)) if cost is None else cost

    def features(self):
        if self.kind in VECTORS:
            n, k = len(self.vectors), 9
            if self.kind == "kernel":
                K = self.vectors @ self.vectors.T
                return KernelFeatures(np.diagonal(K).copy(), k, 0.0, gram=K)
            return LinearFeatures(
                self.vectors, np.arange(n), row_norms(self.vectors, 0.0), k, 0.0)
        rows = np.concatenate([x.reshape(-1, x.shape[-1]) for x in self.X])
        counts = self.sizes**2
        starts = np.cumsum(counts) - counts
        if self.kind == "pair_kernel":
            return PairKernelFeatures(rows @ rows.T, Layout.of_squares(self.sizes))
        return PairFeatures(rows, starts, Layout.of_squares(self.sizes))

    def structure(self, surrogate, oracle=None):
        places = np.concatenate(self.y)
        if oracle is not None:
            return MaxMinMirrorProx(PermutationOutputs(places, self.sizes, self.cost, cost_scale="mean"), *oracle)
        return make_surrogate(
            surrogate, PermutationOutputs(places, self.sizes, self.cost, "mean"))

    def engine(self, surrogate, seed=0, averaging=False, oracle=None):
        return BlockCoordinateEngine(
            self.structure(surrogate, oracle), self.features(), self.p, self.alpha, seed,
            averaging)

    def solve(self, surrogate, oracle=None, **options):
        return solve(
            self.structure(surrogate, oracle), self.features(), self.p, self.alpha, **options)

    def reference(self, surrogate, **options):
        return ref.permutation_block_coordinate_frank_wolfe(
            self.X, self.y, surrogate=surrogate, cost=self.cost, alpha=self.alpha, weights=self.p,
            **options)

    def certificate(self, surrogate, states):
        return ref.permutation_certificate(
            self.X, self.y, states, self.p, self.alpha, surrogate, self.cost)

    def unpack(self, mu):
        cuts = np.cumsum(self.sizes**2)
        assert len(mu) == cuts[-1]
        return [
            part.reshape(M, M) for part, M in zip(np.split(np.array(mu), cuts[:-1]), self.sizes)]

    def random_points(self, seed):
        """Mixtures of three permutations each."""
        rng = np.random.default_rng(seed)
        return [
            sum(s * ref.permutation_indicator(rng.permutation(M))
                for s in rng.dirichlet(np.ones(3))) for M in self.sizes]

    def reference_weights(self, points):
        return ref.permutation_primal_weights(self.X, self.y, points, self.p, self.alpha)

    def weights(self, features):
        """w, where a map holds it."""
        if self.kind == "pairs":
            return features.coef()
        return features.coef().T.ravel() if self.kind == "linear" else None

    def primal(self, surrogate, w):
        """P(w), from nothing but the weights."""
        total = 0.5 * self.alpha * w @ w
        for x, y, weight in zip(self.X, self.y, self.p):
            v, M = x @ w, len(y)
            upper = ref.permutation_oracle(v, surrogate, y, self.cost[:M, :M])[2]
            total += weight * (upper - np.sum(v[np.arange(M), y]))
        return total


def pack(points):
    return np.concatenate([point.ravel() for point in points])


def assert_doubly_stochastic(points, atol=1e-9):
    for mu in points:
        assert np.all(mu >= -1e-12)
        assert_allclose(mu.sum(axis=0), 1.0, atol=atol)
        assert_allclose(mu.sum(axis=1), 1.0, atol=atol)


def assert_certified(found, expected, rtol=1e-9):
    for name in ("primal", "dual", "gap", "block_gaps"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, atol=rtol)


def assert_certified_above(found, exact):
    """The dual is exact, the primal may lie above by the share that oracles may err."""
    assert_allclose(found.dual, exact.dual, rtol=1e-9, atol=1e-9)
    assert_primal_above(found, exact)
    assert np.all(found.block_gaps >= exact.block_gaps - 1e-8)


def assert_primal_above(found, exact):
    """The primal may lie above by the share that oracles may err; no dual value is worse."""
    assert found.dual >= exact.dual - 1e-9
    error = found.primal - exact.primal
    assert -1e-8 <= error <= 0.021 * found.gap + 1e-8
    assert_allclose(found.gap, found.primal - found.dual, atol=1e-8)


def run(engine, sampling, n_passes, step=Step.LINE_SEARCH):
    for i in range(n_passes):
        first = sampling == "gap" and i == 0
        engine.run_pass(Sampling.PERMUTATION if first else SAMPLINGS[sampling], step)


# scores, updates, h and certificates at given points


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("sizes", [SIZES, (1,), (1, 1, 1), (5,), (2, 2), (4, 1, 5)])
def test_certificates_at_any_point(kind, surrogate, sizes):
    problem = Problem(1, sizes=sizes, kind=kind)
    engine = problem.engine(surrogate)
    truth = [ref.permutation_indicator(y) for y in problem.y]
    assert_array_equal(engine.mu, pack(truth))
    for points in (truth, problem.random_points(1), problem.random_points(2)):
        engine.set_mu(pack(points))
        expected = [
            ref.permutation_concave_part(mu, surrogate, y, problem.cost[:len(y), :len(y)])
            for mu, y in zip(points, problem.y)]
        assert_allclose(engine.concave, expected, atol=1e-13)
        found, exact = certify(engine, engine.mu), problem.certificate(surrogate, points)
        if surrogate == "max_min":
            assert_certified_above(found, exact)
        else:
            assert_certified(found, exact, 1e-10)
        w = problem.weights(engine.features)
        if w is not None:
            assert_allclose(w, problem.reference_weights(points), atol=1e-12)
            assert_allclose(engine.features.weight_norm(), w @ w, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", ["pairs", "kernel"])
def test_the_bounds_of_a_certificate_hold_the_value_of_the_oracle(kind):
    """At the truth w = 0: the primal is the mean of the games' values without scores."""
    problem = Problem(2, kind=kind)
    for surrogate in SURROGATES:
        engine = problem.engine(surrogate)
        values = [
            ref.permutation_oracle(
                np.zeros((M, M)), surrogate, y, problem.cost[:M, :M])[2]
            for M, y in zip(problem.sizes, problem.y)]
        found = certify(engine, engine.mu)
        assert_allclose(found.primal, problem.p @ values, rtol=0.021)
        assert found.primal >= problem.p @ values - 1e-9
        assert found.dual == 0.0


# max-margin, step by step


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_max_margin_step_by_step(sampling, kind):
    problem = Problem(3, kind=kind)
    engine = problem.engine("max_margin", seed=7)
    expected = problem.reference("max_margin", sampling=sampling, n_passes=5, random_state=7)
    run(engine, sampling, 5)
    for found, state in zip(problem.unpack(engine.mu), expected.states):
        assert_allclose(found, state, atol=1e-9)
    w = problem.weights(engine.features)
    if w is not None:
        assert_allclose(w, expected.w, atol=1e-9)
    assert engine.n_visits == engine.oracle_calls == 5 * len(problem.y)
    assert_certified(
        certify(engine, engine.mu), problem.certificate("max_margin", expected.states), 1e-8)


@pytest.mark.parametrize(("sizes", "d"), [
    ((1, 1), 1), ((2, 1, 2), 1), ((5, 6), 2), ((3,) * 20, 7), ((4, 4, 1), 40)])
@pytest.mark.parametrize("kind", PAIRS)
def test_max_margin_of_other_shapes(kind, sizes, d):
    problem = Problem(4, sizes=sizes, d=d, alpha=1.0, kind=kind)
    engine = problem.engine("max_margin", seed=1)
    run(engine, "permutation", 3)
    expected = problem.reference(
        "max_margin", sampling="permutation", n_passes=3, random_state=1)
    for found, state in zip(problem.unpack(engine.mu), expected.states):
        assert_allclose(found, state, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampling", ["permutation", "uniform"])
def test_fixed_steps_and_their_average(kind, sampling):
    """Step 2 n / (t + 2 n), and the average of the iterates weighted by their numbers."""
    problem = Problem(5, kind=kind, alpha=0.5)
    engine = problem.engine("max_margin", seed=4, averaging=True)
    run(engine, sampling, 6, Step.FIXED)

    n, t = len(problem.y), 0
    mu = [ref.permutation_indicator(y) for y in problem.y]
    total = [np.zeros_like(point) for point in mu]
    rng, order = ref.SplitMix64(4), list(range(n))
    for pass_number in range(1, 7):
        for i in _visits(sampling, pass_number, order, problem.p, None, rng):
            w, M = problem.reference_weights(mu), len(mu[i])
            s = ref.permutation_oracle(
                problem.X[i] @ w, "max_margin", problem.y[i], problem.cost[:M, :M])[0]
            mu[i] = mu[i] + 2.0 * n / (t + 2.0 * n) * (s - mu[i])
            t += 1
            total = [a + t * b for a, b in zip(total, mu)]
    assert_allclose(engine.mu, pack(mu), atol=1e-9)
    average, found = certify_average(engine)
    expected = [2.0 / (t * (t + 1)) * part for part in total]
    assert_allclose(average, pack(expected), atol=1e-9)
    assert_certified(found, problem.certificate("max_margin", expected), 1e-8)


@pytest.mark.parametrize("oracle", [None, (8, True)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_averages_of_max_min(oracle, sampling):
    problem = Problem(6)
    engine = problem.engine("max_min", averaging=True, oracle=oracle)
    run(engine, sampling, 6, Step.FIXED)
    average, found = certify_average(engine)
    points = problem.unpack(average)
    assert_doubly_stochastic(points)
    assert_certified_above(found, problem.certificate("max_min", points))
    # the weights of the last iterate are left
    assert_allclose(
        engine.features.coef(), problem.reference_weights(problem.unpack(engine.mu)), atol=1e-9)
    solution = problem.solve(
        "max_min", oracle, step="fixed", sampling=sampling, max_iter=7, tol=0.0)
    points = problem.unpack(solution.mu)
    assert_doubly_stochastic(points)
    assert_primal_above(solution.certificate, problem.certificate("max_min", points))


# all surrogates


@functools.cache
def accurate(surrogate, seed, **options):
    """The certificate of a long fit."""
    tol = 1e-9 if surrogate == "log" else 2e-3
    solution = Problem(seed, **options).solve(surrogate, tol=tol, max_iter=3000)
    assert solution.converged
    return solution.certificate


@pytest.mark.parametrize(("surrogate", "oracle"), COMBINATIONS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_passes(surrogate, oracle, sampling, kind):
    """The dual never falls; points stay feasible, weights their own, certificates honest."""
    problem = Problem(7, alpha=0.5, kind=kind)
    engine = problem.engine(surrogate, seed=2, oracle=oracle)
    best = accurate(surrogate, 7, alpha=0.5, kind=kind)
    start = certify(engine, engine.mu).gap
    dual = 0.0
    for i in range(6):
        run(engine, "permutation" if i == 0 else sampling, 1)
        found = certify(engine, engine.mu)
        assert found.dual >= dual - 1e-12
        dual = found.dual
        assert found.gap >= found.primal - best.primal - 1e-9
        assert found.dual <= best.primal + 1e-9
    points = problem.unpack(engine.mu)
    assert_doubly_stochastic(points)
    if surrogate == "log":
        exact = certificate_of_log(problem, engine, points)
    else:
        exact = problem.certificate(surrogate, points)
    if surrogate == "max_min":
        assert_certified_above(found, exact)
    else:
        assert_certified(found, exact, 1e-8)
    running = problem.weights(engine.features)
    engine.rebuild_weights(engine.mu)
    again = certify(engine, engine.mu)
    assert_allclose((again.primal, again.dual), (found.primal, found.dual), rtol=0.02)
    if running is not None:
        assert_allclose(running, problem.weights(engine.features), atol=1e-11)
        assert_allclose(running, problem.reference_weights(points), atol=1e-10)
    assert found.gap < 0.6 * start


def certificate_of_log(problem, engine, points):
    """After a visit of each block, theta is known, whose marginals and entropy all follow from."""
    theta, is_first = engine.surrogate.state().values()
    moved = problem.sizes > 1
    assert not np.any(is_first[moved])
    states = problem.unpack(theta)
    for mu, h, state in zip(points, engine.concave, states):
        expected, entropy, _ = ref.permutation_entropy(state)
        assert_allclose(mu, expected, atol=1e-9)
        assert_allclose(h, entropy, atol=1e-9)
    return problem.certificate("log", states)


# five iterations from uniform starts are too rough an oracle to come close to the optimum
@pytest.mark.parametrize(("surrogate", "oracle"), COMBINATIONS[:4])
@pytest.mark.parametrize("kind", KINDS)
def test_solutions(surrogate, oracle, kind):
    problem = Problem(8, sizes=(3, 1, 4, 2), alpha=0.5, kind=kind)
    best = accurate(surrogate, 8, sizes=(3, 1, 4, 2), alpha=0.5, kind=kind)
    features = problem.features()
    tol = 0.02
    solution = solve(
        problem.structure(surrogate, oracle), features, problem.p, problem.alpha, tol=tol,
        max_iter=2000)
    found = solution.certificate
    assert solution.converged and found.gap <= tol
    assert 0 <= found.primal - best.dual <= tol + 3e-3
    assert found.dual <= best.primal + 1e-9
    w = problem.weights(features)
    if w is not None:
        of_mu = problem.reference_weights(problem.unpack(solution.mu))
        if solution.average is None:
            assert_allclose(w, of_mu, atol=1e-9)
        assert found.primal <= problem.primal(surrogate, of_mu) + 0.021 * tol + 1e-8
        assert -1e-8 <= found.primal - problem.primal(surrogate, w) <= 0.021 * tol + 1e-8
    history = solution.history
    assert tuple(history) == HISTORY_KEYS
    assert np.all(np.diff(np.append(0.0, history["dual"])) >= -1e-12)
    assert history["gap"][-1] == found.gap and history["pass"][-1] == solution.n_iter


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", ["pairs", "linear"])
def test_the_optimum_is_the_references(surrogate, kind):
    problem = Problem(9, sizes=(3, 1, 2, 3), alpha=1.0, kind=kind)
    n_passes = {"max_margin": 200, "max_min": 30, "log": 60}[surrogate]
    _, primal, dual, gap = problem.reference(
        surrogate, n_passes=n_passes, gap_every=n_passes).history[-1]
    assert gap < (1e-5 if surrogate == "log" else 0.05)
    tol = 1e-8 if surrogate == "log" else 0.01
    found = problem.solve(surrogate, tol=tol, max_iter=2000).certificate
    assert found.gap <= tol
    assert dual - 1e-9 <= found.primal and found.dual <= primal + 1e-9


def test_the_log_solution_is_the_references():
    problem = Problem(10, sizes=(3, 1, 4, 3), alpha=1.0)
    expected = problem.reference("log", n_passes=60, gap_every=60)
    assert expected.history[-1, 3] < 1e-8
    features = problem.features()
    solution = solve(
        problem.structure("log"), features, problem.p, problem.alpha, tol=1e-11, max_iter=500)
    assert solution.converged
    assert_allclose(features.coef(), expected.w, atol=2e-4)


def test_max_min_against_the_reference_at_equal_passes():
    """The maximisers of a game are not unique, and visits stop early: the ways differ a little."""
    for seed in range(3):
        problem = Problem(seed, sizes=(3, 1, 2, 4), alpha=0.5)
        engine = problem.engine("max_min", seed=1)
        run(engine, "permutation", 8)
        found = certify(engine, engine.mu)
        _, primal, dual, gap = problem.reference(
            "max_min", sampling="permutation", n_passes=8, random_state=1).history[-1]
        assert found.dual <= primal + 1e-9 and dual <= found.primal + 1e-9
        assert found.gap < 3 * gap + 0.1


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_two_items_are_two_labels(surrogate):
    problem = Problem(11, sizes=(2,) * 6, cost=1.0 - np.eye(2), alpha=0.3)
    Z = np.array(
        [x[0, 0] + x[1, 1] - x[0, 1] - x[1, 0] for x in problem.X]) / np.sqrt(2)
    expected = ref.block_coordinate_frank_wolfe(
        Z, [places[0] for places in problem.y], n_classes=2, surrogate=surrogate, alpha=0.3,
        weights=problem.p, n_passes=200, gap_every=200).history[-1]
    found = problem.solve(surrogate, tol=1e-3, max_iter=2000).certificate
    assert_allclose(found.dual, expected[2], atol=1e-3 + expected[3])
    assert_allclose(found.primal, expected[1], atol=1e-3 + expected[3])


@pytest.mark.parametrize("kind", [("pairs", "pair_kernel"), ("linear", "kernel")])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_a_linear_kernel_gives_the_path_of_its_features(kind, surrogate):
    points = []
    for one in kind:
        engine = Problem(12, kind=one, alpha=0.5).engine(surrogate)
        run(engine, "permutation", 3)
        points.append(np.array(engine.mu))
    assert_allclose(points[0], points[1], atol=1e-6 if surrogate == "max_min" else 1e-10)


@pytest.mark.parametrize("kind", ["pairs", "linear"])
def test_scores_of_vectors_are_those_of_their_pairs(kind):
    """The linear map against the map of pairs, over kron(e_(i, j), x)."""
    problem = Problem(13, kind="linear")
    problem.kind = kind
    for surrogate in SURROGATES:
        engine = problem.engine(surrogate, seed=5)
        run(engine, "uniform", 3)
        points = problem.unpack(engine.mu)
        assert_allclose(
            problem.weights(engine.features), problem.reference_weights(points), atol=1e-10)


@pytest.mark.parametrize(("surrogate", "oracle"), COMBINATIONS)
def test_extremes(surrogate, oracle):
    """One item, two items; strong and weak regularisation, features of any size."""
    for sizes, alpha, scale in (
            ((1, 1), 0.1, 1.0), ((2,), 1e-3, 1.0), ((2, 1), 1e3, 1.0), ((5,), 1e-5, 1.0),
            ((3, 2), 1e6, 1.0), ((3, 2, 1), 1.0, 1e3), ((4, 4), 1e-6, 1e-3), ((3,), 1.0, 0.0),
            ((3, 2), 1.0, 1e6)):
        problem = Problem(14, sizes=sizes, alpha=alpha)
        problem.X = [scale * x for x in problem.X]
        engine = problem.engine(surrogate, oracle=oracle)
        dual = 0.0
        for _ in range(8):
            run(engine, "permutation", 1)
            found = certify(engine, engine.mu)
            assert np.isfinite(found.primal)
            assert found.dual >= dual - 1e-12 and found.dual <= found.primal + 1e-12
            dual = found.dual
        assert_doubly_stochastic(problem.unpack(engine.mu))
        if max(sizes) == 1:
            assert_allclose([found.primal, found.dual, found.gap], 0.0, atol=1e-14)
        if alpha == 1e6 and oracle is None:
            assert found.gap < 1e-3


def test_no_blocks():
    structure = MaxMin(PermutationOutputs(np.zeros(0, int), np.zeros(0, int), np.zeros((1, 1)), cost_scale="mean"))
    features = PairFeatures(np.zeros((0, 2)), np.zeros(0, int), structure.outputs.layout)
    solution = solve(structure, features, np.zeros(0), 1.0, max_iter=2)
    assert solution.converged and solution.mu.shape == (0,)
    assert solution.certificate.primal == 0.0


@pytest.mark.parametrize(("surrogate", "oracle"), COMBINATIONS[:3])
def test_nothing_is_left_to_draw(surrogate, oracle):
    """Without features a visit solves its block; draws by gap then end a pass at once."""
    problem = Problem(15, cost=1.0 - np.eye(4))
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


@pytest.mark.parametrize("M", [2, 4])
@pytest.mark.parametrize("n_iter", [1, 4])
@pytest.mark.parametrize("warm_start", [False, True])
def test_mirror_prox_step_by_step(M, n_iter, warm_start):
    """Visits in plain NumPy, from uniform starts or the last averages; both project to 1e-6."""
    problem = Problem(16, sizes=(M,), alpha=8.0)
    x, y, cost = problem.X[0], problem.y[0], problem.cost
    engine = problem.engine("max_min", oracle=(n_iter, warm_start))
    mu, start = ref.permutation_indicator(y), None
    steps = []
    for _ in range(4):
        h = ref.permutation_concave_part(mu, "max_min", cost=cost)
        v = x @ problem.reference_weights([mu])
        s, nu, lower, upper = ref.max_min_permutation_mirror_prox(
            v, cost, n_iter, start=start, tol=1e-9)
        start = (s, nu) if warm_start else None
        direction = np.tensordot(s - mu, x, axes=2)
        ascent = lower - h - np.sum(v * mu)
        gamma = min(1.0, max(0.0, problem.alpha * ascent / (direction @ direction)))
        mu = mu + gamma * (s - mu)
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        assert_allclose(problem.unpack(engine.mu)[0], mu, atol=5e-5)
        assert_allclose(engine.oracle_error, upper - lower, atol=5e-5)
        steps.append(gamma)
    assert 0.05 < max(steps)


@pytest.mark.parametrize("sizes", [(4, 5, 6, 5), (3, 1, 3, 2), (8, 8)])
@pytest.mark.parametrize("n_iter", [5, 20])
def test_a_warm_start_makes_mirror_prox_better(sizes, n_iter):
    """Of the last visits of a fit, at the same budget."""
    for alpha in (0.5, 2.0, 8.0):
        problem = Problem(17, sizes=sizes, alpha=alpha)
        errors = []
        for warm_start in (True, False):
            engine = problem.engine("max_min", oracle=(n_iter, warm_start))
            run(engine, "permutation", 30)
            errors.append(engine.oracle_error)
        assert errors[0] < 0.9 * errors[1]


def test_the_certificate_of_mirror_prox_is_column_generations():
    problem = Problem(18, alpha=0.5)
    engine = problem.engine("max_min", oracle=(1, False))
    run(engine, "permutation", 5)
    other = problem.engine("max_min")
    other.set_mu(np.array(engine.mu))
    assert_certified_above(
        certify(engine, engine.mu), problem.certificate("max_min", problem.unpack(engine.mu)))
    assert_allclose(
        certify(engine, engine.mu).gap, certify(other, other.mu).gap, rtol=0.021)


# warm starts of the driver


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("shrink", [1.0, 0.7, 0.05])
@pytest.mark.parametrize("kind", ["pairs", "kernel"])
def test_a_shrunk_start_keeps_its_bound(surrogate, shrink, kind):
    """The regularisation path: w stays, and the gap grows by (1 - shrink) Delta at most."""
    problem = Problem(19, sizes=(3, 1, 4, 2), alpha=0.4, kind=kind)
    structure = problem.structure(surrogate)
    first = solve(structure, problem.features(), problem.p, problem.alpha, tol=0.02, max_iter=500)
    old = first.certificate
    points = problem.unpack(first.mu)
    w = problem.reference_weights(points)
    delta = sum(
        weight * (h + np.sum((x @ w) * (mu - ref.permutation_indicator(y))))
        for mu, y, x, h, weight in zip(points, problem.y, problem.X, old.concave, problem.p))

    problem.alpha *= shrink
    best = problem.solve(surrogate, tol=1e-2, max_iter=2000).certificate
    again = problem.structure(surrogate)
    again.restore(structure.state())
    features = problem.features()
    options = {"mu": first.mu, "concave": old.concave, "shrink": shrink}
    stopped = solve(again, features, problem.p, problem.alpha, max_iter=0, tol=0.0, **options)
    start = stopped.certificate
    truth = [ref.permutation_indicator(y) for y in problem.y]
    expected = [(1 - shrink) * a + shrink * b for a, b in zip(truth, points)]
    assert_allclose(stopped.mu, pack(expected), atol=1e-12)
    assert_allclose(problem.reference_weights(expected), w, atol=1e-9)
    slack = 0.05 * start.gap if surrogate == "max_min" else 0.0  # of the oracles
    assert start.gap <= old.gap + (1 - shrink) * delta + slack + 1e-9
    assert start.gap >= start.primal - best.primal - 1e-9
    assert start.dual <= best.primal + 1e-9
    # concave is below what it bounds
    if surrogate == "log":
        for bound, mu in zip(start.concave, expected):
            # the entropies of the items' positions, of which the permutation's is no larger
            assert -1e-12 <= bound <= -np.sum(mu * np.log(np.maximum(mu, 1e-300))) + 1e-9
    else:
        assert_allclose(
            start.dual, problem.certificate(surrogate, expected).dual, atol=1e-9)

    duals = []
    further = solve(
        again, problem.features(), problem.p, problem.alpha, tol=0.02, max_iter=2000,
        callback=lambda row: duals.append(row["dual"]), **options)
    assert further.converged
    assert duals[0] == start.dual and np.all(np.diff(duals) >= -1e-12)
    assert 0 <= further.certificate.primal - best.dual <= 0.02 + best.gap


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_a_start_from_the_dual_point_of_other_outputs(surrogate):
    """Any point is feasible for any truth, weights and alpha."""
    problem, other = Problem(20, alpha=0.2), Problem(20, alpha=0.5, noise=5.0, weighted=False)
    structure = problem.structure(surrogate)
    first = solve(structure, problem.features(), problem.p, problem.alpha, tol=1e-2)
    assert any(not np.array_equal(a, b) for a, b in zip(problem.y, other.y))
    best = other.solve(surrogate, tol=5e-3, max_iter=2000).certificate
    again = other.structure(surrogate)
    again.restore(structure.state())
    duals = []
    found = solve(
        again, other.features(), other.p, other.alpha, mu=first.mu,
        concave=first.certificate.concave, tol=0.02, max_iter=2000,
        callback=lambda row: duals.append(row["dual"]))
    assert found.converged and np.all(np.diff(duals) >= -1e-12)
    assert max(duals) <= best.primal + 1e-9
    assert 0 <= found.certificate.primal - best.dual <= 0.02 + best.gap


def test_the_state_of_the_log_surrogate():
    problem = Problem(21, sizes=(3, 2, 4, 2))
    structure = problem.structure("log")
    theta, is_first = structure.state().values()
    assert is_first.all()
    for mu, y in zip(problem.unpack(theta), problem.y):
        # by itself an item is at its true position with probability 0.99, of max_items ones
        assert_allclose(mu, np.log(99 * 3) * ref.permutation_indicator(y))
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


def test_no_exact_step():
    with pytest.raises(ValueError, match="step='exact' needs .* MaxMin over PermutationOutputs does not have"):
        Problem(0).solve("max_min", step="exact")


# repeatable


@pytest.mark.parametrize(("surrogate", "oracle"), COMBINATIONS)
@pytest.mark.parametrize("kind", ["pairs", "pair_kernel", "linear"])
def test_bits_repeat_whatever_the_threads(surrogate, oracle, kind, monkeypatch):
    calls = []
    original = certificates.ThreadPoolExecutor
    monkeypatch.setattr("fastm4n.solvers.certificates.PARALLEL_COST", 0.0)
    monkeypatch.setattr(certificates, "ThreadPoolExecutor", lambda n: calls.append(n) or original(n))
    problem = Problem(22, sizes=SIZES * 3, alpha=0.05, kind=kind)
    options = {"max_iter": 12, "tol": 1e-9, "seed": 3}
    one = problem.solve(surrogate, oracle, **options)
    assert not calls
    for n_jobs in (1, 2, 3, 50):
        other = problem.solve(surrogate, oracle, n_jobs=n_jobs, **options)
        assert_array_equal(other.mu, one.mu)
        for name in ("primal", "dual", "gap"):
            assert getattr(other.certificate, name) == getattr(one.certificate, name)
        for key in set(HISTORY_KEYS) - {"seconds"}:
            assert_array_equal(other.history[key], one.history[key])
    assert set(calls) == {2, 3, min(50, len(problem.y))}
    different = problem.solve(surrogate, oracle, **{**options, "seed": 4, "max_iter": 2})
    assert not np.array_equal(different.mu, one.mu)
