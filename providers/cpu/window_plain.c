/* Windows computed by plain loops: LpPool, GlobalLpPool, Col2Im and MaxUnpool; and AffineGrid. */
#include "image.h"

#include "window.h"

#include <math.h>

/* ---- LpPool: (sum |x|^p)^(1/p) over a window ------------------------------------------------- */

typedef struct lp_pool_state {
    int64_t planes, in_plane, out_plane;
    int64_t in[CPU_MAX_SPATIAL], out[CPU_MAX_SPATIAL], kernel[CPU_MAX_SPATIAL], stride[CPU_MAX_SPATIAL],
        dilation[CPU_MAX_SPATIAL], pad[CPU_MAX_SPATIAL]; /* of three axes; the leading ones 1 */
    double p;
} lp_pool_state;

typedef struct lp_pool_work {
    const lp_pool_state *state;
    const float *in;
    float *out;
} lp_pool_work;

static double lp_window(const lp_pool_state *s, const float *plane, int64_t at)
{
    int64_t origin[CPU_MAX_SPATIAL];
    double sum = 0;
    for (int k = CPU_MAX_SPATIAL; k-- > 0; at /= s->out[k])
        origin[k] = at % s->out[k] * s->stride[k] - s->pad[k];
    for (int64_t tap = 0; tap < s->kernel[0] * s->kernel[1] * s->kernel[2]; tap++) {
        int64_t i2 = origin[2] + tap % s->kernel[2] * s->dilation[2];
        int64_t i1 = origin[1] + tap / s->kernel[2] % s->kernel[1] * s->dilation[1];
        int64_t i0 = origin[0] + tap / s->kernel[2] / s->kernel[1] * s->dilation[0];
        if (i0 >= 0 && i0 < s->in[0] && i1 >= 0 && i1 < s->in[1] && i2 >= 0 && i2 < s->in[2])
            sum += pow(fabs((double)plane[(i0 * s->in[1] + i1) * s->in[2] + i2]), s->p);
    }
    return pow(sum, 1 / s->p);
}

static void lp_pool_chunk(void *arg, int64_t begin, int64_t end)
{
    const lp_pool_work *work = arg;
    const lp_pool_state *s = work->state;
    for (int64_t k = begin; k < end; k++)
        work->out[k] = (float)lp_window(s, work->in + k / s->out_plane * s->in_plane, k % s->out_plane);
}

static gantry_status lp_pool_run(const void *opaque, const cpu_call *call)
{
    const lp_pool_state *s = opaque;
    lp_pool_work work = {s, call->inputs[0], call->outputs[0]};
    cpu_parallel(call, s->planes * s->out_plane, 256, lp_pool_chunk, &work);
    return GANTRY_OK;
}

/* A global pool is one window over everything. */
static gantry_status read_window(cpu_build *build, const cpu_tensor *in, cpu_window *window)
{
    uint32_t rank;
    const int64_t *kernel = cpu_ints(build->node, "kernel_shape", &rank);
    if (strcmp(build->node->op, "GlobalLpPool") != 0)
        return kernel ? cpu_window_read(build, kernel, rank, window)
                      : cpu_unsupported(build, "kernel_shape is missing");
    *window = (cpu_window){.rank = in->rank - 2};
    for (uint32_t k = 0; k < window->rank; k++) {
        window->in[k] = window->kernel[k] = in->dims[k + 2];
        window->out[k] = window->stride[k] = window->dilation[k] = 1;
    }
    return GANTRY_OK;
}

static gantry_status make_lp_pool_f32(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    cpu_window window;
    lp_pool_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (in->rank < 3 || in->rank > 2 + CPU_MAX_SPATIAL)
        return cpu_unsupported(build, "needs 1 to %d spatial axes", CPU_MAX_SPATIAL);
    GT_TRY(read_window(build, in, &window));
    s->planes = in->dims[0] * in->dims[1];
    s->p = (double)gantry_node_int(build->node, "p", 2);
    for (uint32_t k = 0; k < CPU_MAX_SPATIAL; k++) {
        bool real = k + window.rank >= CPU_MAX_SPATIAL;
        uint32_t axis = real ? k + window.rank - CPU_MAX_SPATIAL : 0;
        s->in[k] = real ? window.in[axis] : 1;
        s->out[k] = real ? window.out[axis] : 1;
        s->kernel[k] = real ? window.kernel[axis] : 1;
        s->stride[k] = real ? window.stride[axis] : 1;
        s->dilation[k] = real ? window.dilation[axis] : 1;
        s->pad[k] = real ? window.pad[axis] : 0;
    }
    s->in_plane = cpu_product(s->in, 0, CPU_MAX_SPATIAL);
    s->out_plane = cpu_product(s->out, 0, CPU_MAX_SPATIAL);
    *out_kernel = cpu_kernel_of(lp_pool_run, s);
    out_kernel->threads = cpu_threads_for(build, (double)in->count * 4);
    return GANTRY_OK;
}

