/* RotaryEmbedding and SwiGLU: what goes around attention in language models. */
#include "attention.h"

#include "rows.h"

/* ---- RotaryEmbedding ------------------------------------------------------------------------- */

typedef struct rotary_state {
    int64_t batches, sequence, heads, size, rotated; /* rotated: the leading elements of a head that turn */
    int64_t batch_stride, head_stride, step_stride;
    int64_t cache_rows;
    bool interleaved, has_positions;
} rotary_state;

typedef struct rotary_work {
    const rotary_state *state;
    const cpu_call *call;
} rotary_work;

/* One head at one position: pairs (k, k + half) or (2k, 2k + 1) turn by the angle of row `cache`. */
static void rotate_head(const rotary_state *s, const cpu_call *call, int64_t at, int64_t cache)
{
    const float *in = (const float *)call->inputs[0] + at;
    float *out = (float *)call->outputs[0] + at;
    int64_t half = s->rotated / 2;
    const float *cosine = (const float *)call->inputs[1] + cache * half;
    const float *sine = (const float *)call->inputs[2] + cache * half;
    int64_t first = s->interleaved ? 2 : 1, apart = s->interleaved ? 1 : half;
    for (int64_t k = 0; k < half; k++) {
        float a = in[k * first], b = in[k * first + apart];
        out[k * first] = cosine[k] * a - sine[k] * b;
        out[k * first + apart] = sine[k] * a + cosine[k] * b;
    }
    for (int64_t k = 2 * half; k < s->size; k++)
        out[k] = in[k];
}

static void rotary_chunk(void *arg, int64_t begin, int64_t end)
{
    const rotary_work *work = arg;
    const rotary_state *s = work->state;
    const int64_t *positions = s->has_positions ? work->call->inputs[3] : NULL;
    for (int64_t k = begin; k < end; k++) {
        int64_t batch = k / s->sequence, step = k % s->sequence, cache = positions ? positions[k] : k;
        for (int64_t head = 0; head < s->heads; head++)
            rotate_head(s, work->call,
                        batch * s->batch_stride + head * s->head_stride + step * s->step_stride, cache);
    }
}

static gantry_status rotary_run(const void *opaque, const cpu_call *call)
{
    const rotary_state *s = opaque;
    rotary_work work = {s, call};
    for (int64_t k = 0; s->has_positions && k < s->batches * s->sequence; k++) {
        int64_t position = ((const int64_t *)call->inputs[3])[k];
        if (position < 0 || position >= s->cache_rows)
            return cpu_bad_value(call, 3, position, 0, s->cache_rows - 1);
    }
    cpu_parallel(call, s->batches * s->sequence,
                 cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, s->heads * s->size)), rotary_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_rotary(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *cosine = &build->inputs[1], *sine = &build->inputs[2];
    const cpu_tensor *positions = cpu_input(build, 3);
    rotary_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    bool four = in->rank == 4;
    if (in->rank != 3 && !four)
        return cpu_unsupported(build, "needs rank 3 or 4, has %u", in->rank);
    s->batches = in->dims[0];
    s->sequence = in->dims[four ? 2 : 1];
    s->heads = four ? in->dims[1] : gantry_node_int(build->node, "num_heads", 0);
    if (s->heads < 1 || in->dims[four ? 3 : 2] % (four ? 1 : s->heads))
        return cpu_unsupported(build, "num_heads is %lld for %lld elements", (long long)s->heads,
                               (long long)in->dims[2]);
    s->size = four ? in->dims[3] : in->dims[2] / s->heads;
    s->batch_stride = s->sequence * s->heads * s->size;
    s->head_stride = four ? s->sequence * s->size : s->size;
    s->step_stride = four ? s->size : s->heads * s->size;
    s->rotated = gantry_node_int(build->node, "rotary_embedding_dim", 0);
    if (s->rotated == 0)
        s->rotated = s->size;
    s->interleaved = gantry_node_int(build->node, "interleaved", 0) != 0;
    s->has_positions = positions != NULL;
    s->cache_rows = s->rotated > 1 ? cosine->count / (s->rotated / 2) : 0;
    if (s->rotated < 0 || s->rotated > s->size || cosine->rank < 1 || !cpu_same_dims(cosine, sine) ||
        cosine->dims[cosine->rank - 1] != s->rotated / 2 ||
        (positions ? positions->count : s->cache_rows) != s->batches * s->sequence)
        return cpu_unsupported(build, "the caches or position ids do not fit the input");
    *out_kernel = cpu_kernel_of(rotary_run, s);
    out_kernel->threads = cpu_threads_for(build, (double)in->count);
    return GANTRY_OK;
}

gantry_status cpu_make_rotary(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_rotary, out_kernel);
}

/* ---- SwiGLU: a * sigmoid(alpha * a) * b ------------------------------------------------------ */

typedef struct swiglu_state {
    int64_t count;
    float p[4];
} swiglu_state;

typedef struct swiglu_work {
    const swiglu_state *state;
    const float *a, *b;
    float *out;
} swiglu_work;

static void swiglu_chunk(void *arg, int64_t begin, int64_t end)
{
    const swiglu_work *work = arg;
    const cpu_rows *rows = cpu_rows_best();
    float gate[512];
    for (; begin < end; begin += 512) {
        int64_t n = cpu_min64(512, end - begin);
        rows->unary[CPU_UNARY_silu](work->a + begin, gate, n, work->state->p);
        rows->binary[CPU_BINARY_mul].row_row(gate, work->b + begin, work->out + begin, n);
    }
}

static gantry_status swiglu_run(const void *opaque, const cpu_call *call)
{
    const swiglu_state *state = opaque;
    swiglu_work work = {state, call->inputs[0], call->inputs[1], call->outputs[0]};
    cpu_parallel(call, state->count, CPU_CHUNK_ELEMENTS, swiglu_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_swiglu(cpu_build *build, cpu_kernel *out_kernel)
{
    swiglu_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (!cpu_same_dims(&build->inputs[0], &build->inputs[1]))
        return cpu_unsupported(build, "gate and value differ in shape");
    *state = (swiglu_state){build->inputs[0].count, {gantry_node_float(build->node, "alpha", 1)}};
    *out_kernel = cpu_kernel_of(swiglu_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)state->count);
    out_kernel->isa = cpu_rows_best()->isa;
    out_kernel->overwrite_input = 0;
    return GANTRY_OK;
}

gantry_status cpu_make_swiglu(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_swiglu, out_kernel);
}
