/* Rules of operators that make tensors out of shapes, scalars or nothing: Shape, Constant, Range,
 * ConstantOfShape, random numbers, windows. */
#include "infer_rules.h"

gantry_status gt_rule_shape(gt_infer *infer)
{
    gt_shape in = gt_in_shape(infer, 0), out = {.rank = 1};
    int64_t start = gt_attr_int(infer, "start", 0), end = gt_attr_int(infer, "end", in.rank);
    if (in.rank < 0) {
        out.dims[0] = GT_EXPR_UNKNOWN;
        gt_out_shape(infer, 0, GANTRY_INT64, &out);
        return GANTRY_OK;
    }
    if (infer->node->version < 15)
        start = 0, end = in.rank;
    start = start < -in.rank ? 0 : start < 0 ? start + in.rank : start > in.rank ? in.rank : start;
    end = end < -in.rank ? 0 : end < 0 ? end + in.rank : end > in.rank ? in.rank : end;
    out.dims[0] = gt_number(infer, end > start ? end - start : 0);
    gt_out_shape(infer, 0, GANTRY_INT64, &out);
    gt_out_elements(infer, 0, in.dims + start, end > start ? (uint32_t)(end - start) : 0);
    return GANTRY_OK;
}

gantry_status gt_rule_size(gt_infer *infer)
{
    const gt_shape scalar = {.rank = 0};
    gt_expr size = gt_in_size(infer, 0);
    gt_out_shape(infer, 0, GANTRY_INT64, &scalar);
    gt_out_elements(infer, 0, &size, 1);
    return GANTRY_OK;
}

/* ---- tensors in attributes */

static void tensor_shape(const gt_infer *infer, const gantry_tensor *tensor, gt_shape *out)
{
    out->rank = tensor->rank <= GANTRY_MAX_RANK ? (int32_t)tensor->rank : -1;
    for (int32_t axis = 0; axis < out->rank; axis++)
        out->dims[axis] = gt_number(infer, tensor->dims[axis]);
}

/* One element of a tensor as an expression, or unknown. */
static gt_expr tensor_element(const gt_infer *infer, const gantry_tensor *tensor, uint32_t k)
{
    if (!tensor->buffer.handle)
        return GT_EXPR_UNKNOWN;
    const uint8_t *data = (const uint8_t *)tensor->buffer.handle + tensor->buffer.offset_bytes;
    switch (tensor->dtype) {
    case GANTRY_INT64: {
        int64_t v;
        memcpy(&v, data + k * sizeof v, sizeof v);
        return gt_number(infer, v);
    }
    case GANTRY_INT32: {
        int32_t v;
        memcpy(&v, data + k * sizeof v, sizeof v);
        return gt_number(infer, v);
    }
    case GANTRY_BOOL:
        return gt_number(infer, data[k] != 0);
    case GANTRY_FLOAT32: {
        float v;
        memcpy(&v, data + k * sizeof v, sizeof v);
        return gt_expr_real(infer->exprs, (double)v);
    }
    case GANTRY_FLOAT64: {
        double v;
        memcpy(&v, data + k * sizeof v, sizeof v);
        return gt_expr_real(infer->exprs, v);
    }
    default:
        return GT_EXPR_UNKNOWN;
    }
}

static void tensor_elements(gt_infer *infer, const gantry_tensor *tensor)
{
    gt_expr elements[GT_MAX_ELEMENTS];
    uint64_t count = 1;
    for (uint32_t axis = 0; axis < tensor->rank; axis++)
        if ((count *= (uint64_t)tensor->dims[axis]) > GT_MAX_ELEMENTS)
            return;
    for (uint32_t k = 0; k < count; k++)
        elements[k] = tensor_element(infer, tensor, k);
    gt_out_elements(infer, 0, elements, (uint32_t)count);
}

