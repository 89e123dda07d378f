"""Describe a file of data, a model or a path.

For data: how they are read, the target, the numbers of examples, features and classes, and the
range of each column. For a model or a path: its task, its inputs, and its certificate. Nothing in
a file is executed.

examples:
  fastm4n info table.csv
      before a fit: is the target the right column, are classes and features as expected?
  fastm4n info table.csv --target kind --drop id
      with the options of the fit
  fastm4n info iris.fm4n
      the data of a model's fit, and its certificate
"""

from fastm4n.cli import _data, _labels, _models, _summary
from fastm4n.cli._arguments import add_data, add_output
from fastm4n.cli._output import CommandError, Report, printable

# columns of a table that are listed
MOST_COLUMNS = 40
MOST_LABELS = 26


def add(parser):
    add_data(parser, fitted=False)
    add_output(parser, progress=False)


def run(args):
    report = Report(args)
    file = _data.file_of(args)
    with report.notes():
        if file is not None and _models.is_file_of_ours(file):
            document = _of_file(file)
        elif file is not None and _models.is_file_of_crfsuite(file):
            from fastm4n.crfsuite import load_model

            document = _of_model(file, load_model(file), {})
        else:
            document = of_data(_data.read(args))
            for remark in document["notes"]:
                report.note(remark)
    tell(report, document)
    report.finish(document)
    return 0


# ----------------------------------------------------------------------------------- data


def of_data(data):
    """A dict that describes data."""
    found = _summary.facts(data)
    document = {
        "kind": "data", **found, "format": data.reading.get("format"),
        "target_found": data.why or None, "notes": _summary.notes(data, found),
    }
    if "header" in data.reading:
        document["header"] = data.reading["header"]
    if data.feature_names is not None:
        document["columns"] = [
            {"name": name, "min": low, "max": high, "mean": mean}
            for name, low, high, mean in zip(
                data.feature_names, data.X.min(axis=0).tolist(), data.X.max(axis=0).tolist(),
                (data.X / len(data.X)).sum(axis=0).tolist(), strict=True)]
    elif data.needs_vectorizer:
        document["attributes"] = data.reading["attributes"]
        document["first_token"] = list(next(filter(None, data.X))[0])
    return document


# --------------------------------------------------------------------------------- models


def _of_file(file):
    from fastm4n.base.array_files import ModelFileError
    from fastm4n.models._files import read_model
    from fastm4n.path import RegularizationPath

    try:
        return _of_model(file, *read_model(file))
    except ModelFileError as error:
        try:
            path = RegularizationPath.load(file)
        except ModelFileError as other:
            # the file is of one kind or the other: take the error that is not about the kind
            told = other if "not a 'model'" in str(error) else error
            raise CommandError(str(told)) from error
        return _of_path(file, path)


def _of_model(file, model, metadata):
    before, estimator = _models.split(model)
    reading = metadata.get("reading")
    reading = reading if isinstance(reading, dict) else {}
    target, columns = reading.get("target"), reading.get("columns")
    if reading.get("format") == "conll":  # positions, which the command line counts from 1
        target, columns = f"column {target + 1}", [str(column + 1) for column in columns]
    document = {
        "kind": "model", "name": file, "task": estimator._task,
        "before": [] if before is None else [type(step).__name__ for _, step in before.steps],
        "fitted_on": reading.get("format"), "target": target, "columns": columns,
        "attributes": reading.get("attributes"), **_models.outcome(estimator),
        "parameters": {
            key: value for key, value in estimator.get_params().items()
            if isinstance(value, (str, int, float, bool)) or value is None
        },
        "description": _models.described(estimator),
    }
    weights = _models.n_weights(estimator)
    if weights is not None:
        document["n_nonzero"] = weights[0]
    labels = estimator._labels_attribute()
    if labels is not None:
        values = getattr(estimator, labels)
        document[labels.rstrip("_")] = _labels.as_read(reading, values).tolist()
    return document


def _of_path(file, path):
    estimator = path.estimator(path.alphas[0])
    columns = {
        "alpha": path.alphas, "relative_gap": path.relative_gaps, "gap": path.gaps,
        "passes": path.passes, "n_nonzero": path.n_nonzero}
    return {
        "kind": "path", "name": file, "task": estimator._task,
        "estimator": type(estimator).__name__, "n_features": estimator.n_features_in_,
        "method": path.method, "eps": path.eps, "complete": path.complete,
        "description": _models.described(estimator, alpha=False),
        "path": [
            dict(zip(columns, row, strict=True))
            for row in zip(*(values.tolist() for values in columns.values()), strict=True)],
    }


# ---------------------------------------------------------------------------------- words


def tell(report, document):
    """Print the document in lines."""
    width = max(len(_WORDS.get(key, key)) for key in _SHOWN) + 2
    # labels may have a name of their own
    own = [key for key, value in document.items() if type(value) is list and key not in _LISTS]
    columns = document.get("columns")
    for key in (*_SHOWN, *own):
        value = document.get(key)
        if value is None or value == [] or (
                key == "columns" and document["kind"] == "data"):  # in a table of their own
            continue
        if key == "target" and document.get("target_found"):
            value = f"{value}, {document['target_found']}"
        elif isinstance(value, (dict, list)):
            words = [f"{a}: {n}" for a, n in value.items()] if key == "labels" else list(
                map(str, value))
            value = ", ".join(words[:MOST_LABELS]) + (
                f", ... ({len(words)} in all)" if len(words) > MOST_LABELS else "")
        elif isinstance(value, bool):
            value = "yes" if value else "no"
        elif isinstance(value, float):
            value = f"{value:.6g}"
        report.result(f"{_WORDS.get(key, key.replace('_', ' ')):<{width}}{printable(str(value))}")
    if document["kind"] == "data" and columns:
        report.result()
        report.table(["feature", "min", "mean", "max"], [
            [column["name"], *(f"{column[key]:.5g}" for key in ("min", "mean", "max"))]
            for column in columns[:MOST_COLUMNS]])
        if len(columns) > MOST_COLUMNS:
            report.result(f"... {len(columns) - MOST_COLUMNS} more")
    if document["kind"] == "path":
        report.result()
        report.table(["alpha", "passes", "relative gap", "weights"], [
            [f"{point['alpha']:.4g}", str(point["passes"]), f"{point['relative_gap']:.2e}",
             str(point["n_nonzero"])]
            for point in document["path"]])


_SHOWN = (
    "name", "kind", "what", "format", "task", "description", "before", "fitted_on", "header",
    "target", "n_examples", "n_tokens", "n_nodes", "n_edges", "n_features", "n_edge_features",
    "size", "labels", "classes", "items", "columns", "attributes", "first_token", "method", "eps",
    "complete", "passes", "relative_gap", "gap", "primal", "n_nonzero",
)
# lists that are shown above, or as tables
_LISTS = {*_SHOWN, "path", "notes"}
_WORDS = {
    "kind": "holds", "what": "of", "description": "estimator", "header": "names in line 1",
    "n_examples": "examples", "n_tokens": "tokens", "n_nodes": "nodes",
    "n_edges": "edges", "n_features": "features", "n_edge_features": "features of edges",
    "primal": "objective", "relative_gap": "relative gap", "gap": "absolute gap",
    "before": "steps before", "n_nonzero": "weights not zero",
}
