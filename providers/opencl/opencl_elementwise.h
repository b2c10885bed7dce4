/* Elementwise kernels for the files of other families. */
#ifndef GANTRY_OPENCL_ELEMENTWISE_H
#define GANTRY_OPENCL_ELEMENTWISE_H

#include "opencl_broadcast.h"

/* Adds a launch that computes output 0 from the inputs with these numbers, broadcast. The expression calls
 * them a, b, c ... (of types T0_C, T1_C ...) and may use the floats p and q. */
void opencl_elementwise_add(opencl_build *build, const opencl_node *node, const uint32_t *inputs,
                            uint32_t count, const char *expression, float p, float q);

/* The same with the walk made by the caller: one operand for each of the inputs, not yet joined. */
void opencl_elementwise_walk_add(opencl_build *build, const opencl_node *node, const uint32_t *inputs,
                                 uint32_t count, opencl_walk *walk, const char *expression, float p, float q);

#endif
