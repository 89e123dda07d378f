"""Orders of the nodes of forests, for messages from parents to children and back."""

import numpy as np

from libc.string cimport memset


cdef plan_status plan_forest(
    const int* edges, Py_ssize_t n_edges, Py_ssize_t n_nodes, int* order, int* parent_edge,
    int* work, Py_ssize_t* where) noexcept nogil:
    """An order of the nodes with parents before children, the children of a node together.

    order (n_nodes,); parent_edge (n_nodes,) the edge to each node's parent, -1 at roots, the
    lowest node of each tree; work (2 n_edges + n_nodes + 1,).  Where there is none, the status says
    why and *where is an edge that shows it: one to itself, one between two nodes that another
    edge is between, or one that closes a cycle.  Linear.
    """
    cdef Py_ssize_t e, i, t, root, a, b, at, n_found = 0, next_node
    cdef int* starts = work + 2 * n_edges
    where[0] = -1
    memset(starts, 0, (n_nodes + 1) * sizeof(int))
    for e in range(n_edges):
        if edges[2 * e] == edges[2 * e + 1]:
            where[0] = e
            return SELF_LOOP
        starts[edges[2 * e]] += 1
        starts[edges[2 * e + 1]] += 1
    a = 0
    for i in range(n_nodes):
        a += starts[i]
        starts[i] = <int> a
    # filled from the end, so that starts are starts in the end and edges of a node in order
    for e in range(n_edges - 1, -1, -1):
        for i in range(2):
            a = edges[2 * e + i]
            starts[a] -= 1
            work[starts[a]] = <int> e
    starts[n_nodes] = <int> (2 * n_edges)
    for i in range(n_nodes):
        parent_edge[i] = -2
    for root in range(n_nodes):
        if parent_edge[root] != -2:
            continue
        parent_edge[root] = -1
        next_node = n_found
        order[n_found] = <int> root
        n_found += 1
        while next_node < n_found:
            t = order[next_node]
            next_node += 1
            for at in range(starts[t], starts[t + 1]):
                e = work[at]
                if e == parent_edge[t]:
                    continue
                b = edges[2 * e] + edges[2 * e + 1] - t
                if parent_edge[b] != -2:
                    where[0] = e
                    if joins(edges, parent_edge[b], t, b) or joins(edges, parent_edge[t], t, b):
                        return REPEATED
                    return CYCLE
                parent_edge[b] = <int> e
                order[n_found] = <int> b
                n_found += 1
    return FOREST


cdef bint joins(const int* edges, Py_ssize_t e, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Whether edge e, unless it is -1, is between a and b."""
    return e >= 0 and edges[2 * e] + edges[2 * e + 1] == a + b and (
        edges[2 * e] == a or edges[2 * e] == b)


def forest_order(edges, Py_ssize_t n_nodes):
    """`plan_forest` for Python: order, parent_edge, and None or (what is wrong, an edge)."""
    cdef const int[:, ::1] held = np.ascontiguousarray(edges, dtype=np.intc).reshape(-1, 2)
    cdef Py_ssize_t where = -1, n_edges = held.shape[0]
    cdef int[::1] order = np.zeros(n_nodes + 1, dtype=np.intc)
    cdef int[::1] parent_edge = np.zeros(n_nodes + 1, dtype=np.intc)
    cdef int[::1] work = np.zeros(2 * n_edges + n_nodes + 1, dtype=np.intc)
    cdef plan_status status = plan_forest(
        &held[0, 0] if n_edges else NULL, n_edges, n_nodes, &order[0], &parent_edge[0], &work[0],
        &where)
    wrong = None
    if status != FOREST:
        kinds = {SELF_LOOP: "self-loop", REPEATED: "repeated", CYCLE: "cycle"}
        wrong = kinds[status], where
    return np.asarray(order)[:n_nodes], np.asarray(parent_edge)[:n_nodes], wrong
