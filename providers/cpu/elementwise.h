/* Makers of elementwise kernels that other families use. */
#ifndef CPU_ELEMENTWISE_H
#define CPU_ELEMENTWISE_H

#include "kernels.h"
#include "rows.h"

/* A kernel that applies a row function with parameters p[4] (NULL: none) to input 0. */
gantry_status cpu_make_unary_row(cpu_build *build, cpu_unary_fn row, const float *p, cpu_kernel *out_kernel);
gantry_status cpu_make_unary(cpu_build *build, cpu_unary op, const float *p, cpu_kernel *out_kernel);
/* By the node's operator name and attributes. */
gantry_status cpu_make_unary_op(cpu_build *build, cpu_kernel *out_kernel);
/* The function and the parameters that a node of that kind means; false when it is no such operator. */
bool cpu_unary_of_node(const gantry_node_view *node, cpu_unary *out_function, float out_p[4]);
gantry_status cpu_make_gelu(cpu_build *build, cpu_kernel *out_kernel);

/* cast.c */
gantry_status cpu_make_cast(cpu_build *build, cpu_kernel *out_kernel);
gantry_status cpu_make_bit_cast(cpu_build *build, cpu_kernel *out_kernel);

#endif
