/* The loops of rows.h for one instruction set. The including file sets the target before any header, and
 * defines ROWS_WIDTH   floats of a vector        ROWS_NAME    suffix of the table ROWS_ISA     text for the
 * report       ROWS_SLEEF(f, u)  the SLEEF function of that width ROWS_VECTOR  the intrinsic vector type */
#include "half.h"
#include "rows.h"

#include <math.h>

typedef ROWS_VECTOR vf;
typedef float vf_unaligned __attribute__((vector_size(ROWS_WIDTH * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(ROWS_WIDTH * 4)));
#define VECTOR_LANES ROWS_WIDTH
#include "vector_exp.h"

static inline vf load(const float *p)
{
    return (vf)(*(const vf_unaligned *)p);
}

static inline void store(float *p, vf x)
{
    *(vf_unaligned *)p = (vf_unaligned)x;
}

static inline vf all(float x)
{
    return x - (vf){0};
}

static inline vf pick(vi mask, vf yes, vf no)
{
    return (vf)(((vi)yes & mask) | ((vi)no & ~mask));
}

static inline vf vexp(vf x)
{
    return vector_exp(x);
}

static inline vf vmagnitude(vf x)
{
    return (vf)((vi)x & 0x7fffffff);
}

#ifndef ROWS_OWN_NORMAL
/* The normal distribution function, by what is left of it at -|x|: exp(-x^2 / 2) p(|x|) / q(|x|), error of
 * the quotient 4e-10. All coefficients are positive: nothing cancels. From 15 on the rest is 0. */
static inline vf vnormal(vf x)
{
    vf a = vmagnitude(x);
    a = pick(a > 16.0f, all(16.0f), a);
    vf p = vector_multiply_add(all(0.0103771891f), a, all(0.0887216553f));
    vf q = vector_multiply_add(all(0.0260808822f), a, all(0.221061051f));
    p = vector_multiply_add(p, a, all(0.302705437f));
    q = vector_multiply_add(q, a, all(0.797112942f));
    p = vector_multiply_add(p, a, all(0.5f));
    q = vector_multiply_add(q, a, all(1.40329528f));
    q = vector_multiply_add(q, a, all(1.0f));
    vf rest = vexp(-0.5f * a * a) * p / q;
    return pick(x > 0, 1.0f - rest, rest);
}
#endif

static inline vf vexpm1(vf x)
{
    return ROWS_SLEEF(expm1, u10)(x);
}

/* erf(x / sqrt 2) within 6e-7: x times a polynomial of the square on [-3.5, 3.5], least worst error, in
 * u = 2 (x / 3.5)^2 - 1; for results that are rounded to a few hundred steps. */
static inline vf verf_coarse(vf x)
{
    static const float c[] = {0.00148093177f, -0.00398736028f, 0.00447429623f, -0.00722792605f, 0.0170496088f,
                              -0.03003175f,   0.0450154468f,   -0.0647706538f, 0.0884021744f,   -0.114612751f,
                              0.146750182f,   -0.200701043f,   0.403872997f};
    const float most = 3.5f;
    x *= 0.70710678118654752f;
    x = pick(x > most, all(most), x);
    x = pick(x < -most, all(-most), x);
    vf u = vector_multiply_add(x * x, all(2 / (most * most)), all(-1.0f)), y = all(c[0]);
    for (int k = 1; k < 13; k++)
        y = vector_multiply_add(y, u, all(c[k]));
    return y * x;
}

/* log(1 + exp(x)) without overflow: max(x, 0) + log1p(exp(-|x|)). */
static inline vf vsoftplus(vf x)
{
    return pick(x < 0, all(0), x) + ROWS_SLEEF(log1p, u10)(vexp(-vmagnitude(x)));
}

/* A scalar expression of x that the compiler vectorises. */
#define LOOP(name, expression)                                                                               \
    static void name##_f32(const void *in, void *out, int64_t n, const float *p)                             \
    {                                                                                                        \
        const float *source = in;                                                                            \
        float *target = out;                                                                                 \
        const float p0 = p ? p[0] : 0, p1 = p ? p[1] : 0;                                                    \
        (void)p0, (void)p1;                                                                                  \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const float x = source[k];                                                                       \
            target[k] = expression;                                                                          \
        }                                                                                                    \
    }

