/* Winograd's convolutions of the CPU provider against the definition: sizes around its tiles, blocks of
 * channels that are not full, post-ops, each instruction set, what it must refuse, and inputs that are not
 * finite. */
#include "tests/support/test_host.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

typedef enum after {
    AFTER_NOTHING,
    AFTER_RELU,
    AFTER_RESIDUAL_RELU,
    AFTER_CLIP,
    AFTER_SIGMOID,
    AFTER_SWISH,
    AFTER_RELU_RESIDUAL
} after;

typedef struct winograd_case {
    int64_t n, c, k, h, w, pad_top, pad_left, pad_bottom, pad_right;
    bool bias;
    after after;
    int64_t group, dilation, stride;
    bool exact;
    float special; /* put into the input when `spoil` */
    bool spoil;
    bool wild_weight;   /* one is infinite */
    const char *kernel; /* NULL: none of Winograd's */
} winograd_case;

#define PADDED .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1
#define ONCE .group = 1, .dilation = 1, .stride = 1

static int64_t extent(int64_t in, int64_t pads, const winograd_case *t)
{
    return (in + pads - 2 * t->dilation - 1) / t->stride + 1;
}

/* One output by the definition, in double. */
static double sum_of(const winograd_case *t, const float *x, const float *w, int64_t n, int64_t k, int64_t i,
                     int64_t j)
{
    int64_t per = t->c / t->group, group = k / (t->k / t->group);
    double sum = 0;
    for (int64_t c = 0; c < per; c++)
        for (int64_t a = 0; a < 3; a++)
            for (int64_t b = 0; b < 3; b++) {
                int64_t p = i * t->stride + a * t->dilation - t->pad_top;
                int64_t q = j * t->stride + b * t->dilation - t->pad_left;
                if (p >= 0 && p < t->h && q >= 0 && q < t->w)
                    sum += (double)x[((n * t->c + group * per + c) * t->h + p) * t->w + q] *
                           w[(k * per + c) * 9 + a * 3 + b];
            }
    return sum;
}

static double finish(after kind, double x, double residual)
{
    switch (kind) {
    case AFTER_NOTHING:
        return x;
    case AFTER_RELU:
        return x < 0 ? 0 : x;
    case AFTER_RESIDUAL_RELU:
        return x + residual < 0 ? 0 : x + residual;
    case AFTER_RELU_RESIDUAL:
        return (x < 0 ? 0 : x) + residual;
    case AFTER_CLIP:
        return x < 0.25 ? 0.25 : x > 1.5 ? 1.5 : x;
    case AFTER_SIGMOID:
        return 1 / (1 + exp(-x));
    case AFTER_SWISH:
        return x / (1 + exp(-x));
    }
    return x;
}

static void add_one(test_net *net, const char *op, uint32_t x, uint32_t other, uint32_t y)
{
    test_node_add(net, "", op, 14, other == GANTRY_NO_ID ? 1 : 2, (uint32_t[]){x, other}, 1, &y);
}

/* The nodes behind the convolution; `plain` is its output, `last` the graph's. */
static void add_after(test_net *net, const winograd_case *t, const int64_t *dims, uint32_t plain,
                      uint32_t residual, uint32_t last)
{
    static const float low = 0.25f, high = 1.5f;
    uint32_t between = test_value_add(net, GANTRY_FLOAT32, 4, dims);
    if (t->after == AFTER_RELU)
        add_one(net, "Relu", plain, GANTRY_NO_ID, last);
    if (t->after == AFTER_SIGMOID)
        add_one(net, "Sigmoid", plain, GANTRY_NO_ID, last);
    if (t->after == AFTER_RESIDUAL_RELU) {
        add_one(net, "Add", plain, residual, between);
        add_one(net, "Relu", between, GANTRY_NO_ID, last);
    }
    if (t->after == AFTER_RELU_RESIDUAL) {
        add_one(net, "Relu", plain, GANTRY_NO_ID, between);
        add_one(net, "Add", between, residual, last);
    }
    if (t->after == AFTER_SWISH)
        test_node_add(net, "gantry", "Silu", 1, 1, &plain, 1, &last);
    if (t->after == AFTER_CLIP) {
        uint32_t bounds[2] = {test_constant_add(net, GANTRY_FLOAT32, 0, NULL, &low),
                              test_constant_add(net, GANTRY_FLOAT32, 0, NULL, &high)};
        test_node_add(net, "", "Clip", 13, 3, (uint32_t[]){plain, bounds[0], bounds[1]}, 1, &last);
    }
}

