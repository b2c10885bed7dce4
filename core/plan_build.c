/* Steps and memory of a plan: walks the partitions of a segment in order, brings every value to the domain
 * that reads it, and lays all of it out in arenas.
 *
 * Invariants, in the order in which they are made true:
 *   - a step's inputs are in its domain before it; a host step that reads what a queue copies waits for that
 * queue first
 *   - host memory that a queue still reads (the source of a copy to a device) is not reused before the next
 * WAIT on it
 *   - the last steps are one WAIT for each queue with work in flight */
#include "session.h"

#include "bind.h"

/* A slot while memory is being planned. */
typedef struct draft_slot {
    uint32_t root;        /* the slot whose memory it shares (views), itself otherwise */
    uint32_t first, last; /* steps in which it is live */
    uint32_t pending;     /* domain whose queue fills it, GT_NONE when it is ready */
    uint32_t pending_serial;
} draft_slot;

typedef struct builder {
    gt_plan *plan;
    const gt_variant *variant;
    const gt_graph *graph;
    const gt_segment *segment;
    gantry_session *session;
    gt_allocator *allocator;
    const void *const *bind_data;
    GT_VEC(gt_slot) slots;
    GT_VEC(draft_slot) drafts;
    GT_VEC(gt_step) steps;
    uint32_t *where;          /* [value * domain_count + domain]: slot of the default format, or GT_NO_SLOT */
    uint32_t *wait_serial;    /* by domain: how many WAITs it had */
    bool *busy;               /* by domain: work since the last WAIT */
    GT_VEC(uint32_t) sources; /* host slots that queues may still read, with their domain in the next entry */
    gantry_error *err;
} builder;

static gantry_status out_of_memory(builder *b)
{
    return gt_out_of_memory(b->err, GANTRY_STAGE_RUN);
}

static gantry_status add_slot(builder *b, gt_slot slot, uint32_t *out_slot)
{
    uint32_t index = b->slots.count, step = b->steps.count;
    if (!gt_vec_push(b->allocator, &b->slots, slot) ||
        !gt_vec_push(b->allocator, &b->drafts, ((draft_slot){index, step, step, GT_NONE, 0})))
        return out_of_memory(b);
    *out_slot = index;
    return GANTRY_OK;
}

static void use_slot(builder *b, uint32_t slot)
{
    draft_slot *root = &b->drafts.data[b->drafts.data[slot].root];
    if (root->last < b->steps.count)
        root->last = b->steps.count;
}

static gantry_status add_step(builder *b, gt_step step)
{
    return gt_vec_push(b->allocator, &b->steps, step) ? GANTRY_OK : out_of_memory(b);
}

/* Whatever the queue read is free again: host slots it read live up to here. */
static gantry_status add_wait(builder *b, uint32_t domain)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k + 1 < b->sources.count; k += 2) {
        if (b->sources.data[k + 1] == domain) {
            use_slot(b, b->sources.data[k]);
        } else {
            b->sources.data[kept] = b->sources.data[k];
            b->sources.data[kept + 1] = b->sources.data[k + 1];
            kept += 2;
        }
    }
    b->sources.count = kept;
    b->wait_serial[domain]++;
    b->busy[domain] = false;
    return add_step(
        b, (gt_step){.kind = GT_STEP_WAIT, .value = GT_NONE, .domain = domain, .workspace = GT_NO_SLOT});
}

/* Before the host reads a slot: its queue has to be done with it. */
static gantry_status make_ready(builder *b, uint32_t slot)
{
    draft_slot *draft = &b->drafts.data[b->drafts.data[slot].root];
    if (draft->pending != GT_NONE && draft->pending_serial == b->wait_serial[draft->pending])
        GT_TRY(add_wait(b, draft->pending));
    b->drafts.data[b->drafts.data[slot].root].pending = GT_NONE;
    return GANTRY_OK;
}

/* ---- where values are ------------------------------------------------------------------------ */

static uint32_t *where(builder *b, uint32_t value, uint32_t domain)
{
    return &b->where[(size_t)value * b->session->domain_count + domain];
}

