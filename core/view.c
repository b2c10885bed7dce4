/* The graph as providers see it, built from ours: value and node views with the graph's own ids.
 *
 * A constant carries GANTRY_VALUE_CONSTANT only: its bytes come through constant_map. GANTRY_VALUE_HOST_KNOWN
 * marks values whose elements core evaluates at bind. A value is GANTRY_VALUE_BOUNDED where the node that
 * decides its size is in the view; for whoever reads it later its size is exact. A value that a body captures
 * has the name that it has in the view around. */
#include "view.h"

#include "graph/place.h"

typedef struct builder {
    const struct builder *around; /* of a body: the view around it */
    gt_arena *arena;
    const gt_graph *graph;
    gt_view *out;
    gantry_value_view **values; /* filled up to value_count */
    uint32_t value_count;
    uint32_t capacity;
    uint32_t segment; /* host values known in this segment are HOST_KNOWN; UINT32_MAX: in any */
} builder;

static gantry_status build_graph(gt_arena *arena, const gt_graph *graph, const builder *around,
                                 gt_view *out_view, gantry_error *err);

static uint32_t *id_array(gt_arena *arena, uint32_t count)
{
    uint32_t *ids = GT_ARENA_ARRAY(arena, uint32_t, count ? count : 1);
    if (ids)
        memset(ids, 0xff, count * sizeof *ids);
    return ids;
}

static bool is_constant(const gt_value *value)
{
    return value->constant != GT_NONE && value->input_index < 0;
}

/* True when all elements can be evaluated once `segment` begins. */
static bool is_host_known(const gt_graph *graph, const gt_value *value, uint32_t segment)
{
    const gt_exprs *exprs = &graph->model->exprs;
    if (!value->elements)
        return false;
    for (uint32_t k = 0; k < value->element_count; k++)
        if (value->elements[k] == GT_EXPR_UNKNOWN || gt_expr_segment(exprs, value->elements[k]) > segment)
            return false;
    return true;
}

/* True when the size is known only after the producer ran. */
static bool is_bounded(const builder *b, const gt_value *value)
{
    if (value->producer == GT_NONE || value->rank < 0)
        return false;
    uint32_t segment = gt_graph_node(b->graph, value->producer)->segment;
    for (int32_t k = 0; k < value->rank; k++)
        if (value->dims[k] != GT_EXPR_UNKNOWN &&
            gt_expr_segment(&b->graph->model->exprs, value->dims[k]) > segment)
            return true;
    return false;
}

static uint32_t value_flags(const builder *b, const gt_value *value)
{
    uint32_t flags = 0;
    if (is_constant(value))
        flags |= GANTRY_VALUE_CONSTANT;
    else if (is_host_known(b->graph, value, b->segment))
        flags |= GANTRY_VALUE_HOST_KNOWN;
    if (value->captured != GT_NONE)
        flags |= GANTRY_VALUE_CAPTURE;
    return flags;
}

static bool fill_dims(const builder *b, uint32_t id, gantry_value_view *view)
{
    const gt_value *value = gt_graph_value(b->graph, id);
    const gt_exprs *exprs = &b->graph->model->exprs;
    uint32_t rank = (uint32_t)value->rank;
    int64_t typical[GANTRY_MAX_RANK] = {0};
    int64_t *dims = GT_ARENA_ARRAY(b->arena, int64_t, rank + 1);
    int64_t *typical_dims = GT_ARENA_ARRAY(b->arena, int64_t, rank + 1);
    const char **names = GT_ARENA_ARRAY(b->arena, const char *, rank + 1);
    if (!dims || !typical_dims || !names)
        return false;
    if (rank <= GANTRY_MAX_RANK)
        gt_typical_shape(b->graph, id, typical);
    for (uint32_t k = 0; k < rank; k++) {
        gt_expr e = value->dims[k];
        int64_t extent;
        dims[k] = e != GT_EXPR_UNKNOWN && gt_expr_is_const(exprs, e, &extent) ? extent : GANTRY_DIM_UNKNOWN;
        typical_dims[k] = k < GANTRY_MAX_RANK && typical[k] > 0 ? typical[k] : 0;
        if (e != GT_EXPR_UNKNOWN && exprs->nodes.data[e].kind == GT_EXPR_SYMBOL)
            names[k] = exprs->symbols.data[exprs->nodes.data[e].a].name;
    }
    view->dims = dims;
    view->typical_dims = typical_dims;
    view->dim_names = names;
    return true;
}

/* What a body captures has the name of the value around it, whatever it was called when it was read: so a
 * provider that takes a control node whole finds it. */
static const char *view_name(const builder *b, const gt_value *value)
{
    uint32_t index = b->around && value->captured != GT_NONE && !is_constant(value)
                         ? b->around->out->value_index[value->captured]
                         : GANTRY_NO_ID;
    return index == GANTRY_NO_ID ? value->name : b->around->values[index]->name;
}

