/* Messages along one edge of a graph, in double, included by loops_dispatch.h after chain_types.h.
 *
 * The table of an edge is `pair`, rows of `stride` numbers, a multiple of VLEN: the score of label
 * i of the first node and label j of the second is pair[i stride + j].  What a message is made of,
 * `from`, is `stride` long: behind its labels there is -inf in max-sum, and 0 in sum-product.  What
 * stands behind the labels of `pair` is finite or -inf.  Messages go either way without a
 * transpose: to the second node ("columns"), or to the first ("rows").
 */

#if VLEN == 1
#define FLOAD(p) (*(p))
#define FSTORE(p, a) (*(p) = (a))
#define FMAX(a, b) ((a) > (b) ? (a) : (b))
#else
#define FLOAD(p) (*(const NAME(vec) *)(p))
#define FSTORE(p, a) (*(NAME(vec) *)(p) = (a))
#define FMAX(a, b) NAME(rmax_f64)(a, b)
#endif

static ALWAYS_INLINE void NAME(max_columns_tile)(const int K, const double *from, ptrdiff_t n,
                                                 const double *pair, ptrdiff_t stride,
                                                 double *to)
{
    NAME(vec) best[2][4];
    ptrdiff_t i = 0;
    for (int k = 0; k < K; ++k)
        best[0][k] = best[1][k] = from[0] + FLOAD(pair + k * VLEN);
    for (; i + 2 <= n; i += 2, pair += 2 * stride) {
        const double x0 = from[i], x1 = from[i + 1];
        for (int k = 0; k < K; ++k) {
            best[0][k] = FMAX(best[0][k], x0 + FLOAD(pair + k * VLEN));
            best[1][k] = FMAX(best[1][k], x1 + FLOAD(pair + stride + k * VLEN));
        }
    }
    if (i < n)
        for (int k = 0; k < K; ++k)
            best[0][k] = FMAX(best[0][k], from[i] + FLOAD(pair + k * VLEN));
    for (int k = 0; k < K; ++k)
        FSTORE(to + k * VLEN, FLOAD(to + k * VLEN) + FMAX(best[0][k], best[1][k]));
}

/* to[j] += max over i < n of from[i] + pair[i stride + j], for all j < stride */
static void NAME(max_columns)(const double *from, ptrdiff_t n, const double *pair,
                              ptrdiff_t stride, double *to)
{
    ptrdiff_t j = 0;
    for (; j + 4 * VLEN <= stride; j += 4 * VLEN)
        NAME(max_columns_tile)(4, from, n, pair + j, stride, to + j);
    if (j + 3 * VLEN <= stride) {
        NAME(max_columns_tile)(3, from, n, pair + j, stride, to + j);
        j += 3 * VLEN;
    }
    if (j + 2 * VLEN <= stride) {
        NAME(max_columns_tile)(2, from, n, pair + j, stride, to + j);
        j += 2 * VLEN;
    }
    if (j < stride)
        NAME(max_columns_tile)(1, from, n, pair + j, stride, to + j);
}

/* to[i] += max over j < stride of from[j] + pair[i stride + j], for i < n; four rows at a time,
   so that their ends do not wait for one another */
static void NAME(max_rows)(const double *from, ptrdiff_t n, const double *pair,
                           ptrdiff_t stride, double *to)
{
    ptrdiff_t i = 0;
    for (; i + 4 <= n; i += 4, pair += 4 * stride) {
        NAME(vec) x = FLOAD(from), best[4];
        for (int r = 0; r < 4; ++r)
            best[r] = x + FLOAD(pair + r * stride);
        for (ptrdiff_t j = VLEN; j < stride; j += VLEN) {
            x = FLOAD(from + j);
            for (int r = 0; r < 4; ++r)
                best[r] = FMAX(best[r], x + FLOAD(pair + r * stride + j));
        }
        for (int r = 0; r < 4; ++r)
            to[i + r] += NAME(rtop_f64)(best[r]);
    }
    for (; i < n; ++i, pair += stride) {
        NAME(vec) best = FLOAD(from) + FLOAD(pair);
        for (ptrdiff_t j = VLEN; j < stride; j += VLEN)
            best = FMAX(best, FLOAD(from + j) + FLOAD(pair + j));
        to[i] += NAME(rtop_f64)(best);
    }
}

