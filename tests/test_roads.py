"""All roads of the data lead to one optimum: memory, disk, calls of `partial_fit`, partitions."""

import itertools
from functools import cache

import numpy as np
import pytest
from covering import covering
from dask_cases import GRAPHS, MATCHINGS, NODES, TABLES, client
from dask_cases import X as ROWS
from dask_cases import Y as TARGETS
from graph_cases import random_graphs
from numpy.testing import assert_array_equal
from roads import MEMORY, ROADS, assert_same_optimum, counted_chunks, fit_by, roads_of
from scipy import sparse
from test_chunks import rows, sequences

from fastm4n import (
    Graphs,
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    OutOfCore,
    SequenceTagger,
    Transitions,
)
from fastm4n.penalties import L2
from fastm4n.research import Boost
from fastm4n.surrogates import Log

__all__ = ["client"]  # a fixture

SURROGATES = ("max_margin", "max_min", "log")
# some weights are held at zero
BOUND = np.array([[-0.3], [-0.0], [-1.0]])
# chunks are this much larger than `MEMORY`: few of them take less time
LARGER = {"sequences": 3, "forests": 2, "forests of two labels": 2}
# parameters that fits over partitions refuse; rounds are many at a small alpha, too
ONE_PIECE = {"states", "transitions"}


def of_classes(kind):
    X, y = rows()
    return kind(X), y, np.arange(len(y)) % 3


def of_sequences():
    X, y = sequences()
    return X, y, None


def of_graphs(**options):
    X, y = random_graphs(0, n=40, **options)
    return X, y, None


DATA = {
    "dense rows": lambda: of_classes(np.asarray), "CSR rows": lambda: of_classes(sparse.csr_array),
    "sequences": of_sequences, "graphs": of_graphs,
    "features of edges": lambda: of_graphs(n_edge_features=2),
    "types": lambda: of_graphs(n_types=2, n_edge_types=2),
    "types and features": lambda: of_graphs(n_types=2, n_edge_types=3, n_edge_features=1),
    "weights of nodes": lambda: of_graphs(weights=True, labels=2),
    "forests": lambda: of_graphs(forest=True, weights=True),
    "two labels": lambda: of_graphs(labels=2, most=7),
    "forests of two labels": lambda: of_graphs(forest=True, labels=2),
    "label sets": lambda: (ROWS, TARGETS["sets"], None),
    "rankings": lambda: (ROWS, TARGETS["rankings"], None),
    "tables": lambda: (TABLES, MATCHINGS, None),
    "paths of nodes": lambda: (GRAPHS, NODES, None),
}
# model, data and parameters; a surrogate is named, or all three are tried
FITS = [
    *((cls, data, options) for cls in (MulticlassClassifier, OrdinalClassifier)
      for data in ("dense rows", "CSR rows") for options in (
          {}, {"penalty": "elasticnet"}, {"class_weight": "balanced", "fit_intercept": 2.0},
          {"penalty": L2(bounds=(BOUND, -BOUND) if cls is MulticlassClassifier else (-0.3, 0.2))})),
    (OrdinalClassifier, "dense rows", {"levels": [-1, 0, 1, 2]}),
    (OrdinalClassifier, "CSR rows", {"form": "classes"}),
    *((SequenceTagger, "sequences", options) for options in (
        {}, {"alpha": "auto"}, {"penalty": "elasticnet"}, {"states": "observed"},
        {"transitions": Transitions(features=[0, 2])},
        {"penalty": L2(bounds={"coef": (BOUND, -BOUND), "start_coef": (0.0, 0.0)})},
        {"cost_scale": "mean", "transitions": Transitions(start_end=False)},
        {"alpha": 1e-3, "fit_intercept": False})),
    *((GraphTagger, data, {"alpha": 0.05}) for data in (
        "graphs", "features of edges", "types", "types and features", "weights of nodes", "forests",
        "two labels", "forests of two labels")),
    *((GraphTagger, "forests", {"alpha": 0.05, **options}) for options in (
        {"surrogate": Boost()}, {"surrogate": Log(0.5, cost_augmented=True)},
        {"penalty": "elasticnet"}, {"penalty": L2(bounds={"coef": (-0.3, 0.3)})},
        {"cost_scale": "mean", "cost": "squared"},
        {"fit_intercept": False, "surrogate": "max_margin"}, {"alpha": "auto", "cost": "absolute"})),
    (MultiLabelClassifier, "label sets", {}), (LabelRanker, "rankings", {}),
    (Matcher, "tables", {}), (Matcher, "tables", {"cost": "absolute"}), (GraphTagger, "paths of nodes", {}),
    (SequenceTagger, "sequences", {"surrogate": Log(cost_augmented=True)}),
    (SequenceTagger, "sequences", {"surrogate": Boost()}),
]


