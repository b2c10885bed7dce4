/* DFT, STFT and the window functions. Transforms are done in double, whatever the type of the signal: the
 * expected zeros of a float32 transform leave no room for float32 rounding.
 *
 * The transform splits its length by the smallest prime factor p into p shorter ones (decimation in time); a
 * prime length costs its square. */
#include "kernels.h"

#include <math.h>

typedef struct complex64 {
    double re, im;
} complex64;

/* out[0..n-1] = transform of in[0], in[stride], ...; turns: e^(-2 pi i k / whole), spare: p elements for each
 * level. */
static void transform(const complex64 *in, int64_t stride, int64_t n, complex64 *out, const complex64 *turns,
                      int64_t whole, complex64 *spare)
{
    if (n == 1) {
        out[0] = in[0];
        return;
    }
    int64_t p = 2;
    while (n % p)
        p = p * p > n ? n : p + 1;
    int64_t m = n / p;
    for (int64_t r = 0; r < p; r++)
        transform(in + r * stride, stride * p, m, out + r * m, turns, whole, spare);
    for (int64_t k = 0; k < m; k++) {
        for (int64_t r = 0; r < p; r++)
            spare[r] = out[r * m + k];
        for (int64_t q = 0; q < p; q++) {
            complex64 sum = spare[0];
            int64_t step = (k + q * m) * (whole / n) % whole, at = 0;
            for (int64_t r = 1; r < p; r++) {
                at += step;
                at = at >= whole ? at - whole : at;
                sum.re += spare[r].re * turns[at].re - spare[r].im * turns[at].im;
                sum.im += spare[r].re * turns[at].im + spare[r].im * turns[at].re;
            }
            out[q * m + k] = sum;
        }
    }
}

static complex64 *make_turns(cpu_build *build, int64_t n)
{
    const double pi = 3.14159265358979323846;
    complex64 *turns = cpu_state(build, (size_t)n * sizeof *turns + 1);
    for (int64_t k = 0; turns && k < n; k++) {
        /* By the eighth of the circle, so that quarter turns are exact. */
        double angle = 2 * pi * (double)k / (double)n;
        turns[k] = (complex64){cos(angle), -sin(angle)};
        if (4 * k % n == 0)
            turns[k] = (complex64){rint(turns[k].re), rint(turns[k].im)};
        else if (8 * k % n == 0)
            turns[k] = (complex64){copysign(sqrt(0.5), turns[k].re), copysign(sqrt(0.5), turns[k].im)};
    }
    return turns;
}

/* ---- DFT over one axis of [outer, length, inner, parts]; STFT: frames of [batch, length, 1, parts]  */

typedef struct dft_state {
    gantry_dtype dtype;
    int64_t n; /* of the transform */
    const complex64 *turns;
    int64_t outer, in_length, inner, in_parts;
    int64_t out_length, out_parts;
    bool inverse, half_in; /* half_in: the input is one half of a spectrum, the output real */
    int64_t frames, step;  /* STFT: 0 frames for a DFT */
    bool has_window;
    int64_t window_length;
    int64_t chunk;
} dft_state;

/* Chunks of the work, each with buffers of its own. */
#define CHUNKS 16
/* Buffers of a chunk: input, output, spare. */
#define BUFFERS 3

typedef struct dft_work {
    const dft_state *state;
    const cpu_call *call;
} dft_work;

static double load(const dft_state *s, const cpu_call *call, uint32_t input, int64_t at)
{
    return s->dtype == GANTRY_FLOAT32 ? (double)((const float *)call->inputs[input])[at]
                                      : ((const double *)call->inputs[input])[at];
}

static void store(const dft_state *s, const cpu_call *call, int64_t at, double x)
{
    if (s->dtype == GANTRY_FLOAT32)
        ((float *)call->outputs[0])[at] = (float)x;
    else
        ((double *)call->outputs[0])[at] = x;
}

/* Element `at` of lane (outer, inner), with zeros behind the end. */
static complex64 signal_at(const dft_state *s, const cpu_call *call, int64_t outer, int64_t inner, int64_t at)
{
    if (at >= s->in_length)
        return (complex64){0, 0};
    int64_t base = ((outer * s->in_length + at) * s->inner + inner) * s->in_parts;
    return (complex64){load(s, call, 0, base), s->in_parts > 1 ? load(s, call, 0, base + 1) : 0};
}

static void fill_lane(const dft_state *s, const cpu_call *call, int64_t outer, int64_t inner, complex64 *in)
{
    for (int64_t k = 0; k < s->n; k++) {
        bool mirror = s->half_in && k > s->n / 2;
        in[k] = signal_at(s, call, outer, inner, mirror ? s->n - k : k);
        if (mirror)
            in[k].im = -in[k].im;
        if (s->half_in && (k == 0 || 2 * k == s->n))
            in[k].im = 0;
        if (s->inverse) /* the inverse is the conjugate of the transform of the conjugate, divided by n */
            in[k].im = -in[k].im;
    }
}

