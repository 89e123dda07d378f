/* An interior-point method for max-min games over chains, VLEN games at a time.
 *
 *   max_mu min_nu  <v, mu> + sum_t mu_t' C nu_t,   mu the marginals of a distribution over the
 *   labellings of a chain, with e_t those of its edges, nu_t in the simplex
 *
 *   s_t = -(b_t + a_{t+1} + pair) >= 0,  s_0 = rho - a_0 >= 0,  a_t + b_t = v_t + C nu_t,
 *   w_t = C' mu_t - z_t >= 0,  e s = mu_0 s_0 = nu w = tau
 *
 * a and b are messages of both sides, and rho is the value of the best labelling under v + C nu.
 * All numbers are of VLEN games side by side: a number of one game is a vector.  Chains are
 * aligned at their first position; what stands behind the last one of a shorter chain is finite
 * and counts for nothing.
 *
 * Newton's equations, with theta = e / s of row sums R and column sums D, kappa = nu / w:
 *
 *   dmu_t = r + R db_t + theta da_{t+1},  dmu_{t+1} = c + theta' db_t + D da_{t+1},
 *   da_t + db_t = g_t - K_t dmu_t,  K = C (diag kappa - kappa kappa' / sum kappa) C'
 *
 * go along the chain from its end, where db = 0:
 *
 *   da_t = p_t - Q_t dmu_t,  F = 1 / D + Q,  B = R - theta / D theta' + Y' Y,
 *   Y = F^(-1/2) (theta / D)',  Q = K + B^-1
 *
 * R - theta / D theta' is a Laplacian, whose diagonal is the sum of what stands beside it: all sums
 * are of positive definite matrices, and lose nothing.
 *
 * The head of a chain is like a position before it, from which an edge leads to each label: s_0 is
 * its slack, and sums of its row are one.
 *
 * Written once and included once per target, see for_each_target.h.
 */

#ifndef VLEN
#ifndef FASTM4N_CHAIN_GAMES_H
#define FASTM4N_CHAIN_GAMES_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* A group of games. Arrays are of vectors: (T, R), or (T, R, R) for edges and matrices. */
typedef struct {
    /* positions of the longest, labels, and answers of the adversary: R under the 0-1 cost */
    ptrdiff_t T, R, A;
    /* scores, and costs (R, A) of 1 at most, NULL for 0-1; steps are numbers from one position to
       the next, zero where one matrix is of all */
    const double *unary, *pair, *cost;
    ptrdiff_t pair_step, cost_step;
    /* one vector each: lengths, numbers of products, rho */
    const double *length, *counts;
    double *rho, *d_rho;
    /* the point: edges are T - 1, s0 is (R), and nu and w are (T, A) */
    double *e, *s, *mu, *nu, *w, *s0;
    /* factors: see chain_game_prepare. kappa is (T, A), totals (T) */
    double *inverse, *theta, *columns, *kappa, *totals, *factor, *back;
    /* moves */
    double *h, *gain, *d_mu, *d_a, *d_b, *d_nu, *d_w;
    /* room for 4 T R + 3 T A + 4 R R + 2 R A + 2 R + 4 A vectors */
    double *room;
} fastm4n_chain_group;

typedef struct {
    int width; /* games in a group */
    void (*start)(const fastm4n_chain_group *g, double margin, double *products);
    void (*step)(const fastm4n_chain_group *g, const double *least, const double *active,
                 double *products);
    void (*marginals)(const fastm4n_chain_group *g, double *nodes, double *linear,
                      double *least);
} fastm4n_chain_games;

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(f) JOIN(JOIN(f, _v), VLEN)

#if defined(__GNUC__) || defined(__clang__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define TARGET_TEMPLATE "chain_games.h"
#include "for_each_target.h"
#undef TARGET_TEMPLATE

#else
#define ALWAYS_INLINE __forceinline
#define VLEN 1
#include "chain_games.h"
#undef VLEN
#endif

/* The games for vectors of `width` doubles, or of 4: groups of 8 games outgrow the caches, which
   takes more time than wider vectors save. */
static const fastm4n_chain_games *fastm4n_select_chain_games(int width)
{
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    if (width >= 4)
        return &chain_games_v4;
#endif
#if defined(__GNUC__) || defined(__clang__)
    (void)width;
    return &chain_games_v2;
#else
    (void)width;
    return &chain_games_v1;
#endif
}

#endif         /* FASTM4N_CHAIN_GAMES_H */
#elif VLEN < 8 /* the games of one target */

#include "vector_template.h"

/* the share of the way to the nearest bound that a step goes */
#define FULL 0.95

#if VLEN == 1
#define CLESS(a, b) ((a) < (b))
#define CPICK(mask, a, b) ((mask) ? (a) : (b))
#define CROOT(a) sqrt(a)
#else
#define CLESS(a, b) ((NAME(ivec))((a) < (b)))
#define CPICK(mask, a, b) NAME(select)(mask, a, b)
#define CROOT(a) NAME(chain_game_root)(a)
#endif
#define CV NAME(vec)
#define CVEC(p, i) (((CV *)(p))[i])
#define CMAX(a, b) NAME(chain_game_larger)(a, b)

static ALWAYS_INLINE CV NAME(chain_game_larger)(CV a, CV b) { return CPICK(CLESS(a, b), b, a); }

#if VLEN > 1
static ALWAYS_INLINE CV NAME(chain_game_root)(CV a)
{
    for (int i = 0; i < VLEN; ++i)
        a[i] = sqrt(a[i]);
    return a;
}
#endif

