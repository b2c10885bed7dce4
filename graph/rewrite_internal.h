/* What the rewrite rules share: the context of one gt_simplify, an index of uses that stays right while a
 * rule changes the graph, constants as numbers, composites, and the log. */
#ifndef GT_GRAPH_REWRITE_INTERNAL_H
#define GT_GRAPH_REWRITE_INTERNAL_H

#include "graph_internal.h"
#include "rewrite.h"

/* One entry of a value's list of readers. It may be stale: its node was removed or reads something else now.
 */
typedef struct gt_rewrite_use {
    uint32_t node; /* GT_NONE: the graph's output list */
    uint32_t next; /* index into uses, GT_NONE: the end */
} gt_rewrite_use;

typedef struct gt_rewrite_uses {
    uint32_t first; /* index into uses, or GT_NONE */
    uint32_t count; /* exact: inputs of living nodes, captures of bodies, graph outputs */
} gt_rewrite_uses;

/* A near miss of the round in hand. It is logged only when the round changes nothing: what an earlier round
 * could not do yet is no finding. */
typedef struct gt_rewrite_miss {
    const char *rule;
    const char *node;
    const char *guard;
} gt_rewrite_miss;

/* One thread at a time. */
struct gt_rewrite_context {
    const gt_rewrite_options *options;
    gt_model *model;
    gt_allocator *allocator;
    const gt_rewrite_rule *rule; /* the one being applied */
    bool is_variant;             /* a graph made of one that was simplified: its misses and notes are known */
    bool infer_now;              /* a rule needs inference before the next one runs */
    GT_VEC(gt_rewrite_miss) misses;
    gt_map evaluate_failures; /* names of nodes the evaluator could not do: not asked again */
    /* Of the graph that the rule in hand walks; see gt_rewrite_index. */
    gt_graph *graph;
    gt_arena scratch; /* lives as long as one rule on one graph */
    GT_VEC(gt_rewrite_use) uses;
    GT_VEC(gt_rewrite_uses) values; /* by value id */
};

/* ---- driver */

/* Whether the rule of that name may run. */
bool gt_rewrite_is_enabled(const gt_rewrite_options *options, const char *rule);

/* ---- the index (rewrite_index.c) */

/* Makes context->uses and context->values for this graph. */
gantry_status gt_rewrite_index(gt_rewrite_context *context, gt_graph *graph, gantry_error *err);
uint32_t gt_rewrite_use_count(const gt_rewrite_context *context, uint32_t value);
/* The next node that reads value; start with *inout_cursor = GT_NONE. GT_NONE: no more. A node that reads it
 * twice comes twice. */
uint32_t gt_rewrite_next_consumer(const gt_rewrite_context *context, uint32_t value, uint32_t *inout_cursor);
/* The node that is the only reader of value, or GT_NONE. */
uint32_t gt_rewrite_only_consumer(const gt_rewrite_context *context, uint32_t value);
/* All readers of `from` read `to`; see gt_graph_replace_value for graph outputs. */
gantry_status gt_rewrite_replace(gt_rewrite_context *context, uint32_t from, uint32_t to, gantry_error *err);
/* Whether gt_rewrite_replace(from, to) would leave no Identity behind. */
bool gt_rewrite_can_replace(const gt_rewrite_context *context, uint32_t from, uint32_t to);
gantry_status gt_rewrite_set_input(gt_rewrite_context *context, uint32_t node, uint32_t input, uint32_t value,
                                   gantry_error *err);
/* As gt_graph_add_node with the domain's opset given, and known to the index. The outputs may have had
 * another producer, which then no longer is one. */
gantry_status gt_rewrite_add_node(gt_rewrite_context *context, const char *name, const char *domain,
                                  const char *op_type, int32_t opset, uint32_t input_count,
                                  const uint32_t *inputs, uint32_t output_count, const uint32_t *outputs,
                                  uint32_t *out_node, gantry_error *err);
/* The node goes; what it stood for is gone for `reason`. */
void gt_rewrite_remove(gt_rewrite_context *context, uint32_t node, const char *reason);
/* keeper stands for all of nodes from now on, whether they stay or not. */
gantry_status gt_rewrite_join_lineage(gt_rewrite_context *context, uint32_t keeper, const uint32_t *nodes,
                                      uint32_t count, gantry_error *err);
/* keeper stands for the others from now on; those (of nodes) that are not keeper are removed. Output 0 of
 * keeper becomes `output`. */
