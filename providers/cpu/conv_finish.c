/* What own convolutions do to their sums: post-ops of a build as the activations and row functions of
 * conv_loops.h, and the table of this processor. */
#include "conv_loops.h"
#include "program.h"

#include <math.h>

/* ---- table ----------------------------------------------------------------------------------- */

const cpu_conv_loops *cpu_conv_loops_for(const cpu_provider *provider)
{
#if defined(__x86_64__)
    if (provider->channel_block == 16 && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return &cpu_conv_loops_avx512;
    if (provider->channel_block == 8 && strncmp(provider->isa, "avx2", 4) == 0 &&
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return &cpu_conv_loops_avx2;
#endif
    (void)provider;
    return NULL;
}

/* ---- post-ops -------------------------------------------------------------------------------- */

static bool is_hard_swish(const cpu_post *post)
{
    return post->kind == CPU_POST_HARD_SWISH && fabsf(post->alpha - 1.0f / 6.0f) < 1e-7f &&
           post->beta == 0.5f;
}

static bool function_of(const cpu_post *post, cpu_unary *out)
{
    switch (post->kind) {
    case CPU_POST_RELU:
        *out = post->alpha == 0 ? CPU_UNARY_relu : CPU_UNARY_leaky_relu;
        return true;
    case CPU_POST_CLIP:
        *out = CPU_UNARY_clip;
        return true;
    case CPU_POST_SIGMOID:
        *out = CPU_UNARY_sigmoid;
        return true;
    case CPU_POST_TANH:
        *out = CPU_UNARY_tanh;
        return true;
    case CPU_POST_HARD_SIGMOID:
        *out = CPU_UNARY_hard_sigmoid;
        return true;
    case CPU_POST_HARD_SWISH:
        *out = CPU_UNARY_hard_swish;
        return is_hard_swish(post);
    case CPU_POST_SWISH:
        *out = CPU_UNARY_silu;
        return true;
    case CPU_POST_LINEAR:
        *out = CPU_UNARY_linear;
        return true;
    case CPU_POST_GELU_ERF:
        *out = CPU_UNARY_gelu;
        return true;
    case CPU_POST_GELU_TANH:
        *out = CPU_UNARY_gelu_tanh;
        return true;
    case CPU_POST_BIAS:
    case CPU_POST_RESIDUAL:
        break;
    }
    return false;
}

/* [residual] [one activation that the output transform has]: done in registers on the way out. */
static cpu_conv_activation activation_of(cpu_conv_finish *f)
{
    const cpu_conv_post *post = f->posts, *end = f->posts + f->post_count;
    f->low = -INFINITY;
    f->high = INFINITY;
    f->residual_input = -1;
    if (post < end && post->kind == CPU_POST_RESIDUAL)
        f->residual_input = (int)post++->input;
    if (post == end)
        return CPU_CONV_CLAMP;
    if (post + 1 < end)
        return CPU_CONV_POSTS;
    float first = post->parameters[0], second = post->parameters[1];
    if ((post->kind == CPU_POST_RELU && first == 0) || (post->kind == CPU_POST_CLIP && first <= second)) {
        f->low = first;
        f->high = post->kind == CPU_POST_RELU ? INFINITY : second;
        return CPU_CONV_CLAMP;
    }
    return post->kind == CPU_POST_SWISH && first == 1 ? CPU_CONV_SILU
           : post->kind == CPU_POST_HARD_SWISH        ? CPU_CONV_HARD_SWISH
                                                      : CPU_CONV_POSTS;
}

/* False: a post-op that has no row function. */
bool cpu_conv_finish_read(const cpu_build *build, const cpu_conv *conv, cpu_conv_finish *f)
{
    *f = (cpu_conv_finish){.channels = conv->out_channels};
    for (uint32_t k = 0; k < build->post_count; k++) {
        const cpu_post *post = &build->posts[k];
        cpu_conv_post *out = &f->posts[f->post_count];
        cpu_unary function;
        if (post->kind == CPU_POST_BIAS) {
            if (f->post_count)
                return false;
            continue;
        }
        *out = (cpu_conv_post){post->kind, post->input, NULL, {post->alpha, post->beta}};
        if (post->kind != CPU_POST_RESIDUAL && !function_of(post, &function))
            return false;
        if (post->kind != CPU_POST_RESIDUAL)
            out->unary = cpu_rows_best()->unary[function];
        f->post_count++;
    }
    f->activation = activation_of(f);
    return true;
}

void cpu_conv_finish_row(const cpu_conv_finish *finish, float *y, int64_t count)
{
    const cpu_rows *rows = cpu_rows_best();
    const float bounds[2] = {finish->low, finish->high}, one[2] = {1, 0};
    switch (finish->activation) {
    case CPU_CONV_CLAMP:
        if (finish->low > -INFINITY || finish->high < INFINITY)
            rows->unary[CPU_UNARY_clip](y, y, count, bounds);
        break;
    case CPU_CONV_SILU:
        rows->unary[CPU_UNARY_silu](y, y, count, one);
        break;
    case CPU_CONV_HARD_SWISH:
        rows->unary[CPU_UNARY_hard_swish](y, y, count, NULL);
        break;
    case CPU_CONV_POSTS:
        for (uint32_t k = 0; k < finish->post_count; k++)
            finish->posts[k].unary(y, y, count, finish->posts[k].parameters);
        break;
    }
}

/* NULL when out of memory. */
static const float *pad_bias(cpu_build *build, int64_t channels, int width, int bias_input)
{
    int64_t padded = (channels + width - 1) / width * width;
    float *bias = cpu_state(build, (size_t)padded * sizeof *bias);
    if (bias && bias_input >= 0)
        memcpy(bias, build->inputs[bias_input].data, (size_t)channels * sizeof *bias);
    return bias;
}

gantry_status cpu_conv_finish_bind(cpu_build *build, const cpu_conv *conv, int width, cpu_conv_finish *finish,
                                   cpu_kernel *kernel)
{
    finish->bias = pad_bias(build, conv->out_channels, width, conv->bias_input);
    if (!finish->bias)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    if (conv->bias_input >= 0)
        kernel->packed_inputs |= 1u << conv->bias_input;
    for (uint32_t k = 0; k < build->post_count; k++)
        if (build->posts[k].kind == CPU_POST_RESIDUAL) {
            build->inputs[build->posts[k].input].layout = CPU_NCHW16C;
            kernel->overwrite_input = (int)build->posts[k].input;
            kernel->overwrite_alone = true;
        }
    return GANTRY_OK;
}
