from typing import Any

from numpy.typing import ArrayLike

from fastm4n.base.types import Array, FloatArray

MAX_ORDER_ITEMS: int

# numbers of one problem are numbers, those of a batch arrays with one for each
def best_linear_extension(scores: ArrayLike, preferences: ArrayLike) -> tuple[Array, Any, Any]: ...
def linear_extension_marginals(
    scores: ArrayLike, preferences: ArrayLike) -> tuple[FloatArray, Any]: ...

def __getattr__(name: str) -> Any: ...
