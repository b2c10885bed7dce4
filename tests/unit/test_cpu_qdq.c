/* Q/DQ subgraphs as integer kernels: bit for bit in exact mode, at most one step from it else, and which
 * nodes were joined. */
#include "tests/support/test_host.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { C = 16, M = 24, H = 9, W = 7 };

/* Scales and zero points are kept as long as the net: a pool the test frees at its end. */
typedef struct pool {
    float scales[64];
    uint8_t zeros[64];
    int count;
} pool;

static uint32_t scale_of(test_net *net, pool *p, float scale)
{
    p->scales[p->count] = scale;
    return test_constant_add(net, GANTRY_FLOAT32, 0, NULL, &p->scales[p->count++]);
}

static uint32_t zero_of(test_net *net, pool *p, gantry_dtype dtype, int zero)
{
    p->zeros[p->count] = (uint8_t)zero;
    return test_constant_add(net, dtype, 0, NULL, &p->zeros[p->count++]);
}

static uint32_t like(test_net *net, gantry_dtype dtype, uint32_t value)
{
    return test_value_add(net, dtype, (uint32_t)net->values[value].view.rank, net->values[value].dims);
}

static uint32_t dequantize(test_net *net, pool *p, uint32_t x, gantry_dtype dtype, float scale, int zero)
{
    uint32_t y = like(net, GANTRY_FLOAT32, x), s = scale_of(net, p, scale), z = zero_of(net, p, dtype, zero);
    test_node_add(net, "", "DequantizeLinear", 13, 3, (uint32_t[]){x, s, z}, 1, &y);
    return y;
}

static uint32_t quantize(test_net *net, pool *p, uint32_t x, gantry_dtype dtype, float scale, int zero)
{
    uint32_t y = like(net, dtype, x), s = scale_of(net, p, scale), z = zero_of(net, p, dtype, zero);
    test_node_add(net, "", "QuantizeLinear", 13, 3, (uint32_t[]){x, s, z}, 1, &y);
    return y;
}

static int saturate(double rounded, int zero, bool is_signed)
{
    double y = rounded + zero, low = is_signed ? -128 : 0;
    return (int)(y < low ? low : y > low + 255 ? low + 255 : y);
}

static int load(const uint8_t *bytes, int64_t k, bool is_signed)
{
    return is_signed ? (int8_t)bytes[k] : bytes[k];
}

/* ---- convolution ----------------------------------------------------------------------------- */

typedef struct conv_case {
    gantry_dtype dtype;
    int x_zero, y_zero, kernel, groups;
    bool relu, exact;
    float y_scale;
} conv_case;

static void conv_reference(const conv_case *t, const uint8_t *x, const int8_t *w, const float *w_scales,
                           const int32_t *bias, float x_scale, uint8_t *y)
{
    int64_t in_group = C / t->groups, out_group = M / t->groups, pad = t->kernel / 2;
    bool is_signed = t->dtype == GANTRY_INT8;
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < H; i++)
            for (int64_t j = 0; j < W; j++) {
                int32_t sum = bias[m];
                for (int64_t c = 0; c < in_group; c++)
                    for (int64_t a = 0; a < t->kernel; a++)
                        for (int64_t b = 0; b < t->kernel; b++) {
                            int64_t p = i + a - pad, q = j + b - pad, at = (m / out_group) * in_group + c;
                            if (p >= 0 && p < H && q >= 0 && q < W)
                                sum += (load(x, (at * H + p) * W + q, is_signed) - t->x_zero) *
                                       w[((m * in_group + c) * t->kernel + a) * t->kernel + b];
                        }
                float multiplier = x_scale * w_scales[m] / t->y_scale, r = rintf((float)sum * multiplier);
                int result = saturate(r, t->y_zero, is_signed);
                y[(m * H + i) * W + j] = (uint8_t)(t->relu && result < t->y_zero ? t->y_zero : result);
            }
}

