"""Formats of data: the table of their readers, tasks and options."""

import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from fastm4n.cli import _labels, _models
from fastm4n.cli._embedded import EMBEDDED, load
from fastm4n.cli._output import CommandError, counted, joined

_COMPRESSED = (".gz", ".bz2", ".xz")


@dataclass
class Data:
    """Examples of a task.

    X and y are arguments of the task's estimator, except that attributes of tokens still need a
    vectorizer. `reading` says in JSON how to read other files in the same way. `tokens` has the
    columns of each token, for output next to the predictions. `target` names the column of the
    truth, `why` says how it was found, and `notes` are remarks on guesses that may be wrong.
    """

    name: str
    task: str
    X: object
    y: object = None
    reading: dict = field(default_factory=dict)
    tokens: list = None
    target: str = None
    why: str = ""
    notes: list = field(default_factory=list)
    feature_names: list = None

    @property
    def n_examples(self):
        return self.X.shape[0] if hasattr(self.X, "shape") else len(self.X)

    @property
    def needs_vectorizer(self):
        return self.reading.get("attributes") is not None


class Format(NamedTuple):
    """A row of the table `FORMATS`.

    Attributes
    ----------
    read : callable
        read(args, task, reading, n_features, fitted, truth) makes `Data`.
    tasks : tuple of str
        Tasks that files of this format can have.
    options : tuple of str
        Options of `add_data` that the format uses, of those that not all formats use.
    suffixes : tuple of str
        Ends of names of files.
    help : str
        Lines of ``--help``.
    features : {"numbers", "tokens", "crfsuite"}
        Features of the examples. A model predicts from files with the same kind of features.
    """

    read: Callable
    tasks: tuple
    options: tuple = ()
    suffixes: tuple = ()
    help: str = ""
    features: str = "numbers"


def read(args, *, task=None, reading=None, n_features=None, truth=True):
    """Read the data that the arguments name.

    Parameters
    ----------
    args : Namespace
        Arguments of `add_data`.
    task, reading, n_features
        From the fitted model that the data must fit. None before a fit.
    truth : bool
        Whether the truth is needed.
    """
    fitted = reading is not None
    reading, task = reading or {}, task if fitted else args.task
    kind = _kind(args, reading)
    _check_options(args, kind)
    if fitted and kind in FORMATS:
        _check_features(args, kind, reading)
    form = FORMATS.get(kind, _OF_EMBEDDED)
    tasks = form.tasks
    if task not in (None, *tasks):
        raise CommandError(f"{kind} holds {joined(tasks)}, not {task}", 2)
    try:
        data = form.read(args, task, reading, n_features, fitted, truth)
    except FileNotFoundError as error:
        raise _no_such_file(args.data) from error
    if task not in (None, data.task):
        raise CommandError(
            f"{args.data} holds {data.task}, but "
            + (f"the model predicts {task}" if fitted else f"--task is {task}"),
            1 if kind in FORMATS else 2)
    data.reading = {"format": kind, **data.reading}
    if not fitted:
        _labels.settle(data, args)
    return data


def file_of(args):
    """The file, or - for stdin, that the arguments name. None for an embedded data set."""
    return None if args.data in EMBEDDED and args.format is None else args.data


def _kind(args, reading):
    """The format of the data by the arguments, the name, or for stdin the model."""
    file = file_of(args)
    if file is None:
        return "embedded"
    if file != "-" and (_models.is_file_of_ours(file) or _models.is_file_of_crfsuite(file)):
        raise CommandError(
            f"{file} is a model, and DATA is a file of data: 'fastm4n info {file}' describes it", 2)
    of_model = reading.get("format") if file == "-" else None
    return args.format or (of_model if of_model in FORMATS else guessed(file))


