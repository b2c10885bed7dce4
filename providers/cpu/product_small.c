/* float32 products of few rows or little work: own kernels over panels of 64 columns.
 *
 *     B as [K, N]  ->  panels [ceil(N/64)][K][64], zero padded: read once, in order
 *
 * A constant B is packed that way (shared by all shapes); any other is read where it lies, row by row. One
 * pass takes up to 4 rows of A, so the weights of a decoder step stream at the speed of memory. */
#include "product.h"

#define PANEL CPU_PANEL
#define MAX_ROWS 4       /* 16 accumulators and 4 loads fit into 32 registers */
#define SMALL_WORK 65536 /* multiply-adds; above, oneDNN's blocking outweighs the cost of its call */

typedef float vector16 __attribute__((vector_size(64), aligned(4)));

/* ---- the inner kernels: rows x 64 columns ---------------------------------------------------- */

static inline __attribute__((always_inline)) void store_half(float *y, bool add, vector16 a, vector16 b)
{
    vector16 *out = (vector16 *)y;
    out[0] = add ? out[0] + a : a;
    out[1] = add ? out[1] + b : b;
}

static inline __attribute__((always_inline)) void store_row(float *y, bool add, vector16 a, vector16 b,
                                                            vector16 c, vector16 d)
{
    store_half(y, add, a, b);
    store_half(y + 32, add, c, d);
}

static CPU_CLONES void panel_1(const float *a, int64_t a_row, const float *b, int64_t b_row, int64_t k,
                               float *y, int64_t y_row, bool add)
{
    vector16 s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, t0 = {0}, t1 = {0}, t2 = {0}, t3 = {0};
    int64_t j = 0;
    for (; j + 2 <= k; j += 2) {
        const vector16 *p = (const vector16 *)(b + j * b_row), *q = (const vector16 *)(b + (j + 1) * b_row);
        float u = a[j], v = a[j + 1];
        s0 += u * p[0];
        s1 += u * p[1];
        s2 += u * p[2];
        s3 += u * p[3];
        t0 += v * q[0];
        t1 += v * q[1];
        t2 += v * q[2];
        t3 += v * q[3];
    }
    if (j < k) {
        const vector16 *p = (const vector16 *)(b + j * b_row);
        s0 += a[j] * p[0];
        s1 += a[j] * p[1];
        s2 += a[j] * p[2];
        s3 += a[j] * p[3];
    }
    store_row(y, add, s0 + t0, s1 + t1, s2 + t2, s3 + t3);
}

static CPU_CLONES void panel_2(const float *a, int64_t a_row, const float *b, int64_t b_row, int64_t k,
                               float *y, int64_t y_row, bool add)
{
    vector16 s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, t0 = {0}, t1 = {0}, t2 = {0}, t3 = {0};
    for (int64_t j = 0; j < k; j++) {
        const vector16 *p = (const vector16 *)(b + j * b_row);
        float u = a[j], v = a[a_row + j];
        s0 += u * p[0];
        s1 += u * p[1];
        s2 += u * p[2];
        s3 += u * p[3];
        t0 += v * p[0];
        t1 += v * p[1];
        t2 += v * p[2];
        t3 += v * p[3];
    }
    store_row(y, add, s0, s1, s2, s3);
    store_row(y + y_row, add, t0, t1, t2, t3);
}

/* Four rows, two columns of registers at a time: 8 accumulators, so that AVX2 does not spill too much. */
static CPU_CLONES void panel_4(const float *a, int64_t a_row, const float *b, int64_t b_row, int64_t k,
                               float *y, int64_t y_row, bool add)
{
    for (int half = 0; half < PANEL; half += 32) {
        vector16 s0 = {0}, s1 = {0}, t0 = {0}, t1 = {0}, u0 = {0}, u1 = {0}, w0 = {0}, w1 = {0};
        for (int64_t j = 0; j < k; j++) {
            const vector16 *p = (const vector16 *)(b + j * b_row + half);
            vector16 p0 = p[0], p1 = p[1];
            s0 += a[j] * p0;
            s1 += a[j] * p1;
            t0 += a[a_row + j] * p0;
            t1 += a[a_row + j] * p1;
            u0 += a[2 * a_row + j] * p0;
            u1 += a[2 * a_row + j] * p1;
            w0 += a[3 * a_row + j] * p0;
            w1 += a[3 * a_row + j] * p1;
        }
        store_half(y + half, add, s0, s1);
        store_half(y + y_row + half, add, t0, t1);
        store_half(y + 2 * y_row + half, add, u0, u1);
        store_half(y + 3 * y_row + half, add, w0, w1);
    }
}

