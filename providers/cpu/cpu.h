/* Inside the CPU provider: what a kernel is, how it is made for one node and one set of shapes, and the
 * tables that list them.
 *
 *     op row  (table of a family file)  -- make -->  kernel  -- program.c strings kernels together and gives
 * them memory
 *
 * The provider sees the rest of Gantry through include/gantry/provider.h only, plus header-only helpers of
 * base/. */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include "base/arena.h"
#include "base/clones.h"
#include "base/status.h"
#include "base/vec.h"

#include <gantry/provider.h>

/* How the elements of a tensor lie in memory. All but PLAIN are decided by program.c and seen only by kernels
 * that say so. */
typedef enum cpu_layout {
    CPU_PLAIN = 0,   /* dense row-major, as ONNX orders dims */
    CPU_NHWC = 1,    /* rank 3 to 5 of bytes: channels last */
    CPU_NCHW16C = 2, /* rank 4 (3): channels in blocks of 16, zero padded */
    CPU_LAYOUT_COUNT
} cpu_layout;

/* A float of a weight that is packed: a constant of a model file lies at any address. */
typedef float cpu_unaligned_f32 __attribute__((aligned(1), may_alias));

/* One operand of a node at known shapes. dims are ONNX extents whatever the layout. */
typedef struct cpu_tensor {
    bool present;
    bool constant; /* data is set and stays valid as long as the program */
    bool kept;     /* a constant whose plain copy stays in memory anyway, for another kernel */
    bool bounded;  /* output: dims are upper bounds; the kernel writes true_dims */
    gantry_dtype dtype;
    cpu_layout layout;
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
    int64_t count;    /* product of dims */
    const void *data; /* elements known when the kernel is made (constants; host values, valid during make
                         only), else NULL */
    uint32_t constant_id;
} cpu_tensor;

/* An element that a kernel could not take: an index out of range, mostly. */
typedef struct cpu_fault {
    bool found;
    uint32_t input;
    int64_t value, low, high; /* low to high are allowed */
} cpu_fault;

/* What one execution gets. Pointers are element 0 of each operand (NULL: left out), scratch is 64-byte
 * aligned. */
typedef struct cpu_call {
    const void *const *inputs;
    void *const *outputs;
    void *scratch;
    int threads;               /* at most the count the kernel was made for; 1 means: do not fork */
    int64_t *const *true_dims; /* for bounded outputs; entries (or all) NULL when nobody asks */
    const volatile int *stop;
    void *context;    /* the kernel's own bytes in this context (context_bytes), else NULL */
    cpu_fault *fault; /* filled by kernels that return GANTRY_DATA; NULL when nobody asks */
} cpu_call;

/* Ends a run on an element of an input that is not between low and high. */
static inline gantry_status cpu_bad_value(const cpu_call *call, uint32_t input, int64_t value, int64_t low,
                                          int64_t high)
{
    if (call->fault)
        *call->fault = (cpu_fault){true, input, value, low, high};
    return GANTRY_DATA;
}

/* Must not allocate or lock. Results do not depend on call->threads: work is cut into fixed chunks. */
typedef gantry_status (*cpu_kernel_fn)(const void *state, const cpu_call *call);

/* A kernel made for one node (or a fused group) at known shapes. state lives in build->arena or is destroyed
 * by `destroy`. */
typedef struct cpu_kernel {
    cpu_kernel_fn run;
    const void *state;
    void (*destroy)(void *state); /* NULL: state is in the arena */
    size_t scratch_bytes;
    const char *name; /* implementation, for the report: "plain", "jit:avx512_core", "sgemv" */
    const char *isa;  /* "scalar", "avx2", "avx512" ... */
    int threads;      /* what it was made for: 1 for small work, else the session's */
    gantry_dtype accumulate;
    double flops;        /* per execution; bytes are added by program.c */
    int overwrite_input; /* >= 0: output 0 may share that input's memory */
    int view_of_input;   /* >= 0: output 0 is that input, moved nowhere; run is NULL */
    size_t view_offset_bytes;
    /* What one context needs of its own because it is not thread-safe (oneDNN memory objects): bytes that
     * context_init fills and context_destroy empties. context_bytes 0: nothing. */
    size_t context_bytes;
    gantry_status (*context_init)(const void *state, void *context, gantry_error *err);
    void (*context_destroy)(const void *state, void *context);
    /* Bit k: a run does not read input k (a weight that was packed). Only rows with CPU_ROW_PACKS set it. */
    uint32_t packed_inputs;
    /* overwrite_input holds only when no other operand lies in that memory: the kernel reads more of those
     * than the element it writes. */
    bool overwrite_alone;
} cpu_kernel;

