"""Compare predictions with the truth.

The scores are accuracies, losses, F1 or rank correlations, depending on the task. The data are
read as for the fit.

examples:
  fastm4n evaluate iris.fm4n iris
      on the examples of the fit
  fastm4n evaluate chunks.fm4n test.txt.gz
      accuracy of tokens and sentences, and F1 of spans
  fastm4n evaluate words.fm4n words.npz --where split=1 --json
      results for programs
"""

from fastm4n.cli import _labels, _models, _predict, _scores, _summary
from fastm4n.cli._arguments import add_data, add_model_file, add_output
from fastm4n.cli._output import CommandError, Report


def add(parser):
    add_model_file(parser)
    add_data(parser, fitted=True)
    add_output(parser, progress=False)


def run(args):
    report = Report(args)
    with report.notes():
        model, estimator, data = _predict.read(args, truth=True)
        if hasattr(estimator, "classes_") and data.task != "multilabel":
            remark = _labels.unknown(data, estimator.classes_)
            if remark is not None:
                report.note(remark)
        try:
            scores = _scores.scores(estimator, _models.features(model, data.X), data.y)
        except (TypeError, ValueError) as error:
            raise CommandError(f"{data.name}: {error}") from error
    report.tell(_summary.counts(data, estimator.n_features_in_, _summary.facts(data)))
    report.tell(_models.described(estimator))
    report.tell()
    report.table(["score", "value", "what it is"], [
        [name, "-" if value is None else f"{value:.4f}", _scores.MEANINGS[name]]
        for name, value in scores.items()])
    report.finish({
        "model": args.model, "data": data.name, "task": data.task, "n_examples": data.n_examples,
        "n_tokens": _summary.n_tokens(data), "scores": scores,
    })
    return 0
