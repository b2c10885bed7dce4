/* Float operators between DequantizeLinear and QuantizeLinear as one program over rows: broadcast operands,
 * normalizations, rows that are cut and rows that must not be, and operators that only move elements. */
#include "tests/support/test_host.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct qrows_net {
    test_net *net;
    float scales[16];
    uint8_t zeros[16];
    int count;
} qrows_net;

/* DequantizeLinear or QuantizeLinear to a new value of that shape. */
static uint32_t convert(qrows_net *n, const char *op, uint32_t x, gantry_dtype to, uint32_t rank,
                        const int64_t *dims, float scale, int zero)
{
    uint32_t y = test_value_add(n->net, to, rank, dims), parameters[3] = {x};
    n->scales[n->count] = scale;
    n->zeros[n->count] = (uint8_t)zero;
    parameters[1] = test_constant_add(n->net, GANTRY_FLOAT32, 0, NULL, &n->scales[n->count]);
    parameters[2] = test_constant_add(n->net, GANTRY_UINT8, 0, NULL, &n->zeros[n->count++]);
    test_node_add(n->net, "", op, 13, 3, parameters, 1, &y);
    return y;
}

static uint32_t node(qrows_net *n, const char *op, uint32_t count, const uint32_t *inputs, uint32_t rank,
                     const int64_t *dims)
{
    uint32_t y = test_value_add(n->net, GANTRY_FLOAT32, rank, dims);
    test_node_add(n->net, "", op, 20, count, inputs, 1, &y);
    return y;
}

static int quantized(double x, float scale, int zero)
{
    double y = rint(x / (double)scale) + zero;
    return (int)(y < 0 ? 0 : y > 255 ? 255 : y);
}

static void run(qrows_net *n, void **inputs, uint8_t *y, const char *rule, uint32_t kernels)
{
    cr_assert_eq(test_net_build(n->net, 1), GANTRY_OK, "%s", n->net->error.message);
    cr_expect(test_net_fused(n->net, rule));
    cr_expect_eq(n->net->recorder.kernel_count, kernels, "%u kernels", n->net->recorder.kernel_count);
    cr_assert_eq(test_net_run(n->net, 1, inputs, (void *[]){y}), GANTRY_OK, "%s", n->net->error.message);
}

/* Sums in float and in double may lie on two sides of a tie. */
static void expect_close(const uint8_t *y, const int *wanted, int64_t count)
{
    int64_t off = 0;
    for (int64_t k = 0; k < count; k++) {
        cr_assert(abs(y[k] - wanted[k]) <= 1, "%d: %d, want %d", (int)k, y[k], wanted[k]);
        off += y[k] != wanted[k];
    }
    cr_expect(off * 200 <= count, "%d of %d", (int)off, (int)count);
}

/* gelu(x + bias), quantized behind a Reshape and a Transpose: three kernels, and no floats between. */
static void check_gelu(int64_t rows, int64_t heads, int64_t width, bool exact)
{
    int64_t n = heads * width, count = rows * n, x_dims[2] = {rows, n}, parted[3] = {rows, heads, width};
    int64_t turned[3] = {heads, rows, width}, perm[3] = {1, 0, 2}, three = 3;
    uint8_t *x = malloc((size_t)count), *y = malloc((size_t)count);
    int *wanted = malloc((size_t)count * sizeof *wanted);
    float *bias = malloc((size_t)n * sizeof *bias);
    test_fill_bytes(x, count, 3);
    for (int64_t k = 0; k < n; k++)
        bias[k] = 0.013f * (float)(k % 101 - 50);
    qrows_net q = {.net = test_net_open()};
    q.net->exact = exact;
    uint32_t v = test_value_add(q.net, GANTRY_UINT8, 2, x_dims);
    test_input(q.net, v);
    uint32_t b = test_constant_add(q.net, GANTRY_FLOAT32, 1, &n, bias);
    uint32_t shape = test_constant_add(q.net, GANTRY_INT64, 1, &three, parted);
    uint32_t f = convert(&q, "DequantizeLinear", v, GANTRY_FLOAT32, 2, x_dims, 0.03f, 121);
    f = node(&q, "Add", 2, (uint32_t[]){b, f}, 2, x_dims);
    f = node(&q, "Gelu", 1, &f, 2, x_dims);
    f = node(&q, "Reshape", 2, (uint32_t[]){f, shape}, 3, parted);
    f = node(&q, "Transpose", 1, &f, 3, turned);
    test_ints(q.net, "perm", 3, perm);
    test_output(q.net, convert(&q, "QuantizeLinear", f, GANTRY_UINT8, 3, turned, 0.021f, 9));
    run(&q, (void *[]){x}, y, "qdq_rows", rows == 1 || heads == 1 ? 1 : 2); /* the Reshape is a view */
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t c = 0; c < width; c++) {
                double real = (double)((float)(x[(r * heads + h) * width + c] - 121) * 0.03f) +
                              (double)bias[h * width + c];
                wanted[(h * rows + r) * width + c] =
                    quantized(0.5 * real * (1 + erf(real / sqrt(2.0))), 0.021f, 9);
            }
    expect_close(y, wanted, count);
    cr_expect_eq(test_net_close(q.net), 0);
    free(x);
    free(y);
    free(wanted);
    free(bias);
}

