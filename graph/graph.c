/* Building a graph: values, nodes, attributes and constants; and reading them back. */
#include "graph_internal.h"

gantry_status gt_graph_create(gt_model *model, gt_graph *parent, uint32_t parent_node, const char *name,
                              const char *scope, gt_graph **out_graph, gantry_error *err)
{
    *out_graph = NULL;
    gt_graph *graph = GT_ARENA_NEW(&model->arena, gt_graph);
    if (!graph)
        return gt_graph_no_memory(err);
    graph->model = model;
    graph->parent = parent;
    graph->parent_node = parent_node;
    graph->name = gt_arena_text(&model->arena, name ? name : "", name ? strlen(name) : 0);
    graph->scope = gt_arena_text(&model->arena, scope ? scope : "", scope ? strlen(scope) : 0);
    gt_map_init(&graph->value_names, model->allocator);
    if (!graph->name || !graph->scope || !gt_vec_push(model->allocator, &model->graphs, graph))
        return gt_graph_no_memory(err);
    *out_graph = graph;
    return GANTRY_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

uint32_t gt_graph_find_value(const gt_graph *graph, const char *name)
{
    return gt_map_get(&graph->value_names, name, strlen(name), GT_NONE);
}

static char *fresh_value_name(gt_graph *graph)
{
    char name[32];
    do
        snprintf(name, sizeof name, "value_%u", graph->model->next_name++);
    while (gt_graph_find_value(graph, name) != GT_NONE);
    return gt_arena_text(&graph->model->arena, name, strlen(name));
}

gantry_status gt_graph_add_value(gt_graph *graph, const char *name, uint32_t *out_value, gantry_error *err)
{
    gt_model *model = graph->model;
    *out_value = GT_NONE;
    if (name && gt_graph_find_value(graph, name) != GT_NONE)
        return gt_fail(err, GANTRY_MODEL_GRAPH, GANTRY_STAGE_LOAD, NULL,
                       "graph '%.200s' already has a value named '%.500s'", graph->name, name);
    char *copy = name && *name ? gt_arena_text(&model->arena, name, strlen(name)) : fresh_value_name(graph);
    gt_value *value = GT_ARENA_NEW(&model->arena, gt_value);
    uint32_t id = graph->values.count;
    if (!copy || !value || !gt_map_set(&graph->value_names, copy, strlen(copy), id) ||
        !gt_vec_push(model->allocator, &graph->values, value))
        return gt_graph_no_memory(err);
    *value = (gt_value){.name = copy,
                        .kind = GANTRY_KIND_TENSOR,
                        .rank = -1,
                        .producer = GT_NONE,
                        .constant = GT_NONE,
                        .captured = GT_NONE,
                        .input_index = -1,
                        .declared_rank = -1};
    gt_graph_changed(graph);
    *out_value = id;
    return GANTRY_OK;
}

bool gt_graph_rename_value(gt_graph *graph, uint32_t id, const char *name)
{
    graph->values.data[id]->name = name;
    return gt_map_set(&graph->value_names, name, strlen(name), id);
}

gantry_status gt_value_set_constant(gt_graph *graph, uint32_t id, uint32_t index, gantry_error *err)
{
    gt_model *model = graph->model;
    const gt_constant *constant = &model->constants.data[index];
    gt_expr *dims = GT_ARENA_ARRAY(&model->arena, gt_expr, constant->rank);
    if (!dims)
        return gt_graph_no_memory(err);
    for (uint32_t k = 0; k < constant->rank; k++)
        dims[k] = gt_expr_const(&model->exprs, constant->dims[k]);
    if (model->exprs.failed)
        return gt_graph_no_memory(err);
    gt_value *value = graph->values.data[id];
    value->constant = index;
    value->dtype = constant->dtype;
    value->rank = (int32_t)constant->rank;
    value->dims = dims;
    return GANTRY_OK;
}

gantry_status gt_graph_add_constant(gt_graph *graph, const char *name, gantry_dtype dtype, uint32_t rank,
                                    const int64_t *dims, const void *data, uint32_t *out_value,
                                    gantry_error *err)
{
    gt_model *model = graph->model;
    uint64_t count = 1;
    for (uint32_t k = 0; k < rank; k++)
        if (__builtin_mul_overflow(count, (uint64_t)dims[k], &count))
            return gt_graph_no_memory(err);
    size_t bytes = dtype == GANTRY_STRING ? (size_t)count * sizeof(char *) : gantry_dtype_bytes(dtype, count);
    GT_TRY(gt_graph_add_value(graph, name, out_value, err));
    gt_constant constant = {.name = graph->values.data[*out_value]->name,
                            .dtype = dtype,
                            .rank = rank,
                            .dims = gt_arena_copy(&model->arena, dims, rank * sizeof *dims),
                            .bytes = bytes,
                            .origin = GT_CONSTANT_MEMORY,
                            .data = gt_arena_copy(&model->arena, data, bytes)};
    if (!constant.dims || !constant.data)
        return gt_graph_no_memory(err);
    uint32_t index;
    GT_TRY(gt_model_add_constant(model, &constant, &index, err));
    return gt_value_set_constant(graph, *out_value, index, err);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Texts come from the operator table when it has the operator: most nodes then need no copy. */
static bool node_set_op(gt_model *model, gt_node *node, const char *domain, const char *op_type)
{
    domain = domain && strcmp(domain, "ai.onnx") ? domain : "";
    node->op = gt_model_find_op(model, domain, op_type, node->opset);
    node->version = node->op ? gt_op_version(node->op, node->opset) : 0;
    node->op_type = node->op ? node->op->name : gt_arena_text(&model->arena, op_type, strlen(op_type));
    node->domain = node->op  ? node->op->domain
                   : *domain ? gt_arena_text(&model->arena, domain, strlen(domain))
                             : "";
    return node->op_type && node->domain;
}

gantry_status gt_graph_put_node(gt_graph *graph, const char *taken_name, const char *domain,
                                const char *op_type, int32_t opset, uint32_t input_count,
                                const uint32_t *inputs, uint32_t output_count, const uint32_t *outputs,
                                uint32_t *out_node, gantry_error *err)
{
    gt_model *model = graph->model;
    gt_node *node = GT_ARENA_NEW(&model->arena, gt_node);
    uint32_t id = graph->nodes.count;
    *out_node = GT_NONE;
    if (!node)
        return gt_graph_no_memory(err);
    *node = (gt_node){.name = taken_name,
                      .opset = opset,
                      .input_count = input_count,
                      .inputs = gt_arena_copy(&model->arena, inputs, input_count * sizeof *inputs),
                      .output_count = output_count,
                      .outputs = gt_arena_copy(&model->arena, outputs, output_count * sizeof *outputs)};
    if (!node->inputs || !node->outputs || !node_set_op(model, node, domain, op_type) ||
        !gt_vec_reserve(model->allocator, &graph->order, graph->order.count + 1) ||
        !gt_vec_push(model->allocator, &graph->nodes, node))
        return gt_graph_no_memory(err);
    graph->order.data[graph->order.count++] = id;
    for (uint32_t k = 0; k < output_count; k++) {
        if (outputs[k] == GT_NONE)
            continue;
        graph->values.data[outputs[k]]->producer = id;
        graph->values.data[outputs[k]]->producer_output = k;
    }
    gt_graph_changed(graph);
    *out_node = id;
    return GANTRY_OK;
}

gantry_status gt_graph_add_node(gt_graph *graph, const char *name, const char *domain, const char *op_type,
                                int32_t opset, uint32_t input_count, const uint32_t *inputs,
                                uint32_t output_count, const uint32_t *outputs, uint32_t *out_node,
                                gantry_error *err)
{
    *out_node = GT_NONE;
    const char *taken = gt_model_take_node_name(graph->model, name, op_type);
    if (!taken)
        return gt_graph_no_memory(err);
    return gt_graph_put_node(graph, taken, domain, op_type, opset, input_count, inputs, output_count, outputs,
                             out_node, err);
}

/* ---- attributes ------------------------------------------------------------------------------ */

static const char *const *copy_strings(gt_arena *arena, const char *const *strings, uint32_t count)
{
    const char **copy = GT_ARENA_ARRAY(arena, const char *, count);
    for (uint32_t k = 0; copy && k < count; k++)
        if (!(copy[k] = gt_arena_text(arena, strings[k], strlen(strings[k]))))
            return NULL;
    return copy;
}

static bool copy_tensor(gt_arena *arena, gantry_tensor *tensor)
{
    const uint8_t *bytes = (const uint8_t *)tensor->buffer.handle + tensor->buffer.offset_bytes;
    tensor->dims = gt_arena_copy(arena, tensor->dims, tensor->rank * sizeof *tensor->dims);
    void *copy = gt_arena_copy(arena, bytes, tensor->size_bytes);
    tensor->buffer = (gantry_buffer){copy, 0};
    return tensor->dims && copy;
}

static const gantry_tensor *copy_tensors(gt_arena *arena, const gantry_tensor *tensors, uint32_t count)
{
    gantry_tensor *copy = gt_arena_copy(arena, tensors, count * sizeof *tensors);
    for (uint32_t k = 0; copy && k < count; k++)
        if (!copy_tensor(arena, &copy[k]))
            return NULL;
    return copy;
}

/* False when out of memory. */
static bool attribute_copy(gt_arena *arena, const gantry_attribute *from, gantry_attribute *to)
{
    *to = *from;
    to->struct_bytes = sizeof *to;
    to->name = gt_arena_text(arena, from->name, strlen(from->name));
    if (from->s)
        to->s = gt_arena_text(arena, from->s, from->length);
    if (from->ints)
        to->ints = gt_arena_copy(arena, from->ints, from->count * sizeof *from->ints);
    if (from->floats)
        to->floats = gt_arena_copy(arena, from->floats, from->count * sizeof *from->floats);
    if (from->strings)
        to->strings = copy_strings(arena, from->strings, from->count);
    if (from->tensors)
        to->tensors = copy_tensors(arena, from->tensors, from->count);
    return to->name && !to->s == !from->s && !to->ints == !from->ints && !to->floats == !from->floats &&
           !to->strings == !from->strings && !to->tensors == !from->tensors;
}

/* The array is made anew each time, so that clones may share it. */
gantry_status gt_node_set_attribute(gt_graph *graph, uint32_t node_id, const gantry_attribute *attribute,
                                    gantry_error *err)
{
    gt_arena *arena = &graph->model->arena;
    gt_node *node = graph->nodes.data[node_id];
    gantry_attribute copy;
    gantry_attribute *attributes = GT_ARENA_ARRAY(arena, gantry_attribute, node->attribute_count + 1);
    if (!attributes || !attribute_copy(arena, attribute, &copy))
        return gt_graph_no_memory(err);
    uint32_t count = 0;
    for (uint32_t k = 0; k < node->attribute_count; k++)
        if (strcmp(node->attributes[k].name, copy.name) != 0)
            attributes[count++] = node->attributes[k];
    attributes[count++] = copy;
    node->attributes = attributes;
    node->attribute_count = count;
    return GANTRY_OK;
}

gantry_status gt_node_set_int(gt_graph *graph, uint32_t node, const char *name, int64_t value,
                              gantry_error *err)
{
    gantry_attribute a = {sizeof a, name, GANTRY_ATTR_INT, .count = 1, .i = value};
    return gt_node_set_attribute(graph, node, &a, err);
}

gantry_status gt_node_set_float(gt_graph *graph, uint32_t node, const char *name, float value,
                                gantry_error *err)
{
    gantry_attribute a = {sizeof a, name, GANTRY_ATTR_FLOAT, .count = 1, .f = value};
    return gt_node_set_attribute(graph, node, &a, err);
}

gantry_status gt_node_set_ints(gt_graph *graph, uint32_t node, const char *name, const int64_t *values,
                               uint32_t count, gantry_error *err)
{
    gantry_attribute a = {sizeof a, name, GANTRY_ATTR_INTS, .count = count, .ints = values};
    return gt_node_set_attribute(graph, node, &a, err);
}

const gantry_attribute *gt_node_attribute(const gt_node *node, const char *name)
{
    for (uint32_t k = 0; k < node->attribute_count; k++)
        if (strcmp(node->attributes[k].name, name) == 0)
            return &node->attributes[k];
    return NULL;
}

int64_t gt_node_int(const gt_node *node, const char *name, int64_t otherwise)
{
    const gantry_attribute *a = gt_node_attribute(node, name);
    return a && a->kind == GANTRY_ATTR_INT ? a->i : otherwise;
}

float gt_node_float(const gt_node *node, const char *name, float otherwise)
{
    const gantry_attribute *a = gt_node_attribute(node, name);
    return a && a->kind == GANTRY_ATTR_FLOAT ? a->f : otherwise;
}

const char *gt_node_string(const gt_node *node, const char *name, const char *otherwise)
{
    const gantry_attribute *a = gt_node_attribute(node, name);
    return a && a->kind == GANTRY_ATTR_STRING ? a->s : otherwise;
}

const int64_t *gt_node_ints(const gt_node *node, const char *name, uint32_t *out_count)
{
    const gantry_attribute *a = gt_node_attribute(node, name);
    bool is_ints = a && a->kind == GANTRY_ATTR_INTS;
    *out_count = is_ints ? a->count : 0;
    return is_ints ? a->ints : NULL;
}

/* ---- printing -------------------------------------------------------------------------------- */

void gt_value_print(const gt_graph *graph, uint32_t id, gt_text *text)
{
    const gt_value *value = graph->values.data[id];
    gt_text_printf(text, "%s: %s", value->name, gantry_dtype_text(value->dtype));
    if (value->rank < 0) {
        gt_text_printf(text, "[...]");
        return;
    }
    gt_text_printf(text, "[");
    for (int32_t k = 0; k < value->rank; k++) {
        if (k)
            gt_text_printf(text, ",");
        if (value->dims[k] == GT_EXPR_UNKNOWN)
            gt_text_printf(text, "?");
        else
            gt_expr_print(&graph->model->exprs, value->dims[k], text);
    }
    gt_text_printf(text, "]");
}
