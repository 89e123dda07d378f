"""Predict with a saved model.

The model is the result of 'fastm4n fit', or of fastm4n.save_model. The data are read as for the
fit: from csv the columns of the same names, among any others, and from conll the same columns, with
or without the truth. Predictions are lines of text, or arrays if --output ends with .npz:

  classes, ordered   the label, in double quotes if it contains a quote, tab or line end
  sequences          the label of each token, an empty line after each sequence. For conll and
                     conllu the label comes after the columns of the token
  graphs             the label of each node, an empty line after each graph
  multilabel         the labels, joined by commas, or an empty line without labels
  rankings           the items, best first, such as b>a>c
  matchings          for each row its column, counted from 0, or -1, separated by spaces

examples:
  fastm4n predict iris.fm4n new.csv
      a label for each line of the table, on stdout
  fastm4n predict chunks.fm4n test.txt.gz --output chunked.txt
      the tokens and their labels, in the form of the shared task
  fastm4n predict crf.fm4n new.csv --probabilities --output new.tsv
      label and probabilities of the classes, for models with surrogate log
  fastm4n predict chunks.fm4n test.txt.gz --constraint bio
      labels that mark spans by the rules of a scheme
"""

from fastm4n.cli import _data, _labels, _models, _scores, _summary
from fastm4n.cli._arguments import add_constraint, add_data, add_model_file, add_output
from fastm4n.cli._output import CommandError, Report, check_output, check_overwriting, writing


def add(parser):
    add_model_file(parser)
    add_data(parser, fitted=True)
    how = parser.add_argument_group("prediction")
    how.add_argument(
        "--decode", choices=("map", "min_risk", "f1"),
        help="highest score, least expected cost, or for labels the largest expected F-measure. By "
        "default as the model was fitted")
    add_constraint(how)
    how.add_argument(
        "--probabilities", action="store_true",
        help="add the probabilities of all labels, separated by tabs, below a line with their "
        "names. For classes, levels, labels, sequences and graphs with surrogate log")
    output = add_output(parser, progress=False)
    output.add_argument(
        "--output", metavar="FILE", help="file of the predictions, by default stdout")


def read(args, *, truth):
    """The model, its estimator, and the data for it."""
    from fastm4n.base.array_files import ModelFileError
    from fastm4n.models._files import read_model

    try:
        model, metadata = read_model(args.model)
    except ModelFileError as error:
        file = _data.file_of(args)
        if file is None or _models.is_file_of_ours(args.model) or not (
            _models.is_file_of_ours(file)
        ):
            raise
        raise CommandError(
            f"{file} is a model, and {args.model} is not: MODEL comes first", 2) from error
    _, estimator = _models.split(model)
    reading = metadata.get("reading")
    if not isinstance(reading, dict):
        reading = {}
        if hasattr(estimator, "feature_names_in_"):
            reading["columns"] = estimator.feature_names_in_.tolist()
        if _models.vectorizer(model) is not None:
            reading["attributes"] = "crfsuite"
    n_features = getattr(model[0] if model is not estimator else estimator, "n_features_in_", None)
    try:
        data = _data.read(
            args, task=estimator._task, reading=reading, n_features=n_features, truth=truth)
        if isinstance(reading.get("spelling"), dict):
            data.reading["spelling"] = reading["spelling"]
        if truth and data.y is None:
            raise CommandError(f"{args.model}: the model does not say which column is the truth")
        if truth and hasattr(estimator, "classes_") and data.task != "multilabel":
            _labels.of_model(data, estimator.classes_)
    except KeyError as error:
        raise CommandError(f"{args.model}: its description of the data lacks {error}") from error
    except (AttributeError, IndexError, OverflowError) as error:
        raise CommandError(
            f"{args.model}: its description of the data makes no sense ({error})") from error
    return model, estimator, data


def limits(args, estimator):
    """What predictions are held to, as arguments of `predict`."""
    if args.constraint is None:
        return {}
    if estimator._task != "sequences":
        raise CommandError(
            f"--constraint is for labels of sequences, and this is a model of {estimator._task}", 2)
    return {"allowed_transitions": args.constraint}


def check_probabilities(estimator):
    """Refuse models without probabilities of labels."""
    from fastm4n.surrogates import surrogate_name

    if surrogate_name(estimator.surrogate) != "log" or not hasattr(estimator, "classes_"):
        raise CommandError(
            "--probabilities needs a model of classes, ordered levels, labels, sequences or graphs "
            f"with --surrogate log, got {estimator._task} with {estimator.surrogate}", 2)


