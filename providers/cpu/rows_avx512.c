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
#include "half.h"

static void f16_to_f32(const uint16_t *in, float *out, int64_t n)
{
    int64_t k = 0;
    for (; k + 8 <= n; k += 8)
        _mm256_storeu_ps(out + k, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + k))));
    for (; k < n; k++)
        out[k] = cpu_f16_to_f32(in[k]);
}

static void f32_to_f16(const float *in, uint16_t *out, int64_t n)
{
    int64_t k = 0;
    for (; k + 8 <= n; k += 8)
        _mm_storeu_si128((__m128i *)(out + k),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + k), _MM_FROUND_TO_NEAREST_INT));
    for (; k < n; k++)
        out[k] = cpu_f32_to_f16(in[k]);
}

#define ROWS_OWN_NORMAL
#include "rows_normal_avx512.h"

#include "rows_impl.h"
#else
typedef int cpu_rows_no_avx512;
#endif