static void list_output(gt_infer *infer, gantry_dtype dtype, const gantry_attribute *list, bool scalar)
{
    gt_shape shape = {.rank = !scalar, .dims = {gt_number(infer, list->count)}};
    gt_expr elements[GT_MAX_ELEMENTS];
    gt_out_shape(infer, 0, dtype, &shape);
    if (list->count > GT_MAX_ELEMENTS || dtype == GANTRY_STRING)
        return;
    for (uint32_t k = 0; k < list->count; k++) {
        if (dtype == GANTRY_INT64)
            elements[k] = gt_number(infer, scalar ? list->i : list->ints[k]);
        else
            elements[k] = gt_expr_real(infer->exprs, (double)(scalar ? list->f : list->floats[k]));
    }
    gt_out_elements(infer, 0, elements, scalar ? 1 : list->count);
}

gantry_status gt_rule_constant(gt_infer *infer)
{
    for (uint32_t k = 0; k < infer->node->attribute_count; k++) {
        const gantry_attribute *a = &infer->node->attributes[k];
        gt_shape shape;
        if (strcmp(a->name, "value") == 0 && a->kind == GANTRY_ATTR_TENSOR && a->tensors) {
            tensor_shape(infer, a->tensors, &shape);
            gt_out_shape(infer, 0, a->tensors->dtype, &shape);
            tensor_elements(infer, a->tensors);
        } else if (strcmp(a->name, "value_int") == 0 || strcmp(a->name, "value_ints") == 0)
            list_output(infer, GANTRY_INT64, a, a->kind == GANTRY_ATTR_INT);
        else if (strcmp(a->name, "value_float") == 0 || strcmp(a->name, "value_floats") == 0)
            list_output(infer, GANTRY_FLOAT32, a, a->kind == GANTRY_ATTR_FLOAT);
        else if (strcmp(a->name, "value_string") == 0 || strcmp(a->name, "value_strings") == 0)
            list_output(infer, GANTRY_STRING, a, a->kind == GANTRY_ATTR_STRING);
        else
            continue;
        return GANTRY_OK;
    }
    return gt_infer_fail(infer, GANTRY_MODEL_GRAPH,
                         "none of the attributes value, value_int, value_float ... is given");
}

/* ---- filled tensors */

static void fill_elements(gt_infer *infer, const gt_shape *shape, gt_expr value)
{
    gt_expr elements[GT_MAX_ELEMENTS];
    int64_t count = 1, extent;
    for (int32_t axis = 0; axis < shape->rank; axis++) {
        if (!gt_is_const(infer, shape->dims[axis], &extent) || extent < 0 || extent > GT_MAX_ELEMENTS ||
            (count *= extent) > GT_MAX_ELEMENTS)
            return;
    }
    for (int64_t k = 0; k < count; k++)
        elements[k] = value;
    gt_out_elements(infer, 0, elements, (uint32_t)count);
}

gantry_status gt_rule_constant_of_shape(gt_infer *infer)
{
    uint32_t count;
    gt_shape shape = {.rank = -1};
    const gantry_attribute *value = gt_node_attribute(infer->node, "value");
    const gantry_tensor *tensor = value && value->kind == GANTRY_ATTR_TENSOR ? value->tensors : NULL;
    const gt_expr *elements = gt_in_shape_operand(infer, 0, &count);
    gantry_dtype dtype = tensor ? tensor->dtype : GANTRY_FLOAT32;
    uint64_t values = 1;
    for (uint32_t axis = 0; tensor && axis < tensor->rank; axis++)
        values *= (uint64_t)tensor->dims[axis];
    if (values != 1)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH,
                             "the attribute 'value' has %llu elements; exactly one is needed",
                             (unsigned long long)values);
    if (elements && count > GANTRY_MAX_RANK)
        return gt_infer_fail(infer, GANTRY_UNSUPPORTED,
                             "the shape asked for has %u axes; at most %d are supported", count,
                             GANTRY_MAX_RANK);
    for (uint32_t k = 0; elements && k < count; k++) {
        int64_t extent;
        shape.dims[k] = elements[k];
        shape.rank = (int32_t)count;
        if (gt_is_const(infer, elements[k], &extent) && extent < 0)
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the shape asked for has %lld at axis %u",
                                 (long long)extent, k);
    }
    if (elements && count == 0)
        shape.rank = 0;
    gt_out_shape(infer, 0, dtype, &shape);
    if (shape.rank >= 0)
        fill_elements(infer, &shape,
                      tensor ? tensor_element(infer, tensor, 0) : gt_expr_real(infer->exprs, 0));
    return GANTRY_OK;
}

