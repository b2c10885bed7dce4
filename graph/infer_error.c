/* Errors of shapes, worded for users: the node, its tensors with shapes aligned on the right, where each
 * comes from, what bound the symbols, and what would make it legal. */
#include "infer_show.h"

void gt_infer_describe(const gt_graph *graph, uint32_t value, gt_text *text)
{
    gt_shown one;
    gt_show_value(graph, value, NULL, NULL, &one);
    gt_show_table(graph, &one, 1, NULL, text);
}

/* details end what is said; both together are wrapped. */
static gantry_status report(gantry_error *err, gantry_status code, gantry_stage stage, const gt_node *node,
                            const char *message, gt_text *details)
{
    gt_text whole, wrapped;
    gt_text_init(&whole, details->allocator);
    gt_text_init(&wrapped, details->allocator);
    gt_text_printf(&whole, "node '%s' (%s): %s%s", node ? node->name : "?", node ? node->op_type : "?",
                   message, details->data ? details->data : "");
    if (whole.data)
        gt_text_wrap(&wrapped, whole.data, GT_ERROR_COLUMNS);
    gt_fail(err, code, stage, node ? node->name : NULL, "%s", wrapped.data ? wrapped.data : message);
    gt_text_free(&wrapped);
    gt_text_free(&whole);
    gt_text_free(details);
    return code;
}

void gt_infer_fail_fill(const gt_infer *infer, gantry_status code, const char *format, ...)
{
    char message[768];
    gt_shown all[GT_MAX_SHOWN];
    gt_text details;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    gt_text_init(&details, infer->model->allocator);
    char *hint = strstr(message, GT_HINT);
    gt_show_table(infer->graph, all, gt_show_inputs(infer->graph, infer->node, NULL, all), NULL, &details);
    if (hint) {
        gt_text_printf(&details, "%s", hint);
        *hint = 0;
    }
    report(infer->err, code, GANTRY_STAGE_LOAD, infer->node, message, &details);
}

/* ---- two tensors that don't fit */

static void extent_text(const gt_graph *graph, gt_expr e, const gt_binding *at, char *out)
{
    int64_t extent;
    if (gt_bound_value(&graph->model->exprs, e, at, &extent))
        snprintf(out, GT_DIM_TEXT, "%lld", (long long)extent);
    else
        gt_dim_text(&graph->model->exprs, e, at, graph->model->allocator, out);
}

/* The sentence that says what is wrong with the two. A tensor against itself stands for a tensor against a
 * shape that is asked for (Expand); an axis of 0 for all its elements. */
static void pair_message(const gt_graph *graph, const gt_shape_check *check, const gt_binding *at, char *out,
                         size_t room)
{
    const gt_value *a = gt_graph_value(graph, check->a), *b = gt_graph_value(graph, check->b);
    const gt_expr_node *expr = &graph->model->exprs.nodes.data[check->expr];
    char x[GT_DIM_TEXT], y[GT_DIM_TEXT];
    if (!a) { /* a demand of the operator's, of no tensor's */
        snprintf(out, room, "%s", check->rule ? check->rule : "the shapes do not fit the operator");
        return;
    }
    gt_expr have = gt_extent_from_right(a, check->axis_a);
    gt_expr want = b ? gt_extent_from_right(b, check->axis_b) : GT_EXPR_UNKNOWN;
    if (a == b)
        want = expr->a == have ? expr->b : expr->a;
    extent_text(graph, check->axis_a ? have : expr->a, at, x);
    extent_text(graph, check->axis_a ? want : expr->b, at, y);
    if (!check->axis_a)
        snprintf(out, room, "the %s elements of '%.80s' do not fit into the shape asked for, which has %s", x,
                 a->name, y);
    else if (!b)
        snprintf(out, room, "'%.80s' has extent %s on axis -%u, which does not fit the operator", a->name, x,
                 check->axis_a);
    else if (a == b)
        snprintf(out, room,
                 "on axis -%u '%.80s' has %s, and the shape asked for %s; only an extent of 1 can be "
                 "repeated",
                 check->axis_a, a->name, x, y);
    else if (expr->kind == GT_EXPR_BROADCAST)
        snprintf(
            out, room,
            "'%.80s' and '%.80s' can't be broadcast: on axis -%u (from the right) one has %s, the other %s",
            a->name, b->name, check->axis_a, x, y);
    else if (strcmp(gt_graph_node(graph, check->node)->op_type, "Concat") == 0)
        snprintf(out, room,
                 "axis -%u of '%.80s' is %s, that of '%.80s' %s; only along the axis that is joined (%lld) "
                 "may they "
                 "differ",
                 check->axis_a, a->name, x, b->name, y,
                 (long long)gt_node_int(gt_graph_node(graph, check->node), "axis", 0));
    else
        snprintf(out, room, "axis -%u of '%.80s' is %s, but axis -%u of '%.80s' is %s; they must be equal",
                 check->axis_a, a->name, x, check->axis_b, b->name, y);
}

/* What is shown of a pair: both tensors, or the tensor and the operand that asks for a shape. */
static uint32_t show_pair(const gt_graph *graph, const gt_shape_check *check, const gt_binding *at,
                          gt_shown *out)
{
    const gt_node *node = gt_graph_node(graph, check->node);
    uint32_t b = check->b == check->a && node->input_count > 1 ? node->inputs[1] : check->b;
    gt_show_value(graph, check->a, node, at, &out[0]);
    out[0].mark = check->axis_a;
    if (b == GT_NONE)
        return 1;
    gt_show_value(graph, b, node, at, &out[1]);
    out[1].mark = b == check->b ? check->axis_b : 0;
    return 2;
}

