"""Plots: checks before a command computes, and figures of the displays."""

import importlib.util
from pathlib import Path

from fastm4n.cli._output import CommandError, check_output, joined, writing

NEED_PLOT = 'plots need matplotlib: pip install "fastm4n[plot]"'


def available():
    return importlib.util.find_spec("matplotlib") is not None


def check(option, path):
    """Fail now if a plot cannot be written to `path` later. None passes."""
    if path is None:
        return
    if not available():
        raise CommandError(NEED_PLOT)
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if _kind(path) not in kinds:
        raise CommandError(
            f"{option} {path}: the name must end with "
            f"{joined(['.' + kind for kind in sorted(kinds)])}", 2)
    check_output(option, path)


def write(option, path, draw, *args):
    """Write the figure that ``draw(*args)`` returns."""
    with writing(option, path) as file:
        draw(*args).savefig(file, format=_kind(path))


def _kind(path):
    return Path(path).suffix[1:].lower()


def _figure(title, *figsize):
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize or None, dpi=150, layout="constrained")
    figure.suptitle(title, fontsize="medium")
    return figure


def gap(estimator, name):
    """Certified gap of a fit, against passes and against seconds."""
    from fastm4n.plotting import DualityGapDisplay

    figure = _figure(
        f"{type(estimator).__name__} on {name}: surrogate {estimator.surrogate}, "
        f"alpha {estimator.alpha_:g}", 9, 3.6)
    left, right = figure.subplots(1, 2, sharey=True)
    DualityGapDisplay.from_estimator(estimator, against="passes", ax=left)
    DualityGapDisplay.from_estimator(estimator, against="seconds", ax=right)
    right.set_ylabel("")
    return figure


def transitions(estimator, name):
    """Heat map of a tagger's weights of transitions."""
    from fastm4n.plotting import TransitionDisplay

    side = min(14.0, 3.0 + 0.4 * estimator.classes_.size)
    figure = _figure(f"transitions on {name}", 1.2 * side + 1.0, side)
    TransitionDisplay.from_estimator(estimator, ax=figure.subplots())
    return figure


def margins(found, name):
    """Margins of a complexity report."""
    figure = _figure(f"margins on {name}", 6.4, 4.0)
    found.plot(figure.subplots())
    return figure


def path(found):
    """Certified gap of a path, and its losses, against alpha."""
    from fastm4n.plotting import RegularizationPathDisplay

    estimator = found.path.estimator(found.best["alpha"])
    figure = _figure(
        f"{type(estimator).__name__} on {found.data.name}: surrogate {estimator.surrogate}, "
        f"kernel {getattr(estimator, 'kernel', 'linear')}")
    if found.search is None:
        display = RegularizationPathDisplay.from_path(
            found.path, best_alpha=found.best["alpha"], score_name=found.loss_name, ax=figure,
            scores={
                name: [point[f"{key}_loss"] for point in found.points]
                for name, key in (("training", "train"), ("validation", "validation"))})
    else:
        display = RegularizationPathDisplay.from_estimator(
            found.search, negate_score=True, score_name=found.loss_name, ax=figure)
    figure.set_size_inches(8, 2 + 2.5 * len(display.panels_))
    return figure
