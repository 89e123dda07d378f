"""Conformal sets, intervals and spans: by enumeration, and whether they cover as often as said."""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from chain_cases import gibbs, labellings, marginals_of, scores_of
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastm4n import (
    CalibratedClassifier,
    CalibratedTagger,
    ConformalClassifier,
    ConformalOrdinalClassifier,
    ConformalTagger,
    MulticlassClassifier,
    OrdinalClassifier,
    Sequences,
    SequenceTagger,
    SequenceVectorizer,
    Transitions,
)
from fastm4n.automata import Automaton
from fastm4n.calibration._conformal import (
    absorbed,
    between,
    from_probabilities,
    n_needed,
    threshold,
    token_threshold,
)
from fastm4n.metrics import spans
from fastm4n.surrogates import Log

LEVELS = (0.5, 0.8, 0.9, 0.95)
BIO = np.array(["B-x", "B-y", "I-x", "I-y", "O"])


class Guess(ClassifierMixin, BaseEstimator):
    """Probabilities that are the features, right or wrong."""

    def fit(self, X, y):
        self.classes_ = np.arange(np.shape(X)[1])
        return self

    def predict_proba(self, X):
        return np.asarray(X) / np.sum(X, axis=1, keepdims=True)

    def predict(self, X):
        return np.argmax(X, axis=1)


def guesses(rng, n, R=4):
    """Labels, and probabilities that know something of them, but are far from calibrated."""
    y = rng.integers(R, size=n)
    return rng.gamma(0.5, size=(n, R)) + np.eye(R)[y] * rng.random((n, 1)) + 1e-9, y


def sentences(rng, n, names=BIO, noise=1.0, least=0):
    """Random labels of sequences of 0 ... 7 positions, and noisy indicators of them."""
    codes = [rng.integers(len(names), size=rng.integers(least, 8)) for _ in range(n)]
    X = [np.eye(len(names))[own] + noise * rng.normal(size=(own.size, len(names))) for own in codes]
    return Sequences.from_list(X), Sequences.from_list([names[own] for own in codes])


@pytest.fixture(scope="module")
def taggers():
    """Fitted taggers of the three surrogates."""
    X, y = sentences(np.random.default_rng(0), 60)
    return {
        surrogate: SequenceTagger(surrogate, tol=0.05, random_state=0).fit(X, y)
        for surrogate in ("log", "max_margin", "max_min")}


# thresholds


@pytest.mark.parametrize("confidence, n", [
    (0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999), (0.1, 1), (0.85, 6)])
def test_numbers_needed(confidence, n):
    assert n_needed(confidence) == n
    scores, shares = np.arange(n) / 1.0, np.ones(n)
    assert threshold(scores, shares, n, confidence, "examples") <= n - 1
    if n > 1:
        message = f"confidence={confidence:g} needs at least {n} calibration examples, got {n - 1}"
        with pytest.raises(ValueError, match=message):
            threshold(scores[1:], shares[1:], n - 1, confidence, "examples")


