"""Features and outputs of graphs, put together for fits and for predictions."""

import re
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fastm4n.base.label_costs import as_costs, as_kept, name_of, named_costs
from fastm4n.factors import check_constraints, factor_scores
from fastm4n.features._positions import GraphFeatures, LabelGraphFeatures
from fastm4n.outputs import GraphOutputs
from fastm4n.outputs.graph_oracles import EXACT, graph_outputs
from fastm4n.surrogates import LogLoss, MaxMarginLoss, MaxMinLoss, as_surrogate
from fastm4n.tasks import _decoding
from fastm4n.tasks.graph_input import Rows, by_type
from fastm4n.tasks.graph_weights import WeightShapes
from fastm4n.tasks.parameters import RISK_TOL, cost_matrix, warn_of_order

# share of the objective at zero weights up to which an integrality gap is rounding
ROUNDING = 1e-9
# error of the bound of an integrality gap, as a share of the gap of the fit
GAP_SHARE = 0.1

# what edges score under each `pairwise`
PAIRWISE = {
    "full": "tables", "symmetric": "tables", "potts": "equal", "attractive": "equal",
    "displacement": "displaced",
}
# those that compare the labels of two nodes
COMPARING = ("symmetric", "potts", "attractive")


@contextmanager
def named(numbers):
    """Errors name graphs by these numbers, not by their place in a selection.

    Parameters
    ----------
    numbers : ndarray of int
        The number, for the user, of each graph.
    """
    try:
        yield
    except ValueError as error:
        words = re.sub(
            r"\bgraph (\d+)\b", lambda found: f"graph {numbers[int(found[1])]}", str(error))
        raise ValueError(words) from error


def integrality_gaps(loss, features, tol=0.0):
    """How far the loss of each block lies above the exact one, at most, at the features' weights.

    Within a share of tol of the best bound. None for the log surrogate, whose exact objective has
    no bound from below here.
    """
    outputs = loss.outputs
    if isinstance(loss, LogLoss):
        return None
    gaps = np.zeros(outputs.layout.n_blocks)
    if isinstance(loss, MaxMarginLoss):
        _decoding.relaxation_gaps(features, outputs, 0, gaps.size, GAP_SHARE * tol, gaps)
    else:
        # mixtures of labellings against the bound over the larger polytope
        _decoding.mixture_gaps(
            features, MaxMinLoss(outputs), MaxMinLoss(outputs, by_columns=True), 0, gaps.size,
            max(RISK_TOL, GAP_SHARE * tol), gaps)
    return gaps


def integrality(gaps, weights, scale):
    """Fitted attributes, of what `integrality_gaps` gave and the objective at zero weights."""
    if gaps is None:
        return {}
    gap = float(weights @ gaps)
    return {"integrality_gap_": gap, "exact_": gap <= ROUNDING * scale}


class GraphModel(NamedTuple):
    """Outputs with an oracle, its name, and the features that score them."""

    oracle: str
    outputs: GraphOutputs
    features: GraphFeatures


def shapes_and_attributes(
        tagger, classes, node_classes, n_features, n_edge_types, n_edge_features):
    """The `WeightShapes` of a fit, and fitted attributes that do not depend on alpha.

    Parameters
    ----------
    tagger : GraphTagger
    classes, node_classes : ndarray
        As `encoded` gives them.
    n_features, n_edge_types, n_edge_features : int
        Columns of nodes, types of edges and their columns.
    """
    n_types, R = node_classes.shape
    warn_of_order(tagger.cost, classes)
    if tagger.label_features and n_features % R:
        raise ValueError(
            f"label_features=True needs as many features for each of the {R} labels, and X has "
            f"{n_features} columns.")
    shapes = WeightShapes(
        n_types, n_features // R if tagger.label_features else n_features, R, n_edge_types,
        n_edge_features, PAIRWISE[tagger.pairwise], tagger.label_features)
    return shapes, {
        "n_features_in_": n_features, "n_edge_features_in_": n_edge_features,
        "classes_": classes, "node_classes_": node_classes,
        "_cost_held": as_kept(cost_matrix(tagger.cost, classes.size)),
    }


