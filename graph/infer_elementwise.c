/* Rules of elementwise operators: one shape for all inputs, and arithmetic on small known elements. */
#include "infer_rules.h"

/* One result element from two; the types are those of the operands. */
typedef gt_expr (*element_fn)(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b);

/* ---- what a type leaves of a result */

static bool type_range(gantry_dtype dtype, int64_t *low, int64_t *high)
{
    switch (dtype) {
    case GANTRY_INT8:
        *low = INT8_MIN, *high = INT8_MAX;
        return true;
    case GANTRY_INT16:
        *low = INT16_MIN, *high = INT16_MAX;
        return true;
    case GANTRY_INT32:
        *low = INT32_MIN, *high = INT32_MAX;
        return true;
    case GANTRY_UINT8:
        *low = 0, *high = UINT8_MAX;
        return true;
    case GANTRY_UINT16:
        *low = 0, *high = UINT16_MAX;
        return true;
    case GANTRY_UINT32:
        *low = 0, *high = UINT32_MAX;
        return true;
    default:
        return false;
    }
}

/* Reals are rounded as the type rounds; an integer that would wrap is nobody's business here. */
static gt_expr settle(const gt_infer *infer, gantry_dtype dtype, gt_expr e)
{
    int64_t value, low, high;
    if (dtype == GANTRY_FLOAT16) /* known as an operand, but not rounded to */
        return GT_EXPR_UNKNOWN;
    if (dtype == GANTRY_FLOAT32)
        return gt_make(infer, GT_EXPR_REAL_ROUND32, e, 0);
    if (type_range(dtype, &low, &high) && gt_is_const(infer, e, &value) && (value < low || value > high))
        return GT_EXPR_UNKNOWN;
    /* A constant that could not be folded has overflowed, or divides by zero. */
    if (e != GT_EXPR_UNKNOWN) {
        const gt_expr_node *node = &infer->exprs->nodes.data[e];
        if (node->kind >= GT_EXPR_ADD && node->kind <= GT_EXPR_MOD && gt_is_const(infer, node->a, NULL) &&
            gt_is_const(infer, node->b, NULL))
            return GT_EXPR_UNKNOWN;
    }
    return e;
}

#define ARITHMETIC(name, kind)                                                                               \
    static gt_expr element_##name(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)           \
    {                                                                                                        \
        return settle(infer, dtype, gt_make(infer, kind, a, b));                                             \
    }
ARITHMETIC(add, GT_EXPR_ADD)
ARITHMETIC(sub, GT_EXPR_SUB)
ARITHMETIC(mul, GT_EXPR_MUL)
ARITHMETIC(min, GT_EXPR_MIN)
ARITHMETIC(max, GT_EXPR_MAX)

static gt_expr element_div(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)
{
    bool real = gt_expr_is_real(infer->exprs, a);
    return settle(infer, dtype, gt_make(infer, real ? GT_EXPR_REAL_DIV : GT_EXPR_TRUNCDIV, a, b));
}

static gt_expr element_mod(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)
{
    if (gt_expr_is_real(infer->exprs, a) || gt_attr_int(infer, "fmod", 0))
        return GT_EXPR_UNKNOWN;
    return settle(infer, dtype, gt_make(infer, GT_EXPR_MOD, a, b));
}

static gt_expr element_equal(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)
{
    return gt_make(infer, GT_EXPR_EQ, a, b);
}

static gt_expr element_less(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)
{
    return gt_make(infer, GT_EXPR_LT, a, b);
}

static gt_expr element_greater(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)
{
    return gt_make(infer, GT_EXPR_LT, b, a);
}

/* Not "not greater": of NaN both are false. */
static gt_expr element_less_equal(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)
{
    return gt_make(infer, GT_EXPR_OR, gt_make(infer, GT_EXPR_LT, a, b), gt_make(infer, GT_EXPR_EQ, a, b));
}

static gt_expr element_greater_equal(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)
{
    return element_less_equal(infer, dtype, b, a);
}

static gt_expr element_and(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)
{
    return gt_make(infer, GT_EXPR_AND, a, b);
}

static gt_expr element_or(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)
{
    return gt_make(infer, GT_EXPR_OR, a, b);
}

