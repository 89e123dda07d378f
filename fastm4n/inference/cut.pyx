"""Minimum cuts for Python: of any graph, and of grids."""

import numpy as np

from libc.math cimport INFINITY, fabs

from fastm4n._parameters import as_real, refuse_where

from fastm4n.inference._min_cut cimport MinCut, add

cdef double UNIT = 2.0 ** -53
cdef enum:
    # nodes and edges of the scratch that is kept between calls; about 2 MB
    SPARE_SIZE = 16384
# scratch that no call has at the moment; taking and giving back are atomic
_SPARE = []
# relative difference of value and bound that is left to rounding
cdef double CLOSE = 2.0 ** -40
# and what of it need not be told apart by nodes
cdef double PLAIN = 2.0 ** -45


def grid_edges(shape, connectivity=4):
    """Edges of a grid of pixels, which are numbered row by row.

    Parameters
    ----------
    shape : tuple of two ints
        Rows and columns.
    connectivity : {4, 8}, default=4
        Neighbours of a pixel: those beside, above and below it, or those at its corners as well.

    Returns
    -------
    edges : ndarray of shape (n_edges, 2)
        First those to the right, row by row, then those down; with 8 neighbours, then those down
        to the right, then those down to the left.

    Examples
    --------
    >>> from fastm4n.inference import grid_edges
    >>> grid_edges((2, 2)).tolist()
    [[0, 1], [2, 3], [0, 2], [1, 3]]
    """
    if connectivity not in (4, 8):
        raise ValueError(f"connectivity must be 4 or 8, got {connectivity!r}.")
    height, width = shape
    if height < 0 or width < 0:
        raise ValueError(f"shape must be two numbers >= 0, got {shape!r}.")
    pixels = np.arange(height * width, dtype=np.intc).reshape(height, width)
    pairs = [(pixels[:, :-1], pixels[:, 1:]), (pixels[:-1], pixels[1:])]
    if connectivity == 8:
        pairs += [(pixels[:-1, :-1], pixels[1:, 1:]), (pixels[:-1, 1:], pixels[1:, :-1])]
    edges = np.empty((sum(first.size for first, _ in pairs), 2), dtype=np.intc)
    start = 0
    for first, second in pairs:
        edges[start:start + first.size, 0] = first.ravel()
        edges[start:start + first.size, 1] = second.ravel()
        start += first.size
    return edges


def checked_edges(edges, n_nodes):
    """The edges as an (n_edges, 2) array of C ints; an error names the first that is none."""
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.zeros((0, 2), dtype=np.intc)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            "edges must be an integer array of shape (n_edges, 2), got shape "
            f"{edges.shape} and dtype {edges.dtype}.")
    if edges.min() < 0 or edges.max() >= n_nodes:
        e = int(np.flatnonzero(((edges < 0) | (edges >= n_nodes)).any(axis=1))[0])
        raise ValueError(
            f"edge {e} is {tuple(edges[e].tolist())}, but the nodes are 0 ... {n_nodes - 1}.")
    loops = edges[:, 0] == edges[:, 1]
    if loops.any():
        e = int(np.flatnonzero(loops)[0])
        raise ValueError(
            f"edge {e} is {tuple(edges[e].tolist())}, from a node to itself: no cut separates the "
            "two. Leave it out.")
    return np.ascontiguousarray(edges, dtype=np.intc)


def _floats(name, values):
    """The numbers, in float64 and in C order."""
    if type(values) is np.ndarray and values.dtype == np.float64 and values.flags.c_contiguous:
        return values
    return np.asarray(as_real(name, values), order="C")


def _capacities(name, values, shape):
    values = _floats(name, values)
    if values.ndim == 0:
        values = np.full(shape, values)
    if values.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {values.shape}.")
    return values


cdef double checked_sum(name, values, bint* has_infinite) except -1.0:
    """Sum of the finite ones of values, which are >= 0; an error names the first that is not."""
    cdef double total = finite_sum(values.reshape(-1), has_infinite)
    if total < 0.0:
        refuse_where(~(values >= 0.0), name, values, "capacities are numbers >= 0.")
    return total


cdef bint are_edges(const int[:, ::1] edges, Py_ssize_t n_nodes) noexcept nogil:
    """Whether all are pairs of two different nodes."""
    cdef Py_ssize_t e
    cdef int a, b, n = <int> n_nodes
    cdef bint bad = False
    for e in range(edges.shape[0]):
        a = edges[e, 0]
        b = edges[e, 1]
        bad |= (a < 0) | (a >= n) | (b < 0) | (b >= n) | (a == b)
    return not bad