def cases():
    """Of fits, surrogates and roads, so many that each pair meets."""
    every = []
    for number, (cls, _, options) in enumerate(FITS):
        in_pieces = not (ONE_PIECE & options.keys() or options.get("alpha") == 1e-3)
        roads = [road for road in roads_of(cls)[1:] if in_pieces or road != "partitions"]
        surrogates = [options["surrogate"]] if "surrogate" in options else SURROGATES
        every += itertools.product([number], surrogates, roads)
    for number, surrogate, road in covering(every):
        cls, data, _ = FITS[number]
        yield pytest.param(
            number, surrogate, road, id=f"{cls.__name__}-{data}-{number}-{surrogate}-{road}")


def model_of(number, surrogate):
    cls, _, options = FITS[number]
    return cls(**{"alpha": 0.02, "tol": 1e-2, "random_state": 0, **options, "surrogate": surrogate})


@cache
def data_of(name):
    return DATA[name]()


@cache
def in_memory(number, surrogate):
    X, y, weights = data_of(FITS[number][1])
    return model_of(number, surrogate).fit(X, y, weights)


@pytest.mark.parametrize("number, surrogate, road", list(cases()))
def test_the_optimum_is_that_of_a_fit_in_memory(
        number, surrogate, road, tmp_path, monkeypatch, request):
    if road == "partitions":
        request.getfixturevalue("client")
    X, y, weights = data_of(FITS[number][1])
    model, whole = model_of(number, surrogate), in_memory(number, surrogate)
    by_chunks = road in ("folder", "calls by chunks")
    if by_chunks:
        data = FITS[number][1]
        model.set_params(solver=OutOfCore(
            memory=LARGER.get(data, 6 if isinstance(X, Graphs) else 1) * MEMORY))
    with counted_chunks(monkeypatch) as n_chunks:
        found = fit_by(road, model, X, y, weights, folder=tmp_path)
    if by_chunks:
        assert n_chunks[-1] > 2
    assert found.relative_gap_ <= model.tol_
    assert_same_optimum(whole, found)
    assert found.alpha_ == pytest.approx(whole.alpha_, rel=1e-12)
    for name in ("classes_", "node_classes_", "cost_matrix_"):
        if hasattr(whole, name):
            assert_array_equal(getattr(found, name), getattr(whole, name))
    for name in ("coef_", "intercept_", "edge_coef_", "edge_intercept_", "transition_coef_"):
        if hasattr(whole, name):
            assert np.shape(getattr(found, name)) == np.shape(getattr(whole, name))
    # ||w - w*||^2 <= 2 gap / alpha on either side
    modulus = whole.alpha_ * (0.85 if model.penalty == "elasticnet" else 1.0)
    radius = sum(np.sqrt(2 * one.duality_gap_ / modulus) for one in (whole, found))
    assert np.linalg.norm(found.coef_ - whole.coef_) <= radius + 1e-9
    assert found.history_["gap"][-1] == pytest.approx(found.duality_gap_, rel=1e-9)
    if getattr(model, "states", "all") == "observed":
        assert_array_equal(found.coef_[whole.coef_ == 0], 0.0)
    if isinstance(model, GraphTagger):
        assert found.oracle_ == whole.oracle_ and found.exact_ == whole.exact_


def test_every_road_is_walked():
    walked = {(FITS[case.values[0]][0], case.values[2]) for case in cases()}
    assert walked == {
        (cls, road) for cls in {cls for cls, _, _ in FITS} for road in roads_of(cls)} - {
            (cls, "memory") for cls in {cls for cls, _, _ in FITS}}
    assert {road for _, road in walked} == {*ROADS} - {"memory"}
