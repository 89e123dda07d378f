"""Descriptions of data, for reports before a fit and for ``fastm4n info``."""

from collections import Counter

from fastm4n.cli import _labels
from fastm4n.cli._output import counted, listed, printable
from fastm4n.cli._tables import may_be_number

# labels that are listed with their counts
MOST_LABELS = 8
# a numeric target with more values than this, each of few examples, is hardly one of classes
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
        found["size"] = max(map(len, data.y), default=0)
    elif data.task == "multilabel":
        y = data.y.toarray() if hasattr(data.y, "tocsr") else data.y
        found["labels"] = dict(zip(
            map(str, data.reading["labels"]), map(int, y.sum(axis=0).tolist()), strict=True))
    elif data.task == "rankings":
        from fastm4n.data._preferences import read_preferences

        found["items"] = list(map(str, read_preferences(data.y).items.tolist()))
    else:
        counts = Counter(_labels.each(data.y))
        if data.task == "graphs":
            counts.pop(-1, None)  # nodes without a label
        spelling = data.reading.get("spelling", {})
        found["labels"] = {
            spelling.get(str(label), str(label)): counts[label]
            for label in sorted(counts, key=_labels.by_number)}
    return found


def n_tokens(data):
    if data.task != "sequences":
        return None
    return data.X.n_tokens if hasattr(data.X, "n_tokens") else sum(map(len, data.X))


def of_graphs(data):
    """Numbers of nodes, edges and features of edges. Empty for other outputs."""
    if data.task != "graphs":
        return {}
    X = data.X
    return {
        "n_nodes": X.n_nodes, "n_edges": X.n_edges,
        "n_edge_features": 0 if X.edge_features is None else X.edge_features.shape[1],
    }


def n_features(data):
    """Number of features, or None before a vectorizer makes them of attributes."""
    return None if data.needs_vectorizer else width(data.X)


def width(X):
    """Number of columns of an estimator's X."""
    if hasattr(X, "node_features"):
        return X.node_features.shape[1]
    if isinstance(X, list):
        return X[0].shape[-1]
    return (X.values if hasattr(X, "offsets") else X).shape[-1]


def counts(data, features=None, found=None):
    """A line with the numbers of examples, parts, features and labels."""
    one = "example" if data.task in ("classes", "ordered", "multilabel") else data.task[:-1]
    text = f"{data.name}: {counted(data.n_examples, one)}"
    if n_tokens(data) is not None:
        text += f" of {counted(n_tokens(data), 'token')}"
    parts = of_graphs(data)
    if parts:
        text += f" of {counted(parts['n_nodes'], 'node')} and {counted(parts['n_edges'], 'edge')}"
    features = n_features(data) if features is None else features
    if features is not None:
        text += f", {counted(features, 'feature')}"
    found = found or {}
    if "labels" in found:
        names = {"ordered": ("level",), "classes": ("class", "classes")}
        text += f", {counted(len(found['labels']), *names.get(data.task, ('label',)))}"
    if "items" in found:
        text += f", {counted(len(found['items']), 'item')}"
    return text


def _target(data, found):
    """A line about the target."""
    column = f"column {data.target}" if data.target.isdecimal() else data.target
    text = f"target: {column}" + (f", {data.why}" if data.why else "")
    if "labels" in found:
        labels = [f"{label}: {n}" for label, n in found["labels"].items()]
        text += f"; {listed(labels, MOST_LABELS)}"
    elif "items" in found:
        text += f"; items {', '.join(found['items'][:2 * MOST_LABELS])}"
    return text


def notes(data, found):
    """Remarks on guesses that may be wrong, and on what will not help."""
    import numpy as np

    remarks = list(data.notes)
    labels = found.get("labels", {})
    values = list(map(_labels.value_of, labels))
    if data.task == "classes" and values and None not in values and data.target is not None:
        if len(labels) > MANY_VALUES and data.n_examples < FEW_EXAMPLES * len(labels) or (
            len(labels) > MOST_LABELS and not all(isinstance(value, int) for value in values)
        ):
            remarks.append(
                f"the target {data.target} has {len(labels)} different numbers, and each is taken "
                "for a class of its own; bin them if they are measurements, or choose another "
                "column by --target")
        elif len(labels) > 2 and data.why == "by its name" and data.y.dtype.kind == "U":
            remarks.append(
                f"the target {data.target} is numbers, taken for classes without an order; pass "
                "--task ordered if they are levels")
    if data.task == "classes" and data.y.dtype.kind == "U":
        words = [label for label in labels if not may_be_number(label)]
        if words and 2 * sum(labels[label] for label in words) < data.n_examples:
            place = next(i for i, label in enumerate(data.y) if not may_be_number(label))
            remarks.append(
                f"the target {data.target} is numbers except for {listed(words)}, first in example "
                f"{place + 1}, and each is taken for a class; correct the file if that is a slip")
    if data.task == "sequences" and len(labels) > MANY_LABELS and (
        n_tokens(data) < FEW_EXAMPLES * len(labels)
    ):
        remarks.append(
            f"the target has {len(labels)} different labels, which takes weights of as many times "
            "all features, and of their pairs; choose another column by --target if these are words"
        )
    X, names = data.X, data.feature_names
    if names is None:
        return remarks
    if len(X) > 1:
        constant = [
            name for name, same in zip(names, (X == X[0]).all(axis=0), strict=True) if same]
        if constant:
            columns = counted(len(constant), "column is", "columns are")
            remarks.append(f"{columns} constant and of no use: {listed(constant)}")
    if len(X) > 2:
        for number, (name, column) in enumerate(zip(names, X.T, strict=True), 1):
            name = name or number
            if column[0] in (0, 1) and (column == column[0] + np.arange(len(X))).all():
                remarks.append(
                    f"column {name} counts the lines, and is taken for a feature; --drop {name} "
                    "leaves it out")
    if data.task == "classes" and data.why == "the last column" and set(data.y.tolist()) == {
            "0", "1"}:
        # columns of zeros and ones just before such a target
        binary = [{0, 1} == set(column.tolist()) for column in X.T]
        n = next((n for n, is_binary in enumerate(reversed(binary)) if not is_binary), 0)
        if n:
            remarks.append(
                f"the last {n + 1} columns are zeros and ones; if all of them are labels to "
                f"predict, pass --labels {','.join([*map(str, names[-n:]), data.target])}")
    return remarks


def tell(report, data, *, features=None):
    """Report the data, with remarks on possible mistakes."""
    found = facts(data)
    report.tell(printable(counts(data, features, found)))
    if data.target is not None:
        report.tell(printable(_target(data, found)))
    for remark in notes(data, found):
        report.note(remark)
