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

/* A group of games. Arrays are of vectors: (T, R), or (T, R, R) for edges and matrices.

   unary, pair, cost: scores, and costs (R, A) of 1 at most, NULL for 0-1
   length, counts, rho, d_rho: one vector each, counts being numbers of products
   e, s, mu, nu, w, s0: the point; edges are T - 1, s0 is (R), and nu and w are (T, A)
   inverse ... back: factors, see chain_game_prepare; kappa is (T, A), totals (T)
   h ... d_w: moves
   room: for 4 T R + 3 T A + 4 R R + 2 R A + 2 R + 4 A vectors */
/* clang-format off */
#define CHAIN_ARRAYS(X)                                                                        \
    X(unary) X(pair) X(cost) X(length) X(counts) X(rho) X(d_rho) X(e) X(s) X(mu) X(nu) X(w)    \
    X(s0) X(inverse) X(theta) X(columns) X(kappa) X(totals) X(factor) X(back) X(h) X(gain)     \
    X(d_mu) X(d_a) X(d_b) X(d_nu) X(d_w) X(room)
/* clang-format on */

typedef struct {
    /* positions of the longest, labels, and answers of the adversary: R under the 0-1 cost */
    ptrdiff_t T, R, A;
    /* steps are numbers from one position to the next, zero where one matrix is of all */
    ptrdiff_t pair_step, cost_step;
#define X(name) void *name;
    CHAIN_ARRAYS(X)
#undef X
} fastm4n_chain_group;

/* Numbers of groups and of arguments are double or float; marginals and edges are double. */
typedef struct {
    int width; /* games in a group */
    void (*start)(const fastm4n_chain_group *g, double margin, void *products);
    void (*step)(const fastm4n_chain_group *g, const void *least, const void *active,
                 void *products);
    void (*marginals)(const fastm4n_chain_group *g, double *nodes, double *edges,
                      double *linear, double *least);
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

/* The games for vectors of `width` doubles, or of 4, or of twice as many floats: groups of more
   games outgrow the caches, which takes more time than wider vectors save. */
static const fastm4n_chain_games *fastm4n_select_chain_games(int width, int is_float)
{
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    if (width >= 4)
        return is_float ? &chain_games_v4_f32 : &chain_games_v4_f64;
#endif
#if defined(__GNUC__) || defined(__clang__)
    (void)width;
    return is_float ? &chain_games_v2_f32 : &chain_games_v2_f64;
#else
    (void)width;
    return is_float ? &chain_games_v1_f32 : &chain_games_v1_f64;
#endif
}

#endif         /* FASTM4N_CHAIN_GAMES_H */
#elif VLEN < 8 /* the games of one target */

#include "vector_template.h"

#define CLANES VLEN
#define CREAL double
#define CTAG _f64
#define CV NAME(vec)
#define CI NAME(ivec)
#define CEXP NAME(vexp)
#define CSMALL DBL_MIN
#if VLEN == 1
#define CROOT(a) sqrt(a)
#endif
#include "chain_games_template.h"

#define CREAL float
#define CTAG _f32
#define CEXP NAME(vexpf)
#define CSMALL FLT_MIN
#if VLEN == 1
#define CLANES 1
#define CV float
#define CI int
#define CROOT(a) sqrtf(a)
#else
#define CLANES (2 * VLEN)
#define CV NAME(fvec)
#define CI NAME(fint)
typedef float NAME(half) __attribute__((vector_size(VLEN * 4), aligned(4), may_alias));
#endif
#include "chain_games_template.h"

#undef LOAD
#undef STORE
#undef LANE
#undef SELECT

#endif
