/* Operators that place elements anew: views, strided copies, and copies through tables. */
#include "opencl_move.h"

/* ---- the same bytes under another shape ------------------------------------------------------ */

static void prepare_view(opencl_build *build, const opencl_node *node)
{
    opencl_view_add(build, opencl_output(node, 0), opencl_input(node, 0), 0);
}

/* Dropout outside of training passes its input on; a mask is not made. */
static bool dropout_limits(const opencl_node *node, gantry_verdict *verdict)
{
    if (opencl_is_there(opencl_output(node, 1)))
        return opencl_refuse_attribute(verdict, "mask", "a mask is wanted", "no second output");
    if (opencl_is_there(opencl_input(node, 2)) &&
        (!node->final || *(const uint8_t *)opencl_input(node, 2)->host))
        return opencl_refuse_attribute(verdict, "training_mode", "given", "no training");
    return true;
}

/* ---- integers from an attribute or a host input ---------------------------------------------- */

/* Reads at most capacity of them; -1 where neither is there. */
static int32_t read_ints(const opencl_node *node, const char *attribute, uint32_t input, int64_t *out,
                         uint32_t capacity)
{
    const gantry_attribute *a = gantry_node_attribute(node->view, attribute);
    const opencl_operand *operand = opencl_input(node, input);
    uint32_t count = 0;
    if (a && a->kind == GANTRY_ATTR_INTS) {
        for (; count < a->count && count < capacity; count++)
            out[count] = a->ints[count];
        return (int32_t)count;
    }
    if (!opencl_is_there(operand))
        return -1;
    for (; count < opencl_count(operand) && count < capacity; count++)
        out[count] = opencl_host_int(operand, count);
    return (int32_t)count;
}

/* ---- Transpose, Expand, Tile ----------------------------------------------------------------- */

static void prepare_transpose(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *in = opencl_input(node, 0), *out = opencl_output(node, 0);
    const gantry_attribute *perm = gantry_node_attribute(node->view, "perm");
    int64_t strides[OPENCL_MAX_RANK];
    opencl_move move;
    opencl_move_begin(&move, out);
    opencl_dense_strides(in->rank, in->dims, strides);
    for (uint32_t k = 0; k < out->rank; k++) {
        int64_t axis = perm && k < perm->count ? perm->ints[k] : (int64_t)(in->rank - 1 - k);
        move.source_strides[k] = axis >= 0 && axis < in->rank ? strides[axis] : 0;
    }
    opencl_move_or_view_add(build, out, in, &move);
}

static void prepare_expand(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *in = opencl_input(node, 0), *out = opencl_output(node, 0);
    int64_t strides[OPENCL_MAX_RANK];
    opencl_move move;
    opencl_move_begin(&move, out);
    opencl_dense_strides(in->rank, in->dims, strides);
    for (uint32_t k = 0; k < in->rank && k < out->rank; k++)
        if (in->dims[in->rank - 1 - k] != 1)
            move.source_strides[out->rank - 1 - k] = strides[in->rank - 1 - k];
    opencl_move_or_view_add(build, out, in, &move);
}

/* Each axis becomes two: which repetition, and where in it. */
static void prepare_tile(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *in = opencl_input(node, 0), *out = opencl_output(node, 0);
    int64_t in_strides[OPENCL_MAX_RANK], out_strides[OPENCL_MAX_RANK];
    opencl_move move = {.rank = 2 * in->rank};
    if (opencl_count(out) == 0)
        return;
    opencl_dense_strides(in->rank, in->dims, in_strides);
    opencl_dense_strides(out->rank, out->dims, out_strides);
    for (uint32_t k = 0; k < in->rank; k++) {
        move.dims[2 * k] = out->dims[k] / in->dims[k];
        move.dims[2 * k + 1] = in->dims[k];
        move.target_strides[2 * k] = out_strides[k] * in->dims[k];
        move.target_strides[2 * k + 1] = out_strides[k];
        move.source_strides[2 * k + 1] = in_strides[k];
    }
    opencl_move_or_view_add(build, out, in, &move);
}

/* ---- Concat, Split --------------------------------------------------------------------------- */

