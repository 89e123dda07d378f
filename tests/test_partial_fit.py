"""Fits that go on with more data: the problem of all the data, begun where the last one ended."""

import itertools

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from roads import assert_same_optimum
from sklearn.base import clone
from test_chunks import rows, sequences

from fastm4n import (
    BlockFrankWolfe,
    LabelRanker,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    OutOfCore,
    SequenceTagger,
)

SURROGATES = ("max_margin", "max_min", "log")


@pytest.mark.parametrize(("surrogate", "accelerate", "solver"), covering(itertools.product(
    SURROGATES, [False, True], [BlockFrankWolfe(), OutOfCore(memory=0.02)])))
def test_the_gap_begins_with_that_of_before_and_the_new_losses(surrogate, accelerate, solver):
    """With alpha = 1 / n the weights stay, and the gap is a mean over old and new examples."""
    X, y = sequences(60, longest=5)
    X, y = ([part for part in whole if len(part)] for whole in (X, y))
    n, more = 35, len(X) - 35
    solver = clone(solver).set_params(accelerate=accelerate)
    model = SequenceTagger(surrogate, solver=solver, random_state=0, tol=1e-3)
    model.partial_fit(X[:n], y[:n], sorted({label for labels in y for label in labels}))
    old_gap, coef = model.duality_gap_, model.coef_.copy()
    # the losses of the new ones at those weights: P of a fit that makes no step, less its penalty
    losses = losses_of(model, X[n:], y[n:])
    seen = []

    def stop(row):
        seen.append((row["pass"], row["gap"]))
        return True

    model.set_params(callback=stop)
    with pytest.warns(UserWarning, match="certified duality gap"):
        model.partial_fit(X[n:], y[n:])
    assert seen[0][0] == 0  # a certificate before the first pass
    assert_allclose(model.coef_, coef, atol=1e-9)
    assert seen[0][1] <= (old_gap * n + losses) / (n + more) + 1e-9


def losses_of(tagger, X, y):
    """The sum of the losses by enumeration of all labellings."""
    from itertools import product

    classes, total = tagger.classes_.tolist(), 0.0
    for x, labels in zip(X, y, strict=True):
        outputs = list(product(range(len(classes)), repeat=len(x)))
        unary = x @ tagger.coef_.T + tagger.intercept_
        unary[0] += tagger.start_coef_
        unary[-1] += tagger.end_coef_
        truth = [classes.index(label) for label in labels]
        scores = np.array([
            sum(unary[t, label] for t, label in enumerate(out))
            + sum(tagger.transition_coef_[a, b] for a, b in zip(out, out[1:], strict=False))
            for out in outputs])
        cost = np.array([sum(a != b for a, b in zip(out, truth, strict=True)) for out in outputs])
        score = scores[outputs.index(tuple(truth))]
        if tagger.surrogate == "log":
            total += np.logaddexp.reduce(scores) - score
        else:  # max-min is no larger than max-margin
            total += np.max(scores + cost) - score
    return total


def test_no_call_after_a_fit_between():
    X, y = rows(90)
    model = MulticlassClassifier("log", alpha=0.02, random_state=0)
    model.partial_fit(X[:30], y[:30]).fit(X[:60], y[:60])
    with pytest.raises(ValueError, match="would be forgotten"):
        model.partial_fit(X[60:], y[60:])


@pytest.mark.parametrize(("cls", "first"), [
    *((cls, "partial_fit") for cls in (
        MulticlassClassifier, OrdinalClassifier, LabelRanker, MultiLabelClassifier)),
    # the others refuse to go on without their data
    (LabelRanker, "fit"), (MultiLabelClassifier, "fit"),
])
def test_columns_of_data_frames_keep_their_names(cls, first):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rows(30)[0][:, :3], columns=["a", "b", "c"])
    y = np.arange(30) % 3
    if cls in (LabelRanker, MultiLabelClassifier):
        y = np.stack([y == 0, y != 0], axis=1).astype(int)
    model = getattr(cls(alpha=0.1, random_state=0), first)(X, y)
    coef = model.coef_.copy()
    for other, message in (
        (X[["b", "a", "c"]], "in the same order"), (X.rename(columns={"a": "x"}), "- x")):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(other, y)
        assert_array_equal(model.coef_, coef)
    assert model.partial_fit(X, y).feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.partial_fit(X.to_numpy(), y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]


def test_what_does_not_fit_leaves_the_model_and_the_data():
    X, y = rows(60)
    model = MulticlassClassifier("log", alpha=0.02, random_state=0).partial_fit(X[:30], y[:30])
    coef = model.coef_.copy()
    for arguments, message in (
        ((X[30:, :4], y[30:]), "X has 4 features"),
        ((X[30:], np.full(30, 7)), "y has the label 7, which is not among the classes"),
        ((X[30:], y[30:], [0, 1]), r"classes are \[0, 1\]"),
        ((np.full_like(X[30:], np.nan), y[30:]), "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(*arguments)
        assert_array_equal(model.coef_, coef)
    whole = MulticlassClassifier("log", alpha=0.02, random_state=0).fit(X, y)
    assert_same_optimum(model.partial_fit(X[30:], y[30:]), whole)
    tagged, labels = sequences(20)
    classes = sorted({label for part in labels for label in part})
    tagger = SequenceTagger("log").partial_fit(tagged, labels, classes)
    with pytest.raises(ValueError, match="y has the label 'other'"):
        tagger.partial_fit([tagged[3]], [["other"] * len(labels[3])])
    with pytest.raises(ValueError, match="X has 4 features"):
        tagger.partial_fit([tagged[3][:, :4]], [labels[3]])