static void check_conv(const conv_case *t)
{
    const float x_scale = 0.02f;
    int64_t in_group = C / t->groups, taps = t->kernel * t->kernel, dims[4] = {1, C, H, W},
            w_dims[4] = {M, in_group, t->kernel, t->kernel}, y_dims[4] = {1, M, H, W}, channels = M;
    int64_t pads[4] = {t->kernel / 2, t->kernel / 2, t->kernel / 2, t->kernel / 2};
    uint8_t x[C * H * W], y[M * H * W], expected[M * H * W];
    int8_t *w = malloc((size_t)(M * in_group * taps));
    float w_scales[M], b_scales[M];
    int32_t bias[M];
    pool p = {.count = 0};
    test_fill_bytes(x, sizeof x, 1);
    test_fill_bytes((uint8_t *)w, M * in_group * taps, 2);
    for (int m = 0; m < M; m++) {
        w_scales[m] = 0.003f + 0.0004f * (float)m;
        b_scales[m] = x_scale * w_scales[m];
        bias[m] = 700 * (m - 9);
    }
    test_net *net = test_net_open();
    net->exact = t->exact;
    uint32_t v = test_value_add(net, t->dtype, 4, dims);
    test_input(net, v);
    uint32_t xf = dequantize(net, &p, v, t->dtype, x_scale, t->x_zero);
    uint32_t wf = test_value_add(net, GANTRY_FLOAT32, 4, w_dims),
             bf = test_value_add(net, GANTRY_FLOAT32, 1, &channels);
    test_node_add(net, "", "DequantizeLinear", 13, 2,
                  (uint32_t[]){test_constant_add(net, GANTRY_INT8, 4, w_dims, w),
                               test_constant_add(net, GANTRY_FLOAT32, 1, &channels, w_scales)},
                  1, &wf);
    test_int(net, "axis", 0);
    test_node_add(net, "", "DequantizeLinear", 13, 2,
                  (uint32_t[]){test_constant_add(net, GANTRY_INT32, 1, &channels, bias),
                               test_constant_add(net, GANTRY_FLOAT32, 1, &channels, b_scales)},
                  1, &bf);
    test_int(net, "axis", 0);
    uint32_t yf = test_value_add(net, GANTRY_FLOAT32, 4, y_dims);
    test_node_add(net, "", "Conv", 11, 3, (uint32_t[]){xf, wf, bf}, 1, &yf);
    test_ints(net, "pads", 4, pads);
    test_int(net, "group", t->groups);
    if (t->relu) {
        uint32_t rf = like(net, GANTRY_FLOAT32, yf);
        test_node_add(net, "", "Relu", 14, 1, &yf, 1, &rf);
        yf = rf;
    }
    test_output(net, quantize(net, &p, yf, t->dtype, t->y_scale, t->y_zero));
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_expect(test_net_fused(net, "qdq_conv"));
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y}), GANTRY_OK, "%s", net->error.message);
    conv_reference(t, x, w, w_scales, bias, x_scale, expected);
    for (int k = 0; k < M * H * W; k++) {
        int got = load(y, k, t->dtype == GANTRY_INT8), wanted = load(expected, k, t->dtype == GANTRY_INT8);
        cr_assert(abs(got - wanted) <= (t->exact ? 0 : 1), "%d: %d, want %d", k, got, wanted);
    }
    cr_expect_eq(test_net_close(net), 0);
    free(w);
}

Test(cpu_qdq, convolution_of_every_kind)
{
    for (int exact = 0; exact < 2; exact++)
        for (int relu = 0; relu < 2; relu++)
            for (int groups = 1; groups <= 8; groups *= 8) {
                check_conv(&(conv_case){GANTRY_UINT8, 3, 120, 3, groups, relu, exact, 0.31f});
                check_conv(&(conv_case){GANTRY_UINT8, 128, 0, 1, groups, relu, exact, 0.17f});
                check_conv(&(conv_case){GANTRY_INT8, 0, 0, 3, groups, relu, exact, 0.41f});
                check_conv(&(conv_case){GANTRY_INT8, -7, 11, 1, groups, relu, exact, 0.23f});
            }
}

/* ---- addition, with one operand that others read as floats ----------------------------------- */

