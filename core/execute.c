/* The executor: for each step of the plan do it; then one wait for the outputs. It decides nothing and, in
 * the steady state, allocates nothing. */
#include "answer.h"
#include "run.h"

#include "base/clock.h"

/* Memory is for the bound: what a provider says of a size is not taken on trust. */
static bool is_within(const gt_true_shape *truth, const gt_plan_shape *shape)
{
    bool within = true;
    for (uint32_t d = 0; d < truth->rank; d++)
        within = within && truth->dims[d] >= 0 && (!shape->dims || truth->dims[d] <= shape->dims[d]);
    return within;
}

const int64_t *gt_frame_value_dims(const gt_frame *frame, const gt_plan_state *state, uint32_t value,
                                   uint32_t *out_rank)
{
    const gt_plan_shape *shape = &state->plan->shapes[value];
    if ((shape->bounded || shape->dynamic) && frame->true_shapes) {
        const gt_true_shape *truth = &frame->true_shapes[value];
        *out_rank = truth->rank;
        return truth->known && is_within(truth, shape) ? truth->dims : NULL;
    }
    *out_rank = shape->rank;
    return shape->dims;
}

static size_t value_bytes(const gt_frame *frame, uint32_t value, uint32_t rank, const int64_t *dims)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < rank; d++)
        count *= (uint64_t)dims[d];
    return gantry_dtype_bytes(frame->leaf->graph->values.data[value]->dtype, count);
}

/* A size that the step which made the value did not tell, or told wrongly. */
static gantry_status no_true_size(const gt_frame *frame, const gt_plan_state *state, uint32_t value,
                                  gantry_error *err)
{
    const gt_placement *placement = frame->leaf->placement;
    const gt_value *of = frame->leaf->graph->values.data[value];
    const gt_plan_shape *shape = &state->plan->shapes[value];
    uint32_t partition = of->producer == GT_NONE ? GT_NONE : placement->partition_of_node[of->producer];
    if (partition == GT_NONE || !shape->dims)
        return gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, NULL,
                       "the size of %s was not reported by the step that made it", of->name);
    uint32_t d = 0;
    const int64_t *told = frame->true_shapes[value].dims;
    while (d + 1 < shape->rank && told[d] >= 0 && told[d] <= shape->dims[d])
        d++;
    const char *name = frame->run->session->providers[placement->partitions[partition].provider].name;
    return told[d] == GT_NOT_TOLD
               ? gt_provider_wrong(err, GANTRY_STAGE_RUN, name, "run",
                                   "provider %s: run left axis %u of %.200s out of true_dims", name, d,
                                   of->name)
               : gt_provider_wrong(err, GANTRY_STAGE_RUN, name, "run",
                                   "provider %s: run says that axis %u of %.200s is %lld; 0 to %lld are "
                                   "possible",
                                   name, d, of->name, (long long)told[d], (long long)shape->dims[d]);
}

