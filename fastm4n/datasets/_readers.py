"""Readers of text formats: tables, svmlight, and those of sequence labelling and label ranking.

All read UTF-8, plain or compressed by gzip, from a path or a file object, and name file and line
in their errors.
"""

import csv
import gzip
import io
import itertools
import os
import re
import zlib
from array import array
from contextlib import contextmanager
from math import isfinite
from numbers import Integral

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Bunch

from fastm4n.sequences import Sequences

CONLLU_FIELDS = (
    "ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC",
)

# bytes of a line: what has no line ends is no text, and must not fill the memory
_LONGEST_LINE = 1 << 27

# words may hold other white space of Unicode, such as a no-break space
_words = re.compile(r"[^ \t\r\v\f]+").findall
_SPACE = " \t\r\v\f"

_CONLLU_ID = re.compile(r"([0-9]+)(?:(-|\.)([0-9]+))?")

# an attribute up to its first colon that is not escaped, and what follows it
_ATTRIBUTE = re.compile(r"((?:[^\\:]|\\[\\:]|\\(?![\\:]))*)(?::(.*))?", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\:])")


class _Lines:
    """The lines of a text file, without their ends; knows where it is when something is wrong.

    Parameters
    ----------
    source : str, path or file object
    """

    def __init__(self, source):
        self.source = source
        self.number = 0
        if isinstance(source, (str, os.PathLike)):
            self.name = os.fspath(source)
        elif hasattr(source, "read"):
            name = getattr(source, "name", None)
            self.name = name if isinstance(name, str) else f"<{type(source).__name__}>"
        else:
            raise TypeError(
                f"path must be a path or a file object, not {type(source).__name__}."
            )

    def error(self, message, number=None):
        """An error at a line, by default the one that was read last."""
        number = self.number if number is None else number
        return ValueError(f"{self.name}, line {number}: {message}")

    def __iter__(self):
        try:
            with self._open() as stream:
                while line := stream.readline(_LONGEST_LINE):
                    self.number += 1
                    if len(line) == _LONGEST_LINE:
                        raise self.error(
                            f"it is longer than {_LONGEST_LINE} bytes: this is no text in lines."
                        )
                    yield self._text(line)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{self.name}, after line {self.number}: the gzip data is damaged or was cut off "
                f"({error})."
            ) from error
        except UnicodeDecodeError as error:  # of a file object that decodes what it reads
            raise ValueError(
                f"{self.name}, after line {self.number}: not text in {error.encoding} ({error})."
            ) from error
        if not self.number:
            raise ValueError(f"{self.name} is empty.")

    @contextmanager
    def _open(self):
        source = self.source
        if isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as stream:
                yield _unzipped(stream)
        elif isinstance(source.read(0), str):
            yield source
        elif hasattr(source, "peek"):
            yield _unzipped(source)
        else:
            yield _unzipped(io.BufferedReader(io.BytesIO(source.read())))

    def _text(self, line):
        if isinstance(line, bytes):
            try:
                line = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise self.error(
                    f"byte {error.start + 1} of the line, {line[error.start : error.start + 1]!r}, "
                    "is not UTF-8. Convert the file to UTF-8."
                ) from None
        if "\0" in line:
            raise self.error("it holds a NUL character: this is no text file.")
        if self.number == 1:
            line = line.removeprefix("\ufeff")  # a byte order mark
        return line.removesuffix("\n").removesuffix("\r")


def _unzipped(stream):
    # the bytes that gzip data begins with, whatever the file is called
    if stream.peek(2)[:2] != b"\x1f\x8b":
        return stream
    return io.BufferedReader(gzip.GzipFile(fileobj=stream))


