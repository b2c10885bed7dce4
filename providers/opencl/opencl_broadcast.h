/* Walking several operands along the axes of a result: strides, 0 where an operand is broadcast, with
 * neighbouring axes joined wherever all operands allow it. */
#ifndef GANTRY_OPENCL_BROADCAST_H
#define GANTRY_OPENCL_BROADCAST_H

#include "opencl_ops.h"
#include "opencl_text.h"

#define OPENCL_MAX_WALKED 8
#define OPENCL_MAX_WALKED_RANK 16

/* Axes come innermost first. */
typedef struct opencl_walk {
    uint32_t rank; /* 1 at least */
    uint32_t operand_count;
    int32_t dims[OPENCL_MAX_WALKED_RANK];
    int32_t strides[OPENCL_MAX_WALKED][OPENCL_MAX_WALKED_RANK];
    int64_t count;
} opencl_walk;

/* Those extents, outermost first, and no operands yet. */
void opencl_walk_begin(opencl_walk *walk, uint32_t rank, const int64_t *dims);
/* A dense operand that is broadcast to the result. */
void opencl_walk_broadcast(opencl_walk *walk, const opencl_operand *operand);
/* strides: one for each axis of the result, outermost first. */
void opencl_walk_strided(opencl_walk *walk, const int64_t *strides);
void opencl_walk_join(opencl_walk *walk);
/* Parameters for the dims and strides, beginning with a comma. */
void opencl_walk_parameters(const opencl_walk *walk, opencl_text *text);
/* Statements that declare `size_t i0, i1 ...` for element `size_t k` of the result. */
void opencl_walk_indexes(const opencl_walk *walk, opencl_text *text);
void opencl_walk_arguments(const opencl_walk *walk, opencl_launch *launch);

#endif
