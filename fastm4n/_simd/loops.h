/* Table of vector loops over feature-major weights: see loops_dispatch.h. */

#ifndef FASTM4N_LOOPS_H
#define FASTM4N_LOOPS_H

#include <stddef.h>

/* Ask for the cache line at p; no address is wrong. */
#if defined(__GNUC__) || defined(__clang__)
#define fastm4n_prefetch(p) __builtin_prefetch(p)
#else
#define fastm4n_prefetch(p) ((void)(p))
#endif

/* The number of the lowest bit that is one, of a number that has one. */
#if defined(__GNUC__) || defined(__clang__)
#define fastm4n_lowest_bit(bits) __builtin_ctz(bits)
#else
static int fastm4n_lowest_bit(unsigned bits)
{
    int number = 0;
    for (; !(bits & 1u); bits >>= 1)
        ++number;
    return number;
}
#endif

typedef struct {
    int width; /* doubles per vector; strides are multiples of it */

    /* v += x' W; idx names the non-zero features, or is NULL where x is dense */
    void (*scores_f64)(const double *x, const int *idx, ptrdiff_t nnz, const double *W,
                       ptrdiff_t stride, double *v);
    void (*scores_f32)(const float *x, const int *idx, ptrdiff_t nnz, const double *W,
                       ptrdiff_t stride, double *v);
    /* W += x c' */
    void (*update_f64)(const double *x, const int *idx, ptrdiff_t nnz, const double *c,
                       double *W, ptrdiff_t stride);
    void (*update_f32)(const float *x, const int *idx, ptrdiff_t nnz, const double *c,
                       double *W, ptrdiff_t stride);
    /* the same of the weights that have a one in `on`, a zero or one for each weight */
    void (*update_some_f64)(const double *x, const int *idx, ptrdiff_t nnz, const double *c,
                            const unsigned char *on, double *W, ptrdiff_t stride);
    void (*update_some_f32)(const float *x, const int *idx, ptrdiff_t nnz, const double *c,
                            const unsigned char *on, double *W, ptrdiff_t stride);
    /* W = min(max(scale soft(Z, threshold), lower), upper), soft(z, t) being z drawn towards 0 by
       t >= 0 and no further, in the rows that idx names, or in the first n where it is NULL;
       from one row's bounds, or thresholds, to the next are so many doubles, 0 where all rows have
       the same */
    void (*prox)(const double *Z, const double *threshold, ptrdiff_t threshold_step,
                 const double *lower, const double *upper, ptrdiff_t bound_step, double scale,
                 const int *idx, ptrdiff_t n, double *W, ptrdiff_t stride);
    /* F += rows' D, with rows given by pointers */
    void (*add_rows)(const double **rows, ptrdiff_t n_rows, const double *D, ptrdiff_t n,
                     ptrdiff_t stride, double *F);
    /* a' b */
    double (*dot)(const double *a, const double *b, ptrdiff_t n);
    /* out = a - b; returns ||out||^2 */
    double (*subtract)(const double *a, const double *b, double *out, ptrdiff_t n);
    /* mu = max(mu + gamma step, 0), and step becomes what was added; returns ||step||^2 */
    double (*advance)(double *mu, double *step, double gamma, ptrdiff_t n);
    double (*maximum)(const double *a, ptrdiff_t n);
    /* mu = softmax(v); returns log sum exp(v) */
    double (*softmax)(const double *v, ptrdiff_t n, double *mu);
    /* each of n_rows rows of n numbers, without room between them, becomes its softmax */
    void (*softmax_rows)(double *x, ptrdiff_t n_rows, ptrdiff_t n);
    /* out[j] = log sum_i exp(x[i step + j]) for i < n_rows and j < n; step is a multiple of width,
       and so are the numbers of x and out that are read and written */
    void (*log_sums)(const double *x, ptrdiff_t n_rows, ptrdiff_t step, ptrdiff_t n,
                     double *out);
    /* - sum mu log mu, in nats */
    double (*entropy)(const double *mu, ptrdiff_t n);
    /* first and second derivative in gamma of the entropy at mu + gamma d, for sum(d) = 0;
       entries are taken to be no less than the smallest normal double */
    void (*entropy_slopes)(const double *mu, const double *d, double gamma, ptrdiff_t n,
                           double *slope, double *bend);
    /* ask for the rows of W that idx names */
    void (*prefetch_rows)(const int *idx, ptrdiff_t nnz, const double *W, ptrdiff_t stride);
    /* sum over t, s of G[t][s] d[t]' d[s], G being symmetric and given by its lower triangle,
       row after row */
    double (*gram_norm)(const double *gram, const double *d, ptrdiff_t T, ptrdiff_t stride);
    /* || sum_e x[e] d[position[e]]' ||^2 for each feature, summed over the features: entry e is
       that of feature[e], and those of a feature stand together.  on, unless NULL, has
       a byte, zero or one, for each feature and label: zero leaves it out */
    double (*entries_norm)(const double *x, const int *position, const int *feature,
                           ptrdiff_t n, const double *d, const unsigned char *on,
                           ptrdiff_t stride);
    /* `add_rows` of rows and D in float: sums over 64 rows are in float. Rows of D are padded with
       zeros to a multiple of 2 width */
    void (*add_rows_f32)(const float **rows, ptrdiff_t n_rows, const float *D,
                         ptrdiff_t D_stride, ptrdiff_t n, ptrdiff_t stride, double *F);
    /* F[r, j] += sum_e rows[row[e]][r] values[e] over starts[j] <= e < starts[j + 1], for r < n
       and j < n_labels: rows with few labels each */
    void (*add_sparse_f32)(const float **rows, ptrdiff_t n_rows, const int *starts,
                           const int *row, const float *values, ptrdiff_t n, ptrdiff_t n_labels,
                           ptrdiff_t stride, double *F);
    void (*add_sparse_f64)(const double **rows, ptrdiff_t n_rows, const int *starts,
                           const int *row, const double *values, ptrdiff_t n,
                           ptrdiff_t n_labels, ptrdiff_t stride, double *F);
    /* y += a x */
    void (*axpy_f32)(float a, const float *x, ptrdiff_t n, float *y);
    /* out[i] = exp(-gamma max(0, square + squares[i] - 2 inner[i])), in double or float */
    void (*rbf_f64)(const double *inner, const double *squares, double square, double gamma,
                    ptrdiff_t n, double *out);
    void (*rbf_f32)(const double *inner, const double *squares, double square, double gamma,
                    ptrdiff_t n, float *out);
} fastm4n_loops;

