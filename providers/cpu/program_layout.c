/* Keeps activations in channel blocks across chains of convolutions.
 *
 *     plain    [N, C, H, W]          blocked    [N, ceil(C/16), H, W, 16]          of bytes    [N, H, W, C]
 *
 * Convolutions, pools and Resize choose for themselves. An elementwise operator whose operands lie blocked is
 * shown them as plain tensors of rank 5, which broadcast the same way; so no elementwise kernel knows of
 * blocks. A Concat of whole blocks along the channels is shown its operands in that way, too. */
#include "program_layout.h"

bool cpu_can_block(const cpu_tensor *tensor)
{
    return tensor->dtype == GANTRY_FLOAT32 && tensor->rank >= 3 && tensor->rank <= 5;
}

static bool is_byte(const cpu_tensor *tensor)
{
    return tensor->dtype == GANTRY_UINT8 || tensor->dtype == GANTRY_INT8;
}

cpu_layout cpu_private_layout(const cpu_tensor *tensor)
{
    return is_byte(tensor) ? CPU_NHWC : CPU_NCHW16C;
}

size_t cpu_layout_bytes(const cpu_provider *provider, const cpu_tensor *tensor, cpu_layout layout)
{
    if (layout != CPU_NCHW16C || tensor->count == 0)
        return cpu_tensor_bytes(tensor);
    int64_t block = provider->channel_block, channels = tensor->dims[1];
    int64_t padded = (channels + block - 1) / block * block;
    return cpu_dtype_bytes(tensor->dtype, tensor->count / channels * padded);
}

bool cpu_layouts_agree(const cpu_provider *provider, const cpu_tensor *tensor)
{
    if (is_byte(tensor) && tensor->rank >= 2)
        return tensor->dims[1] == 1 || tensor->count == tensor->dims[0] * tensor->dims[1];
    if (!cpu_can_block(tensor) || tensor->dims[1] % provider->channel_block != 0)
        return false;
    return tensor->count == tensor->dims[0] * tensor->dims[1];
}

/* How an operand takes part in a blocked elementwise operator. */
typedef enum operand_role { ROLE_BAD, ROLE_SCALAR, ROLE_AS_IS, ROLE_BLOCKED } operand_role;

static operand_role role_of(const cpu_provider *provider, const cpu_tensor *tensor, const cpu_tensor *output)
{
    if (tensor->count == 1)
        return ROLE_SCALAR;
    if (tensor->dtype != GANTRY_FLOAT32 || tensor->rank > output->rank)
        return ROLE_BAD;
    uint32_t missing = output->rank - tensor->rank; /* leading dims that are 1 */
    int64_t channels = missing <= 1 ? tensor->dims[1 - missing] : 1;
    if (channels == 1)
        return ROLE_AS_IS;
    if (channels != output->dims[1])
        return ROLE_BAD;
    int64_t spatial = 1;
    for (uint32_t k = 2 - missing; k < tensor->rank; k++)
        spatial *= tensor->dims[k];
    if (spatial == 1)
        return ROLE_AS_IS; /* [.., C, 1, 1] is [.., C/16, 1, 1, 16] */
    return tensor->rank == output->rank && !tensor->constant ? ROLE_BLOCKED : ROLE_BAD;
}

/* The blocked tensor, or one that broadcasts against it, as a plain one of one more dimension. */
static void show_blocked(const cpu_provider *provider, cpu_tensor *tensor, uint32_t rank)
{
    uint32_t missing = rank - tensor->rank;
    for (uint32_t k = rank; k-- > 0;)
        tensor->dims[k] = k >= missing ? tensor->dims[k - missing] : 1;
    bool blocked = tensor->dims[1] != 1;
    tensor->dims[rank] = blocked ? provider->channel_block : 1;
    tensor->dims[1] = blocked ? tensor->dims[1] / provider->channel_block : 1;
    tensor->rank = rank + 1;
    tensor->layout = CPU_PLAIN;
}

