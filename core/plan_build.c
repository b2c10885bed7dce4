/* Steps of a plan: walks the partitions of a segment in order, brings every value to the domain that reads
 * it, and has all of it laid out in arenas.
 *
 * Invariants, in the order in which they are made true:
 *   - a step's inputs are in its domain before it, and whoever filled them is done when the step begins
 *   - memory that a queue of another domain still reads is not reused before a WAIT says that it did
 *   - the last steps are one WAIT for each queue with work in flight */
#include "plan_parts.h"

#include "answer.h"
#include "bind.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* The first graph output that this value is, or GT_NONE. */
static uint32_t output_of(const gt_plan_builder *b, uint32_t value)
{
    if (b->graph->values.data[value]->is_output)
        for (uint32_t k = 0; k < b->graph->outputs.count; k++)
            if (b->graph->outputs.data[k] == value)
                return k;
    return GT_NONE;
}

static gantry_status has_later_reader(gt_plan_builder *b, uint32_t value, bool *out_later)
{
    const gt_use *uses;
    uint32_t count;
    GT_TRY(gt_graph_uses((gt_graph *)b->graph, value, &uses, &count, b->err));
    *out_later = false;
    for (uint32_t k = 0; k < count; k++)
        *out_later |= uses[k].node != GT_NONE && gt_plan_is_later(b, uses[k].node);
    return GANTRY_OK;
}

/* ---- partitions ------------------------------------------------------------------------------ */

/* True when the value is needed only for shapes, which reshape was told. */
static gantry_status feeds_shapes_only(gt_plan_builder *b, const gt_partition *partition, uint32_t value,
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

static gantry_status no_slot(gt_plan_builder *b, uint32_t value, uint32_t *out_slot)
{
    return gt_plan_add_slot(b, (gt_slot){.kind = GT_SLOT_NONE, .value = value}, out_slot);
}

/* Where graph output k is wanted. */
static uint32_t output_domain(const gt_plan_builder *b, uint32_t k)
{
    return b->variant->output_domains[k];
}

/* Where an output of this partition goes when its program writes it. */
gantry_status gt_plan_output_slot(gt_plan_builder *b, uint32_t value, uint32_t domain, uint32_t *out_slot)
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
    GT_TRY(gt_plan_add_slot(b, slot, out_slot));
    gt_plan_place_value(b, *out_slot);
    return GANTRY_OK;
}

/* A part of another slot, in the same format. A view of what later steps may overwrite can't happen: nothing
 * is overwritten. */
static gantry_status part_slot(gt_plan_builder *b, uint32_t value, uint32_t base, size_t offset, size_t bytes,
                               uint32_t *out_slot)
{
    gt_slot slot = b->slots.data[base];
    slot.value = value;
    slot.offset_bytes += offset;
    slot.bytes = bytes;
    GT_TRY(gt_plan_add_slot(b, slot, out_slot));
    b->drafts.data[*out_slot].root = b->drafts.data[base].root;
    return GANTRY_OK;
}

/* An output that is a view of an input has no memory of its own. */
static gantry_status view_slot(gt_plan_builder *b, uint32_t value, uint32_t input_slot, size_t offset,
                               uint32_t *out_slot)
{
    GT_TRY(part_slot(b, value, input_slot, offset, gt_plan_value_bytes(b->plan, value), out_slot));
    gt_plan_place_value(b, *out_slot);
    return GANTRY_OK;
}

/* What later segments read of it is copied once the program that names it has run. */
static gantry_status keep_view(gt_plan_builder *b, uint32_t value, uint32_t slot)
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
    GT_TRY(gt_plan_add_slot(b, carry, &kept));
    return gt_plan_add_transfer(b, value, slot, kept, carry.bytes, false);
}

