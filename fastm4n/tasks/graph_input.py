"""Input of graph labelling: checked graphs and labels, and matrices of features."""

from numbers import Real
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fastm4n.base.checks import is_number
from fastm4n.base.label_costs import dearest_of
from fastm4n.data._graphs import Graphs
from fastm4n.features import row_norms
from fastm4n.tasks.chain_input import distinct, encode
from fastm4n.tasks.parameters import canonical, check_norms, declared_classes

# the label of nodes that have none
UNLABELLED = -1
# numbers of types up to which any may be left out: a limit of memory, as weights have all of them
MANY_TYPES = 1 << 16


class Rows(NamedTuple):
    """A matrix of features for the compiled loops, and the value of its constant feature."""

    values: object
    intercept: float


def as_graphs(X, check=True):
    """`Graphs` of themselves, or of a list of tuples.

    Without `check` nothing is read of those on disk.
    """
    if not isinstance(X, Graphs):
        if isinstance(X, np.ndarray) and X.dtype == object:
            # tuples of equally many arrays have become rows
            X = [tuple(graph) if isinstance(graph, np.ndarray) else graph for graph in X]
        elif isinstance(X, np.ndarray) or sparse.issparse(X):
            images = isinstance(X, np.ndarray) and X.ndim > 2
            raise ValueError(
                "X must be Graphs, or a list with (node_features, edges) or (node_features, edges, "
                "edge_features) for each graph." + (
                    " Images become graphs by Graphs.from_grid(X)." if images else ""))
        X = Graphs.from_list(X)
    if len(X) == 0:
        raise ValueError("X has no graphs.")
    if not check:
        return X
    X._check_rows()
    if X.node_features.shape[1] == 0:
        raise ValueError("X has no features of nodes: its matrices have no columns.")
    return X


def floats(values):
    """float32 or float64, C-ordered or canonical CSR."""
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    return canonical(values) if sparse.issparse(values) else np.ascontiguousarray(values)


