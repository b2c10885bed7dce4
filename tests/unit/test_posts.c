/* Post-ops of our own kernels against their definitions in double. */
#include "providers/cpu/cpu.h"

#include <criterion/criterion.h>
#include <math.h>

enum { COUNT = 83, CHANNEL = 2 };

static double between(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

static double defined(const cpu_post *post, double x, double operand)
{
    double a = (double)post->alpha, b = (double)post->beta;
    switch (post->kind) {
    case CPU_POST_BIAS:
    case CPU_POST_RESIDUAL:
        return x + operand;
    case CPU_POST_RELU:
        return x < 0 ? a * x : x;
    case CPU_POST_CLIP:
        return between(x, a, b);
    case CPU_POST_SIGMOID:
        return 1 / (1 + exp(-x));
    case CPU_POST_TANH:
        return tanh(x);
    case CPU_POST_HARD_SIGMOID:
        return between(a * x + b, 0, 1);
    case CPU_POST_HARD_SWISH:
        return x * between(a * x + b, 0, 1);
    case CPU_POST_SWISH:
        return x / (1 + exp(-a * x));
    case CPU_POST_LINEAR:
        return a * x + b;
    case CPU_POST_GELU_ERF:
        return x / 2 * (1 + erf(x * sqrt(0.5)));
    case CPU_POST_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x)));
    }
    return NAN;
}

static void check(cpu_post post, int64_t channel_step)
{
    float x[COUNT], y[COUNT], operand[COUNT + CHANNEL + 3];
    for (int k = 0; k < COUNT; k++)
        x[k] = y[k] = (float)(k - 40) / 6.0f;
    for (int k = 0; k < COUNT + CHANNEL + 3; k++)
        operand[k] = (float)(k * 7 % 13) - 6;
    const void *inputs[] = {NULL, operand};
    cpu_call call = {.inputs = inputs, .threads = 1};
    post.input = 1;
    cpu_posts_apply(&post, 1, &call, y, COUNT, 3, CHANNEL, channel_step);
    for (int k = 0; k < COUNT; k++) {
        int64_t from = post.kind == CPU_POST_RESIDUAL ? 3 + k : CHANNEL + k * channel_step;
        double wanted = defined(&post, (double)x[k], (double)operand[from]);
        cr_assert(fabs((double)y[k] - wanted) <= 2e-6 * (1 + fabs(wanted)), "kind %d of %g: %g, want %g",
                  (int)post.kind, (double)x[k], (double)y[k], wanted);
    }
}

Test(posts, every_kind)
{
    check((cpu_post){.kind = CPU_POST_BIAS}, 0);
    check((cpu_post){.kind = CPU_POST_BIAS}, 1);
    check((cpu_post){.kind = CPU_POST_RESIDUAL}, 0);
    check((cpu_post){.kind = CPU_POST_RELU}, 0);
    check((cpu_post){.kind = CPU_POST_RELU, .alpha = 0.2f}, 0);
    check((cpu_post){.kind = CPU_POST_CLIP, .alpha = -1, .beta = 3}, 0);
    check((cpu_post){.kind = CPU_POST_SIGMOID}, 0);
    check((cpu_post){.kind = CPU_POST_TANH}, 0);
    check((cpu_post){.kind = CPU_POST_HARD_SIGMOID, .alpha = 0.2f, .beta = 0.5f}, 0);
    check((cpu_post){.kind = CPU_POST_HARD_SWISH, .alpha = 1.0f / 6, .beta = 0.5f}, 0);
    check((cpu_post){.kind = CPU_POST_HARD_SWISH, .alpha = 0.3f, .beta = 0.4f}, 0);
    check((cpu_post){.kind = CPU_POST_SWISH, .alpha = 1}, 0);
    check((cpu_post){.kind = CPU_POST_SWISH, .alpha = 1.702f}, 0);
    check((cpu_post){.kind = CPU_POST_LINEAR, .alpha = -0.7f, .beta = 0.3f}, 0);
    check((cpu_post){.kind = CPU_POST_GELU_ERF}, 0);
    check((cpu_post){.kind = CPU_POST_GELU_TANH}, 0);
}

/* A rectifier is no filter for NaN, and several post-ops follow each other in order. */
Test(posts, nan_and_order)
{
    float y[3] = {NAN, -1, 2}, bias[1] = {3};
    const void *inputs[] = {bias};
    cpu_call call = {.inputs = inputs, .threads = 1};
    const cpu_post posts[] = {
        {.kind = CPU_POST_BIAS}, {.kind = CPU_POST_RELU}, {.kind = CPU_POST_CLIP, .beta = 4}};
    cpu_posts_apply(posts, 3, &call, y, 3, 0, 0, 0);
    cr_assert(isnan(y[0]));
    cr_assert_eq(y[1], 2);
    cr_assert_eq(y[2], 4);
}
