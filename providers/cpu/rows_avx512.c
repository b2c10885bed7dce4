/* Rows for AVX-512 (F, BW, DQ, VL). */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#include <immintrin.h>
#include <sleef.h>

#define ROWS_WIDTH 16
#define ROWS_NAME cpu_rows_avx512
#define ROWS_VECTOR __m512
#define ROWS_ISA "avx512"
#define ROWS_SLEEF(f, u) Sleef_##f##f16_##u
#define ROWS_OWN_F16
#include "rows_f16c.h"

#define ROWS_OWN_NORMAL
#include "rows_normal_avx512.h"

#include "rows_impl.h"
#else
typedef int cpu_rows_no_avx512;
#endif
