/* Loops over weights that are held by pairs of a feature and a label, end to end.
 *
 * Feature f has the weights w[first] ... w[first + count - 1] of its head, of the labels whose bits
 * are one in the mask, in their order. Labels are at most 64. A vector of its weights is loaded as
 * they lie and spread over the lanes of their labels, so that there are no branches by how many
 * there are. Up to three numbers behind the last pair may be read: there are rows of other weights.
 */

#ifndef FASTM4N_PAIR_LOOPS_H
#define FASTM4N_PAIR_LOOPS_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t mask;
    int32_t first, count;
} fastm4n_pair_head;

typedef struct {
    int width;
    /* v += x' w for the features that idx names */
    void (*scores_f64)(const double *x, const int *idx, ptrdiff_t nnz,
                       const fastm4n_pair_head *heads, const double *w, ptrdiff_t stride,
                       double *v);
    void (*scores_f32)(const float *x, const int *idx, ptrdiff_t nnz,
                       const fastm4n_pair_head *heads, const double *w, ptrdiff_t stride,
                       double *v);
    /* w += x c', in the pairs that there are */
    void (*update_f64)(const double *x, const int *idx, ptrdiff_t nnz, const double *c,
                       const fastm4n_pair_head *heads, double *w, ptrdiff_t stride);
    void (*update_f32)(const float *x, const int *idx, ptrdiff_t nnz, const double *c,
                       const fastm4n_pair_head *heads, double *w, ptrdiff_t stride);
    /* sum over pairs of (sum_t x_tf d_tl)^2: of n entries, row[e] are positions and
       ends[row[e]] + place[e] where they are in x and idx, those of a feature standing together */
    double (*norm_f64)(const double *x, const int *idx, const long long *ends,
                       const uint16_t *place, const uint16_t *row, ptrdiff_t n,
                       const fastm4n_pair_head *heads, const double *d, ptrdiff_t stride);
    double (*norm_f32)(const float *x, const int *idx, const long long *ends,
                       const uint16_t *place, const uint16_t *row, ptrdiff_t n,
                       const fastm4n_pair_head *heads, const double *d, ptrdiff_t stride);
    /* w = min(max(scale soft(z, t), low), high) in the pairs of the features that idx names; t, and
       low and high, are the same number for all pairs where by_threshold, and by_bound, are zero */
    void (*prox)(const double *z, const double *t, int by_threshold, const double *low,
                 const double *high, int by_bound, double scale, const int *idx, ptrdiff_t nnz,
                 const int *first, double *w);
} fastm4n_pairs;

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#include <immintrin.h>

#define PAIR_INLINE inline __attribute__((always_inline))
#define PAIR_JOIN_(a, b) a##b
#define PAIR_JOIN(a, b) PAIR_JOIN_(a, b)
#define PAIR(f) PAIR_JOIN(pairs_##f##_v, PVLEN)

/* lanes of the bits of a mask of four, as eight halves: where each number goes, and comes from */
static int32_t pairs_expand[16][8], pairs_compress[16][8];
static int64_t pairs_lanes[16][4];

