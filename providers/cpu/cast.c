/* Conversions between all element types but strings.
 *
 *     from --load--> middle type --convert--> middle type --store--> to
 *
 * The middle types are C's own (a bool is a byte); load and store handle what C lacks: float16, bfloat16,
 * float8, and types packed below 8 bits. Each of the three is left out where it has nothing to do. */
#include "elementwise.h"
#include "half.h"
#include "native_types.h"

#include <math.h>

/* Elements converted at a time when there is a load or a store: small enough for the stack and L1. */
#define BLOCK 512

#define CONVERT(from, to, type_from, type_to, expression)                                                    \
    CPU_CLONES static void from##_to_##to(const void *in, void *out, int64_t n)                              \
    {                                                                                                        \
        const type_from *source = in;                                                                        \
        type_to *target = out;                                                                               \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            const type_from x = source[k];                                                                   \
            target[k] = (type_to)(expression);                                                               \
        }                                                                                                    \
    }

/* Between integers C truncates bits; from floats the value is clamped to 32 or 64 bits first, then truncated.
 */
#define FROM_INTEGER(from, type)                                                                             \
    CONVERT(from, f32, type, float, x)                                                                       \
    CONVERT(from, f64, type, double, x)                                                                      \
    CONVERT(from, i8, type, int8_t, x)                                                                       \
    CONVERT(from, i16, type, int16_t, x)                                                                     \
    CONVERT(from, i32, type, int32_t, x)                                                                     \
    CONVERT(from, i64, type, int64_t, x)                                                                     \
    CONVERT(from, u8, type, uint8_t, x)                                                                      \
    CONVERT(from, u16, type, uint16_t, x)                                                                    \
    CONVERT(from, u32, type, uint32_t, x)                                                                    \
    CONVERT(from, u64, type, uint64_t, x)                                                                    \
    CONVERT(from, truth, type, uint8_t, x != 0)
#define FROM_FLOAT(from, type)                                                                               \
    CONVERT(from, f32, type, float, x)                                                                       \
    CONVERT(from, f64, type, double, x)                                                                      \
    CONVERT(from, i8, type, int8_t, cpu_saturate_to_i32((double)x))                                          \
    CONVERT(from, i16, type, int16_t, cpu_saturate_to_i32((double)x))                                        \
    CONVERT(from, i32, type, int32_t, cpu_saturate_to_i32((double)x))                                        \
    CONVERT(from, i64, type, int64_t, cpu_saturate_to_i64((double)x))                                        \
    CONVERT(from, u8, type, uint8_t, cpu_saturate_to_i32((double)x))                                         \
    CONVERT(from, u16, type, uint16_t, cpu_saturate_to_i32((double)x))                                       \
    CONVERT(from, u32, type, uint32_t, cpu_saturate_to_i64((double)x))                                       \
    CONVERT(from, u64, type, uint64_t, cpu_saturate_to_u64((double)x))                                       \
    CONVERT(from, truth, type, uint8_t, x != 0)

FROM_FLOAT(f32, float)
FROM_FLOAT(f64, double)
FROM_INTEGER(i8, int8_t)
FROM_INTEGER(i16, int16_t)
FROM_INTEGER(i32, int32_t)
FROM_INTEGER(i64, int64_t)
FROM_INTEGER(u8, uint8_t)
FROM_INTEGER(u16, uint16_t)
FROM_INTEGER(u32, uint32_t)
FROM_INTEGER(u64, uint64_t)

typedef void (*convert_fn)(const void *in, void *out, int64_t n);

