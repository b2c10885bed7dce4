/* Rules that drop what is not needed: nodes nobody reads, and Ifs whose condition is known. */
#include "rewrite_internal.h"

static bool is_dead(const gt_rewrite_context *context, const gt_node *node)
{
    for (uint32_t k = 0; k < node->output_count; k++)
        if (node->outputs[k] != GT_NONE && gt_rewrite_use_count(context, node->outputs[k]))
            return false;
    return true;
}

/* A body that no longer reads a capture must not keep the outer node alive that computes it. */
static void drop_idle_captures(gt_rewrite_context *context, gt_graph *graph, bool *out_changed)
{
    for (uint32_t v = 0; v < graph->values.count; v++) {
        gt_value *value = graph->values.data[v];
        if (value->captured == GT_NONE || gt_rewrite_use_count(context, v))
            continue;
        value->captured = GT_NONE;
        gt_graph_changed(graph->parent);
        *out_changed = true;
    }
}

/* Against the order, so that a node goes before the nodes it reads from. */
gantry_status gt_rewrite_dead_code(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                   gantry_error *err)
{
    for (uint32_t k = graph->order.count; k-- > 0;) {
        uint32_t id = graph->order.data[k];
        const gt_node *node = graph->nodes.data[id];
        if (node->removed || !is_dead(context, node))
            continue;
        GT_TRY(gt_rewrite_log(context, node->name, "applied", NULL, &id, 1, NULL, err));
        gt_rewrite_remove(context, id, "dead");
        *out_changed = true;
    }
    drop_idle_captures(context, graph, out_changed);
    return GANTRY_OK;
}

/* 1 or 0 when the condition of an If is known now, else -1. */
static int known_condition(const gt_rewrite_context *context, uint32_t value_id)
{
    const gt_value *value = gt_rewrite_value(context, value_id);
    double number;
    int64_t element;
    if (!value)
        return -1;
    if (gt_value_is_constant(value))
        return gt_rewrite_scalar(context, value_id, &number) ? number != 0 : -1;
    if (value->element_count == 1 && value->elements &&
        gt_expr_is_const(&context->model->exprs, value->elements[0], &element))
        return element != 0;
    return -1;
}

static uint32_t body_of_role(const gt_node *node, const char *role)
{
    for (uint32_t b = 0; b < node->body_count; b++)
        if (strcmp(node->bodies[b].name, role) == 0)
            return b;
    return GT_NONE;
}

gantry_status gt_rewrite_if_inline(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                   gantry_error *err)
{
    uint32_t order_count = graph->order.count;
    for (uint32_t k = 0; k < order_count && k < graph->order.count; k++) {
        uint32_t id = graph->order.data[k];
        const gt_node *node = graph->nodes.data[id];
        if (node->removed || !gt_rewrite_is_op(node, "If"))
            continue;
        int condition = known_condition(context, gt_rewrite_input(node, 0));
        uint32_t body =
            condition < 0 ? GT_NONE : body_of_role(node, condition ? "then_branch" : "else_branch");
        if (body == GT_NONE)
            continue;
        GT_TRY(gt_rewrite_log(context, node->name, "applied", NULL, &id, 1, NULL, err));
        GT_TRY(gt_graph_inline_body(graph, id, body, err));
        *out_changed = context->infer_now = true;
    }
    return *out_changed ? gt_rewrite_index(context, graph, err) : GANTRY_OK;
}
