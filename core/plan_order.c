/* Who waits for whom in a plan. The host and the queues of all domains are actors that do their work in
 * order; what one of them knows of the others' work follows from the waits and events of the plan:
 *
 *     a queue knows, of each work it is given, all that the host knew then
 *     WAIT: the host knows all that the queue knows, and all it was given
 *     RECORD, ORDER: the second queue knows all that the first one knew, and had been given, at the RECORD
 *
 * A step may read a slot only when its actor knows of the work that fills it; memory is reused only for work
 * whose actor knows of all that used it before. */
#include "plan_parts.h"

gantry_status gt_plan_order_create(gt_plan_builder *b)
{
    b->actor_count = 2 * b->session->domain_count - 1;
    b->issued = GT_NEW_ARRAY(b->allocator, uint32_t, b->actor_count);
    b->knows = GT_NEW_ARRAY(b->allocator, uint32_t, (size_t)b->actor_count * b->actor_count);
    b->step_of = gt_alloc(b->allocator, b->actor_count * sizeof *b->step_of);
    if (b->step_of)
        memset(b->step_of, 0, b->actor_count * sizeof *b->step_of);
    return b->issued && b->knows && b->step_of ? GANTRY_OK : gt_plan_no_memory(b);
}

void gt_plan_order_destroy(gt_plan_builder *b)
{
    for (uint32_t a = 0; b->step_of && a < b->actor_count; a++)
        gt_vec_free(b->allocator, &b->step_of[a]);
    gt_free(b->allocator, b->issued);
    gt_free(b->allocator, b->knows);
    gt_free(b->allocator, b->step_of);
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

gantry_status gt_plan_add_step(gt_plan_builder *b, gt_step step)
{
    uint32_t index = b->steps.count;
    if (!gt_vec_push(b->allocator, &b->steps, step))
        return gt_plan_no_memory(b);
    if (!is_work(&step))
        return GANTRY_OK;
    uint32_t actor = gt_plan_actor(step.domain, step.queue);
    learn(known(b, actor), known(b, GT_ACTOR_HOST), b->actor_count);
    known(b, actor)[actor] = ++b->issued[actor];
    return gt_vec_push(b->allocator, &b->step_of[actor], index) ? GANTRY_OK : gt_plan_no_memory(b);
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
    uint32_t actor = gt_plan_actor(domain, GT_QUEUE_COMPUTE);
    learn(known(b, actor), known(b, GT_ACTOR_HOST), b->actor_count);
    known(b, actor)[actor] = ++b->issued[actor];
    return gt_vec_push(b->allocator, &b->step_of[actor], b->steps.count - 1) ? GANTRY_OK
                                                                             : gt_plan_no_memory(b);
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

/* What the host knows to be read is free again: it lives up to here. */
static void free_foreign(gt_plan_builder *b)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < b->foreign.count; k++) {
        gt_foreign_read read = b->foreign.data[k];
        if (known(b, GT_ACTOR_HOST)[read.actor] >= read.op)
            gt_plan_use_slot(b, read.slot);
        else
            b->foreign.data[kept++] = read;
    }
    b->foreign.count = kept;
}

static gantry_status add_wait(gt_plan_builder *b, uint32_t actor)
{
    gt_step wait = {.kind = GT_STEP_WAIT, .value = GT_NONE, .partition = GT_NONE, .workspace = GT_NO_SLOT};
    queue_of(actor, &wait.domain, &wait.queue);
    learn(known(b, GT_ACTOR_HOST), known(b, actor), b->actor_count);
    free_foreign(b);
    return gt_plan_add_step(b, wait);
}

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
        if (known(b, GT_ACTOR_HOST)[actor] >= b->issued[actor])
            continue;
        if (may_leave && !touches_host(b, actor))
            b->plan->leaves_work = true;
        else
            GT_TRY(add_wait(b, actor));
    }
    return GANTRY_OK;
}

/* ---- events ---------------------------------------------------------------------------------- */

static gantry_status add_event_step(gt_plan_builder *b, gt_step_kind kind, uint32_t domain, uint32_t queue,
                                    uint32_t event)
{
    return gt_plan_add_step(b, (gt_step){.kind = kind,
                                         .value = GT_NONE,
                                         .domain = domain,
                                         .queue = queue,
                                         .event = event,
                                         .partition = GT_NONE,
                                         .workspace = GT_NO_SLOT});
}

gantry_status gt_plan_record(gt_plan_builder *b, uint32_t domain, uint32_t queue, uint32_t *out_event)
{
    uint32_t actor = gt_plan_actor(domain, queue);
    for (uint32_t k = b->events.count; k-- > 0;)
        if (b->events.data[k].actor == actor && b->events.data[k].op == b->issued[actor]) {
            *out_event = k;
            return GANTRY_OK;
        }
    gt_plan_event event = {domain, actor, b->issued[actor]};
    *out_event = b->events.count;
    if (!gt_vec_push(b->allocator, &b->events, event))
        return gt_plan_no_memory(b);
    return add_event_step(b, GT_STEP_RECORD, domain, queue, *out_event);
}

gantry_status gt_plan_await(gt_plan_builder *b, uint32_t domain, uint32_t queue, uint32_t event)
{
    uint32_t actor = gt_plan_actor(domain, queue);
    const gt_plan_event *e = &b->events.data[event];
    if (known(b, actor)[e->actor] >= e->op || known(b, GT_ACTOR_HOST)[e->actor] >= e->op)
        return GANTRY_OK;
    known(b, actor)[e->actor] = e->op;
    return add_event_step(b, GT_STEP_ORDER, domain, queue, event);
}

gantry_status gt_plan_make_ready(gt_plan_builder *b, uint32_t slot, uint32_t domain, uint32_t queue)
{
    gt_draft_slot root = *gt_plan_root(b, slot);
    uint32_t actor = gt_plan_actor(domain, queue), event, of, of_queue;
    if (root.writer == GT_ACTOR_HOST || root.writer == actor ||
        known(b, GT_ACTOR_HOST)[root.writer] >= root.write_op ||
        known(b, actor)[root.writer] >= root.write_op)
        return GANTRY_OK;
    queue_of(root.writer, &of, &of_queue);
    if (domain == 0 || of != domain)
        return add_wait(b, root.writer);
    GT_TRY(gt_plan_record(b, of, of_queue, &event));
    return gt_plan_await(b, domain, queue, event);
}

uint32_t gt_plan_unordered_since(const gt_plan_builder *b, uint32_t domain, uint32_t queue)
{
    uint32_t actor = gt_plan_actor(domain, queue), other = gt_plan_actor(domain, 1 - queue);
    uint32_t done = known(b, actor)[other];
    if (done < known(b, GT_ACTOR_HOST)[other])
        done = known(b, GT_ACTOR_HOST)[other];
    return done < b->step_of[other].count ? b->step_of[other].data[done] : b->steps.count;
}
