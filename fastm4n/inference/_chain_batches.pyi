from typing import Any

from numpy.typing import ArrayLike

from fastm4n.base.types import Array, FloatArray, IntArray

def max_marginals(
    unary: ArrayLike, pairwise: ArrayLike, *, allowed: ArrayLike | None = None,
    fixed: ArrayLike | None = None,
) -> FloatArray: ...
def span_marginals(
    nodes: ArrayLike, edges: ArrayLike, kinds: ArrayLike, starts: ArrayLike, continues: ArrayLike,
    closes: ArrayLike | None = None, *, spans: ArrayLike | None = None, least: float = 0.0,
) -> tuple[IntArray, FloatArray]: ...
def checked_rules(
    kinds: ArrayLike, starts: ArrayLike, continues: ArrayLike, closes: ArrayLike | None, R: int,
) -> tuple[IntArray, Array, Array, Array]: ...
def checked_spans(spans: ArrayLike, n_kinds: int, T: int) -> IntArray: ...

def __getattr__(name: str) -> Any: ...
