/* Common subexpressions: two nodes with the same operator, attributes and inputs compute the same, so one
 * goes.
 *
 * A node is described by a byte string: operator, version, attributes in name order, inputs (in id order when
 * they may be swapped). Small constants count as equal when their bytes are. */
#include "rewrite_internal.h"

/* Larger constants are equal only when they are the same: comparing weights would read the whole file. */
#define MAX_COMPARED_BYTES 256u

typedef struct cse_state {
    gt_rewrite_context *context;
    gt_graph *graph;
    gt_map nodes;     /* description -> node id */
    gt_map constants; /* description -> constant index */
    gt_text key;
} cse_state;

static void append_number(gt_text *key, uint64_t number)
{
    gt_text_append(key, (const char *)&number, sizeof number);
}

static void append_bytes(gt_text *key, const void *bytes, uint64_t count)
{
    append_number(key, count);
    if (count)
        gt_text_append(key, bytes, (size_t)count);
}

static void append_tensor(gt_text *key, const gantry_tensor *tensor)
{
    uint64_t count = 1;
    append_number(key, tensor->dtype);
    append_bytes(key, tensor->dims, tensor->rank * sizeof *tensor->dims);
    for (uint32_t k = 0; k < tensor->rank; k++)
        count *= (uint64_t)tensor->dims[k];
    append_bytes(key, (const char *)tensor->buffer.handle + tensor->buffer.offset_bytes,
                 gantry_dtype_bytes(tensor->dtype, count));
}

static bool is_comparable(const gantry_attribute *attribute)
{
    bool tensors = attribute->kind == GANTRY_ATTR_TENSOR || attribute->kind == GANTRY_ATTR_TENSORS;
    for (uint32_t k = 0; tensors && k < attribute->count; k++)
        if (attribute->tensors[k].dtype == GANTRY_STRING)
            return false;
    return true;
}

static void append_attribute(gt_text *key, const gantry_attribute *attribute)
{
    append_bytes(key, attribute->name, strlen(attribute->name));
    append_number(key, attribute->kind);
    append_number(key, attribute->count);
    switch (attribute->kind) {
    case GANTRY_ATTR_FLOAT:
        append_bytes(key, &attribute->f, sizeof attribute->f);
        break;
    case GANTRY_ATTR_INT:
        append_number(key, (uint64_t)attribute->i);
        break;
    case GANTRY_ATTR_STRING:
        append_bytes(key, attribute->s, attribute->length);
        break;
    case GANTRY_ATTR_FLOATS:
        append_bytes(key, attribute->floats, attribute->count * sizeof *attribute->floats);
        break;
    case GANTRY_ATTR_INTS:
        append_bytes(key, attribute->ints, attribute->count * sizeof *attribute->ints);
        break;
    case GANTRY_ATTR_STRINGS:
        for (uint32_t k = 0; k < attribute->count; k++)
            append_bytes(key, attribute->strings[k], strlen(attribute->strings[k]));
        break;
    case GANTRY_ATTR_TENSOR:
    case GANTRY_ATTR_TENSORS:
        for (uint32_t k = 0; k < attribute->count; k++)
            append_tensor(key, &attribute->tensors[k]);
        break;
    }
}

/* In name order; nodes have a handful of attributes. False when one can't be described. */
static bool append_attributes(gt_text *key, const gt_node *node)
{
    const char *last = NULL;
    for (uint32_t k = 0; k < node->attribute_count; k++) {
        const gantry_attribute *next = NULL;
        for (uint32_t a = 0; a < node->attribute_count; a++) {
            const gantry_attribute *candidate = &node->attributes[a];
            if ((!last || strcmp(candidate->name, last) > 0) &&
                (!next || strcmp(candidate->name, next->name) < 0))
                next = candidate;
        }
        if (!next)
            break;
        if (!is_comparable(next))
            return false;
        append_attribute(key, next);
        last = next->name;
    }
    return true;
}

