"""Chains in which few transitions have scores, against those in which all have, most of them zero.

`Layout.pairs` has the transitions with scores. Few of them are gone through by lists
(``_simd/chain_sparse_template.h``), many are spread to a matrix.
"""

import ctypes
import logging
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from making import made
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import fastm4n.reference as ref
from fastm4n import BlockFrankWolfe, QuasiNewton, SequenceTagger, Transitions
from fastm4n.base import memory
from fastm4n.inference import chain
from fastm4n.losses import block_losses
from fastm4n.outputs import ChainOutputs, Layout
from fastm4n.penalties import ElasticNet
from fastm4n.solvers import monitor
from fastm4n.solvers.blocks import block_coordinate
from fastm4n.surrogates import make_surrogate
from fastm4n.tasks import chain_predictions, sequences

LENGTHS = np.array([1, 2, 7, 1, 70, 3])


@pytest.fixture(params=["as chosen", "lists"])
def by_lists(request, monkeypatch):
    """Lists of all transitions with scores, however many these are."""
    if request.param == "lists":
        monkeypatch.setattr(chain, "MANY_TRANSITIONS", 0)
        share = constant(chain, "SPARSE", 0.5)
        yield
        constant(chain, "SPARSE", share)
    else:
        yield


def constant(module, name, value, kind="double"):
    """Set a constant of a compiled module, and return what it was."""
    get, exported = ctypes.pythonapi.PyCapsule_GetPointer, module.__pyx_capi__[name]
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    of = ctypes.c_double if kind == "double" else ctypes.c_ssize_t
    place = of.from_address(get(exported, kind.encode()))
    before, place.value = place.value, value
    return before


def some_pairs(rng, R, share):
    """Transitions with scores, in order: of most labels few, of label 0 many."""
    chosen = rng.random((R, R)) < share
    chosen[0, rng.random(R) < min(1.0, 4.0 * share)] = True
    chosen[rng.random(R) < min(1.0, 4.0 * share), 0] = True
    if share in (0.0, 1.0):
        chosen[:] = share
    wide = np.zeros((R, Layout.of_chains([1], R).stride), dtype=bool)
    wide[:, :R] = chosen
    return np.flatnonzero(wide)


def both_scores(rng, R, pairs, lengths, scale, whole):
    """Scores of all blocks in the layout of all transitions, and in that of these."""
    every, some = Layout.of_chains(lengths, R), Layout.of_chains(lengths, R, False, pairs)
    blocks = np.arange(len(lengths))
    stride = every.stride
    dense, few = np.zeros(every.n_numbers), np.zeros(some.n_numbers)
    nodes, scores = rng.normal(size=(lengths.sum(), stride)), rng.normal(size=pairs.size)
    if whole:
        nodes, scores = np.round(nodes), np.round(scores)
    nodes[:, R:] = 0.0
    nothing = np.zeros(0, dtype=np.intp)
    for layout, numbers, at in (every, dense, pairs), (some, few, np.arange(pairs.size)):
        numbers[layout.numbers(blocks, nothing)] = scale * nodes.ravel()
        for b in blocks:
            own = layout.numbers([b], at)[lengths[b] * stride :]
            numbers[own] = scale * scores
    return every, dense, some, few


def compare(name, R, pairs, lengths, scale, seed=0, whole=False, tol=1e-9, **options):
    rng = np.random.default_rng(seed)
    every, dense, some, few = both_scores(rng, R, pairs, lengths, scale, whole)
    y = rng.integers(R, size=lengths.sum())
    cost = 1.0 - np.eye(R)
    expected, found = (
        block_losses(
            make_surrogate(name, ChainOutputs(y, lengths, cost, False, "sum", given)), scores,
            **options)
        for given, scores in ((None, dense), (pairs, few)))
    largest = 1.0 + np.abs(expected.value)
    # bounds of one number
    assert np.all(found.value <= expected.upper + tol * largest)
    assert np.all(expected.value <= found.upper + tol * largest)
    assert np.all(found.upper >= found.value - 1e-12 * largest)
    at = every.numbers(np.arange(len(lengths)), pairs)
    to = some.numbers(np.arange(len(lengths)), np.arange(pairs.size))
    return expected.gradient[at], found.gradient[to], found.gradient


