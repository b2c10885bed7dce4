/* Frames: their life, the plans they hold, and slots turned into addresses when something moved. */
#include "answer.h"
#include "run.h"

/* ---- creation -------------------------------------------------------------------------------- */

gantry_status gt_frame_create(gantry_run *run, gt_variant *entry, gt_frame **out_frame, gantry_error *err)
{
    gantry_session *session = run->session;
    gt_frame *frame = GT_NEW(session->allocator, gt_frame);
    if (!frame)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    frame->run = run;
    frame->entry = entry;
    frame->version = 1;
    frame->output_count = entry->graph->outputs.count;
    frame->outputs = GT_NEW_ARRAY(session->allocator, gt_frame_output, frame->output_count + 1);
    frame->arenas = GT_NEW_ARRAY(session->allocator, gt_block, 2 * session->domain_count);
    frame->input_count = entry->graph->inputs.count;
    frame->inputs = GT_NEW_ARRAY(session->allocator, gt_frame_input, frame->input_count + 1);
    *out_frame = frame;
    if (frame->outputs && frame->arenas && frame->inputs)
        return GANTRY_OK;
    gt_frame_destroy(out_frame);
    return gt_out_of_memory(err, GANTRY_STAGE_RUN);
}

static void destroy_events(gantry_session *session, gt_plan_state *state)
{
    for (uint32_t k = 0; state->events && k < state->plan->event_count; k++) {
        const gantry_domain *table = session->domains[state->plan->event_domains[k]].entry->table;
        if (state->events[k])
            table->event_destroy(table->self, state->events[k]);
    }
}

/* What a transfer did in this run goes to the account of those that are forgotten. */
static void forget_transfer(gantry_run *run, const gt_plan_state *state, uint32_t index)
{
    const gt_step *step = &state->plan->steps[index];
    uint32_t from = state->plan->slots[step->source].domain, to = state->plan->slots[step->target].domain;
    const gt_step_copies *copies = &state->copies[index];
    gt_forgotten *of = &run->forgotten[step->domain];
    bool inside = from == to, peer = !inside && from && to;
    for (int way = 0; way < GT_WAY_COUNT; way++) {
        *(inside ? &of->inside_copies : peer ? &of->peer_copies : &of->copies) += copies->calls[way];
        *(inside ? &of->inside_bytes : peer ? &of->peer_bytes : &of->bytes) += copies->bytes[way];
    }
}

static void forget_copies(gt_frame *frame, const gt_plan_state *state)
{
    gantry_run *run = frame->run;
    if (!state->copies || !state->run_executions || state->run_number != run->number)
        return;
    if (run->forgotten_number != run->number)
        memset(run->forgotten, 0, run->session->domain_count * sizeof *run->forgotten);
    run->forgotten_number = run->number;
    for (uint32_t k = 0; k < state->plan->step_count; k++)
        if (state->plan->steps[k].kind == GT_STEP_TRANSFER)
            forget_transfer(run, state, k);
}

static void destroy_state(gt_frame *frame, gt_plan_state *state)
{
    gantry_session *session = frame->run->session;
    forget_copies(frame, state);
    if (state->times)
        gt_timing_destroy(frame, state);
    for (uint32_t k = 0; state->contexts && k < state->plan->shaped_count; k++) {
        const gt_partition *partition =
            &state->plan->variant->placement->partitions[state->plan->shaped[k].partition];
        const gantry_provider *table = session->providers[partition->provider].entry->table;
        if (state->contexts[k])
            table->context_destroy(table->self, state->contexts[k]);
        gt_session_charge_program(session, table,
                                  &state->plan->variant->programs[state->plan->shaped[k].partition]);
    }
    destroy_events(session, state);
    gt_arena_clear(&state->arena);
    gt_plan_release(session, &state->plan);
    gt_free(session->allocator, state);
}

