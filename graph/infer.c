/* Shape inference, the driver: walks a graph in order, checks each node against the operator table, runs its
 * rule, and decides its segment and whether it is computed at bind. */
#include "infer_rules.h"

/* ---- values that no node makes */

static void constant_shape(gt_infer_state *state, gt_value *value)
{
    const gt_constant *constant = &state->graph->model->constants.data[value->constant];
    gt_exprs *exprs = &state->graph->model->exprs;
    value->dtype = constant->dtype;
    if (value->rank == (int32_t)constant->rank && (value->dims || !constant->rank))
        return;
    gt_expr *dims = gt_arena_array(&state->graph->model->arena, constant->rank, sizeof *dims);
    if (!dims) {
        state->failed = true;
        return;
    }
    for (uint32_t axis = 0; axis < constant->rank; axis++)
        dims[axis] = gt_expr_const(exprs, constant->dims[axis]);
    value->rank = (int32_t)constant->rank;
    value->dims = dims;
}

static void capture_shape(gt_infer_state *state, uint32_t id, gt_value *value)
{
    const gt_value *outer = gt_graph_value(state->graph->parent, value->captured);
    value->kind = outer->kind;
    value->dtype = outer->dtype;
    value->rank = outer->rank;
    value->dims = outer->dims;
    value->elements = outer->elements;
    value->element_count = outer->element_count;
    if (state->parent && !outer->elements)
        state->parts[id] = state->parent->parts[value->captured];
}

static void begin_values(gt_infer_state *state)
{
    gt_graph *graph = state->graph;
    for (uint32_t id = 0; id < graph->values.count; id++) {
        gt_value *value = graph->values.data[id];
        state->parts[id].old_rank = value->rank;
        state->parts[id].old_dims = value->dims;
        if (gt_value_is_fixed(value))
            constant_shape(state, value);
        else if (value->captured != GT_NONE && graph->parent)
            capture_shape(state, id, value);
        else if (value->producer != GT_NONE) {
            value->dtype = GANTRY_UNDEFINED;
            value->rank = -1;
            value->elements = NULL;
            value->element_count = 0;
        }
    }
}

/* What rules found out about elements in part and later in full becomes part of the value. */
static void finish_values(gt_infer_state *state)
{
    gt_graph *graph = state->graph;
    for (uint32_t id = 0; id < graph->values.count; id++) {
        gt_value *value = graph->values.data[id];
        const gt_part *part = &state->parts[id];
        bool complete = part->elements && !value->elements;
        for (uint32_t e = 0; complete && e < part->count; e++)
            complete = part->elements[e] != GT_EXPR_UNKNOWN;
        if (!complete)
            continue;
        value->elements = gt_arena_copy(&graph->model->arena, part->elements, part->count * sizeof(gt_expr));
        value->element_count = value->elements ? part->count : 0;
        state->failed = state->failed || !value->elements;
    }
}

/* What a body hands out has the extents that a node after the last one would read: equal ones are one. An
 * input that is handed on stays what it is: a loop compares it with what came in. */
static void finish_output(const gt_infer *infer, uint32_t id)
{
    gt_value *value = gt_graph_value(infer->graph, id);
    gt_expr dims[GANTRY_MAX_RANK];
    if (!value || value->rank <= 0 || value->rank > GANTRY_MAX_RANK || value->input_index >= 0)
        return;
    for (int32_t axis = 0; axis < value->rank; axis++)
        dims[axis] = gt_infer_root(infer, value->dims[axis]);
    size_t bytes = (size_t)value->rank * sizeof *dims;
    const gt_part *part = &infer->state->parts[id];
    if (memcmp(dims, value->dims, bytes) == 0)
        return;
    bool again = part->old_dims && part->old_rank == value->rank && memcmp(dims, part->old_dims, bytes) == 0;
    const gt_expr *kept = again ? part->old_dims : gt_arena_copy(&infer->model->arena, dims, bytes);
    infer->state->failed = infer->state->failed || !kept;
    value->dims = kept ? kept : value->dims;
}

/* ---- segments */

