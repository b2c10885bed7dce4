/* Resize and Upsample. Nearest neighbours are a remapping of positions (remap.h); linear and cubic
 * interpolation go axis by axis: each output position is a weighted sum of `taps` input positions.
 *
 *     [outer, in, inner] --weights of one axis--> [outer, out, inner]       axes that shrink most come first
 */
#include "image.h"

#include "movement.h"
#include "program.h"
#include "remap.h"
#include "rows.h"

#include <math.h>

typedef enum coordinate_mode {
    HALF_PIXEL,
    HALF_PIXEL_SYMMETRIC,
    PYTORCH_HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC,
    TF_CROP_AND_RESIZE,
    TF_HALF_PIXEL_FOR_NN /* of versions 11 and 12 */
} coordinate_mode;

typedef enum nearest_mode { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL, SIMPLE } nearest_mode;

static const char *const coordinate_names[] = {
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",  "align_corners",
    "asymmetric", "tf_crop_and_resize",   "tf_half_pixel_for_nn"};
static const char *const nearest_names[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};

/* One axis. */
typedef struct resize_axis {
    int64_t in, out;
    float scale;
    float roi_begin, roi_end;
} resize_axis;

typedef struct resize_plan {
    coordinate_mode coordinates;
    nearest_mode nearest;
    bool cubic, linear, antialias, exclude_outside;
    float cubic_a;
    float extrapolation;
    resize_axis axes[GANTRY_MAX_RANK];
    uint32_t rank;
} resize_plan;

/* Where output position x lies in the input, in float32 as exporters check against. */
static float source_position(const resize_plan *plan, const resize_axis *axis, int64_t x)
{
    float length = axis->scale * (float)axis->in;
    switch (plan->coordinates) {
    case ALIGN_CORNERS:
        return axis->out == 1 ? 0 : (float)x * (float)(axis->in - 1) / (float)(axis->out - 1);
    case ASYMMETRIC:
        return (float)x / axis->scale;
    case TF_CROP_AND_RESIZE:
        return axis->out > 1 ? axis->roi_begin * (float)(axis->in - 1) +
                                   (float)x * (axis->roi_end - axis->roi_begin) * (float)(axis->in - 1) /
                                       (float)(axis->out - 1)
                             : 0.5f * (axis->roi_begin + axis->roi_end) * (float)(axis->in - 1);
    case TF_HALF_PIXEL_FOR_NN:
        return ((float)x + 0.5f) / axis->scale;
    case PYTORCH_HALF_PIXEL:
        return axis->out == 1 ? 0.0f : ((float)x + 0.5f) / axis->scale - 0.5f;
    case HALF_PIXEL_SYMMETRIC: {
        float adjustment = (float)axis->out / length, center = (float)axis->in / 2;
        return center * (1 - adjustment) + ((float)x + 0.5f) / axis->scale - 0.5f;
    }
    default:
        return ((float)x + 0.5f) / axis->scale - 0.5f;
    }
}

static bool outside(const resize_plan *plan, const resize_axis *axis, float position)
{
    return plan->coordinates == TF_CROP_AND_RESIZE && (position < 0 || position > (float)(axis->in - 1));
}

static int64_t clamp_index(int64_t index, int64_t extent)
{
    return index < 0 ? 0 : index >= extent ? extent - 1 : index;
}

static int64_t nearest_index(const resize_plan *plan, const resize_axis *axis, float position)
{
    float low = floorf(position), rest = position - low;
    bool up;
    switch (plan->nearest) {
    case ROUND_PREFER_FLOOR:
        up = rest > 0.5f;
        break;
    case ROUND_PREFER_CEIL:
        up = rest >= 0.5f;
        break;
    case CEIL:
        up = rest > 0;
        break;
    case SIMPLE: /* before version 11: shrinking rounds up, growing down */
        up = axis->scale < 1 && rest > 0;
        break;
    default:
        up = false;
    }
    return clamp_index((int64_t)low + up, axis->in);
}

/* ---- weights --------------------------------------------------------------------------------- */

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