/* A vector expression of x; the last, partial vector goes through a buffer so that every element is computed
 * in the same way. */
#define VECTOR(name, expression)                                                                             \
    static inline vf name##_vector(vf x, float p0, float p1)                                                 \
    {                                                                                                        \
        (void)p0, (void)p1;                                                                                  \
        return expression;                                                                                   \
    }                                                                                                        \
    static void name##_f32(const void *in, void *out, int64_t n, const float *p)                             \
    {                                                                                                        \
        const float *source = in;                                                                            \
        float *target = out;                                                                                 \
        const float p0 = p ? p[0] : 0, p1 = p ? p[1] : 0;                                                    \
        int64_t k = 0;                                                                                       \
        for (; k + ROWS_WIDTH <= n; k += ROWS_WIDTH)                                                         \
            store(target + k, name##_vector(load(source + k), p0, p1));                                      \
        if (k < n) {                                                                                         \
            float rest[ROWS_WIDTH] = {0};                                                                    \
            memcpy(rest, source + k, (size_t)(n - k) * sizeof *rest);                                        \
            store(rest, name##_vector(load(rest), p0, p1));                                                  \
            memcpy(target + k, rest, (size_t)(n - k) * sizeof *rest);                                        \
        }                                                                                                    \
    }

LOOP(abs, fabsf(x))
LOOP(neg, -x)
LOOP(sqrt, sqrtf(x))
LOOP(reciprocal, 1.0f / x)
LOOP(floor, floorf(x))
LOOP(ceil, ceilf(x))
LOOP(round, rintf(x))
LOOP(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : x)
LOOP(relu, x < 0 ? 0.0f : x)
LOOP(leaky_relu, x < 0 ? x * p0 : x)
static inline float clip_one(float x, float low, float high)
{
    float raised = x < low ? low : x;
    return raised > high ? high : raised;
}
LOOP(clip, clip_one(x, p0, p1))
LOOP(hard_sigmoid, clip_one(p0 *x + p1, 0.0f, 1.0f))
LOOP(hard_swish, x *clip_one((1.0f / 6.0f) * x + 0.5f, 0.0f, 1.0f))
LOOP(thresholded_relu, x > p0 ? x : 0.0f)
LOOP(shrink, x<-p1 ? x + p0 : x> p1 ? x - p0 : 0.0f)
LOOP(softsign, x / (1.0f + fabsf(x)))
LOOP(square, x *x)
LOOP(linear, p0 *x + p1)
VECTOR(exp, vexp(x))
VECTOR(log, ROWS_SLEEF(log, u10)(x))
VECTOR(erf, ROWS_SLEEF(erf, u10)(x))
VECTOR(tanh, ROWS_SLEEF(tanh, u10)(x))
VECTOR(sigmoid, vector_sigmoid(x))
VECTOR(silu, vector_silu(x, p0))
VECTOR(elu, pick(x < 0, p0 *vexpm1(x), x))
VECTOR(celu, pick(x < 0, p0 *vexpm1(x / p0), x))
VECTOR(selu, p1 *pick(x > 0, x, p0 *vexpm1(x)))
VECTOR(softplus, vsoftplus(x))
VECTOR(mish, x *ROWS_SLEEF(tanh, u10)(vsoftplus(x)))
VECTOR(gelu, x *vnormal(x))
VECTOR(gelu_coarse, 0.5f * x * (1.0f + verf_coarse(x)))
/* (1 + tanh(u)) / 2 is the sigmoid of 2 u. */
VECTOR(gelu_tanh, vector_silu_of(x, 1.5957691216057308f * (x + 0.044715f * x * x * x)))
VECTOR(sin, ROWS_SLEEF(sin, u10)(x))
VECTOR(cos, ROWS_SLEEF(cos, u10)(x))
VECTOR(tan, ROWS_SLEEF(tan, u10)(x))
VECTOR(asin, ROWS_SLEEF(asin, u10)(x))
VECTOR(acos, ROWS_SLEEF(acos, u10)(x))
VECTOR(atan, ROWS_SLEEF(atan, u10)(x))
VECTOR(sinh, ROWS_SLEEF(sinh, u10)(x))
VECTOR(cosh, ROWS_SLEEF(cosh, u10)(x))
VECTOR(asinh, ROWS_SLEEF(asinh, u10)(x))
VECTOR(acosh, ROWS_SLEEF(acosh, u10)(x))
VECTOR(atanh, ROWS_SLEEF(atanh, u10)(x))

#define BINARY_LOOP(name, kind, a_index, b_index, expression)                                                \
    static void name##_##kind(const void *a_row, const void *b_row, void *out, int64_t n)                    \
    {                                                                                                        \
        const float *as = a_row, *bs = b_row;                                                                \
        float *target = out;                                                                                 \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const float a = as[a_index], b = bs[b_index];                                                    \
            target[k] = expression;                                                                          \
        }                                                                                                    \
    }
/* A scalar operand is read once: out may not overlap it, but the compiler cannot know. */
#define BINARY_SCALAR(name, kind, scalar, scalar_row, row, rows, expression)                                 \
    static void name##_##kind(const void *a_row, const void *b_row, void *out, int64_t n)                    \
    {                                                                                                        \
        const float scalar = *(const float *)scalar_row;                                                     \
        const float *row##s = rows;                                                                          \
        float *target = out;                                                                                 \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const float row = row##s[k];                                                                     \
            target[k] = expression;                                                                          \
        }                                                                                                    \
    }
