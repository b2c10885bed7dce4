/* Runs chains of float operators from bytes to bytes, block by block of rows that fit the first cache.
 *
 *     block: up to BLOCK elements of neighbouring rows, or one row that is longer and must not be cut
 *     scratch: for each chunk of blocks | register 0 | register 1 | ...
 *
 * An input that has all elements of the result is walked as one piece; one that is broadcast, row by row. */
#include "quantized_rows.h"

#include <math.h>

#define BLOCK 2048
#define BLOCK_ROWS 64

typedef struct row_input {
    size_t bytes;                     /* of an element */
    bool dense;                       /* the elements of the result, in its order */
    int64_t step;                     /* along the row: 0 or 1 */
    int64_t strides[GANTRY_MAX_RANK]; /* of the axes before the row */
} row_input;

typedef struct rows_state {
    const cpu_qrows *program;
    const cpu_rows *functions;
    uint32_t input_count, rank; /* rank: axes before the row */
    int64_t dims[GANTRY_MAX_RANK];
    row_input inputs[CPU_QROWS_MAX_INPUTS];
    int64_t rows, n;                        /* n: elements of a row */
    int64_t block_rows, pieces, piece;      /* a block is several rows, or a piece of one */
    int64_t blocks, blocks_per_chunk, most; /* most: elements of a block */
    bool is_signed, exact;
    bool broadcasts; /* some input is not dense */
} rows_state;

typedef struct rows_work {
    const rows_state *state;
    const cpu_call *call;
} rows_work;

/* Where one block lies. */
typedef struct row_block {
    const rows_work *work;
    float *registers;
    int64_t at, rows, n; /* first element of the result; rows of n elements each */
    int64_t offsets[CPU_QROWS_MAX_INPUTS][BLOCK_ROWS];
} row_block;

/* An operand of an op: for all rows at once, or with a pointer for each row. */
typedef struct row_operand {
    const char *all; /* NULL: by rows */
    uint32_t input;
    bool scalar; /* one element for everything (all), or for each row */
} row_operand;

static float *register_at(const row_block *block, uint32_t index)
{
    return block->registers + (size_t)index * (size_t)block->work->state->most;
}

static row_operand operand_of(const row_block *block, const cpu_qrow_source *source)
{
    const rows_state *s = block->work->state;
    if (source->kind == CPU_QROW_REGISTER)
        return (row_operand){(const char *)register_at(block, source->index), 0, false};
    if (source->kind == CPU_QROW_SCALAR)
        return (row_operand){(const char *)&source->value, 0, true};
    const row_input *input = &s->inputs[source->index];
    const char *data = block->work->call->inputs[source->index];
    if (input->dense)
        return (row_operand){data + (size_t)block->at * input->bytes, 0, false};
    return (row_operand){NULL, source->index, input->step == 0};
}

static const void *row_of(const row_block *block, const row_operand *operand, int64_t row)
{
    const rows_state *s = block->work->state;
    if (operand->all)
        return operand->scalar ? operand->all : operand->all + (size_t)(row * block->n) * sizeof(float);
    return (const char *)block->work->call->inputs[operand->input] +
           (size_t)block->offsets[operand->input][row] * s->inputs[operand->input].bytes;
}

static void dequantize(const cpu_rows *rows, const cpu_qrow_op *op, const void *in, float *out, int64_t n)
{
    if (op->is_signed)
        rows->dequantize_s8(in, out, n, op->p[0], op->zero);
    else
        rows->dequantize_u8(in, out, n, op->p[0], op->zero);
}

static void fill(float *out, int64_t n)
{
    for (int64_t k = 1; k < n; k++)
        out[k] = out[0];
}

static void run_load(const row_block *block, const cpu_qrow_op *op, float *out)
{
    row_operand a = operand_of(block, &op->a);
    bool bytes = op->kind == CPU_QROW_DEQUANTIZE;
    int64_t rows = a.all ? 1 : block->rows, whole = a.all ? block->rows * block->n : block->n;
    for (int64_t row = 0; row < rows; row++, out += whole) {
        const void *in = a.all ? a.all : row_of(block, &a, row);
        int64_t n = a.scalar ? 1 : whole;
        if (bytes)
            dequantize(block->work->state->functions, op, in, out, n);
        else
            memcpy(out, in, (size_t)n * sizeof *out);
        if (a.scalar)
            fill(out, whole);
    }
}

static void binary_piece(const cpu_binary_row *fn, const row_operand *a, const void *a_data,
                         const row_operand *b, const void *b_data, float *out, int64_t n)
{
    (a->scalar ? fn->scalar_row : b->scalar ? fn->row_scalar : fn->row_row)(a_data, b_data, out, n);
}

