/* If and Loop as the host runs them: the bodies are frames of their own; carried values swap buffers, scan
 * outputs pile up in one that grows, each in the domain where it is at home. Only what the host decides with
 * is on the host. */
#include "run.h"

/* A value on its way through a loop. */
typedef struct carried {
    uint32_t domain;
    gt_block block; /* what the last iteration made; empty before the first */
    gantry_buffer at;
    uint32_t pinned; /* on the host: the device that pinned it */
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
    size_t bytes;
} carried;

typedef struct scan {
    uint32_t domain;
    gt_block block;
    size_t used;
    uint32_t rank; /* of one element */
    int64_t dims[GANTRY_MAX_RANK];
} scan;

struct gt_control {
    gt_frame *bodies[2];
    const gt_variant *mapped[2]; /* the leaf that capture_map belongs to */
    uint32_t *capture_map[2];    /* leaf capture -> capture of the body's entry */
    int64_t iteration;
    uint8_t condition;
    uint32_t carried_count, scan_count;
    carried *carried;
    scan *scans;
    uint32_t output_count;
    gt_control_copies *copies; /* by output of the node */
};

void gt_control_destroy(gantry_session *session, struct gt_control **inout_control)
{
    struct gt_control *control = *inout_control;
    if (!control)
        return;
    for (int k = 0; k < 2; k++) {
        gt_frame_destroy(&control->bodies[k]);
        gt_free(session->allocator, control->capture_map[k]);
    }
    for (uint32_t k = 0; control->carried && k < control->carried_count; k++)
        gt_block_free(session, control->carried[k].domain, &control->carried[k].block);
    for (uint32_t k = 0; control->scans && k < control->scan_count; k++)
        gt_block_free(session, control->scans[k].domain, &control->scans[k].block);
    gt_free(session->allocator, control->carried);
    gt_free(session->allocator, control->scans);
    gt_free(session->allocator, control->copies);
    gt_free(session->allocator, control);
    *inout_control = NULL;
}

uint32_t gt_control_frames(const struct gt_control *control, const gt_frame *out_frames[2])
{
    uint32_t count = 0;
    for (int k = 0; control && k < 2; k++)
        if (control->bodies[k])
            out_frames[count++] = control->bodies[k];
    return count;
}

const gt_control_copies *gt_control_copies_of(const struct gt_control *control, uint32_t *out_count)
{
    *out_count = control ? control->output_count : 0;
    return control ? control->copies : NULL;
}

/* Bodies that have other edges than the node are found out when it runs. */
static void find_homes(struct gt_control *control, const gt_variant *body)
{
    uint32_t count = body ? body->graph->outputs.count : 0;
    for (uint32_t k = 0; k < control->carried_count && 1 + k < count; k++)
        control->carried[k].domain = body->output_domains[1 + k];
    for (uint32_t k = 0; k < control->scan_count && 1 + control->carried_count + k < count; k++)
        control->scans[k].domain = body->output_domains[1 + control->carried_count + k];
}

static gantry_status create(gt_frame *frame, const gt_program *program, const gt_node *node,
                            struct gt_control **out_control, gantry_error *err)
{
    gantry_session *session = frame->run->session;
    struct gt_control *control = GT_NEW(session->allocator, struct gt_control);
    if (!control)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    *out_control = control;
    for (int k = 0; k < 2; k++)
        if (program->bodies[k])
            GT_TRY(gt_frame_create(frame->run, program->bodies[k], &control->bodies[k], err));
    control->output_count = node->output_count;
    control->copies = GT_NEW_ARRAY(session->allocator, gt_control_copies, node->output_count + 1);
    if (!control->copies)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    if (strcmp(node->op_type, "Loop") == 0) {
        control->carried_count = node->input_count > 2 ? node->input_count - 2 : 0;
        control->scan_count =
            node->output_count > control->carried_count ? node->output_count - control->carried_count : 0;
        control->carried = GT_NEW_ARRAY(session->allocator, struct carried, control->carried_count + 1);
        control->scans = GT_NEW_ARRAY(session->allocator, struct scan, control->scan_count + 1);
        if (!control->carried || !control->scans)
            return gt_out_of_memory(err, GANTRY_STAGE_RUN);
        find_homes(control, program->bodies[0]);
    }
    return GANTRY_OK;
}

