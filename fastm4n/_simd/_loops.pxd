"""Vector loops over feature-major weights, chosen at import for the processor at hand."""

cdef extern from "loops.h" nogil:
    void fastm4n_prefetch(const void*) noexcept
    ctypedef struct fastm4n_loops:
        int width
        void (*scores_f64)(const double*, const int*, Py_ssize_t, const double*, Py_ssize_t, double*) noexcept nogil
        void (*scores_f32)(const float*, const int*, Py_ssize_t, const double*, Py_ssize_t, double*) noexcept nogil
        void (*update_f64)(const double*, const int*, Py_ssize_t, const double*, double*, Py_ssize_t) noexcept nogil
        void (*update_f32)(const float*, const int*, Py_ssize_t, const double*, double*, Py_ssize_t) noexcept nogil
        void (*add_rows)(const double**, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t, double*) noexcept nogil
        double (*dot)(const double*, const double*, Py_ssize_t) noexcept nogil
        double (*subtract)(const double*, const double*, double*, Py_ssize_t) noexcept nogil
        double (*advance)(double*, double*, double, Py_ssize_t) noexcept nogil
        double (*maximum)(const double*, Py_ssize_t) noexcept nogil
        double (*softmax)(const double*, Py_ssize_t, double*) noexcept nogil
        double (*entropy)(const double*, Py_ssize_t) noexcept nogil
        void (*entropy_slopes)(const double*, const double*, double, Py_ssize_t, double*, double*) noexcept nogil

cdef const fastm4n_loops* loops_for(Py_ssize_t n_labels) noexcept nogil
cdef Py_ssize_t padded(Py_ssize_t n_labels, const fastm4n_loops* loops) noexcept nogil
