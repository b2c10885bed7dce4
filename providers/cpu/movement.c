/* Operators that move elements without computing: views, Transpose, Concat, Split, Slice, Tile, Expand,
 * DepthToSpace, Trilu. Pad is in pad.c. */
#include "movement.h"

#include "copy.h"
#include "random.h"

/* ---- views ----------------------------------------------------------------------------------- */

gantry_status cpu_make_view(cpu_build *build, cpu_kernel *out_kernel)
{
    if (build->inputs[0].count != build->outputs[0].count)
        return cpu_unsupported(build, "input has %lld elements and output %lld",
                               (long long)build->inputs[0].count, (long long)build->outputs[0].count);
    *out_kernel = cpu_kernel_of(NULL, NULL);
    out_kernel->view_of_input = 0;
    return GANTRY_OK;
}

static gantry_status dropout_run(const void *opaque, const cpu_call *call)
{
    const cpu_copy *copy = opaque;
    cpu_copy_run(copy, call, call->inputs[0], call->outputs[0]);
    int64_t count = copy->nest.rows * copy->nest.inner;
    memset(call->outputs[1], 1, (size_t)count);
    return GANTRY_OK;
}

/* Inference: the identity, and a mask of true. */
static gantry_status make_dropout(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *ratio = cpu_input(build, 1), *training = cpu_input(build, 2);
    bool drops = training && (!training->data || *(const uint8_t *)training->data) &&
                 !(ratio && ratio->data && cpu_load_double(ratio->dtype, ratio->data, 0) == 0);
    if (drops)
        return cpu_make_dropout_training(build, out_kernel);
    if (!cpu_output(build, 1))
        return cpu_make_view(build, out_kernel);
    int64_t stride = 1;
    GT_TRY(cpu_make_copy(build, 1, &in->count, &stride, &stride, 0, out_kernel));
    if (build->outputs[1].dtype != GANTRY_BOOL)
        return cpu_unsupported(build, "the mask must be bool");
    out_kernel->run = dropout_run;
    return GANTRY_OK;
}

/* ---- Transpose, DepthToSpace, SpaceToDepth: permutations ------------------------------------- */

/* Output axis k is input axis order[k] of a tensor with extents dims. */
static gantry_status make_permutation(cpu_build *build, uint32_t rank, const int64_t *dims,
                                      const uint32_t *order, cpu_kernel *out_kernel)
{
    int64_t in_strides[GANTRY_MAX_RANK], source[GANTRY_MAX_RANK], target[GANTRY_MAX_RANK],
        out_dims[GANTRY_MAX_RANK];
    cpu_strides(rank, dims, in_strides);
    for (uint32_t k = 0; k < rank; k++) {
        out_dims[k] = dims[order[k]];
        source[k] = in_strides[order[k]];
    }
    cpu_strides(rank, out_dims, target);
    GT_TRY(cpu_make_copy(build, rank, out_dims, target, source, 0, out_kernel));
    const cpu_copy *copy = out_kernel->state;
    if (copy->nest.rows == 1 && copy->nest.step[1] == 1 && !copy->tile_rows)
        return cpu_make_view(build, out_kernel);
    return GANTRY_OK;
}

static gantry_status make_transpose(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    uint32_t count, order[GANTRY_MAX_RANK], seen = 0;
    const int64_t *perm = cpu_ints(build->node, "perm", &count);
    if (perm && count != in->rank)
        return cpu_unsupported(build, "perm has %u entries for a tensor of rank %u", count, in->rank);
    for (uint32_t k = 0; k < in->rank; k++) {
        order[k] = in->rank - 1 - k;
        if (perm)
            GT_TRY(cpu_resolve_axis(build, perm[k], in->rank, &order[k]));
        seen |= 1u << order[k];
    }
    if (seen != (1u << in->rank) - 1)
        return cpu_unsupported(build, "perm names an axis twice");
    return make_permutation(build, in->rank, in->dims, order, out_kernel);
}

static gantry_status make_transpose_any(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_unpacked(build, make_transpose, out_kernel);
}

