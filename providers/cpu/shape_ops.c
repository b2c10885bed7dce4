/* Operators about shapes, and those that make a tensor of a shape: Shape, Size, ConstantOfShape, Range,
 * EyeLike; random numbers are in random.c. */
#include "kernels.h"

#include "half.h"
#include "random.h"

/* ---- Shape, Size: known when the kernel is made ---------------------------------------------- */

typedef struct shape_state {
    int64_t count;
    int64_t values[GANTRY_MAX_RANK];
} shape_state;

static gantry_status shape_run(const void *opaque, const cpu_call *call)
{
    const shape_state *state = opaque;
    memcpy(call->outputs[0], state->values, (size_t)state->count * sizeof state->values[0]);
    return GANTRY_OK;
}

static int64_t clamp_axis(int64_t axis, uint32_t rank)
{
    axis = axis < 0 ? axis + rank : axis;
    return axis < 0 ? 0 : axis > (int64_t)rank ? (int64_t)rank : axis;
}

static gantry_status make_shape(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *in = &build->inputs[0];
    shape_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    int64_t start = clamp_axis(gantry_node_int(build->node, "start", 0), in->rank);
    int64_t end = clamp_axis(gantry_node_int(build->node, "end", in->rank), in->rank);
    state->count = end > start ? end - start : 0;
    memcpy(state->values, in->dims + start, (size_t)state->count * sizeof in->dims[0]);
    *out_kernel = cpu_kernel_of(shape_run, state);
    return GANTRY_OK;
}

static gantry_status make_size(cpu_build *build, cpu_kernel *out_kernel)
{
    shape_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *state = (shape_state){.count = 1, .values = {build->inputs[0].count}};
    *out_kernel = cpu_kernel_of(shape_run, state);
    return GANTRY_OK;
}

/* ---- ConstantOfShape ------------------------------------------------------------------------- */

typedef struct fill_state {
    int64_t count;
    size_t element_bytes;
    bool zero;
    uint8_t value[16];
} fill_state;

static gantry_status fill_run(const void *opaque, const cpu_call *call)
{
    const fill_state *state = opaque;
    char *out = call->outputs[0];
    size_t bytes = (size_t)state->count * state->element_bytes, done = state->element_bytes;
    if (bytes == 0)
        return GANTRY_OK;
    if (state->zero) {
        memset(out, 0, bytes);
        return GANTRY_OK;
    }
    memcpy(out, state->value, state->element_bytes);
    for (; done < bytes; done *= 2) /* doubles what is filled */
        memcpy(out + done, out, done < bytes - done ? done : bytes - done);
    return GANTRY_OK;
}

static gantry_status make_constant_of_shape(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *out = &build->outputs[0];
    const gantry_attribute *value = gantry_node_attribute(build->node, "value");
    fill_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    unsigned bits = cpu_dtype_packed_bits(out->dtype);
    *state = (fill_state){.count = out->count, .element_bytes = cpu_dtype_size(out->dtype), .zero = true};
    if (bits) { /* whole bytes of equal elements */
        state->count = (int64_t)cpu_bytes_of(out->dtype, out->count);
        state->element_bytes = 1;
    }
    if (!state->element_bytes)
        return cpu_unsupported(build, "no kernel for element type %d", (int)out->dtype);
    if (value && value->kind == GANTRY_ATTR_TENSOR && value->count) {
        const gantry_tensor *tensor = value->tensors;
        const uint8_t *bytes = (const uint8_t *)tensor->buffer.handle + tensor->buffer.offset_bytes;
        if (tensor->dtype != out->dtype)
            return cpu_unsupported(build, "value has element type %d, the output %d", (int)tensor->dtype,
                                   (int)out->dtype);
        memcpy(state->value, bytes, state->element_bytes);
        if (bits) {
            unsigned code = bytes[0] & ((1u << bits) - 1);
            state->value[0] = (uint8_t)(bits == 4 ? code * 0x11u : code * 0x55u);
        }
        for (size_t k = 0; k < state->element_bytes; k++)
            state->zero = state->zero && state->value[k] == 0;
    }
    *out_kernel = cpu_kernel_of(fill_run, state);
    return GANTRY_OK;
}

/* ---- Range ----------------------------------------------------------------------------------- */