static bool is_later(const builder *b, uint32_t node)
{
    uint32_t partition = b->variant->placement->partition_of_node[node];
    return partition != GT_NONE && partition >= b->segment->first_partition + b->segment->partition_count;
}

static bool made_here(const builder *b, uint32_t node)
{
    uint32_t partition = b->variant->placement->partition_of_node[node];
    return partition != GT_NONE && partition >= b->segment->first_partition && !is_later(b, node);
}

/* The first graph output that this value is, or GT_NONE. */
static uint32_t output_of(const builder *b, uint32_t value)
{
    if (b->graph->values.data[value]->is_output)
        for (uint32_t k = 0; k < b->graph->outputs.count; k++)
            if (b->graph->outputs.data[k] == value)
                return k;
    return GT_NONE;
}

static gantry_status has_later_reader(builder *b, uint32_t value, bool *out_later)
{
    const gt_use *uses;
    uint32_t count;
    GT_TRY(gt_graph_uses((gt_graph *)b->graph, value, &uses, &count, b->err));
    *out_later = false;
    for (uint32_t k = 0; k < count; k++)
        *out_later |= uses[k].node != GT_NONE && is_later(b, uses[k].node);
    return GANTRY_OK;
}

/* The place of a value that no step of this plan makes. */
static gantry_status outside_slot(builder *b, uint32_t value, uint32_t *out_slot)
{
    const gt_value *v = b->graph->values.data[value];
    gt_slot slot = {.value = value, .bytes = gt_plan_value_bytes(b->plan, value)};
    if (v->constant != GT_NONE && v->input_index < 0) {
        const gt_constant *constant = &b->graph->model->constants.data[v->constant];
        slot.kind = GT_SLOT_CONSTANT;
        slot.index = v->constant;
        slot.bytes = constant->bytes;
        /* The plan keeps the address: it must not lie in a file that is unmapped later. */
        GT_TRY(gt_constant_own(b->graph->model, v->constant, b->err));
        GT_TRY(gt_constant_data(b->graph->model, v->constant, &slot.data, b->err));
    } else if (v->input_index >= 0) {
        slot.kind = GT_SLOT_INPUT;
        slot.index = (uint32_t)v->input_index;
        slot.domain = b->variant->body ? 0 : b->session->input_domains[v->input_index];
    } else if (v->captured != GT_NONE) {
        slot.kind = GT_SLOT_INPUT;
        slot.index = GT_NONE;
        for (uint32_t k = 0; k < b->variant->capture_count; k++)
            if (b->variant->captures[k] == value)
                slot.index = b->graph->inputs.count + k;
    } else if (b->bind_data[value] &&
               (v->producer == GT_NONE || b->graph->nodes.data[v->producer]->at_bind)) {
        slot.kind = GT_SLOT_BIND;
        slot.data = gt_arena_copy(&b->plan->arena, b->bind_data[value], slot.bytes);
        if (!slot.data)
            return out_of_memory(b);
    } else if (v->producer != GT_NONE && !made_here(b, v->producer)) {
        uint32_t partition = b->variant->placement->partition_of_node[v->producer];
        slot.kind = GT_SLOT_CARRY;
        slot.index = value;
        slot.domain =
            partition == GT_NONE
                ? 0
                : b->session->providers[b->variant->placement->partitions[partition].provider].domain;
        if (partition != GT_NONE && b->variant->placement->partitions[partition].control)
            slot.domain = 0;
    } else {
        return gt_fail(b->err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, NULL,
                       "value %s is read before any step makes it", v->name);
    }
    GT_TRY(add_slot(b, slot, out_slot));
    *where(b, value, slot.domain) = *out_slot;
    return GANTRY_OK;
}

