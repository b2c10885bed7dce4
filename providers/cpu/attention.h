/* Makers of attention kernels. */
#ifndef CPU_ATTENTION_H
#define CPU_ATTENTION_H

#include "kernels.h"

gantry_status cpu_make_attention(cpu_build *build, cpu_kernel *out_kernel);
/* attention_fused.c: the composite */
gantry_status cpu_make_fused_attention(cpu_build *build, cpu_kernel *out_kernel);
/* rotary.c */
gantry_status cpu_make_rotary(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_swiglu(cpu_build *build, cpu_kernel *out_kernel);

#endif
