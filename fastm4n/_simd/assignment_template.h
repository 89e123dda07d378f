/* Linear assignment in double, included by loops_dispatch.h after loops_template.h, once
 * per target.
 *
 *   min sum_i C[i][col_of[i]]  over distinct columns,  M rows and N >= M columns
 *   max sum_i u[i] + sum_j v[j]  s.t.  u[i] + v[j] <= C[i][j],  and v <= 0 where N > M
 *
 * Rows of C begin every `step` doubles; `stride` of each, N rounded up to whole vectors, are
 * read and must be there, but what lies behind the N columns matters only if it is NaN or
 * -INFINITY.  +INFINITY forbids a pair.  Shortest augmenting paths with potentials, after a
 * reduction by rows (Jonker and Volgenant 1987) or from given potentials; the loops run over
 * columns, whole vectors at a time.  O(M^2 N) at worst.
 */

#if VLEN == 1
typedef int NAME(mask);
#define AVEC(p) (*(p))
#define APUT(p, a) (*(p) = (a))
#define ALANE(a, i) (a)
#define ALESS(a, b) ((a) < (b))
#define AEQUAL(a, b) ((a) == (b))
#define ACOST(a) ((a) > -INFINITY)
#define AILESS(a, b) ((a) < (b))
#define AIEQUAL(a, b) ((a) == (b))
#define APICK(mask, a, b) ((mask) ? (a) : (b))
#define AIPICK(mask, a, b) ((mask) ? (a) : (b))
#else
#define AVEC(p) (*(const NAME(vec) *)(p))
#define APUT(p, a) (*(NAME(vec) *)(p) = (a))
#define ALANE(a, i) ((a)[i])
#if VLEN == 8
/* compilers make vectors of masks otherwise, and masks of them again */
typedef __mmask8 NAME(mask);
#define ALESS(a, b) _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_LT_OQ)
#define AEQUAL(a, b) _mm512_cmp_pd_mask((__m512d)(a), (__m512d)(b), _CMP_EQ_OQ)
#define ACOST(a) _mm512_cmp_pd_mask((__m512d)(a), _mm512_set1_pd(-INFINITY), _CMP_GT_OQ)
#define AILESS(a, b) _mm512_cmplt_epi64_mask((__m512i)(a), (__m512i)(b))
#define AIEQUAL(a, b) _mm512_cmpeq_epi64_mask((__m512i)(a), (__m512i)(b))
#define APICK(mask, a, b) (NAME(vec))_mm512_mask_blend_pd(mask, (__m512d)(b), (__m512d)(a))
#define AIPICK(mask, a, b) (NAME(ivec))_mm512_mask_blend_epi64(mask, (__m512i)(b), (__m512i)(a))
#else
typedef NAME(ivec) NAME(mask);
#define ALESS(a, b) (NAME(ivec))((a) < (b))
#define AEQUAL(a, b) (NAME(ivec))((a) == (b))
#define ACOST(a) (NAME(ivec))((a) > -INFINITY)
#define AILESS(a, b) (NAME(ivec))((a) < (b))
#define AIEQUAL(a, b) (NAME(ivec))((a) == (b))
#define APICK(mask, a, b) NAME(select)(mask, a, b)
#define AIPICK(mask, a, b) (((a) & (mask)) | ((b) & ~(mask)))
#endif
#endif

static const long long NAME(column_numbers)[8] = {0, 1, 2, 3, 4, 5, 6, 7};