static void *host_pointer(gantry_buffer buffer)
{
    return (char *)buffer.handle + buffer.offset_bytes;
}

static void count_copy(struct gt_control *control, uint64_t run_number, uint32_t output, uint32_t domain,
                       size_t bytes)
{
    gt_control_copies *copies = &control->copies[output];
    if (copies->run_number != run_number)
        *copies = (gt_control_copies){
            .domain = domain, .run_number = run_number, .total_count = copies->total_count};
    copies->count++;
    copies->total_count++;
    copies->bytes += bytes;
}

/* Copies inside a domain, for an output of the node; on a device behind all that its queue was given. */
static gantry_status copy_inside(gantry_run *run, struct gt_control *control, uint32_t output,
                                 uint32_t domain, gantry_buffer target, gantry_buffer source, size_t bytes,
                                 gantry_error *err)
{
    if (bytes == 0)
        return GANTRY_OK;
    if (output < control->output_count)
        count_copy(control, run->number, output, domain, bytes);
    if (domain == 0) {
        memmove(host_pointer(target), host_pointer(source), bytes);
        return GANTRY_OK;
    }
    const gantry_domain *table = run->session->domains[domain].entry->table;
    return table->copy(table->self, gt_run_queue(run, domain, GT_QUEUE_COMPUTE), GANTRY_COPY_INSIDE, target,
                       source, bytes, err);
}

/* ---- entering a body ------------------------------------------------------------------------- */

/* A leaf with branches inlined may capture fewer values than the body it came from. */
static gantry_status map_captures(gt_frame *body, struct gt_control *control, int which, gantry_error *err)
{
    gantry_session *session = body->run->session;
    if (control->mapped[which] == body->leaf)
        return GANTRY_OK;
    gt_free(session->allocator, control->capture_map[which]);
    control->mapped[which] = NULL;
    control->capture_map[which] = GT_NEW_ARRAY(session->allocator, uint32_t, body->leaf->capture_count + 1);
    if (!control->capture_map[which])
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    const gt_variant *entry = body->entry, *leaf = body->leaf;
    for (uint32_t k = 0; k < leaf->capture_count; k++) {
        uint32_t outer = leaf->graph->values.data[leaf->captures[k]]->captured, m = 0;
        while (m < entry->capture_count && (entry->capture_domains[m] != leaf->capture_domains[k] ||
                                            entry->graph->values.data[entry->captures[m]]->captured != outer))
            m++;
        if (m == entry->capture_count)
            return gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, NULL,
                           "value %s is captured by a branch but not by its body",
                           leaf->graph->values.data[leaf->captures[k]]->name);
        control->capture_map[which][k] = m;
    }
    control->mapped[which] = leaf;
    return GANTRY_OK;
}

/* Symbols that the extents and elements of one body input or capture stand for. dims may be NULL: known to
 * the outer graph. elements are the host's, NULL on a device: such a value has no elements that somebody
 * needs.
 */
