from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastm4n.base.types import FloatArray, IntArray

# float32 scores give float32 marginals
_Floating = NDArray[np.floating[Any]]

@overload
def viterbi(
    unary: ArrayLike, pairwise: ArrayLike, *, lengths: None = None,
    allowed: ArrayLike | None = None, fixed: ArrayLike | None = None,
) -> tuple[IntArray, float]: ...
@overload
def viterbi(
    unary: ArrayLike, pairwise: ArrayLike, *, lengths: ArrayLike,
    allowed: ArrayLike | None = None, fixed: ArrayLike | None = None,
) -> tuple[IntArray, FloatArray]: ...
def viterbi_kbest(
    unary: ArrayLike, pairwise: ArrayLike, k: int, *, allowed: ArrayLike | None = None,
    fixed: ArrayLike | None = None,
) -> tuple[IntArray, FloatArray]: ...
@overload
def sum_product(
    unary: ArrayLike, pairwise: ArrayLike, *, lengths: None = None,
    edges: Literal["full", "sum"] = "full", allowed: ArrayLike | None = None,
    fixed: ArrayLike | None = None,
) -> tuple[_Floating, _Floating, float]: ...
@overload
def sum_product(
    unary: ArrayLike, pairwise: ArrayLike, *, lengths: ArrayLike,
    edges: Literal["full", "sum"] = "full", allowed: ArrayLike | None = None,
    fixed: ArrayLike | None = None,
) -> tuple[_Floating, _Floating, FloatArray]: ...
@overload
def chain_entropy(
    unary: ArrayLike, pairwise: ArrayLike, *, lengths: None = None,
    allowed: ArrayLike | None = None, fixed: ArrayLike | None = None,
) -> float: ...
@overload
def chain_entropy(
    unary: ArrayLike, pairwise: ArrayLike, *, lengths: ArrayLike,
    allowed: ArrayLike | None = None, fixed: ArrayLike | None = None,
) -> FloatArray: ...
def max_min_chain(
    unary: ArrayLike, pairwise: ArrayLike, cost: ArrayLike | None = None, *,
    oracle: Literal["column_generation", "mirror_prox"] = "column_generation", tol: float = 1e-9,
    n_iter: int | None = None,
) -> tuple[FloatArray, FloatArray, float, float, int]: ...

def __getattr__(name: str) -> Any: ...
