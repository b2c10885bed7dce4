/* Convolutions through oneDNN: which layouts to try, constant weights packed once, bias, activation and
 * residual fused. */
#include "conv_dnnl.h"
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

bool cpu_conv_describe_weights(const cpu_conv *conv, dnnl_data_type_t type, dnnl_memory_desc_t *out_plain,
                               dnnl_memory_desc_t *out_wanted)
{
    const cpu_window *w = &conv->window;
    dnnl_dims_t dims, strides;
    int rank = 0;
    if (conv->groups > 1)
        dims[rank++] = conv->groups;
    dims[rank++] = conv->out_channels / conv->groups;
    dims[rank++] = conv->in_channels / conv->groups;
    for (uint32_t k = 0; k < w->rank; k++)
        dims[rank++] = w->kernel[k];
    int64_t dense = 1;
    for (int k = rank; k-- > 0; dense *= dims[k])
        strides[k] = dense;
    return dnnl_memory_desc_create_with_strides(out_plain, rank, dims, type, strides) == dnnl_success &&
           dnnl_memory_desc_create_with_tag(out_wanted, rank, dims, type, dnnl_format_tag_any) ==
               dnnl_success;
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
    return dnnl_convolution_forward_primitive_desc_create(
               &d->primitive, cpu_dnnl_engine(build), dnnl_forward_inference, dnnl_convolution_direct, d->x,
               d->w_wanted, d->bias, d->y, strides, dilates, pads, pads_end, attributes) == dnnl_success;
}

/* With the spatial dims in the order of the window. */
static dnnl_memory_desc_t describe_tensor(const cpu_build *build, const cpu_conv *c, const cpu_tensor *tensor,
                                          cpu_layout layout)
{
    cpu_tensor seen = *tensor;
    if (c->turned) {
        seen.dims[2] = tensor->dims[3];
        seen.dims[3] = tensor->dims[2];
    }
    return cpu_dnnl_describe_tensor(build, &seen, layout);
}

/* One pair of layouts; false when oneDNN has no primitive for it. */
static bool describe(const cpu_build *build, const cpu_conv *c, cpu_layout from, cpu_layout to,
                     const_dnnl_primitive_attr_t attributes, descriptors *d)
{
    *d = (descriptors){0};
    dnnl_dims_t channels = {c->out_channels};
    d->x = describe_tensor(build, c, &build->inputs[0], from);
    d->y = describe_tensor(build, c, &build->outputs[0], to);
    bool good = d->x && d->y && cpu_conv_describe_weights(c, dnnl_f32, &d->w_plain, &d->w_wanted);
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
    if (few)
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
                            {DNNL_ARG_WEIGHTS, CPU_DNNL_FIXED, 1, NULL, NULL},
                            {DNNL_ARG_DST, CPU_DNNL_OUTPUT, 0, NULL, d->y}};
    uint32_t count = 3;
    args[1].md = dnnl_primitive_desc_query_md(d->primitive, dnnl_query_weights_md, 0);
    args[1].fixed = cpu_dnnl_pack(build, &build->inputs[1], d->w_plain, args[1].md);
    if (!args[1].fixed)
        return GANTRY_RESOURCE;
    if (d->bias)
        args[count++] = (cpu_dnnl_arg){DNNL_ARG_BIAS, CPU_DNNL_INPUT, (uint32_t)c->bias_input, NULL, d->bias};
    GT_TRY(cpu_dnnl_kernel(build, d->primitive, args, count, residual, out_kernel));
    build->inputs[0].layout = layouts.from;
    build->outputs[0].layout = layouts.to;
    if (residual >= 0)
        build->inputs[residual].layout = layouts.to;
    out_kernel->packed_inputs = 2;
    out_kernel->flops = cpu_conv_flops(c);
    return GANTRY_OK;
}

/* The first fast candidate. oneDNN's unpacked gemm (9 GFLOP/s seen) loses against our own panels. */
static bool choose(const cpu_build *build, const cpu_conv *c, const_dnnl_primitive_attr_t attributes,
                   descriptors *best, candidate *out_layouts)
{
    candidate candidates[4];
    uint32_t count = list_candidates(build, c, candidates);
    for (uint32_t k = 0; k < count; k++) {
        const char *name;
        if (!describe(build, c, candidates[k].from, candidates[k].to, attributes, best))
            continue;
        *out_layouts = candidates[k];
        if (cpu_dnnl_rate(best->primitive, &name) == CPU_DNNL_FAST)
            return true;
        destroy(best);
    }
    return false;
}

gantry_status cpu_conv_dnnl(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    if (!cpu_dnnl_engine(build) || !build->inputs[1].constant)
        return GANTRY_UNSUPPORTED;
    int residual, threads = cpu_conv_threads(build, conv);
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
