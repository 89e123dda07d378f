from typing import Any

from fastm4n.base.types import FloatArray, IntArray
from fastm4n.outputs._base import Layout, Workspace
from fastm4n.outputs._graph import GraphOutputs

class RoofWorkspace(Workspace):
    def __init__(self, size: int, layout: Layout, max_edges: int) -> None: ...

class RoofOutputs(GraphOutputs):
    @property
    def exact(self) -> bool: ...
    def __init__(
        self, y: IntArray, n_nodes: IntArray, edges: IntArray, n_edges: IntArray,
        cost: FloatArray | None, pairs: str = "tables", edge_types: IntArray | None = None,
        n_types: int = 1, n_choices: IntArray | None = None,
        part_weights: FloatArray | None = None, shifts: Any = None, width: int = 1,
        unit: float = 1.0, cost_scale: str = "sum", exact: bool = False,
    ) -> None: ...
    def arguments(self) -> tuple[Any, ...]: ...
    @property
    def n_left(self) -> Any: ...
    @property
    def proven(self) -> Any: ...
    @property
    def oracle_cost(self) -> float: ...
    def workspace(self, size: int, with_marginals: bool = False) -> Any: ...
