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

#endif
