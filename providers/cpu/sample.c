/* GridSample and RoiAlign: values of an image at positions that are data. Computed in float32. */
#include "image.h"

#include <math.h>

/* ---- GridSample ------------------------------------------------------------------------------ */

typedef enum padding_mode { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION } padding_mode;
typedef enum sample_mode { SAMPLE_NEAREST, SAMPLE_LINEAR, SAMPLE_CUBIC } sample_mode;

/* Spatial axes: with four taps an axis that is 64 points of the image for one of the output. */
#define GRID_AXES 3
#define GRID_POINTS 64

typedef struct grid_state {
    uint32_t axes;
    int64_t batches, channels, dims[GRID_AXES], strides[GRID_AXES];
    int64_t in_plane, out_plane; /* elements of one channel */
    bool align_corners;
    padding_mode padding;
    sample_mode mode;
} grid_state;

typedef struct grid_work {
    const grid_state *state;
    const float *in, *grid;
    float *out;
} grid_work;

static float reflect(float x, float low, float high)
{
    float range = high - low;
    if (range <= 0)
        return low;
    if (x < low) {
        float over = low - x, times = truncf(over / range), rest = over - times * range;
        return fmodf(times, 2) == 0 ? low + rest : high - rest;
    }
    if (x > high) {
        float over = x - high, times = truncf(over / range), rest = over - times * range;
        return fmodf(times, 2) == 0 ? high - rest : low + rest;
    }
    return x;
}

/* The image index a whole position stands for, or -1 for zero padding. */
static int64_t padded_index(const grid_state *state, int64_t at, int64_t extent)
{
    if (at >= 0 && at < extent)
        return at;
    if (state->padding == PAD_ZEROS)
        return -1;
    if (state->padding == PAD_REFLECTION) {
        float low = state->align_corners ? 0 : -0.5f;
        at = (int64_t)reflect((float)at, low, (float)(extent - 1) - low);
    }
    return at < 0 ? 0 : at >= extent ? extent - 1 : at;
}

typedef struct axis_taps {
    int count;
    int64_t index[4];
    float weight[4];
} axis_taps;

static float limit_position(const grid_state *state, float x, int64_t extent)
{
    float low = state->align_corners ? 0 : -0.5f, high = (float)(extent - 1) - low;
    if (!(x >= low && x <= high)) {
        if (state->padding == PAD_BORDER)
            return x > 0 ? (x < (float)(extent - 1) ? x : (float)(extent - 1)) : 0;
        if (state->padding == PAD_REFLECTION)
            return isfinite(x) ? reflect(x, low, high) : 0;
    }
    return x;
}

