"""``fastm4n predict``."""

from fastm4n.cli import _data, _labels, _models, _summary
from fastm4n.cli._arguments import EXIT_CODES, READING_HELP, add_command, add_data, add_output
from fastm4n.cli._output import CommandError, Report, check_output, check_overwriting, writing

DESCRIPTION = """\
Predict with a model of 'fastm4n fit', or one that fastm4n.save_model has saved.

The data are read as those of the fit were: of csv the columns of the same names, whatever others
there are; of conll the same columns, with or without that of the truth. Predictions are lines of
text, or arrays if --output ends with .npz:

  classes, ordered   the label, in double quotes where it has a quote, tab or line end in it
  sequences          the label of each token, an empty line after each sequence; of conll and conllu
                     behind the columns that were read
  graphs             the label of each node, an empty line after each graph
  multilabel         the labels, joined by commas; an empty line where there are none
  rankings           the items, best first, such as b>a>c
  matchings          the column, counted from 0, matched to each row, separated by spaces
"""

EPILOG = f"""\
{READING_HELP}
examples:
  fastm4n predict iris.fm4n new.csv
      a label for each line of the table, on stdout
  fastm4n predict chunks.fm4n test.txt.gz --output chunked.txt
      the tokens and their labels, in the form of the shared task
  fastm4n predict crf.fm4n new.csv --probabilities --output new.tsv
      label and probabilities of the classes, for models with surrogate log

{EXIT_CODES}"""


def add(commands):
    parser = add_command(
        commands, "predict", run, "predict with a saved model", DESCRIPTION, EPILOG)
    parser.add_argument("model", metavar="MODEL", help="file of the model")
    add_data(parser, fitted=True)
    how = parser.add_argument_group("prediction")
    how.add_argument(
        "--decode", choices=("map", "min_risk"),
        help="the highest score, or the least expected cost; default as the model says",
    )
    how.add_argument(
        "--probabilities", action="store_true",
        help="also the probabilities of all labels, separated by tabs, below a line that names "
        "them; for classes, levels, labels, sequences and graphs under surrogate log",
    )
    output = add_output(parser, progress=False)
    output.add_argument(
        "--output", metavar="FILE", help="where to write the predictions, by default stdout"
    )


def read(args, *, truth):
    """The model, its metadata, and the data to go with it."""
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
            f"{file} is a model, and {args.model} is not: MODEL comes first", 2
        ) from error
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
            args, task=estimator._task, reading=reading, n_features=n_features, truth=truth
        )
        if isinstance(reading.get("spelling"), dict):
            data.reading["spelling"] = reading["spelling"]
        if truth and data.y is None:
            raise CommandError(f"{args.model}: it does not say which column is the truth")
        if truth and hasattr(estimator, "classes_") and data.task != "multilabel":
            _labels.of_model(data, estimator.classes_)
    except KeyError as error:
        raise CommandError(f"{args.model}: it does not say {error} of its data") from error
    except (AttributeError, IndexError, OverflowError) as error:
        raise CommandError(
            f"{args.model}: what it says of its data makes no sense ({error})") from error
    return model, estimator, data


def run(args):
    check_overwriting(
        [("MODEL", args.model), ("DATA", _data.file_of(args))], [("--output", args.output)]
    )
    check_output("--output", args.output)
    report = Report(args, writes=args.output is not None)
    with report.notes():
        model, estimator, data = read(args, truth=False)
        if args.probabilities:
            _check_probabilities(estimator)
        try:
            X = _models.features(model, data.X)
            predicted = _labels.as_read(data.reading, estimator.predict(X, decode=args.decode))
            probabilities = None
            if args.probabilities:
                probabilities = _probabilities(estimator, X)
        except ValueError as error:
            raise CommandError(f"{data.name}: {error}") from error
    if args.output is not None:
        with writing("--output", args.output) as file:
            if args.output.lower().endswith(".npz"):
                _write_arrays(file, predicted, probabilities)
            else:
                for line in _lines(data, estimator, predicted, probabilities):
                    file.write(line.encode("utf-8") + b"\n")
        report.tell(_summary.counted(data))
        report.tell(f"predictions: {args.output}")
    elif not args.json:
        try:
            for line in _lines(data, estimator, predicted, probabilities):
                print(line)
        except UnicodeEncodeError as error:
            raise CommandError(
                f"stdout is written in {error.encoding}, which has no "
                f"{error.object[error.start:error.end]!r}; pass --output FILE, which is written in "
                "UTF-8, or set PYTHONUTF8=1") from error
    names = _label_names(data, estimator)
    report.finish({
        "task": data.task,
        "n_examples": data.n_examples,
        "predictions": [_plain(row) for row in _sets(predicted, names, data.task)],
        **({} if probabilities is None else {
            "classes": names,
            "probabilities": [row.tolist() for row in probabilities],
        }),
        "output": args.output,
    })
    return 0