#define BINARY(name, expression)                                                                             \
    BINARY_LOOP(name, row_row, k, k, expression)                                                             \
    BINARY_SCALAR(name, scalar_row, a, a_row, b, b_row, expression)                                          \
    BINARY_SCALAR(name, row_scalar, b, b_row, a, a_row, expression)

BINARY(add, a + b)
BINARY(sub, a - b)
BINARY(mul, a *b)
BINARY(div, a / b)
BINARY(min, a < b || a != a ? a : b)
BINARY(max, a > b || a != a ? a : b)
BINARY(prelu, a < 0 ? a * b : a)

static void pow_rows(const float *a, int64_t a_step, const float *b, int64_t b_step, float *out, int64_t n)
{
    for (int64_t k = 0; k < n; k += ROWS_WIDTH) {
        int64_t m = n - k < ROWS_WIDTH ? n - k : ROWS_WIDTH;
        float x[ROWS_WIDTH], y[ROWS_WIDTH];
        for (int64_t j = 0; j < ROWS_WIDTH; j++) {
            int64_t at = k + (j < m ? j : 0);
            x[j] = a[at * a_step];
            y[j] = b[at * b_step];
        }
        store(x, ROWS_SLEEF(pow, u10)(load(x), load(y)));
        memcpy(out + k, x, (size_t)m * sizeof *x);
    }
}

static void pow_row_row(const void *a, const void *b, void *out, int64_t n)
{
    pow_rows(a, 1, b, 1, out, n);
}

static void pow_scalar_row(const void *a, const void *b, void *out, int64_t n)
{
    pow_rows(a, 0, b, 1, out, n);
}

static float pow_half(float x)
{
    return x == -INFINITY ? INFINITY : sqrtf(x + 0.0f);
}

static void pow_row_scalar(const void *a_row, const void *b_row, void *out, int64_t n)
{
    const float exponent = *(const float *)b_row;
    const float *a = a_row;
    float *target = out;
    if (exponent == 2.0f) {
        for (int64_t k = 0; k < n; k++)
            target[k] = a[k] * a[k];
    } else if (exponent == 0.5f) {
        for (int64_t k = 0; k < n; k++)
            target[k] = pow_half(a[k]);
    } else if (exponent == 3.0f) {
        for (int64_t k = 0; k < n; k++)
            target[k] = a[k] * a[k] * a[k];
    } else {
        pow_rows(a, 1, &exponent, 0, target, n);
    }
}

/* ---- reductions of a row: float lanes over blocks, blocks summed in double ------------------- */

#define SUM_BLOCK 1024