/* The smallest lane, its number, and a mask of it; of equal ones the smallest number. */
static ALWAYS_INLINE long long NAME(least)(NAME(vec) value, NAME(ivec) number, double *least,
                                           NAME(mask) *lane)
{
#if VLEN == 8
    const __m512i numbers = (__m512i)number;
    *least = _mm512_reduce_min_pd((__m512d)value);
    const unsigned equal = AEQUAL(value, _mm512_set1_pd(*least));
    *lane = (__mmask8)equal;
    if (equal & (equal - 1)) {
        const long long at = _mm512_mask_reduce_min_epi64(*lane, numbers);
        *lane = _mm512_mask_cmpeq_epi64_mask(*lane, numbers, _mm512_set1_epi64(at));
        return at;
    }
    return _mm_cvtsi128_si64(
        _mm512_castsi512_si128(_mm512_maskz_compress_epi64(*lane, numbers)));
#else
    double best = ALANE(value, 0);
    long long at = ALANE(number, 0);
    for (int i = 1; i < VLEN; ++i) {
        const double x = ALANE(value, i);
        const long long j = ALANE(number, i);
        const int better = x < best || (x == best && j < at);
        at = better ? j : at;
        best = better ? x : best;
    }
    *least = best;
    *lane = AIEQUAL(number, (NAME(ivec)){0} + at) & AEQUAL(value, (NAME(vec)){0} + best);
    return at;
#endif
}

/* v[at] -= change, by whole vectors: of a single store the next load would have to wait. */
static ALWAYS_INLINE void NAME(lower)(double *v, ptrdiff_t at, double change)
{
    double *block = v + at / VLEN * VLEN;
    const NAME(ivec) numbers = *(const NAME(ivec) *)NAME(column_numbers);
    const NAME(vec) old = AVEC(block);
    const NAME(mask) lane = AIEQUAL(numbers, (NAME(ivec)){0} + (long long)(at % VLEN));
    APUT(block, APICK(lane, old - change, old));
}

/* The two smallest of c - v, and where they are. */
static ALWAYS_INLINE void NAME(two_least)(const double *c, const double *v, ptrdiff_t stride,
                                          double *first, ptrdiff_t *at, double *second,
                                          ptrdiff_t *second_at)
{
    const NAME(vec) zero = {0};
    NAME(vec) low = zero + INFINITY, next = zero + INFINITY;
    NAME(ivec) low_at = (NAME(ivec)){0}, next_at = (NAME(ivec)){0};
    NAME(ivec) numbers = *(const NAME(ivec) *)NAME(column_numbers);
    for (ptrdiff_t j = 0; j < stride; j += VLEN, numbers += VLEN) {
        const NAME(vec) x = AVEC(c + j) - AVEC(v + j);
        const NAME(mask) lower = ALESS(x, low), lower_next = ALESS(x, next);
        next = APICK(lower, low, APICK(lower_next, x, next));
        next_at = AIPICK(lower, low_at, AIPICK(lower_next, numbers, next_at));
        low = APICK(lower, x, low);
        low_at = AIPICK(lower, numbers, low_at);
    }
    NAME(mask) lane;
    *at = (ptrdiff_t)NAME(least)(low, low_at, first, &lane);
    /* the second one is the next of that lane, or the lowest of another */
    *second_at = (ptrdiff_t)NAME(least)(APICK(lane, next, low), AIPICK(lane, next_at, low_at),
                                        second, &lane);
}

/* Whether the mask is set in all lanes. */
static ALWAYS_INLINE int NAME(all)(NAME(mask) mask)
{
#if VLEN == 8
    return mask == 0xff;
#elif VLEN == 1
    return mask;
#else
    long long all = -1;
    for (int i = 0; i < VLEN; ++i)
        all &= mask[i];
    return all != 0;
#endif
}

/* Whether the mask is set in any lane. */
static ALWAYS_INLINE int NAME(some)(NAME(mask) mask)
{
#if VLEN == 8 || VLEN == 1
    return mask != 0;
#elif VLEN == 4
    return _mm256_movemask_pd((__m256d)mask) != 0;
#else
    long long some = 0;
    for (int i = 0; i < VLEN; ++i)
        some |= mask[i];
    return some != 0;
#endif
}

/* The least of c - v, and the first place where it is; `right` loses the lanes where a c is
   NaN or -inf. */
