/* The index of uses that the rules work with: who reads a value, exact while a rule adds, removes and
 * replaces.
 *
 * gt_graph_uses is made anew after each change, which would cost nodes * changes. Here a change costs what it
 * touches: counts are kept exact, and the list of a value's readers only grows; an entry whose node was
 * removed or reads something else now is skipped by whoever walks the list. */
#include "rewrite_internal.h"

static bool reads(const gt_graph *graph, uint32_t node_id, uint32_t value)
{
    const gt_node *node = graph->nodes.data[node_id];
    if (node->removed)
        return false;
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] == value)
            return true;
    for (uint32_t b = 0; b < node->body_count; b++) {
        const gt_graph *body = node->bodies[b].graph;
        for (uint32_t v = 0; v < body->values.count; v++)
            if (body->values.data[v]->captured == value)
                return true;
    }
    return false;
}

/* Room in the index for all values of the graph, those added after it was made included. */
static bool cover_values(gt_rewrite_context *context)
{
    uint32_t count = context->graph->values.count;
    if (!gt_vec_reserve(context->allocator, &context->values, count))
        return false;
    while (context->values.count < count)
        context->values.data[context->values.count++] = (gt_rewrite_uses){GT_NONE, 0};
    return true;
}

static bool add_use(gt_rewrite_context *context, uint32_t value, uint32_t node)
{
    if (value == GT_NONE)
        return true;
    gt_rewrite_uses *uses = &context->values.data[value];
    if (node != GT_NONE) {
        gt_rewrite_use use = {node, uses->first};
        if (!gt_vec_push(context->allocator, &context->uses, use))
            return false;
        uses->first = context->uses.count - 1;
    }
    uses->count++;
    return true;
}

static bool add_uses_of_node(gt_rewrite_context *context, uint32_t node_id)
{
    const gt_node *node = context->graph->nodes.data[node_id];
    for (uint32_t k = 0; k < node->input_count; k++)
        if (!add_use(context, node->inputs[k], node_id))
            return false;
    for (uint32_t b = 0; b < node->body_count; b++) {
        const gt_graph *body = node->bodies[b].graph;
        for (uint32_t v = 0; v < body->values.count; v++)
            if (!add_use(context, body->values.data[v]->captured, node_id))
                return false;
    }
    return true;
}

gantry_status gt_rewrite_index(gt_rewrite_context *context, gt_graph *graph, gantry_error *err)
{
    context->graph = graph;
    context->uses.count = context->values.count = 0;
    bool fits = cover_values(context);
    for (uint32_t n = 0; fits && n < graph->nodes.count; n++)
        fits = graph->nodes.data[n]->removed || add_uses_of_node(context, n);
    for (uint32_t k = 0; fits && k < graph->outputs.count; k++)
        fits = add_use(context, graph->outputs.data[k], GT_NONE);
    return fits ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

uint32_t gt_rewrite_use_count(const gt_rewrite_context *context, uint32_t value)
{
    return context->values.data[value].count;
}

uint32_t gt_rewrite_next_consumer(const gt_rewrite_context *context, uint32_t value, uint32_t *inout_cursor)
{
    uint32_t at =
        *inout_cursor == GT_NONE ? context->values.data[value].first : context->uses.data[*inout_cursor].next;
    for (; at != GT_NONE; at = context->uses.data[at].next)
        if (reads(context->graph, context->uses.data[at].node, value)) {
            *inout_cursor = at;
            return context->uses.data[at].node;
        }
    return GT_NONE;
}

uint32_t gt_rewrite_only_consumer(const gt_rewrite_context *context, uint32_t value)
{
    uint32_t cursor = GT_NONE;
    if (context->values.data[value].count != 1 || context->graph->values.data[value]->is_output)
        return GT_NONE;
    return gt_rewrite_next_consumer(context, value, &cursor);
}

/* The captures of `from` in the bodies of node become captures of `to`, or the constant that it is. */
static gantry_status move_captures(gt_rewrite_context *context, const gt_node *node, uint32_t from,
                                   uint32_t to, uint32_t *inout_moved, gantry_error *err)
{
    for (uint32_t b = 0; b < node->body_count; b++) {
        gt_graph *body = node->bodies[b].graph;
        for (uint32_t v = 0; v < body->values.count; v++) {
            gt_value *value = body->values.data[v];
            if (value->captured != from)
                continue;
            value->captured = to;
            GT_TRY(gt_graph_settle_capture(body, v, err));
            *inout_moved += value->captured == to;
            gt_graph_changed(body);
        }
    }
    return GANTRY_OK;
}

static gantry_status move_uses(gt_rewrite_context *context, uint32_t node_id, uint32_t from, uint32_t to,
                               gantry_error *err)
{
    const gt_node *node = context->graph->nodes.data[node_id];
    uint32_t moved = 0;
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] == from) {
            node->inputs[k] = to;
            moved++;
        }
    GT_TRY(move_captures(context, node, from, to, &moved, err));
    for (; moved; moved--)
        if (!add_use(context, to, node_id))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

