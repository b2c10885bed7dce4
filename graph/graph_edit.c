/* Changing a graph: replacing values, removing nodes, and keeping the record of what became of the file's
 * nodes. */
#include "graph_internal.h"

/* ---- lineage --------------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

gantry_status gt_lineage_join(gt_model *model, gt_graph *graph, const uint32_t *nodes, uint32_t count,
                              const char *pass, gt_lineage *out_lineage, gantry_error *err)
{
    *out_lineage = (gt_lineage){0};
    size_t total = 0;
    for (uint32_t k = 0; k < count; k++)
        total += graph->nodes.data[nodes[k]]->lineage.count;
    uint32_t *sources = GT_ARENA_ARRAY(&model->arena, uint32_t, total);
    const char *pass_copy = pass ? gt_arena_text(&model->arena, pass, strlen(pass)) : NULL;
    if (!sources || (pass && !pass_copy))
        return gt_graph_no_memory(err);
    size_t filled = 0;
    for (uint32_t k = 0; k < count; k++) {
        const gt_lineage *lineage = &graph->nodes.data[nodes[k]]->lineage;
        if (lineage->count)
            memcpy(sources + filled, lineage->sources, lineage->count * sizeof *sources);
        filled += lineage->count;
    }
    qsort(sources, total, sizeof *sources, compare_ids);
    uint32_t unique = 0;
    for (size_t k = 0; k < total; k++)
        if (!unique || sources[unique - 1] != sources[k])
            sources[unique++] = sources[k];
    for (uint32_t k = 0; k < unique; k++) {
        gt_source *source = &model->sources.data[sources[k]];
        source->holders++;
        source->removed_by = source->removed_pass = NULL;
    }
    *out_lineage = (gt_lineage){unique, sources, pass_copy};
    return GANTRY_OK;
}

static void let_go_of_sources(gt_model *model, const gt_lineage *lineage, const char *reason,
                              const char *pass)
{
    for (uint32_t k = 0; k < lineage->count; k++) {
        gt_source *source = &model->sources.data[lineage->sources[k]];
        if (source->holders && --source->holders == 0) {
            source->removed_by = reason;
            source->removed_pass = pass;
        }
    }
}

static void remove_node(gt_graph *graph, gt_node *node, const char *reason, const char *pass)
{
    if (node->removed)
        return;
    node->removed = true;
    let_go_of_sources(graph->model, &node->lineage, reason, pass);
    for (uint32_t k = 0; k < node->body_count; k++) {
        gt_graph *body = node->bodies[k].graph;
        for (uint32_t j = 0; j < body->nodes.count; j++)
            remove_node(body, body->nodes.data[j], reason, pass);
    }
}

/* Reasons and passes are names from tables; those that are not must outlive the model. A copy is made because
 * a caller may have built the text. */
void gt_graph_remove_node(gt_graph *graph, uint32_t id, const char *reason, const char *pass)
{
    gt_node *node = graph->nodes.data[id];
    gt_arena *arena = &graph->model->arena;
    const char *reason_copy = gt_arena_text(arena, reason, strlen(reason));
    const char *pass_copy = pass ? gt_arena_text(arena, pass, strlen(pass)) : NULL;
    /* Out of memory loses a word of the report, not the reason that there is one. */
    remove_node(graph, node, reason_copy ? reason_copy : "removed", pass_copy);
    for (uint32_t k = 0; k < node->output_count; k++) {
        gt_value *output = gt_graph_value(graph, node->outputs[k]);
        if (output && output->producer == id)
            output->producer = GT_NONE;
    }
    gt_graph_changed(graph);
}

/* ---- captures -------------------------------------------------------------------------------- */

/* Calls settle for every capture of `outer` in the bodies of the node. */
static gantry_status settle_captures_of(gt_graph *graph, uint32_t outer, gantry_error *err)
{
    for (uint32_t k = 0; k < graph->nodes.count; k++) {
        const gt_node *node = graph->nodes.data[k];
        for (uint32_t j = 0; !node->removed && j < node->body_count; j++) {
            gt_graph *body = node->bodies[j].graph;
            for (uint32_t v = 0; v < body->values.count; v++)
                if (body->values.data[v]->captured == outer)
                    GT_TRY(gt_graph_settle_capture(body, v, err));
        }
    }
    return GANTRY_OK;
}

