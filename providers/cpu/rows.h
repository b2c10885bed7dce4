/* Rows: loops over contiguous elements, one table for each instruction set (rows_base.c, rows_avx2.c,
 * rows_avx512.c, all made from rows_impl.h). Kernels are made with the best table this processor runs.
 *
 * Errors of the float32 functions, in ulp: exp 1.1 (vector_exp.h), log, erf, tanh, sin, cos, pow 1.0 (SLEEF
 * u10); sigmoid, silu and softplus 3; gelu 4 of the larger factor; exp_sum 2. Elements do not depend on their
 * place in a row. */
#ifndef CPU_ROWS_H
#define CPU_ROWS_H

#include <gantry/types.h>

/* Unary float32 functions; rows_impl.h has the expressions. In parts, because the formatter cannot lay out a
 * long one. */
#define CPU_UNARY_PART_1(X)                                                                                  \
    X(abs) X(neg) X(sqrt) X(reciprocal) X(floor) X(ceil) X(round) X(sign) X(relu) X(leaky_relu)
#define CPU_UNARY_PART_2(X)                                                                                  \
    X(clip)                                                                                                  \
    X(linear)                                                                                                \
    X(hard_sigmoid) X(hard_swish) X(thresholded_relu) X(shrink) X(softsign) X(square) X(exp) X(log) X(erf)
#define CPU_UNARY_PART_3(X)                                                                                  \
    X(tanh) X(sigmoid) X(silu) X(elu) X(celu) X(selu) X(softplus) X(mish) X(gelu) X(gelu_tanh)
#define CPU_UNARY_PART_4(X) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(asinh) X(acosh)
#define CPU_UNARY_PART_5(X) X(atanh)
#define CPU_UNARY_LIST(X)                                                                                    \
    CPU_UNARY_PART_1(X) CPU_UNARY_PART_2(X) CPU_UNARY_PART_3(X) CPU_UNARY_PART_4(X) CPU_UNARY_PART_5(X)

typedef enum cpu_unary {
#define CPU_UNARY_ENUM(name) CPU_UNARY_##name,
    CPU_UNARY_LIST(CPU_UNARY_ENUM)
#undef CPU_UNARY_ENUM
        CPU_UNARY_COUNT
} cpu_unary;

typedef enum cpu_binary {
    CPU_BINARY_add,
    CPU_BINARY_sub,
    CPU_BINARY_mul,
    CPU_BINARY_div,
    CPU_BINARY_min,
    CPU_BINARY_max,
    CPU_BINARY_pow,
    CPU_BINARY_prelu,
    CPU_BINARY_mod,
    CPU_BINARY_fmod,
    CPU_BINARY_equal,
    CPU_BINARY_greater,
    CPU_BINARY_greater_or_equal,
    CPU_BINARY_less,
    CPU_BINARY_less_or_equal,
    CPU_BINARY_and,
    CPU_BINARY_or,
    CPU_BINARY_xor,
    CPU_BINARY_bit_and,
    CPU_BINARY_bit_or,
    CPU_BINARY_bit_xor,
    CPU_BINARY_shift_left,
    CPU_BINARY_shift_right,
    CPU_BINARY_COUNT
} cpu_binary;

/* p: up to four parameters of the function. in and out may be the same memory. */
typedef void (*cpu_unary_fn)(const void *in, void *out, int64_t n, const float *p);
typedef void (*cpu_binary_fn)(const void *a, const void *b, void *out, int64_t n);

/* Both operands are rows, or one is a single element. */
typedef struct cpu_binary_row {
    cpu_binary_fn row_row, scalar_row, row_scalar;
} cpu_binary_row;

/* y = saturate(round_half_even(((a - a_zero) * a_scale op (b - b_zero) * b_scale) / scale) + zero), clamped
 * to zero + low .. zero + high. All bytes are unsigned: flip (0x80) makes signed ones so. */
typedef struct cpu_qbinary {
    float a_scale, b_scale, scale, low, high;
    int32_t a_zero, b_zero, zero;
    uint8_t a_flip, b_flip, flip;
    bool multiply;
} cpu_qbinary;

typedef struct cpu_rows {
    const char *isa;
    cpu_unary_fn unary[CPU_UNARY_COUNT];     /* float32; never NULL */
    cpu_binary_row binary[CPU_BINARY_COUNT]; /* float32; NULL: see binary.c */
    void (*f16_to_f32)(const uint16_t *in, float *out, int64_t n);
    void (*f32_to_f16)(const float *in, uint16_t *out, int64_t n);
    float (*max_f32)(const float *in, int64_t n); /* -inf when n is 0; NaN is left out */
    /* The largest and the smallest; NaN when there is one, -inf and inf when n is 0. */
    float (*most_f32)(const float *in, int64_t n);
    float (*least_f32)(const float *in, int64_t n);
    double (*sum_f32)(const float *in, int64_t n);
    double (*sum_abs_f32)(const float *in, int64_t n);
    double (*sum_square_f32)(const float *in, int64_t n);
    /* sum of (x - mean)^2 */
    double (*sum_deviation_f32)(const float *in, int64_t n, float mean);
    /* x = x * scale + mask (NULL: 0; its step is 0 or more); returns the largest, NaN left out */
    float (*scores_f32)(float *x, const float *mask, int64_t step, int64_t n, float scale);
    /* out = exp(in - shift); returns the sum */
    float (*exp_sum_f32)(const float *in, float *out, int64_t n, float shift);
    /* out = in * scale + shift, with one rounding after each */
    void (*affine_f32)(const float *in, float *out, int64_t n, float scale, float shift);
    /* out = (in - mean) * factor * gain[k] + bias[k]; gain and bias may be NULL */
    void (*normalize_f32)(const float *in, float *out, int64_t n, float mean, float factor, const float *gain,
                          const float *bias);
    /* out += in * scale */
    void (*add_scaled_f32)(const float *in, float *out, int64_t n, float scale);
    float (*dot_f32)(const float *a, const float *b, int64_t n);
    /* Gelu within 3e-6, for results that are quantized to bytes. */
    cpu_unary_fn gelu_coarse;
    /* One scale for all n: rounds in / scale half to even, adds zero, saturates; NaN becomes the lowest
     * value. */
    void (*quantize_u8)(const float *in, uint8_t *out, int64_t n, float scale, int zero);
    void (*quantize_s8)(const float *in, int8_t *out, int64_t n, float scale, int zero);
    /* Steps 0 or 1 of a and b. */
    void (*qbinary)(const uint8_t *a, int64_t a_step, const uint8_t *b, int64_t b_step, uint8_t *out,
                    int64_t n, const cpu_qbinary *parameters);
    void (*dequantize_u8)(const uint8_t *in, float *out, int64_t n, float scale, int zero);
    void (*dequantize_s8)(const int8_t *in, float *out, int64_t n, float scale, int zero);
} cpu_rows;

/* The table for this processor. Thread-safe, cheap. */
const cpu_rows *cpu_rows_best(void);

extern const cpu_rows cpu_rows_base;
#if defined(__x86_64__)
extern const cpu_rows cpu_rows_avx2;
extern const cpu_rows cpu_rows_avx512;
#endif

/* binary.c: rows for any element type; false when the type has none. *out_bool: the result is bool. */
bool cpu_binary_find(cpu_binary op, gantry_dtype dtype, cpu_binary_row *out_row);
/* unary.c: rows for float64 and integers, float32 through cpu_rows_best; NULL when the type has none. */
cpu_unary_fn cpu_unary_find(cpu_unary op, gantry_dtype dtype);

#endif