/* The columns behind the last whole panel of a B that is not packed. */
static CPU_CLONES void tail_columns(const float *a, const float *b, int64_t b_row, int64_t k, float *y,
                                    int64_t columns)
{
    memset(y, 0, (size_t)columns * sizeof *y);
    for (int64_t j = 0; j < k; j++)
        for (int64_t n = 0; n < columns; n++)
            y[n] += a[j] * b[j * b_row + n];
}

/* ---- one product ----------------------------------------------------------------------------- */

typedef struct small_state {
    cpu_product product;
    const float *packed; /* NULL: B is read where it lies */
    int64_t depth;       /* rows of a packed panel: k, or more with padding */
    uint32_t post_count;
    cpu_post posts[CPU_MAX_POSTS + 1]; /* C of a Gemm first */
} small_state;

typedef struct small_job {
    const small_state *state;
    const cpu_call *call;
} small_job;

typedef void (*panel_fn)(const float *a, int64_t a_row, const float *b, int64_t b_row, int64_t k, float *y,
                         int64_t y_row, bool add);

/* Long sums are cut: partial sums of at most DEPTH products lose fewer digits than one running sum. */
#define DEPTH 256

static void one_pass(panel_fn panel, const float *a, int64_t a_row, const float *b, int64_t b_row, int64_t k,
                     float *y, int64_t y_row)
{
    panel(a, a_row, b, b_row, k < DEPTH ? k : DEPTH, y, y_row, false);
    for (int64_t j = DEPTH; j < k; j += DEPTH)
        panel(a + j, a_row, b + j * b_row, b_row, k - j < DEPTH ? k - j : DEPTH, y, y_row, true);
}

static void rows_of_panel(const float *a, int64_t a_row, const float *b, int64_t b_row, int64_t k, float *y,
                          int64_t y_row, int64_t rows)
{
    if (rows == 4) {
        one_pass(panel_4, a, a_row, b, b_row, k, y, y_row);
        return;
    }
    if (rows >= 2)
        one_pass(panel_2, a, a_row, b, b_row, k, y, y_row);
    if (rows != 2)
        one_pass(panel_1, a + (rows - 1) * a_row, a_row, b, b_row, k, y + (rows - 1) * y_row, y_row);
}

/* Up to 4 rows of one packed panel; a cut panel goes through a buffer. */
static void packed_tile(const float *a, int64_t a_row, const float *panel, int64_t k, float *y, int64_t y_row,
                        int64_t rows, int64_t columns)
{
    float buffer[MAX_ROWS * PANEL];
    if (columns == PANEL) {
        rows_of_panel(a, a_row, panel, PANEL, k, y, y_row, rows);
        return;
    }
    rows_of_panel(a, a_row, panel, PANEL, k, buffer, PANEL, rows);
    for (int64_t r = 0; r < rows; r++)
        memcpy(y + r * y_row, buffer + r * PANEL, (size_t)columns * sizeof *y);
}

void cpu_panel_rows(const float *a, int64_t a_row, int64_t rows, const float *b, int64_t b_row, int64_t k,
                    float *y, int64_t y_row)
{
    for (int64_t m = 0; m < rows; m += MAX_ROWS)
        rows_of_panel(a + m * a_row, a_row, b, b_row, k, y + m * y_row, y_row,
                      rows - m < MAX_ROWS ? rows - m : MAX_ROWS);
}

void cpu_panel_product(const float *a, int64_t a_row, int64_t rows, const float *packed, int64_t k, int64_t n,
                       int64_t first, float *y, int64_t y_row)
{
    int64_t columns = n - first < PANEL ? n - first : PANEL;
    for (int64_t m = 0; m < rows; m += MAX_ROWS)
        packed_tile(a + m * a_row, a_row, packed + first * k, k, y + m * y_row + first, y_row,
                    rows - m < MAX_ROWS ? rows - m : MAX_ROWS, columns);
}

/* rows x up to 64 columns of one matrix, post-ops included. */
static void compute_tile(const small_state *state, const cpu_call *call, int64_t matrix, int64_t m,
                         int64_t rows, int64_t n)
{
    const cpu_product *p = &state->product;
    int64_t a_at, b_at, columns = p->n - n < PANEL ? p->n - n : PANEL;
    cpu_product_offsets(p, matrix, &a_at, &b_at);
    const float *a = (const float *)call->inputs[0] + a_at + m * p->a_row;
    float *y = (float *)call->outputs[0] + (matrix * p->m + m) * p->n + n;
    if (state->packed) {
        packed_tile(a, p->a_row, state->packed + n * state->depth, p->k, y, p->n, rows, columns);
    } else {
        const float *b = (const float *)call->inputs[1] + b_at + n;
        if (columns == PANEL)
            rows_of_panel(a, p->a_row, b, p->b_row, p->k, y, p->n, rows);
        for (int64_t r = 0; r < rows && columns < PANEL; r++)
            tail_columns(a + r * p->a_row, b, p->b_row, p->k, y + r * p->n, columns);
    }
    for (int64_t r = 0; r < rows && state->post_count; r++)
        cpu_posts_apply(state->posts, state->post_count, call, y + r * p->n, columns,
                        (matrix * p->m + m + r) * p->n + n, n, 1);
}

