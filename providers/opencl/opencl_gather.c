/* Operators that read or write where other elements say. An index outside of its axis gives 0 or writes
 * nothing: a device can't stop in the middle. */
#include "opencl_move.h"
#include "opencl_scatter.h"

/* T the elements, I the indexes. */
static const char source[] =
    "__kernel void gather(__global const T *x, ulong ox, __global const I *at, ulong oi, __global T *y, "
    "ulong oy,\n"
    "                     uint n, uint inner, uint picks, int extent, __global int *errors, int site)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    if (k >= n)\n"
    "        return;\n"
    "    uint column = (uint)k % inner, row = (uint)k / inner, pick = row % picks, outer = row / picks;\n"
    "    long index = (long)at[oi + pick];\n"
    "    if (index < -(long)extent || index >= extent)\n"
    "        FAIL(index, extent)\n"
    "    index += index < 0 ? extent : 0;\n"
    "    y[oy + k] = index < 0 || index >= extent ? (T)0 : x[ox + ((size_t)outer * extent + index) * inner + "
    "column];\n"
    "}\n"
    "/* y has the shape of the indexes: outer, picks, inner; x may be longer along every axis. */\n"
    "__kernel void gather_elements(__global const T *x, ulong ox, __global const I *at, ulong oi, __global T "
    "*y,\n"
    "                              ulong oy, uint n, int8 d, int8 s, int axis, int extent, __global int "
    "*errors, int site)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    int dims[8], strides[8];\n"
    "    if (k >= n)\n"
    "        return;\n"
    "    vstore8(d, 0, dims);\n"
    "    vstore8(s, 0, strides);\n"
    "    long index = (long)at[oi + k], from = 0;\n"
    "    uint rest = (uint)k;\n"
    "    if (index < -(long)extent || index >= extent)\n"
    "        FAIL(index, extent)\n"
    "    index += index < 0 ? extent : 0;\n"
    "    for (int a = 0; a < 8; a++) {\n"
    "        long here = rest % (uint)dims[a];\n"
    "        rest /= (uint)dims[a];\n"
    "        from += (a == axis ? index : here) * strides[a];\n"
    "    }\n"
    "    y[oy + k] = index < 0 || index >= extent ? (T)0 : x[ox + from];\n"
    "}\n"
    "/* Each index row has `depth` numbers, which pick a slice of `inner` elements within its batch. */\n"
    "__kernel void gather_nd(__global const T *x, ulong ox, __global const I *at, ulong oi, __global T *y, "
    "ulong "
    "oy,\n"
    "                        uint n, uint inner, uint rows, uint depth, ulong batch, int8 d, int8 s, "
    "__global int *errors, int site)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    int dims[8], strides[8], outside = 0;\n"
    "    if (k >= n)\n"
    "        return;\n"
    "    vstore8(d, 0, dims);\n"
    "    vstore8(s, 0, strides);\n"
    "    size_t row = k / inner, from = row / rows * batch + k % inner;\n"
    "    for (uint a = 0; a < depth; a++) {\n"
    "        long index = (long)at[oi + row * depth + a];\n"
    "        if (index < -(long)dims[a] || index >= dims[a])\n"
    "            FAIL(index, dims[a])\n"
    "        index += index < 0 ? dims[a] : 0;\n"
    "        outside |= index < 0 || index >= dims[a];\n"
    "        from += (size_t)index * strides[a];\n"
    "    }\n"
    "    y[oy + k] = outside ? (T)0 : x[ox + (outside ? 0 : from)];\n"
    "}\n"
    "__kernel void scatter_elements(__global const I *at, ulong oi, __global const T *x, ulong ox, __global "
    "T *y,\n"
    "                               ulong oy, uint n, int8 d, int8 s, int axis, int extent, __global int "
    "*errors, int "
    "site)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    int dims[8], strides[8];\n"
    "    if (k >= n)\n"
    "        return;\n"
    "    vstore8(d, 0, dims);\n"
    "    vstore8(s, 0, strides);\n"
    "    long index = (long)at[oi + k], to = 0;\n"
    "    uint rest = (uint)k;\n"
    "    if (index < -(long)extent || index >= extent) {\n"
    "        FAIL(index, extent)\n"
    "        return;\n"
    "    }\n"
    "    index += index < 0 ? extent : 0;\n"
    "    for (int a = 0; a < 8; a++) {\n"
    "        long here = rest % (uint)dims[a];\n"
    "        rest /= (uint)dims[a];\n"
    "        to += (a == axis ? index : here) * strides[a];\n"
    "    }\n"
    "    y[oy + to] = x[ox + k];\n"
    "}\n"
    "/* Each index row has `depth` numbers, which pick a slice of `inner` elements. */\n"
    "__kernel void scatter_nd(__global const I *at, ulong oi, __global const T *x, ulong ox, __global T *y, "
    "ulong oy,\n"
    "                         uint n, uint inner, uint depth, int8 d, int8 s, __global int *errors, int "
    "site)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    int dims[8], strides[8];\n"
    "    if (k >= n)\n"
    "        return;\n"
    "    vstore8(d, 0, dims);\n"
    "    vstore8(s, 0, strides);\n"
    "    size_t row = k / inner, to = k % inner;\n"
    "    for (uint a = 0; a < depth; a++) {\n"
    "        long index = (long)at[oi + row * depth + a];\n"
    "        if (index < -(long)dims[a] || index >= dims[a]) {\n"
    "            FAIL(index, dims[a])\n"
    "            return;\n"
    "        }\n"
    "        to += (size_t)(index + (index < 0 ? dims[a] : 0)) * strides[a];\n"
    "    }\n"
    "    y[oy + to] = x[ox + k];\n"
    "}\n"
    "__kernel void one_hot(__global const I *at, ulong oi, __global const T *values, ulong ov, __global T "
    "*y, ulong "
    "oy,\n"
    "                      uint n, uint inner, int depth)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    if (k >= n)\n"
    "        return;\n"
    "    uint column = (uint)k % inner, row = (uint)k / inner;\n"
    "    long index = (long)at[oi + (size_t)(row / (uint)depth) * inner + column];\n"
    "    index += index < 0 ? depth : 0;\n"
    "    y[oy + k] = values[ov + (index == row % (uint)depth)];\n"
    "}\n"
    "/* Elements of an axis in a triangle, else 0. */\n"
    "__kernel void triangle(__global const T *x, ulong ox, __global T *y, ulong oy, uint n, uint rows, uint "
    "columns,\n"
    "                       __global const long *at, ulong oi, int has_shift, int upper)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    if (k >= n)\n"
    "        return;\n"
    "    long column = k % columns, row = k / columns % rows;\n"
    "    long shift = has_shift ? at[oi] : 0;\n"
    "    int kept = upper ? column >= row + shift : column <= row + shift;\n"
    "    y[oy + k] = kept ? x[ox + k] : (T)0;\n"
    "}\n";