static gantry_status enter_symbols(gt_frame *body, uint32_t id, const int64_t *dims, const void *elements,
                                   gantry_error *err)
{
    const gt_graph *graph = body->leaf ? body->leaf->graph : body->entry->graph;
    const gt_exprs *exprs = &graph->model->exprs;
    const gt_value *value = graph->values.data[id];
    gt_env *env = &body->run->env;
    for (int32_t d = 0; dims && d < value->rank; d++) {
        if (value->dims[d] == GT_EXPR_UNKNOWN || exprs->nodes.data[value->dims[d]].kind != GT_EXPR_SYMBOL)
            continue;
        uint32_t symbol = exprs->nodes.data[value->dims[d]].a;
        if (exprs->symbols.data[symbol].kind != GT_SYMBOL_DATA_DIM)
            continue;
        GT_TRY(gt_env_reserve(body->run->session->allocator, env, symbol + 1, err));
        env->values[symbol].i = dims[d];
        env->known[symbol] = 1;
    }
    for (uint32_t k = 0; elements && value->elements && k < value->element_count; k++) {
        if (value->elements[k] == GT_EXPR_UNKNOWN ||
            exprs->nodes.data[value->elements[k]].kind != GT_EXPR_SYMBOL)
            continue;
        uint32_t symbol = exprs->nodes.data[value->elements[k]].a;
        if (exprs->symbols.data[symbol].kind != GT_SYMBOL_DATA_ELEMENT ||
            exprs->symbols.data[symbol].value != id)
            continue;
        GT_TRY(gt_env_reserve(body->run->session->allocator, env, symbol + 1, err));
        env->values[symbol] = gt_scalar_read(value->dtype, elements, k);
        env->known[symbol] = 1;
    }
    return GANTRY_OK;
}

/* Captures are inputs by reference: they stay where the outer plan has them. captured are the step's slots
 * for this body. */
static gantry_status enter_captures(const gt_frame *frame, gt_frame *body, struct gt_control *control,
                                    int which, const gt_plan_state *state, const uint32_t *captured,
                                    gantry_error *err)
{
    const gt_variant *entry = body->entry;
    for (uint32_t k = 0; k < entry->capture_count; k++)
        GT_TRY(enter_symbols(body, entry->captures[k], NULL,
                             entry->capture_domains[k] ? NULL : host_pointer(state->slots[captured[k]]),
                             err));
    GT_TRY(gt_frame_enter(body, err));
    GT_TRY(map_captures(body, control, which, err));
    for (uint32_t k = 0; k < body->leaf->capture_count; k++) {
        uint32_t slot = captured[control->capture_map[which][k]];
        gt_frame_set_input(body, body->leaf->graph->inputs.count + k, state->slots[slot],
                           gt_frame_pinned_by(frame, &state->plan->slots[slot]));
    }
    return GANTRY_OK;
}

/* ---- leaving a body -------------------------------------------------------------------------- */

/* What a body left, on its way to the outer graph. */
typedef struct result {
    uint32_t domain;
    gantry_buffer at;
    gt_block *block; /* the whole block in which it lies, to be handed over; NULL: it has to be copied */
    uint32_t rank;
    const int64_t *dims;
    size_t bytes;
} result;

static void note_true_shape(gt_frame *frame, uint32_t value, const result *r)
{
    gt_true_shape *truth = &frame->true_shapes[value];
    truth->known = true;
    truth->rank = r->rank;
    memcpy(truth->dims, r->dims, r->rank * sizeof *r->dims);
}

/* A block for a block: the one that comes back is written next time. */
static void hand_over(gt_frame *frame, const gt_slot *slot, gt_block *block)
{
    gt_frame_carry *carry = &frame->carries[slot->index];
    gt_block spare = carry->block;
    carry->block = *block;
    *block = spare;
    carry->domain = slot->domain;
    frame->version++;
}

/* Gives a result to the outer graph as output k of the node; its size may be known only now. */
static gantry_status leave_value(gt_frame *frame, struct gt_control *control, gt_plan_state *state,
                                 const gt_step *step, uint32_t k, const result *r, gantry_error *err)
{
    uint32_t slot_index = step->outputs[k];
    const gt_slot *slot = &state->plan->slots[slot_index];
    const gt_plan_shape *shape = &state->plan->shapes[slot->value];
    if (shape->dynamic || shape->bounded)
        note_true_shape(frame, slot->value, r);
    if (!shape->dynamic && r->bytes > slot->bytes)
        return gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, NULL,
                       "value %s has %zu bytes where %zu were planned",
                       frame->leaf->graph->values.data[slot->value]->name, r->bytes, slot->bytes);
    if (slot->kind == GT_SLOT_CARRY && slot->domain != 0 && r->block && r->block->handle &&
        r->block->bytes >= slot->bytes) {
        hand_over(frame, slot, r->block);
        return GANTRY_OK;
    }
    gantry_buffer target = state->slots[slot_index];
    if (shape->dynamic) {
        GT_TRY(gt_frame_grow_carry(frame, slot->index, slot->domain, r->bytes, err));
        target = (gantry_buffer){frame->carries[slot->index].block.handle, 0};
    }
    if (target.handle == r->at.handle && target.offset_bytes == r->at.offset_bytes)
        return GANTRY_OK;
    return copy_inside(frame->run, control, k, r->domain, target, r->at, r->bytes, err);
}

