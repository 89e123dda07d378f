from typing import Any, Literal, NamedTuple

from numpy.typing import ArrayLike

from fastm4n.base.types import FloatArray

class Tangent(NamedTuple):
    nodes: FloatArray
    edges: FloatArray | None
    log_partition: Any
    d_nodes: FloatArray
    d_edges: FloatArray | None
    d_log_partition: Any

def simplex_tangent(scores: ArrayLike, direction: ArrayLike) -> Tangent: ...
def chain_tangent(
    unary: ArrayLike, pairwise: ArrayLike, d_unary: ArrayLike, d_pairwise: ArrayLike | None = None,
    *, lengths: ArrayLike | None = None, edges: Literal["full", "sum"] = "full",
) -> Tangent: ...
def graph_tangent(
    node_scores: ArrayLike, edges: ArrayLike, edge_scores: ArrayLike, d_node_scores: ArrayLike,
    d_edge_scores: ArrayLike | None = None,
) -> Tangent: ...
