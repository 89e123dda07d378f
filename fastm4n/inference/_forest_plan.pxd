"""Orders of the nodes of forests."""

cdef enum plan_status:
    FOREST = 0
    SELF_LOOP = 1
    REPEATED = 2
    CYCLE = 3

cdef plan_status plan_forest(
    const int* edges, Py_ssize_t n_edges, Py_ssize_t n_nodes, int* order, int* parent_edge,
    int* work, Py_ssize_t* where) noexcept nogil