def _check_probabilities(estimator):
    if estimator.surrogate != "log" or not hasattr(estimator, "classes_"):
        raise CommandError(
            f"--probabilities: this model, of {estimator._task} under {estimator.surrogate}, has "
            "none; those of classes, ordered levels, sequences and graphs have, if they are "
            "fitted with --surrogate log", 2
        )


def _probabilities(estimator, X):
    if hasattr(estimator, "predict_proba"):
        return estimator.predict_proba(X)
    return estimator.predict_marginals(X)


def _label_names(data, estimator):
    """Names of the labels; of label sets they may be those of the file of the fit."""
    if data.task == "multilabel" and data.reading.get("labels"):
        return data.reading["labels"]
    if not hasattr(estimator, "classes_"):
        return None
    return _labels.as_read(data.reading, estimator.classes_).tolist()


def _sets(predicted, names, task):
    """Rows of an indicator as lists of names; other predictions as they are."""
    if task != "multilabel":
        return predicted
    rows = predicted.toarray() if hasattr(predicted, "tocsr") else predicted
    return [[names[j] for j in row.nonzero()[0].tolist()] for row in rows]


def _plain(row):
    return row.tolist() if hasattr(row, "tolist") else row


def _lines(data, estimator, predicted, probabilities):
    """The predictions as lines of text."""
    import numpy as np

    names = _label_names(data, estimator)
    if probabilities is not None:
        yield "\t".join(["label", *map(_quoted, names)])
    if data.task in ("sequences", "graphs"):
        for i, labels in enumerate(predicted):
            rows = [[str(label)] for label in labels.tolist()]
            if data.tokens is not None:
                rows = [
                    [*_columns(token), *row]
                    for token, row in zip(data.tokens[i], rows, strict=True)
                ]
            yield from _joined(rows, None if probabilities is None else probabilities[i])
            yield ""
    elif data.task == "multilabel":
        sets = _sets(predicted, names, data.task)
        rows = [[",".join(_quoted(label, ",") for label in row)] for row in sets]
        yield from _joined(rows, probabilities)
    elif data.task == "matchings" or np.ndim(predicted) == 2:
        for row in predicted:
            yield " ".join(map(str, row.tolist()))
    else:
        yield from _joined([[_quoted(label)] for label in predicted.tolist()], probabilities)


def _quoted(label, separator="\t"):
    """A label as a field of separated values: in quotes where it would not be read back."""
    text = str(label)
    if not any(char in text for char in ('"', "\t", "\n", "\r", separator)):
        return text
    return '"' + text.replace('"', '""') + '"'


def _columns(token):
    return (token,) if isinstance(token, str) else token


def _joined(rows, probabilities):
    """Rows of words as lines, with numbers behind them."""
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
            "y": np.concatenate(predicted), "lengths": np.array([len(row) for row in predicted])
        }
    else:
        arrays = {"y": predicted.toarray() if hasattr(predicted, "tocsr") else predicted}
    if arrays["y"].dtype == object:
        arrays["y"] = arrays["y"].astype(str)
    if probabilities is not None:
        arrays["probabilities"] = getattr(probabilities, "values", probabilities)
    np.savez(file, **arrays)
