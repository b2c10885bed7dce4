/* 8-bit convolutions and products through oneDNN, for processors on which its 8-bit products are exact. */
#ifndef CPU_QUANTIZED_DNNL_H
#define CPU_QUANTIZED_DNNL_H

#include "dnnl_kernel.h"

/* Which operands of the build say what; GANTRY_NO_ID: left out. */
typedef struct cpu_qoperands {
    uint32_t x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias;
} cpu_qoperands;

/* What a requantizing primitive is told, all known when it is made: y = saturate(round(clamp(acc *
 * multipliers[c] + bias[c], low, high)) + y_zero). */
typedef struct cpu_qfactors {
    int64_t channels;
    float *multipliers, *bias; /* one for each channel; bias NULL: none */
    int32_t *zeros;            /* of x and of y, for the primitive's arguments */
    const int8_t *weights;     /* signed, with zero point 0 */
    uint64_t weights_kind;     /* tells them from the constant's own bytes */
    float low, high;
    bool clamped; /* low and high are more than saturation */
} cpu_qfactors;

/* Reads the parameters. GANTRY_UNSUPPORTED without an error text when one of them is no constant or of a kind
 * that oneDNN's kernels do not take. */
gantry_status cpu_qfactors_read(cpu_build *build, const cpu_qoperands *operands, int64_t channels,
                                cpu_qfactors *out_factors);

/* Scales, zero points and the clamp as attributes; weights_mask: the axes of the weights that have scales. */
dnnl_primitive_attr_t cpu_qattributes(const cpu_qfactors *factors, int weights_mask);

/* Appends the arguments that go with cpu_qattributes. mds: three descriptors that the caller destroys. */
bool cpu_qarguments(const cpu_qfactors *factors, dnnl_memory_desc_t mds[2], cpu_dnnl_arg *args,
                    uint32_t *inout_count);

/* Convolution of bytes, channels last. GANTRY_UNSUPPORTED without an error text: take own kernels. */
gantry_status cpu_qconv_dnnl(cpu_build *build, const cpu_qoperands *operands, cpu_kernel *out_kernel);

/* Product of bytes [.., m, k] x [k, n] with constant weights. transposed: they are [n, k]. */
gantry_status cpu_qproduct_dnnl(cpu_build *build, const cpu_qoperands *operands, bool transposed,
                                cpu_kernel *out_kernel);

#endif
