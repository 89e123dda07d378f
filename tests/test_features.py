"""The compiled feature maps against NumPy, through the engine and its certificates."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from scipy import sparse

import fastm4n.reference as ref
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.features._base import Penalty
from fastm4n.features._kernel import KernelFeatures
from fastm4n.features._pairs import PairFeatures, PairKernelFeatures
from fastm4n.features._positions import ChainFeatures
from fastm4n.outputs import ChainOutputs, Layout, PermutationOutputs, SimplexOutputs
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.certificates import certify, certify_average
from fastm4n.surrogates import MaxMarginLoss, make_surrogate
from fastm4n.tasks._decoding import chain_all_scores as all_scores

LABELS = (1, 2, 3, 4, 5, 8, 9, 26, 33, 100)


def random_cost(rng, k):
    cost = rng.uniform(0.0, 3.0, (k, k))
    np.fill_diagonal(cost, 0.0)
    return cost


def problem(k, d, n=23, n_rows=31, seed=0):
    """Examples with many zeros and some empty rows, blocks that name rows in any order."""
    rng = np.random.default_rng(1000 * seed + 10 * k + d)
    # halves and quarters, which float32 holds as well
    X = np.round(4 * rng.normal(size=(n_rows, d))) / 4 * (rng.random((n_rows, d)) < 0.5)
    X[::7] = 0.0
    rows = rng.integers(n_rows, size=n)
    rows[:2] = 0, n_rows - 1
    y = rng.integers(k, size=n)
    p = rng.uniform(0.5, 2.0, n)
    return X, rows, y, p / p.sum(), random_cost(rng, k), rng.dirichlet(np.ones(k), n)


FORMATS = {
    "dense64": lambda X: np.ascontiguousarray(X),
    "dense32": lambda X: X.astype(np.float32),
    "csr64": sparse.csr_matrix,
    "csr32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
    "csr_array": sparse.csr_array,
}


def linear(X, rows, k, intercept):
    rows = np.asarray(rows)
    return LinearFeatures(X, rows, row_norms(X, intercept)[rows], k, intercept)


def with_constant(X, intercept):
    return np.column_stack([X, np.full(len(X), float(intercept))])


def assert_certified(found, expected):
    scale = max(1.0, abs(expected.primal))
    for name in ("primal", "dual", "gap", "block_gaps"):
        assert_allclose(
            getattr(found, name), getattr(expected, name), rtol=1e-12, atol=1e-12 * scale)


# linear features


@pytest.mark.parametrize(("kind", "d", "k", "intercept"), covering(
    itertools.product(FORMATS, (0, 1, 3, 64), LABELS, (0.0, 1.0, 10.0))))
def test_linear_features(kind, d, k, intercept):
    X, rows, y, p, cost, mu = problem(k, d)
    alpha = 0.3
    features = linear(FORMATS[kind](X), rows, k, intercept)
    assert (features.n_blocks, features.n_labels, features.n_features) == (len(rows), k, d)
    assert features.stride >= k
    engine = BlockCoordinateEngine(MaxMarginLoss(SimplexOutputs(y, cost)), features, p, alpha, 0)
    blocks = ref.SimplexBlocks(
        with_constant(X[rows], intercept), y, k, "max_margin", alpha, p, cost)
    # scores, at the start and at any other point
    for point in (np.eye(k)[y], mu):
        engine.set_mu(point.ravel())
        assert_certified(certify(engine, engine.mu), blocks.certificate(zip(point)))
    # update, and the shape of what is handed out
    (w,) = blocks.primal_weights([(point, 0.0) for point in mu])
    scale = max(1.0, np.abs(w).max())
    coef, constant = features.coef(), features.constant_scores()
    assert coef.flags.c_contiguous
    assert_allclose(coef, w[:-1].T, atol=1e-13 * scale)
    assert_allclose(constant, intercept * w[-1], atol=1e-12 * scale)
    assert_allclose(features.weight_norm(), np.sum(w**2), rtol=1e-12, atol=1e-14)
    # clear, state, restore
    state = features.state()
    features.clear()
    assert not np.any(features.coef()) and not np.any(features.constant_scores())
    features.restore(state)
    assert_array_equal(features.coef(), coef)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("k", LABELS)
def test_passes_over_linear_features(kind, k):
    """Scores, norms and updates in the course of a fit."""
    X, rows, y, p, cost, _ = problem(k, 6)
    features = linear(FORMATS[kind](X), rows, k, 2.0)
    engine = BlockCoordinateEngine(MaxMarginLoss(SimplexOutputs(y, cost)), features, p, 0.05, 3)
    for _ in range(4):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    expected = ref.block_coordinate_frank_wolfe(
        ref.SimplexBlocks(with_constant(X[rows], 2.0), y, k, "max_margin", 0.05, p, cost),
        sampling="permutation", n_passes=4, random_state=3)
    assert_allclose(engine.mu, np.ravel(expected.states), atol=1e-10)
    assert_allclose(features.coef(), expected.w[0][:-1].T, atol=1e-9)


def test_a_row_of_many_blocks():
    """Blocks that share a row are as many examples."""
    X, _, y, p, cost, mu = problem(4, 5)
    rows = np.zeros(len(y), dtype=int) + 1
    engine = BlockCoordinateEngine(MaxMarginLoss(SimplexOutputs(y, cost)), linear(X, rows, 4, 1.0), p, 0.1, 0)
    engine.set_mu(mu.ravel())
    blocks = ref.SimplexBlocks(with_constant(X[rows], 1.0), y, 4, "max_margin", 0.1, p, cost)
    assert_certified(certify(engine, engine.mu), blocks.certificate(zip(mu)))


@pytest.mark.parametrize("kind", FORMATS)
def test_row_norms(kind):
    X = problem(3, 7)[0]
    assert_allclose(row_norms(FORMATS[kind](X), 3.0), np.sum(X**2, axis=1) + 9.0, rtol=1e-13)


def test_row_norms_in_float64():
    """float32 values whose squares do not fit float32; and those that fit nothing."""
    X = np.array([[1e30, 0.0], [1e-30, 0.0]], dtype=np.float32)
    for given in (X, sparse.csr_matrix(X)):
        assert_allclose(row_norms(given, 0.0), [1e60, 1e-60], rtol=1e-6)
    for given in (np.array([[1e200]]), sparse.csr_matrix([[1e200]])):
        assert_array_equal(row_norms(given, 0.0), [np.inf])


def test_linear_features_refuse_what_they_cannot_hold():
    X = np.ones((4, 3))
    for rows in ([0, 4], [-1, 0]):
        with pytest.raises(IndexError, match=r"rows must lie in 0 \.\.\. 3"):
            LinearFeatures(X, np.array(rows), np.ones(2), 2, 0.0)
    with pytest.raises(ValueError, match="X must be C-ordered"):
        linear(np.asfortranarray(X), [0, 1], 2, 0.0)
    broken = sparse.csr_matrix(X)
    broken.indices[5] = 3
    with pytest.raises(IndexError, match="X has a column index outside its shape"):
        LinearFeatures(broken, np.arange(4), np.ones(4), 2, 0.0)


# kernel features


def gram_problem(k, n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    K = np.exp(-0.2 * np.sum((X[:, None] - X) ** 2, axis=2))
    p = rng.uniform(0.5, 2.0, n)
    y = rng.integers(k, size=n)
    return K, y, p / p.sum(), random_cost(rng, k), rng.dirichlet(np.ones(k), n)


class Rows:
    """Rows of a Gram matrix as they are asked for, at most 64 a call."""

    def __init__(self, K):
        self.K, self.n_calls, self.n_rows = K, 0, 0

    def __call__(self, blocks, out):
        assert 1 <= len(blocks) <= 64 and len(set(blocks)) == len(blocks)
        self.n_calls += 1
        self.n_rows += len(blocks)
        out[...] = self.K[blocks]


def kernel(K, k, intercept, n_cached=None):
    """The map and what computes its rows; n_cached=None holds the matrix whole."""
    diagonal = np.diagonal(K).copy()
    if n_cached is None:
        return KernelFeatures(diagonal, k, intercept, gram=K), None
    rows = Rows(K)
    return KernelFeatures(diagonal, k, intercept, compute_rows=rows, n_cached=n_cached), rows


CACHES = (None, 1, 3, 10, 150, 1000)


@pytest.mark.parametrize(("n_cached", "k", "intercept"), covering(
    itertools.product(CACHES, LABELS, (0.0, 10.0))))
def test_kernel_features(n_cached, k, intercept):
    # more than twice the 64 steps that are put off
    K, y, p, cost, mu = gram_problem(k, n=150)
    features, _ = kernel(K, k, intercept, n_cached)
    engine = BlockCoordinateEngine(MaxMarginLoss(SimplexOutputs(y, cost)), features, p, 0.3, 0)
    blocks = ref.SimplexBlocks(K + intercept**2, y, k, "max_margin", 0.3, p, cost, gram=True)
    for point in (np.eye(k)[y], mu):
        engine.set_mu(point.ravel())
        assert_certified(certify(engine, engine.mu), blocks.certificate(zip(point)))
    assert features.weight_norm() is None
    state = features.state()
    features.clear()
    assert certify(engine, engine.mu).primal != certify_with(features, engine, state).primal


def certify_with(features, engine, state):
    features.restore(state)
    return certify(engine, engine.mu)


@pytest.mark.parametrize("n_cached", CACHES)
@pytest.mark.parametrize("k", [2, 5, 9])
def test_passes_over_kernel_features(n_cached, k):
    """Visits see the steps that are still put off."""
    K, y, p, cost, _ = gram_problem(k, n=150)
    features, rows = kernel(K, k, 2.0, n_cached)
    engine = BlockCoordinateEngine(MaxMarginLoss(SimplexOutputs(y, cost)), features, p, 0.002, 3)
    for _ in range(2):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    expected = ref.block_coordinate_frank_wolfe(
        ref.SimplexBlocks(K + 4.0, y, k, "max_margin", 0.002, p, cost, gram=True),
        sampling="permutation", n_passes=2, random_state=3)
    assert_allclose(engine.mu, np.ravel(expected.states), atol=1e-9)
    if rows is not None:
        assert rows.n_rows == features.n_computed_rows >= 100
        if n_cached >= 150:
            # each row once: nothing is thrown away where all fit
            assert rows.n_rows <= 150


@pytest.mark.parametrize("n_cached", [1, 3, 10, 150])
@pytest.mark.parametrize("sampling", [Sampling.PERMUTATION, Sampling.GAP])
def test_a_cache_changes_nothing(n_cached, sampling):
    K, y, p, cost, _ = gram_problem(4, n=150)

    def fitted(n_cached):
        features, _ = kernel(K, 4, 1.0, n_cached)
        engine = BlockCoordinateEngine(MaxMarginLoss(SimplexOutputs(y, cost)), features, p, 0.01, 5)
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        for _ in range(3):
            engine.run_pass(sampling, Step.LINE_SEARCH)
        return np.array(engine.mu)

    assert_allclose(fitted(n_cached), fitted(None), atol=1e-9)


def test_a_cache_is_used():
    """Under gap sampling few rows are computed anew once the hard examples are known."""
    K, y, p, cost, _ = gram_problem(3, n=150)
    features, rows = kernel(K, 3, 1.0, n_cached=100)
    engine = BlockCoordinateEngine(MaxMarginLoss(SimplexOutputs(y, cost)), features, p, 0.01, 5)
    engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    for _ in range(4):
        engine.run_pass(Sampling.GAP, Step.LINE_SEARCH)
    n_visits, n_rows, n_calls = engine.n_visits, rows.n_rows, rows.n_calls
    for _ in range(5):
        engine.run_pass(Sampling.GAP, Step.LINE_SEARCH)
    assert engine.n_visits - n_visits == 750
    assert rows.n_rows - n_rows < 150
    # rows are computed several at a time
    assert n_calls < 0.2 * n_rows


def test_a_failing_row_leaves_the_state_consistent():
    K, y, p, cost, _ = gram_problem(3, n=150)

    def compute(blocks, out):
        if 40 in blocks:
            raise ZeroDivisionError("no row")
        out[...] = K[blocks]

    features = KernelFeatures(np.diagonal(K).copy(), 3, 1.0, compute_rows=compute, n_cached=5)
    engine = BlockCoordinateEngine(MaxMarginLoss(SimplexOutputs(y, cost)), features, p, 0.1, 0)
    with pytest.raises(ZeroDivisionError, match="no row"):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    mu = np.array(engine.mu).reshape(150, 3)
    assert np.any(mu != np.eye(3)[y])
    blocks = ref.SimplexBlocks(K + 1.0, y, 3, "max_margin", 0.1, p, cost, gram=True)
    assert_certified(certify(engine, engine.mu), blocks.certificate(zip(mu)))


def test_the_average_leaves_the_weights_as_they_were():
    K, y, p, cost, _ = gram_problem(3, n=100)
    X = np.random.default_rng(0).normal(size=(100, 4))
    for features in (
        kernel(K, 3, 1.0)[0], kernel(K, 3, 1.0, 4)[0], linear(X, np.arange(100), 3, 1.0)
    ):
        engine = BlockCoordinateEngine(MaxMarginLoss(SimplexOutputs(y, cost)), features, p, 0.1, 0, True)
        for _ in range(2):
            engine.run_pass(Sampling.UNIFORM, Step.FIXED)
        before = certify(engine, engine.mu)
        certify_average(engine)
        after = certify(engine, engine.mu)
        assert (before.primal, before.dual, before.gap) == (after.primal, after.dual, after.gap)


def test_gram_must_be_square():
    with pytest.raises(ValueError, match="gram must be square"):
        KernelFeatures(np.ones(3), 2, 0.0, gram=np.ones((3, 4)))


# features of pairs


class Pairs:
    """Blocks of k rows each, a row for every label, and their certificates in plain NumPy."""

    def __init__(self, k, d, n=17, seed=0):
        rng = np.random.default_rng(100 * seed + 10 * k + d)
        self.rows = rng.normal(size=(n * k, d)) * (rng.random((n * k, d)) < 0.7)
        self.starts = np.arange(n) * k
        self.y, p = rng.integers(k, size=n), rng.uniform(0.5, 2.0, n)
        self.p, self.cost, self.alpha = p / p.sum(), random_cost(rng, k), 0.3
        self.mu = rng.dirichlet(np.ones(k), n)
        self.k = k

    def features(self, kind):
        layout = Layout.of_labels(len(self.starts), self.k)
        if kind == "kernel":
            return PairKernelFeatures(self.rows @ self.rows.T, layout)
        return PairFeatures(self.rows, self.starts, layout)

    def engine(self, features):
        return BlockCoordinateEngine(
            MaxMarginLoss(SimplexOutputs(self.y, self.cost)), features, self.p, self.alpha, 0)

    def blocks(self):
        return np.array([self.rows[a:a + self.k] for a in self.starts])

    def weights(self, mu):
        return np.einsum(
            "b,bkd,bk->d", self.p / self.alpha, self.blocks(), np.eye(self.k)[self.y] - mu)

    def certificate(self, mu):
        w = self.weights(mu)
        v, own = self.blocks() @ w, np.arange(len(self.y))
        upper, h = np.max(v + self.cost[self.y], axis=1), np.sum(self.cost[self.y] * mu, axis=1)
        penalty = 0.5 * self.alpha * w @ w
        gaps = np.maximum(0.0, upper - h - np.sum(v * mu, axis=1))
        return ref.Certificate(
            self.p @ (upper - v[own, self.y]) + penalty, self.p @ h - penalty, self.p @ gaps, gaps)


@pytest.mark.parametrize("kind", ["rows", "kernel"])
@pytest.mark.parametrize("d", [1, 3, 8, 65])
@pytest.mark.parametrize("k", LABELS)
def test_pair_features(kind, k, d):
    pairs = Pairs(k, d)
    features = pairs.features(kind)
    assert (features.n_blocks, features.n_labels) == (17, k)
    assert features.stride == features.size >= k
    engine = pairs.engine(features)
    # scores, at the start and at any other point
    for point in (np.eye(k)[pairs.y], pairs.mu):
        engine.set_mu(point.ravel())
        assert_certified(certify(engine, engine.mu), pairs.certificate(point))
    # update, and the shape of what is handed out
    w = pairs.weights(pairs.mu)
    scale = max(1.0, np.abs(w).max())
    if kind == "rows":
        assert features.n_features == d
        assert features.coef().shape == (d,)
        assert_allclose(features.coef(), w, atol=1e-13 * scale)
        assert_allclose(features.weight_norm(), w @ w, rtol=1e-12, atol=1e-14)
    else:
        assert features.weight_norm() is None
        assert_allclose(features.state()["scores"], pairs.rows @ w, atol=1e-12 * d * scale)
    # clear, state, restore, which are copies
    state = features.state()
    [[name, before]] = copy.deepcopy(state).items()
    features.clear()
    assert not np.any(features.state()[name])
    assert_array_equal(state[name], before)
    features.restore(state)
    state[name][:] = 7.0
    assert_array_equal(features.state()[name], before)


@pytest.mark.parametrize("kind", ["rows", "kernel"])
@pytest.mark.parametrize("k", LABELS[1:])
def test_norms_of_directions_of_pairs(kind, k):
    """The length of the first step, of each block by itself, is the norm's only use."""
    lengths = []
    for b in range(6):
        pairs = Pairs(k, 5, seed=1)
        pairs.starts = pairs.starts[b:b + 1]
        pairs.y, pairs.p = pairs.y[b:b + 1], np.ones(1)
        if kind == "kernel":
            pairs.rows, pairs.starts = pairs.blocks()[0], np.zeros(1, dtype=int)
        pairs.alpha = 2.0
        engine = pairs.engine(pairs.features(kind))
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        truth = np.eye(k)[pairs.y[0]]
        direction = np.eye(k)[np.argmax(pairs.cost[pairs.y[0]])] - truth
        norm = np.sum((pairs.blocks()[0].T @ direction) ** 2)
        ascent = pairs.cost[pairs.y[0]].max()
        step = min(1.0, pairs.alpha * ascent / norm) if norm > 0 else 1.0
        assert_allclose(engine.mu, truth + step * direction, atol=1e-12)
        lengths.append(step)
    assert min(lengths) < 1.0


