"""Column indices of sparse matrices."""

ctypedef fused index_t:
    int
    long long


cdef inline int check_within(const index_t[::1] indices, Py_ssize_t n) except -1:
    """Refuse indices that are not all 0 ... n - 1."""
    cdef index_t least = 0, most = -1
    cdef Py_ssize_t i
    for i in range(indices.shape[0]):
        least = min(least, indices[i])
        most = max(most, indices[i])
    if least < 0 or most >= n:
        raise IndexError("X has a column index outside its shape.")
    return 0
