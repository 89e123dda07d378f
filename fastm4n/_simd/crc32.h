/* CRC-32 as zlib has it, 16 bytes at a time by products of polynomials, where the processor has
 * them (Gopal et al. 2009, Fast CRC computation for generic polynomials using PCLMULQDQ). */

#ifndef FASTM4N_CRC32_H
#define FASTM4N_CRC32_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#define FOLD_TARGET __attribute__((target("pclmul,sse4.1")))

static int fastm4n_has_fold(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

/* a, as many bits further on as the powers of x in k say, plus b */
static inline FOLD_TARGET __m128i fastm4n_fold_one(__m128i a, __m128i k, __m128i b)
{
    const __m128i low = _mm_clmulepi64_si128(a, k, 0x00);
    return _mm_xor_si128(_mm_xor_si128(low, _mm_clmulepi64_si128(a, k, 0x11)), b);
}

/* The register after n bytes, a multiple of 16 and at least 64, that was `crc` before them. */
static FOLD_TARGET uint32_t fastm4n_fold(const uint8_t *bytes, size_t n, uint32_t crc)
{
    /* x^k modulo the polynomial, bits reversed: over 512 bits, over 128, and over 64 */
    const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_set_epi32(0, -1, 0, -1);
    const __m128i *at = (const __m128i *)bytes, *end = (const __m128i *)(bytes + n);
    __m128i x[4], y;
    for (int i = 0; i < 4; ++i)
        x[i] = _mm_loadu_si128(at++);
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
    for (; end - at >= 4; at += 4)
        for (int i = 0; i < 4; ++i)
            x[i] = fastm4n_fold_one(x[i], by_512, _mm_loadu_si128(at + i));
    y = x[0];
    for (int i = 1; i < 4; ++i)
        y = fastm4n_fold_one(y, by_128, x[i]);
    for (; at < end; ++at)
        y = fastm4n_fold_one(y, by_128, _mm_loadu_si128(at));
    y = _mm_xor_si128(_mm_srli_si128(y, 8), _mm_clmulepi64_si128(y, by_128, 0x10));
    y = _mm_xor_si128(_mm_srli_si128(y, 4),
                      _mm_clmulepi64_si128(_mm_and_si128(y, low_words), by_64, 0x00));
    x[0] = _mm_clmulepi64_si128(_mm_and_si128(y, low_words), polynomial, 0x10);
    x[0] = _mm_clmulepi64_si128(_mm_and_si128(x[0], low_words), polynomial, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(y, x[0]), 1);
}

#undef FOLD_TARGET

#else /* zlib's is what there is */

static int fastm4n_has_fold(void) { return 0; }

static uint32_t fastm4n_fold(const uint8_t *bytes, size_t n, uint32_t crc)
{
    (void)bytes, (void)n;
    return crc;
}

#endif
#endif