/* The view index of a value, made when it is new; false when out of memory. */
static bool add_value(builder *b, uint32_t id)
{
    if (id == GT_NONE || b->out->value_index[id] != GANTRY_NO_ID)
        return true;
    const gt_value *value = gt_graph_value(b->graph, id);
    gantry_value_view *view = GT_ARENA_NEW(b->arena, gantry_value_view);
    if (!view || b->value_count == b->capacity)
        return false;
    *view = (gantry_value_view){.struct_bytes = sizeof *view,
                                .id = id,
                                .name = view_name(b, value),
                                .kind = value->kind,
                                .dtype = value->dtype,
                                .rank = value->rank,
                                .constant_id = is_constant(value) ? value->constant : GANTRY_NO_ID,
                                .flags = value_flags(b, value)};
    if (value->rank >= 0 && !fill_dims(b, id, view))
        return false;
    b->out->value_index[id] = b->value_count;
    b->out->value_ids[b->value_count] = id;
    b->values[b->value_count++] = view;
    return true;
}

/* Values that the bodies of a control node take from this graph. */
static bool add_captures(builder *b, const gt_node *node)
{
    for (uint32_t k = 0; k < node->body_count; k++) {
        const gt_graph *body = node->bodies[k].graph;
        for (uint32_t v = 0; v < body->values.count; v++)
            if (body->values.data[v] && !add_value(b, body->values.data[v]->captured))
                return false;
    }
    return true;
}

static bool add_operands(builder *b, const gt_node *node)
{
    for (uint32_t k = 0; k < node->input_count; k++)
        if (!add_value(b, node->inputs[k]))
            return false;
    for (uint32_t k = 0; k < node->output_count; k++) {
        if (!add_value(b, node->outputs[k]))
            return false;
        if (node->outputs[k] != GT_NONE && is_bounded(b, gt_graph_value(b->graph, node->outputs[k])))
            b->values[b->out->value_index[node->outputs[k]]]->flags |= GANTRY_VALUE_BOUNDED;
    }
    return add_captures(b, node);
}

static uint32_t *to_indexes(builder *b, uint32_t count, const uint32_t *ids)
{
    uint32_t *indexes = id_array(b->arena, count);
    for (uint32_t k = 0; indexes && k < count; k++)
        indexes[k] = ids[k] == GT_NONE ? GANTRY_NO_ID : b->out->value_index[ids[k]];
    return indexes;
}

static gantry_status fill_bodies(builder *b, const gt_node *node, gantry_node_view *view, gantry_error *err)
{
    const gantry_body_view **bodies =
        GT_ARENA_ARRAY(b->arena, const gantry_body_view *, node->body_count + 1);
    if (!bodies)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    for (uint32_t k = 0; k < node->body_count; k++) {
        gantry_body_view *body = GT_ARENA_NEW(b->arena, gantry_body_view);
        gt_view *inner = GT_ARENA_NEW(b->arena, gt_view);
        if (!body || !inner)
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
        GT_TRY(build_graph(b->arena, node->bodies[k].graph, b, inner, err));
        *body = (gantry_body_view){sizeof *body, node->bodies[k].name, &inner->view};
        bodies[k] = body;
    }
    view->body_count = node->body_count;
    view->bodies = bodies;
    if (node->composite) {
        gt_view *inner = GT_ARENA_NEW(b->arena, gt_view);
        if (!inner)
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
        GT_TRY(build_graph(b->arena, node->composite, NULL, inner, err));
        view->composite = &inner->view;
    }
    return GANTRY_OK;
}

static gantry_status make_node(builder *b, uint32_t id, const gantry_node_view **out_view, gantry_error *err)
{
    const gt_node *node = gt_graph_node(b->graph, id);
    gantry_node_view *view = GT_ARENA_NEW(b->arena, gantry_node_view);
    uint32_t *inputs = to_indexes(b, node->input_count, node->inputs);
    uint32_t *outputs = to_indexes(b, node->output_count, node->outputs);
    if (!view || !inputs || !outputs)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    *view = (gantry_node_view){.struct_bytes = sizeof *view,
                               .id = id,
                               .name = node->name,
                               .op = node->op_type,
                               .domain = node->domain,
                               .version = node->version,
                               .input_count = node->input_count,
                               .inputs = inputs,
                               .output_count = node->output_count,
                               .outputs = outputs,
                               .attribute_count = node->attribute_count,
                               .attributes = node->attributes};
    *out_view = view;
    return fill_bodies(b, node, view, err);
}

/* How many value views can be needed at most. */
static uint32_t count_values(const builder *b, uint32_t node_count, const uint32_t *nodes, uint32_t more)
{
    uint64_t count = more;
    for (uint32_t k = 0; k < node_count; k++) {
        const gt_node *node = gt_graph_node(b->graph, nodes[k]);
        count += (uint64_t)node->input_count + node->output_count;
        for (uint32_t i = 0; i < node->body_count; i++)
            count += node->bodies[i].graph->values.count;
    }
    return count < b->graph->values.count ? (uint32_t)count : b->graph->values.count;
}

