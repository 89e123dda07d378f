from typing import Any, Literal, overload

from numpy.typing import ArrayLike

from fastm4n.base.types import BoolArray, FloatArray, IntArray

def grid_edges(shape: tuple[int, int], connectivity: Literal[4, 8] = 4) -> IntArray: ...
def checked_edges(edges: ArrayLike, n_nodes: int) -> IntArray: ...
@overload
def min_cut(
    source: ArrayLike, sink: ArrayLike, edges: ArrayLike, capacities: ArrayLike,
    reverse_capacities: ArrayLike | None = None, *, flow: ArrayLike | None = None,
    return_flow: Literal[False] = False,
) -> tuple[BoolArray, float, float]: ...
@overload
def min_cut(
    source: ArrayLike, sink: ArrayLike, edges: ArrayLike, capacities: ArrayLike,
    reverse_capacities: ArrayLike | None = None, *, flow: ArrayLike | None = None,
    return_flow: Literal[True],
) -> tuple[BoolArray, float, float, FloatArray]: ...
@overload
def min_cut(
    source: ArrayLike, sink: ArrayLike, edges: ArrayLike, capacities: ArrayLike,
    reverse_capacities: ArrayLike | None = None, *, flow: ArrayLike | None = None,
    return_flow: bool,
) -> tuple[Any, ...]: ...

def __getattr__(name: str) -> Any: ...
