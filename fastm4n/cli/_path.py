"""``fastm4n path``."""

import json
import sys
import time
import warnings
from pathlib import Path

from fastm4n import __version__
from fastm4n.cli import _plots
from fastm4n.cli._arguments import (
    KERNELS,
    KERNELS_WITH_GAMMA,
    LOSSES,
    SURROGATES,
    HelpFormatter,
    count,
    fraction,
    gamma,
    positive,
    seed,
)
from fastm4n.cli._output import CommandError, writing

DATASETS = ("digits", "iris", "wine", "breast_cancer", "diabetes")

# levels that the target of a regression data set is binned into
N_LEVELS = 5

DEFAULT_OUTPUT = "fastm4n_path.png"

PATH_DESCRIPTION = """\
Fit a classifier for a decreasing grid of regularisations alpha, each fit starting from the
solution of the one before, on a data set that comes with scikit-learn.

The data are split, stratified, into a part to train on and a part to validate on; features are
standardised on the first. One line is printed for each alpha as soon as it is done:

  alpha       regularisation: alpha / 2 times the squared norm of the weights is added to
              the mean surrogate loss
  passes      passes over the training examples
  seconds     time of the fit
  gap         certified duality gap: the objective is at most this much above its minimum
  train loss, valid. loss
              mean cost of the predictions under --loss; for zero_one the error rate

and the alpha of least validation loss at the end (the largest one, if several are as good).
The losses and the gap are plotted against alpha into --output.
"""

PATH_EPILOG = """\
examples:
  fastm4n path
      M4N (max-min surrogate, 0-1 loss) on handwritten digits; plot in fastm4n_path.png
  fastm4n path --dataset diabetes --output diabetes.pdf
      ordinal regression: the target in 5 levels, absolute error
  fastm4n path --dataset wine --surrogate log --kernel rbf --gamma 0.05
      kernel logistic regression
  fastm4n path --dataset iris --alphas 5 --alpha-min 1e-3 --json > path.json
      for other programs: results on stdout, the table on stderr

exit codes: 0 done (also if a fit ended above --tol, which is noted), 1 failure, 2 bad arguments,
130 interrupted
"""


def add(commands):
    parser = commands.add_parser(
        "path",
        help="fit along a grid of regularisations and plot the losses",
        formatter_class=HelpFormatter,
        description=PATH_DESCRIPTION,
        epilog=PATH_EPILOG,
    )
    data = parser.add_argument_group("data")
    data.add_argument(
        "--dataset", choices=DATASETS, default="digits",
        help=f"data set, default %(default)s; diabetes is ordinal, its target cut at the "
        f"quantiles into {N_LEVELS} levels",
    )
    data.add_argument(
        "--validation", type=fraction, default=0.25, metavar="SHARE",
        help="share of the examples to validate on, default %(default)s",
    )
    data.add_argument(
        "--seed", type=seed, default=0, metavar="N",
        help="seed of the split and of the solver, default %(default)s",
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--surrogate", choices=SURROGATES, default="max_min",
        help="max_min (M4N), max_margin (structural SVM) or log (CRF), default %(default)s",
    )
    model.add_argument(
        "--loss", choices=LOSSES,
        help="what a mistake costs, default zero_one, or absolute for ordinal data",
    )
    model.add_argument(
        "--kernel", choices=KERNELS, default="linear", help="kernel, default %(default)s"
    )
    model.add_argument(
        "--gamma", type=gamma, metavar="NUMBER",
        help="coefficient of the rbf, laplacian and poly kernels: a number, 'scale' or 'auto', "
        "default scale",
    )
    path = parser.add_argument_group("path and solver")
    path.add_argument(
        "--alphas", type=count, default=15, metavar="N",
        help="how many alphas, evenly spaced in the logarithm, default %(default)s",
    )
    path.add_argument(
        "--alpha-max", type=positive, default=1.0, metavar="ALPHA",
        help="the first alpha, default %(default)g",
    )
    path.add_argument(
        "--alpha-min", type=positive, default=1e-4, metavar="ALPHA",
        help="the last alpha, default %(default)g",
    )
    path.add_argument(
        "--tol", type=positive, default=1e-3, metavar="GAP",
        help="certified gap at which a fit ends, default %(default)g",
    )
    path.add_argument(
        "--max-iter", type=count, default=1000, metavar="N",
        help="most passes of one fit, default %(default)s",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output", metavar="FILE",
        help=f"plot, in the format that the name ends with (png, pdf, svg, ...), default "
        f"{DEFAULT_OUTPUT}",
    )
    output.add_argument(
        "--json", action="store_true",
        help="print the results as one JSON document; the table goes to stderr",
    )
    output.add_argument(
        "--verbose", action="store_true", help="tell each certificate of each fit on stderr"
    )
    parser.set_defaults(run=run)


