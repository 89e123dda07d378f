/* Steps of whole blocks of single labels, one after another, over sparse features.
 *
 * For block b, with scores v = W' x, costs c and q = p_b ||x||^2 / alpha, the dual is largest at
 *
 *     argmax_m (v + c)' m - q / 2 ||m - mu||^2  over the simplex,
 *
 * the projection of (v + c) / q + mu: the subproblem of Crammer and Singer (2001), which the
 * sequential dual method of Keerthi et al. (KDD 2008) goes by. A visit is bound by memory: rows of
 * W, of x and mu are asked for some visits ahead, and the rest stays in registers.
 *
 * Written once and included once per target, see for_each_target.h.
 */

#ifndef VLEN
#ifndef FASTM4N_LABEL_SWEEPS_H
#define FASTM4N_LABEL_SWEEPS_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "loops.h"

typedef struct {
    /* rows of X: one of the two is NULL */
    const double *data64;
    const float *data32;
    const int *indices;
    const long long *starts;
    /* of each block: its row of X, the squared length of that with the constant feature, its
       share p_b, its label */
    const ptrdiff_t *rows;
    const double *norms, *shares;
    const int *labels;
    /* rows of costs, `cost_stride` numbers from one to the next, and W, of `stride` numbers; row
       `behind` is that of the constant feature */
    const double *cost;
    double *W;
    ptrdiff_t cost_stride, stride, behind, k;
    double intercept;
    /* dual points of k numbers, expected costs there, gaps before the steps, losses */
    double *mu, *heights, *gaps, *losses;
    /* of the penalty; gaps of so small a share of their terms are zero */
    double alpha, rounding;
    /* room for two rows */
    double *room;
    /* added to: of blocks with a gap p_b ||x||^2 ||e_j - mu||^2, j being the oracle's answer, and
       how many they are */
    double curvature;
    ptrdiff_t n_curvatures;
} fastm4n_label_sweep;

/* Visits order[from] ... order[stop - 1]; up to order[n - 1] may be asked for ahead. */
typedef void (*fastm4n_label_visits)(fastm4n_label_sweep *s, const ptrdiff_t *order,
                                     ptrdiff_t from, ptrdiff_t stop, ptrdiff_t n);

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(f) JOIN(JOIN(f, _v), VLEN)

#if defined(__GNUC__) || defined(__clang__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define TARGET_TEMPLATE "label_sweeps.h"
#include "for_each_target.h"
#undef TARGET_TEMPLATE

#else
#define ALWAYS_INLINE __forceinline
#define VLEN 1
#include "label_sweeps.h"
#undef VLEN
#endif

/* The visits for weights whose rows are padded to vectors of `width` doubles. */
static fastm4n_label_visits fastm4n_select_visits(int width)
{
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    if (width == 8)
        return label_visits_v8;
    if (width == 4)
        return label_visits_v4;
#endif
#if defined(__GNUC__) || defined(__clang__)
    (void)width;
    return label_visits_v2;
#else
    (void)width;
    return label_visits_v1;
#endif
}

#endif /* FASTM4N_LABEL_SWEEPS_H */
#else  /* the visits of one target */

#include "vector_template.h"

static ALWAYS_INLINE double NAME(total)(NAME(vec) a)
{
#if VLEN == 8
    return _mm512_reduce_add_pd((__m512d)a);
#else
    return NAME(sum)(a);
#endif
}

static ALWAYS_INLINE double NAME(largest)(NAME(vec) a)
{
#if VLEN == 8
    return _mm512_reduce_max_pd((__m512d)a);
#else
    double top = LANE(a, 0);
    for (int i = 1; i < VLEN; ++i)
        top = LANE(a, i) > top ? LANE(a, i) : top;
    return top;
#endif
}

static ALWAYS_INLINE NAME(vec) NAME(up_to)(const double *a, ptrdiff_t n, double pad)
{
    return n >= VLEN ? LOAD(a) : NAME(load_tail)(a, n, pad);
}

