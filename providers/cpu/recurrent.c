/* LSTM, GRU and RNN: one product of all steps with W, then step by step one with R and the cell.
 *
 *     scratch:  xw [steps*batch][gates*hidden] | hr [batch][gates*hidden] | h, c, extra [batch][hidden]
 *               | weights packed at run when they are no constants */
#include "recurrent.h"
#include "product.h"

/* Operand positions; P and initial_c exist for LSTM only. */
enum { IN_X, IN_W, IN_R, IN_B, IN_LENGTHS, IN_H, IN_C, IN_P };

typedef struct scratch_map {
    float *xw, *hr, *h, *c, *extra, *w, *r, *r_last;
} scratch_map;

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Columns of R that are multiplied at once: all gates, but for a GRU its hidden gate comes apart. */
static int64_t first_columns(const cpu_recurrent *r)
{
    return (r->kind == CPU_CELL_GRU ? 2 : r->gates) * r->hidden;
}

/* Lays the scratch out at base; returns its size. */
static size_t map_scratch(const cpu_recurrent *r, char *base, scratch_map *out_map)
{
    size_t at = 0;
    size_t row = (size_t)(r->gates * r->hidden) * sizeof(float),
           state = (size_t)(r->batch * r->hidden) * sizeof(float);
#define TAKE(field, bytes) (out_map->field = (float *)((uintptr_t)base + at), at += aligned(bytes))
    TAKE(xw, (size_t)(r->steps * r->batch) * row);
    TAKE(hr, (size_t)r->batch * row);
    TAKE(h, state);
    TAKE(c, state);
    TAKE(extra, state);
    if (!r->packed) {
        TAKE(w, cpu_panel_bytes(r->input, r->gates * r->hidden));
        TAKE(r, cpu_panel_bytes(r->hidden, first_columns(r)));
        TAKE(r_last, cpu_panel_bytes(r->hidden, r->hidden));
    }
#undef TAKE
    return at;
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct product_job {
    const float *a, *packed;
    float *y;
    int64_t a_row, rows, k, n, y_row;
} product_job;

static void product_panels(void *arg, int64_t begin, int64_t end)
{
    const product_job *job = arg;
    for (int64_t p = begin; p < end; p++)
        cpu_panel_product(job->a, job->a_row, job->rows, job->packed, job->k, job->n, p * CPU_PANEL, job->y,
                          job->y_row);
}

#define PARALLEL_WORK 262144 /* multiply-adds: a step below this is done before other threads wake up */

static void multiply(const cpu_call *call, product_job job)
{
    int64_t panels = (job.n + CPU_PANEL - 1) / CPU_PANEL;
    if (job.rows * job.k * job.n < PARALLEL_WORK)
        product_panels(&job, 0, panels);
    else
        cpu_parallel(call, panels, 1, product_panels, &job);
}

/* ---- one direction --------------------------------------------------------------------------- */

typedef struct pass {
    const cpu_recurrent *layer;
    const cpu_call *call;
    int direction;
    bool backward;
    scratch_map map;
    const float *w, *r, *r_last;
} pass;

/* An operand that may be left out or past the end of the node's list. */
static const void *operand(const pass *p, uint32_t index)
{
    return index < p->layer->input_count ? p->call->inputs[index] : NULL;
}

static void *result(const pass *p, uint32_t index)
{
    return index < p->layer->output_count ? p->call->outputs[index] : NULL;
}

static const float *float_input(const pass *p, uint32_t index, int64_t offset)
{
    const float *data = operand(p, index);
    return data ? data + offset : NULL;
}

static int64_t length_of(const pass *p, int64_t batch)
{
    const int32_t *lengths = operand(p, IN_LENGTHS);
    if (!lengths)
        return p->layer->steps;
    return lengths[batch] < 0 ? 0 : lengths[batch] > p->layer->steps ? p->layer->steps : lengths[batch];
}

static void load_state(const pass *p, uint32_t input, float *state)
{
    const cpu_recurrent *l = p->layer;
    const float *initial = float_input(p, input, p->direction * l->state_direction);
    for (int64_t b = 0; b < l->batch; b++) {
        if (initial)
            memcpy(state + b * l->hidden, initial + b * l->state_batch, (size_t)l->hidden * sizeof *state);
        else
            memset(state + b * l->hidden, 0, (size_t)l->hidden * sizeof *state);
    }
}

static void store_state(const pass *p, uint32_t output, const float *state)
{
    const cpu_recurrent *l = p->layer;
    float *target = result(p, output);
    for (int64_t b = 0; target && b < l->batch; b++)
        memcpy(target + p->direction * l->state_direction + b * l->state_batch, state + b * l->hidden,
               (size_t)l->hidden * sizeof *state);
}

static cpu_cell_row row_of(const pass *p, int64_t step, int64_t b)
{
    const cpu_recurrent *l = p->layer;
    int64_t width = l->gates * l->hidden;
    return (cpu_cell_row){
        .xw = p->map.xw + (step * l->x_step + b * l->x_batch) * width,
        .hr = p->map.hr + b * width,
        .bias = float_input(p, IN_B, p->direction * 2 * width),
        .peephole = l->kind == CPU_CELL_LSTM ? float_input(p, IN_P, p->direction * 3 * l->hidden) : NULL,
        .h = p->map.h + b * l->hidden,
        .c = p->map.c + b * l->hidden};
}

/* The time step of batch row b in iteration s, or -1 when its sequence is over. */
static int64_t step_of(const pass *p, int64_t s, int64_t b)
{
    int64_t length = length_of(p, b);
    return s >= length ? -1 : p->backward ? length - 1 - s : s;
}

static void emit(const pass *p, int64_t step, int64_t b, const float *h)
{
    const cpu_recurrent *l = p->layer;
    float *y = result(p, 0);
    if (!y)
        return;
    y += step * l->y_step + p->direction * l->y_direction + b * l->y_batch;
    if (h)
        memcpy(y, h, (size_t)l->hidden * sizeof *y);
    else
        memset(y, 0, (size_t)l->hidden * sizeof *y);
}

static void gru_rows(const pass *p, int64_t s)
{
    const cpu_recurrent *l = p->layer;
    for (int64_t b = 0; b < l->batch; b++) {
        int64_t step = step_of(p, s, b);
        if (step < 0)
            continue;
        cpu_cell_row row = row_of(p, step, b);
        cpu_cell_gru_gates(l, p->direction, &row, p->map.extra + b * l->hidden);
    }
    /* The hidden gate's product goes into the third gate's columns of hr. */
    product_job job = {l->linear_before_reset ? p->map.h : p->map.extra,
                       p->r_last,
                       p->map.hr + 2 * l->hidden,
                       l->hidden,
                       l->batch,
                       l->hidden,
                       l->hidden,
                       3 * l->hidden};
    multiply(p->call, job);
    for (int64_t b = 0; b < l->batch; b++) {
        int64_t step = step_of(p, s, b);
        if (step < 0)
            continue;
        cpu_cell_row row = row_of(p, step, b);
        cpu_cell_gru_update(l, p->direction, &row, row.hr + 2 * l->hidden);
        emit(p, step, b, row.h);
    }
}

static void simple_rows(const pass *p, int64_t s)
{
    const cpu_recurrent *l = p->layer;
    for (int64_t b = 0; b < l->batch; b++) {
        int64_t step = step_of(p, s, b);
        if (step < 0)
            continue;
        cpu_cell_row row = row_of(p, step, b);
        (l->kind == CPU_CELL_LSTM ? cpu_cell_lstm : cpu_cell_rnn)(l, p->direction, &row);
        emit(p, step, b, row.h);
    }
}

static gantry_status run_direction(pass *p)
{
    const cpu_recurrent *l = p->layer;
    int64_t width = l->gates * l->hidden;
    product_job inputs = {p->call->inputs[IN_X], p->w,     p->map.xw, l->input,
                          l->steps * l->batch,   l->input, width,     width};
    multiply(p->call, inputs);
    load_state(p, IN_H, p->map.h);
    if (l->kind == CPU_CELL_LSTM)
        load_state(p, IN_C, p->map.c);
    for (int64_t s = 0; s < l->steps; s++) {
        if (gantry_stop_asked(p->call->stop))
            return GANTRY_CANCELLED;
        product_job job = {p->map.h, p->r,      p->map.hr,        l->hidden,
                           l->batch, l->hidden, first_columns(l), width};
        multiply(p->call, job);
        (l->kind == CPU_CELL_GRU ? gru_rows : simple_rows)(p, s);
    }
    for (int64_t b = 0; b < l->batch; b++)
        for (int64_t step = length_of(p, b); step < l->steps; step++)
            emit(p, step, b, NULL);
    store_state(p, 1, p->map.h);
    if (l->kind == CPU_CELL_LSTM)
        store_state(p, 2, p->map.c);
    return GANTRY_OK;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* W and R lie as [gates*hidden][k]: their transposes are packed. */
static void pack_part(const cpu_unaligned_f32 *source, int64_t k, int64_t first, int64_t columns,
                      float *packed)
{
    cpu_panel_pack(source + first * k, 1, k, k, columns, packed);
}

static void pack_at_run(pass *p)
{
    const cpu_recurrent *l = p->layer;
    int64_t width = l->gates * l->hidden;
    const float *w = float_input(p, IN_W, p->direction * width * l->input);
    const float *r = float_input(p, IN_R, p->direction * width * l->hidden);
    pack_part(w, l->input, 0, width, p->map.w);
    pack_part(r, l->hidden, 0, first_columns(l), p->map.r);
    if (l->kind == CPU_CELL_GRU)
        pack_part(r, l->hidden, 2 * l->hidden, l->hidden, p->map.r_last);
    p->w = p->map.w;
    p->r = p->map.r;
    p->r_last = p->map.r_last;
}

static gantry_status recurrent_run(const void *self, const cpu_call *call)
{
    const cpu_recurrent *l = self;
    for (int d = 0; d < (int)l->directions; d++) {
        pass p = {.layer = l,
                  .call = call,
                  .direction = d,
                  .backward = d == 1 || l->reverse_first,
                  .w = l->w[d],
                  .r = l->r[d],
                  .r_last = l->r_last[d]};
        map_scratch(l, call->scratch, &p.map);
        if (!l->packed)
            pack_at_run(&p);
        GT_TRY(run_direction(&p));
    }
    return GANTRY_OK;
}

typedef struct pack_job {
    const cpu_unaligned_f32 *source;
    int64_t k, first, columns;
} pack_job;

static gantry_status fill_part(void *arg, void *packed)
{
    const pack_job *job = arg;
    pack_part(job->source, job->k, job->first, job->columns, packed);
    return GANTRY_OK;
}

/* One direction's part of a weight; the key tells direction and first column apart. */
static gantry_status pack_constant(cpu_build *build, int input, int64_t direction, int64_t width, int64_t k,
                                   int64_t first, int64_t columns, const float **out_packed)
{
    const cpu_tensor *weight = &build->inputs[input];
    pack_job job = {(const cpu_unaligned_f32 *)weight->data + direction * width * k, k, first, columns};
    uint64_t key = 0x4c53544d00000000u + (uint64_t)direction * 2 + (uint64_t)(first != 0); /* "LSTM" */
    *out_packed = cpu_pack(build, weight, key, cpu_panel_bytes(k, columns), fill_part, &job);
    return *out_packed ? GANTRY_OK : GANTRY_RESOURCE;
}

static gantry_status pack_constants(cpu_build *build, cpu_recurrent *l)
{
    int64_t width = l->gates * l->hidden;
    l->packed = build->inputs[IN_W].constant && build->inputs[IN_R].constant;
    for (int64_t d = 0; l->packed && d < l->directions; d++) {
        GT_TRY(pack_constant(build, IN_W, d, width, l->input, 0, width, &l->w[d]));
        GT_TRY(pack_constant(build, IN_R, d, width, l->hidden, 0, first_columns(l), &l->r[d]));
        if (l->kind == CPU_CELL_GRU)
            GT_TRY(pack_constant(build, IN_R, d, width, l->hidden, 2 * l->hidden, l->hidden, &l->r_last[d]));
    }
    return GANTRY_OK;
}

/* ---- reading the node ------------------------------------------------------------------------ */

static gantry_status read_activations(cpu_build *build, cpu_recurrent *l)
{
    static const char *const defaults[3][CPU_CELL_ACTIVATIONS] = {
        {"Tanh"}, {"Sigmoid", "Tanh"}, {"Sigmoid", "Tanh", "Tanh"}};
    uint32_t per = (uint32_t)l->kind + 1;
    const gantry_attribute *names = gantry_node_attribute(build->node, "activations");
    const gantry_attribute *alphas = gantry_node_attribute(build->node, "activation_alpha");
    const gantry_attribute *betas = gantry_node_attribute(build->node, "activation_beta");
    const float *alpha = alphas ? alphas->floats : NULL, *beta = betas ? betas->floats : NULL;
    uint32_t alpha_count = alphas ? alphas->count : 0, beta_count = betas ? betas->count : 0;
    if (names && names->count && names->count < per * l->directions)
        return cpu_unsupported(build, "%u activations are given, %u are needed", names->count,
                               per * (uint32_t)l->directions);
    for (uint32_t d = 0; d < l->directions; d++)
        for (uint32_t k = 0; k < per; k++) {
            const char *name = names && names->count ? names->strings[d * per + k] : defaults[l->kind][k];
            if (!cpu_cell_activation_find(name, &alpha, &alpha_count, &beta, &beta_count,
                                          &l->activations[d][k]))
                return cpu_unsupported(build, "unknown activation '%s'", name);
        }
    return GANTRY_OK;
}

static gantry_status check_operand(cpu_build *build, int index, const char *name, int64_t count)
{
    if ((uint32_t)index >= build->input_count || !build->inputs[index].present)
        return GANTRY_OK;
    if (build->inputs[index].count != count)
        return cpu_unsupported(build, "%s has %lld elements, the other operands need %lld", name,
                               (long long)build->inputs[index].count, (long long)count);
    return GANTRY_OK;
}

static gantry_status check_operands(cpu_build *build, const cpu_recurrent *l)
{
    int64_t width = l->directions * l->gates * l->hidden, state = l->directions * l->batch * l->hidden;
    GT_TRY(check_operand(build, IN_W, "W", width * l->input));
    GT_TRY(check_operand(build, IN_R, "R", width * l->hidden));
    GT_TRY(check_operand(build, IN_B, "B", 2 * width));
    GT_TRY(check_operand(build, IN_LENGTHS, "sequence_lens", l->batch));
    GT_TRY(check_operand(build, IN_H, "initial_h", state));
    if (l->kind != CPU_CELL_LSTM)
        return GANTRY_OK;
    GT_TRY(check_operand(build, IN_C, "initial_c", state));
    return check_operand(build, IN_P, "P", 3 * l->directions * l->hidden);
}

static void set_strides(cpu_recurrent *l, bool batch_first)
{
    int64_t h = l->hidden, d = l->directions;
    l->x_step = batch_first ? 1 : l->batch;
    l->x_batch = batch_first ? l->steps : 1;
    l->y_step = d * (batch_first ? 1 : l->batch) * h;
    l->y_direction = (batch_first ? 1 : l->batch) * h;
    l->y_batch = (batch_first ? l->steps * d : 1) * h;
    l->state_direction = (batch_first ? 1 : l->batch) * h;
    l->state_batch = (batch_first ? d : 1) * h;
}

static gantry_status read_node(cpu_build *build, cpu_cell_kind kind, cpu_recurrent *l)
{
    const cpu_tensor *x = &build->inputs[IN_X], *w = &build->inputs[IN_W], *r = &build->inputs[IN_R];
    const char *direction = gantry_node_string(build->node, "direction", "forward");
    bool batch_first = gantry_node_int(build->node, "layout", 0) != 0;
    if (x->rank != 3 || w->rank != 3 || r->rank != 3)
        return cpu_unsupported(build, "X, W and R must have rank 3");
    *l = (cpu_recurrent){.kind = kind,
                         .input_count = build->input_count,
                         .output_count = build->output_count,
                         .gates = kind == CPU_CELL_LSTM  ? 4
                                  : kind == CPU_CELL_GRU ? 3
                                                         : 1,
                         .steps = x->dims[batch_first],
                         .batch = x->dims[!batch_first],
                         .input = x->dims[2],
                         .hidden = r->dims[2],
                         .directions = strcmp(direction, "bidirectional") == 0 ? 2 : 1,
                         .reverse_first = strcmp(direction, "reverse") == 0,
                         .linear_before_reset = gantry_node_int(build->node, "linear_before_reset", 0) != 0,
                         .input_forget = gantry_node_int(build->node, "input_forget", 0) != 0,
                         .clip = gantry_node_float(build->node, "clip", 0)};
    set_strides(l, batch_first);
    GT_TRY(check_operands(build, l));
    return read_activations(build, l);
}

static gantry_status make_recurrent(cpu_build *build, cpu_cell_kind kind, cpu_kernel *out_kernel)
{
    cpu_recurrent *layer = cpu_state(build, sizeof *layer);
    if (!layer)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    GT_TRY(read_node(build, kind, layer));
    GT_TRY(pack_constants(build, layer));
    scratch_map map;
    *out_kernel = cpu_kernel_of(recurrent_run, layer);
    out_kernel->name = layer->packed ? "cells:packed" : "cells";
    out_kernel->isa = "vector";
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->scratch_bytes = map_scratch(layer, NULL, &map);
    out_kernel->packed_inputs = layer->packed ? 1u << IN_W | 1u << IN_R : 0;
    double width = (double)(layer->gates * layer->hidden) * (double)layer->directions;
    out_kernel->flops =
        2 * (double)(layer->steps * layer->batch) * width * (double)(layer->input + layer->hidden);
    out_kernel->threads = out_kernel->flops < 4 * PARALLEL_WORK ? 1 : build->threads;
    return GANTRY_OK;
}

static gantry_status make_lstm(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_recurrent(build, CPU_CELL_LSTM, out_kernel);
}

static gantry_status make_gru(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_recurrent(build, CPU_CELL_GRU, out_kernel);
}

static gantry_status make_rnn(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_recurrent(build, CPU_CELL_RNN, out_kernel);
}

static double recurrent_flops(const gantry_graph_view *graph, const gantry_node_view *node)
{
    const gantry_value_view *x = gantry_node_input(graph, node, IN_X),
                            *w = gantry_node_input(graph, node, IN_W);
    const gantry_value_view *r = gantry_node_input(graph, node, IN_R);
    if (!x || !w || !r || x->rank != 3 || w->rank != 3 || r->rank != 3 || !x->typical_dims ||
        !w->typical_dims || !r->typical_dims)
        return 1;
    double rows = (double)x->typical_dims[0] * (double)x->typical_dims[1];
    return 2 * rows * (double)w->typical_dims[0] * (double)w->typical_dims[1] *
           (double)(w->typical_dims[2] + r->typical_dims[2]);
}

#define F CPU_BIT(GANTRY_FLOAT32)
#define I CPU_BIT(GANTRY_INT32)

static const cpu_op_row rows[] = {
    {"LSTM", "", {F, F, F, F, I, F, F, F}, make_lstm, NULL, recurrent_flops, CPU_ROW_PACKS},
    {"GRU", "", {F, F, F, F, I, F}, make_gru, NULL, recurrent_flops, CPU_ROW_PACKS},
    {"RNN", "", {F, F, F, F, I, F}, make_rnn, NULL, recurrent_flops, CPU_ROW_PACKS},
};

cpu_op_family cpu_recurrent_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof *rows};
}
