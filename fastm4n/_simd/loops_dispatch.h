/* The vector loops, compiled for several targets, and the choice among them at run time:
 * a binary built on one x86-64 or arm64 machine runs on every other and still uses the
 * widest vectors that the one it meets has.  Included by one module only. */

#ifndef FASTM4N_LOOPS_DISPATCH_H
#define FASTM4N_LOOPS_DISPATCH_H

#include <float.h>
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "loops.h"

/* The choice of a table for vectors of n doubles on a processor with vectors of `width` doubles:
 * no wider than n fills, so that two labels do not cost the memory of eight. */
#if defined(__GNUC__) || defined(__clang__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
#define NAME(f) CONCAT(CONCAT(f, _v), VLEN)

#define TARGET_TEMPLATE "loops_templates.h"
#include "for_each_target.h"
#undef TARGET_TEMPLATE
#if defined(__x86_64__)
#define SELECT(table, n, width)                                                                \
    ((width) >= 8 && (n) > 4   ? &CONCAT(table, _v8)                                           \
     : (width) >= 4 && (n) > 2 ? &CONCAT(table, _v4)                                           \
                               : &CONCAT(table, _v2))
#else
#define SELECT(table, n, width) ((void)(n), (void)(width), &CONCAT(table, _v2))
#endif
#else /* a compiler without vector extensions: plain loops, which it may vectorise itself */
#define ALWAYS_INLINE __forceinline
#define NAME(f) f##_v1
#define VLEN 1
#include "loops_templates.h"
#undef VLEN
#define SELECT(table, n, width) ((void)(n), (void)(width), &table##_v1)
#endif

/* The widest vectors, in doubles, that this processor has and this file was compiled for. */
static int fastm4n_simd_width(void)
{
#if !(defined(__GNUC__) || defined(__clang__))
    return 1;
#elif defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return 8;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return 4;
    return 2;
#else
    return 2;
#endif
}

static const fastm4n_loops *fastm4n_select_loops(ptrdiff_t n_labels, int width)
{
    return SELECT(table, n_labels, width);
}

static const fastm4n_chain_f64 *fastm4n_select_chain_f64(ptrdiff_t n_labels, int width)
{
    return SELECT(chain_table_f64, n_labels, width);
}

/* in float a vector holds twice as many labels */
static const fastm4n_chain_f32 *fastm4n_select_chain_f32(ptrdiff_t n_labels, int width)
{
    return SELECT(chain_table_f32, (n_labels + 1) / 2, width);
}

static const fastm4n_sparse_chain *fastm4n_select_sparse_chain(ptrdiff_t n_labels, int width)
{
    return SELECT(sparse_chain_table, n_labels, width);
}

static const fastm4n_forest *fastm4n_select_forest(ptrdiff_t n_labels, int width)
{
    return SELECT(forest_table, n_labels, width);
}

static fastm4n_assign_loop fastm4n_select_assign(ptrdiff_t n_columns, int width)
{
    return SELECT(assign, n_columns, width);
}

static fastm4n_polytope_step fastm4n_select_polytope(ptrdiff_t n_labels, int width)
{
    return SELECT(polytope_step, n_labels, width);
}

static const fastm4n_games *fastm4n_select_games(int width)
{
    return SELECT(games_table, width, width);
}

#endif /* FASTM4N_LOOPS_DISPATCH_H */
