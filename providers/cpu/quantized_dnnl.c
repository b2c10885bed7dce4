/* What oneDNN's 8-bit primitives are told: scales folded into one multiplier for each channel, zero points,
 * the clamp of a fused activation. */
#include "quantized_dnnl.h"
#include "program.h"
#include "quantized.h"

static int32_t byte_at(const cpu_tensor *tensor, int64_t k)
{
    return tensor->dtype == GANTRY_UINT8 ? ((const uint8_t *)tensor->data)[k]
                                         : ((const int8_t *)tensor->data)[k];
}

/* A parameter with elements that are known now. */
static bool known(const cpu_build *build, uint32_t input, int64_t channels)
{
    const cpu_tensor *tensor = cpu_input(build, input);
    return tensor && tensor->constant && tensor->data && (tensor->count == 1 || tensor->count == channels);
}

static bool known_or_absent(const cpu_build *build, uint32_t input, int64_t channels)
{
    return !cpu_input(build, input) || known(build, input, channels);
}

static int32_t zero_of(const cpu_build *build, uint32_t input)
{
    const cpu_tensor *zero = cpu_input(build, input);
    return zero ? byte_at(zero, 0) : 0;
}

/* The zero point that all weights share, if oneDNN can do without it: 0, or 128 of unsigned weights. */
static bool weights_are_signed(const cpu_build *build, const cpu_qoperands *o, bool *out_flip)
{
    const cpu_tensor *w = &build->inputs[o->w];
    int32_t wanted = w->dtype == GANTRY_UINT8 ? 128 : 0;
    const cpu_tensor *zero = cpu_input(build, o->w_zero);
    *out_flip = wanted != 0;
    if (!zero)
        return wanted == 0;
    for (int64_t k = 0; k < zero->count; k++)
        if (byte_at(zero, k) != wanted)
            return false;
    return true;
}

static const int8_t *flipped(cpu_build *build, const cpu_tensor *w)
{
    uint8_t *copy = cpu_state(build, (size_t)w->count);
    for (int64_t k = 0; copy && k < w->count; k++)
        copy[k] = ((const uint8_t *)w->data)[k] ^ 0x80;
    return (const int8_t *)copy;
}

/* s_x * s_w[c] / s_y in binary32, in that order; the bias in steps of the sums. */
static void fill_channels(const cpu_build *build, const cpu_qoperands *o, cpu_qfactors *f)
{
    const float *w_scales = build->inputs[o->w_scale].data;
    float x_scale = *(const float *)build->inputs[o->x_scale].data;
    float y_scale = *(const float *)build->inputs[o->y_scale].data;
    const int32_t *bias = f->bias ? build->inputs[o->bias].data : NULL;
    for (int64_t c = 0; c < f->channels; c++) {
        f->multipliers[c] = x_scale * w_scales[build->inputs[o->w_scale].count == 1 ? 0 : c] / y_scale;
        if (f->bias)
            f->bias[c] = (float)bias[c];
    }
}

bool cpu_qdnnl_serves(const cpu_build *build)
{
    return build->program && !build->exact && cpu_dnnl_engine(build) && build->provider->exact_bytes;
}

gantry_status cpu_qfactors_read(cpu_build *build, const cpu_qoperands *o, int64_t channels,
                                cpu_qfactors *out_factors)
{
    const cpu_tensor *w = &build->inputs[o->w], *y = &build->outputs[0];
    bool has_bias = cpu_input(build, o->bias) != NULL, flip;
    if (!build->program || !w->constant || !w->data || !known(build, o->x_scale, 1) ||
        !known(build, o->w_scale, channels) || !known(build, o->y_scale, 1) ||
        !known_or_absent(build, o->x_zero, 1) || !known_or_absent(build, o->w_zero, channels) ||
        !known_or_absent(build, o->y_zero, 1) ||
        (has_bias && (!known(build, o->bias, channels) || build->inputs[o->bias].count != channels)) ||
        !weights_are_signed(build, o, &flip))
        return GANTRY_UNSUPPORTED;
    cpu_qfactors f = {.channels = channels,
                      .multipliers = cpu_state(build, (size_t)channels * sizeof(float)),
                      .bias = has_bias ? cpu_state(build, (size_t)channels * sizeof(float)) : NULL,
                      .zeros = cpu_state(build, 2 * sizeof(int32_t)),
                      .weights = flip ? flipped(build, w) : w->data};
    if (!f.multipliers || (has_bias && !f.bias) || !f.zeros || !f.weights)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    f.zeros[0] = zero_of(build, o->x_zero);
    f.zeros[1] = zero_of(build, o->y_zero);
    /* Packed weights carry sums of theirs when x is signed or has a zero point. */
    f.weights_kind =
        (flip ? 1u : 0) | (build->inputs[0].dtype == GANTRY_INT8 ? 2u : 0) | (f.zeros[0] ? 4u : 0);
    fill_channels(build, o, &f);
    cpu_qrange range =
        cpu_qrange_of(build, y->dtype, *(const float *)build->inputs[o->y_scale].data, f.zeros[1]);
    f.clamped = range.clamped;
    f.low = (float)(range.low - f.zeros[1]);
    f.high = (float)(range.high - f.zeros[1]);
    *out_factors = f;
    return GANTRY_OK;
}

