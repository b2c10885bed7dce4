/* What products, convolutions, pools and normalizations share: limits, windows, and how the device works. */
#include "opencl_heavy.h"

#include <math.h>

opencl_launch *opencl_heavy_add(opencl_build *build, const opencl_operand *x, const char *defines,
                                const char *source, const char *name)
{
    char all[512];
    snprintf(all, sizeof all, "%s%s", x->dtype == GANTRY_FLOAT16 ? "#define HALF\n" : "", defines);
    return opencl_launch_add(build, all, source, name);
}

void opencl_launch_items(opencl_launch *launch, int64_t x, int64_t y, int64_t z)
{
    opencl_launch_size(launch, x, y, z);
    opencl_launch_groups(launch, 64, 1, 1);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static bool takes_operand(const opencl_operand *operand, uint32_t types, gantry_verdict *verdict)
{
    if (!opencl_takes_type(operand, types, verdict))
        return false;
    if (opencl_is_there(operand) && opencl_count(operand) > INT32_MAX)
        return opencl_refuse_limit(verdict, operand->view->name, (double)opencl_count(operand), INT32_MAX,
                                   "fewer than 2^31 elements");
    return true;
}

bool opencl_same_types(const opencl_node *node, gantry_verdict *verdict)
{
    uint32_t type = OPENCL_TYPE(node->inputs[0].dtype);
    for (uint32_t k = 0; k < node->input_count; k++)
        if (!takes_operand(&node->inputs[k], type, verdict))
            return false;
    return takes_operand(&node->outputs[0], type, verdict);
}

bool opencl_only_first_output(const opencl_node *node, gantry_verdict *verdict)
{
    for (uint32_t k = 1; k < node->output_count; k++)
        if (opencl_is_there(&node->outputs[k])) {
            gantry_refuse(verdict, GANTRY_REFUSE_no_kernel, node->outputs[k].view->name, "a second output",
                          "only the first output", "");
            return false;
        }
    return true;
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Kernels count positions in 32 bits: extents with padding, and windows with their holes, stay below. */
#define ATTRIBUTE_MAX (1 << 24)
#define EXTENT_MAX (1 << 29)

static bool takes_ints(const opencl_node *node, const char *name, uint32_t count, int64_t least,
                       gantry_verdict *verdict)
{
    const gantry_attribute *a = gantry_node_attribute(node->view, name);
    if (!a || a->kind != GANTRY_ATTR_INTS || a->count == 0)
        return true;
    if (a->count != count)
        return opencl_refuse_attribute(verdict, name, "another number of entries",
                                       "one entry each spatial dim");
    for (uint32_t k = 0; k < count; k++)
        if (a->ints[k] < least || a->ints[k] > ATTRIBUTE_MAX)
            return opencl_refuse_attribute(verdict, name, "an entry beyond the limits",
                                           least ? "1 to 2^24" : "0 to 2^24");
    return true;
}

static int32_t int_of(const opencl_node *node, const char *name, uint32_t k, int32_t otherwise)
{
    const gantry_attribute *a = gantry_node_attribute(node->view, name);
    return a && a->kind == GANTRY_ATTR_INTS && k < a->count ? (int32_t)a->ints[k] : otherwise;
}

static bool takes_extents(const opencl_node *node, const int64_t *kernel, gantry_verdict *verdict)
{
    const opencl_operand *x = &node->inputs[0], *y = &node->outputs[0];
    for (uint32_t d = 0; d + 2 < x->rank; d++) {
        double step = int_of(node, "strides", d, 1),
               range = (double)kernel[d] * int_of(node, "dilations", d, 1);
        double walked = step * (double)(x->dims[2 + d] < y->dims[2 + d] ? x->dims[2 + d] : y->dims[2 + d]);
        double most = fmax(fmax((double)x->dims[2 + d], (double)y->dims[2 + d]), fmax(range, walked));
        if (most > EXTENT_MAX)
            return opencl_refuse_limit(verdict, x->view->name, most, EXTENT_MAX, "extents of at most 2^29");
    }
    return true;
}

bool opencl_window_limits(const opencl_node *node, const int64_t *kernel, gantry_verdict *verdict)
{
    const opencl_operand *x = &node->inputs[0];
    if (x->rank < 3 || x->rank > 5)
        return opencl_refuse_rank(verdict, x, "3 to 5");
    uint32_t spatial = x->rank - 2;
    return takes_ints(node, "kernel_shape", spatial, 1, verdict) &&
           takes_ints(node, "strides", spatial, 1, verdict) &&
           takes_ints(node, "dilations", spatial, 1, verdict) &&
           takes_ints(node, "pads", 2 * spatial, 0, verdict) &&
           (!node->final || takes_extents(node, kernel, verdict));
}

/* SAME: the output is ceil(in / stride), the padding is split, the odd one goes where the name says. */
static void pad_same(opencl_window *w, uint32_t k, bool upper)
{
    int32_t total = (w->out[k] - 1) * w->stride[k] + (w->kernel[k] - 1) * w->dilation[k] + 1 - w->in[k];
    total = total > 0 ? total : 0;
    w->pad[k] = upper ? total / 2 : total - total / 2;
    w->end[k] = total - w->pad[k];
}

void opencl_window_read(const opencl_node *node, const int64_t *kernel, opencl_window *out_window)
{
    const opencl_operand *x = &node->inputs[0], *y = &node->outputs[0];
    const char *mode = gantry_node_string(node->view, "auto_pad", "NOTSET");
    uint32_t spatial = x->rank - 2;
    bool same = strncmp(mode, "SAME", 4) == 0, given = !same && strcmp(mode, "VALID") != 0;
    opencl_window w = {{1, 1, 1, 0}, {1, 1, 1, 0}, {1, 1, 1, 0}, {1, 1, 1, 0}, {1, 1, 1, 0}, {0}, {0}};
    for (uint32_t d = 0; d < spatial; d++) {
        uint32_t k = 3 - spatial + d;
        w.in[k] = (int32_t)x->dims[2 + d];
        w.out[k] = (int32_t)y->dims[2 + d];
        w.kernel[k] = (int32_t)kernel[d];
        w.stride[k] = int_of(node, "strides", d, 1);
        w.dilation[k] = int_of(node, "dilations", d, 1);
        w.pad[k] = given ? int_of(node, "pads", d, 0) : 0;
        w.end[k] = given ? int_of(node, "pads", spatial + d, 0) : 0;
        if (same)
            pad_same(&w, k, mode[5] == 'U');
    }
    *out_window = w;
}

void opencl_window_args(opencl_launch *launch, const opencl_window *window, uint32_t count)
{
    const int32_t *const vectors[] = {window->in,       window->out, window->kernel, window->stride,
                                      window->dilation, window->pad, window->end};
    for (uint32_t k = 0; k < count; k++)
        opencl_arg_bytes(launch, vectors[k], 4 * sizeof(int32_t));
}

int64_t opencl_product3(const int32_t *dims)
{
    return (int64_t)dims[0] * dims[1] * dims[2];
}
