/* TopK and Unique: what needs an order of elements. */
#include "indexing.h"

#include "native_types.h"

/* ---- TopK ----
 * Each lane of n elements keeps a heap of the k best so far with the worst at its root; the heap is then
 * sorted in place. Of equal elements the one with the lower index comes first. */

/* Lanes are cut into at most this many chunks, each with a heap of its own in scratch. */
#define TOPK_CHUNKS 16

typedef struct topk_state {
    int64_t outer, n, inner, k;
    bool largest;
    int64_t chunk; /* lanes */
    size_t in_bytes;
    void (*lane)(const struct topk_state *state, const void *in, void *values, int64_t *indices,
                 int64_t *heap);
} topk_state;

#define TOPK_LANE(suffix, dtype, type)                                                                       \
    static inline bool before_##suffix(const topk_state *state, const type *in, int64_t a, int64_t b)        \
    {                                                                                                        \
        const type x = in[a * state->inner], y = in[b * state->inner];                                       \
        return x == y ? a < b : state->largest ? x > y : x < y;                                              \
    }                                                                                                        \
    static void sift_##suffix(const topk_state *state, const type *in, int64_t *heap, int64_t count,         \
                              int64_t at)                                                                    \
    {                                                                                                        \
        int64_t moving = heap[at];                                                                           \
        for (int64_t child; (child = 2 * at + 1) < count; at = child) {                                      \
            if (child + 1 < count && before_##suffix(state, in, heap[child], heap[child + 1]))               \
                child++;                                                                                     \
            if (!before_##suffix(state, in, moving, heap[child]))                                            \
                break;                                                                                       \
            heap[at] = heap[child];                                                                          \
        }                                                                                                    \
        heap[at] = moving;                                                                                   \
    }                                                                                                        \
    static void lane_##suffix(const topk_state *state, const void *row, void *values, int64_t *indices,      \
                              int64_t *heap)                                                                 \
    {                                                                                                        \
        const type *in = row;                                                                                \
        type *out = values;                                                                                  \
        int64_t k = state->k;                                                                                \
        for (int64_t j = 0; j < k; j++)                                                                      \
            heap[j] = j;                                                                                     \
        for (int64_t j = k / 2; j-- > 0;)                                                                    \
            sift_##suffix(state, in, heap, k, j);                                                            \
        for (int64_t j = k; k && j < state->n; j++)                                                          \
            if (before_##suffix(state, in, j, heap[0])) {                                                    \
                heap[0] = j;                                                                                 \
                sift_##suffix(state, in, heap, k, 0);                                                        \
            }                                                                                                \
        for (int64_t end = k; end-- > 0;) { /* the root is the worst of what is left */                      \
            out[end * state->inner] = in[heap[0] * state->inner];                                            \
            indices[end * state->inner] = heap[0];                                                           \
            heap[0] = heap[end];                                                                             \
            sift_##suffix(state, in, heap, end, 0);                                                          \
        }                                                                                                    \
    }
CPU_NATIVE_TYPES(TOPK_LANE)

#define LANE_ENTRY(suffix, dtype, type) [GANTRY_##dtype] = lane_##suffix,
static void (*const lanes[GANTRY_DTYPE_COUNT])(const topk_state *state, const void *in, void *values,
                                               int64_t *indices,
                                               int64_t *heap) = {CPU_NATIVE_TYPES(LANE_ENTRY)};

typedef struct topk_work {
    const topk_state *state;
    const cpu_call *call;
} topk_work;

static void topk_chunk(void *arg, int64_t begin, int64_t end)
{
    const topk_work *work = arg;
    const topk_state *state = work->state;
    int64_t *heap = (int64_t *)work->call->scratch + begin / state->chunk * state->k;
    for (int64_t lane = begin; lane < end; lane++) {
        int64_t outer = lane / state->inner, column = lane % state->inner;
        int64_t to = outer * state->k * state->inner + column;
        state->lane(state,
                    (const char *)work->call->inputs[0] +
                        (size_t)(outer * state->n * state->inner + column) * state->in_bytes,
                    (char *)work->call->outputs[0] + (size_t)to * state->in_bytes,
                    (int64_t *)work->call->outputs[1] + to, heap);
    }
}

static gantry_status topk_run(const void *opaque, const cpu_call *call)
{
    const topk_state *state = opaque;
    topk_work work = {state, call};
    cpu_parallel(call, state->outer * state->inner, state->chunk, topk_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_topk(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    uint32_t axis;
    topk_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", -1), in->rank, &axis));
    if (!lanes[in->dtype] || !cpu_output(build, 0) || !cpu_output(build, 1) ||
        out->dims[axis] > in->dims[axis])
        return cpu_unsupported(build, "needs both outputs, a number type, and k of at most %lld",
                               (long long)in->dims[axis]);
    *state = (topk_state){.outer = cpu_product(in->dims, 0, axis),
                          .n = in->dims[axis],
                          .inner = cpu_product(in->dims, axis + 1, in->rank),
                          .k = out->dims[axis],
                          .largest = gantry_node_int(build->node, "largest", 1) != 0,
                          .in_bytes = cpu_dtype_size(in->dtype),
                          .lane = lanes[in->dtype]};
    state->chunk = cpu_max64(1, (state->outer * state->inner + TOPK_CHUNKS - 1) / TOPK_CHUNKS);
    *out_kernel = cpu_kernel_of(topk_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count);
    out_kernel->scratch_bytes = TOPK_CHUNKS * (size_t)state->k * sizeof(int64_t);
    return GANTRY_OK;
}

gantry_status cpu_make_topk(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_topk, out_kernel);
}

/* ---- Unique ----
 * Slices along an axis (or elements) are sorted by merging runs of their indices; equal neighbours form a
 * group whose first member has the lowest index, because merging is stable.
 *
 *     scratch: | order | buffer of the merge | group of each slice | first slice of each group | */

typedef struct unique_state {
    uint32_t rank, axis, output_count;
    bool flat, sorted;
    int64_t dims[GANTRY_MAX_RANK];
    int64_t outer, n, inner; /* of the input */
    int64_t limit;
    gantry_dtype dtype;
    size_t element_bytes;
} unique_state;

/* < 0, 0, > 0: slice a before, equal to, after slice b. */
static int compare_slices(const unique_state *state, const void *in, int64_t a, int64_t b)
{
    bool real = cpu_dtype_in(state->dtype, CPU_REALS);
    for (int64_t k = 0; k < state->outer * state->inner; k++) {
        int64_t base = k / state->inner * state->n * state->inner + k % state->inner;
        int64_t at_a = base + a * state->inner, at_b = base + b * state->inner;
        if (real) {
            double x = cpu_load_double(state->dtype, in, at_a), y = cpu_load_double(state->dtype, in, at_b);
            if (x != y)
                return x < y ? -1 : 1;
        } else {
            int64_t x = cpu_load_int(state->dtype, in, at_a), y = cpu_load_int(state->dtype, in, at_b);
            if (x != y)
                return (state->dtype == GANTRY_UINT64 ? (uint64_t)x < (uint64_t)y : x < y) ? -1 : 1;
        }
    }
    return 0;
}

/* Sorts order[0..n-1]; bottom-up merges of runs of growing width. */
static void sort_slices(const unique_state *state, const void *in, int64_t *order, int64_t *buffer)
{
    for (int64_t width = 1; width < state->n; width *= 2) {
        for (int64_t begin = 0; begin < state->n; begin += 2 * width) {
            int64_t middle = cpu_min64(begin + width, state->n), end = cpu_min64(begin + 2 * width, state->n);
            int64_t a = begin, b = middle;
            for (int64_t k = begin; k < end; k++)
                buffer[k] = b >= end || (a < middle && compare_slices(state, in, order[a], order[b]) <= 0)
                                ? order[a++]
                                : order[b++];
        }
        memcpy(order, buffer, (size_t)state->n * sizeof *order);
    }
}

/* Numbers the groups in the order they are written: sorted, or by first appearance. Returns how many there
 * are. */
static int64_t number_groups(const unique_state *state, const void *in, const int64_t *order, int64_t *group,
                             int64_t *first, int64_t *renumber)
{
    int64_t count = 0;
    for (int64_t k = 0; k < state->n; k++) {
        if (k == 0 || compare_slices(state, in, order[k - 1], order[k]) != 0)
            first[count++] = order[k];
        group[order[k]] = count - 1;
    }
    if (state->sorted)
        return count;
    int64_t next = 0;
    for (int64_t k = 0; k < count; k++)
        renumber[k] = -1;
    for (int64_t k = 0; k < state->n; k++) {
        if (renumber[group[k]] < 0) {
            first[next] = k;
            renumber[group[k]] = next++;
        }
        group[k] = renumber[group[k]];
    }
    return count;
}

static void write_unique(const unique_state *state, const char *in, const int64_t *first, int64_t count,
                         char *out)
{
    size_t piece = (size_t)state->inner * state->element_bytes;
    for (int64_t k = 0; k < state->outer; k++)
        for (int64_t j = 0; j < count; j++)
            memcpy(out + (size_t)(k * count + j) * piece, in + (size_t)(k * state->n + first[j]) * piece,
                   piece);
}

/* Outputs at the end may be left out altogether. */
static int64_t *unique_output(const unique_state *state, const cpu_call *call, uint32_t output)
{
    return output < state->output_count ? call->outputs[output] : NULL;
}

static gantry_status unique_run(const void *opaque, const cpu_call *call)
{
    const unique_state *state = opaque;
    int64_t *order = call->scratch, *buffer = order + state->n, *group = buffer + state->n,
            *first = group + state->n;
    for (int64_t k = 0; k < state->n; k++)
        order[k] = k;
    sort_slices(state, call->inputs[0], order, buffer);
    int64_t count = number_groups(state, call->inputs[0], order, group, first, buffer);
    if (count > state->limit)
        return GANTRY_INTERNAL;
    int64_t *indices = unique_output(state, call, 1), *inverse = unique_output(state, call, 2),
            *counts = unique_output(state, call, 3);
    if (call->outputs[0])
        write_unique(state, call->inputs[0], first, count, call->outputs[0]);
    if (indices)
        memcpy(indices, first, (size_t)count * sizeof *first);
    if (inverse)
        memcpy(inverse, group, (size_t)state->n * sizeof *group);
    if (counts) {
        memset(counts, 0, (size_t)count * sizeof *counts);
        for (int64_t k = 0; k < state->n; k++)
            counts[group[k]]++;
    }
    for (uint32_t output = 0; output < state->output_count && call->true_dims; output++) {
        int64_t *dims = call->true_dims[output];
        if (dims && output == 0)
            for (uint32_t axis = 0; axis < state->rank; axis++)
                dims[axis] = axis == state->axis ? count : state->dims[axis];
        else if (dims)
            dims[0] = output == 2 ? state->n : count;
    }
    return GANTRY_OK;
}

gantry_status cpu_make_unique(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    unique_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    bool flat = gantry_node_attribute(build->node, "axis") == NULL;
    *state = (unique_state){.rank = out->rank,
                            .output_count = build->output_count,
                            .flat = flat,
                            .outer = 1,
                            .n = in->count,
                            .inner = 1,
                            .sorted = gantry_node_int(build->node, "sorted", 1) != 0,
                            .dtype = in->dtype,
                            .element_bytes = cpu_dtype_size(in->dtype)};
    if (build->output_count > 4 || out->rank == 0)
        return cpu_unsupported(build, "more than four outputs");
    if (!flat) {
        GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", 0), in->rank, &state->axis));
        state->outer = cpu_product(in->dims, 0, state->axis);
        state->n = in->dims[state->axis];
        state->inner = cpu_product(in->dims, state->axis + 1, in->rank);
    }
    memcpy(state->dims, out->dims, out->rank * sizeof out->dims[0]);
    state->limit = out->dims[state->axis];
    *out_kernel = cpu_kernel_of(unique_run, state);
    out_kernel->scratch_bytes = 4 * (size_t)state->n * sizeof(int64_t);
    return GANTRY_OK;
}