static gantry_status begin(builder *b, uint32_t node_count, const uint32_t *nodes, uint32_t more,
                           gantry_error *err)
{
    b->capacity = count_values(b, node_count, nodes, more);
    b->values = GT_ARENA_ARRAY(b->arena, gantry_value_view *, (size_t)b->capacity + 1);
    b->out->value_ids = id_array(b->arena, b->capacity);
    b->out->value_index = id_array(b->arena, b->graph->values.count);
    b->out->node_index = id_array(b->arena, b->graph->nodes.count);
    bool made = b->values && b->out->value_ids && b->out->value_index && b->out->node_index;
    return made ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

static gantry_status add_nodes(builder *b, uint32_t node_count, const uint32_t *nodes, gantry_error *err)
{
    const gantry_node_view **views =
        GT_ARENA_ARRAY(b->arena, const gantry_node_view *, (size_t)node_count + 1);
    if (!views)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    for (uint32_t k = 0; k < node_count; k++) {
        if (!add_operands(b, gt_graph_node(b->graph, nodes[k])))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
        GT_TRY(make_node(b, nodes[k], &views[k], err));
        b->out->node_index[nodes[k]] = k;
    }
    b->out->view.node_count = node_count;
    b->out->view.nodes = views;
    return GANTRY_OK;
}

static gantry_status finish(builder *b, uint32_t input_count, const uint32_t *inputs, uint32_t output_count,
                            const uint32_t *outputs, gantry_error *err)
{
    gantry_graph_view *view = &b->out->view;
    view->struct_bytes = sizeof *view;
    view->value_count = b->value_count;
    view->values = (const gantry_value_view *const *)b->values;
    view->input_count = input_count;
    view->inputs = to_indexes(b, input_count, inputs);
    view->output_count = output_count;
    view->outputs = to_indexes(b, output_count, outputs);
    return view->inputs && view->outputs ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

/* The formal inputs that are no constants, then the captures. */
static gantry_status outer_inputs(builder *b, uint32_t **out_inputs, uint32_t *out_count, gantry_error *err)
{
    const gt_graph *graph = b->graph;
    uint32_t *inputs = id_array(b->arena, graph->values.count + graph->inputs.count), count = 0;
    if (!inputs)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    for (uint32_t k = 0; k < graph->inputs.count; k++)
        inputs[count++] = graph->inputs.data[k];
    for (uint32_t id = 0; id < graph->values.count; id++)
        if (graph->values.data[id] && graph->values.data[id]->captured != GT_NONE &&
            !is_constant(graph->values.data[id]))
            inputs[count++] = id;
    *out_inputs = inputs;
    *out_count = count;
    return GANTRY_OK;
}

static gantry_status build_graph(gt_arena *arena, const gt_graph *graph, const builder *around,
                                 gt_view *out_view, gantry_error *err)
{
    builder b = {.around = around, .arena = arena, .graph = graph, .out = out_view, .segment = UINT32_MAX};
    uint32_t *inputs = NULL, input_count = 0;
    GT_TRY(outer_inputs(&b, &inputs, &input_count, err));
    GT_TRY(begin(&b, graph->order.count, graph->order.data, input_count + graph->outputs.count, err));
    for (uint32_t k = 0; k < input_count; k++)
        if (!add_value(&b, inputs[k]))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    GT_TRY(add_nodes(&b, graph->order.count, graph->order.data, err));
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        if (!add_value(&b, graph->outputs.data[k]))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return finish(&b, input_count, inputs, graph->outputs.count, graph->outputs.data, err);
}

gantry_status gt_view_graph(gt_arena *arena, const gt_graph *graph, gt_view *out_view, gantry_error *err)
{
    *out_view = (gt_view){0};
    return build_graph(arena, graph, NULL, out_view, err);
}

gantry_status gt_view_nodes(gt_arena *arena, const gt_graph *graph, uint32_t node_count,
                            const uint32_t *nodes, uint32_t input_count, const uint32_t *inputs,
                            uint32_t output_count, const uint32_t *outputs, gt_view *out_view,
                            gantry_error *err)
{
    builder b = {.arena = arena, .graph = graph, .out = out_view};
    *out_view = (gt_view){0};
    for (uint32_t k = 0; k < node_count; k++) {
        uint32_t segment = gt_graph_node(graph, nodes[k])->segment;
        b.segment = segment > b.segment ? segment : b.segment;
    }
    GT_TRY(begin(&b, node_count, nodes, input_count + output_count, err));
    for (uint32_t k = 0; k < input_count; k++)
        if (!add_value(&b, inputs[k]))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    GT_TRY(add_nodes(&b, node_count, nodes, err));
    for (uint32_t k = 0; k < output_count; k++)
        if (!add_value(&b, outputs[k]))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return finish(&b, input_count, inputs, output_count, outputs, err);
}