/* Everything that belongs to the leaf: it goes when another variant is chosen. */
static void leave_leaf(gt_frame *frame)
{
    gantry_session *session = frame->run->session;
    for (uint32_t k = 0; k < frame->states.count; k++)
        destroy_state(frame, frame->states.data[k]);
    frame->states.count = 0;
    for (uint32_t k = 0; frame->controls && k < frame->control_count; k++)
        gt_control_destroy(session, &frame->controls[k]);
    gt_free(session->allocator, frame->controls);
    frame->controls = NULL;
    frame->control_count = 0;
    for (uint32_t k = 0; frame->carries && k < frame->value_capacity; k++)
        gt_block_free(session, frame->carries[k].domain, &frame->carries[k].block);
    gt_free(session->allocator, frame->carries);
    gt_free(session->allocator, frame->true_shapes);
    gt_free(session->allocator, frame->current);
    frame->carries = NULL;
    frame->true_shapes = NULL;
    frame->current = NULL;
    frame->value_capacity = 0;
    frame->leaf = NULL;
}

void gt_frame_destroy(gt_frame **inout_frame)
{
    gt_frame *frame = *inout_frame;
    if (!frame)
        return;
    gantry_session *session = frame->run->session;
    leave_leaf(frame);
    gt_vec_free(session->allocator, &frame->states);
    for (uint32_t k = 0; frame->outputs && k < frame->output_count; k++)
        gt_block_free(session, gt_frame_output_domain(frame, k), &frame->outputs[k].own);
    for (uint32_t p = 0; frame->arenas && p < 2 * session->domain_count; p++)
        gt_block_free(session, p, &frame->arenas[p]);
    gt_free(session->allocator, frame->outputs);
    gt_free(session->allocator, frame->arenas);
    gt_free(session->allocator, frame->inputs);
    gt_free(session->allocator, frame->choice_key);
    gt_free(session->allocator, frame);
    *inout_frame = NULL;
}

/* ---- the leaf -------------------------------------------------------------------------------- */

static bool needs_true_shapes(const gt_variant *leaf)
{
    for (uint32_t k = 0; k < leaf->graph->values.count; k++) {
        const gt_value *value = leaf->graph->values.data[k];
        for (int32_t d = 0; d < value->rank; d++)
            if (value->dims[d] == GT_EXPR_UNKNOWN ||
                leaf->graph->model->exprs.nodes.data[value->dims[d]].kind == GT_EXPR_SYMBOL)
                return true;
        if (value->rank < 0)
            return true;
    }
    return false;
}

static gantry_status make_leaf_room(gt_frame *frame, gantry_error *err)
{
    gantry_session *session = frame->run->session;
    gt_variant *leaf = frame->leaf;
    frame->value_capacity = leaf->graph->values.count;
    frame->control_count = leaf->placement->partition_count;
    frame->current = GT_NEW_ARRAY(session->allocator, gt_plan_state *, leaf->segment_count + 1);
    frame->carries = GT_NEW_ARRAY(session->allocator, gt_frame_carry, frame->value_capacity + 1);
    frame->controls = GT_NEW_ARRAY(session->allocator, struct gt_control *, frame->control_count + 1);
    if (needs_true_shapes(leaf))
        frame->true_shapes = GT_NEW_ARRAY(session->allocator, gt_true_shape, frame->value_capacity + 1);
    if (!frame->current || !frame->carries || !frame->controls ||
        (needs_true_shapes(leaf) && !frame->true_shapes))
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    uint32_t inputs = leaf->graph->inputs.count + leaf->capture_count;
    if (inputs > frame->input_count) {
        gt_frame_input *grown =
            gt_resize(session->allocator, frame->inputs, (frame->input_count + 1) * sizeof *grown,
                      (inputs + 1) * sizeof *grown);
        if (!grown)
            return gt_out_of_memory(err, GANTRY_STAGE_RUN);
        memset(grown + frame->input_count, 0, (inputs - frame->input_count) * sizeof *grown);
        frame->inputs = grown;
        frame->input_count = inputs;
    }
    return GANTRY_OK;
}

static int64_t symbol_value(const gt_env *env, uint32_t symbol)
{
    return symbol < env->count && env->known[symbol] ? env->values[symbol].i : INT64_MIN;
}

/* The symbols of every choice from the entry to the leaf, as they were when it was chosen. */
static bool same_choices(const gt_frame *frame)
{
    uint32_t at = 0;
    for (const gt_variant *v = frame->chosen->parent; v && v->choice_count; v = v->parent) {
        for (uint32_t k = 0; k < v->choice_symbol_count; k++)
            if (frame->choice_key[at++] != symbol_value(&frame->run->env, v->choice_symbols[k]))
                return false;
        if (v == frame->entry)
            break;
    }
    return true;
}

