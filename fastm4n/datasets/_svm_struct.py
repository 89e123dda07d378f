"""Files of SVM-hmm and SVM-rank: sequences with tags, and queries with documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.data._sequences import Sequences
from fastm4n.datasets._bunch import bunch
from fastm4n.datasets._lines import Lines, number
from fastm4n.datasets._svmlight import as_whole, check_options, svmlight_batches

if TYPE_CHECKING:
    from typing import Any

    from sklearn.utils import Bunch

    from fastm4n.base.types import Source


def load_svm_hmm(path: Source, *, n_features: int | None = None, dtype: Any = np.float64) -> Bunch:
    """Read sequences from a file of SVM-hmm.

    A line is a token: ``TAG qid:EX_NUM FEAT:VAL ... # comment``. Consecutive lines with the same
    EX_NUM are a sequence. Features are counted from 1, in ascending order. Tags are numbers, as in
    SVM-hmm, or words.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    n_features : int, default=None
        Number of columns. The default is the greatest number of a feature, at most 10^8. For new
        sequences pass the number of the fit.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.

    Returns
    -------
    data : Bunch
        X : Sequences of CSR rows
            Feature number f is column f - 1.
        y : Sequences of labels
            Integers if all tags are whole numbers, strings if a tag is no number.
        qid : ndarray of int64, shape (n_sequences,)
            The number of each sequence.

    See Also
    --------
    load_svmlight_sequences : Features counted from 0 or 1, labels that are numbers.
    load_svm_rank : Files of SVM-rank.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_svm_hmm
    >>> text = "NOUN qid:1 1:1 12:0.5 # dogs\\nVERB qid:1 2:1 # bark\\nNOUN qid:2 3:1\\n"
    >>> data = load_svm_hmm(io.StringIO(text))
    >>> data.X
    <Sequences: 2 sequences, 3 rows, 12 columns, CSR of float64>
    >>> data.y[0]
    array(['NOUN', 'VERB'], dtype='<U4')
    """
    rows, texts, numbers, batch = read_svm_hmm(path, n_features, dtype)
    return _sequences(rows, texts if numbers is None else as_whole(numbers), batch)


def read_svm_hmm(path, n_features=None, dtype=np.float64):
    """Rows, tags as text and as numbers (None if a tag is a word), and the batch of a file."""
    tags = {}
    rows, codes, batch = _read(path, n_features, dtype, "SVM-hmm", tags=tags, words=True)
    codes = codes.astype(np.intp)
    try:
        numbers = np.array([number(tag) for tag in tags])[codes]
    except ValueError:
        numbers = None
    else:
        batch.check_labels(numbers)
    return rows, np.array(list(tags))[codes], numbers, batch


def load_svm_rank(path: Source, *, n_features: int | None = None, dtype: Any = np.float64) -> Bunch:
    """Read queries and their documents from a file of SVM-rank.

    A line is a document: ``TARGET qid:QUERY FEAT:VAL ... # comment``. Lines of one QUERY are
    consecutive. The greater the target, the higher the document ranks. Targets of different queries
    are not compared. Features are counted from 1, in ascending order. LETOR and other collections
    of rankings have this form.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    n_features : int, default=None
        Number of columns. The default is the greatest number of a feature, at most 10^8. For new
        queries pass the number of the fit.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.

    Returns
    -------
    data : Bunch
        X : Sequences of CSR rows
            A row for each document of each query. Feature number f is column f - 1.
        y : Sequences
            The targets, integers if all are whole numbers.
        qid : ndarray of int64, shape (n_queries,)
            The number of each query.

    See Also
    --------
    fastm4n.data.preference_pairs : Problem of SVM-rank, for `MulticlassClassifier`.
    fastm4n.data.document_pairs : Rankings of documents, for `Matcher`.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_svm_rank
    >>> text = "2 qid:1 1:0.5 # best\\n1 qid:1 2:1\\n0 qid:2 1:1\\n3 qid:2 2:0.25\\n"
    >>> data = load_svm_rank(io.StringIO(text))
    >>> data.X[1].toarray(), data.y[1]
    (array([[1.  , 0.  ],
           [0.  , 0.25]]), array([0, 3]))
    """
    rows, texts, batch = read_svm_rank(path, n_features, dtype)
    return _sequences(rows, as_whole(np.array(list(map(number, texts.tolist())))), batch)


def read_svm_rank(path, n_features=None, dtype=np.float64):
    """Rows, targets as text, and the batch of a file."""
    tags = {}
    rows, codes, batch = _read(
        path, n_features, dtype, "SVM-rank", tags=tags, nouns=("query", "documents"))
    return rows, np.array(list(tags))[codes.astype(np.intp)], batch


def _read(path, n_features, dtype, program, **options):
    """Rows, labels and the batch of a file whose features are counted from 1."""
    check_options(dtype, False, n_features)
    lines = Lines(path)
    batch, = svmlight_batches(lines, dtype, with_qid=True, **options)
    batch.check(
        batch.indices == 0,
        f"the feature number is {{}}, but {program} counts from 1. Use load_svmlight_sequences for "
        "files that count from 0.")
    greatest = int(batch.indices.max(initial=0))
    if n_features is None:
        batch.check_claims("feature number")
        if not greatest:
            raise ValueError(f"{lines.name} has no features; pass n_features.")
    return batch.rows(False, greatest if n_features is None else n_features), batch.labels, batch


def _sequences(rows, labels, batch):
    offsets = np.append(batch.starts, len(labels))
    return bunch(X=Sequences(rows, offsets), y=Sequences(labels, offsets), qid=batch.qids)
