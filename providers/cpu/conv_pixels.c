/* Convolutions in which each output pixel comes from one input pixel: 1x1 windows, and transposed ones whose
 * windows do not overlap (the stride is the window), as in the decoders of segmentation models.
 *
 *     run of input pixels [C/16][run][16] * W[tap] [C][K] -> [K/16][run][16] -> every stride-th output pixel
 *
 * Few output channels would leave most of a block empty: then the lanes are (channel, tap) and the output is
 * plain. */
#include "conv_loops.h"
#include "program.h"

typedef struct pixels {
    const cpu_conv_loops *loops;
    int64_t batch, in_channels, out_channels;
    int64_t rows, columns; /* of the input; one row when the window is 1x1 */
    int64_t step[2];       /* the window, and the distance of output pixels */
    bool transposed, plain;
    int64_t in_vectors, out_vectors, panel_count;
    int64_t spread;       /* vectors of a block: one for each column of the window, multiplied together */
    int64_t runs, run;    /* of a row, and the pixels of the longest */
    int64_t panel_groups; /* shares of the panels: a small plane has too few runs for all threads */
    const float *weights; /* [window row][panel][C][block of the panel][window column] */
    cpu_conv_finish finish;
} pixels;

static int64_t panel_first(const pixels *p, int64_t panel)
{
    return panel * p->out_vectors / p->panel_count;
}

static int panel_size(const pixels *p, int64_t panel)
{
    return (int)(panel_first(p, panel + 1) - panel_first(p, panel));
}

/* Vectors that are multiplied together. */
static int panel_vectors(const pixels *p, int64_t panel)
{
    return panel_size(p, panel) * (int)p->spread;
}

/* Of the longest run. */
static size_t sums_bytes(const pixels *p)
{
    return (size_t)(p->run * p->loops->width * p->loops->max_panel) * sizeof(float);
}