static gantry_status add_transfer(builder *b, uint32_t value, uint32_t source, uint32_t target, size_t bytes,
                                  bool true_size)
{
    uint32_t from = b->slots.data[source].domain, to = b->slots.data[target].domain;
    if (from == 0)
        GT_TRY(make_ready(b, source));
    use_slot(b, source);
    use_slot(b, target);
    gt_step step = {.kind = GT_STEP_TRANSFER,
                    .value = value,
                    .source = source,
                    .target = target,
                    .bytes = bytes,
                    .true_size = true_size,
                    .domain = from ? from : to,
                    .partition = GT_NONE,
                    .workspace = GT_NO_SLOT};
    GT_TRY(add_step(b, step));
    uint32_t queue = from ? from : to;
    b->busy[queue] |= queue != 0;
    if (from == to)
        return GANTRY_OK;
    if (to == 0) {
        draft_slot *root = &b->drafts.data[b->drafts.data[target].root];
        root->pending = queue;
        root->pending_serial = b->wait_serial[queue];
    } else if (!gt_vec_push(b->allocator, &b->sources, source) ||
               !gt_vec_push(b->allocator, &b->sources, queue)) {
        return out_of_memory(b);
    }
    return GANTRY_OK;
}

/* Brings a value (default format) to a domain; through the host when it is on another device. */
static gantry_status acquire(builder *b, uint32_t value, uint32_t domain, uint32_t *out_slot)
{
    uint32_t *here = where(b, value, domain);
    if (*here != GT_NO_SLOT) {
        *out_slot = *here;
        return GANTRY_OK;
    }
    uint32_t source = GT_NO_SLOT;
    for (uint32_t d = 0; d < b->session->domain_count && source == GT_NO_SLOT; d++)
        source = *where(b, value, d);
    if (source == GT_NO_SLOT)
        GT_TRY(outside_slot(b, value, &source));
    if (b->slots.data[source].domain == domain) {
        *out_slot = source;
        return GANTRY_OK;
    }
    if (b->slots.data[source].domain != 0 && domain != 0)
        GT_TRY(acquire(b, value, 0, &source));
    size_t bytes =
        b->plan->shapes[value].dims ? gt_plan_value_bytes(b->plan, value) : b->slots.data[source].bytes;
    gt_slot slot = {.kind = GT_SLOT_ARENA, .domain = domain, .value = value, .bytes = bytes};
    uint32_t target;
    GT_TRY(add_slot(b, slot, &target));
    *where(b, value, domain) = target;
    *out_slot = target;
    return add_transfer(b, value, source, target, bytes, false);
}

/* ---- partitions ------------------------------------------------------------------------------ */

/* True when the value is needed only for shapes, which reshape was told. */
static gantry_status feeds_shapes_only(builder *b, const gt_partition *partition, uint32_t value,
                                       bool *out_only)
{
    *out_only = false;
    if (!b->bind_data[value])
        return GANTRY_OK;
    const gt_use *uses;
    uint32_t count;
    GT_TRY(gt_graph_uses((gt_graph *)b->graph, value, &uses, &count, b->err));
    uint32_t index = (uint32_t)(partition - b->variant->placement->partitions);
    for (uint32_t k = 0; k < count; k++) {
        if (uses[k].node == GT_NONE || b->variant->placement->partition_of_node[uses[k].node] != index)
            continue;
        const gt_op *op = b->graph->nodes.data[uses[k].node]->op;
        if (!op || uses[k].index >= 32 || !(op->shape_operands >> uses[k].index & 1))
            return GANTRY_OK;
    }
    *out_only = true;
    return GANTRY_OK;
}

static gantry_status no_slot(builder *b, uint32_t value, uint32_t *out_slot)
{
    return add_slot(b, (gt_slot){.kind = GT_SLOT_NONE, .value = value}, out_slot);
}

/* Where graph output k is wanted. */
static uint32_t output_domain(const builder *b, uint32_t k)
{
    return b->variant->body ? 0 : b->session->output_domains[k];
}

/* Where an output of this partition goes when its program writes it. */
static gantry_status output_slot(builder *b, uint32_t value, uint32_t domain, uint32_t *out_slot)
{
    const gt_plan_shape *shape = &b->plan->shapes[value];
    uint32_t output = output_of(b, value);
    bool later;
    GT_TRY(has_later_reader(b, value, &later));
    gt_slot slot = {.kind = GT_SLOT_ARENA,
                    .domain = domain,
                    .value = value,
                    .bytes = gt_plan_value_bytes(b->plan, value)};
    if (slot.bytes == SIZE_MAX)
        return gt_plan_too_large(b->plan, b->err,
                                 "this run needs more bytes of memory than can be addressed");
    if (later || shape->dynamic) {
        slot.kind = GT_SLOT_CARRY;
        slot.index = value;
    } else if (output != GT_NONE && domain == output_domain(b, output) && !shape->bounded) {
        slot.kind = GT_SLOT_OUTPUT;
        slot.index = output;
    }
    GT_TRY(add_slot(b, slot, out_slot));
    *where(b, value, domain) = *out_slot;
    return GANTRY_OK;
}

