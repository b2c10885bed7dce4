/* Rewrites: what every provider profits from. One table, one file per family; each applied or nearly applied
 * rule is logged with lineage. */
#ifndef GT_GRAPH_REWRITE_H
#define GT_GRAPH_REWRITE_H

#include "infer.h"

/* Computes one node of graph on constant inputs; outputs[k].dtype, rank and dims come set from inference
 * (dtype GANTRY_UNDEFINED when the type or the shape is not known: the callee sets them), the callee
 * allocates data in `arena`. */
typedef gantry_status (*gt_evaluate_fn)(void *self, const gt_graph *graph, uint32_t node,
                                        const gantry_tensor *inputs, gantry_tensor *outputs, gt_arena *arena,
                                        gantry_error *err);

typedef struct gt_rewrite_options {
    bool enabled; /* false: nothing at all is rewritten */
    bool fold;
    uint64_t
        fold_limit_bytes; /* one folded result; a larger one is allowed when not larger than its inputs */
    bool for_file;        /* the graph will be written: what folding adds to the file is limited */
    uint64_t
        growth_limit_bytes; /* for_file: bytes by which one result may exceed the constants it replaces */
    const char *const *disabled; /* rule names */
    uint32_t disabled_count;
    gt_evaluate_fn evaluate;
    void *evaluate_self;
} gt_rewrite_options;

typedef struct gt_rewrite_context gt_rewrite_context;

typedef struct gt_rewrite_rule {
    const char *name; /* "fold", "dead_code", "identity", "cse", "conv_batchnorm", "gemm_batchnorm",
                         "layer_norm", "gelu" ... */
    const char *what; /* one sentence for --help */
    /* Walks the graph once; sets *out_changed. */
    gantry_status (*apply)(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                           gantry_error *err);
} gt_rewrite_rule;

const gt_rewrite_rule *gt_rewrite_table(uint32_t *out_count);

/* Infers and rewrites the graph and its bodies to a fixed point; ends with an inferred, sorted graph. With
 * options->enabled false it only infers and sorts. */
gantry_status gt_simplify(gt_graph *graph, const gt_rewrite_options *options, gantry_error *err);

#endif