/* Rows of the window that are computed one after the other. */
static int64_t window_rows(const pixels *p)
{
    return p->plain ? 1 : p->step[0];
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct pixel_job {
    const pixels *p;
    const cpu_call *call;
} pixel_job;

/* A run of pixels of one input row. */
typedef struct pixel_run {
    int64_t image, row, first, count;
    const float *x;
    float *sums;
} pixel_run;

static void multiply(const pixels *p, const pixel_run *r, int64_t window_row, int64_t panel)
{
    int64_t plane = p->rows * p->columns * p->loops->width, row = p->in_channels * p->loops->width;
    const float *u = p->weights + (window_row * p->out_vectors + panel_first(p, panel)) * p->spread * row;
    p->loops->multiply(r->x, plane, r->count, u, p->in_channels, panel_vectors(p, panel), r->sums,
                       p->run * p->loops->width);
}

static void finish_blocked(const pixels *p, const cpu_call *call, const pixel_run *r, int64_t window_row,
                           int64_t panel)
{
    int64_t width = p->loops->width, out_rows = p->rows * p->step[0], out_columns = p->columns * p->step[1];
    int64_t row = r->row * p->step[0] + window_row, column = r->first * p->step[1];
    int64_t vector = p->run * width;
    const float *residual = p->finish.residual_input >= 0 ? call->inputs[p->finish.residual_input] : NULL;
    for (int k = 0; k < panel_size(p, panel); k++) {
        int64_t block = panel_first(p, panel) + k;
        int64_t at = (((r->image * p->out_vectors + block) * out_rows + row) * out_columns + column) * width;
        p->loops->finish(&p->finish, r->sums + k * p->spread * vector, vector, p->spread, r->count, block,
                         (float *)call->outputs[0] + at, residual ? residual + at : NULL);
    }
}

/* Lanes are (channel, tap): those of one output row lie side by side. */
static void finish_plain(const pixels *p, const cpu_call *call, const pixel_run *r)
{
    int64_t width = p->loops->width, columns = p->columns * p->step[1];
    for (int64_t lane = 0; lane < p->out_channels * p->step[0] * p->step[1]; lane += p->step[1]) {
        int64_t channel = lane / p->step[1] / p->step[0],
                row = r->row * p->step[0] + lane / p->step[1] % p->step[0];
        float *y = (float *)call->outputs[0] +
                   ((r->image * p->out_channels + channel) * p->rows * p->step[0] + row) * columns +
                   r->first * p->step[1];
        for (int64_t j = 0; j < r->count; j++)
            for (int64_t b = 0; b < p->step[1]; b++)
                y[j * p->step[1] + b] = r->sums[j * width + lane + b] + p->finish.bias[channel];
        cpu_conv_finish_row(&p->finish, y, r->count * p->step[1]);
    }
}

static void compute_runs(void *arg, int64_t begin, int64_t end)
{
    const pixel_job *job = arg;
    const pixels *p = job->p;
    int64_t width = p->loops->width;
    pixel_run r = {.sums = cpu_thread_scratch(job->call, sums_bytes(p))};
    for (int64_t at = begin; at < end; at++) {
        int64_t group = at % p->panel_groups, run = at / p->panel_groups;
        r.image = run / p->runs / p->rows;
        r.row = run / p->runs % p->rows;
        r.first = p->columns * (run % p->runs) / p->runs;
        r.count = p->columns * (run % p->runs + 1) / p->runs - r.first;
        r.x = (const float *)job->call->inputs[0] +
              ((r.image * p->in_vectors * p->rows + r.row) * p->columns + r.first) * width;
        for (int64_t panel = p->panel_count * group / p->panel_groups;
             panel < p->panel_count * (group + 1) / p->panel_groups; panel++)
            for (int64_t row = 0; row < window_rows(p); row++) {
                multiply(p, &r, row, panel);
                if (p->plain)
                    finish_plain(p, job->call, &r);
                else
                    finish_blocked(p, job->call, &r, row, panel);
            }
    }
}

static gantry_status pixels_run(const void *self, const cpu_call *call)
{
    const pixels *p = self;
    pixel_job job = {p, call};
    cpu_parallel(call, p->batch * p->rows * p->runs * p->panel_groups, 1, compute_runs, &job);
    return GANTRY_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct pack_job {
    const pixels *p;
    const cpu_unaligned_f32 *source; /* [K][C], transposed [C][K][taps] */
} pack_job;

static float weight_at(const pack_job *job, int64_t c, int64_t k, int64_t tap)
{
    const pixels *p = job->p;
    if (k >= p->out_channels)
        return 0;
    return p->transposed ? job->source[(c * p->out_channels + k) * p->step[0] * p->step[1] + tap]
                         : job->source[k * p->in_channels + c];
}

/* The weights of one input channel, for one panel. */
static float *pack_channel(const pack_job *job, int64_t window_row, int64_t panel, int64_t c, float *out)
{
    const pixels *p = job->p;
    int64_t taps = p->step[0] * p->step[1];
    for (int64_t v = 0; v < panel_vectors(p, panel); v++)
        for (int64_t lane = 0; lane < p->loops->width; lane++) {
            int64_t k = (panel_first(p, panel) + v / p->spread) * p->loops->width + lane;
            *out++ = p->plain ? weight_at(job, c, lane / taps, lane % taps)
                              : weight_at(job, c, k, window_row * p->step[1] + v % p->spread);
        }
    return out;
}

static gantry_status pack_weights(void *arg, void *packed)
{
    const pack_job *job = arg;
    const pixels *p = job->p;
    float *out = packed;
    for (int64_t row = 0; row < window_rows(p); row++)
        for (int64_t panel = 0; panel < p->panel_count; panel++)
            for (int64_t c = 0; c < p->in_channels; c++)
                out = pack_channel(job, row, panel, c, out);
    return GANTRY_OK;
}

/* ---- choice ---------------------------------------------------------------------------------- */

/* Whether no padding and no holes stand between an input pixel and its window. */
static bool is_window_apart(const cpu_conv *c)
{
    const cpu_window *w = &c->window;
    for (uint32_t k = 0; k < w->rank; k++) {
        int64_t step = c->transposed ? w->kernel[k] : 1;
        if (w->stride[k] != step || w->kernel[k] != step || w->pad[k] || w->pad_end[k] ||
            (step > 1 && w->dilation[k] != 1))
            return false;
    }
    return true;
}

/* oneDNN's 1x1 kernels are at 95 % of what the processor can do; with SiLU they lose a tenth to a quarter, in
 * planes of few pixels and many channels a twentieth. Its transposed convolutions are slow in any case. */
#define FEW_PIXELS 256
#define MANY_CHANNELS 96

static bool is_worth_it(const cpu_conv *c, const cpu_conv_finish *finish)
{
    bool deep = c->in_channels >= MANY_CHANNELS && cpu_window_product(c->window.in, 2) <= FEW_PIXELS;
    return c->transposed || finish->activation == CPU_CONV_SILU || deep;
}

static bool has_residual(const cpu_build *build)
{
    for (uint32_t k = 0; k < build->post_count; k++)
        if (build->posts[k].kind == CPU_POST_RESIDUAL)
            return true;
    return false;
}

/* Runs of about that many pixels: their sums (64 channels at a time) stay in the level-1 cache. */
#define RUN_PIXELS 96

static void set_shape(pixels *p, const cpu_conv *c)
{
    const cpu_window *w = &c->window;
    bool single = w->kernel[0] == 1 && w->kernel[1] == 1;
    int width = p->loops->width;
    p->batch = c->batch;
    p->in_channels = c->in_channels;
    p->out_channels = c->out_channels;
    p->transposed = c->transposed;
    p->rows = single ? 1 : w->in[0];
    p->columns = single ? w->in[0] * w->in[1] : w->in[1];
    p->step[0] = w->kernel[0];
    p->step[1] = w->kernel[1];
    p->plain = c->out_channels < 8 && c->out_channels * p->step[0] * p->step[1] <= width;
    p->in_vectors = (c->in_channels + width - 1) / width;
    p->out_vectors = p->plain ? 1 : (c->out_channels + width - 1) / width;
    p->spread = p->plain ? 1 : p->step[1];
    int64_t most = p->loops->max_panel / p->spread;
    p->panel_count = most ? (p->out_vectors + most - 1) / most : 0;
    p->runs = (p->columns + RUN_PIXELS - 1) / RUN_PIXELS;
    p->run = (p->columns + p->runs - 1) / p->runs;
}

/* Shares of work for each thread, so that all end together. */
#define JOBS_PER_THREAD 4

static void cut(pixels *p, int threads)
{
    int64_t runs = p->batch * p->rows * p->runs, wanted = JOBS_PER_THREAD * threads;
    p->panel_groups = 1;
    if (threads == 1 || runs >= wanted)
        return;
    int64_t groups = ((wanted + runs - 1) / runs + threads - 1) / threads * threads;
    p->panel_groups = groups < p->panel_count ? groups : p->panel_count;
}

static gantry_status make(cpu_build *build, const cpu_conv *conv, pixels *p, cpu_kernel *out_kernel)
{
    int width = p->loops->width;
    int threads = cpu_conv_threads(build, conv);
    cut(p, threads);
    pack_job job = {p, build->inputs[1].data};
    uint64_t key = 0x504958454c000000u + (uint64_t)(p->transposed << 9 | p->plain << 8 | width); /* "PIXEL" */
    size_t bytes =
        (size_t)(window_rows(p) * p->in_channels * p->out_vectors * p->spread * width) * sizeof(float);
    p->weights = cpu_pack(build, &build->inputs[1], key, bytes, pack_weights, &job);
    if (!p->weights)
        return GANTRY_RESOURCE;
    *out_kernel = cpu_kernel_of(pixels_run, p);
    out_kernel->name = p->plain ? "pixels:plain" : "pixels:blocked";
    out_kernel->isa = p->loops->isa;
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->flops = cpu_conv_flops(conv);
    out_kernel->threads = threads;
    out_kernel->scratch_bytes = (size_t)threads * sums_bytes(p);
    out_kernel->packed_inputs = 2;
    build->inputs[0].layout = CPU_NCHW16C;
    build->outputs[0].layout = p->plain ? CPU_PLAIN : CPU_NCHW16C;
    return cpu_conv_finish_bind(build, conv, width, &p->finish, out_kernel);
}

gantry_status cpu_conv_pixels(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    const cpu_conv_loops *loops = build->provider ? cpu_conv_loops_for(build->provider) : NULL;
    if (!loops || !build->program || !build->inputs[1].constant || conv->window.rank != 2 ||
        conv->groups != 1 || conv->dtype != GANTRY_FLOAT32 || conv->in_channels < 8 ||
        !is_window_apart(conv) || (conv->bias_input >= 0 && !build->inputs[conv->bias_input].constant))
        return GANTRY_UNSUPPORTED;
    pixels *p = cpu_state(build, sizeof *p);
    if (!p)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    p->loops = loops;
    set_shape(p, conv);
    if ((!p->plain && conv->out_channels < 8) || !p->panel_count ||
        !cpu_conv_finish_read(build, conv, &p->finish) || !is_worth_it(conv, &p->finish))
        return GANTRY_UNSUPPORTED;
    if (p->plain ? has_residual(build) : p->finish.activation == CPU_CONV_POSTS)
        return GANTRY_UNSUPPORTED;
    return make(build, conv, p, out_kernel);
}
