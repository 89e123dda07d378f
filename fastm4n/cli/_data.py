"""Reading: from a file, or the name of a data set, to what estimators take."""

import os
import sys
import warnings
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from fastm4n.cli import _labels, _models
from fastm4n.cli._arguments import EMBEDDED
from fastm4n.cli._output import CommandError

# levels that the target of a regression data set is binned into
N_LEVELS = 5

_SUFFIXES = {
    ".csv": "csv", ".tsv": "csv", ".svm": "svmlight", ".svmlight": "svmlight",
    ".libsvm": "svmlight", ".conll": "conll", ".txt": "conll", ".iob": "conll", ".bio": "conll",
    ".conllu": "conllu", ".crfsuite": "crfsuite", ".npz": "npz", ".hmm": "svmhmm",
    ".svmhmm": "svmhmm", ".rank": "svmrank", ".svmrank": "svmrank",
}
_COMPRESSED = (".gz", ".bz2", ".xz")
_TOKENS = ("conll", "conllu")
# options that are of some formats only
_OPTIONS = {
    "target": ("csv", "conll", "conllu", "npz"), "columns": ("csv", "conll", "conllu"),
    "drop": ("csv",), "labels": ("csv",), "header": ("csv",), "delimiter": ("csv", "conll"),
    "comment": ("conll",), "where": ("npz",), "attributes": _TOKENS,
}

# files of scikit-learn's: rows of features and a class, below so many lines of names
_TABLES = {
    "iris": ("iris.csv", 1), "wine": ("wine_data.csv", 1),
    "breast_cancer": ("breast_cancer.csv", 1), "digits": ("digits.csv.gz", 0),
}


