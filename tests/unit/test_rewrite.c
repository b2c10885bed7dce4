/* The rewrites that clean up: dead code, identities, transposes, common subexpressions, folding, Ifs with a
 * known condition; and the driver's promises. */
#include "rewrite_fixture.h"

static const int64_t perm_021[] = {0, 2, 1};

static void set_ints(fixture *f, uint32_t id, const char *name, const int64_t *ints, uint32_t count)
{
    CHECK(f, gt_node_set_ints(f->graph, id, name, ints, count, &f->error));
}

Test(rewrite, table_names_are_unique_and_explained)
{
    uint32_t count;
    const gt_rewrite_rule *rules = gt_rewrite_table(&count);
    cr_assert_geq(count, 14);
    for (uint32_t a = 0; a < count; a++) {
        cr_assert(rules[a].what[0] && rules[a].apply);
        for (uint32_t b = 0; b < a; b++)
            cr_assert_str_neq(rules[a].name, rules[b].name);
    }
}

/* docs/rewrites.md has a row for each rule, and the sentence of the table in it. */
Test(rewrite, table_is_documented)
{
    static char text[65536];
    FILE *file = fopen("docs/rewrites.md", "r");
    cr_assert(file, "run from the folder of the sources");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    uint32_t count;
    const gt_rewrite_rule *rules = gt_rewrite_table(&count);
    for (uint32_t k = 0; k < count; k++) {
        char row[256];
        snprintf(row, sizeof row, "| `%s` | %s |", rules[k].name, rules[k].what);
        cr_assert(strstr(text, row), "docs/rewrites.md has no row '%s'", row);
    }
}

Test(rewrite, disabled_as_a_whole_changes_nothing)
{
    fixture f;
    fixture_init(&f);
    f.options.enabled = false;
    input(&f, "x", GANTRY_FLOAT32, "2,3");
    node(&f, "dead1", "Neg", "x", "d");
    node(&f, "id1", "Identity", "x", "a");
    node(&f, "neg1", "Neg", "a", "y");
    output(&f, "y");
    simplify(&f);
    cr_assert_eq(f.graph->order.count, 3);
    cr_assert_eq(f.model->rewrites.count, 0);
    cr_assert_eq(named(&f, "y")->rank, 2, "it infers all the same");
    fixture_free(&f);
}

Test(rewrite, dead_code_goes_against_the_order)
{
    fixture f;
    fixture_init(&f);
    input(&f, "x", GANTRY_FLOAT32, "2,3");
    node(&f, "neg1", "Neg", "x", "a");
    node(&f, "neg2", "Neg", "a", "b");
    node(&f, "neg3", "Neg", "b", "c");
    node(&f, "relu1", "Relu", "a", "y");
    output(&f, "y");
    simplify(&f);
    cr_assert_eq(f.graph->order.count, 2);
    cr_assert_str_eq(removed_by(&f, "neg3"), "dead");
    cr_assert_str_eq(removed_by(&f, "neg2"), "dead");
    cr_assert_str_eq(removed_by(&f, "neg1"), "");
    CHECK_STATE(&f, "dead_code", "neg2", "applied", "");
    cr_assert_eq(record(&f, "dead_code", "neg2")->removed_count, 1);
    cr_assert_str_eq(record(&f, "dead_code", "neg2")->removed[0], "neg2");
    fixture_free(&f);
}

Test(rewrite, rules_are_disabled_by_name)
{
    fixture f;
    fixture_init(&f);
    const char *off[] = {"identity", "cse"};
    f.options.disabled = off;
    f.options.disabled_count = 2;
    input(&f, "x", GANTRY_FLOAT32, "2,3");
    node(&f, "id1", "Identity", "x", "a");
    node(&f, "neg1", "Neg", "a", "b");
    node(&f, "neg2", "Neg", "a", "c");
    node(&f, "mul1", "Mul", "b c", "y");
    node(&f, "dead1", "Neg", "x", "d");
    output(&f, "y");
    simplify(&f);
    cr_assert(find(&f, "id1") && find(&f, "neg2"));
    cr_assert_null(find(&f, "dead1"));
    fixture_free(&f);
}

