"""Choose the regularisation: fits for every alpha, compared on held-out data.

The path consists of a few breakpoints, each fit starting from the one before. Between them the
weights of a breakpoint are certified for every alpha: their objective is at most --eps times the
objective at zero weights above its minimum. The examples are split into training and validation, or
cross-validated with --cv. One line is printed for each breakpoint:

  alpha       regularisation: alpha / 2 times the squared norm of the weights is added to
              the mean surrogate loss
  passes      passes over the training examples, from the start of the path
  seconds     time, from the start of the path
  relative gap
              certified bound of the objective minus its minimum, as a share of the objective
              at zero weights; at most --eps
  weights     nonzero weights of features, with --penalty elasticnet
  train loss, valid. loss
              mean cost of the predictions under --cost: of classes under zero_one the error rate;
              of sequences, graphs, rankings and matchings the share of wrong tokens, nodes, items
              or rows

The last line is the alpha with the least validation loss, the largest of equally good ones.

examples:
  fastm4n path
      M4N (max-min surrogate, 0-1 loss) on handwritten digits; plot in fastm4n_path.png
  fastm4n path diabetes --plot diabetes.pdf
      ordinal regression: the target in 5 levels, absolute error
  fastm4n path wine --surrogate log --kernel rbf --gamma 0.05 --model wine.fm4n
      kernel logistic regression; the model at the best alpha is saved
  fastm4n path table.csv --target kind --cv 5 --one-standard-error --model kind.fm4n
      five folds; the largest alpha that is as good as the best up to one standard error
  fastm4n path words.npz --where split=0 --checkpoint words --path words.path
      finished breakpoints are saved in the folder words, and the same command resumes there
  fastm4n path iris --method grid --alphas 5 --alpha-max 1 --alpha-min 1e-3 --json > path.json
      your own grid; results on stdout for other programs, the table on stderr
"""

import math
import warnings

from fastm4n.base._version import __version__
from fastm4n.cli import _arguments, _data, _fit, _labels, _models, _plots, _scores, _summary
from fastm4n.cli._output import (
    CommandError,
    Report,
    check_output,
    check_overwriting,
    counted,
    naming,
    shown_progress,
    write_files,
)

DEFAULT_DATA = "digits"
DEFAULT_PLOT = "fastm4n_path.png"
# the grid of Osokin et al. (2016)
GRID_MAX, GRID_MIN, GRID_SIZE = 2.0**15, 2.0**-15, 31


def add(parser):
    _arguments.add_data(parser, fitted=False, nargs="?", default=DEFAULT_DATA)
    split = parser.add_argument_group("validation")
    split.add_argument(
        "--validation", type=_arguments.fraction, metavar="SHARE",
        help="share of the examples to validate on, default 0.25")
    split.add_argument(
        "--cv", type=_arguments.count, metavar="K",
        help="cross-validate in K folds instead, each with its own path. Features are scaled, or "
        "attributes collected, in each fold")
    split.add_argument(
        "--one-standard-error", action="store_true",
        help="with --cv take the largest alpha whose mean loss is within one standard error of the "
        "least")
    split.add_argument(
        "--jobs", type=_arguments.count, default=1, metavar="N",
        help="folds at a time, default %(default)s")
    _arguments.add_estimator(parser)
    path = parser.add_argument_group("path and solver")
    path.add_argument(
        "--eps", type=_arguments.relative_gap, default=0.05, metavar="GAP",
        help="maximum gap at any alpha, relative to the objective at zero weights, default "
        "%(default)g")
    path.add_argument(
        "--kappa", type=_arguments.fraction, metavar="SHARE",
        help="breakpoints are solved to this share of --eps. A smaller share makes fewer and more "
        "expensive breakpoints. Default 0.9, of heuristic paths 0.7")
    path.add_argument(
        "--method", choices=("certified", "heuristic", "grid"), default="certified",
        help="certified, the default. heuristic: by gaps that may be out of date, without a "
        "promise between breakpoints. grid: given alphas")
    path.add_argument(
        "--alphas", type=_arguments.count, metavar="N",
        help=f"number of alphas of a grid, evenly spaced in the logarithm, default {GRID_SIZE}")
    path.add_argument(
        "--alpha-max", type=_arguments.positive, metavar="ALPHA",
        help="the first alpha, by default large enough, for a grid 2^15")
    path.add_argument(
        "--alpha-min", type=_arguments.positive, metavar="ALPHA",
        help="end of the path, by default when little remains to learn, for a grid 2^-15")
    _arguments.add_max_iter(path, "maximum number of passes of one breakpoint")
    _arguments.add_seed(path, "seed of the split and of the solver")
    path.add_argument(
        "--checkpoint", metavar="FOLDER",
        help="folder for each breakpoint, and every few seconds for the state. After an interrupt "
        "the same command resumes from there, with the same result")
    output = _arguments.add_output(parser)
    _arguments.add_plot(output, default=DEFAULT_PLOT)
    output.add_argument("--no-plot", action="store_true", help="write no plot")
    output.add_argument(
        "--model", metavar="FILE", help="write the model at the best alpha to this file")
    output.add_argument("--path", metavar="FILE", help="write the whole path to this file")


