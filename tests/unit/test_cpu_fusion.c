/* Fused groups and blocked layouts of the CPU provider: the same numbers as node by node, and the records. */
#include "tests/support/test_host.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

static uint32_t value4(test_net *net, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return test_value_add(net, GANTRY_FLOAT32, 4, (int64_t[]){n, c, h, w});
}

static uint32_t weight4(test_net *net, int64_t m, int64_t c, int64_t k, float **out_data, uint32_t seed)
{
    *out_data = malloc((size_t)(m * c * k * k) * sizeof(float));
    test_fill(*out_data, m * c * k * k, seed);
    return test_constant_add(net, GANTRY_FLOAT32, 4, (int64_t[]){m, c, k, k}, *out_data);
}

/* 3x3 convolution, padding 1, in double. */
static void naive_conv(const float *x, const float *w, float *y, int64_t c, int64_t m, int64_t h,
                       int64_t width)
{
    for (int64_t o = 0; o < m; o++)
        for (int64_t i = 0; i < h; i++)
            for (int64_t j = 0; j < width; j++) {
                double sum = 0;
                for (int64_t ci = 0; ci < c; ci++)
                    for (int64_t a = 0; a < 3; a++)
                        for (int64_t b = 0; b < 3; b++) {
                            int64_t p = i + a - 1, q = j + b - 1;
                            if (p >= 0 && p < h && q >= 0 && q < width)
                                sum +=
                                    (double)x[(ci * h + p) * width + q] * w[((o * c + ci) * 3 + a) * 3 + b];
                        }
                y[(o * h + i) * width + j] = (float)sum;
            }
}

static void add_conv(test_net *net, uint32_t x, uint32_t w, uint32_t y)
{
    static const int64_t pads[4] = {1, 1, 1, 1};
    test_node_add(net, "", "Conv", 11, 2, (uint32_t[]){x, w}, 1, &y);
    test_ints(net, "pads", 4, pads);
}

/* x -> conv -> relu -> conv -> + x -> relu, with c channels: the second add is a residual in place or not. */
static void check_residual_block(int64_t c, bool first_is_output)
{
    enum { H = 9, W = 10 };
    int64_t size = c * H * W;
    float *w1, *w2, *x = malloc((size_t)size * 4), *y = malloc((size_t)size * 4),
                    *mid = malloc((size_t)size * 4);
    float *expected = malloc((size_t)size * 4), *between = malloc((size_t)size * 4);
    test_fill(x, size, 11);
    test_net *net = test_net_open();
    uint32_t v[6];
    for (int k = 0; k < 6; k++)
        v[k] = value4(net, 1, c, H, W);
    uint32_t k1 = weight4(net, c, c, 3, &w1, 12), k2 = weight4(net, c, c, 3, &w2, 13);
    test_input(net, v[0]);
    add_conv(net, v[0], k1, v[1]);
    test_node_add(net, "", "Relu", 14, 1, &v[1], 1, &v[2]);
    add_conv(net, v[2], k2, v[3]);
    test_node_add(net, "", "Add", 14, 2, (uint32_t[]){v[0], v[3]}, 1, &v[4]);
    test_node_add(net, "", "Relu", 14, 1, &v[4], 1, &v[5]);
    test_output(net, v[5]);
    if (first_is_output)
        test_output(net, v[2]);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y, mid}), GANTRY_OK, "%s",
                 net->error.message);
    naive_conv(x, w1, between, c, c, H, W);
    for (int64_t k = 0; k < size; k++)
        between[k] = fmaxf(between[k], 0);
    naive_conv(between, w2, expected, c, c, H, W);
    for (int64_t k = 0; k < size; k++)
        expected[k] = fmaxf(expected[k] + x[k], 0);
    cr_assert_lt(test_difference(y, expected, size), 1e-4, "c %d", (int)c);
    if (first_is_output)
        cr_assert_lt(test_difference(mid, between, size), 1e-4, "c %d", (int)c);
    uint32_t applied = 0;
    for (uint32_t k = 0; k < net->recorder.fusion_count; k++)
        applied += (uint32_t)net->recorder.applied[k];
    cr_assert_eq(applied, 2);
    cr_assert_str_eq(net->recorder.fusions[0], "Conv+Relu ");
    cr_assert_eq(test_net_close(net), 0);
    free(w1);
    free(w2);
    free(x);
    free(y);
    free(mid);
    free(expected);
    free(between);
}

