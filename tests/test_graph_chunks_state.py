"""Fits of graphs by chunks: state that lasts, opened folders, and what is refused."""

import numpy as np
import pytest
from graph_cases import random_graphs, with_random_factors
from killed_fits import Killed, fit_until_it_ends, writing_kills
from numpy.testing import assert_array_equal
from roads import assert_same_optimum

from fastm4n import Graphs, GraphTagger, OutOfCore, Sequences, regularization_path
from fastm4n.research import SoftGraphTagger


def same_fit(one, other):
    for name in ("coef_", "intercept_", "edge_coef_", "edge_intercept_", "duality_gap_", "n_iter_",
                 "integrality_gap_", "exact_"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    for key in other.history_.keys() - {"seconds"}:
        assert_array_equal(one.history_[key], other.history_[key])


@pytest.mark.parametrize(("surrogate", "options"), [
    ("max_margin", {}), ("max_min", {"inference": "lp"}), ("log", {}), ("log", {"inference": "lp"}),
], ids=str)
def test_a_killed_fit_goes_on_with_the_same_bits(surrogate, options, always, tmp_path, monkeypatch):
    """It is killed while chunks are written, at all stages of a pass; messages are kept too."""
    X, y = random_graphs(0, n=40, n_types=2, n_edge_features=1)
    model = GraphTagger(
        surrogate, alpha=0.01, tol=0.1, random_state=3,
        # chunks are few enough for a pass between two kills
        solver=OutOfCore(memory=0.02 if options else 0.06, work_folder=tmp_path / "work"),
        **options)
    whole = GraphTagger(**model.get_params(deep=False)).fit(X, y)
    assert fit_until_it_ends(model, X, y, monkeypatch) >= 2
    same_fit(model, whole)
    assert list((tmp_path / "work").iterdir()) == []


def test_other_data_are_refused(always, tmp_path, monkeypatch):
    """Each array counts, and so do labels that are met in the same order but sorted otherwise."""
    X, y = random_graphs(2, n=40, n_edge_types=2, n_edge_features=1, weights=True)
    model = GraphTagger(
        "log", alpha=0.01, random_state=0,
        solver=OutOfCore(memory=0.08, work_folder=tmp_path / "work"))
    with pytest.raises(Killed), writing_kills(monkeypatch, 12):
        model.fit(X, y)
    arrays = {name: getattr(X, name) for name in (
        "node_features", "edges", "edge_features", "edge_types", "node_weights", "node_offsets",
        "edge_offsets")}
    others = [
        (Graphs(**{**arrays, name: change(arrays[name])}), y) for name, change in (
            ("node_features", lambda x: 2 * x), ("edge_features", lambda x: x + 1),
            ("edges", lambda x: x[:, ::-1]), ("edge_types", lambda x: 1 - x),
            ("node_weights", lambda x: x + 1))]
    others.append((with_random_factors(X, y, 0), y))
    others.append((Graphs(**arrays, node_types=np.zeros(X.n_nodes, dtype=int)), y))
    others.append((X, Sequences(-2 - y.values, y.offsets)))
    for graphs, labels in others:
        with pytest.raises(ValueError, match="another fit: data is not what it was begun with"):
            model.fit(graphs, labels)
    assert model.fit(X, y).relative_gap_ <= 1e-3


def test_threads_change_no_bit():
    X, y = random_graphs(3, n=60, n_edge_features=1)
    for inference in ("auto", "lp"):
        one, two = (
            GraphTagger(
                "max_margin", inference=inference, solver=OutOfCore(memory=0.05), tol=0.05,
                n_jobs=n_jobs, random_state=0).fit(X, y) for n_jobs in (1, 2))
        same_fit(one, two)


@pytest.mark.parametrize("kind", [{}, {"n_types": 2, "n_edge_types": 2, "weights": True}], ids=str)
def test_folders_go_out_of_core_by_themselves(kind, tmp_path, monkeypatch):
    """From the default of `memory` on; the result is that of the solver given."""
    X, y = random_graphs(4, n=60, n_edge_features=2, **kind)
    stored, labels = Graphs.from_batches([(X[:25], y[:25]), (X[25:], y[25:])], tmp_path / "a")
    names = ("node_features", "edges", "edge_features", "node_types", "edge_types", "node_weights")
    arrays = [array for array in (getattr(X, name) for name in names) if array is not None]
    assert stored.n_bytes_on_disk == sum(array.nbytes for array in arrays)
    assert stored[7:9].n_bytes_on_disk < stored.n_bytes_on_disk / 5
    ran, solve = [], OutOfCore.solve

    def noted(self, *args, **options):
        ran.append(self.memory)
        return solve(self, *args, **options)

    monkeypatch.setattr(OutOfCore, "solve", noted)
    whole = GraphTagger("log", tol=0.2, random_state=0).fit(stored, labels)
    assert not ran
    init = OutOfCore.__init__
    monkeypatch.setattr(OutOfCore, "__init__", lambda self, *, memory=0.005, **options: init(
        self, memory=memory, **options))
    parts = GraphTagger("log", tol=0.2, random_state=0).fit(stored, labels)
    given = GraphTagger("log", tol=0.2, random_state=0, solver=OutOfCore(memory=0.005)).fit(X, y)
    assert ran == [0.005, 0.005]
    assert_same_optimum(whole, parts)
    assert_array_equal(parts.coef_, given.coef_)
    # what chunks do not have is fitted in memory, and what is in memory stays there
    SoftGraphTagger(tol=0.5, random_state=0).fit(stored, labels)
    GraphTagger("log", penalty="l1", tol=0.5, random_state=0).fit(stored, labels)
    GraphTagger("log", tol=0.2, random_state=0).fit(X, y)
    assert len(ran) == 2


def test_damage_is_found_before_the_first_step(tmp_path):
    X, y = random_graphs(5, n=60)
    Graphs.from_batches([(X, y)], tmp_path / "a")
    file = tmp_path / "a" / "edges.npy"
    content, edges = file.read_bytes(), np.load(file)
    at = int(X.edge_offsets[51]) - 1
    graph = int(np.searchsorted(X.edge_offsets, at, side="right")) - 1
    edges[at] = 77
    np.save(file, edges)
    stored, labels = Graphs.open(tmp_path / "a", return_y=True)
    with pytest.raises(ValueError, match=rf"a is damaged: .*graph {graph}\b"):
        GraphTagger("max_min", solver=OutOfCore(memory=0.002)).fit(stored, labels)
    file.write_bytes(content)
    values = np.load(tmp_path / "a" / "node_features.npy")
    values[90, 1] = np.nan
    np.save(tmp_path / "a" / "node_features.npy", values)
    stored, labels = Graphs.open(tmp_path / "a", return_y=True)
    with pytest.raises(ValueError, match="node_features.npy has nan in row 90, column 1"):
        GraphTagger("max_min", solver=OutOfCore(memory=0.002)).fit(stored, labels)


def test_mistakes_are_named():
    X, y = random_graphs(6, n=60, n_edge_features=1, labels=2)
    lists = [np.asarray(part).tolist() for part in y]
    big = int(np.flatnonzero(X.lengths > 2)[-1])

    def refused(message, X, y, surrogate="max_margin", weights=None, **options):
        with pytest.raises(ValueError, match=message):
            GraphTagger(surrogate, solver=OutOfCore(memory=0.005), **options).fit(X, y, weights)

    refused("y has the labels of 59 graphs, but X has 60", X, lists[:-1])
    refused("X has no graphs", X[:0], [])
    for wrong, message in (
        ([0] * 9, rf"y\[{big}\] has 9 labels, but X\[{big}\] has {X.lengths[big]} nodes"),
        ([None] * X.lengths[big], rf"y\[{big}\] has None at node 0"),
        ([{}] * X.lengths[big], "labels must be hashable"),
    ):
        refused(message, X, [*lists[:big], wrong, *lists[big + 1 :]])
    refused("no labelled nodes", X, [[-1] * len(part) for part in lists])
    refused("one label only", X, [[0] * len(part) for part in lists])
    refused("sample_weight", X, y, weights=np.ones(3))
    negative = Graphs(
        X.node_features, X.edges, X.node_offsets, X.edge_offsets,
        np.where(np.arange(X.n_edges)[:, np.newaxis] == X.edge_offsets[big], -1.0, 1.0))
    refused(rf"X\[{big}\] has a feature of -1 at edge 0", negative, y, pairwise="attractive")
    refused(rf"X has values too large .*X\[{big}\]", Graphs(
        np.where(np.arange(X.n_nodes)[:, np.newaxis] == X.node_offsets[big], 1e200, 1.0),
        X.edges, X.node_offsets, X.edge_offsets), y)
    refused("node_weights", Graphs(
        X.node_features, X.edges, X.node_offsets, X.edge_offsets,
        node_weights=np.full(X.n_nodes, 1e308)), y)
    # one that a chunk of its own would have accepted
    cyclic = int(np.flatnonzero(~X.is_forest())[0])
    refused(f"graph {cyclic} has one", X, y, inference="forest")
    refused("cuts are for two|attractive", X, y, inference="min_cut")
    forbidden = X.with_factors([
        ((0,), np.where(np.arange(2) == part[0], -np.inf, 0.0)) if i == big else None
        for i, part in enumerate([[*part, 0] for part in lists])])
    refused(rf"graph {big}: its true labels are forbidden by factors\[0\]", forbidden, y)
    refused("finds best labellings without factors", forbidden, y, inference="lp")
    types = np.arange(X.n_nodes) % 2
    typed = Graphs(
        X.node_features, X.edges, X.node_offsets, X.edge_offsets, node_types=types)
    others = Sequences(y.values + types * 2, y.offsets)
    refused(r"of graph \d+ joins nodes of the types", typed, others, pairwise="potts")
    places = Sequences(np.where(np.arange(X.n_nodes) == 70, 9, y.values), y.offsets)
    refused(r"y has 9 \(label 70 of the labelled nodes\)", X, places, pairwise="displacement",
            grid_shape=(1, 2))
    refused("label_features=True needs as many features", X, y, label_features=True)


@pytest.mark.parametrize(("options", "message"), [
    ({"warm_start": True}, "warm_start=True is not supported"),
    ({"penalty": "l1"}, "penalty=.l1. is not supported by fits that read"),
    ({"solver": OutOfCore(memory=-1)}, "memory"),
], ids=str)
def test_what_chunks_cannot_do_is_said(options, message):
    X, y = random_graphs(7)
    with pytest.raises(ValueError, match=message):
        GraphTagger(**{"surrogate": "max_margin", "solver": OutOfCore(), **options}).fit(X, y)


def test_paths_are_in_memory():
    X, y = random_graphs(7)
    with pytest.raises(ValueError, match="fits one alpha"):
        regularization_path(GraphTagger("log", solver=OutOfCore()), X, y)
