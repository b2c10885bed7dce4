/* Elementwise kernels for the files of other families. */
#ifndef GANTRY_OPENCL_ELEMENTWISE_H
#define GANTRY_OPENCL_ELEMENTWISE_H

#include "opencl_broadcast.h"
#include "opencl_program.h"

/* Adds a launch that computes output 0 from the inputs with these numbers, broadcast. The expression calls
 * them a, b, c ... (of types T0_C, T1_C ...) and may use the floats p and q. */
void opencl_elementwise_add(opencl_build *build, const opencl_node *node, const uint32_t *inputs,
                            uint32_t count, const char *expression, float p, float q);

/* 1 when the result may lie where an operand does that has its elements at the same places. */
static inline uint32_t opencl_in_place(const opencl_operand *operand, const opencl_operand *y)
{
    return opencl_bytes(operand) == opencl_bytes(y) &&
           opencl_dtype_bytes(operand->dtype) == opencl_dtype_bytes(y->dtype);
}

/* What expressions use: macros of any types, and functions of T0 and of W, unsigned and as wide, which wraps.
 * rename gives the functions that follow names of their own. */
extern const char opencl_elementwise_macros[];
void opencl_elementwise_functions(gantry_dtype first, const char *expression, opencl_text *text);
void opencl_elementwise_rename(uint32_t index, opencl_text *text);

/* Adds a launch for operators whose expressions follow on each other; the last one's output is the result. */
void opencl_chain_add(opencl_build *build, const opencl_step *steps, uint32_t count);

/* The same with the walk made by the caller: one operand for each of the inputs, not yet joined. */
void opencl_elementwise_walk_add(opencl_build *build, const opencl_node *node, const uint32_t *inputs,
                                 uint32_t count, opencl_walk *walk, const char *expression, float p, float q);

#endif
