/* The rewrites that change arithmetic: constants moved into weights, and composites; numbers are whole or
 * powers of two, so that results are exact. */
#include "../support/rewrite_fixture.h"

#include "graph/place.h"

/* ---- constants into weights */

static void batchnorm(fixture *f, const char *name, const char *from, const char *to)
{
    static float scale[] = {1, 2}, bias[] = {3, -1}, mean[] = {1, 2}, variance[] = {3, 0};
    char inputs[64];
    if (gt_map_get(&f->graph->value_names, "scale", 5, GT_NONE) == GT_NONE) {
        constant(f, "scale", GANTRY_FLOAT32, "2", scale);
        constant(f, "bias", GANTRY_FLOAT32, "2", bias);
        constant(f, "mean", GANTRY_FLOAT32, "2", mean);
        constant(f, "variance", GANTRY_FLOAT32, "2", variance);
    }
    snprintf(inputs, sizeof inputs, "%s scale bias mean variance", from);
    uint32_t id = node(f, name, "BatchNormalization", inputs, to);
    CHECK(f, gt_node_set_float(f->graph, id, "epsilon", 1, &f->error));
}

/* factor {0.5, 2}, addend {2.5, -5} */
static const float conv_weight[] = {1, 2, 3, 4, 5, 6, 7, 8};

Test(rewrite_fuse, batchnorm_moves_into_conv, .init = begin, .fini = end)
{
    input(&fix, "x", GANTRY_FLOAT32, "n,2,5,5");
    constant(&fix, "w", GANTRY_FLOAT32, "2,2,1,2", conv_weight);
    node(&fix, "conv1", "Conv", "x w", "c");
    batchnorm(&fix, "bn1", "c", "d");
    node(&fix, "relu1", "Relu", "d", "y");
    simplify_to(&fix, "y");
    cr_assert_eq(fix.graph->order.count, 2);
    const gt_node *conv = find(&fix, "conv1");
    cr_assert_str_eq(lineage(&fix, conv), "conv1 bn1");
    cr_assert_str_eq(conv->lineage.pass, "conv_batchnorm");
    cr_assert_str_eq(removed_by(&fix, "bn1"), "", "it lives on in conv1");
    CHECK_STATE(&fix, "conv_batchnorm", "conv1", "applied", "");
    cr_assert_str_eq(record(&fix, "conv_batchnorm", "conv1")->removed[0], "bn1");
    const float *w = floats_of(&fix, fix.graph->values.data[conv->inputs[1]]);
    const float *b = floats_of(&fix, fix.graph->values.data[conv->inputs[2]]);
    for (int k = 0; k < 8; k++)
        cr_assert_eq(w[k], conv_weight[k] * (k < 4 ? 0.5f : 2.0f));
    cr_assert(b[0] == 2.5f && b[1] == -5);
}

Test(rewrite_fuse, batchnorm_moves_into_grouped_conv_transpose, .init = begin, .fini = end)
{
    float bias[] = {10, 20};
    input(&fix, "x", GANTRY_FLOAT32, "1,4,5,5");
    constant(&fix, "w", GANTRY_FLOAT32, "4,1,1,2", conv_weight); /* two groups of two rows */
    constant(&fix, "b", GANTRY_FLOAT32, "2", bias);
    CHECK(&fix, gt_node_set_int(fix.graph, node(&fix, "ct1", "ConvTranspose", "x w b", "c"), "group", 2,
                                &fix.error));
    batchnorm(&fix, "bn1", "c", "y");
    simplify_to(&fix, "y");
    const gt_node *conv = find(&fix, "ct1");
    cr_assert_eq(fix.graph->order.count, 1);
    const float *w = floats_of(&fix, fix.graph->values.data[conv->inputs[1]]);
    const float *b = floats_of(&fix, fix.graph->values.data[conv->inputs[2]]);
    for (int k = 0; k < 8; k++)
        cr_assert_eq(w[k], conv_weight[k] * (k < 4 ? 0.5f : 2.0f));
    cr_assert(b[0] == 7.5f && b[1] == 35);
}

enum { MANY_WEIGHTS = 2 * 10000 }; /* 80 kB: above what is copied at once */

