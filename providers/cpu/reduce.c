/* Reductions: Reduce* over any axes, and the global pools of plain layout. ArgMax, ArgMin and CumSum are in
 * scan.c.
 *
 * After neighbouring axes of one kind are merged, the axes alternate between kept and reduced:
 *     innermost reduced   each output element folds rows of `inner` elements
 *     innermost kept      each output row of `inner` elements folds rows element by element
 * Floats are summed in double across blocks, integers in 64 bits. */
#include "reduce.h"

#include "rows.h"

#include <math.h>

typedef enum reduce_kind {
    REDUCE_SUM,
    REDUCE_MEAN,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_PROD,
    REDUCE_L1,
    REDUCE_L2,
    REDUCE_LOG_SUM,
    REDUCE_LOG_SUM_EXP,
    REDUCE_SUM_SQUARE
} reduce_kind;

/* What is done to each element, and how elements are folded. */
typedef enum fold_kind {
    FOLD_SUM,
    FOLD_ABS,
    FOLD_SQUARE,
    FOLD_PROD,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_COUNT
} fold_kind;

/* Columns folded at a time when the innermost axis is kept: the accumulators stay in L1. */
#define COLUMNS 512

typedef union accumulator {
    double f;
    int64_t i;
} accumulator;

/* acc[0] over a row; or acc[k] with element k of a row. */
typedef void (*fold_row_fn)(const void *row, int64_t n, accumulator *acc);
typedef void (*fold_short_fn)(const float *in, int64_t n, int64_t rows, accumulator *acc);

/* Rows of at most so many elements are folded many at a time: a call for each would cost more than its sum.
 */
#define SHORT_ROW 32

typedef struct reduce_state {
    reduce_kind kind;
    cpu_nest kept;    /* over kept axes (outer ones only when the innermost is kept); operand 0: the input */
    cpu_nest reduced; /* over reduced axes but the innermost row; operand 0: the input */
    int64_t kept_count, reduced_rows;
    int64_t inner; /* elements of a row */
    bool inner_kept;
    int64_t reduced_count;
    fold_row_fn fold;
    fold_short_fn fold_short; /* NULL: rows are long, or do not follow each other */
    accumulator neutral;
    gantry_dtype dtype;
    size_t in_bytes, out_bytes;
} reduce_state;

/* ---- folds: fold_<how>_<type>_row and _columns ----------------------------------------------- */

#define FOLD_ROW(how, suffix, type, member, expression)                                                      \
    static void row_##how##_##suffix(const void *row, int64_t n, accumulator *acc)                           \
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
    CPU_CLONES static void columns_##how##_##suffix(const void *row, int64_t n, accumulator *acc)            \
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
static void row_sum_fast(const void *row, int64_t n, accumulator *acc)
{
    acc->f += cpu_rows_best()->sum_f32(row, n);
}

static void row_abs_fast(const void *row, int64_t n, accumulator *acc)
{
    acc->f += cpu_rows_best()->sum_abs_f32(row, n);
}

static void row_square_fast(const void *row, int64_t n, accumulator *acc)
{
    acc->f += cpu_rows_best()->sum_square_f32(row, n);
}

static void row_max_fast(const void *row, int64_t n, accumulator *acc)
{
    double x = (double)cpu_rows_best()->most_f32(row, n);
    acc->f = x > acc->f || x != x ? x : acc->f;
}

static void row_min_fast(const void *row, int64_t n, accumulator *acc)
{
    double x = (double)cpu_rows_best()->least_f32(row, n);
    acc->f = x < acc->f || x != x ? x : acc->f;
}

/* Many short rows of float32 that follow each other: acc[k] over in[k * n] .. in[k * n + n - 1]. */
#define FOLD_SHORT(how, expression)                                                                          \
    CPU_CLONES static void short_##how(const float *in, int64_t n, int64_t rows, accumulator *acc)           \
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

