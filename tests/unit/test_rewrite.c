/* The rewrites that clean up: dead code, identities, transposes, common subexpressions, folding, Ifs with a
 * known condition; and the driver's promises. */
#include "../support/rewrite_fixture.h"

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

Test(rewrite, disabled_as_a_whole_changes_nothing, .init = begin, .fini = end)
{
    fix.options.enabled = false;
    input(&fix, "x", GANTRY_FLOAT32, "2,3");
    node(&fix, "dead1", "Neg", "x", "d");
    node(&fix, "id1", "Identity", "x", "a");
    node(&fix, "neg1", "Neg", "a", "y");
    simplify_to(&fix, "y");
    cr_assert_eq(fix.graph->order.count, 3);
    cr_assert_eq(fix.model->rewrites.count, 0);
    cr_assert_eq(named(&fix, "y")->rank, 2, "it infers all the same");
}

Test(rewrite, dead_code_goes_against_the_order, .init = begin, .fini = end)
{
    input(&fix, "x", GANTRY_FLOAT32, "2,3");
    node(&fix, "neg1", "Neg", "x", "a");
    node(&fix, "neg2", "Neg", "a", "b");
    node(&fix, "neg3", "Neg", "b", "c");
    node(&fix, "relu1", "Relu", "a", "y");
    simplify_to(&fix, "y");
    cr_assert_eq(fix.graph->order.count, 2);
    cr_assert_str_eq(removed_by(&fix, "neg3"), "dead");
    cr_assert_str_eq(removed_by(&fix, "neg2"), "dead");
    cr_assert_str_eq(removed_by(&fix, "neg1"), "");
    CHECK_STATE(&fix, "dead_code", "neg2", "applied", "");
    cr_assert_eq(record(&fix, "dead_code", "neg2")->removed_count, 1);
    cr_assert_str_eq(record(&fix, "dead_code", "neg2")->removed[0], "neg2");
}

Test(rewrite, rules_are_disabled_by_name, .init = begin, .fini = end)
{
    const char *off[] = {"identity", "cse"};
    fix.options.disabled = off;
    fix.options.disabled_count = 2;
    input(&fix, "x", GANTRY_FLOAT32, "2,3");
    node(&fix, "id1", "Identity", "x", "a");
    node(&fix, "neg1", "Neg", "a", "b");
    node(&fix, "neg2", "Neg", "a", "c");
    node(&fix, "mul1", "Mul", "b c", "y");
    node(&fix, "dead1", "Neg", "x", "d");
    simplify_to(&fix, "y");
    cr_assert(find(&fix, "id1") && find(&fix, "neg2"));
    cr_assert_null(find(&fix, "dead1"));
}

Test(rewrite, identities_vanish_and_outputs_keep_their_names, .init = begin, .fini = end)
{
    float zero = -0.0f, one = 1;
    int64_t pads[] = {0, 0, 0, 0}, starts[] = {0}, ends[] = {INT64_MAX};
    input(&fix, "x", GANTRY_FLOAT32, "n,3");
    constant(&fix, "zero", GANTRY_FLOAT32, "", &zero);
    constant(&fix, "one", GANTRY_FLOAT32, "1", &one);
    constant(&fix, "pads", GANTRY_INT64, "4", pads);
    constant(&fix, "starts", GANTRY_INT64, "1", starts);
    constant(&fix, "ends", GANTRY_INT64, "1", ends);
    node(&fix, "neg1", "Neg", "x", "a");
    node(&fix, "id1", "Identity", "a", "b");
    node(&fix, "drop1", "Dropout", "b", "c");
    uint32_t cast = node(&fix, "cast1", "Cast", "c", "d");
    CHECK(&fix, gt_node_set_int(fix.graph, cast, "to", GANTRY_FLOAT32, &fix.error));
    node(&fix, "mul1", "Mul", "one d", "e");
    node(&fix, "add1", "Add", "e zero", "g");
    node(&fix, "pad1", "Pad", "g pads", "h");
    node(&fix, "slice1", "Slice", "h starts ends", "i");
    uint32_t concat = node(&fix, "concat1", "Concat", "i", "y");
    CHECK(&fix, gt_node_set_int(fix.graph, concat, "axis", 0, &fix.error));
    simplify_to(&fix, "y");
    cr_assert_eq(fix.graph->order.count, 1, "%u nodes are left", fix.graph->order.count);
    cr_assert_str_eq(output_value(&fix, 0)->name, "y");
    cr_assert_str_eq(fix.graph->nodes.data[output_value(&fix, 0)->producer]->name, "neg1");
    cr_assert_str_eq(removed_by(&fix, "concat1"), "identity");
    cr_assert_str_eq(removed_by(&fix, "slice1"), "identity");
}