static gt_expr element_xor(const gt_infer *infer, gantry_dtype dtype, gt_expr a, gt_expr b)
{
    return gt_make(infer, GT_EXPR_NOT, gt_make(infer, GT_EXPR_EQ, a, b), 0);
}

/* ---- elements of broadcast inputs */

/* Input k's elements as output 0 sees them, broadcast to its shape; false when they are not known or the
 * output is not small. */
static bool broadcast_elements(gt_infer *infer, uint32_t k, const gt_shape *shape, gt_expr *out,
                               uint32_t *out_count)
{
    uint32_t source_count, count = 1;
    int64_t strides[GANTRY_MAX_RANK], extents[GANTRY_MAX_RANK], index[GANTRY_MAX_RANK] = {0}, stride = 1;
    int32_t rank = gt_in_rank(infer, k);
    if (!gt_in_has_elements(infer, k))
        return false;
    for (int32_t axis = 0; axis < shape->rank; axis++) {
        if (!gt_is_const(infer, shape->dims[axis], &extents[axis]) || extents[axis] > GT_MAX_ELEMENTS ||
            (count *= (uint32_t)extents[axis]) > GT_MAX_ELEMENTS)
            return false;
        strides[axis] = 0;
    }
    for (int32_t axis = rank - 1; axis >= 0; axis--) {
        int64_t own;
        if (!gt_is_const(infer, gt_in_dim(infer, k, axis), &own))
            return false;
        if (own != 1)
            strides[shape->rank - rank + axis] = stride;
        stride *= own;
    }
    const gt_expr *source = gt_in_elements(infer, k, &source_count);
    if (!source)
        return false;
    for (uint32_t e = 0; e < count; e++) {
        int64_t from = 0;
        for (int32_t axis = 0; axis < shape->rank; axis++)
            from += index[axis] * strides[axis];
        out[e] = from < source_count ? source[from] : GT_EXPR_UNKNOWN;
        for (int32_t axis = shape->rank - 1; axis >= 0 && ++index[axis] == extents[axis]; axis--)
            index[axis] = 0;
    }
    *out_count = count;
    return true;
}

/* Inputs that may not be known are asked first, so that constants beside them are not read in vain. */
static bool all_have_elements(const gt_infer *infer)
{
    for (uint32_t k = 0; k < infer->node->input_count; k++)
        if (!gt_in_has_elements(infer, k))
            return false;
    return infer->node->input_count > 0;
}

static gantry_status elementwise(gt_infer *infer, gantry_dtype dtype, element_fn fn)
{
    gt_shape shape;
    gt_expr result[GT_MAX_ELEMENTS], other[GT_MAX_ELEMENTS];
    uint32_t count = 0, inputs = infer->node->input_count;
    GT_TRY(gt_infer_broadcast_inputs(infer, 0, inputs, &shape));
    gt_out_shape(infer, 0, dtype, &shape);
    if (!fn || shape.rank < 0 || !all_have_elements(infer) ||
        !broadcast_elements(infer, 0, &shape, result, &count))
        return GANTRY_OK;
    for (uint32_t k = 1; k < inputs; k++) {
        if (!broadcast_elements(infer, k, &shape, other, &count))
            return GANTRY_OK;
        for (uint32_t e = 0; e < count; e++)
            result[e] = result[e] == GT_EXPR_UNKNOWN || other[e] == GT_EXPR_UNKNOWN
                            ? GT_EXPR_UNKNOWN
                            : fn(infer, gt_in_dtype(infer, 0), result[e], other[e]);
    }
    gt_out_elements(infer, 0, result, count);
    return GANTRY_OK;
}

static gantry_dtype first_type(const gt_infer *infer, uint32_t first, uint32_t last)
{
    gantry_dtype dtype = GANTRY_UNDEFINED;
    for (uint32_t k = first; k < last && !dtype; k++)
        dtype = gt_in_dtype(infer, k);
    return dtype;
}

/* Before version 7 the second input is broadcast only where an attribute says so, from an axis on. Accepted
 * is what means the same as aligning on the right. */
