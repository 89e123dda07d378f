"""Report the complexity, margins, bounds and consistency of a saved model.

The report estimates the complexity of the model's hypotheses and its margins. It bounds the loss,
marks vacuous bounds, and says whether the surrogate is consistent for the cost. Pass the data of
the fit. Useful bounds need held-out data as well.

examples:
  fastm4n complexity chunks.fm4n train.txt.gz --test test.txt.gz
      complexities by family of features, and held-out bounds
  fastm4n complexity words.fm4n words.npz --where split=0 --test-where split=1
      parts of one file
  fastm4n complexity iris.fm4n iris --plot margins.png --json
      a picture of the margins; all numbers for programs
"""

import argparse

from fastm4n.cli import _data, _models, _plots, _predict, _summary
from fastm4n.cli._arguments import (
    add_data,
    add_model_file,
    add_output,
    add_plot,
    add_seed,
    fraction,
    positive,
    where,
    whole,
)
from fastm4n.cli._output import CommandError, Report, check_overwriting, write_files

# more distinct beginnings of names than this are not families
MOST_FAMILIES = 60


def add(parser):
    add_model_file(parser)
    group = add_data(parser, fitted=True)
    group.add_argument("--test", metavar="FILE", help="held-out data")
    group.add_argument(
        "--test-where", type=where, metavar="ARRAY=N",
        help="of npz only the held-out examples for which this array is N, of DATA without --test")
    group = parser.add_argument_group("theory")
    group.add_argument(
        "--loss", choices=("mean", "sum", "zero_one"), default="mean",
        help="mean or sum of the costs of a sequence's positions, or 1 unless it is right as a "
        "whole, default %(default)s")
    group.add_argument(
        "--rho", type=positive, nargs="+", metavar="R",
        help="margins in units of scores, chosen independently of the data. Default 0.1 ... 100")
    group.add_argument(
        "--delta", type=fraction, default=0.05, metavar="D",
        help="probability that bounds fail, default %(default)s")
    group.add_argument(
        "--draws", type=whole, default=20, metavar="N",
        help="Monte Carlo draws of random signs, default %(default)s")
    add_seed(group, "seed of the signs")
    add_plot(add_output(parser, progress=False))


def run(args):
    from fastm4n.research.theory import complexity_report
    from fastm4n.research.theory.report import RHO

    report = Report(args, writes=args.plot is not None)
    read = [("MODEL", args.model), ("DATA", _data.file_of(args)), ("--test", args.test)]
    check_overwriting(read, [("--plot", args.plot)])
    _plots.check("--plot", args.plot)
    with report.notes():
        model, estimator, data = _predict.read(args, truth=True)
        held = None
        if args.test is not None or args.test_where is not None:
            given = {**vars(args), "where": args.test_where}
            if args.test is not None:
                given["data"] = args.test
            held = _predict.read(argparse.Namespace(**given), truth=True)[2]
        try:
            found = complexity_report(
                estimator, _models.features(model, data.X), data.y,
                X_test=None if held is None else _models.features(model, held.X),
                y_test=None if held is None else held.y, loss=args.loss, rho=args.rho or RHO,
                delta=args.delta, n_draws=args.draws, random_state=args.seed, **_named(model))
        except (TypeError, ValueError, NotImplementedError) as error:
            raise CommandError(f"{args.model}: {error}") from error
    written, failure = write_files([("plot", args.plot, lambda: _plots.write(
        "--plot", args.plot, _plots.margins, found, data.name))])
    report.tell(_summary.counts(data, estimator.n_features_in_, _summary.facts(data)))
    report.tell()
    for line in str(found).splitlines():
        report.result(line)
    for path in written.values():
        report.tell(f"plot: {path}")
    report.finish({
        "model": args.model, "data": data.name, "test": None if held is None else held.name,
        "task": data.task, **found.to_dict()}, failure)
    return 0


def _named(model):
    """Names of the features, if any, and their families: the part of a name before = or :."""
    _, estimator = _models.split(model)
    vectorizer = _models.vectorizer(model)
    if vectorizer is not None:
        names = vectorizer.get_feature_names_out().tolist()
    elif hasattr(estimator, "feature_names_in_"):
        return {"feature_names": [str(name) for name in estimator.feature_names_in_]}
    else:
        return {}
    families = [name.replace(":", "=").split("=")[0] for name in names]
    if len(set(families)) > MOST_FAMILIES:
        return {"feature_names": names}
    return {"feature_names": names, "families": families}
