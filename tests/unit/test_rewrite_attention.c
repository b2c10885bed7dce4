/* The rule that recognises attention: forms that exporters write, what is read by strides, and near misses.
 */
#include "../support/rewrite_fixture.h"

static uint32_t transpose(fixture *f, const char *name, const char *from, const char *to, const int64_t *perm,
                          uint32_t rank)
{
    uint32_t id = node(f, name, "Transpose", from, to);
    CHECK(f, gt_node_set_ints(f->graph, id, "perm", perm, rank, &f->error));
    return id;
}

static void softmax(fixture *f, const char *from, const char *to)
{
    uint32_t id = node(f, "softmax1", "Softmax", from, to);
    CHECK(f, gt_node_set_int(f->graph, id, "axis", -1, &f->error));
}

static const int64_t swap_heads[] = {0, 2, 1, 3}, swap_keys[] = {0, 1, 3, 2};

/* q, k, v [2, 5, 3, 4] as positions by heads; scores s. */
static void begin_split(fixture *f)
{
    fixture_init(f);
    input(f, "q", GANTRY_FLOAT32, "2,5,3,4");
    input(f, "k", GANTRY_FLOAT32, "2,7,3,4");
    input(f, "v", GANTRY_FLOAT32, "2,7,3,6");
    static const int64_t keys[] = {0, 2, 3, 1};
    transpose(f, "split_q", "q", "qh", swap_heads, 4);
    transpose(f, "split_k", "k", "kh", keys, 4);
    transpose(f, "split_v", "v", "vh", swap_heads, 4);
    node(f, "scores1", "MatMul", "qh kh", "s");
    number(f, "root", 2);
}

static const gt_node *fused(fixture *f)
{
    simplify(f);
    cr_assert_eq(count_op(f, "Attention"), 1);
    for (uint32_t k = 0; k < f->graph->order.count; k++) {
        const gt_node *n = f->graph->nodes.data[f->graph->order.data[k]];
        if (strcmp(n->op_type, "Attention") == 0)
            return n;
    }
    return NULL;
}

static void check_operand(const gt_node *n, const char *name, const int64_t *wanted)
{
    uint32_t count = 0;
    const int64_t *got = gt_node_ints(n, name, &count);
    cr_assert_eq(count, 7);
    for (int k = 0; k < 7; k++)
        cr_expect_eq(got[k], wanted[k], "%s[%d] is %d", name, k, (int)got[k]);
}

Test(rewrite_attention, with_scale_condition_and_mask)
{
    fixture f;
    begin_split(&f);
    input(&f, "mask", GANTRY_FLOAT32, "2,1,1,7");
    input(&f, "causal", GANTRY_BOOL, "1,1,5,7");
    number(&f, "low", -1e9f);
    node(&f, "scale1", "Div", "s root", "scaled");
    node(&f, "where1", "Where", "causal scaled low", "chosen");
    node(&f, "mask1", "Add", "mask chosen", "masked");
    softmax(&f, "masked", "p");
    node(&f, "result1", "MatMul", "p vh", "r");
    transpose(&f, "merge1", "r", "y", swap_heads, 4);
    output(&f, "y");
    const gt_node *n = fused(&f);
    check_operand(n, "q", (int64_t[]){0, 0, 2, 1, 3, -1, 0});
    check_operand(n, "k", (int64_t[]){1, 0, 2, 1, 3, -1, 0});
    check_operand(n, "v", (int64_t[]){2, 0, 2, 1, 3, -1, 0});
    cr_assert_eq(f.graph->order.count, 1);
    cr_assert_str_eq(n->domain, "gantry");
    cr_assert_eq(n->input_count, 5);
    cr_assert_eq(n->inputs[0], value(&f, "q"));
    cr_assert_eq(n->inputs[gt_node_int(n, "mask", 0)], value(&f, "mask"));
    cr_assert_eq(n->inputs[gt_node_int(n, "condition", 0)], value(&f, "causal"));
    cr_assert_eq(gt_node_float(n, "scale", 0), 0.5f);
    cr_assert_eq(gt_node_float(n, "fill", 0), -1e9f);
    cr_assert_eq(gt_node_int(n, "merged", 0), 1);
    cr_assert_eq(n->lineage.count, 10);
    cr_assert_eq(n->composite->order.count, 10);
    int64_t dims[GANTRY_MAX_RANK];
    for (int k = 0; k < 4; k++)
        cr_assert(gt_expr_is_const(&f.model->exprs, output_value(&f, 0)->dims[k], &dims[k]));
    cr_assert(dims[0] == 2 && dims[1] == 5 && dims[2] == 3 && dims[3] == 6);
    cr_assert_str_eq(record(&f, "attention", "merge1")->state, "applied");
    fixture_free(&f);
}

/* One product makes queries, keys and values [b, s, 3, h, d]; the Transpose that three read goes with them.
 */
