/* Rules that remove nodes which pass a value through unchanged, and merge transposes.
 *
 * A node goes only when its output equals some value it is computed from, bit for bit and with the same
 * extents whatever the symbols are bound to. */
#include "rewrite_internal.h"

#include <math.h>

/* What a node's output equals, or GT_NONE. *out_guard is set when it almost does. */
typedef uint32_t (*same_as_fn)(gt_rewrite_context *context, const gt_node *node, const char **out_guard);

static bool keeps_shape(gt_rewrite_context *context, const gt_node *node)
{
    const gt_value *from = gt_rewrite_value(context, node->inputs[0]);
    return from && gt_rewrite_same_shape(from, gt_rewrite_value(context, node->outputs[0]));
}

static bool is_read(const gt_rewrite_context *context, const gt_node *node, uint32_t output)
{
    return output < node->output_count && node->outputs[output] != GT_NONE &&
           gt_rewrite_use_count(context, node->outputs[output]);
}

static uint32_t same_always(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    return node->inputs[0];
}

static uint32_t same_if_single(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    return node->input_count == 1 && node->output_count == 1 ? node->inputs[0] : GT_NONE;
}

static uint32_t same_split(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    return node->output_count == 1 && keeps_shape(context, node) ? node->inputs[0] : GT_NONE;
}

static uint32_t same_dropout(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    double training = 0;
    uint32_t mode = gt_rewrite_input(node, 2);
    if (mode != GT_NONE && !gt_rewrite_scalar(context, mode, &training))
        *out_guard = "not_constant";
    else if (training != 0 || node->version < 7)
        *out_guard = "training_mode";
    else if (is_read(context, node, 1))
        *out_guard = "second_output";
    return *out_guard ? GT_NONE : node->inputs[0];
}

static uint32_t same_cast(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    const gt_value *from = gt_rewrite_value(context, node->inputs[0]);
    const gt_value *to = gt_rewrite_value(context, node->outputs[0]);
    return from && from->dtype == to->dtype && to->dtype != GANTRY_UNDEFINED ? node->inputs[0] : GT_NONE;
}

/* Repeating and broadcasting by ones. */
static uint32_t same_if_shape(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    return keeps_shape(context, node) ? node->inputs[0] : GT_NONE;
}

static bool is_reshape(const gt_node *node)
{
    static const char *const names[] = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (gt_rewrite_is_op(node, names[k]))
            return true;
    return false;
}

/* Longer chains of reshapes are looked through only so far. */
#define MAX_RESHAPES 8

/* The farthest value up a chain of reshapes that has the shape of the output. */
static uint32_t same_reshape(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    const gt_value *to = gt_rewrite_value(context, node->outputs[0]);
    uint32_t found = GT_NONE;
    for (int k = 0; k < MAX_RESHAPES && is_reshape(node); k++) {
        uint32_t from = node->inputs[0];
        if (from == GT_NONE)
            break;
        if (gt_rewrite_same_shape(gt_rewrite_value(context, from), to))
            found = from;
        node = gt_rewrite_producer(context, from, NULL);
    }
    return found;
}

/* With equal extents only a negative step still moves elements. */
static uint32_t same_slice(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    uint32_t steps_value = gt_rewrite_input(node, 4), count = 0;
    if (!keeps_shape(context, node))
        return GT_NONE;
    const int64_t *steps = gt_rewrite_ints(context, steps_value, &count);
    if (steps_value != GT_NONE && !steps)
        return GT_NONE;
    for (uint32_t k = 0; k < count; k++)
        if (steps[k] <= 0)
            return GT_NONE;
    return node->inputs[0];
}

static uint32_t same_pad(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    uint32_t count = 0;
    const int64_t *pads = gt_node_ints(node, "pads", &count);
    if (!pads)
        pads = gt_rewrite_ints(context, gt_rewrite_input(node, 1), &count);
    if (!pads || !keeps_shape(context, node))
        return GT_NONE;
    for (uint32_t k = 0; k < count; k++)
        if (pads[k] != 0)
            return GT_NONE;
    return node->inputs[0];
}

/* ---- arithmetic with a neutral element ------------------------------------------------------- */

static bool is_all(const gt_rewrite_context *context, uint32_t value, double number)
{
    const gt_constant *constant;
    const void *data;
    if (gt_rewrite_constant(context, value, &constant, &data, NULL) != GANTRY_OK || !constant ||
        !gt_rewrite_is_number(constant->dtype))
        return false;
    uint64_t count = gt_rewrite_element_count(constant);
    for (uint64_t k = 0; k < count; k++) {
        double element = gt_rewrite_load(constant->dtype, data, k);
        if (element != number || signbit(element) != signbit(number))
            return false;
    }
    return count > 0;
}

