/* Where values are while a plan is built, and how they come to the domain that reads them: straight from the
 * host or a peer, else through the host. */
#include "plan_parts.h"

gantry_status gt_plan_add_slot(gt_plan_builder *b, gt_slot slot, uint32_t *out_slot)
{
    uint32_t index = b->slots.count, step = b->steps.count;
    if (!gt_vec_push(b->allocator, &b->slots, slot) ||
        !gt_vec_push(b->allocator, &b->drafts, ((gt_draft_slot){index, step, step, GT_ACTOR_HOST, 0})))
        return gt_plan_no_memory(b);
    *out_slot = index;
    return GANTRY_OK;
}

void gt_plan_place_value(gt_plan_builder *b, uint32_t slot)
{
    const gt_slot *s = &b->slots.data[slot];
    *gt_plan_where(b, s->value, s->domain) = slot;
    if (b->home[s->value] == GT_NONE)
        b->home[s->value] = s->domain;
}

bool gt_plan_is_later(const gt_plan_builder *b, uint32_t node)
{
    uint32_t partition = b->variant->placement->partition_of_node[node];
    return partition != GT_NONE && partition >= b->segment->first_partition + b->segment->partition_count;
}

bool gt_plan_made_here(const gt_plan_builder *b, uint32_t node)
{
    uint32_t partition = b->variant->placement->partition_of_node[node];
    return partition != GT_NONE && partition >= b->segment->first_partition && !gt_plan_is_later(b, node);
}

/* The frame input for a captured value: in that domain when there is one, else any; GT_NONE: no capture. */
static uint32_t capture_of(const gt_plan_builder *b, uint32_t value, uint32_t domain)
{
    uint32_t found = GT_NONE;
    for (uint32_t k = 0; k < b->variant->capture_count; k++)
        if (b->variant->captures[k] == value &&
            (found == GT_NONE || b->variant->capture_domains[k] == domain))
            found = k;
    return found;
}

/* The frame has the captured value in this very domain. */
static bool is_given(const gt_plan_builder *b, uint32_t value, uint32_t domain)
{
    uint32_t capture = capture_of(b, value, domain);
    return capture != GT_NONE && b->variant->capture_domains[capture] == domain;
}

gantry_status gt_plan_outside_slot(gt_plan_builder *b, uint32_t value, uint32_t domain, uint32_t *out_slot)
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
        slot.domain = b->variant->input_domains[v->input_index];
    } else if (v->captured != GT_NONE && capture_of(b, value, domain) != GT_NONE) {
        uint32_t capture = capture_of(b, value, domain);
        slot.kind = GT_SLOT_INPUT;
        slot.index = b->graph->inputs.count + capture;
        slot.domain = b->variant->capture_domains[capture];
    } else if (b->bind_data[value] &&
               (v->producer == GT_NONE || b->graph->nodes.data[v->producer]->at_bind)) {
        slot.kind = GT_SLOT_BIND;
        slot.data = gt_arena_copy(&b->plan->arena, b->bind_data[value], slot.bytes);
        if (!slot.data)
            return gt_plan_no_memory(b);
    } else if (v->producer != GT_NONE && !gt_plan_made_here(b, v->producer)) {
        slot.kind = GT_SLOT_CARRY;
        slot.index = value;
        slot.domain = gt_variant_value_domain(b->variant, value);
    } else {
        return gt_fail(b->err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, NULL,
                       "value %s is read before any step makes it", v->name);
    }
    GT_TRY(gt_plan_add_slot(b, slot, out_slot));
    gt_plan_place_value(b, *out_slot);
    return GANTRY_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Which queue copies: that of the target where it can, else the source's. What comes into a device or leaves
 * it for the host may have a queue of its own. */
static void choose_queue(const gt_plan_builder *b, uint32_t from, uint32_t to, gt_step *step)
{
    step->domain = to ? to : from;
    step->queue =
        from != to && b->session->domains[step->domain].copy_queue ? GT_QUEUE_COPY : GT_QUEUE_COMPUTE;
}

static gt_cause cause_of(const gt_plan_builder *b, const gt_slot *source, const gt_slot *target)
{
    bool body = b->variant->body;
    const gt_value *value = b->graph->values.data[source->value];
    if (b->cause != GT_CAUSE_BOUNDARY)
        return b->cause;
    if (target->kind == GT_SLOT_OUTPUT)
        return body ? GT_CAUSE_CONTROL : GT_CAUSE_OUTPUT;
    if (source->kind == GT_SLOT_CONSTANT || source->kind == GT_SLOT_BIND)
        return GT_CAUSE_KNOWN;
    if (value->input_index >= 0 || value->captured != GT_NONE)
        return body ? GT_CAUSE_CONTROL : GT_CAUSE_INPUT;
    return GT_CAUSE_BOUNDARY;
}