bool gt_rewrite_can_replace(const gt_rewrite_context *context, uint32_t from, uint32_t to)
{
    const gt_value *target = gt_rewrite_value(context, to);
    return !gt_rewrite_value(context, from)->is_output || (target->producer != GT_NONE && !target->is_output);
}

gantry_status gt_rewrite_replace(gt_rewrite_context *context, uint32_t from, uint32_t to, gantry_error *err)
{
    if (gt_rewrite_value(context, from)->is_output) {
        GT_TRY(gt_graph_replace_value(context->graph, from, to, err));
        return gt_rewrite_index(context, context->graph, err);
    }
    for (uint32_t at = context->values.data[from].first; at != GT_NONE;) {
        gt_rewrite_use use = context->uses.data[at]; /* by value: the array may grow */
        if (reads(context->graph, use.node, from))
            GT_TRY(move_uses(context, use.node, from, to, err));
        at = use.next;
    }
    context->values.data[from] = (gt_rewrite_uses){GT_NONE, 0};
    return GANTRY_OK;
}

gantry_status gt_rewrite_set_input(gt_rewrite_context *context, uint32_t node_id, uint32_t input,
                                   uint32_t value, gantry_error *err)
{
    gt_node *node = context->graph->nodes.data[node_id];
    if (!cover_values(context))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    if (input >= node->input_count) {
        uint32_t *inputs = GT_ARENA_ARRAY(&context->model->arena, uint32_t, input + 1);
        if (!inputs)
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
        for (uint32_t k = 0; k <= input; k++)
            inputs[k] = k < node->input_count ? node->inputs[k] : GT_NONE;
        node->inputs = inputs;
        node->input_count = input + 1;
    }
    if (node->inputs[input] != GT_NONE)
        context->values.data[node->inputs[input]].count--;
    node->inputs[input] = value;
    return add_use(context, value, node_id) ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

gantry_status gt_rewrite_add_node(gt_rewrite_context *context, const char *name, const char *domain,
                                  const char *op_type, int32_t opset, uint32_t input_count,
                                  const uint32_t *inputs, uint32_t output_count, const uint32_t *outputs,
                                  uint32_t *out_node, gantry_error *err)
{
    for (uint32_t k = 0; k < output_count; k++)
        if (outputs[k] != GT_NONE)
            gt_rewrite_value(context, outputs[k])->producer = GT_NONE;
    GT_TRY(gt_graph_add_node(context->graph, name, domain, op_type, opset, input_count, inputs, output_count,
                             outputs, out_node, err));
    if (!cover_values(context) || !add_uses_of_node(context, *out_node))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

static void drop_uses(gt_rewrite_context *context, const gt_node *node)
{
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] != GT_NONE)
            context->values.data[node->inputs[k]].count--;
    for (uint32_t b = 0; b < node->body_count; b++) {
        const gt_graph *body = node->bodies[b].graph;
        for (uint32_t v = 0; v < body->values.count; v++)
            if (body->values.data[v]->captured != GT_NONE)
                context->values.data[body->values.data[v]->captured].count--;
    }
}

void gt_rewrite_remove(gt_rewrite_context *context, uint32_t node_id, const char *reason)
{
    drop_uses(context, context->graph->nodes.data[node_id]);
    gt_graph_remove_node(context->graph, node_id, reason, context->rule->name);
}

gantry_status gt_rewrite_join_lineage(gt_rewrite_context *context, uint32_t keeper, const uint32_t *nodes,
                                      uint32_t count, gantry_error *err)
{
    gt_node *node = context->graph->nodes.data[keeper];
    gt_lineage lineage;
    GT_TRY(gt_lineage_join(context->model, context->graph, nodes, count, context->rule->name, &lineage, err));
    /* The keeper held its own sources before, and holds them once. */
    for (uint32_t k = 0; k < node->lineage.count; k++)
        context->model->sources.data[node->lineage.sources[k]].holders--;
    node->lineage = lineage;
    return GANTRY_OK;
}

gantry_status gt_rewrite_absorb(gt_rewrite_context *context, uint32_t keeper, const uint32_t *nodes,
                                uint32_t count, uint32_t output, gantry_error *err)
{
    gt_graph *graph = context->graph;
    gt_node *node = graph->nodes.data[keeper];
    GT_TRY(gt_rewrite_join_lineage(context, keeper, nodes, count, err));
    for (uint32_t k = 0; k < count; k++)
        if (nodes[k] != keeper)
            gt_rewrite_remove(context, nodes[k], "fused");
    node->outputs[0] = output;
    gt_value *value = graph->values.data[output];
    value->producer = keeper;
    value->producer_output = 0;
    return GANTRY_OK;
}