def guessed(name):
    """The format by the end of a file's name."""
    if name == "-":
        raise CommandError("-: pass --format, as stdin has no name to guess it from", 2)
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    for kind, known in FORMATS.items():
        if suffixes and suffixes[-1] in known.suffixes:
            return kind
    if os.path.isdir(name):
        raise CommandError(f"{name}: is a folder")
    if not os.path.exists(name):
        raise _no_such_file(name)
    raise CommandError(
        f"{name}: unknown end of the name: pass --format {joined(FORMATS)}", 2)


def _no_such_file(name):
    return CommandError(
        f"{name}: there is no such file, nor is it an embedded data set ({', '.join(EMBEDDED)})")


def _source(args):
    if args.data != "-":
        return args.data
    if sys.stdin is None:
        raise CommandError("-: stdin is closed", 2)
    return sys.stdin.buffer


def _check_options(args, kind):
    """Refuse options that the format ignores."""
    used = FORMATS.get(kind, _OF_EMBEDDED).options
    for option in dict.fromkeys(option for each in FORMATS.values() for option in each.options):
        if getattr(args, option, None) is not None and option not in used:
            kinds = [name for name, each in FORMATS.items() if option in each.options]
            raise CommandError(
                f"--{option} is for {joined(kinds, 'and')}, and {args.data} is "
                + ("an embedded data set" if kind == "embedded" else kind), 2)


def _check_features(args, kind, reading):
    """Refuse a format with other features than the model was fitted on."""
    attributes = reading.get("attributes")
    wanted = "numbers" if attributes is None else (
        "crfsuite" if attributes == "crfsuite" else "tokens")
    if FORMATS[kind].features != wanted:
        kinds = [name for name, each in FORMATS.items() if each.features == wanted]
        kinds = joined(kinds) if wanted != "crfsuite" else (
            "crfsuite, with a label and attributes of the model on each line, separated by tabs")
        raise CommandError(
            f"{args.data} is {kind}, but the model was fitted on "
            f"{reading.get('format') or ('numbers' if attributes is None else 'attributes')}: "
            f"give {kinds}", 2)


# -------------------------------------------------------------------------------- vectors


def _read_csv(args, task, reading, n_features, fitted, truth):
    from fastm4n.cli._tables import Head
    from fastm4n.datasets._tables import is_ranking, read_table

    names = reading.get("labels") if fitted else args.labels
    if (task == "multilabel") != (names is not None) and not (fitted or task is None):
        raise CommandError(
            "--task multilabel of csv needs --labels NAME,..., the columns that are labels"
            if names is None else f"--labels needs --task multilabel, got {task}", 2)
    head = Head(args, reading, n_features, fitted=fitted, truth=truth)
    try:
        data = read_table(
            _source(args), None, None, args.delimiter or reading.get("delimiter"), head=head,
            rankings=None if task is None else task == "rankings", typed=False)
    except ValueError as error:
        if fitted or not str(error).endswith("which is not a finite number."):
            raise
        raise CommandError(
            f"{error} Features are numbers: leave the column out by --drop, or pass it as --target "
            "if it is what to predict.") from error
    more = {"delimiter": args.delimiter, "header": head.has_names, "width": head.width}
    if names is not None or task == "multilabel":
        return _indicators(args, data, head, more, names, fitted and truth)
    if data.y is not None and not fitted:
        missing = [i for i, label in enumerate(data.y) if label.lower() == "nan"]
        if missing:
            others = len(missing) - 1
            also = f" and in {others} more: leave these examples" if others else ": leave it"
            raise CommandError(
                f"{args.data}: the target {data.target} is {str(data.y[missing[0]])!r} in "
                f"example {missing[0] + 1}{also} out, or give a label")
    if task is None:
        task = "rankings" if is_ranking(data.y[0]) else _of_vectors(args)
    return Data(
        args.data, task, data.X, data.y,
        {"target": data.target, "columns": data.columns, **more}, target=data.target,
        why=head.why, notes=head.notes, feature_names=data.columns)