static void cubic_weights(float t, float *w)
{
    const float a = -0.75f;
    float u = t + 1, v = 1 - t, z = 2 - t;
    w[0] = ((a * u - 5 * a) * u + 8 * a) * u - 4 * a;
    w[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    w[2] = ((a + 2) * v - (a + 3)) * v * v + 1;
    w[3] = ((a * z - 5 * a) * z + 8 * a) * z - 4 * a;
}

/* position: in -1..1. Far away and NaN positions hit nothing but padding. */
static void find_taps(const grid_state *state, float position, int64_t extent, axis_taps *taps)
{
    float x = state->align_corners ? (position + 1) / 2 * (float)(extent - 1)
                                   : ((position + 1) * (float)extent - 1) / 2;
    if (state->mode == SAMPLE_NEAREST)
        x = rintf(x);
    x = limit_position(state, x, extent);
    if (!(x > -0x1p30f && x < 0x1p30f))
        x = -0x1p20f;
    float low = floorf(x), rest = x - low;
    int64_t at = (int64_t)low;
    if (state->mode == SAMPLE_NEAREST) {
        *taps = (axis_taps){1, {padded_index(state, (int64_t)rintf(x), extent)}, {1}};
    } else if (state->mode == SAMPLE_LINEAR) {
        *taps = (axis_taps){
            2, {padded_index(state, at, extent), padded_index(state, at + 1, extent)}, {1 - rest, rest}};
    } else {
        taps->count = 4;
        for (int k = 0; k < 4; k++)
            taps->index[k] = padded_index(state, at - 1 + k, extent);
        cubic_weights(rest, taps->weight);
    }
}

/* Image points and weights of one output point. Returns how many. */
static int find_points(const grid_state *state, const float *position, int64_t *offset, float *weight)
{
    int count = 1;
    offset[0] = 0;
    weight[0] = 1;
    for (uint32_t axis = 0; axis < state->axes; axis++) {
        axis_taps taps;
        int next = 0;
        int64_t offsets[GRID_POINTS];
        float weights[GRID_POINTS];
        find_taps(state, position[state->axes - 1 - axis], state->dims[axis], &taps);
        for (int k = 0; k < count; k++)
            for (int t = 0; t < taps.count; t++)
                if (taps.index[t] >= 0) {
                    offsets[next] = offset[k] + taps.index[t] * state->strides[axis];
                    weights[next++] = weight[k] * taps.weight[t];
                }
        count = next;
        memcpy(offset, offsets, (size_t)count * sizeof *offset);
        memcpy(weight, weights, (size_t)count * sizeof *weight);
    }
    return count;
}

static void grid_chunk(void *arg, int64_t begin, int64_t end)
{
    const grid_work *work = arg;
    const grid_state *state = work->state;
    for (int64_t k = begin; k < end; k++) {
        int64_t offset[GRID_POINTS], batch = k / state->out_plane, at = k % state->out_plane;
        float weight[GRID_POINTS];
        int count = find_points(state, work->grid + k * state->axes, offset, weight);
        const float *in = work->in + batch * state->channels * state->in_plane;
        float *out = work->out + batch * state->channels * state->out_plane + at;
        for (int64_t c = 0; c < state->channels; c++) {
            float sum = 0;
            for (int p = 0; p < count; p++)
                sum += weight[p] * in[c * state->in_plane + offset[p]];
            out[c * state->out_plane] = sum;
        }
    }
}

static gantry_status grid_run(const void *opaque, const cpu_call *call)
{
    const grid_state *state = opaque;
    grid_work work = {state, call->inputs[0], call->inputs[1], call->outputs[0]};
    cpu_parallel(call, state->batches * state->out_plane,
                 cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, 4 * state->channels)), grid_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_grid_f32(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *grid = &build->inputs[1];
    const char *mode = gantry_node_string(build->node, "mode", "linear");
    const char *padding = gantry_node_string(build->node, "padding_mode", "zeros");
    grid_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (in->rank < 3 || in->rank > 2 + GRID_AXES || grid->rank != in->rank ||
        grid->dims[grid->rank - 1] != (int64_t)in->rank - 2 || grid->dims[0] != in->dims[0])
        return cpu_unsupported(build, "needs 1 to %d spatial axes and a grid that fits", GRID_AXES);
    *state = (grid_state){.axes = in->rank - 2,
                          .batches = in->dims[0],
                          .channels = in->dims[1],
                          .in_plane = cpu_product(in->dims, 2, in->rank),
                          .out_plane = cpu_product(grid->dims, 1, grid->rank - 1),
                          .align_corners = gantry_node_int(build->node, "align_corners", 0) != 0,
                          .padding = padding[0] == 'b'   ? PAD_BORDER
                                     : padding[0] == 'r' ? PAD_REFLECTION
                                                         : PAD_ZEROS,
                          .mode = mode[0] == 'n'                                   ? SAMPLE_NEAREST
                                  : mode[0] == 'c' || strcmp(mode, "bicubic") == 0 ? SAMPLE_CUBIC
                                                                                   : SAMPLE_LINEAR};
    memcpy(state->dims, in->dims + 2, state->axes * sizeof in->dims[0]);
    cpu_strides(state->axes, state->dims, state->strides);
    *out_kernel = cpu_kernel_of(grid_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)build->outputs[0].count * 4);
    return GANTRY_OK;
}

gantry_status cpu_make_grid_sample(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[2] = {GANTRY_FLOAT32, GANTRY_FLOAT32}, out_types[1] = {GANTRY_FLOAT32};
    return cpu_make_converted(build, make_grid_f32, in_types, out_types, out_kernel);
}

/* ---- RoiAlign -------------------------------------------------------------------------------- */

typedef struct roi_state {
    int64_t batches, channels, height, width, rois, out_height, out_width;
    int64_t sampling;
    float scale;
    bool half_pixel, maximum;
} roi_state;

typedef struct roi_work {
    const roi_state *state;
    const float *in, *rois;
    const int64_t *batches;
    float *out;
} roi_work;

/* Four neighbours of a position; count 0 outside. */
typedef struct roi_point {
    int64_t offset[4];
    float weight[4];
} roi_point;

static bool roi_neighbours(const roi_state *state, float y, float x, roi_point *point)
{
    if (!(y >= -1 && y <= (float)state->height && x >= -1 && x <= (float)state->width))
        return false;
    y = y > 0 ? y : 0;
    x = x > 0 ? x : 0;
    int64_t y0 = (int64_t)y, x0 = (int64_t)x, y1 = y0 + 1, x1 = x0 + 1;
    if (y0 >= state->height - 1) {
        y0 = y1 = state->height - 1;
        y = (float)y0;
    }
    if (x0 >= state->width - 1) {
        x0 = x1 = state->width - 1;
        x = (float)x0;
    }
    float ly = y - (float)y0, lx = x - (float)x0, hy = 1 - ly, hx = 1 - lx;
    *point = (roi_point){
        {y0 * state->width + x0, y0 * state->width + x1, y1 * state->width + x0, y1 * state->width + x1},
        {hy * hx, hy * lx, ly * hx, ly * lx}};
    return true;
}

