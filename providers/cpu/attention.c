/* Attention: softmax(Q K^T * scale + bias) V, query by query, so that nothing depends on the sequence lengths
 * but one row of scores.
 *
 *     scratch: one row of scores for each chunk of queries
 *
 * Keys and values of the past and of this call are read where they are; present_key and present_value are
 * copies. */
#include "attention.h"

#include "rows.h"

#include <math.h>

/* Queries are cut into at most this many chunks, each with a row of scores. */
#define CHUNKS 64

/* A tensor [batch, heads, sequence, size], or [batch, sequence, heads * size]. Strides in elements. */
typedef struct head_view {
    int64_t batch, head, step;
} head_view;

typedef struct attention_state {
    int64_t batches, heads, kv_heads, queries, keys, past, size,
        value_size; /* keys of this call; past before them */
    head_view q, k, v, y, past_k, past_v;
    float scale, softcap;
    bool causal;
    int64_t window_left, window_right; /* -1: open */
    int mode;                          /* of the fourth output */
    bool has_mask, mask_is_bool, has_nonpad, has_scores, has_present_key, has_present_value;
    int64_t mask_strides[4], mask_keys;
    int64_t chunk;
} attention_state;

typedef struct attention_work {
    const attention_state *state;
    const cpu_call *call;
} attention_work;

/* Bias of keys 0..total-1 for one query into row; false when every key is masked. */
static bool fill_bias(const attention_state *s, const cpu_call *call, int64_t batch, int64_t head,
                      int64_t query, float *row)
{
    int64_t total = s->past + s->keys, offset = s->past, valid = total;
    if (s->has_nonpad) {
        valid = ((const int64_t *)call->inputs[6])[batch];
        offset = valid - s->queries;
    }
    bool any = false;
    const char *mask = s->has_mask ? call->inputs[3] : NULL;
    int64_t mask_at = batch * s->mask_strides[0] + head * s->mask_strides[1] + query * s->mask_strides[2];
    for (int64_t key = 0; key < total; key++) {
        float bias = 0;
        if (mask && key >= s->mask_keys)
            bias = -INFINITY;
        else if (mask && s->mask_is_bool)
            bias = ((const uint8_t *)mask)[mask_at + key * s->mask_strides[3]] ? 0 : -INFINITY;
        else if (mask)
            bias = ((const float *)mask)[mask_at + key * s->mask_strides[3]];
        int64_t ahead = key - (query + offset);
        if (key >= valid || (s->causal && ahead > 0) || (s->window_left >= 0 && -ahead > s->window_left) ||
            (s->window_right >= 0 && ahead > s->window_right))
            bias += -INFINITY;
        any = any || bias != -INFINITY;
        row[key] = bias;
    }
    return any;
}

static const float *key_row(const attention_state *s, const cpu_call *call, int64_t batch, int64_t head,
                            int64_t key)
{
    if (key < s->past)
        return (const float *)call->inputs[4] + batch * s->past_k.batch + head * s->past_k.head +
               key * s->past_k.step;
    return (const float *)call->inputs[1] + batch * s->k.batch + head * s->k.head +
           (key - s->past) * s->k.step;
}

static const float *value_row(const attention_state *s, const cpu_call *call, int64_t batch, int64_t head,
                              int64_t key)
{
    if (key < s->past)
        return (const float *)call->inputs[5] + batch * s->past_v.batch + head * s->past_v.head +
               key * s->past_v.step;
    return (const float *)call->inputs[2] + batch * s->v.batch + head * s->v.head +
           (key - s->past) * s->v.step;
}

/* Turns scores into probabilities in place. */
static void softmax_row(float *row, int64_t n)
{
    const cpu_rows *rows = cpu_rows_best();
    float sum = rows->exp_sum_f32(row, row, n, rows->max_f32(row, n));
    rows->affine_f32(row, row, n, 1.0f / sum, 0.0f);
}

