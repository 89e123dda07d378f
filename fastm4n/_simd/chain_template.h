/* Recursions over chains, included by loops_dispatch.h after loops_template.h: once per
 * target and per type of number.
 *
 * The includer defines, beside VLEN and NAME,
 *   REAL      float or double
 *   RLEN      numbers of that type per vector
 *   RNAME(f)  the name of f for this target and type
 *   REXP      exp for x <= 0 of a vector of them
 *
 * Rows of labels are `stride` numbers long, a multiple of RLEN; those of unary scores begin
 * every `step` numbers, and stride of them can be read.  What stands behind the R labels
 * in unary and pair may be anything; in what is written there are zeros, but for the scores of
 * `viterbi`.  pair + t * pair_step is the matrix between positions t and t + 1,
 * source label by destination label: pair_step is 0 where all are one.
 */

#if RLEN == 1
typedef REAL RNAME(rvec);
#define RLOAD(p) (*(p))
#define RSTORE(p, a) (*(p) = (a))
#define RLANE(a, i) (a)
#define RSELECT(mask, a, b) ((mask) ? (a) : (b))
#define RMAX(a, b) ((a) > (b) ? (a) : (b))
#else
typedef REAL RNAME(rvec)
    __attribute__((vector_size(RLEN * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
#define RLOAD(p) (*(const RNAME(rvec) *)(p))
#define RSTORE(p, a) (*(RNAME(rvec) *)(p) = (a))
#define RLANE(a, i) ((a)[i])
#define RSELECT(mask, a, b) RNAME(rselect)((RNAME(rint))(mask), a, b)
#define RMAX(a, b) RNAME(rmax)(a, b)
#endif
typedef RINT RNAME(rint)
#if RLEN > 1
    __attribute__((vector_size(RLEN * sizeof(REAL)), aligned(sizeof(REAL)), may_alias))
#endif
    ;

#if RLEN > 1
static ALWAYS_INLINE RNAME(rvec) RNAME(rselect)(RNAME(rint) mask, RNAME(rvec) a, RNAME(rvec) b)
{
    return (RNAME(rvec))(((RNAME(rint))a & mask) | ((RNAME(rint))b & ~mask));
}

/* the larger, in one instruction where the target has one */
static ALWAYS_INLINE RNAME(rvec) RNAME(rmax)(RNAME(rvec) a, RNAME(rvec) b)
{
#if defined(__x86_64__) && VLEN == 8
    return (RNAME(rvec))RMAX512((RX512)a, (RX512)b);
#elif defined(__x86_64__) && VLEN == 4
    return (RNAME(rvec))RMAX256((RX256)a, (RX256)b);
#elif defined(__x86_64__)
    return (RNAME(rvec))RMAX128((RX128)a, (RX128)b);
#else
    return RNAME(rselect)((RNAME(rint))(a > b), a, b);
#endif
}
#endif

static const RINT RNAME(numbers)[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* The vector at p of a row of which n more labels count; the others are pad. */
static ALWAYS_INLINE RNAME(rvec) RNAME(row_vector)(const REAL *p, ptrdiff_t n, REAL pad)
{
#if RLEN == 1
    (void)n;
    (void)pad;
    return *p;
#else
    if (n >= RLEN)
        return RLOAD(p);
    return RSELECT(*(const RNAME(rint) *)RNAME(numbers) < (RINT)n, RLOAD(p),
                   (RNAME(rvec)){0} + pad);
#endif
}

static ALWAYS_INLINE REAL RNAME(rsum)(RNAME(rvec) a)
{
#if VLEN == 8
    return RSUM512((RX512)a);
#else
    /* pairwise, so that the additions do not wait for one another */
    REAL part[RLEN];
    RSTORE(part, a);
    for (int width = RLEN / 2; width > 0; width /= 2)
        for (int i = 0; i < width; ++i)
            part[i] += part[i + width];
    return part[0];
#endif
}

static ALWAYS_INLINE REAL RNAME(rtop)(RNAME(rvec) a)
{
#if VLEN == 8
    return RTOP512((RX512)a);
#else
    REAL top = RLANE(a, 0);
    for (int i = 1; i < RLEN; ++i)
        top = RLANE(a, i) > top ? RLANE(a, i) : top;
    return top;
#endif
}

#if RLEN > 1
/* One bit for each lane that is x. */
static ALWAYS_INLINE unsigned RNAME(equal_lanes)(RNAME(rvec) a, REAL x)
{
#if VLEN == 8
    return (unsigned)REQUAL512((RX512)a, (RX512)((RNAME(rvec)){0} + x));
#else
    unsigned bits = 0;
    for (int i = 0; i < RLEN; ++i)
        bits |= (unsigned)(RLANE(a, i) == x) << i;
    return bits;
#endif
}
#endif

/* ---- Viterbi: delta[t] = unary[t] + max_i (delta[t - 1][i] + pair[i]) --------------------- */

/* In float the scores are relative to the best, every RSHIFT positions: see `path_score`. */

static ALWAYS_INLINE void RNAME(max_plus_tile)(const int K, const REAL *from, const REAL *pair,
                                               ptrdiff_t R, ptrdiff_t stride, const REAL *unary,
                                               REAL *to)
{
    RNAME(rvec) best[2][4];
    ptrdiff_t i = 0;
    for (int k = 0; k < K; ++k)
        best[0][k] = best[1][k] = from[0] + RLOAD(pair + k * RLEN);
    for (; i + 2 <= R; i += 2, pair += 2 * stride) {
        const REAL x0 = from[i], x1 = from[i + 1];
        for (int k = 0; k < K; ++k) {
            best[0][k] = RMAX(best[0][k], x0 + RLOAD(pair + k * RLEN));
            best[1][k] = RMAX(best[1][k], x1 + RLOAD(pair + stride + k * RLEN));
        }
    }
    if (i < R)
        for (int k = 0; k < K; ++k)
            best[0][k] = RMAX(best[0][k], from[i] + RLOAD(pair + k * RLEN));
    for (int k = 0; k < K; ++k)
        RSTORE(to + k * RLEN, RLOAD(unary + k * RLEN) + RMAX(best[0][k], best[1][k]));
}

/* of the positions start ... T - 1, those before being done */
static void RNAME(viterbi)(const REAL *unary, ptrdiff_t step, ptrdiff_t start, ptrdiff_t T,
                           ptrdiff_t R, ptrdiff_t stride, const REAL *pair, ptrdiff_t pair_step,
                           REAL *delta)
{
    for (ptrdiff_t j = 0; start == 0 && j < stride; ++j)
        delta[j] = unary[j];
    for (ptrdiff_t t = start > 0 ? start : 1; t < T; ++t) {
        const REAL *P = pair + (t - 1) * pair_step, *from = delta + (t - 1) * stride;
        const REAL *u = unary + t * step;
        REAL *to = delta + t * stride;
        ptrdiff_t j = 0;
        for (; j + 4 * RLEN <= stride; j += 4 * RLEN)
            RNAME(max_plus_tile)(4, from, P + j, R, stride, u + j, to + j);
        if (j + 3 * RLEN <= stride) {
            RNAME(max_plus_tile)(3, from, P + j, R, stride, u + j, to + j);
            j += 3 * RLEN;
        }
        if (j + 2 * RLEN <= stride) {
            RNAME(max_plus_tile)(2, from, P + j, R, stride, u + j, to + j);
            j += 2 * RLEN;
        }
        if (j < stride)
            RNAME(max_plus_tile)(1, from, P + j, R, stride, u + j, to + j);
        if (RSHIFT && t % RSHIFT == 0) {
            /* or scores that have grown would leave too few digits to tell labels apart */
            REAL top = to[0];
            for (j = 1; j < R; ++j)
                top = to[j] > top ? to[j] : top;
            for (j = 0; j < stride && top > -INFINITY; ++j)
                to[j] -= top;
        }
    }
}

/* The first label that reaches the best score of each position, from the last one back: no
   back-pointers are kept, what they would say is found again on the path alone.  PT, unless
   it is NULL, is the transpose of the one matrix, with -INFINITY behind its labels. */
static void RNAME(viterbi_path)(const REAL *delta, ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride,
                                const REAL *pair, ptrdiff_t pair_step, const REAL *PT,
                                int *path)
{
    const REAL *d = delta + (T - 1) * stride;
    ptrdiff_t best = 0;
    for (ptrdiff_t i = 1; i < R; ++i)
        best = d[i] > d[best] ? i : best;
    path[T - 1] = (int)best;
    for (ptrdiff_t t = T - 2; t >= 0; --t) {
        d -= stride;
#if RLEN > 1
        if (PT) {
            const REAL *column = PT + best * stride;
            RNAME(rvec) top = RLOAD(d) + RLOAD(column);
            for (ptrdiff_t j = RLEN; j < stride; j += RLEN)
                top = RMAX(top, RLOAD(d + j) + RLOAD(column + j));
            const REAL most = RNAME(rtop)(top);
            best = 0; /* also where no label can be reached */
            for (ptrdiff_t j = 0; j < stride; j += RLEN) {
                const unsigned found =
                    RNAME(equal_lanes)(RLOAD(d + j) + RLOAD(column + j), most);
                if (found) {
                    best = j + __builtin_ctz(found);
                    break;
                }
            }
            best = best < R ? best : 0;
            path[t] = (int)best;
            continue;
        }
#endif
        const REAL *column = pair + t * pair_step + best;
        REAL top = d[0] + column[0];
        best = 0;
        for (ptrdiff_t i = 1; i < R; ++i) {
            const REAL x = d[i] + column[i * stride];
            best = x > top ? i : best;
            top = x > top ? x : top;
        }
        path[t] = (int)best;
    }
}

/* ---- sum-product in probability space, one scale a position ------------------------------- */

/* Whether all n numbers are finite or -inf. */
static int RNAME(are_scores)(const REAL *x, ptrdiff_t n)
{
    const RNAME(rvec) zero = {0}, limit = zero + (REAL)INFINITY;
    RNAME(rvec) bad = zero;
    ptrdiff_t j = 0;
    for (; j + RLEN <= n; j += RLEN)
        bad = RMAX(bad, RSELECT(RLOAD(x + j) < limit, zero, zero + 1));
    int right = !(RNAME(rtop)(bad) > 0);
    for (; j < n; ++j)
        right &= x[j] < INFINITY;
    return right;
}

/* out = exp(in - m), m being the largest of each group of `group` rows; out may be in.
   Returns the sum of the m; *range is raised to the largest m - x over all finite x, and
   *forbidden set where there is an x = -inf.  An m of -inf gives a range of inf. */
static double RNAME(exp_rows)(const REAL *in, ptrdiff_t step, ptrdiff_t rows, ptrdiff_t group,
                              ptrdiff_t R, ptrdiff_t stride, REAL *out, double *range,
                              int *forbidden)
{
    const RNAME(rvec) zero = {0}, none = zero - (REAL)INFINITY;
    RNAME(rvec) wide = zero, barred = zero;
    double shifts = 0.0;
    for (ptrdiff_t first = 0; first < rows; first += group) {
        RNAME(rvec) high = none;
        for (ptrdiff_t r = first; r < first + group; ++r)
            for (ptrdiff_t j = 0; j < stride; j += RLEN)
                high = RMAX(high, RNAME(row_vector)(in + r * step + j, R - j, -(REAL)INFINITY));
        const REAL top = RNAME(rtop)(high);
        if (!(top > -INFINITY)) {
            *range = INFINITY;
            *forbidden = 1;
            return -INFINITY;
        }
        shifts += (double)top;
        for (ptrdiff_t r = first; r < first + group; ++r)
            for (ptrdiff_t j = 0; j < stride; j += RLEN) {
                const RNAME(rvec) x =
                    RNAME(row_vector)(in + r * step + j, R - j, -(REAL)INFINITY) - top;
                /* behind the labels there is a zero to compare with, not what was put there */
                const RNAME(rvec) label =
                    RNAME(row_vector)(in + r * step + j, R - j, top) - top;
                wide = RMAX(wide, RSELECT(x > none, -x, zero));
                barred = RMAX(barred, RSELECT(label > none, zero, zero + 1));
                RSTORE(out + r * stride + j, REXP(x));
            }
    }
    const REAL widest = RNAME(rtop)(wide);
    if ((double)widest > *range)
        *range = (double)widest;
    if (RNAME(rtop)(barred) > 0)
        *forbidden = 1;
    return shifts;
}

/* to = (from' M) * e * factor, e being all ones where it is NULL; returns the sum over its labels */
static ALWAYS_INLINE RNAME(rvec)
    RNAME(matvec_tile)(const int K, const int U, const REAL *from, const REAL *M, ptrdiff_t R,
                       ptrdiff_t stride, const REAL *e, REAL factor, REAL *to)
{
    RNAME(rvec) acc[4][4], total = {0};
    ptrdiff_t i = 0;
    for (int u = 0; u < U; ++u)
        for (int k = 0; k < K; ++k)
            acc[u][k] = (RNAME(rvec)){0};
    for (; i + U <= R; i += U)
        for (int u = 0; u < U; ++u) {
            const REAL x = from[i + u];
            for (int k = 0; k < K; ++k)
                acc[u][k] += x * RLOAD(M + (i + u) * stride + k * RLEN);
        }
    for (; i < R; ++i)
        for (int k = 0; k < K; ++k)
            acc[0][k] += from[i] * RLOAD(M + i * stride + k * RLEN);
    for (int k = 0; k < K; ++k) {
        for (int u = 1; u < U; ++u)
            acc[0][k] += acc[u][k];
        if (e)
            acc[0][k] *= RLOAD(e + k * RLEN) * factor;
        RSTORE(to + k * RLEN, acc[0][k]);
        total += acc[0][k];
    }
    return total;
}

static ALWAYS_INLINE RNAME(rvec)
    RNAME(matvec)(const REAL *from, const REAL *M, ptrdiff_t R, ptrdiff_t stride, const REAL *e,
                  REAL factor, REAL *to)
{
    RNAME(rvec) total = {0};
    ptrdiff_t j = 0;
    for (; j + 4 * RLEN <= stride; j += 4 * RLEN)
        total +=
            RNAME(matvec_tile)(4, 2, from, M + j, R, stride, e ? e + j : NULL, factor, to + j);
    if (j + 3 * RLEN <= stride) {
        total +=
            RNAME(matvec_tile)(3, 2, from, M + j, R, stride, e ? e + j : NULL, factor, to + j);
        j += 3 * RLEN;
    }
    if (j + 2 * RLEN <= stride) {
        total +=
            RNAME(matvec_tile)(2, 4, from, M + j, R, stride, e ? e + j : NULL, factor, to + j);
        j += 2 * RLEN;
    }
    if (j < stride)
        total +=
            RNAME(matvec_tile)(1, 4, from, M + j, R, stride, e ? e + j : NULL, factor, to + j);
    return total;
}

/* Where the messages of position t meet: the forward ones a, times `own`, and the backward ones
   beta.  Makes its marginals `node`, and g, exp(unary), the scaled message to what is before. */
static ALWAYS_INLINE void RNAME(meet)(ptrdiff_t t, ptrdiff_t stride, REAL own, REAL scale,
                                      REAL *a, REAL *beta, REAL *g, REAL *node)
{
    const RNAME(rvec) zero = {0};
    RNAME(rvec) total = zero;
    for (ptrdiff_t j = 0; j < stride; j += RLEN) {
        /* what cannot be reached sends nothing back: it might be inf */
        const RNAME(rvec) reach = own * RLOAD(a + j);
        const RNAME(rvec) b = RSELECT(reach > zero, RLOAD(beta + j), zero);
        RSTORE(beta + j, b);
        RSTORE(a + j, reach);
        RSTORE(node + j, reach * b);
        total += reach * b;
    }
    /* one, but for rounding, which would grow along the chain */
    const REAL rest = 1 / RNAME(rsum)(total);
    const REAL factor = t % 16 ? scale : scale * rest;
    for (ptrdiff_t j = 0; j < stride; j += RLEN) {
        RSTORE(g + j, RLOAD(g + j) * (RLOAD(beta + j) * factor));
        RSTORE(node + j, RLOAD(node + j) * rest);
    }
}

/* Node marginals, the messages that edge marginals are made of, and the log-partition.

   e = exp(unary), P = exp(pair), PT its transpose (NULL: P is read by rows instead).  On return
   alpha[t] holds the normalised forward messages and e[t] the scaled backward ones, so
   that alpha[t][i] P[i][j] e[t + 1][j] is the marginal of the edge between t and t + 1;
   node may be alpha where edges are not wanted.  *log_z is the log-partition but for what
   was taken off by exp_rows.  check: look for messages so small that, through forbidden
   ones, more could be lost than rounding loses; returns 1 then, and 2 where no path is left.
   -2: an exception is set, which ends the loop. */
static int RNAME(sum_product)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride, REAL *e,
                              const REAL *P, const REAL *PT, ptrdiff_t pair_step, int check,
                              REAL *alpha, REAL *beta, REAL *scale, REAL *node, double *log_z)
{
    const RNAME(rvec) zero = {0};
    double product = 1.0, log_product = 0.0;
    REAL before = 1; /* the scale of the last position, found while its successor is made */
    for (ptrdiff_t t = 0; t < T; ++t) {
        REAL *a = alpha + t * stride;
        RNAME(rvec) total = zero;
        if (R * stride >= FASTM4N_LOOKED_AT && fastm4n_look() < 0)
            return -2;
        if (t == 0)
            for (ptrdiff_t j = 0; j < stride; j += RLEN) {
                const RNAME(rvec) x = RLOAD(e + j);
                RSTORE(a + j, x);
                total += x;
            }
        else
            total = RNAME(matvec)(a - stride, P + (t - 1) * pair_step, R, stride,
                                  e + t * stride, before, a);
        const REAL c = RNAME(rsum)(total);
        if (!(c > 0))
            return check ? 2 : 1;
        before = scale[t] = 1 / c;
        product *= (double)c;
        if (product < 1e-100 || product > 1e100) {
            log_product += log(product);
            product = 1.0;
        }
        if (check) {
            /* scaled at once: what is small here may be all that is left at the next position */
            RNAME(rvec) least = zero + 1;
            before = 1;
            for (ptrdiff_t j = 0; j < stride; j += RLEN) {
                const RNAME(rvec) x = scale[t] * RLOAD(a + j);
                RSTORE(a + j, x);
                least = -RMAX(-least, -RSELECT(x > zero, x, zero + 1));
            }
            if (-RNAME(rtop)(-least) < RTINY)
                return 1;
        }
    }
    *log_z = log_product + log(product);
    for (ptrdiff_t j = 0; j < stride; ++j)
        beta[j] = j < R ? 1 : 0;
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        REAL *a = alpha + t * stride, *g = e + t * stride;
        RNAME(meet)(t, stride, check ? 1 : scale[t], scale[t], a, beta, g, node + t * stride);
        if (t == 0)
            break;
        if (R * stride >= FASTM4N_LOOKED_AT && fastm4n_look() < 0)
            return -2;
        if (PT)
            RNAME(matvec)(g, PT, R, stride, NULL, 1, beta);
        else
            for (ptrdiff_t i = 0; i < R; ++i) {
                const REAL *row = P + (t - 1) * pair_step + i * stride;
                RNAME(rvec) inner = zero;
                for (ptrdiff_t j = 0; j < stride; j += RLEN)
                    inner += RLOAD(row + j) * RLOAD(g + j);
                beta[i] = RNAME(rsum)(inner);
            }
    }
    return 0;
}

/* out = P * sum_t alpha[t] e[t + 1]': the sum of the edge marginals of one matrix P */
static ALWAYS_INLINE void RNAME(edge_tile)(const int K, const REAL *alpha, const REAL *e,
                                           ptrdiff_t T, ptrdiff_t stride, const REAL *P,
                                           REAL *out, const int N)
{
    RNAME(rvec) acc[4][4];
    for (int n = 0; n < N; ++n)
        for (int k = 0; k < K; ++k)
            acc[n][k] = (RNAME(rvec)){0};
    for (ptrdiff_t t = 0; t + 1 < T; ++t)
        for (int k = 0; k < K; ++k) {
            const RNAME(rvec) g = RLOAD(e + (t + 1) * stride + k * RLEN);
            for (int n = 0; n < N; ++n)
                acc[n][k] += alpha[t * stride + n] * g;
        }
    for (int n = 0; n < N; ++n)
        for (int k = 0; k < K; ++k)
            RSTORE(out + n * stride + k * RLEN, acc[n][k] * RLOAD(P + n * stride + k * RLEN));
}

static ALWAYS_INLINE void RNAME(edge_rows)(const int N, const REAL *alpha, const REAL *e,
                                           ptrdiff_t T, ptrdiff_t stride, const REAL *P,
                                           REAL *out)
{
    ptrdiff_t j = 0;
    for (; j + 4 * RLEN <= stride; j += 4 * RLEN)
        RNAME(edge_tile)(4, alpha, e + j, T, stride, P + j, out + j, N);
    if (j + 3 * RLEN <= stride) {
        RNAME(edge_tile)(3, alpha, e + j, T, stride, P + j, out + j, N);
        j += 3 * RLEN;
    }
    if (j + 2 * RLEN <= stride) {
        RNAME(edge_tile)(2, alpha, e + j, T, stride, P + j, out + j, N);
        j += 2 * RLEN;
    }
    if (j < stride)
        RNAME(edge_tile)(1, alpha, e + j, T, stride, P + j, out + j, N);
}

/* -2: an exception is set, which ends the loop; 0 else */
static int RNAME(edge_sum)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride, const REAL *alpha,
                           const REAL *e, const REAL *P, REAL *out)
{
    ptrdiff_t i = 0;
    for (; i + 4 <= R; i += 4) {
        if (T * stride >= FASTM4N_LOOKED_AT && fastm4n_look() < 0)
            return -2;
        RNAME(edge_rows)(4, alpha + i, e, T, stride, P + i * stride, out + i * stride);
    }
    for (; i < R; ++i)
        RNAME(edge_rows)(1, alpha + i, e, T, stride, P + i * stride, out + i * stride);
    return 0;
}

/* out[i][j] = alpha[i] P[i][j] g[j]: the marginals of one edge */
static void RNAME(edge)(ptrdiff_t R, ptrdiff_t stride, const REAL *alpha, const REAL *g,
                        const REAL *P, REAL *out)
{
    for (ptrdiff_t i = 0; i < R; ++i)
        for (ptrdiff_t j = 0; j < stride; j += RLEN)
            RSTORE(out + i * stride + j, alpha[i] * RLOAD(P + i * stride + j) * RLOAD(g + j));
}

#include "chain_tangent_template.h"
#include "chain_lanes_template.h"
#include "chain_log_template.h"

static const RTABLE RNAME(chain_table) = {
    RLEN,
    RNAME(are_scores),
    RNAME(viterbi),
    RNAME(viterbi_path),
    RNAME(exp_rows),
    RNAME(sum_product),
    RNAME(edge_sum),
    RNAME(edge),
    RNAME(log_sum_product),
    RNAME(tangent),
    RNAME(lanes_load),
    RNAME(lanes_store),
    RNAME(lanes_sum_product),
    RNAME(lanes_edges),
    RNAME(lanes_sum),
    RNAME(lanes_viterbi),
    RNAME(lanes_path),
};

#undef RLOAD
#undef RSTORE
#undef RLANE
#undef RSELECT
#undef RMAX

/* what the includer defined for one type */
#undef REAL
#undef RINT
#undef RLEN
#undef RNAME
#undef REXP
#undef RTABLE
#undef RTINY
#undef RSHIFT
#undef RX512
#undef RX256
#undef RX128
#undef RMAX512
#undef RMAX256
#undef RMAX128
#undef RSUM512
#undef RTOP512
#undef RSOME512
#undef RSTORESOME512
#undef REQUAL512
