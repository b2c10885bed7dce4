/* The composite Attention: softmax(q k^T * scale + mask) v, head by head and some queries at a time, so that
 * scores stay in cache. What splits and merges the heads is read and written by strides.
 *
 *     scratch of a thread   keys    panels [ceil(T/64)][D][64]     packed once a head
 *                           values  panels [ceil(E/64)][T][64]
 *                           scores  [queries of a tile][T to 64]   become probabilities in place
 *
 * The sum of a row of probabilities divides what they are multiplied into. A few queries (a step of a
 * decoder) read keys and values where they are. */
#include "attention.h"

#include "rows.h"
#include "tile.h"

#define SCORE_FLOATS 65536 /* of a tile of queries: 256 KiB, a quarter of L2 */
#define MOST_QUERIES 48
#define FEW_QUERIES 3
#define DEPTH 384 /* partial sums over the keys */

/* Strides in elements; element 0 is at `at`. */
typedef struct part_view {
    uint32_t input;
    int64_t at, batch, head, step, unit;
} part_view;

typedef struct fused_state {
    const cpu_tiles *tiles; /* NULL: cpu_panel_rows */
    int64_t batches, heads, queries, keys, size, value_size;
    part_view q, k, v, y;
    float scale, fill;
    int32_t mask, condition; /* inputs; -1: none */
    int64_t mask_strides[4], condition_strides[4];
    int64_t parts, tile_queries, row_floats; /* parts of the queries of a head; a row of scores */
    int64_t chunk;                           /* units of one chunk: heads * parts */
    size_t chunk_floats;
} fused_state;

typedef struct fused_job {
    const fused_state *state;
    const cpu_call *call;
} fused_job;

/* The memory of one chunk, and the head that is packed in it. */
typedef struct fused_work {
    float *keys, *values, *scores, *queries;
    int64_t packed;
    float inverse[MOST_QUERIES];
} fused_work;

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