Test(cpu_fusion, residual_block)
{
    check_residual_block(16, false);
    check_residual_block(32, true);
    check_residual_block(5, false);
    check_residual_block(20, true);
}

/* Every activation after a product, against the formula in double. */
static double formula(const char *op, double x)
{
    if (strcmp(op, "Relu") == 0)
        return x > 0 ? x : 0;
    if (strcmp(op, "LeakyRelu") == 0)
        return x > 0 ? x : 0.01 * x;
    if (strcmp(op, "Sigmoid") == 0)
        return 1 / (1 + exp(-x));
    if (strcmp(op, "Tanh") == 0)
        return tanh(x);
    if (strcmp(op, "HardSigmoid") == 0)
        return fmin(fmax(0.2 * x + 0.5, 0), 1);
    if (strcmp(op, "HardSwish") == 0)
        return x * fmin(fmax(x / 6 + 0.5, 0), 1);
    if (strcmp(op, "Silu") == 0)
        return x / (1 + exp(-x));
    return 0.5 * x * (1 + erf(x / sqrt(2.0)));
}

static void check_activation(const char *op, const char *domain, int64_t m, int64_t n, int64_t k)
{
    float *a = malloc((size_t)(m * k) * 4), *b = malloc((size_t)(k * n) * 4), *c = malloc((size_t)n * 4);
    float *y = malloc((size_t)(m * n) * 4), *expected = malloc((size_t)(m * n) * 4);
    test_fill(a, m * k, 1);
    test_fill(b, k * n, 2);
    test_fill(c, n, 3);
    test_net *net = test_net_open();
    uint32_t va = test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){m, k});
    uint32_t vb = test_constant_add(net, GANTRY_FLOAT32, 2, (int64_t[]){k, n}, b);
    uint32_t vc = test_constant_add(net, GANTRY_FLOAT32, 1, &n, c);
    uint32_t v[3];
    for (int i = 0; i < 3; i++)
        v[i] = test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){m, n});
    test_input(net, va);
    test_output(net, v[2]);
    test_node_add(net, "", "MatMul", 13, 2, (uint32_t[]){va, vb}, 1, &v[0]);
    test_node_add(net, "", "Add", 14, 2, (uint32_t[]){vc, v[0]}, 1, &v[1]);
    test_node_add(net, domain, op, 1, 1, &v[1], 1, &v[2]);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(net->recorder.kernel_count, 1);
    cr_assert_eq(test_net_run(net, 1, (void *[]){a}, (void *[]){y}), GANTRY_OK);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = c[j];
            for (int64_t l = 0; l < k; l++)
                sum += (double)a[i * k + l] * b[l * n + j];
            expected[i * n + j] = (float)formula(op, sum);
        }
    cr_assert_lt(test_difference(y, expected, m * n), 1e-4, "%s %s", op, net->recorder.kernels[0]);
    cr_assert_eq(test_net_close(net), 0);
    free(a);
    free(b);
    free(c);
    free(y);
    free(expected);
}

/* conv -> HardSwish -> * 0.7 -> + 0.3: one kernel, whichever computes it. A factor that gives the output
 * another rank is none. */