@pytest.mark.parametrize("confidence", LEVELS)
@pytest.mark.parametrize("n", [19, 40, 101])
def test_threshold_is_an_order_statistic(n, confidence):
    scores = np.random.default_rng(n).normal(size=n)
    k = -(-Fraction(str(confidence)) * (n + 1) // 1)
    q = threshold(scores, np.ones(n), n, confidence, "examples")
    assert q == np.sort(scores)[int(k) - 1]


@pytest.mark.parametrize("seed", range(10))
def test_threshold_by_its_definition(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, size=25)
    units = np.repeat(np.arange(25), lengths)
    scores = np.round(rng.exponential(size=units.size), 1)  # with ties
    scores[rng.random(units.size) < 0.03] = np.nan
    for confidence in (0.5, 0.7, 0.8):
        allowed = 26 * (1 - Fraction(str(confidence)))
        good = [
            q for q in np.unique(scores[~np.isnan(scores)])
            if 1 + sum(
                Fraction(int(np.sum(~(scores[units == i] <= q))), int(lengths[i]))
                for i in range(25)) <= allowed]
        q = threshold(scores, 1 / lengths[units], 25, confidence, "examples")
        assert q == min(good)


def test_threshold_of_tokens_by_its_definition():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, size=30)
    scores = np.round(rng.exponential(size=lengths.sum()), 1)
    scores[:2] = np.nan
    for confidence in (0.5, 0.8, 0.9):
        risk = 1 - Fraction(str(confidence))
        good = [
            q for q in np.unique(scores[2:])
            if int(np.sum(~(scores <= q))) - risk * int(lengths.sum()) + (1 - risk) * 10 <= 0]
        assert token_threshold(scores, lengths, confidence, 10) == min(good)
    with pytest.raises(ValueError, match="max_length=10 needs calibration sequences with at least 190"):
        token_threshold(scores, lengths, 0.95, 10)


def test_unknown_labels_can_cost_the_level():
    scores = np.array([np.nan] * 3 + [0.1] * 17)
    assert threshold(scores, np.ones(20), 20, 0.8, "examples") == 0.1
    with pytest.raises(ValueError, match="confidence=0.9 cannot be reached.* 3 of the 20 calibration"):
        threshold(scores, np.ones(20), 20, 0.9, "examples")


@pytest.mark.parametrize("confidence", [0, 1, 0.0, 1.0, -0.1, 1.5, np.nan, "0.9", None, True])
def test_confidence_is_between_0_and_1(confidence):
    with pytest.raises(ValueError, match="confidence must be a number between 0 and 1") as caught:
        ConformalClassifier(Guess(), confidence=confidence).fit(*guesses(np.random.default_rng(0), 50))
    assert repr(confidence) in str(caught.value)


# validity


@pytest.mark.parametrize("options", [
    {"nonconformity": "lac"}, {"nonconformity": "aps"}, {"nonconformity": "aps", "randomize": True}], ids=str)
@pytest.mark.parametrize("cls", [ConformalClassifier, ConformalOrdinalClassifier])
def test_coverage_is_that_of_the_beta_binomial_law(cls, options):
    # with scores that differ, coverage given the calibration examples is Beta(k, n + 1 - k)
    rng = np.random.default_rng(0)
    n, n_test, repeats, confidence = 39, 400, 80, 0.8
    model, found = Guess().fit(np.ones((1, 4)), [0]), []
    for i in range(repeats):
        X, y = guesses(rng, n + n_test)
        conformal = cls(model, confidence=confidence, random_state=i, **options)
        conformal.calibrate(X[:n], y[:n])
        sets = conformal.predict_sets(X[n:])
        found.append(np.mean(sets[np.arange(n_test), y[n:]]))
    k = 32  # ceil(0.8 * 40)
    mean, variance = k / (n + 1), k * (n + 1 - k) / ((n + 1) ** 2 * (n + 2))
    variance += (k / (n + 1) * (1 - k / (n + 1))) / n_test
    assert np.mean(found) > mean - 4 * np.sqrt(variance / repeats)
    if cls is ConformalOrdinalClassifier and options == {"nonconformity": "aps"}:
        return  # the levels that complete intervals of all levels are as bad as one another
    assert np.mean(found) < mean + 4 * np.sqrt(variance / repeats)
    assert 0.7 < np.var(found) / variance < 1.4


def test_class_conditional_coverage():
    rng = np.random.default_rng(1)
    model, shares, plain = Guess().fit(np.ones((1, 4)), [0]), [], []
    for _ in range(60):
        X, y = guesses(rng, 700)
        X[:, 0] *= np.where(y == 0, 0.2, 1.0)  # the first class is hard
        for per_class, to in ((True, shares), (False, plain)):
            conformal = ConformalClassifier(model, confidence=0.8, per_class=per_class)
            conformal.calibrate(X[:300], y[:300])
            to.append(conformal.set_report(X[300:], y[300:])["class_coverage"])
    assert conformal.threshold_ > 0 and np.ndim(conformal.threshold_) == 0
    assert_allclose(np.mean(shares, axis=0), 0.8, atol=0.02)
    assert np.mean(plain, axis=0)[0] < 0.7