static gantry_status keep_choices(gt_frame *frame, gantry_error *err)
{
    gt_allocator *allocator = frame->run->session->allocator;
    uint32_t count = 0;
    for (const gt_variant *v = frame->chosen->parent; v && v->choice_count; v = v->parent) {
        count += v->choice_symbol_count;
        if (v == frame->entry)
            break;
    }
    gt_free(allocator, frame->choice_key);
    frame->choice_key = GT_NEW_ARRAY(allocator, int64_t, count + 1);
    frame->choice_key_count = 0;
    if (!frame->choice_key) {
        frame->chosen = NULL;
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    }
    for (const gt_variant *v = frame->chosen->parent; v && v->choice_count; v = v->parent) {
        for (uint32_t k = 0; k < v->choice_symbol_count; k++)
            frame->choice_key[frame->choice_key_count++] =
                symbol_value(&frame->run->env, v->choice_symbols[k]);
        if (v == frame->entry)
            break;
    }
    return GANTRY_OK;
}

/* Work of an iteration before may still use what goes. */
static gantry_status settle_all(const gt_frame *frame, gantry_error *err)
{
    for (uint32_t d = 1; d < frame->run->session->domain_count; d++)
        GT_TRY(gt_run_settle(frame->run, d, err));
    return GANTRY_OK;
}

static gantry_status enter_leaf(gt_frame *frame, gt_variant *leaf, gantry_error *err)
{
    if (leaf == frame->leaf)
        return GANTRY_OK;
    if (frame->leaf)
        GT_TRY(settle_all(frame, err));
    leave_leaf(frame);
    frame->leaf = leaf;
    frame->version++;
    gantry_status status = make_leaf_room(frame, err);
    if (status != GANTRY_OK)
        leave_leaf(frame);
    return status;
}

gantry_status gt_frame_enter(gt_frame *frame, gantry_error *err)
{
    bool chosen = frame->chosen && (frame->entry->choice_count == 0 || same_choices(frame));
    if (chosen && frame->leaf && frame->current[0] &&
        gt_plan_matches(frame->current[0]->plan, &frame->leaf->segments[0], &frame->run->env))
        return GANTRY_OK;
    if (!chosen) {
        frame->chosen = NULL;
        GT_TRY(gt_bind_variant(frame->entry, &frame->run->env, &frame->chosen, err));
        if (frame->entry->choice_count)
            GT_TRY(keep_choices(frame, err));
    }
    return enter_leaf(frame, gt_bind_refused(frame->chosen, &frame->run->env), err);
}

/* ---- plan states ----------------------------------------------------------------------------- */

static gantry_status create_contexts(gt_frame *frame, gt_plan_state *state, gantry_error *err)
{
    gantry_session *session = frame->run->session;
    const gt_plan *plan = state->plan;
    for (uint32_t k = 0; k < plan->shaped_count; k++) {
        const gt_partition *partition = &plan->variant->placement->partitions[plan->shaped[k].partition];
        gt_provider_entry *entry = session->providers[partition->provider].entry;
        bool one_at_a_time = entry->info.concurrency != GANTRY_CONCURRENCY_FREE;
        if (one_at_a_time)
            gt_run_note_wait(frame->run, partition->provider, GT_WAIT_CONTEXT, gt_provider_lock(entry));
        gt_error_clear(err);
        gantry_status status = entry->table->context_create(entry->table->self, plan->shaped[k].shaped,
                                                            &state->contexts[k], err);
        if (one_at_a_time)
            gt_provider_unlock(entry);
        gt_session_charge_program(session, entry->table, &plan->variant->programs[plan->shaped[k].partition]);
        status = gt_provider_answer(session->providers[partition->provider].name, "context_create",
                                    GANTRY_STAGE_RUN, status, state->contexts[k], err);
        if (status != GANTRY_OK) {
            state->contexts[k] = NULL; /* whatever a failed call left there is not ours to destroy */
            return status;
        }
    }
    return GANTRY_OK;
}

static gantry_status create_events(gt_frame *frame, gt_plan_state *state, gantry_error *err)
{
    const gt_plan *plan = state->plan;
    state->events = GT_ARENA_ARRAY(&state->arena, gantry_event *, plan->event_count + 1);
    if (!state->events)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < plan->event_count; k++) {
        GT_TRY(gt_run_create_event(frame->run, plan->event_domains[k], &state->events[k], err));
    }
    return GANTRY_OK;
}

