/* The report: a JSON document made from the session's records. report.c is the API, the other report_*.c each
 * fill one part of it. */
#ifndef GT_CORE_REPORT_H
#define GT_CORE_REPORT_H

#include "run.h"

#include <jansson.h>

struct gantry_report {
    gt_allocator *allocator;
    json_t *root;
    char *json, *text;
    size_t json_bytes, text_bytes;
    pthread_mutex_t lock; /* around rendering */
};

/* A placed graph that the report covers, and the frame it ran in (NULL: it did not). */
typedef struct gt_report_part {
    const gt_variant *variant;
    const gt_frame *frame;
    uint32_t number;
} gt_report_part;

typedef struct gt_report_scope {
    const gantry_session *session;
    const gantry_run *run; /* NULL: none */
    uint32_t part_count;
    gt_report_part *parts; /* the root graph's, or the one chosen for it, comes first */
} gt_report_scope;

/* A report of a document, which it takes over, also on failure; NULL is one that there was no memory for
 * (report.c). */
gantry_status gt_report_wrap(gt_allocator *allocator, json_t *document, gantry_report **out_report);

/* Reports of gantry_model_optimize (optimize_report.c); rendering asks which kind a document is. */
#define GT_OPTIMIZATION_SCHEMA "gantry-optimization"
bool gt_optimization_print(const json_t *document, gt_text *text);

/* ---- values (report_value.c) ----------------------------------------------------------------- */

/* Text from anywhere: what is no UTF-8 becomes U+FFFD. NULL gives null. */
json_t *gt_report_string(const char *text);
/* Sets a member whose key comes from a model or a plugin. */
void gt_report_set_named(json_t *object, const char *key, json_t *value);

/* Bytes of the well-formed UTF-8 character at text (RFC 3629: shortest form, no surrogates); 0 when it is
 * none. */
size_t gt_report_character(const char *text);

#define GT_NOT_MEASURED "not measured"

/* Numbers that may be NAN: null where nobody could say (estimates), "not measured" where somebody could have
 * measured; never 0. ns go out as us. */
json_t *gt_report_us(double ns);
json_t *gt_report_number(double value);
json_t *gt_report_measured_us(double ns);
json_t *gt_report_measured(double value);
json_t *gt_report_count(uint64_t count);

/* Reading the document: 0 and "" where a member is absent or something else. */
double gt_report_number_at(const json_t *object, const char *key);
const char *gt_report_text_at(const json_t *object, const char *key);

const char *gt_report_source(char source); /* 'm': "measured" ... */

/* ---- what was timed and counted (report_times.c) --------------------------------------------- */

/* Whether the state was part of the last execution of its frame's run. */
bool gt_report_ran(const gt_plan_state *state, const gt_frame *frame);
/* How long the work of a step took in the last run, whichever clock knows; NAN: not measured. */
double gt_report_step_ns(const gt_frame *frame, const gt_plan_state *state, uint32_t step);
/* What a partition did in the last run. */
typedef struct gt_report_ran_partition {
    uint64_t executions;
    double ns; /* of its work, whichever clock knows; NAN: not measured */
    double
        launch_ns; /* of the calling thread, to hand the work to a device; NAN: not measured, or the host's */
} gt_report_ran_partition;
gt_report_ran_partition gt_report_partition_ran(const gt_report_part *part, uint32_t partition);

json_t *gt_report_run(const gt_report_scope *scope);

/* ---- parts of the document ------------------------------------------------------------------- */

json_t *gt_report_providers(const gt_report_scope *scope, const json_t *nodes); /* report_session.c */
json_t *gt_report_domains(const gantry_session *session);
json_t *gt_report_creation(const gantry_session *session);
json_t *gt_report_options(const gantry_session *session);
json_t *gt_report_provider_options(const gantry_session *session,
                                   const gt_provider_entry *entry); /* report_held.c */
json_t *gt_report_memory(const gantry_session *session);
json_t *gt_report_phases(const gt_report_part *part, uint32_t partition);
json_t *gt_report_cache(const gt_report_part *part, uint32_t partition);
json_t *gt_report_rewrites(const gantry_session *session);
json_t *gt_report_notes(const gantry_session *session);

json_t *gt_report_nodes(const gt_report_scope *scope);                    /* report_nodes.c */
json_t *gt_report_partitions(const gt_report_scope *scope);               /* report_nodes.c */
json_t *gt_report_kernels(const gt_report_scope *scope, json_t *fusions); /* report_kernels.c */
/* Puts the times of kernels and control steps beside the nodes they compute. */
void gt_report_time_nodes(json_t *nodes, const json_t *kernels); /* report_kernels.c */
json_t *gt_report_boundaries(const gt_report_scope *scope);      /* report_edges.c */
/* Adds the rows of conversions to those of boundaries (report_conversions.c). */
void gt_report_conversions(const gt_report_scope *scope, const gt_report_part *part, json_t *rows);
json_t *gt_report_ledger(const gt_report_scope *scope);                         /* report_ledger.c */
json_t *gt_report_capture(const gt_report_scope *scope);                        /* report_capture.c */
json_t *gt_report_numeric(const gt_report_scope *scope);                        /* report_numeric.c */
json_t *gt_report_plans(const gt_report_scope *scope);                          /* report_plans.c */
json_t *gt_report_totals(const gt_report_scope *scope, const json_t *document); /* report_totals.c */
/* At most five lines that lead the report, from the document so far (report_summary.c). */
json_t *gt_report_summary(const gt_report_scope *scope, const json_t *document);

/* The document as text for people, at most 100 columns (report_text.c). False when memory ran out. */
bool gt_report_print(const json_t *document, gt_text *text);

#endif