gantry_status cpu_make_lp_pool(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[1] = {GANTRY_FLOAT32}, out_types[1] = {GANTRY_FLOAT32};
    return cpu_make_converted(build, make_lp_pool_f32, in_types, out_types, out_kernel);
}

/* ---- Col2Im: columns of windows are added where the windows lay ------------------------------ */

typedef struct col2im_state {
    uint32_t rank;
    int64_t planes, plane, taps, windows;
    int64_t image[GANTRY_MAX_RANK], block[GANTRY_MAX_RANK], columns[GANTRY_MAX_RANK];
    int64_t stride[GANTRY_MAX_RANK], dilation[GANTRY_MAX_RANK], pad[GANTRY_MAX_RANK];
} col2im_state;

/* Offset in the image of tap `tap` of window `window`, or -1 in the padding. */
static int64_t col2im_place(const col2im_state *s, int64_t tap, int64_t window)
{
    int64_t offset = 0, stride = 1;
    for (uint32_t k = s->rank; k-- > 0;) {
        int64_t at = window % s->columns[k] * s->stride[k] + tap % s->block[k] * s->dilation[k] - s->pad[k];
        window /= s->columns[k];
        tap /= s->block[k];
        if (at < 0 || at >= s->image[k])
            return -1;
        offset += at * stride;
        stride *= s->image[k];
    }
    return offset;
}

static gantry_status col2im_run(const void *opaque, const cpu_call *call)
{
    const col2im_state *s = opaque;
    const float *in = call->inputs[0];
    float *out = call->outputs[0];
    memset(out, 0, (size_t)(s->planes * s->plane) * sizeof *out);
    for (int64_t plane = 0; plane < s->planes; plane++)
        for (int64_t tap = 0; tap < s->taps; tap++)
            for (int64_t window = 0; window < s->windows; window++, in++) {
                int64_t place = col2im_place(s, tap, window);
                if (place >= 0)
                    out[plane * s->plane + place] += *in;
            }
    return GANTRY_OK;
}

static gantry_status make_col2im_f32(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    uint32_t rank, count;
    bool given;
    col2im_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(cpu_ints_operand(build, "", 1, s->image, GANTRY_MAX_RANK, &rank, &given));
    GT_TRY(cpu_ints_operand(build, "", 2, s->block, GANTRY_MAX_RANK, &count, &given));
    const int64_t *pads = cpu_ints(build->node, "pads", &count), *strides, *dilations;
    strides = cpu_ints(build->node, "strides", &count);
    dilations = cpu_ints(build->node, "dilations", &count);
    if (in->rank != 3 || rank == 0)
        return cpu_unsupported(build, "needs columns [batch, channels * taps, windows]");
    s->rank = rank;
    s->taps = cpu_product(s->block, 0, rank);
    s->plane = cpu_product(s->image, 0, rank);
    s->windows = 1;
    for (uint32_t k = 0; k < rank; k++) {
        s->stride[k] = strides ? strides[k] : 1;
        s->dilation[k] = dilations ? dilations[k] : 1;
        s->pad[k] = pads ? pads[k] : 0;
        int64_t padded = s->image[k] + s->pad[k] + (pads ? pads[rank + k] : 0);
        s->columns[k] =
            s->stride[k] > 0 ? (padded - s->dilation[k] * (s->block[k] - 1) - 1) / s->stride[k] + 1 : 0;
        s->windows *= s->columns[k];
    }
    if (s->windows != in->dims[2] || s->taps < 1 || in->dims[1] % s->taps)
        return cpu_unsupported(build, "%lld windows of %lld taps do not fit the input", (long long)s->windows,
                               (long long)s->taps);
    s->planes = in->dims[0] * (in->dims[1] / s->taps);
    *out_kernel = cpu_kernel_of(col2im_run, s);
    return GANTRY_OK;
}

gantry_status cpu_make_col2im(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[3] = {GANTRY_FLOAT32, GANTRY_INT64, GANTRY_INT64}, out_types[1] = {GANTRY_FLOAT32};
    return cpu_make_converted(build, make_col2im_f32, in_types, out_types, out_kernel);
}

/* ---- MaxUnpool: elements go back to where a MaxPool found them ------------------------------- */

typedef struct unpool_state {
    uint32_t rank;
    int64_t count, inferred_count;
    int64_t inferred[GANTRY_MAX_RANK], out_strides[GANTRY_MAX_RANK];
    size_t bytes, out_bytes;
} unpool_state;

