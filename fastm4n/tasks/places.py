"""Labels that bring levels along, and the places of errors that scikit-learn's validation found."""

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets


def placed(error, estimator, X, y=None):
    """An error of `validate_data` as one that names the place and the remedy."""
    said = str(error)
    if y is not None and np.ndim(X) == 1 and np.ndim(y) == 2:
        return ValueError(f"X has one dimension and y has two: call fit(X, y). {said}")
    if said.startswith("could not convert string to float"):
        found = _first(X, _is_no_number)
        if found is not None:
            place, value = found
            return ValueError(
                f"{said}: {place} is {value!r}. Features are numbers: leave the column out, or "
                "encode it, for example with OneHotEncoder.")
    elif said.startswith("Input X contains"):
        found = _first(X, _is_not_finite)
        if found is not None:
            place, value = found
            return ValueError(
                f"{said.splitlines()[0]} {place} is {float(value):g}. {type(estimator).__name__} "
                "takes finite numbers only: correct it, leave the row or the column out, or fill "
                "it in, for example with SimpleImputer.")
    elif said.startswith(("Input y contains", "Input contains NaN")) and y is not None:
        values = np.asarray(y)
        if values.ndim == 1:
            wrong = [i for i, label in enumerate(values.tolist()) if _is_not_finite(label)]
            if wrong:
                first = said.splitlines()[0].rstrip(".")
                first = first.replace("Input contains", "Input y contains")
                return ValueError(f"{first}. {_no_label(wrong[0], values[wrong[0]])}")
    elif "inconsistent numbers of samples" in said and y is not None:
        return _other_lengths(X, y, "a label")
    return error


def check_lengths(X, y, each="a label"):
    """Refuse a y of another number of examples than X. `each` describes an entry of y."""
    if n_examples(X) != n_examples(y):
        raise _other_lengths(X, y, each)


def check_listed(y):
    """Refuse NaN in a list of strings, of which NumPy makes a string."""
    if isinstance(y, (list, tuple)):
        for i, label in enumerate(y):
            if isinstance(label, float) and label != label:
                raise ValueError(f"Input y contains NaN. {_no_label(i, label)}")


def check_labels(y):
    """`check_classification_targets`, saying which label it is."""
    try:
        check_classification_targets(y)
    except (TypeError, ValueError):
        values = np.asarray(y)
        if values.ndim != 1:
            raise
        if values.dtype.kind == "O":
            missing = [i for i, label in enumerate(values.tolist()) if label is None]
            if missing:
                raise ValueError(_no_label(missing[0], None)) from None
        elif values.dtype.kind == "f" and not (values == np.floor(values)).all():
            place = int(np.flatnonzero(values != np.floor(values))[0])
            raise ValueError(
                f"Unknown label type: continuous. y[{place}] is {values[place]:g}, and the values "
                "of y are classes or levels: bin measurements, for example with numpy.digitize, "
                "and give names or whole numbers.") from None
        raise


def check_present(y):
    """Refuse labels that are missing among categories."""
    for i, label in enumerate(y.tolist()):
        if label is None or label != label:
            raise ValueError(_no_label(i, label))


def _other_lengths(X, y, each):
    lengths = n_examples(X), n_examples(y)
    return ValueError(
        f"Found input variables with inconsistent numbers of samples: {list(lengths)}: X has "
        f"{lengths[0]}, and y has {lengths[1]}. Give {each} for each row of X.")


def _no_label(place, label):
    return f"y[{place}] is {label}: each example needs a label; leave out those without one."


def _first(X, is_wrong):
    """The place and the value of the first wrong entry of X, or None."""
    if sparse.issparse(X):
        X = X.tocsr()
        k = next((k for k, value in enumerate(X.data.tolist()) if is_wrong(value)), None)
        if k is None:
            return None
        row = int(np.searchsorted(X.indptr, k, side="right")) - 1
        return f"X[{row}, {int(X.indices[k])}]", X.data[k]
    names = getattr(X, "columns", None)
    values = np.asarray(X)
    if values.ndim != 2:
        return None
    for i, row in enumerate(values):
        if values.dtype.kind == "f" and np.isfinite(row).all():
            continue
        for j, value in enumerate(row.tolist()):
            if is_wrong(value):
                named = "" if names is None else f", column {names[j]!r}"
                return f"X[{i}, {j}]{named}", value
    return None


def _is_no_number(value):
    try:
        float(value)
    except (TypeError, ValueError):
        return True
    return False


def _is_not_finite(value):
    try:
        return not np.isfinite(float(value))
    except (TypeError, ValueError):
        return value is None


def n_examples(values):
    """How many examples, or rows, there are."""
    return values.shape[0] if hasattr(values, "shape") else len(values)


# ------------------------------------------------------------------------------ levels


def levels_of(y):
    """The levels of ordered categories, lowest first, with unused ones. None for any other y.

    Ordered categories are a `pandas.CategoricalDtype` or an Arrow dictionary with `ordered` set, or
    a `polars.Enum`, in a vector or in the only column of a table.
    """
    columns = getattr(y, "columns", None)
    if columns is not None:
        if len(columns) != 1:
            return None
        y = columns[0] if hasattr(columns[0], "type") else y[columns[0]]
    dtype = getattr(y, "dtype", None)
    # of Arrow, and of Arrow in pandas
    kind = getattr(dtype, "pyarrow_dtype", getattr(y, "type", None))
    if getattr(dtype, "ordered", False) or type(dtype).__name__ == "Enum":
        levels = dtype.categories
    elif getattr(kind, "ordered", False):
        y = y.array.__arrow_array__() if dtype is not None else y
        chunks = [chunk for chunk in getattr(y, "chunks", [y]) if len(chunk)]
        levels = chunks[0].dictionary if chunks else ()
        for i, chunk in enumerate(chunks):
            if not chunk.dictionary.equals(levels):
                raise ValueError(
                    f"Chunk {i} of y has other levels than chunk 0, {chunk.dictionary.to_pylist()} "
                    f"and {levels.to_pylist()}: give one dictionary for all, lowest level first.")
    else:
        return None
    levels = np.asarray(levels)
    if None in levels.tolist() or len(set(levels.tolist())) < levels.size:
        raise ValueError(f"The levels of y are {levels.tolist()}: leave out what is twice or None.")
    return levels


def places(labels, classes):
    """The index of each label in the classes, which may have any order, or -1."""
    labels = np.asarray(labels)
    if "O" in (labels.dtype.kind, classes.dtype.kind):
        where = {label: i for i, label in enumerate(classes.tolist())}
        return np.array([where.get(label, -1) for label in labels.tolist()], dtype=np.intp)
    order = np.argsort(classes, kind="stable")
    found = np.minimum(np.searchsorted(classes, labels, sorter=order), classes.size - 1)
    return np.where(classes[order[found]] == labels, order[found], -1)
