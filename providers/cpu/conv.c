/* Conv and ConvTranspose: reading the node, then oneDNN or plain loops. */
#include "conv_winograd.h"

static gantry_status check_channels(cpu_build *build, const cpu_conv *c)
{
    const cpu_tensor *w = &build->inputs[1];
    if (c->groups < 1 || c->in_channels % c->groups || c->out_channels % c->groups)
        return cpu_unsupported(build, "%lld input and %lld output channels do not divide into %lld groups",
                               (long long)c->in_channels, (long long)c->out_channels, (long long)c->groups);
    int64_t first = c->transposed ? c->in_channels : c->out_channels;
    int64_t second = (c->transposed ? c->out_channels : c->in_channels) / c->groups;
    if (w->dims[0] != first || w->dims[1] != second)
        return cpu_unsupported(build, "the weight is [%lld, %lld, ..], the channels need [%lld, %lld, ..]",
                               (long long)w->dims[0], (long long)w->dims[1], (long long)first,
                               (long long)second);
    if (c->bias_input >= 0 && build->inputs[c->bias_input].count != c->out_channels)
        return cpu_unsupported(build, "the bias has %lld elements, the output %lld channels",
                               (long long)build->inputs[c->bias_input].count, (long long)c->out_channels);
    return GANTRY_OK;
}

static int find_bias(const cpu_build *build)
{
    if (build->node->input_count > 2 && build->inputs[2].present)
        return 2;
    for (uint32_t k = 0; k < build->post_count; k++)
        if (build->posts[k].kind == CPU_POST_BIAS)
            return (int)build->posts[k].input;
    return -1;
}

const cpu_post *cpu_conv_posts(const cpu_build *build, const cpu_conv *conv, uint32_t *out_count)
{
    cpu_post *posts = cpu_state(build, (build->post_count + 1) * sizeof *posts);
    *out_count = 0;
    if (posts && conv->bias_input >= 0)
        posts[(*out_count)++] = (cpu_post){.kind = CPU_POST_BIAS, .input = (uint32_t)conv->bias_input};
    for (uint32_t k = 0; posts && k < build->post_count; k++)
        if (build->posts[k].kind != CPU_POST_BIAS)
            posts[(*out_count)++] = build->posts[k];
    return posts;
}

static gantry_status read_conv(cpu_build *build, bool transposed, cpu_conv *out_conv)
{
    const cpu_tensor *x = &build->inputs[0], *w = &build->inputs[1];
    if (w->rank != x->rank || x->rank < 3)
        return cpu_unsupported(build, "input and weight have ranks %u and %u", x->rank, w->rank);
    cpu_conv c = {.dtype = x->dtype,
                  .batch = x->dims[0],
                  .groups = gantry_node_int(build->node, "group", 1),
                  .in_channels = x->dims[1],
                  .out_channels = build->outputs[0].dims[1],
                  .transposed = transposed,
                  .bias_input = find_bias(build)};
    GT_TRY(cpu_window_read(build, w->dims + 2, w->rank - 2, &c.window));
    GT_TRY(check_channels(build, &c));
    *out_conv = c;
    return GANTRY_OK;
}

/* oneDNN fills its 16 lanes with output channels: with few of them own kernels, whose lanes are pixels, win.
 */
#define FEW_CHANNELS 4

/* oneDNN generates code for every tap of a row when there is one input channel: a millisecond for each shape
 * of 256 taps, and nothing gained. */
#define LONG_ROW 32

static bool prefers_own(const cpu_conv *conv)
{
    const cpu_window *w = &conv->window;
    bool few = conv->out_channels <= FEW_CHANNELS;
    bool unrolled =
        conv->in_channels == 1 && w->kernel[w->rank - 1] >= LONG_ROW && w->out[w->rank - 1] >= LONG_ROW;
    return conv->groups == 1 && (few || unrolled);
}

/* Kernels of our own, whatever the window: one of them always takes it. */
static gantry_status make_own(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    if (conv->transposed)
        return cpu_conv_panel_transposed(build, conv, out_kernel);
    gantry_status status = cpu_conv_direct(build, conv, out_kernel);
    return status == GANTRY_UNSUPPORTED ? cpu_conv_panel(build, conv, out_kernel) : status;
}