#define SUM_LOOP(name, arguments, expression)                                                                \
    static double name arguments                                                                             \
    {                                                                                                        \
        double total = 0;                                                                                    \
        for (int64_t begin = 0; begin < n; begin += SUM_BLOCK) {                                             \
            int64_t end = n - begin < SUM_BLOCK ? n : begin + SUM_BLOCK;                                     \
            vf sum = {0};                                                                                    \
            int64_t k = begin;                                                                               \
            for (; k + ROWS_WIDTH <= end; k += ROWS_WIDTH) {                                                 \
                vf x = load(in + k);                                                                         \
                sum += expression;                                                                           \
            }                                                                                                \
            if (k < end) {                                                                                   \
                float rest[ROWS_WIDTH];                                                                      \
                for (int64_t j = 0; j < ROWS_WIDTH; j++)                                                     \
                    rest[j] = k + j < end ? in[k + j] : neutral;                                             \
                vf x = load(rest);                                                                           \
                sum += expression;                                                                           \
            }                                                                                                \
            float lanes[ROWS_WIDTH];                                                                         \
            store(lanes, sum);                                                                               \
            for (int j = 0; j < ROWS_WIDTH; j++)                                                             \
                total += lanes[j];                                                                           \
        }                                                                                                    \
        return total;                                                                                        \
    }

static const float neutral = 0;
SUM_LOOP(sum_f32, (const float *in, int64_t n), x)
SUM_LOOP(sum_abs_f32, (const float *in, int64_t n), vmagnitude(x))
SUM_LOOP(sum_square_f32, (const float *in, int64_t n), x *x)
#define neutral mean
SUM_LOOP(sum_deviation_f32, (const float *in, int64_t n, float mean), (x - mean) * (x - mean))
#undef neutral

static float max_f32(const float *in, int64_t n)
{
    float best = -INFINITY;
    int64_t k = 0;
    if (n >= ROWS_WIDTH) {
        vf most = all(-INFINITY);
        for (; k + ROWS_WIDTH <= n; k += ROWS_WIDTH) {
            vf x = load(in + k);
            most = pick(x > most, x, most);
        }
        float lanes[ROWS_WIDTH];
        store(lanes, most);
        for (int j = 0; j < ROWS_WIDTH; j++)
            best = lanes[j] > best ? lanes[j] : best;
    }
    for (; k < n; k++)
        best = in[k] > best ? in[k] : best;
    return best;
}

/* Once a lane holds NaN no number compares with it, so it stays. */
#define EXTREME(name, neutral, beats)                                                                        \
    static float name##_f32(const float *in, int64_t n)                                                      \
    {                                                                                                        \
        vf kept = all(neutral);                                                                              \
        int64_t k = 0;                                                                                       \
        for (; k + ROWS_WIDTH <= n; k += ROWS_WIDTH) {                                                       \
            vf x = load(in + k);                                                                             \
            kept = pick((vi)(x beats kept) | (vi)(x != x), x, kept);                                         \
        }                                                                                                    \
        float lanes[ROWS_WIDTH], best = neutral;                                                             \
        store(lanes, kept);                                                                                  \
        for (int j = 0; j < ROWS_WIDTH; j++)                                                                 \
            best = lanes[j] beats best || lanes[j] != lanes[j] ? lanes[j] : best;                            \
        for (; k < n; k++)                                                                                   \
            best = in[k] beats best || in[k] != in[k] ? in[k] : best;                                        \
        return best;                                                                                         \
    }
EXTREME(most, -INFINITY, >)
EXTREME(least, INFINITY, <)

static inline vf weigh(vf x, vf mask, vf scale, vf *inout_most)
{
    x = vector_multiply_add(x, scale, mask);
    *inout_most = pick(x > *inout_most, x, *inout_most);
    return x;
}

