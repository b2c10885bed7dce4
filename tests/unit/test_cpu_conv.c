/* Conv and ConvTranspose of the CPU provider against a naive loop. */
#include "tests/support/test_host.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

typedef struct conv_case {
    int rank; /* spatial */
    int64_t n, c, m, in[3], kernel[3], stride, pad, pad_end, dilation, groups;
    bool transposed, bias;
    int threads;
    bool silu;
    int poison; /* that many inputs are infinite or NaN */
} conv_case;

static int64_t product(const int64_t *dims, int rank)
{
    int64_t p = 1;
    for (int k = 0; k < rank; k++)
        p *= dims[k];
    return p;
}

static void output_dims(const conv_case *t, int64_t *out)
{
    for (int k = 0; k < t->rank; k++) {
        int64_t range = (t->kernel[k] - 1) * t->dilation + 1;
        out[k] = t->transposed ? (t->in[k] - 1) * t->stride + range - t->pad - t->pad_end
                               : (t->in[k] + t->pad + t->pad_end - range) / t->stride + 1;
    }
}

/* Scatters (transposed) or gathers tap by tap, in double. */
static void naive(const conv_case *t, const float *x, const float *w, const float *bias, const int64_t *out,
                  float *y)
{
    int64_t in_size = product(t->in, t->rank), out_size = product(out, t->rank),
            taps = product(t->kernel, t->rank);
    int64_t cg = t->c / t->groups, mg = t->m / t->groups;
    double *sum = calloc((size_t)(t->n * t->m * out_size), sizeof *sum);
    const int64_t *walked = t->transposed ? t->in : out, *other = t->transposed ? out : t->in;
    for (int64_t n = 0; n < t->n; n++)
        for (int64_t m = 0; m < t->m; m++)
            for (int64_t ci = 0; ci < cg; ci++)
                for (int64_t p = 0; p < product(walked, t->rank); p++)
                    for (int64_t tap = 0; tap < taps; tap++) {
                        int64_t a = p, b = tap, flat = 0, scale = 1;
                        bool inside = true;
                        for (int k = t->rank; k-- > 0;) {
                            int64_t at = a % walked[k] * t->stride - t->pad + b % t->kernel[k] * t->dilation;
                            a /= walked[k];
                            b /= t->kernel[k];
                            inside = inside && at >= 0 && at < other[k];
                            flat += at * scale;
                            scale *= other[k];
                        }
                        if (!inside)
                            continue;
                        int64_t g = m / mg, c = g * cg + ci, xp = t->transposed ? p : flat;
                        int64_t wi =
                            t->transposed ? (c * mg + m % mg) * taps + tap : (m * cg + ci) * taps + tap;
                        sum[(n * t->m + m) * out_size + (t->transposed ? flat : p)] +=
                            (double)x[(n * t->c + c) * in_size + xp] * w[wi];
                    }
    for (int64_t k = 0; k < t->n * t->m * out_size; k++)
        y[k] = (float)(sum[k] + (bias ? bias[k / out_size % t->m] : 0));
    for (int64_t k = 0; t->silu && k < t->n * t->m * out_size; k++)
        y[k] /= 1 + expf(-y[k]);
    free(sum);
}

/* Results that are not finite are so in both. */
static double difference(const float *a, const float *b, int64_t count)
{
    double most = 0;
    for (int64_t k = 0; k < count; k++)
        if (isfinite(b[k]))
            most = fmax(most, isfinite(a[k]) ? fabs((double)a[k] - (double)b[k]) : (double)INFINITY);
        else if (isnan(a[k]) != isnan(b[k]) || (!isnan(b[k]) && a[k] != b[k]))
            most = INFINITY;
    return most;
}

