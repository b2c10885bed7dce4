/* Makers of kernels that move elements, used by several families. */
#ifndef CPU_MOVEMENT_H
#define CPU_MOVEMENT_H

#include "kernels.h"

/* Output 0 is input 0 under another shape. */
gantry_status cpu_make_view(cpu_build *build, cpu_kernel *out_kernel);
/* pad.c */
gantry_status cpu_make_center_crop_pad(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_pad(cpu_build *build, cpu_kernel *out_kernel);

#endif
