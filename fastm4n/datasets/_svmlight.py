"""Sparse rows in svmlight's format, alone or in sequences."""

from __future__ import annotations

from array import array
from math import isfinite
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from fastm4n.base.claims import LONGEST_LABEL, MOST_FEATURES
from fastm4n.data._sequences import Sequences
from fastm4n.datasets._bunch import bunch
from fastm4n.datasets._lines import Lines, integer, number

if TYPE_CHECKING:
    from typing import Any, Literal

    from sklearn.utils import Bunch

    from fastm4n.base.types import CSR, Array, FloatArray, Source


def load_svmlight_sequences(
    path: Source, *, n_features: int | None = None, zero_based: bool | Literal["auto"] = "auto",
    dtype: Any = np.float64,
) -> Bunch:
    """Read sequences of sparse rows in svmlight's format, where ``qid`` names the sequence.

    A line is a token: its label, a number; ``qid:`` and the number of its sequence; and its
    features as ``index:value``, by increasing index. The tokens of a sequence are consecutive. What
    follows a ``#`` is a comment. :func:`load_svm_hmm` reads those of SVM-hmm, whose tags may be
    words.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    n_features : int, default=None
        Number of columns; by default as many as the greatest index needs, at most 10^8.
    zero_based : bool or "auto", default="auto"
        Whether indices count from 0. By default they do if one of them is 0.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.

    Returns
    -------
    data : Bunch
        X : Sequences of CSR rows
            The features of each position.
        y : Sequences of labels
            Integers if all labels of the file are whole numbers.
        qid : ndarray of int64, shape (n_sequences,)
            The number of each sequence.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_svmlight_sequences
    >>> text = "1 qid:1 1:0.5 3:1\\n2 qid:1 2:1\\n1 qid:2 1:1\\n"
    >>> data = load_svmlight_sequences(io.StringIO(text))
    >>> data.X
    <Sequences: 2 sequences, 3 rows, 3 columns, CSR of float64>
    >>> data.X[0].toarray()
    array([[0.5, 0. , 1. ],
           [0. , 1. , 0. ]])
    >>> data.y[0]
    array([1, 2])
    """
    rows, labels, offsets, qids, _ = read_svmlight(
        path, n_features=n_features, zero_based=zero_based, dtype=dtype, with_qid=True
    )
    return bunch(X=Sequences(rows, offsets), y=Sequences(labels, offsets), qid=qids)


def load_svmlight(
    path: Source, *, n_features: int | None = None, zero_based: bool | Literal["auto"] = "auto",
    dtype: Any = np.float64,
) -> tuple[CSR, FloatArray]:
    """Read sparse rows in svmlight's format.

    A line is an example: its label, a number; and its features as ``index:value``, by increasing
    index. What follows a ``#`` is a comment. scikit-learn reads the same files faster; this reader
    names file and line in its errors.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    n_features : int, default=None
        Number of columns; by default as many as the greatest index needs, at most 10^8.
    zero_based : bool or "auto", default="auto"
        Whether indices count from 0. By default they do if one of them is 0.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.

    Returns
    -------
    X : CSR matrix of shape (n, n_features)
    y : ndarray of shape (n,)
        Integers if all labels of the file are whole numbers.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_svmlight
    >>> X, y = load_svmlight(io.StringIO("1 1:0.5 3:1\\n2 2:1 # a comment\\n"))
    >>> X.toarray()
    array([[0.5, 0. , 1. ],
           [0. , 1. , 0. ]])
    >>> y
    array([1, 2])
    """
    rows, labels, _, _, _ = read_svmlight(
        path, n_features=n_features, zero_based=zero_based, dtype=dtype, with_qid=False
    )
    return rows, labels


_QID = "there is a qid after the label; it names a sequence, which load_svmlight_sequences reads."
_NO_LABEL = (
    "the label {!r} is not a number. Number the labels, or write a table: csv takes words.")
_NO_QID = "there is no qid after the label; it names the {}, as in '1 qid:7 3:0.5'."


