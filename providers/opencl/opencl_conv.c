/* Conv and ConvTranspose over one to three spatial dims. A convolution is a product of the weights with the
 * elements that its windows read: the image itself where windows are single points, else columns that a
 * kernel copies into scratch memory, some positions at a time. Groups of few channels are summed directly. */
#include "opencl_heavy.h"

/* Columns in scratch memory at a time: enough for products that keep the device busy, little of its memory.
 */
#define COLUMN_BYTES (16 << 20)

typedef struct conv {
    const opencl_operand *x, *w, *bias, *y;
    opencl_window window;
    int32_t batches, groups, group_in, group_out;
    int32_t taps; /* weights of one filter: channels of the group times its window */
    int64_t plane_in, plane_out;
} conv;

static bool limits(const opencl_node *node, gantry_verdict *verdict, bool transposed)
{
    const opencl_operand *x = &node->inputs[0], *w = &node->inputs[1];
    int64_t groups = gantry_node_int(node->view, "group", 1);
    if (w->rank != x->rank || w->rank < 3)
        return opencl_refuse_rank(verdict, w, "3 or more, and the rank of the input");
    if (!opencl_window_limits(node, w->dims + 2, verdict) || !opencl_same_types(node, verdict))
        return false;
    if (groups < 1 || groups > INT32_MAX)
        return opencl_refuse_attribute(verdict, "group", "no number of groups", "1 or more");
    if (!node->final)
        return true;
    int64_t channels = transposed ? w->dims[0] : w->dims[1] * groups;
    if (channels != x->dims[1] || (!transposed && w->dims[0] % groups) || x->dims[1] % groups)
        return opencl_refuse_limit(verdict, x->view->name, (double)x->dims[1], (double)channels,
                                   "the channels of the weights");
    return true;
}

static bool conv_limits(const opencl_node *node, gantry_verdict *verdict)
{
    return limits(node, verdict, false);
}

static bool transposed_limits(const opencl_node *node, gantry_verdict *verdict)
{
    return limits(node, verdict, true);
}

static conv read_conv(const opencl_node *node, bool transposed)
{
    conv c = {.x = &node->inputs[0], .w = &node->inputs[1], .y = &node->outputs[0]};
    opencl_window_read(node, c.w->dims + 2, &c.window);
    c.bias = opencl_is_there(opencl_input(node, 2)) ? opencl_input(node, 2) : NULL;
    c.batches = (int32_t)c.x->dims[0];
    c.groups = (int32_t)gantry_node_int(node->view, "group", 1);
    c.group_in = (int32_t)c.x->dims[1] / c.groups;
    c.group_out = (int32_t)(transposed ? c.w->dims[1] : c.w->dims[0] / c.groups);
    c.taps = (int32_t)opencl_count_dims(c.w, 1, c.w->rank);
    c.plane_in = opencl_product3(c.window.in);
    c.plane_out = opencl_product3(c.window.out);
    return c;
}

static void describe(opencl_launch *launch, const conv *c, const char *variant, double taps)
{
    double bytes = (double)opencl_bytes(c->x) + (double)opencl_bytes(c->w) + (double)opencl_bytes(c->y);
    opencl_launch_describe(launch, variant, bytes, 2 * (double)opencl_count(c->y) * taps);
}

/* ---- directly -------------------------------------------------------------------------------- */

static void add_operands(opencl_launch *launch, const conv *c)
{
    opencl_arg_input(launch, c->x);
    opencl_arg_input(launch, c->w);
    opencl_arg_input(launch, c->bias ? c->bias : c->x);
    opencl_arg_output(launch, c->y);
    opencl_window_args(launch, &c->window, 6);
    opencl_arg_int(launch, c->group_in);
    opencl_arg_int(launch, c->group_out);
}

static opencl_launch *add_direct(opencl_build *build, const conv *c, const char *kernel)
{
    opencl_launch *launch =
        opencl_heavy_add(build, c->x, c->bias ? "#define BIAS\n" : "", opencl_conv_source, kernel);
    add_operands(launch, c);
    opencl_launch_items(launch, c->plane_out, (int64_t)c->groups * c->group_out, c->batches);
    return launch;
}

