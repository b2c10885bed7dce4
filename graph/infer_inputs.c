/* Symbols of the graph's inputs: one for each open extent, and one for each element that may decide a shape.
 */
#include "expr_internal.h"
#include "infer_rules.h"

/* What a symbol is taken to be where costs are estimated and nobody said: one request, a middling length. */
#define TYPICAL_BATCH 1
#define TYPICAL_EXTENT 128

static const gt_dim_range *find_range(const gt_infer_options *options, const char *name, const char *position)
{
    for (uint32_t k = 0; options && k < options->range_count; k++)
        if (strcmp(options->ranges[k].name, name) == 0 || strcmp(options->ranges[k].name, position) == 0)
            return &options->ranges[k];
    return NULL;
}

static bool name_says_batch(const char *name)
{
    return strstr(name, "batch") || strstr(name, "Batch") || strcmp(name, "N") == 0;
}

static gt_expr dim_symbol(gt_model *model, uint32_t input, uint32_t axis, const gt_infer_options *options)
{
    uint32_t id = model->root->inputs.data[input];
    const gt_value *value = gt_graph_value(model->root, id);
    const char *given = value->declared_dim_names ? value->declared_dim_names[axis] : NULL;
    char position[320];
    snprintf(position, sizeof position, "%.300s[%u]", value->name, axis);
    const char *name = given && given[0] && strcmp(given, "?") != 0 ? given : position;
    gt_symbol symbol = {.kind = GT_SYMBOL_INPUT_DIM,
                        .name = name,
                        .input = input,
                        .value = id,
                        .axis = axis,
                        .bound = GT_EXPR_UNKNOWN,
                        .range_low = 1,
                        .range_typical = axis == 0 || name_says_batch(name) ? TYPICAL_BATCH : TYPICAL_EXTENT,
                        .range_high = INT64_MAX};
    const gt_dim_range *range = find_range(options, name, position);
    if (range) {
        symbol.range_low = range->low;
        symbol.range_typical = range->typical;
        symbol.range_high = range->high;
        symbol.range_given = true;
    }
    return gt_expr_symbol(&model->exprs, &symbol);
}

static gantry_status make_dims(gt_model *model, uint32_t input, const gt_infer_options *options)
{
    gt_value *value = gt_graph_value(model->root, model->root->inputs.data[input]);
    value->dtype = value->declared_dtype;
    value->rank = value->declared_rank;
    if (value->rank < 0)
        return GANTRY_OK;
    gt_expr *dims = gt_arena_array(&model->arena, (size_t)value->rank, sizeof *dims);
    if (!dims)
        return GANTRY_RESOURCE;
    for (int32_t axis = 0; axis < value->rank; axis++)
        dims[axis] = value->declared_dims[axis] >= 0
                         ? gt_expr_const(&model->exprs, value->declared_dims[axis])
                         : dim_symbol(model, input, (uint32_t)axis, options);
    value->dims = dims;
    return model->exprs.failed ? GANTRY_RESOURCE : GANTRY_OK;
}

/* ---- which inputs' elements may decide a shape: backwards from shape operands and conditions */

static bool mark(uint8_t *needed, const gt_graph *graph, uint32_t value)
{
    if (value == GT_NONE || value >= graph->values.count || needed[value])
        return false;
    needed[value] = 1;
    return true;
}

static void mark_operands(const gt_node *node, const gt_graph *graph, uint8_t *needed)
{
    const gt_op *op =
        node->op ? node->op : gt_model_find_op(graph->model, node->domain, node->op_type, node->opset);
    uint32_t operands = op ? op->shape_operands : 0;
    /* The condition of an If and the trip count of a Loop. */
    if (op && (op->flags & GT_OP_CONTROL) && strcmp(op->name, "Scan") != 0)
        operands |= 1;
    bool passes = op && (op->flags & GT_OP_PROPAGATES);
    bool wanted = false;
    for (uint32_t k = 0; k < node->output_count; k++)
        wanted = wanted || (node->outputs[k] != GT_NONE && needed[node->outputs[k]]);
    for (uint32_t k = 0; k < node->input_count; k++)
        if ((k < 32 && (operands >> k & 1)) || (passes && wanted))
            mark(needed, graph, node->inputs[k]);
}

static gantry_status mark_needed(const gt_graph *graph, uint8_t *needed);

/* What bodies need of the outer graph; the results of an If are needed from both branches. */
static gantry_status mark_bodies(const gt_node *node, const gt_graph *graph, uint8_t *needed)
{
    for (uint32_t b = 0; b < node->body_count; b++) {
        const gt_graph *body = node->bodies[b].graph;
        uint8_t *inner = gt_alloc_array(graph->model->allocator, body->values.count + 1, 1);
        if (!inner)
            return GANTRY_RESOURCE;
        for (uint32_t k = 0; k < body->outputs.count && k < node->output_count; k++)
            if (node->outputs[k] != GT_NONE && needed[node->outputs[k]] && strcmp(node->op_type, "If") == 0)
                mark(inner, body, body->outputs.data[k]);
        gantry_status status = mark_needed(body, inner);
        for (uint32_t v = 0; v < body->values.count && status == GANTRY_OK; v++)
            if (inner[v] && body->values.data[v]->captured != GT_NONE)
                mark(needed, graph, body->values.data[v]->captured);
        gt_free(graph->model->allocator, inner);
        if (status != GANTRY_OK)
            return status;
    }
    return GANTRY_OK;
}

static gantry_status mark_needed(const gt_graph *graph, uint8_t *needed)
{
    for (uint32_t k = graph->order.count; k-- > 0;) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        if (node->removed)
            continue;
        mark_operands(node, graph, needed);
        GT_TRY(mark_bodies(node, graph, needed));
    }
    return GANTRY_OK;
}