def _indicators(args, data, head, more, names, needs_labels):
    """Features of a table, and the columns behind them that are indicators of labels."""
    import numpy as np

    n = head.n_labels
    if needs_labels and not n:
        raise CommandError(
            f"{args.data} has no columns of labels for a comparison with the model, which was "
            "fitted on another format", 2)
    width = data.X.shape[1] - n
    X, Y, columns = data.X[:, :width], data.X[:, width:], data.columns[:width]
    wrong = np.argwhere((Y != 0) & (Y != 1))
    if len(wrong):
        i, j = wrong[0]
        raise CommandError(
            f"{args.data}: column {data.columns[width + j]} is {Y[i, j]:g} in example {i + 1}. "
            "Labels are 1 if an example has them and 0 otherwise")
    labels = data.columns[width:] if names is None or n else names
    return Data(
        args.data, "multilabel", np.ascontiguousarray(X), Y.astype(np.int64) if n else None,
        {"columns": columns, "labels": labels, **more}, notes=head.notes, feature_names=columns)


def _of_vectors(args):
    return "classes" if args.levels is None else "ordered"


def _read_svmlight(args, task, reading, n_features, fitted, truth):
    import numpy as np

    from fastm4n.data._sequences import Sequences
    from fastm4n.datasets._svmlight import indicator, read_svmlight

    X, y, offsets, _, zero_based = read_svmlight(
        _source(args), n_features=n_features, zero_based=reading.get("zero_based", "auto"),
        with_qid=None if task is None else task == "sequences",
        multilabel=None if task is None else task == "multilabel", as_text=True)
    known = reading.get("labels")
    reading = {"zero_based": bool(zero_based)}
    if isinstance(y, tuple):
        found = set(y[0].tolist())
        labels = sorted(found, key=_labels.by_number) if known is None else list(map(str, known))
        left_out = sorted(found - set(labels), key=_labels.by_number)
        if left_out and truth:
            warnings.warn(
                f"labels that the model does not know are left out: {', '.join(left_out)}",
                stacklevel=2)
        Y, _ = indicator(*y, np.array(labels, dtype=str))
        return Data(args.data, "multilabel", X, Y, {**reading, "labels": labels})
    if offsets is None:
        return Data(args.data, task or _of_vectors(args), X, y, reading)
    return Data(args.data, "sequences", Sequences(X, offsets), Sequences(y, offsets), reading)


def _read_svmrank(args, task, reading, n_features, fitted, truth):
    import numpy as np

    from fastm4n.data._rankings import document_pairs
    from fastm4n.data._sequences import Sequences
    from fastm4n.datasets._svm_struct import read_svm_rank

    X, texts, batch = read_svm_rank(_source(args), n_features=n_features)
    offsets = np.append(batch.starts, len(texts))
    targets = Sequences(texts.astype(np.float64), offsets)
    queries = zip(batch.qids.tolist(), targets, strict=True)
    tied = next((qid for qid, values in queries if len(set(values)) < len(values)), None)
    tie = f"documents of qid:{tied} have the same target, and therefore no one ranking"
    notes, reading = [], {"zero_based": False}
    if task is None:
        task = "matchings" if tied is None and args.levels is None else "ordered"
        if tied is not None and args.levels is None:
            notes.append(f"{tie}: each line is an example, and its target an ordered level")
    if task != "matchings":
        return Data(args.data, task, X, texts, reading, notes=notes)
    if truth and tied is not None:
        raise CommandError(f"{args.data}: {tie}" + (
            "" if fitted else ". --task ordered takes documents one by one; in Python, "
            "fastm4n.data.preference_pairs compares documents with different targets"))
    try:
        pairs, ranks = document_pairs(Sequences(X, offsets), targets if truth else None)
    except ValueError as error:
        raise CommandError(
            f"{args.data}: {error} --task ordered takes documents one by one.") from error
    return Data(args.data, task, pairs, ranks, reading)


# ------------------------------------------------------------------------------ sequences