def load_conll(path, *, label_column=-1, columns=None, delimiter=None, comment=None,
               skip_docstart=True):
    """Read sentences in columns: a token on each line, a blank line after each sentence.

    This is the form of the CoNLL shared tasks of 2000 to 2003, and of CRF++.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip.
    label_column : int, str or None, default=-1
        The column of the labels: its position (from the end if negative) or its name. None if
        the file has no labels.
    columns : list of str, default=None
        Names of all columns of the file. By default the first token says how many there are.
    delimiter : str, default=None
        What separates columns. None is any run of spaces and tabs.
    comment : str, default=None
        Lines that begin with it are left out.
    skip_docstart : bool, default=True
        Whether to leave out lines whose first column is ``-DOCSTART-``.

    Returns
    -------
    data : Bunch
        tokens : list of lists of tuples of str
            The columns of each token but its label.
        labels : list of lists of str, or None
        columns : list of str or None
            Names of what the tuples hold, if names were given.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_conll
    >>> data = load_conll(io.StringIO("the DT B-NP\\ncat NN I-NP\\n\\nit PRP B-NP\\n"))
    >>> data.tokens
    [[('the', 'DT'), ('cat', 'NN')], [('it', 'PRP')]]
    >>> data.labels
    [['B-NP', 'I-NP'], ['B-NP']]
    """
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, not the string {columns!r}.")
    names = None if columns is None else list(columns)
    if names is None and isinstance(label_column, str):
        raise ValueError(
            f"label_column={label_column!r} is a name: pass the names of all columns as columns."
        )
    if delimiter is not None and (not isinstance(delimiter, str) or not delimiter):
        raise ValueError(f"delimiter must be None or a string, got {delimiter!r}.")
    if comment is not None and (not isinstance(comment, str) or not comment):
        raise ValueError(f"comment must be None or a string, got {comment!r}.")
    width = None if names is None else len(names)
    column = None if width is None else _column(label_column, width, names)
    lines = _Lines(path)
    tokens, labels = [], []
    sentence, sentence_labels = [], []
    known = {}  # one string object for each label

    def finish():
        nonlocal sentence, sentence_labels
        if sentence:
            tokens.append(sentence)
            labels.append(sentence_labels)
            sentence, sentence_labels = [], []

    for line in lines:
        if comment is not None and line.startswith(comment):
            continue
        if delimiter is None:
            fields = _words(line)
        else:
            fields = line.split(delimiter) if line.strip(_SPACE) else []
        if not fields:
            finish()
            continue
        if skip_docstart and fields[0] == "-DOCSTART-":
            finish()
            continue
        if len(fields) != width:
            if width is not None:
                raise lines.error(
                    f"{len(fields)} column(s) where {width} were expected: {line!r:.80}. Check the "
                    "line, or delimiter and columns."
                )
            width = len(fields)
            if width < 2 and label_column is not None:
                raise lines.error(
                    f"1 column where tokens and labels were expected: {line!r:.80}. Check the "
                    "line, or pass label_column=None if the file has no labels."
                )
            column = _column(label_column, width, None)
        if column is not None:
            label = fields.pop(column)
            sentence_labels.append(known.setdefault(label, label))
        sentence.append(tuple(fields))
    finish()
    if not tokens:
        raise ValueError(f"{lines.name} holds no tokens.")
    if names is not None and column is not None:
        del names[column]
    return Bunch(tokens=tokens, labels=None if column is None else labels, columns=names)


def _column(label_column, width, names):
    """Position of the labels, or None."""
    if label_column is None:
        return None
    if isinstance(label_column, str):
        if label_column not in names:
            raise ValueError(f"label_column={label_column!r} is not among the columns {names}.")
        return names.index(label_column)
    if not isinstance(label_column, Integral) or isinstance(label_column, bool):
        raise TypeError(f"label_column must be an integer, a name or None, got {label_column!r}.")
    if not -width <= label_column < width:
        raise ValueError(f"There is no label_column={label_column}: there are {width} columns.")
    return label_column