static gantry_status make_depth_to_space(cpu_build *build, cpu_kernel *out_kernel)
{
    static const uint32_t depth_first[6] = {0, 3, 4, 1, 5, 2}, column_first[6] = {0, 1, 4, 2, 5, 3};
    const cpu_tensor *in = &build->inputs[0];
    int64_t b = gantry_node_int(build->node, "blocksize", 0);
    if (in->rank != 4 || b <= 0 || in->dims[1] % (b * b))
        return cpu_unsupported(build, "needs rank 4 and channels divisible by blocksize squared");
    bool crd = strcmp(gantry_node_string(build->node, "mode", "DCR"), "CRD") == 0;
    int64_t depth = in->dims[1] / (b * b);
    int64_t dcr_dims[6] = {in->dims[0], b, b, depth, in->dims[2], in->dims[3]};
    int64_t crd_dims[6] = {in->dims[0], depth, b, b, in->dims[2], in->dims[3]};
    return make_permutation(build, 6, crd ? crd_dims : dcr_dims, crd ? column_first : depth_first,
                            out_kernel);
}

static gantry_status make_space_to_depth(cpu_build *build, cpu_kernel *out_kernel)
{
    static const uint32_t depth_first[6] = {0, 3, 5, 1, 2, 4}, column_first[6] = {0, 1, 3, 5, 2, 4};
    const cpu_tensor *in = &build->inputs[0];
    int64_t b = gantry_node_int(build->node, "blocksize", 0);
    if (in->rank != 4 || b <= 0 || in->dims[2] % b || in->dims[3] % b)
        return cpu_unsupported(build, "needs rank 4 and extents divisible by blocksize");
    bool crd = strcmp(gantry_node_string(build->node, "mode", "DCR"), "CRD") == 0;
    int64_t dims[6] = {in->dims[0], in->dims[1], in->dims[2] / b, b, in->dims[3] / b, b};
    return make_permutation(build, 6, dims, crd ? column_first : depth_first, out_kernel);
}

/* ---- Expand, Tile ---------------------------------------------------------------------------- */

static gantry_status make_expand(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    int64_t source[GANTRY_MAX_RANK], target[GANTRY_MAX_RANK];
    if (in->count == out->count)
        return cpu_make_view(build, out_kernel);
    if (!cpu_broadcast_strides(in, out->rank, out->dims, source))
        return cpu_unsupported(build, "the input does not broadcast to the output");
    cpu_strides(out->rank, out->dims, target);
    return cpu_make_copy(build, out->rank, out->dims, target, source, 0, out_kernel);
}

/* Each axis becomes two: the repeats (stride 0 in the source) and the extent. */
static gantry_status make_tile(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    int64_t dims[GANTRY_MAX_RANK], in_strides[GANTRY_MAX_RANK], out_strides[GANTRY_MAX_RANK];
    int64_t source[GANTRY_MAX_RANK], target[GANTRY_MAX_RANK];
    uint32_t rank = 0;
    cpu_strides(in->rank, in->dims, in_strides);
    cpu_strides(out->rank, out->dims, out_strides);
    if (in->rank != out->rank)
        return cpu_unsupported(build, "input and output differ in rank");
    for (uint32_t k = 0; k < in->rank; k++) {
        int64_t repeat = in->dims[k] ? out->dims[k] / in->dims[k] : 1;
        uint32_t needed = (repeat != 1) + (in->dims[k] != 1);
        if (rank + needed > GANTRY_MAX_RANK)
            return cpu_unsupported(build, "more than %d axes are repeated or longer than 1", GANTRY_MAX_RANK);
        if (repeat != 1) {
            dims[rank] = repeat;
            source[rank] = 0;
            target[rank++] = out_strides[k] * in->dims[k];
        }
        if (in->dims[k] != 1) {
            dims[rank] = in->dims[k];
            source[rank] = in_strides[k];
            target[rank++] = out_strides[k];
        }
    }
    return cpu_make_copy(build, rank, dims, target, source, 0, out_kernel);
}

/* ---- Slice ----------------------------------------------------------------------------------- */

typedef struct slice_axes {
    int64_t starts[GANTRY_MAX_RANK], ends[GANTRY_MAX_RANK], axes[GANTRY_MAX_RANK], steps[GANTRY_MAX_RANK];
    uint32_t count;
} slice_axes;

