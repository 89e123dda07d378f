"""Sequences whose labels depend on several before them, within what an automaton accepts.

Conventions, in addition to `fastm4n.reference.chain`:

- A labelling y scores

      s(y) = sum_t unary[t, y_t] + sum_t sum_g weights[g] 1[(y_{t-n+1}, ..., y_t) = g],

  with n-grams g of labels, tuples of at least two labels. The weight of an n-gram that is not in
  `weights` is 0.
- An automaton over labels is (transitions, accepting): transitions[d, label] is the state after d,
  -1 for none, and state 0 is the start. Outputs are the labellings that end in an accepting state,
  or all labellings for None.
- ``allowed`` (T, R) are the labels that each position may have. None allows all.

A state consists of the last q labels, one fewer than in the longest n-gram, and the automaton's
state. There are up to R^q tuples of labels, listed as they are reached. The compiled recursions
merge those that lead to the same weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray


def _arcs(unary, weights, automaton, allowed, state, t):
    """(score, next state, label) of each label that may follow a state at position t."""
    context, d = state
    longest = max(map(len, weights), default=1) - 1
    for label in range(unary.shape[1]):
        after = 0 if automaton is None else automaton[0][d, label]
        if after < 0 or not (allowed is None or allowed[t, label]):
            continue
        history = (*context, label)
        score = unary[t, label] + sum(
            weights.get(history[-n:], 0.0) for n in range(2, len(history) + 1))
        if score > -np.inf:
            kept = history[max(0, len(history) - longest):]
            yield score, (kept, after), label


def _ends(states, automaton):
    return [s for s in states if automaton is None or automaton[1][s[1]]]


def _forward(unary, weights, automaton, allowed):
    """Log-sums of the scores of all paths to each state, a dict for each of T + 1 positions."""
    messages = [{((), 0): 0.0}]
    for t in range(len(unary)):
        reached = {}
        for state, value in messages[-1].items():
            for score, after, _ in _arcs(unary, weights, automaton, allowed, state, t):
                reached[after] = np.logaddexp(reached.get(after, -np.inf), value + score)
        messages.append(reached)
    return messages


def automaton_score(
    y: list[int], unary: ArrayLike, weights: dict[tuple[int, int], float], automaton: Any = None,
    allowed: Any = None,
) -> float:
    """s(y), -inf for a labelling that is no output.

    Examples
    --------
    >>> automaton_score([0, 1, 0], np.zeros((3, 2)), {(0, 1): 1.0, (0, 1, 0): 0.5})
    1.5
    """
    state, total = ((), 0), 0.0
    for t, label in enumerate(y):
        found = [
            (score, after)
            for score, after, other in _arcs(unary, weights, automaton, allowed, state, t)
            if other == label]
        if not found:
            return -np.inf
        total, state = total + found[0][0], found[0][1]
    return float(total) if _ends([state], automaton) else -np.inf


def automaton_viterbi(
    unary: ArrayLike, weights: dict[tuple[int, int, int], float], automaton: Any = None,
    allowed: Any = None,
) -> tuple[list[int], float]:
    """The labelling of largest score, and that score.

    Examples
    --------
    >>> unary = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    >>> automaton_viterbi(unary, {(0, 0, 0): -5.0})
    ([1, 0, 0], 2.0)
    """
    best = {((), 0): (0.0, [])}
    for t in range(len(unary)):
        reached = {}
        for state, (value, y) in best.items():
            for score, after, label in _arcs(unary, weights, automaton, allowed, state, t):
                if after not in reached or value + score > reached[after][0]:
                    reached[after] = value + score, [*y, label]
        best = reached
    ends = _ends(best, automaton)
    if not ends:
        raise ValueError("every labelling is forbidden")
    value, y = max((best[state] for state in ends), key=lambda end: end[0])
    return y, float(value)


def automaton_marginals(
    unary: ArrayLike, weights: dict[tuple[int, int], float], automaton: Any = None,
    allowed: Any = None,
) -> tuple[FloatArray, dict[tuple[Any, ...], float], float]:
    """Marginals of p(y) proportional to exp(s(y)) by forward-backward.

    Returns
    -------
    nodes : ndarray of shape (T, R)
    counts : dict
        Expected number of each n-gram of `weights`.
    log_partition : float

    Examples
    --------
    >>> nodes, counts, _ = automaton_marginals(np.zeros((3, 2)), {(0, 1): 0.0})
    >>> nodes[0].round(3).tolist(), round(float(counts[0, 1]), 3)
    ([0.5, 0.5], 0.5)
    """
    T, R = unary.shape
    forward = _forward(unary, weights, automaton, allowed)
    ends = _ends(forward[T], automaton)
    if not ends:
        raise ValueError("every labelling is forbidden")
    log_partition = np.logaddexp.reduce([forward[T][state] for state in ends])
    nodes, counts = np.zeros((T, R)), dict.fromkeys(weights, 0.0)
    backward = dict.fromkeys(ends, 0.0)
    for t in range(T - 1, -1, -1):
        before = {}
        for state, value in forward[t].items():
            for score, after, label in _arcs(unary, weights, automaton, allowed, state, t):
                if after not in backward:
                    continue
                rest = score + backward[after]
                before[state] = np.logaddexp(before.get(state, -np.inf), rest)
                p = np.exp(value + rest - log_partition)
                nodes[t, label] += p
                history = (*state[0], label)
                for n in range(2, len(history) + 1):
                    if history[-n:] in counts:
                        counts[history[-n:]] += p
        backward = before
    return nodes, counts, float(log_partition)


def ngram_counts(y: list[int], ngrams: list[tuple[int, int]]) -> list[int]:
    """How often each n-gram is in y.

    Examples
    --------
    >>> ngram_counts([0, 1, 0, 1], [(0, 1), (1, 0, 1)])
    [2, 1]
    """
    y = tuple(y)
    return [
        sum(y[t : t + len(gram)] == tuple(gram) for t in range(len(y) - len(gram) + 1))
        for gram in ngrams]
