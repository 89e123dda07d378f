"""Minimum cuts for Python: of any graph, and of grids."""

import numpy as np

from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.math cimport INFINITY, fabs
from libc.string cimport memcmp, memcpy, memset

from fastm4n.base.checks import as_real, refuse_where

from fastm4n.inference._buffers cimport (
    are_edges, held_kind, shape_of, spare_scratch, take_scratch)
from fastm4n.inference._min_cut cimport BLOCK, MinCut, add, block_sum

cdef double UNIT = 2.0 ** -53
cdef object empty = np.empty, boolean = np.dtype(bool)

cdef enum:
    # what a call holds the memory of: its arguments, and two results
    MOST_VIEWS = 8
# scratch that no call has at the moment
cdef list spare = []
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


# ------------------------------------------------------------------------- arguments

cdef const double* hold_numbers(
        name, values, int ndim, const Py_ssize_t* shape, Py_buffer* views,
        int* n_views) except? NULL:
    """Hold numbers in float64: of this shape, or one for all; or of any shape where ndim < 0."""
    cdef Py_buffer* view = &views[n_views[0]]
    cdef int d
    cdef bint fits = True
    cdef char kind = held_kind(values, view)
    if kind != c"d":
        if kind:
            PyBuffer_Release(view)
        values = np.require(as_real(name, values), requirements="CA")
        if values.ndim == 0 and ndim > 0:
            values = np.full([shape[d] for d in range(ndim)], values)
        PyObject_GetBuffer(values, view, PyBUF_STRIDES | PyBUF_FORMAT)
    n_views[0] += 1
    if ndim >= 0:
        fits = view.ndim == ndim
        for d in range(ndim):
            fits = fits and view.shape[d] == shape[d]
    if not fits:
        wanted = tuple([shape[d] for d in range(ndim)])
        raise ValueError(f"{name} must have shape {wanted}, got {shape_of(view)}.")
    return <const double*> view.buf


cdef const int* hold_edges(
        edges, Py_ssize_t n_nodes, Py_buffer* views, int* n_views) except? NULL:
    """Hold edges as an (n_edges, 2) array of C ints; those that are one already go unchecked."""
    cdef Py_buffer* view = &views[n_views[0]]
    cdef char kind = held_kind(edges, view)
    if kind != c"i" or view.ndim != 2 or view.shape[1] != 2:
        if kind:
            PyBuffer_Release(view)
        PyObject_GetBuffer(checked_edges(edges, n_nodes), view, PyBUF_STRIDES | PyBUF_FORMAT)
    n_views[0] += 1
    return <const int*> view.buf


cdef double sum_of_terminals(const Py_buffer* source, const Py_buffer* sink) except -1.0:
    """Sum of the finite capacities of nodes; an error names the first that cannot be."""
    cdef bint from_infinity, to_infinity
    cdef double total = checked_sum("source", source, &from_infinity)
    total += checked_sum("sink", sink, &to_infinity)
    if from_infinity and to_infinity:
        hard = np.argwhere(np.isinf(source.obj) & np.isinf(sink.obj))
        if len(hard):
            where = hard[0].tolist()
            raise ValueError(
                f"node {where if len(where) > 1 else where[0]} has infinite capacity from the "
                "source and to the sink: no cut separates them. Make one of the two finite.")
    return total


