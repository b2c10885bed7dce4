/* Types shared by applications (gantry.h) and providers (provider.h): element types, status, errors, tensors,
 * refusals.
 *
 * Includes only the C standard library. Every struct that crosses the library boundary starts with its size
 * in bytes; fields are only ever appended, and a size of 0 is refused. */
#ifndef GANTRY_TYPES_H
#define GANTRY_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(GANTRY_BUILD) && defined(__GNUC__)
#define GANTRY_API __attribute__((visibility("default")))
#else
#define GANTRY_API
#endif

#if defined(__GNUC__)
#define GANTRY_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define GANTRY_PRINTF(format_index, first)
#endif

/* No such value, node, constant. */
#define GANTRY_NO_ID UINT32_MAX
/* Tensors of higher rank are refused with a status. */
#define GANTRY_MAX_RANK 16

/* What a call returns. The class says who has to act: see each name. */
typedef enum gantry_status {
    GANTRY_OK = 0,
    GANTRY_INVALID_ARGUMENT = 1, /* the caller broke the contract of the call */
    GANTRY_MODEL_PARSE = 2,      /* the file is not a well-formed ONNX model */
    GANTRY_MODEL_GRAPH = 3,      /* the graph is wrong: names, cycles, arity, attributes */
    GANTRY_MODEL_TYPE = 4,       /* element types do not fit the operator */
    GANTRY_MODEL_SHAPE = 5,      /* shapes do not fit the operator */
    GANTRY_INPUT_SHAPE = 6,      /* an input given to a run has a shape or type the model does not take */
    GANTRY_DATA = 7,             /* external or constant data is missing, short, or changed */
    GANTRY_UNSUPPORTED = 8,      /* legal ONNX that no provider asked for can run */
    GANTRY_PROVIDER = 9,         /* a provider failed; the error names it */
    GANTRY_RESOURCE = 10,        /* memory or another resource is exhausted, or a limit was reached */
    GANTRY_CANCELLED = 11,       /* gantry_run_cancel was called */
    GANTRY_DEADLINE = 12,        /* the option deadline_ms was reached */
    GANTRY_INTERNAL = 13         /* a bug in Gantry */
} gantry_status;

/* Where an error arose. "load" covers all of session creation up to placement. */
typedef enum gantry_stage {
    GANTRY_STAGE_NONE = 0,
    GANTRY_STAGE_LOAD = 1,    /* reading, shape inference, rewriting */
    GANTRY_STAGE_PLACE = 2,   /* no provider supports a node */
    GANTRY_STAGE_COMPILE = 3, /* a provider failed to compile */
    GANTRY_STAGE_RUN = 4,     /* binding of a shape, or running */
    GANTRY_STAGE_PLUGIN = 5   /* loading a provider library */
} gantry_stage;

/* Filled by the callee when a call fails. Owned by the caller; set struct_bytes = sizeof(gantry_error) or use
 * GANTRY_ERROR_INIT. Every function takes NULL for "no details wanted". Texts are UTF-8, NUL-terminated, cut
 * to fit. */
typedef struct gantry_error {
    size_t struct_bytes;
    gantry_status code;
    gantry_stage stage;
    char provider[64];
    char node[256];
    char message[2048];
} gantry_error;
#define GANTRY_ERROR_INIT                                                                                    \
    {                                                                                                        \
        sizeof(gantry_error), GANTRY_OK, GANTRY_STAGE_NONE, "", "", ""                                       \
    }

/* Element types: the numbers of ONNX TensorProto.DataType. Types below 8 bits are packed, low bits first, two
 * or four elements a byte; a tensor's bytes round up to a whole byte. */
typedef enum gantry_dtype {
    GANTRY_UNDEFINED = 0,
    GANTRY_FLOAT32 = 1,
    GANTRY_UINT8 = 2,
    GANTRY_INT8 = 3,
    GANTRY_UINT16 = 4,
    GANTRY_INT16 = 5,
    GANTRY_INT32 = 6,
    GANTRY_INT64 = 7,
    GANTRY_STRING = 8,
    GANTRY_BOOL = 9,
    GANTRY_FLOAT16 = 10,
    GANTRY_FLOAT64 = 11,
    GANTRY_UINT32 = 12,
    GANTRY_UINT64 = 13,
    GANTRY_COMPLEX64 = 14,
    GANTRY_COMPLEX128 = 15,
    GANTRY_BFLOAT16 = 16,
    GANTRY_FLOAT8E4M3FN = 17,
    GANTRY_FLOAT8E4M3FNUZ = 18,
    GANTRY_FLOAT8E5M2 = 19,
    GANTRY_FLOAT8E5M2FNUZ = 20,
    GANTRY_UINT4 = 21,
    GANTRY_INT4 = 22,
    GANTRY_FLOAT4E2M1 = 23,
    GANTRY_FLOAT8E8M0 = 24,
    GANTRY_UINT2 = 25,
    GANTRY_INT2 = 26,
    GANTRY_DTYPE_COUNT = 27
} gantry_dtype;

/* What a value holds. Only tensors can be computed in this version; the others are named so that their place
 * is kept. */
typedef enum gantry_value_kind {
    GANTRY_KIND_TENSOR = 1,
    GANTRY_KIND_SEQUENCE = 2,
    GANTRY_KIND_OPTIONAL = 3,
    GANTRY_KIND_MAP = 4
} gantry_value_kind;

/* A place in memory of one domain: what the domain's allocator returned, and a byte offset into it. In the
 * domain "host" the handle is the address itself. */
typedef struct gantry_buffer {
    void *handle;
    size_t offset_bytes;
} gantry_buffer;

/* A dense row-major tensor in memory that somebody else owns.
 * rank 0 is a scalar. dims points to rank extents, none negative. strides is NULL (dense) or rank strides in
 * elements; strided tensors are refused where a call does not say otherwise. domain is NULL or "host" for
 * host memory, else a domain's name such as "cuda:0". size_bytes is the capacity from buffer on. */
typedef struct gantry_tensor {
    size_t struct_bytes;
    gantry_dtype dtype;
    uint32_t rank;
    const int64_t *dims;
    const int64_t *strides;
    const char *domain;
    gantry_buffer buffer;
    size_t size_bytes;
} gantry_tensor;

/* Refusal codes: GANTRY_REFUSE_no_kernel has the stable text "no_kernel" and so on (refusals.def). */
typedef enum gantry_refusal_code {
    GANTRY_REFUSE_NONE = 0,
#define GANTRY_REFUSAL(code, group, meaning) GANTRY_REFUSE_##code,
#include "refusals.def"
#undef GANTRY_REFUSAL
    GANTRY_REFUSE_COUNT
} gantry_refusal_code;

#ifdef __cplusplus
}
#endif
#endif
