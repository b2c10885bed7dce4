/* MaxPool, AveragePool, LpPool and the global pools: through oneDNN in the layout the input has, else plain
 * loops (indices, integers, float64, windows that hang over the declared padding). */
#include "dnnl_kernel.h"
#include "program_layout.h"
#include "reduce.h"
#include "window.h"

#include <math.h>

typedef struct pool_state {
    cpu_window window;
    gantry_dtype dtype;
    int64_t planes; /* batch * channels */
    bool average, include_pad, column_major, indices;
    int64_t norm; /* LpPool: its p; 0 for the others */
} pool_state;

/* ---- plain loops ----------------------------------------------------------------------------- */

/* The window of one output position, cut to the input: bounds per dim and the count of positions that an
 * average divides by. */
typedef struct pool_range {
    int64_t begin[CPU_MAX_SPATIAL], step[CPU_MAX_SPATIAL], count[CPU_MAX_SPATIAL];
    int64_t divisor;
} pool_range;

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* What a sum becomes: a mean, or for LpPool the p-th root. */
static double finish_sum(const pool_state *s, double sum, int64_t divisor)
{
    if (s->norm)
        return s->norm == 1 ? sum : s->norm == 2 ? sqrt(sum) : pow(sum, 1.0 / (double)s->norm);
    return divisor ? sum / (double)divisor : 0;
}

static double addend(const pool_state *s, double v)
{
    return s->norm == 0 ? v : s->norm == 1 ? fabs(v) : s->norm == 2 ? v * v : pow(fabs(v), (double)s->norm);
}

static pool_range range_at(const pool_state *s, int64_t position)
{
    const cpu_window *w = &s->window;
    pool_range r = {.divisor = 1};
    for (uint32_t k = w->rank; k-- > 0;) {
        int64_t out = position % w->out[k], dilation = w->dilation[k];
        position /= w->out[k];
        int64_t from = out * w->stride[k] - w->pad[k], to = from + cpu_window_range(w, k);
        int64_t first = from < 0 ? ceil_div(-from, dilation) : 0;
        int64_t limit = to > w->in[k] ? w->in[k] : to;
        int64_t padded_limit = w->in[k] + w->declared_end[k] < to ? w->in[k] + w->declared_end[k] : to;
        r.begin[k] = from + first * dilation;
        r.step[k] = dilation;
        r.count[k] = limit > r.begin[k] ? ceil_div(limit - r.begin[k], dilation) : 0;
        r.divisor *=
            s->include_pad ? (padded_limit > from ? ceil_div(padded_limit - from, dilation) : 0) : r.count[k];
    }
    for (uint32_t k = w->rank; k < CPU_MAX_SPATIAL; k++)
        r.count[k] = 1;
    return r;
}

/* Element `(i, j, l)` of a range, as an index into the plane: row-major, or column-major for MaxPool's
 * storage_order 1. */
static int64_t plane_index(const cpu_window *w, const pool_range *r, const int64_t *at, bool column_major)
{
    int64_t flat = 0;
    for (uint32_t k = 0; k < CPU_MAX_SPATIAL && k < w->rank; k++) {
        uint32_t dim = column_major ? w->rank - 1 - k : k;
        flat = flat * w->in[dim] + r->begin[dim] + at[dim] * r->step[dim];
    }
    return flat;
}