@dataclass
class Data:
    """Examples of a task.

    X and y are what the task's estimator takes, but that sequences of attributes still have to go
    through a vectorizer. `reading` is what other files have to be read by, in JSON; `tokens` are
    the columns of each token, for output beside the predictions. `target` names the column of the
    truth, `why` says how it was found, and `notes` what the user may want to correct.
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


def read(args, *, task=None, reading=None, n_features=None, truth=True):
    """The data that the arguments name.

    Parameters
    ----------
    args : Namespace
        Of `add_data`.
    task, reading, n_features
        Of a fitted model, that the data must fit; None before a fit.
    truth : bool
        Whether the truth is needed.
    """
    fitted = reading is not None
    if not fitted:
        task = args.task
    if args.data in EMBEDDED and args.format is None:
        _check_options(args, "embedded")
        return embedded(args.data, task, "the model predicts" if fitted else "--task is")
    if args.data != "-" and (
        _models.is_file_of_ours(args.data) or _models.is_file_of_crfsuite(args.data)
    ):
        raise CommandError(
            f"{args.data} is a model, and DATA is a file of data; 'fastm4n info {args.data}' "
            "describes it", 2)
    of_model = reading.get("format") if fitted and args.data == "-" else None
    kind = args.format or (of_model if of_model in _READERS else guessed(args.data))
    _check_options(args, kind)
    if fitted:
        _check_attributes(args, kind, reading)
    try:
        data = _READERS[kind](args, task, reading or {}, n_features, fitted, truth)
    except FileNotFoundError as error:
        raise _no_such_file(args.data) from error
    if task is not None and data.task != task:
        raise CommandError(
            f"{args.data} holds {data.task}, but "
            + (f"the model predicts {task}" if fitted else f"--task is {task}")
        )
    data.reading = {"format": kind, **data.reading}
    if not fitted:
        _labels.settle(data, args)
    return data


def _no_such_file(name):
    return CommandError(
        f"{name}: there is no such file, nor is it an embedded data set ({', '.join(EMBEDDED)})")


def guessed(name):
    """The format that the name of a file tells."""
    if name == "-":
        raise CommandError("-: pass --format, as stdin has no name to guess it from", 2)
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    kind = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if kind is None:
        if os.path.isdir(name):
            raise CommandError(f"{name}: is a folder")
        if not os.path.exists(name):
            raise _no_such_file(name)
        raise CommandError(
            f"{name}: the format cannot be told from the name; pass --format, one of "
            f"{', '.join(_READERS)}", 2)
    return kind


def file_of(args):
    """The file, or - for stdin, that the arguments name; None for an embedded data set."""
    return None if args.data in EMBEDDED and args.format is None else args.data


def _source(args):
    if args.data != "-":
        return args.data
    if sys.stdin is None:
        raise CommandError("-: stdin is closed", 2)
    return sys.stdin.buffer


def _check_options(args, kind):
    """Refuse options that the format would not heed."""
    for option, kinds in _OPTIONS.items():
        if getattr(args, option, None) is not None and kind not in kinds:
            of = " and ".join(filter(None, (", ".join(kinds[:-1]), kinds[-1])))
            raise CommandError(
                f"--{option} is for {of}, and {args.data} is "
                + ("an embedded data set" if kind == "embedded" else kind), 2
            )


def _check_attributes(args, kind, reading):
    """Refuse a format whose features are not those that the model was fitted on."""
    attributes = reading.get("attributes")
    given = "crfsuite" if kind == "crfsuite" else "tokens" if kind in _TOKENS else None
    wanted = attributes and ("crfsuite" if attributes == "crfsuite" else "tokens")
    if given != wanted:
        if wanted is None:
            what, kinds = "numbers", "csv, svmlight, svmhmm, svmrank or npz"
        else:
            what = "attributes of tokens"
            kinds = "conll or conllu"
            if wanted == "crfsuite":
                kinds = (
                    "crfsuite: on each line a label and the attributes that the model was trained "
                    "on, separated by tabs")
        raise CommandError(
            f"{args.data} is {kind}, but the model was fitted on {reading.get('format') or what}; "
            f"give {kinds}", 2
        )


# -------------------------------------------------------------------------------- vectors


def _read_csv(args, task, reading, n_features, fitted, truth):
    from fastm4n.cli._tables import Head
    from fastm4n.datasets._tables import is_ranking, read_table

    if task not in (None, "classes", "ordered", "rankings", "multilabel"):
        raise CommandError(
            f"csv holds classes, ordered levels, rankings or indicators of labels, not {task}", 2)
    names = reading.get("labels") if fitted else args.labels
    if (task == "multilabel") != (names is not None) and not (fitted or task is None):
        raise CommandError(
            "--task multilabel of csv needs --labels NAME,..., the columns that are labels"
            if names is None else f"--labels are of task multilabel, and --task is {task}", 2)
    head = Head(args, reading, n_features, fitted=fitted, truth=truth)
    try:
        data = read_table(
            _source(args), None, None, args.delimiter or reading.get("delimiter"), head=head,
            rankings=None if task is None else task == "rankings", typed=False,
        )
    except ValueError as error:
        if fitted or not str(error).endswith("which is not a finite number."):
            raise
        raise CommandError(
            f"{error} Features are numbers: leave the column out by --drop, or pass it as --target "
            "if it is what to predict."
        ) from error
    if names is not None or task == "multilabel":
        return _indicators(args, data, head, task, names, fitted, truth)
    if data.y is not None and not fitted:
        missing = [i for i, label in enumerate(data.y) if label.lower() == "nan"]
        if missing:
            others = len(missing) - 1
            more = f" and in {others} more: leave these examples" if others else ": leave it"
            raise CommandError(
                f"{args.data}: the target {data.target} is {str(data.y[missing[0]])!r} in "
                f"example {missing[0] + 1}{more} out, or give a label")
    if task is None:
        task = "rankings" if is_ranking(data.y[0]) else _of_vectors(args)
    return Data(
        args.data, task, data.X, data.y,
        {
            "target": data.target, "columns": data.columns, "delimiter": args.delimiter,
            "header": head.has_names, "width": head.width,
        },
        target=data.target, why=head.why, notes=head.notes, feature_names=data.columns,
    )


def _indicators(args, data, head, task, names, fitted, truth):
    """Features of a table, and the columns behind them that are indicators of labels."""
    import numpy as np

    n = head.n_labels
    if fitted and truth and not n:
        raise CommandError(
            f"{args.data} has no columns of labels that the model, which was fitted on another "
            "format, could be compared with", 2)
    width = data.X.shape[1] - n
    X, Y, columns = data.X[:, :width], data.X[:, width:], data.columns[:width]
    wrong = np.argwhere((Y != 0) & (Y != 1))
    if len(wrong):
        i, j = wrong[0]
        raise CommandError(
            f"{args.data}: column {data.columns[width + j]} is {Y[i, j]:g} in example {i + 1}; "
            "labels are 1 where an example has them and 0 elsewhere")
    return Data(
        args.data, "multilabel", np.ascontiguousarray(X), Y.astype(np.int64) if n else None,
        {
            "columns": columns, "labels": data.columns[width:] if names is None or n else names,
            "delimiter": args.delimiter, "header": head.has_names, "width": head.width,
        },
        notes=head.notes, feature_names=columns,
    )


def _of_vectors(args):
    """Classes, or ordered levels where levels are given."""
    return "classes" if args.levels is None else "ordered"


def _read_svmlight(args, task, reading, n_features, fitted, truth):
    import numpy as np

    from fastm4n.data._sequences import Sequences
    from fastm4n.datasets._svmlight import indicator, read_svmlight

    if task not in (None, "classes", "ordered", "sequences", "multilabel"):
        raise CommandError(
            f"svmlight holds classes, ordered levels, sequences or sets of labels, not {task}", 2)
    X, y, offsets, _, zero_based = read_svmlight(
        _source(args), n_features=n_features, zero_based=reading.get("zero_based", "auto"),
        with_qid=None if task is None else task == "sequences",
        multilabel=None if task is None else task == "multilabel", as_text=True,
    )
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

    if task not in (None, "matchings", "classes", "ordered"):
        raise CommandError(
            "svmrank holds matchings of documents and ranks, ordered levels or classes, not "
            f"{task}", 2)
    X, texts, batch = read_svm_rank(_source(args), n_features=n_features)
    offsets = np.append(batch.starts, len(texts))
    targets = Sequences(texts.astype(np.float64), offsets)
    queries = zip(batch.qids.tolist(), targets, strict=True)
    tied = next((qid for qid, values in queries if len(set(values)) < len(values)), None)
    tie = f"documents of qid:{tied} have the same target, so that there is no one ranking"
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
            "fastm4n.data.preference_pairs compares those of different targets"))
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

    _only_sequences("svmhmm", task)
    X, tags, _, batch = read_svm_hmm(_source(args), n_features=n_features)
    offsets = np.append(batch.starts, len(tags))
    return Data(
        args.data, "sequences", Sequences(X, offsets), Sequences(tags, offsets),
        {"zero_based": False})


def _only_sequences(kind, task):
    if task not in (None, "sequences"):
        raise CommandError(f"{kind} holds sequences, not {task}", 2)


def _read_conll(args, task, reading, n_features, fitted, truth):
    from fastm4n.datasets import load_conll

    _only_sequences("conll", task)
    delimiter = args.delimiter or reading.get("delimiter")
    comment = args.comment or reading.get("comment")
    sentences = load_conll(
        _source(args), label_column=None, delimiter=delimiter, comment=comment,
        keep_empty=fitted and not truth,
    ).tokens
    width = len(next(filter(None, sentences))[0])
    if fitted:
        columns, target, trained = reading["columns"], reading["target"], reading["width"]
        if args.target is not None:
            target = _position("--target", args.target, width)
        if width == trained - 1 and not truth and args.target is None:
            # the truth is missing: what stood behind it moves up
            columns = [column - (column > target) for column in columns]
            target = None
        elif width != trained and args.target is None:
            raise CommandError(
                f"{args.data} has {_columns(width)}, but the model was fitted on {trained}, of "
                f"which column {target + 1} was the target; give the same columns"
                + ("" if truth else ", without the target if there is none")
            )
        elif columns and max(columns) >= width:
            raise CommandError(
                f"{args.data} has {_columns(width)}, but the model needs {max(columns) + 1}"
            )
        attributes = reading["attributes"]
    else:
        if width < 2:
            raise CommandError(
                f"{args.data} has 1 column, where tokens and labels were expected; pass "
                "--delimiter if it is not split at the right places"
            )
        target = _position("--target", args.target or "-1", width)
        if args.columns is None:
            columns = [column for column in range(width) if column != target]
        else:
            columns = [_position("--columns", column, width) for column in args.columns]
        if target in columns:
            raise CommandError("--columns: the target is among them", 2)
        attributes = args.attributes or "window"
    labels = None
    if target is not None:
        labels = [[token[target] for token in sentence] for sentence in sentences]
    chosen = [
        [tuple(token[column] for column in columns) for token in sentence]
        for sentence in sentences
    ]
    return Data(
        args.data, "sequences", _attributes(chosen, attributes, args.data), labels,
        {
            "width": width, "target": target, "columns": columns, "attributes": attributes,
            "delimiter": delimiter, "comment": comment,
        },
        tokens=sentences, target=None if target is None else f"column {target + 1}",
        why="" if args.target is not None or fitted else "the last column",
    )


def _columns(number):
    return f"{number} column{'' if number == 1 else 's'}"


def _position(option, text, width):
    """A column, counted from 0, of a number that counts from 1, or from the end if negative."""
    try:
        number = int(text)
    except ValueError:
        raise CommandError(f"{option}: conll has no names of columns, got {text!r}", 2) from None
    if not 0 < abs(number) <= width:
        raise CommandError(f"{option}: there is no column {number}, there are {width}", 2)
    return number - 1 if number > 0 else width + number


def _read_conllu(args, task, reading, n_features, fitted, truth):
    from fastm4n.datasets import load_conllu

    _only_sequences("conllu", task)
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
        target=target,
    )


def _read_crfsuite(args, task, reading, n_features, fitted, truth):
    from fastm4n.datasets import load_crfsuite

    _only_sequences("crfsuite", task)
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
            for sentence in sentences
        ]
    width = len(next(filter(None, sentences))[0])
    if width != 2:
        raise CommandError(
            f"--attributes chunking needs two columns, word and tag, and {name} has {width}; "
            "choose them by --columns", 2
        )
    return [
        chunking_attributes(*map(list, zip(*sentence, strict=True))) if sentence else []
        for sentence in sentences
    ]


# ------------------------------------------------------------------------------------ npz


def _read_npz(args, task, reading, n_features, fitted, truth):
    from scipy import sparse

    from fastm4n.data._sequences import Sequences
    from fastm4n.datasets._tables import is_ranking

    arrays = _arrays(args)
    if "edges" in arrays:
        return _graphs(args, arrays, reading, fitted, truth)
    if "X" in arrays:
        X = arrays["X"]
    elif {"data", "indices", "indptr", "shape"} <= arrays.keys():
        try:
            X = sparse.csr_matrix(
                tuple(arrays[part] for part in ("data", "indices", "indptr")),
                shape=tuple(map(int, arrays["shape"])),
            )
            X.check_format()
        except (TypeError, ValueError) as error:
            raise CommandError(f"{args.data}: the arrays are no CSR matrix ({error})") from error
    else:
        raise CommandError(
            f"{args.data}: there is no array X, nor data, indices, indptr and shape of a CSR "
            f"matrix; there are {', '.join(arrays) or 'none'}"
        )
    key = _key(args, reading)
    y = _labels.decoded(args.data, arrays.get(key))
    if y is None and (truth or not fitted):
        raise CommandError(f"{args.data}: there is no array {key}; there are {', '.join(arrays)}")
    if "lengths" in arrays or "offsets" in arrays:
        make = Sequences.from_lengths if "lengths" in arrays else Sequences
        cuts = arrays["lengths" if "lengths" in arrays else "offsets"]
        try:
            X, y = make(X, cuts), None if y is None else make(y, cuts)
        except (TypeError, ValueError) as error:
            raise CommandError(f"{args.data}: {error}") from error
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
    more = {}
    if found == "multilabel" and y is not None:
        more["labels"] = list(range(y.shape[1]))
    return Data(args.data, found, X, y, {"target": key, **more}, target=f"array {key}")


def _key(args, reading):
    """The name of the array of the truth; a model of another format knows none."""
    return args.target or (reading.get("format") == "npz" and reading.get("target")) or "y"


def _graphs(args, arrays, reading, fitted, truth):
    """Graphs of the arrays that `Graphs.save` writes."""
    from fastm4n.data._graphs import Graphs
    from fastm4n.data._sequences import Sequences
    from fastm4n.data.disk._graph_files import graph_arrays

    key = _key(args, reading)
    try:
        X = Graphs(**graph_arrays(arrays))
        y = _labels.decoded(args.data, arrays.get(key))
        if y is None and (truth or not fitted):
            raise ValueError(f"there is no array {key}; there are {', '.join(arrays)}")
        if y is not None and y.shape != (X.n_nodes,):
            raise ValueError(
                f"array {key} has the shape {y.shape}, but there are {X.n_nodes} nodes, which "
                "have one label each"
            )
    except (TypeError, ValueError) as error:
        raise CommandError(f"{args.data}: {error}") from error
    X, y = _where(args, arrays, X, None if y is None else Sequences(y, X.node_offsets))
    return Data(args.data, "graphs", X, y, {"target": key}, target=f"array {key}")


def _where(args, arrays, X, y):
    """Examples, and the truth if there is one, that --where chooses."""
    import numpy as np

    if args.where is None:
        return X, y
    name, value = args.where
    mask = arrays.get(name)
    n = X.shape[0]
    if mask is None or mask.shape != (n,):
        raise CommandError(
            f"--where: {args.data} has no array {name!r} with a number for each of {n} "
            "examples", 2
        )
    chosen = np.flatnonzero(mask == value)
    if not chosen.size:
        raise CommandError(f"--where: {name} is {value} nowhere in {args.data}", 2)
    return X[chosen], None if y is None else y[chosen]


def _arrays(args):
    """All arrays of the file, none of which holds objects."""
    import zipfile

    from fastm4n.base.npz import read_npz

    if args.data == "-":
        raise CommandError("-: npz is read from a file", 2)
    if os.path.exists(args.data) and not os.path.isfile(args.data):
        raise CommandError(f"{args.data}: is not a regular file")
    if not zipfile.is_zipfile(args.data):
        with open(args.data, "rb") as file:  # which tells what keeps it from being read
            empty = not file.read(1)
        raise CommandError(f"{args.data} is empty." if empty else
                           f"{args.data} is no npz file, or was cut off: it is no zip archive.")
    try:
        return read_npz(args.data)
    except ValueError as error:
        raise CommandError(f"{args.data}: {error}") from error
    except (OSError, MemoryError) as error:
        raise CommandError(f"{args.data}: cannot be read ({error})") from error


_READERS = {
    "csv": _read_csv, "svmlight": _read_svmlight, "conll": _read_conll, "conllu": _read_conllu,
    "crfsuite": _read_crfsuite, "npz": _read_npz, "svmhmm": _read_svmhmm,
    "svmrank": _read_svmrank,
}


# ------------------------------------------------------------------------------- embedded


def embedded(name, task=None, who="--task is"):
    """An embedded data set; classes are taken for ordered levels, and the other way, as asked."""
    import numpy as np

    from fastm4n.data._sequences import Sequences

    holds, _ = EMBEDDED[name]
    if {task, holds} == {"classes", "ordered"}:
        holds = task
    if task is not None and task != holds:
        raise CommandError(f"{name} is of {holds}, but {who} {task}", 2)
    rng = np.random.default_rng(0)
    if name == "simulated_rankings":
        X = rng.normal(size=(300, 5))
        utilities = X @ rng.normal(size=(5, 4)) + rng.gumbel(scale=0.5, size=(300, 4))
        items = np.array(["a", "b", "c", "d"])
        y = np.array([">".join(row) for row in items[np.argsort(-utilities, axis=1)]])
    elif name == "simulated_images":
        X, y = _images(rng)
    elif name == "simulated_points":
        before = rng.normal(size=(80, 6, 2))
        y = rng.permuted(np.tile(np.arange(6), (80, 1)), axis=1)
        after = np.empty_like(before)
        np.put_along_axis(after, y[:, :, None], before + 0.2 * rng.normal(size=before.shape), 1)
        X = (before[:, :, None] - after[:, None]) ** 2
    else:
        X, y = _of_scikit_learn("digits" if name == "digit_lines" else name)
        if name == "diabetes":
            edges = np.quantile(y, np.arange(1, N_LEVELS) / N_LEVELS)
            y = np.searchsorted(edges, y, side="right")
        if name == "digit_lines":
            lengths = [11] * (len(y) // 11) + [len(y) % 11]
            X, y = Sequences.from_lengths(X / 16, lengths), Sequences.from_lengths(y, lengths)
    return Data(name, holds, X, y, {"format": "embedded"})


def _of_scikit_learn(name):
    """What its `load_NAME(return_X_y=True)` gives.

    To import it takes longer than all that is done with a small data set: its tables are read from
    their files where these are what they have always been, and by its own function elsewhere.
    """
    import numpy as np

    try:
        file, n_heads = _TABLES[name]
        folder = Path(find_spec("sklearn").origin).parent / "datasets" / "data"
        table = np.loadtxt(folder / file, delimiter=",", skiprows=n_heads)
        return table[:, :-1], table[:, -1].astype(np.int64)
    except (KeyError, AttributeError, TypeError, OSError, ValueError):
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(return_X_y=True)


def _images(rng):
    """Grids of noisy pixels, inside and outside of a disc."""
    import numpy as np

    from fastm4n.data._graphs import Graphs
    from fastm4n.data._sequences import Sequences

    rows, columns = np.indices((6, 6))
    middles = rng.uniform(1, 4, size=(40, 2, 1, 1))
    inside = (rows - middles[:, 0]) ** 2 + (columns - middles[:, 1]) ** 2 < 4
    X = Graphs.from_grid(inside + rng.normal(scale=0.7, size=inside.shape))
    return X, Sequences(np.where(inside.ravel(), "inside", "outside"), X.node_offsets)
