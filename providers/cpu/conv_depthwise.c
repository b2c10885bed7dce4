/* Depthwise convolutions in blocks of channels: each channel has its own window, a vector is a block.
 *
 * Planes that are small with their padding are copied with it, so that no pixel is at an edge; of others,
 * edges are computed pixel by pixel. */
#include "conv_loops.h"
#include "conv_tile.h"
#include "kernels.h"
#include "program.h"

#define PADDED_BYTES (24 << 10) /* of a padded plane that stays in the level-1 cache with its results */

typedef struct depthwise {
    const cpu_conv_tiles *tiles;
    cpu_depthwise_run run;
    cpu_window window;
    int64_t batch, blocks;    /* of channels */
    int64_t bands, band_rows; /* of an output plane */
    int64_t padded[2];        /* extents of a padded plane; 0: edges are computed apart */
    int64_t first, last;      /* output columns with all taps inside: from, to */
    const float *weights;     /* [block][tap][lanes] */
    size_t scratch_bytes;     /* of a thread */
    cpu_conv_finish finish;
} depthwise;

typedef struct depthwise_job {
    const depthwise *d;
    const cpu_call *call;
} depthwise_job;

/* How many of the taps before `from` + tap * dilation lie before position 0, or before `extent`. */
static int64_t taps_before(int64_t from, int64_t extent, int64_t dilation, int64_t kernel)
{
    return cpu_clamp64((extent - from + dilation - 1) / dilation, 0, kernel);
}

/* ---- one plane ------------------------------------------------------------------------------- */

/* The plane with zeros around it. */
static void copy_padded(const depthwise *d, const float *x, float *target)
{
    const cpu_window *w = &d->window;
    int64_t lanes = d->tiles->lanes, row = d->padded[1] * lanes;
    size_t bytes = sizeof(float);
    memset(target, 0, (size_t)(w->pad[0] * row) * bytes);
    for (int64_t i = 0; i < d->padded[0] - w->pad[0]; i++) {
        float *to = target + (w->pad[0] + i) * row;
        if (i >= w->in[0]) {
            memset(to, 0, (size_t)row * bytes);
            continue;
        }
        memset(to, 0, (size_t)(w->pad[1] * lanes) * bytes);
        memcpy(to + w->pad[1] * lanes, x + i * w->in[1] * lanes, (size_t)(w->in[1] * lanes) * bytes);
        memset(to + (w->pad[1] + w->in[1]) * lanes, 0,
               (size_t)(row - (w->pad[1] + w->in[1]) * lanes) * bytes);
    }
}

/* Columns begin..end-1, each with its own taps. */
static void compute_edge(const depthwise *d, const cpu_depthwise_row *r, int64_t begin, int64_t end, float *y)
{
    const cpu_window *w = &d->window;
    for (int64_t c = begin; c < end; c++) {
        int64_t from = c * w->stride[1] - w->pad[1];
        d->run(r, from * d->tiles->lanes, taps_before(from, 0, w->dilation[1], w->kernel[1]),
               taps_before(from, w->in[1], w->dilation[1], w->kernel[1]), 1, y + c * d->tiles->lanes);
    }
}

static void compute_row(const depthwise *d, const float *x, int64_t block, int64_t row, float *y)
{
    const cpu_window *w = &d->window;
    int64_t lanes = d->tiles->lanes, columns = d->padded[1] ? d->padded[1] : w->in[1];
    int64_t rows = d->padded[1] ? d->padded[0] : w->in[0],
            from = row * w->stride[0] - (d->padded[1] ? 0 : w->pad[0]);
    int64_t first = taps_before(from, 0, w->dilation[0], w->kernel[0]);
    int64_t last = taps_before(from, rows, w->dilation[0], w->kernel[0]);
    cpu_depthwise_row r = {
        .x = x + (from + first * w->dilation[0]) * columns * lanes,
        .w = d->weights + (block * w->kernel[0] + first) * w->kernel[1] * lanes,
        .bias = d->finish.bias + block * lanes,
        .taps = {last > first ? last - first : 0, w->kernel[1]},
        .x_tap = {w->dilation[0] * columns * lanes, w->dilation[1] * lanes},
        .step = w->stride[1] * lanes,
    };
    if (d->padded[1]) {
        d->run(&r, 0, 0, w->kernel[1], w->out[1], y);
        return;
    }
    compute_edge(d, &r, 0, d->first, y);
    d->run(&r, (d->first * w->stride[1] - w->pad[1]) * lanes, 0, w->kernel[1], d->last - d->first,
           y + d->first * lanes);
    compute_edge(d, &r, d->last, w->out[1], y);
}