def load_conllu(path, *, fields="FORM", label="UPOS"):
    """Read sentences in the CoNLL-U format of Universal Dependencies.

    The words are read; multiword tokens (``3-4``), empty nodes (``8.1``) and comments are not.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip.
    fields : str or list of str, default="FORM"
        What the tokens are: one or several of ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD,
        DEPREL, DEPS and MISC.
    label : str or None, default="UPOS"
        The field of the labels; None for no labels.

    Returns
    -------
    data : Bunch
        tokens : list of lists of str, or of tuples of str
            One string for each word if `fields` is a string, else a tuple.
        labels : list of lists of str, or None

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_conllu
    >>> text = (
    ...     "1\\tcats\\tcat\\tNOUN\\t_\\t_\\t2\\tnsubj\\t_\\t_\\n"
    ...     "2\\tsleep\\tsleep\\tVERB\\t_\\t_\\t0\\troot\\t_\\t_\\n"
    ... )
    >>> data = load_conllu(io.StringIO(text))
    >>> data.tokens, data.labels
    ([['cats', 'sleep']], [['NOUN', 'VERB']])
    """
    one = isinstance(fields, str)
    chosen = [fields] if one else list(fields)
    for name in chosen if label is None else [*chosen, label]:
        if name not in CONLLU_FIELDS:
            raise ValueError(f"fields and label must be among {CONLLU_FIELDS}, got {name!r}.")
    chosen = [CONLLU_FIELDS.index(name) for name in chosen]
    column = None if label is None else CONLLU_FIELDS.index(label)
    lines = _Lines(path)
    tokens, labels = [], []
    sentence, sentence_labels = [], []
    word = cover = 0  # the last word's ID, and the last one of the multiword tokens

    def finish(number):
        nonlocal sentence, sentence_labels, word, cover
        if cover > word:
            raise lines.error(
                f"the sentence ends at word {word}, but a multiword token goes to {cover}.", number
            )
        if sentence:
            tokens.append(sentence)
            labels.append(sentence_labels)
            sentence, sentence_labels = [], []
        word = cover = 0

    for line in lines:
        if not line.strip(_SPACE):
            finish(lines.number)
            continue
        if line.startswith("#"):
            continue
        cells = line.split("\t")
        if len(cells) != 10:
            raise lines.error(
                f"{len(cells)} column(s) where CoNLL-U has 10, separated by tabs: {line!r:.80}"
            )
        match = _CONLLU_ID.fullmatch(cells[0])
        if not match:
            raise lines.error(f"the ID {cells[0]!r} is none of CoNLL-U's: 3, 3-4 or 3.1.")
        first, mark, second = int(match[1]), match[2], match[3]
        expected = word if mark == "." else word + 1
        if first != expected:
            raise lines.error(
                f"the ID {cells[0]} follows word {word}: IDs count 1, 2, 3 ... in each sentence. "
                "Is a line, or a blank line between sentences, missing?"
            )
        if mark == "-":
            if not first <= int(second) or first <= cover:
                raise lines.error(f"the multiword token {cells[0]} is empty or overlaps another.")
            cover = int(second)
        elif mark is None:
            word = first
            sentence.append(
                cells[chosen[0]] if one else tuple(cells[position] for position in chosen)
            )
            if column is not None:
                sentence_labels.append(cells[column])
    finish(lines.number)
    if not tokens:
        raise ValueError(f"{lines.name} holds no words.")
    return Bunch(tokens=tokens, labels=None if column is None else labels)


def load_crfsuite(path):
    r"""Read the attribute files of CRFsuite.

    A line is a token: its label and its attributes, separated by tabs. An attribute may have a
    weight, after a colon. A blank line ends a sequence. A colon in a name is written
    ``\:``, a backslash ``\\``.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip.

    Returns
    -------
    data : Bunch
        sequences : list of lists of lists of str, or of dicts
            What :class:`~fastm4n.SequenceVectorizer` takes: the attributes of each token; or,
            if any attribute of the file has a weight, a dict from the attributes to their
            weights, where repeated ones add up.
        labels : list of lists of str

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_crfsuite
    >>> data = load_crfsuite(io.StringIO("B-NP\tw=the\tbos\nI-NP\tw=cat\n\nO\tw=\\:\n"))
    >>> data.sequences
    [[['w=the', 'bos'], ['w=cat']], [['w=:']]]
    >>> data.labels
    [['B-NP', 'I-NP'], ['O']]
    >>> load_crfsuite(io.StringIO("O\tlength:3\tbos\n")).sequences
    [[{'length': 3.0, 'bos': 1.0}]]
    """
    lines = _Lines(path)
    sequences, labels = [], []
    sequence, sequence_labels = [], []
    any_weights = False
    known = {}  # one string object for each attribute and label, however often it occurs
    for line in lines:
        if not line.strip(_SPACE):
            if sequence:
                sequences.append(sequence)
                labels.append(sequence_labels)
                sequence, sequence_labels = [], []
            continue
        label, *fields = line.split("\t")
        # CRFsuite would take the first attribute for the label
        if not label.strip(_SPACE):
            raise lines.error("there is no label before the first tab.")
        if ":" in label or "\\" in label:
            label, weight = _attribute(label)
            if weight is not None:
                raise lines.error(
                    f"the label {label!r} has a weight; a colon in a label is written '\\:'."
                )
        fields = [known.setdefault(field, field) for field in fields if field]
        if ":" in line or "\\" in line:
            token, weights = [], []
            for field in fields:
                name, weight = _attribute(field)
                if not name:
                    raise lines.error(f"the attribute {field!r} has no name.")
                if weight is not None:
                    any_weights = True
                    weight = _weight(weight, field, lines)
                token.append(known.setdefault(name, name))
                weights.append(1.0 if weight is None else weight)
            sequence.append((token, weights))
        else:
            sequence.append((fields, None))
        sequence_labels.append(known.setdefault(label, label))
    if sequence:
        sequences.append(sequence)
        labels.append(sequence_labels)
    if not sequences:
        raise ValueError(f"{lines.name} holds no tokens.")
    # in place, to hold no second copy of a large file
    for sequence in sequences:
        sequence[:] = [
            _weighted(names, weights) if any_weights else names for names, weights in sequence
        ]
    return Bunch(sequences=sequences, labels=labels)