/* What was told in the run before says nothing of this one. */
static void forget_true_sizes(gt_frame *frame, const gt_plan_state *state, const gt_step *step)
{
    for (uint32_t m = 0; frame->true_shapes && m < step->output_count; m++) {
        int64_t *dims = state->args[step->context].true_dims[m];
        uint32_t value = state->plan->slots[step->outputs[m]].value;
        for (uint32_t d = 0; dims && d < frame->true_shapes[value].rank; d++)
            dims[d] = GT_NOT_TOLD;
    }
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* The size of a value whose extents came with the data; an output of the frame's own grows to it. */
static gantry_status true_transfer(gt_frame *frame, gt_plan_state *state, uint32_t index, size_t *out_bytes,
                                   gantry_error *err)
{
    const gt_step *step = &state->plan->steps[index];
    const gt_slot *target = &state->plan->slots[step->target];
    uint32_t rank;
    const int64_t *dims = gt_frame_value_dims(frame, state, step->value, &rank);
    if (!dims)
        return no_true_size(frame, state, step->value, err);
    *out_bytes = value_bytes(frame, step->value, rank, dims);
    state->true_bytes[index] += *out_bytes;
    if (target->kind != GT_SLOT_OUTPUT)
        return GANTRY_OK;
    gt_frame_output *output = &frame->outputs[target->index];
    if (!output->given) {
        GT_TRY(gt_frame_grow_output(frame, target->index, *out_bytes, err));
        return gt_frame_resolve(frame, state, err);
    }
    if (output->capacity < *out_bytes)
        return gt_fail(err, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN, NULL,
                       "output %s has %zu bytes; the buffer bound for it has %zu",
                       frame->leaf->graph->values.data[step->value]->name, *out_bytes, output->capacity);
    return GANTRY_OK;
}

static gantry_status run_transfer(gt_frame *frame, gt_plan_state *state, uint32_t index, gantry_error *err)
{
    const gt_step *step = &state->plan->steps[index];
    gantry_session *session = frame->run->session;
    size_t bytes = step->bytes;
    if (step->true_size)
        GT_TRY(true_transfer(frame, state, index, &bytes, err));
    gantry_buffer source = state->slots[step->source], target = state->slots[step->target];
    uint32_t from = state->plan->slots[step->source].domain, to = state->plan->slots[step->target].domain;
    gt_way way = from || to ? (gt_way)state->ways[index] : GT_WAY_PAGEABLE;
    gt_step_copies *copies = from || to ? &state->copies[index] : NULL;
    if (copies)
        copies->executions[way]++;
    if (bytes == 0)
        return GANTRY_OK;
    if (!copies) {
        memmove((char *)target.handle + target.offset_bytes,
                (const char *)source.handle + source.offset_bytes, bytes);
        return GANTRY_OK;
    }
    copies->bytes[way] += bytes;
    if (way == GT_WAY_STAGED)
        return gt_staging_copy(frame->run, step, from == 0, target, source, bytes, &copies->calls[way], err);
    const gantry_domain *table = session->domains[step->domain].entry->table;
    gantry_queue *queue = gt_run_queue(frame->run, step->domain, step->queue);
    copies->calls[way]++;
    if (from && to && from != to)
        return table->copy_from_peer(table->self, queue, session->domains[from].entry->table, target, source,
                                     bytes, err);
    gantry_copy_kind kind = from == to  ? GANTRY_COPY_INSIDE
                            : from == 0 ? GANTRY_COPY_TO_DEVICE
                                        : GANTRY_COPY_TO_HOST;
    return table->copy(table->self, queue, kind, target, source, bytes, err);
}

static gantry_status run_convert(gt_frame *frame, gt_plan_state *state, const gt_step *step,
                                 gantry_error *err)
{
    const gt_plan_shape *shape = &state->plan->shapes[step->value];
    gantry_shape extents = {shape->rank, shape->dims};
    gt_provider_entry *entry = frame->run->session->providers[step->provider].entry;
    bool serial = gt_provider_is_serial(entry);
    if (serial)
        gt_run_note_wait(frame->run, step->provider, GT_WAIT_CONVERT, gt_provider_lock(entry));
    gantry_status status =
        entry->table->convert(entry->table->self, frame->run->queues[step->domain], &step->from, &step->to,
                              frame->leaf->graph->values.data[step->value]->dtype, &extents,
                              state->slots[step->source], state->slots[step->target], err);
    if (serial)
        gt_provider_unlock(entry);
    return status;
}

/* ---- programs -------------------------------------------------------------------------------- */

/* A run that stops of itself is a failure: nobody wants its results left out. */
static gantry_status stopped_or(const gt_frame *frame, uint32_t provider, gantry_status status,
                                gantry_error *err)
{
    const char *name = frame->run->session->providers[provider].name;
    if (status != GANTRY_CANCELLED && status != GANTRY_DEADLINE)
        return gt_provider_answer(name, "run", GANTRY_STAGE_RUN, status, name, err);
    if (gantry_stop_asked(&frame->run->stop))
        return gt_run_check_stop(frame->run, err);
    return gt_provider_wrong(err, GANTRY_STAGE_RUN, name, "run",
                             "provider %s: run ended as if it had been stopped (%s); nobody asked for that",
                             name, gantry_status_text(status));
}

static gantry_status run_program(gt_frame *frame, gt_plan_state *state, const gt_step *step,
                                 gantry_error *err)
{
    gt_provider_entry *entry = frame->run->session->providers[step->provider].entry;
    gantry_run_args *args = &state->args[step->context];
    args->threads = frame->run->threads;
    forget_true_sizes(frame, state, step);
    bool serial = gt_provider_is_serial(entry);
    if (serial)
        gt_run_note_wait(frame->run, step->provider, GT_WAIT_RUN, gt_provider_lock(entry));
    gt_error_clear(err);
    gantry_status status = entry->table->run(entry->table->self, state->contexts[step->context], args, err);
    if (serial)
        gt_provider_unlock(entry);
    return stopped_or(frame, step->provider, status, err);
}

static gantry_status wait_for_queue(gt_frame *frame, uint32_t domain, uint32_t queue, gantry_error *err)
{
    const gantry_domain *table = frame->run->session->domains[domain].entry->table;
    gantry_status status = table->queue_sync(table->self, gt_run_queue(frame->run, domain, queue), err);
    gt_staging_idle(frame->run, domain, queue);
    return status;
}

gantry_status gt_run_settle(const gantry_run *run, uint32_t domain, gantry_error *err)
{
    if (domain == 0)
        return GANTRY_OK;
    const gantry_domain *table = run->session->domains[domain].entry->table;
    GT_TRY(table->queue_sync(table->self, run->queues[domain], err));
    return run->copiers[domain] ? table->queue_sync(table->self, run->copiers[domain], err) : GANTRY_OK;
}

/* What the queue was given behind an event delays nobody. */
static gantry_status run_wait(gt_frame *frame, const gt_plan_state *state, const gt_step *step,
                              gantry_error *err)
{
    const gantry_domain *table = frame->run->session->domains[step->domain].entry->table;
    return step->event == GT_NONE ? wait_for_queue(frame, step->domain, step->queue, err)
                                  : table->event_sync(table->self, state->events[step->event], err);
}

static gantry_status run_event(gt_frame *frame, const gt_plan_state *state, const gt_step *step,
                               gantry_error *err)
{
    const gantry_domain *table = frame->run->session->domains[step->domain].entry->table;
    gantry_queue *queue = gt_run_queue(frame->run, step->domain, step->queue);
    return step->kind == GT_STEP_RECORD
               ? table->event_record(table->self, queue, state->events[step->event], err)
               : table->event_wait(table->self, queue, state->events[step->event], err);
}

static gantry_status run_step(gt_frame *frame, gt_plan_state *state, uint32_t index, gantry_error *err)
{
    const gt_step *step = &state->plan->steps[index];
    switch (step->kind) {
    case GT_STEP_RUN:
        return run_program(frame, state, step, err);
    case GT_STEP_TRANSFER:
        return run_transfer(frame, state, index, err);
    case GT_STEP_CONVERT:
        return run_convert(frame, state, step, err);
    case GT_STEP_WAIT:
        return run_wait(frame, state, step, err);
    case GT_STEP_RECORD:
    case GT_STEP_ORDER:
        return run_event(frame, state, step, err);
    case GT_STEP_CONTROL:
        GT_TRY(gt_control_execute(frame, state, step, err));
        return gt_frame_resolve(frame, state, err);
    }
    return gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, NULL, "step %u has the unknown kind %d", index,
                   (int)step->kind);
}