def _read_svmhmm(args, task, reading, n_features, fitted, truth):
    import numpy as np

    from fastm4n.data._sequences import Sequences
    from fastm4n.datasets._svm_struct import read_svm_hmm

    X, tags, _, batch = read_svm_hmm(_source(args), n_features=n_features)
    offsets = np.append(batch.starts, len(tags))
    return Data(
        args.data, "sequences", Sequences(X, offsets), Sequences(tags, offsets),
        {"zero_based": False})


def _read_conll(args, task, reading, n_features, fitted, truth):
    from fastm4n.cli._tables import moved_up, place_of
    from fastm4n.datasets import load_conll

    delimiter = args.delimiter or reading.get("delimiter")
    comment = args.comment or reading.get("comment")
    sentences = load_conll(
        _source(args), label_column=None, delimiter=delimiter, comment=comment,
        keep_empty=fitted and not truth,
    ).tokens
    width = len(next(filter(None, sentences))[0])
    numbers, given = [str(i + 1) for i in range(width)], args.target
    has = f"{args.data} has {counted(width, 'column')}"
    if not fitted and width < 2:
        raise CommandError(
            f"{has}, where tokens and labels were expected: pass --delimiter if it is not split at "
            "the right places")
    target = None
    if given is not None or not fitted:
        target = place_of(given or "-1", numbers, "--target")
    if fitted:
        attributes, columns, left = (reading[key] for key in ("attributes", "columns", "target"))
        if given is None:
            columns, is_there = moved_up(columns, [left], width, reading["width"])
            target = left if is_there else None
            if columns is None or truth and not is_there:
                raise CommandError(
                    f"{has}, but the model was fitted on {reading['width']}, of which column "
                    f"{left + 1} was the target; give the same columns"
                    + ("" if truth else ", without the target if there is none"))
        if columns and max(columns) >= width:
            raise CommandError(f"{has}, but the model needs {max(columns) + 1}")
    else:
        attributes = args.attributes or "window"
        columns = [i for i in range(width) if i != target] if args.columns is None else [
            place_of(column, numbers, "--columns") for column in args.columns]
        if target in columns:
            raise CommandError("--columns: the target is among them", 2)
    labels = None
    if target is not None:
        labels = [[token[target] for token in sentence] for sentence in sentences]
    chosen = [
        [tuple(token[column] for column in columns) for token in sentence]
        for sentence in sentences]
    return Data(
        args.data, "sequences", _attributes(chosen, attributes, args.data), labels,
        {
            "width": width, "target": target, "columns": columns, "attributes": attributes,
            "delimiter": delimiter, "comment": comment,
        },
        tokens=sentences, target=None if target is None else f"column {target + 1}",
        why="" if given is not None or fitted else "the last column")


def _read_conllu(args, task, reading, n_features, fitted, truth):
    from fastm4n.datasets import load_conllu

    if fitted:
        columns, attributes = reading["columns"], reading["attributes"]
        target = (args.target or reading["target"]) if truth else None
    else:
        columns, attributes = args.columns or ["FORM"], args.attributes or "window"
        target = args.target or "UPOS"
    if target in columns:
        raise CommandError(f"--columns: the target {target} is among them", 2)
    data = load_conllu(_source(args), fields=columns, label=target, keep_empty=fitted and not truth)
    return Data(
        args.data, "sequences", _attributes(data.tokens, attributes, args.data), data.labels,
        {"target": target, "columns": columns, "attributes": attributes}, tokens=data.tokens,
        target=target)


def _read_crfsuite(args, task, reading, n_features, fitted, truth):
    from fastm4n.datasets import load_crfsuite

    data = load_crfsuite(_source(args), keep_empty=fitted and not truth)
    return Data(args.data, "sequences", data.sequences, data.labels, {"attributes": "crfsuite"})


