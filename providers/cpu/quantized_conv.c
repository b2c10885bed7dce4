/* ConvInteger and QLinearConv, exact in int32, for 1 to 3 spatial axes. The patches of a tile of output
 * positions are gathered as 16-bit rows with the zero point taken away (so padding is 0), and each output is
 * one dot product.
 *
 *     scratch: | weights centered [M, K], unless they were constant | one tile of patches for each chunk | */
#include "quantized.h"

#define SPATIAL 3
/* Output positions of a tile: the patches of a tile (TILE * K * 2 bytes) stay in L2 for K up to a few
 * thousand. */
#define TILE 32
/* Work is cut into at most this many chunks, each with a tile of its own. */
#define CHUNKS 64

typedef struct qconv_state {
    int64_t batches, groups, in_channels, out_channels; /* channels of one group */
    int64_t in[SPATIAL], out[SPATIAL], kernel[SPATIAL], stride[SPATIAL], dilation[SPATIAL], pad[SPATIAL];
    int64_t in_plane, out_plane, depth; /* depth: elements of a patch */
    int64_t tiles, chunk;
    gantry_dtype x_dtype, w_dtype, y_dtype;
    uint32_t x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias; /* inputs; GANTRY_NO_ID: none */
    int64_t w_zero_count, w_scale_count;
    const int16_t *packed;
    size_t weight_elements;
} qconv_state;

typedef struct qconv_work {
    const qconv_state *state;
    const cpu_call *call;
    const int16_t *weights;
    int16_t *tiles;
    int32_t x_zero;
} qconv_work;

static const void *operand(const cpu_call *call, uint32_t input)
{
    return input == GANTRY_NO_ID ? NULL : call->inputs[input];
}

static void center_weights(const qconv_state *state, const void *weights, const void *zeros, int16_t *out)
{
    for (int64_t m = 0; m < state->groups * state->out_channels; m++) {
        int32_t zero =
            zeros ? (int32_t)cpu_load_int(state->w_dtype, zeros, state->w_zero_count == 1 ? 0 : m) : 0;
        cpu_center_bytes(state->w_dtype, (const char *)weights + m * state->depth, out + m * state->depth,
                         state->depth, zero);
    }
}

/* The patch of output position `at` of one image and group. */
static void gather_patch(const qconv_work *work, const uint8_t *image, int64_t at, int16_t *patch)
{
    const qconv_state *s = work->state;
    int64_t o2 = at % s->out[2], o1 = at / s->out[2] % s->out[1], o0 = at / s->out[2] / s->out[1];
    for (int64_t c = 0; c < s->in_channels; c++, image += s->in_plane)
        for (int64_t k0 = 0; k0 < s->kernel[0]; k0++) {
            int64_t i0 = o0 * s->stride[0] + k0 * s->dilation[0] - s->pad[0];
            for (int64_t k1 = 0; k1 < s->kernel[1]; k1++) {
                int64_t i1 = o1 * s->stride[1] + k1 * s->dilation[1] - s->pad[1];
                bool inside = i0 >= 0 && i0 < s->in[0] && i1 >= 0 && i1 < s->in[1];
                const uint8_t *row = image + (inside ? (i0 * s->in[1] + i1) * s->in[2] : 0);
                for (int64_t k2 = 0; k2 < s->kernel[2]; k2++) {
                    int64_t i2 = o2 * s->stride[2] + k2 * s->dilation[2] - s->pad[2];
                    int32_t x = 0;
                    if (inside && i2 >= 0 && i2 < s->in[2])
                        x = (s->x_dtype == GANTRY_UINT8 ? row[i2] : (int8_t)row[i2]) - work->x_zero;
                    *patch++ = (int16_t)x;
                }
            }
        }
}

static void store_output(const qconv_work *work, int32_t acc, int64_t m, int64_t index)
{
    const qconv_state *s = work->state;
    const cpu_call *call = work->call;
    if (s->y_dtype == GANTRY_INT32) {
        ((int32_t *)call->outputs[0])[index] = acc;
        return;
    }
    if (s->bias != GANTRY_NO_ID)
        acc = (int32_t)((uint32_t)acc + (uint32_t)((const int32_t *)call->inputs[s->bias])[m]);
    float multiplier = *(const float *)call->inputs[s->x_scale] *
                       ((const float *)call->inputs[s->w_scale])[s->w_scale_count == 1 ? 0 : m] /
                       *(const float *)call->inputs[s->y_scale];
    const void *zero = operand(call, s->y_zero);
    cpu_requantize(s->y_dtype, acc, multiplier, zero ? (int32_t)cpu_load_int(s->y_dtype, zero, 0) : 0,
                   call->outputs[0], index);
}

