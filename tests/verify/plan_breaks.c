/* Mistakes in plans: a step that is missing or stands elsewhere, memory that is used again too early. */
#include "plan_breaks.h"

#include "verify_plan.h"

#include <stdlib.h>

const char *const plan_break_names[BREAK_COUNT] = {
    [BREAK_NO_ORDER] = "no ORDER",
    [BREAK_NO_EVENT_WAIT] = "no WAIT for an event",
    [BREAK_NO_QUEUE_WAIT] = "no WAIT for a queue",
    [BREAK_NO_LAST_WAIT] = "no WAIT at the end",
    [BREAK_LAST_FOR_EVENT] = "a queue is never asked what failed",
    [BREAK_EARLY_RECORD] = "a RECORD before its work",
    [BREAK_NO_RECORD] = "no RECORD",
    [BREAK_REUSED_SOURCE] = "the source of a copy is written over",
    [BREAK_EARLY_TARGET] = "a copy goes where a program still works"};

/* Words of the rule that has to see it. */
static const char *const RULES[BREAK_COUNT] = {[BREAK_NO_ORDER] = "may still",
                                               [BREAK_NO_EVENT_WAIT] = "may still",
                                               [BREAK_NO_QUEUE_WAIT] = "may still",
                                               [BREAK_NO_LAST_WAIT] = "left without a wait",
                                               [BREAK_LAST_FOR_EVENT] = "left without a wait",
                                               [BREAK_EARLY_RECORD] = "may still",
                                               [BREAK_NO_RECORD] = "before it is recorded",
                                               [BREAK_REUSED_SOURCE] = "is overwritten by actor",
                                               [BREAK_EARLY_TARGET] = "is overwritten by actor"};

/* A plan of its own steps and slots. */
static gt_plan copy_of(const gt_plan *plan)
{
    gt_plan copy = *plan;
    copy.steps = malloc((plan->step_count + 1) * sizeof *copy.steps);
    copy.slots = malloc((plan->slot_count + 1) * sizeof *copy.slots);
    if (!copy.steps || !copy.slots)
        abort();
    memcpy(copy.steps, plan->steps, plan->step_count * sizeof *copy.steps);
    memcpy(copy.slots, plan->slots, plan->slot_count * sizeof *copy.slots);
    return copy;
}

static bool is_last_wait(const gt_plan *plan, uint32_t step)
{
    for (uint32_t k = step; k < plan->step_count; k++)
        if (plan->steps[k].kind != GT_STEP_WAIT)
            return false;
    return true;
}

static bool fits(const gt_plan *plan, plan_break what, uint32_t index)
{
    const gt_step *step = &plan->steps[index];
    bool event = step->event != GT_NONE;
    switch (what) {
    case BREAK_NO_ORDER:
        return step->kind == GT_STEP_ORDER;
    case BREAK_NO_EVENT_WAIT:
        return step->kind == GT_STEP_WAIT && event;
    case BREAK_NO_QUEUE_WAIT:
        return step->kind == GT_STEP_WAIT && !event && !is_last_wait(plan, index);
    case BREAK_NO_LAST_WAIT:
        return step->kind == GT_STEP_WAIT && !event && is_last_wait(plan, index);
    case BREAK_LAST_FOR_EVENT:
        return step->kind == GT_STEP_WAIT && !event && is_last_wait(plan, index) && plan->event_count;
    case BREAK_EARLY_RECORD:
    case BREAK_NO_RECORD:
        return step->kind == GT_STEP_RECORD;
    case BREAK_REUSED_SOURCE:
        return step->kind == GT_STEP_TRANSFER &&
               (step->queue == GT_QUEUE_COPY || step->path == GT_PATH_PEER) &&
               plan->slots[step->source].kind == GT_SLOT_ARENA && plan->slots[step->source].domain;
    case BREAK_EARLY_TARGET:
        return step->kind == GT_STEP_TRANSFER && step->queue == GT_QUEUE_COPY &&
               plan->slots[step->target].kind == GT_SLOT_ARENA && plan->slots[step->target].domain;
    case BREAK_COUNT:
        break;
    }
    return false;
}

