/* Convolutions along rows (1x3 and 1x5, or one spatial dim) of stride 1 by Winograd's minimal filtering in
 * one dim, on blocks of channels: 6 or 8 multiplications for 4 outputs instead of 12 or 20.
 *
 *     n = 4 + taps - 1 points;  a tile is 4 outputs of a row and reads n inputs
 *
 *     input tile  -- B d -->  V [n][C/W][tiles][W]      once for all output channels
 *     weights     -- G g -->  U [panel][n][C][K of the panel]   once, when the kernel is made
 *     M [n][K][tiles] = V[n] * U[n]
 *     A M  --> the 4 outputs
 *
 * Points 0, +-1, +-2, +-1/2 and infinity for five taps (0, +-3/4, +-3/2 and infinity for three): the entries
 * of A and B are exact in float32. Error against the direct sum: 2.4 (1.6) times as large, measured. */
#include "conv_winograd.h"
#include "program.h"

#include <math.h>

#define TILE 4
#define MAX_TAPS 5
#define MAX_POINTS (TILE + MAX_TAPS - 1)
#define MAX_WIDTH 16
#define BLOCK_BYTES (512 << 10) /* of V: half a level-2 cache */

typedef struct row_scheme {
    int taps;
    double points[MAX_POINTS - 1]; /* but infinity */
} row_scheme;

static const row_scheme schemes[] = {{3, {0, 0.75, -0.75, 1.5, -1.5}}, {5, {0, 1, -1, 2, -2, 0.5, -0.5}}};

typedef struct row_state {
    const cpu_conv_loops *loops;
    int taps, points;
    float a[TILE][MAX_POINTS], b[MAX_POINTS][MAX_POINTS];
    double g[MAX_POINTS][MAX_TAPS];
    int64_t rows; /* of all images */
    int64_t image_rows;
    int64_t in_channels, in_columns, out_columns, pad;
    int64_t in_vectors, out_vectors, panel_count;
    int64_t tiles, blocks, block_tiles; /* of a row */
    int64_t panel_groups;               /* shares of the panels that threads take */
    const float *weights;
    size_t thread_bytes;
    cpu_conv_finish finish;
} row_state;

typedef struct row_job {
    const row_state *s;
    const cpu_call *call;
} row_job;

/* ---- the scheme ------------------------------------------------------------------------------ */

/* Multiplies the polynomial by (x - root). */
static void multiply_root(double *polynomial, int degree, double root)
{
    for (int k = degree + 1; k > 0; k--)
        polynomial[k] = polynomial[k - 1] - root * polynomial[k];
    polynomial[0] *= -root;
}

/* Row i of B and G may be scaled against each other: by a power of two that leaves B near 1. */
static void balance_row(double *b, double *g, int points, int taps)
{
    double most = 0;
    for (int k = 0; k < points; k++)
        most = fmax(most, fabs(b[k]));
    double scale = exp2(rint(log2(most)));
    for (int k = 0; k < points; k++)
        b[k] /= scale;
    for (int k = 0; k < taps; k++)
        g[k] *= scale;
}

/* The matrices of Toom and Cook, transposed: G evaluates the weights as a polynomial, rows of B are the
 * polynomials that vanish at the other points. */
static void make_scheme(row_state *s, const row_scheme *scheme)
{
    int n = s->points, last = n - 1;
    for (int i = 0; i < n; i++) {
        double b[MAX_POINTS + 1] = {1}, norm = 1, point = i < last ? scheme->points[i] : 0;
        for (int j = 0, degree = 0; j < last; j++)
            if (j != i) {
                multiply_root(b, degree++, scheme->points[j]);
                norm *= point - scheme->points[j];
            }
        for (int k = 0; k < s->taps; k++)
            s->g[i][k] = i < last ? pow(point, k) / norm : k == s->taps - 1;
        balance_row(b, s->g[i], n, s->taps);
        for (int k = 0; k < n; k++)
            s->b[i][k] = (float)b[k];
        for (int k = 0; k < TILE; k++)
            s->a[k][i] = i < last ? (float)pow(point, k) : k == TILE - 1;
    }
}

/* ---- transforms ------------------------------------------------------------------------------ */

/* y[i] = sum over j of m[i][j] x[j], vectors of `width` floats; most entries of the matrices are not 0. */
static inline __attribute__((always_inline)) void transform(const float *matrix, int rows, int columns,
                                                            const float *x, int64_t x_step, float *y,
                                                            int64_t y_step, const int width)
{
    for (int i = 0; i < rows; i++) {
        float sum[MAX_WIDTH] = {0};
        for (int j = 0; j < columns; j++)
            for (int l = 0; l < width; l++)
                sum[l] += matrix[i * MAX_POINTS + j] * x[j * x_step + l];
        memcpy(y + i * y_step, sum, (size_t)width * sizeof *y);
    }
}

