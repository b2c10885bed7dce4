/* Softmax, LogSoftmax, Hardmax, LayerNormalization and RMSNormalization: normalization of rows. What works by
 * channels is in channel_norm.c. Computed in float32; float64 in float64. */
#include "normalization.h"

#include "rows.h"

#include <math.h>

/* ---- Softmax and kin over [outer, n, inner] -------------------------------------------------- */

typedef enum soft_kind { SOFT_MAX, SOFT_LOG_MAX, HARD_MAX } soft_kind;

typedef struct soft_state {
    int64_t outer, n, inner;
    soft_kind kind;
    size_t bytes;
} soft_state;

typedef struct soft_work {
    const soft_state *state;
    const char *in;
    char *out;
} soft_work;

/* Columns done together when the axis is not the innermost one. */
#define COLUMNS 64

static void soft_row_f32(soft_kind kind, const float *in, float *out, int64_t n)
{
    const cpu_rows *rows = cpu_rows_best();
    float most = rows->max_f32(in, n);
    if (kind == SOFT_MAX) {
        float sum = rows->exp_sum_f32(in, out, n, most);
        rows->affine_f32(out, out, n, 1.0f / sum, 0.0f);
    } else {
        float buffer[1024], sum = 0;
        for (int64_t k = 0; k < n; k += 1024)
            sum += rows->exp_sum_f32(in + k, buffer, cpu_min64(1024, n - k), most);
        float shift = logf(sum);
        for (int64_t k = 0; k < n; k++)
            out[k] = (in[k] - most) - shift;
    }
}

/* A block of at most COLUMNS columns, n rows, `stride` elements apart. */
CPU_CLONES static void soft_columns_f32(soft_kind kind, const float *in, float *out, int64_t n,
                                        int64_t stride, int64_t width)
{
    const cpu_rows *rows = cpu_rows_best();
    float most[COLUMNS], sum[COLUMNS], row[COLUMNS];
    for (int64_t c = 0; c < width; c++) {
        most[c] = -INFINITY;
        sum[c] = 0;
    }
    for (int64_t k = 0; k < n; k++)
        for (int64_t c = 0; c < width; c++)
            most[c] = in[k * stride + c] > most[c] ? in[k * stride + c] : most[c];
    for (int64_t k = 0; k < n; k++) {
        for (int64_t c = 0; c < width; c++)
            row[c] = in[k * stride + c] - most[c];
        float *target = kind == SOFT_MAX ? out + k * stride : row;
        if (kind == SOFT_LOG_MAX)
            memcpy(out + k * stride, row, (size_t)width * sizeof *row);
        rows->unary[CPU_UNARY_exp](row, target, width, NULL);
        for (int64_t c = 0; c < width; c++)
            sum[c] += target[c];
    }
    for (int64_t c = 0; c < width; c++)
        sum[c] = kind == SOFT_MAX ? 1.0f / sum[c] : logf(sum[c]);
    for (int64_t k = 0; k < n; k++)
        for (int64_t c = 0; c < width; c++)
            out[k * stride + c] =
                kind == SOFT_MAX ? out[k * stride + c] * sum[c] : out[k * stride + c] - sum[c];
}

static void soft_chunk_f32(void *arg, int64_t begin, int64_t end)
{
    const soft_work *work = arg;
    const soft_state *state = work->state;
    const float *in = (const float *)work->in;
    float *out = (float *)work->out;
    int64_t pieces = (state->inner + COLUMNS - 1) / COLUMNS;
    for (int64_t k = begin; k < end; k++) {
        if (state->inner == 1) {
            soft_row_f32(state->kind, in + k * state->n, out + k * state->n, state->n);
            continue;
        }
        int64_t column = k % pieces * COLUMNS, at = k / pieces * state->n * state->inner + column;
        soft_columns_f32(state->kind, in + at, out + at, state->n, state->inner,
                         cpu_min64(COLUMNS, state->inner - column));
    }
}

