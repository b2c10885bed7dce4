/* BatchNormalization, InstanceNormalization, GroupNormalization, LRN, LpNormalization and
 * MeanVarianceNormalization. */
#include "normalization.h"

#include "rows.h"

#include <math.h>

/* ---- BatchNormalization: y = x * factor[c] + shift[c], made from the statistics at each run -- */

typedef struct batch_state {
    int64_t batches, channels, inner;
    float epsilon, momentum;
    bool wide;
    bool training; /* the statistics are those of x; outputs 1 and 2 are running ones */
} batch_state;

typedef struct batch_work {
    const batch_state *state;
    const cpu_call *call;
} batch_work;

static void batch_chunk(void *arg, int64_t begin, int64_t end)
{
    const batch_work *work = arg;
    const batch_state *state = work->state;
    for (int64_t k = begin; k < end; k++) {
        int64_t c = k % state->channels, at = k * state->inner;
        if (state->wide) {
            const double *const *p = (const double *const *)work->call->inputs;
            double factor = p[1][c] / sqrt(p[4][c] + (double)state->epsilon),
                   shift = p[2][c] - p[3][c] * factor;
            for (int64_t j = 0; j < state->inner; j++)
                ((double *)work->call->outputs[0])[at + j] = p[0][at + j] * factor + shift;
        } else {
            const float *const *p = (const float *const *)work->call->inputs;
            double factor = (double)p[1][c] / sqrt((double)p[4][c] + (double)state->epsilon);
            double shift = (double)p[2][c] - (double)p[3][c] * factor;
            cpu_rows_best()->affine_f32(p[0] + at, (float *)work->call->outputs[0] + at, state->inner,
                                        (float)factor, (float)shift);
        }
    }
}

static gantry_status batch_run(const void *opaque, const cpu_call *call)
{
    const batch_state *state = opaque;
    batch_work work = {state, call};
    cpu_parallel(call, state->batches * state->channels,
                 cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, state->inner)), batch_chunk, &work);
    return GANTRY_OK;
}

/* Training, float32 only: mean and variance of each channel over batches and positions. */
static void batch_statistics(const batch_state *s, const float *x, int64_t channel, double *out_mean,
                             double *out_variance)
{
    double sum = 0, deviation = 0, n = (double)(s->batches * s->inner);
    for (int64_t b = 0; b < s->batches; b++)
        sum += cpu_rows_best()->sum_f32(x + (b * s->channels + channel) * s->inner, s->inner);
    *out_mean = sum / n;
    for (int64_t b = 0; b < s->batches; b++)
        deviation += cpu_rows_best()->sum_deviation_f32(x + (b * s->channels + channel) * s->inner, s->inner,
                                                        (float)*out_mean);
    *out_variance = deviation / n;
}

static gantry_status batch_training_run(const void *opaque, const cpu_call *call)
{
    const batch_state *s = opaque;
    const float *const *p = (const float *const *)call->inputs;
    float *const *out = (float *const *)call->outputs;
    for (int64_t c = 0; c < s->channels; c++) {
        double mean, variance, momentum = (double)s->momentum;
        batch_statistics(s, p[0], c, &mean, &variance);
        double factor = (double)p[1][c] / sqrt(variance + (double)s->epsilon);
        for (int64_t b = 0; b < s->batches; b++) {
            int64_t at = (b * s->channels + c) * s->inner;
            cpu_rows_best()->affine_f32(p[0] + at, out[0] + at, s->inner, (float)factor,
                                        (float)((double)p[2][c] - mean * factor));
        }
        if (out[1])
            out[1][c] = (float)((double)p[3][c] * momentum + mean * (1 - momentum));
        if (out[2])
            out[2][c] = (float)((double)p[4][c] * momentum + variance * (1 - momentum));
    }
    return GANTRY_OK;
}

static gantry_status make_batch_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    batch_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    bool training = gantry_node_int(build->node, "training_mode", 0) != 0;
    if (in->rank < 1 || (training && (in->dtype != GANTRY_FLOAT32 || build->output_count != 3)))
        return cpu_unsupported(build, "training mode needs float32 and all three outputs");
    *state = (batch_state){.batches = in->rank > 1 ? in->dims[0] : 1,
                           .channels = in->rank > 1 ? in->dims[1] : in->dims[0],
                           .inner = cpu_product(in->dims, 2, in->rank),
                           .epsilon = gantry_node_float(build->node, "epsilon", 1e-5f),
                           .momentum = gantry_node_float(build->node, "momentum", 0.9f),
                           .wide = in->dtype == GANTRY_FLOAT64,
                           .training = training};
    if (in->rank == 1) {
        state->batches = in->dims[0];
        state->channels = 1;
    }
    for (uint32_t k = 1; k < 5; k++) {
        const cpu_tensor *operand = cpu_input(build, k);
        if (!operand || operand->count != state->channels || operand->dtype != in->dtype)
            return cpu_unsupported(build, "input %u needs %lld elements of the type of x", k,
                                   (long long)state->channels);
    }
    for (uint32_t k = 1; k < build->output_count; k++)
        if (cpu_output(build, k) && !training)
            return cpu_unsupported(build, "output %u belongs to training", k);
    *out_kernel = cpu_kernel_of(training ? batch_training_run : batch_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count);
    out_kernel->isa = state->wide ? "c" : cpu_rows_best()->isa;
    out_kernel->overwrite_input = 0;
    return GANTRY_OK;
}

