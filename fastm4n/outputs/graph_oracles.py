"""Which oracle labelled graphs have: chosen once for all graphs of a fit or of a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from fastm4n.outputs._graph import (
    CutOutputs,
    DecompositionOutputs,
    ExactOutputs,
    ForestOutputs,
    NodeOutputs,
    RoofOutputs,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

    from numpy.typing import ArrayLike, NDArray

    from fastm4n.base.types import Cost, IntArray
    from fastm4n.outputs._graph import GraphOutputs

INFERENCES = ("auto", "forest", "min_cut", "exact", "lp")
ORACLES = {
    "nodes": NodeOutputs, "forest": ForestOutputs, "min_cut": CutOutputs,
    "few_states": ExactOutputs, "roof": RoofOutputs, "decomposition": DecompositionOutputs,
}
# those whose best outputs are best, whatever the scores
EXACT = ("nodes", "forest", "min_cut", "few_states")


def graph_with_cycle(
    n_nodes: NDArray[np.int64], edges: IntArray, n_edges: NDArray[np.int64],
) -> int | None:
    """Number of the first graph that has a cycle, or None.

    Parameters
    ----------
    n_nodes, n_edges : ndarray of shape (n_graphs,)
    edges : ndarray of shape (n_edges_of_all, 2)
        Counted within the graphs, no pair twice.
    """
    starts = np.cumsum(n_nodes) - n_nodes
    ends = edges + np.repeat(starts, n_edges)[:, np.newaxis]
    size = int(np.sum(n_nodes))
    joined = sparse.coo_array(
        (np.ones(len(ends), dtype=np.int8), (ends[:, 0], ends[:, 1])), shape=(size, size))
    _, component = connected_components(joined.tocsr(), directed=False)
    first = np.unique(component, return_index=True)[1]
    of_graph = np.searchsorted(np.cumsum(n_nodes), first, side="right")
    excess = n_edges - (n_nodes - np.bincount(of_graph, minlength=len(n_nodes)))
    cyclic = np.flatnonzero(excess)
    return int(cyclic[0]) if cyclic.size else None


class Traits(NamedTuple):
    """What the choice of an oracle goes by, of all graphs together.

    Attributes
    ----------
    n_edges : int
    cyclic : int or None
        Number of the first graph that has a cycle, where it is asked for.
    has_two : bool
        Whether each node has two labels, where there are no more.
    has_factors : bool
    """

    n_edges: int
    cyclic: int | None
    has_two: bool
    has_factors: bool


def asks_for_cycles(inference: str) -> bool:
    """Whether the choice goes by `Traits.cyclic`."""
    return inference in ("auto", "forest")


def oracles_of(
    inference: str, surrogate: Any, attractive: bool, n_labels: int, traits: Traits,
) -> Sequence[str]:
    """Names of oracles, the first of which is to be taken if it can be made, or the second.

    Parameters
    ----------
    inference, surrogate, attractive
        As of `graph_outputs`.
    n_labels : int
    traits : Traits

    Returns
    -------
    names : list of str
        One name or two; only "few_states", which is for small graphs, stands before another.
    """
    needs_tangents = surrogate.needs == "has_tangent"
    if needs_tangents and (traits.has_factors or inference not in ("auto", "forest")):
        raise ValueError(
            f"surrogate={surrogate!r} needs graphs without cycles and without factors, and "
            f"inference='forest' or 'auto' (got {inference!r}).")
    if traits.has_factors:
        if inference not in ("auto", "exact"):
            raise ValueError(
                f"inference={inference!r} finds best labellings without factors: use "
                "inference='auto' or 'exact' for graphs that have them.")
        return ["few_states"]
    if inference in ("auto", "forest"):
        if traits.n_edges == 0:
            return ["nodes"]
        if traits.cyclic is None:
            return ["forest"]
        if inference == "forest" or needs_tangents:
            why = f"surrogate={surrogate!r}" if needs_tangents else "inference='forest'"
            raise ValueError(
                f"{why} needs graphs without cycles, and graph {traits.cyclic} has one: use "
                + ("another surrogate." if needs_tangents else "inference='auto'."))
    binary, is_log = n_labels == 2, surrogate.name == "log"
    can_cut = binary and attractive and not is_log
    if inference == "min_cut" and not can_cut:
        why = (
            "log losses need marginals, which cuts do not give" if is_log
            else f"there are {n_labels} labels, and cuts are for two" if not binary
            else "pairs may be other than attractive: use pairwise='attractive'")
        raise ValueError(f"inference='min_cut' cannot be used: {why}.")
    if can_cut and (inference == "min_cut" or (inference == "auto" and traits.has_two)):
        return ["min_cut"]
    names = ["few_states"] if inference in ("auto", "exact") else []
    if inference == "exact" and (not binary or is_log):
        return names
    return [*names, "roof" if binary and not is_log else "decomposition"]


def outputs_by(oracle: str, inference: str, surrogate: Any, **given: Any) -> Any:
    """Outputs that have the oracle of this name.

    Parameters
    ----------
    oracle : str
        In `ORACLES`.
    inference, surrogate
        As of `graph_outputs`.
    **given
        Arguments of `GraphOutputs`; and `factors`, where the oracle is "few_states".
    """
    if oracle == "forest" and len(given["cost"]) == 2 and surrogate.name == "max_min":
        # the local polytope of a forest is that of its labellings, and over it the game is one or
        # two cuts, where column generation may need hundreds of labellings
        return RoofOutputs(**given)
    if oracle == "roof":
        return RoofOutputs(**given, exact=inference == "exact")
    if oracle == "decomposition" and surrogate.name == "log":
        if given.get("pairs") == "displaced":
            raise ValueError(
                "surrogate='log' over graphs with cycles is not for displacements: use "
                "'max_margin' or 'max_min', or, where graphs are small, inference='exact'.")
        # the entropy needs tables of each edge; features see that edges of a type share weights
        # and that tables of equal labels, or of both labels, are one number
        given.update(edge_types=None, pairs="tables")
    return ORACLES[oracle](**given)


def graph_outputs(
    inference: Literal["auto", "forest", "min_cut", "exact", "lp"],
    surrogate: Any, attractive: bool, y: IntArray, n_nodes: NDArray[np.int64], edges: ArrayLike,
    n_edges: NDArray[np.int64], cost: Cost, **more: Any,
) -> tuple[str, GraphOutputs]:
    """Outputs of labelled graphs with the oracle that `inference` asks for.

    Parameters
    ----------
    inference : {"auto", "forest", "min_cut", "exact", "lp"}
        "auto" takes the first that is exact for these graphs: forests, minimum cuts where pairs
        are sure to be attractive, few states; else the linear program.
    surrogate : object of fastm4n.surrogates
    attractive : bool
        Whether pairs of two labels are attractive whatever the weights.
    y, n_nodes, edges, n_edges, cost, **more
        As `GraphOutputs` takes them; and `factors`, as `ExactOutputs` takes them, which alone has
        any.

    Returns
    -------
    name : str
        Of the oracle, in `ORACLES`.
    outputs : GraphOutputs
    """
    if more.get("factors") is None:
        more.pop("factors", None)
    n_nodes, edges, n_edges = map(np.asarray, (n_nodes, edges, n_edges))
    cyclic, n_choices = None, more.get("n_choices")
    if asks_for_cycles(inference) and len(edges) and "factors" not in more:
        # where all graphs have the same edges, those of one are given
        first = slice(1 if len(edges) < n_edges.sum() else None)
        cyclic = graph_with_cycle(n_nodes[first], edges, n_edges[first])
    traits = Traits(
        len(edges), cyclic, n_choices is None or bool(np.min(n_choices, initial=2) == 2),
        "factors" in more)
    *small, last = oracles_of(inference, surrogate, attractive, len(cost), traits)
    given = dict(y=y, n_nodes=n_nodes, edges=edges, n_edges=n_edges, cost=cost, **more)
    for name in small:
        try:
            return name, outputs_by(name, inference, surrogate, **given)
        except ValueError:
            pass  # too large
    return last, outputs_by(last, inference, surrogate, **given)