static void attend(const attention_state *s, const cpu_call *call, int64_t index, float *row)
{
    const cpu_rows *rows = cpu_rows_best();
    int64_t total = s->past + s->keys, query = index % s->queries, head = index / s->queries % s->heads,
            batch = index / s->queries / s->heads, kv_head = head / (s->heads / s->kv_heads);
    const float *q =
        (const float *)call->inputs[0] + batch * s->q.batch + head * s->q.head + query * s->q.step;
    float *y = (float *)call->outputs[0] + batch * s->y.batch + head * s->y.head + query * s->y.step;
    float *scores = s->has_scores ? (float *)call->outputs[3] + index * total : NULL;
    bool any = fill_bias(s, call, batch, head, query, row);
    for (int64_t key = 0; key < total; key++) {
        if (row[key] == -INFINITY && !scores)
            continue; /* masked whatever the product is */
        float x = rows->dot_f32(q, key_row(s, call, batch, kv_head, key), s->size) * s->scale;
        if (scores && s->mode == 0)
            scores[key] = x;
        x = s->softcap > 0 ? s->softcap * tanhf(x / s->softcap) : x;
        if (scores && s->mode == 1)
            scores[key] = x;
        row[key] += x;
        if (scores && s->mode == 2)
            scores[key] = row[key];
    }
    if (any)
        softmax_row(row, total);
    else
        memset(row, 0, (size_t)total * sizeof *row);
    if (scores && s->mode == 3)
        memcpy(scores, row, (size_t)total * sizeof *row);
    memset(y, 0, (size_t)s->value_size * sizeof *y);
    for (int64_t key = 0; key < total; key++)
        if (row[key] != 0)
            rows->add_scaled_f32(value_row(s, call, batch, kv_head, key), y, s->value_size, row[key]);
}

static void attention_chunk(void *arg, int64_t begin, int64_t end)
{
    const attention_work *work = arg;
    const attention_state *s = work->state;
    float *row = (float *)work->call->scratch + begin / s->chunk * (s->past + s->keys);
    for (int64_t k = begin; k < end; k++)
        attend(s, work->call, k, row);
}

/* present = past, then what is new. */
static void copy_present(const attention_state *s, const cpu_call *call)
{
    for (int64_t k = 0; k < s->batches * s->kv_heads; k++)
        for (int64_t key = 0; key < s->past + s->keys; key++) {
            int64_t batch = k / s->kv_heads, head = k % s->kv_heads, at = k * (s->past + s->keys) + key;
            if (s->has_present_key)
                memcpy((float *)call->outputs[1] + at * s->size, key_row(s, call, batch, head, key),
                       (size_t)s->size * sizeof(float));
            if (s->has_present_value)
                memcpy((float *)call->outputs[2] + at * s->value_size, value_row(s, call, batch, head, key),
                       (size_t)s->value_size * sizeof(float));
        }
}