def _scratch(Py_ssize_t n_nodes, Py_ssize_t n_edges):
    """Scratch that is large enough: that of an earlier call, if no other call has it."""
    try:
        cut = _SPARE.pop()
    except IndexError:
        cut = None
    if cut is None or cut.max_nodes < n_nodes or cut.max_edges < n_edges:
        cut = MinCut(n_nodes, n_edges)
    return cut


def _spare(MinCut cut):
    """Keep the scratch for the next call, unless it is large: fresh memory costs time."""
    if not _SPARE and cut.max_nodes + cut.max_edges <= SPARE_SIZE:
        _SPARE.append(cut)


cdef double finite_sum(const double[::1] x, bint* has_infinite) noexcept nogil:
    """Sum of the finite numbers of x, or -1 where one is negative or NaN."""
    cdef Py_ssize_t i, n = x.shape[0]
    cdef double total[4]
    cdef bint good = True, infinite = False
    # four sums, as none waits for the others
    total[0] = total[1] = total[2] = total[3] = 0.0
    for i in range(0, n - 3, 4):
        total[0] += x[i] if x[i] < INFINITY else 0.0
        total[1] += x[i + 1] if x[i + 1] < INFINITY else 0.0
        total[2] += x[i + 2] if x[i + 2] < INFINITY else 0.0
        total[3] += x[i + 3] if x[i + 3] < INFINITY else 0.0
        good &= (x[i] >= 0.0) & (x[i + 1] >= 0.0) & (x[i + 2] >= 0.0) & (x[i + 3] >= 0.0)
        infinite |= (
            (x[i] == INFINITY) | (x[i + 1] == INFINITY) | (x[i + 2] == INFINITY)
            | (x[i + 3] == INFINITY))
    for i in range(n - n % 4, n):
        total[0] += x[i] if x[i] < INFINITY else 0.0
        good &= x[i] >= 0.0
        infinite |= x[i] == INFINITY
    has_infinite[0] = infinite
    return (total[0] + total[1]) + (total[2] + total[3]) if good else -1.0


cdef bint has_nan(const double[::1] x) noexcept nogil:
    cdef Py_ssize_t i
    cdef bint found = False
    for i in range(x.shape[0]):
        found |= x[i] != x[i]
    return found


cdef bint take(
        double* kept, const double[::1] given, double most) noexcept nogil:
    """Copy what is given, up to `most`; whether that is what was there."""
    cdef Py_ssize_t e
    cdef double x
    cdef bint same = True
    for e in range(given.shape[0]):
        x = min(most, given[e])
        same &= kept[e] == x
        kept[e] = x
    return same


cdef inline double edge_cost(
        const signed char* tree, const int* pair, double forward, double backward) noexcept nogil:
    """What an edge costs; looked up, not branched on, as nobody could predict the sides."""
    cdef double[4] costs
    costs[0] = costs[3] = 0.0
    costs[1] = backward
    costs[2] = forward
    return costs[2 * (tree[pair[0]] == 1) + (tree[pair[1]] == 1)]


cdef double certificate(
        MinCut cut, const double[::1] source, const double[::1] sink, const int* pairs,
        const double[::1] forward, const double[::1] backward, double sinks, double* bound,
        double* error) noexcept nogil:
    """What the cut between the nodes of tree 1 and the others costs.

    And `flow_bound` before its rounding is taken off, at most `error`.
    """
    cdef Py_ssize_t e, i, m = forward.shape[0]
    cdef const signed char* tree = cut.tree
    cdef const double* net = cut.net
    # two sums at once, as none waits for the other
    cdef double total = 0.0, lost = 0.0, other = 0.0, other_lost = 0.0
    for i in range(source.shape[0]):
        add(&total, &lost, sink[i] if tree[i] == 1 else source[i])
        add(&other, &other_lost, min(source[i], sink[i] + net[i]))
    bound[0] = other + other_lost
    error[0] = UNIT * (
        1.001 * (cut.degree + 2) * (cut.flow_size + 1.001 * sinks) + 4.0 * fabs(other))
    other = other_lost = 0.0
    for e in range(0, m - 1, 2):
        add(&total, &lost, edge_cost(tree, pairs + 2 * e, forward[e], backward[e]))
        add(&other, &other_lost,
            edge_cost(tree, pairs + 2 * e + 2, forward[e + 1], backward[e + 1]))
    if m % 2:
        add(&total, &lost, edge_cost(tree, pairs + 2 * m - 2, forward[m - 1], backward[m - 1]))
    add(&total, &lost, other)
    return total + (lost + other_lost)


