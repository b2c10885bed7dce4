/* Rows from and to float16 by F16C, eight elements at a time: in each file that may use it. */
#ifndef CPU_ROWS_F16C_H
#define CPU_ROWS_F16C_H

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

#endif
