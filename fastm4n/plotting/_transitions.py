"""The weights of a tagger's transitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.plotting._arguments import check_matplotlib, last_step
from fastm4n.plotting._heat_map import HeatMap, positions

if TYPE_CHECKING:
    from typing import Any

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from fastm4n.estimators.chain import SequenceTagger


class TransitionDisplay(HeatMap):
    """Heat map of a tagger's weights of transitions.

    Rows are the labels that are left, columns those that come next. A row "(start)" and a
    column "(end)" are the weights of being first and last. Make it with
    :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (n_rows, n_columns)
        Weight of each transition, NaN where there is none.
    row_labels, column_labels : list of str

    Attributes
    ----------
    im_ : matplotlib AxesImage
        The heat map, with colours that are symmetric around 0.
    text_ : ndarray of shape (n_rows, n_columns), dtype=object, or None
        The numbers as matplotlib Text, with None where there is no transition.
    colorbar_ : matplotlib Colorbar or None
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    fastm4n.SequenceTagger.explain : The strongest weights, as a table.

    Examples
    --------
    >>> from fastm4n import SequenceTagger
    >>> from fastm4n.plotting import TransitionDisplay
    >>> X = [[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]
    >>> tagger = SequenceTagger(random_state=0).fit(X, [["a", "b", "b"], ["b", "a"]])
    >>> display = TransitionDisplay.from_estimator(tagger)
    >>> display
    <TransitionDisplay: from 3 to 3 labels>
    >>> display.row_labels, display.column_labels
    (['(start)', 'a', 'b'], ['a', 'b', '(end)'])
    """

    _title = "Weights of transitions"
    _rows, _columns = "from", "to"

    def __repr__(self) -> str:
        return (
            f"<TransitionDisplay: from {len(self.row_labels)} to {len(self.column_labels)} labels>"
        )

    @classmethod
    def from_estimator(
        cls, estimator: SequenceTagger, *, labels: ArrayLike | None = None, ends: bool = True,
        ax: Axes | None = None, **kwargs: Any,
    ) -> TransitionDisplay:
        """Plot the transitions of a fitted tagger.

        Parameters
        ----------
        estimator : SequenceTagger
            Fitted, or a pipeline that ends with one. Where its transitions depend on features,
            the part that does not is shown.
        labels : array-like, default=None
            Labels to show, in this order; `classes_` by default.
        ends : bool, default=True
            Whether to show the weights of being first and last, where there are any.
        ax : matplotlib Axes, default=None
            Axes to plot on; those of a new figure by default.
        **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : TransitionDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_estimator")
        estimator = last_step(estimator)
        if "transition_coef_" not in getattr(estimator, "_fitted_arrays", ()):
            raise TypeError(
                "estimator must be one of labels with transitions, such as SequenceTagger, got a "
                f"{type(estimator).__name__}."
            )
        check_is_fitted(estimator)
        scored = estimator._scored
        if not scored.pairs:
            raise ValueError(
                "The tagger has no weights of transitions: it was fitted with pairs=False."
            )
        chosen = positions(labels, estimator.classes_.tolist())
        names = [str(estimator.classes_[i]) for i in chosen]
        weights = estimator.transition_coef_[np.ix_(chosen, chosen)]
        if not (ends and scored.start_end):
            return cls(weights, names, list(names)).plot(ax, **kwargs)
        R = len(chosen)
        table = np.full((R + 1, R + 1), np.nan)
        table[0, :R], table[1:, R] = estimator.start_coef_[chosen], estimator.end_coef_[chosen]
        table[1:, :R] = weights
        return cls(table, ["(start)", *names], [*names, "(end)"]).plot(ax, **kwargs)
