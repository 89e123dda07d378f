"""What data hold, in words: said before a fit, and by ``fastm4n info``."""

from collections import Counter

from fastm4n.cli._labels import by_number, value_of
from fastm4n.cli._output import listed, printable
from fastm4n.cli._tables import may_be_number

# labels that are listed with their counts
MOST_LABELS = 8
# a numeric target of more values than this, each of few examples, is hardly one of classes
MANY_VALUES = 20
FEW_EXAMPLES = 20
# more labels of tokens than this, each of few tokens, are hardly those of a tagger
MANY_LABELS = 300


def facts(data):
    """A dict of numbers and names, for JSON."""
    found = {
        "name": data.name, "task": data.task, "n_examples": data.n_examples,
        "n_tokens": n_tokens(data), "n_features": n_features(data), "target": data.target,
        **of_graphs(data),
    }
    if data.y is None:
        return found
    if data.task == "matchings":
        found["size"] = max(map(len, data.y))
    elif data.task == "multilabel":
        found["labels"] = dict(zip(
            map(str, data.reading["labels"]), map(int, data.y.sum(axis=0).tolist()
            if data.y.ndim == 2 and not hasattr(data.y, "tocsr")
            else data.y.toarray().sum(axis=0).tolist()), strict=True))
    elif data.task == "rankings":
        found["items"] = _items(data.y)
    else:
        counts = Counter(_labels(data))
        spelling = data.reading.get("spelling", {})
        found["labels"] = {
            spelling.get(str(label), str(label)): counts[label]
            for label in sorted(counts, key=by_number)}
    return found


def n_tokens(data):
    if data.task != "sequences":
        return None
    return data.X.n_tokens if hasattr(data.X, "n_tokens") else sum(map(len, data.X))


def of_graphs(data):
    """Numbers of nodes, edges and features of edges; nothing of other outputs."""
    if data.task != "graphs":
        return {}
    X = data.X
    return {
        "n_nodes": X.n_nodes, "n_edges": X.n_edges,
        "n_edge_features": 0 if X.edge_features is None else X.edge_features.shape[1],
    }


def n_features(data):
    """Number of features, None if they are still to be made of attributes."""
    return None if data.needs_vectorizer else width(data.X)


def width(X):
    """Number of columns of what estimators take."""
    if hasattr(X, "node_features"):
        return X.node_features.shape[1]
    if isinstance(X, list):
        return X[0].shape[-1]
    return (X.values if hasattr(X, "offsets") else X).shape[-1]


def counted(data, features=None, found=None):
    """A line: how many of what."""
    one = "example" if data.task in ("classes", "ordered", "multilabel") else data.task[:-1]
    text = f"{data.name}: {_many(data.n_examples, one)}"
    if n_tokens(data) is not None:
        text += f" of {_many(n_tokens(data), 'token')}"
    parts = of_graphs(data)
    if parts:
        text += f" of {_many(parts['n_nodes'], 'node')} and {_many(parts['n_edges'], 'edge')}"
    features = n_features(data) if features is None else features
    if features is not None:
        text += f", {_many(features, 'feature')}"
    if found is not None and "labels" in found:
        one, several = {
            "ordered": ("level", "levels"), "sequences": ("label", "labels"),
            "graphs": ("label", "labels"), "multilabel": ("label", "labels"),
        }.get(data.task, ("class", "classes"))
        text += f", {_many(len(found['labels']), one, several)}"
    if found is not None and "items" in found:
        text += f", {_many(len(found['items']), 'item')}"
    return text


def _many(number, one, several=None):
    return f"{number} {one if number == 1 else several or one + 's'}"


def target(data, found):
    """A line on the target, None where there is nothing to be told."""
    if data.target is None:
        return None
    text = f"target: {named(data.target)}" + (f", {data.why}" if data.why else "")
    if "labels" in found:
        labels = list(found["labels"].items())
        text += "; " + ", ".join(f"{label}: {n}" for label, n in labels[:MOST_LABELS])
        if len(labels) > MOST_LABELS:
            text += ", ..."
    elif "items" in found:
        text += f"; items {', '.join(found['items'][:2 * MOST_LABELS])}"
    return text