def _attributes(sentences, kind, name):
    """The attributes of all tokens."""
    from fastm4n.datasets import chunking_attributes, window_attributes

    if kind == "window":
        return [window_attributes(sentence) for sentence in sentences]
    if kind == "columns":
        return [
            [[f"{i}={value}" for i, value in enumerate(token)] for token in sentence]
            for sentence in sentences]
    width = len(next(filter(None, sentences))[0])
    if width != 2:
        raise CommandError(
            f"--attributes chunking needs two columns, word and tag, and {name} has {width}: "
            "choose them by --columns", 2)
    return [
        chunking_attributes(*map(list, zip(*sentence, strict=True))) if sentence else []
        for sentence in sentences]


# ------------------------------------------------------------------------------------ npz


def _read_npz(args, task, reading, n_features, fitted, truth):
    from fastm4n.data._sequences import Sequences
    from fastm4n.datasets._tables import is_ranking

    arrays = _arrays(args)
    # a model of another format has no name of the array
    key = args.target or (reading.get("format") == "npz" and reading.get("target")) or "y"
    y = _labels.decoded(args.data, arrays.get(key))
    try:
        is_graphs = "edges" in arrays
        X = _graphs_of(arrays) if is_graphs else _matrix_of(arrays)
        if y is None and (truth or not fitted):
            raise ValueError(f"there is no array {key}, only {', '.join(arrays)}")
        if is_graphs and y is not None:
            if y.shape != (X.n_nodes,):
                raise ValueError(
                    f"array {key} has the shape {y.shape}, but there are {X.n_nodes} nodes, with "
                    "one label each")
            y = Sequences(y, X.node_offsets)
        cuts = next((name for name in ("lengths", "offsets") if name in arrays), None)
        if not is_graphs and cuts is not None:
            make = Sequences.from_lengths if cuts == "lengths" else Sequences
            X, y = (None if part is None else make(part, arrays[cuts]) for part in (X, y))
    except (TypeError, ValueError) as error:
        raise CommandError(f"{args.data}: {error}") from error
    if is_graphs:
        found = "graphs"
    elif cuts is not None:
        found = "sequences"
    elif X.ndim == 4:
        found = "matchings"
    elif task == "multilabel" and y is not None and y.ndim == 2:
        found = "multilabel"
    elif y is not None and (
        y.ndim == 2 or y.dtype.kind == "U" and y.size and is_ranking(y.flat[0])
    ):
        found = "rankings"
    else:
        known = task in ("classes", "ordered", "rankings", "multilabel")
        found = task if known else _of_vectors(args)
    X, y = _where(args, arrays, X, y)
    more = {"labels": list(range(y.shape[1]))} if found == "multilabel" and y is not None else {}
    return Data(args.data, found, X, y, {"target": key, **more}, target=f"array {key}")


def _matrix_of(arrays):
    """The array X, or a CSR matrix of its parts."""
    from scipy import sparse

    if "X" in arrays:
        return arrays["X"]
    parts = ("data", "indices", "indptr")
    if not {*parts, "shape"} <= arrays.keys():
        raise ValueError(
            "there is no array X, and no CSR matrix of data, indices, indptr and shape, only "
            f"{', '.join(arrays) or 'an empty archive'}")
    try:
        X = sparse.csr_matrix(
            tuple(arrays[part] for part in parts), shape=tuple(map(int, arrays["shape"])))
        X.check_format()
    except (TypeError, ValueError) as error:
        raise ValueError(f"the arrays are no CSR matrix ({error})") from error
    return X


def _graphs_of(arrays):
    """Graphs of the arrays that `Graphs.save` writes."""
    from fastm4n.data._graphs import Graphs
    from fastm4n.data.disk._graph_files import graph_arrays

    return Graphs(**graph_arrays(arrays))


