"""Graph taggers with soft constraints: their factor graphs, and the way back of the weights."""

from dataclasses import dataclass

import numpy as np

from fastm4n.factors import CountFactor
from fastm4n.research._factor_graphs import FactorGraphs
from fastm4n.research._soft import SoftProblem, with_constant
from fastm4n.tasks.graph_input import by_type
from fastm4n.tasks.graph_model import check_truth, choices_and_costs, types_of_edges
from fastm4n.tasks.graph_weights import WeightShapes

# pairs of factor graphs by `pairwise`
PAIRS = {"full": "tables", "symmetric": "symmetric", "potts": "equal"}


def check_soft_graphs(tagger):
    """Refuse what graph taggers have and soft constraints have not."""
    if tagger.inference != "soft":
        return
    if tagger.pairwise not in PAIRS:
        raise ValueError(
            f"inference='soft' needs pairwise of {tuple(PAIRS)}, got {tagger.pairwise!r}: weights "
            "within bounds are for other fits.")
    if tagger.label_features:
        raise ValueError(
            "label_features=True, weights that labels share, is not supported by inference='soft'.")


@dataclass
class SoftGraphProblem(SoftProblem):
    """The problem of a `GraphTagger` with ``inference="soft"``.

    Attributes
    ----------
    shapes : WeightShapes
    pairwise : str
    """

    shapes: WeightShapes
    pairwise: str

    def weights_of(self, node_weights, factor_weights):
        shapes = self.shapes
        packed, packed_edges = shapes.zeros()
        R, columns = node_weights.shape
        packed[:columns, :R] = node_weights.T
        if shapes.n_edge_features:
            rows = factor_weights.T
        else:
            # a row for each type that has edges, each of one number for a row of the table
            rows = factor_weights.reshape(-1, self._n_rows())
        at = packed_edges[: len(rows)]
        if self.pairwise == "potts":
            at[:, 0] = rows[:, 0]
        else:
            if self.pairwise == "symmetric":
                first, second = np.indices((R, R))
                high, low = np.maximum(first, second), np.minimum(first, second)
                rows = rows[:, high * (high + 1) // 2 + low]
            at.reshape(len(rows), R, -1)[:, :, :R] = rows.reshape(-1, R, R)
        return shapes.fitted(packed, packed_edges)

    def _n_rows(self):
        R = self.shapes.n_labels
        return {"full": R * R, "symmetric": R * (R + 1) // 2, "potts": 1}[self.pairwise]


def _counts(b, factors, sizes):
    """The factors of graph b, all counts of nodes of two labels; none for None."""
    for number, factor in enumerate(factors or ()):
        if not isinstance(factor, CountFactor):
            raise ValueError(
                f"graph {b}: inference='soft' has factors that are counts, and factors[{number}] "
                f"is a {type(factor).__name__}: use CountFactor, or inference='exact'.")
        wrong = factor.nodes[sizes[factor.nodes] != 2]
        if wrong.size:
            raise ValueError(
                f"graph {b}: factors[{number}] counts node {wrong[0]}, which has "
                f"{sizes[wrong[0]]} labels: counts are for nodes with labels 0 and 1.")
    return factors or ()


def soft_problem(tagger, X, shapes, common, codes, blocks, task):
    """The `SoftGraphProblem` of graphs that are not empty; arguments as in `graph_model`."""
    n_choices, cost = choices_and_costs(X, common)
    edge_types, E, factor_X = types_of_edges(X), shapes.n_edge_types, None
    if shapes.n_edge_features:
        edges = by_type(X.edge_features, edge_types, E, 1.0)
        factor_X = with_constant(edges.values, edges.intercept)
    graphs = FactorGraphs.of_edges(
        X.lengths, X.edges, X.edge_lengths, shapes.n_labels, PAIRS[tagger.pairwise],
        None if shapes.n_edge_features else edge_types, n_choices)
    if X.factors is not None:
        check_truth(X, codes)
        sizes = np.split(graphs.node_labels, X.node_offsets[1:-1])
        graphs = graphs.with_counts(
            [_counts(b, *given) for b, given in enumerate(zip(X.factors, sizes, strict=True))])
    nodes = by_type(
        X.node_features, X.node_types, shapes.n_node_types, float(tagger.fit_intercept))
    part_weights = np.ones(X.n_nodes) if X.node_weights is None else X.node_weights
    if tagger.cost_scale == "mean":
        part_weights = part_weights / np.repeat(X.lengths, X.lengths)
    common.update(oracle_="soft", exact_=False, integrality_gap_=None)
    return SoftGraphProblem(
        None, None, blocks, common, task, graphs, with_constant(nodes.values, nodes.intercept),
        factor_X, codes, graphs.heights_of_costs(codes, cost, part_weights), "linear", shapes,
        tagger.pairwise)
