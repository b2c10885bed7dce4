/* Help shared by the plain kernel families: operands and attributes of a node, axes, extents, broadcasting,
 * and computing in another element type. */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include "cpu.h"

#define CPU_HALVES (CPU_BIT(GANTRY_FLOAT16) | CPU_BIT(GANTRY_BFLOAT16))
#define CPU_REALS (CPU_FLOATS | CPU_HALVES)
#define CPU_ALL_NUMBERS (CPU_NUMBERS | CPU_HALVES)
#define CPU_TRUTH CPU_BIT(GANTRY_BOOL)
#define CPU_INDEX (CPU_BIT(GANTRY_INT32) | CPU_BIT(GANTRY_INT64))
#define CPU_EVERY (~0u)

/* Elements one chunk of elementwise work covers: half of a 32 KiB L1 for an f32 input and its output. */
#define CPU_CHUNK_ELEMENTS 8192

/* Bytes of one element; 0 for strings and for types below 8 bits. */
static inline size_t cpu_dtype_size(gantry_dtype dtype)
{
    static const uint8_t sizes[GANTRY_DTYPE_COUNT] = {
        [GANTRY_FLOAT32] = 4,        [GANTRY_UINT8] = 1,          [GANTRY_INT8] = 1,
        [GANTRY_UINT16] = 2,         [GANTRY_INT16] = 2,          [GANTRY_INT32] = 4,
        [GANTRY_INT64] = 8,          [GANTRY_BOOL] = 1,           [GANTRY_FLOAT16] = 2,
        [GANTRY_FLOAT64] = 8,        [GANTRY_UINT32] = 4,         [GANTRY_UINT64] = 8,
        [GANTRY_COMPLEX64] = 8,      [GANTRY_COMPLEX128] = 16,    [GANTRY_BFLOAT16] = 2,
        [GANTRY_FLOAT8E4M3FN] = 1,   [GANTRY_FLOAT8E4M3FNUZ] = 1, [GANTRY_FLOAT8E5M2] = 1,
        [GANTRY_FLOAT8E5M2FNUZ] = 1, [GANTRY_FLOAT8E8M0] = 1,
    };
    return (unsigned)dtype < GANTRY_DTYPE_COUNT ? sizes[dtype] : 0;
}

/* Bits of one element of a type below 8 bits, else 0. */
static inline unsigned cpu_dtype_packed_bits(gantry_dtype dtype)
{
    switch (dtype) {
    case GANTRY_UINT4:
    case GANTRY_INT4:
    case GANTRY_FLOAT4E2M1:
        return 4;
    case GANTRY_UINT2:
    case GANTRY_INT2:
        return 2;
    default:
        return 0;
    }
}

static inline bool cpu_dtype_in(gantry_dtype dtype, uint32_t set)
{
    return (unsigned)dtype < 32 && (set & CPU_BIT(dtype)) != 0;
}

/* Bytes a tensor of that many elements takes. */
static inline size_t cpu_bytes_of(gantry_dtype dtype, int64_t count)
{
    unsigned bits = cpu_dtype_packed_bits(dtype);
    return bits ? ((size_t)count * bits + 7) / 8 : (size_t)count * cpu_dtype_size(dtype);
}

/* Input k of the node, or NULL when it is left out or past the end. */
static inline const cpu_tensor *cpu_input(const cpu_build *build, uint32_t k)
{
    return k < build->input_count && build->inputs[k].present ? &build->inputs[k] : NULL;
}

static inline const cpu_tensor *cpu_output(const cpu_build *build, uint32_t k)
{
    return k < build->output_count && build->outputs[k].present ? &build->outputs[k] : NULL;
}

static inline const void *cpu_call_input(const cpu_call *call, const cpu_build *build, uint32_t k)
{
    return cpu_input(build, k) ? call->inputs[k] : NULL;
}

static inline int64_t cpu_product(const int64_t *dims, uint32_t begin, uint32_t end)
{
    int64_t product = 1;
    for (uint32_t k = begin; k < end; k++)
        product *= dims[k];
    return product;
}

static inline int64_t cpu_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t cpu_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t cpu_clamp64(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

static inline bool cpu_same_dims(const cpu_tensor *a, const cpu_tensor *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof a->dims[0]) == 0;
}

/* Threads worth using for that many elements. */
static inline int cpu_threads_for(const cpu_build *build, double elements)
{
    return elements < CPU_TINY_ELEMENTS ? 1 : build->threads;
}

/* Dense row-major strides in elements. */
void cpu_strides(uint32_t rank, const int64_t *dims, int64_t *out_strides);

/* Elements in memory: count, or the padded count of a blocked layout. */
int64_t cpu_physical_count(const cpu_tensor *tensor);

/* Axis -rank..rank-1 as 0..rank-1; fails with the node's name. */
gantry_status cpu_resolve_axis(cpu_build *build, int64_t axis, uint32_t rank, uint32_t *out_axis);