static ALWAYS_INLINE ptrdiff_t NAME(row_least)(const double *c, const double *v,
                                               ptrdiff_t stride, double *first,
                                               NAME(mask) *right)
{
    const NAME(vec) zero = {0};
    NAME(vec) low = zero + INFINITY;
    NAME(ivec) low_at = (NAME(ivec)){0};
    NAME(ivec) numbers = *(const NAME(ivec) *)NAME(column_numbers);
    for (ptrdiff_t j = 0; j < stride; j += VLEN, numbers += VLEN) {
        const NAME(vec) cost = AVEC(c + j), x = cost - AVEC(v + j);
        *right &= ACOST(cost);
        const NAME(mask) lower = ALESS(x, low);
        low = APICK(lower, x, low);
        low_at = AIPICK(lower, numbers, low_at);
    }
    NAME(mask) lane;
    return (ptrdiff_t)NAME(least)(low, low_at, first, &lane);
}

/* The first column without a row where x, or x - v, equals `value`; -1 where there is none. */
static ALWAYS_INLINE ptrdiff_t NAME(free_tied)(const double *x, const double *v,
                                               const ptrdiff_t *row_of, ptrdiff_t stride,
                                               double value)
{
    const NAME(vec) zero = {0};
    for (ptrdiff_t j = 0; j < stride; j += VLEN) {
        NAME(vec) y = AVEC(x + j);
        if (v)
            y = y - AVEC(v + j);
        const NAME(ivec) rows = *(const NAME(ivec) *)(row_of + j);
        if (NAME(some)(AEQUAL(y, zero + value) & AILESS(rows, (NAME(ivec)){0})))
            for (ptrdiff_t at = j; at < j + VLEN; ++at)
                if (ALANE(y, at - j) == value && row_of[at] < 0)
                    return at;
    }
    return -1;
}

/* A step of Dijkstra's algorithm: the column `closed` leaves, row i offers distances, and the
   nearest column is returned, of equally near ones the first. */
static ALWAYS_INLINE ptrdiff_t NAME(relax)(const int fresh, const double *c, const double *v,
                                           double offset, long long i, long long closed,
                                           ptrdiff_t stride, double *d, long long *from,
                                           double *reached)
{
    const NAME(vec) zero = {0};
    const NAME(ivec) row = (NAME(ivec)){0} + i;
    NAME(vec) low = zero + INFINITY;
    NAME(ivec) low_at = (NAME(ivec)){0};
    NAME(ivec) numbers = *(const NAME(ivec) *)NAME(column_numbers);
    for (ptrdiff_t j = 0; j < stride; j += VLEN, numbers += VLEN) {
        NAME(vec) now = AVEC(c + j) - AVEC(v + j) - offset;
        if (fresh)
            *(NAME(ivec) *)(from + j) = row;
        else {
            /* NaN is never nearer: a store of one double would hold up this load */
            const NAME(vec) old =
                APICK(AIEQUAL(numbers, (NAME(ivec)){0} + closed), zero + NAN, AVEC(d + j));
            const NAME(mask) better = ALESS(now, old);
            now = APICK(better, now, old);
            *(NAME(ivec) *)(from + j) = AIPICK(better, row, *(const NAME(ivec) *)(from + j));
        }
        APUT(d + j, now);
        const NAME(mask) lower = ALESS(now, low);
        low = APICK(lower, now, low);
        low_at = AIPICK(lower, numbers, low_at);
    }
    NAME(mask) lane;
    return (ptrdiff_t)NAME(least)(low, low_at, reached, &lane);
}

