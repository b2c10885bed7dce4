/* Composites: one node that stands for a recognised pattern and keeps the pattern's nodes as its body, so
 * that a provider without a kernel for it can run what the file says.
 *
 *     before   x -> Sigmoid -> Mul -> y        after   x -> gantry.Silu -> y
 *              x ----------------^                     composite: the two nodes, input x, output y
 *
 * The body's inputs are the node's, in its order. An input that is a constant is that constant inside as
 * well; constants that are no inputs (an exponent, an epsilon) exist inside only. */
#include "rewrite_internal.h"

static uint32_t uses_inside(const gt_rewrite_context *context, const gt_rewrite_pattern *pattern,
                            uint32_t value)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < pattern->node_count; k++) {
        const gt_node *node = context->graph->nodes.data[pattern->nodes[k]];
        for (uint32_t i = 0; i < node->input_count; i++)
            count += node->inputs[i] == value;
    }
    return count;
}

const char *gt_rewrite_pattern_guard(const gt_rewrite_context *context, const gt_rewrite_pattern *pattern)
{
    for (uint32_t k = 0; k < pattern->node_count; k++) {
        const gt_node *node = context->graph->nodes.data[pattern->nodes[k]];
        for (uint32_t o = 0; o < node->output_count; o++) {
            uint32_t value = node->outputs[o];
            if (value == GT_NONE || value == pattern->output)
                continue;
            const char *guard = gt_rewrite_inner_guard(context, value, uses_inside(context, pattern, value));
            if (guard)
                return guard;
        }
    }
    return NULL;
}

/* ---- the body -------------------------------------------------------------------------------- */

typedef struct body_maker {
    gt_rewrite_context *context;
    const gt_rewrite_pattern *pattern;
    gt_graph *body;
    gt_map ids; /* outer value id (its bytes in the arena) -> inner id */
} body_maker;

