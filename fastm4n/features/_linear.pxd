"""Linear features: rows of one matrix and the weights that they meet."""

from fastm4n.features._base cimport WeightMap

cdef class LinearMap(WeightMap):
    cdef object X
    cdef const double* data64
    cdef const float* data32
    cdef const int* indices
    cdef bint is_sparse
    cdef const long long[::1] indptr
    cdef readonly Py_ssize_t n_values
    # a byte for each weight, zero for those that stay zero; NULL where all may be used
    cdef const unsigned char[:, ::1] used
    cdef const unsigned char* on
    # the same for norms, less the weights that bounds hold at zero: for features and constants
    # together, and for the rows behind them; NULL where all count
    cdef const unsigned char[:, ::1] counted
    cdef const unsigned char* on_counted
    cdef const unsigned char* more_counted
    cdef readonly Py_ssize_t n_features
    cdef readonly double intercept

    cdef int row(
        self, Py_ssize_t r, Py_ssize_t* start, Py_ssize_t* nnz, const int** idx) noexcept nogil
    cdef int add_scores(self, Py_ssize_t r, double* v) noexcept nogil
    cdef int add_row(self, Py_ssize_t r, const double* coefficients) noexcept nogil
    cdef void prox_features(self, Py_ssize_t r) noexcept nogil
    cdef void prox_rows(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef void prefetch_row(self, Py_ssize_t r) noexcept nogil