/* mu = the maximiser above, and step = -p / alpha times how it moved; returns whether it has.
 * v holds scores on entry and is changed; what is behind its k numbers is zero.
 *
 * With z = (v + c - top) + q mu, less their largest, the maximiser is (z - kappa)_+ / q with
 * sum_j (z_j - kappa)_+ = q.  Michelot's algorithm: kappa is the mean of the numbers above it less
 * q over how many they are, which rises as numbers are left out; it starts from -q, no other can be
 * above it.  Differences from the largest lose no digits to scores of any size. */
static ALWAYS_INLINE int NAME(whole_step)(fastm4n_label_sweep *s, ptrdiff_t b, double *v,
                                          double *step)
{
    const ptrdiff_t k = s->k;
    const double share = s->shares[b] / s->alpha, q = share * s->norms[b];
    const double *cost = s->cost + s->labels[b] * s->cost_stride;
    double *mu = s->mu + b * k;
    const double truth = v[s->labels[b]];
    const NAME(vec) zero = {0}, one = zero + 1.0;
    NAME(vec) best = zero - INFINITY, with = zero, squares = zero, there = zero;
    ptrdiff_t j;
    for (j = 0; j < k; j += VLEN) {
        const NAME(vec) m = NAME(up_to)(mu + j, k - j, 0.0);
        const NAME(vec) all = LOAD(v + j) + LOAD(cost + j);
        with += all * m;
        squares += m * m;
        STORE(v + j, all);
        const NAME(vec) u = NAME(up_to)(v + j, k - j, -INFINITY);
        STORE(v + j, u);
        best = SELECT(u > best, u, best);
    }
    const double top = NAME(largest)(best), current = NAME(total)(with), gap = top - current;
    s->losses[b] = top - truth;
    best = zero - INFINITY;
    for (j = 0; j < k; j += VLEN) {
        const NAME(vec) m = NAME(up_to)(mu + j, k - j, 0.0), u = LOAD(v + j);
        const NAME(vec) here = SELECT(u == zero + top, m, zero), z = (u - top) + q * m;
        there = SELECT(here > there, here, there);
        STORE(v + j, z);
        best = SELECT(z > best, z, best);
    }
    s->gaps[b] = gap > s->rounding * (fabs(top) + fabs(current)) ? gap : 0.0;
    if (s->gaps[b] == 0.0 || !(q <= DBL_MAX))
        return 0;
    const double apart = 1.0 + NAME(total)(squares) - 2.0 * NAME(largest)(there);
    s->curvature += s->shares[b] * s->norms[b] * apart;
    ++s->n_curvatures;
    const double most = NAME(largest)(best);
    double kappa = -q, before = INFINITY;
    for (;;) {
        NAME(vec) sum = zero, count = zero;
        for (j = 0; j < k; j += VLEN) {
            const NAME(vec) z = LOAD(v + j) - most;
            sum += SELECT(z > zero + kappa, z, zero);
            count += SELECT(z > zero + kappa, one, zero);
        }
        const double active = NAME(total)(count);
        /* more than before are rounding */
        if (active == 0.0 || active >= before)
            break;
        before = active;
        kappa = (NAME(total)(sum) - q) / active;
    }
    NAME(vec) mass = zero, height = zero;
    for (j = 0; j < k; j += VLEN) {
        const NAME(vec) z = (LOAD(v + j) - most) - kappa;
        mass += SELECT(z > zero, z, zero);
    }
    double scale = NAME(total)(mass);
    if (scale >= DBL_MIN) {
        /* the sum is q up to rounding, which matters where q is small */
        scale = 1.0 / scale;
    } else {
        /* q is nothing beside scores: all of the mass to the first of the best */
        ptrdiff_t label = 0;
        while (label < k - 1 && v[label] != most)
            ++label;
        for (j = 0; j < k; ++j)
            v[j] = j == label ? most : -INFINITY;
        kappa = -1.0;
        scale = 1.0;
    }
    for (j = 0; j < k; j += VLEN) {
        const NAME(vec) z = (LOAD(v + j) - most) - kappa;
        const NAME(vec) to = scale * SELECT(z > zero, z, zero);
        const NAME(vec) d = share * (NAME(up_to)(mu + j, k - j, 0.0) - to);
        height += LOAD(cost + j) * to;
        STORE(step + j, d);
        if (k - j >= VLEN)
            STORE(mu + j, to);
        else
            NAME(store_tail)(mu + j, k - j, to);
    }
    s->heights[b] = NAME(total)(height);
    return 1;
}

