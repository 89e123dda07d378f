/* Includes TARGET_TEMPLATE once for each target of GCC and Clang, with VLEN doubles in a vector. */

/* two doubles are in the baseline of x86-64 (SSE2) and of arm64 (NEON) */
#define VLEN 2
#include TARGET_TEMPLATE
#undef VLEN

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define VLEN 4
#include TARGET_TEMPLATE
#undef VLEN
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma")
#endif
#define VLEN 8
#include TARGET_TEMPLATE
#undef VLEN
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif /* __x86_64__ */