cdef double flow_bound(
        MinCut cut, const double[::1] source, const double[::1] sink, const int[:, ::1] edges,
        double[::1] net, double[::1] size) noexcept nogil:
    """A bound from below of what any cut costs: sum_i min(source_i, sink_i + flow out - in).

    Rounded down.
    """
    cdef Py_ssize_t e, i
    cdef double total = 0.0, lost = 0.0, error = 0.0, rounding
    for i in range(source.shape[0]):
        net[i] = 0.0
        size[i] = 0.0
    for e in range(edges.shape[0]):
        net[edges[e, 0]] += cut.flow[e]
        net[edges[e, 1]] -= cut.flow[e]
        size[edges[e, 0]] += fabs(cut.flow[e])
        size[edges[e, 1]] += fabs(cut.flow[e])
    for i in range(source.shape[0]):
        rounding = 1.001 * UNIT * (cut.degree + 2) * (size[i] + sink[i])
        if sink[i] == INFINITY or source[i] <= sink[i] + net[i] - rounding:
            add(&total, &lost, source[i])
        else:
            add(&total, &lost, min(source[i], sink[i] + net[i]))
            error += rounding
    # capacities are >= 0, and cuts of 0 need no flow to prove it
    return max(0.0, total + lost - error - 4.0 * UNIT * fabs(total))