/* A part of another slot, in the same format. A view of what later steps may overwrite can't happen: nothing
 * is overwritten. */
static gantry_status part_slot(builder *b, uint32_t value, uint32_t base, size_t offset, size_t bytes,
                               uint32_t *out_slot)
{
    gt_slot slot = b->slots.data[base];
    slot.value = value;
    slot.offset_bytes += offset;
    slot.bytes = bytes;
    GT_TRY(add_slot(b, slot, out_slot));
    b->drafts.data[*out_slot].root = b->drafts.data[base].root;
    return GANTRY_OK;
}

/* An output that is a view of an input has no memory of its own. */
static gantry_status view_slot(builder *b, uint32_t value, uint32_t input_slot, size_t offset,
                               uint32_t *out_slot)
{
    GT_TRY(part_slot(b, value, input_slot, offset, gt_plan_value_bytes(b->plan, value), out_slot));
    *where(b, value, b->slots.data[*out_slot].domain) = *out_slot;
    return GANTRY_OK;
}

/* What later segments read of it is copied once the program that names it has run. */
static gantry_status keep_view(builder *b, uint32_t value, uint32_t slot)
{
    bool later;
    uint32_t kept;
    GT_TRY(has_later_reader(b, value, &later));
    if (!later)
        return GANTRY_OK;
    gt_slot carry = {.kind = GT_SLOT_CARRY,
                     .domain = b->slots.data[slot].domain,
                     .index = value,
                     .value = value,
                     .bytes = b->slots.data[slot].bytes};
    GT_TRY(add_slot(b, carry, &kept));
    return add_transfer(b, value, slot, kept, carry.bytes, false);
}

static gantry_status convert(builder *b, uint32_t value, uint32_t provider, uint32_t domain,
                             gantry_format from, gantry_format to, uint32_t source, uint32_t target)
{
    use_slot(b, source);
    use_slot(b, target);
    b->busy[domain] |= domain != 0;
    return add_step(b, (gt_step){.kind = GT_STEP_CONVERT,
                                 .value = value,
                                 .source = source,
                                 .target = target,
                                 .domain = domain,
                                 .provider = provider,
                                 .from = from,
                                 .to = to,
                                 .partition = GT_NONE,
                                 .workspace = GT_NO_SLOT});
}

static size_t format_bytes(const builder *b, uint32_t value, uint32_t provider, const gantry_format *format)
{
    const gantry_provider *table = b->session->providers[provider].entry->table;
    const gt_plan_shape *shape = &b->plan->shapes[value];
    gantry_shape extents = {shape->rank, shape->dims};
    return format->tag
               ? table->format_bytes(table->self, format, b->graph->values.data[value]->dtype, &extents)
               : gt_plan_value_bytes(b->plan, value);
}

static gantry_status format_slot(builder *b, uint32_t value, uint32_t provider, uint32_t domain,
                                 const gantry_format *format, uint32_t *out_slot)
{
    gt_slot slot = {.kind = GT_SLOT_ARENA,
                    .domain = domain,
                    .value = value,
                    .bytes = format_bytes(b, value, provider, format)};
    return add_slot(b, slot, out_slot);
}

static gantry_status run_inputs(builder *b, uint32_t index, uint32_t *slots)
{
    const gt_partition *partition = &b->variant->placement->partitions[index];
    const gt_program *program = &b->variant->programs[index];
    uint32_t domain = b->session->providers[partition->provider].domain;
    for (uint32_t k = 0; k < partition->input_count; k++) {
        uint32_t value = partition->inputs[k];
        const gantry_format *format = &program->input_formats[k];
        bool shapes_only;
        GT_TRY(feeds_shapes_only(b, partition, value, &shapes_only));
        if (shapes_only) {
            GT_TRY(no_slot(b, value, &slots[k]));
            continue;
        }
        GT_TRY(acquire(b, value, domain, &slots[k]));
        if (domain == 0)
            GT_TRY(make_ready(b, slots[k]));
        if (format->tag) {
            gantry_format plain = {b->graph->values.data[value]->dtype, 0, 0};
            uint32_t source = slots[k];
            GT_TRY(format_slot(b, value, partition->provider, domain, format, &slots[k]));
            GT_TRY(convert(b, value, partition->provider, domain, plain, *format, source, slots[k]));
        }
    }
    return GANTRY_OK;
}