static gantry_status attention_run(const void *opaque, const cpu_call *call)
{
    const attention_state *s = opaque;
    attention_work work = {s, call};
    if (s->has_present_key || s->has_present_value)
        copy_present(s, call);
    cpu_parallel(call, s->batches * s->heads * s->queries, s->chunk, attention_chunk, &work);
    return GANTRY_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* How heads lie in a tensor of rank 3 or 4. */
static gantry_status view_heads(cpu_build *build, const cpu_tensor *tensor, int64_t heads,
                                head_view *out_view, int64_t *out_heads, int64_t *out_sequence,
                                int64_t *out_size)
{
    *out_heads = *out_sequence = *out_size = 0;
    if (tensor->rank == 4) {
        *out_heads = tensor->dims[1];
        *out_sequence = tensor->dims[2];
        *out_size = tensor->dims[3];
        *out_view = (head_view){tensor->dims[1] * tensor->dims[2] * tensor->dims[3],
                                tensor->dims[2] * tensor->dims[3], tensor->dims[3]};
        return GANTRY_OK;
    }
    if (tensor->rank != 3 || heads < 1 || tensor->dims[2] % heads)
        return cpu_unsupported(build, "a tensor of rank %u does not divide into %lld heads", tensor->rank,
                               (long long)heads);
    *out_heads = heads;
    *out_sequence = tensor->dims[1];
    *out_size = tensor->dims[2] / heads;
    *out_view = (head_view){tensor->dims[1] * tensor->dims[2], *out_size, tensor->dims[2]};
    return GANTRY_OK;
}

static gantry_status plan_mask(cpu_build *build, attention_state *s)
{
    const cpu_tensor *mask = cpu_input(build, 3);
    int64_t total = s->past + s->keys;
    if (!mask)
        return GANTRY_OK;
    s->has_mask = true;
    s->mask_is_bool = mask->dtype == GANTRY_BOOL;
    s->mask_keys = mask->rank ? mask->dims[mask->rank - 1] : 0;
    if (mask->rank == 0 || mask->rank > 4 || s->mask_keys > total ||
        (!s->mask_is_bool && mask->dtype != GANTRY_FLOAT32))
        return cpu_unsupported(
            build,
            "the mask has rank %u, %lld keys of %lld, or a type that is neither bool nor that "
            "of Q",
            mask->rank, (long long)s->mask_keys, (long long)total);
    /* A mask that is too short masks the rest, so its last axis is never broadcast. */
    int64_t dims[4] = {s->batches, s->heads, s->queries, s->mask_keys};
    if (!cpu_broadcast_strides(mask, 4, dims, s->mask_strides))
        return cpu_unsupported(build, "the mask does not broadcast to the scores");
    return GANTRY_OK;
}

static gantry_status plan_past(cpu_build *build, attention_state *s)
{
    const cpu_tensor *key = cpu_input(build, 4), *value = cpu_input(build, 5), *nonpad = cpu_input(build, 6);
    int64_t heads, sequence, size;
    if ((key == NULL) != (value == NULL) || (key && (key->rank != 4 || value->rank != 4)))
        return cpu_unsupported(build, "past_key and past_value come together, with rank 4");
    if (key) {
        GT_TRY(view_heads(build, value, 0, &s->past_v, &heads, &sequence, &size));
        if (heads != s->kv_heads || size != s->value_size || value->dims[0] != s->batches)
            return cpu_unsupported(build, "past_value does not fit V");
        GT_TRY(view_heads(build, key, 0, &s->past_k, &heads, &s->past, &size));
        if (heads != s->kv_heads || size != s->size || s->past != sequence || key->dims[0] != s->batches)
            return cpu_unsupported(build, "past_key does not fit K and past_value");
    }
    if (nonpad && (key || nonpad->count != s->batches))
        return cpu_unsupported(build, "nonpad_kv_seqlen needs one number a batch, and no past");
    s->has_nonpad = nonpad != NULL;
    return GANTRY_OK;
}

static gantry_status plan_attention(cpu_build *build, attention_state *s)
{
    const cpu_tensor *q = &build->inputs[0], *k = &build->inputs[1], *v = &build->inputs[2];
    int64_t kv_heads = gantry_node_int(build->node, "kv_num_heads", 0), value_heads = 0, sequence = 0,
            size = 0;
    s->batches = q->rank ? q->dims[0] : 0;
    GT_TRY(view_heads(build, q, gantry_node_int(build->node, "q_num_heads", 0), &s->q, &s->heads, &s->queries,
                      &s->size));
    GT_TRY(view_heads(build, k, kv_heads, &s->k, &s->kv_heads, &s->keys, &size));
    GT_TRY(view_heads(build, v, kv_heads, &s->v, &value_heads, &sequence, &s->value_size));
    if (size != s->size || value_heads != s->kv_heads || sequence != s->keys || s->kv_heads < 1 ||
        s->heads % s->kv_heads || k->dims[0] != s->batches || v->dims[0] != s->batches)
        return cpu_unsupported(build, "Q, K and V do not fit each other");
    s->y = q->rank == 4
               ? (head_view){s->heads * s->queries * s->value_size, s->queries * s->value_size, s->value_size}
               : (head_view){s->queries * s->heads * s->value_size, s->value_size, s->heads * s->value_size};
    GT_TRY(plan_past(build, s));
    return plan_mask(build, s);
}

static gantry_status make_attention(cpu_build *build, cpu_kernel *out_kernel)
{
    attention_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(plan_attention(build, s));
    s->scale = gantry_node_float(build->node, "scale", 1.0f / sqrtf((float)(s->size ? s->size : 1)));
    s->softcap = gantry_node_float(build->node, "softcap", 0);
    s->causal = gantry_node_int(build->node, "is_causal", 0) != 0;
    s->window_left = gantry_node_int(build->node, "left_window_size", -1);
    s->window_right = gantry_node_int(build->node, "right_window_size", -1);
    s->mode = (int)gantry_node_int(build->node, "qk_matmul_output_mode", 0);
    s->has_present_key = cpu_output(build, 1) != NULL;
    s->has_present_value = cpu_output(build, 2) != NULL;
    s->has_scores = cpu_output(build, 3) != NULL;
    int64_t rows = s->batches * s->heads * s->queries, total = s->past + s->keys;
    s->chunk = cpu_max64(1, (rows + CHUNKS - 1) / CHUNKS);
    *out_kernel = cpu_kernel_of(attention_run, s);
    out_kernel->scratch_bytes = CHUNKS * (size_t)total * sizeof(float);
    out_kernel->flops = 2.0 * (double)rows * (double)total * (double)(s->size + s->value_size);
    out_kernel->threads = cpu_threads_for(build, out_kernel->flops / 8);
    out_kernel->isa = cpu_rows_best()->isa;
    return GANTRY_OK;
}

gantry_status cpu_make_attention(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_attention, out_kernel);
}