/* C nu of one position, or if `turned` C' mu; C is NULL for the 0-1 cost. */
static ALWAYS_INLINE void NAME(chain_game_costs)(ptrdiff_t R, ptrdiff_t A, const double *C,
                                                 int turned, const double *from, double *to)
{
    if (!C) {
        CV total = {0};
        for (ptrdiff_t j = 0; j < R; ++j)
            total += CVEC(from, j);
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(to, j) = total - CVEC(from, j);
        return;
    }
    if (turned) {
        for (ptrdiff_t k = 0; k < A; ++k)
            CVEC(to, k) = (CV){0};
        for (ptrdiff_t i = 0; i < R; ++i) {
            const CV x = CVEC(from, i);
            for (ptrdiff_t k = 0; k < A; ++k)
                CVEC(to, k) += CVEC(C, i * A + k) * x;
        }
        return;
    }
    for (ptrdiff_t i = 0; i < R; ++i) {
        CV x = {0};
        for (ptrdiff_t k = 0; k < A; ++k)
            x += CVEC(C, i * A + k) * CVEC(from, k);
        CVEC(to, i) = x;
    }
}

/* q = K x of one position, K as above; total = sum kappa, buffer (2 A). */
static ALWAYS_INLINE void NAME(chain_game_curve)(ptrdiff_t R, ptrdiff_t A, const double *C,
                                                 const double *kappa, CV total, const double *x,
                                                 double *q, double *buffer)
{
    CV mean = {0};
    double *curved = C ? buffer + A * VLEN : q;
    const double *y = C ? buffer : x;
    if (C)
        NAME(chain_game_costs)(R, A, C, 1, x, buffer);
    for (ptrdiff_t k = 0; k < A; ++k)
        mean += CVEC(kappa, k) * CVEC(y, k);
    mean /= total;
    for (ptrdiff_t k = 0; k < A; ++k)
        CVEC(curved, k) = CVEC(kappa, k) * (CVEC(y, k) - mean);
    if (C)
        NAME(chain_game_costs)(R, A, C, 0, curved, q);
}

#define CLEAST(a, b) ((a) < (b) ? (a) : (b))

/* to (m, n), rows of 4 vectors, = sum_k X[i][k] Y[j][k] for from <= k < stop, rows R long. */
static ALWAYS_INLINE void NAME(chain_game_sums)(const int m, const int n, ptrdiff_t R,
                                                const double *X, const double *Y,
                                                ptrdiff_t from, ptrdiff_t stop, CV *to)
{
    CV acc[4][4];
    for (int a = 0; a < m; ++a)
        for (int b = 0; b < n; ++b)
            acc[a][b] = (CV){0};
    for (ptrdiff_t k = from; k < stop; ++k)
        for (int a = 0; a < m; ++a)
            for (int b = 0; b < n; ++b)
                acc[a][b] += CVEC(X, a * R + k) * CVEC(Y, b * R + k);
    for (int a = 0; a < m; ++a)
        for (int b = 0; b < n; ++b)
            to[4 * a + b] = acc[a][b];
}

/* The same for any m and n up to 4: loops of known lengths stay in registers. */
static void NAME(chain_game_rest)(ptrdiff_t m, ptrdiff_t n, ptrdiff_t R, const double *X,
                                  const double *Y, ptrdiff_t from, ptrdiff_t stop, CV *to)
{
#define CCASE(m, n)                                                                            \
    case 4 * m + n:                                                                            \
        NAME(chain_game_sums)(m, n, R, X, Y, from, stop, to);                                  \
        break;
#define CCASES(m) CCASE(m, 1) CCASE(m, 2) CCASE(m, 3) CCASE(m, 4)
    switch (4 * m + n) {
        CCASES(1)
        CCASES(2)
        CCASES(3)
        CCASES(4)
    }
#undef CCASE
#undef CCASES
}

static ALWAYS_INLINE void NAME(chain_game_tile)(ptrdiff_t m, ptrdiff_t n, ptrdiff_t R,
                                                const double *X, const double *Y,
                                                ptrdiff_t from, ptrdiff_t stop, CV *to)
{
    if (m == 4 && n == 4)
        NAME(chain_game_sums)(4, 4, R, X, Y, from, stop, to);
    else if (m == 4 && n == 1)
        NAME(chain_game_sums)(4, 1, R, X, Y, from, stop, to);
    else
        NAME(chain_game_rest)(m, n, R, X, Y, from, stop, to);
}

/* how many of the four rows from i on there are: known where R is */
#define CROWS(R, i) ((R) % 4 == 0 ? 4 : CLEAST(4, (R) - (i)))

/* y = A x */
static ALWAYS_INLINE void NAME(chain_game_times)(ptrdiff_t R, const double *A, const double *x,
                                                 double *y)
{
    for (ptrdiff_t i = 0; i < R; i += 4) {
        CV sums[16];
        const ptrdiff_t m = CROWS(R, i);
        NAME(chain_game_tile)(m, 1, R, A + i * R * VLEN, x, 0, R, sums);
        for (ptrdiff_t a = 0; a < m; ++a)
            CVEC(y, i + a) = sums[4 * a];
    }
}

/* The columns j ... j + n - 1 of m rows Y that solve Y L' = A, those before being there. They have
   zeros before `from`. L has the inverses of its diagonal. */
static ALWAYS_INLINE void NAME(chain_game_columns)(ptrdiff_t R, const double *L, ptrdiff_t m,
                                                   ptrdiff_t j, ptrdiff_t n, const double *A,
                                                   ptrdiff_t from, double *Y)
{
    CV sums[16];
    NAME(chain_game_tile)(m, n, R, Y, L + j * R * VLEN, from, j, sums);
    for (ptrdiff_t a = 0; a < m; ++a)
        for (ptrdiff_t b = 0; b < n; ++b) {
            CV x = CVEC(A, a * R + j + b) - sums[4 * a + b];
            for (ptrdiff_t c = 0; c < b; ++c)
                x -= CVEC(Y, a * R + j + c) * CVEC(L, (j + b) * R + j + c);
            CVEC(Y, a * R + j + b) = x * CVEC(L, (j + b) * R + j + b);
        }
}

