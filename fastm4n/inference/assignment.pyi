from typing import Any, Literal, overload

from numpy.typing import ArrayLike

from fastm4n.base.types import Array, FloatArray, IntArray

def assign_at_once(
    costs: Any, sizes: list[int] | None, maximize: bool,
) -> tuple[IntArray, IntArray] | None: ...
def assign_range(
    costs: Array, widths: IntArray | None, side_by_side: bool, maximize: bool, start: int,
    stop: int, rows: IntArray, columns: IntArray,
) -> int: ...
@overload
def linear_assignment(
    cost: ArrayLike, maximize: bool = False, *, potentials: ArrayLike | None = None,
    return_potentials: Literal[False] = False,
) -> tuple[IntArray, IntArray]: ...
@overload
def linear_assignment(
    cost: ArrayLike, maximize: bool = False, *, potentials: ArrayLike | None = None,
    return_potentials: Literal[True],
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]: ...
@overload
def linear_assignment(
    cost: ArrayLike, maximize: bool = False, *, potentials: ArrayLike | None = None,
    return_potentials: bool,
) -> tuple[Any, ...]: ...
