"""Inference on graphs for Python: one graph or a list of them a call.

A labelling y of the nodes of a graph scores sum_i node_scores[i, y_i] plus the sum over its edges
(i, j) of edge_scores[e, y_i, y_j]. Edges of one number each (Potts) score it if y_i = y_j.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastm4n.base.checks import as_real, check_number
from fastm4n.factors import CountFactor, TooLarge, as_factors, factor_scores
from fastm4n.inference._dual import Dual, refuses_dual, search_differences, search_parts, soon
from fastm4n.inference._elimination import (
    MOST_ENTRIES,
    exact_marginals,
    exact_max_marginals,
    refuses_exact,
    solve_exact,
    solve_large,
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
from fastm4n.inference._moves import Moves, expand_all
from fastm4n.inference._relaxations import (
    LP_GAIN,
    refuses_lp,
    refuses_trw,
    relax,
    solve_lp,
    trw_marginals,
)
from fastm4n.inference._search import Search
from fastm4n.inference.cut import cut_best, refuses_cut
from fastm4n.inference.roof import refuses_roof, roof_best

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray, IntArray
    from fastm4n.factors import Factors

# labels are uint16 in kernels
MOST_LABELS = 65535
# nodes of which "auto" makes a plan of elimination before anything else (benchmarks/constants.py)
FEW = 100
# random forests between two rounds of expansions (benchmarks/constants.py)
FORESTS = 30
# most such rounds where roof duality leaves too much for tables (benchmarks/constants.py)
ROUNDS = 10
# share of the bound's distance that one of them is to gain, or else is the last
# (benchmarks/constants.py)
LEAST_GAIN = 0.005


class Method(NamedTuple):
    """One way to find best labellings, or marginals.

    `refuses` returns the reason why a problem cannot be solved, or None. For marginals `solve`
    returns nodes, edges and log-partition. For labellings its second argument is a `Search`. It
    takes steps and yields after each. `is_exact`: the results are, whatever the scores.
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
        Of the labels of each node. A list if node_scores is one.
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


def at_once(solve: Callable[..., Any]) -> Any:
    """solve(problem) -> labels, value and bound, as the one step of a search."""
    def steps(problem: Any, search: Any) -> Generator[None]:
        search.offer(*solve(problem)[:3])
        yield
    return steps


def solve_forest(problem: Any) -> Any:
    labels, value = forest_best(problem)
    return labels, value, value


def refuses_factors(problem: Any) -> str | None:
    return None if problem.factors is None else "there are factors"


# all labellings: by small tables, or by large ones
def search_exact(problem: Any, search: Any, most: float = np.inf) -> Generator[None]:
    most = int(min(most, search.max_entries))
    try:
        found = solve_exact(problem, 1, min(MOST_ENTRIES, most))
    except TooLarge:
        if most <= max(MOST_ENTRIES, search.too_few):
            raise
        # if the time is over before the end
        if not search.value > -np.inf:
            if refuses_lp(problem) is None:
                relax(problem, search.tol, 1, 0, None, search)
            elif search.ends < np.inf and refuses_dual(problem) is None:
                next(Dual(problem, search).minimise())
        search.too_few = most
        with search.following():
            found = solve_large(problem, most)
    search.offer(*found)
    yield


# `search_exact` where that takes no longer than the linear program may
def search_soon(problem: Any, search: Any) -> Generator[None]:
    return search_exact(problem, search, soon(problem))


# `search_exact` where that is a matter of milliseconds
def search_few(problem: Any, search: Any) -> Generator[None]:
    if problem.n_nodes > FEW and problem.factors is None:
        raise TooLarge(f"the graph has more than {FEW} nodes")
    search.offer(*solve_exact(problem, 1, min(MOST_ENTRIES, search.max_entries)))
    yield