static void check(conv_case t)
{
    int64_t out[3], x_dims[5] = {t.n, t.c}, w_dims[5], y_dims[5] = {t.n, t.m};
    output_dims(&t, out);
    w_dims[0] = t.transposed ? t.c : t.m;
    w_dims[1] = (t.transposed ? t.m : t.c) / t.groups;
    for (int k = 0; k < t.rank; k++) {
        x_dims[2 + k] = t.in[k];
        w_dims[2 + k] = t.kernel[k];
        y_dims[2 + k] = out[k];
    }
    uint32_t rank = (uint32_t)t.rank + 2;
    int64_t xs = product(x_dims, t.rank + 2), ws = product(w_dims, t.rank + 2),
            ys = product(y_dims, t.rank + 2);
    float *x = malloc((size_t)xs * 4), *w = malloc((size_t)ws * 4), *b = malloc((size_t)t.m * 4);
    float *y = calloc((size_t)ys, 4), *expected = calloc((size_t)ys, 4);
    cr_assert(x && w && b && y && expected);
    test_fill(x, xs, 3);
    test_fill(w, ws, 4);
    for (int k = 0; k < t.poison; k++)
        x[(7919 * (k + 1)) % xs] = k % 2 ? NAN : INFINITY;
    test_fill(b, t.m, 5);
    naive(&t, x, w, t.bias ? b : NULL, out, expected);
    test_net *net = test_net_open();
    uint32_t in[3], y_id, silu_id;
    in[0] = test_value_add(net, GANTRY_FLOAT32, rank, x_dims);
    in[1] = test_constant_add(net, GANTRY_FLOAT32, rank, w_dims, w);
    in[2] = test_constant_add(net, GANTRY_FLOAT32, 1, &t.m, b);
    y_id = test_value_add(net, GANTRY_FLOAT32, rank, y_dims);
    test_input(net, in[0]);
    silu_id = test_value_add(net, GANTRY_FLOAT32, rank, y_dims);
    test_output(net, t.silu ? silu_id : y_id);
    int64_t strides[3] = {t.stride, t.stride, t.stride}, dilations[3] = {t.dilation, t.dilation, t.dilation};
    int64_t pads[6];
    for (int k = 0; k < t.rank; k++) {
        pads[k] = t.pad;
        pads[t.rank + k] = t.pad_end;
    }
    test_node_add(net, "", t.transposed ? "ConvTranspose" : "Conv", 11, t.bias ? 3 : 2, in, 1, &y_id);
    test_ints(net, "strides", (uint32_t)t.rank, strides);
    test_ints(net, "dilations", (uint32_t)t.rank, dilations);
    test_ints(net, "pads", 2 * (uint32_t)t.rank, pads);
    test_int(net, "group", t.groups);
    if (t.silu)
        test_node_add(net, "gantry", "Silu", 1, 1, &y_id, 1, &silu_id);
    cr_assert_eq(test_net_build(net, t.threads), GANTRY_OK, "%s", net->error.message);
    cr_assert_eq(test_net_run(net, t.threads, (void *[]){x}, (void *[]){y}), GANTRY_OK, "%s",
                 net->error.message);
    cr_assert_lt(difference(y, expected, ys), 1e-4, "rank %d c %d m %d k %d s %d g %d %s: %s", t.rank,
                 (int)t.c, (int)t.m, (int)t.kernel[0], (int)t.stride, (int)t.groups,
                 t.transposed ? "transposed" : "", net->recorder.kernels[net->recorder.kernel_count - 1]);
    if (getenv("GANTRY_TEST_VERBOSE"))
        for (uint32_t k = 0; k < net->recorder.kernel_count; k++)
            fprintf(stderr, "c %d m %d: %s\n", (int)t.c, (int)t.m, net->recorder.kernels[k]);
    cr_assert_eq(test_net_close(net), 0);
    free(x);
    free(w);
    free(b);
    free(y);
    free(expected);
}

Test(cpu_conv, channels_around_blocks)
{
    static const int64_t channels[] = {1, 3, 8, 15, 16, 17, 32, 40};
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            check((conv_case){2,
                              1 + (i & 1),
                              channels[i],
                              channels[j],
                              {9, 7},
                              {3, 3},
                              1 + (j & 1),
                              1,
                              1,
                              1,
                              1,
                              false,
                              i != j,
                              1 + (i & 1)});
}

Test(cpu_conv, groups_and_depthwise)
{
    check((conv_case){2, 1, 32, 32, {10, 11}, {3, 3}, 1, 1, 1, 1, 32, false, true, 1});
    check((conv_case){2, 2, 24, 24, {10, 11}, {5, 5}, 2, 2, 2, 1, 24, false, true, 2});
    check((conv_case){2, 1, 6, 12, {8, 8}, {3, 3}, 1, 0, 1, 1, 3, false, false, 1});
    check((conv_case){2, 1, 64, 32, {8, 8}, {3, 3}, 1, 1, 1, 1, 2, false, true, 1});
    check((conv_case){2, 1, 8, 24, {8, 8}, {3, 3}, 1, 1, 1, 1, 8, false, true, 1});
}

