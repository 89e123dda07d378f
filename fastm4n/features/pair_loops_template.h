/* The loops of pair_loops.h for vectors of PVLEN doubles: 4 or 8. */

#define PVEC PAIR(vec)
#define PAIR_BITS(mask, t) ((unsigned)((mask) >> ((t) * PVLEN)) & ((1u << PVLEN) - 1))
/* calls f with a number of vectors that the compiler knows */
#define PAIR_TILES(f, ...)                                                                     \
    switch (stride / PVLEN) {                                                                  \
    case 1:                                                                                    \
        f(1, __VA_ARGS__);                                                                     \
        break;                                                                                 \
    case 2:                                                                                    \
        f(2, __VA_ARGS__);                                                                     \
        break;                                                                                 \
    case 3:                                                                                    \
        f(3, __VA_ARGS__);                                                                     \
        break;                                                                                 \
    case 4:                                                                                    \
        f(4, __VA_ARGS__);                                                                     \
        break;                                                                                 \
    default:                                                                                   \
        f((int)(stride / PVLEN), __VA_ARGS__);                                                 \
        break;                                                                                 \
    }

#define PAIR_LOOPS(REAL, TAG)                                                                  \
    static PAIR_INLINE void PAIR(scores_tiles_##TAG)(                                          \
        const int T, const REAL *x, const int *idx, ptrdiff_t nnz,                             \
        const fastm4n_pair_head *heads, const double *w, double *v)                            \
    {                                                                                          \
        PVEC acc[64 / PVLEN];                                                                  \
        for (int t = 0; t < T; ++t)                                                            \
            acc[t] = PAIR(load)(v + t * PVLEN);                                                \
        for (ptrdiff_t i = 0; i < nnz; ++i) {                                                  \
            const uint64_t m = heads[idx[i]].mask;                                             \
            const double *p = w + heads[idx[i]].first;                                         \
            const PVEC value = PAIR(set)((double)x[i]);                                        \
            for (int t = 0; t < T; ++t) {                                                      \
                const unsigned bits = PAIR_BITS(m, t);                                         \
                acc[t] = PAIR(fma)(value, PAIR(spread)(bits, p), acc[t]);                      \
                p += __builtin_popcount(bits);                                                 \
            }                                                                                  \
        }                                                                                      \
        for (int t = 0; t < T; ++t)                                                            \
            PAIR(store)(v + t * PVLEN, acc[t]);                                                \
    }                                                                                          \
    static void PAIR(scores_##TAG)(const REAL *x, const int *idx, ptrdiff_t nnz,               \
                                   const fastm4n_pair_head *heads, const double *w,            \
                                   ptrdiff_t stride, double *v)                                \
    {                                                                                          \
        PAIR_TILES(PAIR(scores_tiles_##TAG), x, idx, nnz, heads, w, v)                         \
    }                                                                                          \
    static PAIR_INLINE void PAIR(update_tiles_##TAG)(                                          \
        const int T, const REAL *x, const int *idx, ptrdiff_t nnz, const double *c,            \
        const fastm4n_pair_head *heads, double *w)                                             \
    {                                                                                          \
        PVEC step[64 / PVLEN], now[64 / PVLEN];                                                \
        for (int t = 0; t < T; ++t)                                                            \
            step[t] = PAIR(load)(c + t * PVLEN);                                               \
        for (ptrdiff_t i = 0; i < nnz; ++i) {                                                  \
            const uint64_t m = heads[idx[i]].mask;                                             \
            double *const from = w + heads[idx[i]].first, *p = from;                           \
            const PVEC value = PAIR(set)((double)x[i]);                                        \
            /* all loads before the stores: a load waits for a store that overlaps it */       \
            for (int t = 0; t < T; ++t) {                                                      \
                const unsigned bits = PAIR_BITS(m, t);                                         \
                const int n = __builtin_popcount(bits);                                        \
                now[t] = PAIR(fma)(value, PAIR(packed)(bits, step[t]), PAIR(load_n)(n, p));    \
                p += n;                                                                        \
            }                                                                                  \
            p = from;                                                                          \
            for (int t = 0; t < T; ++t) {                                                      \
                const int n = __builtin_popcount(PAIR_BITS(m, t));                             \
                PAIR(store_n)(n, p, now[t]);                                                   \
                p += n;                                                                        \
            }                                                                                  \
        }                                                                                      \
    }                                                                                          \
    static void PAIR(update_##TAG)(const REAL *x, const int *idx, ptrdiff_t nnz,               \
                                   const double *c, const fastm4n_pair_head *heads, double *w, \
                                   ptrdiff_t stride)                                           \
    {                                                                                          \
        PAIR_TILES(PAIR(update_tiles_##TAG), x, idx, nnz, c, heads, w)                         \
    }                                                                                          \
    static PAIR_INLINE void PAIR(norm_tiles_##TAG)(                                            \
        const int T, const REAL *x, const int *idx, const long long *ends,                     \
        const uint16_t *place, const uint16_t *row, ptrdiff_t n,                               \
        const fastm4n_pair_head *heads, const double *d, ptrdiff_t stride, double *out)        \
    {                                                                                          \
        const PVEC zero = PAIR(set)(0.0);                                                      \
        PVEC acc[64 / PVLEN], total = zero;                                                    \
        double lanes[PVLEN];                                                                   \
        long long at = n ? ends[row[0]] + place[0] : 0, next = at;                             \
        for (int t = 0; t < T; ++t)                                                            \
            acc[t] = zero;                                                                     \
        for (ptrdiff_t e = 0; e < n; ++e, at = next) {                                         \
            const double *from = d + row[e] * stride;                                          \
            const PVEC value = PAIR(set)((double)x[at]);                                       \
            const int feature = idx[at];                                                       \
            for (int t = 0; t < T; ++t)                                                        \
                acc[t] = PAIR(fma)(value, PAIR(load)(from + t * PVLEN), acc[t]);               \
            if (e + 1 < n) {                                                                   \
                next = ends[row[e + 1]] + place[e + 1];                                        \
                if (idx[next] == feature)                                                      \
                    continue;                                                                  \
            }                                                                                  \
            for (int t = 0; t < T; ++t) {                                                      \
                const PVEC kept = PAIR(only)(PAIR_BITS(heads[feature].mask, t), acc[t]);       \
                total = PAIR(fma)(kept, kept, total);                                          \
                acc[t] = zero;                                                                 \
            }                                                                                  \
        }                                                                                      \
        PAIR(store)(lanes, total);                                                             \
        *out = 0.0;                                                                            \
        for (int j = 0; j < PVLEN; ++j)                                                        \
            *out += lanes[j];                                                                  \
    }                                                                                          \
    static double PAIR(norm_##TAG)(const REAL *x, const int *idx, const long long *ends,       \
                                   const uint16_t *place, const uint16_t *row, ptrdiff_t n,    \
                                   const fastm4n_pair_head *heads, const double *d,            \
                                   ptrdiff_t stride)                                           \
    {                                                                                          \
        double total;                                                                          \
        PAIR_TILES(PAIR(norm_tiles_##TAG), x, idx, ends, place, row, n, heads, d, stride,      \
                   &total)                                                                     \
        return total;                                                                          \
    }

PAIR_LOOPS(double, f64)
PAIR_LOOPS(float, f32)

static void PAIR(prox)(const double *z, const double *t, int by_threshold, const double *low,
                       const double *high, int by_bound, double scale, const int *idx,
                       ptrdiff_t nnz, const int *first, double *w)
{
    const PVEC zero = PAIR(set)(0.0), by = PAIR(set)(scale);
    PVEC threshold = PAIR(set)(*t), lower = PAIR(set)(*low), upper = PAIR(set)(*high);
    for (ptrdiff_t i = 0; i < nnz; ++i) {
        const int stop = first[idx[i] + 1];
        for (int q = first[idx[i]]; q < stop; q += PVLEN) {
            const int n = stop - q < PVLEN ? stop - q : PVLEN;
            const PVEC value = PAIR(load_n)(n, z + q);
            if (by_threshold)
                threshold = PAIR(load_n)(n, t + q);
            if (by_bound) {
                lower = PAIR(load_n)(n, low + q);
                upper = PAIR(load_n)(n, high + q);
            }
            /* the part above t, and the part below -t: one of them is zero */
            const PVEC soft =
                PAIR(max)(value - threshold, zero) + PAIR(min)(value + threshold, zero);
            PAIR(store_n)(n, w + q, PAIR(min)(PAIR(max)(soft * by, lower), upper));
        }
    }
}

static const fastm4n_pairs PAIR(table) = {
    PVLEN,          PAIR(scores_f64), PAIR(scores_f32), PAIR(update_f64), PAIR(update_f32),
    PAIR(norm_f64), PAIR(norm_f32),   PAIR(prox),
};

#undef PVEC
#undef PAIR_BITS
#undef PAIR_TILES
#undef PAIR_LOOPS
