/* Convolutions through oneDNN: which layouts to try, constant weights packed once, bias, activation and
 * residual fused. */
#include "conv.h"
#include "dnnl_kernel.h"
#include "program_layout.h"

typedef struct descriptors {
    dnnl_memory_desc_t x, w_plain, w_wanted, bias, y;
    dnnl_primitive_desc_t primitive;
} descriptors;

static void destroy(descriptors *d)
{
    dnnl_memory_desc_destroy(d->x);
    dnnl_memory_desc_destroy(d->w_plain);
    dnnl_memory_desc_destroy(d->w_wanted);
    dnnl_memory_desc_destroy(d->bias);
    dnnl_memory_desc_destroy(d->y);
    dnnl_primitive_desc_destroy(d->primitive);
    *d = (descriptors){0};
}

/* ONNX weights as oneDNN sees them: [groups,] out, in, window; transposed ones lie in, out in memory. */
static bool describe_weights(descriptors *d, const cpu_conv *c, bool constant)
{
    const cpu_window *w = &c->window;
    dnnl_dims_t dims, strides;
    int64_t taps = cpu_window_product(w->kernel, w->rank);
    int64_t in = c->in_channels / c->groups, out = c->out_channels / c->groups;
    int at = 0;
    if (c->groups > 1) {
        dims[at] = c->groups;
        strides[at++] = in * out * taps;
    }
    dims[at] = out;
    strides[at++] = c->transposed ? taps : in * taps;
    dims[at] = in;
    strides[at++] = c->transposed ? out * taps : taps;
    int64_t dense = taps;
    for (uint32_t k = 0; k < w->rank; k++) {
        dense /= w->kernel[k];
        dims[at] = w->kernel[k];
        strides[at++] = dense;
    }
    if (dnnl_memory_desc_create_with_strides(&d->w_plain, at, dims, dnnl_f32, strides) != dnnl_success)
        return false;
    return !constant || dnnl_memory_desc_create_with_tag(&d->w_wanted, at, dims, dnnl_f32,
                                                         dnnl_format_tag_any) == dnnl_success;
}

static bool describe_primitive(const cpu_build *build, const cpu_conv *c, descriptors *d,
                               const_dnnl_primitive_attr_t attributes)
{
    const cpu_window *w = &c->window;
    dnnl_dims_t strides, dilates, pads, pads_end;
    for (uint32_t k = 0; k < w->rank; k++) {
        strides[k] = w->stride[k];
        dilates[k] = w->dilation[k] - 1;
        pads[k] = w->pad[k];
        pads_end[k] = w->pad_end[k];
    }
    const_dnnl_memory_desc_t weights = d->w_wanted ? d->w_wanted : d->w_plain;
    dnnl_engine_t engine = cpu_dnnl_engine(build);
    dnnl_status_t status =
        c->transposed ? dnnl_deconvolution_forward_primitive_desc_create(
                            &d->primitive, engine, dnnl_forward_inference, dnnl_deconvolution_direct, d->x,
                            weights, d->bias, d->y, strides, dilates, pads, pads_end, attributes)
                      : dnnl_convolution_forward_primitive_desc_create(
                            &d->primitive, engine, dnnl_forward_inference, dnnl_convolution_direct, d->x,
                            weights, d->bias, d->y, strides, dilates, pads, pads_end, attributes);
    return status == dnnl_success;
}

/* One pair of layouts; false when oneDNN has no primitive for it. */
static bool describe(const cpu_build *build, const cpu_conv *c, cpu_layout from, cpu_layout to,
                     const_dnnl_primitive_attr_t attributes, descriptors *d)
{
    *d = (descriptors){0};
    dnnl_dims_t channels = {c->out_channels};
    d->x = cpu_dnnl_describe_tensor(build, &build->inputs[0], from);
    d->y = cpu_dnnl_describe_tensor(build, &build->outputs[0], to);
    bool good = d->x && d->y && describe_weights(d, c, build->inputs[1].constant);
    if (good && c->bias_input >= 0)
        good = dnnl_memory_desc_create_with_tag(&d->bias, 1, channels, dnnl_f32, dnnl_a) == dnnl_success;
    if (good && describe_primitive(build, c, d, attributes))
        return true;
    destroy(d);
    return false;
}

typedef struct candidate {
    cpu_layout from, to;
} candidate;

/* Layout pairs, the most promising first. Few channels on both sides gain nothing from blocks, which they
 * would fill with padding. */
