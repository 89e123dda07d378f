"""Validation of costs, weights, features and labels, and the places of errors."""

import sys
import warnings
from copy import copy

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets

from fastm4n.base.checks import check_costs, check_number, refuse_where
from fastm4n.base.label_costs import COSTS, named_costs
from fastm4n.data._matchings import as_rows

DECODINGS = ("auto", "map", "min_risk")
# tolerance of the max-min oracles behind decode="min_risk"
RISK_TOL = 1e-6
# kinds of dtypes that labels may have
LABEL_KINDS = "USiufbO"


def warn_caller(message):
    """Warn at the line that called the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("fastm4n."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


def is_sorted_words(classes):
    """Whether classes are more than two words in alphabetical order."""
    are_words = classes.dtype.kind in "US" or all(
        isinstance(label, (str, bytes)) for label in classes.tolist())
    return are_words and classes.size > 2 and bool((classes[1:] > classes[:-1]).all())


def warn_of_order(cost, classes):
    """Say in which order costs of distances take labels that are no numbers."""
    distance = isinstance(cost, str) and cost != "zero_one"
    if distance and is_sorted_words(classes):
        shown = " < ".join(map(str, classes[:5].tolist())) + " ..." * (classes.size > 5)
        warn_caller(
            f"cost={cost!r} takes labels, which are no numbers, in the order of sorting, {shown}: "
            "pass a matrix of costs if they have another order, or cost='zero_one' if they have "
            "none.")


def cost_matrix(cost, n_labels, noun="classes"):
    """The (n_labels, n_labels) cost matrix of `cost`, a name or a matrix, validated.

    cost[i, j] is the cost of predicting the j-th label if the truth is the i-th. Errors call the
    labels `noun`. A named cost is a read-only view.
    """
    if isinstance(cost, str):
        if cost in COSTS:
            return named_costs(cost, n_labels)
        raise ValueError(f"cost must be one of {COSTS} or a cost matrix, got {cost!r}.")
    if callable(cost):
        raise ValueError(
            f"cost must be one of {COSTS} or a cost matrix, got the function {cost!r:.80}. Costs "
            "are sums over the parts of an output: give the matrix whose entry [i, j] is the cost "
            f"of predicting the j-th of the {n_labels} {noun} where the i-th is true.")
    try:
        if np.iscomplexobj(cost):
            raise TypeError("complex costs")
        matrix = np.array(cost, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"cost must be one of {COSTS} or a cost matrix: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"cost must be a square matrix of costs, got shape {matrix.shape}.")
    if matrix.shape[0] != n_labels:
        raise ValueError(
            f"cost is a {matrix.shape[0]} x {matrix.shape[0]} matrix, but y has {n_labels} {noun}; "
            "give one row and one column for each of them, in their order."
        )
    check_costs(matrix)
    return matrix


def check_weights(weights):
    """Refuse sample weights that are negative, or zero altogether."""
    refuse_where(weights < 0, "sample_weight", weights, "weights must be >= 0.")
    if not weights.any():
        raise ValueError("sample_weight is zero for every sample.")
    return weights


def as_weights(sample_weight, n, noun):
    """One finite weight >= 0 for each of n samples, not all 0. Errors call samples `noun`."""
    if sample_weight is None:
        return np.ones(n)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight must have shape ({n},), one weight for each {noun}; got "
            f"{weights.shape}."
        )
    refuse_where(~np.isfinite(weights), "sample_weight", weights, "weights must be finite.")
    return check_weights(weights)


def as_objects(parts):
    """Arrays of examples in one array, which can be concatenated whatever their sizes."""
    parts = as_rows(parts)
    objects = np.empty(len(parts), dtype=object)
    for b, part in enumerate(parts):
        objects[b] = np.asarray(part)
    return objects


def cost_factors(name, given, surrogate, more=""):
    """Factors of costs: finite numbers >= 0 in an array of any shape.

    Parameters
    ----------
    name : str
        The argument, for errors.
    given : array-like
    surrogate : surrogate
        One without costs in the fit is refused.
    more : str, default=""
        Further advice then.
    """
    if surrogate.name == "log" and not surrogate.cost_augmented:
        raise ValueError(
            f"{name} multiplies costs, and surrogate='log' has none in the fit: use 'max_margin', "
            f"'max_min' or Log(cost_augmented=True).{more}")
    try:
        factors = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from error
    refuse_where(
        ~(np.isfinite(factors) & (factors >= 0.0)), name, factors,
        "weights must be finite and >= 0.")
    return factors


def check_class_weight(class_weight):
    """Refuse a `class_weight` that is not None, "balanced" or a dict of positive numbers."""
    if isinstance(class_weight, dict):
        for label, factor in class_weight.items():
            check_number(f"class_weight[{label!r}]", factor, low=0)
    elif class_weight is not None and not (
            isinstance(class_weight, str) and class_weight == "balanced"):
        raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {class_weight!r}.")


def declared_classes(classes, name="classes"):
    """The labels of the parameter `classes` in a list, None if it is None."""
    if classes is None:
        return None
    given = None if isinstance(classes, (str, bytes, dict)) or not hasattr(
        classes, "__iter__") else list(np.asarray(classes).tolist() if isinstance(
            classes, np.ndarray) else classes)
    try:
        is_set = given is not None and len(set(given)) == len(given) > 0
    except TypeError:
        is_set = False
    if not is_set or any(label is None or label != label for label in given):
        raise ValueError(f"{name} must be a list of distinct labels, got {classes!r:.80}.")
    return given


def unknown_label(label, classes):
    """The error of a label that is not among the classes."""
    return ValueError(
        f"y has the label {label!r}, which is not among the classes, "
        f"{', '.join(sorted(map(repr, classes))):.200}: give all labels as `classes`.")


def class_factors(class_weight, classes, mass):
    """A factor for each class, by the parameter `class_weight`.

    mass() has the sum of the weights of each class, which "balanced" makes equal.
    """
    check_class_weight(class_weight)
    if class_weight is None:
        return np.ones(classes.size)
    if not isinstance(class_weight, dict):
        masses = mass()
        return masses.sum() / (np.count_nonzero(masses) * np.where(masses > 0, masses, 1.0))
    factors = np.ones(classes.size)
    where = {label: i for i, label in enumerate(classes.tolist())}
    for label, factor in class_weight.items():
        if label not in where:
            raise ValueError(
                f"class_weight names the class {label!r}, which is not in y; its classes "
                f"are {classes.tolist()}."
            )
        factors[where[label]] = factor
    return factors


def check_norms(norms, alpha, name, scaler="StandardScaler"):
    """Refuse squared norms of features that overflow over alpha.

    Parameters
    ----------
    norms : ndarray
    alpha : float
    name : callable
        The name of a row in errors, by the places of all that are too large.
    scaler : str
    """
    with np.errstate(over="ignore", invalid="ignore"):
        large = np.flatnonzero(~np.isfinite(norms / alpha))
    if large.size:
        raise ValueError(
            f"X has values too large for float64: the squared norm of {name(large)} divided by "
            f"alpha={alpha:g} overflows. Scale the features, for example with {scaler}.")


def strongest(weights, n):
    """Places of the n largest positive and the n smallest negative weights, largest first."""
    flat = np.ascontiguousarray(weights).ravel()
    n = min(n, flat.size)
    largest, smallest = np.argpartition(-flat, n - 1)[:n], np.argpartition(flat, n - 1)[:n]
    ends = np.sort(np.concatenate([largest[flat[largest] > 0], smallest[flat[smallest] < 0]]))
    ends = ends[np.argsort(-flat[ends], kind="stable")]
    return [tuple(map(int, np.unravel_index(k, np.shape(weights)))) for k in ends]


def warn_of_unknown(labels, classes, stacklevel=3):
    """Warn of labels to be scored that no prediction can match."""
    known = set(classes.tolist())
    unknown = sorted({label for label in labels if label not in known}, key=repr)
    if unknown:
        shown = ", ".join(map(repr, unknown[:5]))
        warnings.warn(
            f"y has labels that are not in classes_ ({shown}); no prediction can match them.",
            UserWarning,
            stacklevel=stacklevel,
        )


def summable(weights):
    """weights, scaled if their sum overflows. Only ratios matter."""
    with np.errstate(over="ignore"):
        return weights if np.isfinite(weights.sum()) else weights / weights.max() / weights.size


def frozen_copy(X):
    """A read-only copy of a dense or CSR matrix, which nothing changes any more."""
    X = X.copy()
    for array in _arrays(X):
        array.flags.writeable = False
    return X


def is_frozen(X):
    """Whether X is of arrays of its own that are read-only."""
    return not any(array.flags.writeable or array.base is not None for array in _arrays(X))


def _arrays(X):
    return (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,)


def canonical(X, long_indices=False):
    """CSR with sorted int32 indices without duplicates. Dense arrays are returned unchanged.

    With long_indices 64-bit indices stay.
    """
    if not sparse.issparse(X):
        return X
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if X.shape[1] >= 2**31:
        raise ValueError(f"X has {X.shape[1]} features; at most {2**31 - 1} are supported.")
    if X.indices.dtype != np.int32 and not (long_indices and X.indices.dtype == np.int64):
        indices = X.indices.astype(np.int32)
        X = copy(X)  # which shares the other arrays
        X.indices = indices
    return X


# ------------------------------------------------------------- the places of errors


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
