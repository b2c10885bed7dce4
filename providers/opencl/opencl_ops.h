/* What the files of the operators see: one table row an operator, the node with its operands, and the
 * launches that a row's prepare function adds for one set of shapes.
 *
 * To add an operator: a row in the table of a family's file (opencl_elementwise.c, opencl_gemm.c ...).
 * Judging and reshaping go through the same row: `limits` is asked twice, with dims that may be
 * GANTRY_DIM_UNKNOWN when judged, with extents when reshaped; `prepare` turns the node into launches. Kernel
 * arguments come in the order in which they are added; a buffer takes two, `__global T *x, ulong x0`: the
 * memory object, and where the value begins in it, in elements. */
#ifndef GANTRY_OPENCL_OPS_H
#define GANTRY_OPENCL_OPS_H

#include "opencl.h"

#define OPENCL_MAX_RANK 8
#define OPENCL_MAX_OPERANDS 64

/* Sets of element types. */
#define OPENCL_TYPE(dtype) (1u << (dtype))
#define OPENCL_F32 OPENCL_TYPE(GANTRY_FLOAT32)
#define OPENCL_F16 OPENCL_TYPE(GANTRY_FLOAT16)
#define OPENCL_F64 OPENCL_TYPE(GANTRY_FLOAT64)
#define OPENCL_FLOATS (OPENCL_F32 | OPENCL_F16 | OPENCL_F64)
#define OPENCL_I32 OPENCL_TYPE(GANTRY_INT32)
#define OPENCL_I64 OPENCL_TYPE(GANTRY_INT64)
#define OPENCL_BOOLEAN OPENCL_TYPE(GANTRY_BOOL)
#define OPENCL_SIGNED (OPENCL_TYPE(GANTRY_INT8) | OPENCL_TYPE(GANTRY_INT16) | OPENCL_I32 | OPENCL_I64)
#define OPENCL_UNSIGNED                                                                                      \
    (OPENCL_TYPE(GANTRY_UINT8) | OPENCL_TYPE(GANTRY_UINT16) | OPENCL_TYPE(GANTRY_UINT32) |                   \
     OPENCL_TYPE(GANTRY_UINT64))
#define OPENCL_INTEGERS (OPENCL_SIGNED | OPENCL_UNSIGNED)
#define OPENCL_NUMBERS (OPENCL_FLOATS | OPENCL_INTEGERS)
/* Computed in float32 or, for float64, in that. */
#define OPENCL_REALS (OPENCL_FLOATS | OPENCL_TYPE(GANTRY_BFLOAT16))
/* Whatever can be moved without looking at it: elements of 1, 2, 4 or 8 bytes. */
#define OPENCL_MOVABLE (OPENCL_NUMBERS | OPENCL_BOOLEAN | OPENCL_TYPE(GANTRY_BFLOAT16))

/* One input or output. Where it is left out dtype is GANTRY_UNDEFINED and view NULL. */
typedef struct opencl_operand {
    const gantry_value_view *view;
    gantry_dtype dtype;
    uint32_t rank;
    const int64_t *dims;
    uint32_t value;   /* index in the graph's values */
    const void *host; /* in prepare and in the second limits: the elements of an input in op->host_inputs */
} opencl_operand;

/* A node whose operands have a known rank, at most OPENCL_MAX_RANK, and a type that the device has. */
typedef struct opencl_node {
    const opencl_device *device;
    const gantry_graph_view *graph;
    const gantry_node_view *view;
    const struct opencl_op *op;
    bool final; /* dims are extents: the second limits, and prepare */
    uint32_t input_count, output_count;
    opencl_operand inputs[OPENCL_MAX_OPERANDS], outputs[OPENCL_MAX_OPERANDS];
} opencl_node;

/* What a node costs: bytes moved, operations, and the part of the device's arithmetic that the kernels reach
 * (1 where memory decides). */
typedef struct opencl_work {
    double bytes, flops, efficiency;
    uint32_t launches;
} opencl_work;

typedef struct opencl_build opencl_build;
typedef struct opencl_launch opencl_launch;

