/* Recursions over chains most of whose transitions score zero, in double, included after
 * forest_template.h.
 *
 * Of the R^2 transitions only `entries` have a score; the others score 0, and are as possible as
 * any.  A sum over all sources of a label is that over its entries, and that over the others.  What
 * the others sum up to is not the sum over all labels minus that over the entries, which may
 * cancel.  The TOPS largest labels are looked up one by one, and only what is left is subtracted:
 * as soon as one of the largest is no entry, it is no less than any of the rest, and rounding is at
 * most R ulps of the sum.  Labels all of whose largest sources are entries are summed without
 * subtractions.  Labels of many entries have whole rows.
 */

#define TOPS 8
/* positions whose messages are turned at a time, a multiple of all VLEN */
#define SPAN 64

#if VLEN == 1
#define CLOAD(p) (*(p))
#define CSTORE(p, a) (*(p) = (a))
#else
#define CLOAD(p) (*(const NAME(vec) *)(p))
#define CSTORE(p, a) (*(NAME(vec) *)(p) = (a))
#endif

/* Whether a number is not zero. */
static ALWAYS_INLINE int NAME(has_numbers)(NAME(vec) x)
{
#if VLEN == 8
    return _mm512_cmp_pd_mask((__m512d)x, _mm512_setzero_pd(), _CMP_NEQ_UQ);
#elif VLEN == 4
    return _mm256_movemask_pd(_mm256_cmp_pd((__m256d)x, _mm256_setzero_pd(), _CMP_NEQ_UQ));
#elif VLEN == 2
    return x[0] != 0.0 || x[1] != 0.0;
#else
    return x != 0.0;
#endif
}

/* place = where the rows of `pair` are not zero; returns how many, -1 where more than `most`. */
static ptrdiff_t NAME(list_find)(const double *pair, ptrdiff_t R, ptrdiff_t stride,
                                 ptrdiff_t most, int *place)
{
    ptrdiff_t n = 0;
    for (ptrdiff_t i = 0; i < R; ++i)
        for (ptrdiff_t j = 0; j < R; j += VLEN) {
            const NAME(vec) x = CLOAD(pair + i * stride + j);
            if (!NAME(has_numbers)(x))
                continue;
            for (ptrdiff_t k = j; k < R && k < j + VLEN; ++k) {
                if (pair[i * stride + k] == 0.0)
                    continue;
                if (n == most)
                    return -1;
                place[n++] = (int)(i * stride + k);
            }
        }
    return n;
}

/* The lists of n places, in order, from both ends.  Labels of more than `most` entries have whole
   rows.  Scores are one after the other, or at their places. */
static void NAME(list_fill)(const int *place, ptrdiff_t n, ptrdiff_t R, ptrdiff_t stride,
                            double most, int by_place, fastm4n_lists *into, fastm4n_lists *out)
{
    fastm4n_lists *ends[2] = {into, out};
    for (int side = 0; side < 2; ++side) {
        fastm4n_lists *of = ends[side];
        of->n = n;
        of->n_few = of->n_many = 0;
        for (ptrdiff_t j = 0; j <= R; ++j)
            of->first[j] = 0;
        for (ptrdiff_t e = 0; e < n; ++e)
            ++of->first[1 + (side ? place[e] / stride : place[e] % stride)];
        for (ptrdiff_t j = 0; j < R; ++j) {
            if (of->first[j + 1] > most)
                of->many[of->n_many++] = (int)j;
            else
                of->few[of->n_few++] = (int)j;
            of->first[j + 1] += of->first[j];
        }
        for (ptrdiff_t e = 0; e < n; ++e) {
            const int i = place[e] / (int)stride, j = place[e] % (int)stride;
            const int to = of->first[side ? i : j]++;
            of->other[to] = side ? j : i;
            of->at[to] = by_place ? place[e] : (int)e;
        }
        for (ptrdiff_t j = R; j > 0; --j)
            of->first[j] = of->first[j - 1];
        of->first[0] = 0;
    }
}

