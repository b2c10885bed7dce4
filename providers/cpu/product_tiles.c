/* float32 products of many rows with a constant B: tiles of 6 rows by 64 columns over the packed panels of
 * product_small.c.
 *
 *     for each block of up to 256 rows of A     it stays in L2
 *         for each panel of 64 columns          an item of the parallel loop
 *             for each 384 of k                 a part of the panel: 96 KiB, read once from memory
 *                 for each tile of 6 rows       the first ones fetch the part of the panel that comes next
 *
 * A is read where it is: a copy costs more than the lines that its rows share. */
#include "product.h"
#include "tile.h"

#define ROWS_OF_BLOCK 256
#define DEPTH 384 /* partial sums of so many products; long ones lose digits */

typedef struct tiled_state {
    cpu_product product;
    const cpu_tiles *tiles;
    const float *packed;
    int64_t depth; /* rows of a packed panel: k and its padding */
    int64_t blocks, panels;
    uint32_t post_count;
    cpu_post posts[CPU_MAX_POSTS + 1]; /* C of a Gemm first */
} tiled_state;

typedef struct tiled_job {
    const tiled_state *state;
    const cpu_call *call;
} tiled_job;

/* Where the columns of a panel go: straight into y, or through a buffer when the last panel is cut. */
typedef struct panel_target {
    float *y;
    int64_t y_row, columns;
    bool buffered;
} panel_target;

static void store_tile(const tiled_state *s, const cpu_call *call, const panel_target *target,
                       const float *tile, int64_t first_row, int64_t rows, int64_t column)
{
    const cpu_product *p = &s->product;
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = (first_row + r) * p->n + column;
        float *y = (float *)call->outputs[0] + at;
        if (target->buffered)
            memcpy(y, tile + r * target->y_row, (size_t)target->columns * sizeof *y);
        if (s->post_count)
            cpu_posts_apply(s->posts, s->post_count, call, y, target->columns, at, column, 1);
    }
}

/* The rows of one part of k; the first tiles fetch `next`, which is as large as this part. */
static void compute_part(const tiled_state *s, const cpu_call *call, const panel_target *target,
                         int64_t first_row, int64_t rows, int64_t column, int64_t k0, int64_t k,
                         const float *part)
{
    const cpu_product *p = &s->product;
    int64_t tiles = cpu_part_count(rows, CPU_TILE_ROWS), row = 0;
    const char *next = (const char *)(part + k * CPU_PANEL);
    bool last = k0 + k == p->k;
    for (int64_t t = 0; t < tiles; t++) {
        int64_t end = cpu_part_begin(rows, tiles, t + 1), m = first_row + row;
        float *y = target->y + row * target->y_row;
        s->tiles->by_size[end - row - 1][3]((const float *)call->inputs[0] + m * p->a_row + k0, p->a_row,
                                            part, CPU_PANEL, k, y, target->y_row, k0 > 0,
                                            t < 4 ? next + t * k * 64 : NULL);
        if (last)
            store_tile(s, call, target, y, m, end - row, column);
        row = end;
    }
}

static void compute_panel(const tiled_state *s, const cpu_call *call, int64_t first_row, int64_t rows,
                          int64_t column)
{
    const cpu_product *p = &s->product;
    float buffer[ROWS_OF_BLOCK * CPU_PANEL];
    panel_target target = {(float *)call->outputs[0] + first_row * p->n + column, p->n, CPU_PANEL, false};
    if (p->n - column < CPU_PANEL)
        target = (panel_target){buffer, CPU_PANEL, p->n - column, true};
    int64_t parts = cpu_part_count(p->k, DEPTH);
    const float *panel = s->packed + column * s->depth;
    for (int64_t j = 0; j < parts; j++) {
        int64_t k0 = cpu_part_begin(p->k, parts, j), k = cpu_part_begin(p->k, parts, j + 1) - k0;
        compute_part(s, call, &target, first_row, rows, column, k0, k, panel + k0 * CPU_PANEL);
    }
}

static void compute_panels(void *arg, int64_t begin, int64_t end)
{
    const tiled_job *job = arg;
    const tiled_state *s = job->state;
    for (int64_t at = begin; at < end; at++) {
        int64_t block = at / s->panels, row = cpu_part_begin(s->product.m, s->blocks, block);
        compute_panel(s, job->call, row, cpu_part_begin(s->product.m, s->blocks, block + 1) - row,
                      at % s->panels * CPU_PANEL);
    }
}

static gantry_status tiled_run(const void *self, const cpu_call *call)
{
    const tiled_state *s = self;
    tiled_job job = {s, call};
    cpu_parallel(call, s->blocks * s->panels, 1, compute_panels, &job);
    return GANTRY_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

static bool can_tile(const cpu_build *build, const cpu_product *p)
{
    return cpu_tiles_best() && p->dtype == GANTRY_FLOAT32 && p->a_column == 1 && p->alpha == 1.0f &&
           p->k > 0 && p->m > 0 && (!p->c_present || cpu_product_has_bias(p)) && p->batch_count == 1 &&
           build->inputs[1].constant && !cpu_product_reads_kept(build, p) && cpu_product_can_share(build, p);
}

/* Blocks of rows that fit into the cache, and enough items that no thread waits long for another. */
static int64_t count_blocks(const cpu_product *p, int64_t panels, int threads)
{
    int64_t blocks = cpu_part_count(p->m, ROWS_OF_BLOCK);
    while (threads > 1 && blocks * panels % threads && blocks * panels < 8 * threads &&
           p->m / (blocks + 1) >= 4 * CPU_TILE_ROWS)
        blocks++;
    return blocks;
}

gantry_status cpu_product_tiled(cpu_build *build, const cpu_product *product, cpu_kernel *out_kernel)
{
    if (!can_tile(build, product))
        return GANTRY_UNSUPPORTED;
    tiled_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    s->product = *product;
    s->tiles = cpu_tiles_best();
    s->depth = (product->k + 15) / 16 * 16;
    s->panels = cpu_part_count(product->n, CPU_PANEL);
    s->blocks = count_blocks(product, s->panels, build->threads);
    s->post_count = cpu_product_posts(build, product, s->posts);
    s->packed = cpu_product_pack_shared(build, product);
    if (!s->packed)
        return GANTRY_RESOURCE;
    double work = (double)product->m * (double)product->n * (double)product->k;
    *out_kernel = cpu_kernel_of(tiled_run, s);
    out_kernel->name = "tile6x64:packed";
    out_kernel->isa = s->tiles->isa;
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->threads = work < 16.0 * CPU_TINY_ELEMENTS ? 1 : build->threads;
    out_kernel->packed_inputs = 2;
    out_kernel->flops = 2 * work;
    return GANTRY_OK;
}