/* Tiles of all matrices are one range: panels outermost, so that a thread streams its own weights. */
static void compute_tiles(void *arg, int64_t begin, int64_t end)
{
    const small_job *job = arg;
    const cpu_product *p = &job->state->product;
    int64_t panels = (p->n + PANEL - 1) / PANEL;
    for (int64_t at = begin; at < end; at++)
        for (int64_t m = 0; m < p->m; m += MAX_ROWS)
            compute_tile(job->state, job->call, at / panels, m, p->m - m < MAX_ROWS ? p->m - m : MAX_ROWS,
                         at % panels * PANEL);
}

static gantry_status small_run(const void *self, const cpu_call *call)
{
    const small_state *state = self;
    small_job job = {state, call};
    int64_t panels = (state->product.n + PANEL - 1) / PANEL * state->product.batch_count;
    if (call->threads <= 1)
        compute_tiles(&job, 0, panels);
    else
        cpu_parallel(call, panels, 4, compute_tiles, &job);
    return GANTRY_OK;
}

size_t cpu_panel_bytes(int64_t k, int64_t n)
{
    return (size_t)((n + PANEL - 1) / PANEL) * (size_t)k * PANEL * sizeof(float);
}

void cpu_panel_pack(const cpu_unaligned_f32 *b, int64_t b_row, int64_t b_column, int64_t k, int64_t n,
                    float *packed)
{
    for (int64_t first = 0; first < n; first += PANEL)
        for (int64_t j = 0; j < k; j++, packed += PANEL) {
            int64_t columns = n - first < PANEL ? n - first : PANEL;
            for (int64_t c = 0; c < columns; c++)
                packed[c] = b[j * b_row + (first + c) * b_column];
            for (int64_t c = columns; c < PANEL; c++)
                packed[c] = 0;
        }
}

typedef struct pack_job {
    const cpu_product *product;
    const cpu_unaligned_f32 *source;
} pack_job;

static gantry_status pack_panels(void *arg, void *packed)
{
    const pack_job *job = arg;
    const cpu_product *p = job->product;
    cpu_panel_pack(job->source, p->b_row, p->b_column, p->k, p->n, packed);
    return GANTRY_OK;
}

/* Batches that differ in B and B that is not constant are read in place, which needs dense rows. */
static bool is_small(const cpu_build *build, const cpu_product *p)
{
    if (p->dtype != GANTRY_FLOAT32 || p->a_column != 1 || p->alpha != 1.0f || p->k == 0)
        return false;
    if (p->c_present && !cpu_product_has_bias(p))
        return false;
    bool packable = build->inputs[1].constant && p->batch_count == 1;
    if (!packable && p->b_column != 1)
        return false;
    if (!packable && p->n < 16 && p->k > 64)
        return false; /* columns of memory: oneDNN blocks them */
    return p->m <= MAX_ROWS || p->m * p->n * p->k <= SMALL_WORK;
}

static gantry_status pack(cpu_build *build, small_state *state)
{
    const cpu_product *p = &state->product;
    bool shared = cpu_product_can_share(build, p);
    pack_job job = {p, build->inputs[1].data};
    uint64_t key = 0x50414e454c363400u + (uint64_t)(p->b_column != 1); /* "PANEL64", transposed or not */
    state->depth = shared ? (p->k + 15) / 16 * 16 : p->k;
    state->packed =
        shared ? cpu_product_pack_shared(build, p)
               : cpu_pack(build, &build->inputs[1], key, cpu_panel_bytes(p->k, p->n), pack_panels, &job);
    return state->packed ? GANTRY_OK : GANTRY_RESOURCE;
}

gantry_status cpu_product_small(cpu_build *build, const cpu_product *product, cpu_kernel *out_kernel)
{
    if (!is_small(build, product))
        return GANTRY_UNSUPPORTED;
    small_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    state->product = *product;
    state->post_count = cpu_product_posts(build, product, state->posts);
    bool packable = build->inputs[1].constant && product->batch_count == 1;
    if (packable)
        GT_TRY(pack(build, state));
    double work = (double)product->batch_count * (double)product->m * (double)product->n * (double)product->k;
    *out_kernel = cpu_kernel_of(small_run, state);
    out_kernel->name = packable ? "panel64:packed" : "panel64:plain";
    out_kernel->isa = "vector";
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->threads = work < 16.0 * CPU_TINY_ELEMENTS ? 1 : build->threads;
    out_kernel->packed_inputs = packable ? 2 : 0;
    out_kernel->flops = 2 * work;
    return GANTRY_OK;
}