static gantry_status check_legacy_broadcast(gt_infer *infer)
{
    int32_t left = gt_in_rank(infer, 0), right = gt_in_rank(infer, 1);
    uint32_t count;
    if (infer->node->version >= 7 || infer->node->input_count != 2 || left < 0 || right < 0)
        return GANTRY_OK;
    int64_t axis = gt_attr_int(infer, "axis", left - right);
    bool single = gt_in_is_small(infer, 1, &count) && count == 1;
    if (single || (axis < 0 ? axis + left : axis) == left - right)
        return GANTRY_OK;
    return gt_infer_fail(
        infer, GANTRY_UNSUPPORTED,
        "version %d broadcasts '%s' from axis %lld on, which is not implemented; convert the model to "
        "opset 7 or later",
        infer->node->version, gt_in_value(infer, 1)->name, (long long)axis);
}

static gantry_status arithmetic(gt_infer *infer, element_fn fn)
{
    uint32_t inputs = infer->node->input_count;
    GT_TRY(check_legacy_broadcast(infer));
    GT_TRY(gt_infer_same_types(infer, 0, inputs));
    return elementwise(infer, first_type(infer, 0, inputs), fn);
}

static gantry_status comparison(gt_infer *infer, element_fn fn)
{
    GT_TRY(check_legacy_broadcast(infer));
    GT_TRY(gt_infer_same_types(infer, 0, infer->node->input_count));
    return elementwise(infer, GANTRY_BOOL, fn);
}