static const fold_short_fn short_folds[FOLD_COUNT] = {short_sum,  short_abs, short_square,
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
static const fold_row_fn folds[GANTRY_DTYPE_COUNT][FOLD_COUNT][2] = {
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

static bool is_float(gantry_dtype dtype)
{
    return cpu_dtype_in(dtype, CPU_FLOATS);
}

static accumulator neutral_of(fold_kind fold, gantry_dtype dtype)
{
    accumulator a = {0};
    if (is_float(dtype))
        a.f = fold == FOLD_PROD ? 1 : fold == FOLD_MAX ? -INFINITY : fold == FOLD_MIN ? INFINITY : 0;
    else
        a.i = fold == FOLD_PROD  ? 1
              : fold == FOLD_MAX ? bounds[dtype].low
              : fold == FOLD_MIN ? bounds[dtype].high
                                 : 0;
    return a;
}

/* ---- finishing ------------------------------------------------------------------------------- */

/* The mean of nothing is undefined in ONNX; 0 in ONNX Runtime and OpenVINO, and so here, in all types. */
static double finish_float(const reduce_state *state, double a)
{
    switch (state->kind) {
    case REDUCE_MEAN:
        return state->reduced_count ? a / (double)state->reduced_count : 0;
    case REDUCE_L2:
        return sqrt(a);
    case REDUCE_LOG_SUM:
        return log(a);
    default:
        return a;
    }
}

static int64_t finish_int(const reduce_state *state, int64_t a)
{
    switch (state->kind) {
    case REDUCE_MEAN:
        return state->reduced_count ? a / state->reduced_count : 0;
    case REDUCE_L2:
        return (int64_t)sqrt((double)a);
    default:
        return a;
    }
}

static void store_result(const reduce_state *state, accumulator a, void *out, int64_t index)
{
    if (state->dtype == GANTRY_FLOAT32) {
        ((float *)out)[index] = (float)finish_float(state, a.f);
    } else if (state->dtype == GANTRY_FLOAT64) {
        ((double *)out)[index] = finish_float(state, a.f);
    } else {
        int64_t x = finish_int(state, a.i);
        memcpy((char *)out + (size_t)index * state->out_bytes, &x,
               state->out_bytes); /* little-endian low bytes */
    }
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct reduce_work {
    const reduce_state *state;
    const char *in;
    void *out;
} reduce_work;

static void store_results(const reduce_state *state, const accumulator *a, int64_t count, void *out,
                          int64_t index)
{
    bool as_it_is = state->kind != REDUCE_MEAN && state->kind != REDUCE_L2 && state->kind != REDUCE_LOG_SUM;
    if (state->dtype != GANTRY_FLOAT32 || !as_it_is) {
        for (int64_t k = 0; k < count; k++)
            store_result(state, a[k], out, index + k);
        return;
    }
    float *y = (float *)out + index;
    for (int64_t k = 0; k < count; k++)
        y[k] = (float)a[k].f;
}

/* Short rows: pieces of COLUMNS output elements. */
static void reduce_short_chunk(void *arg, int64_t begin, int64_t end)
{
    const reduce_work *work = arg;
    const reduce_state *state = work->state;
    for (int64_t piece = begin; piece < end; piece++) {
        accumulator a[COLUMNS];
        int64_t at = piece * COLUMNS, n = cpu_min64(COLUMNS, state->kept_count - at);
        for (int64_t k = 0; k < n; k++)
            a[k] = state->neutral;
        state->fold_short((const float *)work->in + at * state->inner, state->inner, n, a);
        store_results(state, a, n, work->out, at);
    }
}

/* Innermost reduced: output elements begin..end-1. */
static void reduce_rows_chunk(void *arg, int64_t begin, int64_t end)
{
    const reduce_work *work = arg;
    const reduce_state *state = work->state;
    cpu_nest_position kept, reduced;
    cpu_nest_seek(&state->kept, begin, &kept);
    for (int64_t k = begin; k < end; k++) {
        accumulator a = state->neutral;
        cpu_nest_seek(&state->reduced, 0, &reduced);
        for (int64_t row = 0; row < state->reduced_rows; row++) {
            state->fold(work->in + (kept.offset[0] + reduced.offset[0]) * (int64_t)state->in_bytes,
                        state->inner, &a);
            cpu_nest_next(&state->reduced, &reduced);
        }
        store_result(state, a, work->out, k);
        cpu_nest_next(&state->kept, &kept);
    }
}

/* Innermost kept: pieces of COLUMNS elements of output rows. */
static void reduce_columns_chunk(void *arg, int64_t begin, int64_t end)
{
    const reduce_work *work = arg;
    const reduce_state *state = work->state;
    int64_t pieces = (state->inner + COLUMNS - 1) / COLUMNS;
    for (int64_t piece = begin; piece < end; piece++) {
        accumulator a[COLUMNS];
        cpu_nest_position kept, reduced;
        int64_t at = piece % pieces * COLUMNS, n = cpu_min64(COLUMNS, state->inner - at);
        for (int64_t k = 0; k < n; k++)
            a[k] = state->neutral;
        cpu_nest_seek(&state->kept, piece / pieces, &kept);
        cpu_nest_seek(&state->reduced, 0, &reduced);
        for (int64_t row = 0; row < state->reduced_rows; row++) {
            state->fold(work->in + (kept.offset[0] + reduced.offset[0] + at) * (int64_t)state->in_bytes, n,
                        a);
            cpu_nest_next(&state->reduced, &reduced);
        }
        store_results(state, a, n, work->out, piece / pieces * state->inner + at);
    }
}

static gantry_status reduce_run(const void *opaque, const cpu_call *call)
{
    const reduce_state *state = opaque;
    reduce_work work = {state, call->inputs[0], call->outputs[0]};
    int64_t per_output = cpu_max64(1, state->reduced_rows * (state->inner_kept ? COLUMNS : state->inner));
    int64_t chunk = cpu_max64(1, CPU_CHUNK_ELEMENTS / per_output);
    if (state->inner_kept)
        cpu_parallel(call, state->kept_count * ((state->inner + COLUMNS - 1) / COLUMNS), chunk,
                     reduce_columns_chunk, &work);
    else if (state->fold_short)
        cpu_parallel(call, (state->kept_count + COLUMNS - 1) / COLUMNS,
                     cpu_max64(1, CPU_CHUNK_ELEMENTS / (COLUMNS * state->inner)), reduce_short_chunk, &work);
    else
        cpu_parallel(call, state->kept_count, chunk, reduce_rows_chunk, &work);
    return GANTRY_OK;
}

/* LogSumExp: max + log(sum(exp(x - max))), element by element through the two nests. */
#define LOG_SUM_EXP(suffix, type)                                                                            \
    static void log_sum_exp_##suffix(void *arg, int64_t begin, int64_t end)                                  \
    {                                                                                                        \
        const reduce_work *work = arg;                                                                       \
        const reduce_state *state = work->state;                                                             \
        const type *in = (const type *)work->in;                                                             \
        cpu_nest_position kept, reduced;                                                                     \
        for (int64_t index = begin; index < end; index++) {                                                  \
            double most = -INFINITY, sum = 0;                                                                \
            int64_t column = state->inner_kept ? index % state->inner : 0;                                   \
            cpu_nest_seek(&state->kept, state->inner_kept ? index / state->inner : index, &kept);            \
            int64_t n = state->inner_kept ? 1 : state->inner;                                                \
            for (int pass = 0; pass < 2; pass++) {                                                           \
                double shift = isinf(most) ? 0 : most;                                                       \
                cpu_nest_seek(&state->reduced, 0, &reduced);                                                 \
                for (int64_t row = 0; row < state->reduced_rows; row++) {                                    \
                    const type *x = in + kept.offset[0] + reduced.offset[0] + column;                        \
                    for (int64_t k = 0; k < n; k++) {                                                        \
                        if (pass)                                                                            \
                            sum += exp((double)x[k] - shift);                                                \
                        else                                                                                 \
                            most = (double)x[k] > most ? (double)x[k] : most;                                \
                    }                                                                                        \
                    cpu_nest_next(&state->reduced, &reduced);                                                \
                }                                                                                            \
                if (pass)                                                                                    \
                    ((type *)work->out)[index] = (type)(log(sum) + shift);                                   \
            }                                                                                                \
        }                                                                                                    \
    }
LOG_SUM_EXP(f32, float)
LOG_SUM_EXP(f64, double)

static gantry_status log_sum_exp_run(const void *opaque, const cpu_call *call)
{
    const reduce_state *state = opaque;
    reduce_work work = {state, call->inputs[0], call->outputs[0]};
    cpu_parallel(call, state->kept_count * (state->inner_kept ? state->inner : 1), 64,
                 state->dtype == GANTRY_FLOAT32 ? log_sum_exp_f32 : log_sum_exp_f64, &work);
    return GANTRY_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Splits the input's axes, reduced where bit is set, into the two nests and the innermost row. */
static void plan_axes(reduce_state *state, const cpu_tensor *in, uint32_t reduced_bits)
{
    int64_t strides[GANTRY_MAX_RANK], kept_dims[GANTRY_MAX_RANK], kept_strides[GANTRY_MAX_RANK],
        reduced_dims[GANTRY_MAX_RANK], reduced_strides[GANTRY_MAX_RANK];
    uint32_t kept = 0, reduced = 0, last = GANTRY_MAX_RANK;
    cpu_strides(in->rank, in->dims, strides);
    for (uint32_t k = 0; k < in->rank; k++) {
        if (in->dims[k] == 1)
            continue;
        last = k;
        if (reduced_bits >> k & 1) {
            reduced_dims[reduced] = in->dims[k];
            reduced_strides[reduced++] = strides[k];
        } else {
            kept_dims[kept] = in->dims[k];
            kept_strides[kept++] = strides[k];
        }
    }
    const int64_t *kept_pointer[1] = {kept_strides}, *reduced_pointer[1] = {reduced_strides};
    cpu_nest_make(&state->kept, kept, kept_dims, 1, kept_pointer);
    cpu_nest_make(&state->reduced, reduced, reduced_dims, 1, reduced_pointer);
    state->inner_kept = last != GANTRY_MAX_RANK && !(reduced_bits >> last & 1);
    /* Each nest has its innermost axes as a row; the one that is not walked as a row becomes an outer axis
     * again. */
    cpu_nest *unrow = state->inner_kept ? &state->reduced : &state->kept;
    unrow->dims[unrow->rank] = unrow->inner;
    unrow->strides[0][unrow->rank] = unrow->step[0];
    if (unrow->inner != 1)
        unrow->rank++;
    unrow->rows *= unrow->inner;
    state->inner = state->inner_kept ? state->kept.inner : state->reduced.inner;
    state->kept_count = state->kept.rows;
    state->reduced_rows = state->reduced.rows;
    state->reduced_count = cpu_product(reduced_dims, 0, reduced);
}

gantry_status cpu_reduced_axes(cpu_build *build, bool axes_are_input, uint32_t rank, uint32_t *out_bits)
{
    int64_t axes[GANTRY_MAX_RANK];
    uint32_t count;
    bool given;
    *out_bits = 0;
    GT_TRY(cpu_ints_operand(build, "axes", axes_are_input ? 1 : GANTRY_NO_ID, axes, GANTRY_MAX_RANK, &count,
                            &given));
    if (count == 0 && !(axes_are_input && gantry_node_int(build->node, "noop_with_empty_axes", 0)))
        *out_bits = (1u << rank) - 1;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t axis;
        GT_TRY(cpu_resolve_axis(build, axes[k], rank, &axis));
        *out_bits |= 1u << axis;
    }
    return GANTRY_OK;
}

static const struct {
    const char *op;
    reduce_kind kind;
    fold_kind fold;
    int axes_input_since;
} reductions[] = {
    {"ReduceSum", REDUCE_SUM, FOLD_SUM, 13},
    {"ReduceMean", REDUCE_MEAN, FOLD_SUM, 18},
    {"ReduceMax", REDUCE_MAX, FOLD_MAX, 18},
    {"ReduceMin", REDUCE_MIN, FOLD_MIN, 18},
    {"ReduceProd", REDUCE_PROD, FOLD_PROD, 18},
    {"ReduceL1", REDUCE_L1, FOLD_ABS, 18},
    {"ReduceL2", REDUCE_L2, FOLD_SQUARE, 18},
    {"ReduceLogSum", REDUCE_LOG_SUM, FOLD_SUM, 18},
    {"ReduceLogSumExp", REDUCE_LOG_SUM_EXP, FOLD_SUM, 18},
    {"ReduceSumSquare", REDUCE_SUM_SQUARE, FOLD_SQUARE, 18},
    {"GlobalAveragePool", REDUCE_MEAN, FOLD_SUM, 0},
    {"GlobalMaxPool", REDUCE_MAX, FOLD_MAX, 0},
};

static bool has_short_rows(const reduce_state *state)
{
    const cpu_nest *kept = &state->kept;
    return !state->inner_kept && state->reduced_rows == 1 && state->inner > 0 && state->inner <= SHORT_ROW &&
           kept->rank == 1 && kept->strides[0][0] == state->inner;
}

static gantry_status make_reduction(cpu_build *build, reduce_kind kind, fold_kind fold, uint32_t bits,
                                    cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    reduce_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    const gantry_dtype dtype = in->dtype;
    if ((unsigned)dtype >= GANTRY_DTYPE_COUNT || !folds[dtype][fold][0])
        return cpu_unsupported(build, "no kernel for element type %d", (int)dtype);
    plan_axes(state, in, bits);
    if (state->kept_count * (state->inner_kept ? state->inner : 1) != build->outputs[0].count)
        return cpu_unsupported(build, "the axes leave %lld elements, the output has %lld",
                               (long long)(state->kept_count * (state->inner_kept ? state->inner : 1)),
                               (long long)build->outputs[0].count);
    state->kind = kind;
    state->dtype = dtype;
    state->in_bytes = state->out_bytes = cpu_dtype_size(dtype);
    state->fold = folds[dtype][fold][state->inner_kept];
    state->neutral = neutral_of(fold, dtype);
    if (dtype == GANTRY_FLOAT32 && has_short_rows(state))
        state->fold_short = short_folds[fold];
    *out_kernel = cpu_kernel_of(kind == REDUCE_LOG_SUM_EXP ? log_sum_exp_run : reduce_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count);
    out_kernel->accumulate = is_float(in->dtype) ? GANTRY_FLOAT64 : GANTRY_INT64;
    out_kernel->flops = (double)in->count;
    return GANTRY_OK;
}

static gantry_status make_reduce_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    for (size_t k = 0; k < sizeof reductions / sizeof reductions[0]; k++) {
        if (strcmp(reductions[k].op, build->node->op) != 0)
            continue;
        uint32_t bits = in->rank > 2 ? ((1u << in->rank) - 1) & ~3u : 0;
        if (reductions[k].axes_input_since)
            GT_TRY(cpu_reduced_axes(build, build->node->version >= reductions[k].axes_input_since, in->rank,
                                    &bits));
        return make_reduction(build, reductions[k].kind, reductions[k].fold, bits, out_kernel);
    }
    return cpu_unsupported(build, "no reduction for %s", build->node->op);
}

/* Integers are reduced in double where the result is not an integer by nature. */
static gantry_status make_reduce(cpu_build *build, cpu_kernel *out_kernel)
{
    bool log = strncmp(build->node->op, "ReduceLog", 9) == 0 || strcmp(build->node->op, "ReduceL2") == 0;
    if (!log || !cpu_dtype_in(build->inputs[0].dtype, CPU_INTEGERS))
        return cpu_make_widened(build, make_reduce_plain, out_kernel);
    gantry_dtype in_types[2] = {GANTRY_FLOAT64,
                                build->input_count > 1 ? build->inputs[1].dtype : GANTRY_INT64},
                 out_types[1] = {GANTRY_FLOAT64};
    return cpu_make_converted(build, make_reduce_plain, in_types, out_types, out_kernel);
}

#define REDUCE_ROW(name)                                                                                     \
    {                                                                                                        \
        .op = name, .domain = "", .types = {CPU_ALL_NUMBERS | CPU_TRUTH, CPU_INDEX}, .make = make_reduce     \
    }

gantry_status cpu_make_reduce(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_reduce(build, out_kernel);
}

static const cpu_op_row rows[] = {
    REDUCE_ROW("ReduceSum"),
    REDUCE_ROW("ReduceMean"),
    REDUCE_ROW("ReduceMax"),
    REDUCE_ROW("ReduceMin"),
    REDUCE_ROW("ReduceProd"),
    REDUCE_ROW("ReduceL1"),
    REDUCE_ROW("ReduceL2"),
    REDUCE_ROW("ReduceLogSum"),
    REDUCE_ROW("ReduceLogSumExp"),
    REDUCE_ROW("ReduceSumSquare"),
    {.op = "GlobalAveragePool", .domain = "", .types = {CPU_REALS}, .make = make_reduce},
    {.op = "GlobalMaxPool", .domain = "", .types = {CPU_REALS}, .make = make_reduce},
    {.op = "Einsum", .domain = "", .types = {CPU_ALL_NUMBERS}, .make = cpu_make_einsum},
    {.op = "ArgMax", .domain = "", .types = {CPU_ALL_NUMBERS}, .make = cpu_make_arg},
    {.op = "ArgMin", .domain = "", .types = {CPU_ALL_NUMBERS}, .make = cpu_make_arg},
    {.op = "CumSum", .domain = "", .types = {CPU_ALL_NUMBERS, CPU_INDEX}, .make = cpu_make_cumulate},
    {.op = "CumProd", .domain = "", .types = {CPU_ALL_NUMBERS, CPU_INDEX}, .make = cpu_make_cumulate},
    {.op = "NegativeLogLikelihoodLoss",
     .domain = "",
     .types = {CPU_REALS, CPU_INDEX, CPU_REALS},
     .make = cpu_make_loss},
    {.op = "SoftmaxCrossEntropyLoss",
     .domain = "",
     .types = {CPU_REALS, CPU_INDEX, CPU_REALS},
     .make = cpu_make_loss},
};

cpu_op_family cpu_reduce_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
