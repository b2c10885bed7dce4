/* Direct convolutions for few channels: lanes are output columns, weights are broadcast.
 *
 * A thread copies the input rows of a band of output rows, padding included, and computes all output channels
 * of a group from them. Columns that a stride separates are sorted into phases, so that every tap reads
 * neighbours:
 *
 *     x row, stride 2:  a b c d e f ..  ->  phase 0: a c e ..   phase 1: b d f ..
 *     band  [channels][input rows][phases][columns]
 *     tap (c, i, j) of an output row reads from  band + offsets[tap],  in order
 *
 * A single output channel would load a vector for every product. Two neighbouring output rows take the place
 * of two channels then: their common window has one row more, and zeros where it is not the row's own.
 *
 * Works for one and two spatial dims in plain layouts, with any stride, dilation, padding and group. */
#include "conv.h"
#include "conv_tile.h"
#include "kernels.h"

#define BLOCK_COLUMNS 960        /* output columns of a block: whole tiles of every instruction set */
#define BAND_BYTES (192 << 10)   /* of copied input that stays in L2 beside the weights */
#define MAX_BAND_BYTES (4 << 20) /* a single row that needs more is left to other kernels */
#define BANDS_PER_THREAD 4       /* at least, so that threads end together */
#define DEPTH 256                /* longer sums are cut: partial sums lose fewer digits */

typedef struct axis {
    int64_t in, out, kernel, stride, dilation, pad;
} axis;

typedef struct direct_state {
    cpu_conv conv;
    const cpu_conv_tiles *tiles;
    axis row, column;
    int64_t channels, per; /* of a group: input and output */
    int64_t fold;          /* output rows that are computed as channels: 1, or 2 of a single channel */
    int64_t window_rows;   /* that those have in common */
    int64_t taps;          /* channels times window */
    const int32_t *offsets;
    const float *weights; /* pieces of up to 8 output channels, each [tap][channel] */
    int64_t band_rows, bands, input_rows;
    int64_t block_columns, blocks;
    int64_t phase_floats, row_floats, plane_floats; /* of a band */
    size_t band_bytes;
    uint32_t post_count;
    const cpu_post *posts;
} direct_state;

typedef struct direct_job {
    const direct_state *state;
    const cpu_call *call;
} direct_job;

/* The part of the output that one call of compute_band makes. */
typedef struct band {
    int64_t n, group;
    int64_t row, rows, column, columns;
} band;

/* ---- the band -------------------------------------------------------------------------------- */

#define PHASE_BLOCK 16 /* phases written at a time: their lines of memory stay in L1 */

/* Positions begin..end-1 of `phases` neighbouring phases, all of them inside the row. */
static void copy_inside(const float *row, int64_t step, int64_t phases, int64_t begin, int64_t end,
                        float *target, int64_t target_row)
{
    for (int64_t k = begin; k < end; k++)
        for (int64_t p = 0; p < phases; p++)
            target[p * target_row + k] = row[k * step + p];
}

/* The same where some may lie outside. */
static void copy_edge(const float *row, int64_t column, int64_t step, int64_t phases, int64_t begin,
                      int64_t end, int64_t width, float *target, int64_t target_row)
{
    for (int64_t k = begin; k < end; k++)
        for (int64_t p = 0; p < phases; p++) {
            int64_t at = column + k * step + p;
            target[p * target_row + k] = at < 0 || at >= width ? 0.0f : row[at];
        }
}

/* A row of the input from `column` on, which may lie outside, cut into phases. */
static void copy_phases(const direct_state *s, const float *row, int64_t column, float *target)
{
    int64_t step = s->column.stride, count = s->phase_floats, width = s->column.in;
    for (int64_t p = 0; p < step; p += PHASE_BLOCK, target += PHASE_BLOCK * count) {
        int64_t phases = cpu_min64(PHASE_BLOCK, step - p), from = column + p;
        int64_t begin = from < 0 ? (-from + step - 1) / step : 0;
        int64_t end = width >= from + phases ? (width - from - phases) / step + 1 : 0;
        begin = cpu_min64(begin, count);
        end = cpu_min64(end > begin ? end : begin, count);
        copy_edge(row, from, step, phases, 0, begin, width, target, count);
        copy_inside(row + from, step, phases, begin, end, target, count);
        copy_edge(row, from, step, phases, end, count, width, target, count);
    }
}

static void copy_row(const direct_state *s, const float *row, int64_t column, float *target)
{
    if (s->column.stride == 1)
        cpu_conv_copy_row(target, row, column, 1, s->phase_floats, s->column.in);
    else
        copy_phases(s, row, column, target);
}

