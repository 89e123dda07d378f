/* Table of vector loops over feature-major weights: see loops_dispatch.h. */

#ifndef FASTM4N_LOOPS_H
#define FASTM4N_LOOPS_H

#include <stddef.h>

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
} fastm4n_loops;

#endif /* FASTM4N_LOOPS_H */
