/* The games of one target with numbers of one type: CREAL in vectors CV of CLANES, with masks CI.
 * CEXP is exp, CROOT the square root, CSMALL the smallest normal number, and CTAG the end of names.
 * See chain_games.h, which includes this.
 */

#define CNAME(f) JOIN(NAME(f), CTAG)
/* the share of the way to the nearest bound that a step goes */
#define FULL ((CREAL)0.95)
#define CVEC(p, i) (((CV *)(p))[i])
#define CMAX(a, b) CNAME(chain_game_larger)(a, b)
#define CLEAST(a, b) ((a) < (b) ? (a) : (b))
#if VLEN == 1
#define CLESS(a, b) ((a) < (b))
#define CPICK(mask, a, b) ((mask) ? (a) : (b))
#define CWIDE(p, i) ((p)[i])
#else
#define CLESS(a, b) ((CI)((a) < (b)))
#define CPICK(mask, a, b) CNAME(chain_game_pick)(mask, a, b)
#define CROOT(a) CNAME(chain_game_root)(a)

static ALWAYS_INLINE CV CNAME(chain_game_pick)(CI mask, CV a, CV b)
{
    return (CV)(((CI)a & mask) | ((CI)b & ~mask));
}

static ALWAYS_INLINE CV CNAME(chain_game_root)(CV a)
{
    for (int i = 0; i < CLANES; ++i)
        a[i] = sizeof(CREAL) == sizeof(float) ? sqrtf(a[i]) : sqrt(a[i]);
    return a;
}
#endif

static ALWAYS_INLINE CV CNAME(chain_game_larger)(CV a, CV b)
{
    return CPICK(CLESS(a, b), b, a);
}

/* A group whose numbers have their type. */
typedef struct {
    ptrdiff_t T, R, A, pair_step, cost_step;
#define X(name) CREAL *name;
    CHAIN_ARRAYS(X)
#undef X
} CNAME(chain_view);

static CNAME(chain_view) CNAME(chain_view_of)(const fastm4n_chain_group *g)
{
    CNAME(chain_view) view;
    view.T = g->T, view.R = g->R, view.A = g->A;
    view.pair_step = g->pair_step, view.cost_step = g->cost_step;
#define X(name) view.name = g->name;
    CHAIN_ARRAYS(X)
#undef X
    return view;
}

/* C nu of one position, or if `turned` C' mu; C is NULL for the 0-1 cost. */
static ALWAYS_INLINE void CNAME(chain_game_costs)(ptrdiff_t R, ptrdiff_t A, const CREAL *C,
                                                  int turned, const CREAL *from, CREAL *to)
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
static ALWAYS_INLINE void CNAME(chain_game_curve)(ptrdiff_t R, ptrdiff_t A, const CREAL *C,
                                                  const CREAL *kappa, CV total, const CREAL *x,
                                                  CREAL *q, CREAL *buffer)
{
    CV mean = {0};
    CREAL *curved = C ? buffer + A * CLANES : q;
    const CREAL *y = C ? buffer : x;
    if (C)
        CNAME(chain_game_costs)(R, A, C, 1, x, buffer);
    for (ptrdiff_t k = 0; k < A; ++k)
        mean += CVEC(kappa, k) * CVEC(y, k);
    mean /= total;
    for (ptrdiff_t k = 0; k < A; ++k)
        CVEC(curved, k) = CVEC(kappa, k) * (CVEC(y, k) - mean);
    if (C)
        CNAME(chain_game_costs)(R, A, C, 0, curved, q);
}