/* Input rows that the output rows of a fold read. */
static int64_t window_range(const direct_state *s)
{
    return (s->window_rows - 1) * s->row.dilation + 1;
}

static void copy_band(const direct_state *s, const float *x, const band *b, float *target)
{
    int64_t first = b->row * s->row.stride - s->row.pad,
            column = b->column * s->column.stride - s->column.pad;
    int64_t last = (b->rows - 1) / s->fold * s->fold; /* first row of the last fold */
    int64_t rows = last * s->row.stride + window_range(s);
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t r = 0; r < rows; r++) {
            int64_t at = first + r;
            float *to = target + c * s->plane_floats + r * s->row_floats;
            if (at < 0 || at >= s->row.in)
                memset(to, 0, (size_t)s->row_floats * sizeof *to);
            else
                copy_row(s, x + (c * s->row.in + at) * s->column.in, column, to);
        }
}

/* ---- the sums -------------------------------------------------------------------------------- */

/* As many output channels as a tile takes, as log2. */
static int piece_log2(const cpu_conv_tiles *tiles, int64_t left)
{
    int log2 = CPU_TILE_CHANNELS - 1;
    while (log2 > 0 && (!tiles->tile[log2][0] || left < (int64_t)1 << log2))
        log2--;
    return log2;
}

/* The widest tile that `vectors` fill. */
static int width_for(const cpu_conv_tile *tiles, int64_t vectors)
{
    int width = CPU_TILE_WIDTHS - 1;
    while (width > 0 && (!tiles[width] || vectors < cpu_conv_tile_vectors[width]))
        width--;
    return width;
}

static void run_tile(const direct_state *s, cpu_conv_tile tile, const float *x, const float *weights,
                     int64_t channels, float *y, int64_t y_row)
{
    for (int64_t t = 0; t < s->taps; t += DEPTH)
        tile(x, s->offsets + t, cpu_min64(DEPTH, s->taps - t), weights + t * channels, y, y_row, t > 0);
}

/* `columns` columns of one output row, for a piece of the output channels of which the first `kept` are
 * wanted.
 */
static void compute_row(const direct_state *s, const float *x, const float *weights, int log2, int64_t kept,
                        float *y, int64_t y_row, int64_t columns)
{
    float buffer[8 * CPU_TILE_MAX_COLUMNS];
    const cpu_conv_tile *tiles = s->tiles->tile[log2];
    int64_t channels = (int64_t)1 << log2, lanes = s->tiles->lanes;
    for (int64_t at = 0; at < columns;) {
        int width = width_for(tiles, (columns - at + lanes - 1) / lanes);
        int64_t count = cpu_conv_tile_vectors[width] * lanes, left = cpu_min64(count, columns - at);
        if (left == count && kept == channels) {
            run_tile(s, tiles[width], x + at, weights, channels, y + at, y_row);
        } else {
            run_tile(s, tiles[width], x + at, weights, channels, buffer, CPU_TILE_MAX_COLUMNS);
            for (int64_t m = 0; m < kept; m++)
                memcpy(y + m * y_row + at, buffer + m * CPU_TILE_MAX_COLUMNS, (size_t)left * sizeof *y);
        }
        at += count;
    }
}

static void finish_row(const direct_state *s, const cpu_call *call, const band *b, int64_t row,
                       int64_t channel)
{
    int64_t at = ((b->n * s->conv.out_channels + channel) * s->row.out + row) * s->column.out + b->column;
    cpu_posts_apply(s->posts, s->post_count, call, (float *)call->outputs[0] + at, b->columns, at, channel,
                    0);
}

/* Rows of a fold are channels of the tile. */
static void compute_folds(const direct_state *s, const cpu_call *call, const band *b, const float *x)
{
    int64_t channel = b->group;
    float *y = (float *)call->outputs[0] +
               ((b->n * s->conv.out_channels + channel) * s->row.out + b->row) * s->column.out + b->column;
    for (int64_t r = 0; r < b->rows; r += s->fold) {
        int64_t kept = cpu_min64(s->fold, b->rows - r);
        compute_row(s, x + r * s->row_floats, s->weights + channel * s->taps * s->fold, 1, kept,
                    y + r * s->column.out, s->column.out, b->columns);
        for (int64_t k = 0; k < kept; k++)
            finish_row(s, call, b, b->row + r + k, channel);
    }
}

