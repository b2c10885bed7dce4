/* Post-ops of our own kernels: what oneDNN fuses into its primitives, applied to a row of results that is
 * still in cache. */
#include "cpu.h"
#include "rows.h"

/* The row function of each post-op without operand; its alpha and beta are the function's parameters. */
static const cpu_unary functions[] = {
    [CPU_POST_RELU] = CPU_UNARY_leaky_relu,
    [CPU_POST_CLIP] = CPU_UNARY_clip,
    [CPU_POST_SIGMOID] = CPU_UNARY_sigmoid,
    [CPU_POST_TANH] = CPU_UNARY_tanh,
    [CPU_POST_HARD_SIGMOID] = CPU_UNARY_hard_sigmoid,
    [CPU_POST_SWISH] = CPU_UNARY_silu,
    [CPU_POST_GELU_ERF] = CPU_UNARY_gelu,
    [CPU_POST_GELU_TANH] = CPU_UNARY_gelu_tanh,
    [CPU_POST_LINEAR] = CPU_UNARY_linear,
};

/* The row function has the factors of ONNX; a model that spells the function out may have others. */
static CPU_CLONES void hard_swish(float *y, int64_t count, float alpha, float beta)
{
    for (int64_t k = 0; k < count; k++) {
        float gate = alpha * y[k] + beta;
        gate = gate < 0.0f ? 0.0f : gate;
        y[k] *= gate > 1.0f ? 1.0f : gate;
    }
}

static void apply(const cpu_rows *rows, const cpu_post *post, float *y, int64_t count)
{
    const float parameters[4] = {post->alpha, post->beta};
    if (post->kind == CPU_POST_HARD_SWISH)
        hard_swish(y, count, post->alpha, post->beta);
    else if (post->kind == CPU_POST_RELU && post->alpha == 0.0f)
        rows->unary[CPU_UNARY_relu](y, y, count, parameters);
    else
        rows->unary[functions[post->kind]](y, y, count, parameters);
}

void cpu_posts_apply(const cpu_post *posts, uint32_t post_count, const cpu_call *call, float *y,
                     int64_t elements, int64_t at, int64_t channel, int64_t channel_step)
{
    const cpu_rows *rows = cpu_rows_best();
    const cpu_binary_row *add = &rows->binary[CPU_BINARY_add];
    for (uint32_t k = 0; k < post_count; k++) {
        const cpu_post *post = &posts[k];
        const float *operand =
            post->kind == CPU_POST_BIAS || post->kind == CPU_POST_RESIDUAL ? call->inputs[post->input] : NULL;
        if (post->kind == CPU_POST_RESIDUAL)
            add->row_row(y, operand + at, y, elements);
        else if (post->kind == CPU_POST_BIAS && channel_step)
            add->row_row(y, operand + channel, y, elements);
        else if (post->kind == CPU_POST_BIAS)
            add->row_scalar(y, operand + channel, y, elements);
        else
            apply(rows, post, y, elements);
    }
}
