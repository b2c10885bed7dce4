/* Convolutions of one input pixel (1x1 with SiLU, transposed ones whose windows do not overlap) against the
 * definition, for each instruction set. */
#include "tests/support/test_host.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

typedef struct pixel_case {
    int64_t n, c, k, h, w, step_h, step_w;
    bool transposed, bias, residual;
    const char *activation; /* NULL: none */
    const char *kernel;
} pixel_case;

static double activated(const char *op, double x)
{
    if (!op)
        return x;
    return strcmp(op, "Silu") == 0      ? x / (1 + exp(-x))
           : strcmp(op, "Sigmoid") == 0 ? 1 / (1 + exp(-x))
           : strcmp(op, "Relu") == 0    ? (x < 0 ? 0 : x)
                                        : NAN;
}

typedef struct buffers {
    float *x, *w, *b, *residual, *y, *expected;
    int64_t y_dims[4], y_count;
} buffers;

static buffers make_buffers(const pixel_case *t)
{
    buffers m = {.y_dims = {t->n, t->k, t->h * t->step_h, t->w * t->step_w}};
    int64_t taps = t->step_h * t->step_w;
    m.y_count = m.y_dims[0] * m.y_dims[1] * m.y_dims[2] * m.y_dims[3];
    m.x = test_filled(t->n * t->c * t->h * t->w, 3);
    m.w = test_filled(t->k * t->c * taps, 4);
    m.b = test_filled(t->k, 5);
    m.residual = test_filled(m.y_count, 6);
    m.y = test_filled(m.y_count, 7);
    m.expected = test_filled(m.y_count, 8);
    for (int64_t at = 0; at < m.y_count; at++) {
        int64_t j = at % m.y_dims[3], i = at / m.y_dims[3] % m.y_dims[2];
        int64_t k = at / m.y_dims[3] / m.y_dims[2] % t->k, n = at / m.y_dims[3] / m.y_dims[2] / t->k;
        int64_t tap = i % t->step_h * t->step_w + j % t->step_w;
        double sum = (t->bias ? m.b[k] : 0) + (t->residual ? m.residual[at] : 0);
        for (int64_t c = 0; c < t->c; c++)
            sum += (double)m.x[((n * t->c + c) * t->h + i / t->step_h) * t->w + j / t->step_w] *
                   m.w[t->transposed ? (c * t->k + k) * taps + tap : k * t->c + c];
        m.expected[at] = (float)activated(t->activation, sum);
    }
    return m;
}

static test_net *build(const pixel_case *t, buffers *m, int threads)
{
    static int64_t strides[2];
    int64_t x_dims[4] = {t->n, t->c, t->h, t->w};
    int64_t w_dims[4] = {t->transposed ? t->c : t->k, t->transposed ? t->k : t->c, t->step_h, t->step_w};
    test_net *net = test_net_open();
    uint32_t in[3] = {test_value_add(net, GANTRY_FLOAT32, 4, x_dims),
                      test_constant_add(net, GANTRY_FLOAT32, 4, w_dims, m->w),
                      test_constant_add(net, GANTRY_FLOAT32, 1, &t->k, m->b)};
    uint32_t values[4]; /* residual, and after each node */
    for (int k = 0; k < 4; k++)
        values[k] = test_value_add(net, GANTRY_FLOAT32, 4, m->y_dims);
    uint32_t last = values[1];
    test_input(net, in[0]);
    test_input(net, values[0]);
    test_node_add(net, "", t->transposed ? "ConvTranspose" : "Conv", 11, t->bias ? 3 : 2, in, 1, &last);
    memcpy(strides, (int64_t[]){t->step_h, t->step_w}, sizeof strides);
    test_ints(net, "strides", 2, strides);
    if (t->residual) {
        test_node_add(net, "", "Add", 14, 2, (uint32_t[]){last, values[0]}, 1, &values[2]);
        last = values[2];
    }
    if (t->activation) {
        bool composite = strcmp(t->activation, "Silu") == 0;
        test_node_add(net, composite ? "gantry" : "", t->activation, composite ? 1 : 14, 1, &last, 1,
                      &values[3]);
        last = values[3];
    }
    test_output(net, last);
    cr_assert_eq(test_net_build(net, threads), GANTRY_OK, "%s", net->error.message);
    return net;
}

static bool uses(const test_net *net, const char *kernel)
{
    for (uint32_t k = 0; k < net->recorder.kernel_count; k++)
        if (strstr(net->recorder.kernels[k], kernel))
            return true;
    return false;
}

