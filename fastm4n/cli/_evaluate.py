"""Compare predictions with the truth.

The scores are accuracies, losses, F1 or rank correlations, depending on the task. The data are
read as for the fit.

examples:
  fastm4n evaluate iris.fm4n iris
      on the examples of the fit
  fastm4n evaluate chunks.fm4n test.txt.gz
      accuracy of tokens and sentences, and F1 of spans, of all and of each type
  fastm4n evaluate chunks.fm4n test.txt.gz --constraint bio --confusion
      the same for labels that keep to the rules of a scheme, and which label is taken for which
  fastm4n evaluate crf.fm4n test.txt.gz --probabilities
      how likely the true labels are, and how often probable labels are right
  fastm4n evaluate words.fm4n words.npz --where split=1 --json
      results for programs
"""

from fastm4n.cli import _labels, _models, _predict, _scores, _summary
from fastm4n.cli._arguments import add_constraint, add_data, add_model_file, add_output
from fastm4n.cli._output import CommandError, Report, listed


def add(parser):
    add_model_file(parser)
    add_data(parser, fitted=True)
    group = parser.add_argument_group("evaluation")
    add_constraint(group)
    group.add_argument(
        "--confusion", action="store_true",
        help="for each label how often it is true, predicted and right, and what it is taken for. "
        "With --json the whole matrix, rows for the truth")
    group.add_argument(
        "--probabilities", action="store_true",
        help="log loss, and for each label and type of span how often it is right, beside its mean "
        "probability. For classes, levels, labels, sequences and graphs with surrogate log")
    add_output(parser, progress=False)


def run(args):
    report = Report(args)
    with report.notes():
        model, estimator, data = _predict.read(args, truth=True)
        given = _predict.limits(args, estimator)
        if args.confusion and data.task not in ("classes", "ordered", "sequences", "graphs"):
            raise CommandError(f"--confusion is of labels, and this is a model of {data.task}", 2)
        _labels.ignore(data, getattr(estimator, "ignore_label", None))
        if args.probabilities:
            _predict.check_probabilities(estimator)
        reliability, of_spans = [], {}
        if hasattr(estimator, "classes_") and data.task != "multilabel":
            remark = _labels.unknown(data, estimator.classes_)
            if remark is not None:
                report.note(
                    data.task != "graphs" and _labels.none_known(data, estimator.classes_)
                    or remark)
        try:
            X, y = _models.features(model, data.X), data.y
            predicted = estimator.predict(X, **given)
            if data.task == "sequences":
                y, predicted = ([list(labels) for labels in part] for part in (y, predicted))
            scores = _scores.scores(estimator, X, y, predicted)
            spans = _scores.spans(y, predicted) if data.task == "sequences" else None
            if spans is not None:
                scores["span_f1"] = spans.total.f1
            if args.probabilities:
                more, reliability = _scores.reliability(
                    estimator, X, y, given, _predict.names_of(data, estimator))
                scores.update(more)
                if spans is not None:
                    of_spans = _scores.span_reliability(estimator, X, y, given)
            labels, matrix = _scores.confusion(data.task, y, predicted) if args.confusion else (
                [], [])
        except (TypeError, ValueError) as error:
            raise CommandError(f"{data.name}: {error}") from error
    report.tell(_summary.counts(data, estimator.n_features_in_, _summary.facts(data)))
    report.tell(_models.described(estimator))
    report.tell()
    report.table(["score", "value", "what it is"], [
        [name, *_written([value]), _scores.MEANINGS[name]] for name, value in scores.items()])
    if spans is not None:
        report.tell()
        more, none = (["probability", "calibration error"], (None, None)) if of_spans else ([], ())
        report.table(["spans", "precision", "recall", "f1", "true", "predicted", *more], [
            [row.label, *(f"{value:.4f}" for value in row[1:4]), str(row.n_true),
             str(row.n_predicted), *_written(of_spans.get(row.label, none))]
            for row in spans.types])
    if reliability:
        report.tell()
        report.table(
            ["label", "true", "p where true", "likeliest", "p where likeliest", "right",
             "calibration error"],
            [[str(row.label), *_written(row[1:])] for row in reliability])
    if args.confusion:
        report.tell()
        report.table(["label", "true", "predicted", "right", "taken for"], [
            [str(label), *map(str, (sum(row), sum(column), row[i])), _taken_for(labels, row, i)]
            for i, (label, row, column) in enumerate(
                zip(labels, matrix, zip(*matrix, strict=True), strict=True))])
    report.finish({
        "model": args.model, "data": data.name, "task": data.task, "n_examples": data.n_examples,
        "n_tokens": _summary.n_tokens(data), "scores": scores,
        **({} if spans is None else {"spans": [
            {**row._asdict(), **dict(zip(
                ("probability", "calibration_error"), of_spans.get(row.label, ()), strict=False))}
            for row in spans.types]}),
        **({"reliability": [row._asdict() for row in reliability]} if reliability else {}),
        **({"confusion": {"labels": labels, "matrix": matrix}} if args.confusion else {}),
    })
    return 0


def _written(values):
    """Counts and shares, those that there are."""
    return [
        "-" if value is None else str(value) if type(value) is int else f"{value:.4f}"
        for value in values]


def _taken_for(labels, row, i):
    """The other labels that have been predicted for a label, the most frequent first."""
    others = sorted((-n, str(label)) for j, (label, n) in enumerate(
        zip(labels, row, strict=True)) if n and j != i)
    return listed(f"{label} ({-n})" for n, label in others)
