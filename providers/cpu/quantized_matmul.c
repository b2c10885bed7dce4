/* MatMulInteger and QLinearMatMul, exact in int32 (byte_product.h). Work is cut into blocks of rows and
 * columns, so that one row times a wide matrix runs on several threads too.
 *
 *     scratch: | sums of the rows of A | A packed | B packed, unless it was constant | */
#include "byte_product.h"
#include "quantized.h"
#include "quantized_dnnl.h"

typedef struct product_state {
    int64_t batches, rows, columns, depth;
    int64_t a_batches, b_batches;
    cpu_nest nest; /* over the batch axes; operand 0: A, 1: B, in matrices */
    gantry_dtype a_dtype, b_dtype, a_zero_dtype, b_zero_dtype;
    uint32_t a, b, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero, bias; /* inputs; GANTRY_NO_ID: none */
    int64_t a_zero_count, b_zero_count, a_scale_count, b_scale_count;
    const char *packed_b;
    bool b_transposed;      /* B is [columns, depth] */
    cpu_qrange range;       /* what fused activations leave */
    gantry_dtype out_dtype; /* INT32: not requantized */
    size_t sums_bytes, a_bytes, b_matrix_bytes;
    int64_t row_blocks, column_blocks;
} product_state;

typedef struct product_work {
    const product_state *state;
    const cpu_call *call;
    int32_t *sums;
    uint8_t *a;
    const char *b;
} product_work;

static const void *operand(const cpu_call *call, uint32_t input)
{
    return input == GANTRY_NO_ID ? NULL : call->inputs[input];
}

static int32_t zero_at(gantry_dtype dtype, const void *zeros, int64_t count, int64_t index)
{
    return zeros ? (int32_t)cpu_load_int(dtype, zeros, count == 1 ? 0 : index) : 0;
}

static void pack_a_chunk(void *arg, int64_t begin, int64_t end)
{
    const product_work *work = arg;
    const product_state *state = work->state;
    const char *a = work->call->inputs[state->a];
    for (int64_t row = begin; row < end; row++)
        work->sums[row] = cpu_byte_pack_row(state->a_dtype, a + row * state->depth, state->depth,
                                            work->a + row * cpu_byte_depth(state->depth));
}

static void pack_b(const product_state *state, const void *b, char *packed)
{
    for (int64_t batch = 0; batch < state->b_batches; batch++)
        cpu_byte_pack_b(state->b_dtype, (const char *)b + batch * state->depth * state->columns, state->depth,
                        state->columns, state->b_transposed ? 1 : state->columns,
                        state->b_transposed ? state->depth : 1,
                        packed + (size_t)batch * state->b_matrix_bytes);
}

/* Requantizes or copies one row of a block. */
static void store_row(const product_work *work, int32_t *c, int64_t row, int64_t m, int64_t column,
                      int64_t columns)
{
    const product_state *s = work->state;
    const cpu_call *call = work->call;
    int64_t out = row * s->columns + column;
    if (s->out_dtype == GANTRY_INT32) {
        memcpy((int32_t *)call->outputs[0] + out, c, (size_t)columns * sizeof *c);
        return;
    }
    if (s->bias != GANTRY_NO_ID)
        for (int64_t j = 0; j < columns; j++)
            c[j] = (int32_t)((uint32_t)c[j] + ((const uint32_t *)call->inputs[s->bias])[column + j]);
    float a_scale = ((const float *)call->inputs[s->a_scale])[s->a_scale_count == 1 ? 0 : m];
    float y_scale = *(const float *)call->inputs[s->y_scale], multipliers[CPU_BYTE_COLUMNS];
    const float *b_scales = call->inputs[s->b_scale];
    for (int64_t j = 0; j < columns; j++)
        multipliers[j] = a_scale * b_scales[s->b_scale_count == 1 ? 0 : column + j] / y_scale;
    cpu_rows_best()->requantize(c, multipliers, 1, columns,
                                zero_at(s->out_dtype, operand(call, s->y_zero), 1, 0),
                                s->out_dtype == GANTRY_INT8, (char *)call->outputs[0] + out);
    if (s->range.clamped)
        cpu_qclamp(s->out_dtype, &s->range, (char *)call->outputs[0] + out, columns);
}

