/* Reading graphs for the rules: operators, shapes, integers known now. */
#include "rewrite_internal.h"

bool gt_rewrite_is_op(const gt_node *node, const char *op_type)
{
    return node && !node->domain[0] && strcmp(node->op_type, op_type) == 0;
}

gt_node *gt_rewrite_producer(const gt_rewrite_context *context, uint32_t value, const char *op_type)
{
    const gt_value *v = gt_rewrite_value(context, value);
    if (!v || v->producer == GT_NONE)
        return NULL;
    gt_node *node = context->graph->nodes.data[v->producer];
    if (node->removed || node->domain[0] || (op_type && strcmp(node->op_type, op_type) != 0))
        return NULL;
    return node;
}

uint32_t gt_rewrite_input(const gt_node *node, uint32_t k)
{
    return k < node->input_count ? node->inputs[k] : GT_NONE;
}

bool gt_rewrite_same_shape(const gt_value *a, const gt_value *b)
{
    if (a->rank < 0 || a->rank != b->rank)
        return false;
    for (int32_t k = 0; k < a->rank; k++)
        if (a->dims[k] != b->dims[k] || a->dims[k] == GT_EXPR_UNKNOWN)
            return false;
    return true;
}

bool gt_rewrite_static_dims(const gt_rewrite_context *context, const gt_value *value, int64_t *out_dims)
{
    if (value->rank < 0 || value->rank > GANTRY_MAX_RANK)
        return false;
    for (int32_t k = 0; k < value->rank; k++)
        if (!gt_expr_is_const(&context->model->exprs, value->dims[k], &out_dims[k]) || out_dims[k] < 0)
            return false;
    return true;
}

const char *gt_rewrite_inner_guard(const gt_rewrite_context *context, uint32_t value, uint32_t consumers)
{
    if (gt_rewrite_value(context, value)->is_output)
        return "graph_output";
    return gt_rewrite_use_count(context, value) == consumers ? NULL : "second_consumer";
}

bool gt_rewrite_is_float(gantry_dtype dtype)
{
    return dtype == GANTRY_FLOAT32 || dtype == GANTRY_FLOAT16 || dtype == GANTRY_BFLOAT16 ||
           dtype == GANTRY_FLOAT64;
}

static const int64_t *ints_of_elements(gt_rewrite_context *context, const gt_value *value)
{
    int64_t *numbers = GT_ARENA_ARRAY(&context->scratch, int64_t, value->element_count);
    for (uint32_t k = 0; numbers && k < value->element_count; k++)
        if (!gt_expr_is_const(&context->model->exprs, value->elements[k], &numbers[k]))
            return NULL;
    return numbers;
}

static const int64_t *ints_of_constant(gt_rewrite_context *context, const gt_constant *constant,
                                       const void *data)
{
    uint64_t count = gt_rewrite_element_count(constant);
    if (count > GT_MAX_ELEMENTS || (constant->dtype != GANTRY_INT64 && constant->dtype != GANTRY_INT32))
        return NULL;
    int64_t *numbers = GT_ARENA_ARRAY(&context->scratch, int64_t, count);
    for (uint64_t k = 0; numbers && k < count; k++) {
        int32_t narrow;
        if (constant->dtype == GANTRY_INT64)
            memcpy(&numbers[k], (const char *)data + 8 * k, 8);
        else {
            memcpy(&narrow, (const char *)data + 4 * k, 4);
            numbers[k] = narrow;
        }
    }
    return numbers;
}

const int64_t *gt_rewrite_ints(gt_rewrite_context *context, uint32_t value_id, uint32_t *out_count)
{
    const gt_constant *constant;
    const void *data;
    const gt_value *value = gt_rewrite_value(context, value_id);
    *out_count = 0;
    if (!value || gt_rewrite_constant(context, value_id, &constant, &data, NULL) != GANTRY_OK)
        return NULL;
    const int64_t *numbers = NULL;
    if (constant) {
        numbers = ints_of_constant(context, constant, data);
        *out_count = numbers ? (uint32_t)gt_rewrite_element_count(constant) : 0;
    } else if (value->elements) {
        numbers = ints_of_elements(context, value);
        *out_count = numbers ? value->element_count : 0;
    }
    return numbers;
}