/* Weights and indices of one output position. */
static void position_weights(const resize_plan *plan, const resize_axis *axis, int64_t x, int64_t reach,
                             int32_t *index, float *weight)
{
    float position = source_position(plan, axis, x);
    if (outside(plan, axis, position)) {
        index[0] = -1;
        return;
    }
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
    if ((plan->exclude_outside || plan->antialias) && sum != 0)
        for (int64_t k = 0; k < 2 * reach; k++)
            weight[k] = (float)((double)weight[k] / sum);
}

/* ---- interpolation of one axis --------------------------------------------------------------- */

typedef struct resize_pass {
    int64_t outer, in, out, inner, taps;
    const int32_t *index; /* [out][taps]; the first is -1: extrapolate */
    const float *weight;
} resize_pass;

typedef struct resize_state {
    uint32_t pass_count;
    resize_pass passes[GANTRY_MAX_RANK];
    float extrapolation;
    size_t buffer_bytes; /* of one of the two buffers in scratch */
    bool wide;
} resize_state;

typedef struct pass_work {
    const resize_pass *pass;
    const void *in;
    void *out;
    float extrapolation;
} pass_work;

#define PASS(suffix, type)                                                                                   \
    CPU_CLONES static void row_##suffix(const resize_pass *pass, const type *in, type *out, type fill)       \
    {                                                                                                        \
        for (int64_t x = 0; x < pass->out; x++) {                                                            \
            const int32_t *index = pass->index + x * pass->taps;                                             \
            const float *weight = pass->weight + x * pass->taps;                                             \
            type sum = 0;                                                                                    \
            for (int64_t k = 0; k < pass->taps && index[0] >= 0; k++)                                        \
                sum += (type)weight[k] * in[index[k]];                                                       \
            out[x] = index[0] < 0 ? fill : sum;                                                              \
        }                                                                                                    \
    }                                                                                                        \
    CPU_CLONES static void rows_##suffix(const resize_pass *pass, const type *in, type *out, int64_t x,      \
                                         type fill)                                                          \
    {                                                                                                        \
        const int32_t *index = pass->index + x * pass->taps;                                                 \
        const float *weight = pass->weight + x * pass->taps;                                                 \
        if (index[0] < 0) {                                                                                  \
            for (int64_t j = 0; j < pass->inner; j++)                                                        \
                out[j] = fill;                                                                               \
        } else if (pass->taps == 2) {                                                                        \
            const type *a = in + index[0] * pass->inner, *b = in + index[1] * pass->inner;                   \
            const type wa = (type)weight[0], wb = (type)weight[1];                                           \
            for (int64_t j = 0; j < pass->inner; j++)                                                        \
                out[j] = wa * a[j] + wb * b[j];                                                              \
        } else {                                                                                             \
            for (int64_t j = 0; j < pass->inner; j++)                                                        \
                out[j] = 0;                                                                                  \
            for (int64_t k = 0; k < pass->taps; k++) {                                                       \
                const type *a = in + index[k] * pass->inner;                                                 \
                const type w = (type)weight[k];                                                              \
                for (int64_t j = 0; j < pass->inner; j++)                                                    \
                    out[j] += w * a[j];                                                                      \
            }                                                                                                \
        }                                                                                                    \
    }                                                                                                        \
    static void pass_##suffix(void *arg, int64_t begin, int64_t end)                                         \
    {                                                                                                        \
        const pass_work *work = arg;                                                                         \
        const resize_pass *pass = work->pass;                                                                \
        const type *in = work->in;                                                                           \
        type *out = work->out;                                                                               \
        for (int64_t k = begin; k < end; k++) {                                                              \
            if (pass->inner == 1)                                                                            \
                row_##suffix(pass, in + k * pass->in, out + k * pass->out, (type)work->extrapolation);       \
            else                                                                                             \
                rows_##suffix(pass, in + k / pass->out * pass->in * pass->inner, out + k * pass->inner,      \
                              k % pass->out, (type)work->extrapolation);                                     \
        }                                                                                                    \
    }
PASS(f32, float)
PASS(f64, double)

