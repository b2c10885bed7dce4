/* The order of the plan verifier: which actor knows of whose work, and that nobody touches bytes that
 * somebody else may still be at. */
#include "verify_plan_parts.h"

static uint32_t *clock_of(const verifier *v, uint32_t actor)
{
    return &v->clock[(size_t)actor * v->actors];
}

static void join(const verifier *v, uint32_t *clock, const uint32_t *from)
{
    for (uint32_t a = 0; a < v->actors; a++)
        clock[a] = clock[a] < from[a] ? from[a] : clock[a];
}

static bool check_queue(verifier *v, const gt_step *step)
{
    CHECK(step->domain < v->session->domain_count && step->queue <= 1, "queue %u of domain %u", step->queue,
          step->domain);
    CHECK(!step->queue || v->session->domains[step->domain].copy_queue, "domain %u has one queue",
          step->domain);
    return true;
}

bool verify_begin(verifier *v, const gt_step *step)
{
    if (!check_queue(v, step))
        return false;
    uint32_t actor = verify_actor(step->domain, step->queue);
    if (!actor)
        return true;
    join(v, clock_of(v, actor), clock_of(v, 0));
    clock_of(v, actor)[actor] = ++v->issued[actor];
    return true;
}

void verify_leave_work(verifier *v, uint32_t domain)
{
    uint32_t actor = verify_actor(domain, 0);
    join(v, clock_of(v, actor), clock_of(v, 0));
    clock_of(v, actor)[actor] = ++v->issued[actor];
}

/* What the host knows to be done is in nobody's way: all work that is given out from now on knows it too. */
static void forget_done(verifier *v)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < v->flights.count; k++)
        if (clock_of(v, 0)[v->flights.data[k].actor] < v->flights.data[k].op)
            v->flights.data[kept++] = v->flights.data[k];
    v->flights.count = kept;
}

static bool check_event(verifier *v, const gt_step *step)
{
    CHECK(step->event < v->plan->event_count && v->plan->event_domains[step->event] == step->domain,
          "event %u for domain %u", step->event, step->domain);
    CHECK(step->domain > 0 && v->session->domains[step->domain].events, "an event of domain %u",
          step->domain);
    return check_queue(v, step);
}

/* What the queue knew that recorded the event of a step; NULL: none did, or the event makes no sense. */
static const uint32_t *mark_of(verifier *v, const gt_step *step)
{
    if (!check_event(v, step))
        return NULL;
    const uint32_t *mark = &v->marks[(size_t)step->event * v->actors];
    for (uint32_t a = 0; a < v->actors; a++)
        if (mark[a])
            return mark;
    verify_wrong(v, "event %u is awaited before it is recorded", step->event);
    return NULL;
}

/* Only who waits for the queue itself learns what failed in it. */
bool verify_wait(verifier *v, const gt_step *step)
{
    CHECK(step->domain > 0, "a wait for the host");
    uint32_t actor = verify_actor(step->domain, step->queue);
    if (!check_queue(v, step))
        return false;
    const uint32_t *mark = step->event == GT_NONE ? clock_of(v, actor) : mark_of(v, step);
    if (!mark)
        return false;
    if (step->event == GT_NONE)
        v->asked[actor] = v->issued[actor];
    join(v, clock_of(v, 0), mark);
    forget_done(v);
    return true;
}

bool verify_record(verifier *v, const gt_step *step)
{
    if (!check_event(v, step))
        return false;
    memcpy(&v->marks[(size_t)step->event * v->actors], clock_of(v, verify_actor(step->domain, step->queue)),
           v->actors * sizeof *v->marks);
    return true;
}

bool verify_order(verifier *v, const gt_step *step)
{
    const uint32_t *mark = mark_of(v, step);
    if (!mark)
        return false;
    CHECK(v->session->domains[step->domain].copy_queue, "domain %u has no queues to be ordered",
          step->domain);
    join(v, clock_of(v, verify_actor(step->domain, step->queue)), mark);
    return true;
}

bool verify_is_free(verifier *v, const range *r, uint32_t actor, bool writes, const char *what)
{
    for (uint32_t k = 0; k < v->flights.count; k++) {
        const flight *f = &v->flights.data[k];
        range other = {f->space, f->begin, f->end, 0};
        CHECK(f->actor == actor || !verify_overlaps(r, &other) || !(writes || f->writes) ||
                  clock_of(v, actor)[f->actor] >= f->op,
              "%s is %s by %s %u while queue %u of domain %u may still %s it", what,
              writes ? "overwritten" : "read", actor ? "actor" : "the host,", actor, (f->actor - 1) % 2,
              (f->actor + 1) / 2, f->writes ? "write" : "read");
    }
    return true;
}

bool verify_settled(verifier *v, const range *r, uint32_t actor, bool writes, const char *what)
{
    if (!verify_is_free(v, r, actor, writes, what))
        return false;
    flight f = {r->space, r->begin, r->end, actor, v->issued[actor], writes};
    if (actor && r->begin < r->end && !gt_vec_push(&v->allocator, &v->flights, f))
        abort();
    return true;
}

bool verify_one_queue_each(const verifier *v)
{
    for (uint32_t d = 1; d < v->session->domain_count; d++)
        if (v->session->domains[d].copy_queue || v->session->domains[d].peers)
            return false;
    return true;
}

/* A body may leave work on a queue that is alone with its memory; no host memory that changes may be in it.
 */
static bool check_left(verifier *v, uint32_t actor)
{
    CHECK(v->variant->body && v->number + 1 == v->variant->segment_count && verify_one_queue_each(v),
          "queue %u of domain %u is left without a wait", (actor - 1) % 2, (actor + 1) / 2);
    CHECK(v->plan->leaves_work, "nobody says that the plan leaves work");
    for (uint32_t k = 0; k < v->flights.count; k++) {
        const space *s = &v->spaces.data[v->flights.data[k].space];
        CHECK(v->flights.data[k].actor != actor || s->domain == (actor + 1) / 2 ||
                  s->kind == GT_SLOT_CONSTANT || s->kind == GT_SLOT_BIND,
              "queue %u of domain %u is left with a copy of the host's memory", (actor - 1) % 2,
              (actor + 1) / 2);
    }
    for (uint32_t k = 0; k < v->graph->values.count; k++)
        CHECK(v->unfinished[k] != actor || !v->plan->shapes[k].bounded, "the size of %s is left in the queue",
              verify_name(v, k));
    return true;
}

bool verify_all_done(verifier *v)
{
    for (uint32_t a = 1; a < v->actors; a++)
        if (v->asked[a] != v->issued[a] && !check_left(v, a))
            return false;
    return true;
}