/* A trip count or condition has one element, whatever its rank; inference refuses those whose size it knows.
 */
static gantry_status require_single(const gt_frame *frame, const gt_plan_state *state, const gt_node *node,
                                    uint32_t input, const char *what, gantry_error *err)
{
    const gt_value *value = frame->leaf->graph->values.data[node->inputs[input]];
    uint32_t rank;
    const int64_t *dims = gt_frame_value_dims(frame, state, node->inputs[input], &rank);
    int64_t count = dims ? 1 : 0;
    for (uint32_t d = 0; d < rank && dims; d++)
        count *= dims[d];
    if (count == 1)
        return GANTRY_OK;
    return gt_fail(err, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN, node->name,
                   "the %s of %s %s, '%s', has %lld elements; exactly one is needed", what, node->op_type,
                   node->name, value->name, (long long)count);
}

/* ---- If -------------------------------------------------------------------------------------- */

/* True when a branch may write the outer plan's slot itself: what it makes has the size that was planned. */
static bool is_direct(const gt_plan *plan, uint32_t slot)
{
    if (slot == GT_NO_SLOT)
        return false;
    const gt_plan_shape *shape = &plan->shapes[plan->slots[slot].value];
    return !shape->dynamic && !shape->bounded;
}

static gantry_status run_if(gt_frame *frame, struct gt_control *control, gt_plan_state *state,
                            const gt_step *step, const gt_node *node, gantry_error *err)
{
    GT_TRY(require_single(frame, state, node, 0, "condition", err));
    const uint8_t *condition = host_pointer(state->slots[step->inputs[0]]);
    int which = *condition ? 0 : 1;
    gt_frame *body = control->bodies[which];
    if (!body)
        return gt_fail(err, GANTRY_MODEL_GRAPH, GANTRY_STAGE_RUN, node->name, "If %s has no %s branch",
                       node->name, which ? "else" : "then");
    const uint32_t *captured = step->inputs + node->input_count;
    if (which && control->bodies[0])
        captured += control->bodies[0]->entry->capture_count;
    for (uint32_t k = 0; k < body->output_count; k++) {
        uint32_t slot = k < step->output_count ? step->outputs[k] : GT_NO_SLOT;
        if (is_direct(state->plan, slot))
            gt_frame_set_output(body, k, state->slots[slot], state->plan->slots[slot].bytes,
                                gt_frame_pinned_by(frame, &state->plan->slots[slot]));
        else
            gt_frame_own_output(body, k);
    }
    GT_TRY(enter_captures(frame, body, control, which, state, captured, err));
    GT_TRY(gt_frame_execute(body, err));
    for (uint32_t k = 0; k < body->output_count && k < step->output_count; k++) {
        const gt_frame_output *output = &body->outputs[k];
        if (step->outputs[k] == GT_NO_SLOT || output->given)
            continue;
        result left = {
            gt_frame_output_domain(body, k), output->buffer, NULL, output->rank, output->dims, output->bytes};
        GT_TRY(leave_value(frame, control, state, step, k, &left, err));
    }
    return GANTRY_OK;
}

/* ---- Loop ------------------------------------------------------------------------------------ */