Test(rewrite, near_identities_stay, .init = begin, .fini = end)
{
    float zero = 0, ones[] = {1, 1};
    int64_t starts[] = {-1}, ends[] = {INT64_MIN}, axes[] = {1}, steps[] = {-1};
    input(&fix, "x", GANTRY_FLOAT32, "n,1");
    constant(&fix, "zero", GANTRY_FLOAT32, "", &zero);
    constant(&fix, "ones", GANTRY_FLOAT32, "1,2", ones);
    constant(&fix, "starts", GANTRY_INT64, "1", starts);
    constant(&fix, "ends", GANTRY_INT64, "1", ends);
    constant(&fix, "axes", GANTRY_INT64, "1", axes);
    constant(&fix, "steps", GANTRY_INT64, "1", steps);
    node(&fix, "neg1", "Neg", "x", "a");
    node(&fix, "add1", "Add", "a zero", "b");                       /* -0 + 0 is +0 */
    node(&fix, "mul1", "Mul", "b ones", "c");                       /* broadcasts */
    node(&fix, "slice1", "Slice", "c starts ends axes steps", "y"); /* reverses */
    node(&fix, "id1", "Identity", "x", "z");                        /* names an output */
    output(&fix, "y");
    output(&fix, "z");
    simplify(&fix);
    cr_assert(find(&fix, "add1") && find(&fix, "mul1") && find(&fix, "slice1") && find(&fix, "id1"));
    CHECK_STATE(&fix, "identity", "add1", "skipped", "negative_zero");
}

Test(rewrite, reshapes_that_return_vanish, .init = begin, .fini = end)
{
    int64_t axes[] = {1};
    input(&fix, "x", GANTRY_FLOAT32, "n,4");
    constant(&fix, "axes", GANTRY_INT64, "1", axes);
    node(&fix, "neg1", "Neg", "x", "a");
    node(&fix, "unsqueeze1", "Unsqueeze", "a axes", "b");
    node(&fix, "squeeze1", "Squeeze", "b axes", "c");
    node(&fix, "neg2", "Neg", "c", "y");
    simplify_to(&fix, "y");
    cr_assert_eq(fix.graph->order.count, 2);
    cr_assert_str_eq(removed_by(&fix, "unsqueeze1"), "identity");
    cr_assert_str_eq(removed_by(&fix, "squeeze1"), "identity");
}

Test(rewrite, transposes_cancel_and_merge, .init = begin, .fini = end)
{
    const int64_t rotate[] = {1, 2, 0};
    input(&fix, "x", GANTRY_FLOAT32, "2,3,n");
    node(&fix, "neg1", "Neg", "x", "a");
    set_ints(&fix, node(&fix, "t1", "Transpose", "a", "b"), "perm", perm_021, 3);
    set_ints(&fix, node(&fix, "t2", "Transpose", "b", "c"), "perm", perm_021, 3);
    set_ints(&fix, node(&fix, "t3", "Transpose", "c", "d"), "perm", rotate, 3);
    set_ints(&fix, node(&fix, "t4", "Transpose", "d", "y"), "perm", perm_021, 3);
    simplify_to(&fix, "y");
    cr_assert_eq(fix.graph->order.count, 2);
    const gt_node *merged = find(&fix, "t4");
    uint32_t count;
    const int64_t *perm = gt_node_ints(merged, "perm", &count);
    cr_assert_eq(count, 3);
    cr_assert(perm[0] == 1 && perm[1] == 0 && perm[2] == 2);
    cr_assert_str_eq(lineage(&fix, merged), "t3 t4");
    cr_assert_str_eq(merged->lineage.pass, "identity");
    cr_assert_str_eq(removed_by(&fix, "t1"), "identity");
    cr_assert_str_eq(removed_by(&fix, "t3"), "", "it lives on in t4");
}