/* The first label at which a + b is largest, of `stride` of them; a is -inf behind its labels. */
static ptrdiff_t NAME(argmax_sum)(const double *a, const double *b, ptrdiff_t stride)
{
#if VLEN == 1
    ptrdiff_t best = 0;
    for (ptrdiff_t j = 1; j < stride; ++j)
        best = a[j] + b[j] > a[best] + b[best] ? j : best;
    return best;
#else
    NAME(vec) top = FLOAD(a) + FLOAD(b);
    for (ptrdiff_t j = VLEN; j < stride; j += VLEN)
        top = FMAX(top, FLOAD(a + j) + FLOAD(b + j));
    const double most = NAME(rtop_f64)(top);
    for (ptrdiff_t j = 0; j < stride; j += VLEN) {
        const unsigned found = NAME(equal_lanes_f64)(FLOAD(a + j) + FLOAD(b + j), most);
        if (found)
            return j + __builtin_ctz(found);
    }
    return 0;
#endif
}

/* to[i] = sum over j < stride of from[j] M[i stride + j], for i < n */
static void NAME(sum_rows)(const double *from, ptrdiff_t n, const double *M, ptrdiff_t stride,
                           double *to)
{
    ptrdiff_t i = 0;
    for (; i + 4 <= n; i += 4, M += 4 * stride) {
        NAME(vec) total[4];
        for (int r = 0; r < 4; ++r)
            total[r] = (NAME(vec)){0};
        for (ptrdiff_t j = 0; j < stride; j += VLEN) {
            const NAME(vec) x = FLOAD(from + j);
            for (int r = 0; r < 4; ++r)
                total[r] += x * FLOAD(M + r * stride + j);
        }
        for (int r = 0; r < 4; ++r)
            to[i + r] = NAME(rsum_f64)(total[r]);
    }
    for (; i < n; ++i, M += stride) {
        NAME(vec) total = {0};
        for (ptrdiff_t j = 0; j < stride; j += VLEN)
            total += FLOAD(from + j) * FLOAD(M + j);
        to[i] = NAME(rsum_f64)(total);
    }
}

/* out = exp(x - max x), `stride` of them; returns the maximum, and zeros where that is -inf */
static double NAME(exp_shifted)(const double *x, ptrdiff_t stride, double *out)
{
    NAME(vec) high = FLOAD(x);
    for (ptrdiff_t j = VLEN; j < stride; j += VLEN)
        high = FMAX(high, FLOAD(x + j));
    const double top = NAME(rtop_f64)(high);
    for (ptrdiff_t j = 0; j < stride; j += VLEN) {
        if (top > -INFINITY)
            FSTORE(out + j, NAME(vexp)(FLOAD(x + j) - top));
        else
            FSTORE(out + j, (NAME(vec)){0});
    }
    return top;
}

/* to += log(x), numbers below the smallest normal double counting as that */
static void NAME(add_logs)(const double *x, ptrdiff_t stride, double *to)
{
    for (ptrdiff_t j = 0; j < stride; j += VLEN)
        FSTORE(to + j, FLOAD(to + j) + NAME(vlog)(FLOAD(x + j)));
}

/* out[i stride + j] += weight a[i] P[i stride + j] b[j] for i < n: the marginals of one edge */
static void NAME(add_edge)(const double *a, ptrdiff_t n, const double *P, ptrdiff_t stride,
                           const double *b, double weight, double *out)
{
    for (ptrdiff_t i = 0; i < n; ++i) {
        const double x = weight * a[i];
        for (ptrdiff_t j = 0; j < stride; j += VLEN)
            FSTORE(out + i * stride + j,
                   FLOAD(out + i * stride + j) + x * FLOAD(P + i * stride + j) * FLOAD(b + j));
    }
}

static const fastm4n_forest NAME(forest_table) = {
    NAME(max_columns), NAME(max_rows), NAME(argmax_sum), NAME(sum_rows),
    NAME(exp_shifted), NAME(add_logs), NAME(add_edge),
};

#undef FLOAD
#undef FSTORE
#undef FMAX