/* On a CPU: 16 neighbours at a time in registers. */
static void add_lines(opencl_build *build, const conv *c)
{
    int32_t each = c->group_out >= 8 ? 8 : c->group_out >= 4 ? 4 : c->group_out >= 2 ? 2 : 1;
    int64_t blocks = (c->group_out + each - 1) / each, lines = (int64_t)c->window.out[0] * c->window.out[1];
    char defines[64];
    snprintf(defines, sizeof defines, "#define EACH_ROWS %d\n%s", each, c->bias ? "#define BIAS\n" : "");
    opencl_launch *launch = opencl_heavy_add(build, c->x, defines, opencl_conv_source, "conv_lines");
    add_operands(launch, c);
    opencl_arg_int(launch, c->groups);
    opencl_launch_size(launch, (c->window.out[2] + 15) / 16, lines * blocks * c->groups, c->batches);
    opencl_launch_groups(launch, 1, 8, 1);
    describe(launch, c, "conv:lines", c->taps);
}

/* ---- as a product ---------------------------------------------------------------------------- */

static bool reads_points(const opencl_window *w)
{
    bool points = opencl_product3(w->kernel) == 1;
    for (uint32_t k = 0; k < 3; k++)
        points = points && w->stride[k] == 1 && w->pad[k] == 0 && w->in[k] == w->out[k];
    return points;
}

/* The product for the batches from `batch` on and some positions; b is yet to be told. */
static opencl_product product_of(const conv *c, int32_t batch, int32_t batches, int64_t first, int64_t count)
{
    opencl_product p = opencl_product_of(c->w, c->x, c->y);
    int32_t filters = c->groups * c->group_out;
    p.name = "conv";
    p.rows = c->group_out;
    p.columns = (int32_t)count;
    p.depth = c->taps;
    p.batch_dims[0] = c->groups;
    p.batch_dims[1] = batches;
    p.a_batch[0] = c->group_out * c->taps;
    p.c_batch[0] = (int32_t)(c->group_out * c->plane_out);
    p.c_batch[1] = (int32_t)(filters * c->plane_out);
    p.c_begin = (int32_t)(batch * filters * c->plane_out + first);
    p.row_strides[0] = c->taps;
    p.row_strides[1] = (int32_t)count;
    p.row_strides[3] = (int32_t)c->plane_out;
    p.column_strides[0] = p.column_strides[1] = p.column_strides[3] = 1;
    if (c->bias) {
        p.bias = c->bias;
        p.bias_batch[0] = c->group_out;
        p.row_strides[2] = 1;
    }
    return p;
}

static void add_points(opencl_build *build, const opencl_node *node, const conv *c)
{
    opencl_product p = product_of(c, 0, c->batches, 0, c->plane_out);
    p.b_batch[0] = (int32_t)(c->group_in * c->plane_in);
    p.b_batch[1] = (int32_t)(c->groups * c->group_in * c->plane_in);
    opencl_product_add(build, node, &p);
}