static void check_binary(const char *op, gantry_dtype dtype, bool vector, bool exact)
{
    int64_t dims[4] = {1, C, H, W}, b_dims[4] = {1, C, vector ? 1 : H, vector ? 1 : W};
    uint8_t a[C * H * W], b[C * H * W], y[C * H * W];
    float floats[C * H * W];
    bool is_signed = dtype == GANTRY_INT8;
    pool p = {.count = 0};
    test_fill_bytes(a, sizeof a, 5);
    test_fill_bytes(b, sizeof b, 6);
    test_net *net = test_net_open();
    net->exact = exact;
    uint32_t va = test_value_add(net, dtype, 4, dims), vb = test_value_add(net, dtype, 4, b_dims);
    test_input(net, va);
    test_input(net, vb);
    uint32_t fa = dequantize(net, &p, va, dtype, 0.05f, 4),
             fb = dequantize(net, &p, vb, dtype, 0.1f, -3 & 0x7F);
    uint32_t sum = test_value_add(net, GANTRY_FLOAT32, 4, dims);
    test_node_add(net, "", op, 14, 2, (uint32_t[]){fa, fb}, 1, &sum);
    test_output(net, quantize(net, &p, sum, dtype, 0.15f, 9));
    test_output(net, fa);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_expect(test_net_fused(net, strcmp(op, "Add") == 0 ? "qdq_add" : "qdq_mul"));
    cr_assert_eq(test_net_run(net, 1, (void *[]){a, b}, (void *[]){y, floats}), GANTRY_OK);
    for (int64_t k = 0; k < C * H * W; k++) {
        float xa = (float)(load(a, k, is_signed) - 4) * 0.05f;
        float xb = (float)(load(b, vector ? k / (H * W) : k, is_signed) - (-3 & 0x7F)) * 0.1f;
        float x = strcmp(op, "Add") == 0 ? xa + xb : xa * xb;
        int wanted = saturate(rintf(x / 0.15f), 9, is_signed);
        cr_assert(abs(load(y, k, is_signed) - wanted) <= (exact ? 0 : 1), "%d", (int)k);
        cr_assert_eq(floats[k], xa);
    }
    cr_expect_eq(test_net_close(net), 0);
}

Test(cpu_qdq, sums_and_products_of_bytes)
{
    for (int exact = 0; exact < 2; exact++) {
        check_binary("Add", GANTRY_UINT8, false, exact);
        check_binary("Add", GANTRY_INT8, false, exact);
        check_binary("Add", GANTRY_UINT8, true, exact);
        check_binary("Mul", GANTRY_UINT8, true, exact);
        check_binary("Mul", GANTRY_INT8, false, exact);
        check_binary("Mul", GANTRY_INT8, true, exact);
    }
}

/* ---- a chain that forks: x * clip(x + 3, 0, 6) / 6, quantized after each step ---------------- */

Test(cpu_qdq, hard_swish_in_steps_is_one_table)
{
    int64_t dims[2] = {1, 256};
    uint8_t x[256], y[256];
    float three = 3, zero = 0, six = 6;
    pool p = {.count = 0};
    for (int k = 0; k < 256; k++)
        x[k] = (uint8_t)k;
    test_net *net = test_net_open();
    uint32_t v = test_value_add(net, GANTRY_UINT8, 2, dims), f[4], c[3];
    c[0] = test_constant_add(net, GANTRY_FLOAT32, 0, NULL, &three);
    c[1] = test_constant_add(net, GANTRY_FLOAT32, 0, NULL, &zero);
    c[2] = test_constant_add(net, GANTRY_FLOAT32, 0, NULL, &six);
    test_input(net, v);
    uint32_t xf = dequantize(net, &p, v, GANTRY_UINT8, 0.04f, 120);
    for (int k = 0; k < 4; k++)
        f[k] = test_value_add(net, GANTRY_FLOAT32, 2, dims);
    test_node_add(net, "", "Add", 14, 2, (uint32_t[]){xf, c[0]}, 1, &f[0]);
    uint32_t q = quantize(net, &p, f[0], GANTRY_UINT8, 0.05f, 40);
    uint32_t qf = dequantize(net, &p, q, GANTRY_UINT8, 0.05f, 40);
    test_node_add(net, "", "Clip", 13, 3, (uint32_t[]){qf, c[1], c[2]}, 1, &f[1]);
    test_node_add(net, "", "Mul", 14, 2, (uint32_t[]){f[1], xf}, 1, &f[2]);
    test_node_add(net, "", "Div", 14, 2, (uint32_t[]){f[2], c[2]}, 1, &f[3]);
    test_output(net, quantize(net, &p, f[3], GANTRY_UINT8, 0.03f, 12));
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_expect(test_net_fused(net, "qdq_table"));
    cr_expect_eq(net->recorder.kernel_count, 1u);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y}), GANTRY_OK);
    for (int k = 0; k < 256; k++) {
        float real = (float)(k - 120) * 0.04f;
        float sum = (float)(saturate(rintf((real + 3) / 0.05f), 40, false) - 40) * 0.05f;
        float clipped = sum < 0 ? 0 : sum > 6 ? 6 : sum;
        cr_assert_eq(y[k], saturate(rintf(clipped * real / 6 / 0.03f), 12, false), "%d", k);
    }
    cr_expect_eq(test_net_close(net), 0);
}