#define POOL_PLANE(name, type, lowest, is_nan)                                                               \
    static void name(const pool_state *s, const void *x_, void *y_, int64_t *indices, int64_t plane)         \
    {                                                                                                        \
        const cpu_window *w = &s->window;                                                                    \
        int64_t in = cpu_window_product(w->in, w->rank), out = cpu_window_product(w->out, w->rank);          \
        const type *x = (const type *)x_ + plane * in;                                                       \
        type *y = (type *)y_ + plane * out;                                                                  \
        for (int64_t p = 0; p < out; p++) {                                                                  \
            pool_range r = range_at(s, p);                                                                   \
            int64_t at[CPU_MAX_SPATIAL], best_index = 0;                                                     \
            double sum = 0;                                                                                  \
            type best = lowest;                                                                              \
            bool first = true;                                                                               \
            for (at[0] = 0; at[0] < r.count[0]; at[0]++)                                                     \
                for (at[1] = 0; at[1] < r.count[1]; at[1]++)                                                 \
                    for (at[2] = 0; at[2] < r.count[2]; at[2]++) {                                           \
                        type v = x[plane_index(w, &r, at, false)];                                           \
                        sum += addend(s, (double)v);                                                         \
                        if (first || v > best || is_nan(v)) {                                                \
                            best = v;                                                                        \
                            best_index = plane_index(w, &r, at, s->column_major);                            \
                            first = false;                                                                   \
                        }                                                                                    \
                    }                                                                                        \
            y[p] = s->average ? (type)finish_sum(s, sum, r.divisor) : best;                                  \
            if (indices)                                                                                     \
                indices[plane * out + p] = plane * in + best_index;                                          \
        }                                                                                                    \
    }

#define NEVER_NAN(v) false
POOL_PLANE(plane_float32, float, -INFINITY, isnan)
POOL_PLANE(plane_float64, double, -INFINITY, isnan)
POOL_PLANE(plane_int8, int8_t, INT8_MIN, NEVER_NAN)
POOL_PLANE(plane_uint8, uint8_t, 0, NEVER_NAN)

typedef void (*plane_fn)(const pool_state *s, const void *x, void *y, int64_t *indices, int64_t plane);
static const plane_fn plane_fns[GANTRY_DTYPE_COUNT] = {[GANTRY_FLOAT32] = plane_float32,
                                                       [GANTRY_FLOAT64] = plane_float64,
                                                       [GANTRY_INT8] = plane_int8,
                                                       [GANTRY_UINT8] = plane_uint8};

typedef struct pool_job {
    const pool_state *state;
    const cpu_call *call;
    int64_t *indices;
} pool_job;

static void plain_planes(void *arg, int64_t begin, int64_t end)
{
    const pool_job *job = arg;
    for (int64_t k = begin; k < end; k++)
        plane_fns[job->state->dtype](job->state, job->call->inputs[0], job->call->outputs[0], job->indices,
                                     k);
}

static gantry_status plain_run(const void *self, const cpu_call *call)
{
    const pool_state *state = self;
    pool_job job = {state, call, NULL};
    if (state->indices)
        job.indices = call->outputs[1];
    cpu_parallel(call, state->planes, 1, plain_planes, &job);
    return GANTRY_OK;
}

static gantry_status make_plain(cpu_build *build, const pool_state *pool, cpu_kernel *out_kernel)
{
    if (!plane_fns[pool->dtype])
        return cpu_unsupported(build, "no pool for %s", cpu_dtype_name(pool->dtype));
    pool_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    *state = *pool;
    state->indices = build->output_count > 1 && build->outputs[1].present;
    for (uint32_t k = 0; k < build->output_count; k++)
        build->outputs[k].layout = CPU_PLAIN;
    build->inputs[0].layout = CPU_PLAIN;
    *out_kernel = cpu_kernel_of(plain_run, state);
    out_kernel->threads = build->outputs[0].count < CPU_TINY_ELEMENTS ? 1 : build->threads;
    out_kernel->accumulate = pool->average ? GANTRY_FLOAT64 : pool->dtype;
    return GANTRY_OK;
}

/* ---- oneDNN ---------------------------------------------------------------------------------- */