static uint32_t value_segment(const gt_infer_state *state, uint32_t id)
{
    const gt_graph *graph = state->graph;
    const gt_value *value = gt_graph_value(graph, id);
    if (!value)
        return 0;
    uint32_t segment =
        value->producer == GT_NONE ? state->segment : graph->nodes.data[value->producer]->segment;
    for (int32_t axis = 0; axis < value->rank; axis++) {
        uint32_t of = gt_expr_segment(&graph->model->exprs, value->dims[axis]);
        segment = of > segment ? of : segment;
    }
    return segment;
}

static uint32_t node_segment(const gt_infer *infer)
{
    const gt_node *node = infer->node;
    uint32_t segment = infer->state->segment;
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t of = value_segment(infer->state, node->inputs[k]);
        segment = of > segment ? of : segment;
    }
    for (uint32_t b = 0; b < node->body_count; b++) {
        const gt_graph *body = node->bodies[b].graph;
        for (uint32_t v = 0; v < body->values.count; v++) {
            uint32_t of = value_segment(infer->state, body->values.data[v]->captured);
            segment = of > segment ? of : segment;
        }
    }
    return segment;
}

static uint32_t elements_segment(const gt_infer *infer, const gt_expr *elements, uint32_t count,
                                 uint32_t segment)
{
    for (uint32_t e = 0; elements && e < count; e++) {
        uint32_t of = gt_expr_segment(infer->exprs, elements[e]);
        segment = of > segment ? of : segment;
    }
    return segment;
}

/* Asks for the elements of all operands that decide shapes, so that the node's segment is known before its
 * rule makes symbols of a later one. */
static void read_shape_operands(gt_infer *infer)
{
    for (uint32_t k = 0; k < infer->node->input_count && k < 32; k++)
        if (infer->node->op->shape_operands >> k & 1) {
            uint32_t count;
            const gt_expr *elements = gt_in_shape_operand(infer, k, &count);
            infer->node->segment = elements_segment(infer, elements, count, infer->node->segment);
        }
}

static void decide_at_bind(gt_infer *infer)
{
    gt_node *node = infer->node;
    const uint32_t impure = GT_OP_CONTROL | GT_OP_RANDOM | GT_OP_TRAINING | GT_OP_DATA_SIZED;
    uint32_t segment = 0;
    bool all = node->output_count > 0 && !(node->op->flags & impure);
    for (uint32_t k = 0; k < node->output_count && all; k++) {
        const gt_value *value = gt_graph_value(infer->graph, node->outputs[k]);
        if (!value)
            continue;
        all = value->elements != NULL;
        segment = elements_segment(infer, value->elements, value->element_count, segment);
    }
    node->at_bind = all;
    if (all)
        node->segment = segment;
}

/* ---- what the file declares, where inference does not know */

static void use_hints(gt_infer *infer, uint32_t k)
{
    const gt_value *value = gt_graph_value(infer->graph, infer->node->outputs[k]);
    if (!value)
        return;
    gantry_dtype dtype = value->dtype ? value->dtype : value->declared_dtype;
    gt_shape shape = {.rank = value->rank};
    bool changed = dtype != value->dtype;
    if (value->declared_rank > GANTRY_MAX_RANK)
        return;
    for (int32_t axis = 0; axis < shape.rank; axis++) {
        shape.dims[axis] = value->dims[axis];
        if (shape.dims[axis] == GT_EXPR_UNKNOWN && value->declared_rank == shape.rank &&
            value->declared_dims[axis] >= 0) {
            shape.dims[axis] = gt_number(infer, value->declared_dims[axis]);
            changed = true;
        }
    }
    if (shape.rank < 0 && value->declared_rank >= 0 && value->kind == GANTRY_KIND_TENSOR) {
        shape.rank = value->declared_rank;
        changed = true;
        for (int32_t axis = 0; axis < shape.rank; axis++)
            shape.dims[axis] = value->declared_dims[axis] >= 0
                                   ? gt_number(infer, value->declared_dims[axis])
                                   : gt_out_data_dim(infer, k, (uint32_t)axis, GT_EXPR_UNKNOWN);
    }
    if (changed)
        gt_out_shape(infer, k, dtype, &shape);
}

