/* QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear: y = saturate(round_half_even(x / scale) + zero)
 * and x = (y - zero) * scale, with one scale for the tensor, one for each position of an axis, or one for
 * each block of an axis. The work is cut into runs of elements that have one scale, or of elements that each
 * have their own. */
#include "quantized.h"

#include <math.h>

typedef enum scale_kind {
    SCALE_TENSOR,     /* one */
    SCALE_AXIS,       /* run k has scale k % runs_per_outer */
    SCALE_AXIS_LAST,  /* the axis is innermost: element k of a run has scale k */
    SCALE_BLOCK_LAST, /* blocks of the innermost axis: run k has scale k */
    SCALE_BLOCK       /* blocks of another axis: each element of a run has its own */
} scale_kind;

typedef struct quantize_state {
    scale_kind kind;
    int64_t runs, runs_per_outer, outer_stride, run_stride; /* elements */
    int64_t block, blocks, inner;                           /* blocked scales */
    gantry_dtype dtype;                                     /* of the integers */
    bool has_zero;
    int32_t low, high;
    size_t real_bytes, integer_bytes;
    bool dequantize;
} quantize_state;

typedef struct quantize_work {
    const quantize_state *state;
    const char *in;
    char *out;
    const float *scales;
    const void *zeros;
} quantize_work;

/* NaN becomes the lowest value. */
static inline int32_t quantize_one(float x, float scale, int32_t zero, int32_t low, int32_t high)
{
    double rounded = (double)rintf(x / scale), y = rounded + zero;
    return !(y > low) ? low : y < high ? (int32_t)y : high;
}

/* Runs with a scale for each element (step 1) or one for all (step 0). */
#define RUNS(suffix, type)                                                                                   \
    static void quantize_##suffix(const float *in, type *out, int64_t n, const float *scale,                 \
                                  const type *zero, int64_t step, const quantize_state *state)               \
    {                                                                                                        \
        for (int64_t k = 0; k < n; k++)                                                                      \
            out[k] = (type)quantize_one(in[k], scale[k * step], zero ? (int32_t)zero[k * step] : 0,          \
                                        state->low, state->high);                                            \
    }                                                                                                        \
    static void dequantize_##suffix(const type *in, float *out, int64_t n, const float *scale,               \
                                    const type *zero, int64_t step)                                          \
    {                                                                                                        \
        for (int64_t k = 0; k < n; k++)                                                                      \
            out[k] = (float)((int64_t)in[k] - (zero ? (int64_t)zero[k * step] : 0)) * scale[k * step];       \
    }
RUNS(u8, uint8_t)
RUNS(s8, int8_t)
RUNS(u16, uint16_t)
RUNS(s16, int16_t)
RUNS(s32, int32_t)

/* Types that are floats themselves (float8): scaled only; the conversion around the kernel rounds. */
static void scale_f32(const float *in, float *out, int64_t n, const float *scale, int64_t step,
                      bool dequantize)
{
    for (int64_t k = 0; k < n; k++)
        out[k] = dequantize ? in[k] * scale[k * step] : in[k] / scale[k * step];
}

