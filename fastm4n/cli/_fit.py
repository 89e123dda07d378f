"""Train a model and save it.

The model is fitted to all examples of DATA, and saved with a description of how to read data like
it. The output decides the estimator. It is a class, an ordered level, a set of labels, a label
for each position of a sequence or node of a graph, a ranking of items, or a matching of two sets.

The fit ends when its duality gap is certified to be at most --tol times the objective at zero
weights. The gap bounds the training objective minus its minimum.

examples:
  fastm4n fit iris --model iris.fm4n
      M4N (max-min surrogate, 0-1 loss) on an embedded data set
  fastm4n fit abalone.csv --target rings --task ordered --alpha 1e-4 --model rings.fm4n
      ordinal regression: absolute error, the levels of column rings in their order
  fastm4n fit train.txt.gz --surrogate log --model chunks.fm4n --set states=observed
      a linear-chain CRF from CoNLL columns, with weights for observed pairs only
  fastm4n fit words.npz --where split=0 --alpha 0.01 --model words.fm4n --json > fit.json
      sequences from arrays X, y and offsets, only those of split 0; results for programs
  fastm4n fit images.npz --surrogate max_margin --set pairwise=attractive --model segments.fm4n
      graphs, as Graphs.save writes them: superpixels, each best labelling a minimum cut
  fastm4n fit rankings.csv --kernel rbf --gamma 0.1 --model ranker.fm4n
      rankings such as b>a>c in the last column
  fastm4n fit train.txt.gz --surrogate log --penalty elasticnet --l1-ratio 0.9 --model small.fm4n
      most weights are exactly zero
"""

import time
from contextlib import nullcontext

from fastm4n.cli import _arguments, _data, _labels, _models, _plots, _summary
from fastm4n.cli._output import (
    CommandError,
    Report,
    check_output,
    check_overwriting,
    naming,
    shown_progress,
    write_files,
)


def add(parser):
    _arguments.add_data(parser, fitted=False)
    _arguments.add_estimator(parser)
    solver = parser.add_argument_group("solver")
    solver.add_argument(
        "--tol", type=_arguments.relative_gap, metavar="GAP",
        help="relative gap at which a fit ends: the certified duality gap as a share of the "
        "objective at zero weights. Default 1e-3, for the margins of rankings, "
        "matchings, sequences and graphs 1e-2")
    _arguments.add_max_iter(solver)
    _arguments.add_seed(solver)
    solver.add_argument(
        "--alpha", type=_arguments.positive, metavar="ALPHA",
        help="regularisation: alpha / 2 times the squared norm of the weights is added to the mean "
        "surrogate loss. Find a good alpha by 'fastm4n path'. By default a rule of the estimator, "
        "which the output tells")
    solver.add_argument(
        "--checkpoint", metavar="FILE",
        help="file for the state of the fit, written every few seconds and removed after the fit. "
        "After an interrupt the same command resumes from there, with the same result")
    output = _arguments.add_output(parser)
    output.add_argument("--model", metavar="FILE", help="write the model to this file")
    _arguments.add_plot(output)
    output.add_argument(
        "--plot-transitions", metavar="FILE",
        help="heat map of the weights of transitions between labels, for sequences")


def run(args):
    plots = [("--plot", args.plot), ("--plot-transitions", args.plot_transitions)]
    files = [("--model", args.model), ("--checkpoint", args.checkpoint)]
    check_overwriting([("DATA", _data.file_of(args))], [*files, *plots])
    for option, path in files:
        check_output(option, path)
    for option, path in plots:
        _plots.check(option, path)
    report = Report(args, writes=any(path is not None for _, path in [*files, *plots]))
    data = _data.read(args)
    _labels.ignore(data, dict(args.settings).get("ignore_label"))
    if args.plot_transitions is not None and data.task != "sequences":
        raise CommandError(f"--plot-transitions is for sequences, and {data.name} holds "
                           f"{data.task}", 2)
    # before the slow import of scikit-learn; attributes are not yet counted
    if not data.needs_vectorizer:
        _summary.tell(report, data)
    from fastm4n.solvers.monitor import checkpointing

    with report.notes():
        given = {name: value for name, value in (("alpha", args.alpha), ("tol", args.tol))
                 if value is not None}
        model = _models.build(args, data, verbose=shown_progress(args), **given)
        before, estimator = _models.split(model)
        try:
            X = data.X if before is None else _models.transformed(before, data)
            if data.needs_vectorizer:
                _summary.tell(report, data, features=None if X is data.X else _summary.width(X))
            report.tell(_models.described(estimator))
            start = time.perf_counter()
            with checkpointing(args.checkpoint) if args.checkpoint else nullcontext():
                estimator.fit(X, data.y)
        except ValueError as error:
            raise CommandError(f"{data.name}: {error}") from error
        seconds = time.perf_counter() - start
    estimator.set_params(verbose=0)
    # the files are on disk before any result is printed
    written, failure = write_files([
        ("model", args.model, lambda: save(model, data, args.model)),
        ("plot", args.plot, lambda: _plots.write(*plots[0], _plots.gap, estimator, data.name)),
        ("plot_transitions", args.plot_transitions, lambda: _plots.write(
            *plots[1], _plots.transitions, estimator, data.name)),
    ])
    weights = _models.n_weights(estimator)
    _tell(report, estimator, seconds, weights, X is data.X and data.needs_vectorizer)
    if args.model is None:
        report.note("the model was not kept; pass --model FILE to save it")
    for what, path in written.items():
        report.tell(f"{what.partition('_')[0]}: {path}")
    report.finish({
        "task": data.task, "n_examples": data.n_examples, "n_tokens": _summary.n_tokens(data),
        "target": data.target, **_models.outcome(estimator),
        "parameters": _models.parameters_of(estimator), "seconds": seconds,
        "n_nonzero": None if weights is None else weights[0],
        "converged": bool(estimator.relative_gap_ <= estimator.tol_),
        **{what: written.get(what) for what in ("model", "plot", "plot_transitions")},
    }, failure)
    return 0


def _tell(report, estimator, seconds, weights, counts_attributes):
    """Report the results of the fit."""
    if isinstance(estimator.alpha, str):
        report.tell(f"alpha {estimator.alpha}: {estimator.alpha_:g}")
    report.tell(
        f"{estimator.n_iter_} passes, {seconds:.2f} s, objective "
        f"{estimator.primal_objective_:.6g}, certified relative gap "
        f"{estimator.relative_gap_:.2e} (absolute {estimator.duality_gap_:.2e})")
    if counts_attributes:
        report.tell(f"{estimator.n_features_in_} features of attributes")
    if getattr(estimator, "certified_for_", None) == "completions":
        objective = estimator.history_["objective"]
        report.tell(
            f"{len(objective)} rounds filled in what y leaves open, objective "
            f"{objective.min():.6g}: the gap is that of the best round")
    found = _models.inference(estimator)
    if found:
        report.tell(
            f"oracle {found['oracle']}: the gap is that of "
            + ("the exact objective" if found["exact"] else "a linear program above the objective"))
    if weights is not None and weights[0] < weights[1]:
        report.tell(f"{weights[0]} of {weights[1]} weights of features are not zero")


def save(model, data, path):
    from fastm4n.models import save_model

    with naming("--model", path):
        save_model(model, path, metadata={"task": data.task, "reading": data.reading})
