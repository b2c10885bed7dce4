/* Expanding a composite: the nodes it stands for take its place. */
#include "graph_internal.h"
#include "place_parts.h"

#define LEFT_OUT (GT_NONE - 1) /* an input that the composite was not given */

/* Where each value of the composite's body is in the graph; GT_NONE while it is not there yet. */
typedef struct expansion {
    gt_graph *graph;
    const gt_node *node;
    const gt_graph *body;
    uint32_t *place; /* by value of the body */
} expansion;

static gantry_status check_interface(const gt_node *node, gantry_error *err)
{
    const gt_graph *body = node->composite;
    if (body->inputs.count != node->input_count || body->outputs.count != node->output_count)
        return gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_PLACE, node->name,
                       "composite '%s' has %u inputs and %u outputs, its body %u and %u", node->name,
                       node->input_count, node->output_count, body->inputs.count, body->outputs.count);
    return GANTRY_OK;
}

/* Outputs that a node of the body makes keep their value in the graph; its producer changes. */
static void bind_interface(expansion *e, const gt_node *node)
{
    memset(e->place, 0xff, e->body->values.count * sizeof *e->place);
    for (uint32_t k = 0; k < node->output_count; k++) {
        uint32_t inner = e->body->outputs.data[k];
        if (node->outputs[k] != GT_NONE && e->body->values.data[inner]->producer != GT_NONE &&
            e->place[inner] == GT_NONE) {
            e->place[inner] = node->outputs[k];
            e->graph->values.data[node->outputs[k]]->producer = GT_NONE;
        }
    }
    for (uint32_t k = 0; k < node->input_count; k++)
        e->place[e->body->inputs.data[k]] = node->inputs[k] == GT_NONE ? LEFT_OUT : node->inputs[k];
}

/* A new value, or the constant that it is outside as well. It takes its name back from the value that the
 * composite's making left without a producer. */
static gantry_status add_value(expansion *e, const gt_value *like, uint32_t *out_value, gantry_error *err)
{
    uint32_t old = gt_graph_find_value(e->graph, like->name);
    const gt_value *outer = gt_graph_value(e->graph, old);
    *out_value = old;
    if (outer && gt_value_is_constant(outer) && outer->constant == like->constant)
        return GANTRY_OK;
    bool idle = outer && outer->producer == GT_NONE && outer->constant == GT_NONE &&
                outer->captured == GT_NONE && outer->input_index < 0;
    GT_TRY(gt_graph_add_value(e->graph, NULL, out_value, err));
    if (idle && !gt_graph_rename_value(e->graph, *out_value, like->name))
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    return GANTRY_OK;
}

static gantry_status place_value(expansion *e, uint32_t inner, uint32_t *out_value, gantry_error *err)
{
    *out_value = GT_NONE;
    if (inner == GT_NONE)
        return GANTRY_OK;
    const gt_value *like = e->body->values.data[inner];
    if (e->place[inner] == GT_NONE) {
        GT_TRY(add_value(e, like, &e->place[inner], err));
        gt_value *value = e->graph->values.data[e->place[inner]];
        value->kind = like->kind;
        value->dtype = like->dtype;
        value->rank = like->rank;
        value->dims = like->dims;
        value->element_count = like->element_count;
        value->elements = like->elements;
        value->constant = like->constant;
    }
    *out_value = e->place[inner] == LEFT_OUT ? GT_NONE : e->place[inner];
    return GANTRY_OK;
}

static gantry_status place_node(expansion *e, uint32_t inner_id, gantry_error *err)
{
    gt_graph *body = e->node->composite;
    const gt_node *inner = body->nodes.data[inner_id];
    gt_arena *arena = &e->graph->model->arena;
    uint32_t *inputs = GT_ARENA_ARRAY(arena, uint32_t, inner->input_count + 1);
    uint32_t *outputs = GT_ARENA_ARRAY(arena, uint32_t, inner->output_count + 1);
    if (!inputs || !outputs)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    for (uint32_t k = 0; k < inner->input_count; k++)
        GT_TRY(place_value(e, inner->inputs[k], &inputs[k], err));
    for (uint32_t k = 0; k < inner->output_count; k++)
        GT_TRY(place_value(e, inner->outputs[k], &outputs[k], err));
    uint32_t id;
    GT_TRY(gt_graph_add_node(e->graph, inner->name, inner->domain, inner->op_type, inner->opset,
                             inner->input_count, inputs, inner->output_count, outputs, &id, err));
    gt_node *node = e->graph->nodes.data[id];
    node->name = inner->name;
    node->version = inner->version;
    node->attribute_count = inner->attribute_count;
    node->attributes = inner->attributes;
    node->body_count = inner->body_count;
    node->bodies = inner->bodies;
    node->composite = inner->composite;
    GT_TRY(gt_lineage_join(body->model, body, &inner_id, 1, inner->lineage.pass, &node->lineage, err));
    for (uint32_t b = 0; b < node->body_count; b++) {
        node->bodies[b].graph->parent = e->graph;
        node->bodies[b].graph->parent_node = id;
    }
    return GANTRY_OK;
}

/* Outputs that are an input, a constant or another output of the body. */
static gantry_status replace_passed_through(expansion *e, const gt_node *node, gantry_error *err)
{
    for (uint32_t k = 0; k < node->output_count; k++) {
        uint32_t value;
        if (node->outputs[k] == GT_NONE)
            continue;
        GT_TRY(place_value(e, e->body->outputs.data[k], &value, err));
        if (value != node->outputs[k] && value != GT_NONE)
            GT_TRY(gt_graph_replace_value(e->graph, node->outputs[k], value, err));
    }
    return GANTRY_OK;
}

gantry_status gt_graph_expand_composite(gt_graph *graph, uint32_t node_id, gantry_error *err)
{
    gt_node *node = graph->nodes.data[node_id];
    expansion e = {.graph = graph, .node = node, .body = node->composite};
    GT_TRY(check_interface(node, err));
    e.place = GT_ARENA_ARRAY(&graph->model->arena, uint32_t, e.body->values.count + 1);
    if (!e.place)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    bind_interface(&e, node);
    for (uint32_t k = 0; k < e.body->order.count; k++)
        GT_TRY(place_node(&e, e.body->order.data[k], err));
    GT_TRY(replace_passed_through(&e, node, err));
    GT_TRY(gt_model_log_rewrite(graph->model, "expand_composite", node->name, "applied", "", err));
    gt_graph_remove_node(graph, node_id, "expanded", "expand_composite");
    gt_graph_changed(graph);
    return GANTRY_OK;
}
