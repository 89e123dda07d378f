"""Costs that add up along the one path of an automaton which reads a prediction.

Expectations under a chain, log-partitions and best labellings are recursions over pairs of a label
and a state of the automaton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import as_real, check_scores

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from numpy.typing import ArrayLike


def labels_of(name, y, n_labels=None):
    y = np.asarray(y)
    if y.ndim != 1 or (y.size and y.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a sequence of label numbers, got {y!r}.")
    if y.size and (y.min() < 0 or (n_labels is not None and y.max() >= n_labels)):
        t = int(np.flatnonzero((y < 0) | (y >= (np.inf if n_labels is None else n_labels)))[0])
        upto = "from 0 on" if n_labels is None else f"0 ... {n_labels - 1}"
        raise ValueError(f"{name}[{t}] is {y[t]}: labels are numbers {upto}.")
    return [int(label) for label in y]


def checked_chain(unary, pairwise, y_true):
    """Scores as arrays, pairwise (T - 1, R, R), and the truth's labels."""
    unary = as_real("unary", unary)
    if unary.ndim != 2 or 0 in unary.shape:
        raise ValueError(
            f"unary must have shape (T, R), T and R at least 1; got {unary.shape}.")
    T, R = unary.shape
    pairwise = as_real("pairwise", pairwise)
    if pairwise.shape not in ((R, R), (T - 1, R, R)):
        raise ValueError(
            f"pairwise must have shape {(R, R)} or {(T - 1, R, R)}, got {pairwise.shape}.")
    for name, scores in (("unary", unary), ("pairwise", pairwise)):
        check_scores(name, scores)
    return unary, np.broadcast_to(pairwise, (T - 1, R, R)), labels_of("y_true", y_true, R)


def log_sum(scores, axis=None):
    """log(sum of exp) along an axis, the terms relative to the largest, and their positive sum."""
    top = np.max(scores, axis=axis, keepdims=True)
    top[top == -np.inf] = 0.0
    weights = np.exp(scores - top)
    total = weights.sum(axis=axis)
    with np.errstate(divide="ignore"):
        return np.squeeze(top, axis) + np.log(total), weights, np.maximum(total, 1e-300)


def check_reached(value):
    """Refuse the log-partition or the best score -inf."""
    if value == -np.inf:
        raise ValueError("no labelling has a finite score: the scores of -inf leave no path.")


def gather(values, places, shape):
    """log(sum of exp) of the values that have each place, and the weight of each value there."""
    top = np.full(shape, -np.inf)
    np.maximum.at(top, places, values)
    base = np.where(top == -np.inf, 0.0, top)
    weights = np.exp(values - base[places])
    total = np.zeros(shape)
    np.add.at(total, places, weights)
    with np.errstate(divide="ignore"):
        return base + np.log(total), weights / np.maximum(total, 1e-300)[places]


