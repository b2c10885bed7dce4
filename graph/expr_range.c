/* Interval arithmetic: between which int64 values an expression lies, for every binding of its symbols. */
#include "expr_internal.h"

static int64_t clamp(__int128 value)
{
    return value < INT64_MIN ? INT64_MIN : value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* An open end stays open: INT64_MAX stands for "no limit", not for a number to calculate with. */
static int64_t end_add(int64_t a, int64_t b, int64_t open)
{
    return a == open || b == open ? open : clamp((__int128)a + b);
}

/* b is no open end, though it may be the smallest number there is. */
static int64_t end_subtract(int64_t a, int64_t b, int64_t open)
{
    return a == open ? open : clamp((__int128)a - b);
}

static int64_t end_multiply(int64_t a, int64_t b)
{
    if (a == 0 || b == 0)
        return 0;
    bool open = a == INT64_MIN || a == INT64_MAX || b == INT64_MIN || b == INT64_MAX;
    if (open)
        return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
    return clamp((__int128)a * b);
}

static void range_multiply(int64_t al, int64_t ah, int64_t bl, int64_t bh, int64_t *low, int64_t *high)
{
    int64_t p = end_multiply(al, bl), q = end_multiply(al, bh), r = end_multiply(ah, bl),
            s = end_multiply(ah, bh);
    *low = least(least(p, q), least(r, s));
    *high = most(most(p, q), most(r, s));
}

/* Divisors above 0 only; everything else stays open. */
static void range_divide(gt_expr_kind kind, int64_t al, int64_t ah, int64_t bl, int64_t bh, int64_t *low,
                         int64_t *high)
{
    *low = al >= 0 && bl >= 0 ? 0 : INT64_MIN;
    *high = INT64_MAX;
    if (bl < 1)
        return;
    int64_t value;
    if (al != INT64_MIN && gt_expr_compute_int(kind, al, al >= 0 ? bh : bl, &value))
        *low = al >= 0 && bh == INT64_MAX ? 0 : value;
    if (ah != INT64_MAX && gt_expr_compute_int(kind, ah, ah >= 0 ? bl : bh, &value))
        *high = ah < 0 && bh == INT64_MAX ? 0 : value;
}

static void range_modulo(int64_t al, int64_t ah, int64_t bl, int64_t bh, int64_t *low, int64_t *high)
{
    *low = INT64_MIN;
    *high = INT64_MAX;
    if (bl < 0)
        return;
    *low = 0;
    *high = bh == INT64_MAX ? INT64_MAX : most(bh - 1, 0);
    if (al >= 0)
        *high = least(*high, ah);
}

void gt_expr_range(const gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c,
                   int64_t *out_low, int64_t *out_high)
{
    const gt_expr_facts none = {INT64_MIN, INT64_MAX, 0, 0};
    unsigned arity = gt_expr_arity(kind);
    gt_expr_facts x = exprs->facts.data[a], y = arity > 1 ? exprs->facts.data[b] : none,
                  z = arity > 2 ? exprs->facts.data[c] : none;
    *out_low = INT64_MIN;
    *out_high = INT64_MAX;
    switch (kind) {
    case GT_EXPR_ADD:
        *out_low = end_add(x.low, y.low, INT64_MIN);
        *out_high = end_add(x.high, y.high, INT64_MAX);
        break;
    case GT_EXPR_SUB:
        *out_low = y.high == INT64_MAX ? INT64_MIN : end_subtract(x.low, y.high, INT64_MIN);
        *out_high = y.low == INT64_MIN ? INT64_MAX : end_subtract(x.high, y.low, INT64_MAX);
        break;
    case GT_EXPR_MUL:
        range_multiply(x.low, x.high, y.low, y.high, out_low, out_high);
        break;
    case GT_EXPR_MIN:
        *out_low = least(x.low, y.low);
        *out_high = least(x.high, y.high);
        break;
    case GT_EXPR_MAX:
        *out_low = most(x.low, y.low);
        *out_high = most(x.high, y.high);
        break;
    case GT_EXPR_FLOORDIV:
    case GT_EXPR_CEILDIV:
    case GT_EXPR_TRUNCDIV:
        range_divide(kind, x.low, x.high, y.low, y.high, out_low, out_high);
        break;
    case GT_EXPR_MOD:
        range_modulo(x.low, x.high, y.low, y.high, out_low, out_high);
        break;
    case GT_EXPR_BROADCAST:
        *out_low = least(x.low, y.low);
        *out_high = most(x.high, y.high);
        break;
    case GT_EXPR_SAME:
        *out_low = most(x.low, y.low);
        *out_high = least(x.high, y.high);
        break;
    case GT_EXPR_SELECT:
        *out_low = least(y.low, z.low);
        *out_high = most(y.high, z.high);
        break;
    case GT_EXPR_EQ:
    case GT_EXPR_LT:
    case GT_EXPR_AND:
    case GT_EXPR_OR:
    case GT_EXPR_NOT:
        *out_low = 0;
        *out_high = 1;
        break;
    default:
        break;
    }
}

void gt_poly_range(const gt_exprs *exprs, const gt_poly *poly, int64_t *out_low, int64_t *out_high)
{
    *out_low = *out_high = 0;
    for (uint32_t t = 0; t < poly->count; t++) {
        const gt_poly_term *term = &poly->terms[t];
        int64_t low = term->coefficient, high = term->coefficient;
        for (uint32_t f = 0; f < term->factor_count; f++) {
            const gt_expr_facts *of = &exprs->facts.data[term->factors[f]];
            bool square = f && term->factors[f] == term->factors[f - 1];
            range_multiply(low, high, square && of->low < 0 ? INT64_MIN : of->low, of->high, &low, &high);
        }
        *out_low = end_add(*out_low, low, INT64_MIN);
        *out_high = end_add(*out_high, high, INT64_MAX);
    }
}
