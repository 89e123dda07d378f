"""alpha="auto": the rule of each task, whatever the form, the order and the road of the data."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
from dask_cases import client
from numpy.testing import assert_allclose, assert_array_equal
from roads import fit_by, roads_of
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from fastm4n import (
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    OutOfCore,
    SequenceTagger,
    regularization_path,
)
from fastm4n.base.label_costs import COSTS, mean_of, named_costs
from fastm4n.features._rows import Moments

__all__ = ["client"]  # a fixture
ALL = [
    MulticlassClassifier, OrdinalClassifier, MultiLabelClassifier, LabelRanker, Matcher,
    SequenceTagger, GraphTagger]
SINGLE = [MulticlassClassifier, OrdinalClassifier]
MARGINS = ("max_min", "max_margin")


def example(model, seed=0):
    return model._task_class(model).example(np.random.default_rng(seed))


def take(data, rows):
    """Examples of a container, an array or a list."""
    return [data[i] for i in rows] if isinstance(data, list) else data[rows]


def rows(n=40, d=4, k=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * [1.0, 0.1, 2.0, 0.5] + 3.0, rng.integers(k, size=n)


def variance(X, weights=None):
    p = np.ones(len(X)) if weights is None else weights
    p = p / p.sum()
    return float(p @ np.square(X - p @ X).sum(axis=1))


@pytest.mark.parametrize("cls", ALL)
def test_it_is_the_default(cls):
    model = cls(random_state=0)
    assert model.alpha == "auto"
    model.fit(*example(model))
    assert isinstance(model.alpha_, float) and model.alpha == "auto"


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("surrogate", [*MARGINS, "log"])
def test_single_labels(surrogate, scale):
    X, y = rows()
    X *= scale
    weights = np.random.default_rng(1).integers(1, 4, size=len(y)).astype(float)
    expected = min(1.0, 0.02 * variance(X, weights)) / weights.sum()
    for form in (X.astype(np.float32), sparse.csr_array(X), X):
        model = MulticlassClassifier(surrogate, max_iter=2, tol=0.5).fit(form, y, weights)
        assert_allclose(model.alpha_, expected, rtol=1e-5)
    assert model.alpha_ == clone(model).fit(sparse.csr_matrix(X), y, weights).alpha_
    # the margins of another cost
    model.set_params(cost="absolute").fit(X, y, weights)
    assert_allclose(model.alpha_, expected / (1.0 if surrogate == "log" else 4 / 3), rtol=1e-5)


@pytest.mark.parametrize("gram", [False, True])
def test_kernels(gram):
    X, y = rows()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=len(y))
    p = weights / weights.sum()
    K = rbf_kernel(X, gamma=0.3)
    model = MulticlassClassifier(kernel="precomputed" if gram else "rbf", gamma=0.3, tol=0.5)
    model.fit(K if gram else X, y, weights)
    expected = 0.02 * (1.0 - p @ K @ p) / weights.sum()
    assert_allclose(model.alpha_, expected, rtol=1e-5)
    # one of the user's
    own = MulticlassClassifier(kernel=lambda a, b: np.exp(-0.3 * np.sum((a - b) ** 2)), tol=0.5)
    assert_allclose(own.fit(X, y, weights).alpha_, expected, rtol=1e-5)


def test_many_rows_of_a_kernel():
    X, y = rows(1200)
    model = MulticlassClassifier(kernel="rbf", gamma=0.3, tol=0.5, max_iter=1).fit(X, y)
    exact = 0.02 * (1.0 - rbf_kernel(X, gamma=0.3).mean()) / len(y)
    assert abs(model.alpha_ / exact - 1.0) < 0.02
    order = np.random.default_rng(0).permutation(len(y))
    assert model.fit(X[order], y[order]).alpha_ == model.alpha_


@pytest.mark.parametrize(("cls", "unit"), [
    (MultiLabelClassifier, 2.0), (LabelRanker, 1.0), (Matcher, 10.0), (SequenceTagger, 1.0),
    (GraphTagger, 1.0)])
@pytest.mark.parametrize("surrogate", [*MARGINS, "log"])
def test_other_outputs(cls, unit, surrogate):
    model = cls(surrogate, cost="zero_one", max_iter=2, tol=0.5, random_state=0)
    X, y = example(model)
    weights = np.arange(1.0, len(y) + 1)
    model.fit(X, y, sample_weight=weights)
    assert_allclose(model.alpha_, unit / weights.sum())
    if cls is not MultiLabelClassifier:
        model.set_params(cost="squared").fit(X, y, sample_weight=weights)
        mean = 1.0 if surrogate == "log" else mean_of(model.cost_matrix_)
        assert_allclose(model.alpha_, unit / weights.sum() / mean)


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("surrogate", ["max_margin", "log"])
def test_weights_are_repetitions_and_order_is_nothing(cls, surrogate):
    model = cls(surrogate, random_state=0)
    X, y = example(model)
    weights = np.random.default_rng(2).integers(1, 4, size=len(y))
    model.fit(X, y, sample_weight=weights)
    order = np.repeat(np.arange(len(y)), weights)
    np.random.default_rng(3).shuffle(order)
    other = cls(surrogate, random_state=0).fit(take(X, order), take(y, order))
    assert other.alpha_ == model.alpha_
    if not isinstance(X, list):
        assert_array_equal(np.ravel(other.coef_), np.ravel(model.coef_))
    # examples of weight zero do not count
    weights[-1] = 0
    one = cls(surrogate, random_state=0).fit(X, y, sample_weight=weights)
    other = cls(surrogate, random_state=0).fit(
        take(X, range(len(y) - 1)), take(y, range(len(y) - 1)), sample_weight=weights[:-1])
    assert one.alpha_ == other.alpha_


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("surrogate", MARGINS)
def test_margins_do_not_change_with_the_unit_of_costs(cls, surrogate):
    cost = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [3.0, 0.75, 0.0]])
    model = cls(surrogate, cost=cost, tol=1e-6, random_state=0)
    if cls in SINGLE:
        model.set_params(fit_intercept=True)
    X, y = example(model)
    n = {MultiLabelClassifier: 2, GraphTagger: 2}.get(cls, 3)
    if cls is SequenceTagger:
        n = len(np.unique(np.concatenate([np.ravel(labels) for labels in y])))
    cost = cost[:n, :n]
    model.set_params(cost=cost).fit(X, y)
    other = clone(model).set_params(cost=8.0 * cost).fit(X, y)
    assert_allclose(other.alpha_, model.alpha_ / 8.0)
    one, two = model.decision_function(X), other.decision_function(X)
    for each, scaled in zip(one, two, strict=True):
        assert_allclose(np.ravel(scaled), 8.0 * np.ravel(each), rtol=0.02, atol=0.1)


def test_class_weights_are_weights():
    X, y = rows()
    one = MulticlassClassifier(class_weight={0: 2.0}).fit(X, y)
    other = MulticlassClassifier().fit(X, y, np.where(y == 0, 2.0, 1.0))
    assert one.alpha_ == other.alpha_


@pytest.mark.parametrize(("cls", "road", "class_weight"), [
    (cls, road, weights) for cls in ALL for road in roads_of(cls)
    for weights in ((None, {0: 3.0}, "balanced") if cls in SINGLE else (None,))
    if not (weights == "balanced" and "calls" in road)])
def test_roads(request, cls, road, class_weight):
    if road == "partitions":
        request.getfixturevalue("client")
    model = cls(max_iter=3, tol=0.5, random_state=0)
    if class_weight is not None:
        model.set_params(class_weight=class_weight)
    if cls in SINGLE:
        X, y = rows()
    else:
        X, y = example(model)
    if road in ("folder", "calls by chunks"):
        model.set_params(solver=OutOfCore(memory=0.01))
    weights = np.random.default_rng(1).integers(1, 4, size=len(y)).astype(float)
    expected = cls(max_iter=3, tol=0.5, random_state=0)
    if class_weight is not None:
        expected.set_params(class_weight=class_weight)
    expected.fit(X, y, sample_weight=weights)
    if road == "memory":
        return
    with tempfile.TemporaryDirectory() as folder:
        found = fit_by(road, model, X, y, weights, folder=folder)
    assert_allclose(found.alpha_, expected.alpha_, rtol=1e-15)


def test_a_number_between_calls():
    """The variance is there when alpha becomes "auto"."""
    X, y = rows()
    with tempfile.TemporaryDirectory() as folder:
        model = MulticlassClassifier(
            alpha=0.1, solver=OutOfCore(memory=0.01, work_folder=folder), random_state=0)
        model.partial_fit(X[:20], y[:20], np.unique(y))
        model.set_params(alpha="auto").partial_fit(X[20:], y[20:])
    assert_allclose(model.alpha_, min(1.0, 0.02 * variance(X)) / len(y), rtol=1e-5)


def test_paths_do_without():
    X, y = rows()
    for alpha in ("auto", 0.3):
        path = regularization_path(MulticlassClassifier(alpha=alpha, random_state=0), X, y)
        if alpha == "auto":
            first = path.alphas
    assert_array_equal(path.alphas, first)


# ------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(("kernel", "value"), [
    *(("linear", value) for value in (0.0, 1.0, 1.1e8, 1e-9)), ("rbf", 1.0), ("rbf", 1.1e8),
    ("precomputed", 0.0), ("precomputed", 1.0)])
def test_features_that_do_not_vary(kernel, value):
    X = np.full((4, 4), value)
    model = MulticlassClassifier(kernel=kernel, random_state=0).fit(X, [0, 1, 1, 1])
    assert model.alpha_ == 0.25
    assert_array_equal(model.predict(X), [1, 1, 1, 1])


@pytest.mark.parametrize("cls", SINGLE)
def test_weights_that_leave_one_row(cls):
    X, y = rows(4)
    y = np.arange(4)
    with pytest.raises(ValueError, match="one class only"):
        cls().fit(X, y, [0, 1, 0, 0])
    with pytest.raises(ValueError, match="one class only"):
        cls().fit(X, np.zeros(4, dtype=int))


def test_one_row():
    for cls in (MultiLabelClassifier, LabelRanker):
        model = cls()
        X, y = example(model)
        for found in (model.fit(X[:1], y[:1]), model.fit(X, y, np.eye(len(y))[0])):
            mean = mean_of(found.cost_matrix_) if found.surrogate != "log" else 1.0
            assert_allclose(found.alpha_, model._task_class.auto_alpha / mean)
            assert_array_equal(found.predict(X[:1]), y[:1])


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e150, 1e300])
def test_weights_and_costs_of_extreme_size(size):
    X, y = rows()
    expected = MulticlassClassifier("max_margin", alpha=1.0).fit(X, y).predict(X)
    for model, weights in (
        (MulticlassClassifier("max_margin", cost=size * (1 - np.eye(3))), None),
        (MulticlassClassifier("max_margin"), np.full(len(y), size)),
    ):
        model.fit(X, y, weights)
        assert 0.0 < model.alpha_ < np.inf
        assert model.predict(X).shape == expected.shape


def test_bad_values():
    X, y = rows()
    for alpha in ("best", 0.0, -1.0, np.nan, np.inf, None):
        with pytest.raises(ValueError, match="alpha must be 'auto' or a finite number > 0"):
            MulticlassClassifier(alpha=alpha).fit(X, y)
    with pytest.raises(ValueError, match="fit_intercept=1e\\+200 is too large"):
        MulticlassClassifier(fit_intercept=1e200).fit(X, y)


# ------------------------------------------------------------------------- moments


@pytest.mark.parametrize("shift", [0.0, 1e6, 1e8])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csr_array])
def test_moments_are_those_of_all_rows(form, shift):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(3000, 30)), rng.uniform(0.1, 3.0, size=3000)
    X[rng.random(X.shape) < 0.5] = 0.0
    X[:, 0] += shift
    some = rng.permutation(3000)[:2500]
    found = Moments.of(form(X), some, weights[some])
    assert_allclose(found.variance, variance(X[some], weights[some]), rtol=1e-7)
    assert_allclose(found.mass, weights[some].sum())
    halves = Moments.of(form(X), some[:7], weights[some[:7]]) + Moments.of(
        form(X), some[7:], weights[some[7:]])
    assert_allclose(halves.variance, found.variance, rtol=1e-7)
    assert_allclose(halves.times(3.0).variance, found.variance, rtol=1e-7)


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_mean_costs(name, n):
    costs = named_costs(name, n)
    off = np.array(costs)[~np.eye(n, dtype=bool)]
    expected = off.mean() if n > 1 else 1.0
    assert_allclose(mean_of(costs), expected)
    assert_allclose(mean_of(np.array(costs)), expected)
    known = {"zero_one": 1.0, "absolute": (n + 1) / 3, "squared": n * (n + 1) / 6}
    assert n == 1 or abs(expected - known[name]) < 1e-12