static void soft_lane_f64(soft_kind kind, const double *in, double *out, int64_t n, int64_t stride)
{
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++)
        most = in[k * stride] > most ? in[k * stride] : most;
    for (int64_t k = 0; k < n; k++)
        sum += exp(in[k * stride] - most);
    for (int64_t k = 0; k < n; k++)
        out[k * stride] =
            kind == SOFT_MAX ? exp(in[k * stride] - most) / sum : in[k * stride] - most - log(sum);
}

/* One where the first largest element is, else zero. */
#define HARD_LANE(suffix, type)                                                                              \
    static void hard_lane_##suffix(const type *in, type *out, int64_t n, int64_t stride)                     \
    {                                                                                                        \
        int64_t best = 0;                                                                                    \
        for (int64_t k = 1; k < n; k++)                                                                      \
            best = in[k * stride] > in[best * stride] ? k : best;                                            \
        for (int64_t k = 0; k < n; k++)                                                                      \
            out[k * stride] = k == best;                                                                     \
    }
HARD_LANE(f32, float)
HARD_LANE(f64, double)

static void lanes_chunk(void *arg, int64_t begin, int64_t end)
{
    const soft_work *work = arg;
    const soft_state *state = work->state;
    for (int64_t k = begin; k < end; k++) {
        int64_t at = k / state->inner * state->n * state->inner + k % state->inner;
        if (state->kind != HARD_MAX)
            soft_lane_f64(state->kind, (const double *)work->in + at, (double *)work->out + at, state->n,
                          state->inner);
        else if (state->bytes == 4)
            hard_lane_f32((const float *)work->in + at, (float *)work->out + at, state->n, state->inner);
        else
            hard_lane_f64((const double *)work->in + at, (double *)work->out + at, state->n, state->inner);
    }
}

static gantry_status soft_run(const void *opaque, const cpu_call *call)
{
    const soft_state *state = opaque;
    soft_work work = {state, call->inputs[0], call->outputs[0]};
    bool fast = state->kind != HARD_MAX && state->bytes == 4;
    int64_t width = !fast || state->inner == 1 ? 1 : COLUMNS;
    cpu_parallel(call, state->outer * ((state->inner + width - 1) / width),
                 cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, state->n * width)),
                 fast ? soft_chunk_f32 : lanes_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_soft_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    bool flatten = build->node->version < 13;
    uint32_t axis = 0;
    soft_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    int64_t wanted = gantry_node_int(build->node, "axis", flatten ? 1 : -1);
    if (flatten && wanted == (int64_t)in->rank)
        axis = in->rank; /* every element by itself */
    else
        GT_TRY(cpu_resolve_axis(build, wanted, in->rank ? in->rank : 1, &axis));
    const char *op = build->node->op;
    *state = (soft_state){.outer = cpu_product(in->dims, 0, axis),
                          .kind = strcmp(op, "LogSoftmax") == 0 ? SOFT_LOG_MAX
                                  : strcmp(op, "Hardmax") == 0  ? HARD_MAX
                                                                : SOFT_MAX,
                          .bytes = cpu_dtype_size(in->dtype)};
    uint32_t after = flatten || in->rank == 0 ? in->rank : axis + 1;
    state->n = cpu_product(in->dims, axis, after);
    state->inner = cpu_product(in->dims, after, in->rank);
    if (in->count == 0)
        state->outer = 0;
    *out_kernel = cpu_kernel_of(soft_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count * 4);
    out_kernel->isa = state->bytes == 4 ? cpu_rows_best()->isa : "c";
    out_kernel->flops = (double)in->count * 10;
    out_kernel->overwrite_input = 0;
    return GANTRY_OK;
}

static gantry_status make_soft(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_soft_plain, out_kernel);
}

/* ---- LayerNormalization, RMSNormalization ---------------------------------------------------- */

