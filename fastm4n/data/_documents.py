"""Rankings of documents of queries as problems of estimators: pairs, or matchings with ranks.

A weight vector w scores document x by w x. A query's documents are ranked by descending scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from fastm4n.base.checks import check_number
from fastm4n.data._sequences import Sequences

if TYPE_CHECKING:
    from fastm4n.base.types import CSR, FloatArray, IntArray
    from fastm4n.data._types import Labellings, SequenceData


def preference_pairs(
    X: SequenceData, y: Labellings, *, cache_size: float = 2048,
) -> tuple[FloatArray | CSR, IntArray, IntArray]:
    """Make pairs of documents, whose classification is the problem of SVM-rank.

    Two documents of a query with different targets make a pair: the difference of their features.
    Its class is 1 if the first document is better, and -1 if it is worse. Classes alternate. On the
    pairs of n queries,
    ``MulticlassClassifier("max_margin", alpha=2 * n / (C * len(signs)), fit_intercept=False)``
    solves the problem of ``svm_rank_learn -c C``. The loss counts pairs in the wrong order. The
    weights of the documents' scores are ``coef_[1] - coef_[0]``.

    Parameters
    ----------
    X : Sequences or list of array-like of shape (n_documents, n_features)
        The documents of each query, dense or CSR, for example from
        :func:`fastm4n.datasets.load_svm_rank`.
    y : Sequences or list of array-like of shape (n_documents,)
        The target of each document: the greater, the better. Documents with equal targets are no
        pair.
    cache_size : float, default=2048
        Memory limit of the pairs in MiB. A query with m documents has up to m (m - 1) / 2 pairs.
        Making them needs twice the memory.

    Returns
    -------
    pairs : ndarray or CSR matrix of shape (n_pairs, n_features)
    signs : ndarray of int, shape (n_pairs,)
        1 and -1.
    queries : ndarray of int, shape (n_pairs,)
        The number of the query of each pair, for groups of splits and for weights.

    See Also
    --------
    document_pairs : The ranking of all documents of a query at once.

    Examples
    --------
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.data import preference_pairs
    >>> X, y = [[[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]], [[2, 0, 0]]
    >>> pairs, signs, queries = preference_pairs(X, y)
    >>> pairs.tolist(), signs, queries
    ([[1.0, -1.0], [-0.5, 0.5]], array([ 1, -1]), array([0, 0]))
    >>> svm = MulticlassClassifier("max_margin", fit_intercept=False, random_state=0)
    >>> weights = svm.fit(pairs, signs).coef_
    >>> (X[0] @ (weights[1] - weights[0])).argmax()
    np.int64(0)
    """
    check_number("cache_size", cache_size, low=0)
    X, y = _queries(X, y)
    orders, ends = zip(*map(_by_target, y), strict=True)
    counts = [order.size - end for order, end in zip(orders, ends, strict=True)]
    n_pairs = np.array([int(count.sum()) for count in counts])
    widths = np.full(len(X), X.values.shape[1])
    if sparse.issparse(X.values):
        rows = np.append(np.diff(X.values.indptr), 0)
        # a difference has the entries of both documents, each with its column
        widths = 3 * np.maximum.reduceat(rows, X.offsets[:-1])
    needed = 8.0 * float(n_pairs @ widths) / 2.0**20
    if needed > cache_size:
        raise ValueError(
            f"{n_pairs.sum()} pairs of documents need {needed:.3g} MiB, but cache_size is "
            f"{cache_size:g}. Raise it, or use fewer queries or documents.")
    if not n_pairs.any():
        raise ValueError("There are no pairs: in each query all documents have the same target.")
    better, worse = [], []
    for start, order, end, count in zip(X.offsets[:-1], orders, ends, counts, strict=True):
        better.append(start + np.repeat(order, count))
        place = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - end, count)
        worse.append(start + order[place])
    better, worse = np.concatenate(better), np.concatenate(worse)
    signs = np.where(np.arange(better.size) % 2, -1, 1)
    first, second = np.where(signs > 0, better, worse), np.where(signs > 0, worse, better)
    pairs = X.values[first] - X.values[second]
    return pairs, signs, np.repeat(np.arange(len(X)), n_pairs)


def document_pairs(
    X: SequenceData, y: Labellings | None = None, *, cache_size: float = 2048,
) -> tuple[list[FloatArray], list[IntArray] | None]:
    """Make features of documents at ranks, for a `Matcher` that ranks documents.

    The score of a ranking is the sum over its pairs of documents, x before x', of w x - w x'. It
    equals the sum over documents of (m - 1 - 2 r) w x, for rank r of m, counted from 0. A `Matcher`
    of documents and ranks with the features (m - 1 - 2 r) x of document x at rank r therefore
    learns w, its ``coef_``. Rank documents of new queries by descending ``x @ coef_``.

    The loss is a cost of ranks. With ``cost="absolute"`` it is the sum of the differences of ranks
    (Spearman's footrule), between one and two times the number of swapped pairs. For the number of
    swapped pairs itself, the loss of SVM-rank, use :func:`preference_pairs`.

    Parameters
    ----------
    X : Sequences or list of array-like of shape (n_documents, n_features)
        The documents of each query, dense or CSR.
    y : Sequences or list of array-like of shape (n_documents,), default=None
        The target of each document: the greater, the better. Targets within a query differ. None
        if they are unknown.
    cache_size : float, default=2048
        Memory limit of the dense features in MiB. A query with m documents needs 8 m^2 n_features
        bytes.

    Returns
    -------
    pairs : list of ndarray of shape (n_documents, n_documents, n_features)
        ``pairs[i][j, r]`` are the features of document j of query i at rank r.
    ranks : list of ndarray of int, shape (n_documents,)
        The rank of each document, 0 for the greatest target. None without y.

    See Also
    --------
    preference_pairs : Problem of SVM-rank, also with equal targets.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import Matcher
    >>> from fastm4n.data import document_pairs
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(m, 2)) for m in (3, 5, 4, 6)]
    >>> y = [x @ [2.0, -1.0] for x in X]
    >>> pairs, ranks = document_pairs(X, y)
    >>> matcher = Matcher("max_margin", alpha=1e-3, cost="absolute", random_state=0)
    >>> w = matcher.fit(pairs, ranks).coef_
    >>> all((np.argsort(-x @ w) == np.argsort(-targets)).all() for x, targets in zip(X, y))
    True
    """
    check_number("cache_size", cache_size, low=0)
    X, y = _queries(X, y)
    lengths = X.lengths
    needed = 8.0 * float((lengths.astype(float)**2).sum()) * X.values.shape[1] / 2.0**20
    if needed > cache_size:
        raise ValueError(
            f"Documents at ranks need {needed:.3g} MiB, with up to {lengths.max()} documents in a "
            f"query, but cache_size is {cache_size:g}. Raise it, or use preference_pairs.")
    ranks = None if y is None else [_ranks(y[i], i) for i in range(len(X))]
    pairs = []
    for i in range(len(X)):
        rows = X[i].toarray() if sparse.issparse(X[i]) else X[i]
        steps = rows.shape[0] - 1.0 - 2.0 * np.arange(rows.shape[0])
        pairs.append(rows[:, np.newaxis, :] * steps[:, np.newaxis])
    return pairs, ranks


def _queries(X, y):
    """Documents and their targets as containers, float64."""
    X = Sequences.from_list(X)
    if len(X) == 0:
        raise ValueError("X has no queries.")
    if X.values.ndim != 2:
        raise ValueError(
            "X must have a matrix for each query, with a row for each document, got "
            f"{X.values.ndim} dimension(s).")
    if X.values.dtype.kind not in "fiub":
        raise ValueError(f"X must have numbers, got {X.values.dtype}.")
    X = Sequences(X.values.astype(np.float64), X.offsets)
    data = X.values.data if sparse.issparse(X.values) else X.values
    if not np.isfinite(data).all():
        raise ValueError("X has features that are not finite.")
    if y is None:
        return X, None
    y = Sequences.from_list(y)
    if len(y) != len(X):
        raise ValueError(f"y has the targets of {len(y)} queries, but X has {len(X)}.")
    wrong = np.flatnonzero(y.lengths != X.lengths)
    if wrong.size:
        i = wrong[0]
        raise ValueError(
            f"y[{i}] has {y.lengths[i]} targets, but X[{i}] has {X.lengths[i]} documents.")
    if y.values.ndim != 1 or y.values.dtype.kind not in "fiub":
        raise ValueError("y must have a number for each document: the greater, the better.")
    targets = y.values.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(targets))
    if bad.size:
        i = int(np.searchsorted(y.offsets, bad[0], side="right")) - 1
        raise ValueError(
            f"Targets must be finite; y[{i}] has {targets[bad[0]]} for document "
            f"{bad[0] - y.offsets[i]}.")
    return X, Sequences(targets, y.offsets)


def _by_target(targets):
    """Documents by descending targets, and for each the place of the first smaller target."""
    order = np.argsort(-targets, kind="stable")
    falling = -targets[order]
    return order, np.searchsorted(falling, falling, side="right")


def _ranks(targets, i):
    """Ranks of the documents of query i, 0 for the greatest target."""
    order = np.argsort(-targets, kind="stable")
    same = np.flatnonzero(np.diff(targets[order]) == 0)
    if same.size:
        one, other = order[same[0]], order[same[0] + 1]
        raise ValueError(
            f"Documents {one} and {other} of query {i} have the same target, {targets[one]:g}. "
            "Remove one of them, or use preference_pairs.")
    ranks = np.empty(order.size, dtype=np.intp)
    ranks[order] = np.arange(order.size)
    return ranks