/* Lower triangle of A, (R, R), replaced by its factor L, with the inverse of the diagonal. */
static ALWAYS_INLINE void NAME(chain_game_factor_of)(ptrdiff_t R, double *A)
{
    for (ptrdiff_t j = 0; j < R; j += 4) {
        const ptrdiff_t n = CROWS(R, j);
        double *own = A + j * R * VLEN;
        CV sums[16];
        NAME(chain_game_tile)(n, n, R, own, own, 0, j, sums);
        for (ptrdiff_t a = 0; a < n; ++a)
            for (ptrdiff_t b = 0; b <= a; ++b) {
                CV x = CVEC(own, a * R + j + b) - sums[4 * a + b];
                for (ptrdiff_t c = 0; c < b; ++c)
                    x -= CVEC(own, a * R + j + c) * CVEC(own, b * R + j + c);
                if (b < a)
                    x *= CVEC(own, b * R + j + b);
                else
                    x = 1.0 / CROOT(CMAX(x, (CV){0} + DBL_MIN));
                CVEC(own, a * R + j + b) = x;
            }
        for (ptrdiff_t i = j + n; i < R; i += 4) {
            double *rows = A + i * R * VLEN;
            NAME(chain_game_columns)(R, A, CROWS(R, i), j, n, rows, 0, rows);
        }
    }
}

/* x = (L L')^-1 x */
static ALWAYS_INLINE void NAME(chain_game_solve)(ptrdiff_t R, const double *L, double *x)
{
    for (ptrdiff_t i = 0; i < R; ++i) {
        const CV y = CVEC(x, i) * CVEC(L, i * R + i);
        CVEC(x, i) = y;
        for (ptrdiff_t k = i + 1; k < R; ++k)
            CVEC(x, k) -= CVEC(L, k * R + i) * y;
    }
    for (ptrdiff_t i = R - 1; i >= 0; --i) {
        const CV y = CVEC(x, i) * CVEC(L, i * R + i);
        CVEC(x, i) = y;
        for (ptrdiff_t k = 0; k < i; ++k)
            CVEC(x, k) -= CVEC(L, i * R + k) * y;
    }
}

/* Factors of all positions, from e, s, mu, nu and w: 1 / s of edges to `inverse`, R and D to
   `rows` and `columns`, kappa and its sums, F^(-1/2) and B^-1. buffer: 4 R R + 2 R A vectors. */
static ALWAYS_INLINE void NAME(chain_game_prepare)(const fastm4n_chain_group *g,
                                                   const ptrdiff_t R, const ptrdiff_t answers,
                                                   double *buffer)
{
    const ptrdiff_t T = g->T;
    const ptrdiff_t square = R * R * VLEN, row = R * VLEN;
    double *Q = buffer, *A = Q + square, *Y = A + square, *M = Y + square;
    const CV length = CVEC(g->length, 0), zero = {0};
    for (ptrdiff_t j = 0; j < R; ++j)
        CVEC(g->columns, j) = CVEC(g->mu, j) / CVEC(g->s0, j);
    for (ptrdiff_t t = 0; t + 1 < T; ++t) {
        double *D = g->columns + (t + 1) * row;
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(D, j) = zero;
        for (ptrdiff_t i = 0; i < R; ++i)
            for (ptrdiff_t j = 0; j < R; ++j) {
                const ptrdiff_t at = (t * R + i) * R + j;
                const CV x = 1.0 / CVEC(g->s, at);
                const CV theta = CVEC(g->e, at) * x;
                CVEC(g->inverse, at) = x;
                CVEC(g->theta, at) = theta;
                CVEC(D, j) += theta;
            }
    }
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        double *kappa = g->kappa + t * answers * VLEN, *L = g->factor + t * square;
        const NAME(ivec) inside = CLESS(zero + (double)(t + 1), length);
        CV total = zero;
        for (ptrdiff_t k = 0; k < answers; ++k) {
            CVEC(kappa, k) = CVEC(g->nu, t * answers + k) / CVEC(g->w, t * answers + k);
            total += CVEC(kappa, k);
        }
        CVEC(g->totals, t) = total;
        const CV share = 1.0 / total;
        if (g->cost) {
            /* costs less their means under kappa, Z, as K = Z diag(kappa) Z' */
            const double *cost = g->cost + t * g->cost_step;
            double *Z = M + square, *scaled = Z + R * answers * VLEN;
            for (ptrdiff_t i = 0; i < R; ++i) {
                CV mean = zero;
                for (ptrdiff_t k = 0; k < answers; ++k)
                    mean += CVEC(cost, i * answers + k) * CVEC(kappa, k);
                mean *= share;
                for (ptrdiff_t k = 0; k < answers; ++k) {
                    const CV x = CVEC(cost, i * answers + k) - mean;
                    CVEC(Z, i * answers + k) = x;
                    CVEC(scaled, i * answers + k) = x * CVEC(kappa, k);
                }
            }
            for (ptrdiff_t i = 0; i < R; i += 4)
                for (ptrdiff_t j = 0; j <= i; j += 4) {
                    CV sums[16];
                    const ptrdiff_t m = CROWS(R, i), n = CROWS(R, j);
                    NAME(chain_game_tile)(m, n, answers, Z + i * answers * VLEN,
                                          scaled + j * answers * VLEN, 0, answers, sums);
                    for (ptrdiff_t a = 0; a < m; ++a)
                        for (ptrdiff_t b = 0; b < n; ++b)
                            CVEC(Q, (i + a) * R + j + b) = sums[4 * a + b];
                }
        } else {
            for (ptrdiff_t i = 0; i < R; ++i)
                CVEC(Q, i * R + i) = zero;
            for (ptrdiff_t i = 0; i < R; ++i)
                for (ptrdiff_t j = 0; j < i; ++j) {
                    const CV x = CVEC(kappa, i) * CVEC(kappa, j) * share;
                    CVEC(Q, i * R + j) = -x;
                    CVEC(Q, i * R + i) += x;
                    CVEC(Q, j * R + j) += x;
                }
        }
        if (t + 1 < T) {
            const double *back = g->back + t * square;
            for (ptrdiff_t i = 0; i < R; ++i)
                for (ptrdiff_t j = 0; j <= i; ++j)
                    CVEC(Q, i * R + j) += CPICK(inside, CVEC(back, i * R + j), zero);
        }
        const double *D = g->columns + t * row;
        for (ptrdiff_t i = 0; i < R; ++i)
            for (ptrdiff_t j = 0; j <= i; ++j)
                CVEC(L, i * R + j) = CVEC(Q, i * R + j);
        for (ptrdiff_t i = 0; i < R; ++i)
            CVEC(L, i * R + i) += 1.0 / CVEC(D, i);
        NAME(chain_game_factor_of)(R, L);
        if (t == 0)
            break;
        /* A = theta / D, Y = A L^-T */
        const double *theta = g->theta + (t - 1) * square;
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(Q, j) = 1.0 / CVEC(D, j);
        for (ptrdiff_t i = 0; i < R; ++i)
            for (ptrdiff_t j = 0; j < R; ++j)
                CVEC(A, i * R + j) = CVEC(theta, i * R + j) * CVEC(Q, j);
        for (ptrdiff_t j = 0; j < R; j += 4)
            for (ptrdiff_t i = 0; i < R; i += 4)
                NAME(chain_game_columns)(R, L, CROWS(R, i), j, CROWS(R, j), A + i * row, 0,
                                         Y + i * row);
        /* B, its lower triangle: what stands beside the Laplacian's diagonal goes to Q meanwhile */
        double *B = g->back + (t - 1) * square;
        for (ptrdiff_t i = 0; i < R; i += 4)
            for (ptrdiff_t j = 0; j <= i; j += 4) {
                CV sums[16];
                const ptrdiff_t m = CROWS(R, i), n = CROWS(R, j);
                NAME(chain_game_tile)(m, n, R, A + i * row, theta + j * row, 0, R, sums);
                for (ptrdiff_t a = 0; a < m; ++a)
                    for (ptrdiff_t b = 0; b < n; ++b)
                        CVEC(Q, (i + a) * R + j + b) = sums[4 * a + b];
                NAME(chain_game_tile)(m, n, R, Y + i * row, Y + j * row, 0, R, sums);
                for (ptrdiff_t a = 0; a < m; ++a)
                    for (ptrdiff_t b = 0; b < n; ++b)
                        CVEC(B, (i + a) * R + j + b) = sums[4 * a + b];
            }
        for (ptrdiff_t i = 0; i < R; ++i)
            for (ptrdiff_t j = 0; j < i; ++j) {
                const CV x = CVEC(Q, i * R + j);
                CVEC(B, i * R + j) -= x;
                CVEC(B, i * R + i) += x;
                CVEC(B, j * R + j) += x;
            }
        /* B^-1 = M M' for M = B^(-T/2), rows of an upper triangle */
        NAME(chain_game_factor_of)(R, B);
        for (ptrdiff_t i = 0; i < R * R; ++i)
            CVEC(A, i) = CVEC(M, i) = zero;
        for (ptrdiff_t i = 0; i < R; ++i)
            CVEC(A, i * R + i) = zero + 1.0;
        for (ptrdiff_t j = 0; j < R; j += 4)
            for (ptrdiff_t i = 0; i <= j; i += 4)
                NAME(chain_game_columns)(R, B, CROWS(R, i), j, CROWS(R, j), A + i * row, i,
                                         M + i * row);
        for (ptrdiff_t i = 0; i < R; i += 4)
            for (ptrdiff_t j = 0; j <= i; j += 4) {
                CV sums[16];
                const ptrdiff_t m = CROWS(R, i), n = CROWS(R, j);
                NAME(chain_game_tile)(m, n, R, M + i * row, M + j * row, i, R, sums);
                for (ptrdiff_t a = 0; a < m; ++a)
                    for (ptrdiff_t b = 0; b < n; ++b) {
                        CVEC(B, (i + a) * R + j + b) = sums[4 * a + b];
                        CVEC(B, (j + b) * R + i + a) = sums[4 * a + b];
                    }
            }
    }
}