cdef double checked_sum(name, const Py_buffer* view, bint* has_infinite) except -1.0:
    """Sum of the finite numbers, which are >= 0; an error names the first that is not."""
    cdef const double* x = <const double*> view.buf
    cdef Py_ssize_t i
    cdef double total = 0.0
    cdef bint good = True
    has_infinite[0] = False
    for i in range(view.len // <Py_ssize_t> sizeof(double)):
        good &= x[i] >= 0.0
        has_infinite[0] |= x[i] == INFINITY
        total += x[i] if x[i] < INFINITY else 0.0
    if not good:
        values = np.asarray(view.obj)
        refuse_where(~(values >= 0.0), name, values, "capacities are numbers >= 0.")
    return total


cdef double plain_sum(const double* x, Py_ssize_t n) noexcept nogil:
    """Sum of numbers that are finite and >= 0; where one is not, inf, NaN or a number < 0."""
    cdef Py_ssize_t i
    cdef double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0, low = 0.0
    # four sums, as none waits for the others
    for i in range(0, n - 3, 4):
        s0 += x[i]
        s1 += x[i + 1]
        s2 += x[i + 2]
        s3 += x[i + 3]
        low = min(low, min(min(x[i], x[i + 1]), min(x[i + 2], x[i + 3])))
    for i in range(n - n % 4, n):
        s0 += x[i]
        low = min(low, x[i])
    return (s0 + s1) + (s2 + s3) if low >= 0.0 else -1.0


cdef double take_weights(
        MinCut cut, const double* source, const double* sink, Py_ssize_t n,
        double* sinks) noexcept nogil:
    """weight = source - sink, and the sum of all, `sinks` being that of sink; as `plain_sum`."""
    cdef Py_ssize_t i
    cdef double* weight = cut.weight
    cdef double s0 = 0.0, s1 = 0.0, t0 = 0.0, t1 = 0.0, low0 = 0.0, low1 = 0.0
    for i in range(0, n - 1, 2):
        weight[i] = source[i] - sink[i]
        weight[i + 1] = source[i + 1] - sink[i + 1]
        s0 += source[i]
        s1 += source[i + 1]
        t0 += sink[i]
        t1 += sink[i + 1]
        low0 = min(low0, min(source[i], sink[i]))
        low1 = min(low1, min(source[i + 1], sink[i + 1]))
    if n % 2:
        weight[n - 1] = source[n - 1] - sink[n - 1]
        s0 += source[n - 1]
        t0 += sink[n - 1]
        low0 = min(low0, min(source[n - 1], sink[n - 1]))
    sinks[0] = t0 + t1
    return (s0 + s1) + (t0 + t1) if low0 >= 0.0 and low1 >= 0.0 else -1.0


cdef bint has_nan(const double* x, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef bint found = False
    for i in range(n):
        found |= x[i] != x[i]
    return found


cdef bint take(double* kept, const double* given, Py_ssize_t n, double most) noexcept nogil:
    """Copy what is given, up to `most`; whether that is what was there."""
    cdef Py_ssize_t e
    cdef double x
    cdef bint same = True
    for e in range(n):
        x = min(most, given[e])
        same &= kept[e] == x
        kept[e] = x
    return same


cdef inline bint equal(const double* x, const double* y, Py_ssize_t n) noexcept nogil:
    """Whether they agree bit by bit."""
    # no numbers may have no address
    return n == 0 or memcmp(x, y, n * sizeof(double)) == 0


# ------------------------------------------------------------------------- certificates

cdef double certificate(
        MinCut cut, const double* source, const double* sink, double sinks, double* bound,
        double* error) noexcept nogil:
    """What the cut between the nodes of tree 1 and the others costs at nodes, all being finite.

    And `flow_bound` before its rounding is taken off, at most `error`.
    """
    cdef Py_ssize_t i, k, size, block, n = cut.network.n_nodes
    cdef const signed char* tree = cut.tree
    cdef const double* net = cut.net
    cdef double total = 0.0, lost = 0.0, other = 0.0, other_lost = 0.0, on
    cdef double[BLOCK] costs
    cdef double[BLOCK] least
    for block in range((n + BLOCK - 1) // BLOCK):
        i = BLOCK * block
        size = min(n - i, <Py_ssize_t> BLOCK)
        if size < BLOCK:
            memset(costs, 0, BLOCK * sizeof(double))
            memset(least, 0, BLOCK * sizeof(double))
        for k in range(size):
            # without branches, that nobody could predict
            on = tree[i + k] == 1
            costs[k] = on * sink[i + k] + (1.0 - on) * source[i + k]
            least[k] = min(source[i + k], sink[i + k] + net[i + k])
        add(&total, &lost, block_sum(costs))
        add(&other, &other_lost, block_sum(least))
    bound[0] = other + other_lost
    error[0] = UNIT * (
        1.001 * (cut.degree + 10) * (cut.flow_size + 1.001 * sinks) + 4.0 * fabs(other))
    return total + lost


cdef double cut_value(
        MinCut cut, const double* source, const double* sink, const double* forward,
        const double* backward) noexcept nogil:
    """What the cut between the nodes of tree 1 and the others costs."""
    cdef Py_ssize_t e, i
    cdef const signed char* tree = cut.tree
    cdef double total = 0.0, lost = 0.0
    cdef bint first, second
    for i in range(cut.network.n_nodes):
        add(&total, &lost, sink[i] if tree[i] == 1 else source[i])
    for e in range(cut.network.n_edges):
        first = tree[cut.ends[2 * e]] == 1
        second = tree[cut.ends[2 * e + 1]] == 1
        if first != second:
            add(&total, &lost, forward[e] if first else backward[e])
    return total + lost if total < INFINITY else INFINITY


cdef double flow_bound(
        MinCut cut, const double* source, const double* sink, double[::1] net,
        double[::1] size) noexcept nogil:
    """A bound from below of what any cut costs: sum_i min(source_i, sink_i + flow out - in).

    Rounded down.
    """
    cdef Py_ssize_t e, i, j, n = cut.network.n_nodes
    cdef double total = 0.0, lost = 0.0, error = 0.0, rounding
    for i in range(n):
        net[i] = 0.0
        size[i] = 0.0
    for e in range(cut.network.n_edges):
        i = cut.ends[2 * e]
        j = cut.ends[2 * e + 1]
        net[i] += cut.flow[e]
        net[j] -= cut.flow[e]
        size[i] += fabs(cut.flow[e])
        size[j] += fabs(cut.flow[e])
    for i in range(n):
        rounding = 1.001 * UNIT * (cut.degree + 2) * (size[i] + sink[i])
        if sink[i] == INFINITY or source[i] <= sink[i] + net[i] - rounding:
            add(&total, &lost, source[i])
        else:
            add(&total, &lost, min(source[i], sink[i] + net[i]))
            error += rounding
    # capacities are >= 0, and cuts of 0 need no flow to prove it
    return max(0.0, total + lost - error - 4.0 * UNIT * fabs(total))


# ---------------------------------------------------------------------------- the cut

cdef void write_sides(const signed char* tree, Py_ssize_t n, unsigned char* side) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        side[i] = tree[i] == 1


cdef double cut_between(
        MinCut cut, const Py_buffer* views, Py_ssize_t n, Py_ssize_t m, const double* source,
        const double* sink, const int* pairs, const double* forward, const double* backward,
        const double* start, double* bound) except -1.0:
    """Find the cut; returns what it costs, and a bound from below.

    `views` holds source, sink, edges, capacities and, if they are others, reverse capacities;
    what the scratch has held since the last call need not be looked at again.
    """
    cdef double sinks, most, value, error, of_edges = 0.0
    cdef double of_nodes = take_weights(cut, source, sink, n, &sinks)
    # whether all numbers are finite, so that they are taken as they are
    cdef bint plain = 0.0 <= of_nodes < INFINITY
    cdef bint has_graph = cut.has(n, pairs, m), both_ways = backward == forward
    cdef bint has_capacities, moved, warm = start != NULL, infinite
    cdef Py_ssize_t i
    cdef double[:, ::1] work
    if not plain:
        of_nodes = sum_of_terminals(&views[0], &views[1])
    if not has_graph and not are_edges(pairs, m, n):
        checked_edges(views[2].obj, n)
    has_graph = has_graph and (cut.backward == cut.forward) == both_ways
    has_capacities = has_graph and cut.capacity_sum >= 0.0 and equal(cut.forward, forward, m) and (
        both_ways or equal(cut.backward, backward, m))
    if has_capacities:
        of_edges = cut.capacity_sum
    else:
        of_edges = plain_sum(forward, m)
        of_edges += of_edges if both_ways else plain_sum(backward, m)
        if not 0.0 <= of_edges < INFINITY:
            plain = False
            of_edges = checked_sum("capacities", &views[3], &infinite)
            if both_ways:
                of_edges += of_edges
            else:
                of_edges += checked_sum("reverse_capacities", &views[4], &infinite)
    most = 4.0 * (1.0 + (of_nodes + of_edges))
    if not most < INFINITY:
        raise ValueError(
            "the capacities add up to more than float64 can hold. Divide all by the same number.")
    with nogil:
        if not has_graph:
            cut.begin(n, pairs, m)
            cut.backward = cut.forward if both_ways else cut.own_backward
        moved = warm and cut.has_trees
        if warm and not equal(cut.flow, start, m):
            moved = False
            memcpy(cut.flow, start, m * sizeof(double))
        while True:
            if not plain:
                cut.capacity_sum = -1.0
                cut.has_crossing = False
                for i in range(n):
                    cut.weight[i] = min(most, source[i]) - min(most, sink[i])
                moved &= take(cut.forward, forward, m, most)
                if not both_ways:
                    moved &= take(cut.backward, backward, m, most)
            elif not has_capacities:
                moved = False
                if m:
                    memcpy(cut.forward, forward, m * sizeof(double))
                    memcpy(cut.backward, backward, m * sizeof(double))
                cut.capacity_sum = of_edges
            if moved:
                cut.solve_moved()
            else:
                cut.solve(warm)
            if plain:
                value = certificate(cut, source, sink, sinks, bound, &error)
                value += cut.crossing_sum(moved)
            else:
                value = cut_value(cut, source, sink, forward, backward)
                error = INFINITY
            if error <= PLAIN * value:
                bound[0] = max(0.0, bound[0] - error)
            else:
                with gil:
                    work = np.empty((2, n))
                bound[0] = flow_bound(cut, source, sink, work[0], work[1])
            if value - bound[0] <= CLOSE * value or not value < INFINITY:
                break
            # small numbers are lost beside large ones, and capacities that are larger than a
            # cut are in no least one
            if not (warm or 4.0 * value < most):
                break
            most = min(most, 2.0 * value)
            warm = plain = moved = False
    if not value < INFINITY:
        raise ValueError(
            "every cut has infinite capacity: the capacities of inf tie the source to the sink. "
            "Make one of them finite.")
    return value


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
        True on the source's side; of several minimum cuts the one with the fewest nodes there, as
        far as sums are exact: of cuts that differ by rounding, any one, which may then be another
        for another `flow` and after other calls.
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
    >>> int(side.sum()), round(value, 6), bool(abs(value - bound) < 1e-12)
    (16, 3.9, True)
    """
    cdef Py_buffer[MOST_VIEWS] views
    cdef int n_views = 0, ndim, k
    cdef Py_ssize_t n, m
    cdef const int* pairs
    cdef const double* to_node
    cdef const double* from_node
    cdef const double* forward
    cdef const double* backward
    cdef const double* start = NULL
    cdef double value, bound
    cdef MinCut cut
    try:
        to_node = hold_numbers("source", source, -1, NULL, views, &n_views)
        ndim = views[0].ndim
        n = views[0].len // <Py_ssize_t> sizeof(double)
        from_node = hold_numbers("sink", sink, ndim, views[0].shape, views, &n_views)
        pairs = hold_edges(edges, n, views, &n_views)
        m = views[2].shape[0]
        forward = hold_numbers("capacities", capacities, 1, &m, views, &n_views)
        backward = forward
        if reverse_capacities is not None and reverse_capacities is not capacities:
            backward = hold_numbers(
                "reverse_capacities", reverse_capacities, 1, &m, views, &n_views)
        if flow is not None:
            start = hold_numbers("flow", flow, 1, &m, views, &n_views)
            k = n_views - 1
            if has_nan(start, m):
                flow = np.asarray(views[k].obj)
                refuse_where(np.isnan(flow), "flow", flow, "a flow is numbers.")
        cut = take_scratch(spare, MinCut, n, m)
        value = cut_between(
            cut, views, n, m, to_node, from_node, pairs, forward, backward, start, &bound)
        side = empty(n if ndim == 1 else shape_of(&views[0]), boolean)
        PyObject_GetBuffer(side, &views[n_views], PyBUF_WRITABLE)
        n_views += 1
        write_sides(cut.tree, n, <unsigned char*> views[n_views - 1].buf)
        result = side, value, min(bound, value)
        if return_flow:
            flow = empty(m)
            PyObject_GetBuffer(flow, &views[n_views], PyBUF_WRITABLE)
            n_views += 1
            if m:
                memcpy(views[n_views - 1].buf, cut.flow, m * sizeof(double))
            result = (*result, flow)
        spare_scratch(spare, cut)
        return result
    finally:
        for k in range(n_views):
            PyBuffer_Release(&views[k])