static void range_elements(gt_infer *infer, gt_expr start, gt_expr delta, int64_t count)
{
    gt_expr elements[GT_MAX_ELEMENTS];
    /* Of reals only the kernel knows how it sums. */
    if (count > GT_MAX_ELEMENTS || gt_expr_is_real(infer->exprs, start))
        return;
    for (int64_t k = 0; k < count; k++)
        elements[k] = gt_add(infer, start, gt_mul(infer, gt_number(infer, k), delta));
    gt_out_elements(infer, 0, elements, (uint32_t)count);
}

gantry_status gt_rule_range(gt_infer *infer)
{
    gt_expr bound[3], extent = GT_EXPR_UNKNOWN;
    gt_shape shape = {.rank = 1};
    int64_t count;
    bool known = true;
    GT_TRY(gt_infer_same_types(infer, 0, 3));
    for (uint32_t k = 0; k < 3; k++) {
        uint32_t elements;
        const gt_expr *e = gt_in_shape_operand(infer, k, &elements);
        known = known && e && elements == 1;
        bound[k] = e && elements == 1 ? e[0] : GT_EXPR_UNKNOWN;
    }
    if (known) {
        bool real = gt_expr_is_real(infer->exprs, bound[0]);
        gt_expr zero = real ? gt_expr_real(infer->exprs, 0) : gt_number(infer, 0);
        gt_expr stays = gt_make(infer, GT_EXPR_EQ, bound[2], zero);
        GT_TRY(
            gt_infer_require(infer, gt_make(infer, GT_EXPR_NOT, stays, 0), "the step, delta, must not be 0"));
        gt_expr span = gt_sub(infer, bound[1], bound[0]);
        if (real && gt_in_dtype(infer, 0) == GANTRY_FLOAT32)
            span = gt_make(infer, GT_EXPR_REAL_ROUND32, span, 0);
        extent = real ? gt_make(infer, GT_EXPR_TO_INT,
                                gt_make(infer, GT_EXPR_REAL_CEIL,
                                        gt_make(infer, GT_EXPR_REAL_DIV, span, bound[2]), 0),
                                0)
                      : gt_make(infer, GT_EXPR_CEILDIV, span, bound[2]);
        extent = gt_make(infer, GT_EXPR_MAX, extent, gt_number(infer, 0));
    }
    shape.dims[0] = known ? extent : gt_out_data_dim(infer, 0, 0, GT_EXPR_UNKNOWN);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    if (known && gt_is_const(infer, extent, &count))
        range_elements(infer, bound[0], bound[2], count);
    return GANTRY_OK;
}

static gantry_dtype dtype_attribute(const gt_infer *infer, const char *name, gantry_dtype otherwise)
{
    int64_t dtype = gt_attr_int(infer, name, otherwise);
    return dtype > 0 && dtype < GANTRY_DTYPE_COUNT ? (gantry_dtype)dtype : otherwise;
}

gantry_status gt_rule_eye_like(gt_infer *infer)
{
    gt_out_like(infer, 0, dtype_attribute(infer, "dtype", gt_in_dtype(infer, 0)), 0);
    return GANTRY_OK;
}