static gantry_status resize_run(const void *opaque, const cpu_call *call)
{
    const resize_state *state = opaque;
    const void *in = call->inputs[0];
    for (uint32_t k = 0; k < state->pass_count; k++) {
        const resize_pass *pass = &state->passes[k];
        void *out = k + 1 == state->pass_count ? call->outputs[0]
                                               : (char *)call->scratch + (k & 1) * state->buffer_bytes;
        pass_work work = {pass, in, out, state->extrapolation};
        int64_t items = pass->inner == 1 ? pass->outer : pass->outer * pass->out;
        int64_t width = (pass->inner == 1 ? pass->out : pass->inner) * pass->taps;
        cpu_parallel(call, items, cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, width)),
                     state->wide ? pass_f64 : pass_f32, &work);
        in = out;
    }
    return GANTRY_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

static bool axis_is_identity(const resize_plan *plan, const resize_axis *axis)
{
    if (axis->in != axis->out)
        return false;
    for (int64_t x = 0; x < axis->out; x++)
        if (source_position(plan, axis, x) != (float)x)
            return false;
    return true;
}

/* Channels that lie side by side when only the plane is resized: then an element is all of them. 1: the
 * layout is plain. */
static int64_t block_of(const cpu_build *build, const resize_plan *plan)
{
    const cpu_tensor *in = &build->inputs[0];
    if (in->layout == CPU_PLAIN)
        return 1;
    int64_t block = in->layout == CPU_NHWC ? in->dims[1] : build->provider->channel_block;
    bool whole = plan->coordinates != TF_CROP_AND_RESIZE && in->dims[1] % block == 0 &&
                 plan->axes[0].in == plan->axes[0].out && plan->axes[0].scale == 1 &&
                 plan->axes[1].in == plan->axes[1].out && plan->axes[1].scale == 1;
    return whole ? block : 1;
}

/* The dims of a tensor in elements: numbers, or blocks of `block` channels. */
static void element_dims(const cpu_tensor *tensor, int64_t block, int64_t *out_dims)
{
    memcpy(out_dims, tensor->dims, tensor->rank * sizeof *out_dims);
    if (block > 1)
        out_dims[1] /= block;
}

static gantry_status make_nearest(cpu_build *build, const resize_plan *plan, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    int64_t block = block_of(build, plan);
    build->inputs[0].layout = build->outputs[0].layout = block > 1 ? in->layout : CPU_PLAIN;
    int64_t in_dims[GANTRY_MAX_RANK], strides[GANTRY_MAX_RANK];
    cpu_cast cast;
    cpu_remap *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *state = (cpu_remap){.rank = out->rank, .element_bytes = (size_t)block * cpu_dtype_size(in->dtype)};
    element_dims(out, block, state->dims);
    element_dims(in, block, in_dims);
    cpu_strides(in->rank, in_dims, strides);
    for (uint32_t k = 0; k < plan->rank; k++) {
        int64_t *map = cpu_state(build, (size_t)state->dims[k] * sizeof *map + 1);
        if (!map)
            return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
        for (int64_t x = 0; x < state->dims[k]; x++) {
            float position = source_position(plan, &plan->axes[k], x);
            bool untouched = plan->axes[k].in == plan->axes[k].out && plan->axes[k].scale == 1 &&
                             plan->coordinates != TF_CROP_AND_RESIZE;
            int64_t index = untouched ? x : nearest_index(plan, &plan->axes[k], position);
            map[x] = outside(plan, &plan->axes[k], position) ? -1 : index * strides[k];
        }
        state->map[k] = map;
    }
    cpu_remap_finish(state);
    if (cpu_cast_find(GANTRY_FLOAT32, in->dtype, CPU_CAST_SATURATE, &cast))
        cpu_cast_run(&cast, &plan->extrapolation, state->value, 0, 1);
    *out_kernel = cpu_kernel_of(cpu_remap_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)out->count);
    return GANTRY_OK;
}

