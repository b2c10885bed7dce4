/* MatMulInteger and QLinearMatMul, exact in int32. Both operands are brought to 16 bits with their zero
 * points taken away, B transposed, so that every output is one dot product of contiguous rows.
 *
 *     scratch: | A centered [batches, M, K] | B centered and transposed, unless it was constant [batches, N,
 * K] | */
#include "quantized.h"

typedef struct product_state {
    int64_t batches, rows, columns, depth;
    int64_t a_batches, b_batches;
    cpu_nest nest; /* over the batch axes; operand 0: A, 1: B, in matrices */
    gantry_dtype a_dtype, b_dtype, a_zero_dtype, b_zero_dtype;
    uint32_t a, b, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero; /* inputs; GANTRY_NO_ID: none */
    int64_t a_zero_count, b_zero_count, a_scale_count, b_scale_count;
    const int16_t *packed_b;
    gantry_dtype out_dtype; /* INT32: not requantized */
    size_t a_elements, b_elements;
} product_state;

typedef struct product_work {
    const product_state *state;
    const cpu_call *call;
    const int16_t *a, *b;
} product_work;

static int32_t zero_at(gantry_dtype dtype, const void *zeros, int64_t count, int64_t index)
{
    return zeros ? (int32_t)cpu_load_int(dtype, zeros, count == 1 ? 0 : index) : 0;
}

static void center_a(const product_state *state, const void *a, const void *zeros, int16_t *out)
{
    size_t row = (size_t)state->depth;
    for (int64_t k = 0; k < state->a_batches * state->rows; k++)
        cpu_center_bytes(state->a_dtype, (const char *)a + (size_t)k * row, out + (size_t)k * row,
                         state->depth,
                         zero_at(state->a_zero_dtype, zeros, state->a_zero_count, k % state->rows));
}

static void center_b(const product_state *state, const void *b, const void *zeros, int16_t *out)
{
    for (int64_t batch = 0; batch < state->b_batches; batch++)
        for (int64_t k = 0; k < state->depth; k++)
            for (int64_t n = 0; n < state->columns; n++) {
                int64_t from = (batch * state->depth + k) * state->columns + n;
                int32_t x =
                    state->b_dtype == GANTRY_UINT8 ? ((const uint8_t *)b)[from] : ((const int8_t *)b)[from];
                out[(batch * state->columns + n) * state->depth + k] =
                    (int16_t)(x - zero_at(state->b_zero_dtype, zeros, state->b_zero_count, n));
            }
}

static float scale_at(const cpu_call *call, uint32_t input, int64_t count, int64_t index)
{
    return ((const float *)call->inputs[input])[count == 1 ? 0 : index];
}

static void product_chunk(void *arg, int64_t begin, int64_t end)
{
    const product_work *work = arg;
    const product_state *state = work->state;
    const cpu_call *call = work->call;
    bool plain = state->out_dtype == GANTRY_INT32;
    for (int64_t row = begin; row < end; row++) {
        cpu_nest_position position;
        int64_t batch = row / state->rows, m = row % state->rows;
        cpu_nest_seek(&state->nest, batch / state->nest.inner, &position);
        int64_t at = batch % state->nest.inner;
        const int16_t *a =
            work->a + ((position.offset[0] + at * state->nest.step[0]) * state->rows + m) * state->depth;
        const int16_t *b =
            work->b + (position.offset[1] + at * state->nest.step[1]) * state->columns * state->depth;
        for (int64_t n = 0; n < state->columns; n++) {
            int32_t acc = cpu_rows_best()->dot_i16(a, b + n * state->depth, state->depth);
            int64_t out = row * state->columns + n;
            if (plain) {
                ((int32_t *)call->outputs[0])[out] = acc;
                continue;
            }
            float multiplier = scale_at(call, state->a_scale, state->a_scale_count, m) *
                               scale_at(call, state->b_scale, state->b_scale_count, n) /
                               scale_at(call, state->y_scale, 1, 0);
            cpu_requantize(state->out_dtype, acc, multiplier,
                           zero_at(state->out_dtype, call->inputs[state->y_zero], 1, 0), call->outputs[0],
                           out);
        }
    }
}

static const void *operand(const cpu_call *call, uint32_t input)
{
    return input == GANTRY_NO_ID ? NULL : call->inputs[input];
}

static gantry_status product_run(const void *opaque, const cpu_call *call)
{
    const product_state *state = opaque;
    int16_t *a = call->scratch, *b = a + state->a_elements;
    center_a(state, call->inputs[state->a], operand(call, state->a_zero), a);
    if (!state->packed_b)
        center_b(state, call->inputs[state->b], operand(call, state->b_zero), b);
    product_work work = {state, call, a, state->packed_b ? state->packed_b : b};
    cpu_parallel(call, state->batches * state->rows,
                 cpu_max64(1, CPU_CHUNK_ELEMENTS * 4 / cpu_max64(1, state->columns * state->depth)),
                 product_chunk, &work);
    return GANTRY_OK;
}

