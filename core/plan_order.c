/* Who waits for whom in a plan. The host and the queues of all domains are actors that do their work in
 * order; what one of them knows of the others' work follows from the waits and events of the plan:
 *
 *     a queue knows, of each work it is given, all that the host knew then
 *     WAIT for a queue: the host knows all that the queue knows, and all it was given
 *     WAIT for an event: the host knows what the queue knew at the RECORD, and what it had been given then
 *     RECORD, ORDER: the same, of another queue
 *
 * An event belongs to the work that somebody waits for, and is recorded behind it: what the queue is given
 * between that work and the wait delays nobody. Where nothing was, the host waits for the queue.
 *
 * A step may read a slot only when its actor knows of the work that fills it; memory is reused only for work
 * whose actor knows of all that used it before. */
#include "plan_parts.h"

gantry_status gt_plan_order_create(gt_plan_builder *b)
{
    b->actor_count = 2 * b->session->domain_count - 1;
    b->issued = GT_NEW_ARRAY(b->allocator, uint32_t, b->actor_count);
    b->knows = GT_NEW_ARRAY(b->allocator, uint32_t, (size_t)b->actor_count * b->actor_count);
    b->asked = GT_NEW_ARRAY(b->allocator, uint32_t, b->actor_count);
    b->histories = GT_NEW_ARRAY(b->allocator, gt_plan_history, b->actor_count);
    return b->issued && b->knows && b->asked && b->histories ? GANTRY_OK : gt_plan_no_memory(b);
}

void gt_plan_order_destroy(gt_plan_builder *b)
{
    for (uint32_t a = 0; b->histories && a < b->actor_count; a++) {
        gt_vec_free(b->allocator, &b->histories[a].works);
        gt_vec_free(b->allocator, &b->histories[a].knew);
    }
    gt_free(b->allocator, b->issued);
    gt_free(b->allocator, b->knows);
    gt_free(b->allocator, b->asked);
    gt_free(b->allocator, b->histories);
    gt_vec_free(b->allocator, &b->foreign);
    gt_vec_free(b->allocator, &b->events);
}

static uint32_t *known(const gt_plan_builder *b, uint32_t actor)
{
    return &b->knows[(size_t)actor * b->actor_count];
}

static void learn(uint32_t *knows, const uint32_t *from, uint32_t count)
{
    for (uint32_t a = 0; a < count; a++)
        if (knows[a] < from[a])
            knows[a] = from[a];
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool is_work(const gt_step *step)
{
    return step->domain != 0 && step->kind != GT_STEP_WAIT && step->kind != GT_STEP_RECORD &&
           step->kind != GT_STEP_ORDER && step->kind != GT_STEP_CONTROL;
}

/* The step that was added last is work of an actor. */
static gantry_status give(gt_plan_builder *b, uint32_t actor)
{
    gt_plan_history *history = &b->histories[actor];
    gt_plan_work work = {b->steps.count - 1, GT_NONE};
    learn(known(b, actor), known(b, GT_ACTOR_HOST), b->actor_count);
    known(b, actor)[actor] = ++b->issued[actor];
    bool kept = gt_vec_push(b->allocator, &history->works, work);
    for (uint32_t a = 0; kept && a < b->actor_count; a++)
        kept = gt_vec_push(b->allocator, &history->knew, known(b, actor)[a]);
    return kept ? GANTRY_OK : gt_plan_no_memory(b);
}

gantry_status gt_plan_add_step(gt_plan_builder *b, gt_step step)
{
    if (!gt_vec_push(b->allocator, &b->steps, step))
        return gt_plan_no_memory(b);
    return is_work(&step) ? give(b, gt_plan_actor(step.domain, step.queue)) : GANTRY_OK;
}

void gt_plan_use_slot(gt_plan_builder *b, uint32_t slot)
{
    gt_draft_slot *root = gt_plan_root(b, slot);
    if (root->last < b->steps.count)
        root->last = b->steps.count;
}

static uint32_t last_actor(const gt_plan_builder *b)
{
    const gt_step *step = &b->steps.data[b->steps.count - 1];
    return is_work(step) ? gt_plan_actor(step->domain, step->queue) : GT_ACTOR_HOST;
}

void gt_plan_note_write(gt_plan_builder *b, uint32_t slot)
{
    gt_draft_slot *root = gt_plan_root(b, slot);
    root->writer = last_actor(b);
    root->write_op = b->issued[root->writer];
}

gantry_status gt_plan_note_foreign_read(gt_plan_builder *b, uint32_t slot)
{
    uint32_t actor = last_actor(b);
    gt_foreign_read read = {slot, actor, b->issued[actor]};
    return gt_vec_push(b->allocator, &b->foreign, read) ? GANTRY_OK : gt_plan_no_memory(b);
}

gantry_status gt_plan_note_left(gt_plan_builder *b, uint32_t domain)
{
    return give(b, gt_plan_actor(domain, GT_QUEUE_COMPUTE));
}

void gt_plan_note_left_write(gt_plan_builder *b, uint32_t slot)
{
    gt_draft_slot *root = gt_plan_root(b, slot);
    root->writer = gt_plan_actor(b->slots.data[slot].domain, GT_QUEUE_COMPUTE);
    root->write_op = b->issued[root->writer];
}

/* ---- waits ----------------------------------------------------------------------------------- */

static void queue_of(uint32_t actor, uint32_t *out_domain, uint32_t *out_queue)
{
    *out_domain = (actor + 1) / 2;
    *out_queue = actor + 1 - 2 * *out_domain;
}

/* Whether all who may write to memory that was read know that it was. */
static bool is_known_read(const gt_plan_builder *b, const gt_foreign_read *read)
{
    uint32_t domain = b->slots.data[read->slot].domain;
    bool own = domain && domain == (read->actor + 1) / 2;
    return known(b, GT_ACTOR_HOST)[read->actor] >= read->op ||
           (own && known(b, gt_plan_actor(domain, GT_QUEUE_COMPUTE))[read->actor] >= read->op);
}

/* What is known to be read is free again: it lives up to here. */
static void free_foreign(gt_plan_builder *b)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < b->foreign.count; k++) {
        if (is_known_read(b, &b->foreign.data[k]))
            gt_plan_use_slot(b, b->foreign.data[k].slot);
        else
            b->foreign.data[kept++] = b->foreign.data[k];
    }
    b->foreign.count = kept;
}