/* The tables of one axis, and the extents around it given what earlier passes made of the tensor. */
static gantry_status make_pass(cpu_build *build, const resize_plan *plan, uint32_t axis, const int64_t *dims,
                               resize_pass *pass)
{
    const resize_axis *a = &plan->axes[axis];
    int64_t reach = taps_reach(plan, a);
    *pass = (resize_pass){.outer = cpu_product(dims, 0, axis),
                          .in = a->in,
                          .out = a->out,
                          .inner = cpu_product(dims, axis + 1, plan->rank),
                          .taps = 2 * reach};
    if (a->in > INT32_MAX || pass->taps * a->out > INT32_MAX)
        return cpu_unsupported(build, "axis %u is too long", axis);
    int32_t *index = cpu_state(build, (size_t)(a->out * pass->taps) * sizeof *index + 1);
    float *weight = cpu_state(build, (size_t)(a->out * pass->taps) * sizeof *weight + 1);
    if (!index || !weight)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    for (int64_t x = 0; x < a->out; x++)
        position_weights(plan, a, x, reach, index + x * pass->taps, weight + x * pass->taps);
    pass->index = index;
    pass->weight = weight;
    return GANTRY_OK;
}

static gantry_status make_interpolation(cpu_build *build, const resize_plan *plan, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    int64_t dims[GANTRY_MAX_RANK], largest = 0;
    bool done[GANTRY_MAX_RANK] = {false};
    resize_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->wide = in->dtype == GANTRY_FLOAT64;
    state->extrapolation = plan->extrapolation;
    memcpy(dims, in->dims, in->rank * sizeof dims[0]);
    for (uint32_t k = 0; k < plan->rank; k++)
        done[k] = axis_is_identity(plan, &plan->axes[k]);
    for (;;) {
        uint32_t next = plan->rank;
        for (uint32_t k = plan->rank; k-- > 0;) {
            const resize_axis *a = &plan->axes[k], *b = &plan->axes[next < plan->rank ? next : k];
            if (!done[k] &&
                (next == plan->rank || (double)a->out * (double)b->in < (double)b->out * (double)a->in))
                next = k;
        }
        if (next == plan->rank)
            break;
        GT_TRY(make_pass(build, plan, next, dims, &state->passes[state->pass_count++]));
        dims[next] = out->dims[next];
        done[next] = true;
        largest = cpu_max64(largest, cpu_product(dims, 0, plan->rank));
    }
    if (state->pass_count == 0)
        return cpu_make_view(build, out_kernel);
    state->buffer_bytes = ((size_t)largest * cpu_dtype_size(in->dtype) + 63) & ~(size_t)63;
    *out_kernel = cpu_kernel_of(resize_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)out->count * 2);
    out_kernel->scratch_bytes = state->pass_count > 2   ? 2 * state->buffer_bytes
                                : state->pass_count > 1 ? state->buffer_bytes
                                                        : 0;
    return GANTRY_OK;
}

/* Floats of an operand that must be known now. */
static gantry_status read_floats(cpu_build *build, const cpu_tensor *tensor, const char *what, uint32_t count,
                                 double *out_values)
{
    if (!tensor->data)
        return cpu_unsupported(build, "%s is not known before the run; it must be a constant or a shape",
                               what);
    if (tensor->count != count)
        return cpu_unsupported(build, "%s has %lld elements; %u are needed", what, (long long)tensor->count,
                               count);
    for (uint32_t k = 0; k < count; k++)
        out_values[k] = cpu_load_double(tensor->dtype, tensor->data, k);
    return GANTRY_OK;
}

/* Which input (0: none) holds what, by version and operator. */
typedef struct resize_inputs {
    const cpu_tensor *roi, *scales, *sizes;
} resize_inputs;

static resize_inputs find_inputs(const cpu_build *build)
{
    resize_inputs inputs = {0};
    bool late = strcmp(build->node->op, "Resize") == 0 && build->node->version >= 11;
    inputs.roi = late ? cpu_input(build, 1) : NULL;
    inputs.scales = cpu_input(build, late ? 2 : 1);
    inputs.sizes = late ? cpu_input(build, 3) : NULL;
    if (inputs.scales && inputs.scales->count == 0)
        inputs.scales = NULL;
    if (inputs.sizes && inputs.sizes->count == 0)
        inputs.sizes = NULL;
    return inputs;
}

