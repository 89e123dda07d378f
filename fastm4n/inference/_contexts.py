"""Automata of chains of order q: their states are the label contexts that have been observed."""

from functools import lru_cache

import numpy as np

from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.inference.automaton import LabelAutomaton

# most automata that are kept for the next prediction, and most states of each: a few MB in all
KEPT, SMALL = 8, 20_000
# arcs of the largest automaton: 24 bytes each, and a recursion adds one number for each
MOST_ARCS = 20_000_000


def observed_ngrams(codes, offsets, order):
    """The n-grams of 3 ... order + 1 labels that occur in sequences.

    Parameters
    ----------
    codes : ndarray of int of shape (n_positions,)
        Numbers of the labels.
    offsets : ndarray of shape (n_sequences + 1,)
    order : int

    Returns
    -------
    ngrams : ndarray of int32 of shape (n_ngrams, order + 1)
        The shorter first, then in lexicographic order; -1 before those that are shorter.

    Examples
    --------
    >>> import numpy as np
    >>> observed_ngrams(np.array([0, 1, 0, 1, 1]), np.array([0, 5]), 2)
    array([[0, 1, 0],
           [0, 1, 1],
           [1, 0, 1]], dtype=int32)
    """
    found = [np.zeros((0, order + 1), dtype=np.int32)]
    places = np.arange(codes.size)
    left = np.repeat(offsets[1:], np.diff(offsets)) - places
    for n in range(3, order + 2):
        windows = codes[places[left >= n][:, np.newaxis] + np.arange(n)]
        windows = np.unique(windows.reshape(-1, n), axis=0)
        found.append(np.pad(windows, [(0, 0), (order + 1 - n, 0)], constant_values=-1))
    return np.concatenate(found).astype(np.int32)


def context_rows(n_labels, ngrams):
    """Targets and features of all arcs of the automaton of n-grams, and their suffixes.

    States are the start, then the contexts: all single labels and all proper prefixes of n-grams
    of two labels or more. An arc leads to the longest context that is a suffix of the state's and
    its label, and its feature is the longest of those suffixes that is an n-gram: bigram (i, j) has
    number i n_labels + j, n-gram k number n_labels^2 + k.

    Returns
    -------
    target, feature : ndarray of int of shape (n_states, n_labels)
        feature is -1 for arcs out of the start.
    parent : ndarray of int of shape (n_labels^2 + n_ngrams,)
    """
    R = n_labels
    grams = as_tuples(ngrams)
    feature_of = {gram: R * R + k for k, gram in enumerate(grams)}
    parent = np.full(R * R + len(grams), -1)
    for gram, k in feature_of.items():
        parent[k] = gram[1] * R + gram[2] if len(gram) == 3 else feature_of[gram[1:]]
    contexts = {(label,) for label in range(R)}
    contexts.update(gram[:n] for gram in grams for n in range(2, len(gram)))
    # those of one last label together, so that ties go to the lower label
    ordered = sorted(contexts, key=lambda context: (context[-1], len(context), context))
    number = {context: 1 + s for s, context in enumerate(ordered)}
    refuse_beyond_memory(
        f"the transitions of {len(number)} contexts under {R} labels", 16 * (1 + len(number)) * R,
        "give a smaller order, or fewer labels")
    target = np.zeros((1 + len(number), R), dtype=np.int64)
    feature = np.full(target.shape, -1, dtype=np.int64)
    target[0] = [number[label,] for label in range(R)]
    by_length, by_size = {}, {}
    for context in ordered:
        by_length.setdefault(len(context), []).append(context)
    for gram in grams:
        by_size.setdefault(len(gram), []).append(gram)
    for n, of_length in sorted(by_length.items()):
        # the arcs of the next shorter context, but for those that a longer n-gram ends at
        states = [number[context] for context in of_length]
        if n == 1:
            target[states] = target[0]
            feature[states] = np.arange(R * R).reshape(R, R)
        else:
            shorter = [number[context[1:]] for context in of_length]
            target[states], feature[states] = target[shorter], feature[shorter]
        for context in by_length.get(n + 1, ()):
            target[number[context[:-1]], context[-1]] = number[context]
        for gram in by_size.get(n + 1, ()):
            feature[number[gram[:-1]], gram[-1]] = feature_of[gram]
    return target, feature, parent


def as_tuples(ngrams):
    return [tuple(label for label in gram if label >= 0) for gram in np.asarray(ngrams).tolist()]


def check_ngrams(ngrams, n_labels):
    """Refuse what `observed_ngrams` does not give: n-grams of a file."""
    grams = as_tuples(ngrams)
    known = set(grams)
    for row, gram in zip(np.asarray(ngrams).tolist(), grams, strict=True):
        if tuple(row) != (-1,) * (len(row) - len(gram)) + gram or len(gram) < 3 or (
            max(gram) >= n_labels
        ):
            raise ValueError(f"an n-gram is {row}")
        if len(gram) > 3 and gram[1:] not in known:
            raise ValueError(f"the n-gram {gram} is there without its suffix")
    if len(known) < len(grams):
        raise ValueError("an n-gram is there twice")


