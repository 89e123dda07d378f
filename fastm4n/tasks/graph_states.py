"""Labels of nodes that are not known: unlabelled nodes as hidden ones, and hidden states of labels.

The states of a label are columns of weights that predict the same label. `completions` fills in
nodes that may have several labels or states.
"""

import warnings

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from threadpoolctl import threadpool_limits

from fastm4n.base.checks import is_number
from fastm4n.tasks.completions import Clamp, NoOutput
from fastm4n.tasks.graph_input import as_node_labels, is_unlabelled


def check_hidden_states(given):
    """Refuse a parameter `hidden_states` without numbers of states."""
    numbers = given.values() if isinstance(given, dict) else () if given is None else (given,)
    if not all(is_number(n, low=0, integer=True) for n in numbers):
        raise ValueError(
            "hidden_states must be None, an integer > 0, or a dict of labels to integers > 0, got "
            f"{given!r:.80}.")


def hidden_nodes(task, y, X):
    """Which nodes have the label -1, and not `ignore_label`, if the fit fills them in."""
    if task.unlabelled != "hidden":
        return np.zeros(X.n_nodes, dtype=bool)
    return np.fromiter(map(is_unlabelled, as_node_labels(y, X)), bool, X.n_nodes)


def check_factors(given, X):
    """Refuse factors where labels have states."""
    if given is not None and X.factors is not None:
        raise ValueError(
            f"hidden_states={given!r:.80} does not go with factors, which would be of states: "
            "leave one of the two out.")


def with_states(given, classes, node_classes, codes):
    """`node_classes` with a column for each state, and the first state of each node's label.

    Parameters
    ----------
    given : None, int or dict
        The parameter `hidden_states`.
    classes, node_classes, codes : ndarray
        As `encoded` gives them.
    """
    counts = np.full(classes.size, given if is_number(given, low=0, integer=True) else 1)
    if isinstance(given, dict):
        where = {label: number for number, label in enumerate(classes.tolist())}
        for label, n in given.items():
            if label not in where:
                raise ValueError(
                    f"hidden_states has {label!r:.80}, which is not among the labels: "
                    f"{classes.tolist()!r:.200}.")
            counts[where[label]] = n
    if (counts == 1).all():
        return node_classes, codes
    row = np.arange(classes.size)
    if not np.array_equal(node_classes, row[np.newaxis].repeat(len(node_classes), axis=0)):
        raise ValueError(
            "hidden_states needs the same labels at all types of nodes: give classes as a list, "
            "or hidden nodes of a type with labels of its own.")
    states = np.repeat(row, counts)
    return states[np.newaxis].repeat(len(node_classes), axis=0), (np.cumsum(counts) - counts)[codes]


def types_of_nodes(X):
    """The type of each node."""
    return np.zeros(X.n_nodes, dtype=np.intp) if X.node_types is None else X.node_types


def may_be(X, codes, node_classes):
    """Which columns of `node_classes` each node may have, a bool array with a row for each.

    Parameters
    ----------
    X : Graphs
    codes : ndarray of int of shape (n_nodes,)
        The first column of the label of each node, -1 for a hidden node.
    node_classes : ndarray of int of shape (n_types, n_columns)
    """
    own, is_hidden = node_classes[types_of_nodes(X)], (codes < 0)[:, np.newaxis]
    label = np.take_along_axis(own, np.maximum(codes, 0)[:, np.newaxis], axis=1)
    may = (own >= 0) & (is_hidden | (own == label))
    none = np.flatnonzero(~may.any(axis=1))
    if none.size:
        graph = int(np.searchsorted(X.node_offsets, none[0], side="right")) - 1
        node, of_type = none[0] - X.node_offsets[graph], int(X.node_types[none[0]])
        raise ValueError(
            f"y leaves all nodes of type {of_type} hidden, as node {node} of graph {graph}: give "
            f"their labels by classes={{{of_type}: [...], ...}}.")
    return may