static gantry_status convert(gt_plan_builder *b, uint32_t value, uint32_t provider, uint32_t domain,
                             gantry_format from, gantry_format to, uint32_t source, uint32_t target)
{
    GT_TRY(gt_plan_make_ready(b, source, domain, GT_QUEUE_COMPUTE));
    gt_plan_use_slot(b, source);
    gt_plan_use_slot(b, target);
    gt_step step = {.kind = GT_STEP_CONVERT,
                    .value = value,
                    .source = source,
                    .target = target,
                    .domain = domain,
                    .provider = provider,
                    .from = from,
                    .to = to,
                    .partition = GT_NONE,
                    .workspace = GT_NO_SLOT,
                    .cause = GT_CAUSE_CONVERSION};
    GT_TRY(gt_plan_add_step(b, step));
    gt_plan_note_write(b, target);
    return GANTRY_OK;
}

static size_t format_bytes(const gt_plan_builder *b, uint32_t value, uint32_t provider,
                           const gantry_format *format)
{
    const gantry_provider *table = b->session->providers[provider].entry->table;
    const gt_plan_shape *shape = &b->plan->shapes[value];
    gantry_shape extents = {shape->rank, shape->dims};
    return format->tag
               ? table->format_bytes(table->self, format, b->graph->values.data[value]->dtype, &extents)
               : gt_plan_value_bytes(b->plan, value);
}

static gantry_status format_too_large(const gt_plan_builder *b, uint32_t value, uint32_t provider,
                                      const gantry_format *format, size_t bytes)
{
    const char *name = b->session->providers[provider].name;
    return gt_provider_wrong(b->err, GANTRY_STAGE_RUN, name, "format_bytes",
                             "provider %s: format_bytes gives %zu bytes for %.200s in its layout %u", name,
                             bytes, b->graph->values.data[value]->name, format->tag);
}

static gantry_status format_slot(gt_plan_builder *b, uint32_t value, uint32_t provider, uint32_t domain,
                                 const gantry_format *format, uint32_t *out_slot)
{
    gt_slot slot = {.kind = GT_SLOT_ARENA,
                    .domain = domain,
                    .value = value,
                    .bytes = format_bytes(b, value, provider, format)};
    if (slot.bytes > GT_MOST_BYTES)
        return format_too_large(b, value, provider, format, slot.bytes);
    return gt_plan_add_slot(b, slot, out_slot);
}

/* The slot of an input that another partition left in the format in which this one wants it, or GT_NO_SLOT.
 */
static uint32_t given_slot(const gt_plan_builder *b, uint32_t index, uint32_t k)
{
    uint32_t value = b->variant->placement->partitions[index].inputs[k];
    return b->formatted && b->variant->programs[index].input_formats[k].tag &&
                   gt_formats_is_given(b->variant, index, k)
               ? b->formatted[value]
               : GT_NO_SLOT;
}

/* Keeps the slot for those who read the format as it is. */
static gantry_status keep_formatted(gt_plan_builder *b, uint32_t value, uint32_t slot)
{
    size_t count = (size_t)b->graph->values.count + 1;
    if (!b->formatted) {
        b->formatted = GT_NEW_ARRAY(b->allocator, uint32_t, count);
        if (!b->formatted)
            return gt_plan_no_memory(b);
        memset(b->formatted, 0xff, count * sizeof *b->formatted);
    }
    b->formatted[value] = slot;
    return GANTRY_OK;
}

/* What passes the host on its way from device to device leaves the first one as a whole, before the host
 * waits for any of it: the second one gets a value while the next leaves. */
static gantry_status send_ahead(gt_plan_builder *b, uint32_t index, uint32_t domain)
{
    const gt_partition *partition = &b->variant->placement->partitions[index];
    uint32_t slot;
    bool shapes_only;
    for (uint32_t k = 0; domain && b->session->domain_count > 2 && k < partition->input_count; k++) {
        GT_TRY(feeds_shapes_only(b, partition, partition->inputs[k], &shapes_only));
        if (!shapes_only && given_slot(b, index, k) == GT_NO_SLOT)
            GT_TRY(gt_plan_source(b, partition->inputs[k], domain, &slot));
    }
    return GANTRY_OK;
}

