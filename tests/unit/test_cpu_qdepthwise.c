/* Convolutions of bytes with one channel a group: strides, dilations, padding on each side, channels that
 * fill no vector, both element types; bit for bit in every mode. */
#include "tests/support/test_host.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct depthwise_case {
    gantry_dtype dtype;
    int64_t channels, height, width, rows, columns, stride, dilation;
    int64_t pads[4]; /* top, left, bottom, right */
    int x_zero, y_zero;
} depthwise_case;

static int load(const uint8_t *bytes, int64_t k, bool is_signed)
{
    return is_signed ? (int8_t)bytes[k] : bytes[k];
}

static int wanted_at(const depthwise_case *t, const uint8_t *x, const int8_t *w, float multiplier, int64_t c,
                     int64_t i, int64_t j)
{
    bool is_signed = t->dtype == GANTRY_INT8;
    int32_t sum = (int32_t)(300 * (c - 7));
    for (int64_t a = 0; a < t->rows; a++)
        for (int64_t b = 0; b < t->columns; b++) {
            int64_t p = i * t->stride + a * t->dilation - t->pads[0],
                    q = j * t->stride + b * t->dilation - t->pads[1];
            if (p >= 0 && p < t->height && q >= 0 && q < t->width)
                sum += (load(x, (c * t->height + p) * t->width + q, is_signed) - t->x_zero) *
                       w[(c * t->rows + a) * t->columns + b];
        }
    int y = (int)rintf((float)sum * multiplier) + t->y_zero, low = is_signed ? -128 : 0;
    return y < low ? low : y > low + 255 ? low + 255 : y;
}

static void check(const depthwise_case *t, bool exact)
{
    int64_t n = t->channels, strides[2] = {t->stride, t->stride}, dilations[2] = {t->dilation, t->dilation};
    int64_t out_h = (t->height + t->pads[0] + t->pads[2] - (t->rows - 1) * t->dilation - 1) / t->stride + 1;
    int64_t out_w = (t->width + t->pads[1] + t->pads[3] - (t->columns - 1) * t->dilation - 1) / t->stride + 1;
    int64_t x_dims[4] = {1, n, t->height, t->width}, w_dims[4] = {n, 1, t->rows, t->columns},
            y_dims[4] = {1, n, out_h, out_w};
    uint8_t *x = malloc((size_t)(n * t->height * t->width)), *y = malloc((size_t)(n * out_h * out_w)),
            zeros[2] = {(uint8_t)t->x_zero, (uint8_t)t->y_zero};
    int8_t *w = malloc((size_t)(n * t->rows * t->columns));
    float scales[2] = {0.02f, 0.37f}, *w_scales = malloc((size_t)n * sizeof *w_scales);
    int32_t *bias = malloc((size_t)n * sizeof *bias);
    test_fill_bytes(x, n * t->height * t->width, 3);
    test_fill_bytes((uint8_t *)w, n * t->rows * t->columns, 4);
    for (int64_t c = 0; c < n; c++) {
        w_scales[c] = 0.004f + 0.0003f * (float)c;
        bias[c] = (int32_t)(300 * (c - 7));
    }
    test_net *net = test_net_open();
    net->exact = exact;
    uint32_t v = test_value_add(net, t->dtype, 4, x_dims), out = test_value_add(net, t->dtype, 4, y_dims);
    test_input(net, v);
    uint32_t inputs[9] = {v,
                          test_constant_add(net, GANTRY_FLOAT32, 0, NULL, &scales[0]),
                          test_constant_add(net, t->dtype, 0, NULL, &zeros[0]),
                          test_constant_add(net, GANTRY_INT8, 4, w_dims, w),
                          test_constant_add(net, GANTRY_FLOAT32, 1, &n, w_scales),
                          GANTRY_NO_ID,
                          test_constant_add(net, GANTRY_FLOAT32, 0, NULL, &scales[1]),
                          test_constant_add(net, t->dtype, 0, NULL, &zeros[1]),
                          test_constant_add(net, GANTRY_INT32, 1, &n, bias)};
    int8_t w_zero = 0;
    inputs[5] = test_constant_add(net, GANTRY_INT8, 0, NULL, &w_zero);
    test_node_add(net, "", "QLinearConv", 10, 9, inputs, 1, &out);
    test_ints(net, "pads", 4, t->pads);
    test_ints(net, "strides", 2, strides);
    test_ints(net, "dilations", 2, dilations);
    test_int(net, "group", n);
    test_output(net, out);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y}), GANTRY_OK, "%s", net->error.message);
    for (int64_t c = 0; c < n; c++)
        for (int64_t i = 0; i < out_h; i++)
            for (int64_t j = 0; j < out_w; j++) {
                int got = load(y, (c * out_h + i) * out_w + j, t->dtype == GANTRY_INT8);
                int wanted = wanted_at(t, x, w, scales[0] * w_scales[c] / scales[1], c, i, j);
                cr_assert_eq(got, wanted, "channel %d at %d,%d: %d, want %d", (int)c, (int)i, (int)j, got,
                             wanted);
            }
    cr_expect_eq(test_net_close(net), 0);
    free(x);
    free(y);
    free(w);
    free(w_scales);
    free(bias);
}

Test(cpu_qdepthwise, every_window_is_exact)
{
    static const depthwise_case cases[] = {
        {GANTRY_UINT8, 16, 9, 11, 3, 3, 1, 1, {1, 1, 1, 1}, 0, 0},
        {GANTRY_UINT8, 5, 7, 6, 3, 3, 2, 1, {0, 1, 1, 0}, 131, 12},
        {GANTRY_UINT8, 40, 13, 3, 5, 5, 1, 1, {2, 2, 2, 2}, 77, 128},
        {GANTRY_INT8, 33, 8, 9, 5, 5, 2, 1, {2, 2, 1, 1}, -9, 4},
        {GANTRY_INT8, 24, 10, 10, 3, 2, 1, 2, {2, 0, 2, 3}, 127, -128},
        {GANTRY_UINT8, 17, 2, 19, 1, 7, 3, 1, {0, 3, 0, 3}, 255, 255},
        {GANTRY_UINT8, 18, 12, 4, 8, 1, 1, 1, {4, 0, 3, 0}, 1, 100},
        {GANTRY_INT8, 3, 12, 12, 9, 9, 1, 1, {4, 4, 4, 4}, -128, 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int exact = 0; exact < 2; exact++)
            check(&cases[k], exact);
}
