/* Shape inference of what only a bind or a run knows: demands that are checked then, and sizes that come with
 * the data. */
#include "infer_fixture.h"

/* ---- what operators demand of values that only a bind knows */

/* A node whose rule these values break; its error names all the words. */
static void check_broken_rule(uint32_t count, const char *const *names, const int64_t *numbers,
                              const char *const *words)
{
    values v = evaluate(count, names, numbers);
    uint32_t broken = gt_infer_first_failure(graph, v.known);
    cr_assert_neq(broken, GT_NONE, "nothing is said about %s", words[0]);
    cr_assert_eq(gt_infer_explain_check(graph, broken, graph->checks[broken].expr, v.of, v.known, &error),
                 GANTRY_INPUT_SHAPE);
    for (; *words; words++)
        cr_assert(strstr(error.message, *words), "\"%s\" is not in: %s", *words, error.message);
}
#define BREAKS(symbol, number, ...)                                                                          \
    check_broken_rule(1, (const char *const[]){symbol}, (const int64_t[]){number},                           \
                      (const char *const[]){__VA_ARGS__, NULL})

static void check_kept_rules(const char *symbol, int64_t number)
{
    values v = evaluate(1, &symbol, &number);
    cr_assert_eq(gt_infer_first_failure(graph, v.known), GT_NONE, "%s = %lld", symbol, (long long)number);
}

Test(infer, an_axis_without_elements_has_no_greatest)
{
    NODE("ArgMax", 13, input("x", GANTRY_FLOAT32, "n,4"));
    infer();
    BREAKS("n", 0, "ArgMax", "greatest", "n=0");
    check_kept_rules("n", 1);
}

Test(infer, k_of_top_k_is_checked_at_bind)
{
    const uint32_t inputs[2] = {input("x", GANTRY_FLOAT32, "5"), input("k", GANTRY_INT64, "1")};
    node_in(graph, "TopK", 11, 2, inputs, 2);
    infer();
    BREAKS("k[0]", 6, "TopK", "K = [6]", "[5]");
    check_kept_rules("k[0]", 5);
}

Test(infer, only_one_axis_of_a_target_is_inferred)
{
    NODE("Reshape", 14, input("x", GANTRY_FLOAT32, "4"), input("s", GANTRY_INT64, "2"));
    infer();
    check_broken_rule(2, (const char *const[]){"s[0]", "s[1]"}, (const int64_t[]){-1, -1},
                      (const char *const[]){"Reshape", "shape = [-1,-1]", NULL});
    values v = evaluate(2, (const char *const[]){"s[0]", "s[1]"}, (const int64_t[]){2, -1});
    cr_assert_eq(gt_infer_first_failure(graph, v.known), GT_NONE);
}

Test(infer, steps_are_not_0)
{
    NODE("Slice", 13, input("x", GANTRY_FLOAT32, "4"), INTS(0), INTS(4), INTS(0),
         input("s", GANTRY_INT64, "1"));
    infer();
    BREAKS("s[0]", 0, "Slice", "steps = [0]");
    check_kept_rules("s[0]", -1);
    check_kept_rules("s[0]", 2);
}

Test(infer, a_range_moves)
{
    NODE("Range", 11, input("a", GANTRY_FLOAT32, ""), input("b", GANTRY_FLOAT32, ""),
         input("d", GANTRY_FLOAT32, ""));
    infer();
    BREAKS("d", 0, "Range", "delta = [0]");
    check_kept_rules("d", 3);
}

Test(infer, scales_are_above_0)
{
    uint32_t roi;
    OK(gt_graph_add_constant(graph, NULL, GANTRY_FLOAT32, 1, (int64_t[]){0}, &roi, &roi, &error));
    NODE("Resize", 13, input("x", GANTRY_FLOAT32, "2"), roi, input("s", GANTRY_FLOAT32, "1"));
    infer();
    BREAKS("s[0]", 0, "Resize", "scales = [0]");
    BREAKS("s[0]", -2, "Resize", "scales = [-2]");
    check_kept_rules("s[0]", 2);
}

