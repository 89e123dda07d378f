/* The vector loops, written once and included once per target by loops.h.
 *
 * The includer defines
 *   VLEN    doubles per vector (1, 2, 4 or 8)
 *   NAME(f) the name of f for this target
 *
 * All matrices of weights are feature-major: row f holds the scores that feature f adds
 * to every label, `stride` doubles long, a multiple of VLEN; what lies between the number
 * of labels and the stride is zero and stays zero.  T, the number of vectors that a pass
 * over the rows keeps in registers, is a compile-time constant after inlining.
 */

#if VLEN == 1
typedef double NAME(vec);
#define LOAD(p) (*(p))
#define STORE(p, a) (*(p) = (a))
#else
typedef double NAME(vec) __attribute__((vector_size(VLEN * 8), aligned(8), may_alias));
#define LOAD(p) (*(const NAME(vec) *)(p))
#define STORE(p, a) (*(NAME(vec) *)(p) = (a))
#endif

#define SCORES(REAL, TAG)                                                                      \
    static ALWAYS_INLINE void NAME(scores_tile_##TAG)(                                         \
        const int T, const int U, const REAL *x, const int *idx, ptrdiff_t nnz,                \
        const double *W, ptrdiff_t stride, double *v)                                          \
    {                                                                                          \
        NAME(vec) acc[4][8];                                                                   \
        ptrdiff_t f = 0;                                                                       \
        for (int u = 0; u < U; ++u)                                                            \
            for (int t = 0; t < T; ++t)                                                        \
                acc[u][t] = (NAME(vec)){0};                                                    \
        for (; f + U <= nnz; f += U)                                                           \
            for (int u = 0; u < U; ++u) {                                                      \
                const double *row = W + (idx ? (ptrdiff_t)idx[f + u] : f + u) * stride;        \
                const double xf = (double)x[f + u];                                            \
                for (int t = 0; t < T; ++t)                                                    \
                    acc[u][t] += xf * LOAD(row + t * VLEN);                                    \
            }                                                                                  \
        for (; f < nnz; ++f) {                                                                 \
            const double *row = W + (idx ? (ptrdiff_t)idx[f] : f) * stride;                    \
            const double xf = (double)x[f];                                                    \
            for (int t = 0; t < T; ++t)                                                        \
                acc[0][t] += xf * LOAD(row + t * VLEN);                                        \
        }                                                                                      \
        for (int t = 0; t < T; ++t) {                                                          \
            NAME(vec) sum = LOAD(v + t * VLEN) + acc[0][t];                                    \
            for (int u = 1; u < U; ++u)                                                        \
                sum += acc[u][t];                                                              \
            STORE(v + t * VLEN, sum);                                                          \
        }                                                                                      \
    }                                                                                          \
    static void NAME(scores_##TAG)(const REAL *x, const int *idx, ptrdiff_t nnz,               \
                                   const double *W, ptrdiff_t stride, double *v)               \
    {                                                                                          \
        ptrdiff_t j = 0;                                                                       \
        for (; j + 4 * VLEN <= stride; j += 4 * VLEN)                                          \
            NAME(scores_tile_##TAG)(4, 2, x, idx, nnz, W + j, stride, v + j);                  \
        if (j + 2 * VLEN <= stride) {                                                          \
            NAME(scores_tile_##TAG)(2, 4, x, idx, nnz, W + j, stride, v + j);                  \
            j += 2 * VLEN;                                                                     \
        }                                                                                      \
        if (j < stride)                                                                        \
            NAME(scores_tile_##TAG)(1, 4, x, idx, nnz, W + j, stride, v + j);                  \
    }

#define UPDATE(REAL, TAG)                                                                      \
    static ALWAYS_INLINE void NAME(update_tile_##TAG)(                                         \
        const int T, const REAL *x, const int *idx, ptrdiff_t nnz, const double *c, double *W, \
        ptrdiff_t stride)                                                                      \
    {                                                                                          \
        NAME(vec) step[4];                                                                     \
        for (int t = 0; t < T; ++t)                                                            \
            step[t] = LOAD(c + t * VLEN);                                                      \
        for (ptrdiff_t f = 0; f < nnz; ++f) {                                                  \
            double *row = W + (idx ? (ptrdiff_t)idx[f] : f) * stride;                          \
            const double xf = (double)x[f];                                                    \
            for (int t = 0; t < T; ++t)                                                        \
                STORE(row + t * VLEN, LOAD(row + t * VLEN) + xf * step[t]);                    \
        }                                                                                      \
    }                                                                                          \
    static void NAME(update_##TAG)(const REAL *x, const int *idx, ptrdiff_t nnz,               \
                                   const double *c, double *W, ptrdiff_t stride)               \
    {                                                                                          \
        ptrdiff_t j = 0;                                                                       \
        for (; j + 4 * VLEN <= stride; j += 4 * VLEN)                                          \
            NAME(update_tile_##TAG)(4, x, idx, nnz, c + j, W + j, stride);                     \
        if (j + 2 * VLEN <= stride) {                                                          \
            NAME(update_tile_##TAG)(2, x, idx, nnz, c + j, W + j, stride);                     \
            j += 2 * VLEN;                                                                     \
        }                                                                                      \
        if (j < stride)                                                                        \
            NAME(update_tile_##TAG)(1, x, idx, nnz, c + j, W + j, stride);                     \
    }

SCORES(double, f64)
SCORES(float, f32)
UPDATE(double, f64)
UPDATE(float, f32)

/* F[r, :] += sum_b rows[b][r] * D[b, :] for start <= r < stop.  Two rows of F share each
   load of D.  Meanwhile the columns stop ... ahead - 1 of the rows are fetched: 64 streams
   at once are more than the hardware's own prefetching follows. */
static ALWAYS_INLINE void NAME(add_rows_tile)(const int T, const double **rows,
                                              ptrdiff_t n_rows, const double *D, ptrdiff_t start,
                                              ptrdiff_t stop, ptrdiff_t ahead, ptrdiff_t stride,
                                              double *F)
{
    ptrdiff_t fetched = 0;
    ptrdiff_t r = start;
    for (; r + 2 <= stop; r += 2) {
        NAME(vec) acc0[4], acc1[4];
        for (int t = 0; t < T; ++t) {
            acc0[t] = LOAD(F + r * stride + t * VLEN);
            acc1[t] = LOAD(F + (r + 1) * stride + t * VLEN);
        }
        for (int u = 0; u < 2 && fetched < n_rows; ++u, ++fetched)
            for (ptrdiff_t c = stop; c < ahead; c += 8)
                PREFETCH(rows[fetched] + c);
        for (ptrdiff_t b = 0; b < n_rows; ++b) {
            const double x0 = rows[b][r], x1 = rows[b][r + 1];
            for (int t = 0; t < T; ++t) {
                const NAME(vec) d = LOAD(D + b * stride + t * VLEN);
                acc0[t] += x0 * d;
                acc1[t] += x1 * d;
            }
        }
        for (int t = 0; t < T; ++t) {
            STORE(F + r * stride + t * VLEN, acc0[t]);
            STORE(F + (r + 1) * stride + t * VLEN, acc1[t]);
        }
    }
    for (; r < stop; ++r)
        for (ptrdiff_t b = 0; b < n_rows; ++b) {
            const double x0 = rows[b][r];
            for (int t = 0; t < T; ++t)
                STORE(F + r * stride + t * VLEN,
                      LOAD(F + r * stride + t * VLEN) + x0 * LOAD(D + b * stride + t * VLEN));
        }
}

static void NAME(add_rows)(const double **rows, ptrdiff_t n_rows, const double *D,
                           ptrdiff_t n, ptrdiff_t stride, double *F)
{
    /* 64 columns of 64 rows are 32 KiB: they stay in the first-level cache while the
       tiles of labels pass over them */
    for (ptrdiff_t start = 0; start < n; start += 64) {
        const ptrdiff_t stop = start + 64 < n ? start + 64 : n;
        ptrdiff_t ahead = stop + 64 < n ? stop + 64 : n;
        ptrdiff_t j = 0;
        for (; j + 4 * VLEN <= stride; j += 4 * VLEN, ahead = stop)
            NAME(add_rows_tile)(4, rows, n_rows, D + j, start, stop, ahead, stride, F + j);
        if (j + 2 * VLEN <= stride) {
            NAME(add_rows_tile)(2, rows, n_rows, D + j, start, stop, ahead, stride, F + j);
            j += 2 * VLEN;
            ahead = stop;
        }
        if (j < stride)
            NAME(add_rows_tile)(1, rows, n_rows, D + j, start, stop, ahead, stride, F + j);
    }
}

static const fastm4n_loops NAME(table) = {
    VLEN, NAME(scores_f64), NAME(scores_f32), NAME(update_f64), NAME(update_f32), NAME(add_rows),
};

#undef LOAD
#undef STORE
#undef SCORES
#undef UPDATE
