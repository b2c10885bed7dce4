/* What the files that build a plan share: the plan while it grows, and which queue knows of whose work.
 * Private.
 *
 *     plan_build.c    walks the partitions of a segment
 *     plan_control.c  the steps of If and Loop
 *     plan_slots.c    where values are, and how they come to the domain that reads them
 *     plan_order.c    who has to wait for whom
 *     plan_layout.c   memory: offsets in arenas */
#ifndef GT_CORE_PLAN_PARTS_H
#define GT_CORE_PLAN_PARTS_H

#include "session.h"

/* Someone whose work is done in order: the host, or a queue of a domain. */
#define GT_ACTOR_HOST 0u

/* A slot while memory is being planned. */
typedef struct gt_draft_slot {
    uint32_t root;             /* the slot whose memory it shares (views), itself otherwise */
    uint32_t first, last;      /* steps in which it is live */
    uint32_t writer, write_op; /* of a root: the actor that fills it, and the work of the actor that does */
} gt_draft_slot;

/* A queue reads memory that others write to: the slot is kept until they know that it did. Of its own domain
 * these are the domain's first queue, of another one or of the host whoever knows what the host knows. */
typedef struct gt_foreign_read {
    uint32_t slot, actor, op;
} gt_foreign_read;

/* Marks work of a queue: it is recorded behind that step, which may be long before the one that waits. */
typedef struct gt_plan_event {
    uint32_t domain, queue;
    uint32_t step;
} gt_plan_event;

typedef struct gt_plan_work {
    uint32_t step;
    uint32_t event; /* that marks it, or GT_NONE */
} gt_plan_work;

/* What an actor was given, and what it knew with each of these works (actor_count numbers). */
typedef struct gt_plan_history {
    GT_VEC(gt_plan_work) works;
    GT_VEC(uint32_t) knew;
} gt_plan_history;

typedef struct gt_plan_builder {
    gt_plan *plan;
    const gt_variant *variant;
    const gt_graph *graph;
    const gt_segment *segment;
    gantry_session *session;
    gt_allocator *allocator;
    const void *const *bind_data;
    GT_VEC(gt_slot) slots;
    GT_VEC(gt_draft_slot) drafts;
    GT_VEC(gt_step) steps;
    uint32_t *where; /* [value * domain_count + domain]: slot of the default format, or GT_NO_SLOT */
    uint32_t *home;  /* by value: the domain in which it was first, or GT_NONE */
    /* By value: the slot in which a partition left it in a format that others of its domain read; NULL while
     * there is none. */
    uint32_t *formatted;
    /* Order. An actor's work is counted from 1; knows[a * actor_count + b]: work of b up to there is done
     * before whatever a does next. */
    uint32_t actor_count;
    uint32_t *issued, *knows;
    uint32_t *asked; /* by actor: the host waited for the queue, which says what failed, behind this work */
    gt_plan_history *histories; /* by actor */
    GT_VEC(gt_foreign_read) foreign;
    GT_VEC(gt_plan_event) events;
    gt_cause cause; /* of the copies that are added: GT_CAUSE_BOUNDARY leaves it to the slots */
    gt_path path;
    uint32_t reader; /* the partition they are for, GT_NONE: none */
    gantry_error *err;
} gt_plan_builder;

static inline gantry_status gt_plan_no_memory(gt_plan_builder *b)
{
    return gt_out_of_memory(b->err, GANTRY_STAGE_RUN);
}

static inline uint32_t gt_plan_actor(uint32_t domain, uint32_t queue)
{
    return domain ? 2 * domain - 1 + queue : GT_ACTOR_HOST;
}

static inline gt_draft_slot *gt_plan_root(gt_plan_builder *b, uint32_t slot)
{
    return &b->drafts.data[b->drafts.data[slot].root];
}

/* ---- plan_order.c ---------------------------------------------------------------------------- */

gantry_status gt_plan_order_create(gt_plan_builder *b);
void gt_plan_order_destroy(gt_plan_builder *b);

