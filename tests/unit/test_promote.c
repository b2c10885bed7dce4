/* Promotion: nodes of a type that no provider computes in run in float32, with Casts at the edges of a group
 * only. */
#include "../support/small_models.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define F16 GANTRY_FLOAT16
#define BF16 GANTRY_BFLOAT16

static int64_t four[1] = {4};

static void put_halves(wire *graph, const char *name, int type, const uint16_t *values)
{
    wire_message(graph, GRAPH_INITIALIZER, onnx_raw_tensor(name, type, 1, four, values, 8));
}

/* y = Neg(Relu(x * w)), and what Relu gave is an output too. */
static wire chain(int type, const uint16_t *w)
{
    wire g = small_graph("chain");
    put_halves(&g, "w", type, w);
    wire_message(&g, GRAPH_NODE, onnx_node("Mul", "mul1", "x,w", "p"));
    wire_message(&g, GRAPH_NODE, onnx_node("Relu", "relu1", "p", "r"));
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "r", "y"));
    small_input(&g, "x", type, 1, 4, 0);
    small_output(&g, "y", type, 1, 4, 0);
    small_output(&g, "r", type, 1, 4, 0);
    return small_model(g);
}

static void run_halves(small_session *s, int type, const uint16_t *x, const uint16_t *want_y)
{
    uint16_t in[4];
    memcpy(in, x, sizeof in);
    cr_assert_eq(s->status, GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(small_bind(s, 0, (gantry_dtype)type, 1, 4, 0, in), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK, "%s", s->err.message);
    gantry_tensor y = small_result(s, 0);
    cr_assert_eq(y.dtype, (gantry_dtype)type, "the outside does not change");
    const uint16_t *got = (const uint16_t *)((const char *)y.buffer.handle + y.buffer.offset_bytes);
    for (int k = 0; k < 4; k++)
        cr_assert_eq(got[k], want_y[k], "element %d is %04x, not %04x", k, got[k], want_y[k]);
}

/* x * w of 1, 2, -3, 4 with 1, 0.5, 2, 1/4: 1, 1, -6, 1. */
static const uint16_t x_half[4] = {0x3c00, 0x4000, 0xc200, 0x4400},
                      w_half[4] = {0x3c00, 0x3800, 0x4000, 0x3400},
                      y_half[4] = {0xbc00, 0xbc00, 0x8000, 0xbc00};

Test(promote, a_chain_is_cast_at_its_edges)
{
    small_session s = small_open(chain(F16, w_half), "cpu.disable_types=float16");
    run_halves(&s, F16, x_half, y_half);
    gantry_tensor r = small_result(&s, 1);
    cr_assert_eq(r.dtype, F16);
    const char *json = NULL;
    size_t bytes = 0;
    cr_assert_eq(gantry_report_render(s.report, GANTRY_REPORT_JSON, &json, &bytes, NULL), GANTRY_OK);
    cr_assert(strstr(
        json, "3 nodes of float16 (mul1, relu1, neg1) run in float32, because cpu does not compute all "
              "of them in float16: 3 casts at the edges; 16 bytes of constants are widened"));
    small_close(&s);
}

Test(promote, bfloat16_too)
{
    const uint16_t x[4] = {0x3f80, 0x4000, 0xc040, 0x4080}, w[4] = {0x3f80, 0x3f00, 0x4000, 0x3e80},
                   y[4] = {0xbf80, 0xbf80, 0x8000, 0xbf80};
    small_session s = small_open(chain(BF16, w), "cpu.disable_types=bfloat16");
    run_halves(&s, BF16, x, y);
    small_close(&s);
}

/* The smallest subnormal, the largest number, infinity and NaN keep their values when constants are widened:
 * each is multiplied by one and comes back. */
Test(promote, widens_constants_of_every_kind)
{
    const uint16_t one[4] = {0x3c00, 0x3c00, 0x3c00, 0x3c00}, w[4] = {0x0001, 0x7bff, 0x7c00, 0x03ff},
                   y[4] = {0x8001, 0xfbff, 0xfc00, 0x83ff};
    small_session s = small_open(chain(F16, w), "cpu.disable_types=float16");
    run_halves(&s, F16, one, y);
    small_close(&s);
    const uint16_t nan[4] = {0x7e00, 0x7d01, 0xfe00, 0x7fff};
    s = small_open(chain(F16, nan), "cpu.disable_types=float16");
    uint16_t in[4];
    memcpy(in, one, sizeof in);
    small_bind(&s, 0, F16, 1, 4, 0, in);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK);
    gantry_tensor y_nan = small_result(&s, 0);
    for (int k = 0; k < 4; k++)
        cr_assert_gt(((const uint16_t *)y_nan.buffer.handle)[k] & 0x7fff, 0x7c00);
    small_close(&s);
}

Test(promote, not_when_it_is_switched_off)
{
    static const char *const OFF[] = {"rewrites.promote=off", "rewrites=off", "exact=on"};
    for (size_t k = 0; k < sizeof OFF / sizeof *OFF; k++) {
        char options[128];
        snprintf(options, sizeof options, "cpu.disable_types=float16;%s", OFF[k]);
        small_session s = small_open(chain(F16, w_half), options);
        cr_assert_eq(s.status, GANTRY_UNSUPPORTED, "%s: %s", OFF[k], s.err.message);
        cr_assert(strstr(s.err.message, "mul1") && strstr(s.err.message, "float16"), "%s", s.err.message);
        small_close(&s);
    }
}

/* y = flag ? Neg(x) : x + x, x captured by both branches: groups inside bodies have edges of their own. */
Test(promote, inside_a_branch)
{
    wire yes = small_graph("yes"), no = small_graph("no"), g = small_graph("if");
    wire_message(&yes, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "minus"));
    small_output(&yes, "minus", F16, 1, 4, 0);
    wire_message(&no, GRAPH_NODE, onnx_node("Add", "add1", "x,x", "twice"));
    small_output(&no, "twice", F16, 1, 4, 0);
    wire branch = onnx_node("If", "if1", "flag", "y");
    onnx_set_graph(&branch, "then_branch", yes);
    onnx_set_graph(&branch, "else_branch", no);
    wire_message(&g, GRAPH_NODE, onnx_node("Greater", "greater1", "s,zero", "flag"));
    const float zero = 0;
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("zero", SMALL_F32, 0, NULL, &zero, sizeof zero));
    wire_message(&g, GRAPH_NODE, branch);
    small_input(&g, "x", F16, 1, 4, 0);
    small_input(&g, "s", SMALL_F32, 0, 0, 0);
    small_output(&g, "y", F16, 1, 4, 0);
    small_session s = small_open(small_model(g), "cpu.disable_types=float16");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    float sign = 1;
    small_bind(&s, 1, GANTRY_FLOAT32, 0, 0, 0, &sign);
    const uint16_t minus[4] = {0xbc00, 0xc000, 0x4200, 0xc400}, twice[4] = {0x4000, 0x4400, 0xc600, 0x4800};
    run_halves(&s, F16, x_half, minus);
    sign = -1;
    run_halves(&s, F16, x_half, twice);
    small_close(&s);
}
