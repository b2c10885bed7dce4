/* What the files of the plan verifier share: memory as it knows it. Private. */
#ifndef GT_TESTS_VERIFY_VERIFY_PLAN_PARTS_H
#define GT_TESTS_VERIFY_VERIFY_PLAN_PARTS_H

#include "verify_plan.h"

#include <stdlib.h>

/* What lies in some bytes: bytes of a value (in a format) from `at` on. */
typedef struct extent {
    size_t begin, end;
    uint32_t value, tag;
    size_t at;
} extent;

/* One piece of memory: an arena, a buffer of the caller, a constant ... */
typedef struct space {
    gt_slot_kind kind;
    uint32_t domain, index;
    size_t capacity; /* CARRY: what the plan that filled it asked for */
    GT_VEC(extent) extents;
} space;

/* Work of a queue that somebody may not know to be done: it reads or writes these bytes. */
typedef struct flight {
    uint32_t space;
    size_t begin, end;
    uint32_t actor, op;
    bool writes;
} flight;

/* The bytes of a value in this format are those of another one, from `offset` on. */
typedef struct alias {
    bool set;
    uint32_t root, tag;
    size_t offset;
} alias;

/* Bytes of a step: its slot, and how many of them it touches. */
typedef struct range {
    uint32_t space;
    size_t begin, end;
    uint32_t domain;
} range;

typedef struct verifier {
    const gt_variant *variant;
    const gantry_session *session;
    const gt_graph *graph;
    const gt_plan *plan;
    const gt_segment *segment;
    uint32_t number, step; /* of the segment, of the step at hand */
    gt_allocator allocator;
    GT_VEC(space) spaces;
    GT_VEC(flight) flights;
    alias *aliases;   /* by value */
    uint8_t *is_view; /* by slot of the plan */
    uint8_t *done;    /* by partition */
    /* Actor 0 is the host, then two queues for each device. Work is counted from 1; clock[a * actors + b]: a
     * knows that work of b is done up to there. */
    uint32_t actors;
    uint32_t *issued, *clock;
    uint32_t *asked; /* by actor: up to there the host waited for the queue, and knows what failed */
    uint32_t *marks; /* by event: the clock of the queue that recorded it; all 0: nobody did */
    uint32_t *unfinished, *unfinished_op; /* by value: the work that makes its true size, or 0 */
    uint32_t *delivered;                  /* by graph output: how often */
    uint32_t *home;                       /* by value: 1 + the domain of its carry */
    char *text;
} verifier;

/* Writes "segment, step: ..." and is false. */
bool verify_wrong(verifier *v, const char *format, ...) GANTRY_PRINTF(2, 3);

#define CHECK(condition, ...)                                                                                \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            return verify_wrong(v, __VA_ARGS__);                                                             \
    } while (0)

/* verify_memory.c */

void *verify_room(size_t count, size_t size); /* zeroed, or abort */
const char *verify_name(const verifier *v, uint32_t value);
/* Of a value in the default format; one whose size nobody knows before the run stands as one byte. */
size_t verify_bytes(const verifier *v, uint32_t value);
size_t verify_format_bytes(const verifier *v, uint32_t value, const gantry_format *format, uint32_t provider);
/* From a value in a format to the one whose bytes these are, and where they begin in it. */
void verify_resolve_alias(const verifier *v, uint32_t *inout_value, uint32_t tag, size_t *out_at);
uint32_t verify_space(verifier *v, const gt_slot *slot);
bool verify_overlaps(const range *a, const range *b);
/* Where memory lies that is not the plan's: with the caller where the session says, else on the host. */
uint32_t verify_outside_domain(const verifier *v, const gt_slot *slot);
/* A slot that a step names must make sense by itself; the bytes it touches are *out_range. */
bool verify_slot(verifier *v, uint32_t index, uint32_t value, uint32_t domain, size_t bytes,
                 range *out_range);
/* A step of an actor reads a value: it has to be there, in that format, and ready. */
bool verify_read(verifier *v, const range *r, uint32_t value, uint32_t tag, uint32_t actor);
/* A step of an actor writes a value, or scratch (GT_NONE). */
bool verify_write(verifier *v, const range *r, uint32_t value, uint32_t tag, uint32_t actor);

/* verify_order.c: who knows of whose work */

static inline uint32_t verify_actor(uint32_t domain, uint32_t queue)
{
    return domain ? 1 + 2 * (domain - 1) + queue : 0;
}

bool verify_begin(verifier *v, const gt_step *step);  /* counts the step as work of its queue */
void verify_leave_work(verifier *v, uint32_t domain); /* a control step left work on its first queue */
bool verify_wait(verifier *v, const gt_step *step);
bool verify_record(verifier *v, const gt_step *step);
bool verify_order(verifier *v, const gt_step *step);
/* Nobody whose work the actor does not know is still at these bytes. */
bool verify_is_free(verifier *v, const range *r, uint32_t actor, bool writes, const char *what);
/* The same, and from now on the actor is. */
bool verify_settled(verifier *v, const range *r, uint32_t actor, bool writes, const char *what);
bool verify_all_done(verifier *v); /* the host waited for all queues but for what a body may leave */
bool verify_one_queue_each(const verifier *v);

#endif
