/* The expression table: equal things meet, simplification keeps values, evaluation finds what has none. */
#include "base/clock.h"
#include "graph/expr.h"

#include <criterion/criterion.h>
#include <math.h>

static gt_allocator allocator;
static gt_exprs table;

static void setup(void)
{
    gt_allocator_init(&allocator, NULL);
    gt_exprs_init(&table, &allocator);
}

static void teardown(void)
{
    gt_exprs_free(&table);
}

TestSuite(expr, .init = setup, .fini = teardown);

static gt_expr dim(const char *name)
{
    return gt_expr_symbol(&table, &(gt_symbol){.kind = GT_SYMBOL_INPUT_DIM, .name = name});
}

static gt_expr element(const char *name)
{
    return gt_expr_symbol(&table, &(gt_symbol){.kind = GT_SYMBOL_INPUT_ELEMENT, .name = name});
}

static gt_expr number(int64_t value)
{
    return gt_expr_const(&table, value);
}

static gt_expr make(gt_expr_kind kind, gt_expr a, gt_expr b)
{
    return gt_expr_make(&table, kind, a, b, 0);
}

static void assert_text(gt_expr e, const char *expected)
{
    gt_text text;
    gt_text_init(&text, &allocator);
    gt_expr_print(&table, e, &text);
    cr_assert_str_eq(text.data, expected);
    gt_text_free(&text);
}

Test(expr, sums_are_collected)
{
    gt_expr a = dim("a"), b = dim("b");
    gt_expr two_a = make(GT_EXPR_ADD, a, a);
    cr_assert_eq(make(GT_EXPR_ADD, make(GT_EXPR_MUL, a, number(2)), a), make(GT_EXPR_MUL, number(3), a));
    cr_assert_eq(make(GT_EXPR_SUB, a, a), number(0));
    cr_assert_eq(make(GT_EXPR_SUB, make(GT_EXPR_ADD, a, b), b), a);
    cr_assert_eq(make(GT_EXPR_MUL, a, b), make(GT_EXPR_MUL, b, a));
    cr_assert_eq(make(GT_EXPR_MUL, make(GT_EXPR_ADD, a, b), b),
                 make(GT_EXPR_ADD, make(GT_EXPR_MUL, b, b), make(GT_EXPR_MUL, b, a)));
    assert_text(make(GT_EXPR_ADD, two_a, number(1)), "2*a+1");
    assert_text(make(GT_EXPR_SUB, number(1), a), "1-a");
    assert_text(make(GT_EXPR_SUB, b, a), "b-a");
}

Test(expr, divisions_take_out_what_goes_in)
{
    gt_expr a = dim("a"), b = dim("b"), c = dim("c"), h = dim("h");
    cr_assert_eq(make(GT_EXPR_FLOORDIV, make(GT_EXPR_MUL, a, b), b), a);
    cr_assert_eq(make(GT_EXPR_FLOORDIV, make(GT_EXPR_MUL, number(768), make(GT_EXPR_MUL, a, b)),
                      make(GT_EXPR_MUL, number(12), make(GT_EXPR_MUL, b, a))),
                 number(64));
    gt_expr sum = make(GT_EXPR_ADD, b, c);
    cr_assert_eq(make(GT_EXPR_TRUNCDIV, make(GT_EXPR_MUL, make(GT_EXPR_MUL, a, sum), number(6)), sum),
                 make(GT_EXPR_MUL, number(6), a));
    /* Two ways to write a convolution of stride 2. */
    gt_expr down =
        make(GT_EXPR_ADD, make(GT_EXPR_FLOORDIV, make(GT_EXPR_SUB, h, number(1)), number(2)), number(1));
    cr_assert_eq(down, make(GT_EXPR_CEILDIV, h, number(2)));
    cr_assert_eq(
        make(GT_EXPR_FLOORDIV, make(GT_EXPR_ADD, make(GT_EXPR_MUL, number(2), h), number(1)), number(2)), h);
    assert_text(make(GT_EXPR_FLOORDIV, make(GT_EXPR_FLOORDIV, h, number(2)), number(4)), "h/8");
    cr_assert_eq(make(GT_EXPR_MOD, make(GT_EXPR_ADD, make(GT_EXPR_MUL, number(4), h), number(3)), number(4)),
                 number(3));
    cr_assert_eq(make(GT_EXPR_FLOORDIV, number(-7), number(2)), number(-4));
    cr_assert_eq(make(GT_EXPR_TRUNCDIV, number(-7), number(2)), number(-3));
    cr_assert_eq(make(GT_EXPR_CEILDIV, number(-7), number(2)), number(-3));
    cr_assert_eq(make(GT_EXPR_MOD, number(-7), number(2)), number(1));
}

