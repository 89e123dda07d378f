"""Scores of predicted label sequences, rankings and matchings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastm4n.base.checks import check_choice
from fastm4n.base.schemes import Tags
from fastm4n.data._matchings import as_columns, as_rows
from fastm4n.data._preferences import read_preferences
from fastm4n.data._rankings import as_places
from fastm4n.data._sequences import Sequences
from fastm4n.tasks.parameters import as_weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.schemes import Reading
    from fastm4n.base.types import Array
    from fastm4n.data._types import Labellings, Matchings

__all__ = [
    "SpanReport", "SpanScores", "hamming_ranking_loss", "kendall_tau_score", "matching_f1_score",
    "matching_precision_score", "matching_recall_score", "pairwise_order_score",
    "sequence_accuracy", "span_f1_score", "span_precision_recall_f1", "span_report", "spans",
    "spearman_rho_score", "token_accuracy",
]

AVERAGES = ("micro", "macro", "weighted", None)


def spans(
    labels: Iterable[str], *, scheme: Reading = "conlleval",
) -> list[tuple[str, int, int]]:
    """Find the typed spans of a label sequence.

    Parameters
    ----------
    labels : sequence of str
        Tags of one sequence: ``O``, or a letter, a hyphen and a type.
    scheme : {"conlleval", "bio", "bioes", "bilou", "iob1"}, default="conlleval"
        How labels mark spans:

        - "conlleval": the lenient rules of conlleval, the script of the CoNLL-2000 shared task,
          and of its versions for BIOES. They read all schemes, with L for E and U for S, also
          IOE, and ``[`` and ``]`` as chunks of one token. An ``I`` outside a span begins one.
        - "bio" (also called IOB2), "bioes" (IOBES), "bilou" and "iob1": strict rules, the first
          three those of seqeval's ``mode="strict"``. A span that breaks them is none. Letters of
          other schemes are errors, and so is a label without a type among others.

    Returns
    -------
    spans : list of tuple (type, start, stop)
        In order. The tokens of a span are ``labels[start:stop]``.

    Examples
    --------
    >>> from fastm4n.metrics import spans
    >>> spans(["B-NP", "I-NP", "B-NP", "O", "I-VP"])
    [('NP', 0, 2), ('NP', 2, 3), ('VP', 4, 5)]
    >>> spans(["B-NP", "I-NP", "B-NP", "O", "I-VP"], scheme="bio")
    [('NP', 0, 2), ('NP', 2, 3)]
    """
    reads = Tags(scheme)
    if isinstance(labels, (str, bytes)):
        raise TypeError(f"labels must be a sequence of labels, not the string {labels!r}.")
    return reads.spans(_as_list(labels), "labels")


def span_f1_score(
    y_true: Labellings, y_pred: Labellings, *,
    average: Literal["micro", "macro", "weighted"] | None = "micro",
    scheme: Reading = "conlleval", labels: Sequence[str] | None = None,
    zero_division: float = 0.0,
) -> Any:
    """F1 score of spans, where a span is right if its type and both its ends are.

    Parameters
    ----------
    y_true : list of label sequences, or Sequences
        Annotated labels, see :func:`spans`.
    y_pred : list of label sequences, or Sequences
        Predicted labels.
    average : {"micro", "macro", "weighted"} or None, default="micro"
        Average over the types: ``"micro"`` counts the spans of all types together, like
        conlleval. ``"macro"`` is the mean of the types' scores. ``"weighted"`` is this mean,
        weighted by the number of annotated spans. None gives the scores of all types.
    scheme : {"conlleval", "bio", "bioes", "bilou", "iob1"}, default="conlleval"
        How labels mark spans, see :func:`spans`.
    labels : list of str, default=None
        Types to count, in this order. By default all that occur, sorted.
    zero_division : float, default=0.0
        Score without annotated and predicted spans. Means ignore NaN.

    Returns
    -------
    score : float, or ndarray of shape (n_types,) if average is None

    See Also
    --------
    span_precision_recall_f1 : Also precision and recall.

    Examples
    --------
    >>> from fastm4n.metrics import span_f1_score
    >>> y_true = [["B-NP", "I-NP", "O", "B-VP"]]
    >>> y_pred = [["B-NP", "I-NP", "O", "B-NP"]]
    >>> span_f1_score(y_true, y_pred)
    0.5
    >>> span_f1_score(y_true, y_pred, average=None)
    array([0.66666667, 0.        ])
    """
    return span_precision_recall_f1(
        y_true, y_pred, average=average, scheme=scheme, labels=labels,
        zero_division=zero_division)[2]


def span_precision_recall_f1(
    y_true: Labellings, y_pred: Labellings, *,
    average: Literal["micro", "macro", "weighted"] | None = "micro",
    scheme: Reading = "conlleval", labels: Sequence[str] | None = None,
    zero_division: float = 0.0,
) -> tuple[Any, Any, Any]:
    """Precision, recall and F1 score of spans.

    Parameters
    ----------
    y_true : list of label sequences, or Sequences
        Annotated labels, see :func:`spans`.
    y_pred : list of label sequences, or Sequences
        Predicted labels.
    average : {"micro", "macro", "weighted"} or None, default="micro"
        Average over the types, see :func:`span_f1_score`.
    scheme : {"conlleval", "bio", "bioes", "bilou", "iob1"}, default="conlleval"
        How labels mark spans, see :func:`spans`.
    labels : list of str, default=None
        Types to count, in this order. By default all that occur, sorted.
    zero_division : float, default=0.0
        Precision without predicted spans, recall without annotated spans, F1 without both.
        Means ignore NaN.

    Returns
    -------
    precision, recall, f1 : float, or ndarrays of shape (n_types,) if average is None

    Examples
    --------
    >>> from fastm4n.metrics import span_precision_recall_f1
    >>> precision, recall, f1 = span_precision_recall_f1(
    ...     [["B-NP", "I-NP", "O", "B-VP"]], [["B-NP", "I-NP", "O", "O"]]
    ... )
    >>> precision, recall, round(f1, 3)
    (1.0, 0.5, 0.667)
    """
    if average not in AVERAGES:
        raise ValueError(f"average must be one of {AVERAGES}, got {average!r}.")
    _check_zero_division(zero_division)
    _, (true, found, right) = _counts(y_true, y_pred, scheme, labels)
    weights = true if average == "weighted" else None
    if average == "micro":
        true, found, right = (counts.sum(keepdims=True) for counts in (true, found, right))
    scores = _scores(true, found, right, zero_division)
    if average is None:
        return scores
    return tuple(_mean(score, weights, zero_division) for score in scores)


class SpanScores(NamedTuple):
    """Scores of the spans of one type, and the numbers that they are ratios of."""

    label: str
    precision: float
    recall: float
    f1: float
    n_true: int
    n_predicted: int
    n_right: int


class SpanReport(NamedTuple):
    """Scores of the spans of each type, and of all together. Printed, it is a table."""

    types: list[SpanScores]
    total: SpanScores

    def __str__(self) -> str:
        width = max(len(row.label) for row in (*self.types, self.total))
        lines = [f"{'':{width}}  precision  recall      f1    true  predicted"]
        lines += [
            f"{row.label:{width}}  {row.precision:9.4f}  {row.recall:6.4f}  {row.f1:6.4f}  "
            f"{row.n_true:6}  {row.n_predicted:9}" for row in (*self.types, self.total)]
        return "\n".join(lines)


def span_report(
    y_true: Labellings, y_pred: Labellings, *, scheme: Reading = "conlleval",
    labels: Sequence[str] | None = None,
) -> SpanReport:
    """Precision, recall and F1 score of the spans of each type.

    Parameters
    ----------
    y_true : list of label sequences, or Sequences
        Annotated labels, see :func:`spans`.
    y_pred : list of label sequences, or Sequences
        Predicted labels.
    scheme : {"conlleval", "bio", "bioes", "bilou", "iob1"}, default="conlleval"
        How labels mark spans, see :func:`spans`.
    labels : list of str, default=None
        Types to count, in this order. By default all that occur, sorted.

    Returns
    -------
    report : SpanReport
        ``report.types`` has the scores of each type, ``report.total`` those of all spans together,
        with 0 for ratios of nothing. It prints as a table.

    Examples
    --------
    >>> from fastm4n.metrics import span_report
    >>> print(span_report([["B-NP", "I-NP", "O", "B-VP"]], [["B-NP", "I-NP", "O", "B-NP"]]))
         precision  recall      f1    true  predicted
    NP      0.5000  1.0000  0.6667       1          2
    VP      0.0000  0.0000  0.0000       1          0
    all     0.5000  0.5000  0.5000       2          2
    """
    kinds, counts = _counts(y_true, y_pred, scheme, labels)
    totals = [np.append(own, own.sum()) for own in counts]
    columns = (*_scores(*totals, 0.0), *(own.astype(int) for own in totals))
    *types, total = (
        SpanScores(name, *values)
        for name, *values in zip([*kinds, "all"], *(c.tolist() for c in columns), strict=True))
    return SpanReport(types, total)


def token_accuracy(y_true: Labellings, y_pred: Labellings, *, ignore_label: Any = None) -> float:
    """Share of the tokens, or of the nodes of graphs, with the right label.

    Parameters
    ----------
    y_true : list of label sequences, or Sequences
    y_pred : list of label sequences, or Sequences
    ignore_label : label, default=None
        Mark of tokens in `y_true` that do not count, for example -1 or 255.

    Returns
    -------
    accuracy : float

    Examples
    --------
    >>> from fastm4n.metrics import token_accuracy
    >>> token_accuracy([["a", "b"], ["a", "c"]], [["a", "b"], ["a", "a"]])
    0.75
    """
    right = total = 0
    for pairs in _counted(y_true, y_pred, ignore_label):
        right += sum(a == p for a, p in pairs)
        total += len(pairs)
    if not total:
        raise ValueError("y_true and y_pred hold no labels.")
    return right / total


def sequence_accuracy(
    y_true: Labellings, y_pred: Labellings, *, ignore_label: Any = None,
) -> float:
    """Share of the sequences, or of the graphs, with the right labels throughout.

    Parameters
    ----------
    y_true : list of label sequences, or Sequences
    y_pred : list of label sequences, or Sequences
    ignore_label : label, default=None
        Mark of tokens in `y_true` that do not count, for example -1 or 255.

    Returns
    -------
    accuracy : float
        A sequence of length 0 counts as right.

    Examples
    --------
    >>> from fastm4n.metrics import sequence_accuracy
    >>> sequence_accuracy([["a", "b"], ["a", "c"]], [["a", "b"], ["a", "a"]])
    0.5
    """
    right = total = 0
    for pairs in _counted(y_true, y_pred, ignore_label):
        right += all(a == p for a, p in pairs)
        total += 1
    if not total:
        raise ValueError("y_true and y_pred hold no sequences.")
    return right / total


def hamming_ranking_loss(
    y_true: ArrayLike, y_pred: ArrayLike, *,
    form: Literal["auto", "ranks", "ordering", "string"] = "auto",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Share of the items at wrong places, on average over the rankings.

    Parameters
    ----------
    y_true : array-like
        Annotated rankings: ranks, orderings or strings, see
        :func:`fastm4n.data.as_places`.
    y_pred : array-like
        Predicted rankings of the same items, in the same form.
    form : {"auto", "ranks", "ordering", "string"}, default="auto"
        Form of the rankings, see :func:`fastm4n.data.as_places`. Orderings of integers need
        ``"ordering"``.
    sample_weight : array-like of shape (n,), default=None
        Weight of each ranking, not negative. By default all weights are equal.

    Returns
    -------
    loss : float
        In [0, 1].

    See Also
    --------
    kendall_tau_score, spearman_rho_score : Scores that depend on distances of places.

    Notes
    -----
    This is the loss of the M4N paper (Nowak-Vila, Bach and Rudi 2020, Example 2.2). A
    transposition of two items costs 2 / M wherever they are, and a rotation of all items
    costs 1.

    Examples
    --------
    >>> from fastm4n.metrics import hamming_ranking_loss
    >>> hamming_ranking_loss(["a>b>c>d", "b>a>c>d"], ["a>b>c>d", "a>b>c>d"])
    0.25
    """
    true, predicted = _places(y_true, y_pred, form)
    return _average((true != predicted).mean(axis=1), sample_weight)


