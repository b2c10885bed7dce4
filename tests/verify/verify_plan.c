/* A second, dumber executor: it runs plans on symbols, and knows of every byte of memory what lies there.
 *
 * - Work of a queue is done for the host when a WAIT says so, and for another queue when an event does; work
 * of one queue stays in order. Before that nobody else may read what it writes, nor write what it reads.
 * - A write puts its value over whatever lay there: a lifetime that is too short shows when somebody reads.
 * - Where the provider says that output w is input v from a byte on, the bytes of w are bytes of v.
 *
 * README.md lists the mistakes that were made in core/plan_build.c by hand to see that it finds them. */
#include "verify_plan_parts.h"

/* ---- copies ---------------------------------------------------------------------------------- */

/* Whether the host knows how large a value really is. */
static bool is_finished(const verifier *v, uint32_t value)
{
    return v->clock[v->unfinished[value]] >= v->unfinished_op[value];
}

/* Only copies to the caller's buffers follow true sizes: all else has room for the bound. */
static bool check_true_size(verifier *v, const gt_step *step, const gt_slot *target)
{
    const gt_plan_shape *shape = &v->plan->shapes[step->value];
    bool open = shape->bounded || shape->dynamic;
    CHECK(open || !step->true_size, "the size of %s is known at bind", verify_name(v, step->value));
    CHECK(!step->true_size || is_finished(v, step->value),
          "%s is copied by its true size, which nobody has reported yet", verify_name(v, step->value));
    CHECK(!open || step->true_size || target->kind != GT_SLOT_OUTPUT,
          "all %zu bytes that %s may have go to a buffer that has room for those it has", step->bytes,
          verify_name(v, step->value));
    CHECK(!shape->dynamic || step->true_size, "the size of %s is not known at bind",
          verify_name(v, step->value));
    return true;
}

static bool check_transfer(verifier *v, const gt_step *step)
{
    CHECK(step->value < v->graph->values.count, "a transfer of value %u", step->value);
    CHECK(step->source < v->plan->slot_count && step->target < v->plan->slot_count, "slots %u and %u",
          step->source, step->target);
    const gt_slot *source = &v->plan->slots[step->source], *target = &v->plan->slots[step->target];
    uint32_t from = source->domain, to = target->domain, actor = verify_actor(step->domain, step->queue);
    bool peers = from && to && from != to;
    size_t bytes = verify_bytes(v, step->value);
    range read, written;
    CHECK(!peers || v->session->domains[to].peers >> from & 1, "a copy from domain %u to %u", from, to);
    CHECK(peers == (step->path == GT_PATH_PEER), "a copy from domain %u to %u on path %d", from, to,
          (int)step->path);
    CHECK(step->domain == (to ? to : from), "a copy between the domains %u and %u on a queue of %u", from, to,
          step->domain);
    CHECK(step->true_size || step->bytes >= bytes, "%zu of the %zu bytes of %s are copied", step->bytes,
          bytes, verify_name(v, step->value));
    if (!verify_slot(v, step->source, step->value, from, bytes, &read) ||
        !verify_slot(v, step->target, step->value, to, bytes, &written) || !check_true_size(v, step, target))
        return false;
    CHECK(step->true_size || (step->bytes <= source->bytes && step->bytes <= target->bytes),
          "%zu bytes are copied from a slot of %zu to one of %zu", step->bytes, source->bytes, target->bytes);
    CHECK(!verify_overlaps(&read, &written), "%s is copied over itself", verify_name(v, step->value));
    CHECK(target->kind != GT_SLOT_OUTPUT ||
              (v->graph->outputs.data[target->index] == step->value && !target->offset_bytes),
          "%s goes to output %u", verify_name(v, step->value), target->index);
    return verify_read(v, &read, step->value, 0, actor) && verify_write(v, &written, step->value, 0, actor);
}

