"""Graphs between labels: named, learnt from indicators, or given; and which sets there are."""

import re
from contextlib import contextmanager

import numpy as np

from fastm4n.base.checks import check_choice
from fastm4n.factors import factor_scores

GRAPHS = ("tree", "complete", "none")
# mutual information, in nats, that rounding may leave where there is none
_NONE = 1e-12


def check_graph(graph):
    """Refuse what is neither a name nor an array of pairs."""
    if isinstance(graph, str):
        check_choice("graph", graph, GRAPHS)
        return
    try:
        edges = np.asarray(graph)
    except ValueError:
        edges = np.zeros(0, dtype=object)
    empty = edges.size == 0 and edges.dtype.kind != "O"
    if not empty and (
        edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iuf"
        or edges.dtype.kind == "f" and np.any(edges != np.floor(edges))
    ):
        raise ValueError(
            f"graph must be one of {GRAPHS} or pairs of columns of y, of shape (n_edges, 2), got "
            f"{graph!r:.100}."
        )


def label_edges(graph, Y, weights, counts=None):
    """Edges between labels, the lower label first.

    Parameters
    ----------
    graph : {"tree", "complete", "none"} or array-like of shape (n_edges, 2)
        As `check_graph` lets pass.
    Y : ndarray of shape (n_samples, n_labels)
        Indicators, of which "tree" is learnt.
    weights : ndarray of shape (n_samples,)
        Positive.
    counts : ndarray, default=None
        The sum of `pair_counts` over all parts of the data, where Y is one of them.

    Returns
    -------
    edges : ndarray of int of shape (n_edges, 2)
        In lexicographic order, or as they are given.
    """
    n_labels = Y.shape[1]
    if not isinstance(graph, str):
        return _checked_edges(np.asarray(graph), n_labels)
    if graph == "none":
        return np.zeros((0, 2), dtype=np.intp)
    if graph == "complete":
        return np.stack(np.triu_indices(n_labels, 1), axis=1)
    return chow_liu(Y, weights, counts)


def _checked_edges(given, n_labels):
    edges = given.reshape(-1, 2).astype(np.intp)
    outside = np.flatnonzero(((edges < 0) | (edges >= n_labels)).any(axis=1))
    loops = np.flatnonzero(edges[:, 0] == edges[:, 1])
    for wrong, what in (
        (outside, f"labels are numbered 0 ... {n_labels - 1}, the columns of y"),
        (loops, "an edge joins two labels, and this one joins a label to itself"),
    ):
        if wrong.size:
            e = int(wrong[0])
            raise ValueError(f"graph: edge {e} is {tuple(edges[e].tolist())}; {what}.")
    edges = np.sort(edges, axis=1)
    _, first, place = np.unique(edges, axis=0, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[place.ravel()] != np.arange(len(edges)))
    if repeated.size:
        e = int(repeated[0])
        raise ValueError(
            f"graph: edge {e} is {tuple(given.reshape(-1, 2)[e].tolist())}, which edge "
            f"{int(first[place.ravel()[e]])} is already; give each pair once."
        )
    return edges


def pair_counts(Y, weights):
    """The weight of the samples that have both of two labels; the last label is one that all have.

    Parameters
    ----------
    Y : ndarray of shape (n_samples, n_labels)
    weights : ndarray of shape (n_samples,)

    Returns
    -------
    counts : ndarray of shape (n_labels + 1, n_labels + 1)
    """
    Y = np.column_stack([Y, np.ones(len(Y))])
    return (Y * weights[:, np.newaxis]).T @ Y


def mutual_information(Y, weights, counts=None):
    """Mutual information of all pairs of labels, in nats, (n_labels, n_labels).

    Of samples Y and their weights, or of `pair_counts` of more of them.
    """
    if counts is None:
        # by a power of two: sums of whole numbers stay exact, and a weight is a repetition
        counts = pair_counts(Y, np.ldexp(weights, -np.frexp(weights.max())[1]))
    both, total = counts[:-1, :-1], counts[-1, -1]
    ones = np.diagonal(both)
    information = np.zeros_like(both)
    for a, b, table in (
        (ones, ones, both),
        (ones, total - ones, ones[:, np.newaxis] - both),
        (total - ones, ones, ones[np.newaxis] - both),
        (total - ones, total - ones, total - ones[:, np.newaxis] - ones[np.newaxis] + both),
    ):
        share = np.maximum(table, 0.0) / total
        alone = np.outer(a, b) / total**2
        some = (share > 0.0) & (alone > 0.0)
        information[some] += share[some] * np.log(share[some] / alone[some])
    return np.maximum(information, 0.0)


def chow_liu(Y, weights, counts=None):
    """The tree of largest mutual information between labels: edges in lexicographic order.

    Of ties the edge of the lowest labels is taken. Labels that tell nothing of the others, as
    constant ones do, have no edge.

    References
    ----------
    .. [1] C. Chow, C. Liu (1968). Approximating discrete probability distributions with
       dependence trees. IEEE Transactions on Information Theory 14.
    """
    # rounded: of equal pairs neither is better by the order of additions
    information = np.round(mutual_information(Y, weights, counts), 12)
    n_labels = Y.shape[1]
    edges, outside = [], np.ones(n_labels, dtype=bool)
    best, source = np.full(n_labels, -1.0), np.full(n_labels, -1)
    for _ in range(n_labels):
        node = int(np.argmax(np.where(outside, best, -2.0)))
        if best[node] > _NONE:
            edges.append(sorted((int(source[node]), node)))
        outside[node] = False
        nearer = information[node] > best
        best[nearer], source[nearer] = information[node][nearer], node
    return np.array(sorted(edges), dtype=np.intp).reshape(-1, 2)


@contextmanager
def named_labels():
    """Errors that name one of many equal graphs say that it is that of the labels."""
    try:
        yield
    except ValueError as error:
        words = re.sub(r"\bgraph \d+\b", "the graph of the labels", str(error))
        raise ValueError(words) from error


def check_sets(Y, numbers, constraints):
    """Refuse sets that constraints forbid.

    Parameters
    ----------
    Y : ndarray of uint8 of shape (n_samples, n_labels)
    numbers : ndarray of int
        Rows that count.
    constraints : tuple of factors, or None
    """
    for i, factor in enumerate(constraints or ()):
        wrong = numbers[factor_scores([factor], Y[numbers]) == -np.inf]
        if wrong.size:
            raise ValueError(
                f"the labels of sample {wrong[0]} are forbidden by constraints[{i}], {factor!r}. "
                "Correct one of the two.")
