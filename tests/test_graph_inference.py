"""Inference on graphs for Python: one or a list of them, what answers say of themselves, errors."""

import doctest
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

import fastm4n.inference.graph as graph
from fastm4n import CountFactor
from fastm4n.inference.graph import k_best, marginals, max_marginals, maximise

NODES = [[0.0, 1.0], [0.5, 0.0], [0.2, 0.0]]
EDGES = [[0, 1], [2, 0]]


def random_tree(rng, n, ragged=False):
    """Scores of a tree with tables; ragged: nodes have different numbers of labels."""
    counts = rng.integers(1, 4, n) if ragged else np.full(n, 3)
    edges = [(i, int(rng.integers(i))) for i in range(1, n)]
    edges = [edge if rng.random() < 0.5 else edge[::-1] for edge in edges]
    rows = [rng.normal(size=count) for count in counts]
    tables = [rng.normal(size=(counts[a], counts[b])) for a, b in edges]
    return rows, edges, tables


def listed(rows, edges, tables):
    """All labellings and their scores; tables may be numbers."""
    y = np.array(list(itertools.product(*[range(len(row)) for row in rows])))
    scores = sum(np.asarray(row)[y[:, i]] for i, row in enumerate(rows))
    for (a, b), table in zip(edges, tables, strict=True):
        scores = scores + (
            table * (y[:, a] == y[:, b]) if np.ndim(table) == 0 else table[y[:, a], y[:, b]])
    return y, scores


@pytest.mark.parametrize("form", ["tables", "ragged", "potts", "ragged potts"])
def test_by_enumeration(form):
    rng = np.random.default_rng(len(form))
    for _ in range(40):
        rows, edges, tables = random_tree(rng, int(rng.integers(1, 6)), "ragged" in form)
        if "potts" in form:
            tables = list(rng.normal(size=len(edges)))
        y, scores = listed(rows, edges, tables)
        found = maximise(rows, edges, tables)
        assert (found.exact, found.method, found.bound) == (True, "forest", found.value)
        assert_allclose(found.value, scores.max(), atol=1e-12)
        assert_allclose(scores[(y == found.labels).all(axis=1)], [found.value], atol=1e-12)
        soft = marginals(rows, edges, tables)
        assert soft.exact and soft.method == "forest"
        assert_allclose(soft.log_partition, logsumexp(scores), atol=1e-12)
        p = np.exp(scores - logsumexp(scores))
        best = max_marginals(rows, edges, tables)
        for i, row in enumerate(rows):
            expected = [p[y[:, i] == j].sum() for j in range(len(row))]
            assert_allclose(soft.nodes[i], expected, atol=1e-12)
            assert_allclose(
                best[i], [scores[y[:, i] == j].max() for j in range(len(row))], atol=1e-12)
        for e, (a, b) in enumerate(edges):
            if "potts" in form:
                expected = p[y[:, a] == y[:, b]].sum()
            else:
                expected = np.array([
                    [p[(y[:, a] == i) & (y[:, b] == j)].sum() for j in range(len(rows[b]))]
                    for i in range(len(rows[a]))])
            assert_allclose(soft.edges[e], expected, atol=1e-12)
        labels, values = k_best(rows, edges, tables, 4)
        assert_allclose(values, np.sort(scores)[::-1][:4], atol=1e-12)
        assert labels.shape == (len(values), len(rows))


def test_trees_apart():
    """Max-marginals are of labellings of all trees."""
    best = max_marginals([[0.0, 1.0], [5.0, 2.0], [0.0, -3.0]], [[0, 2]], [0.5])
    assert_allclose(best, [[5.5, 6.0], [6.0, 3.0], [6.0, 3.5]])


