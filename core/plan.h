/* A plan: what the executor does for one segment of one graph at one set of sizes. Steps, where every value
 * lies, and how much memory that takes.
 *
 *     plan     immutable once built, refcounted, shared by all runs of a session, found by its key
 *     slot     one place a value can be: the executor turns slots into addresses when memory or bindings
 * change, and never in between segment  the part of a graph whose sizes are known when it starts; most models
 * have one
 */
#ifndef GT_CORE_PLAN_H
#define GT_CORE_PLAN_H

#include "base/arena.h"
#include "base/vec.h"
#include "graph/place.h"
#include "runtime.h"

typedef struct gt_variant gt_variant;
typedef struct gt_frame gt_frame;

#define GT_NO_SLOT UINT32_MAX

typedef enum gt_slot_kind {
    GT_SLOT_ARENA,    /* offset into the frame's arena of `domain` */
    GT_SLOT_INPUT,    /* frame input `index` (graph inputs, then captures) */
    GT_SLOT_OUTPUT,   /* graph output `index`: the caller's buffer, or one the frame owns */
    GT_SLOT_CONSTANT, /* bytes of constant `index`, host */
    GT_SLOT_BIND,     /* elements known at bind, in the plan's own memory, host */
    GT_SLOT_CARRY, /* frame-owned buffer `index` (a value id) that lives across segments or has a size nobody
                      knows yet */
    GT_SLOT_NONE   /* nobody reads or writes it as a tensor */
} gt_slot_kind;

typedef struct gt_slot {
    gt_slot_kind kind;
    uint32_t domain; /* session domain; 0 is the host */
    uint32_t pinned; /* on the host: the device domain that had better pin it, because it copies; 0: none */
    uint32_t index;
    size_t offset_bytes; /* ARENA: from the arena's base; views: from the base slot */
    size_t bytes;        /* capacity needed; bounded values: the bound */
    const void *data;    /* CONSTANT, BIND */
    uint32_t value;      /* value id, GT_NONE for workspaces */
} gt_slot;

typedef enum gt_step_kind {
    GT_STEP_TRANSFER,
    GT_STEP_CONVERT,
    GT_STEP_RUN,
    GT_STEP_WAIT,
    GT_STEP_CONTROL,
    GT_STEP_RECORD,
    GT_STEP_ORDER
} gt_step_kind;

/* Why bytes move. KNOWN: the host knows the value without running (constants, shapes), or has to learn it
 * because sizes depend on it. CONTROL: an If or Loop reads it, or hands it to its body and back. STAGING: it
 * only passes the host on its way to another device. */
typedef enum gt_cause {
    GT_CAUSE_BOUNDARY,
    GT_CAUSE_INPUT,
    GT_CAUSE_OUTPUT,
    GT_CAUSE_KNOWN,
    GT_CAUSE_CONTROL,
    GT_CAUSE_CONVERSION,
    GT_CAUSE_STAGING
} gt_cause;

/* How: in one copy, from device to device, or through the host. */
typedef enum gt_path { GT_PATH_DIRECT, GT_PATH_PEER, GT_PATH_STAGED } gt_path;

/* The queues of a domain: programs run on the first, and where a domain works on two at the same time what
 * crosses its border is copied on the second. */
enum { GT_QUEUE_COMPUTE = 0, GT_QUEUE_COPY = 1 };

/* TRANSFER: bytes of `value` from slot source to slot target, for `partition` or an output (GT_NONE); a
 * transfer inside one domain is a copy, not a boundary; between two devices it is the target's, which copies
 * from its peer. CONVERT: `value` from format `from` to `to`, by provider. RUN: the shaped program of
 * `partition`. WAIT: until `event` has passed, or (GT_NONE) the queue is idle. CONTROL: the If or Loop of
 * `partition`. RECORD: `event` marks all that the queue was given so far. ORDER: the queue goes on when
 * `event` has passed. */
