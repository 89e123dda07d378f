"""Graphs in folders on disk: what comes back, and what is refused."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from fastm4n import CountFactor, Graphs, GraphTagger, Sequences
from fastm4n.data import _graphs as stored
from fastm4n.data._graphs import Graph

N = 23
KINDS = ("dense", "sparse", "factors", "plain")


def graphs(kind):
    rng = np.random.default_rng(3)
    found = []
    for i in range(N):
        n = int(rng.integers(0, 6))
        edges = np.array([[a, a + 1] for a in range(n - 1)], dtype=int).reshape(-1, 2)
        features = rng.integers(0, 3, (n, 4)).astype(float)
        if kind == "plain":
            found.append((features, edges))
            continue
        factors = None
        if kind == "factors" and n > 2:
            factors = [((0, 2), np.arange(4.0).reshape(2, 2) + i)]
            factors += [CountFactor([0, 1], 0, 1)] if i % 2 else []
        found.append(Graph(
            sp.csr_array(features) if kind == "sparse" else features, edges,
            rng.normal(size=(len(edges), 2)), rng.integers(0, 2, n), rng.integers(0, 2, len(edges)),
            rng.random(n), factors))
    return Graphs.from_list(found)


def labels(X):
    return Sequences.from_lengths(np.arange(X.n_nodes) % 2, X.lengths)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.mark.parametrize("size", [1, 4, N])
def test_what_is_written_comes_back(kind, size, tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "ROWS_AT_ONCE", 20)
    X = graphs(kind)
    y = labels(X)
    found, found_y = Graphs.from_batches(
        ((X[i : i + size], y[i : i + size]) for i in range(0, N, size)), tmp_path / "x")
    assert found.equals(X) and X.equals(found) and found_y.equals(y)
    assert (found.n_nodes, found.n_edges, len(found)) == (X.n_nodes, X.n_edges, N)
    assert found.dtype == X.dtype and type(found.node_features) is type(X.node_features)
    assert repr(found) == f"{repr(X)[:-1]}; on disk in '{tmp_path / 'x'}'>"
    found.check()
    assert Graphs.open(tmp_path / "x").equals(X)
    again = Graphs.from_batches([found], tmp_path / "again")
    assert again.equals(X)
    assert len(list(tmp_path.iterdir())) == 2


def test_indexing_is_that_of_graphs_in_memory(kind, tmp_path):
    X = graphs(kind)
    found = Graphs.from_batches([X], tmp_path / "x")
    for key in (slice(2, 9), slice(0, 0), slice(5, None), slice(None, None, -2), [5, 0, 0],
                np.arange(N) % 3 == 0):
        assert found[key].equals(X[key]), key
        on_disk = isinstance(key, slice) and key.step is None
        assert ("on disk" in repr(found[key])) == on_disk
    part = found[3:20]
    assert part[2:5].equals(X[5:8]) and part.is_forest().all()
    part.check()
    for i in (0, 7, -1):
        assert Graphs.from_list([found[i]]).equals(Graphs.from_list([X[i]]))
    assert Graphs.from_list(list(found)).equals(X)
    assert np.concatenate([part, X, found]).equals(np.concatenate([X[3:20], X, X]))
    drop = np.arange(X.n_nodes) % 3 == 0
    assert found.drop_nodes(drop)[0].equals(X.drop_nodes(drop)[0])
    factors = [None] * N
    assert found.with_factors(factors).equals(X)


def test_pickles_hold_the_path(kind, tmp_path):
    X = graphs(kind)
    y = labels(X)
    found, found_y = Graphs.from_batches([(X, y)], tmp_path / "x")
    text = pickle.dumps((found[3:9], found_y[3:9]))
    assert len(text) < 700
    again, again_y = pickle.loads(text)
    assert again.equals(X[3:9]) and again_y.equals(y[3:9])
    assert again.fingerprint == found[3:9].fingerprint != found.fingerprint
    Graphs.from_batches([X[1:]], tmp_path / "x", overwrite=True)
    with pytest.raises(ValueError, match="x has other contents than it had"):
        pickle.loads(text)


def test_another_process_opens_a_pickle(tmp_path):
    X = graphs("factors")
    found, y = Graphs.from_batches([(X, labels(X))], tmp_path / "x")
    (tmp_path / "pickle").write_bytes(pickle.dumps((found[3:9], y)))
    code = (
        "import pickle, sys\n"
        "X, y = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(X.n_nodes, X.edges.sum(), len(X.factors), y.values.sum())\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "pickle")], check=True, timeout=60,
        capture_output=True, text=True, cwd=tmp_path).stdout.split()
    part = X[3:9]
    assert list(map(int, out)) == [part.n_nodes, part.edges.sum(), 6, labels(X).values.sum()]


@pytest.mark.parametrize("kind", ["dense", "sparse", "plain"])
def test_taggers_fit_them_as_graphs_in_memory(kind, tmp_path):
    X = graphs(kind)
    found, y = Graphs.from_batches([(X, labels(X))], tmp_path / "x")
    fits = [
        GraphTagger(surrogate="max_margin", random_state=0).fit(of, y) for of in (X, found)]
    assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert fits[1].predict(found[4:9]).equals(fits[0].predict(X[4:9]))


def test_batches_without_nodes_edges_or_factors(tmp_path):
    node = ([[1.0]], [])
    found = Graphs.from_batches([[], [node], [([[1.0], [2.0]], [[1, 0]])]], tmp_path / "x")
    assert found.lengths.tolist() == [1, 2] and found[1].edges.tolist() == [[1, 0]]
    for k, batches in enumerate(([[]], [[([], [])]], [[node], []])):
        found = Graphs.from_batches(batches, tmp_path / f"few{k}")
        assert found.equals(Graphs.from_list(sum(batches, []))) and found.edges.shape == (0, 2)
    factor = Graphs.from_list([node]).with_factors([CountFactor.exactly_one([0])])
    batches = [Graphs.from_list([node]), factor, Graphs.from_list([node])]
    found = Graphs.from_batches(batches, tmp_path / "late")
    assert found.equals(np.concatenate(batches))
    assert found[:1].factors is None and repr(found[1].factors) == repr(factor[0].factors)
    typed = Graph(np.empty((0, 1)), np.empty((0, 2), int), node_types=[], node_weights=[])
    found = Graphs.from_batches([[typed]], tmp_path / "typed")
    assert found.node_types.dtype == np.int32 and found.node_weights.shape == (0,)


@pytest.mark.parametrize(("batches", "error", "message"), [
    ([], ValueError, "There are no batches"),
    ([[([[1.0]], [])], [([[1.0, 2.0]], [])]], ValueError, "Batch 1: node_features has 2 columns"),
    ([[([[1.0]], [])], [(sp.csr_array([[1.0]]), [])]], ValueError, "Batch 1: .* a sparse matrix"),
    ([[([[1.0]], [])], [([[1.0]], [], np.empty((0, 2)))]], ValueError,
     "Batch 1 has edge_features, batch 0 has none. Give them to all or to none"),
    ([[([[1.0]], [], np.empty((0, 2)))], [([[1.0]], [])]], ValueError,
     "Batch 1 has no edge_features, batch 0 has some"),
    ([[([[1.0]], [[0, 1]])]], ValueError, r"Batch 0: Edge 0 of graph 0 is \(0, 1\)"),
    ([[([[1.0]], [])], 3], TypeError, "Batch 1: graphs must be a list"),
    ([([([[1.0]], [])], [[1, 2]])], ValueError, r"Batch 0: y\[0\] has 2 labels, but graph 0 has 1"),
    ([[([[1.0]], [])], ([([[1.0]], [])], [[1]])], TypeError, "Batch 1 is a pair"),
])
def test_bad_batches(batches, error, message, tmp_path):
    with pytest.raises(error, match=message):
        Graphs.from_batches(batches, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_folders_of_something_else(tmp_path):
    X = graphs("plain")
    Graphs.from_batches([X], tmp_path / "x")
    with pytest.raises(ValueError, match="holds 'graphs', not 'sequences': open it with fastm4n.Gr"):
        Sequences.open(tmp_path / "x")
    with pytest.raises(ValueError, match="x has no labels"):
        Graphs.open(tmp_path / "x", return_y=True)
    labels(X).save(tmp_path / "y")
    with pytest.raises(ValueError, match="holds 'sequences', not 'graphs': open it with fastm4n.Se"):
        Graphs.open(tmp_path / "y")
    found = Graphs.open(tmp_path / "x")
    with pytest.raises(ValueError, match="Batch 0 comes from"):
        Graphs.from_batches([found[3:]], tmp_path / "x", overwrite=True)


def change(folder, name, i, value):
    np.load(folder / f"{name}.npy", mmap_mode="r+")[i] = value


@pytest.mark.parametrize(("kind", "name", "i", "value", "message"), [
    ("dense", "node_offsets", 3, 10**6, "node_offsets.npy is damaged: the offsets decrease"),
    ("dense", "edge_offsets", -1, 10**6, "edge_offsets.npy is damaged: the offsets go from 0 to"),
    ("factors", "factors.offsets", 1, 10**6, "factors.offsets.npy is damaged: the offsets decr"),
    ("factors", "factors.node_offsets", 1, 10**6, "factors.node_offsets.npy is damaged"),
    ("factors", "factors.value_offsets", -1, 10**6, "factors.value_offsets.npy is damaged"),
])
def test_damage_that_opening_finds(kind, name, i, value, message, tmp_path):
    Graphs.from_batches([graphs(kind)], tmp_path / "x")
    change(tmp_path / "x", name, i, value)
    with pytest.raises(ValueError, match=message):
        Graphs.open(tmp_path / "x")


@pytest.mark.parametrize(("kind", "name", "i", "value", "message"), [
    ("dense", "edges", 0, 10**6, "x is damaged: Edge 0 of graph 0 is"),
    ("dense", "edges", 0, -1, "x is damaged: Edge 0 of graph 0 is"),
    ("dense", "node_types", 0, -1, "x is damaged: node_types must be 0, 1, ...; node 0 of"),
    ("dense", "node_features", 0, np.nan, "node_features.npy has nan in row 0, column 0"),
    ("sparse", "node_features.indices", 0, 10**6, "node_features.indices.npy is damaged: row [01] "),
    ("factors", "factors.nodes", 0, 10**6, "x is damaged: "),
])
def test_damage_that_a_fit_finds(kind, name, i, value, message, tmp_path):
    X = graphs(kind)
    if X[0].edges.size == 0:
        X = X[np.flatnonzero(X.edge_lengths > 1)]
    found = Graphs.from_batches([X], tmp_path / "x")
    change(tmp_path / "x", name, i, value)
    for read in (found.check, lambda: GraphTagger(surrogate="max_margin").fit(found, labels(X))):
        with pytest.raises(ValueError, match=message):
            read()
    found[-2:].check()
