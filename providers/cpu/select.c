/* OneHot, NonZero, Compress, ReverseSequence and TensorScatter. */
#include "indexing.h"

/* ---- OneHot ---------------------------------------------------------------------------------- */

typedef struct one_hot_state {
    int64_t outer, depth, inner;
    gantry_dtype index_dtype;
    size_t element_bytes;
} one_hot_state;

static gantry_status one_hot_run(const void *opaque, const cpu_call *call)
{
    const one_hot_state *state = opaque;
    const char *off = call->inputs[2], *on = off + state->element_bytes;
    size_t bytes = state->element_bytes;
    char *out = call->outputs[0];
    for (int64_t k = 0; k < state->outer * state->depth * state->inner; k++)
        memcpy(out + (size_t)k * bytes, off, bytes);
    for (int64_t k = 0; k < state->outer * state->inner; k++) {
        int64_t index = cpu_load_int(state->index_dtype, call->inputs[0], k);
        index = index < 0 ? index + state->depth : index;
        if (index < 0 || index >= state->depth)
            continue;
        int64_t at = (k / state->inner * state->depth + index) * state->inner + k % state->inner;
        memcpy(out + (size_t)at * bytes, on, bytes);
    }
    return GANTRY_OK;
}

gantry_status cpu_make_one_hot(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *indices = &build->inputs[0], *out = &build->outputs[0];
    uint32_t axis;
    one_hot_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (out->rank != indices->rank + 1 || build->inputs[2].count != 2)
        return cpu_unsupported(build,
                               "the output needs one axis more than the indices, and values two elements");
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", -1), out->rank, &axis));
    *state = (one_hot_state){.outer = cpu_product(out->dims, 0, axis),
                             .depth = out->dims[axis],
                             .inner = cpu_product(out->dims, axis + 1, out->rank),
                             .index_dtype = indices->dtype,
                             .element_bytes = cpu_dtype_size(out->dtype)};
    *out_kernel = cpu_kernel_of(one_hot_run, state);
    return GANTRY_OK;
}

/* ---- NonZero --------------------------------------------------------------------------------- */

typedef struct nonzero_state {
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
    int64_t count, limit;
    gantry_dtype dtype;
    size_t element_bytes;
} nonzero_state;

/* Floats are zero with either sign, so bits alone do not tell. */
static bool is_nonzero(const nonzero_state *state, const void *in, int64_t k)
{
    if (cpu_dtype_in(state->dtype, CPU_REALS))
        return cpu_load_double(state->dtype, in, k) != 0;
    return cpu_load_int(state->dtype, in, k) != 0;
}

static gantry_status nonzero_run(const void *opaque, const cpu_call *call)
{
    const nonzero_state *state = opaque;
    int64_t found = 0, at = 0, *out = call->outputs[0];
    for (int64_t k = 0; k < state->count; k++)
        found += is_nonzero(state, call->inputs[0], k);
    if (found > state->limit)
        return GANTRY_INTERNAL;
    for (int64_t k = 0; k < state->count && at < found; k++) {
        if (!is_nonzero(state, call->inputs[0], k))
            continue;
        int64_t rest = k;
        for (uint32_t axis = state->rank; axis-- > 0;) {
            out[axis * found + at] = rest % state->dims[axis];
            rest /= state->dims[axis];
        }
        at++;
    }
    if (call->true_dims && call->true_dims[0]) {
        call->true_dims[0][0] = state->rank;
        call->true_dims[0][1] = found;
    }
    return GANTRY_OK;
}

/* A scalar counts as a vector of one element. */
gantry_status cpu_make_nonzero(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    nonzero_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *state = (nonzero_state){.rank = (uint32_t)out->dims[0],
                             .count = in->count,
                             .limit = out->rank == 2 ? out->dims[1] : 0,
                             .dtype = in->dtype,
                             .element_bytes = cpu_dtype_size(in->dtype)};
    if (out->rank != 2 || state->rank > GANTRY_MAX_RANK || (in->rank && state->rank != in->rank))
        return cpu_unsupported(build, "the output must have one row for each axis");
    state->dims[0] = in->count;
    if (in->rank)
        memcpy(state->dims, in->dims, in->rank * sizeof in->dims[0]);
    *out_kernel = cpu_kernel_of(nonzero_run, state);
    return GANTRY_OK;
}

/* ---- Compress -------------------------------------------------------------------------------- */

typedef struct compress_state {
    uint32_t rank, axis;
    int64_t dims[GANTRY_MAX_RANK]; /* of the output; [axis] is replaced */
    int64_t outer, extent, choices, limit;
    size_t inner_bytes;
} compress_state;

static gantry_status compress_run(const void *opaque, const cpu_call *call)
{
    const compress_state *state = opaque;
    const uint8_t *choose = call->inputs[1];
    const char *in = call->inputs[0];
    char *out = call->outputs[0];
    int64_t kept = 0, choices = cpu_min64(state->choices, state->extent);
    for (int64_t k = 0; k < choices; k++)
        kept += choose[k] != 0;
    if (kept > state->limit)
        return GANTRY_INTERNAL;
    for (int64_t k = 0; k < state->outer; k++)
        for (int64_t j = 0; j < choices; j++)
            if (choose[j]) {
                memcpy(out, in + (size_t)(k * state->extent + j) * state->inner_bytes, state->inner_bytes);
                out += state->inner_bytes;
            }
    if (call->true_dims && call->true_dims[0])
        for (uint32_t axis = 0; axis < state->rank; axis++)
            call->true_dims[0][axis] = axis == state->axis ? kept : state->dims[axis];
    return GANTRY_OK;
}