static void scale_many(fixture *f, float *weights)
{
    fixture_init(f);
    input(f, "x", GANTRY_FLOAT32, "1,1,1,10000");
    constant(f, "w", GANTRY_FLOAT32, "2,1,1,10000", weights);
    node(f, "conv1", "Conv", "x w", "c");
    batchnorm(f, "bn1", "c", "y");
    simplify_to(f, "y");
}

Test(rewrite_fuse, large_weights_are_scaled_when_they_are_read)
{
    fixture f;
    static float weights[MANY_WEIGHTS];
    for (int k = 0; k < MANY_WEIGHTS; k++)
        weights[k] = (float)k;
    scale_many(&f, weights);
    CHECK_STATE(&f, "conv_batchnorm", "conv1", "applied", "");
    uint32_t id = f.graph->values.data[find(&f, "conv1")->inputs[1]]->constant;
    cr_assert_eq(f.model->constants.data[id].origin, GT_CONSTANT_SCALED);
    cr_assert_null(f.model->constants.data[id].data, "nobody asked yet");
    for (int turn = 0; turn < 2; turn++) {
        const void *data;
        CHECK(&f, gt_constant_map(f.model, id, &data, &f.error));
        CHECK(&f, gt_constant_map(f.model, id, &data, &f.error));
        for (int k = 0; k < MANY_WEIGHTS; k++)
            cr_assert_eq(((const float *)data)[k], (float)k * (k < MANY_WEIGHTS / 2 ? 0.5f : 2.0f));
        gt_constant_unmap(f.model, id);
        cr_assert_eq(f.model->constants.data[id].data, data, "one reader is left");
        gt_constant_unmap(f.model, id);
        cr_assert_null(f.model->constants.data[id].data);
    }
    fixture_free(&f);
}

Test(rewrite_fuse, large_weights_that_would_overflow_stay)
{
    fixture f;
    static float weights[MANY_WEIGHTS];
    weights[MANY_WEIGHTS - 1] = 3e38f;
    scale_many(&f, weights);
    CHECK_STATE(&f, "conv_batchnorm", "conv1", "skipped", "range");
    fixture_free(&f);
}

static void guarded_conv(fixture *f, bool is_output, bool is_read_twice, bool is_variable)
{
    fixture_init(f);
    input(f, "x", GANTRY_FLOAT32, "1,2,5,5");
    if (is_variable)
        input(f, "w", GANTRY_FLOAT32, "2,2,1,2");
    else
        constant(f, "w", GANTRY_FLOAT32, "2,2,1,2", conv_weight);
    node(f, "conv1", "Conv", "x w", "c");
    batchnorm(f, "bn1", "c", "y");
    output(f, "y");
    if (is_output)
        output(f, "c");
    if (is_read_twice) {
        node(f, "relu1", "Relu", "c", "z");
        output(f, "z");
    }
    simplify(f);
    cr_assert(find(f, "bn1"));
}

Test(rewrite_fuse, batchnorm_guards)
{
    fixture f;
    guarded_conv(&f, true, false, false);
    CHECK_STATE(&f, "conv_batchnorm", "conv1", "skipped", "graph_output");
    fixture_free(&f);
    guarded_conv(&f, false, true, false);
    CHECK_STATE(&f, "conv_batchnorm", "conv1", "skipped", "second_consumer");
    cr_assert_eq(f.model->rewrites.count, 1, "a near miss is logged once");
    fixture_free(&f);
    guarded_conv(&f, false, false, true);
    CHECK_STATE(&f, "conv_batchnorm", "conv1", "skipped", "not_constant");
    fixture_free(&f);
}

Test(rewrite_fuse, a_shared_weight_is_copied, .init = begin, .fini = end)
{
    input(&fix, "x", GANTRY_FLOAT32, "1,2,5,5");
    input(&fix, "z", GANTRY_FLOAT32, "1,2,5,5");
    constant(&fix, "w", GANTRY_FLOAT32, "2,2,1,2", conv_weight);
    node(&fix, "conv1", "Conv", "x w", "c");
    node(&fix, "conv2", "Conv", "z w", "d");
    batchnorm(&fix, "bn1", "c", "e");
    node(&fix, "add1", "Add", "e d", "y");
    simplify_to(&fix, "y");
    CHECK_STATE(&fix, "conv_batchnorm", "conv1", "applied_with_copy", "shared_weight");
    cr_assert_eq(floats_of(&fix, fix.graph->values.data[find(&fix, "conv1")->inputs[1]])[0], 0.5f);
    cr_assert_eq(floats_of(&fix, fix.graph->values.data[find(&fix, "conv2")->inputs[1]])[0], 1);
}

