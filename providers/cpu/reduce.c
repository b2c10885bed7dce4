/* Reductions: Reduce* over any axes, and the global pools of plain layout. ArgMax, ArgMin and CumSum are in
 * scan.c.
 *
 * After neighbouring axes of one kind are merged, the axes alternate between kept and reduced:
 *     innermost reduced   each output element folds rows of `inner` elements
 *     innermost kept      each output row of `inner` elements folds rows element by element
 * Floats are summed in double across blocks, integers in 64 bits. */
#include "reduce.h"

#include "reduce_fold.h"

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

/* Columns folded at a time when the innermost axis is kept: the accumulators stay in L1. */
#define COLUMNS 512

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
    cpu_fold_row_fn fold;
    cpu_fold_short_fn fold_short; /* NULL: rows are long, or do not follow each other */
    cpu_accumulator neutral;
    gantry_dtype dtype;
    size_t in_bytes, out_bytes;
} reduce_state;

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

static void store_result(const reduce_state *state, cpu_accumulator a, void *out, int64_t index)
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

static void store_results(const reduce_state *state, const cpu_accumulator *a, int64_t count, void *out,
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
        cpu_accumulator a[COLUMNS];
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
        cpu_accumulator a = state->neutral;
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
        cpu_accumulator a[COLUMNS];
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
    cpu_fold_kind fold;
    int axes_input_since;
} reductions[] = {
    {"ReduceSum", REDUCE_SUM, CPU_FOLD_SUM, 13},
    {"ReduceMean", REDUCE_MEAN, CPU_FOLD_SUM, 18},
    {"ReduceMax", REDUCE_MAX, CPU_FOLD_MAX, 18},
    {"ReduceMin", REDUCE_MIN, CPU_FOLD_MIN, 18},
    {"ReduceProd", REDUCE_PROD, CPU_FOLD_PROD, 18},
    {"ReduceL1", REDUCE_L1, CPU_FOLD_ABS, 18},
    {"ReduceL2", REDUCE_L2, CPU_FOLD_SQUARE, 18},
    {"ReduceLogSum", REDUCE_LOG_SUM, CPU_FOLD_SUM, 18},
    {"ReduceLogSumExp", REDUCE_LOG_SUM_EXP, CPU_FOLD_SUM, 18},
    {"ReduceSumSquare", REDUCE_SUM_SQUARE, CPU_FOLD_SQUARE, 18},
    {"GlobalAveragePool", REDUCE_MEAN, CPU_FOLD_SUM, 0},
    {"GlobalMaxPool", REDUCE_MAX, CPU_FOLD_MAX, 0},
};

static bool has_short_rows(const reduce_state *state)
{
    const cpu_nest *kept = &state->kept;
    return !state->inner_kept && state->reduced_rows == 1 && state->inner > 0 && state->inner <= SHORT_ROW &&
           kept->rank == 1 && kept->strides[0][0] == state->inner;
}

static gantry_status make_reduction(cpu_build *build, reduce_kind kind, cpu_fold_kind fold, uint32_t bits,
                                    cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    reduce_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    const gantry_dtype dtype = in->dtype;
    if (!cpu_fold_row(dtype, fold))
        return cpu_unsupported(build, "no kernel for element type %d", (int)dtype);
    plan_axes(state, in, bits);
    if (state->kept_count * (state->inner_kept ? state->inner : 1) != build->outputs[0].count)
        return cpu_unsupported(build, "the axes leave %lld elements, the output has %lld",
                               (long long)(state->kept_count * (state->inner_kept ? state->inner : 1)),
                               (long long)build->outputs[0].count);
    state->kind = kind;
    state->dtype = dtype;
    state->in_bytes = state->out_bytes = cpu_dtype_size(dtype);
    state->fold = state->inner_kept ? cpu_fold_columns(dtype, fold) : cpu_fold_row(dtype, fold);
    state->neutral = cpu_fold_neutral(fold, dtype);
    if (dtype == GANTRY_FLOAT32 && has_short_rows(state))
        state->fold_short = cpu_fold_short(fold);
    *out_kernel = cpu_kernel_of(kind == REDUCE_LOG_SUM_EXP ? log_sum_exp_run : reduce_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count);
    out_kernel->accumulate = cpu_dtype_in(in->dtype, CPU_FLOATS) ? GANTRY_FLOAT64 : GANTRY_INT64;
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