/* The labels of the largest numbers, largest first; returns how many. */
static int NAME(tops)(const double *x, ptrdiff_t R, int *top)
{
    double least = 0.0;
    int n = 0;
    for (ptrdiff_t j = 0; j < R; ++j) {
        if (n == TOPS && !(x[j] > least))
            continue;
        int k = n < TOPS ? n++ : TOPS - 1;
        for (; k > 0 && x[top[k - 1]] < x[j]; --k)
            top[k] = top[k - 1];
        top[k] = (int)j;
        least = x[top[n - 1]];
    }
    return n;
}

/* mask[j] = one bit for each of the top labels that is an entry of label j; `back` has the
   entries from the other end. */
static void NAME(masks)(const fastm4n_lists *back, const int *top, int n, ptrdiff_t R,
                        unsigned char *mask)
{
    for (ptrdiff_t j = 0; j < R; ++j)
        mask[j] = 0;
    for (int k = 0; k < n; ++k)
        for (int e = back->first[top[k]]; e < back->first[top[k] + 1]; ++e)
            mask[back->other[e]] |= (unsigned char)(1 << k);
}

/* to[j] = sum_i from[i] P_ij, P being `base` where there is no entry.  P has the entries of `of`,
   and `whole` the rows of labels with many.  work has 2 stride numbers. */
static void NAME(list_sums)(const fastm4n_lists *of, const fastm4n_lists *back,
                            const double *from, ptrdiff_t R, ptrdiff_t stride, const double *P,
                            const double *whole, double base, double *work, unsigned char *mask,
                            double *to)
{
    int top[TOPS];
    const int n = NAME(tops)(from, R, top), all = (1 << n) - 1;
    double others[1 << TOPS], *rest = work, *sums = work + stride, total;
    NAME(vec) left = {0};
    NAME(masks)(back, top, n, R, mask);
    others[all] = 0.0;
    for (int m = all - 1; m >= 0; --m) {
        int k = 0;
        while (m >> k & 1)
            ++k;
        others[m] = others[m | 1 << k] + from[top[k]];
    }
    for (ptrdiff_t j = 0; j < stride; j += VLEN)
        CSTORE(rest + j, CLOAD(from + j));
    for (int k = 0; k < n; ++k)
        rest[top[k]] = 0.0;
    for (ptrdiff_t j = 0; j < stride; j += VLEN)
        left += CLOAD(rest + j);
    total = NAME(rsum_f64)(left);
    for (ptrdiff_t s = 0; s < of->n_few; ++s) {
        const int j = of->few[s], stop = of->first[j + 1];
        double sum = 0.0, known = 0.0, free = others[mask[j]];
        int e = of->first[j];
        if (mask[j] != all) {
            for (; e < stop; ++e) {
                const int i = of->other[e];
                sum += from[i] * P[e];
                known += rest[i];
            }
            free += total > known ? total - known : 0.0;
        } else {
            ptrdiff_t i = 0;
            for (; e < stop; ++e) {
                for (; i < of->other[e]; ++i)
                    free += from[i];
                sum += from[i++] * P[e];
            }
            for (; i < R; ++i)
                free += from[i];
        }
        to[j] = sum + base * free;
    }
    NAME(sum_rows)(from, of->n_many, whole, stride, sums);
    for (ptrdiff_t s = 0; s < of->n_many; ++s)
        to[of->many[s]] = sums[s];
    for (ptrdiff_t j = R; j < stride; ++j)
        to[j] = 0.0;
}

/* to[j] = unary[j] + max_i (from[i] + W_ij), W being 0 where there is no entry.  from is -inf
   behind its labels. */