/* All operands in the type of x: statistics may be wider or narrower. */
gantry_status cpu_make_batch_norm(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype type = build->inputs[0].dtype == GANTRY_FLOAT64 ? GANTRY_FLOAT64 : GANTRY_FLOAT32;
    gantry_dtype in_types[8], out_types[8];
    if (build->input_count > 8 || build->output_count > 8)
        return cpu_unsupported(build, "more operands than the operator has");
    for (uint32_t k = 0; k < 8; k++)
        in_types[k] = out_types[k] = type;
    return cpu_make_converted(build, make_batch_plain, in_types, out_types, out_kernel);
}

/* ---- InstanceNormalization, GroupNormalization: each group of channels of each batch has its own statistics
 */

typedef struct group_state {
    int64_t batches, groups, channels, inner; /* channels of a group */
    float epsilon;
    bool wide, by_group; /* scale and bias have one element a group (version 18) */
} group_state;

typedef struct group_work {
    const group_state *state;
    const cpu_call *call;
} group_work;

static void group_f32(const group_work *work, int64_t index)
{
    const group_state *state = work->state;
    const cpu_rows *rows = cpu_rows_best();
    int64_t n = state->channels * state->inner, group = index % state->groups;
    const float *const *p = (const float *const *)work->call->inputs;
    const float *in = p[0] + index * n;
    float *out = (float *)work->call->outputs[0] + index * n;
    float mean = (float)(rows->sum_f32(in, n) / (double)n);
    double variance = rows->sum_deviation_f32(in, n, mean) / (double)n;
    double factor = 1.0 / sqrt(variance + (double)state->epsilon);
    for (int64_t c = 0; c < state->channels; c++) {
        int64_t at = state->by_group ? group : group * state->channels + c;
        double gain = factor * (double)p[1][at];
        rows->normalize_f32(in + c * state->inner, out + c * state->inner, state->inner, mean, (float)gain,
                            NULL, NULL);
        rows->affine_f32(out + c * state->inner, out + c * state->inner, state->inner, 1.0f, p[2][at]);
    }
}

static void group_f64(const group_work *work, int64_t index)
{
    const group_state *state = work->state;
    int64_t n = state->channels * state->inner, group = index % state->groups;
    const double *const *p = (const double *const *)work->call->inputs;
    const double *in = p[0] + index * n;
    double *out = (double *)work->call->outputs[0] + index * n, mean = 0, variance = 0;
    for (int64_t k = 0; k < n; k++)
        mean += in[k];
    mean /= (double)n;
    for (int64_t k = 0; k < n; k++)
        variance += (in[k] - mean) * (in[k] - mean);
    double factor = 1 / sqrt(variance / (double)n + (double)state->epsilon);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = state->by_group ? group : group * state->channels + k / state->inner;
        out[k] = (in[k] - mean) * factor * p[1][at] + p[2][at];
    }
}

static void group_chunk(void *arg, int64_t begin, int64_t end)
{
    const group_work *work = arg;
    for (int64_t k = begin; k < end; k++)
        if (work->state->wide)
            group_f64(work, k);
        else
            group_f32(work, k);
}

static gantry_status group_run(const void *opaque, const cpu_call *call)
{
    const group_state *state = opaque;
    group_work work = {state, call};
    cpu_parallel(call, state->batches * state->groups,
                 cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, state->channels * state->inner)), group_chunk,
                 &work);
    return GANTRY_OK;
}