def test_lists_of_graphs():
    """Each graph as by itself."""
    rng = np.random.default_rng(1)
    graphs = [random_tree(rng, n) for n in (1, 4, 2)]
    given = [list(of) for of in zip(*graphs, strict=True)]
    given[1] = [np.array(edges, dtype=int).reshape(-1, 2) for edges in given[1]]
    for solve in (maximise, marginals):
        found = solve(*given)
        assert len(found) == 3
        for one, scores in zip(found, graphs, strict=True):
            alone = solve(*scores)
            for name in vars(alone):
                assert_array_equal(getattr(one, name), getattr(alone, name))
    with pytest.raises(ValueError, match=r"node_scores of graph 1 holds nan at node 0, label 2"):
        given[0][1][0][2] = np.nan
        maximise(*given)
    with pytest.raises(ValueError, match="edge_scores has 2 entries, but edges are those of 3"):
        maximise(given[0], given[1], given[2][:2])


@pytest.mark.parametrize("solve", [maximise, marginals])
def test_small_graphs(solve):
    """No nodes, one node, no edges, one label."""
    empty = solve(np.zeros((0, 3)), [], [])
    assert (empty.value if solve is maximise else empty.log_partition) == 0.0
    one = solve([[1.0, 2.0]], [], [])
    assert_allclose(one.value if solve is maximise else one.log_partition, (
        2.0 if solve is maximise else np.logaddexp(1.0, 2.0)))
    forced = solve([[1.0], [2.0]], [[1, 0]], [[[0.5]]])
    assert_allclose(forced.value if solve is maximise else forced.log_partition, 3.5)


def test_input_stays():
    """Read-only and strided arrays of any dtype are taken, and not changed."""
    nodes = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(4, 3)[::-1])
    edges, numbers = np.array([[3, 0], [1, 3]], dtype=np.uint8), np.arange(4)[::2]
    for array in (nodes, edges, numbers):
        array.flags.writeable = False
    found = maximise(nodes, edges, numbers)
    assert_array_equal(found.labels, [2, 2, 2, 2])
    assert found.value == 28.0


@pytest.mark.parametrize(("change", "message"), [
    ({"edges": [[0, 1], [2, 3]]}, r"edge 1 is \(2, 3\): node 3 is outside 0 ... 2"),
    ({"edges": [[0, -1], [2, 0]]}, r"edge 0 is \(0, -1\): node -1 is outside"),
    ({"edges": [[0, 1], [2, 2]]}, "edge 1 joins node 2 to itself"),
    ({"edges": [[0, 1], [1, 0]]}, r"edge 1, \(1, 0\), joins the same nodes as edge 0"),
    ({"edges": [[0.0, 1.0], [2.0, 0.0]]}, "pairs of integers"),
    ({"edges": [0, 1]}, "pairs of integers"),
    ({"edges": None}, r"edges must be an array of shape \(n_edges, 2\)"),
    ({"node_scores": 1.0}, "node_scores must be an array or a list"),
    ({"node_scores": [[0.0, np.nan], [0.0, 0.0], [0.0, 0.0]]}, "nan at node 0, label 1"),
    ({"node_scores": [[0.0, np.inf], [0.0, 0.0], [0.0, 0.0]]}, "inf at node 0, label 1"),
    ({"node_scores": [0.0, 1.0, 2.0]}, r"must have shape \(n_nodes, n_labels\)"),
    ({"node_scores": [[1.0], [], [2.0]]}, "node 1 has no labels"),
    ({"node_scores": np.zeros((3, 0))}, "node 0 has no labels"),
    ({"node_scores": [["a", "b"]] * 3}, "array of real numbers"),
    ({"node_scores": np.full((3, 2), -np.inf)}, "no labelling has a finite score"),
    ({"node_scores": np.full((3, 2), 1e308)}, "too large"),
    ({"node_scores": np.full((3, 2), -1e308)}, "too large"),
    ({"edge_scores": [0.1, np.nan]}, "nan at edge 1; scores"),
    ({"edge_scores": [0.1]}, r"edge_scores must have shape \(2, 2, 2\)"),
    ({"edge_scores": np.zeros((2, 2, 3))}, r"edge_scores must have shape \(2, 2, 2\)"),
    ({"edge_scores": np.full((2, 2, 2), np.inf)}, r"inf at edge 0, labels \(0, 0\)"),
    ({"node_scores": [[1.0], [1.0, 2.0], [1.0, 2.0]],
      "edge_scores": [np.zeros((1, 2)), np.zeros((2, 2))]}, r"edge_scores\[1\].* \(2, 1\)"),
    ({"node_scores": [[1.0], [1.0, 2.0], [1.0, 2.0]], "edge_scores": [np.zeros((1, 2))]},
     "has 1 entries for 2 edges"),
    ({"method": "magic"}, r"method must be one of \('auto', 'forest'"),
    ({"method": "forest", "edges": [[0, 1], [2, 0], [1, 2]], "edge_scores": [0.0] * 3},
     "no forest: edge .* closes a cycle. Use method='auto'"),
])
def test_bad_input(change, message):
    given = {"node_scores": NODES, "edges": EDGES, "edge_scores": [0.6, -0.1], **change}
    for solve in (maximise, marginals):
        with pytest.raises(ValueError, match=message):
            solve(**given)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "2"])
