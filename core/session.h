/* What a session holds. Graph, constants and options never change after creation; variants, programs and
 * plans only grow, under `lock`. */
#ifndef GT_CORE_SESSION_H
#define GT_CORE_SESSION_H

#include "graph/own_ops.h"
#include "options.h"
#include "variant.h"

#include <stdatomic.h>

/* What helps where a domain says that its device is lost. */
#define GT_LOST_REMEDY "end its sessions, unload the provider and load it again"

typedef struct gt_session_provider {
    const char *name;
    gt_provider_entry *entry; /* NULL when it was not available; else it stays until the session goes */
    uint32_t row, plugin;     /* what stood for it in the runtime then; GT_NO_PLUGIN: nothing */
    const char *reason;       /* "", or why it is not available */
    uint32_t domain;          /* session domain */
    /* What creation spent in it: judging, compiling, reshaping. */
    double judge_ns, compile_ns, bind_ns;
} gt_session_provider;

typedef struct gt_session_domain {
    const char *name;
    gt_domain_entry *entry;
    gantry_domain_info
        info; /* as its plugin describes it, or with the costs that were measured (option probe) */
    const char *probe_failure; /* "", or why costs are not measured although that was asked for */
    uint64_t peers;            /* a bit for each session domain that it can copy from without the host */
    bool pins;                 /* copies with the host are better from and to memory that it pins */
    bool events;               /* the host can wait for a part of what a queue was given */
    bool copy_queue; /* copies with the host and from peers have a queue of their own, ordered by events */
} gt_session_domain;

typedef struct gt_phase {
    const char *name; /* "read", "infer", "simplify", "fold", "place", "compile" ... */
    double ns;
} gt_phase;

/* What gantry_session_input and _output said of a value's extents; dims NULL: nothing yet. */
typedef struct gt_told_dims {
    const int64_t *dims;
    const char *const *names;
} gt_told_dims;

struct gantry_session {
    gantry_runtime *runtime;
    gt_allocator *allocator;
    gt_options options;
    gt_model *model;
    gt_own_ops own_ops; /* of the runtime's plugins, as they were when the session was created */
    char *path;         /* of the model, or NULL */
    uint32_t provider_count;
    gt_session_provider *providers; /* priority order; the host's CPU provider is always the last */
    uint32_t domain_count;
    gt_session_domain *domains; /* 0 is the host */
    uint32_t *input_domains,
        *output_domains; /* session domain of each graph input and output (bind.TENSOR) */
    uint32_t evaluator;  /* index into runtime->providers of "cpu": folding and bind-time work */
    pthread_mutex_t lock;
    gt_variant *root;
    uint32_t plan_count; /* alive, in the LRU */
    uint32_t plans_made;
    uint32_t plans_evicted;
    uint64_t tick;
    gt_scalar *scratch_values; /* of binding, under lock */
    uint8_t *scratch_known;
    uint32_t scratch_count;
    atomic_size_t pinned_bytes; /* of host memory, by runs; see staging_limit */
    atomic_size_t held_bytes;   /* by runs in all domains, constants and providers; see memory_limit */
    atomic_size_t constant_bytes, provider_bytes; /* of those */
    atomic_uint run_count;                        /* gantry_run objects alive */
    atomic_uint executing_count;                  /* of them, those that execute now */
    GT_VEC(gt_phase) phases;
    double create_ns, fold_ns;
    const struct gt_file_rules *for_file; /* the graph will be written, not run; NULL: a session proper */
    gt_told_dims *told_dims; /* by value id of the root graph; under lock; NULL until somebody asks */
    bool created, logs;      /* logs: its sink is one of the runtime's */
    gantry_error failure;    /* of a failed creation, for the report; code GANTRY_OK otherwise */
};

/* The data of graph inputs the session describes are value ids of root->graph; the file's own inputs and
 * outputs come first and never change. */
static inline gt_graph *gt_session_graph(const gantry_session *session)
{
    return session->model->root;
}

/* What the rewrites of a graph that will be written keep to. */
typedef struct gt_file_rules {
    uint64_t growth_limit_bytes;
} gt_file_rules;

/* A session that is read, inferred and simplified for a file, not placed: to be written and freed with
 * gt_session_free. On failure *out_session is NULL. */
gantry_status gt_session_open_for_file(gantry_runtime *runtime, const char *path,
                                       const gantry_options *options, const gt_file_rules *rules,
                                       gantry_session **out_session, gantry_error *err);

/* Asks the session's domains what copies cost (measured once a runtime with the option probe), which of them
 * can copy from each other, and which have queues and events enough to copy beside their kernels
 * (session_domains.c). */
void gt_session_link_domains(gantry_session *session);

/* Adds a phase to the account of creation. */
void gt_session_phase(gantry_session *session, const char *name, uint64_t since_ns);

/* Infers and rewrites a graph of the session with its options; folds with the CPU's kernels. */
gantry_status gt_session_simplify(gantry_session *session, gt_graph *graph, gantry_error *err);

/* Copies or forgets constants that lie in mapped files, and unmaps those: no run reads a model file. */
gantry_status gt_session_own_constants(gantry_session *session, gantry_error *err);

/* ---- what a session holds besides the memory of its runs: held.c ----------------------------- */

/* Counts anew what a provider holds for a program: after each call that may change it. Thread-safe. */
void gt_session_charge_program(gantry_session *session, const gantry_provider *table, gt_program *program);
/* Counts anew the constants that the session keeps in memory. */
void gt_session_charge_constants(gantry_session *session);
/* Fails when the constants that nodes read are more than memory_limit already, before anything is made of
 * them. */
gantry_status gt_session_check_constants(const gantry_session *session, gantry_error *err);
/* Fails when what the session holds is more than memory_limit. */
gantry_status gt_session_check_held(const gantry_session *session, gantry_error *err);
/* "memory_limit is 100; the session holds 60 bytes (20 of constants, 30 that providers keep, 10 of
 * its runs)" */
#define GT_HELD_TEXT 320
void gt_session_describe_held(const gantry_session *session, char *out_text);

/* ---- options that providers state: provider_options.c ---------------------------------------- */

/* The index-th option of a provider; false past the end, and for one that states none. */
bool gt_provider_option(const gt_provider_entry *entry, uint32_t index, gantry_option_info *out_info);
/* What the caller set "PROVIDER.key" to, or NULL. */
const char *gt_session_provider_option(const gantry_session *session, const char *provider, const char *key);
/* Refuses a key that its provider does not state, and lists those it does. */
gantry_status gt_session_check_provider_options(const gantry_session *session, gantry_error *err);

/* Frees everything; run_count must be 0. */
void gt_session_free(gantry_session *session);

/* A snapshot for the report, of a failed creation too (report.c). run may be NULL. */
gantry_status gt_report_create(const gantry_session *session, const gantry_run *run,
                               gantry_report **out_report, gantry_error *err);

#endif