static const float *part(const cpu_call *call, const part_view *view, int64_t batch, int64_t head)
{
    return (const float *)call->inputs[view->input] + view->at + batch * view->batch + head * view->head;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Keys and sizes begin..end - 1 that no block of 16 by 16 holds. */
static void pack_rest(const float *k, int64_t step, int64_t unit, int64_t keys, int64_t size,
                      int64_t done_keys, int64_t done_size, float *panel)
{
    for (int64_t c = 0; c < keys; c++)
        for (int64_t d = c < done_keys ? done_size : 0; d < size; d++)
            panel[d * CPU_PANEL + c] = k[c * step + d * unit];
}

static void pack_keys(const fused_state *s, const float *k, float *panel)
{
    int64_t step = s->k.step, unit = s->k.unit, size = s->size;
    for (int64_t first = 0; first < s->keys; first += CPU_PANEL, panel += size * CPU_PANEL) {
        int64_t count = s->keys - first < CPU_PANEL ? s->keys - first : CPU_PANEL;
        bool blocks = s->tiles && unit == 1;
        int64_t block_keys = blocks ? count / 16 * 16 : 0, block_size = blocks ? size / 16 * 16 : 0;
        if (count < CPU_PANEL)
            memset(panel, 0, (size_t)(size * CPU_PANEL) * sizeof *panel);
        if (step == 1) {
            for (int64_t d = 0; d < size; d++)
                memcpy(panel + d * CPU_PANEL, k + first + d * unit, (size_t)count * sizeof *panel);
            continue;
        }
        for (int64_t c = 0; c < block_keys; c += 16)
            for (int64_t d = 0; d < block_size; d += 16)
                s->tiles->transpose(k + (first + c) * step + d, step, panel + d * CPU_PANEL + c, CPU_PANEL);
        pack_rest(k + first * step, step, unit, count, size, block_keys, block_size, panel);
    }
}

static CPU_CLONES void pack_values(const float *v, int64_t step, int64_t unit, int64_t keys, int64_t size,
                                   float *panel)
{
    for (int64_t first = 0; first < size; first += CPU_PANEL)
        for (int64_t key = 0; key < keys; key++, panel += CPU_PANEL) {
            const float *row = v + key * step + first * unit;
            int64_t count = size - first < CPU_PANEL ? size - first : CPU_PANEL;
            if (unit == 1 && count == CPU_PANEL) {
                memcpy(panel, row, CPU_PANEL * sizeof *panel);
                continue;
            }
            for (int64_t e = 0; e < count; e++)
                panel[e] = row[e * unit];
            memset(panel + count, 0, (size_t)(CPU_PANEL - count) * sizeof *panel);
        }
}

/* y [rows, columns rounded up to 16] = a * panel; zeros when k is 0. */
static void multiply(const fused_state *s, const float *a, int64_t a_row, int64_t rows, const float *panel,
                     int64_t k, int64_t columns, float *y, int64_t y_row)
{
    if (!s->tiles) {
        cpu_panel_rows(a, a_row, rows, panel, CPU_PANEL, k, y, y_row);
        return;
    }
    cpu_tile_fn tile = s->tiles->by_size[rows - 1][(columns + 15) / 16 - 1];
    for (int64_t r = 0; r < rows && k == 0; r++)
        memset(y + r * y_row, 0, (size_t)columns * sizeof *y);
    for (int64_t j = 0; j < k; j += DEPTH)
        tile(a + j, a_row, panel + j * CPU_PANEL, CPU_PANEL, k - j < DEPTH ? k - j : DEPTH, y, y_row, j > 0,
             NULL);
}

/* ---- scores to probabilities ------------------------------------------------------------------ */

static int64_t offset_of(const int64_t *strides, int64_t batch, int64_t head, int64_t query)
{
    return batch * strides[0] + head * strides[1] + query * strides[2];
}

/* Where the condition is false, scores are `fill`; the others are scaled. */
static void fill_scores(const fused_state *s, const uint8_t *condition, float *x)
{
    for (int64_t key = 0; key < s->keys; key++)
        x[key] = condition[key * s->condition_strides[3]] ? x[key] * s->scale : s->fill;
}

/* Turns products into exponentials in place; returns 1 / their sum. */
static float weigh_row(const fused_state *s, const cpu_call *call, int64_t batch, int64_t head, int64_t query,
                       float *x)
{
    const cpu_rows *rows = cpu_rows_best();
    float scale = s->scale;
    const float *mask = NULL;
    if (s->condition >= 0) {
        fill_scores(s,
                    (const uint8_t *)call->inputs[s->condition] +
                        offset_of(s->condition_strides, batch, head, query),
                    x);
        scale = 1;
    }
    if (s->mask >= 0)
        mask = (const float *)call->inputs[s->mask] + offset_of(s->mask_strides, batch, head, query);
    float most = rows->scores_f32(x, mask, s->mask_strides[3], s->keys, scale);
    float sum = rows->exp_sum_f32(x, x, s->keys, most);
    return s->keys ? 1.0f / sum : 0;
}

/* ---- a tile of queries ------------------------------------------------------------------------ */

static void score_rows(const fused_state *s, const fused_work *work, const float *q, int64_t q_row,
                       int64_t rows, float *scores)
{
    for (int64_t first = 0; first < s->keys; first += CPU_PANEL) {
        int64_t columns = s->keys - first < CPU_PANEL ? s->keys - first : CPU_PANEL;
        multiply(s, q, q_row, rows, work->keys + first * s->size, s->size, columns, scores + first,
                 s->row_floats);
    }
}

static void result_rows(const fused_state *s, const cpu_call *call, const fused_work *work, int64_t batch,
                        int64_t head, int64_t query, int64_t rows, const float *scores, const float *inverse)
{
    float result[CPU_TILE_ROWS * CPU_PANEL];
    const cpu_binary_row *times = &cpu_rows_best()->binary[CPU_BINARY_mul];
    float *y = (float *)call->outputs[0] + batch * s->y.batch + head * s->y.head + query * s->y.step;
    for (int64_t first = 0; first < s->value_size; first += CPU_PANEL) {
        int64_t columns = s->value_size - first < CPU_PANEL ? s->value_size - first : CPU_PANEL;
        multiply(s, scores, s->row_floats, rows, work->values + first * s->keys, s->keys, columns, result,
                 CPU_PANEL);
        for (int64_t r = 0; r < rows; r++)
            times->row_scalar(result + r * CPU_PANEL, &inverse[r], y + r * s->y.step + first, columns);
    }
}

/* The queries with unit stride: where they are, or copied. */
static const float *dense_queries(const fused_state *s, const fused_work *work, const float *q, int64_t rows,
                                  int64_t *out_row)
{
    *out_row = s->q.step;
    if (s->q.unit == 1)
        return q;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t d = 0; d < s->size; d++)
            work->queries[r * s->size + d] = q[r * s->q.step + d * s->q.unit];
    *out_row = s->size;
    return work->queries;
}