/* Lanes of channels that do not exist are 0, whatever the activation makes of 0. */
static void clear_padding(const depthwise *d, int64_t block, float *y, int64_t pixels)
{
    int64_t lanes = d->tiles->lanes, used = d->finish.channels - block * lanes;
    for (int64_t k = 0; k < pixels && used < lanes; k++)
        memset(y + k * lanes + used, 0, (size_t)(lanes - used) * sizeof *y);
}

static void compute_bands(void *arg, int64_t begin, int64_t end)
{
    const depthwise_job *job = arg;
    const depthwise *d = job->d;
    const cpu_window *w = &d->window;
    int64_t lanes = d->tiles->lanes;
    float *copy = cpu_thread_scratch(job->call, d->scratch_bytes);
    for (int64_t at = begin; at < end; at++) {
        int64_t plane = at / d->bands, block = plane % d->blocks, row = at % d->bands * d->band_rows;
        int64_t end_row = row + d->band_rows < w->out[0] ? row + d->band_rows : w->out[0];
        const float *x = (const float *)job->call->inputs[0] + plane * w->in[0] * w->in[1] * lanes;
        float *y = (float *)job->call->outputs[0] + plane * w->out[0] * w->out[1] * lanes;
        if (d->padded[1]) {
            copy_padded(d, x, copy);
            x = copy;
        }
        for (; row < end_row; row++) {
            float *to = y + row * w->out[1] * lanes;
            compute_row(d, x, block, row, to);
            if (d->finish.activation != CPU_CONV_SILU)
                cpu_conv_finish_row(&d->finish, to, w->out[1] * lanes);
            clear_padding(d, block, to, w->out[1]);
        }
    }
}

static gantry_status depthwise_run(const void *self, const cpu_call *call)
{
    const depthwise *d = self;
    depthwise_job job = {d, call};
    cpu_parallel(call, d->batch * d->blocks * d->bands, 1, compute_bands, &job);
    return GANTRY_OK;
}

/* ---- making it ------------------------------------------------------------------------------- */

typedef struct pack_job {
    const depthwise *d;
    const cpu_unaligned_f32 *source; /* [channel][tap] */
} pack_job;

static gantry_status pack_weights(void *arg, void *packed)
{
    const pack_job *job = arg;
    const depthwise *d = job->d;
    int64_t taps = cpu_window_product(d->window.kernel, 2), lanes = d->tiles->lanes;
    float *out = packed;
    for (int64_t b = 0; b < d->blocks; b++)
        for (int64_t t = 0; t < taps; t++)
            for (int64_t k = b * lanes; k < (b + 1) * lanes; k++)
                *out++ = k < d->finish.channels ? job->source[k * taps + t] : 0;
    return GANTRY_OK;
}

/* Extents of what the taps of all outputs reach, if that is small enough to be copied. */
static void plan_padding(depthwise *d)
{
    const cpu_window *w = &d->window;
    int64_t extents[2];
    for (int k = 0; k < 2; k++) {
        int64_t reached = (w->out[k] - 1) * w->stride[k] + cpu_window_range(w, (uint32_t)k);
        int64_t inside = w->in[k] + w->pad[k];
        extents[k] = reached > inside ? reached : inside;
        if (extents[k] > PADDED_BYTES)
            return;
    }
    size_t bytes = (size_t)(extents[0] * extents[1] * d->tiles->lanes) * sizeof(float);
    if (bytes > PADDED_BYTES || (extents[0] == w->in[0] && extents[1] == w->in[1]))
        return;
    d->padded[0] = extents[0];
    d->padded[1] = extents[1];
    d->scratch_bytes = bytes;
}