/* v = the least of each column; `right` loses the lanes where a cost is NaN or -inf. */
static ALWAYS_INLINE void NAME(column_least)(const double *C, ptrdiff_t M, ptrdiff_t step,
                                             ptrdiff_t stride, double *v, NAME(mask) *right)
{
    const NAME(vec) zero = {0};
    NAME(mask) costs = *right;
    ptrdiff_t j = 0;
    /* some columns at a time, which stay in registers */
    for (; j + 4 * VLEN <= stride; j += 4 * VLEN) {
        NAME(vec) low[4] = {zero + INFINITY, zero + INFINITY, zero + INFINITY, zero + INFINITY};
        for (ptrdiff_t i = 0; i < M; ++i)
            for (int k = 0; k < 4; ++k) {
                const NAME(vec) x = AVEC(C + i * step + j + k * VLEN);
                costs &= ACOST(x);
                low[k] = APICK(ALESS(x, low[k]), x, low[k]);
            }
        for (int k = 0; k < 4; ++k)
            APUT(v + j + k * VLEN, low[k]);
    }
    for (; j < stride; j += VLEN) {
        NAME(vec) low = zero + INFINITY;
        for (ptrdiff_t i = 0; i < M; ++i) {
            const NAME(vec) x = AVEC(C + i * step + j);
            costs &= ACOST(x);
            low = APICK(ALESS(x, low), x, low);
        }
        APUT(v + j, low);
    }
    *right = costs;
}

/* Moves the potentials of a solution, M = N, away from the bounds that hold with equality, to
   where nearly the same costs leave most rows their columns.  u[i] falls and v[col_of[i]]
   rises by a third of what the slack of the column exceeds that of the row, so that no slack
   loses more than two thirds. */
static ALWAYS_INLINE void NAME(centre)(const double *C, ptrdiff_t M, ptrdiff_t step,
                                       ptrdiff_t stride, double *v, const ptrdiff_t *col_of,
                                       double *column_slack, double *row_slack)
{
    const NAME(vec) zero = {0};
    for (ptrdiff_t j = 0; j < stride; j += VLEN)
        APUT(column_slack + j, zero + INFINITY);
    for (ptrdiff_t i = 0; i < M; ++i) {
        const double *c = C + i * step;
        const NAME(ivec) own = (NAME(ivec)){0} + (long long)col_of[i];
        const double u = c[col_of[i]] - v[col_of[i]];
        NAME(ivec) numbers = *(const NAME(ivec) *)NAME(column_numbers);
        NAME(vec) low = zero + INFINITY;
        for (ptrdiff_t j = 0; j < stride; j += VLEN, numbers += VLEN) {
            const NAME(vec) slack = AVEC(c + j) - AVEC(v + j) - u;
            const NAME(vec) x = APICK(AIEQUAL(numbers, own), zero + INFINITY, slack);
            const NAME(vec) before = AVEC(column_slack + j);
            low = APICK(ALESS(x, low), x, low);
            APUT(column_slack + j, APICK(ALESS(x, before), x, before));
        }
        NAME(mask) lane;
        NAME(least)(low, numbers, row_slack + i, &lane);
    }
    for (ptrdiff_t i = 0; i < M; ++i) {
        const double by_row = row_slack[i], by_column = column_slack[col_of[i]];
        if (by_row < INFINITY && by_column < INFINITY)
            v[col_of[i]] += (by_column - by_row) / 3;
    }
}

/* A row takes its best column and lowers its potential until the second best is as good;
   the row that had the column looks again.  Returns 1 where a row has no finite cost;
   has_ties tells whether most rows had several best columns. */