/* The inputs in the provider's domain, in the default format but where they are given in the right one. */
static gantry_status bring_inputs(gt_plan_builder *b, uint32_t index, uint32_t *slots)
{
    const gt_partition *partition = &b->variant->placement->partitions[index];
    uint32_t domain = b->session->providers[partition->provider].domain;
    GT_TRY(send_ahead(b, index, domain));
    for (uint32_t k = 0; k < partition->input_count; k++) {
        bool shapes_only;
        slots[k] = given_slot(b, index, k);
        if (slots[k] != GT_NO_SLOT)
            continue;
        GT_TRY(feeds_shapes_only(b, partition, partition->inputs[k], &shapes_only));
        GT_TRY(shapes_only ? no_slot(b, partition->inputs[k], &slots[k])
                           : gt_plan_acquire(b, partition->inputs[k], domain, &slots[k]));
    }
    return GANTRY_OK;
}

/* All come first and are converted then: so the queues are ordered once. */
static gantry_status run_inputs(gt_plan_builder *b, uint32_t index, uint32_t *slots)
{
    const gt_partition *partition = &b->variant->placement->partitions[index];
    const gt_program *program = &b->variant->programs[index];
    uint32_t domain = b->session->providers[partition->provider].domain;
    GT_TRY(bring_inputs(b, index, slots));
    for (uint32_t k = 0; k < partition->input_count; k++) {
        uint32_t value = partition->inputs[k], source = slots[k];
        const gantry_format *format = &program->input_formats[k];
        if (!format->tag || b->slots.data[source].kind == GT_SLOT_NONE ||
            given_slot(b, index, k) != GT_NO_SLOT)
            continue;
        gantry_format plain = {b->graph->values.data[value]->dtype, 0, 0};
        GT_TRY(format_slot(b, value, partition->provider, domain, format, &slots[k]));
        GT_TRY(convert(b, value, partition->provider, domain, plain, *format, source, slots[k]));
    }
    return GANTRY_OK;
}

/* Kernels read elements where elements may lie. */
static bool is_at_element(const gantry_format *format, size_t offset_bytes)
{
    uint32_t bits = gantry_dtype_bits(format->dtype);
    return bits < 16 || offset_bytes % (bits / 8) == 0;
}

static gantry_status check_view(gt_plan_builder *b, const gt_partition *partition, const gt_program *program,
                                uint32_t output, const gantry_output_plan *plan, const uint32_t *inputs)
{
    uint32_t base = (uint32_t)plan->view_of_input, value = partition->outputs[output];
    const gantry_format *format = &program->output_formats[output];
    size_t bytes = format_bytes(b, value, partition->provider, format);
    if (base < partition->input_count && program->input_formats[base].tag == format->tag &&
        is_at_element(format, plan->view_offset_bytes) && b->slots.data[inputs[base]].kind != GT_SLOT_NONE &&
        bytes <= b->slots.data[inputs[base]].bytes &&
        plan->view_offset_bytes <= b->slots.data[inputs[base]].bytes - bytes)
        return GANTRY_OK;
    return gt_provider_wrong(b->err, GANTRY_STAGE_RUN, b->session->providers[partition->provider].name,
                             "reshape",
                             "provider %s: reshape says that output %s is a view of its input %u from byte "
                             "%zu on: that is no input, "
                             "has another format, is smaller, or an element would lie across two",
                             b->session->providers[partition->provider].name,
                             b->graph->values.data[value]->name, base, plan->view_offset_bytes);
}

/* One output that the program writes, or that is a view of an input. One in another format than the default
 * is converted after the run. */
static gantry_status run_output(gt_plan_builder *b, uint32_t index, uint32_t k,
                                const gantry_output_plan *plan, const uint32_t *inputs, uint32_t *out_slot)
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
    return gt_plan_output_slot(b, value, domain, out_slot);
}

static gantry_status run_outputs(gt_plan_builder *b, uint32_t index, const gt_shaped_slot *shaped,
                                 const uint32_t *inputs, uint32_t *slots)
{
    for (uint32_t k = 0; k < b->variant->placement->partitions[index].output_count; k++) {
        const gantry_output_plan *plan = shaped->info.output_plans ? &shaped->info.output_plans[k] : NULL;
        GT_TRY(run_output(b, index, k, plan, inputs, &slots[k]));
    }
    return GANTRY_OK;
}