gantry_status gt_plan_add_transfer(gt_plan_builder *b, uint32_t value, uint32_t source, uint32_t target,
                                   size_t bytes, bool true_size)
{
    uint32_t from = b->slots.data[source].domain, to = b->slots.data[target].domain;
    gt_step step = {.kind = GT_STEP_TRANSFER,
                    .value = value,
                    .source = source,
                    .target = target,
                    .bytes = bytes,
                    .true_size = true_size,
                    .cause = cause_of(b, &b->slots.data[source], &b->slots.data[target]),
                    .path = from && to && from != to ? GT_PATH_PEER : b->path,
                    .partition = b->reader,
                    .workspace = GT_NO_SLOT};
    choose_queue(b, from, to, &step);
    GT_TRY(gt_plan_make_ready(b, source, step.domain, step.queue));
    if (step.queue == GT_QUEUE_COPY && to && b->slots.data[target].kind == GT_SLOT_ARENA) {
        gt_draft_slot *root = gt_plan_root(b, target);
        uint32_t since = gt_plan_unordered_since(b, step.domain, step.queue);
        root->first = since < root->first ? since : root->first;
    }
    gt_plan_use_slot(b, source);
    gt_plan_use_slot(b, target);
    GT_TRY(gt_plan_add_step(b, step));
    gt_plan_note_write(b, target);
    return from != step.domain || step.queue == GT_QUEUE_COPY ? gt_plan_note_foreign_read(b, source)
                                                              : GANTRY_OK;
}

static bool are_peers(const gt_plan_builder *b, uint32_t from, uint32_t to)
{
    return b->session->domains[to].peers >> from & 1;
}

/* Whether something on the host reads the value, which then is no mere stop on its way. */
static bool host_wants(const gt_plan_builder *b, uint32_t value)
{
    const gt_placement *placement = b->variant->placement;
    for (uint32_t k = 0; k < placement->boundary_count; k++)
        if (placement->boundaries[k].value == value && placement->boundaries[k].target_domain == 0)
            return true;
    return false;
}

static gantry_status stage(gt_plan_builder *b, uint32_t value, uint32_t *out_slot)
{
    gt_cause cause = b->cause;
    if (!host_wants(b, value)) {
        b->cause = GT_CAUSE_STAGING;
        b->path = GT_PATH_STAGED;
    }
    gantry_status status = gt_plan_acquire(b, value, 0, out_slot);
    b->cause = cause;
    b->path = GT_PATH_DIRECT;
    return status;
}

gantry_status gt_plan_source(gt_plan_builder *b, uint32_t value, uint32_t domain, uint32_t *out_slot)
{
    uint32_t home = b->home[value];
    *out_slot = *gt_plan_where(b, value, domain);
    if (*out_slot == GT_NO_SLOT && is_given(b, value, domain))
        return gt_plan_outside_slot(b, value, domain, out_slot);
    if (*out_slot == GT_NO_SLOT && home != GT_NONE && home && are_peers(b, home, domain))
        *out_slot = *gt_plan_where(b, value, home);
    for (uint32_t d = 0; d < b->session->domain_count && *out_slot == GT_NO_SLOT; d++)
        *out_slot = *gt_plan_where(b, value, d);
    if (*out_slot == GT_NO_SLOT)
        GT_TRY(gt_plan_outside_slot(b, value, domain, out_slot));
    uint32_t from = b->slots.data[*out_slot].domain;
    return from && domain && from != domain && !are_peers(b, from, domain) ? stage(b, value, out_slot)
                                                                           : GANTRY_OK;
}

gantry_status gt_plan_acquire(gt_plan_builder *b, uint32_t value, uint32_t domain, uint32_t *out_slot)
{
    uint32_t source;
    GT_TRY(gt_plan_source(b, value, domain, &source));
    *out_slot = source;
    if (b->slots.data[source].domain == domain)
        return GANTRY_OK;
    bool staged = b->home[value] && b->slots.data[source].domain == 0 && !host_wants(b, value);
    size_t bytes =
        b->plan->shapes[value].dims ? gt_plan_value_bytes(b->plan, value) : b->slots.data[source].bytes;
    gt_slot slot = {.kind = GT_SLOT_ARENA, .domain = domain, .value = value, .bytes = bytes};
    GT_TRY(gt_plan_add_slot(b, slot, out_slot));
    gt_plan_place_value(b, *out_slot);
    gt_path path = b->path;
    b->path = staged ? GT_PATH_STAGED : path;
    gantry_status status = gt_plan_add_transfer(b, value, source, *out_slot, bytes, false);
    b->path = path;
    return status;
}

bool gt_plan_is_at_hand(gt_plan_builder *b, uint32_t value)
{
    const gt_value *v = b->graph->values.data[value];
    uint32_t slot = *gt_plan_where(b, value, 0);
    if (b->home[value] == GT_NONE)
        return v->producer == GT_NONE || !gt_plan_made_here(b, v->producer);
    if (slot == GT_NO_SLOT)
        return false;
    gt_draft_slot root = *gt_plan_root(b, slot);
    return root.writer == GT_ACTOR_HOST || b->knows[root.writer] >= root.write_op;
}
