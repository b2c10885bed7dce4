/* Convolutions by Winograd's filtering: which shapes gain, how the work is cut, weights transformed once.
 *
 * The unit of work is a block of tiles, small enough that its transformed inputs stay in the level-2 cache,
 * and a share of the output channels. Within it, panel by panel: P products of tiles x channels x panel, then
 * the panel's results are transformed back while they are in cache. The weights stream past in the order in
 * which they lie. */
#include "conv_winograd.h"
#include "kernels.h"
#include "program.h"

#include <math.h>

#define LANES 16       /* at most, of any table */
#define MAX_WEIGHTS 36 /* of any scheme */

/* G, row by row (conv_winograd.h). */
static const double transform_2[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
#define ROOT 0.70710678118654752440 /* of 1/2 */
static const double transform_4[6][3] = {{1, 0, 0},
                                         {-2.0 / 3, -2.0 / 3 * ROOT, -1.0 / 3},
                                         {-2.0 / 3, 2.0 / 3 * ROOT, -1.0 / 3},
                                         {1.0 / 6, ROOT / 3, 1.0 / 3},
                                         {1.0 / 6, -ROOT / 3, 1.0 / 3},
                                         {0, 0, 1}};
#define NEAR (1 / 1.3125) /* 1 / |2a (a^2 - b^2)| with a = 1/2, b = 5/4 */
#define FAR (1 / 3.28125) /* 1 / (2b (b^2 - a^2)) */
static const double transform_4_stride_2[6][3] = {{-NEAR, 0, -0.5 * NEAR},
                                                  {NEAR, 0, -0.5 * NEAR},
                                                  {FAR, 0, 1.25 * FAR},
                                                  {-FAR, 0, 1.25 * FAR},
                                                  {0, 0, 1},
                                                  {0, 1, 0}};

/* Numbers of one side of a tile, and what a tile's transforms cost in vector operations for each block of
 * input and output channels. */
typedef struct scheme {
    const char *name;
    int tile, stride; /* outputs, and the distance of their windows */
    int inputs;       /* read for them */
    int points,
        weights; /* products, and different weights in them: the last weight serves all further points */
    const double (*transform)[3];
    double input_cost, output_cost;
} scheme;

static const scheme schemes[CPU_CONV_SCHEME_COUNT] = {
    [CPU_CONV_TILE_2] = {"winograd2x2", 2, 1, 4, 4, 4, transform_2, 45, 30},
    [CPU_CONV_TILE_4] = {"winograd4x4", 4, 1, 6, 6, 6, transform_4, 110, 90},
    [CPU_CONV_TILE_4_STRIDE_2] = {"winograd4x4s2", 4, 2, 9, 9, 6, transform_4_stride_2, 300, 250}};

typedef struct winograd {
    cpu_conv_scheme kind;
    const scheme *scheme;
    int64_t batch, in_channels, out_channels;
    int64_t in[2], out[2], pad[2];
    int64_t tile_rows, tile_columns; /* of one image */
    int64_t in_vectors, out_vectors; /* blocks of channels */
    int64_t panel_count;             /* groups of output blocks that are multiplied together */
    int64_t block_tiles, blocks;     /* tiles that are transformed together */
    int64_t panel_groups;            /* shares of the panels that threads take */
    const float *weights;            /* panels [P][C][vectors of the panel], blocks of channels */
    cpu_conv_finish finish;
} winograd;

/* ---- geometry -------------------------------------------------------------------------------- */

static int points_of(const winograd *w)
{
    return w->scheme->points * w->scheme->points;
}

static int weights_of(const winograd *w)
{
    return w->scheme->weights * w->scheme->weights;
}

/* The weights that a point is multiplied with. */
static int weights_at(const winograd *w, int point)
{
    const scheme *h = w->scheme;
    int i = point / h->points, j = point % h->points;
    return (i < h->weights ? i : h->weights - 1) * h->weights + (j < h->weights ? j : h->weights - 1);
}

static int64_t panel_first(const winograd *w, int64_t panel)
{
    return panel * w->out_vectors / w->panel_count;
}

static int panel_size(const winograd *w, int64_t panel)
{
    return (int)(panel_first(w, panel + 1) - panel_first(w, panel));
}

static int64_t tile_count(const winograd *w)
{
    return w->batch * w->tile_rows * w->tile_columns;
}

/* Floats between the planes of two points: an odd number of cache lines, or all of a tile's points would
 * compete for one set of the level-1 cache. */
static int64_t odd_lines(int64_t floats)
{
    return ((floats + 15) / 16 | 1) * 16;
}

typedef struct cuts {
    int64_t v_block, v_point, m_point;
    size_t thread_bytes;
} cuts;

static cuts cuts_of(const winograd *w, int width)
{
    int64_t widest = (w->out_vectors + w->panel_count - 1) / w->panel_count;
    cuts c = {.v_block = w->block_tiles * width};
    c.v_point = odd_lines(w->in_vectors * c.v_block);
    c.m_point = odd_lines(w->block_tiles * widest * width);
    c.thread_bytes = (size_t)(points_of(w) * (c.v_point + c.m_point)) * sizeof(float);
    return c;
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct winograd_state {
    winograd w;
    const cpu_conv_loops *table;
    cuts cuts;
} winograd_state;

typedef struct winograd_job {
    const winograd_state *state;
    const cpu_call *call;
} winograd_job;

typedef struct tile_place {
    int64_t image, row, column; /* of the tile's first result */
} tile_place;

static tile_place place_of(const winograd *w, int64_t tile)
{
    return (tile_place){tile / w->tile_columns / w->tile_rows,
                        tile / w->tile_columns % w->tile_rows * w->scheme->tile,
                        tile % w->tile_columns * w->scheme->tile};
}

static void next_place(const winograd *w, tile_place *at)
{
    at->column += w->scheme->tile;
    if (at->column < w->out[1])
        return;
    at->column = 0;
    at->row += w->scheme->tile;
    if (at->row < w->out[0])
        return;
    at->row = 0;
    at->image++;
}

static cpu_conv_source source_of(const winograd *w, int width, const float *x, tile_place at)
{
    int64_t row = at.row * w->scheme->stride - w->pad[0], side = w->scheme->inputs;
    int64_t column = at.column * w->scheme->stride - w->pad[1];
    int64_t plane = w->in[0] * w->in[1] * width;
    return (cpu_conv_source){.x = x + at.image * w->in_vectors * plane,
                             .first = (row * w->in[1] + column) * width,
                             .row = w->in[1] * width,
                             .plane = plane,
                             .top = cpu_clamp64(-row, 0, side),
                             .bottom = cpu_clamp64(w->in[0] - row, 0, side),
                             .left = cpu_clamp64(-column, 0, side),
                             .right = cpu_clamp64(w->in[1] - column, 0, side)};
}

static cpu_conv_target target_of(const winograd *w, int width, const cpu_call *call, tile_place at,
                                 int64_t vector)
{
    int64_t plane = at.image * w->out_vectors + vector;
    return (cpu_conv_target){.y = call->outputs[0],
                             .inputs = (const float *const *)call->inputs,
                             .offset = ((plane * w->out[0] + at.row) * w->out[1] + at.column) * width,
                             .row = w->out[1] * width,
                             .rows = cpu_clamp64(w->out[0] - at.row, 0, w->scheme->tile),
                             .columns = cpu_clamp64(w->out[1] - at.column, 0, w->scheme->tile),
                             .block = vector};
}

/* Block after block of channels: neighbouring tiles are read as a few streams. */
static void transform_inputs(const winograd_state *s, const cpu_call *call, int64_t first, int64_t count,
                             float *v)
{
    const winograd *w = &s->w;
    for (int64_t b = 0; b < w->in_vectors; b++) {
        tile_place at = place_of(w, first);
        for (int64_t t = 0; t < count; t++, next_place(w, &at)) {
            cpu_conv_source source = source_of(w, s->table->width, call->inputs[0], at);
            s->table->input[w->kind](&source, source.x + b * source.plane,
                                     v + b * s->cuts.v_block + t * s->table->width, s->cuts.v_point);
        }
    }
}

/* One vector of a tile's results. */
static void finish_tile(const winograd_state *s, const cpu_call *call, tile_place at, int64_t panel, int k,
                        const float *m, const float *u)
{
    const winograd *w = &s->w;
    int width = s->table->width;
    cpu_conv_target target = target_of(w, width, call, at, panel_first(w, panel) + k);
    if (s->table->output[w->kind](&w->finish, m, s->cuts.m_point, &target))
        return;
    /* An infinite input made NaN of its whole tile here; by the definition only of its own window. */
    cpu_conv_source source = source_of(w, width, call->inputs[0], at);
    s->table->direct[w->kind](&w->finish, &source, w->in_channels, u + k * width, panel_size(w, panel),
                              &target);
}

static void compute_panel(const winograd_state *s, const cpu_call *call, int64_t first, int64_t count,
                          int64_t panel, const float *v, float *m)
{
    const winograd *w = &s->w;
    int width = s->table->width, size = panel_size(w, panel);
    int64_t m_vector = w->block_tiles * width;
    const float *u = w->weights + panel_first(w, panel) * weights_of(w) * w->in_channels * width;
    for (int p = 0; p < points_of(w); p++)
        s->table->multiply(v + p * s->cuts.v_point, s->cuts.v_block, count,
                           u + weights_at(w, p) * w->in_channels * size * width, w->in_channels, size,
                           m + p * s->cuts.m_point, m_vector);
    for (int k = 0; k < size; k++) {
        tile_place at = place_of(w, first);
        for (int64_t t = 0; t < count; t++, next_place(w, &at))
            finish_tile(s, call, at, panel, k, m + k * m_vector + t * width, u);
    }
}

static void compute_items(void *arg, int64_t begin, int64_t end)
{
    const winograd_job *job = arg;
    const winograd_state *s = job->state;
    const winograd *w = &s->w;
    float *v = cpu_thread_scratch(job->call, s->cuts.thread_bytes);
    float *m = v + points_of(w) * s->cuts.v_point;
    for (int64_t at = begin; at < end; at++) {
        int64_t block = at / w->panel_groups, group = at % w->panel_groups;
        int64_t first = tile_count(w) * block / w->blocks;
        int64_t count = tile_count(w) * (block + 1) / w->blocks - first;
        transform_inputs(s, job->call, first, count, v);
        for (int64_t panel = group * w->panel_count / w->panel_groups;
             panel < (group + 1) * w->panel_count / w->panel_groups; panel++)
            compute_panel(s, job->call, first, count, panel, v, m);
    }
}

static gantry_status winograd_run(const void *self, const cpu_call *call)
{
    const winograd_state *s = self;
    winograd_job job = {s, call};
    cpu_parallel(call, s->w.blocks * s->w.panel_groups, 1, compute_items, &job);
    return GANTRY_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

typedef struct pack_job {
    const winograd *w;
    int width;
    const cpu_unaligned_f32 *source; /* [K][C][3][3] */
} pack_job;

/* Rounded once: a rounding here is one in every product. */
static CPU_CLONES void transform_lanes(const double (*g)[3], int side, const double (*weights)[LANES],
                                       float (*out)[LANES])
{
    double half[6][3][LANES];
    for (int i = 0; i < side; i++)
        for (int b = 0; b < 3; b++)
            for (int l = 0; l < LANES; l++)
                half[i][b][l] =
                    g[i][0] * weights[b][l] + g[i][1] * weights[3 + b][l] + g[i][2] * weights[6 + b][l];
    for (int i = 0; i < side; i++)
        for (int j = 0; j < side; j++)
            for (int l = 0; l < LANES; l++)
                out[i * side + j][l] =
                    (float)(half[i][0][l] * g[j][0] + half[i][1][l] * g[j][1] + half[i][2][l] * g[j][2]);
}

/* The weights of one input channel and one vector of output channels; zeros for those that pad. */
static void pack_vector(const pack_job *job, int64_t vector, int64_t c, float *out, int64_t out_point)
{
    const winograd *w = job->w;
    double weights[9][LANES] = {{0}};
    float points[MAX_WEIGHTS][LANES];
    for (int l = 0; l < job->width && vector * job->width + l < w->out_channels; l++) {
        const cpu_unaligned_f32 *g = job->source + ((vector * job->width + l) * w->in_channels + c) * 9;
        for (int k = 0; k < 9; k++)
            weights[k][l] = g[k];
    }
    transform_lanes(w->scheme->transform, w->scheme->weights, weights, points);
    for (int p = 0; p < weights_of(w); p++)
        memcpy(out + p * out_point, points[p], (size_t)job->width * sizeof *out);
}

static gantry_status pack_weights(void *arg, void *packed)
{
    const pack_job *job = arg;
    const winograd *w = job->w;
    float *out = packed;
    for (int64_t panel = 0; panel < w->panel_count; panel++) {
        int64_t row = panel_size(w, panel) * job->width, out_point = w->in_channels * row;
        for (int64_t c = 0; c < w->in_channels; c++)
            for (int k = 0; k < panel_size(w, panel); k++)
                pack_vector(job, panel_first(w, panel) + k, c, out + c * row + k * job->width, out_point);
        out += weights_of(w) * out_point;
    }
    return GANTRY_OK;
}

static size_t weight_bytes(const winograd *w, int width)
{
    return (size_t)(weights_of(w) * w->in_channels * w->out_vectors * width) * sizeof(float);
}

static gantry_status scan_weights(void *arg, void *packed)
{
    const cpu_tensor *weight = arg;
    const cpu_unaligned_f32 *g = weight->data;
    bool tame = true;
    for (int64_t k = 0; k < weight->count; k++)
        tame = tame && fabsf(g[k]) < 1e30f;
    *(bool *)packed = tame;
    return GANTRY_OK;
}

gantry_status cpu_conv_weights_tame(cpu_build *build, bool *out_tame)
{
    cpu_tensor *weight = &build->inputs[1];
    const bool *tame =
        cpu_pack(build, weight, 0x57494e4f54414d45u /* "WINOTAME" */, sizeof *tame, scan_weights, weight);
    *out_tame = tame && *tame;
    return tame ? GANTRY_OK : GANTRY_RESOURCE;
}

/* ---- choice ---------------------------------------------------------------------------------- */

static bool shape_fits(const cpu_build *build, const cpu_conv *c)
{
    const cpu_window *w = &c->window;
    if (!build->program || build->exact || !build->inputs[1].constant || c->groups != 1 || c->transposed ||
        w->rank != 2 || c->dtype != GANTRY_FLOAT32)
        return false;
    for (uint32_t k = 0; k < 2; k++)
        if (w->kernel[k] != 3 || w->stride[k] != w->stride[0] || w->dilation[k] != 1 || w->pad[k] < 0 ||
            w->pad[k] > 2)
            return false;
    return c->bias_input < 0 || build->inputs[c->bias_input].constant;
}

static void set_scheme(winograd *w, cpu_conv_scheme kind)
{
    int tile = schemes[kind].tile;
    w->kind = kind;
    w->scheme = &schemes[kind];
    w->tile_rows = (w->out[0] + tile - 1) / tile;
    w->tile_columns = (w->out[1] + tile - 1) / tile;
}

/* Estimated time in vector multiply-adds, of which a core does one in a cycle. Measured on AVX-512 with two
 * 256-bit pipes: products reach 0.9 of that. Weights pass once, at 7.5 for a vector from memory; where
 * arithmetic hides that, 3 remain. */
#define STREAMED_VECTOR 7.5
#define HIDDEN_VECTOR 3.0

static double streamed_cost(double computed, double weight_vectors)
{
    double streamed = weight_vectors * STREAMED_VECTOR;
    return (computed > streamed ? computed : streamed) + weight_vectors * HIDDEN_VECTOR;
}

static double cost_of(winograd *w, cpu_conv_scheme kind)
{
    set_scheme(w, kind);
    double product = (double)w->in_channels * (double)w->out_vectors, tiles = (double)tile_count(w);
    double moves =
        w->scheme->input_cost * (double)w->in_vectors + w->scheme->output_cost * (double)w->out_vectors;
    return streamed_cost(tiles * product * points_of(w) / 0.9, product * weights_of(w)) + tiles * moves;
}

/* oneDNN multiplies the channels that pad a block, too. */
static double direct_cost(const winograd *w, int width)
{
    double weights = 9 * (double)(w->in_vectors * width) * (double)w->out_vectors;
    return streamed_cost((double)(w->batch * w->out[0] * w->out[1]) * weights, weights);
}

/* False: the direct kernel is as good. The thread count must not matter: results would depend on it. */
static bool choose_scheme(winograd *w, int width, int64_t stride)
{
    double best = 0.9 * direct_cost(w, width);
    int chosen = -1;
    for (int kind = 0; kind < CPU_CONV_SCHEME_COUNT; kind++) {
        double cost = schemes[kind].stride == stride ? cost_of(w, (cpu_conv_scheme)kind) : best;
        if (cost < best) {
            best = cost;
            chosen = kind;
        }
    }
    if (chosen >= 0)
        set_scheme(w, (cpu_conv_scheme)chosen);
    return chosen >= 0;
}

/* Transformed inputs and products of a block: less than half of a level-2 cache of 1 MiB (192 KiB to 512 KiB
 * are equally fast, more is slower); the weights pass through the rest. */
#define BLOCK_BYTES (384 << 10)
#define LEAST_TILES 16 /* each vector of weights is used that often when it comes */

/* Cuts the tiles into blocks and, when those are fewer than threads, the panels into groups. */
static void cut(winograd *w, int width, int threads)
{
    int64_t vector_bytes = width * (int64_t)sizeof(float), points = points_of(w), tiles = tile_count(w);
    int64_t tile_bytes = points * vector_bytes * (w->in_vectors + 4);
    int64_t most = BLOCK_BYTES / tile_bytes;
    most = most < LEAST_TILES ? LEAST_TILES : most;
    w->blocks = (tiles + most - 1) / most;
    w->panel_groups = 1;
    if (threads > 1) {
        if (w->blocks < threads)
            w->panel_groups = threads < w->panel_count ? threads : w->panel_count;
        else
            w->blocks = (w->blocks + threads - 1) / threads * threads;
    }
    w->block_tiles = (tiles + w->blocks - 1) / w->blocks;
}

static gantry_status make(cpu_build *build, const cpu_conv *conv, winograd_state *s, cpu_kernel *out_kernel)
{
    winograd *w = &s->w;
    int width = s->table->width;
    int threads = cpu_conv_threads(build, conv);
    cut(w, width, threads);
    s->cuts = cuts_of(w, width);
    pack_job weights = {w, width, build->inputs[1].data};
    uint64_t key = 0x57494e4f00000000u + (uint64_t)((int)w->kind << 8 | width); /* "WINO" */
    w->weights = cpu_pack(build, &build->inputs[1], key, weight_bytes(w, width), pack_weights, &weights);
    if (!w->weights)
        return GANTRY_RESOURCE;
    *out_kernel = cpu_kernel_of(winograd_run, s);
    out_kernel->name = w->scheme->name;
    out_kernel->isa = s->table->isa;
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->flops = cpu_conv_flops(conv);
    out_kernel->threads = threads;
    out_kernel->scratch_bytes = (size_t)threads * s->cuts.thread_bytes;
    out_kernel->packed_inputs = 2;
    build->inputs[0].layout = build->outputs[0].layout = CPU_NCHW16C;
    return cpu_conv_finish_bind(build, conv, width, &w->finish, out_kernel);
}

gantry_status cpu_conv_winograd(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    const cpu_conv_loops *table = build->provider ? cpu_conv_loops_for(build->provider) : NULL;
    if (!table || !shape_fits(build, conv))
        return GANTRY_UNSUPPORTED;
    winograd_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    s->table = table;
    s->w = (winograd){.batch = conv->batch,
                      .in_channels = conv->in_channels,
                      .out_channels = conv->out_channels,
                      .in = {conv->window.in[0], conv->window.in[1]},
                      .out = {conv->window.out[0], conv->window.out[1]},
                      .pad = {conv->window.pad[0], conv->window.pad[1]},
                      .in_vectors = (conv->in_channels + table->width - 1) / table->width,
                      .out_vectors = (conv->out_channels + table->width - 1) / table->width};
    s->w.panel_count = (s->w.out_vectors + table->max_panel - 1) / table->max_panel;
    if (conv->in_channels < 8 || conv->out_channels < 8 || !cpu_conv_finish_read(build, conv, &s->w.finish) ||
        !choose_scheme(&s->w, table->width, conv->window.stride[0]))
        return GANTRY_UNSUPPORTED;
    bool tame;
    GT_TRY(cpu_conv_weights_tame(build, &tame));
    return tame ? make(build, conv, s, out_kernel) : GANTRY_UNSUPPORTED;
}