/* What is computed on the output of a convolution or product before it is stored. */
typedef enum cpu_post_kind {
    CPU_POST_BIAS,         /* + input (a constant vector along the output channels) */
    CPU_POST_RESIDUAL,     /* + input of the output's shape */
    CPU_POST_RELU,         /* max(x, 0), or alpha * x below 0 */
    CPU_POST_CLIP,         /* min(max(x, alpha), beta) */
    CPU_POST_SIGMOID,      /* 1 / (1 + exp(-x)) */
    CPU_POST_TANH,         /* tanh(x) */
    CPU_POST_HARD_SIGMOID, /* max(0, min(1, alpha * x + beta)) */
    CPU_POST_HARD_SWISH,   /* x * max(0, min(1, alpha * x + beta)) */
    CPU_POST_SWISH,        /* x * sigmoid(alpha * x) */
    CPU_POST_LINEAR,       /* alpha * x + beta: a scalar factor, a scalar addend or both */
    CPU_POST_GELU_ERF,
    CPU_POST_GELU_TANH
} cpu_post_kind;

#define CPU_MAX_POSTS 8u /* longer chains stay separate kernels; the longest seen in real models has 4 */

typedef struct cpu_post {
    cpu_post_kind kind;
    float alpha, beta;
    uint32_t input; /* BIAS, RESIDUAL: index into build->inputs */
} cpu_post;

typedef struct cpu_provider cpu_provider; /* provider.c */

/* What a maker sees. Weights it packs go through cpu_pack so that several shapes share them. */
typedef struct cpu_build {
    cpu_provider *provider;
    const gantry_host *host;
    gt_arena *arena;   /* lives as long as the shaped program */
    gt_arena *scratch; /* lives while the shaped program is made */
    const gantry_graph_view *graph;
    const gantry_node_view *node;
    uint32_t input_count, output_count; /* may exceed the node's own when post-ops read more */
    cpu_tensor *inputs; /* rows with CPU_ROW_PICKS_LAYOUT may change inputs[k].layout: the program converts */
    cpu_tensor *outputs; /* dims and dtype are set; layout may be changed by rows that say so */
    uint32_t post_count; /* only rows that fusion.c knows get any */
    const cpu_post *posts;
    bool b_transposed; /* MatMul, Gemm: inputs[1] is the operand of a 2-D Transpose that the group absorbed */
    const uint8_t *table;         /* of a fused group of bytes: the 256 results; else NULL */
    const struct cpu_qrows *rows; /* of a fused group of float operators between bytes; else NULL */
    int threads;
    bool exact;
    gantry_error *err;
    struct cpu_program *program; /* owner of packed constants; NULL when evaluating a single node */
    gantry_constants *constants; /* of the session; NULL when evaluating */
} cpu_build;

/* Refuses with GANTRY_UNSUPPORTED (attribute or shape the kernel does not take) through gt_fail with the
 * node's name. */
typedef gantry_status (*cpu_make_fn)(cpu_build *build, cpu_kernel *out_kernel);

/* A set of element types as bits: CPU_BIT(GANTRY_FLOAT32) | ... */
#define CPU_BIT(dtype) (1u << (dtype))
#define CPU_FLOATS (CPU_BIT(GANTRY_FLOAT32) | CPU_BIT(GANTRY_FLOAT64))
#define CPU_SIGNED                                                                                           \
    (CPU_BIT(GANTRY_INT8) | CPU_BIT(GANTRY_INT16) | CPU_BIT(GANTRY_INT32) | CPU_BIT(GANTRY_INT64))
#define CPU_UNSIGNED                                                                                         \
    (CPU_BIT(GANTRY_UINT8) | CPU_BIT(GANTRY_UINT16) | CPU_BIT(GANTRY_UINT32) | CPU_BIT(GANTRY_UINT64))
