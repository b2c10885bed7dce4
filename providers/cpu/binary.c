/* Rows of two operands for every element type: arithmetic, comparisons, logic and bits. float32 arithmetic
 * comes from the table of the processor (rows.h). */
#include "cpu.h"
#include "half.h"
#include "rows.h"

#include <math.h>

/* One function for each of the three operand kinds. wide: the type a and b are computed in. */
#define ROW(name, suffix, type, result, kind, a_index, b_index, expression)                                  \
    static void name##_##suffix##_##kind(const void *a_row, const void *b_row, void *out, int64_t n)         \
    {                                                                                                        \
        const type *as = a_row, *bs = b_row;                                                                 \
        result *target = out;                                                                                \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const type a = as[a_index], b = bs[b_index];                                                     \
            target[k] = (result)(expression);                                                                \
        }                                                                                                    \
    }
#define ROWS(name, suffix, type, result, expression)                                                         \
    ROW(name, suffix, type, result, row_row, k, k, expression)                                               \
    ROW(name, suffix, type, result, scalar_row, 0, k, expression)                                            \
    ROW(name, suffix, type, result, row_scalar, k, 0, expression)

/* Integers wrap: computed in an unsigned type at least as wide, because signed overflow is undefined in C.
 * X(suffix, dtype, type, unsigned type) */
#define SIGNED_LIST(X)                                                                                       \
    X(i8, INT8, int8_t, uint32_t)                                                                            \
    X(i16, INT16, int16_t, uint32_t) X(i32, INT32, int32_t, uint32_t) X(i64, INT64, int64_t, uint64_t)
#define UNSIGNED_LIST(X)                                                                                     \
    X(u8, UINT8, uint8_t, uint32_t)                                                                          \
    X(u16, UINT16, uint16_t, uint32_t) X(u32, UINT32, uint32_t, uint32_t) X(u64, UINT64, uint64_t, uint64_t)
#define INTEGER_LIST(X) SIGNED_LIST(X) UNSIGNED_LIST(X)

