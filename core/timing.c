/* Times of steps and kernels, for sessions whose option timing is "events" or "fenced". All room is made with
 * the plan's state; a run only fills it in. */
#include "run.h"

#include "base/clock.h"

/* ---- room ------------------------------------------------------------------------------------ */

/* Indexes that no program comes to have no times. */
static uint32_t kernel_room(const gt_kernel_row *kernels, uint32_t count, uint32_t room)
{
    for (uint32_t k = 0; k < count; k++)
        if (kernels[k].index >= room && kernels[k].index < GT_MOST_KERNELS)
            room = kernels[k].index + 1;
    return room;
}

/* Kernel indexes count from 0 in the records of compile and of reshape alike. */
static gantry_status make_kernel_room(gt_plan_state *state, const gt_step *step, gt_step_time *time,
                                      gantry_error *err)
{
    const gt_shaped_slot *slot = &state->plan->shaped[step->context];
    const struct gantry_recorder *compiled = &state->plan->variant->programs[step->partition].records;
    uint32_t room = kernel_room(slot->kernels, slot->kernel_count, 0);
    room = kernel_room(compiled->kernels.data, compiled->kernels.count, room);
    time->kernel_count = room;
    time->kernel_ns = GT_ARENA_ARRAY(&state->arena, double, room + 1);
    time->events = GT_ARENA_ARRAY(&state->arena, gantry_timing_event, room + 1);
    if (!time->kernel_ns || !time->events)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    gantry_run_args *args = &state->args[step->context];
    args->timing = time->events;
    args->timing_capacity = room;
    args->out_timing_count = &time->event_count;
    return GANTRY_OK;
}

/* A wait is the host's time; it has no work of its own on the queue. */
static bool has_queue_work(const gt_step *step)
{
    return step->domain != 0 &&
           (step->kind == GT_STEP_RUN || step->kind == GT_STEP_TRANSFER || step->kind == GT_STEP_CONVERT);
}

gantry_status gt_timing_create(gt_frame *frame, gt_plan_state *state, gantry_error *err)
{
    const gt_plan *plan = state->plan;
    gantry_session *session = frame->run->session;
    state->times = GT_ARENA_ARRAY(&state->arena, gt_step_time, plan->step_count + 1);
    if (!state->times)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < plan->step_count; k++) {
        const gt_step *step = &plan->steps[k];
        if (step->kind == GT_STEP_RUN)
            GT_TRY(make_kernel_room(state, step, &state->times[k], err));
        const gt_domain_entry *domain = session->domains[step->domain].entry;
        if (!has_queue_work(step) || !domain->info.has_clock || !domain->table->event_elapsed)
            continue;
        GT_TRY(gt_run_create_event(frame->run, step->domain, &state->times[k].from, err));
        GT_TRY(gt_run_create_event(frame->run, step->domain, &state->times[k].to, err));
    }
    gt_timing_reset(frame, state);
    return GANTRY_OK;
}