static gantry_status check_view(builder *b, const gt_partition *partition, const gt_program *program,
                                uint32_t output, const gantry_output_plan *plan, const uint32_t *inputs)
{
    uint32_t base = (uint32_t)plan->view_of_input, value = partition->outputs[output];
    const gantry_format *format = &program->output_formats[output];
    size_t bytes = format_bytes(b, value, partition->provider, format);
    if (base < partition->input_count && program->input_formats[base].tag == format->tag &&
        b->slots.data[inputs[base]].kind != GT_SLOT_NONE && bytes <= b->slots.data[inputs[base]].bytes &&
        plan->view_offset_bytes <= b->slots.data[inputs[base]].bytes - bytes)
        return GANTRY_OK;
    return gt_fail(
        b->err, GANTRY_PROVIDER, GANTRY_STAGE_RUN, NULL,
        "provider %s says that output %s is a view of its input %u from byte %zu on: that input has "
        "another format, is smaller, or is no tensor",
        b->session->providers[partition->provider].name, b->graph->values.data[value]->name, base,
        plan->view_offset_bytes);
}

/* One output that the program writes, or that is a view of an input. One in another format than the default
 * is converted after the run. */
static gantry_status run_output(builder *b, uint32_t index, uint32_t k, const gantry_output_plan *plan,
                                const uint32_t *inputs, uint32_t *out_slot)
{
    const gt_partition *partition = &b->variant->placement->partitions[index];
    const gt_program *program = &b->variant->programs[index];
    const gantry_format *format = &program->output_formats[k];
    uint32_t domain = b->session->providers[partition->provider].domain, value = partition->outputs[k];
    bool view = plan && plan->view_of_input >= 0;
    if (view)
        GT_TRY(check_view(b, partition, program, k, plan, inputs));
    if (view && format->tag)
        return part_slot(b, value, inputs[plan->view_of_input], plan->view_offset_bytes,
                         format_bytes(b, value, partition->provider, format), out_slot);
    if (view)
        return view_slot(b, value, inputs[plan->view_of_input], plan->view_offset_bytes, out_slot);
    if (format->tag)
        return format_slot(b, value, partition->provider, domain, format, out_slot);
    return output_slot(b, value, domain, out_slot);
}

static gantry_status run_outputs(builder *b, uint32_t index, const gt_shaped_slot *shaped,
                                 const uint32_t *inputs, uint32_t *slots)
{
    for (uint32_t k = 0; k < b->variant->placement->partitions[index].output_count; k++) {
        const gantry_output_plan *plan = shaped->info.output_plans ? &shaped->info.output_plans[k] : NULL;
        GT_TRY(run_output(b, index, k, plan, inputs, &slots[k]));
    }
    return GANTRY_OK;
}

/* What is left to do for an output when its program has run. */
static gantry_status finish_output(builder *b, uint32_t index, uint32_t k, const gt_shaped_slot *shaped,
                                   uint32_t slot)
{
    const gt_partition *partition = &b->variant->placement->partitions[index];
    const gantry_format *format = &b->variant->programs[index].output_formats[k];
    uint32_t value = partition->outputs[k], target = GT_NO_SLOT, domain = b->slots.data[slot].domain;
    gantry_format plain = {b->graph->values.data[value]->dtype, 0, 0};
    if (format->tag) {
        GT_TRY(output_slot(b, value, domain, &target));
        return convert(b, value, partition->provider, domain, *format, plain, slot, target);
    }
    bool view = shaped->info.output_plans && shaped->info.output_plans[k].view_of_input >= 0;
    return view ? keep_view(b, value, slot) : GANTRY_OK;
}

