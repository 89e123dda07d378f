"""Sequences of the list columns of Arrow tables, Arrow files and Parquet files."""

import os
from numbers import Integral

import numpy as np
import scipy.sparse as sp

from fastm4n.base.checks import check_number
from fastm4n.base.claims import MOST_FEATURES, as_texts


def _pyarrow():
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            'Arrow and Parquet need pyarrow: pip install "fastm4n[arrow]".') from error
    return pyarrow


def arrow_batches(make, source, features, labels, n_features):
    """A name for the source, and its batches of rows as containers of the class `make`.

    Parameters
    ----------
    make : type
        `Sequences`.
    source, features, labels, n_features
        Those of `Sequences.from_arrow`.
    """
    pa = _pyarrow()
    columns = _columns(features, labels, n_features)
    name, is_file = "The table", isinstance(source, (str, os.PathLike))
    if is_file:
        name = os.fspath(source)
        source = _opened(pa, name)
    if isinstance(source, pa.Table):
        batches = source.to_batches()
    elif isinstance(source, pa.RecordBatch):
        batches = [source]
    elif isinstance(source, pa.RecordBatchReader):
        batches = source
    elif isinstance(source, pa.ipc.RecordBatchFileReader):
        batches = map(source.get_batch, range(source.num_record_batches))
    else:
        raise TypeError(
            "source must be a pyarrow Table, RecordBatch or RecordBatchReader, or the path of an "
            f"Arrow file, got {type(source).__name__}.")
    _check_names(columns, source.schema.names, name)
    if is_file:
        batches = _checked(pa, name, batches)
    return name, _containers(make, name, batches, columns, n_features)


def parquet_batches(make, path, features, labels, n_features, batch_size):
    """`arrow_batches` of a Parquet file."""
    pa = _pyarrow()
    import pyarrow.parquet as pq

    columns = _columns(features, labels, n_features)
    check_number("batch_size", batch_size, low=1, strict=False, integer=True)
    name = os.fspath(path)
    try:
        file = pq.ParquetFile(name)
    except pa.ArrowException as error:
        raise ValueError(f"{name} is no Parquet file: {error}") from error

    def batches():
        with file:
            # lists of dictionary-encoded strings are not read over the borders of row groups
            for group in range(file.num_row_groups):
                yield from file.iter_batches(
                    batch_size=batch_size, row_groups=[group], columns=_flat(columns))

    _check_names(columns, file.schema_arrow.names, name)
    return name, _containers(make, name, _checked(pa, name, batches()), columns, n_features)


def _opened(pa, path):
    """A reader of an Arrow file, of either form, mapped into memory."""
    try:
        mapped = pa.memory_map(path)
        try:
            return pa.ipc.open_file(mapped)
        except pa.ArrowInvalid:
            mapped.seek(0)
            return pa.ipc.open_stream(mapped)
    except pa.ArrowException as error:
        raise ValueError(f"{path} is no Arrow file: {error}") from error


def _checked(pa, name, batches):
    """Record batches of a file, with offsets and texts checked, which pyarrow would trust."""
    try:
        for batch in batches:
            batch.validate(full=True)
            yield batch
    except pa.ArrowException as error:
        raise ValueError(f"{name} is damaged: {error}") from error


def _columns(features, labels, n_features):
    """Names of the columns of features, one or a pair, and of labels, or None."""
    if not isinstance(features, str):
        features = tuple(features)
        if len(features) != 2 or not all(isinstance(name, str) for name in features):
            raise TypeError(
                "features must be the name of a column, or a pair of names, of indices and of "
                f"values; got {features!r}.")
    if labels is not None and not isinstance(labels, str):
        raise TypeError(f"labels must be the name of a column or None, got {labels!r}.")
    if n_features is not None and (
        not isinstance(n_features, Integral) or isinstance(n_features, bool) or n_features < 1
    ):
        raise ValueError(f"n_features must be an integer >= 1 or None, got {n_features!r}.")
    return features, labels