def run(args):
    _check_arguments(args)
    plot = None if args.no_plot else args.plot or DEFAULT_PLOT
    source, folder = ("DATA", _data.file_of(args)), ("--checkpoint", args.checkpoint)
    check_overwriting([source], [folder])
    check_overwriting(
        [source, folder], [("--plot", plot), ("--model", args.model), ("--path", args.path)])
    # obstacles to writing files are better reported before the fits
    missing = plot is not None and args.plot is None and not _plots.available()
    if missing:
        plot = None
    _plots.check("--plot", plot)
    check_output("--model", args.model)
    check_output("--path", args.path)
    report = Report(args, writes=any((plot, args.model, args.path, args.checkpoint)))
    data = _data.read(args)
    _labels.ignore(data, dict(args.settings).get("ignore_label"))
    _summary.tell(report, data)
    with report.notes():
        found = (_cross_validated if args.cv else _held_out)(args, report, data)
    failure = None
    if found.complete or not found.interrupted:
        failure = _write(args, found, plot)
    _tell(args, report, found)
    for what, path in found.files.items():
        if path is not None:
            report.tell(f"{what.partition('_')[0]}: {path}")
    if missing and (found.complete or not found.interrupted):
        report.note(f"no plot: {_plots.NEED_PLOT}")
    report.finish(found.document(args), failure)
    if found.interrupted:
        raise KeyboardInterrupt
    return 0


def _check_arguments(args):
    if (
        args.alpha_max is not None and args.alpha_min is not None
        and args.alpha_max <= args.alpha_min and args.alphas != 1
    ):
        raise CommandError(
            f"--alpha-max {args.alpha_max:g} must be above --alpha-min {args.alpha_min:g}", 2)
    for wrong, message in (
        (args.alphas is not None and args.method != "grid",
         "--alphas is of --method grid; other methods find their own"),
        (args.cv is not None and args.validation is not None,
         "--cv and --validation are two ways to validate; choose one"),
        (args.cv is None and args.one_standard_error, "--one-standard-error needs --cv"),
        (args.cv == 1, "--cv needs at least two folds"),
        (args.no_plot and args.plot is not None, "--plot and --no-plot exclude one another"),
        (args.cv is not None and args.checkpoint is not None,
         "--checkpoint is of one path, not of --cv"),
    ):
        if wrong:
            raise CommandError(message, 2)


def _options(args):
    """Arguments of `regularization_path`."""
    import numpy as np

    options = {"eps": args.eps, "kappa": args.kappa, "method": args.method}
    if args.method != "grid":
        return {**options, "alpha_max": args.alpha_max, "alpha_min": args.alpha_min}
    ends = args.alpha_max or GRID_MAX, args.alpha_min or GRID_MIN
    if ends[0] <= ends[1] and args.alphas != 1:
        raise CommandError(f"the grid must go down, got {ends[0]:g} to {ends[1]:g}", 2)
    return {**options, "alphas": np.geomspace(*ends, args.alphas or GRID_SIZE)}