static void attend_tile(const fused_state *s, const cpu_call *call, fused_work *work, int64_t batch,
                        int64_t head, int64_t query, int64_t count)
{
    int64_t q_row, tiles = cpu_part_count(count, CPU_TILE_ROWS);
    const float *q =
        dense_queries(s, work, part(call, &s->q, batch, head) + query * s->q.step, count, &q_row);
    for (int64_t t = 0; t < tiles; t++) {
        int64_t row = cpu_part_begin(count, tiles, t), rows = cpu_part_begin(count, tiles, t + 1) - row;
        score_rows(s, work, q + row * q_row, q_row, rows, work->scores + row * s->row_floats);
    }
    for (int64_t r = 0; r < count; r++)
        work->inverse[r] = weigh_row(s, call, batch, head, query + r, work->scores + r * s->row_floats);
    for (int64_t t = 0; t < tiles; t++) {
        int64_t row = cpu_part_begin(count, tiles, t), rows = cpu_part_begin(count, tiles, t + 1) - row;
        result_rows(s, call, work, batch, head, query + row, rows, work->scores + row * s->row_floats,
                    work->inverse + row);
    }
}

/* One query against keys and values where they are. */
static void attend_query(const fused_state *s, const cpu_call *call, const fused_work *work, int64_t batch,
                         int64_t head, int64_t query)
{
    const cpu_rows *rows = cpu_rows_best();
    const float *q = part(call, &s->q, batch, head) + query * s->q.step;
    const float *k = part(call, &s->k, batch, head), *v = part(call, &s->v, batch, head);
    float *x = work->scores;
    float *y = (float *)call->outputs[0] + batch * s->y.batch + head * s->y.head + query * s->y.step;
    for (int64_t key = 0; key < s->keys; key++)
        x[key] = rows->dot_f32(q, k + key * s->k.step, s->size);
    float inverse = weigh_row(s, call, batch, head, query, x);
    memset(y, 0, (size_t)s->value_size * sizeof *y);
    for (int64_t key = 0; key < s->keys; key++)
        rows->add_scaled_f32(v + key * s->v.step, y, s->value_size, x[key]);
    rows->binary[CPU_BINARY_mul].row_scalar(y, &inverse, y, s->value_size);
}

static bool reads_in_place(const fused_state *s)
{
    return s->queries <= FEW_QUERIES && s->q.unit == 1 && s->k.unit == 1 && s->v.unit == 1;
}

static void attend_unit(const fused_state *s, const cpu_call *call, fused_work *work, int64_t unit)
{
    int64_t index = unit / s->parts, batch = index / s->heads, head = index % s->heads;
    int64_t query = cpu_part_begin(s->queries, s->parts, unit % s->parts),
            end = cpu_part_begin(s->queries, s->parts, unit % s->parts + 1);
    if (reads_in_place(s)) {
        for (; query < end; query++)
            attend_query(s, call, work, batch, head, query);
        return;
    }
    if (work->packed != index) {
        pack_keys(s, part(call, &s->k, batch, head), work->keys);
        pack_values(part(call, &s->v, batch, head), s->v.step, s->v.unit, s->keys, s->value_size,
                    work->values);
        work->packed = index;
    }
    for (int64_t tiles = cpu_part_count(end - query, s->tile_queries), count = end - query, t = 0; t < tiles;
         t++) {
        int64_t row = cpu_part_begin(count, tiles, t);
        attend_tile(s, call, work, batch, head, query + row, cpu_part_begin(count, tiles, t + 1) - row);
    }
}