static CPU_CLONES void transform_16(const float *matrix, int rows, int columns, const float *x,
                                    int64_t x_step, float *y, int64_t y_step)
{
    transform(matrix, rows, columns, x, x_step, y, y_step, 16);
}

static CPU_CLONES void transform_8(const float *matrix, int rows, int columns, const float *x, int64_t x_step,
                                   float *y, int64_t y_step)
{
    transform(matrix, rows, columns, x, x_step, y, y_step, 8);
}

/* The inputs of a tile, zeros outside of the row. */
static void gather_tile(const row_state *s, const float *x, int64_t column, float *tile)
{
    int64_t width = s->loops->width;
    for (int64_t k = 0; k < s->points; k++)
        if (column + k >= 0 && column + k < s->in_columns)
            memcpy(tile + k * width, x + (column + k) * width, (size_t)width * sizeof *tile);
        else
            memset(tile + k * width, 0, (size_t)width * sizeof *tile);
}

/* x: channel block 0 of the row. */
static void transform_inputs(const row_state *s, const float *x, int64_t plane, int64_t first, int64_t count,
                             float *v)
{
    int64_t width = s->loops->width, v_point = s->in_vectors * s->block_tiles * width;
    float tile[MAX_POINTS * MAX_WIDTH];
    for (int64_t c = 0; c < s->in_vectors; c++)
        for (int64_t t = 0; t < count; t++) {
            int64_t column = (first + t) * TILE - s->pad;
            const float *from = x + c * plane + column * width;
            if (column < 0 || column + s->points > s->in_columns) {
                gather_tile(s, x + c * plane, column, tile);
                from = tile;
            }
            (width == 16 ? transform_16 : transform_8)(s->b[0], s->points, s->points, from, width,
                                                       v + (c * s->block_tiles + t) * width, v_point);
        }
}

/* Not finite inputs spread over a tile: its results come from the definition then. */
static void compute_directly(const row_state *s, const cpu_call *call, const float *x, int64_t plane,
                             int64_t tile, int64_t block, float *y)
{
    const float *weights = call->inputs[1];
    int64_t width = s->loops->width;
    for (int64_t k = 0; k < TILE * width; k++) {
        int64_t channel = block * width + k % width, column = tile * TILE + k / width - s->pad;
        float sum = 0;
        for (int64_t c = 0; c < s->in_channels && channel < s->finish.channels; c++)
            for (int64_t j = 0; j < s->taps; j++)
                if (column + j >= 0 && column + j < s->in_columns)
                    sum += x[c / width * plane + (column + j) * width + c % width] *
                           weights[(channel * s->in_channels + c) * s->taps + j];
        y[k] = sum;
    }
}

static bool all_finite(const float *y, int64_t count)
{
    float zero = 0;
    for (int64_t k = 0; k < count; k++)
        zero += y[k] - y[k];
    return zero == 0;
}

/* ---- running --------------------------------------------------------------------------------- */

static int64_t panel_first(const row_state *s, int64_t panel)
{
    return panel * s->out_vectors / s->panel_count;
}

/* A stretch of tiles of one row. */
typedef struct stretch {
    int64_t row, first, count;
    const float *x;
    int64_t in_plane, out_plane; /* floats between channel blocks */
    float *v, *m, *y;
} stretch;

static void multiply_panel(const row_state *s, const stretch *t, int64_t panel)
{
    int64_t width = s->loops->width, from = panel_first(s, panel), vectors = panel_first(s, panel + 1) - from;
    const float *u = s->weights + from * s->points * s->in_channels * width;
    for (int64_t p = 0; p < s->points; p++)
        s->loops->multiply(t->v + p * s->in_vectors * s->block_tiles * width, s->block_tiles * width,
                           t->count, u + p * s->in_channels * vectors * width, s->in_channels, (int)vectors,
                           t->m + p * s->block_tiles * width, s->points * s->block_tiles * width);
}

/* One channel block: back to outputs, then bias, residual and activation. */
static void finish_block(const row_state *s, const cpu_call *call, const stretch *t, int64_t k, int64_t block)
{
    int64_t width = s->loops->width, columns = s->out_columns - t->first * TILE;
    const float *m = t->m + k * s->points * s->block_tiles * width;
    for (int64_t j = 0; j < t->count; j++) {
        float *y = t->y + j * TILE * width;
        (width == 16 ? transform_16 : transform_8)(s->a[0], TILE, s->points, m + j * width,
                                                   s->block_tiles * width, y, width);
        if (!all_finite(y, TILE * width))
            compute_directly(s, call, t->x, t->in_plane, t->first + j, block, y);
    }
    int64_t image = t->row / s->image_rows, row = t->row % s->image_rows;
    int64_t at =
        (image * s->out_vectors + block) * t->out_plane + (row * s->out_columns + t->first * TILE) * width;
    const float *residual = s->finish.residual_input >= 0 ? call->inputs[s->finish.residual_input] : NULL;
    s->loops->finish(&s->finish, t->y, 0, 1, columns < t->count * TILE ? columns : t->count * TILE, block,
                     (float *)call->outputs[0] + at, residual ? residual + at : NULL);
}

