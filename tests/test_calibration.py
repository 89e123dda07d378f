"""Temperatures against the likelihood by enumeration, and what is calibrated with them."""

import pickle

import numpy as np
import pytest
from chain_cases import gibbs, labellings, marginals_of, scores_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastm4n import (
    CalibratedClassifier,
    CalibratedTagger,
    MulticlassClassifier,
    OrdinalClassifier,
    Sequences,
    SequenceTagger,
    Transitions,
)
from fastm4n.calibration import fit_temperature, reliability_curve
from fastm4n.plotting import ReliabilityDisplay
from fastm4n.surrogates import Log

SURROGATES = ("log", "max_margin", "max_min")
LABELS = np.array(["a", "b", "c"])


def sentences(rng, n, noise=1.5):
    codes = [rng.integers(3, size=rng.integers(0, 5)) for _ in range(n)]
    X = [np.eye(3)[own] + noise * rng.normal(size=(own.size, 3)) for own in codes]
    return Sequences.from_list(X), Sequences.from_list([LABELS[own] for own in codes])


def best_by_enumeration(losses):
    """The temperature that minimises a loss of the inverse temperature."""
    found = minimize_scalar(lambda x: losses(np.exp(-x)), bounds=(-6, 6), method="bounded",
                            options={"xatol": 1e-9})
    return np.exp(found.x)


def listed_loss(tagger, X, y):
    """Mean of -log p of true labellings at an inverse temperature, over all labellings."""
    parts = []
    for x, labels in zip(X, y):
        if len(x) == 0:
            continue
        unary = tagger.decision_function([x])[0]
        if hasattr(tagger, "transition_feature_coef_"):
            more = np.einsum("td,dij->tij", x[1:], tagger.transition_feature_coef_)
            pairwise = tagger.transition_coef_ + more
        else:
            pairwise = tagger.transition_coef_
        own = np.searchsorted(LABELS, labels)
        true = int(np.flatnonzero((labellings(len(x), 3) == own).all(axis=1))[0])
        parts.append((scores_of(unary, pairwise), true))
    return lambda b: np.mean([gibbs(b * scores)[1] - b * scores[true] for scores, true in parts])


@pytest.mark.parametrize("options", [{}, {"transitions": Transitions(features="all")}], ids=str)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_temperature_of_sequences(surrogate, options):
    rng = np.random.default_rng(0)
    tagger = SequenceTagger(surrogate, tol=0.01, random_state=0, **options)
    tagger.fit(*sentences(rng, 60))
    X, y = sentences(rng, 40)
    losses = listed_loss(tagger, X, y)
    found = fit_temperature(tagger, X, y)
    assert_allclose(found, best_by_enumeration(losses), rtol=1e-4)
    calibrated = CalibratedTagger(tagger).calibrate(X, y)
    assert calibrated.calibrated_temperature_ == found
    assert_allclose(calibrated.log_loss(X, y), losses(1 / found), rtol=1e-9)
    assert calibrated.log_loss(X, y) <= losses(1.0)
    # its marginals are those of all labellings
    marginals = calibrated.predict_marginals(X)
    assert_array_equal(marginals.lengths, X.lengths)
    for x, rows in list(zip(X, marginals))[:10]:
        if len(x) and not options:
            p, _ = gibbs(scores_of(tagger.decision_function([x])[0], tagger.transition_coef_) / found)
            assert_allclose(rows, marginals_of(p, len(x), 3)[0], atol=1e-10)
    assert calibrated.predict(X).equals(tagger.predict(X))


@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1e6, 1e200])
def test_temperature_follows_the_scale_of_scores(scale):
    rng = np.random.default_rng(0)
    tagger = SequenceTagger("log", tol=0.01, random_state=0).fit(*sentences(rng, 60))
    X, y = sentences(rng, 40)
    once = fit_temperature(tagger, X, y)
    for name in ("coef_", "intercept_", "transition_coef_", "start_coef_", "end_coef_"):
        setattr(tagger, name, scale * getattr(tagger, name))
    assert_allclose(fit_temperature(tagger, X, y), scale * once, rtol=1e-6)


def test_the_tagger_has_a_temperature_of_its_own():
    rng = np.random.default_rng(0)
    X, y = sentences(rng, 60)
    tagger = SequenceTagger(Log(3.0), tol=0.01, random_state=0).fit(X, y)
    calibrated = CalibratedTagger(tagger)
    calibrated.estimator_, calibrated.calibrated_temperature_ = tagger, 3.0
    assert_allclose(
        calibrated.predict_marginals(X).values, tagger.predict_marginals(X).values, atol=1e-9)


