/* Transposed convolutions by own panels: 64 input pixels times the weights of a few output channels, spread
 * over the output.
 *
 *     tile [out channels * window][64] = W^T [out channels * window][channels] * x [channels][64]
 *
 * oneDNN computes these as the backward pass of a convolution and applies bias and activation number by
 * number (550 ms where this takes 1). A thread owns whole output planes, so that windows may overlap. */
#include "conv.h"
#include "product.h"

#define TILE_ROWS 128 /* rows of a tile: 32 KB, so that it stays in L1 or next to it */

typedef struct spread_state {
    cpu_conv conv;
    int64_t taps, channels, per; /* window, input channels and output channels of a group */
    int64_t block;               /* output channels of a tile */
    int64_t tile_rows;
    const float *weights; /* [group][out channel][tap][channel] */
    uint32_t post_count;
    const cpu_post *posts;
} spread_state;

typedef struct spread_job {
    const spread_state *state;
    const cpu_call *call;
} spread_job;

/* Adds count numbers of a tile row to an output row from column on, step apart. */
static void add_row(float *row, int64_t width, int64_t column, int64_t step, const float *tile, int64_t count)
{
    int64_t begin = column < 0 ? (-column + step - 1) / step : 0;
    int64_t end = column >= width ? 0 : (width - column + step - 1) / step;
    end = end > count ? count : end;
    for (int64_t k = begin; k < end; k++)
        row[column + k * step] += tile[k];
}

/* Spreads the part of a tile whose pixels lie in one input row. */
static void spread_run(const spread_state *s, const int64_t *at, int64_t first, int64_t count,
                       const float *tile, int64_t channels, float *y)
{
    const cpu_window *w = &s->conv.window;
    int64_t plane = cpu_window_product(w->out, w->rank), width = w->out[w->rank - 1];
    for (int64_t t = 0; t < s->taps; t++) {
        int64_t tap = t, row = 0, scale = 1, column = 0;
        bool inside = true;
        for (uint32_t k = w->rank; k-- > 0;) {
            int64_t to = at[k] * w->stride[k] - w->pad[k] + tap % w->kernel[k] * w->dilation[k];
            tap /= w->kernel[k];
            if (k == w->rank - 1) {
                column = to;
                scale = width;
                continue;
            }
            inside = inside && to >= 0 && to < w->out[k];
            row += to * scale;
            scale *= w->out[k];
        }
        for (int64_t m = 0; m < channels && inside; m++)
            add_row(y + m * plane + row, width, column, w->stride[w->rank - 1],
                    tile + (m * s->taps + t) * CPU_PANEL + first, count);
    }
}

static void spread(const spread_state *s, int64_t pixel, int64_t count, const float *tile, int64_t channels,
                   float *y)
{
    const cpu_window *w = &s->conv.window;
    const uint32_t last = w->rank - 1;
    for (int64_t done = 0; done < count;) {
        int64_t at[CPU_MAX_SPATIAL], rest = (pixel + done) / w->in[last];
        at[last] = (pixel + done) % w->in[last];
        for (uint32_t k = last; k-- > 0;) {
            at[k] = rest % w->in[k];
            rest /= w->in[k];
        }
        int64_t left = w->in[last] - at[last];
        int64_t run = count - done < left ? count - done : left;
        spread_run(s, at, done, run, tile, channels, y);
        done += run;
    }
}

/* The last pixels of a plane, padded to a whole panel. */
static const float *padded_panel(const spread_state *s, const float *x, int64_t plane, int64_t count,
                                 float *panel)
{
    for (int64_t c = 0; c < s->channels; c++) {
        memcpy(panel + c * CPU_PANEL, x + c * plane, (size_t)count * sizeof *panel);
        memset(panel + c * CPU_PANEL + count, 0, (size_t)(CPU_PANEL - count) * sizeof *panel);
    }
    return panel;
}