static gantry_status make_in_layout(cpu_build *build, const pool_state *pool, cpu_layout layout,
                                    const_dnnl_primitive_attr_t attributes, cpu_kernel *out_kernel)
{
    const cpu_window *w = &pool->window;
    dnnl_dims_t strides, kernel, dilates, pads, pads_end;
    for (uint32_t k = 0; k < w->rank; k++) {
        strides[k] = w->stride[k];
        kernel[k] = w->kernel[k];
        dilates[k] = w->dilation[k] - 1;
        pads[k] = w->pad[k];
        pads_end[k] = w->pad_end[k];
    }
    dnnl_alg_kind_t algorithm = !pool->average      ? dnnl_pooling_max
                                : pool->include_pad ? dnnl_pooling_avg_include_padding
                                                    : dnnl_pooling_avg_exclude_padding;
    dnnl_memory_desc_t x = cpu_dnnl_describe_tensor(build, &build->inputs[0], layout);
    dnnl_memory_desc_t y = cpu_dnnl_describe_tensor(build, &build->outputs[0], layout);
    dnnl_primitive_desc_t descriptor = NULL;
    gantry_status status = GANTRY_UNSUPPORTED;
    if (x && y &&
        dnnl_pooling_forward_primitive_desc_create(&descriptor, cpu_dnnl_engine(build),
                                                   dnnl_forward_inference, algorithm, x, y, strides, kernel,
                                                   dilates, pads, pads_end, attributes) == dnnl_success) {
        cpu_dnnl_arg args[] = {{DNNL_ARG_SRC, CPU_DNNL_INPUT, 0, NULL, x},
                               {DNNL_ARG_DST, CPU_DNNL_OUTPUT, 0, NULL, y}};
        status = cpu_dnnl_kernel(build, descriptor, args, 2, -1, out_kernel);
    }
    dnnl_primitive_desc_destroy(descriptor);
    dnnl_memory_desc_destroy(x);
    dnnl_memory_desc_destroy(y);
    if (status == GANTRY_OK)
        build->inputs[0].layout = build->outputs[0].layout = layout;
    return status;
}

/* A window that hangs over the declared padding divides by other counts than oneDNN's average does, and one
 * that lies in padding only has no maximum. */
static bool fits_dnnl(const cpu_build *build, const pool_state *pool)
{
    const cpu_window *w = &pool->window;
    bool bytes = !pool->average && build->program && cpu_dtype_bits(pool->dtype) == 8;
    if (pool->norm || (pool->dtype != GANTRY_FLOAT32 && !bytes) || !cpu_dnnl_engine(build) ||
        build->inputs[0].count == 0 || (build->output_count > 1 && build->outputs[1].present))
        return false;
    for (uint32_t k = 0; k < w->rank; k++)
        if ((pool->average && w->pad_end[k] != w->declared_end[k]) || w->pad[k] >= cpu_window_range(w, k) ||
            w->pad_end[k] >= cpu_window_range(w, k) || w->pad_end[k] < 0)
            return false;
    return true;
}

static gantry_status make_pool(cpu_build *build, const pool_state *pool, cpu_kernel *out_kernel)
{
    gantry_status status = GANTRY_UNSUPPORTED;
    if (fits_dnnl(build, pool)) {
        int residual, threads = build->inputs[0].count < CPU_TINY_ELEMENTS ? 1 : build->threads;
        cpu_layout private = cpu_private_layout(&build->inputs[0]);
        cpu_layout first = private == CPU_NHWC ? private : build->inputs[0].layout;
        dnnl_primitive_attr_t attributes = cpu_dnnl_attributes(build, &residual);
        int before = cpu_dnnl_enter(build, threads);
        status = make_in_layout(build, pool, first, attributes, out_kernel);
        if (status == GANTRY_UNSUPPORTED)
            status =
                make_in_layout(build, pool, first == CPU_PLAIN ? private : CPU_PLAIN, attributes, out_kernel);
        cpu_dnnl_leave(before);
        dnnl_primitive_attr_destroy(attributes);
        out_kernel->threads = threads;
    }
    return status == GANTRY_UNSUPPORTED ? make_plain(build, pool, out_kernel) : status;
}

/* ---- the operators --------------------------------------------------------------------------- */

static gantry_status make_window_pool(cpu_build *build, bool average, int64_t norm, cpu_kernel *out_kernel)
{
    const cpu_tensor *x = &build->inputs[0];
    const gantry_attribute *kernel = gantry_node_attribute(build->node, "kernel_shape");
    pool_state pool = {.dtype = x->dtype,
                       .average = average,
                       .norm = norm,
                       .include_pad = average && gantry_node_int(build->node, "count_include_pad", 0) != 0,
                       .column_major = gantry_node_int(build->node, "storage_order", 0) != 0};
    if (!kernel || kernel->kind != GANTRY_ATTR_INTS)
        return cpu_unsupported(build, "kernel_shape is missing");
    GT_TRY(cpu_window_read(build, kernel->ints, kernel->count, &pool.window));
    GT_TRY(cpu_window_fit(build, &pool.window));
    pool.planes = x->dims[0] * x->dims[1];
    return make_pool(build, &pool, out_kernel);
}

