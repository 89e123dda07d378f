/* Steps of an interior-point method for max-min games between permutations, VLEN games at a time,
 * included by loops_dispatch.h after loops_template.h, once per target.
 *
 *   max_mu min_nu  <v, mu> + sum_i mu_i' C nu_i,  mu and nu doubly stochastic (M, M)
 *
 *   s = u_i + w_j - C nu - v >= 0,  z = l_i + k_j + C' mu >= 0,  mu s = nu z = tau
 *
 * All numbers are of VLEN games side by side: a number of one game is a vector.  A group of them
 * holds s, z, mu and nu, M^2 vectors each, then w and k, M each; its moves are laid out alike.
 * C counts up to a number for each row and for each column, whose sums all points share. By `kind`
 * it is minus the identity, as the 0-1 cost is, and the argument C is NULL; or a u' for two vectors,
 * as squared differences of positions are, and the argument is a, then u; or a matrix.
 *
 * Newton's equations, mu ds + s dmu = a and nu dz + z dnu = b with a row's D = du_i + dw and
 * E = dl_i + dk, are in each row
 *
 *   g = b / z - N E,  dmu = X (a / mu + dv - D + C g),  dnu = g - N C' dmu,
 *
 * N = diag(nu / z) and X = (diag(s / mu) + C N C')^-1: (dmu, dnu) = r - T (D, E) with
 * T = [X, -G; G', Y], G = -X C N, Y = N + N C' G.  Rows of dmu and dnu sum to zero, which gives
 * (du_i, dl_i); so do columns, 2 M - 2 equations in (dw, dk), both zero in the last column.  Their
 * matrix has a positive definite symmetric part: no pivots are needed.
 *
 * Under C = a u', with P = diag(mu / s), p = P a, q = N u and the numbers k = u' q, r = a' p and
 * h = 1 / (1 + k r),
 *
 *   X = P - h k p p',  G = -h p q',  Y = N - h r q q'.
 *
 * What factors hold, in vectors, n = 2 M - 2: the n^2 of that matrix, factored; of each row 4 of
 * the inverse of its 2 x 2 matrix and M of the sums of each of X, G', Y and G along rows, then the
 * M^2 of X and M of N, or M of P, M of N, h k, h and h r; where C is NULL, X, G and Y are diagonal,
 * and the first three are all.
 */

#if VLEN == 1
typedef double NAME(gvec);
#define GVEC(p, i) ((p)[i])
#define GLESS(a, b) ((a) < (b))
#define GPICK(mask, a, b) ((mask) ? (a) : (b))
#else
typedef NAME(vec) NAME(gvec);
#define GVEC(p, i) (((NAME(vec) *)(p))[i])
#define GLESS(a, b) ((NAME(ivec))((a) < (b)))
#define GPICK(mask, a, b) NAME(select)(mask, a, b)
#endif
#define GV NAME(gvec)

static ALWAYS_INLINE GV NAME(larger)(GV a, GV b) { return GPICK(GLESS(a, b), b, a); }

/* Vectors that factors hold of one row. */
static ALWAYS_INLINE ptrdiff_t NAME(game_row_held)(ptrdiff_t M, int kind)
{
    return kind == GAME_DENSE      ? 4 + 5 * M + M * M
           : kind == GAME_RANK_ONE ? 7 + 6 * M
                                   : 4 + 3 * M;
}

static ptrdiff_t NAME(game_held)(ptrdiff_t M, int kind)
{
    const ptrdiff_t n = 2 * M - 2;
    return n * n + M * NAME(game_row_held)(M, kind);
}

/* Sums of X, G, G' and Y of one row along rows, C = a u'; P, N and numbers go to `held`, p and q to
 * `scaled`. */