static gantry_status add_wait(gt_plan_builder *b, uint32_t domain, uint32_t queue, uint32_t event)
{
    free_foreign(b);
    return gt_plan_add_step(b, (gt_step){.kind = GT_STEP_WAIT,
                                         .value = GT_NONE,
                                         .domain = domain,
                                         .queue = queue,
                                         .event = event,
                                         .partition = GT_NONE,
                                         .workspace = GT_NO_SLOT});
}

/* Until the queue is idle; it says what failed on the way. */
static gantry_status wait_for_queue(gt_plan_builder *b, uint32_t actor)
{
    uint32_t domain, queue;
    queue_of(actor, &domain, &queue);
    learn(known(b, GT_ACTOR_HOST), known(b, actor), b->actor_count);
    b->asked[actor] = b->issued[actor];
    return add_wait(b, domain, queue, GT_NONE);
}

/* The event that marks a work of an actor. */
static gantry_status event_of(gt_plan_builder *b, uint32_t actor, uint32_t op, uint32_t *out_event)
{
    gt_plan_work *work = &b->histories[actor].works.data[op - 1];
    if (work->event == GT_NONE) {
        gt_plan_event event = {.step = work->step};
        queue_of(actor, &event.domain, &event.queue);
        if (!gt_vec_push(b->allocator, &b->events, event))
            return gt_plan_no_memory(b);
        work->event = b->events.count - 1;
    }
    *out_event = work->event;
    return GANTRY_OK;
}

/* What an actor knew with a work of its, and that it is done. */
static const uint32_t *knowledge_of(const gt_plan_builder *b, uint32_t actor, uint32_t op)
{
    return &b->histories[actor].knew.data[(size_t)(op - 1) * b->actor_count];
}

static gantry_status wait_for_work(gt_plan_builder *b, uint32_t actor, uint32_t op)
{
    uint32_t domain, queue, event;
    queue_of(actor, &domain, &queue);
    if (op == b->issued[actor] || !b->session->domains[domain].events)
        return wait_for_queue(b, actor);
    GT_TRY(event_of(b, actor, op, &event));
    learn(known(b, GT_ACTOR_HOST), knowledge_of(b, actor, op), b->actor_count);
    return add_wait(b, domain, queue, event);
}

/* A queue goes on when another one of its domain has done so much. */
static gantry_status order(gt_plan_builder *b, uint32_t actor, uint32_t after, uint32_t op)
{
    gt_step step = {.kind = GT_STEP_ORDER, .value = GT_NONE, .partition = GT_NONE, .workspace = GT_NO_SLOT};
    if (known(b, actor)[after] >= op || known(b, GT_ACTOR_HOST)[after] >= op)
        return GANTRY_OK;
    queue_of(actor, &step.domain, &step.queue);
    GT_TRY(event_of(b, after, op, &step.event));
    learn(known(b, actor), knowledge_of(b, after, op), b->actor_count);
    free_foreign(b);
    return gt_plan_add_step(b, step);
}

gantry_status gt_plan_await_compute(gt_plan_builder *b, uint32_t domain, uint32_t op)
{
    return op ? order(b, gt_plan_actor(domain, GT_QUEUE_COPY), gt_plan_actor(domain, GT_QUEUE_COMPUTE), op)
              : GANTRY_OK;
}

