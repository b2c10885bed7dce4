/* A body in place of its control node: its nodes move into the outer graph, its values become outer values.
 *
 *     before   c -> [If: then_branch {captures x; a = Neg x; out a}] -> y -> ...
 *     after    x -> Neg -> y -> ...
 *
 * Values are mapped first (captures to what they capture, outputs to the node's outputs), then nodes move,
 * then bodies inside the body learn their new parent. */
#include "graph_internal.h"

typedef struct inliner {
    gt_graph *outer;
    gt_graph *body;
    gt_node *control;
    uint32_t *map; /* value of the body -> value of outer */
} inliner;

/* The body's name when it is free, else the scoped one, else a fresh one. */
static gantry_status add_outer_value(inliner *in, const gt_value *inner, uint32_t *out_value,
                                     gantry_error *err)
{
    gt_text scoped;
    gt_text_init(&scoped, in->outer->model->allocator);
    gt_text_printf(&scoped, "%s%s", in->body->scope, inner->name);
    const char *name = inner->name;
    if (gt_graph_find_value(in->outer, name) != GT_NONE)
        name = scoped.data;
    if (!name || gt_graph_find_value(in->outer, name) != GT_NONE)
        name = NULL;
    gantry_status status =
        scoped.failed ? gt_graph_no_memory(err) : gt_graph_add_value(in->outer, name, out_value, err);
    gt_text_free(&scoped);
    if (status != GANTRY_OK)
        return status;
    gt_value *value = in->outer->values.data[*out_value];
    const char *kept = value->name;
    *value = *inner;
    value->name = kept;
    value->producer = GT_NONE;
    value->is_output = false;
    value->input_index = -1;
    return GANTRY_OK;
}

/* The output of the control node that this value of the body may become: made by a node, and only once. */
static uint32_t direct_output(const inliner *in, uint32_t inner)
{
    const gt_value *value = in->body->values.data[inner];
    if (value->producer == GT_NONE)
        return GT_NONE;
    for (uint32_t k = 0; k < in->body->outputs.count && k < in->control->output_count; k++)
        if (in->body->outputs.data[k] == inner && in->control->outputs[k] != GT_NONE)
            return in->control->outputs[k];
    return GT_NONE;
}

static gantry_status map_value(inliner *in, uint32_t inner, gantry_error *err)
{
    const gt_value *value = in->body->values.data[inner];
    in->map[inner] = value->captured;
    if (in->map[inner] != GT_NONE)
        return GANTRY_OK;
    in->map[inner] = direct_output(in, inner);
    bool is_dead = value->producer == GT_NONE && value->constant == GT_NONE;
    if (in->map[inner] != GT_NONE || is_dead)
        return GANTRY_OK;
    if (gt_value_is_constant(value)) {
        uint32_t same = gt_graph_find_value(in->outer, value->name);
        if (same != GT_NONE && in->outer->values.data[same]->constant == value->constant &&
            gt_value_is_constant(in->outer->values.data[same])) {
            in->map[inner] = same;
            return GANTRY_OK;
        }
    }
    return add_outer_value(in, value, &in->map[inner], err);
}

static void map_ids(const inliner *in, uint32_t *ids, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++)
        if (ids[k] != GT_NONE)
            ids[k] = in->map[ids[k]];
}

static gantry_status adopt_body(const inliner *in, gt_graph *nested, uint32_t new_parent_node,
                                gantry_error *err)
{
    nested->parent = in->outer;
    nested->parent_node = new_parent_node;
    for (uint32_t k = 0; k < nested->values.count; k++) {
        gt_value *value = nested->values.data[k];
        if (value->captured == GT_NONE)
            continue;
        value->captured = in->map[value->captured];
        GT_TRY(gt_graph_settle_capture(nested, k, err));
    }
    gt_graph_changed(nested);
    return GANTRY_OK;
}