static gantry_status add_run(builder *b, uint32_t index, const gt_shaped_slot *shaped)
{
    const gt_partition *partition = &b->variant->placement->partitions[index];
    uint32_t domain = b->session->providers[partition->provider].domain;
    uint32_t *inputs = GT_ARENA_ARRAY(&b->plan->arena, uint32_t, partition->input_count);
    uint32_t *outputs = GT_ARENA_ARRAY(&b->plan->arena, uint32_t, partition->output_count);
    if (!inputs || !outputs)
        return out_of_memory(b);
    GT_TRY(run_inputs(b, index, inputs));
    GT_TRY(run_outputs(b, index, shaped, inputs, outputs));
    uint32_t workspace = GT_NO_SLOT;
    if (shaped->info.workspace_bytes)
        GT_TRY(add_slot(b,
                        (gt_slot){.kind = GT_SLOT_ARENA,
                                  .domain = domain,
                                  .value = GT_NONE,
                                  .bytes = shaped->info.workspace_bytes},
                        &workspace));
    for (uint32_t k = 0; k < partition->input_count; k++)
        use_slot(b, inputs[k]);
    for (uint32_t k = 0; k < partition->output_count; k++)
        use_slot(b, outputs[k]);
    b->busy[domain] |= domain != 0;
    GT_TRY(add_step(b, (gt_step){.kind = GT_STEP_RUN,
                                 .value = GT_NONE,
                                 .domain = domain,
                                 .partition = index,
                                 .provider = partition->provider,
                                 .inputs = inputs,
                                 .input_count = partition->input_count,
                                 .outputs = outputs,
                                 .output_count = partition->output_count,
                                 .workspace = workspace,
                                 .context = (uint32_t)(shaped - b->plan->shaped)}));
    for (uint32_t k = 0; k < partition->output_count; k++)
        GT_TRY(finish_output(b, index, k, shaped, outputs[k]));
    return GANTRY_OK;
}

/* The If or Loop runs on the host: its inputs, then what each body captures, in the order of
 * gt_variant.captures. */
static gantry_status add_control(builder *b, uint32_t index)
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
        return out_of_memory(b);
    uint32_t at = 0;
    for (uint32_t k = 0; k < node->input_count; k++, at++) {
        inputs[at] = GT_NO_SLOT;
        if (node->inputs[k] != GT_NONE)
            GT_TRY(acquire(b, node->inputs[k], 0, &inputs[at]));
    }
    for (int body = 0; body < 2; body++)
        for (uint32_t k = 0; program->bodies[body] && k < program->bodies[body]->capture_count; k++, at++)
            GT_TRY(acquire(
                b, program->bodies[body]->graph->values.data[program->bodies[body]->captures[k]]->captured, 0,
                &inputs[at]));
    for (uint32_t k = 0; k < input_count; k++)
        if (inputs[k] != GT_NO_SLOT)
            GT_TRY(make_ready(b, inputs[k]));
    for (uint32_t k = 0; k < node->output_count; k++) {
        outputs[k] = GT_NO_SLOT;
        if (node->outputs[k] != GT_NONE)
            GT_TRY(output_slot(b, node->outputs[k], 0, &outputs[k]));
    }
    for (uint32_t k = 0; k < input_count; k++)
        if (inputs[k] != GT_NO_SLOT)
            use_slot(b, inputs[k]);
    for (uint32_t k = 0; k < node->output_count; k++)
        if (outputs[k] != GT_NO_SLOT)
            use_slot(b, outputs[k]);
    return add_step(b, (gt_step){.kind = GT_STEP_CONTROL,
                                 .value = GT_NONE,
                                 .partition = index,
                                 .provider = partition->provider,
                                 .inputs = inputs,
                                 .input_count = input_count,
                                 .outputs = outputs,
                                 .output_count = node->output_count,
                                 .workspace = GT_NO_SLOT});
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* The slot that graph output k is best copied from: where it is wanted, on the host, or on another device. */
static gantry_status delivery_source(builder *b, uint32_t value, uint32_t wanted, bool true_size,
                                     uint32_t *out_source)
{
    uint32_t source = *where(b, value, wanted);
    for (uint32_t d = 0; d < b->session->domain_count && source == GT_NO_SLOT; d++)
        source = *where(b, value, d);
    if (source == GT_NO_SLOT)
        GT_TRY(outside_slot(b, value, &source));
    uint32_t domain = b->slots.data[source].domain;
    if (domain != 0 && domain != wanted && (wanted != 0 || true_size))
        GT_TRY(acquire(b, value, 0, &source));
    *out_source = source;
    return GANTRY_OK;
}

