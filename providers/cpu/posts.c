/* Post-ops in plain C, for kernels of our own: what oneDNN fuses into its primitives, applied to a row of
 * results that is still in cache. */
#include "cpu.h"

#include <math.h>

static void add_vector(float *y, const float *x, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        y[k] += x[k];
}

static void add_scalar(float *y, float x, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        y[k] += x;
}

static void relu(float *y, int64_t count, float slope)
{
    if (slope == 0.0f) {
        for (int64_t k = 0; k < count; k++)
            y[k] = y[k] < 0.0f ? 0.0f : y[k]; /* NaN stays NaN */
        return;
    }
    for (int64_t k = 0; k < count; k++)
        y[k] = y[k] < 0.0f ? slope * y[k] : y[k];
}

static float hard_sigmoid(float x, float alpha, float beta)
{
    float r = alpha * x + beta;
    return r < 0.0f ? 0.0f : r > 1.0f ? 1.0f : r;
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float gelu_tanh(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

static float post_scalar(const cpu_post *post, float x)
{
    switch (post->kind) {
    case CPU_POST_CLIP:
        return x < post->alpha ? post->alpha : x > post->beta ? post->beta : x;
    case CPU_POST_SIGMOID:
        return sigmoid(x);
    case CPU_POST_TANH:
        return tanhf(x);
    case CPU_POST_HARD_SIGMOID:
        return hard_sigmoid(x, post->alpha, post->beta);
    case CPU_POST_HARD_SWISH:
        return x * hard_sigmoid(x, post->alpha, post->beta);
    case CPU_POST_SWISH:
        return x * sigmoid(post->alpha * x);
    case CPU_POST_GELU_ERF:
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case CPU_POST_GELU_TANH:
        return gelu_tanh(x);
    case CPU_POST_BIAS:
    case CPU_POST_RESIDUAL:
    case CPU_POST_RELU:
        break;
    }
    return x;
}

void cpu_posts_apply(const cpu_post *posts, uint32_t post_count, const cpu_call *call, float *y,
                     int64_t elements, int64_t at, int64_t channel, int64_t channel_step)
{
    for (uint32_t k = 0; k < post_count; k++) {
        const cpu_post *post = &posts[k];
        const float *operand =
            post->kind == CPU_POST_BIAS || post->kind == CPU_POST_RESIDUAL ? call->inputs[post->input] : NULL;
        if (post->kind == CPU_POST_RESIDUAL)
            add_vector(y, operand + at, elements);
        else if (post->kind == CPU_POST_BIAS && channel_step)
            add_vector(y, operand + channel, elements);
        else if (post->kind == CPU_POST_BIAS)
            add_scalar(y, operand[channel], elements);
        else if (post->kind == CPU_POST_RELU)
            relu(y, elements, post->alpha);
        else
            for (int64_t j = 0; j < elements; j++)
                y[j] = post_scalar(post, y[j]);
    }
}