Test(expr, choices_are_decided_by_ranges)
{
    gt_expr n = dim("n"), x = element("x"), zero = number(0);
    gt_expr more = make(GT_EXPR_ADD, n, number(3));
    cr_assert_eq(make(GT_EXPR_MAX, n, zero), n);
    cr_assert_eq(make(GT_EXPR_MIN, n, number(INT64_MAX)), n);
    cr_assert_eq(make(GT_EXPR_MIN, more, n), n);
    cr_assert_eq(make(GT_EXPR_LT, n, zero), number(0));
    cr_assert_eq(make(GT_EXPR_LT, n, more), number(1));
    cr_assert_eq(make(GT_EXPR_EQ, more, n), number(0));
    cr_assert_eq(make(GT_EXPR_EQ, n, n), number(1));
    cr_assert_neq(make(GT_EXPR_LT, x, zero), number(0));
    cr_assert(gt_expr_is_nonnegative(&table, n));
    cr_assert_not(gt_expr_is_nonnegative(&table, x));
    cr_assert_eq(gt_expr_make(&table, GT_EXPR_SELECT, number(1), n, x), n);
    cr_assert_eq(gt_expr_make(&table, GT_EXPR_SELECT, make(GT_EXPR_EQ, x, n), n, n), n);
    cr_assert_eq(make(GT_EXPR_MIN, x, make(GT_EXPR_MAX, x, n)), x);
}

Test(expr, broadcasts_are_unions)
{
    gt_expr a = dim("a"), b = dim("b"), c = number(64);
    cr_assert_eq(make(GT_EXPR_BROADCAST, a, a), a);
    cr_assert_eq(make(GT_EXPR_BROADCAST, a, number(1)), a);
    gt_expr ab = make(GT_EXPR_BROADCAST, a, b);
    cr_assert_eq(ab, make(GT_EXPR_BROADCAST, b, ab));
    gt_expr ac = make(GT_EXPR_BROADCAST, a, c);
    assert_text(ac, "64");
    cr_assert_neq(ac, c, "it must still be checked at bind");
    cr_assert_eq(make(GT_EXPR_BROADCAST, ac, c), ac);
}

Test(expr, constants_that_overflow_stay)
{
    gt_expr sum = make(GT_EXPR_ADD, number(INT64_MAX), number(1));
    cr_assert_not(gt_expr_is_const(&table, sum, NULL));
    gt_scalar values[16];
    uint8_t known[16];
    gt_expr failed;
    gt_exprs_evaluate(&table, 0, table.nodes.count, NULL, NULL, values, known, &failed);
    cr_assert_eq(failed, sum);
    cr_assert_eq(known[sum], 0);
    cr_assert_eq(make(GT_EXPR_ADD, GT_EXPR_UNKNOWN, number(1)), GT_EXPR_UNKNOWN);
}

Test(expr, reals_fold_and_round)
{
    gt_expr h = dim("h");
    cr_assert_eq(make(GT_EXPR_TO_INT, make(GT_EXPR_REAL_FLOOR, make(GT_EXPR_TO_REAL, h, 0), 0), 0), h);
    gt_expr third = make(GT_EXPR_REAL_DIV, gt_expr_real(&table, 1), gt_expr_real(&table, 3));
    gt_expr rounded = make(GT_EXPR_REAL_ROUND32, third, 0);
    cr_assert_eq(table.nodes.data[rounded].constant.r, (double)(1.0f / 3.0f));
    cr_assert_eq(make(GT_EXPR_TO_INT, gt_expr_real(&table, -2.7), 0), number(-2));
    cr_assert(gt_expr_is_real(&table, make(GT_EXPR_MUL, make(GT_EXPR_TO_REAL, h, 0), third)));
}

Test(expr, select_needs_only_what_it_takes)
{
    gt_expr n = dim("n"), m = dim("m");
    gt_expr ratio = make(GT_EXPR_FLOORDIV, m, n);
    gt_expr chosen = gt_expr_make(&table, GT_EXPR_SELECT, make(GT_EXPR_EQ, n, number(0)), number(7), ratio);
    gt_scalar symbols[2] = {{.i = 0}, {.i = 5}}, values[32];
    uint8_t given[2] = {1, 1}, known[32];
    gt_expr failed;
    gt_exprs_evaluate(&table, 0, table.nodes.count, symbols, given, values, known, &failed);
    cr_assert_eq(failed, ratio);
    cr_assert(known[chosen] && values[chosen].i == 7);
    given[1] = 0;
    gt_exprs_evaluate(&table, 0, table.nodes.count, symbols, given, values, known, &failed);
    cr_assert_eq(failed, GT_EXPR_UNKNOWN);
    cr_assert(known[chosen] && !known[ratio]);
}

/* Numbers without a pattern; the same every time. */
static uint64_t random_state = 88172645463325252u;
static uint32_t random_below(uint32_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state % limit);
}

#define RANDOM_NODES 4000