# nodes that roof duality leaves open get labels by elimination, or else by moves
def search_roof(problem: Any, search: Any) -> Generator[None]:
    labels, value, bound, is_open = roof_best(problem)
    search.offer(labels, value, bound)
    yield
    if value > -np.inf and is_open.any():
        try:
            with search.following():
                found = solve_large(problem, search.max_entries, labels, is_open)
            search.offer(*found)
        except TooLarge:
            yield from search_rounds(problem, search, LEAST_GAIN)
        yield


# rounds of moves while each gains more than this share of the bound's distance
def search_rounds(problem: Any, search: Any, least_gain: float) -> Generator[None]:
    for _ in range(ROUNDS):
        before = search.value
        yield from search_moves(problem, search)
        if search.value - before <= least_gain * (search.bound - before):
            break


def refuses_expansion(problem: Any) -> str | None:
    if not np.isfinite(problem.more).all():
        return "scores of edges are -inf"
    return refuses_lp(problem)


# a sweep of messages, for a bound and where to begin, and moves
def search_expansion(problem: Any, search: Any) -> Generator[None]:
    relax(problem, search.tol, 1, 0, None, search)
    yield
    rows = np.asarray(problem.unary)[:, : problem.n_labels]
    allowed = rows[np.arange(problem.n_nodes), search.labels] > -np.inf
    search.labels = np.where(allowed, search.labels, np.argmax(rows, axis=1))
    yield from search_moves(problem, search)


# moves from the best labels: of parts of the graph where labels are counted
def search_moves(problem: Any, search: Any, labels: Any = None) -> Generator[None]:
    if problem.factors is not None:
        yield from search_parts(problem, search)
        return
    search.n_moves += 1
    moves = Moves(problem, search.labels if labels is None else labels, search.n_moves)
    with search.following(lambda: (moves.labels, moves.value)):
        improve(moves, problem)
    yield


# expansions where scores of edges allow it, forests, and expansions
def improve(moves: Any, problem: Any) -> None:
    for n_moves in (FORESTS, 0):
        if refuses_expansion(problem) is None:
            expand_all(moves)
        moves.improve(n_moves)


def search_lp(problem: Any, search: Any) -> Generator[None]:
    rounded: Any = None
    for rounded in solve_lp(problem, search):
        yield
    if search.value > -np.inf:
        yield from search_moves(problem, search)
        # they may end elsewhere than those from the labels of expansions
        if problem.score(rounded) > -np.inf:
            yield from search_moves(problem, search, rounded)


# multipliers of counts, then moves
def search_dual(problem: Any, search: Any) -> Generator[None]:
    dual = Dual(problem, search)
    yield from dual.minimise()
    if dual.is_rough:
        moves = Moves(dual.relaxed, dual.labels)
        with search.following():
            improve(moves, dual.relaxed)
        dual.offer(moves.labels, np.inf)
        yield
    if search.value > -np.inf:
        yield from search_rounds(problem, search, LP_GAIN)
        others = [dual.kept[value] for value in sorted(dual.kept, reverse=True)]
        yield from search_differences(problem, search, others, FEW)


# solve(problem: GraphProblem, search: Search)
METHODS = {
    "forest": Method(refuses_forest, at_once(solve_forest), is_exact=True),
    "min_cut": Method(refuses_cut, at_once(cut_best), is_exact=True),
    "exact": Method(lambda problem: None, search_exact, is_exact=True),
    "roof": Method(refuses_roof, search_roof),
    "expansion": Method(refuses_expansion, search_expansion),
    "lp": Method(refuses_lp, search_lp),
    "dual": Method(refuses_dual, search_dual),
}
# "auto" goes from one to the next until the labelling is known to be best: its bound is that of
# "roof", "lp" or "dual", and what takes longest comes last
FEW_STATES, SOON = (
    Method(lambda problem: None, solve, is_exact=True) for solve in (search_few, search_soon))
ORDER = [
    ("forest", METHODS["forest"]), ("min_cut", METHODS["min_cut"]), ("exact", FEW_STATES),
    ("roof", METHODS["roof"]), ("expansion", METHODS["expansion"]), ("exact", SOON),
    ("lp", METHODS["lp"]), ("exact", METHODS["exact"]), ("dual", METHODS["dual"])]