Test(cpu_qrows, gelu_of_biased_bytes_behind_moves)
{
    for (int exact = 0; exact < 2; exact++) {
        check_gelu(1, 1, 7, exact);
        check_gelu(5, 3, 17, exact);
        check_gelu(3, 4, 768, exact);
        check_gelu(130, 2, 16, exact);
    }
}

/* softmax(x / 8 + mask) with one mask for each batch. */
static void check_softmax(int64_t batches, int64_t rows, int64_t n)
{
    int64_t count = batches * rows * n, dims[3] = {batches, rows, n}, mask_dims[3] = {batches, 1, n};
    uint8_t *x = malloc((size_t)count), *y = malloc((size_t)count);
    int *wanted = malloc((size_t)count * sizeof *wanted);
    float *mask = malloc((size_t)(batches * n) * sizeof *mask), eight = 8;
    test_fill_bytes(x, count, 4);
    for (int64_t k = 0; k < batches * n; k++)
        mask[k] = k % 5 == 3 && n > 4 ? -3.0e38f : 0.25f * (float)(k % 3);
    qrows_net q = {.net = test_net_open()};
    uint32_t v = test_value_add(q.net, GANTRY_UINT8, 3, dims);
    uint32_t m = test_value_add(q.net, GANTRY_FLOAT32, 3, mask_dims);
    test_input(q.net, v);
    test_input(q.net, m);
    uint32_t c = test_constant_add(q.net, GANTRY_FLOAT32, 0, NULL, &eight);
    uint32_t f = convert(&q, "DequantizeLinear", v, GANTRY_FLOAT32, 3, dims, 0.2f, 130);
    f = node(&q, "Div", 2, (uint32_t[]){f, c}, 3, dims);
    f = node(&q, "Add", 2, (uint32_t[]){f, m}, 3, dims);
    f = node(&q, "Softmax", 1, &f, 3, dims);
    test_output(q.net, convert(&q, "QuantizeLinear", f, GANTRY_UINT8, 3, dims, 0.0021f, 3));
    run(&q, (void *[]){x, mask}, y, "qdq_rows", 1);
    for (int64_t r = 0; r < batches * rows; r++) {
        double e[3000], sum = 0, most = -INFINITY;
        for (int64_t k = 0; k < n; k++) {
            e[k] = (double)((float)(x[r * n + k] - 130) * 0.2f) / 8 + (double)mask[r / rows * n + k];
            most = e[k] > most ? e[k] : most;
        }
        for (int64_t k = 0; k < n; k++)
            sum += e[k] = exp(e[k] - most);
        for (int64_t k = 0; k < n; k++)
            wanted[r * n + k] = quantized(e[k] / sum, 0.0021f, 3);
    }
    expect_close(y, wanted, count);
    cr_expect_eq(test_net_close(q.net), 0);
    free(x);
    free(y);
    free(wanted);
    free(mask);
}

Test(cpu_qrows, softmax_with_a_mask)
{
    check_softmax(1, 1, 1);
    check_softmax(2, 3, 33);
    check_softmax(3, 50, 128);
    check_softmax(1, 2, 2999);
}

