"""Ordered categories of pandas, polars and Arrow as y: order, and levels without examples."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import cross_val_score

from fastm4n import (
    MulticlassClassifier,
    OrdinalClassifier,
    OutOfCore,
    RegularizationPathCV,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.calibration import ConformalOrdinalClassifier

LEVELS = ["none", "some", "low", "high"]  # in no order of sorting, and "low" does not occur
X = np.random.default_rng(0).normal(size=(60, 3))
PLACES = np.array([0, 1, 3])[np.digitize(X[:, 0], [-0.6, 0.5])]
LABELS = np.array(LEVELS)[PLACES]
REASON = "is not installed: its categories are not tried."


def categories(labels=LABELS, levels=LEVELS):
    pandas = pytest.importorskip("pandas", reason=f"pandas {REASON}")
    return pandas.Categorical(labels, categories=levels, ordered=True)


def dictionary(places=PLACES, levels=LEVELS):
    arrow = pytest.importorskip("pyarrow", reason=f"pyarrow {REASON}")
    return arrow.DictionaryArray.from_arrays(arrow.array(places), arrow.array(levels), ordered=True)


def of_pandas(form):
    import pandas

    given = dictionary() if form == "arrow" else categories()
    if form == "arrow":
        return pandas.Series(given, dtype=pandas.ArrowDtype(given.type))
    return {"array": lambda x: x, "series": pandas.Series, "index": pandas.CategoricalIndex,
            "frame": lambda x: pandas.DataFrame({"y": x})}[form](given)


def of_polars(form):
    polars = pytest.importorskip("polars", reason=f"polars {REASON}")
    given = polars.Series("y", LABELS, dtype=polars.Enum(LEVELS))
    return polars.DataFrame([given]) if form == "frame" else given


def of_arrow(form):
    given = dictionary()
    import pyarrow

    return {"array": lambda x: x, "frame": lambda x: pyarrow.table({"y": x}),
            "chunks": lambda x: pyarrow.chunked_array([x[:0], x[:9], x[9:]])}[form](given)


FORMS = [(of_pandas, form) for form in ("array", "series", "index", "frame", "arrow")] + [
    (of_polars, form) for form in ("series", "frame")] + [
    (of_arrow, form) for form in ("array", "chunks", "frame")]


def ordinal(**parameters):
    return OrdinalClassifier(random_state=0, **parameters)


@pytest.mark.parametrize(("make", "form"), FORMS)
def test_order_and_levels_are_those_of_y(make, form):
    y, wanted = make(form), ordinal(levels=LEVELS).fit(X, LABELS)
    with warnings.catch_warnings():
        # of columns alone, as scikit-learn does
        warnings.simplefilter("ignore" if form == "frame" else "error")
        model = ordinal().fit(X, y)
        assert model.score(X, y) == wanted.score(X, LABELS) == model.score(X, LABELS) > -0.2
        outside = ordinal(solver=OutOfCore()).fit(X, y)
    assert model.classes_.tolist() == outside.classes_.tolist() == LEVELS
    assert_array_equal(model.cost_matrix_[0], [0, 1, 2, 3])
    assert_allclose(model.coef_, wanted.coef_, atol=1e-10)
    assert model.predict(X).tolist() == wanted.predict(X).tolist()
    assert ordinal(levels=LEVELS[::-1]).fit(X, np.asarray(y).ravel()).classes_.tolist() == LEVELS[::-1]
    if form != "frame":
        path = regularization_path(ordinal(), X, y, eps=0.5)
        assert path.estimator(path.alphas[-1]).classes_.tolist() == LEVELS


def test_files_pickles_and_what_is_around_estimators(tmp_path):
    y = categories()
    model = ordinal(surrogate="log").fit(X, y)
    save_model(model, tmp_path / "model")
    for again in (load_model(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert again.classes_.tolist() == LEVELS
        assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    search = RegularizationPathCV(ordinal(), eps=0.5, cv=3).fit(X, y)
    assert search.classes_.tolist() == LEVELS and search.score(X, y) > -0.4
    intervals = ConformalOrdinalClassifier(ordinal(surrogate="log")).fit(X, y)
    assert intervals.classes_.tolist() == LEVELS
    assert cross_val_score(ordinal(), X, of_pandas("series"), error_score="raise").mean() > -0.5


def test_categories_of_any_type():
    import pandas

    bins = pandas.cut(X[:, 0], [-9, -0.6, 0.5, 9])
    model = ordinal().fit(X, bins)
    assert model.classes_.tolist() == bins.categories.tolist()
    assert model.score(X, bins) > -0.2 and model.predict(X)[0] in bins.categories
    numbers = categories(np.array([5, 1, 9])[np.digitize(X[:, 0], [-0.6, 0.5])], [5, 1, 9])
    assert ordinal().fit(X, numbers).predict(X).dtype.kind == "i"
    assert ordinal().fit(X, numbers).classes_.tolist() == [5, 1, 9]


@pytest.mark.parametrize("solver", ["auto", OutOfCore()])
def test_calls_of_partial_fit(solver):
    y = categories()
    model = ordinal(solver=solver).partial_fit(X[:30], y[:30]).partial_fit(X[30:], LABELS[30:])
    assert model.classes_.tolist() == LEVELS
    assert_allclose(
        model.primal_objective_, ordinal(levels=LEVELS).fit(X, LABELS).primal_objective_, atol=2e-3)
    other = categories(LABELS[:3], LEVELS[::-1])
    with pytest.raises(ValueError, match=r"classes are \['high'.*, but the first call .* \['none'"):
        model.partial_fit(X[:3], other)
    given = ordinal().partial_fit(X[:30], LABELS[:30], classes=categories(LEVELS))
    assert given.classes_.tolist() == LEVELS
    assert ordinal().partial_fit(X, y, classes=sorted(LEVELS)).classes_.tolist() == LEVELS
    with pytest.raises(ValueError, match="but the levels of y are .*: leave classes out"):
        ordinal().partial_fit(X, y, classes=["none", "some"])


def test_costs_of_classes():
    """Classes without an order stay sorted; other costs than of 0 and 1 go by it."""
    y = categories()
    assert MulticlassClassifier(random_state=0).fit(X, y).classes_.tolist() == sorted(set(LABELS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cost in ("absolute", "squared", np.arange(16).reshape(4, 4) % 5):
            assert MulticlassClassifier(cost=cost, random_state=0).fit(X, y).classes_.tolist() == LEVELS
    for labels in (LABELS, LABELS.astype(object)):
        with pytest.warns(UserWarning, match="in the order of sorting, high < none < some"):
            MulticlassClassifier(cost="absolute", random_state=0).fit(X, labels)
        with pytest.warns(UserWarning, match="pass levels, lowest first, or y of ordered categories"):
            ordinal().fit(X, labels)


def test_categories_without_an_order_are_sorted_with_a_warning():
    y = categories().as_unordered()
    with pytest.warns(UserWarning, match="or y of ordered categories"):
        assert ordinal().fit(X, y).classes_.tolist() == sorted(set(LABELS))


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_missing_labels(kind):
    labels = [*LABELS[:-1], None]
    if kind == "pandas":
        y, missing = categories(labels), "nan"
    elif kind == "polars":
        polars = pytest.importorskip("polars", reason=f"polars {REASON}")
        y, missing = polars.Series(labels, dtype=polars.Enum(LEVELS)), "None"
    else:
        y, missing = dictionary([*PLACES[:-1].tolist(), None]), "None"
    fitted = ordinal().fit(X, categories())
    for call in (ordinal().fit, ordinal(solver=OutOfCore()).fit, ordinal().partial_fit,
                 MulticlassClassifier().fit, fitted.score):
        with pytest.raises(ValueError, match=rf"y\[59\] is {missing}: .*leave out those without one"):
            call(X, y)


def test_levels_that_are_refused():
    import pyarrow

    y = pyarrow.chunked_array([dictionary(), dictionary(levels=LEVELS[::-1])])
    with pytest.raises(ValueError, match="Chunk 1 of y has other levels than chunk 0"):
        ordinal().fit(np.vstack([X, X]), y)
    with pytest.raises(ValueError, match="leave out what is twice or None"):
        ordinal().fit(X, dictionary(levels=["none", "some", "none", "high"]))
    with pytest.raises(ValueError, match="y has one class only, 'none'"):
        ordinal().fit(X, categories(["none"] * 60))
    with pytest.raises(ValueError, match="'low' does not occur"):
        ordinal(fit_intercept="free", form="classes").fit(X, categories())
