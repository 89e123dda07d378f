"""Weights only of what occurs in the training data, against plain NumPy."""

import copy
import itertools
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from chain_weights import (
    arrays_of,
    chain_of,
    change_of_w,
    check_certificate,
    dual_point,
    log_objective,
)
from covering import covering
from making import made
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from fastm4n import SequenceTagger, Transitions, load_model, save_model
from fastm4n.features._linear import pair_starts
from fastm4n.models._state import model_from_state, model_state
from fastm4n.reference import (
    chain_indicator,
    viterbi,
)

SURROGATES = ("max_min", "max_margin", "log")
R, D = 4, 9
COST = 1.0 - np.eye(R)
SELECTED = [2, 7, 3]


def make_data(lengths=(3, 5, 1, 4, 2, 3), seed=0):
    """Sparse features and labels; no sequence is another, and not all pairs occur."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for i, T in enumerate(lengths):
        x = rng.normal(size=(T, D)) * (rng.random((T, D)) < 0.25)
        x[:, 0] = i + 1.0
        X.append(x / 3.0)
        y.append((rng.integers(0, R) + np.cumsum(rng.random(T) < 0.4)) % R)
    for j in range(R):
        y[j % len(y)][0] = j  # every label occurs
    return X, y


def tagger(surrogate, **parameters):
    parameters = {"states": "observed", "random_state": 0, **parameters}
    return made(SequenceTagger, surrogate, **parameters)


def masks_of(X, y, columns):
    """What occurs, one position after the other."""
    emissions, transitions = np.zeros((D, R)), np.zeros((R, R))
    edges = np.zeros((len(columns), R, R))
    for x, labels in zip(X, y):
        for t, row in enumerate(x):
            emissions[row != 0, labels[t]] = 1
            if t > 0:
                transitions[labels[t - 1], labels[t]] = 1
                edges[row[columns] != 0, labels[t - 1], labels[t]] = 1
    return [emissions, np.ones(R), np.ones(R), np.ones(R), transitions, edges]


@pytest.mark.parametrize(("surrogate", "kind", "columns"), covering(
    itertools.product(SURROGATES, ["dense", "csr", "csr32"], [(), tuple(SELECTED)])))
def test_certificate(surrogate, kind, columns):
    X, y = make_data()
    given = X
    if kind != "dense":
        dtype = np.float32 if kind == "csr32" else np.float64
        X = [x.astype(dtype).astype(float) for x in X]
        given = [sp.csr_array(x.astype(dtype)) for x in X]
    for max_iter, tol in (3, 0.0), (4000, 5e-3):
        model = tagger(
            surrogate, alpha=0.1, tol=tol, max_iter=max_iter, warm_start=True, accelerate=False,
            transitions=Transitions(features=list(columns) or None))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if max_iter == 3 else "error", ConvergenceWarning)
            model.fit(given, y)
        exact = surrogate != "max_min"
        check_certificate(
            model, X, y, COST, masks_of(X, y, list(columns)), 1e-9 if exact else model.duality_gap_)
    for x, labels in zip(X, model.predict(given)):
        assert_array_equal(labels, viterbi(*chain_of(model, x))[0])


@pytest.mark.parametrize("columns", [[], SELECTED])
@pytest.mark.parametrize("sparse", [False, True])
def test_long_sequences(columns, sparse):
    X, y = make_data((80, 2, 66, 1), seed=3)
    model = tagger(
        "max_margin", alpha=1.0, tol=0.02, max_iter=4000, warm_start=True, accelerate=False,
        transitions=Transitions(features=columns or None))
    model.fit([sp.csr_array(x) for x in X] if sparse else X, y)
    assert model.relative_gap_ <= 0.02
    check_certificate(model, X, y, COST, masks_of(X, y, columns))


@pytest.mark.parametrize("columns", [[], SELECTED])
def test_log_optimum_is_that_of_lbfgs(columns):
    X, y = make_data((3, 4, 1, 2, 3))
    masks = masks_of(X, y, columns)
    arguments = X, y, 0.05, columns, R, np.concatenate([mask.ravel() for mask in masks])
    best = minimize(
        log_objective, np.zeros(sum(mask.size for mask in masks)), arguments, "L-BFGS-B",
        jac=True, options={"maxiter": 5000, "gtol": 1e-10, "ftol": 1e-15})
    for tol in 1e-2, 1e-8:
        model = tagger("log", alpha=0.05, tol=tol, transitions=Transitions(features=columns or None)).fit(X, y)
        flat = np.concatenate([array.ravel() for array in arrays_of(model)])
        value = log_objective(flat, *arguments)[0]
        assert_allclose(model.primal_objective_, value, rtol=1e-10)
        assert value - best.fun <= model.duality_gap_ + 1e-10 and model.relative_gap_ <= tol
    assert_allclose(flat, best.x, atol=1e-3)
    every = tagger("log", alpha=0.05, tol=1e-8, states="all", transitions=Transitions(features=columns or None))
    assert every.fit(X, y).primal_objective_ < model.primal_objective_ - 1e-3


@pytest.mark.parametrize("columns", [[], SELECTED])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("length", [6, 70])
def test_step_size(columns, sparse, length):
    """One visit ends where the dual is largest on its segment: the norm is that of used weights."""
    X, y = make_data((length,), seed=5)
    y[0][1:4] = range(1, R)  # every label occurs
    x, labels = X[0], y[0]
    model = tagger(
        "max_margin", alpha=0.5, tol=0.0, max_iter=1, warm_start=True,
        transitions=Transitions(features=columns or None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit([sp.csr_array(x)] if sparse else X, y)
    truth = chain_indicator(labels, R)
    atom = chain_indicator(viterbi(COST[labels], np.zeros((R, R)))[0], R)
    direction = change_of_w(x, atom[0] - truth[0], atom[1] - truth[1], columns)
    masks = masks_of(X, y, columns)
    norm = sum(np.sum(mask * part**2) for mask, part in zip(masks, direction))
    whole = sum(np.sum(part**2) for part in direction)
    assert norm < whole - 1.0
    step = min(1.0, 0.5 * len(x) / norm)  # the atom is nowhere right
    nodes = dual_point(model)[0][0]
    assert_allclose(nodes, truth[0] + step * (atom[0] - truth[0]), atol=1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_nothing_changes_where_all_occurs(surrogate):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(15, 3)) for _ in range(2)]
    y = [rng.integers(0, 2, 15) for _ in range(2)]
    options = {"alpha": 10.0, "tol": 1e-2, "max_iter": 5000}
    observed = tagger(surrogate, **options).fit(X, y)
    every = tagger(surrogate, states="all", **options).fit(X, y)
    assert max(observed.relative_gap_, every.relative_gap_) <= 1e-2
    assert_allclose(observed.primal_objective_, every.primal_objective_, atol=1e-2)
    for a, b in zip(arrays_of(observed), arrays_of(every)):
        assert_allclose(a, b, atol=2 * np.sqrt(2 * 1e-2 / 10.0))


def test_what_occurs():
    """Stored zeros occur, as those of dense features do not, nor sequences of weight zero."""
    X, y = make_data()
    stored = []
    for x in X:
        T = len(x)
        stored.append(sp.csr_array(
            (x.ravel(), np.tile(np.arange(D), T), np.arange(T + 1) * D), shape=x.shape))
    few = tagger("log", alpha=0.1, transitions=Transitions(features=SELECTED)).fit(X, y)
    for a, b in zip(arrays_of(few), arrays_of(clone(few).fit([sp.csr_array(x) for x in X], y))):
        assert_allclose(a, b, atol=1e-10)
    every = clone(few).fit(stored, y)
    assert (every.coef_ != 0).mean() > 0.9 > (few.coef_ != 0).mean()
    of_transitions = np.broadcast_to(
        masks_of(X, y, SELECTED)[4] > 0, every.transition_feature_coef_.shape)
    assert (every.transition_feature_coef_[of_transitions] != 0).mean() > 0.9
    assert not every.transition_feature_coef_[~of_transitions].any()
    weights = [1, 0, 1, 1, 1, 1]
    weighted = tagger("log", alpha=0.1).fit(X, y, weights)
    without = tagger("log", alpha=0.1).fit(X[:1] + X[2:], y[:1] + y[2:])
    for a, b in zip(arrays_of(weighted), arrays_of(without)):
        assert_array_equal(a, b)


def test_transitions_are_left_out_with_observed_states():
    X, y = make_data()
    model = tagger("log", transitions=Transitions(pairs=False), alpha=0.1).fit(X, y)
    assert not model.transition_coef_.any() and model.coef_.any()


def test_bad_states():
    with pytest.raises(ValueError, match="states must be one of .*'observed'.*, got 'some'"):
        tagger("log", states="some").fit(*make_data())


@pytest.mark.parametrize("order", [1, 2])
def test_predictions_and_files_go_by_the_pairs(order, tmp_path):
    X, y = make_data()
    X = [sp.csr_matrix(x) for x in X]
    fitted = tagger("log", transitions=Transitions(order=order)).fit(X, y)
    save_model(fitted, tmp_path / "pairs.fm4n")
    loaded = load_model(tmp_path / "pairs.fm4n")
    by_pairs = fitted.predict_marginals(X).values
    assert "_of_pairs" in vars(fitted) and fitted.n_nonzero_ == loaded.n_nonzero_
    assert_array_equal(loaded.predict_marginals(X).values, by_pairs)
    assert "_of_pairs" in vars(loaded)
    for name in ("coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_"):
        assert_array_equal(getattr(loaded, name), getattr(fitted, name))
    if order > 1:
        assert_array_equal(loaded.ngram_coef_, fitted.ngram_coef_)
    # of all weights, which are there now
    assert "_of_pairs" not in vars(fitted) and fitted.n_nonzero_ == np.count_nonzero(fitted.coef_)
    assert_allclose(fitted.predict_marginals(X).values, by_pairs, rtol=1e-13)
    dense = [x.toarray() for x in X]
    assert_allclose(loaded.predict_marginals(dense).values, by_pairs, rtol=1e-13)


@pytest.mark.parametrize("copied", [
    lambda tagger: pickle.loads(pickle.dumps(tagger)), copy.copy, copy.deepcopy])
def test_pickles_and_copies_go_by_the_pairs(copied):
    """With the same bits, and what is copied stays as it is."""
    X, y = make_data()
    X = [sp.csr_matrix(x) for x in X]
    fitted = tagger("log").fit(X, y)
    expected = fitted.predict_marginals(X).values
    other = copied(fitted)
    for one in (fitted, other):
        assert "_of_pairs" in vars(one) and "coef_" not in vars(one)
        assert_array_equal(one.predict_marginals(X).values, expected)
    assert_array_equal(other.coef_, fitted.coef_)
    assert_array_equal(copied(fitted).transition_coef_, other.transition_coef_)


def test_pickles_of_wide_features_are_short():
    d = 10_000
    X = [sp.csr_matrix(([1.0, 1.0], ([0, 1], columns)), shape=(2, d)) for columns in (
        [0, 5], [7, d - 1])]
    fitted = tagger("log").fit(X, [[0, 1], [2, 1]])
    fitted.predict(X)
    assert len(pickle.dumps(fitted)) < 8 * d < fitted.coef_.nbytes


def test_weights_that_are_set_take_the_place_of_pairs():
    X, y = make_data()
    fitted = tagger("log").fit([sp.csr_matrix(x) for x in X], y)
    zero = np.zeros((R, D))
    fitted.coef_ = zero
    assert fitted.coef_ is zero and fitted.transition_coef_.any()
    scores = fitted.decision_function([sp.csr_matrix(x) for x in X])[0]
    assert_allclose(scores[1], fitted.intercept_)


def test_damaged_pairs_are_refused(tmp_path):
    X, y = make_data()
    fitted = tagger("log").fit([sp.csr_matrix(x) for x in X], y)
    header, arrays = model_state(fitted)
    of = {name: arrays.pop(f"0/pair_{name}_") for name in ("counts", "labels", "weights")}
    csr = sp.csr_array(fitted.coef_)
    twice = csr.copy()
    twice.indices[1] = twice.indices[0]
    older = [csr, twice, csr[:-1], csr[:, :-1], sp.csr_array(csr, dtype=np.int64)]

    def read(**changed):
        return model_from_state(header, {
            **arrays, **{f"0/pair_{name}_": values for name, values in {**of, **changed}.items()}})

    for loaded in (read(), model_from_state(header, {**arrays, "0/coef_": csr})):
        assert_array_equal(loaded.coef_, fitted.coef_)
    for wrong in older[1:]:
        with pytest.raises(ValueError):
            model_from_state(header, {**arrays, "0/coef_": wrong})
    several = np.flatnonzero(of["counts"] > 1)[0]
    equal = of["labels"].copy()
    equal[of["counts"][:several].sum() :][:2] = 0
    more = of["counts"].copy()
    more[0] += 1
    wraps = of["counts"].astype(np.uint64)
    wraps[:2] += np.uint64(2**63)  # twice that is 0 of 64 bits
    for wrong, message in (
            ({"counts": of["counts"][:-1]}, "pair_counts_ has shape"), ({"counts": more}, "fit"),
            ({"counts": wraps}, "fit"),
            ({"labels": of["labels"] + np.uint8(R)}, "labels that there are not"),
            ({"labels": of["labels"][:-1]}, "has shape"), ({"labels": equal}, "there twice"),
            ({"labels": of["labels"].astype(np.int8)}, "dtype int8"),
            ({"weights": np.full(of["weights"].size, np.nan)}, "not finite"),
            ({"weights": of["weights"].reshape(1, -1)}, "")):
        with pytest.raises(ValueError, match=message):
            read(**wrong)
    with pytest.raises(ValueError, match="pair_counts_ is missing"):
        model_from_state(header, arrays)


@pytest.mark.parametrize("seed", range(40))
def test_starts_of_pairs(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, rng.integers(0, 8)).astype(np.int32)
    labels = np.concatenate(
        [np.sort(rng.choice(5, n, replace=False)) for n in counts] + [np.zeros(0)])
    labels = labels.astype(np.uint16)
    starts = pair_starts(counts, labels)
    assert starts.dtype == np.int32
    assert_array_equal(starts, [0, *np.cumsum(counts)])
    wrong = labels.copy()
    for f in np.flatnonzero(counts > 1):
        wrong[starts[f] + 1] = wrong[starts[f]] - rng.integers(0, 2)  # 0 - 1 is 65535
        if wrong[starts[f] + 1] <= wrong[starts[f]]:
            with pytest.raises(ValueError, match="a pair is there twice"):
                pair_starts(counts, wrong)
    for f in range(counts.size):
        for change in (-1, 1, -counts[f] - 1, 2**31 - 1 - counts[f]):
            others = counts.copy()
            others[f] += change
            with pytest.raises(ValueError, match="do not fit"):
                pair_starts(others, labels)
    with pytest.raises(ValueError, match="do not fit"):
        pair_starts(counts, np.append(labels, np.uint16(0)))


def test_weights_that_were_asked_for_are_stored_by_pairs_all_the_same(tmp_path):
    X, y = make_data()
    wide = [sp.hstack([sp.csr_matrix(x), sp.csr_matrix((len(x), 300))]).tocsr() for x in X]
    for order in (1, 2):
        fitted = tagger("log", transitions=Transitions(order=order)).fit(wide, y)
        save_model(fitted, tmp_path / "before")
        assert fitted.coef_.any() and "_of_pairs" not in vars(fitted)
        expected = fitted.predict_marginals(wide).values
        save_model(fitted, tmp_path / "spread")
        size = (tmp_path / "spread").stat().st_size
        assert size < (tmp_path / "before").stat().st_size + 100 < fitted.coef_.nbytes
        state = pickle.dumps(fitted)
        assert len(state) < fitted.coef_.nbytes
        for other in (load_model(tmp_path / "spread"), pickle.loads(state), copy.copy(fitted)):
            assert "_of_pairs" not in vars(other) and "coef_" in vars(other)
            assert_array_equal(other.predict_marginals(wide).values, expected)
            for name in ("coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_"):
                assert_array_equal(getattr(other, name), getattr(fitted, name))
        fitted.coef_ = np.full(fitted.coef_.shape, np.nan)
        with pytest.raises(ValueError, match="coef_ is not finite"):
            save_model(fitted, tmp_path / "spread")