#define ENTRIES(from, DTYPE)                                                                                 \
    [DTYPE] = {                                                                                              \
        [GANTRY_FLOAT32] = from##_to_f32, [GANTRY_FLOAT64] = from##_to_f64, [GANTRY_INT8] = from##_to_i8,    \
        [GANTRY_INT16] = from##_to_i16,   [GANTRY_INT32] = from##_to_i32,   [GANTRY_INT64] = from##_to_i64,  \
        [GANTRY_UINT8] = from##_to_u8,    [GANTRY_UINT16] = from##_to_u16,  [GANTRY_UINT32] = from##_to_u32, \
        [GANTRY_UINT64] = from##_to_u64,  [GANTRY_BOOL] = from##_to_truth},

/* A bool is read as the byte it is; the row of u8 serves. */
static const convert_fn converts[GANTRY_DTYPE_COUNT][GANTRY_DTYPE_COUNT] = {
    ENTRIES(f32, GANTRY_FLOAT32) ENTRIES(f64, GANTRY_FLOAT64) ENTRIES(i8, GANTRY_INT8)
        ENTRIES(i16, GANTRY_INT16) ENTRIES(i32, GANTRY_INT32) ENTRIES(i64, GANTRY_INT64)
            ENTRIES(u8, GANTRY_UINT8) ENTRIES(u16, GANTRY_UINT16) ENTRIES(u32, GANTRY_UINT32)
                ENTRIES(u64, GANTRY_UINT64) ENTRIES(u8, GANTRY_BOOL)};

/* ---- load: to float32 or int8 / uint8 -------------------------------------------------------- */

static void load_f16(const void *in, int64_t begin, void *out, int64_t n)
{
    cpu_rows_best()->f16_to_f32((const uint16_t *)in + begin, out, n);
}

CPU_CLONES static void load_bf16(const void *in, int64_t begin, void *out, int64_t n)
{
    const uint16_t *source = (const uint16_t *)in + begin;
    uint32_t *target = out;
    for (int64_t k = 0; k < n; k++)
        target[k] = (uint32_t)source[k] << 16;
}

static unsigned packed(const void *in, int64_t index, unsigned bits)
{
    unsigned each = 8 / bits;
    return ((const uint8_t *)in)[index / each] >> (index % each * bits) & ((1u << bits) - 1);
}

#define LOAD(name, type, expression)                                                                         \
    static void load_##name(const void *in, int64_t begin, void *out, int64_t n)                             \
    {                                                                                                        \
        type *target = out;                                                                                  \
        for (int64_t k = 0; k < n; k++)                                                                      \
            target[k] = (type)(expression);                                                                  \
    }
#define CODE (((const uint8_t *)in)[begin + k])
LOAD(e4m3fn, float, cpu_small_to_f32(cpu_small_float_of(GANTRY_FLOAT8E4M3FN), CODE))
LOAD(e4m3fnuz, float, cpu_small_to_f32(cpu_small_float_of(GANTRY_FLOAT8E4M3FNUZ), CODE))
LOAD(e5m2, float, cpu_small_to_f32(cpu_small_float_of(GANTRY_FLOAT8E5M2), CODE))
LOAD(e5m2fnuz, float, cpu_small_to_f32(cpu_small_float_of(GANTRY_FLOAT8E5M2FNUZ), CODE))
LOAD(e8m0, float, cpu_e8m0_to_f32(CODE))
LOAD(e2m1, float, cpu_small_to_f32(cpu_small_float_of(GANTRY_FLOAT4E2M1), (uint8_t)packed(in, begin + k, 4)))
LOAD(u4, uint8_t, packed(in, begin + k, 4))
LOAD(i4, int8_t, (int)(packed(in, begin + k, 4) ^ 8u) - 8)
LOAD(u2, uint8_t, packed(in, begin + k, 2))
LOAD(i2, int8_t, (int)(packed(in, begin + k, 2) ^ 2u) - 2)

/* ---- store: from float32 or int8 / uint8 ----------------------------------------------------- */

static void store_f16(const void *in, void *out, int64_t begin, int64_t n, int mode)
{
    cpu_rows_best()->f32_to_f16(in, (uint16_t *)out + begin, n);
}

CPU_CLONES static void store_bf16(const void *in, void *out, int64_t begin, int64_t n, int mode)
{
    const float *source = in;
    uint16_t *target = (uint16_t *)out + begin;
    for (int64_t k = 0; k < n; k++)
        target[k] = cpu_f32_to_bf16(source[k]);
}

/* The exponent of a positive float, rounded up, down, or to the nearest power (ties up). */
static uint8_t f32_to_e8m0(float x, int mode)
{
    uint32_t bits = cpu_bits_of(x) & 0x7fffffffu, exponent = bits >> 23, mantissa = bits & 0x7fffffu;
    if (exponent == 255)
        return mantissa || !(mode & CPU_CAST_SATURATE) ? 255 : 254;
    bool raise = mode & CPU_CAST_UP     ? mantissa != 0
                 : mode & CPU_CAST_DOWN ? false
                 : exponent             ? mantissa >= 0x400000u
                                        : mantissa > 0x400000u;
    exponent += raise;
    return (uint8_t)(exponent == 255 ? (mode & CPU_CAST_SATURATE ? 254 : 255) : exponent);
}

#define STORE(name, type, expression)                                                                        \
    static void store_##name(const void *in, void *out, int64_t begin, int64_t n, int mode)                  \
    {                                                                                                        \
        const type *source = in;                                                                             \
        uint8_t *target = (uint8_t *)out + begin;                                                            \
        for (int64_t k = 0; k < n; k++)                                                                      \
            target[k] = expression;                                                                          \
    }
#define SMALL(dtype) cpu_f32_to_small(cpu_small_float_of(dtype), source[k], mode &CPU_CAST_SATURATE)
STORE(e4m3fn, float, SMALL(GANTRY_FLOAT8E4M3FN))
STORE(e4m3fnuz, float, SMALL(GANTRY_FLOAT8E4M3FNUZ))
STORE(e5m2, float, SMALL(GANTRY_FLOAT8E5M2))
STORE(e5m2fnuz, float, SMALL(GANTRY_FLOAT8E5M2FNUZ))
STORE(e8m0, float, f32_to_e8m0(source[k], mode))

/* begin is a multiple of the elements in a byte, so whole bytes are written; the last one may be partial. */
#define STORE_PACKED(name, type, bits, expression)                                                           \
    static void store_##name(const void *in, void *out, int64_t begin, int64_t n, int mode)                  \
    {                                                                                                        \
        const type *source = in;                                                                             \
        uint8_t *target = (uint8_t *)out + begin / (8 / bits);                                               \
        for (int64_t k = 0; k < n; k++) {                                                                    \
            unsigned at = (unsigned)(k % (8 / bits)), code = (unsigned)(expression) & ((1u << bits) - 1);    \
            target[k / (8 / bits)] = (uint8_t)(code << at * bits | (at ? target[k / (8 / bits)] : 0));       \
        }                                                                                                    \
    }
STORE_PACKED(u4, uint8_t, 4, source[k])
STORE_PACKED(i4, int8_t, 4, source[k])
STORE_PACKED(u2, uint8_t, 2, source[k])
STORE_PACKED(i2, int8_t, 2, source[k])
STORE_PACKED(e2m1, float, 4, SMALL(GANTRY_FLOAT4E2M1))

/* For each type: the middle type, and how to get there and back. */
typedef struct form {
    gantry_dtype middle;
    void (*load)(const void *in, int64_t begin, void *out, int64_t n);
    void (*store)(const void *in, void *out, int64_t begin, int64_t n, int mode);
} form;

static const form forms[GANTRY_DTYPE_COUNT] = {
    [GANTRY_FLOAT32] = {GANTRY_FLOAT32, NULL, NULL},
    [GANTRY_FLOAT64] = {GANTRY_FLOAT64, NULL, NULL},
    [GANTRY_INT8] = {GANTRY_INT8, NULL, NULL},
    [GANTRY_INT16] = {GANTRY_INT16, NULL, NULL},
    [GANTRY_INT32] = {GANTRY_INT32, NULL, NULL},
    [GANTRY_INT64] = {GANTRY_INT64, NULL, NULL},
    [GANTRY_UINT8] = {GANTRY_UINT8, NULL, NULL},
    [GANTRY_UINT16] = {GANTRY_UINT16, NULL, NULL},
    [GANTRY_UINT32] = {GANTRY_UINT32, NULL, NULL},
    [GANTRY_UINT64] = {GANTRY_UINT64, NULL, NULL},
    [GANTRY_BOOL] = {GANTRY_BOOL, NULL, NULL},
    [GANTRY_FLOAT16] = {GANTRY_FLOAT32, load_f16, store_f16},
    [GANTRY_BFLOAT16] = {GANTRY_FLOAT32, load_bf16, store_bf16},
    [GANTRY_FLOAT8E4M3FN] = {GANTRY_FLOAT32, load_e4m3fn, store_e4m3fn},
    [GANTRY_FLOAT8E4M3FNUZ] = {GANTRY_FLOAT32, load_e4m3fnuz, store_e4m3fnuz},
    [GANTRY_FLOAT8E5M2] = {GANTRY_FLOAT32, load_e5m2, store_e5m2},
    [GANTRY_FLOAT8E5M2FNUZ] = {GANTRY_FLOAT32, load_e5m2fnuz, store_e5m2fnuz},
    [GANTRY_FLOAT8E8M0] = {GANTRY_FLOAT32, load_e8m0, store_e8m0},
    [GANTRY_FLOAT4E2M1] = {GANTRY_FLOAT32, load_e2m1, store_e2m1},
    [GANTRY_UINT4] = {GANTRY_UINT8, load_u4, store_u4},
    [GANTRY_INT4] = {GANTRY_INT8, load_i4, store_i4},
    [GANTRY_UINT2] = {GANTRY_UINT8, load_u2, store_u2},
    [GANTRY_INT2] = {GANTRY_INT8, load_i2, store_i2},
};

bool cpu_cast_find(gantry_dtype from, gantry_dtype to, int mode, cpu_cast *out_cast)
{
    *out_cast = (cpu_cast){.mode = mode};
    if ((unsigned)from >= GANTRY_DTYPE_COUNT || (unsigned)to >= GANTRY_DTYPE_COUNT || !forms[from].middle ||
        !forms[to].middle)
        return false;
    const form *source = &forms[from], *target = &forms[to];
    out_cast->load = source->load;
    out_cast->store = target->store;
    out_cast->in_bytes = cpu_dtype_size(source->middle);
    out_cast->out_bytes = cpu_dtype_size(target->middle);
    if (source->middle != target->middle)
        out_cast->convert = converts[source->middle][target->middle];
    return true;
}

/* One block: at most BLOCK elements when there is a load or a store. */
static void cast_block(const cpu_cast *cast, const void *in, void *out, int64_t begin, int64_t n)
{
    double loaded[BLOCK], converted[BLOCK]; /* of any type up to 8 bytes */
    const void *source = (const char *)in + (size_t)begin * cast->in_bytes;
    if (cast->load) {
        void *place =
            cast->convert || cast->store ? (void *)loaded : (char *)out + (size_t)begin * cast->out_bytes;
        cast->load(in, begin, place, n);
        source = place;
    }
    if (cast->convert) {
        void *place = cast->store ? (void *)converted : (char *)out + (size_t)begin * cast->out_bytes;
        cast->convert(source, place, n);
        source = place;
    }
    if (cast->store)
        cast->store(source, out, begin, n, cast->mode);
    else if (!cast->load && !cast->convert)
        memcpy((char *)out + (size_t)begin * cast->out_bytes, source, (size_t)n * cast->out_bytes);
}

void cpu_cast_run(const cpu_cast *cast, const void *in, void *out, int64_t begin, int64_t end)
{
    int64_t step = cast->load || cast->store ? BLOCK : end - begin;
    for (; begin < end; begin += step)
        cast_block(cast, in, out, begin, cpu_min64(step, end - begin));
}

typedef struct cast_work {
    const cpu_cast *cast;
    const void *in;
    void *out;
} cast_work;

static void cast_chunk(void *arg, int64_t begin, int64_t end)
{
    const cast_work *work = arg;
    cpu_cast_run(work->cast, work->in, work->out, begin, end);
}

void cpu_cast_parallel(const cpu_call *call, const cpu_cast *cast, const void *in, void *out, int64_t count)
{
    cast_work work = {cast, in, out};
    cpu_parallel(call, count, CPU_CHUNK_ELEMENTS, cast_chunk, &work);
}

typedef struct cast_state {
    cpu_cast cast;
    int64_t count;
} cast_state;

static gantry_status cast_kernel_run(const void *opaque, const cpu_call *call)
{
    const cast_state *state = opaque;
    cpu_cast_parallel(call, &state->cast, call->inputs[0], call->outputs[0], state->count);
    return GANTRY_OK;
}

gantry_status cpu_make_cast(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    if (in->dtype == out->dtype) {
        *out_kernel = cpu_kernel_of(NULL, NULL);
        out_kernel->view_of_input = 0;
        return GANTRY_OK;
    }
    const char *round = gantry_node_string(build->node, "round_mode", "up");
    int mode = gantry_node_int(build->node, "saturate", 1) ? CPU_CAST_SATURATE : 0;
    mode |= strcmp(round, "up") == 0 ? CPU_CAST_UP : strcmp(round, "down") == 0 ? CPU_CAST_DOWN : 0;
    cast_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->count = in->count;
    if (!cpu_cast_find(in->dtype, out->dtype, mode, &state->cast))
        return cpu_unsupported(build, "no conversion from element type %d to %d", (int)in->dtype,
                               (int)out->dtype);
    *out_kernel = cpu_kernel_of(cast_kernel_run, state);
    out_kernel->threads = cpu_threads_for(build, (double)in->count);
    return GANTRY_OK;
}

/* The same bits under another type of the same width. */
gantry_status cpu_make_bit_cast(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0], *out = &build->outputs[0];
    if (cpu_bytes_of(in->dtype, in->count) != cpu_bytes_of(out->dtype, out->count))
        return cpu_unsupported(build, "element types %d and %d differ in width", (int)in->dtype,
                               (int)out->dtype);
    *out_kernel = cpu_kernel_of(NULL, NULL);
    out_kernel->view_of_input = 0;
    return GANTRY_OK;
}
