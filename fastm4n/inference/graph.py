"""Inference on graphs for Python: one graph or a list of them a call.

A labelling y of the nodes of a graph scores sum_i node_scores[i, y_i] plus, over its edges (i, j),
edge_scores[e, y_i, y_j]; or edge_scores[e] where y_i = y_j, for edges of one number each (Potts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastm4n.base.checks import as_real, check_number
from fastm4n.inference._elimination import (
    exact_marginals,
    exact_max_marginals,
    refuses_exact,
    solve_exact,
)
from fastm4n.inference._forest import (
    GraphProblem,
    forest_best,
    forest_kbest,
    forest_marginals,
    forest_max_marginals,
    row_length,
    take_common,
)
from fastm4n.inference._relaxations import (
    refuses_lp,
    refuses_trw,
    solve_lp,
    trw_marginals,
)
from fastm4n.inference.cut import cut_best, refuses_cut
from fastm4n.inference.roof import refuses_roof, roof_best

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray, IntArray
    from fastm4n.factors import Factors

# labels are uint16 in kernels
MOST_LABELS = 65535


class Method(NamedTuple):
    """One way to find best labellings.

    `refuses` says why it cannot be used for a problem, or nothing where it can; `solve` gives
    labels, their score, and a bound on the score of all labellings.  `is_exact`: bound = value,
    whatever the scores.
    """

    refuses: Any
    solve: Any
    is_exact: bool = False


@dataclass
class Labelling:
    """A labelling of a graph and what is known of it.

    Attributes
    ----------
    labels : ndarray of shape (n_nodes,)
    value : float
        Its score.
    bound : float
        No labelling scores more.
    exact : bool
        Whether the labelling is best: whether bound and value agree to 1e-9 of what the value is
        below the sum of the largest scores of all nodes and edges. So it does not depend on what
        the scores of all labels of a node have in common, nor on the unit of scores.
    method : str
        What found it.
    """

    labels: np.ndarray
    value: float
    bound: float
    exact: bool
    method: str


@dataclass
class Marginals:
    """Marginals of the distribution over labellings that is proportional to exp(score).

    Attributes
    ----------
    nodes : ndarray of shape (n_nodes, n_labels), or list of ndarray
        Of the labels of each node; a list where node_scores is one.
    edges : ndarray of shape (n_edges, n_labels, n_labels) or (n_edges,), or list of ndarray
        In the form of edge_scores: of the pairs of labels of each edge, or the probability that
        its nodes have the same label.
    log_partition : float
        In nats.
    exact : bool
    method : str
    """

    nodes: Any
    edges: Any
    log_partition: float
    exact: bool
    method: str


# ---------------------------------------------------------------------------- methods


def refuses_forest(problem: Any) -> str | None:
    if problem.factors is not None:
        return "there are factors"
    wrong = problem.forest_plan()[2]
    if wrong is None:
        return None
    return f"the graph is no forest: edge {wrong[1]} closes a cycle"


def solve_forest(problem: Any) -> Any:
    labels, value = forest_best(problem)
    return labels, value, value


# method(problem: GraphProblem) -> labels, value, bound; "auto" takes the first that does not refuse
# the problem: exact ones stand before the others
METHODS = {
    "forest": Method(refuses_forest, solve_forest, is_exact=True),
    "min_cut": Method(refuses_cut, cut_best, is_exact=True),
    "exact": Method(refuses_exact, solve_exact, is_exact=True),
    "roof": Method(refuses_roof, roof_best),
    "lp": Method(refuses_lp, solve_lp),
}
# method(problem) -> nodes (n_nodes, stride), edges in the form of problem.more, log-partition
MARGINALS = {
    "forest": Method(refuses_forest, forest_marginals, is_exact=True),
    "exact": Method(refuses_exact, exact_marginals, is_exact=True),
    "trw": Method(refuses_trw, trw_marginals),
}


def chosen(methods: Any, method: str, problem: Any, where: str) -> Any:
    """The name of the method to use: the one asked for, or the first that can be."""
    if method == "auto":
        reasons = []
        for name, way in methods.items():
            why = way.refuses(problem)
            if why is None:
                return name
            reasons.append(f"{name!r}: {why}")
        raise ValueError(f"no method can solve this graph{where}. {'; '.join(reasons)}.")
    why = methods[method].refuses(problem)
    if why is not None:
        raise ValueError(
            f"method={method!r} cannot solve this graph{where}: {why}. Use method='auto'.")
    return method


# ------------------------------------------------------------------- checks of scores


def is_batch(edges: ArrayLike | Sequence[ArrayLike]) -> bool:
    """Whether these are the edges of a list of graphs."""
    if isinstance(edges, np.ndarray):
        return edges.ndim == 3 or edges.dtype == object
    if not hasattr(edges, "__len__"):
        raise ValueError(
            f"edges must be an array of shape (n_edges, 2), or a list of them, got {edges!r}.")
    return len(edges) > 0 and (np.ndim(edges[0]) == 2 or np.size(edges[0]) == 0)


def is_ragged(node_scores: ArrayLike | Sequence[ArrayLike]) -> bool:
    """Whether rows of different lengths: a list of one-dimensional arrays."""
    return not isinstance(node_scores, np.ndarray) and (
        len({np.size(row) for row in node_scores}) > 1
        and all(np.ndim(row) == 1 for row in node_scores))


def make_problem(
    node_scores: ArrayLike | Sequence[ArrayLike], edges: ArrayLike | Sequence[ArrayLike],
    edge_scores: ArrayLike | Sequence[ArrayLike], factors: Factors | None = None, where: str = "",
) -> Any:
    """The problem of one graph, checked; `where` tells the graph of a list."""
    unary, n_choices = _node_rows(node_scores, where)
    n, k = unary.shape
    edges = _edges(edges, n, where)
    stride, m = row_length(k), len(edges)
    rows = np.zeros((n, stride))
    rows[:, :k] = unary
    counts = np.full(n, k) if n_choices is None else n_choices
    pairs, scores = _edge_rows(edge_scores, edges, counts, k, where)
    found = [take_common(rows[:, :k], unary > -np.inf)]
    if pairs == "tables":
        more = np.zeros((m, k, stride))
        more[:, :, :k] = scores
        step = k * stride
        given = scores > -np.inf
        if n_choices is not None:
            has = np.arange(k) < counts[:, np.newaxis]
            given &= has[edges[:, 0], :, np.newaxis] & has[edges[:, 1], np.newaxis]
        found.append(take_common(more[:, :, :k], given))
    else:
        more, step = scores, 1
        with np.errstate(over="ignore"):
            found.append((0.0, np.maximum(more, 0.0).sum(), np.abs(more).sum(where=more > -np.inf)))
    problem = GraphProblem(
        rows, edges, np.ascontiguousarray(more.ravel()), step * np.arange(m, dtype=np.intp), k,
        pairs, n_choices, factors)
    problem.constant, problem.height, problem.spread = map(sum, zip(*found, strict=True))
    return problem


def _node_rows(node_scores, where):
    """Rows of one length, and how many labels each node has where they differ."""
    n_choices = None
    if not hasattr(node_scores, "__len__"):
        raise ValueError(f"node_scores{where} must be an array or a list, got {node_scores!r}.")
    if is_ragged(node_scores):
        rows = [as_real(f"node_scores[{i}]{where}", row) for i, row in enumerate(node_scores)]
        n_choices = np.array([row.size for row in rows], dtype=np.intc)
        unary = np.full((len(rows), n_choices.max()), -np.inf)
        for i, row in enumerate(rows):
            unary[i, :row.size] = row
    else:
        unary = as_real(f"node_scores{where}", node_scores)
        if unary.ndim == 1 and unary.size == 0:
            unary = unary.reshape(0, 1)
        if unary.ndim != 2:
            raise ValueError(
                f"node_scores{where} must have shape (n_nodes, n_labels), or be a list of rows; "
                f"got shape {unary.shape}.")
    if unary.shape[1] == 0 or (n_choices is not None and n_choices.min() == 0):
        i = 0 if n_choices is None else int(np.argmin(n_choices))
        raise ValueError(f"node_scores{where}: node {i} has no labels.")
    if unary.shape[1] > MOST_LABELS:
        raise ValueError(
            f"node_scores{where} has {unary.shape[1]} labels: at most {MOST_LABELS}.")
    bad = np.isnan(unary) | (unary == np.inf)
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(
            f"node_scores{where} holds {unary[i, j]} at node {i}, label {j}; scores must be "
            "finite, or -inf for a label that is forbidden.")
    return unary, n_choices


def _edges(edges, n_nodes, where):
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.zeros((0, 2), dtype=np.intc)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"edges{where} must be pairs of integers, of shape (n_edges, 2); got shape "
            f"{edges.shape} of {edges.dtype}.")
    if edges.min() < 0 or edges.max() >= n_nodes:
        e, side = np.argwhere((edges < 0) | (edges >= n_nodes))[0]
        raise ValueError(
            f"edge {e}{where} is {tuple(edges[e].tolist())}: node {edges[e, side]} is outside 0 "
            f"... {n_nodes - 1}. Edges count nodes from 0.")
    edges = np.ascontiguousarray(edges, dtype=np.intc)
    first, second = edges[:, 0], edges[:, 1]
    loops = first == second
    if loops.any():
        e = np.flatnonzero(loops)[0]
        raise ValueError(
            f"edge {e}{where} joins node {first[e]} to itself: add its scores to the node's.")
    pairs = np.minimum(first, second) * np.int64(n_nodes) + np.maximum(first, second)
    in_order = np.sort(pairs)
    if (in_order[1:] == in_order[:-1]).any():
        _, places, of = np.unique(pairs, return_index=True, return_inverse=True)
        e = np.flatnonzero(places[of] != np.arange(len(edges)))[0]
        raise ValueError(
            f"edge {e}{where}, {tuple(edges[e].tolist())}, joins the same nodes as edge "
            f"{places[of[e]]}: add up the scores of both.")
    return edges


def _edge_rows(edge_scores, edges, counts, k, where):
    """What edges score, "tables" or "equal", and the scores, tables all of shape (k, k)."""
    m = len(edges)
    if isinstance(edge_scores, np.ndarray) or m == 0 or (counts == k).all():
        scores = as_real(f"edge_scores{where}", edge_scores)
        if scores.shape == (m, k, k):
            kind = "tables"
        elif scores.shape == (m,) or m == 0:
            kind, scores = "equal", scores.reshape(-1)[:m]
        else:
            raise ValueError(
                f"edge_scores{where} must have shape ({m}, {k}, {k}), a table for each edge, or "
                f"({m},), a number for two nodes of the same label; got {scores.shape}.")
    elif len(edge_scores) != m:
        raise ValueError(f"edge_scores{where} has {len(edge_scores)} entries for {m} edges.")
    elif all(np.ndim(table) == 0 for table in edge_scores):
        kind, scores = "equal", as_real(f"edge_scores{where}", edge_scores)
    else:
        kind, scores = "tables", np.zeros((m, k, k))
        for e, (i, j) in enumerate(edges):
            table = as_real(f"edge_scores[{e}]{where}", edge_scores[e])
            if table.shape != (counts[i], counts[j]):
                raise ValueError(
                    f"edge_scores[{e}]{where} must have shape {(int(counts[i]), int(counts[j]))}, "
                    f"the labels of the nodes {i} and {j}; got {table.shape}.")
            scores[e, :counts[i], :counts[j]] = table
    bad = np.isnan(scores) | (scores == np.inf)
    if bad.any():
        at = tuple(int(x) for x in np.argwhere(bad)[0])
        labels = f", labels {at[1:]}" if len(at) > 1 else ""
        raise ValueError(
            f"edge_scores{where} holds {scores[at]} at edge {at[0]}{labels}; scores must be "
            "finite, or -inf where a pair is forbidden.")
    return kind, scores


def for_each(
    solve: Callable[..., Any], node_scores: ArrayLike | Sequence[ArrayLike],
    edges: ArrayLike | Sequence[ArrayLike], edge_scores: ArrayLike | Sequence[ArrayLike],
    factors: Factors | None,
) -> Any:
    """solve(problem, where) of one graph, or a list for a list of graphs."""
    if not is_batch(edges):
        return solve(make_problem(node_scores, edges, edge_scores, factors), "")
    n = len(edges)
    factors = [None] * n if factors is None else factors
    for name, given in (
            ("node_scores", node_scores), ("edge_scores", edge_scores), ("factors", factors)):
        if len(given) != n:
            raise ValueError(f"{name} has {len(given)} entries, but edges are those of {n} graphs.")
    found = []
    for b in range(n):
        where = f" of graph {b}"
        found.append(solve(
            make_problem(node_scores[b], edges[b], edge_scores[b], factors[b], where), where))
    return found


# -------------------------------------------------------------------------- functions


def maximise(
    node_scores: ArrayLike | Sequence[ArrayLike], edges: ArrayLike | Sequence[ArrayLike],
    edge_scores: ArrayLike | Sequence[ArrayLike], factors: Factors | None = None,
    method: str = "auto",
) -> Labelling:
    """The labelling of largest score of a graph.

    Parameters
    ----------
    node_scores : array-like of shape (n_nodes, n_labels), or list of rows
        Scores of the labels of each node; -inf forbids one. Rows may differ in length.
    edges : array-like of int of shape (n_edges, 2)
        First and second node of each edge; no two edges join the same nodes.
    edge_scores : array-like of shape (n_edges, n_labels, n_labels) or (n_edges,)
        A table for each edge, label of the first node by label of the second; or a number, what
        two nodes score that have the same label. Where the nodes have different numbers of labels
        tables may be a list, each of the shape of its nodes.
    factors : FactorTables, CountFactor or list, default=None
        Scores or constraints of the labels of more than two nodes; a list may hold several of
        them, and pairs of nodes and their table.
    method : str, default="auto"
        "forest" for graphs without cycles, by recursions; "min_cut" for two labels and edges that
        favour the same label at both nodes, a00 + a11 >= a01 + a10; "exact" for at most 16 nodes
        of two labels, or where the tables of variable elimination have at most 1,000,000 entries;
        "roof" for two labels and edges of any kind: a bound by roof duality, and the best
        labelling where edges join at most 16 of the nodes whose label that leaves open; "lp" for
        all others, the linear program over the local polytope. "auto" takes the first method that
        is sure to find the best labelling, or else the best bound.

    Returns
    -------
    result : Labelling
        With `labels`, their score `value`, a `bound` on the score of all labellings, whether the
        labelling is `exact`, and the `method` that found it. A list of them where all arguments
        are lists, with an entry for each graph.

    Raises
    ------
    ValueError
        If the arguments are no graph, the method cannot solve it, or no labelling has a finite
        score.

    Examples
    --------
    >>> from fastm4n.inference.graph import maximise
    >>> found = maximise([[0.0, 1.0], [0.5, 0.0], [0.2, 0.0]], [[0, 1], [0, 2]], [0.6, -0.1])
    >>> found.labels.tolist(), found.value, found.exact, found.method
    ([1, 1, 0], 1.8, True, 'forest')

    Of the last two nodes exactly one is to have label 1:

    >>> from fastm4n import CountFactor
    >>> found = maximise([[0.0, 1.0], [0.5, 0.0], [0.2, 0.0]], [[0, 1], [0, 2]], [0.6, -0.1],
    ...                  factors=CountFactor.exactly_one([1, 2]))
    >>> found.labels.tolist(), round(found.value, 6), found.method
    ([1, 1, 0], 1.8, 'exact')
    """
    _check_method(method, METHODS)

    def solve(problem, where):
        name = chosen(METHODS, method, problem, where)
        labels, value, bound = METHODS[name].solve(problem)
        if not value > -np.inf:
            raise _nothing_finite(where)
        if not value < np.inf:
            raise _too_large(where)
        exact = METHODS[name].is_exact or bound - value <= problem.slack(value)
        value, bound = value + problem.constant, bound + problem.constant
        if not bound < np.inf:
            raise _too_large(where)
        return Labelling(labels, float(value), float(bound), bool(exact), name)

    return for_each(solve, node_scores, edges, edge_scores, factors)


def marginals(
    node_scores: ArrayLike | Sequence[ArrayLike], edges: ArrayLike | Sequence[ArrayLike],
    edge_scores: ArrayLike | Sequence[ArrayLike], factors: Factors | None = None,
    method: str = "auto",
) -> Marginals:
    """Marginals and log-partition of the distribution p(y) proportional to exp(score of y).

    Parameters
    ----------
    node_scores, edges, edge_scores, factors
        As in `maximise`.
    method : str, default="auto"
        "forest" for graphs without cycles, by recursions; "exact" as in `maximise`; "trw" for any
        graph with finite scores: tree-reweighted marginals, which are not exact, and an upper
        bound of the log-partition. "auto" takes the first that is exact, or else "trw".

    Returns
    -------
    result : Marginals
        With `nodes`, `edges`, `log_partition` in nats, whether they are `exact`, and the `method`.
        A list of them where all arguments are lists, with an entry for each graph.

    Raises
    ------
    ValueError
        If the arguments are no graph, the method cannot solve it, or no labelling has a finite
        score.

    Examples
    --------
    >>> from fastm4n.inference.graph import marginals
    >>> found = marginals([[0.0, 1.0], [0.5, 0.0]], [[0, 1]], [0.6])
    >>> found.nodes.round(3).tolist(), found.edges.round(3).tolist()
    ([[0.298, 0.702], [0.557, 0.443]], [0.592])
    >>> round(found.log_partition, 3)
    2.598
    """
    _check_method(method, MARGINALS)

    def solve(problem, where):
        name = chosen(MARGINALS, method, problem, where)
        way = MARGINALS[name]
        nodes, edge_rows, log_partition = way.solve(problem)
        log_partition += problem.constant
        if not log_partition > -np.inf:
            raise _nothing_finite(where)
        if not (log_partition < np.inf and np.isfinite(nodes).all()):
            raise _too_large(where)
        return Marginals(
            _rows_of(problem, nodes), _edges_of(problem, edge_rows), float(log_partition),
            way.is_exact, name)

    return for_each(solve, node_scores, edges, edge_scores, factors)


def max_marginals(
    node_scores: ArrayLike | Sequence[ArrayLike], edges: ArrayLike | Sequence[ArrayLike],
    edge_scores: ArrayLike | Sequence[ArrayLike], factors: Factors | None = None,
) -> Any:
    """The largest score of a labelling in which a node has a label, for all nodes and labels.

    Parameters
    ----------
    node_scores, edges, edge_scores, factors
        As in `maximise`, of one graph that "forest" or "exact" can solve.

    Returns
    -------
    scores : ndarray of shape (n_nodes, n_labels), or list of ndarray

    Examples
    --------
    >>> from fastm4n.inference.graph import max_marginals
    >>> max_marginals([[0.0, 1.0], [0.5, 0.0]], [[0, 1]], [0.6]).tolist()
    [[1.1, 1.6], [1.5, 1.6]]
    """
    problem = make_problem(node_scores, edges, edge_scores, factors)
    exact = {name: way for name, way in MARGINALS.items() if way.is_exact}
    if chosen(exact, "auto", problem, "") == "exact":
        return _rows_of(problem, _finite(exact_max_marginals(problem) + problem.constant))
    out = forest_max_marginals(problem)
    order, parent_edge, _ = problem.forest_plan()
    roots = np.flatnonzero(parent_edge[order] < 0)
    trees = np.split(order, roots[1:])
    best = np.array([out[tree[0]].max() for tree in trees if tree.size])
    for t, tree in enumerate(trees):
        if tree.size:
            # not a difference, which would lose what is small beside the tree's own
            out[tree] += best[:t].sum() + best[t + 1:].sum()
    return _rows_of(problem, _finite(out + problem.constant))


def k_best(
    node_scores: ArrayLike | Sequence[ArrayLike], edges: ArrayLike | Sequence[ArrayLike],
    edge_scores: ArrayLike | Sequence[ArrayLike], k: int,
) -> tuple[IntArray, FloatArray]:
    """The k labellings of largest score of a graph without cycles.

    Parameters
    ----------
    node_scores, edges, edge_scores
        As in `maximise`, of one graph without cycles.
    k : int
        How many.

    Returns
    -------
    labels : ndarray of shape (k', n_nodes)
        Best first; k' is k, or the number of labellings of finite score where they are fewer.
    scores : ndarray of shape (k',)

    Examples
    --------
    >>> from fastm4n.inference.graph import k_best
    >>> labels, scores = k_best([[0.0, 1.0], [0.5, 0.0]], [[0, 1]], [0.6], 2)
    >>> labels.tolist(), scores.tolist()
    ([[1, 1], [1, 0]], [1.6, 1.5])
    """
    check_number("k", k, low=0, integer=True)
    problem = _forest_of(node_scores, edges, edge_scores)
    # no more than there are labellings
    most = float(problem.n_labels) ** problem.n_nodes if problem.n_nodes < 64 else np.inf
    labels, scores = forest_kbest(problem, int(min(k, most)))
    if not len(scores):
        raise _nothing_finite("")
    return labels, _finite(scores + problem.constant)


def _forest_of(node_scores, edges, edge_scores):
    problem = make_problem(node_scores, edges, edge_scores)
    why = refuses_forest(problem)
    if why is not None:
        raise ValueError(f"{why}. This is for graphs without cycles.")
    return problem


def _rows_of(problem, rows):
    """Rows of nodes without what is behind their labels."""
    rows = rows[:, : problem.n_labels]
    if problem.n_choices is None:
        return np.ascontiguousarray(rows)
    return [row[:n].copy() for row, n in zip(rows, problem.n_choices, strict=True)]


def _edges_of(problem, more):
    """Numbers of edges in the form in which their scores were given."""
    if problem.pairs != "tables":
        return more
    k = problem.n_labels
    tables = more.reshape(problem.n_edges, k, problem.stride)[:, :, :k]
    if problem.n_choices is None:
        return np.ascontiguousarray(tables)
    counts = problem.n_choices
    return [
        table[: counts[i], : counts[j]].copy()
        for table, (i, j) in zip(tables, problem.edges, strict=True)]


def _check_method(method, methods):
    if not isinstance(method, str) or (method != "auto" and method not in methods):
        raise ValueError(f"method must be one of {('auto', *methods)}, got {method!r}.")


def _nothing_finite(where):
    return ValueError(
        f"no labelling{where} has a finite score: scores of -inf leave none. Allow a label or a "
        "pair of labels.")


def _finite(scores):
    """The scores, where sums on the way to them did not overflow."""
    if not (scores < np.inf).all():
        raise _too_large("")
    return scores


def _too_large(where):
    return ValueError(
        f"the scores{where} are too large: their sum overflows float64. Divide them by a number.")
