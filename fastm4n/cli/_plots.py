"""Plots: what is checked before a command computes, and figures from the displays."""

import importlib.util
from pathlib import Path

from fastm4n.cli._output import CommandError, check_output

NEED_PLOT = 'plots need matplotlib: pip install "fastm4n[plot]"'


def available():
    return importlib.util.find_spec("matplotlib") is not None


def check(option, path):
    """Fail now if a plot could not be written to `path` later."""
    if not available():
        raise CommandError(NEED_PLOT)
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if kind(path) not in kinds:
        raise CommandError(
            f"{option} {path}: the name must end with one of "
            f"{', '.join('.' + kind for kind in sorted(kinds))}", 2
        )
    check_output(option, path)


def kind(path):
    """The format that the name of a plot asks for."""
    return Path(path).suffix[1:].lower()


def gap(estimator, name, file, kind):
    """Write the certified gap of a fit, against passes and against seconds."""
    from matplotlib.figure import Figure

    from fastm4n.plotting import DualityGapDisplay

    figure = Figure(figsize=(9, 3.6), dpi=150, layout="constrained")
    figure.suptitle(
        f"{type(estimator).__name__} on {name}: surrogate {estimator.surrogate}, "
        f"alpha {estimator.alpha_:g}", fontsize="medium",
    )
    left, right = figure.subplots(1, 2, sharey=True)
    DualityGapDisplay.from_estimator(estimator, against="passes", ax=left)
    DualityGapDisplay.from_estimator(estimator, against="seconds", ax=right)
    right.set_ylabel("")
    figure.savefig(file, format=kind)


def transitions(estimator, name, file, kind):
    """Write the heat map of a tagger's weights of transitions."""
    from matplotlib.figure import Figure

    from fastm4n.plotting import TransitionDisplay

    side = min(14.0, 3.0 + 0.4 * estimator.classes_.size)
    figure = Figure(figsize=(1.2 * side + 1.0, side), dpi=150, layout="constrained")
    TransitionDisplay.from_estimator(estimator, ax=figure.subplots())
    figure.suptitle(f"transitions on {name}", fontsize="medium")
    figure.savefig(file, format=kind)


def margins(found, name, file, kind):
    """Write the margins of a report."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    found.plot(figure.subplots())
    figure.suptitle(f"margins on {name}", fontsize="medium")
    figure.savefig(file, format=kind)


def path(found, file, kind):
    """Write the certified gap of a path, and its losses, against alpha."""
    from matplotlib.figure import Figure

    from fastm4n.plotting import RegularizationPathDisplay

    figure = Figure(dpi=150, layout="constrained")
    estimator = found.path.estimator(found.best["alpha"])
    figure.suptitle(
        f"{type(estimator).__name__} on {found.data.name}: surrogate {estimator.surrogate}, "
        f"kernel {getattr(estimator, 'kernel', 'linear')}", fontsize="medium",
    )
    search = found.search
    if search is None:
        display = RegularizationPathDisplay.from_path(
            found.path, best_alpha=found.best["alpha"], score_name=found.loss_name, ax=figure,
            scores={
                name: [point[f"{key}_loss"] for point in found.points]
                for name, key in (("training", "train"), ("validation", "validation"))
            },
        )
    else:
        display = RegularizationPathDisplay.from_estimator(
            search, negate_score=True, score_name=found.loss_name, ax=figure
        )
    figure.set_size_inches(8, 2 + 2.5 * len(display.panels_))
    figure.savefig(file, format=kind)