@pytest.mark.parametrize("target", ["sequence", "positions", "tokens", "spans"])
@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_risk_of_sequences_is_controlled(taggers, surrogate, target):
    tagger = taggers[surrogate]
    if target == "spans" and surrogate == "max_margin":
        tagger = CalibratedTagger(tagger).calibrate(*sentences(np.random.default_rng(8), 50))
    X, y = sentences(np.random.default_rng(3), 300, least=1)
    rng, found = np.random.default_rng(4), []
    for _ in range(8):
        order = rng.permutation(300)
        held, test = order[:100], order[100:]
        conformal = ConformalTagger(tagger, confidence=0.8, target=target, max_length=7)
        conformal.calibrate(X[held], y[held])
        report = conformal.set_report(X[test], y[test])
        found.append(report[{"sequence": "sequences"}.get(target, target)])
        if target == "tokens":
            continue
        # on the calibration sequences the level is met with one sequence to spare, just
        own = conformal.calibration_scores_
        n = len(own)
        missed = [np.mean(scores > conformal.threshold_) for scores in own]
        before = [np.mean(scores >= conformal.threshold_) for scores in own]
        if target == "sequence":
            missed, before = np.sign(missed), np.sign(before)
        assert (np.sum(missed) + 1) / (n + 1) <= 0.2 + 1e-12 < (np.sum(before) + 1) / (n + 1)
    # one split has a deviation of 0.05 at most; those of 300 sequences are not independent
    assert 0.77 < np.mean(found) < 0.84


# sets by enumeration


def listed(tagger, x):
    """Scores of all labellings of a sequence."""
    unary, pairwise = tagger.decision_function([x])[0], tagger.transition_coef_
    return scores_of(unary, pairwise)


@pytest.mark.parametrize("temperature", [None, 0.3, 5.0])
@pytest.mark.parametrize("score", ["lac", "aps", "margin"])
def test_sets_by_enumeration(taggers, score, temperature):
    tagger = taggers["log"]
    model = tagger
    if temperature is not None:
        model = CalibratedTagger(tagger)
        model.estimator_, model.calibrated_temperature_ = tagger, temperature
    rng = np.random.default_rng(5)
    X, y = sentences(rng, 40)
    conformal = ConformalTagger(model, target="positions", nonconformity=score).calibrate(X, y)
    x = sentences(rng, 1, least=4)[0][0][:5]
    scores, T, R = listed(tagger, x), len(x), 5
    if score == "margin":
        best = np.array([
            [scores[labellings(T, R)[:, t] == j].max() for j in range(R)] for t in range(T)])
        rows = scores.max() - best
    else:
        p = marginals_of(gibbs(scores / (temperature or 1.0))[0], T, R)[0]
        rows = -np.log(p)
        if score == "aps":
            rows = np.array([[-own[own < value].sum() for value in own] for own in p])
    for confidence in LEVELS:
        sets = conformal.predict_sets([x], confidence=confidence)[0]
        q = conformal.set_params(confidence=confidence).calibrate(X, y).threshold_
        assert_array_equal(sets, rows <= q)
        # the marginals of a position alone do not tell its neighbours'
        assert_array_equal(conformal.predict_sets([x])[0], sets)
    assert 0 < sets.sum()


