/* Convolutions at known shapes: shared by the oneDNN and the plain kernels. */
#ifndef CPU_CONV_H
#define CPU_CONV_H

#include "window.h"

typedef struct cpu_conv {
    cpu_window window;
    gantry_dtype dtype;
    int64_t batch, groups;
    int64_t in_channels, out_channels; /* of all groups */
    bool transposed;
    bool turned;    /* the window's two dims are in the other order than the tensors' (same memory) */
    int bias_input; /* operand, or -1 */
} cpu_conv;

/* Plain loops for float32 (with the build's post-ops) and float64, plain layouts. */
gantry_status cpu_conv_plain(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel);

/* float32 through oneDNN, in blocks of channels where that is fast. GANTRY_UNSUPPORTED without an error text
 * when oneDNN has nothing but its reference. */
gantry_status cpu_conv_dnnl(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel);

/* float32 along rows by Winograd's scheme in one dim, in blocks of channels. The same convention; also where
 * it would not pay. */
gantry_status cpu_conv_winograd_row(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel);

/* float32 with a window for each channel, in blocks of channels. The same convention; also for those that
 * oneDNN is as fast for. */
gantry_status cpu_conv_depthwise(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel);

/* float32 with lanes along the output columns, plain layouts, constant weights: for few channels and for
 * windows that oneDNN has no fast kernel for. The same convention. */
gantry_status cpu_conv_direct(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel);

/* float32 by own panels of 64 output pixels (forward) or input pixels (transposed), plain layouts: for
 * windows, channel counts and weights that oneDNN has no fast kernel for. The same convention. */
gantry_status cpu_conv_panel(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel);
gantry_status cpu_conv_panel_transposed(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel);

/* The build's post-ops for own kernels: a bias first, once. NULL when out of memory. */
const cpu_post *cpu_conv_posts(const cpu_build *build, const cpu_conv *conv, uint32_t *out_count);

/* count numbers from column, column + step ... of a row of `width`; zeros outside. */
void cpu_conv_copy_row(float *target, const float *row, int64_t column, int64_t step, int64_t count,
                       int64_t width);

static inline double cpu_conv_flops(const cpu_conv *c)
{
    const cpu_window *w = &c->window;
    const int64_t *plane = c->transposed ? w->in : w->out;
    return 2.0 * (double)c->batch * (double)c->in_channels * (double)c->out_channels / (double)c->groups *
           (double)cpu_window_product(plane, w->rank) * (double)cpu_window_product(w->kernel, w->rank);
}

/* Threads worth using: one for small work. */
static inline int cpu_conv_threads(const cpu_build *build, const cpu_conv *conv)
{
    return cpu_conv_flops(conv) < 32.0 * CPU_TINY_ELEMENTS ? 1 : build->threads;
}

#endif