static void run_elements(const quantize_work *work, int64_t at, int64_t n, int64_t scale_at, int64_t step)
{
    const quantize_state *state = work->state;
    const cpu_rows *rows = cpu_rows_best();
    const float *scale = work->scales + scale_at;
    const char *in = work->in + (size_t)at * (state->dequantize ? state->integer_bytes : state->real_bytes);
    char *out = work->out + (size_t)at * (state->dequantize ? state->real_bytes : state->integer_bytes);
    const char *zero =
        state->has_zero ? (const char *)work->zeros + (size_t)scale_at * state->integer_bytes : NULL;
    bool whole = step == 0 && (int64_t)state->high - state->low == 255;
    switch (state->dtype) {
#define CASE(DTYPE, suffix, type)                                                                            \
    case DTYPE:                                                                                              \
        if (state->dequantize)                                                                               \
            dequantize_##suffix((const type *)in, (float *)out, n, scale, (const type *)zero, step);         \
        else                                                                                                 \
            quantize_##suffix((const float *)in, (type *)out, n, scale, (const type *)zero, step, state);    \
        return;
    case GANTRY_UINT8:
        if (whole && state->dequantize)
            rows->dequantize_u8((const uint8_t *)in, (float *)out, n, *scale,
                                zero ? *(const uint8_t *)zero : 0);
        else if (whole)
            rows->quantize_u8((const float *)in, (uint8_t *)out, n, *scale,
                              zero ? *(const uint8_t *)zero : 0);
        else if (state->dequantize)
            dequantize_u8((const uint8_t *)in, (float *)out, n, scale, (const uint8_t *)zero, step);
        else
            quantize_u8((const float *)in, (uint8_t *)out, n, scale, (const uint8_t *)zero, step, state);
        return;
    case GANTRY_INT8:
        if (whole && state->dequantize)
            rows->dequantize_s8((const int8_t *)in, (float *)out, n, *scale,
                                zero ? *(const int8_t *)zero : 0);
        else if (whole)
            rows->quantize_s8((const float *)in, (int8_t *)out, n, *scale, zero ? *(const int8_t *)zero : 0);
        else if (state->dequantize)
            dequantize_s8((const int8_t *)in, (float *)out, n, scale, (const int8_t *)zero, step);
        else
            quantize_s8((const float *)in, (int8_t *)out, n, scale, (const int8_t *)zero, step, state);
        return;
        CASE(GANTRY_UINT16, u16, uint16_t)
        CASE(GANTRY_INT16, s16, int16_t)
        CASE(GANTRY_INT32, s32, int32_t)
    default:
        scale_f32((const float *)in, (float *)out, n, scale, step, state->dequantize);
    }
}

static void quantize_chunk(void *arg, int64_t begin, int64_t end)
{
    const quantize_work *work = arg;
    const quantize_state *state = work->state;
    for (int64_t run = begin; run < end; run++) {
        int64_t outer = run / state->runs_per_outer, inside = run % state->runs_per_outer;
        int64_t n = cpu_min64(state->run_stride, state->outer_stride - inside * state->run_stride);
        int64_t at = outer * state->outer_stride + inside * state->run_stride;
        int64_t scale = state->kind == SCALE_AXIS         ? inside
                        : state->kind == SCALE_BLOCK_LAST ? run
                        : state->kind == SCALE_BLOCK
                            ? (outer * state->blocks + inside / state->block) * state->inner
                            : 0;
        bool each = state->kind == SCALE_AXIS_LAST || state->kind == SCALE_BLOCK;
        run_elements(work, at, n, scale, each);
    }
}

static gantry_status quantize_run(const void *opaque, const cpu_call *call)
{
    const quantize_state *state = opaque;
    quantize_work work = {state, call->inputs[0], call->outputs[0], call->inputs[1],
                          state->has_zero ? call->inputs[2] : NULL};
    cpu_parallel(call, state->runs, cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, state->run_stride)),
                 quantize_chunk, &work);
    return GANTRY_OK;
}