typedef struct range_state {
    gantry_dtype dtype;
    int64_t count;
} range_state;

#define RANGE(type)                                                                                          \
    {                                                                                                        \
        const type start = *(const type *)call->inputs[0], delta = *(const type *)call->inputs[2];           \
        type *out = call->outputs[0];                                                                        \
        for (int64_t k = 0; k < state->count; k++)                                                           \
            out[k] = (type)(start + 1u * (type)k * delta);                                                   \
        return GANTRY_OK;                                                                                    \
    }

static gantry_status range_run(const void *opaque, const cpu_call *call)
{
    const range_state *state = opaque;
    switch (state->dtype) {
    case GANTRY_FLOAT32:
        RANGE(float)
    case GANTRY_FLOAT64:
        RANGE(double)
    case GANTRY_INT16:
        RANGE(uint16_t)
    case GANTRY_INT32:
        RANGE(uint32_t)
    case GANTRY_INT64:
        RANGE(uint64_t)
    default:
        return GANTRY_INTERNAL;
    }
}

static gantry_status make_range_plain(cpu_build *build, cpu_kernel *out_kernel)
{
    range_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    *state = (range_state){build->outputs[0].dtype, build->outputs[0].count};
    *out_kernel = cpu_kernel_of(range_run, state);
    return GANTRY_OK;
}

static gantry_status make_range(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_range_plain, out_kernel);
}

/* ---- EyeLike --------------------------------------------------------------------------------- */

typedef struct eye_state {
    int64_t rows, columns, shift;
    size_t element_bytes;
    uint8_t one[8];
} eye_state;

static gantry_status eye_run(const void *opaque, const cpu_call *call)
{
    const eye_state *state = opaque;
    char *out = call->outputs[0];
    memset(out, 0, (size_t)(state->rows * state->columns) * state->element_bytes);
    for (int64_t row = 0; row < state->rows; row++) {
        int64_t column = row + state->shift;
        if (column >= 0 && column < state->columns)
            memcpy(out + (size_t)(row * state->columns + column) * state->element_bytes, state->one,
                   state->element_bytes);
    }
    return GANTRY_OK;
}

static gantry_status make_eye_like(cpu_build *build, cpu_kernel *out_kernel)
{
    const cpu_tensor *out = &build->outputs[0];
    const float one = 1;
    cpu_cast cast;
    eye_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    if (out->rank != 2 || !cpu_cast_find(GANTRY_FLOAT32, out->dtype, 0, &cast))
        return cpu_unsupported(build, "needs rank 2 and a number type");
    *state = (eye_state){
        .rows = out->dims[0], .columns = out->dims[1], .element_bytes = cpu_dtype_size(out->dtype)};
    int64_t shift = gantry_node_int(build->node, "k", 0);
    state->shift = cpu_max64(-state->rows, cpu_min64(shift, state->columns));
    cpu_cast_run(&cast, &one, state->one, 0, 1);
    *out_kernel = cpu_kernel_of(eye_run, state);
    return GANTRY_OK;
}

static const cpu_op_row rows[] = {
    {.op = "Shape", .domain = "", .make = make_shape},
    {.op = "Size", .domain = "", .make = make_size},
    {.op = "ConstantOfShape", .domain = "", .types = {CPU_BIT(GANTRY_INT64)}, .make = make_constant_of_shape},
    {.op = "Range",
     .domain = "",
     .types = {CPU_REALS | CPU_BIT(GANTRY_INT16) | CPU_INDEX},
     .make = make_range},
    {.op = "EyeLike", .domain = "", .types = {CPU_ALL_NUMBERS | CPU_TRUTH}, .make = make_eye_like},
    {.op = "RandomNormal", .domain = "", .make = cpu_make_random},
    {.op = "RandomNormalLike", .domain = "", .make = cpu_make_random},
    {.op = "RandomUniform", .domain = "", .make = cpu_make_random},
    {.op = "RandomUniformLike", .domain = "", .make = cpu_make_random},
    {.op = "Bernoulli", .domain = "", .types = {CPU_REALS}, .make = cpu_make_bernoulli},
    {.op = "Multinomial", .domain = "", .types = {CPU_REALS}, .make = cpu_make_multinomial},
};

cpu_op_family cpu_shape_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
