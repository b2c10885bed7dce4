/* Parts of the reduction family in several files. */
#ifndef CPU_REDUCE_H
#define CPU_REDUCE_H

#include "kernels.h"

/* Bits of the axes that attribute or input 1 "axes" names; all when there are none and noop_with_empty_axes
 * is 0. */
gantry_status cpu_reduced_axes(cpu_build *build, bool axes_are_input, uint32_t rank, uint32_t *out_bits);

/* scan.c */
gantry_status cpu_make_arg(cpu_build *build, cpu_kernel *out_kernel);      /* ArgMax, ArgMin */
gantry_status cpu_make_cumulate(cpu_build *build, cpu_kernel *out_kernel); /* CumSum, CumProd */

/* loss.c */
gantry_status cpu_make_loss(cpu_build *build, cpu_kernel *out_kernel);
/* einsum.c */
gantry_status cpu_make_einsum(cpu_build *build, cpu_kernel *out_kernel);

/* Reduce operators, and global pools of plain layout: one pass over rows. */
gantry_status cpu_make_reduce(cpu_build *build, cpu_kernel *out_kernel);

#endif