/* Tiles begin..end-1; a tile is TILE positions of one image and group. */
static void qconv_chunk(void *arg, int64_t begin, int64_t end)
{
    const qconv_work *work = arg;
    const qconv_state *s = work->state;
    int16_t *tile = work->tiles + begin / s->chunk * TILE * s->depth;
    for (int64_t k = begin; k < end; k++) {
        int64_t image = k / s->tiles, first = k % s->tiles * TILE, group = image % s->groups;
        int64_t count = cpu_min64(TILE, s->out_plane - first);
        const uint8_t *in = (const uint8_t *)work->call->inputs[0] + image * s->in_channels * s->in_plane;
        for (int64_t p = 0; p < count; p++)
            gather_patch(work, in, first + p, tile + p * s->depth);
        for (int64_t m = 0; m < s->out_channels; m++) {
            int64_t channel = group * s->out_channels + m;
            const int16_t *weights = work->weights + channel * s->depth;
            int64_t out = (image * s->out_channels + m) * s->out_plane + first;
            for (int64_t p = 0; p < count; p++)
                store_output(work, cpu_rows_best()->dot_i16(weights, tile + p * s->depth, s->depth), channel,
                             out + p);
        }
    }
}

static gantry_status qconv_run(const void *opaque, const cpu_call *call)
{
    const qconv_state *s = opaque;
    int16_t *weights = call->scratch;
    const void *zero = operand(call, s->x_zero);
    if (!s->packed)
        center_weights(s, call->inputs[s->w], operand(call, s->w_zero), weights);
    qconv_work work = {s, call, s->packed ? s->packed : weights,
                       weights + (s->packed ? 0 : s->weight_elements),
                       zero ? (int32_t)cpu_load_int(s->x_dtype, zero, 0) : 0};
    cpu_parallel(call, s->batches * s->groups * s->tiles, s->chunk, qconv_chunk, &work);
    return GANTRY_OK;
}

/* Attributes of one spatial axis; the missing leading ones are 1 long. */
static gantry_status plan_window(cpu_build *build, qconv_state *s, uint32_t spatial, const cpu_tensor *x,
                                 const cpu_tensor *w)
{
    const char *auto_pad = gantry_node_string(build->node, "auto_pad", "NOTSET");
    uint32_t pad_count, stride_count, dilation_count;
    const int64_t *pads = cpu_ints(build->node, "pads", &pad_count);
    const int64_t *strides = cpu_ints(build->node, "strides", &stride_count);
    const int64_t *dilations = cpu_ints(build->node, "dilations", &dilation_count);
    if ((pads && pad_count != 2 * spatial) || (strides && stride_count != spatial) ||
        (dilations && dilation_count != spatial))
        return cpu_unsupported(build, "pads, strides or dilations do not fit %u spatial axes", spatial);
    for (uint32_t k = 0; k < SPATIAL; k++) {
        s->in[k] = s->out[k] = s->kernel[k] = s->stride[k] = s->dilation[k] = 1;
        if (k + spatial < SPATIAL)
            continue;
        uint32_t axis = k + spatial - SPATIAL;
        s->in[k] = x->dims[2 + axis];
        s->out[k] = build->outputs[0].dims[2 + axis];
        s->kernel[k] = w->dims[2 + axis];
        s->stride[k] = strides ? strides[axis] : 1;
        s->dilation[k] = dilations ? dilations[axis] : 1;
        s->pad[k] = pads ? pads[axis] : 0;
        if (s->stride[k] < 1 || s->dilation[k] < 1)
            return cpu_unsupported(build, "a stride or dilation is not positive");
        if (strncmp(auto_pad, "SAME", 4) == 0) {
            int64_t whole =
                (s->out[k] - 1) * s->stride[k] + (s->kernel[k] - 1) * s->dilation[k] + 1 - s->in[k];
            whole = cpu_max64(0, whole);
            s->pad[k] = strcmp(auto_pad, "SAME_LOWER") == 0 ? (whole + 1) / 2 : whole / 2;
        }
    }
    return GANTRY_OK;
}