static ALWAYS_INLINE void NAME(game_rank_one)(ptrdiff_t M, const double *C, const double *s,
                                              const double *z, const double *mu,
                                              const double *nu, double *held, double *scaled,
                                              double *xs, double *gs, double *ys, double *hs)
{
    GV k = {0}, r = k, sum_p = k, sum_q = k;
    double *P = held, *N = P + M * VLEN, *of = N + M * VLEN, *p = scaled, *q = p + M * VLEN;
    for (ptrdiff_t j = 0; j < M; ++j) {
        GVEC(P, j) = GVEC(mu, j) / GVEC(s, j);
        GVEC(N, j) = GVEC(nu, j) / GVEC(z, j);
        GVEC(p, j) = GVEC(P, j) * C[j];
        GVEC(q, j) = GVEC(N, j) * C[M + j];
        r += GVEC(p, j) * C[j];
        k += GVEC(q, j) * C[M + j];
        sum_p += GVEC(p, j);
        sum_q += GVEC(q, j);
    }
    const GV h = 1.0 / (1.0 + k * r);
    GVEC(of, 0) = h * k;
    GVEC(of, 1) = h;
    GVEC(of, 2) = h * r;
    for (ptrdiff_t j = 0; j < M; ++j) {
        GVEC(xs, j) = GVEC(P, j) - h * k * sum_p * GVEC(p, j);
        GVEC(hs, j) = -h * sum_q * GVEC(p, j);
        GVEC(gs, j) = -h * sum_p * GVEC(q, j);
        GVEC(ys, j) = GVEC(N, j) - h * r * sum_q * GVEC(q, j);
    }
}

/* X, G and Y of one row under any costs; X goes to `held`, which N stands behind. */
static void NAME(game_invert)(ptrdiff_t M, const double *C, const double *s, const double *z,
                              const double *mu, const double *nu, double *X, double *G,
                              double *Y)
{
    GV zero = {0};
    double *N = X + M * M * VLEN;
    for (ptrdiff_t k = 0; k < M; ++k)
        GVEC(N, k) = GVEC(nu, k) / GVEC(z, k);
    for (ptrdiff_t j = 0; j < M; ++j)
        for (ptrdiff_t l = 0; l <= j; ++l) {
            GV x = zero;
            for (ptrdiff_t k = 0; k < M; ++k)
                x += GVEC(N, k) * (C[j * M + k] * C[l * M + k]);
            GVEC(X, j * M + l) = GVEC(X, l * M + j) = x;
        }
    for (ptrdiff_t j = 0; j < M; ++j)
        GVEC(X, j * M + j) += GVEC(s, j) / GVEC(mu, j);
    /* Gauss and Jordan, without pivots as the matrix is positive definite */
    for (ptrdiff_t k = 0; k < M; ++k) {
        const GV x = 1.0 / GVEC(X, k * M + k);
        GVEC(X, k * M + k) = zero + 1.0;
        for (ptrdiff_t j = 0; j < M; ++j)
            GVEC(X, k * M + j) *= x;
        for (ptrdiff_t j = 0; j < M; ++j) {
            if (j == k)
                continue;
            const GV y = GVEC(X, j * M + k);
            GVEC(X, j * M + k) = zero;
            for (ptrdiff_t l = 0; l < M; ++l)
                GVEC(X, j * M + l) -= y * GVEC(X, k * M + l);
        }
    }
    for (ptrdiff_t j = 0; j < M; ++j)
        for (ptrdiff_t k = 0; k < M; ++k) {
            GV x = zero;
            for (ptrdiff_t l = 0; l < M; ++l)
                x -= GVEC(X, j * M + l) * C[l * M + k];
            GVEC(G, j * M + k) = x * GVEC(N, k);
        }
    for (ptrdiff_t k = 0; k < M; ++k)
        for (ptrdiff_t j = 0; j < M; ++j) {
            GV x = zero;
            for (ptrdiff_t l = 0; l < M; ++l)
                x += GVEC(G, l * M + j) * C[l * M + k];
            GVEC(Y, k * M + j) = x * GVEC(N, k);
        }
    for (ptrdiff_t k = 0; k < M; ++k)
        GVEC(Y, k * M + k) += GVEC(N, k);
}