# the steps of the method that is asked for, or of all that can be used until one is sure
def search_best(problem: Any, search: Any, method: str, where: str) -> Generator[None]:
    ways = ORDER if method == "auto" else [(method, METHODS[method])]
    if method == "auto" and search.ends < np.inf:
        # good labels first, and then the best ones if the time is enough
        ways = [*ORDER[:-2], ORDER[-1], ORDER[-2]]
    reasons = {}
    for name, way in ways:
        # its bound is that of "lp", and it has tried all tables
        if search.method == "roof":
            break
        why = way.refuses(problem)
        if why is None:
            before, search.method, search.is_exact = search.method, name, way.is_exact
            try:
                yield from way.solve(problem, search)
            except TooLarge as error:
                # the reason of a larger limit takes the place of that of a smaller one
                why, search.method, search.is_exact = str(error), before, False
            else:
                if way.is_exact:
                    break
        reasons[name] = why
    if search.method is None:
        raise unsolvable(method, reasons, where)
    while method == "auto" and search.ends < np.inf and search.value > -np.inf:
        yield from search_moves(problem, search)


# method(problem) -> nodes (n_nodes, stride), edges in the form of problem.more, log-partition
MARGINALS = {
    "forest": Method(refuses_forest, forest_marginals, is_exact=True),
    "exact": Method(refuses_exact, exact_marginals, is_exact=True),
    "trw": Method(refuses_trw, trw_marginals),
}


def unsolvable(method: str, reasons: dict[str, Any], where: str) -> ValueError:
    if method == "auto":
        told = "; ".join(f"{name!r}: {why}" for name, why in reasons.items())
        return ValueError(f"no method can solve this graph{where}. {told}.")
    return ValueError(
        f"method={method!r} cannot solve this graph{where}: {reasons[method]}. "
        "Use method='auto'.")


def chosen(methods: Any, method: str, problem: Any, where: str) -> Any:
    """The name of the method to use: the one asked for, or the first that can be."""
    reasons = {}
    for name in methods if method == "auto" else [method]:
        reasons[name] = methods[name].refuses(problem)
        if reasons[name] is None:
            return name
    raise unsolvable(method, reasons, where)


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
    shared: bool = False,
) -> Any:
    """The problem of one graph, checked; `where` tells the graph of a list.

    If `shared`, edges may have one place in `more`: marginals of edges would be added up there.
    """
    unary, n_choices = _node_rows(node_scores, where)
    n, k = unary.shape
    edges = _edges(edges, unary.shape, where)
    stride, m = row_length(k), len(edges)
    rows = np.zeros((n, stride))
    rows[:, :k] = unary
    counts = np.full(n, k) if n_choices is None else n_choices
    pairs, scores = _edge_rows(edge_scores, edges, counts, k, where)
    # of one for all edges: how many have it
    repeats = m if len(scores) < m and shared else 1
    if len(scores) < m and not shared:
        scores = np.repeat(scores, m, axis=0)
    found = [take_common(rows[:, :k], unary > -np.inf)]
    if pairs == "tables":
        more = np.zeros((len(scores), k, stride))
        more[:, :, :k] = scores
        step = k * stride
        given = scores > -np.inf
        if n_choices is not None:
            has = np.arange(k) < counts[:, np.newaxis]
            given &= has[edges[:, 0], :, np.newaxis] & has[edges[:, 1], np.newaxis]
        of_edges = take_common(more[:, :, :k], given)
    else:
        more, step = scores, 1
        with np.errstate(over="ignore"):
            of_edges = (
                0.0, np.maximum(more, 0.0).sum(), np.abs(more).sum(where=more > -np.inf))
    with np.errstate(over="ignore", invalid="ignore"):
        found.append(tuple(repeats * x for x in of_edges))
        totals = [sum(of) for of in zip(*found, strict=True)]
    places = step * (np.arange(m, dtype=np.intp) if repeats == 1 else np.zeros(m, dtype=np.intp))
    problem = GraphProblem(
        rows, edges, np.ascontiguousarray(more.ravel()), places, k, pairs, n_choices, factors)
    problem.constant, problem.height, problem.spread = totals
    return problem