static void plan(depthwise *d, int threads)
{
    const cpu_window *w = &d->window;
    int64_t range = cpu_window_range(w, 1);
    d->first = cpu_clamp64((w->pad[1] + w->stride[1] - 1) / w->stride[1], 0, w->out[1]);
    int64_t room = w->in[1] + w->pad[1] - range;
    d->last = cpu_clamp64(room < 0 ? 0 : room / w->stride[1] + 1, d->first, w->out[1]);
    plan_padding(d);
    int64_t planes = d->batch * d->blocks;
    d->bands =
        threads > 1 && !d->padded[1] ? cpu_clamp64((4 * threads + planes - 1) / planes, 1, w->out[0]) : 1;
    d->band_rows = (w->out[0] + d->bands - 1) / d->bands;
    d->bands = (w->out[0] + d->band_rows - 1) / d->band_rows;
}

static gantry_status make(cpu_build *build, const cpu_conv *conv, depthwise *d, cpu_kernel *out_kernel)
{
    int threads = cpu_conv_threads(build, conv);
    plan(d, threads);
    d->run = d->tiles->depthwise[d->finish.activation == CPU_CONV_SILU];
    pack_job job = {d, build->inputs[1].data};
    size_t bytes =
        (size_t)(d->blocks * cpu_window_product(d->window.kernel, 2) * d->tiles->lanes) * sizeof(float);
    d->weights = cpu_pack(build, &build->inputs[1], 0x4445505448000000u + (uint64_t)d->tiles->lanes, bytes,
                          pack_weights, &job); /* "DEPTH" */
    if (!d->weights)
        return GANTRY_RESOURCE;
    *out_kernel = cpu_kernel_of(depthwise_run, d);
    out_kernel->name = "depthwise:blocked";
    out_kernel->isa = d->tiles->isa;
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->flops = cpu_conv_flops(conv);
    out_kernel->threads = threads;
    out_kernel->scratch_bytes = (size_t)threads * d->scratch_bytes;
    out_kernel->packed_inputs = 2;
    build->inputs[0].layout = build->outputs[0].layout = CPU_NCHW16C;
    return cpu_conv_finish_bind(build, conv, (int)d->tiles->lanes, &d->finish, out_kernel);
}

static bool is_depthwise(const cpu_build *build, const cpu_conv *c)
{
    return build->program && build->inputs[1].constant && c->dtype == GANTRY_FLOAT32 && c->window.rank == 2 &&
           !c->transposed && c->groups == c->in_channels && c->groups == c->out_channels && c->groups >= 8 &&
           (c->bias_input < 0 || build->inputs[c->bias_input].constant);
}

/* oneDNN's depthwise kernels wait for memory, unless they have SiLU to compute. */
static bool is_worth_it(const cpu_conv_finish *f)
{
    return f->activation == CPU_CONV_SILU && f->residual_input < 0;
}

gantry_status cpu_conv_depthwise(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    const cpu_conv_tiles *tiles = cpu_conv_tiles_best();
    if (!is_depthwise(build, conv) || tiles->lanes != build->provider->channel_block)
        return GANTRY_UNSUPPORTED;
    depthwise *d = cpu_state(build, sizeof *d);
    if (!d)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    *d = (depthwise){.tiles = tiles,
                     .window = conv->window,
                     .batch = conv->batch,
                     .blocks = (conv->in_channels + tiles->lanes - 1) / tiles->lanes};
    if (!cpu_conv_finish_read(build, conv, &d->finish) || !is_worth_it(&d->finish))
        return GANTRY_UNSUPPORTED;
    return make(build, conv, d, out_kernel);
}