/* Depthwise with SiLU: planes that are copied with their padding and planes whose edges are apart, windows
 * larger than the input, strides, dilations, channels that do not fill a block. */
Test(cpu_conv, depthwise_with_silu)
{
    for (int64_t c = 8; c <= 40; c += 8)
        for (int64_t stride = 1; stride <= 3; stride++)
            check((conv_case){2, 2, c, c, {13, 12}, {3, 3}, stride, 1, 1, 1, c, false, true, 2, true});
    for (int64_t pad = 0; pad <= 4; pad++)
        for (int64_t end = 0; end <= 4; end += 2) {
            check((conv_case){2, 1, 20, 20, {31, 41}, {5, 5}, 1, pad, end, 1, 20, false, pad > 0, 2, true});
            check((conv_case){2, 1, 20, 20, {31, 41}, {5, 5}, 2, pad, end, 1, 20, false, pad > 0, 1, true});
            check((conv_case){2, 1, 20, 20, {31, 41}, {3, 5}, 2, pad, end, 2, 20, false, pad > 0, 1, true});
            check((conv_case){2, 1, 33, 33, {7, 7}, {5, 5}, 1, pad, end, 1, 33, false, true, 1, true});
        }
    check((conv_case){2, 1, 16, 16, {3, 60}, {7, 7}, 1, 3, 3, 1, 16, false, true, 1, true});
    check((conv_case){2, 1, 16, 16, {60, 3}, {7, 7}, 1, 3, 3, 1, 16, false, true, 1, true});
    check((conv_case){2, 1, 16, 16, {40, 1}, {5, 1}, 1, 0, 0, 1, 16, false, true, 1, true});
    check((conv_case){2, 1, 24, 24, {4, 2}, {2, 2}, 1, 9, 9, 1, 24, false, true, 1, true});
}

Test(cpu_conv, one_and_three_dims)
{
    check((conv_case){1, 2, 5, 7, {50}, {3}, 2, 1, 1, 1, 1, false, true, 1});
    check((conv_case){1, 1, 64, 128, {40}, {5}, 1, 2, 2, 1, 1, false, true, 1});
    check((conv_case){1, 1, 1, 258, {640}, {256}, 64, 0, 0, 1, 1, false, false, 1});
    check((conv_case){3, 1, 16, 16, {5, 6, 7}, {3, 3, 3}, 1, 1, 1, 1, 1, false, true, 1});
    check((conv_case){3, 1, 3, 4, {5, 6, 7}, {2, 2, 2}, 2, 0, 0, 1, 1, false, true, 1});
}

/* Winograd along rows: columns, rows and one spatial dim, tiles that are cut, padding on both sides, channels
 * that do not fill a block, more tiles than a block of them. */
Test(cpu_conv, winograd_rows)
{
    for (int64_t length = 40; length < 46; length++)
        for (int64_t taps = 3; taps <= 5; taps += 2)
            check((conv_case){2, 1, 64, 96, {4 * length, 1}, {taps, 1}, 1, 0, 0, 1, 1, false, true, 2});
    for (int64_t pad = 0; pad <= 4; pad += 2)
        for (int64_t taps = 3; taps <= 5; taps += 2) {
            check(
                (conv_case){1, 2, 70, 50, {203}, {taps}, 1, pad, 4 - pad, 1, 1, false, pad > 0, 1, pad == 2});
            check((conv_case){1, 1, 40, 200, {203}, {taps}, 1, pad, pad, 1, 1, false, true, 2});
        }
    check((conv_case){1, 1, 40, 200, {203}, {5}, 1, 2, 2, 1, 1, false, true, 2, false, 1});
    check((conv_case){1, 1, 40, 36, {203}, {3}, 1, 1, 1, 1, 1, false, true, 1, false, 2});
    check((conv_case){2, 2, 48, 64, {7, 61}, {1, 5}, 1, 0, 0, 1, 1, false, true, 2});
    check((conv_case){2, 1, 300, 64, {3, 400}, {1, 3}, 1, 0, 0, 1, 1, false, true, 1});
}