static gantry_status check_output_types(gt_graph *graph, gantry_error *err)
{
    for (uint32_t k = 0; k < graph->outputs.count; k++) {
        const gt_value *value = gt_graph_value(graph, graph->outputs.data[k]);
        if (value->dtype && value->declared_dtype && value->dtype != value->declared_dtype &&
            !graph->parent && value->kind == GANTRY_KIND_TENSOR) {
            const gt_node *node = gt_graph_node(graph, value->producer);
            return gt_fail(
                err, GANTRY_MODEL_TYPE, GANTRY_STAGE_LOAD, node ? node->name : NULL,
                "graph output '%s' is declared %s, but %s%s%s makes it %s. Correct the declaration or "
                "insert a Cast.",
                value->name, gantry_dtype_text(value->declared_dtype),
                node ? "node '" : "the value behind it", node ? node->name : "", node ? "'" : "",
                gantry_dtype_text(value->dtype));
        }
    }
    return GANTRY_OK;
}

/* ---- the walk */

static gantry_status infer_node(gt_infer_state *state, uint32_t id, gantry_error *err)
{
    gt_node *node = state->graph->nodes.data[id];
    gt_infer infer = {state->graph, state->graph->model, &state->graph->model->exprs, state, node, id, err};
    node->at_bind = false;
    node->segment = node_segment(&infer);
    if (!node->op)
        node->op = gt_model_find_op(infer.model, node->domain, node->op_type, node->opset);
    if (!node->op) {
        for (uint32_t k = 0; k < node->output_count; k++)
            use_hints(&infer, k);
        return GANTRY_OK;
    }
    GT_TRY(gt_infer_check_node(&infer));
    read_shape_operands(&infer);
    GT_TRY(node->op->infer(&infer));
    for (uint32_t k = 0; k < node->output_count; k++)
        use_hints(&infer, k);
    decide_at_bind(&infer);
    return state->failed || infer.exprs->failed ? gt_out_of_memory(err, GANTRY_STAGE_LOAD) : GANTRY_OK;
}

static gantry_status infer_graph(gt_infer_state *state, gantry_error *err)
{
    gt_graph *graph = state->graph;
    graph->check_count = 0;
    state->parts = gt_arena_array(state->scratch, graph->values.count + 1, sizeof *state->parts);
    if (!state->parts)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    begin_values(state);
    /* What a body hands out is joined with other values, which wants elements. */
    gt_infer infer = {.graph = graph, .model = graph->model, .exprs = &graph->model->exprs, .state = state};
    for (uint32_t k = 0; k < graph->outputs.count && graph->parent; k++)
        gt_infer_load_constant(&infer, graph->outputs.data[k]);
    for (uint32_t k = 0; k < graph->order.count; k++)
        if (!graph->nodes.data[graph->order.data[k]]->removed)
            GT_TRY(infer_node(state, graph->order.data[k], err));
    for (uint32_t k = 0; k < graph->outputs.count && graph->parent; k++)
        finish_output(&infer, graph->outputs.data[k]);
    finish_values(state);
    if (state->failed || graph->model->exprs.failed)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return check_output_types(graph, err);
}

static uint32_t graph_depth(const gt_graph *graph)
{
    uint32_t depth = 0;
    for (; graph->parent; graph = graph->parent)
        depth++;
    return depth;
}

gantry_status gt_infer_graph(gt_graph *graph, gantry_error *err)
{
    gt_arena scratch;
    gt_arena_init(&scratch, graph->model->allocator);
    gt_infer_state state = {.graph = graph, .scratch = &scratch, .depth = graph_depth(graph)};
    if (graph->parent)
        state.segment = graph->parent->nodes.data[graph->parent_node]->segment;
    gantry_status status = infer_graph(&state, err);
    gt_arena_clear(&scratch);
    return status;
}

gantry_status gt_infer_body(gt_infer *infer, gt_graph *body)
{
    bool is_if = strcmp(infer->node->op_type, "If") == 0;
    gt_infer_state state = {.parent = infer->state,
                            .graph = body,
                            .scratch = infer->state->scratch,
                            .segment = infer->node->segment,
                            .depth = infer->state->depth + 1,
                            .loops = infer->state->loops + !is_if};
    return infer_graph(&state, infer->err);
}
