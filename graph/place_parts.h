/* What the files of placement share: the working state, and the graph's edges as placement sees them.
 * Private. */
#ifndef GT_GRAPH_PLACE_PARTS_H
#define GT_GRAPH_PLACE_PARTS_H

#include "base/arena.h"
#include "base/map.h"
#include "base/status.h"
#include "op.h"
#include "place.h"

#include <math.h>

/* How a node reads a value, weakest first: several reads of one node count as the strongest. */
typedef enum gt_read_kind {
    GT_READ_HOST,     /* a shape operand whose elements are known at bind: nothing moves */
    GT_READ_ANYWHERE, /* a control node hands it on to a body, wherever it lies */
    GT_READ_KNOWN,    /* needed as a tensor, and its elements are known at bind: no boundary */
    GT_READ_TENSOR    /* needed as a tensor in the domain of the reader */
} gt_read_kind;

typedef struct gt_read {
    uint32_t value;
    gt_read_kind kind;
} gt_read;

/* Who reads what, of the nodes that run; no constants. Reads of a node are distinct; users stand in the order
 * of the graph. */
typedef struct gt_edges {
    uint32_t *read_first; /* by node id, one more at the end */
    gt_read *reads;
    uint32_t *user_first; /* by value id, one more at the end */
    uint32_t *users;      /* node ids */
    gt_read_kind *user_kinds;
} gt_edges;

/* The working state of one gt_place; one thread. */
typedef struct gt_placer {
    gt_graph *graph;
    const gt_place_provider *providers;
    uint32_t provider_count;
    const gt_place_domain *domains;
    uint32_t domain_count;
    const gt_place_options *options;
    gt_allocator *allocator;
    gt_arena scratch;
    gt_placement *placement;
    gt_map refusals; /* bytes of a gantry_refusal -> index into refusal_list: most are equal */
    GT_VEC(gantry_refusal *) refusal_list;
    uint32_t host;      /* the last provider that computes on the host, or GT_NONE */
    uint32_t *able;     /* by unit: a bit for each provider that said yes itself */
    uint8_t *executor;  /* by unit: 1 for a control node that the executor runs itself */
    double *bytes;      /* by value, at typical dims */
    uint32_t *segments; /* by node: the latest of its own and of what it depends on */
    gt_edges edges;
} gt_placer;

static inline bool gt_node_runs(const gt_node *node)
{
    return !node->removed && !node->at_bind;
}
/* An initializer that is also an input may be overwritten: it is no constant. */
static inline bool gt_value_is_fixed(const gt_value *value)
{
    return value->constant != GT_NONE && value->input_index < 0;
}
static inline gt_unit *gt_placer_unit(const gt_placer *placer, uint32_t node)
{
    return &placer->placement->units[placer->placement->unit_of_node[node]];
}
static inline uint32_t gt_placer_domain(const gt_placer *placer, uint32_t provider)
{
    return placer->providers[provider].domain;
}

/* units.c */
gantry_status gt_units_form(gt_placer *placer, gantry_error *err);
/* Expands composites that are better placed node by node; *out_changed says whether there were any. */
gantry_status gt_units_expand(gt_placer *placer, bool *out_changed, gantry_error *err);

/* clone_dequantize.c: gives each provider that reads a DequantizeLinear of another one its own copy. */
gantry_status gt_dequantize_clone(gt_placer *placer, gantry_error *err);

/* verdicts.c */
gantry_status gt_verdicts_collect(gt_placer *placer, gantry_error *err);
gantry_status gt_verdicts_judge(gt_placer *placer, const gt_graph *graph, const uint32_t *nodes,
                                uint32_t count, uint32_t provider, gt_kept_verdict *out_verdict,
                                gantry_error *err);
/* A verdict that said yes says no from now on. */
gantry_status gt_verdicts_overrule(gt_placer *placer, gt_kept_verdict *verdict, gantry_refusal_code code,
                                   const char *operand, const char *actual, const char *required,
                                   const char *remedy, gantry_error *err);
gantry_status gt_verdicts_overrule_with(gt_placer *placer, gt_kept_verdict *verdict,
                                        const gantry_refusal *refusal, gantry_error *err);

/* place_policy.c: late refusals, precision, pins, host policy */
gantry_status gt_policies_apply_late(gt_placer *placer, gantry_error *err);
gantry_status gt_policies_apply(gt_placer *placer, gantry_error *err);
/* How many placed nodes compute in fewer bits than that. */
uint32_t gt_policies_count_below(gt_placer *placer);
/* Bits of the arithmetic that the model asks of a node; 0 for nodes without float arithmetic. */
uint32_t gt_node_model_bits(gt_graph *graph, uint32_t node);

/* place_edges.c */
gantry_status gt_edges_build(gt_placer *placer, gantry_error *err);
/* The domain a value lies in when it is made. */
uint32_t gt_edges_source_domain(const gt_placer *placer, uint32_t value);
uint32_t gt_edges_output_domain(const gt_placer *placer, uint32_t output); /* or GT_PLACE_ANYWHERE */
/* The share of the price of moving it that this graph's executions bear; below 0: all, it moves the value. */
double gt_edges_outside_share(const gt_placer *placer, uint32_t value);
/* True when nothing of it moves in a run: constants and elements known at bind. */
bool gt_edges_is_known(const gt_graph *graph, uint32_t value);

/* place_cost.c */
bool gt_cost_are_peers(const gt_placer *placer, uint32_t source, uint32_t target);
double gt_cost_move_ns(const gt_placer *placer, uint32_t source, uint32_t target, double bytes);
gantry_status gt_cost_demote(gt_placer *placer, gantry_error *err);
gantry_status gt_cost_totals(gt_placer *placer, gantry_error *err);

/* partition.c, boundary.c */
gantry_status gt_partitions_form(gt_placer *placer, gantry_error *err);
gantry_status gt_boundaries_find(gt_placer *placer, gantry_error *err);

/* typical.c: bytes of every value at typical dims */
gantry_status gt_typical_bytes(const gt_graph *graph, gt_arena *arena, double **out_bytes, gantry_error *err);

#endif