/* One bin of one channel: the mean or the largest over its sampling points. */
static float roi_bin(const roi_state *state, const float *plane, float y, float x, float bin_y, float bin_x,
                     int64_t grid_y, int64_t grid_x)
{
    float sum = 0, most = 0;
    bool first = true;
    for (int64_t j = 0; j < grid_y; j++)
        for (int64_t k = 0; k < grid_x; k++) {
            roi_point p;
            if (!roi_neighbours(state, y + ((float)j + 0.5f) * bin_y / (float)grid_y,
                                x + ((float)k + 0.5f) * bin_x / (float)grid_x, &p))
                p = (roi_point){{0}, {0}};
            float value = 0, largest = -INFINITY;
            for (int n = 0; n < 4; n++) {
                float part = p.weight[n] * plane[p.offset[n]];
                value += part;
                largest = part > largest ? part : largest;
            }
            sum += value;
            most = first || largest > most ? largest : most;
            first = false;
        }
    int64_t count = grid_y * grid_x;
    return state->maximum ? most : count ? sum / (float)count : 0;
}

static void roi_chunk(void *arg, int64_t begin, int64_t end)
{
    const roi_work *work = arg;
    const roi_state *state = work->state;
    float offset = state->half_pixel ? 0.5f : 0;
    for (int64_t item = begin; item < end; item++) {
        int64_t roi = item / state->channels;
        const float *r = work->rois + roi * 4;
        const float *plane = work->in + (work->batches[roi] * state->channels + item % state->channels) *
                                            state->height * state->width;
        float x = r[0] * state->scale - offset, y = r[1] * state->scale - offset;
        float w = r[2] * state->scale - offset - x, h = r[3] * state->scale - offset - y;
        if (!state->half_pixel) {
            w = w > 1 ? w : 1;
            h = h > 1 ? h : 1;
        }
        float bin_y = h / (float)state->out_height, bin_x = w / (float)state->out_width;
        /* Without a fixed number of points: one for each pixel of a bin. Wild boxes are bounded by the image.
         */
        float most = (float)(state->height + state->width + 2);
        int64_t grid_y = state->sampling > 0 ? state->sampling : (int64_t)fminf(fmaxf(ceilf(bin_y), 0), most);
        int64_t grid_x = state->sampling > 0 ? state->sampling : (int64_t)fminf(fmaxf(ceilf(bin_x), 0), most);
        float *out = work->out + item * state->out_height * state->out_width;
        for (int64_t j = 0; j < state->out_height; j++)
            for (int64_t k = 0; k < state->out_width; k++)
                *out++ = roi_bin(state, plane, y + (float)j * bin_y, x + (float)k * bin_x, bin_y, bin_x,
                                 grid_y, grid_x);
    }
}

static gantry_status roi_run(const void *opaque, const cpu_call *call)
{
    const roi_state *state = opaque;
    roi_work work = {state, call->inputs[0], call->inputs[1], call->inputs[2], call->outputs[0]};
    for (int64_t k = 0; k < state->rois; k++)
        if (work.batches[k] < 0 || work.batches[k] >= state->batches)
            return cpu_bad_value(call, 2, work.batches[k], 0, state->batches - 1);
    cpu_parallel(call, state->rois * state->channels, 4, roi_chunk, &work);
    return GANTRY_OK;
}

static gantry_status make_roi_f32(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *rois = &build->inputs[1], *out = &build->outputs[0];
    roi_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (in->rank != 4 || rois->rank != 2 || rois->dims[1] != 4 || build->inputs[2].count != rois->dims[0] ||
        out->rank != 4 || in->dims[2] < 1 || in->dims[3] < 1)
        return cpu_unsupported(build, "needs an image [N, C, H, W], rois [R, 4] and R batch indices");
    const char *mode = gantry_node_string(build->node, "coordinate_transformation_mode",
                                          build->node->version >= 16 ? "half_pixel" : "output_half_pixel");
    *state = (roi_state){.batches = in->dims[0],
                         .channels = in->dims[1],
                         .height = in->dims[2],
                         .width = in->dims[3],
                         .rois = rois->dims[0],
                         .out_height = out->dims[2],
                         .out_width = out->dims[3],
                         .sampling = gantry_node_int(build->node, "sampling_ratio", 0),
                         .scale = gantry_node_float(build->node, "spatial_scale", 1),
                         .half_pixel = strcmp(mode, "half_pixel") == 0,
                         .maximum = strcmp(gantry_node_string(build->node, "mode", "avg"), "max") == 0};
    *out_kernel = cpu_kernel_of(roi_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)out->count * 16);
    return GANTRY_OK;
}

gantry_status cpu_make_roi_align(cpu_build *build, cpu_kernel *out_kernel)
{
    gantry_dtype in_types[3] = {GANTRY_FLOAT32, GANTRY_FLOAT32, GANTRY_INT64},
                 out_types[1] = {GANTRY_FLOAT32};
    return cpu_make_converted(build, make_roi_f32, in_types, out_types, out_kernel);
}