static gantry_status make_any(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    gantry_status status = GANTRY_UNSUPPORTED;
    bool single = conv->dtype == GANTRY_FLOAT32 && build->inputs[0].count > 0;
    bool own = prefers_own(conv);
    if (single && !own)
        status = cpu_conv_winograd(build, conv, out_kernel);
    if (single && !own && status == GANTRY_UNSUPPORTED)
        status = cpu_conv_winograd_row(build, conv, out_kernel);
    if (single && (!own || conv->transposed) && status == GANTRY_UNSUPPORTED)
        status = cpu_conv_pixels(build, conv, out_kernel);
    if (single && !own && status == GANTRY_UNSUPPORTED)
        status = cpu_conv_depthwise(build, conv, out_kernel);
    if (single && !own && !conv->transposed && status == GANTRY_UNSUPPORTED)
        status = cpu_conv_dnnl(build, conv, out_kernel);
    if (single && status == GANTRY_UNSUPPORTED)
        status = make_own(build, conv, out_kernel);
    if (status == GANTRY_UNSUPPORTED)
        status = cpu_conv_plain(build, conv, out_kernel);
    return status;
}

static void swap(int64_t *dims)
{
    int64_t first = dims[0];
    dims[0] = dims[1];
    dims[1] = first;
}

/* Rows of one column are a row: all kernels block along the last dim. */
static void turn_column(cpu_conv *c)
{
    cpu_window *w = &c->window;
    if (w->rank != 2 || w->in[1] != 1 || w->kernel[1] != 1 || w->pad[1] || w->pad_end[1] || w->in[0] == 1)
        return;
    int64_t *lists[] = {w->in, w->out, w->kernel, w->stride, w->dilation, w->pad, w->pad_end};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        swap(lists[k]);
    c->turned = true;
}

static gantry_status make_conv(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_conv conv;
    GT_TRY(read_conv(build, false, &conv));
    GT_TRY(cpu_window_fit(build, &conv.window));
    turn_column(&conv);
    return make_any(build, &conv, out_kernel);
}

/* The padding of a transposed convolution cuts the output: out = (in-1)*stride + range - pad - pad_end. */
static gantry_status fit_transposed(cpu_build *build, cpu_conv *c)
{
    cpu_window *w = &c->window;
    const char *mode = gantry_node_string(build->node, "auto_pad", "NOTSET");
    const gantry_attribute *shape = gantry_node_attribute(build->node, "output_shape");
    bool split = (shape && shape->count) || strncmp(mode, "SAME", 4) == 0;
    for (uint32_t k = 0; k < w->rank; k++) {
        int64_t full = (w->in[k] - 1) * w->stride[k] + cpu_window_range(w, k);
        if (split) {
            const gantry_attribute *more = gantry_node_attribute(build->node, "output_padding");
            int64_t total = full + (more && k < more->count ? more->ints[k] : 0) - w->out[k];
            total = total > 0 ? total : 0;
            w->pad[k] = strcmp(mode, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
        }
        w->pad_end[k] = full - w->pad[k] - w->out[k];
    }
    return GANTRY_OK;
}

static gantry_status make_transposed(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_conv conv;
    GT_TRY(read_conv(build, true, &conv));
    GT_TRY(fit_transposed(build, &conv));
    return make_any(build, &conv, out_kernel);
}

static double conv_flops(const gantry_graph_view *graph, const gantry_node_view *node)
{
    const gantry_value_view *w = gantry_node_input(graph, node, 1);
    bool transposed = node->op[4] != 0;
    const gantry_value_view *walked =
        transposed ? gantry_node_input(graph, node, 0) : gantry_node_output(graph, node, 0);
    if (!w || !walked || w->rank < 2 || !w->typical_dims || !walked->typical_dims)
        return 1;
    double flops = 2;
    for (int32_t k = 1; k < w->rank; k++)
        flops *= (double)w->typical_dims[k];
    for (int32_t k = 0; k < walked->rank; k++)
        flops *= (double)walked->typical_dims[k];
    return flops;
}

static const cpu_op_row rows[] = {
    {"Conv", "", {CPU_FLOATS}, make_conv, NULL, conv_flops, CPU_ROW_PACKS | CPU_ROW_PICKS_LAYOUT},
    {"ConvTranspose",
     "",
     {CPU_FLOATS},
     make_transposed,
     NULL,
     conv_flops,
     CPU_ROW_PACKS | CPU_ROW_PICKS_LAYOUT},
};

cpu_op_family cpu_conv_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof *rows};
}
