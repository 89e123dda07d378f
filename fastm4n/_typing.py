"""Types that many signatures name, for type checkers.

Nothing imports this at run time: modules name what is in it below ``if TYPE_CHECKING``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import IO, Any, Literal, Protocol, TypeAlias, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, csr_matrix, sparray, spmatrix

from fastm4n._stored_graphs import StoredGraphs
from fastm4n._stored_rows import Rows
from fastm4n._stored_sequences import StoredSequences
from fastm4n.factors import CountFactor, FactorTables
from fastm4n.graphs import Graphs
from fastm4n.penalties import L2, ElasticNet, Group
from fastm4n.sequences import Sequences
from fastm4n.solvers.block_frank_wolfe import BlockFrankWolfe
from fastm4n.solvers.interior_point import InteriorPoint
from fastm4n.solvers.label_newton import LabelNewton
from fastm4n.solvers.out_of_core import OutOfCore
from fastm4n.solvers.quasi_newton import QuasiNewton

__all__ = [
    "CSR", "Array", "ArrayLike", "BoolArray", "Buffer", "Cost", "Factors", "FloatArray",
    "GraphData", "IntArray", "Labellings", "Masks", "Matrix", "Penalties", "RandomState",
    "SequenceData", "Solvers", "Source", "StrPath",
]

# what comes out
Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.integer[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]
CSR: TypeAlias = Union[csr_matrix, csr_array]

# what goes in
StrPath: TypeAlias = Union[str, PathLike[str]]
# a path, or a file that is open
Source: TypeAlias = Union[StrPath, IO[Any]]
RandomState: TypeAlias = Union[int, np.random.RandomState, None]


class Buffer(Protocol):
    """What has ``__array__``, as data frames do; tables of Arrow and their like have it, too."""

    def __array__(self, *args: Any, **kwargs: Any) -> NDArray[Any]: ...


# rows of features: arrays, lists of rows, data frames, sparse matrices, rows on disk
Matrix: TypeAlias = Union[ArrayLike, Buffer, spmatrix, sparray, Rows]
# features of sequences: one matrix each, or the rows of all with `lengths`
SequenceData: TypeAlias = Union[
    Sequences, StoredSequences, Matrix, Sequence[Matrix],
    Iterable[Sequence[Union[str, Iterable[str], Mapping[str, Any]]]],
]
# labels of sequences or of the nodes of graphs: one array or list each, or those of all
Labellings: TypeAlias = Union[Sequences, StoredSequences, ArrayLike, Sequence[ArrayLike]]
GraphData: TypeAlias = Union[Graphs, StoredGraphs, Sequence[tuple[Any, ...]]]
Factors: TypeAlias = Union[
    FactorTables, CountFactor, tuple[Any, Any],
    Sequence[Union[FactorTables, CountFactor, tuple[Any, Any]]],
]

# labels that are allowed: a bool array for each sequence or graph
Masks: TypeAlias = Union[Sequences, ArrayLike, Sequence[ArrayLike]]

# choices
Cost: TypeAlias = Union[Literal["zero_one", "absolute", "squared"], ArrayLike]
Penalties: TypeAlias = Union[L2, ElasticNet, Group]
Solvers: TypeAlias = Union[
    BlockFrankWolfe, InteriorPoint, LabelNewton, OutOfCore, QuasiNewton,
]