def load_svmlight_multilabel(
    path: Source, *, n_features: int | None = None, zero_based: bool | Literal["auto"] = "auto",
    dtype: Any = np.float64,
) -> tuple[CSR, CSR, Array]:
    """Read sparse rows with sets of labels in svmlight's format.

    A line is an example: its labels, numbers joined by commas, or none; and its features as
    ``index:value``, by increasing index. What follows a ``#`` is a comment.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    n_features : int, default=None
        Number of columns; by default as many as the greatest index needs, at most 10^8.
    zero_based : bool or "auto", default="auto"
        Whether indices count from 0. By default they do if one of them is 0.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.

    Returns
    -------
    X : CSR matrix of shape (n, n_features)
    Y : CSR matrix of int64, shape (n, n_labels)
        Indicator of the labels.
    labels : ndarray of shape (n_labels,)
        The label of each column of Y, sorted: those that occur.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_svmlight_multilabel
    >>> text = "2,7 1:0.5 3:1\\n7 2:1\\n 1:1\\n"
    >>> X, Y, labels = load_svmlight_multilabel(io.StringIO(text))
    >>> Y.toarray().tolist(), labels.tolist()
    ([[1, 1], [0, 1], [0, 0]], [2, 7])
    """
    rows, labels, _, _, _ = read_svmlight(
        path, n_features=n_features, zero_based=zero_based, dtype=dtype, with_qid=False,
        multilabel=True,
    )
    return rows, *indicator(*labels)


def indicator(values, ends, labels=None):
    """Indicator of sets of labels, and the label of each of its columns.

    Set i is values[ends[i]:ends[i + 1]]; labels are those that occur, or are given: others are then
    left out.
    """
    if labels is None:
        labels = np.unique(values)
    labels = np.asarray(labels)
    order = np.argsort(labels, kind="stable")
    place = np.minimum(np.searchsorted(labels, values, sorter=order), len(labels) - 1)
    columns = order[place] if len(labels) else place
    known = labels[columns] == values if len(labels) else np.zeros(len(values), dtype=bool)
    rows = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    Y = sp.coo_matrix(
        (np.ones(int(known.sum()), dtype=np.int64), (rows[known], columns[known])),
        shape=(len(ends) - 1, len(labels))).tocsr()
    Y.data[:] = 1  # of labels that a line has twice
    return Y, labels


def read_svmlight(path, *, n_features=None, zero_based="auto", dtype=np.float64, with_qid=None,
                  multilabel=False, as_text=False):
    """CSR rows, labels, the sequences' offsets and numbers, and whether indices count from 0.

    Parameters are those of `load_svmlight`; with_qid says whether lines have a qid, None that the
    first one decides. Offsets are None without. multilabel says whether lines have any number of
    labels, None that they do if there is a comma between labels; labels are then a pair, those of
    all lines and where they end in it. as_text: whether labels, which are numbers, stay as they
    are written.
    """
    check_options(dtype, zero_based, n_features)
    lines = Lines(path)
    tags = {} if as_text else None
    batch, = svmlight_batches(lines, dtype, with_qid, multilabel, tags=tags)
    if zero_based == "auto":
        zero_based = not batch.indices.all()
    needed = int(batch.indices.max(initial=-1)) + bool(zero_based)
    if n_features is None:
        batch.check_claims("index")
        if needed < 1:
            raise ValueError(f"{lines.name} holds no features; pass n_features.")
    rows = batch.rows(zero_based, needed if n_features is None else n_features)
    labels = as_whole(batch.labels)
    if as_text:
        labels = np.array(list(tags), dtype=str)[labels]
    offsets = None
    if batch.with_qid:
        offsets = np.append(batch.starts, len(labels))
    return (
        rows, (labels, batch.ends) if batch.several else labels, offsets, batch.qids, zero_based)


def check_options(dtype, zero_based, n_features):
    if np.dtype(dtype) not in (np.float64, np.float32):
        raise ValueError(f"dtype must be numpy.float64 or numpy.float32, got {dtype!r}.")
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}.")
    if n_features is not None and (
        not isinstance(n_features, Integral) or isinstance(n_features, bool) or n_features < 1
    ):
        raise ValueError(f"n_features must be an integer >= 1 or None, got {n_features!r}.")


