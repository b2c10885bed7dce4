/* Operators that plugins bring: found in a model, inferred with the plugin's rule, run, and refused when they
 * are wrong. */
#include "../support/small_models.h"

#include <criterion/criterion.h>

#define OWN GANTRY_BUILD_FOLDER "/tests/libgantry_own_operators.so"

static wire own_model(wire graph, int64_t version)
{
    wire model = {0};
    wire_int(&model, 1, 10);
    onnx_import(&model, 8, "", 17);
    onnx_import(&model, 8, "test.own", version);
    wire_message(&model, 7, graph);
    return model;
}

static wire own_node(const char *op, const char *name, const char *inputs, const char *output)
{
    wire node = onnx_node(op, name, inputs, output);
    wire_text(&node, 7, "test.own");
    return node;
}

/* y = Relu(RepeatRows(x, n)); rank: of x, which has 2 columns. */
static wire repeat_model(int rank, int64_t version)
{
    wire g = small_graph("repeat");
    wire node = own_node("RepeatRows", "repeat1", "x,n", "t");
    onnx_set_int(&node, "extra", 1);
    wire_message(&g, GRAPH_NODE, node);
    wire_message(&g, GRAPH_NODE, onnx_node("Relu", "relu1", "t", "y"));
    small_input(&g, "x", SMALL_F32, rank, -1, 2);
    small_input(&g, "n", SMALL_I64, 1, 1, 0);
    small_output(&g, "y", SMALL_F32, 2, -1, 2);
    return own_model(g, version);
}

static small_session open_own(wire model)
{
    return small_open_with(model, OWN, NULL, "providers=own,cpu");
}

Test(own_ops, extents_come_from_inputs_elements_and_attributes)
{
    small_session s = open_own(repeat_model(2, 2));
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    for (int64_t n = 1; n < 4; n++) {
        float x[2][2] = {{1, -2}, {3, 4}};
        cr_assert_eq(small_bind(&s, 0, SMALL_F32, 2, 2, 2, x), GANTRY_OK);
        cr_assert_eq(small_bind(&s, 1, SMALL_I64, 1, 1, 0, &n), GANTRY_OK);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0);
        cr_assert_eq(y.rank, 2);
        cr_assert_eq(y.dims[0], 2 * n + 1);
        cr_assert_eq(y.dims[1], 2);
        const float *values = small_floats_of(&y);
        for (int64_t k = 0; k < 2 * n + 1; k++) {
            cr_assert_eq(values[2 * k], k % 2 ? 3 : 1);
            cr_assert_eq(values[2 * k + 1], k % 2 ? 4 : 0);
        }
    }
    small_close(&s);
}

Test(own_ops, a_size_that_comes_with_the_data)
{
    wire g = small_graph("keep");
    wire_message(&g, GRAPH_NODE, own_node("KeepPositive", "keep1", "x", "t"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "t,t", "y"));
    small_input(&g, "x", SMALL_F32, 1, -1, 0);
    small_output(&g, "y", SMALL_F32, 1, -1, 0);
    small_session s = open_own(own_model(g, 1));
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    float x[5] = {1, -1, 2, -2, 3};
    for (int kept = 3; kept > 0; kept--) {
        cr_assert_eq(small_bind(&s, 0, SMALL_F32, 1, 5, 0, x), GANTRY_OK);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0);
        cr_assert_eq(y.rank, 1);
        cr_assert_eq(y.dims[0], kept);
        for (int k = 0; k < kept; k++)
            cr_assert_eq(small_floats_of(&y)[k], 2 * (k + 1));
        x[2 * (kept - 1)] = 0;
    }
    small_close(&s);
}

static void refuse_model(wire model, gantry_status status, const char *text)
{
    small_session s = open_own(model);
    cr_assert_eq(s.status, status, "%d: %s", (int)s.status, s.err.message);
    cr_assert(strstr(s.err.message, text), "\"%s\" is not in: %s", text, s.err.message);
    small_close(&s);
}

Test(own_ops, models_that_break_the_rule)
{
    refuse_model(repeat_model(1, 2), GANTRY_MODEL_SHAPE, "x has to have two dims");
    refuse_model(repeat_model(2, 1), GANTRY_MODEL_GRAPH, "came with opset 2");
    wire g = small_graph("arity");
    wire_message(&g, GRAPH_NODE, own_node("KeepPositive", "keep1", "x,x", "y"));
    small_input(&g, "x", SMALL_F32, 1, 3, 0);
    small_output(&g, "y", SMALL_F32, 1, -1, 0);
    refuse_model(own_model(g, 1), GANTRY_MODEL_GRAPH, "2 inputs are given");
}

Test(own_ops, without_the_plugin_nobody_knows_it)
{
    small_session s = small_open(repeat_model(2, 2), "");
    cr_assert_neq(s.status, GANTRY_OK);
    cr_assert(strstr(s.err.message, "RepeatRows"), "%s", s.err.message);
    small_close(&s);
}

Test(own_ops, operators_that_are_wrong_or_taken)
{
    static const struct {
        const char *config, *text;
    } wrong[] = {{"twice", "already"},
                 {"no_rule", "no shape rule"},
                 {"ours", "Gantry has it itself"},
                 {"reserved", "one of ONNX or Gantry"}};
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_runtime *runtime;
    cr_assert_eq(gantry_runtime_create(NULL, &runtime, &err), GANTRY_OK);
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        cr_assert_eq(gantry_runtime_load_provider(runtime, OWN, wrong[k].config, &err), GANTRY_PROVIDER);
        cr_assert(strstr(err.message, wrong[k].text), "%s", err.message);
    }
    cr_assert_eq(gantry_runtime_load_provider(runtime, OWN, "", &err), GANTRY_OK, "%s", err.message);
    cr_assert_eq(gantry_runtime_load_provider(runtime, OWN, "", &err), GANTRY_PROVIDER);
    gantry_runtime_destroy(&runtime, NULL);
}
