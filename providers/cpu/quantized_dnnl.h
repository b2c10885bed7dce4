/* 8-bit convolutions and products through oneDNN, for processors on which its 8-bit products are exact. */
#ifndef CPU_QUANTIZED_DNNL_H
#define CPU_QUANTIZED_DNNL_H

#include "dnnl_kernel.h"

/* Which operands of the build say what; GANTRY_NO_ID, or past the last input: left out. */
typedef struct cpu_qoperands {
    uint32_t x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias;
} cpu_qoperands;

/* What a requantizing primitive is told, all known when it is made: y = saturate(clamp(round((acc + bias[c])
 * * multipliers[c]), low, high) + y_zero). The multiplication is a post-op, because the primitive's own
 * scales come before the bias, and rounding is one, because it would round after adding the zero point
 * otherwise: so results are those of the definition as long as sums stay below 2^24. */
typedef struct cpu_qfactors {
    int64_t channels;
    float *multipliers, *bias; /* one for each channel; bias NULL: none */
    int32_t *zeros;            /* of x and of y, for the primitive's arguments */
    const int8_t *weights;     /* signed, with zero point 0 */
    uint64_t weights_kind;     /* tells them from the constant's own bytes */
    float low, high;
    bool clamped; /* low and high are more than saturation */
} cpu_qfactors;

/* Whether oneDNN's 8-bit products are right here and exact enough for the session. */
bool cpu_qdnnl_serves(const cpu_build *build);

/* Reads the parameters. GANTRY_UNSUPPORTED without an error text when one of them is no constant or the
 * weights have zero points. */
gantry_status cpu_qfactors_read(cpu_build *build, const cpu_qoperands *operands, int64_t channels,
                                cpu_qfactors *out_factors);

/* The multipliers as an operand of the output's rank; NULL when out of memory. */
dnnl_memory_desc_t cpu_qmultipliers(const cpu_qfactors *factors, int rank, int axis);

/* Zero points, multiplication, rounding and the clamp as attributes. */
dnnl_primitive_attr_t cpu_qattributes(const cpu_qfactors *factors, const_dnnl_memory_desc_t multipliers);

/* What a primitive is made of; zero is none of it. */
typedef struct cpu_qdescriptors {
    dnnl_memory_desc_t x, w_plain, w_wanted, bias, y, parameters[2];
    dnnl_primitive_desc_t primitive;
} cpu_qdescriptors;

void cpu_qdescriptors_destroy(cpu_qdescriptors *d);

/* The kernel of a primitive that was described: packs the weights and hands over bias and parameters. */
gantry_status cpu_qkernel(cpu_build *build, const cpu_qoperands *operands, const cpu_qfactors *factors,
                          cpu_qdescriptors *d, cpu_kernel *out_kernel);

/* Convolution of bytes, channels last. GANTRY_UNSUPPORTED without an error text: take own kernels. */
gantry_status cpu_qconv_dnnl(cpu_build *build, const cpu_qoperands *operands, cpu_kernel *out_kernel);

/* Convolution of one channel a group, channels last, exact (quantized_depthwise.c). GANTRY_UNSUPPORTED
 * without an error text: take others. */
gantry_status cpu_qdepthwise(cpu_build *build, const cpu_qoperands *operands, cpu_kernel *out_kernel);

/* Product of bytes [.., m, k] x [k, n] with constant weights. transposed: they are [n, k]. */
gantry_status cpu_qproduct_dnnl(cpu_build *build, const cpu_qoperands *operands, bool transposed,
                                cpu_kernel *out_kernel);

#endif