static void prepare_concat(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *out = opencl_output(node, 0);
    uint32_t axis = opencl_axis(gantry_node_int(node->view, "axis", 1), out->rank);
    int64_t at = 0;
    for (uint32_t k = 0; k < node->input_count; k++) {
        const opencl_operand *in = opencl_input(node, k);
        opencl_move move;
        opencl_move_begin(&move, out);
        memcpy(move.dims, in->dims, in->rank * sizeof *in->dims);
        opencl_dense_strides(in->rank, in->dims, move.source_strides);
        move.target_at = at * move.target_strides[axis];
        at += in->dims[axis];
        opencl_move_add(build, out, in, &move);
    }
}

static bool concat_limits(const opencl_node *node, gantry_verdict *verdict)
{
    for (uint32_t k = 1; k < node->input_count; k++)
        if (!opencl_takes_type(&node->inputs[k], OPENCL_TYPE(node->inputs[0].dtype), verdict))
            return false;
    return true;
}

static void prepare_split(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *in = opencl_input(node, 0);
    uint32_t axis = opencl_axis(gantry_node_int(node->view, "axis", 0), in->rank);
    int64_t at = 0;
    for (uint32_t k = 0; k < node->output_count; k++) {
        const opencl_operand *out = opencl_output(node, k);
        opencl_move move;
        if (!opencl_is_there(out)) {
            opencl_build_fail(build, GANTRY_UNSUPPORTED, "an output of Split is left out");
            return;
        }
        opencl_move_begin(&move, out);
        opencl_dense_strides(in->rank, in->dims, move.source_strides);
        move.source_at = at * move.source_strides[axis];
        at += out->dims[axis];
        opencl_move_or_view_add(build, out, in, &move);
    }
}

static bool split_limits(const opencl_node *node, gantry_verdict *verdict)
{
    for (uint32_t k = 0; k < node->output_count; k++)
        if (!opencl_is_there(&node->outputs[k]))
            return opencl_refuse_attribute(verdict, "outputs", "one is left out", "all outputs");
    return true;
}

/* ---- Slice ----------------------------------------------------------------------------------- */

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static void prepare_slice(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *in = opencl_input(node, 0), *out = opencl_output(node, 0);
    int64_t starts[OPENCL_MAX_RANK], axes[OPENCL_MAX_RANK], steps[OPENCL_MAX_RANK];
    int32_t count = read_ints(node, "starts", 1, starts, OPENCL_MAX_RANK);
    int32_t axis_count = read_ints(node, "axes", 3, axes, OPENCL_MAX_RANK);
    int32_t step_count = read_ints(node, "steps", 4, steps, OPENCL_MAX_RANK);
    opencl_move move;
    opencl_move_begin(&move, out);
    opencl_dense_strides(in->rank, in->dims, move.source_strides);
    for (int32_t k = 0; k < count; k++) {
        uint32_t axis = opencl_axis(k < axis_count ? axes[k] : k, in->rank);
        int64_t step = k < step_count ? steps[k] : 1;
        if (axis >= in->rank || step == 0) {
            opencl_build_fail(build, GANTRY_UNSUPPORTED, "an axis or a step of Slice is wrong");
            return;
        }
        int64_t extent = in->dims[axis], start = starts[k] < 0 ? starts[k] + extent : starts[k];
        start = clamp(start, 0, step > 0 ? extent : extent - 1);
        move.source_at += start * move.source_strides[axis];
        move.source_strides[axis] *= out->dims[axis] > 1 ? step : 1;
    }
    opencl_move_or_view_add(build, out, in, &move);
}

/* ---- DepthToSpace, SpaceToDepth -------------------------------------------------------------- */

/* Axes of the side with the plane, outermost first: N, C, H, bh, W, bw. */
static void block_dims(const opencl_operand *plane, int64_t block, int64_t *out_dims)
{
    const int64_t dims[] = {plane->dims[0], plane->dims[1],         plane->dims[2] / block,
                            block,          plane->dims[3] / block, block};
    memcpy(out_dims, dims, sizeof dims);
}

/* Strides of those axes on the side with the depth. There the channel is [bh][bw][C], or with CRD
 * [C][bh][bw]. */
static void depth_strides(const opencl_operand *depth, const int64_t *dims, bool crd, int64_t *out_strides)
{
    int64_t d[4];
    opencl_dense_strides(4, depth->dims, d);
    int64_t area = dims[3] * dims[5];
    const int64_t strides[] = {d[0], crd ? area * d[1] : d[1],
                               d[2], crd ? dims[5] * d[1] : dims[5] * dims[1] * d[1],
                               d[3], crd ? d[1] : dims[1] * d[1]};
    memcpy(out_strides, strides, sizeof strides);
}

