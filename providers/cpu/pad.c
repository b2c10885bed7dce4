/* Pad and CenterCropPad: each position of each axis shows one position of the input, or the fill (remap.h).
 */
#include "movement.h"

#include "remap.h"

/* Which input position an output position shows; extent is that of the input, already cut by negative pads.
 */
static int64_t mirrored(int64_t at, int64_t extent, const char *mode)
{
    if (extent <= 0)
        return -1;
    if (at >= 0 && at < extent)
        return at;
    if (mode[0] == 'e') /* edge */
        return at < 0 ? 0 : extent - 1;
    if (mode[0] == 'w') /* wrap */
        return (at % extent + extent) % extent;
    if (mode[0] == 'r') { /* reflect, without repeating the edge */
        int64_t period = cpu_max64(1, 2 * (extent - 1));
        at = (at % period + period) % period;
        return at < extent ? at : period - at;
    }
    return -1;
}

/* The map of one axis: negative pads cut the input, so source positions start at `cut`. */
static gantry_status pad_axis(cpu_build *build, cpu_remap *state, uint32_t axis, int64_t before,
                              int64_t after, int64_t in_extent, int64_t in_stride, const char *mode)
{
    int64_t cut = before < 0 ? -before : 0, kept = in_extent - cut - (after < 0 ? -after : 0);
    int64_t count = in_extent + before + after;
    if (count != state->dims[axis])
        return cpu_unsupported(build, "axis %u gives %lld elements, the output has %lld", axis,
                               (long long)count, (long long)state->dims[axis]);
    int64_t *map = cpu_state(build, (size_t)count * sizeof *map + 1);
    if (!map)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    for (int64_t k = 0; k < count; k++) {
        int64_t from = mirrored(k - (before > 0 ? before : 0), kept, mode);
        map[k] = from < 0 ? -1 : (from + cut) * in_stride;
    }
    state->map[axis] = map;
    return GANTRY_OK;
}

/* pads for all axes, from attribute or inputs, spread over the axes named. */
static gantry_status read_pads(cpu_build *build, uint32_t rank, int64_t *out_before, int64_t *out_after)
{
    int64_t pads[2 * GANTRY_MAX_RANK], axes[GANTRY_MAX_RANK];
    uint32_t pad_count, axis_count;
    bool given, axes_given;
    bool inputs = build->node->version >= 11;
    GT_TRY(cpu_ints_operand(build, "pads", inputs ? 1 : GANTRY_NO_ID, pads, 2 * GANTRY_MAX_RANK, &pad_count,
                            &given));
    GT_TRY(cpu_ints_operand(build, "axes", inputs ? 3 : GANTRY_NO_ID, axes, GANTRY_MAX_RANK, &axis_count,
                            &axes_given));
    if (!axes_given)
        axis_count = rank;
    if (pad_count != 2 * axis_count)
        return cpu_unsupported(build, "pads has %u elements for %u axes", pad_count, axis_count);
    memset(out_before, 0, rank * sizeof *out_before);
    memset(out_after, 0, rank * sizeof *out_after);
    for (uint32_t k = 0; k < axis_count; k++) {
        uint32_t axis;
        GT_TRY(cpu_resolve_axis(build, axes_given ? axes[k] : k, rank, &axis));
        out_before[axis] = pads[k];
        out_after[axis] = pads[axis_count + k];
    }
    return GANTRY_OK;
}

static gantry_status make_pad(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    int64_t before[GANTRY_MAX_RANK], after[GANTRY_MAX_RANK], strides[GANTRY_MAX_RANK];
    const char *mode = gantry_node_string(build->node, "mode", "constant");
    cpu_remap *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(read_pads(build, in->rank, before, after));
    bool nothing = true;
    for (uint32_t axis = 0; axis < in->rank; axis++)
        nothing = nothing && before[axis] == 0 && after[axis] == 0;
    if (nothing)
        return cpu_make_view(build, out_kernel);
    *state = (cpu_remap){.rank = in->rank,
                         .element_bytes = cpu_dtype_size(in->dtype),
                         .value_input = build->node->version >= 11 && cpu_input(build, 2) ? 2 : 0};
    memcpy(state->dims, out->dims, out->rank * sizeof out->dims[0]);
    if (!state->element_bytes)
        return cpu_unsupported(build, "no kernel for element type %d", (int)in->dtype);
    cpu_strides(in->rank, in->dims, strides);
    for (uint32_t axis = 0; axis < in->rank; axis++)
        GT_TRY(pad_axis(build, state, axis, before[axis], after[axis], in->dims[axis], strides[axis], mode));
    cpu_remap_finish(state);
    if (build->node->version < 11) {
        float value = gantry_node_float(build->node, "value", 0);
        cpu_cast cast;
        if (value != 0 && cpu_cast_find(GANTRY_FLOAT32, in->dtype, CPU_CAST_SATURATE, &cast))
            cpu_cast_run(&cast, &value, state->value, 0, 1);
    }
    *out_kernel = cpu_kernel_of(cpu_remap_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)out->count);
    return GANTRY_OK;
}

gantry_status cpu_make_pad(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_unpacked(build, make_pad, out_kernel);
}

/* ---- CenterCropPad: the middle of the input in the middle of the output ---------------------- */

static gantry_status make_center_crop_pad(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    int64_t strides[GANTRY_MAX_RANK];
    cpu_remap *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (in->rank == 0 || cpu_same_dims(in, out))
        return cpu_make_view(build, out_kernel);
    *state = (cpu_remap){.rank = in->rank, .element_bytes = cpu_dtype_size(in->dtype)};
    if (!state->element_bytes || out->rank != in->rank)
        return cpu_unsupported(build, "no kernel for element type %d", (int)in->dtype);
    memcpy(state->dims, out->dims, out->rank * sizeof out->dims[0]);
    cpu_strides(in->rank, in->dims, strides);
    for (uint32_t axis = 0; axis < in->rank; axis++) {
        int64_t more = out->dims[axis] - in->dims[axis];
        int64_t before = more >= 0 ? more / 2 : -((-more) / 2);
        GT_TRY(
            pad_axis(build, state, axis, before, more - before, in->dims[axis], strides[axis], "constant"));
    }
    cpu_remap_finish(state);
    *out_kernel = cpu_kernel_of(cpu_remap_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)out->count);
    return GANTRY_OK;
}

gantry_status cpu_make_center_crop_pad(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_unpacked(build, make_center_crop_pad, out_kernel);
}