static void attend_chunk(void *arg, int64_t begin, int64_t end)
{
    const fused_job *job = arg;
    const fused_state *s = job->state;
    float *memory = (float *)job->call->scratch + (size_t)(begin / s->chunk) * s->chunk_floats;
    fused_work work = {.packed = -1, .scores = memory};
    work.queries = work.scores + s->tile_queries * s->row_floats;
    work.keys = work.queries + (s->q.unit == 1 ? 0 : round_up(s->tile_queries * s->size, 16));
    work.values = work.keys + round_up(s->keys, CPU_PANEL) * s->size;
    for (int64_t unit = begin; unit < end; unit++)
        attend_unit(s, job->call, &work, unit);
}

static gantry_status fused_run(const void *self, const cpu_call *call)
{
    const fused_state *s = self;
    fused_job job = {s, call};
    cpu_parallel(call, s->batches * s->heads * s->parts, s->chunk, attend_chunk, &job);
    return GANTRY_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Extents and strides of an operand; each axis of the tensor must be one of those it names. */
static gantry_status read_view(cpu_build *build, const char *name, part_view *view, int64_t *out_dims)
{
    uint32_t count = 0;
    const int64_t *numbers = cpu_ints(build->node, name, &count);
    if (!numbers || count != 7 || numbers[0] < 0 || numbers[0] >= build->input_count)
        return cpu_unsupported(build, "attribute %s does not describe an operand", name);
    view->input = (uint32_t)numbers[0];
    const cpu_tensor *tensor = &build->inputs[view->input];
    int64_t strides[GANTRY_MAX_RANK], found[4];
    uint32_t axes = 0;
    cpu_strides(tensor->rank, tensor->dims, strides);
    for (int a = 0; a < 5; a++) {
        int64_t axis = numbers[1 + a];
        if (axis >= (int64_t)tensor->rank)
            return cpu_unsupported(build, "operand %s has %u axes", name, tensor->rank);
        axes += axis >= 0;
        if (a < 4) {
            out_dims[a] = axis < 0 ? 1 : tensor->dims[axis];
            found[a] = axis < 0 ? 0 : strides[axis];
        } else if (axis >= 0) {
            if (numbers[6] >= tensor->dims[axis])
                return cpu_unsupported(build, "operand %s has %lld parts", name,
                                       (long long)tensor->dims[axis]);
            view->at = numbers[6] * strides[axis];
        }
    }
    if (axes != tensor->rank)
        return cpu_unsupported(build, "operand %s has %u axes", name, tensor->rank);
    view->batch = found[0], view->head = found[1], view->step = found[2], view->unit = found[3];
    return GANTRY_OK;
}

/* Keys and values of one batch or head serve all. */
static bool share_heads(part_view *view, const int64_t *dims, const fused_state *s)
{
    if ((dims[0] != s->batches && dims[0] != 1) || (dims[1] != s->heads && dims[1] != 1))
        return false;
    view->batch = dims[0] == 1 ? 0 : view->batch;
    view->head = dims[1] == 1 ? 0 : view->head;
    return true;
}

static gantry_status read_operands(cpu_build *build, fused_state *s)
{
    int64_t q[4], k[4], v[4];
    GT_TRY(read_view(build, "q", &s->q, q));
    GT_TRY(read_view(build, "k", &s->k, k));
    GT_TRY(read_view(build, "v", &s->v, v));
    s->batches = q[0], s->heads = q[1], s->queries = q[2], s->size = q[3];
    s->keys = k[2], s->value_size = v[3];
    if (k[3] != s->size || v[2] != s->keys || !share_heads(&s->k, k, s) || !share_heads(&s->v, v, s))
        return cpu_unsupported(build, "queries, keys and values do not fit each other");
    bool merged = gantry_node_int(build->node, "merged", 0) != 0;
    s->y = merged ? (part_view){.batch = s->queries * s->heads * s->value_size,
                                .head = s->value_size,
                                .step = s->heads * s->value_size}
                  : (part_view){.batch = s->heads * s->queries * s->value_size,
                                .head = s->queries * s->value_size,
                                .step = s->value_size};
    if (build->outputs[0].count != s->batches * s->heads * s->queries * s->value_size)
        return cpu_unsupported(build, "the mask makes the scores larger");
    return GANTRY_OK;
}

/* Strides of the mask or the condition along the scores; *out_input -1 when the node has none. */
static gantry_status read_addend(cpu_build *build, const fused_state *s, const char *name, gantry_dtype dtype,
                                 int32_t *out_input, int64_t *out_strides)
{
    int64_t input = gantry_node_int(build->node, name, -1),
            dims[4] = {s->batches, s->heads, s->queries, s->keys};
    *out_input = -1;
    if (input < 0)
        return GANTRY_OK;
    if (input >= build->input_count || build->inputs[input].dtype != dtype || build->inputs[input].rank > 4 ||
        !cpu_broadcast_strides(&build->inputs[input], 4, dims, out_strides))
        return cpu_unsupported(build, "the %s does not broadcast to the scores", name);
    *out_input = (int32_t)input;
    return GANTRY_OK;
}

/* Heads divide among the threads; when they do not, their queries are cut as well. */
static void cut_units(fused_state *s, int threads)
{
    int64_t heads = s->batches * s->heads;
    s->parts = 1;
    while (threads > 1 && heads * s->parts % threads && heads * s->parts < 8 * threads &&
           s->queries / (s->parts + 1) >= 4 * CPU_TILE_ROWS)
        s->parts++;
    s->chunk = cpu_max64(1, cpu_part_count(heads * s->parts, threads));
}

static void plan_memory(fused_state *s)
{
    s->row_floats = cpu_max64(CPU_PANEL, round_up(s->keys, CPU_PANEL));
    int64_t fit = cpu_max64(CPU_TILE_ROWS, SCORE_FLOATS / s->row_floats / CPU_TILE_ROWS * CPU_TILE_ROWS);
    s->tile_queries = cpu_min64(cpu_min64(fit, MOST_QUERIES), cpu_max64(1, s->queries));
    int64_t floats = s->tile_queries * s->row_floats;
    if (!reads_in_place(s))
        floats += (s->q.unit == 1 ? 0 : round_up(s->tile_queries * s->size, 16)) + s->row_floats * s->size +
                  s->keys * round_up(s->value_size, CPU_PANEL);
    s->chunk_floats = (size_t)round_up(floats, 64);
}

gantry_status cpu_make_fused_attention(cpu_build *build, cpu_kernel *out_kernel)
{
    fused_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(read_operands(build, s));
    GT_TRY(read_addend(build, s, "mask", GANTRY_FLOAT32, &s->mask, s->mask_strides));
    GT_TRY(read_addend(build, s, "condition", GANTRY_BOOL, &s->condition, s->condition_strides));
    s->scale = gantry_node_float(build->node, "scale", 1);
    s->fill = gantry_node_float(build->node, "fill", 0);
    s->tiles = cpu_tiles_best();
    *out_kernel = cpu_kernel_of(fused_run, s);
    out_kernel->flops = 2.0 * (double)(s->batches * s->heads * s->queries) * (double)s->keys *
                        (double)(s->size + s->value_size);
    out_kernel->threads = cpu_threads_for(build, out_kernel->flops / 32);
    cut_units(s, out_kernel->threads);
    plan_memory(s);
    out_kernel->scratch_bytes =
        (size_t)cpu_part_count(s->batches * s->heads * s->parts, s->chunk) * s->chunk_floats * sizeof(float);
    out_kernel->name = reads_in_place(s) ? "attention:rows" : "attention:tiles";
    out_kernel->isa = cpu_rows_best()->isa;
    out_kernel->accumulate = GANTRY_FLOAT32;
    return GANTRY_OK;
}