static bool check_convert(verifier *v, const gt_step *step)
{
    CHECK(step->value < v->graph->values.count, "a conversion of value %u", step->value);
    CHECK(step->provider < v->session->provider_count, "provider %u", step->provider);
    uint32_t domain = v->session->providers[step->provider].domain;
    range read, written;
    CHECK(step->domain == domain, "a conversion in domain %u by a provider of %u", step->domain, domain);
    CHECK(!step->from.tag != !step->to.tag, "%s is converted from format %u to %u",
          verify_name(v, step->value), step->from.tag, step->to.tag);
    size_t from_bytes = verify_format_bytes(v, step->value, &step->from, step->provider);
    size_t to_bytes = verify_format_bytes(v, step->value, &step->to, step->provider);
    if (!verify_slot(v, step->source, step->value, domain, from_bytes, &read) ||
        !verify_slot(v, step->target, step->value, domain, to_bytes, &written))
        return false;
    CHECK(!verify_overlaps(&read, &written), "%s is converted in place", verify_name(v, step->value));
    CHECK(v->plan->slots[step->target].kind != GT_SLOT_OUTPUT || !v->plan->shapes[step->value].bounded,
          "%s of a bounded size is converted into the caller's buffer", verify_name(v, step->value));
    uint32_t actor = verify_actor(domain, 0);
    CHECK(step->queue == 0, "a conversion on queue %u", step->queue);
    return verify_read(v, &read, step->value, step->from.tag, actor) &&
           verify_write(v, &written, step->value, step->to.tag, actor);
}

/* ---- programs -------------------------------------------------------------------------------- */

/* The provider gets this value's elements when the segment is bound, and needs no more of it. */
static bool needs_shapes_only(const verifier *v, const gt_partition *partition, uint32_t value)
{
    const gt_value *it = v->graph->values.data[value];
    if (!it->elements)
        return false;
    for (uint32_t n = 0; n < partition->node_count; n++) {
        const gt_node *node = v->graph->nodes.data[partition->nodes[n]];
        for (uint32_t k = 0; k < node->input_count; k++)
            if (node->inputs[k] == value && (!node->op || k >= 32 || !(node->op->shape_operands >> k & 1)))
                return false;
    }
    return true;
}

static bool check_run_inputs(verifier *v, const gt_step *step, const gt_partition *partition,
                             const gt_program *program, range *ranges)
{
    for (uint32_t k = 0; k < partition->input_count; k++) {
        uint32_t value = partition->inputs[k];
        CHECK(step->inputs[k] < v->plan->slot_count, "input %u is slot %u", k, step->inputs[k]);
        ranges[k] = (range){GT_NONE, 0, 0, 0};
        if (v->plan->slots[step->inputs[k]].kind == GT_SLOT_NONE) {
            CHECK(needs_shapes_only(v, partition, value), "%s is needed as a tensor", verify_name(v, value));
            continue;
        }
        const gantry_format *format = &program->input_formats[k];
        size_t bytes = verify_format_bytes(v, value, format, step->provider);
        if (!verify_slot(v, step->inputs[k], value, step->domain, bytes, &ranges[k]) ||
            !verify_read(v, &ranges[k], value, format->tag, verify_actor(step->domain, 0)))
            return false;
    }
    return true;
}

/* An output that the provider calls a view has to be just those bytes of the input's slot. */
static bool check_view(verifier *v, const gt_step *step, uint32_t output, const gantry_output_plan *plan,
                       uint32_t tag, const range *inputs)
{
    uint32_t input = (uint32_t)plan->view_of_input, value = v->plan->slots[step->outputs[output]].value;
    CHECK(input < step->input_count, "a view of input %u", input);
    const gt_slot *base = &v->plan->slots[step->inputs[input]],
                  *slot = &v->plan->slots[step->outputs[output]];
    CHECK(inputs[input].space != GT_NONE, "%s is a view of what is no tensor", verify_name(v, value));
    CHECK(slot->kind == base->kind && slot->domain == base->domain && slot->index == base->index &&
              slot->data == base->data && slot->offset_bytes == base->offset_bytes + plan->view_offset_bytes,
          "%s is a view of %s from byte %zu on; its slot lies elsewhere", verify_name(v, value),
          verify_name(v, base->value), plan->view_offset_bytes);
    uint32_t root = base->value;
    size_t at;
    verify_resolve_alias(v, &root, tag, &at);
    v->aliases[value] = (alias){true, root, tag, at + plan->view_offset_bytes};
    return true;
}

static bool may_share(const gantry_output_plan *plan, uint32_t input)
{
    return plan && (plan->view_of_input == (int32_t)input || plan->overwrite_input == (int32_t)input);
}