def test_pairs_that_share_rows():
    """Blocks may name any rows, in any order, and overlap."""
    pairs = Pairs(4, 6)
    pairs.starts = np.array([3, 0, 5, 3, 64, 1, 2, 9, 7, 7, 7, 20, 33, 12, 50, 1, 0])
    engine = pairs.engine(pairs.features("rows"))
    engine.set_mu(pairs.mu.ravel())
    assert_certified(certify(engine, engine.mu), pairs.certificate(pairs.mu))


def test_pair_features_refuse_what_they_cannot_hold():
    for starts, sizes in (([0, 3], [2, 2]), ([-1, 2], [2, 2]), ([4, 0], [1, 3])):
        with pytest.raises(IndexError, match=r"blocks must lie in 0 \.\.\. 3"):
            PairFeatures(np.eye(4), np.array(starts), Layout(np.ones(2), 3, 0, np.subtract(sizes, 1)))
    layout = Layout.of_labels(2, 2)
    for kind in (lambda X: PairFeatures(X, np.array([0, 2]), layout),
                 lambda gram: PairKernelFeatures(gram, layout)):
        with pytest.raises(ValueError, match="ndarray is not C-contiguous"):
            kind(np.asfortranarray(np.arange(16.0).reshape(4, 4)))
        with pytest.raises(ValueError, match="Buffer dtype mismatch"):
            kind(np.eye(4, dtype=np.float32))


