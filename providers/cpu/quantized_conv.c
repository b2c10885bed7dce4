/* ConvInteger and QLinearConv, exact in int32, for 1 to 3 spatial axes. The patches of a block of output
 * positions are the rows of A and the weights the columns of B (byte_product.h); padding holds the zero
 * point, so the correction for it holds at borders too. Convolutions of one channel a group go position by
 * position instead.
 *
 *     scratch: | weights packed, unless they were constant | one block of patches for each chunk | */
#include "byte_product.h"
#include "quantized.h"
#include "quantized_dnnl.h"

#define SPATIAL 3
/* Output positions of a block: CPU_BYTE_ROWS of them are multiplied at a time; more patches are gathered
 * together so that the weights are read less often. */
#define POSITIONS (8 * CPU_BYTE_ROWS)
/* Work is cut into at most this many chunks, each with a block of its own. */
#define CHUNKS 64

typedef struct qconv_state {
    int64_t batches, groups, in_channels, out_channels; /* channels of one group */
    int64_t in[SPATIAL], out[SPATIAL], kernel[SPATIAL], stride[SPATIAL], dilation[SPATIAL], pad[SPATIAL];
    int64_t in_plane, out_plane, depth; /* depth: elements of a patch */
    int64_t blocks, chunk;
    gantry_dtype x_dtype, w_dtype, y_dtype;
    uint32_t x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias; /* inputs; GANTRY_NO_ID: none */
    int64_t w_zero_count, w_scale_count;
    cpu_qrange range;
    bool single; /* one input and one output channel a group */
    const char *packed;
    size_t group_bytes, block_bytes; /* packed weights of a group; patches of a chunk */
} qconv_state;

typedef struct qconv_work {
    const qconv_state *state;
    const cpu_call *call;
    const char *weights;
    char *blocks;
    int32_t x_zero; /* as it is stored */
} qconv_work;

static const void *operand(const cpu_call *call, uint32_t input)
{
    return input == GANTRY_NO_ID ? NULL : call->inputs[input];
}

static int32_t load_byte(gantry_dtype dtype, const void *bytes, int64_t k)
{
    return dtype == GANTRY_UINT8 ? ((const uint8_t *)bytes)[k] : ((const int8_t *)bytes)[k];
}

static int32_t zero_at(gantry_dtype dtype, const void *zeros, int64_t count, int64_t index)
{
    return zeros ? load_byte(dtype, zeros, count == 1 ? 0 : index) : 0;
}

static void pack_weights(const qconv_state *s, const void *weights, char *packed)
{
    for (int64_t group = 0; group < s->groups; group++)
        cpu_byte_pack_b(s->w_dtype, (const char *)weights + group * s->out_channels * s->depth, s->depth,
                        s->out_channels, 1, s->depth, packed + (size_t)group * s->group_bytes);
}

/* Where the window of an output position starts in the input. */
static void window_of(const qconv_state *s, int64_t at, int64_t *out_origin)
{
    for (int axis = SPATIAL; axis-- > 0; at /= s->out[axis])
        out_origin[axis] = at % s->out[axis] * s->stride[axis] - s->pad[axis];
}

/* The row of the input that kernel row (k0, k1) meets, or NULL in the padding. */
static const uint8_t *window_row(const qconv_state *s, const uint8_t *plane, const int64_t *origin,
                                 int64_t k0, int64_t k1)
{
    int64_t i0 = origin[0] + k0 * s->dilation[0], i1 = origin[1] + k1 * s->dilation[1];
    bool inside = i0 >= 0 && i0 < s->in[0] && i1 >= 0 && i1 < s->in[1];
    return inside ? plane + (i0 * s->in[1] + i1) * s->in[2] : NULL;
}

/* The patch of output position `at`, as it is stored; zero points outside of the image. */
static void gather_patch(const qconv_work *work, const uint8_t *image, int64_t at, uint8_t *patch)
{
    const qconv_state *s = work->state;
    int64_t origin[SPATIAL];
    window_of(s, at, origin);
    for (int64_t c = 0; c < s->in_channels; c++, image += s->in_plane)
        for (int64_t k0 = 0; k0 < s->kernel[0]; k0++)
            for (int64_t k1 = 0; k1 < s->kernel[1]; k1++) {
                const uint8_t *row = window_row(s, image, origin, k0, k1);
                for (int64_t k2 = 0; k2 < s->kernel[2]; k2++) {
                    int64_t i2 = origin[2] + k2 * s->dilation[2];
                    *patch++ = row && i2 >= 0 && i2 < s->in[2] ? row[i2] : (uint8_t)work->x_zero;
                }
            }
}

