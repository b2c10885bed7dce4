/* Quantized kernels: golden vectors of the definitions, and random integer products against naive loops, bit
 * for bit. */
#include "kernel_fixture.h"

/* ---- QuantizeLinear, DequantizeLinear -------------------------------------------------------- */

static void quantize(const float *x, int64_t count, float scale, gantry_dtype dtype, const void *zero,
                     void *out)
{
    int64_t one = 1;
    fixture *f = fixture_open("", "QuantizeLinear", 21);
    fixture_input(f, GANTRY_FLOAT32, 1, &count, x);
    fixture_input(f, GANTRY_FLOAT32, 0, &one, &scale);
    fixture_input(f, dtype, 0, &one, zero);
    fixture_output(f, dtype, 1, &count);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    memcpy(out, f->out_data[0], fixture_bytes(&f->outputs[0]));
    fixture_close(f);
}

Test(kernels_quantized, rounds_half_to_even_then_adds_zero_then_saturates)
{
    const float x[] = {-2.5f, -1.5f,   -0.5f, 0.5f,  1.5f, 2.5f,     126.5f,   127.5f,
                       300,   -128.5f, -129,  -1e9f, NAN,  INFINITY, -INFINITY};
    const int8_t wanted[] = {-2, -2, 0, 0, 2, 2, 126, 127, 127, -128, -128, -128, -128, 127, -128};
    int8_t zero = 0, out[15];
    quantize(x, 15, 1, GANTRY_INT8, &zero, out);
    cr_expect_arr_eq(out, wanted, sizeof wanted);

    const float y[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.4f, 126.5f, 126.6f};
    const int8_t shifted[] = {1, 3, 3, 1, -1, 127, 127, 127};
    zero = 1;
    quantize(y, 8, 1, GANTRY_INT8, &zero, out);
    cr_expect_arr_eq(out, shifted, sizeof shifted);
}

Test(kernels_quantized, divides_and_does_not_multiply_by_the_inverse)
{
    enum { COUNT = 20000 };
    float *x = malloc(COUNT * sizeof *x);
    uint8_t *out = calloc(COUNT, 1);
    cr_assert(x && out);
    fixture_fill(x, COUNT, -4, 12, 5);
    for (int s = 0; s < 20; s++) {
        float scale = 0.0371f + 0.0013f * (float)s;
        uint8_t zero = (uint8_t)(60 + s);
        quantize(x, COUNT, scale, GANTRY_UINT8, &zero, out);
        for (int k = 0; k < COUNT; k++) {
            int wanted = (int)rintf(x[k] / scale) + zero;
            wanted = wanted < 0 ? 0 : wanted > 255 ? 255 : wanted;
            cr_assert_eq(out[k], wanted, "%g / %g: %d, want %d", (double)x[k], (double)scale, out[k], wanted);
        }
    }
    free(x);
    free(out);
}

