/* Computes expressions: one kind on numbers, and the whole table in one pass. */
#include "expr_internal.h"

#include <math.h>

static bool divide(gt_expr_kind kind, int64_t a, int64_t b, int64_t *out)
{
    if (b == 0 || (b == -1 && a == INT64_MIN))
        return false;
    int64_t q = a / b, r = a % b;
    if (kind == GT_EXPR_FLOORDIV)
        q -= r != 0 && (r < 0) != (b < 0);
    else if (kind == GT_EXPR_CEILDIV)
        q += r != 0 && (r < 0) == (b < 0);
    *out = q;
    return true;
}

static bool modulo(int64_t a, int64_t b, int64_t *out)
{
    if (b == 0)
        return false;
    int64_t r = b == -1 ? 0 : a % b;
    *out = r != 0 && (r < 0) != (b < 0) ? r + b : r;
    return true;
}

static bool broadcast(int64_t a, int64_t b, int64_t *out)
{
    *out = a == 1 ? b : a;
    return a == b || a == 1 || b == 1;
}

bool gt_expr_compute_int(gt_expr_kind kind, int64_t a, int64_t b, int64_t *out)
{
    switch (kind) {
    case GT_EXPR_ADD:
        return !__builtin_add_overflow(a, b, out);
    case GT_EXPR_SUB:
        return !__builtin_sub_overflow(a, b, out);
    case GT_EXPR_MUL:
        return !__builtin_mul_overflow(a, b, out);
    case GT_EXPR_MIN:
        *out = a < b ? a : b;
        return true;
    case GT_EXPR_MAX:
        *out = a > b ? a : b;
        return true;
    case GT_EXPR_FLOORDIV:
    case GT_EXPR_CEILDIV:
    case GT_EXPR_TRUNCDIV:
        return divide(kind, a, b, out);
    case GT_EXPR_MOD:
        return modulo(a, b, out);
    case GT_EXPR_BROADCAST:
        return broadcast(a, b, out);
    case GT_EXPR_SAME:
        *out = a;
        return a == b;
    case GT_EXPR_EQ:
        *out = a == b;
        return true;
    case GT_EXPR_LT:
        *out = a < b;
        return true;
    case GT_EXPR_AND:
        *out = a && b;
        return true;
    case GT_EXPR_OR:
        *out = a || b;
        return true;
    case GT_EXPR_NOT:
        *out = !a;
        return true;
    default:
        return false;
    }
}

double gt_expr_compute_real(gt_expr_kind kind, double a, double b)
{
    switch (kind) {
    case GT_EXPR_ADD:
        return a + b;
    case GT_EXPR_SUB:
        return a - b;
    case GT_EXPR_MUL:
        return a * b;
    case GT_EXPR_MIN:
        return isnan(a) || a < b ? a : b;
    case GT_EXPR_MAX:
        return isnan(a) || a > b ? a : b;
    case GT_EXPR_REAL_DIV:
        return a / b;
    case GT_EXPR_REAL_FLOOR:
        return floor(a);
    case GT_EXPR_REAL_CEIL:
        return ceil(a);
    case GT_EXPR_REAL_SQRT:
        return sqrt(a);
    case GT_EXPR_REAL_ROUND32:
        return (double)(float)a;
    default:
        return NAN;
    }
}

/* One node whose operands are known; false when it has no value. */
static inline bool compute(const gt_expr_node *node, const gt_exprs *exprs, const gt_scalar *v,
                           gt_scalar *out)
{
    switch ((gt_expr_kind)node->kind) {
    case GT_EXPR_CONST:
    case GT_EXPR_REAL_CONST:
        *out = node->constant;
        return true;
    case GT_EXPR_TO_REAL:
        out->r = (double)v[node->a].i;
        return true;
    case GT_EXPR_TO_INT:
        /* 2^63 is the first double that does not fit. */
        if (!(fabs(v[node->a].r) < 9223372036854775808.0))
            return false;
        out->i = (int64_t)v[node->a].r;
        return true;
    case GT_EXPR_EQ:
    case GT_EXPR_LT:
        if (!exprs->nodes.data[node->a].real)
            return gt_expr_compute_int(node->kind, v[node->a].i, v[node->b].i, &out->i);
        out->i = node->kind == GT_EXPR_EQ ? v[node->a].r == v[node->b].r : v[node->a].r < v[node->b].r;
        return true;
    case GT_EXPR_REAL_FLOOR:
    case GT_EXPR_REAL_CEIL:
    case GT_EXPR_REAL_SQRT:
    case GT_EXPR_REAL_ROUND32:
        out->r = gt_expr_compute_real(node->kind, v[node->a].r, 0);
        return true;
    default:
        if (!node->real)
            return gt_expr_compute_int(node->kind, v[node->a].i, v[node->b].i, &out->i);
        out->r = gt_expr_compute_real(node->kind, v[node->a].r, v[node->b].r);
        return true;
    }
}

/* SELECT, AND and OR need not know all of their operands. Returns whether the node has a value now. */
static bool compute_lazy(const gt_expr_node *node, const gt_scalar *v, const uint8_t *known, gt_scalar *out)
{
    if (node->kind == GT_EXPR_SELECT) {
        gt_expr taken = v[node->a].i ? node->b : node->c;
        *out = v[taken];
        return known[node->a] && known[taken];
    }
    bool left = known[node->a], right = known[node->b], decisive = node->kind == GT_EXPR_OR;
    out->i = decisive;
    if ((left && !v[node->a].i != decisive) || (right && !v[node->b].i != decisive))
        return true;
    out->i = !decisive;
    return left && right;
}

void gt_exprs_evaluate(const gt_exprs *exprs, gt_expr first, gt_expr last, const gt_scalar *symbols,
                       const uint8_t *known, gt_scalar *out_values, uint8_t *out_known, gt_expr *out_failed)
{
    gt_expr failed = GT_EXPR_UNKNOWN;
    for (gt_expr e = first; e < last; e++) {
        const gt_expr_node *node = &exprs->nodes.data[e];
        out_values[e].i = 0;
        switch ((gt_expr_kind)node->kind) {
        case GT_EXPR_CONST:
        case GT_EXPR_REAL_CONST:
            out_values[e] = node->constant;
            out_known[e] = 1;
            break;
        case GT_EXPR_SYMBOL:
            out_known[e] = known[node->a] != 0;
            if (out_known[e])
                out_values[e] = symbols[node->a];
            break;
        case GT_EXPR_SELECT:
        case GT_EXPR_AND:
        case GT_EXPR_OR:
            out_known[e] = compute_lazy(node, out_values, out_known, &out_values[e]);
            break;
        default:
            /* Unused operands are 0: the first node of the table, whose being known must not matter. */
            if (!out_known[node->a] || (!out_known[node->b] && gt_expr_arity(node->kind) > 1)) {
                out_known[e] = 0;
                break;
            }
            out_known[e] = compute(node, exprs, out_values, &out_values[e]);
            if (!out_known[e] && failed == GT_EXPR_UNKNOWN)
                failed = e;
        }
    }
    if (out_failed)
        *out_failed = failed;
}
