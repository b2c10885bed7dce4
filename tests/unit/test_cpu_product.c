/* MatMul and Gemm of the CPU provider against naive loops, on sizes around the tile edges. */
#include "tests/support/test_host.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static void naive(const float *a, const float *b, float *y, int64_t m, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)a[i * k + l] * b[l * n + j];
            y[i * n + j] = (float)sum;
        }
}

/* One MatMul [m,k] x [k,n], the second operand a constant or not, on that many threads. */
static void check_matmul(int64_t m, int64_t n, int64_t k, bool constant, int threads)
{
    float *a = malloc((size_t)(m * k + 1) * 4), *b = malloc((size_t)(k * n + 1) * 4);
    float *y = malloc((size_t)(m * n) * 4), *expected = malloc((size_t)(m * n) * 4);
    test_fill(a, m * k, 1);
    test_fill(b, k * n, 2);
    naive(a, b, expected, m, n, k);
    test_net *net = test_net_open();
    uint32_t in[2], out;
    in[0] = test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){m, k});
    in[1] = constant ? test_constant_add(net, GANTRY_FLOAT32, 2, (int64_t[]){k, n}, b)
                     : test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){k, n});
    out = test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){m, n});
    test_input(net, in[0]);
    if (!constant)
        test_input(net, in[1]);
    test_output(net, out);
    test_node_add(net, "", "MatMul", 13, 2, in, 1, &out);
    cr_assert_eq(test_net_build(net, threads), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, threads, (void *[]){a, b}, (void *[]){y}), GANTRY_OK, "%s",
                 net->error.message);
    cr_assert_lt(test_difference(y, expected, m * n), 1e-4, "m %d n %d k %d constant %d threads %d: %s",
                 (int)m, (int)n, (int)k, constant, threads, net->recorder.kernels[0]);
    cr_assert_eq(test_net_close(net), 0);
    free(a);
    free(b);
    free(y);
    free(expected);
}

Test(cpu_product, matmul_sizes)
{
    static const int64_t sizes[] = {1, 2, 3, 15, 16, 17, 63, 64, 65, 130};
    for (int i = 0; i < 10; i++)
        for (int j = 0; j < 10; j++)
            for (int l = 0; l < 10; l += 3)
                check_matmul(sizes[i], sizes[j], sizes[l], (i + j + l) % 2, 1 + (i + j) % 2);
}

Test(cpu_product, one_row_of_many_columns)
{
    check_matmul(1, 3000, 257, true, 1);
    check_matmul(1, 3000, 257, true, 2);
    check_matmul(1, 3000, 257, false, 2);
    check_matmul(3000, 1, 257, false, 1);
    check_matmul(4, 500, 0, false, 1);
}

/* Blocks of 256 rows, parts of 384 of k, a cut last panel: both sides of each edge. */
Test(cpu_product, tiles_of_many_rows)
{
    static const int64_t rows[] = {5, 7, 12, 255, 257, 513}, depths[] = {383, 385, 769},
                         columns[] = {64, 130};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 3; j++)
            for (int l = 0; l < 2; l++)
                check_matmul(rows[i], columns[l], depths[j], true, 1 + (i + j) % 3);
}

/* One square constant, multiplied as it is and transposed: it is packed for each. */
static void check_both_ways(int64_t m, int64_t n)
{
    float *x = malloc((size_t)(m * n) * 4), *w = malloc((size_t)(n * n) * 4),
          *turned = malloc((size_t)(n * n) * 4);
    float *y[2], *expected[2];
    for (int k = 0; k < 2; k++) {
        y[k] = malloc((size_t)(m * n) * 4);
        expected[k] = malloc((size_t)(m * n) * 4);
    }
    test_fill(x, m * n, 1);
    test_fill(w, n * n, 2);
    for (int64_t k = 0; k < n * n; k++)
        turned[k] = w[k % n * n + k / n];
    naive(x, w, expected[0], m, n, n);
    naive(x, turned, expected[1], m, n, n);
    test_net *net = test_net_open();
    uint32_t in[2] = {test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){m, n}),
                      test_constant_add(net, GANTRY_FLOAT32, 2, (int64_t[]){n, n}, w)};
    uint32_t out[2];
    for (int k = 0; k < 2; k++)
        out[k] = test_value_add(net, GANTRY_FLOAT32, 2, (int64_t[]){m, n});
    test_input(net, in[0]);
    test_output(net, out[0]);
    test_output(net, out[1]);
    test_node_add(net, "", "MatMul", 13, 2, in, 1, &out[0]);
    test_node_add(net, "", "Gemm", 13, 2, in, 1, &out[1]);
    test_int(net, "transB", 1);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y[0], y[1]}), GANTRY_OK, "%s",
                 net->error.message);
    for (int k = 0; k < 2; k++) {
        cr_expect_lt(test_difference(y[k], expected[k], m * n), 1e-4, "m %d n %d transposed %d: %s", (int)m,
                     (int)n, k, net->recorder.kernels[k]);
        free(y[k]);
        free(expected[k]);
    }
    cr_assert_eq(test_net_close(net), 0);
    free(x);
    free(w);
    free(turned);
}

Test(cpu_product, one_constant_both_ways)
{
    static const int64_t rows[] = {1, 2, 4, 16, 48, 200}, sizes[] = {16, 64, 96, 256};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 4; j++)
            check_both_ways(rows[i], sizes[j]);
}

/* With a factor integers are computed as doubles, which may not fit what they become. */
Test(cpu_product, a_gemm_of_integers_that_is_too_large)
{
    int64_t a[2] = {INT64_MAX, INT64_MIN}, b = 1, y[2];
    test_net *net = test_net_open();
    uint32_t in[2] = {test_value_add(net, GANTRY_INT64, 2, (int64_t[]){2, 1}),
                      test_value_add(net, GANTRY_INT64, 2, (int64_t[]){1, 1})};
    uint32_t out = test_value_add(net, GANTRY_INT64, 2, (int64_t[]){2, 1});
    test_input(net, in[0]);
    test_input(net, in[1]);
    test_output(net, out);
    test_node_add(net, "", "Gemm", 13, 2, in, 1, &out);
    test_float(net, "alpha", 2.0f);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){a, &b}, (void *[]){y}), GANTRY_OK, "%s", net->error.message);
    cr_expect_eq(y[0], INT64_MAX);
    cr_expect_eq(y[1], INT64_MIN);
    cr_assert_eq(test_net_close(net), 0);
}
