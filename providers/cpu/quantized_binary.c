/* QLinearAdd and QLinearMul, and Add and Mul between DequantizeLinear and QuantizeLinear: real numbers exist
 * in registers only, with the roundings of the definitions.
 *
 *     inputs: a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero */
#include "quantized.h"

typedef struct binary_state {
    cpu_qbinary parameters;
    cpu_nest nest;
    int64_t rows_per_chunk;
    int64_t repeats; /* rows in a row that B has one of; 0: other shapes */
    bool swapped;    /* A is the node's second operand */
} binary_state;

typedef struct binary_work {
    const binary_state *state;
    const uint8_t *a, *b;
    uint8_t *out;
} binary_work;

/* A short row of B serves many rows of A: repeated, it makes a long one. */
#define REPEATED 2048

static void repeated_chunk(void *arg, int64_t begin, int64_t end)
{
    const binary_work *work = arg;
    const binary_state *s = work->state;
    const cpu_nest *nest = &s->nest;
    uint8_t rows[REPEATED];
    cpu_nest_position at;
    for (int64_t row = begin; row < end;) {
        cpu_nest_seek(nest, row, &at);
        int64_t along = row % s->repeats, count = cpu_min64(s->repeats - along, end - row);
        int64_t fit = cpu_min64(count, REPEATED / nest->inner);
        for (int64_t k = 0; k < fit; k++)
            memcpy(rows + k * nest->inner, work->b + at.offset[2], (size_t)nest->inner);
        for (int64_t done = 0; done < count; done += fit)
            cpu_rows_best()->qbinary(work->a + at.offset[1] + done * nest->inner, 1, rows, 1,
                                     work->out + at.offset[0] + done * nest->inner,
                                     cpu_min64(fit, count - done) * nest->inner, &s->parameters);
        row += count;
    }
}

static void binary_chunk(void *arg, int64_t begin, int64_t end)
{
    const binary_work *work = arg;
    const cpu_nest *nest = &work->state->nest;
    cpu_nest_position at;
    cpu_nest_seek(nest, begin, &at);
    for (int64_t row = begin; row < end; row++, cpu_nest_next(nest, &at))
        cpu_rows_best()->qbinary(work->a + at.offset[1], nest->step[1], work->b + at.offset[2], nest->step[2],
                                 work->out + at.offset[0], nest->inner, &work->state->parameters);
}

/* One long row is cut into pieces. */
static void flat_chunk(void *arg, int64_t begin, int64_t end)
{
    const binary_work *work = arg;
    const cpu_nest *nest = &work->state->nest;
    cpu_rows_best()->qbinary(work->a + begin * nest->step[1], nest->step[1], work->b + begin * nest->step[2],
                             nest->step[2], work->out + begin, end - begin, &work->state->parameters);
}

static gantry_status binary_run(const void *opaque, const cpu_call *call)
{
    const binary_state *state = opaque;
    binary_work work = {state, call->inputs[state->swapped ? 3 : 0], call->inputs[state->swapped ? 0 : 3],
                        call->outputs[0]};
    if (state->nest.rows == 1)
        cpu_parallel(call, state->nest.inner, CPU_CHUNK_ELEMENTS, flat_chunk, &work);
    else
        cpu_parallel(call, state->nest.rows, state->rows_per_chunk,
                     state->repeats ? repeated_chunk : binary_chunk, &work);
    return GANTRY_OK;
}

static gantry_status read_scale(cpu_build *build, uint32_t input, float *out_scale)
{
    const cpu_tensor *tensor = cpu_input(build, input);
    if (!tensor || tensor->count != 1 || !tensor->constant || !tensor->data)
        return cpu_unsupported(build, "the scale in input %u is no constant scalar", input);
    *out_scale = *(const float *)tensor->data;
    return GANTRY_OK;
}

/* Signed bytes are taken as unsigned ones that are 128 more. */
static gantry_status read_zero(cpu_build *build, uint32_t input, gantry_dtype dtype, int32_t *out_zero,
                               uint8_t *out_flip)
{
    const cpu_tensor *tensor = cpu_input(build, input);
    if (tensor && (tensor->count != 1 || !tensor->constant || !tensor->data || tensor->dtype != dtype))
        return cpu_unsupported(build, "the zero point in input %u is no constant scalar of its tensor's type",
                               input);
    bool is_signed = dtype == GANTRY_INT8;
    *out_zero = (tensor ? (int32_t)cpu_load_int(dtype, tensor->data, 0) : 0) + (is_signed ? 128 : 0);
    *out_flip = is_signed ? 0x80 : 0;
    return GANTRY_OK;
}

static gantry_status read_parameters(cpu_build *build, cpu_qbinary *p)
{
    gantry_dtype out = build->outputs[0].dtype;
    GT_TRY(read_scale(build, 1, &p->a_scale));
    GT_TRY(read_zero(build, 2, build->inputs[0].dtype, &p->a_zero, &p->a_flip));
    GT_TRY(read_scale(build, 4, &p->b_scale));
    GT_TRY(read_zero(build, 5, build->inputs[3].dtype, &p->b_zero, &p->b_flip));
    GT_TRY(read_scale(build, 6, &p->scale));
    GT_TRY(read_zero(build, 7, out, &p->zero, &p->flip));
    int32_t shift = p->flip ? 128 : 0;
    cpu_qrange range = cpu_qrange_of(build, out, p->scale, p->zero - shift);
    p->low = (float)(range.low + shift - p->zero);
    p->high = (float)(range.high + shift - p->zero);
    p->multiply = strstr(build->node->op, "Mul") != NULL;
    return GANTRY_OK;
}