def kendall_tau_score(
    y_true: ArrayLike, y_pred: ArrayLike, *,
    form: Literal["auto", "ranks", "ordering", "string"] = "auto",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Kendall's tau of annotated and predicted rankings, on average over the rankings.

    Parameters
    ----------
    y_true : array-like
        Annotated rankings: ranks, orderings or strings, see
        :func:`fastm4n.data.as_places`.
    y_pred : array-like
        Predicted rankings of the same items, in the same form.
    form : {"auto", "ranks", "ordering", "string"}, default="auto"
        Form of the rankings, see :func:`fastm4n.data.as_places`. Orderings of integers need
        ``"ordering"``.
    sample_weight : array-like of shape (n,), default=None
        Weight of each ranking, not negative. By default all weights are equal.

    Returns
    -------
    score : float
        In [-1, 1]: the share of pairs of items in the right order, minus the share of pairs in the
        wrong order. With a single item, tau is 1.

    Notes
    -----
    The cost is n M^2 / 2 comparisons.

    Examples
    --------
    >>> from fastm4n.metrics import kendall_tau_score
    >>> kendall_tau_score(["a>b>c>d", "a>b>c>d"], ["a>b>c>d", "d>c>b>a"])
    0.0
    >>> kendall_tau_score([[1, 2, 3, 4, 5]], [[1, 3, 2, 4, 5]])
    0.8
    """
    true, predicted = _places(y_true, y_pred, form)
    size = true.shape[1]
    in_order = np.empty_like(predicted)
    np.put_along_axis(in_order, true, predicted, axis=1)
    # a row for each place: the comparisons below run along contiguous memory
    in_order = np.ascontiguousarray(in_order.T)
    inversions = np.zeros(len(true), dtype=np.int64)
    for place in range(size - 1):
        inversions += np.count_nonzero(in_order[place] > in_order[place + 1 :], axis=0)
    return _average(1 - 4 * inversions / max(size * (size - 1), 1), sample_weight)


def spearman_rho_score(
    y_true: ArrayLike, y_pred: ArrayLike, *,
    form: Literal["auto", "ranks", "ordering", "string"] = "auto",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Spearman's rho of annotated and predicted rankings, on average over the rankings.

    Parameters
    ----------
    y_true : array-like
        Annotated rankings: ranks, orderings or strings, see
        :func:`fastm4n.data.as_places`.
    y_pred : array-like
        Predicted rankings of the same items, in the same form.
    form : {"auto", "ranks", "ordering", "string"}, default="auto"
        Form of the rankings, see :func:`fastm4n.data.as_places`. Orderings of integers need
        ``"ordering"``.
    sample_weight : array-like of shape (n,), default=None
        Weight of each ranking, not negative. By default all weights are equal.

    Returns
    -------
    score : float
        In [-1, 1]: the correlation of annotated and predicted places. With a single item, rho
        is 1.

    Examples
    --------
    >>> from fastm4n.metrics import spearman_rho_score
    >>> spearman_rho_score(["a>b>c>d", "a>b>c>d"], ["a>b>c>d", "d>c>b>a"])
    0.0
    >>> spearman_rho_score([[1, 2, 3]], [[1, 3, 2]])
    0.5
    """
    true, predicted = _places(y_true, y_pred, form)
    size = true.shape[1]
    squares = ((true - predicted) ** 2).sum(axis=1)
    return _average(1 - 6 * squares / max(size * (size**2 - 1), 1), sample_weight)


def pairwise_order_score(
    y_true: ArrayLike, y_pred: ArrayLike, *,
    form: Literal["auto", "ranks", "ordering", "string", "top", "pairs"] = "auto",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Share of the ordered pairs of items that the prediction orders alike, a mean over rankings.

    Parameters
    ----------
    y_true : array-like
        Annotated rankings, which may be partial: see :func:`fastm4n.data.as_preferences`. Those
        without an ordered pair do not count.
    y_pred : array-like
        Predicted rankings of all these items, as `LabelRanker` predicts them: orderings if the form
        of `y_true` is ``"top"`` or ``"pairs"``, and otherwise in the same form. Pairs that they
        leave open are in the wrong order.
    form : {"auto", "ranks", "ordering", "string", "top", "pairs"}, default="auto"
        Form of `y_true`, see :func:`fastm4n.data.as_preferences`.
    sample_weight : array-like of shape (n,), default=None
        Weight of each ranking, not negative. By default all weights are equal.

    Returns
    -------
    score : float
        In [0, 1]. Of complete rankings it is (1 + tau) / 2, tau being Kendall's.

    Raises
    ------
    ValueError
        If no ranking of positive weight in `y_true` has an item above another one.

    See Also
    --------
    kendall_tau_score : Agreement of complete rankings.

    Examples
    --------
    >>> from fastm4n.metrics import pairwise_order_score
    >>> pairwise_order_score(["a>b=c", "c>*"], ["b>a>c", "c>a>b"])
    0.75
    >>> pairwise_order_score([[("a", "b"), ("c", "b")]], [["a", "b", "c"]])
    0.5
    """
    predicted_form = {"top": "ordering", "pairs": "ordering"}
    true = read_preferences(y_true, form, input_name="y_true")
    predicted = read_preferences(
        y_pred, predicted_form.get(true.form, true.form), input_name="y_pred")
    if len(true) != len(predicted):
        raise ValueError(f"y_true has {len(true)} rankings, y_pred has {len(predicted)}.")
    missing = np.setdiff1d(true.items, predicted.items)
    if missing.size:
        raise ValueError(
            f"y_true has {missing[0].item()!r}, but y_pred does not: predictions rank all items.")
    if true.items.size < predicted.items.size:
        # items that no ranking names, but a star or the end of a top may stand for
        true = read_preferences(y_true, true.form, predicted.items, "y_true")
    return share_of_pairs(true.orders(), predicted.orders(), sample_weight, "y_true")


def share_of_pairs(
    true: Array, predicted: Array, sample_weight: ArrayLike | None, input_name: str,
) -> float:
    """`pairwise_order_score` of orders of the items, (n, M, M) each."""
    counts, weights = true.sum(axis=(1, 2)), as_weights(sample_weight, len(true), "ranking")
    kept = np.flatnonzero((counts > 0) & (weights > 0.0))
    if not kept.size:
        raise ValueError(
            f"{input_name} has no item above another one in rankings of positive weight.")
    return _average((true & predicted).sum(axis=(1, 2))[kept] / counts[kept], weights[kept])


def matching_precision_score(
    y_true: Matchings, y_pred: Matchings, *, average: Literal["micro", "macro"] = "micro",
    zero_division: float = 0.0,
) -> float:
    """Share of the predicted pairs that are true.

    Parameters
    ----------
    y_true : list of array-like of int of shape (n_i,), or array-like of shape (n_examples, n)
        True matchings: the column of each row, and -1, None or NaN for an unmatched row.
    y_pred : as y_true
        Predicted matchings.
    average : {"micro", "macro"}, default="micro"
        "micro" counts the pairs of all examples together. "macro" is the mean of the scores of the
        examples.
    zero_division : float, default=0.0
        Score if no pair is predicted. The mean of "macro" ignores NaN.

    Returns
    -------
    score : float
        In [0, 1].

    See Also
    --------
    matching_recall_score : Share of the true pairs that are predicted.
    matching_f1_score : Harmonic mean of both.

    Examples
    --------
    >>> from fastm4n.metrics import matching_precision_score
    >>> matching_precision_score([[1, 0, -1], [0, -1]], [[1, -1, -1], [0, -1]])
    1.0
    """
    return _matching_score(y_true, y_pred, 0, average, zero_division)


def matching_recall_score(
    y_true: Matchings, y_pred: Matchings, *, average: Literal["micro", "macro"] = "micro",
    zero_division: float = 0.0,
) -> float:
    """Share of the true pairs that are predicted.

    Parameters
    ----------
    y_true : list of array-like of int of shape (n_i,), or array-like of shape (n_examples, n)
        True matchings: the column of each row, and -1, None or NaN for an unmatched row.
    y_pred : as y_true
        Predicted matchings.
    average : {"micro", "macro"}, default="micro"
        "micro" counts the pairs of all examples together. "macro" is the mean of the scores of the
        examples.
    zero_division : float, default=0.0
        Score if there is no true pair. The mean of "macro" ignores NaN.

    Returns
    -------
    score : float
        In [0, 1].

    See Also
    --------
    matching_precision_score : Share of the predicted pairs that are true.
    matching_f1_score : Harmonic mean of both.

    Examples
    --------
    >>> from fastm4n.metrics import matching_recall_score
    >>> matching_recall_score([[1, 0, -1], [0, -1]], [[1, -1, -1], [0, -1]])
    0.6666666666666666
    """
    return _matching_score(y_true, y_pred, 1, average, zero_division)


def matching_f1_score(
    y_true: Matchings, y_pred: Matchings, *, average: Literal["micro", "macro"] = "micro",
    zero_division: float = 0.0,
) -> float:
    """F1 score of the predicted pairs: the harmonic mean of precision and recall.

    Parameters
    ----------
    y_true : list of array-like of int of shape (n_i,), or array-like of shape (n_examples, n)
        True matchings: the column of each row, and -1, None or NaN for an unmatched row.
    y_pred : as y_true
        Predicted matchings.
    average : {"micro", "macro"}, default="micro"
        "micro" counts the pairs of all examples together. "macro" is the mean of the scores of the
        examples.
    zero_division : float, default=0.0
        Score if there are neither true nor predicted pairs. The mean of "macro" ignores NaN.

    Returns
    -------
    score : float
        In [0, 1].

    See Also
    --------
    matching_precision_score : Share of the predicted pairs that are true.
    matching_recall_score : Share of the true pairs that are predicted.

    Examples
    --------
    >>> from fastm4n.metrics import matching_f1_score
    >>> matching_f1_score([[1, 0, -1], [0, -1]], [[1, -1, -1], [0, -1]])
    0.8
    """
    return _matching_score(y_true, y_pred, 2, average, zero_division)


def _matching_score(y_true, y_pred, number, average, zero_division):
    """Precision, recall or F1 of pairs, by number."""
    check_choice("average", average, ("micro", "macro"))
    _check_zero_division(zero_division)
    for name, y in (("y_true", y_true), ("y_pred", y_pred)):
        if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__len__"):
            raise TypeError(f"{name} must be a list of matchings, not {type(y).__name__}.")
    if len(y_true) != len(y_pred):
        raise ValueError(f"y_true has {len(y_true)} matchings, y_pred has {len(y_pred)}.")
    counts = np.zeros((3, len(y_true)))
    for b, (true, found) in enumerate(zip(as_rows(y_true), as_rows(y_pred), strict=True)):
        annotated = as_columns(true, f"y_true[{b}]")
        predicted = as_columns(found, f"y_pred[{b}]", annotated.size, of_what=f"y_true[{b}]")
        right = (annotated == predicted) & (annotated >= 0)
        counts[:, b] = [np.count_nonzero(rows) for rows in (annotated >= 0, predicted >= 0, right)]
    if average == "micro":
        counts = counts.sum(axis=1, keepdims=True)
    return _mean(_scores(*counts, zero_division)[number], None, zero_division)


def _places(y_true, y_pred, form):
    """Places of the same items in annotated and predicted rankings."""
    true, items = as_places(y_true, form, input_name="y_true")
    predicted, predicted_items = as_places(y_pred, form, input_name="y_pred")
    if len(true) != len(predicted):
        raise ValueError(f"y_true has {len(true)} rankings, y_pred has {len(predicted)}.")
    if items.tolist() != predicted_items.tolist():
        raise ValueError(
            f"y_true ranks the items {_shown(items)}, y_pred ranks {_shown(predicted_items)}. "
            "Items and form must be the same.")
    return true, predicted


def _shown(items):
    names = ", ".join(map(repr, items[:10].tolist()))
    return f"{names} ... ({len(items)} in all)" if len(items) > 10 else names


def _average(scores, sample_weight):
    """Weighted mean of the scores of rankings."""
    if sample_weight is None:
        return float(scores.mean())
    weights = as_weights(sample_weight, len(scores), "ranking")
    # scaled: the sum of weights might overflow
    return float(np.average(scores, weights=weights / weights.max()))


def _counted(y_true, y_pred, ignore_label):
    """Pairs of the true and the predicted labels that count, by sequence."""
    for annotated, predicted in _pairs(y_true, y_pred):
        yield [
            (a, p) for a, p in zip(annotated, predicted, strict=True)
            if ignore_label is None or a != ignore_label]


def _pairs(y_true, y_pred):
    """Pairs of lists of labels, of equal lengths."""
    for name, y in (("y_true", y_true), ("y_pred", y_pred)):
        if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__len__"):
            raise TypeError(
                f"{name} must be a list of label sequences or Sequences, not {type(y).__name__}.")
        if isinstance(y, Sequences) and y.values.ndim != 1:
            raise ValueError(f"{name} must be labels, but its values have 2 dimensions.")
    if len(y_true) != len(y_pred):
        raise ValueError(f"y_true has {len(y_true)} sequences, y_pred has {len(y_pred)}.")
    for i, (annotated, predicted) in enumerate(zip(y_true, y_pred, strict=True)):
        for name, labels in (("y_true", annotated), ("y_pred", predicted)):
            if isinstance(labels, (str, bytes)) or not hasattr(labels, "__len__"):
                raise TypeError(
                    f"{name}[{i}] must be a sequence of labels, not {labels!r}. Put a single "
                    f"sequence into a list, [{name}].")
        if len(annotated) != len(predicted):
            raise ValueError(
                f"Sequence {i} has {len(annotated)} labels in y_true, {len(predicted)} in y_pred.")
        yield _as_list(annotated), _as_list(predicted)


def _as_list(labels):
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)


def _counts(y_true, y_pred, scheme, labels):
    """Types, and for each the numbers of annotated, predicted and right spans."""
    reads = Tags(scheme)
    if isinstance(labels, str):
        raise TypeError(f"labels must be a list of types, not the string {labels!r}.")
    counters = true, found, right = Counter(), Counter(), Counter()
    for i, (annotated, predicted) in enumerate(_pairs(y_true, y_pred)):
        annotated = reads.spans(annotated, f"y_true[{i}]")
        predicted = reads.spans(predicted, f"y_pred[{i}]")
        true.update(kind for kind, _, _ in annotated)
        found.update(kind for kind, _, _ in predicted)
        right.update(kind for kind, _, _ in set(annotated).intersection(predicted))
    kinds = sorted({*true, *found}) if labels is None else list(labels)
    return kinds, [
        np.array([counter[kind] for kind in kinds], dtype=float) for counter in counters]


def _check_zero_division(zero_division):
    if not (0 <= zero_division <= 1 or zero_division != zero_division):
        raise ValueError(f"zero_division must be in [0, 1] or NaN, got {zero_division!r}.")


def _scores(true, found, right, zero_division):
    """Precision, recall and F1."""
    return (
        _ratio(right, found, zero_division), _ratio(right, true, zero_division),
        _ratio(2 * right, true + found, zero_division))


def _ratio(part, whole, zero_division):
    result = np.full(len(whole), float(zero_division))
    return np.divide(part, whole, out=result, where=whole > 0)


def _mean(scores, weights, zero_division):
    known = ~np.isnan(scores)
    weights = np.ones(len(scores)) if weights is None else weights
    total = weights[known].sum()
    if not total:
        return float(zero_division)
    return float(scores[known] @ weights[known] / total)