/* What is written in one step must not touch what else the step uses. */
static bool check_apart(verifier *v, const gt_step *step, const gantry_output_plan *plans,
                        const range *inputs, const range *outputs, const range *workspace)
{
    for (uint32_t o = 0; o < step->output_count; o++) {
        if (plans && plans[o].view_of_input >= 0)
            continue;
        for (uint32_t k = 0; k < step->input_count; k++)
            CHECK(may_share(plans ? &plans[o] : NULL, k) || !verify_overlaps(&outputs[o], &inputs[k]),
                  "output %u is written over input %u", o, k);
        for (uint32_t k = 0; k < step->output_count; k++)
            CHECK(k == o || !verify_overlaps(&outputs[o], &outputs[k]), "the outputs %u and %u overlap", o,
                  k);
        CHECK(!workspace || !verify_overlaps(&outputs[o], workspace), "output %u lies in the workspace", o);
    }
    for (uint32_t k = 0; workspace && k < step->input_count; k++)
        CHECK(!verify_overlaps(&inputs[k], workspace), "input %u lies in the workspace", k);
    return true;
}

static bool take_outputs(verifier *v, const gt_step *step, const gt_partition *partition,
                         const gt_program *program, const gantry_output_plan *plans, const range *inputs,
                         range *ranges)
{
    for (uint32_t k = 0; k < partition->output_count; k++) {
        uint32_t value = partition->outputs[k], tag = program->output_formats[k].tag;
        size_t bytes = verify_format_bytes(v, value, &program->output_formats[k], step->provider);
        bool view = plans && plans[k].view_of_input >= 0;
        CHECK(step->outputs[k] < v->plan->slot_count, "output %u is slot %u", k, step->outputs[k]);
        v->is_view[step->outputs[k]] |= view;
        if (!verify_slot(v, step->outputs[k], value, step->domain, bytes, &ranges[k]) ||
            (view && !check_view(v, step, k, &plans[k], tag, inputs)))
            return false;
        CHECK(view || v->plan->slots[step->outputs[k]].kind != GT_SLOT_OUTPUT ||
                  !v->plan->shapes[value].bounded,
              "%s of a bounded size is written into the caller's buffer", verify_name(v, value));
        CHECK(view || v->plan->slots[step->outputs[k]].kind != GT_SLOT_OUTPUT ||
                  v->graph->outputs.data[v->plan->slots[step->outputs[k]].index] == value,
              "%s is written to output %u", verify_name(v, value), v->plan->slots[step->outputs[k]].index);
    }
    return true;
}

static bool write_outputs(verifier *v, const gt_step *step, const gt_partition *partition,
                          const gt_program *program, const gantry_output_plan *plans, const range *ranges)
{
    for (uint32_t k = 0; k < partition->output_count; k++) {
        uint32_t value = partition->outputs[k], tag = program->output_formats[k].tag;
        bool view = plans && plans[k].view_of_input >= 0;
        uint32_t actor = verify_actor(step->domain, 0);
        v->unfinished[value] = actor;
        v->unfinished_op[value] = v->issued[actor];
        if (view ? !verify_read(v, &ranges[k], value, tag, actor)
                 : !verify_write(v, &ranges[k], value, tag, actor))
            return false;
    }
    return true;
}

static bool check_partition(verifier *v, const gt_step *step, bool control)
{
    uint32_t first = v->segment->first_partition, index = step->partition;
    CHECK(index >= first && index - first < v->segment->partition_count, "partition %u is of another segment",
          index);
    const gt_partition *partition = &v->variant->placement->partitions[index];
    CHECK(partition->control == control, "partition %u as a step of the other kind", index);
    CHECK(!v->done[index], "partition %u runs twice", index);
    CHECK(step->provider == partition->provider, "partition %u by provider %u", index, step->provider);
    uint32_t domain = control ? 0 : v->session->providers[step->provider].domain;
    CHECK(step->domain == domain, "partition %u runs in domain %u", index, step->domain);
    v->done[index] = 1;
    return true;
}

static bool run_ranges(verifier *v, const gt_step *step, range *inputs, range *outputs)
{
    const gt_partition *partition = &v->variant->placement->partitions[step->partition];
    const gt_program *program = &v->variant->programs[step->partition];
    const gantry_shaped_info *info = &v->plan->shaped[step->context].info;
    range workspace = {GT_NONE, 0, 0, 0};
    bool scratch = step->workspace != GT_NO_SLOT;
    CHECK(scratch || !info->workspace_bytes, "no workspace; the program asked for %zu bytes",
          info->workspace_bytes);
    if (!check_run_inputs(v, step, partition, program, inputs) ||
        !take_outputs(v, step, partition, program, info->output_plans, inputs, outputs) ||
        (scratch &&
         !verify_slot(v, step->workspace, GT_NONE, step->domain, info->workspace_bytes, &workspace)) ||
        !check_apart(v, step, info->output_plans, inputs, outputs, scratch ? &workspace : NULL))
        return false;
    if (scratch && !verify_write(v, &workspace, GT_NONE, 0, verify_actor(step->domain, 0)))
        return false;
    return write_outputs(v, step, partition, program, info->output_plans, outputs);
}