/* Whether the operand can take part while the output has its channels last. */
static bool fits_last(const cpu_tensor *tensor, const cpu_tensor *out, bool *inout_gains)
{
    if (tensor->count == 1)
        return true;
    *inout_gains = *inout_gains || tensor->layout == CPU_NHWC;
    if (tensor->rank == out->rank && !tensor->constant)
        return true;
    return out->rank - tensor->rank <= 1 &&
           cpu_product(tensor->dims, 2 - (out->rank - tensor->rank), tensor->rank) == 1;
}

/* The tensor with as many dims as the output, channels last if asked for. */
static cpu_tensor shown(const cpu_tensor *tensor, uint32_t rank, bool last)
{
    cpu_tensor out = *tensor;
    uint32_t missing = rank - tensor->rank;
    for (uint32_t k = rank; k-- > 0;)
        out.dims[k] = k >= missing ? tensor->dims[k - missing] : 1;
    out.rank = rank;
    if (last) {
        int64_t channels = out.dims[1];
        memmove(&out.dims[1], &out.dims[2], (rank - 2) * sizeof out.dims[0]);
        out.dims[rank - 1] = channels;
    }
    return out;
}

static gantry_status plan_nest(cpu_build *build, cpu_nest *nest)
{
    cpu_tensor *a = &build->inputs[0], *b = &build->inputs[3], *out = &build->outputs[0];
    if (a->rank > out->rank || b->rank > out->rank)
        return cpu_unsupported(build, "an operand has more dims than the result");
    bool gains = false;
    bool last =
        out->rank >= 3 && out->rank <= 5 && fits_last(a, out, &gains) && fits_last(b, out, &gains) && gains;
    a->layout = last && a->rank == out->rank ? CPU_NHWC : CPU_PLAIN;
    b->layout = last && b->rank == out->rank ? CPU_NHWC : CPU_PLAIN;
    a->layout = a->constant ? CPU_PLAIN : a->layout;
    b->layout = b->constant ? CPU_PLAIN : b->layout;
    out->layout = last ? CPU_NHWC : CPU_PLAIN;
    cpu_tensor shown_out = shown(out, out->rank, last), shown_a = shown(a, out->rank, last),
               shown_b = shown(b, out->rank, last);
    const cpu_tensor *operands[3] = {&shown_out, &shown_a, &shown_b};
    if (!cpu_nest_broadcast(nest, out->rank, shown_out.dims, 3, operands))
        return cpu_unsupported(build, "the operands do not broadcast");
    return GANTRY_OK;
}

/* How many neighbouring rows of A and the result meet the same row of B. */
static int64_t repeats_of(const cpu_nest *nest)
{
    uint32_t last = nest->rank - 1;
    bool dense = nest->rank && nest->step[1] == 1 && nest->step[2] == 1 && nest->inner <= REPEATED / 4 &&
                 nest->strides[0][last] == nest->inner && nest->strides[1][last] == nest->inner &&
                 nest->strides[2][last] == 0;
    return dense ? nest->dims[last] : 0;
}

/* Sums and products do not mind which operand comes first: the one that is repeated is B. */
static void put_short_last(binary_state *s)
{
    cpu_qbinary *p = &s->parameters, was = *p;
    cpu_nest swapped = s->nest;
    memcpy(swapped.strides[1], s->nest.strides[2], sizeof swapped.strides[1]);
    memcpy(swapped.strides[2], s->nest.strides[1], sizeof swapped.strides[2]);
    swapped.step[1] = s->nest.step[2];
    swapped.step[2] = s->nest.step[1];
    if (repeats_of(&s->nest) || !repeats_of(&swapped))
        return;
    s->nest = swapped;
    s->swapped = true;
    p->a_scale = was.b_scale;
    p->a_zero = was.b_zero;
    p->a_flip = was.b_flip;
    p->b_scale = was.a_scale;
    p->b_zero = was.a_zero;
    p->b_flip = was.a_flip;
}

gantry_status cpu_make_qlinear_binary(cpu_build *build, cpu_kernel *out_kernel)
{
    binary_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    GT_TRY(read_parameters(build, &state->parameters));
    GT_TRY(plan_nest(build, &state->nest));
    put_short_last(state);
    state->repeats = repeats_of(&state->nest);
    state->rows_per_chunk = cpu_max64(1, CPU_CHUNK_ELEMENTS / cpu_max64(1, state->nest.inner));
    *out_kernel = cpu_kernel_of(binary_run, state);
    out_kernel->isa = cpu_rows_best()->isa;
    out_kernel->accumulate = GANTRY_FLOAT32;
    out_kernel->threads = cpu_threads_for(build, (double)build->outputs[0].count);
    return GANTRY_OK;
}