typedef struct opencl_op {
    const char *name;
    const char *domain;   /* "" or "gantry" */
    uint32_t types;       /* of input 0 */
    uint32_t host_inputs; /* bit k: input k has to be known before the run, and is not read on the device */
    /* NULL: no more limits. Further limits: false, with *verdict refused. */
    bool (*limits)(const opencl_node *node, gantry_verdict *verdict);
    /* Adds launches or a view; failures stick to the build. */
    void (*prepare)(opencl_build *build, const opencl_node *node);
    /* NULL: the operands' bytes and one operation an element. Dims are typical ones; *inout_work is that
     * default. */
    void (*work)(const opencl_node *node, opencl_work *inout_work);
    const void *more; /* the family's own */
} opencl_op;

typedef struct opencl_op_table {
    const opencl_op *ops;
    uint32_t count;
} opencl_op_table;

/* One table a family; opencl_ops.c lists them. */
extern const opencl_op_table opencl_elementwise_ops;
extern const opencl_op_table opencl_gemm_ops;
extern const opencl_op_table opencl_conv_ops;
extern const opencl_op_table opencl_pool_ops;
extern const opencl_op_table opencl_norm_ops;
extern const opencl_op_table opencl_movement_ops;
extern const opencl_op_table opencl_gather_ops;
extern const opencl_op_table opencl_resize_ops;
extern const opencl_op_table opencl_reduce_ops;
extern const opencl_op_table opencl_quantize_ops;
extern const opencl_op_table opencl_scan_ops;

const opencl_op *opencl_op_find(const gantry_node_view *node);

/* ---- refusing ---------------------------------------------------------------------------------------- */

/* All return false. */
bool opencl_refuse_type(gantry_verdict *verdict, const opencl_operand *operand, uint32_t wanted);
bool opencl_refuse_rank(gantry_verdict *verdict, const opencl_operand *operand, const char *required);
bool opencl_refuse_attribute(gantry_verdict *verdict, const char *name, const char *actual,
                             const char *required);
/* A dim or a count beyond what the kernels take. */
bool opencl_refuse_limit(gantry_verdict *verdict, const char *operand, double actual, double limit,
                         const char *required);
/* True when the operand is left out or has one of the types. */
bool opencl_takes_type(const opencl_operand *operand, uint32_t types, gantry_verdict *verdict);

/* ---- looking at operands ----------------------------------------------------------------------------- */

static inline bool opencl_is_there(const opencl_operand *operand)
{
    return operand->dtype != GANTRY_UNDEFINED;
}
/* Input or output k; one that is left out when the node has fewer. */
const opencl_operand *opencl_input(const opencl_node *node, uint32_t k);
const opencl_operand *opencl_output(const opencl_node *node, uint32_t k);
/* Elements in dims first..last-1; unknown extents count as 1. */
int64_t opencl_count_dims(const opencl_operand *operand, uint32_t first, uint32_t last);
int64_t opencl_count(const opencl_operand *operand);
size_t opencl_bytes(const opencl_operand *operand);
size_t opencl_dtype_bytes(gantry_dtype dtype);
/* "float", "half", "long" ...: the type in a kernel. bool is uchar. */
const char *opencl_dtype_name(gantry_dtype dtype);
/* Appends "#define" lines for a type called `name` (say T): T is what memory holds, T_C what is computed with
 * (float for half and bfloat16: no device needs cl_khr_fp16), LOAD_T(pointer, index) and STORE_T(value,
 * pointer, index).
 */
void opencl_define_type(char *inout_defines, size_t capacity, const char *name, gantry_dtype dtype);
/* "uchar", "ushort", "uint", "ulong": an unsigned integer of that size. */
const char *opencl_size_name(size_t bytes);
/* An attribute or a host input "axis" made non-negative. */
uint32_t opencl_axis(int64_t axis, uint32_t rank);
/* Element k of a host input of int32 or int64. */
int64_t opencl_host_int(const opencl_operand *operand, int64_t k);

/* ---- launches: a failure sticks, later calls do nothing ------------------------------------------------ */

/* Adds a launch of the kernel `name` in `defines` + `source` (text of "#define" lines, and the template).
 * opencl_prelude is put before both. Returns something that can be given arguments even when it failed, valid
 * until the next launch is added. */
opencl_launch *opencl_launch_add(opencl_build *build, const char *defines, const char *source,
                                 const char *name);