static void run_binary(const row_block *block, const cpu_qrow_op *op, float *out)
{
    const cpu_binary_row *fn = &block->work->state->functions->binary[op->function];
    row_operand a = operand_of(block, &op->a), b = operand_of(block, &op->b);
    if (a.all && b.all) {
        binary_piece(fn, &a, a.all, &b, b.all, out, block->rows * block->n);
        return;
    }
    for (int64_t row = 0; row < block->rows; row++)
        binary_piece(fn, &a, row_of(block, &a, row), &b, row_of(block, &b, row), out + row * block->n,
                     block->n);
}

static void run_unary(const row_block *block, const cpu_qrow_op *op, float *out)
{
    const cpu_rows *rows = block->work->state->functions;
    row_operand a = operand_of(block, &op->a);
    cpu_unary_fn fn = rows->unary[op->function];
    if (op->function == CPU_UNARY_gelu && !block->work->state->exact)
        fn = rows->gelu_coarse;
    fn(a.all, out, block->rows * block->n, op->p);
}

static void softmax_row(const cpu_rows *rows, float *row, int64_t n)
{
    float sum = rows->exp_sum_f32(row, row, n, rows->max_f32(row, n));
    rows->affine_f32(row, row, n, 1.0f / sum, 0.0f);
}

static void normalize_row(const cpu_rows *rows, const cpu_qrow_op *op, float *row, int64_t n,
                          const float *gain, const float *bias)
{
    float mean = (float)(rows->sum_f32(row, n) / (double)n);
    double variance = rows->sum_deviation_f32(row, n, mean) / (double)n;
    rows->normalize_f32(row, row, n, mean, (float)(1.0 / sqrt(variance + (double)op->p[0])), gain, bias);
}

static void run_whole(const row_block *block, const cpu_qrow_op *op, float *out)
{
    const cpu_rows *rows = block->work->state->functions;
    const void *const *inputs = block->work->call->inputs;
    const float *gain = op->gain.kind == CPU_QROW_INPUT ? inputs[op->gain.index] : NULL;
    const float *bias = op->bias.kind == CPU_QROW_INPUT ? inputs[op->bias.index] : NULL;
    for (int64_t row = 0; row < block->rows; row++, out += block->n)
        if (op->kind == CPU_QROW_SOFTMAX)
            softmax_row(rows, out, block->n);
        else
            normalize_row(rows, op, out, block->n, gain, bias);
}

static void run_op(const row_block *block, const cpu_qrow_op *op)
{
    float *out = register_at(block, op->target);
    switch (op->kind) {
    case CPU_QROW_DEQUANTIZE:
    case CPU_QROW_LOAD:
        run_load(block, op, out);
        return;
    case CPU_QROW_UNARY:
        run_unary(block, op, out);
        return;
    case CPU_QROW_BINARY:
        run_binary(block, op, out);
        return;
    case CPU_QROW_SOFTMAX:
    case CPU_QROW_NORMALIZE:
        run_whole(block, op, out);
    }
}

/* Where the rows of a block start in each input that is broadcast. */
static void find_rows(row_block *block, int64_t first, int64_t along)
{
    const rows_state *s = block->work->state;
    int64_t index[GANTRY_MAX_RANK], rest = first;
    for (uint32_t axis = s->rank; axis-- > 0; rest /= s->dims[axis])
        index[axis] = rest % s->dims[axis];
    for (int64_t row = 0; row < block->rows; row++) {
        for (uint32_t k = 0; k < s->input_count; k++) {
            int64_t offset = along * s->inputs[k].step;
            for (uint32_t axis = 0; axis < s->rank; axis++)
                offset += index[axis] * s->inputs[k].strides[axis];
            block->offsets[k][row] = offset;
        }
        for (uint32_t axis = s->rank; axis-- > 0;) {
            if (++index[axis] < s->dims[axis])
                break;
            index[axis] = 0;
        }
    }
}

static void run_block(const rows_work *work, float *registers, int64_t index)
{
    const rows_state *s = work->state;
    int64_t first = s->pieces > 1 ? index / s->pieces : index * s->block_rows;
    int64_t along = s->pieces > 1 ? index % s->pieces * s->piece : 0;
    row_block block = {.work = work,
                       .registers = registers,
                       .at = first * s->n + along,
                       .rows = s->pieces > 1 ? 1 : cpu_min64(s->block_rows, s->rows - first),
                       .n = s->pieces > 1 ? cpu_min64(s->piece, s->n - along) : s->n};
    if (s->broadcasts)
        find_rows(&block, first, along);
    for (uint32_t k = 0; k < s->program->op_count; k++)
        run_op(&block, &s->program->ops[k]);
    char *out = (char *)work->call->outputs[0] + block.at;
    if (s->is_signed)
        s->functions->quantize_s8(registers, (int8_t *)out, block.rows * block.n, s->program->scale,
                                  s->program->zero);
    else
        s->functions->quantize_u8(registers, (uint8_t *)out, block.rows * block.n, s->program->scale,
                                  s->program->zero);
}