/* layernorm(x + bias + residual): two operands of bytes. */
static void check_norm(int64_t rows, int64_t n)
{
    int64_t count = rows * n, dims[2] = {rows, n};
    uint8_t *x = malloc((size_t)count), *r = malloc((size_t)count), *y = malloc((size_t)count);
    int *wanted = malloc((size_t)count * sizeof *wanted);
    float *vectors = malloc((size_t)(3 * n) * sizeof *vectors);
    test_fill_bytes(x, count, 7);
    test_fill_bytes(r, count, 8);
    for (int64_t k = 0; k < 3 * n; k++)
        vectors[k] = 0.02f * (float)(k % 67 - 31);
    qrows_net q = {.net = test_net_open()};
    uint32_t a = test_value_add(q.net, GANTRY_UINT8, 2, dims),
             b = test_value_add(q.net, GANTRY_UINT8, 2, dims), c[3];
    test_input(q.net, a);
    test_input(q.net, b);
    for (int k = 0; k < 3; k++)
        c[k] = test_constant_add(q.net, GANTRY_FLOAT32, 1, &n, vectors + k * n);
    uint32_t fa = convert(&q, "DequantizeLinear", a, GANTRY_FLOAT32, 2, dims, 0.03f, 118);
    uint32_t fb = convert(&q, "DequantizeLinear", b, GANTRY_FLOAT32, 2, dims, 0.041f, 130);
    uint32_t f = node(&q, "Add", 2, (uint32_t[]){c[0], fa}, 2, dims);
    f = node(&q, "Add", 2, (uint32_t[]){f, fb}, 2, dims);
    f = node(&q, "LayerNormalization", 3, (uint32_t[]){f, c[1], c[2]}, 2, dims);
    test_output(q.net, convert(&q, "QuantizeLinear", f, GANTRY_UINT8, 2, dims, 0.013f, 127));
    run(&q, (void *[]){x, r}, y, "qdq_rows", 1);
    for (int64_t row = 0; row < rows; row++) {
        double sums[3000], mean = 0, variance = 0;
        for (int64_t k = 0; k < n; k++) {
            sums[k] = (double)((float)(x[row * n + k] - 118) * 0.03f) + (double)vectors[k] +
                      (double)((float)(r[row * n + k] - 130) * 0.041f);
            mean += sums[k] / (double)n;
        }
        for (int64_t k = 0; k < n; k++)
            variance += (sums[k] - mean) * (sums[k] - mean) / (double)n;
        for (int64_t k = 0; k < n; k++)
            wanted[row * n + k] =
                quantized((sums[k] - mean) / sqrt(variance + 1e-5) * (double)vectors[n + k] +
                              (double)vectors[2 * n + k],
                          0.013f, 127);
    }
    expect_close(y, wanted, count);
    cr_expect_eq(test_net_close(q.net), 0);
    free(x);
    free(r);
    free(y);
    free(wanted);
    free(vectors);
}

Test(cpu_qrows, normalized_sums_of_bytes)
{
    check_norm(1, 5);
    check_norm(70, 24);
    check_norm(9, 768);
    check_norm(2, 2999);
}

/* Concat of a Resize and of bytes with other scales: both are quantized before they are moved. */
Test(cpu_qrows, resized_and_joined_bytes)
{
    enum { C = 5, D = 3, H = 4, W = 6 };
    int64_t small[4] = {1, C, H / 2, W / 2}, large[4] = {1, C, H, W}, other[4] = {1, D, H, W},
            joined[4] = {1, C + D, H, W}, four = 4;
    uint8_t a[C * H * W / 4], b[D * H * W], y[(C + D) * H * W];
    float scales[4] = {1, 1, 2, 2};
    test_fill_bytes(a, sizeof a, 11);
    test_fill_bytes(b, sizeof b, 12);
    qrows_net q = {.net = test_net_open()};
    uint32_t va = test_value_add(q.net, GANTRY_UINT8, 4, small),
             vb = test_value_add(q.net, GANTRY_UINT8, 4, other);
    test_input(q.net, va);
    test_input(q.net, vb);
    uint32_t sizes = test_constant_add(q.net, GANTRY_FLOAT32, 1, &four, scales);
    uint32_t fa = convert(&q, "DequantizeLinear", va, GANTRY_FLOAT32, 4, small, 0.03f, 100);
    uint32_t fb = convert(&q, "DequantizeLinear", vb, GANTRY_FLOAT32, 4, other, 0.05f, 90);
    uint32_t resized = node(&q, "Resize", 3, (uint32_t[]){fa, GANTRY_NO_ID, sizes}, 4, large);
    test_text(q.net, "mode", "nearest");
    test_text(q.net, "coordinate_transformation_mode", "asymmetric");
    test_text(q.net, "nearest_mode", "floor");
    uint32_t f = node(&q, "Concat", 2, (uint32_t[]){resized, fb}, 4, joined);
    test_int(q.net, "axis", 1);
    test_output(q.net, convert(&q, "QuantizeLinear", f, GANTRY_UINT8, 4, joined, 0.05f, 90));
    run(&q, (void *[]){a, b}, y, "qdq_pass", 3); /* a table, the Resize, the Concat */
    for (int64_t c = 0; c < C + D; c++)
        for (int64_t p = 0; p < H * W; p++) {
            int from = c < C ? a[(c * (H / 2) + p / W / 2) * (W / 2) + p % W / 2] : 0;
            int wanted =
                c < C ? quantized((double)((float)(from - 100) * 0.03f), 0.05f, 90) : b[(c - C) * H * W + p];
            cr_assert_eq(y[c * H * W + p], wanted, "%d, %d", (int)c, (int)p);
        }
    cr_expect_eq(test_net_close(q.net), 0);
}