/* From attributes (version < 10) or inputs. */
static gantry_status read_slice(cpu_build *build, slice_axes *out)
{
    bool inputs = build->node->version >= 10, given;
    uint32_t ends, axes, steps;
    GT_TRY(cpu_ints_operand(build, "starts", inputs ? 1 : GANTRY_NO_ID, out->starts, GANTRY_MAX_RANK,
                            &out->count, &given));
    GT_TRY(cpu_ints_operand(build, "ends", inputs ? 2 : GANTRY_NO_ID, out->ends, GANTRY_MAX_RANK, &ends,
                            &given));
    GT_TRY(cpu_ints_operand(build, "axes", inputs ? 3 : GANTRY_NO_ID, out->axes, GANTRY_MAX_RANK, &axes,
                            &given));
    for (uint32_t k = 0; !given && k < out->count; k++)
        out->axes[k] = k;
    axes = given ? axes : out->count;
    GT_TRY(cpu_ints_operand(build, "steps", inputs ? 4 : GANTRY_NO_ID, out->steps, GANTRY_MAX_RANK, &steps,
                            &given));
    for (uint32_t k = 0; !given && k < out->count; k++)
        out->steps[k] = 1;
    steps = given ? steps : out->count;
    if (ends != out->count || axes != out->count || steps != out->count)
        return cpu_unsupported(build, "starts, ends, axes and steps have %u, %u, %u and %u elements",
                               out->count, ends, axes, steps);
    return GANTRY_OK;
}

static gantry_status make_slice(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    slice_axes slice;
    int64_t source[GANTRY_MAX_RANK], target[GANTRY_MAX_RANK], offset = 0;
    GT_TRY(read_slice(build, &slice));
    if (in->count == out->count && in->count == 0)
        return cpu_make_view(build, out_kernel);
    cpu_strides(in->rank, in->dims, source);
    cpu_strides(out->rank, out->dims, target);
    for (uint32_t k = 0; k < slice.count; k++) {
        uint32_t axis;
        GT_TRY(cpu_resolve_axis(build, slice.axes[k], in->rank, &axis));
        int64_t extent = in->dims[axis], step = slice.steps[k];
        if (step == 0)
            return cpu_unsupported(build, "a step is 0");
        int64_t start = slice.starts[k] < 0 ? slice.starts[k] + extent : slice.starts[k];
        int64_t end = slice.ends[k] < 0 ? slice.ends[k] + extent : slice.ends[k];
        start = step > 0 ? cpu_clamp64(start, 0, extent) : cpu_clamp64(start, 0, extent - 1);
        end = step > 0 ? cpu_clamp64(end, 0, extent) : cpu_clamp64(end, -1, extent - 1);
        /* Steps may be as large as int64 is: only those below the extent are multiplied with anything. */
        uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
        int64_t span = step > 0 ? end - start : start - end;
        int64_t count = span <= 0 ? 0 : (int64_t)(((uint64_t)span - 1) / stride) + 1;
        if (count != out->dims[axis])
            return cpu_unsupported(build, "axis %u gives %lld elements, the output has %lld", axis,
                                   (long long)count, (long long)out->dims[axis]);
        offset += start * source[axis];
        source[axis] *= count > 1 ? step : 1;
    }
    GT_TRY(cpu_make_copy(build, out->rank, out->dims, target, source, out->count ? offset : 0, out_kernel));
    const cpu_copy *copy = out_kernel->state;
    if (out->count && copy->nest.rows == 1 && copy->nest.step[1] == 1 && !copy->tile_rows) { /* one piece */
        *out_kernel = cpu_kernel_of(NULL, NULL);
        out_kernel->view_of_input = 0;
        out_kernel->view_offset_bytes = (size_t)offset * cpu_dtype_size(out->dtype);
    }
    return GANTRY_OK;
}

/* ---- Concat, Split: rows of several tensors -------------------------------------------------- */

typedef struct joint_state {
    uint32_t part_count;
    bool join; /* Concat: parts are inputs; else outputs */
    cpu_copy copies[];
} joint_state;

static gantry_status joint_run(const void *opaque, const cpu_call *call)
{
    const joint_state *state = opaque;
    for (uint32_t k = 0; k < state->part_count; k++) {
        const void *source = state->join ? call->inputs[k] : call->inputs[0];
        void *target = state->join ? call->outputs[0] : call->outputs[k];
        if (source && target)
            cpu_copy_run(&state->copies[k], call, source, target);
    }
    return GANTRY_OK;
}

