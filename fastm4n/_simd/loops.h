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

typedef struct {
    int width; /* doubles per vector; strides are multiples of it */

    /* v += x' W; idx names the non-zero features, or is NULL where x is dense */
    void (*scores_f64)(const double *x, const int *idx, ptrdiff_t nnz, const double *W,
                       ptrdiff_t stride, double *v);
    void (*scores_f32)(const float *x, const int *idx, ptrdiff_t nnz, const double *W,
                       ptrdiff_t stride, double *v);
    /* W += x c' */
    void (*update_f64)(const double *x, const int *idx, ptrdiff_t nnz, const double *c, double *W,
                       ptrdiff_t stride);
    void (*update_f32)(const float *x, const int *idx, ptrdiff_t nnz, const double *c, double *W,
                       ptrdiff_t stride);
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
    /* - sum mu log mu, in nats */
    double (*entropy)(const double *mu, ptrdiff_t n);
    /* first and second derivative in gamma of the entropy at mu + gamma d, for sum(d) = 0;
       entries are taken to be no less than the smallest normal double */
    void (*entropy_slopes)(const double *mu, const double *d, double gamma, ptrdiff_t n,
                           double *slope, double *bend);
} fastm4n_loops;

#endif /* FASTM4N_LOOPS_H */
