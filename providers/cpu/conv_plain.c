/* Convolutions in plain C, one output plane at a time: for float64 and for what oneDNN has no fast kernel. */
#include "conv.h"

typedef struct plain_state {
    cpu_conv conv;
    uint32_t post_count;
    const cpu_post *posts;
} plain_state;

typedef struct plain_job {
    const plain_state *state;
    const cpu_call *call;
} plain_job;

/* Position `index` of a grid with these extents. */
static void unravel(int64_t index, const int64_t *dims, uint32_t rank, int64_t *out_at)
{
    for (uint32_t k = rank; k-- > 0;) {
        out_at[k] = index % dims[k];
        index /= dims[k];
    }
}

/* The input position a window element reads for an output position, as a flat index; -1 outside. */
static int64_t read_forward(const cpu_window *w, const int64_t *out, const int64_t *tap)
{
    int64_t flat = 0;
    for (uint32_t k = 0; k < w->rank; k++) {
        int64_t at = out[k] * w->stride[k] - w->pad[k] + tap[k] * w->dilation[k];
        if (at < 0 || at >= w->in[k])
            return -1;
        flat = flat * w->in[k] + at;
    }
    return flat;
}

/* The same for a transposed convolution: which input was spread over this output by that window element. */
static int64_t read_transposed(const cpu_window *w, const int64_t *out, const int64_t *tap)
{
    int64_t flat = 0;
    for (uint32_t k = 0; k < w->rank; k++) {
        int64_t at = out[k] + w->pad[k] - tap[k] * w->dilation[k];
        if (at < 0 || at % w->stride[k] || at / w->stride[k] >= w->in[k])
            return -1;
        flat = flat * w->in[k] + at / w->stride[k];
    }
    return flat;
}

/* For each window element, which output positions it adds to. */
#define PLAIN_PLANE(name, type)                                                                              \
    static void name(const cpu_conv *c, const void *x_, const void *w_, type bias, void *y_, int64_t n,      \
                     int64_t channel)                                                                        \
    {                                                                                                        \
        const cpu_window *w = &c->window;                                                                    \
        int64_t taps = cpu_window_product(w->kernel, w->rank), out = cpu_window_product(w->out, w->rank);    \
        int64_t in = cpu_window_product(w->in, w->rank);                                                     \
        int64_t out_per = c->out_channels / c->groups, in_per = c->in_channels / c->groups;                  \
        int64_t group = channel / out_per;                                                                   \
        type *y = (type *)y_ + (n * c->out_channels + channel) * out;                                        \
        for (int64_t p = 0; p < out; p++) {                                                                  \
            int64_t at[CPU_MAX_SPATIAL], tap[CPU_MAX_SPATIAL];                                               \
            unravel(p, w->out, w->rank, at);                                                                 \
            double sum = (double)bias;                                                                       \
            for (int64_t t = 0; t < taps; t++) {                                                             \
                unravel(t, w->kernel, w->rank, tap);                                                         \
                int64_t from = c->transposed ? read_transposed(w, at, tap) : read_forward(w, at, tap);       \
                if (from < 0)                                                                                \
                    continue;                                                                                \
                const type *x = (const type *)x_ + (n * c->in_channels + group * in_per) * in + from;        \
                const type *weight =                                                                         \
                    (const type *)w_ +                                                                       \
                    (c->transposed ? (group * in_per * out_per + channel % out_per) : channel * in_per) *    \
                        taps +                                                                               \
                    t;                                                                                       \
                int64_t step = (c->transposed ? out_per : 1) * taps;                                         \
                for (int64_t i = 0; i < in_per; i++)                                                         \
                    sum += (double)x[i * in] * (double)weight[i * step];                                     \
            }                                                                                                \
            y[p] = (type)sum;                                                                                \
        }                                                                                                    \
    }

PLAIN_PLANE(plane_float32, float)
PLAIN_PLANE(plane_float64, double)

static void plain_planes(void *arg, int64_t begin, int64_t end)
{
    const plain_job *job = arg;
    const cpu_conv *c = &job->state->conv;
    const cpu_call *call = job->call;
    const void *bias = c->bias_input >= 0 ? call->inputs[c->bias_input] : NULL;
    int64_t plane = cpu_window_product(c->window.out, c->window.rank);
    for (int64_t k = begin; k < end; k++) {
        int64_t n = k / c->out_channels, channel = k % c->out_channels;
        if (c->dtype == GANTRY_FLOAT64) {
            plane_float64(c, call->inputs[0], call->inputs[1], bias ? ((const double *)bias)[channel] : 0,
                          call->outputs[0], n, channel);
            continue;
        }
        plane_float32(c, call->inputs[0], call->inputs[1], bias ? ((const float *)bias)[channel] : 0,
                      call->outputs[0], n, channel);
        cpu_posts_apply(job->state->posts, job->state->post_count, call,
                        (float *)call->outputs[0] + k * plane, plane, k * plane, channel, 0);
    }
}

static gantry_status plain_run(const void *self, const cpu_call *call)
{
    const plain_state *state = self;
    plain_job job = {state, call};
    cpu_parallel(call, state->conv.batch * state->conv.out_channels, 1, plain_planes, &job);
    return GANTRY_OK;
}

/* The bias is part of the sum here: a bias post-op must not add it again. */
static const cpu_post *posts_without_bias(const cpu_build *build, uint32_t *out_count)
{
    cpu_post *posts = cpu_state(build, build->post_count * sizeof *posts);
    *out_count = 0;
    for (uint32_t k = 0; posts && k < build->post_count; k++)
        if (build->posts[k].kind != CPU_POST_BIAS)
            posts[(*out_count)++] = build->posts[k];
    return posts;
}

gantry_status cpu_conv_plain(cpu_build *build, const cpu_conv *conv, cpu_kernel *out_kernel)
{
    plain_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    state->conv = *conv;
    state->posts = posts_without_bias(build, &state->post_count);
    if (!state->posts)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    for (uint32_t k = 0; k < build->input_count; k++)
        build->inputs[k].layout = CPU_PLAIN;
    build->outputs[0].layout = CPU_PLAIN;
    *out_kernel = cpu_kernel_of(plain_run, state);
    out_kernel->accumulate = GANTRY_FLOAT64;
    out_kernel->flops = cpu_conv_flops(conv);
    out_kernel->threads = out_kernel->flops < 16.0 * CPU_TINY_ELEMENTS ? 1 : build->threads;
    return GANTRY_OK;
}