static opencl_launch *add_launch(opencl_build *build, const opencl_operand *elements,
                                 gantry_dtype index_dtype, const char *name)
{
    char defines[64];
    snprintf(defines, sizeof defines, "#define T %s\n#define I %s\n",
             opencl_size_name(opencl_dtype_bytes(elements->dtype)), opencl_dtype_name(index_dtype));
    return opencl_launch_add(build, defines, source, name);
}

static bool takes_indexes(const opencl_node *node, gantry_verdict *verdict)
{
    return opencl_takes_type(opencl_input(node, 1), OPENCL_I32 | OPENCL_I64, verdict);
}

/* Dims innermost first, the rest 1. */
static void turn(uint32_t rank, const int64_t *values, int32_t otherwise, int32_t *out)
{
    for (uint32_t k = 0; k < 8; k++)
        out[k] = k < rank ? (int32_t)values[rank - 1 - k] : otherwise;
}

/* ---- Gather and its kin ---------------------------------------------------------------------- */

static void finish(opencl_launch *launch, const opencl_operand *y, const char *name)
{
    opencl_launch_flat(launch, opencl_count(y));
    opencl_launch_describe(launch, name, 2 * (double)opencl_bytes(y), 0);
}

static void prepare_gather(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = opencl_input(node, 0), *at = opencl_input(node, 1), *y = opencl_output(node, 0);
    uint32_t axis = opencl_axis(gantry_node_int(node->view, "axis", 0), x->rank);
    opencl_launch *launch = add_launch(build, x, at->dtype, "gather");
    opencl_arg_input(launch, x);
    opencl_arg_input(launch, at);
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)opencl_count(y));
    opencl_arg_int(launch, (int32_t)opencl_count_dims(x, axis + 1, x->rank));
    opencl_arg_int(launch, (int32_t)opencl_count(at));
    opencl_arg_int(launch, (int32_t)x->dims[axis]);
    opencl_arg_errors(launch);
    finish(launch, y, "gather");
}