def attributes_of_oracle(oracle):
    """Fitted attributes of this oracle."""
    exact = oracle in EXACT
    return {"oracle_": oracle, "exact_": exact, "integrality_gap_": 0.0 if exact else None}


def choices_and_costs(X, common):
    """The number of labels of each node, None if each has all, and their costs.

    Parameters
    ----------
    X : Graphs
    common : dict
        Fitted attributes that do not depend on alpha.
    """
    node_classes, cost = common["node_classes_"], as_costs(common["_cost_held"])
    n_types, R = node_classes.shape
    n_choices = None
    if (node_classes < 0).any():
        n_choices = (node_classes >= 0).sum(axis=1)[X.node_types]
    every = np.broadcast_to(np.arange(len(cost)), (n_types, len(cost)))
    if R > len(cost):  # states of labels
        return n_choices, cost[np.ix_(node_classes[0], node_classes[0])]
    if not np.array_equal(node_classes, every):
        if name_of(cost) != "zero_one":
            raise ValueError(
                "cost must be 'zero_one' where types of nodes have different labels.")
        cost = named_costs("zero_one", R)
    return n_choices, cost


def types_of_edges(X):
    """The type of each edge."""
    if X.edge_types is None:
        return np.zeros(X.n_edges, dtype=np.intp)
    return X.edge_types.astype(np.intp)


def check_same_labels(X, node_classes, pairwise):
    """An error where an edge compares labels that its nodes number differently."""
    if len(node_classes) == 1 or X.n_edges == 0:
        return
    first, second = node_classes[:, np.newaxis], node_classes[np.newaxis]
    differ = ((first != second) & (first >= 0) & (second >= 0)).any(axis=2)
    graph = np.repeat(np.arange(len(X)), X.edge_lengths)
    ends = X.node_types[X.edges + X.node_offsets[graph, np.newaxis]]
    wrong = np.flatnonzero(differ[ends[:, 0], ends[:, 1]])
    if wrong.size:
        e = int(wrong[0])
        b, (one, other) = int(graph[e]), ends[e].tolist()
        raise ValueError(
            f"edge {e - X.edge_offsets[b]} of graph {b} joins nodes of the types {one} and "
            f"{other}, whose labels differ, and pairwise={pairwise!r} compares them: use "
            "pairwise='full'.")


def check_truth(X, codes):
    """Refuse factors that are no constraints, and true labels that they forbid."""
    for b, factors in enumerate(X.factors or ()):
        if factors is None:
            continue
        check_constraints(factors, f"graph {b}")
        labels = codes[X.node_offsets[b] : X.node_offsets[b + 1]][np.newaxis]
        if labels.min() < 0:
            continue  # of hidden nodes
        for number, factor in enumerate(factors):
            if factor_scores([factor], labels)[0] == -np.inf:
                raise ValueError(
                    f"graph {b}: its true labels are forbidden by factors[{number}], {factor!r}. "
                    "Correct one of the two, or leave the factor out.")


def arguments_of_outputs(tagger, X, shapes, common, codes=None):
    """Arguments of `graph_outputs` that are of graphs which are not empty.

    Parameters
    ----------
    tagger, X, shapes, common, codes
        As of `graph_model`.
    """
    n_choices, cost = choices_and_costs(X, common)
    edge_types = types_of_edges(X)
    more = {} if X.factors is None else {"factors": X.factors}
    if tagger.pairwise in COMPARING:
        check_same_labels(X, common["node_classes_"], tagger.pairwise)
    if shapes.pairs == "displaced":
        columns = tagger.grid_shape[1]
        more.update(shifts=common["shifts_"][edge_types], width=columns, unit=float(columns))
    y = np.zeros(X.n_nodes, dtype=np.intc) if codes is None else np.maximum(codes, 0)
    return dict(
        y=y, n_nodes=X.lengths, edges=X.edges, n_edges=X.edge_lengths, cost=cost,
        pairs=shapes.pairs, n_choices=n_choices, part_weights=X.node_weights,
        cost_scale=tagger.cost_scale, n_types=shapes.n_edge_types,
        edge_types=None if shapes.n_edge_features else edge_types, **more)