/* The other operand when operand `k` is all `neutral`. */
static uint32_t same_without(gt_rewrite_context *context, const gt_node *node, uint32_t k, double neutral)
{
    uint32_t other = node->inputs[1 - k];
    if (other == GT_NONE || !is_all(context, node->inputs[k], neutral))
        return GT_NONE;
    bool same =
        gt_rewrite_same_shape(gt_rewrite_value(context, other), gt_rewrite_value(context, node->outputs[0]));
    return same ? other : GT_NONE;
}

static uint32_t same_mul(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    uint32_t same = same_without(context, node, 1, 1);
    return same != GT_NONE ? same : same_without(context, node, 0, 1);
}

static uint32_t same_div(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    return same_without(context, node, 1, 1);
}

static bool is_float_node(const gt_rewrite_context *context, const gt_node *node)
{
    return gt_rewrite_is_float(gt_rewrite_value(context, node->outputs[0])->dtype);
}

/* In floats, -0 + 0 is +0: only -0 is neutral to addition, and only +0 to subtraction. */
static uint32_t same_add(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    double neutral = is_float_node(context, node) ? -0.0 : 0.0;
    for (uint32_t k = 0; k < 2; k++) {
        uint32_t same = same_without(context, node, 1 - k, neutral);
        if (same != GT_NONE)
            return same;
        if (neutral == 0 && signbit(neutral) && same_without(context, node, 1 - k, 0.0) != GT_NONE)
            *out_guard = "negative_zero";
    }
    return GT_NONE;
}

static uint32_t same_sub(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    return same_without(context, node, 1, 0.0);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *op_type;
    uint32_t inputs; /* at least */
    same_as_fn same_as;
} passing[] = {
    {"Identity", 1, same_always},  {"Dropout", 1, same_dropout},   {"Cast", 1, same_cast},
    {"CastLike", 2, same_cast},    {"Reshape", 1, same_reshape},   {"Flatten", 1, same_reshape},
    {"Squeeze", 1, same_reshape},  {"Unsqueeze", 1, same_reshape}, {"Expand", 2, same_if_shape},
    {"Tile", 2, same_if_shape},    {"Slice", 1, same_slice},       {"Pad", 1, same_pad},
    {"Concat", 1, same_if_single}, {"Sum", 1, same_if_single},     {"Max", 1, same_if_single},
    {"Min", 1, same_if_single},    {"Mean", 1, same_if_single},    {"Split", 1, same_split},
    {"Mul", 2, same_mul},          {"Div", 2, same_div},           {"Add", 2, same_add},
    {"Sub", 2, same_sub},
};

static uint32_t same_as(gt_rewrite_context *context, const gt_node *node, const char **out_guard)
{
    *out_guard = NULL;
    if (node->domain[0] || node->output_count == 0 || node->outputs[0] == GT_NONE)
        return GT_NONE;
    for (size_t k = 0; k < sizeof passing / sizeof passing[0]; k++)
        if (strcmp(passing[k].op_type, node->op_type) == 0)
            return node->input_count >= passing[k].inputs && node->inputs[0] != GT_NONE
                       ? passing[k].same_as(context, node, out_guard)
                       : GT_NONE;
    return GT_NONE;
}

/* Nodes between `value` and what replaced it that nobody reads any more were passed through as well. */
static gantry_status remove_idle_chain(gt_rewrite_context *context, uint32_t value, gantry_error *err)
{
    gt_node *node;
    while (value != GT_NONE && gt_rewrite_use_count(context, value) == 0 &&
           (node = gt_rewrite_producer(context, value, NULL)) && node->output_count == 1 &&
           (is_reshape(node) || gt_rewrite_is_op(node, "Transpose"))) {
        uint32_t id = gt_rewrite_value(context, value)->producer;
        GT_TRY(gt_rewrite_log(context, node->name, "applied", NULL, &id, 1, NULL, err));
        value = node->inputs[0];
        gt_rewrite_remove(context, id, "identity");
    }
    return GANTRY_OK;
}

static gantry_status pass_through(gt_rewrite_context *context, uint32_t id, uint32_t same, gantry_error *err)
{
    const gt_node *node = context->graph->nodes.data[id];
    uint32_t from = node->inputs[0];
    GT_TRY(gt_rewrite_log(context, node->name, "applied", NULL, &id, 1, NULL, err));
    GT_TRY(gt_rewrite_replace(context, node->outputs[0], same, err));
    gt_rewrite_remove(context, id, "identity");
    return remove_idle_chain(context, from, err);
}