Test(rewrite_attention, with_packed_operands)
{
    static const int64_t parts[] = {2, 0, 3, 1, 4};
    for (int slices = 0; slices < 2; slices++) {
        fixture f;
        fixture_init(&f);
        input(&f, "x", GANTRY_FLOAT32, "b,s,3,2,4");
        transpose(&f, "parts1", "x", "parts", parts, 5);
        number(&f, "factor", 0.25f);
        constant(&f, "axis0", GANTRY_INT64, "1", (int64_t[]){0});
        static const char *const names[] = {"qh", "kh", "vh"};
        for (int64_t k = 0; k < 3; k++) {
            char index[8], end[8], inputs[40];
            snprintf(index, sizeof index, "i%d", (int)k);
            snprintf(end, sizeof end, "e%d", (int)k);
            snprintf(inputs, sizeof inputs, slices ? "parts %s %s axis0" : "parts %s", index, end);
            constant(&f, index, GANTRY_INT64, slices ? "1" : "", &k);
            constant(&f, end, GANTRY_INT64, "1", (int64_t[]){k + 1});
            char part[8], name[16];
            snprintf(part, sizeof part, "p%d", (int)k);
            snprintf(name, sizeof name, "pick%d", (int)k);
            node(&f, name, slices ? "Slice" : "Gather", inputs, slices ? part : names[k]);
            snprintf(name, sizeof name, "squeeze%d", (int)k);
            snprintf(inputs, sizeof inputs, "%s axis0", part);
            if (slices)
                node(&f, name, "Squeeze", inputs, names[k]);
        }
        node(&f, "scale1", "Mul", "qh factor", "qs");
        transpose(&f, "keys1", "kh", "kt", swap_keys, 4);
        node(&f, "scores1", "MatMul", "qs kt", "s");
        softmax(&f, "s", "p");
        node(&f, "result1", "MatMul", "p vh", "r");
        transpose(&f, "merge1", "r", "y", swap_heads, 4);
        output(&f, "y");
        const gt_node *n = fused(&f);
        cr_assert_eq(f.graph->order.count, 1);
        cr_assert_eq(n->input_count, 1);
        check_operand(n, "q", (int64_t[]){0, 0, 3, 1, 4, 2, 0});
        check_operand(n, "k", (int64_t[]){0, 0, 3, 1, 4, 2, 1});
        check_operand(n, "v", (int64_t[]){0, 0, 3, 1, 4, 2, 2});
        cr_assert_eq(gt_node_float(n, "scale", 0), 0.25f);
        fixture_free(&f);
    }
}

/* What somebody else reads is read from where it is, not taken. */
Test(rewrite_attention, shared_operands_stay)
{
    fixture f;
    begin_split(&f);
    softmax(&f, "s", "p");
    node(&f, "result1", "MatMul", "p vh", "y");
    node(&f, "other1", "Neg", "kh", "z");
    output(&f, "y");
    output(&f, "z");
    const gt_node *n = fused(&f);
    check_operand(n, "k", (int64_t[]){1, 0, 1, 3, 2, -1, 0});
    cr_assert_eq(n->inputs[1], value(&f, "kh"));
    cr_assert_eq(gt_node_int(n, "merged", 0), 0);
    cr_assert(find(&f, "split_k"));
    fixture_free(&f);
}

Test(rewrite_attention, three_axes)
{
    fixture f;
    fixture_init(&f);
    input(&f, "q", GANTRY_FLOAT32, "n,5,4");
    input(&f, "kt", GANTRY_FLOAT32, "n,4,7");
    input(&f, "v", GANTRY_FLOAT32, "n,7,4");
    node(&f, "scores1", "MatMul", "q kt", "s");
    softmax(&f, "s", "p");
    node(&f, "result1", "MatMul", "p v", "y");
    output(&f, "y");
    const gt_node *n = fused(&f);
    check_operand(n, "q", (int64_t[]){0, -1, 0, 1, 2, -1, 0});
    check_operand(n, "k", (int64_t[]){1, -1, 0, 2, 1, -1, 0});
    cr_assert_eq(output_value(&f, 0)->rank, 3);
    fixture_free(&f);
}

static void check_miss(const char *guard, void (*build)(fixture *f))
{
    fixture f;
    begin_split(&f);
    build(&f);
    output(&f, "y");
    simplify(&f);
    cr_assert_eq(count_op(&f, "Attention"), 0, "%s", guard);
    CHECK_STATE(&f, "attention", "softmax1", "skipped", guard);
    fixture_free(&f);
}

static void scores_are_read_twice(fixture *f)
{
    softmax(f, "s", "p");
    node(f, "result1", "MatMul", "p vh", "y");
    node(f, "other1", "Neg", "s", "z");
    output(f, "z");
}

static void scaled_behind_the_mask(fixture *f)
{
    input(f, "mask", GANTRY_FLOAT32, "2,1,1,7");
    node(f, "mask1", "Add", "s mask", "masked");
    node(f, "scale1", "Div", "masked root", "scaled");
    softmax(f, "scaled", "p");
    node(f, "result1", "MatMul", "p vh", "y");
}

static void over_another_axis(fixture *f)
{
    uint32_t id = node(f, "softmax1", "Softmax", "s", "p");
    CHECK(f, gt_node_set_int(f->graph, id, "axis", 2, &f->error));
    node(f, "result1", "MatMul", "p vh", "y");
}

static void scores_are_an_output(fixture *f)
{
    softmax(f, "s", "p");
    node(f, "result1", "MatMul", "p vh", "y");
    output(f, "s");
}

Test(rewrite_attention, near_misses)
{
    check_miss("second_consumer", scores_are_read_twice);
    check_miss("order", scaled_behind_the_mask);
    check_miss("axis", over_another_axis);
    check_miss("graph_output", scores_are_an_output);
}

Test(rewrite_attention, is_switched_off_by_name)
{
    static const char *const names[] = {"attention"};
    fixture f;
    begin_split(&f);
    softmax(&f, "s", "p");
    node(&f, "result1", "MatMul", "p vh", "y");
    output(&f, "y");
    f.options.disabled = names;
    f.options.disabled_count = 1;
    simplify(&f);
    cr_assert_eq(count_op(&f, "Attention"), 0);
    cr_assert_eq(count_op(&f, "MatMul"), 2);
    fixture_free(&f);
}