/* All pixels into `channels` output planes from channel on. */
static void compute_block(const spread_state *s, const cpu_call *call, int64_t n, int64_t channel,
                          int64_t channels, float *scratch)
{
    const cpu_conv *c = &s->conv;
    int64_t in = cpu_window_product(c->window.in, c->window.rank);
    int64_t out = cpu_window_product(c->window.out, c->window.rank), group = channel / s->per;
    const float *x = (const float *)call->inputs[0] + (n * c->in_channels + group * s->channels) * in;
    float *y = (float *)call->outputs[0] + (n * c->out_channels + channel) * out;
    float *tile = scratch, *panel = scratch + s->tile_rows * CPU_PANEL;
    memset(y, 0, (size_t)(channels * out) * sizeof *y);
    for (int64_t p = 0; p < in; p += CPU_PANEL) {
        int64_t count = in - p < CPU_PANEL ? in - p : CPU_PANEL;
        bool whole = count == CPU_PANEL;
        const float *b = whole ? x + p : padded_panel(s, x + p, in, count, panel);
        cpu_panel_rows(s->weights + channel * s->taps * s->channels, s->channels, channels * s->taps, b,
                       whole ? in : CPU_PANEL, s->channels, tile, CPU_PANEL);
        spread(s, p, count, tile, channels, y);
    }
    for (int64_t m = 0; m < channels; m++)
        cpu_posts_apply(s->posts, s->post_count, call, y + m * out, out,
                        (n * c->out_channels + channel + m) * out, channel + m, 0);
}

/* A tile and a padded panel. */
static size_t thread_bytes(const spread_state *s)
{
    return (size_t)(s->tile_rows + s->channels) * CPU_PANEL * sizeof(float);
}

/* Blocks of output channels never cross a group. */
static void compute_blocks(void *arg, int64_t begin, int64_t end)
{
    const spread_job *job = arg;
    const spread_state *s = job->state;
    int64_t blocks = (s->per + s->block - 1) / s->block;
    float *scratch = cpu_thread_scratch(job->call, thread_bytes(s));
    for (int64_t at = begin; at < end; at++) {
        int64_t inside = at % blocks * s->block, group = at / blocks % s->conv.groups;
        int64_t channels = s->per - inside < s->block ? s->per - inside : s->block;
        compute_block(s, job->call, at / blocks / s->conv.groups, group * s->per + inside, channels, scratch);
    }
}

static gantry_status spread_run_all(const void *self, const cpu_call *call)
{
    const spread_state *s = self;
    spread_job job = {s, call};
    int64_t blocks = (s->per + s->block - 1) / s->block;
    cpu_parallel(call, s->conv.batch * s->conv.groups * blocks, 1, compute_blocks, &job);
    return GANTRY_OK;
}

typedef struct pack_job {
    const spread_state *state;
    const cpu_unaligned_f32 *source;
} pack_job;

/* [group * channel][out channel][tap] becomes [group][out channel][tap][channel]. */
static gantry_status pack_weights(void *arg, void *packed)
{
    const pack_job *job = arg;
    const spread_state *s = job->state;
    float *target = packed;
    for (int64_t g = 0; g < s->conv.groups; g++)
        for (int64_t mt = 0; mt < s->per * s->taps; mt++)
            for (int64_t c = 0; c < s->channels; c++)
                *target++ = job->source[(g * s->channels + c) * s->per * s->taps + mt];
    return GANTRY_OK;
}

gantry_status cpu_conv_panel_transposed(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    if (!build->inputs[1].constant)
        return GANTRY_UNSUPPORTED;
    spread_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    s->conv = *conv;
    s->taps = cpu_window_product(conv->window.kernel, conv->window.rank);
    s->channels = conv->in_channels / conv->groups;
    s->per = conv->out_channels / conv->groups;
    s->block = s->taps < TILE_ROWS ? TILE_ROWS / s->taps : 1;
    s->block = s->block < s->per ? s->block : s->per;
    s->tile_rows = s->block * s->taps;
    s->posts = cpu_conv_posts(build, conv, &s->post_count);
    pack_job job = {s, build->inputs[1].data};
    s->weights =
        cpu_pack(build, &build->inputs[1], 0x5350524541440000u + (uint64_t)conv->groups, /* "SPREAD" */
                 (size_t)build->inputs[1].count * sizeof(float), pack_weights, &job);
    if (!s->posts || !s->weights)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    for (uint32_t k = 0; k < build->input_count; k++)
        build->inputs[k].layout = CPU_PLAIN;
    build->outputs[0].layout = CPU_PLAIN;
    *out_kernel = cpu_kernel_of(spread_run_all, s);
    out_kernel->name = "panel64:spread";
    out_kernel->isa = "vector";
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->packed_inputs = 2;
    out_kernel->flops = cpu_conv_flops(conv);
    out_kernel->threads = cpu_conv_threads(build, conv);
    out_kernel->scratch_bytes = (size_t)out_kernel->threads * thread_bytes(s);
    return GANTRY_OK;
}