@pytest.mark.parametrize("randomize", [False, True])
def test_adaptive_scores(randomize):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(5), size=30)
    u = rng.random(30) if randomize else None
    shares = np.ones(30) if u is None else u
    found, ordered = from_probabilities(p, "aps", u), absorbed(p, u)
    for i, (own, share) in enumerate(zip(p, shares)):
        assert_allclose(
            found[i] + 1, [own[own > x].sum() + share * x for x in own])
        low = high = int(np.argmax(own))
        mass, wanted = 0.0, np.zeros(5)
        new = low
        while True:
            wanted[new] = mass + share * own[new]
            mass += own[new]
            sides = [j for j in (low - 1, high + 1) if 0 <= j < 5]
            if not sides:
                break
            new = max(sides, key=lambda j: own[j])
            low, high = min(low, new), max(high, new)
        assert_allclose(ordered[i] + 1, wanted)


def test_intervals_are_the_hulls_of_sets():
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=(50, 6))
    rows[:5, 2] = np.inf
    closed = between(rows)
    for q in (0.1, 0.5, 1.0, np.inf):
        for inside, hull in zip(rows <= q, closed <= q):
            where = np.flatnonzero(hull)
            assert_array_equal(where, np.arange(where.size) + where[:1].sum())
            assert inside[hull].all()
    best = rows.argmin(axis=1)
    assert_array_equal(closed[np.arange(50), best], rows.min(axis=1))


def test_spans_by_enumeration(taggers):
    tagger, rng = taggers["log"], np.random.default_rng(6)
    X, y = sentences(rng, 60)
    conformal = ConformalTagger(tagger, target="spans", confidence=0.8).calibrate(X, y)
    assert conformal.n_calibration_ == sum(bool(spans(own)) for own in y) < 60
    with pytest.raises(ValueError, match="this needs target='sequence' or 'positions' or 'tokens', got"):
        conformal.predict_sets(X)
    for b in np.flatnonzero(X.lengths < 5)[:6]:
        every = {}
        T = len(X[b])
        if T:
            for p, labels in zip(gibbs(listed(tagger, X[b]))[0], labellings(T, 5)):
                for span in spans(BIO[labels]):
                    every[span] = every.get(span, 0.0) + p
        for confidence in (0.5, 0.8, 0.9):
            q = conformal._threshold(None, vars(conformal), confidence)
            found = conformal.predict_spans(X[[b]], confidence=confidence)[0]
            wanted = {span: p for span, p in every.items() if -np.log(p) <= q + 1e-9}
            assert {span[:3] for span in found} == set(wanted)
            assert_allclose([p for *_, p in found], [wanted[span[:3]] for span in found])
            assert [span[1:3] for span in found] == sorted(span[1:3] for span in found)
    report = conformal.set_report(X, y)
    assert set(report) == {"spans", "listed", "precision"} and 0.7 < report["spans"] <= 1


# behaviour


@pytest.mark.parametrize("surrogate", ["log", "max_margin", "max_min"])
def test_sets_grow_with_the_level(taggers, surrogate):
    X, y = sentences(np.random.default_rng(7), 120)
    for target in ("sequence", "positions", "tokens"):
        conformal = ConformalTagger(
            taggers[surrogate], target=target, max_length=7, confidence=0.8).calibrate(X, y)
        sets = [conformal.predict_sets(X, confidence=c).values for c in (0.3, *LEVELS, 0.98)]
        for small, large in zip(sets, sets[1:]):
            assert (small <= large).all()
        assert sets[0].sum() < sets[-1].sum()
        full = ConformalTagger(
            taggers[surrogate], target=target, allow_empty=False, max_length=7, confidence=0.8)
        full.calibrate(X, y)
        filled = full.predict_sets(X, confidence=0.3).values
        assert filled.any(axis=1).all() and (sets[0] <= filled).all()
        report = conformal.set_report(X, y, confidence=0.3)
        assert report["empty"] == np.mean(~sets[0].any(axis=1))
        assert report["size"] == sets[0].sum(axis=1).mean()
        assert report["singletons"] == np.mean(sets[0].sum(axis=1) == 1)


