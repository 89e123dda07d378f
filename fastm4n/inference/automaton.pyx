"""Inference over the labellings that a finite automaton accepts, for Python: one sequence a call.

A labelling y of T positions scores sum_t unary[t, y_t] and the scores of the n-grams of labels that
it has, in the automaton of `context_automaton` or any other `LabelAutomaton`.
"""

import numpy as np

from libc.math cimport INFINITY

from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.base.checks import check_number, refuse_where

from fastm4n.inference._automaton cimport AutomatonScratch
from fastm4n.inference._label_automaton cimport LabelAutomaton


def _scores(unary, LabelAutomaton automaton, scores, allowed, Py_ssize_t stride):
    """Rows of the stride, with -inf where labels are not allowed, and the scores of features."""
    unary = np.asarray(unary, dtype=np.float64)
    if unary.ndim != 2 or unary.shape[1] != automaton.n_labels:
        raise ValueError(
            f"unary must have shape (n_positions, {automaton.n_labels}), got {unary.shape}.")
    if scores is None:
        scores = np.zeros(automaton.n_more)
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    if scores.shape != (automaton.n_more,):
        raise ValueError(f"scores must have shape ({automaton.n_more},), got {scores.shape}.")
    for name, values in (("unary", unary), ("scores", scores)):
        refuse_where(
            np.isnan(values) | (values == np.inf), name, values, "scores are finite or -inf.")
    if allowed is not None:
        allowed = np.asarray(allowed)
        if allowed.dtype != bool or allowed.shape != unary.shape:
            raise ValueError(f"allowed must be a boolean array of shape {unary.shape}.")
        unary = np.where(allowed, unary, -np.inf)
    rows = np.zeros((max(1, unary.shape[0]), stride))
    rows[: unary.shape[0], : unary.shape[1]] = unary
    return rows, scores if scores.size else np.zeros(1), unary.shape[0]


def _no_path():
    return ValueError(
        "no labelling has a finite score: the automaton, allowed and the scores of -inf leave "
        "none.")


def maximise(unary, LabelAutomaton automaton not None, scores=None, *, allowed=None):
    """The accepted labelling of largest score.

    Parameters
    ----------
    unary : array-like of shape (n_positions, n_labels)
        Finite or -inf.
    automaton : LabelAutomaton
    scores : array-like of shape (automaton.n_more,), default=None
        Of the automaton's features, each at its place; zeros by default.
    allowed : bool array of shape (n_positions, n_labels), default=None
        Labels that positions may have.

    Returns
    -------
    labels : ndarray of shape (n_positions,)
    score : float

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.automata import Automaton
    >>> from fastm4n.inference.automaton import maximise
    >>> once = Automaton.at_most(1, ["b"], ["a", "b"]).over(["a", "b"])
    >>> maximise(np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0]]), once)
    (array([0, 1, 0], dtype=int32), 3.0)
    """
    cdef AutomatonScratch scratch = AutomatonScratch(automaton, len(unary), False)
    cdef const double[:, ::1] rows
    cdef const double[::1] more
    cdef Py_ssize_t T
    rows, more, T = _scores(unary, automaton, scores, allowed, scratch.stride)
    labels = np.zeros(max(1, T), dtype=np.uint16)
    cdef unsigned short[::1] path = labels
    cdef double value
    with nogil:
        scratch.viterbi(&rows[0, 0], T, &more[0], &path[0], &value)
    if value == -INFINITY:
        raise _no_path()
    return labels[:T].astype(np.intc), value


def marginals(unary, LabelAutomaton automaton not None, scores=None, *, allowed=None):
    """Marginals of p(y) proportional to exp(score of y) over the accepted labellings.

    Parameters
    ----------
    unary, automaton, scores, allowed
        As in `maximise`.

    Returns
    -------
    nodes : ndarray of shape (n_positions, n_labels)
        Probabilities of the labels at each position.
    counts : ndarray of shape (automaton.n_more,)
        Expected numbers of each feature.
    log_partition : float

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.automata import Automaton
    >>> from fastm4n.inference.automaton import marginals
    >>> once = Automaton.at_most(1, ["b"], ["a", "b"]).over(["a", "b"])
    >>> nodes, _, log_partition = marginals(np.zeros((3, 2)), once)
    >>> nodes[:, 1].round(3), float(np.exp(log_partition).round(3))
    (array([0.25, 0.25, 0.25]), 4.0)
    """
    cdef AutomatonScratch scratch = AutomatonScratch(automaton, len(unary))
    cdef const double[:, ::1] rows
    cdef const double[::1] more
    cdef Py_ssize_t T
    cdef double log_z
    rows, more, T = _scores(unary, automaton, scores, allowed, scratch.stride)
    cdef double[:, ::1] nodes = np.zeros((max(1, T), scratch.stride))
    cdef double[::1] counts = np.zeros(max(1, automaton.n_more))
    with nogil:
        status = scratch.sum_product(&rows[0, 0], T, &more[0], &nodes[0, 0], &counts[0], &log_z)
    if status:
        raise _no_path()
    return (np.array(nodes)[:T, : automaton.n_labels], np.array(counts)[: automaton.n_more], log_z)