Test(rewrite, identities_vanish_and_outputs_keep_their_names)
{
    fixture f;
    fixture_init(&f);
    float zero = -0.0f, one = 1;
    int64_t pads[] = {0, 0, 0, 0}, starts[] = {0}, ends[] = {INT64_MAX};
    input(&f, "x", GANTRY_FLOAT32, "n,3");
    constant(&f, "zero", GANTRY_FLOAT32, "", &zero);
    constant(&f, "one", GANTRY_FLOAT32, "1", &one);
    constant(&f, "pads", GANTRY_INT64, "4", pads);
    constant(&f, "starts", GANTRY_INT64, "1", starts);
    constant(&f, "ends", GANTRY_INT64, "1", ends);
    node(&f, "neg1", "Neg", "x", "a");
    node(&f, "id1", "Identity", "a", "b");
    node(&f, "drop1", "Dropout", "b", "c");
    uint32_t cast = node(&f, "cast1", "Cast", "c", "d");
    CHECK(&f, gt_node_set_int(f.graph, cast, "to", GANTRY_FLOAT32, &f.error));
    node(&f, "mul1", "Mul", "one d", "e");
    node(&f, "add1", "Add", "e zero", "g");
    node(&f, "pad1", "Pad", "g pads", "h");
    node(&f, "slice1", "Slice", "h starts ends", "i");
    uint32_t concat = node(&f, "concat1", "Concat", "i", "y");
    CHECK(&f, gt_node_set_int(f.graph, concat, "axis", 0, &f.error));
    output(&f, "y");
    simplify(&f);
    cr_assert_eq(f.graph->order.count, 1, "%u nodes are left", f.graph->order.count);
    cr_assert_str_eq(output_value(&f, 0)->name, "y");
    cr_assert_str_eq(f.graph->nodes.data[output_value(&f, 0)->producer]->name, "neg1");
    cr_assert_str_eq(removed_by(&f, "concat1"), "identity");
    cr_assert_str_eq(removed_by(&f, "slice1"), "identity");
    fixture_free(&f);
}

Test(rewrite, near_identities_stay)
{
    fixture f;
    fixture_init(&f);
    float zero = 0, ones[] = {1, 1};
    int64_t starts[] = {-1}, ends[] = {INT64_MIN}, axes[] = {1}, steps[] = {-1};
    input(&f, "x", GANTRY_FLOAT32, "n,1");
    constant(&f, "zero", GANTRY_FLOAT32, "", &zero);
    constant(&f, "ones", GANTRY_FLOAT32, "1,2", ones);
    constant(&f, "starts", GANTRY_INT64, "1", starts);
    constant(&f, "ends", GANTRY_INT64, "1", ends);
    constant(&f, "axes", GANTRY_INT64, "1", axes);
    constant(&f, "steps", GANTRY_INT64, "1", steps);
    node(&f, "neg1", "Neg", "x", "a");
    node(&f, "add1", "Add", "a zero", "b");                       /* -0 + 0 is +0 */
    node(&f, "mul1", "Mul", "b ones", "c");                       /* broadcasts */
    node(&f, "slice1", "Slice", "c starts ends axes steps", "y"); /* reverses */
    node(&f, "id1", "Identity", "x", "z");                        /* names an output */
    output(&f, "y");
    output(&f, "z");
    simplify(&f);
    cr_assert(find(&f, "add1") && find(&f, "mul1") && find(&f, "slice1") && find(&f, "id1"));
    CHECK_STATE(&f, "identity", "add1", "skipped", "negative_zero");
    fixture_free(&f);
}

Test(rewrite, reshapes_that_return_vanish)
{
    fixture f;
    fixture_init(&f);
    int64_t axes[] = {1};
    input(&f, "x", GANTRY_FLOAT32, "n,4");
    constant(&f, "axes", GANTRY_INT64, "1", axes);
    node(&f, "neg1", "Neg", "x", "a");
    node(&f, "unsqueeze1", "Unsqueeze", "a axes", "b");
    node(&f, "squeeze1", "Squeeze", "b axes", "c");
    node(&f, "neg2", "Neg", "c", "y");
    output(&f, "y");
    simplify(&f);
    cr_assert_eq(f.graph->order.count, 2);
    cr_assert_str_eq(removed_by(&f, "unsqueeze1"), "identity");
    cr_assert_str_eq(removed_by(&f, "squeeze1"), "identity");
    fixture_free(&f);
}

