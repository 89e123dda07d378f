/* Kernels: rows of a Gram matrix in float or double, added to scores in double, and Gaussian
   values. Included by loops_template.h, which says what VLEN and NAME are. */

#if VLEN == 1
typedef float NAME(lanes);
#define LANES 1
#else
typedef NAME(fvec) NAME(lanes);
#define LANES (2 * VLEN)
#endif

/* F[r, j] += sum_b rows[b][r] D[b, j] for start <= r < stop, R rows at a time, and j < width,
   which is at most T vectors: sums over b are in float, F is in double. */
static ALWAYS_INLINE ptrdiff_t NAME(add_floats_tile)(const int R, const int T,
                                                     const float **rows, ptrdiff_t n_rows,
                                                     const float *D, ptrdiff_t D_stride,
                                                     ptrdiff_t start, ptrdiff_t stop,
                                                     ptrdiff_t width, ptrdiff_t stride,
                                                     double *F)
{
    ptrdiff_t r = start;
    for (; r + R <= stop; r += R) {
        NAME(lanes) acc[16];
        const NAME(lanes) zero = {0};
        for (int i = 0; i < R * T; ++i)
            acc[i] = zero;
        for (ptrdiff_t b = 0; b < n_rows; ++b) {
            const float *x = rows[b] + r;
            NAME(lanes) d[4];
            for (int t = 0; t < T; ++t)
                d[t] = *(const NAME(lanes) *)(D + b * D_stride + t * LANES);
            for (int i = 0; i < R; ++i)
                for (int t = 0; t < T; ++t)
                    acc[i * T + t] += x[i] * d[t];
        }
        for (int i = 0; i < R; ++i) {
            float sums[4 * LANES];
            double *to = F + (r + i) * stride;
            for (int t = 0; t < T; ++t)
                *(NAME(lanes) *)(sums + t * LANES) = acc[i * T + t];
            for (ptrdiff_t j = 0; j < width; ++j)
                to[j] += (double)sums[j];
        }
    }
    return r;
}

#define ADD_FLOATS(R, T)                                                                       \
    do {                                                                                       \
        const ptrdiff_t r =                                                                    \
            NAME(add_floats_tile)(R, T, rows + b, n_b, D + b * D_stride + j, D_stride, start,  \
                                  stop, width, stride, F + j);                                 \
        NAME(add_floats_tile)(1, T, rows + b, n_b, D + b * D_stride + j, D_stride, r, stop,    \
                              width, stride, F + j);                                           \
    } while (0)

static void NAME(add_rows_f32)(const float **rows, ptrdiff_t n_rows, const float *D,
                               ptrdiff_t D_stride, ptrdiff_t n, ptrdiff_t stride, double *F)
{
    /* 64 columns of F stay in the first-level cache while all rows are added, and so do 64
       columns of 64 rows while the tiles of labels pass over them */
    for (ptrdiff_t start = 0; start < n; start += 64) {
        const ptrdiff_t stop = start + 64 < n ? start + 64 : n;
        const ptrdiff_t ahead = stop + 64 < n ? stop + 64 : n;
        for (ptrdiff_t b = 0; b < n_rows; b += 64) {
            const ptrdiff_t n_b = b + 64 < n_rows ? 64 : n_rows - b;
            for (ptrdiff_t i = b; i < b + n_b; ++i)
                for (ptrdiff_t c = stop; c < ahead; c += 16)
                    fastm4n_prefetch(rows[i] + c);
            for (ptrdiff_t j = 0; j < stride; j += 4 * LANES) {
                const ptrdiff_t width = stride - j < 4 * LANES ? stride - j : 4 * LANES;
                /* as many sums as there are registers for */
                if (width <= LANES)
                    ADD_FLOATS(8, 1);
                else if (width <= 2 * LANES)
                    ADD_FLOATS(VLEN == 8 ? 8 : 4, 2);
                else
                    ADD_FLOATS(VLEN == 8 ? 4 : 2, 4);
            }
        }
    }
}

/* F[r, j] += sum_e x_e[r] values[e] over the entries e of label j, for all r and j: sums over
   MOST_ENTRIES are of the type of the entries. */
#define MOST_ENTRIES 64