static void NAME(list_best)(const fastm4n_lists *of, const fastm4n_lists *back,
                            const double *from, ptrdiff_t R, ptrdiff_t stride, const double *W,
                            const double *whole, double *work, unsigned char *mask,
                            const double *unary, double *to)
{
    int top[TOPS];
    const int n = NAME(tops)(from, R, top), all = (1 << n) - 1;
    NAME(masks)(back, top, n, R, mask);
    for (ptrdiff_t s = 0; s < of->n_few; ++s) {
        const int j = of->few[s], stop = of->first[j + 1];
        double best = -INFINITY;
        if (mask[j] != all) {
            int k = 0;
            while (mask[j] >> k & 1)
                ++k;
            best = from[top[k]];
        } else {
            ptrdiff_t i = 0;
            for (int e = of->first[j]; e <= stop; ++e, ++i)
                for (; i < (e < stop ? of->other[e] : R); ++i)
                    best = from[i] > best ? from[i] : best;
        }
        for (int e = of->first[j]; e < stop; ++e) {
            const double x = from[of->other[e]] + W[e];
            best = x > best ? x : best;
        }
        to[j] = unary[j] + best;
    }
    for (ptrdiff_t s = 0; s < of->n_many; ++s)
        work[s] = 0.0;
    NAME(max_rows)(from, of->n_many, whole, stride, work);
    for (ptrdiff_t s = 0; s < of->n_many; ++s)
        to[of->many[s]] = unary[of->many[s]] + work[s];
    for (ptrdiff_t j = R; j < stride; ++j)
        to[j] = -INFINITY;
}

/* The values of the entries in the order of `of`, and whole rows of labels with many, with `base`
   where there is no entry, and `pad` behind the labels. */
static void NAME(list_values)(const fastm4n_lists *of, const double *values, double base,
                              double pad, ptrdiff_t R, ptrdiff_t stride, double *own,
                              double *whole)
{
    for (ptrdiff_t e = 0; e < of->n; ++e)
        own[e] = values[of->at[e]];
    for (ptrdiff_t s = 0; s < of->n_many; ++s) {
        const int j = of->many[s];
        double *row = whole + s * stride;
        for (ptrdiff_t i = 0; i < stride; ++i)
            row[i] = i < R ? base : pad;
        for (int e = of->first[j]; e < of->first[j + 1]; ++e)
            row[of->other[e]] = own[e];
    }
}

/* The best scores of all labels at all positions, as `viterbi` of chain_template.h has them, to the
   bit, and their labelling.  -2: an exception is set, which ends the loop, here as below. */
static int NAME(list_viterbi)(const fastm4n_lists *into, const fastm4n_lists *out,
                              const double *unary, ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride,
                              const double *W, const double *whole, double *work,
                              unsigned char *mask, double *delta, int *path)
{
    for (ptrdiff_t j = 0; j < stride; ++j)
        delta[j] = j < R ? unary[j] : -INFINITY;
    for (ptrdiff_t t = 1; t < T; ++t) {
        if (fastm4n_look() < 0)
            return -2;
        NAME(list_best)(into, out, delta + (t - 1) * stride, R, stride, W, whole, work, mask,
                        unary + t * stride, delta + t * stride);
    }
    const double *d = delta + (T - 1) * stride;
    ptrdiff_t best = 0;
    for (ptrdiff_t i = 1; i < R; ++i)
        best = d[i] > d[best] ? i : best;
    path[T - 1] = (int)best;
    for (ptrdiff_t t = T - 2; t >= 0; --t) {
        d -= stride;
        int e = into->first[best];
        const int stop = into->first[best + 1];
        double most = -INFINITY;
        best = 0;
        for (ptrdiff_t i = 0; i < R; ++i) {
            double x = d[i];
            if (e < stop && into->other[e] == i)
                x += W[e++];
            best = x > most ? i : best;
            most = x > most ? x : most;
        }
        path[t] = (int)best;
    }
    return 0;
}

/* As `sum_product` of chain_template.h without its check: node marginals, messages and
   log-partition.  P and whole are of both ends: `into` each label, and `out` of it. */
