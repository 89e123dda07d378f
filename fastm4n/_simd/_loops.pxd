"""Vector loops over feature-major weights, chosen at import for the processor at hand."""

cdef extern from "loops.h" nogil:
    void fastm4n_prefetch(const void*) noexcept
    int fastm4n_lowest_bit(unsigned int) noexcept
    ctypedef struct fastm4n_loops:
        int width
        void (*scores_f64)(
            const double*, const int*, Py_ssize_t, const double*, Py_ssize_t,
            double*) noexcept nogil
        void (*scores_f32)(
            const float*, const int*, Py_ssize_t, const double*, Py_ssize_t, double*) noexcept nogil
        void (*update_f64)(
            const double*, const int*, Py_ssize_t, const double*, double*,
            Py_ssize_t) noexcept nogil
        void (*update_f32)(
            const float*, const int*, Py_ssize_t, const double*, double*, Py_ssize_t) noexcept nogil
        void (*update_some_f64)(
            const double*, const int*, Py_ssize_t, const double*, const unsigned char*, double*,
            Py_ssize_t) noexcept nogil
        void (*update_some_f32)(
            const float*, const int*, Py_ssize_t, const double*, const unsigned char*, double*,
            Py_ssize_t) noexcept nogil
        void (*prox)(
            const double*, const double*, Py_ssize_t, const double*, const double*, Py_ssize_t,
            double, const int*, Py_ssize_t, double*, Py_ssize_t) noexcept nogil
        void (*add_rows)(
            const double**, Py_ssize_t, const double*, Py_ssize_t, Py_ssize_t,
            double*) noexcept nogil
        double (*dot)(const double*, const double*, Py_ssize_t) noexcept nogil
        double (*subtract)(const double*, const double*, double*, Py_ssize_t) noexcept nogil
        double (*advance)(double*, double*, double, Py_ssize_t) noexcept nogil
        double (*maximum)(const double*, Py_ssize_t) noexcept nogil
        double (*softmax)(const double*, Py_ssize_t, double*) noexcept nogil
        void (*softmax_rows)(double*, Py_ssize_t, Py_ssize_t) noexcept nogil
        void (*log_sums)(
            const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, double*) noexcept nogil
        double (*entropy)(const double*, Py_ssize_t) noexcept nogil
        void (*entropy_slopes)(
            const double*, const double*, double, Py_ssize_t, double*, double*) noexcept nogil
        void (*prefetch_rows)(const int*, Py_ssize_t, const double*, Py_ssize_t) noexcept nogil
        double (*gram_norm)(const double*, const double*, Py_ssize_t, Py_ssize_t) noexcept nogil
        double (*entries_norm)(
            const double*, const int*, const int*, Py_ssize_t, const double*, const unsigned char*,
            Py_ssize_t) noexcept nogil
        void (*add_rows_f32)(
            const float**, Py_ssize_t, const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t,
            double*) noexcept nogil
        void (*add_sparse_f32)(
            const float**, Py_ssize_t, const int*, const int*, const float*, Py_ssize_t,
            Py_ssize_t, Py_ssize_t, double*) noexcept nogil
        void (*add_sparse_f64)(
            const double**, Py_ssize_t, const int*, const int*, const double*, Py_ssize_t,
            Py_ssize_t, Py_ssize_t, double*) noexcept nogil
        void (*axpy_f32)(float, const float*, Py_ssize_t, float*) noexcept nogil
        void (*rbf_f64)(
            const double*, const double*, double, double, Py_ssize_t, double*) noexcept nogil
        void (*rbf_f32)(
            const double*, const double*, double, double, Py_ssize_t, float*) noexcept nogil
    ctypedef struct fastm4n_chain_f64:
        int width
        int (*are_scores)(const double*, Py_ssize_t) noexcept nogil
        void (*viterbi)(
            const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t,
            const double*, Py_ssize_t, double*) noexcept nogil
        void (*viterbi_path)(
            const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, Py_ssize_t,
            const double*, int*) noexcept nogil
        double (*exp_rows)(
            const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, double*,
            double*, int*) noexcept nogil
        int (*sum_product)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, double*, const double*, const double*, Py_ssize_t,
            int, double*, double*, double*, double*, double*) noexcept nogil
        int (*edge_sum)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, const double*,
            double*) noexcept nogil
        void (*edge)(
            Py_ssize_t, Py_ssize_t, const double*, const double*, const double*,
            double*) noexcept nogil
        int (*log_sum_product)(
            const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*,
            Py_ssize_t, double*, double*, double*, double*, double*) noexcept nogil
        void (*tangent)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, const double*,
            const double*, const double*, const double*, const double*, const double*,
            double*, double*, double*, double*, double*) noexcept nogil
        void (*lanes_load)(
            const double**, Py_ssize_t, const long long*, Py_ssize_t, Py_ssize_t,
            double*) noexcept nogil
        void (*lanes_store)(
            const double*, const long long*, Py_ssize_t, Py_ssize_t, double, double**,
            Py_ssize_t) noexcept nogil
        void (*lanes_sum_product)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, double*, const double*, const double*, double,
            double, int, long long*, double*, double*, double*, double*, double*,
            double*) noexcept nogil
        void (*lanes_edges)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, const double*,
            double*) noexcept nogil
        void (*lanes_sum)(Py_ssize_t, const double*, double*) noexcept nogil
        void (*lanes_viterbi)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, double*,
            double*) noexcept nogil
        int (*lanes_path)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, const long long*,
            long long*, double*) noexcept nogil
    ctypedef struct fastm4n_chain_f32:
        int width
        int (*are_scores)(const float*, Py_ssize_t) noexcept nogil
        void (*viterbi)(
            const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*,
            Py_ssize_t, float*) noexcept nogil
        void (*viterbi_path)(
            const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*, Py_ssize_t,
            const float*, int*) noexcept nogil
        double (*exp_rows)(
            const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, float*,
            double*, int*) noexcept nogil
        int (*sum_product)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, float*, const float*, const float*, Py_ssize_t,
            int, float*, float*, float*, float*, double*) noexcept nogil
        int (*edge_sum)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*, const float*, const float*,
            float*) noexcept nogil
        void (*edge)(
            Py_ssize_t, Py_ssize_t, const float*, const float*, const float*, float*) noexcept nogil
        int (*log_sum_product)(
            const float*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*,
            Py_ssize_t, double*, float*, float*, float*, double*) noexcept nogil
        void (*tangent)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*, const float*, const float*,
            const float*, const float*, const float*, const float*, const float*,
            float*, float*, float*, float*, double*) noexcept nogil
        void (*lanes_load)(
            const float**, Py_ssize_t, const int*, Py_ssize_t, Py_ssize_t,
            float*) noexcept nogil
        void (*lanes_store)(
            const float*, const int*, Py_ssize_t, Py_ssize_t, float, float**,
            Py_ssize_t) noexcept nogil
        void (*lanes_sum_product)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, float*, const float*, const float*, double,
            double, int, int*, float*, float*, float*, float*, float*,
            double*) noexcept nogil
        void (*lanes_edges)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*, const float*, const float*,
            float*) noexcept nogil
        void (*lanes_sum)(Py_ssize_t, const float*, double*) noexcept nogil
        void (*lanes_viterbi)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*, const float*, float*,
            float*) noexcept nogil
        int (*lanes_path)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const float*, const float*, const int*,
            int*, float*) noexcept nogil
    ctypedef struct fastm4n_lists:
        Py_ssize_t n
        int* first
        int* other
        int* at
        Py_ssize_t n_few, n_many
        int* few
        int* many
    ctypedef struct fastm4n_sparse_chain:
        Py_ssize_t (*find)(
            const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, int*) noexcept nogil
        void (*fill)(
            const int*, Py_ssize_t, Py_ssize_t, Py_ssize_t, double, int, fastm4n_lists*,
            fastm4n_lists*) noexcept nogil
        void (*values)(
            const fastm4n_lists*, const double*, double, double, Py_ssize_t, Py_ssize_t, double*,
            double*) noexcept nogil
        void (*exp)(const double*, Py_ssize_t, double, double*) noexcept nogil
        int (*viterbi)(
            const fastm4n_lists*, const fastm4n_lists*, const double*, Py_ssize_t, Py_ssize_t,
            Py_ssize_t, const double*, const double*, double*, unsigned char*, double*,
            int*) noexcept nogil
        int (*sum_product)(
            const fastm4n_lists*, const fastm4n_lists*, Py_ssize_t, Py_ssize_t, Py_ssize_t,
            double*, const double**, const double**, double, double*, unsigned char*, double*,
            double*, double*, double*, double*) noexcept nogil
        int (*edges)(
            const fastm4n_lists*, Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*,
            const double*, const double*, double*, double*) noexcept nogil
    ctypedef struct fastm4n_forest:
        void (*max_columns)(
            const double*, Py_ssize_t, const double*, Py_ssize_t, double*) noexcept nogil
        void (*max_rows)(
            const double*, Py_ssize_t, const double*, Py_ssize_t, double*) noexcept nogil
        Py_ssize_t (*argmax_sum)(const double*, const double*, Py_ssize_t) noexcept nogil
        void (*sum_rows)(
            const double*, Py_ssize_t, const double*, Py_ssize_t, double*) noexcept nogil
        double (*exp_shifted)(const double*, Py_ssize_t, double*) noexcept nogil
        void (*add_logs)(const double*, Py_ssize_t, double*) noexcept nogil
        void (*add_edge)(
            const double*, Py_ssize_t, const double*, Py_ssize_t, const double*, double,
            double*) noexcept nogil
    ctypedef int (*fastm4n_assign_loop)(
        const double*, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, int, int, double*, double*,
        Py_ssize_t*, Py_ssize_t*, double*, double*, long long*, Py_ssize_t*,
        Py_ssize_t*) noexcept nogil
    ctypedef struct fastm4n_polytope:
        Py_ssize_t n_edges, stride
        const int* edges
        const Py_ssize_t* sizes
        const double* tables
        const Py_ssize_t* places
        const double* ahead
        double* q
        double* d
        const double* q_first
        const double* d_first
        double* q_next
        double* d_next
        double* columns
        double scale
    ctypedef double (*fastm4n_polytope_step)(
        const fastm4n_polytope*, double, int) noexcept nogil
    const int GAME_ZERO_ONE
    const int GAME_RANK_ONE
    const int GAME_DENSE
    ctypedef struct fastm4n_games:
        int width
        Py_ssize_t (*held)(Py_ssize_t, int) noexcept nogil
        void (*factor)(
            Py_ssize_t, int, const double*, const double*, double*, double*) noexcept nogil
        void (*move)(
            Py_ssize_t, int, const double*, const double*, const double*, const double*, int,
            double, int, double*, int, double*, double*) noexcept nogil
        void (*boundary)(Py_ssize_t, const double*, const double*, double*) noexcept nogil
        void (*products)(
            Py_ssize_t, const double*, const double*, double, double*) noexcept nogil
        void (*advance)(
            Py_ssize_t, double*, const double*, const double*, const double*, double,
            double) noexcept nogil
        void (*bounds)(
            Py_ssize_t, const double*, const double*, const double*, double*,
            double*) noexcept nogil
        void (*scores)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*,
            double*) noexcept nogil
        void (*gather)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const double*, const double*, double*,
            double*) noexcept nogil

cdef const fastm4n_games* games_by_side() noexcept nogil
cdef fastm4n_polytope_step polytope_for(Py_ssize_t n_labels) noexcept nogil
cdef fastm4n_assign_loop assign_for(Py_ssize_t n_columns) noexcept nogil
cdef const fastm4n_sparse_chain* sparse_chain_for(Py_ssize_t n_labels) noexcept nogil
cdef const fastm4n_forest* forest_for(Py_ssize_t n_labels) noexcept nogil
cdef const fastm4n_chain_f64* chain_f64_for(Py_ssize_t n_labels) noexcept nogil
cdef const fastm4n_chain_f32* chain_f32_for(Py_ssize_t n_labels) noexcept nogil
cdef const fastm4n_loops* loops_for(Py_ssize_t n_labels) noexcept nogil
cdef Py_ssize_t padded(Py_ssize_t n_labels, const fastm4n_loops* loops) noexcept nogil