static gantry_status start_loop(gt_frame *frame, struct gt_control *control, const gt_plan_state *state,
                                const gt_step *step, const gt_node *node, gantry_error *err)
{
    control->iteration = 0;
    control->condition = 1;
    if (node->input_count > 1 && step->inputs[1] != GT_NO_SLOT) {
        GT_TRY(require_single(frame, state, node, 1, "condition", err));
        control->condition = *(const uint8_t *)host_pointer(state->slots[step->inputs[1]]);
    }
    for (uint32_t k = 0; k < control->carried_count; k++) {
        carried *c = &control->carried[k];
        uint32_t value = node->inputs[2 + k];
        const int64_t *dims = value == GT_NONE ? NULL : gt_frame_value_dims(frame, state, value, &c->rank);
        if (!dims)
            return gt_fail(err, GANTRY_MODEL_GRAPH, GANTRY_STAGE_RUN, node->name,
                           "the initial value %u of Loop %s is missing", k, node->name);
        memcpy(c->dims, dims, c->rank * sizeof *dims);
        c->at = state->slots[step->inputs[2 + k]];
        c->pinned = gt_frame_pinned_by(frame, &state->plan->slots[step->inputs[2 + k]]);
        uint64_t count = 1;
        for (uint32_t d = 0; d < c->rank; d++)
            count *= (uint64_t)dims[d];
        c->bytes = gantry_dtype_bytes(frame->leaf->graph->values.data[value]->dtype, count);
    }
    for (uint32_t k = 0; k < control->scan_count; k++)
        control->scans[k].used = 0;
    return GANTRY_OK;
}

static gantry_status enter_iteration(const gt_frame *frame, struct gt_control *control,
                                     const gt_plan_state *state, const uint32_t *captured, gantry_error *err)
{
    gt_frame *body = control->bodies[0];
    const gt_graph *graph = body->entry->graph;
    for (uint32_t k = 0; k < control->carried_count; k++) {
        const carried *c = &control->carried[k];
        GT_TRY(enter_symbols(body, graph->inputs.data[2 + k], c->dims, c->domain ? NULL : host_pointer(c->at),
                             err));
    }
    GT_TRY(enter_captures(frame, body, control, 0, state, captured, err));
    gt_frame_set_input(body, 0, (gantry_buffer){&control->iteration, 0}, 0);
    gt_frame_set_input(body, 1, (gantry_buffer){&control->condition, 0}, 0);
    for (uint32_t k = 0; k < control->carried_count; k++)
        gt_frame_set_input(body, 2 + k, control->carried[k].at, control->carried[k].pinned);
    return GANTRY_OK;
}

/* Room for `bytes` more of output `output`. The old block goes when its queue has read it. */
static gantry_status grow_scan(gantry_run *run, struct gt_control *control, uint32_t output, scan *s,
                               size_t bytes, gantry_error *err)
{
    gt_block bigger = {0};
    bool moved;
    GT_TRY(gt_block_grow(run->session, s->domain, &bigger, (s->used + bytes) * 2, &moved, err));
    gantry_status status = copy_inside(run, control, output, s->domain, (gantry_buffer){bigger.handle, 0},
                                       (gantry_buffer){s->block.handle, 0}, s->used, err);
    if (status == GANTRY_OK)
        status = gt_run_settle(run, s->domain, err);
    gt_block *unused = status == GANTRY_OK ? &s->block : &bigger;
    gt_block_free(run->session, s->domain, unused);
    if (status == GANTRY_OK)
        s->block = bigger;
    return status;
}

static gantry_status append_scan(gantry_run *run, struct gt_control *control, uint32_t k,
                                 const gt_frame_output *made, const gt_node *node, gantry_error *err)
{
    scan *s = &control->scans[k];
    uint32_t output = control->carried_count + k;
    if (control->iteration > 0 &&
        (s->rank != made->rank || memcmp(s->dims, made->dims, s->rank * sizeof *s->dims) != 0))
        return gt_fail(
            err, GANTRY_MODEL_SHAPE, GANTRY_STAGE_RUN, node->name,
            "a scan output of Loop %s changed its shape in iteration %lld; all iterations have to agree",
            node->name, (long long)control->iteration);
    s->rank = made->rank;
    memcpy(s->dims, made->dims, s->rank * sizeof *s->dims);
    if (s->used + made->bytes > s->block.bytes || !s->block.handle)
        GT_TRY(grow_scan(run, control, output, s, made->bytes, err));
    GT_TRY(copy_inside(run, control, output, s->domain, (gantry_buffer){s->block.handle, s->used},
                       made->buffer, made->bytes, err));
    s->used += made->bytes;
    /* A second queue may write over what was made, in the next iteration. */
    return s->domain && run->copiers[s->domain] ? gt_run_settle(run, s->domain, err) : GANTRY_OK;
}

