/* Vectors of one target, and what is made of one: exponentials, logarithms, ends of arrays.
 *
 * Included by loops_template.h, which says what the includer defines.
 */

#if VLEN == 1
typedef double NAME(vec);
#define LOAD(p) (*(p))
#define STORE(p, a) (*(p) = (a))
#else
typedef double NAME(vec) __attribute__((vector_size(VLEN * 8), aligned(8), may_alias));
typedef signed char NAME(bytes) __attribute__((vector_size(VLEN), aligned(1), may_alias));
#define LOAD(p) (*(const NAME(vec) *)(p))
#define STORE(p, a) (*(NAME(vec) *)(p) = (a))
#endif

#if VLEN == 1
typedef long long NAME(ivec);
#define LANE(a, i) (a)
#define SELECT(mask, a, b) ((mask) ? (a) : (b))

static ALWAYS_INLINE double NAME(vexp)(double x) { return exp(x); }
static ALWAYS_INLINE float NAME(vexpf)(float x) { return expf(x); }
static ALWAYS_INLINE double NAME(vlog)(double x) { return log(x > DBL_MIN ? x : DBL_MIN); }
#else
typedef long long NAME(ivec) __attribute__((vector_size(VLEN * 8), aligned(8), may_alias));
typedef unsigned long long NAME(uvec)
    __attribute__((vector_size(VLEN * 8), aligned(8), may_alias));
#define LANE(a, i) ((a)[i])
#define SELECT(mask, a, b) NAME(select)((NAME(ivec))(mask), a, b)

static ALWAYS_INLINE NAME(vec) NAME(select)(NAME(ivec) mask, NAME(vec) a, NAME(vec) b)
{
    return (NAME(vec))(((NAME(ivec))a & mask) | ((NAME(ivec))b & ~mask));
}

/* exp(x) for x <= 0, zero below -708; within an ulp or two of the library's */
static ALWAYS_INLINE NAME(vec) NAME(vexp)(NAME(vec) x)
{
    /* 1.5 * 2^52: adding it rounds to an integer, which then stands in the low bits */
    const double shifter = 6755399441055744.0;
    const NAME(vec) zero = {0};
    const NAME(ivec) under = x < zero - 708.0;
    x = NAME(select)(under, zero - 708.0, x);
    const NAME(vec) t = x * 1.4426950408889634 + shifter;
    const NAME(vec) n = t - shifter;
    const NAME(vec) r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    NAME(vec) p = r * 1.6059043836821613e-10 + 2.08767569878681e-09;
    p = p * r + 2.505210838544172e-08;
    p = p * r + 2.755731922398589e-07;
    p = p * r + 2.7557319223985893e-06;
    p = p * r + 2.48015873015873e-05;
    p = p * r + 0.0001984126984126984;
    p = p * r + 0.001388888888888889;
    p = p * r + 0.008333333333333333;
    p = p * r + 0.041666666666666664;
    p = p * r + 0.16666666666666666;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    const NAME(uvec) power = ((NAME(uvec))t + 1023) << 52;
    return NAME(select)(under, zero, p * (NAME(vec))power);
}

/* the same in float, twice as many at a time; zero below -87 */
typedef float NAME(fvec) __attribute__((vector_size(VLEN * 8), aligned(4), may_alias));
typedef int NAME(fint) __attribute__((vector_size(VLEN * 8), aligned(4), may_alias));
typedef unsigned NAME(funt) __attribute__((vector_size(VLEN * 8), aligned(4), may_alias));

static ALWAYS_INLINE NAME(fvec) NAME(vexpf)(NAME(fvec) x)
{
    const float shifter = 12582912.0f; /* 1.5 * 2^23 */
    const NAME(fvec) zero = {0};
    const NAME(fint) under = x < zero - 87.0f;
    x = (NAME(fvec))(((NAME(fint))(zero - 87.0f) & under) | ((NAME(fint))x & ~under));
    const NAME(fvec) t = x * 1.44269504f + shifter;
    const NAME(fvec) n = t - shifter;
    const NAME(fvec) r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    NAME(fvec) p = r * 1.98412698e-4f + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const NAME(funt) power = ((NAME(funt))t + 127) << 23;
    return (NAME(fvec))((NAME(fint))(p * (NAME(fvec))power) & ~under);
}

/* log(max(x, smallest normal double)); fdlibm's polynomial, within an ulp */
static ALWAYS_INLINE NAME(vec) NAME(vlog)(NAME(vec) x)
{
    const NAME(vec) zero = {0};
    x = NAME(select)(x > zero + DBL_MIN, x, zero + DBL_MIN);
    const NAME(uvec) bits = (NAME(uvec))x;
    NAME(vec) m = (NAME(vec))((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
    NAME(vec) e =
        (NAME(vec))((bits >> 52) | 0x4330000000000000ULL) - (4503599627370496.0 + 1023.0);
    const NAME(ivec) big = m > zero + 1.4142135623730951;
    m = NAME(select)(big, 0.5 * m, m);
    e = NAME(select)(big, e + 1.0, e);
    const NAME(vec) f = m - 1.0, s = f / (2.0 + f), z = s * s, w = z * z;
    const NAME(vec) even = w * (3.999999999940941908e-01 +
                                w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    const NAME(vec) odd =
        z * (6.666666666666735130e-01 +
             w * (2.857142874366239149e-01 +
                  w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    const NAME(vec) half = 0.5 * f * f;
    return e * 6.93147180369123816490e-01 -
           ((half - (s * (half + (even + odd)) + e * 1.90821492927058770002e-10)) - f);
}
#endif

static ALWAYS_INLINE double NAME(sum)(NAME(vec) a)
{
    double total = 0.0;
    for (int i = 0; i < VLEN; ++i)
        total += LANE(a, i);
    return total;
}

/* The first n < VLEN lanes from a, and no byte beyond; the others are pad. */
static ALWAYS_INLINE NAME(vec) NAME(load_tail)(const double *a, ptrdiff_t n, double pad)
{
#if VLEN == 8
    return (NAME(vec))_mm512_mask_loadu_pd(_mm512_set1_pd(pad), (__mmask8)((1u << n) - 1), a);
#elif VLEN == 4
    const __m256i lanes =
        _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
    return (NAME(vec))_mm256_blendv_pd(_mm256_set1_pd(pad), _mm256_maskload_pd(a, lanes),
                                       _mm256_castsi256_pd(lanes));
#elif VLEN == 2
    const NAME(vec) value = {a[0], pad};
    (void)n;
    return value;
#else
    (void)n;
    (void)pad;
    return a[0];
#endif
}

/* The first n < VLEN lanes to a. */
static ALWAYS_INLINE void NAME(store_tail)(double *a, ptrdiff_t n, NAME(vec) value)
{
#if VLEN == 8
    _mm512_mask_storeu_pd(a, (__mmask8)((1u << n) - 1), (__m512d)value);
#elif VLEN == 4
    const __m256i lanes =
        _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
    _mm256_maskstore_pd(a, lanes, (__m256d)value);
#else
    (void)n;
    a[0] = LANE(value, 0);
#endif
}