def _flat(columns):
    features, labels = columns
    names = [features] if isinstance(features, str) else list(features)
    return names if labels is None else [*names, labels]


def _check_names(columns, names, where):
    for name in _flat(columns):
        if list(names).count(name) != 1:
            what = "several columns" if name in names else "no column"
            raise ValueError(
                f"{where} has {what} {name!r}; its columns are {', '.join(map(repr, names))}.")


def _containers(make, where, batches, columns, n_features):
    """The sequences of each record batch, or pairs of them and their labels."""
    features, labels = columns
    first = 0
    for batch in batches:
        reads = _Batch(make, where, batch, first)
        X = reads.sequences(features, n_features)
        if labels is None:
            yield X
        else:
            y = reads.sequences(labels, None)
            reads.check_lengths(features, X, labels, y)
            yield X, y
        first += batch.num_rows


class _Batch:
    """A record batch, whose first row has number `first` in its file."""

    def __init__(self, make, where, batch, first):
        self.make, self.where, self.batch, self.first = make, where, batch, first
        self.types = _pyarrow().types

    def error(self, row, message):
        return ValueError(f"{self.where}, row {self.first + row}: {message}")

    def sequences(self, names, n_features):
        if not isinstance(names, str):
            return self._of_two(*names, n_features)
        column = self.batch.column(names)
        rows, offsets = self._unfolded(column, names, "the sequence", None)
        types, kind = self.types, rows.type
        if types.is_map(kind) or (self._is_list(kind) and types.is_struct(kind.value_type)):
            entries, indptr = self._unfolded(rows, names, "a position", offsets)
            self._refuse_nulls(entries, names, "an entry", offsets, indptr)
            return self._csr(names, n_features, offsets, indptr, *self._fields(entries, names))
        if not self._is_list(kind):
            return self.make(self._flat(rows, names, offsets), offsets)
        values, row_offsets = self._unfolded(rows, names, "a position", offsets)
        values = self._flat(values, names, offsets, row_offsets)
        return self.make(self._matrix(values, row_offsets, names, offsets), offsets)

    def check_lengths(self, features, X, labels, y):
        wrong = np.flatnonzero(X.lengths != y.lengths)
        if len(wrong):
            i = wrong[0]
            raise self.error(
                i, f"{X.lengths[i]} positions in {features!r} and {y.lengths[i]} labels in "
                f"{labels!r}.")
        if y.values.ndim != 1:
            raise ValueError(f"{self.where}: {labels!r} must have one label for each position.")

    def _is_list(self, kind):
        types = self.types
        return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)

    def _unfolded(self, lists, name, noun, outer):
        """The items of lists end to end, and the offsets. `outer` are those one level above."""
        if not (self._is_list(lists.type) or self.types.is_map(lists.type)):
            raise ValueError(
                f"{self.where}: the column {name!r} must have a list for each sequence, got "
                f"{lists.type}.")
        self._refuse_nulls(lists, name, noun, outer)
        if self.types.is_fixed_size_list(lists.type):
            return lists.flatten(), np.arange(len(lists) + 1) * lists.type.list_size
        offsets = lists.offsets.to_numpy().astype(np.int64)
        if len(offsets) == 0:
            offsets = np.zeros(1, dtype=np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        inner = lists.values.slice(first, last - first)
        return inner, offsets - first

    def _refuse_nulls(self, array, name, noun, *outer):
        if array.null_count:
            place = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0]
            raise self.error(
                self._row(place, *outer),
                f"{noun} is null in the column {name!r}. Fill it in, or drop the row.")

    def _row(self, place, *outer):
        """The batch row of an element. `outer` are the offsets of each level, outermost first."""
        for offsets in reversed(outer):
            if offsets is not None:
                place = np.searchsorted(offsets, place, side="right") - 1
        return int(place)

    def _flat(self, array, name, *outer):
        """Numbers or strings as a NumPy array. Numbers are not copied."""
        types, kind = self.types, array.type
        encoded = types.is_dictionary(kind)
        if encoded and (array.dictionary.null_count or not self._is_string(kind.value_type)):
            array, kind, encoded = array.dictionary_decode(), kind.value_type, False
        self._refuse_nulls(array, name, "a value", *outer)
        if encoded or self._is_string(kind):
            stored = array.nbytes
            array = array if encoded else array.dictionary_encode()
            known = as_texts(array.dictionary.to_pylist(), self.where, len(array), stored)
            return known[array.indices.to_numpy(zero_copy_only=False)]
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise ValueError(
                f"{self.where}: the column {name!r} must have numbers or strings, got {kind}.")
        return array.to_numpy(zero_copy_only=not types.is_boolean(kind))

    def _is_string(self, kind):
        types = self.types
        return types.is_string(kind) or types.is_large_string(kind)

    def _matrix(self, values, row_offsets, name, offsets):
        lengths = np.diff(row_offsets)
        if not len(lengths):
            return np.empty(0)  # the columns are unknown
        wrong = np.flatnonzero(lengths != lengths[0])
        if len(wrong):
            raise self.error(
                self._row(wrong[0], offsets), f"a position has {lengths[wrong[0]]} features in the "
                f"column {name!r}, the first has {lengths[0]}. Sparse features are lists of index "
                "and value.")
        return values.reshape(len(lengths), lengths[0])

    def _fields(self, entries, name):
        """The indices and the values of a struct array."""
        if entries.type.num_fields != 2:
            raise ValueError(
                f"{self.where}: the column {name!r} must have structs of index and value, got "
                f"{entries.type}.")
        return entries.field(0), entries.field(1)

    def _of_two(self, of_indices, of_values, n_features):
        found = []
        for name in (of_indices, of_values):
            rows, offsets = self._unfolded(self.batch.column(name), name, "the sequence", None)
            found.append((offsets, *self._unfolded(rows, name, "a position", offsets)))
        (offsets, indices, indptr), (other, values, other_indptr) = found
        names = f"{of_indices!r} and {of_values!r}"
        for one, two, outer in ((offsets, other, ()), (indptr, other_indptr, (offsets,))):
            if not np.array_equal(one, two):
                different = np.flatnonzero(np.diff(one) != np.diff(two))[0]
                raise self.error(self._row(different, *outer), f"{names} differ in length.")
        return self._csr(of_indices, n_features, offsets, indptr, indices, values)

    def _csr(self, name, n_features, offsets, indptr, indices, values):
        if not self.types.is_integer(indices.type):
            raise ValueError(
                f"{self.where}: indices in {name!r} must be integers, got {indices.type}.")
        values = self._flat(values, name, offsets, indptr)
        indices = self._flat(indices, name, offsets, indptr)
        top = int(indices.max()) + 1 if len(indices) else 0  # they may be unsigned
        wrong = np.flatnonzero((indices < 0) | (indices >= (n_features or top)))
        if len(wrong):
            last = f" = {n_features - 1}" if n_features else ""
            raise self.error(
                self._row(wrong[0], offsets, indptr),
                f"{name!r} has the index {indices[wrong[0]]}; indices go from 0 to n_features - 1"
                f"{last}.")
        if top > MOST_FEATURES and n_features is None:
            raise self.error(
                self._row(indices.argmax(), offsets, indptr),
                f"{name!r} has the index {top - 1}, above {MOST_FEATURES}. Renumber the features, "
                "or pass n_features.")
        n = n_features or max(top, 1)
        small = max(n, len(indices), len(indptr)) < 2**31
        dtype = np.int32 if small else np.int64
        X = sp.csr_matrix(
            (values, indices.astype(dtype, copy=False), indptr.astype(dtype)),
            shape=(len(indptr) - 1, n))
        if not X.has_canonical_format:
            X = X.copy()  # the arrays are Arrow's
            X.sum_duplicates()
        return self.make(X, offsets)
