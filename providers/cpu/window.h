/* Sliding windows: what convolutions and pools have in common. */
#ifndef CPU_WINDOW_H
#define CPU_WINDOW_H

#include "cpu.h"

#define CPU_MAX_SPATIAL 3

/* Per spatial dim. in and out are extents of input and output; pad is what lies before the first element,
 * pad_end behind the last (it may exceed what the model declares: ceil_mode). */
typedef struct cpu_window {
    uint32_t rank;
    int64_t in[CPU_MAX_SPATIAL], out[CPU_MAX_SPATIAL];
    int64_t kernel[CPU_MAX_SPATIAL], stride[CPU_MAX_SPATIAL], dilation[CPU_MAX_SPATIAL];
    int64_t pad[CPU_MAX_SPATIAL], pad_end[CPU_MAX_SPATIAL];
    int64_t declared_end[CPU_MAX_SPATIAL]; /* pad_end as the model has it */
} cpu_window;

/* Reads strides, dilations, pads and auto_pad of the node for the dims of input 0 and output 0. kernel is the
 * extent of the window. Refuses through cpu_unsupported what does not fit together. */
gantry_status cpu_window_read(cpu_build *build, const int64_t *kernel, uint32_t kernel_rank,
                              cpu_window *out_window);

/* Sets pad_end so that the window gives the output's extent (not for transposed convolutions). */
gantry_status cpu_window_fit(cpu_build *build, cpu_window *window);

/* The extent of the window with its holes. */
static inline int64_t cpu_window_range(const cpu_window *w, uint32_t k)
{
    return (w->kernel[k] - 1) * w->dilation[k] + 1;
}

/* Elements per window, input plane and output plane. */
static inline int64_t cpu_window_product(const int64_t *dims, uint32_t rank)
{
    int64_t product = 1;
    for (uint32_t k = 0; k < rank; k++)
        product *= dims[k];
    return product;
}

#endif