typedef struct layer_state {
    int64_t rows, n;
    float epsilon;
    bool centered; /* LayerNormalization: the mean is taken away */
    bool wide;     /* float64 */
    bool has_gain, has_bias;
    bool gain_varies;           /* scale and bias are not simply one row */
    cpu_nest gain, bias;        /* over the whole tensor, when they vary */
    bool has_mean, has_inverse; /* outputs 1 and 2 */
} layer_state;

typedef struct layer_work {
    const layer_state *state;
    const char *in, *gain, *bias;
    char *out, *mean, *inverse;
} layer_work;

/* Elements of a broadcast operand for one row. A row may cover several rows of the nest. */
static double broadcast_at(const cpu_nest *nest, const char *data, bool wide, int64_t element)
{
    cpu_nest_position position;
    cpu_nest_seek(nest, element / nest->inner, &position);
    int64_t at = position.offset[0] + element % nest->inner * nest->step[0];
    return wide ? ((const double *)data)[at] : (double)((const float *)data)[at];
}

static void layer_row_f32(const layer_work *work, int64_t row)
{
    const layer_state *state = work->state;
    const cpu_rows *rows = cpu_rows_best();
    const float *in = (const float *)work->in + row * state->n;
    float *out = (float *)work->out + row * state->n;
    double n = (double)state->n;
    float mean = state->centered ? (float)(rows->sum_f32(in, state->n) / n) : 0;
    double variance = rows->sum_deviation_f32(in, state->n, mean) / n;
    float factor = (float)(1.0 / sqrt(variance + (double)state->epsilon));
    bool one_row = !state->gain_varies;
    rows->normalize_f32(in, out, state->n, mean, factor, one_row ? (const float *)work->gain : NULL,
                        one_row ? (const float *)work->bias : NULL);
    for (int64_t k = 0; !one_row && k < state->n; k++) {
        if (work->gain)
            out[k] *= (float)broadcast_at(&state->gain, work->gain, false, row * state->n + k);
        if (work->bias)
            out[k] += (float)broadcast_at(&state->bias, work->bias, false, row * state->n + k);
    }
    if (work->mean)
        ((float *)work->mean)[row] = mean;
    if (work->inverse)
        ((float *)work->inverse)[row] = factor;
}

static void layer_row_f64(const layer_work *work, int64_t row)
{
    const layer_state *state = work->state;
    const double *in = (const double *)work->in + row * state->n;
    double *out = (double *)work->out + row * state->n, mean = 0, variance = 0;
    for (int64_t k = 0; state->centered && k < state->n; k++)
        mean += in[k];
    mean /= (double)state->n;
    for (int64_t k = 0; k < state->n; k++)
        variance += (in[k] - mean) * (in[k] - mean);
    double factor = 1 / sqrt(variance / (double)state->n + (double)state->epsilon);
    for (int64_t k = 0; k < state->n; k++) {
        double x = (in[k] - mean) * factor;
        if (work->gain)
            x *= state->gain_varies ? broadcast_at(&state->gain, work->gain, true, row * state->n + k)
                                    : ((const double *)work->gain)[k];
        if (work->bias)
            x += state->gain_varies ? broadcast_at(&state->bias, work->bias, true, row * state->n + k)
                                    : ((const double *)work->bias)[k];
        out[k] = x;
    }
    if (work->mean) /* statistics are float32 */
        ((float *)work->mean)[row] = (float)mean;
    if (work->inverse)
        ((float *)work->inverse)[row] = (float)factor;
}

static void layer_chunk(void *arg, int64_t begin, int64_t end)
{
    const layer_work *work = arg;
    for (int64_t row = begin; row < end; row++)
        if (work->state->wide)
            layer_row_f64(work, row);
        else
            layer_row_f32(work, row);
}

