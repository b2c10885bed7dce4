/* Gather, GatherElements, GatherND, ScatterElements, ScatterND. OneHot and selections whose size depends on
 * data are in select.c, TopK and Unique in topk.c, NonMaxSuppression in nms.c.
 *
 * Indices come from the user's data: each is checked before it is used, and one out of range ends the run
 * with GANTRY_DATA. */
#include "indexing.h"

#include <stdatomic.h>

/* Index k of an int32 or int64 tensor, negative ones counted from the end; -1 when out of range. */
static inline int64_t index_at(const void *indices, bool wide, int64_t k, int64_t extent)
{
    int64_t index = wide ? ((const int64_t *)indices)[k] : ((const int32_t *)indices)[k];
    if (index < 0)
        index += extent;
    return index >= 0 && index < extent ? index : -1;
}

/* Copies n elements of one size. */
static inline void copy_elements(char *out, const char *in, size_t bytes)
{
    if (bytes == 4)
        memcpy(out, in, 4);
    else if (bytes == 8)
        memcpy(out, in, 8);
    else
        memcpy(out, in, bytes);
}

/* Ends a run on the first of input 1's indices that is out of range. Chunks only notice that there is one:
 * the text must not depend on who came first. */
static gantry_status name_bad_index(const cpu_call *call, bool wide, int64_t count, int64_t extent)
{
    int64_t k = 0;
    while (k + 1 < count && index_at(call->inputs[1], wide, k, extent) >= 0)
        k++;
    int64_t value = wide ? ((const int64_t *)call->inputs[1])[k] : ((const int32_t *)call->inputs[1])[k];
    return cpu_bad_value(call, 1, value, -extent, extent - 1);
}

/* ---- Gather ---------------------------------------------------------------------------------- */

typedef struct gather_state {
    int64_t outer, extent, index_count;
    size_t inner_bytes;
    bool wide;
} gather_state;

typedef struct gather_work {
    const gather_state *state;
    const char *in;
    const void *indices;
    char *out;
    atomic_bool bad;
} gather_work;

static void gather_chunk(void *arg, int64_t begin, int64_t end)
{
    gather_work *work = arg;
    const gather_state *state = work->state;
    for (int64_t k = begin; k < end; k++) {
        int64_t outer = k / state->index_count;
        int64_t index = index_at(work->indices, state->wide, k % state->index_count, state->extent);
        if (index < 0) {
            atomic_store_explicit(&work->bad, true, memory_order_relaxed);
            return;
        }
        copy_elements(work->out + (size_t)k * state->inner_bytes,
                      work->in + (size_t)(outer * state->extent + index) * state->inner_bytes,
                      state->inner_bytes);
    }
}

static gantry_status gather_run(const void *opaque, const cpu_call *call)
{
    const gather_state *state = opaque;
    gather_work work = {state, call->inputs[0], call->inputs[1], call->outputs[0], false};
    cpu_parallel(call, state->outer * state->index_count,
                 cpu_max64(1, (64 << 10) / (int64_t)(state->inner_bytes + 1)), gather_chunk, &work);
    return work.bad ? name_bad_index(call, state->wide, state->index_count, state->extent) : GANTRY_OK;
}

static gantry_status make_gather_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *indices = &build->inputs[1];
    uint32_t axis;
    gather_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", 0), in->rank, &axis));
    *state = (gather_state){.outer = cpu_product(in->dims, 0, axis),
                            .extent = in->dims[axis],
                            .index_count = indices->count,
                            .inner_bytes =
                                (size_t)cpu_product(in->dims, axis + 1, in->rank) * cpu_dtype_size(in->dtype),
                            .wide = indices->dtype == GANTRY_INT64};
    *out_kernel = cpu_kernel_of(gather_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)build->outputs[0].count);
    return GANTRY_OK;
}

static gantry_status make_gather(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_unpacked(build, make_gather_plain, out_kernel);
}

/* ---- GatherElements, ScatterElements: an index for each element ------------------------------ */

typedef void (*combine_fn)(void *target, const void *update);

typedef struct elements_state {
    uint32_t axis;
    int64_t extent, axis_stride; /* of the data */
    cpu_nest nest;               /* over indices; operand 0: indices, 1: data with stride 0 along axis */
    int64_t count;
    size_t element_bytes, data_bytes;
    bool wide;
    combine_fn combine; /* NULL: replace */
} elements_state;

