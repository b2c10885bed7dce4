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

/* A graph that the report covers, and the frame it ran in (NULL: it did not). */
typedef struct gt_report_part {
    const gt_variant *variant;
    const gt_frame *frame;
    uint32_t number;
} gt_report_part;

typedef struct gt_report_scope {
    const gantry_session *session;
    const gantry_run *run; /* NULL: none */
    uint32_t part_count;
    gt_report_part *parts;
} gt_report_scope;

/* Numbers that may be unknown: null then, never 0. ns go out as us. */
json_t *gt_report_us(double ns);
json_t *gt_report_number(double value);

json_t *gt_report_nodes(const gt_report_scope *scope);                    /* report_nodes.c */
json_t *gt_report_partitions(const gt_report_scope *scope);               /* report_nodes.c */
json_t *gt_report_kernels(const gt_report_scope *scope, json_t *fusions); /* report_kernels.c */
json_t *gt_report_boundaries(const gt_report_scope *scope);               /* report_edges.c */
json_t *gt_report_plans(const gt_report_scope *scope);                    /* report_edges.c */
/* At most five lines that lead the report, from the document so far (report_summary.c). */
json_t *gt_report_summary(const gt_report_scope *scope, const json_t *document);

/* The document as text for people, at most 100 columns (report_text.c). False when memory ran out. */
bool gt_report_print(const json_t *document, gt_text *text);

#endif
