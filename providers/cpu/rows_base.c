/* Rows for every processor of the architecture (SSE2 or NEON), and the choice between the tables. */
#include <sleef.h>

#define ROWS_WIDTH 4
#define ROWS_NAME cpu_rows_base
#if defined(__x86_64__)
#define ROWS_VECTOR __m128
#define ROWS_ISA "sse2"
#else
#define ROWS_VECTOR float32x4_t
#define ROWS_ISA "neon"
#endif
#define ROWS_SLEEF(f, u) Sleef_##f##f4_##u
#include "rows_impl.h"

const cpu_rows *cpu_rows_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &cpu_rows_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        return &cpu_rows_avx2;
#endif
    return &cpu_rows_base;
}