static void check_factor_and_addend(int64_t c, bool raises_rank)
{
    enum { H = 9, W = 20 };
    int64_t size = c * H * W, five[5] = {1, 1, c, H, W};
    float *w, *x = malloc((size_t)size * 4), *y = malloc((size_t)size * 4),
              *expected = malloc((size_t)size * 4);
    const float factor = 0.7f, addend = 0.3f;
    test_fill(x, size, 21);
    test_net *net = test_net_open();
    uint32_t v[5];
    for (int k = 0; k < 5; k++)
        v[k] = raises_rank && k > 2 ? test_value_add(net, GANTRY_FLOAT32, 5, five) : value4(net, 1, c, H, W);
    uint32_t weight = weight4(net, c, c, 3, &w, 22);
    uint32_t f =
        test_constant_add(net, GANTRY_FLOAT32, raises_rank ? 5 : 1, (int64_t[]){1, 1, 1, 1, 1}, &factor);
    uint32_t a = test_constant_add(net, GANTRY_FLOAT32, 0, NULL, &addend);
    test_input(net, v[0]);
    test_output(net, v[4]);
    add_conv(net, v[0], weight, v[1]);
    test_node_add(net, "", "HardSwish", 14, 1, &v[1], 1, &v[2]);
    test_node_add(net, "", "Mul", 14, 2, (uint32_t[]){f, v[2]}, 1, &v[3]);
    test_node_add(net, "", "Add", 14, 2, (uint32_t[]){v[3], a}, 1, &v[4]);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y}), GANTRY_OK, "%s", net->error.message);
    naive_conv(x, w, expected, c, c, H, W);
    for (int64_t k = 0; k < size; k++)
        expected[k] = expected[k] * fminf(fmaxf(expected[k] / 6 + 0.5f, 0), 1) * factor + addend;
    cr_assert_lt(test_difference(y, expected, size), 1e-4, "c %d", (int)c);
    bool fused = false;
    for (uint32_t k = 0; k < net->recorder.kernel_count; k++)
        fused = fused || strncmp(net->recorder.kernels[k], "Conv+HardSwish+Mul+Add ", 23) == 0;
    cr_assert_eq(fused, !raises_rank);
    cr_assert_eq(test_net_close(net), 0);
    free(w);
    free(x);
    free(y);
    free(expected);
}

Test(cpu_fusion, factor_and_addend_of_all_elements)
{
    check_factor_and_addend(3, false);  /* own kernel */
    check_factor_and_addend(7, false);  /* oneDNN */
    check_factor_and_addend(64, false); /* Winograd */
    check_factor_and_addend(16, true);
}

Test(cpu_fusion, activations_after_a_product)
{
    static const char *const ops[] = {"Relu",        "LeakyRelu", "Sigmoid", "Tanh",
                                      "HardSigmoid", "HardSwish", "Silu",    "Gelu"};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        const char *domain = k >= 6 ? "gantry" : "";
        check_activation(ops[k], domain, 1, 70, 33);
        check_activation(ops[k], domain, 40, 130, 65);
    }
}

/* ids -> Gather(table), x -> MatMul(Transpose(table)): a language model whose head shares its embedding. */
static void check_shared_head(int64_t m, int64_t n, int64_t k, bool gathered, const char *kernel)
{
    float *a = malloc((size_t)(m * k) * 4), *b = malloc((size_t)(k * n) * 4), *c = malloc((size_t)n * 4);
    float *y = malloc((size_t)(m * n) * 4), *row = malloc((size_t)k * 4),
          *expected = malloc((size_t)(m * n) * 4);
    test_fill(a, m * k, 1);
    test_fill(b, k * n, 2);
    test_fill(c, n, 3);
    test_net *net = test_net_open();
    int64_t one = 1, id = n - 1;
    uint32_t va = test_value_add(net, GANTRY_FLOAT32, 3, (int64_t[]){1, m, k});
    uint32_t vb = test_constant_add(net, GANTRY_FLOAT32, 2, (int64_t[]){n, k}, b);
    uint32_t vc = test_constant_add(net, GANTRY_FLOAT32, 1, &n, c);
    uint32_t vi = test_value_add(net, GANTRY_INT64, 1, &one);
    uint32_t vr = test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){1, k});
    uint32_t vt = test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){k, n});
    uint32_t vp = test_value_add(net, GANTRY_FLOAT32, 3, (int64_t[]){1, m, n});
    uint32_t vy = test_value_add(net, GANTRY_FLOAT32, 3, (int64_t[]){1, m, n});
    test_input(net, va);
    test_output(net, vy);
    if (gathered) {
        test_input(net, vi);
        test_output(net, vr);
        test_node_add(net, "", "Gather", 13, 2, (uint32_t[]){vb, vi}, 1, &vr);
    }
    test_node_add(net, "", "Transpose", 13, 1, &vb, 1, &vt);
    test_ints(net, "perm", 2, (int64_t[]){1, 0});
    test_node_add(net, "", "MatMul", 13, 2, (uint32_t[]){va, vt}, 1, &vp);
    test_node_add(net, "", "Add", 14, 2, (uint32_t[]){vp, vc}, 1, &vy);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(net->recorder.kernel_count, gathered ? 2 : 1);
    const char *last = net->recorder.kernels[gathered];
    cr_assert(strstr(last, kernel), "%s, not %s", last, kernel);
    cr_assert_eq(test_net_run(net, 1, (void *[]){a, &id}, (void *[]){y, row}), GANTRY_OK);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = c[j];
            for (int64_t l = 0; l < k; l++)
                sum += (double)a[i * k + l] * b[j * k + l];
            expected[i * n + j] = (float)sum;
        }
    cr_assert_lt(test_difference(y, expected, m * n), 2e-4, "m %d: %s", (int)m, last);
    if (gathered)
        cr_assert_eq(memcmp(row, b + id * k, (size_t)k * 4), 0);
    cr_assert_eq(test_net_close(net), 0);
    free(a);
    free(b);
    free(c);
    free(y);
    free(row);
    free(expected);
}

