/* Makers of the image family in several files. */
#ifndef CPU_IMAGE_H
#define CPU_IMAGE_H

#include "kernels.h"

/* sample.c */
gantry_status cpu_make_grid_sample(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_roi_align(cpu_build *build, cpu_kernel *out_kernel);

#endif
