"""Linear features: rows of one matrix and the weights that they meet."""

from fastm4n.features._base cimport FeatureMap

cdef class LinearMap(FeatureMap):
    cdef object X
    cdef const double* data64
    cdef const float* data32
    cdef const int* indices
    cdef bint is_sparse
    cdef const long long[::1] indptr
    cdef readonly Py_ssize_t n_values
    cdef double[:, ::1] weights
    # what updates change; weights is this within the bounds, and the same memory without any
    cdef double[:, ::1] unclipped
    cdef const double[:, ::1] lower
    cdef const double[:, ::1] upper
    cdef readonly bint bounded
    # from the bounds of one feature to those of the next; 0 where all have the same
    cdef readonly Py_ssize_t bound_step
    # a byte for each weight, zero for those that stay zero; NULL where all may be used
    cdef const unsigned char[:, ::1] used
    cdef const unsigned char* on
    cdef readonly Py_ssize_t n_features
    cdef readonly double intercept

    cdef int row(
        self, Py_ssize_t r, Py_ssize_t* start, Py_ssize_t* nnz, const int** idx) noexcept nogil
    cdef int add_scores(self, Py_ssize_t r, double* v) noexcept nogil
    cdef int add_row(self, Py_ssize_t r, const double* coefficients) noexcept nogil
    cdef void clip_features(self, Py_ssize_t r) noexcept nogil
    cdef void clip_rows(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef void prefetch_row(self, Py_ssize_t r) noexcept nogil