static gantry_status make_group_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    group_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (in->rank < 2)
        return cpu_unsupported(build, "needs rank 2 or more, has %u", in->rank);
    bool instance = strcmp(build->node->op, "InstanceNormalization") == 0;
    int64_t groups = instance ? in->dims[1] : gantry_node_int(build->node, "num_groups", 0);
    if (groups <= 0 || in->dims[1] % groups)
        return cpu_unsupported(build, "%lld channels do not divide into %lld groups", (long long)in->dims[1],
                               (long long)groups);
    *state = (group_state){.batches = in->dims[0],
                           .groups = groups,
                           .channels = in->dims[1] / groups,
                           .inner = cpu_product(in->dims, 2, in->rank),
                           .epsilon = gantry_node_float(build->node, "epsilon", 1e-5f),
                           .wide = in->dtype == GANTRY_FLOAT64,
                           .by_group = !instance && build->node->version < 21};
    for (uint32_t k = 1; k < 3; k++)
        if (build->inputs[k].count != (state->by_group ? groups : in->dims[1]) ||
            build->inputs[k].dtype != in->dtype)
            return cpu_unsupported(build, "input %u has %lld elements, or another type than x", k,
                                   (long long)build->inputs[k].count);
    if (in->count == 0)
        state->batches = 0;
    *out_kernel = cpu_kernel_of(group_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count * 2);
    out_kernel->isa = state->wide ? "c" : cpu_rows_best()->isa;
    out_kernel->accumulate = GANTRY_FLOAT64;
    out_kernel->overwrite_input = 0;
    return GANTRY_OK;
}

gantry_status cpu_make_group_norm(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_group_plain, out_kernel);
}

/* ---- LRN: a window over channels ------------------------------------------------------------- */

typedef struct lrn_state {
    int64_t batches, channels, inner, size;
    double alpha, beta, bias;
} lrn_state;

typedef struct lrn_work {
    const lrn_state *state;
    const float *in;
    float *out;
} lrn_work;

static void lrn_chunk(void *arg, int64_t begin, int64_t end)
{
    const lrn_work *work = arg;
    const lrn_state *state = work->state;
    const float exponent = (float)-state->beta;
    float sums[512];
    for (int64_t k = begin; k < end; k++) {
        int64_t channel = k % state->channels, batch = k / state->channels;
        int64_t first = cpu_max64(0, channel - (state->size - 1) / 2);
        int64_t last = cpu_min64(state->channels - 1, channel + state->size / 2);
        for (int64_t at = 0; at < state->inner; at += 512) {
            int64_t n = cpu_min64(512, state->inner - at);
            memset(sums, 0, sizeof sums);
            for (int64_t c = first; c <= last; c++) {
                const float *x = work->in + (batch * state->channels + c) * state->inner + at;
                for (int64_t j = 0; j < n; j++)
                    sums[j] += x[j] * x[j];
            }
            cpu_rows_best()->affine_f32(sums, sums, n, (float)(state->alpha / (double)state->size),
                                        (float)state->bias);
            cpu_rows_best()->binary[CPU_BINARY_pow].row_scalar(sums, &exponent, sums, n);
            const float *x = work->in + k * state->inner + at;
            float *out = work->out + k * state->inner + at;
            for (int64_t j = 0; j < n; j++)
                out[j] = x[j] * sums[j];
        }
    }
}

static gantry_status lrn_run(const void *opaque, const cpu_call *call)
{
    const lrn_state *state = opaque;
    lrn_work work = {state, call->inputs[0], call->outputs[0]};
    cpu_parallel(call, state->batches * state->channels,
                 cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, state->inner * state->size)), lrn_chunk,
                 &work);
    return GANTRY_OK;
}

static gantry_status make_lrn_f32(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    lrn_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *state = (lrn_state){.batches = in->rank ? in->dims[0] : 0,
                         .channels = in->rank > 1 ? in->dims[1] : 0,
                         .inner = cpu_product(in->dims, 2, in->rank),
                         .size = gantry_node_int(build->node, "size", 0),
                         .alpha = (double)gantry_node_float(build->node, "alpha", 1e-4f),
                         .beta = (double)gantry_node_float(build->node, "beta", 0.75f),
                         .bias = (double)gantry_node_float(build->node, "bias", 1.0f)};
    if (in->rank < 2 || state->size < 1)
        return cpu_unsupported(build, "needs rank 2 or more and a positive size");
    *out_kernel = cpu_kernel_of(lrn_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count * (double)state->size);
    out_kernel->isa = cpu_rows_best()->isa;
    return GANTRY_OK;
}

/* Everything in float32: float64 has no users here. */
gantry_status cpu_make_lrn(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[1] = {GANTRY_FLOAT32}, out_types[1] = {GANTRY_FLOAT32};
    return cpu_make_converted(build, make_lrn_f32, in_types, out_types, out_kernel);
}

/* ---- LpNormalization ------------------------------------------------------------------------- */

typedef struct lp_state {
    int64_t outer, n, inner;
    int64_t p;
    bool wide;
} lp_state;

