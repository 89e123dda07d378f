/* Chains side by side, one in each lane of a vector: a part of chain_template.h, whose names it
 * uses.
 *
 * All chains of a group share the scores of transitions. A number of one chain is then a vector of
 * RLEN chains: rows of labels need no padding, no sum goes across a vector, and no step waits for
 * the one before it, which is what few labels spend their time on otherwise. Arrays (T, R) of
 * vectors hold what chains have at positions and labels; chains are aligned at their first
 * position, and what stands behind the last one of a shorter chain is finite and counts for
 * nothing. Rows of matrices of transitions are `row` numbers long.
 */

#define RLANES(p, i) (((RNAME(rvec) *)(p))[i])

#if RLEN == 1
#define RLATER(lengths, t) ((lengths)[0] > (RINT)(t))
#else
#define RLATER(lengths, t)                                                                     \
    ((RNAME(rint))(*(const RNAME(rint) *)(lengths) > (RNAME(rint)){0} + (RINT)(t)))
#endif

#if RLEN > 1
/* Vectors at the distance `width` of each other swap the halves of their groups of 2 width. */
static ALWAYS_INLINE void RNAME(swap_halves)(const int width, RNAME(rvec) *square)
{
#if !defined(__clang__)
    const RNAME(rint) lane = *(const RNAME(rint) *)RNAME(numbers);
    const RNAME(rint) low = lane + (lane & (RINT)width) / width * (RINT)(RLEN - width);
    const RNAME(rint) high = low + (RINT)width;
#endif
    for (int i = 0; i < RLEN; ++i) {
        if (i & width)
            continue;
        const RNAME(rvec) a = square[i], b = square[i + width];
#if defined(__clang__)
        for (int j = 0; j < RLEN; ++j) {
            square[i][j] = j & width ? b[j - width] : a[j];
            square[i + width][j] = j & width ? b[j] : a[j + width];
        }
#else
        square[i] = __builtin_shuffle(a, b, low);
        square[i + width] = __builtin_shuffle(a, b, high);
#endif
    }
}
#endif

/* Turns a square of RLEN vectors over its diagonal. */
static ALWAYS_INLINE void RNAME(turn)(RNAME(rvec) *square)
{
#if RLEN > 8
    RNAME(swap_halves)(8, square);
#endif
#if RLEN > 4
    RNAME(swap_halves)(4, square);
#endif
#if RLEN > 2
    RNAME(swap_halves)(2, square);
#endif
#if RLEN > 1
    RNAME(swap_halves)(1, square);
#else
    (void)square;
#endif
}

/* The first n < RLEN numbers at p, and no byte beyond. */
static ALWAYS_INLINE RNAME(rvec) RNAME(some)(const REAL *p, ptrdiff_t n)
{
#if VLEN == 8
    return (RNAME(rvec))RSOME512((unsigned)((1u << n) - 1), p);
#else
    REAL part[RLEN] = {0};
    for (ptrdiff_t k = 0; k < n; ++k)
        part[k] = p[k];
    return RLOAD(part);
#endif
}

/* n < RLEN numbers to p. */
static ALWAYS_INLINE void RNAME(store_some)(REAL *p, ptrdiff_t n, RNAME(rvec) value)
{
#if VLEN == 8
    RSTORESOME512(p, (unsigned)((1u << n) - 1), (RX512)value);
#else
    for (ptrdiff_t k = 0; k < n; ++k)
        p[k] = RLANE(value, k);
#endif
}

/* out (T, R) of vectors = rows of RLEN chains, those of chain c at rows[c], lengths[c] rows that
   begin every `step` numbers; zeros where there are none. */
static void RNAME(lanes_load)(const REAL *const *rows, ptrdiff_t step, const RINT *lengths,
                              ptrdiff_t T, ptrdiff_t R, REAL *out)
{
    for (ptrdiff_t t = 0; t < T; ++t)
        for (ptrdiff_t j = 0; j < R; j += RLEN) {
            const ptrdiff_t n = R - j < RLEN ? R - j : RLEN;
            RNAME(rvec) square[RLEN];
            for (int c = 0; c < RLEN; ++c) {
                square[c] = (RNAME(rvec)){0};
                if (t < lengths[c])
                    square[c] = n == RLEN ? RLOAD(rows[c] + t * step + j)
                                          : RNAME(some)(rows[c] + t * step + j, n);
            }
            RNAME(turn)(square);
            for (ptrdiff_t k = 0; k < n; ++k)
                RLANES(out, t * R + j + k) = square[k];
        }
}