static void prepare_gather_elements(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = opencl_input(node, 0), *at = opencl_input(node, 1), *y = opencl_output(node, 0);
    uint32_t axis = opencl_axis(gantry_node_int(node->view, "axis", 0), x->rank);
    int64_t x_strides[OPENCL_MAX_RANK];
    int32_t dims[8], strides[8];
    opencl_dense_strides(x->rank, x->dims, x_strides);
    turn(y->rank, y->dims, 1, dims);
    turn(x->rank, x_strides, 0, strides);
    opencl_launch *launch = add_launch(build, x, at->dtype, "gather_elements");
    opencl_arg_input(launch, x);
    opencl_arg_input(launch, at);
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)opencl_count(y));
    opencl_arg_bytes(launch, dims, sizeof dims);
    opencl_arg_bytes(launch, strides, sizeof strides);
    opencl_arg_int(launch, (int32_t)(x->rank - 1 - axis));
    opencl_arg_int(launch, (int32_t)x->dims[axis]);
    opencl_arg_errors(launch);
    finish(launch, y, "gather_elements");
}

static void prepare_gather_nd(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = opencl_input(node, 0), *at = opencl_input(node, 1), *y = opencl_output(node, 0);
    uint32_t batch_rank = (uint32_t)gantry_node_int(node->view, "batch_dims", 0);
    uint32_t depth = (uint32_t)at->dims[at->rank - 1];
    int64_t x_strides[OPENCL_MAX_RANK];
    int32_t dims[8] = {0}, strides[8] = {0};
    opencl_dense_strides(x->rank, x->dims, x_strides);
    for (uint32_t k = 0; k < depth && batch_rank + k < x->rank; k++) {
        dims[k] = (int32_t)x->dims[batch_rank + k];
        strides[k] = (int32_t)x_strides[batch_rank + k];
    }
    opencl_launch *launch = add_launch(build, x, at->dtype, "gather_nd");
    opencl_arg_input(launch, x);
    opencl_arg_input(launch, at);
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)opencl_count(y));
    opencl_arg_int(launch, (int32_t)opencl_count_dims(x, batch_rank + depth, x->rank));
    opencl_arg_int(launch, (int32_t)opencl_count_dims(at, batch_rank, at->rank - 1));
    opencl_arg_int(launch, (int32_t)depth);
    opencl_arg_long(launch, opencl_count_dims(x, batch_rank, x->rank));
    opencl_arg_bytes(launch, dims, sizeof dims);
    opencl_arg_bytes(launch, strides, sizeof strides);
    opencl_arg_errors(launch);
    finish(launch, y, "gather_nd");
}

static bool gather_nd_limits(const opencl_node *node, gantry_verdict *verdict)
{
    if (opencl_input(node, 1)->rank == 0)
        return opencl_refuse_rank(verdict, opencl_input(node, 1), "1 or more");
    return takes_indexes(node, verdict);
}

/* ---- scattering: a copy, then the updates; of equal indexes any may win ------------------------ */

static void begin_scatter(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *y = opencl_output(node, 0);
    opencl_copy_add(build, y, 0, opencl_input(node, 0), 0, opencl_bytes(y));
}

static void prepare_scatter_elements(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *at = opencl_input(node, 1), *updates = opencl_input(node, 2),
                         *y = opencl_output(node, 0);
    uint32_t axis = opencl_axis(gantry_node_int(node->view, "axis", 0), y->rank);
    int64_t y_strides[OPENCL_MAX_RANK];
    int32_t dims[8], strides[8];
    opencl_dense_strides(y->rank, y->dims, y_strides);
    turn(at->rank, at->dims, 1, dims);
    turn(y->rank, y_strides, 0, strides);
    begin_scatter(build, node);
    if (opencl_scatter_reduces(node)) {
        opencl_scatter_elements_add(build, node);
        return;
    }
    opencl_launch *launch = add_launch(build, y, at->dtype, "scatter_elements");
    opencl_arg_input(launch, at);
    opencl_arg_input(launch, updates);
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)opencl_count(at));
    opencl_arg_bytes(launch, dims, sizeof dims);
    opencl_arg_bytes(launch, strides, sizeof strides);
    opencl_arg_int(launch, (int32_t)(y->rank - 1 - axis));
    opencl_arg_int(launch, (int32_t)y->dims[axis]);
    opencl_arg_errors(launch);
    finish(launch, at, "scatter_elements");
}

static void prepare_scatter_nd(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *at = opencl_input(node, 1), *updates = opencl_input(node, 2),
                         *y = opencl_output(node, 0);
    uint32_t depth = (uint32_t)at->dims[at->rank - 1];
    int64_t y_strides[OPENCL_MAX_RANK];
    int32_t dims[8] = {0}, strides[8] = {0};
    opencl_dense_strides(y->rank, y->dims, y_strides);
    for (uint32_t k = 0; k < depth && k < y->rank; k++) {
        dims[k] = (int32_t)y->dims[k];
        strides[k] = (int32_t)y_strides[k];
    }
    begin_scatter(build, node);
    if (opencl_scatter_reduces(node)) {
        opencl_scatter_nd_add(build, node);
        return;
    }
    opencl_launch *launch = add_launch(build, y, at->dtype, "scatter_nd");
    opencl_arg_input(launch, at);
    opencl_arg_input(launch, updates);
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)opencl_count(updates));
    opencl_arg_int(launch, (int32_t)opencl_count_dims(y, depth, y->rank));
    opencl_arg_int(launch, (int32_t)depth);
    opencl_arg_bytes(launch, dims, sizeof dims);
    opencl_arg_bytes(launch, strides, sizeof strides);
    opencl_arg_errors(launch);
    finish(launch, updates, "scatter_nd");
}

