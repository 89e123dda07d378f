"""Large files in svmlight's format: read by batches, or written to folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.atomic import resolved
from fastm4n.base.checks import check_flag, check_number
from fastm4n.data._sequences import Sequences
from fastm4n.data.disk._folders import writing_folder
from fastm4n.data.disk._rows import append_rows, open_rows
from fastm4n.datasets._lines import Lines
from fastm4n.datasets._svmlight import as_whole, check_options, svmlight_batches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Literal

    from fastm4n.base.types import Source, StrPath


def iter_svmlight(
    path: Source, *, n_features: int, zero_based: bool, sequences: bool = False,
    dtype: Any = np.float64, batch_size: int = 10_000,
) -> Iterator[tuple[Any, Any]]:
    """Read a file in svmlight's format by batches of rows.

    Memory holds one batch, and about 100 bytes for each sequence.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    n_features : int
        Number of columns.
    zero_based : bool
        Whether indices count from 0. They usually count from 1.
    sequences : bool, default=False
        Whether ``qid`` numbers sequences, see :func:`load_svmlight_sequences`. They are not cut.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.
    batch_size : int, default=10000
        Lines of a batch, to which the rest of its last sequence is added.

    Yields
    ------
    X : CSR matrix of shape (n, n_features), or Sequences of CSR rows
    y : ndarray of float64, shape (n,), or Sequences of it

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import iter_svmlight
    >>> lines = io.StringIO("1 1:0.5 3:1\\n2 2:1\\n1 1:1\\n")
    >>> for X, y in iter_svmlight(lines, n_features=3, zero_based=False, batch_size=2):
    ...     print(X.shape, y)
    (2, 3) [1. 2.]
    (1, 3) [1.]
    """
    check_options(dtype, zero_based, n_features)
    _check(sequences, batch_size)
    if n_features is None or zero_based == "auto":
        raise ValueError(
            "Batches need n_features and zero_based (True or False). Only svmlight_to_folder finds "
            "both.")
    return _batches(path, n_features, zero_based, sequences, dtype, batch_size)


def _batches(path, n_features, zero_based, sequences, dtype, batch_size):
    for batch in svmlight_batches(Lines(path), dtype, with_qid=sequences, size=batch_size):
        X = batch.rows(zero_based, n_features)
        if not sequences:
            yield X, batch.labels
            continue
        offsets = np.append(batch.starts, X.shape[0])
        yield Sequences(X, offsets), Sequences(batch.labels, offsets)


def _check(sequences, batch_size):
    check_flag("sequences", sequences)
    check_number("batch_size", batch_size, low=1, strict=False, integer=True)


def svmlight_to_folder(
    path: Source, folder: StrPath, *, n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto", sequences: bool = False, dtype: Any = np.float64,
    batch_size: int = 10_000, overwrite: bool = False,
) -> tuple[Any, Any]:
    """Write a file in svmlight's format to a folder, and open it.

    Memory holds one batch, and about 100 bytes for each sequence.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    folder : str or path
        A new name in an existing folder.
    n_features : int, default=None
        Number of columns. The default is what the greatest index needs, at most 10^8.
    zero_based : bool or "auto", default="auto"
        Whether indices count from 0. By default they do if an index is 0.
    sequences : bool, default=False
        Whether ``qid`` numbers sequences, see :func:`load_svmlight_sequences`.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.
    batch_size : int, default=10000
        Lines in memory at once, to which the rest of the last sequence is added.
    overwrite : bool, default=False
        Whether to replace a folder of fastm4n of that name.

    Returns
    -------
    X : Rows, or Sequences of CSR rows
    y : ndarray of shape (n,), or Sequences
        Integers if all labels of the file are whole numbers.

    Examples
    --------
    >>> import io, os, tempfile
    >>> from fastm4n.datasets import svmlight_to_folder
    >>> lines = io.StringIO("1 1:0.5 3:1\\n2 2:1\\n1 1:1\\n")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     X, y = svmlight_to_folder(lines, os.path.join(folder, "train"))
    ...     X.values.toarray().tolist(), y.tolist()
    ([[0.5, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], [1, 2, 1])
    """
    check_options(dtype, zero_based, n_features)
    _check(sequences, batch_size)
    lines = Lines(path)
    if resolved(folder) in resolved(lines.name).parents:
        raise ValueError(f"{path} is in {folder}, the folder to be written. Choose another name.")
    auto, grows = zero_based == "auto", n_features is None or zero_based == "auto"
    any_zero, whole, greatest, at = False, True, -1, None
    with writing_folder(folder, overwrite) as writer:
        batches = svmlight_batches(lines, dtype, with_qid=sequences, size=batch_size)
        for k, batch in enumerate(batches):
            if n_features is None:
                batch.check_claims("index")
            if len(batch.indices) and batch.indices.max() > greatest:
                greatest, at = int(batch.indices.max()), batch.line_of(batch.indices.argmax())
            any_zero = any_zero or not batch.indices.all()
            whole = whole and as_whole(batch.labels).dtype == np.int64
            # indices as in the file, until the last line tells whether they count from 0 or 1
            X = batch.rows(zero_based is not False, greatest + 1 if grows else n_features)
            append_rows(writer, X, batch.labels, f"Batch {k}", grows)
            if sequences:
                writer.append_lengths("offsets", np.diff(np.append(batch.starts, X.shape[0])))
        one_based = not any_zero if auto else zero_based is False
        needed = greatest + 1 - one_based
        if n_features is None and needed < 1:
            raise ValueError(f"{lines.name} has no features; pass n_features.")
        if n_features is not None and needed > n_features:
            raise lines.error(f"an index needs {needed} columns, but n_features={n_features}.", at)
        if auto and one_based:
            writer.rewrite("values.indices", None, lambda rows: rows - 1)
        writer.matrices["values"]["shape"][1] = needed if n_features is None else n_features
        if whole:
            writer.rewrite("y", np.int64, lambda rows: rows.astype(np.int64))
        writer.finish("sequences" if sequences else "rows")
    if sequences:
        return Sequences.open(folder, return_y=True)
    return open_rows(folder, return_y=True)
