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

#if defined(__x86_64__)
/* clang 14 has no name for F16C; every processor with AVX2 and FMA has it. */
#if defined(__clang__)
#define HAS_F16C true
#else
#define HAS_F16C __builtin_cpu_supports("f16c")
#endif
#endif

const cpu_rows *cpu_rows_best(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &cpu_rows_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HAS_F16C)
        return &cpu_rows_avx2;
#endif
    return &cpu_rows_base;
}