/* ---- transposes ------------------------------------------------------------------------------ */

/* The permutation in force; false when the rank is not known or the attribute is no permutation. */
static bool permutation_of(const gt_rewrite_context *context, const gt_node *node, int64_t *out_perm,
                           uint32_t *out_rank)
{
    const gt_value *from = gt_rewrite_value(context, node->inputs[0]);
    uint32_t count = 0, seen = 0;
    const int64_t *perm = gt_node_ints(node, "perm", &count);
    if (!from || from->rank < 0 || from->rank > GANTRY_MAX_RANK || (perm && count != (uint32_t)from->rank))
        return false;
    *out_rank = (uint32_t)from->rank;
    for (uint32_t k = 0; k < *out_rank; k++) {
        out_perm[k] = perm ? perm[k] : (int64_t)(*out_rank - 1 - k);
        if (out_perm[k] < 0 || out_perm[k] >= (int64_t)*out_rank)
            return false;
        seen |= 1u << out_perm[k];
    }
    return seen == (1u << *out_rank) - 1;
}

static bool is_identity_permutation(const int64_t *perm, uint32_t rank)
{
    for (uint32_t k = 0; k < rank; k++)
        if (perm[k] != (int64_t)k)
            return false;
    return true;
}

/* outer(inner(x)) becomes outer'(x), and inner goes with it when nobody else reads it. */
static gantry_status merge_transposes(gt_rewrite_context *context, uint32_t outer_id, uint32_t inner_id,
                                      const int64_t *perm, uint32_t rank, gantry_error *err)
{
    const gt_node *outer = context->graph->nodes.data[outer_id],
                  *inner = context->graph->nodes.data[inner_id];
    uint32_t pair[] = {inner_id, outer_id};
    bool shared = gt_rewrite_use_count(context, inner->outputs[0]) > 1;
    GT_TRY(gt_rewrite_log(context, outer->name, "applied", shared ? "second_consumer" : NULL, pair,
                          shared ? 0 : 1, NULL, err));
    GT_TRY(gt_rewrite_set_input(context, outer_id, 0, inner->inputs[0], err));
    GT_TRY(gt_node_set_ints(context->graph, outer_id, "perm", perm, rank, err));
    if (!shared)
        return gt_rewrite_absorb(context, outer_id, pair, 2, outer->outputs[0], err);
    return gt_rewrite_join_lineage(context, outer_id, pair, 2, err);
}

static gantry_status visit_transpose(gt_rewrite_context *context, uint32_t id, bool *out_changed,
                                     gantry_error *err)
{
    const gt_node *outer = context->graph->nodes.data[id];
    int64_t perm[GANTRY_MAX_RANK] = {0}, first[GANTRY_MAX_RANK] = {0};
    uint32_t rank, inner_rank, same = outer->inputs[0];
    if (!permutation_of(context, outer, perm, &rank))
        return GANTRY_OK;
    const gt_node *inner = gt_rewrite_producer(context, outer->inputs[0], "Transpose");
    if (inner && permutation_of(context, inner, first, &inner_rank) && inner_rank == rank) {
        for (uint32_t k = 0; k < rank; k++)
            perm[k] = first[perm[k]];
        same = inner->inputs[0];
    }
    if (is_identity_permutation(perm, rank)) {
        if (!gt_rewrite_can_replace(context, outer->outputs[0], same))
            return GANTRY_OK;
        *out_changed = true;
        return pass_through(context, id, same, err);
    }
    if (same == outer->inputs[0])
        return GANTRY_OK;
    *out_changed = true;
    return merge_transposes(context, id, gt_rewrite_value(context, outer->inputs[0])->producer, perm, rank,
                            err);
}

gantry_status gt_rewrite_identity(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                  gantry_error *err)
{
    for (uint32_t k = 0; k < graph->order.count; k++) {
        uint32_t id = graph->order.data[k];
        const gt_node *node = graph->nodes.data[id];
        const char *guard;
        if (node->removed)
            continue;
        if (gt_rewrite_is_op(node, "Transpose")) {
            GT_TRY(visit_transpose(context, id, out_changed, err));
            continue;
        }
        uint32_t same = same_as(context, node, &guard);
        if (guard)
            GT_TRY(gt_rewrite_log_miss(context, node->name, guard, err));
        if (same == GT_NONE || !gt_rewrite_can_replace(context, node->outputs[0], same))
            continue;
        GT_TRY(pass_through(context, id, same, err));
        *out_changed = true;
    }
    return GANTRY_OK;
}
