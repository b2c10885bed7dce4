/* Makers of the normalization family in several files. */
#ifndef CPU_NORMALIZATION_H
#define CPU_NORMALIZATION_H

#include "kernels.h"

/* normalization.c: LayerNormalization with inputs x, scale, bias; also the composite LayerNorm. */
gantry_status cpu_make_layer_norm(cpu_build *build, cpu_kernel *out_kernel);
/* channel_norm.c */
gantry_status cpu_make_batch_norm(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_group_norm(cpu_build *build, cpu_kernel *out_kernel); /* InstanceNormalization too */
gantry_status cpu_make_lrn(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_lp_norm(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_mean_variance_norm(cpu_build *build, cpu_kernel *out_kernel);

#endif