/* numbers of a matrix of transitions from which on a step along a chain looks for signals */
#define FASTM4N_LOOKED_AT 65536

/* Recursions over chains, in double and in float: see chain_template.h. */
#define FASTM4N_CHAIN_TABLE(REAL, RINT)                                                        \
    struct {                                                                                   \
        int width; /* numbers per vector; strides are multiples of it */                       \
        int (*are_scores)(const REAL *x, ptrdiff_t n);                                         \
        void (*viterbi)(const REAL *unary, ptrdiff_t step, ptrdiff_t start, ptrdiff_t T,       \
                        ptrdiff_t R, ptrdiff_t stride, const REAL *pair, ptrdiff_t pair_step,  \
                        REAL *delta);                                                          \
        void (*viterbi_path)(const REAL *delta, ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride,    \
                             const REAL *pair, ptrdiff_t pair_step, const REAL *PT,            \
                             int *path);                                                       \
        double (*exp_rows)(const REAL *in, ptrdiff_t step, ptrdiff_t rows, ptrdiff_t group,    \
                           ptrdiff_t R, ptrdiff_t stride, REAL *out, double *range,            \
                           int *forbidden);                                                    \
        int (*sum_product)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride, REAL *e, const REAL *P, \
                           const REAL *PT, ptrdiff_t pair_step, int check, REAL *alpha,        \
                           REAL *beta, REAL *scale, REAL *node, double *log_z);                \
        int (*edge_sum)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride, const REAL *alpha,         \
                        const REAL *e, const REAL *P, REAL *out);                              \
        void (*edge)(ptrdiff_t R, ptrdiff_t stride, const REAL *alpha, const REAL *g,          \
                     const REAL *P, REAL *out);                                                \
        /* for any scores: see chain_log_template.h */                                         \
        int (*log_sum_product)(const REAL *unary, ptrdiff_t step, ptrdiff_t T, ptrdiff_t R,    \
                               ptrdiff_t stride, const REAL *pair, ptrdiff_t pair_step,        \
                               double *work, REAL *node, REAL *edge_sum, REAL *edges,          \
                               double *log_z);                                                 \
        void (*tangent)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride, const REAL *alpha,         \
                        const REAL *g, const REAL *node, const REAL *P, const REAL *PT,        \
                        const REAL *D, const REAL *DT, const REAL *direction, REAL *forward,   \
                        REAL *backward, REAL *row, REAL *change, double *mean);                \
        /* several chains side by side: see chain_lanes_template.h */                          \
        void (*lanes_load)(const REAL *const *rows, ptrdiff_t step, const RINT *lengths,       \
                           ptrdiff_t T, ptrdiff_t R, REAL *out);                               \
        void (*lanes_store)(const REAL *from, const RINT *lengths, ptrdiff_t T, ptrdiff_t R,   \
                            REAL factor, REAL *const *rows, ptrdiff_t step);                   \
        void (*lanes_sum_product)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t row, REAL *e,            \
                                  const REAL *P, const REAL *PT, double spread, double limit,  \
                                  int check, RINT *lengths, REAL *alpha, REAL *beta,           \
                                  REAL *scale, REAL *top, REAL *node, double *log_z);          \
        void (*lanes_edges)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t row, const REAL *alpha,        \
                            const REAL *g, const REAL *P, REAL *out);                          \
        void (*lanes_sum)(ptrdiff_t n, const REAL *vectors, double *total);                    \
        void (*lanes_viterbi)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t row, const REAL *u,          \
                              const REAL *pair, REAL *work, REAL *delta);                      \
        int (*lanes_path)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t row, const REAL *delta,          \
                          const REAL *pair, const RINT *lengths, RINT *path, REAL *score);     \
    }