static void take_out(gt_plan *plan, uint32_t index)
{
    memmove(&plan->steps[index], &plan->steps[index + 1],
            (plan->step_count - index - 1) * sizeof *plan->steps);
    plan->step_count--;
}

/* The RECORD changes places with the work it marks, and whatever is between them. */
static bool record_early(gt_plan *plan, uint32_t index)
{
    gt_step record = plan->steps[index];
    uint32_t at = index;
    while (at > 0 &&
           (plan->steps[at - 1].kind == GT_STEP_RECORD || plan->steps[at - 1].domain != record.domain))
        at--;
    if (at == 0)
        return false;
    at--;
    memmove(&plan->steps[at + 1], &plan->steps[at], (index - at) * sizeof record);
    plan->steps[at] = record;
    return true;
}

/* The first output of a later program of that domain comes to lie where the copy reads. */
static bool reuse_source(gt_plan *plan, uint32_t index)
{
    const gt_slot *source = &plan->slots[plan->steps[index].source];
    for (uint32_t k = index + 1; k < plan->step_count; k++) {
        const gt_step *step = &plan->steps[k];
        gt_slot *target = step->kind == GT_STEP_RUN && step->output_count && step->domain == source->domain
                              ? &plan->slots[step->outputs[0]]
                              : NULL;
        if (!target || target->kind != GT_SLOT_ARENA || !target->bytes || !source->bytes)
            continue;
        target->offset_bytes = source->offset_bytes / 64 * 64;
        return true;
    }
    return false;
}

/* A copy goes to where the last program before it has its first output. */
static bool copy_early(gt_plan *plan, uint32_t index)
{
    gt_slot *target = &plan->slots[plan->steps[index].target];
    for (uint32_t k = index; k-- > 0;) {
        const gt_step *step = &plan->steps[k];
        if (step->kind != GT_STEP_RUN || step->domain != target->domain || !step->output_count)
            continue;
        const gt_slot *output = &plan->slots[step->outputs[0]];
        target->offset_bytes = output->offset_bytes / 64 * 64;
        return output->kind == GT_SLOT_ARENA && output->bytes && target->bytes;
    }
    return false;
}

static bool apply(gt_plan *plan, plan_break what, uint32_t index)
{
    switch (what) {
    case BREAK_EARLY_RECORD:
        return record_early(plan, index);
    case BREAK_REUSED_SOURCE:
        return reuse_source(plan, index);
    case BREAK_EARLY_TARGET:
        return copy_early(plan, index);
    case BREAK_LAST_FOR_EVENT:
        plan->steps[index].event = 0;
        return plan->event_domains[0] == plan->steps[index].domain;
    default:
        take_out(plan, index);
        return true;
    }
}

static void make(plan_breaks *breaks, plan_break what, random_source *random, const gt_variant *variant,
                 const gt_plan *const *plans)
{
    uint32_t s = random_below(random, variant->segment_count), count = 0, chosen = GT_NONE;
    for (uint32_t k = 0; k < plans[s]->step_count; k++)
        if (fits(plans[s], what, k) && random_below(random, ++count) == 0)
            chosen = k;
    if (chosen == GT_NONE)
        return;
    char text[400] = "";
    gt_plan broken = copy_of(plans[s]);
    const gt_plan **all = calloc(variant->segment_count, sizeof(gt_plan *));
    if (!all)
        abort();
    memcpy(all, plans, variant->segment_count * sizeof(gt_plan *));
    all[s] = &broken;
    if (apply(&broken, what, chosen)) {
        bool right = verify_plans(variant, all, text);
        breaks->made[what]++;
        breaks->refused[what] += !right;
        breaks->named[what] += !right && strstr(text, RULES[what]) != NULL;
    }
    free(all);
    free(broken.steps);
    free(broken.slots);
}

void plan_breaks_make(plan_breaks *breaks, random_source *random, const gt_variant *variant,
                      const gt_plan *const *plans)
{
    for (int what = 0; variant->segment_count && what < BREAK_COUNT; what++)
        make(breaks, (plan_break)what, random, variant, plans);
}
