"""Transitions that depend on features, against enumeration and plain NumPy."""

import pickle
import warnings

import numpy as np
import pytest
from chain_weights import arrays_of, as_csr, chain_of, check_certificate, labellings, log_objective
from making import made
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import fastm4n.reference as ref
from fastm4n import BlockFrankWolfe, Sequences, SequenceTagger, Transitions
from fastm4n.features._positions import ChainFeatures
from fastm4n.outputs import ChainOutputs, Layout
from fastm4n.reference import (
    score_labelling,
    sum_product,
    viterbi,
)
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.surrogates import MaxMarginLoss

# how small gaps become is asserted where it matters
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SURROGATES = ("max_min", "max_margin", "log")
R = 3
COST = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [1.0, 3.0, 0.0]])
SELECTED = [4, 1]


def make_data(lengths=(3, 1, 4, 2, 1, 5), n_features=5, n_labels=R, seed=0):
    """Random features, about half of them zero, and labels that follow transitions of theirs."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for i, T in enumerate(lengths):
        x = rng.normal(size=(T, n_features)) * (rng.random((T, n_features)) < 0.5)
        x[:, 0] = i + 1.0  # no two sequences are equal
        labels = rng.integers(0, n_labels, T)
        for t in range(1, T):
            if x[t, 1] > 0:
                labels[t] = (labels[t - 1] + 1) % n_labels
        X.append(x / np.sqrt(n_features))
        y.append(labels)
    for j in range(min(n_labels, len(y))):
        y[j][0] = j  # every label occurs
    return X, y


def tagger(surrogate="log", **parameters):
    parameters = {
        "transitions": Transitions(features=SELECTED), "tol": 1e-3, "random_state": 0,
        **parameters}
    return made(SequenceTagger, surrogate, **parameters)


# ------------------------------------------------------------------------- certificates


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("sparse", [False, True])
def test_certificate(surrogate, sparse):
    """After few passes, where the gap is large, as well as at the end."""
    X, y = make_data()
    given = as_csr(X) if sparse else X
    for max_iter, tol in (2, 0.0), (5000, 2e-3):
        model = tagger(
            surrogate, alpha=0.1, cost=COST, tol=tol, max_iter=max_iter, warm_start=True,
            accelerate=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if max_iter == 2 else "error", ConvergenceWarning)
            model.fit(given, y)
        # oracles of max-min are solved to a share of the gap: P is bounded from above
        exact = surrogate != "max_min"
        check_certificate(model, X, y, COST, rtol=1e-9 if exact else model.duality_gap_)
    assert model.relative_gap_ <= 2e-3
    assert np.abs(model.transition_feature_coef_).max() > 0.01


@pytest.mark.parametrize("options", [
    {"surrogate": "max_margin", "step": "fixed", "max_iter": 400},
    {"surrogate": "max_min", "oracle": "mirror_prox", "oracle_iter": 300, "max_iter": 60},
    {"surrogate": "max_margin", "sampling": "uniform"},
    {"surrogate": "log", "sampling": "permutation"},
    {"surrogate": "log", "fit_intercept": False,
     "transitions": Transitions(start_end=False, features=SELECTED)},
])
def test_policies_meet(options):
    X, y = make_data()
    plain = {name: options[name] for name in options if name in ("fit_intercept", "transitions")}
    best = tagger(options["surrogate"], alpha=1.0, tol=1e-5, max_iter=5000, **plain).fit(X, y)
    model = tagger(**{"alpha": 1.0, "tol": 1e-3, **options}).fit(X, y)
    assert model.relative_gap_ < 0.1
    assert model.dual_objective_ <= best.primal_objective_ + 1e-9
    assert best.dual_objective_ <= model.primal_objective_ + 1e-9
    if plain:
        assert not model.intercept_.any() and not model.start_coef_.any()


@pytest.mark.parametrize("alpha", [0.02, 0.5])
def test_log_optimum_is_that_of_lbfgs(alpha):
    X, y = make_data()
    size = 5 * R + 3 * R + R * R + 2 * R * R
    best = minimize(
        log_objective, np.zeros(size), (X, y, alpha, SELECTED, R), "L-BFGS-B", jac=True,
        options={"maxiter": 5000, "gtol": 1e-10, "ftol": 1e-15})
    for tol in 1e-2, 1e-9:
        model = tagger(alpha=alpha, tol=tol, max_iter=5000).fit(X, y)
        flat = np.concatenate([array.ravel() for array in arrays_of(model)])
        value = log_objective(flat, X, y, alpha, SELECTED, R)[0]
        assert_allclose(model.primal_objective_, value, rtol=1e-10)
        assert value - best.fun <= model.duality_gap_ + 1e-10 and model.relative_gap_ <= tol
        # strong convexity
        assert np.linalg.norm(flat - best.x) <= np.sqrt(2 * model.duality_gap_ / alpha) + 1e-4


@pytest.mark.parametrize("surrogate", ["max_margin", "log"])
@pytest.mark.parametrize("kind", ["dense", "dense32", "csr", "csr32"])
def test_long_sequences(surrogate, kind):
    """Blocks of more than 64 positions have no Gram matrix; 65 positions have 64 transitions."""
    X, y = make_data((64, 65, 66, 1, 90, 2), seed=1)
    dtype = np.float32 if kind.endswith("32") else np.float64
    X = [x.astype(dtype) for x in X]
    given = as_csr(X, dtype) if kind.startswith("csr") else X
    model = tagger(
        surrogate, alpha=1.0, tol=0.01, max_iter=3000, warm_start=True, cost=COST, accelerate=False)
    model.fit(given, y)
    assert model.relative_gap_ <= 0.01
    check_certificate(model, [x.astype(float) for x in X], y, COST)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_only_single_positions(surrogate):
    """There is no transition to learn from, and none to decode."""
    X, y = make_data((1,) * 8)
    y = [np.array([i % R]) for i in range(8)]
    model = tagger(surrogate, alpha=0.1, tol=1e-4, warm_start=True, accelerate=False).fit(X, y)
    check_certificate(model, X, y, 1.0 - np.eye(R), rtol=1e-4)
    assert not model.transition_feature_coef_.any() and not model.transition_coef_.any()
    expected = [np.argmax(chain_of(model, x)[0], axis=1) for x in X]
    assert_array_equal(model.predict(X).values, np.concatenate(expected))
    longer = make_data((4,))[0]
    assert_array_equal(model.predict(longer)[0], viterbi(*chain_of(model, longer[0]))[0])


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_features_that_are_zero_change_nothing(surrogate):
    """The constant part is the shared matrix: columns of zeros leave the problem as it is."""
    X, y = make_data()
    X = [np.column_stack([x, np.zeros(len(x))]) for x in X]
    options = {"alpha": 0.2, "tol": 1e-4, "max_iter": 5000}
    shared = tagger(surrogate, transitions=Transitions(), **options).fit(X, y)
    model = tagger(surrogate, transitions=Transitions(features=[5]), **options).fit(X, y)
    assert not model.transition_feature_coef_.any()
    gaps = np.array([model.duality_gap_, shared.duality_gap_])
    assert gaps.max() < 1e-3
    assert_allclose(model.primal_objective_, shared.primal_objective_, atol=gaps.max())
    # by strong convexity
    distance = np.linalg.norm(model.transition_coef_ - shared.transition_coef_)
    assert distance <= np.sqrt(2 * gaps / 0.2).sum()


def test_transitions_that_only_features_can_tell():
    """A feature of a position says whether the label changes; the label itself is hidden."""
    rng = np.random.default_rng(0)
    changes = rng.random((40, 12)) < 0.5
    X = [np.column_stack([c, np.arange(12) == 0, (np.arange(12) == 0) * s]).astype(float)
         for c, s in zip(changes, rng.choice([-1.0, 1.0], 40))]
    y = [np.cumsum(np.append(x[0, 2] > 0, x[1:, 0])).astype(int) % 2 for x in X]
    options = {"alpha": 1e-3, "tol": 1e-2, "random_state": 0}
    for surrogate in SURROGATES:
        model = SequenceTagger(surrogate, transitions=Transitions(features=[0]), **options).fit(X[:20], y[:20])
        assert model.score(X[20:], y[20:]) == 1.0
    assert SequenceTagger("log", **options).fit(X[:20], y[:20]).score(X[20:], y[20:]) < 0.7


def test_weights_can_be_put_aside():
    """As averaged dual points and interrupts do: `restore` brings back what `state` was."""
    X, y = make_data()
    lengths = np.array([len(x) for x in X])
    rows, starts = np.concatenate(X), np.cumsum(lengths) - lengths
    features = ChainFeatures(
        rows, starts, Layout.of_chains(lengths, R, True), 1.0, True, True,
        np.ascontiguousarray(rows[:, SELECTED]))
    structure = MaxMarginLoss(ChainOutputs(np.concatenate(y), lengths, COST, True, cost_scale="mean"))
    engine = BlockCoordinateEngine(structure, features, np.full(len(X), 1 / len(X)), 0.1, 0)
    start = engine.mu.copy()
    for _ in range(3):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)

    def weights():
        return features.all_weights().copy(), features.edges.all_weights().copy()

    before, state = weights(), features.state()
    engine.rebuild_weights(engine.mu.copy())
    for a, b in zip(before, weights()):
        assert np.abs(a).max() > 0.01
        assert_allclose(a, b, atol=1e-12)
    assert_allclose(features.weight_norm(), sum(np.sum(a**2) for a in before))
    engine.rebuild_weights(start)
    assert not weights()[0].any() and not weights()[1].any()
    features.restore(state)
    for a, b in zip(before, weights()):
        assert_array_equal(a, b)


# -------------------------------------------------------------------------- predictions


@pytest.fixture(scope="module")
def fitted():
    X, y = make_data()
    return {
        surrogate: tagger(surrogate, alpha=0.02, tol=1e-3, max_iter=5000).fit(X, y)
        for surrogate in SURROGATES
    }


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("sparse", [False, True])
def test_predictions_are_those_of_the_formula(fitted, surrogate, sparse):
    model = fitted[surrogate]
    X = make_data((5, 1, 2, 70, 4), seed=2)[0]
    predicted = model.predict(as_csr(X) if sparse else X)
    for x, labels in zip(X, predicted):
        assert_array_equal(labels, viterbi(*chain_of(model, x))[0])
    assert not all(
        np.array_equal(labels, viterbi(chain_of(model, x)[0], model.transition_coef_)[0])
        for x, labels in zip(X, predicted))
    assert_array_equal(
        model.predict(np.concatenate(X), lengths=[5, 1, 2, 70, 4]).values, predicted.values)
    for x, scores in zip(X, model.decision_function(X)):
        assert_allclose(scores, chain_of(model, x)[0], atol=1e-12)


def test_kbest_and_marginals(fitted):
    model = fitted["log"]
    X = make_data((5, 1, 3, 4), seed=3)[0]
    paths, scores = model.predict_kbest(X, 5)
    marginals = model.predict_marginals(X)
    for x, found, values, nodes in zip(X, paths, scores, marginals):
        unary, pairwise = chain_of(model, x)
        all_labels = labellings(len(x), R)
        all_scores = np.array([score_labelling(labels, unary, pairwise) for labels in all_labels])
        order = np.argsort(-all_scores)[:5]
        assert_allclose(values, all_scores[order])
        assert_array_equal(found, all_labels[order])
        p = np.exp(all_scores - all_scores.max())
        p /= p.sum()
        for j in range(R):
            assert_allclose(nodes[:, j], p @ (all_labels == j), atol=1e-12)
        assert_allclose(nodes, sum_product(unary, pairwise)[0], atol=1e-12)


def test_allowed_transitions(fitted):
    allowed = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0]], dtype=bool)
    forbidden = np.where(allowed, 0.0, -np.inf)
    X = make_data((6, 1, 3, 40), seed=4)[0]
    for model in fitted.values():
        changed = False
        for x, labels in zip(X, model.predict(X, allowed_transitions=allowed)):
            unary, pairwise = chain_of(model, x)
            assert_array_equal(labels, viterbi(unary, pairwise + forbidden)[0])
            changed |= not np.array_equal(labels, viterbi(unary, pairwise)[0])
        assert changed
    model = fitted["log"]
    for x, nodes, best in zip(
            X, model.predict_marginals(X, allowed_transitions=allowed),
            model.predict_kbest(X, 1, allowed_transitions=allowed)[0]):
        unary, pairwise = chain_of(model, x)
        # -50 is far enough below for marginals, and keeps the reference in its range
        expected = sum_product(unary, pairwise + np.maximum(forbidden, -50))[0]
        assert_allclose(nodes, expected, atol=1e-9)
        assert_array_equal(best[0], viterbi(unary, pairwise + forbidden)[0])


def test_min_risk(fitted):
    X = make_data((6, 1, 3), seed=5)[0]
    for surrogate in "log", "max_min":
        model = clone(fitted[surrogate]).set_params(cost=COST, alpha=0.05).fit(*make_data())
        for x, labels in zip(X, model.predict(X, "min_risk")):
            nodes = ref.ChainOutputs.oracle(chain_of(model, x), surrogate, cost=COST, tol=1e-9)[0]
            risk = nodes @ COST
            least = risk.min(axis=1)
            assert_allclose(risk[np.arange(len(x)), labels], least, atol=1e-4)


# ------------------------------------------------------------- the parameter and the state


@pytest.mark.parametrize("sparse", [False, True])
def test_ways_to_select(sparse):
    X, y = make_data()
    given = as_csr(X) if sparse else X
    mask = np.zeros(5, dtype=bool)
    mask[SELECTED] = True
    model = tagger(transitions=Transitions(features=mask)).fit(given, y)
    assert model.transition_features_.tolist() == [1, 4]
    assert model.transition_feature_coef_.shape == (2, R, R)
    for same in [1, 4], (1, 4), np.array([1, 4], dtype=np.uint8), mask.tolist():
        other = tagger(transitions=Transitions(features=same)).fit(given, y)
        for a, b in zip(arrays_of(model), arrays_of(other)):
            assert_array_equal(a, b)
    swapped = tagger(transitions=Transitions(features=[4, 1]), tol=1e-9).fit(given, y)
    ordered = tagger(transitions=Transitions(features=[1, 4]), tol=1e-9).fit(given, y)
    assert swapped.transition_features_.tolist() == [4, 1]
    assert_allclose(
        swapped.transition_feature_coef_[::-1], ordered.transition_feature_coef_, atol=1e-3)
    every = tagger(transitions=Transitions(features="all")).fit(given, y)
    assert every.transition_features_.tolist() == [0, 1, 2, 3, 4]
    numbered = tagger(transitions=Transitions(features=range(5))).fit(given, y)
    for a, b in zip(arrays_of(every), arrays_of(numbered)):
        assert_array_equal(a, b)
    assert_array_equal(every.predict(given)[2], viterbi(*chain_of(every, X[2]))[0])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([0, 5], r"transitions: features\[1\] is 5, but X has the features 0 ... 4"),
        ([-1], r"transitions: features\[0\] is -1"),
        ([2, 0, 2], "transitions: features has 2 more than once, again at index 2"),
        ([], "transitions: features selects no feature"),
        (np.zeros(5, dtype=bool), "transitions: features selects no feature"),
        (np.ones(4, dtype=bool), "transitions: features is a mask of 4, but X has 5 features"),
        ([0.0, 1.0], "transitions: features must be 'all', column numbers or a boolean mask"),
        ([[0], [1]], "transitions: features must be 'all', column numbers"),
        ([[0], [1, 2]], "transitions: features must be 'all', column numbers"),
        (3, "transitions: features must be 'all', column numbers"),
        ("some", "transitions: features must be one of"),
    ],
)
def test_bad_selections(columns, message):
    X, y = make_data()
    with pytest.raises(ValueError, match=message):
        tagger(transitions=Transitions(features=columns)).fit(X, y)


@pytest.mark.parametrize(("given", "message"), [
    ({"start_end": 0}, "start_end must be True or False, got 0"),
    ({"pairs": None}, "pairs must be True or False, got None"),
    ({"order": 1.5}, "order must be an integer > 0, got 1.5"),
])
def test_bad_transitions(given, message):
    with pytest.raises(ValueError, match="transitions: " + message):
        tagger(transitions=Transitions(**given)).fit(*make_data())


def test_transitions_are_needed():
    with pytest.raises(ValueError, match=r"features=\[4, 1\] needs pairs=True"):
        tagger(transitions=Transitions(features=[4, 1], pairs=False)).fit(*make_data())


def test_state():
    """Pickles, replaced arrays, and a refit without: nothing is left over."""
    X, y = make_data()
    new = make_data((4, 1, 30), seed=6)[0]
    model = tagger("max_margin", alpha=0.02, max_iter=50).fit(X, y)
    expected = model.predict(new).values
    loaded = pickle.loads(pickle.dumps(model))
    assert not {"_packed", "_packed_edges"} & set(model.__getstate__())
    assert_array_equal(loaded.predict(new).values, expected)
    model.set_params(transitions=Transitions())  # takes effect at the next fit
    assert_array_equal(model.predict(new).values, expected)
    loaded.transition_feature_coef_ = -3 * loaded.transition_feature_coef_
    for x, labels in zip(new, loaded.predict(new)):
        assert_array_equal(labels, viterbi(*chain_of(loaded, x))[0])
    assert not np.array_equal(loaded.predict(new).values, expected)
    model.transition_coef_ = model.transition_coef_ + np.eye(R)
    for x, labels in zip(new, model.predict(new)):
        assert_array_equal(labels, viterbi(*chain_of(model, x))[0])
    model.fit(X, y)
    gone = {"transition_feature_coef_", "transition_features_", "_packed_edges"}
    assert not gone & set(vars(model))
    plain = tagger("max_margin", alpha=0.02, max_iter=50, transitions=Transitions()).fit(X, y)
    assert_array_equal(model.predict(new).values, plain.predict(new).values)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_warm_start(surrogate):
    X, y = make_data()
    model = tagger(surrogate, alpha=0.2, warm_start=True, max_iter=5000).fit(X, y)
    cold = model.n_iter_
    model.fit(X, y)
    assert cold > 0 and model.n_iter_ == 0
    # the dual point does not depend on which columns transitions depend on, but on whether
    for columns in [1], None, SELECTED:
        model.set_params(transitions=Transitions(features=columns)).fit(X, y)
        fresh = clone(model).set_params(warm_start=False).fit(X, y)
        assert model.relative_gap_ <= 1e-3
        assert_allclose(model.primal_objective_, fresh.primal_objective_, atol=2e-3)
    # without acceleration w is that of the dual point
    model.set_params(alpha=0.1, solver=BlockFrankWolfe(accelerate=False)).fit(X, y)
    check_certificate(model, X, y, 1.0 - np.eye(R), rtol=1e-3)


def test_order_and_weights():
    """Neither the order of the sequences nor a weight written as a repetition matters."""
    X, y = make_data()
    weighted = tagger(alpha=0.2).fit(X, y, [1, 2, 1, 0, 1, 1])
    order = [5, 1, 0, 2, 4, 1]
    repeated = tagger(alpha=0.2).fit([X[i] for i in order], [y[i] for i in order])
    for a, b in zip(arrays_of(weighted), arrays_of(repeated)):
        assert_array_equal(a, b)


def test_threads_and_containers():
    X, y = make_data((100,) * 40, n_features=8)
    whole = Sequences.from_list(X)
    one, two = (
        tagger("log", alpha=0.1, tol=0.05, n_jobs=n_jobs).fit(whole, y) for n_jobs in (1, 2))
    for a, b in zip(arrays_of(one), arrays_of(two)):
        assert_array_equal(a, b)
    assert_array_equal(one.predict(X).values, two.predict(whole).values)


def test_explain(fitted):
    model = fitted["log"]
    names = ["one", "two", "three", "four", "five"]
    rows = model.explain(names, 2).transition_features
    coef = model.transition_feature_coef_
    assert rows[0][0] == coef.max() and rows[-1][0] == coef.min() and len(rows) == 4
    k, i, j = np.unravel_index(np.argmax(coef), coef.shape)
    assert rows[0][1:] == (i, j, names[SELECTED[k]])
    assert f"{i} -> {j} {names[SELECTED[k]]}" in str(model.explain(names, 2))
    plain = tagger(transitions=Transitions()).fit(*make_data())
    assert len(plain.explain(names).transition_features) == 0
    assert "features of transitions" not in str(plain.explain(names))