Test(rewrite, transposes_cancel_and_merge)
{
    fixture f;
    fixture_init(&f);
    const int64_t rotate[] = {1, 2, 0};
    input(&f, "x", GANTRY_FLOAT32, "2,3,n");
    node(&f, "neg1", "Neg", "x", "a");
    set_ints(&f, node(&f, "t1", "Transpose", "a", "b"), "perm", perm_021, 3);
    set_ints(&f, node(&f, "t2", "Transpose", "b", "c"), "perm", perm_021, 3);
    set_ints(&f, node(&f, "t3", "Transpose", "c", "d"), "perm", rotate, 3);
    set_ints(&f, node(&f, "t4", "Transpose", "d", "y"), "perm", perm_021, 3);
    output(&f, "y");
    simplify(&f);
    cr_assert_eq(f.graph->order.count, 2);
    const gt_node *merged = find(&f, "t4");
    uint32_t count;
    const int64_t *perm = gt_node_ints(merged, "perm", &count);
    cr_assert_eq(count, 3);
    cr_assert(perm[0] == 1 && perm[1] == 0 && perm[2] == 2);
    cr_assert_str_eq(lineage(&f, merged), "t3 t4");
    cr_assert_str_eq(merged->lineage.pass, "identity");
    cr_assert_str_eq(removed_by(&f, "t1"), "identity");
    cr_assert_str_eq(removed_by(&f, "t3"), "", "it lives on in t4");
    fixture_free(&f);
}

Test(rewrite, cse_merges_equal_nodes_only)
{
    fixture f;
    fixture_init(&f);
    float two[] = {2}, three[] = {3};
    input(&f, "x", GANTRY_FLOAT32, "2");
    input(&f, "z", GANTRY_FLOAT32, "2");
    constant(&f, "c1", GANTRY_FLOAT32, "1", two);
    constant(&f, "c2", GANTRY_FLOAT32, "1", two);
    constant(&f, "c3", GANTRY_FLOAT32, "1", three);
    node(&f, "add1", "Add", "x z", "a");
    node(&f, "add2", "Add", "z x", "b");  /* operands swapped */
    node(&f, "mul1", "Mul", "a c1", "c"); /* equal bytes, another constant */
    node(&f, "mul2", "Mul", "b c2", "d");
    node(&f, "mul3", "Mul", "b c3", "e"); /* other bytes */
    node(&f, "sub1", "Sub", "x z", "g");  /* not commutative */
    node(&f, "sub2", "Sub", "z x", "h");
    node(&f, "r1", "RandomNormalLike", "x", "i");
    node(&f, "r2", "RandomNormalLike", "x", "j");
    node(&f, "sum", "Sum", "c d e g h i j", "y");
    output(&f, "y");
    simplify(&f);
    cr_assert_eq(count_op(&f, "Add"), 1);
    cr_assert_eq(count_op(&f, "Mul"), 2);
    cr_assert_eq(count_op(&f, "Sub"), 2);
    cr_assert_eq(count_op(&f, "RandomNormalLike"), 2);
    cr_assert_str_eq(removed_by(&f, "mul2"), "cse");
    CHECK_STATE(&f, "cse", "mul1", "applied", "");
    fixture_free(&f);
}

Test(rewrite, cse_keeps_names_of_outputs)
{
    fixture f;
    fixture_init(&f);
    input(&f, "x", GANTRY_FLOAT32, "2");
    node(&f, "neg1", "Neg", "x", "a");
    node(&f, "neg2", "Neg", "x", "y");
    node(&f, "relu1", "Relu", "a", "z");
    output(&f, "y");
    output(&f, "z");
    simplify(&f);
    cr_assert_eq(count_op(&f, "Neg"), 1);
    cr_assert_str_eq(output_value(&f, 0)->name, "y");
    cr_assert_str_eq(output_value(&f, 1)->name, "z");
    fixture_free(&f);
}

/* ---- folding */

/* More elements than inference follows one by one, and these are known. */
#define MANY "100"
static const float many[100] = {1, 2, 3, 4};

static void constant_chain(fixture *f)
{
    input(f, "x", GANTRY_FLOAT32, MANY);
    constant(f, "w", GANTRY_FLOAT32, MANY, many);
    node(f, "neg1", "Neg", "w", "a");
    node(f, "add1", "Add", "a w", "b");
    node(f, "add2", "Add", "b a", "c");
    node(f, "add3", "Add", "x c", "y");
    output(f, "y");
}