gantry_status gt_rewrite_absorb(gt_rewrite_context *context, uint32_t keeper, const uint32_t *nodes,
                                uint32_t count, uint32_t output, gantry_error *err);

/* ---- the log (rewrite_log.c) */

/* nodes: those that go (their names are recorded); added: a new node's name or NULL; guard may be NULL. */
gantry_status gt_rewrite_log(gt_rewrite_context *context, const char *node, const char *state,
                             const char *guard, const uint32_t *nodes, uint32_t node_count, const char *added,
                             gantry_error *err);
gantry_status gt_rewrite_log_miss(gt_rewrite_context *context, const char *node, const char *guard,
                                  gantry_error *err);
/* Writes the misses of the last round into the model's log. */
gantry_status gt_rewrite_commit_misses(gt_rewrite_context *context, gantry_error *err);

/* ---- reading graphs (rewrite_match.c) */

static inline gt_value *gt_rewrite_value(const gt_rewrite_context *context, uint32_t id)
{
    return gt_graph_value(context->graph, id);
}
static inline bool gt_rewrite_is_constant(const gt_rewrite_context *context, uint32_t id)
{
    return id != GT_NONE && gt_value_is_constant(context->graph->values.data[id]);
}
/* Whether node is the ai.onnx operator of that name. */
bool gt_rewrite_is_op(const gt_node *node, const char *op_type);
/* The living node that computes value when it is the ai.onnx operator op_type (NULL: any), else NULL. */
gt_node *gt_rewrite_producer(const gt_rewrite_context *context, uint32_t value, const char *op_type);
/* Input k, or GT_NONE when left out or past the end. */
uint32_t gt_rewrite_input(const gt_node *node, uint32_t k);
bool gt_rewrite_same_shape(const gt_value *a, const gt_value *b);
/* Static extents; false when some are not known or value has no rank. out_dims has room for GANTRY_MAX_RANK.
 */
bool gt_rewrite_static_dims(const gt_rewrite_context *context, const gt_value *value, int64_t *out_dims);
/* The guard that keeps the output of an inner node of a pattern from vanishing: "graph_output",
 * "second_consumer", or NULL when `consumers` uses are all there are. */
const char *gt_rewrite_inner_guard(const gt_rewrite_context *context, uint32_t value, uint32_t consumers);
bool gt_rewrite_is_float(gantry_dtype dtype);
/* Integers known now (constant, or all elements constant expressions), as for axes, pads, steps. NULL: not
 * known. They live in context->scratch. */
const int64_t *gt_rewrite_ints(gt_rewrite_context *context, uint32_t value, uint32_t *out_count);

/* ---- constants as numbers (rewrite_constant.c) */

/* Element k of bytes that need not be aligned; exact for all types up to 32 bits and doubles. False: not a
 * number type of 8 bits or more. */
bool gt_rewrite_is_number(gantry_dtype dtype);
double gt_rewrite_load(gantry_dtype dtype, const void *data, uint64_t k);
/* Rounds once to the nearest, ties to even. Float types only. */
void gt_rewrite_store(gantry_dtype dtype, void *data, uint64_t k, double value);
uint64_t gt_rewrite_element_count(const gt_constant *constant);
/* The constant that value holds and its bytes; *out_constant is NULL when value is none. The pointer is valid
 * until a constant is added. */
gantry_status gt_rewrite_constant(const gt_rewrite_context *context, uint32_t value,
                                  const gt_constant **out_constant, const void **out_data, gantry_error *err);
/* The number in a constant of one element, whatever its rank. */
bool gt_rewrite_scalar(const gt_rewrite_context *context, uint32_t value, double *out_number);
/* All elements of a float constant as doubles, in context->scratch; NULL when value is none (and *err is not
 * touched) or memory ran out. */
const double *gt_rewrite_doubles(gt_rewrite_context *context, uint32_t value, uint64_t *out_count);
/* A new constant with room for data in the model's arena, as the value of a fresh name built on `stem`. */
gantry_status gt_rewrite_add_constant(gt_rewrite_context *context, const char *stem, gantry_dtype dtype,
                                      uint32_t rank, const int64_t *dims, size_t bytes, void **out_data,
                                      uint32_t *out_value, gantry_error *err);
/* The same for a constant that is another one times a factor for each channel (gt_model_add_scaled). */
gantry_status gt_rewrite_add_scaled(gt_rewrite_context *context, const char *stem, const gt_scaling *scaling,
                                    uint32_t *out_value, bool *out_finite, gantry_error *err);