static ALWAYS_INLINE int NAME(reduce)(const double *C, ptrdiff_t M, ptrdiff_t step,
                                      ptrdiff_t stride, int square, double *v,
                                      ptrdiff_t *col_of, ptrdiff_t *row_of,
                                      ptrdiff_t *free_rows, ptrdiff_t *n_free, int *has_ties)
{
    /* where rows are tied, a column without a row whose reduced cost is zero, the least of
       all where v began at the columns' least costs, is looked for before anything else */
    int tied = 0;
    ptrdiff_t n_tied = 0;
    *has_ties = 0;
    for (int round = 0; round < 2; ++round) {
        const ptrdiff_t n_now = *n_free;
        ptrdiff_t n_evicted = 0;
        *n_free = 0;
        for (ptrdiff_t k = 0; k < n_now; ++k) {
            ptrdiff_t i = free_rows[k];
            for (;;) {
                double first = 0.0, second;
                ptrdiff_t second_at, at = -1;
                if (tied)
                    at = NAME(free_tied)(C + i * step, v, row_of, stride, 0.0);
                if (at >= 0) {
                    ++n_tied;
                    row_of[at] = i;
                    col_of[i] = at;
                    break;
                }
                NAME(two_least)(C + i * step, v, stride, &first, &at, &second, &second_at);
                tied = square && first == second;
                n_tied += first == second;
                if (first == INFINITY)
                    return 1;
                ptrdiff_t evicted = row_of[at];
                if (first == second && evicted >= 0) {
                    second_at = NAME(free_tied)(C + i * step, v, row_of, stride, first);
                    at = second_at < 0 ? at : second_at;
                    evicted = row_of[at];
                } else if (second < INFINITY)
                    NAME(lower)(v, at, second - first);
                if (evicted >= 0 && (first == second || second == INFINITY)) {
                    free_rows[(*n_free)++] = i;
                    break;
                }
                row_of[at] = i;
                col_of[i] = at;
                if (evicted < 0)
                    break;
                col_of[evicted] = -1;
                ++n_evicted;
                if (round == 0 && 2 * n_evicted >= M && n_evicted > k) {
                    /* where all rows rank the columns alike, they only take them from each
                       other, and paths are as short without these potentials */
                    free_rows[(*n_free)++] = evicted;
                    while (++k < n_now)
                        free_rows[(*n_free)++] = free_rows[k];
                    return 0;
                }
                if (n_evicted > M) {
                    free_rows[(*n_free)++] = evicted;
                    break;
                }
                i = evicted;
            }
        }
    }
    *has_ties = 2 * n_tied > M;
    return 0;
}

/* Takes v[0] off the potentials; returns whether they are so far apart, relative to the costs of the
   first row, that reduced costs would lose three digits to them. */
static int NAME(shift)(const double *C, ptrdiff_t N, double *v)
{
    const double base = v[0];
    double apart = 0.0, scale = 0.0;
    for (ptrdiff_t j = 0; j < N; ++j) {
        const double c = fabs(C[j]), x = v[j] - base;
        v[j] = x;
        apart = fabs(x) > apart ? fabs(x) : apart;
        scale = c > scale && c < INFINITY ? c : scale;
    }
    return apart > 1e3 * scale;
}

/* v holds column potentials on entry, unless cold & 1; N = M then, and for sweeps of centring.
   v: stride; d, distance, from: stride; scanned: N; free_rows: M.  Returns 1 where no
   assignment is finite, 2 where a cost that was read is NaN or -INFINITY, and, where cold & 2
   has signals looked for, 3 with an exception set. */