Test(rewrite, constants_fold_through_the_evaluator)
{
    fixture f;
    fixture_init(&f);
    constant_chain(&f);
    uint32_t before = f.model->constants.count;
    simplify(&f);
    cr_assert_eq(f.graph->order.count, 1);
    const float *c = floats_of(&f, f.graph->values.data[find(&f, "add3")->inputs[1]]);
    cr_assert(c[0] == -1 && c[3] == -4);
    cr_assert_eq(f.evaluations, 3);
    cr_assert_eq(f.model->constants.count, before + 1, "results inside the chain are not kept");
    cr_assert_str_eq(removed_by(&f, "neg1"), "constant_folded");
    cr_assert_str_eq(removed_by(&f, "add2"), "constant_folded");
    cr_assert_eq(f.model->notes.count, 0);
    fixture_free(&f);
}

Test(rewrite, without_folding_each_node_of_the_chain_has_a_note)
{
    fixture f;
    fixture_init(&f);
    f.options.fold = false;
    constant_chain(&f);
    simplify(&f);
    cr_assert_eq(f.graph->order.count, 4);
    cr_assert_eq(f.evaluations, 0);
    cr_assert_eq(f.model->notes.count, 3);
    cr_assert_str_eq(f.model->notes.data[2].code, "constant_recomputed");
    cr_assert_str_eq(f.model->notes.data[2].node, "add2");
    fixture_free(&f);
}

Test(rewrite, folding_stops_at_the_cap)
{
    fixture f;
    fixture_init(&f);
    float w[] = {1};
    int64_t shape[] = {1024};
    f.options.fold_limit_bytes = 1024;
    input(&f, "x", GANTRY_FLOAT32, "1024");
    constant(&f, "w", GANTRY_FLOAT32, "1", w);
    constant(&f, "shape", GANTRY_INT64, "1", shape);
    node(&f, "neg1", "Neg", "w", "a");
    node(&f, "expand1", "Expand", "a shape", "b"); /* 4096 bytes out of 12 */
    node(&f, "add1", "Add", "b x", "y");
    output(&f, "y");
    simplify(&f);
    cr_assert_null(find(&f, "neg1"));
    cr_assert(find(&f, "expand1"));
    cr_assert_eq(f.model->notes.count, 1);
    cr_assert_str_eq(f.model->notes.data[0].node, "expand1");
    fixture_free(&f);
}

/* 1 MiB and more: a transposed copy would double the model; packing takes either order. */
Test(rewrite, a_large_weight_behind_a_transpose_stays)
{
    static float w[512 * 512];
    for (unsigned other = 0; other < 2; other++) {
        fixture f;
        fixture_init(&f);
        input(&f, "x", GANTRY_FLOAT32, "n,512");
        constant(&f, "w", GANTRY_FLOAT32, "512,512", w);
        node(&f, "transpose1", "Transpose", "w", "t");
        node(&f, "matmul1", "MatMul", "x t", "y");
        output(&f, "y");
        if (other) {
            node(&f, "sqrt1", "Sqrt", "t", "z");
            output(&f, "z");
        }
        simplify(&f);
        cr_assert_eq(f.evaluations, other, "another reader wants it folded");
        cr_assert(find(&f, "transpose1"));
        cr_assert_eq(f.model->notes.count, 0);
        fixture_free(&f);
    }
}

Test(rewrite, what_cannot_be_evaluated_stays_and_is_tried_once)
{
    fixture f;
    fixture_init(&f);
    input(&f, "x", GANTRY_FLOAT32, MANY);
    constant(&f, "w", GANTRY_FLOAT32, MANY, many);
    node(&f, "sqrt1", "Sqrt", "w", "a");
    node(&f, "neg1", "Neg", "x", "b");
    node(&f, "neg2", "Neg", "x", "c");
    node(&f, "add1", "Add", "a b", "d");
    node(&f, "add2", "Add", "c d", "y");
    output(&f, "y");
    simplify(&f);
    cr_assert(find(&f, "sqrt1"));
    cr_assert_eq(f.evaluations, 1);
    CHECK_STATE(&f, "fold", "sqrt1", "skipped", "evaluate_failed");
    cr_assert_eq(f.model->notes.count, 0);
    fixture_free(&f);
}

