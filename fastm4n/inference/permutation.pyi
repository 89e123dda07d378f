from typing import Any, Literal, overload

from numpy.typing import ArrayLike

from fastm4n.base.types import FloatArray

MAX_SUBSET_ITEMS: int
MAX_RYSER_ITEMS: int

_Potentials = tuple[FloatArray, FloatArray]

# numbers of one problem are numbers, those of a batch arrays with one for each
@overload
def sinkhorn(
    scores: ArrayLike, *, tol: float = 1e-6, max_iter: int = 1000,
    potentials: tuple[ArrayLike, ArrayLike] | None = None,
    return_potentials: Literal[False] = False, rounding: bool = True,
) -> tuple[FloatArray, Any]: ...
@overload
def sinkhorn(
    scores: ArrayLike, *, tol: float = 1e-6, max_iter: int = 1000,
    potentials: tuple[ArrayLike, ArrayLike] | None = None, return_potentials: Literal[True],
    rounding: bool = True,
) -> tuple[FloatArray, Any, _Potentials]: ...
@overload
def sinkhorn(
    scores: ArrayLike, *, tol: float = 1e-6, max_iter: int = 1000,
    potentials: tuple[ArrayLike, ArrayLike] | None = None, return_potentials: bool,
    rounding: bool = True,
) -> tuple[Any, ...]: ...
def permanent(matrix: ArrayLike) -> Any: ...
def permutation_marginals(scores: ArrayLike) -> tuple[FloatArray, Any]: ...
def max_min_permutation(
    scores: ArrayLike, cost: ArrayLike | None = None, *,
    oracle: Literal["column_generation", "mirror_prox"] = "column_generation", tol: float = 1e-9,
    n_iter: int | None = None,
) -> tuple[FloatArray, Any, Any, Any]: ...

def __getattr__(name: str) -> Any: ...