/* Walks elements begin..end-1 of the indices. gather: out[k] = data[at]; else data[at] is combined with
 * updates[k]. */
static bool walk_elements(const elements_state *state, const void *indices, char *data, char *elements,
                          bool gather, int64_t begin, int64_t end)
{
    const cpu_nest *nest = &state->nest;
    cpu_nest_position position;
    if (begin >= end)
        return true;
    int64_t at = begin % nest->inner;
    cpu_nest_seek(nest, begin / nest->inner, &position);
    for (int64_t k = begin; k < end; k++) {
        int64_t index = index_at(indices, state->wide, k, state->extent);
        if (index < 0)
            return false;
        int64_t from = position.offset[1] + at * nest->step[1] + index * state->axis_stride;
        char *place = data + (size_t)from * state->element_bytes;
        char *element = elements + (size_t)k * state->element_bytes;
        if (gather)
            copy_elements(element, place, state->element_bytes);
        else if (state->combine)
            state->combine(place, element);
        else
            copy_elements(place, element, state->element_bytes);
        if (++at == nest->inner) {
            at = 0;
            cpu_nest_next(nest, &position);
        }
    }
    return true;
}

typedef struct elements_work {
    const elements_state *state;
    const void *indices;
    char *data, *elements;
    atomic_bool bad;
} elements_work;

static void gather_elements_chunk(void *arg, int64_t begin, int64_t end)
{
    elements_work *work = arg;
    if (!walk_elements(work->state, work->indices, work->data, work->elements, true, begin, end))
        atomic_store_explicit(&work->bad, true, memory_order_relaxed);
}

static gantry_status gather_elements_run(const void *opaque, const cpu_call *call)
{
    const elements_state *state = opaque;
    elements_work work = {state, call->inputs[1], (char *)(uintptr_t)call->inputs[0], call->outputs[0],
                          false};
    cpu_parallel(call, state->count, CPU_CHUNK_ELEMENTS, gather_elements_chunk, &work);
    return work.bad ? name_bad_index(call, state->wide, state->count, state->extent) : GANTRY_OK;
}

static gantry_status scatter_elements_run(const void *opaque, const cpu_call *call)
{
    const elements_state *state = opaque;
    if (call->outputs[0] != call->inputs[0])
        memcpy(call->outputs[0], call->inputs[0], state->data_bytes);
    bool good = walk_elements(state, call->inputs[1], call->outputs[0], (char *)(uintptr_t)call->inputs[2],
                              false, 0, state->count);
    return good ? GANTRY_OK : name_bad_index(call, state->wide, state->count, state->extent);
}

static gantry_status plan_elements(cpu_build *build, elements_state *state)
{
    const cpu_tensor *data = &build->inputs[0], *indices = &build->inputs[1];
    int64_t data_strides[GANTRY_MAX_RANK], index_strides[GANTRY_MAX_RANK];
    if (indices->rank != data->rank)
        return cpu_unsupported(build, "indices have rank %u and data %u", indices->rank, data->rank);
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", 0), data->rank, &state->axis));
    for (uint32_t k = 0; k < data->rank; k++)
        if (k != state->axis && indices->dims[k] > data->dims[k])
            return cpu_unsupported(build, "indices have %lld elements along axis %u, data %lld",
                                   (long long)indices->dims[k], k, (long long)data->dims[k]);
    cpu_strides(data->rank, data->dims, data_strides);
    cpu_strides(indices->rank, indices->dims, index_strides);
    state->extent = data->dims[state->axis];
    state->axis_stride = data_strides[state->axis];
    data_strides[state->axis] = 0;
    const int64_t *strides[2] = {index_strides, data_strides};
    cpu_nest_make(&state->nest, indices->rank, indices->dims, 2, strides);
    state->count = indices->count;
    state->element_bytes = cpu_dtype_size(data->dtype);
    state->data_bytes = (size_t)data->count * state->element_bytes;
    state->wide = indices->dtype == GANTRY_INT64;
    return GANTRY_OK;
}

static gantry_status make_gather_elements(cpu_build *build, cpu_kernel *out_kernel)
{
    elements_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(plan_elements(build, state));
    *out_kernel = cpu_kernel_of(gather_elements_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)state->count);
    return GANTRY_OK;
}

/* ---- reductions of scatter ------------------------------------------------------------------- */