static void fill_frame(const dft_state *s, const cpu_call *call, int64_t batch, int64_t frame, complex64 *in)
{
    for (int64_t k = 0; k < s->n; k++) {
        complex64 x =
            k < s->window_length ? signal_at(s, call, batch, 0, frame * s->step + k) : (complex64){0, 0};
        double w = s->has_window && k < s->window_length ? load(s, call, 2, k) : 1;
        in[k] = (complex64){x.re * w, x.im * w};
    }
}

static void dft_chunk(void *arg, int64_t begin, int64_t end)
{
    const dft_work *work = arg;
    const dft_state *s = work->state;
    complex64 *in = (complex64 *)work->call->scratch + begin / s->chunk * BUFFERS * s->n, *out = in + s->n,
              *spare = out + s->n;
    int64_t lanes = s->frames ? s->frames : s->inner;
    for (int64_t k = begin; k < end; k++) {
        int64_t outer = k / lanes, lane = k % lanes;
        if (s->frames)
            fill_frame(s, work->call, outer, lane, in);
        else
            fill_lane(s, work->call, outer, lane, in);
        transform(in, 1, s->n, out, s->turns, s->n, spare);
        double scale = s->inverse ? 1.0 / (double)s->n : 1.0;
        for (int64_t j = 0; j < s->out_length; j++) {
            int64_t at = s->frames ? k * s->out_length + j : (outer * s->out_length + j) * s->inner + lane;
            store(s, work->call, at * s->out_parts, out[j].re * scale);
            if (s->out_parts > 1)
                store(s, work->call, at * s->out_parts + 1, (s->inverse ? -out[j].im : out[j].im) * scale);
        }
    }
}

static gantry_status dft_run(const void *opaque, const cpu_call *call)
{
    dft_work work = {opaque, call};
    const dft_state *s = opaque;
    cpu_parallel(call, s->outer * (s->frames ? s->frames : s->inner), s->chunk, dft_chunk, &work);
    return GANTRY_OK;
}

static gantry_status finish_dft(cpu_build *build, dft_state *s, cpu_kernel *out_kernel)
{
    int64_t items = s->outer * (s->frames ? s->frames : s->inner);
    if (s->n < 1 || s->out_length > s->n || (s->in_parts != 1 && s->in_parts != 2))
        return cpu_unsupported(build, "a transform of length %lld does not fit", (long long)s->n);
    s->turns = make_turns(build, s->n);
    if (!s->turns)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    s->chunk = cpu_max64(1, (items + CHUNKS - 1) / CHUNKS);
    *out_kernel = cpu_kernel_of(dft_run, s);
    out_kernel->scratch_bytes = CHUNKS * BUFFERS * (size_t)s->n * sizeof(complex64);
    out_kernel->threads = cpu_threads_for(build, (double)items * (double)s->n * 16);
    out_kernel->accumulate = GANTRY_FLOAT64;
    return GANTRY_OK;
}

/* One integer operand; *out_given is false when it is left out. */
static gantry_status read_int(cpu_build *build, const char *what, uint32_t input, int64_t *out_value,
                              bool *out_given)
{
    uint32_t count = 0;
    const cpu_tensor *tensor = cpu_input(build, input);
    *out_given = tensor != NULL;
    if (!tensor)
        return GANTRY_OK;
    if (!cpu_read_ints(tensor, out_value, 1, &count) || count != 1)
        return cpu_unsupported(build, "%s is not known before the run; it must be a constant or a shape",
                               what);
    return GANTRY_OK;
}

static gantry_status make_dft(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    bool late = build->node->version >= 20, given;
    uint32_t axis;
    int64_t wanted = late ? -2 : gantry_node_int(build->node, "axis", 1);
    dft_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (late)
        GT_TRY(read_int(build, "axis", 2, &wanted, &given));
    GT_TRY(cpu_resolve_axis(build, wanted, in->rank, &axis));
    if (in->rank < 2 || axis == in->rank - 1 || out->rank != in->rank)
        return cpu_unsupported(build, "the last axis holds the real and imaginary parts");
    bool onesided = gantry_node_int(build->node, "onesided", 0) != 0;
    *s = (dft_state){.dtype = in->dtype,
                     .outer = cpu_product(in->dims, 0, axis),
                     .in_length = in->dims[axis],
                     .inner = cpu_product(in->dims, axis + 1, in->rank - 1),
                     .in_parts = in->dims[in->rank - 1],
                     .out_length = out->dims[axis],
                     .out_parts = out->dims[in->rank - 1],
                     .inverse = gantry_node_int(build->node, "inverse", 0) != 0};
    s->half_in = s->inverse && onesided;
    GT_TRY(read_int(build, "dft_length", 1, &s->n, &given));
    if (!given)
        s->n = s->half_in ? 2 * (s->in_length - 1) : s->in_length;
    s->in_length = cpu_min64(s->in_length, s->n);
    return finish_dft(build, s, out_kernel);
}