/* The other way round: rows of the chains = (T, R) of vectors, times factor. */
static void RNAME(lanes_store)(const REAL *from, const RINT *lengths, ptrdiff_t T, ptrdiff_t R,
                               REAL factor, REAL *const *rows, ptrdiff_t step)
{
    for (ptrdiff_t t = 0; t < T; ++t)
        for (ptrdiff_t j = 0; j < R; j += RLEN) {
            const ptrdiff_t n = R - j < RLEN ? R - j : RLEN;
            RNAME(rvec) square[RLEN];
            for (ptrdiff_t k = 0; k < RLEN; ++k)
                square[k] = (RNAME(rvec)){0};
            for (ptrdiff_t k = 0; k < n; ++k)
                square[k] = factor * RLANES(from, t * R + j + k);
            RNAME(turn)(square);
            for (int c = 0; c < RLEN; ++c) {
                if (t >= lengths[c])
                    continue;
                if (n == RLEN)
                    RSTORE(rows[c] + t * step + j, square[c]);
                else
                    RNAME(store_some)(rows[c] + t * step + j, n, square[c]);
            }
        }
}

/* to[j] = sum_i from[i] M[i][j] of K columns */
static ALWAYS_INLINE void RNAME(lanes_columns)(const int K, const REAL *from, const REAL *M,
                                               ptrdiff_t row, ptrdiff_t R, REAL *to)
{
    RNAME(rvec) acc[8];
    for (int k = 0; k < K; ++k)
        acc[k] = RLANES(from, 0) * M[k];
    for (ptrdiff_t i = 1; i < R; ++i) {
        const RNAME(rvec) x = RLANES(from, i);
        for (int k = 0; k < K; ++k)
            acc[k] += x * M[i * row + k];
    }
    for (int k = 0; k < K; ++k)
        RLANES(to, k) = acc[k];
}

/* to[j] = max_i from[i] + M[i][j] of K columns */
static ALWAYS_INLINE void RNAME(lanes_best)(const int K, const REAL *from, const REAL *M,
                                            ptrdiff_t row, ptrdiff_t R, REAL *to)
{
    RNAME(rvec) best[8];
    for (int k = 0; k < K; ++k)
        best[k] = RLANES(from, 0) + M[k];
    for (ptrdiff_t i = 1; i < R; ++i) {
        const RNAME(rvec) x = RLANES(from, i);
        for (int k = 0; k < K; ++k)
            best[k] = RMAX(best[k], x + M[i * row + k]);
    }
    for (int k = 0; k < K; ++k)
        RLANES(to, k) = best[k];
}

/* Columns in groups as equal as can be, of at most 8: a group of one waits for each addition. */
#define RGROUPS(f)                                                                             \
    for (ptrdiff_t j = 0, left = (R + 7) / 8; j < R; --left) {                                 \
        const ptrdiff_t count = (R - j + left - 1) / left;                                     \
        switch (count) {                                                                       \
        case 1:                                                                                \
            f(1, from, M + j, row, R, to + j * RLEN);                                          \
            break;                                                                             \
        case 2:                                                                                \
            f(2, from, M + j, row, R, to + j * RLEN);                                          \
            break;                                                                             \
        case 3:                                                                                \
            f(3, from, M + j, row, R, to + j * RLEN);                                          \
            break;                                                                             \
        case 4:                                                                                \
            f(4, from, M + j, row, R, to + j * RLEN);                                          \
            break;                                                                             \
        case 5:                                                                                \
            f(5, from, M + j, row, R, to + j * RLEN);                                          \
            break;                                                                             \
        case 6:                                                                                \
            f(6, from, M + j, row, R, to + j * RLEN);                                          \
            break;                                                                             \
        case 7:                                                                                \
            f(7, from, M + j, row, R, to + j * RLEN);                                          \
            break;                                                                             \
        default:                                                                               \
            f(8, from, M + j, row, R, to + j * RLEN);                                          \
        }                                                                                      \
        j += count;                                                                            \
    }

static void RNAME(lanes_times)(const REAL *from, const REAL *M, ptrdiff_t row, ptrdiff_t R,
                               REAL *to)
{
    RGROUPS(RNAME(lanes_columns))
}

static void RNAME(lanes_max_plus)(const REAL *from, const REAL *M, ptrdiff_t row, ptrdiff_t R,
                                  REAL *to)
{
    RGROUPS(RNAME(lanes_best))
}

#undef RGROUPS

/* `sum_product` of RLEN chains side by side.

   e (T, R): the scores; the scaled backward messages g on return. P = exp(pair - max) and PT its
   transpose, spread the largest distance of a finite pair from the maximum, limit the distance from
   which on probability space loses too much, check as in `sum_product`. On return alpha holds the
   forward messages, so that alpha[t][i] P[i][j] g[t + 1][j] are the marginals of edges, node the
   marginals (which may be alpha where edges are not wanted), and log_z the log-partitions but for
   the maxima of pairs. Chains that this is not safe for have their length set to zero, and
   marginals of zero; lengths[c] < 0 on entry stands for no chain. beta (R); scale, top (T). */