Test(rewrite_fuse, gemm_batchnorm_honours_alpha_beta_and_broadcast, .init = begin, .fini = end)
{
    float w[] = {1, 2, 3, 4, 5, 6}, c[] = {3};
    input(&fix, "x", GANTRY_FLOAT32, "3,4");
    constant(&fix, "w", GANTRY_FLOAT32, "2,3", w); /* transposed */
    constant(&fix, "c", GANTRY_FLOAT32, "1", c);
    uint32_t id = node(&fix, "gemm1", "Gemm", "x w c", "g");
    CHECK(&fix, gt_node_set_int(fix.graph, id, "transA", 1, &fix.error));
    CHECK(&fix, gt_node_set_int(fix.graph, id, "transB", 1, &fix.error));
    CHECK(&fix, gt_node_set_float(fix.graph, id, "alpha", 0.5f, &fix.error));
    CHECK(&fix, gt_node_set_float(fix.graph, id, "beta", 2, &fix.error));
    batchnorm(&fix, "bn1", "g", "y");
    simplify_to(&fix, "y");
    const gt_node *gemm = find(&fix, "gemm1");
    cr_assert_eq(fix.graph->order.count, 1);
    CHECK_STATE(&fix, "gemm_batchnorm", "gemm1", "applied", "");
    cr_assert_eq(gt_node_float(gemm, "alpha", 1), 0.5f);
    cr_assert_eq(gt_node_float(gemm, "beta", 0), 1);
    const float *folded = floats_of(&fix, fix.graph->values.data[gemm->inputs[1]]);
    cr_assert(folded[0] == 0.5f && folded[2] == 1.5f && folded[3] == 8 && folded[5] == 12);
    const float *bias = floats_of(&fix, fix.graph->values.data[gemm->inputs[2]]);
    cr_assert(bias[0] == 6 * 0.5f + 2.5f && bias[1] == 6 * 2 - 5);
}

Test(rewrite_fuse, matmul_batchnorm_leaves_an_add, .init = begin, .fini = end)
{
    float w[] = {1, 2, 3, 4};
    input(&fix, "x", GANTRY_FLOAT32, "3,2");
    constant(&fix, "w", GANTRY_FLOAT32, "2,2", w);
    node(&fix, "matmul1", "MatMul", "x w", "g");
    batchnorm(&fix, "bn1", "g", "y");
    simplify_to(&fix, "y");
    cr_assert_eq(count_op(&fix, "BatchNormalization"), 0);
    cr_assert_eq(count_op(&fix, "Add"), 1);
    const float *folded = floats_of(&fix, fix.graph->values.data[find(&fix, "matmul1")->inputs[1]]);
    cr_assert(folded[0] == 0.5f && folded[1] == 4 && folded[2] == 1.5f && folded[3] == 8);
    cr_assert_str_eq(output_value(&fix, 0)->name, "y");
    cr_assert_str_eq(removed_by(&fix, "bn1"), "");
}

Test(rewrite_fuse, factors_and_addends_move_into_conv, .init = begin, .fini = end)
{
    float m[] = {2, 4}, a[] = {1};
    input(&fix, "x", GANTRY_FLOAT32, "1,2,5,5");
    constant(&fix, "w", GANTRY_FLOAT32, "2,2,1,2", conv_weight);
    constant(&fix, "m", GANTRY_FLOAT32, "1,2,1,1", m);
    constant(&fix, "a", GANTRY_FLOAT32, "1", a);
    node(&fix, "conv1", "Conv", "x w", "c");
    node(&fix, "mul1", "Mul", "m c", "d");
    node(&fix, "add1", "Add", "d a", "e");
    node(&fix, "sub1", "Sub", "e m", "y");
    simplify_to(&fix, "y");
    cr_assert_eq(fix.graph->order.count, 1);
    const gt_node *conv = find(&fix, "conv1");
    cr_assert_str_eq(lineage(&fix, conv), "conv1 mul1 add1 sub1");
    cr_assert_eq(floats_of(&fix, fix.graph->values.data[conv->inputs[1]])[7], 32);
    const float *b = floats_of(&fix, fix.graph->values.data[conv->inputs[2]]);
    cr_assert(b[0] == -1 && b[1] == -3);
}