static float scores_f32(float *x, const float *mask, int64_t step, int64_t n, float scale)
{
    vf most[2] = {all(-INFINITY), all(-INFINITY)};
    vf one = all(mask && step == 0 ? *mask : 0.0f), factor = all(scale);
    bool rows = mask && step == 1;
    int64_t k = 0;
    for (; (step <= 1 || !mask) && k + 2 * ROWS_WIDTH <= n; k += 2 * ROWS_WIDTH)
        for (int j = 0; j < 2; j++) {
            int64_t at = k + j * ROWS_WIDTH;
            store(x + at, weigh(load(x + at), rows ? load(mask + at) : one, factor, &most[j]));
        }
    float lanes[ROWS_WIDTH], best;
    store(lanes, pick(most[1] > most[0], most[1], most[0]));
    for (int width = ROWS_WIDTH / 2; width; width /= 2)
        for (int j = 0; j < width; j++)
            lanes[j] = lanes[j + width] > lanes[j] ? lanes[j + width] : lanes[j];
    best = lanes[0];
    for (; k < n; k++) {
        x[k] = x[k] * scale + (mask ? mask[k * step] : 0.0f);
        best = x[k] > best ? x[k] : best;
    }
    return best;
}

/* In halves: one lane after the other would wait for each sum. */
static inline float sum_lanes(float *lanes)
{
    for (int width = ROWS_WIDTH / 2; width; width /= 2)
        for (int j = 0; j < width; j++)
            lanes[j] += lanes[j + width];
    return lanes[0];
}

static float exp_sum_f32(const float *in, float *out, int64_t n, float shift)
{
    vf sum = {0};
    int64_t k = 0;
    for (; k + ROWS_WIDTH <= n; k += ROWS_WIDTH) {
        vf e = vexp(load(in + k) - shift);
        store(out + k, e);
        sum += e;
    }
    float lanes[ROWS_WIDTH];
    store(lanes, sum);
    if (k < n) {
        float rest[ROWS_WIDTH] = {0};
        memcpy(rest, in + k, (size_t)(n - k) * sizeof *rest);
        store(rest, vexp(load(rest) - shift));
        memcpy(out + k, rest, (size_t)(n - k) * sizeof *rest);
        for (int64_t j = 0; j < n - k; j++)
            lanes[j] += rest[j];
    }
    return sum_lanes(lanes);
}

static void affine_f32(const float *in, float *out, int64_t n, float scale, float shift)
{
    for (int64_t k = 0; k < n; k++)
        out[k] = in[k] * scale + shift;
}

static void normalize_f32(const float *in, float *out, int64_t n, float mean, float factor, const float *gain,
                          const float *bias)
{
    if (gain && bias)
        for (int64_t k = 0; k < n; k++)
            out[k] = (in[k] - mean) * factor * gain[k] + bias[k];
    else if (gain)
        for (int64_t k = 0; k < n; k++)
            out[k] = (in[k] - mean) * factor * gain[k];
    else
        for (int64_t k = 0; k < n; k++)
            out[k] = (in[k] - mean) * factor + (bias ? bias[k] : 0);
}

static void add_scaled_f32(const float *in, float *out, int64_t n, float scale)
{
    for (int64_t k = 0; k < n; k++)
        out[k] += in[k] * scale;
}