Test(cpu_fusion, weights_behind_a_transpose)
{
    for (int64_t m = 1; m <= 4; m++)
        check_shared_head(m, 4099, 259, true, "dots:shared");
    check_shared_head(6, 4099, 259, true, "Transpose+MatMul+Add");
    check_shared_head(2, 4099, 259, false, "panel64:packed");
    check_shared_head(6, 130, 33, false, "Transpose+MatMul+Add");
}

static float get_pooled(const float *x, int64_t h, int64_t w, int64_t i, int64_t j, bool average)
{
    float best = -INFINITY, sum = 0;
    int64_t count = 0;
    for (int64_t a = 0; a < 3; a++)
        for (int64_t b = 0; b < 3; b++) {
            int64_t p = i * 2 + a - 1, q = j * 2 + b - 1;
            if (p < 0 || q < 0 || p >= h || q >= w)
                continue;
            best = fmaxf(best, x[p * w + q]);
            sum += x[p * w + q];
            count++;
        }
    return average ? sum / (float)count : best;
}

static void check_pool(bool average, int64_t c, int64_t h, int64_t w, bool ceil_mode, bool indices)
{
    int64_t oh = ceil_mode ? (h - 1 + 1) / 2 + 1 : (h + 2 - 3) / 2 + 1,
            ow = ceil_mode ? (w - 1 + 1) / 2 + 1 : (w + 2 - 3) / 2 + 1;
    float *x = malloc((size_t)(c * h * w) * 4), *y = malloc((size_t)(c * oh * ow) * 4);
    int64_t *at = malloc((size_t)(c * oh * ow) * 8);
    test_fill(x, c * h * w, 7);
    test_net *net = test_net_open();
    uint32_t vx = value4(net, 1, c, h, w), vy[2] = {value4(net, 1, c, oh, ow)};
    vy[1] = test_value_add(net, GANTRY_INT64, 4, (int64_t[]){1, c, oh, ow});
    test_input(net, vx);
    test_output(net, vy[0]);
    if (indices)
        test_output(net, vy[1]);
    test_node_add(net, "", average ? "AveragePool" : "MaxPool", 12, 1, &vx, indices ? 2 : 1, vy);
    static const int64_t kernel[2] = {3, 3}, strides[2] = {2, 2}, pads[4] = {1, 1, 1, 1};
    test_ints(net, "kernel_shape", 2, kernel);
    test_ints(net, "strides", 2, strides);
    test_ints(net, "pads", 4, pads);
    test_int(net, "ceil_mode", ceil_mode);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y, at}), GANTRY_OK);
    for (int64_t k = 0; k < c; k++)
        for (int64_t i = 0; i < oh; i++)
            for (int64_t j = 0; j < ow; j++) {
                int64_t o = (k * oh + i) * ow + j;
                float expected = get_pooled(x + k * h * w, h, w, i, j, average);
                cr_assert_float_eq(y[o], expected, 1e-5, "%s", net->recorder.kernels[0]);
                if (indices)
                    cr_assert_float_eq(x[at[o]], expected, 0);
            }
    cr_assert_eq(test_net_close(net), 0);
    free(x);
    free(y);
    free(at);
}