/* Patches are gathered as they are stored, then brought to unsigned numbers in place. */
static void gather_block(const qconv_work *work, const uint8_t *image, int64_t first, int64_t count,
                         uint8_t *patches, int32_t *sums)
{
    const qconv_state *s = work->state;
    int64_t row = cpu_byte_depth(s->depth);
    for (int64_t p = 0; p < count; p++) {
        gather_patch(work, image, first + p, patches + p * row);
        sums[p] = cpu_byte_pack_row(s->x_dtype, patches + p * row, s->depth, patches + p * row);
    }
}

/* n outputs of channel m, one after the other. */
static void store_outputs(const qconv_work *work, int32_t *acc, int64_t m, int64_t index, int64_t n)
{
    const qconv_state *s = work->state;
    const cpu_call *call = work->call;
    if (s->y_dtype == GANTRY_INT32) {
        memcpy((int32_t *)call->outputs[0] + index, acc, (size_t)n * sizeof *acc);
        return;
    }
    if (s->bias != GANTRY_NO_ID)
        for (int64_t k = 0; k < n; k++)
            acc[k] = (int32_t)((uint32_t)acc[k] + (uint32_t)((const int32_t *)call->inputs[s->bias])[m]);
    float multiplier = *(const float *)call->inputs[s->x_scale] *
                       ((const float *)call->inputs[s->w_scale])[s->w_scale_count == 1 ? 0 : m] /
                       *(const float *)call->inputs[s->y_scale];
    cpu_rows_best()->requantize(acc, &multiplier, 0, n, zero_at(s->y_dtype, operand(call, s->y_zero), 1, 0),
                                s->y_dtype == GANTRY_INT8, (char *)call->outputs[0] + index);
    if (s->range.clamped)
        cpu_qclamp(s->y_dtype, &s->range, (char *)call->outputs[0] + index, n);
}

/* All channels of a group for `count` positions whose patches are packed. */
static void multiply_block(const qconv_work *work, const uint8_t *patches, const int32_t *sums, int64_t image,
                           int64_t first, int64_t count)
{
    const qconv_state *s = work->state;
    int64_t group = image % s->groups, row = cpu_byte_depth(s->depth);
    const char *weights = work->weights + (size_t)group * s->group_bytes;
    const void *w_zeros = operand(work->call, s->w_zero);
    int32_t x_zero = cpu_byte_a_zero(s->x_dtype, work->x_zero);
    for (int64_t column = 0; column < s->out_channels; column += CPU_BYTE_COLUMNS) {
        int64_t columns = cpu_min64(CPU_BYTE_COLUMNS, s->out_channels - column);
        int32_t zeros[CPU_BYTE_COLUMNS], lanes[CPU_BYTE_COLUMNS][POSITIONS];
        for (int64_t j = 0; j < columns; j++)
            zeros[j] = cpu_byte_b_zero(s->w_dtype, zero_at(s->w_dtype, w_zeros, s->w_zero_count,
                                                           group * s->out_channels + column + j));
        for (int64_t p = 0; p < count; p += CPU_BYTE_ROWS) {
            int32_t c[CPU_BYTE_ROWS][CPU_BYTE_COLUMNS];
            int64_t rows = cpu_min64(CPU_BYTE_ROWS, count - p);
            cpu_byte_block(patches + p * row, rows, weights, s->depth, s->out_channels, column, c);
            for (int64_t i = 0; i < rows; i++) {
                cpu_byte_correct(c[i], columns, weights, s->depth, s->out_channels, column, sums[p + i],
                                 x_zero, zeros);
                for (int64_t j = 0; j < columns; j++)
                    lanes[j][p + i] = c[i][j];
            }
        }
        for (int64_t j = 0; j < columns; j++)
            store_outputs(work, lanes[j], group * s->out_channels + column + j,
                          (image * s->out_channels + column + j) * s->out_plane + first, count);
    }
}

