"""The parameter `classes`: fits know all labels, whichever of them occur."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import KFold, cross_val_predict

from fastm4n import (
    MulticlassClassifier,
    OutOfCore,
    SequenceTagger,
    load_model,
    regularization_path,
    save_model,
)

X, Y = load_iris(return_X_y=True)
X, Y = X[::5], Y[::5]
SENTENCES = [X[i : i + 3] for i in range(0, 30, 3)]
WORDS = [["abc"[label] for label in Y[i : i + 3]] for i in range(0, 30, 3)]
TWO = [[("a" if label == "c" else label) for label in part] for part in WORDS]
# estimator, labels in no order, X, y of all labels, and y that lacks the last
CASES = {
    "classes": (MulticlassClassifier, [2, 0, 1], X, Y, Y % 2),
    "sequences": (SequenceTagger, ["c", "a", "b"], SENTENCES, WORDS, TWO),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
@pytest.mark.parametrize("solver", ["auto", OutOfCore()])
def test_labels_that_do_not_occur(case, surrogate, solver):
    cls, classes, X, every, some = case
    options = dict(surrogate=surrogate, tol=0.01, random_state=0, solver=solver)
    model = cls(classes=classes, **options).fit(X, some)
    assert model.classes_.tolist() == sorted(classes) and model.coef_.shape[0] == 3
    assert model.relative_gap_ <= 0.01
    answers = np.concatenate([np.ravel(part) for part in model.predict(X)])
    assert sorted(classes)[2] not in answers
    # labels that all occur change nothing
    one, other = cls(classes=np.array(classes), **options), cls(**options)
    assert_array_equal(one.fit(X, every).coef_, other.fit(X, every).coef_)


@pytest.mark.parametrize("solver", ["auto", OutOfCore()])
def test_others_are_errors(case, solver):
    cls, classes, X, every, _ = case
    with pytest.raises(ValueError, match="y has the label .*, which is not among the classes, .*: "
                                         "give all labels as `classes`"):
        cls(classes=sorted(classes)[:2], solver=solver).fit(X, every)
    for given, message in {
        (1,): "classes must be at least two labels", (): "classes must be a list of distinct",
        (1, 1): "classes must be a list of distinct", "ab": "classes must be a list of distinct",
        (None, 1): "classes must be a list of distinct",
    }.items():
        with pytest.raises(ValueError, match=message):
            cls(classes=given, solver=solver).fit(X, every)


def test_calls(case):
    cls, classes, X, every, some = case
    model = cls(classes=classes, random_state=0).partial_fit(X, some).partial_fit(X, every)
    assert model.classes_.tolist() == sorted(classes)
    assert cls(random_state=0).partial_fit(X, some, classes).classes_.tolist() == sorted(classes)


def test_folds_paths_and_files(case, tmp_path):
    cls, classes, X, every, some = case
    model = cls("log", classes=classes, tol=0.05, random_state=0)
    folds = KFold(3, shuffle=False)
    found = cross_val_predict(model, X, every, cv=folds)
    assert len(found) == len(X)
    path = regularization_path(clone(model), X, some, eps=0.2)
    assert path.estimator(path.alphas[-1]).classes_.tolist() == sorted(classes)
    save_model(model.fit(X, some), tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert list(loaded.classes) == classes and loaded.coef_.shape[0] == 3


def test_sets_of_labels_that_are_not_known():
    y = [list(part) for part in WORDS]
    y[0][1], y[1][0] = None, {"a", "q"}
    with pytest.raises(ValueError, match="the label 'q', which is not among the classes"):
        SequenceTagger(classes=["a", "b", "c"]).fit(SENTENCES, y)
    y[1][0] = {"a", "d"}
    tagger = SequenceTagger(classes=["a", "b", "c", "d", "e"], random_state=0, tol=0.05)
    assert tagger.fit(SENTENCES, y).classes_.tolist() == list("abcde")
