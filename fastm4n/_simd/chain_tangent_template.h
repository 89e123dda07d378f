/* How marginals of chains change along a direction: a part of chain_template.h, whose names it
 * uses.
 */

/* row -= its mean under m; returns the mean.  m is zero behind the labels. */
static ALWAYS_INLINE double RNAME(centre)(const REAL *m, ptrdiff_t stride, REAL *row)
{
    RNAME(rvec) total = {0};
    for (ptrdiff_t j = 0; j < stride; j += RLEN)
        total += RLOAD(m + j) * RLOAD(row + j);
    const REAL mean = RNAME(rsum)(total);
    for (ptrdiff_t j = 0; j < stride; j += RLEN)
        RSTORE(row + j, RLOAD(row + j) - mean);
    return (double)mean;
}

/* change = the derivatives of the node marginals as the scores move along a direction.

   With D the sum of the direction's scores over positions and transitions, that of a marginal is
   its covariance with D: m (E[D | label] - E D). The conditional expectations of what comes
   before and behind a position are recursions over the distributions of a neighbour's label given
   one's own, which alpha, g = e and node of `sum_product` have; every row is taken less its mean,
   so that sums over many positions stay small. direction: of the labels, rows of stride; D = P *
   direction of the transitions and DT its transpose, or NULL for zeros. On return forward[t] =
   alpha[t] * (what is expected up to t) and backward[t] = g[t] * (what is expected from t on, and
   of the transition before it less its mean): the change of the edges' sum is edge_sum(forward,
   g, P) + edge_sum(alpha, backward, P) + edge_sum(alpha, g, D). *mean = E D, the derivative of
   the log-partition. */
static void RNAME(tangent)(ptrdiff_t T, ptrdiff_t R, ptrdiff_t stride, const REAL *alpha,
                           const REAL *g, const REAL *node, const REAL *P, const REAL *PT,
                           const REAL *D, const REAL *DT, const REAL *direction, REAL *forward,
                           REAL *backward, REAL *row, REAL *change, double *mean)
{
    const RNAME(rvec) zero = {0};
    *mean = 0.0;
    for (ptrdiff_t t = 0; t < T; ++t) {
        const ptrdiff_t at = t * stride;
        REAL *f = forward + at;
        if (t > 0)
            RNAME(matvec)(f - stride, P, R, stride, NULL, 1, f);
        if (t > 0 && D)
            RNAME(matvec)(alpha + at - stride, D, R, stride, NULL, 1, row);
        for (ptrdiff_t j = 0; j < stride; j += RLEN) {
            const RNAME(rvec) m = RLOAD(node + at + j);
            RNAME(rvec) x = zero;
            if (t > 0)
                x = RLOAD(f + j) + (D ? RLOAD(row + j) : zero);
            x = x * RLOAD(g + at + j) / m + RLOAD(direction + at + j);
            RSTORE(change + at + j, RSELECT(m > zero, x, zero));
        }
        *mean += RNAME(centre)(node + at, stride, change + at);
        for (ptrdiff_t j = 0; j < stride; j += RLEN)
            RSTORE(f + j, RLOAD(alpha + at + j) * RLOAD(change + at + j));
    }
    for (ptrdiff_t t = T - 1; t >= 0; --t) {
        const ptrdiff_t at = t * stride;
        REAL *b = backward + at;
        for (ptrdiff_t j = 0; j < stride; j += RLEN)
            RSTORE(b + j, zero);
        if (t + 1 < T) {
            RNAME(matvec)(b + stride, PT, R, stride, NULL, 1, b);
            if (D) {
                RNAME(matvec)(g + at + stride, DT, R, stride, NULL, 1, row);
                for (ptrdiff_t j = 0; j < stride; j += RLEN)
                    RSTORE(b + j, RLOAD(b + j) + RLOAD(row + j));
            }
            for (ptrdiff_t j = 0; j < stride; j += RLEN) {
                const RNAME(rvec) m = RLOAD(node + at + j);
                const RNAME(rvec) x = RLOAD(b + j) * RLOAD(alpha + at + j) / m;
                RSTORE(b + j, RSELECT(m > zero, x, zero));
            }
            const REAL of_transition = (REAL)RNAME(centre)(node + at, stride, b);
            if (D)
                for (ptrdiff_t j = 0; j < stride; j += RLEN)
                    RSTORE(b + stride + j,
                           RLOAD(b + stride + j) - of_transition * RLOAD(g + at + stride + j));
        }
        for (ptrdiff_t j = 0; j < stride; j += RLEN) {
            const RNAME(rvec) m = RLOAD(node + at + j);
            const RNAME(rvec) x = RLOAD(b + j);
            RSTORE(change + at + j, m * (RLOAD(change + at + j) + x));
            RSTORE(b + j, RSELECT(m > zero, x + RLOAD(direction + at + j), zero));
        }
        RNAME(centre)(node + at, stride, b);
        for (ptrdiff_t j = 0; j < stride; j += RLEN) {
            const RNAME(rvec) x = RLOAD(b + j) * RLOAD(g + at + j);
            RSTORE(b + j, RSELECT(RLOAD(node + at + j) > zero, x, zero));
        }
    }
}