static void compute_stretches(void *arg, int64_t begin, int64_t end)
{
    const row_job *job = arg;
    const row_state *s = job->s;
    int64_t width = s->loops->width;
    stretch t = {.v = cpu_thread_scratch(job->call, s->thread_bytes),
                 .in_plane = s->image_rows * s->in_columns * width,
                 .out_plane = s->image_rows * s->out_columns * width};
    t.m = t.v + s->points * s->in_vectors * s->block_tiles * width;
    t.y = t.m + s->points * s->block_tiles * width * s->loops->max_panel;
    for (int64_t at = begin; at < end; at++) {
        int64_t group = at % s->panel_groups, block = at / s->panel_groups % s->blocks;
        t.row = at / s->panel_groups / s->blocks;
        t.first = block * s->block_tiles;
        t.count = s->tiles - t.first < s->block_tiles ? s->tiles - t.first : s->block_tiles;
        t.x = (const float *)job->call->inputs[0] + t.row / s->image_rows * s->in_vectors * t.in_plane +
              t.row % s->image_rows * s->in_columns * width;
        transform_inputs(s, t.x, t.in_plane, t.first, t.count, t.v);
        for (int64_t panel = s->panel_count * group / s->panel_groups;
             panel < s->panel_count * (group + 1) / s->panel_groups; panel++) {
            multiply_panel(s, &t, panel);
            for (int64_t k = panel_first(s, panel); k < panel_first(s, panel + 1); k++)
                finish_block(s, job->call, &t, k - panel_first(s, panel), k);
        }
    }
}

static gantry_status row_run(const void *self, const cpu_call *call)
{
    const row_state *s = self;
    row_job job = {s, call};
    cpu_parallel(call, s->rows * s->blocks * s->panel_groups, 1, compute_stretches, &job);
    return GANTRY_OK;
}

/* ---- making it ------------------------------------------------------------------------------- */

typedef struct pack_job {
    const row_state *s;
    const cpu_unaligned_f32 *source; /* [K][C][taps] */
} pack_job;

/* Rounded once: a rounding here is one in every product. */
static CPU_CLONES void transform_lanes(const double (*g)[MAX_TAPS], int points, int taps,
                                       const double (*weights)[MAX_WIDTH], float (*out)[MAX_WIDTH])
{
    for (int p = 0; p < points; p++) {
        double sum[MAX_WIDTH] = {0};
        for (int j = 0; j < taps; j++)
            for (int l = 0; l < MAX_WIDTH; l++)
                sum[l] += g[p][j] * weights[j][l];
        for (int l = 0; l < MAX_WIDTH; l++)
            out[p][l] = (float)sum[l];
    }
}

/* The weights of one input channel and one vector of output channels; zeros for those that pad. */
static void pack_vector(const pack_job *job, int64_t vector, int64_t c, float *out, int64_t out_point)
{
    const row_state *s = job->s;
    int64_t width = s->loops->width;
    double weights[MAX_TAPS][MAX_WIDTH] = {{0}};
    float points[MAX_POINTS][MAX_WIDTH];
    for (int64_t l = 0; l < width && vector * width + l < s->finish.channels; l++)
        for (int j = 0; j < s->taps; j++)
            weights[j][l] = (double)job->source[((vector * width + l) * s->in_channels + c) * s->taps + j];
    transform_lanes(s->g, s->points, s->taps, (const double(*)[MAX_WIDTH])weights, points);
    for (int p = 0; p < s->points; p++)
        memcpy(out + p * out_point, points[p], (size_t)width * sizeof *out);
}

static gantry_status pack_weights(void *arg, void *packed)
{
    const pack_job *job = arg;
    const row_state *s = job->s;
    int64_t width = s->loops->width;
    float *out = packed;
    for (int64_t panel = 0; panel < s->panel_count; panel++) {
        int64_t from = panel_first(s, panel), vectors = panel_first(s, panel + 1) - from;
        int64_t point = s->in_channels * vectors * width;
        for (int64_t c = 0; c < s->in_channels; c++)
            for (int64_t k = 0; k < vectors; k++)
                pack_vector(job, from + k, c, out + (c * vectors + k) * width, point);
        out += s->points * point;
    }
    return GANTRY_OK;
}