static void check(pixel_case t)
{
    buffers m = make_buffers(&t);
    for (int threads = 1; threads <= 2; threads++) {
        test_net *net = build(&t, &m, threads);
        cr_expect(uses(net, t.kernel), "c %d k %d %dx%d: no %s", (int)t.c, (int)t.k, (int)t.h, (int)t.w,
                  t.kernel);
        cr_assert_eq(test_net_run(net, threads, (void *[]){m.x, m.residual}, (void *[]){m.y}), GANTRY_OK,
                     "%s", net->error.message);
        double worst = test_difference(m.y, m.expected, m.y_count);
        cr_expect_lt(worst, 2e-5, "c %d k %d %dx%d steps %dx%d: %g", (int)t.c, (int)t.k, (int)t.h, (int)t.w,
                     (int)t.step_h, (int)t.step_w, worst);
        cr_assert_eq(test_net_close(net), 0);
    }
    float *all[] = {m.x, m.w, m.b, m.residual, m.y, m.expected};
    for (int k = 0; k < 6; k++)
        free(all[k]);
}

static void check_all(int64_t widest_plain)
{
    static const int64_t channels[] = {8, 15, 16, 17, 40, 72};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) {
            check((pixel_case){1 + (i == j), channels[i], channels[j], 9, 11, 1, 1, false, i > j, j % 2,
                               "Silu", "pixels:blocked"});
            check((pixel_case){1 + (i == j), channels[i], channels[j], 3, 10 * i + 1, 2, 2, true, i > j,
                               false, i % 2 ? "Relu" : NULL, "pixels:blocked"});
        }
    check((pixel_case){1, 24, 24, 6, 130, 1, 2, true, true, false, "Relu", "pixels:blocked"});
    check((pixel_case){1, 24, 24, 6, 13, 3, 1, true, true, false, "Silu", "pixels:blocked"});
    check((pixel_case){2, 24, 1, 7, 130, 2, 2, true, true, false, "Sigmoid", "pixels:plain"});
    check((pixel_case){1, 20, widest_plain / 4, 5, 9, 2, 2, true, false, false, NULL, "pixels:plain"});
    check((pixel_case){1, 20, widest_plain / 2, 5, 9, 1, 2, true, true, false, "Silu", "pixels:plain"});
    check((pixel_case){1, 20, 2, 5, 9, 2, 2, true, true, false, "Relu", "pixels:plain"});
}

/* Of these windows some lanes would be left over, or more than a vector is needed. */
static void check_others(void)
{
    check((pixel_case){1, 24, 7, 6, 7, 3, 3, true, true, false, "Relu", "panel64"});
    check((pixel_case){1, 24, 24, 6, 7, 2, 5, true, true, false, "Relu", "panel64"});
    check((pixel_case){1, 32, 24, 8, 9, 1, 1, false, true, false, "Relu", "1x1"});
}

/* An autoencoder may decode with the weights that it encodes with: they are packed for each. */
Test(cpu_pixels, weights_of_both_directions)
{
    enum { CHANNELS = 16, PIXELS = 12 };
    const int64_t dims[4] = {1, CHANNELS, 3, 4}, w_dims[4] = {CHANNELS, CHANNELS, 1, 1};
    float *x = test_filled(CHANNELS * PIXELS, 3), *w = test_filled(CHANNELS * CHANNELS, 4);
    float y[2][CHANNELS * PIXELS], expected[2][CHANNELS * PIXELS];
    test_net *net = test_net_open();
    uint32_t in[2] = {test_value_add(net, GANTRY_FLOAT32, 4, dims),
                      test_constant_add(net, GANTRY_FLOAT32, 4, w_dims, w)};
    uint32_t values[3];
    for (int k = 0; k < 3; k++)
        values[k] = test_value_add(net, GANTRY_FLOAT32, 4, dims);
    test_input(net, in[0]);
    test_node_add(net, "", "Conv", 11, 2, in, 1, &values[0]);
    test_node_add(net, "gantry", "Silu", 1, 1, &values[0], 1, &values[1]);
    test_node_add(net, "", "ConvTranspose", 11, 2, in, 1, &values[2]);
    test_output(net, values[1]);
    test_output(net, values[2]);
    cr_assert_eq(test_net_build(net, 1), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, 1, (void *[]){x}, (void *[]){y[0], y[1]}), GANTRY_OK, "%s",
                 net->error.message);
    for (int at = 0; at < CHANNELS * PIXELS; at++) {
        double forward = 0, back = 0;
        for (int c = 0; c < CHANNELS; c++) {
            double pixel = (double)x[c * PIXELS + at % PIXELS];
            forward += pixel * (double)w[at / PIXELS * CHANNELS + c];
            back += pixel * (double)w[c * CHANNELS + at / PIXELS];
        }
        expected[0][at] = (float)activated("Silu", forward);
        expected[1][at] = (float)back;
    }
    for (int k = 0; k < 2; k++)
        cr_expect_lt(test_difference(y[k], expected[k], CHANNELS * PIXELS), 2e-5, "output %d", k);
    cr_assert_eq(test_net_close(net), 0);
    free(x);
    free(w);
}

Test(cpu_pixels, widest)
{
    check_all(16 - 2); /* 3 channels of 4 taps; 7 of 2 */
    check_others();
}

/* oneDNN reads the variable once in a process; each test is one. */
Test(cpu_pixels, avx2)
{
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    check_all(8);
    check_others();
}
