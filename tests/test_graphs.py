"""The container of graphs: indexing, joining, images, files, and what it refuses."""

import doctest
import pickle
import re
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)

import fastm4n.data._graphs
from fastm4n import Graphs, Sequences
from fastm4n.data._graphs import Graph

LENGTHS = [3, 1, 0, 4, 2, 5, 1]
KINDS = ("dense", "csr_matrix", "csr_array", "everything")


def random_edges(n, rng, p=0.6):
    pairs = [pair for pair in product(range(n), range(n)) if pair[0] < pair[1]]
    chosen = [pair[:: rng.choice([-1, 1])] for pair in pairs if rng.random() < p]
    return np.array(chosen, dtype=int).reshape(-1, 2)


def parts(kind):
    """What a list of graphs would be."""
    rng = np.random.default_rng(0)
    graphs = []
    for n in LENGTHS:
        X = rng.integers(0, 3, (n, 6)).astype(float)
        edges = random_edges(n, rng)
        more = [rng.integers(0, 2, (len(edges), 2)).astype(np.float32)]
        if kind == "everything":
            more += [rng.integers(0, 2, n), rng.integers(0, 3, len(edges)), rng.random(n)]
        if kind.startswith("csr"):
            X, more[0] = getattr(sp, kind)(X), getattr(sp, kind)(more[0])
        graphs.append((X, edges, *more))
    return graphs


def dense(array):
    return array.toarray() if sp.issparse(array) else array


def check(graphs, expected):
    assert len(graphs) == len(expected) == len(list(graphs))
    for i, (graph, other) in enumerate(zip(graphs, expected, strict=True)):
        for a, b, c in zip(graph, graphs[i], Graph(*other), strict=True):
            assert (a is None) == (c is None)
            if a is not None:
                assert_array_equal(dense(a), dense(c))
                assert_array_equal(dense(b), dense(c))


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def graphs(kind):
    return Graphs.from_list(parts(kind))


def two_paths():
    return Graphs.from_list([
        (np.zeros((3, 2)), [[0, 1], [1, 2]]), (np.zeros((2, 2)), [[1, 0]]),
    ])


def given(**changed):
    """Arrays of two graphs, three and two nodes, two edges and one."""
    return {
        "node_features": np.zeros((5, 2)), "edges": [[0, 1], [1, 2], [1, 0]],
        "node_offsets": [0, 3, 5], "edge_offsets": [0, 2, 3], **changed,
    }


def test_examples():
    assert doctest.testmod(fastm4n.data._graphs).failed == 0


def test_is_a_vector_of_graphs(graphs, kind):
    check(graphs, parts(kind))
    assert graphs.shape == (len(LENGTHS),) and graphs.ndim == 1
    assert graphs.lengths.tolist() == LENGTHS and graphs.n_nodes == sum(LENGTHS)
    assert graphs.edge_lengths.tolist() == [len(part[1]) for part in parts(kind)]
    assert graphs.n_edges == graphs.edge_lengths.sum() and graphs.dtype == np.float64
    assert graphs.edges.dtype == np.int32 and graphs.edge_features.dtype == np.float32
    assert Graphs.from_list(graphs) is graphs
    assert Graphs.from_list(list(graphs)).equals(graphs)


@pytest.mark.parametrize("key", [
    slice(2, 5), slice(None, None, -1), slice(5, 1), [3, 0, 0, -1], np.array([], dtype=int),
    np.arange(7) % 2 == 0, [], (np.array([1, 2]), Ellipsis), slice(0, 7, 3),
])
def test_indexing(graphs, kind, key):
    numbers = np.arange(7)[np.array(key[0], dtype=int) if isinstance(key, tuple) else
                           np.array(key, dtype=int) if isinstance(key, list) else key]
    chosen = graphs[key]
    check(chosen, [parts(kind)[i] for i in numbers])
    assert isinstance(chosen, Graphs) and chosen.node_offsets[0] == 0
    chosen.drop_nodes(np.zeros(chosen.n_nodes, dtype=bool))