/* The value inside that stands for an outer one: same name, type, shape and known elements. */
static gantry_status map_value(body_maker *maker, uint32_t outer_id, uint32_t *out_inner, gantry_error *err)
{
    *out_inner = GT_NONE;
    if (outer_id == GT_NONE)
        return GANTRY_OK;
    *out_inner = gt_map_get(&maker->ids, &outer_id, sizeof outer_id, GT_NONE);
    if (*out_inner != GT_NONE)
        return GANTRY_OK;
    const gt_value *outer = gt_rewrite_value(maker->context, outer_id);
    GT_TRY(gt_graph_add_value(maker->body, outer->name, out_inner, err));
    gt_value *inner = maker->body->values.data[*out_inner];
    const char *name = inner->name;
    *inner = *outer;
    inner->name = name;
    inner->producer = inner->captured = GT_NONE;
    inner->is_output = false;
    inner->input_index = -1;
    if (!gt_value_is_constant(outer))
        inner->constant = GT_NONE;
    const uint32_t *key = gt_arena_copy(&maker->context->scratch, &outer_id, sizeof outer_id);
    if (!key || !gt_map_set(&maker->ids, key, sizeof outer_id, *out_inner))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

static gantry_status map_values(body_maker *maker, const uint32_t *outer, uint32_t count,
                                uint32_t **out_inner, gantry_error *err)
{
    *out_inner = GT_ARENA_ARRAY(&maker->context->scratch, uint32_t, count);
    if (!*out_inner)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    for (uint32_t k = 0; k < count; k++)
        GT_TRY(map_value(maker, outer[k], &(*out_inner)[k], err));
    return GANTRY_OK;
}

/* The node itself is copied; its attributes and lineage, which nobody changes in place, are shared. */
static gantry_status copy_node(body_maker *maker, uint32_t outer_id, gantry_error *err)
{
    const gt_node *outer = maker->context->graph->nodes.data[outer_id];
    uint32_t *inputs, *outputs, id;
    GT_TRY(map_values(maker, outer->inputs, outer->input_count, &inputs, err));
    GT_TRY(map_values(maker, outer->outputs, outer->output_count, &outputs, err));
    GT_TRY(gt_graph_put_node(maker->body, outer->name, outer->domain, outer->op_type, outer->opset,
                             outer->input_count, inputs, outer->output_count, outputs, &id, err));
    gt_node *inner = maker->body->nodes.data[id];
    inner->attributes = outer->attributes;
    inner->attribute_count = outer->attribute_count;
    inner->lineage = outer->lineage;
    inner->segment = outer->segment;
    return GANTRY_OK;
}

static gantry_status make_inputs(body_maker *maker, gantry_error *err)
{
    gt_allocator *allocator = maker->context->allocator;
    for (uint32_t k = 0; k < maker->pattern->input_count; k++) {
        uint32_t inner;
        GT_TRY(map_value(maker, maker->pattern->inputs[k], &inner, err));
        if (!gt_vec_push(allocator, &maker->body->inputs, inner))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
        if (!gt_value_is_constant(maker->body->values.data[inner]))
            maker->body->values.data[inner]->input_index = (int32_t)k;
    }
    return GANTRY_OK;
}

static gantry_status make_output(body_maker *maker, gantry_error *err)
{
    uint32_t inner;
    GT_TRY(map_value(maker, maker->pattern->output, &inner, err));
    if (!gt_vec_push(maker->context->allocator, &maker->body->outputs, inner))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    maker->body->values.data[inner]->is_output = true;
    return GANTRY_OK;
}

static gantry_status fill_body(body_maker *maker, gantry_error *err)
{
    GT_TRY(make_inputs(maker, err));
    for (uint32_t k = 0; k < maker->pattern->node_count; k++)
        GT_TRY(copy_node(maker, maker->pattern->nodes[k], err));
    GT_TRY(make_output(maker, err));
    return gt_graph_sort(maker->body, err);
}

static gantry_status make_body(gt_rewrite_context *context, const gt_rewrite_pattern *pattern, uint32_t node,
                               gt_graph **out_body, gantry_error *err)
{
    body_maker maker = {.context = context, .pattern = pattern};
    const char *name = context->graph->nodes.data[node]->name;
    GT_TRY(
        gt_graph_create(context->model, context->graph, node, name, context->graph->scope, &maker.body, err));
    gt_map_init(&maker.ids, context->allocator);
    gantry_status status = fill_body(&maker, err);
    gt_map_free(&maker.ids);
    *out_body = maker.body;
    return status;
}

/* ---- the node -------------------------------------------------------------------------------- */

static gantry_status add_composite(gt_rewrite_context *context, const gt_rewrite_pattern *pattern,
                                   uint32_t *out_node, gantry_error *err)
{
    gt_graph *graph = context->graph;
    char name[512];
    uint32_t last = graph->values.data[pattern->output]->producer;
    snprintf(name, sizeof name, "%s:%s", graph->nodes.data[last]->name, pattern->op_type);
    return gt_rewrite_add_node(context, name, "gantry", pattern->op_type, 1, pattern->input_count,
                               pattern->inputs, 1, &pattern->output, out_node, err);
}

/* The body is made before the nodes go: removing them takes their outputs' producers away. */
gantry_status gt_rewrite_fuse(gt_rewrite_context *context, const gt_rewrite_pattern *pattern,
                              uint32_t *out_node, gantry_error *err)
{
    gt_graph *graph = context->graph, *body;
    const char *last = graph->nodes.data[graph->values.data[pattern->output]->producer]->name;
    GT_TRY(add_composite(context, pattern, out_node, err));
    GT_TRY(make_body(context, pattern, *out_node, &body, err));
    graph->nodes.data[*out_node]->composite = body;
    GT_TRY(gt_rewrite_log(context, last, "applied", NULL, pattern->nodes, pattern->node_count,
                          graph->nodes.data[*out_node]->name, err));
    return gt_rewrite_absorb(context, *out_node, pattern->nodes, pattern->node_count, pattern->output, err);
}
