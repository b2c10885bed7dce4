/* Makers of the image family in several files. */
#ifndef CPU_IMAGE_H
#define CPU_IMAGE_H

#include "kernels.h"

/* sample.c */
gantry_status cpu_make_grid_sample(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_roi_align(cpu_build *build, cpu_kernel *out_kernel);
/* window_plain.c */
gantry_status cpu_make_lp_pool(cpu_build *build, cpu_kernel *out_kernel); /* GlobalLpPool too */
gantry_status cpu_make_col2im(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_max_unpool(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_affine_grid(cpu_build *build, cpu_kernel *out_kernel);

#endif