static gantry_status make_qconv(cpu_build *build, qconv_state *s, cpu_kernel *out_kernel)
{
    const cpu_tensor *x = &build->inputs[0], *w = &build->inputs[s->w], *y = &build->outputs[0];
    const cpu_tensor *w_zero = s->w_zero == GANTRY_NO_ID ? NULL : &build->inputs[s->w_zero];
    s->groups = gantry_node_int(build->node, "group", 1);
    if (x->rank < 3 || x->rank > 2 + SPATIAL || w->rank != x->rank || y->rank != x->rank || s->groups < 1 ||
        x->dims[1] != w->dims[1] * s->groups || w->dims[0] % s->groups)
        return cpu_unsupported(build, "needs 1 to %d spatial axes, and channels that fit %lld groups",
                               SPATIAL, (long long)s->groups);
    GT_TRY(plan_window(build, s, x->rank - 2, x, w));
    s->batches = x->dims[0];
    s->in_channels = w->dims[1];
    s->out_channels = w->dims[0] / s->groups;
    s->in_plane = cpu_product(s->in, 0, SPATIAL);
    s->out_plane = cpu_product(s->out, 0, SPATIAL);
    s->depth = s->in_channels * cpu_product(s->kernel, 0, SPATIAL);
    s->x_dtype = x->dtype;
    s->w_dtype = w->dtype;
    s->y_dtype = y->dtype;
    s->w_zero_count = w_zero ? w_zero->count : 1;
    if (s->w_zero_count != 1 && s->w_zero_count != w->dims[0])
        return cpu_unsupported(build, "the weight's zero point has %lld elements for %lld channels",
                               (long long)s->w_zero_count, (long long)w->dims[0]);
    s->weight_elements = ((size_t)w->count + 31) & ~(size_t)31;
    if (w->constant && w->data && (!w_zero || (w_zero->constant && w_zero->data))) {
        int16_t *packed = cpu_state(build, s->weight_elements * sizeof *packed + 1);
        if (!packed)
            return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
        center_weights(s, w->data, w_zero ? w_zero->data : NULL, packed);
        s->packed = packed;
    }
    s->tiles = (s->out_plane + TILE - 1) / TILE;
    int64_t items = s->batches * s->groups * s->tiles;
    s->chunk = cpu_max64(1, (items + CHUNKS - 1) / CHUNKS);
    *out_kernel = cpu_kernel_of(qconv_run, s);
    out_kernel->scratch_bytes =
        ((s->packed ? 0 : s->weight_elements) + (size_t)(cpu_min64(CHUNKS, items) * TILE * s->depth)) *
        sizeof(int16_t);
    out_kernel->flops = 2.0 * (double)y->count * (double)s->depth;
    out_kernel->threads = cpu_threads_for(build, out_kernel->flops / 8);
    out_kernel->isa = cpu_rows_best()->isa;
    out_kernel->accumulate = GANTRY_INT32;
    return GANTRY_OK;
}

static uint32_t input_or_none(const cpu_build *build, uint32_t k)
{
    return cpu_input(build, k) ? k : GANTRY_NO_ID;
}

gantry_status cpu_make_conv_integer(cpu_build *build, cpu_kernel *out_kernel)
{
    qconv_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->w = 1;
    state->x_zero = input_or_none(build, 2);
    state->w_zero = input_or_none(build, 3);
    state->x_scale = state->w_scale = state->y_scale = state->y_zero = state->bias = GANTRY_NO_ID;
    return make_qconv(build, state, out_kernel);
}

gantry_status cpu_make_qlinear_conv(cpu_build *build, cpu_kernel *out_kernel)
{
    qconv_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->x_scale = 1;
    state->x_zero = input_or_none(build, 2);
    state->w = 3;
    state->w_scale = 4;
    state->w_zero = input_or_none(build, 5);
    state->y_scale = 6;
    state->y_zero = input_or_none(build, 7);
    state->bias = input_or_none(build, 8);
    state->w_scale_count = build->inputs[4].count;
    if (build->inputs[1].count != 1 || build->inputs[6].count != 1 ||
        (state->w_scale_count != 1 && state->w_scale_count != build->inputs[3].dims[0]))
        return cpu_unsupported(build,
                               "scales of x and y must be scalars, that of w a scalar or one a channel");
    return make_qconv(build, state, out_kernel);
}
