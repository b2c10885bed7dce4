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

/* One operand, which is known; false when there is no value. */
static bool compute_unary(gt_expr_kind kind, gt_scalar a, gt_scalar *out)
{
    switch (kind) {
    case GT_EXPR_NOT:
        out->i = !a.i;
        return true;
    case GT_EXPR_TO_REAL:
        out->r = (double)a.i;
        return true;
    case GT_EXPR_TO_INT:
        /* 2^63 is the first double that does not fit. */
        if (!(fabs(a.r) < 9223372036854775808.0))
            return false;
        out->i = (int64_t)a.r;
        return true;
    default:
        out->r = gt_expr_compute_real(kind, a.r, 0);
        return true;
    }
}

static bool compute_real_binary(gt_expr_kind kind, gt_scalar a, gt_scalar b, gt_scalar *out)
{
    if (kind == GT_EXPR_EQ || kind == GT_EXPR_LT)
        out->i = kind == GT_EXPR_EQ ? a.r == b.r : a.r < b.r;
    else
        out->r = gt_expr_compute_real(kind, a.r, b.r);
    return true;
}

/* One switch with the frequent kinds spelled out: this runs at every bind, over the whole table. */
void gt_exprs_evaluate(const gt_exprs *exprs, gt_expr first, gt_expr last, const gt_scalar *symbols,
                       const uint8_t *known, gt_scalar *out_values, uint8_t *out_known, gt_expr *out_failed)
{
    const gt_expr_node *nodes = exprs->nodes.data;
    gt_scalar *v = out_values;
    gt_expr failed = GT_EXPR_UNKNOWN;
    for (gt_expr e = first; e < last; e++) {
        const gt_expr_node *node = &nodes[e];
        gt_scalar value = {.i = 0};
        bool ready, has;
        switch ((gt_expr_kind)node->kind) {
        case GT_EXPR_CONST:
        case GT_EXPR_REAL_CONST:
            ready = has = true;
            value = node->constant;
            break;
        case GT_EXPR_SYMBOL:
            ready = has = known[node->a] != 0;
            if (has)
                value = symbols[node->a];
            break;
        case GT_EXPR_SELECT:
        case GT_EXPR_AND:
        case GT_EXPR_OR:
            ready = has = compute_lazy(node, v, out_known, &value);
            break;
        case GT_EXPR_NOT:
        case GT_EXPR_TO_REAL:
        case GT_EXPR_TO_INT:
        case GT_EXPR_REAL_FLOOR:
        case GT_EXPR_REAL_CEIL:
        case GT_EXPR_REAL_SQRT:
        case GT_EXPR_REAL_ROUND32:
            ready = out_known[node->a];
            has = ready && compute_unary(node->kind, v[node->a], &value);
            break;
        default:
            ready = out_known[node->a] && out_known[node->b];
            if (!ready)
                has = false;
            else if (nodes[node->a].real)
                has = compute_real_binary(node->kind, v[node->a], v[node->b], &value);
            else if (node->kind == GT_EXPR_MUL)
                has = !__builtin_mul_overflow(v[node->a].i, v[node->b].i, &value.i);
            else if (node->kind == GT_EXPR_ADD)
                has = !__builtin_add_overflow(v[node->a].i, v[node->b].i, &value.i);
            else
                has = gt_expr_compute_int(node->kind, v[node->a].i, v[node->b].i, &value.i);
        }
        if (ready && !has && failed == GT_EXPR_UNKNOWN)
            failed = e;
        v[e].i = has ? value.i : 0;
        out_known[e] = has;
    }
    if (out_failed)
        *out_failed = failed;
}