static gantry_status timed_step(gt_frame *frame, gt_plan_state *state, uint32_t index, gantry_error *err)
{
    GT_TRY(gt_timing_begin(frame, state, index, err));
    GT_TRY(run_step(frame, state, index, err));
    return gt_timing_end(frame, state, index, err);
}

/* A program that is computed again beside it. What that costs is no part of the step's time. */
static gantry_status checked_step(gt_frame *frame, gt_plan_state *state, uint32_t index, gantry_error *err)
{
    gt_numeric_check *check = NULL;
    gantry_status status = gt_numeric_begin(frame, state, index, &check, err);
    if (status == GANTRY_OK)
        status = state->times ? timed_step(frame, state, index, err) : run_step(frame, state, index, err);
    if (status == GANTRY_OK)
        return gt_numeric_end(&check, err);
    gt_numeric_drop(&check);
    return status;
}

static gantry_status do_step(gt_frame *frame, gt_plan_state *state, uint32_t index, gantry_error *err)
{
    if (frame->run->session->options.numeric_check && state->plan->steps[index].kind == GT_STEP_RUN)
        return checked_step(frame, state, index, err);
    return state->times ? timed_step(frame, state, index, err) : run_step(frame, state, index, err);
}

/* What failed, where the plugin has no words for it. */
static gantry_status explain_step(const gt_frame *frame, const gt_step *step, gantry_status status,
                                  gantry_error *err)
{
    static const char *const ENTRIES[] = {
        [GT_STEP_TRANSFER] = "copy",   [GT_STEP_CONVERT] = "convert", [GT_STEP_RUN] = NULL,
        [GT_STEP_WAIT] = "queue_sync", [GT_STEP_CONTROL] = NULL,      [GT_STEP_RECORD] = "event_record",
        [GT_STEP_ORDER] = "event_wait"};
    const gantry_session *session = frame->run->session;
    bool event = step->kind == GT_STEP_WAIT && step->event != GT_NONE;
    const char *entry = event ? "event_sync" : ENTRIES[step->kind];
    if (!entry)
        return status;
    return step->kind == GT_STEP_CONVERT ? gt_provider_answer(session->providers[step->provider].name, entry,
                                                              GANTRY_STAGE_RUN, status, session, err)
                                         : gt_domain_answer(session->domains[step->domain].name, entry,
                                                            GANTRY_STAGE_RUN, status, session, err);
}