/* One block: rows `row` (over all batches) to row + rows - 1 of one batch, columns from `column` on. */
static void product_block(const product_work *work, int64_t batch, int64_t first, int64_t rows,
                          int64_t column)
{
    const product_state *s = work->state;
    cpu_nest_position position;
    cpu_nest_seek(&s->nest, batch / s->nest.inner, &position);
    int64_t at = batch % s->nest.inner, a_row = (position.offset[0] + at * s->nest.step[0]) * s->rows + first;
    const char *b = work->b + (size_t)(position.offset[1] + at * s->nest.step[1]) * s->b_matrix_bytes;
    const void *a_zeros = operand(work->call, s->a_zero), *b_zeros = operand(work->call, s->b_zero);
    int64_t columns = cpu_min64(CPU_BYTE_COLUMNS, s->columns - column);
    int32_t c[CPU_BYTE_ROWS][CPU_BYTE_COLUMNS], zeros[CPU_BYTE_COLUMNS];
    for (int64_t j = 0; j < columns; j++)
        zeros[j] =
            cpu_byte_b_zero(s->b_dtype, zero_at(s->b_zero_dtype, b_zeros, s->b_zero_count, column + j));
    cpu_byte_block(work->a + a_row * cpu_byte_depth(s->depth), rows, b, s->depth, s->columns, column, c);
    for (int64_t i = 0; i < rows; i++) {
        int32_t a_zero =
            cpu_byte_a_zero(s->a_dtype, zero_at(s->a_zero_dtype, a_zeros, s->a_zero_count, first + i));
        cpu_byte_correct(c[i], columns, b, s->depth, s->columns, column, work->sums[a_row + i], a_zero,
                         zeros);
        store_row(work, c[i], batch * s->rows + first + i, first + i, column, columns);
    }
}

/* Blocks in the order batch, columns, rows: neighbours share their part of B. */
static void product_chunk(void *arg, int64_t begin, int64_t end)
{
    const product_work *work = arg;
    const product_state *s = work->state;
    for (int64_t k = begin; k < end; k++) {
        int64_t first = k % s->row_blocks * CPU_BYTE_ROWS, rest = k / s->row_blocks;
        product_block(work, rest / s->column_blocks, first, cpu_min64(CPU_BYTE_ROWS, s->rows - first),
                      rest % s->column_blocks * CPU_BYTE_COLUMNS);
    }
}