/* Parts lie one after the other along axis of `whole`. */
static gantry_status make_joint(cpu_build *build, bool join, uint32_t axis, cpu_kernel *out_kernel)
{
    const cpu_tensor *whole = join ? &build->outputs[0] : &build->inputs[0];
    const cpu_tensor *parts = join ? build->inputs : build->outputs;
    uint32_t part_count = join ? build->input_count : build->output_count;
    joint_state *state = cpu_state(build, sizeof *state + part_count * sizeof(cpu_copy));
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    cpu_copy *copies = state->copies;
    int64_t whole_strides[GANTRY_MAX_RANK], part_strides[GANTRY_MAX_RANK], at = 0;
    cpu_strides(whole->rank, whole->dims, whole_strides);
    for (uint32_t k = 0; k < part_count; k++) {
        if (!parts[k].present)
            continue;
        cpu_strides(parts[k].rank, parts[k].dims, part_strides);
        if (parts[k].rank != whole->rank || at + parts[k].dims[axis] > whole->dims[axis] ||
            !cpu_copy_make(&copies[k], parts[k].rank, parts[k].dims, join ? whole_strides : part_strides,
                           join ? part_strides : whole_strides, cpu_dtype_size(whole->dtype)))
            return cpu_unsupported(build, "part %u does not fit, or element type %d is not moved", k,
                                   (int)whole->dtype);
        *(join ? &copies[k].target_offset : &copies[k].source_offset) = at * whole_strides[axis];
        at += parts[k].dims[axis];
    }
    state->part_count = part_count;
    state->join = join;
    *out_kernel = cpu_kernel_of(joint_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)whole->count);
    return GANTRY_OK;
}

/* Whether channels of bytes are joined that lie last, in one operand at least. */
static bool joins_last(const cpu_build *build, uint32_t axis)
{
    const cpu_tensor *out = &build->outputs[0];
    bool any = false, fits = axis == 1 && out->rank >= 3 && out->rank <= 5 && cpu_dtype_size(out->dtype) == 1;
    for (uint32_t k = 0; k < build->input_count; k++) {
        fits = fits && !build->inputs[k].constant;
        any = any || build->inputs[k].layout == CPU_NHWC;
    }
    return fits && any;
}

static void show_last(cpu_tensor *tensor)
{
    int64_t channels = tensor->dims[1];
    memmove(&tensor->dims[1], &tensor->dims[2], (tensor->rank - 2) * sizeof channels);
    tensor->dims[tensor->rank - 1] = channels;
}

static gantry_status make_joint_last(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_build shown = *build;
    shown.inputs = gt_arena_copy(build->scratch, build->inputs, build->input_count * sizeof(cpu_tensor));
    shown.outputs = gt_arena_copy(build->scratch, build->outputs, sizeof(cpu_tensor));
    if (!shown.inputs || !shown.outputs)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < build->input_count; k++)
        show_last(&shown.inputs[k]);
    show_last(&shown.outputs[0]);
    return make_joint(&shown, true, shown.outputs[0].rank - 1, out_kernel);
}

static gantry_status make_concat(cpu_build *build, cpu_kernel *out_kernel)
{
    uint32_t axis;
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", 1), build->outputs[0].rank, &axis));
    cpu_layout layout = build->input_count > 1 && joins_last(build, axis) ? CPU_NHWC : CPU_PLAIN;
    for (uint32_t k = 0; k < build->input_count; k++)
        build->inputs[k].layout = layout;
    build->outputs[0].layout = layout;
    if (layout == CPU_NHWC)
        return make_joint_last(build, out_kernel);
    if (build->input_count == 1)
        return cpu_make_view(build, out_kernel);
    return make_joint(build, true, axis, out_kernel);
}

static gantry_status make_split(cpu_build *build, cpu_kernel *out_kernel)
{
    uint32_t axis;
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", 0), build->inputs[0].rank, &axis));
    if (build->output_count == 1)
        return cpu_make_view(build, out_kernel);
    return make_joint(build, false, axis, out_kernel);
}

/* ---- Trilu ----------------------------------------------------------------------------------- */

typedef struct trilu_state {
    int64_t planes, rows, columns;
    size_t element_bytes;
    bool upper, has_k;
    gantry_dtype k_dtype;
} trilu_state;