/* What `game_move` goes by at this state; scratch: 2 M^2 vectors, none where C is NULL. */
static void NAME(game_factor)(ptrdiff_t M, int kind, const double *C, const double *state,
                              double *held, double *scratch)
{
    const ptrdiff_t n = 2 * M - 2, half = M - 1, size = M * M * VLEN;
    const ptrdiff_t row = NAME(game_row_held)(M, kind) * VLEN;
    GV zero = {0};
    double *S = held;
    for (ptrdiff_t e = 0; e < n * n; ++e)
        GVEC(S, e) = zero;
    for (ptrdiff_t i = 0; i < M; ++i) {
        const double *s = state + i * M * VLEN, *z = s + size, *mu = z + size, *nu = mu + size;
        double *inverse = held + n * n * VLEN + i * row, *xs = inverse + 4 * VLEN;
        double *gs = xs + M * VLEN, *ys = gs + M * VLEN;
        double *hs = C ? ys + M * VLEN : gs, *X = C ? hs + M * VLEN : xs;
        GV sx = zero, sy = zero, sg = zero;
        if (kind == GAME_RANK_ONE) {
            NAME(game_rank_one)(M, C, s, z, mu, nu, X, scratch, xs, gs, ys, hs);
            for (ptrdiff_t j = 0; j < half; ++j) {
                GVEC(S, j * n + j) += GVEC(X, j);
                GVEC(S, (half + j) * n + half + j) += GVEC(X, M + j);
            }
        } else if (C) {
            double *G = scratch, *Y = scratch + size;
            NAME(game_invert)(M, C, s, z, mu, nu, X, G, Y);
            for (ptrdiff_t j = 0; j < M; ++j) {
                GV x = zero, h = zero, g = zero, y = zero;
                for (ptrdiff_t k = 0; k < M; ++k) {
                    x += GVEC(X, j * M + k);
                    h += GVEC(G, j * M + k);
                    g += GVEC(G, k * M + j);
                    y += GVEC(Y, j * M + k);
                }
                GVEC(xs, j) = x;
                GVEC(hs, j) = h;
                GVEC(gs, j) = g;
                GVEC(ys, j) = y;
            }
            for (ptrdiff_t j = 0; j < half; ++j)
                for (ptrdiff_t k = 0; k < half; ++k) {
                    GVEC(S, j * n + k) += GVEC(X, j * M + k);
                    GVEC(S, j * n + half + k) -= GVEC(G, j * M + k);
                    GVEC(S, (half + j) * n + k) += GVEC(G, k * M + j);
                    GVEC(S, (half + j) * n + half + k) += GVEC(Y, j * M + k);
                }
        } else {
            for (ptrdiff_t j = 0; j < M; ++j) {
                const GV inv = 1.0 / (GVEC(s, j) * GVEC(z, j) + GVEC(mu, j) * GVEC(nu, j));
                GVEC(xs, j) = GVEC(z, j) * GVEC(mu, j) * inv;
                GVEC(gs, j) = GVEC(mu, j) * GVEC(nu, j) * inv;
                GVEC(ys, j) = GVEC(s, j) * GVEC(nu, j) * inv;
            }
            for (ptrdiff_t j = 0; j < half; ++j) {
                GVEC(S, j * n + j) += GVEC(xs, j);
                GVEC(S, j * n + half + j) -= GVEC(gs, j);
                GVEC(S, (half + j) * n + j) += GVEC(gs, j);
                GVEC(S, (half + j) * n + half + j) += GVEC(ys, j);
            }
        }
        for (ptrdiff_t j = 0; j < M; ++j) {
            sx += GVEC(xs, j);
            sg += GVEC(gs, j);
            sy += GVEC(ys, j);
        }
        const GV det = 1.0 / (sx * sy + sg * sg);
        GVEC(inverse, 0) = sy * det;
        GVEC(inverse, 1) = sg * det;
        GVEC(inverse, 2) = -sg * det;
        GVEC(inverse, 3) = sx * det;
        /* S -= T e inverse e' T */
        for (ptrdiff_t r = 0; r < n; ++r) {
            const ptrdiff_t j = r < half ? r : r - half;
            const GV first = r < half ? GVEC(xs, j) : GVEC(gs, j);
            const GV second = r < half ? -GVEC(hs, j) : GVEC(ys, j);
            const GV one = first * GVEC(inverse, 0) + second * GVEC(inverse, 2);
            const GV two = first * GVEC(inverse, 1) + second * GVEC(inverse, 3);
            for (ptrdiff_t k = 0; k < half; ++k)
                GVEC(S, r * n + k) -= one * GVEC(xs, k) + two * GVEC(hs, k);
            for (ptrdiff_t k = 0; k < half; ++k)
                GVEC(S, r * n + half + k) -= two * GVEC(ys, k) - one * GVEC(gs, k);
            if (kind != GAME_RANK_ONE)
                continue;
            const double *p = scratch, *q = p + M * VLEN, *of = X + 2 * M * VLEN;
            const GV left = r < half ? GVEC(p, j) : GVEC(q, j);
            const GV of_p = left * GVEC(of, r < half ? 0 : 1);
            const GV of_q = left * (r < half ? -GVEC(of, 1) : GVEC(of, 2));
            for (ptrdiff_t k = 0; k < half; ++k)
                GVEC(S, r * n + k) -= of_p * GVEC(p, k);
            for (ptrdiff_t k = 0; k < half; ++k)
                GVEC(S, r * n + half + k) -= of_q * GVEC(q, k);
        }
    }
    for (ptrdiff_t k = 0; k < n; ++k) {
        const GV x = 1.0 / GVEC(S, k * n + k);
        GVEC(S, k * n + k) = x;
        for (ptrdiff_t r = k + 1; r < n; ++r) {
            const GV y = GVEC(S, r * n + k) * x;
            GVEC(S, r * n + k) = y;
            for (ptrdiff_t c = k + 1; c < n; ++c)
                GVEC(S, r * n + c) -= y * GVEC(S, k * n + c);
        }
    }
}

