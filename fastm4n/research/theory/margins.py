"""Margins of labelled examples under a fitted model, and margin losses for any rho."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import check_choice, check_number
from fastm4n.inference import viterbi, viterbi_kbest
from fastm4n.research.theory._label_sets import flips
from fastm4n.research.theory._models import ReadModel
from fastm4n.tasks.chain_predictions import ChainDecoder, path_score

if TYPE_CHECKING:
    from typing import Any, Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray
    from fastm4n.estimators.label_sets import MultiLabelClassifier
    from fastm4n.estimators.labels import MulticlassClassifier, OrdinalClassifier
    from fastm4n.estimators.sequences import SequenceTagger

LOSSES = ("mean", "sum", "zero_one")
# up to so many times the smallest cost, costs are levels of a table
MOST_LEVELS = 64


class Margins:
    """Margins of examples, and the data of their margin losses.

    Each example has a list of (cost, gap): the gap is the score of the truth minus the best score
    of the labellings with this cost. Margin losses are exact maxima over the list for any rho. If
    costs are not small multiples of one number, additive losses need one cost-augmented decoding
    for each rho instead, and there are no multiplicative ones.

    Attributes
    ----------
    margin : ndarray of shape (n_examples,)
        Score of the truth minus the score of the best other labelling, infinite for empty
        sequences.
    loss : ndarray of shape (n_examples,)
        Loss of the labelling of the highest score, the worst one in ties.
    max_loss : float
        M, the largest loss of any labelling of the longest sequence.
    """

    margin: FloatArray
    loss: FloatArray
    max_loss: float

    def __init__(
        self, margin: FloatArray, loss: str, max_loss: float, costs: FloatArray, gaps: FloatArray,
        starts: FloatArray, augmented: Any = None,
    ) -> None:
        self.margin, self.loss, self.max_loss = margin, loss, max_loss
        self._costs, self._gaps, self._starts = costs, gaps, starts
        self._augmented = augmented

    @property
    def has_multiplicative(self) -> bool:
        return self._augmented is None

    def _largest(self, values):
        # empty sequences have only the true labelling
        out = np.full(self.margin.size, -np.inf)
        filled = np.flatnonzero(np.diff(self._starts) > 0)
        if filled.size:
            out[filled] = np.maximum.reduceat(values, self._starts[:-1][filled])
        return out

    def additive(self, rho: float) -> FloatArray:
        """max_y' L(y', y) - (h(y) - h(y')) / rho of each example, not clipped.

        Minus infinity for empty sequences, which have no other labelling.

        Parameters
        ----------
        rho : float
            The margin, more than 0.
        """
        if self._augmented is not None:
            return self._augmented(rho)
        with np.errstate(over="ignore"):
            return self._largest(self._costs - self._gaps / rho)

    def multiplicative(self, rho: float) -> FloatArray:
        """max_y' L(y', y) (1 - (h(y) - h(y')) / rho) of each example, not clipped.

        Parameters
        ----------
        rho : float
            The margin, more than 0.
        """
        if self._augmented is not None:
            raise ValueError(
                "Multiplicative margin losses of sequences need costs that are whole multiples of "
                f"the smallest one, at most {MOST_LEVELS} times as large.")
        with np.errstate(over="ignore"):
            return self._largest(self._costs * (1.0 - self._gaps / rho))

    def empirical(
        self, rho: float, kind: Literal["add", "mult"] = "add", change: ArrayLike = 0.0,
    ) -> float:
        """Mean margin loss, each clipped to [0, max_loss].

        Parameters
        ----------
        rho : float
        kind : {"add", "mult"}, default="add"
        change : float or ndarray of shape (n_examples,), default=0.0
            Added to all differences of scores from the score of the truth.
        """
        if np.ndim(change) == 0 and change == 0.0:
            each = self.additive(rho) if kind == "add" else self.multiplicative(rho)
        elif kind == "add":
            each = self.additive(rho) - change / rho
        else:
            shifted = self._gaps + np.repeat(change, np.diff(self._starts))
            with np.errstate(over="ignore"):
                each = self._largest(self._costs * (1.0 - shifted / rho))
        return float(np.clip(each, 0.0, self.max_loss).mean())


def margins(
    model: SequenceTagger | MulticlassClassifier | OrdinalClassifier | MultiLabelClassifier, X: Any,
    y: Any, *, loss: Literal["mean", "sum", "zero_one"] = "mean", lengths: ArrayLike | None = None,
) -> Margins:
    """Margins of labelled examples under a fitted model.

    Parameters
    ----------
    model : SequenceTagger, MulticlassClassifier, OrdinalClassifier or MultiLabelClassifier
        Fitted, with ``kernel="linear"``, or a pipeline that ends with one. Predictions have the
        highest score, whatever `decode` and `allowed_transitions` are.
    X, y : examples and their labels as for `model.fit`
    loss : {"mean", "sum", "zero_one"}, default="mean"
        Mean or sum of the costs of positions of a sequence or labels of a set, or 1 for each wrong
        example. For single labels the first two are the same.
    lengths : array-like of int, default=None

    Returns
    -------
    margins : Margins

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.research.theory import margins
    >>> X, y = load_iris(return_X_y=True)
    >>> found = margins(MulticlassClassifier(random_state=0).fit(X, y), X, y)
    >>> found.loss.mean() <= found.empirical(0.5) <= found.empirical(2.0)
    True
    """
    read = ReadModel(model, X, lengths)
    return margins_of(read, read.known_codes(y, lengths), loss)


def margins_of(read: Any, codes: Any, loss: str) -> Any:
    """`margins` of a `ReadModel`."""
    check_choice("loss", loss, LOSSES)
    cost = read.model.cost_matrix_
    R = cost.shape[0]
    if not (cost[~np.eye(R, dtype=bool)] > 0).all() or np.diagonal(cost).any():
        raise ValueError(
            "cost must be 0 for the truth and above 0 for all other labels: margin bounds need "
            "losses that are 0 for the truth only.")
    of = {"sequences": _of_chains, "labels": _of_labels, "sets": _of_sets}
    return of[read.kind](read, codes, loss)


def _of_labels(read, codes, loss):
    scores = read.model._decoder(read.X).scores
    n, k = scores.shape
    cost = read.model.cost_matrix_ if loss != "zero_one" else 1.0 - np.eye(k)
    others = np.tile(np.arange(k), (n, 1))[np.arange(k) != codes[:, np.newaxis]].reshape(n, k - 1)
    gaps = scores[np.arange(n), codes][:, np.newaxis] - np.take_along_axis(scores, others, 1)
    costs = cost[codes[:, np.newaxis], others]
    return Margins(
        gaps.min(axis=1), _predicted_loss(costs, gaps), float(cost.max()), costs.ravel(),
        gaps.ravel(), np.arange(n + 1) * (k - 1))


def _of_sets(read, codes, loss):
    model = read.model
    k = model.classes_.size
    lists = flips(
        model._decoder(read.X).scores, codes.reshape(-1, k), model.edges_, model.edge_coef_,
        model.cost_matrix_)
    costs, gaps = zip(*lists, strict=True)
    costs = [each / k if loss == "mean" else each for each in costs]
    largest = float(model.cost_matrix_.max())
    if loss == "zero_one":
        costs, largest = [np.ones(each.size) for each in costs], 1.0
    return Margins(
        np.array([each.min() for each in gaps]),
        np.array([
            np.max(a[b == b.min()]) if b.min() <= 0 else 0.0
            for a, b in zip(costs, gaps, strict=True)]),
        largest * (k if loss == "sum" else 1), np.concatenate(costs), np.concatenate(gaps),
        np.concatenate([[0], np.cumsum([each.size for each in gaps])]))


def _predicted_loss(costs, gaps):
    """The largest cost of the best other output where that scores at least as much as the truth."""
    best = gaps.min(axis=1, keepdims=True)
    return np.where(best[:, 0] <= 0, np.where(gaps == best, costs, 0.0).max(axis=1), 0.0)


def _of_chains(read, codes, loss):
    model, X = read.model, read.X
    R, lengths = model.classes_.size, X.lengths
    cost = model.cost_matrix_ if loss != "zero_one" else 1.0 - np.eye(R)
    unit = cost[cost > 0].min()
    levels = np.rint(cost / unit)
    scale = np.ones(len(X)) if loss != "mean" else 1.0 / np.maximum(lengths, 1)
    longest = max(1, int(lengths.max())) if loss == "sum" else 1
    max_loss = 1.0 if loss == "zero_one" else float(cost.max() * longest)
    decoder, truths = ChainDecoder(model._fitted_task(), X), np.split(codes, X.offsets[1:-1])
    if levels.max() <= MOST_LEVELS and np.allclose(levels * unit, cost, rtol=1e-12, atol=0.0):
        lists = [np.zeros(0)] * len(X)
        for i, unary, pairwise in decoder.chains():
            lists[i] = _best_by_level(unary, pairwise, truths[i], levels.astype(np.intp))
        starts = np.concatenate([[0], np.cumsum([len(gaps) for gaps in lists])])
        each = [np.arange(1, len(gaps) + 1) * (unit * factor)
                for gaps, factor in zip(lists, scale, strict=True)]
        if loss == "zero_one":
            each = [np.ones(len(gaps)) for gaps in lists]
        margin = np.array([gaps.min(initial=np.inf) for gaps in lists])
        losses = np.array([
            costs[gaps == least].max() if least <= 0 else 0.0
            for costs, gaps, least in zip(each, lists, margin, strict=True)])
        return Margins(
            margin, losses, max_loss, np.concatenate(each), np.concatenate(lists), starts)
    margin, losses = np.full(len(X), np.inf), np.zeros(len(X))
    for i, unary, pairwise in decoder.chains():
        truth = truths[i]
        paths, values = viterbi_kbest(unary, pairwise, 2)
        other = 1 if (paths[0] == truth).all() else 0
        margin[i] = path_score(unary, pairwise, truth) - values[other]
        if margin[i] <= 0:
            losses[i] = cost[truth, paths[other]].sum() * scale[i]

    def augmented(rho):
        check_number("rho", rho, low=0)
        out = np.full(len(X), -np.inf)
        for i, unary, pairwise in decoder.chains():
            _, value = viterbi(unary + rho * scale[i] * cost[truths[i]], pairwise)
            out[i] = (value - path_score(unary, pairwise, truths[i])) / rho
        return out

    return Margins(margin, losses, max_loss, None, None, None, augmented)


def _best_by_level(unary, pairwise, truth, levels):
    """Score of the truth minus the best score of the labellings of cost 1, 2, ... in units.

    A Viterbi recursion over (position, cost so far, label): O(T C R^2) for costs up to C. Infinite
    for costs that no labelling has.
    """
    T, R = unary.shape
    steps = levels[truth]  # (T, R): what each label adds to the cost
    C = int(steps.max(axis=1).sum())
    of_label = np.arange(R)
    best = np.full((C + 1, R), -np.inf)
    best[steps[0], of_label] = unary[0]
    reached = int(steps[0].max())
    for t in range(1, T):
        pair = pairwise[t - 1] if pairwise.ndim == 3 else pairwise
        rows = best[:reached + 1]
        moved = (rows[:, :, np.newaxis] + pair).max(axis=1) + unary[t]
        best = np.full((C + 1, R), -np.inf)
        for step in np.unique(steps[t]):
            chosen = steps[t] == step
            best[step:step + reached + 1, chosen] = moved[:, chosen]
        reached += int(steps[t].max())
    by_cost = best.max(axis=1)
    # the truth is the only labelling of cost 0, scored by the same additions
    return by_cost[0] - by_cost[1:]
