/* Building expressions: every kind is brought to one simplest form before it enters the table. */
#include "expr_internal.h"

#include <math.h>

typedef gt_expr (*make_fn)(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c);

static const gt_expr_node *node_of(const gt_exprs *exprs, gt_expr e)
{
    return &exprs->nodes.data[e];
}

static bool is_value(const gt_exprs *exprs, gt_expr e, int64_t value)
{
    const gt_expr_node *node = node_of(exprs, e);
    return node->kind == GT_EXPR_CONST && node->constant.i == value;
}

static bool is_real_const(const gt_exprs *exprs, gt_expr e)
{
    return node_of(exprs, e)->kind == GT_EXPR_REAL_CONST;
}

/* Where the value of a - b lies; wide open when that can't be said. */
static void difference_range(const gt_exprs *exprs, gt_expr a, gt_expr b, int64_t *out_low, int64_t *out_high)
{
    gt_poly left, right;
    *out_low = INT64_MIN;
    *out_high = INT64_MAX;
    if (gt_poly_from(exprs, a, &left) && gt_poly_from(exprs, b, &right) && gt_poly_add(&left, &right, -1))
        gt_poly_range(exprs, &left, out_low, out_high);
    gt_expr_facts x = exprs->facts.data[a], y = exprs->facts.data[b];
    if (x.low >= y.high && *out_low < 0)
        *out_low = x.low > y.high;
    if (x.high <= y.low && *out_high > 0)
        *out_high = -(x.high < y.low);
}

/* ---- sums and products */

static bool make_poly(const gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_poly *out)
{
    gt_poly left, right;
    if (!gt_poly_from(exprs, a, &left) || !gt_poly_from(exprs, b, &right))
        return false;
    if (kind == GT_EXPR_MUL)
        return gt_poly_multiply(&left, &right, out);
    *out = left;
    return gt_poly_add(out, &right, kind == GT_EXPR_ADD ? 1 : -1);
}

static gt_expr make_sum(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    gt_poly sum;
    if (make_poly(exprs, kind, a, b, &sum))
        return gt_poly_build(exprs, &sum);
    return gt_expr_intern(exprs, kind, a, b, 0);
}

/* ---- divisions */

/* The floor division that is all of e but for a constant: e = (x / c) + more. */
static bool as_division(const gt_exprs *exprs, gt_expr e, gt_expr *out_division, int64_t *out_more)
{
    const gt_expr_node *node = node_of(exprs, e);
    *out_more = 0;
    *out_division = e;
    if (node->kind == GT_EXPR_ADD || node->kind == GT_EXPR_SUB) {
        if (!gt_expr_is_const(exprs, node->b, out_more))
            return false;
        *out_division = node->a;
        if (node->kind == GT_EXPR_SUB)
            *out_more = -*out_more;
    }
    return node_of(exprs, *out_division)->kind == GT_EXPR_FLOORDIV;
}

/* (x / c1 + k) / c2 = (x + k * c1) / (c1 * c2) for constants above 0. */
static bool divide_twice(gt_exprs *exprs, gt_expr a, gt_expr b, gt_expr *out)
{
    gt_expr division;
    int64_t first, second, both, more, shift;
    if (!as_division(exprs, a, &division, &more))
        return false;
    const gt_expr_node *inner = node_of(exprs, division);
    if (!gt_expr_is_const(exprs, inner->b, &first) || !gt_expr_is_const(exprs, b, &second) || first < 1 ||
        second < 1 || __builtin_mul_overflow(first, second, &both) ||
        __builtin_mul_overflow(first, more, &shift))
        return false;
    gt_expr numerator = inner->a;
    numerator = gt_expr_make(exprs, GT_EXPR_ADD, numerator, gt_expr_const(exprs, shift), 0);
    *out = gt_expr_make(exprs, GT_EXPR_FLOORDIV, numerator, gt_expr_const(exprs, both), 0);
    return true;
}

/* Takes out of a floor division whatever goes into it: (2*h+3)/2 = h+1+1/2 = h+1. A divisor that may be 0 is
 * taken for another number: x*n/n is x. */