Test(rewrite_fuse, a_factor_along_the_width_stays, .init = begin, .fini = end)
{
    float m[] = {2, 4};
    input(&fix, "x", GANTRY_FLOAT32, "1,2,5,3");
    constant(&fix, "w", GANTRY_FLOAT32, "2,2,1,2", conv_weight);
    constant(&fix, "m", GANTRY_FLOAT32, "2", m);
    node(&fix, "conv1", "Conv", "x w", "c");
    node(&fix, "mul1", "Mul", "c m", "y");
    simplify_to(&fix, "y");
    cr_assert(find(&fix, "mul1"));
    CHECK_STATE(&fix, "conv_mul", "conv1", "skipped", "shape");
}

/* ---- layer normalization */

static const float twos[] = {2, 2, 2, 2};

static void mean(fixture *f, const char *name, const char *from, const char *to, int64_t axis)
{
    uint32_t id = node(f, name, "ReduceMean", from, to);
    CHECK(f, gt_node_set_ints(f->graph, id, "axes", &axis, 1, &f->error));
}

static void begin_norm(fixture *f, int64_t axis, bool by_product)
{
    fixture_init(f);
    input(f, "x", GANTRY_FLOAT32, "n,3,4");
    constant(f, "gamma", GANTRY_FLOAT32, "4", twos);
    constant(f, "beta", GANTRY_FLOAT32, "4", twos);
    number(f, "two", 2);
    number(f, "eps", 0.25f);
    mean(f, "mean1", "x", "m", axis);
    node(f, "sub1", "Sub", "x m", "d");
    node(f, "square1", by_product ? "Mul" : "Pow", by_product ? "d d" : "d two", "s");
    mean(f, "mean2", "s", "v", axis);
    node(f, "eps1", "Add", by_product ? "eps v" : "v eps", "ve");
    node(f, "sqrt1", "Sqrt", "ve", "r");
}

static void check_norm(fixture *f, const char *sources)
{
    simplify(f);
    cr_assert_eq(count_op(f, "LayerNorm"), 1);
    cr_assert_eq(f->graph->order.count, 1);
    const gt_node *norm = f->graph->nodes.data[f->graph->order.data[0]];
    cr_assert_str_eq(norm->domain, "gantry");
    cr_assert_str_eq(lineage(f, norm), sources);
    cr_assert_eq(gt_node_int(norm, "axis", 0), -1);
    cr_assert_eq(gt_node_float(norm, "epsilon", 0), 0.25f);
    cr_assert_eq(norm->input_count, 3);
    cr_assert_eq(norm->inputs[0], value(f, "x"));
    cr_assert_eq(norm->inputs[1], value(f, "gamma"));
    const gt_graph *body = norm->composite;
    cr_assert_eq(body->order.count, norm->lineage.count);
    cr_assert_eq(body->inputs.count, 3);
    cr_assert_eq(body->outputs.count, 1);
    cr_assert_str_eq(body->values.data[body->inputs.data[1]]->name, "gamma");
    cr_assert_str_eq(body->nodes.data[body->order.data[0]]->name, "mean1");
    cr_assert_str_eq(output_value(f, 0)->name, "y");
    cr_assert_str_eq(removed_by(f, "sqrt1"), "");
}

Test(rewrite_fuse, layer_norm_by_quotient)
{
    fixture f;
    begin_norm(&f, -1, false);
    node(&f, "div1", "Div", "d r", "q");
    node(&f, "scale1", "Mul", "q gamma", "g");
    node(&f, "bias1", "Add", "beta g", "y");
    output(&f, "y");
    check_norm(&f, "mean1 sub1 square1 mean2 eps1 sqrt1 div1 scale1 bias1");
    cr_assert_eq(f.graph->nodes.data[f.graph->order.data[0]]->inputs[2], value(&f, "beta"));
    fixture_free(&f);
}