static gantry_status explain_pair(const gt_graph *graph, const gt_shape_check *check, const gt_binding *at,
                                  gantry_status code, gantry_stage stage, gantry_error *err)
{
    char message[512];
    gt_shown shown[2];
    gt_text details;
    gt_text_init(&details, graph->model->allocator);
    pair_message(graph, check, at, message, sizeof message);
    uint32_t count = show_pair(graph, check, at, shown);
    gt_show_table(graph, shown, count, at, &details);
    gt_show_symbols(graph, shown, count, at, &details);
    gt_hint_pair(graph, check, at, &details);
    return report(err, code, stage, gt_graph_node(graph, check->node), message, &details);
}

gantry_status gt_infer_fail_pair(const gt_infer *infer, const gt_shape_check *check)
{
    return explain_pair(infer->graph, check, NULL, GANTRY_MODEL_SHAPE, GANTRY_STAGE_LOAD, infer->err);
}

/* ---- at bind */

/* Checks nest: one whose operand failed is not the culprit. */
static bool check_is_broken(const gt_exprs *exprs, const gt_shape_check *check, const uint8_t *known)
{
    const gt_expr_node *node = &exprs->nodes.data[check->expr];
    return known[node->a] && known[node->b] && !known[check->expr];
}

uint32_t gt_infer_first_failure(const gt_graph *graph, const uint8_t *known)
{
    for (uint32_t c = 0; c < graph->check_count; c++)
        if (check_is_broken(&graph->model->exprs, &graph->checks[c], known))
            return c;
    return GT_NONE;
}

/* All inputs of the node, with what bound their symbols. */
static gantry_status report_inputs(const gt_graph *graph, const gt_node *node, const char *message,
                                   const gt_binding *at, gantry_error *err)
{
    gt_shown shown[GT_MAX_SHOWN];
    gt_text details;
    gt_text_init(&details, graph->model->allocator);
    uint32_t count = gt_show_inputs(graph, node, at, shown);
    gt_show_table(graph, shown, count, at, &details);
    gt_show_symbols(graph, shown, count, at, &details);
    return report(err, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN, node, message, &details);
}

/* "a*b overflows 64 bits": why an expression has no value though its operands do. */
static void reason_text(const gt_exprs *exprs, gt_expr failed, const gt_binding *at, gt_allocator *allocator,
                        char *out, size_t room)
{
    const gt_expr_node *node = &exprs->nodes.data[failed];
    bool whole = node->kind == GT_EXPR_TO_INT;
    gt_text text;
    gt_text_init(&text, allocator);
    gt_expr_print(exprs, whole ? node->a : failed, &text);
    const char *expression = text.data ? text.data : "it";
    if (whole)
        snprintf(out, room, "%.160s is %.9g", expression, at->values[node->a].r);
    else if (node->kind == GT_EXPR_ADD || node->kind == GT_EXPR_SUB || node->kind == GT_EXPR_MUL)
        snprintf(out, room, "%.160s overflows 64 bits", expression);
    else if (node->kind >= GT_EXPR_FLOORDIV && node->kind <= GT_EXPR_MOD)
        snprintf(out, room, "%.160s divides by 0", expression);
    else
        snprintf(out, room, "%.160s has no value", expression);
    gt_text_free(&text);
}

gantry_status gt_infer_explain_check(const gt_graph *graph, uint32_t index, gt_expr failed,
                                     const gt_scalar *values, const uint8_t *known, gantry_error *err)
{
    const gt_binding at = {values, known};
    const gt_shape_check *check = &graph->checks[index];
    const gt_node *node = gt_graph_node(graph, check->node);
    char reason[256];
    if (failed != check->expr) {
        reason_text(&graph->model->exprs, failed, &at, graph->model->allocator, reason, sizeof reason);
        return report_inputs(graph, node, reason, &at, err);
    }
    if (check->rule)
        return report_inputs(graph, node, check->rule, &at, err);
    return explain_pair(graph, check, &at, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN, err);
}

gantry_status gt_infer_explain_extent(const gt_graph *graph, uint32_t value, int32_t axis, gt_expr failed,
                                      const gt_scalar *values, const uint8_t *known, gantry_error *err)
{
    const gt_binding at = {values, known};
    const gt_value *of = gt_graph_value(graph, value);
    const gt_node *node = gt_graph_node(graph, of->producer);
    char message[512], reason[256];
    for (uint32_t c = 0; c < graph->check_count; c++)
        if (graph->checks[c].expr == failed)
            return gt_infer_explain_check(graph, c, failed, values, known, err);
    if (failed == GT_EXPR_UNKNOWN)
        snprintf(message, sizeof message, "axis %d of '%.80s' would have the extent %lld for these inputs",
                 axis, of->name, (long long)values[of->dims[axis]].i);
    else {
        reason_text(&graph->model->exprs, failed, &at, graph->model->allocator, reason, sizeof reason);
        snprintf(message, sizeof message, "axis %d of '%.80s' has no extent for these inputs: %s", axis,
                 of->name, reason);
    }
    if (!node)
        return gt_fail(err, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN, NULL, "%s", message);
    return report_inputs(graph, node, message, &at, err);
}
