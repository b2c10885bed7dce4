/* Numbers and the bits of the 16-bit floats that mean them: float16 (5 bits of exponent, 10 of fraction) and
 * bfloat16 (8 and 7). */
#ifndef GT_BASE_HALF_H
#define GT_BASE_HALF_H

#include <math.h>
#include <stdint.h>

typedef struct gt_small_format {
    int exponent_bits, fraction_bits;
} gt_small_format;

#define GT_HALF_FORMAT ((gt_small_format){5, 10})
#define GT_BRAIN_FORMAT ((gt_small_format){8, 7})

static inline double gt_small_value(gt_small_format format, uint16_t bits)
{
    int fraction = bits & ((1 << format.fraction_bits) - 1);
    int exponent = (bits >> format.fraction_bits) & ((1 << format.exponent_bits) - 1);
    int bias = (1 << (format.exponent_bits - 1)) - 1;
    double magnitude;
    if (exponent == (1 << format.exponent_bits) - 1)
        magnitude = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(fraction, 1 - bias - format.fraction_bits);
    else
        magnitude = ldexp(fraction + (1 << format.fraction_bits), exponent - bias - format.fraction_bits);
    return bits & 0x8000 ? -magnitude : magnitude;
}

/* The nearest one, ties to even: the quantum of the result's binade divides the value exactly in double, and
 * rint rounds the quotient. */
static inline uint16_t gt_small_bits(gt_small_format format, double value)
{
    int bias = (1 << (format.exponent_bits - 1)) - 1, exponent;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    uint16_t infinity = (uint16_t)(((1 << format.exponent_bits) - 1) << format.fraction_bits);
    if (isnan(value))
        return (uint16_t)(sign | infinity | (1 << (format.fraction_bits - 1)));
    if (isinf(value))
        return sign | infinity;
    if (value == 0)
        return sign;
    frexp(value, &exponent); /* the value is below 2^exponent */
    int lowest = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
    double quanta = rint(ldexp(fabs(value), format.fraction_bits - lowest));
    /* A normal number's leading bit is implied by the exponent field, so adding the fields carries right. */
    double fields = quanta + ldexp(lowest + bias - 1, format.fraction_bits);
    return fields >= infinity ? sign | infinity : (uint16_t)(sign | (uint16_t)fields);
}

static inline double gt_half_value(uint16_t bits)
{
    return gt_small_value(GT_HALF_FORMAT, bits);
}

static inline uint16_t gt_half_bits(double value)
{
    return gt_small_bits(GT_HALF_FORMAT, value);
}

static inline double gt_brain_value(uint16_t bits)
{
    return gt_small_value(GT_BRAIN_FORMAT, bits);
}

#endif