def as_whole(labels):
    """Labels as integers if all are whole numbers."""
    if np.all(labels == np.trunc(labels)) and np.abs(labels).max(initial=0) < 2**53:
        return labels.astype(np.int64)
    return labels


class _Batch:
    """Some lines of a file, as arrays, checked.

    Attributes
    ----------
    labels : ndarray of float64
        Of all lines; those of line i are ``labels[ends[i]:ends[i + 1]]``.
    ends : ndarray of int64
    data, indices, indptr : ndarray
        Entries of the rows, with the indices that the file has.
    starts, qids : ndarray of int64
        The lines at which sequences begin, and their numbers.
    with_qid, several : bool
        Whether lines have a qid, and whether there are several labels in a line.
    """

    def __init__(self, lines, dtype):
        self._lines, self._dtype = lines, dtype
        self.labels, self.data, self.indices = array("d"), array("d"), array("q")
        self.ends, self.indptr, self.numbers = array("q", [0]), array("q", [0]), array("q")
        self.starts, self.qids = array("q"), array("q")

    def close(self, with_qid, several):
        """Make arrays of what was read, and check it."""
        self.with_qid, self.several = with_qid, several
        for name in ("labels", "ends", "indices", "indptr", "numbers", "starts", "qids"):
            setattr(self, name, np.array(getattr(self, name)))
        with np.errstate(over="ignore"):
            self.data = np.array(self.data, dtype=self._dtype)
        indices, data = self.indices, self.data
        self.check_labels(self.labels)
        self.check(
            ~np.isfinite(data), f"the value of feature {{}} is {{}}, no finite {data.dtype}.")
        self.check(indices < 0, "the index {} is negative.")
        self.check(indices == np.iinfo(np.int64).max, "the index {} is too large.")
        increases = np.ones(len(indices), dtype=bool)
        increases[1:] = indices[1:] > indices[:-1]
        # the first entries of their rows
        increases[self.indptr[:-1][np.diff(self.indptr) > 0]] = True
        self.check(
            ~increases, "the index {} does not exceed the one before it; indices must increase.")
        return self

    def check_labels(self, labels):
        """Raise an error at the line of the first label that is not finite."""
        if not np.isfinite(labels).all():
            wrong = np.flatnonzero(~np.isfinite(labels))[0]
            row = np.searchsorted(self.ends, wrong, side="right") - 1
            raise self._lines.error(
                f"the label is {labels[wrong]}; labels must be finite.", self.numbers[row])

    def line_of(self, entry):
        """The number of the line of an entry."""
        return self.numbers[np.searchsorted(self.indptr, entry, side="right") - 1]

    def check(self, bad, what):
        """Raise an error at the line of the first entry that is bad."""
        if bad.any():
            entry = bad.argmax()
            raise self._lines.error(
                what.format(self.indices[entry], self.data[entry]), self.line_of(entry))

    def check_claims(self, what):
        """Refuse a feature's number that alone would make more columns than anybody means."""
        self.check(
            self.indices > MOST_FEATURES,
            f"the {what} {{}} is above {MOST_FEATURES}, and a model has a weight for each number "
            "up to it. Number the features anew, or pass n_features.")

    def rows(self, zero_based, n_features):
        """The rows as CSR."""
        indices = self.indices
        if not zero_based:
            self.check(indices == 0, "the index {}, but zero_based=False.")
            indices = indices - 1
        needed = int(indices.max(initial=-1)) + 1
        self.check(
            indices >= n_features, f"an index needs {needed} columns, but n_features={n_features}.")
        small = max(len(self.data), n_features) < 2**31
        return sp.csr_matrix(
            (self.data, indices.astype(np.int32 if small else np.int64, copy=False), self.indptr),
            shape=(len(self.numbers), n_features),
        )