/* What the body made becomes what the next iteration reads; the block it replaces is written next. */
static gantry_status leave_iteration(gt_frame *frame, struct gt_control *control, const gt_node *node,
                                     gantry_error *err)
{
    gt_frame *body = control->bodies[0];
    if (body->outputs[0].bytes != 1)
        return gt_fail(err, GANTRY_MODEL_SHAPE, GANTRY_STAGE_RUN, node->name,
                       "the condition that the body of Loop %s gives has %zu elements; exactly one is needed",
                       node->name, body->outputs[0].bytes);
    control->condition = *(const uint8_t *)host_pointer(body->outputs[0].buffer);
    for (uint32_t k = 0; k < control->carried_count; k++) {
        carried *c = &control->carried[k];
        gt_frame_output *output = &body->outputs[1 + k];
        gt_block spare = c->block;
        c->block = output->own;
        output->own = spare;
        c->at = (gantry_buffer){c->block.handle, 0};
        c->pinned = c->block.pinned;
        c->rank = output->rank;
        memcpy(c->dims, output->dims, c->rank * sizeof *c->dims);
        c->bytes = output->bytes;
        gt_frame_own_output(body, 1 + k);
    }
    for (uint32_t k = 0; k < control->scan_count; k++) {
        if (node->outputs[control->carried_count + k] == GT_NONE)
            continue; /* nobody reads it */
        GT_TRY(
            append_scan(frame->run, control, k, &body->outputs[1 + control->carried_count + k], node, err));
    }
    return GANTRY_OK;
}

static gantry_status finish_loop(gt_frame *frame, struct gt_control *control, gt_plan_state *state,
                                 const gt_step *step, gantry_error *err)
{
    for (uint32_t k = 0; k < control->carried_count && k < step->output_count; k++) {
        carried *c = &control->carried[k];
        gt_block *block = control->iteration ? &c->block : NULL;
        result left = {c->domain, c->at, block, c->rank, c->dims, c->bytes};
        if (step->outputs[k] != GT_NO_SLOT)
            GT_TRY(leave_value(frame, control, state, step, k, &left, err));
    }
    const gt_graph *graph = control->bodies[0]->entry->graph;
    for (uint32_t k = 0; k < control->scan_count; k++) {
        uint32_t output = control->carried_count + k;
        if (output >= step->output_count || step->outputs[output] == GT_NO_SLOT)
            continue;
        scan *s = &control->scans[k];
        int64_t dims[GANTRY_MAX_RANK + 1] = {control->iteration};
        const gt_value *value = graph->values.data[graph->outputs.data[1 + output]];
        uint32_t rank = control->iteration ? s->rank : value->rank < 0 ? 0 : (uint32_t)value->rank;
        if (rank + 1 > GANTRY_MAX_RANK)
            return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, NULL,
                           "scan output %s has rank %u; the limit is %u", value->name, rank + 1,
                           GANTRY_MAX_RANK);
        for (uint32_t d = 0; control->iteration && d < rank; d++)
            dims[1 + d] = s->dims[d];
        for (uint32_t d = 0; !control->iteration && d < rank; d++)
            if (value->dims[d] == GT_EXPR_UNKNOWN ||
                !gt_expr_is_const(&graph->model->exprs, value->dims[d], &dims[1 + d]))
                dims[1 + d] = 0;
        result left = {s->domain, {s->block.handle, 0}, &s->block, rank + 1, dims, s->used};
        GT_TRY(leave_value(frame, control, state, step, output, &left, err));
    }
    return GANTRY_OK;
}

/* A loop that nothing stops for the device may fill its queue: after so many rounds the host waits, so that
 * what is given out stays little and a stop is soon. */
