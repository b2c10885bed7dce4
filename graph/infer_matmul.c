/* Rules of products: MatMul and its integer forms, Gemm, Einsum. */
#include "infer_rules.h"

/* Broadcasts the batch axes of two inputs whose last two axes are matrices. */
static gantry_status batch_axes(gt_infer *infer, uint32_t a, uint32_t b, gt_shape *out)
{
    gt_shape x = gt_in_shape(infer, a), y = gt_in_shape(infer, b);
    int32_t batch_x = x.rank > 2 ? x.rank - 2 : 0, batch_y = y.rank > 2 ? y.rank - 2 : 0;
    out->rank = batch_x > batch_y ? batch_x : batch_y;
    for (int32_t k = 1; k <= out->rank; k++) {
        gt_expr one = gt_number(infer, 1);
        gt_expr p = k <= batch_x ? x.dims[batch_x - k] : one, q = k <= batch_y ? y.dims[batch_y - k] : one;
        int64_t v, w;
        bool const_p = gt_is_const(infer, p, &v), const_q = gt_is_const(infer, q, &w);
        gt_expr both = gt_make(infer, GT_EXPR_BROADCAST, p, q);
        gt_shape_check check = {.expr = both,
                                .node = infer->node_id,
                                .a = infer->node->inputs[a],
                                .b = infer->node->inputs[b],
                                .axis_a = (uint32_t)k + 2,
                                .axis_b = (uint32_t)k + 2};
        if (const_p && const_q && v != w && v != 1 && w != 1)
            return gt_infer_fail_pair(infer, &check);
        if (both != p && both != q)
            gt_infer_check(infer, both, a, (uint32_t)k + 2, b, (uint32_t)k + 2);
        out->dims[out->rank - k] = gt_infer_broadcast_extent(infer, p, q, &check);
    }
    return GANTRY_OK;
}

static gantry_status product(gt_infer *infer, uint32_t a, uint32_t b, gantry_dtype dtype)
{
    gt_shape x = gt_in_shape(infer, a), y = gt_in_shape(infer, b), out = {.rank = -1};
    gt_expr inner;
    if (x.rank < 0 || y.rank < 0) {
        gt_out_shape(infer, 0, dtype, &out);
        return GANTRY_OK;
    }
    if (x.rank == 0 || y.rank == 0)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "a scalar can't be multiplied as a matrix");
    GT_TRY(gt_infer_same(infer, a, x.rank - 1, b, y.rank > 1 ? y.rank - 2 : 0, &inner));
    GT_TRY(batch_axes(infer, a, b, &out));
    if (x.rank > 1)
        out.dims[out.rank++] = x.dims[x.rank - 2];
    if (y.rank > 1)
        out.dims[out.rank++] = y.dims[y.rank - 1];
    gt_out_shape(infer, 0, dtype, &out);
    return GANTRY_OK;
}

gantry_status gt_rule_matmul(gt_infer *infer)
{
    GT_TRY(gt_infer_same_types(infer, 0, 2));
    return product(infer, 0, 1, gt_in_dtype(infer, 0));
}

gantry_status gt_rule_matmul_integer(gt_infer *infer)
{
    return product(infer, 0, 1, GANTRY_INT32);
}

gantry_status gt_rule_qlinear_matmul(gt_infer *infer)
{
    return product(infer, 0, 3, gt_in_dtype(infer, 7));
}

gantry_status gt_rule_gemm(gt_infer *infer)
{
    int32_t turn_a = gt_attr_int(infer, "transA", 0) != 0, turn_b = gt_attr_int(infer, "transB", 0) != 0;
    gt_shape out = {.rank = 2}, with_c;
    gt_expr inner;
    GT_TRY(gt_infer_same_types(infer, 0, infer->node->input_count));
    for (uint32_t k = 0; k < 2; k++)
        if (gt_in_rank(infer, k) >= 0 && gt_in_rank(infer, k) != 2)
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "'%s' must have 2 axes, it has %d",
                                 gt_in_value(infer, k)->name, gt_in_rank(infer, k));
    if (gt_in_rank(infer, 0) == 2 && gt_in_rank(infer, 1) == 2)
        GT_TRY(gt_infer_same(infer, 0, 1 - turn_a, 1, turn_b, &inner));
    out.dims[0] = gt_in_dim(infer, 0, turn_a);
    out.dims[1] = gt_in_dim(infer, 1, 1 - turn_b);
    with_c = out;
    if (gt_in_present(infer, 2) && gt_in_rank(infer, 2) > 2)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "'%s' must have at most 2 axes",
                             gt_in_value(infer, 2)->name);
    if (gt_in_present(infer, 2) && out.dims[0] != GT_EXPR_UNKNOWN && out.dims[1] != GT_EXPR_UNKNOWN)
        GT_TRY(gt_infer_broadcast(infer, &with_c, 2));
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
    return GANTRY_OK;
}

/* ---- Einsum */