static gantry_status move_node(inliner *in, gt_node *node, gantry_error *err)
{
    gt_graph *outer = in->outer;
    gt_allocator *allocator = outer->model->allocator;
    uint32_t id = outer->nodes.count;
    if (!gt_vec_push(allocator, &outer->nodes, node) || !gt_vec_push(allocator, &outer->order, id))
        return gt_graph_no_memory(err);
    map_ids(in, node->inputs, node->input_count);
    map_ids(in, node->outputs, node->output_count);
    for (uint32_t k = 0; k < node->output_count; k++) {
        gt_value *output = gt_graph_value(outer, node->outputs[k]);
        if (output) {
            output->producer = id;
            output->producer_output = k;
        }
    }
    for (uint32_t k = 0; k < node->body_count; k++)
        GT_TRY(adopt_body(in, node->bodies[k].graph, id, err));
    if (node->composite && node->composite->parent) {
        node->composite->parent = outer;
        node->composite->parent_node = id;
    }
    return GANTRY_OK;
}

static gantry_status move_nodes(inliner *in, gantry_error *err)
{
    for (uint32_t k = 0; k < in->body->values.count; k++)
        GT_TRY(map_value(in, k, err));
    for (uint32_t k = 0; k < in->body->order.count; k++) {
        gt_node *node = in->body->nodes.data[in->body->order.data[k]];
        if (!node->removed)
            GT_TRY(move_node(in, node, err));
    }
    in->body->nodes.count = in->body->order.count = 0;
    return GANTRY_OK;
}

/* Outputs of the body that no node of it made in their place: captures, constants, one value given twice. */
static gantry_status connect_outputs(inliner *in, gantry_error *err)
{
    for (uint32_t k = 0; k < in->control->output_count; k++) {
        uint32_t output = in->control->outputs[k];
        if (output == GT_NONE)
            continue;
        uint32_t inner = in->map[in->body->outputs.data[k]];
        if (inner != output)
            GT_TRY(gt_graph_replace_value(in->outer, output, inner, err));
    }
    return GANTRY_OK;
}

static gantry_status inline_mapped(inliner *in, uint32_t node_id, uint32_t chosen, gantry_error *err)
{
    GT_TRY(move_nodes(in, err));
    for (uint32_t k = 0; k < in->control->body_count; k++) {
        gt_graph *dropped = in->control->bodies[k].graph;
        for (uint32_t j = 0; k != chosen && j < dropped->nodes.count; j++)
            gt_graph_remove_node(dropped, j, "branch_not_taken", "inline_body");
    }
    /* Before the outputs are connected: a removed node reads nothing, so nothing is redirected for it. */
    gt_graph_remove_node(in->outer, node_id, "inlined", "inline_body");
    return connect_outputs(in, err);
}

gantry_status gt_graph_inline_body(gt_graph *graph, uint32_t node_id, uint32_t chosen, gantry_error *err)
{
    gt_node *control = graph->nodes.data[node_id];
    if (chosen >= control->body_count)
        return gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_LOAD, control->name,
                       "node '%s' has %u bodies, body %u cannot be inlined", control->name,
                       control->body_count, chosen);
    gt_graph *body = control->bodies[chosen].graph;
    if (body->inputs.count || body->outputs.count < control->output_count)
        return gt_fail(err, GANTRY_MODEL_GRAPH, GANTRY_STAGE_LOAD, control->name,
                       "'%s' of node '%s' has %u inputs and %u outputs; a branch has no inputs and the %u "
                       "outputs of its node",
                       control->bodies[chosen].name, control->name, body->inputs.count, body->outputs.count,
                       control->output_count);
    inliner in = {graph, body, control, GT_NEW_ARRAY(graph->model->allocator, uint32_t, body->values.count)};
    gantry_status status = in.map ? inline_mapped(&in, node_id, chosen, err) : gt_graph_no_memory(err);
    gt_free(graph->model->allocator, in.map);
    gt_graph_changed(graph);
    return status;
}