/* How the tensor falls into runs, by the shape of the scale. */
static gantry_status plan_scales(cpu_build *build, quantize_state *state)
{
    const cpu_tensor *in = &build->inputs[0], *scale = &build->inputs[1];
    int64_t block = gantry_node_int(build->node, "block_size", 0);
    uint32_t axis = 0;
    if (scale->count == 1 && (block <= 0 || in->rank == 0)) {
        state->kind = SCALE_TENSOR;
        state->outer_stride = in->count;
        state->run_stride = CPU_CHUNK_ELEMENTS;
        state->runs = state->runs_per_outer = (in->count + CPU_CHUNK_ELEMENTS - 1) / CPU_CHUNK_ELEMENTS;
        return GANTRY_OK;
    }
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", 1), in->rank, &axis));
    int64_t outer = cpu_product(in->dims, 0, axis), extent = in->dims[axis],
            inner = cpu_product(in->dims, axis + 1, in->rank);
    state->outer_stride = extent * inner;
    if (block <= 0) {
        if (scale->count != extent)
            return cpu_unsupported(build, "the scale has %lld elements for an axis of %lld",
                                   (long long)scale->count, (long long)extent);
        state->kind = inner == 1 ? SCALE_AXIS_LAST : SCALE_AXIS;
        state->runs_per_outer = inner == 1 ? 1 : extent;
        state->run_stride = inner == 1 ? extent : inner;
    } else {
        int64_t blocks = (extent + block - 1) / block;
        if (scale->rank != in->rank || scale->count != outer * blocks * inner)
            return cpu_unsupported(build, "the scale has %lld elements for %lld blocks",
                                   (long long)scale->count, (long long)(outer * blocks * inner));
        state->kind = inner == 1 ? SCALE_BLOCK_LAST : SCALE_BLOCK;
        state->runs_per_outer = inner == 1 ? blocks : extent;
        state->run_stride = inner == 1 ? block : inner;
        state->block = block;
        state->blocks = blocks;
        state->inner = inner;
    }
    state->runs = outer * state->runs_per_outer;
    return GANTRY_OK;
}

static const struct {
    gantry_dtype dtype;
    int32_t low, high;
} ranges[] = {{GANTRY_UINT8, 0, 255},        {GANTRY_INT8, -128, 127}, {GANTRY_UINT16, 0, 65535},
              {GANTRY_INT16, -32768, 32767}, {GANTRY_UINT4, 0, 15},    {GANTRY_INT4, -8, 7},
              {GANTRY_UINT2, 0, 3},          {GANTRY_INT2, -2, 1},     {GANTRY_INT32, INT32_MIN, INT32_MAX}};

static gantry_status make_quantize(cpu_build *build, bool dequantize, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *zero = cpu_input(build, 2);
    const cpu_tensor *integers = dequantize ? in : &build->outputs[0];
    const gantry_value_view *value = dequantize ? gantry_node_input(build->graph, build->node, 0)
                                                : gantry_node_output(build->graph, build->node, 0);
    quantize_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->dtype = integers->dtype;
    state->dequantize = dequantize;
    state->has_zero = zero != NULL && state->dtype != GANTRY_FLOAT32;
    state->integer_bytes = cpu_dtype_size(integers->dtype);
    state->real_bytes = sizeof(float);
    /* Packed types come as bytes here; the graph still knows the range. */
    gantry_dtype range = value && cpu_dtype_packed_bits(value->dtype) ? value->dtype : integers->dtype;
    for (size_t k = 0; k < sizeof ranges / sizeof ranges[0]; k++)
        if (ranges[k].dtype == range) {
            state->low = ranges[k].low;
            state->high = ranges[k].high;
        }
    if (state->has_zero && (zero->dtype != integers->dtype || zero->count != build->inputs[1].count))
        return cpu_unsupported(
            build, "the zero point has another type than the integers, or another size than the scale");
    GT_TRY(plan_scales(build, state));
    *out_kernel = cpu_kernel_of(quantize_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count);
    out_kernel->isa = cpu_rows_best()->isa;
    return GANTRY_OK;
}

static gantry_status make_quantize_bytes(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_quantize(build, false, out_kernel);
}

static gantry_status make_dequantize_bytes(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_quantize(build, true, out_kernel);
}

/* The types the kernels work in: reals are float32, packed integers bytes. */
static gantry_dtype real_type(gantry_dtype dtype)
{
    return GANTRY_FLOAT32;
}