def min_cut(
        source, sink, edges, capacities, reverse_capacities=None, *, flow=None,
        return_flow=False):
    """Minimum cut between source and sink: the least capacity that separates them.

    Every node goes to the side of the source or of the sink. It costs `sink` of each node on the
    source's side, `source` of each node on the sink's, and the capacity of each edge that leads
    from the source's side to the sink's. So it is the best labelling with two labels where
    neighbours prefer to have the same.

    Parameters
    ----------
    source, sink : array-like of the same shape
        Capacities >= 0 from the source to each node, and from each node to the sink. inf keeps
        the node on that side. Nodes of arrays of more than one dimension, as of images, are
        numbered in C order.
    edges : array-like of int of shape (n_edges, 2)
        First and second node of each edge; of grids, `grid_edges` gives them. An edge may be
        there more than once.
    capacities : float or array-like of shape (n_edges,)
        From the first node to the second, >= 0; inf where the first node may not be on the
        source's side without the second.
    reverse_capacities : float or array-like of shape (n_edges,), default=None
        From the second node to the first; the same as `capacities` by default.
    flow : array-like of shape (n_edges,), default=None
        A flow to start from: that of a similar problem saves most of the work. Whatever is in
        it, the result is a minimum cut.
    return_flow : bool, default=False
        Whether to return the maximum flow.

    Returns
    -------
    side : ndarray of bool, of the shape of `source`
        True on the source's side; of several minimum cuts the one with the fewest nodes there.
    value : float
        The capacity of the cut.
    bound : float
        No cut has less, by the flow: value - bound is what rounding leaves open.
    flow : ndarray of shape (n_edges,)
        From the first node of each edge to its second. Only with `return_flow`.

    Raises
    ------
    ValueError
        For capacities that are negative or NaN, edges to no node or from a node to itself, and
        where every cut has infinite capacity.

    Notes
    -----
    Augmenting paths between two search trees [1]_, which start from a given flow as in [2]_. The
    trees of a small graph are kept from one call to the next: where edges and capacities are those
    of the last call and `flow` is what it returned, they are mended where `source` and `sink` have
    moved. Memory is linear in nodes and edges.

    References
    ----------
    .. [1] Y. Boykov, V. Kolmogorov (2004). An experimental comparison of min-cut/max-flow
       algorithms for energy minimization in vision. IEEE TPAMI 26(9).
    .. [2] P. Kohli, P. H. S. Torr (2007). Dynamic graph cuts for efficient inference in Markov
       random fields. IEEE TPAMI 29(12).

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference import grid_edges, min_cut
    >>> side, value, bound = min_cut([3.0, 1.0, 0.0], [0.0, 2.0, 0.5], [[0, 1], [1, 2]], 2.0)
    >>> side.tolist(), value
    ([True, True, True], 2.5)

    A noisy picture of a bright square; neighbours in the grid are drawn to the same side.

    >>> picture = np.zeros((6, 6))
    >>> picture[1:5, 1:5] = 1.0
    >>> picture[2, 3] = 0.3
    >>> side, value, bound = min_cut(picture, 1.0 - picture, grid_edges((6, 6)), 0.2)
    >>> side.sum(), round(value, 6), bool(abs(value - bound) < 1e-12)
    (np.int64(16), 3.9, True)
    """
    source = _floats("source", source)
    shape = source.shape
    sink = _capacities("sink", sink, shape)
    cdef bint from_infinity, to_infinity, any_infinity
    cdef double sources = checked_sum("source", source, &from_infinity)
    cdef double sinks = checked_sum("sink", sink, &to_infinity)
    if from_infinity and to_infinity and (hard := np.isinf(source) & np.isinf(sink)).any():
        where = np.argwhere(hard)[0].tolist()
        raise ValueError(
            f"node {where if len(where) > 1 else where[0]} has infinite capacity from the source "
            "and to the sink: no cut separates them. Make one of the two finite.")
    cdef const double[::1] to_node = source.reshape(-1), from_node = sink.reshape(-1)
    cdef Py_ssize_t n = to_node.shape[0], i, e, m
    if not (
        isinstance(edges, np.ndarray) and edges.dtype == np.intc and edges.ndim == 2
        and edges.shape[1] == 2 and edges.flags.c_contiguous and are_edges(edges, n)
    ):
        edges = checked_edges(edges, n)
    cdef const int[:, ::1] pairs = edges
    m = pairs.shape[0]
    capacities = _capacities("capacities", capacities, (m,))
    cdef double most = 2.0 * checked_sum("capacities", capacities, &any_infinity)
    if reverse_capacities is None:
        reverse_capacities = capacities
    else:
        reverse_capacities = _capacities("reverse_capacities", reverse_capacities, (m,))
        most = 0.5 * most + checked_sum("reverse_capacities", reverse_capacities, &any_infinity)
    cdef const double[::1] forward = capacities, backward = reverse_capacities
    cdef bint warm = flow is not None, same
    cdef const double[::1] start = None
    if warm:
        flow = _floats("flow", flow)
        if flow.shape != (m,):
            raise ValueError(f"flow must have shape ({m},), got {flow.shape}.")
        start = flow
        if has_nan(start):
            refuse_where(np.isnan(flow), "flow", flow, "a flow is numbers.")
    most = 4.0 * (1.0 + (sources + sinks + most))
    if not most < INFINITY:
        raise ValueError(
            "the capacities add up to more than float64 can hold. Divide all by the same number.")
    cdef MinCut cut = _scratch(n, m)
    cdef double[:, ::1] work
    cdef double value, bound, error
    cdef const int* first_pair = &pairs[0, 0] if m else NULL
    with nogil:
        same = cut.has(n, first_pair, m)
        if not same:
            cut.begin(n, first_pair, m)
        if warm:
            same &= take(cut.flow, start, INFINITY)
        while True:
            for i in range(n):
                cut.weight[i] = min(most, to_node[i]) - min(most, from_node[i])
            same &= take(cut.forward, forward, most)
            same &= take(cut.backward, backward, most)
            if warm and same:
                cut.solve_moved()
            else:
                cut.solve(warm)
            value = certificate(
                cut, to_node, from_node, first_pair, forward, backward, sinks, &bound, &error)
            if error <= PLAIN * value:
                bound = max(0.0, bound - error)
            else:
                with gil:
                    work = np.empty((2, n))
                bound = flow_bound(cut, to_node, from_node, pairs, work[0], work[1])
            if value - bound <= CLOSE * value or not value < INFINITY:
                break
            # small numbers are lost beside large ones, and capacities that are larger than a
            # cut are in no least one
            if not (warm or 4.0 * value < most):
                break
            most = min(most, 2.0 * value)
            warm = False
    if not value < INFINITY:
        raise ValueError(
            "every cut has infinite capacity: the capacities of inf tie the source to the sink. "
            "Make one of them finite.")
    side = np.empty(n, dtype=bool)
    cdef unsigned char[::1] out = side.view(np.uint8)
    for i in range(n):
        out[i] = cut.tree[i] == 1
    result = side.reshape(shape), value, min(bound, value)
    cdef double[::1] found
    if return_flow:
        flow = np.empty(m)
        found = flow
        for e in range(m):
            found[e] = cut.flow[e]
        result = (*result, flow)
    _spare(cut)
    return result
