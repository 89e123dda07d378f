"""Costs of sequences that are no sums over positions: windows of labels, automata, edit distance.

A cost compares a predicted sequence of labels with the true one. Labels are numbers 0 ... R - 1
here. The method ``of(y_true, y_pred)`` is the cost, and ``expected(unary, pairwise, y_true)`` its
expectation for predictions drawn from a chain. Costs that add up along the one path of an automaton
also have ``best``, the cost-augmented best labelling, and ``log_partition``, the log of the sum of
exp(score + cost).

Estimators train with a matrix of costs of single positions (`cost=`), a `MarkovCost` of order one.
The others evaluate predictions of a fitted model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import check_number, refuse_where
from fastm4n.research._path_costs import (
    PathCost,
    check_reached,
    checked_chain,
    labels_of,
    log_sum,
)
from fastm4n.surrogates import as_surrogate
from fastm4n.tasks.chain_predictions import ChainDecoder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray
    from fastm4n.data._types import Labellings, SequenceData
    from fastm4n.estimators.sequences import SequenceTagger

__all__ = ["EditDistance", "LogCost", "MarkovCost", "RationalCost", "expected_costs"]


class MarkovCost(PathCost):
    """A sum over windows of p neighbouring positions: costs of a true and a predicted window.

    Parameters
    ----------
    table : array-like of shape (R,) * 2 p
        ``table[true window][predicted window]``, finite. Order 1 is a matrix of costs of single
        positions as in estimators. A sequence of T positions has T - p + 1 windows.

    Attributes
    ----------
    order : int
        p.

    Examples
    --------
    One for each wrong boundary:

    >>> import numpy as np
    >>> from fastm4n.research.costs import MarkovCost
    >>> i, j, k, l = np.indices((2, 2, 2, 2))
    >>> boundaries = MarkovCost((i != j) != (k != l))
    >>> boundaries.of([0, 0, 1, 1], [0, 1, 1, 1])
    2.0
    >>> round(boundaries.expected(np.zeros((4, 2)), np.zeros((2, 2)), [0, 0, 1, 1]), 6)
    1.5
    """

    table: FloatArray
    order: int
    n_labels: int

    def __init__(self, table: ArrayLike) -> None:
        table = np.asarray(table)
        if table.dtype.kind not in "fiub":
            raise ValueError(f"table must hold numbers, got dtype {table.dtype}.")
        table = table.astype(np.float64)
        if table.ndim < 2 or table.ndim % 2 or len(set(table.shape)) != 1 or table.size == 0:
            raise ValueError(
                f"table must have shape (R,) * 2 p for windows of p labels, got {table.shape}.")
        refuse_where(~np.isfinite(table), "table", table, "costs must be finite.")
        self.table, self.order, self.n_labels = table, table.ndim // 2, len(table)

    def _start(self, y):
        if y and max(y) >= self.n_labels:
            raise ValueError(
                f"y_true has label {max(y)}, but the costs are of {self.n_labels} labels.")
        return ()

    def _step(self, y, t, state, label):
        if label >= self.n_labels:
            raise ValueError(f"y_pred has label {label}, but costs are for {self.n_labels} labels.")
        window = (*state, label)
        cost = 0.0
        if len(window) == self.order:
            cost = self.table[(*y[t - self.order + 1 : t + 1], *window)]
            window = window[1:]
        return window, cost


class EditDistance(PathCost):
    """Least cost of insertions, deletions and substitutions from the truth to the prediction.

    Exact expectations and cost-augmented labellings use the automaton of Levenshtein, whose states
    are the rows of the distance's table. They are few for short sequences or with a `limit`. For
    others `upper_bound` is a sum over positions that bounds the distance.

    Parameters
    ----------
    insert, delete, substitute : float, default=1.0
        Costs, positive.
    limit : float, default=None
        Upper limit: the cost is min(distance, limit).
    max_states : int, default=20000
        Largest number of states at one position.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.research.costs import EditDistance
    >>> distance = EditDistance()
    >>> distance.of([0, 1, 2, 3], [1, 2, 3, 3])
    2.0
    >>> round(distance.expected(np.zeros((3, 2)), np.zeros((2, 2)), [0, 1, 0]), 6)
    1.375
    """

    insert: float
    delete: float
    substitute: float
    limit: float | None
    max_states: int

    _remedy = "set `limit`, or use upper_bound."

    def __init__(
        self, insert: float = 1.0, delete: float = 1.0, substitute: float = 1.0, *,
        limit: float | None = None, max_states: int = 20000,
    ) -> None:
        for name, value in (("insert", insert), ("delete", delete), ("substitute", substitute)):
            check_number(name, value, low=0)
        if limit is not None:
            check_number("limit", limit, low=0)
        check_number("max_states", max_states, low=0, integer=True)
        self.insert, self.delete, self.substitute = float(insert), float(delete), float(substitute)
        self.limit, self.max_states = limit, max_states

    def _check_lengths(self, n_true, n_predicted):
        """Any two lengths have a distance."""

    def _cut(self, row):
        return tuple(row) if self.limit is None else tuple(min(x, self.limit) for x in row)

    def _start(self, y):
        return self._cut([self.delete * j for j in range(len(y) + 1)])

    def _row(self, before, y, label):
        """The next row of the table of distances."""
        row = [before[0] + self.insert]
        for j, true in enumerate(y):
            row.append(min(
                before[j] + (0.0 if true == label else self.substitute),
                before[j + 1] + self.insert, row[j] + self.delete))
        return row

    def _step(self, y, t, state, label):
        return self._cut(self._row(state, y, label)), 0.0

    def _end(self, y, state):
        return state[-1]

    def upper_bound(
        self, y_true: Sequence[int], n_labels: int, reference: Sequence[int] | None = None,
    ) -> float:
        """Costs of labels at positions whose sum bounds the distance for every prediction.

        They follow one best alignment of the truth with a reference, for which the sum equals the
        distance.

        Parameters
        ----------
        y_true : sequence of int
        n_labels : int
        reference : sequence of int, default=None
            Of the length of predictions. With the truth, the default, the sum is that of the
            substitutions.

        Returns
        -------
        costs : ndarray of shape (n_positions, n_labels)
        constant : float
            Further cost of the true positions without an aligned position.
        """
        y = labels_of("y_true", y_true, n_labels)
        z = y if reference is None else labels_of("reference", reference, n_labels)
        rows = [[self.delete * j for j in range(len(y) + 1)]]
        for label in z:
            rows.append(self._row(rows[-1], y, label))
        costs, constant = np.zeros((len(z), n_labels)), 0.0
        t, j = len(z), len(y)
        while t or j:
            matches = t and j and rows[t][j] == rows[t - 1][j - 1] + (
                0.0 if z[t - 1] == y[j - 1] else self.substitute)
            if matches:
                t, j = t - 1, j - 1
                costs[t] = self.substitute
                costs[t, y[j]] = 0.0
            elif t and rows[t][j] == rows[t - 1][j] + self.insert:
                t -= 1
                costs[t] = self.insert
            else:
                j -= 1
                constant += self.delete
        return costs, constant


class LogCost(PathCost):
    """The logarithm of another, non-negative cost, with log 0 = -inf.

    ``log_partition`` is log sum_y L(y_i, y) exp(s(y)), and ``best`` finds max_y L(y_i, y)
    exp(s(y)), the sum and the maximum of boosting. States contain the cost so far, and are few if
    costs of positions have few values.

    Parameters
    ----------
    cost : MarkovCost or EditDistance
    max_states : int, default=20000
        Largest number of states at one position.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.research.costs import LogCost, MarkovCost
    >>> mistakes = LogCost(MarkovCost(1.0 - np.eye(2)))
    >>> value = mistakes.log_partition(np.zeros((2, 2)), np.zeros((2, 2)), [0, 0])
    >>> round(float(np.exp(value)), 6)
    4.0
    """

    cost: MarkovCost | EditDistance
    max_states: int

    _remedy = "costs of too many values; a cost of small integers has few."

    def __init__(self, cost: MarkovCost | EditDistance, max_states: int = 20000) -> None:
        if not isinstance(cost, PathCost) or isinstance(cost, LogCost):
            raise ValueError(f"cost must be a MarkovCost or an EditDistance, got {cost!r}.")
        check_number("max_states", max_states, low=0, integer=True)
        self.cost, self.max_states = cost, max_states

    def expected(self, unary: ArrayLike, pairwise: ArrayLike, y_true: Sequence[int]) -> Any:
        """Raise an error, as the truth has the cost -inf.

        Parameters
        ----------
        unary, pairwise, y_true
            As in `EditDistance.expected`, without effect.
        """
        raise ValueError("the logarithm of a cost has no expectation: it is -inf for the truth.")

    def _check_lengths(self, n_true, n_predicted):
        self.cost._check_lengths(n_true, n_predicted)

    def _start(self, y):
        return self.cost._start(y), 0.0

    def _step(self, y, t, state, label):
        to, cost = self.cost._step(y, t, state[0], label)
        return (to, state[1] + cost), 0.0

    def _end(self, y, state):
        total = state[1] + self.cost._end(y, state[0])
        if total < 0.0:
            raise ValueError(f"a labelling has the cost {total:g}, which has no logarithm.")
        return float(np.log(total)) if total > 0.0 else -np.inf


class RationalCost:
    """A sum over the paths of a weighted automaton that reads the prediction.

    The cost of y' is ``start @ M[y'_1] @ ... @ M[y'_T] @ final``, for an automaton that may depend
    on the truth. Weights of several paths of a prediction add up. Such a cost is no sum along one
    path: it has an expectation, but no cost-augmented labelling.

    Parameters
    ----------
    machine : callable
        ``machine(y_true, n_labels)`` returns finite arrays (start, matrices, final) of shapes (S,),
        (n_labels, S, S) and (S,).

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.research.costs import RationalCost
    >>> common = RationalCost.common_ngrams(2)
    >>> common.of([0, 1, 0, 1], [0, 1, 1, 0])  # 01 twice times once, and 10 once
    3.0
    >>> round(common.expected(np.zeros((4, 2)), np.zeros((2, 2)), [0, 1, 0, 1]), 6)
    2.25
    """

    def __init__(self, machine: Callable[..., Any]) -> None:
        if not callable(machine):
            raise ValueError(f"machine must be a function of y_true and n_labels, got {machine!r}.")
        self.machine = machine

    @classmethod
    def common_ngrams(cls, n: int) -> RationalCost:
        """Sum over n-grams of their counts in the truth times those in the prediction.

        Parameters
        ----------
        n : int

        Returns
        -------
        cost : RationalCost
            A similarity instead of a cost.
        """
        check_number("n", n, low=0, integer=True)

        def machine(y, n_labels):
            grams = [tuple(y[t : t + n]) for t in range(len(y) - n + 1)]
            prefixes = {(): 0}
            for gram in grams:
                for k in range(1, n):
                    prefixes.setdefault(gram[:k], len(prefixes))
            end = len(prefixes)
            matrices = np.zeros((n_labels, end + 1, end + 1))
            matrices[:, 0, 0] = matrices[:, end, end] = 1.0
            for prefix, number in prefixes.items():
                if prefix:
                    matrices[prefix[-1], prefixes[prefix[:-1]], number] = 1.0
            for gram in grams:
                matrices[gram[-1], prefixes[gram[:-1]], end] += 1.0
            return np.eye(end + 1)[0], matrices, np.eye(end + 1)[end]

        return cls(machine)

    def _machine(self, y, n_labels):
        start, matrices, final = (
            np.asarray(part, dtype=np.float64) for part in self.machine(y, n_labels))
        S = start.size
        if start.shape != (S,) or matrices.shape != (n_labels, S, S) or final.shape != (S,):
            raise ValueError(
                f"machine must give shapes (S,), ({n_labels}, S, S) and (S,), got {start.shape}, "
                f"{matrices.shape} and {final.shape}.")
        for name, part in (("start", start), ("matrices", matrices), ("final", final)):
            refuse_where(
                ~np.isfinite(part), name, part, "weights of the automaton must be finite.")
        return start, matrices, final

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
        row, matrices, final = self._machine(y, max([*y, *labels], default=0) + 1)
        for label in labels:
            row = row @ matrices[label]
        return float(row @ final)

    def expected(self, unary: ArrayLike, pairwise: ArrayLike, y_true: Sequence[int]) -> float:
        """The expected cost of a labelling drawn with probability proportional to exp(score).

        Parameters
        ----------
        unary : array-like of shape (T, R)
        pairwise : array-like of shape (R, R) or (T - 1, R, R)
        y_true : sequence of int

        Returns
        -------
        cost : float
            Exact, over the intersection of chain and automaton: O(T (R^2 S + R S^2)).
        """
        unary, pairwise, y = checked_chain(unary, pairwise, y_true)
        start, matrices, final = self._machine(y, unary.shape[1])
        # of each label: log of the mass, and the expected row of the automaton given the label
        mass = unary[0]
        rows = np.einsum("s,jst->jt", start, matrices)
        for t in range(1, len(unary)):
            sums, weights, total = log_sum(mass[:, None] + pairwise[t - 1], axis=0)
            mass = sums + unary[t]
            rows = np.einsum("js,jst->jt", (weights / total).T @ rows, matrices)
        value, weights, total = log_sum(mass)
        check_reached(value)
        return float((weights @ (rows @ final)) / total)


def expected_costs(
    cost: MarkovCost | EditDistance | RationalCost, tagger: SequenceTagger, X: SequenceData,
    y: Labellings,
) -> FloatArray:
    """Expected cost of each sequence under the distribution of a fitted CRF.

    Parameters
    ----------
    cost : MarkovCost, EditDistance or RationalCost
    tagger : SequenceTagger
        Fitted, with ``surrogate="log"``.
    X : Sequences or list
        Features, as the tagger takes them.
    y : Sequences or list of sequences of labels
        True labels, of `classes_`.

    Returns
    -------
    costs : ndarray of shape (n_sequences,)
        Zero for empty sequences.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import SequenceTagger
    >>> from fastm4n.research.costs import EditDistance, expected_costs
    >>> X, y = [np.eye(2)[[0, 1, 0]], np.eye(2)[[1, 0]]], [["a", "b", "a"], ["b", "a"]]
    >>> tagger = SequenceTagger("log", alpha=0.1, random_state=0).fit(X, y)
    >>> costs = expected_costs(EditDistance(), tagger, X, y)
    >>> bool((costs > 0).all() and (costs < [1.5, 1]).all())
    True
    """
    surrogate = as_surrogate(tagger.surrogate)
    if surrogate.name != "log":
        raise ValueError(
            f"expectations need a distribution: surrogate='log', got {tagger.surrogate!r}.")
    tau = surrogate.temperature

    def expected(unary, pairwise, labels):
        return cost.expected(unary / tau, pairwise / tau, labels)

    return of_sequences(expected, tagger, X, y)


def of_sequences(
    function: Callable[..., Any], tagger: SequenceTagger, X: SequenceData, y: Labellings,
) -> Any:
    """function(unary, pairwise, labels) of each sequence, labels being numbers, 0 of empty ones.

    What it refuses is refused with the number of the sequence.
    """
    order = tagger._scored.order
    if order > 1 or tagger.constraints is not None:
        raise ValueError(
            "costs are weighed over chains: of taggers with order=1 and constraints=None, got "
            f"order={order} and constraints={tagger.constraints!r:.80}.")
    number = {label: i for i, label in enumerate(tagger.classes_.tolist())}
    task = tagger._fitted_task()
    X = task.sequences(X)
    if len(y) != len(X):
        raise ValueError(f"y has {len(y)} sequences, but X has {len(X)}.")
    found = np.zeros(len(X))
    for b, unary, pairwise in ChainDecoder(task, X).chains():
        labels = np.asarray(y[b]).tolist()
        unknown = [label for label in labels if label not in number]
        if unknown:
            raise ValueError(f"y[{b}] has the label {unknown[0]!r}, which is not in classes_.")
        try:
            found[b] = function(unary, pairwise, [number[label] for label in labels])
        except ValueError as error:
            raise ValueError(f"sequence {b}: {error}") from error
    return found