/* value, computed until now, holds these bytes from now on; they are copied. Its producer is not touched. */
gantry_status gt_rewrite_make_constant(gt_rewrite_context *context, gt_graph *graph, uint32_t value,
                                       gantry_dtype dtype, uint32_t rank, const int64_t *dims,
                                       const void *data, size_t bytes, gantry_error *err);

/* ---- constants into linear nodes (rewrite_linear.c) */

/* A Conv, ConvTranspose, Gemm or MatMul whose weights are constant. The weights are rows of channels of
 * `inner` elements; element (row, channel, i) belongs to output channel row / rows_of_group * channels_of_row
 * + channel. */
typedef struct gt_rewrite_linear {
    uint32_t id;
    gt_node *node;
    uint32_t output;   /* value id */
    int32_t rank;      /* of the output */
    uint64_t channels; /* output channels */
    uint64_t rows, rows_of_group, channels_of_row, inner;
    bool is_gemm;
} gt_rewrite_linear;

/* The linear node that computes value, as far as its operator goes; false when it is none of op_types (a list
 * that ends in NULL). */
bool gt_rewrite_find_linear(const gt_rewrite_context *context, uint32_t value, const char *const *op_types,
                            gt_rewrite_linear *out_linear);
/* The guard that forbids changing its output's only reader into a change of its weights ("graph_output",
 * "second_consumer", "not_constant", "dtype", "rank"), or NULL; then *inout_linear is filled. */
const char *gt_rewrite_check_linear(const gt_rewrite_context *context, gt_rewrite_linear *inout_linear);
/* Makes the node compute factor * (what it did) + addend for each output channel. factor NULL: 1. next is the
 * node that did that so far; the linear node takes over its lineage and output. Logs it. A result that is not
 * finite leaves all as it was: a near miss "range". */
gantry_status gt_rewrite_absorb_affine(gt_rewrite_context *context, gt_rewrite_linear *linear,
                                       const double *factor, const double *addend, uint32_t next,
                                       bool *out_changed, gantry_error *err);

/* ---- composites (rewrite_composite.c) */

/* A recognised pattern: nodes in any order, whose only result read outside is output; inputs are the values
 * of the new node, in its order. */
typedef struct gt_rewrite_pattern {
    const char *op_type; /* in the domain "gantry" */
    const uint32_t *nodes;
    uint32_t node_count;
    const uint32_t *inputs;
    uint32_t input_count;
    uint32_t output;
} gt_rewrite_pattern;

/* The guard that forbids replacing the pattern ("graph_output", "second_consumer"), or NULL. */
const char *gt_rewrite_pattern_guard(const gt_rewrite_context *context, const gt_rewrite_pattern *pattern);
/* Replaces the pattern by one node that keeps it as its composite, and logs that. */
gantry_status gt_rewrite_fuse(gt_rewrite_context *context, const gt_rewrite_pattern *pattern,
                              uint32_t *out_node, gantry_error *err);

/* ---- rules */

typedef gantry_status gt_rewrite_apply_fn(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                          gantry_error *err);
gt_rewrite_apply_fn gt_rewrite_dead_code, gt_rewrite_if_inline, gt_rewrite_fold, gt_rewrite_shape_fold,
    gt_rewrite_identity, gt_rewrite_cse, gt_rewrite_gather_first, gt_rewrite_conv_mul, gt_rewrite_conv_add,
    gt_rewrite_conv_batchnorm, gt_rewrite_gemm_batchnorm, gt_rewrite_layer_norm, gt_rewrite_gelu,
    gt_rewrite_silu, gt_rewrite_hard_swish, gt_rewrite_attention;

/* The bytes of value if its shape is static; UINT64_MAX if it is not, or if they are too many to count. */
uint64_t gt_rewrite_static_bytes(const gt_rewrite_context *context, const gt_value *value);
/* For a graph that will be written: which of the candidates (nodes on constants, by node id) to compute, and
 * which of them stay in the graph because their results are larger than what they are made of by more than
 * growth_limit_bytes. sizes: bytes of results by value id, UINT64_MAX where not known yet. Both out arrays
 * are filled, 0 or 1 by node id. */
gantry_status gt_rewrite_plan_growth(gt_rewrite_context *context, const gt_graph *graph,
                                     const uint8_t *candidates, const uint64_t *sizes, uint8_t *out_computed,
                                     uint8_t *out_stays, gantry_error *err);

/* Notes "constant_recomputed" for the nodes that a run computes again though their inputs never change. */
gantry_status gt_rewrite_note_recomputed(gt_rewrite_context *context, gt_graph *graph, gantry_error *err);

#endif