def run(args):
    if args.alphas > 1 and args.alpha_max <= args.alpha_min:
        raise CommandError(
            f"--alpha-max {args.alpha_max:g} must be above --alpha-min {args.alpha_min:g}", 2
        )
    if args.gamma is not None and args.kernel not in KERNELS_WITH_GAMMA:
        raise CommandError(
            f"--gamma has no meaning for --kernel {args.kernel}; "
            f"it is of {', '.join(KERNELS_WITH_GAMMA)}", 2
        )
    # what would keep the plot from being written is better said before the fits than after
    plots = _plots.available()
    if not plots and args.output is not None:
        raise CommandError(_plots.NEED_PLOT)
    output = Path(DEFAULT_OUTPUT if args.output is None else args.output)
    if plots:
        _plots.check("--output", output)

    report = _PathReport(args)
    try:
        for point in _fit_path(args, report):
            report.add(point)
    except KeyboardInterrupt:
        report.finish(complete=False, plot=None)
        raise
    if plots:
        with writing("--output", output) as file:
            _plot_path(report, file, _plots.kind(output))
    report.finish(complete=True, plot=output if plots else None)
    if not plots:
        print(f"fastm4n path: no plot: {_plots.NEED_PLOT}", file=sys.stderr)
    return 0


def _load(name, seed, validation):
    """X_train, X_valid, y_train, y_valid; y counts from 0, and whether it is ordinal."""
    import numpy as np
    from sklearn import datasets
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    ordinal = name == "diabetes"
    if ordinal:
        edges = np.quantile(y, np.arange(1, N_LEVELS) / N_LEVELS)
        y = np.searchsorted(edges, y, side="right")
    try:
        X_train, X_valid, y_train, y_valid = train_test_split(
            X, y, test_size=validation, stratify=y, random_state=seed
        )
    except ValueError as error:
        raise CommandError(f"--validation {validation:g}: {error}", 2) from error
    scaler = StandardScaler().fit(X_train)
    return scaler.transform(X_train), scaler.transform(X_valid), y_train, y_valid, ordinal


def _fit_path(args, report):
    """Fit one estimator for each alpha, and yield what is to be told of it."""
    import numpy as np
    from sklearn.exceptions import ConvergenceWarning

    from fastm4n import MulticlassClassifier, OrdinalClassifier

    X_train, X_valid, y_train, y_valid, ordinal = _load(args.dataset, args.seed, args.validation)
    loss = args.loss or ("absolute" if ordinal else "zero_one")
    estimator = (OrdinalClassifier if ordinal else MulticlassClassifier)(
        args.surrogate,
        loss=loss,
        kernel=args.kernel,
        gamma="scale" if args.gamma is None else args.gamma,
        tol=args.tol,
        max_iter=args.max_iter,
        warm_start=True,
        random_state=args.seed,
        callback=report.certificate if args.verbose else None,
    )
    report.start(estimator, X_train, X_valid, n_classes=int(y_train.max()) + 1)
    for alpha in np.geomspace(args.alpha_max, args.alpha_min, args.alphas):
        estimator.set_params(alpha=float(alpha))
        start = time.perf_counter()
        with warnings.catch_warnings():
            # the report marks these points
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(X_train, y_train)
        seconds = time.perf_counter() - start
        cost = estimator.cost_matrix_
        yield {
            "alpha": float(alpha),
            "passes": int(estimator.n_iter_),
            "seconds": seconds,
            "gap": float(estimator.duality_gap_),
            "primal": float(estimator.primal_objective_),
            "dual": float(estimator.dual_objective_),
            "converged": bool(estimator.duality_gap_ <= args.tol),
            "train_loss": float(cost[y_train, estimator.predict(X_train)].mean()),
            "validation_loss": float(cost[y_valid, estimator.predict(X_valid)].mean()),
        }