#define CPU_INTEGERS (CPU_SIGNED | CPU_UNSIGNED)
#define CPU_NUMBERS (CPU_FLOATS | CPU_INTEGERS)
/* Everything that is moved as raw bytes of 1, 2, 4 or 8 (16 for complex). */
#define CPU_ANY_BYTES                                                                                        \
    (CPU_NUMBERS | CPU_BIT(GANTRY_BOOL) | CPU_BIT(GANTRY_FLOAT16) | CPU_BIT(GANTRY_BFLOAT16) |               \
     CPU_BIT(GANTRY_COMPLEX64) | CPU_BIT(GANTRY_FLOAT8E4M3FN) | CPU_BIT(GANTRY_FLOAT8E4M3FNUZ) |             \
     CPU_BIT(GANTRY_FLOAT8E5M2) | CPU_BIT(GANTRY_FLOAT8E5M2FNUZ) | CPU_BIT(GANTRY_FLOAT8E8M0))

enum {
    /* Elementwise with ONNX broadcasting: position by position. program.c shows blocked operands to such a
     * row as plain ones of shape [N, C/16, H, W, 16]. */
    CPU_ROW_ANY_LAYOUT = 1u << 0,
    CPU_ROW_PICKS_LAYOUT = 1u << 1, /* conv, pool: the maker handles layouts itself */
    /* data of constants is valid during make only unless the kernel leaves its bit in packed_inputs clear:
     * then the pointer handed to a run is a copy. Other rows may keep data. */
    CPU_ROW_PACKS = 1u << 2
};

/* One operator the provider computes. types[k]: element types of input k it takes (the last entry that is not
 * 0 also holds for further inputs); 0 in types[0]: no restriction. judge (may be NULL) refuses by attributes;
 * makers may still refuse at shapes. */
typedef struct cpu_op_row {
    const char *op;
    const char *domain;
    uint32_t types[8];
    cpu_make_fn make;
    void (*judge)(const gantry_graph_view *graph, const gantry_node_view *node, gantry_verdict *verdict);
    /* Arithmetic of the node at typical dims; NULL: one operation an output element. */
    double (*flops)(const gantry_graph_view *graph, const gantry_node_view *node);
    uint32_t flags;
} cpu_op_row;

typedef struct cpu_op_family {
    const cpu_op_row *rows;
    uint32_t count;
} cpu_op_family;

/* One for each family file; op_table.c lists them all. Rows of a later family win over rows of an earlier one
 * with the same op. */
cpu_op_family cpu_elementwise_ops(void); /* elementwise.c: unary and binary arithmetic, comparisons, logic,
                                            Where, Clip, Cast, activations */
cpu_op_family cpu_reduce_ops(void); /* reduce.c: Reduce*, ArgMax/Min, GlobalPools of plain layout, CumSum */
cpu_op_family cpu_movement_ops(
    void); /* movement.c: Reshape family, Transpose, Concat, Split, Slice, Pad, Tile, Expand, Identity ... */
cpu_op_family cpu_indexing_ops(
    void); /* indexing.c: Gather*, Scatter*, OneHot, TopK, NonZero, NonMaxSuppression, Where-like */
cpu_op_family cpu_shape_ops(void);         /* shape_ops.c: Shape, Size, ConstantOfShape, Range, EyeLike */
cpu_op_family cpu_normalization_ops(void); /* normalization.c: Softmax, LogSoftmax, LayerNormalization,
                                              BatchNormalization, InstanceNorm, LRN ... */
cpu_op_family cpu_image_ops(void);         /* image.c: Resize, Upsample, plain pools, DepthToSpace ... */
cpu_op_family cpu_quantized_ops(void);     /* quantized.c: Q/DQ, QLinear*, *Integer */
cpu_op_family
cpu_composite_ops(void);            /* composite.c: the "gantry" domain: Gelu, SiLU, LayerNorm, attention */
cpu_op_family cpu_signal_ops(void); /* signal.c: DFT, STFT, window functions */
cpu_op_family cpu_conv_ops(void);   /* conv.c: Conv, ConvTranspose through oneDNN */
cpu_op_family cpu_pool_ops(void);   /* pool.c: MaxPool, AveragePool through oneDNN */
cpu_op_family cpu_matmul_ops(void); /* matmul.c: MatMul, Gemm */
cpu_op_family cpu_recurrent_ops(void); /* recurrent.c: LSTM, GRU, RNN */

/* The row for a node, or NULL. */
const cpu_op_row *cpu_find_op(const char *domain, const char *op);

#define CPU_CLONES GT_CLONES

/* ---- help for makers ------------------------------------------------------------------------- */

#define CPU_TINY_ELEMENTS                                                                                    \
    16384 /* work below this many elements stays on one thread: a parallel region costs 1-3 us */