typedef struct buffers {
    float *x, *w, *b, *residual, *y, *expected;
    int64_t x_count, y_count;
} buffers;

static buffers make_buffers(const winograd_case *t, const int64_t *y_dims)
{
    buffers m = {.x_count = t->n * t->c * t->h * t->w, .y_count = t->n * t->k * y_dims[2] * y_dims[3]};
    m.x = test_filled(m.x_count, 3);
    m.w = test_filled(t->k * t->c / t->group * 9, 4);
    m.b = test_filled(t->k, 5);
    m.residual = test_filled(m.y_count, 6);
    m.y = test_filled(m.y_count, 7);
    m.expected = malloc((size_t)m.y_count * sizeof *m.expected);
    /* Sums of the size of their summands, so that tolerances mean the same for all channel counts. */
    for (int64_t k = 0; k < t->k * t->c / t->group * 9; k++)
        m.w[k] /= sqrtf((float)t->c);
    if (t->wild_weight)
        m.w[5] = INFINITY;
    if (t->spoil)
        m.x[m.x_count / 2 + 3] = t->special;
    for (int64_t at = 0; at < m.y_count; at++) {
        int64_t j = at % y_dims[3], i = at / y_dims[3] % y_dims[2], k = at / y_dims[3] / y_dims[2] % t->k;
        double sum = sum_of(t, m.x, m.w, at / y_dims[3] / y_dims[2] / t->k, k, i, j);
        m.expected[at] = (float)finish(t->after, sum + (t->bias ? m.b[k] : 0), m.residual[at]);
    }
    return m;
}

static void free_buffers(buffers *m)
{
    float *all[] = {m->x, m->w, m->b, m->residual, m->y, m->expected};
    for (int k = 0; k < 6; k++)
        free(all[k]);
}

static test_net *build(const winograd_case *t, const buffers *m, int64_t *y_dims, int threads)
{
    static int64_t pads[4], strides[2], dilations[2];
    int64_t x_dims[4] = {t->n, t->c, t->h, t->w}, w_dims[4] = {t->k, t->c / t->group, 3, 3};
    test_net *net = test_net_open();
    net->exact = t->exact;
    uint32_t in[3] = {test_value_add(net, GANTRY_FLOAT32, 4, x_dims),
                      test_constant_add(net, GANTRY_FLOAT32, 4, w_dims, m->w),
                      test_constant_add(net, GANTRY_FLOAT32, 1, &t->k, m->b)};
    uint32_t last = test_value_add(net, GANTRY_FLOAT32, 4, y_dims), plain = last;
    uint32_t residual = test_value_add(net, GANTRY_FLOAT32, 4, y_dims);
    test_input(net, in[0]);
    test_input(net, residual);
    test_output(net, last);
    if (t->after != AFTER_NOTHING)
        plain = test_value_add(net, GANTRY_FLOAT32, 4, y_dims);
    test_node_add(net, "", "Conv", 11, t->bias ? 3 : 2, in, 1, &plain);
    memcpy(pads, (int64_t[]){t->pad_top, t->pad_left, t->pad_bottom, t->pad_right}, sizeof pads);
    memcpy(strides, (int64_t[]){t->stride, t->stride}, sizeof strides);
    memcpy(dilations, (int64_t[]){t->dilation, t->dilation}, sizeof dilations);
    test_ints(net, "pads", 4, pads);
    test_ints(net, "strides", 2, strides);
    test_ints(net, "dilations", 2, dilations);
    test_int(net, "group", t->group);
    if (t->after != AFTER_NOTHING)
        add_after(net, t, y_dims, plain, residual, last);
    cr_assert_eq(test_net_build(net, threads), GANTRY_OK, "%s", net->error.message);
    return net;
}

