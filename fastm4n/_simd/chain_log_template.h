/* Sum-product of chains whose scores lie too far apart for probability space: a part of
 * chain_template.h, whose names it uses.
 *
 * Messages are logarithms, in double for scores of either type, each row relative to its
 * largest entry.  A step along the chain is log sum_i exp(from[i] + pair[i][j]).  That takes an
 * exponential for each pair of labels, or, where exponentials of the row and of the matrix do
 * not underflow together, one for each label: log sum_i exp(from[i]) exp(pair[i][j]).  Which of
 * both is decided for each sum by what it comes to: exponentials are at most 1, and those that
 * were lost, below 1e-307, are nothing beside a sum of DLEAST.  So labels and transitions that
 * are masked by scores like -1e9 cost no more than others, unless nothing else is left.
 */

#if VLEN == 1
#define DLOAD(p) (*(p))
#define DSTORE(p, a) (*(p) = (a))
#define DSELECT(mask, a, b) ((mask) ? (a) : (b))
#define DMAX(a, b) ((a) > (b) ? (a) : (b))
#else
#define DLOAD(p) (*(const NAME(vec) *)(p))
#define DSTORE(p, a) (*(NAME(vec) *)(p) = (a))
#define DSELECT(mask, a, b) NAME(select)((NAME(ivec))(mask), a, b)
#define DMAX(a, b) NAME(rmax_f64)(a, b)
#endif

/* sums not below this have lost nothing, for less than 1e9 labels */
#define DLEAST 1e-280
/* the largest score of transitions may be taken off and added again if it is within this: that
   leaves a rounding of 1e-13, and logarithms of sums, of up to 645, leave as much themselves.
   A larger one might cancel what it is added to, and the order of additions would matter. */
#define DLARGE 1024.0

/* out = x in double, with -inf behind the labels */
static ALWAYS_INLINE void RNAME(log_scores)(const REAL *x, ptrdiff_t R, ptrdiff_t stride,
                                            double *out)
{
    for (ptrdiff_t j = 0; j < R; ++j)
        out[j] = (double)x[j];
    for (ptrdiff_t j = R; j < stride; ++j)
        out[j] = -INFINITY;
}

static ALWAYS_INLINE double RNAME(log_top)(const double *x, ptrdiff_t stride)
{
    NAME(vec) top = DLOAD(x);
    for (ptrdiff_t j = VLEN; j < stride; j += VLEN)
        top = DMAX(top, DLOAD(x + j));
    return NAME(rtop_f64)(top);
}

/* out = exp(x - top), top being no less than any x; returns their sum */
static ALWAYS_INLINE double RNAME(log_exp)(const double *x, ptrdiff_t stride, double top,
                                           double *out)
{
    NAME(vec) total = {0};
    for (ptrdiff_t j = 0; j < stride; j += VLEN) {
        const NAME(vec) p = NAME(vexp)(DLOAD(x + j) - top);
        DSTORE(out + j, p);
        total += p;
    }
    return NAME(rsum_f64)(total);
}

/* M = pair in double, with -inf behind the labels, P = exp(M - its largest entry), and PT,
   unless it is NULL, the transpose of P.  Returns that entry, or 0 and zeros as P where it is
   not within DLARGE: every sum is one of exponentials of its own then. */
static double RNAME(log_matrix)(const REAL *pair, ptrdiff_t R, ptrdiff_t stride, double *M,
                                double *P, double *PT)
{
    for (ptrdiff_t i = 0; i < R; ++i)
        RNAME(log_scores)(pair + i * stride, R, stride, M + i * stride);
    double top = RNAME(log_top)(M, R * stride);
    if (top >= -DLARGE && top <= DLARGE)
        RNAME(log_exp)(M, R * stride, top, P);
    else {
        top = 0.0;
        for (ptrdiff_t j = 0; j < R * stride; ++j)
            P[j] = 0.0;
    }
    for (ptrdiff_t i = 0; PT && i < R; ++i)
        for (ptrdiff_t j = 0; j < stride; ++j)
            PT[i * stride + j] = j < R ? P[j * stride + i] : 0.0;
    return top;
}

/* to[j] = log sum_i exp(from[i] + M[i][j]), a being exp(from), M and P of `log_matrix`, and
   shift what it returned.  O(R^2). */