/* One channel in, one out: the taps are added row by row of positions. */
static void single_block(const qconv_work *work, const uint8_t *plane, int64_t image, int64_t first,
                         int64_t count)
{
    const qconv_state *s = work->state;
    int64_t m = image % s->groups;
    const void *weights = (const char *)work->call->inputs[s->w] + m * s->depth;
    int32_t w_zero = zero_at(s->w_dtype, operand(work->call, s->w_zero), s->w_zero_count, m), acc[POSITIONS];
    for (int64_t p = 0; p < count; p++) {
        int64_t origin[SPATIAL], tap = 0;
        int32_t sum = 0;
        window_of(s, first + p, origin);
        for (int64_t k0 = 0; k0 < s->kernel[0]; k0++)
            for (int64_t k1 = 0; k1 < s->kernel[1]; k1++) {
                const uint8_t *row = window_row(s, plane, origin, k0, k1);
                for (int64_t k2 = 0; k2 < s->kernel[2]; k2++, tap++) {
                    int64_t i2 = origin[2] + k2 * s->dilation[2];
                    if (row && i2 >= 0 && i2 < s->in[2])
                        sum += (load_byte(s->x_dtype, row, i2) - work->x_zero) *
                               (load_byte(s->w_dtype, weights, tap) - w_zero);
                }
            }
        acc[p] = sum;
    }
    store_outputs(work, acc, m, image * s->out_plane + first, count);
}

/* Blocks begin..end-1; a block is POSITIONS positions of one image and group. */
static void qconv_chunk(void *arg, int64_t begin, int64_t end)
{
    const qconv_work *work = arg;
    const qconv_state *s = work->state;
    uint8_t *patches = (uint8_t *)work->blocks + (size_t)(begin / s->chunk) * s->block_bytes;
    for (int64_t k = begin; k < end; k++) {
        int64_t image = k / s->blocks, first = k % s->blocks * POSITIONS;
        int64_t count = cpu_min64(POSITIONS, s->out_plane - first);
        const uint8_t *in = (const uint8_t *)work->call->inputs[0] + image * s->in_channels * s->in_plane;
        int32_t sums[POSITIONS];
        if (s->single) {
            single_block(work, in, image, first, count);
            continue;
        }
        gather_block(work, in, first, count, patches, sums);
        multiply_block(work, patches, sums, image, first, count);
    }
}