static uint32_t list_candidates(const cpu_build *build, const cpu_conv *c, candidate *out)
{
    static const candidate blocked = {CPU_NCHW16C, CPU_NCHW16C}, first = {CPU_PLAIN, CPU_NCHW16C},
                           plain = {CPU_PLAIN, CPU_PLAIN}, last = {CPU_NCHW16C, CPU_PLAIN};
    uint32_t count = 0;
    /* A node that is evaluated alone has plain operands, and nobody to convert them. */
    if (!build->program) {
        out[0] = plain;
        return 1;
    }
    bool few = c->in_channels < 8 && c->out_channels < 8;
    bool starts = c->in_channels < 8 && build->inputs[0].layout == CPU_PLAIN;
    if (!build->inputs[1].constant || few)
        out[count++] = plain;
    if (starts)
        out[count++] = first;
    out[count++] = blocked;
    if (!starts)
        out[count++] = first;
    if (count < 3)
        out[count++] = plain;
    if (c->out_channels < 8)
        out[count++] = last;
    return count;
}

static gantry_status finish(cpu_build *build, const cpu_conv *c, const descriptors *d, candidate layouts,
                            int residual, cpu_kernel *out_kernel)
{
    cpu_dnnl_arg args[4] = {{DNNL_ARG_SRC, CPU_DNNL_INPUT, 0, NULL, d->x},
                            {DNNL_ARG_WEIGHTS, CPU_DNNL_INPUT, 1, NULL, d->w_plain},
                            {DNNL_ARG_DST, CPU_DNNL_OUTPUT, 0, NULL, d->y}};
    uint32_t count = 3;
    if (d->w_wanted) {
        args[1].md = dnnl_primitive_desc_query_md(d->primitive, dnnl_query_weights_md, 0);
        args[1].source = CPU_DNNL_FIXED;
        args[1].fixed = cpu_dnnl_pack(build, &build->inputs[1], d->w_plain, args[1].md);
        if (!args[1].fixed)
            return GANTRY_RESOURCE;
    }
    if (d->bias)
        args[count++] = (cpu_dnnl_arg){DNNL_ARG_BIAS, CPU_DNNL_INPUT, (uint32_t)c->bias_input, NULL, d->bias};
    GT_TRY(cpu_dnnl_kernel(build, d->primitive, args, count, residual, out_kernel));
    build->inputs[0].layout = layouts.from;
    build->outputs[0].layout = layouts.to;
    if (residual >= 0)
        build->inputs[residual].layout = layouts.to;
    out_kernel->packed_inputs = d->w_wanted ? 2 : 0;
    out_kernel->flops = cpu_conv_flops(c);
    return GANTRY_OK;
}

/* The first fast candidate, else the first that is not oneDNN's reference. */
static bool choose(const cpu_build *build, const cpu_conv *c, const_dnnl_primitive_attr_t attributes,
                   descriptors *best, candidate *out_layouts)
{
    candidate candidates[4];
    uint32_t count = list_candidates(build, c, candidates);
    bool found = false;
    for (uint32_t k = 0; k < count; k++) {
        descriptors d;
        const char *name;
        if (!describe(build, c, candidates[k].from, candidates[k].to, attributes, &d))
            continue;
        cpu_dnnl_rating rating = cpu_dnnl_rate(d.primitive, &name);
        if (rating == CPU_DNNL_REFERENCE || (found && rating == CPU_DNNL_SLOW)) {
            destroy(&d);
            continue;
        }
        destroy(best);
        *best = d;
        *out_layouts = candidates[k];
        found = true;
        if (rating == CPU_DNNL_FAST)
            break;
    }
    return found;
}

gantry_status cpu_conv_dnnl(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    if (!cpu_dnnl_engine(build))
        return GANTRY_UNSUPPORTED;
    int residual, threads = cpu_conv_flops(conv) < 32.0 * CPU_TINY_ELEMENTS ? 1 : build->threads;
    descriptors best = {0};
    candidate layouts;
    dnnl_primitive_attr_t attributes = cpu_dnnl_attributes(build, &residual);
    int before = cpu_dnnl_enter(build, threads);
    gantry_status status = GANTRY_UNSUPPORTED;
    if (attributes && choose(build, conv, attributes, &best, &layouts))
        status = finish(build, conv, &best, layouts, residual, out_kernel);
    cpu_dnnl_leave(before);
    if (status == GANTRY_OK)
        out_kernel->threads = threads;
    dnnl_primitive_attr_destroy(attributes);
    destroy(&best);
    return status;
}