static void RNAME(log_step)(ptrdiff_t R, ptrdiff_t stride, const double *from, const double *a,
                            const double *M, const double *P, double shift, double *to)
{
    const NAME(vec) zero = {0}, none = zero - INFINITY;
    NAME(matvec_f64)(a, P, R, stride, NULL, 1, to);
    for (ptrdiff_t j = 0; j < stride; j += VLEN) {
        NAME(vec) sum = NAME(row_vector_f64)(to + j, R - j, 1.0);
        if (-NAME(rtop_f64)(-sum) >= DLEAST) {
            DSTORE(to + j, shift + NAME(vlog)(sum));
            continue;
        }
        NAME(vec) top = none;
        for (ptrdiff_t i = 0; i < R; ++i)
            top = DMAX(top, from[i] + DLOAD(M + i * stride + j));
        /* a label without a way to it has nothing to take off */
        const NAME(vec) off = DSELECT(top > none, top, zero);
        sum = zero;
        for (ptrdiff_t i = 0; i < R; ++i)
            sum += NAME(vexp)(from[i] + DLOAD(M + i * stride + j) - off);
        DSTORE(to + j, DSELECT(top > none, top + NAME(vlog)(sum), none));
    }
}

/* log sum_j exp(row[j] + u[j] + b[j]) */
static double RNAME(log_row)(ptrdiff_t stride, const double *row, const double *u,
                             const double *b)
{
    NAME(vec) most = DLOAD(row) + DLOAD(u) + DLOAD(b), total = {0};
    for (ptrdiff_t j = VLEN; j < stride; j += VLEN)
        most = DMAX(most, DLOAD(row + j) + DLOAD(u + j) + DLOAD(b + j));
    const double top = NAME(rtop_f64)(most);
    if (!(top > -INFINITY))
        return -INFINITY;
    for (ptrdiff_t j = 0; j < stride; j += VLEN)
        total += NAME(vexp)(DLOAD(row + j) + DLOAD(u + j) + DLOAD(b + j) - top);
    return top + log(NAME(rsum_f64)(total));
}

/* out[i][j] = exp(f[i] + M[i][j] + u[j] + b[j] - the largest of these); returns their sum */
static double RNAME(log_edge)(ptrdiff_t R, ptrdiff_t stride, const double *f, const double *M,
                              const double *u, const double *b, double *out)
{
    for (ptrdiff_t i = 0; i < R; ++i)
        for (ptrdiff_t j = 0; j < stride; j += VLEN)
            DSTORE(out + i * stride + j,
                   f[i] + DLOAD(M + i * stride + j) + DLOAD(u + j) + DLOAD(b + j));
    return RNAME(log_exp)(out, R * stride, RNAME(log_top)(out, R * stride), out);
}

/* Node and edge marginals and the log-partition, of any finite scores and -inf.

   unary (T rows, `step` apart) and pair are scores, not exponentials.  node (T, stride);
   edge_sum, unless NULL, the sum of the edge marginals (R, stride), for a pair_step of 0;
   edges, unless NULL, all of them (T - 1, R, stride).  work has room for (3 T + 5 R + 5) stride
   + 8 numbers.  Returns 2 where no labelling has a finite score, -2 where an exception ends it.  O(T R^2): 3 R exponentials
   and 2 R logarithms a position where scores allow, 3 R^2 exponentials where they do not, and
   2 R^2 more where each edge has a matrix of its own. */
