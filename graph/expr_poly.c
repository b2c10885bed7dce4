/* Sums of products: the one form in which equal integer sums meet. */
#include "expr_internal.h"

/* Chains that simplification left alone may be deep; what lies deeper is an atom. */
#define POLY_DEPTH 40

static int compare_terms(const gt_poly_term *a, const gt_poly_term *b)
{
    /* The constant term comes last, so that it prints last. */
    if (!a->factor_count != !b->factor_count)
        return a->factor_count ? -1 : 1;
    for (uint32_t k = 0; k < a->factor_count && k < b->factor_count; k++)
        if (a->factors[k] != b->factors[k])
            return a->factors[k] < b->factors[k] ? -1 : 1;
    return (a->factor_count > b->factor_count) - (a->factor_count < b->factor_count);
}

static bool add_term(gt_poly *poly, const gt_poly_term *term)
{
    uint32_t at = 0;
    int order = 1;
    while (at < poly->count && (order = compare_terms(&poly->terms[at], term)) < 0)
        at++;
    if (at < poly->count && order == 0) {
        if (__builtin_add_overflow(poly->terms[at].coefficient, term->coefficient,
                                   &poly->terms[at].coefficient))
            return false;
        if (poly->terms[at].coefficient == 0) {
            memmove(&poly->terms[at], &poly->terms[at + 1], (poly->count - at - 1) * sizeof *term);
            poly->count--;
        }
        return true;
    }
    if (poly->count == GT_POLY_TERMS)
        return false;
    memmove(&poly->terms[at + 1], &poly->terms[at], (poly->count - at) * sizeof *term);
    poly->terms[at] = *term;
    poly->count++;
    return true;
}

bool gt_poly_add(gt_poly *inout, const gt_poly *other, int64_t times)
{
    for (uint32_t t = 0; t < other->count; t++) {
        gt_poly_term term = other->terms[t];
        if (__builtin_mul_overflow(term.coefficient, times, &term.coefficient))
            return false;
        if (term.coefficient && !add_term(inout, &term))
            return false;
    }
    return true;
}

static bool multiply_terms(const gt_poly_term *a, const gt_poly_term *b, gt_poly_term *out)
{
    if (a->factor_count + b->factor_count > GT_POLY_FACTORS ||
        __builtin_mul_overflow(a->coefficient, b->coefficient, &out->coefficient))
        return false;
    uint32_t i = 0, j = 0, n = 0;
    while (i < a->factor_count || j < b->factor_count)
        if (j == b->factor_count || (i < a->factor_count && a->factors[i] <= b->factors[j]))
            out->factors[n++] = a->factors[i++];
        else
            out->factors[n++] = b->factors[j++];
    out->factor_count = n;
    return true;
}

bool gt_poly_multiply(const gt_poly *a, const gt_poly *b, gt_poly *out)
{
    out->count = 0;
    for (uint32_t i = 0; i < a->count; i++)
        for (uint32_t j = 0; j < b->count; j++) {
            gt_poly_term term;
            if (!multiply_terms(&a->terms[i], &b->terms[j], &term) || !add_term(out, &term))
                return false;
        }
    return true;
}

static bool poly_from(const gt_exprs *exprs, gt_expr e, int64_t times, unsigned depth, gt_poly *inout)
{
    const gt_expr_node *node = &exprs->nodes.data[e];
    gt_poly_term term = {.coefficient = times, .factor_count = 1, .factors = {e}};
    if (node->kind == GT_EXPR_CONST) {
        term.factor_count = 0;
        if (__builtin_mul_overflow(times, node->constant.i, &term.coefficient))
            return false;
        return !term.coefficient || add_term(inout, &term);
    }
    if (depth >= POLY_DEPTH)
        return add_term(inout, &term);
    if (node->kind == GT_EXPR_ADD || node->kind == GT_EXPR_SUB) {
        int64_t right = times;
        if (node->kind == GT_EXPR_SUB && __builtin_sub_overflow(0, times, &right))
            return false;
        return poly_from(exprs, node->a, times, depth + 1, inout) &&
               poly_from(exprs, node->b, right, depth + 1, inout);
    }
    if (node->kind == GT_EXPR_MUL) {
        gt_poly left = {0}, right = {0}, product;
        if (poly_from(exprs, node->a, times, depth + 8, &left) &&
            poly_from(exprs, node->b, 1, depth + 8, &right) && gt_poly_multiply(&left, &right, &product))
            return gt_poly_add(inout, &product, 1);
    }
    return add_term(inout, &term);
}

