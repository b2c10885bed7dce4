/* What runs took, from the counters and times that frames keep; and the account of the last one, which adds
 * up. */
#include "report.h"

#include <stdlib.h>

static double not_measured(void)
{
    return __builtin_nan("");
}

bool gt_report_ran(const gt_plan_state *state, const gt_frame *frame)
{
    return state->run_executions && state->run_number == frame->run->number;
}

double gt_report_step_ns(const gt_frame *frame, const gt_plan_state *state, uint32_t step)
{
    if (!state->times || !gt_report_ran(state, frame))
        return not_measured();
    const gt_step_time *time = &state->times[step];
    bool host = state->plan->steps[step].domain == 0 || state->plan->steps[step].kind == GT_STEP_WAIT;
    if (host ||
        (time->device_ns != time->device_ns && frame->run->session->options.timing == GT_TIMING_FENCED))
        return time->host_ns;
    return time->device_ns;
}

gt_report_ran_partition gt_report_partition_ran(const gt_report_part *part, uint32_t partition)
{
    gt_report_ran_partition sum = {0, not_measured(), not_measured()};
    for (uint32_t s = 0; part->frame && s < part->frame->states.count; s++) {
        const gt_plan_state *state = part->frame->states.data[s];
        if (!gt_report_ran(state, part->frame))
            continue;
        for (uint32_t k = 0; k < state->plan->step_count; k++) {
            const gt_step *step = &state->plan->steps[k];
            if ((step->kind != GT_STEP_RUN && step->kind != GT_STEP_CONTROL) || step->partition != partition)
                continue;
            bool first = sum.executions == 0;
            bool launched = state->times && step->kind == GT_STEP_RUN && step->domain != 0;
            double launch_ns = launched ? state->times[k].host_ns : not_measured();
            sum.ns = gt_report_step_ns(part->frame, state, k) + (first ? 0 : sum.ns);
            sum.launch_ns = launch_ns + (first ? 0 : sum.launch_ns);
            sum.executions += state->run_executions;
        }
    }
    return sum;
}

/* ---- the last runs --------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The time that a share of the kept runs stayed below (nearest rank). */
static json_t *percentile(const uint64_t *sorted, uint32_t count, double share)
{
    uint32_t rank = (uint32_t)(share * count);
    return gt_report_us((double)sorted[rank < count ? rank : count - 1]);
}

static json_t *steady_of(const gt_run_times *times)
{
    uint64_t sorted[GT_RUN_TIMES];
    uint32_t kept = times->steady_count < GT_RUN_TIMES ? (uint32_t)times->steady_count : GT_RUN_TIMES;
    json_t *row = json_object();
    json_object_set_new(row, "count", gt_report_count(times->steady_count));
    json_object_set_new(row, "kept", gt_report_count(kept));
    static const struct {
        const char *key;
        double share;
    } POINTS[] = {{"min_us", 0}, {"p10_us", 0.1}, {"p50_us", 0.5}, {"p90_us", 0.9}, {"max_us", 1}};
    memcpy(sorted, times->steady_ns, kept * sizeof *sorted);
    qsort(sorted, kept, sizeof *sorted, compare_times);
    for (size_t k = 0; k < sizeof POINTS / sizeof *POINTS; k++)
        json_object_set_new(row, POINTS[k].key,
                            kept ? percentile(sorted, kept, POINTS[k].share) : json_string(GT_NOT_MEASURED));
    return row;
}

/* ---- the account of one run ------------------------------------------------------------------ */

typedef enum run_class {
    CLASS_BIND,
    CLASS_COMPUTE,
    CLASS_LAUNCH,
    CLASS_COPY,
    CLASS_CONVERT,
    CLASS_WAIT,
    CLASS_ORDER,
    CLASS_LOCK_WAIT,
    CLASS_CONTROL,
    CLASS_MEASURING,
    CLASS_COUNT
} run_class;

static const char *const CLASS_NAMES[CLASS_COUNT] = {
    "bind", "host_compute", "launch",    "copy_calls",   "convert",
    "wait", "order_queues", "lock_wait", "control_flow", "measuring"};

typedef struct run_sums {
    double ns[CLASS_COUNT];
    uint64_t count[CLASS_COUNT];
} run_sums;