class PathCost:
    """A cost that adds up along the path of a deterministic automaton that reads the prediction.

    A subclass says where it starts, `_start(y)`, a step `_step(y, t, state, label)` to (state,
    cost), and what it ends with, `_end(y, state)`. States are hashable.
    """

    max_states = 20000

    def of(self, y_true: Sequence[int], y_pred: Sequence[int]) -> float:
        """The cost of predicting y_pred where the truth is y_true.

        Parameters
        ----------
        y_true, y_pred : sequence of int

        Returns
        -------
        cost : float
        """
        y, labels = labels_of("y_true", y_true), labels_of("y_pred", y_pred)
        self._check_lengths(len(y), len(labels))
        state, total = self._start(y), 0.0
        for t, label in enumerate(labels):
            state, cost = self._step(y, t, state, label)
            total += cost
        return float(total + self._end(y, state))

    def expected(self, unary: ArrayLike, pairwise: ArrayLike, y_true: Sequence[int]) -> float:
        """The expected cost of a labelling drawn with probability proportional to exp(score).

        Parameters
        ----------
        unary : array-like of shape (T, R)
        pairwise : array-like of shape (R, R) or (T - 1, R, R)
            Scores of a chain, finite or -inf.
        y_true : sequence of int

        Returns
        -------
        cost : float
            Exact, by sum-product over pairs of a label and a state of the automaton: O(R^2) for
            each state.
        """
        return self._sum(unary, pairwise, y_true, 0.0)[1]

    def log_partition(self, unary: ArrayLike, pairwise: ArrayLike, y_true: Sequence[int]) -> float:
        """log of the sum over labellings of exp(score + cost): the softmax-margin's.

        Parameters
        ----------
        unary, pairwise, y_true
            As in `expected`.

        Returns
        -------
        value : float
        """
        return self._sum(unary, pairwise, y_true, 1.0)[0]

    def _sum(self, unary, pairwise, y_true, scale):
        """Log-partition of score + scale cost, and, for a scale of 0, the expected cost."""
        unary, pairwise, y = checked_chain(unary, pairwise, y_true)
        T, R = unary.shape
        labels = np.arange(R)
        # of each label and state: log of the mass, and what is expected up to there
        mass = mean = None
        for t, (following, costs, ends) in enumerate(self._layers(y, T, R)):
            if t == 0:
                sums, means = np.zeros((1, R)), np.zeros((1, R))
            else:
                # (states, from, to)
                sums, weights, total = log_sum(mass.T[:, :, None] + pairwise[t - 1], axis=1)
                means = (weights * mean.T[:, :, None]).sum(axis=1) / total
            costs = costs + (0.0 if ends is None else ends[following])
            sums = sums + unary[t] + (scale * costs if scale else 0.0)
            places = np.broadcast_to(labels, following.shape), following
            shape = (R, following.max() + 1)
            mass, shares = gather(sums, places, shape)
            mean = np.zeros(shape)
            if not scale:
                np.add.at(mean, places, shares * (means + costs))
        value, weights, total = log_sum(mass)
        check_reached(value)
        return float(value), float((weights * mean).sum() / total)

    def best(
        self, unary: ArrayLike, pairwise: ArrayLike, y_true: Sequence[int], scale: float = 1.0,
    ) -> Any:
        """The labelling of largest score + scale times cost.

        Parameters
        ----------
        unary, pairwise, y_true
            As in `expected`.
        scale : float, default=1.0
            Factor of the cost, 1 for the max-margin oracle.

        Returns
        -------
        labels : ndarray of shape (T,)
        value : float
            Its score and scale times its cost.
        """
        unary, pairwise, y = checked_chain(unary, pairwise, y_true)
        T, R = unary.shape
        labels, back, best = np.arange(R), [], None
        for t, (following, costs, ends) in enumerate(self._layers(y, T, R)):
            if t == 0:
                scores, source = np.zeros((1, R)), np.zeros((1, R), dtype=int)
            else:
                steps = best.T[:, :, None] + pairwise[t - 1]
                source = np.argmax(steps, axis=1)
                scores = np.max(steps, axis=1)
            costs = costs + (0.0 if ends is None else ends[following])
            scores = scores + unary[t] + scale * costs
            places = np.broadcast_to(labels, following.shape), following
            best = np.full((R, following.max() + 1), -np.inf)
            np.maximum.at(best, places, scores)
            # the state that the best came from, and the label there
            come = np.zeros((2, *best.shape), dtype=int)
            state, label = np.nonzero(scores == best[places])
            at = label, following[state, label]
            come[0][at], come[1][at] = state, source[state, label]
            back.append(come)
        value = float(np.max(best))
        check_reached(value)
        label, state = np.unravel_index(np.argmax(best), best.shape)
        path = np.zeros(T, dtype=np.intp)
        for t in range(T - 1, -1, -1):
            path[t] = label
            state, label = back[t][0][label, state], back[t][1][label, state]
        return path, value

    def _layers(self, y, T, R):
        """For each position the next state and the cost of each state and label, (states, R).

        And in the last, what each of the next states ends with.
        """
        self._check_lengths(len(y), T)
        states = [self._start(y)]
        for t in range(T):
            number = {}
            following = np.zeros((len(states), R), dtype=int)
            costs = np.zeros((len(states), R))
            for s, state in enumerate(states):
                for label in range(R):
                    to, costs[s, label] = self._step(y, t, state, label)
                    following[s, label] = number.setdefault(to, len(number))
            if len(number) > self.max_states:
                raise ValueError(
                    f"{type(self).__name__} needs {len(number)} states at position {t} of "
                    f"{T}, and max_states is {self.max_states}: {self._remedy}")
            states = list(number)
            ends = np.array([self._end(y, state) for state in states]) if t == T - 1 else None
            yield following, costs, ends

    _remedy = "the sequence is too long or has too many labels for exact expectations."

    def _check_lengths(self, n_true, n_predicted):
        if n_true != n_predicted:
            raise ValueError(
                f"y_true has {n_true} labels and the prediction {n_predicted}: "
                f"{type(self).__name__} is of sequences of one length.")

    def _end(self, y, state):
        return 0.0