static gantry_status qconv_run(const void *opaque, const cpu_call *call)
{
    const qconv_state *s = opaque;
    char *own = call->scratch;
    size_t own_bytes = s->packed || s->single ? 0 : (size_t)s->groups * s->group_bytes;
    qconv_work work = {s, call, s->packed ? s->packed : own, own + own_bytes,
                       zero_at(s->x_dtype, operand(call, s->x_zero), 1, 0)};
    if (own_bytes)
        pack_weights(s, call->inputs[s->w], own);
    cpu_parallel(call, s->batches * s->groups * s->blocks, s->chunk, qconv_chunk, &work);
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

typedef struct pack_job {
    const qconv_state *state;
    const void *weights;
} pack_job;

static gantry_status fill_weights(void *arg, void *packed)
{
    const pack_job *job = arg;
    pack_weights(job->state, job->weights, packed);
    return GANTRY_OK;
}

static gantry_status plan_channels(cpu_build *build, qconv_state *s, const cpu_tensor *x, const cpu_tensor *w)
{
    const cpu_tensor *y = &build->outputs[0];
    const cpu_tensor *w_zero = s->w_zero == GANTRY_NO_ID ? NULL : &build->inputs[s->w_zero];
    s->groups = gantry_node_int(build->node, "group", 1);
    if (x->rank < 3 || x->rank > 2 + SPATIAL || w->rank != x->rank || y->rank != x->rank || s->groups < 1 ||
        x->dims[1] != w->dims[1] * s->groups || w->dims[0] % s->groups)
        return cpu_unsupported(build, "needs 1 to %d spatial axes, and channels that fit %lld groups",
                               SPATIAL, (long long)s->groups);
    s->w_zero_count = w_zero ? w_zero->count : 1;
    if (s->w_zero_count != 1 && s->w_zero_count != w->dims[0])
        return cpu_unsupported(build, "the weight's zero point has %lld elements for %lld channels",
                               (long long)s->w_zero_count, (long long)w->dims[0]);
    GT_TRY(plan_window(build, s, x->rank - 2, x, w));
    s->batches = x->dims[0];
    s->in_channels = w->dims[1];
    s->out_channels = w->dims[0] / s->groups;
    s->in_plane = cpu_product(s->in, 0, SPATIAL);
    s->out_plane = cpu_product(s->out, 0, SPATIAL);
    s->depth = s->in_channels * cpu_product(s->kernel, 0, SPATIAL);
    s->single = s->in_channels == 1 && s->out_channels == 1;
    s->x_dtype = x->dtype;
    s->w_dtype = w->dtype;
    s->y_dtype = y->dtype;
    return GANTRY_OK;
}

static gantry_status make_qconv(cpu_build *build, qconv_state *s, cpu_kernel *out_kernel)
{
    const cpu_tensor *x = &build->inputs[0], *w = &build->inputs[s->w];
    GT_TRY(plan_channels(build, s, x, w));
    s->group_bytes = (cpu_byte_b_bytes(s->depth, s->out_channels) + 63) & ~(size_t)63;
    s->block_bytes = s->single ? 0 : ((size_t)(POSITIONS * cpu_byte_depth(s->depth)) + 63) & ~(size_t)63;
    size_t weight_bytes = s->single ? 0 : (size_t)s->groups * s->group_bytes;
    bool packs = !s->single && w->constant && w->data;
    if (packs) {
        pack_job job = {s, w->data};
        s->packed = cpu_pack(build, w, CPU_BYTE_LAYOUT_KEY, weight_bytes, fill_weights, &job);
        if (!s->packed)
            return build->err->code;
    }
    s->blocks = (s->out_plane + POSITIONS - 1) / POSITIONS;
    int64_t items = s->batches * s->groups * s->blocks;
    s->chunk = cpu_max64(1, (items + CHUNKS - 1) / CHUNKS);
    *out_kernel = cpu_kernel_of(qconv_run, s);
    out_kernel->packed_inputs = packs ? 1u << s->w : 0;
    out_kernel->scratch_bytes =
        (packs ? 0 : weight_bytes) + (size_t)cpu_min64(CHUNKS, items) * s->block_bytes;
    out_kernel->flops = 2.0 * (double)build->outputs[0].count * (double)s->depth;
    out_kernel->threads = cpu_threads_for(build, out_kernel->flops / 16);
    out_kernel->isa = s->single ? "c" : cpu_byte_isa();
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

/* The activations fused behind it, as a range. */
static gantry_status plan_range(cpu_build *build, qconv_state *s)
{
    const cpu_tensor *scale = &build->inputs[s->y_scale];
    const cpu_tensor *zero = s->y_zero == GANTRY_NO_ID ? NULL : &build->inputs[s->y_zero];
    if (build->post_count == 0)
        return GANTRY_OK;
    if (!scale->data || (zero && !zero->data))
        return cpu_unsupported(build, "an activation is fused, but the output's scale is no constant");
    s->range = cpu_qrange_of(build, build->outputs[0].dtype, *(const float *)scale->data,
                             zero ? load_byte(zero->dtype, zero->data, 0) : 0);
    return GANTRY_OK;
}

gantry_status cpu_make_qlinear_conv(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_qoperands operands = {1, 2, 3, 4, 5, 6, 7, cpu_input(build, 8) ? 8 : GANTRY_NO_ID};
    gantry_status status = cpu_qconv_dnnl(build, &operands, out_kernel);
    if (status != GANTRY_UNSUPPORTED)
        return status;
    build->inputs[0].layout = build->outputs[0].layout = CPU_PLAIN;
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
    GT_TRY(plan_range(build, state));
    state->w_scale_count = build->inputs[4].count;
    if (build->inputs[1].count != 1 || build->inputs[6].count != 1 ||
        (state->w_scale_count != 1 && state->w_scale_count != build->inputs[3].dims[0]))
        return cpu_unsupported(build,
                               "scales of x and y must be scalars, that of w a scalar or one a channel");
    return make_qconv(build, state, out_kernel);
}
