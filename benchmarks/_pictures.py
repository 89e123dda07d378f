"""What the pictures of several benchmarks have in common."""

import numpy as np

from fastm4n.plotting._axes import log_scale


def in_order(seconds):
    """Seconds to each point of a curve, where any of the later points took no longer."""
    return np.minimum.accumulate(seconds[::-1])[::-1]


def two_labels(axes):
    """Logarithmic axes with two labels at least, for the lines that are drawn on them."""
    for axis, get in ((axes.xaxis, "get_xdata"), (axes.yaxis, "get_ydata")):
        together = getattr(axes, f"get_shared_{axis.axis_name}_axes")().get_siblings(axes)
        lines = [line for other in together for line in other.lines]
        log_scale(axis, np.concatenate([getattr(line, get)() for line in lines]))