static bool check_run(verifier *v, const gt_step *step)
{
    if (!check_partition(v, step, false))
        return false;
    const gt_partition *partition = &v->variant->placement->partitions[step->partition];
    CHECK(step->context < v->plan->shaped_count &&
              v->plan->shaped[step->context].partition == step->partition,
          "partition %u with the context %u", step->partition, step->context);
    CHECK(step->input_count == partition->input_count && step->output_count == partition->output_count,
          "partition %u with %u inputs and %u outputs", step->partition, step->input_count,
          step->output_count);
    range *inputs = verify_room(step->input_count, sizeof *inputs),
          *outputs = verify_room(step->output_count, sizeof *outputs);
    bool right = run_ranges(v, step, inputs, outputs);
    free(inputs);
    free(outputs);
    return right;
}

/* ---- If and Loop ----------------------------------------------------------------------------- */

static bool read_on_host(verifier *v, uint32_t slot, uint32_t value)
{
    range r;
    if (value == GT_NONE) {
        CHECK(slot == GT_NO_SLOT, "slot %u for an operand that is left out", slot);
        return true;
    }
    return verify_slot(v, slot, value, 0, verify_bytes(v, value), &r) && verify_read(v, &r, value, 0, 0);
}

/* An operand or capture where the bodies have it. Where any queue may read it there, the host has to know of
 * it. */
static bool read_in(verifier *v, uint32_t slot, uint32_t value, uint32_t domain)
{
    range r;
    uint32_t reader = verify_one_queue_each(v) ? verify_actor(domain, 0) : 0;
    return verify_slot(v, slot, value, domain, verify_bytes(v, value), &r) &&
           verify_read(v, &r, value, 0, reader);
}

static bool check_control_inputs(verifier *v, const gt_step *step, const gt_node *node,
                                 const gt_program *program)
{
    bool loop = strcmp(node->op_type, "Loop") == 0;
    uint32_t at = 0;
    for (uint32_t k = 0; k < node->input_count; k++, at++) {
        CHECK(at < step->input_count, "%s has %u inputs", node->name, step->input_count);
        if (loop && k >= 2 && node->inputs[k] != GT_NONE
                ? !read_in(v, step->inputs[at], node->inputs[k], program->bodies[0]->input_domains[k])
                : !read_on_host(v, step->inputs[at], node->inputs[k]))
            return false;
    }
    for (int b = 0; b < 2; b++) {
        const gt_variant *body = program->bodies[b];
        for (uint32_t k = 0; body && k < body->capture_count; k++, at++) {
            CHECK(at < step->input_count, "%s has %u inputs", node->name, step->input_count);
            if (!read_in(v, step->inputs[at], body->graph->values.data[body->captures[k]]->captured,
                         body->capture_domains[k]))
                return false;
        }
    }
    CHECK(at == step->input_count, "%s has %u inputs for %u operands", node->name, step->input_count, at);
    return true;
}

/* What goes in and out of a body: branches agree, a loop's carried values go around, and the host has what it
 * decides with. */
static bool check_edges(verifier *v, const gt_node *node, const gt_program *program)
{
    const gt_variant *body = program->bodies[0];
    bool loop = strcmp(node->op_type, "Loop") == 0;
    for (uint32_t k = 0; loop && k < body->graph->inputs.count; k++) {
        uint32_t in = body->input_domains[k], out = body->output_domains[k ? k - 1 : 0];
        CHECK(k < 2 ? in == 0 && out == 0 : in == out,
              "input %u of the body of %s is in domain %u, output %u", k, node->name, in, out);
    }
    for (uint32_t k = 0; !loop && k < node->output_count; k++)
        CHECK(body->output_domains[k] == program->bodies[1]->output_domains[k],
              "output %u of %s lies where the branch has it", k, node->name);
    return true;
}

