/* What rules read and set: inputs, elements, outputs. */
#include "infer_rules.h"

#include "base/half.h"

#include <math.h>

static uint32_t input_id(const gt_infer *infer, uint32_t k)
{
    return k < infer->node->input_count ? infer->node->inputs[k] : GT_NONE;
}

static uint32_t output_id(const gt_infer *infer, uint32_t k)
{
    return k < infer->node->output_count ? infer->node->outputs[k] : GT_NONE;
}

bool gt_in_present(const gt_infer *infer, uint32_t k)
{
    return input_id(infer, k) != GT_NONE;
}

const gt_value *gt_in_value(const gt_infer *infer, uint32_t k)
{
    return gt_graph_value(infer->graph, input_id(infer, k));
}

gantry_dtype gt_in_dtype(const gt_infer *infer, uint32_t k)
{
    const gt_value *value = gt_in_value(infer, k);
    return value ? value->dtype : GANTRY_UNDEFINED;
}

int32_t gt_in_rank(const gt_infer *infer, uint32_t k)
{
    const gt_value *value = gt_in_value(infer, k);
    return value && value->rank <= GANTRY_MAX_RANK ? value->rank : -1;
}

gt_shape gt_in_shape(const gt_infer *infer, uint32_t k)
{
    gt_shape shape = {.rank = gt_in_rank(infer, k)};
    for (int32_t axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = gt_infer_root(infer, gt_in_value(infer, k)->dims[axis]);
    return shape;
}

gt_expr gt_in_dim(const gt_infer *infer, uint32_t k, int32_t axis)
{
    int32_t rank = gt_in_rank(infer, k);
    axis += axis < 0 ? rank : 0;
    return axis >= 0 && axis < rank ? gt_infer_root(infer, gt_in_value(infer, k)->dims[axis])
                                    : GT_EXPR_UNKNOWN;
}

static gt_expr size_of(gt_exprs *exprs, int32_t rank, const gt_expr *dims)
{
    gt_expr size = rank < 0 ? GT_EXPR_UNKNOWN : gt_expr_const(exprs, 1);
    for (int32_t axis = 0; axis < rank; axis++)
        size = gt_expr_make(exprs, GT_EXPR_MUL, size, dims[axis], 0);
    return size;
}

gt_expr gt_in_size(const gt_infer *infer, uint32_t k)
{
    gt_shape shape = gt_in_shape(infer, k);
    return size_of(infer->exprs, shape.rank, shape.dims);
}

/* Without making expressions: most tensors are large, and this is asked often. */
static bool small_count(const gt_exprs *exprs, int32_t rank, const gt_expr *dims, uint32_t *out_count)
{
    int64_t count = 1, extent;
    for (int32_t axis = 0; axis < rank; axis++) {
        if (!gt_expr_is_const(exprs, dims[axis], &extent) || extent < 0 || extent > GT_MAX_ELEMENTS)
            return false;
        count *= extent;
        if (count > GT_MAX_ELEMENTS)
            return false;
    }
    *out_count = (uint32_t)count;
    return rank >= 0;
}

bool gt_in_is_small(const gt_infer *infer, uint32_t k, uint32_t *out_count)
{
    const gt_value *value = gt_in_value(infer, k);
    return value && small_count(infer->exprs, value->rank, value->dims, out_count);
}

/* Types that can have symbolic elements: how one is kept, and what scalar it is. */
#define SYMBOLIC_REALS(X)                                                                                    \
    X(GANTRY_FLOAT16, uint16_t, gt_half_value(v))                                                            \
    X(GANTRY_FLOAT32, float, (double)v)                                                                      \
    X(GANTRY_FLOAT64, double, v)
#define SYMBOLIC_INTEGERS(X)                                                                                 \
    X(GANTRY_INT8, int8_t, v)                                                                                \
    X(GANTRY_INT16, int16_t, v)                                                                              \
    X(GANTRY_INT32, int32_t, v)                                                                              \
    X(GANTRY_INT64, int64_t, v)                                                                              \
    X(GANTRY_UINT8, uint8_t, v)                                                                              \
    X(GANTRY_UINT16, uint16_t, v)                                                                            \
    X(GANTRY_UINT32, uint32_t, v)                                                                            \
    X(GANTRY_BOOL, uint8_t, v != 0)

bool gt_dtype_is_symbolic(gantry_dtype dtype, bool *out_real)
{
    *out_real = false;
    switch (dtype) {
#define X(id, type, scalar) case id:
        SYMBOLIC_REALS(X)
        *out_real = true;
        return true;
        SYMBOLIC_INTEGERS(X)
        return true;
#undef X
    default:
        return false;
    }
}

gt_scalar gt_scalar_read(gantry_dtype dtype, const void *data, uint64_t k)
{
#define LOAD(id, type, member, scalar)                                                                       \
    case id: {                                                                                               \
        type v;                                                                                              \
        memcpy(&v, (const char *)data + k * sizeof v, sizeof v);                                             \
        return (gt_scalar){.member = (scalar)};                                                              \
    }
    switch (dtype) {
#define X(id, type, scalar) LOAD(id, type, r, scalar)
        SYMBOLIC_REALS(X)
#undef X
#define X(id, type, scalar) LOAD(id, type, i, scalar)
        SYMBOLIC_INTEGERS(X)
#undef X
        LOAD(GANTRY_UINT64, int64_t, i, v)
    default:
        return (gt_scalar){0};
    }
#undef LOAD
}

/* The elements of a constant, read when first asked for: most constants nobody asks about. */
static const gt_expr *constant_elements(const gt_infer *infer, const gt_value *value, gt_part *part)
{
    const gt_constant *constant = &infer->model->constants.data[value->constant];
    const void *data = NULL;
    bool real;
    uint32_t count;
    if (!gt_dtype_is_symbolic(value->dtype, &real) || value->dtype != constant->dtype ||
        !small_count(infer->exprs, value->rank, value->dims, &count) ||
        gt_constant_data(infer->model, value->constant, &data, NULL) != GANTRY_OK || (count && !data))
        return NULL;
    gt_expr *elements = gt_arena_array(infer->state->scratch, count ? count : 1, sizeof *elements);
    if (!elements) {
        infer->state->failed = true;
        return NULL;
    }
    for (uint32_t k = 0; k < count; k++) {
        gt_scalar scalar = gt_scalar_read(value->dtype, data, k);
        elements[k] = real ? gt_expr_real(infer->exprs, scalar.r) : gt_expr_const(infer->exprs, scalar.i);
    }
    part->count = count;
    part->elements = elements;
    return elements;
}

bool gt_in_has_elements(const gt_infer *infer, uint32_t k)
{
    const gt_value *value = gt_in_value(infer, k);
    uint32_t count;
    return value &&
           (value->elements || infer->state->parts[input_id(infer, k)].elements ||
            (gt_value_is_fixed(value) && small_count(infer->exprs, value->rank, value->dims, &count)));
}

const gt_expr *gt_in_elements(gt_infer *infer, uint32_t k, uint32_t *out_count)
{
    const gt_value *value = gt_in_value(infer, k);
    *out_count = 0;
    if (!value)
        return NULL;
    if (value->elements) {
        *out_count = value->element_count;
        return value->elements;
    }
    gt_part *part = &infer->state->parts[input_id(infer, k)];
    const gt_expr *elements = part->elements;
    if (!elements && gt_value_is_fixed(value))
        elements = constant_elements(infer, value, part);
    *out_count = part->count;
    return elements;
}

void gt_infer_load_constant(const gt_infer *infer, uint32_t value)
{
    const gt_value *of = gt_graph_value(infer->graph, value);
    if (of && gt_value_is_fixed(of) && !of->elements && !infer->state->parts[value].elements)
        constant_elements(infer, of, &infer->state->parts[value]);
}

static uint32_t producer_segment(const gt_infer *infer, const gt_value *value)
{
    uint32_t segment = value->producer == GT_NONE ? infer->state->segment
                                                  : infer->graph->nodes.data[value->producer]->segment;
    for (int32_t axis = 0; axis < value->rank; axis++) {
        uint32_t of = gt_expr_segment(infer->exprs, value->dims[axis]);
        segment = of > segment ? of : segment;
    }
    return segment;
}

/* The graph in which a captured value is made, and its id there: its symbols are made once, where it lives.
 */
static gt_expr element_symbol(gt_infer *infer, uint32_t id, uint32_t element, bool real)
{
    const gt_value *value = gt_graph_value(infer->graph, id);
    char name[320];
    snprintf(name, sizeof name, "%.300s[%u]", value->name, element);
    gt_symbol symbol = {.kind = GT_SYMBOL_DATA_ELEMENT,
                        .real = real,
                        .name = name,
                        .value = id,
                        .axis = element,
                        .segment = producer_segment(infer, value) + 1,
                        .bound = GT_EXPR_UNKNOWN,
                        .range_low = INT64_MIN,
                        .range_typical = 1,
                        .range_high = INT64_MAX,
                        .graph = infer->graph,
                        .depth = infer->state->depth};
    return gt_expr_symbol_again(infer->exprs, &symbol);
}

const gt_expr *gt_in_shape_operand(gt_infer *infer, uint32_t k, uint32_t *out_count)
{
    uint32_t count, id = input_id(infer, k);
    bool real, complete = true;
    const gt_expr *known = gt_in_elements(infer, k, out_count);
    for (uint32_t e = 0; known && e < *out_count; e++)
        complete = complete && known[e] != GT_EXPR_UNKNOWN;
    if (known && complete)
        return known;
    if (!gt_in_is_small(infer, k, &count) || !gt_dtype_is_symbolic(gt_in_dtype(infer, k), &real))
        return NULL;
    gt_expr *elements = gt_arena_array(infer->state->scratch, count ? count : 1, sizeof *elements);
    if (!elements) {
        infer->state->failed = true;
        return NULL;
    }
    for (uint32_t e = 0; e < count; e++)
        elements[e] = known && e < *out_count && known[e] != GT_EXPR_UNKNOWN
                          ? known[e]
                          : element_symbol(infer, id, e, real);
    infer->state->parts[id].count = count;
    infer->state->parts[id].elements = elements;
    *out_count = count;
    return elements;
}

bool gt_in_constants(gt_infer *infer, uint32_t k, int64_t *out_values, uint32_t limit, uint32_t *out_count)
{
    const gt_expr *elements = gt_in_elements(infer, k, out_count);
    if (!elements || *out_count > limit)
        return false;
    for (uint32_t e = 0; e < *out_count; e++)
        if (!gt_is_const(infer, elements[e], &out_values[e]))
            return false;
    return true;
}

/* ---- outputs */

bool gt_out_present(const gt_infer *infer, uint32_t k)
{
    return output_id(infer, k) != GT_NONE;
}

void gt_out_shape(gt_infer *infer, uint32_t k, gantry_dtype dtype, const gt_shape *shape)
{
    uint32_t id = output_id(infer, k);
    gt_value *value = gt_graph_value(infer->graph, id);
    if (!value)
        return;
    const gt_part *part = &infer->state->parts[id];
    value->dtype = dtype;
    value->rank = shape->rank;
    value->dims = part->old_dims;
    if (shape->rank < 0)
        return;
    /* Inferring again mostly finds the same: the array is kept, so that repeating costs no memory. */
    size_t bytes = (size_t)shape->rank * sizeof(gt_expr);
    if (part->old_dims && part->old_rank == shape->rank && memcmp(part->old_dims, shape->dims, bytes) == 0)
        return;
    gt_expr *dims = gt_arena_copy(&infer->model->arena, shape->dims, bytes);
    if (!dims)
        infer->state->failed = true;
    value->rank = dims ? shape->rank : -1;
    value->dims = dims;
}

void gt_out_like(gt_infer *infer, uint32_t k, gantry_dtype dtype, uint32_t input)
{
    gt_shape shape = gt_in_shape(infer, input);
    gt_out_shape(infer, k, dtype, &shape);
}

void gt_out_elements(gt_infer *infer, uint32_t k, const gt_expr *elements, uint32_t count)
{
    uint32_t id = output_id(infer, k), expected;
    gt_value *value = gt_graph_value(infer->graph, id);
    bool real, complete = true, any = count == 0;
    if (!value || !elements || !gt_dtype_is_symbolic(value->dtype, &real) ||
        !small_count(infer->exprs, value->rank, value->dims, &expected) || expected != count)
        return;
    for (uint32_t e = 0; e < count; e++) {
        bool known = elements[e] != GT_EXPR_UNKNOWN && gt_expr_is_real(infer->exprs, elements[e]) == real;
        complete = complete && known;
        any = any || known;
    }
    if (!any)
        return;
    gt_arena *arena = complete ? &infer->model->arena : infer->state->scratch;
    gt_expr *kept = gt_arena_array(arena, count ? count : 1, sizeof *kept);
    if (!kept) {
        infer->state->failed = true;
        return;
    }
    for (uint32_t e = 0; e < count; e++)
        kept[e] = elements[e] != GT_EXPR_UNKNOWN && gt_expr_is_real(infer->exprs, elements[e]) == real
                      ? elements[e]
                      : GT_EXPR_UNKNOWN;
    if (complete) {
        value->elements = kept;
        value->element_count = count;
    } else {
        infer->state->parts[id].count = count;
        infer->state->parts[id].elements = kept;
    }
}

gt_expr gt_out_data_dim(gt_infer *infer, uint32_t k, uint32_t axis, gt_expr bound)
{
    uint32_t id = output_id(infer, k);
    const gt_value *value = gt_graph_value(infer->graph, id);
    if (!value)
        return GT_EXPR_UNKNOWN;
    char name[320];
    snprintf(name, sizeof name, "%.300s.shape[%u]", value->name, axis);
    int64_t typical = 128, most;
    if (gt_is_const(infer, bound, &most) && most < typical)
        typical = most;
    gt_symbol symbol = {.kind = GT_SYMBOL_DATA_DIM,
                        .name = name,
                        .input = bound,
                        .value = id,
                        .axis = axis,
                        .segment = infer->node->segment + 1,
                        .bound = bound,
                        .range_low = 0,
                        .range_typical = typical,
                        .range_high = INT64_MAX,
                        .graph = infer->graph,
                        .depth = infer->state->depth};
    return gt_expr_symbol_again(infer->exprs, &symbol);
}

bool gt_infer_is_local(const gt_infer *infer, gt_expr e)
{
    return e != GT_EXPR_UNKNOWN && gt_expr_known_facts(infer->exprs, e).depth > infer->state->depth;
}

/* ---- moving elements */

bool gt_in_strides(const gt_infer *infer, uint32_t k, int64_t *out_strides)
{
    int64_t stride = 1, extent;
    for (int32_t axis = gt_in_rank(infer, k) - 1; axis >= 0; axis--) {
        out_strides[axis] = stride;
        if (!gt_is_const(infer, gt_in_dim(infer, k, axis), &extent) ||
            __builtin_mul_overflow(stride, extent, &stride))
            return false;
    }
    return gt_in_rank(infer, k) >= 0;
}

void gt_out_strided(gt_infer *infer, uint32_t k, uint32_t input, const int64_t *strides, int64_t offset)
{
    const gt_value *value = gt_graph_value(infer->graph, output_id(infer, k));
    uint32_t count, source_count;
    if (!value || !gt_in_has_elements(infer, input) ||
        !small_count(infer->exprs, value->rank, value->dims, &count))
        return;
    const gt_expr *source = gt_in_elements(infer, input, &source_count);
    if (!source)
        return;
    gt_expr moved[GT_MAX_ELEMENTS];
    int64_t extents[GANTRY_MAX_RANK] = {0}, index[GANTRY_MAX_RANK] = {0};
    for (int32_t axis = 0; axis < value->rank; axis++)
        gt_is_const(infer, value->dims[axis], &extents[axis]);
    for (uint32_t e = 0; e < count; e++) {
        int64_t from = offset;
        for (int32_t axis = 0; axis < value->rank; axis++)
            from += index[axis] * strides[axis];
        if (from < 0 || from >= source_count)
            return;
        moved[e] = source[from];
        for (int32_t axis = value->rank - 1; axis >= 0 && ++index[axis] == extents[axis]; axis--)
            index[axis] = 0;
    }
    gt_out_elements(infer, k, moved, count);
}