static void add_columns(opencl_build *build, const conv *c, uint32_t scratch, int32_t batch, int32_t batches,
                        int64_t first, int64_t count)
{
    int64_t rows = (int64_t)c->groups * c->taps;
    size_t element = opencl_dtype_bytes(c->x->dtype);
    opencl_launch *launch = opencl_heavy_add(build, c->x, "", opencl_conv_source, "conv_columns");
    opencl_arg_input(launch, c->x);
    opencl_arg_scratch(launch, scratch, element);
    opencl_window_args(launch, &c->window, 6);
    opencl_arg_int(launch, c->groups * c->group_in);
    opencl_arg_int(launch, batch);
    opencl_arg_int(launch, (int32_t)first);
    opencl_arg_int(launch, (int32_t)count);
    opencl_launch_items(launch, count, rows, batches);
    opencl_launch_describe(launch, "conv:columns", (double)(2 * rows * count * batches) * (double)element, 0);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Whole images as long as they fit into the scratch memory, else parts of one image. */
static void add_product(opencl_build *build, const opencl_node *node, const conv *c)
{
    int64_t rows = (int64_t)c->groups * c->taps;
    int64_t position_bytes = rows * (int64_t)opencl_dtype_bytes(c->x->dtype);
    int64_t room = COLUMN_BYTES / (position_bytes ? position_bytes : 1);
    int64_t part = smaller(c->plane_out, room >= 64 ? room / 64 * 64 : 64);
    int64_t images =
        part == c->plane_out && part ? smaller(c->batches, room / part > 1 ? room / part : 1) : 1;
    uint32_t scratch = opencl_scratch_add(build, (size_t)(position_bytes * part * images));
    for (int64_t batch = 0; batch < c->batches; batch += images)
        for (int64_t first = 0; first < c->plane_out; first += part) {
            int64_t count = smaller(part, c->plane_out - first);
            int32_t batches = (int32_t)smaller(images, c->batches - batch);
            opencl_product p = product_of(c, (int32_t)batch, batches, first, count);
            p.b_is_scratch = true;
            p.b_scratch = scratch;
            p.b_batch[0] = (int32_t)(c->taps * count);
            p.b_batch[1] = (int32_t)(rows * count);
            add_columns(build, c, scratch, (int32_t)batch, batches, first, count);
            opencl_product_add(build, node, &p);
        }
}

/* A product of few filters or few weights leaves most of a tile empty. */
static bool is_direct(const conv *c)
{
    return c->groups > 1 && (c->group_out < 8 || c->taps < 16);
}

/* Lines of 16 are full, or nothing else fits. */
static bool fits_lines(const conv *c)
{
    return c->window.out[2] >= 14 || is_direct(c);
}

static void prepare_conv(opencl_build *build, const opencl_node *node)
{
    conv c = read_conv(node, false);
    if (opencl_count(c.y) == 0)
        return;
    if (reads_points(&c.window) && !is_direct(&c))
        add_points(build, node, &c);
    else if (node->device->runs_items_in_turn && fits_lines(&c))
        add_lines(build, &c);
    else if (is_direct(&c))
        describe(add_direct(build, &c, "conv_direct"), &c, "conv:direct", c.taps);
    else
        add_product(build, node, &c);
}

/* ---- transposed ------------------------------------------------------------------------------ */

/* Padding cuts the output: out = (in - 1) * stride + range - pad - end. A stated output or SAME splits what
 * is cut. */
static void fit_transposed(const opencl_node *node, opencl_window *w)
{
    const gantry_attribute *shape = gantry_node_attribute(node->view, "output_shape");
    const gantry_attribute *more = gantry_node_attribute(node->view, "output_padding");
    const char *mode = gantry_node_string(node->view, "auto_pad", "NOTSET");
    uint32_t spatial = node->inputs[0].rank - 2;
    if (!(shape && shape->count) && strncmp(mode, "SAME", 4) != 0)
        return;
    for (uint32_t d = 0; d < spatial; d++) {
        uint32_t k = 3 - spatial + d;
        int32_t full = (w->in[k] - 1) * w->stride[k] + (w->kernel[k] - 1) * w->dilation[k] + 1;
        int32_t total = full + (more && d < more->count ? (int32_t)more->ints[d] : 0) - w->out[k];
        total = total > 0 ? total : 0;
        w->pad[k] = strcmp(mode, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
    }
}

static void prepare_transposed(opencl_build *build, const opencl_node *node)
{
    conv c = read_conv(node, true);
    fit_transposed(node, &c.window);
    opencl_launch *launch = add_direct(build, &c, "conv_transposed");
    double reached = (double)opencl_product3(c.window.kernel) / (double)opencl_product3(c.window.stride);
    describe(launch, &c, "conv_transposed:direct", reached * c.group_in);
}

/* ---- costs ----------------------------------------------------------------------------------- */

static void conv_work(const opencl_node *node, opencl_work *inout_work)
{
    const opencl_operand *w = &node->inputs[1];
    bool transposed = node->view->op[4] != 0;
    const opencl_operand *walked = transposed ? &node->inputs[0] : &node->outputs[0];
    inout_work->flops = 2 * (double)opencl_count(walked) * (double)opencl_count_dims(w, 1, w->rank);
    inout_work->efficiency = transposed || gantry_node_int(node->view, "group", 1) > 1 ? 0.05 : 0.25;
    inout_work->launches = 2;
}

static const opencl_op ops[] = {
    {.name = "Conv",
     .domain = "",
     .types = OPENCL_SINGLE_OR_HALF,
     .limits = conv_limits,
     .prepare = prepare_conv,
     .work = conv_work},
    {.name = "ConvTranspose",
     .domain = "",
     .types = OPENCL_SINGLE_OR_HALF,
     .limits = transposed_limits,
     .prepare = prepare_transposed,
     .work = conv_work},
};
const opencl_op_table opencl_conv_ops = {ops, sizeof ops / sizeof *ops};
