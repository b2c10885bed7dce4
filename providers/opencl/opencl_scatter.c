/* Scattering with a reduction. Updates that meet in one element are taken in order, by one item: results have
 * the same bits in every run. An item has a line of the indexes along the axis (ScatterElements), or one
 * element of all slices (ScatterND). */
#include "opencl_scatter.h"
#include "opencl_move.h"
#include "opencl_text.h"

#include <math.h>

static const char source[] =
    "__kernel void scatter_elements_reduced(__global const I *at, ulong oi, __global const T *x, ulong ox,\n"
    "                                       __global T *y, ulong oy, uint lines, int8 d, int8 sa, int8 sy,\n"
    "                                       int length, int step, int y_step, int extent,\n"
    "                                       __global int *errors, int site)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    int dims[8], at_strides[8], y_strides[8];\n"
    "    if (k >= lines)\n"
    "        return;\n"
    "    vstore8(d, 0, dims);\n"
    "    vstore8(sa, 0, at_strides);\n"
    "    vstore8(sy, 0, y_strides);\n"
    "    size_t rest = k, from = 0, to = 0;\n"
    "    for (int a = 0; a < 8; a++) {\n"
    "        size_t r = rest % dims[a];\n"
    "        rest /= dims[a];\n"
    "        from += r * at_strides[a];\n"
    "        to += r * y_strides[a];\n"
    "    }\n"
    "    for (int e = 0; e < length; e++, from += step) {\n"
    "        long index = (long)at[oi + from];\n"
    "        if (index < -(long)extent || index >= extent) {\n"
    "            FAIL(index, extent)\n"
    "            return;\n"
    "        }\n"
    "        size_t p = oy + to + (size_t)(index + (index < 0 ? extent : 0)) * y_step;\n"
    "        T_C old = LOAD_T(y, p), more = LOAD_T(x, ox + from);\n"
    "        STORE_T((T_C)(BOTH(old, more)), y, p);\n"
    "    }\n"
    "}\n"
    "__kernel void scatter_nd_reduced(__global const I *at, ulong oi, __global const T *x, ulong ox,\n"
    "                                 __global T *y, ulong oy, uint inner, uint rows, uint depth, int8 d, "
    "int8 "
    "s,\n"
    "                                 __global int *errors, int site)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    int dims[8], strides[8];\n"
    "    if (k >= inner)\n"
    "        return;\n"
    "    vstore8(d, 0, dims);\n"
    "    vstore8(s, 0, strides);\n"
    "    for (size_t row = 0; row < rows; row++) {\n"
    "        size_t p = oy + k;\n"
    "        for (uint a = 0; a < depth; a++) {\n"
    "            long index = (long)at[oi + row * depth + a];\n"
    "            if (index < -(long)dims[a] || index >= dims[a]) {\n"
    "                FAIL(index, dims[a])\n"
    "                return;\n"
    "            }\n"
    "            p += (size_t)(index + (index < 0 ? dims[a] : 0)) * strides[a];\n"
    "        }\n"
    "        T_C old = LOAD_T(y, p), more = LOAD_T(x, ox + row * inner + k);\n"
    "        STORE_T((T_C)(BOTH(old, more)), y, p);\n"
    "    }\n"
    "}\n";

static const struct {
    const char *name, *both;
} reductions[] = {{"add", "(a) + (b)"},
                  {"mul", "(a) * (b)"},
                  {"max", "(a) != (a) || (a) > (b) ? (a) : (b)"},
                  {"min", "(a) != (a) || (a) < (b) ? (a) : (b)"}};

static const char *reduction_of(const opencl_node *node)
{
    const char *name = gantry_node_string(node->view, "reduction", "none");
    for (size_t k = 0; k < sizeof reductions / sizeof *reductions; k++)
        if (strcmp(reductions[k].name, name) == 0)
            return reductions[k].both;
    return NULL;
}

bool opencl_scatter_reduces(const opencl_node *node)
{
    return strcmp(gantry_node_string(node->view, "reduction", "none"), "none") != 0;
}

bool opencl_scatter_limits(const opencl_node *node, gantry_verdict *verdict)
{
    if (!reduction_of(node))
        return opencl_refuse_attribute(verdict, "reduction", gantry_node_string(node->view, "reduction", ""),
                                       "none, add, mul, max, min");
    return opencl_takes_type(opencl_input(node, 0), OPENCL_REALS | OPENCL_INTEGERS, verdict);
}

static opencl_launch *add_launch(opencl_build *build, const opencl_node *node, const char *name)
{
    opencl_text text = {.used = 0};
    char types[512] = "";
    opencl_define_type(types, sizeof types, "T", opencl_output(node, 0)->dtype);
    opencl_text_add(&text, "%s#define I %s\n#define BOTH(a, b) %s\n", types,
                    opencl_dtype_name(opencl_input(node, 1)->dtype), reduction_of(node));
    opencl_launch *launch = opencl_launch_add(build, text.data, source, name);
    opencl_arg_input(launch, opencl_input(node, 1));
    opencl_arg_input(launch, opencl_input(node, 2));
    opencl_arg_output(launch, opencl_output(node, 0));
    return launch;
}