def step_norms(X):
    """Upper bounds of the squared change of alpha w in a step of each graph."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = _squares(X.node_features, X.node_offsets)
        if X.edge_features is not None:
            squares = squares + _squares(X.edge_features, X.edge_offsets)
        return 4.0 * (X.lengths + X.edge_lengths) * squares


def check_sizes(norms, alpha, numbers):
    """Refuse features whose weights would overflow, by `step_norms` of graphs of these numbers."""
    check_norms(
        norms, alpha, lambda large: f"X[{numbers[large[0]]}], its features of nodes and of edges,")


def _squares(values, offsets):
    """Sums of the squared features of the rows of each graph."""
    of_rows = row_norms(floats(values), 0.0)
    return np.bincount(
        np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), of_rows, len(offsets) - 1)


def sums_of_weights(X):
    """The weights of the nodes of each graph, of which none is empty, added up."""
    if X.node_weights is None:
        return X.lengths.astype(np.float64)
    with np.errstate(over="ignore"):
        return np.add.reduceat(X.node_weights, X.node_offsets[:-1])


def check_costs(of_weights, cost, numbers):
    """Refuse costs whose sum over a graph overflows.

    Parameters
    ----------
    of_weights : ndarray
        The result of `sums_of_weights`.
    cost : ndarray
    numbers : ndarray of int
        Numbers of the graphs.
    """
    with np.errstate(over="ignore"):
        sums = dearest_of(cost).max() * of_weights
        large = np.flatnonzero(~np.isfinite(4.0 * sums.sum() + 4.0 * sums))
    if large.size:
        raise ValueError(
            f"The costs of X[{numbers[large[0]]}], added up over its nodes with their weights, "
            "are too large for float64: divide cost or node_weights by a number.")


def by_type(values, types, n_types, constant):
    """Rows whose columns belong to one type each: each type has its own weights.

    Parameters
    ----------
    values : matrix of shape (n, d)
    types : ndarray of int of shape (n,), or None for one type
    n_types : int
    constant : float
        Value of the constant feature of each row.

    Returns
    -------
    rows : Rows
        Columns type * d + column, and behind them, where there are several types or no columns,
        one constant for each type; else the constant feature is the map's own.
    """
    n, d = values.shape
    if n_types == 1 and d > 0:
        return Rows(floats(values), constant)
    types = np.zeros(n, dtype=np.intp) if types is None else types.astype(np.intp)
    constants = sparse.csr_array(
        (np.full(n, constant), n_types * d + types, np.arange(n + 1)),
        shape=(n, n_types * (d + 1)))
    given = canonical(sparse.csr_array(values.astype(np.float64)))
    spread = sparse.csr_array(
        (given.data, given.indices + d * np.repeat(types, np.diff(given.indptr)), given.indptr),
        shape=constants.shape)
    return Rows(canonical(sparse.csr_array(spread + constants)), 0.0)


def check_labels_of_graphs(y, X):
    """Check that y has an entry for each graph."""
    if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__len__"):
        raise ValueError("y must be a list with the labels of the nodes of each graph of X.")
    if len(y) != len(X):
        remedy = "" if len(y) != X.n_nodes else (
            " Give [y]." if len(X) == 1 else
            " Cut the labels of all nodes by Sequences(y, graphs.node_offsets).")
        raise ValueError(
            f"y has the labels of {len(y)} graphs, but X has {len(X)}.{remedy}")


def declared_labels(classes, ignore_label=None):
    """The sets of labels of each type of node by the parameter `classes`, of all types at None.

    None if no classes are declared.
    """
    void = UNLABELLED, ignore_label
    if isinstance(ignore_label, (list, set, dict, np.ndarray)) or ignore_label != ignore_label:
        raise ValueError(f"ignore_label must be a label or None, got {ignore_label!r:.80}.")
    if classes is None:
        return None
    found = {}
    for of_type, given in (classes if isinstance(classes, dict) else {None: classes}).items():
        name = "classes" if of_type is None else f"classes[{of_type!r}]"
        if of_type is not None and not is_number(of_type, low=0, strict=False, integer=True):
            raise ValueError(
                f"classes has the key {of_type!r:.80}, and types of nodes are 0, 1, ...")
        labels = declared_classes(given, name)
        found[of_type] = set(labels)
        for label in labels:
            if any(other is not None and is_same(label, other) for other in void):
                raise ValueError(f"{name} has {label!r:.80}, which is the mark of no label.")
    if len(set().union(*found.values())) < 2:
        raise ValueError(f"classes must be at least two labels, got {classes!r:.80}.")
    return found


def is_same(label, other):
    """Whether two labels are equal. True and 1 are two labels."""
    return bool(label == other) and isinstance(label, bool) == isinstance(other, bool)


def as_node_labels(y, X, first=0, ignore_label=None, declared=None):
    """The labels of all nodes in one list, after checking that they fit the graphs.

    Errors call the first of the graphs `first`. Nodes of `ignore_label` become unlabelled. Others
    have the labels of `declared_labels`, if there are any.
    """
    check_labels_of_graphs(y, X)
    labels, lengths = [], X.lengths
    for i, part in enumerate(y, first):
        if isinstance(part, (str, bytes)) or not hasattr(part, "__iter__"):
            raise ValueError(f"y[{i}] must be the labels of nodes, got {part!r:.80}.")
        n_nodes = lengths[i - first]
        if isinstance(part, np.ndarray) and part.ndim > 1 and part.size == n_nodes:
            raise ValueError(
                f"y[{i}] has the shape {part.shape}: give the labels of the nodes one after "
                f"another, y[{i}].ravel().")
        part = part.tolist() if isinstance(part, np.ndarray) else list(part)
        if len(part) != n_nodes:
            raise ValueError(
                f"y[{i}] has {len(part)} labels, but X[{i}] has {n_nodes} nodes.")
        for node, label in enumerate(part):
            if label is None or isinstance(label, (list, np.ndarray)) or label != label:
                raise ValueError(
                    f"y[{i}] has {label!r:.80} at node {node}: not a label. Nodes without a label "
                    f"have {UNLABELLED}.")
        if ignore_label is not None:
            part = [UNLABELLED if is_same(label, ignore_label) else label for label in part]
        if declared is not None:
            start = X.node_offsets[i - first]
            types = None if X.node_types is None else X.node_types[start : start + n_nodes]
            _check_declared(part, types, declared, i)
        labels += part
    return labels


def check_marks(y, ignore_label, first=0):
    """Refuse marks of no label in arrays of strings, if others of these are no numbers.

    Errors call the first of the graphs `first`.
    """
    for i, part in enumerate(y, first):
        if not isinstance(part, np.ndarray) or part.dtype.kind != "U":
            continue
        given = set(part.tolist())
        marks = given & {str(UNLABELLED), str(ignore_label)} - {ignore_label}
        if marks and not all(label.lstrip("+-").isdecimal() for label in given):
            mark = min(marks)
            raise ValueError(
                f"y[{i}] has {mark!r} among other strings: NumPy makes strings of all labels in "
                f"one array. Give a list, an array of dtype=object, or ignore_label={mark!r}.")


def _check_declared(labels, types, declared, i):
    """Refuse labels of graph i that are not among those of their type of node."""
    distinct(labels)
    for node, label in enumerate(labels):
        of_type = 0 if types is None else int(types[node])
        known = declared.get(None, declared.get(of_type, ()))
        if label not in known and not is_unlabelled(label):
            which = f"classes[{of_type}]" if None not in declared else "classes"
            raise ValueError(
                f"y[{i}] has {label!r:.80} at node {node}, which is not in {which}: "
                f"{sorted(known, key=repr)!r:.200}. Add it there, or give it as ignore_label.")


def encoded(labels, types, census):
    """Labels of nodes as numbers, each type of node having labels of its own.

    Parameters
    ----------
    labels : list
    types : ndarray of shape (n_nodes,), or None
    census : Census
        The census of all pieces of the data.

    Returns
    -------
    classes : ndarray of shape (n_classes,)
    node_classes : ndarray of shape (n_types, n_labels)
        Numbers in `classes` of the labels of each type, -1 behind them.
    codes : ndarray of shape (n_nodes,)
        Numbers in the row of the node's type.
    """
    classes, codes = encode(labels, census.labels, "graphs")
    if census.n_types == 1:
        return classes, np.arange(classes.size)[np.newaxis], codes
    number = {label: i for i, label in enumerate(classes.tolist())}
    found = np.array(sorted(
        of_type * classes.size + number[label] for of_type, label in census.typed))
    node_classes, numbers = labels_of_types(found, census.n_types, classes.size)
    return classes, node_classes, numbers[types, codes]


def labels_of_types(found, n_types, n_classes):
    """The labels of each type of node, and their numbers there.

    Parameters
    ----------
    found : ndarray of int
        type * n_classes + class of each pair that occurs, in order.
    n_types, n_classes : int

    Returns
    -------
    node_classes : ndarray of shape (n_types, n_labels)
        As `encoded` has them.
    numbers : ndarray of shape (n_types, n_classes)
        The place of each class in the row of its type, -1 where it has none.
    """
    of_type, label = np.divmod(found, n_classes)
    counts = np.bincount(of_type, minlength=n_types)
    place = np.arange(found.size) - np.repeat(np.cumsum(counts) - counts, counts)
    node_classes = np.full((n_types, counts.max()), -1)
    node_classes[of_type, place] = label
    numbers = np.full((n_types, n_classes), -1)
    numbers[of_type, label] = place
    return node_classes, numbers


def check_types(types, n_types, what, offsets):
    """Refuse types that a fitted model does not know."""
    if types is None:
        if n_types > 1 and offsets[-1] > 0:
            raise ValueError(
                f"X has no {what}_types, but the model was fitted on the types 0 ... "
                f"{n_types - 1} of {what}s: give each {what} its type.")
        return
    wrong = np.flatnonzero(types >= n_types)
    if wrong.size:
        i = int(np.searchsorted(offsets, wrong[0], side="right")) - 1
        raise ValueError(
            f"X[{i}] has {what} {wrong[0] - offsets[i]} of type {types[wrong[0]]}, but the model "
            f"was fitted on the types 0 ... {n_types - 1}.")


def is_unlabelled(label):
    """Whether a label marks a node as unlabelled."""
    return isinstance(label, Real) and not isinstance(label, bool) and label == UNLABELLED


def number_of(types):
    """The number of types, 1 without types."""
    n = 1 if types is None else int(types.max(initial=0)) + 1
    if n > MANY_TYPES and n > types.size:
        raise ValueError(
            f"X has a node or an edge of type {n - 1}, and weights are for all types from 0 on, of "
            f"which {types.size} occur at most: number them 0, 1, ...")
    return n


def check_not_negative(X, first=0):
    """Refuse features of edges below zero, with which pairs would not be attractive.

    Errors call the first of the graphs `first`.
    """
    if X.edge_features is None:
        return
    values = X.edge_features
    data = values.data if sparse.issparse(values) else values
    if data.size and data.min() < 0:
        low = values.min(axis=1)
        low = low.toarray().ravel() if sparse.issparse(low) else np.ravel(low)
        edge = int(np.flatnonzero(low < 0)[0])
        i = int(np.searchsorted(X.edge_offsets, edge, side="right")) - 1
        raise ValueError(
            f"X[{first + i}] has a feature of {low[edge]:g} at edge {edge - X.edge_offsets[i]}: "
            "pairwise='attractive' needs features of edges that are not negative. Use "
            "pairwise='potts', or shift them.")


def check_grid(shape):
    """Check that shape is a pair of numbers of rows and columns."""
    if not isinstance(shape, (tuple, list)) or len(shape) != 2 or not all(
        is_number(n, low=0, integer=True) for n in shape
    ):
        raise ValueError(
            "pairwise='displacement' needs grid_shape=(rows, columns), both integers > 0; got "
            f"{shape!r:.80}.")


def as_places(labels, grid_shape, first=0):
    """All places of a grid as classes, and the numbers of the labels.

    Errors call the first of the labels `first`.
    """
    n = grid_shape[0] * grid_shape[1]
    for place, label in enumerate(labels, first):
        if not is_number(label, low=-1, integer=True) or label >= n:
            raise ValueError(
                f"pairwise='displacement' needs labels that are places of the grid, integers from "
                f"0 to {n - 1}: y has {label!r:.80} (label {place} of the labelled nodes).")
    return np.arange(n), np.fromiter(labels, np.intp, len(labels))


class Displacements:
    """Mean displacements from the second node's place to the first's, by type of edge.

    Parameters
    ----------
    n_types : int
        Types of edges.
    width : int
        Places in a row.
    """

    def __init__(self, n_types, width):
        self.width = width
        # of (dx, dy) and of 1
        self.sums = np.zeros((3, n_types))

    def add(self, X, codes, weights):
        """Count the edges of graphs, whose nodes are at these places, with the graphs' weights."""
        ends = X.edges + np.repeat(X.node_offsets[:-1], X.edge_lengths)[:, np.newaxis]
        (first, second), width = codes[ends.T], self.width
        weights = np.repeat(weights, X.edge_lengths)
        types = np.zeros(X.n_edges, dtype=np.intp) if X.edge_types is None else X.edge_types
        for sums, counts in zip(self.sums, (
            first % width - second % width, first // width - second // width, 1.0,
        ), strict=True):
            sums += np.bincount(types, weights=weights * counts, minlength=sums.size)

    def means(self):
        """Mean (dx, dy) of each type, zeros for a type without edges."""
        weight = self.sums[2]
        return np.stack(self.sums[:2] / np.where(weight > 0.0, weight, 1.0), axis=1)


def allowed_labels(allowed, X, n_classes):
    """A byte for each node and class, or no rows where everything is allowed."""
    if allowed is None:
        return np.zeros((0, n_classes), dtype=np.uint8)
    if not hasattr(allowed, "__len__") or len(allowed) != len(X):
        raise ValueError(f"allowed must have an array for each of the {len(X)} graphs of X.")
    rows = []
    for i, part in enumerate(allowed):
        part = np.asarray(part)
        if part.dtype != bool or part.shape != (X.lengths[i], n_classes):
            raise ValueError(
                f"allowed[{i}] must be a boolean array of shape {(int(X.lengths[i]), n_classes)}, "
                f"a row for each node, columns as in classes_; got {part.dtype} of shape "
                f"{part.shape}.")
        nothing = np.flatnonzero(~part.any(axis=1))
        if nothing.size:
            raise ValueError(f"allowed[{i}] leaves node {nothing[0]} no label.")
        rows.append(part)
    return np.ascontiguousarray(np.concatenate(rows), dtype=np.uint8)