/* ---- a chain longer than a group ------------------------------------------------------------- */

Test(cpu_qdq, long_chain_of_operators)
{
    enum { LENGTH = 100 };
    int64_t dims[1] = {8};
    uint8_t x[8], y[8];
    pool p = {.count = 0};
    test_fill_bytes(x, sizeof x, 3);
    test_net *net = test_net_open();
    uint32_t v = test_value_add(net, GANTRY_UINT8, 1, dims);
    test_input(net, v);
    uint32_t last = dequantize(net, &p, v, GANTRY_UINT8, 0.04f, 0);
    for (int k = 0; k < LENGTH; k++) {
        uint32_t next = test_value_add(net, GANTRY_FLOAT32, 1, dims);
        test_node_add(net, "", "Abs", 13, 1, &last, 1, &next);
        last = next;
    }
    test_output(net, quantize(net, &p, last, GANTRY_UINT8, 0.04f, 0));
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y}), GANTRY_OK);
    cr_expect_arr_eq(y, x, sizeof x);
    cr_expect_eq(test_net_close(net), 0);
}

/* ---- products and pools ---------------------------------------------------------------------- */

static void check_product(bool exact)
{
    enum { ROWS = 5, DEPTH = 70, COLUMNS = 33 };
    int64_t a_dims[2] = {ROWS, DEPTH}, b_dims[2] = {DEPTH, COLUMNS}, y_dims[2] = {ROWS, COLUMNS}, n = COLUMNS;
    uint8_t a[ROWS * DEPTH], y[ROWS * COLUMNS];
    int8_t b[DEPTH * COLUMNS];
    float scales[COLUMNS];
    pool p = {.count = 0};
    test_fill_bytes(a, sizeof a, 8);
    test_fill_bytes((uint8_t *)b, sizeof b, 9);
    for (int k = 0; k < COLUMNS; k++)
        scales[k] = 0.004f + 0.0001f * (float)k;
    test_net *net = test_net_open();
    net->exact = exact;
    uint32_t v = test_value_add(net, GANTRY_UINT8, 2, a_dims),
             bf = test_value_add(net, GANTRY_FLOAT32, 2, b_dims),
             yf = test_value_add(net, GANTRY_FLOAT32, 2, y_dims);
    test_input(net, v);
    uint32_t af = dequantize(net, &p, v, GANTRY_UINT8, 0.02f, 131);
    test_node_add(net, "", "DequantizeLinear", 13, 2,
                  (uint32_t[]){test_constant_add(net, GANTRY_INT8, 2, b_dims, b),
                               test_constant_add(net, GANTRY_FLOAT32, 1, &n, scales)},
                  1, &bf);
    test_int(net, "axis", 1);
    test_node_add(net, "", "MatMul", 13, 2, (uint32_t[]){af, bf}, 1, &yf);
    test_output(net, quantize(net, &p, yf, GANTRY_UINT8, 0.4f, 125));
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_expect(test_net_fused(net, "qdq_matmul"));
    cr_assert_eq(test_net_run(net, 1, (void *[]){a}, (void *[]){y}), GANTRY_OK);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            int32_t sum = 0;
            for (int k = 0; k < DEPTH; k++)
                sum += (a[i * DEPTH + k] - 131) * b[k * COLUMNS + j];
            int wanted = saturate(rintf((float)sum * (0.02f * scales[j] / 0.4f)), 125, false);
            cr_assert(abs(y[i * COLUMNS + j] - wanted) <= (exact ? 0 : 1));
        }
    cr_expect_eq(test_net_close(net), 0);
}

Test(cpu_qdq, products_with_a_scale_for_each_column)
{
    check_product(false);
    check_product(true);
}