def has_unseen(X, codes, node_classes):
    """Whether there are states that no label of y names, or types of hidden nodes alone."""
    types = types_of_nodes(X)
    return node_classes.shape[1] > node_classes.max() + 1 or not np.isin(
        types, types[codes >= 0]).all()


def _clusters(rows, n, weights, random_state):
    """Clusters of rows, at most n, and their centres. Equal rows get random clusters."""
    if n == 1:
        centre = np.average(rows, axis=0, weights=weights) if not sparse.issparse(rows) else (
            rows.T @ weights / weights.sum())
        return np.zeros(rows.shape[0], dtype=np.intp), centre.reshape(1, -1)
    from sklearn.cluster import KMeans

    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # rows that are equal
        found = KMeans(min(n, rows.shape[0]), random_state=random_state).fit(
            rows, sample_weight=weights)
    own = found.labels_
    return random_state.randint(n, size=own.size) if np.ptp(own) == 0 else own, (
        found.cluster_centers_)


def first_columns(X, codes, node_classes, weights, random_state):
    """Columns of all nodes to begin with, which differ from state to state.

    The states of a label are clusters by k-means of its nodes, and so are the labels of a type
    whose nodes are all hidden. Hidden nodes of other types get the nearest cluster. Clusters are
    of the features of a node and the shares of the labels of its neighbours.

    Parameters
    ----------
    X, codes, node_classes
        As of `may_be`.
    weights : ndarray of shape (n_graphs,)
    random_state : RandomState
    """
    types, known = types_of_nodes(X), np.flatnonzero(codes >= 0)
    labels = sparse.csr_array(
        (np.ones(known.size), (known, node_classes[types[known], codes[known]])),
        shape=(X.n_nodes, node_classes.max() + 1))
    ends = (X.edges + np.repeat(X.node_offsets[:-1], X.edge_lengths)[:, np.newaxis]).T
    joined = sparse.csr_array((np.ones(X.n_edges), tuple(ends)), shape=(X.n_nodes,) * 2)
    near = (joined + joined.T) @ labels
    counts = np.maximum(near.sum(axis=1), 1.0)
    near = sparse.diags_array(1.0 / counts) @ near
    if sparse.issparse(X.node_features):
        rows = sparse.csr_array(sparse.hstack([X.node_features, near])).astype(np.float64)
        rows.indices, rows.indptr = (part.astype(np.int32) for part in (rows.indices, rows.indptr))
    else:
        rows = np.hstack([X.node_features, near.toarray()])
    weights, found = np.repeat(weights, X.lengths), codes.copy()
    for of_type in np.unique(types):
        row, nodes = node_classes[of_type], np.flatnonzero(types == of_type)
        seen = np.unique(codes[nodes])
        seen = seen if seen[-1] < 0 else seen[seen >= 0]
        centres, columns = [], []
        for code in seen:
            some = nodes[codes[nodes] == code]
            own = np.flatnonzero(row >= 0 if code < 0 else row == row[code])
            cluster, middle = _clusters(rows[some], own.size, weights[some], random_state)
            found[some] = own[cluster]
            centres.append(middle)
            columns.append(own[: len(middle)])
        left = nodes[found[nodes] < 0]
        if left.size:
            found[left] = np.concatenate(columns)[pairwise_distances_argmin(
                rows[left], np.concatenate(centres))]
    return found


def first_targets(outputs, allowed, columns=None):
    """The best allowed outputs, flat, if a column of each node scores more than the others."""
    scores = np.zeros(outputs.layout.n_numbers)
    if columns is not None:
        scores[outputs.layout.places(columns)] = 1.0
    try:
        return Clamp(outputs, allowed).best(scores)[0]
    except NoOutput as error:
        raise ValueError(
            f"graph {error.block}: its factors allow no labelling with the labels of y. Correct "
            "one of the two, or leave the factor out.") from error