#define ROUNDS_IN_FLIGHT 64

static gantry_status keep_up(gt_frame *body, int64_t iteration, gantry_error *err)
{
    const gt_plan_state *state = body->current[body->leaf->segment_count - 1];
    if (!state->plan->leaves_work || iteration % ROUNDS_IN_FLIGHT != ROUNDS_IN_FLIGHT - 1)
        return GANTRY_OK;
    for (uint32_t d = 1; d < body->run->session->domain_count; d++)
        GT_TRY(gt_run_settle(body->run, d, err));
    return GANTRY_OK;
}

static gantry_status run_iteration(gt_frame *frame, struct gt_control *control, const gt_plan_state *state,
                                   const uint32_t *captured, const gt_node *node, gantry_error *err)
{
    gantry_run *run = frame->run;
    if (__atomic_load_n(&run->stop, __ATOMIC_RELAXED))
        return gt_run_check_stop(run, err);
    GT_TRY(enter_iteration(frame, control, state, captured, err));
    GT_TRY(gt_frame_execute(control->bodies[0], err));
    GT_TRY(keep_up(control->bodies[0], control->iteration, err));
    return leave_iteration(frame, control, node, err);
}

/* Says in which iteration it happened; from the inside out where loops are nested. */
static gantry_status name_iteration(const struct gt_control *control, const gt_node *node,
                                    gantry_status status, gantry_error *err)
{
    if (!err || err->struct_bytes < sizeof *err)
        return status;
    size_t used = strlen(err->message);
    snprintf(err->message + used, sizeof err->message - used, "; in iteration %lld of node '%s' (Loop)",
             (long long)control->iteration, node->name);
    if (!err->node[0])
        snprintf(err->node, sizeof err->node, "%s", node->name);
    return status;
}

static gantry_status run_loop(gt_frame *frame, struct gt_control *control, gt_plan_state *state,
                              const gt_step *step, const gt_node *node, gantry_error *err)
{
    gt_frame *body = control->bodies[0];
    if (!body || body->output_count < 1 + control->carried_count + control->scan_count ||
        body->entry->graph->inputs.count != 2 + control->carried_count)
        return gt_fail(err, GANTRY_MODEL_GRAPH, GANTRY_STAGE_RUN, node->name,
                       "the body of Loop %s has %u inputs and %u outputs; %u and at least %u are needed",
                       node->name, body ? body->entry->graph->inputs.count : 0, body ? body->output_count : 0,
                       2 + control->carried_count, 1 + control->carried_count + control->scan_count);
    GT_TRY(start_loop(frame, control, state, step, node, err));
    int64_t trips = INT64_MAX;
    if (step->inputs[0] != GT_NO_SLOT) {
        GT_TRY(require_single(frame, state, node, 0, "trip count", err));
        memcpy(&trips, host_pointer(state->slots[step->inputs[0]]), sizeof trips);
    }
    const uint32_t *captured = step->inputs + node->input_count;
    while (control->iteration < trips && control->condition) {
        gantry_status status = run_iteration(frame, control, state, captured, node, err);
        if (status != GANTRY_OK)
            return name_iteration(control, node, status, err);
        control->iteration++;
    }
    return finish_loop(frame, control, state, step, err);
}

gantry_status gt_control_execute(gt_frame *frame, gt_plan_state *state, const gt_step *step,
                                 gantry_error *err)
{
    const gt_partition *partition = &frame->leaf->placement->partitions[step->partition];
    const gt_node *node = frame->leaf->graph->nodes.data[partition->nodes[0]];
    struct gt_control **control = &frame->controls[step->partition];
    if (!*control) {
        gantry_status status = create(frame, &frame->leaf->programs[step->partition], node, control, err);
        if (status != GANTRY_OK) {
            gt_control_destroy(frame->run->session, control);
            return status;
        }
    }
    if (strcmp(node->op_type, "If") == 0)
        return run_if(frame, *control, state, step, node, err);
    return run_loop(frame, *control, state, step, node, err);
}
