/* Elementwise kernels against the C library and naive broadcasting: every function, every operand kind,
 * tails, special values, integers at their limits, and conversions. */
#include "kernel_fixture.h"

#include "providers/cpu/half.h"

/* ---- unary ----------------------------------------------------------------------------------- */

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double mish(double x)
{
    return x * tanh(softplus(x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double reciprocal(double x)
{
    return 1 / x;
}

static double sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x;
}

static double relu(double x)
{
    return x < 0 ? 0 : x;
}

static double leaky(double x)
{
    return x < 0 ? (double)0.01f * x : x;
}

static double elu(double x)
{
    return x < 0 ? expm1(x) : x;
}

static double softsign(double x)
{
    return x / (1 + fabs(x));
}

static double hard_swish(double x)
{
    return x * fmin(fmax(x / 6 + 0.5, 0), 1);
}

static double negate(double x)
{
    return -x;
}

/* limit: ulps, or an absolute error where the function passes through zero away from 0. */
static const struct {
    const char *op;
    double (*function)(double);
    float low, high;
    double ulps, absolute;
} functions[] = {
    {"Exp", exp, -90, 90, 1.5, 0},
    {"Log", log, 0.001f, 100, 1.5, 0},
    {"Erf", erf, -5, 5, 1.5, 0},
    {"Tanh", tanh, -10, 10, 1.5, 0},
    {"Sigmoid", sigmoid, -80, 80, 4, 0},
    {"Softplus", softplus, -30, 30, 3, 0},
    {"Mish", mish, -20, 20, 8, 1e-7},
    {"Swish", silu, -20, 20, 5, 0},
    {"Gelu", gelu, -6, 6, 4, 1.2e-7},
    {"Sin", sin, -50, 50, 1.5, 0},
    {"Cos", cos, -50, 50, 1.5, 0},
    {"Tan", tan, -1.5f, 1.5f, 1.5, 0},
    {"Asin", asin, -1, 1, 1.5, 0},
    {"Acos", acos, -1, 1, 1.5, 0},
    {"Atan", atan, -50, 50, 1.5, 0},
    {"Sinh", sinh, -20, 20, 1.5, 0},
    {"Cosh", cosh, -20, 20, 1.5, 0},
    {"Asinh", asinh, -50, 50, 1.5, 0},
    {"Acosh", acosh, 1, 50, 1.5, 0},
    {"Atanh", atanh, -0.99f, 0.99f, 1.5, 0},
    {"Sqrt", sqrt, 0, 100, 0.5, 0},
    {"Reciprocal", reciprocal, -9, 9, 0.5, 0},
    {"Floor", floor, -9, 9, 0, 0},
    {"Ceil", ceil, -9, 9, 0, 0},
    {"Round", rint, -9, 9, 0, 0},
    {"Sign", sign, -1, 1, 0, 0},
    {"Abs", fabs, -1, 1, 0, 0},
    {"Neg", negate, -1, 1, 0, 0},
    {"Relu", relu, -1, 1, 0, 0},
    {"LeakyRelu", leaky, -1, 1, 0.5, 0},
    {"Elu", elu, -20, 20, 1.5, 0},
    {"Softsign", softsign, -20, 20, 1.5, 0},
    {"HardSwish", hard_swish, -5, 5, 4, 1e-6},
};

static void check_unary(size_t which, int64_t count)
{
    float *in = malloc((size_t)count * sizeof *in);
    fixture_fill(in, count, functions[which].low, functions[which].high, (uint32_t)(which + (size_t)count));
    fixture *f = fixture_open("", functions[which].op, 22);
    fixture_input(f, GANTRY_FLOAT32, 1, &count, in);
    fixture_output(f, GANTRY_FLOAT32, 1, &count);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    const float *out = f->out_data[0];
    for (int64_t k = 0; k < count; k++) {
        double wanted = functions[which].function((double)in[k]);
        if (fixture_ulps(out[k], wanted) > functions[which].ulps &&
            fabs((double)out[k] - wanted) > functions[which].absolute)
            cr_assert_fail("%s(%a): %a, want %a (%.2f ulp)", functions[which].op, in[k], out[k], wanted,
                           fixture_ulps(out[k], wanted));
    }
    fixture_close(f);
    free(in);
}

Test(kernels_elementwise, unary_functions_are_as_exact_as_stated)
{
    for (size_t k = 0; k < sizeof functions / sizeof functions[0]; k++) {
        for (int64_t count = 1; count <= 35; count += 2)
            check_unary(k, count);
        check_unary(k, 40000);
    }
}

Test(kernels_elementwise, special_values)
{
    static const struct {
        const char *op;
        float in, out;
    } cases[] = {
        {"Exp", -INFINITY, 0},       {"Exp", INFINITY, INFINITY}, {"Exp", NAN, NAN},
        {"Exp", 200, INFINITY},      {"Log", 0, -INFINITY},       {"Log", -1, NAN},
        {"Log", INFINITY, INFINITY}, {"Sigmoid", -INFINITY, 0},   {"Sigmoid", INFINITY, 1},
        {"Sigmoid", NAN, NAN},       {"Sigmoid", -200, 0},        {"Tanh", INFINITY, 1},
        {"Tanh", -INFINITY, -1},     {"Relu", NAN, NAN},          {"Relu", -0.0f, 0},
        {"Round", 0.5f, 0},          {"Round", 1.5f, 2},          {"Round", -2.5f, -2},
        {"Sqrt", -1, NAN},           {"Softplus", 1000, 1000},    {"Softplus", -1000, 0},
        {"Mish", 1000, 1000},        {"Elu", -1000, -1},          {"Erf", INFINITY, 1},
        {"Sign", NAN, NAN},          {"Reciprocal", 0, INFINITY}, {"Abs", -INFINITY, INFINITY},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        int64_t one = 1;
        fixture *f = fixture_open("", cases[k].op, 13);
        fixture_input(f, GANTRY_FLOAT32, 1, &one, &cases[k].in);
        fixture_output(f, GANTRY_FLOAT32, 1, &one);
        cr_assert_eq(fixture_run(f), GANTRY_OK);
        float got = *(float *)f->out_data[0];
        cr_expect(fixture_ulps(got, (double)cases[k].out) == 0, "%s(%g): %g, want %g", cases[k].op,
                  (double)cases[k].in, (double)got, (double)cases[k].out);
        fixture_close(f);
    }
}

/* ---- binary ---------------------------------------------------------------------------------- */

typedef struct shapes {
    uint32_t a_rank, b_rank, out_rank;
    int64_t a[5], b[5], out[5];
} shapes;

static const shapes broadcasts[] = {
    {1, 1, 1, {1}, {1}, {1}},
    {1, 1, 1, {37}, {37}, {37}},
    {2, 0, 2, {5, 33}, {0}, {5, 33}},
    {0, 2, 2, {0}, {5, 33}, {5, 33}},
    {2, 1, 2, {7, 19}, {19}, {7, 19}},
    {4, 3, 4, {2, 5, 3, 7}, {5, 1, 1}, {2, 5, 3, 7}},
    {4, 4, 4, {2, 5, 3, 7}, {2, 5, 1, 1}, {2, 5, 3, 7}},
    {4, 4, 4, {2, 5, 3, 1}, {2, 1, 1, 7}, {2, 5, 3, 7}},
    {3, 3, 3, {1, 6, 1}, {4, 1, 9}, {4, 6, 9}},
    {5, 5, 5, {2, 1, 3, 1, 4}, {1, 5, 1, 2, 1}, {2, 5, 3, 2, 4}},
    {3, 3, 3, {40, 50, 30}, {40, 50, 30}, {40, 50, 30}},
    {3, 1, 3, {40, 50, 30}, {30}, {40, 50, 30}},
    {4, 4, 4, {3, 4, 50, 16}, {3, 4, 1, 16}, {3, 4, 50, 16}}, /* short rows that repeat */
    {4, 4, 4, {3, 4, 1, 16}, {3, 4, 350, 16}, {3, 4, 350, 16}},
    {3, 3, 3, {2, 1, 64}, {2, 300, 64}, {2, 300, 64}},
    {2, 2, 2, {3, 0}, {1, 1}, {3, 0}},
};

static int64_t offset_of(uint32_t rank, const int64_t *dims, uint32_t out_rank, const int64_t *out_dims,
                         int64_t index)
{
    int64_t offset = 0, stride = 1;
    for (uint32_t k = 0; k < out_rank; k++) {
        int64_t at = index % out_dims[out_rank - 1 - k];
        index /= out_dims[out_rank - 1 - k];
        if (k < rank) {
            int64_t extent = dims[rank - 1 - k];
            offset += extent == 1 ? 0 : at * stride;
            stride *= extent;
        }
    }
    return offset;
}

static float apply(const char *op, float a, float b)
{
    switch (op[0] == 'M' ? op[1] : op[0]) {
    case 'A':
        return a + b;
    case 'S':
        return a - b;
    case 'D':
        return a / b;
    case 'u':
        return a * b;
    case 'a':
        return a > b ? a : b;
    case 'i':
        return a < b ? a : b;
    default:
        return powf(a, b);
    }
}

Test(kernels_elementwise, binary_broadcasts)
{
    static const char *const ops[] = {"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"};
    for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++)
        for (size_t s = 0; s < sizeof broadcasts / sizeof broadcasts[0]; s++) {
            const shapes *shape = &broadcasts[s];
            cpu_tensor a = fixture_tensor(GANTRY_FLOAT32, shape->a_rank, shape->a);
            cpu_tensor b = fixture_tensor(GANTRY_FLOAT32, shape->b_rank, shape->b);
            float *x = malloc((size_t)(a.count + 1) * 4), *y = malloc((size_t)(b.count + 1) * 4);
            fixture_fill(x, a.count, 0.1f, 3, 1);
            fixture_fill(y, b.count, 0.1f, 3, 2);
            fixture *f = fixture_open("", ops[o], 14);
            fixture_input(f, GANTRY_FLOAT32, shape->a_rank, shape->a, x);
            fixture_input(f, GANTRY_FLOAT32, shape->b_rank, shape->b, y);
            fixture_output(f, GANTRY_FLOAT32, shape->out_rank, shape->out);
            cr_assert_eq(fixture_run(f), GANTRY_OK);
            for (int64_t k = 0; k < f->outputs[0].count; k++) {
                float wanted =
                    apply(ops[o], x[offset_of(shape->a_rank, shape->a, shape->out_rank, shape->out, k)],
                          y[offset_of(shape->b_rank, shape->b, shape->out_rank, shape->out, k)]);
                float got = ((float *)f->out_data[0])[k];
                cr_assert(fixture_ulps(got, (double)wanted) <= (ops[o][0] == 'P' ? 2 : 0),
                          "%s, shapes %zu, element %d: %g, want %g", ops[o], s, (int)k, (double)got,
                          (double)wanted);
            }
            fixture_close(f);
            free(x);
            free(y);
        }
}

Test(kernels_elementwise, integers_neither_trap_nor_overflow)
{
    static const int32_t a[] = {7, -7, 7, -7, 5, INT32_MIN, INT32_MAX, INT32_MIN};
    static const int32_t b[] = {2, 2, -2, -2, 0, -1, INT32_MAX, INT32_MIN};
    static const struct {
        const char *op;
        int32_t out[8];
    } cases[] = {
        {"Div", {3, -3, -3, 3, 0, INT32_MIN, 1, 1}},         {"Mod", {1, 1, -1, -1, 0, 0, 0, 0}},
        {"Add", {9, -5, 5, -9, 5, INT32_MAX, -2, 0}},        {"Mul", {14, -14, -14, 14, 0, INT32_MIN, 1, 0}},
        {"Max", {7, 2, 7, -2, 5, -1, INT32_MAX, INT32_MIN}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        int64_t eight = 8;
        fixture *f = fixture_open("", cases[k].op, 14);
        fixture_input(f, GANTRY_INT32, 1, &eight, a);
        fixture_input(f, GANTRY_INT32, 1, &eight, b);
        fixture_output(f, GANTRY_INT32, 1, &eight);
        cr_assert_eq(fixture_run(f), GANTRY_OK);
        for (int j = 0; j < 8; j++)
            cr_expect_eq(((int32_t *)f->out_data[0])[j], cases[k].out[j], "%s(%d, %d): %d, want %d",
                         cases[k].op, a[j], b[j], ((int32_t *)f->out_data[0])[j], cases[k].out[j]);
        fixture_close(f);
    }
}

Test(kernels_elementwise, many_operands_and_where)
{
    const float a[] = {1, 5, 3}, b[] = {4, 2, 9}, c[] = {2};
    const uint8_t choose[] = {1, 0, 1};
    int64_t three = 3, one = 1;
    fixture *f = fixture_open("", "Mean", 13);
    fixture_input(f, GANTRY_FLOAT32, 1, &three, a);
    fixture_input(f, GANTRY_FLOAT32, 1, &three, b);
    fixture_input(f, GANTRY_FLOAT32, 1, &one, c);
    fixture_output(f, GANTRY_FLOAT32, 1, &three);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    for (int k = 0; k < 3; k++)
        cr_expect_eq(((float *)f->out_data[0])[k], (a[k] + b[k] + c[0]) / 3);
    fixture_close(f);

    f = fixture_open("", "Where", 16);
    fixture_input(f, GANTRY_BOOL, 1, &three, choose);
    fixture_input(f, GANTRY_FLOAT32, 1, &one, c);
    fixture_input(f, GANTRY_FLOAT32, 1, &three, b);
    fixture_output(f, GANTRY_FLOAT32, 1, &three);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    const float wanted[] = {2, 2, 2};
    cr_expect_arr_eq(f->out_data[0], wanted, sizeof wanted);
    fixture_close(f);
}

/* ---- conversions ----------------------------------------------------------------------------- */

static void convert(gantry_dtype from, gantry_dtype to, int64_t count, const void *in, void *out,
                    int saturate)
{
    fixture *f = fixture_open("", "Cast", 21);
    fixture_int(f, "saturate", saturate);
    fixture_input(f, from, 1, &count, in);
    fixture_output(f, to, 1, &count);
    cr_assert_eq(fixture_run(f), GANTRY_OK);
    memcpy(out, f->out_data[0], fixture_bytes(&f->outputs[0]));
    fixture_close(f);
}

Test(kernels_elementwise, every_float16_survives_a_round_trip)
{
    enum { ALL = 65536 };
    uint16_t *codes = malloc(ALL * 2), *back = malloc(ALL * 2);
    float *wide = malloc(ALL * 4);
    for (int k = 0; k < ALL; k++)
        codes[k] = (uint16_t)k;
    static const gantry_dtype halves[] = {GANTRY_FLOAT16, GANTRY_BFLOAT16};
    for (int h = 0; h < 2; h++) {
        convert(halves[h], GANTRY_FLOAT32, ALL, codes, wide, 1);
        convert(GANTRY_FLOAT32, halves[h], ALL, wide, back, 1);
        for (int k = 0; k < ALL; k++)
            if (!isnan(wide[k]))
                cr_assert_eq(back[k], codes[k], "code %04x became %g and %04x", k, (double)wide[k], back[k]);
            else
                cr_assert((back[k] & 0x7fff) > (h ? 0x7f80 : 0x7c00), "NaN %04x became %04x", k, back[k]);
        for (int k = 0; k < ALL && h == 0; k++)
            cr_assert(cpu_f16_to_f32((uint16_t)k) == wide[k] || isnan(wide[k]));
    }
    free(codes);
    free(back);
    free(wide);
}

Test(kernels_elementwise, float16_rounds_to_even_and_overflows)
{
    const float in[] = {65504, 65519, 65520, 1e6f, -1e6f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f, 2049, 2051, -0.0f};
    const uint16_t wanted[] = {0x7bff, 0x7bff, 0x7c00, 0x7c00, 0xfc00, 1, 0, 1, 0x6800, 0x6802, 0x8000};
    uint16_t out[11];
    convert(GANTRY_FLOAT32, GANTRY_FLOAT16, 11, in, out, 1);
    cr_expect_arr_eq(out, wanted, sizeof wanted);
    for (int k = 0; k < 11; k++)
        cr_expect_eq(cpu_f32_to_f16(in[k]), wanted[k], "%g: %04x", (double)in[k], cpu_f32_to_f16(in[k]));
}

Test(kernels_elementwise, float8_saturates_or_not)
{
    const float in[] = {1, 448, 464, 1000, INFINITY, NAN, 0x1p-9f, 0x1p-10f, -0.0f};
    const uint8_t saturated[] = {0x38, 0x7e, 0x7e, 0x7e, 0x7e, 0x7f, 1, 0, 0x80};
    const uint8_t plain[] = {0x38, 0x7e, 0x7e, 0x7f, 0x7f, 0x7f, 1, 0, 0x80};
    uint8_t out[9];
    convert(GANTRY_FLOAT32, GANTRY_FLOAT8E4M3FN, 9, in, out, 1);
    cr_expect_arr_eq(out, saturated, 9);
    convert(GANTRY_FLOAT32, GANTRY_FLOAT8E4M3FN, 9, in, out, 0);
    cr_expect_arr_eq(out, plain, 9);
}

Test(kernels_elementwise, floats_become_integers_without_undefined_behaviour)
{
    const float in[] = {1.9f, -1.9f, NAN, INFINITY, -INFINITY, 3e9f, -3e9f, 300};
    const int32_t narrow[] = {1, -1, 0, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, 300};
    const int64_t wide[] = {1, -1, 0, INT64_MAX, INT64_MIN, 3000000000, -3000000000, 300};
    int32_t i32[8];
    int64_t i64[8];
    uint8_t truth[8] = {0};
    convert(GANTRY_FLOAT32, GANTRY_INT32, 8, in, i32, 1);
    convert(GANTRY_FLOAT32, GANTRY_INT64, 8, in, i64, 1);
    convert(GANTRY_FLOAT32, GANTRY_BOOL, 8, in, truth, 1);
    cr_expect_arr_eq(i32, narrow, sizeof narrow);
    cr_expect_arr_eq(i64, wide, sizeof wide);
    for (int k = 0; k < 8; k++)
        cr_expect_eq(truth[k], 1);
}

Test(kernels_elementwise, packed_integers)
{
    enum { COUNT = 1023 };
    int8_t in[COUNT], out[COUNT];
    uint8_t packed[512];
    for (int k = 0; k < COUNT; k++)
        in[k] = (int8_t)(k % 16 - 8);
    convert(GANTRY_INT8, GANTRY_INT4, COUNT, in, packed, 1);
    cr_expect_eq(packed[0], 0x98); /* -8 in the low bits, -7 in the high ones */
    convert(GANTRY_INT4, GANTRY_INT8, COUNT, packed, out, 1);
    cr_expect_arr_eq(in, out, sizeof in);
}