/* Whether an error may come of data that a device failed to make. */
static bool may_be_a_consequence(gantry_status status)
{
    return status != GANTRY_PROVIDER && status != GANTRY_CANCELLED && status != GANTRY_DEADLINE &&
           status != GANTRY_RESOURCE;
}

/* After a failure nothing may still be writing to memory that the caller owns. A device's failure that was
 * not asked for yet is the cause of what was made of its results. */
static gantry_status drain(gt_frame *frame, gantry_status status, gantry_error *err)
{
    const gantry_session *session = frame->run->session;
    for (uint32_t d = 1; d < session->domain_count; d++)
        for (uint32_t queue = GT_QUEUE_COMPUTE; queue <= GT_QUEUE_COPY; queue++) {
            gantry_error failure = GANTRY_ERROR_INIT;
            if (!gt_run_queue(frame->run, d, queue))
                continue;
            gantry_status left = wait_for_queue(frame, d, queue, &failure);
            if (left == GANTRY_OK || !may_be_a_consequence(status))
                continue;
            status = gt_domain_answer(session->domains[d].name, "queue_sync", GANTRY_STAGE_RUN, left, session,
                                      &failure);
            if (err && err->struct_bytes >= sizeof *err)
                *err = failure;
        }
    return status;
}

/* What is counted is counted for each run. */
static void begin_counting(gt_plan_state *state, uint64_t run_number)
{
    if (state->run_number == run_number)
        return;
    state->run_number = run_number;
    state->run_executions = 0;
    if (state->true_bytes)
        memset(state->true_bytes, 0, state->plan->step_count * sizeof *state->true_bytes);
    if (state->copies)
        memset(state->copies, 0, state->plan->step_count * sizeof *state->copies);
}

static gantry_status run_steps(gt_frame *frame, gt_plan_state *state, gantry_error *err)
{
    gantry_run *run = frame->run;
    if (state->times)
        gt_timing_reset(frame, state);
    begin_counting(state, run->number);
    for (uint32_t k = 0; k < state->plan->step_count; k++) {
        if (__atomic_load_n(&run->stop, __ATOMIC_RELAXED))
            return drain(frame, gt_run_check_stop(run, err), err);
        gantry_status status = do_step(frame, state, k, err);
        if (status != GANTRY_OK)
            return drain(frame, explain_step(frame, &state->plan->steps[k], status, err), err);
    }
    if (state->times)
        gt_timing_collect(frame, state);
    state->run_executions++;
    state->executions++;
    return GANTRY_OK;
}

