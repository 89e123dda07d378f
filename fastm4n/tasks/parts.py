"""Fits of data in parts: what one part says, what all say together, and problems of one part.

A part cannot make its problem alone: which labels there are, how many examples alpha="auto" goes
by, and the weights of classes are those of all parts. `Census` is what a part says of that, `Whole`
what they say together, which the estimator of each part has as its `_whole` when it makes the
problem.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight, column_or_1d

from fastm4n.data._rankings import read_rankings
from fastm4n.solvers.choice import as_solver
from fastm4n.tasks.chain_input import as_features, as_labels, distinct
from fastm4n.tasks.graph_input import as_graphs, as_node_labels, is_unlabelled, number_of
from fastm4n.tasks.indicators import AN_INDICATOR, read_indicator
from fastm4n.tasks.label_graphs import pair_counts
from fastm4n.tasks.levels import places
from fastm4n.tasks.parameters import as_weights, check_weights
from fastm4n.tasks.places import check_labels, check_lengths, check_present

# labels of these kinds of dtypes are the same ones whatever the dtype
_KINDS = {"U": "strings", "S": "bytes", "b": "booleans", "i": "integers", "u": "integers",
          "f": "floats", "O": "objects"}


@dataclass
class Census:
    """What one part says of its examples.

    Attributes
    ----------
    n_examples : int
        Those that count: of non-zero weight, and not empty.
    labels : ndarray, set or None
        Those of the examples that count; None where labels have no names.
    same : dict of str to object
        What all parts have to agree on, by what errors call it.
    sums : dict of str to object
        What is added up over the parts: arrays and numbers.
    mass : ndarray or None
        The weight of each of `labels`.
    n_types, n_edge_types : int
        Of nodes and edges of graphs; `typed` are the pairs of a type and a label that occur.
    size : int
        Of the largest example, where costs go by it.
    """

    n_examples: int
    labels: object = None
    same: dict = field(default_factory=dict)
    sums: dict = field(default_factory=dict)
    mass: np.ndarray = None
    n_types: int = 1
    n_edge_types: int = 1
    typed: set = field(default_factory=set)
    size: int = 0


@dataclass
class Whole:
    """What all parts say together; the attributes are those of `Census`."""

    n_examples: int
    labels: object
    same: dict
    sums: dict
    mass: np.ndarray
    n_types: int
    n_edge_types: int
    typed: set
    size: int


def merged(censuses, name="partition", numbers=None):
    """The `Whole` of parts; errors tell by `name` and number which does not agree.

    Parameters
    ----------
    censuses : list of Census
        At least one.
    name : str
    numbers : sequence of int, default=None
        Of the parts; from 0 on by default.
    """
    numbers = range(len(censuses)) if numbers is None else numbers
    for what in censuses[0].same:
        _check_equal(what, [census.same.get(what) for census in censuses], name, numbers)
    sums = {}
    for key in censuses[0].sums:
        total = censuses[0].sums[key]
        for census in censuses[1:]:
            total = total + census.sums[key]
        if not np.isfinite(total).all():
            raise ValueError(
                "sample_weight is too large: its sum over all partitions overflows. Only ratios of "
                "weights matter, divide them by a number.")
        sums[key] = total
    whole = Whole(
        sum(census.n_examples for census in censuses), None, censuses[0].same, sums, None,
        max(census.n_types for census in censuses),
        max(census.n_edge_types for census in censuses),
        set().union(*(census.typed for census in censuses)),
        max(census.size for census in censuses))
    if whole.n_examples == 0:
        raise ValueError("No partition has an example of non-zero weight that is not empty.")
    labels = [census.labels for census in censuses]
    if isinstance(labels[0], np.ndarray):
        levels = whole.same.get("levels")
        whole.labels = levels if levels is not None else np.unique(
            np.concatenate([part for part in labels if part.size]))
        whole.mass = np.zeros(whole.labels.size)
        for census in censuses:
            whole.mass[places(census.labels, whole.labels)] += census.mass
        there = whole.labels[whole.mass > 0]
    elif labels[0] is not None:
        _check_types(labels, name, numbers)
        there = whole.labels = set().union(*labels)
    if whole.labels is not None and len(there) < 2:
        raise ValueError(
            f"y has one label only, {next(iter(there))!r}, in all partitions; at least two are "
            "needed.")
    return whole


def _check_equal(what, values, name, numbers):
    for number, value in zip(numbers, values, strict=True):
        if value is None or values[0] is None:
            same = value is values[0]
        else:
            same = np.array_equal(value, values[0])
        if not same:
            raise ValueError(
                f"{name} {number} has {what} {value!s:.80}, but {name} {numbers[0]} has "
                f"{values[0]!s:.80}: all must have the same.")


def _check_types(labels, name, numbers):
    """Refuse parts that have all labels of one type each, of two types."""
    first = None
    for number, part in zip(numbers, labels, strict=True):
        types = {type(label).__name__ for label in part}
        if len(types) != 1:
            continue
        found = types.pop()
        if first is None:
            first = number, found
        elif found != first[1]:
            raise ValueError(
                f"{name} {number} has labels of type {found}, but {name} {first[0]} of type "
                f"{first[1]}: labels of all must be of one type.")


# ------------------------------------------------------------------------- one part


def _of_rows(X):
    return {"columns": X.shape[1], "rows that are": "sparse" if sparse.issparse(X) else "dense"}


def _vectors(estimator, X, sample_weight):
    """Canonical rows, what they must agree on, their weights and which of them count."""
    X = estimator._validated(X)
    weights = check_weights(_check_sample_weight(sample_weight, X, dtype=np.float64))
    kept = np.flatnonzero(weights)
    same = _of_rows(X)
    same["feature names"] = getattr(estimator, "feature_names_in_", None)
    return X, same, weights, kept


def class_census(estimator, X, y, sample_weight=None):
    """The `Census` of examples with one label each."""
    X, same, weights, kept = _vectors(estimator, X, sample_weight)
    if y is None:
        raise ValueError("y is missing: each example needs a label.")
    same["levels"] = estimator._levels_of(y)
    if same["levels"] is None:
        check_labels(y)
    y = column_or_1d(y, warn=True)
    check_lengths(X, y)
    same["labels that are"] = _KINDS.get(y.dtype.kind, y.dtype.name)
    if same["levels"] is not None:
        check_present(y)
    labels, numbers = np.unique(y[kept], return_inverse=True)
    mass = np.bincount(numbers, weights=weights[kept], minlength=labels.size)
    return Census(kept.size, labels, same, {"weight": weights.sum()}, mass)


def ranking_census(estimator, X, y, sample_weight=None):
    """The `Census` of examples with a ranking each."""
    X, same, weights, kept = _vectors(estimator, X, sample_weight)
    if y is None:
        raise ValueError("y is missing: each example needs a ranking.")
    places, items, form, base = read_rankings(y, estimator.form)
    check_lengths(X, places, "a ranking")
    same.update({"items": items, "rankings in the form": form, "ranks from": base})
    return Census(kept.size, None, same, {"weight": weights.sum()})


def label_set_census(estimator, X, y, sample_weight=None):
    """The `Census` of examples with a set of labels each."""
    X, same, weights, kept = _vectors(estimator, X, sample_weight)
    if y is None:
        raise ValueError(f"y is missing: each example needs {AN_INDICATOR}.")
    Y, names, kind, dtype = read_indicator(y)
    check_lengths(X, Y, AN_INDICATOR)
    same.update({"labels": names, "indicators that are": kind, "indicators of dtype": dtype})
    return Census(kept.size, None, same, {
        "weight": weights.sum(), "pairs": pair_counts(Y[kept], weights[kept])})


def sequence_census(estimator, X, y, sample_weight=None):
    """The `Census` of sequences."""
    if y is None:
        raise ValueError("y is missing: each sequence needs its labels.")
    X = as_features(X, None)
    labels = as_labels(y, X, None)
    weights = as_weights(sample_weight, len(X), "sequence")
    counts = (weights > 0) & (X.lengths > 0)
    if not counts.all():
        of_positions = np.repeat(counts, X.lengths).tolist()
        labels = [label for label, kept in zip(labels, of_positions, strict=True) if kept]
    return Census(
        int(counts.sum()), distinct(labels), _of_rows(X.values), {"weight": weights.sum()})


def graph_census(estimator, X, y, sample_weight=None):
    """The `Census` of graphs."""
    if y is None:
        raise ValueError("y is missing: the nodes of each graph need labels.")
    X = as_graphs(X)
    labels = as_node_labels(y, X)
    weights = as_weights(sample_weight, len(X), "graph")
    graphs = np.repeat(np.arange(len(X)), X.lengths)
    told = np.array([not is_unlabelled(label) for label in labels], dtype=bool)
    told &= weights[graphs] > 0
    types = np.zeros(told.size, dtype=np.intp) if X.node_types is None else X.node_types
    pairs = {(int(types[node]), labels[node]) for node in np.flatnonzero(told).tolist()}
    same = _of_rows(X.node_features)
    same["columns of edges"] = None if X.edge_features is None else X.edge_features.shape[1]
    same["types of nodes"] = "none" if X.node_types is None else "given"
    same["types of edges"] = "none" if X.edge_types is None else "given"
    return Census(
        np.unique(graphs[told]).size, {label for _, label in pairs}, same,
        {"weight": weights.sum()}, None, number_of(X.node_types), number_of(X.edge_types), pairs)


# ----------------------------------------------------------------------- parameters


def check_divisible(estimator):
    """Refuse parameters under which a problem is no sum over parts of the data.

    Parameters
    ----------
    estimator : CertifiedEstimator
    """
    def refuse(what, instead):
        raise ValueError(f"{what} is not supported for data in partitions: {instead}.")

    estimator._check_parameters()
    values = estimator.get_params(deep=False)
    if values.get("kernel", "linear") != "linear":
        refuse(
            f"kernel={values['kernel']!r:.40}",
            "each value of a kernel is of two examples, which may be in two partitions; use "
            "kernel='linear' on features of sklearn.kernel_approximation.Nystroem")
    if values.get("fit_intercept") == "free":
        refuse("fit_intercept='free'", "a large number, such as fit_intercept=100.0, is nearly it")
    if values.get("states", "all") != "all":
        refuse(f"states={values['states']!r}", "use states='all', with an L1 term for few weights")
    if values.get("order", 1) > 1:
        refuse(f"order={values['order']}", "use order=1")
    if values.get("pairwise") == "displacement":
        refuse("pairwise='displacement'", "use another one, or GraphTagger")
    if values.get("inference") == "soft":
        refuse("inference='soft'", "use inference='lp'")
    if values["warm_start"]:
        refuse("warm_start=True", "fit anew")
    if estimator._is_pure_l1():
        refuse(
            f"penalty={values['penalty']!r}",
            "use an elastic net of l1_ratio=0.99, which has a certificate")
    solver = as_solver(estimator.solver)
    if not solver.solves_parts:
        refuse(f"solver={type(solver).__name__}()", "use solver='auto'")
    if getattr(solver, "step", None) == "fixed":
        refuse("step='fixed'", "use step='line_search'")
