/* Output elements that each show one input element or a fill: Pad and nearest-neighbour Resize.
 *
 *     out[i0, i1, ...] = in[map[0][i0] + map[1][i1] + ...], or the fill when one of the maps is -1 there */
#ifndef CPU_REMAP_H
#define CPU_REMAP_H

#include "kernels.h"

typedef struct cpu_remap {
    uint32_t rank;                       /* at least 1 */
    int64_t dims[GANTRY_MAX_RANK];       /* of the output */
    int64_t rows;                        /* product of all but the last axis */
    const int64_t *map[GANTRY_MAX_RANK]; /* source offset in elements along the axis, or -1: fill */
    int64_t inner_begin, inner_end;      /* positions of the last axis whose sources follow each other */
    size_t element_bytes;
    uint32_t value_input;           /* input that holds the fill; 0: `value` */
    _Alignas(16) uint8_t value[64]; /* an element at most */
} cpu_remap;

/* Sets what follows from dims and maps. */
void cpu_remap_finish(cpu_remap *state);
/* The kernel: input 0 to output 0. */
gantry_status cpu_remap_run(const void *state, const cpu_call *call);

#endif