static int NAME(list_sum_product)(const fastm4n_lists *into, const fastm4n_lists *out,
                                  ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride, double *e,
                                  const double *const *P, const double *const *whole,
                                  double base, double *work, unsigned char *mask, double *alpha,
                                  double *beta, double *scale, double *node, double *log_z)
{
    double product = 1.0, log_product = 0.0;
    for (ptrdiff_t t = 0; t < T; ++t) {
        double *a = alpha + t * stride;
        const double before = t > 0 ? scale[t - 1] : 1.0;
        NAME(vec) total = {0};
        if (fastm4n_look() < 0)
            return -2;
        if (t > 0)
            NAME(list_sums)(into, out, a - stride, R, stride, P[0], whole[0], base, work, mask,
                            a);
        for (ptrdiff_t j = 0; j < stride; j += VLEN) {
            NAME(vec) x = CLOAD(e + t * stride + j);
            if (t > 0)
                x *= CLOAD(a + j) * before;
            CSTORE(a + j, x);
            total += x;
        }
        const double c = NAME(rsum_f64)(total);
        if (!(c > 0))
            return 1;
        scale[t] = 1 / c;
        product *= c;
        if (product < 1e-100 || product > 1e100) {
            log_product += log(product);
            product = 1.0;
        }
    }
    *log_z = log_product + log(product);
    for (ptrdiff_t j = 0; j < stride; ++j)
        beta[j] = j < R ? 1 : 0;
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        double *a = alpha + t * stride, *g = e + t * stride;
        if (fastm4n_look() < 0)
            return -2;
        NAME(meet_f64)(t, stride, scale[t], scale[t], a, beta, g, node + t * stride);
        if (t > 0)
            NAME(list_sums)(out, into, g, R, stride, P[1], whole[1], base, work, mask, beta);
    }
    return 0;
}

/* sums[e] = P[e] sum_t alpha[t][i] g[t + 1][j] for the entries i, j of `out`.  turned has
   2 R SPAN numbers: the messages of some positions, label by label. */
static int NAME(list_edges)(const fastm4n_lists *out, ptrdiff_t T, ptrdiff_t R,
                            ptrdiff_t stride, const double *alpha, const double *g,
                            const double *P, double *turned, double *sums)
{
    double *one = turned, *other = turned + R * SPAN;
    for (ptrdiff_t e = 0; e < out->n; ++e)
        sums[e] = 0.0;
    for (ptrdiff_t start = 0; start + 1 < T; start += SPAN) {
        const ptrdiff_t n = T - 1 - start < SPAN ? T - 1 - start : SPAN;
        const ptrdiff_t width = (n + VLEN - 1) / VLEN * VLEN;
        if (fastm4n_look() < 0)
            return -2;
        for (ptrdiff_t t = 0; t < width; ++t)
            for (ptrdiff_t j = 0; j < R; ++j) {
                one[j * width + t] = t < n ? alpha[(start + t) * stride + j] : 0.0;
                other[j * width + t] = t < n ? g[(start + t + 1) * stride + j] : 0.0;
            }
        for (ptrdiff_t i = 0; i < R; ++i)
            for (int e = out->first[i]; e < out->first[i + 1]; ++e) {
                const double *a = one + i * width, *b = other + out->other[e] * width;
                NAME(vec) total = CLOAD(a) * CLOAD(b);
                for (ptrdiff_t t = VLEN; t < width; t += VLEN)
                    total += CLOAD(a + t) * CLOAD(b + t);
                sums[e] += NAME(rsum_f64)(total);
            }
    }
    for (ptrdiff_t e = 0; e < out->n; ++e)
        sums[e] *= P[e];
    return 0;
}

/* out = exp(x - shift) for n numbers no larger than shift, padded to whole vectors. */
static void NAME(list_exp)(const double *x, ptrdiff_t n, double shift, double *out)
{
    for (ptrdiff_t e = 0; e < n; e += VLEN)
        CSTORE(out + e, NAME(vexp)(NAME(row_vector_f64)(x + e, n - e, shift) - shift));
}

static const fastm4n_sparse_chain NAME(sparse_chain_table) = {
    NAME(list_find),    NAME(list_fill),        NAME(list_values), NAME(list_exp),
    NAME(list_viterbi), NAME(list_sum_product), NAME(list_edges),
};

#undef CLOAD
#undef CSTORE
#undef TOPS
#undef SPAN