class _Found:
    """A path, and its losses at `alphas`."""

    def __init__(self, data, model, path, *, loss_name, n_train, interrupted=False):
        self.data, self.model, self.path = data, model, path
        self.loss_name, self.n_train, self.interrupted = loss_name, n_train, interrupted
        self.complete = path.complete and not interrupted
        self.points, self.best, self.search = [], None, None
        self.files = dict.fromkeys(("model", "path_file", "plot"))

    def document(self, args):
        _, estimator = _models.split(self.model)
        down_to = self.path.certified_down_to
        return {
            "version": __version__, "data": self.data.name, "task": self.data.task,
            "n_train": self.n_train,
            "n_validation": None if args.cv else self.data.n_examples - self.n_train,
            "n_features": self.path.estimator(self.path.alphas[0]).n_features_in_,
            "estimator": type(estimator).__name__,
            "parameters": _models.parameters_of(estimator, without=("alpha", "tol")),
            "eps": self.path.eps, "absolute_eps": self.path.absolute_eps,
            "method": self.path.method, "cv": args.cv, "complete": self.complete,
            "certified_down_to": down_to if math.isfinite(down_to) else None,
            "loss": self.loss_name, "path": self.points, "best": self.best, **self.files,
        }


def _split(args, data):
    """Rows to train on and rows to validate on."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    share, n = 0.25 if args.validation is None else args.validation, data.n_examples
    n_valid = math.ceil(share * n)
    if n_valid == n:
        raise CommandError(
            f"--validation {share:g} leaves nothing to train on: {data.name} has "
            f"{counted(n, 'example')}; "
            + (f"give at most {(n - 1) / n:.3g}" if n > 1 else "two or more are needed"), 2)
    labels = data.y if data.task in ("classes", "ordered") else None
    if labels is not None:
        counts = np.unique(labels, return_counts=True)[1]
        if min(counts.min() / 2, n_valid / len(counts), (n - n_valid) / len(counts)) < 1:
            labels = None  # too few examples of a label for both parts
    return train_test_split(
        np.arange(n), test_size=n_valid, stratify=labels, random_state=args.seed)


def _rows(values, rows):
    return [values[i] for i in rows] if isinstance(values, list) else values[rows]


def _held_out(args, report, data):
    """The path of one part of the data, and its losses on both."""
    from fastm4n.path import PathInterrupted, regularization_path

    train, valid = _split(args, data)
    model, before, estimator, loss_name = _planned(
        args, report, data, f"{len(train)} to train on, {len(valid)} to validate on")
    X, y = _rows(data.X, train), _rows(data.y, train)
    X_valid, y_valid = _rows(data.X, valid), _rows(data.y, valid)
    interrupted = False
    try:
        if before is not None:
            X = _models.transformed(before, data, X)
            X_valid = before.transform(X_valid)
        path = regularization_path(
            estimator, X, y, checkpoint=args.checkpoint, verbose=shown_progress(args),
            **_options(args))
    except PathInterrupted as error:
        if error.path is None:
            raise
        path, interrupted = error.path, True
    except ValueError as error:
        raise CommandError(f"{data.name}: {error}") from error
    found = _Found(
        data, model, path, loss_name=loss_name, n_train=len(train), interrupted=interrupted)
    first = path.estimator(path.alphas[0])
    X, X_valid = _models.features(first, X), _models.features(first, X_valid)
    for j, alpha in enumerate(path.alphas.tolist()):
        fitted = path.estimator(alpha)
        found.points.append({
            "alpha": alpha, "relative_gap": float(path.relative_gaps[j]),
            "gap": float(path.gaps[j]), "passes": int(path.passes[j]),
            "seconds": float(path.seconds[j]), "oracle_calls": int(path.oracle_calls[j]),
            "n_nonzero": int(path.n_nonzero[j]), "train_loss": _scores.loss(fitted, X, y),
            "validation_loss": _scores.loss(fitted, X_valid, y_valid),
        })
    # the first of equals has the largest alpha
    found.best = min(found.points, key=lambda point: point["validation_loss"])
    return found


def _cross_validated(args, report, data):
    """The path of all data, and the losses of the folds' paths on their held-out data."""
    from fastm4n.path import RegularizationPathCV

    if args.cv > data.n_examples:
        raise CommandError(
            f"--cv {args.cv}: {data.name} has {counted(data.n_examples, 'example')}, and each fold "
            "needs one", 2)
    model, before, estimator, loss_name = _planned(args, report, data, f"{args.cv} folds")
    try:
        _models.check_scale(before, data, data.X)
        with warnings.catch_warnings():
            # `_tell` says it
            warnings.filterwarnings("ignore", ".*is at the end of the paths", UserWarning)
            search = RegularizationPathCV(
                model, cv=_splitter(args, data), scoring=_scorer(),
                one_standard_error=args.one_standard_error, n_jobs=args.jobs,
                verbose=shown_progress(args), **_options(args)).fit(data.X, data.y)
    except ValueError as error:
        raise CommandError(f"{data.name}: {error}") from error
    found = _Found(
        data, search.best_estimator_, search.path_, loss_name=loss_name, n_train=data.n_examples)
    found.search = search
    errors = search.scores_.std(axis=1, ddof=1) / search.n_splits_**0.5
    found.points = [
        {
            "alpha": float(alpha), "relative_gap": float(search.path_.relative_gap(alpha)),
            "gap": float(search.path_.gap(alpha)),
            "validation_loss": 0.0 - float(mean), "standard_error": float(error),
        }
        for alpha, mean, error in zip(search.alphas_, search.mean_score_, errors, strict=True)]
    alpha = search.alpha_1se_ if args.one_standard_error else search.alpha_
    found.best = next(point for point in found.points if point["alpha"] == alpha)
    return found