/* With "sizes" a policy other than stretch uses one scale for all axes. */
static gantry_status sizes_to_scales(cpu_build *build, resize_plan *plan, const uint32_t *axes,
                                     uint32_t axis_count, const double *sizes)
{
    const char *policy = gantry_node_string(build->node, "keep_aspect_ratio_policy", "stretch");
    bool smaller = strcmp(policy, "not_larger") == 0, larger = strcmp(policy, "not_smaller") == 0;
    float common = 0;
    for (uint32_t k = 0; k < axis_count; k++) {
        resize_axis *axis = &plan->axes[axes[k]];
        axis->scale = (float)(smaller || larger ? sizes[k] : (double)axis->out) / (float)axis->in;
        if (k == 0 || (smaller ? axis->scale < common : axis->scale > common))
            common = axis->scale;
    }
    for (uint32_t k = 0; k < axis_count && (smaller || larger); k++)
        plan->axes[axes[k]].scale = common;
    return GANTRY_OK;
}

static gantry_status plan_axes(cpu_build *build, resize_plan *plan)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    resize_inputs inputs = find_inputs(build);
    double values[2 * GANTRY_MAX_RANK] = {0};
    uint32_t axes[GANTRY_MAX_RANK], axis_count = in->rank, named;
    const int64_t *names = cpu_ints(build->node, "axes", &named);
    for (uint32_t k = 0; k < in->rank; k++) {
        axes[k] = k;
        plan->axes[k] = (resize_axis){.in = in->dims[k], .out = out->dims[k], .scale = 1, .roi_end = 1};
    }
    if (names)
        axis_count = named;
    if (axis_count > in->rank)
        return cpu_unsupported(build, "%u axes are named of a tensor of rank %u", axis_count, in->rank);
    for (uint32_t k = 0; names && k < named; k++)
        GT_TRY(cpu_resolve_axis(build, names[k], in->rank, &axes[k]));
    uint32_t attribute_count;
    const float *attribute = cpu_attr_floats(build->node, "scales", &attribute_count);
    if (inputs.sizes) {
        GT_TRY(read_floats(build, inputs.sizes, "sizes", axis_count, values));
        GT_TRY(sizes_to_scales(build, plan, axes, axis_count, values));
    } else if (inputs.scales) {
        GT_TRY(read_floats(build, inputs.scales, "scales", axis_count, values));
        for (uint32_t k = 0; k < axis_count; k++)
            plan->axes[axes[k]].scale = (float)values[k];
    } else if (attribute && attribute_count == in->rank) {
        for (uint32_t k = 0; k < in->rank; k++)
            plan->axes[k].scale = attribute[k];
    } else {
        return cpu_unsupported(build, "neither scales nor sizes are given");
    }
    if (plan->coordinates == TF_CROP_AND_RESIZE) {
        if (!inputs.roi)
            return cpu_unsupported(build, "tf_crop_and_resize needs roi");
        GT_TRY(read_floats(build, inputs.roi, "roi", 2 * axis_count, values));
        for (uint32_t k = 0; k < axis_count; k++) {
            plan->axes[axes[k]].roi_begin = (float)values[k];
            plan->axes[axes[k]].roi_end = (float)values[axis_count + k];
        }
    }
    for (uint32_t k = 0; k < in->rank; k++)
        if (!(plan->axes[k].scale > 0) || (plan->axes[k].in == 0 && plan->axes[k].out != 0))
            return cpu_unsupported(build, "axis %u has scale %g for %lld elements", k,
                                   (double)plan->axes[k].scale, (long long)plan->axes[k].in);
    return GANTRY_OK;
}

static gantry_status find_name(cpu_build *build, const char *attribute, const char *otherwise,
                               const char *const *names, uint32_t count, uint32_t *out_index)
{
    const char *text = gantry_node_string(build->node, attribute, otherwise);
    for (*out_index = 0; *out_index < count; ++*out_index)
        if (strcmp(names[*out_index], text) == 0)
            return GANTRY_OK;
    return cpu_unsupported(build, "%s \"%s\" is not known", attribute, text);
}