/* An attribute of integers; NULL and *out_count = 0 when it is left out. */
const int64_t *cpu_ints(const gantry_node_view *node, const char *name, uint32_t *out_count);
const float *cpu_attr_floats(const gantry_node_view *node, const char *name, uint32_t *out_count);

/* Integers from attribute `name`, or from input k when there is no such attribute (k = GANTRY_NO_ID: none).
 * *out_given is false when neither is there. Fails when the input is there but its elements are not known, or
 * when there are more than capacity. */
gantry_status cpu_ints_operand(cpu_build *build, const char *name, uint32_t k, int64_t *out_values,
                               uint32_t capacity, uint32_t *out_count, bool *out_given);

/* An element of a tensor of any plain number type, converted. */
double cpu_load_double(gantry_dtype dtype, const void *data, int64_t index);
int64_t cpu_load_int(gantry_dtype dtype, const void *data, int64_t index);

/* ---- loop nests ----
 * A nest walks an output of `rank` extents row by row; operand k advances by strides[k][axis] elements along
 * each axis. Neighbouring axes that all operands walk without a gap are merged, so most nests have rank 1
 * or 2. The innermost axis is `inner` elements with step[k]. */
#define CPU_NEST_OPERANDS 4
typedef struct cpu_nest {
    uint32_t operand_count;
    uint32_t rank; /* of the outer axes */
    int64_t rows;  /* product of the outer axes */
    int64_t inner;
    int64_t dims[GANTRY_MAX_RANK];
    int64_t strides[CPU_NEST_OPERANDS][GANTRY_MAX_RANK];
    int64_t step[CPU_NEST_OPERANDS];
} cpu_nest;

typedef struct cpu_nest_position {
    int64_t index[GANTRY_MAX_RANK];
    int64_t offset[CPU_NEST_OPERANDS];
} cpu_nest_position;

/* From explicit strides: strides[k] has rank entries. */
void cpu_nest_make(cpu_nest *nest, uint32_t rank, const int64_t *dims, uint32_t operand_count,
                   const int64_t *const *strides);
/* Strides of operand as seen by an output of that rank: 0 along broadcast axes. False when it does not
 * broadcast. */
bool cpu_broadcast_strides(const cpu_tensor *operand, uint32_t rank, const int64_t *dims,
                           int64_t *out_strides);
/* Operands broadcast to an output. False when one does not. */
bool cpu_nest_broadcast(cpu_nest *nest, uint32_t rank, const int64_t *dims, uint32_t operand_count,
                        const cpu_tensor *const *operands);
/* The position of a row (0..rows-1). */
void cpu_nest_seek(const cpu_nest *nest, int64_t row, cpu_nest_position *out_position);
/* To the next row. */
void cpu_nest_next(const cpu_nest *nest, cpu_nest_position *position);

/* ---- other element types --------------------------------------------------------------------- */

/* Makes the node with another maker that sees input k as in_types[k] and output k as out_types[k], and wraps
 * it in conversions. A type that is the operand's own needs none. */
gantry_status cpu_make_converted(cpu_build *build, cpu_make_fn make, const gantry_dtype *in_types,
                                 const gantry_dtype *out_types, cpu_kernel *out_kernel);
/* float16 and bfloat16 operands (float8 too) are computed in float32; others go straight to make. */
gantry_status cpu_make_widened(cpu_build *build, cpu_make_fn make, cpu_kernel *out_kernel);
/* Elements below 8 bits are moved as bytes. */
gantry_status cpu_make_unpacked(cpu_build *build, cpu_make_fn make, cpu_kernel *out_kernel);

/* Converts elements begin..end-1; begin is a multiple of 4. cast.c */
typedef struct cpu_cast {
    void (*load)(const void *in, int64_t begin, void *out, int64_t n); /* to `middle_in`, NULL: not needed */
    void (*convert)(const void *in, void *out, int64_t n);             /* NULL: the same type */
    void (*store)(const void *in, void *out, int64_t begin, int64_t n, int mode); /* NULL: not needed */
    size_t in_bytes, middle_bytes, out_bytes; /* of one element, around convert */
    int mode;                                 /* of store: saturate, rounding */
} cpu_cast;
bool cpu_cast_find(gantry_dtype from, gantry_dtype to, int mode, cpu_cast *out_cast);
void cpu_cast_run(const cpu_cast *cast, const void *in, void *out, int64_t begin, int64_t end);
void cpu_cast_parallel(const cpu_call *call, const cpu_cast *cast, const void *in, void *out, int64_t count);
enum { CPU_CAST_SATURATE = 1, CPU_CAST_UP = 2, CPU_CAST_DOWN = 4 };

/* Shared by cast.c and quantized.c: store a float as float8 and so on. half.h has the inverse. */

#endif