def rows_of_nodes(X, shapes, intercept):
    """Features of nodes as the compiled loops read them.

    Parameters
    ----------
    X : Graphs
    shapes : WeightShapes
    intercept : float
        Value of the constant feature of each node.
    """
    if not shapes.per_label:
        return by_type(X.node_features, X.node_types, shapes.n_node_types, intercept)
    values = X.node_features
    values = values.toarray() if sparse.issparse(values) else values
    return Rows(np.ascontiguousarray(values, dtype=np.float64), 0.0)


def rows_of_edges(X, shapes, per_edge):
    """The same of edges, or, unless each has its own, of the types that edges share them by."""
    E = shapes.n_edge_types
    if not per_edge:
        return by_type(np.zeros((E, 0)), np.arange(E), E, 1.0)
    given = np.zeros((X.n_edges, 0)) if X.edge_features is None else X.edge_features
    return by_type(given, types_of_edges(X), E, 1.0)


def graph_features(tagger, X, shapes, outputs, nodes, edges, **more):
    """Features that score outputs of graphs.

    Parameters
    ----------
    tagger, X, shapes
        As of `graph_model`.
    outputs : GraphOutputs
    nodes, edges : Rows
        Results of `rows_of_nodes` and `rows_of_edges`.
    **more
        `weights` and `edge_weights`, or `like` and `norms`, as of `GraphFeatures`.
    """
    E, is_symmetric = shapes.n_edge_types, tagger.pairwise == "symmetric"
    if outputs.per_edge:
        of_edges = edges.values, X.edge_offsets[:-1], X.edge_lengths, edges.intercept
    else:
        of_edges = (
            edges.values, np.zeros(len(X), dtype=np.intp), np.full(len(X), E), edges.intercept)
    starts = X.node_offsets[:-1]
    more["diagonal"] = outputs.pairs != shapes.pairs
    if shapes.per_label:
        types = np.zeros(X.n_nodes, dtype=np.intp) if X.node_types is None else X.node_types
        return LabelGraphFeatures(
            nodes.values, types, shapes.n_node_types, starts, outputs.layout, *of_edges,
            outputs.pairs, is_symmetric, **more)
    return GraphFeatures(
        nodes.values, starts, outputs.layout, nodes.intercept, *of_edges, outputs.pairs,
        is_symmetric, **more)


def graph_model(tagger, X, shapes, common, codes=None, inference=None, weights=(None, None)):
    """Outputs and features of graphs that are not empty.

    Parameters
    ----------
    tagger : GraphTagger
        For its parameters.
    X : Graphs
    shapes : WeightShapes
    common : dict
        Fitted attributes that do not depend on alpha.
    codes : ndarray of int of shape (n_nodes,), default=None
        True labels, -1 of hidden nodes. None for predictions.
    inference : str, default=None
        The tagger's own by default.
    weights : pair of ndarray, default=(None, None)
        Rows of weights of nodes and edges to use as they are; for fits there are none.
    """
    oracle, outputs = graph_outputs(
        tagger.inference if inference is None else inference, as_surrogate(tagger.surrogate),
        tagger.pairwise == "attractive",
        **arguments_of_outputs(tagger, X, shapes, common, codes))
    if codes is not None:
        check_truth(X, codes)
    intercept = 1.0 if codes is None else float(tagger.fit_intercept)
    features = graph_features(
        tagger, X, shapes, outputs, rows_of_nodes(X, shapes, intercept),
        rows_of_edges(X, shapes, outputs.per_edge), weights=weights[0], edge_weights=weights[1])
    return GraphModel(oracle, outputs, features)
