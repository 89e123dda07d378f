"""What fits allocate, in units of the dual point: n k doubles."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from making import made
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from fastm4n import MulticlassClassifier, OrdinalClassifier, Sequences, SequenceTagger
from fastm4n.features import row_norms
from fastm4n.features._positions import ChainFeatures
from fastm4n.outputs import ChainOutputs, Layout
from fastm4n.penalties import ElasticNet
from fastm4n.solvers.blocks.block_coordinate import solve
from fastm4n.surrogates import make_surrogate

N, D, K, NNZ = 10_000, 300, 40, 6


def csr(dtype, indices=np.int32):
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, D // NNZ, (N, NNZ)) + np.arange(NNZ) * (D // NNZ), axis=1)
    X = sparse.csr_matrix(
        (rng.standard_normal(N * NNZ).astype(dtype), columns.ravel(),
         np.arange(0, N * NNZ + 1, NNZ)), shape=(N, D))
    # which SciPy makes short where it can
    X.indices, X.indptr = X.indices.astype(indices), X.indptr.astype(indices)
    return X


def peak_of_fit(model, X, y):
    """The most that a fit has allocated beside what was there before, in bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X[:200], y[:200])  # what a first fit imports and keeps
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            model.fit(X, y)
            return tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
def test_csr_fits(surrogate, dtype):
    """1.5 n k doubles, and some arrays of weights."""
    X, y = csr(dtype), np.arange(N) % K
    model = made(
        MulticlassClassifier, surrogate, alpha=1e-3, max_iter=11, tol=1e-12, random_state=0)
    # and 128 KiB for what does not grow
    allowed = 1.5 * N * K * 8 + 6 * (D + 1) * K * 8 + 2**17
    assert peak_of_fit(model, X, y) < allowed


def test_many_values():
    """Rows with many more values than classes: what goes over them does so in parts."""
    rng = np.random.default_rng(0)
    X = sparse.csr_matrix(rng.standard_normal((4000, 200)))
    model = made(OrdinalClassifier, "max_min", alpha=1e-2, max_iter=3, tol=1e-12, random_state=0)
    y = np.arange(4000) % 5
    # a copy of the values alone would be 6.1 MiB
    assert peak_of_fit(model, X, y) < 5 * 2**20


def test_row_norms_in_parts():
    X = sparse.random(3000, 100, 0.4, format="csr", random_state=0)
    X = sparse.vstack([X[:5], sparse.csr_matrix((3, 100)), X]).tocsr()
    expected = np.asarray(X.multiply(X).sum(axis=1)).ravel() + 4.0
    np.testing.assert_allclose(row_norms(X, 2.0), expected, rtol=1e-14)


@pytest.mark.parametrize("penalty", ["l2", ElasticNet(0.1)], ids=["l2", "elastic net"])
def test_long_indices_are_not_copied(penalty):
    X, y = csr(np.float64, np.int64), np.arange(N) % K
    assert X.indices.dtype == np.int64
    model = made(
        MulticlassClassifier, "max_margin", alpha=1e-3, max_iter=2, tol=1e-12, random_state=0,
        penalty=penalty)
    allowed = 1.5 * N * K * 8 + 6 * (D + 1) * K * 8
    assert peak_of_fit(model, X, y) < allowed
    few = slice(500)
    short = X[few].copy()
    short.indices, short.indptr = short.indices.astype(np.intc), short.indptr.astype(np.intc)
    long = X[few].copy()
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        expected = model.fit(short, y[few]).coef_.copy()
        # 32-bit indices may have a loop of their own, which rounds otherwise
        np.testing.assert_allclose(
            model.fit(long, y[few]).coef_, expected, rtol=1e-6, atol=1e-10)
    np.testing.assert_array_equal(model.predict(long), model.predict(short))