gantry_status cpu_make_compress(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    compress_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    bool flat = gantry_node_attribute(build->node, "axis") == NULL;
    *state = (compress_state){.rank = out->rank,
                              .choices = build->inputs[1].count,
                              .outer = 1,
                              .extent = in->count,
                              .inner_bytes = cpu_dtype_size(in->dtype)};
    if (!flat) {
        GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", 0), in->rank, &state->axis));
        state->outer = cpu_product(in->dims, 0, state->axis);
        state->extent = in->dims[state->axis];
        state->inner_bytes *= (size_t)cpu_product(in->dims, state->axis + 1, in->rank);
    }
    memcpy(state->dims, out->dims, out->rank * sizeof out->dims[0]);
    state->limit = out->rank ? out->dims[state->axis] : 0;
    *out_kernel = cpu_kernel_of(compress_run, state);
    return GANTRY_OK;
}

/* ---- ReverseSequence ------------------------------------------------------------------------- */

typedef struct reverse_state {
    int64_t batches, times;
    int64_t batch_stride, time_stride; /* in pieces of inner_bytes */
    size_t inner_bytes;
} reverse_state;

static gantry_status reverse_run(const void *opaque, const cpu_call *call)
{
    const reverse_state *state = opaque;
    const int64_t *lengths = call->inputs[1];
    for (int64_t batch = 0; batch < state->batches; batch++) {
        int64_t length = lengths[batch];
        if (length < 0 || length > state->times)
            return cpu_bad_value(call, 1, length, 0, state->times);
        for (int64_t time = 0; time < state->times; time++) {
            int64_t from = time < length ? length - 1 - time : time;
            memcpy((char *)call->outputs[0] +
                       (size_t)(batch * state->batch_stride + time * state->time_stride) * state->inner_bytes,
                   (const char *)call->inputs[0] +
                       (size_t)(batch * state->batch_stride + from * state->time_stride) * state->inner_bytes,
                   state->inner_bytes);
        }
    }
    return GANTRY_OK;
}

gantry_status cpu_make_reverse_sequence(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    int64_t batch_axis = gantry_node_int(build->node, "batch_axis", 1);
    int64_t time_axis = gantry_node_int(build->node, "time_axis", 0);
    reverse_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (in->rank < 2 || batch_axis + time_axis != 1 || batch_axis < 0 || batch_axis > 1 ||
        build->inputs[1].count != in->dims[batch_axis])
        return cpu_unsupported(build,
                               "batch and time must be the first two axes, with one length for each batch");
    *state = (reverse_state){.batches = in->dims[batch_axis],
                             .times = in->dims[time_axis],
                             .batch_stride = batch_axis == 0 ? in->dims[1] : 1,
                             .time_stride = time_axis == 0 ? in->dims[1] : 1,
                             .inner_bytes =
                                 (size_t)cpu_product(in->dims, 2, in->rank) * cpu_dtype_size(in->dtype)};
    *out_kernel = cpu_kernel_of(reverse_run, state);
    return GANTRY_OK;
}

/* ---- TensorScatter: an update written into a cache, at a place of its own for each batch ----- */

typedef struct cache_state {
    int64_t batches, outer, capacity, length; /* outer: rows of one batch */
    size_t step_bytes, cache_bytes;
    bool circular, has_places;
} cache_state;

static gantry_status cache_run(const void *opaque, const cpu_call *call)
{
    const cache_state *s = opaque;
    const int64_t *places = s->has_places ? call->inputs[2] : NULL;
    char *out = call->outputs[0];
    const char *update = call->inputs[1];
    for (int64_t k = 0; places && k < s->batches; k++)
        if (places[k] < 0 || places[k] > s->capacity || (!s->circular && places[k] + s->length > s->capacity))
            return cpu_bad_value(call, 2, places[k], 0, s->capacity - (s->circular ? 0 : s->length));
    if (out != call->inputs[0])
        memcpy(out, call->inputs[0], s->cache_bytes);
    for (int64_t row = 0; row < s->batches * s->outer; row++)
        for (int64_t step = 0; step < s->length; step++) {
            int64_t at = ((places ? places[row / s->outer] : 0) + step) % s->capacity;
            memcpy(out + (size_t)(row * s->capacity + at) * s->step_bytes,
                   update + (size_t)(row * s->length + step) * s->step_bytes, s->step_bytes);
        }
    return GANTRY_OK;
}

gantry_status cpu_make_tensor_scatter(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *cache = &build->inputs[0], *update = &build->inputs[1], *places = cpu_input(build, 2);
    uint32_t axis;
    cache_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", -2), cache->rank, &axis));
    if (axis == 0 || update->rank != cache->rank || update->dims[axis] > cache->dims[axis] ||
        update->count * cache->dims[axis] != cache->count * update->dims[axis] ||
        (places && places->count != cache->dims[0]))
        return cpu_unsupported(build, "update or write_indices do not fit the cache");
    *s = (cache_state){.batches = cache->dims[0],
                       .outer = cpu_product(cache->dims, 1, axis),
                       .capacity = cache->dims[axis],
                       .length = update->dims[axis],
                       .circular = strcmp(gantry_node_string(build->node, "mode", "linear"), "circular") == 0,
                       .has_places = places != NULL};
    s->step_bytes = (size_t)cpu_product(cache->dims, axis + 1, cache->rank) * cpu_dtype_size(cache->dtype);
    s->cache_bytes = (size_t)cache->count * cpu_dtype_size(cache->dtype);
    *out_kernel = cpu_kernel_of(cache_run, s);
    out_kernel->overwrite_input = 0;
    out_kernel->overwrite_alone = true;
    return GANTRY_OK;
}