static gantry_status layer_run(const void *opaque, const cpu_call *call)
{
    const layer_state *state = opaque;
    layer_work work = {.state = state, .in = call->inputs[0], .out = call->outputs[0]};
    work.gain = state->has_gain ? call->inputs[1] : NULL;
    work.bias = state->has_bias ? call->inputs[2] : NULL;
    work.mean = state->has_mean ? call->outputs[1] : NULL;
    work.inverse = state->has_inverse ? call->outputs[2] : NULL;
    cpu_parallel(call, state->rows, cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, state->n)), layer_chunk,
                 &work);
    return GANTRY_OK;
}

static gantry_status make_layer_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *gain = cpu_input(build, 1), *bias = cpu_input(build, 2);
    uint32_t axis;
    layer_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", -1), in->rank, &axis));
    *state = (layer_state){.rows = cpu_product(in->dims, 0, axis),
                           .n = cpu_product(in->dims, axis, in->rank),
                           .epsilon = gantry_node_float(build->node, "epsilon", 1e-5f),
                           .centered = strcmp(build->node->op, "RMSNormalization") != 0,
                           .wide = in->dtype == GANTRY_FLOAT64,
                           .has_gain = gain != NULL,
                           .has_bias = bias != NULL};
    state->has_mean = cpu_output(build, 1) != NULL;
    state->has_inverse = cpu_output(build, 2) != NULL;
    for (uint32_t k = 1; k < 3; k++) {
        const cpu_tensor *operand = cpu_input(build, k);
        if (!operand)
            continue;
        if (operand->dtype != in->dtype)
            return cpu_unsupported(build, "input %u has element type %d, x %d", k, (int)operand->dtype,
                                   (int)in->dtype);
        if (!cpu_nest_broadcast(k == 1 ? &state->gain : &state->bias, in->rank, in->dims, 1, &operand))
            return cpu_unsupported(build, "input %u does not broadcast to x", k);
        /* One row serves all rows when the operand has exactly the extents of the normalized axes. */
        uint32_t skip = in->rank - operand->rank;
        bool row = operand->count == state->n;
        for (uint32_t j = axis; j < in->rank && row; j++)
            row = j >= skip && operand->dims[j - skip] == in->dims[j];
        state->gain_varies = state->gain_varies || !row;
    }
    if (state->n == 0)
        state->rows = 0;
    *out_kernel = cpu_kernel_of(layer_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count * 2);
    out_kernel->isa = state->wide ? "c" : cpu_rows_best()->isa;
    out_kernel->accumulate = GANTRY_FLOAT64;
    out_kernel->flops = (double)in->count * 8;
    return GANTRY_OK;
}

gantry_status cpu_make_layer_norm(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_layer_plain, out_kernel);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const cpu_op_row rows[] = {
    {.op = "Softmax", .domain = "", .types = {CPU_REALS}, .make = make_soft},
    {.op = "LogSoftmax", .domain = "", .types = {CPU_REALS}, .make = make_soft},
    {.op = "Hardmax", .domain = "", .types = {CPU_REALS}, .make = make_soft},
    {.op = "LayerNormalization", .domain = "", .types = {CPU_REALS}, .make = cpu_make_layer_norm},
    {.op = "RMSNormalization", .domain = "", .types = {CPU_REALS}, .make = cpu_make_layer_norm},
    {.op = "BatchNormalization", .domain = "", .types = {CPU_REALS}, .make = cpu_make_batch_norm},
    {.op = "InstanceNormalization", .domain = "", .types = {CPU_REALS}, .make = cpu_make_group_norm},
    {.op = "GroupNormalization", .domain = "", .types = {CPU_REALS}, .make = cpu_make_group_norm},
    {.op = "LRN", .domain = "", .types = {CPU_REALS}, .make = cpu_make_lrn},
    {.op = "LpNormalization", .domain = "", .types = {CPU_REALS}, .make = cpu_make_lp_norm},
    {.op = "MeanVarianceNormalization",
     .domain = "",
     .types = {CPU_REALS},
     .make = cpu_make_mean_variance_norm},
};

cpu_op_family cpu_normalization_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
