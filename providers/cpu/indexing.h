/* Makers of the indexing family in several files. */
#ifndef CPU_INDEXING_H
#define CPU_INDEXING_H

#include "kernels.h"

/* select.c */
gantry_status cpu_make_one_hot(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_nonzero(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_compress(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_reverse_sequence(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_tensor_scatter(cpu_build *build, cpu_kernel *out_kernel);
/* topk.c */
gantry_status cpu_make_topk(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_unique(cpu_build *build, cpu_kernel *out_kernel);
/* nms.c */
gantry_status cpu_make_nms(cpu_build *build, cpu_kernel *out_kernel);

#endif