gantry_status gt_rule_random(gt_infer *infer)
{
    uint32_t count;
    const int64_t *dims = gt_node_ints(infer->node, "shape", &count);
    gt_shape shape = {.rank = dims && count <= GANTRY_MAX_RANK ? (int32_t)count : -1};
    for (int32_t axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = gt_number(infer, dims[axis]);
    gt_out_shape(infer, 0, dtype_attribute(infer, "dtype", GANTRY_FLOAT32), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_random_like(gt_infer *infer)
{
    gt_out_like(infer, 0, dtype_attribute(infer, "dtype", gt_in_dtype(infer, 0)), 0);
    return GANTRY_OK;
}

gantry_status gt_rule_multinomial(gt_infer *infer)
{
    int64_t samples = gt_attr_int(infer, "sample_size", 1);
    if (samples < 0)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "sample_size is %lld; it can't be negative",
                             (long long)samples);
    gt_shape shape = {.rank = 2, .dims = {gt_in_dim(infer, 0, 0), gt_number(infer, samples)}};
    gt_out_shape(infer, 0, dtype_attribute(infer, "dtype", GANTRY_INT32), &shape);
    return GANTRY_OK;
}

static gt_expr scalar_operand(gt_infer *infer, uint32_t k)
{
    uint32_t count;
    const gt_expr *e = gt_in_shape_operand(infer, k, &count);
    return e && count == 1 ? e[0] : GT_EXPR_UNKNOWN;
}

gantry_status gt_rule_window(gt_infer *infer)
{
    gt_shape shape = {.rank = 1, .dims = {scalar_operand(infer, 0)}};
    gt_out_shape(infer, 0, dtype_attribute(infer, "output_datatype", GANTRY_FLOAT32), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_mel_weights(gt_infer *infer)
{
    gt_expr half = gt_make(infer, GT_EXPR_FLOORDIV, scalar_operand(infer, 1), gt_number(infer, 2));
    gt_shape shape = {.rank = 2,
                      .dims = {gt_add(infer, half, gt_number(infer, 1)), scalar_operand(infer, 0)}};
    gt_out_shape(infer, 0, dtype_attribute(infer, "output_datatype", GANTRY_FLOAT32), &shape);
    return GANTRY_OK;
}

/* ---- Fourier transforms */

/* The extent of the transformed axis. A one-sided inverse is given n/2+1 bins and makes n values. */
static gt_expr dft_extent(gt_infer *infer, gt_expr extent, bool one_sided, bool inverse)
{
    gt_expr one = gt_number(infer, 1), two = gt_number(infer, 2);
    if (gt_in_present(infer, 1))
        extent = scalar_operand(infer, 1);
    else if (one_sided && inverse)
        extent = gt_mul(infer, two, gt_sub(infer, extent, one));
    if (one_sided && !inverse)
        extent = gt_add(infer, gt_make(infer, GT_EXPR_FLOORDIV, extent, two), one);
    return extent;
}

/* The axis is an attribute before version 20, then an operand, which may be known at bind only. */
gantry_status gt_rule_dft(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    bool one_sided = gt_attr_int(infer, "onesided", 0), inverse = gt_attr_int(infer, "inverse", 0);
    bool operand = infer->node->version >= 20 && gt_in_present(infer, 2);
    int64_t given = infer->node->version >= 20 ? -2 : gt_attr_int(infer, "axis", 1), value;
    gt_expr chosen = operand ? scalar_operand(infer, 2) : gt_number(infer, given);
    int32_t fixed;
    if (chosen == GT_EXPR_UNKNOWN)
        shape.rank = -1;
    if (shape.rank >= 0 && gt_is_const(infer, chosen, &value))
        GT_TRY(gt_infer_axis(infer, value, shape.rank, &fixed));
    for (int32_t axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] =
            gt_select(infer, gt_axis_is(infer, chosen, shape.rank, axis),
                      dft_extent(infer, shape.dims[axis], one_sided, inverse), shape.dims[axis]);
    if (shape.rank > 0)
        shape.dims[shape.rank - 1] = gt_number(infer, one_sided && inverse ? 1 : 2);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_stft(gt_infer *infer)
{
    gt_expr one = gt_number(infer, 1), signal = gt_in_dim(infer, 0, 1), step = scalar_operand(infer, 1);
    gt_expr length = gt_in_present(infer, 3)   ? scalar_operand(infer, 3)
                     : gt_in_present(infer, 2) ? gt_in_dim(infer, 2, 0)
                                               : signal;
    gt_expr frames =
        gt_add(infer, gt_make(infer, GT_EXPR_FLOORDIV, gt_sub(infer, signal, length), step), one);
    gt_expr bins = gt_attr_int(infer, "onesided", 1)
                       ? gt_add(infer, gt_make(infer, GT_EXPR_FLOORDIV, length, gt_number(infer, 2)), one)
                       : length;
    gt_shape shape = {.rank = 4, .dims = {gt_in_dim(infer, 0, 0), frames, bins, gt_number(infer, 2)}};
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    return GANTRY_OK;
}
