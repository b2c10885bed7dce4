/* Copies elements between two strided views of memory: what Transpose, Slice, Expand, Tile and the like come
 * down to. */
#ifndef CPU_COPY_H
#define CPU_COPY_H

#include "kernels.h"

typedef struct cpu_copy {
    cpu_nest nest; /* operand 0 is the target, 1 the source; strides in elements, negative ones allowed */
    size_t element_bytes; /* of what is moved at once: some elements when they stay together */
    int64_t target_offset, source_offset; /* elements of the tensor */
    int64_t offset_unit;                  /* bytes of one */
    /* A transposition of the innermost two axes, done in square tiles: columns = nest.inner, and the axis
     * before it is contiguous in the source. 0: rows are copied one after the other. */
    int64_t tile_rows, tile_target_stride;
    int64_t chunk; /* rows (or tiled planes) of one parallel chunk */
} cpu_copy;

/* dims and strides have rank entries. False when the element size is not supported. */
bool cpu_copy_make(cpu_copy *copy, uint32_t rank, const int64_t *dims, const int64_t *target_strides,
                   const int64_t *source_strides, size_t element_bytes);
void cpu_copy_run(const cpu_copy *copy, const cpu_call *call, const void *source, void *target);

/* Makes a kernel that copies input 0 to output 0 with these strides; bounds are the caller's business. */
gantry_status cpu_make_copy(cpu_build *build, uint32_t rank, const int64_t *dims,
                            const int64_t *target_strides, const int64_t *source_strides,
                            int64_t source_offset, cpu_kernel *out_kernel);

#endif