Test(rewrite_fuse, layer_norm_by_reciprocal_without_bias)
{
    fixture f;
    begin_norm(&f, 2, true);
    node(&f, "rec1", "Reciprocal", "r", "rr");
    node(&f, "mul1", "Mul", "rr d", "q");
    node(&f, "scale1", "Mul", "gamma q", "y");
    output(&f, "y");
    check_norm(&f, "mean1 sub1 square1 mean2 eps1 sqrt1 rec1 mul1 scale1");
    const gt_node *norm = f.graph->nodes.data[f.graph->order.data[0]];
    cr_assert_eq(floats_of(&f, f.graph->values.data[norm->inputs[2]])[3], 0);
    fixture_free(&f);
}

Test(rewrite_fuse, layer_norm_guards)
{
    fixture f;
    begin_norm(&f, 1, false); /* not the last axis */
    node(&f, "div1", "Div", "d r", "y");
    simplify_to(&f, "y");
    CHECK_STATE(&f, "layer_norm", "sqrt1", "skipped", "axis");
    fixture_free(&f);
    begin_norm(&f, -1, false);
    node(&f, "div1", "Div", "d r", "y");
    output(&f, "y");
    output(&f, "v");
    simplify(&f);
    CHECK_STATE(&f, "layer_norm", "sqrt1", "skipped", "graph_output");
    fixture_free(&f);
    begin_norm(&f, -1, false);
    node(&f, "div1", "Div", "d r", "q");
    node(&f, "other", "Add", "q d", "y");
    simplify_to(&f, "y");
    CHECK_STATE(&f, "layer_norm", "sqrt1", "skipped", "second_consumer");
    fixture_free(&f);
}

Test(rewrite_fuse, a_composite_goes_back_into_its_nodes)
{
    fixture f;
    begin_norm(&f, -1, false);
    node(&f, "div1", "Div", "d r", "q");
    node(&f, "scale1", "Mul", "q gamma", "g");
    node(&f, "bias1", "Add", "beta g", "y");
    simplify_to(&f, "y");
    cr_assert_eq(f.graph->order.count, 1);
    CHECK(&f, gt_graph_expand_composite(f.graph, f.graph->order.data[0], &f.error));
    CHECK(&f, gt_graph_sort(f.graph, &f.error));
    CHECK(&f, gt_infer_graph(f.graph, &f.error));
    cr_assert_eq(f.graph->order.count, 9);
    cr_assert_str_eq(lineage(&f, find(&f, "sqrt1")), "sqrt1");
    cr_assert_str_eq(f.graph->nodes.data[output_value(&f, 0)->producer]->name, "bias1");
    cr_assert_str_eq(removed_by(&f, "sqrt1"), "");
    fixture_free(&f);
}

static void everything(fixture *f)
{
    begin_norm(f, -1, false);
    constant(f, "w", GANTRY_FLOAT32, "2,2,1,2", conv_weight);
    input(f, "z", GANTRY_FLOAT32, "1,2,5,5");
    node(f, "div1", "Div", "d r", "q");
    node(f, "scale1", "Mul", "q gamma", "y");
    node(f, "conv1", "Conv", "z w", "c");
    batchnorm(f, "bn1", "c", "n");
    node(f, "sigmoid1", "Sigmoid", "n", "t");
    node(f, "mul1", "Mul", "n t", "o");
    output(f, "y");
    output(f, "o");
    output(f, "t"); /* a near miss */
}

Test(rewrite_fuse, running_out_of_memory_anywhere_is_a_status)
{
    for (int64_t after = 0;; after++) {
        fixture f;
        everything(&f);
        CHECK(&f, gt_infer_inputs(f.model, NULL, &f.error));
        atomic_store(&f.allocator.fail_after, after);
        gantry_status status = gt_simplify(f.graph, &f.options, &f.error);
        bool reached = atomic_load(&f.allocator.fail_after) < 0;
        cr_assert(status == GANTRY_RESOURCE || (status == GANTRY_OK && !reached), "allocation %d: status %d",
                  (int)after, status);
        fixture_free(&f);
        if (!reached)
            break;
    }
}