#define INTEGER_ROWS(suffix, dtype, type, wide)                                                              \
    ROWS(add, suffix, type, type, (wide)a + (wide)b)                                                         \
    ROWS(sub, suffix, type, type, (wide)a - (wide)b)                                                         \
    ROWS(mul, suffix, type, type, (wide)a *(wide)b)                                                          \
    ROWS(div, suffix, type, type, divide_##suffix(a, b))                                                     \
    ROWS(mod, suffix, type, type, modulo_##suffix(a, b))                                                     \
    ROWS(fmod, suffix, type, type, remainder_##suffix(a, b))                                                 \
    ROWS(pow, suffix, type, type, power_##suffix(a, b))                                                      \
    ROWS(prelu, suffix, type, type, (a < 0) ? (wide)a *(wide)b : (wide)a)                                    \
    ROWS(bit_and, suffix, type, type, a &b)                                                                  \
    ROWS(bit_or, suffix, type, type, a | b)                                                                  \
    ROWS(bit_xor, suffix, type, type, a ^ b)                                                                 \
    ROWS(shift_left, suffix, type, type, shift_bits(b, sizeof a) ? (wide)a << (b & 63) : 0)                  \
    ROWS(shift_right, suffix, type, type, shift_bits(b, sizeof a) ? a >> (b & 63) : (a < 0 ? -1 : 0))        \
    ORDER_ROWS(suffix, type)
#define ORDER_ROWS(suffix, type)                                                                             \
    ROWS(min, suffix, type, type, a < b || a != a ? a : b)                                                   \
    ROWS(max, suffix, type, type, a > b || a != a ? a : b)                                                   \
    ROWS(equal, suffix, type, uint8_t, a == b)                                                               \
    ROWS(greater, suffix, type, uint8_t, a > b)                                                              \
    ROWS(greater_or_equal, suffix, type, uint8_t, a >= b)                                                    \
    ROWS(less, suffix, type, uint8_t, a < b)                                                                 \
    ROWS(less_or_equal, suffix, type, uint8_t, a <= b)

static inline bool shift_bits(int64_t b, size_t bytes)
{
    return b >= 0 && b < (int64_t)(8 * bytes);
}

/* Division by zero gives 0, and the one quotient that does not fit wraps: integer traps would end the
 * process. */
#define SIGNED_HELP(suffix, dtype, type, wide)                                                               \
    static inline type divide_##suffix(type a, type b)                                                       \
    {                                                                                                        \
        return b == 0 ? 0 : b == -1 ? (type)(0 - (wide)a) : (type)(a / b);                                   \
    }                                                                                                        \
    static inline type remainder_##suffix(type a, type b)                                                    \
    {                                                                                                        \
        return b == 0 || b == -1 ? 0 : (type)(a % b);                                                        \
    }                                                                                                        \
    static inline type modulo_##suffix(type a, type b)                                                       \
    {                                                                                                        \
        type rest = remainder_##suffix(a, b);                                                                \
        return rest != 0 && (rest < 0) != (b < 0) ? (type)(rest + b) : rest;                                 \
    }                                                                                                        \
    static inline type power_##suffix(type a, type b)                                                        \
    {                                                                                                        \
        if (b < 0)                                                                                           \
            return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;                                              \
        wide base = (wide)a, result = 1;                                                                     \
        for (type e = b; e; e = (type)(e >> 1), base *= base)                                                \
            if (e & 1)                                                                                       \
                result *= base;                                                                              \
        return (type)result;                                                                                 \
    }
#define UNSIGNED_HELP(suffix, dtype, type, wide)                                                             \
    static inline type divide_##suffix(type a, type b)                                                       \
    {                                                                                                        \
        return b == 0 ? 0 : (type)(a / b);                                                                   \
    }                                                                                                        \
    static inline type remainder_##suffix(type a, type b)                                                    \
    {                                                                                                        \
        return b == 0 ? 0 : (type)(a % b);                                                                   \
    }                                                                                                        \
    static inline type modulo_##suffix(type a, type b)                                                       \
    {                                                                                                        \
        return remainder_##suffix(a, b);                                                                     \
    }                                                                                                        \
    static inline type power_##suffix(type a, type b)                                                        \
    {                                                                                                        \
        wide base = (wide)a, result = 1;                                                                     \
        for (type e = b; e; e = (type)(e >> 1), base *= base)                                                \
            if (e & 1)                                                                                       \
                result *= base;                                                                              \
        return (type)result;                                                                                 \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtype-limits"
SIGNED_LIST(SIGNED_HELP)
UNSIGNED_LIST(UNSIGNED_HELP)
INTEGER_LIST(INTEGER_ROWS)

/* The sign of b, as Python's % has it. */
static inline double modulo_f64(double a, double b)
{
    double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

#define FLOAT_ROWS(suffix, type)                                                                             \
    ROWS(add, suffix, type, type, a + b)                                                                     \
    ROWS(sub, suffix, type, type, a - b)                                                                     \
    ROWS(mul, suffix, type, type, a *b)                                                                      \
    ROWS(div, suffix, type, type, a / b)                                                                     \
    ROWS(mod, suffix, type, type, modulo_f64(a, b))                                                          \
    ROWS(fmod, suffix, type, type, fmod((double)a, (double)b))                                               \
    ROWS(pow, suffix, type, type, pow((double)a, (double)b))                                                 \
    ROWS(prelu, suffix, type, type, a < 0 ? a * b : a)                                                       \
    ORDER_ROWS(suffix, type)
FLOAT_ROWS(f32, float)
FLOAT_ROWS(f64, double)

ROWS(and, b8, uint8_t, uint8_t, (a != 0) & (b != 0))
ROWS(or, b8, uint8_t, uint8_t, (a | b) != 0)
ROWS(xor, b8, uint8_t, uint8_t, (a != 0) ^ (b != 0))
ROWS(equal, b8, uint8_t, uint8_t, (a != 0) == (b != 0))
#pragma GCC diagnostic pop

#define ENTRY(name, suffix, dtype)                                                                           \
    [CPU_BINARY_##name][GANTRY_##dtype] = {name##_##suffix##_row_row, name##_##suffix##_scalar_row,          \
                                           name##_##suffix##_row_scalar}
#define ORDER_ENTRIES(suffix, dtype)                                                                         \
    ENTRY(min, suffix, dtype), ENTRY(max, suffix, dtype), ENTRY(equal, suffix, dtype),                       \
        ENTRY(greater, suffix, dtype), ENTRY(greater_or_equal, suffix, dtype), ENTRY(less, suffix, dtype),   \
        ENTRY(less_or_equal, suffix, dtype),
#define NUMBER_ENTRIES(suffix, dtype)                                                                        \
    ENTRY(add, suffix, dtype), ENTRY(sub, suffix, dtype), ENTRY(mul, suffix, dtype),                         \
        ENTRY(div, suffix, dtype), ENTRY(mod, suffix, dtype), ENTRY(fmod, suffix, dtype),                    \
        ENTRY(pow, suffix, dtype), ENTRY(prelu, suffix, dtype), ORDER_ENTRIES(suffix, dtype)
#define INTEGER_ENTRIES(suffix, dtype, type, wide)                                                           \
    NUMBER_ENTRIES(suffix, dtype)                                                                            \
    ENTRY(bit_and, suffix, dtype), ENTRY(bit_or, suffix, dtype), ENTRY(bit_xor, suffix, dtype),              \
        ENTRY(shift_left, suffix, dtype), ENTRY(shift_right, suffix, dtype),

static const cpu_binary_row table[CPU_BINARY_COUNT][GANTRY_DTYPE_COUNT] = {
    INTEGER_LIST(INTEGER_ENTRIES) NUMBER_ENTRIES(f32, FLOAT32) NUMBER_ENTRIES(f64, FLOAT64)
        ENTRY(and, b8, BOOL),
    ENTRY(or, b8, BOOL), ENTRY(xor, b8, BOOL), ENTRY(equal, b8, BOOL)};

bool cpu_binary_find(cpu_binary op, gantry_dtype dtype, cpu_binary_row *out_row)
{
    if ((unsigned)dtype >= GANTRY_DTYPE_COUNT)
        return false;
    *out_row = table[op][dtype];
    if (dtype == GANTRY_FLOAT32 && cpu_rows_best()->binary[op].row_row)
        *out_row = cpu_rows_best()->binary[op];
    return out_row->row_row != NULL;
}
