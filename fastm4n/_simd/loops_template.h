/* The vector loops, written once and included once per target by loops_dispatch.h.
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

#include "vector_template.h"

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

/* The bytes at p, zeros and ones, as a vector. */
static ALWAYS_INLINE NAME(vec) NAME(from_bytes)(const unsigned char *p)
{
#if VLEN == 1
    return *p;
#else
    return __builtin_convertvector(*(const NAME(bytes) *)p, NAME(vec));
#endif
}

#define UPDATE_SOME(REAL, TAG)                                                                 \
    static ALWAYS_INLINE void NAME(update_some_tile_##TAG)(                                    \
        const int T, const REAL *x, const int *idx, ptrdiff_t nnz, const double *c,            \
        const unsigned char *on, double *W, ptrdiff_t stride)                                  \
    {                                                                                          \
        NAME(vec) step[4];                                                                     \
        for (int t = 0; t < T; ++t)                                                            \
            step[t] = LOAD(c + t * VLEN);                                                      \
        for (ptrdiff_t f = 0; f < nnz; ++f) {                                                  \
            const ptrdiff_t start = (idx ? (ptrdiff_t)idx[f] : f) * stride;                    \
            const double xf = (double)x[f];                                                    \
            for (int t = 0; t < T; ++t) {                                                      \
                double *row = W + start + t * VLEN;                                            \
                const NAME(vec) used = NAME(from_bytes)(on + start + t * VLEN);                \
                STORE(row, LOAD(row) + xf * step[t] * used);                                   \
            }                                                                                  \
        }                                                                                      \
    }                                                                                          \
    static void NAME(update_some_##TAG)(const REAL *x, const int *idx, ptrdiff_t nnz,          \
                                        const double *c, const unsigned char *on, double *W,   \
                                        ptrdiff_t stride)                                      \
    {                                                                                          \
        ptrdiff_t j = 0;                                                                       \
        for (; j + 4 * VLEN <= stride; j += 4 * VLEN)                                          \
            NAME(update_some_tile_##TAG)(4, x, idx, nnz, c + j, on + j, W + j, stride);        \
        if (j + 2 * VLEN <= stride) {                                                          \
            NAME(update_some_tile_##TAG)(2, x, idx, nnz, c + j, on + j, W + j, stride);        \
            j += 2 * VLEN;                                                                     \
        }                                                                                      \
        if (j < stride)                                                                        \
            NAME(update_some_tile_##TAG)(1, x, idx, nnz, c + j, on + j, W + j, stride);        \
    }

SCORES(double, f64)
SCORES(float, f32)
UPDATE(double, f64)
UPDATE(float, f32)
UPDATE_SOME(double, f64)
UPDATE_SOME(float, f32)

/* F[r, :] += sum_b rows[b][r] * D[b, :] for start <= r < stop.  Two rows of F share each
   load of D.  Meanwhile the columns stop ... ahead - 1 of the rows are fetched: 64 streams
   at once are more than the hardware's own prefetching follows. */
static ALWAYS_INLINE void NAME(add_rows_tile)(const int T, const double **rows,
                                              ptrdiff_t n_rows, const double *D,
                                              ptrdiff_t start, ptrdiff_t stop, ptrdiff_t ahead,
                                              ptrdiff_t stride, double *F)
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
                fastm4n_prefetch(rows[fetched] + c);
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

static void NAME(add_rows)(const double **rows, ptrdiff_t n_rows, const double *D, ptrdiff_t n,
                           ptrdiff_t stride, double *F)
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

#include "kernel_template.h"

/* ---- vectors of scores and probabilities, of any length -------------------------------- */

#define WHOLE(n) ((n) / VLEN * VLEN)

static double NAME(dot)(const double *a, const double *b, ptrdiff_t n)
{
    NAME(vec) total = {0};
    ptrdiff_t j = 0;
    for (; j < WHOLE(n); j += VLEN)
        total += LOAD(a + j) * LOAD(b + j);
    if (j < n)
        total += NAME(load_tail)(a + j, n - j, 0.0) * NAME(load_tail)(b + j, n - j, 0.0);
    return NAME(sum)(total);
}

static double NAME(subtract)(const double *a, const double *b, double *out, ptrdiff_t n)
{
    NAME(vec) total = {0};
    ptrdiff_t j = 0;
    for (; j < WHOLE(n); j += VLEN) {
        const NAME(vec) d = LOAD(a + j) - LOAD(b + j);
        STORE(out + j, d);
        total += d * d;
    }
    if (j < n) {
        const NAME(vec) d =
            NAME(load_tail)(a + j, n - j, 0.0) - NAME(load_tail)(b + j, n - j, 0.0);
        NAME(store_tail)(out + j, n - j, d);
        total += d * d;
    }
    return NAME(sum)(total);
}

static double NAME(advance)(double *mu, double *step, double gamma, ptrdiff_t n)
{
    NAME(vec) total = {0};
    const NAME(vec) zero = {0};
    ptrdiff_t j = 0;
    for (; j < n; j += VLEN) {
        const ptrdiff_t rest = n - j;
        const int whole = rest >= VLEN;
        const NAME(vec) from = whole ? LOAD(mu + j) : NAME(load_tail)(mu + j, rest, 0.0);
        NAME(vec) d = whole ? LOAD(step + j) : NAME(load_tail)(step + j, rest, 0.0);
        NAME(vec) to = from + gamma * d;
        to = SELECT(to > zero, to, zero);
        d = to - from;
        total += d * d;
        if (whole) {
            STORE(mu + j, to);
            STORE(step + j, d);
        } else {
            NAME(store_tail)(mu + j, rest, to);
            NAME(store_tail)(step + j, rest, d);
        }
    }
    return NAME(sum)(total);
}

static double NAME(maximum)(const double *a, ptrdiff_t n)
{
    double top = a[0];
    ptrdiff_t j = 0;
    if (n >= VLEN) {
        NAME(vec) best = LOAD(a);
        for (j = VLEN; j < WHOLE(n); j += VLEN) {
            const NAME(vec) x = LOAD(a + j);
            best = SELECT(x > best, x, best);
        }
        top = LANE(best, 0);
        for (int i = 1; i < VLEN; ++i)
            top = LANE(best, i) > top ? LANE(best, i) : top;
    }
    for (; j < n; ++j)
        top = a[j] > top ? a[j] : top;
    return top;
}

static double NAME(softmax)(const double *v, ptrdiff_t n, double *mu)
{
    const double top = NAME(maximum)(v, n);
    NAME(vec) total = {0};
    ptrdiff_t j = 0;
    for (; j < WHOLE(n); j += VLEN) {
        const NAME(vec) e = NAME(vexp)(LOAD(v + j) - top);
        STORE(mu + j, e);
        total += e;
    }
    if (j < n) {
        const NAME(vec) e = NAME(vexp)(NAME(load_tail)(v + j, n - j, -INFINITY) - top);
        NAME(store_tail)(mu + j, n - j, e);
        total += e;
    }
    const double sum = NAME(sum)(total), scale = 1.0 / sum;
    for (j = 0; j < n; ++j)
        mu[j] *= scale;
    return top + log(sum);
}

static void NAME(softmax_rows)(double *x, ptrdiff_t n_rows, ptrdiff_t n)
{
    const ptrdiff_t size = n_rows * n;
    ptrdiff_t j = 0;
    if (n >= VLEN) {
        for (; j < size; j += n)
            NAME(softmax)(x + j, n, x + j);
        return;
    }
    /* rows that are shorter than a vector share it */
    for (double *row = x; row < x + size; row += n) {
        const double top = NAME(maximum)(row, n);
        for (ptrdiff_t i = 0; i < n; ++i)
            row[i] -= top;
    }
    for (; j < WHOLE(size); j += VLEN)
        STORE(x + j, NAME(vexp)(LOAD(x + j)));
    if (j < size)
        NAME(store_tail)(x + j, size - j, NAME(vexp)(NAME(load_tail)(x + j, size - j, 0.0)));
    for (double *row = x; row < x + size; row += n) {
        double sum = 0.0;
        for (ptrdiff_t i = 0; i < n; ++i)
            sum += row[i];
        for (ptrdiff_t i = 0; i < n; ++i)
            row[i] /= sum;
    }
}

static void NAME(log_sums)(const double *x, ptrdiff_t n_rows, ptrdiff_t step, ptrdiff_t n,
                           double *out)
{
    for (ptrdiff_t j = 0; j < n; j += VLEN) {
        NAME(vec) top = LOAD(x + j), total = {0};
        for (ptrdiff_t i = 1; i < n_rows; ++i) {
            const NAME(vec) row = LOAD(x + i * step + j);
            top = SELECT(row > top, row, top);
        }
        for (ptrdiff_t i = 0; i < n_rows; ++i)
            total += NAME(vexp)(LOAD(x + i * step + j) - top);
        STORE(out + j, top + NAME(vlog)(total));
    }
}

static double NAME(entropy)(const double *mu, ptrdiff_t n)
{
    NAME(vec) total = {0};
    ptrdiff_t j = 0;
    for (; j < WHOLE(n); j += VLEN) {
        const NAME(vec) m = LOAD(mu + j);
        total -= m * NAME(vlog)(m);
    }
    if (j < n) {
        const NAME(vec) m = NAME(load_tail)(mu + j, n - j, 0.0);
        total -= m * NAME(vlog)(m);
    }
    return NAME(sum)(total);
}

static void NAME(entropy_slopes)(const double *mu, const double *d, double gamma, ptrdiff_t n,
                                 double *slope, double *bend)
{
    NAME(vec) first = {0}, second = {0};
    const NAME(vec) zero = {0};
    for (ptrdiff_t j = 0; j < n; j += VLEN) {
        const int whole = n - j >= VLEN;
        const NAME(vec) from = whole ? LOAD(mu + j) : NAME(load_tail)(mu + j, n - j, 1.0);
        const NAME(vec) to = whole ? LOAD(d + j) : NAME(load_tail)(d + j, n - j, 0.0);
        NAME(vec) m = from + gamma * to;
        m = SELECT(m > zero + DBL_MIN, m, zero + DBL_MIN);
        first -= to * NAME(vlog)(m);
        second -= to * to / m;
    }
    *slope = NAME(sum)(first);
    *bend = NAME(sum)(second);
}

static void NAME(prox)(const double *Z, const double *threshold, ptrdiff_t threshold_step,
                       const double *lower, const double *upper, ptrdiff_t bound_step,
                       double scale, const int *idx, ptrdiff_t n, double *W, ptrdiff_t stride)
{
    const NAME(vec) zero = {0};
    for (ptrdiff_t f = 0; f < n; ++f) {
        const ptrdiff_t row = idx ? (ptrdiff_t)idx[f] : f;
        ptrdiff_t j = 0;
        for (; j < WHOLE(stride); j += VLEN) {
            const NAME(vec) low = LOAD(lower + row * bound_step + j);
            const NAME(vec) high = LOAD(upper + row * bound_step + j);
            const NAME(vec) t = LOAD(threshold + row * threshold_step + j);
            const NAME(vec) z = LOAD(Z + row * stride + j);
            NAME(vec) w = SELECT(z > t, z - t, SELECT(z < -t, z + t, zero)) * scale;
            w = SELECT(w < low, low, w);
            STORE(W + row * stride + j, SELECT(w > high, high, w));
        }
        for (; j < stride; ++j) {
            const double low = lower[row * bound_step + j], high = upper[row * bound_step + j];
            const double t = threshold[row * threshold_step + j], z = Z[row * stride + j];
            const double w = (z > t ? z - t : z < -t ? z + t : 0.0) * scale;
            W[row * stride + j] = w < low ? low : w > high ? high : w;
        }
    }
}

static void NAME(prefetch_rows)(const int *idx, ptrdiff_t nnz, const double *W,
                                ptrdiff_t stride)
{
    for (ptrdiff_t f = 0; f < nnz; ++f)
        for (ptrdiff_t j = 0; j < stride; j += 8)
            fastm4n_prefetch(W + (ptrdiff_t)idx[f] * stride + j);
}

static double NAME(gram_norm)(const double *gram, const double *d, ptrdiff_t T,
                              ptrdiff_t stride)
{
    NAME(vec) total = {0};
    for (ptrdiff_t j = 0; j < stride; j += VLEN) {
        const double *row = gram;
        for (ptrdiff_t t = 0; t < T; row += ++t) {
            NAME(vec) acc0 = {0}, acc1 = {0};
            ptrdiff_t s = 0;
            for (; s + 2 <= t; s += 2) {
                acc0 += row[s] * LOAD(d + s * stride + j);
                acc1 += row[s + 1] * LOAD(d + (s + 1) * stride + j);
            }
            if (s < t)
                acc0 += row[s] * LOAD(d + s * stride + j);
            const NAME(vec) here = LOAD(d + t * stride + j);
            total += here * (2.0 * (acc0 + acc1) + row[t] * here);
        }
    }
    return NAME(sum)(total);
}

static ALWAYS_INLINE double NAME(entries_tile)(const int T, const double *x,
                                               const int *position, const int *feature,
                                               ptrdiff_t n, const double *d,
                                               const unsigned char *on, ptrdiff_t stride)
{
    const NAME(vec) zero = {0};
    NAME(vec) acc[4], total = zero;
    for (int t = 0; t < T; ++t)
        acc[t] = zero;
    for (ptrdiff_t e = 0; e < n; ++e) {
        const double *row = d + position[e] * stride;
        for (int t = 0; t < T; ++t)
            acc[t] += x[e] * LOAD(row + t * VLEN);
        if (e + 1 < n && feature[e + 1] == feature[e])
            continue;
        for (int t = 0; t < T; ++t) {
            if (on)
                acc[t] *= NAME(from_bytes)(on + feature[e] * stride + t * VLEN);
            total += acc[t] * acc[t];
            acc[t] = zero;
        }
    }
    return NAME(sum)(total);
}

static double NAME(entries_norm)(const double *x, const int *position, const int *feature,
                                 ptrdiff_t n, const double *d, const unsigned char *on,
                                 ptrdiff_t stride)
{
    double total = 0.0;
    ptrdiff_t j = 0;
    for (; j + 4 * VLEN <= stride; j += 4 * VLEN)
        total +=
            NAME(entries_tile)(4, x, position, feature, n, d + j, on ? on + j : NULL, stride);
    if (j + 2 * VLEN <= stride) {
        total +=
            NAME(entries_tile)(2, x, position, feature, n, d + j, on ? on + j : NULL, stride);
        j += 2 * VLEN;
    }
    if (j < stride)
        total +=
            NAME(entries_tile)(1, x, position, feature, n, d + j, on ? on + j : NULL, stride);
    return total;
}

static const fastm4n_loops NAME(table) = {
    VLEN,
    NAME(scores_f64),
    NAME(scores_f32),
    NAME(update_f64),
    NAME(update_f32),
    NAME(update_some_f64),
    NAME(update_some_f32),
    NAME(prox),
    NAME(add_rows),
    NAME(dot),
    NAME(subtract),
    NAME(advance),
    NAME(maximum),
    NAME(softmax),
    NAME(softmax_rows),
    NAME(log_sums),
    NAME(entropy),
    NAME(entropy_slopes),
    NAME(prefetch_rows),
    NAME(gram_norm),
    NAME(entries_norm),
    NAME(add_rows_f32),
    NAME(add_sparse_f32),
    NAME(add_sparse_f64),
    NAME(axpy_f32),
    NAME(rbf_f64),
    NAME(rbf_f32),
};

#undef LOAD
#undef STORE
#undef SCORES
#undef UPDATE
#undef UPDATE_SOME
#undef LANE
#undef SELECT
#undef WHOLE