def _attribute(field):
    """Name, and text of the weight or None."""
    name, weight = _ATTRIBUTE.fullmatch(field).groups()
    return _ESCAPED.sub(r"\1", name), weight


def _weight(text, field, lines):
    if ":" in text:
        raise lines.error(
            f"the attribute {field!r} has two colons; a colon in a name is written '\\:'."
        )
    try:
        # CRFsuite takes a colon without a number for a weight of 1
        weight = _number(text) if text else 1.0
    except ValueError:
        weight = None
    if weight is None or not np.isfinite(weight):
        raise lines.error(
            f"the weight {text!r} of the attribute {field!r} is not a finite number; a colon in a "
            "name is written '\\:'."
        )
    return weight


def _weighted(names, weights):
    if weights is None:
        weights = [1.0] * len(names)
    token = {}
    for name, weight in zip(names, weights):
        token[name] = token.get(name, 0.0) + weight
    return token


def load_svmlight_sequences(path, *, n_features=None, zero_based="auto", dtype=np.float64):
    """Read sequences of sparse rows in svmlight's format, where ``qid`` names the sequence.

    A line is a token: its label, a number; ``qid:`` and the number of its sequence; and its
    features as ``index:value``, by increasing index. The tokens of a sequence are consecutive. What
    follows a ``#`` is a comment. SVM-HMM, of the makers of SVM-struct, uses this form.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip.
    n_features : int, default=None
        Number of columns; by default as many as the greatest index needs.
    zero_based : bool or "auto", default="auto"
        Whether indices count from 0. By default they do if one of them is 0.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.

    Returns
    -------
    data : Bunch
        X : Sequences of CSR rows
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
    return Bunch(X=Sequences(rows, offsets), y=Sequences(labels, offsets), qid=qids)


def load_svmlight(path, *, n_features=None, zero_based="auto", dtype=np.float64):
    """Read sparse rows in svmlight's format.

    A line is an example: its label, a number; and its features as ``index:value``, by increasing
    index. What follows a ``#`` is a comment. scikit-learn reads the same files faster; this reader
    names file and line in its errors.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip.
    n_features : int, default=None
        Number of columns; by default as many as the greatest index needs.
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
_NO_QID = "there is no qid after the label; it names the sequence, as in '1 qid:7 3:0.5'."