static void plane_strides(const opencl_operand *plane, int64_t block, int64_t *out_strides)
{
    int64_t p[4];
    opencl_dense_strides(4, plane->dims, p);
    const int64_t strides[] = {p[0], p[1], block * p[2], p[2], block * p[3], p[3]};
    memcpy(out_strides, strides, sizeof strides);
}

static void prepare_blocks(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *in = opencl_input(node, 0), *out = opencl_output(node, 0);
    bool to_space = strcmp(node->op->name, "DepthToSpace") == 0;
    const opencl_operand *plane = to_space ? out : in, *depth = to_space ? in : out;
    int64_t block = gantry_node_int(node->view, "blocksize", 1);
    bool crd = strcmp(gantry_node_string(node->view, "mode", "DCR"), "CRD") == 0;
    opencl_move move = {.rank = 6};
    block_dims(plane, block, move.dims);
    plane_strides(plane, block, to_space ? move.target_strides : move.source_strides);
    depth_strides(depth, move.dims, crd, to_space ? move.source_strides : move.target_strides);
    opencl_move_add(build, out, in, &move);
}

static bool blocks_limits(const opencl_node *node, gantry_verdict *verdict)
{
    if (opencl_input(node, 0)->rank != 4)
        return opencl_refuse_rank(verdict, opencl_input(node, 0), "4");
    return gantry_node_int(node->view, "blocksize", 1) > 0 ||
           opencl_refuse_attribute(verdict, "blocksize", "0 or less", "1 or more");
}

/* ---- Pad ------------------------------------------------------------------------------------- */

/* Which input position an output position shows, -1 for none. */
static int64_t mirror(int64_t at, int64_t extent, const char *mode)
{
    if (extent <= 0)
        return -1;
    if (at >= 0 && at < extent)
        return at;
    if (mode[0] == 'e')
        return at < 0 ? 0 : extent - 1;
    if (mode[0] == 'w')
        return (at % extent + extent) % extent;
    if (mode[0] == 'r') {
        int64_t period = extent > 1 ? 2 * (extent - 1) : 1;
        at = (at % period + period) % period;
        return at < extent ? at : period - at;
    }
    return -1;
}

static bool read_pads(const opencl_node *node, uint32_t rank, int64_t *out_before, int64_t *out_after)
{
    int64_t pads[2 * OPENCL_MAX_RANK] = {0}, axes[OPENCL_MAX_RANK] = {0};
    int32_t pad_count = read_ints(node, "pads", 1, pads, 2 * OPENCL_MAX_RANK);
    int32_t axis_count = read_ints(node, "axes", 3, axes, OPENCL_MAX_RANK);
    int32_t count = axis_count >= 0 ? axis_count : (int32_t)rank;
    if (pad_count != 2 * count)
        return false;
    for (uint32_t k = 0; k < rank; k++)
        out_before[k] = out_after[k] = 0;
    for (int32_t k = 0; k < count; k++) {
        uint32_t axis = axis_count >= 0 ? opencl_axis(axes[k], rank) : (uint32_t)k;
        if (axis >= rank)
            return false;
        out_before[axis] = pads[k];
        out_after[axis] = pads[count + k];
    }
    return true;
}

/* Negative pads cut the input, so source positions start behind what is cut. */
static void fill_pad_table(const opencl_operand *in, const opencl_operand *out, uint32_t axis, int64_t before,
                           int64_t after, int64_t stride, const char *mode, int32_t *table)
{
    int64_t cut = before < 0 ? -before : 0, kept = in->dims[axis] - cut - (after < 0 ? -after : 0);
    for (int64_t k = 0; k < out->dims[axis]; k++) {
        int64_t from = mirror(k - (before > 0 ? before : 0), kept, mode);
        table[k] = from < 0 ? -1 : (int32_t)((from + cut) * stride);
    }
}

static int64_t sum_dims(const opencl_operand *operand)
{
    int64_t sum = 0;
    for (uint32_t k = 0; k < operand->rank; k++)
        sum += operand->dims[k];
    return sum;
}

static uint64_t float_bits(gantry_dtype dtype, float value)
{
    uint64_t bits = 0;
    double wide = (double)value;
    if (dtype == GANTRY_FLOAT32)
        memcpy(&bits, &value, sizeof value);
    else if (dtype == GANTRY_FLOAT64)
        memcpy(&bits, &wide, sizeof wide);
    return bits;
}