#define COMBINE(how, suffix, type, expression)                                                               \
    static void how##_##suffix(void *target, const void *update)                                             \
    {                                                                                                        \
        const type a = *(const type *)target, b = *(const type *)update;                                     \
        *(type *)target = (type)(expression);                                                                \
    }
#define COMBINES(suffix, dtype, type, wide)                                                                  \
    COMBINE(add, suffix, type, (wide)a + (wide)b)                                                            \
    COMBINE(mul, suffix, type, (wide)a *(wide)b)                                                             \
    COMBINE(max, suffix, type, a > b || a != a ? a : b)                                                      \
    COMBINE(min, suffix, type, a < b || a != a ? a : b)
#define TYPES(X)                                                                                             \
    X(f32, FLOAT32, float, float)                                                                            \
    X(f64, FLOAT64, double, double)                                                                          \
    X(i8, INT8, int8_t, uint32_t)                                                                            \
    X(i16, INT16, int16_t, uint32_t)                                                                         \
    X(i32, INT32, int32_t, uint32_t)                                                                         \
    X(i64, INT64, int64_t, uint64_t)                                                                         \
    X(u8, UINT8, uint8_t, uint32_t)                                                                          \
    X(u16, UINT16, uint16_t, uint32_t) X(u32, UINT32, uint32_t, uint32_t) X(u64, UINT64, uint64_t, uint64_t)
TYPES(COMBINES)

#define ADD_ENTRY(suffix, dtype, type, wide) [GANTRY_##dtype] = add_##suffix,
#define MUL_ENTRY(suffix, dtype, type, wide) [GANTRY_##dtype] = mul_##suffix,
#define MAX_ENTRY(suffix, dtype, type, wide) [GANTRY_##dtype] = max_##suffix,
#define MIN_ENTRY(suffix, dtype, type, wide) [GANTRY_##dtype] = min_##suffix,
static const struct {
    const char *name;
    combine_fn functions[GANTRY_DTYPE_COUNT];
} combines[] = {{"add", {TYPES(ADD_ENTRY)}},
                {"mul", {TYPES(MUL_ENTRY)}},
                {"max", {TYPES(MAX_ENTRY)}},
                {"min", {TYPES(MIN_ENTRY)}}};

/* The function of attribute "reduction"; NULL in *out_combine for "none". */
static gantry_status find_combine(cpu_build *build, combine_fn *out_combine)
{
    const char *reduction = gantry_node_string(build->node, "reduction", "none");
    *out_combine = NULL;
    if (strcmp(reduction, "none") == 0)
        return GANTRY_OK;
    for (size_t k = 0; k < sizeof combines / sizeof combines[0]; k++)
        if (strcmp(combines[k].name, reduction) == 0)
            *out_combine = combines[k].functions[build->inputs[0].dtype];
    if (!*out_combine)
        return cpu_unsupported(build, "no reduction \"%s\" for element type %d", reduction,
                               (int)build->inputs[0].dtype);
    return GANTRY_OK;
}

static gantry_status make_scatter_elements_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    elements_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(plan_elements(build, state));
    GT_TRY(find_combine(build, &state->combine));
    if (build->inputs[2].count != build->inputs[1].count)
        return cpu_unsupported(build, "updates and indices differ in size");
    *out_kernel = cpu_kernel_of(scatter_elements_run, state);
    out_kernel->overwrite_input = 0;
    out_kernel->overwrite_alone = true;
    return GANTRY_OK;
}

/* Half floats are widened only when they are computed with. */
static gantry_status make_scatter(cpu_build *build, cpu_make_fn make, cpu_kernel *out_kernel)
{
    if (strcmp(gantry_node_string(build->node, "reduction", "none"), "none") != 0)
        return cpu_make_widened(build, make, out_kernel);
    return make(build, out_kernel);
}

static gantry_status make_scatter_elements(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_scatter(build, make_scatter_elements_plain, out_kernel);
}

/* ---- GatherND, ScatterND: index tuples ------------------------------------------------------- */

typedef struct tuples_state {
    int64_t batches, tuples;                                 /* tuples of one batch */
    uint32_t depth;                                          /* indices of a tuple */
    int64_t dims[GANTRY_MAX_RANK], strides[GANTRY_MAX_RANK]; /* of the indexed axes; strides in slices */
    int64_t batch_slices;                                    /* slices of one batch of data */
    int64_t slice;                                           /* elements */
    size_t element_bytes, data_bytes;
    bool wide;
    combine_fn combine;
} tuples_state;

