/* float32 products of few rows with weights that lie as [N, K]: dot products of rows. For the head of a
 * language model that shares its weights with the embedding table, which is in memory as it is anyway.
 *
 * One pass takes up to 4 rows of A; the weights are read once, in order. */
#include "product.h"

#define MAX_ROWS 4
#define CHUNK_ROWS 64 /* rows of weights a thread takes at a time: 192 KiB of a 768 wide model */

typedef float vector16 __attribute__((vector_size(64), aligned(4)));

static inline __attribute__((always_inline)) float sum_lanes(vector16 v)
{
    float sum[4];
    for (int k = 0; k < 4; k++)
        sum[k] = (v[k] + v[k + 4]) + (v[k + 8] + v[k + 12]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* y[r] of `rows` rows of A against one row of weights: rows of weights one after the other are one stream of
 * memory; four side by side ran at half its speed. */
static inline __attribute__((always_inline)) void dots(const float *a, const float *w, int64_t k, float *y,
                                                       int64_t y_row, int rows)
{
    vector16 sum[MAX_ROWS][4] = {{{0}}};
    int64_t j = 0;
    for (; j + 64 <= k; j += 64)
        for (int c = 0; c < 4; c++) {
            vector16 weight = *(const vector16 *)(w + j + 16 * c);
            for (int r = 0; r < rows; r++)
                sum[r][c] += *(const vector16 *)(a + r * k + j + 16 * c) * weight;
        }
    for (int r = 0; r < rows; r++) {
        float rest = 0;
        for (int64_t t = j; t < k; t++)
            rest += a[r * k + t] * w[t];
        y[r * y_row] = sum_lanes((sum[r][0] + sum[r][1]) + (sum[r][2] + sum[r][3])) + rest;
    }
}

#define DOTS(rows)                                                                                           \
    static CPU_CLONES void dots_##rows(const float *a, const float *w, int64_t k, int64_t count, float *y,   \
                                       int64_t y_row)                                                        \
    {                                                                                                        \
        for (int64_t n = 0; n < count; n++)                                                                  \
            dots(a, w + n * k, k, y + n, y_row, rows);                                                       \
    }
DOTS(1)
DOTS(2)
DOTS(3)
DOTS(4)

typedef void (*dots_fn)(const float *a, const float *w, int64_t k, int64_t count, float *y, int64_t y_row);
static const dots_fn by_rows[] = {NULL, dots_1, dots_2, dots_3, dots_4};

typedef struct dots_state {
    int64_t m, n, k;
    uint32_t post_count;
    cpu_post posts[CPU_MAX_POSTS + 1]; /* C of a Gemm first */
} dots_state;

typedef struct dots_job {
    const dots_state *state;
    const cpu_call *call;
} dots_job;

static void dots_chunk(void *arg, int64_t begin, int64_t end)
{
    const dots_job *job = arg;
    const dots_state *s = job->state;
    const float *a = job->call->inputs[0], *w = job->call->inputs[1];
    float *y = job->call->outputs[0];
    by_rows[s->m](a, w + begin * s->k, s->k, end - begin, y + begin, s->n);
    for (int64_t m = 0; m < s->m && s->post_count; m++)
        cpu_posts_apply(s->posts, s->post_count, job->call, y + m * s->n + begin, end - begin,
                        m * s->n + begin, begin, 1);
}

static gantry_status dots_run(const void *self, const cpu_call *call)
{
    const dots_state *state = self;
    dots_job job = {state, call};
    cpu_parallel(call, state->n, CHUNK_ROWS, dots_chunk, &job);
    return GANTRY_OK;
}

gantry_status cpu_product_dots(cpu_build *build, const cpu_product *p, cpu_kernel *out_kernel)
{
    if (p->dtype != GANTRY_FLOAT32 || p->m < 1 || p->m > MAX_ROWS || p->alpha != 1.0f || p->a_column != 1 ||
        p->a_row != p->k || !cpu_product_reads_kept(build, p) || (p->c_present && !cpu_product_has_bias(p)))
        return GANTRY_UNSUPPORTED;
    dots_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    *state = (dots_state){.m = p->m, .n = p->n, .k = p->k};
    state->post_count = cpu_product_posts(build, p, state->posts);
    *out_kernel = cpu_kernel_of(dots_run, state);
    out_kernel->name = "dots:shared";
    out_kernel->isa = "vector";
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->threads = build->threads;
    out_kernel->flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    return GANTRY_OK;
}