def names_of(data, estimator):
    """The labels of the columns of probabilities, or None."""
    if data.task == "multilabel" and data.reading.get("labels"):
        return data.reading["labels"]  # of the file of the fit
    if hasattr(estimator, "classes_"):
        return _labels.as_read(data.reading, estimator.classes_).tolist()
    return None


def run(args):
    check_overwriting(
        [("MODEL", args.model), ("DATA", _data.file_of(args))], [("--output", args.output)])
    check_output("--output", args.output)
    report = Report(args, writes=args.output is not None)
    probabilities = None
    with report.notes():
        model, estimator, data = read(args, truth=False)
        if args.probabilities:
            check_probabilities(estimator)
        given = limits(args, estimator)
        if data.reading.get("attributes") == "crfsuite":
            remark = _labels.none_known(
                data, _labels.as_read(data.reading, estimator.classes_))
            if remark is not None:
                report.note(remark)
        try:
            X = _models.features(model, data.X)
            predicted = _labels.as_read(
                data.reading, estimator.predict(X, decode=args.decode, **given))
            if args.probabilities:
                probabilities = _scores.probabilities_of(estimator, X, given)
        except ValueError as error:
            raise CommandError(f"{data.name}: {error}") from error
    names = names_of(data, estimator)
    sets = predicted
    if data.task == "multilabel":
        rows = predicted.toarray() if hasattr(predicted, "tocsr") else predicted
        sets = [[names[j] for j in row.nonzero()[0].tolist()] for row in rows]
    if args.output is not None:
        with writing("--output", args.output) as file:
            if args.output.lower().endswith(".npz"):
                _write_arrays(file, predicted, probabilities)
            else:
                for line in _lines(data, sets, names, probabilities):
                    file.write(line.encode("utf-8") + b"\n")
        report.tell(_summary.counts(data))
        report.tell(f"predictions: {args.output}")
    elif not args.json:
        try:
            for line in _lines(data, sets, names, probabilities):
                print(line)
        except UnicodeEncodeError as error:
            raise CommandError(
                f"stdout is {error.encoding}, which has no "
                f"{error.object[error.start:error.end]!r}: pass --output FILE, written in UTF-8, "
                "or set PYTHONUTF8=1") from error
    report.finish({
        "task": data.task, "n_examples": data.n_examples,
        "predictions": [row.tolist() if hasattr(row, "tolist") else row for row in sets],
        **({} if probabilities is None else {
            "classes": names, "probabilities": [row.tolist() for row in probabilities]}),
        "output": args.output,
    })
    return 0


def _lines(data, predicted, names, probabilities):
    """The predictions as lines of text. Predictions of multilabel are lists of names."""
    import numpy as np

    if probabilities is not None:
        yield "\t".join(["label", *map(_quoted, names)])
    if data.task in ("sequences", "graphs"):
        for i, labels in enumerate(predicted):
            rows = [[str(label)] for label in labels.tolist()]
            if data.tokens is not None:
                rows = [
                    [*((token,) if isinstance(token, str) else token), *row]
                    for token, row in zip(data.tokens[i], rows, strict=True)]
            yield from _joined(rows, None if probabilities is None else probabilities[i])
            yield ""
    elif data.task == "multilabel":
        rows = [[",".join(_quoted(label, ",") for label in row)] for row in predicted]
        yield from _joined(rows, probabilities)
    elif data.task == "matchings" or np.ndim(predicted) == 2:
        for row in predicted:
            yield " ".join(map(str, row.tolist()))
    else:
        yield from _joined([[_quoted(label)] for label in predicted.tolist()], probabilities)


def _quoted(label, separator="\t"):
    """A label as a field of separated values, in quotes if it would not be read back."""
    text = str(label)
    if not any(char in text for char in ('"', "\t", "\n", "\r", separator)):
        return text
    return '"' + text.replace('"', '""') + '"'


def _joined(rows, probabilities):
    """Rows of words as lines, followed by numbers."""
    for t, row in enumerate(rows):
        numbers = () if probabilities is None else map(repr, probabilities[t].tolist())
        yield "\t".join([*row, *numbers])


def _write_arrays(file, predicted, probabilities):
    import numpy as np

    from fastm4n.data._sequences import Sequences

    if isinstance(predicted, Sequences):
        arrays = {"y": predicted.values, "offsets": predicted.offsets}
    elif isinstance(predicted, list):
        arrays = {
            "y": np.concatenate(predicted), "lengths": np.array([len(row) for row in predicted])}
    else:
        arrays = {"y": predicted.toarray() if hasattr(predicted, "tocsr") else predicted}
    if arrays["y"].dtype == object:
        arrays["y"] = arrays["y"].astype(str)
    if probabilities is not None:
        arrays["probabilities"] = getattr(probabilities, "values", probabilities)
    np.savez(file, **arrays)