Test(cpu_fusion, pools)
{
    for (int64_t c = 1; c < 40; c += 7) {
        check_pool(false, c, 9, 8, false, false);
        check_pool(false, c, 8, 9, true, false);
        check_pool(true, c, 9, 8, false, false);
        check_pool(true, c, 8, 9, true, false);
        check_pool(false, c, 9, 8, false, true);
    }
}

/* alpha and beta are only known to the plain loops: what is fused with such a Gemm is applied there. */
Test(cpu_fusion, a_scaled_gemm_keeps_its_activation_and_addend)
{
    enum { M = 3, K = 5, N = 70 };
    float a[M * K], r[M * N], y[M * N], expected[M * N], *b = malloc(K * N * sizeof *b);
    test_fill(a, M * K, 1);
    test_fill(b, K * N, 2);
    test_fill(r, M * N, 3);
    test_net *net = test_net_open();
    uint32_t x = test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){M, K}), v[4];
    for (int k = 0; k < 4; k++)
        v[k] = test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){M, N});
    uint32_t w = test_constant_add(net, GANTRY_FLOAT32, 2, (int64_t[]){K, N}, b);
    test_input(net, x);
    test_input(net, v[0]);
    test_node_add(net, "", "Gemm", 13, 2, (uint32_t[]){x, w}, 1, &v[1]);
    test_float(net, "alpha", 0.5f);
    test_node_add(net, "", "Add", 14, 2, (uint32_t[]){v[1], v[0]}, 1, &v[2]);
    test_node_add(net, "", "Relu", 14, 1, &v[2], 1, &v[3]);
    test_output(net, v[3]);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){a, r}, (void *[]){y}), GANTRY_OK, "%s", net->error.message);
    for (int k = 0; k < M * N; k++) {
        double sum = 0;
        for (int j = 0; j < K; j++)
            sum += (double)a[k / N * K + j] * b[j * N + k % N];
        expected[k] = fmaxf((float)(0.5 * sum) + r[k], 0);
    }
    cr_assert_lt(test_difference(y, expected, M * N), 1e-5);
    test_net_close(net);
    free(b);
}

/* x -> conv a, conv b -> Concat -> Resize x2 -> conv: all between the first and the last node stays in
 * blocks, when those are whole. */