static gantry_status make_elements(gt_model *model, uint32_t input)
{
    uint32_t id = model->root->inputs.data[input];
    gt_value *value = gt_graph_value(model->root, id);
    bool real;
    int64_t count = 1, extent;
    if (!gt_dtype_is_symbolic(value->dtype, &real) || value->rank < 0)
        return GANTRY_OK;
    for (int32_t axis = 0; axis < value->rank && count <= GT_MAX_ELEMENTS; axis++) {
        if (!gt_expr_is_const(&model->exprs, value->dims[axis], &extent) || extent > GT_MAX_ELEMENTS)
            return GANTRY_OK;
        count *= extent;
    }
    if (count > GT_MAX_ELEMENTS)
        return GANTRY_OK;
    gt_expr *elements = gt_arena_array(&model->arena, (size_t)count + 1, sizeof *elements);
    if (!elements)
        return GANTRY_RESOURCE;
    for (uint32_t e = 0; e < (uint32_t)count; e++) {
        char name[320];
        snprintf(name, sizeof name, value->rank ? "%.300s[%u]" : "%.300s", value->name, e);
        gt_symbol symbol = {.kind = GT_SYMBOL_INPUT_ELEMENT,
                            .real = real,
                            .name = name,
                            .input = input,
                            .value = id,
                            .axis = e,
                            .bound = GT_EXPR_UNKNOWN,
                            .range_low = INT64_MIN,
                            .range_typical = 1,
                            .range_high = INT64_MAX};
        elements[e] = gt_expr_symbol(&model->exprs, &symbol);
    }
    value->elements = elements;
    value->element_count = (uint32_t)count;
    return model->exprs.failed ? GANTRY_RESOURCE : GANTRY_OK;
}

gantry_status gt_infer_inputs(gt_model *model, const gt_infer_options *options, gantry_error *err)
{
    gt_graph *root = model->root;
    uint8_t *needed = gt_alloc_array(model->allocator, root->values.count + 1, 1);
    gantry_status status = needed ? mark_needed(root, needed) : GANTRY_RESOURCE;
    for (uint32_t input = 0; input < root->inputs.count && status == GANTRY_OK; input++) {
        const gt_value *value = gt_graph_value(root, root->inputs.data[input]);
        if (value->declared_rank > GANTRY_MAX_RANK) {
            status = gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_LOAD, NULL,
                             "input '%s' has rank %d; at most %d is supported", value->name,
                             value->declared_rank, GANTRY_MAX_RANK);
            break;
        }
        status = make_dims(model, input, options);
        if (status == GANTRY_OK && needed[root->inputs.data[input]])
            status = make_elements(model, input);
    }
    gt_free(model->allocator, needed);
    return status == GANTRY_RESOURCE ? gt_out_of_memory(err, GANTRY_STAGE_LOAD) : status;
}

/* ---- which element symbols a plan depends on */

static void mark_elements(const gt_value *value, uint8_t *wanted)
{
    for (uint32_t e = 0; value && value->elements && e < value->element_count; e++)
        wanted[value->elements[e]] = 1;
}

static void mark_graph(const gt_graph *graph, uint8_t *wanted)
{
    for (uint32_t v = 0; v < graph->values.count; v++) {
        const gt_value *value = graph->values.data[v];
        for (int32_t axis = 0; axis < value->rank && value->dims; axis++)
            if (value->dims[axis] != GT_EXPR_UNKNOWN)
                wanted[value->dims[axis]] = 1;
    }
    for (uint32_t c = 0; c < graph->check_count; c++)
        wanted[graph->checks[c].expr] = 1;
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        if (node->removed)
            continue;
        uint32_t operands = node->op ? node->op->shape_operands : 0;
        if (strcmp(node->op_type, "If") == 0 && !node->domain[0])
            operands |= 1;
        for (uint32_t i = 0; i < node->input_count && i < 32; i++)
            if (operands >> i & 1)
                mark_elements(gt_graph_value(graph, node->inputs[i]), wanted);
        for (uint32_t o = 0; o < node->output_count && node->at_bind; o++)
            mark_elements(gt_graph_value(graph, node->outputs[o]), wanted);
        for (uint32_t b = 0; b < node->body_count; b++)
            mark_graph(node->bodies[b].graph, wanted);
    }
}

/* From results to operands: operands have lower indexes, so one pass downwards reaches all. */
void gt_infer_key_symbols(const gt_graph *graph, uint8_t *used)
{
    const gt_exprs *exprs = &graph->model->exprs;
    uint8_t *wanted = gt_alloc_array(graph->model->allocator, exprs->nodes.count + 1, 1);
    if (!wanted) {
        /* Too large a key is right, too small a one is not. */
        for (uint32_t s = 0; s < exprs->symbols.count; s++)
            if (exprs->symbols.data[s].kind == GT_SYMBOL_INPUT_ELEMENT)
                used[s] = 1;
        return;
    }
    mark_graph(graph, wanted);
    for (gt_expr e = exprs->nodes.count; e-- > 0;) {
        if (!wanted[e])
            continue;
        const gt_expr_node *node = &exprs->nodes.data[e];
        const gt_expr operands[3] = {node->a, node->b, node->c};
        if (node->kind == GT_EXPR_SYMBOL && exprs->symbols.data[node->a].kind == GT_SYMBOL_INPUT_ELEMENT)
            used[node->a] = 1;
        if (node->kind == GT_EXPR_SYMBOL && exprs->symbols.data[node->a].bound < e)
            wanted[exprs->symbols.data[node->a].bound] = 1;
        unsigned arity = gt_expr_arity(node->kind);
        for (unsigned k = 0; k < 3 && k < arity; k++)
            wanted[operands[k]] = 1;
    }
    gt_free(graph->model->allocator, wanted);
}
