/* ArgMax, ArgMin, CumSum and CumProd: walks along one axis of [outer, n, inner]. */
#include "reduce.h"

#include "half.h"
#include "native_types.h"

typedef struct scan_state {
    int64_t outer, n, inner;
    void (*walk)(const struct scan_state *state, const void *in, void *out, int64_t outer);
    bool last;               /* Arg: the last of equal ones */
    bool exclusive, reverse; /* Cum */
    gantry_dtype axis_dtype;
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
    size_t in_bytes, out_bytes;
} scan_state;

typedef struct scan_work {
    const scan_state *state;
    const char *in;
    char *out;
    int64_t out_n;
} scan_work;

/* better: x replaces the best so far. NaN beats everything and the first NaN stays, as numpy has it. */
#define ARG(name, suffix, type, better)                                                                      \
    static void name##_##suffix(const scan_state *state, const void *in, void *out, int64_t outer)           \
    {                                                                                                        \
        for (int64_t j = 0; j < state->inner; j++) {                                                         \
            const type *column = (const type *)in + j;                                                       \
            int64_t best_index = 0;                                                                          \
            type best = state->n ? column[0] : 0;                                                            \
            for (int64_t k = 1; k < state->n; k++) {                                                         \
                const type x = column[k * state->inner];                                                     \
                if ((better) || (x != x && best == best) || (state->last && x == best)) {                    \
                    best = x;                                                                                \
                    best_index = k;                                                                          \
                }                                                                                            \
            }                                                                                                \
            ((int64_t *)out)[j] = best_index;                                                                \
        }                                                                                                    \
    }
#define ARGS(suffix, dtype, type)                                                                            \
    ARG(arg_max, suffix, type, x > best)                                                                     \
    ARG(arg_min, suffix, type, x < best)

CPU_NATIVE_TYPES(ARGS)

/* wide: an accumulator that wraps instead of overflowing. */
#define CUMULATE(name, suffix, type, wide, start, expression)                                                \
    static void name##_##suffix(const scan_state *state, const void *in, void *out, int64_t outer)           \
    {                                                                                                        \
        for (int64_t j = 0; j < state->inner; j++) {                                                         \
            wide a = start;                                                                                  \
            for (int64_t k = 0; k < state->n; k++) {                                                         \
                int64_t at = (state->reverse ? state->n - 1 - k : k) * state->inner + j;                     \
                const wide x = (wide)((const type *)in)[at];                                                 \
                wide next = expression;                                                                      \
                ((type *)out)[at] = (type)(state->exclusive ? a : next);                                     \
                a = next;                                                                                    \
            }                                                                                                \
        }                                                                                                    \
    }
#define CUMULATES(suffix, dtype, type, wide)                                                                 \
    CUMULATE(cum_sum, suffix, type, wide, 0, a + x)                                                          \
    CUMULATE(cum_prod, suffix, type, wide, 1, a *x)
#define CUM_TYPES(X)                                                                                         \
    X(f32, FLOAT32, float, double)                                                                           \
    X(f64, FLOAT64, double, double)                                                                          \
    X(i32, INT32, int32_t, uint32_t)                                                                         \
    X(i64, INT64, int64_t, uint64_t) X(u32, UINT32, uint32_t, uint32_t) X(u64, UINT64, uint64_t, uint64_t)
CUM_TYPES(CUMULATES)

typedef void (*walk_fn)(const scan_state *state, const void *in, void *out, int64_t outer);
#define ARG_MAX_ENTRY(suffix, dtype, type) [GANTRY_##dtype] = arg_max_##suffix,
#define ARG_MIN_ENTRY(suffix, dtype, type) [GANTRY_##dtype] = arg_min_##suffix,
#define CUM_SUM_ENTRY(suffix, dtype, type, wide) [GANTRY_##dtype] = cum_sum_##suffix,
#define CUM_PROD_ENTRY(suffix, dtype, type, wide) [GANTRY_##dtype] = cum_prod_##suffix,
static const walk_fn walks[4][GANTRY_DTYPE_COUNT] = {{CPU_NATIVE_TYPES(ARG_MAX_ENTRY)},
                                                     {CPU_NATIVE_TYPES(ARG_MIN_ENTRY)},
                                                     {CUM_TYPES(CUM_SUM_ENTRY)},
                                                     {CUM_TYPES(CUM_PROD_ENTRY)}};