/* q = X f of one row. */
static ALWAYS_INLINE void NAME(game_dense)(ptrdiff_t M, const double *X, const double *f,
                                           double *q)
{
    for (ptrdiff_t j = 0; j < M; ++j) {
        GV x = {0};
        for (ptrdiff_t k = 0; k < M; ++k)
            x += GVEC(X, j * M + k) * GVEC(f, k);
        GVEC(q, j) = x;
    }
}

/* dmu and dnu of one row: A is a / mu + dv, B is b / z, 0 if NULL, D and E potentials' moves.
 * Where C is NULL, ratio is X s / mu, read where B is. */
static ALWAYS_INLINE void NAME(game_row)(ptrdiff_t M, int kind, const double *C,
                                         const double *X, const double *A, const double *B,
                                         const double *ratio, const double *D, const double *E,
                                         double *dmu, double *dnu, double *f)
{
    GV zero = {0};
    if (kind == GAME_RANK_ONE) {
        const double *P = X, *N = P + M * VLEN, *of = N + M * VLEN;
        GV to_p = zero, to_q = zero;
        for (ptrdiff_t j = 0; j < M; ++j) {
            GVEC(dmu, j) = GVEC(P, j) * (GVEC(A, j) - GVEC(D, j));
            GVEC(dnu, j) = (B ? GVEC(B, j) : zero) - GVEC(N, j) * GVEC(E, j);
            to_p += GVEC(dmu, j) * C[j];
            to_q += GVEC(dnu, j) * C[M + j];
        }
        const GV at_p = GVEC(of, 1) * to_q - GVEC(of, 0) * to_p;
        const GV at_q = GVEC(of, 1) * to_p + GVEC(of, 2) * to_q;
        for (ptrdiff_t j = 0; j < M; ++j) {
            GVEC(dmu, j) += GVEC(P, j) * C[j] * at_p;
            GVEC(dnu, j) -= GVEC(N, j) * C[M + j] * at_q;
        }
        return;
    }
    if (!C) {
        const double *G = X + M * VLEN, *Y = G + M * VLEN;
        for (ptrdiff_t j = 0; j < M; ++j) {
            const GV a = GVEC(A, j) - GVEC(D, j);
            GVEC(dmu, j) = GVEC(X, j) * a + GVEC(G, j) * GVEC(E, j);
            GVEC(dnu, j) = GVEC(G, j) * a - GVEC(Y, j) * GVEC(E, j);
            if (B) {
                GVEC(dmu, j) -= GVEC(X, j) * GVEC(B, j);
                GVEC(dnu, j) += GVEC(ratio, j) * GVEC(B, j);
            }
        }
        return;
    }
    const double *N = X + M * M * VLEN;
    for (ptrdiff_t k = 0; k < M; ++k) {
        GVEC(dnu, k) = (B ? GVEC(B, k) : zero) - GVEC(N, k) * GVEC(E, k);
        GVEC(f, k) = GVEC(A, k) - GVEC(D, k);
    }
    for (ptrdiff_t j = 0; j < M; ++j)
        for (ptrdiff_t k = 0; k < M; ++k)
            GVEC(f, j) += C[j * M + k] * GVEC(dnu, k);
    NAME(game_dense)(M, X, f, dmu);
    for (ptrdiff_t k = 0; k < M; ++k) {
        GV x = zero;
        for (ptrdiff_t j = 0; j < M; ++j)
            x += C[j * M + k] * GVEC(dmu, j);
        GVEC(dnu, k) -= GVEC(N, k) * x;
    }
}