def test_all_positions_at_once_need_larger_sets(taggers):
    X, y = sentences(np.random.default_rng(7), 120)
    at_once, share = (
        ConformalTagger(taggers["log"], target=target).calibrate(X, y).set_report(X, y)
        for target in ("sequence", "positions"))
    assert at_once["size"] > share["size"]
    assert at_once["sequences"] >= 0.9 > share["sequences"]


def test_empty_sequences_do_not_count(taggers):
    X, y = sentences(np.random.default_rng(9), 50)
    filled = np.flatnonzero(X.lengths)
    assert filled.size < 50
    conformal = ConformalTagger(taggers["log"]).calibrate(X, y)
    assert conformal.n_calibration_ == filled.size
    assert conformal.threshold_ == conformal.calibrate(X[filled], y[filled]).threshold_
    assert_array_equal(conformal.predict_sets(X).lengths, X.lengths)
    nothing = Sequences(np.zeros((0, 5)), [0, 0, 0])
    assert conformal.predict_sets(nothing).values.shape == (0, 5)
    with pytest.raises(ValueError, match="no positions to report on"):
        conformal.set_report(nothing, [[], []])
    with pytest.raises(ValueError, match="at least 9 calibration sequences, got 0"):
        conformal.calibrate(Sequences(np.zeros((0, 5)), [0] * 13), [[]] * 12)


def test_unknown_labels_are_missed(taggers):
    X, y = sentences(np.random.default_rng(9), 50, least=1)
    labels = y.values.astype(object)
    labels[y.offsets[3]] = "B-z"
    y = Sequences(labels, y.offsets)
    for target in ("sequence", "positions", "spans"):
        conformal = ConformalTagger(taggers["log"], target=target)
        with pytest.warns(UserWarning, match=r"not in classes_ \('B-z'\)"):
            conformal.calibrate(X, y)
        assert np.isnan(conformal.calibration_scores_.values).sum() == 1
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="confidence=0.97 cannot be reached"):
        ConformalTagger(taggers["log"], confidence=0.97).calibrate(X, y)
    with pytest.warns(UserWarning):
        report = ConformalTagger(taggers["log"]).calibrate(X, y).set_report(X, y, confidence=0.95)
    assert report["sequences"] < 1


def test_randomized_sets_are_reproducible(taggers):
    X, y = sentences(np.random.default_rng(9), 100)
    options = dict(target="positions", nonconformity="aps", confidence=0.8)
    plain, first, again, other = (
        ConformalTagger(taggers["log"], random_state=seed, randomize=seed > 0, **options)
        .calibrate(X, y).predict_sets(X).values for seed in (0, 1, 1, 2))
    assert_array_equal(first, again)
    assert (first != other).any() and (first != plain).any()


def test_pickles_clones_and_parameters(taggers):
    X, y = sentences(np.random.default_rng(9), 80)
    conformal = ConformalTagger(taggers["log"], random_state=0).calibrate(X, y)
    sets = conformal.predict_sets(X)
    for other in (pickle.loads(pickle.dumps(conformal)), copy.deepcopy(conformal)):
        assert other.predict_sets(X).equals(sets)
    assert conformal.predict_sets(list(X)).equals(sets)
    assert conformal.predict_sets(X[::-1]).equals(sets[::-1])
    new = clone(conformal)
    assert not hasattr(new, "threshold_") and new.get_params().keys() == conformal.get_params().keys()
    assert new.set_params(estimator__alpha=0.5).estimator.alpha == 0.5
    with pytest.raises(TypeError, match="has no parameter 'confidenc'; did you mean 'confidence'"):
        ConformalTagger(taggers["log"], confidenc=0.9)
    # a clone has to be fitted again: to a part of the sequences
    new.set_params(calibration_size=30).fit(X, y)
    filled = new.n_calibration_
    assert filled <= 30 and new.estimator_ is not new.estimator
    assert new.predict(X).equals(new.estimator_.predict(X))
    assert new.score(X, y) == new.estimator_.score(X, y)
    assert_array_equal(new.classes_, BIO)
    again = clone(new).fit(X, y)
    assert again.threshold_ == new.threshold_
    assert again.n_features_in_ == 5