typedef FASTM4N_CHAIN_TABLE(double, long long) fastm4n_chain_f64;
typedef FASTM4N_CHAIN_TABLE(float, int) fastm4n_chain_f32;

/* The transitions with scores of chains where most have none, from one end: see
 * chain_sparse_template.h. */
typedef struct {
    ptrdiff_t n;
    /* entries first[j] ... first[j + 1] - 1 are of label j: the labels at the other end, in order,
       and where their scores are */
    int *first, *other, *at;
    /* labels whose entries are gone through, and those with whole rows */
    ptrdiff_t n_few, n_many;
    int *few, *many;
} fastm4n_lists;

typedef struct {
    ptrdiff_t (*find)(const double *pair, ptrdiff_t R, ptrdiff_t stride, ptrdiff_t most,
                      int *place);
    void (*fill)(const int *place, ptrdiff_t n, ptrdiff_t R, ptrdiff_t stride, double most,
                 int by_place, fastm4n_lists *into, fastm4n_lists *out);
    void (*values)(const fastm4n_lists *of, const double *values, double base, double pad,
                   ptrdiff_t R, ptrdiff_t stride, double *own, double *whole);
    void (*exp)(const double *x, ptrdiff_t n, double shift, double *out);
    int (*viterbi)(const fastm4n_lists *into, const fastm4n_lists *out, const double *unary,
                   ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride, const double *W,
                   const double *whole, double *work, unsigned char *mask, double *delta,
                   int *path);
    int (*sum_product)(const fastm4n_lists *into, const fastm4n_lists *out, ptrdiff_t T,
                       ptrdiff_t R, ptrdiff_t stride, double *e, const double *const *P,
                       const double *const *whole, double base, double *work,
                       unsigned char *mask, double *alpha, double *beta, double *scale,
                       double *node, double *log_z);
    int (*edges)(const fastm4n_lists *out, ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride,
                 const double *alpha, const double *g, const double *P, double *turned,
                 double *sums);
} fastm4n_sparse_chain;