static void fastm4n_pairs_tables(void)
{
    for (int m = 0; m < 16; ++m) {
        int n = 0;
        for (int lane = 0; lane < 4; ++lane) {
            pairs_lanes[m][lane] = (m >> lane & 1) ? -1 : 0;
            if (!(m >> lane & 1))
                continue;
            for (int half = 0; half < 2; ++half) {
                pairs_expand[m][2 * lane + half] = 2 * n + half;
                pairs_compress[m][2 * n + half] = 2 * lane + half;
            }
            ++n;
        }
    }
}

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,popcnt")
#endif
#define PVLEN 4
typedef __m256d pairs_vec_v4;
static PAIR_INLINE pairs_vec_v4 pairs_set_v4(double x) { return _mm256_set1_pd(x); }
static PAIR_INLINE pairs_vec_v4 pairs_load_v4(const double *p) { return _mm256_loadu_pd(p); }
static PAIR_INLINE void pairs_store_v4(double *p, pairs_vec_v4 a) { _mm256_storeu_pd(p, a); }
static PAIR_INLINE pairs_vec_v4 pairs_fma_v4(pairs_vec_v4 a, pairs_vec_v4 b, pairs_vec_v4 c)
{
    return _mm256_fmadd_pd(a, b, c);
}
static PAIR_INLINE pairs_vec_v4 pairs_only_v4(unsigned m, pairs_vec_v4 a)
{
    return _mm256_and_pd(
        a, _mm256_castsi256_pd(_mm256_loadu_si256((const __m256i *)pairs_lanes[m])));
}
static PAIR_INLINE pairs_vec_v4 pairs_spread_v4(unsigned m, const double *p)
{
    const __m256i to = _mm256_loadu_si256((const __m256i *)pairs_expand[m]);
    const __m256 a = _mm256_castpd_ps(_mm256_loadu_pd(p));
    return pairs_only_v4(m, _mm256_castps_pd(_mm256_permutevar8x32_ps(a, to)));
}
static PAIR_INLINE pairs_vec_v4 pairs_packed_v4(unsigned m, pairs_vec_v4 a)
{
    const __m256i from = _mm256_loadu_si256((const __m256i *)pairs_compress[m]);
    return _mm256_castps_pd(_mm256_permutevar8x32_ps(_mm256_castpd_ps(a), from));
}
static PAIR_INLINE pairs_vec_v4 pairs_load_n_v4(int n, const double *p)
{
    return _mm256_maskload_pd(p,
                              _mm256_loadu_si256((const __m256i *)pairs_lanes[(1 << n) - 1]));
}
static PAIR_INLINE void pairs_store_n_v4(int n, double *p, pairs_vec_v4 a)
{
    _mm256_maskstore_pd(p, _mm256_loadu_si256((const __m256i *)pairs_lanes[(1 << n) - 1]), a);
}
static PAIR_INLINE pairs_vec_v4 pairs_min_v4(pairs_vec_v4 a, pairs_vec_v4 b)
{
    return _mm256_min_pd(a, b);
}
static PAIR_INLINE pairs_vec_v4 pairs_max_v4(pairs_vec_v4 a, pairs_vec_v4 b)
{
    return _mm256_max_pd(a, b);
}
#include "../features/pair_loops_template.h"
#undef PVLEN
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma,popcnt"))),               \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma,popcnt")
#endif
#define PVLEN 8
typedef __m512d pairs_vec_v8;
static PAIR_INLINE pairs_vec_v8 pairs_set_v8(double x) { return _mm512_set1_pd(x); }
static PAIR_INLINE pairs_vec_v8 pairs_load_v8(const double *p) { return _mm512_loadu_pd(p); }
static PAIR_INLINE void pairs_store_v8(double *p, pairs_vec_v8 a) { _mm512_storeu_pd(p, a); }
static PAIR_INLINE pairs_vec_v8 pairs_fma_v8(pairs_vec_v8 a, pairs_vec_v8 b, pairs_vec_v8 c)
{
    return _mm512_fmadd_pd(a, b, c);
}
static PAIR_INLINE pairs_vec_v8 pairs_only_v8(unsigned m, pairs_vec_v8 a)
{
    return _mm512_maskz_mov_pd((__mmask8)m, a);
}
static PAIR_INLINE pairs_vec_v8 pairs_spread_v8(unsigned m, const double *p)
{
    return _mm512_maskz_expandloadu_pd((__mmask8)m, p);
}
static PAIR_INLINE pairs_vec_v8 pairs_packed_v8(unsigned m, pairs_vec_v8 a)
{
    return _mm512_maskz_compress_pd((__mmask8)m, a);
}
static PAIR_INLINE pairs_vec_v8 pairs_load_n_v8(int n, const double *p)
{
    return _mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), p);
}
static PAIR_INLINE void pairs_store_n_v8(int n, double *p, pairs_vec_v8 a)
{
    _mm512_mask_storeu_pd(p, (__mmask8)((1u << n) - 1), a);
}
static PAIR_INLINE pairs_vec_v8 pairs_min_v8(pairs_vec_v8 a, pairs_vec_v8 b)
{
    return _mm512_min_pd(a, b);
}
static PAIR_INLINE pairs_vec_v8 pairs_max_v8(pairs_vec_v8 a, pairs_vec_v8 b)
{
    return _mm512_max_pd(a, b);
}
#include "../features/pair_loops_template.h"
#undef PVLEN
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* The loops for rows of vectors of this width, or NULL if plain loops have to do: masks of labels
   have 64 bits. */
static const fastm4n_pairs *fastm4n_select_pairs(int width, ptrdiff_t stride)
{
    if (stride > 64)
        return NULL;
    fastm4n_pairs_tables();
    return width == 8 ? &pairs_table_v8 : width == 4 ? &pairs_table_v4 : NULL;
}

#else
static const fastm4n_pairs *fastm4n_select_pairs(int width, ptrdiff_t stride)
{
    (void)width;
    (void)stride;
    return NULL;
}
#endif

#endif /* FASTM4N_PAIR_LOOPS_H */