static gantry_status lp_run(const void *opaque, const cpu_call *call)
{
    const lp_state *state = opaque;
    for (int64_t lane = 0; lane < state->outer * state->inner; lane++) {
        int64_t base = lane / state->inner * state->n * state->inner + lane % state->inner;
        double norm = 0;
        gantry_dtype dtype = state->wide ? GANTRY_FLOAT64 : GANTRY_FLOAT32;
        for (int64_t k = 0; k < state->n; k++) {
            double x = cpu_load_double(dtype, call->inputs[0], base + k * state->inner);
            norm += state->p == 1 ? fabs(x) : x * x;
        }
        norm = state->p == 1 ? norm : sqrt(norm);
        for (int64_t k = 0; k < state->n; k++) {
            int64_t at = base + k * state->inner;
            double x =
                norm == 0 ? 0 : cpu_load_double(dtype, call->inputs[0], at) / norm; /* 0 / 0 counts as 0 */
            if (state->wide)
                ((double *)call->outputs[0])[at] = x;
            else
                ((float *)call->outputs[0])[at] = (float)x;
        }
    }
    return GANTRY_OK;
}

static gantry_status make_lp_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    uint32_t axis;
    lp_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", -1), in->rank, &axis));
    *state = (lp_state){.outer = cpu_product(in->dims, 0, axis),
                        .n = in->dims[axis],
                        .inner = cpu_product(in->dims, axis + 1, in->rank),
                        .p = gantry_node_int(build->node, "p", 2),
                        .wide = in->dtype == GANTRY_FLOAT64};
    *out_kernel = cpu_kernel_of(lp_run, state);
    out_kernel->overwrite_input = 0;
    return GANTRY_OK;
}

gantry_status cpu_make_lp_norm(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_lp_plain, out_kernel);
}

/* ---- MeanVarianceNormalization: (x - mean) / (deviation + 1e-9) over axes -------------------- */

typedef struct mvn_state {
    cpu_nest kept, reduced;
    double count;
} mvn_state;

static gantry_status mvn_run(const void *opaque, const cpu_call *call)
{
    const mvn_state *state = opaque;
    const float *in = call->inputs[0];
    float *out = call->outputs[0];
    for (int64_t k = 0; k < state->kept.rows * state->kept.inner; k++) {
        cpu_nest_position kept, reduced;
        cpu_nest_seek(&state->kept, k / state->kept.inner, &kept);
        int64_t base = kept.offset[0] + k % state->kept.inner * state->kept.step[0];
        double sum = 0, squares = 0, mean = 0, deviation = 0;
        for (int pass = 0; pass < 3; pass++) { /* mean, deviation, result */
            cpu_nest_seek(&state->reduced, 0, &reduced);
            for (int64_t row = 0; row < state->reduced.rows; row++) {
                for (int64_t j = 0; j < state->reduced.inner; j++) {
                    int64_t at = base + reduced.offset[0] + j * state->reduced.step[0];
                    double x = (double)in[at];
                    sum += pass == 0 ? x : 0;
                    squares += pass == 1 ? (x - mean) * (x - mean) : 0;
                    if (pass == 2)
                        out[at] = (float)((x - mean) / (deviation + 1e-9));
                }
                cpu_nest_next(&state->reduced, &reduced);
            }
            mean = sum / state->count;
            deviation = sqrt(squares / state->count);
        }
    }
    return GANTRY_OK;
}

static gantry_status make_mvn_f32(cpu_build *build, cpu_kernel *out_kernel)
{
    static const int64_t usual[3] = {0, 2, 3};
    const cpu_tensor *in = &build->inputs[0];
    uint32_t count, bits = 0, axis, kept = 0, reduced = 0;
    const int64_t *axes = cpu_ints(build->node, "axes", &count);
    int64_t strides[GANTRY_MAX_RANK], kept_dims[GANTRY_MAX_RANK], kept_strides[GANTRY_MAX_RANK],
        reduced_dims[GANTRY_MAX_RANK], reduced_strides[GANTRY_MAX_RANK];
    mvn_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < (axes ? count : 3); k++) {
        GT_TRY(cpu_resolve_axis(build, axes ? axes[k] : usual[k], in->rank, &axis));
        bits |= 1u << axis;
    }
    cpu_strides(in->rank, in->dims, strides);
    for (uint32_t k = 0; k < in->rank; k++) {
        bool is_reduced = bits >> k & 1;
        (is_reduced ? reduced_dims : kept_dims)[is_reduced ? reduced : kept] = in->dims[k];
        (is_reduced ? reduced_strides : kept_strides)[is_reduced ? reduced++ : kept++] = strides[k];
    }
    const int64_t *kept_pointer[1] = {kept_strides}, *reduced_pointer[1] = {reduced_strides};
    cpu_nest_make(&state->kept, kept, kept_dims, 1, kept_pointer);
    cpu_nest_make(&state->reduced, reduced, reduced_dims, 1, reduced_pointer);
    state->count = (double)cpu_product(reduced_dims, 0, reduced);
    *out_kernel = cpu_kernel_of(mvn_run, state);
    return GANTRY_OK;
}

gantry_status cpu_make_mean_variance_norm(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[1] = {GANTRY_FLOAT32}, out_types[1] = {GANTRY_FLOAT32};
    return cpu_make_converted(build, make_mvn_f32, in_types, out_types, out_kernel);
}