/* A letter's extent; the axes behind "..." have numbers of their own after the letters. */
typedef struct einsum {
    gt_expr letters[128];
    uint32_t seen[128]; /* how often on the left */
    gt_shape ellipsis;
} einsum;

/* Reads one term's axes; *inout_at stands behind it. */
static gantry_status einsum_term(gt_infer *infer, const char *equation, size_t *inout_at, uint32_t k,
                                 einsum *sum)
{
    gt_shape shape = gt_in_shape(infer, k);
    size_t at = *inout_at, letters = 0;
    for (size_t i = at; equation[i] && equation[i] != ',' && equation[i] != '-'; i++)
        letters += equation[i] != ' ' && equation[i] != '.';
    int32_t axis = 0, dots = shape.rank - (int32_t)letters;
    for (; equation[at] && equation[at] != ',' && equation[at] != '-'; at++) {
        unsigned char c = (unsigned char)equation[at];
        if (c == ' ')
            continue;
        if (c == '.') {
            if (strncmp(equation + at, "...", 3) != 0 || dots < 0)
                return gt_infer_fail(infer, GANTRY_MODEL_GRAPH,
                                     "the equation '%.200s' does not fit the inputs", equation);
            at += 2;
            gt_shape own = {.rank = dots};
            memcpy(own.dims, shape.dims + axis, (size_t)dots * sizeof(gt_expr));
            if (dots > sum->ellipsis.rank)
                sum->ellipsis = own;
            axis += dots;
            continue;
        }
        if (c >= 128 || axis >= shape.rank)
            return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "the equation '%.200s' does not fit the inputs",
                                 equation);
        gt_expr have = sum->letters[c], extent = shape.dims[axis++];
        int64_t x, y;
        if (sum->seen[c]++ && gt_is_const(infer, have, &x) && gt_is_const(infer, extent, &y) && x != y &&
            x != 1 && y != 1)
            return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "axis '%c' of the equation is %lld and %lld", c,
                                 (long long)x, (long long)y);
        bool better = sum->seen[c] == 1 || (gt_is_const(infer, have, &x) && x == 1) ||
                      (!gt_is_const(infer, have, &x) && gt_is_const(infer, extent, &y) && y != 1);
        sum->letters[c] = better ? extent : have;
    }
    if (axis != shape.rank)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH,
                             "the equation '%.200s' names %d axes of '%s', which has %d", equation, axis,
                             gt_in_value(infer, k)->name, shape.rank);
    *inout_at = at;
    return GANTRY_OK;
}

/* Without "->" the result has the axes that are named once, in alphabetical order. */
static gantry_status einsum_output(gt_infer *infer, const char *right, const einsum *sum, gt_shape *out)
{
    char implicit[160];
    size_t length = 0;
    if (!right) {
        memcpy(implicit, "...", 3);
        length = sum->ellipsis.rank > 0 ? 3 : 0;
        for (int c = 0; c < 128; c++)
            if (sum->seen[c] == 1)
                implicit[length++] = (char)c;
        implicit[length] = 0;
        right = implicit;
    }
    out->rank = 0;
    for (; *right; right++) {
        if (*right == ' ')
            continue;
        int32_t more = *right == '.' ? sum->ellipsis.rank : 1;
        if (out->rank + more > GANTRY_MAX_RANK || (unsigned char)*right >= 128)
            return gt_infer_fail(infer, GANTRY_UNSUPPORTED, "the result has more than %d axes",
                                 GANTRY_MAX_RANK);
        if (*right == '.') {
            memcpy(out->dims + out->rank, sum->ellipsis.dims, (size_t)more * sizeof(gt_expr));
            right += right[1] == '.' && right[2] == '.' ? 2 : 0;
        } else {
            out->dims[out->rank] = sum->seen[(int)*right] ? sum->letters[(int)*right] : GT_EXPR_UNKNOWN;
        }
        out->rank += more;
    }
    return GANTRY_OK;
}

gantry_status gt_rule_einsum(gt_infer *infer)
{
    const char *equation = gt_node_string(infer->node, "equation", NULL);
    einsum sum = {.ellipsis = {.rank = 0}};
    gt_shape out = {.rank = -1};
    size_t at = 0;
    bool known = true;
    if (!equation)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "attribute 'equation' is missing");
    GT_TRY(gt_infer_same_types(infer, 0, infer->node->input_count));
    for (uint32_t k = 0; k < infer->node->input_count; k++)
        known = known && gt_in_rank(infer, k) >= 0;
    for (uint32_t k = 0; known && k < infer->node->input_count; k++) {
        GT_TRY(einsum_term(infer, equation, &at, k, &sum));
        if (equation[at] == ',')
            at++;
    }
    const char *arrow = strstr(equation, "->");
    if (known)
        GT_TRY(einsum_output(infer, arrow ? arrow + 2 : NULL, &sum, &out));
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
    return GANTRY_OK;
}