static float dot_f32(const float *a, const float *b, int64_t n)
{
    vf sums[4] = {{0}, {0}, {0}, {0}};
    int64_t k = 0;
    for (; k + 4 * ROWS_WIDTH <= n; k += 4 * ROWS_WIDTH)
        for (int j = 0; j < 4; j++)
            sums[j] += load(a + k + j * ROWS_WIDTH) * load(b + k + j * ROWS_WIDTH);
    for (; k + ROWS_WIDTH <= n; k += ROWS_WIDTH)
        sums[0] += load(a + k) * load(b + k);
    float lanes[ROWS_WIDTH], total = 0;
    store(lanes, (sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (int j = 0; j < ROWS_WIDTH; j++)
        total += lanes[j];
    for (; k < n; k++)
        total += a[k] * b[k];
    return total;
}

/* ---- small floats and quantized types -------------------------------------------------------- */

#ifndef ROWS_OWN_F16
static void f16_to_f32(const uint16_t *in, float *out, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        out[k] = cpu_f16_to_f32(in[k]);
}

static void f32_to_f16(const float *in, uint16_t *out, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        out[k] = cpu_f32_to_f16(in[k]);
}
#endif

/* Clamping before the zero point is added gives the same result and keeps all of it in float: low and high
 * are exact. NaN becomes low. */
#define QUANTIZE(name, type, smallest, largest)                                                              \
    static void quantize_##name(const float *in, type *out, int64_t n, float scale, int zero)                \
    {                                                                                                        \
        const float low = (float)(smallest - zero), high = (float)(largest - zero);                          \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            float rounded = rintf(in[k] / scale);                                                            \
            float raised = rounded > low ? rounded : low;                                                    \
            float clamped = raised < high ? raised : high;                                                   \
            out[k] = (type)((int32_t)clamped + zero);                                                        \
        }                                                                                                    \
    }                                                                                                        \
    static void dequantize_##name(const type *in, float *out, int64_t n, float scale, int zero)              \
    {                                                                                                        \
        for (int64_t k = 0; k < n; k++)                                                                      \
            out[k] = (float)((int32_t)in[k] - zero) * scale;                                                 \
    }
QUANTIZE(u8, uint8_t, 0, 255)
QUANTIZE(s8, int8_t, -128, 127)

#define QBINARY(op, a_at, b_at)                                                                              \
    for (int64_t k = 0; k < n; k++) {                                                                        \
        float x = (float)((int32_t)(uint8_t)(a[a_at] ^ p.a_flip) - p.a_zero) * p.a_scale;                    \
        float y = (float)((int32_t)(uint8_t)(b[b_at] ^ p.b_flip) - p.b_zero) * p.b_scale;                    \
        float rounded = rintf((x op y) / p.scale);                                                           \
        float raised = rounded > p.low ? rounded : p.low;                                                    \
        out[k] = (uint8_t)((int32_t)(raised < p.high ? raised : p.high) + p.zero) ^ p.flip;                  \
    }

static void qbinary(const uint8_t *a, int64_t a_step, const uint8_t *b, int64_t b_step, uint8_t *restrict out,
                    int64_t n, const cpu_qbinary *parameters)
{
    const cpu_qbinary p = *parameters;
    if (p.multiply && a_step && b_step)
        QBINARY(*, k, k)
    else if (p.multiply && a_step)
        QBINARY(*, k, 0)
    else if (p.multiply)
        QBINARY(*, 0, k * b_step)
    else if (a_step && b_step)
        QBINARY(+, k, k)
    else if (a_step)
        QBINARY(+, k, 0)
    else
        QBINARY(+, 0, k * b_step)
}

#define ROWS_ENTRY(name) [CPU_UNARY_##name] = name##_f32,
#define BINARY_ENTRY(name) [CPU_BINARY_##name] = {name##_row_row, name##_scalar_row, name##_row_scalar}
const cpu_rows ROWS_NAME = {
    .isa = ROWS_ISA,
    .unary = {CPU_UNARY_LIST(ROWS_ENTRY)},
    .binary = {BINARY_ENTRY(add), BINARY_ENTRY(sub), BINARY_ENTRY(mul), BINARY_ENTRY(div), BINARY_ENTRY(min),
               BINARY_ENTRY(max), BINARY_ENTRY(prelu), BINARY_ENTRY(pow)},
    .f16_to_f32 = f16_to_f32,
    .f32_to_f16 = f32_to_f16,
    .max_f32 = max_f32,
    .most_f32 = most_f32,
    .least_f32 = least_f32,
    .sum_f32 = sum_f32,
    .sum_abs_f32 = sum_abs_f32,
    .sum_square_f32 = sum_square_f32,
    .sum_deviation_f32 = sum_deviation_f32,
    .scores_f32 = scores_f32,
    .exp_sum_f32 = exp_sum_f32,
    .affine_f32 = affine_f32,
    .normalize_f32 = normalize_f32,
    .add_scaled_f32 = add_scaled_f32,
    .dot_f32 = dot_f32,
    .gelu_coarse = gelu_coarse_f32,
    .qbinary = qbinary,
    .quantize_u8 = quantize_u8,
    .quantize_s8 = quantize_s8,
    .dequantize_u8 = dequantize_u8,
    .dequantize_s8 = dequantize_s8,
};
