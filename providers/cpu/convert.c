/* Makes a node in other element types than its operands have: inputs are converted into scratch, a kernel of
 * the other types runs on them, and its outputs are converted back.
 *
 *     scratch: | pointers | converted inputs and outputs, 64-byte aligned | scratch of the inner kernel | */
#include "kernels.h"

typedef struct converted_operand {
    bool used;
    cpu_cast cast;
    int64_t count;
    size_t offset;        /* in scratch */
    const void *constant; /* converted when the kernel was made */
} converted_operand;

typedef struct converted_state {
    cpu_kernel inner;
    uint32_t input_count, output_count;
    converted_operand *inputs, *outputs;
    size_t inner_scratch;
} converted_state;

static size_t align64(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static gantry_status converted_run(const void *opaque, const cpu_call *call)
{
    const converted_state *state = opaque;
    char *scratch = call->scratch;
    const void **inputs = (const void **)scratch;
    void **outputs = (void **)(scratch + state->input_count * sizeof(void *));
    for (uint32_t k = 0; k < state->input_count; k++) {
        const converted_operand *operand = &state->inputs[k];
        inputs[k] = operand->constant ? operand->constant : call->inputs[k];
        if (operand->used && !operand->constant) {
            cpu_cast_parallel(call, &operand->cast, call->inputs[k], scratch + operand->offset,
                              operand->count);
            inputs[k] = scratch + operand->offset;
        }
    }
    for (uint32_t k = 0; k < state->output_count; k++)
        outputs[k] = state->outputs[k].used ? scratch + state->outputs[k].offset : call->outputs[k];
    cpu_call inner = *call;
    inner.inputs = inputs;
    inner.outputs = outputs;
    inner.scratch = scratch + state->inner_scratch;
    GT_TRY(state->inner.run(state->inner.state, &inner));
    for (uint32_t k = 0; k < state->output_count; k++)
        if (state->outputs[k].used)
            cpu_cast_parallel(call, &state->outputs[k].cast, outputs[k], call->outputs[k],
                              state->outputs[k].count);
    return GANTRY_OK;
}

static void converted_destroy(void *opaque)
{
    converted_state *state = opaque;
    state->inner.destroy((void *)(uintptr_t)state->inner.state);
}

/* What is known of an operand in the other type. Constants are converted now, so that their elements stay
 * known. */
static gantry_status convert_operand(cpu_build *build, cpu_tensor *tensor, gantry_dtype to, bool is_input,
                                     converted_operand *operand, size_t *inout_offset)
{
    gantry_dtype from = tensor->dtype;
    if (!tensor->present || from == to)
        return GANTRY_OK;
    if (!cpu_cast_find(is_input ? from : to, is_input ? to : from, CPU_CAST_SATURATE, &operand->cast))
        return cpu_unsupported(build, "no conversion between element types %d and %d", (int)from, (int)to);
    operand->used = true;
    operand->count = tensor->count;
    tensor->dtype = to;
    size_t bytes = cpu_bytes_of(to, tensor->count);
    if (is_input && tensor->data) {
        void *converted = cpu_state(build, bytes + 1);
        if (!converted)
            return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
        cpu_cast_run(&operand->cast, tensor->data, converted, 0, tensor->count);
        tensor->data = converted;
        operand->constant = tensor->constant ? converted : NULL;
    }
    if (!operand->constant) {
        operand->offset = *inout_offset;
        *inout_offset = align64(*inout_offset + bytes);
    }
    return GANTRY_OK;
}

gantry_status cpu_make_converted(cpu_build *build, cpu_make_fn make, const gantry_dtype *in_types,
                                 const gantry_dtype *out_types, cpu_kernel *out_kernel)
{
    bool same = true;
    for (uint32_t k = 0; k < build->input_count; k++)
        same = same && (!build->inputs[k].present || build->inputs[k].dtype == in_types[k]);
    for (uint32_t k = 0; k < build->output_count; k++)
        same = same && (!build->outputs[k].present || build->outputs[k].dtype == out_types[k]);
    if (same)
        return make(build, out_kernel);

    uint32_t n_in = build->input_count, n_out = build->output_count;
    converted_state *state = cpu_state(build, sizeof *state);
    cpu_tensor *inputs = cpu_state(build, n_in * sizeof *inputs),
               *outputs = cpu_state(build, n_out * sizeof *outputs);
    converted_operand *operands = cpu_state(build, (n_in + n_out) * sizeof *operands);
    if (!state || !inputs || !outputs || !operands)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *state = (converted_state){
        .input_count = n_in, .output_count = n_out, .inputs = operands, .outputs = operands + n_in};
    memcpy(inputs, build->inputs, n_in * sizeof *inputs);
    memcpy(outputs, build->outputs, n_out * sizeof *outputs);
    size_t offset = align64((n_in + n_out) * sizeof(void *));
    for (uint32_t k = 0; k < n_in; k++)
        GT_TRY(convert_operand(build, &inputs[k], in_types[k], true, &state->inputs[k], &offset));
    for (uint32_t k = 0; k < n_out; k++)
        GT_TRY(convert_operand(build, &outputs[k], out_types[k], false, &state->outputs[k], &offset));
    cpu_build inner = *build;
    inner.inputs = inputs;
    inner.outputs = outputs;
    GT_TRY(make(&inner, &state->inner));
    if (!state->inner.run && build->inputs[state->inner.view_of_input].dtype == build->outputs[0].dtype &&
        state->inner.view_offset_bytes == 0) { /* the bits move nowhere, whatever they mean */
        *out_kernel = state->inner;
        return GANTRY_OK;
    }
    if (!state->inner.run)
        return gt_fail(build->err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, build->node->name,
                       "a kernel that moves nothing was wrapped in conversions");
    state->inner_scratch = offset;
    *out_kernel = state->inner;
    out_kernel->run = converted_run;
    out_kernel->state = state;
    out_kernel->destroy = state->inner.destroy ? converted_destroy : NULL;
    out_kernel->scratch_bytes = offset + state->inner.scratch_bytes;
    out_kernel->overwrite_input = -1;
    return GANTRY_OK;
}

/* Types of all operands with `map` applied; NULL when out of memory. */
static gantry_dtype *mapped_types(cpu_build *build, gantry_dtype (*map)(gantry_dtype))
{
    gantry_dtype *types = cpu_state(build, (build->input_count + build->output_count) * sizeof *types);
    for (uint32_t k = 0; types && k < build->input_count; k++)
        types[k] = map(build->inputs[k].dtype);
    for (uint32_t k = 0; types && k < build->output_count; k++)
        types[build->input_count + k] = map(build->outputs[k].dtype);
    return types;
}

static gantry_dtype widened(gantry_dtype dtype)
{
    switch (dtype) {
    case GANTRY_FLOAT16:
    case GANTRY_BFLOAT16:
    case GANTRY_FLOAT8E4M3FN:
    case GANTRY_FLOAT8E4M3FNUZ:
    case GANTRY_FLOAT8E5M2:
    case GANTRY_FLOAT8E5M2FNUZ:
    case GANTRY_FLOAT8E8M0:
    case GANTRY_FLOAT4E2M1:
        return GANTRY_FLOAT32;
    default:
        return dtype;
    }
}

static gantry_dtype unpacked(gantry_dtype dtype)
{
    switch (dtype) {
    case GANTRY_UINT4:
    case GANTRY_UINT2:
        return GANTRY_UINT8;
    case GANTRY_INT4:
    case GANTRY_INT2:
        return GANTRY_INT8;
    case GANTRY_FLOAT4E2M1:
        return GANTRY_FLOAT32;
    default:
        return dtype;
    }
}

static gantry_status make_mapped(cpu_build *build, cpu_make_fn make, gantry_dtype (*map)(gantry_dtype),
                                 cpu_kernel *out_kernel)
{
    bool same = true;
    for (uint32_t k = 0; k < build->input_count; k++)
        same = same && map(build->inputs[k].dtype) == build->inputs[k].dtype;
    for (uint32_t k = 0; k < build->output_count; k++)
        same = same && map(build->outputs[k].dtype) == build->outputs[k].dtype;
    if (same)
        return make(build, out_kernel);
    gantry_dtype *types = mapped_types(build, map);
    if (!types)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    return cpu_make_converted(build, make, types, types + build->input_count, out_kernel);
}

gantry_status cpu_make_widened(cpu_build *build, cpu_make_fn make, cpu_kernel *out_kernel)
{
    return make_mapped(build, make, widened, out_kernel);
}

gantry_status cpu_make_unpacked(cpu_build *build, cpu_make_fn make, cpu_kernel *out_kernel)
{
    return make_mapped(build, make, unpacked, out_kernel);
}