def test_one_graph(graphs, kind):
    for i in (0, -1, np.int8(3), np.array(2)):
        assert isinstance(graphs[i], Graph)
        assert_array_equal(graphs[i].edges, parts(kind)[int(i)][1])


@pytest.mark.parametrize("key, message", [
    (7, "no graph 7: there are 7"), (-8, "no graph -8"), ([1, 9], "no graph 9"),
    (np.ones(3, dtype=bool), "length 3 does not fit 7 graphs"), ((1, 2), "one axis"),
    ([0.5], "integer, a slice"), (np.zeros((2, 2), int), "2 dimension"),
])
def test_there_is_no_such_graph(key, message):
    with pytest.raises(IndexError, match=message):
        Graphs.from_list(parts("dense"))[key]


def test_arrays_are_shared():
    X, weights = np.zeros((5, 2), np.float32), np.ones(5)
    graphs = Graphs(**given(node_features=X, node_weights=weights))
    assert graphs.node_features is X and graphs.node_weights is weights
    for array in (graphs[1].node_features, graphs[1:].node_features):
        assert np.shares_memory(array, X)
    assert np.shares_memory(graphs[1:].edges, graphs.edges)


def test_what_was_checked_stays():
    """Edges, types and offsets are copies that cannot be written to."""
    arrays = given(
        edges=np.array([[0, 1], [1, 2], [1, 0]], np.int32), node_types=np.zeros(5, np.int32),
        edge_types=np.zeros(3, np.int32), node_offsets=np.array([0, 3, 5]),
        edge_offsets=np.array([0, 2, 3]),
    )
    graphs = Graphs(**arrays)
    for name, array in arrays.items():
        if name != "node_features":
            array[...] = 99
    assert graphs.equals(Graphs(**given(node_types=np.zeros(5, int), edge_types=np.zeros(3, int))))
    for part in (graphs, graphs[:1], graphs[[0]]):
        for name in arrays:
            if name != "node_features":
                assert not getattr(part, name).flags.writeable


@pytest.mark.parametrize("dtype, becomes", [
    (np.uint8, np.float32), (bool, np.float32), (np.float16, np.float32), (np.int32, np.float64),
    (np.int64, np.float64), (np.float32, np.float32), (">f8", np.float64), (object, np.float64),
])
def test_dtypes_of_features(dtype, becomes):
    X = [np.eye(5).astype(dtype)]
    if dtype not in (np.float16, ">f8", object):  # SciPy has no sparse matrices of these
        X.append(sp.csr_array(X[0]))
    for features in X:
        graphs = Graphs(**given(node_features=features))
        assert graphs.dtype == becomes
        assert_array_equal(dense(graphs.node_features), np.eye(5))


def test_features_that_are_not_contiguous():
    X = np.arange(20.0).reshape(4, 5).T
    graphs = Graphs(**given(node_features=X))
    assert graphs.node_features.flags.c_contiguous
    assert_array_equal(graphs.node_features, X)