static void RNAME(lanes_sum_product)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t row, REAL *e,
                                     const REAL *P, const REAL *PT, double spread, double limit,
                                     int check, RINT *lengths, REAL *alpha, REAL *beta,
                                     REAL *scale, REAL *top, REAL *node, double *log_z)
{
    const RNAME(rvec) zero = {0}, none = zero - (REAL)INFINITY;
    RNAME(rvec) wide = zero, barred = zero, least = zero + 1, fail = zero;
    for (ptrdiff_t t = 0; t < T; ++t) {
        REAL *u = e + t * R * RLEN, *a = alpha + t * R * RLEN;
        RNAME(rvec) high = none, total = zero;
        for (ptrdiff_t j = 0; j < R; ++j)
            high = RMAX(high, RLANES(u, j));
        fail = RSELECT(high > none, fail, zero + 1);
        for (ptrdiff_t j = 0; j < R; ++j) {
            const RNAME(rvec) x = RLANES(u, j) - high;
            wide = RMAX(wide, RSELECT(x > none, -x, zero));
            barred = RMAX(barred, RSELECT(x > none, zero, zero + 1));
            RLANES(u, j) = REXP(x);
        }
        RLANES(top, t) = high;
        if (t > 0)
            RNAME(lanes_times)(a - R * RLEN, P, row, R, a);
        for (ptrdiff_t j = 0; j < R; ++j) {
            RNAME(rvec) x = RLANES(u, j);
            if (t > 0)
                x *= RLANES(a, j);
            RLANES(a, j) = x;
            total += x;
        }
        fail = RSELECT(total > zero, fail, RSELECT(RLATER(lengths, t), zero + 1, fail));
        RLANES(scale, t) = total;
        const RNAME(rvec) inverse = 1 / total;
        for (ptrdiff_t j = 0; j < R; ++j) {
            const RNAME(rvec) x = inverse * RLANES(a, j);
            RLANES(a, j) = x;
            least = -RMAX(-least, -RSELECT(x > zero, x, zero + 1));
        }
    }
    if (T > 1)
        wide += (REAL)(spread < FLT_MAX ? spread : FLT_MAX);
    for (int c = 0; c < RLEN; ++c) {
        const int checked = check || RLANE(barred, c) > 0;
        double product = 1.0;
        log_z[c] = 0.0;
        if (RLANE(fail, c) > 0 || !(RLANE(wide, c) <= (REAL)limit) ||
            (checked && RLANE(least, c) < RTINY)) {
            lengths[c] = lengths[c] > 0 ? 0 : lengths[c];
            continue;
        }
        for (ptrdiff_t t = 0; t < (ptrdiff_t)lengths[c]; ++t) {
            log_z[c] += (double)top[t * RLEN + c];
            product *= (double)scale[t * RLEN + c];
            if (product < 1e-100 || product > 1e100) {
                log_z[c] += log(product);
                product = 1.0;
            }
        }
        log_z[c] += log(product);
    }
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        const REAL *a = alpha + t * R * RLEN;
        REAL *g = e + t * R * RLEN, *m = node + t * R * RLEN;
        RNAME(rvec) total = zero;
        for (ptrdiff_t j = 0; j < R; ++j) {
            const RNAME(rvec) reach = RLANES(a, j);
            /* what cannot be reached sends nothing back: it might be inf */
            RNAME(rvec) b = RSELECT(RLATER(lengths, t + 1), RLANES(beta, j), zero + 1);
            b = RSELECT(reach > zero, b, zero);
            RLANES(beta, j) = b;
            total += reach * b;
        }
        /* one, but for rounding, which would grow along the chain */
        const RNAME(rvec) rest = 1 / total;
        RNAME(rvec) factor = 1 / RLANES(scale, t);
        if (t % 16 == 0)
            factor *= rest;
        for (ptrdiff_t j = 0; j < R; ++j) {
            const RNAME(rvec) b = RLANES(beta, j);
            RLANES(g, j) = RSELECT(RLATER(lengths, t), RLANES(g, j) * (b * factor), zero);
            RLANES(m, j) = RSELECT(RLATER(lengths, t), RLANES(a, j) * b * rest, zero);
        }
        if (t > 0)
            RNAME(lanes_times)(g, PT, row, R, beta);
    }
}

/* out (R, R) of vectors = P * sum_t alpha[t] g[t + 1]': the sums of the marginals of all edges.
   alpha and g can be read for 3 vectors more than they hold. */