/* Whether the group can run on blocks, and gains by it: some operand lies blocked only. */
static bool should_run_blocked(const cpu_places *places, const cpu_build *build, const cpu_group *group)
{
    const cpu_provider *provider = build->provider;
    if (build->output_count != 1 || !build->outputs[0].present || !cpu_can_block(&build->outputs[0]) ||
        build->outputs[0].dims[1] % provider->channel_block != 0)
        return false;
    bool gains = false;
    for (uint32_t k = 0; k < build->input_count; k++) {
        if (!build->inputs[k].present)
            continue;
        operand_role role = role_of(provider, &build->inputs[k], &build->outputs[0]);
        if (role == ROLE_BAD)
            return false;
        const cpu_places *at = &places[group->inputs[k]];
        gains = gains || (role == ROLE_BLOCKED && at->known[CPU_NCHW16C] && !at->known[CPU_PLAIN]);
    }
    return gains;
}

/* Whether tensors are joined along whole blocks, and more of their bytes lie blocked only than plain only. */
static bool should_join_blocked(const cpu_places *places, const cpu_build *build, const cpu_group *group)
{
    const cpu_tensor *output = &build->outputs[0];
    bool concat = strcmp(build->node->op, "Concat") == 0 && build->node->domain[0] == 0;
    if (!concat || gantry_node_int(build->node, "axis", 0) != 1 || !output->present || !cpu_can_block(output))
        return false;
    int64_t gained = 0;
    for (uint32_t k = 0; k < build->input_count; k++) {
        const cpu_tensor *part = &build->inputs[k];
        if (!part->present || part->constant || !cpu_can_block(part) || part->rank != output->rank ||
            part->dims[1] % build->provider->channel_block != 0)
            return false;
        const cpu_places *at = &places[group->inputs[k]];
        if (at->known[CPU_NCHW16C] != at->known[CPU_PLAIN])
            gained += at->known[CPU_NCHW16C] ? part->count : -part->count;
    }
    return gained > 0;
}

/* joins: all operands are blocked. */
static gantry_status make_blocked(cpu_build *build, const cpu_group *group, bool joins,
                                  cpu_kernel *out_kernel)
{
    cpu_build shown = *build;
    const cpu_provider *provider = build->provider;
    uint32_t rank = build->outputs[0].rank;
    shown.inputs = gt_arena_copy(build->scratch, build->inputs, build->input_count * sizeof(cpu_tensor));
    shown.outputs = gt_arena_copy(build->scratch, build->outputs, sizeof(cpu_tensor));
    if (!shown.inputs || !shown.outputs)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < build->input_count; k++) {
        if (!build->inputs[k].present)
            continue;
        operand_role role = joins ? ROLE_BLOCKED : role_of(provider, &build->inputs[k], &build->outputs[0]);
        if (role == ROLE_SCALAR)
            continue;
        if (role == ROLE_BLOCKED)
            build->inputs[k].layout = CPU_NCHW16C;
        show_blocked(provider, &shown.inputs[k], rank);
    }
    build->outputs[0].layout = CPU_NCHW16C;
    show_blocked(provider, &shown.outputs[0], rank);
    return group->row->make(&shown, out_kernel);
}

gantry_status cpu_layout_make(const cpu_places *places, cpu_build *build, const cpu_group *group,
                              cpu_kernel *out_kernel)
{
    if ((group->row->flags & CPU_ROW_ANY_LAYOUT) && should_run_blocked(places, build, group))
        return make_blocked(build, group, false, out_kernel);
    if (should_join_blocked(places, build, group))
        return make_blocked(build, group, true, out_kernel);
    if (group->row->flags & CPU_ROW_PICKS_LAYOUT)
        for (uint32_t k = 0; k < build->input_count; k++)
            if (build->inputs[k].present &&
                places[group->inputs[k]].known[cpu_private_layout(&build->inputs[k])])
                build->inputs[k].layout = cpu_private_layout(&build->inputs[k]);
    return group->row->make(build, out_kernel);
}
