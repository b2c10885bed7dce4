/* The one place where oneDNN primitives become kernels: it reads what implementation was chosen, refuses the
 * reference one, and keeps the memory objects of each context. */
#ifndef CPU_DNNL_KERNEL_H
#define CPU_DNNL_KERNEL_H

#include "cpu.h"

#include <oneapi/dnnl/dnnl.h>

void cpu_dnnl_open(cpu_provider *provider);
void cpu_dnnl_close(cpu_provider *provider);
void cpu_dnnl_trim(cpu_provider *provider);
/* "oneDNN 3.2.0 (avx512_core_vnni); OpenBLAS 0.3.21" */
void cpu_dnnl_describe(const cpu_provider *provider, char *text, size_t capacity);

/* NULL when oneDNN gave no engine: then makers take their plain kernels. */
dnnl_engine_t cpu_dnnl_engine(const cpu_build *build);

typedef enum cpu_dnnl_source {
    CPU_DNNL_INPUT,  /* operand `index` of the call */
    CPU_DNNL_OUTPUT, /* output `index` of the call */
    CPU_DNNL_FIXED,  /* `fixed`: packed weights */
    CPU_DNNL_SCRATCH /* the primitive's scratchpad; filled in by cpu_dnnl_kernel */
} cpu_dnnl_source;

typedef struct cpu_dnnl_arg {
    int arg; /* DNNL_ARG_* */
    cpu_dnnl_source source;
    uint32_t index;
    const void *fixed;
    const_dnnl_memory_desc_t md; /* borrowed: cpu_dnnl_kernel clones it */
} cpu_dnnl_arg;

#define CPU_DNNL_MAX_ARGS 16u

/* How an oneDNN implementation is rated from its name. */
typedef enum cpu_dnnl_rating { CPU_DNNL_FAST, CPU_DNNL_SLOW, CPU_DNNL_REFERENCE } cpu_dnnl_rating;

/* "gemm" in the name is slow (unpacked), "ref" is refused by cpu_dnnl_kernel. */
cpu_dnnl_rating cpu_dnnl_rate(const_dnnl_primitive_desc_t descriptor, const char **out_name);

/* Makes the primitive and the kernel that runs it. Takes over neither the descriptor nor the mds. Returns
 * GANTRY_UNSUPPORTED without an error text when the implementation is oneDNN's reference: the caller takes
 * another layout or its own kernel. residual_input >= 0: the output must hold that input before the primitive
 * runs (post-op sum); it is copied there unless the memory is the same. */
gantry_status cpu_dnnl_kernel(cpu_build *build, const_dnnl_primitive_desc_t descriptor,
                              const cpu_dnnl_arg *args, uint32_t arg_count, int residual_input,
                              cpu_kernel *out_kernel);

/* Sets how many threads OpenMP may use while descriptors and primitives are made; returns the count to give
 * back to cpu_dnnl_leave. */
int cpu_dnnl_enter(const cpu_build *build, int threads);
void cpu_dnnl_leave(int before);

/* A number that tells memory layouts apart, for cpu_pack. */
uint64_t cpu_dnnl_layout_key(const_dnnl_memory_desc_t md);

/* The weights of a primitive in the layout it wants: reordered once, shared by all shapes. plain describes
 * the bytes of weight. NULL with build->err set on failure. */
const void *cpu_dnnl_pack(cpu_build *build, const cpu_tensor *weight, const_dnnl_memory_desc_t plain,
                          const_dnnl_memory_desc_t wanted);

/* The same from bytes that are the weight in another form, which `kind` tells apart. */
const void *cpu_dnnl_pack_from(cpu_build *build, const cpu_tensor *weight, const void *source, uint64_t kind,
                               const_dnnl_memory_desc_t plain, const_dnnl_memory_desc_t wanted);

/* The descriptor of a float32 or 8-bit tensor in one of our layouts (rank 3 to 5 when blocked). NULL when out
 * of memory. */
dnnl_memory_desc_t cpu_dnnl_describe_tensor(const cpu_build *build, const cpu_tensor *tensor,
                                            cpu_layout layout);

/* An attribute set with user scratchpad and the post-ops of build; *out_residual is the input that `sum` adds
 * or -1. bias is left to the caller. NULL when out of memory. */
dnnl_primitive_attr_t cpu_dnnl_attributes(const cpu_build *build, int *out_residual);

/* A kernel that converts input 0 from one layout to the other. */
gantry_status cpu_dnnl_reorder(cpu_build *build, const cpu_tensor *tensor, cpu_layout from, cpu_layout to,
                               cpu_kernel *out_kernel);

#endif
