"""The local polytope of a labelled graph: its largest score, a bound of it, and marginals in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastm4n.base.checks import as_real, check_number
from fastm4n.inference._relaxations import refuses_lp, refuses_trw, relax, reweight
from fastm4n.inference.graph import make_problem

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray, IntArray


class Relaxation(NamedTuple):
    """What `maximise_relaxation` returns."""

    labels: IntArray
    value: float
    lower: float
    upper: float
    nodes: FloatArray
    edges: FloatArray
    n_sweeps: int
    n_iterations: int
    messages: FloatArray


class ReweightedMarginals(NamedTuple):
    """What `reweighted_marginals` returns."""

    nodes: FloatArray
    edges: FloatArray
    lower: float
    upper: float
    edge_shares: FloatArray
    n_sweeps: int


def maximise_relaxation(
    node_scores: ArrayLike, edges: ArrayLike, edge_scores: ArrayLike, tol: float = 1e-6,
    max_sweeps: int = 100, max_iterations: int = 10_000, messages: FloatArray | None = None,
) -> Relaxation:
    """The largest score over the local polytope, which holds all labellings and more.

    The polytope asks of marginals of nodes and edges only that those of an edge have the sums that
    its nodes say. ``value <= largest score of a labelling <= upper`` and
    ``lower <= largest score in the polytope <= upper`` hold always, up to the rounding of sums.

    Parameters
    ----------
    node_scores, edges, edge_scores
        As in `fastm4n.inference.graph.maximise`.
    tol : float, default=1e-6
        Stop when ``upper - lower`` is at most this.
    max_sweeps : int, default=100
        Sweeps of messages, one at least.
    max_iterations : int, default=10000
        Primal-dual iterations where sweeps leave a gap; 0 for bounds by sweeps alone.
    messages : ndarray of shape (2 n_edges, n_labels), default=None
        Where to begin; those of an earlier result.

    Returns
    -------
    labels : ndarray of shape (n_nodes,)
        The best labelling found, and `value` its score.
    value, lower, upper : float
    nodes, edges : ndarray of shape (n_nodes, n_labels) and (n_edges, n_labels, n_labels)
        The point of the polytope of score `lower`; a labelling's where it is as good.
    n_sweeps, n_iterations : int
    messages : ndarray of shape (2 n_edges, n_labels)

    Examples
    --------
    >>> from fastm4n.inference.decomposition import maximise_relaxation
    >>> frustrated = [[0, 1], [1, 2], [0, 2]]  # a triangle whose nodes shun one another
    >>> found = maximise_relaxation([[0, 0]] * 3, frustrated, [-1.0] * 3)
    >>> float(found.value), round(found.upper, 3)
    (-1.0, 0.0)
    """
    check_number("tol", tol, low=0, strict=False)
    check_number("max_sweeps", max_sweeps, low=1, strict=False, integer=True)
    check_number("max_iterations", max_iterations, low=0, strict=False, integer=True)
    problem = make_problem(node_scores, edges, edge_scores)
    why = refuses_lp(problem)
    if why is not None:
        raise ValueError(f"the linear program cannot be solved: {why}.")
    k = problem.n_labels
    if messages is not None:
        messages = as_real("messages", messages)
        if messages.shape != (2 * problem.n_edges, k) or not np.isfinite(messages).all():
            raise ValueError(
                f"messages must be finite and of shape {(2 * problem.n_edges, k)}, two rows for "
                f"each edge and a column for each label; got shape {messages.shape}. Give those of "
                "an earlier result for the same edges, or None.")
    labels, value, lower, upper, nodes, tables, *counts, messages = relax(
        problem, tol, max_sweeps, max_iterations, messages)
    value, lower, upper = (x + problem.constant for x in (value, lower, upper))
    return Relaxation(
        labels, value, lower, upper, nodes[:, :k], tables[:, :k, :k], *counts, messages[:, :k])


def reweighted_marginals(
    node_scores: ArrayLike, edges: ArrayLike, edge_scores: ArrayLike, tol: float = 1e-6,
    max_sweeps: int = 500,
) -> ReweightedMarginals:
    """Marginals by tree-reweighted sum-product, and an upper bound of the log-partition.

    They maximise the score plus the mean of the entropies of spanning forests over the local
    polytope, exactly where the graph is a forest: marginals are then right and `upper` is the
    log-partition.

    Parameters
    ----------
    node_scores, edges, edge_scores
        As in `fastm4n.inference.graph.maximise`, finite.
    tol : float, default=1e-6
        Stop when ``upper - lower`` is at most this.
    max_sweeps : int, default=500
        Sweeps of messages, one at least.

    Returns
    -------
    nodes, edges : ndarray of shape (n_nodes, n_labels) and (n_edges, n_labels, n_labels)
        Marginals, in the local polytope, of value `lower`.
    lower, upper : float
        Bounds of the maximum; `upper` is at least the log-partition.
    edge_shares : ndarray of shape (n_edges,)
        Share of the spanning forests that have each edge.
    n_sweeps : int

    Examples
    --------
    >>> from fastm4n.inference.decomposition import reweighted_marginals
    >>> found = reweighted_marginals([[0, 1], [0, 0]], [[0, 1]], [[[1, 0], [0, 1]]])
    >>> found.nodes.round(3)[0]
    array([0.269, 0.731])
    """
    check_number("tol", tol, low=0, strict=False)
    check_number("max_sweeps", max_sweeps, low=1, strict=False, integer=True)
    problem = make_problem(node_scores, edges, edge_scores)
    why = refuses_trw(problem)
    if why is not None:
        raise ValueError(f"marginals need finite scores: {why}.")
    nodes, tables, lower, upper, shares, n_sweeps = reweight(problem, tol, max_sweeps)
    lower, upper = lower + problem.constant, upper + problem.constant
    k = problem.n_labels
    return ReweightedMarginals(nodes[:, :k], tables[:, :, :k], lower, upper, shares, n_sweeps)