static gantry_status unpool_run(const void *opaque, const cpu_call *call)
{
    const unpool_state *s = opaque;
    const int64_t *indices = call->inputs[1];
    memset(call->outputs[0], 0, s->out_bytes);
    for (int64_t k = 0; k < s->count; k++) {
        int64_t rest = indices[k], place = 0;
        if (rest < 0 || rest >= s->inferred_count)
            return cpu_bad_value(call, 1, rest, 0, s->inferred_count - 1);
        for (uint32_t axis = s->rank; axis-- > 0; rest /= s->inferred[axis])
            place += rest % s->inferred[axis] * s->out_strides[axis];
        memcpy((char *)call->outputs[0] + (size_t)place * s->bytes,
               (const char *)call->inputs[0] + (size_t)k * s->bytes, s->bytes);
    }
    return GANTRY_OK;
}

/* Indices count in the shape that the pool had; an output shape that is larger keeps it in its corner. */
gantry_status cpu_make_max_unpool(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    uint32_t rank, count;
    const int64_t *kernel = cpu_ints(build->node, "kernel_shape", &rank);
    const int64_t *strides = cpu_ints(build->node, "strides", &count), *pads;
    pads = cpu_ints(build->node, "pads", &count);
    unpool_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (!kernel || in->rank != rank + 2 || out->rank != in->rank || build->inputs[1].count != in->count)
        return cpu_unsupported(build, "kernel_shape or indices do not fit the input");
    *s = (unpool_state){.rank = in->rank,
                        .count = in->count,
                        .inferred = {in->dims[0], in->dims[1]},
                        .bytes = cpu_dtype_size(in->dtype)};
    for (uint32_t k = 0; k < rank; k++)
        s->inferred[k + 2] = (in->dims[k + 2] - 1) * (strides ? strides[k] : 1) -
                             (pads ? pads[k] + pads[rank + k] : 0) + kernel[k];
    for (uint32_t k = 0; k < in->rank; k++)
        if (s->inferred[k] > out->dims[k] || s->inferred[k] < 1)
            return cpu_unsupported(build, "axis %u needs %lld elements, the output has %lld", k,
                                   (long long)s->inferred[k], (long long)out->dims[k]);
    s->inferred_count = cpu_product(s->inferred, 0, in->rank);
    cpu_strides(out->rank, out->dims, s->out_strides);
    s->out_bytes = (size_t)out->count * s->bytes;
    *out_kernel = cpu_kernel_of(unpool_run, s);
    return GANTRY_OK;
}

/* ---- AffineGrid: the positions of an image, moved by a matrix -------------------------------- */

typedef struct affine_state {
    uint32_t axes;
    int64_t batches, points, dims[3]; /* depth, height, width */
    bool align_corners;
} affine_state;

/* Position `at` of an axis of n, in -1..1. */
static double grid_position(int64_t at, int64_t n, bool align_corners)
{
    if (align_corners)
        return n > 1 ? -1 + 2 * (double)at / (double)(n - 1) : -1;
    return (2 * (double)at + 1) / (double)n - 1;
}

static gantry_status affine_run(const void *opaque, const cpu_call *call)
{
    const affine_state *s = opaque;
    for (int64_t k = 0; k < s->batches * s->points; k++) {
        const float *theta = (const float *)call->inputs[0] + k / s->points * s->axes * (s->axes + 1);
        float *out = (float *)call->outputs[0] + k * s->axes;
        double position[4] = {0}; /* x, y, z, 1 */
        int64_t rest = k % s->points;
        for (uint32_t axis = 0; axis < s->axes; axis++) { /* x changes fastest */
            int64_t n = s->dims[s->axes - 1 - axis];
            position[axis] = grid_position(rest % n, n, s->align_corners);
            rest /= n;
        }
        position[s->axes] = 1;
        for (uint32_t row = 0; row < s->axes; row++) {
            double sum = 0;
            for (uint32_t column = 0; column <= s->axes; column++)
                sum += (double)theta[row * (s->axes + 1) + column] * position[column];
            out[row] = (float)sum;
        }
    }
    return GANTRY_OK;
}

static gantry_status make_affine_f32(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *theta = &build->inputs[0], *out = &build->outputs[0];
    affine_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if ((out->rank != 4 && out->rank != 5) || theta->rank != 3 ||
        theta->count != out->dims[0] * (out->rank - 2) * (out->rank - 1))
        return cpu_unsupported(build, "needs matrices [N, 2, 3] or [N, 3, 4]");
    *s = (affine_state){.axes = out->rank - 2,
                        .batches = out->dims[0],
                        .points = cpu_product(out->dims, 1, out->rank - 1),
                        .align_corners = gantry_node_int(build->node, "align_corners", 0) != 0};
    memcpy(s->dims, out->dims + 1, s->axes * sizeof out->dims[0]);
    *out_kernel = cpu_kernel_of(affine_run, s);
    return GANTRY_OK;
}

gantry_status cpu_make_affine_grid(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[2] = {GANTRY_FLOAT32, GANTRY_INT64}, out_types[1] = {GANTRY_FLOAT32};
    return cpu_make_converted(build, make_affine_f32, in_types, out_types, out_kernel);
}