def test_pipelines_and_searches():
    rng = np.random.default_rng(0)
    words, tags = [], []
    for _ in range(80):
        y = rng.integers(3, size=rng.integers(1, 5))
        words.append([[f"w{j if rng.random() < 0.8 else rng.integers(3)}"] for j in y])
        tags.append(BIO[[0, 2, 4]][y].tolist())
    pipeline = make_pipeline(
        SequenceVectorizer(), SequenceTagger("log", tol=0.1, random_state=0))
    conformal = ConformalTagger(pipeline, random_state=0).fit(words, tags)
    sets = conformal.predict_sets(words)
    assert sets.lengths.tolist() == [len(own) for own in words]
    assert conformal.set_report(words, tags)["sequences"] > 0.7
    for around in (FrozenEstimator(conformal.estimator_), CalibratedTagger(conformal.estimator_)):
        if isinstance(around, CalibratedTagger):
            around.calibrate(words[:40], tags[:40])
        found = ConformalTagger(around, target="spans").calibrate(words[40:], tags[40:])
        assert len(found.predict_spans(words)) == 80
    X = conformal.estimator_[:-1].transform(words)
    y = Sequences.from_list(tags)
    search = GridSearchCV(SequenceTagger("log", tol=0.1, random_state=0), {"alpha": [0.1, 1.0]}, cv=2)
    found = ConformalTagger(search, random_state=0).fit(X, y)
    assert found.predict_sets(X).lengths.tolist() == sets.lengths.tolist()
    around = GridSearchCV(
        ConformalTagger(
            SequenceTagger("log", tol=0.1, random_state=0), confidence=0.8, random_state=0),
        {"estimator__alpha": [0.01, 100.0]}, cv=2).fit(X, y)
    assert around.best_params_ == {"estimator__alpha": 0.01}


@pytest.mark.parametrize("cls, inner", [
    (ConformalClassifier, MulticlassClassifier), (ConformalOrdinalClassifier, OrdinalClassifier)])
@pytest.mark.parametrize("surrogate", ["log", "max_min", "max_margin"])
def test_single_labels(cls, inner, surrogate):
    X, y = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), inner(surrogate, alpha=0.1, random_state=0))
    conformal = cls(model, calibration_size=0.4, random_state=0).fit(X[::2], y[::2])
    report = conformal.set_report(X[1::2], y[1::2])
    assert report["coverage"] > 0.75 and report["class_coverage"].shape == (3,)
    sets = conformal.predict_sets(X)
    assert (sets <= conformal.predict_sets(X, confidence=0.97)).all()
    if cls is ConformalOrdinalClassifier:
        low, high = conformal.predict_intervals(X).T
        places = np.arange(3)
        assert_array_equal(sets, (places >= low[:, None]) & (places <= high[:, None]))
        best = conformal.estimator_.predict(X)  # the median of "log" is in its sets as well
        assert ((low <= best) & (best <= high)).all()
    if surrogate != "log":
        with pytest.raises(ValueError, match="nonconformity='aps' needs probabilities.*CalibratedClassifier"):
            cls(model, nonconformity="aps").fit(X, y)
        noisy = y.copy()
        noisy[:5] = (noisy[:5] + 1) % 3
        calibrated = CalibratedClassifier(conformal.estimator_).calibrate(X, noisy)
        assert cls(calibrated, nonconformity="aps").calibrate(X, y).set_report(X, y)["coverage"] >= 0.9
    assert_array_equal(conformal.predict(X), conformal.estimator_.predict(X))
    again = pickle.loads(pickle.dumps(conformal))
    assert_array_equal(again.predict_sets(X), sets)


CHECKED = dict(confidence=0.5, calibration_size=0.4, random_state=0)