static void finish(opencl_launch *launch, const opencl_node *node, int64_t items, const char *name)
{
    const opencl_operand *updates = opencl_input(node, 2);
    opencl_arg_errors(launch);
    opencl_launch_flat(launch, opencl_count(updates) ? items : 0);
    opencl_launch_describe(launch, name, 3 * (double)opencl_bytes(updates), (double)opencl_count(updates));
}

/* Innermost first; all but `axis` (GANTRY_NO_ID: none is left out), the rest `otherwise`. */
static void turn(uint32_t rank, const int64_t *values, uint32_t axis, int32_t otherwise, int32_t *out)
{
    for (uint32_t k = 0; k < 8; k++)
        out[k] = k < rank && rank - 1 - k != axis ? (int32_t)values[rank - 1 - k] : otherwise;
}

void opencl_scatter_elements_add(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *at = opencl_input(node, 1), *y = opencl_output(node, 0);
    uint32_t axis = opencl_axis(gantry_node_int(node->view, "axis", 0), y->rank);
    int64_t at_strides[OPENCL_MAX_RANK], y_strides[OPENCL_MAX_RANK], lines = 1;
    int32_t dims[8], turned_at[8], turned_y[8];
    opencl_dense_strides(at->rank, at->dims, at_strides);
    opencl_dense_strides(y->rank, y->dims, y_strides);
    turn(at->rank, at->dims, axis, 1, dims);
    turn(at->rank, at_strides, axis, 0, turned_at);
    turn(y->rank, y_strides, axis, 0, turned_y);
    for (uint32_t k = 0; k < 8; k++)
        lines *= dims[k];
    opencl_launch *launch = add_launch(build, node, "scatter_elements_reduced");
    opencl_arg_int(launch, (int32_t)lines);
    opencl_arg_bytes(launch, dims, sizeof dims);
    opencl_arg_bytes(launch, turned_at, sizeof turned_at);
    opencl_arg_bytes(launch, turned_y, sizeof turned_y);
    opencl_arg_int(launch, (int32_t)at->dims[axis]);
    opencl_arg_int(launch, (int32_t)at_strides[axis]);
    opencl_arg_int(launch, (int32_t)y_strides[axis]);
    opencl_arg_int(launch, (int32_t)y->dims[axis]);
    finish(launch, node, lines, "scatter_elements_reduced");
}

void opencl_scatter_nd_add(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *at = opencl_input(node, 1), *y = opencl_output(node, 0);
    uint32_t depth = (uint32_t)at->dims[at->rank - 1];
    int64_t y_strides[OPENCL_MAX_RANK], inner = opencl_count_dims(y, depth, y->rank);
    int32_t dims[8] = {0}, strides[8] = {0};
    opencl_dense_strides(y->rank, y->dims, y_strides);
    for (uint32_t k = 0; k < depth && k < y->rank; k++) {
        dims[k] = (int32_t)y->dims[k];
        strides[k] = (int32_t)y_strides[k];
    }
    opencl_launch *launch = add_launch(build, node, "scatter_nd_reduced");
    opencl_arg_int(launch, (int32_t)inner);
    opencl_arg_int(launch, (int32_t)opencl_count_dims(at, 0, at->rank - 1));
    opencl_arg_int(launch, (int32_t)depth);
    opencl_arg_bytes(launch, dims, sizeof dims);
    opencl_arg_bytes(launch, strides, sizeof strides);
    finish(launch, node, inner, "scatter_nd_reduced");
}

/* Few items leave most of the device idle; it takes some hundred for each unit to fill it. */
void opencl_scatter_work(const opencl_node *node, opencl_work *inout_work)
{
    const opencl_operand *at = opencl_input(node, 1), *updates = opencl_input(node, 2);
    bool nd = strcmp(node->view->op, "ScatterND") == 0;
    double count = (double)opencl_count(updates), steps = 1;
    if (at->rank)
        steps = nd ? (double)opencl_count_dims(at, 0, at->rank - 1)
                   : (double)at->dims[opencl_axis(gantry_node_int(node->view, "axis", 0), at->rank)];
    double items = count / fmax(steps, 1), full = 256.0 * fmax(node->device->unit_count, 1);
    inout_work->bytes = 2 * (double)opencl_bytes(opencl_output(node, 0)) + 3 * (double)opencl_bytes(updates);
    inout_work->flops = count;
    inout_work->efficiency = fmax(fmin(items / full, 1), 1e-6);
    inout_work->launches = 2;
}