Test(rewrite, cse_merges_equal_nodes_only, .init = begin, .fini = end)
{
    float two[] = {2}, three[] = {3};
    input(&fix, "x", GANTRY_FLOAT32, "2");
    input(&fix, "z", GANTRY_FLOAT32, "2");
    constant(&fix, "c1", GANTRY_FLOAT32, "1", two);
    constant(&fix, "c2", GANTRY_FLOAT32, "1", two);
    constant(&fix, "c3", GANTRY_FLOAT32, "1", three);
    node(&fix, "add1", "Add", "x z", "a");
    node(&fix, "add2", "Add", "z x", "b");  /* operands swapped */
    node(&fix, "mul1", "Mul", "a c1", "c"); /* equal bytes, another constant */
    node(&fix, "mul2", "Mul", "b c2", "d");
    node(&fix, "mul3", "Mul", "b c3", "e"); /* other bytes */
    node(&fix, "sub1", "Sub", "x z", "g");  /* not commutative */
    node(&fix, "sub2", "Sub", "z x", "h");
    node(&fix, "r1", "RandomNormalLike", "x", "i");
    node(&fix, "r2", "RandomNormalLike", "x", "j");
    node(&fix, "sum", "Sum", "c d e g h i j", "y");
    simplify_to(&fix, "y");
    cr_assert_eq(count_op(&fix, "Add"), 1);
    cr_assert_eq(count_op(&fix, "Mul"), 2);
    cr_assert_eq(count_op(&fix, "Sub"), 2);
    cr_assert_eq(count_op(&fix, "RandomNormalLike"), 2);
    cr_assert_str_eq(removed_by(&fix, "mul2"), "cse");
    CHECK_STATE(&fix, "cse", "mul1", "applied", "");
}