void gt_timing_destroy(gt_frame *frame, gt_plan_state *state)
{
    for (uint32_t k = 0; k < state->plan->step_count; k++) {
        gt_step_time *time = &state->times[k];
        if (!time->from && !time->to)
            continue;
        const gantry_domain *table = frame->run->session->domains[state->plan->steps[k].domain].entry->table;
        if (time->from)
            table->event_destroy(table->self, time->from);
        if (time->to)
            table->event_destroy(table->self, time->to);
        time->from = time->to = NULL;
    }
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void begin_run(gt_frame *frame)
{
    if (frame->timed_run == frame->run->number)
        return;
    frame->timed_run = frame->run->number;
    frame->bind_ns = frame->measuring_ns = 0;
}

void gt_timing_reset(gt_frame *frame, gt_plan_state *state)
{
    begin_run(frame);
    if (state->run_number == frame->run->number)
        return;
    uint64_t begin = gt_now_ns();
    for (uint32_t k = 0; k < state->plan->step_count; k++) {
        gt_step_time *time = &state->times[k];
        time->host_ns = 0;
        time->device_ns = time->to ? 0 : __builtin_nan("");
        for (uint32_t m = 0; m < time->kernel_count; m++)
            time->kernel_ns[m] = __builtin_nan("");
    }
    frame->measuring_ns += (double)(gt_now_ns() - begin);
    frame->run->stamps += 2;
}

static gantry_status record(gt_frame *frame, const gt_step *step, gantry_event *event, gantry_error *err)
{
    const gantry_domain *table = frame->run->session->domains[step->domain].entry->table;
    return table->event_record(table->self, gt_run_queue(frame->run, step->domain, step->queue), event, err);
}

gantry_status gt_timing_begin(gt_frame *frame, gt_plan_state *state, uint32_t index, gantry_error *err)
{
    gt_step_time *time = &state->times[index];
    time->event_count = 0;
    if (time->from) {
        uint64_t begin = gt_now_ns();
        GT_TRY(record(frame, &state->plan->steps[index], time->from, err));
        frame->measuring_ns += (double)(gt_now_ns() - begin);
        frame->run->stamps += 2;
    }
    time->begin_ns = gt_now_ns();
    return GANTRY_OK;
}

gantry_status gt_timing_end(gt_frame *frame, gt_plan_state *state, uint32_t index, gantry_error *err)
{
    const gt_step *step = &state->plan->steps[index];
    gt_step_time *time = &state->times[index];
    bool fenced = frame->run->session->options.timing == GT_TIMING_FENCED && has_queue_work(step);
    uint64_t end = gt_now_ns();
    double measuring = 0;
    if (time->to) {
        GT_TRY(record(frame, step, time->to, err));
        measuring = (double)(gt_now_ns() - end);
        frame->measuring_ns += measuring;
        frame->run->stamps++;
    }
    if (fenced) {
        const gantry_domain *table = frame->run->session->domains[step->domain].entry->table;
        GT_TRY(table->queue_sync(table->self, gt_run_queue(frame->run, step->domain, step->queue), err));
        end = gt_now_ns();
    } else {
        measuring = 0;
    }
    time->host_ns += (double)(end - time->begin_ns) - measuring;
    frame->run->stamps += 2;
    return GANTRY_OK;
}

void gt_timing_collect(gt_frame *frame, gt_plan_state *state)
{
    uint64_t begin = gt_now_ns();
    for (uint32_t k = 0; k < state->plan->step_count; k++) {
        gt_step_time *time = &state->times[k];
        double elapsed = __builtin_nan("");
        if (time->to) {
            const gantry_domain *table =
                frame->run->session->domains[state->plan->steps[k].domain].entry->table;
            if (table->event_elapsed(table->self, time->from, time->to, &elapsed) != GANTRY_OK ||
                !(elapsed >= 0))
                elapsed = __builtin_nan("");
            time->device_ns += elapsed;
        }
        for (uint32_t m = 0; m < time->event_count && m < time->kernel_count; m++) {
            const gantry_timing_event *event = &time->events[m];
            if (event->kernel_index >= time->kernel_count)
                continue;
            double *sum = &time->kernel_ns[event->kernel_index];
            *sum = (*sum == *sum ? *sum : 0) + (double)event->duration_ns;
        }
        if (state->plan->steps[k].domain == 0)
            frame->run->stamps += 2 * (uint64_t)time->event_count;
    }
    frame->measuring_ns += (double)(gt_now_ns() - begin);
    frame->run->stamps += 2;
}

void gt_timing_bind(gt_frame *frame, uint64_t begin_ns)
{
    begin_run(frame);
    frame->bind_ns += (double)(gt_now_ns() - begin_ns);
    frame->run->stamps += 2;
}

double gt_timing_stamp_ns(void)
{
    enum { READINGS = 256 };
    uint64_t begin = gt_now_ns(), end = begin;
    for (int k = 0; k < READINGS; k++)
        end = gt_now_ns();
    return end > begin ? (double)(end - begin) / READINGS : 1;
}
