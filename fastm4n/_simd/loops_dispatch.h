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

#if defined(__GNUC__) || defined(__clang__)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
#define NAME(f) CONCAT(CONCAT(f, _v), VLEN)

#define TARGET_TEMPLATE "loops_templates.h"
#include "for_each_target.h"
#undef TARGET_TEMPLATE
#if defined(__x86_64__)
#define FASTM4N_WIDE 1
#endif

/* The widest vectors, in doubles, that this processor has and this file was compiled for. */
static int fastm4n_simd_width(void)
{
#ifdef FASTM4N_WIDE
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return 8;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return 4;
#endif
    return 2;
}

/* The loops for n_labels labels on a processor with vectors of `width` doubles: no wider
 * than the labels fill, so that two labels do not cost the memory of eight. */
static const fastm4n_loops *fastm4n_select_loops(ptrdiff_t n_labels, int width)
{
#ifdef FASTM4N_WIDE
    if (width >= 8 && n_labels > 4)
        return &table_v8;
    if (width >= 4 && n_labels > 2)
        return &table_v4;
#endif
    (void)n_labels;
    (void)width;
    return &table_v2;
}

/* The same for chains; in float a vector holds twice as many labels. */
static const fastm4n_chain_f64 *fastm4n_select_chain_f64(ptrdiff_t n_labels, int width)
{
#ifdef FASTM4N_WIDE
    if (width >= 8 && n_labels > 4)
        return &chain_table_f64_v8;
    if (width >= 4 && n_labels > 2)
        return &chain_table_f64_v4;
#endif
    (void)n_labels;
    (void)width;
    return &chain_table_f64_v2;
}

static const fastm4n_chain_f32 *fastm4n_select_chain_f32(ptrdiff_t n_labels, int width)
{
#ifdef FASTM4N_WIDE
    if (width >= 8 && n_labels > 8)
        return &chain_table_f32_v8;
    if (width >= 4 && n_labels > 4)
        return &chain_table_f32_v4;
#endif
    (void)n_labels;
    (void)width;
    return &chain_table_f32_v2;
}

static const fastm4n_forest *fastm4n_select_forest(ptrdiff_t n_labels, int width)
{
#ifdef FASTM4N_WIDE
    if (width >= 8 && n_labels > 4)
        return &forest_table_v8;
    if (width >= 4 && n_labels > 2)
        return &forest_table_v4;
#endif
    (void)n_labels;
    (void)width;
    return &forest_table_v2;
}

static fastm4n_assign_loop fastm4n_select_assign(ptrdiff_t n_columns, int width)
{
#ifdef FASTM4N_WIDE
    if (width >= 8 && n_columns > 4)
        return assign_v8;
    if (width >= 4 && n_columns > 2)
        return assign_v4;
#endif
    (void)n_columns;
    (void)width;
    return assign_v2;
}

static const fastm4n_games *fastm4n_select_games(int width)
{
#ifdef FASTM4N_WIDE
    if (width >= 8)
        return &games_table_v8;
    if (width >= 4)
        return &games_table_v4;
#endif
    (void)width;
    return &games_table_v2;
}

#else /* a compiler without vector extensions: plain loops, which it may vectorise itself */
#define ALWAYS_INLINE __forceinline
#define NAME(f) f##_v1
#define VLEN 1
#include "loops_template.h"
#include "chain_types.h"
#include "forest_template.h"
#include "assignment_template.h"
#include "game_template.h"
#undef VLEN
static int fastm4n_simd_width(void) { return 1; }
static const fastm4n_loops *fastm4n_select_loops(ptrdiff_t n_labels, int width)
{
    (void)n_labels;
    (void)width;
    return &table_v1;
}
static const fastm4n_chain_f64 *fastm4n_select_chain_f64(ptrdiff_t n_labels, int width)
{
    (void)n_labels;
    (void)width;
    return &chain_table_f64_v1;
}
static const fastm4n_chain_f32 *fastm4n_select_chain_f32(ptrdiff_t n_labels, int width)
{
    (void)n_labels;
    (void)width;
    return &chain_table_f32_v1;
}
static const fastm4n_forest *fastm4n_select_forest(ptrdiff_t n_labels, int width)
{
    (void)n_labels;
    (void)width;
    return &forest_table_v1;
}
static fastm4n_assign_loop fastm4n_select_assign(ptrdiff_t n_columns, int width)
{
    (void)n_columns;
    (void)width;
    return assign_v1;
}
static const fastm4n_games *fastm4n_select_games(int width)
{
    (void)width;
    return &games_table_v1;
}
#endif

#endif /* FASTM4N_LOOPS_DISPATCH_H */