static const char *conv_kernel(const test_net *net)
{
    for (uint32_t k = 0; k < net->recorder.kernel_count; k++)
        if (strncmp(net->recorder.kernels[k], "Conv", 4) == 0)
            return net->recorder.kernels[k];
    return "";
}

static void check(winograd_case t)
{
    int64_t y_dims[4] = {t.n, t.k, extent(t.h, t.pad_top + t.pad_bottom, &t),
                         extent(t.w, t.pad_left + t.pad_right, &t)};
    buffers m = make_buffers(&t, y_dims);
    float *first = malloc((size_t)m.y_count * sizeof *first);
    for (int threads = 1; threads <= 3; threads++) {
        test_net *net = build(&t, &m, y_dims, threads);
        const char *kernel = conv_kernel(net);
        cr_expect(strstr(kernel, t.kernel ? t.kernel : "Conv") != NULL, "c %d k %d %dx%d: %s", (int)t.c,
                  (int)t.k, (int)t.h, (int)t.w, kernel);
        cr_expect(t.kernel || !strstr(kernel, "winograd"), "%s", kernel);
        cr_assert_eq(test_net_run(net, threads, (void *[]){m.x, m.residual}, (void *[]){m.y}), GANTRY_OK,
                     "%s", net->error.message);
        double worst = test_difference(m.y, m.expected, m.y_count);
        /* Beside one huge input a small weight is only as exact as the largest. */
        cr_expect_lt(worst, t.spoil && isfinite(t.special) ? 2e-4 : 2e-5, "c %d k %d %dx%d, %s: %g", (int)t.c,
                     (int)t.k, (int)t.h, (int)t.w, kernel, worst);
        if (threads == 1)
            memcpy(first, m.y, (size_t)m.y_count * sizeof *first);
        cr_expect_arr_eq(first, m.y, (size_t)m.y_count * sizeof *first, "depends on the threads");
        cr_assert_eq(test_net_close(net), 0);
    }
    free(first);
    free_buffers(&m);
}

static void check_channels(void)
{
    static const int64_t channels[] = {8, 15, 16, 17, 24, 33, 48, 65};
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            check((winograd_case){.n = 1 + (i == j),
                                  .c = channels[i],
                                  .k = channels[j],
                                  .h = 12,
                                  .w = 13,
                                  PADDED,
                                  ONCE,
                                  .bias = i != j,
                                  .after = (after)((i + j) % 7),
                                  .kernel = "winograd4x4"});
}

static void check_planes(void)
{
    for (int64_t h = 8; h <= 17; h += 3)
        for (int64_t w = 11; w <= 20; w += 3)
            check((winograd_case){.n = 2,
                                  .c = 20,
                                  .k = 40,
                                  .h = h,
                                  .w = w,
                                  .pad_top = h % 3,
                                  .pad_left = w % 3,
                                  .pad_bottom = (h + 1) % 3,
                                  .pad_right = (w + 1) % 3,
                                  ONCE,
                                  .bias = true,
                                  .after = AFTER_RELU,
                                  .kernel = "winograd"});
    check((winograd_case){.n = 1,
                          .c = 256,
                          .k = 128,
                          .h = 7,
                          .w = 7,
                          PADDED,
                          ONCE,
                          .bias = true,
                          .after = AFTER_RESIDUAL_RELU,
                          .kernel = "winograd2x2"});
    check((winograd_case){.n = 1,
                          .c = 130,
                          .k = 70,
                          .h = 6,
                          .w = 7,
                          PADDED,
                          ONCE,
                          .bias = false,
                          .after = AFTER_SWISH,
                          .kernel = "winograd2x2"});
    check((winograd_case){.n = 1,
                          .c = 64,
                          .k = 128,
                          .h = 40,
                          .w = 43,
                          PADDED,
                          ONCE,
                          .bias = true,
                          .after = AFTER_CLIP,
                          .kernel = "winograd4x4"});
    check((winograd_case){.n = 3,
                          .c = 32,
                          .k = 200,
                          .h = 14,
                          .w = 14,
                          PADDED,
                          ONCE,
                          .bias = true,
                          .after = AFTER_RELU_RESIDUAL,
                          .kernel = "winograd4x4"});
}

