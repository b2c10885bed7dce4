/* Makers of the quantized family in several files. */
#ifndef CPU_QUANTIZED_H
#define CPU_QUANTIZED_H

#include "kernels.h"
#include "rows.h"

/* quantized_matmul.c */
gantry_status cpu_make_matmul_integer(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_qlinear_matmul(cpu_build *build, cpu_kernel *out_kernel);
/* quantized_conv.c */
gantry_status cpu_make_conv_integer(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_qlinear_conv(cpu_build *build, cpu_kernel *out_kernel);

#define CPU_BYTES (CPU_BIT(GANTRY_UINT8) | CPU_BIT(GANTRY_INT8))

/* out = in - zero, for uint8 or int8 elements. */
static inline void cpu_center_bytes(gantry_dtype dtype, const void *in, int16_t *out, int64_t n, int32_t zero)
{
    if (dtype == GANTRY_UINT8)
        for (int64_t k = 0; k < n; k++)
            out[k] = (int16_t)(((const uint8_t *)in)[k] - zero);
    else
        for (int64_t k = 0; k < n; k++)
            out[k] = (int16_t)(((const int8_t *)in)[k] - zero);
}

/* The reference of requantization: one rounding for acc to float, one for the product, one to the integer. */
static inline void cpu_requantize(gantry_dtype dtype, int32_t acc, float multiplier, int32_t zero, void *out,
                                  int64_t index)
{
    float low = (float)((dtype == GANTRY_UINT8 ? 0 : -128) - zero), high = low + 255.0f;
    float rounded = __builtin_rintf((float)acc * multiplier);
    float raised = rounded > low ? rounded : low;
    int32_t y = (int32_t)(raised < high ? raised : high) + zero;
    if (dtype == GANTRY_UINT8)
        ((uint8_t *)out)[index] = (uint8_t)y;
    else
        ((int8_t *)out)[index] = (int8_t)y;
}

#endif