Test(cpu_conv, one_column)
{
    check((conv_case){2, 2, 64, 32, {40, 1}, {5, 1}, 1, 0, 0, 1, 1, false, true, 2});
    check((conv_case){2, 1, 16, 16, {41, 1}, {3, 1}, 2, 0, 0, 2, 1, false, true, 1});
    check((conv_case){2, 1, 32, 32, {40, 1}, {5, 1}, 1, 0, 0, 1, 32, false, true, 1});
    check((conv_case){2, 1, 3, 2, {40, 1}, {7, 1}, 3, 0, 0, 1, 1, false, true, 1});
    check((conv_case){2, 1, 16, 16, {1, 1}, {1, 1}, 1, 0, 0, 1, 1, false, true, 1});
}

/* Few output channels and wide rows: lanes are columns. Pieces of 8, 4, 2 and 1 channels, cut vectors, sums
 * of more than 256 taps, strides with phases, groups, more columns than a block and more rows than a band. */
Test(cpu_conv, direct)
{
    for (int64_t m = 1; m <= 4; m++)
        for (int64_t width = 16; width < 24; width++)
            check((conv_case){2, 2, 3, m, {5, width * m}, {3, 3}, 1, 1, 1, 1, 1, false, m != 2, 2});
    check((conv_case){2, 1, 8, 11, {7, 130}, {3, 39}, 1, 19, 19, 1, 1, false, true, 2});
    check((conv_case){2, 1, 5, 3, {20, 70}, {5, 4}, 2, 1, 3, 1, 1, false, true, 1});
    check((conv_case){2, 1, 5, 3, {20, 90}, {3, 4}, 3, 0, 2, 2, 1, false, true, 1});
    check((conv_case){2, 1, 4, 2, {9, 90}, {2, 2}, 5, 3, 3, 1, 1, false, false, 1});
    check((conv_case){
        2, 1, 3, 2, {400, 400}, {3, 3}, 20, 0, 0, 1, 1, false, true, 1}); /* gaps between windows */
    check((conv_case){2, 1, 3, 1, {50, 70}, {5, 3}, 2, 1, 1, 1, 1, false, true, 2});
    check((conv_case){2, 1, 2, 3, {2, 3}, {2, 2}, 1 << 22, 15 << 22, 15 << 22, 1, 1, false, true, 1});
    check((conv_case){1, 2, 1, 1, {4400}, {256}, 2, 0, 0, 1, 1, false, false, 2});
    check((conv_case){1, 1, 1, 36, {9000}, {256}, 40, 20, 7, 1, 1, false, true, 2});
    check((conv_case){1, 1, 1, 36, {9000}, {256}, 16, 0, 9, 1, 1, false, true, 2});
    check((conv_case){1, 1, 2, 3, {2900}, {5}, 1, 4, 4, 3, 1, false, true, 2});
    check((conv_case){2, 1, 60, 1, {150, 100}, {3, 3}, 1, 1, 1, 1, 1, false, true, 2});
    check((conv_case){2, 2, 6, 9, {9, 50}, {3, 25}, 1, 12, 12, 1, 3, false, true, 2});
}

Test(cpu_conv, dilated_and_odd_padding)
{
    check((conv_case){2, 1, 16, 16, {12, 12}, {3, 3}, 1, 2, 2, 2, 1, false, true, 1});
    check((conv_case){2, 1, 5, 5, {12, 13}, {3, 3}, 2, 0, 1, 2, 1, false, true, 1});
    check((conv_case){2, 1, 16, 32, {13, 12}, {1, 1}, 2, 0, 0, 1, 1, false, true, 1});
    check((conv_case){2, 1, 16, 32, {6, 6}, {3, 3}, 2, 0, 0, 1, 1, false, true, 1});
}

Test(cpu_conv, transposed)
{
    check((conv_case){2, 1, 16, 16, {6, 7}, {3, 3}, 2, 1, 1, 1, 1, true, true, 1});
    check((conv_case){2, 1, 24, 1, {6, 7}, {2, 2}, 2, 0, 0, 1, 1, true, true, 1});
    check((conv_case){2, 2, 24, 24, {6, 7}, {2, 2}, 2, 0, 0, 1, 1, true, true, 2});
    check((conv_case){2, 1, 6, 6, {6, 7}, {3, 3}, 2, 1, 0, 1, 3, true, true, 1});
    check((conv_case){2, 1, 4, 6, {6, 7}, {3, 3}, 1, 2, 2, 2, 2, true, false, 1});
    check((conv_case){1, 1, 4, 6, {16}, {4}, 3, 1, 1, 1, 1, true, true, 1});
    check((conv_case){3, 1, 2, 3, {3, 4, 5}, {3, 2, 3}, 2, 0, 0, 1, 1, true, true, 1});
}