def _is_one(scores):
    """Whether one number, and no list."""
    return not hasattr(scores, "__len__") or (isinstance(scores, np.ndarray) and scores.ndim == 0)


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


def _edges(edges, shape, where):
    edges, n_nodes = np.asarray(edges), shape[0]
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
            f"... {n_nodes - 1}. Edges count nodes from 0."
            + (_transposed(shape) if n_nodes <= edges.max() < shape[1] else ""))
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
    if _is_one(edge_scores) or (
            isinstance(edge_scores, np.ndarray) or m == 0 or (counts == k).all()):
        scores = as_real(f"edge_scores{where}", edge_scores)
        if scores.shape == (m, k, k):
            kind = "tables"
        elif scores.shape == (k, k) and m > 0 and (counts == k).all():
            kind, scores = "tables", scores[np.newaxis]
        elif scores.shape == (m,) or m == 0:
            kind, scores = "equal", scores.reshape(-1)[:m]
        elif scores.ndim == 0:
            kind, scores = "equal", scores.reshape(1)
        else:
            n = len(counts)
            raise ValueError(
                f"edge_scores{where} must have shape ({m}, {k}, {k}), a table for each edge, or "
                f"({m},), a number for two nodes of the same label, or ({k}, {k}) or () for all "
                f"edges; got {scores.shape}."
                + (_transposed((n, k)) if scores.shape in ((m, n, n), (n, n)) else ""))
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
        edge = "all edges" if len(scores) < m else f"edge {at[0]}"
        raise ValueError(
            f"edge_scores{where} holds {scores[at]} at {edge}{labels}; scores must be "
            "finite, or -inf where a pair is forbidden.")
    return kind, scores


def _transposed(shape):
    return (
        f" node_scores has shape {shape} and seems to be transposed: its rows are nodes, and its "
        "columns labels. Give node_scores.T.")


def for_each(
    solve: Callable[..., Any], node_scores: ArrayLike | Sequence[ArrayLike],
    edges: ArrayLike | Sequence[ArrayLike], edge_scores: ArrayLike | Sequence[ArrayLike],
    factors: Factors | None, init: Any = None, shared: bool = False,
) -> Any:
    """solve(problem, where, init) of one graph, or a list for a list of graphs."""
    if not is_batch(edges):
        return solve(
            make_problem(node_scores, edges, edge_scores, factors, "", shared), "", init)
    n = len(edges)
    factors = [None] * n if factors is None else factors
    init = [None] * n if init is None else init
    if _is_one(edge_scores):
        edge_scores = [edge_scores] * n
    for name, given in (
            ("node_scores", node_scores), ("edge_scores", edge_scores), ("factors", factors),
            ("init", init)):
        if len(given) != n:
            raise ValueError(f"{name} has {len(given)} entries, but edges are those of {n} graphs.")
    found = []
    for b in range(n):
        where = f" of graph {b}"
        problem = make_problem(
            node_scores[b], edges[b], edge_scores[b], factors[b], where, shared)
        found.append(solve(problem, where, init[b]))
    return found


# -------------------------------------------------------------------------- functions