/* One output; what lies on a device is written by the domain's first queue. */
static bool check_control_output(verifier *v, const gt_step *step, const gt_node *node, uint32_t k,
                                 uint32_t domain)
{
    uint32_t value = node->outputs[k];
    range r;
    if (!verify_slot(v, step->outputs[k], value, domain, verify_bytes(v, value), &r))
        return false;
    const gt_slot *slot = &v->plan->slots[step->outputs[k]];
    CHECK(!v->plan->shapes[value].dynamic || (slot->kind == GT_SLOT_CARRY && slot->index == value),
          "%s has an unknown size, and no memory that grows", verify_name(v, value));
    CHECK(slot->kind != GT_SLOT_OUTPUT || !v->plan->shapes[value].bounded,
          "%s of a bounded size is written into the caller's buffer", verify_name(v, value));
    for (uint32_t m = 0; m < step->input_count; m++) {
        const gt_slot *other = step->inputs[m] == GT_NO_SLOT ? NULL : &v->plan->slots[step->inputs[m]];
        range read = other ? (range){verify_space(v, other), other->offset_bytes,
                                     other->offset_bytes + verify_bytes(v, other->value), 0}
                           : (range){GT_NONE, 0, 0, 0};
        CHECK(!verify_overlaps(&r, &read), "output %u of %s is written over its input %u", k, node->name, m);
    }
    /* Its memory grows to whatever size it has. */
    r.end = v->plan->shapes[value].dynamic ? SIZE_MAX : r.end;
    /* A branch may write it on either queue. */
    if (domain && v->session->domains[domain].copy_queue && strcmp(node->op_type, "If") == 0 &&
        !verify_is_free(v, &r, verify_actor(domain, 1), true, verify_name(v, value)))
        return false;
    return verify_write(v, &r, value, 0, verify_actor(domain, 0));
}

static bool check_control(verifier *v, const gt_step *step)
{
    if (!check_partition(v, step, true))
        return false;
    const gt_node *node = v->graph->nodes.data[v->variant->placement->partitions[step->partition].nodes[0]];
    const gt_program *program = &v->variant->programs[step->partition];
    bool loop = strcmp(node->op_type, "Loop") == 0;
    if (!check_edges(v, node, program) || !check_control_inputs(v, step, node, program))
        return false;
    CHECK(step->output_count == node->output_count, "%s has %u outputs", node->name, step->output_count);
    for (uint32_t d = 1; d < v->session->domain_count; d++)
        verify_leave_work(v, d);
    for (uint32_t k = 0; k < node->output_count; k++) {
        CHECK((node->outputs[k] == GT_NONE) == (step->outputs[k] == GT_NO_SLOT), "output %u of %s", k,
              node->name);
        if (node->outputs[k] != GT_NONE &&
            !check_control_output(v, step, node, k, program->bodies[0]->output_domains[k + loop]))
            return false;
    }
    return true;
}

/* ---- a plan ---------------------------------------------------------------------------------- */

static bool check_step(verifier *v, const gt_step *step)
{
    switch (step->kind) {
    case GT_STEP_TRANSFER:
        return verify_begin(v, step) && check_transfer(v, step);
    case GT_STEP_CONVERT:
        return verify_begin(v, step) && check_convert(v, step);
    case GT_STEP_RUN:
        CHECK(step->queue == 0, "a program on queue %u", step->queue);
        return verify_begin(v, step) && check_run(v, step);
    case GT_STEP_WAIT:
        return verify_wait(v, step);
    case GT_STEP_RECORD:
        return verify_record(v, step);
    case GT_STEP_ORDER:
        return verify_order(v, step);
    case GT_STEP_CONTROL:
        return check_control(v, step);
    }
    return verify_wrong(v, "a step of kind %d", (int)step->kind);
}

/* The segment whose plan delivers an output: the one that makes it, else the last. */
static uint32_t segment_of_output(const verifier *v, uint32_t output)
{
    uint32_t producer = v->graph->values.data[v->graph->outputs.data[output]]->producer;
    uint32_t partition = producer == GT_NONE ? GT_NONE : v->variant->placement->partition_of_node[producer];
    uint32_t segment = v->variant->segment_count - 1;
    for (uint32_t s = 0; partition != GT_NONE && s < v->variant->segment_count; s++)
        if (partition - v->variant->segments[s].first_partition < v->variant->segments[s].partition_count)
            segment = s;
    return segment;
}