static gt_expr make_floor_division(gt_exprs *exprs, gt_expr a, gt_expr b)
{
    gt_poly numerator, divisor, quotient, rest;
    gt_expr out;
    if (divide_twice(exprs, a, b, &out))
        return out;
    if (!gt_poly_from(exprs, a, &numerator) || !gt_poly_from(exprs, b, &divisor) || divisor.count != 1 ||
        !gt_poly_split(&numerator, &divisor.terms[0], &quotient, &rest))
        return gt_expr_intern(exprs, GT_EXPR_FLOORDIV, a, b, 0);
    gt_expr last = gt_expr_const(exprs, 0), remainder = gt_poly_build(exprs, &rest);
    if (rest.count && remainder != GT_EXPR_UNKNOWN) {
        gt_expr_facts x = exprs->facts.data[remainder], y = exprs->facts.data[b];
        bool below = x.low >= 0 && x.high < y.low;
        if (!below)
            last = quotient.count && divide_twice(exprs, remainder, b, &out)
                       ? out
                       : gt_expr_intern(exprs, GT_EXPR_FLOORDIV, remainder, b, 0);
    }
    return gt_expr_make(exprs, GT_EXPR_ADD, gt_poly_build(exprs, &quotient), last, 0);
}

static bool divides_exactly(gt_exprs *exprs, gt_expr a, gt_expr b, gt_expr *out)
{
    gt_poly numerator, divisor, quotient;
    if (!gt_poly_from(exprs, a, &numerator) || !gt_poly_from(exprs, b, &divisor) ||
        !gt_poly_divide(&numerator, &divisor, &quotient))
        return false;
    *out = gt_poly_build(exprs, &quotient);
    return true;
}

static gt_expr make_int_division(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    gt_expr out;
    int64_t divisor;
    if (is_value(exprs, b, 1))
        return a;
    if (is_value(exprs, b, 0))
        return gt_expr_intern(exprs, kind, a, b, 0);
    if (divides_exactly(exprs, a, b, &out))
        return out;
    if (kind == GT_EXPR_TRUNCDIV && gt_expr_is_nonnegative(exprs, a) && gt_expr_is_nonnegative(exprs, b))
        kind = GT_EXPR_FLOORDIV;
    if (kind == GT_EXPR_CEILDIV && gt_expr_is_const(exprs, b, &divisor) && divisor > 0) {
        kind = GT_EXPR_FLOORDIV;
        a = gt_expr_make(exprs, GT_EXPR_ADD, a, gt_expr_const(exprs, divisor - 1), 0);
        if (a == GT_EXPR_UNKNOWN)
            return a;
    }
    return kind == GT_EXPR_FLOORDIV ? make_floor_division(exprs, a, b) : gt_expr_intern(exprs, kind, a, b, 0);
}

static gt_expr make_modulo(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    gt_poly numerator, divisor, quotient, rest;
    if (is_value(exprs, b, 1))
        return gt_expr_const(exprs, 0);
    if (!is_value(exprs, b, 0) && gt_poly_from(exprs, a, &numerator) && gt_poly_from(exprs, b, &divisor) &&
        divisor.count == 1 && gt_poly_split(&numerator, &divisor.terms[0], &quotient, &rest))
        a = gt_poly_build(exprs, &rest);
    if (a == GT_EXPR_UNKNOWN)
        return a;
    gt_expr_facts x = exprs->facts.data[a], y = exprs->facts.data[b];
    if (x.low >= 0 && x.high < y.low)
        return a;
    return gt_expr_intern(exprs, kind, a, b, 0);
}

/* ---- choices */

static void order(gt_expr *a, gt_expr *b)
{
    if (*a > *b) {
        gt_expr t = *a;
        *a = *b;
        *b = t;
    }
}

/* min(min(x, c), c) and min(x, max(x, y)). */
static bool absorbs(const gt_exprs *exprs, gt_expr_kind kind, gt_expr inner, gt_expr other, gt_expr *out)
{
    const gt_expr_node *node = node_of(exprs, inner);
    if ((node->kind != GT_EXPR_MIN && node->kind != GT_EXPR_MAX) || (node->a != other && node->b != other))
        return false;
    *out = node->kind == kind ? inner : other;
    return true;
}

