/* A frame: one graph being run by one gantry_run. The root has one, and each body of a control step has one
 * below it.
 *
 * It turns slots into addresses. Memory only grows (high-water marks); addresses are worked out again when
 * `version` moved. One thread at a time. */
#ifndef GT_CORE_FRAME_H
#define GT_CORE_FRAME_H

#include "bind.h"

/* Memory of one place that grows: of a session domain, or (domain_count + d) host memory that domain d pins
 * where it can and staging_limit allows it. */
typedef struct gt_block {
    void *handle;
    size_t bytes;
    uint32_t pinned; /* host memory: the domain that pinned it, 0: none */
} gt_block;

/* Where a copy between the host and a device has its host end. */
typedef enum gt_way {
    GT_WAY_PAGEABLE, /* and copies straight from there */
    GT_WAY_PINNED,
    GT_WAY_STAGED, /* pageable, and goes through the run's pinned memory */
    GT_WAY_COUNT
} gt_way;

/* What a transfer did in the last run, by the way it went: memory may be another one each time. calls: what
 * devices were asked for. */
typedef struct gt_step_copies {
    uint64_t executions[GT_WAY_COUNT], calls[GT_WAY_COUNT], bytes[GT_WAY_COUNT];
} gt_step_copies;

/* A graph input of a frame, or a capture. */
typedef struct gt_frame_input {
    gantry_buffer buffer;
    uint32_t pinned; /* on the host: the device whose pinned memory it lies in, 0: none */
} gt_frame_input;

/* One graph output of a frame. */
typedef struct gt_frame_output {
    gantry_buffer buffer; /* where it goes now */
    size_t capacity;
    bool given;      /* the caller's; else `own` is used and may grow */
    uint32_t pinned; /* given: as of an input */
    gt_block own;
    uint32_t rank; /* of the last execution */
    int64_t dims[GANTRY_MAX_RANK];
    size_t bytes;
} gt_frame_output;

/* A value kept across segments, or of a size that comes with the data. */
typedef struct gt_frame_carry {
    uint32_t domain;
    gt_block block;
} gt_frame_carry;

/* An extent that a run has still to tell. */
#define GT_NOT_TOLD INT64_MIN

/* True extents of a value whose size depends on data. */
typedef struct gt_true_shape {
    bool known;
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
} gt_true_shape;

/* What one step took in the last run, summed over its executions in it. device_ns and kernel_ns are in the
 * clock of the step's domain. */
typedef struct gt_step_time {
    uint64_t begin_ns; /* of the execution that goes on */
    double host_ns;    /* the calling thread's */
    double device_ns;  /* NAN: the domain has no clock, or the step is the host's */
    gantry_event *from, *to;
    double *kernel_ns; /* by kernel index; NAN where the provider gave no event */
    uint32_t kernel_count;
    gantry_timing_event *events; /* of one execution */
    uint32_t event_count;
} gt_step_time;

/* What a frame holds for one plan: contexts, and the addresses of its slots as of `version`. */
typedef struct gt_plan_state {
    gt_plan *plan;
    uint64_t version;
    uint64_t bindings; /* counts the times addresses changed */
    gantry_buffer *slots;
    gantry_context **contexts; /* by plan->shaped index */
    gantry_run_args *args;     /* by plan->shaped index */
    gantry_event **events;     /* of the plan */
    uint8_t *ways;             /* gt_way by step, as of `version`; NULL in a session without devices */
    gt_arena arena;
    uint64_t last_used;
    /* Counters for the report. */
    uint64_t executions, run_executions, run_number;
    uint64_t *true_bytes;   /* by step: bytes of true_size transfers in the last run, summed over its
                               executions; NULL when the plan has none */
    gt_step_copies *copies; /* by step: those in which devices have a part; NULL without devices */
    gt_step_time *times;    /* by step; NULL when the option timing is off */
} gt_plan_state;

struct gt_frame {
    gantry_run *run;
    gt_variant *entry;   /* the variant before choices */
    gt_variant *chosen;  /* by the branches chosen last; NULL before the first bind */
    gt_variant *leaf;    /* that, or its alternate for a shape that a provider refused */
    int64_t *choice_key; /* values of the choice symbols that led to leaf */
    uint32_t choice_key_count;
    uint64_t version;
    GT_VEC(gt_plan_state *) states;
    gt_plan_state **current; /* by segment of leaf */
    gt_block *arenas;        /* by place */
    uint32_t input_count;    /* graph inputs, then captures of the leaf */
    gt_frame_input *inputs;
    uint32_t capture_capacity;
    uint32_t output_count;
    gt_frame_output *outputs;
    gt_frame_carry *carries; /* by value id of leaf */
    gt_true_shape
        *true_shapes; /* by value id of leaf; allocated only when the graph has data-dependent sizes */
    uint32_t value_capacity;
    struct gt_control **controls; /* by partition of leaf; see control.c */
    uint32_t control_count;
    uint64_t tick;
    /* With timing only: of the run with that number, in this frame and none below. */
    uint64_t timed_run;
    double bind_ns, measuring_ns;
};

gantry_status gt_frame_create(gantry_run *run, gt_variant *entry, gt_frame **out_frame, gantry_error *err);
void gt_frame_destroy(gt_frame **frame);

/* Makes sure that leaf is the variant for the run's symbols, with room for its values. Cheap when nothing
 * changed. */