@pytest.mark.parametrize("allowed", [None, ~np.eye(3, dtype=bool)], ids=["all", "some"])
def test_forbidden_transitions(allowed):
    rng = np.random.default_rng(1)
    X, y = sentences(rng, 60)
    keep = [b for b, own in enumerate(y) if allowed is None or (own[1:] != own[:-1]).all()]
    tagger = SequenceTagger("log", tol=0.01, allowed_transitions=allowed, random_state=0)
    tagger.fit(X[keep], y[keep])
    calibrated = CalibratedTagger(tagger).calibrate(X[keep], y[keep])
    if allowed is None:
        calibrated.estimator_, calibrated.calibrated_temperature_ = tagger, 1.0
        assert_allclose(
            calibrated.predict_marginals(X).values, tagger.predict_marginals(X).values, atol=1e-9)
    else:
        wrong = next(b for b in range(60) if b not in keep)
        with pytest.raises(ValueError, match=rf"y\[{wrong}\] has a transition that allowed_tr"):
            fit_temperature(tagger, X, y)


@pytest.mark.parametrize("model", [
    MulticlassClassifier("log", random_state=0), MulticlassClassifier("max_margin", random_state=0),
    MulticlassClassifier("max_min", random_state=0), OrdinalClassifier(random_state=0),
    LogisticRegression(), RidgeClassifier(),
], ids=lambda model: f"{type(model).__name__}-{getattr(model, 'surrogate', '')}")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_temperature_of_classes(model, n_classes):
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    X, y = X[y < n_classes], y[y < n_classes].copy()
    y[::10] = (y[::10] + 1) % n_classes  # so that no model is always right
    order = rng.permutation(y.size)
    train, held = order[: y.size // 2], order[y.size // 2:]
    model = make_pipeline(StandardScaler(), clone(model)).fit(X[train], y[train])
    scores = model.decision_function(X[held])
    if n_classes == 2:
        scores = np.stack([0 * scores, scores], axis=1)

    def loss(b):
        own = b * scores - (b * scores).max(axis=1, keepdims=True)
        p = np.exp(own) / np.exp(own).sum(axis=1, keepdims=True)
        return -np.mean(np.log(p[np.arange(held.size), y[held]]))

    calibrated = CalibratedClassifier(model).calibrate(X[held], y[held])
    found = calibrated.calibrated_temperature_
    assert_allclose(found, best_by_enumeration(loss), rtol=1e-4)
    assert_allclose(calibrated.log_loss(X[held], y[held]), loss(1 / found), rtol=1e-9)
    p = calibrated.predict_proba(X)
    assert_allclose(p.sum(axis=1), 1.0)
    assert_array_equal(calibrated.predict(X), model.predict(X))
    assert_array_equal(calibrated.classes_[p.argmax(axis=1)], model.predict(X))
    assert_array_equal(calibrated.decision_function(X), model.decision_function(X))


def test_fit_holds_examples_out():
    rng = np.random.default_rng(0)
    X, y = sentences(rng, 100)
    tagger = CalibratedTagger(
        SequenceTagger("max_margin", random_state=0), calibration_size=30, random_state=3)
    tagger.fit(X, y)
    order = np.random.RandomState(3).permutation(100)
    held, train = np.sort(order[:30]), np.sort(order[30:])
    plain = SequenceTagger("max_margin", random_state=0).fit(X[train], y[train])
    assert_array_equal(tagger.estimator_.coef_, plain.coef_)
    assert tagger.calibrated_temperature_ == fit_temperature(plain, X[held], y[held])
    again = pickle.loads(pickle.dumps(tagger))
    assert_array_equal(again.predict_marginals(X).values, tagger.predict_marginals(X).values)
    assert not hasattr(clone(tagger), "estimator_")
    assert_array_equal(clone(tagger).fit(X, y).calibrated_temperature_, tagger.calibrated_temperature_)


def test_bad_input():
    rng = np.random.default_rng(0)
    X, y = sentences(rng, 60)
    tagger = SequenceTagger("max_margin", tol=0.01, random_state=0).fit(X, y)
    own = tagger.predict(X)
    with pytest.raises(ValueError, match="the model labels every held-out example correctly"):
        fit_temperature(tagger, X, own)
    worst = Sequences(LABELS[(np.searchsorted(LABELS, own.values) + 1) % 3], own.offsets)
    with pytest.raises(ValueError, match="score no higher than outputs at random"):
        fit_temperature(tagger, X, worst)
    flat = pickle.loads(pickle.dumps(tagger))
    for scale, message in ((0.0, "no higher than outputs at random"), (1e307, "scores are too large")):
        for name in ("coef_", "intercept_", "transition_coef_", "start_coef_", "end_coef_"):
            setattr(flat, name, scale * getattr(tagger, name))
        with np.errstate(over="ignore", invalid="ignore"), pytest.raises(ValueError, match=message):
            fit_temperature(flat, X, y)
    labels = y.values.astype(object)
    labels[y.offsets[np.flatnonzero(y.lengths > 1)[1]] + 1] = "z"
    b = int(np.flatnonzero(y.lengths > 1)[1])
    with pytest.warns(UserWarning), pytest.raises(
            ValueError, match=rf"y\[{b}\] has 'z' at position 1, which is not in classes_"):
        fit_temperature(tagger, X, Sequences(labels, y.offsets))
    with pytest.raises(ValueError, match="X has no positions to calibrate with"):
        fit_temperature(tagger, Sequences(np.zeros((0, 3)), [0, 0]), [[]])
    with pytest.raises(NotFittedError, match="CalibratedTagger.calibrate needs a fitted estimator"):
        CalibratedTagger(SequenceTagger()).calibrate(X, y)
    with pytest.raises(NotFittedError):
        CalibratedTagger(tagger).predict_marginals(X)
    wrong = CalibratedTagger(tagger).calibrate(X, y)
    wrong.estimator_ = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(TypeError, match="estimator must be a SequenceTagger.*CalibratedTagger"):
        wrong.predict_marginals(X)
    rows, classes = load_wine(return_X_y=True)
    with pytest.raises(TypeError, match="GaussianNB has no decision_function"):
        fit_temperature(GaussianNB().fit(rows, classes), rows, classes)
    model = LogisticRegression(max_iter=20).fit(StandardScaler().fit_transform(rows), classes)
    with pytest.warns(UserWarning), pytest.raises(ValueError, match=r"y\[0\] is 9, which is not in"):
        fit_temperature(model, rows, np.where(np.arange(classes.size) == 0, 9, classes))
    with pytest.raises(ValueError, match="X has 178 examples, but y has 3"):
        fit_temperature(model, rows, [0, 1, 2])


# reliability


def test_reliability_curve():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=200)
    y = LABELS[[rng.choice(3, p=own) for own in p]]
    curve = reliability_curve(y, p, LABELS, n_bins=5)
    top, right = p.max(axis=1), LABELS[p.argmax(axis=1)] == y
    error = 0.0
    for k in range(5):
        inside = (top >= k / 5) & (top < (k + 1) / 5)
        assert curve.counts[k] == inside.sum()
        if inside.any():
            assert_allclose(curve.confidence[k], top[inside].mean())
            assert_allclose(curve.accuracy[k], right[inside].mean())
            error += inside.mean() * abs(top[inside].mean() - right[inside].mean())
        else:
            assert np.isnan(curve.accuracy[k]) and np.isnan(curve.confidence[k])
    assert_allclose(curve.expected_calibration_error, error)
    # the same numbers, cut into sequences
    cut = [0, 50, 50, 200]
    whole = reliability_curve(Sequences(y, cut), Sequences(p, cut), LABELS, n_bins=5)
    listed = reliability_curve(
        [own.tolist() for own in Sequences(y, cut)], list(Sequences(p, cut)), LABELS, n_bins=5)
    for other in (whole, listed):
        assert_array_equal(other.accuracy, curve.accuracy)
        assert_array_equal(other.counts, curve.counts)