/* Messages along one edge of a graph: see forest_template.h. */
typedef struct {
    /* to[j] += max over i < n of from[i] + pair[i stride + j] */
    void (*max_columns)(const double *from, ptrdiff_t n, const double *pair, ptrdiff_t stride,
                        double *to);
    /* to[i] += max over j of from[j] + pair[i stride + j], for i < n */
    void (*max_rows)(const double *from, ptrdiff_t n, const double *pair, ptrdiff_t stride,
                     double *to);
    /* first label of the largest a + b */
    ptrdiff_t (*argmax_sum)(const double *a, const double *b, ptrdiff_t stride);
    /* to[i] = sum over j of from[j] M[i stride + j], for i < n */
    void (*sum_rows)(const double *from, ptrdiff_t n, const double *M, ptrdiff_t stride,
                     double *to);
    /* out = exp(x - max x); returns the maximum */
    double (*exp_shifted)(const double *x, ptrdiff_t stride, double *out);
    /* to += log(x) */
    void (*add_logs)(const double *x, ptrdiff_t stride, double *to);
    /* out[i stride + j] += weight a[i] P[i stride + j] b[j], for i < n */
    void (*add_edge)(const double *a, ptrdiff_t n, const double *P, ptrdiff_t stride,
                     const double *b, double weight, double *out);
} fastm4n_forest;

/* One linear assignment problem: see assignment_template.h. */
typedef int (*fastm4n_assign_loop)(const double *C, ptrdiff_t M, ptrdiff_t N, ptrdiff_t step,
                                   ptrdiff_t stride, int cold, int sweeps, double *u, double *v,
                                   ptrdiff_t *col_of, ptrdiff_t *row_of, double *d,
                                   double *distance, long long *from, ptrdiff_t *scanned,
                                   ptrdiff_t *free_rows);

/* What primal-dual steps over the local polytope work on: see polytope_template.h. */
typedef struct {
    ptrdiff_t n_edges, stride;
    const int *edges;       /* first and second node of each edge */
    const ptrdiff_t *sizes; /* labels of each node */
    const double *tables; /* scores of edge e at places[e], or at e stride^2 if that is NULL */
    const ptrdiff_t *places;
    const double *ahead; /* extrapolated marginals of nodes */
    double *q, *d;       /* the iterate, its start and its image */
    const double *q_first, *d_first;
    double *q_next, *d_next;
    double *columns; /* room for `stride` numbers */
    double scale;    /* length of primal steps */
} fastm4n_polytope;
typedef double (*fastm4n_polytope_step)(const fastm4n_polytope *w, double keep, int publish);

/* Games between permutations, several side by side: see game_template.h. */
enum { GAME_ZERO_ONE, GAME_RANK_ONE, GAME_DENSE }; /* the kinds of C */
typedef struct {
    int width; /* games in a group */
    /* vectors that the factors of a group take */
    ptrdiff_t (*held)(ptrdiff_t M, int kind);
    void (*factor)(ptrdiff_t M, int kind, const double *C, const double *state, double *held,
                   double *scratch);
    void (*move)(ptrdiff_t M, int kind, const double *C, const double *state,
                 const double *held, const double *v, int with_target, double target,
                 int corrects, double *moves, int keeps, double *change, double *scratch);
    void (*boundary)(ptrdiff_t M, const double *state, const double *moves, double *most);
    void (*products)(ptrdiff_t M, const double *state, const double *moves, double step,
                     double *products);
    void (*advance)(ptrdiff_t M, double *state, const double *moves, const double *v,
                    const double *steps, double step, double least);
    void (*bounds)(ptrdiff_t M, const double *C, const double *state, const double *v,
                   double *upper, double *lower);
    void (*scores)(ptrdiff_t n_groups, ptrdiff_t n_features, ptrdiff_t E, const double *x,
                   const double *W, double *v);
    void (*gather)(ptrdiff_t n_groups, ptrdiff_t n_features, ptrdiff_t E, const double *p,
                   const double *x, double *q, double *W);
} fastm4n_games;

#endif /* FASTM4N_LOOPS_H */
