from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from fastm4n.base.types import BoolArray, FloatArray, IntArray
from fastm4n.inference._forest import GraphProblem

class RoofDuality(NamedTuple):
    marginals: FloatArray
    pairs: FloatArray
    value: float
    bound: float
    n_left: int
    labels: IntArray | None
    score: float | None
    exact: bool

class TableGraph:
    @property
    def max_nodes(self) -> int: ...
    @property
    def max_edges(self) -> int: ...
    def __init__(self, max_nodes: int, max_edges: int) -> None: ...

def roof_duality(
    node_scores: ArrayLike, edges: ArrayLike, edge_scores: ArrayLike,
    cost: ArrayLike | None = None, weights: ArrayLike | None = None, *, decode: bool = True,
) -> RoofDuality: ...
def refuses_roof(problem: GraphProblem) -> str | None: ...
def roof_best(
    p: GraphProblem, repeats: int = 1, decode: bool = True,
) -> tuple[IntArray, float, float, BoolArray]: ...
def as_array(name: str, values: ArrayLike, shape: tuple[int | None, ...]) -> FloatArray: ...

def __getattr__(name: str) -> Any: ...
