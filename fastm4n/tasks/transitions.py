"""Scores of transitions: what `transitions=` of a tagger takes."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING

from sklearn.base import BaseEstimator

from fastm4n.base.checks import NamesParameters, check_flag, check_number, is_flag

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import ArrayLike

# n-grams are kept in rows of so many labels and one more
MOST_ORDER = 32


class Transitions(NamesParameters, BaseEstimator):
    """Which scores labels have for their neighbours and for the ends of a sequence.

    Given as ``SequenceTagger(transitions=Transitions(...))``. ``transitions=True`` is the default
    one. ``transitions=False`` has no scores of pairs and of ends, so that positions are labelled
    one by one.

    Parameters
    ----------
    start_end : bool, default=True
        Whether labels have scores for being the first and the last of a sequence.
    pairs : bool, default=True
        Whether pairs of neighbouring labels have scores.
    features : "all", array-like of int or bool mask of shape (n_features,), default=None
        Columns of X on which the scores of pairs depend. The score of the transition into a
        position with features x is ``transition_coef_[i, j] + x[transition_features_] @
        transition_feature_coef_[:, i, j]``. None means that all positions have the same scores.
    order : int, default=1
        Number of previous labels on which a label depends. With 2 or more, n-grams of 3 to
        order + 1 labels that occur in the training data have weights, `ngram_coef_`, next to those
        of pairs.

    Examples
    --------
    >>> from fastm4n import SequenceTagger, Transitions
    >>> tagger = SequenceTagger("log", transitions=Transitions(order=2))
    >>> tagger.set_params(transitions__order=3)
    SequenceTagger(surrogate='log', transitions=Transitions(order=3))
    """

    def __init__(
        self, start_end: bool = True, pairs: bool = True,
        features: Literal["all"] | ArrayLike | None = None, order: int = 1,
    ) -> None:
        self.start_end = start_end
        self.pairs = pairs
        self.features = features
        self.order = order

    def check(self) -> None:
        """Raise a ValueError for invalid parameters."""
        for name in ("start_end", "pairs"):
            check_flag(f"transitions: {name}", getattr(self, name))
        check_number("transitions: order", self.order, low=0, integer=True)
        if self.order > MOST_ORDER:
            raise ValueError(
                f"transitions: order must be at most {MOST_ORDER}, got {self.order}.")
        if self.order > 1 and (self.features is not None or not self.pairs):
            raise ValueError(
                f"transitions: order={self.order} needs pairs=True and features=None (got "
                f"pairs={self.pairs}, features={reprlib.repr(self.features)}).")
        if self.features is not None and not self.pairs:
            raise ValueError(
                f"transitions: features={reprlib.repr(self.features)} needs pairs=True (got "
                f"{self.pairs}).")


def as_transitions(transitions: bool | Transitions | None) -> Transitions:
    """The object that `transitions` of a tagger is or stands for, not checked."""
    if isinstance(transitions, Transitions):
        return transitions
    if transitions is None or is_flag(transitions):
        return Transitions(start_end=bool(transitions), pairs=bool(transitions))
    raise ValueError(
        "transitions must be True, False, None or an object fastm4n.Transitions(...), got "
        f"{transitions!r:.80}.")
