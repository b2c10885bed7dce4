/* Folds, one for each way, element type and walk: row_<how>_<type> makes one number of a row,
 * columns_<how>_<type> as many as the row has, short_<how> one of each of many rows. */
#include "reduce_fold.h"

#include "rows.h"

#include <math.h>

#define FOLD_ROW(how, suffix, type, member, expression)                                                      \
    static void row_##how##_##suffix(const void *row, int64_t n, cpu_accumulator *acc)                       \
    {                                                                                                        \
        const type *in = row;                                                                                \
        __typeof__(acc->member) a = acc->member;                                                             \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const __typeof__(acc->member) x = (__typeof__(acc->member))in[k];                                \
            a = expression;                                                                                  \
        }                                                                                                    \
        acc->member = a;                                                                                     \
    }
#define FOLD_COLUMNS(how, suffix, type, member, expression)                                                  \
    CPU_CLONES static void columns_##how##_##suffix(const void *row, int64_t n, cpu_accumulator *acc)        \
    {                                                                                                        \
        const type *in = row;                                                                                \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const __typeof__(acc->member) x = (__typeof__(acc->member))in[k], a = acc[k].member;             \
            acc[k].member = expression;                                                                      \
        }                                                                                                    \
    }
#define FOLD(how, suffix, type, member, expression)                                                          \
    FOLD_ROW(how, suffix, type, member, expression) FOLD_COLUMNS(how, suffix, type, member, expression)

