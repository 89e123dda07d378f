"""What the solver asks of one kind of output."""

cdef enum:
    # labels are kept in 16 bits
    MOST_LABELS = 65535

cdef class Workspace:
    cdef double current
    cdef double tolerance
    cdef double[::1] scores
    cdef double[::1] atom
    cdef double[::1] step
    cdef double[::1] scratch
    cdef double[:, ::1] table
    cdef Py_ssize_t[::1] index

cdef class Structure:
    cdef readonly Py_ssize_t n_blocks
    cdef readonly Py_ssize_t max_size
    cdef readonly bint has_line_search
    cdef readonly bint has_block_step
    cdef readonly bint has_natural_step
    cdef readonly bint has_labellings
    cdef readonly Py_ssize_t max_parts

    cdef Py_ssize_t offset(self, Py_ssize_t b) noexcept nogil
    cdef Py_ssize_t size(self, Py_ssize_t b) noexcept nogil
    cdef int truth(self, Py_ssize_t b, double[::1] mu, Py_ssize_t offset) except -1 nogil
    cdef int truth_score(self, Py_ssize_t b, const double[::1] v, double* value) except -1 nogil
    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil
    cdef int oracle(
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
    cdef Py_ssize_t n_parts(self, Py_ssize_t b) noexcept nogil
    cdef void true_labelling(self, Py_ssize_t b, unsigned short* labels) noexcept nogil
    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, unsigned short* labels, double* value) except -1 nogil
    cdef double labelling_score(
        self, Py_ssize_t b, const unsigned short* labels, const double* v) noexcept nogil
    cdef double labelling_concave(self, Py_ssize_t b, const unsigned short* labels) noexcept nogil
    cdef void add_labelling(
        self, Py_ssize_t b, const unsigned short* labels, double weight, double* mu) noexcept nogil