static run_class class_of(const gt_step *step)
{
    switch (step->kind) {
    case GT_STEP_RUN:
        return step->domain ? CLASS_LAUNCH : CLASS_COMPUTE;
    case GT_STEP_TRANSFER:
        return CLASS_COPY;
    case GT_STEP_CONVERT:
        return CLASS_CONVERT;
    case GT_STEP_WAIT:
        return CLASS_WAIT;
    case GT_STEP_RECORD:
    case GT_STEP_ORDER:
        return CLASS_ORDER;
    case GT_STEP_CONTROL:
        break;
    }
    return CLASS_CONTROL;
}

/* A control step's time holds all that the frames below did: what they account for is taken out of it. */
static void add_frame(const gt_frame *frame, bool root, run_sums *sums)
{
    if (frame->timed_run != frame->run->number)
        return;
    double own = frame->bind_ns + frame->measuring_ns;
    sums->ns[CLASS_BIND] += frame->bind_ns;
    sums->ns[CLASS_MEASURING] += frame->measuring_ns;
    for (uint32_t s = 0; s < frame->states.count; s++) {
        const gt_plan_state *state = frame->states.data[s];
        if (!state->times || !gt_report_ran(state, frame))
            continue;
        for (uint32_t k = 0; k < state->plan->step_count; k++) {
            run_class class = class_of(&state->plan->steps[k]);
            sums->ns[class] += state->times[k].host_ns;
            sums->count[class] += state->run_executions;
            own += state->times[k].host_ns;
        }
    }
    if (!root)
        sums->ns[CLASS_CONTROL] -= own;
}

/* Waits for providers' locks lie inside of other classes: they are taken out of those. */
static void separate_lock_waits(const gantry_run *run, run_sums *sums)
{
    for (uint32_t k = 0; k < run->session->provider_count; k++) {
        const gt_lock_wait *wait = &run->waits[k];
        const run_class within[GT_WAIT_COUNT] = {
            [GT_WAIT_RUN] = run->session->providers[k].domain ? CLASS_LAUNCH : CLASS_COMPUTE,
            [GT_WAIT_CONTEXT] = CLASS_BIND,
            [GT_WAIT_CONVERT] = CLASS_CONVERT};
        for (int w = 0; w < GT_WAIT_COUNT; w++) {
            sums->ns[within[w]] -= (double)wait->ns[w];
            sums->ns[CLASS_LOCK_WAIT] += (double)wait->ns[w];
        }
        sums->count[CLASS_LOCK_WAIT] += wait->count;
    }
}

/* Of providers that let callers wait, also of those where nobody had to. */
static json_t *lock_waits_of(const gantry_run *run)
{
    json_t *rows = json_array();
    for (uint32_t k = 0; k < run->session->provider_count; k++) {
        const gt_session_provider *provider = &run->session->providers[k];
        const gt_lock_wait *wait = &run->waits[k];
        if (!provider->entry || provider->entry->info.concurrency == GANTRY_CONCURRENCY_FREE)
            continue;
        double ns = 0;
        for (int w = 0; w < GT_WAIT_COUNT; w++)
            ns += (double)wait->ns[w];
        json_array_append_new(
            rows, json_pack("{s:o, s:I, s:f, s:I, s:f}", "provider", gt_report_string(provider->name),
                            "count", (json_int_t)wait->count, "us", ns / 1e3, "total_count",
                            (json_int_t)wait->total_count, "total_us", (double)wait->total_ns / 1e3));
    }
    return rows;
}

/* What the queues of one device domain did meanwhile, by its own clock. */
static json_t *device_of(const gt_report_scope *scope, uint32_t domain)
{
    double kernels = 0, copies = 0;
    uint64_t launches = 0, copied = 0;
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_frame *frame = scope->parts[p].frame;
        for (uint32_t s = 0; frame && s < frame->states.count; s++) {
            const gt_plan_state *state = frame->states.data[s];
            for (uint32_t k = 0; gt_report_ran(state, frame) && k < state->plan->step_count; k++) {
                const gt_step *step = &state->plan->steps[k];
                if (step->domain != domain || step->kind == GT_STEP_WAIT || step->kind == GT_STEP_CONTROL ||
                    step->kind == GT_STEP_RECORD || step->kind == GT_STEP_ORDER)
                    continue;
                bool copy = step->kind == GT_STEP_TRANSFER;
                *(copy ? &copies : &kernels) += gt_report_step_ns(frame, state, k);
                *(copy ? &copied : &launches) += state->run_executions;
            }
        }
    }
    json_t *row = json_object();
    json_object_set_new(row, "domain", gt_report_string(scope->session->domains[domain].name));
    json_object_set_new(row, "programs", gt_report_count(launches));
    json_object_set_new(row, "programs_us", gt_report_measured_us(launches ? kernels : 0));
    json_object_set_new(row, "copies", gt_report_count(copied));
    json_object_set_new(row, "copies_us", gt_report_measured_us(copied ? copies : 0));
    return row;
}