/* Moves of mu, a, b, nu, w and rho from right sides r of mu and c of the columns of edges, both
   (T, R) with r[t] of the rows of edge t, and n of nu. c[0] is of mu_0. r does not last. buffer:
   2 R + 4 A vectors. */
static ALWAYS_INLINE void NAME(chain_game_moves)(const fastm4n_chain_group *g,
                                                 const ptrdiff_t R, const ptrdiff_t A,
                                                 double *r, double *c, const double *n,
                                                 double *buffer)
{
    const ptrdiff_t T = g->T, square = R * R * VLEN, row = R * VLEN;
    const CV length = CVEC(g->length, 0), zero = {0};
    double *x = buffer, *one = x + row + A * VLEN, *more = one + row, *gain = g->gain;
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        const double *kappa = g->kappa + t * A * VLEN, *D = g->columns + t * row;
        double *h = g->h + t * row, *own = gain + t * row;
        CV total = zero;
        for (ptrdiff_t k = 0; k < A; ++k)
            total += CVEC(n, t * A + k);
        const CV share = total / CVEC(g->totals, t);
        for (ptrdiff_t k = 0; k < A; ++k)
            CVEC(x, k) = CVEC(n, t * A + k) - CVEC(kappa, k) * share;
        if (g->cost)
            NAME(chain_game_costs)(R, A, g->cost + t * g->cost_step, 0, x, own);
        else
            for (ptrdiff_t j = 0; j < R; ++j)
                CVEC(own, j) = -CVEC(x, j);
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(h, j) = CVEC(own, j) + CVEC(c, t * R + j) / CVEC(D, j);
        if (t + 1 < T) {
            const double *back = g->back + t * square;
            const NAME(ivec) inside = CLESS(zero + (double)(t + 1), length);
            NAME(chain_game_times)(R, back, r + t * row, x);
            for (ptrdiff_t i = 0; i < R; ++i)
                CVEC(h, i) += CPICK(inside, CVEC(x, i), zero);
        }
        NAME(chain_game_solve)(R, g->factor + t * square, h);
        if (t == 0)
            break;
        /* r = r + theta / D (F^-1 h - c), the b of the head of this page */
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(x, j) = (CVEC(h, j) - CVEC(c, t * R + j)) / CVEC(D, j);
        NAME(chain_game_times)(R, g->theta + (t - 1) * square, x, one);
        for (ptrdiff_t i = 0; i < R; ++i)
            CVEC(r, (t - 1) * R + i) += CVEC(one, i);
    }
    /* the sum of mu_0 is one */
    CV sum = zero, ones = zero, lacks = zero + 1.0;
    for (ptrdiff_t j = 0; j < R; ++j)
        CVEC(one, j) = zero + 1.0;
    NAME(chain_game_solve)(R, g->factor, one);
    for (ptrdiff_t j = 0; j < R; ++j) {
        sum += CVEC(g->h, j);
        ones += CVEC(one, j);
        lacks -= CVEC(g->mu, j);
    }
    const CV d_rho = (sum - lacks) / ones;
    CVEC(g->d_rho, 0) = d_rho;
    for (ptrdiff_t j = 0; j < R; ++j)
        CVEC(g->d_mu, j) = CVEC(g->h, j) - d_rho * CVEC(one, j);
    for (ptrdiff_t t = 0; t < T; ++t) {
        const double *kappa = g->kappa + t * A * VLEN;
        const double *cost = g->cost ? g->cost + t * g->cost_step : NULL;
        double *d_mu = g->d_mu + t * row, *d_b = g->d_b + t * row, *d_a = g->d_a + t * row;
        const NAME(ivec) inside = CLESS(zero + (double)(t + 1), length);
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(d_b, j) = zero;
        if (t + 1 < T) {
            const double *back = g->back + t * square;
            for (ptrdiff_t j = 0; j < R; ++j)
                CVEC(x, j) = CVEC(d_mu, j) - CVEC(r, t * R + j);
            NAME(chain_game_times)(R, back, x, d_b);
            for (ptrdiff_t i = 0; i < R; ++i)
                CVEC(d_b, i) = CPICK(inside, CVEC(d_b, i), zero);
        }
        NAME(chain_game_curve)(R, A, cost, kappa, CVEC(g->totals, t), d_mu, x, more);
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(d_a, j) = CVEC(gain, t * R + j) - CVEC(x, j) - CVEC(d_b, j);
        /* w and nu */
        double *d_w = g->d_w + t * A * VLEN, *d_nu = g->d_nu + t * A * VLEN;
        if (g->cost)
            NAME(chain_game_costs)(R, A, cost, 1, d_mu, d_w);
        else
            for (ptrdiff_t j = 0; j < R; ++j)
                CVEC(d_w, j) = -CVEC(d_mu, j);
        sum = zero;
        for (ptrdiff_t k = 0; k < A; ++k)
            sum += CVEC(kappa, k) * CVEC(d_w, k) - CVEC(n, t * A + k);
        sum /= CVEC(g->totals, t);
        for (ptrdiff_t k = 0; k < A; ++k) {
            CVEC(d_w, k) -= sum;
            CVEC(d_nu, k) = CVEC(n, t * A + k) - CVEC(kappa, k) * CVEC(d_w, k);
        }
        if (t + 1 == T)
            break;
        /* the next dmu = F^-1 (h + theta' db / D), h being F^-1 of the rest already */
        const double *theta = g->theta + t * square;
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(x, j) = zero;
        for (ptrdiff_t i = 0; i < R; ++i) {
            const CV own = CVEC(d_b, i);
            for (ptrdiff_t j = 0; j < R; ++j)
                CVEC(x, j) += CVEC(theta, i * R + j) * own;
        }
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(x, j) /= CVEC(g->columns, (t + 1) * R + j);
        NAME(chain_game_solve)(R, g->factor + (t + 1) * square, x);
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(d_mu, R + j) = CVEC(g->h, (t + 1) * R + j) + CVEC(x, j);
    }
}