static void plan(row_state *s, int threads)
{
    int64_t width = s->loops->width;
    int64_t tile_bytes = s->points * s->in_vectors * width * (int64_t)sizeof(float);
    int64_t fitting = BLOCK_BYTES / tile_bytes > 16 ? BLOCK_BYTES / tile_bytes : 16;
    s->tiles = (s->out_columns + TILE - 1) / TILE;
    s->blocks = (s->tiles + fitting - 1) / fitting;
    s->panel_groups = 1;
    if (threads > 1 && s->rows * s->blocks < threads)
        s->panel_groups = threads < s->panel_count ? threads : s->panel_count;
    else if (threads > 1 && s->rows == 1)
        s->blocks = (s->blocks + threads - 1) / threads * threads;
    s->block_tiles = (s->tiles + s->blocks - 1) / s->blocks;
    s->blocks = (s->tiles + s->block_tiles - 1) / s->block_tiles;
    s->thread_bytes = sizeof(float) * (size_t)((s->points * (s->in_vectors + s->loops->max_panel) + TILE) *
                                               s->block_tiles * width);
}

static gantry_status make(cpu_build *build, const cpu_conv *conv, row_state *s, cpu_kernel *out_kernel)
{
    int width = s->loops->width;
    plan(s, build->threads);
    pack_job job = {s, build->inputs[1].data};
    uint64_t key = 0x57494e4f524f5700u + (uint64_t)width; /* "WINOROW" */
    size_t bytes = (size_t)(s->points * s->in_channels * s->out_vectors * width) * sizeof(float);
    s->weights = cpu_pack(build, &build->inputs[1], key, bytes, pack_weights, &job);
    if (!s->weights)
        return GANTRY_RESOURCE;
    *out_kernel = cpu_kernel_of(row_run, s);
    out_kernel->name = "winograd4:row";
    out_kernel->isa = s->loops->isa;
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->flops = cpu_conv_flops(conv);
    out_kernel->threads = build->threads;
    out_kernel->scratch_bytes = (size_t)build->threads * s->thread_bytes;
    build->inputs[0].layout = build->outputs[0].layout = CPU_NCHW16C;
    return cpu_conv_finish_bind(build, conv, width, &s->finish, out_kernel);
}

#define LEAST_CHANNELS 32 /* fewer: the transforms take too much of the time */
#define LEAST_FLOPS 4e6

static const row_scheme *scheme_for(const cpu_build *build, const cpu_conv *c)
{
    const cpu_window *w = &c->window;
    uint32_t last = w->rank - 1;
    bool plain =
        build->program && !build->exact && build->inputs[1].constant && c->groups == 1 && !c->transposed &&
        c->dtype == GANTRY_FLOAT32 && w->rank <= 2 && w->stride[last] == 1 && w->dilation[last] == 1 &&
        (w->rank == 1 || (w->kernel[0] == 1 && w->stride[0] == 1 && !w->pad[0] && w->in[0] == w->out[0])) &&
        (c->bias_input < 0 || build->inputs[c->bias_input].constant);
    if (!plain || c->in_channels < LEAST_CHANNELS || c->out_channels < LEAST_CHANNELS ||
        w->out[last] < 4 * TILE || cpu_conv_flops(c) < LEAST_FLOPS)
        return NULL;
    for (size_t k = 0; k < sizeof schemes / sizeof *schemes; k++)
        if (schemes[k].taps == w->kernel[last])
            return &schemes[k];
    return NULL;
}

gantry_status cpu_conv_winograd_row(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    const cpu_conv_loops *loops = build->provider ? cpu_conv_loops_for(build->provider) : NULL;
    const row_scheme *scheme = loops ? scheme_for(build, conv) : NULL;
    const cpu_window *w = &conv->window;
    if (!scheme)
        return GANTRY_UNSUPPORTED;
    row_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    *s = (row_state){.loops = loops,
                     .taps = scheme->taps,
                     .points = TILE + scheme->taps - 1,
                     .image_rows = w->rank == 2 ? w->in[0] : 1,
                     .in_channels = conv->in_channels,
                     .in_columns = w->in[w->rank - 1],
                     .out_columns = w->out[w->rank - 1],
                     .pad = w->pad[w->rank - 1],
                     .in_vectors = (conv->in_channels + loops->width - 1) / loops->width,
                     .out_vectors = (conv->out_channels + loops->width - 1) / loops->width};
    s->rows = conv->batch * s->image_rows;
    s->panel_count = (s->out_vectors + loops->max_panel - 1) / loops->max_panel;
    if (!cpu_conv_finish_read(build, conv, &s->finish) || s->finish.activation == CPU_CONV_POSTS)
        return GANTRY_UNSUPPORTED;
    bool tame;
    GT_TRY(cpu_conv_weights_tame(build, &tame));
    if (!tame)
        return GANTRY_UNSUPPORTED;
    make_scheme(s, scheme);
    return make(build, conv, s, out_kernel);
}