def test_a_gram_matrix_of_pairs_has_a_row_for_each():
    for gram in (np.ones((4, 3)), np.ones((5, 5))):
        with pytest.raises(ValueError, match="gram must be square, with one row for each row"):
            PairKernelFeatures(gram, Layout.of_labels(2, 2))


# pickles


def labels_map(kind):
    """A map and its loss over 23 labels."""
    k = 5
    X, rows, y, _, cost, _ = problem(k, 6)
    loss = make_surrogate("max_margin", SimplexOutputs(y, cost))
    if "kernel" in kind:
        K = gram_problem(k, n=len(y))[0]
        return kernel(K, k, 2.0, 10 if kind == "cached kernel" else None)[0], loss
    return linear(FORMATS[kind](X), rows, k, 2.0), loss


def chain_map(kind):
    """A map and its loss over sequences, one of which is too long for a Gram matrix."""
    rng = np.random.default_rng(1)
    lengths, R = np.array([3, 1, 70, 4]), 3
    X = rng.normal(size=(lengths.sum(), 4)) * (rng.random((lengths.sum(), 4)) < 0.6)
    per_edge = "edges" in kind
    arguments = (
        sparse.csr_matrix(X), np.cumsum(lengths) - lengths, Layout.of_chains(lengths, R, per_edge),
        1.0, True, True, X.copy() if per_edge else None)
    features = ChainFeatures(*arguments)
    if "used" in kind:
        used = {
            name: (rng.random(part.all_weights().shape) < 0.8).astype(np.uint8)
            for name, part in (("used", features), ("edge_used", features.edges)) if part}
        used["used"][4:7] = 1  # those of the ends always are
        features = ChainFeatures(*arguments, **used)
    outputs = ChainOutputs(
        rng.integers(R, size=lengths.sum()), lengths, random_cost(rng, R), per_edge)
    return features, make_surrogate("log", outputs)


