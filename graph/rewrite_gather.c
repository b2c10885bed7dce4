/* The rule that looks rows up before it computes on them: Gather(f(table)) becomes f(Gather(table)) where
 * table is a constant and f works element by element.
 *
 *     before   table -> Cast -> Mul(scale) -> Gather(ids)      computes on the whole table in every run
 *     after    table -> Gather(ids) -> Cast -> Mul(scale)      computes on the rows that were asked for
 *
 * This is for tables whose results are too large to be folded: compressed embeddings. One step of the chain
 * is swapped at a time, and rounds do the rest. */
#include "rewrite_internal.h"

/* Longer chains between a table and its Gather are left alone. */
#define MAX_STEPS 8

/* The operand of an elementwise node that is the table or computed from it; the others must be constants. */
static uint32_t table_operand(const gt_rewrite_context *context, const gt_node *node)
{
    if (gt_rewrite_is_op(node, "Cast"))
        return 0;
    bool binary = gt_rewrite_is_op(node, "Mul") || gt_rewrite_is_op(node, "Add") ||
                  gt_rewrite_is_op(node, "Sub") || gt_rewrite_is_op(node, "Div");
    if (!binary || node->input_count != 2)
        return GT_NONE;
    for (uint32_t k = 0; k < 2; k++) {
        const gt_value *table = gt_rewrite_value(context, node->inputs[k]);
        if (gt_rewrite_is_constant(context, node->inputs[1 - k]) &&
            gt_rewrite_same_shape(table, gt_rewrite_value(context, node->outputs[0])))
            return k;
    }
    return GT_NONE;
}

/* Whether constant broadcasts over the axes up to `axis` of a table of that rank, and still will against
 * result. */
static bool ignores_rows(const gt_value *constant, int32_t table_rank, int64_t axis, const gt_value *result,
                         const gt_exprs *exprs)
{
    int64_t extent;
    if (constant->rank > result->rank)
        return false;
    for (int32_t k = 0; k < constant->rank && table_rank - constant->rank + k <= axis; k++)
        if (!gt_expr_is_const(exprs, constant->dims[k], &extent) || extent != 1)
            return false;
    return true;
}

static bool can_swap(const gt_rewrite_context *context, const gt_node *gather, const gt_node *node)
{
    uint32_t operand = table_operand(context, node);
    const gt_value *result = gt_rewrite_value(context, gather->outputs[0]);
    if (operand == GT_NONE || result->rank < 0 || gt_rewrite_inner_guard(context, node->outputs[0], 1))
        return false;
    const gt_value *table = gt_rewrite_value(context, node->inputs[operand]);
    int64_t axis = gt_node_int(gather, "axis", 0);
    if (axis < 0)
        axis += table->rank;
    return node->input_count == 1 || ignores_rows(gt_rewrite_value(context, node->inputs[1 - operand]),
                                                  table->rank, axis, result, &context->model->exprs);
}

/* Whether the chain above the Gather ends in a constant and every step of it can be swapped. */
static bool ends_in_table(const gt_rewrite_context *context, const gt_node *gather)
{
    uint32_t value = gather->inputs[0];
    for (int step = 0; step < MAX_STEPS; step++) {
        const gt_node *node = gt_rewrite_producer(context, value, NULL);
        if (!node || !can_swap(context, gather, node))
            return step > 0 && gt_rewrite_is_constant(context, value);
        value = node->inputs[table_operand(context, node)];
    }
    return false;
}

/* The Gather keeps its name and makes a new value; the node behind it takes over the Gather's output. */
static gantry_status swap(gt_rewrite_context *context, uint32_t gather_id, gantry_error *err)
{
    gt_graph *graph = context->graph;
    gt_node *gather = graph->nodes.data[gather_id];
    uint32_t node_id = gt_rewrite_value(context, gather->inputs[0])->producer, rows;
    gt_node *node = graph->nodes.data[node_id];
    uint32_t operand = table_operand(context, node), table = node->inputs[operand];
    uint32_t result = gather->outputs[0];
    GT_TRY(gt_rewrite_log(context, gather->name, "applied", NULL, NULL, 0, NULL, err));
    GT_TRY(gt_graph_add_value(graph, NULL, &rows, err));
    gt_value *value = graph->values.data[rows];
    value->dtype = gt_rewrite_value(context, table)->dtype;
    value->rank = gt_rewrite_value(context, result)->rank;
    value->dims = gt_rewrite_value(context, result)->dims;
    value->producer = gather_id;
    GT_TRY(gt_rewrite_set_input(context, gather_id, 0, table, err));
    GT_TRY(gt_rewrite_set_input(context, node_id, operand, rows, err));
    gather->outputs[0] = rows;
    gt_rewrite_value(context, node->outputs[0])->producer = GT_NONE;
    node->outputs[0] = result;
    gt_rewrite_value(context, result)->producer = node_id;
    return GANTRY_OK;
}

gantry_status gt_rewrite_gather_first(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                      gantry_error *err)
{
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        if (node->removed || !gt_rewrite_is_op(node, "Gather") || node->input_count != 2 ||
            !ends_in_table(context, node))
            continue;
        GT_TRY(swap(context, graph->order.data[k], err));
        *out_changed = true;
    }
    return GANTRY_OK;
}
