/* Resize and Upsample. Nearest neighbours go through a table for each axis; linear and cubic interpolation go
 * axis by axis: each output position is a weighted sum of `taps` input positions. */
#include "opencl_move.h"

#include <math.h>

typedef enum coordinate_mode {
    HALF_PIXEL,
    HALF_PIXEL_SYMMETRIC,
    PYTORCH_HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC,
    TF_CROP_AND_RESIZE,
    COORDINATE_MODE_COUNT
} coordinate_mode;

typedef enum nearest_mode { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL, SIMPLE } nearest_mode;

static const char *const coordinate_names[] = {"half_pixel",    "half_pixel_symmetric", "pytorch_half_pixel",
                                               "align_corners", "asymmetric",           "tf_crop_and_resize"};
static const char *const nearest_names[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};

typedef struct resize_axis {
    int64_t in, out;
    float scale, roi_begin, roi_end;
} resize_axis;

typedef struct resize_plan {
    uint32_t coordinates, nearest;
    bool cubic, linear, antialias, exclude_outside;
    float cubic_a, extrapolation;
    resize_axis axes[OPENCL_MAX_RANK];
    uint32_t rank;
} resize_plan;

/* ---- positions and weights ------------------------------------------------------------------- */

/* Where output position x lies in the input, in float32 as exporters check against. */
static float source_position(const resize_plan *plan, const resize_axis *axis, int64_t x)
{
    float last = (float)(axis->in - 1), middle = ((float)x + 0.5f) / axis->scale - 0.5f;
    switch (plan->coordinates) {
    case ALIGN_CORNERS:
        return axis->out == 1 ? 0 : (float)x * last / (float)(axis->out - 1);
    case ASYMMETRIC:
        return (float)x / axis->scale;
    case TF_CROP_AND_RESIZE:
        return axis->out > 1 ? axis->roi_begin * last + (float)x * (axis->roi_end - axis->roi_begin) * last /
                                                            (float)(axis->out - 1)
                             : 0.5f * (axis->roi_begin + axis->roi_end) * last;
    case PYTORCH_HALF_PIXEL:
        return axis->out == 1 ? 0.0f : middle;
    case HALF_PIXEL_SYMMETRIC:
        return (float)axis->in / 2 * (1 - (float)axis->out / (axis->scale * (float)axis->in)) + middle;
    default:
        return middle;
    }
}

static bool is_outside(const resize_plan *plan, const resize_axis *axis, float position)
{
    return plan->coordinates == TF_CROP_AND_RESIZE && (position < 0 || position > (float)(axis->in - 1));
}

static int64_t clamp_index(int64_t index, int64_t extent)
{
    return index < 0 ? 0 : index >= extent ? extent - 1 : index;
}

/* SIMPLE is Resize before version 11: shrinking rounds up, growing down. */
static int64_t nearest_index(const resize_plan *plan, const resize_axis *axis, float position)
{
    float low = floorf(position), rest = position - low;
    bool up = plan->nearest == ROUND_PREFER_FLOOR  ? rest > 0.5f
              : plan->nearest == ROUND_PREFER_CEIL ? rest >= 0.5f
              : plan->nearest == CEIL              ? rest > 0
              : plan->nearest == SIMPLE            ? axis->scale < 1 && rest > 0
                                                   : false;
    return clamp_index((int64_t)low + up, axis->in);
}

