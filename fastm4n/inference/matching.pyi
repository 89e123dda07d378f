from typing import Any

from numpy.typing import ArrayLike

from fastm4n.base.types import FloatArray, IntArray

MAX_TABLE: int

# the value of one problem is a number, those of a batch an array with one for each
def too_large_for_sums(n_rows: int, n_columns: int) -> str | None: ...
def best_matching(
    scores: ArrayLike, allowed: ArrayLike | None = None, complete: bool = False,
) -> tuple[IntArray, Any]: ...
def matching_marginals(
    scores: ArrayLike, allowed: ArrayLike | None = None, complete: bool = False,
) -> tuple[FloatArray, Any]: ...

def __getattr__(name: str) -> Any: ...
