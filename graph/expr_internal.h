/* Inside of the expression table: how the files expr*.c see each other. */
#ifndef GT_GRAPH_EXPR_INTERNAL_H
#define GT_GRAPH_EXPR_INTERNAL_H

#include "expr.h"

/* How many of a, b, c a kind uses. */
unsigned gt_expr_arity(gt_expr_kind kind);

/* The node as it is, without simplifying; the same index for an equal one. */
gt_expr gt_expr_intern(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c);

/* The value of a kind on int64 operands; false when it has none. Kinds without reals only. */
bool gt_expr_compute_int(gt_expr_kind kind, int64_t a, int64_t b, int64_t *out);
/* Likewise on reals: ADD, SUB, MUL, MIN, MAX, REAL_*. */
double gt_expr_compute_real(gt_expr_kind kind, double a, double b);

/* An int64 expression as a sum of products of atoms (expressions that are no sum or product), so that equal
 * sums meet in one form: terms ascend by their factors, no term is twice, no coefficient is 0. */
#define GT_POLY_TERMS 16
#define GT_POLY_FACTORS 6
typedef struct gt_poly_term {
    int64_t coefficient;
    uint32_t factor_count;
    gt_expr factors[GT_POLY_FACTORS]; /* ascending; of the constant term none */
} gt_poly_term;

typedef struct gt_poly {
    uint32_t count;
    gt_poly_term terms[GT_POLY_TERMS];
} gt_poly;

/* All return false when the result overflows or does not fit into the limits above. */
bool gt_poly_from(const gt_exprs *exprs, gt_expr e, gt_poly *out);
bool gt_poly_add(gt_poly *inout, const gt_poly *other, int64_t times);
bool gt_poly_multiply(const gt_poly *a, const gt_poly *b, gt_poly *out);
/* The sum as an expression, in its one form. */
gt_expr gt_poly_build(gt_exprs *exprs, const gt_poly *poly);
/* Between what the sum lies for all bindings. */
void gt_poly_range(const gt_exprs *exprs, const gt_poly *poly, int64_t *out_low, int64_t *out_high);
/* numerator = quotient * divisor + rest: takes out whatever terms a one-term divisor goes into. */
bool gt_poly_split(const gt_poly *numerator, const gt_poly_term *divisor, gt_poly *out_quotient,
                   gt_poly *out_rest);
/* numerator = quotient * divisor, with nothing left. */
bool gt_poly_divide(const gt_poly *numerator, const gt_poly *divisor, gt_poly *out_quotient);

/* The range of kind over operands in these ranges. */
void gt_expr_range(const gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c,
                   int64_t *out_low, int64_t *out_high);

#endif