def context_automaton(n_labels, stride, ngrams=(), constraint=None):
    """The automaton of a chain: of n-grams of labels, within what a constraint accepts.

    Parameters
    ----------
    n_labels : int
    stride : int
        Numbers from the scores of the bigrams of one first label to those of the next. Those of the
        n-grams lie behind, one after the other.
    ngrams : ndarray of int of shape (n_ngrams, order + 1), default=()
        As `observed_ngrams` gives them, or others that have the suffixes of each.
    constraint : (ndarray of int of shape (n_states, n_labels), ndarray of bool), default=None
        Targets, -1 for none, and accepting states of an automaton whose start is state 0.

    Returns
    -------
    automaton : LabelAutomaton
        Of the states that can be reached and from which an accepting one can. The last small ones
        are kept: they never change, and predictions of few sequences ask for one time and again.
    """
    ngrams = np.ascontiguousarray(ngrams, dtype=np.int32)
    if constraint is not None:
        constraint = tuple(np.ascontiguousarray(part) for part in constraint)
    n_states = (n_labels + len(ngrams)) * (1 if constraint is None else len(constraint[1]))
    if n_states > SMALL:
        return _context_automaton(n_labels, stride, ngrams, constraint)
    content = constraint
    if content is not None:
        content = constraint[0].astype(np.int64).tobytes(), constraint[1].tobytes()
    return _kept(n_labels, stride, ngrams.tobytes(), len(ngrams), content)


@lru_cache(maxsize=KEPT)
def _kept(n_labels, stride, ngrams, n_ngrams, constraint):
    """`_context_automaton` of arrays as bytes."""
    ngrams = np.frombuffer(ngrams, np.int32)
    if constraint is not None:
        transitions, accepting = constraint
        transitions = np.frombuffer(transitions, np.int64).reshape(-1, n_labels)
        constraint = transitions, np.frombuffer(accepting, bool)
    return _context_automaton(
        n_labels, stride, ngrams.reshape(n_ngrams, -1) if n_ngrams else (), constraint)


def _context_automaton(n_labels, stride, ngrams, constraint):
    R, n_ngrams = n_labels, len(ngrams)
    target, feature, parent = context_rows(R, ngrams)
    place = np.concatenate([
        (np.arange(R)[:, np.newaxis] * stride + np.arange(R)).ravel(),
        R * stride + np.arange(n_ngrams)])
    n_more = n_scores(R, stride, n_ngrams)
    if constraint is None:
        check_arcs(target.size)
        source, label = np.indices(target.shape).reshape(2, -1)
        return LabelAutomaton(
            R, len(target), source, label, target.ravel(), feature.ravel(),
            np.ones(len(target), dtype=bool), parent, place, n_more)
    return LabelAutomaton(
        R, *product(target, feature, *constraint), parent, place, n_more)


def n_scores(n_labels, stride, n_ngrams):
    """Numbers that the scores of bigrams and n-grams take, in whole rows."""
    return (n_labels - -n_ngrams // stride) * stride


def product(target, feature, transitions, accepting):
    """Arcs of the pairs of states of two automata: n_states, source, ..., accepting."""
    D = len(transitions)
    known = np.zeros(1, dtype=np.int64)
    frontier, arcs = known, []
    while frontier.size:
        state, of_constraint = frontier // D, frontier % D
        to = np.where(
            transitions[of_constraint] < 0, -1, target[state] * D + transitions[of_constraint])
        at, label = np.nonzero(to >= 0)
        arcs.append((frontier[at], label, to[at, label], feature[state][at, label]))
        check_arcs(sum(arc[0].size for arc in arcs))
        frontier = np.setdiff1d(to[at, label], known)
        known = np.union1d(known, frontier)
    source, label, to, features = (np.concatenate(part) for part in zip(*arcs, strict=True))
    ends = accepting[known % D]
    source, to = np.searchsorted(known, source), np.searchsorted(known, to)
    alive = useful(source, to, ends)
    if not alive[0]:
        raise ValueError(
            "constraints accept no labelling by the labels that there are: is a label misspelt?")
    kept = alive[source] & alive[to]
    number = np.cumsum(alive) - 1
    return (
        int(alive.sum()), number[source[kept]], label[kept], number[to[kept]], features[kept],
        ends[alive])


def useful(source, target, accepting):
    """States from which an accepting one can be reached."""
    alive = accepting.copy()
    while True:
        more = source[alive[target]]
        if alive[more].all():
            return alive
        alive[more] = True


def check_arcs(n_arcs):
    if n_arcs > MOST_ARCS:
        raise ValueError(
            f"the automaton of order and constraints has more than {MOST_ARCS} arcs: lower order, "
            "or give constraints of fewer states.")