static gantry_status read_plan(cpu_build *build, resize_plan *plan)
{
    const gantry_node_view *node = build->node;
    bool early = strcmp(node->op, "Resize") != 0 || node->version < 11;
    uint32_t index;
    const char *mode = gantry_node_string(node, "mode", "nearest");
    *plan = (resize_plan){.rank = build->inputs[0].rank,
                          .cubic = strcmp(mode, "cubic") == 0,
                          .linear = strcmp(mode, "linear") == 0 || strcmp(mode, "bilinear") == 0,
                          .antialias = gantry_node_int(node, "antialias", 0) != 0,
                          .exclude_outside = gantry_node_int(node, "exclude_outside", 0) != 0,
                          .cubic_a = gantry_node_float(node, "cubic_coeff_a", -0.75f),
                          .extrapolation = gantry_node_float(node, "extrapolation_value", 0)};
    GT_TRY(find_name(build, "coordinate_transformation_mode", early ? "asymmetric" : "half_pixel",
                     coordinate_names, sizeof coordinate_names / sizeof coordinate_names[0], &index));
    plan->coordinates = (coordinate_mode)index;
    GT_TRY(find_name(build, "nearest_mode", "round_prefer_floor", nearest_names,
                     sizeof nearest_names / sizeof nearest_names[0], &index));
    plan->nearest = early ? SIMPLE : (nearest_mode)index;
    return plan_axes(build, plan);
}

static gantry_status make_resize_smooth(cpu_build *build, cpu_kernel *out_kernel)
{
    resize_plan plan;
    GT_TRY(read_plan(build, &plan));
    return make_interpolation(build, &plan, out_kernel);
}

static gantry_status make_resize(cpu_build *build, cpu_kernel *out_kernel)
{
    resize_plan plan;
    const cpu_tensor *in = &build->inputs[0];
    if (in->rank == 0 || in->count == 0 || build->outputs[0].count == 0) {
        build->inputs[0].layout = CPU_PLAIN;
        return cpu_make_view(build, out_kernel);
    }
    GT_TRY(read_plan(build, &plan));
    if (!plan.cubic && !plan.linear)
        return make_nearest(build, &plan, out_kernel);
    build->inputs[0].layout = CPU_PLAIN;
    gantry_dtype type = in->dtype == GANTRY_FLOAT64 ? GANTRY_FLOAT64 : GANTRY_FLOAT32;
    gantry_dtype in_types[4] = {type}, out_types[1] = {type};
    for (uint32_t k = 1; k < 4 && k < build->input_count; k++)
        in_types[k] = build->inputs[k].dtype;
    if (build->input_count > 4)
        return cpu_unsupported(build, "more inputs than the operator has");
    return cpu_make_converted(build, make_resize_smooth, in_types, out_types, out_kernel);
}

static const cpu_op_row rows[] = {
    {.op = "Resize",
     .domain = "",
     .types = {CPU_ANY_BYTES, CPU_EVERY},
     .make = make_resize,
     .flags = CPU_ROW_PICKS_LAYOUT},
    {.op = "Upsample",
     .domain = "",
     .types = {CPU_ANY_BYTES, CPU_EVERY},
     .make = make_resize,
     .flags = CPU_ROW_PICKS_LAYOUT},
    {.op = "GridSample", .domain = "", .types = {CPU_REALS, CPU_REALS}, .make = cpu_make_grid_sample},
    {.op = "RoiAlign",
     .domain = "",
     .types = {CPU_REALS, CPU_REALS, CPU_BIT(GANTRY_INT64)},
     .make = cpu_make_roi_align},
    {.op = "LpPool", .domain = "", .types = {CPU_REALS}, .make = cpu_make_lp_pool},
    {.op = "GlobalLpPool", .domain = "", .types = {CPU_REALS}, .make = cpu_make_lp_pool},
    {.op = "Col2Im", .domain = "", .types = {CPU_REALS, CPU_BIT(GANTRY_INT64)}, .make = cpu_make_col2im},
    {.op = "MaxUnpool",
     .domain = "",
     .types = {CPU_REALS, CPU_BIT(GANTRY_INT64)},
     .make = cpu_make_max_unpool},
    {.op = "AffineGrid",
     .domain = "",
     .types = {CPU_REALS, CPU_BIT(GANTRY_INT64)},
     .make = cpu_make_affine_grid},
};

cpu_op_family cpu_image_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
