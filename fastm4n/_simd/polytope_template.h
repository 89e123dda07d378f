/* Primal-dual steps over the local polytope, in double, included by loops_dispatch.h after
 * loops_template.h, once per target.
 *
 * With marginals p_i of nodes, tables q_e of edges and messages d of the ends of edges,
 *
 *   min over d of max over p, q >= 0 of  sum_e <t_e - d_e,i - d_e,j, q_e> + ...,
 *
 * where the messages see q_e 1 - p_i and q_e' 1 - p_j.  A step of q goes along t - d, one of d
 * along these differences at the extrapolated point, 2 T(q) - q; both are then drawn to the start,
 * z = keep (2 T(z) - z) + (1 - keep) z_first.  The caller has made the step of p.
 *
 * Rows are `stride` numbers, a multiple of VLEN.  What stands behind the labels of t may be
 * anything, and q stays zero there.
 */

#if VLEN == 1
#define PLOAD(p) (*(p))
#define PSTORE(p, a) (*(p) = (a))
#define PMAX(a, b) ((a) > (b) ? (a) : (b))
#else
#define PLOAD(p) (*(const NAME(vec) *)(p))
#define PSTORE(p, a) (*(NAME(vec) *)(p) = (a))
#define PMAX(a, b) NAME(rmax_f64)(a, b)
#endif

/* zero behind the first n > 0 lanes */
static ALWAYS_INLINE NAME(vec) NAME(only)(NAME(vec) x, ptrdiff_t n)
{
#if VLEN == 8
    return n >= 8 ? x : (NAME(vec))_mm512_maskz_mov_pd((__mmask8)((1u << n) - 1), (__m512d)x);
#elif VLEN == 4
    return (NAME(vec))_mm256_and_pd(
        (__m256d)x, _mm256_castsi256_pd(_mm256_cmpgt_epi64(_mm256_set1_epi64x(n),
                                                           _mm256_setr_epi64x(0, 1, 2, 3))));
#elif VLEN == 2
    const NAME(vec) first = {x[0], 0.0};
    return n >= 2 ? x : first;
#else
    (void)n;
    return x;
#endif
}

static ALWAYS_INLINE double NAME(polytope_steps)(const int single, const fastm4n_polytope *w,
                                                 double keep, const int publish)
{
    const ptrdiff_t stride = single ? VLEN : w->stride, table = stride * stride;
    const double step = 0.5 * w->scale, leave = 1.0 - keep;
    const NAME(vec) zero = {0};
    NAME(vec) moved = {0};
    double length = 0.0;
    for (ptrdiff_t e = 0; e < w->n_edges; ++e) {
        if (fastm4n_look_at(e) < 0)
            return -1.0;
        const ptrdiff_t i = w->edges[2 * e], j = w->edges[2 * e + 1];
        const ptrdiff_t n_a = w->sizes[i], n_b = w->sizes[j];
        /* the messages to either end: scalars of rows, and vectors of columns */
        const ptrdiff_t at = 2 * e * stride, to = at + stride;
        const double size_a = (double)(1 + n_b) * w->scale,
                     size_b = (double)(1 + n_a) * w->scale;
        const double step_a = 1.0 / size_a, step_b = 1.0 / size_b;
        const double *t = w->tables + (w->places ? w->places[e] : e * table);
        const double *first = w->q_first + e * table;
        double *q = w->q + e * table, *next = w->q_next + e * table, *columns = w->columns;
        double moved_a = 0.0;
        NAME(vec) moved_b = {0};
        for (ptrdiff_t k = 0; k < stride; k += VLEN)
            PSTORE(columns + k, zero);
        for (ptrdiff_t a = 0; a < n_a; ++a) {
            const double z = w->d[at + a];
            NAME(vec) row = {0};
            for (ptrdiff_t k = 0; k < n_b; k += VLEN) {
                const NAME(vec) old = PLOAD(q + k);
                NAME(vec) x = old + step * (PLOAD(t + k) - z - PLOAD(w->d + to + k));
                x = NAME(only)(PMAX(x, zero), n_b - k);
                if (publish)
                    PSTORE(next + k, x);
                moved += (x - old) * (x - old);
                x += x - old;
                row += x;
                PSTORE(columns + k, PLOAD(columns + k) + x);
                PSTORE(q + k, keep * x + leave * PLOAD(first + k));
            }
            const double x = step_a * (NAME(sum)(row) - w->ahead[i * stride + a]);
            moved_a += x * x;
            if (publish)
                w->d_next[at + a] = z + x;
            w->d[at + a] = keep * (z + 2.0 * x) + leave * w->d_first[at + a];
            q += stride;
            first += stride;
            next += stride;
            t += stride;
        }
        for (ptrdiff_t k = 0; k < n_b; k += VLEN) {
            const NAME(vec) old = PLOAD(w->d + to + k);
            const NAME(vec) x = NAME(only)(
                step_b * (PLOAD(columns + k) - PLOAD(w->ahead + j * stride + k)), n_b - k);
            moved_b += x * x;
            if (publish)
                PSTORE(w->d_next + to + k, old + x);
            PSTORE(w->d + to + k, keep * (old + 2.0 * x) + leave * PLOAD(w->d_first + to + k));
        }
        length += size_a * moved_a + size_b * NAME(sum)(moved_b);
    }
    return length + NAME(sum)(moved) / step;
}

/* One step, whose image is published as well if asked for.  Returns its squared length, or -1 with
 * an exception set. */
static double NAME(polytope_step)(const fastm4n_polytope *w, double keep, int publish)
{
    if (w->stride == VLEN)
        return publish ? NAME(polytope_steps)(1, w, keep, 1)
                       : NAME(polytope_steps)(1, w, keep, 0);
    return NAME(polytope_steps)(0, w, keep, publish);
}

#undef PLOAD
#undef PSTORE
#undef PMAX