void opencl_arg_input(opencl_launch *launch, const opencl_operand *operand);
void opencl_arg_output(opencl_launch *launch, const opencl_operand *operand);
/* Scratch memory of this node, at least 64-byte aligned. Returns a number for opencl_arg_scratch. */
uint32_t opencl_scratch_add(opencl_build *build, size_t bytes);
/* The offset is 0 for scratch, but handed to the kernel as for a value; element_bytes is its unit. */
void opencl_arg_scratch(opencl_launch *launch, uint32_t scratch, size_t element_bytes);
/* A table that kernels read, copied to the device now and kept with the shaped program. Returns a number for
 * opencl_arg_scratch. */
uint32_t opencl_table_add(opencl_build *build, const void *data, size_t bytes);
void opencl_arg_int(opencl_launch *launch, int32_t value);
void opencl_arg_long(opencl_launch *launch, int64_t value);
void opencl_arg_float(opencl_launch *launch, float value);
/* Any plain value; for a struct of ints both sides agree. */
void opencl_arg_bytes(opencl_launch *launch, const void *data, size_t bytes);
/* `__global int *errors, int site`: with them a kernel may use FAIL(index, extent), where an index is outside
 * of its axis. The run then ends with an error that names the node. */
void opencl_arg_errors(opencl_launch *launch);
/* __local memory. */
void opencl_arg_local(opencl_launch *launch, size_t bytes);
/* Global sizes (1 where a dimension is not needed); a 0 makes the launch nothing. Without
 * opencl_launch_groups the driver chooses local sizes. */
void opencl_launch_size(opencl_launch *launch, int64_t x, int64_t y, int64_t z);
/* Local sizes; global ones are rounded up to multiples: kernels check their bounds. */
void opencl_launch_groups(opencl_launch *launch, size_t x, size_t y, size_t z);
/* `count` items in one dimension, in groups of one size, so that a driver which builds for a size builds
 * once. The kernel gets more items than count and checks. */
void opencl_launch_flat(opencl_launch *launch, int64_t count);
/* For the report: what it is called ("gemm_tiled"), its layout, what one execution moves and computes. */
void opencl_launch_describe(opencl_launch *launch, const char *variant, double bytes, double flops);
/* The output is the input from offset_bytes on; nothing is written. */
void opencl_view_add(opencl_build *build, const opencl_operand *output, const opencl_operand *input,
                     size_t offset_bytes);
/* A plain copy of bytes. */
void opencl_copy_add(opencl_build *build, const opencl_operand *output, size_t output_offset,
                     const opencl_operand *input, size_t input_offset, size_t bytes);
/* Zeroed memory while prepare runs; NULL, and the build failed, when there is none left. */
void *opencl_build_alloc(opencl_build *build, size_t count, size_t size);
void opencl_build_free(opencl_build *build, void *memory);
/* A failure of prepare itself: out of memory, or a shape after all not taken. */
void opencl_build_fail(opencl_build *build, gantry_status status, const char *text);

/* What stands before every kernel text. */
extern const char opencl_prelude[];

/* ---- for judge, compile and reshape ----------------------------------------------------------------------
 */

/* Fills the node from its views, with dims from `shapes` when there are (by value index), else from the views
 * (typical ones when asked). False when the node has too many operands, or an operand has no rank or one that
 * is too high: *verdict is then refused. */
bool opencl_node_fill(const opencl_device *device, const gantry_graph_view *graph,
                      const gantry_node_view *view, const gantry_shape *shapes, bool typical,
                      opencl_node *out_node, gantry_verdict *verdict);
/* All that speaks against the node at these dims. */
bool opencl_node_takes(const opencl_node *node, gantry_verdict *verdict);
/* Whether the node is elementwise with few operands: part of a chain where its neighbours are, too. */
bool opencl_is_expression(const gantry_graph_view *graph, const gantry_node_view *node);
/* Takes from *inout_work what a chain spares: values between its operators are neither written nor read. */
void opencl_chain_spare(const gantry_graph_view *graph, const gantry_node_view *node,
                        opencl_work *inout_work);
/* At the node's dims; unknown extents count as 1. */
void opencl_node_work(const opencl_node *node, opencl_work *out_work);
double opencl_work_ns(const opencl_device *device, const opencl_work *work);

#endif
