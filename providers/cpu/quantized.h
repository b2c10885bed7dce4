/* Makers of the quantized family in several files. */
#ifndef CPU_QUANTIZED_H
#define CPU_QUANTIZED_H

#include "kernels.h"
#include "rows.h"

/* quantized_matmul.c */
gantry_status cpu_make_matmul_integer(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_qlinear_matmul(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_qgemm(cpu_build *build, cpu_kernel *out_kernel);
/* quantized_binary.c */
gantry_status cpu_make_qlinear_binary(cpu_build *build, cpu_kernel *out_kernel);
/* quantized_pool.c */
gantry_status cpu_make_qlinear_global_pool(cpu_build *build, cpu_kernel *out_kernel);
/* quantized_conv.c */
gantry_status cpu_make_conv_integer(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_qlinear_conv(cpu_build *build, cpu_kernel *out_kernel);

/* The results that saturation and the fused activations leave. */
typedef struct cpu_qrange {
    int32_t low, high;
    bool clamped; /* narrower than the type */
} cpu_qrange;

/* For an output of that type whose real value is (q - zero) * scale, with the build's post-ops (RELU without
 * a slope and CLIP: activations that keep the order of numbers). */
cpu_qrange cpu_qrange_of(const cpu_build *build, gantry_dtype dtype, float scale, int32_t zero);

/* The same for an output whose scale and zero point are those inputs (zero point GANTRY_NO_ID: 0); a plain
 * saturation when no activation is fused. GANTRY_UNSUPPORTED when one is and they are not known. */
gantry_status cpu_qrange_read(cpu_build *build, uint32_t scale, uint32_t zero, cpu_qrange *out_range);

/* A fused group that is one function of a byte: build->table has its results. */
extern const cpu_op_row cpu_table_row;

#define CPU_BYTES (CPU_BIT(GANTRY_UINT8) | CPU_BIT(GANTRY_INT8))

#endif