/* T vectors of a row of W, T being known to the compiler: v += x' W, and W += x step'. */
#define ROWS(REAL, TAG)                                                                        \
    static ALWAYS_INLINE void NAME(add_scores_##TAG)(                                          \
        const int T, const REAL *x, const int *idx, ptrdiff_t n, const double *W,              \
        ptrdiff_t stride, double *v)                                                           \
    {                                                                                          \
        NAME(vec) even[4], odd[4];                                                             \
        ptrdiff_t i = 0;                                                                       \
        for (int t = 0; t < T; ++t) {                                                          \
            even[t] = LOAD(v + t * VLEN);                                                      \
            odd[t] = (NAME(vec)){0};                                                           \
        }                                                                                      \
        for (; i + 2 <= n; i += 2)                                                             \
            for (int t = 0; t < T; ++t) {                                                      \
                even[t] += (double)x[i] * LOAD(W + idx[i] * stride + t * VLEN);                \
                odd[t] += (double)x[i + 1] * LOAD(W + idx[i + 1] * stride + t * VLEN);         \
            }                                                                                  \
        if (i < n)                                                                             \
            for (int t = 0; t < T; ++t)                                                        \
                even[t] += (double)x[i] * LOAD(W + idx[i] * stride + t * VLEN);                \
        for (int t = 0; t < T; ++t)                                                            \
            STORE(v + t * VLEN, even[t] + odd[t]);                                             \
    }                                                                                          \
    static ALWAYS_INLINE void NAME(add_row_##TAG)(const int T, const REAL *x, const int *idx,  \
                                                  ptrdiff_t n, const double *step, double *W,  \
                                                  ptrdiff_t stride)                            \
    {                                                                                          \
        NAME(vec) by[4];                                                                       \
        for (int t = 0; t < T; ++t)                                                            \
            by[t] = LOAD(step + t * VLEN);                                                     \
        for (ptrdiff_t i = 0; i < n; ++i) {                                                    \
            double *row = W + idx[i] * stride;                                                 \
            for (int t = 0; t < T; ++t)                                                        \
                STORE(row + t * VLEN, LOAD(row + t * VLEN) + (double)x[i] * by[t]);            \
        }                                                                                      \
    }                                                                                          \
    static void NAME(scores_##TAG)(const REAL *x, const int *idx, ptrdiff_t n,                 \
                                   const double *W, ptrdiff_t stride, double *v)               \
    {                                                                                          \
        ptrdiff_t j = 0;                                                                       \
        for (; j + 4 * VLEN <= stride; j += 4 * VLEN)                                          \
            NAME(add_scores_##TAG)(4, x, idx, n, W + j, stride, v + j);                        \
        if (stride - j == 3 * VLEN)                                                            \
            NAME(add_scores_##TAG)(3, x, idx, n, W + j, stride, v + j);                        \
        else if (stride - j == 2 * VLEN)                                                       \
            NAME(add_scores_##TAG)(2, x, idx, n, W + j, stride, v + j);                        \
        else if (stride - j == VLEN)                                                           \
            NAME(add_scores_##TAG)(1, x, idx, n, W + j, stride, v + j);                        \
    }                                                                                          \
    static void NAME(update_##TAG)(const REAL *x, const int *idx, ptrdiff_t n,                 \
                                   const double *step, double *W, ptrdiff_t stride)            \
    {                                                                                          \
        ptrdiff_t j = 0;                                                                       \
        for (; j + 4 * VLEN <= stride; j += 4 * VLEN)                                          \
            NAME(add_row_##TAG)(4, x, idx, n, step + j, W + j, stride);                        \
        if (stride - j == 3 * VLEN)                                                            \
            NAME(add_row_##TAG)(3, x, idx, n, step + j, W + j, stride);                        \
        else if (stride - j == 2 * VLEN)                                                       \
            NAME(add_row_##TAG)(2, x, idx, n, step + j, W + j, stride);                        \
        else if (stride - j == VLEN)                                                           \
            NAME(add_row_##TAG)(1, x, idx, n, step + j, W + j, stride);                        \
    }

ROWS(double, f64)
ROWS(float, f32)

/* visits between asking for where a row is, for its values, for the weights it names, and using
   them; and the most rows of weights of one that are asked for */
#define FAR_AHEAD 16
#define AHEAD 8
#define NEAR 2
#define MOST_ROWS 256

static ALWAYS_INLINE void NAME(ask_for_values)(const fastm4n_label_sweep *s, ptrdiff_t b)
{
    const long long start = s->starts[s->rows[b]], stop = s->starts[s->rows[b] + 1];
    const long long last = stop < start + MOST_ROWS ? stop : start + MOST_ROWS;
    for (long long i = start; i < last; i += 8) {
        if (s->data64)
            fastm4n_prefetch(s->data64 + i);
        else
            fastm4n_prefetch(s->data32 + i);
        fastm4n_prefetch(s->indices + i);
    }
    for (ptrdiff_t j = 0; j < s->k; j += 8)
        fastm4n_prefetch(s->mu + b * s->k + j);
    fastm4n_prefetch(s->norms + b);
    fastm4n_prefetch(s->shares + b);
    fastm4n_prefetch(s->labels + b);
}

static ALWAYS_INLINE void NAME(ask_for_weights)(const fastm4n_label_sweep *s, ptrdiff_t b)
{
    const long long start = s->starts[s->rows[b]], stop = s->starts[s->rows[b] + 1];
    const long long last = stop < start + MOST_ROWS ? stop : start + MOST_ROWS;
    for (long long i = start; i < last; ++i)
        for (ptrdiff_t j = 0; j < s->stride; j += 8)
            fastm4n_prefetch(s->W + s->indices[i] * s->stride + j);
}

static void NAME(label_visits)(fastm4n_label_sweep *s, const ptrdiff_t *order, ptrdiff_t from,
                               ptrdiff_t stop, ptrdiff_t n)
{
    const ptrdiff_t stride = s->stride;
    double *v = s->room, *step = s->room + stride, *constant = s->W + s->behind * stride;
    for (ptrdiff_t o = from; o < stop; ++o) {
        const ptrdiff_t b = order[o];
        if (o + FAR_AHEAD < n)
            fastm4n_prefetch(s->starts + s->rows[order[o + FAR_AHEAD]]);
        if (o + AHEAD < n)
            NAME(ask_for_values)(s, order[o + AHEAD]);
        if (o + NEAR < n)
            NAME(ask_for_weights)(s, order[o + NEAR]);
        const long long start = s->starts[s->rows[b]];
        const ptrdiff_t values = (ptrdiff_t)(s->starts[s->rows[b] + 1] - start);
        const int *idx = s->indices + start;
        for (ptrdiff_t j = 0; j < stride; j += VLEN)
            STORE(v + j, s->intercept * LOAD(constant + j));
        if (s->data64)
            NAME(scores_f64)(s->data64 + start, idx, values, s->W, stride, v);
        else
            NAME(scores_f32)(s->data32 + start, idx, values, s->W, stride, v);
        if (!NAME(whole_step)(s, b, v, step))
            continue;
        for (ptrdiff_t j = 0; j < stride; j += VLEN)
            STORE(constant + j, LOAD(constant + j) + s->intercept * LOAD(step + j));
        if (s->data64)
            NAME(update_f64)(s->data64 + start, idx, values, step, s->W, stride);
        else
            NAME(update_f32)(s->data32 + start, idx, values, step, s->W, stride);
    }
}

#undef ROWS
#undef FAR_AHEAD
#undef AHEAD
#undef NEAR
#undef MOST_ROWS
#undef LOAD
#undef STORE
#undef LANE
#undef SELECT

#endif