gantry_status gt_graph_settle_capture(gt_graph *body, uint32_t id, gantry_error *err)
{
    gt_value *value = body->values.data[id];
    if (value->captured == GT_NONE)
        return GANTRY_OK;
    const gt_value *outer = body->parent->values.data[value->captured];
    if (!gt_value_is_constant(outer))
        return GANTRY_OK;
    GT_TRY(gt_value_set_constant(body, id, outer->constant, err));
    value->captured = GT_NONE;
    gt_graph_changed(body);
    return settle_captures_of(body, id, err);
}

static gantry_status recapture(gt_node *node, uint32_t from, uint32_t to, gantry_error *err)
{
    for (uint32_t k = 0; k < node->body_count; k++) {
        gt_graph *body = node->bodies[k].graph;
        for (uint32_t v = 0; v < body->values.count; v++) {
            if (body->values.data[v]->captured != from)
                continue;
            body->values.data[v]->captured = to;
            GT_TRY(gt_graph_settle_capture(body, v, err));
        }
    }
    return GANTRY_OK;
}

/* ---- replacing a value ----------------------------------------------------------------------- */

/* Readers of `from` inside the graph and its bodies; graph outputs are left alone. */
static gantry_status redirect_readers(gt_graph *graph, uint32_t from, uint32_t to, gantry_error *err)
{
    const gt_use *uses;
    uint32_t count;
    GT_TRY(gt_graph_uses(graph, from, &uses, &count, err));
    for (uint32_t k = 0; k < count; k++) {
        if (uses[k].node == GT_NONE)
            continue;
        gt_node *node = graph->nodes.data[uses[k].node];
        if (uses[k].index == GT_NONE)
            GT_TRY(recapture(node, from, to, err));
        else
            node->inputs[uses[k].index] = to;
    }
    gt_graph_changed(graph);
    return GANTRY_OK;
}

static bool can_take_over_output(const gt_value *value)
{
    return value->producer != GT_NONE && !value->is_output && value->input_index < 0 &&
           value->captured == GT_NONE && value->constant == GT_NONE;
}

static bool swap_names(gt_graph *graph, uint32_t a, uint32_t b)
{
    const char *name = graph->values.data[a]->name;
    return gt_graph_rename_value(graph, a, graph->values.data[b]->name) &&
           gt_graph_rename_value(graph, b, name);
}

static gantry_status take_over_output(gt_graph *graph, uint32_t from, uint32_t to, gantry_error *err)
{
    gt_value *old = graph->values.data[from], *new = graph->values.data[to];
    if (old->input_index >= 0)
        return gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_LOAD, NULL,
                       "graph input '%s' is also an output and cannot be replaced", old->name);
    if (!swap_names(graph, from, to))
        return gt_graph_no_memory(err);
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        if (graph->outputs.data[k] == from)
            graph->outputs.data[k] = to;
    old->is_output = false;
    new->is_output = true;
    if (new->declared_rank < 0) {
        new->declared_dtype = old->declared_dtype;
        new->declared_rank = old->declared_rank;
        new->declared_dims = old->declared_dims;
        new->declared_dim_names = old->declared_dim_names;
    }
    if (!new->declared_type) {
        new->declared_type = old->declared_type;
        new->declared_type_bytes = old->declared_type_bytes;
    }
    return GANTRY_OK;
}

/* A new value that Identity makes from `to` takes over: `to` keeps its own name. */
static gantry_status put_identity(gt_graph *graph, uint32_t to, uint32_t *out_value, gantry_error *err)
{
    uint32_t node;
    int64_t opset = gt_model_opset(graph->model);
    GT_TRY(gt_graph_add_value(graph, NULL, out_value, err));
    return gt_graph_add_node(graph, NULL, "", "Identity", opset ? (int32_t)opset : 1, 1, &to, 1, out_value,
                             &node, err);
}

gantry_status gt_graph_replace_value(gt_graph *graph, uint32_t from, uint32_t to, gantry_error *err)
{
    if (from == to)
        return GANTRY_OK;
    GT_TRY(redirect_readers(graph, from, to, err));
    if (graph->values.data[from]->is_output) {
        uint32_t output = to;
        if (!can_take_over_output(graph->values.data[to]))
            GT_TRY(put_identity(graph, to, &output, err));
        GT_TRY(take_over_output(graph, from, output, err));
    }
    gt_graph_changed(graph);
    return GANTRY_OK;
}