static void compute_band(const direct_state *s, const cpu_call *call, const band *b, const float *x)
{
    int64_t plane = s->row.out * s->column.out;
    for (int64_t m = 0; m < s->per;) {
        int log2 = piece_log2(s->tiles, s->per - m);
        int64_t channel = b->group * s->per + m, channels = (int64_t)1 << log2;
        for (int64_t r = 0; r < b->rows; r++) {
            float *y = (float *)call->outputs[0] + (b->n * s->conv.out_channels + channel) * plane +
                       (b->row + r) * s->column.out + b->column;
            compute_row(s, x + r * s->row.stride * s->row_floats, s->weights + channel * s->taps, log2,
                        channels, y, plane, b->columns);
            for (int64_t k = 0; k < channels; k++)
                finish_row(s, call, b, b->row + r, channel + k);
        }
        m += channels;
    }
}

static void compute_bands(void *arg, int64_t begin, int64_t end)
{
    const direct_job *job = arg;
    const direct_state *s = job->state;
    int64_t plane = s->row.in * s->column.in;
    float *copy = cpu_thread_scratch(job->call, s->band_bytes);
    for (int64_t at = begin; at < end; at++) {
        int64_t image = at / s->blocks / s->bands;
        band b = {.n = image / s->conv.groups,
                  .group = image % s->conv.groups,
                  .row = at / s->blocks % s->bands * s->band_rows,
                  .column = at % s->blocks * s->block_columns};
        b.rows = cpu_min64(s->band_rows, s->row.out - b.row);
        b.columns = cpu_min64(s->block_columns, s->column.out - b.column);
        copy_band(s, (const float *)job->call->inputs[0] + image * s->channels * plane, &b, copy);
        (s->fold > 1 ? compute_folds : compute_band)(s, job->call, &b, copy);
    }
}

static gantry_status direct_run(const void *self, const cpu_call *call)
{
    const direct_state *s = self;
    direct_job job = {s, call};
    cpu_parallel(call, s->conv.batch * s->conv.groups * s->bands * s->blocks, 1, compute_bands, &job);
    return GANTRY_OK;
}

/* ---- making it ------------------------------------------------------------------------------- */

static axis axis_of(const cpu_window *w, uint32_t k)
{
    return (axis){w->in[k], w->out[k], w->kernel[k], w->stride[k], w->dilation[k], w->pad[k]};
}

/* How the output is cut, and how the copy of a band lies. False when a single row needs too much. */
static bool plan_bands(direct_state *s, int threads)
{
    int64_t lanes = s->tiles->lanes, range = window_range(s);
    s->block_columns = cpu_min64(s->column.out, BLOCK_COLUMNS);
    s->blocks = (s->column.out + s->block_columns - 1) / s->block_columns;
    s->phase_floats = (s->block_columns + lanes - 1) / lanes * lanes +
                      (s->column.kernel - 1) * s->column.dilation / s->column.stride;
    s->row_floats = s->phase_floats * s->column.stride;
    if ((double)s->channels * (double)s->row_floats * (double)range * sizeof(float) > MAX_BAND_BYTES)
        return false;
    int64_t row_bytes = s->channels * s->row_floats * (int64_t)sizeof(float);
    int64_t fitting = (BAND_BYTES / row_bytes - range) / s->row.stride + 1;
    int64_t least = (range + s->row.stride - 1) / s->row.stride; /* fewer copy most rows more than twice */
    int64_t images = s->conv.batch * s->conv.groups * s->blocks;
    int64_t wanted = (BANDS_PER_THREAD * threads + images - 1) / images; /* bands of an image */
    int64_t even = threads > 1 ? (s->row.out + wanted - 1) / wanted : s->row.out;
    int64_t band_rows = cpu_min64(s->row.out, cpu_min64(even, fitting > least ? fitting : least));
    s->band_rows = (band_rows + s->fold - 1) / s->fold * s->fold;
    s->bands = (s->row.out + s->band_rows - 1) / s->band_rows;
    s->input_rows = (s->band_rows - s->fold) * s->row.stride + range;
    s->plane_floats = s->input_rows * s->row_floats;
    s->band_bytes = ((size_t)(s->channels * s->plane_floats) * sizeof(float) + 63) & ~(size_t)63;
    return true;
}

static gantry_status plan_taps(cpu_build *build, direct_state *s)
{
    int32_t *offsets = cpu_state(build, (size_t)s->taps * sizeof *offsets);
    if (!offsets)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    s->offsets = offsets;
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t i = 0; i < s->window_rows; i++)
            for (int64_t j = 0; j < s->column.kernel; j++) {
                int64_t column = j * s->column.dilation;
                *offsets++ =
                    (int32_t)(c * s->plane_floats + i * s->row.dilation * s->row_floats +
                              column % s->column.stride * s->phase_floats + column / s->column.stride);
            }
    return GANTRY_OK;
}