/* Adds a step; one of a queue is work of it, and knows what the host knows. */
gantry_status gt_plan_add_step(gt_plan_builder *b, gt_step step);
/* The slot is live up to the step that comes next. */
void gt_plan_use_slot(gt_plan_builder *b, uint32_t slot);
/* The step that was added last fills the slot. */
void gt_plan_note_write(gt_plan_builder *b, uint32_t slot);
/* The step that was added last, of a queue, reads the slot, which is of another domain, or which the domain's
 * other queue may write to. */
gantry_status gt_plan_note_foreign_read(gt_plan_builder *b, uint32_t slot);
/* The control step that was added last left work on the compute queue of this domain. */
gantry_status gt_plan_note_left(gt_plan_builder *b, uint32_t domain);
/* The step that was added last and left work there fills the slot, on the compute queue of its domain. */
void gt_plan_note_left_write(gt_plan_builder *b, uint32_t slot);
/* Before somebody reads a slot: whoever fills it has done so. A queue of the same domain goes on after an
 * event, anybody else waits on the host: for that event, and not for what its queue was given later. */
gantry_status gt_plan_make_ready(gt_plan_builder *b, uint32_t slot, uint32_t domain, uint32_t queue);
/* The second queue of a domain goes on when the first one has done `op`; 0: at once. */
gantry_status gt_plan_await_compute(gt_plan_builder *b, uint32_t domain, uint32_t op);
/* The first step whose memory a queue must not touch yet: another queue of the domain may still be at it. */
uint32_t gt_plan_unordered_since(const gt_plan_builder *b, uint32_t domain, uint32_t queue);
/* Whether each device of the session has one queue, and nobody but it touches its memory. */
bool gt_plan_one_queue_each(const gantry_session *session);
/* Waits for every queue that was given work since the host last waited for all of it: only so does a failure
 * show. A body may leave some. */
gantry_status gt_plan_finish(gt_plan_builder *b);
/* The steps in the plan's memory, with a RECORD behind each one that an event marks. */
gantry_status gt_plan_keep_steps(gt_plan_builder *b);

/* ---- plan_slots.c ---------------------------------------------------------------------------- */

static inline uint32_t *gt_plan_where(gt_plan_builder *b, uint32_t value, uint32_t domain)
{
    return &b->where[(size_t)value * b->session->domain_count + domain];
}

gantry_status gt_plan_add_slot(gt_plan_builder *b, gt_slot slot, uint32_t *out_slot);
/* Makes the slot the place of its value in the slot's domain. */
void gt_plan_place_value(gt_plan_builder *b, uint32_t slot);
/* Whether a node belongs to a later segment, or to this one. */
bool gt_plan_is_later(const gt_plan_builder *b, uint32_t node);
bool gt_plan_made_here(const gt_plan_builder *b, uint32_t node);
/* The place of a value that no step of this plan makes; of several the one in `domain`. */
gantry_status gt_plan_outside_slot(gt_plan_builder *b, uint32_t value, uint32_t domain, uint32_t *out_slot);
/* Brings a value (default format) to a domain. */
gantry_status gt_plan_acquire(gt_plan_builder *b, uint32_t value, uint32_t domain, uint32_t *out_slot);
/* The slot that a value is best brought to a domain from: at most one copy away. */
gantry_status gt_plan_source(gt_plan_builder *b, uint32_t value, uint32_t domain, uint32_t *out_slot);
gantry_status gt_plan_add_transfer(gt_plan_builder *b, uint32_t value, uint32_t source, uint32_t target,
                                   size_t bytes, bool true_size);
/* Whether a value could be brought to a domain now without waiting for anybody. */
bool gt_plan_is_at_hand(gt_plan_builder *b, uint32_t value);

/* ---- plan_build.c, plan_control.c ------------------------------------------------------------ */

/* Where an output of a step goes that makes it in this domain. */
gantry_status gt_plan_output_slot(gt_plan_builder *b, uint32_t value, uint32_t domain, uint32_t *out_slot);
/* The step of the If or Loop of a partition. */
gantry_status gt_plan_add_control(gt_plan_builder *b, uint32_t partition);

/* ---- plan_layout.c --------------------------------------------------------------------------- */

/* Offsets of all slots in arenas, and how large those are. */
gantry_status gt_plan_layout(gt_plan_builder *b);

#endif