static bool scatter_limits(const opencl_node *node, gantry_verdict *verdict)
{
    const opencl_operand *x = opencl_input(node, 0);
    if (opencl_scatter_reduces(node) && !opencl_scatter_limits(node, verdict))
        return false;
    if (x->rank == 0 || opencl_input(node, 1)->rank == 0)
        return opencl_refuse_rank(verdict, x->rank ? opencl_input(node, 1) : x, "1 or more");
    return takes_indexes(node, verdict) &&
           opencl_takes_type(opencl_input(node, 2), OPENCL_TYPE(x->dtype), verdict);
}

/* ---- OneHot, Trilu --------------------------------------------------------------------------- */

static void prepare_one_hot(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *at = opencl_input(node, 0), *values = opencl_input(node, 2),
                         *y = opencl_output(node, 0);
    uint32_t axis = opencl_axis(gantry_node_int(node->view, "axis", -1), y->rank);
    opencl_launch *launch = add_launch(build, values, at->dtype, "one_hot");
    opencl_arg_input(launch, at);
    opencl_arg_input(launch, values);
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)opencl_count(y));
    opencl_arg_int(launch, (int32_t)opencl_count_dims(y, axis + 1, y->rank));
    opencl_arg_int(launch, (int32_t)y->dims[axis]);
    finish(launch, y, "one_hot");
}

static void prepare_triangle(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = opencl_input(node, 0), *y = opencl_output(node, 0);
    const opencl_operand *shift = opencl_input(node, 1);
    opencl_launch *launch = add_launch(build, x, GANTRY_INT32, "triangle");
    opencl_arg_input(launch, x);
    opencl_arg_output(launch, y);
    opencl_arg_int(launch, (int32_t)opencl_count(y));
    opencl_arg_int(launch, (int32_t)y->dims[y->rank - 2]);
    opencl_arg_int(launch, (int32_t)y->dims[y->rank - 1]);
    opencl_arg_input(launch, opencl_is_there(shift) ? shift : x);
    opencl_arg_int(launch, opencl_is_there(shift));
    opencl_arg_int(launch, gantry_node_int(node->view, "upper", 1) != 0);
    finish(launch, y, "triangle");
}

static bool triangle_limits(const opencl_node *node, gantry_verdict *verdict)
{
    return opencl_input(node, 0)->rank >= 2 ||
           opencl_refuse_rank(verdict, opencl_input(node, 0), "2 or more");
}

static void work_of_gather(const opencl_node *node, opencl_work *inout_work)
{
    inout_work->bytes = 2 * (double)opencl_bytes(opencl_output(node, 0));
    if (opencl_scatter_reduces(node))
        opencl_scatter_work(node, inout_work);
}

#define GATHER(op, type_set, hosts, limit_function, prepare_function)                                        \
    {                                                                                                        \
        .name = op, .domain = "", .types = type_set, .host_inputs = hosts, .limits = limit_function,         \
        .prepare = prepare_function, .work = work_of_gather                                                  \
    }

static const opencl_op ops[] = {
    GATHER("Gather", OPENCL_MOVABLE, 0, takes_indexes, prepare_gather),
    GATHER("GatherElements", OPENCL_MOVABLE, 0, takes_indexes, prepare_gather_elements),
    GATHER("GatherND", OPENCL_MOVABLE, 0, gather_nd_limits, prepare_gather_nd),
    GATHER("ScatterElements", OPENCL_MOVABLE, 0, scatter_limits, prepare_scatter_elements),
    GATHER("Scatter", OPENCL_MOVABLE, 0, scatter_limits, prepare_scatter_elements),
    GATHER("ScatterND", OPENCL_MOVABLE, 0, scatter_limits, prepare_scatter_nd),
    GATHER("OneHot", OPENCL_NUMBERS, 1u << 1, NULL, prepare_one_hot),
    GATHER("Trilu", OPENCL_MOVABLE, 0, triangle_limits, prepare_triangle),
};

const opencl_op_table opencl_gather_ops = {ops, sizeof ops / sizeof *ops};
