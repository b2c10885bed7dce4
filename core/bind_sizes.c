/* Sizes and elements of values for one set of symbol values, and why a size is not to be had. */
#include "bind_parts.h"

#include "base/half.h"
#include "graph/infer.h"

/* The deepest expression below e that has no value though its operands do; e itself when a symbol below it is
 * not known. */
static gt_expr find_failure(const gt_evaluation *eval, gt_expr e)
{
    for (;;) {
        const gt_expr_node *node = &eval->exprs->nodes.data[e];
        if (node->kind == GT_EXPR_SYMBOL || node->kind == GT_EXPR_CONST || node->kind == GT_EXPR_REAL_CONST)
            return e;
        gt_expr below = GT_EXPR_UNKNOWN;
        if (node->kind == GT_EXPR_SELECT && eval->known[node->a]) {
            e = eval->values[node->a].i ? node->b : node->c;
            continue;
        }
        const gt_expr operands[3] = {node->a, node->b, node->kind == GT_EXPR_SELECT ? node->c : node->a};
        bool unary = node->kind == GT_EXPR_NOT || node->kind >= GT_EXPR_TO_REAL;
        for (int k = 0; k < 3; k++)
            if (!(unary && k == 1 && node->kind != GT_EXPR_REAL_DIV) && !eval->known[operands[k]] &&
                below == GT_EXPR_UNKNOWN)
                below = operands[k];
        if (below == GT_EXPR_UNKNOWN)
            return e;
        e = below;
    }
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* What a loop piles up has memory for what there is, not for the trips that it might take: its bound may be
 * the largest number there is. */
static bool grows_while_made(const gt_graph *graph, const gt_value *value)
{
    const gt_node *node = gt_graph_node(graph, value->producer);
    return node && node->op && (node->op->flags & GT_OP_CONTROL);
}

static gantry_status keep_extents(gt_binder *b, const int64_t *dims, gt_plan_shape *shape)
{
    size_t bytes = shape->rank * sizeof *dims;
    const gt_map_slot *known =
        b->extents.count ? gt_map_probe(&b->extents, dims, bytes, XXH3_64bits(dims, bytes)) : NULL;
    if (known && known->key) {
        shape->dims = (int64_t *)(uintptr_t)known->key;
        return GANTRY_OK;
    }
    shape->dims = gt_arena_copy(&b->plan->arena, dims, bytes);
    return shape->dims && gt_map_set(&b->extents, shape->dims, bytes, 0)
               ? GANTRY_OK
               : gt_out_of_memory(b->err, GANTRY_STAGE_RUN);
}

gantry_status gt_bind_shape(gt_binder *b, uint32_t id)
{
    const gt_value *value = b->variant->graph->values.data[id];
    gt_plan_shape *shape = &b->plan->shapes[id];
    if (value->rank < 0) {
        shape->dynamic = true;
        return GANTRY_OK;
    }
    int64_t dims[GANTRY_MAX_RANK];
    for (int32_t d = 0; d < value->rank; d++) {
        gt_expr e = value->dims[d];
        if (e != GT_EXPR_UNKNOWN && b->eval.known[e]) {
            dims[d] = b->eval.values[e].i;
        } else {
            gt_expr bound = GT_EXPR_UNKNOWN;
            if (!grows_while_made(b->variant->graph, value) && e != GT_EXPR_UNKNOWN &&
                b->eval.exprs->nodes.data[e].kind == GT_EXPR_SYMBOL)
                bound = b->eval.exprs->symbols.data[b->eval.exprs->nodes.data[e].a].bound;
            if (bound == GT_EXPR_UNKNOWN || !b->eval.known[bound]) {
                shape->dynamic = true;
                return GANTRY_OK;
            }
            shape->bounded = true;
            dims[d] = b->eval.values[bound].i;
        }
        if (dims[d] < 0) {
            b->negative = id;
            shape->dynamic = true;
            return GANTRY_OK;
        }
    }
    shape->rank = (uint32_t)value->rank;
    return keep_extents(b, dims, shape);
}

/* Says why a value that a program needs has no size. */
static gantry_status explain_size(gt_binder *b, const gt_node *node, uint32_t id)
{
    const gt_value *value = b->variant->graph->values.data[id];
    for (int32_t d = 0; d < value->rank; d++) {
        gt_expr e = value->dims[d];
        if (e == GT_EXPR_UNKNOWN || b->eval.known[e])
            continue;
        gt_expr failed = find_failure(&b->eval, e);
        if (b->eval.exprs->nodes.data[failed].kind != GT_EXPR_SYMBOL)
            return gt_infer_explain_extent(b->variant->graph, id, d, failed, b->eval.values, b->eval.known,
                                           b->err);
    }
    return gt_fail(b->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, node->name,
                   "the shape of %s, which node %s (%s) uses, can't be known before it is computed; its rank "
                   "or an extent depends on data",
                   value->name, node->name, node->op_type);
}

/* What operators demand and these inputs break. With `below`: also what can't be told because an expression
 * below it failed, which is for when nothing else explains that. */
static gantry_status check_rules(gt_binder *b, bool below)
{
    const gt_graph *graph = b->variant->graph;
    for (uint32_t k = 0; k < graph->check_count; k++) {
        gt_expr e = graph->checks[k].expr;
        if (b->eval.known[e])
            continue;
        gt_expr failed = find_failure(&b->eval, e);
        bool ours = failed == e || (below && gt_expr_segment(b->eval.exprs, e) <= b->segment->number);
        if (ours && b->eval.exprs->nodes.data[failed].kind != GT_EXPR_SYMBOL)
            return gt_infer_explain_check(graph, k, failed, b->eval.values, b->eval.known, b->err);
    }
    return GANTRY_OK;
}

static int32_t negative_axis(const gt_binder *b, uint32_t id)
{
    const gt_value *value = gt_graph_value(b->variant->graph, id);
    for (int32_t d = 0; value && d < value->rank; d++) {
        gt_expr e = value->dims[d];
        if (e != GT_EXPR_UNKNOWN && b->eval.known[e] && b->eval.values[e].i < 0)
            return d;
    }
    return -1;
}

/* Names the first node that makes an extent below 0. */
static gantry_status explain_negative(gt_binder *b)
{
    const gt_graph *graph = b->variant->graph;
    uint32_t id = GT_NONE;
    for (uint32_t n = 0; n < graph->order.count && id == GT_NONE; n++) {
        const gt_node *node = graph->nodes.data[graph->order.data[n]];
        for (uint32_t k = 0; k < node->output_count && id == GT_NONE; k++)
            if (negative_axis(b, node->outputs[k]) >= 0)
                id = node->outputs[k];
    }
    id = id == GT_NONE ? b->negative : id;
    int32_t axis = negative_axis(b, id);
    return gt_infer_explain_extent(graph, id, axis < 0 ? 0 : axis, GT_EXPR_UNKNOWN, b->eval.values,
                                   b->eval.known, b->err);
}

gantry_status gt_bind_check_sizes(gt_binder *b)
{
    const gt_graph *graph = b->variant->graph;
    GT_TRY(check_rules(b, false));
    if (b->negative != GT_NONE)
        return explain_negative(b);
    for (uint32_t p = b->segment->first_partition;
         p < b->segment->first_partition + b->segment->partition_count; p++) {
        const gt_partition *partition = &b->variant->placement->partitions[p];
        for (uint32_t n = 0; n < partition->node_count; n++) {
            const gt_node *node = graph->nodes.data[partition->nodes[n]];
            for (uint32_t k = 0; k < node->input_count; k++)
                if (node->inputs[k] != GT_NONE && b->plan->shapes[node->inputs[k]].dynamic)
                    return explain_size(b, node, node->inputs[k]);
            for (uint32_t k = 0; k < node->output_count && !partition->control; k++)
                if (node->outputs[k] != GT_NONE && b->plan->shapes[node->outputs[k]].dynamic)
                    return explain_size(b, node, node->outputs[k]);
        }
    }
    return check_rules(b, true);
}

/* ---- elements -------------------------------------------------------------------------------- */

static void store_element(gantry_dtype dtype, void *data, uint32_t k, bool real, gt_scalar v)
{
    /* A real where integers are wanted is a whole one; of other dtypes it may be anything. */
    bool fits = v.r > -0x1p63 && v.r < 0x1p63;
    int64_t i = !real ? v.i : fits ? (int64_t)v.r : INT64_MIN;
    double r = real ? v.r : (double)v.i;
    switch (dtype) {
    case GANTRY_INT64:
    case GANTRY_UINT64:
        ((int64_t *)data)[k] = i;
        break;
    case GANTRY_INT32:
    case GANTRY_UINT32:
        ((int32_t *)data)[k] = (int32_t)i;
        break;
    case GANTRY_INT16:
    case GANTRY_UINT16:
        ((int16_t *)data)[k] = (int16_t)i;
        break;
    case GANTRY_INT8:
    case GANTRY_UINT8:
        ((int8_t *)data)[k] = (int8_t)i;
        break;
    case GANTRY_BOOL:
        ((uint8_t *)data)[k] = real ? r != 0 : i != 0;
        break;
    case GANTRY_FLOAT16:
        ((uint16_t *)data)[k] = gt_half_bits(r);
        break;
    case GANTRY_FLOAT32:
        ((float *)data)[k] = (float)r;
        break;
    case GANTRY_FLOAT64:
        ((double *)data)[k] = r;
        break;
    default:
        break;
    }
}

static bool can_store(gantry_dtype dtype)
{
    return (dtype >= GANTRY_FLOAT32 && dtype <= GANTRY_INT64) || dtype == GANTRY_BOOL ||
           dtype == GANTRY_FLOAT64 || dtype == GANTRY_FLOAT16 || dtype == GANTRY_UINT32 ||
           dtype == GANTRY_UINT64;
}

gantry_status gt_bind_elements(gt_binder *b, uint32_t id)
{
    const gt_value *value = b->variant->graph->values.data[id];
    if (!value->elements || value->constant != GT_NONE || !can_store(value->dtype))
        return GANTRY_OK;
    for (uint32_t k = 0; k < value->element_count; k++)
        if (value->elements[k] == GT_EXPR_UNKNOWN || !b->eval.known[value->elements[k]])
            return GANTRY_OK;
    void *data = gt_arena_alloc(&b->scratch, gantry_dtype_bytes(value->dtype, value->element_count) + 16);
    if (!data)
        return gt_out_of_memory(b->err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < value->element_count; k++)
        store_element(value->dtype, data, k, gt_expr_is_real(b->eval.exprs, value->elements[k]),
                      b->eval.values[value->elements[k]]);
    b->bind_data[id] = data;
    return GANTRY_OK;
}