static double cubic_weight(double x, double a)
{
    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* Taps on each side of a position: 1 or 2, more when a shrinking axis is smoothed. */
static int64_t taps_reach(const resize_plan *plan, const resize_axis *axis)
{
    double reach = plan->cubic ? 2 : 1;
    return plan->antialias && axis->scale < 1 ? (int64_t)ceil(reach / (double)axis->scale) : (int64_t)reach;
}

/* Weights and indexes of one output position; the first index is -1 outside. */
static void position_weights(const resize_plan *plan, const resize_axis *axis, int64_t x, int64_t reach,
                             int32_t *index, float *weight)
{
    float position = source_position(plan, axis, x);
    double shrink = plan->antialias && axis->scale < 1 ? (double)axis->scale : 1.0, sum = 0;
    int64_t low = (int64_t)floorf(position);
    for (int64_t k = 0; k < 2 * reach; k++) {
        int64_t at = low - reach + 1 + k;
        double distance = ((double)position - (double)at) * shrink;
        double w = plan->cubic ? cubic_weight(distance, (double)plan->cubic_a) : fmax(0, 1 - fabs(distance));
        if (plan->exclude_outside && (at < 0 || at >= axis->in))
            w = 0;
        weight[k] = (float)w;
        index[k] = (int32_t)clamp_index(at, axis->in);
        sum += w;
    }
    for (int64_t k = 0; k < 2 * reach && (plan->exclude_outside || plan->antialias) && sum != 0; k++)
        weight[k] = (float)((double)weight[k] / sum);
    if (is_outside(plan, axis, position))
        index[0] = -1;
}

/* ---- what the node says ---------------------------------------------------------------------- */

static uint32_t find_name(const opencl_node *node, const char *attribute, const char *otherwise,
                          const char *const *names, uint32_t count)
{
    const char *text = gantry_node_string(node->view, attribute, otherwise);
    uint32_t k = 0;
    while (k < count && strcmp(names[k], text) != 0)
        k++;
    return k;
}

static double host_number(const opencl_operand *operand, int64_t k)
{
    if (operand->dtype == GANTRY_FLOAT32)
        return (double)((const float *)operand->host)[k];
    if (operand->dtype == GANTRY_FLOAT64)
        return ((const double *)operand->host)[k];
    return (double)opencl_host_int(operand, k);
}

/* With "sizes" a policy other than stretch uses one scale for all axes. */
static void sizes_to_scales(const opencl_node *node, resize_plan *plan, const uint32_t *axes, uint32_t count,
                            const opencl_operand *sizes)
{
    const char *policy = gantry_node_string(node->view, "keep_aspect_ratio_policy", "stretch");
    bool smaller = strcmp(policy, "not_larger") == 0, larger = strcmp(policy, "not_smaller") == 0;
    float common = 0;
    for (uint32_t k = 0; k < count; k++) {
        resize_axis *axis = &plan->axes[axes[k]];
        axis->scale =
            (float)(smaller || larger ? host_number(sizes, k) : (double)axis->out) / (float)axis->in;
        if (k == 0 || (smaller ? axis->scale < common : axis->scale > common))
            common = axis->scale;
    }
    for (uint32_t k = 0; k < count && (smaller || larger); k++)
        plan->axes[axes[k]].scale = common;
}

static uint32_t read_axes(const opencl_node *node, uint32_t rank, uint32_t *out_axes)
{
    const gantry_attribute *names = gantry_node_attribute(node->view, "axes");
    uint32_t count = names ? names->count : rank;
    for (uint32_t k = 0; k < count && k < OPENCL_MAX_RANK; k++)
        out_axes[k] = names ? opencl_axis(names->ints[k], rank) : k;
    for (uint32_t k = 0; k < count && k < OPENCL_MAX_RANK; k++)
        if (out_axes[k] >= rank)
            return 0;
    return count <= rank ? count : 0;
}

/* False, with what is missing. */
static bool plan_axes(const opencl_node *node, resize_plan *plan, const char **out_text)
{
    const opencl_operand *in = opencl_input(node, 0), *out = opencl_output(node, 0);
    bool late = strcmp(node->op->name, "Resize") == 0 && node->view->version >= 11;
    const opencl_operand *roi = opencl_input(node, late ? 1 : 9), *scales = opencl_input(node, late ? 2 : 1);
    const opencl_operand *sizes = opencl_input(node, late ? 3 : 9);
    const gantry_attribute *attribute = gantry_node_attribute(node->view, "scales");
    uint32_t axes[OPENCL_MAX_RANK], count = read_axes(node, in->rank, axes);
    for (uint32_t k = 0; k < in->rank; k++)
        plan->axes[k] = (resize_axis){in->dims[k], out->dims[k], 1, 0, 1};
    *out_text = "neither scales nor sizes are given for all axes";
    if (opencl_count(sizes) == count && count)
        sizes_to_scales(node, plan, axes, count, sizes);
    else if (opencl_count(scales) == count && count)
        for (uint32_t k = 0; k < count; k++)
            plan->axes[axes[k]].scale = (float)host_number(scales, k);
    else if (attribute && attribute->count == in->rank)
        for (uint32_t k = 0; k < in->rank; k++)
            plan->axes[k].scale = attribute->floats[k];
    else
        return false;
    *out_text = "tf_crop_and_resize needs roi";
    if (plan->coordinates == TF_CROP_AND_RESIZE && opencl_count(roi) != 2 * (int64_t)count)
        return false;
    for (uint32_t k = 0; k < count && plan->coordinates == TF_CROP_AND_RESIZE; k++) {
        plan->axes[axes[k]].roi_begin = (float)host_number(roi, k);
        plan->axes[axes[k]].roi_end = (float)host_number(roi, count + k);
    }
    *out_text = "a scale is not above 0";
    for (uint32_t k = 0; k < in->rank; k++)
        if (!(plan->axes[k].scale > 0))
            return false;
    return true;
}

static void read_plan(const opencl_node *node, resize_plan *plan)
{
    bool early = strcmp(node->op->name, "Resize") != 0 || node->view->version < 11;
    const char *mode = gantry_node_string(node->view, "mode", "nearest");
    *plan = (resize_plan){.rank = opencl_input(node, 0)->rank,
                          .cubic = strcmp(mode, "cubic") == 0,
                          .linear = strcmp(mode, "linear") == 0 || strcmp(mode, "bilinear") == 0,
                          .antialias = gantry_node_int(node->view, "antialias", 0) != 0,
                          .exclude_outside = gantry_node_int(node->view, "exclude_outside", 0) != 0,
                          .cubic_a = gantry_node_float(node->view, "cubic_coeff_a", -0.75f),
                          .extrapolation = gantry_node_float(node->view, "extrapolation_value", 0)};
    plan->coordinates = find_name(node, "coordinate_transformation_mode", early ? "asymmetric" : "half_pixel",
                                  coordinate_names, COORDINATE_MODE_COUNT);
    plan->nearest =
        early ? SIMPLE : find_name(node, "nearest_mode", "round_prefer_floor", nearest_names, SIMPLE);
}

/* ---- nearest --------------------------------------------------------------------------------- */

static void prepare_nearest(opencl_build *build, const opencl_node *node, const resize_plan *plan)
{
    const opencl_operand *in = opencl_input(node, 0), *out = opencl_output(node, 0);
    int64_t strides[OPENCL_MAX_RANK], total = 1;
    uint64_t bits = 0;
    for (uint32_t k = 0; k < out->rank; k++)
        total += out->dims[k];
    int32_t *tables = opencl_build_alloc(build, (size_t)total, sizeof *tables), *table = tables;
    if (!tables)
        return;
    opencl_dense_strides(in->rank, in->dims, strides);
    for (uint32_t k = 0; k < out->rank; k++) {
        const resize_axis *axis = &plan->axes[k];
        bool untouched = axis->in == axis->out && axis->scale == 1 && plan->coordinates != TF_CROP_AND_RESIZE;
        for (int64_t x = 0; x < out->dims[k]; x++) {
            float position = source_position(plan, axis, x);
            int64_t index = untouched ? x : nearest_index(plan, axis, position);
            *table++ = is_outside(plan, axis, position) ? -1 : (int32_t)(index * strides[k]);
        }
    }
    if (in->dtype == GANTRY_FLOAT32)
        memcpy(&bits, &plan->extrapolation, sizeof plan->extrapolation);
    opencl_remap_add(build, out, in, tables, NULL, bits, "resize_nearest");
    opencl_build_free(build, tables);
}

/* ---- interpolation --------------------------------------------------------------------------- */

/* X and Y are what is read and written: the operand's type or, between passes, float. */
static const char source[] =
    "__kernel void resize(__global const X *x, ulong ox, __global Y *y, ulong oy, __global const int *index, "
    "ulong "
    "oi,\n"
    "                     __global const float *weight, ulong ow, uint n, uint inner, uint out, uint in, "
    "uint taps,\n"
    "                     float fill)\n"
    "{\n"
    "    size_t k = get_global_id(0);\n"
    "    if (k >= n)\n"
    "        return;\n"
    "    uint column = (uint)k % inner, row = (uint)k / inner, at = row % out, outer = row / out;\n"
    "    float sum = 0.0f;\n"
    "    for (uint t = 0; t < taps; t++) {\n"
    "        int from = index[oi + at * taps + t];\n"
    "        from = from < 0 ? 0 : from;\n"
    "        sum += weight[ow + at * taps + t] * LOAD_X(x, ox + ((size_t)outer * in + from) * inner + "
    "column);\n"
    "    }\n"
    "    sum = index[oi + at * taps] < 0 ? fill : sum;\n"
    "    STORE_Y(sum, y, oy + k);\n"
    "}\n";

static bool is_identity(const resize_plan *plan, const resize_axis *axis)
{
    for (int64_t x = 0; x < axis->out && axis->in == axis->out; x++)
        if (source_position(plan, axis, x) != (float)x)
            return false;
    return axis->in == axis->out;
}

/* Where a pass reads or writes: an operand, or scratch memory of floats. */
typedef struct pass_end {
    const opencl_operand *operand;
    uint32_t scratch;
} pass_end;

static gantry_dtype end_dtype(const pass_end *end)
{
    return end->operand ? end->operand->dtype : GANTRY_FLOAT32;
}

static void add_end(opencl_launch *launch, const pass_end *end)
{
    if (end->operand)
        opencl_arg_input(launch, end->operand);
    else
        opencl_arg_scratch(launch, end->scratch, sizeof(float));
}

static bool add_axis_tables(opencl_build *build, const resize_plan *plan, const resize_axis *axis,
                            int64_t taps, uint32_t *out_index, uint32_t *out_weight)
{
    size_t count = (size_t)(axis->out * taps);
    int32_t *index = opencl_build_alloc(build, count, sizeof *index);
    float *weight = opencl_build_alloc(build, count, sizeof *weight);
    bool made = index && weight;
    for (int64_t x = 0; x < axis->out && made; x++)
        position_weights(plan, axis, x, taps / 2, index + x * taps, weight + x * taps);
    if (made) {
        *out_index = opencl_table_add(build, index, count * sizeof *index);
        *out_weight = opencl_table_add(build, weight, count * sizeof *weight);
    }
    opencl_build_free(build, index);
    opencl_build_free(build, weight);
    return made;
}

/* dims: what earlier passes made of the tensor; dims[axis] is still that of the input. */
static void add_pass(opencl_build *build, const resize_plan *plan, uint32_t axis, const int64_t *dims,
                     const pass_end *from, const pass_end *to)
{
    const resize_axis *a = &plan->axes[axis];
    int64_t outer = 1, inner = 1, taps = 2 * taps_reach(plan, a);
    uint32_t index = 0, weight = 0;
    char defines[512] = "";
    for (uint32_t k = 0; k < plan->rank; k++) {
        outer *= k < axis ? dims[k] : 1;
        inner *= k > axis ? dims[k] : 1;
    }
    if (!add_axis_tables(build, plan, a, taps, &index, &weight))
        return;
    opencl_define_type(defines, sizeof defines, "X", end_dtype(from));
    opencl_define_type(defines, sizeof defines, "Y", end_dtype(to));
    opencl_launch *launch = opencl_launch_add(build, defines, source, "resize");
    add_end(launch, from);
    add_end(launch, to);
    opencl_arg_scratch(launch, index, sizeof(int32_t));
    opencl_arg_scratch(launch, weight, sizeof(float));
    opencl_arg_int(launch, (int32_t)(outer * a->out * inner));
    opencl_arg_int(launch, (int32_t)inner);
    opencl_arg_int(launch, (int32_t)a->out);
    opencl_arg_int(launch, (int32_t)a->in);
    opencl_arg_int(launch, (int32_t)taps);
    opencl_arg_float(launch, plan->extrapolation);
    opencl_launch_flat(launch, outer * a->out * inner);
    opencl_launch_describe(launch, plan->cubic ? "resize_cubic" : "resize_linear", -1,
                           2 * (double)(outer * a->out * inner * taps));
}

/* The axis that shrinks most of those that are left; rank when none is. */
static uint32_t next_axis(const resize_plan *plan, const bool *done)
{
    uint32_t next = plan->rank;
    for (uint32_t k = plan->rank; k-- > 0;) {
        const resize_axis *a = &plan->axes[k], *b = &plan->axes[next < plan->rank ? next : k];
        if (!done[k] &&
            (next == plan->rank || (double)a->out * (double)b->in < (double)b->out * (double)a->in))
            next = k;
    }
    return next;
}

static void prepare_interpolation(opencl_build *build, const opencl_node *node, const resize_plan *plan)
{
    const opencl_operand *in = opencl_input(node, 0), *out = opencl_output(node, 0);
    int64_t dims[OPENCL_MAX_RANK];
    bool done[OPENCL_MAX_RANK];
    pass_end from = {in, 0}, to = {NULL, 0};
    memcpy(dims, in->dims, in->rank * sizeof *dims);
    for (uint32_t k = 0; k < plan->rank; k++)
        done[k] = is_identity(plan, &plan->axes[k]);
    uint32_t axis = next_axis(plan, done);
    if (axis == plan->rank)
        opencl_view_add(build, out, in, 0);
    while (axis < plan->rank) {
        done[axis] = true;
        uint32_t after = next_axis(plan, done);
        int64_t count = plan->axes[axis].out;
        for (uint32_t k = 0; k < plan->rank; k++)
            count *= k == axis ? 1 : dims[k];
        to = (pass_end){after == plan->rank ? out : NULL, 0};
        if (!to.operand)
            to.scratch = opencl_scratch_add(build, (size_t)count * sizeof(float));
        add_pass(build, plan, axis, dims, &from, &to);
        dims[axis] = plan->axes[axis].out;
        from = to;
        axis = after;
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

static void prepare_resize(opencl_build *build, const opencl_node *node)
{
    resize_plan plan;
    const char *text;
    read_plan(node, &plan);
    if (opencl_count(opencl_output(node, 0)) == 0)
        return;
    if (!plan_axes(node, &plan, &text))
        opencl_build_fail(build, GANTRY_UNSUPPORTED, text);
    else if (plan.cubic || plan.linear)
        prepare_interpolation(build, node, &plan);
    else
        prepare_nearest(build, node, &plan);
}

static bool resize_limits(const opencl_node *node, gantry_verdict *verdict)
{
    const opencl_operand *in = opencl_input(node, 0);
    resize_plan plan;
    read_plan(node, &plan);
    if (plan.coordinates == COORDINATE_MODE_COUNT)
        return opencl_refuse_attribute(verdict, "coordinate_transformation_mode", "unknown", "a known mode");
    if (in->rank == 0)
        return opencl_refuse_rank(verdict, in, "1 or more");
    if (plan.cubic || plan.linear)
        return opencl_takes_type(in, OPENCL_F32 | OPENCL_F16, verdict);
    if (plan.coordinates == TF_CROP_AND_RESIZE)
        return opencl_takes_type(in, OPENCL_F32, verdict);
    return true;
}

static void resize_work(const opencl_node *node, opencl_work *inout_work)
{
    const char *mode = gantry_node_string(node->view, "mode", "nearest");
    inout_work->bytes = 2 * (double)opencl_bytes(opencl_output(node, 0));
    inout_work->launches = strcmp(mode, "nearest") == 0 ? 1 : 2;
    inout_work->flops *= 10;
}

#define RESIZE(op)                                                                                           \
    {                                                                                                        \
        .name = op, .domain = "", .types = OPENCL_MOVABLE, .host_inputs = 0xe, .limits = resize_limits,      \
        .prepare = prepare_resize, .work = resize_work                                                       \
    }

static const opencl_op ops[] = {RESIZE("Resize"), RESIZE("Upsample")};

const opencl_op_table opencl_resize_ops = {ops, sizeof ops / sizeof *ops};