/* Delivers graph output k, which a step of this plan or none makes. A device copies straight into the
 * caller's buffer. */
static gantry_status deliver(builder *b, uint32_t k)
{
    uint32_t value = b->graph->outputs.data[k], wanted = output_domain(b, k), source, target;
    const gt_plan_shape *shape = &b->plan->shapes[value];
    bool true_size = shape->bounded || shape->dynamic;
    if (true_size && wanted != 0)
        return gt_fail(b->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, NULL,
                       "output %s has a size that depends on data; it can't be bound in %s",
                       b->graph->values.data[value]->name, b->session->domains[wanted].name);
    GT_TRY(delivery_source(b, value, wanted, true_size, &source));
    const gt_slot *at = &b->slots.data[source];
    if (at->kind == GT_SLOT_OUTPUT && at->index == k && !at->offset_bytes)
        return GANTRY_OK;
    size_t bytes = gt_plan_value_bytes(b->plan, value);
    gt_slot slot = {.kind = GT_SLOT_OUTPUT, .index = k, .domain = wanted, .value = value, .bytes = bytes};
    bool first = *where(b, value, wanted) == GT_NO_SLOT;
    GT_TRY(add_slot(b, slot, &target));
    if (first)
        *where(b, value, wanted) = target;
    return add_transfer(b, value, source, target, bytes, true_size);
}

static gantry_status deliver_outputs(builder *b)
{
    for (uint32_t k = 0; k < b->graph->outputs.count; k++)
        if (gt_variant_output_segment(b->variant, k) == b->plan->segment)
            GT_TRY(deliver(b, k));
    return GANTRY_OK;
}

