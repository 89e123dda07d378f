"""The weights of a tagger's transitions."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.plotting._arguments import check_matplotlib, last_step
from fastm4n.plotting._axes import new_axes

# up to so many labels a heat map shows its numbers
MOST_NUMBERED = 12


class TransitionDisplay:
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

    def __init__(self, weights, row_labels, column_labels):
        self.weights = weights
        self.row_labels = row_labels
        self.column_labels = column_labels

    def __repr__(self):
        return (
            f"<TransitionDisplay: from {len(self.row_labels)} to {len(self.column_labels)} labels>"
        )

    @classmethod
    def from_estimator(cls, estimator, *, labels=None, ends=True, ax=None, **kwargs):
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
        if not estimator.fit_transitions:
            raise ValueError(
                "The tagger has no weights of transitions: it was fitted with "
                "fit_transitions=False."
            )
        chosen = _positions(labels, estimator.classes_.tolist())
        names = [str(estimator.classes_[i]) for i in chosen]
        weights = estimator.transition_coef_[np.ix_(chosen, chosen)]
        if not (ends and estimator.fit_start_end):
            return cls(weights, names, list(names)).plot(ax, **kwargs)
        R = len(chosen)
        table = np.full((R + 1, R + 1), np.nan)
        table[0, :R], table[1:, R] = estimator.start_coef_[chosen], estimator.end_coef_[chosen]
        table[1:, :R] = weights
        return cls(table, ["(start)", *names], [*names, "(end)"]).plot(ax, **kwargs)

    def plot(
        self, ax=None, *, values="auto", values_format=None, cmap="RdBu_r", colorbar=True,
        im_kw=None, text_kw=None,
    ):
        """Plot the heat map.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; those of a new figure by default.
        values : bool or "auto", default="auto"
            Whether to write the weights into the cells; by default where there are at most 12
            labels.
        values_format : str, default=None
            Format of the weights; by default two digits of the largest, and as many decimals of
            all.
        cmap : str or matplotlib Colormap, default="RdBu_r"
            Colours; its middle is a weight of 0.
        colorbar : bool, default=True
            Whether to add a scale of colours.
        im_kw : dict, default=None
            Arguments of matplotlib's `imshow`.
        text_kw : dict, default=None
            Arguments of matplotlib's `text`.

        Returns
        -------
        display : TransitionDisplay
        """
        check_matplotlib(f"{type(self).__name__}.plot")
        weights = np.asarray(self.weights, dtype=np.float64)
        n_rows, n_columns = weights.shape
        most = max(n_rows, n_columns)
        if ax is None:
            side = min(max(3.6, 1.2 + 0.45 * most), 11.0)
            ax = new_axes("Weights of transitions", figsize=(side + 0.8 * bool(colorbar), side))[0]
        self.ax_, self.figure_ = ax, ax.figure
        largest = np.nanmax(np.abs(weights), initial=0.0) or 1.0
        options = {"cmap": cmap, "vmin": -largest, "vmax": largest, **(im_kw or {})}
        self.im_ = ax.imshow(weights, **options)
        self.colorbar_ = None
        if colorbar:
            self.colorbar_ = self.figure_.colorbar(self.im_, ax=ax, label="weight", shrink=0.8)
        # points of a cell's side, before there is a layout
        extent = ax.get_window_extent().transformed(self.figure_.dpi_scale_trans.inverted())
        room = 72 * min(extent.width / n_columns, extent.height / n_rows)
        size = float(np.clip(0.6 * room, 4, 10))
        turned = 0.55 * size * max(map(len, self.column_labels)) > room
        ax.set_xticks(
            range(n_columns), self.column_labels, rotation=90 if turned else 0, fontsize=size
        )
        ax.set_yticks(range(n_rows), self.row_labels, fontsize=size)
        ax.set(xlabel="to", ylabel="from")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        if values == "auto":
            values = most <= MOST_NUMBERED + 1
        self.text_ = None
        if values:
            shown = weights
            if values_format is None:
                decimals = max(0, 1 - int(np.floor(np.log10(largest))))
                values_format = f".{decimals}f"
                shown = np.round(weights, decimals) + 0.0  # without a sign of zero
            options = {
                "ha": "center", "va": "center", "fontsize": min(8.5, 0.28 * room),
                **(text_kw or {}),
            }
            self.text_ = np.full(weights.shape, None)
            for i, j in np.argwhere(~np.isnan(weights)):
                red, green, blue, _ = self.im_.cmap(self.im_.norm(weights[i, j]))
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                self.text_[i, j] = ax.text(
                    j, i, format(shown[i, j], values_format),
                    **{"color": "white" if dark else "black", **options},
                )
        return self


def _positions(labels, classes):
    if labels is None:
        return list(range(len(classes)))
    where = {label: i for i, label in enumerate(classes)}
    unknown = [label for label in labels if label not in where]
    if unknown:
        raise ValueError(f"labels has {unknown[0]!r}, which the tagger does not know.")
    return [where[label] for label in labels]
