"""Types of the data that estimators take, for type checkers; nothing imports this at run time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, Union

from numpy.typing import ArrayLike
from scipy.sparse import sparray, spmatrix

from fastm4n.base.types import Buffer
from fastm4n.data._graphs import Graphs, StoredGraphs
from fastm4n.data._sequences import Sequences, StoredSequences
from fastm4n.data.disk._rows import Rows

__all__ = ["GraphData", "Labellings", "Masks", "Matchings", "Matrix", "SequenceData"]

# rows of features: arrays, lists of rows, data frames, sparse matrices, rows on disk
Matrix: TypeAlias = Union[ArrayLike, Buffer, spmatrix, sparray, Rows]
# features of sequences: one matrix each, or the rows of all with `lengths`
SequenceData: TypeAlias = Union[
    Sequences, StoredSequences, Matrix, Sequence[Matrix],
    Iterable[Sequence[Union[str, Iterable[str], Mapping[str, Any]]]],
]
# labels of sequences or of the nodes of graphs: one array or list each, or those of all
Labellings: TypeAlias = Union[Sequences, StoredSequences, ArrayLike, Sequence[ArrayLike]]
# columns of the rows of each example
Matchings: TypeAlias = Union[ArrayLike, Sequence[ArrayLike]]
GraphData: TypeAlias = Union[Graphs, StoredGraphs, Sequence[tuple[Any, ...]]]

# labels that are allowed: a bool array for each sequence or graph
Masks: TypeAlias = Union[Sequences, ArrayLike, Sequence[ArrayLike]]