static bool has_true_sizes(const gt_plan *plan)
{
    for (uint32_t k = 0; k < plan->step_count; k++)
        if (plan->steps[k].true_size)
            return true;
    return false;
}

/* Argument structs of every RUN step; buffers are filled in by resolve. */
static gantry_status make_args(gt_frame *frame, gt_plan_state *state, gantry_error *err)
{
    const gt_plan *plan = state->plan;
    gantry_run *run = frame->run;
    for (uint32_t k = 0; k < plan->step_count; k++) {
        const gt_step *step = &plan->steps[k];
        if (step->kind != GT_STEP_RUN)
            continue;
        gantry_buffer *inputs = GT_ARENA_ARRAY(&state->arena, gantry_buffer, step->input_count);
        gantry_buffer *outputs = GT_ARENA_ARRAY(&state->arena, gantry_buffer, step->output_count);
        int64_t **true_dims = GT_ARENA_ARRAY(&state->arena, int64_t *, step->output_count);
        if (!inputs || !outputs || !true_dims)
            return gt_out_of_memory(err, GANTRY_STAGE_RUN);
        for (uint32_t m = 0; m < step->output_count; m++) {
            uint32_t value = plan->slots[step->outputs[m]].value;
            if (!plan->shapes[value].bounded || !frame->true_shapes)
                continue;
            frame->true_shapes[value].known = true;
            frame->true_shapes[value].rank = plan->shapes[value].rank;
            true_dims[m] = frame->true_shapes[value].dims;
        }
        state->args[step->context] = (gantry_run_args){.struct_bytes = sizeof(gantry_run_args),
                                                       .queue = run->queues[step->domain],
                                                       .inputs = inputs,
                                                       .outputs = outputs,
                                                       .true_dims = (int64_t *const *)true_dims,
                                                       .stop = &run->stop};
    }
    return GANTRY_OK;
}

static gantry_status create_state(gt_frame *frame, gt_plan *plan, gt_plan_state **out_state,
                                  gantry_error *err)
{
    gantry_session *session = frame->run->session;
    gt_plan_state *state = GT_NEW(session->allocator, gt_plan_state);
    if (!state) {
        gt_plan_release(session, &plan);
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    }
    state->plan = plan;
    gt_arena_init(&state->arena, session->allocator);
    state->slots = GT_ARENA_ARRAY(&state->arena, gantry_buffer, plan->slot_count);
    state->contexts = GT_ARENA_ARRAY(&state->arena, gantry_context *, plan->shaped_count);
    state->args = GT_ARENA_ARRAY(&state->arena, gantry_run_args, plan->shaped_count);
    if (has_true_sizes(plan))
        state->true_bytes = GT_ARENA_ARRAY(&state->arena, uint64_t, plan->step_count);
    bool devices = session->domain_count > 1;
    if (devices) {
        state->ways = GT_ARENA_ARRAY(&state->arena, uint8_t, plan->step_count + 1);
        state->copies = GT_ARENA_ARRAY(&state->arena, gt_step_copies, plan->step_count + 1);
    }
    gantry_status status = state->slots && state->contexts && state->args &&
                                   (state->true_bytes || !has_true_sizes(plan)) &&
                                   (!devices || (state->ways && state->copies))
                               ? create_contexts(frame, state, err)
                               : gt_out_of_memory(err, GANTRY_STAGE_RUN);
    if (status == GANTRY_OK)
        status = create_events(frame, state, err);
    if (status == GANTRY_OK)
        status = make_args(frame, state, err);
    if (status == GANTRY_OK && session->options.timing != GT_TIMING_OFF)
        status = gt_timing_create(frame, state, err);
    if (status == GANTRY_OK && !gt_vec_push(session->allocator, &frame->states, state))
        status = gt_out_of_memory(err, GANTRY_STAGE_RUN);
    if (status != GANTRY_OK) {
        destroy_state(frame, state);
        return status;
    }
    *out_state = state;
    return GANTRY_OK;
}