def _scorer():
    """Minus the loss. Features of attributes are made once for all estimators of a path."""
    last = made = None

    def score(estimator, X, y):
        nonlocal last, made
        _, fitted = _models.split(estimator)
        if X is not last:
            last, made = X, _models.features(estimator, X)
        return -_scores.loss(fitted, made, y)

    return score


def _splitter(args, data):
    """Folds in random order, as data may be sorted, and stratified by label."""
    import numpy as np
    from sklearn.model_selection import KFold, StratifiedKFold

    stratified = data.task in ("classes", "ordered") and (
        np.unique(data.y, return_counts=True)[1].min() >= args.cv
    )
    kind = StratifiedKFold if stratified else KFold
    return kind(args.cv, shuffle=True, random_state=args.seed)


def _planned(args, report, data, what):
    """The model, its two parts and the name of its loss, after a report of the plan."""
    model = _models.build(args, data)
    before, estimator = _models.split(model)
    loss_name = _scores.loss_name(estimator)
    report.tell(what)
    report.tell(_models.described(estimator, alpha=False))
    report.tell(f"{args.method} path, eps {args.eps:g}; loss: {loss_name}")
    return model, before, estimator, loss_name


def _tell(args, report, found):
    best, is_cv = found.best, found.search is not None
    columns = {
        "alpha": ("alpha", ".4g"), "passes": ("passes", "d"), "seconds": ("seconds", ".3f"),
        "relative gap": ("relative_gap", ".2e"), "weights": ("n_nonzero", "d"),
        "train loss": ("train_loss", ".4f"), "valid. loss": ("validation_loss", ".4f"),
        "std. error": ("standard_error", ".4f"),
    }
    if not found.path.is_sparse:
        del columns["weights"]
    columns = {head: column for head, column in columns.items() if column[0] in best}
    report.tell()
    report.table(list(columns), [
        [format(point[key], form) for key, form in columns.values()] for point in found.points
        # breakpoints of the folds' paths lie close to those of the path
        if not is_cv or point["alpha"] in found.path.alphas or point is best])
    report.result()
    report.result(
        f"best: alpha {best['alpha']:.4g}, validation loss {best['validation_loss']:.4f}"
        + (", within one standard error of the least" if args.one_standard_error else "")
        + (", of the alphas so far" if found.interrupted else ""))
    is_last = found.search.is_at_end_ if is_cv else best is found.points[-1]
    # nothing can be gained at a loss of zero
    if is_last and len(found.points) > 1 and best["validation_loss"] != 0.0 and found.complete:
        report.note("the best alpha is the last; a smaller --alpha-min goes on from there")
    down_to = found.path.certified_down_to
    if found.complete and args.method == "certified" and math.isfinite(down_to):
        report.result(f"certified for every alpha down to {down_to:.3g}")


def _write(args, found, plot):
    """Write the files, and add their names to `found`. Returns the first error or None."""
    before, _ = _models.split(found.model)

    def save_model():
        if found.search is not None:
            return _fit.save(found.model, found.data, args.model)
        fitted = found.path.estimator(found.best["alpha"])
        if before is not None:
            found.model.steps[-1] = (found.model.steps[-1][0], fitted)
            fitted = found.model
        _fit.save(fitted, found.data, args.model)

    def save_path():
        with naming("--path", args.path):
            found.path.save(args.path)

    written, failure = write_files([
        ("model", args.model, save_model), ("path_file", args.path, save_path),
        ("plot", plot, lambda: _plots.write("--plot", plot, _plots.path, found))])
    found.files.update(written)
    return failure