@parametrize_with_checks([
    ConformalClassifier(MulticlassClassifier("log", tol=0.1, random_state=0), **CHECKED),
    ConformalOrdinalClassifier(
        OrdinalClassifier("log", form="classes", tol=0.1, random_state=0), **CHECKED),
])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learn(estimator, check):
    check(estimator)


# errors


@pytest.mark.parametrize("parameters, message", [
    ({"target": "token"}, "target must be one of .*got 'token'"),
    ({"target": "tokens"}, "target='tokens' needs max_length, .* got None"),
    ({"target": "tokens", "max_length": 2.5}, "needs max_length, .* got 2.5"),
    ({"target": "tokens", "max_length": 3}, "positions, more than max_length=3"),
    ({"target": "tokens", "max_length": 99}, "needs calibration sequences with at least 891 positions"),
    ({"nonconformity": "raps"}, "nonconformity must be one of .*got 'raps'"),
    ({"randomize": 1}, "randomize must be True or False, got 1"),
    ({"allow_empty": None}, "allow_empty must be True or False, got None"),
    ({"confidence": 1}, "confidence must be a number between 0 and 1"),
    ({"confidence": 0.99}, "confidence=0.99 needs at least 99 calibration sequences, got 40"),
    ({"calibration_size": 0}, "calibration_size must be a share between 0 and 1 .*got 0"),
    ({"calibration_size": 1.0}, "calibration_size must be a share between 0 and 1 .*got 1.0"),
    ({"calibration_size": True}, "calibration_size must be .*got True"),
    ({"calibration_size": 50}, "holds out 50 of 50 sequences: none remain to fit"),
])
def test_bad_parameters(parameters, message):
    X, y = sentences(np.random.default_rng(0), 50, least=1)
    tagger = SequenceTagger("log", tol=0.5, random_state=0)
    with pytest.raises(ValueError, match=message):
        ConformalTagger(tagger, **{"calibration_size": 40, **parameters}).fit(X, y)


def test_levels_asked_for_later(taggers):
    X, y = sentences(np.random.default_rng(0), 50, least=1)
    conformal = ConformalTagger(taggers["log"]).calibrate(X, y)
    with pytest.raises(ValueError, match="needs at least 99 calibration sequences, got 50"):
        conformal.predict_sets(X, confidence=0.99)
    with pytest.raises(ValueError, match="a confidence of at most 0.9804"):
        conformal.set_report(X, y, confidence=0.99)
    conformal.predict_sets(X, confidence=0.98)
    with pytest.raises(ValueError, match="calibration was with target='sequence' and nonconformity='lac': call"):
        conformal.set_params(target="positions").predict_sets(X)


@pytest.mark.filterwarnings("ignore:y has labels that are not in classes_")
def test_wrong_estimators(taggers):
    X, y = sentences(np.random.default_rng(0), 50, least=1)
    with pytest.raises(NotFittedError, match="ConformalTagger.calibrate needs a fitted estimator"):
        ConformalTagger(SequenceTagger()).calibrate(X, y)
    with pytest.raises(NotFittedError, match="ConformalTagger instance is not fitted"):
        ConformalTagger(taggers["log"]).predict_sets(X)
    with pytest.raises(NotFittedError):
        ConformalTagger(CalibratedTagger(taggers["log"])).calibrate(X, y)
    model = Guess().fit(np.ones((1, 4)), [0])
    with pytest.raises(TypeError, match="estimator must be a SequenceTagger.*got Guess"):
        ConformalTagger(model).calibrate(X, y)
    with pytest.raises(ValueError, match="nonconformity='lac' needs probabilities.*'max_min' has none"):
        ConformalTagger(taggers["max_min"], nonconformity="lac").calibrate(X, y)
    with pytest.raises(ValueError, match="target='spans' needs probabilities.*CalibratedTagger"):
        ConformalTagger(taggers["max_margin"], target="spans").calibrate(X, y)
    with pytest.raises(ValueError, match="X has 50 sequences, but y has 49"):
        ConformalTagger(taggers["log"]).calibrate(X, y[:49])
    with pytest.raises(TypeError, match="sample_weight"):
        ConformalTagger(taggers["log"]).calibrate(X, y, sample_weight=np.ones(50))
    for cls in (ConformalClassifier, ConformalOrdinalClassifier, CalibratedClassifier):
        with pytest.raises(TypeError, match="classifier of single labels, got SequenceTagger.*Tagger"):
            cls(taggers["log"]).calibrate(X, y)
    names = np.array(["v", "w", "x", "y", "z"])
    tagger = SequenceTagger("log", tol=0.5, random_state=0).fit(X, Sequences(
        names[np.searchsorted(BIO, y.values)], y.offsets))
    with pytest.raises(ValueError, match=r"classes_\[0\] is 'v': labels must be 'O', or B, I"):
        ConformalTagger(tagger, target="spans").calibrate(
            X, Sequences(names[np.searchsorted(BIO, y.values)], y.offsets))