static void prepare_pad(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *in = opencl_input(node, 0), *out = opencl_output(node, 0);
    const opencl_operand *fill = opencl_is_there(opencl_input(node, 2)) ? opencl_input(node, 2) : NULL;
    int64_t before[OPENCL_MAX_RANK] = {0}, after[OPENCL_MAX_RANK] = {0}, strides[OPENCL_MAX_RANK];
    const char *mode = gantry_node_string(node->view, "mode", "constant");
    int32_t *tables = opencl_build_alloc(build, (size_t)sum_dims(out) + 1, sizeof *tables), *table = tables;
    if (!tables)
        return;
    if (!read_pads(node, in->rank, before, after)) {
        opencl_build_fail(build, GANTRY_UNSUPPORTED, "pads don't fit the axes");
        opencl_build_free(build, tables);
        return;
    }
    opencl_dense_strides(in->rank, in->dims, strides);
    for (uint32_t axis = 0; axis < out->rank; axis++) {
        fill_pad_table(in, out, axis, before[axis], after[axis], strides[axis], mode, table);
        table += out->dims[axis];
    }
    opencl_remap_add(build, out, in, tables, fill,
                     float_bits(out->dtype, gantry_node_float(node->view, "value", 0)), "pad");
    opencl_build_free(build, tables);
}

static bool pad_limits(const opencl_node *node, gantry_verdict *verdict)
{
    const opencl_operand *in = opencl_input(node, 0);
    bool is_wide = in->dtype == GANTRY_FLOAT32 || in->dtype == GANTRY_FLOAT64;
    if (!is_wide && gantry_node_float(node->view, "value", 0) != 0)
        return opencl_refuse_attribute(verdict, "value", "not 0", "0 for this type");
    return opencl_takes_type(opencl_input(node, 2), OPENCL_TYPE(in->dtype), verdict);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define VIEW(op, hosts)                                                                                      \
    {                                                                                                        \
        .name = op, .domain = "", .types = OPENCL_MOVABLE, .host_inputs = hosts, .prepare = prepare_view,    \
        .work = work_of_view                                                                                 \
    }
#define MOVE(op, hosts, limit_function, prepare_function)                                                    \
    {                                                                                                        \
        .name = op, .domain = "", .types = OPENCL_MOVABLE, .host_inputs = hosts, .limits = limit_function,   \
        .prepare = prepare_function, .work = work_of_move                                                    \
    }

static void work_of_view(const opencl_node *node, opencl_work *inout_work)
{
    *inout_work = (opencl_work){.efficiency = 1};
}

static void work_of_move(const opencl_node *node, opencl_work *inout_work)
{
    inout_work->bytes = 0;
    for (uint32_t k = 0; k < node->output_count; k++)
        inout_work->bytes += 2 * (double)opencl_bytes(&node->outputs[k]);
    if (strcmp(node->op->name, "Concat") == 0)
        inout_work->launches = node->input_count;
    else if (strcmp(node->op->name, "Split") == 0)
        inout_work->launches = node->output_count;
}

static const opencl_op ops[] = {
    VIEW("Identity", 0),
    VIEW("Reshape", 1u << 1),
    VIEW("Flatten", 0),
    VIEW("Squeeze", 1u << 1),
    VIEW("Unsqueeze", 1u << 1),
    {.name = "Dropout",
     .domain = "",
     .types = OPENCL_FLOATS,
     .host_inputs = 6,
     .limits = dropout_limits,
     .prepare = prepare_view,
     .work = work_of_view},
    MOVE("Transpose", 0, NULL, prepare_transpose),
    MOVE("Expand", 1u << 1, NULL, prepare_expand),
    MOVE("Tile", 1u << 1, NULL, prepare_tile),
    MOVE("Concat", 0, concat_limits, prepare_concat),
    MOVE("Split", 1u << 1, split_limits, prepare_split),
    MOVE("Slice", 0x1e, NULL, prepare_slice),
    MOVE("DepthToSpace", 0, blocks_limits, prepare_blocks),
    MOVE("SpaceToDepth", 0, blocks_limits, prepare_blocks),
    MOVE("Pad", 1u << 1 | 1u << 3, pad_limits, prepare_pad),
};

const opencl_op_table opencl_movement_ops = {ops, sizeof ops / sizeof *ops};
