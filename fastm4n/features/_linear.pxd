"""Linear features: rows of one matrix and the weights that they meet."""

from fastm4n.features._base cimport WeightMap

cdef extern from "../features/pair_loops.h" nogil:
    ctypedef unsigned long long uint64_t
    ctypedef int int32_t
    ctypedef struct fastm4n_pair_head:
        uint64_t mask
        int32_t first
        int32_t count
    ctypedef struct fastm4n_pairs:
        void (*scores_f64)(
            const double*, const int*, Py_ssize_t, const fastm4n_pair_head*, const double*,
            Py_ssize_t, double*) noexcept nogil
        void (*scores_f32)(
            const float*, const int*, Py_ssize_t, const fastm4n_pair_head*, const double*,
            Py_ssize_t, double*) noexcept nogil
        void (*update_f64)(
            const double*, const int*, Py_ssize_t, const double*,
            const fastm4n_pair_head*, double*, Py_ssize_t) noexcept nogil
        void (*update_f32)(
            const float*, const int*, Py_ssize_t, const double*,
            const fastm4n_pair_head*, double*, Py_ssize_t) noexcept nogil
        double (*norm_f64)(
            const double*, const int*, const long long*, const unsigned short*,
            const unsigned short*, Py_ssize_t, const fastm4n_pair_head*, const double*,
            Py_ssize_t) noexcept nogil
        double (*norm_f32)(
            const float*, const int*, const long long*, const unsigned short*,
            const unsigned short*, Py_ssize_t, const fastm4n_pair_head*, const double*,
            Py_ssize_t) noexcept nogil
        void (*prox)(
            const double*, const double*, int, const double*, const double*, int, double,
            const int*, Py_ssize_t, const int*, double*) noexcept nogil


cdef enum:
    # the part of the weights that is all of them
    WHOLE = -1


cdef class LinearMap(WeightMap):
    cdef readonly object X
    cdef const double* data64
    cdef const float* data32
    # one of them is NULL; both where X has no values, or is dense
    cdef const int* indices
    cdef const long long* long_indices
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
    # where the pairs of each feature begin, and the place in a row of n_rows x labels of each; NULL
    # where there are rows of weights for all features. `behind` is the row of the constant feature
    cdef const int[::1] pair_start
    cdef const unsigned short[::1] pair_place
    cdef const int* first_pair
    cdef const unsigned short* place
    cdef readonly Py_ssize_t behind
    # heads of each feature's pairs, two words each, and vector loops by them; NULL where rows are
    # longer than 64 or vectors have no such loops
    cdef const unsigned long long[::1] pair_heads
    cdef const fastm4n_pair_head* heads
    cdef const fastm4n_pairs* pair_loops
    # whether thresholds and bounds that are held once are one number each
    cdef bint is_even
    cdef readonly Py_ssize_t n_features
    cdef readonly double intercept
    # the features with which parts of the weights begin, and end
    cdef Py_ssize_t[::1] cuts
    # how many values of each row of sparse X are before each cut
    cdef const int[:, ::1] splits

    cdef int row(
        self, Py_ssize_t r, Py_ssize_t* start, Py_ssize_t* nnz, const int** idx) noexcept nogil
    cdef inline Py_ssize_t feature(self, Py_ssize_t i) noexcept nogil:
        """The feature of value i of sparse X."""
        return self.indices[i] if self.long_indices == NULL else self.long_indices[i]

    cdef Py_ssize_t piece(
        self, Py_ssize_t start, Py_ssize_t stop, int* room, const int** idx) noexcept nogil
    cdef int add_scores(self, Py_ssize_t r, double* v) noexcept nogil
    cdef int add_pair_scores(self, Py_ssize_t start, Py_ssize_t nnz, double* v) noexcept nogil
    cdef int add_pairs(
        self, Py_ssize_t start, Py_ssize_t nnz, const double* coefficients) noexcept nogil
    cdef void prox_pairs(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef void prefetch_weights(self, Py_ssize_t r, Py_ssize_t part) noexcept nogil
    cdef void prefetch_heads(self, Py_ssize_t r) noexcept nogil
    cdef int row_part(
        self, Py_ssize_t r, Py_ssize_t part, Py_ssize_t* start, Py_ssize_t* stop) noexcept nogil
    cdef int add_row(
        self, Py_ssize_t r, const double* coefficients, Py_ssize_t part) noexcept nogil
    cdef void prox_features(self, Py_ssize_t r, Py_ssize_t part) noexcept nogil
    cdef void prox_rows(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil
    cdef void prefetch_row(self, Py_ssize_t r) noexcept nogil
