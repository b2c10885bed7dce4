/* Shape inference: types, symbolic dims and small known elements of every value, from the operator table's
 * rules. */
#ifndef GT_GRAPH_INFER_H
#define GT_GRAPH_INFER_H

#include "op.h"

/* "dim NAME=lo..opt..hi" of the session options; name is a symbol or "input[axis]". fixed: it was given as
 * one number. */
typedef struct gt_dim_range {
    const char *name;
    int64_t low, typical, high;
    bool fixed;
} gt_dim_range;

/* "shape INPUT=1,3,?,224" of the session options: -1 leaves an extent as the model has it. */
typedef struct gt_input_shape {
    const char *input;
    uint32_t rank;
    const int64_t *dims;
} gt_input_shape;

typedef struct gt_infer_options {
    const gt_dim_range *ranges;
    uint32_t range_count;
} gt_infer_options;

/* Makes numbers of the root inputs' declared extents that a fixed range or a shape names: the model then is
 * one of that size. Once, before gt_infer_inputs. GANTRY_INVALID_ARGUMENT for a name that no input has, and
 * for a number that contradicts the model's own. */
gantry_status gt_fix_shapes(gt_model *model, const gt_dim_range *ranges, uint32_t range_count,
                            const gt_input_shape *shapes, uint32_t shape_count, gantry_error *err);

/* Makes symbols for the dims of the root graph's inputs (negative, unset, empty and "?" dims: a fresh one
 * each; typical 1 for a first dim or a name with "batch", else 128), and element symbols for small host
 * integer, bool or float inputs that may decide shapes. Once per model, before the first gt_infer_graph. */
gantry_status gt_infer_inputs(gt_model *model, const gt_infer_options *options, gantry_error *err);

/* Infers all values of a graph and of its bodies, in topological order. May be called again after rewrites:
 * what was inferred before is forgotten, symbols of data-dependent sizes are found again by (value name,
 * axis). Also checks operator names, versions, arity and types: errors are worded for users (F070: node, op,
 * both tensors with shapes aligned, axis, producers, hint). Sets node->segment, and node->at_bind where all
 * outputs' elements are known expressions. A broadcast that can't be decided now becomes a GT_EXPR_BROADCAST,
 * checked at bind. */
gantry_status gt_infer_graph(gt_graph *graph, gantry_error *err);

/* The first check of the graph (index into gt_graph.checks, its bodies not included) that these values break,
 * or GT_NONE. A check whose operands are not known yet is not broken. */
uint32_t gt_infer_first_failure(const gt_graph *graph, const uint8_t *known);

/* Sets used[symbol] = 1 for every input element symbol whose value a plan of this graph depends on: it occurs
 * in a dim, in an element of a shape operand, in an If condition or in an output of a node that is at_bind,
 * bodies included. Other element symbols belong in no plan key. */
void gt_infer_key_symbols(const gt_graph *graph, uint8_t *used);

/* How to say what failed at a bind (see gt_exprs_evaluate): fill err with node, operator, its tensors with
 * their shapes under these values, what the operands that decide shapes hold, who produced each and what
 * bound the symbols. failed is the expression that has no value though its operands do: that of check
 * `index`, one below it, or one below the extent; GT_EXPR_UNKNOWN: the extent has a value, but a negative
 * one. */
gantry_status gt_infer_explain_check(const gt_graph *graph, uint32_t index, gt_expr failed,
                                     const gt_scalar *values, const uint8_t *known, gantry_error *err);
gantry_status gt_infer_explain_extent(const gt_graph *graph, uint32_t value, int32_t axis, gt_expr failed,
                                      const gt_scalar *values, const uint8_t *known, gantry_error *err);

#endif
