"""What the solver asks of a surrogate over one kind of output; see the .pyx."""

from fastm4n.outputs._base cimport Outputs, Workspace, label_t


cdef class Surrogate:
    cdef readonly Outputs outputs
    cdef readonly Py_ssize_t n_blocks, max_size
    cdef readonly bint has_line_search, has_block_step, has_natural_step, has_labellings
    cdef readonly bint has_points

    cdef inline Py_ssize_t offset(self, Py_ssize_t b) noexcept nogil:
        return self.outputs.layout.offset(b)

    cdef inline Py_ssize_t size(self, Py_ssize_t b) noexcept nogil:
        return self.outputs.layout.size(b)

    cdef inline double true_score(self, Py_ssize_t b, const double* v) noexcept nogil:
        """<v, phi(y_b)>."""
        return self.outputs.score(b, self.outputs.true_labels(b), v)

    cdef inline void truth(self, Py_ssize_t b, double* mu) noexcept nogil:
        """mu = phi(y_b)."""
        self.outputs.indicator(b, self.outputs.true_labels(b), mu)

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil
    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil
    cdef int certified(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil
    cdef int bound(self, Py_ssize_t b, Workspace work, double* upper) except -1 nogil
    cdef int line_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil
    cdef int block_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil
    cdef int natural_size(
        self, Py_ssize_t b, Workspace work, double curvature, double* step) except -1 nogil
    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil
    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil
    cdef int point(self, Py_ssize_t b, Workspace work, double* mu) except -1 nogil
    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, label_t* labels, double* value) except -1 nogil
    cdef double labelling_height(self, Py_ssize_t b, const label_t* labels) noexcept nogil
