"""Types that many signatures name, for type checkers.

Modules import it below ``if TYPE_CHECKING`` only, never at run time.
"""

from __future__ import annotations

from os import PathLike
from typing import IO, Any, Literal, Protocol, TypeAlias, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, csr_matrix

__all__ = [
    "CSR", "Array", "ArrayLike", "BoolArray", "Buffer", "Cost", "FloatArray", "IntArray",
    "Parts", "RandomState", "Source", "StrPath", "SurrogateName",
]

# what comes out
Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.integer[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]
CSR: TypeAlias = Union[csr_matrix, csr_array]
# scores, points and weights of a block: one array for each kind of part
Parts: TypeAlias = tuple[FloatArray, ...]

# what goes in
StrPath: TypeAlias = Union[str, PathLike[str]]
# a path, or a file that is open
Source: TypeAlias = Union[StrPath, IO[Any]]
RandomState: TypeAlias = Union[int, np.random.RandomState, None]


class Buffer(Protocol):
    """Objects with ``__array__``, such as data frames and Arrow tables."""

    def __array__(self, *args: Any, **kwargs: Any) -> NDArray[Any]: ...


SurrogateName: TypeAlias = Literal["log", "max_margin", "max_min"]
Cost: TypeAlias = Union[Literal["zero_one", "absolute", "squared"], ArrayLike]