static gantry_status trilu_run(const void *opaque, const cpu_call *call)
{
    const trilu_state *state = opaque;
    int64_t shift = state->has_k ? cpu_load_int(state->k_dtype, call->inputs[1], 0) : 0;
    shift = cpu_clamp64(shift, -state->rows - 1, state->columns + 1);
    for (int64_t k = 0; k < state->planes * state->rows; k++) {
        /* Upper keeps columns >= row + shift, lower those <= row + shift. */
        int64_t row = k % state->rows;
        int64_t edge = cpu_clamp64(row + shift + (state->upper ? 0 : 1), 0, state->columns);
        size_t begin = (size_t)(state->upper ? edge : 0),
               end = (size_t)(state->upper ? state->columns : edge);
        size_t bytes = state->element_bytes, offset = (size_t)k * (size_t)state->columns * bytes;
        char *out = (char *)call->outputs[0] + offset;
        memset(out, 0, begin * bytes);
        memmove(out + begin * bytes, (const char *)call->inputs[0] + offset + begin * bytes,
                (end - begin) * bytes);
        memset(out + end * bytes, 0, ((size_t)state->columns - end) * bytes);
    }
    return GANTRY_OK;
}

static gantry_status make_trilu(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *k = cpu_input(build, 1);
    trilu_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (in->rank < 2)
        return cpu_unsupported(build, "needs rank 2 or more, has %u", in->rank);
    *state = (trilu_state){.planes = cpu_product(in->dims, 0, in->rank - 2),
                           .rows = in->dims[in->rank - 2],
                           .columns = in->dims[in->rank - 1],
                           .element_bytes = cpu_dtype_size(in->dtype),
                           .upper = gantry_node_int(build->node, "upper", 1) != 0,
                           .has_k = k != NULL,
                           .k_dtype = k ? k->dtype : GANTRY_UNDEFINED};
    *out_kernel = cpu_kernel_of(trilu_run, state);
    out_kernel->overwrite_input = 0;
    return GANTRY_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define MOVED (CPU_ANY_BYTES | CPU_BIT(GANTRY_COMPLEX128))
#define NO_STRING (CPU_EVERY & ~CPU_BIT(GANTRY_STRING))

static const cpu_op_row rows[] = {
    {.op = "Identity", .domain = "", .types = {NO_STRING}, .make = cpu_make_view},
    {.op = "Reshape", .domain = "", .types = {NO_STRING, CPU_INDEX}, .make = cpu_make_view},
    {.op = "Flatten", .domain = "", .types = {NO_STRING}, .make = cpu_make_view},
    {.op = "Squeeze", .domain = "", .types = {NO_STRING, CPU_INDEX}, .make = cpu_make_view},
    {.op = "Unsqueeze", .domain = "", .types = {NO_STRING, CPU_INDEX}, .make = cpu_make_view},
    {.op = "Dropout", .domain = "", .types = {MOVED, CPU_EVERY}, .make = make_dropout},
    {.op = "Transpose", .domain = "", .types = {NO_STRING}, .make = make_transpose_any},
    {.op = "DepthToSpace", .domain = "", .types = {MOVED}, .make = make_depth_to_space},
    {.op = "SpaceToDepth", .domain = "", .types = {MOVED}, .make = make_space_to_depth},
    {.op = "Expand", .domain = "", .types = {MOVED, CPU_INDEX}, .make = make_expand},
    {.op = "Tile", .domain = "", .types = {MOVED, CPU_INDEX}, .make = make_tile},
    {.op = "Slice", .domain = "", .types = {MOVED, CPU_INDEX}, .make = make_slice},
    {.op = "Concat", .domain = "", .types = {MOVED}, .make = make_concat, .flags = CPU_ROW_PICKS_LAYOUT},
    {.op = "Split", .domain = "", .types = {MOVED, CPU_INDEX}, .make = make_split},
    {.op = "Trilu", .domain = "", .types = {MOVED, CPU_INDEX}, .make = make_trilu},
    {.op = "CenterCropPad", .domain = "", .types = {NO_STRING, CPU_INDEX}, .make = cpu_make_center_crop_pad},
    {.op = "Pad", .domain = "", .types = {NO_STRING, CPU_INDEX, CPU_EVERY, CPU_INDEX}, .make = cpu_make_pad},
};

cpu_op_family cpu_movement_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