/* A Gemm with the bias and its zero point; the float operators say what is right when they are not joined. */
static void check_bias(int64_t count, int32_t zero, bool joined)
{
    enum { DEPTH = 4, COLUMNS = 8 };
    int64_t a_dims[2] = {1, DEPTH}, b_dims[2] = {DEPTH, COLUMNS}, y_dims[2] = {1, COLUMNS};
    uint8_t a[DEPTH] = {130, 140, 150, 160}, y[COLUMNS];
    int8_t b[DEPTH * COLUMNS];
    int32_t bias[COLUMNS];
    pool p = {.count = 0};
    test_fill_bytes((uint8_t *)b, sizeof b, 9);
    for (int k = 0; k < COLUMNS; k++)
        bias[k] = 300 * (k + 1);
    test_net *net = test_net_open();
    uint32_t v = test_value_add(net, GANTRY_UINT8, 2, a_dims),
             bf = test_value_add(net, GANTRY_FLOAT32, 2, b_dims),
             cf = test_value_add(net, GANTRY_FLOAT32, 1, &count),
             yf = test_value_add(net, GANTRY_FLOAT32, 2, y_dims);
    test_input(net, v);
    uint32_t af = dequantize(net, &p, v, GANTRY_UINT8, 0.5f, 128);
    uint32_t b_bytes = test_constant_add(net, GANTRY_INT8, 2, b_dims, b),
             c_integers = test_constant_add(net, GANTRY_INT32, 1, &count, bias),
             c_zero = test_constant_add(net, GANTRY_INT32, 0, NULL, &zero);
    test_node_add(net, "", "DequantizeLinear", 13, 2, (uint32_t[]){b_bytes, scale_of(net, &p, 0.25f)}, 1,
                  &bf);
    test_node_add(net, "", "DequantizeLinear", 13, 3,
                  (uint32_t[]){c_integers, scale_of(net, &p, 0.125f), c_zero}, 1, &cf);
    test_node_add(net, "", "Gemm", 13, 3, (uint32_t[]){af, bf, cf}, 1, &yf);
    test_output(net, quantize(net, &p, yf, GANTRY_UINT8, 8.0f, 100));
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_expect_eq(test_net_fused(net, "qdq_matmul"), joined);
    cr_assert_eq(test_net_run(net, 1, (void *[]){a}, (void *[]){y}), GANTRY_OK);
    for (int j = 0; j < COLUMNS; j++) {
        int32_t sum = bias[count == 1 ? 0 : j] - zero;
        for (int k = 0; k < DEPTH; k++)
            sum += (a[k] - 128) * b[k * COLUMNS + j];
        cr_expect_eq(y[j], saturate(rintf((float)sum * 0.125f / 8.0f), 100, false), "%d", j);
    }
    cr_expect_eq(test_net_close(net), 0);
}

Test(cpu_qdq, bias_that_is_joined_or_not)
{
    check_bias(8, 0, true);
    check_bias(8, 500, false);
    check_bias(1, 0, false);
}

/* The same weights for one group and for two of twice the channels: packed for each. */
Test(cpu_qdq, one_constant_with_two_counts_of_groups)
{
    enum { OUT = 16, IN = 8, PIXELS = 12 };
    const int64_t w_dims[4] = {OUT, IN, 1, 1}, y_dims[4] = {1, OUT, 3, 4};
    uint8_t x[2 * IN * PIXELS];
    int8_t w[OUT * IN];
    int32_t y[2][OUT * PIXELS];
    test_fill_bytes(x, sizeof x, 1);
    test_fill_bytes((uint8_t *)w, sizeof w, 2);
    test_net *net = test_net_open();
    uint32_t weights = test_constant_add(net, GANTRY_INT8, 4, w_dims, w);
    for (int k = 0; k < 2; k++) {
        const int64_t x_dims[4] = {1, (k + 1) * IN, 3, 4};
        uint32_t in = test_value_add(net, GANTRY_UINT8, 4, x_dims),
                 out = test_value_add(net, GANTRY_INT32, 4, y_dims);
        test_input(net, in);
        test_node_add(net, "", "ConvInteger", 10, 2, (uint32_t[]){in, weights}, 1, &out);
        test_int(net, "group", k + 1);
        test_output(net, out);
    }
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x, x}, (void *[]){y[0], y[1]}), GANTRY_OK, "%s",
                 net->error.message);
    for (int k = 0; k < 2; k++)
        for (int at = 0; at < OUT * PIXELS; at++) {
            int m = at / PIXELS, first = k && m >= OUT / 2 ? IN : 0, wanted = 0;
            for (int c = 0; c < IN; c++)
                wanted += x[(first + c) * PIXELS + at % PIXELS] * w[m * IN + c];
            cr_assert_eq(y[k][at], wanted, "%d groups, element %d", k + 1, at);
        }
    cr_assert_eq(test_net_close(net), 0);
}