/* What is left to do for an output when its program has run. */
static gantry_status finish_output(gt_plan_builder *b, uint32_t index, uint32_t k,
                                   const gt_shaped_slot *shaped, uint32_t slot)
{
    const gt_partition *partition = &b->variant->placement->partitions[index];
    const gantry_format *format = &b->variant->programs[index].output_formats[k];
    uint32_t value = partition->outputs[k], target = GT_NO_SLOT, domain = b->slots.data[slot].domain;
    gantry_format plain = {b->graph->values.data[value]->dtype, 0, 0};
    if (format->tag) {
        GT_TRY(keep_formatted(b, value, slot));
        if (!gt_formats_needs_default(b->variant, index, k))
            return GANTRY_OK;
        GT_TRY(gt_plan_output_slot(b, value, domain, &target));
        return convert(b, value, partition->provider, domain, *format, plain, slot, target);
    }
    bool view = shaped->info.output_plans && shaped->info.output_plans[k].view_of_input >= 0;
    return view ? keep_view(b, value, slot) : GANTRY_OK;
}

/* Inputs that came on the copy queue, or from a queue that the host reads after. The last that was copied
 * comes first: who has waited for it need not wait for the others. */
static gantry_status make_inputs_ready(gt_plan_builder *b, const gt_partition *partition,
                                       const uint32_t *inputs, uint32_t domain)
{
    for (uint32_t k = partition->input_count; k-- > 0;)
        if (b->slots.data[inputs[k]].kind != GT_SLOT_NONE)
            GT_TRY(gt_plan_make_ready(b, inputs[k], domain, GT_QUEUE_COMPUTE));
    return GANTRY_OK;
}

static void note_outputs(gt_plan_builder *b, const gt_partition *partition, const gt_shaped_slot *shaped,
                         const uint32_t *outputs)
{
    for (uint32_t k = 0; k < partition->output_count; k++)
        if (!shaped->info.output_plans || shaped->info.output_plans[k].view_of_input < 0)
            gt_plan_note_write(b, outputs[k]);
}

/* ---- ahead of time --------------------------------------------------------------------------- */

/* The next partition of the segment that computes where this one does, or GT_NONE; only where copies run
 * beside kernels. */
static uint32_t next_in_domain(const gt_plan_builder *b, uint32_t index)
{
    const gt_partition *partitions = b->variant->placement->partitions;
    uint32_t domain = b->session->providers[partitions[index].provider].domain;
    if (!b->session->domains[domain].copy_queue)
        return GT_NONE;
    for (uint32_t p = index + 1; p < b->segment->first_partition + b->segment->partition_count; p++)
        if (!partitions[p].control && b->session->providers[partitions[p].provider].domain == domain)
            return p;
    return GT_NONE;
}

static gantry_status can_fetch(gt_plan_builder *b, const gt_partition *partition, uint32_t value,
                               bool *out_can)
{
    uint32_t domain = b->session->providers[partition->provider].domain;
    bool shapes_only;
    GT_TRY(feeds_shapes_only(b, partition, value, &shapes_only));
    *out_can = !shapes_only && *gt_plan_where(b, value, domain) == GT_NO_SLOT && gt_plan_is_at_hand(b, value);
    return GANTRY_OK;
}

/* Copies what the next partition reads and nobody has to make, beside the one that was just handed over. It
 * may lie where nothing is that the compute queue does behind the work `before`. */
static gantry_status prefetch(gt_plan_builder *b, uint32_t index, uint32_t before)
{
    uint32_t next = next_in_domain(b, index), slot;
    if (next == GT_NONE)
        return GANTRY_OK;
    b->reader = next;
    const gt_partition *partition = &b->variant->placement->partitions[next];
    uint32_t domain = b->session->providers[partition->provider].domain;
    for (uint32_t k = 0; k < partition->input_count; k++) {
        bool can;
        GT_TRY(can_fetch(b, partition, partition->inputs[k], &can));
        if (can)
            GT_TRY(gt_plan_await_compute(b, domain, before));
        if (can)
            GT_TRY(gt_plan_acquire(b, partition->inputs[k], domain, &slot));
    }
    return GANTRY_OK;
}