static gantry_dtype integer_type(gantry_dtype dtype)
{
    if (dtype == GANTRY_UINT4 || dtype == GANTRY_UINT2)
        return GANTRY_UINT8;
    if (dtype == GANTRY_INT4 || dtype == GANTRY_INT2)
        return GANTRY_INT8;
    return cpu_dtype_in(dtype, CPU_INTEGERS) ? dtype : GANTRY_FLOAT32;
}

static gantry_status make_quantize_linear(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype zero = build->input_count > 2 ? integer_type(build->inputs[2].dtype) : GANTRY_UNDEFINED;
    gantry_dtype in_types[3] = {real_type(build->inputs[0].dtype), GANTRY_FLOAT32, zero},
                 out_types[1] = {integer_type(build->outputs[0].dtype)};
    return cpu_make_converted(build, make_quantize_bytes, in_types, out_types, out_kernel);
}

static gantry_status make_dequantize_linear(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype zero = build->input_count > 2 ? integer_type(build->inputs[2].dtype) : GANTRY_UNDEFINED;
    gantry_dtype in_types[3] = {integer_type(build->inputs[0].dtype), GANTRY_FLOAT32, zero},
                 out_types[1] = {GANTRY_FLOAT32};
    return cpu_make_converted(build, make_dequantize_bytes, in_types, out_types, out_kernel);
}

/* ---- DynamicQuantizeLinear ------------------------------------------------------------------- */

typedef struct dynamic_state {
    int64_t count;
} dynamic_state;

typedef struct dynamic_work {
    const float *in;
    uint8_t *out;
    float scale;
    int zero;
} dynamic_work;

static void dynamic_chunk(void *arg, int64_t begin, int64_t end)
{
    const dynamic_work *work = arg;
    cpu_rows_best()->quantize_u8(work->in + begin, work->out + begin, end - begin, work->scale, work->zero);
}

/* The least and the greatest element, and 0; NaN is left out. In lanes, so that it runs as vectors. */
CPU_CLONES static void find_range(const float *in, int64_t n, float *out_low, float *out_high)
{
    enum { LANES = 32 };
    float lows[LANES] = {0}, highs[LANES] = {0};
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int j = 0; j < LANES; j++) {
            lows[j] = in[k + j] < lows[j] ? in[k + j] : lows[j];
            highs[j] = in[k + j] > highs[j] ? in[k + j] : highs[j];
        }
    for (; k < n; k++) {
        lows[0] = in[k] < lows[0] ? in[k] : lows[0];
        highs[0] = in[k] > highs[0] ? in[k] : highs[0];
    }
    *out_low = *out_high = 0;
    for (int j = 0; j < LANES; j++) {
        *out_low = lows[j] < *out_low ? lows[j] : *out_low;
        *out_high = highs[j] > *out_high ? highs[j] : *out_high;
    }
}

static gantry_status dynamic_run(const void *opaque, const cpu_call *call)
{
    const dynamic_state *state = opaque;
    const float *in = call->inputs[0];
    float low, high;
    find_range(in, state->count, &low, &high);
    float scale = (high - low) / 255.0f;
    if (!(scale > 0))
        scale = 1;
    float zero = rintf(0.0f - low / scale);
    zero = zero > 0 ? (zero < 255 ? zero : 255) : 0;
    dynamic_work work = {in, call->outputs[0], scale, (int)zero};
    cpu_parallel(call, state->count, CPU_CHUNK_ELEMENTS, dynamic_chunk, &work);
    if (call->outputs[1])
        *(float *)call->outputs[1] = scale;
    if (call->outputs[2])
        *(uint8_t *)call->outputs[2] = (uint8_t)zero;
    return GANTRY_OK;
}

static gantry_status make_dynamic(cpu_build *build, cpu_kernel *out_kernel)
{
    dynamic_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (build->output_count != 3)
        return cpu_unsupported(build, "needs three outputs");
    state->count = build->inputs[0].count;
    *out_kernel = cpu_kernel_of(dynamic_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)state->count);
    out_kernel->isa = cpu_rows_best()->isa;
    return GANTRY_OK;
}