/* Newton's step, where scores move by v, 0 if NULL.
 *
 * a = b = 0, or if with_target a = target - mu s, b = target - nu z, less the products dmu ds and
 * dnu dz of `moves` if `corrects`.  dmu goes to `change`, and all moves to `moves` if `keeps`.
 * scratch: 4 M^2 + 7 M vectors.
 */
static void NAME(game_move)(ptrdiff_t M, int kind, const double *C, const double *state,
                            const double *held, const double *v, int with_target, double target,
                            int corrects, double *moves, int keeps, double *change,
                            double *scratch)
{
    const ptrdiff_t n = 2 * M - 2, half = M - 1, size = M * M * VLEN;
    const ptrdiff_t row = NAME(game_row_held)(M, kind) * VLEN;
    GV zero = {0};
    double *A = scratch, *B = A + size, *ratio = B + size, *dnu = ratio + size;
    double *t = dnu + size, *sums = t + 2 * M * VLEN, *D = sums + 2 * M * VLEN,
           *E = D + M * VLEN;
    double *f = E + M * VLEN;
    const double *s = state, *z = s + size, *mu = z + size, *nu = mu + size;
    for (ptrdiff_t e = 0; e < M * M; ++e) {
        GVEC(A, e) = v ? GVEC(v, e) : zero;
        if (!with_target)
            continue;
        GV a = target - GVEC(mu, e) * GVEC(s, e), b = target - GVEC(nu, e) * GVEC(z, e);
        if (corrects) {
            a -= GVEC(moves, e) * GVEC(moves, 2 * M * M + e);
            b -= GVEC(moves, M * M + e) * GVEC(moves, 3 * M * M + e);
        }
        GVEC(A, e) += a / GVEC(mu, e);
        GVEC(B, e) = b / GVEC(z, e);
    }
    for (ptrdiff_t j = 0; j < 2 * M; ++j)
        GVEC(t, j) = zero - (with_target ? 1.0 : 0.0);
    for (ptrdiff_t j = 0; j < M; ++j)
        GVEC(D, j) = GVEC(E, j) = zero;
    for (ptrdiff_t i = 0; i < M; ++i) {
        const double *inverse = held + n * n * VLEN + i * row, *xs = inverse + 4 * VLEN;
        const double *gs = xs + M * VLEN, *ys = gs + M * VLEN;
        const double *hs = C ? ys + M * VLEN : gs, *X = C ? hs + M * VLEN : xs;
        const ptrdiff_t at = i * M * VLEN;
        if (!C && with_target)
            for (ptrdiff_t j = 0; j < M; ++j)
                GVEC(ratio + at, j) = GVEC(X, j) * GVEC(s + at, j) / GVEC(mu + at, j);
        NAME(game_row)(M, kind, C, X, A + at, with_target ? B + at : NULL, ratio + at, D, E,
                       change + at, dnu + at, f);
        /* what rounding has left of the sums is made up for */
        GV x = zero - (with_target ? 1.0 : 0.0), y = x;
        for (ptrdiff_t j = 0; with_target && j < M; ++j) {
            x += GVEC(mu + at, j);
            y += GVEC(nu + at, j);
            GVEC(t, j) += GVEC(mu + at, j);
            GVEC(t, M + j) += GVEC(nu + at, j);
        }
        for (ptrdiff_t j = 0; j < M; ++j) {
            x += GVEC(change + at, j);
            y += GVEC(dnu + at, j);
        }
        GVEC(sums, 2 * i) = x;
        GVEC(sums, 2 * i + 1) = y;
        const GV one = GVEC(inverse, 0) * x + GVEC(inverse, 1) * y;
        const GV two = GVEC(inverse, 2) * x + GVEC(inverse, 3) * y;
        for (ptrdiff_t j = 0; j < half; ++j) {
            GVEC(t, j) += GVEC(change + at, j) - GVEC(xs, j) * one + GVEC(hs, j) * two;
            GVEC(t, M + j) += GVEC(dnu + at, j) - GVEC(gs, j) * one - GVEC(ys, j) * two;
        }
    }
    GVEC(t, half) = GVEC(t, M + half) = zero;
    for (ptrdiff_t r = 0; r < n; ++r) {
        const ptrdiff_t at = r < half ? r : r + 1;
        GV x = GVEC(t, at);
        for (ptrdiff_t c = 0; c < r; ++c)
            x -= GVEC(held, r * n + c) * GVEC(t, c < half ? c : c + 1);
        GVEC(t, at) = x;
    }
    for (ptrdiff_t r = n - 1; r >= 0; --r) {
        const ptrdiff_t at = r < half ? r : r + 1;
        GV x = GVEC(t, at);
        for (ptrdiff_t c = r + 1; c < n; ++c)
            x -= GVEC(held, r * n + c) * GVEC(t, c < half ? c : c + 1);
        GVEC(t, at) = x * GVEC(held, r * n + r);
    }
    for (ptrdiff_t i = 0; i < M; ++i) {
        const double *inverse = held + n * n * VLEN + i * row, *xs = inverse + 4 * VLEN;
        const double *gs = xs + M * VLEN, *ys = gs + M * VLEN;
        const double *hs = C ? ys + M * VLEN : gs, *X = C ? hs + M * VLEN : xs;
        const ptrdiff_t at = i * M * VLEN;
        GV x = GVEC(sums, 2 * i), y = GVEC(sums, 2 * i + 1);
        for (ptrdiff_t j = 0; j < M; ++j) {
            x -= GVEC(xs, j) * GVEC(t, j) - GVEC(gs, j) * GVEC(t, M + j);
            y -= GVEC(hs, j) * GVEC(t, j) + GVEC(ys, j) * GVEC(t, M + j);
        }
        const GV du = GVEC(inverse, 0) * x + GVEC(inverse, 1) * y;
        const GV dl = GVEC(inverse, 2) * x + GVEC(inverse, 3) * y;
        for (ptrdiff_t j = 0; j < M; ++j) {
            GVEC(D, j) = du + GVEC(t, j);
            GVEC(E, j) = dl + GVEC(t, M + j);
        }
        NAME(game_row)(M, kind, C, X, A + at, with_target ? B + at : NULL, ratio + at, D, E,
                       change + at, dnu + at, f);
        if (!keeps)
            continue;
        /* ds = D - C dnu - dv and dz = E + C' dmu */
        double *ds = moves + at, *dz = ds + size;
        GV of_mu = zero, of_nu = zero;
        for (ptrdiff_t j = 0; kind == GAME_RANK_ONE && j < M; ++j) {
            of_mu += C[j] * GVEC(change + at, j);
            of_nu += C[M + j] * GVEC(dnu + at, j);
        }
        for (ptrdiff_t j = 0; j < M; ++j) {
            x = GVEC(D, j) - (v ? GVEC(v + at, j) : zero);
            y = GVEC(E, j);
            if (!C) {
                x += GVEC(dnu + at, j);
                y -= GVEC(change + at, j);
            } else if (kind == GAME_RANK_ONE) {
                x -= C[j] * of_nu;
                y += C[M + j] * of_mu;
            } else {
                for (ptrdiff_t k = 0; k < M; ++k) {
                    x -= C[j * M + k] * GVEC(dnu + at, k);
                    y += C[k * M + j] * GVEC(change + at, k);
                }
            }
            GVEC(ds, j) = x;
            GVEC(dz, j) = y;
        }
    }
    if (!keeps)
        return;
    for (ptrdiff_t e = 0; e < M * M; ++e) {
        GVEC(moves, 2 * M * M + e) = GVEC(change, e);
        GVEC(moves, 3 * M * M + e) = GVEC(dnu, e);
    }
    for (ptrdiff_t j = 0; j < 2 * M; ++j)
        GVEC(moves, 4 * M * M + j) = GVEC(t, j);
}