static gantry_status add_run(gt_plan_builder *b, uint32_t index, const gt_shaped_slot *shaped)
{
    const gt_partition *partition = &b->variant->placement->partitions[index];
    uint32_t domain = b->session->providers[partition->provider].domain;
    uint32_t *inputs = GT_ARENA_ARRAY(&b->plan->arena, uint32_t, partition->input_count);
    uint32_t *outputs = GT_ARENA_ARRAY(&b->plan->arena, uint32_t, partition->output_count);
    if (!inputs || !outputs)
        return gt_plan_no_memory(b);
    b->reader = index;
    GT_TRY(run_inputs(b, index, inputs));
    GT_TRY(run_outputs(b, index, shaped, inputs, outputs));
    uint32_t workspace = GT_NO_SLOT;
    if (shaped->info.workspace_bytes)
        GT_TRY(gt_plan_add_slot(b,
                                (gt_slot){.kind = GT_SLOT_ARENA,
                                          .domain = domain,
                                          .value = GT_NONE,
                                          .bytes = shaped->info.workspace_bytes},
                                &workspace));
    uint32_t before = b->issued[gt_plan_actor(domain, GT_QUEUE_COMPUTE)];
    GT_TRY(make_inputs_ready(b, partition, inputs, domain));
    for (uint32_t k = 0; k < partition->input_count; k++)
        gt_plan_use_slot(b, inputs[k]);
    for (uint32_t k = 0; k < partition->output_count; k++)
        gt_plan_use_slot(b, outputs[k]);
    if (workspace != GT_NO_SLOT)
        gt_plan_use_slot(b, workspace);
    GT_TRY(gt_plan_add_step(b, (gt_step){.kind = GT_STEP_RUN,
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
    note_outputs(b, partition, shaped, outputs);
    for (uint32_t k = 0; k < partition->output_count; k++)
        GT_TRY(finish_output(b, index, k, shaped, outputs[k]));
    return prefetch(b, index, before);
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* The slot that graph output k is best copied from. The size that a program writes is known only once the
 * value is on the host, that of what a control node makes with it. */
static gantry_status delivery_source(gt_plan_builder *b, uint32_t value, uint32_t wanted,
                                     uint32_t *out_source)
{
    const gt_plan_shape *shape = &b->plan->shapes[value];
    return shape->bounded && !shape->dynamic ? gt_plan_acquire(b, value, 0, out_source)
                                             : gt_plan_source(b, value, wanted, out_source);
}

/* Delivers graph output k, which a step of this plan or none makes. A device copies straight into the
 * caller's buffer. */
static gantry_status deliver(gt_plan_builder *b, uint32_t k)
{
    uint32_t value = b->graph->outputs.data[k], wanted = output_domain(b, k), source, target;
    const gt_plan_shape *shape = &b->plan->shapes[value];
    bool true_size = shape->bounded || shape->dynamic;
    if (true_size && wanted != 0)
        return gt_fail(b->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, NULL,
                       "output %s has a size that depends on data; it can't be bound in %s",
                       b->graph->values.data[value]->name, b->session->domains[wanted].name);
    GT_TRY(delivery_source(b, value, wanted, &source));
    const gt_slot *at = &b->slots.data[source];
    if (at->kind == GT_SLOT_OUTPUT && at->index == k && !at->offset_bytes)
        return GANTRY_OK;
    size_t bytes = gt_plan_value_bytes(b->plan, value);
    gt_slot slot = {.kind = GT_SLOT_OUTPUT, .index = k, .domain = wanted, .value = value, .bytes = bytes};
    bool first = *gt_plan_where(b, value, wanted) == GT_NO_SLOT;
    GT_TRY(gt_plan_add_slot(b, slot, &target));
    if (first)
        *gt_plan_where(b, value, wanted) = target;
    return gt_plan_add_transfer(b, value, source, target, bytes, true_size);
}

static gantry_status deliver_outputs(gt_plan_builder *b)
{
    for (uint32_t k = 0; k < b->graph->outputs.count; k++)
        if (gt_variant_output_segment(b->variant, k) == b->plan->segment)
            GT_TRY(deliver(b, k));
    return GANTRY_OK;
}

/* What the next segments' sizes depend on has to be on the host, and stay. */
static gantry_status fetch_results(gt_plan_builder *b)
{
    b->plan->result_slots = GT_ARENA_ARRAY(&b->plan->arena, uint32_t, b->segment->result_count);
    if (!b->plan->result_slots)
        return gt_plan_no_memory(b);
    for (uint32_t k = 0; k < b->segment->result_count; k++) {
        const gt_result_symbol *result = &b->segment->results[k];
        uint32_t *slot = &b->plan->result_slots[k];
        *slot = GT_NO_SLOT;
        if (!result->element)
            continue;
        b->cause = GT_CAUSE_KNOWN;
        GT_TRY(gt_plan_acquire(b, result->value, 0, slot));
        b->cause = GT_CAUSE_BOUNDARY;
        b->drafts.data[b->drafts.data[*slot].root].last = UINT32_MAX;
    }
    return GANTRY_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static gantry_status build_steps(gt_plan_builder *b)
{
    const gt_shaped_slot *shaped = b->plan->shaped;
    for (uint32_t p = b->segment->first_partition;
         p < b->segment->first_partition + b->segment->partition_count; p++) {
        if (b->variant->placement->partitions[p].control)
            GT_TRY(gt_plan_add_control(b, p));
        else
            GT_TRY(add_run(b, p, shaped++));
    }
    b->reader = GT_NONE;
    GT_TRY(deliver_outputs(b));
    GT_TRY(fetch_results(b));
    GT_TRY(gt_plan_finish(b));
    return gt_plan_layout(b);
}

/* What the plan is, in its own memory. */
static gantry_status keep(gt_plan_builder *b)
{
    gt_plan *plan = b->plan;
    uint32_t *domains = GT_ARENA_ARRAY(&plan->arena, uint32_t, b->events.count + 1);
    plan->slot_count = b->slots.count;
    plan->event_count = b->events.count;
    plan->slots = gt_arena_copy(&plan->arena, b->slots.data, b->slots.count * sizeof *b->slots.data);
    plan->event_domains = domains;
    for (uint32_t k = 0; domains && k < b->events.count; k++)
        domains[k] = b->events.data[k].domain;
    return plan->slots && domains ? gt_plan_keep_steps(b) : gt_plan_no_memory(b);
}

/* Few plans need fewer; more are made room for as they come. */
#define FIRST_SLOTS 16

gantry_status gt_plan_build(gt_plan *plan, const void *const *bind_data, gantry_error *err)
{
    const gt_variant *variant = plan->variant;
    gantry_session *session = variant->session;
    gt_plan_builder b = {.plan = plan,
                         .variant = variant,
                         .graph = variant->graph,
                         .segment = &variant->segments[plan->segment],
                         .session = session,
                         .allocator = session->allocator,
                         .bind_data = bind_data,
                         .err = err};
    size_t cells = (size_t)variant->graph->values.count * session->domain_count;
    b.where = GT_NEW_ARRAY(b.allocator, uint32_t, cells + 1);
    b.home = GT_NEW_ARRAY(b.allocator, uint32_t, (size_t)variant->graph->values.count + 1);
    bool ready = b.where && b.home && gt_vec_reserve(b.allocator, &b.slots, FIRST_SLOTS) &&
                 gt_vec_reserve(b.allocator, &b.drafts, FIRST_SLOTS);
    gantry_status status = ready ? gt_plan_order_create(&b) : gt_plan_no_memory(&b);
    if (status == GANTRY_OK) {
        memset(b.where, 0xff, cells * sizeof *b.where);
        memset(b.home, 0xff, variant->graph->values.count * sizeof *b.home);
        status = build_steps(&b);
    }
    if (status == GANTRY_OK)
        status = keep(&b);
    gt_plan_order_destroy(&b);
    gt_vec_free(b.allocator, &b.slots);
    gt_vec_free(b.allocator, &b.drafts);
    gt_vec_free(b.allocator, &b.steps);
    gt_free(b.allocator, b.where);
    gt_free(b.allocator, b.home);
    gt_free(b.allocator, b.formatted);
    return status;
}