typedef struct gt_step {
    gt_step_kind kind;
    uint32_t value;
    uint32_t source, target; /* slots */
    size_t bytes;
    bool true_size;         /* bytes come from the true dims of a bounded value */
    gt_cause cause;         /* TRANSFER and CONVERT */
    gt_path path;           /* TRANSFER */
    uint32_t domain, queue; /* queue: GT_QUEUE_*, 0 on the host */
    uint32_t event;         /* RECORD, ORDER and WAIT: index into the plan's events */
    uint32_t partition;
    uint32_t provider;
    gantry_format from, to;
    /* RUN and CONTROL: slots of the partition's inputs and outputs, in their order; workspace may be
     * GT_NO_SLOT. */
    uint32_t input_count, output_count;
    const uint32_t *inputs, *outputs;
    uint32_t workspace;
    uint32_t context; /* RUN: index of the context in the frame's plan state */
} gt_step;

/* The concrete extents of a value at this plan. bounded: upper bounds, true ones come with the run; dynamic:
 * not known at all before. */
typedef struct gt_plan_shape {
    int64_t *dims; /* NULL when dynamic */
    uint32_t rank;
    bool bounded, dynamic;
} gt_plan_shape;

/* One partition at these sizes. */
typedef struct gt_shaped_slot {
    uint32_t partition;
    gantry_shaped *shaped;
    gantry_shaped_info info;
    gt_kernel_row *kernels; /* for the report; in the plan's arena */
    uint32_t kernel_count;
    gt_fusion_row *fusions;
    uint32_t fusion_count;
    gt_phase_row *phases;
    uint32_t phase_count;
    double reshape_ns;
} gt_shaped_slot;

typedef struct gt_plan {
    gt_variant *variant;
    gt_arena arena;
    uint32_t segment;    /* index into variant->segments */
    uint32_t references; /* under the session's lock */
    uint64_t last_used;  /* a tick of the session, for the LRU */
    uint64_t key_hash;
    const int64_t *key; /* one for each key symbol of the segment */
    uint32_t number;    /* 1, 2, ... in the order they were made in this session */
    uint32_t slot_count, step_count, shaped_count, value_count, event_count;
    gt_slot *slots;
    gt_step *steps;
    /* By result of the segment: where the host finds its value; GT_NO_SLOT for extents. */
    uint32_t *result_slots;
    gt_shaped_slot *shaped;
    gt_plan_shape *shapes; /* by value id; rank 0 and dims NULL for values the plan does not touch */
    /* By value id: elements known since the bind; NULL without the option numeric_check. */
    const void **known_data;
    size_t *arena_bytes;           /* by place: session domains, then pinned memory of each of them */
    const uint32_t *event_domains; /* by event */
    double bind_ns, core_bind_ns;  /* all, and without the providers' share */
    int64_t trigger_before;        /* the value of `trigger` in the plan used before */
    uint32_t trigger; /* index of the key symbol that made that plan unfit; GT_NONE: there was none */
    bool leaves_work; /* queues may be busy when it is over: of bodies only */
} gt_plan;

void gt_plan_destroy(gt_plan **plan); /* shaped programs first */

/* Fills steps and memory of a plan whose shapes and shaped programs stand (plan_build.c). bind_data[value]
 * are elements known at bind or NULL; those a run needs are copied. */
gantry_status gt_plan_build(gt_plan *plan, const void *const *bind_data, gantry_error *err);

/* The bytes of a value at this plan, dense: 0 when its extents are not known, SIZE_MAX when they are more
 * than can be addressed (frame_memory.c). */
size_t gt_plan_value_bytes(const gt_plan *plan, uint32_t value);

/* GANTRY_RESOURCE: `what`, and which value of the plan needs most memory (frame_memory.c). */
gantry_status gt_plan_too_large(const gt_plan *plan, gantry_error *err, const char *what);

#endif