def named(column):
    return f"column {column}" if column.isdecimal() else column


def notes(data, found):
    """What the user may want to correct, and what will not help."""
    import numpy as np

    remarks = list(data.notes)
    labels = found.get("labels", {})
    values = list(map(value_of, labels))
    if data.task == "classes" and values and None not in values and data.target is not None:
        if len(labels) > MANY_VALUES and data.n_examples < FEW_EXAMPLES * len(labels) or (
            len(labels) > MOST_LABELS and not all(isinstance(value, int) for value in values)
        ):
            remarks.append(
                f"the target {data.target} has {len(labels)} different numbers, and each is taken "
                "for a class of its own; bin them if they are measurements, or choose another "
                "column by --target"
            )
        elif len(labels) > 2 and data.why == "by its name" and data.y.dtype.kind == "U":
            remarks.append(
                f"the target {data.target} is numbers, taken for classes without an order; pass "
                "--task ordered if they are levels"
            )
    if data.task == "classes" and data.y.dtype.kind == "U":
        words = [label for label in labels if not may_be_number(label)]
        if words and 2 * sum(labels[label] for label in words) < data.n_examples:
            place = next(i for i, label in enumerate(data.y) if not may_be_number(label))
            remarks.append(
                f"the target {data.target} is numbers but for {listed(words)}, first in example "
                f"{place + 1}, and each is taken for a class; mend the file if that is a slip"
            )
    if data.task == "sequences" and len(labels) > MANY_LABELS and (
        n_tokens(data) < FEW_EXAMPLES * len(labels)
    ):
        remarks.append(
            f"the target has {len(labels)} different labels, which takes weights of as many times "
            "all features, and of their pairs; choose another column by --target if these are words"
        )
    if data.feature_names is not None:
        remarks += _columns(data, np)
    if data.task == "classes" and data.why == "the last column":
        remarks += _indicators(data, np)
    return remarks


def _indicators(data, np):
    """A remark on columns of zeros and ones before a target that is one, too."""
    if data.feature_names is None or set(data.y.tolist()) != {"0", "1"}:
        return []
    binary = [len(np.unique(column)) == 2 and {0, 1} == set(column.tolist()) for column in data.X.T]
    n = next((n for n, is_one in enumerate(reversed(binary)) if not is_one), 0)
    if n == 0:
        return []
    names = [*map(str, data.feature_names[-n:]), data.target]
    return [
        f"the last {len(names)} columns are zeros and ones; if all are to be predicted, as labels "
        f"that an example has or has not, pass --labels {','.join(names)}"
    ]


def _columns(data, np):
    """Remarks on the columns of a table."""
    X, names = data.X, data.feature_names
    remarks = []
    if len(X) < 2:
        return remarks
    constant = [name for name, same in zip(names, (X == X[0]).all(axis=0), strict=True) if same]
    if constant:
        remarks.append(
            f"{len(constant)} column{' is' if len(constant) == 1 else 's are'} constant and "
            f"tell{'s' if len(constant) == 1 else ''} nothing: {listed(constant)}"
        )
    lines = np.arange(len(X))
    for place, name in enumerate(names):
        first = X[0, place]
        if len(X) > 2 and first in (0, 1) and (X[:, place] == first + lines).all():
            remarks.append(
                f"column {name or place + 1} counts the lines, and is taken for a feature; --drop "
                f"{name or place + 1} leaves it out"
            )
    return remarks


def _labels(data):
    y = data.y.values if hasattr(data.y, "offsets") else data.y
    if data.task == "graphs" and y.dtype.kind in "iu":
        y = y[y != -1]  # nodes without a label
    if hasattr(y, "tolist"):
        return y.tolist()
    return [label for labels in y for label in labels]


def _items(y):
    if y.ndim == 2:
        return [str(i) for i in range(y.shape[1])]
    return sorted(item.strip() for item in str(y[0]).split(">"))


def tell(report, data, *, features=None):
    """Say what was read, and what may be wrong with it."""
    found = facts(data)
    report.tell(printable(counted(data, features, found)))
    line = target(data, found)
    if line is not None:
        report.tell(printable(line))
    for remark in notes(data, found):
        report.note(remark)
    return found