gantry_status gt_frame_enter(gt_frame *frame, gantry_error *err);

/* The state of the plan for one segment; cheap when the symbols are as before. */
gantry_status gt_frame_plan(gt_frame *frame, uint32_t segment, gt_plan_state **out_state, gantry_error *err);

/* Enters the graph and finds the plan of its first segment, placing it anew when a provider refuses the
 * shapes. */
gantry_status gt_frame_begin(gt_frame *frame, gt_plan_state **out_state, gantry_error *err);

/* Addresses for all slots of the state, after memory or bindings changed; cheap when nothing did. */
gantry_status gt_frame_resolve(gt_frame *frame, gt_plan_state *state, gantry_error *err);

/* Binds an input or output buffer; moves the version when it is another one. pinned: the device that pinned
 * it, 0 for what the caller bound. */
void gt_frame_set_input(gt_frame *frame, uint32_t index, gantry_buffer buffer, uint32_t pinned);
void gt_frame_set_output(gt_frame *frame, uint32_t index, gantry_buffer buffer, size_t capacity,
                         uint32_t pinned);
/* The output goes to memory of the frame's own. */
void gt_frame_own_output(gt_frame *frame, uint32_t index);
/* The device whose pinned memory a slot on the host lies in, or 0. */
uint32_t gt_frame_pinned_by(const gt_frame *frame, const gt_slot *slot);

/* Makes the frame's memory large enough for a plan, after checking the option memory_limit: too little memory
 * is GANTRY_RESOURCE and names the value that needs most. */
gantry_status gt_frame_grow(gt_frame *frame, const gt_plan *plan, gantry_error *err);

/* The session domain in which graph output `index` is wanted. */
uint32_t gt_frame_output_domain(const gt_frame *frame, uint32_t index);

/* Makes the block of a carried value (in a place), or of an output the frame owns, at least that large.
 * Contents are lost. */
gantry_status gt_frame_grow_carry(gt_frame *frame, uint32_t value, uint32_t place, size_t bytes,
                                  gantry_error *err);
gantry_status gt_frame_grow_output(gt_frame *frame, uint32_t index, size_t bytes, gantry_error *err);

/* Grows a block of a place, within what the option memory_limit allows the runs of the session
 * together; *out_moved is set when its address changed. */
gantry_status gt_block_grow(gantry_session *session, uint32_t place, gt_block *block, size_t bytes,
                            bool *out_moved, gantry_error *err);
void gt_block_free(gantry_session *session, uint32_t place, gt_block *block);
/* Makes an empty block of pinned memory; false where the domain has none or a limit is reached. */
bool gt_block_pin(gantry_session *session, uint32_t domain, gt_block *block, size_t bytes);

static inline uint32_t gt_slot_place(uint32_t domain_count, const gt_slot *slot)
{
    return slot->pinned ? domain_count + slot->pinned : slot->domain;
}

/* Runs the frame's graph once: all segments. Inputs, captures and given outputs are set. */
gantry_status gt_frame_execute(gt_frame *frame, gantry_error *err);

/* Makes plans and memory for what is known before running: the first segment. */
gantry_status gt_frame_prepare(gt_frame *frame, gantry_error *err);

/* The extents of graph output k: true ones after an execution. NULL when they are not known. */
const int64_t *gt_frame_value_dims(const gt_frame *frame, const gt_plan_state *state, uint32_t value,
                                   uint32_t *out_rank);

/* ---- timing.c: only called when the option timing is not off --------------------------------- */

/* Room for the times of all steps, and events where the step's domain has a clock. */
gantry_status gt_timing_create(gt_frame *frame, gt_plan_state *state, gantry_error *err);
void gt_timing_destroy(gt_frame *frame, gt_plan_state *state);
/* Sums begin at zero in each run. */
void gt_timing_reset(gt_frame *frame, gt_plan_state *state);
gantry_status gt_timing_begin(gt_frame *frame, gt_plan_state *state, uint32_t step, gantry_error *err);
gantry_status gt_timing_end(gt_frame *frame, gt_plan_state *state, uint32_t step, gantry_error *err);
/* Reads events and kernel times, after the last step: all queues are idle then. */
void gt_timing_collect(gt_frame *frame, gt_plan_state *state);
/* Adds the time since begin_ns to what finding plans and addresses took. */
void gt_timing_bind(gt_frame *frame, uint64_t begin_ns);
/* Cost of reading the clock once, measured now. */
double gt_timing_stamp_ns(void);

/* ---- control.c ------------------------------------------------------------------------------- */

struct gt_control;
void gt_control_destroy(gantry_session *session, struct gt_control **control);
gantry_status gt_control_execute(gt_frame *frame, gt_plan_state *state, const gt_step *step,
                                 gantry_error *err);
/* What a control node copied itself for one of its outputs, inside the domain where that lies, in the run of
 * that number: scan outputs pile up, and not every result can be handed over. */
typedef struct gt_control_copies {
    uint32_t domain;
    uint64_t run_number, count, bytes, total_count;
} gt_control_copies;

/* By output of the node. */
const gt_control_copies *gt_control_copies_of(const struct gt_control *control, uint32_t *out_count);
/* Frames below a control step, for the report. */
uint32_t gt_control_frames(const struct gt_control *control, const gt_frame *out_frames[2]);

#endif
