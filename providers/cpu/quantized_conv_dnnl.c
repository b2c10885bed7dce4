/* QLinearConv through oneDNN: bytes with channels last, requantized in the primitive. */
#include "conv_dnnl.h"
#include "quantized_dnnl.h"

static bool describe(const cpu_build *build, const cpu_conv *c, const cpu_qfactors *factors,
                     cpu_qdescriptors *d)
{
    const cpu_window *w = &c->window;
    dnnl_dims_t strides, dilates, pads, pads_end, channels = {c->out_channels};
    for (uint32_t k = 0; k < w->rank; k++) {
        strides[k] = w->stride[k];
        dilates[k] = w->dilation[k] - 1;
        pads[k] = w->pad[k];
        pads_end[k] = w->pad_end[k];
    }
    dnnl_primitive_attr_t attributes = NULL;
    d->parameters[0] = cpu_qmultipliers(factors, (int)w->rank + 2, 1);
    if (d->parameters[0])
        attributes = cpu_qattributes(factors, d->parameters[0]);
    d->x = cpu_dnnl_describe_tensor(build, &build->inputs[0], CPU_NHWC);
    d->y = cpu_dnnl_describe_tensor(build, &build->outputs[0], CPU_NHWC);
    bool good =
        attributes && d->x && d->y && cpu_conv_describe_weights(c, dnnl_s8, &d->w_plain, &d->w_wanted) &&
        (!factors->bias ||
         dnnl_memory_desc_create_with_tag(&d->bias, 1, channels, dnnl_f32, dnnl_a) == dnnl_success) &&
        dnnl_convolution_forward_primitive_desc_create(
            &d->primitive, cpu_dnnl_engine(build), dnnl_forward_inference, dnnl_convolution_direct, d->x,
            d->w_wanted, d->bias, d->y, strides, dilates, pads, pads_end, attributes) == dnnl_success;
    dnnl_primitive_attr_destroy(attributes);
    return good;
}

static gantry_status read_conv(cpu_build *build, const cpu_tensor *w, cpu_conv *out_conv)
{
    const cpu_tensor *x = &build->inputs[0];
    if (w->rank != x->rank || x->rank < 3 || x->rank > 5 || x->count == 0)
        return GANTRY_UNSUPPORTED;
    cpu_conv c = {.dtype = x->dtype,
                  .batch = x->dims[0],
                  .groups = gantry_node_int(build->node, "group", 1),
                  .in_channels = x->dims[1],
                  .out_channels = w->dims[0],
                  .bias_input = -1};
    GT_TRY(cpu_window_read(build, w->dims + 2, w->rank - 2, &c.window));
    GT_TRY(cpu_window_fit(build, &c.window));
    if (c.groups < 1 || c.in_channels != w->dims[1] * c.groups || c.out_channels % c.groups)
        return GANTRY_UNSUPPORTED; /* the own kernel says so with a text */
    *out_conv = c;
    return GANTRY_OK;
}

gantry_status cpu_qconv_dnnl(cpu_build *build, const cpu_qoperands *o, cpu_kernel *out_kernel)
{
    cpu_conv conv;
    cpu_qfactors factors;
    if (!cpu_qdnnl_serves(build))
        return GANTRY_UNSUPPORTED;
    GT_TRY(read_conv(build, &build->inputs[o->w], &conv));
    GT_TRY(cpu_qfactors_read(build, o, conv.out_channels, &factors));
    cpu_qdescriptors d = {0};
    const char *name;
    int threads = cpu_conv_flops(&conv) < 64.0 * CPU_TINY_ELEMENTS ? 1 : build->threads;
    int before = cpu_dnnl_enter(build, threads);
    gantry_status status = GANTRY_UNSUPPORTED;
    if (describe(build, &conv, &factors, &d) && cpu_dnnl_rate(d.primitive, &name) == CPU_DNNL_FAST)
        status = cpu_qkernel(build, o, &factors, &d, out_kernel);
    cpu_dnnl_leave(before);
    cpu_qdescriptors_destroy(&d);
    if (status == GANTRY_OK) {
        build->inputs[0].layout = build->outputs[0].layout = CPU_NHWC;
        out_kernel->threads = threads;
        out_kernel->flops = cpu_conv_flops(&conv);
    }
    return status;
}
