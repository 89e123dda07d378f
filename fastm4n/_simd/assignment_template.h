/* Linear assignment in double, included by loops_dispatch.h after loops_template.h, once
 * per target.
 *
 *   min sum_i C[i][col_of[i]]  over distinct columns,  M rows and N >= M columns
 *   max sum_i u[i] + sum_j v[j]  s.t.  u[i] + v[j] <= C[i][j],  and v <= 0 where N > M
 *
 * Rows of C are `stride` doubles long, a multiple of VLEN, with +INFINITY behind the N columns
 * and wherever a pair is forbidden.  Shortest augmenting paths with potentials, after a
 * reduction by rows (Jonker and Volgenant 1987); the loops run over columns, whole vectors
 * at a time.  O(M^2 N) at worst.
 */

#if VLEN == 1
#define AVEC(p) (*(p))
#define APUT(p, a) (*(p) = (a))
#define ALANE(a, i) (a)
#define APICK(mask, a, b) ((mask) ? (a) : (b))
#define AIPICK(mask, a, b) ((mask) ? (a) : (b))
#else
#define AVEC(p) (*(const NAME(vec) *)(p))
#define APUT(p, a) (*(NAME(vec) *)(p) = (a))
#define ALANE(a, i) ((a)[i])
#define APICK(mask, a, b) NAME(select)((NAME(ivec))(mask), a, b)
#define AIPICK(mask, a, b) (((a) & (NAME(ivec))(mask)) | ((b) & ~(NAME(ivec))(mask)))
#endif

static const long long NAME(column_numbers)[8] = {0, 1, 2, 3, 4, 5, 6, 7};

/* The smallest lane and its number; of equal ones the smallest number. */
static ALWAYS_INLINE ptrdiff_t NAME(least)(NAME(vec) value, NAME(ivec) number, double *least)
{
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
    return (ptrdiff_t)at;
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
        const NAME(ivec) lower = (NAME(ivec))(x < low), lower_next = (NAME(ivec))(x < next);
        next = APICK(lower, low, APICK(lower_next, x, next));
        next_at = AIPICK(lower, low_at, AIPICK(lower_next, numbers, next_at));
        low = APICK(lower, x, low);
        low_at = AIPICK(lower, numbers, low_at);
    }
    *at = NAME(least)(low, low_at, first);
    /* the second one is the next of that lane, or the lowest of another */
    *second = INFINITY;
    *second_at = *at;
    for (int i = 0; i < VLEN; ++i) {
        const int same = ALANE(low_at, i) == *at && ALANE(low, i) == *first;
        const double x = same ? ALANE(next, i) : ALANE(low, i);
        if (x < *second) {
            *second = x;
            *second_at = (ptrdiff_t)(same ? ALANE(next_at, i) : ALANE(low_at, i));
        }
    }
}

/* Of equally near columns one without a row is next: it ends the path, where costs are tied. */
#define HAS_ROW ((long long)1 << 40)

/* v holds column potentials on entry (zeros where N > M), unless cold.  d, closed: stride;
   from: 2 stride; scanned: N; free_rows: M.  Returns 1 where no assignment is finite. */