/* to (m, n), rows of 4 vectors, = sum_k X[i][k] Y[j][k] for from <= k < stop, rows R long. */
static ALWAYS_INLINE void CNAME(chain_game_sums)(const int m, const int n, ptrdiff_t R,
                                                 const CREAL *X, const CREAL *Y, ptrdiff_t from,
                                                 ptrdiff_t stop, CV *to)
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
static void CNAME(chain_game_rest)(ptrdiff_t m, ptrdiff_t n, ptrdiff_t R, const CREAL *X,
                                   const CREAL *Y, ptrdiff_t from, ptrdiff_t stop, CV *to)
{
#define CCASE(m, n)                                                                            \
    case 4 * m + n:                                                                            \
        CNAME(chain_game_sums)(m, n, R, X, Y, from, stop, to);                                 \
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

static ALWAYS_INLINE void CNAME(chain_game_tile)(ptrdiff_t m, ptrdiff_t n, ptrdiff_t R,
                                                 const CREAL *X, const CREAL *Y, ptrdiff_t from,
                                                 ptrdiff_t stop, CV *to)
{
    if (m == 4 && n == 4)
        CNAME(chain_game_sums)(4, 4, R, X, Y, from, stop, to);
    else if (m == 4 && n == 1)
        CNAME(chain_game_sums)(4, 1, R, X, Y, from, stop, to);
    else
        CNAME(chain_game_rest)(m, n, R, X, Y, from, stop, to);
}

/* how many of the four rows from i on there are: known where R is */
#define CROWS(R, i) ((R) % 4 == 0 ? 4 : CLEAST(4, (R) - (i)))

/* y = A x */
static ALWAYS_INLINE void CNAME(chain_game_times)(ptrdiff_t R, const CREAL *A, const CREAL *x,
                                                  CREAL *y)
{
    for (ptrdiff_t i = 0; i < R; i += 4) {
        CV sums[16];
        const ptrdiff_t m = CROWS(R, i);
        CNAME(chain_game_tile)(m, 1, R, A + i * R * CLANES, x, 0, R, sums);
        for (ptrdiff_t a = 0; a < m; ++a)
            CVEC(y, i + a) = sums[4 * a];
    }
}

/* The columns j ... j + n - 1 of m rows Y that solve Y L' = A, those before being there. They have
   zeros before `from`. L has the inverses of its diagonal. */
static ALWAYS_INLINE void CNAME(chain_game_columns)(ptrdiff_t R, const CREAL *L, ptrdiff_t m,
                                                    ptrdiff_t j, ptrdiff_t n, const CREAL *A,
                                                    ptrdiff_t from, CREAL *Y)
{
    CV sums[16];
    CNAME(chain_game_tile)(m, n, R, Y, L + j * R * CLANES, from, j, sums);
    for (ptrdiff_t a = 0; a < m; ++a)
        for (ptrdiff_t b = 0; b < n; ++b) {
            CV x = CVEC(A, a * R + j + b) - sums[4 * a + b];
            for (ptrdiff_t c = 0; c < b; ++c)
                x -= CVEC(Y, a * R + j + c) * CVEC(L, (j + b) * R + j + c);
            CVEC(Y, a * R + j + b) = x * CVEC(L, (j + b) * R + j + b);
        }
}

/* Lower triangle of A, (R, R), replaced by its factor L, with the inverse of the diagonal. */
static ALWAYS_INLINE void CNAME(chain_game_factor_of)(ptrdiff_t R, CREAL *A)
{
    for (ptrdiff_t j = 0; j < R; j += 4) {
        const ptrdiff_t n = CROWS(R, j);
        CREAL *own = A + j * R * CLANES;
        CV sums[16];
        CNAME(chain_game_tile)(n, n, R, own, own, 0, j, sums);
        for (ptrdiff_t a = 0; a < n; ++a)
            for (ptrdiff_t b = 0; b <= a; ++b) {
                CV x = CVEC(own, a * R + j + b) - sums[4 * a + b];
                for (ptrdiff_t c = 0; c < b; ++c)
                    x -= CVEC(own, a * R + j + c) * CVEC(own, b * R + j + c);
                if (b < a)
                    x *= CVEC(own, b * R + j + b);
                else
                    x = 1.0 / CROOT(CMAX(x, (CV){0} + CSMALL));
                CVEC(own, a * R + j + b) = x;
            }
        for (ptrdiff_t i = j + n; i < R; i += 4) {
            CREAL *rows = A + i * R * CLANES;
            CNAME(chain_game_columns)(R, A, CROWS(R, i), j, n, rows, 0, rows);
        }
    }
}

/* x = (L L')^-1 x */
static ALWAYS_INLINE void CNAME(chain_game_solve)(ptrdiff_t R, const CREAL *L, CREAL *x)
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
static ALWAYS_INLINE void CNAME(chain_game_prepare)(const CNAME(chain_view) * g,
                                                    const ptrdiff_t R, const ptrdiff_t answers,
                                                    CREAL *buffer)
{
    const ptrdiff_t T = g->T;
    const ptrdiff_t square = R * R * CLANES, row = R * CLANES;
    CREAL *Q = buffer, *A = Q + square, *Y = A + square, *M = Y + square;
    const CV length = CVEC(g->length, 0), zero = {0};
    for (ptrdiff_t j = 0; j < R; ++j)
        CVEC(g->columns, j) = CVEC(g->mu, j) / CVEC(g->s0, j);
    for (ptrdiff_t t = 0; t + 1 < T; ++t) {
        CREAL *D = g->columns + (t + 1) * row;
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
        CREAL *kappa = g->kappa + t * answers * CLANES, *L = g->factor + t * square;
        const CI inside = CLESS(zero + (CREAL)(t + 1), length);
        CV total = zero;
        for (ptrdiff_t k = 0; k < answers; ++k) {
            CVEC(kappa, k) = CVEC(g->nu, t * answers + k) / CVEC(g->w, t * answers + k);
            total += CVEC(kappa, k);
        }
        CVEC(g->totals, t) = total;
        const CV share = 1.0 / total;
        if (g->cost) {
            /* costs less their means under kappa, Z, as K = Z diag(kappa) Z' */
            const CREAL *cost = g->cost + t * g->cost_step;
            CREAL *Z = M + square, *scaled = Z + R * answers * CLANES;
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
                    CNAME(chain_game_tile)(m, n, answers, Z + i * answers * CLANES,
                                           scaled + j * answers * CLANES, 0, answers, sums);
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
            const CREAL *back = g->back + t * square;
            for (ptrdiff_t i = 0; i < R; ++i)
                for (ptrdiff_t j = 0; j <= i; ++j)
                    CVEC(Q, i * R + j) += CPICK(inside, CVEC(back, i * R + j), zero);
        }
        const CREAL *D = g->columns + t * row;
        for (ptrdiff_t i = 0; i < R; ++i)
            for (ptrdiff_t j = 0; j <= i; ++j)
                CVEC(L, i * R + j) = CVEC(Q, i * R + j);
        for (ptrdiff_t i = 0; i < R; ++i)
            CVEC(L, i * R + i) += 1.0 / CVEC(D, i);
        CNAME(chain_game_factor_of)(R, L);
        if (t == 0)
            break;
        /* A = theta / D, Y = A L^-T */
        const CREAL *theta = g->theta + (t - 1) * square;
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(Q, j) = 1.0 / CVEC(D, j);
        for (ptrdiff_t i = 0; i < R; ++i)
            for (ptrdiff_t j = 0; j < R; ++j)
                CVEC(A, i * R + j) = CVEC(theta, i * R + j) * CVEC(Q, j);
        for (ptrdiff_t j = 0; j < R; j += 4)
            for (ptrdiff_t i = 0; i < R; i += 4)
                CNAME(chain_game_columns)(R, L, CROWS(R, i), j, CROWS(R, j), A + i * row, 0,
                                          Y + i * row);
        /* B, its lower triangle: what stands beside the Laplacian's diagonal goes to Q meanwhile */
        CREAL *B = g->back + (t - 1) * square;
        for (ptrdiff_t i = 0; i < R; i += 4)
            for (ptrdiff_t j = 0; j <= i; j += 4) {
                CV sums[16];
                const ptrdiff_t m = CROWS(R, i), n = CROWS(R, j);
                CNAME(chain_game_tile)(m, n, R, A + i * row, theta + j * row, 0, R, sums);
                for (ptrdiff_t a = 0; a < m; ++a)
                    for (ptrdiff_t b = 0; b < n; ++b)
                        CVEC(Q, (i + a) * R + j + b) = sums[4 * a + b];
                CNAME(chain_game_tile)(m, n, R, Y + i * row, Y + j * row, 0, R, sums);
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
        CNAME(chain_game_factor_of)(R, B);
        for (ptrdiff_t i = 0; i < R * R; ++i)
            CVEC(A, i) = CVEC(M, i) = zero;
        for (ptrdiff_t i = 0; i < R; ++i)
            CVEC(A, i * R + i) = zero + 1.0;
        for (ptrdiff_t j = 0; j < R; j += 4)
            for (ptrdiff_t i = 0; i <= j; i += 4)
                CNAME(chain_game_columns)(R, B, CROWS(R, i), j, CROWS(R, j), A + i * row, i,
                                          M + i * row);
        for (ptrdiff_t i = 0; i < R; i += 4)
            for (ptrdiff_t j = 0; j <= i; j += 4) {
                CV sums[16];
                const ptrdiff_t m = CROWS(R, i), n = CROWS(R, j);
                CNAME(chain_game_tile)(m, n, R, M + i * row, M + j * row, i, R, sums);
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
static ALWAYS_INLINE void CNAME(chain_game_moves)(const CNAME(chain_view) * g,
                                                  const ptrdiff_t R, const ptrdiff_t A,
                                                  CREAL *r, CREAL *c, const CREAL *n,
                                                  CREAL *buffer)
{
    const ptrdiff_t T = g->T, square = R * R * CLANES, row = R * CLANES;
    const CV length = CVEC(g->length, 0), zero = {0};
    CREAL *x = buffer, *one = x + row + A * CLANES, *more = one + row, *gain = g->gain;
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        const CREAL *kappa = g->kappa + t * A * CLANES, *D = g->columns + t * row;
        CREAL *h = g->h + t * row, *own = gain + t * row;
        CV total = zero;
        for (ptrdiff_t k = 0; k < A; ++k)
            total += CVEC(n, t * A + k);
        const CV share = total / CVEC(g->totals, t);
        for (ptrdiff_t k = 0; k < A; ++k)
            CVEC(x, k) = CVEC(n, t * A + k) - CVEC(kappa, k) * share;
        if (g->cost)
            CNAME(chain_game_costs)(R, A, g->cost + t * g->cost_step, 0, x, own);
        else
            for (ptrdiff_t j = 0; j < R; ++j)
                CVEC(own, j) = -CVEC(x, j);
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(h, j) = CVEC(own, j) + CVEC(c, t * R + j) / CVEC(D, j);
        if (t + 1 < T) {
            const CREAL *back = g->back + t * square;
            const CI inside = CLESS(zero + (CREAL)(t + 1), length);
            CNAME(chain_game_times)(R, back, r + t * row, x);
            for (ptrdiff_t i = 0; i < R; ++i)
                CVEC(h, i) += CPICK(inside, CVEC(x, i), zero);
        }
        CNAME(chain_game_solve)(R, g->factor + t * square, h);
        if (t == 0)
            break;
        /* r = r + theta / D (F^-1 h - c), the b of the head of this page */
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(x, j) = (CVEC(h, j) - CVEC(c, t * R + j)) / CVEC(D, j);
        CNAME(chain_game_times)(R, g->theta + (t - 1) * square, x, one);
        for (ptrdiff_t i = 0; i < R; ++i)
            CVEC(r, (t - 1) * R + i) += CVEC(one, i);
    }
    /* the sum of mu_0 is one */
    CV sum = zero, ones = zero, lacks = zero + 1.0;
    for (ptrdiff_t j = 0; j < R; ++j)
        CVEC(one, j) = zero + 1.0;
    CNAME(chain_game_solve)(R, g->factor, one);
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
        const CREAL *kappa = g->kappa + t * A * CLANES;
        const CREAL *cost = g->cost ? g->cost + t * g->cost_step : NULL;
        CREAL *d_mu = g->d_mu + t * row, *d_b = g->d_b + t * row, *d_a = g->d_a + t * row;
        const CI inside = CLESS(zero + (CREAL)(t + 1), length);
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(d_b, j) = zero;
        if (t + 1 < T) {
            const CREAL *back = g->back + t * square;
            for (ptrdiff_t j = 0; j < R; ++j)
                CVEC(x, j) = CVEC(d_mu, j) - CVEC(r, t * R + j);
            CNAME(chain_game_times)(R, back, x, d_b);
            for (ptrdiff_t i = 0; i < R; ++i)
                CVEC(d_b, i) = CPICK(inside, CVEC(d_b, i), zero);
        }
        CNAME(chain_game_curve)(R, A, cost, kappa, CVEC(g->totals, t), d_mu, x, more);
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(d_a, j) = CVEC(gain, t * R + j) - CVEC(x, j) - CVEC(d_b, j);
        /* w and nu */
        CREAL *d_w = g->d_w + t * A * CLANES, *d_nu = g->d_nu + t * A * CLANES;
        if (g->cost)
            CNAME(chain_game_costs)(R, A, cost, 1, d_mu, d_w);
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
        const CREAL *theta = g->theta + t * square;
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(x, j) = zero;
        for (ptrdiff_t i = 0; i < R; ++i) {
            const CV own = CVEC(d_b, i);
            for (ptrdiff_t j = 0; j < R; ++j)
                CVEC(x, j) += CVEC(theta, i * R + j) * own;
        }
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(x, j) /= CVEC(g->columns, (t + 1) * R + j);
        CNAME(chain_game_solve)(R, g->factor + (t + 1) * square, x);
        for (ptrdiff_t j = 0; j < R; ++j)
            CVEC(d_mu, R + j) = CVEC(g->h, (t + 1) * R + j) + CVEC(x, j);
    }
}

/* Both parts of a step use the moves: one copy of them for each size. */
#define CMOVES(R, A, tag)                                                                      \
    static void CNAME(chain_moves_##tag)(const CNAME(chain_view) * g, CREAL * r, CREAL * c,    \
                                         const CREAL *n, CREAL *buffer)                        \
    {                                                                                          \
        CNAME(chain_game_moves)(g, R, A, r, c, n, buffer);                                     \
    }

/* One step, a predictor and a corrector.

   products holds the sums of e s, mu_0 s_0 and nu w, before and after; counts their number, and
   least the smallest mean of them to aim at.  Games with `active` zero stay as they are. */
static ALWAYS_INLINE void CNAME(chain_game_step_of)(
    const CNAME(chain_view) * g, const ptrdiff_t R, const ptrdiff_t A,
    void (*moves)(const CNAME(chain_view) *, CREAL *, CREAL *, const CREAL *, CREAL *),
    const CREAL *least, const CREAL *active, CREAL *products)
{
    const ptrdiff_t T = g->T, row = R * CLANES, wide = A * CLANES;
    const CV length = CVEC(g->length, 0), zero = {0}, gap = CVEC(products, 0);
    CREAL *r = g->room, *c = r + T * row, *first_a = c + T * row, *first_b = first_a + T * row;
    CREAL *n = first_b + T * row, *first_w = n + T * wide, *first_nu = first_w + T * wide;
    CREAL *buffer = first_nu + T * wide;
    CNAME(chain_game_prepare)(g, R, A, buffer);
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
        const CI here = CLESS(zero + (CREAL)t, length);
        const CI inside = CLESS(zero + (CREAL)(t + 1), length);
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
    memcpy(first_a, g->d_a, (size_t)(T * row) * sizeof(CREAL));
    memcpy(first_b, g->d_b, (size_t)(T * row) * sizeof(CREAL));
    memcpy(first_w, g->d_w, (size_t)(T * wide) * sizeof(CREAL));
    memcpy(first_nu, g->d_nu, (size_t)(T * wide) * sizeof(CREAL));
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
        const CI here = CLESS(zero + (CREAL)t, length);
        const CI inside = CLESS(zero + (CREAL)(t + 1), length);
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
        const CI here = CLESS(zero + (CREAL)t, length);
        const CI inside = CLESS(zero + (CREAL)(t + 1), length);
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
    static void CNAME(chain_step_##tag)(const CNAME(chain_view) * g, const CREAL *least,       \
                                        const CREAL *active, CREAL *products)                  \
    {                                                                                          \
        CNAME(chain_game_step_of)(g, R, A, CNAME(chain_moves_##tag), least, active, products); \
    }

CSIZE(4, 4, 4)
CSIZE(4, g->A, with_costs_4)
CSIZE(8, 8, 8)
CSIZE(8, g->A, with_costs_8)
CSIZE(g->R, g->A, any)

static void CNAME(chain_game_step)(const fastm4n_chain_group *group, const void *least,
                                   const void *active, void *products)
{
    const CNAME(chain_view) view = CNAME(chain_view_of)(group), *g = &view;
#define CCASE(k)                                                                               \
    case k:                                                                                    \
        (g->cost ? CNAME(chain_step_with_costs_##k) : CNAME(chain_step_##k))(g, least, active, \
                                                                             products);        \
        break;
    switch (g->R) {
        CCASE(4)
        CCASE(8)
    default:
        CNAME(chain_step_any)(g, least, active, products);
    }
#undef CCASE
}

/* mu and nu of each position by itself, half way to uniform ones. Under the 0-1 cost they are
   exact: nu are scores above a level, Michelot's, and mu is uniform on their labels. Under others
   they are the softmax of scores, and uniform. */
static void CNAME(chain_game_alone)(const CNAME(chain_view) * g)
{
    const ptrdiff_t T = g->T, R = g->R, A = g->A;
    const CV zero = {0}, one = zero + 1.0, half = zero + 0.5, uniform = half / (CREAL)R;
    for (ptrdiff_t t = 0; t < T; ++t) {
        const CREAL *v = g->unary + t * R * CLANES;
        CREAL *mu = g->mu + t * R * CLANES, *nu = g->nu + t * A * CLANES;
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
            CVEC(mu, j) = CEXP(x);
            if (!g->cost) {
                CVEC(nu, j) = uniform + half * CMAX(x - level, zero);
                CVEC(mu, j) = CPICK(CLESS(level, x), one, zero);
            }
            total += CVEC(mu, j);
        }
        for (ptrdiff_t k = 0; k < A && g->cost; ++k)
            CVEC(nu, k) = one / (CREAL)A;
        for (ptrdiff_t j = 0; j < R; ++j) {
            CVEC(mu, j) = half * CVEC(mu, j) / total + uniform;
        }
    }
}

/* The start: edges of independent positions, and messages whose slacks are at least `least`, as w
   are. */
static void CNAME(chain_game_start)(const fastm4n_chain_group *group, double least,
                                    void *products)
{
    const CNAME(chain_view) view = CNAME(chain_view_of)(group), *g = &view;
    const CREAL margin = (CREAL)least;
    const CREAL *unary = g->unary;
    const ptrdiff_t T = g->T, R = g->R, A = g->A, row = R * CLANES;
    const CV length = CVEC(g->length, 0), zero = {0};
    CREAL *a = g->d_a, *x = g->room;
    CV sum = zero;
    CNAME(chain_game_alone)(g);
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        const CI here = CLESS(zero + (CREAL)t, length);
        const CI inside = CLESS(zero + (CREAL)(t + 1), length);
        CREAL *own = a + t * row, *next = own + row, *w = g->w + t * A * CLANES;
        const CREAL *cost = g->cost ? g->cost + t * g->cost_step : NULL;
        const CREAL *pair = g->pair + t * g->pair_step;
        CNAME(chain_game_costs)(R, A, cost, 0, g->nu + t * A * CLANES, own);
        CNAME(chain_game_costs)(R, A, cost, 1, g->mu + t * row, w);
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

#define WVEC(p, i) (((NAME(vec) *)(p))[(i) * n + part])
#if VLEN > 1
#define CWIDE(p, i) CNAME(chain_game_wide)((p) + (i) * CLANES + part * VLEN)

/* VLEN numbers of a vector, as doubles */
static ALWAYS_INLINE NAME(vec) CNAME(chain_game_wide)(const CREAL *p)
{
#if CLANES == VLEN
    return LOAD(p);
#else
    return __builtin_convertvector(*(const NAME(half) *)p, NAME(vec));
#endif
}
#endif

/* The Markov chain of the transitions of e: marginals of its positions to `nodes`, (T, R), and of
   its edges to `edges`. linear is the sum of scores under it, and least that of the costs of the
   adversary's best answers. All in double precision: a vector of floats in two parts. */
static void CNAME(chain_game_marginals)(const fastm4n_chain_group *group, double *nodes,
                                        double *edges, double *linear, double *least)
{
    const CNAME(chain_view) view = CNAME(chain_view_of)(group), *g = &view;
    const ptrdiff_t T = g->T, R = g->R, A = g->A, n = CLANES / VLEN;
    const NAME(vec) zero = {0};
    for (ptrdiff_t part = 0; part < n; ++part) {
        const NAME(vec) length = CWIDE(g->length, 0);
        NAME(vec) scores = zero, costs = zero, sum = zero;
        for (ptrdiff_t j = 0; j < R; ++j)
            sum += CWIDE(g->mu, j);
        for (ptrdiff_t j = 0; j < R; ++j)
            WVEC(nodes, j) = CWIDE(g->mu, j) / sum;
        for (ptrdiff_t t = 0; t < T; ++t) {
            const NAME(ivec) here = (NAME(ivec))(zero + (double)t < length);
            const NAME(ivec) inside = (NAME(ivec))(zero + (double)(t + 1) < length);
            const CREAL *pair = g->pair + t * g->pair_step;
            const CREAL *cost = g->cost ? g->cost + t * g->cost_step : NULL;
            NAME(vec) total = zero, low = zero;
            for (ptrdiff_t j = 0; j < R; ++j) {
                const NAME(vec) own = WVEC(nodes, t * R + j);
                total += own * CWIDE(g->unary, t * R + j);
                low += own;
            }
            scores += SELECT(here, total, zero);
            total = low;
            for (ptrdiff_t k = 0; k < A; ++k) {
                NAME(vec) x = total;
                if (cost) {
                    x = zero;
                    for (ptrdiff_t j = 0; j < R; ++j)
                        x += WVEC(nodes, t * R + j) * CWIDE(cost, j * A + k);
                } else
                    x -= WVEC(nodes, t * R + k);
                low = k ? SELECT(x < low, x, low) : x;
            }
            costs += SELECT(here, low, zero);
            if (t + 1 == T)
                break;
            total = zero;
            for (ptrdiff_t j = 0; j < R; ++j)
                WVEC(nodes, (t + 1) * R + j) = zero;
            for (ptrdiff_t i = 0; i < R; ++i) {
                const ptrdiff_t row = (t * R + i) * R;
                sum = zero;
                for (ptrdiff_t j = 0; j < R; ++j)
                    sum += CWIDE(g->e, row + j);
                const NAME(vec) factor = WVEC(nodes, t * R + i) / sum;
                for (ptrdiff_t j = 0; j < R; ++j) {
                    const NAME(vec) y = factor * CWIDE(g->e, row + j);
                    WVEC(edges, row + j) = y;
                    WVEC(nodes, (t + 1) * R + j) += y;
                    total += y * CWIDE(pair, i * R + j);
                }
            }
            scores += SELECT(inside, total, zero);
        }
        WVEC(linear, 0) = scores;
        WVEC(least, 0) = costs;
    }
}

static const fastm4n_chain_games CNAME(chain_games) = {
    CLANES,
    CNAME(chain_game_start),
    CNAME(chain_game_step),
    CNAME(chain_game_marginals),
};

#undef CNAME
#undef FULL
#undef CVEC
#undef CMAX
#undef CLEAST
#undef CLESS
#undef CPICK
#undef CWIDE
#undef WVEC
#undef CROWS
#undef CMOVES
#undef CSIZE
/* what chose the numbers and vectors */
#undef CLANES
#undef CREAL
#undef CTAG
#undef CV
#undef CI
#undef CEXP
#undef CSMALL
#undef CROOT