#define NO_STRING (CPU_EVERY & ~CPU_BIT(GANTRY_STRING))
#define SCALES (CPU_BIT(GANTRY_FLOAT32) | CPU_HALVES | CPU_BIT(GANTRY_FLOAT8E8M0))

#define QLINEAR_BINARY(name)                                                                                 \
    {                                                                                                        \
        .op = name, .domain = "com.microsoft",                                                               \
        .types = {CPU_BYTES, CPU_BIT(GANTRY_FLOAT32), CPU_BYTES, CPU_BYTES, CPU_BIT(GANTRY_FLOAT32),         \
                  CPU_BYTES, CPU_BIT(GANTRY_FLOAT32), CPU_BYTES},                                            \
        .make = cpu_make_qlinear_binary, .flags = CPU_ROW_PICKS_LAYOUT                                       \
    }

static const cpu_op_row rows[] = {
    {.op = "QuantizeLinear",
     .domain = "",
     .types = {CPU_BIT(GANTRY_FLOAT32) | CPU_HALVES | CPU_BIT(GANTRY_INT32), SCALES, NO_STRING},
     .make = make_quantize_linear},
    {.op = "DequantizeLinear",
     .domain = "",
     .types = {NO_STRING, SCALES, NO_STRING},
     .make = make_dequantize_linear},
    {.op = "DynamicQuantizeLinear", .domain = "", .types = {CPU_BIT(GANTRY_FLOAT32)}, .make = make_dynamic},
    {.op = "MatMulInteger",
     .domain = "",
     .types = {CPU_BYTES},
     .make = cpu_make_matmul_integer,
     .flags = CPU_ROW_PACKS},
    {.op = "QLinearMatMul",
     .domain = "",
     .types = {CPU_BYTES, CPU_BIT(GANTRY_FLOAT32) | CPU_HALVES, CPU_BYTES, CPU_BYTES,
               CPU_BIT(GANTRY_FLOAT32) | CPU_HALVES, CPU_BYTES, CPU_BIT(GANTRY_FLOAT32) | CPU_HALVES,
               CPU_BYTES},
     .make = cpu_make_qlinear_matmul,
     .flags = CPU_ROW_PACKS},
    {.op = "ConvInteger",
     .domain = "",
     .types = {CPU_BYTES},
     .make = cpu_make_conv_integer,
     .flags = CPU_ROW_PACKS},
    {.op = "QLinearConv",
     .domain = "",
     .types = {CPU_BYTES, CPU_BIT(GANTRY_FLOAT32), CPU_BYTES, CPU_BYTES, CPU_BIT(GANTRY_FLOAT32), CPU_BYTES,
               CPU_BIT(GANTRY_FLOAT32), CPU_BYTES | CPU_BIT(GANTRY_INT32)},
     .make = cpu_make_qlinear_conv,
     .flags = CPU_ROW_PACKS | CPU_ROW_PICKS_LAYOUT},
    {.op = "QGemm",
     .domain = "com.microsoft",
     .types = {CPU_BYTES, CPU_BIT(GANTRY_FLOAT32), CPU_BYTES, CPU_BYTES, CPU_BIT(GANTRY_FLOAT32), CPU_BYTES,
               CPU_BIT(GANTRY_INT32), CPU_EVERY},
     .make = cpu_make_qgemm,
     .flags = CPU_ROW_PACKS},
    QLINEAR_BINARY("QLinearAdd"),
    QLINEAR_BINARY("QLinearMul"),
    {.op = "QLinearGlobalAveragePool",
     .domain = "com.microsoft",
     .types = {CPU_BYTES, CPU_BIT(GANTRY_FLOAT32), CPU_BYTES, CPU_BIT(GANTRY_FLOAT32), CPU_BYTES},
     .make = cpu_make_qlinear_global_pool,
     .flags = CPU_ROW_PICKS_LAYOUT},
};

cpu_op_family cpu_quantized_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