#define RULE(kind, name)                                                                                     \
    gantry_status gt_rule_##name(gt_infer *infer)                                                            \
    {                                                                                                        \
        return kind(infer, element_##name);                                                                  \
    }
RULE(arithmetic, add)
RULE(arithmetic, sub)
RULE(arithmetic, mul)
RULE(arithmetic, div)
RULE(arithmetic, mod)
RULE(arithmetic, min)
RULE(arithmetic, max)
RULE(comparison, equal)
RULE(comparison, less)
RULE(comparison, greater)
RULE(comparison, less_equal)
RULE(comparison, greater_equal)
RULE(comparison, and)
RULE(comparison, or)
RULE(comparison, xor)

gantry_status gt_rule_broadcast(gt_infer *infer)
{
    return arithmetic(infer, NULL);
}

gantry_status gt_rule_mean(gt_infer *infer)
{
    return arithmetic(infer, NULL);
}

/* The exponent may be of another type. */
gantry_status gt_rule_pow(gt_infer *infer)
{
    GT_TRY(check_legacy_broadcast(infer));
    return elementwise(infer, gt_in_dtype(infer, 0), NULL);
}

gantry_status gt_rule_where(gt_infer *infer)
{
    gt_shape shape;
    gt_expr condition[GT_MAX_ELEMENTS] = {0}, yes[GT_MAX_ELEMENTS] = {0}, no[GT_MAX_ELEMENTS] = {0};
    uint32_t count;
    if (gt_in_dtype(infer, 0) && gt_in_dtype(infer, 0) != GANTRY_BOOL)
        return gt_infer_fail(infer, GANTRY_MODEL_TYPE, "the condition must be bool, it is %s",
                             gantry_dtype_text(gt_in_dtype(infer, 0)));
    GT_TRY(gt_infer_same_types(infer, 1, 3));
    GT_TRY(gt_infer_broadcast_inputs(infer, 0, 3, &shape));
    gt_out_shape(infer, 0, first_type(infer, 1, 3), &shape);
    if (shape.rank < 0 || !all_have_elements(infer) ||
        !broadcast_elements(infer, 0, &shape, condition, &count) ||
        !broadcast_elements(infer, 1, &shape, yes, &count) ||
        !broadcast_elements(infer, 2, &shape, no, &count))
        return GANTRY_OK;
    for (uint32_t e = 0; e < count; e++) {
        int64_t taken;
        bool decided = gt_is_const(infer, condition[e], &taken);
        yes[e] = decided ? (taken ? yes[e] : no[e]) : gt_select(infer, condition[e], yes[e], no[e]);
    }
    gt_out_elements(infer, 0, yes, count);
    return GANTRY_OK;
}

/* ---- one input */

typedef gt_expr (*unary_fn)(const gt_infer *infer, gantry_dtype dtype, gt_expr e);

static void map_elements(gt_infer *infer, unary_fn fn)
{
    uint32_t count;
    gt_expr result[GT_MAX_ELEMENTS];
    if (!gt_in_has_elements(infer, 0))
        return;
    const gt_expr *elements = gt_in_elements(infer, 0, &count);
    for (uint32_t e = 0; elements && e < count; e++)
        result[e] =
            elements[e] == GT_EXPR_UNKNOWN ? GT_EXPR_UNKNOWN : fn(infer, gt_in_dtype(infer, 0), elements[e]);
    if (elements)
        gt_out_elements(infer, 0, result, count);
}

gantry_status gt_rule_same(gt_infer *infer)
{
    gt_out_like(infer, 0, gt_in_dtype(infer, 0), 0);
    return GANTRY_OK;
}

gantry_status gt_rule_same_pair(gt_infer *infer)
{
    GT_TRY(gt_infer_same_types(infer, 0, 2));
    for (int32_t axis = 0; axis < gt_in_rank(infer, 0) && gt_in_rank(infer, 0) == gt_in_rank(infer, 1);
         axis++) {
        gt_expr extent;
        GT_TRY(gt_infer_same(infer, 0, axis, 1, axis, &extent));
    }
    return gt_rule_same(infer);
}

gantry_status gt_rule_same_bool(gt_infer *infer)
{
    gt_out_like(infer, 0, GANTRY_BOOL, 0);
    return GANTRY_OK;
}

static gt_expr keep(const gt_infer *infer, gantry_dtype dtype, gt_expr e)
{
    return e;
}

gantry_status gt_rule_identity(gt_infer *infer)
{
    gt_value *out = gt_graph_value(infer->graph, infer->node->outputs[0]);
    if (out)
        out->kind = gt_in_value(infer, 0)->kind;
    GT_TRY(gt_rule_same(infer));
    map_elements(infer, keep);
    return GANTRY_OK;
}

static gt_expr unary_not(const gt_infer *infer, gantry_dtype dtype, gt_expr e)
{
    return gt_make(infer, GT_EXPR_NOT, e, 0);
}

static gt_expr unary_neg(const gt_infer *infer, gantry_dtype dtype, gt_expr e)
{
    if (gt_expr_is_real(infer->exprs, e))
        return gt_mul(infer, gt_expr_real(infer->exprs, -1), e);
    return settle(infer, dtype, gt_sub(infer, gt_number(infer, 0), e));
}

static gt_expr unary_abs(const gt_infer *infer, gantry_dtype dtype, gt_expr e)
{
    return settle(infer, dtype, gt_make(infer, GT_EXPR_MAX, e, unary_neg(infer, dtype, e)));
}

static gt_expr unary_floor(const gt_infer *infer, gantry_dtype dtype, gt_expr e)
{
    return gt_make(infer, GT_EXPR_REAL_FLOOR, e, 0);
}

static gt_expr unary_ceil(const gt_infer *infer, gantry_dtype dtype, gt_expr e)
{
    return gt_make(infer, GT_EXPR_REAL_CEIL, e, 0);
}

static gt_expr unary_sqrt(const gt_infer *infer, gantry_dtype dtype, gt_expr e)
{
    return settle(infer, dtype, gt_make(infer, GT_EXPR_REAL_SQRT, e, 0));
}

#define UNARY(name)                                                                                          \
    gantry_status gt_rule_##name(gt_infer *infer)                                                            \
    {                                                                                                        \
        GT_TRY(gt_rule_same(infer));                                                                         \
        map_elements(infer, unary_##name);                                                                   \
        return GANTRY_OK;                                                                                    \
    }
UNARY(neg)
UNARY(abs)
UNARY(floor)
UNARY(ceil)
UNARY(sqrt)

gantry_status gt_rule_not(gt_infer *infer)
{
    GT_TRY(gt_rule_same(infer));
    map_elements(infer, unary_not);
    return GANTRY_OK;
}

static gt_expr cast_element(const gt_infer *infer, gt_expr e, gantry_dtype to)
{
    bool real, from_real = gt_expr_is_real(infer->exprs, e);
    if (!gt_dtype_is_symbolic(to, &real))
        return GT_EXPR_UNKNOWN;
    if (to == GANTRY_BOOL) {
        gt_expr zero = from_real ? gt_expr_real(infer->exprs, 0) : gt_number(infer, 0);
        return gt_make(infer, GT_EXPR_NOT, gt_make(infer, GT_EXPR_EQ, e, zero), 0);
    }
    if (real)
        return settle(infer, to, gt_make(infer, GT_EXPR_TO_REAL, e, 0));
    return settle(infer, to, gt_make(infer, GT_EXPR_TO_INT, e, 0));
}

static gantry_status cast_to(gt_infer *infer, gantry_dtype to)
{
    uint32_t count;
    gt_expr result[GT_MAX_ELEMENTS];
    gt_out_like(infer, 0, to, 0);
    if (!gt_in_has_elements(infer, 0))
        return GANTRY_OK;
    const gt_expr *elements = gt_in_elements(infer, 0, &count);
    for (uint32_t e = 0; elements && e < count; e++)
        result[e] = elements[e] == GT_EXPR_UNKNOWN ? GT_EXPR_UNKNOWN : cast_element(infer, elements[e], to);
    if (elements)
        gt_out_elements(infer, 0, result, count);
    return GANTRY_OK;
}

gantry_status gt_rule_cast(gt_infer *infer)
{
    int64_t to = gt_attr_int(infer, "to", 0);
    if (to <= 0 || to >= GANTRY_DTYPE_COUNT)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "attribute 'to' is %lld, which is no element type",
                             (long long)to);
    return cast_to(infer, (gantry_dtype)to);
}

gantry_status gt_rule_cast_like(gt_infer *infer)
{
    return cast_to(infer, gt_in_dtype(infer, 1));
}

gantry_status gt_rule_bit_cast(gt_infer *infer)
{
    int64_t to = gt_attr_int(infer, "to", 0);
    if (to <= 0 || to >= GANTRY_DTYPE_COUNT)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "attribute 'to' is %lld, which is no element type",
                             (long long)to);
    gt_out_like(infer, 0, (gantry_dtype)to, 0);
    return GANTRY_OK;
}