Test(rewrite_fuse, simplifying_again_changes_and_logs_nothing)
{
    fixture f;
    everything(&f);
    simplify(&f);
    gt_graph *clone;
    uint32_t records = f.model->rewrites.count, nodes = f.graph->order.count;
    CHECK(&f, gt_graph_clone(f.graph, &clone, &f.error));
    CHECK(&f, gt_simplify(clone, &f.options, &f.error));
    cr_assert_eq(clone->order.count, nodes);
    cr_assert_eq(f.model->rewrites.count, records);
    fixture_free(&f);
}

/* ---- activations */

static void begin_activation(fixture *f)
{
    fixture_init(f);
    input(f, "x0", GANTRY_FLOAT32, "n,4");
    node(f, "neg1", "Neg", "x0", "x");
    number(f, "half", 0.5f);
    number(f, "one", 1);
    number(f, "root2", 1.41421356f);
    number(f, "root_half", 0.70710678f);
    number(f, "c1", 0.7978845834732056f);
    number(f, "c2", 0.044714998453855515f);
    number(f, "three", 3);
    number(f, "six", 6);
    number(f, "zero", 0);
}

static const gt_node *check_activation(fixture *f, const char *op)
{
    simplify_to(f, "y");
    cr_assert_eq(f->graph->order.count, 2, "%s: %u nodes are left", op, f->graph->order.count);
    cr_assert_eq(count_op(f, op), 1);
    const gt_node *fused = f->graph->nodes.data[output_value(f, 0)->producer];
    cr_assert_str_eq(fused->domain, "gantry");
    cr_assert_eq(fused->input_count, 1);
    cr_assert_eq(fused->inputs[0], value(f, "x"));
    cr_assert_eq(fused->lineage.count, f->model->sources.count - 1, "all but neg1");
    cr_assert_eq(fused->composite->order.count, fused->lineage.count);
    cr_assert_str_eq(output_value(f, 0)->name, "y");
    return fused;
}

Test(rewrite_fuse, gelu_in_any_order)
{
    static const char *const tails[][4][3] = {
        /* op, inputs, output */
        {{"Add", "e one", "a"}, {"Mul", "x a", "b"}, {"Mul", "b half", "y"}, {NULL}},
        {{"Add", "one e", "a"}, {"Mul", "x half", "b"}, {"Mul", "a b", "y"}, {NULL}},
        {{"Add", "e one", "a"}, {"Mul", "half a", "b"}, {"Mul", "b x", "y"}, {NULL}},
        {{"Mul", "x e", "a"}, {"Add", "a x", "b"}, {"Mul", "half b", "y"}, {NULL}},
    };
    for (size_t k = 0; k < sizeof tails / sizeof tails[0]; k++)
        for (int by_quotient = 0; by_quotient < 2; by_quotient++) {
            fixture f;
            char name[16];
            begin_activation(&f);
            node(&f, "scale1", by_quotient ? "Div" : "Mul", by_quotient ? "x root2" : "root_half x", "u");
            node(&f, "erf1", "Erf", "u", "e");
            for (int n = 0; tails[k][n][0]; n++) {
                snprintf(name, sizeof name, "tail%d", n);
                node(&f, name, tails[k][n][0], tails[k][n][1], tails[k][n][2]);
            }
            const gt_node *gelu = check_activation(&f, "Gelu");
            cr_assert_str_eq(gt_node_string(gelu, "approximate", ""), "none");
            CHECK_STATE(&f, "gelu", "tail2", "applied", "");
            cr_assert_str_eq(record(&f, "gelu", "tail2")->added, gelu->name);
            fixture_free(&f);
        }
}