static gantry_status make_stft(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0], *window = cpu_input(build, 2);
    bool given;
    dft_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if ((in->rank != 2 && in->rank != 3) || out->rank != 4)
        return cpu_unsupported(build, "needs a signal [batch, length, parts]");
    *s = (dft_state){.dtype = in->dtype,
                     .outer = in->dims[0],
                     .in_length = in->dims[1],
                     .inner = 1,
                     .in_parts = in->rank == 3 ? in->dims[2] : 1,
                     .frames = out->dims[1],
                     .out_length = out->dims[2],
                     .out_parts = out->dims[3],
                     .has_window = window != NULL};
    GT_TRY(read_int(build, "frame_step", 1, &s->step, &given));
    GT_TRY(read_int(build, "frame_length", 3, &s->n, &given));
    if (!given)
        s->n = window ? window->count : s->in_length;
    s->window_length = window ? window->count : s->n;
    if (s->step < 1 || s->frames < 1)
        return cpu_unsupported(build, "frame_step is %lld for %lld frames", (long long)s->step,
                               (long long)s->frames);
    return finish_dft(build, s, out_kernel);
}

static gantry_status make_dft_any(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_dft, out_kernel);
}

static gantry_status make_stft_any(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_stft, out_kernel);
}

/* ---- window functions: known when the kernel is made ----------------------------------------- */

typedef struct window_state {
    size_t bytes;
    const void *values;
} window_state;

static gantry_status window_run(const void *opaque, const cpu_call *call)
{
    const window_state *state = opaque;
    memcpy(call->outputs[0], state->values, state->bytes);
    return GANTRY_OK;
}

static const struct {
    const char *op;
    double constant, first, second; /* constant - first * cos(x) + second * cos(2 x) */
} windows[] = {{"HannWindow", 0.5, 0.5, 0},
               {"HammingWindow", 25.0 / 46.0, 21.0 / 46.0, 0},
               {"BlackmanWindow", 0.42, 0.5, 0.08}};

static gantry_status make_window(cpu_build *build, cpu_kernel *out_kernel)
{
    const double pi = 3.14159265358979323846;
    const cpu_tensor *out = &build->outputs[0];
    cpu_cast cast;
    window_state *state = cpu_state(build, sizeof *state);
    double *values = cpu_state(build, (size_t)out->count * sizeof *values + 1);
    void *converted = cpu_state(build, (size_t)out->count * 8 + 1);
    if (!state || !values || !converted)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    bool periodic = gantry_node_int(build->node, "periodic", 1) != 0;
    double period = (double)(periodic ? out->count : out->count - 1);
    for (size_t k = 0; k < sizeof windows / sizeof windows[0]; k++)
        for (int64_t j = 0; j < out->count && strcmp(windows[k].op, build->node->op) == 0; j++) {
            double x = period > 0 ? 2 * pi * (double)j / period : pi;
            values[j] = windows[k].constant - windows[k].first * cos(x) + windows[k].second * cos(2 * x);
        }
    if (!cpu_cast_find(GANTRY_FLOAT64, out->dtype, CPU_CAST_SATURATE, &cast))
        return cpu_unsupported(build, "no window of element type %d", (int)out->dtype);
    cpu_cast_run(&cast, values, converted, 0, out->count);
    *state = (window_state){cpu_bytes_of(out->dtype, out->count), converted};
    *out_kernel = cpu_kernel_of(window_run, state);
    return GANTRY_OK;
}

static const cpu_op_row rows[] = {
    {.op = "DFT", .domain = "", .types = {CPU_REALS, CPU_INDEX}, .make = make_dft_any},
    {.op = "STFT",
     .domain = "",
     .types = {CPU_REALS, CPU_INDEX, CPU_REALS, CPU_INDEX},
     .make = make_stft_any},
    {.op = "HannWindow", .domain = "", .types = {CPU_INDEX}, .make = make_window},
    {.op = "HammingWindow", .domain = "", .types = {CPU_INDEX}, .make = make_window},
    {.op = "BlackmanWindow", .domain = "", .types = {CPU_INDEX}, .make = make_window},
};

cpu_op_family cpu_signal_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