Test(rewrite, dequantized_weights_stay)
{
    fixture f;
    fixture_init(&f);
    int8_t w[] = {1, 2};
    input(&f, "x", GANTRY_FLOAT32, "2");
    constant(&f, "w", GANTRY_INT8, "2", w);
    number(&f, "s", 0.5f);
    node(&f, "dq1", "DequantizeLinear", "w s", "a");
    node(&f, "add1", "Add", "a x", "y");
    output(&f, "y");
    simplify(&f);
    cr_assert(find(&f, "dq1"));
    cr_assert_eq(f.evaluations, 0);
    cr_assert_eq(f.model->notes.count, 0);
    fixture_free(&f);
}

Test(rewrite, shapes_of_static_tensors_are_constants)
{
    fixture f;
    fixture_init(&f);
    input(&f, "x", GANTRY_FLOAT32, "2,3");
    input(&f, "z", GANTRY_FLOAT32, "n,3");
    node(&f, "shape1", "Shape", "x", "s");
    node(&f, "shape2", "Shape", "z", "t");
    node(&f, "mul1", "Mul", "s t", "y");
    output(&f, "y");
    simplify(&f);
    cr_assert_null(find(&f, "shape1"));
    cr_assert(find(&f, "shape2"), "n is not known");
    cr_assert_str_eq(removed_by(&f, "shape1"), "shape_folded");
    const gt_value *s = named(&f, "s");
    const int64_t *dims = f.model->constants.data[s->constant].data;
    cr_assert(dims[0] == 2 && dims[1] == 3);
    cr_assert_eq(f.evaluations, 0);
    fixture_free(&f);
}

/* ---- tables */

static void table_of_rows(fixture *f, const char *scale_shape)
{
    static const int8_t table[400];
    static const float scale[100];
    f->options.fold_limit_bytes = 16;
    input(f, "ids", GANTRY_INT64, "n,2");
    constant(f, "table", GANTRY_INT8, "100,4", table);
    constant(f, "scale", GANTRY_FLOAT32, scale_shape, scale);
    CHECK(f,
          gt_node_set_int(f->graph, node(f, "cast1", "Cast", "table", "a"), "to", GANTRY_FLOAT32, &f->error));
    node(f, "mul1", "Mul", "scale a", "b");
    node(f, "gather1", "Gather", "b ids", "y");
    output(f, "y");
    simplify(f);
}

Test(rewrite, rows_are_looked_up_before_they_are_computed_on)
{
    static const char *const shapes[] = {"", "4", "1,4"};
    for (int k = 0; k < 3; k++) {
        fixture f;
        fixture_init(&f);
        table_of_rows(&f, shapes[k]);
        cr_assert_eq(f.graph->order.count, 3);
        cr_assert_eq(find(&f, "gather1")->inputs[0], value(&f, "table"));
        cr_assert_eq(f.graph->values.data[find(&f, "gather1")->outputs[0]]->dtype, GANTRY_INT8);
        cr_assert_eq(find(&f, "cast1")->inputs[0], find(&f, "gather1")->outputs[0]);
        cr_assert_str_eq(output_value(&f, 0)->name, "y");
        cr_assert_str_eq(f.graph->nodes.data[output_value(&f, 0)->producer]->name, "mul1");
        cr_assert_eq(output_value(&f, 0)->rank, 3);
        cr_assert_eq(f.model->notes.count, 0, "nothing is computed on the whole table");
        fixture_free(&f);
    }
}

Test(rewrite, a_scale_for_each_row_keeps_the_order)
{
    fixture f;
    fixture_init(&f);
    table_of_rows(&f, "100,1");
    cr_assert_eq(f.graph->nodes.data[output_value(&f, 0)->producer]->op_type[0], 'G');
    cr_assert_null(record(&f, "gather_first", "gather1"));
    fixture_free(&f);
}

/* ---- bodies */

/* if1 with two bodies that read the outer value "a", by capture. */
static gt_graph *branch(fixture *f, uint32_t if_node, const char *role, const char *op, const char *node_name)
{
    gt_graph *body, *outer = f->graph;
    CHECK(f, gt_graph_create(f->model, outer, if_node, role, role, &body, &f->error));
    uint32_t outer_a = value(f, "a");
    f->graph = body;
    named(f, "a")->captured = outer_a;
    node(f, node_name, op, "a", "out");
    output(f, "out");
    f->graph = outer;
    return body;
}