class _PathReport:
    """What was computed: told line by line as it comes, kept for the plot and for JSON."""

    def __init__(self, args):
        self.args = args
        self.table = sys.stderr if args.json else sys.stdout
        self.head, self.points = {}, []

    def tell(self, line=""):
        print(line, file=self.table, flush=True)

    def start(self, estimator, X_train, X_valid, n_classes):
        self.head = {
            "version": __version__,
            "dataset": self.args.dataset,
            "n_train": X_train.shape[0],
            "n_validation": X_valid.shape[0],
            "n_features": X_train.shape[1],
            "n_classes": n_classes,
            "estimator": type(estimator).__name__,
            "surrogate": estimator.surrogate,
            "loss": estimator.loss,
            "kernel": estimator.kernel,
            "gamma": estimator.gamma if self.args.kernel in KERNELS_WITH_GAMMA else None,
            "tol": estimator.tol,
            "max_iter": estimator.max_iter,
            "seed": self.args.seed,
        }
        self.tell(
            "{dataset}: {n_train} examples to train on, {n_validation} to validate on, "
            "{n_features} features, {n_classes} classes".format(**self.head)
        )
        self.tell(
            "{estimator}: surrogate {surrogate}, loss {loss}, kernel {kernel}, "
            "tol {tol:g}".format(**self.head)
        )
        self.tell()
        self.tell(f"{'alpha':>10} {'passes':>7} {'seconds':>8} {'gap':>9} "
                  f"{'train loss':>11} {'valid. loss':>11}")

    def certificate(self, row):
        print(
            f"  pass {row['pass']}: primal {row['primal']:.6g}, dual {row['dual']:.6g}, "
            f"gap {row['gap']:.3g}",
            file=sys.stderr,
            flush=True,
        )

    def add(self, point):
        self.points.append(point)
        self.tell(
            "{alpha:>10.4g} {passes:>7} {seconds:>8.3f} {gap:>9.2e} {train_loss:>11.4f} "
            "{validation_loss:>11.4f}".format(**point) + ("" if point["converged"] else " *")
        )

    def best(self):
        return min(self.points, key=lambda point: point["validation_loss"], default=None)

    def finish(self, complete, plot):
        best = self.best()
        missed = sum(not point["converged"] for point in self.points)
        if missed:
            self.tell(
                f"* note: {missed} of {len(self.points)} fits did not reach tol "
                f"{self.args.tol:g} in {self.args.max_iter} passes; raise --max-iter or --tol"
            )
        if best is not None:
            self.tell()
            rate = " (error rate)" if self.head["loss"] == "zero_one" else ""
            self.tell(
                f"best: alpha {best['alpha']:.4g}, validation loss "
                f"{best['validation_loss']:.4f}{rate}"
                + ("" if complete else ", of the alphas so far")
            )
        if plot is not None:
            self.tell(f"plot: {plot}")
        if self.args.json:
            document = {
                **self.head,
                "complete": complete,
                "path": self.points,
                "best": best,
                "plot": None if plot is None else str(plot),
            }
            print(json.dumps(document, indent=2, allow_nan=False), flush=True)


def _plot_path(report, file, kind):
    from matplotlib.figure import Figure

    head, points, best = report.head, report.points, report.best()
    alphas = [point["alpha"] for point in points]
    losses = {
        name: [point[f"{name}_loss"] for point in points] for name in ("train", "validation")
    }
    # a gap of exactly zero has no logarithm
    gaps = [max(point["gap"], 1e-16) for point in points]

    figure = Figure(figsize=(7, 6.5), dpi=150, layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    blue, orange, grey = "#0072b2", "#d55e00", "#555555"
    figure.suptitle(
        "{estimator} on {dataset}: regularisation path\n"
        "surrogate {surrogate}, loss {loss}, kernel {kernel}; {n_train} training and "
        "{n_validation} validation examples".format(**head),
        fontsize="medium",
    )

    top.plot(alphas, losses["validation"], "o-", color=blue, label="validation")
    top.plot(alphas, losses["train"], "s--", color=orange, markersize=4, label="training")
    top.axvline(best["alpha"], color=grey, linewidth=0.8, linestyle=":")
    top.plot(
        best["alpha"], best["validation_loss"], "*", color=blue, markersize=17,
        markeredgecolor="white", zorder=5, linestyle="none",
        label=f"best: {best['validation_loss']:.3g} at alpha = {best['alpha']:.3g}",
    )
    top.set_ylabel("error rate" if head["loss"] == "zero_one" else f"mean {head['loss']} loss")
    # loss from zero, markers whole at both ends; a path without a mistake has some room too
    top_loss = max(*losses["train"], *losses["validation"]) or 1.0
    top.set_ylim(-0.03 * top_loss, 1.06 * top_loss)
    top.legend(frameon=False)

    bottom.plot(alphas, gaps, "-", color=blue)
    for converged, fill, label in (
        (True, blue, "certified gap"), (False, "white", "certified gap, above tol")
    ):
        chosen = [i for i, point in enumerate(points) if point["converged"] == converged]
        if chosen:
            bottom.plot(
                [alphas[i] for i in chosen], [gaps[i] for i in chosen], "o", color=blue,
                markerfacecolor=fill, label=label,
            )
    bottom.axhline(head["tol"], color=orange, linestyle="--", label=f"tol = {head['tol']:g}")
    bottom.axvline(best["alpha"], color=grey, linewidth=0.8, linestyle=":")
    bottom.set(xscale="log", yscale="log", ylabel="duality gap")
    low, high = min(*gaps, head["tol"] / 10), max(*gaps, head["tol"])
    bottom.set_ylim(low / 1.5, high * 1.5)
    bottom.set_xlabel("regularisation alpha (weaker to the left)")
    bottom.legend(frameon=False)
    for axes in (top, bottom):
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, format=kind)