def read_svmlight(path, *, n_features=None, zero_based="auto", dtype=np.float64, with_qid=None):
    """CSR rows, labels, the sequences' offsets and numbers, and whether indices count from 0.

    Parameters are those of `load_svmlight`; with_qid says whether lines have a qid, None that the
    first one decides. Offsets are None without.
    """
    if np.dtype(dtype) not in (np.float64, np.float32):
        raise ValueError(f"dtype must be numpy.float64 or numpy.float32, got {dtype!r}.")
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}.")
    if n_features is not None and (
        not isinstance(n_features, Integral) or isinstance(n_features, bool) or n_features < 1
    ):
        raise ValueError(f"n_features must be an integer >= 1 or None, got {n_features!r}.")
    lines = _Lines(path)
    labels, data, indices = array("d"), array("d"), array("q")
    indptr, numbers, starts = array("q", [0]), array("q"), array("q")
    sequences = {}  # from qid to the line where it began
    current = None
    for line in lines:
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        try:
            label = _number(fields[0])
        except ValueError:
            raise lines.error(f"the label {fields[0]!r} is not a number.") from None
        has_qid = len(fields) > 1 and fields[1].startswith("qid:")
        if with_qid is None:
            with_qid = has_qid
        if has_qid != with_qid:
            raise lines.error(_NO_QID if with_qid else _QID)
        if with_qid:
            try:
                qid = _integer(fields[1][4:])
            except ValueError:
                raise lines.error(
                    f"the sequence {fields[1]!r} is not qid: and an integer."
                ) from None
            if qid != current:
                if qid in sequences:
                    raise lines.error(
                        f"qid:{qid} comes back after another sequence; it began at line "
                        f"{sequences[qid]}. The tokens of a sequence must be consecutive."
                    )
                current, sequences[qid] = qid, lines.number
                starts.append(len(labels))
        fields = fields[2 if with_qid else 1:]
        try:
            pairs = [field.split(":") for field in fields]
            indices.extend([_integer(index) for index, _ in pairs])
            data.extend([_number(value) for _, value in pairs])
        except (ValueError, OverflowError):
            raise lines.error(_bad_feature(fields)) from None
        labels.append(label)
        indptr.append(len(data))
        numbers.append(lines.number)
    if not labels:
        raise ValueError(f"{lines.name} holds no {'tokens' if with_qid else 'examples'}.")

    labels, indices, indptr, numbers = map(np.array, (labels, indices, indptr, numbers))
    with np.errstate(over="ignore"):
        data = np.array(data, dtype=dtype)

    def check(bad, what):
        """Raise an error at the row of the first entry that is bad."""
        if bad.any():
            entry = bad.argmax()
            row = np.searchsorted(indptr, entry, side="right") - 1
            raise lines.error(what.format(indices[entry], data[entry]), numbers[row])

    if not np.isfinite(labels).all():
        row = np.flatnonzero(~np.isfinite(labels))[0]
        raise lines.error(f"the label is {labels[row]}; labels must be finite.", numbers[row])
    check(~np.isfinite(data), f"the value of feature {{}} is {{}}, no finite {data.dtype}.")
    check(indices < 0, "the index {} is negative.")
    increases = np.ones(len(indices), dtype=bool)
    increases[1:] = indices[1:] > indices[:-1]
    increases[indptr[:-1][np.diff(indptr) > 0]] = True  # the first entries of their rows
    check(~increases, "the index {} does not exceed the one before it; indices must increase.")
    if zero_based == "auto":
        zero_based = not indices.all()
    if not zero_based:
        check(indices == 0, "the index {}, but zero_based=False.")
        indices -= 1
    needed = int(indices.max(initial=-1)) + 1
    if n_features is None:
        if not needed:
            raise ValueError(f"{lines.name} holds no features; pass n_features.")
        n_features = needed
    check(indices >= n_features, f"an index needs {needed} columns, but n_features={n_features}.")

    small = max(len(data), n_features) < 2**31
    rows = sp.csr_matrix(
        (data, indices.astype(np.int32 if small else np.int64, copy=False), indptr),
        shape=(len(labels), n_features),
    )
    if np.all(labels == np.trunc(labels)) and np.abs(labels).max() < 2**53:
        labels = labels.astype(np.int64)
    offsets = np.append(np.array(starts), len(labels)) if with_qid else None
    qids = np.fromiter(sequences, np.int64, len(sequences))
    return rows, labels, offsets, qids, zero_based