def test_bad_counts(k):
    with pytest.raises(ValueError, match="k must be an integer > 0"):
        k_best(NODES, EDGES, [0.6, -0.1], k)


def test_only_forests():
    with pytest.raises(ValueError, match="graphs without cycles"):
        k_best(np.zeros((3, 2)), [[0, 1], [1, 2], [2, 0]], np.zeros(3), 2)


def test_all_of_the_best():
    """More are asked for than there are."""
    labels, values = k_best(NODES, EDGES, [0.6, -0.1], 100)
    assert labels.shape == (8, 3)
    assert_allclose(values, np.sort(listed(NODES, EDGES, [0.6, -0.1])[1])[::-1], atol=1e-12)


def test_examples():
    found = doctest.testmod(graph)
    assert found.attempted > 8
    assert found.failed == 0


def test_marginals_whose_scores_overflow():
    with pytest.raises(ValueError, match="sum overflows float64. Divide them"):
        marginals([[1.7e308, 0.0], [-1.7e308, 1.7e308]], [[0, 1]], [1.7e308])
    for solve in (max_marginals, lambda *given: k_best(*given, 2)):
        for sign in (1.0, -1.0):
            with pytest.raises(ValueError, match="sum overflows float64. Divide them"):
                solve(np.full((3, 2), sign * 1.7e308), [[0, 1]], [sign * 1.7e308])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("edge_scores", [
    np.full(3, 1e308), 1e308, np.full((2, 2), 1e308), np.full((3, 2, 2), 1e308)])
def test_edges_whose_scores_overflow(edge_scores):
    triangle = [[0, 1], [1, 2], [0, 2]]
    for method in ("auto", "min_cut", "exact"):
        with pytest.raises(ValueError, match="sum overflows float64. Divide them|too large for"):
            maximise(np.zeros((3, 2)), triangle, edge_scores, method=method)
    # no label is forbidden, though the sum is -inf
    for solve in (maximise, marginals, max_marginals):
        with pytest.raises(ValueError, match="sum overflows float64. Divide them"):
            solve(np.zeros((3, 1)), triangle, [-1e308] * 3)


def test_what_no_scores_or_factors_are():
    with pytest.raises(ValueError, match="node_scores must be an array of real numbers"):
        maximise([[10**400, 0]], [], [])
    with pytest.raises(TypeError, match="factors must be a FactorTables.* got int"):
        maximise([[1.0, 0.0]], [], [], factors=3)


@pytest.mark.parametrize("n", [2_000, 50_000])
def test_counts_that_are_too_large(n):
    """They are refused before tables are made of them."""
    graph, factor = (np.zeros((n, 2)), [], []), CountFactor(range(n), n // 10, n // 5)
    with pytest.raises(ValueError, match=f"'exact' cannot.* a CountFactor of {n} nodes that counts"):
        maximise(*graph, factors=factor, method="exact")
    found = maximise(*graph, factors=factor)
    assert found.method == "dual" and factor.is_satisfied(found.labels) and found.exact


def test_marginals_without_edges_keep_the_form():
    nodes = [[0.0, 1.0, 2.0]]
    assert marginals(nodes, [], np.zeros((0, 3, 3))).edges.shape == (0, 3, 3)
    assert marginals(nodes, [], []).edges.shape == (0,)