static gt_expr make_extreme(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    int64_t low, high;
    gt_expr out;
    if (a == b)
        return a;
    difference_range(exprs, a, b, &low, &high);
    if (low >= 0)
        return kind == GT_EXPR_MAX ? a : b;
    if (high <= 0)
        return kind == GT_EXPR_MAX ? b : a;
    if (absorbs(exprs, kind, a, b, &out) || absorbs(exprs, kind, b, a, &out))
        return out;
    order(&a, &b);
    return gt_expr_intern(exprs, kind, a, b, 0);
}

static gt_expr make_equal(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    int64_t low, high;
    if (a == b)
        return gt_expr_const(exprs, 1);
    difference_range(exprs, a, b, &low, &high);
    if (low > 0 || high < 0)
        return gt_expr_const(exprs, 0);
    if (low == 0 && high == 0)
        return gt_expr_const(exprs, 1);
    order(&a, &b);
    return gt_expr_intern(exprs, kind, a, b, 0);
}

static gt_expr make_same(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    return a == b ? a : gt_expr_intern(exprs, kind, a, b, 0);
}

static gt_expr make_less(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    int64_t low, high;
    if (a == b)
        return gt_expr_const(exprs, 0);
    difference_range(exprs, a, b, &low, &high);
    if (high < 0)
        return gt_expr_const(exprs, 1);
    if (low >= 0)
        return gt_expr_const(exprs, 0);
    return gt_expr_intern(exprs, kind, a, b, 0);
}

static gt_expr make_logic(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    int64_t value, absorbing = kind == GT_EXPR_OR;
    order(&a, &b);
    for (int k = 0; k < 2; k++) {
        gt_expr one = k ? b : a, other = k ? a : b;
        if (!gt_expr_is_const(exprs, one, &value))
            continue;
        if (!value == !absorbing)
            return gt_expr_const(exprs, absorbing);
        gt_expr_facts facts = exprs->facts.data[other];
        if (facts.low >= 0 && facts.high <= 1)
            return other;
    }
    return a == b ? a : gt_expr_intern(exprs, kind, a, b, 0);
}

static gt_expr make_not(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    const gt_expr_node *node = node_of(exprs, a);
    if (node->kind == GT_EXPR_NOT) {
        gt_expr_facts facts = exprs->facts.data[node->a];
        if (facts.low >= 0 && facts.high <= 1)
            return node->a;
    }
    return gt_expr_intern(exprs, kind, a, 0, 0);
}

static gt_expr make_select(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    int64_t condition;
    if (gt_expr_is_const(exprs, a, &condition))
        return condition ? b : c;
    if (b == c)
        return b;
    const gt_expr_node *node = node_of(exprs, a);
    if (node->kind == GT_EXPR_NOT)
        return gt_expr_make(exprs, GT_EXPR_SELECT, node->a, c, b);
    /* x == y ? x : y is y. */
    if (node->kind == GT_EXPR_EQ && ((node->a == b && node->b == c) || (node->a == c && node->b == b)))
        return c;
    return gt_expr_intern(exprs, kind, a, b, c);
}

/* ---- broadcasts */

#define BROADCAST_LEAVES 8

static bool broadcast_leaves(const gt_exprs *exprs, gt_expr e, gt_expr *leaves, uint32_t *count,
                             unsigned depth)
{
    const gt_expr_node *node = node_of(exprs, e);
    if (node->kind == GT_EXPR_BROADCAST && depth < BROADCAST_LEAVES)
        return broadcast_leaves(exprs, node->a, leaves, count, depth + 1) &&
               broadcast_leaves(exprs, node->b, leaves, count, depth + 1);
    uint32_t at = 0;
    while (at < *count && leaves[at] < e)
        at++;
    if (at < *count && leaves[at] == e)
        return true;
    if (*count == BROADCAST_LEAVES)
        return false;
    memmove(&leaves[at + 1], &leaves[at], (*count - at) * sizeof *leaves);
    leaves[at] = e;
    ++*count;
    return true;
}