def k_best(unary, LabelAutomaton automaton not None, Py_ssize_t k, scores=None, *, allowed=None):
    """The k accepted labellings of largest finite score, best first.

    Each state keeps its k best prefixes, sorted. O(T n_arcs k) where lists do not interleave, and
    memory O(T n_states k).

    Parameters
    ----------
    unary, automaton, scores, allowed
        As in `maximise`.
    k : int

    Returns
    -------
    labellings : ndarray of shape (k', n_positions)
        k' is k, or the number of labellings where that is less.
    scores : ndarray of shape (k',)

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.automata import Automaton
    >>> from fastm4n.inference.automaton import k_best
    >>> once = Automaton.at_most(1, ["b"], ["a", "b"]).over(["a", "b"])
    >>> k_best(np.array([[0.0, 1.0], [0.0, 3.0]]), once, 2)[0]
    array([[0, 1],
           [1, 0]], dtype=int32)
    """
    check_number("k", k, low=0, integer=True)
    cdef AutomatonScratch scratch = AutomatonScratch(automaton, 0, False)
    cdef const double[:, ::1] rows
    cdef const double[::1] more
    cdef Py_ssize_t T, t, s, p, i, r, place, count, S = automaton.n_states
    rows, more, T = _scores(unary, automaton, scores, allowed, scratch.stride)
    # no more than there are, where they are few
    k = min(k, automaton.n_labels ** T) if T * np.log2(automaton.n_labels) < 60 else k
    refuse_beyond_memory(
        f"the {k} best labellings of {T} positions x {S} states", 20.0 * (T + 1) * S * k,
        "ask for fewer of them")
    cdef double[:, :, ::1] best = np.full((T + 1, S, k), -np.inf)
    # the arc's class, and the place of the prefix in the lists of the position before
    cdef long long[:, :, ::1] back = np.zeros((T + 1, S, k), dtype=np.int64)
    cdef int[:, :, ::1] by = np.zeros((T + 1, S, k), dtype=np.intc)
    cdef double x
    cdef double[::1] ends = np.full(k, -np.inf)
    cdef long long[::1] last = np.zeros(k, dtype=np.int64)
    cdef int[::1] unused = np.zeros(k, dtype=np.intc)
    best[0, 0, 0] = 0.0
    with nogil:
        scratch.total_scores(&more[0])
        for t in range(T):
            for s in range(S):
                for p in range(automaton.raw.class_start[s], automaton.raw.class_start[s + 1]):
                    for i in range(
                            automaton.raw.source_start[p], automaton.raw.source_start[p + 1]):
                        for r in range(k):
                            x = best[t, automaton.raw.sources[i], r]
                            x = (x + scratch.scores[p]) + rows[t, automaton.raw.class_label[p]]
                            if not x > best[t + 1, s, k - 1]:
                                break
                            insert(
                                &best[t + 1, s, 0], &back[t + 1, s, 0], &by[t + 1, s, 0], k, x,
                                automaton.raw.sources[i] * k + r, <int> p)
        for s in range(S):
            if automaton.raw.accepting[s]:
                for r in range(k):
                    if not best[T, s, r] > ends[k - 1]:
                        break
                    insert(&ends[0], &last[0], &unused[0], k, best[T, s, r], s * k + r, 0)
    count = int(np.sum(np.asarray(ends) > -np.inf))
    if count == 0:
        raise _no_path()
    found = np.zeros((count, T), dtype=np.intc)
    cdef int[:, ::1] labellings = found
    for r in range(count):
        place = last[r]
        for t in range(T, 0, -1):
            p = by[t, place // k, place % k]
            labellings[r, t - 1] = automaton.raw.class_label[p]
            place = back[t, place // k, place % k]
    return found, np.array(ends)[:count]


cdef void insert(
    double* best, long long* back, int* by, Py_ssize_t k, double x, long long place,
    int p) noexcept nogil:
    """Put x, larger than the last, into the sorted list, behind its equals."""
    cdef Py_ssize_t r = k - 1
    while r > 0 and x > best[r - 1]:
        best[r], back[r], by[r] = best[r - 1], back[r - 1], by[r - 1]
        r -= 1
    best[r], back[r], by[r] = x, place, p
