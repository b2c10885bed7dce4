/* Rows of one operand for float64 and integers; float32 comes from the table of the processor (rows.h). */
#include "cpu.h"
#include "half.h"
#include "rows.h"

#include <math.h>

#define UNARY(name, suffix, type, expression)                                                                \
    static void name##_##suffix(const void *in, void *out, int64_t n, const float *p)                        \
    {                                                                                                        \
        const type *source = in;                                                                             \
        type *target = out;                                                                                  \
        const double p0 = p ? p[0] : 0, p1 = p ? p[1] : 0;                                                   \
        (void)p0, (void)p1;                                                                                  \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const type x = source[k];                                                                        \
            target[k] = (type)(expression);                                                                  \
        }                                                                                                    \
    }
#define F64(name, expression) UNARY(name, f64, double, expression)

static double clip_one(double x, double low, double high)
{
    double raised = x < low ? low : x;
    return raised > high ? high : raised;
}

static double softplus_one(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

F64(abs, fabs(x))
F64(neg, -x)
F64(sqrt, sqrt(x))
F64(reciprocal, 1.0 / x)
F64(floor, floor(x))
F64(ceil, ceil(x))
F64(round, rint(x))
F64(sign, x > 0 ? 1.0 : x < 0 ? -1.0 : x)
F64(relu, x < 0 ? 0.0 : x)
F64(leaky_relu, x < 0 ? x * p0 : x)
F64(clip, clip_one(x, p0, p1))
F64(hard_sigmoid, clip_one(p0 *x + p1, 0, 1))
F64(hard_swish, x *clip_one(x / 6 + 0.5, 0, 1))
F64(thresholded_relu, x > p0 ? x : 0)
F64(shrink, x<-p1 ? x + p0 : x> p1 ? x - p0 : 0)
F64(softsign, x / (1 + fabs(x)))
F64(square, x *x)
F64(linear, p0 *x + p1)
F64(exp, exp(x))
F64(log, log(x))
F64(erf, erf(x))
F64(tanh, tanh(x))
F64(sigmoid, 1 / (1 + exp(-x)))
F64(silu, x / (1 + exp(-x * p0)))
F64(elu, x < 0 ? p0 * expm1(x) : x)
F64(celu, x < 0 ? p0 * expm1(x / p0) : x)
F64(selu, p1 *(x > 0 ? x : p0 * expm1(x)))
F64(softplus, softplus_one(x))
F64(mish, x *tanh(softplus_one(x)))
F64(gelu, 0.5 * x * (1 + erf(x * 0.70710678118654752440)))
F64(gelu_tanh, 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))))
F64(sin, sin(x))
F64(cos, cos(x))
F64(tan, tan(x))
F64(asin, asin(x))
F64(acos, acos(x))
F64(atan, atan(x))
F64(sinh, sinh(x))
F64(cosh, cosh(x))
F64(asinh, asinh(x))
F64(acosh, acosh(x))
F64(atanh, atanh(x))

#define SIGNED_LIST(X)                                                                                       \
    X(i8, INT8, int8_t, uint8_t)                                                                             \
    X(i16, INT16, int16_t, uint16_t) X(i32, INT32, int32_t, uint32_t) X(i64, INT64, int64_t, uint64_t)
#define UNSIGNED_LIST(X)                                                                                     \
    X(u8, UINT8, uint8_t, uint8_t)                                                                           \
    X(u16, UINT16, uint16_t, uint16_t) X(u32, UINT32, uint32_t, uint32_t) X(u64, UINT64, uint64_t, uint64_t)

#define SIGNED_ROWS(suffix, dtype, type, wide)                                                               \
    UNARY(abs, suffix, type, x < 0 ? 0 - (wide)x : (wide)x)                                                  \
    UNARY(neg, suffix, type, 0 - (wide)x)                                                                    \
    UNARY(sign, suffix, type, (x > 0) - (x < 0))                                                             \
    UNARY(relu, suffix, type, x < 0 ? 0 : x)                                                                 \
    UNARY(square, suffix, type, (uint64_t)x *(uint64_t)x)                                                    \
    UNARY(shrink, suffix, type, cpu_saturate_to_i64(x<-p1 ? x + p0 : x> p1 ? x - p0 : 0))
#define UNSIGNED_ROWS(suffix, dtype, type, wide)                                                             \
    UNARY(abs, suffix, type, x)                                                                              \
    UNARY(sign, suffix, type, x > 0)                                                                         \
    UNARY(relu, suffix, type, x)                                                                             \
    UNARY(square, suffix, type, (uint64_t)x *(uint64_t)x)                                                    \
    UNARY(shrink, suffix, type, cpu_saturate_to_u64(x<-p1 ? x + p0 : x> p1 ? x - p0 : 0))
SIGNED_LIST(SIGNED_ROWS)
UNSIGNED_LIST(UNSIGNED_ROWS)

#define F64_ENTRY(name) [CPU_UNARY_##name][GANTRY_FLOAT64] = name##_f64,
#define ENTRY(name, suffix, dtype) [CPU_UNARY_##name][GANTRY_##dtype] = name##_##suffix
#define UNSIGNED_ENTRIES(suffix, dtype, type, wide)                                                          \
    ENTRY(abs, suffix, dtype), ENTRY(sign, suffix, dtype), ENTRY(relu, suffix, dtype),                       \
        ENTRY(square, suffix, dtype), ENTRY(shrink, suffix, dtype),
#define SIGNED_ENTRIES(suffix, dtype, type, wide)                                                            \
    UNSIGNED_ENTRIES(suffix, dtype, type, wide) ENTRY(neg, suffix, dtype),

static const cpu_unary_fn table[CPU_UNARY_COUNT][GANTRY_DTYPE_COUNT] = {
    CPU_UNARY_LIST(F64_ENTRY) SIGNED_LIST(SIGNED_ENTRIES) UNSIGNED_LIST(UNSIGNED_ENTRIES)};

cpu_unary_fn cpu_unary_find(cpu_unary op, gantry_dtype dtype)
{
    if (dtype == GANTRY_FLOAT32)
        return cpu_rows_best()->unary[op];
    return (unsigned)dtype < GANTRY_DTYPE_COUNT ? table[op][dtype] : NULL;
}