/* The slice a tuple names, or -1. */
static int64_t tuple_slice(const tuples_state *state, const void *indices, int64_t tuple)
{
    int64_t at = 0;
    for (uint32_t k = 0; k < state->depth; k++) {
        int64_t index = index_at(indices, state->wide, tuple * state->depth + k, state->dims[k]);
        if (index < 0)
            return -1;
        at += index * state->strides[k];
    }
    return at;
}

/* Ends a run on the first index that is out of range. */
static gantry_status name_bad_tuple(const tuples_state *state, const cpu_call *call)
{
    const void *indices = call->inputs[1];
    int64_t tuple = 0, last = state->batches * state->tuples - 1;
    while (tuple < last && tuple_slice(state, indices, tuple) >= 0)
        tuple++;
    uint32_t k = 0;
    while (k + 1 < state->depth &&
           index_at(indices, state->wide, tuple * state->depth + k, state->dims[k]) >= 0)
        k++;
    int64_t at = tuple * state->depth + k;
    int64_t value = state->wide ? ((const int64_t *)indices)[at] : ((const int32_t *)indices)[at];
    return cpu_bad_value(call, 1, value, -state->dims[k], state->dims[k] - 1);
}

typedef struct tuples_work {
    const tuples_state *state;
    const char *data;
    const void *indices;
    char *out;
    atomic_bool bad;
} tuples_work;

static void gather_nd_chunk(void *arg, int64_t begin, int64_t end)
{
    tuples_work *work = arg;
    const tuples_state *state = work->state;
    size_t slice_bytes = (size_t)state->slice * state->element_bytes;
    for (int64_t k = begin; k < end; k++) {
        int64_t slice = tuple_slice(state, work->indices, k);
        if (slice < 0) {
            atomic_store_explicit(&work->bad, true, memory_order_relaxed);
            return;
        }
        slice += k / state->tuples * state->batch_slices;
        copy_elements(work->out + (size_t)k * slice_bytes, work->data + (size_t)slice * slice_bytes,
                      slice_bytes);
    }
}

static gantry_status gather_nd_run(const void *opaque, const cpu_call *call)
{
    const tuples_state *state = opaque;
    tuples_work work = {state, call->inputs[0], call->inputs[1], call->outputs[0], false};
    cpu_parallel(call, state->batches * state->tuples,
                 cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, state->slice)), gather_nd_chunk, &work);
    return work.bad ? name_bad_tuple(state, call) : GANTRY_OK;
}

static gantry_status scatter_nd_run(const void *opaque, const cpu_call *call)
{
    const tuples_state *state = opaque;
    size_t slice_bytes = (size_t)state->slice * state->element_bytes;
    char *out = call->outputs[0];
    const char *updates = call->inputs[2];
    if (out != call->inputs[0])
        memcpy(out, call->inputs[0], state->data_bytes);
    for (int64_t k = 0; k < state->tuples; k++) {
        int64_t slice = tuple_slice(state, call->inputs[1], k);
        if (slice < 0)
            return name_bad_tuple(state, call);
        char *target = out + (size_t)slice * slice_bytes;
        const char *update = updates + (size_t)k * slice_bytes;
        if (!state->combine)
            copy_elements(target, update, slice_bytes);
        else
            for (size_t at = 0; at < slice_bytes; at += state->element_bytes)
                state->combine(target + at, update + at);
    }
    return GANTRY_OK;
}

static gantry_status plan_tuples(cpu_build *build, uint32_t batch_rank, tuples_state **out_state)
{
    const cpu_tensor *data = &build->inputs[0], *indices = &build->inputs[1];
    tuples_state *state = *out_state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    int64_t depth = indices->rank ? indices->dims[indices->rank - 1] : 0;
    if (indices->rank == 0 || batch_rank >= indices->rank || batch_rank + depth > (int64_t)data->rank)
        return cpu_unsupported(build, "tuples of %lld indices for data of rank %u", (long long)depth,
                               data->rank);
    *state = (tuples_state){.depth = (uint32_t)depth,
                            .batches = cpu_product(indices->dims, 0, batch_rank),
                            .tuples = cpu_product(indices->dims, batch_rank, indices->rank - 1),
                            .slice = cpu_product(data->dims, batch_rank + (uint32_t)depth, data->rank),
                            .batch_slices = cpu_product(data->dims, batch_rank, batch_rank + (uint32_t)depth),
                            .element_bytes = cpu_dtype_size(data->dtype),
                            .wide = indices->dtype == GANTRY_INT64};
    state->data_bytes = (size_t)data->count * state->element_bytes;
    memcpy(state->dims, data->dims + batch_rank, (size_t)depth * sizeof data->dims[0]);
    cpu_strides(state->depth, state->dims, state->strides);
    return GANTRY_OK;
}

