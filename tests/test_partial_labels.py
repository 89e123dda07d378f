"""Sequences whose labels are not all known: None, or a set of labels, at positions of y."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
from comparisons import assert_same_fit
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from fastm4n import (
    OutOfCore,
    RegularizationPathCV,
    Sequences,
    SequenceTagger,
    Transitions,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.crfsuite import CRF
from fastm4n.solvers.monitor import checkpointing
from fastm4n.tasks.base import Partition
from fastm4n.tasks.sequences import SequenceTask

SURROGATES = ("log", "max_margin", "max_min")


def data(n=20, seed=0, share=0.4, d=3):
    """X, y, and y with some labels unknown: None or a set with the label."""
    rng = np.random.default_rng(seed)
    centres = 2.0 * rng.normal(size=(3, d))
    X, y, partial = [], [], []
    for _ in range(n):
        codes = rng.integers(3, size=rng.integers(1, 5))
        X.append(centres[codes] + rng.normal(size=(codes.size, d)))
        y.append(["abc"[k] for k in codes])
        kinds = rng.choice(3, size=codes.size, p=[1 - share, share / 2, share / 2])
        partial.append([
            label if kind == 0 else None if kind == 1 else {label, "c"}
            for label, kind in zip(y[-1], kinds, strict=True)])
    return X, y, partial


def inside(out, labels, classes):
    """Whether a labelling, as numbers, is among those that y allows."""
    return all(
        label is None or (classes[k] in label if isinstance(label, set) else classes[k] == label)
        for k, label in zip(out, labels, strict=True))


def objective(tagger, X, y):
    """F of `fastm4n.tasks.completions` by enumeration."""
    classes, total = tagger.classes_.tolist(), 0.0
    for x, labels in zip(X, y, strict=True):
        outs = np.array(list(itertools.product(range(len(classes)), repeat=len(x))))
        unary = x @ tagger.coef_.T + tagger.intercept_
        unary[0] += tagger.start_coef_
        unary[-1] += tagger.end_coef_
        scores = unary[np.arange(len(x)), outs].sum(axis=1)
        scores += tagger.transition_coef_[outs[:, :-1], outs[:, 1:]].sum(axis=1)
        may = np.array([inside(out, labels, classes) for out in outs])
        if tagger.surrogate == "log":
            total += logsumexp(scores) - logsumexp(scores[may])
        else:
            wrong = np.array([
                sum(not inside([k], [label], classes) for k, label in zip(out, labels, strict=True))
                for out in outs])
            total += np.max(scores + wrong) - np.max(scores[may])
    weights = [tagger.coef_, tagger.intercept_, tagger.start_coef_, tagger.end_coef_,
               tagger.transition_coef_]
    return total / len(X) + 0.5 * tagger.alpha_ * sum(np.sum(w**2) for w in weights)


@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_the_objective_falls_and_each_round_is_certified(surrogate):
    X, _, y = data()
    tagger = SequenceTagger(surrogate, tol=1e-4, random_state=0).fit(X, y)
    history = tagger.history_
    assert tagger.certified_for_ == "completions" and tagger.relative_gap_ <= 1e-4
    assert np.all(np.diff(history["objective"])[:-1] < 0.0)
    assert_allclose(history["objective"].min(), objective(tagger, X, y), atol=1e-5)
    assert_array_equal(history["pass"], np.cumsum(history["n_iter"]))
    assert tagger.n_iter_ == history["pass"][-1]
    # better than the labels that are known by chance
    assert objective(tagger, X, y) < history["objective"][0] + 1e-9


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_known_labels_alone(surrogate):
    """To the bit the convex fit, also with sets of one label."""
    X, y, _ = data()
    tagger = SequenceTagger(surrogate, random_state=0)
    plain = pickle.loads(pickle.dumps(tagger)).fit(X, y)
    ones = tagger.fit(X, [[{label} for label in labels] for labels in y])
    assert_same_fit(plain, ones)
    assert plain.certified_for_ == "data"


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_unknown_labels_help(surrogate):
    X, y, partial = data(60, share=0.6)
    X_new, y_new, _ = data(60, seed=0)
    full = SequenceTagger(surrogate, random_state=0).fit(X, y)
    tagger = SequenceTagger(surrogate, random_state=0).fit(X, partial)
    assert tagger.score(X_new, y_new) >= full.score(X_new, y_new) - 0.08


def test_forms_of_y():
    pd = pytest.importorskip("pandas")
    X, _, y = data()
    first = SequenceTagger("log", random_state=0).fit(X, y)

    def objects(labels):
        array = np.empty(len(labels), dtype=object)
        array[:] = labels
        return array

    flat = [label for labels in y for label in labels]
    lengths = [len(labels) for labels in y]
    for X_given, y_given, more in (
        (X, [objects(labels) for labels in y], {}),
        (X, [pd.Series(objects(labels), dtype=object) for labels in y], {}),
        (X, Sequences.from_lengths(objects(flat), lengths), {}),
        (Sequences.from_list(X), y, {}),
        (np.concatenate(X), flat, {"lengths": lengths}),
        (np.concatenate(X), objects(flat), {"lengths": lengths}),
    ):
        again = SequenceTagger("log", random_state=0).fit(X_given, y_given, **more)
        assert_same_fit(first, again)
    # in any order, and repeated instead of weighed
    order = np.random.default_rng(0).permutation(len(X))
    again = SequenceTagger("log", random_state=0, n_jobs=2).fit(
        [X[i] for i in order], [y[i] for i in order])
    assert_same_fit(first, again)
    weights = np.arange(len(X)) % 3
    some = SequenceTagger("log", random_state=0).fit(X, y, weights)
    numbers = np.repeat(np.arange(len(X)), weights)
    again = SequenceTagger("log", random_state=0).fit(
        [X[i] for i in numbers], [y[i] for i in numbers])
    assert_allclose(some.coef_, again.coef_, atol=1e-10)


def words():
    X = [[{"w": w} for w in text.split()] for text in ("the cat", "a cat sings", "a man")]
    return X, [["D", None], ["D", {"N", "V"}, "V"], [None, "N"]]


def test_observed_states():
    """A pair of an attribute and a label occurs where the label may be, as do transitions."""
    X, y = words()
    tagger = SequenceTagger("log", states="observed", random_state=0).fit(X, y)
    names = [name.removeprefix("w:") for name in tagger.vectorizer_.feature_names_]
    may = {(w, label) for w, label in itertools.product(names, "DNV") if (
        w in ("cat", "a") or (w, label) in {("the", "D"), ("sings", "V"), ("man", "N")})}
    found = {(names[j], tagger.classes_[i]) for i, j in np.argwhere(tagger.coef_ != 0.0)}
    assert found <= may
    pairs = {(a, b) for a, b in itertools.product("DNV", "DNV") if (
        a == "D" or b == "N" or (a, b) in {("N", "V"), ("V", "V")})}
    assert {tuple(tagger.classes_[[i, j]]) for i, j in np.argwhere(
        tagger.transition_coef_ != 0.0)} <= pairs
    # all weights together find no less
    every = SequenceTagger("log", random_state=0).fit(X, y)
    assert every.history_["objective"].min() <= tagger.history_["objective"].min() + 1e-3
    dense = [x[:, :3] for x in data()[0]]
    for features in (None, [0, 2]):
        for some in ("observed", {"features": "observed", "min_freq": 0.0}):
            tagger = SequenceTagger(
                "log", states=some, transitions=Transitions(features=features), random_state=0)
            every = SequenceTagger(
                "log", transitions=Transitions(features=features), random_state=0)
            # of dense features and labels that all meet, it is the fit with all weights
            whole = [[None] * len(x) for x in dense]
            whole[:3] = [[{"a", "b"}] * len(dense[0]), ["a"] * len(dense[1]), ["b"] * len(dense[2])]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                assert_allclose(
                    tagger.fit(dense, whole).coef_, every.fit(dense, whole).coef_, atol=1e-6)


@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_constraints_and_masks(surrogate):
    """Completions are among the labellings that may be."""
    X, y = words()
    tagger = SequenceTagger(
        surrogate, constraints="D N V?", random_state=0, tol=1e-4).fit(X, y)
    plain = SequenceTagger(surrogate, constraints="D N V?", random_state=0, tol=1e-4).fit(
        X, [["D", "N"], ["D", "N", "V"], ["D", "N"]])
    # there is one completion each
    assert_allclose(tagger.primal_objective_, plain.primal_objective_, atol=1e-4 * 5)
    masks = [np.ones((len(x), 3), dtype=bool) for x in X]
    masks[0][1] = [False, True, False]
    masks[1][1] = [False, True, False]
    masks[2][0] = [True, False, False]
    masked = SequenceTagger(surrogate, random_state=0, tol=1e-4).fit(X, y, allowed=masks)
    assert masked.certified_for_ == "completions"
    with pytest.raises(ValueError, match=r"allowed\[1\] and y\[1\] together allow no label at .* 1"):
        masks[1][1] = [True, False, False]
        SequenceTagger(surrogate).fit(X, y, allowed=masks)
    y[1][0] = {"N", "V"}
    with pytest.raises(ValueError, match=r"y\[1\] has no completion: up to position 0, none of"):
        SequenceTagger(surrogate, constraints="D N V?").fit(X, y)
    y[0][1], y[1] = {"N", "V"}, ["D", "N", {"D", "N"}]
    with pytest.raises(ValueError, match=r"y\[1\] has no completion: up to position 2, none of"):
        SequenceTagger(surrogate, constraints="D N V?").fit(X, y)


def test_labels_of_sets():
    """A label that is in sets only is a label."""
    X, y = words()
    y[2][0] = {"D", "P"}
    tagger = SequenceTagger("log", random_state=0).fit(X, y)
    assert tagger.classes_.tolist() == ["D", "N", "P", "V"]
    # a set is no label of a prediction, a frozenset may be one
    y = [[frozenset("a"), "b"], ["b", "b", frozenset("a")], [frozenset("a"), "b"]]
    assert SequenceTagger("log", random_state=0).fit(X, y).certified_for_ == "data"


def test_score():
    X, y, _ = data()
    tagger = SequenceTagger("log", random_state=0).fit(X, y)
    found = [labels.tolist() for labels in tagger.predict(X)]
    assert tagger.score(X, found) == 1.0
    wrong = {"a": "b", "b": "c", "c": "a"}
    partial = [[None] * len(labels) for labels in found]
    partial[0][0], partial[1][0] = found[0][0], wrong[found[1][0]]
    assert tagger.score(X, partial) == 0.5
    partial[1][0] = {found[1][0], wrong[found[1][0]]}
    assert tagger.score(X, partial) == 1.0
    weights = np.ones(len(X))
    weights[1] = 3.0
    partial[1][0] = {wrong[found[1][0]], wrong[wrong[found[1][0]]]}
    assert tagger.score(X, partial, weights) == 0.25
    with pytest.raises(ValueError, match="y has no label"):
        tagger.score(X, [[None] * len(labels) for labels in found])


def test_files_and_warm_starts(tmp_path):
    X, _, y = data()
    tagger = SequenceTagger("log", warm_start=True, random_state=0).fit(X, y)
    save_model(tagger, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.certified_for_ == "completions"
    assert_array_equal(loaded.history_["objective"], tagger.history_["objective"])
    first = tagger.history_["objective"].min()
    again = tagger.fit(X, y)
    assert again.history_["objective"].min() <= first + 2e-3 * np.log(3) * 3
    assert again.set_params(alpha=0.01).fit(X, y).relative_gap_ <= 1e-3


def test_crf():
    X, y = words()
    crf = CRF(c2=0.1, epsilon=1e-4).fit(X, y)
    assert crf.tagger_.certified_for_ == "completions"
    assert [it["num"] for it in crf.training_log_.iterations] == (
        crf.tagger_.history_["pass"].tolist())


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_callbacks_and_interrupts(surrogate):
    """What ends a fit ends the rounds, with the best round so far."""
    X, _, y = data()
    seen = []

    def stop(row):
        seen.append(row["pass"])
        return len(seen) > 3

    with pytest.warns(ConvergenceWarning):
        tagger = SequenceTagger(surrogate, tol=1e-9, random_state=0, callback=stop).fit(X, y)
    assert tagger.certified_for_ == "completions" and np.isfinite(tagger.duality_gap_)

    def press(row):
        if len(tagger_rows) > 4:
            raise KeyboardInterrupt
        tagger_rows.append(row)

    tagger_rows = []
    tagger = SequenceTagger(surrogate, tol=1e-9, random_state=0, callback=press)
    with pytest.raises(KeyboardInterrupt):
        tagger.fit(X, y)
    if hasattr(tagger, "coef_"):
        assert tagger.interrupted_ and np.isfinite(tagger.duality_gap_)


def test_few_rounds():
    X, _, y = data(40, share=0.9)
    with pytest.warns(ConvergenceWarning, match="certified duality gap"):
        SequenceTagger("log", max_iter=1, tol=1e-9, random_state=0).fit(X, y)


def test_refusals(tmp_path):
    X, y, partial = data()
    i, t = next((i, t) for i, labels in enumerate(partial) for t, label in enumerate(labels) if (
        label is None or isinstance(label, set)))
    at = rf"y\[{i}\] has .* at position {t}: not a label. Labels that are not all known are for"
    for fit in (
        SequenceTagger("log").partial_fit,
        SequenceTagger("log", solver=OutOfCore()).fit,
        lambda X, y: regularization_path(SequenceTagger("log"), X, y),
        RegularizationPathCV(SequenceTagger("log")).fit,
        lambda X, y: SequenceTask(SequenceTagger("log")).piece(Partition(X, y)),
    ):
        with pytest.raises(ValueError, match=at):
            fit(X, partial)
    with pytest.raises(ValueError, match="need transitions of order 1"):
        SequenceTagger("log", transitions=Transitions(order=2)).fit(X, partial)
    with pytest.raises(ValueError, match="rounds of completions"), checkpointing(tmp_path / "file"):
        SequenceTagger("log").fit(X, partial)