static bool check_outputs(verifier *v)
{
    for (uint32_t k = 0; k < v->graph->outputs.count; k++) {
        uint32_t value = v->graph->outputs.data[k], owner = segment_of_output(v, k);
        CHECK(v->delivered[k] == (owner <= v->number), "output %u (%s) was delivered %u times by now", k,
              verify_name(v, value), v->delivered[k]);
        if (owner != v->number)
            continue;
        gt_slot slot = {.kind = GT_SLOT_OUTPUT, .index = k, .value = value};
        range r = {verify_space(v, &slot), 0, verify_bytes(v, value), verify_outside_domain(v, &slot)};
        /* A body's reader is whoever reads on in the next iteration, on the queue that made it. */
        uint32_t reader = v->variant->body && verify_one_queue_each(v) ? verify_actor(r.domain, 0) : 0;
        if (!verify_read(v, &r, value, 0, reader))
            return false;
    }
    return true;
}

static bool check_results(verifier *v)
{
    for (uint32_t k = 0; k < v->segment->result_count; k++) {
        const gt_result_symbol *result = &v->segment->results[k];
        if (result->element && !read_on_host(v, v->plan->result_slots[k], result->value))
            return false;
    }
    return true;
}

/* Arenas are free for anybody when the plan is over; carried values keep what they have room for. */
static void leave_plan(verifier *v)
{
    for (uint32_t k = 0; k < v->spaces.count; k++) {
        space *s = &v->spaces.data[k];
        if (s->kind == GT_SLOT_ARENA)
            s->extents.count = 0;
        if (s->kind != GT_SLOT_CARRY || v->plan->shapes[s->index].dynamic)
            continue;
        for (uint32_t m = 0; m < v->plan->slot_count; m++) {
            const gt_slot *slot = &v->plan->slots[m];
            if (slot->kind == GT_SLOT_CARRY && slot->index == s->index && slot->bytes > s->capacity)
                s->capacity = slot->bytes;
        }
    }
}

static bool check_plan(verifier *v)
{
    v->is_view = verify_room(v->plan->slot_count, 1);
    v->marks = verify_room((size_t)v->plan->event_count * v->actors, sizeof *v->marks);
    bool right = true;
    for (v->step = 0; right && v->step < v->plan->step_count; v->step++)
        right = check_step(v, &v->plan->steps[v->step]);
    free(v->is_view);
    v->is_view = verify_room(v->plan->slot_count, 1);
    right = right && verify_all_done(v);
    for (uint32_t p = 0; right && p < v->segment->partition_count; p++)
        right = v->done[v->segment->first_partition + p] ||
                verify_wrong(v, "partition %u never runs", v->segment->first_partition + p);
    memset(v->is_view, 1, v->plan->slot_count);
    right = right && check_outputs(v) && check_results(v);
    leave_plan(v);
    free(v->is_view);
    free(v->marks);
    return right;
}

bool verify_plans(const gt_variant *variant, const gt_plan *const *plans, char *out_text)
{
    uint32_t values = variant->graph->values.count;
    verifier it = {.variant = variant,
                   .session = variant->session,
                   .graph = variant->graph,
                   .text = out_text},
             *v = &it;
    gt_allocator_init(&v->allocator, NULL);
    v->aliases = verify_room(values, sizeof *v->aliases);
    v->done = verify_room(variant->placement->partition_count, 1);
    v->actors = 1 + 2 * (v->session->domain_count - 1);
    v->issued = verify_room(v->actors, sizeof *v->issued);
    v->asked = verify_room(v->actors, sizeof *v->asked);
    v->clock = verify_room((size_t)v->actors * v->actors, sizeof *v->clock);
    v->unfinished_op = verify_room(values, sizeof *v->unfinished_op);
    v->unfinished = verify_room(values, sizeof *v->unfinished);
    v->delivered = verify_room(v->graph->outputs.count, sizeof *v->delivered);
    v->home = verify_room(values, sizeof *v->home);
    bool right = true;
    for (uint32_t s = 0; right && s < variant->segment_count; s++) {
        v->plan = plans[s];
        v->segment = &variant->segments[s];
        v->number = s;
        right = check_plan(v);
    }
    for (uint32_t k = 0; k < v->spaces.count; k++)
        gt_vec_free(&v->allocator, &v->spaces.data[k].extents);
    gt_vec_free(&v->allocator, &v->spaces);
    gt_vec_free(&v->allocator, &v->flights);
    free(v->aliases);
    free(v->done);
    free(v->issued);
    free(v->asked);
    free(v->clock);
    free(v->unfinished_op);
    free(v->unfinished);
    free(v->delivered);
    free(v->home);
    return right;
}