static json_t *account_of(const gt_report_scope *scope)
{
    static const char *const MODES[] = {"off", "events", "fenced"};
    const gantry_run *run = scope->run;
    bool timed = run->stamp_ns > 0 && run->executed;
    double wall = (double)(run->last_end_ns - run->last_begin_ns), sum = 0;
    run_sums sums = {{0}, {0}};
    for (uint32_t p = 0; timed && p < scope->part_count; p++)
        if (scope->parts[p].frame)
            add_frame(scope->parts[p].frame, p == 0, &sums);
    if (timed)
        separate_lock_waits(run, &sums);
    json_t *classes = json_array(), *devices = json_array();
    for (int k = 0; timed && k < CLASS_COUNT; k++) {
        sum += sums.ns[k];
        if (sums.ns[k] <= 0 && !sums.count[k])
            continue;
        json_array_append_new(classes, json_pack("{s:s, s:f, s:f, s:I}", "name", CLASS_NAMES[k], "us",
                                                 sums.ns[k] / 1e3, "share", wall > 0 ? sums.ns[k] / wall : 0,
                                                 "count", (json_int_t)sums.count[k]));
    }
    for (uint32_t d = 1; timed && d < scope->session->domain_count; d++)
        json_array_append_new(devices, device_of(scope, d));
    json_t *account =
        json_pack("{s:s, s:s, s:o, s:o}", "mode", MODES[scope->session->options.timing], "clock",
                  "CLOCK_MONOTONIC; devices: their own", "classes", classes, "devices", devices);
    double nothing = not_measured();
    json_object_set_new(account, "wall_us", gt_report_measured_us(run->executed ? wall : nothing));
    json_object_set_new(account, "remainder_us", gt_report_measured_us(timed ? wall - sum : nothing));
    json_object_set_new(account, "remainder_share",
                        gt_report_measured(timed && wall > 0 ? (wall - sum) / wall : nothing));
    json_object_set_new(account, "stamps", gt_report_count(timed ? run->stamps : 0));
    json_object_set_new(account, "stamp_ns", gt_report_measured(timed ? run->stamp_ns : nothing));
    json_object_set_new(account, "overhead_us",
                        gt_report_measured_us(timed ? (double)run->stamps * run->stamp_ns : 0));
    return account;
}

json_t *gt_report_run(const gt_report_scope *scope)
{
    const gantry_run *run = scope->run;
    if (!run)
        return json_null();
    const gt_run_times *times = &run->times;
    double nothing = not_measured();
    json_t *row = json_object();
    json_object_set_new(row, "count", gt_report_count(run->number));
    json_object_set_new(row, "finished", gt_report_count(times->finished));
    json_object_set_new(row, "first_us",
                        gt_report_measured_us(times->finished > 0 ? times->first_ns : nothing));
    json_object_set_new(row, "second_us",
                        gt_report_measured_us(times->finished > 1 ? times->second_ns : nothing));
    json_object_set_new(
        row, "last_us",
        gt_report_measured_us(run->executed ? (double)(run->last_end_ns - run->last_begin_ns) : nothing));
    json_object_set_new(row, "steady", steady_of(times));
    json_object_set_new(row, "threads", json_integer(run->threads));
    json_object_set_new(row, "plan_lookups",
                        json_pack("{s:I, s:I, s:I, s:I}", "same", (json_int_t)run->plans.same, "held",
                                  (json_int_t)run->plans.held, "cached", (json_int_t)run->plans.cached,
                                  "made", (json_int_t)run->plans.made));
    json_object_set_new(row, "lock_waits", lock_waits_of(run));
    json_object_set_new(row, "account", account_of(scope));
    return row;
}