/* The largest -move / number of s, z, mu and nu of each game: the inverse of how far it may go. */
static void NAME(game_boundary)(ptrdiff_t M, const double *state, const double *moves,
                                double *most)
{
    GV found = {0};
    for (ptrdiff_t e = 0; e < 4 * M * M; ++e)
        found = NAME(larger)(found, -GVEC(moves, e) / GVEC(state, e));
    GVEC(most, 0) = found;
}

/* The sum of mu s + nu z of each game after a step along the moves. */
static void NAME(game_products)(ptrdiff_t M, const double *state, const double *moves,
                                double step, double *products)
{
    const ptrdiff_t size = M * M;
    GV total = {0};
    for (ptrdiff_t e = 0; e < 2 * size; ++e)
        total += (GVEC(state, e) + step * GVEC(moves, e)) *
                 (GVEC(state, 2 * size + e) + step * GVEC(moves, 2 * size + e));
    GVEC(products, 0) = total;
}

/* A step along the moves of each game's own length, of scores by `step` v: where that is longer,
 * the potentials of rows are lifted so that slacks keep a share `least` of what they were. */
static void NAME(game_advance)(ptrdiff_t M, double *state, const double *moves, const double *v,
                               const double *steps, double step, double least)
{
    const ptrdiff_t size = M * M;
    const GV own = GVEC(steps, 0), rest = own - step;
    for (ptrdiff_t i = 0; i < M; ++i) {
        GV lift = {0};
        for (ptrdiff_t e = i * M; e < (i + 1) * M; ++e) {
            const GV s = GVEC(state, e) + own * GVEC(moves, e) + rest * GVEC(v, e);
            lift = NAME(larger)(lift, least * GVEC(state, e) - s);
            GVEC(state, e) = s;
        }
        for (ptrdiff_t e = i * M; e < (i + 1) * M; ++e)
            GVEC(state, e) += lift;
    }
    for (ptrdiff_t e = size; e < 4 * size + 2 * M; ++e)
        GVEC(state, e) += own * GVEC(moves, e);
}