static void scan_chunk(void *arg, int64_t begin, int64_t end)
{
    const scan_work *work = arg;
    const scan_state *state = work->state;
    for (int64_t k = begin; k < end; k++)
        state->walk(state, work->in + (size_t)(k * state->n * state->inner) * state->in_bytes,
                    work->out + (size_t)(k * work->out_n * state->inner) * state->out_bytes, k);
}

static gantry_status arg_run(const void *opaque, const cpu_call *call)
{
    const scan_state *state = opaque;
    scan_work work = {state, call->inputs[0], call->outputs[0], 1};
    cpu_parallel(call, state->outer, cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, state->n * state->inner)),
                 scan_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_arg(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    uint32_t axis;
    scan_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(cpu_resolve_axis(build, gantry_node_int(build->node, "axis", 0), in->rank, &axis));
    *state = (scan_state){.outer = cpu_product(in->dims, 0, axis),
                          .n = in->dims[axis],
                          .inner = cpu_product(in->dims, axis + 1, in->rank),
                          .walk = walks[strcmp(build->node->op, "ArgMin") == 0][in->dtype],
                          .last = gantry_node_int(build->node, "select_last_index", 0) != 0,
                          .in_bytes = cpu_dtype_size(in->dtype),
                          .out_bytes = sizeof(int64_t)};
    if (!state->walk)
        return cpu_unsupported(build, "no kernel for element type %d", (int)in->dtype);
    *out_kernel = cpu_kernel_of(arg_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count);
    return GANTRY_OK;
}

gantry_status cpu_make_arg(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_arg, out_kernel);
}

/* The axis is an input: the extents around it are found when it is read. */
static gantry_status cumulate_run(const void *opaque, const cpu_call *call)
{
    const scan_state *prepared = opaque;
    scan_state state = *prepared;
    int64_t axis = cpu_load_int(state.axis_dtype, call->inputs[1], 0);
    if (axis < 0)
        axis += state.rank;
    if (axis < 0 || axis >= (int64_t)state.rank)
        return cpu_bad_value(call, 1, axis < 0 ? axis - state.rank : axis, -(int64_t)state.rank,
                             (int64_t)state.rank - 1);
    state.outer = cpu_product(state.dims, 0, (uint32_t)axis);
    state.n = state.dims[axis];
    state.inner = cpu_product(state.dims, (uint32_t)axis + 1, state.rank);
    scan_work work = {&state, call->inputs[0], call->outputs[0], state.n};
    cpu_parallel(call, state.outer, cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, state.n * state.inner)),
                 scan_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_cumulate(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    bool product = strcmp(build->node->op, "CumProd") == 0;
    scan_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *state = (scan_state){.walk = walks[product ? 3 : 2][in->dtype],
                          .exclusive = gantry_node_int(build->node, "exclusive", 0) != 0,
                          .reverse = gantry_node_int(build->node, "reverse", 0) != 0,
                          .axis_dtype = build->inputs[1].dtype,
                          .rank = in->rank,
                          .in_bytes = cpu_dtype_size(in->dtype),
                          .out_bytes = cpu_dtype_size(in->dtype)};
    memcpy(state->dims, in->dims, in->rank * sizeof in->dims[0]);
    if (!state->walk)
        return cpu_unsupported(build, "no kernel for element type %d", (int)in->dtype);
    *out_kernel = cpu_kernel_of(cumulate_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count);
    return GANTRY_OK;
}

gantry_status cpu_make_cumulate(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_cumulate, out_kernel);
}