bool gt_poly_from(const gt_exprs *exprs, gt_expr e, gt_poly *out)
{
    out->count = 0;
    return poly_from(exprs, e, 1, 0, out);
}

/* |coefficient| * factors. */
static gt_expr build_term(gt_exprs *exprs, const gt_poly_term *term, int64_t coefficient)
{
    if (!term->factor_count)
        return gt_expr_const(exprs, coefficient);
    gt_expr e = term->factors[0];
    for (uint32_t k = 1; k < term->factor_count && e != GT_EXPR_UNKNOWN; k++)
        e = gt_expr_intern(exprs, GT_EXPR_MUL, e, term->factors[k], 0);
    if (coefficient == 1 || e == GT_EXPR_UNKNOWN)
        return e;
    gt_expr times = gt_expr_const(exprs, coefficient);
    return times == GT_EXPR_UNKNOWN ? times : gt_expr_intern(exprs, GT_EXPR_MUL, times, e, 0);
}

/* The term to begin with: one that is not subtracted when there is one ("1-n", not "-1*n+1"). */
static uint32_t first_term(const gt_poly *poly)
{
    for (uint32_t t = 0; t < poly->count; t++)
        if (poly->terms[t].coefficient > 0)
            return t;
    return 0;
}

gt_expr gt_poly_build(gt_exprs *exprs, const gt_poly *poly)
{
    if (!poly->count)
        return gt_expr_const(exprs, 0);
    uint32_t first = first_term(poly);
    gt_expr sum = build_term(exprs, &poly->terms[first], poly->terms[first].coefficient);
    for (uint32_t t = 0; t < poly->count && sum != GT_EXPR_UNKNOWN; t++) {
        if (t == first)
            continue;
        int64_t coefficient = poly->terms[t].coefficient;
        bool subtract = coefficient < 0 && coefficient != INT64_MIN;
        gt_expr term = build_term(exprs, &poly->terms[t], subtract ? -coefficient : coefficient);
        if (term == GT_EXPR_UNKNOWN)
            return term;
        sum = gt_expr_intern(exprs, subtract ? GT_EXPR_SUB : GT_EXPR_ADD, sum, term, 0);
    }
    return sum;
}

/* Takes the divisor's factors out of term; false when they are not all there. */
static bool divide_factors(const gt_poly_term *term, const gt_poly_term *divisor, gt_poly_term *out)
{
    uint32_t j = 0;
    out->factor_count = 0;
    for (uint32_t i = 0; i < term->factor_count; i++)
        if (j < divisor->factor_count && term->factors[i] == divisor->factors[j])
            j++;
        else
            out->factors[out->factor_count++] = term->factors[i];
    return j == divisor->factor_count;
}

bool gt_poly_split(const gt_poly *numerator, const gt_poly_term *divisor, gt_poly *out_quotient,
                   gt_poly *out_rest)
{
    out_quotient->count = out_rest->count = 0;
    for (uint32_t t = 0; t < numerator->count; t++) {
        gt_poly_term rest = numerator->terms[t], quotient;
        int64_t times, taken, left;
        if (divide_factors(&rest, divisor, &quotient) &&
            gt_expr_compute_int(GT_EXPR_FLOORDIV, rest.coefficient, divisor->coefficient, &times) && times &&
            !__builtin_mul_overflow(times, divisor->coefficient, &taken) &&
            !__builtin_sub_overflow(rest.coefficient, taken, &left)) {
            quotient.coefficient = times;
            rest.coefficient = left;
            if (!add_term(out_quotient, &quotient))
                return false;
        }
        if (rest.coefficient && !add_term(out_rest, &rest))
            return false;
    }
    return true;
}

bool gt_poly_divide(const gt_poly *numerator, const gt_poly *divisor, gt_poly *out_quotient)
{
    gt_poly rest = *numerator;
    out_quotient->count = 0;
    /* Each step takes out one term of the quotient: more than fit means that it does not go. */
    for (uint32_t step = 0; step <= GT_POLY_TERMS && divisor->count; step++) {
        if (!rest.count)
            return true;
        const gt_poly_term *first = &divisor->terms[0];
        gt_poly one = {.count = 1}, product;
        gt_poly_term *term = &one.terms[0];
        if (!first->coefficient || first->coefficient == -1 ||
            rest.terms[0].coefficient % first->coefficient != 0 ||
            !divide_factors(&rest.terms[0], first, term))
            return false;
        term->coefficient = rest.terms[0].coefficient / first->coefficient;
        if (!add_term(out_quotient, term) || !gt_poly_multiply(&one, divisor, &product) ||
            !gt_poly_add(&rest, &product, -1))
            return false;
    }
    return false;
}