/* Bounds of each game by its potentials, under the scores v: an upper bound of its value by nu and
 * w, and a lower one of min_nu' <mu, C nu'> by mu and k; C, never NULL, are the costs. */
static void NAME(game_bounds)(ptrdiff_t M, const double *C, const double *state,
                              const double *v, double *upper, double *lower)
{
    const ptrdiff_t size = M * M * VLEN;
    GV zero = {0}, up = zero, low = zero;
    const double *mu = state + 2 * size, *nu = mu + size, *w = nu + size, *k = w + M * VLEN;
    for (ptrdiff_t i = 0; i < M; ++i) {
        GV u = zero - INFINITY, l = zero - INFINITY;
        for (ptrdiff_t j = 0; j < M; ++j) {
            GV x = GVEC(v, i * M + j) - GVEC(w, j), y = -GVEC(k, j);
            for (ptrdiff_t c = 0; c < M; ++c) {
                x += C[j * M + c] * GVEC(nu, i * M + c);
                y -= C[c * M + j] * GVEC(mu, i * M + c);
            }
            u = NAME(larger)(u, x);
            l = NAME(larger)(l, y);
        }
        up += u + GVEC(w, i);
        low -= l + GVEC(k, i);
    }
    GVEC(upper, 0) = up;
    GVEC(lower, 0) = low;
}