/* The value of an operation by its definition; false where it has none. */
static bool reference(gt_expr_kind kind, int64_t a, int64_t b, int64_t *out)
{
    int64_t floored = b ? (int64_t)floor((double)a / (double)b) : 0;
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
        *out = a < b ? b : a;
        return true;
    case GT_EXPR_FLOORDIV:
        *out = floored;
        return b != 0;
    case GT_EXPR_CEILDIV:
        *out = b ? (int64_t)ceil((double)a / (double)b) : 0;
        return b != 0;
    case GT_EXPR_TRUNCDIV:
        *out = b ? a / b : 0;
        return b != 0;
    case GT_EXPR_MOD:
        *out = a - floored * b;
        return b != 0;
    case GT_EXPR_BROADCAST:
        *out = a == 1 ? b : a;
        return a == b || a == 1 || b == 1;
    case GT_EXPR_SAME:
        *out = a;
        return a == b;
    case GT_EXPR_EQ:
        *out = a == b;
        return true;
    default:
        *out = a < b;
        return true;
    }
}

/* Random expressions, built step by step: where the plain value exists and is small, the simplified
 * expression has the same one. */
Test(expr, simplifying_keeps_values)
{
    static gt_expr built[RANDOM_NODES];
    static int64_t plain[RANDOM_NODES];
    static bool exists[RANDOM_NODES];
    static const int64_t bindings[4] = {3, 17, 1, -5};
    static const int64_t constants[] = {0, 1, 2, 3, 4, 7, -1, -2, 12};
    uint32_t count = 0;
    for (; count < 4; count++) {
        char name[8];
        snprintf(name, sizeof name, "s%u", count);
        built[count] = count < 3 ? dim(name) : element(name);
        plain[count] = bindings[count];
        exists[count] = true;
    }
    for (uint32_t k = 0; k < sizeof constants / sizeof *constants; k++, count++) {
        built[count] = number(constants[k]);
        plain[count] = constants[k];
        exists[count] = true;
    }
    for (; count < RANDOM_NODES; count++) {
        uint32_t recent = count > 60 && random_below(3) ? 40 : count;
        uint32_t i = count - 1 - random_below(recent), j = count - 1 - random_below(recent);
        gt_expr_kind kind = GT_EXPR_ADD + random_below(GT_EXPR_LT - GT_EXPR_ADD + 1);
        if (random_below(4) == 0)
            j = 4 + random_below(9);
        built[count] = make(kind, built[i], built[j]);
        exists[count] = exists[i] && exists[j] && reference(kind, plain[i], plain[j], &plain[count]) &&
                        plain[count] < 1000000 && plain[count] > -1000000;
        if (!exists[count]) { /* start again from something small */
            built[count] = built[random_below(13)];
            for (uint32_t k = 0; k < 13; k++)
                if (built[count] == built[k])
                    plain[count] = plain[k], exists[count] = true;
        }
    }
    gt_scalar symbols[4], *values = calloc(table.nodes.count, sizeof *values);
    uint8_t given[4] = {1, 1, 1, 1}, *known = calloc(table.nodes.count, 1);
    for (uint32_t k = 0; k < 4; k++)
        symbols[k].i = bindings[k];
    gt_exprs_evaluate(&table, 0, table.nodes.count, symbols, given, values, known, NULL);
    for (uint32_t k = 0; k < RANDOM_NODES; k++) {
        cr_assert(known[built[k]], "expression %u has no value", k);
        cr_assert_eq(values[built[k]].i, plain[k], "expression %u: %lld, expected %lld", k,
                     (long long)values[built[k]].i, (long long)plain[k]);
        int64_t low = gt_expr_known_facts(&table, built[k]).low,
                high = gt_expr_known_facts(&table, built[k]).high;
        cr_assert(low <= plain[k] && plain[k] <= high, "expression %u: %lld is not in its range", k,
                  (long long)plain[k]);
    }
    free(values);
    free(known);
}

Test(expr, building_survives_each_failed_allocation)
{
    for (int64_t n = 0; n < 40; n++) {
        gt_exprs broken;
        gt_allocator small;
        gt_allocator_init(&small, NULL);
        atomic_store(&small.fail_after, n);
        gt_exprs_init(&broken, &small);
        gt_expr a = gt_expr_symbol(&broken, &(gt_symbol){.name = "a"});
        gt_expr e = a;
        for (int64_t k = 0; k < 200 && e != GT_EXPR_UNKNOWN; k++)
            e = gt_expr_make(&broken, GT_EXPR_MAX, gt_expr_make(&broken, GT_EXPR_ADD, e, a, 0),
                             gt_expr_const(&broken, k), 0);
        cr_assert_eq(e == GT_EXPR_UNKNOWN, broken.failed);
        gt_exprs_free(&broken);
    }
}