Test(infer, a_constant_that_breaks_a_rule_is_an_error_at_once)
{
    NODE("Slice", 13, input("x", GANTRY_FLOAT32, "n"), INTS(0), INTS(4), INTS(0), INTS(0));
    cr_assert_eq(infer_status(), GANTRY_MODEL_SHAPE);
    cr_assert(strstr(error.message, "Slice") && strstr(error.message, "steps = [0]"), "%s", error.message);
}

/* The extent of axis 0 of y under one number; says why it is none. */
static void check_extent_error(uint32_t y, const char *symbol, int64_t number, bool negative,
                               const char *const *words)
{
    values v = evaluate(1, &symbol, &number);
    gt_expr extent = graph->values.data[y]->dims[0];
    cr_assert_eq(v.known[extent], negative);
    cr_assert_eq(
        gt_infer_explain_extent(graph, y, 0, negative ? GT_EXPR_UNKNOWN : extent, v.of, v.known, &error),
        GANTRY_INPUT_SHAPE);
    for (; *words; words++)
        cr_assert(strstr(error.message, *words), "\"%s\" is not in: %s", *words, error.message);
}

Test(infer, an_extent_that_is_none_is_explained)
{
    uint32_t y = NODE("Tile", 13, input("x", GANTRY_FLOAT32, "3"), input("r", GANTRY_INT64, "1"));
    infer();
    check_extent_error(y, "r[0]", -1, true,
                       (const char *const[]){"Tile", "extent -3", "repeats = [-1]", "float32 [3]", NULL});
    check_extent_error(y, "r[0]", INT64_MAX / 2, false,
                       (const char *const[]){"Tile", "overflows", "repeats = [4611686018427387903]", NULL});
}

/* ---- sizes that depend on data */

Test(infer, data_sizes_are_bounded_and_end_a_segment)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n,4"), found = NODE("NonZero", 13, x), finder = last_node;
    uint32_t turned = NODE("Transpose", 13, found), turner = last_node;
    uint32_t relu = NODE("Relu", 14, x), aside = last_node;
    infer();
    const gt_symbol *symbol = gt_expr_as_symbol(&model->exprs, graph->values.data[found]->dims[1]);
    cr_assert(symbol && symbol->kind == GT_SYMBOL_DATA_DIM && symbol->value == found && symbol->segment == 1);
    gt_text text;
    gt_text_init(&text, &allocator);
    gt_expr_print(&model->exprs, symbol->bound, &text);
    cr_assert_str_eq(text.data, "4*n");
    gt_text_free(&text);
    cr_assert_eq(graph->values.data[turned]->dims[0], graph->values.data[found]->dims[1]);
    cr_assert_eq(graph->nodes.data[finder]->segment, 0u);
    cr_assert_eq(graph->nodes.data[turner]->segment, 1u);
    cr_assert_eq(graph->nodes.data[aside]->segment, 0u);
    SHAPE(relu, "n,4");
}

Test(infer, a_computed_target_becomes_symbols_of_data)
{
    uint32_t x = input("x", GANTRY_FLOAT32, "n"), w = input("w", GANTRY_FLOAT32, "100");
    uint32_t best = NODE("ArgMax", 13, w);
    set_int("keepdims", 1);
    uint32_t target = NODE("Concat", 13, best, INTS(-1));
    set_int("axis", 0);
    uint32_t concat = last_node, y = NODE("Reshape", 14, x, target);
    infer();
    const gt_value *value = graph->values.data[target];
    cr_assert(value->elements && value->element_count == 2);
    const gt_symbol *symbol = gt_expr_as_symbol(&model->exprs, value->elements[0]);
    cr_assert(symbol && symbol->kind == GT_SYMBOL_DATA_ELEMENT && symbol->value == target &&
              symbol->axis == 0);
    int64_t last;
    cr_assert(gt_expr_is_const(&model->exprs, value->elements[1], &last) && last == -1);
    cr_assert_not(graph->nodes.data[concat]->at_bind);
    cr_assert_eq(graph->nodes.data[last_node]->segment, 1u);
    cr_assert_eq(graph->values.data[y]->rank, 2);
}