/* Bounds are attributes before version 11; only as inputs do they propagate. */
gantry_status gt_rule_clip(gt_infer *infer)
{
    GT_TRY(gt_infer_same_types(infer, 0, infer->node->input_count));
    GT_TRY(gt_rule_same(infer));
    uint32_t count, one;
    gt_expr result[GT_MAX_ELEMENTS];
    if (infer->node->version < 11 || !gt_in_has_elements(infer, 0))
        return GANTRY_OK;
    const gt_expr *elements = gt_in_elements(infer, 0, &count);
    if (!elements)
        return GANTRY_OK;
    memcpy(result, elements, count * sizeof *result);
    for (uint32_t k = 1; k < 3; k++) {
        if (!gt_in_present(infer, k))
            continue;
        const gt_expr *bound = gt_in_elements(infer, k, &one);
        for (uint32_t e = 0; e < count; e++)
            result[e] = bound && one == 1
                            ? gt_make(infer, k == 1 ? GT_EXPR_MAX : GT_EXPR_MIN, result[e], bound[0])
                            : GT_EXPR_UNKNOWN;
    }
    gt_out_elements(infer, 0, result, count);
    return GANTRY_OK;
}

gantry_status gt_rule_dropout(gt_infer *infer)
{
    GT_TRY(gt_rule_same(infer));
    gt_out_like(infer, 1, infer->node->version >= 10 ? GANTRY_BOOL : gt_in_dtype(infer, 0), 0);
    return GANTRY_OK;
}

/* The slope is broadcast to x, never x to the slope. */
gantry_status gt_rule_prelu(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    int32_t rank = shape.rank;
    GT_TRY(gt_infer_same_types(infer, 0, 2));
    GT_TRY(gt_infer_broadcast(infer, &shape, 1));
    if (rank >= 0 && shape.rank > rank)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the slope has more axes than x");
    return gt_rule_same(infer);
}
