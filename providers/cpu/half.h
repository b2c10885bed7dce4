/* Scalar conversions between float32 and the small float types, and from floats to integers without undefined
 * behaviour. */
#ifndef CPU_HALF_H
#define CPU_HALF_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t cpu_bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float cpu_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float cpu_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 1023u;
    if (exponent == 31)
        return cpu_float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent)
        return cpu_float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    float x = (float)mantissa * 0x1p-24f;
    return cpu_float_of(sign | cpu_bits_of(x));
}

/* Rounds to nearest, ties to even; overflow gives infinity. */
static inline uint16_t cpu_f32_to_f16(float x)
{
    uint32_t bits = cpu_bits_of(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
    if (magnitude >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) /* subnormal: adding 0.5 leaves the rounded mantissa in the low bits */
        return (uint16_t)(sign | (cpu_bits_of(cpu_float_of(magnitude) + 0.5f) - 0x3f000000u));
    uint32_t odd = (magnitude >> 13) & 1u;
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

static inline float cpu_bf16_to_f32(uint16_t h)
{
    return cpu_float_of((uint32_t)h << 16);
}

static inline uint16_t cpu_f32_to_bf16(float x)
{
    uint32_t bits = cpu_bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* C leaves conversions that do not fit undefined: NaN is 0 here, the rest is clamped. */
static inline int64_t cpu_saturate_to_i64(double x)
{
    if (x != x)
        return 0;
    if (x >= 0x1p63)
        return INT64_MAX;
    return x <= -0x1p63 ? INT64_MIN : (int64_t)x;
}

static inline uint64_t cpu_saturate_to_u64(double x)
{
    if (x < 0)
        return (uint64_t)cpu_saturate_to_i64(x);
    if (x != x)
        return 0;
    return x >= 0x1p64 ? UINT64_MAX : (uint64_t)x;
}

static inline int32_t cpu_saturate_to_i32(double x)
{
    if (x != x)
        return 0;
    if (x >= 0x1p31)
        return INT32_MAX;
    return x <= -0x1p31 ? INT32_MIN : (int32_t)x;
}

/* A float of 8 bits or fewer: sign, exponent, mantissa. */
typedef struct cpu_small_float {
    int mantissa_bits;
    int bias;
    uint8_t largest;  /* code of the largest finite magnitude */
    uint8_t nan;      /* code of NaN */
    uint8_t infinity; /* code of infinity; that of NaN when the type has none */
    uint8_t sign;     /* bit of the sign */
    bool no_minus_zero;
} cpu_small_float;

static inline const cpu_small_float *cpu_small_float_of(int onnx_type)
{
    static const cpu_small_float kinds[] = {
        {3, 7, 0x7e, 0x7f, 0x7f, 0x80, false},  /* 17: float8e4m3fn */
        {3, 8, 0x7f, 0x80, 0x80, 0x80, true},   /* 18: float8e4m3fnuz */
        {2, 15, 0x7b, 0x7e, 0x7c, 0x80, false}, /* 19: float8e5m2 */
        {2, 16, 0x7f, 0x80, 0x80, 0x80, true},  /* 20: float8e5m2fnuz */
        {1, 1, 0x07, 0x07, 0x07, 0x08, false},  /* 23: float4e2m1, no NaN */
    };
    if (onnx_type >= 17 && onnx_type <= 20)
        return &kinds[onnx_type - 17];
    return onnx_type == 23 ? &kinds[4] : NULL;
}

static inline float cpu_small_to_f32(const cpu_small_float *kind, uint8_t code)
{
    uint8_t magnitude = code & (uint8_t)(kind->sign - 1);
    float sign = code & kind->sign ? -1.0f : 1.0f;
    if (kind->no_minus_zero ? code == kind->nan : magnitude > kind->largest)
        return magnitude == kind->infinity && kind->infinity != kind->nan ? sign * INFINITY : NAN;
    int exponent = magnitude >> kind->mantissa_bits;
    int mantissa = magnitude & ((1 << kind->mantissa_bits) - 1);
    if (exponent)
        mantissa |= 1 << kind->mantissa_bits;
    return sign * ldexpf((float)mantissa, (exponent ? exponent : 1) - kind->bias - kind->mantissa_bits);
}

/* Rounds to nearest even. Beyond the largest: that one when saturate, else infinity or NaN. */
static inline uint8_t cpu_f32_to_small(const cpu_small_float *kind, float x, bool saturate)
{
    uint8_t sign = signbit(x) ? kind->sign : 0;
    if (x != x)
        return kind->no_minus_zero ? kind->nan : (uint8_t)(kind->sign == 8 ? kind->sign : sign | kind->nan);
    uint8_t overflow = saturate || kind->sign == 8 ? (uint8_t)(sign | kind->largest)
                       : kind->no_minus_zero       ? kind->nan
                                                   : (uint8_t)(sign | kind->infinity);
    float magnitude = fabsf(x);
    if (isinf(x))
        return overflow;
    int exponent = 0;
    if (magnitude > 0) {
        frexpf(magnitude, &exponent);
        exponent--;
    }
    if (magnitude == 0 || exponent < 1 - kind->bias)
        exponent = 1 - kind->bias;
    float scaled = rintf(ldexpf(magnitude, kind->mantissa_bits - exponent));
    int code = (int)scaled;
    if (code >>
        kind->mantissa_bits) /* normal; a carry out of the mantissa adds one to the exponent by itself */
        code += (exponent + kind->bias - 1) << kind->mantissa_bits;
    if (code > kind->largest)
        return overflow;
    return code == 0 && kind->no_minus_zero ? 0 : (uint8_t)(sign | code);
}

/* A power of two as its exponent, no sign; 255 is NaN. */
static inline float cpu_e8m0_to_f32(uint8_t code)
{
    return code == 255 ? NAN : ldexpf(1.0f, code - 127);
}

#endif
