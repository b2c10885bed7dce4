/* Numbers and the bits of a float16 that mean them: 5 bits of exponent with a bias of 15, 10 of fraction. */
#ifndef GT_BASE_HALF_H
#define GT_BASE_HALF_H

#include <math.h>
#include <stdint.h>

static inline double gt_half_value(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 0x3FF;
    double size = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                  : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                 : ldexp(fraction, -24);
    return half & 0x8000 ? -size : size;
}

/* The nearest float16, ties to even. */
static inline uint16_t gt_half_bits(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double size = fabs(x);
    int exponent;
    if (!(size < 65520))
        return sign | (size == size ? 0x7C00 : 0x7E00);
    frexp(size, &exponent);
    exponent = size < 0x1p-14 ? -13 : exponent;
    /* A fraction that rounds up to the next power of two carries into the exponent. */
    int steps = (int)rint(ldexp(size, 11 - exponent));
    return (uint16_t)(sign | (size < 0x1p-14 ? steps : ((exponent + 13) << 10) + steps));
}

#endif