static gantry_status product_run(const void *opaque, const cpu_call *call)
{
    const product_state *s = opaque;
    char *scratch = call->scratch, *own_b = scratch + s->sums_bytes + s->a_bytes;
    product_work work = {s, call, (int32_t *)scratch, (uint8_t *)scratch + s->sums_bytes,
                         s->packed_b ? s->packed_b : own_b};
    cpu_parallel(call, s->a_batches * s->rows, cpu_max64(1, (32 << 10) / cpu_max64(1, s->depth)),
                 pack_a_chunk, &work);
    if (!s->packed_b)
        pack_b(s, call->inputs[s->b], own_b);
    int64_t block = CPU_BYTE_ROWS * CPU_BYTE_COLUMNS * cpu_max64(1, s->depth);
    cpu_parallel(call, s->batches * s->row_blocks * s->column_blocks, cpu_max64(1, (1 << 20) / block),
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
    state->columns = b->rank > 1 ? b->dims[b->rank - (state->b_transposed ? 2 : 1)] : 1;
    if ((b->rank > 1 ? b->dims[b->rank - (state->b_transposed ? 1 : 2)] : b->dims[0]) != state->depth)
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
    state->row_blocks = (state->rows + CPU_BYTE_ROWS - 1) / CPU_BYTE_ROWS;
    state->column_blocks = (state->columns + CPU_BYTE_COLUMNS - 1) / CPU_BYTE_COLUMNS;
    int64_t a_rows = state->a_batches * state->rows;
    state->sums_bytes = ((size_t)a_rows * sizeof(int32_t) + 63) & ~(size_t)63;
    state->a_bytes = ((size_t)(a_rows * cpu_byte_depth(state->depth)) + 63) & ~(size_t)63;
    state->b_matrix_bytes = cpu_byte_b_bytes(state->depth, state->columns);
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

typedef struct pack_job {
    const product_state *state;
    const void *b;
} pack_job;

static gantry_status fill_b(void *arg, void *packed)
{
    const pack_job *job = arg;
    pack_b(job->state, job->b, packed);
    return GANTRY_OK;
}

static gantry_status finish_product(cpu_build *build, product_state *state, cpu_kernel *out_kernel)
{
    const cpu_tensor *b = &build->inputs[state->b];
    size_t b_bytes = (size_t)state->b_batches * state->b_matrix_bytes;
    bool packs = b->constant && b->data;
    if (packs) {
        pack_job job = {state, b->data};
        state->packed_b = cpu_pack(build, b, CPU_BYTE_LAYOUT_KEY, b_bytes, fill_b, &job);
        if (!state->packed_b)
            return build->err->code;
    }
    state->out_dtype = build->outputs[0].dtype;
    *out_kernel = cpu_kernel_of(product_run, state);
    out_kernel->packed_inputs = packs ? 1u << state->b : 0;
    out_kernel->scratch_bytes = state->sums_bytes + state->a_bytes + (packs ? 0 : b_bytes);
    out_kernel->flops =
        2.0 * (double)(state->batches * state->rows) * (double)(state->columns * state->depth);
    out_kernel->threads = cpu_threads_for(build, out_kernel->flops / 16);
    out_kernel->isa = cpu_byte_isa();
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
    state->bias = GANTRY_NO_ID;
    GT_TRY(plan_product(build, state));
    GT_TRY(read_parameter(build, 2, state->rows, &state->a_zero, &state->a_zero_count, &state->a_zero_dtype));
    GT_TRY(
        read_parameter(build, 3, state->columns, &state->b_zero, &state->b_zero_count, &state->b_zero_dtype));
    return finish_product(build, state, out_kernel);
}

/* QLinearMatMul, QGemm, which has its bias in front of the output's scale, or a product that was joined with
 * what quantizes around it. */
static cpu_qoperands operands_of(const cpu_build *build)
{
    bool gemm = strcmp(build->node->op, "QGemm") == 0;
    uint32_t bias = gemm ? 6 : 8;
    return (cpu_qoperands){
        1, 2, 3, 4, 5, gemm ? 7 : 6, gemm ? 8 : 7, cpu_input(build, bias) ? bias : GANTRY_NO_ID};
}

/* Whether B is [columns, depth]. */
static bool transposed(const cpu_build *build)
{
    return strstr(build->node->op, "Gemm") && gantry_node_int(build->node, "transB", 0) != 0;
}

/* The activations fused behind it, as a range. */
static gantry_status plan_range(cpu_build *build, product_state *state)
{
    const cpu_tensor *scale = &build->inputs[state->y_scale];
    const cpu_tensor *zero = state->y_zero == GANTRY_NO_ID ? NULL : &build->inputs[state->y_zero];
    if (build->post_count == 0)
        return GANTRY_OK;
    if (!scale->data || (zero && !zero->data))
        return cpu_unsupported(build, "an activation is fused, but the output's scale is no constant");
    state->range = cpu_qrange_of(build, build->outputs[0].dtype, *(const float *)scale->data,
                                 zero ? (int32_t)cpu_load_int(zero->dtype, zero->data, 0) : 0);
    return GANTRY_OK;
}

static gantry_status make_qlinear_matmul(cpu_build *build, cpu_kernel *out_kernel)
{
    int64_t count;
    cpu_qoperands operands = operands_of(build);
    product_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->a = 0;
    state->b = 3;
    state->b_transposed = transposed(build);
    GT_TRY(plan_product(build, state));
    GT_TRY(read_parameter(build, 1, state->rows, &state->a_scale, &state->a_scale_count, NULL));
    GT_TRY(read_parameter(build, 2, state->rows, &state->a_zero, &state->a_zero_count, &state->a_zero_dtype));
    GT_TRY(read_parameter(build, 4, state->columns, &state->b_scale, &state->b_scale_count, NULL));
    GT_TRY(
        read_parameter(build, 5, state->columns, &state->b_zero, &state->b_zero_count, &state->b_zero_dtype));
    GT_TRY(read_parameter(build, operands.y_scale, 1, &state->y_scale, &count, NULL));
    GT_TRY(read_parameter(build, operands.y_zero, 1, &state->y_zero, &count, NULL));
    GT_TRY(read_parameter(build, operands.bias, state->columns, &state->bias, &count, NULL));
    if (state->bias != GANTRY_NO_ID && count != state->columns)
        return cpu_unsupported(build, "the bias has %lld elements for %lld columns", (long long)count,
                               (long long)state->columns);
    GT_TRY(plan_range(build, state));
    return finish_product(build, state, out_kernel);
}

gantry_status cpu_make_qlinear_matmul(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_qoperands operands = operands_of(build);
    gantry_status status = GANTRY_UNSUPPORTED;
    if (build->inputs[1].dtype == GANTRY_FLOAT32 && build->inputs[4].dtype == GANTRY_FLOAT32 &&
        build->inputs[operands.y_scale].dtype == GANTRY_FLOAT32)
        status = cpu_qproduct_dnnl(build, &operands, transposed(build), out_kernel);
    if (status != GANTRY_UNSUPPORTED)
        return status;
    return cpu_make_widened(build, make_qlinear_matmul, out_kernel);
}

gantry_status cpu_make_qgemm(cpu_build *build, cpu_kernel *out_kernel)
{
    if (gantry_node_int(build->node, "transA", 0) || gantry_node_float(build->node, "alpha", 1) != 1)
        return cpu_unsupported(build, "transA and alpha are left at their defaults only");
    if (!cpu_input(build, 7))
        return cpu_unsupported(build, "a result that is not quantized is not made");
    if (build->inputs[0].rank != 2 || build->inputs[3].rank != 2)
        return cpu_unsupported(build, "A and B must have rank 2");
    return cpu_make_qlinear_matmul(build, out_kernel);
}