/* ---- segments -------------------------------------------------------------------------------- */

static gantry_status read_results(gt_frame *frame, const gt_plan_state *state, const gt_segment *segment,
                                  gantry_error *err)
{
    gt_env *env = &frame->run->env;
    for (uint32_t k = 0; k < segment->result_count; k++) {
        const gt_result_symbol *result = &segment->results[k];
        const gt_value *value = frame->leaf->graph->values.data[result->value];
        GT_TRY(gt_env_reserve(frame->run->session->allocator, env, result->symbol + 1, err));
        if (result->element) {
            const gantry_buffer *at = &state->slots[state->plan->result_slots[k]];
            env->values[result->symbol] =
                gt_scalar_read(value->dtype, (const char *)at->handle + at->offset_bytes, result->axis);
        } else {
            uint32_t rank;
            const int64_t *dims = gt_frame_value_dims(frame, state, result->value, &rank);
            if (!dims || result->axis >= rank)
                return no_true_size(frame, state, result->value, err);
            env->values[result->symbol].i = dims[result->axis];
        }
        env->known[result->symbol] = 1;
    }
    return GANTRY_OK;
}

/* The outputs that this segment delivers; other plans need not know their sizes. */
static void note_output_shapes(gt_frame *frame, const gt_plan_state *state)
{
    for (uint32_t k = 0; k < frame->output_count; k++) {
        if (gt_variant_output_segment(frame->leaf, k) != state->plan->segment)
            continue;
        gt_frame_output *output = &frame->outputs[k];
        uint32_t value = frame->leaf->graph->outputs.data[k];
        const int64_t *dims = gt_frame_value_dims(frame, state, value, &output->rank);
        if (!dims)
            continue;
        memcpy(output->dims, dims, output->rank * sizeof *dims);
        output->bytes = value_bytes(frame, value, output->rank, dims);
    }
}

/* The plan of a segment with all its addresses. */
static gantry_status ready_plan(gt_frame *frame, uint32_t segment, gt_plan_state **out_state,
                                gantry_error *err)
{
    bool timed = frame->run->stamp_ns > 0;
    uint64_t begin = timed ? gt_now_ns() : 0;
    if (segment == 0)
        GT_TRY(gt_frame_begin(frame, out_state, err));
    else
        GT_TRY(gt_frame_plan(frame, segment, out_state, err));
    GT_TRY(gt_frame_resolve(frame, *out_state, err));
    if (timed)
        gt_timing_bind(frame, begin);
    return GANTRY_OK;
}

gantry_status gt_frame_execute(gt_frame *frame, gantry_error *err)
{
    gt_plan_state *state = NULL;
    for (uint32_t s = 0; s == 0 || s < frame->leaf->segment_count; s++) {
        GT_TRY(ready_plan(frame, s, &state, err));
        GT_TRY(run_steps(frame, state, err));
        if (frame->leaf->segments[s].result_count)
            GT_TRY(read_results(frame, state, &frame->leaf->segments[s], err));
        note_output_shapes(frame, state);
    }
    return GANTRY_OK;
}

gantry_status gt_frame_prepare(gt_frame *frame, gantry_error *err)
{
    gt_plan_state *state;
    GT_TRY(gt_frame_begin(frame, &state, err));
    GT_TRY(gt_frame_resolve(frame, state, err));
    for (uint32_t k = 0; k < frame->output_count; k++) {
        const gt_plan_shape *shape = &state->plan->shapes[frame->leaf->graph->outputs.data[k]];
        frame->outputs[k].rank = shape->rank;
        if (shape->dims)
            memcpy(frame->outputs[k].dims, shape->dims, shape->rank * sizeof *shape->dims);
    }
    return GANTRY_OK;
}