/* Broadcasting is a union: order and repetition don't matter. */
static gt_expr make_broadcast(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    gt_expr leaves[BROADCAST_LEAVES];
    uint32_t count = 0;
    if (a == b || is_value(exprs, b, 1))
        return a;
    if (is_value(exprs, a, 1))
        return b;
    if (!broadcast_leaves(exprs, a, leaves, &count, 0) || !broadcast_leaves(exprs, b, leaves, &count, 0)) {
        order(&a, &b);
        return gt_expr_intern(exprs, kind, a, b, 0);
    }
    gt_expr e = leaves[0];
    for (uint32_t k = 1; k < count && e != GT_EXPR_UNKNOWN; k++)
        e = gt_expr_intern(exprs, kind, e, leaves[k], 0);
    return e;
}

/* ---- reals */

/* The int64 expression of which e is the real: e = real(x), or a whole constant. */
static bool as_integer(gt_exprs *exprs, gt_expr e, gt_expr *out)
{
    const gt_expr_node *node = node_of(exprs, e);
    double value = node->constant.r;
    if (node->kind == GT_EXPR_TO_REAL)
        *out = node->a;
    else if (node->kind == GT_EXPR_REAL_CONST && value == floor(value) && fabs(value) < 9007199254740992.0 &&
             !(value == 0 && signbit(value)))
        *out = gt_expr_const(exprs, (int64_t)value);
    else
        return false;
    return *out != GT_EXPR_UNKNOWN;
}

static bool fits_exactly(const gt_exprs *exprs, gt_expr e, int64_t limit)
{
    return e != GT_EXPR_UNKNOWN && exprs->facts.data[e].low >= -limit && exprs->facts.data[e].high <= limit;
}

static gt_expr make_real(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    unsigned arity = gt_expr_arity(kind);
    if (is_real_const(exprs, a) && (arity < 2 || is_real_const(exprs, b)))
        return gt_expr_real(exprs, gt_expr_compute_real(kind, node_of(exprs, a)->constant.r,
                                                        arity < 2 ? 0 : node_of(exprs, b)->constant.r));
    bool rounds = kind == GT_EXPR_REAL_FLOOR || kind == GT_EXPR_REAL_CEIL;
    gt_expr_kind inner = node_of(exprs, a)->kind;
    if (rounds && (inner == GT_EXPR_TO_REAL || inner == GT_EXPR_REAL_FLOOR || inner == GT_EXPR_REAL_CEIL))
        return a;
    if (kind == GT_EXPR_REAL_ROUND32 && inner == GT_EXPR_REAL_ROUND32)
        return a;
    /* 2^24: the integers that are floats. */
    if (kind == GT_EXPR_REAL_ROUND32 && inner == GT_EXPR_TO_REAL &&
        fits_exactly(exprs, node_of(exprs, a)->a, (int64_t)1 << 24))
        return a;
    if ((kind == GT_EXPR_MIN || kind == GT_EXPR_MAX) && a == b)
        return a;
    if (kind == GT_EXPR_REAL_DIV && is_real_const(exprs, b) && node_of(exprs, b)->constant.r == 1.0)
        return a;
    if (kind == GT_EXPR_MUL && is_real_const(exprs, b) && node_of(exprs, b)->constant.r == 1.0)
        return a;
    if (kind == GT_EXPR_MUL && is_real_const(exprs, a) && node_of(exprs, a)->constant.r == 1.0)
        return b;
    if (kind == GT_EXPR_ADD || kind == GT_EXPR_MUL || kind == GT_EXPR_MIN || kind == GT_EXPR_MAX)
        order(&a, &b);
    return gt_expr_intern(exprs, kind, a, b, 0);
}

static gt_expr make_to_real(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    int64_t value;
    if (gt_expr_is_const(exprs, a, &value))
        return gt_expr_real(exprs, (double)value);
    return gt_expr_intern(exprs, kind, a, 0, 0);
}

