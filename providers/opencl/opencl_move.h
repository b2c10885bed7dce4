/* Kernels that move elements without looking at them. */
#ifndef GANTRY_OPENCL_MOVE_H
#define GANTRY_OPENCL_MOVE_H

#include "opencl_broadcast.h"

/* target[target_at + sum of index * target_stride] = source[source_at + ...] for all indexes within dims,
 * outermost first. Strides count elements and may be 0 or negative. */
typedef struct opencl_move {
    uint32_t rank;
    int64_t dims[OPENCL_MAX_WALKED_RANK];
    int64_t source_strides[OPENCL_MAX_WALKED_RANK], target_strides[OPENCL_MAX_WALKED_RANK];
    int64_t source_at, target_at;
} opencl_move;

/* Dense row-major strides. */
void opencl_dense_strides(uint32_t rank, const int64_t *dims, int64_t *out_strides);
/* A move that fills the whole output: dense target strides over its dims, source strides 0. */
void opencl_move_begin(opencl_move *move, const opencl_operand *output);
/* A plain copy of bytes where both sides are dense, else a kernel. */
void opencl_move_add(opencl_build *build, const opencl_operand *output, const opencl_operand *input,
                     const opencl_move *move);
/* The same, or a view where it comes to that: only for moves that fill the whole output. */
void opencl_move_or_view_add(opencl_build *build, const opencl_operand *output, const opencl_operand *input,
                             const opencl_move *move);

/* Each axis of the output has a table of offsets in the input (elements), -1 where the fill value stands.
 * tables holds those of all axes one after the other. fill: an operand of one element, or NULL: the bits. */
void opencl_remap_add(opencl_build *build, const opencl_operand *output, const opencl_operand *input,
                      const int32_t *tables, const opencl_operand *fill, uint64_t fill_bits,
                      const char *name);

#endif
