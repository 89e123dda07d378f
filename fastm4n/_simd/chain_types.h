/* chain_template.h in double and in float, for one target. */

#define REAL double
#define RINT long long
#define RLEN VLEN
#define RNAME(f) NAME(f##_f64)
#define REXP NAME(vexp)
#define RTABLE fastm4n_chain_f64
#define RTINY 1e-150
#define RSHIFT 0
#define RX512 __m512d
#define RX256 __m256d
#define RX128 __m128d
#define RMAX512 _mm512_max_pd
#define RMAX256 _mm256_max_pd
#define RMAX128 _mm_max_pd
#define RSUM512 _mm512_reduce_add_pd
#define RTOP512 _mm512_reduce_max_pd
#define RSOME512(lanes, p) _mm512_maskz_loadu_pd((__mmask8)(lanes), p)
#define RSTORESOME512(p, lanes, a) _mm512_mask_storeu_pd(p, (__mmask8)(lanes), a)
#define REQUAL512(a, b) _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ)
#include "chain_template.h"

#define REAL float
#define RINT int
#if VLEN == 1
#define RLEN 1
#else
#define RLEN (2 * VLEN)
#endif
#define RNAME(f) NAME(f##_f32)
#define REXP NAME(vexpf)
#define RTABLE fastm4n_chain_f32
#define RTINY 1e-19f
#define RSHIFT 32
#define RX512 __m512
#define RX256 __m256
#define RX128 __m128
#define RMAX512 _mm512_max_ps
#define RMAX256 _mm256_max_ps
#define RMAX128 _mm_max_ps
#define RSUM512 _mm512_reduce_add_ps
#define RTOP512 _mm512_reduce_max_ps
#define RSOME512(lanes, p) _mm512_maskz_loadu_ps((__mmask16)(lanes), p)
#define RSTORESOME512(p, lanes, a) _mm512_mask_storeu_ps(p, (__mmask16)(lanes), a)
#define REQUAL512(a, b) _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)
#include "chain_template.h"