static int NAME(assign)(const double *C, ptrdiff_t M, ptrdiff_t N, ptrdiff_t stride, int cold,
                        double *u, double *v, ptrdiff_t *col_of, ptrdiff_t *row_of, double *d,
                        double *closed, long long *from, ptrdiff_t *scanned, ptrdiff_t *free_rows)
{
    const NAME(vec) zero = {0};
    ptrdiff_t n_free = M;
    if (cold)
        for (ptrdiff_t j = 0; j < stride; j += VLEN) {
            NAME(vec) low = zero + INFINITY;
            for (ptrdiff_t i = 0; i < M; ++i) {
                const NAME(vec) x = AVEC(C + i * stride + j);
                low = APICK(x < low, x, low);
            }
            APUT(v + j, N > M ? zero : APICK(low < zero + INFINITY, low, zero));
        }
    for (ptrdiff_t j = 0; j < N; ++j)
        row_of[j] = -1;
    for (ptrdiff_t i = 0; i < M; ++i) {
        col_of[i] = -1;
        free_rows[i] = i;
    }
    /* a row takes its best column and lowers its potential until the second best is as good;
       the row that had the column looks again */
    for (int round = 0; round < 2; ++round) {
        const ptrdiff_t n_now = n_free;
        ptrdiff_t budget = 4 * M;
        n_free = 0;
        for (ptrdiff_t k = 0; k < n_now; ++k) {
            ptrdiff_t i = free_rows[k];
            for (;;) {
                double first, second;
                ptrdiff_t at, second_at;
                NAME(two_least)(C + i * stride, v, stride, &first, &at, &second, &second_at);
                if (first == INFINITY)
                    return 1;
                ptrdiff_t evicted = row_of[at];
                if (first == second && evicted >= 0) {
                    at = second_at;
                    evicted = row_of[at];
                } else if (second < INFINITY)
                    v[at] -= second - first;
                if (evicted >= 0 && (first == second || second == INFINITY)) {
                    free_rows[n_free++] = i;
                    break;
                }
                row_of[at] = i;
                col_of[i] = at;
                if (evicted < 0)
                    break;
                col_of[evicted] = -1;
                if (--budget < 0) {
                    free_rows[n_free++] = evicted;
                    break;
                }
                i = evicted;
            }
        }
    }
    long long *rank = from + stride;
    for (ptrdiff_t j = 0; j < stride; ++j)
        rank[j] = j < N && row_of[j] >= 0 ? j + HAS_ROW : j;
    /* the rows that are left: shortest augmenting paths over reduced costs (Dijkstra) */
    for (ptrdiff_t k = 0; k < n_free; ++k) {
        const ptrdiff_t start = free_rows[k];
        ptrdiff_t n_scanned = 0, i = start, sink = -1;
        double reached = 0.0, offset = 0.0;
        for (ptrdiff_t j = 0; j < stride; j += VLEN) {
            APUT(d + j, zero + INFINITY);
            APUT(closed + j, zero);
        }
        while (sink < 0) {
            const double *c = C + i * stride;
            NAME(vec) low = zero + INFINITY;
            NAME(ivec) low_at = (NAME(ivec)){0};
            for (ptrdiff_t j = 0; j < stride; j += VLEN) {
                const NAME(ivec) number = *(const NAME(ivec) *)(rank + j);
                const NAME(vec) old = AVEC(d + j), shut = AVEC(closed + j);
                const NAME(vec) x = AVEC(c + j) - AVEC(v + j) - offset + shut;
                const NAME(ivec) better = (NAME(ivec))(x < old);
                const NAME(vec) now = APICK(better, x, old);
                APUT(d + j, now);
                *(NAME(ivec) *)(from + j) = AIPICK(
                    better, (NAME(ivec)){0} + (long long)i, *(const NAME(ivec) *)(from + j));
                const NAME(vec) open = now + shut;
                const NAME(ivec) lower =
                    (NAME(ivec))(open < low) |
                    ((NAME(ivec))(open == low) & (NAME(ivec))(number < low_at));
                low = APICK(lower, open, low);
                low_at = AIPICK(lower, number, low_at);
            }
            const ptrdiff_t j = NAME(least)(low, low_at, &reached) & (HAS_ROW - 1);
            if (reached == INFINITY)
                return 1;
            closed[j] = INFINITY;
            scanned[n_scanned++] = j;
            if (row_of[j] < 0)
                sink = j;
            else {
                i = row_of[j];
                offset = C[i * stride + j] - v[j] - reached;
            }
        }
        for (ptrdiff_t s = 0; s < n_scanned - 1; ++s)
            v[scanned[s]] += d[scanned[s]] - reached;
        for (ptrdiff_t j = sink;;) {
            const ptrdiff_t row = (ptrdiff_t)from[j], before = col_of[row];
            row_of[j] = row;
            col_of[row] = j;
            if (row == start)
                break;
            j = before;
        }
        rank[sink] += HAS_ROW;
    }
    for (ptrdiff_t i = 0; i < M; ++i)
        u[i] = C[i * stride + col_of[i]] - v[col_of[i]];
    return 0;
}

#undef HAS_ROW
#undef AVEC
#undef APUT
#undef ALANE
#undef APICK
#undef AIPICK