static void rows_chunk(void *arg, int64_t begin, int64_t end)
{
    const rows_work *work = arg;
    const rows_state *s = work->state;
    size_t chunk_elements = (size_t)s->most * s->program->register_count;
    float *registers = (float *)work->call->scratch + (size_t)(begin / s->blocks_per_chunk) * chunk_elements;
    for (int64_t k = begin; k < end; k++)
        run_block(work, registers, k);
}

static gantry_status rows_run(const void *opaque, const cpu_call *call)
{
    const rows_state *s = opaque;
    rows_work work = {s, call};
    cpu_parallel(call, s->blocks, s->blocks_per_chunk, rows_chunk, &work);
    return GANTRY_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Whether axis can be joined to the row that follows it: all inputs walk both in one go, or neither. */
static bool joins(const rows_state *s, const int64_t *dims, int64_t strides[][GANTRY_MAX_RANK], uint32_t axis,
                  int64_t n)
{
    if (dims[axis] == 1)
        return true;
    for (uint32_t k = 0; k < s->input_count; k++)
        if (strides[k][axis] != s->inputs[k].step * n)
            return false;
    return true;
}

static gantry_status plan_rows(cpu_build *build, rows_state *s)
{
    const cpu_tensor *out = &build->outputs[0];
    int64_t strides[CPU_QROWS_MAX_INPUTS][GANTRY_MAX_RANK];
    uint32_t rank = out->rank;
    for (uint32_t k = 0; k < s->input_count; k++) {
        const cpu_tensor *in = &build->inputs[k];
        if (!cpu_broadcast_strides(in, rank, out->dims, strides[k]))
            return cpu_unsupported(build, "input %u does not broadcast to the result", k);
        s->inputs[k].bytes = cpu_dtype_size(in->dtype);
        s->inputs[k].dense = in->count == out->count;
        s->broadcasts = s->broadcasts || !s->inputs[k].dense;
        s->inputs[k].step = rank && out->dims[rank - 1] > 1 ? strides[k][rank - 1] : 1;
    }
    s->n = rank ? out->dims[rank - 1] : 1;
    s->rank = rank ? rank - 1 : 0;
    while (!s->program->whole && s->rank && joins(s, out->dims, strides, s->rank - 1, s->n))
        s->n *= out->dims[--s->rank];
    memcpy(s->dims, out->dims, s->rank * sizeof s->dims[0]);
    for (uint32_t k = 0; k < s->input_count; k++)
        memcpy(s->inputs[k].strides, strides[k], s->rank * sizeof strides[k][0]);
    s->rows = out->count / s->n;
    return GANTRY_OK;
}

static void plan_blocks(rows_state *s, int threads)
{
    bool cut = !s->program->whole && s->n > BLOCK;
    s->block_rows = cpu_max64(1, cpu_min64(BLOCK_ROWS, BLOCK / s->n));
    s->piece = BLOCK;
    s->pieces = cut ? (s->n + BLOCK - 1) / BLOCK : 1;
    s->most = cut ? BLOCK : (s->block_rows * s->n + 15) / 16 * 16;
    s->blocks = cut ? s->rows * s->pieces : (s->rows + s->block_rows - 1) / s->block_rows;
    int64_t chunks = threads > 1 ? 4 * (int64_t)threads : 1;
    s->blocks_per_chunk = (s->blocks + chunks - 1) / chunks;
}

static gantry_status make_rows(cpu_build *build, cpu_kernel *out_kernel)
{
    rows_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    s->program = build->rows;
    s->functions = cpu_rows_best();
    s->input_count = build->input_count;
    s->exact = build->exact;
    s->is_signed = build->outputs[0].dtype == GANTRY_INT8;
    GT_TRY(plan_rows(build, s));
    *out_kernel = cpu_kernel_of(rows_run, s);
    out_kernel->threads =
        cpu_threads_for(build, (double)build->outputs[0].count * (double)(1 + s->program->op_count) / 2);
    plan_blocks(s, out_kernel->threads);
    out_kernel->scratch_bytes = (size_t)((s->blocks - 1) / s->blocks_per_chunk + 1) * (size_t)s->most *
                                s->program->register_count * sizeof(float);
    out_kernel->name = "rows";
    out_kernel->isa = s->functions->isa;
    out_kernel->accumulate = GANTRY_FLOAT32;
    return GANTRY_OK;
}

const cpu_op_row cpu_qrows_row = {
    .op = "rows", .domain = "", .types = {CPU_BYTES | CPU_BIT(GANTRY_FLOAT32)}, .make = make_rows};
