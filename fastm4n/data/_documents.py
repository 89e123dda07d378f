"""Rankings of the documents of queries, as problems of estimators: pairs, or matchings with ranks.

A weight vector w scores document x by w x, and a query's documents are ranked by falling scores.
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
    """Differences of documents, whose classification is the problem of SVM-rank.

    Each two documents of a query with different targets are a pair: the features of one less those
    of the other, in the class 1 where the first is the better one, -1 where it is the worse one.
    Classes alternate, so that both occur. Without intercept,
    ``MulticlassClassifier("max_margin", alpha=2 * n / (C * len(signs)), fit_intercept=False)`` on
    them is the problem that ``svm_rank_learn -c C`` solves for n queries: the loss counts the pairs
    that are in the wrong order. Documents score by ``coef_[1] - coef_[0]``.

    Parameters
    ----------
    X : Sequences or list of array-like of shape (n_documents, n_features)
        The documents of each query, dense or CSR, as :func:`fastm4n.datasets.load_svm_rank` reads
        them.
    y : Sequences or list of array-like of shape (n_documents,)
        The target of each document: the greater, the better. Documents of equal targets are no
        pair.
    cache_size : float, default=2048
        Most memory in MiB for the pairs, of which there are up to m (m - 1) / 2 of a query with m
        documents. Twice as much is needed while they are made.

    Returns
    -------
    pairs : ndarray or CSR matrix of shape (n_pairs, n_features)
    signs : ndarray of int, shape (n_pairs,)
        1 and -1.
    queries : ndarray of int, shape (n_pairs,)
        The number of the query of each pair: groups of splits, and weights, such as one over the
        number of pairs of a query.

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
        # a difference has the entries of both, each with its column
        widths = 3 * np.maximum.reduceat(rows, X.offsets[:-1])
    needed = 8.0 * float(n_pairs @ widths) / 2.0**20
    if needed > cache_size:
        raise ValueError(
            f"{n_pairs.sum()} pairs of documents need {needed:.3g} MiB, and cache_size is "
            f"{cache_size:g}. Raise it, or take a part of the queries, or of their documents.")
    if not n_pairs.any():
        raise ValueError(
            "There are no pairs: in each query all documents have the same target. Targets of "
            "different queries are not compared.")
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
    """Features of documents at ranks, with which a `Matcher` learns to rank documents.

    A ranking scores the sum over its pairs of documents, x before x', of w x - w x'. That is the
    sum over documents of (m - 1 - 2 r) w x for rank r of m, counted from 0. So a `Matcher` of
    documents and ranks whose features of document x at rank r are (m - 1 - 2 r) x learns w: it is
    ``coef_``, and documents of new queries are ranked by falling ``x @ coef_``, which needs no
    pairs. Its loss is a cost of ranks: with ``cost="absolute"`` the sum of the differences of ranks
    (Spearman's footrule), which is between one and two times the number of swapped pairs, the loss
    of SVM-rank. That loss itself is no sum over documents; :func:`preference_pairs` has it.

    Parameters
    ----------
    X : Sequences or list of array-like of shape (n_documents, n_features)
        The documents of each query, dense or CSR.
    y : Sequences or list of array-like of shape (n_documents,), default=None
        The target of each document: the greater, the better. Those of a query differ. None if they
        are not known.
    cache_size : float, default=2048
        Most memory in MiB for the features, which are dense: 8 m^2 n_features bytes for a query
        with m documents.

    Returns
    -------
    pairs : list of ndarray of shape (n_documents, n_documents, n_features)
        ``pairs[i][j, r]`` are the features of document j of query i at rank r.
    ranks : list of ndarray of int, shape (n_documents,)
        The rank of each document, 0 for the greatest target; None without y.

    See Also
    --------
    preference_pairs : The problem of SVM-rank, also where documents have equal targets.

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
            f"Documents at ranks need {needed:.3g} MiB, the largest query having {lengths.max()} "
            f"documents, and cache_size is {cache_size:g}. Raise it, or use preference_pairs.")
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
            "X must have a matrix for each query, a row for each document; its arrays have "
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
            f"y[{i}] has {targets[bad[0]]} for document {bad[0] - y.offsets[i]}; targets must be "
            "finite.")
    return X, Sequences(targets, y.offsets)


def _by_target(targets):
    """Documents by falling targets, and for each of them where those of smaller ones begin."""
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
            f"Documents {one} and {other} of query {i} have the same target, {targets[one]:g}: "
            "there is no one ranking. Leave one of them out, or use preference_pairs, which "
            "compares documents of different targets only.")
    ranks = np.empty(order.size, dtype=np.intp)
    ranks[order] = np.arange(order.size)
    return ranks