@pytest.mark.parametrize("y, p, options, message", [
    ([0, 1], [[0.5, 0.5]], {}, "y has 2 labels, but probabilities has 1"),
    ([0], [[0.5, 0.2, 0.3]], {}, "probabilities must have 2 columns"),
    ([0], [[1.5, -0.5]], {}, "probabilities must be between 0 and 1"),
    ([0], [[np.nan, 0.5]], {}, "probabilities must be between 0 and 1"),
    ([0], [[0.5, 0.5]], {"n_bins": 0}, "n_bins must be an integer > 0"),
    ([], np.zeros((0, 2)), {}, "y has no labels"),
    ([[0]], [[[0.5, 0.5]], [[0.5, 0.5]]], {}, "y has 1 sequences, but probabilities has 2"),
    ([[0, 1]], [[[0.5, 0.5]]], {}, r"y\[0\] has 2 labels, but probabilities\[0\] has 1 row"),
])
def test_reliability_refuses(y, p, options, message):
    with pytest.raises(ValueError, match=message):
        reliability_curve(y, p, [0, 1], **options)


def test_reliability_display():
    pytest.importorskip("matplotlib").use("agg")
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=200)
    y = [rng.choice(3, p=own) for own in p]
    surer = p**2 / (p**2).sum(axis=1, keepdims=True)
    curves = {name: reliability_curve(y, q, [0, 1, 2]) for name, q in (("a", p), ("b", surer))}
    display = ReliabilityDisplay(curves).plot()
    assert [line.get_label().split(",")[0] for line in display.lines_] == ["a", "b"]
    filled = curves["a"].counts > 0
    assert_allclose(display.lines_[0].get_xdata(), curves["a"].confidence[filled])
    assert_allclose(display.lines_[0].get_ydata(), curves["a"].accuracy[filled])
    assert repr(display) == "<ReliabilityDisplay: a, b>"
    most = display.plot(least=50).lines_[0]
    assert_allclose(most.get_xdata(), curves["a"].confidence[curves["a"].counts >= 50])
    with pytest.raises(ValueError, match="least must be an integer > 0"):
        display.plot(least=0)
    one = ReliabilityDisplay.from_predictions(y, p, [0, 1, 2], ax=display.ax_)
    assert one.ax_ is display.ax_
    with pytest.raises(TypeError, match="curves must be a ReliabilityCurve or a dict of them"):
        ReliabilityDisplay([1, 2])