gantry_status gt_plan_make_ready(gt_plan_builder *b, uint32_t slot, uint32_t domain, uint32_t queue)
{
    gt_draft_slot root = *gt_plan_root(b, slot);
    uint32_t actor = gt_plan_actor(domain, queue);
    if (root.writer == GT_ACTOR_HOST || root.writer == actor ||
        known(b, GT_ACTOR_HOST)[root.writer] >= root.write_op ||
        known(b, actor)[root.writer] >= root.write_op)
        return GANTRY_OK;
    return domain == 0 || domain != (root.writer + 1) / 2 ? wait_for_work(b, root.writer, root.write_op)
                                                          : order(b, actor, root.writer, root.write_op);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The queue of the plan's own is the only one that touches its domain's memory, and it goes on in order. */
bool gt_plan_one_queue_each(const gantry_session *session)
{
    for (uint32_t d = 1; d < session->domain_count; d++)
        if (session->domains[d].copy_queue || session->domains[d].peers)
            return false;
    return true;
}

/* Host memory that the queue may still read or write, besides what never changes. */
static bool touches_host(const gt_plan_builder *b, uint32_t actor)
{
    for (uint32_t k = 0; k < b->foreign.count; k++) {
        gt_slot_kind kind = b->slots.data[b->foreign.data[k].slot].kind;
        if (b->foreign.data[k].actor == actor && kind != GT_SLOT_CONSTANT && kind != GT_SLOT_BIND)
            return true;
    }
    for (uint32_t k = 0; k < b->slots.count; k++)
        if (b->slots.data[k].domain == 0 && b->drafts.data[k].root == k &&
            b->drafts.data[k].writer == actor && known(b, GT_ACTOR_HOST)[actor] < b->drafts.data[k].write_op)
            return true;
    return false;
}

/* What a body has on devices need not be done when the next iteration is given to the same queues: only the
 * host has to wait for what it reads, and for what times and sizes are told with. */
static bool may_leave_work(const gt_plan_builder *b)
{
    const gt_options *options = &b->session->options;
    bool last = b->plan->segment + 1 == b->variant->segment_count && b->segment->result_count == 0;
    bool may = b->variant->body && last && options->timing == GT_TIMING_OFF && !options->numeric_check &&
               gt_plan_one_queue_each(b->session);
    for (uint32_t v = 0; may && v < b->plan->value_count; v++)
        may = !b->plan->shapes[v].bounded;
    return may;
}

gantry_status gt_plan_finish(gt_plan_builder *b)
{
    bool may_leave = may_leave_work(b);
    for (uint32_t actor = 1; actor < b->actor_count; actor++) {
        if (b->asked[actor] == b->issued[actor])
            continue;
        if (may_leave && !touches_host(b, actor))
            b->plan->leaves_work = true;
        else
            GT_TRY(wait_for_queue(b, actor));
    }
    return GANTRY_OK;
}

uint32_t gt_plan_unordered_since(const gt_plan_builder *b, uint32_t domain, uint32_t queue)
{
    uint32_t actor = gt_plan_actor(domain, queue), other = gt_plan_actor(domain, 1 - queue);
    uint32_t done = known(b, actor)[other];
    if (done < known(b, GT_ACTOR_HOST)[other])
        done = known(b, GT_ACTOR_HOST)[other];
    return done < b->issued[other] ? b->histories[other].works.data[done].step : b->steps.count;
}

/* ---- the plan's steps ------------------------------------------------------------------------ */

/* Events by the step that they are recorded behind: heads[step], then next[event]; GT_NONE ends a list. */
static gantry_status list_events(gt_plan_builder *b, uint32_t **out_heads, uint32_t **out_next)
{
    size_t heads_bytes = ((size_t)b->steps.count + 1) * sizeof **out_heads;
    *out_heads = gt_alloc(b->allocator, heads_bytes);
    *out_next = GT_NEW_ARRAY(b->allocator, uint32_t, b->events.count + 1);
    if (!*out_heads || !*out_next)
        return gt_plan_no_memory(b);
    memset(*out_heads, 0xff, heads_bytes);
    for (uint32_t k = 0; k < b->events.count; k++) {
        (*out_next)[k] = (*out_heads)[b->events.data[k].step];
        (*out_heads)[b->events.data[k].step] = k;
    }
    return GANTRY_OK;
}

static gt_step record_of(const gt_plan_builder *b, uint32_t event)
{
    return (gt_step){.kind = GT_STEP_RECORD,
                     .value = GT_NONE,
                     .domain = b->events.data[event].domain,
                     .queue = b->events.data[event].queue,
                     .event = event,
                     .partition = GT_NONE,
                     .workspace = GT_NO_SLOT};
}

/* Lifetimes count the steps without RECORDs, which touch no memory. */
gantry_status gt_plan_keep_steps(gt_plan_builder *b)
{
    gt_plan *plan = b->plan;
    uint32_t *heads = NULL, *next = NULL, at = 0;
    plan->step_count = b->steps.count + b->events.count;
    plan->steps = GT_ARENA_ARRAY(&plan->arena, gt_step, plan->step_count);
    gantry_status status = plan->steps ? GANTRY_OK : gt_plan_no_memory(b);
    if (status == GANTRY_OK && b->events.count)
        status = list_events(b, &heads, &next);
    for (uint32_t k = 0; status == GANTRY_OK && k < b->steps.count; k++) {
        plan->steps[at++] = b->steps.data[k];
        for (uint32_t e = b->events.count ? heads[k] : GT_NONE; e != GT_NONE; e = next[e])
            plan->steps[at++] = record_of(b, e);
    }
    gt_free(b->allocator, heads);
    gt_free(b->allocator, next);
    return status;
}