/* Each extent of the last tile, and each way the planes can end. */
static void check_stride_2(void)
{
    static const int64_t channels[] = {24, 33, 47, 64};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            check((winograd_case){.n = 1 + (i == j),
                                  .c = channels[i],
                                  .k = channels[j],
                                  .h = 47 + i,
                                  .w = 47 + j,
                                  .pad_top = i % 2,
                                  .pad_left = j % 3,
                                  .pad_bottom = j % 2,
                                  .pad_right = 1,
                                  .group = 1,
                                  .dilation = 1,
                                  .stride = 2,
                                  .bias = i != j,
                                  .after = (after)((i + 2 * j) % 7),
                                  .kernel = "winograd4x4s2"});
    static const float specials[] = {INFINITY, NAN, 3e38f};
    for (int k = 0; k < 3; k++)
        check((winograd_case){.n = 1,
                              .c = 20,
                              .k = 40,
                              .h = 32,
                              .w = 47,
                              PADDED,
                              .group = 1,
                              .dilation = 1,
                              .stride = 2,
                              .bias = true,
                              .after = AFTER_RELU,
                              .spoil = true,
                              .special = specials[k],
                              .kernel = "winograd4x4s2"});
}

/* Only the outputs whose window holds the element may be spoilt by it, in whatever tile they are. */
static void check_not_finite(void)
{
    static const float specials[] = {INFINITY, -INFINITY, NAN, 3e38f};
    for (int k = 0; k < 4; k++) {
        check((winograd_case){.n = 1,
                              .c = 20,
                              .k = 40,
                              .h = 13,
                              .w = 14,
                              PADDED,
                              ONCE,
                              .bias = true,
                              .after = k % 2 ? AFTER_RELU : AFTER_NOTHING,
                              .spoil = true,
                              .special = specials[k],
                              .kernel = "winograd4x4"});
        check((winograd_case){.n = 1,
                              .c = 256,
                              .k = 130,
                              .h = 7,
                              .w = 7,
                              PADDED,
                              ONCE,
                              .bias = true,
                              .after = AFTER_NOTHING,
                              .spoil = true,
                              .special = specials[k],
                              .kernel = "winograd2x2"});
    }
}

Test(cpu_winograd, channels)
{
    check_channels();
}

Test(cpu_winograd, planes)
{
    check_planes();
}

Test(cpu_winograd, stride_2)
{
    check_stride_2();
}

Test(cpu_winograd, not_finite)
{
    check_not_finite();
}

/* oneDNN reads the variable once in a process; each test is one. */
Test(cpu_winograd, avx2)
{
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    check_channels();
    check_planes();
    check_stride_2();
    check_not_finite();
}

Test(cpu_winograd, refused)
{
    winograd_case good = {.n = 1,
                          .c = 32,
                          .k = 32,
                          .h = 16,
                          .w = 16,
                          PADDED,
                          ONCE,
                          .bias = true,
                          .after = AFTER_RELU,
                          .kernel = "winograd4x4"};
    check(good);
    winograd_case bad = good;
    bad.kernel = NULL;
    bad.group = 2;
    check(bad);
    bad.group = 1;
    bad.stride = 3;
    check(bad);
    bad.stride = 1;
    bad.dilation = 2;
    check(bad);
    bad.dilation = 1;
    bad.exact = true;
    check(bad);
    bad.exact = false;
    bad.wild_weight = true;
    check(bad);
    bad.wild_weight = false;
    bad.h = bad.w = 3; /* too few tiles for 36 weights instead of 9 */
    check(bad);
}