/* Calls body(arg, begin, end) over 0..count-1 in fixed chunks, on call->threads threads (OpenMP; parallel.c).
 */
void cpu_parallel(const cpu_call *call, int64_t count, int64_t chunk,
                  void (*body)(void *arg, int64_t begin, int64_t end), void *arg);
/* For such a body: the calling thread's own part of call->scratch, which holds `bytes` for each of
 * call->threads. */
void *cpu_thread_scratch(const cpu_call *call, size_t bytes);

/* Copies into memory that nobody has touched, on that many threads. */
void cpu_copy_fresh(int threads, void *to, const void *from, size_t bytes);
/* Writes a zero into each page of memory that nobody has touched; nothing on one thread. */
void cpu_touch_fresh(int threads, void *memory, size_t bytes);

/* Fails the build with GANTRY_UNSUPPORTED and a text that names the node. A macro as gt_fail is. */
#define cpu_unsupported(build, ...)                                                                          \
    (cpu_unsupported_fill((build), __VA_ARGS__), gt_failed(GANTRY_UNSUPPORTED))
GANTRY_PRINTF(2, 3) void cpu_unsupported_fill(cpu_build *build, const char *format, ...);

/* Zeroed memory of the shaped program for a kernel's state, or NULL (then return gt_out_of_memory). The bytes
 * between two of them are zero too: states are compared with all that lies between (program_states.h). */
static inline void *cpu_state(const cpu_build *build, size_t bytes)
{
    size_t whole = (bytes + GT_ARENA_ALIGNMENT - 1) & ~(size_t)(GT_ARENA_ALIGNMENT - 1);
    return whole < bytes ? NULL : gt_arena_alloc(build->arena, whole);
}

/* A kernel with the defaults: plain, one thread, no view, no overwrite. */
static inline cpu_kernel cpu_kernel_of(cpu_kernel_fn run, const void *state)
{
    return (cpu_kernel){.run = run,
                        .state = state,
                        .threads = 1,
                        .name = "plain",
                        .isa = "c",
                        .view_of_input = -1,
                        .overwrite_input = -1};
}

/* Integer elements of an operand whose data is known (int32 or int64), as int64; false when it is absent or
 * not known. Writes at most capacity, *out_count is the true count. */
bool cpu_read_ints(const cpu_tensor *tensor, int64_t *out_values, uint32_t capacity, uint32_t *out_count);

/* Bits of one element; 0 for types without fixed size (strings, undefined). */
static inline uint32_t cpu_dtype_bits(gantry_dtype dtype)
{
    static const uint8_t bits[GANTRY_DTYPE_COUNT] = {0,  32,  8,  8, 16, 16, 32, 64, 0, 8, 16, 64, 32, 64,
                                                     64, 128, 16, 8, 8,  8,  8,  4,  4, 4, 8,  2,  2};
    return (unsigned)dtype < GANTRY_DTYPE_COUNT ? bits[dtype] : 0;
}

/* Bytes of count elements; types below 8 bits are packed. */
static inline size_t cpu_dtype_bytes(gantry_dtype dtype, int64_t count)
{
    return ((size_t)count * cpu_dtype_bits(dtype) + 7) / 8;
}

static inline size_t cpu_tensor_bytes(const cpu_tensor *tensor)
{
    return cpu_dtype_bytes(tensor->dtype, tensor->count);
}

/* Applies post-ops to `elements` float32 outputs y, the first of which has flat index `at` in the output and
 * belongs to output channel `channel`; channel_step is 1 when each next one is another channel, else 0. */
void cpu_posts_apply(const cpu_post *posts, uint32_t post_count, const cpu_call *call, float *y,
                     int64_t elements, int64_t at, int64_t channel, int64_t channel_step);

/* "float32", "int8" ... */
const char *cpu_dtype_name(gantry_dtype dtype);

/* Finds or makes the packed form of a weight. weight is a constant operand; layout_key tells packed forms of
 * one constant apart. fill writes the packed bytes (64-byte aligned) once; all shapes of the program share
 * them, and other sessions: layout_key and the weight's type, dims and bytes are all they may depend on. NULL
 * with build->err filled when it fails. */
const void *cpu_pack(cpu_build *build, const cpu_tensor *weight, uint64_t layout_key, size_t bytes,
                     gantry_status (*fill)(void *arg, void *packed), void *arg);

#endif