/* Both parts of a step use the moves: one copy of them for each size. */
#define CMOVES(R, A, tag)                                                                      \
    static void NAME(chain_moves_##tag)(const fastm4n_chain_group *g, double *r, double *c,    \
                                        const double *n, double *buffer)                       \
    {                                                                                          \
        NAME(chain_game_moves)(g, R, A, r, c, n, buffer);                                      \
    }

/* One step, a predictor and a corrector.

   products holds the sums of e s, mu_0 s_0 and nu w, before and after; counts their number, and
   least the smallest mean of them to aim at.  Games with `active` zero stay as they are. */
static ALWAYS_INLINE void NAME(chain_game_step_of)(
    const fastm4n_chain_group *g, const ptrdiff_t R, const ptrdiff_t A,
    void (*moves)(const fastm4n_chain_group *, double *, double *, const double *, double *),
    const double *least, const double *active, double *products)
{
    const ptrdiff_t T = g->T, row = R * VLEN, wide = A * VLEN;
    const CV length = CVEC(g->length, 0), zero = {0}, gap = CVEC(products, 0);
    double *r = g->room, *c = r + T * row, *first_a = c + T * row, *first_b = first_a + T * row;
    double *n = first_b + T * row, *first_w = n + T * wide, *first_nu = first_w + T * wide;
    double *buffer = first_nu + T * wide;
    NAME(chain_game_prepare)(g, R, A, buffer);
    for (ptrdiff_t j = 0; j < T * R; ++j)
        CVEC(r, j) = CVEC(c, j) = -CVEC(g->mu, j);
    for (ptrdiff_t k = 0; k < T * A; ++k)
        CVEC(n, k) = -CVEC(g->nu, k);
    moves(g, r, c, n, buffer);
    /* how far the predictor may go, and what the products are there */
    CV up = zero + 1.0, down = zero + 1.0, moved = zero, both = zero;
    CV first_0[1];
    first_0[0] = CVEC(g->d_rho, 0);
    for (ptrdiff_t j = 0; j < R; ++j) {
        const CV x = CVEC(g->d_a, j) - first_0[0], own = CVEC(g->mu, j);
        const CV ratio = x / CVEC(g->s0, j);
        up = CMAX(up, 1.0 - ratio);
        down = CMAX(down, ratio);
        moved -= own * x;
        both += own * x * (1.0 - ratio);
    }
    for (ptrdiff_t t = 0; t < T; ++t) {
        const NAME(ivec) here = CLESS(zero + (double)t, length);
        const NAME(ivec) inside = CLESS(zero + (double)(t + 1), length);
        CV own_up = zero, own_down = zero, own_moved = zero, own_both = zero;
        for (ptrdiff_t k = 0; k < A; ++k) {
            const ptrdiff_t at = t * A + k;
            const CV nu = CVEC(g->nu, at), w = CVEC(g->w, at);
            own_up = CMAX(own_up, -CVEC(g->d_w, at) / w);
            own_down = CMAX(own_down, -CVEC(g->d_nu, at) / nu);
            own_moved += w * CVEC(g->d_nu, at);
            own_both += CVEC(g->d_nu, at) * CVEC(g->d_w, at);
        }
        up = CMAX(up, CPICK(here, own_up, zero));
        down = CMAX(down, CPICK(here, own_down, zero));
        moved += CPICK(here, own_moved, zero);
        both += CPICK(here, own_both, zero);
        if (t + 1 == T)
            break;
        own_up = own_down = own_moved = own_both = zero;
        for (ptrdiff_t i = 0; i < R; ++i) {
            const CV d_b = CVEC(g->d_b, t * R + i);
            for (ptrdiff_t j = 0; j < R; ++j) {
                const ptrdiff_t at = (t * R + i) * R + j;
                const CV x = d_b + CVEC(g->d_a, (t + 1) * R + j);
                const CV ratio = x * CVEC(g->inverse, at), y = x * CVEC(g->e, at);
                own_up = CMAX(own_up, 1.0 - ratio);
                own_down = CMAX(own_down, ratio);
                own_moved -= y;
                own_both += y - y * ratio;
            }
        }
        up = CMAX(up, CPICK(inside, own_up, zero));
        down = CMAX(down, CPICK(inside, own_down, zero));
        moved += CPICK(inside, own_moved, zero);
        both += CPICK(inside, own_both, zero);
    }
    up = 1.0 / up;
    down = 1.0 / down;
    CV share = gap - up * (gap + moved) + down * moved + up * down * both;
    share = CMAX(share, zero) / gap;
    const CV target = CMAX(share * share * share * gap / CVEC(g->counts, 0), CVEC(least, 0));
    /* the corrector: what the predictor's moves leave of the products */
    memcpy(first_a, g->d_a, (size_t)(T * row) * sizeof(double));
    memcpy(first_b, g->d_b, (size_t)(T * row) * sizeof(double));
    memcpy(first_w, g->d_w, (size_t)(T * wide) * sizeof(double));
    memcpy(first_nu, g->d_nu, (size_t)(T * wide) * sizeof(double));
    for (ptrdiff_t j = 0; j < T * R; ++j)
        CVEC(r, j) = CVEC(c, j) = -CVEC(g->mu, j);
    for (ptrdiff_t k = 0; k < T * A; ++k)
        CVEC(n, k) =
            (target - CVEC(first_nu, k) * CVEC(first_w, k)) / CVEC(g->w, k) - CVEC(g->nu, k);
    for (ptrdiff_t j = 0; j < R; ++j) {
        const CV x = CVEC(first_a, j) - first_0[0], inverse = 1.0 / CVEC(g->s0, j);
        CVEC(c, j) += (target - CVEC(g->mu, j) * x * (1.0 - x * inverse)) * inverse;
    }
    for (ptrdiff_t t = 0; t + 1 < T; ++t)
        for (ptrdiff_t i = 0; i < R; ++i) {
            CV sum = zero;
            for (ptrdiff_t j = 0; j < R; ++j) {
                const ptrdiff_t at = (t * R + i) * R + j;
                const CV x = CVEC(first_b, t * R + i) + CVEC(first_a, (t + 1) * R + j);
                const CV inverse = CVEC(g->inverse, at);
                const CV y = (target - CVEC(g->e, at) * x * (1.0 - x * inverse)) * inverse;
                sum += y;
                CVEC(c, (t + 1) * R + j) += y;
            }
            CVEC(r, t * R + i) += sum;
        }
    moves(g, r, c, n, buffer);
    /* moves of e go where 1 / s was, and those of s_0 and mu_0 where columns were */
    up = down = zero + 0.5;
    for (ptrdiff_t j = 0; j < R; ++j) {
        const CV first = CVEC(first_a, j) - first_0[0], inverse = 1.0 / CVEC(g->s0, j);
        const CV own = CVEC(g->mu, j), x = CVEC(g->d_a, j) - CVEC(g->d_rho, 0);
        const CV move = (target - own * first * (1.0 - first * inverse)) * inverse - own +
                        own * inverse * x;
        up = CMAX(up, -move / own);
        down = CMAX(down, x * inverse);
        CVEC(g->columns, j) = move;
    }
    for (ptrdiff_t t = 0; t < T; ++t) {
        const NAME(ivec) here = CLESS(zero + (double)t, length);
        const NAME(ivec) inside = CLESS(zero + (double)(t + 1), length);
        CV own_up = zero, own_down = zero;
        for (ptrdiff_t k = 0; k < A; ++k) {
            const ptrdiff_t at = t * A + k;
            own_up = CMAX(own_up, -CVEC(g->d_w, at) / CVEC(g->w, at));
            own_down = CMAX(own_down, -CVEC(g->d_nu, at) / CVEC(g->nu, at));
        }
        up = CMAX(up, CPICK(here, own_up, zero));
        down = CMAX(down, CPICK(here, own_down, zero));
        if (t + 1 == T)
            break;
        own_up = own_down = zero;
        for (ptrdiff_t i = 0; i < R; ++i)
            for (ptrdiff_t j = 0; j < R; ++j) {
                const ptrdiff_t at = (t * R + i) * R + j;
                const CV first = CVEC(first_b, t * R + i) + CVEC(first_a, (t + 1) * R + j);
                const CV x = CVEC(g->d_b, t * R + i) + CVEC(g->d_a, (t + 1) * R + j);
                const CV inverse = CVEC(g->inverse, at), e = CVEC(g->e, at);
                const CV move = (target - e * first * (1.0 - first * inverse)) * inverse - e +
                                e * inverse * x;
                own_up = CMAX(own_up, -move / e);
                own_down = CMAX(own_down, x * inverse);
                CVEC(g->inverse, at) = move;
            }
        up = CMAX(up, CPICK(inside, own_up, zero));
        down = CMAX(down, CPICK(inside, own_down, zero));
    }
    /* all but a share of the way to the nearest bound, never more than the whole move */
    const CV moving = CVEC(active, 0);
    up = moving * CPICK(CLESS(up, zero + FULL), zero + 1.0, FULL / up);
    down = moving * CPICK(CLESS(down, zero + FULL), zero + 1.0, FULL / down);
    CV after = zero;
    CVEC(g->rho, 0) += down * CVEC(g->d_rho, 0);
    for (ptrdiff_t j = 0; j < R; ++j) {
        CVEC(g->mu, j) += up * CVEC(g->columns, j);
        CVEC(g->s0, j) -= down * (CVEC(g->d_a, j) - CVEC(g->d_rho, 0));
        after += CVEC(g->mu, j) * CVEC(g->s0, j);
    }
    for (ptrdiff_t t = 0; t < T; ++t) {
        const NAME(ivec) here = CLESS(zero + (double)t, length);
        const NAME(ivec) inside = CLESS(zero + (double)(t + 1), length);
        const CV up_here = CPICK(here, up, zero), down_here = CPICK(here, down, zero);
        const CV up_on = CPICK(inside, up, zero), down_on = CPICK(inside, down, zero);
        CV sum = zero;
        for (ptrdiff_t k = 0; k < A; ++k) {
            const ptrdiff_t at = t * A + k;
            CVEC(g->w, at) += up_here * CVEC(g->d_w, at);
            CVEC(g->nu, at) += down_here * CVEC(g->d_nu, at);
            sum += CVEC(g->w, at) * CVEC(g->nu, at);
        }
        after += CPICK(here, sum, zero);
        if (t + 1 == T)
            break;
        sum = zero;
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(g->mu, (t + 1) * R + j) = zero;
        for (ptrdiff_t i = 0; i < R; ++i)
            for (ptrdiff_t j = 0; j < R; ++j) {
                const ptrdiff_t at = (t * R + i) * R + j;
                const CV x = CVEC(g->d_b, t * R + i) + CVEC(g->d_a, (t + 1) * R + j);
                const CV e = CVEC(g->e, at) + up_on * CVEC(g->inverse, at);
                const CV s = CVEC(g->s, at) - down_on * x;
                CVEC(g->e, at) = e;
                CVEC(g->s, at) = s;
                CVEC(g->mu, (t + 1) * R + j) += e;
                sum += e * s;
            }
        after += CPICK(inside, sum, zero);
    }
    CVEC(products, 0) = after;
}