static gantry_status make_gather_nd(cpu_build *build, cpu_kernel *out_kernel)
{
    tuples_state *state;
    int64_t batch_rank = gantry_node_int(build->node, "batch_dims", 0);
    if (batch_rank < 0 || batch_rank >= (int64_t)build->inputs[0].rank)
        return cpu_unsupported(build, "batch_dims is %lld for data of rank %u", (long long)batch_rank,
                               build->inputs[0].rank);
    GT_TRY(plan_tuples(build, (uint32_t)batch_rank, &state));
    *out_kernel = cpu_kernel_of(gather_nd_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)build->outputs[0].count);
    return GANTRY_OK;
}

static gantry_status make_scatter_nd_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    tuples_state *state;
    GT_TRY(plan_tuples(build, 0, &state));
    GT_TRY(find_combine(build, &state->combine));
    if (build->inputs[2].count != state->tuples * state->slice)
        return cpu_unsupported(build, "updates have %lld elements, the indices name %lld",
                               (long long)build->inputs[2].count, (long long)(state->tuples * state->slice));
    *out_kernel = cpu_kernel_of(scatter_nd_run, state);
    out_kernel->overwrite_input = 0;
    out_kernel->overwrite_alone = true;
    return GANTRY_OK;
}

static gantry_status make_scatter_nd(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_scatter(build, make_scatter_nd_plain, out_kernel);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define MOVED (CPU_ANY_BYTES | CPU_BIT(GANTRY_COMPLEX128))

static const cpu_op_row rows[] = {
    {.op = "Gather",
     .domain = "",
     .types = {CPU_EVERY & ~CPU_BIT(GANTRY_STRING), CPU_INDEX},
     .make = make_gather},
    {.op = "GatherElements", .domain = "", .types = {MOVED, CPU_INDEX}, .make = make_gather_elements},
    {.op = "GatherND", .domain = "", .types = {MOVED, CPU_BIT(GANTRY_INT64)}, .make = make_gather_nd},
    {.op = "ScatterElements",
     .domain = "",
     .types = {MOVED, CPU_INDEX, MOVED},
     .make = make_scatter_elements},
    {.op = "Scatter", .domain = "", .types = {MOVED, CPU_INDEX, MOVED}, .make = make_scatter_elements},
    {.op = "ScatterND",
     .domain = "",
     .types = {MOVED, CPU_BIT(GANTRY_INT64), MOVED},
     .make = make_scatter_nd},
    {.op = "OneHot", .domain = "", .types = {CPU_NUMBERS, CPU_NUMBERS, MOVED}, .make = cpu_make_one_hot},
    {.op = "TopK", .domain = "", .types = {CPU_ALL_NUMBERS, CPU_BIT(GANTRY_INT64)}, .make = cpu_make_topk},
    {.op = "NonZero", .domain = "", .types = {CPU_ALL_NUMBERS | CPU_TRUTH}, .make = cpu_make_nonzero},
    {.op = "Compress", .domain = "", .types = {MOVED, CPU_TRUTH}, .make = cpu_make_compress},
    {.op = "Unique", .domain = "", .types = {CPU_ALL_NUMBERS | CPU_TRUTH}, .make = cpu_make_unique},
    {.op = "ReverseSequence",
     .domain = "",
     .types = {MOVED, CPU_BIT(GANTRY_INT64)},
     .make = cpu_make_reverse_sequence},
    {.op = "TensorScatter",
     .domain = "",
     .types = {MOVED, MOVED, CPU_BIT(GANTRY_INT64)},
     .make = cpu_make_tensor_scatter},
    {.op = "NonMaxSuppression",
     .domain = "",
     .types = {CPU_BIT(GANTRY_FLOAT32), CPU_BIT(GANTRY_FLOAT32), CPU_EVERY},
     .make = cpu_make_nms},
};

cpu_op_family cpu_indexing_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