/* v = x' W, the rows of W being E numbers long, of n_features features and n_groups groups. */
static void NAME(game_scores)(ptrdiff_t n_groups, ptrdiff_t n_features, ptrdiff_t E,
                              const double *x, const double *W, double *v)
{
    GV zero = {0};
    for (ptrdiff_t g = 0; g < n_groups; ++g, x += n_features * VLEN, v += E * VLEN) {
        ptrdiff_t e = 0;
        for (; e + 8 <= E; e += 8) {
            GV sums[8] = {zero, zero, zero, zero, zero, zero, zero, zero};
            for (ptrdiff_t f = 0; f < n_features; ++f) {
                const GV a = GVEC(x, f);
                for (int i = 0; i < 8; ++i)
                    sums[i] += a * W[f * E + e + i];
            }
            for (int i = 0; i < 8; ++i)
                GVEC(v, e + i) = sums[i];
        }
        for (; e < E; ++e) {
            GV sum = zero;
            for (ptrdiff_t f = 0; f < n_features; ++f)
                sum += GVEC(x, f) * W[f * E + e];
            GVEC(v, e) = sum;
        }
    }
}

/* W += sum of p x q' over the games of n_groups groups; q is multiplied by p. */
static void NAME(game_gather)(ptrdiff_t n_groups, ptrdiff_t n_features, ptrdiff_t E,
                              const double *p, const double *x, double *q, double *W)
{
    enum { AT_ONCE = 32 };
    GV zero = {0};
    for (ptrdiff_t g = 0; g < n_groups; g += AT_ONCE) {
        const ptrdiff_t n = n_groups - g < AT_ONCE ? n_groups - g : AT_ONCE;
        for (ptrdiff_t m = g; m < g + n; ++m)
            for (ptrdiff_t e = 0; e < E; ++e)
                GVEC(q, m * E + e) *= GVEC(p, m);
        for (ptrdiff_t f = 0; f < n_features; f += 4)
            for (ptrdiff_t e = 0; e < E; e += 4) {
                const ptrdiff_t nf = n_features - f < 4 ? n_features - f : 4;
                const ptrdiff_t ne = E - e < 4 ? E - e : 4;
                GV sums[4][4];
                for (int i = 0; i < 4; ++i)
                    for (int j = 0; j < 4; ++j)
                        sums[i][j] = zero;
                if (nf == 4 && ne == 4) {
                    for (ptrdiff_t m = g; m < g + n; ++m)
                        for (int i = 0; i < 4; ++i)
                            for (int j = 0; j < 4; ++j)
                                sums[i][j] +=
                                    GVEC(x, m * n_features + f + i) * GVEC(q, m * E + e + j);
                } else {
                    for (ptrdiff_t m = g; m < g + n; ++m)
                        for (int i = 0; i < nf; ++i)
                            for (int j = 0; j < ne; ++j)
                                sums[i][j] +=
                                    GVEC(x, m * n_features + f + i) * GVEC(q, m * E + e + j);
                }
                for (int i = 0; i < nf; ++i)
                    for (int j = 0; j < ne; ++j)
                        W[(f + i) * E + e + j] += NAME(sum)(sums[i][j]);
            }
    }
}

static const fastm4n_games NAME(games_table) = {
    VLEN,
    NAME(game_held),
    NAME(game_factor),
    NAME(game_move),
    NAME(game_boundary),
    NAME(game_products),
    NAME(game_advance),
    NAME(game_bounds),
    NAME(game_scores),
    NAME(game_gather),
};

#undef GVEC
#undef GLESS
#undef GPICK
#undef GV