def load_label_ranking(path):
    """Read examples with rankings from comma-separated values.

    The first line names the columns. All hold numbers, but the last: it is called ``ranking`` and
    holds strings such as ``b>a>c``, best first, of the same items in every line. The data sets of
    the label ranking literature are distributed in this form.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip. Values may be quoted.

    Returns
    -------
    X : ndarray of float64, shape (n, n_features)
    y : ndarray of str, shape (n,)
        The rankings, as :func:`fastm4n.rankings.as_places` takes them.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_label_ranking
    >>> X, y = load_label_ranking(io.StringIO("u,v,ranking\\n0.5,1,b>a>c\\n-2,0,a>b>c\\n"))
    >>> X
    array([[ 0.5,  1. ],
           [-2. ,  0. ]])
    >>> y.tolist()
    ['b>a>c', 'a>b>c']
    """
    lines = _Lines(path)
    ranking = _Rankings(lines)
    values, rankings, width = array("d"), [], None
    for fields in _table(lines, ","):
        if width is None:
            columns, width = fields, len(fields)
            if columns[-1] != "ranking" or width < 2:
                raise lines.error(
                    f"the columns are {columns!r:.80}, but numbers were expected, and a last "
                    "column 'ranking'. The first line must name the columns, separated by commas."
                )
            continue
        rankings.append(ranking(fields.pop()))
        values.extend(_finite(fields, columns, lines))
    if not rankings:
        raise ValueError(f"{lines.name} holds no examples.")
    return np.array(values).reshape(len(rankings), -1), np.array(rankings)


def load_csv(path, *, target=-1, columns=None, delimiter=None):
    """Read a table: a line that names the columns, and then an example on each line.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip. Values may be quoted.
    target : str, int or None, default=-1
        The column of what is to be predicted: its name, or its position, from the end if
        negative. None if there is none.
    columns : list of str or int, default=None
        The columns of features, in this order, which hold numbers; by default all but the target.
    delimiter : str, default=None
        One character. By default the one among comma, tab and semicolon that is most frequent in
        the first line.

    Returns
    -------
    data : Bunch
        X : ndarray of float64, shape (n, n_columns)
        y : ndarray of shape (n,), or None
            Integers or floats if all values are such numbers, else strings.
        columns : list of str
            Names of the columns of X.
        target : str or None
            Name of the column of y.

    Raises
    ------
    ValueError
        Naming the line and column of what is no finite number, or of a value that is missing.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_csv
    >>> data = load_csv(io.StringIO("kind,u,v\\na,0.5,1\\nb,-2,0\\n"), target="kind")
    >>> data.X
    array([[ 0.5,  1. ],
           [-2. ,  0. ]])
    >>> data.y.tolist(), data.columns
    (['a', 'b'], ['u', 'v'])
    """
    return read_table(path, target, columns, delimiter)


def read_table(path, target, columns, delimiter, *, rankings=False, numbered=False):
    """`load_csv`, and more.

    rankings: whether the target holds rankings, which are then checked line by line; None if that
    goes by a ``>`` in the first one. numbered: strings that are no names but integers are taken
    for positions, counted from 1, or from the end if negative.
    """
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise ValueError(f"delimiter must be one character or None, got {delimiter!r}.")
    lines = _Lines(path)
    ranking = _Rankings(lines)
    names = chosen = None
    values, targets, numbers = array("d"), [], []
    known = {}  # one string object for each value
    for fields in _table(lines, delimiter):
        if names is None:
            names = fields
            if numbered:
                target, columns = _numbered(target, names), columns and [
                    _numbered(column, names) for column in columns
                ]
            twice = {name for name in names if names.count(name) > 1}
            place = _place(target, names, lines)
            if columns is None:
                columns = [name for i, name in enumerate(names) if i != place]
            chosen = [_place(column, names, lines) for column in columns]
            columns = [names[i] for i in chosen]
            if twice & {*columns, *([] if place is None else [names[place]])}:
                raise lines.error(f"two columns are called {min(twice)!r}.")
            if not columns:
                raise lines.error("there are no columns of features.")
            if place in chosen:
                raise lines.error(f"{names[place]!r} is the target, and among the features.")
            continue
        if place is not None:
            value = fields[place].strip(_SPACE)
            if not value:
                raise lines.error(f"{names[place]} is empty.")
            if rankings is None:
                rankings = ">" in value
            targets.append(ranking(value) if rankings else known.setdefault(value, value))
        values.extend(_finite([fields[i] for i in chosen], columns, lines))
        numbers.append(lines.number)
    if not numbers:
        raise ValueError(f"{lines.name} holds no examples.")
    return Bunch(
        X=np.array(values).reshape(len(numbers), len(columns)),
        y=None if place is None else _typed(targets),
        columns=list(columns),
        target=None if place is None else names[place],
    )