def test_long_indices_in_threads():
    """Threads update parts of the weights each, and find where those begin in a row."""
    X, y = csr(np.float64, np.int64), np.arange(N) % K
    short = X.copy()
    short.indices, short.indptr = X.indices.astype(np.intc), X.indptr.astype(np.intc)
    options = dict(alpha=1e-2, max_iter=3, tol=1e-12, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        alone = made(MulticlassClassifier, "max_min", **options).fit(short, y)
        both = made(MulticlassClassifier, "max_min", n_jobs=2, **options).fit(X, y)
    np.testing.assert_array_equal(both.coef_, alone.coef_)


def test_long_indices_of_long_rows():
    """More of them than are made short at a time: nothing but rounding is different."""
    X = sparse.random(30, 900, 0.6, format="csr", random_state=0)
    long = X.copy()
    long.indices, long.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    y = np.arange(30) % 3
    model = made(MulticlassClassifier, "max_min", alpha=0.1, tol=1e-6, random_state=0)
    expected = model.fit(X, y).coef_.copy()
    np.testing.assert_allclose(model.fit(long, y).coef_, expected, atol=1e-6)


def test_scores_of_many_chains_are_in_single_precision():
    """They say where steps begin, and no more: fits go on as with double precision."""
    R, T, n = 30, 40, 2100
    outputs = ChainOutputs(np.zeros(n * T, dtype=np.intc), np.full(n, T), 1.0 - np.eye(R))
    assert outputs.layout.n_numbers >= 1 << 22
    loss = make_surrogate("log", outputs)
    assert loss.state()["theta"].dtype == np.float32
    few = ChainOutputs(np.zeros(T, dtype=np.intc), np.array([T]), 1.0 - np.eye(R))
    assert make_surrogate("log", few).state()["theta"].dtype == np.float64


MANY, LENGTH, LABELS = 2100, 40, 30


def many_chains():
    """Sequences whose scores are kept in single precision."""
    rng = np.random.default_rng(0)
    labels = rng.integers(LABELS, size=MANY * LENGTH) // 2 * 2
    columns = np.stack([rng.integers(50, size=labels.size), 50 + labels // 2], axis=1)
    X = sparse.csr_matrix(
        (np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 2)),
        shape=(labels.size, 50 + LABELS))
    labels[: LABELS] = np.arange(LABELS)
    offsets = np.arange(0, labels.size + 1, LENGTH)
    return Sequences(X, offsets), Sequences(labels, offsets)


@pytest.mark.parametrize("penalty", ["l2", ElasticNet(0.99)], ids=["l2", "elastic net"])
def test_dual_points_that_are_told(penalty):
    """Fits that hold no dual point are those that hold one, to the bit, and take less."""
    X, y = many_chains()
    options = dict(
        states="observed", alpha=1e-3, max_iter=3, tol=1e-12, random_state=0, penalty=penalty)
    told = made(SequenceTagger, "log", **options)
    held = made(SequenceTagger, "log", warm_start=True, **options)
    numbers = MANY * (LENGTH + LABELS) * 32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tracemalloc.start()
        try:
            told.fit(X, y)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        held.fit(X, y)
    assert peak < 5 * numbers + 16 * X.values.nnz + 2**22
    assert 0.0 <= told.duality_gap_ == held.duality_gap_
    for name in ("coef_", "transition_coef_", "intercept_", "start_coef_"):
        np.testing.assert_array_equal(getattr(told, name), getattr(held, name))


def test_scores_that_are_not_kept():
    """Those of transitions without a weight: they are zero, and everything else is as with them."""
    rng = np.random.default_rng(1)
    n = MANY * LENGTH
    X = sparse.csr_matrix(rng.standard_normal((n, 2)))
    y, lengths = rng.integers(LABELS, size=n), np.full(MANY, LENGTH)
    used = np.ones((2 + 3 + LABELS, 32), dtype=np.uint8)
    used[5:] = rng.random((LABELS, 32)) < 0.2
    found = []
    used[5:, LABELS:] = 0
    pairs = np.flatnonzero(used[5:])
    for given in (None, pairs):
        outputs = ChainOutputs(y, lengths, 1.0 - np.eye(LABELS), False, "sum", given)
        features = ChainFeatures(
            X, np.arange(MANY) * LENGTH, outputs.layout, 1.0, True, True, used=used)
        loss = make_surrogate("log", outputs)
        solution = solve(
            loss, features, np.full(MANY, 1.0 / MANY), 0.1, max_iter=2, tol=0.0, keep_dual=False)
        found.append((features.state()["weights"], solution.certificate.gap, loss.state()))
        # and so is a copy
        copied = pickle.loads(pickle.dumps(loss)).state()
        for name, array in found[-1][2].items():
            np.testing.assert_array_equal(copied[name], array)
    (weights, gap, state), (others, other_gap, other_state) = found
    np.testing.assert_allclose(others, weights, rtol=1e-9, atol=1e-12)
    assert other_gap == pytest.approx(gap, rel=1e-9)
    held = Layout.of_chains(lengths, LABELS)
    theta = state["theta"][held.numbers(np.arange(MANY), pairs)]
    assert other_state["theta"].size == outputs.layout.n_numbers < 0.7 * state["theta"].size
    other = other_state["theta"][outputs.layout.numbers(np.arange(MANY), np.arange(pairs.size))]
    np.testing.assert_allclose(other, theta, rtol=1e-5, atol=1e-6)
    for wrong in (np.arange(3)[::-1], np.array([LABELS]), np.array([-1]), np.array([LABELS * 32])):
        with pytest.raises(ValueError, match="places do not fit"):
            ChainOutputs(y, lengths, 1.0 - np.eye(LABELS), False, "sum", wrong)
    with pytest.raises(ValueError, match="pairs are for transitions that share"):
        ChainOutputs(y, lengths, 1.0 - np.eye(LABELS), True, "sum", np.arange(2))


def test_weights_of_pairs_are_spread_when_they_are_asked_for():
    """Fits leave them by the pairs; what is seen of a tagger is as if they had not."""
    rng = np.random.default_rng(0)
    X = Sequences(sparse.random(60, 30, 0.2, format="csr", random_state=0), np.arange(0, 61, 6))
    y = Sequences(rng.integers(3, size=60), X.offsets)
    tagger = made(SequenceTagger, "max_margin", states="observed", random_state=0).fit(X, y)
    assert "coef_" not in vars(tagger)
    copied = pickle.loads(pickle.dumps(tagger))
    assert tagger.coef_.shape == (3, 30)
    assert tagger.coef_ is tagger.coef_
    np.testing.assert_array_equal(copied.coef_, tagger.coef_)
    assert tagger.n_nonzero_ == np.count_nonzero(tagger.coef_) > 0
    np.testing.assert_array_equal(copied.predict(X).values, tagger.predict(X).values)
    with pytest.raises(AttributeError, match="ngram_coef_"):
        tagger.ngram_coef_  # noqa: B018
    with pytest.raises(AttributeError, match="needs surrogate='log'"):
        tagger.predict_marginals(X)
    before = tagger.coef_
    tagger.set_params(states="all").fit(X, y)
    assert tagger.coef_ is not before and "coef_" in vars(tagger)
    tagger.set_params(states="observed", alpha=2.0).fit(X, y)
    assert "coef_" not in vars(tagger) and tagger.coef_.any()
    unfitted = SequenceTagger()
    with pytest.raises(AttributeError, match="coef_"):
        unfitted.coef_  # noqa: B018