Test(rewrite_fuse, gelu_by_tanh_with_power_or_products)
{
    for (int products = 0; products < 2; products++) {
        fixture f;
        begin_activation(&f);
        if (products) {
            node(&f, "p1", "Mul", "c2 x", "p");
            node(&f, "p2", "Mul", "x p", "q");
            node(&f, "p3", "Mul", "x q", "c");
        } else {
            node(&f, "p1", "Pow", "x three", "p");
            node(&f, "p2", "Mul", "p c2", "c");
        }
        node(&f, "add1", "Add", "x c", "s");
        node(&f, "scale1", "Mul", "s c1", "u");
        node(&f, "tanh1", "Tanh", "u", "t");
        node(&f, "add2", "Add", "t one", "a");
        node(&f, "half1", "Mul", "x half", "h");
        node(&f, "mul1", "Mul", "h a", "y");
        cr_assert_str_eq(gt_node_string(check_activation(&f, "Gelu"), "approximate", ""), "tanh");
        fixture_free(&f);
    }
}

Test(rewrite_fuse, silu)
{
    fixture f;
    begin_activation(&f);
    node(&f, "sigmoid1", "Sigmoid", "x", "s");
    node(&f, "mul1", "Mul", "s x", "y");
    cr_assert_str_eq(lineage(&f, check_activation(&f, "Silu")), "sigmoid1 mul1");
    fixture_free(&f);
}

Test(rewrite_fuse, a_gate_is_no_silu)
{
    fixture f;
    begin_activation(&f);
    input(&f, "z", GANTRY_FLOAT32, "n,4");
    node(&f, "sigmoid1", "Sigmoid", "x", "s");
    node(&f, "mul1", "Mul", "s z", "y");
    simplify_to(&f, "y");
    cr_assert_eq(count_op(&f, "Silu"), 0);
    cr_assert_null(record(&f, "silu", "sigmoid1"), "nothing was nearly matched");
    fixture_free(&f);
}

Test(rewrite_fuse, silu_whose_sigmoid_is_read_elsewhere)
{
    fixture f;
    begin_activation(&f);
    node(&f, "sigmoid1", "Sigmoid", "x", "s");
    node(&f, "mul1", "Mul", "s x", "y");
    node(&f, "relu1", "Relu", "s", "z");
    output(&f, "y");
    output(&f, "z");
    simplify(&f);
    cr_assert_eq(count_op(&f, "Silu"), 0);
    CHECK_STATE(&f, "silu", "sigmoid1", "skipped", "second_consumer");
    fixture_free(&f);
}

Test(rewrite_fuse, hard_swish_in_three_forms)
{
    fixture f;
    begin_activation(&f);
    uint32_t id = node(&f, "hs1", "HardSigmoid", "x", "t");
    CHECK(&f, gt_node_set_float(f.graph, id, "alpha", 0.16666670f, &f.error));
    node(&f, "mul1", "Mul", "x t", "y");
    check_activation(&f, "HardSwish");
    fixture_free(&f);
    begin_activation(&f);
    node(&f, "add1", "Add", "x three", "u");
    node(&f, "clip1", "Clip", "u zero six", "t");
    node(&f, "mul1", "Mul", "x t", "m");
    node(&f, "div1", "Div", "m six", "y");
    check_activation(&f, "HardSwish");
    fixture_free(&f);
    begin_activation(&f);
    node(&f, "add1", "Add", "x three", "u");
    node(&f, "clip1", "Clip", "u zero three", "t"); /* another bound */
    node(&f, "mul1", "Mul", "x t", "m");
    node(&f, "div1", "Div", "m six", "y");
    simplify_to(&f, "y");
    cr_assert_eq(count_op(&f, "HardSwish"), 0);
    fixture_free(&f);
}

Test(rewrite_fuse, numbers_of_higher_rank_are_no_scalars)
{
    fixture f;
    begin_activation(&f);
    float half = 0.5f;
    constant(&f, "half4", GANTRY_FLOAT32, "1,1,1,1", &half);
    node(&f, "scale1", "Div", "x root2", "u");
    node(&f, "erf1", "Erf", "u", "e");
    node(&f, "add1", "Add", "e one", "a");
    node(&f, "mul1", "Mul", "x a", "b");
    node(&f, "mul2", "Mul", "b half4", "y"); /* gives rank 4 */
    simplify_to(&f, "y");
    CHECK_STATE(&f, "gelu", "erf1", "skipped", "shape");
    fixture_free(&f);
}