static inline int64_t wrap_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t wrap_mul(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* Sums of float32 rows come from the vector table. */
#define FLOAT_SUM_ROWS(suffix, type)                                                                         \
    FOLD_ROW(sum, suffix, type, f, a + x)                                                                    \
    FOLD_ROW(abs, suffix, type, f, a + fabs(x))                                                              \
    FOLD_ROW(square, suffix, type, f, a + x * x)
#define FLOAT_EXTREME_ROWS(suffix, type)                                                                     \
    FOLD_ROW(max, suffix, type, f, x > a || x != x ? x : a)                                                  \
    FOLD_ROW(min, suffix, type, f, x < a || x != x ? x : a)
#define FLOAT_FOLDS(suffix, type)                                                                            \
    FOLD_COLUMNS(sum, suffix, type, f, a + x)                                                                \
    FOLD_COLUMNS(abs, suffix, type, f, a + fabs(x))                                                          \
    FOLD_COLUMNS(square, suffix, type, f, a + x * x)                                                         \
    FOLD(prod, suffix, type, f, a *x)                                                                        \
    FOLD_COLUMNS(max, suffix, type, f, x > a || x != x ? x : a)                                              \
    FOLD_COLUMNS(min, suffix, type, f, x < a || x != x ? x : a)
#define INTEGER_FOLDS(suffix, type)                                                                          \
    FOLD(sum, suffix, type, i, wrap_add(a, x))                                                               \
    FOLD(abs, suffix, type, i, wrap_add(a, x < 0 ? wrap_mul(x, -1) : x))                                     \
    FOLD(square, suffix, type, i, wrap_add(a, wrap_mul(x, x)))                                               \
    FOLD(prod, suffix, type, i, wrap_mul(a, x))                                                              \
    FOLD(max, suffix, type, i, x > a ? x : a)                                                                \
    FOLD(min, suffix, type, i, x < a ? x : a)
FLOAT_FOLDS(f32, float)
FLOAT_FOLDS(f64, double)
FLOAT_SUM_ROWS(f64, double)
FLOAT_EXTREME_ROWS(f64, double)
INTEGER_FOLDS(i8, int8_t)
INTEGER_FOLDS(u8, uint8_t)
INTEGER_FOLDS(i16, int16_t)
INTEGER_FOLDS(u16, uint16_t)
INTEGER_FOLDS(i32, int32_t)
INTEGER_FOLDS(u32, uint32_t)
INTEGER_FOLDS(i64, int64_t)
FOLD(max, u64, uint64_t, i, (uint64_t)x > (uint64_t)a ? x : a)
FOLD(min, u64, uint64_t, i, (uint64_t)x < (uint64_t)a ? x : a)

/* float32 rows through the vector table. */
static void row_sum_fast(const void *row, int64_t n, cpu_accumulator *acc)
{
    acc->f += cpu_rows_best()->sum_f32(row, n);
}

static void row_abs_fast(const void *row, int64_t n, cpu_accumulator *acc)
{
    acc->f += cpu_rows_best()->sum_abs_f32(row, n);
}

static void row_square_fast(const void *row, int64_t n, cpu_accumulator *acc)
{
    acc->f += cpu_rows_best()->sum_square_f32(row, n);
}

static void row_max_fast(const void *row, int64_t n, cpu_accumulator *acc)
{
    double x = (double)cpu_rows_best()->most_f32(row, n);
    acc->f = x > acc->f || x != x ? x : acc->f;
}

static void row_min_fast(const void *row, int64_t n, cpu_accumulator *acc)
{
    double x = (double)cpu_rows_best()->least_f32(row, n);
    acc->f = x < acc->f || x != x ? x : acc->f;
}

/* Many short rows of float32 that follow each other: acc[k] over in[k * n] .. in[k * n + n - 1]. */
#define FOLD_SHORT(how, expression)                                                                          \
    CPU_CLONES static void short_##how(const float *in, int64_t n, int64_t rows, cpu_accumulator *acc)       \
    {                                                                                                        \
        for (int64_t k = 0; k < rows; k++, in += n) {                                                        \
            double a = acc[k].f;                                                                             \
            for (int64_t j = 0; j < n; j++) {                                                                \
                const double x = (double)in[j];                                                              \
                a = expression;                                                                              \
            }                                                                                                \
            acc[k].f = a;                                                                                    \
        }                                                                                                    \
    }
FOLD_SHORT(sum, a + x)
FOLD_SHORT(abs, a + fabs(x))
FOLD_SHORT(square, a + x * x)
FOLD_SHORT(prod, a *x)
FOLD_SHORT(max, x > a || x != x ? x : a)
FOLD_SHORT(min, x < a || x != x ? x : a)

static const cpu_fold_short_fn short_folds[CPU_FOLD_COUNT] = {short_sum,  short_abs, short_square,
                                                              short_prod, short_max, short_min};

#define BOTH(how, suffix)                                                                                    \
    {                                                                                                        \
        row_##how##_##suffix, columns_##how##_##suffix                                                       \
    }
#define FOLD_ENTRIES(suffix)                                                                                 \
    {                                                                                                        \
        BOTH(sum, suffix), BOTH(abs, suffix), BOTH(square, suffix), BOTH(prod, suffix), BOTH(max, suffix),   \
            BOTH(min, suffix)                                                                                \
    }
/* u64 wraps like i64 in all but comparisons. */
static const cpu_fold_row_fn folds[GANTRY_DTYPE_COUNT][CPU_FOLD_COUNT][2] = {
    [GANTRY_FLOAT32] = {{row_sum_fast, columns_sum_f32},
                        {row_abs_fast, columns_abs_f32},
                        {row_square_fast, columns_square_f32},
                        BOTH(prod, f32),
                        {row_max_fast, columns_max_f32},
                        {row_min_fast, columns_min_f32}},
    [GANTRY_FLOAT64] = FOLD_ENTRIES(f64),
    [GANTRY_INT8] = FOLD_ENTRIES(i8),
    [GANTRY_UINT8] = FOLD_ENTRIES(u8),
    [GANTRY_BOOL] = FOLD_ENTRIES(u8),
    [GANTRY_INT16] = FOLD_ENTRIES(i16),
    [GANTRY_UINT16] = FOLD_ENTRIES(u16),
    [GANTRY_INT32] = FOLD_ENTRIES(i32),
    [GANTRY_UINT32] = FOLD_ENTRIES(u32),
    [GANTRY_INT64] = FOLD_ENTRIES(i64),
    [GANTRY_UINT64] = {BOTH(sum, i64), BOTH(sum, i64), BOTH(square, i64), BOTH(prod, i64), BOTH(max, u64),
                       BOTH(min, u64)},
};

static const struct {
    int64_t low, high;
} bounds[GANTRY_DTYPE_COUNT] = {
    [GANTRY_INT8] = {INT8_MIN, INT8_MAX},
    [GANTRY_UINT8] = {0, UINT8_MAX},
    [GANTRY_BOOL] = {0, 1},
    [GANTRY_INT16] = {INT16_MIN, INT16_MAX},
    [GANTRY_UINT16] = {0, UINT16_MAX},
    [GANTRY_INT32] = {INT32_MIN, INT32_MAX},
    [GANTRY_UINT32] = {0, UINT32_MAX},
    [GANTRY_INT64] = {INT64_MIN, INT64_MAX},
    [GANTRY_UINT64] = {0, -1},
};

cpu_accumulator cpu_fold_neutral(cpu_fold_kind fold, gantry_dtype dtype)
{
    cpu_accumulator a = {0};
    if (cpu_dtype_in(dtype, CPU_FLOATS))
        a.f = fold == CPU_FOLD_PROD  ? 1
              : fold == CPU_FOLD_MAX ? -INFINITY
              : fold == CPU_FOLD_MIN ? INFINITY
                                     : 0;
    else
        a.i = fold == CPU_FOLD_PROD  ? 1
              : fold == CPU_FOLD_MAX ? bounds[dtype].low
              : fold == CPU_FOLD_MIN ? bounds[dtype].high
                                     : 0;
    return a;
}

cpu_fold_row_fn cpu_fold_row(gantry_dtype dtype, cpu_fold_kind fold)
{
    return (unsigned)dtype < GANTRY_DTYPE_COUNT ? folds[dtype][fold][0] : NULL;
}

cpu_fold_row_fn cpu_fold_columns(gantry_dtype dtype, cpu_fold_kind fold)
{
    return (unsigned)dtype < GANTRY_DTYPE_COUNT ? folds[dtype][fold][1] : NULL;
}

cpu_fold_short_fn cpu_fold_short(cpu_fold_kind fold)
{
    return short_folds[fold];
}