static int NAME(assign)(const double *C, ptrdiff_t M, ptrdiff_t N, ptrdiff_t step,
                        ptrdiff_t stride, int cold, int sweeps, double *u, double *v,
                        ptrdiff_t *col_of, ptrdiff_t *row_of, double *d, double *distance,
                        long long *from, ptrdiff_t *scanned, ptrdiff_t *free_rows)
{
    const NAME(vec) zero = {0};
    NAME(mask) right = ACOST(zero);
    ptrdiff_t n_free = 0;
    int has_ties = 1;
    const int looks = cold & 2 && M >= 64;
    cold &= 1;
    for (ptrdiff_t j = N; j < stride; ++j)
        v[j] = -INFINITY;
    for (ptrdiff_t j = 0; j < N; ++j)
        row_of[j] = -1;
    if (!cold)
        cold = NAME(shift)(C, N, v);
    if (!cold) {
        int lost = 0;
        for (ptrdiff_t i = 0; i < M; ++i) {
            double first;
            const ptrdiff_t at = NAME(row_least)(C + i * step, v, stride, &first, &right);
            lost |= first == INFINITY;
            const int taken = row_of[at] >= 0;
            col_of[i] = taken ? -1 : at;
            row_of[at] = taken ? row_of[at] : i;
            free_rows[n_free] = i;
            n_free += taken;
        }
        if (!NAME(all)(right))
            return 2;
        /* potentials of other costs altogether would only lengthen the paths: arbitrary ones
           leave 1 / e of the rows or more, those of a solution a fifth at most */
        cold = lost || 4 * n_free > M + 4;
    }
    if (cold) {
        NAME(column_least)(C, M, step, stride, v, &right);
        for (ptrdiff_t j = 0; j < stride; j += VLEN)
            if (N > M)
                APUT(v + j, zero);
            else
                APUT(v + j, APICK(ALESS(AVEC(v + j), zero + INFINITY), AVEC(v + j), zero));
        if (!NAME(all)(right))
            return 2;
        for (ptrdiff_t j = N; j < stride; ++j)
            v[j] = -INFINITY;
        for (ptrdiff_t j = 0; j < N; ++j)
            row_of[j] = -1;
        for (ptrdiff_t i = 0; i < M; ++i) {
            col_of[i] = -1;
            free_rows[i] = i;
        }
        n_free = M;
        if (NAME(reduce)(C, M, step, stride, N == M, v, col_of, row_of, free_rows, &n_free,
                         &has_ties))
            return 1;
    }
    /* the rows that are left: shortest augmenting paths over reduced costs (Dijkstra) */
    for (ptrdiff_t i = 0; n_free && i < M; ++i)
        if (col_of[i] >= 0)
            u[i] = C[i * step + col_of[i]] - v[col_of[i]];
    for (ptrdiff_t k = 0; k < n_free; ++k) {
        const ptrdiff_t start = free_rows[k];
        ptrdiff_t n_scanned = 0, i = start;
        double reached;
        if (looks && k % 8 == 0 && fastm4n_look() < 0)
            return 3;
        ptrdiff_t j = NAME(relax)(1, C + i * step, v, 0.0, i, -1, stride, d, from, &reached);
        for (;;) {
            if (reached == INFINITY)
                return 1;
            i = row_of[j];
            if (i < 0)
                break;
            /* of equally near columns one without a row ends the path */
            const ptrdiff_t tied =
                has_ties ? NAME(free_tied)(d, NULL, row_of, stride, reached) : -1;
            if (tied >= 0) {
                j = tied;
                break;
            }
            scanned[n_scanned] = j;
            distance[n_scanned++] = reached;
            j = NAME(relax)(0, C + i * step, v, u[i] - reached, i, j, stride, d, from,
                            &reached);
        }
        for (ptrdiff_t s = 0; s < n_scanned; ++s)
            v[scanned[s]] += distance[s] - reached;
        scanned[n_scanned++] = j;
        for (;;) {
            const ptrdiff_t row = (ptrdiff_t)from[j], before = col_of[row];
            row_of[j] = row;
            col_of[row] = j;
            if (row == start)
                break;
            j = before;
        }
        for (ptrdiff_t s = 0; s < n_scanned; ++s) {
            const ptrdiff_t at = scanned[s], row = row_of[at];
            u[row] = C[row * step + at] - v[at];
        }
    }
    for (int sweep = 0; sweep < sweeps; ++sweep)
        NAME(centre)(C, M, step, stride, v, col_of, d, distance);
    for (ptrdiff_t i = 0; i < M; ++i)
        u[i] = C[i * step + col_of[i]] - v[col_of[i]];
    return 0;
}

#undef AVEC
#undef APUT
#undef ALANE
#undef ALESS
#undef AEQUAL
#undef ACOST
#undef AILESS
#undef AIEQUAL
#undef APICK
#undef AIPICK