def _where(args, arrays, X, y):
    """The examples, and the truth if there is one, that --where chooses."""
    import numpy as np

    if args.where is None:
        return X, y
    name, value = args.where
    mask, n = arrays.get(name), X.shape[0]
    if mask is None or mask.shape != (n,):
        raise CommandError(
            f"--where: {args.data} has no array {name!r} with a number for each of {n} examples",
            2)
    chosen = np.flatnonzero(mask == value)
    if not chosen.size:
        raise CommandError(f"--where: {name} is {value} nowhere in {args.data}", 2)
    return X[chosen], None if y is None else y[chosen]


def _arrays(args):
    """All arrays of the file, none of which contains objects."""
    import zipfile

    from fastm4n.base.npz import read_npz

    if args.data == "-":
        raise CommandError("-: npz is read from a file", 2)
    if os.path.exists(args.data) and not os.path.isfile(args.data):
        raise CommandError(f"{args.data}: is not a regular file")
    if not zipfile.is_zipfile(args.data):
        with open(args.data, "rb") as file:  # raises if it cannot be read
            empty = not file.read(1)
        raise CommandError(f"{args.data} is empty." if empty else
                           f"{args.data} is no npz file, or was cut off: it is no zip archive.")
    try:
        return read_npz(args.data)
    except ValueError as error:
        raise CommandError(f"{args.data}: {error}") from error
    except (OSError, MemoryError) as error:
        raise CommandError(f"{args.data}: cannot be read ({error})") from error


# ---------------------------------------------------------------------------------- table

FORMATS = {
    "csv": Format(
        _read_csv, ("classes", "ordered", "rankings", "multilabel"),
        ("target", "columns", "drop", "labels", "header", "delimiter"), (".csv", ".tsv"), """\
  .csv .tsv                 csv: a table of numbers and a target; a first line with the names of
                            the columns is detected
"""),
    "svmlight": Format(
        _read_svmlight, ("classes", "ordered", "sequences", "multilabel"),
        suffixes=(".svm", ".svmlight", ".libsvm"), help="""\
  .svm .svmlight .libsvm    svmlight: LABEL index:value ...; with qid:N after the label, the lines
                            of one N are a sequence; LABEL,LABEL,... are sets of labels
"""),
    "conll": Format(
        _read_conll, ("sequences",), ("target", "columns", "delimiter", "comment", "attributes"),
        (".conll", ".txt", ".iob", ".bio"), features="tokens", help="""\
  .conll .txt .iob .bio     conll: a token on each line, columns, a blank line after a sentence
"""),
    "conllu": Format(
        _read_conllu, ("sequences",), ("target", "columns", "attributes"), (".conllu",),
        features="tokens", help="""\
  .conllu                   conllu: Universal Dependencies
"""),
    "crfsuite": Format(
        _read_crfsuite, ("sequences",), suffixes=(".crfsuite",), features="crfsuite", help="""\
  .crfsuite                 crfsuite: LABEL and attributes, separated by tabs
"""),
    "npz": Format(
        _read_npz, tuple(_models.ESTIMATORS), ("target", "where"), (".npz",), """\
  .npz                      npz: arrays X and y; and lengths or offsets of sequences;
                            X (n, rows, columns, d) and y (n, rows) of matchings, -1 for
                            unmatched rows; of graphs the arrays of Graphs.save, with y
"""),
    "svmhmm": Format(_read_svmhmm, ("sequences",), suffixes=(".hmm", ".svmhmm"), help="""\
  .hmm .svmhmm              svmhmm: SVM-hmm's TAG qid:N index:value ..., tags numbers or words
"""),
    "svmrank": Format(
        _read_svmrank, ("matchings", "classes", "ordered"), suffixes=(".rank", ".svmrank"),
        help="""\
  .rank .svmrank            svmrank: SVM-rank's TARGET qid:N index:value ..., documents of queries
"""),
}


def embedded(name, task=None):
    """The `Data` of an embedded data set."""
    return Data(name, *load(name, task), {"format": "embedded"})


_OF_EMBEDDED = Format(lambda args, task, *_: embedded(args.data, task), tuple(_models.ESTIMATORS))