def maximise(
    node_scores: ArrayLike | Sequence[ArrayLike], edges: ArrayLike | Sequence[ArrayLike],
    edge_scores: ArrayLike | Sequence[ArrayLike], factors: Factors | None = None,
    method: str = "auto", *, tol: float = 0.0, time_limit: float | None = None,
    callback: Callable[[Labelling], Any] | None = None,
    init: ArrayLike | Sequence[ArrayLike] | None = None, max_entries: int = 1_000_000_000,
) -> Labelling:
    """The labelling of largest score of a graph.

    Parameters
    ----------
    node_scores : array-like of shape (n_nodes, n_labels), or list of rows
        Scores of the labels of each node, -inf to forbid one. Rows may differ in length.
    edges : array-like of int of shape (n_edges, 2)
        First and second node of each edge. No two edges join the same nodes.
    edge_scores : array-like of shape (n_edges, n_labels, n_labels), (n_edges,), (n_labels, \
            n_labels) or float
        A table for each edge, label of the first node by label of the second. Or a number for each
        edge, the score of two nodes of the same label (Potts). One table or one number counts for
        all edges. If nodes have different numbers of labels, tables may be a list, each of the
        shape of its nodes.
    factors : FactorTables, CountFactor or list, default=None
        Scores or constraints of the labels of more than two nodes. A list may contain several of
        them, and pairs of nodes and their table.
    method : str, default="auto"
        - "forest": recursions, for graphs without cycles.
        - "min_cut": two labels and edges that favour the same label, a00 + a11 >= a01 + a10.
        - "exact": variable elimination, if its tables have at most `max_entries` entries.
        - "roof": two labels and edges of any kind. Roof duality gives a bound and the labels of
          some nodes. The others get theirs by elimination, or else by moves of random forests.
        - "expansion": any number of labels. Expansions of single labels by minimum cuts and moves
          of random forests, with a bound by one sweep of messages.
        - "lp": any graph. The linear program over the local polytope, then moves as before.
          Without a time limit it ends early if its last half lowered `bound - value` by less than
          a tenth.
        - "dual": graphs of any size with `CountFactor`. Multipliers of the counts give a bound, and
          the best labels of small parts, one after another, a labelling that keeps to the counts.
        - "auto" goes from one method to the next, those that are fast first, until the labelling is
          known to be best.
    tol : float, default=0.0
        Stop when `bound - value` is at most this.
    time_limit : float, default=None
        Seconds after which the best labelling so far is returned. "auto" then searches until its
        labelling is known to be best, or the time is over. For a list, seconds for each graph.
        By default the search ends by itself, on a grid of 200 x 200 nodes and 5 labels after about
        7 seconds.
    callback : callable, default=None
        Called with a `Labelling` when there is a better one, or a better bound, about every 50 ms.
        A true result ends the search.
    init : array-like of int of shape (n_nodes,), default=None
        A labelling to begin with: the result is no worse. For graphs without factors, or with
        `CountFactor` alone.
    max_entries : int, default=1_000_000_000
        Limit of the entries of all tables of variable elimination. So many take 1 to 2 seconds and
        100 MB. A grid of 20 x 20 nodes with two labels is within it.

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

    A count of a label on a grid that is too wide for tables:

    >>> import numpy as np
    >>> from fastm4n.inference import grid_edges
    >>> scores = np.random.default_rng(0).normal(size=(20 * 20, 3))
    >>> found = maximise(scores, grid_edges((20, 20)), 0.5,
    ...                  factors=CountFactor(range(400), 20, 25, label=2))
    >>> found.method, found.labels.tolist().count(2) <= 25, found.bound - found.value < 1.0
    ('dual', True, True)

    A grid of three labels, neighbours preferring the same one, for at most a second:

    >>> scores = np.random.default_rng(0).normal(size=(30 * 30, 3))
    >>> found = maximise(scores, grid_edges((30, 30)), 0.5, method="expansion", time_limit=1.0)
    >>> found.labels.shape, found.bound - found.value < 0.02 * found.value
    ((900,), True)
    """
    _check_method(method, METHODS)
    check_number("tol", tol, low=0, strict=False)
    check_number("max_entries", max_entries, low=0, integer=True)
    if time_limit is not None:
        check_number("time_limit", time_limit, low=0, strict=False)
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be callable, got {callback!r}.")

    def solve(problem, where, init):
        def result(search):
            exact = search.bound - search.value <= problem.slack(search.value)
            value, bound = search.value + problem.constant, search.bound + problem.constant
            return Labelling(
                search.labels, float(value), float(bound),
                bool(exact or (search.is_exact and search.is_done)), search.method)

        search = Search(
            problem, tol, time_limit,
            None if callback is None else lambda search: callback(result(search)), max_entries)
        if init is not None:
            search.offer(*_labelling(problem, init, where))
        search.run(search_best(problem, search, method, where))
        if not search.value > -np.inf:
            if search.is_done and search.method == "dual" and search.bound > -np.inf:
                raise ValueError(
                    f"method='dual' cannot solve this graph{where}: it found no labelling that its "
                    "factors allow, and no proof that there is none. Use fewer factors, or "
                    "method='exact' with larger max_entries.")
            raise _nothing_finite(problem, where) if search.is_done else ValueError(
                f"no labelling{where} was found in time_limit={time_limit} seconds: give more.")
        if not search.value < np.inf or not search.bound < np.inf:
            raise _too_large(where)
        found = result(search)
        if not -np.inf < found.value <= found.bound < np.inf:
            raise _too_large(where)
        return found

    return for_each(solve, node_scores, edges, edge_scores, factors, init, shared=True)