typedef struct pack_job {
    const direct_state *state;
    const cpu_unaligned_f32 *source;
} pack_job;

/* A tap of the common window is the one `fold` rows above for the second row. */
static float folded_weight(const pack_job *job, int64_t m, int64_t tap, int64_t fold)
{
    const direct_state *s = job->state;
    int64_t j = tap % s->column.kernel, i = tap / s->column.kernel % s->window_rows - fold;
    int64_t c = tap / s->column.kernel / s->window_rows;
    if (i < 0 || i >= s->row.kernel)
        return 0;
    return job->source[((m * s->channels + c) * s->row.kernel + i) * s->column.kernel + j];
}

/* [out channel][tap] becomes pieces of [tap][out channel], or [out channel][tap][row of the fold]. */
static gantry_status pack_weights(void *arg, void *packed)
{
    const pack_job *job = arg;
    const direct_state *s = job->state;
    float *target = packed;
    for (int64_t m = 0; m < s->conv.out_channels && s->fold > 1; m++)
        for (int64_t t = 0; t < s->taps; t++)
            for (int64_t k = 0; k < s->fold; k++)
                *target++ = folded_weight(job, m, t, k);
    for (int64_t m = 0; m < s->conv.out_channels && s->fold == 1;) {
        int64_t count = (int64_t)1 << piece_log2(s->tiles, s->per - m % s->per);
        for (int64_t t = 0; t < s->taps; t++)
            for (int64_t k = 0; k < count; k++)
                *target++ = job->source[(m + k) * s->taps + t];
        m += count;
    }
    return GANTRY_OK;
}

static gantry_status pack(cpu_build *build, direct_state *s)
{
    pack_job job = {s, build->inputs[1].data};
    uint64_t key = 0x4449524543540000u ^ (uint64_t)(s->conv.groups << 2 | s->fold); /* "DIRECT" */
    s->weights =
        cpu_pack(build, &build->inputs[1], key,
                 (size_t)(s->conv.out_channels * s->taps * s->fold) * sizeof(float), pack_weights, &job);
    return s->weights ? GANTRY_OK : GANTRY_RESOURCE;
}

static gantry_status prepare(cpu_build *build, direct_state *s)
{
    s->posts = cpu_conv_posts(build, &s->conv, &s->post_count);
    if (!s->posts)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    GT_TRY(plan_taps(build, s));
    return pack(build, s);
}

/* Beyond this the sizes of a band could not be computed. */
#define MAX_STEP (1 << 20)

static bool steps_are_small(const cpu_window *w)
{
    for (uint32_t k = 0; k < w->rank; k++)
        if (w->stride[k] > MAX_STEP || w->dilation[k] > MAX_STEP || w->kernel[k] > MAX_STEP)
            return false;
    return true;
}

gantry_status cpu_conv_direct(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    const cpu_window *w = &conv->window;
    const cpu_conv_tiles *tiles = cpu_conv_tiles_best();
    if (!build->inputs[1].constant || w->rank > 2 || w->out[w->rank - 1] < tiles->lanes ||
        !steps_are_small(w))
        return GANTRY_UNSUPPORTED;
    direct_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    *s = (direct_state){.conv = *conv,
                        .tiles = tiles,
                        .row = w->rank == 2 ? axis_of(w, 0) : (axis){1, 1, 1, 1, 1, 0},
                        .column = axis_of(w, w->rank - 1),
                        .channels = conv->in_channels / conv->groups,
                        .per = conv->out_channels / conv->groups};
    bool folds =
        s->per == 1 && s->row.stride == 1 && s->row.dilation == 1 && s->row.kernel > 1 && s->row.out > 1;
    s->fold = folds ? 2 : 1;
    s->window_rows = s->row.kernel + s->fold - 1;
    s->taps = s->channels * s->window_rows * s->column.kernel;
    int threads = cpu_conv_threads(build, conv);
    if (!plan_bands(s, threads))
        return GANTRY_UNSUPPORTED;
    GT_TRY(prepare(build, s));
    for (uint32_t k = 0; k < build->input_count; k++)
        build->inputs[k].layout = CPU_PLAIN;
    build->outputs[0].layout = CPU_PLAIN;
    *out_kernel = cpu_kernel_of(direct_run, s);
    out_kernel->name = "direct";
    out_kernel->isa = tiles->isa;
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->flops = cpu_conv_flops(conv);
    out_kernel->packed_inputs = 2;
    out_kernel->threads = threads;
    out_kernel->scratch_bytes = (size_t)threads * s->band_bytes;
    return GANTRY_OK;
}