def pair_map(kind):
    """A map and its loss over permutations."""
    rng, sizes = np.random.default_rng(2), np.array([3, 1, 4, 2])
    rows = rng.normal(size=(np.sum(sizes**2), 5))
    outputs = PermutationOutputs(
        np.concatenate([rng.permutation(M) for M in sizes]), sizes, random_cost(rng, 4))
    if kind == "pair kernel":
        features = PairKernelFeatures(rows @ rows.T, outputs.layout)
    else:
        features = PairFeatures(rows, np.cumsum(sizes**2) - sizes**2, outputs.layout)
    return features, make_surrogate("max_min", outputs)


def penalise(part, **options):
    shape = part.all_weights().shape
    part.set_penalty(Penalty(shape, part.n_features if shape[0] > 1 else 0, **options))


MAPS = {
    **dict.fromkeys((*FORMATS, "kernel", "cached kernel"), labels_map),
    **dict.fromkeys(("chain", "chain, used", "chain, edges", "chain, edges, used"), chain_map),
    **dict.fromkeys(("pairs", "pair kernel"), pair_map),
}
PENALTIES = {
    "plain": None, "bounds": {"lower": -0.1, "upper": 0.2},
    "elastic net": {"thresholds": 0.05, "modulus": 0.5},
    "groups": {"thresholds": 0.05, "modulus": 0.5, "by_rows": True},
}


