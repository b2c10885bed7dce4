/* A deep copy of a graph with its bodies: ids, names, constants and expressions stay the same. */
#include "graph_internal.h"

static gantry_status clone_into(const gt_graph *from, gt_graph *parent, uint32_t parent_node,
                                gt_graph **out_graph, gantry_error *err);

static gantry_status clone_values(const gt_graph *from, gt_graph *to, gantry_error *err)
{
    gt_model *model = to->model;
    if (!gt_vec_reserve(model->allocator, &to->values, from->values.count))
        return gt_graph_no_memory(err);
    for (uint32_t k = 0; k < from->values.count; k++) {
        gt_value *value = gt_arena_copy(&model->arena, from->values.data[k], sizeof *value);
        if (!value || !gt_map_set(&to->value_names, value->name, strlen(value->name), k))
            return gt_graph_no_memory(err);
        to->values.data[to->values.count++] = value;
    }
    return GANTRY_OK;
}

static gantry_status clone_bodies(const gt_node *from, gt_node *to, gt_graph *graph, uint32_t id,
                                  gantry_error *err)
{
    to->bodies = gt_arena_copy(&graph->model->arena, from->bodies, from->body_count * sizeof *from->bodies);
    if (!to->bodies)
        return gt_graph_no_memory(err);
    for (uint32_t k = 0; k < from->body_count; k++)
        GT_TRY(clone_into(from->bodies[k].graph, graph, id, &to->bodies[k].graph, err));
    if (from->composite) {
        gt_graph *parent = from->composite->parent ? graph : NULL;
        GT_TRY(clone_into(from->composite, parent, parent ? id : GT_NONE, &to->composite, err));
    }
    return GANTRY_OK;
}

/* Attributes and the lineage are shared: nobody changes their arrays in place. */
static gantry_status clone_node(const gt_node *from, gt_graph *graph, uint32_t id, gantry_error *err)
{
    gt_model *model = graph->model;
    gt_node *node = gt_arena_copy(&model->arena, from, sizeof *node);
    if (!node)
        return gt_graph_no_memory(err);
    node->inputs = gt_arena_copy(&model->arena, from->inputs, from->input_count * sizeof *from->inputs);
    node->outputs = gt_arena_copy(&model->arena, from->outputs, from->output_count * sizeof *from->outputs);
    if (!node->inputs || !node->outputs || !gt_vec_push(model->allocator, &graph->nodes, node))
        return gt_graph_no_memory(err);
    for (uint32_t k = 0; !node->removed && k < node->lineage.count; k++)
        model->sources.data[node->lineage.sources[k]].holders++;
    return clone_bodies(from, node, graph, id, err);
}

#define CLONE_IDS(to, from, field)                                                                           \
    (gt_vec_reserve((to)->model->allocator, &(to)->field, (from)->field.count) &&                            \
     ((from)->field.count == 0 ||                                                                            \
      memcpy((to)->field.data, (from)->field.data, (from)->field.count * sizeof *(to)->field.data)) &&       \
     ((to)->field.count = (from)->field.count, true))

static gantry_status clone_into(const gt_graph *from, gt_graph *parent, uint32_t parent_node,
                                gt_graph **out_graph, gantry_error *err)
{
    gt_graph *to;
    GT_TRY(gt_graph_create(from->model, parent, parent_node, from->name, from->scope, &to, err));
    GT_TRY(clone_values(from, to, err));
    for (uint32_t k = 0; k < from->nodes.count; k++)
        GT_TRY(clone_node(from->nodes.data[k], to, k, err));
    if (!CLONE_IDS(to, from, order) || !CLONE_IDS(to, from, inputs) || !CLONE_IDS(to, from, outputs))
        return gt_graph_no_memory(err);
    *out_graph = to;
    return GANTRY_OK;
}

gantry_status gt_graph_clone(const gt_graph *graph, gt_graph **out_graph, gantry_error *err)
{
    *out_graph = NULL;
    return clone_into(graph, graph->parent, graph->parent_node, out_graph, err);
}