@pytest.mark.parametrize("R", [2, 3, 9, 33, 130])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3, 1e6])
def test_log(R, share, scale, by_lists):
    pairs = some_pairs(np.random.default_rng(R), R, share)
    expected, found, every = compare("log", R, pairs, LENGTHS, scale)
    # scores of 1e6 have rounding of 1e-10
    assert_allclose(found, expected, atol=1e-10 * max(1.0, scale))
    assert np.isfinite(every).all()


@pytest.mark.parametrize("name", ["max_margin", "max_min"])
@pytest.mark.parametrize("R", [2, 9, 33, 130])
@pytest.mark.parametrize("share", [0.0, 0.02, 1.0])
@pytest.mark.parametrize("scale", [0.2, 1.0, 1e6])
def test_margins(name, R, share, scale, by_lists):
    """To the bit with ties under max-margin: whole numbers have many of them."""
    R = min(R, 20) if name == "max_min" else R
    pairs = some_pairs(np.random.default_rng(R), R, share)
    lengths = LENGTHS if name == "max_margin" else LENGTHS[:3]
    expected, found, _ = compare(
        name, R, pairs, lengths, scale, whole=scale == 1.0, tol=1e-12)
    if name == "max_margin":
        assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["log", "max_margin"])
def test_all_of_the_largest_sources_have_scores(name):
    """Twelve labels stand out, and all of their transitions to some labels have scores."""
    rng = np.random.default_rng(0)
    R, lengths = 320, np.array([6, 1, 9])
    wide = np.zeros((R, Layout.of_chains([1], R).stride), dtype=bool)
    wide[:12, 40:80] = True
    wide[40:80, :12] = True
    wide[rng.integers(R, size=200), rng.integers(R, size=200)] = True
    pairs = np.flatnonzero(wide)
    every, dense, some, few = both_scores(rng, R, pairs, lengths, 1.0, False)
    blocks = np.arange(3)
    for layout, scores in (every, dense), (some, few):
        nodes = layout.numbers(blocks, np.zeros(0, dtype=np.intp))
        rows = scores[nodes].reshape(-1, layout.stride)
        rows[:, :12] += 40.0
        scores[nodes] = rows.ravel()
        for b in blocks:
            # what they come from is nearly closed to them: what is left of others counts
            at = pairs if layout is every else np.arange(pairs.size)
            own = layout.numbers([b], at)[lengths[b] * layout.stride :]
            scores[own] -= 45.0 * (pairs // layout.stride < 12)
    y = rng.integers(R, size=lengths.sum())
    losses = [
        block_losses(make_surrogate(
            name, ChainOutputs(y, lengths, 1.0 - np.eye(R), False, "sum", given)), scores)
        for given, scores in ((None, dense), (pairs, few))]
    assert_allclose(losses[1].value, losses[0].value, rtol=1e-13)
    expected = losses[0].gradient[every.numbers(blocks, pairs)]
    found = losses[1].gradient[some.numbers(blocks, np.arange(pairs.size))]
    assert_allclose(found, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("seed", range(2))
def test_reference(seed, by_lists):
    rng = np.random.default_rng(seed)
    R, T = 24, 5
    stride = Layout.of_chains([T], R).stride
    pairs = np.sort(rng.choice(np.arange(R)[:, None] * stride + np.arange(R), 40).ravel()[:40])
    pairs = np.unique(pairs)
    unary, pairwise = rng.normal(size=(T, R)), np.zeros((R, R))
    pairwise[pairs // stride, pairs % stride] = rng.normal(size=pairs.size)
    scores = np.zeros(Layout.of_chains([T], R, False, pairs).n_numbers)
    scores[: T * stride].reshape(T, stride)[:, :R] = unary
    scores[T * stride :][: pairs.size] = pairwise[pairs // stride, pairs % stride]
    y = rng.integers(R, size=T)
    outputs = ChainOutputs(y, [T], 1.0 - np.eye(R), False, "sum", pairs)
    found = block_losses(make_surrogate("log", outputs), scores)
    nodes, edges, log_z = ref.sum_product(unary, pairwise)
    truth = ref.chain_indicator(y, R)
    assert_allclose(found.value, log_z - ref.score_labelling(y, unary, pairwise), rtol=1e-12)
    rows = found.gradient[: T * stride].reshape(T, stride)[:, :R]
    assert_allclose(rows, nodes - truth[0], atol=1e-12)
    behind = (edges - truth[1]).sum(axis=0)[pairs // stride, pairs % stride]
    assert_allclose(found.gradient[T * stride :][: pairs.size], behind, atol=1e-12)
    path, value = ref.viterbi(unary + (np.arange(R) != y[:, None]), pairwise)
    found = block_losses(make_surrogate("max_margin", outputs), scores)
    assert_allclose(found.value, value - ref.score_labelling(y, unary, pairwise), rtol=1e-12)
    assert_array_equal(
        found.gradient[: T * stride].reshape(T, stride)[:, :R],
        ref.chain_indicator(path, R)[0] - truth[0])


def test_layout():
    pairs = np.array([1, 9, 17])
    layout = Layout.of_chains([3, 1], 9, False, pairs)
    copied = pickle.loads(pickle.dumps(layout))
    assert_array_equal(copied.pairs, pairs)
    assert copied.n_numbers == layout.n_numbers == 4 * layout.stride + 2 * 8
    assert_array_equal(
        layout.numbers([1], np.array([2])),
        [*(3 * layout.stride + 8 + np.arange(layout.stride)), 4 * layout.stride + 8 + 2])


# ----------------------------------------------------------------------------- taggers


def words(R, n, seed=0, csr=True):
    """Sequences of one-hot words, and labels that follow one another in few ways."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for b in range(n):
        T = 1 + b % 7
        labels = (rng.integers(R) + np.arange(T) * rng.integers(1, 3, size=T)) % R
        rows = np.zeros((T, R + 5))
        rows[np.arange(T), np.where(rng.random(T) < 0.7, labels, rng.integers(R, size=T))] = 1.0
        rows[:, R + rng.integers(5)] = 0.5
        X.append(sparse.csr_matrix(rows) if csr else rows)
        y.append(labels)
    y[6][:] = 0
    return X, y


@pytest.mark.parametrize("csr", [True, False])
@pytest.mark.parametrize("name", ["log", "max_margin"])
def test_predictions(name, csr, monkeypatch):
    """By lists as by the matrix: labels, marginals, the k best, scores; also within limits."""
    X, y = words(170, 90, csr=csr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger = SequenceTagger(
            name, states="observed", alpha=1e-3, max_iter=4, random_state=0).fit(X, y)
    R = tagger.classes_.size
    allowed = np.random.default_rng(0).random((R, R)) < 0.9

    def predictions():
        found = [np.concatenate(list(tagger.predict(X, **given))) for given in (
            {}, {"allowed_transitions": allowed})]
        found += [np.concatenate([np.ravel(row) for row in tagger.decision_function(X)])]
        if name == "log":
            found += [np.concatenate(list(tagger.predict(X, decode="min_risk")))]
            found += [np.concatenate([np.ravel(row) for row in tagger.predict_marginals(X)])]
        labellings, scores = tagger.predict_kbest(X[:12], 3)
        return [*found, *map(np.ravel, labellings), *scores]

    by_lists = predictions()
    assert chain_predictions.MANY_TRANSITIONS <= R**2
    monkeypatch.setattr(chain_predictions, "MANY_TRANSITIONS", 10**9)
    tagger = pickle.loads(pickle.dumps(tagger))  # which has not looked for them
    for one, other in zip(by_lists, predictions(), strict=True):
        if one.dtype.kind == "f":
            assert_allclose(one, other, atol=1e-12)
        else:
            assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["log", "max_margin", "max_min"])
@pytest.mark.parametrize("states", ["observed", {"transitions": "observed"}])
def test_more_data_with_other_transitions(name, states):
    """A call's dual points are of fewer transitions than the next one's: all stay certified."""
    X, y = words(9, 40)
    given = dict(states=states, alpha=0.1, tol=1e-3, max_iter=2000, random_state=0)
    tagger = SequenceTagger(name, **given)
    tagger.partial_fit(X[:20], y[:20], classes=np.arange(9))
    first = np.count_nonzero(tagger.transition_coef_)
    tagger.partial_fit(X[20:], y[20:])
    assert np.count_nonzero(tagger.transition_coef_) > first
    whole = SequenceTagger(name, **{**given, "tol": 1e-4}).fit(X, y)
    optimum = whole.primal_objective_
    assert whole.dual_objective_ - 1e-9 <= tagger.primal_objective_
    assert tagger.dual_objective_ <= optimum + 1e-9
    assert tagger.primal_objective_ - optimum <= tagger.duality_gap_ + 1e-9
    assert tagger.relative_gap_ <= 1e-3
    # and by warm starts, from fewer sequences of the same data by weights
    warm = SequenceTagger(name, **given, warm_start=True)
    weights = np.where(np.arange(40) < 20, 1.0, 0.0)
    weights[-9:] = 1.0
    warm.fit(X, y, sample_weight=weights).fit(X, y)
    assert warm.dual_objective_ <= optimum + 1e-9 and warm.relative_gap_ <= 1e-3


@pytest.fixture
def with_all_transitions(monkeypatch):
    """Call a function with dual points of all transitions, those without weights masked."""
    def call(function):
        with monkeypatch.context() as patch:
            patch.setattr(
                sequences, "ChainOutputs",
                lambda y, lengths, cost, per_edge, scale, pairs, weights: ChainOutputs(
                    y, lengths, cost, per_edge, scale, None, weights))
            return function()
    return call


@pytest.mark.parametrize("penalty", ["l2", ElasticNet(0.3)], ids=["l2", "elastic net"])
@pytest.mark.parametrize(("name", "R", "tol"), [
    ("log", 9, 1e-4), ("max_margin", 9, 1e-4), ("max_min", 9, 1e-4), ("log", 170, 1e-3),
    ("max_margin", 170, 1e-3)])
def test_the_optimum_is_that_of_the_matrix(name, R, tol, penalty, with_all_transitions):
    """By a matrix that the scores are spread to, and by lists."""
    X, y = words(R, 20 if R < 100 else 90)
    given = dict(
        states="observed" if R > 100 else {"transitions": "observed"}, alpha=0.1, tol=tol,
        max_iter=2000, random_state=0, penalty=penalty)
    few = SequenceTagger(name, **given).fit(X, y)
    every = with_all_transitions(lambda: SequenceTagger(name, **given).fit(X, y))
    gaps = few.duality_gap_ + every.duality_gap_
    assert abs(few.primal_objective_ - every.primal_objective_) <= gaps + 1e-12
    assert every.dual_objective_ <= few.primal_objective_ + 1e-12
    assert few.dual_objective_ <= every.primal_objective_ + 1e-12
    assert not few.transition_coef_[every.transition_coef_ == 0].any() or penalty != "l2"
    # strong convexity
    distance = sum(
        np.sum((getattr(few, part) - getattr(every, part)) ** 2)
        for part in ("coef_", "transition_coef_", "start_coef_"))
    assert distance <= 4.0 * gaps / (0.1 * (1.0 if penalty == "l2" else 0.7)) + 1e-12


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("R", [9, 170])
def test_smoothed_maxima(R, with_all_transitions):
    """By a matrix, and by lists: the evaluations are the same, also at low temperatures."""
    X, y = words(R, 20 if R < 100 else 90)
    tagger = SequenceTagger(
        "max_margin", states="observed" if R > 100 else {"transitions": "observed"}, alpha=0.01,
        tol=0.0, max_iter=40, solver=QuasiNewton())
    few = clone(tagger).fit(X, y)
    every = with_all_transitions(lambda: clone(tagger).fit(X, y))
    for name in "primal", "dual":
        assert_allclose(few.history_[name][:10], every.history_[name][:10], rtol=1e-9)
    gaps = few.duality_gap_ + every.duality_gap_
    assert abs(few.primal_objective_ - every.primal_objective_) <= gaps
    assert few.relative_gap_ < 0.1


@pytest.fixture
def looked_through():
    """Set from how many transitions on lists are kept."""
    before = constant(chain, "LOOKED_THROUGH", 0, "Py_ssize_t")
    yield lambda least: constant(chain, "LOOKED_THROUGH", least, "Py_ssize_t")
    constant(chain, "LOOKED_THROUGH", before, "Py_ssize_t")


OF_ATOMS = [
    "auto", BlockFrankWolfe(), BlockFrankWolfe(step="pairwise", cache=3),
    BlockFrankWolfe(step="away", accelerate=False), BlockFrankWolfe(cache=2)]


@pytest.mark.parametrize("solver", OF_ATOMS, ids=str)
@pytest.mark.parametrize("R", [40, 260])
def test_transitions_listed_as_they_come(R, solver, looked_through):
    """The optimum is that of the matrix, also where most transitions come in the end."""
    rng = np.random.default_rng(R)
    X, y = words(R, 20 if R < 100 else 90)
    if R < 100:
        y[3:] = [rng.integers(R, size=len(labels)) for labels in y[3:]]
    alpha = 0.01 if R < 100 else 0.1
    given = dict(alpha=alpha, tol=2e-2, max_iter=4000, random_state=0, solver=solver)
    few = SequenceTagger("max_margin", **given).fit(X, y)
    looked_through(10**9)
    every = SequenceTagger("max_margin", **given).fit(X, y)
    gaps = few.duality_gap_ + every.duality_gap_
    assert max(few.relative_gap_, every.relative_gap_) <= 2e-2
    assert every.dual_objective_ <= few.primal_objective_ + 1e-12
    assert few.dual_objective_ <= every.primal_objective_ + 1e-12
    distance = sum(
        np.sum((getattr(few, part) - getattr(every, part)) ** 2)
        for part in ("coef_", "transition_coef_", "start_coef_"))
    assert distance <= 4.0 * gaps / alpha
    if R < 100:
        # more than lists are good for
        assert (few.transition_coef_ != 0).mean() > 0.125


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("given", [
    {}, {"n_jobs": 2}, {"cost_scale": "mean"}, {"transitions": Transitions(start_end=False)},
    {"transitions": Transitions(pairs=False)}, {"class_weight": {1: 3.0}},
    {"states": {"features": "observed"}}, {"fit_intercept": False}], ids=str)
def test_lists_take_the_steps_of_the_matrix(given, looked_through, monkeypatch):
    # lists grow from visit to visit, so that their passes are made in no windows
    monkeypatch.setattr(block_coordinate, "Windows", SimpleNamespace(pay=lambda engine: False))
    X, y = words(260, 90)
    tagger = SequenceTagger(
        "max_margin", alpha=1e-3, tol=0.0, max_iter=5, random_state=0, **given)
    few = clone(tagger).fit(X, y)
    looked_through(10**9)
    every = clone(tagger).fit(X, y)
    for name in "primal", "dual", "gap":
        assert_allclose(few.history_[name], every.history_[name], rtol=1e-9)
    for part in "coef_", "transition_coef_", "start_coef_":
        assert_allclose(getattr(few, part), getattr(every, part), atol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("length", "policy"), [(150, "quasi_newton"), (400, "pairwise+cache")])
def test_few_long_sequences_of_many_labels(length, policy):
    """Smoothed maxima need marginals of all transitions: too many of them, or not."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(length, 2)) for _ in range(2)]
    y = [np.arange(length), np.arange(length, 2 * length)]
    tagger = SequenceTagger("max_margin", tol=0.99, max_iter=1, random_state=0).fit(X, y)
    assert tagger.history_["policy"][-1] == policy


def test_smoothed_maxima_that_memory_cannot_hold(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 2 << 20)
    monkeypatch.setattr(memory, "LITTLE", 0)
    X, y = [np.ones((150, 1))] * 2, [np.arange(150), np.arange(150, 300)]
    tagger = SequenceTagger("max_margin", tol=0.99, max_iter=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert tagger.fit(X, y).history_["policy"][-1] == "pairwise+cache"


def test_words_within_a_pass(monkeypatch, caplog):
    """The callback and the log hear of long passes, and a callback that ends one is heeded."""
    monkeypatch.setattr(monitor, "QUIET", 0.0)
    X, y = words(300, 120)
    rows = []

    def callback(row):
        rows.append(dict(row))
        return False

    given = dict(states="all", alpha=1e-3, tol=0.0, max_iter=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        quiet = made(SequenceTagger, "log", **given).fit(X, y)
        with caplog.at_level(logging.INFO, "fastm4n"):
            told = made(SequenceTagger, "log", callback=callback, verbose=1, **given).fit(X, y)
        ended = made(
            SequenceTagger, "log", callback=lambda row: True, **{**given, "max_iter": 50}).fit(X, y)
    within = [row for row in rows if row["pass"] != int(row["pass"])]
    assert within and len(rows) > len(told.history_["pass"])
    assert set(within[0]) == set(told.history_)
    assert all(one["pass"] <= other["pass"] for one, other in zip(within, within[1:]))
    assert any("pass 0." in record.message for record in caplog.records)
    assert_array_equal(told.coef_, quiet.coef_)
    assert told.duality_gap_ == quiet.duality_gap_
    assert ended.n_iter_ < 50


@pytest.mark.parametrize("seed", range(3))
def test_matrices_that_are_mostly_zero(seed):
    """Viterbi looks through large matrices: labels are those of the reference, with ties."""
    rng = np.random.default_rng(seed)
    R, T = 270, 12
    pairwise = np.zeros((R, R))
    pairwise[rng.integers(R, size=900), rng.integers(R, size=900)] = rng.integers(-3, 4, size=900)
    pairwise[:, 7] = rng.integers(-1, 2, size=R)
    pairwise[9] = 1.0
    unary = rng.integers(0, 3, size=(T, R)).astype(float)
    y = np.zeros(T, dtype=int)
    stride = Layout.of_chains([T], R).stride
    scores = np.zeros(Layout.of_chains([T], R).n_numbers)
    scores[: T * stride].reshape(T, stride)[:, :R] = unary
    scores[T * stride :].reshape(R, stride)[:, :R] = pairwise
    loss = make_surrogate("max_margin", ChainOutputs(y, [T], np.zeros((R, R))))
    found = block_losses(loss, scores)
    path, value = ref.viterbi(unary, pairwise)
    assert_array_equal(
        found.gradient[: T * stride].reshape(T, stride)[:, :R],
        ref.chain_indicator(path, R)[0] - ref.chain_indicator(y, R)[0])
    assert_allclose(found.value, value - ref.score_labelling(y, unary, pairwise))
