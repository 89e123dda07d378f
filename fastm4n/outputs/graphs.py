"""Which oracle labelled graphs have: chosen once for all graphs of a fit or of a prediction."""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from fastm4n.outputs._cut import CutOutputs
from fastm4n.outputs._decomposition import DecompositionOutputs
from fastm4n.outputs._few_states import ExactOutputs
from fastm4n.outputs._forest import ForestOutputs, NodeOutputs
from fastm4n.outputs._roof import RoofOutputs

INFERENCES = ("auto", "forest", "min_cut", "exact", "lp")
ORACLES = {
    "nodes": NodeOutputs, "forest": ForestOutputs, "min_cut": CutOutputs,
    "few_states": ExactOutputs, "roof": RoofOutputs, "decomposition": DecompositionOutputs,
}
# those whose best outputs are best, whatever the scores
EXACT = ("nodes", "forest", "min_cut", "few_states")


def graph_with_cycle(n_nodes, edges, n_edges):
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


def graph_outputs(inference, surrogate, attractive, y, n_nodes, edges, n_edges, cost, **more):
    """Outputs of labelled graphs with the oracle that `inference` asks for.

    Parameters
    ----------
    inference : {"auto", "forest", "min_cut", "exact", "lp"}
        "auto" takes the first that is exact for these graphs: forests, minimum cuts where pairs
        are sure to be attractive, few states; else the linear program.
    surrogate : {"max_min", "max_margin", "log", "boost"}
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
    if surrogate == "boost" and inference not in ("auto", "forest"):
        raise ValueError(
            f"surrogate='boost' needs tangents of marginals, which inference={inference!r} does "
            "not give: use inference='forest', for graphs without cycles.")
    if more.get("factors") is None:
        more.pop("factors", None)
    elif surrogate == "boost":
        raise ValueError("surrogate='boost' is for graphs without cycles and without factors.")
    elif inference in ("auto", "exact"):
        return "few_states", ExactOutputs(y, n_nodes, edges, n_edges, cost, **more)
    else:
        raise ValueError(
            f"inference={inference!r} finds best labellings without factors: use inference='auto' "
            "or 'exact' for graphs that have them.")
    given = dict(y=y, n_nodes=n_nodes, edges=edges, n_edges=n_edges, cost=cost, **more)
    binary, is_log = len(cost) == 2, surrogate == "log"
    if inference in ("auto", "forest") and len(edges) == 0:
        return "nodes", NodeOutputs(**given)
    if inference in ("auto", "forest"):
        n_nodes, n_edges = np.asarray(n_nodes), np.asarray(n_edges)
        # where all graphs have the same edges, those of one are given
        first = slice(1 if len(edges) < n_edges.sum() else None)
        cyclic = graph_with_cycle(n_nodes[first], np.asarray(edges), n_edges[first])
        if cyclic is None and binary and surrogate == "max_min":
            # the local polytope of a forest is that of its labellings, and over it the game is one
            # or two cuts, where column generation may need hundreds of labellings
            return "forest", RoofOutputs(**given)
        if cyclic is None:
            return "forest", ForestOutputs(**given)
        if inference == "forest" or surrogate == "boost":
            why = "inference='forest'" if inference == "forest" else "surrogate='boost'"
            raise ValueError(
                f"{why} needs graphs without cycles, and graph {cyclic} has one: use "
                + ("inference='auto'." if surrogate != "boost" else "another surrogate."))
    can_cut = binary and attractive and not is_log
    if inference == "min_cut" and not can_cut:
        why = (
            "surrogate='log' needs marginals, which cuts do not give" if is_log
            else f"there are {len(cost)} labels, and cuts are for two" if not binary
            else "pairs may be other than attractive: use pairwise='attractive'")
        raise ValueError(f"inference='min_cut' cannot be used: {why}.")
    n_choices = more.get("n_choices")
    has_two = n_choices is None or np.min(n_choices, initial=2) == 2
    if can_cut and (inference == "min_cut" or (inference == "auto" and has_two)):
        return "min_cut", CutOutputs(**given)
    if inference in ("auto", "exact"):
        try:
            return "few_states", ExactOutputs(**given)
        except ValueError:
            if inference == "exact" and (not binary or is_log):
                raise
    if binary and not is_log:
        return "roof", RoofOutputs(**given, exact=inference == "exact")
    if is_log:
        if more.get("pairs") == "displaced":
            raise ValueError(
                "surrogate='log' over graphs with cycles is not for displacements: use "
                "'max_margin' or 'max_min', or, where graphs are small, inference='exact'.")
        # the entropy needs tables of each edge; features see that edges of a type share weights
        # and that tables of equal labels, or of both labels, are one number
        given.update(edge_types=None, pairs="tables")
    return "decomposition", DecompositionOutputs(**given)