@pytest.mark.parametrize(("kind", "penalty"), [
    (kind, penalty) for kind in MAPS for penalty in PENALTIES
    if penalty == "plain" or not ("kernel" in kind or (kind == "pairs" and penalty == "groups"))])
def test_pickles_in_mid_fit(kind, penalty):
    """Map and loss go on, bit for bit, as those that were pickled."""
    features, loss = MAPS[kind](kind)
    parts = [features, *([features.edges] if getattr(features, "edges", None) else [])]
    if penalty != "plain":
        for part in parts:
            penalise(part, **PENALTIES[penalty])
    if "chain" not in kind and "pair" not in kind:
        features.set_offset(np.arange(5.0))
    p = np.full(features.n_blocks, 1 / features.n_blocks)

    def passes(engine):
        for _ in range(2):
            engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)

    engine = BlockCoordinateEngine(loss, features, p, 0.05, 3)
    passes(engine)
    features.forget()  # what is kept of kernels is computed anew
    again, its_loss = pickle.loads(pickle.dumps((features, loss)))
    assert any(np.any(array) for array in features.state().values())
    for name in ("state", "present", "constant_scores", "has_penalty", "penalty_value",
                 "conjugate_value"):
        assert_equal(getattr(again, name)(), getattr(features, name)())
    assert_equal(its_loss.state(), loss.state())
    other = BlockCoordinateEngine(its_loss, again, p, 0.05, 3)
    other.restore(engine.state())
    for _ in range(2):
        one, two = (certify(part, part.mu) for part in (engine, other))
        assert (one.primal, one.dual, one.gap) == (two.primal, two.dual, two.gap)
        passes(engine)
        passes(other)
        assert_equal(other.state(), engine.state())


def test_transitions_and_their_features_belong_together():
    for per_edge, edge_X in ((True, None), (False, np.ones((2, 4)))):
        with pytest.raises(ValueError, match="edge_X is for transitions with scores of their own"):
            ChainFeatures(
                np.ones((2, 4)), np.array([0]), Layout.of_chains([2], 3, per_edge), 1.0, True,
                True, edge_X)


def test_a_map_for_predictions_pickles():
    features, _ = chain_map("chain, edges")
    weights = [np.random.default_rng(3).normal(size=part.all_weights().shape)
               for part in (features, features.edges)]
    decodes = ChainFeatures(
        np.ones((2, 4)), np.array([0]), Layout.of_chains([2], 3, True), 1.0, True, True,
        np.ones((2, 4)), *weights)
    again = pickle.loads(pickle.dumps(decodes))
    one, two = (
        all_scores(part, np.zeros((0, 0)), np.zeros(part.size), 0) for part in (decodes, again))
    assert_equal(one, two)
    assert np.any(one[1])