static gantry_status make_max_pool(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_window_pool(build, false, 0, out_kernel);
}

static gantry_status make_average_pool(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_window_pool(build, true, 0, out_kernel);
}

/* All spatial dims in one window; more than three are one long dim. */
static gantry_status make_global(cpu_build *build, bool average, int64_t norm, cpu_kernel *out_kernel)
{
    const cpu_tensor *x = &build->inputs[0];
    pool_state pool = {.dtype = x->dtype, .average = average, .norm = norm};
    if (x->rank < 3)
        return cpu_unsupported(build, "the input has rank %u; 3 or more is needed", x->rank);
    /* oneDNN's kernel for plain planes is ten times slower than a reduction of rows. */
    if (norm == 0 && x->dtype == GANTRY_FLOAT32 && x->layout == CPU_PLAIN)
        return cpu_make_reduce(build, out_kernel);
    pool.planes = x->dims[0] * x->dims[1];
    bool folded = x->rank - 2 > CPU_MAX_SPATIAL;
    pool.window.rank = folded ? 1 : x->rank - 2;
    for (uint32_t k = 0; k < pool.window.rank; k++) {
        int64_t extent = x->dims[2 + k];
        for (uint32_t j = 3; folded && j < x->rank; j++)
            extent *= x->dims[j];
        pool.window.in[k] = pool.window.kernel[k] = extent;
        pool.window.out[k] = pool.window.stride[k] = pool.window.dilation[k] = 1;
    }
    return folded ? make_plain(build, &pool, out_kernel) : make_pool(build, &pool, out_kernel);
}

static gantry_status make_global_average(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_global(build, true, 0, out_kernel);
}

static gantry_status make_global_max(cpu_build *build, cpu_kernel *out_kernel)
{
    return make_global(build, false, 0, out_kernel);
}

static gantry_status read_norm(cpu_build *build, int64_t *out_norm)
{
    *out_norm = gantry_node_int(build->node, "p", 2);
    return *out_norm < 1 ? cpu_unsupported(build, "p is %lld", (long long)*out_norm) : GANTRY_OK;
}

static gantry_status make_lp_pool(cpu_build *build, cpu_kernel *out_kernel)
{
    int64_t norm;
    GT_TRY(read_norm(build, &norm));
    return make_window_pool(build, true, norm, out_kernel);
}

static gantry_status make_global_lp(cpu_build *build, cpu_kernel *out_kernel)
{
    int64_t norm;
    GT_TRY(read_norm(build, &norm));
    return make_global(build, true, norm, out_kernel);
}

#define MAX_POOL_TYPES (CPU_FLOATS | CPU_BIT(GANTRY_INT8) | CPU_BIT(GANTRY_UINT8))

static const cpu_op_row rows[] = {
    {"MaxPool", "", {MAX_POOL_TYPES}, make_max_pool, NULL, NULL, CPU_ROW_PICKS_LAYOUT},
    {"AveragePool", "", {CPU_FLOATS}, make_average_pool, NULL, NULL, CPU_ROW_PICKS_LAYOUT},
    {"LpPool", "", {CPU_FLOATS}, make_lp_pool, NULL, NULL, CPU_ROW_PICKS_LAYOUT},
    {"GlobalLpPool", "", {CPU_FLOATS}, make_global_lp, NULL, NULL, CPU_ROW_PICKS_LAYOUT},
    {"GlobalAveragePool", "", {CPU_FLOATS}, make_global_average, NULL, NULL, CPU_ROW_PICKS_LAYOUT},
    {"GlobalMaxPool", "", {CPU_FLOATS}, make_global_max, NULL, NULL, CPU_ROW_PICKS_LAYOUT},
};

cpu_op_family cpu_pool_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof *rows};
}
