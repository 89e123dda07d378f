"""Common parts of displays: arguments, colours, lines, axes, ticks, legends and titles."""

import numpy as np
from sklearn.pipeline import Pipeline

# distinct in colour-blind vision, and by marker and line as well
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.")
GREY = "#555555"
# a legend above the axes, if the lines leave no room
ABOVE = {"loc": "lower left", "bbox_to_anchor": (0, 1), "frameon": False, "borderaxespad": 0.2}
# more points of a line get no markers of their own
MOST_MARKERS = 60


def check_matplotlib(caller):
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{caller} needs matplotlib: pip install "fastm4n[plot]"') from error


def last_step(estimator):
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def as_last_step_takes(estimator, X):
    """X transformed by the steps before the last one, if there are any."""
    if isinstance(estimator, Pipeline) and len(estimator) > 1:
        return estimator[:-1].transform(X)
    return X


def as_curves(given, names, noun):
    """A list of the curves in a list, a dict by name or a single one, and their names."""
    if isinstance(given, dict):
        given, names = list(given.values()), list(given) if names is None else names
    elif not isinstance(given, (list, tuple)):
        given = [given]
    if not given:
        raise ValueError(f"{noun} is empty.")
    return list(given), of_length(names, len(given), "names")


def of_length(values, n, name, each="curve"):
    if values is not None and (isinstance(values, str) or len(values) != n):
        got = repr(values) if isinstance(values, str) else f"{len(values)}"
        raise ValueError(f"{name} must be a list of {n}, one for each {each}, got {got}.")
    return values


# --------------------------------------------------------------------------- appearance


def new_axes(title, n_rows=1, figsize=None, height_ratios=None):
    """Axes of a new figure, one below the other under a title."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=figsize, layout="constrained")
    figure.suptitle(title, fontsize="medium")
    return rows_of_axes(figure, n_rows, height_ratios)


def rows_of_axes(figure, n_rows, height_ratios=None):
    """Axes of a figure, one below the other, with one x axis."""
    return figure.subplots(
        n_rows, 1, sharex=True, squeeze=False, height_ratios=height_ratios)[:, 0]


def style_of(i):
    return {
        "color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)],
        "linestyle": DASHES[i % len(DASHES)],
    }


def tidy(ax):
    ax.grid(alpha=0.35, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def log_scale(axis, values, plain=False):
    """Make an axis logarithmic, with a suitable number of labels.

    `plain`, for the x axis, writes 100 instead of a power of 10, and shows zeros.
    """
    from matplotlib.ticker import (
        FixedLocator,
        LogFormatterSciNotation,
        LogLocator,
        MaxNLocator,
        NullFormatter,
    )

    positive = values[np.isfinite(values) & (values > 0)]
    if positive.size == 0:
        return
    set_scale = getattr(axis.axes, f"set_{axis.axis_name}scale")
    if plain and (values == 0).any():
        set_scale("symlog", linthresh=positive.min())
    else:
        set_scale("log")
        low, high = positive.min(), positive.max()
        multiples = _multiples(low, high, plain and _has_room(axis, low, high))
        if multiples:
            axis.set_major_locator(LogLocator(subs=multiples, numticks=20))
            axis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf)))
        else:
            axis.set_major_locator(MaxNLocator(4))
            axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
        if plain and multiples is not None and len(multiples) == 9:
            axis.set_major_locator(FixedLocator(_apart(axis, low, high)))
    if plain:
        axis.set_major_formatter("{x:g}")


def _multiples(low, high, dense):
    """The fewest multiples of powers of ten with two labels from low to high, or 1, 2 and 5.

    None if the values are too close to one another.
    """
    for multiples in ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10)))[2 if dense else 0 :]:
        if _places(low, high, multiples).size >= 2:
            return multiples
    return None


def _places(low, high, multiples):
    """Multiples of powers of ten from low to high."""
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    places = np.multiply.outer(powers, multiples).ravel()
    return places[(places >= low) & (places <= high)]


def _apart(axis, low, high):
    """One-digit numbers from low to high with labels that do not touch."""
    places = _places(low, high, range(1, 10))
    chosen = places[:1]
    for place in places[1:]:
        width = 0.085 * (1 + len(f"{place:g}"))
        if _inches(axis) * np.log(place / chosen[-1]) > width * np.log(high / low):
            chosen = np.append(chosen, place)
    return chosen if chosen.size > 1 else places[[0, -1]]


def _inches(axis):
    return axis.axes.get_window_extent().width / axis.axes.figure.dpi


def _has_room(axis, low, high):
    """Whether 1, 2 and 5 fit in each decade, before there is a layout."""
    inches = _inches(axis)
    # from 1 to 2 is 0.3 of a decade, and a digit of a label is about 0.075 inches wide
    n_digits = 1 + max(len(f"{10 ** np.floor(np.log10(end)):g}") for end in (low, high))
    return 0.3 * inches > 0.075 * n_digits * np.log10(high / low)


def legend_beside_lines(ax):
    """A legend inside the axes if it hides no line or is too wide, or else above."""
    legend = ax.legend(frameon=False)
    ax.figure.draw_without_rendering()
    box = legend.get_window_extent()
    if box.width > ax.get_window_extent().width:
        return
    paths = (line.get_transform().transform_path(line.get_path()) for line in ax.lines)
    if any(path.intersects_bbox(box, filled=False) for path in paths if len(path.vertices)):
        ax.legend(**ABOVE)
