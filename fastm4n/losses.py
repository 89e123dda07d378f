"""The surrogate losses of all blocks at given scores: values, upper bounds and gradients.

Every fit minimizes a mean of these losses, and its certificate consists of them. Here they are
functions of scores only, for layers of networks, boosting, and other solvers.

With the polytope M_b of the marginals of block b, its concave function h_b and the true output y_b,

    loss_b(v) = max_{mu in M_b} h_b(mu) + <v, mu> - <v, phi(y_b)>,   gradient = mu - phi(y_b),

which is convex in v and never negative. For "max_margin" h_b is the expected cost of mu. For
"max_min" it is the cost that no adversary who knows mu can avoid. For "log" it is the entropy times
the temperature, plus the expected cost if `cost_augmented`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fastm4n.base.checks import check_choice, check_number
from fastm4n.base.threads import in_threads, n_threads
from fastm4n.inference._chain_games import ChainGames
from fastm4n.inference._contexts import context_automaton
from fastm4n.outputs import (
    AutomatonOutputs,
    ChainOutputs,
    PermutationOutputs,
    SimplexOutputs,
    row_stride,
)
from fastm4n.outputs.graph_oracles import INFERENCES
from fastm4n.surrogates import with_options
from fastm4n.surrogates._base import MaxMinLoss, Surrogate
from fastm4n.surrogates._batches import losses_of
from fastm4n.surrogates._graph_batches import GraphBatch
from fastm4n.surrogates._parameters import SurrogateLike

__all__ = [
    "Losses", "block_losses", "chain_losses", "graph_losses", "permutation_losses",
    "simplex_losses",
]


class Losses(NamedTuple):
    """Losses of all blocks: `value` <= loss <= `upper`, and the `gradient` of `value`.

    The bounds are equal up to rounding if the oracle is exact: for every surrogate of single
    labels, and for "max_margin" and "log" of all outputs except graphs with cycles.
    """

    value: np.ndarray
    upper: np.ndarray
    gradient: object


def block_losses(
    surrogate: Surrogate, scores: ArrayLike, *, tol: float = 1e-9, gradient: bool = True,
    n_jobs: int | None = None,
) -> Losses:
    """Losses of all blocks of a surrogate at flat scores.

    Parameters
    ----------
    surrogate : Surrogate
        From `fastm4n.surrogates.make_surrogate`, over the outputs of all blocks.
    scores : array-like of shape (layout.n_numbers,)
        Scores of all blocks, one after the other, in the form of ``surrogate.outputs.layout``.
    tol : float, default=1e-9
        Inexact oracles stop at this difference of the bounds. Column generation may stop before, at
        its limit of calls, with valid bounds.
    gradient : bool, default=True
        Whether to compute gradients.
    n_jobs : int, default=None
        Number of threads. The result does not depend on it.

    Returns
    -------
    losses : Losses
        `value` and `upper` of shape (n_blocks,), and `gradient` in the form of scores, or None.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.losses import block_losses
    >>> from fastm4n.outputs import SimplexOutputs
    >>> from fastm4n.surrogates import SURROGATES, make_surrogate
    >>> outputs = SimplexOutputs(np.array([0, 2]), 1.0 - np.eye(3))
    >>> losses = block_losses(make_surrogate("max_margin", outputs), np.zeros(6))
    >>> losses.value.tolist(), losses.gradient.reshape(2, 3).tolist()
    ([1.0, 1.0], [[-1.0, 1.0, 0.0], [1.0, 0.0, -1.0]])
    """
    layout = surrogate.outputs.layout
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    if scores.shape != (layout.n_numbers,):
        raise ValueError(
            f"scores must have shape ({layout.n_numbers},), as in the outputs' layout, got "
            f"{scores.shape}.")
    if not np.isfinite(scores).all():
        place = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise ValueError(f"scores must be finite: number {place} of all is {scores[place]}.")
    value, upper = np.zeros(layout.n_blocks), np.zeros(layout.n_blocks)
    slopes = np.zeros_like(scores) if gradient else None
    in_threads(
        lambda start, stop: losses_of(surrogate, start, stop, scores, tol, value, upper, slopes),
        layout.n_blocks, 50.0 * layout.n_numbers, n_threads(n_jobs),
    )
    is_finite = np.isfinite(value) & np.isfinite(upper)
    if not is_finite.all():
        b = int(np.argmin(is_finite))
        raise ValueError(
            f"the scores of block {b} are too large: sums of them overflow float64. Divide them by "
            "a number.")
    return Losses(value, upper, slopes)


def simplex_losses(
    scores: ArrayLike, y: ArrayLike, *,
    surrogate: SurrogateLike = "max_min", cost: ArrayLike | None = None,
    cost_augmented: bool = False, temperature: float = 1.0, gradient: bool = True,
    n_jobs: int | None = None,
) -> Losses:
    """Losses of single labels, one of k.

    Parameters
    ----------
    scores : array-like of shape (n, k)
    y : array-like of int of shape (n,)
        True labels, 0 ... k - 1.
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, \
default="max_min"
    cost : array-like of shape (k, k), default=None
        cost[i, j]: cost of predicting j if the truth is i. The default is 0-1.
    cost_augmented : bool, default=False
        For "log": whether to add the costs to the scores, as in the softmax-margin.
    temperature : float, default=1.0
        For "log": the factor of the entropy.
    gradient, n_jobs
        As in `block_losses`.

    Returns
    -------
    losses : Losses
        `gradient` of shape (n, k).

    Examples
    --------
    >>> from fastm4n.losses import simplex_losses
    >>> losses = simplex_losses([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [0, 1])
    >>> losses.value.round(4).tolist()
    [0.0, 0.6667]
    """
    scores = _scores("scores", scores, 2)
    outputs = SimplexOutputs(_labels(y, scores.shape[0]), _cost(cost, scores.shape[1]))
    return _losses(
        outputs, scores, surrogate, cost_augmented, temperature, gradient=gradient, n_jobs=n_jobs)


def chain_losses(
    scores: ArrayLike, transitions: ArrayLike, y: ArrayLike, lengths: ArrayLike, *,
    surrogate: SurrogateLike = "max_min", cost: ArrayLike | None = None,
    cost_scale: Literal["sum", "mean"] = "sum", cost_augmented: bool = False,
    temperature: float = 1.0, tol: float = 1e-9, rtol: float = 0.0, gradient: bool = True,
    n_jobs: int | None = None,
) -> Losses:
    """Losses of sequences of labels.

    Parameters
    ----------
    scores : array-like of shape (n_positions, n_labels)
        Scores of the labels at the positions of all sequences, one sequence after the other.
    transitions : array-like of shape (n_labels, n_labels) or (n_edges, n_labels, n_labels)
        Scores of the transitions from the row's to the column's label. One matrix for all
        positions, or one for each pair of neighbours in a sequence, one sequence after the other.
    y : array-like of int of shape (n_positions,)
    lengths : array-like of int of shape (n_sequences,)
        Positive, adding up to n_positions.
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, \
default="max_min"
    cost : array-like of shape (n_labels, n_labels), default=None
        Cost of a mistake at one position. The default is 0-1.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether to add up or to average the costs of a sequence's positions.
    cost_augmented, temperature
        As in `simplex_losses`.
    tol : float, default=1e-9
        As in `block_losses`.
    rtol : float, default=0.0
        For "max_min": a difference of the bounds of ``rtol * value`` of a sequence suffices, too.
        Losses of scores that are small compared with costs then take a fraction of the time.
    gradient, n_jobs
        As in `block_losses`.

    Returns
    -------
    losses : Losses
        `gradient` is a pair: of scores, (n_positions, n_labels), and of transitions. One matrix of
        transitions has the sum over the positions of each sequence, (n_sequences, n_labels,
        n_labels).

    Notes
    -----
    Scores of -inf forbid labels at positions and, if transitions are one matrix, transitions. The
    true labels must be allowed. The adversary of "max_min" answers position by position, without
    constraints.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.losses import chain_losses
    >>> losses = chain_losses(np.zeros((3, 2)), np.zeros((2, 2)), [0, 1, 1], [3], surrogate="log")
    >>> losses.value.round(4).tolist()
    [2.0794]
    """
    scores = _scores("scores", scores, 2)
    transitions = _scores("transitions", transitions, 3 if np.ndim(transitions) == 3 else 2)
    check_number("rtol", rtol, low=0, strict=False)
    R = scores.shape[1]
    lengths = np.asarray(lengths, dtype=np.intp)
    if lengths.ndim != 1 or (lengths < 1).any() or lengths.sum() != scores.shape[0]:
        raise ValueError(
            f"lengths must be positive and add up to the {scores.shape[0]} rows of scores.")
    n_edges, per_edge = scores.shape[0] - lengths.size, transitions.ndim == 3
    if transitions.shape != ((n_edges, R, R) if per_edge else (R, R)):
        raise ValueError(
            f"transitions must have shape ({R}, {R}) or ({n_edges}, {R}, {R}), got "
            f"{transitions.shape}.")
    y, cost = _labels(y, scores.shape[0]), _cost(cost, R)
    outputs = _chain_outputs(y, lengths, cost, cost_scale, scores, transitions)
    loss = with_options(surrogate, cost_augmented, temperature).over(outputs)
    options = {"tol": tol, "gradient": gradient, "n_jobs": n_jobs}
    if not (rtol > 0 and type(loss) is MaxMinLoss):
        return _losses_of_chains(loss, scores, transitions, lengths, **options)
    loss.rtol = rtol
    games = _chain_games(
        scores, transitions, y, lengths, cost, cost_scale == "mean", tol, rtol, n_threads(n_jobs))
    if games is None:
        return _losses_of_chains(loss, scores, transitions, lengths, **options)
    left = np.flatnonzero(games.done == 0)
    if left.size:
        rows = np.flatnonzero(np.repeat(games.done == 0, lengths))
        loss = MaxMinLoss(_chain_outputs(
            y[rows], lengths[left], cost, cost_scale, scores[rows], transitions))
        loss.rtol = rtol
        found = _losses_of_chains(loss, scores[rows], transitions, lengths[left], **options)
        games.upper[left] = np.minimum(games.upper[left], found.upper)
        # bounds of games hold even where they are not done
        better = found.value >= games.value[left]
        games.value[left[better]] = found.value[better]
        if gradient:
            of_rows = np.repeat(better, lengths[left])
            games.slope[rows[of_rows]] = found.gradient[0][of_rows]
            games.edges[left[better]] = found.gradient[1][better]
    return Losses(
        games.value, np.maximum(games.upper, games.value),
        (games.slope, games.edges) if gradient else None)


def _losses_of_chains(loss, scores, transitions, lengths, **options):
    """`block_losses` of a surrogate over sequences, with gradients in the form of scores."""
    R, per_edge = scores.shape[1], transitions.ndim == 3
    layout = loss.outputs.layout
    rows = np.zeros((layout.n_numbers // layout.stride, layout.stride))
    # whether a row of labels is of a position, or of a transition's first label
    of_position = np.zeros(len(rows), dtype=bool)
    of_position[layout.places(0) // layout.stride] = True
    # the outputs forbid labels, not the scores
    rows[of_position, :R] = np.where(scores == -np.inf, 0.0, scores)
    pairs = np.where(transitions == -np.inf, 0.0, transitions).reshape(-1, R)
    rows[~of_position, :R] = pairs if per_edge else np.tile(pairs, (lengths.size, 1))
    losses = block_losses(loss, rows.ravel(), **options)
    if losses.gradient is None:
        return losses
    slopes = losses.gradient.reshape(rows.shape)[:, :R]
    shape = transitions.shape if per_edge else (lengths.size, R, R)
    return losses._replace(
        gradient=(slopes[of_position], slopes[~of_position].reshape(shape)))


def _chain_games(scores, transitions, y, lengths, cost, mean_cost, tol, rtol, threads):
    """Max-min losses by steps in groups of sequences, or None where these are of no use.

    Where scores are not, or where numbers lose their digits, a sequence is not done.
    """
    if transitions.ndim == 3 or not lengths.size or cost.max() <= 0.0:
        return None
    if not np.isfinite(transitions).all():
        return None
    starts = np.concatenate([[0], np.cumsum(lengths)])
    games = ChainGames(
        starts, np.ascontiguousarray(scores), np.ascontiguousarray(transitions),
        np.asarray(y, dtype=np.int64), cost, mean_cost, tol, rtol)
    R, n = scores.shape[1], lengths.size
    in_threads(games.begin, n, 10.0 * scores.shape[0] * R * (R + 10), threads)
    while True:
        groups = games.groups()

        def solve(start, stop, groups=groups):
            for group in groups[start:stop]:
                games.solve(group)

        work = sum(
            float(lengths[group].sum()) * int(games.sizes[group[0]]) ** 3 for group in groups)
        in_threads(solve, len(groups), 20.0 * work, threads)
        if not games.more():
            return games


def _chain_outputs(y, lengths, cost, cost_scale, scores, transitions):
    """Sequences of labels, without those forbidden by scores of -inf."""
    per_edge = transitions.ndim == 3
    masks, pairs = scores != -np.inf, transitions != -np.inf
    if masks.all() and pairs.all():
        return ChainOutputs(y, lengths, cost, per_edge, cost_scale)
    if per_edge:
        raise ValueError(
            "scores of -inf need transitions of one matrix for all positions. Use finite scores "
            "far below the others instead.")
    R = len(cost)
    # state 1 + i is after label i
    after = np.where(np.vstack([np.ones((1, R), dtype=bool), pairs]), 1 + np.arange(R), -1)
    automaton = context_automaton(R, row_stride(R), (), (after, np.ones(1 + R, dtype=bool)))
    outputs = AutomatonOutputs(
        y, lengths, cost, automaton, cost_scale,
        None if masks.all() else masks.astype(np.uint8))
    rejected = outputs.rejected()
    if rejected is not None:
        b, t = rejected
        raise ValueError(
            f"y of sequence {b} is forbidden at its position {t}, by a score of -inf of the label "
            "or of the transition to it.")
    return outputs


def graph_losses(
    scores: ArrayLike, edges: ArrayLike, pairwise: ArrayLike, y: ArrayLike,
    sizes: ArrayLike | None = None, *,
    surrogate: SurrogateLike = "max_min", cost: ArrayLike | None = None,
    cost_scale: Literal["sum", "mean"] = "sum", cost_augmented: bool = False,
    temperature: float = 1.0,
    inference: Literal["auto", "forest", "min_cut", "exact", "lp"] = "auto",
    attractive: bool = False, tol: float = 1e-9, n_jobs: int | None = None,
) -> Losses:
    """Losses of labelled graphs.

    Parameters
    ----------
    scores : array-like of shape (n_nodes, n_labels)
        Scores of the labels at the nodes of all graphs, one graph after the other. For "log" on
        graphs without cycles -inf forbids a label, here and in `pairwise`.
    edges : array-like of int of shape (n_edges, 2)
        First and second node of each edge, rows of `scores`, in any order. An edge joins two nodes
        of the same graph, and at most one edge joins the same nodes.
    pairwise : array-like
        One table for all edges, (n_labels, n_labels), or for each, (n_edges, n_labels, n_labels),
        by the labels of the first node (row) and the second (column). Or the score of equal labels
        at both nodes: a number, or one for each edge, (n_edges,).
    y : array-like of int of shape (n_nodes,)
    sizes : array-like of int of shape (n_graphs,), default=None
        Number of nodes of each graph, at least one. The default is a single graph.
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, \
default="max_min"
    cost : array-like of shape (n_labels, n_labels), default=None
        Cost of a mistake at one node. The default is 0-1.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether to add up or to average the costs of a graph's nodes.
    cost_augmented, temperature
        As in `simplex_losses`.
    inference : {"auto", "forest", "min_cut", "exact", "lp"}, default="auto"
        Oracle for all graphs of the call:

        - "forest": recursions, for graphs without cycles.
        - "min_cut": two labels and attractive edges, not for "log".
        - "exact": graphs of few states.
        - "lp": the linear program over the local polytope, or for "log" tree-reweighted
          sum-product.
        - "auto": the first that is exact for all graphs, else "lp".
    attractive : bool, default=False
        Whether edges of two labels favour the same label at both nodes. The condition is checked.
    tol, n_jobs
        As in `block_losses`.

    Returns
    -------
    losses : Losses
        `gradient` is a pair: of scores, (n_nodes, n_labels), and of pairwise, in its shape. If
        edges share it, it has the sum over the edges of each graph, (n_graphs, n_labels, n_labels)
        or (n_graphs,).

    Notes
    -----
    With the linear program, a loss is the maximum over the local polytope, an upper bound of the
    exact loss. For "log" it is the tree-reweighted upper bound of the log-partition minus the score
    of y, which is also convex in the scores.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.losses import graph_losses
    >>> star, triangle = [[0, 1], [0, 2], [0, 3]], [[4, 5], [5, 6], [6, 4]]
    >>> losses = graph_losses(
    ...     np.zeros((7, 2)), star + triangle, 0.5, [0, 0, 0, 0, 1, 1, 0], [4, 3], surrogate="log")
    >>> losses.value.round(4).tolist()
    [2.1154, 2.4368]
    >>> losses.gradient[1].round(4).tolist()
    [-1.1326, 0.9507]
    """
    scores = _scores("scores", scores, 2)
    n, k = scores.shape
    edges = np.asarray(edges)
    if edges.size == 0:
        edges = np.zeros((0, 2), dtype=np.intp)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"edges must be integers of shape (n_edges, 2), got {edges.dtype} of {edges.shape}.")
    pairwise, m = np.asarray(pairwise, dtype=np.float64), len(edges)
    if pairwise.shape not in ((), (m,), (k, k), (m, k, k)):
        raise ValueError(
            f"pairwise must have shape ({k}, {k}) or ({m}, {k}, {k}), or () or ({m},), got "
            f"{pairwise.shape}.")
    sizes = np.array([n] if n else []) if sizes is None else np.asarray(sizes)
    if sizes.ndim != 1 or (sizes.size and sizes.dtype.kind not in "iu"):
        raise ValueError("sizes must be a list of integers, the nodes of each graph.")
    check_choice("inference", inference, INFERENCES)
    y = _labels(y, n)
    if (y < 0).any():
        i = int(np.argmax(y < 0))
        raise ValueError(f"y[{i}] is {y[i]}: labels are 0 ... {k - 1}.")
    found = GraphBatch(scores, edges, pairwise, sizes).losses(
        y, surrogate=surrogate, cost=_cost(cost, k), cost_scale=cost_scale,
        cost_augmented=bool(cost_augmented), temperature=float(temperature), inference=inference,
        attractive=attractive, tol=tol, n_jobs=n_jobs)
    return Losses(found.value, found.upper, (found.of_nodes, found.of_pairs))


def permutation_losses(
    scores: ArrayLike, places: ArrayLike, *,
    surrogate: SurrogateLike = "max_min", cost: ArrayLike | None = None,
    cost_scale: Literal["sum", "mean"] = "sum", cost_augmented: bool = False,
    temperature: float = 1.0, tol: float = 1e-9, gradient: bool = True, n_jobs: int | None = None,
) -> Losses:
    """Losses of permutations of M items.

    Parameters
    ----------
    scores : array-like of shape (n, M, M)
        Scores of each item (row) at each position (column).
    places : array-like of int of shape (n, M)
        True position of each item.
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, \
default="max_min"
    cost : array-like of shape (M, M), default=None
        cost[i, j]: cost of position j for an item whose true position is i. The default is 0-1.
    cost_scale, cost_augmented, temperature, tol, gradient, n_jobs
        As in `chain_losses`.

    Returns
    -------
    losses : Losses
        `gradient` of shape (n, M, M).

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.losses import permutation_losses
    >>> permutation_losses(np.zeros((1, 3, 3)), [[0, 1, 2]], surrogate="max_margin").value.tolist()
    [3.0]
    """
    scores = _scores("scores", scores, 3)
    n, M = scores.shape[:2]
    if scores.shape != (n, M, M) or M == 0:
        raise ValueError(f"scores must have shape (n, M, M), got {scores.shape}.")
    places = np.asarray(places)
    if places.shape != (n, M) or (np.sort(places, axis=1) != np.arange(M)).any():
        raise ValueError(
            f"places must have shape ({n}, {M}), each row a permutation of 0 ... {M - 1}.")
    outputs = PermutationOutputs(places.ravel(), np.full(n, M), _cost(cost, M), cost_scale)
    return _losses(
        outputs, scores, surrogate, cost_augmented, temperature, tol=tol, gradient=gradient,
        n_jobs=n_jobs)


def _losses(outputs, scores, surrogate, cost_augmented, temperature, **options):
    """`block_losses`, with a gradient of the shape of the scores."""
    losses = block_losses(
        with_options(surrogate, cost_augmented, temperature).over(outputs),
        scores.ravel(), **options)
    if losses.gradient is None:
        return losses
    return losses._replace(gradient=losses.gradient.reshape(scores.shape))


def _scores(name, scores, n_axes):
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != n_axes:
        raise ValueError(f"{name} must have {n_axes} axes, got shape {scores.shape}.")
    return scores


def _labels(y, n):
    y = np.asarray(y)
    if y.shape != (n,) or y.dtype.kind not in "iu":
        raise ValueError(f"y must be {n} integer labels, one for each row of scores.")
    return y


def _cost(cost, n_labels):
    cost = 1.0 - np.eye(n_labels) if cost is None else np.asarray(cost, dtype=np.float64)
    if cost.shape != (n_labels, n_labels):
        raise ValueError(f"cost must have shape ({n_labels}, {n_labels}), got {cost.shape}.")
    return cost