/* Few labels are the usual case: loops of known lengths take half of the time. */
#define CSIZE(R, A, tag)                                                                       \
    CMOVES(R, A, tag)                                                                          \
    static void NAME(chain_step_##tag)(const fastm4n_chain_group *g, const double *least,      \
                                       const double *active, double *products)                 \
    {                                                                                          \
        NAME(chain_game_step_of)(g, R, A, NAME(chain_moves_##tag), least, active, products);   \
    }

CSIZE(4, 4, 4)
CSIZE(8, 8, 8)
CSIZE(4, g->A, with_costs_4)
CSIZE(8, g->A, with_costs_8)
CSIZE(g->R, g->A, any)

static void NAME(chain_game_step)(const fastm4n_chain_group *g, const double *least,
                                  const double *active, double *products)
{
    if (g->R == 4)
        (g->cost ? NAME(chain_step_with_costs_4) : NAME(chain_step_4))(g, least, active,
                                                                       products);
    else if (g->R == 8)
        (g->cost ? NAME(chain_step_with_costs_8) : NAME(chain_step_8))(g, least, active,
                                                                       products);
    else
        NAME(chain_step_any)(g, least, active, products);
}

/* mu and nu of each position by itself, half way to uniform ones. Under the 0-1 cost they are
   exact: nu are scores above a level, Michelot's, and mu is uniform on their labels. Under others
   they are the softmax of scores, and uniform. */
static void NAME(chain_game_alone)(const fastm4n_chain_group *g)
{
    const ptrdiff_t T = g->T, R = g->R, A = g->A;
    const CV zero = {0}, one = zero + 1.0, half = zero + 0.5, uniform = half / (double)R;
    for (ptrdiff_t t = 0; t < T; ++t) {
        const double *v = g->unary + t * R * VLEN;
        double *mu = g->mu + t * R * VLEN, *nu = g->nu + t * A * VLEN;
        CV top = CVEC(v, 0), total = zero, level = zero;
        for (ptrdiff_t j = 1; j < R; ++j)
            top = CMAX(top, CVEC(v, j));
        if (!g->cost) {
            /* no label further below the best than one is above the level */
            level -= 1.0;
            for (ptrdiff_t round = 0; round < R; ++round) {
                CV sum = zero;
                total = zero;
                for (ptrdiff_t j = 0; j < R; ++j) {
                    const CV x = CVEC(v, j) - top;
                    sum += CPICK(CLESS(level, x), x, zero);
                    total += CPICK(CLESS(level, x), one, zero);
                }
                level = CMAX(level, (sum - 1.0) / total);
            }
            total = zero;
        }
        for (ptrdiff_t j = 0; j < R; ++j) {
            const CV x = CVEC(v, j) - top;
            CVEC(mu, j) = NAME(vexp)(x);
            if (!g->cost) {
                CVEC(nu, j) = uniform + half * CMAX(x - level, zero);
                CVEC(mu, j) = CPICK(CLESS(level, x), one, zero);
            }
            total += CVEC(mu, j);
        }
        for (ptrdiff_t k = 0; k < A && g->cost; ++k)
            CVEC(nu, k) = one / (double)A;
        for (ptrdiff_t j = 0; j < R; ++j) {
            CVEC(mu, j) = half * CVEC(mu, j) / total + uniform;
        }
    }
}

/* The start: edges of independent positions, and messages whose slacks are at least `margin`, as w
   are. */
static void NAME(chain_game_start)(const fastm4n_chain_group *g, double margin,
                                   double *products)
{
    const double *unary = g->unary;
    const ptrdiff_t T = g->T, R = g->R, A = g->A, row = R * VLEN;
    const CV length = CVEC(g->length, 0), zero = {0};
    double *a = g->d_a, *x = g->room;
    CV sum = zero;
    NAME(chain_game_alone)(g);
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        const NAME(ivec) here = CLESS(zero + (double)t, length);
        const NAME(ivec) inside = CLESS(zero + (double)(t + 1), length);
        double *own = a + t * row, *next = own + row, *w = g->w + t * A * VLEN;
        const double *cost = g->cost ? g->cost + t * g->cost_step : NULL;
        const double *pair = g->pair + t * g->pair_step;
        NAME(chain_game_costs)(R, A, cost, 0, g->nu + t * A * VLEN, own);
        NAME(chain_game_costs)(R, A, cost, 1, g->mu + t * row, w);
        CV low = CVEC(w, 0), part = zero;
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(own, j) += CVEC(unary, t * R + j);
        for (ptrdiff_t k = 1; k < A; ++k)
            low = -CMAX(-low, -CVEC(w, k));
        for (ptrdiff_t k = 0; k < A; ++k) {
            CVEC(w, k) += margin - low;
            part += CVEC(w, k) * CVEC(g->nu, t * A + k);
        }
        sum += CPICK(here, part, zero);
        if (t + 1 == T)
            continue;
        part = zero;
        for (ptrdiff_t i = 0; i < R; ++i) {
            CV top = CVEC(next, 0) + CVEC(pair, i * R);
            for (ptrdiff_t j = 1; j < R; ++j)
                top = CMAX(top, CVEC(next, j) + CVEC(pair, i * R + j));
            top += margin;
            CVEC(x, i) = top;
            for (ptrdiff_t j = 0; j < R; ++j) {
                const ptrdiff_t at = (t * R + i) * R + j;
                const CV s = top - (CVEC(next, j) + CVEC(pair, i * R + j));
                const CV e = CVEC(g->mu, t * R + i) * CVEC(g->mu, (t + 1) * R + j);
                CVEC(g->s, at) = CPICK(inside, s, zero + 1.0);
                CVEC(g->e, at) = e;
                part += e * s;
            }
        }
        sum += CPICK(inside, part, zero);
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(own, j) += CPICK(inside, CVEC(x, j), zero);
    }
    CV top = CVEC(a, 0);
    for (ptrdiff_t j = 1; j < R; ++j)
        top = CMAX(top, CVEC(a, j));
    top += margin;
    for (ptrdiff_t j = 0; j < R; ++j) {
        CVEC(g->s0, j) = top - CVEC(a, j);
        sum += CVEC(g->mu, j) * CVEC(g->s0, j);
    }
    CVEC(g->rho, 0) = top;
    CVEC(products, 0) = sum;
}

/* The Markov chain of the transitions of e: marginals of its positions (T, R) to `nodes`, and of
   its edges where 1 / s was. linear is the sum of scores under it, and least that of the costs of
   the adversary's best answers. */
static void NAME(chain_game_marginals)(const fastm4n_chain_group *g, double *nodes,
                                       double *linear, double *least)
{
    const ptrdiff_t T = g->T, R = g->R, A = g->A, row = R * VLEN, square = R * R * VLEN;
    const CV length = CVEC(g->length, 0), zero = {0};
    double *x = g->room;
    CV scores = zero, costs = zero, sum = zero;
    for (ptrdiff_t j = 0; j < R; ++j)
        sum += CVEC(g->mu, j);
    for (ptrdiff_t j = 0; j < R; ++j)
        CVEC(nodes, j) = CVEC(g->mu, j) / sum;
    for (ptrdiff_t t = 0; t < T; ++t) {
        const NAME(ivec) here = CLESS(zero + (double)t, length);
        const NAME(ivec) inside = CLESS(zero + (double)(t + 1), length);
        const double *own = nodes + t * row, *pair = g->pair + t * g->pair_step;
        CV part = zero, low;
        NAME(chain_game_costs)(R, A, g->cost ? g->cost + t * g->cost_step : NULL, 1, own, x);
        low = CVEC(x, 0);
        for (ptrdiff_t k = 1; k < A; ++k)
            low = -CMAX(-low, -CVEC(x, k));
        for (ptrdiff_t j = 0; j < R; ++j)
            part += CVEC(own, j) * CVEC(g->unary, t * R + j);
        scores += CPICK(here, part, zero);
        costs += CPICK(here, low, zero);
        if (t + 1 == T)
            break;
        const double *e = g->e + t * square;
        double *after = nodes + (t + 1) * row, *edges = g->inverse + t * square;
        part = zero;
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(after, j) = zero;
        for (ptrdiff_t i = 0; i < R; ++i) {
            sum = zero;
            for (ptrdiff_t j = 0; j < R; ++j)
                sum += CVEC(e, i * R + j);
            const CV factor = CVEC(own, i) / sum;
            for (ptrdiff_t j = 0; j < R; ++j) {
                const CV y = factor * CVEC(e, i * R + j);
                CVEC(edges, i * R + j) = y;
                CVEC(after, j) += y;
                part += y * CVEC(pair, i * R + j);
            }
        }
        scores += CPICK(inside, part, zero);
    }
    CVEC(linear, 0) = scores;
    CVEC(least, 0) = costs;
}

static const fastm4n_chain_games NAME(chain_games) = {
    VLEN,
    NAME(chain_game_start),
    NAME(chain_game_step),
    NAME(chain_game_marginals),
};

#undef CLESS
#undef CPICK
#undef CROOT
#undef CVEC
#undef CV
#undef CMAX
#undef CMOVES
#undef CSIZE
#undef CLEAST
#undef CROWS
#undef FULL
#undef LOAD
#undef STORE
#undef LANE
#undef SELECT

#endif
