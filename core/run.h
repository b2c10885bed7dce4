/* One caller's run: its bindings, its symbols' values, its queues, and the frame of the root graph. */
#ifndef GT_CORE_RUN_H
#define GT_CORE_RUN_H

#include "frame.h"
#include "numeric.h"
#include "staging.h"

/* An input symbol and where its value is read. */
typedef struct gt_run_symbol {
    uint32_t symbol, input, axis;
    bool element, real;
    gantry_dtype dtype;
} gt_run_symbol;

typedef struct gt_run_input {
    bool bound;
    gantry_dtype dtype;
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
    gantry_buffer buffer;
    uint64_t count;
} gt_run_input;

#define GT_RUN_TIMES 256u

/* How long runs took: the first two, and the last ones of those after them that made no plan. */
typedef struct gt_run_times {
    uint64_t finished; /* runs that ended well */
    double first_ns, second_ns;
    uint64_t steady_count; /* the last GT_RUN_TIMES of them are kept */
    uint64_t steady_ns[GT_RUN_TIMES];
} gt_run_times;

/* How plans were found: as in the execution before, among those this run holds, in the session's cache, or
 * made anew. */
typedef struct gt_plan_lookups {
    uint64_t same, held, cached, made;
} gt_plan_lookups;

/* What a run waited for the locks of providers that take one call at a time, by what it wanted to do. */
typedef enum gt_wait { GT_WAIT_RUN, GT_WAIT_CONTEXT, GT_WAIT_CONVERT, GT_WAIT_COUNT } gt_wait;
typedef struct gt_lock_wait {
    uint64_t count, ns[GT_WAIT_COUNT]; /* in the last execution */
    uint64_t total_count, total_ns;
} gt_lock_wait;

/* Copies of plans that a run gave up before it was over: what their ledger rows would have said of one
 * domain. */
typedef struct gt_forgotten {
    uint64_t copies, bytes, peer_copies, peer_bytes, inside_copies, inside_bytes;
} gt_forgotten;

typedef struct gt_worker gt_worker; /* worker.c: the thread of start, and of deadlines */

struct gantry_run {
    gantry_session *session;
    gt_env env;
    gt_frame *root;
    uint32_t input_count;
    gt_run_input *inputs;
    uint32_t symbol_count;
    gt_run_symbol *symbols;
    bool symbols_dirty;      /* an input was bound: dims symbols have to be read again */
    gantry_queue **queues;   /* by session domain; NULL for the host */
    gt_forgotten *forgotten; /* by session domain, of the run with that number */
    uint64_t forgotten_number;
    gt_staging *staging;    /* 2 * session domain + queue */
    gantry_queue **copiers; /* the same: the second queue of a domain that has one */
    gt_lock_wait *waits;    /* by session provider */
    volatile int stop;      /* polled by kernels */
    atomic_int stop_reason; /* a gantry_status */
    atomic_bool executing;
    uint64_t number;        /* executions so far */
    bool executed;          /* outputs are those of an execution */
    bool known_outputs;     /* the last execute or prepare succeeded */
    bool overlap_unchecked; /* a buffer was bound since outputs were last seen to lie apart */
    int threads;            /* of this execution */
    uint64_t last_begin_ns, last_end_ns;
    gt_run_times times;
    gt_plan_lookups plans;
    uint64_t stamps; /* clock readings of the last execution; with timing only */
    double stamp_ns; /* what one of them costs; 0 without timing */
    gt_worker *worker;
    gt_numeric numeric; /* with the option numeric_check only */
};

static inline gantry_queue *gt_run_queue(const gantry_run *run, uint32_t domain, uint32_t queue)
{
    return queue == GT_QUEUE_COPY ? run->copiers[domain] : run->queues[domain];
}

/* Counts a wait; none (0 ns) costs nothing. */
static inline void gt_run_note_wait(gantry_run *run, uint32_t provider, gt_wait why, uint64_t ns)
{
    if (!ns)
        return;
    gt_lock_wait *wait = &run->waits[provider];
    wait->count++;
    wait->ns[why] += ns;
    wait->total_count++;
    wait->total_ns += ns;
}

/* Waits until the queues of a domain are idle: before memory is freed that they may still use. */
gantry_status gt_run_settle(const gantry_run *run, uint32_t domain, gantry_error *err);

/* An event of a session domain's; *out_event is NULL on failure. */
gantry_status gt_run_create_event(const gantry_run *run, uint32_t domain, gantry_event **out_event,
                                  gantry_error *err);

/* Brings env up to date with what is bound; in a steady run only elements are read. */
gantry_status gt_run_read_symbols(gantry_run *run, gantry_error *err);

/* GANTRY_OK, or why the run has to stop. */
gantry_status gt_run_check_stop(gantry_run *run, gantry_error *err);

/* run_error.c: an input tensor that is not what the model declares, and two inputs that give one name two
 * extents. */
gantry_status gt_run_explain_input(const gantry_run *run, uint32_t index, const gantry_tensor *tensor,
                                   gantry_error *err);
gantry_status gt_run_explain_names(const gantry_run *run, const gt_run_symbol *a, const gt_run_symbol *b,
                                   gantry_error *err);

/* One execution at a time: claim, execute, and the claim is given back. gt_run_execute_claimed gives it back
 * itself. */
gantry_status gt_run_claim(gantry_run *run, gantry_error *err);
void gt_run_unclaim(gantry_run *run);
gantry_status gt_run_execute_claimed(gantry_run *run, gantry_error *err);

/* worker.c */
gantry_status gt_worker_arm(gantry_run *run, uint64_t deadline_ms,
                            gantry_error *err); /* sets stop when the time is over */
void gt_worker_disarm(gantry_run *run);
void gt_worker_destroy(gt_worker **worker, gt_allocator *allocator);

#endif