dnnl_primitive_attr_t cpu_qattributes(const cpu_qfactors *f, const_dnnl_memory_desc_t multipliers)
{
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t posts = NULL;
    bool good =
        dnnl_primitive_attr_create(&attributes) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) == dnnl_success &&
        (!f->zeros[0] ||
         dnnl_primitive_attr_set_zero_points_mask(attributes, DNNL_ARG_SRC, 0) == dnnl_success) &&
        (!f->zeros[1] ||
         dnnl_primitive_attr_set_zero_points_mask(attributes, DNNL_ARG_DST, 0) == dnnl_success) &&
        dnnl_post_ops_create(&posts) == dnnl_success &&
        dnnl_post_ops_append_binary(posts, dnnl_binary_mul, multipliers) == dnnl_success &&
        dnnl_post_ops_append_eltwise(posts, dnnl_eltwise_round, 0, 0) == dnnl_success &&
        (!f->clamped ||
         dnnl_post_ops_append_eltwise(posts, dnnl_eltwise_clip, f->low, f->high) == dnnl_success) &&
        dnnl_primitive_attr_set_post_ops(attributes, posts) == dnnl_success;
    dnnl_post_ops_destroy(posts);
    if (good)
        return attributes;
    dnnl_primitive_attr_destroy(attributes);
    return NULL;
}

dnnl_memory_desc_t cpu_qmultipliers(const cpu_qfactors *f, int rank, int axis)
{
    dnnl_dims_t dims, strides;
    dnnl_memory_desc_t md = NULL;
    for (int k = 0; k < rank; k++) {
        dims[k] = k == axis ? f->channels : 1;
        strides[k] = k < axis ? f->channels : 1;
    }
    return dnnl_memory_desc_create_with_strides(&md, rank, dims, dnnl_f32, strides) == dnnl_success ? md
                                                                                                    : NULL;
}

/* Appends the arguments that go with cpu_qattributes. mds: cpu_qmultipliers, and one that is made here. */
static bool add_parameters(const cpu_qfactors *f, dnnl_memory_desc_t mds[2], cpu_dnnl_arg *args,
                           uint32_t *inout_count)
{
    dnnl_dims_t one = {1};
    uint32_t count = *inout_count;
    if (dnnl_memory_desc_create_with_tag(&mds[1], 1, one, dnnl_s32, dnnl_a) != dnnl_success)
        return false;
    args[count++] = (cpu_dnnl_arg){DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, CPU_DNNL_FIXED, 0,
                                   f->multipliers, mds[0]};
    if (f->zeros[0])
        args[count++] =
            (cpu_dnnl_arg){DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, CPU_DNNL_FIXED, 0, &f->zeros[0], mds[1]};
    if (f->zeros[1])
        args[count++] =
            (cpu_dnnl_arg){DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, CPU_DNNL_FIXED, 0, &f->zeros[1], mds[1]};
    *inout_count = count;
    return true;
}

void cpu_qdescriptors_destroy(cpu_qdescriptors *d)
{
    dnnl_memory_desc_destroy(d->x);
    dnnl_memory_desc_destroy(d->w_plain);
    dnnl_memory_desc_destroy(d->w_wanted);
    dnnl_memory_desc_destroy(d->bias);
    dnnl_memory_desc_destroy(d->y);
    dnnl_memory_desc_destroy(d->parameters[0]);
    dnnl_memory_desc_destroy(d->parameters[1]);
    dnnl_primitive_desc_destroy(d->primitive);
    *d = (cpu_qdescriptors){0};
}

gantry_status cpu_qkernel(cpu_build *build, const cpu_qoperands *o, const cpu_qfactors *factors,
                          cpu_qdescriptors *d, cpu_kernel *out_kernel)
{
    const_dnnl_memory_desc_t wanted = dnnl_primitive_desc_query_md(d->primitive, dnnl_query_weights_md, 0);
    const void *packed = cpu_dnnl_pack_from(build, &build->inputs[o->w], factors->weights,
                                            factors->weights_kind, d->w_plain, wanted);
    cpu_dnnl_arg args[8] = {{DNNL_ARG_SRC, CPU_DNNL_INPUT, 0, NULL, d->x},
                            {DNNL_ARG_WEIGHTS, CPU_DNNL_FIXED, 0, packed, wanted},
                            {DNNL_ARG_DST, CPU_DNNL_OUTPUT, 0, NULL, d->y}};
    uint32_t count = 3;
    if (!packed)
        return GANTRY_RESOURCE;
    if (factors->bias)
        args[count++] = (cpu_dnnl_arg){DNNL_ARG_BIAS, CPU_DNNL_FIXED, 0, factors->bias, d->bias};
    if (!add_parameters(factors, d->parameters, args, &count))
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(cpu_dnnl_kernel(build, d->primitive, args, count, -1, out_kernel));
    out_kernel->accumulate = GANTRY_INT32;
    out_kernel->packed_inputs = build->input_count < 32 ? ((1u << build->input_count) - 1) & ~1u : ~1u;
    return GANTRY_OK;
}