/* Keeps at most as many states as the session keeps plans; the one used least recently goes. */
static gantry_status trim_states(gt_frame *frame, const gt_plan_state *keep, gantry_error *err)
{
    uint32_t limit = frame->run->session->options.plan_cache;
    while (frame->states.count > (limit ? limit : 1)) {
        uint32_t oldest = GT_NONE;
        for (uint32_t k = 0; k < frame->states.count; k++) {
            bool current = frame->states.data[k] == keep;
            for (uint32_t s = 0; s < frame->leaf->segment_count; s++)
                current |= frame->current[s] == frame->states.data[k];
            if (!current && (oldest == GT_NONE ||
                             frame->states.data[k]->last_used < frame->states.data[oldest]->last_used))
                oldest = k;
        }
        if (oldest == GT_NONE)
            return GANTRY_OK;
        GT_TRY(settle_all(frame, err));
        destroy_state(frame, frame->states.data[oldest]);
        frame->states.data[oldest] = frame->states.data[--frame->states.count];
    }
    return GANTRY_OK;
}

gantry_status gt_frame_plan(gt_frame *frame, uint32_t segment, gt_plan_state **out_state, gantry_error *err)
{
    const gt_segment *seg = &frame->leaf->segments[segment];
    gt_plan_state *state = frame->current[segment];
    gt_plan_lookups *lookups = &frame->run->plans;
    if (state && gt_plan_matches(state->plan, seg, &frame->run->env)) {
        lookups->same++;
        *out_state = state;
        return GANTRY_OK;
    }
    for (uint32_t k = 0; k < frame->states.count; k++)
        if (frame->states.data[k]->plan->segment == segment &&
            gt_plan_matches(frame->states.data[k]->plan, seg, &frame->run->env)) {
            *out_state = frame->current[segment] = frame->states.data[k];
            (*out_state)->last_used = ++frame->tick;
            lookups->held++;
            return GANTRY_OK;
        }
    gt_plan *plan = NULL;
    bool refused, made;
    *out_state = NULL;
    GT_TRY(gt_bind_segment(frame->leaf, segment, &frame->run->env, &plan, &refused, &made, err));
    if (refused)
        return GANTRY_OK;
    *(made ? &lookups->made : &lookups->cached) += 1;
    GT_TRY(create_state(frame, plan, &state, err));
    state->last_used = ++frame->tick;
    frame->current[segment] = state;
    *out_state = state;
    return trim_states(frame, state, err);
}

/* Before a run nobody knows them: a plan that is made with those of the run before would have room for these
 * only. */
static void forget_results(gt_frame *frame)
{
    gt_env *env = &frame->run->env;
    for (uint32_t s = 0; s < frame->leaf->segment_count; s++)
        for (uint32_t k = 0; k < frame->leaf->segments[s].result_count; k++)
            if (frame->leaf->segments[s].results[k].symbol < env->count)
                env->known[frame->leaf->segments[s].results[k].symbol] = 0;
}