def svmlight_batches(
    lines, dtype, with_qid=None, multilabel=False, size=None, tags=None, words=False,
    nouns=("sequence", "tokens"),
):
    """Lines of a file by batches.

    Parameters
    ----------
    lines : Lines
    dtype, with_qid, multilabel
        As of `read_svmlight`.
    size : int, default=None
        Lines of a batch, and more if a sequence goes on. By default all are one.
    tags : dict, default=None
        Filled with a number for each text of a label; the numbers are then the labels.
    words : bool, default=False
        Whether labels may be words. Otherwise they are finite numbers, also with `tags`.
    nouns : tuple of str, default=("sequence", "tokens")
        What errors call the lines of a qid, together and one by one.

    Yields
    ------
    batch : _Batch
    """
    without, several = None, multilabel is True
    sequences = {}  # from qid to the line where it began
    current = None
    batch = _Batch(lines, dtype)
    for line in lines:
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        texts = fields[:1]
        if multilabel is not False and ":" in fields[0] and not fields[0].startswith("qid:"):
            texts, fields = [], ["", *fields]
            without = without or (lines.number, fields[1])
        elif multilabel is not False and "," in fields[0]:
            texts, several = fields[0].split(","), True
        if not words:
            try:
                named = [number(text) for text in texts]
            except ValueError:
                raise lines.error(_NO_LABEL.format(fields[0])) from None
        if tags is not None:
            if not words and not all(map(isfinite, named)):
                wrong = next(label for label in named if not isfinite(label))
                raise lines.error(f"the label is {wrong}; labels must be finite.")
            named = [tags.setdefault(_tag(text, lines), len(tags)) for text in texts]
        has_qid = len(fields) > 1 and fields[1].startswith("qid:")
        if with_qid is None:
            with_qid = has_qid
        if has_qid != with_qid:
            raise lines.error(_NO_QID.format(nouns[0]) if with_qid else _QID)
        begins = True
        if with_qid:
            try:
                qid = integer(fields[1][4:])
            except ValueError:
                qid = None
            if qid is None or not -(2**63) <= qid < 2**63:
                raise lines.error(
                    f"the {nouns[0]} {fields[1]!r:.80} is not qid: and an integer of 64 bits."
                )
            begins = qid != current
            if begins:
                if qid in sequences:
                    raise lines.error(
                        f"qid:{qid} comes back after another {nouns[0]}; it began at line "
                        f"{sequences[qid]}. The {nouns[1]} of a {nouns[0]} must be consecutive."
                    )
                current, sequences[qid] = qid, lines.number
        if begins and size is not None and len(batch.numbers) >= size:
            yield batch.close(with_qid, several)
            batch = _Batch(lines, dtype)
        if with_qid and begins:
            batch.starts.append(len(batch.numbers))
            batch.qids.append(qid)
        fields = fields[2 if with_qid else 1:]
        try:
            pairs = [field.split(":") for field in fields]
            batch.indices.extend([integer(index) for index, _ in pairs])
            batch.data.extend([number(value) for _, value in pairs])
        except (ValueError, OverflowError):
            raise lines.error(_bad_feature(fields)) from None
        batch.labels.extend(named)
        batch.ends.append(len(batch.labels))
        batch.indptr.append(len(batch.data))
        batch.numbers.append(lines.number)
    if not batch.numbers:
        raise ValueError(f"{lines.name} holds no {nouns[1] if with_qid else 'examples'}.")
    if without and not several:
        raise lines.error(_NO_LABEL.format(without[1]), without[0])
    if several and with_qid:
        raise ValueError(f"{lines.name} has several labels in a line, and a qid.")
    yield batch.close(with_qid, several)


def _tag(text, lines):
    """A label that may be a word."""
    if ":" in text:
        raise lines.error(f"there is no tag before {text!r:.80}; a line begins with one.")
    if len(text) > LONGEST_LABEL:
        raise lines.error(
            f"the tag {text!r:.40} has {len(text)} characters; at most {LONGEST_LABEL} are read.")
    return text


def _bad_feature(fields):
    for field in fields:
        index, _, value = field.partition(":")
        try:
            number(value)
            if abs(integer(index)) < 2**63:
                continue
        except ValueError:
            pass
        return f"{field!r:.80} is not a feature, index:value."
    return "a feature is not index:value."