@pytest.mark.parametrize("changed, message", [
    ({"edges": [[0, 1], [1, 3], [1, 0]]}, r"Edge 1 of graph 0 is \(1, 3\), .* nodes 0 ... 2. .*"
     r"edges count them from 0"),
    ({"edges": [[0, 1], [1, 2], [1, 2]]}, r"Edge 0 of graph 1 is \(1, 2\)"),
    ({"edges": [[0, 1], [1, -1], [1, 0]]}, r"Edge 1 of graph 0 is \(1, -1\)"),
    ({"edges": np.array([[0, 1], [1, 2**64 - 1], [1, 0]], np.uint64)}, "Edge 1 of graph 0"),
    ({"edges": [[0, 1], [2, 2], [1, 0]]}, "Edge 1 of graph 0 joins node 2 to itself. Remove"),
    ({"edges": [[2, 1], [1, 2], [1, 0]]}, "Edges 0 and 1 of graph 0 both join the nodes 1 and 2"),
    ({"edges": [[0, 1], [0, 1], [1, 0]], "edge_offsets": [0, 1, 3]}, "Edges 0 and 1 of graph 1"),
    ({"edges": [[0.0, 1.0], [1.0, 2.0], [1.0, 0.0]]}, "edges must be integers"),
    ({"edges": [0, 1, 2]}, r"shape \(n_edges, 2\)"),
    ({"node_offsets": [0, 0, 5], "edge_offsets": [0, 1, 3]}, "graph has no nodes"),
    ({"node_offsets": [0, 3, 4]}, "last of the node_offsets .* rows of node_features, 5, got 4"),
    ({"edge_offsets": [0, 2, 4]}, "last of the edge_offsets must be the number of edges, 3"),
    ({"node_offsets": [0, 4, 3, 5]}, "node_offsets must not decrease; graph 1"),
    ({"node_offsets": [1, 3, 5]}, "node_offsets must begin with 0"),
    ({"edge_offsets": [0, 2, 2, 3]}, "node_offsets are of 2 graphs, edge_offsets of 3"),
    ({"node_features": [[0, 1], [2, 3], [4, np.nan], [0, 0], [0, 0]]},
     "node_features must be finite; node 2 of graph 0 has nan in column 1"),
    ({"node_features": sp.csr_array([[0, 1], [2, 3], [4, 5], [0, 0], [0, np.inf]])},
     "node 1 of graph 1 has inf in column 1"),
    ({"node_features": np.zeros(5)}, "a row for each node, got 1"),
    ({"node_features": np.zeros((5, 2), complex)}, "complex"),
    ({"node_features": [["a"]] * 5}, "node_features must be numbers"),
    ({"edge_features": np.zeros((2, 1))}, "2 rows of edge_features for 3 edges"),
    ({"edge_features": [[0.0], [1.0], [-np.inf]]}, "edge 0 of graph 1 has -inf in column 0"),
    ({"node_types": [0, 1, 0, 1]}, "4 rows of node_types for 5 nodes"),
    ({"node_types": [0, 1, 0, 1, -1]}, "node_types must be 0, 1, ...; node 1 of graph 1 has -1"),
    ({"node_types": [0.0] * 5}, "vector of integers"),
    ({"edge_types": [0, -2, 0]}, "edge 1 of graph 0 has -2"),
    ({"node_weights": [1, 1, 1, -1, 1]}, "not negative; node 0 of graph 1 has -1.0"),
    ({"node_weights": [1, np.nan, 1, 1, 1]}, "node 1 of graph 0 has nan"),
    ({"node_weights": [1, 1]}, "2 rows of node_weights for 5 nodes"),
    ({"node_weights": ["a"] * 5}, "node_weights must be numbers"),
])
def test_refused(changed, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Graphs(**given(**changed))


def test_a_broken_matrix_is_refused():
    X = sp.csr_array(np.eye(5))
    X.indices[3] = 77
    with pytest.raises(ValueError, match="node_features is no valid CSR matrix"):
        Graphs(**given(node_features=X))


@pytest.mark.parametrize("graphs, message", [
    ([(np.zeros((2, 1)), [[0, 1]]), np.zeros((2, 1))], "Graph 1 must be a Graph or a tuple"),
    ([(np.zeros((2, 1)),)], "Graph 0 must be a Graph or a tuple .* of length 1"),
    ((np.zeros((2, 1)), [[0, 1]]), r"Graph 0 must be a Graph .* single graph into a list, \[graph\]"),
    ([(np.zeros((4, 1)), [[0, 1, 2], [1, 2, 3]])], r"got \(2, 3\). Transpose it: edges.T"),
    ([(np.zeros((2, 1)), [[0, 1]]), (np.zeros((2, 3)), [])], "Graph 1 has 3 columns of node_feat"),
    ([(np.zeros((2, 1)), [[0, 1]]), (np.zeros((2, 1)), [], [])], "Graph 1 has edge_features, "
     "graph 0 has none"),
    ([(np.zeros((2, 1)), [[0, 1]], [[1], [2]])], "Graph 0 has 2 rows of edge_features for 1 edges"),
    ([(sp.csr_array((2, 1)), []), (np.zeros((2, 1)), [])], "Graph 0 has sparse node_features"),
    ([(np.zeros(2), [])], "node_features must have 2 dimension"),
    ([(np.zeros((2, 1)), [[0.5, 1]])], "Graph 0: edges: edges must be integers"),
    ({"a": 1}, "list of tuples"), (3, "list of tuples"),
])
def test_refused_lists(graphs, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Graphs.from_list(graphs)


def test_empty_and_single():
    none = Graphs.from_list([])
    assert len(none) == 0 and none.n_nodes == none.n_edges == 0
    assert none.is_forest().tolist() == [] and len(none[[]]) == 0
    graphs = Graphs.from_list([([], [], [], []), ([[1, 2]], [], [], [3]), ([], [], [], [])])
    assert graphs.lengths.tolist() == [0, 1, 0] and graphs.node_features.shape == (1, 2)
    assert graphs.node_types.tolist() == [3] and graphs.is_forest().tolist() == [True] * 3
    smaller, kept = graphs.drop_nodes([True])
    assert smaller.lengths.tolist() == [0, 0, 0] and kept.tolist() == []


def test_concatenate(graphs, kind):
    joined = np.concatenate([graphs[:2], graphs[2:2], graphs[2:]])
    assert joined.equals(graphs) and joined.dtype == graphs.dtype
    with pytest.raises(TypeError, match="concatenated with graphs"):
        np.concatenate([graphs, np.zeros(2)])
    if kind == "everything":
        with pytest.raises(ValueError, match="Container 0 has node_types, container 1 has none"):
            np.concatenate([graphs, Graphs.from_list(parts("dense"))])


def test_equals(graphs, kind):
    assert graphs.equals(Graphs.from_list(parts(kind)))
    assert not graphs.equals(graphs[:-1]) and not graphs.equals(two_paths())
    assert not graphs.equals(graphs[[0, 1, 2, 3, 5, 4, 6]]) and not graphs.equals("graphs")
    turned = [(part[0], part[1][:, ::-1], *part[2:]) for part in parts(kind)]
    assert not graphs.equals(Graphs.from_list(turned))


def test_pickle_and_objects(graphs):
    again = pickle.loads(pickle.dumps(graphs[1:5]))
    assert again.equals(graphs[1:5]) and not again.edges.flags.writeable
    objects = np.asarray(two_paths())
    assert objects.shape == (2,) and isinstance(objects[0], Graph)


@pytest.mark.parametrize("kind, text", [
    ("dense", "<Graphs: 7 graphs, 16 nodes, .* edges, 6 columns, float64; edges: 2 columns>"),
    ("csr_array", "CSR of 6 columns, float64; edges: CSR of 2 columns>"),
    ("everything", "; node types; edge types; node weights>"),
])
def test_repr(kind, text):
    assert re.search(text, repr(Graphs.from_list(parts(kind))))


# which nodes belong together, in plain Python

def has_cycle(n, edges):
    root = list(range(n))
    for first, second in edges:
        while root[first] != first:
            first = root[first]
        while root[second] != second:
            second = root[second]
        if first == second:
            return True
        root[first] = second
    return False


def test_is_forest():
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 9, 300)
    edges = [random_edges(n, rng, 1.2 / max(1, n)) for n in lengths]
    graphs = Graphs.from_list([
        (np.zeros((n, 1)), part) for n, part in zip(lengths, edges, strict=True)
    ])
    expected = [not has_cycle(n, part) for n, part in zip(lengths, edges, strict=True)]
    assert 50 < sum(expected) < 290
    assert graphs.is_forest().tolist() == expected


def test_drop_nodes(graphs, kind):
    mask = np.random.default_rng(2).random(graphs.n_nodes) < 0.4
    smaller, kept = graphs.drop_nodes(mask)
    assert_array_equal(kept, np.flatnonzero(~mask))
    expected = []
    for graph, start in zip(graphs, graphs.node_offsets, strict=False):
        stays = ~mask[start : start + graph.node_features.shape[0]]
        number = {old: new for new, old in enumerate(np.flatnonzero(stays))}
        of_edges = [e for e, (a, b) in enumerate(graph.edges) if a in number and b in number]
        edges = [[number[a], number[b]] for a, b in graph.edges[of_edges]]
        expected.append((
            graph.node_features[stays], np.array(edges, int).reshape(-1, 2),
            graph.edge_features[of_edges],
            *(None if array is None else array[rows] for array, rows in
              ((graph.node_types, stays), (graph.edge_types, of_edges),
               (graph.node_weights, stays))),
        ))
    check(smaller, expected)
    assert smaller.equals(Graphs.from_list(expected)) and 0 < smaller.n_edges < graphs.n_edges


@pytest.mark.parametrize("mask", [[0, 1], np.zeros(5, int), np.zeros(4, bool)])
def test_drop_nodes_refuses(mask):
    with pytest.raises(ValueError, match="one entry for each node"):
        two_paths().drop_nodes(mask)


# images

def neighbours(h, w, connectivity):
    """Edges of a grid in plain Python, by first node, and their types."""
    steps = [(0, 1), (1, 0), (1, 1), (1, -1)][: connectivity // 2]
    return [
        (r * w + c, (r + dr) * w + c + dc, t)
        for r, c in product(range(h), range(w)) for t, (dr, dc) in enumerate(steps)
        if 0 <= r + dr < h and 0 <= c + dc < w
    ]


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("d", [None, 1, 3])
def test_from_grid(connectivity, d):
    rng = np.random.default_rng(3)
    sizes = [(3, 4), (1, 5), (5, 1), (1, 1), (0, 3), (3, 4), (2, 2)]
    images = [rng.random(size if d is None else (*size, d)) for size in sizes]
    graphs = Graphs.from_grid(images, connectivity=connectivity, directed=True)
    for graph, image, (h, w) in zip(graphs, images, sizes, strict=True):
        expected = neighbours(h, w, connectivity)
        pixels = image.reshape(h * w, d or 1)
        assert_array_equal(graph.node_features, pixels)
        assert graph.edges.tolist() == [[a, b] for a, b, _ in expected]
        assert graph.edge_types.tolist() == [t for *_, t in expected]
        squares = np.array([np.sum((pixels[a] - pixels[b]) ** 2) for a, b, _ in expected])
        if len(squares):
            assert_allclose(graph.edge_features[:, 0], np.exp(-squares / (2 * squares.mean())),
                            rtol=1e-6)
    assert Graphs(**{name: getattr(graphs, name) for name in (
        "node_features", "edges", "node_offsets", "edge_offsets", "edge_features", "edge_types",
    )}).equals(graphs)


def test_grids_of_one_array_and_without_contrast():
    images = np.arange(30, dtype=np.uint8).reshape(2, 3, 5)
    graphs = Graphs.from_grid(images, contrast=False)
    assert graphs.edge_features is None and graphs.edge_types is None
    assert graphs.dtype == np.float32 and graphs.lengths.tolist() == [15, 15]
    assert_array_equal(graphs[1].node_features.reshape(3, 5), images[1])


@pytest.mark.parametrize("image", [np.full((2, 3), 7.0), np.full((2, 3), 1e300),
                                   np.array([[1e300, -1e300], [0, 1.0]])])
def test_contrast_of_extreme_images(image):
    contrast = Graphs.from_grid([image]).edge_features[:, 0]
    assert np.isfinite(contrast).all() and (contrast[0] == 1 or contrast.min() < 0.5)


def test_features_beside_an_image():
    image, features = np.arange(6.0).reshape(2, 3), np.ones((2, 3, 2))
    graphs = Graphs.from_grid([image], features=[features])
    assert_array_equal(graphs.node_features, np.ones((6, 2)))
    assert_array_equal(graphs.edge_features, Graphs.from_grid([image]).edge_features)


@pytest.mark.parametrize("arguments, message", [
    ({"images": np.zeros((2, 3))}, r"images\[0\] must have the shape .* single image into a list"),
    ({"images": [np.zeros((2, 3, 1)), np.zeros((2, 3))], "connectivity": 6}, "connectivity must"),
    ({"images": [np.zeros((2, 3, 2)), np.zeros((2, 3))]}, r"Image 1 has 1 feature\(s\)"),
    ({"images": [np.full((2, 3), np.nan)]}, "pixel 0 of graph 0 has nan"),
    ({"images": [np.array([["a"]])]}, "real numbers"),
    ({"images": "x"}, "list of arrays"),
    ({"images": np.zeros((4, 5, 3))}, "for one image of 3 channels, or list.* for 4 images of 5 x 3 pixels"),
    ({"images": [np.zeros((2, 3))], "contrast": 2}, "contrast must be True or False"),
    ({"images": [np.zeros((2, 3))], "features": []}, "0 features for 1 images"),
    ({"images": [np.zeros((2, 3))], "features": [np.zeros((3, 2))]}, r"features\[0\] are of 3 x 2"),
    ({"images": [np.full((2, 3), np.inf)], "features": [np.zeros((2, 3))]}, "contrasts of images"),
])
def test_from_grid_refuses(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Graphs.from_grid(**arguments)


@pytest.mark.parametrize("connectivity", [4, 8])
@pytest.mark.parametrize("start_label", [0, 1])
def test_from_regions(connectivity, start_label):
    rng = np.random.default_rng(4)
    maps = [rng.integers(0, 5, size) for size in ((4, 6), (1, 7), (3, 3))]
    X = [rng.random((5 + (i == 1), 2)) for i in range(3)]
    if start_label:  # pixels of 0 are in no region
        X = [part[:-1] for part in X]
    graphs = Graphs.from_regions(maps, X, connectivity=connectivity, start_label=start_label)
    areas = [np.array([(m == r + start_label).sum() for r in range(len(x))])
             for m, x in zip(maps, X, strict=True)]
    assert_allclose(graphs.node_weights, np.concatenate(areas) / np.concatenate(areas).mean())
    for graph, numbers, x in zip(graphs, maps, X, strict=True):
        flat, lengths = numbers.ravel() - start_label, {}
        for a, b, _ in neighbours(*numbers.shape, connectivity):
            pair = tuple(sorted((flat[a], flat[b])))
            if pair[0] != pair[1] and pair[0] >= 0:
                lengths[pair] = lengths.get(pair, 0) + 1
        pairs = sorted(lengths)
        assert_array_equal(graph.edges, pairs)
        assert_array_equal(graph.node_features, x)
        boundary = np.array([lengths[pair] for pair in pairs])
        squares = np.array([np.sum((x[a] - x[b]) ** 2) for a, b in pairs])
        assert_allclose(graph.edge_features, np.column_stack([
            boundary / boundary.mean(), np.exp(-squares / (2 * squares.mean())),
        ]), rtol=1e-5)


def test_regions_of_an_image():
    image = np.arange(12.0).reshape(2, 3, 2)
    graph = Graphs.from_regions([[[0, 0, 1], [0, 2, 2]]], [image])[0]
    assert_allclose(graph.node_features[0], (image[0, 0] + image[0, 1] + image[1, 0]) / 3)
    assert_allclose(graph.node_features[1], image[0, 2])


@pytest.mark.parametrize("arguments, message", [
    ({"label_maps": [[[1, 2]]], "X": [np.zeros((2, 1))]}, "the region 2, but .* start_label=1"),
    ({"label_maps": [[[0.0, 1.0]]], "X": [np.zeros((2, 1))]}, r"label_maps\[0\] must be integers"),
    ({"label_maps": [[[0, 1]]], "X": []}, "1 label_maps, but X is of 0"),
    ({"label_maps": [[[0, 1]]], "X": [np.zeros((2, 2, 1))]}, "an image of 2 x 2 pixels"),
    ({"label_maps": [[[0, 1]]], "X": [np.zeros(2)]}, r"X\[0\] must be the features"),
    ({"label_maps": [[[0, 1]]], "X": [[[1.0], [np.nan]]]}, "region 1 of graph 0 has nan"),
    ({"label_maps": [[[0, 1]]], "X": [np.zeros((2, 1))], "start_label": -1}, "start_label must"),
])
def test_from_regions_refuses(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Graphs.from_regions(**arguments)


# scikit-learn

class FirstColumn(ClassifierMixin, BaseEstimator):
    """Predicts the first column times `factor`, a label a node."""

    def __init__(self, factor=1):
        self.factor = factor

    def fit(self, X, y):
        assert isinstance(X, Graphs) and isinstance(y, Sequences) and len(X) == len(y)
        return self

    def predict(self, X):
        values = dense(X.node_features)[:, 0]
        return Sequences((self.factor * values).astype(int), X.node_offsets)

    def score(self, X, y):
        return float(self.predict(X).equals(y))


def test_scikit_learn(graphs):
    y = Sequences(dense(graphs.node_features)[:, 0].astype(int), graphs.node_offsets)
    assert_array_equal(cross_val_score(FirstColumn(), graphs, y, cv=3), 1.0)
    assert cross_val_predict(FirstColumn(), graphs, y, cv=3).equals(y)
    search = GridSearchCV(FirstColumn(), {"factor": [0, 1]}, cv=2).fit(graphs, y)
    assert search.best_params_ == {"factor": 1}
    X, other_X, labels, other_labels = train_test_split(graphs, y, random_state=0)
    assert FirstColumn().predict(X).equals(labels) and len(X) + len(other_X) == len(graphs)
    assert FirstColumn().predict(other_X).equals(other_labels)


# files

def test_files(graphs, tmp_path):
    path = tmp_path / "data.graphs"
    graphs.save(path)
    assert Graphs.load(path).equals(graphs) and not Graphs.load(path).edges.flags.writeable
    with pytest.raises(ValueError, match="no labels, the array 'y'"):
        Graphs.load(path, return_y=True)
    labels = np.arange(graphs.n_nodes) % 3
    for y in (labels, Sequences(labels, graphs.node_offsets),
              list(Sequences(labels, graphs.node_offsets))):
        graphs.save(path, y)
        again, read = Graphs.load(str(path), return_y=True)
        assert again.equals(graphs) and read.equals(Sequences(labels, graphs.node_offsets))
    assert [file.name for file in tmp_path.iterdir()] == ["data.graphs"]
    graphs.save(path, split=np.arange(len(graphs)))
    with np.load(path) as archive:
        assert_array_equal(archive["split"], np.arange(len(graphs)))
    for name in ("edges", "node_features.data", "edge_offsets"):
        with pytest.raises(ValueError, match=f"'{name}' is taken by the graphs"):
            graphs.save(path, **{name: np.zeros(3)})


@pytest.mark.parametrize("y, message", [
    ([0, 1], "2 labels, but the graphs have 5 nodes"),
    ([[0, 1], [0, 0, 1]], r"y\[0\] has 2 labels, but graph 0 has 3"),
    ([[0, 1, 2]], "y is of 1 graphs"),
    ([[0, 1, None], [2, 2]], "a number or a string"),
])
def test_labels_that_do_not_fit(y, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        two_paths().save(tmp_path / "file.npz", np.array(y) if y == [0, 1] else y)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("write, message", [
    (lambda path: path.write_bytes(b"nothing"), "is no file of graphs"),
    (lambda path: path.write_bytes(path.read_bytes()[:-40]), "is no file of graphs"),
    (lambda path: np.savez(path, a=1), "no array 'node_features'"),
    (lambda path: np.savez(path, **given(edges=[[0, 9]] * 3)), r"Edge 0 of graph 0 is \(0, 9\)"),
    (lambda path: np.savez(path, **given(), **{"edge_features.data": [1]}),
     "no array 'edge_features.indices'"),
    (lambda path: np.savez(path, **given(edges=np.array([[None]]))), "is no file of graphs"),
    (lambda path: np.savez(path, **{
        **{k: v for k, v in given().items() if k != "node_features"}, "node_features.data": [1.0],
        "node_features.indices": [70000], "node_features.indptr": [0, 1, 1, 1, 1, 1],
        "node_features.shape": [5, 2]}), "is no file of graphs"),
])
def test_damaged_files(write, message, tmp_path):
    path = tmp_path / "graphs.npz"
    two_paths().save(path)
    write(path)
    with pytest.raises(ValueError, match=message):
        Graphs.load(path)


def test_one_array_is_no_file_of_graphs(tmp_path):
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ValueError, match="one array"):
        Graphs.load(tmp_path / "one.npy")
    with pytest.raises(FileNotFoundError):
        Graphs.load(tmp_path / "none.npz")