Test(rewrite, cse_keeps_names_of_outputs, .init = begin, .fini = end)
{
    input(&fix, "x", GANTRY_FLOAT32, "2");
    node(&fix, "neg1", "Neg", "x", "a");
    node(&fix, "neg2", "Neg", "x", "y");
    node(&fix, "relu1", "Relu", "a", "z");
    output(&fix, "y");
    output(&fix, "z");
    simplify(&fix);
    cr_assert_eq(count_op(&fix, "Neg"), 1);
    cr_assert_str_eq(output_value(&fix, 0)->name, "y");
    cr_assert_str_eq(output_value(&fix, 1)->name, "z");
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

Test(rewrite, constants_fold_through_the_evaluator, .init = begin, .fini = end)
{
    constant_chain(&fix);
    uint32_t before = fix.model->constants.count;
    simplify(&fix);
    cr_assert_eq(fix.graph->order.count, 1);
    const float *c = floats_of(&fix, fix.graph->values.data[find(&fix, "add3")->inputs[1]]);
    cr_assert(c[0] == -1 && c[3] == -4);
    cr_assert_eq(fix.evaluations, 3);
    cr_assert_eq(fix.model->constants.count, before + 1, "results inside the chain are not kept");
    cr_assert_str_eq(removed_by(&fix, "neg1"), "constant_folded");
    cr_assert_str_eq(removed_by(&fix, "add2"), "constant_folded");
    cr_assert_eq(fix.model->notes.count, 0);
}

Test(rewrite, without_folding_each_node_of_the_chain_has_a_note, .init = begin, .fini = end)
{
    fix.options.fold = false;
    constant_chain(&fix);
    simplify(&fix);
    cr_assert_eq(fix.graph->order.count, 4);
    cr_assert_eq(fix.evaluations, 0);
    cr_assert_eq(fix.model->notes.count, 3);
    cr_assert_str_eq(fix.model->notes.data[2].code, "constant_recomputed");
    cr_assert_str_eq(fix.model->notes.data[2].node, "add2");
}

Test(rewrite, folding_stops_at_the_cap, .init = begin, .fini = end)
{
    float w[] = {1};
    int64_t shape[] = {1024};
    fix.options.fold_limit_bytes = 1024;
    input(&fix, "x", GANTRY_FLOAT32, "1024");
    constant(&fix, "w", GANTRY_FLOAT32, "1", w);
    constant(&fix, "shape", GANTRY_INT64, "1", shape);
    node(&fix, "neg1", "Neg", "w", "a");
    node(&fix, "expand1", "Expand", "a shape", "b"); /* 4096 bytes out of 12 */
    node(&fix, "add1", "Add", "b x", "y");
    simplify_to(&fix, "y");
    cr_assert_null(find(&fix, "neg1"));
    cr_assert(find(&fix, "expand1"));
    cr_assert_eq(fix.model->notes.count, 1);
    cr_assert_str_eq(fix.model->notes.data[0].node, "expand1");
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

Test(rewrite, what_cannot_be_evaluated_stays_and_is_tried_once, .init = begin, .fini = end)
{
    input(&fix, "x", GANTRY_FLOAT32, MANY);
    constant(&fix, "w", GANTRY_FLOAT32, MANY, many);
    node(&fix, "sqrt1", "Sqrt", "w", "a");
    node(&fix, "neg1", "Neg", "x", "b");
    node(&fix, "neg2", "Neg", "x", "c");
    node(&fix, "add1", "Add", "a b", "d");
    node(&fix, "add2", "Add", "c d", "y");
    simplify_to(&fix, "y");
    cr_assert(find(&fix, "sqrt1"));
    cr_assert_eq(fix.evaluations, 1);
    CHECK_STATE(&fix, "fold", "sqrt1", "skipped", "evaluate_failed");
    cr_assert_eq(fix.model->notes.count, 0);
}

Test(rewrite, dequantized_weights_stay, .init = begin, .fini = end)
{
    int8_t w[] = {1, 2};
    input(&fix, "x", GANTRY_FLOAT32, "2");
    constant(&fix, "w", GANTRY_INT8, "2", w);
    number(&fix, "s", 0.5f);
    node(&fix, "dq1", "DequantizeLinear", "w s", "a");
    node(&fix, "add1", "Add", "a x", "y");
    simplify_to(&fix, "y");
    cr_assert(find(&fix, "dq1"));
    cr_assert_eq(fix.evaluations, 0);
    cr_assert_eq(fix.model->notes.count, 0);
}

Test(rewrite, shapes_of_static_tensors_are_constants, .init = begin, .fini = end)
{
    input(&fix, "x", GANTRY_FLOAT32, "2,3");
    input(&fix, "z", GANTRY_FLOAT32, "n,3");
    node(&fix, "shape1", "Shape", "x", "s");
    node(&fix, "shape2", "Shape", "z", "t");
    node(&fix, "mul1", "Mul", "s t", "y");
    simplify_to(&fix, "y");
    cr_assert_null(find(&fix, "shape1"));
    cr_assert(find(&fix, "shape2"), "n is not known");
    cr_assert_str_eq(removed_by(&fix, "shape1"), "shape_folded");
    const gt_value *s = named(&fix, "s");
    const int64_t *dims = fix.model->constants.data[s->constant].data;
    cr_assert(dims[0] == 2 && dims[1] == 3);
    cr_assert_eq(fix.evaluations, 0);
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
    simplify_to(f, "y");
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

Test(rewrite, a_scale_for_each_row_keeps_the_order, .init = begin, .fini = end)
{
    table_of_rows(&fix, "100,1");
    cr_assert_eq(fix.graph->nodes.data[output_value(&fix, 0)->producer]->op_type[0], 'G');
    cr_assert_null(record(&fix, "gather_first", "gather1"));
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
    input(f, "x", GANTRY_FLOAT32, "4");
    node(f, "neg1", "Neg", "x", "a");
    uint32_t id = node(f, "if1", "If", condition, "y");
    gt_node *n = f->graph->nodes.data[id];
    n->bodies = gt_arena_alloc(&f->model->arena, 2 * sizeof *n->bodies);
    n->bodies[0] = (gt_body){"then_branch", branch(f, id, "then_branch", "Relu", "relu1")};
    n->bodies[1] = (gt_body){"else_branch", branch(f, id, "else_branch", "Abs", "abs1")};
    n->body_count = 2;
    output(f, "y");
}

Test(rewrite, an_if_with_a_known_condition_is_inlined, .init = begin, .fini = end)
{
    bool no = false;
    constant(&fix, "no", GANTRY_BOOL, "", &no);
    build_if(&fix, "no");
    simplify(&fix);
    cr_assert_eq(fix.graph->order.count, 2);
    cr_assert(find(&fix, "abs1"));
    cr_assert_str_eq(output_value(&fix, 0)->name, "y");
    cr_assert_str_eq(removed_by(&fix, "relu1"), "branch_not_taken");
    cr_assert_str_eq(removed_by(&fix, "abs1"), "");
}

Test(rewrite, captures_keep_nodes_alive_and_constants_fold_inside_bodies, .init = begin, .fini = end)
{
    float w[] = {1, 2, 3, 4};
    constant(&fix, "w", GANTRY_FLOAT32, "4", w);
    input(&fix, "condition", GANTRY_BOOL, "");
    node(&fix, "neg0", "Neg", "w", "b");
    build_if(&fix, "condition");
    gt_graph *body = find(&fix, "if1")->bodies[0].graph;
    uint32_t outer_b = value(&fix, "b");
    fix.graph = body;
    named(&fix, "b")->captured = outer_b;
    node(&fix, "add1", "Add", "b b", "c");
    node(&fix, "add2", "Add", "c out", "final");
    named(&fix, "out")->is_output = false;
    named(&fix, "final")->is_output = true;
    body->outputs.data[0] = value(&fix, "final");
    fix.graph = fix.model->root;
    simplify(&fix);
    cr_assert(find(&fix, "neg1"), "both branches capture its result");
    cr_assert_null(find(&fix, "neg0"));
    fix.graph = body;
    cr_assert_null(find(&fix, "add1"));
    cr_assert_eq(floats_of(&fix, named(&fix, "c"))[3], -8);
}

/* A long chain in which every node changes must not cost nodes times changes. */
Test(rewrite, many_rewrites_take_linear_time, .timeout = 20, .init = begin, .fini = end)
{
    input(&fix, "x", GANTRY_FLOAT32, "4");
    char name[32], from[32], to[32];
    for (int k = 0; k < 20000; k++) {
        snprintf(name, sizeof name, "id%d", k);
        snprintf(from, sizeof from, k ? "v%d" : "x", k);
        snprintf(to, sizeof to, "v%d", k + 1);
        uint32_t in = value(&fix, from), out = value(&fix, to), id;
        CHECK(&fix, gt_graph_add_node(fix.graph, name, "", k % 2 ? "Identity" : "Neg", 17, 1, &in, 1, &out,
                                      &id, &fix.error));
    }
    node(&fix, "last", "Relu", "v20000", "y");
    simplify_to(&fix, "y");
    cr_assert_eq(fix.graph->order.count, 10001);
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