static void RNAME(lanes_edges)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t row, const REAL *alpha,
                               const REAL *g, const REAL *P, REAL *out)
{
    for (ptrdiff_t i = 0; i < R; i += 4)
        for (ptrdiff_t j = 0; j < R; j += 4) {
            RNAME(rvec) acc[4][4];
            for (int n = 0; n < 4; ++n)
                for (int k = 0; k < 4; ++k)
                    acc[n][k] = (RNAME(rvec)){0};
            for (ptrdiff_t t = 0; t + 1 < T; ++t) {
                const REAL *a = alpha + (t * R + i) * RLEN, *b = g + ((t + 1) * R + j) * RLEN;
                RNAME(rvec) x[4];
                for (int k = 0; k < 4; ++k)
                    x[k] = RLANES(b, k);
                for (int n = 0; n < 4; ++n)
                    for (int k = 0; k < 4; ++k)
                        acc[n][k] += RLANES(a, n) * x[k];
            }
            for (int n = 0; n < 4 && i + n < R; ++n)
                for (int k = 0; k < 4 && j + k < R; ++k)
                    RLANES(out, (i + n) * R + j + k) = acc[n][k] * P[(i + n) * row + j + k];
        }
}

/* total, n numbers in double, += the sums over lanes of as many vectors. */
static void RNAME(lanes_sum)(ptrdiff_t n, const REAL *vectors, double *total)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        total[i] += (double)RNAME(rsum)(RLANES(vectors, i));
}

/* `viterbi` of RLEN chains side by side: delta (T, R), which may be u, the scores. */
static void RNAME(lanes_viterbi)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t row, const REAL *u,
                                 const REAL *pair, REAL *work, REAL *delta)
{
    const RNAME(rvec) none = (RNAME(rvec)){0} - (REAL)INFINITY;
    for (ptrdiff_t j = 0; j < R; ++j)
        RLANES(delta, j) = RLANES(u, j);
    for (ptrdiff_t t = 1; t < T; ++t) {
        const REAL *own = u + t * R * RLEN;
        REAL *to = delta + t * R * RLEN;
        RNAME(lanes_max_plus)(to - R * RLEN, pair, row, R, work);
        for (ptrdiff_t j = 0; j < R; ++j)
            RLANES(to, j) = RLANES(own, j) + RLANES(work, j);
        if (RSHIFT && t % RSHIFT == 0) {
            RNAME(rvec) top = none;
            for (ptrdiff_t j = 0; j < R; ++j)
                top = RMAX(top, RLANES(to, j));
            top = RSELECT(top > none, top, (RNAME(rvec)){0});
            for (ptrdiff_t j = 0; j < R; ++j)
                RLANES(to, j) -= top;
        }
    }
}

/* `viterbi_path` of RLEN chains side by side: path (T) of vectors of labels, and in score[c] what
   delta says of the last label of chain c. Returns 0, and nothing else, where a row of pair does not
   fit into two vectors, which are looked into by labels. pair can be read for two vectors from the
   beginning of each row on. */
static int RNAME(lanes_path)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t row, const REAL *delta,
                             const REAL *pair, const RINT *lengths, RINT *path, REAL *score)
{
#if RLEN == 1 || defined(__clang__)
    (void)T, (void)R, (void)row, (void)delta, (void)pair, (void)lengths, (void)path,
        (void)score;
    return 0;
#else
    const RNAME(rvec) none = (RNAME(rvec)){0} - (REAL)INFINITY;
    const RNAME(rint) nothing = {0};
    RNAME(rint) before = nothing;
    if (R > 2 * RLEN)
        return 0;
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        const RNAME(rint) inside = RLATER(lengths, t + 1);
        RNAME(rvec) top = none;
        RNAME(rint) best = nothing;
        for (ptrdiff_t i = 0; i < R; ++i) {
            const REAL *scores = pair + i * row;
            RNAME(rvec) to;
            if (R > RLEN)
                to = __builtin_shuffle(RLOAD(scores), RLOAD(scores + RLEN), before);
            else
                to = __builtin_shuffle(RLOAD(scores), before);
            const RNAME(rvec) x =
                RLANES(delta, t * R + i) + RSELECT(inside, to, (RNAME(rvec)){0});
            const RNAME(rint) better = (RNAME(rint))(x > top);
            best = (better & (RINT)i) | (~better & best);
            top = RSELECT(better, x, top);
        }
        const RNAME(rint) last = RLATER(lengths, t) & ~inside;
        RSTORE(score, RSELECT(last, top, RLOAD(score)));
        *(RNAME(rint) *)(path + t * RLEN) = best;
        before = best;
    }
    return 1;
#endif
}

#undef RLANES
#undef RLATER
