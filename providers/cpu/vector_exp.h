/* exp and what follows from it, for vectors of any instruction set, inline: a call into a library costs as
 * much as the function.
 *
 * The including file has set the target and defines VECTOR_LANES, vf (its float vector type) and vi (int32);
 * on x86 it has included <immintrin.h>. Errors: exp 1.1 ulp, sigmoid and silu 3 (they are 0
 * left of -88.7, where they are below 3e-37). */
#ifndef CPU_VECTOR_EXP_H
#define CPU_VECTOR_EXP_H

#define VECTOR_INLINE static inline __attribute__((always_inline))

VECTOR_INLINE vf vector_all(float x)
{
    return x - (vf){0};
}

#if defined(__AVX512F__) && VECTOR_LANES == 16
VECTOR_INLINE vf vector_multiply_add(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* NaN stays. */
VECTOR_INLINE vf vector_clamp(vf x, float low, float high)
{
    return _mm512_min_ps(_mm512_set1_ps(high), _mm512_max_ps(_mm512_set1_ps(low), x));
}

VECTOR_INLINE vf vector_round(vf x)
{
    return _mm512_roundscale_ps(x, 0);
}

VECTOR_INLINE vf vector_scale(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}
#else
#if defined(__AVX2__) && defined(__FMA__) && VECTOR_LANES == 8
VECTOR_INLINE vf vector_multiply_add(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

VECTOR_INLINE vf vector_clamp(vf x, float low, float high)
{
    return _mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), x));
}

VECTOR_INLINE vf vector_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
VECTOR_INLINE vf vector_multiply_add(vf a, vf b, vf c)
{
    return a * b + c;
}

VECTOR_INLINE vf vector_clamp(vf x, float low, float high)
{
    vi below = x<low, above = x> high;
    vi kept = (vi)x & ~below & ~above;
    return (vf)(kept | ((vi)vector_all(low) & below) | ((vi)vector_all(high) & above));
}

/* 1.5 * 2^23: the sum has no room for a fraction. */
VECTOR_INLINE vf vector_round(vf x)
{
    return (x + 12582912.0f) - 12582912.0f;
}
#endif

/* x * 2^n in two steps, so that results below the smallest normal number are rounded once. */
VECTOR_INLINE vf vector_scale(vf x, vf n)
{
    typedef uint32_t vu __attribute__((vector_size(VECTOR_LANES * 4)));
    vi whole = __builtin_convertvector(n, vi), half = whole >> 1;
    vf first = (vf)((vu)(half + 127) << 23), second = (vf)((vu)(whole - half + 127) << 23);
    return x * first * second;
}
#endif

/* x = n * ln 2 + f; the polynomial is the best one for e^f with |f| <= ln 2 / 2, error 0.3 ulp. */
VECTOR_INLINE vf vector_exp(vf x)
{
    x = vector_clamp(x, -105.0f, 90.0f);
    vf n = vector_round(x * 1.44269504f);
    vf f = vector_multiply_add(n, vector_all(-0.693359375f),
                               x); /* ln 2 in two parts: n times the first is exact */
    f = vector_multiply_add(n, vector_all(2.12194440e-4f), f);
    vf p = vector_multiply_add(vector_all(1.386382035e-3f), f, vector_all(8.367480710e-3f));
    p = vector_multiply_add(p, f, vector_all(4.166723788e-2f));
    p = vector_multiply_add(p, f, vector_all(1.666653454e-1f));
    p = vector_multiply_add(p, f, vector_all(0.5f));
    p = vector_multiply_add(p, f * f, f); /* the rest is small against the 1 that comes last */
    return vector_scale(1.0f + p, n);
}

/* exp of a large negative argument is 0, of a large positive one infinite, and of NaN is NaN. */
VECTOR_INLINE vf vector_sigmoid(vf x)
{
    return 1.0f / (1.0f + vector_exp(-x));
}

/* x * sigmoid(u) */
VECTOR_INLINE vf vector_silu_of(vf x, vf u)
{
    return x / (1.0f + vector_exp(-u));
}

VECTOR_INLINE vf vector_silu(vf x, float factor)
{
    return vector_silu_of(x, x * factor);
}

#endif