Test(kernels_quantized, one_scale_for_each_position_of_an_axis)
{
    const float x[] = {0.25f, 0.5f, 1, -0.75f, 1.5f, -11}, scales[] = {0.5f, 1, 2};
    const uint8_t zeros[] = {128, 0, 5}, wanted[] = {128, 0, 5, 126, 2, 0};
    int64_t dims[] = {2, 3}, three = 3;
    fixture *f = fixture_open("", "QuantizeLinear", 13);
    fixture_int(f, "axis", 1);
    fixture_input(f, GANTRY_FLOAT32, 2, dims, x);
    fixture_input(f, GANTRY_FLOAT32, 1, &three, scales);
    fixture_input(f, GANTRY_UINT8, 1, &three, zeros);
    fixture_output(f, GANTRY_UINT8, 2, dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    cr_expect_arr_eq(f->out_data[0], wanted, sizeof wanted);
    fixture_close(f);
}

Test(kernels_quantized, one_scale_for_each_block)
{
    const float x[] = {0.5f, 1.5f, 3, 5, 0.25f, -0.75f, 6, -10}, scales[] = {1, 2, 0.5f, 4};
    const int8_t zeros[] = {0, 1, 0, -1}, wanted[] = {0, 2, 3, 3, 0, -2, 1, -3};
    int64_t dims[] = {2, 4}, blocks[] = {2, 2};
    fixture *f = fixture_open("", "QuantizeLinear", 21);
    fixture_int(f, "axis", 1);
    fixture_int(f, "block_size", 2);
    fixture_input(f, GANTRY_FLOAT32, 2, dims, x);
    fixture_input(f, GANTRY_FLOAT32, 2, blocks, scales);
    fixture_input(f, GANTRY_INT8, 2, blocks, zeros);
    fixture_output(f, GANTRY_INT8, 2, dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    cr_expect_arr_eq(f->out_data[0], wanted, sizeof wanted);
    fixture_close(f);
}

Test(kernels_quantized, dequantizes_every_type_of_integer)
{
    const uint16_t q[] = {0, 1, 32768, 65535};
    const uint16_t zero = 32768;
    const float scale = 0.25f, wanted[] = {-8192, -8191.75f, 0, 8191.75f};
    int64_t four = 4, one = 1;
    fixture *f = fixture_open("", "DequantizeLinear", 21);
    fixture_input(f, GANTRY_UINT16, 1, &four, q);
    fixture_input(f, GANTRY_FLOAT32, 0, &one, &scale);
    fixture_input(f, GANTRY_UINT16, 0, &one, &zero);
    fixture_output(f, GANTRY_FLOAT32, 1, &four);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    cr_expect_arr_eq(f->out_data[0], wanted, sizeof wanted);
    fixture_close(f);

    const int32_t wide[] = {INT32_MIN, -3, 0, 16777217};
    const float large[] = {-536870912.0f, -0.75f, 0, 4194304.0f};
    f = fixture_open("", "DequantizeLinear", 13);
    fixture_input(f, GANTRY_INT32, 1, &four, wide);
    fixture_input(f, GANTRY_FLOAT32, 0, &one, &scale);
    fixture_output(f, GANTRY_FLOAT32, 1, &four);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    cr_expect_arr_eq(f->out_data[0], large, sizeof large);
    fixture_close(f);
}

static void check_dynamic(const float *x, int64_t count, const uint8_t *wanted, float scale, uint8_t zero)
{
    int64_t one = 1;
    fixture *f = fixture_open("", "DynamicQuantizeLinear", 11);
    fixture_input(f, GANTRY_FLOAT32, 1, &count, x);
    fixture_output(f, GANTRY_UINT8, 1, &count);
    fixture_output(f, GANTRY_FLOAT32, 0, &one);
    fixture_output(f, GANTRY_UINT8, 0, &one);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    cr_expect_arr_eq(f->out_data[0], wanted, (size_t)count);
    cr_expect_eq(*(float *)f->out_data[1], scale, "%.9g", (double)*(float *)f->out_data[1]);
    cr_expect_eq(*(uint8_t *)f->out_data[2], zero);
    fixture_close(f);
}

Test(kernels_quantized, dynamic_vectors)
{
    check_dynamic((float[]){0, 2, -3, -2.5f, 1.34f, 0.5f}, 6, (uint8_t[]){153, 255, 0, 26, 221, 179},
                  0.0196078438f, 153);
    check_dynamic((float[]){1, 2.1f, 1.3f, 2.5f, 3.34f, 4}, 6, (uint8_t[]){64, 134, 83, 159, 213, 255},
                  0.0156862754f, 0);
    check_dynamic((float[]){0, 0}, 2, (uint8_t[]){0, 0}, 1, 0);
}

/* ---- products -------------------------------------------------------------------------------- */

static void random_bytes(uint8_t *out, int64_t count, uint32_t seed)
{
    uint32_t state = seed * 747796405u + 11;
    for (int64_t k = 0; k < count; k++)
        out[k] = (uint8_t)(fixture_random(&state) >> 9);
}

static int32_t byte_at(gantry_dtype dtype, const uint8_t *bytes, int64_t k)
{
    return dtype == GANTRY_UINT8 ? bytes[k] : (int8_t)bytes[k];
}

static void check_matmul_integer(int64_t m, int64_t n, int64_t k, gantry_dtype a_type, gantry_dtype b_type,
                                 bool constant)
{
    uint8_t *a = malloc((size_t)(m * k + 1)), *b = malloc((size_t)(k * n + 1)),
            *zeros = malloc((size_t)n + 1), zero = 77;
    random_bytes(a, m * k, (uint32_t)(m + n));
    random_bytes(b, k * n, (uint32_t)(k + n));
    random_bytes(zeros, n, 3);
    int64_t a_dims[] = {m, k}, b_dims[] = {k, n}, out_dims[] = {m, n}, one = 1;
    fixture *f = fixture_open("", "MatMulInteger", 10);
    fixture_input(f, a_type, 2, a_dims, a);
    (constant ? fixture_constant : fixture_input)(f, b_type, 2, b_dims, b);
    fixture_input(f, a_type, 0, &one, &zero);
    (constant ? fixture_constant : fixture_input)(f, b_type, 1, &n, zeros);
    fixture_output(f, GANTRY_INT32, 2, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            int32_t sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += (byte_at(a_type, a, i * k + l) - byte_at(a_type, &zero, 0)) *
                       (byte_at(b_type, b, l * n + j) - byte_at(b_type, zeros, j));
            cr_assert_eq(((int32_t *)f->out_data[0])[i * n + j], sum, "m %d n %d k %d at %d,%d: %d, want %d",
                         (int)m, (int)n, (int)k, (int)i, (int)j, ((int32_t *)f->out_data[0])[i * n + j], sum);
        }
    fixture_close(f);
    free(a);
    free(b);
    free(zeros);
}

Test(kernels_quantized, matmul_integer_is_exact)
{
    static const int64_t sizes[] = {1, 3, 4, 15, 16, 17, 33, 64, 65};
    static const gantry_dtype types[] = {GANTRY_UINT8, GANTRY_INT8};
    for (int i = 0; i < 9; i++)
        for (int j = 0; j < 9; j++)
            for (int l = 0; l < 9; l += 2)
                check_matmul_integer(sizes[i], sizes[j], sizes[l], types[(i + l) % 2], types[(j + l / 2) % 2],
                                     (i + j) % 2);
    check_matmul_integer(50, 130, 700, GANTRY_UINT8, GANTRY_INT8, true);
}

/* 255 * 127 two by two saturates on processors without VNNI when it is done in 16 bits. */
Test(kernels_quantized, extreme_operands_do_not_saturate)
{
    enum { K = 64 };
    uint8_t a[K], b[K];
    memset(a, 255, sizeof a);
    memset(b, 127, sizeof b);
    int64_t a_dims[] = {1, K}, b_dims[] = {K, 1}, out_dims[] = {1, 1};
    fixture *f = fixture_open("", "MatMulInteger", 10);
    fixture_input(f, GANTRY_UINT8, 2, a_dims, a);
    fixture_input(f, GANTRY_INT8, 2, b_dims, b);
    fixture_output(f, GANTRY_INT32, 2, out_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    cr_expect_eq(*(int32_t *)f->out_data[0], 2072640);
    fixture_close(f);
}

Test(kernels_quantized, qlinear_matmul_vector)
{
    const int8_t a[] = {1, 3, 5, 7, -1, -3, -5, 127, -128}, b = 1, zero = 0, y_zero = 10,
                 wanted[] = {10, 12, 12, 14, 10, 8, 8, 74, -54};
    const float one_scale = 1, half = 0.5f;
    int64_t nine[] = {9, 1}, square[] = {1, 1}, one = 1;
    fixture *f = fixture_open("", "QLinearMatMul", 10);
    fixture_input(f, GANTRY_INT8, 2, nine, a);
    fixture_input(f, GANTRY_FLOAT32, 0, &one, &one_scale);
    fixture_input(f, GANTRY_INT8, 0, &one, &zero);
    fixture_input(f, GANTRY_INT8, 2, square, &b);
    fixture_input(f, GANTRY_FLOAT32, 0, &one, &half);
    fixture_input(f, GANTRY_INT8, 0, &one, &zero);
    fixture_input(f, GANTRY_FLOAT32, 0, &one, &one_scale);
    fixture_input(f, GANTRY_INT8, 0, &one, &y_zero);
    fixture_output(f, GANTRY_INT8, 2, nine);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    cr_expect_arr_eq(f->out_data[0], wanted, sizeof wanted);
    fixture_close(f);
}

/* ---- convolution ----------------------------------------------------------------------------- */

typedef struct conv_case {
    int64_t batches, groups, in_channels, out_channels, height, width, kernel, stride, pad, dilation;
    gantry_dtype x, w;
    bool per_channel, constant;
} conv_case;

static const conv_case convolutions[] = {
    {1, 1, 3, 5, 9, 7, 3, 1, 1, 1, GANTRY_UINT8, GANTRY_INT8, true, true},
    {2, 1, 4, 17, 8, 8, 1, 1, 0, 1, GANTRY_UINT8, GANTRY_INT8, true, true},
    {1, 2, 3, 4, 11, 10, 3, 2, 1, 1, GANTRY_INT8, GANTRY_INT8, true, false},
    {1, 6, 1, 1, 12, 12, 3, 1, 1, 1, GANTRY_UINT8, GANTRY_UINT8, false, true},
    {1, 1, 2, 3, 13, 13, 3, 1, 2, 2, GANTRY_INT8, GANTRY_UINT8, false, false},
    {1, 1, 16, 33, 20, 20, 5, 2, 2, 1, GANTRY_UINT8, GANTRY_INT8, true, true},
};

static int32_t conv_sum(const conv_case *c, const uint8_t *x, const uint8_t *w, int32_t x_zero,
                        const uint8_t *w_zeros, int64_t n, int64_t m, int64_t oy, int64_t ox)
{
    int64_t group = m / c->out_channels;
    int32_t sum = 0;
    for (int64_t i = 0; i < c->in_channels; i++)
        for (int64_t ky = 0; ky < c->kernel; ky++)
            for (int64_t kx = 0; kx < c->kernel; kx++) {
                int64_t y = oy * c->stride - c->pad + ky * c->dilation,
                        xx = ox * c->stride - c->pad + kx * c->dilation;
                if (y < 0 || y >= c->height || xx < 0 || xx >= c->width)
                    continue;
                int64_t at =
                    ((n * c->groups + group) * c->in_channels + i) * c->height * c->width + y * c->width + xx;
                int64_t w_at = ((m * c->in_channels + i) * c->kernel + ky) * c->kernel + kx;
                sum += (byte_at(c->x, x, at) - x_zero) *
                       (byte_at(c->w, w, w_at) - byte_at(c->w, w_zeros, c->per_channel ? m : 0));
            }
    return sum;
}

static void check_conv(const conv_case *c)
{
    int64_t extent = c->dilation * (c->kernel - 1) + 1, channels = c->groups * c->out_channels;
    int64_t oh = (c->height + 2 * c->pad - extent) / c->stride + 1,
            ow = (c->width + 2 * c->pad - extent) / c->stride + 1;
    int64_t x_dims[] = {c->batches, c->groups * c->in_channels, c->height, c->width},
            w_dims[] = {channels, c->in_channels, c->kernel, c->kernel},
            y_dims[] = {c->batches, channels, oh, ow}, one = 1, lanes = c->per_channel ? channels : 1;
    int64_t pads[] = {c->pad, c->pad, c->pad, c->pad}, strides[] = {c->stride, c->stride},
            dilations[] = {c->dilation, c->dilation};
    uint8_t x[1 << 14], w[1 << 14], w_zeros[64], x_zero = 93, y_zero = 100;
    float w_scales[64], x_scale = 0.037f, y_scale = 1.9f;
    int32_t bias[64];
    random_bytes(x, x_dims[0] * x_dims[1] * x_dims[2] * x_dims[3], 7);
    random_bytes(w, w_dims[0] * w_dims[1] * w_dims[2] * w_dims[3], 8);
    random_bytes(w_zeros, 64, 9);
    fixture_fill(w_scales, 64, 0.001f, 0.02f, 10);
    for (int k = 0; k < 64; k++)
        bias[k] = k * 37 - 900;
    fixture *f = fixture_open("", "QLinearConv", 10);
    fixture_int(f, "group", c->groups);
    fixture_ints(f, "pads", 4, pads);
    fixture_ints(f, "strides", 2, strides);
    fixture_ints(f, "dilations", 2, dilations);
    fixture_input(f, c->x, 4, x_dims, x);
    fixture_constant(f, GANTRY_FLOAT32, 0, &one, &x_scale);
    fixture_constant(f, c->x, 0, &one, &x_zero);
    (c->constant ? fixture_constant : fixture_input)(f, c->w, 4, w_dims, w);
    fixture_constant(f, GANTRY_FLOAT32, 1, &lanes, w_scales);
    (c->constant ? fixture_constant : fixture_input)(f, c->w, 1, &lanes, w_zeros);
    fixture_constant(f, GANTRY_FLOAT32, 0, &one, &y_scale);
    fixture_constant(f, c->x, 0, &one, &y_zero);
    fixture_constant(f, GANTRY_INT32, 1, &channels, bias);
    fixture_output(f, c->x, 4, y_dims);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    int32_t zero = byte_at(c->x, &y_zero, 0), low = c->x == GANTRY_UINT8 ? 0 : -128;
    for (int64_t k = 0; k < f->outputs[0].count; k++) {
        int64_t ox = k % ow, oy = k / ow % oh, m = k / ow / oh % channels, n = k / ow / oh / channels;
        int32_t acc = conv_sum(c, x, w, byte_at(c->x, &x_zero, 0), w_zeros, n, m, oy, ox) + bias[m];
        float multiplier = x_scale * w_scales[c->per_channel ? m : 0] / y_scale;
        float wanted = rintf((float)acc * multiplier) + (float)zero;
        wanted = fminf(fmaxf(wanted, (float)low), (float)low + 255);
        cr_assert_eq(byte_at(c->x, f->out_data[0], k), (int)wanted, "case %d, output %d: %d, want %d",
                     (int)(c - convolutions), (int)k, byte_at(c->x, f->out_data[0], k), (int)wanted);
    }
    fixture_close(f);
}

Test(kernels_quantized, qlinear_conv_is_exact)
{
    for (size_t k = 0; k < sizeof convolutions / sizeof convolutions[0]; k++)
        check_conv(&convolutions[k]);
}
