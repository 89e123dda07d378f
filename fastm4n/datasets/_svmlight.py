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
    """Read sequences of sparse rows in svmlight's format, numbered by ``qid``.

    A line is a token: a label, which is a number, ``qid:`` and the number of the sequence, and
    features as ``index:value``, by increasing index. The tokens of a sequence are consecutive. A
    comment begins with ``#``. :func:`load_svm_hmm` reads files of SVM-hmm, with tags that may be
    words.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    n_features : int, default=None
        Number of columns. The default is what the greatest index needs, at most 10^8.
    zero_based : bool or "auto", default="auto"
        Whether indices count from 0. By default they do if an index is 0.
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
        path, n_features=n_features, zero_based=zero_based, dtype=dtype, with_qid=True)
    return bunch(X=Sequences(rows, offsets), y=Sequences(labels, offsets), qid=qids)


def load_svmlight(
    path: Source, *, n_features: int | None = None, zero_based: bool | Literal["auto"] = "auto",
    dtype: Any = np.float64,
) -> tuple[CSR, FloatArray]:
    """Read sparse rows in svmlight's format.

    A line is an example: a label, which is a number, and features as ``index:value``, by increasing
    index. A comment begins with ``#``. scikit-learn reads the same files faster. Errors of this
    reader have the file and the line.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    n_features : int, default=None
        Number of columns. The default is what the greatest index needs, at most 10^8.
    zero_based : bool or "auto", default="auto"
        Whether indices count from 0. By default they do if an index is 0.
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
        path, n_features=n_features, zero_based=zero_based, dtype=dtype, with_qid=False)
    return rows, labels


_QID = "there is a qid after the label: load_svmlight_sequences reads such files."
_NO_LABEL = "the label {!r} is not a number. Number the labels, or write a table: csv takes words."
_NO_QID = "there is no qid of the {} after the label, as in '1 qid:7 3:0.5'."


def load_svmlight_multilabel(
    path: Source, *, n_features: int | None = None, zero_based: bool | Literal["auto"] = "auto",
    dtype: Any = np.float64,
) -> tuple[CSR, CSR, Array]:
    """Read sparse rows with sets of labels in svmlight's format.

    A line is an example: any number of labels, numbers joined by commas, and features as
    ``index:value``, by increasing index. A comment begins with ``#``.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    n_features : int, default=None
        Number of columns. The default is what the greatest index needs, at most 10^8.
    zero_based : bool or "auto", default="auto"
        Whether indices count from 0. By default they do if an index is 0.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.

    Returns
    -------
    X : CSR matrix of shape (n, n_features)
    Y : CSR matrix of int64, shape (n, n_labels)
        Indicator of the labels.
    labels : ndarray of shape (n_labels,)
        The label of each column of Y, sorted.

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
        multilabel=True)
    return rows, *indicator(*labels)


def indicator(values, ends, labels=None):
    """Indicator of sets of labels, and the label of each column.

    Set i is values[ends[i]:ends[i + 1]]. `labels` are all that occur, or the given ones, without
    the others.
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
    Y.data[:] = 1  # a line may have a label twice
    return Y, labels


def read_svmlight(path, *, n_features=None, zero_based="auto", dtype=np.float64, with_qid=None,
                  multilabel=False, as_text=False):
    """CSR rows, labels, the sequences' offsets and numbers, and whether indices count from 0.

    Parameters
    ----------
    path, n_features, zero_based, dtype
        See `load_svmlight`.
    with_qid : bool, default=None
        Whether lines have a qid. By default the first line decides. Without, offsets are None.
    multilabel : bool, default=False
        Whether lines have any number of labels. None: they do if there is a comma between labels.
        Labels are then a pair: the labels of all lines, and the end of each line.
    as_text : bool, default=False
        Whether labels, which are numbers, are returned as written.
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
            raise ValueError(f"{lines.name} has no features; pass n_features.")
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
        The labels of line i are ``labels[ends[i]:ends[i + 1]]``.
    ends : ndarray of int64
    data, indices, indptr : ndarray
        Entries of the rows, with the indices of the file.
    starts, qids : ndarray of int64
        The first lines of sequences, and the sequences' numbers.
    with_qid, several : bool
        Whether lines have a qid, and whether there are several labels in a line.
    """

    def __init__(self, lines, dtype):
        self._lines, self._dtype = lines, dtype
        self.labels, self.data, self.indices = array("d"), array("d"), array("q")
        self.ends, self.indptr, self.numbers = array("q", [0]), array("q", [0]), array("q")
        self.starts, self.qids = array("q"), array("q")

    def close(self, with_qid, several):
        """Convert to arrays and check them."""
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
        self.check(~increases, "the index {} does not increase.")
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
        """Refuse a feature's number that is too large to be meant."""
        self.check(
            self.indices > MOST_FEATURES,
            f"the {what} {{}} is above {MOST_FEATURES}. Renumber the features, or pass n_features.")

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
            shape=(len(self.numbers), n_features))


def svmlight_batches(
    lines, dtype, with_qid=None, multilabel=False, size=None, tags=None, words=False,
    nouns=("sequence", "tokens"),
):
    """Lines of a file by batches.

    Parameters
    ----------
    lines : Lines
    dtype, with_qid, multilabel
        See `read_svmlight`.
    size : int, default=None
        Lines of a batch, and the rest of the last sequence. By default there is one batch.
    tags : dict, default=None
        Receives a number for each text of a label. The labels are then these numbers.
    words : bool, default=False
        Whether labels may be words instead of finite numbers.
    nouns : tuple of str, default=("sequence", "tokens")
        Names of the lines of a qid, together and one by one, for errors.

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
                    f"the {nouns[0]} {fields[1]!r:.80} is not qid: and an integer of 64 bits.")
            begins = qid != current
            if begins:
                if qid in sequences:
                    raise lines.error(
                        f"qid:{qid} comes back after another {nouns[0]}; it began at line "
                        f"{sequences[qid]}. The {nouns[1]} of a {nouns[0]} must be consecutive.")
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
        raise ValueError(f"{lines.name} has no {nouns[1] if with_qid else 'examples'}.")
    if without and not several:
        raise lines.error(_NO_LABEL.format(without[1]), without[0])
    if several and with_qid:
        raise ValueError(f"{lines.name} has several labels in a line, and a qid.")
    yield batch.close(with_qid, several)


def _tag(text, lines):
    """A label that may be a word."""
    if ":" in text:
        raise lines.error(f"there is no tag before {text!r:.80}.")
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