#define ADD_SPARSE(NAME_, REAL, VECTOR, WIDTH)                                                 \
    static void NAME_(const REAL **rows, ptrdiff_t n_rows, const int *starts, const int *row,  \
                      const REAL *values, ptrdiff_t n, ptrdiff_t n_labels, ptrdiff_t stride,   \
                      double *F)                                                               \
    {                                                                                          \
        const ptrdiff_t step = 4 * WIDTH;                                                      \
        for (ptrdiff_t start = 0; start < n; start += step) {                                  \
            const ptrdiff_t rest = n - start < step ? n - start : step;                        \
            if (start + 2 * step <= n)                                                         \
                for (ptrdiff_t b = 0; b < n_rows; ++b)                                         \
                    for (ptrdiff_t i = 0; i < step; i += 64 / (ptrdiff_t)sizeof(REAL))         \
                        fastm4n_prefetch(rows[b] + start + step + i);                          \
            for (ptrdiff_t j = 0; j < n_labels; ++j)                                           \
                for (int from = starts[j]; from < starts[j + 1]; from += MOST_ENTRIES) {       \
                    const int to = starts[j + 1] - from < MOST_ENTRIES ? starts[j + 1]         \
                                                                       : from + MOST_ENTRIES;  \
                    REAL sums[4 * WIDTH] = {0};                                                \
                    if (rest == step) {                                                        \
                        const VECTOR zero = {0};                                               \
                        VECTOR acc[4] = {zero, zero, zero, zero};                              \
                        for (int e = from; e < to; ++e) {                                      \
                            const REAL *x = rows[row[e]] + start;                              \
                            for (int t = 0; t < 4; ++t)                                        \
                                acc[t] += values[e] * *(const VECTOR *)(x + t * WIDTH);        \
                        }                                                                      \
                        for (int t = 0; t < 4; ++t)                                            \
                            *(VECTOR *)(sums + t * WIDTH) = acc[t];                            \
                    } else {                                                                   \
                        for (int e = from; e < to; ++e)                                        \
                            for (ptrdiff_t i = 0; i < rest; ++i)                               \
                                sums[i] += values[e] * rows[row[e]][start + i];                \
                    }                                                                          \
                    for (ptrdiff_t i = 0; i < rest; ++i)                                       \
                        F[(start + i) * stride + j] += (double)sums[i];                        \
                }                                                                              \
        }                                                                                      \
    }

#if VLEN == 1
ADD_SPARSE(NAME(add_sparse_f32), float, float, 1)
ADD_SPARSE(NAME(add_sparse_f64), double, double, 1)
#else
ADD_SPARSE(NAME(add_sparse_f32), float, NAME(fvec), 2 * VLEN)
ADD_SPARSE(NAME(add_sparse_f64), double, NAME(vec), VLEN)
#endif

static void NAME(axpy_f32)(float a, const float *x, ptrdiff_t n, float *y)
{
    for (ptrdiff_t i = 0; i < n; ++i)
        y[i] += a * x[i];
}

/* exp(-gamma max(0, square + squares[i] - 2 inner[i])) */
#define RBF(name, REAL, VECTOR, WIDTH, EXP)                                                    \
    static void name(const double *inner, const double *squares, double square, double gamma,  \
                     ptrdiff_t n, REAL *out)                                                   \
    {                                                                                          \
        for (ptrdiff_t i = 0; i < n; i += WIDTH) {                                             \
            REAL x[WIDTH] = {0};                                                               \
            const int rest = n - i < WIDTH ? (int)(n - i) : WIDTH;                             \
            for (int l = 0; l < rest; ++l) {                                                   \
                const double distance = square + squares[i + l] - 2.0 * inner[i + l];          \
                x[l] = (REAL)(-gamma * (distance < 0.0 ? 0.0 : distance));                     \
            }                                                                                  \
            *(VECTOR *)x = EXP(*(const VECTOR *)x);                                            \
            for (int l = 0; l < rest; ++l)                                                     \
                out[i + l] = x[l];                                                             \
        }                                                                                      \
    }

RBF(NAME(rbf_f64), double, NAME(vec), VLEN, NAME(vexp))
RBF(NAME(rbf_f32), float, NAME(lanes), LANES, NAME(vexpf))

#undef RBF
#undef LANES
#undef ADD_FLOATS
#undef ADD_SPARSE
#undef MOST_ENTRIES