static void check_join(int64_t a, int64_t b, bool blocked)
{
    enum { H = 8, W = 10 };
    static const float scales[4] = {1, 1, 2, 2};
    int64_t joined = a + b, large = joined * 4 * H * W, out_size = 16 * 4 * H * W;
    float *w[3], *x = malloc(16 * H * W * sizeof *x), *y = malloc((size_t)out_size * sizeof *y);
    float *both = malloc((size_t)(joined * H * W) * sizeof *both),
          *resized = malloc((size_t)large * sizeof *y);
    float *expected = malloc((size_t)out_size * sizeof *expected);
    test_fill(x, 16 * H * W, 31);
    test_net *net = test_net_open();
    uint32_t in = value4(net, 1, 16, H, W), parts[2] = {value4(net, 1, a, H, W), value4(net, 1, b, H, W)};
    uint32_t join = value4(net, 1, joined, H, W), big = value4(net, 1, joined, 2 * H, 2 * W);
    uint32_t last = value4(net, 1, 16, 2 * H, 2 * W);
    test_input(net, in);
    add_conv(net, in, weight4(net, a, 16, 3, &w[0], 32), parts[0]);
    add_conv(net, in, weight4(net, b, 16, 3, &w[1], 33), parts[1]);
    test_node_add(net, "", "Concat", 13, 2, parts, 1, &join);
    test_int(net, "axis", 1);
    uint32_t factors = test_constant_add(net, GANTRY_FLOAT32, 1, (int64_t[]){4}, scales);
    test_node_add(net, "", "Resize", 13, 3, (uint32_t[]){join, GANTRY_NO_ID, factors}, 1, &big);
    test_text(net, "mode", "nearest");
    test_text(net, "coordinate_transformation_mode", "asymmetric");
    test_text(net, "nearest_mode", "floor");
    add_conv(net, big, weight4(net, 16, joined, 3, &w[2], 34), last);
    test_output(net, last);
    cr_assert_eq(test_net_build(net, 2), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 2, (void *[]){x}, (void *[]){y}), GANTRY_OK, "%s", net->error.message);
    naive_conv(x, w[0], both, 16, a, H, W);
    naive_conv(x, w[1], both + a * H * W, 16, b, H, W);
    for (int64_t k = 0; k < large; k++)
        resized[k] = both[(k / (4 * H * W) * H + k / (2 * W) % (2 * H) / 2) * W + k % (2 * W) / 2];
    naive_conv(resized, w[2], expected, joined, 16, 2 * H, 2 * W);
    double worst = test_difference(y, expected, out_size); /* sums of 430 numbers of about 4 */
    cr_assert_lt(worst, 1e-3, "%d and %d: %g", (int)a, (int)b, worst);
    for (uint32_t k = 0; k < net->recorder.kernel_count; k++) {
        const char *kernel = net->recorder.kernels[k];
        if (strncmp(kernel, "Concat", 6) == 0 || strncmp(kernel, "Resize", 6) == 0)
            cr_expect_eq(strstr(kernel, "nChw16c") != NULL, blocked, "%s", kernel);
    }
    cr_assert_eq(test_net_close(net), 0);
    float *all[] = {w[0], w[1], w[2], x, y, both, resized, expected};
    for (int k = 0; k < 8; k++)
        free(all[k]);
}

Test(cpu_fusion, whole_blocks_are_joined_and_resized)
{
    check_join(16, 32, true);
    check_join(48, 16, true);
    check_join(24, 24, false);
    check_join(20, 16, false);
}

/* x -> conv -> r; conv(r) + r: the addend is what the convolution reads, so it must not be overwritten. */
static void check_own_input_as_residual(int64_t c, int64_t h, int64_t width)
{
    int64_t size = c * h * width;
    float *w[2], *x = malloc((size_t)size * sizeof *x), *y = malloc((size_t)size * sizeof *y);
    float *between = malloc((size_t)size * sizeof *y), *expected = malloc((size_t)size * sizeof *y);
    test_fill(x, size, 41);
    test_net *net = test_net_open();
    uint32_t v[4];
    for (int k = 0; k < 4; k++)
        v[k] = value4(net, 1, c, h, width);
    test_input(net, v[0]);
    add_conv(net, v[0], weight4(net, c, c, 3, &w[0], 42), v[1]);
    add_conv(net, v[1], weight4(net, c, c, 3, &w[1], 43), v[2]);
    test_node_add(net, "", "Add", 14, 2, (uint32_t[]){v[2], v[1]}, 1, &v[3]);
    test_output(net, v[3]);
    cr_assert_eq(test_net_build(net, 2), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 2, (void *[]){x}, (void *[]){y}), GANTRY_OK, "%s", net->error.message);
    naive_conv(x, w[0], between, c, c, h, width);
    naive_conv(between, w[1], expected, c, c, h, width);
    for (int64_t k = 0; k < size; k++)
        expected[k] += between[k];
    double worst = test_difference(y, expected, size);
    cr_assert_lt(worst, 1e-3, "c %d %dx%d: %g", (int)c, (int)h, (int)width, worst);
    cr_assert_eq(test_net_close(net), 0);
    float *all[] = {w[0], w[1], x, y, between, expected};
    for (int k = 0; k < 6; k++)
        free(all[k]);
}

Test(cpu_fusion, own_input_as_residual)
{
    check_own_input_as_residual(16, 3, 3);
    check_own_input_as_residual(16, 5, 9);
    check_own_input_as_residual(48, 40, 41);
}