/* M, N, K and the batch axes; a vector is a matrix of one row or column. */
static gantry_status plan_product(cpu_build *build, product_state *state)
{
    const cpu_tensor *a = &build->inputs[state->a], *b = &build->inputs[state->b], *out = &build->outputs[0];
    uint32_t a_batch = a->rank > 2 ? a->rank - 2 : 0, b_batch = b->rank > 2 ? b->rank - 2 : 0;
    uint32_t batch_rank = a_batch > b_batch ? a_batch : b_batch;
    if (a->rank == 0 || b->rank == 0)
        return cpu_unsupported(build, "a scalar is no matrix");
    state->rows = a->rank > 1 ? a->dims[a->rank - 2] : 1;
    state->depth = a->dims[a->rank - 1];
    state->columns = b->rank > 1 ? b->dims[b->rank - 1] : 1;
    if ((b->rank > 1 ? b->dims[b->rank - 2] : b->dims[0]) != state->depth)
        return cpu_unsupported(build, "inner extents differ");
    state->batches = cpu_product(out->dims, 0, batch_rank);
    cpu_tensor a_matrices = {.rank = a_batch}, b_matrices = {.rank = b_batch};
    memcpy(a_matrices.dims, a->dims, a_batch * sizeof a->dims[0]);
    memcpy(b_matrices.dims, b->dims, b_batch * sizeof b->dims[0]);
    const cpu_tensor *operands[2] = {&a_matrices, &b_matrices};
    if (!cpu_nest_broadcast(&state->nest, batch_rank, out->dims, 2, operands))
        return cpu_unsupported(build, "batch axes do not broadcast");
    state->a_batches = cpu_product(a->dims, 0, a_batch);
    state->b_batches = cpu_product(b->dims, 0, b_batch);
    state->a_dtype = a->dtype;
    state->b_dtype = b->dtype;
    state->a_elements = ((size_t)a->count + 31) & ~(size_t)31;
    state->b_elements = (size_t)b->count;
    return GANTRY_OK;
}

/* Elements of a parameter: one, or one for each row or column. */
static gantry_status read_parameter(cpu_build *build, uint32_t input, int64_t lanes, uint32_t *out_input,
                                    int64_t *out_count, gantry_dtype *out_dtype)
{
    const cpu_tensor *tensor = cpu_input(build, input);
    *out_input = tensor ? input : GANTRY_NO_ID;
    *out_count = tensor ? tensor->count : 1;
    if (tensor && out_dtype)
        *out_dtype = tensor->dtype;
    if (tensor && tensor->count != 1 && tensor->count != lanes)
        return cpu_unsupported(build, "input %u has %lld elements; 1 or %lld are taken", input,
                               (long long)tensor->count, (long long)lanes);
    return GANTRY_OK;
}

static gantry_status finish_product(cpu_build *build, product_state *state, cpu_kernel *out_kernel)
{
    const cpu_tensor *b = &build->inputs[state->b];
    const cpu_tensor *b_zero = state->b_zero == GANTRY_NO_ID ? NULL : &build->inputs[state->b_zero];
    if (b->constant && b->data && (!b_zero || (b_zero->constant && b_zero->data))) {
        int16_t *packed = cpu_state(build, state->b_elements * sizeof *packed + 1);
        if (!packed)
            return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
        center_b(state, b->data, b_zero ? b_zero->data : NULL, packed);
        state->packed_b = packed;
    }
    state->out_dtype = build->outputs[0].dtype;
    *out_kernel = cpu_kernel_of(product_run, state);
    out_kernel->scratch_bytes =
        (state->a_elements + (state->packed_b ? 0 : state->b_elements)) * sizeof(int16_t);
    out_kernel->flops =
        2.0 * (double)(state->batches * state->rows) * (double)(state->columns * state->depth);
    out_kernel->threads = cpu_threads_for(build, out_kernel->flops / 8);
    out_kernel->isa = cpu_rows_best()->isa;
    out_kernel->accumulate = GANTRY_INT32;
    return GANTRY_OK;
}

gantry_status cpu_make_matmul_integer(cpu_build *build, cpu_kernel *out_kernel)
{
    product_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->a = 0;
    state->b = 1;
    GT_TRY(plan_product(build, state));
    GT_TRY(read_parameter(build, 2, state->rows, &state->a_zero, &state->a_zero_count, &state->a_zero_dtype));
    GT_TRY(
        read_parameter(build, 3, state->columns, &state->b_zero, &state->b_zero_count, &state->b_zero_dtype));
    return finish_product(build, state, out_kernel);
}

static gantry_status make_qlinear_matmul(cpu_build *build, cpu_kernel *out_kernel)
{
    int64_t count;
    product_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->a = 0;
    state->b = 3;
    GT_TRY(plan_product(build, state));
    GT_TRY(read_parameter(build, 1, state->rows, &state->a_scale, &state->a_scale_count, NULL));
    GT_TRY(read_parameter(build, 2, state->rows, &state->a_zero, &state->a_zero_count, &state->a_zero_dtype));
    GT_TRY(read_parameter(build, 4, state->columns, &state->b_scale, &state->b_scale_count, NULL));
    GT_TRY(
        read_parameter(build, 5, state->columns, &state->b_zero, &state->b_zero_count, &state->b_zero_dtype));
    GT_TRY(read_parameter(build, 6, 1, &state->y_scale, &count, NULL));
    GT_TRY(read_parameter(build, 7, 1, &state->y_zero, &count, NULL));
    return finish_product(build, state, out_kernel);
}

gantry_status cpu_make_qlinear_matmul(cpu_build *build, cpu_kernel *out_kernel)
{
    return cpu_make_widened(build, make_qlinear_matmul, out_kernel);
}