@pytest.mark.parametrize("parameter", ["transitions", "constraints"])
def test_sets_of_automata(parameter):
    """By marginals of positions; what needs more is refused."""
    X, y = sentences(np.random.default_rng(0), 80, least=0)
    free = Automaton.anything(np.unique(y.values).tolist())
    parameters = {parameter: {"transitions": Transitions(order=2), "constraints": free}[parameter]}
    tagger = SequenceTagger(Log(0.5), tol=0.1, random_state=0, **parameters)
    tagger.fit(X, y)
    conformal = ConformalTagger(tagger, nonconformity="lac").calibrate(X, y)
    nodes = np.concatenate(tagger.predict_marginals(X))
    with np.errstate(divide="ignore"):
        expected = -np.log(nodes) <= conformal.threshold_
    assert_array_equal(np.concatenate(conformal.predict_sets(X)), expected)
    assert conformal.set_report(X, y)["sequences"] >= 0.9
    plain = SequenceTagger("max_min", tol=0.5, random_state=0, **parameters).fit(X, y)
    for wrapper in (ConformalTagger(tagger, nonconformity="margin"), ConformalTagger(plain),
                    ConformalTagger(tagger, target="spans"), CalibratedTagger(tagger)):
        with pytest.raises(ValueError, match="need a tagger of order 1 without constraints"):
            wrapper.calibrate(X, y)


def test_classes_with_too_few_examples():
    rng = np.random.default_rng(0)
    X, y = guesses(rng, 60)
    y[5:] = np.minimum(y[5:], 2)
    y[:5] = 3
    model = Guess().fit(X, y)
    with pytest.raises(
            ValueError, match="at least 9 calibration examples of class 3, got 5"):
        ConformalClassifier(model, per_class=True).calibrate(X, y)
    with pytest.raises(ValueError, match="at least 9 calibration examples, got 5"):
        ConformalClassifier(model).calibrate(X[:5], y[:5])
    with pytest.warns(UserWarning, match=r"not in classes_ \(7\)"):
        conformal = ConformalClassifier(model).calibrate(X, np.append(y[1:], 7))
    assert np.isnan(conformal.calibration_scores_).sum() == 1


def test_forbidden_labels(taggers):
    # what a sequence may not be labelled with is in sets only where all labels are
    X, y = sentences(np.random.default_rng(2), 60, least=1)
    bio = clone(taggers["log"]).set_params(allowed_transitions="bio").fit(X, y)
    for score in ("lac", "margin"):
        conformal = ConformalTagger(bio, target="positions", nonconformity=score, confidence=0.5)
        conformal.calibrate(X, y)
        assert np.isinf(conformal.calibration_scores_.values).any()
        first = conformal.predict_sets(X).values[X.offsets[:-1]]
        assert not first[:, [2, 3]].any()
        assert conformal.predict_sets(X, confidence=0.98).values.all()