def _numbered(column, names):
    """A position, counted from 0, for a string that is a number and no name."""
    if not isinstance(column, str) or column in names:
        return column
    try:
        number = _integer(column)
    except ValueError:
        return column
    # there is no column 0
    return number - 1 if number > 0 else number or len(names)


def _place(target, names, lines):
    """Position of a column, or None."""
    if target is None:
        return None
    if isinstance(target, str):
        if target not in names:
            raise lines.error(
                f"there is no column {target!r}; the columns are {names!r:.200}. The first line "
                "must name the columns."
            )
        return names.index(target)
    if not isinstance(target, Integral) or isinstance(target, bool):
        raise TypeError(f"target must be an integer, a name or None, got {target!r}.")
    if not -len(names) <= target < len(names):
        raise lines.error(f"a column was asked for that is not among the {len(names)}.")
    return int(target) % len(names)


def _typed(texts):
    """Integers, or floats, if all are such numbers."""
    distinct = sorted(set(texts))
    for kind, parse in ((np.int64, _integer), (np.float64, _number)):
        try:
            value_of = {text: parse(text) for text in distinct}
            numbers = np.array([value_of[text] for text in texts], dtype=kind)
        except (ValueError, OverflowError):
            continue
        if np.isfinite(numbers).all():
            return numbers
    return np.array(texts)


def _table(lines, delimiter):
    """The rows of separated values, the first one's names without the spaces around them."""
    width = None

    def text():
        nonlocal delimiter
        for line in lines:
            if delimiter is None:
                delimiter = max(",\t;", key=line.count)
            yield line

    source = text()
    first = next(source, "")
    rows = csv.reader(
        itertools.chain([first], source), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    while True:
        try:
            fields = next(rows, None)
        except csv.Error as error:
            raise lines.error(f"not comma-separated values ({error}).") from None
        if fields is None:
            return
        if not any(field.strip(_SPACE) for field in fields):
            continue
        if width is None:
            width = len(fields)
            fields = [field.strip(_SPACE) for field in fields]
        elif len(fields) != width:
            raise lines.error(
                f"{len(fields)} column(s) where {width} were expected: "
                f"{delimiter.join(fields)!r:.80}."
            )
        yield fields


def _finite(fields, columns, lines):
    """The numbers of a row."""
    values = []
    for column, field in zip(columns, fields):
        try:
            value = _number(field)
        except ValueError:
            value = np.nan
        if not isfinite(value):
            raise lines.error(f"{column} is {field!r}, which is not a finite number.")
        values.append(value)
    return values


class _Rankings:
    """Checks rankings line by line: all of the same items."""

    def __init__(self, lines):
        self.lines, self.items = lines, None
        self.known = {}  # one string object for each ranking that was checked

    def __call__(self, ranking):
        ranking = ranking.strip(_SPACE)
        if ranking not in self.known:
            ranked = _ranked(ranking, self.lines)
            if self.items is None:
                self.items = ranked
            elif ranked != self.items:
                raise self.lines.error(
                    f"the ranking {ranking!r} is not one of the items {', '.join(self.items)}, "
                    "which are ranked in the lines before."
                )
            self.known[ranking] = ranking
        return self.known[ranking]


def _ranked(ranking, lines):
    """The items of a ranking, sorted."""
    items = sorted(item.strip() for item in ranking.split(">"))
    if "" in items or "=" in ranking or len(set(items)) < len(items):
        raise lines.error(
            f"the ranking {ranking!r} is not of the form 'b>a>c', with each item once. Ties are "
            "not supported."
        )
    return items


def _number(text):
    """A float as files have it: Python alone would take 1_000."""
    if "_" in text:
        raise ValueError(text)
    return float(text)


def _integer(text):
    if "_" in text:
        raise ValueError(text)
    return int(text)


def _bad_feature(fields):
    for field in fields:
        index, colon, value = field.partition(":")
        try:
            _number(value)
            if abs(_integer(index)) < 2**63:
                continue
        except ValueError:
            pass
        return f"{field!r} is not a feature, index:value."
    return "a feature is not index:value."
