/* QLinearGlobalAveragePool, and GlobalAveragePool between DequantizeLinear and QuantizeLinear: exact sums of
 * bytes, one division, one quantization.
 *
 *     inputs: x, x_scale, x_zero, y_scale, y_zero */
#include "quantized.h"

#include <math.h>

typedef struct pool_state {
    int64_t batches, channels, plane;
    bool last, is_signed, out_signed; /* channels last */
    float x_scale, y_scale;
    int32_t x_zero, y_zero;
} pool_state;

typedef struct pool_work {
    const pool_state *state;
    const uint8_t *x;
    uint8_t *y;
} pool_work;

static uint8_t finish(const pool_state *s, int64_t sum)
{
    float mean = (float)((double)(sum - s->plane * s->x_zero) * (double)s->x_scale / (double)s->plane);
    double y = (double)rintf(mean / s->y_scale) + s->y_zero, low = s->out_signed ? -128 : 0;
    double raised = y > low ? y : low, clamped = raised < low + 255 ? raised : low + 255;
    return (uint8_t)(int32_t)clamped;
}

#define LANES 64

/* Up to 64 channels that lie next to each other, over the whole plane. */
CPU_CLONES static void sum_last(const uint8_t *x, int64_t stride, int64_t plane, int64_t lanes, uint8_t flip,
                                int32_t *sums)
{
    memset(sums, 0, LANES * sizeof *sums);
    for (int64_t p = 0; p < plane; p++, x += stride)
        for (int64_t c = 0; c < lanes; c++)
            sums[c] += (uint8_t)(x[c] ^ flip);
}

CPU_CLONES static int64_t sum_plane(const uint8_t *x, int64_t plane, uint8_t flip)
{
    int64_t sum = 0;
    for (int64_t at = 0; at < plane; at += 1 << 16) {
        uint32_t part = 0;
        int64_t end = cpu_min64(plane, at + (1 << 16));
        for (int64_t p = at; p < end; p++)
            part += (uint8_t)(x[p] ^ flip);
        sum += part;
    }
    return sum;
}

/* Blocks of LANES channels. */
static void pool_chunk(void *arg, int64_t begin, int64_t end)
{
    const pool_work *work = arg;
    const pool_state *s = work->state;
    int64_t blocks = (s->channels + LANES - 1) / LANES, shift = s->is_signed ? 128 * s->plane : 0;
    uint8_t flip = s->is_signed ? 0x80 : 0;
    for (int64_t k = begin; k < end; k++) {
        int64_t batch = k / blocks, first = k % blocks * LANES, lanes = cpu_min64(LANES, s->channels - first);
        const uint8_t *image = work->x + batch * s->channels * s->plane;
        uint8_t *y = work->y + batch * s->channels + first;
        int32_t sums[LANES];
        if (s->last)
            sum_last(image + first, s->channels, s->plane, lanes, flip, sums);
        for (int64_t c = 0; c < lanes; c++)
            y[c] = finish(s, (s->last ? sums[c] : sum_plane(image + (first + c) * s->plane, s->plane, flip)) -
                                 shift);
    }
}

static gantry_status pool_run(const void *opaque, const cpu_call *call)
{
    const pool_state *state = opaque;
    pool_work work = {state, call->inputs[0], call->outputs[0]};
    cpu_parallel(call, state->batches * ((state->channels + LANES - 1) / LANES), 1, pool_chunk, &work);
    return GANTRY_OK;
}

static gantry_status read_pair(cpu_build *build, uint32_t first, float *out_scale, int32_t *out_zero)
{
    const cpu_tensor *scale = cpu_input(build, first), *zero = cpu_input(build, first + 1);
    if (!scale || scale->count != 1 || !scale->data || !scale->constant ||
        (zero && (zero->count != 1 || !zero->data || !zero->constant)))
        return cpu_unsupported(build, "a scale or zero point is no constant scalar");
    *out_scale = *(const float *)scale->data;
    *out_zero = zero ? (int32_t)cpu_load_int(zero->dtype, zero->data, 0) : 0;
    return GANTRY_OK;
}

gantry_status cpu_make_qlinear_global_pool(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_tensor *x = &build->inputs[0];
    pool_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    bool listed_last = gantry_node_int(build->node, "channels_last", 0) != 0;
    if (x->rank < 3 || x->count == 0)
        return cpu_unsupported(build, "the input has rank %u, 3 or more are needed, or no elements", x->rank);
    GT_TRY(read_pair(build, 1, &state->x_scale, &state->x_zero));
    GT_TRY(read_pair(build, 3, &state->y_scale, &state->y_zero));
    state->batches = x->dims[0];
    state->channels = x->dims[listed_last ? x->rank - 1 : 1];
    state->plane = x->count / state->batches / state->channels;
    bool sums_fit = state->plane < (1 << 22); /* sum_last has 32 bits */
    if (listed_last && !sums_fit)
        return cpu_unsupported(build, "%lld positions with channels last, less than %d are taken",
                               (long long)state->plane, 1 << 22);
    state->last = listed_last || (x->layout == CPU_NHWC && sums_fit);
    x->layout = state->last && !listed_last ? CPU_NHWC : CPU_PLAIN;
    build->outputs[0].layout = CPU_PLAIN; /* one element a channel: the same in both */
    state->is_signed = x->dtype == GANTRY_INT8;
    state->out_signed = build->outputs[0].dtype == GANTRY_INT8;
    *out_kernel = cpu_kernel_of(pool_run, state);
    out_kernel->accumulate = GANTRY_INT32;
    out_kernel->threads = cpu_threads_for(build, (double)x->count / 4);
    return GANTRY_OK;
}