/* What the next segments' sizes depend on has to be on the host, and stay. */
static gantry_status fetch_results(builder *b)
{
    b->plan->result_slots = GT_ARENA_ARRAY(&b->plan->arena, uint32_t, b->segment->result_count);
    if (!b->plan->result_slots)
        return out_of_memory(b);
    for (uint32_t k = 0; k < b->segment->result_count; k++) {
        const gt_result_symbol *result = &b->segment->results[k];
        uint32_t *slot = &b->plan->result_slots[k];
        *slot = GT_NO_SLOT;
        if (!result->element)
            continue;
        GT_TRY(acquire(b, result->value, 0, slot));
        b->drafts.data[b->drafts.data[*slot].root].last = UINT32_MAX;
    }
    return GANTRY_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static gantry_status plan_domain(builder *b, uint32_t domain)
{
    uint32_t count = 0, at = 0;
    for (uint32_t k = 0; k < b->slots.count; k++)
        count += b->slots.data[k].kind == GT_SLOT_ARENA && b->slots.data[k].domain == domain &&
                 b->drafts.data[k].root == k;
    if (!count)
        return GANTRY_OK;
    size_t *bytes = GT_NEW_ARRAY(b->allocator, size_t, count),
           *offsets = GT_NEW_ARRAY(b->allocator, size_t, count);
    uint32_t *first = GT_NEW_ARRAY(b->allocator, uint32_t, count),
             *last = GT_NEW_ARRAY(b->allocator, uint32_t, count);
    gantry_status status = bytes && offsets && first && last ? GANTRY_OK : out_of_memory(b);
    for (uint32_t k = 0; status == GANTRY_OK && k < b->slots.count; k++)
        if (b->slots.data[k].kind == GT_SLOT_ARENA && b->slots.data[k].domain == domain &&
            b->drafts.data[k].root == k) {
            bytes[at] = b->slots.data[k].bytes;
            first[at] = b->drafts.data[k].first;
            last[at++] = b->drafts.data[k].last;
        }
    if (status == GANTRY_OK)
        status = gt_plan_intervals(b->allocator, count, bytes, first, last, offsets,
                                   &b->plan->arena_bytes[domain], b->err);
    at = 0;
    for (uint32_t k = 0; status == GANTRY_OK && k < b->slots.count; k++)
        if (b->slots.data[k].kind == GT_SLOT_ARENA && b->slots.data[k].domain == domain &&
            b->drafts.data[k].root == k)
            b->slots.data[k].offset_bytes = offsets[at++];
    gt_free(b->allocator, bytes);
    gt_free(b->allocator, offsets);
    gt_free(b->allocator, first);
    gt_free(b->allocator, last);
    return status;
}

static gantry_status plan_memory(builder *b)
{
    b->plan->arena_bytes = GT_ARENA_ARRAY(&b->plan->arena, size_t, b->session->domain_count);
    if (!b->plan->arena_bytes)
        return out_of_memory(b);
    for (uint32_t d = 0; d < b->session->domain_count; d++)
        GT_TRY(plan_domain(b, d));
    for (uint32_t k = 0; k < b->slots.count; k++)
        if (b->slots.data[k].kind == GT_SLOT_ARENA && b->drafts.data[k].root != k)
            b->slots.data[k].offset_bytes += b->slots.data[b->drafts.data[k].root].offset_bytes;
    return GANTRY_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static gantry_status build_steps(builder *b)
{
    const gt_shaped_slot *shaped = b->plan->shaped;
    for (uint32_t p = b->segment->first_partition;
         p < b->segment->first_partition + b->segment->partition_count; p++) {
        if (b->variant->placement->partitions[p].control)
            GT_TRY(add_control(b, p));
        else
            GT_TRY(add_run(b, p, shaped++));
    }
    GT_TRY(deliver_outputs(b));
    GT_TRY(fetch_results(b));
    for (uint32_t d = 1; d < b->session->domain_count; d++)
        if (b->busy[d])
            GT_TRY(add_wait(b, d));
    return plan_memory(b);
}

/* Few plans need fewer; more are made room for as they come. */
#define FIRST_SLOTS 16

gantry_status gt_plan_build(gt_plan *plan, const void *const *bind_data, gantry_error *err)
{
    const gt_variant *variant = plan->variant;
    gantry_session *session = variant->session;
    builder b = {.plan = plan,
                 .variant = variant,
                 .graph = variant->graph,
                 .segment = &variant->segments[plan->segment],
                 .session = session,
                 .allocator = session->allocator,
                 .bind_data = bind_data,
                 .err = err};
    size_t cells = (size_t)variant->graph->values.count * session->domain_count;
    b.where = GT_NEW_ARRAY(b.allocator, uint32_t, cells + 1);
    b.wait_serial = GT_NEW_ARRAY(b.allocator, uint32_t, session->domain_count);
    b.busy = GT_NEW_ARRAY(b.allocator, bool, session->domain_count);
    bool ready = b.where && b.wait_serial && b.busy && gt_vec_reserve(b.allocator, &b.slots, FIRST_SLOTS) &&
                 gt_vec_reserve(b.allocator, &b.drafts, FIRST_SLOTS);
    gantry_status status = ready ? GANTRY_OK : out_of_memory(&b);
    if (status == GANTRY_OK) {
        memset(b.where, 0xff, cells * sizeof *b.where);
        status = build_steps(&b);
    }
    if (status == GANTRY_OK) {
        plan->slot_count = b.slots.count;
        plan->step_count = b.steps.count;
        plan->slots = gt_arena_copy(&plan->arena, b.slots.data, b.slots.count * sizeof *b.slots.data);
        plan->steps = gt_arena_copy(&plan->arena, b.steps.data, b.steps.count * sizeof *b.steps.data);
        if (!plan->slots || !plan->steps)
            status = out_of_memory(&b);
    }
    gt_vec_free(b.allocator, &b.slots);
    gt_vec_free(b.allocator, &b.drafts);
    gt_vec_free(b.allocator, &b.steps);
    gt_vec_free(b.allocator, &b.sources);
    gt_free(b.allocator, b.where);
    gt_free(b.allocator, b.wait_serial);
    gt_free(b.allocator, b.busy);
    return status;
}