static gt_expr make_to_int(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    gt_expr whole;
    if (as_integer(exprs, a, &whole))
        return whole;
    const gt_expr_node *node = node_of(exprs, a);
    if (node->kind == GT_EXPR_REAL_CONST && fabs(node->constant.r) < 9223372036854775808.0)
        return gt_expr_const(exprs, (int64_t)node->constant.r);
    return gt_expr_intern(exprs, kind, a, 0, 0);
}

static gt_expr make_real_comparison(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b)
{
    if (is_real_const(exprs, a) && is_real_const(exprs, b)) {
        double x = node_of(exprs, a)->constant.r, y = node_of(exprs, b)->constant.r;
        return gt_expr_const(exprs, kind == GT_EXPR_EQ ? x == y : x < y);
    }
    return gt_expr_intern(exprs, kind, a, b, 0);
}

/* ---- the table of kinds */

static const make_fn makers[GT_EXPR_KIND_COUNT] = {
    [GT_EXPR_ADD] = make_sum,
    [GT_EXPR_SUB] = make_sum,
    [GT_EXPR_MUL] = make_sum,
    [GT_EXPR_MIN] = make_extreme,
    [GT_EXPR_MAX] = make_extreme,
    [GT_EXPR_FLOORDIV] = make_int_division,
    [GT_EXPR_CEILDIV] = make_int_division,
    [GT_EXPR_TRUNCDIV] = make_int_division,
    [GT_EXPR_MOD] = make_modulo,
    [GT_EXPR_BROADCAST] = make_broadcast,
    [GT_EXPR_SAME] = make_same,
    [GT_EXPR_EQ] = make_equal,
    [GT_EXPR_LT] = make_less,
    [GT_EXPR_AND] = make_logic,
    [GT_EXPR_OR] = make_logic,
    [GT_EXPR_NOT] = make_not,
    [GT_EXPR_SELECT] = make_select,
    [GT_EXPR_TO_REAL] = make_to_real,
    [GT_EXPR_TO_INT] = make_to_int,
    [GT_EXPR_REAL_DIV] = make_real,
    [GT_EXPR_REAL_FLOOR] = make_real,
    [GT_EXPR_REAL_CEIL] = make_real,
    [GT_EXPR_REAL_SQRT] = make_real,
    [GT_EXPR_REAL_ROUND32] = make_real,
};

/* Two int64 constants have a constant result, unless there is none (overflow, division by 0): then the node
 * stays, and evaluating it fails. */
static bool fold(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr *out)
{
    int64_t x, y = 0, value;
    unsigned arity = gt_expr_arity(kind);
    if (arity > 2 || !gt_expr_is_const(exprs, a, &x) || (arity == 2 && !gt_expr_is_const(exprs, b, &y)))
        return false;
    *out = gt_expr_compute_int(kind, x, y, &value) ? gt_expr_const(exprs, value)
                                                   : gt_expr_intern(exprs, kind, a, b, 0);
    return true;
}

gt_expr gt_expr_make(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    unsigned arity = gt_expr_arity(kind);
    gt_expr out;
    if (a == GT_EXPR_UNKNOWN || (arity > 1 && b == GT_EXPR_UNKNOWN) || (arity > 2 && c == GT_EXPR_UNKNOWN))
        return GT_EXPR_UNKNOWN;
    if (!makers[kind])
        return GT_EXPR_UNKNOWN;
    bool real = node_of(exprs, a)->real;
    if (kind == GT_EXPR_SELECT || kind == GT_EXPR_TO_REAL || kind == GT_EXPR_TO_INT) {
        if (kind == GT_EXPR_TO_REAL && real)
            return a;
        if (kind == GT_EXPR_TO_INT && !real)
            return a;
        return makers[kind](exprs, kind, a, b, c);
    }
    if (real || kind >= GT_EXPR_REAL_DIV)
        return kind == GT_EXPR_EQ || kind == GT_EXPR_LT ? make_real_comparison(exprs, kind, a, b)
                                                        : make_real(exprs, kind, a, b, c);
    return fold(exprs, kind, a, b, &out) ? out : makers[kind](exprs, kind, a, b, c);
}
