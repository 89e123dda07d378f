"""Memory of arguments and scratch of calls, without the time that arrays and memoryviews take."""

from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_STRIDES,
    PyBuffer_IsContiguous,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)


cdef inline char held_kind(values, Py_buffer* view) except? 0:
    """The kind of the numbers of an array in C order, as in `struct`, or 0 where it is none.

    Unless it is 0, `view` holds the memory, which is to be released.
    """
    if not PyObject_CheckBuffer(values):
        return 0
    try:
        PyObject_GetBuffer(values, view, PyBUF_STRIDES | PyBUF_FORMAT)
    except (ValueError, BufferError):
        return 0
    if view.format != NULL and view.format[0] and view.format[1] == 0 and (
            PyBuffer_IsContiguous(view, b"C")):
        return view.format[0]
    PyBuffer_Release(view)
    return 0


cdef inline tuple shape_of(const Py_buffer* view):
    cdef int d
    return tuple([view.shape[d] for d in range(view.ndim)])


cdef inline bint are_edges(
        const int* edges, Py_ssize_t n_edges, Py_ssize_t n_nodes) noexcept nogil:
    """Whether all are pairs of two different nodes."""
    cdef Py_ssize_t e
    cdef unsigned int a, b, n = <unsigned int> n_nodes
    cdef int bad = 0
    for e in range(n_edges):
        a = <unsigned int> edges[2 * e]
        b = <unsigned int> edges[2 * e + 1]
        bad |= (a >= n) | (b >= n) | (a == b)
    return bad == 0


cdef enum:
    # nodes and edges of the scratch that is kept between calls; a few MB
    SPARE_SIZE = 16384


cdef inline object take_scratch(list spare, make, Py_ssize_t n_nodes, Py_ssize_t n_edges):
    """Scratch make(n_nodes, n_edges), or the spare one if it is large enough.

    Taking and giving back are atomic: no two calls have the same.
    """
    try:
        scratch = spare.pop()
    except IndexError:
        return make(n_nodes, n_edges)
    if scratch.max_nodes < n_nodes or scratch.max_edges < n_edges:
        return make(n_nodes, n_edges)
    return scratch


cdef inline int spare_scratch(list spare, scratch) except -1:
    """Keep it for the next call, unless it is large: fresh memory costs time."""
    if not spare and scratch.max_nodes + scratch.max_edges <= SPARE_SIZE:
        spare.append(scratch)
    return 0