gantry_status gt_frame_begin(gt_frame *frame, gt_plan_state **out_state, gantry_error *err)
{
    /* Each refusal takes nodes from a provider for good, so this ends. */
    for (*out_state = NULL; !*out_state;) {
        GT_TRY(gt_frame_enter(frame, err));
        forget_results(frame);
        GT_TRY(gt_frame_plan(frame, 0, out_state, err));
    }
    return GANTRY_OK;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static gantry_buffer slot_address(const gt_frame *frame, const gt_slot *slot)
{
    gantry_buffer at = {NULL, slot->offset_bytes};
    switch (slot->kind) {
    case GT_SLOT_ARENA:
        at.handle = frame->arenas[gt_slot_place(frame->run->session->domain_count, slot)].handle;
        break;
    case GT_SLOT_INPUT:
        at.handle = frame->inputs[slot->index].buffer.handle;
        at.offset_bytes += frame->inputs[slot->index].buffer.offset_bytes;
        break;
    case GT_SLOT_OUTPUT:
        at.handle = frame->outputs[slot->index].buffer.handle;
        at.offset_bytes += frame->outputs[slot->index].buffer.offset_bytes;
        break;
    case GT_SLOT_CONSTANT:
    case GT_SLOT_BIND:
        at.handle = (void *)(uintptr_t)slot->data;
        break;
    case GT_SLOT_CARRY:
        at.handle = frame->carries[slot->index].block.handle;
        break;
    case GT_SLOT_NONE:
        break;
    }
    return at;
}

uint32_t gt_frame_pinned_by(const gt_frame *frame, const gt_slot *slot)
{
    switch (slot->kind) {
    case GT_SLOT_ARENA:
        return frame->arenas[gt_slot_place(frame->run->session->domain_count, slot)].pinned;
    case GT_SLOT_INPUT:
        return frame->inputs[slot->index].pinned;
    case GT_SLOT_OUTPUT:
        return frame->outputs[slot->index].given ? frame->outputs[slot->index].pinned
                                                 : frame->outputs[slot->index].own.pinned;
    case GT_SLOT_CARRY:
        return frame->carries[slot->index].block.pinned;
    default:
        return 0;
    }
}

static gt_way way_of(gt_frame *frame, const gt_plan *plan, const gt_step *step)
{
    if (step->kind != GT_STEP_TRANSFER)
        return GT_WAY_PAGEABLE;
    const gt_slot *source = &plan->slots[step->source], *target = &plan->slots[step->target];
    if (!source->domain == !target->domain)
        return GT_WAY_PAGEABLE;
    if (gt_frame_pinned_by(frame, source->domain ? target : source) == step->domain)
        return GT_WAY_PINNED;
    bool staged = frame->run->session->domains[step->domain].pins &&
                  gt_staging_prepare(frame->run, step->domain, step->queue, step->bytes);
    return staged ? GT_WAY_STAGED : GT_WAY_PAGEABLE;
}

static void choose_ways(gt_frame *frame, gt_plan_state *state)
{
    for (uint32_t k = 0; state->ways && k < state->plan->step_count; k++)
        state->ways[k] = (uint8_t)way_of(frame, state->plan, &state->plan->steps[k]);
}

gantry_status gt_frame_resolve(gt_frame *frame, gt_plan_state *state, gantry_error *err)
{
    if (state->version == frame->version)
        return GANTRY_OK;
    const gt_plan *plan = state->plan;
    GT_TRY(gt_frame_grow(frame, plan, err));
    for (uint32_t k = 0; k < plan->slot_count; k++)
        state->slots[k] = slot_address(frame, &plan->slots[k]);
    choose_ways(frame, state);
    state->bindings++;
    for (uint32_t k = 0; k < plan->step_count; k++) {
        const gt_step *step = &plan->steps[k];
        if (step->kind != GT_STEP_RUN)
            continue;
        gantry_run_args *args = &state->args[step->context];
        for (uint32_t m = 0; m < step->input_count; m++)
            ((gantry_buffer *)(uintptr_t)args->inputs)[m] = state->slots[step->inputs[m]];
        for (uint32_t m = 0; m < step->output_count; m++)
            ((gantry_buffer *)(uintptr_t)args->outputs)[m] = state->slots[step->outputs[m]];
        args->workspace = step->workspace == GT_NO_SLOT ? (gantry_buffer){0} : state->slots[step->workspace];
        args->bindings = state->bindings;
    }
    state->version = frame->version;
    return GANTRY_OK;
}

void gt_frame_set_input(gt_frame *frame, uint32_t index, gantry_buffer buffer, uint32_t pinned)
{
    gt_frame_input *input = &frame->inputs[index];
    if (input->buffer.handle == buffer.handle && input->buffer.offset_bytes == buffer.offset_bytes &&
        input->pinned == pinned)
        return;
    *input = (gt_frame_input){buffer, pinned};
    frame->version++;
}

static void set_output(gt_frame *frame, uint32_t index, gantry_buffer buffer, size_t capacity, bool given,
                       uint32_t pinned)
{
    gt_frame_output *output = &frame->outputs[index];
    if (output->given == given && output->buffer.handle == buffer.handle &&
        output->buffer.offset_bytes == buffer.offset_bytes && output->capacity == capacity &&
        output->pinned == pinned)
        return;
    output->buffer = buffer;
    output->capacity = capacity;
    output->given = given;
    output->pinned = pinned;
    frame->version++;
}

void gt_frame_set_output(gt_frame *frame, uint32_t index, gantry_buffer buffer, size_t capacity,
                         uint32_t pinned)
{
    set_output(frame, index, buffer, capacity, true, pinned);
}

void gt_frame_own_output(gt_frame *frame, uint32_t index)
{
    const gt_block *own = &frame->outputs[index].own;
    set_output(frame, index, (gantry_buffer){own->handle, 0}, own->bytes, false, 0);
}
