/* Rows for AVX2. */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c")
#include <immintrin.h>
#include <sleef.h>

#define ROWS_WIDTH 8
#define ROWS_NAME cpu_rows_avx2
#define ROWS_VECTOR __m256
#define ROWS_ISA "avx2"
#define ROWS_SLEEF(f, u) Sleef_##f##f8_##u
#define ROWS_OWN_F16
#include "rows_f16c.h"

#include "rows_impl.h"
#else
typedef int cpu_rows_no_avx2;
#endif
