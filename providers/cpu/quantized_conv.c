/* ConvInteger and QLinearConv, exact in int32, for 1 to 3 spatial axes. The patches of a block of output
 * positions are the rows of A and the weights the columns of B (byte_product.h); padding holds the zero
 * point, so the correction for it holds at borders too. Convolutions of one channel a group go position by
 * position instead.
 *
 *     patch: [channels][kernel] of a plain input; [kernel][channels] where channels lie last, and then the
 *            results of a tile lie where they belong
 *     scratch: | terms, multipliers, zero points of each channel | weights packed, unless they were constant
 * | | one block of patches for each chunk | */
#include "byte_product.h"
#include "quantized.h"
#include "quantized_dnnl.h"

#include <math.h>

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
    bool last;   /* channels last, in and out */
    bool direct; /* the pixels are the patches */
    bool sums;   /* weights have zero points */
    const char *packed;
    int64_t wide; /* channels of a group, rounded up to whole tiles */
    /* Bytes of the packed weights of a group, of the patches of a chunk, of the values kept for each channel,
     * of the weights in scratch. */
    size_t group_bytes, block_bytes, lane_bytes, own_bytes;
} qconv_state;

typedef struct qconv_work {
    const qconv_state *state;
    const cpu_call *call;
    const char *weights;
    int32_t *terms, *zeros; /* for each channel, groups `wide` apart */
    float *multipliers;
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

static int64_t taps_of(const qconv_state *s)
{
    return cpu_product(s->kernel, 0, SPATIAL);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* ordered: room for the weights of one group, where the channels of a patch lie last. */
static void pack_weights(const qconv_state *s, const char *weights, char *ordered, char *packed)
{
    int64_t taps = taps_of(s);
    for (int64_t group = 0; group < s->groups; group++) {
        const char *from = weights + group * s->out_channels * s->depth;
        if (s->last && taps > 1) {
            for (int64_t m = 0; m < s->out_channels; m++)
                for (int64_t c = 0; c < s->in_channels; c++)
                    for (int64_t t = 0; t < taps; t++)
                        ordered[m * s->depth + t * s->in_channels + c] = from[m * s->depth + c * taps + t];
            from = ordered;
        }
        cpu_byte_pack_b(s->w_dtype, from, s->depth, s->out_channels, 1, s->depth,
                        packed + (size_t)group * s->group_bytes);
    }
}

static size_t ordered_bytes(const qconv_state *s)
{
    return ((size_t)(s->out_channels * s->depth) + 63) & ~(size_t)63;
}

/* Of one channel a group: as differences to their zero points, [taps][channels]. */
static void order_single(const qconv_work *work, int16_t *ordered)
{
    const qconv_state *s = work->state;
    const void *weights = work->call->inputs[s->w], *zeros = operand(work->call, s->w_zero);
    for (int64_t m = 0; m < s->groups; m++)
        for (int64_t t = 0; t < s->depth; t++)
            ordered[t * s->groups + m] = (int16_t)(load_byte(s->w_dtype, weights, m * s->depth + t) -
                                                   zero_at(s->w_dtype, zeros, s->w_zero_count, m));
}

/* What each channel adds to its sums, and multiplies them with. */
static void prepare_channels(const qconv_work *work)
{
    const qconv_state *s = work->state;
    const cpu_call *call = work->call;
    const void *w_zeros = operand(call, s->w_zero);
    const uint32_t *bias = operand(call, s->bias);
    uint32_t x_zero = (uint32_t)cpu_byte_a_zero(s->x_dtype, work->x_zero);
    for (int64_t group = 0; group < s->groups; group++)
        for (int64_t j = 0; j < s->out_channels; j++) {
            int64_t m = group * s->out_channels + j, at = s->single ? m : group * s->wide + j;
            int32_t zero = cpu_byte_b_zero(s->w_dtype, zero_at(s->w_dtype, w_zeros, s->w_zero_count, m));
            uint32_t term = bias ? bias[m] : 0;
            if (!s->single) {
                const int32_t *sums = cpu_byte_column_sums(work->weights + (size_t)group * s->group_bytes,
                                                           s->depth, s->out_channels);
                term += (uint32_t)s->depth * x_zero * (uint32_t)zero - x_zero * (uint32_t)sums[j];
            }
            work->zeros[at] = zero;
            work->terms[at] = (int32_t)term;
            if (s->y_dtype != GANTRY_INT32)
                work->multipliers[at] =
                    *(const float *)call->inputs[s->x_scale] *
                    ((const float *)call->inputs[s->w_scale])[s->w_scale_count == 1 ? 0 : m] /
                    *(const float *)call->inputs[s->y_scale];
        }
}

/* ---- patches --------------------------------------------------------------------------------- */

/* Where the window of an output position starts in the input. */
static void window_of(const qconv_state *s, int64_t at, int64_t *out_origin)
{
    for (int axis = SPATIAL; axis-- > 0; at /= s->out[axis])
        out_origin[axis] = at % s->out[axis] * s->stride[axis] - s->pad[axis];
}

/* The row of the input that kernel row (k0, k1) meets, or NULL in the padding; pixel: bytes of one. */
static const uint8_t *window_row(const qconv_state *s, const uint8_t *plane, int64_t pixel,
                                 const int64_t *origin, int64_t k0, int64_t k1)
{
    int64_t i0 = origin[0] + k0 * s->dilation[0], i1 = origin[1] + k1 * s->dilation[1];
    bool inside = i0 >= 0 && i0 < s->in[0] && i1 >= 0 && i1 < s->in[1];
    return inside ? plane + (i0 * s->in[1] + i1) * s->in[2] * pixel : NULL;
}

/* The patch of output position `at`, as it is stored; zero points outside of the image. */
static void gather_plain(const qconv_work *work, const uint8_t *image, int64_t at, uint8_t *patch)
{
    const qconv_state *s = work->state;
    int64_t origin[SPATIAL];
    window_of(s, at, origin);
    for (int64_t c = 0; c < s->in_channels; c++, image += s->in_plane)
        for (int64_t k0 = 0; k0 < s->kernel[0]; k0++)
            for (int64_t k1 = 0; k1 < s->kernel[1]; k1++) {
                const uint8_t *row = window_row(s, image, 1, origin, k0, k1);
                for (int64_t k2 = 0; k2 < s->kernel[2]; k2++) {
                    int64_t i2 = origin[2] + k2 * s->dilation[2];
                    *patch++ = row && i2 >= 0 && i2 < s->in[2] ? row[i2] : (uint8_t)work->x_zero;
                }
            }
}

/* image: the group's channels of the first pixel. */
static void gather_last(const qconv_work *work, const uint8_t *image, int64_t at, uint8_t *patch)
{
    const qconv_state *s = work->state;
    int64_t origin[SPATIAL], pixel = s->groups * s->in_channels;
    size_t n = (size_t)s->in_channels;
    window_of(s, at, origin);
    bool whole =
        s->dilation[2] == 1 && s->groups == 1 && origin[2] >= 0 && origin[2] + s->kernel[2] <= s->in[2];
    for (int64_t k0 = 0; k0 < s->kernel[0]; k0++)
        for (int64_t k1 = 0; k1 < s->kernel[1]; k1++) {
            const uint8_t *row = window_row(s, image, pixel, origin, k0, k1);
            if (row && whole) {
                memcpy(patch, row + origin[2] * pixel, n * (size_t)s->kernel[2]);
                patch += s->in_channels * s->kernel[2];
                continue;
            }
            for (int64_t k2 = 0; k2 < s->kernel[2]; k2++, patch += s->in_channels) {
                int64_t i2 = origin[2] + k2 * s->dilation[2];
                if (row && i2 >= 0 && i2 < s->in[2])
                    memcpy(patch, row + i2 * pixel, n);
                else
                    memset(patch, work->x_zero, n);
            }
        }
}

/* Patches are gathered as they are stored, then brought to unsigned numbers in place. */
static void gather_block(const qconv_work *work, const uint8_t *image, int64_t first, int64_t count,
                         uint8_t *patches, int32_t *sums)
{
    const qconv_state *s = work->state;
    int64_t row = cpu_byte_depth(s->depth);
    bool ready = s->x_dtype == GANTRY_UINT8 && row == s->depth && !s->sums;
    for (int64_t p = 0; p < count; p++) {
        (s->last ? gather_last : gather_plain)(work, image, first + p, patches + p * row);
        if (!ready)
            sums[p] = cpu_byte_pack_row(s->x_dtype, patches + p * row, s->depth, patches + p * row);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static void set_range(const qconv_work *work, cpu_byte_tile *tile)
{
    const qconv_state *s = work->state;
    if (tile->kind == CPU_BYTE_BYTES)
        cpu_byte_tile_clamp(tile, s->range.low, s->range.high,
                            zero_at(s->y_dtype, operand(work->call, s->y_zero), 1, 0));
}

#define TURN(type)                                                                                           \
    for (int64_t j = 0; j < columns; j++)                                                                    \
        for (int64_t p = 0; p < rows; p++)                                                                   \
            ((type *)out)[j * plane + p] = ((const type *)block)[p * CPU_BYTE_COLUMNS + j];

/* From positions of channels to channels of positions. */
static void turn(bool bytes, const void *block, int64_t rows, int64_t columns, void *out, int64_t plane)
{
    if (bytes)
        TURN(uint8_t)
    else
        TURN(int32_t)
}

/* All channels of a group for `count` positions whose patches are packed. */
static void multiply_block(const qconv_work *work, const uint8_t *patches, const int32_t *sums, int64_t image,
                           int64_t first, int64_t count)
{
    const qconv_state *s = work->state;
    int64_t group = image % s->groups, batch = image / s->groups, row = cpu_byte_depth(s->depth);
    int64_t channels = s->groups * s->out_channels;
    bool bytes = s->y_dtype != GANTRY_INT32;
    size_t element = bytes ? 1 : sizeof(int32_t);
    char *y = work->call->outputs[0];
    cpu_byte_tile tile = {.a_stride = row,
                          .packed_b = work->weights + (size_t)group * s->group_bytes,
                          .k = s->depth,
                          .n = s->out_channels,
                          .add = work->terms + group * s->wide,
                          .b_zeros = s->sums ? work->zeros + group * s->wide : NULL,
                          .multipliers = work->multipliers + group * s->wide,
                          .kind = bytes ? CPU_BYTE_BYTES : CPU_BYTE_INT32};
    set_range(work, &tile);
    for (int64_t column = 0; column < s->out_channels; column += CPU_BYTE_COLUMNS)
        for (int64_t p = 0; p < count; p += CPU_BYTE_ROWS) {
            int32_t block[CPU_BYTE_ROWS * CPU_BYTE_COLUMNS];
            int64_t m = group * s->out_channels + column;
            tile.a = patches + p * row;
            tile.a_sums = s->sums ? sums + p : NULL;
            tile.rows = cpu_min64(CPU_BYTE_ROWS, count - p);
            tile.column = column;
            tile.out = s->last ? y + (batch * s->out_plane + first + p) * channels + m : (char *)block;
            tile.out_stride = s->last ? channels : CPU_BYTE_COLUMNS;
            cpu_byte_tile_run(&tile);
            if (!s->last)
                turn(bytes, block, tile.rows, cpu_min64(CPU_BYTE_COLUMNS, s->out_channels - column),
                     y + (size_t)((batch * channels + m) * s->out_plane + first + p) * element, s->out_plane);
        }
}

/* ---- one channel in, one out ----------------------------------------------------------------- */

/* n sums with the parameters of one channel (step 0) or of n neighbours (step 1). */
CPU_CLONES static void store_single(const cpu_byte_tile *range, bool bytes, const int32_t *acc,
                                    const float *multipliers, int64_t step, int64_t n, void *out)
{
    if (!bytes) {
        memcpy(out, acc, (size_t)n * sizeof *acc);
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        float rounded = rintf((float)acc[k] * multipliers[k * step]);
        float raised = rounded > range->low ? rounded : range->low;
        ((uint8_t *)out)[k] = (uint8_t)((int32_t)(raised < range->high ? raised : range->high) + range->zero);
    }
}

static void single_plain(const qconv_work *work, const uint8_t *plane, int64_t image, int64_t first,
                         int64_t count)
{
    const qconv_state *s = work->state;
    int64_t m = image % s->groups;
    const int16_t *weights = (const int16_t *)work->weights + m;
    bool bytes = s->y_dtype != GANTRY_INT32;
    int32_t acc[POSITIONS];
    for (int64_t p = 0; p < count; p++) {
        int64_t origin[SPATIAL], tap = 0;
        int32_t sum = work->terms[m];
        window_of(s, first + p, origin);
        for (int64_t k0 = 0; k0 < s->kernel[0]; k0++)
            for (int64_t k1 = 0; k1 < s->kernel[1]; k1++) {
                const uint8_t *row = window_row(s, plane, 1, origin, k0, k1);
                for (int64_t k2 = 0; k2 < s->kernel[2]; k2++, tap++) {
                    int64_t i2 = origin[2] + k2 * s->dilation[2];
                    if (row && i2 >= 0 && i2 < s->in[2])
                        sum += (load_byte(s->x_dtype, row, i2) - work->x_zero) * weights[tap * s->groups];
                }
            }
        acc[p] = sum;
    }
    cpu_byte_tile range = {.kind = bytes ? CPU_BYTE_BYTES : CPU_BYTE_INT32};
    set_range(work, &range);
    store_single(&range, bytes, acc, work->multipliers + m, 0, count,
                 (char *)work->call->outputs[0] +
                     (size_t)(image * s->out_plane + first) * (bytes ? 1 : sizeof(int32_t)));
}

CPU_CLONES static void add_tap(int32_t *acc, const uint8_t *x, uint8_t flip, int32_t zero,
                               const int16_t *weights, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        acc[c] += ((int32_t)(uint8_t)(x[c] ^ flip) - zero) * weights[c];
}

/* Up to LANES channels that lie next to each other at one position. */
#define LANES 64
static void single_last(const qconv_work *work, const uint8_t *image, int64_t at, int64_t first, int64_t n,
                        int32_t *acc)
{
    const qconv_state *s = work->state;
    const int16_t *weights = (const int16_t *)work->weights + first;
    uint8_t flip = s->x_dtype == GANTRY_INT8 ? 0x80 : 0;
    int32_t zero = cpu_byte_a_zero(s->x_dtype, work->x_zero);
    int64_t origin[SPATIAL];
    window_of(s, at, origin);
    memcpy(acc, work->terms + first, (size_t)n * sizeof *acc);
    for (int64_t k0 = 0; k0 < s->kernel[0]; k0++)
        for (int64_t k1 = 0; k1 < s->kernel[1]; k1++) {
            const uint8_t *row = window_row(s, image, s->groups, origin, k0, k1);
            for (int64_t k2 = 0; k2 < s->kernel[2]; k2++, weights += s->groups) {
                int64_t i2 = origin[2] + k2 * s->dilation[2];
                if (row && i2 >= 0 && i2 < s->in[2])
                    add_tap(acc, row + i2 * s->groups + first, flip, zero, weights, n);
            }
        }
}

static void single_block(const qconv_work *work, const uint8_t *image, int64_t batch, int64_t first,
                         int64_t count)
{
    const qconv_state *s = work->state;
    cpu_byte_tile range = {.kind = CPU_BYTE_BYTES};
    set_range(work, &range);
    for (int64_t p = first; p < first + count; p++)
        for (int64_t c = 0; c < s->groups; c += LANES) {
            int32_t acc[LANES];
            int64_t n = cpu_min64(LANES, s->groups - c);
            single_last(work, image, p, c, n, acc);
            store_single(&range, true, acc, work->multipliers + c, 1, n,
                         (char *)work->call->outputs[0] + (batch * s->out_plane + p) * s->groups + c);
        }
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Blocks begin..end-1; a block is POSITIONS positions of one image and group, or of all channels where a
 * group is one of them and they lie last. */
static void qconv_chunk(void *arg, int64_t begin, int64_t end)
{
    const qconv_work *work = arg;
    const qconv_state *s = work->state;
    const uint8_t *x = work->call->inputs[0];
    uint8_t *patches = (uint8_t *)work->blocks + (size_t)(begin / s->chunk) * s->block_bytes;
    int64_t pixel = s->groups * s->in_channels;
    for (int64_t k = begin; k < end; k++) {
        int64_t image = k / s->blocks, first = k % s->blocks * POSITIONS;
        int64_t count = cpu_min64(POSITIONS, s->out_plane - first);
        int32_t sums[POSITIONS];
        if (s->single && s->last) {
            single_block(work, x + image * s->in_plane * pixel, image, first, count);
            continue;
        }
        const uint8_t *in =
            s->last ? x + image / s->groups * s->in_plane * pixel + image % s->groups * s->in_channels
                    : x + image * s->in_channels * s->in_plane;
        if (s->single) {
            single_plain(work, in, image, first, count);
        } else if (s->direct) {
            multiply_block(work, in + first * pixel, NULL, image, first, count);
        } else {
            gather_block(work, in, first, count, patches, sums);
            multiply_block(work, patches, sums, image, first, count);
        }
    }
}

static gantry_status qconv_run(const void *opaque, const cpu_call *call)
{
    const qconv_state *s = opaque;
    char *scratch = call->scratch, *own = scratch + 3 * s->lane_bytes;
    qconv_work work = {.state = s,
                       .call = call,
                       .weights = s->packed ? s->packed : own,
                       .terms = (int32_t *)scratch,
                       .zeros = (int32_t *)(scratch + s->lane_bytes),
                       .multipliers = (float *)(scratch + 2 * s->lane_bytes),
                       .blocks = own + s->own_bytes,
                       .x_zero = zero_at(s->x_dtype, operand(call, s->x_zero), 1, 0)};
    if (s->single)
        order_single(&work, (int16_t *)own);
    else if (!s->packed)
        pack_weights(s, call->inputs[s->w], own + (size_t)s->groups * s->group_bytes, own);
    prepare_channels(&work);
    int64_t images = s->single && s->last ? s->batches : s->batches * s->groups;
    cpu_parallel(call, images * s->blocks, s->chunk, qconv_chunk, &work);
    return GANTRY_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

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
    char *ordered;
} pack_job;

static gantry_status fill_weights(void *arg, void *packed)
{
    const pack_job *job = arg;
    pack_weights(job->state, job->weights, job->ordered, packed);
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

static bool pixels_are_patches(const qconv_state *s)
{
    bool plain = s->last && s->groups == 1 && s->x_dtype == GANTRY_UINT8 && s->depth % 4 == 0 && !s->sums;
    for (int axis = 0; axis < SPATIAL; axis++)
        plain = plain && s->kernel[axis] == 1 && s->stride[axis] == 1 && s->pad[axis] == 0 &&
                s->in[axis] == s->out[axis];
    return plain;
}

static void plan_memory(qconv_state *s)
{
    s->wide = (s->out_channels + CPU_BYTE_COLUMNS - 1) / CPU_BYTE_COLUMNS * CPU_BYTE_COLUMNS;
    s->lane_bytes = (size_t)(s->single ? (s->groups + 63) / 64 * 64 : s->groups * s->wide) * sizeof(int32_t);
    s->group_bytes = (cpu_byte_b_bytes(s->depth, s->out_channels) + 63) & ~(size_t)63;
    s->block_bytes =
        s->single || s->direct ? 0 : ((size_t)(POSITIONS * cpu_byte_depth(s->depth)) + 63) & ~(size_t)63;
    s->own_bytes = s->single ? ((size_t)(s->groups * s->depth) * sizeof(int16_t) + 63) & ~(size_t)63
                             : (size_t)s->groups * s->group_bytes + ordered_bytes(s);
}

static gantry_status make_qconv(cpu_build *build, qconv_state *s, bool last, cpu_kernel *out_kernel)
{
    const cpu_tensor *x = &build->inputs[0], *w = &build->inputs[s->w];
    GT_TRY(plan_channels(build, s, x, w));
    s->last = last;
    s->sums = cpu_byte_needs_sums(w->dtype, cpu_input(build, s->w_zero));
    s->direct = pixels_are_patches(s);
    plan_memory(s);
    bool packs = !s->single && w->constant && w->data;
    if (packs) {
        pack_job job = {s, w->data, gt_arena_alloc(build->scratch, ordered_bytes(s))};
        if (!job.ordered)
            return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
        uint64_t key = CPU_BYTE_LAYOUT_KEY + 2 + last + ((uint64_t)s->groups << 8);
        s->packed = cpu_pack(build, w, key, (size_t)s->groups * s->group_bytes, fill_weights, &job);
        if (!s->packed)
            return build->err->code;
        s->own_bytes = 0;
    }
    s->blocks = (s->out_plane + POSITIONS - 1) / POSITIONS;
    int64_t items = (s->single && last ? s->batches : s->batches * s->groups) * s->blocks;
    s->chunk = cpu_max64(1, (items + CHUNKS - 1) / CHUNKS);
    *out_kernel = cpu_kernel_of(qconv_run, s);
    out_kernel->packed_inputs = packs ? 1u << s->w : 0;
    out_kernel->scratch_bytes =
        3 * s->lane_bytes + s->own_bytes + (size_t)cpu_min64(CHUNKS, items) * s->block_bytes;
    out_kernel->flops = 2.0 * (double)build->outputs[0].count * (double)s->depth;
    out_kernel->threads = cpu_threads_for(build, out_kernel->flops / 64);
    out_kernel->isa = s->single ? cpu_rows_best()->isa : cpu_byte_isa_name();
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
    return make_qconv(build, state, false, out_kernel);
}

gantry_status cpu_make_qlinear_conv(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_qoperands operands = {1, 2, 3, 4, 5, 6, 7, cpu_input(build, 8) ? 8 : GANTRY_NO_ID};
    gantry_status status = cpu_qdepthwise(build, &operands, out_kernel);
    if (status == GANTRY_UNSUPPORTED)
        status = cpu_qconv_dnnl(build, &operands, out_kernel);
    if (status != GANTRY_UNSUPPORTED)
        return status;
    bool last = build->program && !build->inputs[0].constant && build->inputs[0].rank >= 3 &&
                build->inputs[0].rank <= 5;
    build->inputs[0].layout = build->outputs[0].layout = last ? CPU_NHWC : CPU_PLAIN;
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
    GT_TRY(cpu_qrange_read(build, state->y_scale, state->y_zero, &state->range));
    state->w_scale_count = build->inputs[4].count;
    if (build->inputs[1].count != 1 || build->inputs[6].count != 1 ||
        (state->w_scale_count != 1 && state->w_scale_count != build->inputs[3].dims[0]))
        return cpu_unsupported(build,
                               "scales of x and y must be scalars, that of w a scalar or one a channel");
    return make_qconv(build, state, last, out_kernel);
}