def _labelling(problem, init, where):
    """Labels to begin with, and their score."""
    labels = np.asarray(init)
    n = problem.n_nodes
    if labels.shape != (n,) or (n and labels.dtype.kind not in "iu"):
        raise ValueError(
            f"init{where} must be {n} integers, a label for each node; got shape {labels.shape} of "
            f"{labels.dtype}.")
    counts = np.full(n, problem.n_labels) if problem.n_choices is None else problem.n_choices
    wrong = (labels < 0) | (labels >= counts)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise ValueError(
            f"init{where} has label {labels[i]} at node {i}: its labels are 0 ... {counts[i] - 1}.")
    labels = labels.astype(np.intp)
    factors = () if problem.factors is None else as_factors(problem.factors, n)
    if not all(isinstance(factor, CountFactor) for factor in factors):
        raise ValueError(f"init{where} is for graphs without factors, or with CountFactor alone.")
    return labels, problem.score(labels) + factor_scores(factors, labels[np.newaxis])[0]


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

    def solve(problem, where, init):
        name = chosen(MARGINALS, method, problem, where)
        way = MARGINALS[name]
        nodes, edge_rows, log_partition = way.solve(problem)
        if not log_partition > -np.inf:
            raise _nothing_finite(problem, where)
        log_partition += problem.constant
        if not (np.isfinite(log_partition) and np.isfinite(nodes).all()):
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
        return _rows_of(problem, _with_constant(problem, exact_max_marginals(problem)))
    out = forest_max_marginals(problem)
    order, parent_edge, _ = problem.forest_plan()
    roots = np.flatnonzero(parent_edge[order] < 0)
    trees = np.split(order, roots[1:])
    best = np.array([out[tree[0]].max() for tree in trees if tree.size])
    with np.errstate(over="ignore", invalid="ignore"):
        for t, tree in enumerate(trees):
            if tree.size:
                # not a difference, which would lose what is small beside the tree's own
                out[tree] += best[:t].sum() + best[t + 1:].sum()
    return _rows_of(problem, _with_constant(problem, out))


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
        raise _nothing_finite(problem, "")
    return labels, _with_constant(problem, scores)


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


def _nothing_finite(problem, where):
    if not np.isfinite([problem.constant, problem.spread]).all():
        return _too_large(where)
    return ValueError(
        f"no labelling{where} has a finite score: scores of -inf leave none. Allow a label or a "
        "pair of labels.")


def _with_constant(problem, scores):
    """The scores and the constant of the problem, where their sums did not overflow."""
    with np.errstate(over="ignore"):
        total = scores + problem.constant
    # with too large a spread sums on the way may have overflowed
    is_forbidden = (scores == -np.inf) & (problem.spread < np.inf)
    if not (np.isfinite(total) | is_forbidden).all():
        raise _too_large("")
    return total


def _too_large(where):
    return ValueError(
        f"the scores{where} are too large: their sum overflows float64. Divide them by a number.")
