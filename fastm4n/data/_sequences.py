"""A ragged container: one buffer of rows, and offsets that cut it into sequences.

The container in memory and the one of a folder stand in one file, as each makes the other.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from fastm4n.data._ragged import Ragged, as_integers, as_offsets, cut, taken
from fastm4n.data.disk._arrays import StoredCSR
from fastm4n.data.disk._stored import ROWS_AT_ONCE, Stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import sparray, spmatrix

    from fastm4n.base.types import CSR, Array, StrPath

__all__ = ["Sequences"]


class Sequences(Ragged):
    """Sequences of rows that lie end to end in one buffer.

    It is indexed like a list of sequences. scikit-learn's splitters, cross-validation and
    searches accept it like an array. An integer gives the rows of one sequence.
    A slice, integers or a mask give new `Sequences`. An integer or a slice of step 1 gives a view,
    as for arrays. Sparse rows are always copied.

    Parameters
    ----------
    values : ndarray of shape (n_tokens, n_columns) or (n_tokens,), or sparse matrix
        The rows of all sequences: features, dense or sparse, or one label per row. Arrays and
        CSR matrices are not copied.
    offsets : array-like of int, shape (n_sequences + 1,)
        Sequence i is the rows ``offsets[i]:offsets[i + 1]``. Offsets go from 0 to the number of
        rows and do not decrease. A sequence may be empty.

    Attributes
    ----------
    values : ndarray or CSR matrix or array
    offsets : ndarray of int64, shape (n_sequences + 1,)
        Read-only.
    lengths : ndarray of int64, shape (n_sequences,)
    shape : tuple (n_sequences,)
    n_tokens : int
    dtype : dtype of the values

    See Also
    --------
    SequenceVectorizer : Sequences of CSR rows from dicts or attribute strings.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import Sequences
    >>> X = Sequences.from_list([[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]])
    >>> X
    <Sequences: 2 sequences, 3 rows, 2 columns, float64>
    >>> X[1]
    array([[4., 5.]])
    >>> X[np.array([1, 0])].offsets
    array([0, 1, 3])
    >>> y = Sequences.from_list([["B", "I"], ["O"]])
    >>> [list(map(str, labels)) for labels in y]
    [['B', 'I'], ['O']]
    """

    values: Array | CSR
    offsets: NDArray[np.int64]

    _item, _items = "sequence", "sequences"

    def __init__(self, values: Array | spmatrix | sparray, offsets: ArrayLike) -> None:
        self.values = _as_values(values)
        self.offsets = as_offsets(offsets, self.values.shape[0])

    @classmethod
    def _of_checked(cls, values, offsets):
        """Sequences of valid values, an array or a CSR matrix, and valid offsets, not copied."""
        made = cls.__new__(cls)
        made.values, made.offsets = values, offsets
        offsets.flags.writeable = False
        return made

    @classmethod
    def from_list(cls, sequences: Iterable[Any]) -> Sequences:
        """Lay sequences end to end.

        Parameters
        ----------
        sequences : iterable of arrays, sparse matrices or label sequences
            Either 2-D arrays with one number of columns, or sparse matrices with one number of
            columns, or label sequences. Dtypes are promoted to a common one. Labels of
            several kinds, such as strings and integers, become an array of objects.

        Returns
        -------
        sequences : Sequences

        Examples
        --------
        >>> from fastm4n import Sequences
        >>> Sequences.from_list([[0, 1, 1], [2]]).values
        array([0, 1, 1, 2])
        """
        if isinstance(sequences, cls):
            return sequences
        if isinstance(sequences, (str, bytes, dict)):
            raise TypeError(
                f"sequences must be a list of sequences, not a {type(sequences).__name__}.")
        sequences = list(sequences)
        sparse = [sp.issparse(sequence) for sequence in sequences]
        if not any(sparse):
            values, lengths = _concatenate(sequences)
        elif all(sparse):
            values, lengths = _stack(sequences)
        else:
            other = sparse.index(not sparse[0])
            first = "an array" if sparse[other] else "a sparse matrix"
            raise TypeError(
                f"Sequence 0 is {first}, sequence {other} is not: the sequences must be all arrays "
                "or all sparse matrices.")
        return cls.from_lengths(values, lengths)

    @classmethod
    def from_lengths(cls, values: ArrayLike | spmatrix | sparray, lengths: ArrayLike) -> Sequences:
        """Cut one buffer of rows into sequences of given lengths.

        Parameters
        ----------
        values : ndarray or sparse matrix
            The rows of all sequences, as in the constructor.
        lengths : array-like of int, shape (n_sequences,)
            Number of rows of each sequence. The sum is the number of rows.

        Returns
        -------
        sequences : Sequences

        Examples
        --------
        >>> import numpy as np
        >>> from fastm4n import Sequences
        >>> Sequences.from_lengths(np.arange(5), [2, 3])[1]
        array([2, 3, 4])
        """
        values = _as_values(values)
        lengths = as_integers(lengths, "lengths")
        negative = np.flatnonzero(lengths < 0)
        if len(negative):
            i = negative[0]
            raise ValueError(f"lengths must not be negative; sequence {i} has {lengths[i]}.")
        offsets = cut(lengths)
        if offsets[-1] != values.shape[0]:
            raise ValueError(
                f"lengths must add up to the number of rows of values, {values.shape[0]}, got "
                f"{offsets[-1]}.")
        return cls(values, offsets)

    @classmethod
    def from_batches(
        cls, batches: Iterable[Any], folder: StrPath, *, overwrite: bool = False,
    ) -> Any:
        """Write sequences to a folder, batch by batch, and open it.

        At most one batch is in memory. The folder appears after the last batch. A failure leaves
        no folder, and an existing one unchanged.

        Parameters
        ----------
        batches : iterable
            Each batch is `Sequences`, a list of sequences as in :meth:`from_list`, or a tuple
            (X, y) of two of these: features, and a label for each row. All batches have the same
            columns and the same dtype, but strings of any length. Only numbers and strings can be
            written. Sparse rows are put in canonical form.
        folder : str or path
            A new name in an existing folder.
        overwrite : bool, default=False
            Whether to replace a folder of fastm4n of that name.

        Returns
        -------
        sequences : Sequences, or a tuple (X, y) of two if batches are pairs
            On disk, see :meth:`open`.

        Examples
        --------
        >>> import os, tempfile
        >>> from fastm4n import Sequences
        >>> labels = [["B"], ["B", "I"]]
        >>> batches = (([[[float(i), 1.0]], [[0.0, 2.0]] * 2], labels) for i in range(3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     X, y = Sequences.from_batches(batches, os.path.join(folder, "train"))
        ...     len(X), X[2], y[5].tolist(), X[1:4].values.shape
        (6, array([[1., 1.]]), ['B', 'I'], (5, 2))
        """
        return StoredSequences.write(batches, folder, overwrite)

    @classmethod
    def from_arrow(
        cls, source: Any, features: str | tuple[str, str], *, labels: str | None = None,
        n_features: int | None = None, folder: StrPath | None = None, overwrite: bool = False,
    ) -> Any:
        """Read sequences from list columns of an Arrow table or file, one from each row.

        Needs pyarrow, ``pip install "fastm4n[arrow]"``.

        Parameters
        ----------
        source : pyarrow Table, RecordBatch or RecordBatchReader, str or path
            A path of an Arrow file (IPC, Feather of version 2), which is mapped into memory.
            Numbers are not copied if there is one batch of rows.
        features : str, or tuple of two str
            The column of features, a list for each sequence. An item of the list, one for each
            position, is a number, a string, or a list of numbers, all of one length. An item of
            sparse features is a list of structs of index and value, or a map from one to the other.
            A pair of names stands for a column of lists of lists of indices and one of values.
            Indices count from 0.
        labels : str, default=None
            The column of labels: lists of numbers or strings, dictionary-encoded or not.
        n_features : int, default=None
            Columns of sparse rows. The default is what the greatest index needs, at most 10^8.
        folder : str or path, default=None
            Write the sequences to this folder, one batch of rows of the source at a time, and open
            it. By default they stay in memory.
        overwrite : bool, default=False
            Whether to replace a folder of fastm4n of that name.

        Returns
        -------
        sequences : Sequences, or a tuple (X, y) of two if there are labels

        Raises
        ------
        ValueError
            If there are nulls or lists of different lengths. The message has the row.

        Examples
        --------
        >>> from fastm4n import Sequences
        >>> import pyarrow as pa
        >>> table = pa.table({"x": [[[0.5, 1], [2, 3]], [[4, 5]]], "tags": [["B", "I"], ["O"]]})
        >>> X, y = Sequences.from_arrow(table, "x", labels="tags")
        >>> X
        <Sequences: 2 sequences, 3 rows, 2 columns, float64>
        >>> y[0].tolist()
        ['B', 'I']
        """
        from fastm4n.data.disk._arrow import arrow_batches

        name, batches = arrow_batches(cls, source, features, labels, n_features)
        return _gathered(name, batches, n_features, folder, overwrite)

    @classmethod
    def from_parquet(
        cls, path: StrPath, features: str | tuple[str, str], *, labels: str | None = None,
        n_features: int | None = None, folder: StrPath | None = None, overwrite: bool = False,
        batch_size: int = 10_000,
    ) -> Any:
        """Read sequences from list columns of a Parquet file, one from each row.

        See :meth:`from_arrow`. The file is read by batches of rows. With a `folder`, at most one
        batch is in memory.

        Parameters
        ----------
        path : str or path
        features, labels, n_features, folder, overwrite
            See :meth:`from_arrow`.
        batch_size : int, default=10000
            Sequences of a batch.

        Returns
        -------
        sequences : Sequences, or a tuple (X, y) of two if there are labels
        """
        from fastm4n.data.disk._arrow import parquet_batches

        name, batches = parquet_batches(cls, path, features, labels, n_features, batch_size)
        return _gathered(name, batches, n_features, folder, overwrite)

    @classmethod
    def open(cls, folder: StrPath, *, return_y: bool = False) -> Any:
        """Open a folder that :meth:`save` or :meth:`from_batches` has written.

        Only the offsets are read. Slices of step 1 stay on disk and read nothing. An integer reads
        one sequence. A mask or integers give sequences in memory. `values` is the array or CSR
        matrix of all rows, mapped into memory and read-only. A pickle contains the path of the
        folder, not its arrays.

        Parameters
        ----------
        folder : str or path
        return_y : bool, default=False
            Whether to return the labels, too.

        Returns
        -------
        sequences : Sequences
        y : Sequences
            Only if return_y.

        Raises
        ------
        ValueError
            If files are missing or cut short, or if the folder has another version or kind.
            Damage within a file is found when it is read: ``X[a:b].check()`` reads sequences
            a to b - 1.
        """
        return StoredSequences.open_folder(folder, return_y)

    def save(
        self, folder: StrPath, y: Sequences | ArrayLike | None = None, *, overwrite: bool = False,
    ) -> None:
        """Write the sequences to a folder for :meth:`open`.

        The folder appears complete or not at all.

        Parameters
        ----------
        folder : str or path
            A new name in an existing folder.
        y : Sequences or list of label sequences, default=None
            A label for each row.
        overwrite : bool, default=False
            Whether to replace a folder of fastm4n of that name.

        Examples
        --------
        >>> import os, tempfile
        >>> from fastm4n import Sequences
        >>> X = Sequences.from_list([[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "train")
        ...     X.save(path, [["B", "I"], ["O"]])
        ...     again, y = Sequences.open(path, return_y=True)
        ...     again.equals(X), y.values.tolist()
        (True, ['B', 'I', 'O'])
        """
        batch, (tail, sparse) = self, self._kind()
        if sparse:
            n_bytes = self.values.nnz * (self.dtype.itemsize + 4) + 8 * (self.n_tokens + 1)
        else:
            n_bytes = self.n_tokens * self.dtype.itemsize * int(np.prod(tail))
        if y is not None:
            batch = self, _as_batch(y, 0)
            n_bytes += batch[1].n_tokens * batch[1].dtype.itemsize
        StoredSequences.write([batch], folder, overwrite, n_bytes + 8 * (len(self) + 1))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of rows of each sequence."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def n_tokens(self) -> int:
        """Number of rows of all sequences."""
        return self.values.shape[0]

    @property
    def dtype(self) -> Any:
        """Dtype of the values."""
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Any]:
        offsets = self.offsets.tolist()
        for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
            yield self.values[start:stop]

    def _one(self, i):
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def _slice(self, start, stop):
        offsets = self.offsets[start : stop + 1]
        return type(self)(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def _take(self, numbers):
        rows, offsets = taken(self.offsets, numbers)
        return type(self)(self.values[rows], offsets)

    def equals(self, other: Any) -> bool:
        """Whether other has the same sequences, of equal values.

        Parameters
        ----------
        other : object

        Returns
        -------
        equal : bool
            Dtypes may differ. NaN is not equal to NaN, as in :func:`numpy.array_equal`.

        Examples
        --------
        >>> from fastm4n import Sequences
        >>> y = Sequences.from_list([["B", "I"], ["O"]])
        >>> y.equals(y[:]), y.equals(y[::-1])
        (True, False)
        """
        if not isinstance(other, Sequences) or not np.array_equal(self.offsets, other.offsets):
            return False
        if self._kind() != other._kind():
            return False
        ours, theirs = self.values, other.values
        if sp.issparse(ours):
            return (ours != theirs).nnz == 0
        return np.array_equal(ours, theirs)

    def _check_rows(self):
        """Refuse CSR rows that are not valid, which the constructor has done."""

    def __repr__(self) -> str:
        n, tail, sparse = len(self), *self._kind()
        columns = f", {tail[0]} columns" if tail else ""
        return (
            f"<Sequences: {n} sequence{'s' if n != 1 else ''}, {self.n_tokens} rows{columns}, "
            f"{'CSR of ' if sparse else ''}{self.dtype}>"
        )

    def _kind(self):
        """Shape of a row, and whether rows are sparse."""
        return self.values.shape[1:], sp.issparse(self.values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.values, self.offsets)

    @classmethod
    def _joined(cls, parts):
        values = cls.from_list([part.values for part in parts]).values
        return cls.from_lengths(values, np.concatenate([part.lengths for part in parts]))


class StoredSequences(Stored, Sequences):
    """Sequences of a folder: its features, or the labels of its rows or nodes."""

    _kind_of_folder, _name = "sequences", "values"

    @classmethod
    def _columns(cls, folder, name):
        offsets = "node_offsets" if folder.meta["kind"] == "graphs" else "offsets"
        n_rows = folder.matrix(name).shape[0]
        folder.check_n_rows("y", n_rows)
        return {name: "row"}, {"row": folder.offsets(offsets, n_rows)}

    def _labels(self):
        return StoredSequences(
            self.folder, {"y": "row"}, self._offsets, self._start, self._stop, "y")

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        return self._own_offsets("row")

    @cached_property
    def values(self) -> Array | CSR:
        return self._read(self._name)

    @property
    def n_tokens(self) -> int:
        return self._n_rows("row")

    @property
    def dtype(self) -> Any:
        return self.folder.matrices[self._name].dtype

    def _check_rows(self):
        self._check(finite=False)

    def _one(self, i):
        one = self._slice(i, i + 1)
        if self._kind()[1]:
            one._check_rows()
        return one.values

    def _take(self, numbers):
        rows, offsets = taken(self.offsets, numbers)
        # the constructor checks what was read
        return Sequences(self.values[rows], offsets)

    @classmethod
    def _concatenate(cls, parts, axis=0):
        return Sequences._concatenate(parts, axis)

    def _kind(self):
        matrix = self.folder.matrices[self._name]
        return matrix.shape[1:], isinstance(matrix, StoredCSR)

    def __repr__(self) -> str:
        return self._on_disk(super().__repr__())

    @classmethod
    def _append(cls, writer, batches, grows):
        for k, (X, y) in enumerate(batches):
            pairs, place = y is not None, f"Batch {k}"
            X, y = _as_batch(X, k), _as_batch(y if pairs else [], k)
            if pairs:
                _check_lengths(X, y, k)
            # in pieces: a batch may be a container on disk
            at = 0
            for piece in pieces(X):
                writer.append("values", piece.values, "X" if pairs else "it", place, grows)
                writer.append_lengths("offsets", piece.lengths)
                if pairs:
                    writer.append("y", y[at : at + len(piece)].values, "y", place)
                at += len(piece)
        writer.append_lengths("offsets", [])
        writer.append_if_none("values", np.empty(0))
        return pairs


def pieces(X):
    """Slices of a container of at most `ROWS_AT_ONCE` rows, or of one longer sequence."""
    start = 0
    while start < len(X):
        most = X.offsets[start] + ROWS_AT_ONCE
        stop = max(start + 1, int(np.searchsorted(X.offsets, most, side="right")) - 1)
        yield X[start:stop]
        start = stop


def _as_batch(batch, k):
    if sp.issparse(batch) or (
            isinstance(batch, np.ndarray) and batch.ndim == 2 and batch.dtype.kind == "f"):
        raise ValueError(
            f"Batch {k} is one matrix, of shape {batch.shape}. A batch is a list of sequences: "
            "put a single one into a list, [sequence].")
    try:
        return Sequences.from_list(batch)
    except (TypeError, ValueError) as error:
        raise type(error)(f"Batch {k}: {error}") from error


def _check_lengths(X, y, k):
    if len(X) != len(y):
        raise ValueError(f"Batch {k} has {len(X)} sequences in X and {len(y)} in y.")
    wrong = np.flatnonzero(X.lengths != y.lengths)
    if len(wrong):
        i = wrong[0]
        raise ValueError(
            f"Batch {k}: sequence {i} has {X.lengths[i]} rows in X and {y.lengths[i]} labels in y.")
    if y.values.ndim != 1:
        raise ValueError(f"Batch {k}: y must have one label for each row of X.")


def _gathered(where, batches, n_features, folder, overwrite):
    """Batches of Arrow's rows, or pairs of them, as one container in memory or in a folder."""
    if folder is not None:
        return StoredSequences.write(batches, folder, overwrite, grows=n_features is None)
    batches = list(batches)
    if not batches:
        raise ValueError(f"{where} has no rows.")
    if not isinstance(batches[0], tuple):
        return _end_to_end(where, batches)
    return tuple(_end_to_end(where, list(parts)) for parts in zip(*batches, strict=True))


def _end_to_end(where, parts):
    if len(parts) == 1:
        return parts[0]
    # in a batch without positions the columns are unknown
    kinds = [part.values for part in parts if part.values.ndim == 2 or part.n_tokens]
    if kinds and sp.issparse(kinds[0]):
        n = max(values.shape[1] for values in kinds)
        for values in kinds:
            values.resize((values.shape[0], n))
    try:
        values = Sequences.from_list(kinds).values if kinds else parts[0].values
    except ValueError as error:
        raise ValueError(f"{where}: batches of rows differ: {error}") from error
    return Sequences.from_lengths(values, np.concatenate([part.lengths for part in parts]))


def check_compressed(name: str, X: Any) -> None:
    """Refuse CSR and CSC matrices with inconsistent arrays, which may crash the process."""
    if sp.issparse(X) and X.format in ("csr", "csc"):
        try:
            type(X)((X.data, X.indices, X.indptr), shape=X.shape).check_format()
        except ValueError as error:
            raise ValueError(f"{name} is no valid {X.format.upper()} matrix: {error}") from error


def _as_values(values):
    """An array of one or two dimensions, or a CSR matrix."""
    if sp.issparse(values):
        if values.ndim != 2:
            raise ValueError(f"Sparse values must have 2 dimensions, got {values.ndim}.")
        check_compressed("values", values)
        return values.tocsr()
    # not a subclass: indexing a memory map would give a memory map of the result
    values = _as_array(values)
    if values.ndim not in (1, 2):
        raise ValueError(
            f"values must have 2 dimensions (features) or 1 (labels), got {values.ndim}.")
    return values


def _as_array(sequence):
    """The array of one sequence, of objects if labels are of several kinds."""
    array = np.asarray(sequence)
    if array.dtype.kind in "US" and not hasattr(sequence, "dtype"):
        kinds = set(map(type, sequence)) if array.ndim == 1 else set()
        if not (all(issubclass(kind, str) for kind in kinds)
                or all(issubclass(kind, bytes) for kind in kinds)):
            array = np.asarray(sequence, dtype=object)
    return array


def _concatenate(sequences):
    """Arrays end to end, and their lengths."""
    arrays = []
    for i, sequence in enumerate(sequences):
        if isinstance(sequence, (str, bytes, dict)):
            raise TypeError(
                f"Sequence {i} is a {type(sequence).__name__}; it must be an array or a list.")
        if not hasattr(sequence, "__len__"):
            sequence = list(sequence) if hasattr(sequence, "__iter__") else sequence
        try:
            array = _as_array(sequence)
        except ValueError as error:
            if isinstance(sequence, tuple) and all(hasattr(part, "ndim") for part in sequence):
                raise ValueError(
                    f"Sequence {i} is a tuple of {len(sequence)} arrays. For a chain give "
                    "node_features alone; for graphs use GraphTagger.") from None
            raise ValueError(f"Sequence {i} is not an array: {error}") from None
        if array.ndim not in (1, 2):
            raise ValueError(
                f"Sequence {i} must have 2 dimensions (features) or 1 (labels), got {array.ndim}.")
        arrays.append(array)
    lengths = [len(array) for array in arrays]
    # an empty list has neither columns nor a dtype
    typed = [i for i, array in enumerate(arrays) if array.ndim == 2 or len(array)]
    if not typed:
        return (arrays[0] if arrays else np.empty(0)), lengths
    for i in typed:
        _check_columns(i, arrays[i], typed[0], arrays[typed[0]])
    arrays = [arrays[i] for i in typed]
    dtypes = {array.dtype for array in arrays}
    # numbers next to strings would become strings
    kinds = {dtype.kind if dtype.kind in "USOmMV" else "number" for dtype in dtypes}
    dtype = object if len(kinds) > 1 else np.result_type(*dtypes)
    return np.concatenate([array.astype(dtype, copy=False) for array in arrays]), lengths


def _stack(matrices):
    """Sparse matrices as one CSR matrix, and their lengths."""
    matrices = [matrix.tocsr() for matrix in matrices]
    for i, matrix in enumerate(matrices):
        if matrix.ndim != 2:
            raise ValueError(f"Sequence {i} must have 2 dimensions, got {matrix.ndim}.")
        _check_columns(i, matrix, 0, matrices[0])
    return sp.vstack(matrices, format="csr"), [matrix.shape[0] for matrix in matrices]


def _check_columns(i, rows, first, first_rows):
    if rows.shape[1:] != first_rows.shape[1:]:
        has, first_has = (
            f"{one.shape[1]} columns" if one.ndim == 2 else "one label per row"
            for one in (rows, first_rows))
        raise ValueError(
            f"Sequence {i} has {has}, sequence {first} has {first_has}; all must have the same.")