static void build_if(fixture *f, const char *condition)
{
    char inputs[32];
    snprintf(inputs, sizeof inputs, "%s", condition);
    input(f, "x", GANTRY_FLOAT32, "4");
    node(f, "neg1", "Neg", "x", "a");
    uint32_t id = node(f, "if1", "If", inputs, "y");
    gt_node *n = f->graph->nodes.data[id];
    n->bodies = gt_arena_alloc(&f->model->arena, 2 * sizeof *n->bodies);
    n->bodies[0] = (gt_body){"then_branch", branch(f, id, "then_branch", "Relu", "relu1")};
    n->bodies[1] = (gt_body){"else_branch", branch(f, id, "else_branch", "Abs", "abs1")};
    n->body_count = 2;
    output(f, "y");
}

Test(rewrite, an_if_with_a_known_condition_is_inlined)
{
    fixture f;
    fixture_init(&f);
    bool no = false;
    constant(&f, "no", GANTRY_BOOL, "", &no);
    build_if(&f, "no");
    simplify(&f);
    cr_assert_eq(f.graph->order.count, 2);
    cr_assert(find(&f, "abs1"));
    cr_assert_str_eq(output_value(&f, 0)->name, "y");
    cr_assert_str_eq(removed_by(&f, "relu1"), "branch_not_taken");
    cr_assert_str_eq(removed_by(&f, "abs1"), "");
    fixture_free(&f);
}

Test(rewrite, captures_keep_nodes_alive_and_constants_fold_inside_bodies)
{
    fixture f;
    fixture_init(&f);
    float w[] = {1, 2, 3, 4};
    constant(&f, "w", GANTRY_FLOAT32, "4", w);
    input(&f, "condition", GANTRY_BOOL, "");
    node(&f, "neg0", "Neg", "w", "b");
    build_if(&f, "condition");
    gt_graph *body = find(&f, "if1") ? NULL : f.graph->nodes.data[f.graph->nodes.count - 1]->bodies[0].graph;
    body = body ? body : find(&f, "if1")->bodies[0].graph;
    uint32_t outer_b = value(&f, "b");
    f.graph = body;
    named(&f, "b")->captured = outer_b;
    node(&f, "add1", "Add", "b b", "c");
    node(&f, "add2", "Add", "c out", "final");
    named(&f, "out")->is_output = false;
    named(&f, "final")->is_output = true;
    body->outputs.data[0] = value(&f, "final");
    f.graph = f.model->root;
    simplify(&f);
    cr_assert(find(&f, "neg1"), "both branches capture its result");
    cr_assert_null(find(&f, "neg0"));
    f.graph = body;
    cr_assert_null(find(&f, "add1"));
    cr_assert_eq(floats_of(&f, named(&f, "c"))[3], -8);
    fixture_free(&f);
}

/* A long chain in which every node changes must not cost nodes times changes. */
Test(rewrite, many_rewrites_take_linear_time, .timeout = 20)
{
    fixture f;
    fixture_init(&f);
    input(&f, "x", GANTRY_FLOAT32, "4");
    char name[32], from[32], to[32];
    for (int k = 0; k < 20000; k++) {
        snprintf(name, sizeof name, "id%d", k);
        snprintf(from, sizeof from, k ? "v%d" : "x", k);
        snprintf(to, sizeof to, "v%d", k + 1);
        uint32_t in = value(&f, from), out = value(&f, to), id;
        CHECK(&f, gt_graph_add_node(f.graph, name, "", k % 2 ? "Identity" : "Neg", 17, 1, &in, 1, &out, &id,
                                    &f.error));
    }
    node(&f, "last", "Relu", "v20000", "y");
    output(&f, "y");
    simplify(&f);
    cr_assert_eq(f.graph->order.count, 10001);
    fixture_free(&f);
}

Test(rewrite, running_out_of_memory_anywhere_is_a_status)
{
    for (int64_t after = 0;; after++) {
        fixture f;
        fixture_init(&f);
        constant_chain(&f);
        node(&f, "t1", "Identity", "c", "unused");
        CHECK(&f, gt_infer_inputs(f.model, NULL, &f.error));
        atomic_store(&f.allocator.fail_after, after);
        gantry_status status = gt_simplify(f.graph, &f.options, &f.error);
        bool reached = atomic_load(&f.allocator.fail_after) < 0;
        fixture_free(&f);
        if (!reached)
            break;
        cr_assert(status == GANTRY_RESOURCE || status == GANTRY_OK, "status %d", status);
    }
}
