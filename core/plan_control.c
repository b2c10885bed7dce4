/* Steps of If and Loop in a plan: what the host decides with comes to the host, everything else to where the
 * bodies have it (gt_variant.input_domains and so on), and what they make stays there. */
#include "plan_parts.h"

static bool is_loop(const gt_node *node)
{
    return strcmp(node->op_type, "Loop") == 0;
}

/* Where a control node needs operand k: a carried value where it is at home. */
static uint32_t operand_domain(const gt_program *program, const gt_node *node, uint32_t k)
{
    bool carried =
        k >= 2 && program->bodies[0] && is_loop(node) && k < program->bodies[0]->graph->inputs.count;
    return carried ? program->bodies[0]->input_domains[k] : 0;
}

/* The operands, then what each body captures, in the order of gt_variant.captures. */
static gantry_status bring_inputs(gt_plan_builder *b, const gt_node *node, const gt_program *program,
                                  uint32_t *inputs)
{
    uint32_t at = 0;
    for (uint32_t k = 0; k < node->input_count; k++, at++) {
        inputs[at] = GT_NO_SLOT;
        if (node->inputs[k] != GT_NONE)
            GT_TRY(gt_plan_acquire(b, node->inputs[k], operand_domain(program, node, k), &inputs[at]));
    }
    for (int body = 0; body < 2; body++) {
        const gt_variant *of = program->bodies[body];
        for (uint32_t k = 0; of && k < of->capture_count; k++, at++)
            GT_TRY(gt_plan_acquire(b, of->graph->values.data[of->captures[k]]->captured,
                                   of->capture_domains[k], &inputs[at]));
    }
    return GANTRY_OK;
}

/* Where queues read each other's memory, any of them may read them in the bodies: then the host has to know
 * that they are there. */
static gantry_status make_inputs_ready(gt_plan_builder *b, const uint32_t *inputs, uint32_t count)
{
    bool in_order = gt_plan_one_queue_each(b->session);
    for (uint32_t k = count; k-- > 0;)
        if (inputs[k] != GT_NO_SLOT)
            GT_TRY(gt_plan_make_ready(b, inputs[k], in_order ? b->slots.data[inputs[k]].domain : 0,
                                      GT_QUEUE_COMPUTE));
    return GANTRY_OK;
}

/* What a loop carries on a device gets a block of its own: it is handed over, not copied. A branch may write
 * on any queue: the memory of others that are not done is no place for what it makes. */
static gantry_status output_slot(gt_plan_builder *b, const gt_node *node, const gt_program *program,
                                 uint32_t k, uint32_t *out_slot)
{
    const gt_variant *body = program->bodies[0] ? program->bodies[0] : program->bodies[1];
    uint32_t out = k + is_loop(node);
    uint32_t domain = body && out < body->graph->outputs.count ? body->output_domains[out] : 0;
    GT_TRY(gt_plan_output_slot(b, node->outputs[k], domain, out_slot));
    gt_slot *slot = &b->slots.data[*out_slot];
    if (domain == 0 || slot->kind != GT_SLOT_ARENA)
        return GANTRY_OK;
    if (is_loop(node)) {
        slot->kind = GT_SLOT_CARRY;
        slot->index = node->outputs[k];
        return GANTRY_OK;
    }
    gt_draft_slot *root = gt_plan_root(b, *out_slot);
    for (uint32_t queue = GT_QUEUE_COMPUTE; queue <= GT_QUEUE_COPY; queue++) {
        uint32_t since = gt_plan_unordered_since(b, domain, queue);
        root->first = since < root->first ? since : root->first;
    }
    return GANTRY_OK;
}

static gantry_status make_outputs(gt_plan_builder *b, const gt_node *node, const gt_program *program,
                                  uint32_t *outputs)
{
    for (uint32_t k = 0; k < node->output_count; k++) {
        outputs[k] = GT_NO_SLOT;
        if (node->outputs[k] != GT_NONE)
            GT_TRY(output_slot(b, node, program, k, &outputs[k]));
    }
    return GANTRY_OK;
}

/* The bodies leave work on the queues, and the node may copy what they made. */
static gantry_status note_work(gt_plan_builder *b, const uint32_t *outputs, uint32_t count)
{
    for (uint32_t d = 1; d < b->session->domain_count; d++)
        GT_TRY(gt_plan_note_left(b, d));
    for (uint32_t k = 0; k < count; k++)
        if (outputs[k] != GT_NO_SLOT && b->slots.data[outputs[k]].domain != 0)
            gt_plan_note_left_write(b, outputs[k]);
    return GANTRY_OK;
}

gantry_status gt_plan_add_control(gt_plan_builder *b, uint32_t index)
{
    const gt_partition *partition = &b->variant->placement->partitions[index];
    const gt_node *node = b->graph->nodes.data[partition->nodes[0]];
    const gt_program *program = &b->variant->programs[index];
    uint32_t input_count = node->input_count;
    for (int body = 0; body < 2; body++)
        input_count += program->bodies[body] ? program->bodies[body]->capture_count : 0;
    uint32_t *inputs = GT_ARENA_ARRAY(&b->plan->arena, uint32_t, input_count);
    uint32_t *outputs = GT_ARENA_ARRAY(&b->plan->arena, uint32_t, node->output_count);
    if (!inputs || !outputs)
        return gt_plan_no_memory(b);
    b->reader = index;
    b->cause = GT_CAUSE_CONTROL;
    GT_TRY(bring_inputs(b, node, program, inputs));
    b->cause = GT_CAUSE_BOUNDARY;
    GT_TRY(make_inputs_ready(b, inputs, input_count));
    GT_TRY(make_outputs(b, node, program, outputs));
    for (uint32_t k = 0; k < input_count; k++)
        if (inputs[k] != GT_NO_SLOT)
            gt_plan_use_slot(b, inputs[k]);
    for (uint32_t k = 0; k < node->output_count; k++)
        if (outputs[k] != GT_NO_SLOT)
            gt_plan_use_slot(b, outputs[k]);
    GT_TRY(gt_plan_add_step(b, (gt_step){.kind = GT_STEP_CONTROL,
                                         .value = GT_NONE,
                                         .partition = index,
                                         .provider = partition->provider,
                                         .inputs = inputs,
                                         .input_count = input_count,
                                         .outputs = outputs,
                                         .output_count = node->output_count,
                                         .workspace = GT_NO_SLOT}));
    return note_work(b, outputs, node->output_count);
}