/* Adds a copy of state->key with this number, or gives the number it already has in *inout_number. */
static gantry_status find_or_add(cse_state *state, gt_map *map, uint32_t *inout_number, gantry_error *err)
{
    uint32_t found = gt_map_get(map, state->key.data, state->key.length, GT_NONE);
    if (found != GT_NONE) {
        *inout_number = found;
        return GANTRY_OK;
    }
    void *copy = gt_arena_copy(&state->context->scratch, state->key.data, state->key.length);
    if (!copy || !gt_map_set(map, copy, state->key.length, *inout_number))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

/* The first constant with these bytes. */
static gantry_status first_constant(cse_state *state, uint32_t *inout_constant, gantry_error *err)
{
    gt_model *model = state->context->model;
    const gt_constant *constant = &model->constants.data[*inout_constant];
    const void *data;
    if (constant->bytes > MAX_COMPARED_BYTES || constant->dtype == GANTRY_STRING)
        return GANTRY_OK;
    GT_TRY(gt_constant_data(model, *inout_constant, &data, err));
    constant = &model->constants.data[*inout_constant];
    state->key.length = 0;
    append_number(&state->key, constant->dtype);
    append_bytes(&state->key, constant->dims, constant->rank * sizeof *constant->dims);
    append_bytes(&state->key, data, constant->bytes);
    if (state->key.failed)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return find_or_add(state, &state->constants, inout_constant, err);
}

/* The numbers that stand for a node's inputs: value ids, constants set apart by the top bit. */
static gantry_status input_numbers(cse_state *state, const gt_node *node, uint64_t *out_numbers,
                                   gantry_error *err)
{
    for (uint32_t k = 0; k < node->input_count; k++) {
        out_numbers[k] = node->inputs[k];
        const gt_value *value = gt_graph_value(state->graph, node->inputs[k]);
        if (!value || !gt_value_is_constant(value))
            continue;
        uint32_t constant = value->constant;
        GT_TRY(first_constant(state, &constant, err));
        out_numbers[k] = (uint64_t)1 << 63 | constant;
    }
    if (node->op && (node->op->flags & GT_OP_COMMUTATIVE) && node->input_count == 2 &&
        out_numbers[0] > out_numbers[1]) {
        uint64_t swap = out_numbers[0];
        out_numbers[0] = out_numbers[1];
        out_numbers[1] = swap;
    }
    return GANTRY_OK;
}

/* Fills state->key; *out_described is false for what can't be merged. */
static gantry_status describe_node(cse_state *state, const gt_node *node, bool *out_described,
                                   gantry_error *err)
{
    uint64_t *numbers = GT_ARENA_ARRAY(&state->context->scratch, uint64_t, node->input_count);
    if (!numbers)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    GT_TRY(input_numbers(state, node, numbers, err));
    state->key.length = 0;
    append_bytes(&state->key, node->domain, strlen(node->domain));
    append_bytes(&state->key, node->op_type, strlen(node->op_type));
    append_number(&state->key, (uint64_t)node->version);
    append_bytes(&state->key, numbers, node->input_count * sizeof *numbers);
    append_number(&state->key, node->output_count);
    for (uint32_t k = 0; k < node->output_count; k++)
        append_number(&state->key, node->outputs[k] != GT_NONE);
    *out_described = append_attributes(&state->key, node);
    return state->key.failed ? gt_out_of_memory(err, GANTRY_STAGE_LOAD) : GANTRY_OK;
}

/* An Identity that is left is what names a graph output: merging two would bring one back. */
static bool is_mergeable(const gt_node *node)
{
    return !node->removed && node->op && !node->body_count && !node->composite && !node->kept_count &&
           !(node->op->flags & (GT_OP_RANDOM | GT_OP_CONTROL)) && !gt_rewrite_is_op(node, "Identity");
}

static bool can_merge(const cse_state *state, const gt_node *kept, const gt_node *other)
{
    for (uint32_t k = 0; k < kept->output_count; k++)
        if (kept->outputs[k] != GT_NONE &&
            !gt_rewrite_can_replace(state->context, other->outputs[k], kept->outputs[k]))
            return false;
    return true;
}

static gantry_status merge(cse_state *state, const gt_node *kept, uint32_t id, gantry_error *err)
{
    const gt_node *node = state->graph->nodes.data[id];
    GT_TRY(gt_rewrite_log(state->context, kept->name, "applied", NULL, &id, 1, NULL, err));
    for (uint32_t k = 0; k < node->output_count; k++)
        if (node->outputs[k] != GT_NONE)
            GT_TRY(gt_rewrite_replace(state->context, node->outputs[k], kept->outputs[k], err));
    gt_rewrite_remove(state->context, id, "cse");
    return GANTRY_OK;
}

static gantry_status merge_all(cse_state *state, bool *out_changed, gantry_error *err)
{
    gt_graph *graph = state->graph;
    for (uint32_t k = 0; k < graph->order.count; k++) {
        uint32_t id = graph->order.data[k], first = id;
        const gt_node *node = graph->nodes.data[id];
        bool described = false;
        if (!is_mergeable(node))
            continue;
        GT_TRY(describe_node(state, node, &described, err));
        if (!described)
            continue;
        GT_TRY(find_or_add(state, &state->nodes, &first, err));
        if (first == id || !can_merge(state, graph->nodes.data[first], node))
            continue;
        GT_TRY(merge(state, graph->nodes.data[first], id, err));
        *out_changed = true;
    }
    return GANTRY_OK;
}

gantry_status gt_rewrite_cse(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                             gantry_error *err)
{
    cse_state state = {.context = context, .graph = graph};
    gt_map_init(&state.nodes, context->allocator);
    gt_map_init(&state.constants, context->allocator);
    gt_text_init(&state.key, context->allocator);
    gantry_status status = merge_all(&state, out_changed, err);
    gt_map_free(&state.nodes);
    gt_map_free(&state.constants);
    gt_text_free(&state.key);
    return status;
}