static int RNAME(log_sum_product)(const REAL *unary, ptrdiff_t step, ptrdiff_t T, ptrdiff_t R,
                                  ptrdiff_t stride, const REAL *pair, ptrdiff_t pair_step,
                                  double *work, REAL *node, REAL *edge_sum, REAL *edges,
                                  double *log_z)
{
    const NAME(vec) zero = {0}, none = zero - INFINITY;
    const ptrdiff_t matrix = R * stride;
    /* whole lines of the cache */
    double *forward = (double *)(((size_t)work + 63) / 64 * 64);
    double *alpha = forward + T * stride; /* their exponentials */
    double *g = alpha + T * stride;       /* see below */
    double *M = g + T * stride, *P = M + matrix, *PT = P + matrix;
    double *edge = PT + matrix, *sums = edge + matrix;
    double *u = sums + matrix, *sum = u + stride, *row = sum + stride;
    double *b = row + stride, *later = b + stride;
    double shift = 0.0, of_pair = 0.0;
    if (T > 1 && pair_step == 0)
        of_pair = RNAME(log_matrix)(pair, R, stride, M, P, PT);
    for (ptrdiff_t t = 0; t < T; ++t) {
        double *f = forward + t * stride;
        if (R * stride >= FASTM4N_LOOKED_AT && fastm4n_look() < 0)
            return -2;
        RNAME(log_scores)(unary + t * step, R, stride, u);
        if (t > 0) {
            if (pair_step)
                of_pair = RNAME(log_matrix)(pair + (t - 1) * pair_step, R, stride, M, P, NULL);
            RNAME(log_step)(R, stride, f - stride, alpha + (t - 1) * stride, M, P, of_pair, f);
        }
        for (ptrdiff_t j = 0; j < stride; j += VLEN)
            DSTORE(f + j, DLOAD(u + j) + (t > 0 ? DLOAD(f + j) : zero));
        const double top = RNAME(log_top)(f, stride);
        if (top == -INFINITY)
            return 2;
        shift += top;
        for (ptrdiff_t j = 0; j < stride; j += VLEN)
            DSTORE(f + j, DLOAD(f + j) - top);
        const double total = RNAME(log_exp)(f, stride, 0.0, alpha + t * stride);
        if (t == T - 1)
            *log_z = shift + log(total);
    }
    if (edge_sum)
        for (ptrdiff_t j = 0; j < matrix; ++j)
            sums[j] = 0.0;
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        const double *f = forward + t * stride, *a = alpha + t * stride;
        if (R * stride >= FASTM4N_LOOKED_AT && fastm4n_look() < 0)
            return -2;
        if (t == T - 1)
            for (ptrdiff_t j = 0; j < stride; ++j)
                b[j] = j < R ? 0.0 : -INFINITY;
        else {
            /* what comes behind: g = exp(u + later - its largest entry) */
            double *next = g + (t + 1) * stride, *rest = later;
            later = b;
            b = rest;
            if (pair_step)
                of_pair = RNAME(log_matrix)(pair + t * pair_step, R, stride, M, P, PT);
            RNAME(log_scores)(unary + (t + 1) * step, R, stride, u);
            for (ptrdiff_t j = 0; j < stride; j += VLEN)
                DSTORE(row + j, DLOAD(u + j) + DLOAD(later + j));
            const double behind = RNAME(log_top)(row, stride);
            RNAME(log_exp)(row, stride, behind, next);
            NAME(matvec_f64)(next, PT, R, stride, NULL, 1, sum);
            NAME(vec) least = zero + 1.0, inner = zero;
            for (ptrdiff_t i = 0; i < stride; i += VLEN) {
                const NAME(vec) s = DLOAD(sum + i);
                /* labels that cannot be reached send nothing back */
                const NAME(ivec) reached = (NAME(ivec))(DLOAD(f + i) > none);
                least = -DMAX(-least, -DSELECT(reached, s, zero + 1.0));
                inner += DLOAD(a + i) * s;
                DSTORE(b + i, DSELECT(reached, of_pair + behind + NAME(vlog)(s), none));
            }
            if (!(-NAME(rtop_f64)(-least) >= DLEAST))
                for (ptrdiff_t i = 0; i < R; ++i)
                    if (f[i] > -INFINITY && !(sum[i] >= DLEAST))
                        b[i] = RNAME(log_row)(stride, M + i * stride, u, later);
            const double top = RNAME(log_top)(b, stride);
            for (ptrdiff_t j = 0; j < stride; j += VLEN)
                DSTORE(b + j, DLOAD(b + j) - top);
            /* sum_ij a[i] P[i][j] g[j] is what edge marginals are divided by */
            double total = NAME(rsum_f64)(inner), factor = 0.0;
            const int product = total >= DLEAST;
            if (product)
                factor = 1.0 / total;
            for (ptrdiff_t j = 0; j < stride; j += VLEN)
                DSTORE(next + j, factor * DLOAD(next + j));
            if (edges && product)
                NAME(edge_f64)(R, stride, a, next, P, edge);
            if (!product && (edges || edge_sum)) {
                total = RNAME(log_edge)(R, stride, f, M, u, later, edge);
                for (ptrdiff_t j = 0; j < matrix; ++j)
                    edge[j] /= total;
                for (ptrdiff_t j = 0; edge_sum && j < matrix; ++j)
                    sums[j] += edge[j];
            }
            for (ptrdiff_t j = 0; edges && j < matrix; ++j)
                edges[t * matrix + j] = (REAL)edge[j];
        }
        /* relative to the largest term and not to the logarithm of the sum, which that of a few
           terms of equal size vanishes in where they are large */
        for (ptrdiff_t j = 0; j < stride; j += VLEN)
            DSTORE(row + j, DLOAD(f + j) + DLOAD(b + j));
        const double total = RNAME(log_exp)(row, stride, RNAME(log_top)(row, stride), row);
        for (ptrdiff_t j = 0; j < stride; ++j)
            node[t * stride + j] = (REAL)(row[j] / total);
    }
    if (edge_sum) {
        if (T > 1 && NAME(edge_sum_f64)(T, R, stride, alpha, g, P, edge) < 0)
            return -2;
        for (ptrdiff_t j = 0; j < matrix; ++j)
            edge_sum[j] = (REAL)(T > 1 ? sums[j] + edge[j] : 0.0);
    }
    return 0;
}

#undef DLOAD
#undef DSTORE
#undef DSELECT
#undef DMAX
#undef DLEAST
#undef DLARGE
