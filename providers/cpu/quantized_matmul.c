/* MatMulInteger and QLinearMatMul, exact in int32 (byte_product.h). Work is cut into tiles of rows and
 * columns, so that one row times a wide matrix runs on several threads too.
 *
 *     scratch: | multipliers | zero points of B | terms of each column of each B | sums of the rows of A |
 *              | A packed, unless its bytes do as they are | B packed, unless it was constant | */
#include "byte_product.h"
#include "quantized.h"
#include "quantized_dnnl.h"

/* An operand as matrices that follow each other: batch axes, then rows and columns with a stride for each. */
typedef struct matrices {
    uint32_t rank; /* of the batch */
    int64_t dims[GANTRY_MAX_RANK];
    int64_t count, rows, columns, row_stride, column_stride;
} matrices;

typedef struct product_state {
    int64_t batches;
    matrices a, b;
    cpu_nest nest; /* over the batch axes; operand 0: A, 1: B, in matrices */
    gantry_dtype a_dtype, b_dtype, a_zero_dtype, b_zero_dtype;
    uint32_t a_input, b_input, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero,
        bias; /* GANTRY_NO_ID: none */
    int64_t a_zero_count, b_zero_count, a_scale_count, b_scale_count;
    const char *packed_b;
    cpu_qrange range;          /* what saturation and fused activations leave */
    gantry_dtype out_dtype;    /* INT32: not requantized */
    bool direct, sums, by_row; /* A is read as it is; its sums are needed; parameters of A vary by row */
    int64_t wide;              /* columns, rounded up to whole tiles */
    size_t term_offset, zero_offset, sum_offset, a_offset, b_offset, scratch_bytes, b_matrix_bytes;
    int64_t row_blocks, column_blocks;
} product_state;

typedef struct product_work {
    const product_state *state;
    const cpu_call *call;
    float *multipliers;
    int32_t *zeros, *terms, *sums;
    uint8_t *a;
    char *b;
} product_work;

static const void *operand(const cpu_call *call, uint32_t input)
{
    return input == GANTRY_NO_ID ? NULL : call->inputs[input];
}

static int32_t zero_at(gantry_dtype dtype, const void *zeros, int64_t count, int64_t index)
{
    return zeros ? (int32_t)cpu_load_int(dtype, zeros, count == 1 ? 0 : index) : 0;
}

/* Where matrix `index` starts. */
static int64_t offset_of(const matrices *m, int64_t index)
{
    return index * m->rows * m->columns;
}

/* ---- what is prepared before the product ----------------------------------------------------- */

/* s_a * s_b / s_y in binary32, in that order. */
CPU_CLONES static void fill_multipliers(float *out, int64_t n, float a_scale, const float *b_scales,
                                        int64_t step, float y_scale)
{
    for (int64_t j = 0; j < n; j++)
        out[j] = a_scale * b_scales[j * step] / y_scale;
}

/* What is added to the sums of a column; sums may wrap, as the operators say: unsigned arithmetic. */
CPU_CLONES static void fill_terms(int32_t *out, int64_t n, const int32_t *column_sums, const int32_t *bias,
                                  const int32_t *zeros, int64_t k, int32_t a_zero)
{
    for (int64_t j = 0; j < n; j++)
        out[j] = (int32_t)((bias ? (uint32_t)bias[j] : 0) - (uint32_t)a_zero * (uint32_t)column_sums[j] +
                           (uint32_t)k * (uint32_t)a_zero * (uint32_t)zeros[j]);
}

static int32_t a_zero_of(const product_work *work, int64_t row)
{
    const product_state *s = work->state;
    return cpu_byte_a_zero(s->a_dtype,
                           zero_at(s->a_zero_dtype, operand(work->call, s->a_zero), s->a_zero_count, row));
}

static float a_scale_of(const product_work *work, int64_t row)
{
    const product_state *s = work->state;
    return ((const float *)work->call->inputs[s->a_scale])[s->a_scale_count == 1 ? 0 : row];
}

static void prepare_columns(const product_work *work)
{
    const product_state *s = work->state;
    const void *zeros = operand(work->call, s->b_zero);
    for (int64_t j = 0; j < s->b.columns; j++)
        work->zeros[j] = cpu_byte_b_zero(s->b_dtype, zero_at(s->b_zero_dtype, zeros, s->b_zero_count, j));
    if (s->out_dtype != GANTRY_INT32 && !s->by_row)
        fill_multipliers(work->multipliers, s->b.columns, a_scale_of(work, 0), work->call->inputs[s->b_scale],
                         s->b_scale_count != 1, *(const float *)work->call->inputs[s->y_scale]);
}

/* Tile `begin` to `end` of the columns of all B: packed, and their terms. */
static void prepare_b(void *arg, int64_t begin, int64_t end)
{
    const product_work *work = arg;
    const product_state *s = work->state;
    const char *b = work->call->inputs[s->b_input];
    const int32_t *bias = operand(work->call, s->bias);
    for (int64_t k = begin; k < end; k++) {
        int64_t batch = k / s->column_blocks, column = k % s->column_blocks * CPU_BYTE_COLUMNS;
        char *packed = work->b + (size_t)batch * s->b_matrix_bytes;
        if (!s->packed_b)
            cpu_byte_pack_panels(s->b_dtype, b + offset_of(&s->b, batch), s->b.rows, s->b.columns,
                                 s->b.row_stride, s->b.column_stride, column / 16, CPU_BYTE_COLUMNS / 16,
                                 packed);
        if (!s->by_row)
            fill_terms(work->terms + batch * s->wide + column,
                       cpu_min64(CPU_BYTE_COLUMNS, s->b.columns - column),
                       cpu_byte_column_sums(packed, s->b.rows, s->b.columns) + column,
                       bias ? bias + column : NULL, work->zeros + column, s->b.rows, a_zero_of(work, 0));
    }
}

static void prepare_a(void *arg, int64_t begin, int64_t end)
{
    const product_work *work = arg;
    const product_state *s = work->state;
    const uint8_t *a = work->call->inputs[s->a_input];
    for (int64_t k = begin; k < end; k++) {
        const uint8_t *row = a + offset_of(&s->a, k / s->a.rows) + k % s->a.rows * s->a.row_stride;
        work->sums[k] = s->direct ? cpu_byte_row_sum(row, s->a.columns)
                                  : cpu_byte_pack_row(s->a_dtype, row, s->a.columns,
                                                      work->a + k * cpu_byte_depth(s->a.columns));
    }
}

/* ---- the product ----------------------------------------------------------------------------- */

/* Rows with parameters of their own, one by one. */
static void run_by_row(const product_work *work, const cpu_byte_tile *tile, int64_t first)
{
    const product_state *s = work->state;
    int32_t terms[CPU_BYTE_COLUMNS] = {0};
    float multipliers[CPU_BYTE_COLUMNS] = {0};
    int64_t rows = tile->rows, column = tile->column, n = cpu_min64(CPU_BYTE_COLUMNS, s->b.columns - column);
    const int32_t *bias = operand(work->call, s->bias);
    const char *packed = (const char *)tile->packed_b;
    for (int64_t i = 0; i < rows; i++) {
        fill_terms(terms, n, cpu_byte_column_sums(packed, s->b.rows, s->b.columns) + column,
                   bias ? bias + column : NULL, work->zeros + column, s->b.rows, a_zero_of(work, first + i));
        if (s->out_dtype != GANTRY_INT32)
            fill_multipliers(multipliers, n, a_scale_of(work, first + i),
                             (const float *)work->call->inputs[s->b_scale] +
                                 (s->b_scale_count == 1 ? 0 : column),
                             s->b_scale_count != 1, *(const float *)work->call->inputs[s->y_scale]);
        cpu_byte_tile row = *tile;
        row.rows = 1;
        row.a += i * tile->a_stride;
        row.a_sums = tile->a_sums ? tile->a_sums + i : NULL;
        row.out = (char *)tile->out + (size_t)(i * tile->out_stride) * cpu_dtype_size(s->out_dtype);
        row.add = terms - column;
        row.multipliers = multipliers - column;
        cpu_byte_tile_run(&row);
    }
}

static void product_tile(const product_work *work, int64_t batch, int64_t first, int64_t rows, int64_t column)
{
    const product_state *s = work->state;
    cpu_nest_position position;
    cpu_nest_seek(&s->nest, batch / s->nest.inner, &position);
    int64_t inside = batch % s->nest.inner, a_at = position.offset[0] + inside * s->nest.step[0],
            b_at = position.offset[1] + inside * s->nest.step[1], depth = cpu_byte_depth(s->a.columns);
    int64_t row = a_at * s->a.rows + first;
    const uint8_t *a = work->call->inputs[s->a_input];
    cpu_byte_tile tile = {
        .a = s->direct ? a + offset_of(&s->a, a_at) + first * s->a.row_stride : work->a + row * depth,
        .a_stride = s->direct ? s->a.row_stride : depth,
        .rows = rows,
        .packed_b = work->b + (size_t)b_at * s->b_matrix_bytes,
        .k = s->b.rows,
        .n = s->b.columns,
        .column = column,
        .add = work->terms + b_at * s->wide,
        .b_zeros = s->sums ? work->zeros : NULL,
        .a_sums = s->sums ? work->sums + row : NULL,
        .multipliers = work->multipliers,
        .kind = s->out_dtype == GANTRY_INT32 ? CPU_BYTE_INT32 : CPU_BYTE_BYTES,
        .out = (char *)work->call->outputs[0] +
               (size_t)((batch * s->a.rows + first) * s->b.columns + column) * cpu_dtype_size(s->out_dtype),
        .out_stride = s->b.columns};
    if (tile.kind == CPU_BYTE_BYTES)
        cpu_byte_tile_clamp(&tile, s->range.low, s->range.high,
                            zero_at(s->out_dtype, operand(work->call, s->y_zero), 1, 0));
    if (s->by_row)
        run_by_row(work, &tile, first);
    else
        cpu_byte_tile_run(&tile);
}

/* Tiles in the order batch, columns, rows: neighbours share their part of B. */
static void product_chunk(void *arg, int64_t begin, int64_t end)
{
    const product_work *work = arg;
    const product_state *s = work->state;
    for (int64_t k = begin; k < end; k++) {
        int64_t first = k % s->row_blocks * CPU_BYTE_ROWS, rest = k / s->row_blocks;
        product_tile(work, rest / s->column_blocks, first, cpu_min64(CPU_BYTE_ROWS, s->a.rows - first),
                     rest % s->column_blocks * CPU_BYTE_COLUMNS);
    }
}

static gantry_status product_run(const void *opaque, const cpu_call *call)
{
    const product_state *s = opaque;
    char *scratch = call->scratch;
    product_work work = {.state = s,
                         .call = call,
                         .multipliers = (float *)scratch,
                         .zeros = (int32_t *)(scratch + s->zero_offset),
                         .terms = (int32_t *)(scratch + s->term_offset),
                         .sums = (int32_t *)(scratch + s->sum_offset),
                         .a = (uint8_t *)scratch + s->a_offset,
                         .b = s->packed_b ? (char *)s->packed_b : scratch + s->b_offset};
    prepare_columns(&work);
    int64_t b_tiles = s->b.count * s->column_blocks, tile_bytes = CPU_BYTE_COLUMNS * s->b.rows;
    cpu_parallel(call, b_tiles, s->packed_b ? b_tiles : cpu_max64(1, (32 << 10) / cpu_max64(1, tile_bytes)),
                 prepare_b, &work);
    if (s->sums || !s->direct)
        cpu_parallel(call, s->a.count * s->a.rows, cpu_max64(1, (32 << 10) / cpu_max64(1, s->a.columns)),
                     prepare_a, &work);
    int64_t tile = CPU_BYTE_ROWS * tile_bytes;
    cpu_parallel(call, s->batches * s->row_blocks * s->column_blocks,
                 cpu_max64(1, (2 << 20) / cpu_max64(1, tile)), product_chunk, &work);
    return GANTRY_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* A vector is a matrix of one row (as the left operand) or one column. */
static matrices matrices_of(const cpu_tensor *tensor, bool left, bool swapped)
{
    matrices m = {.count = 1, .rows = 1, .columns = 1};
    int64_t strides[GANTRY_MAX_RANK];
    uint32_t rank = tensor->rank, last = rank - 1;
    cpu_strides(rank, tensor->dims, strides);
    for (uint32_t axis = 0; axis < rank; axis++) {
        bool is_row = rank > 1 ? axis == last - 1 : !left, is_column = rank > 1 ? axis == last : left;
        if (is_row) {
            m.rows = tensor->dims[axis];
            m.row_stride = strides[axis];
        } else if (is_column) {
            m.columns = tensor->dims[axis];
            m.column_stride = strides[axis];
        } else {
            m.dims[m.rank++] = tensor->dims[axis];
            m.count *= tensor->dims[axis];
        }
    }
    if (swapped) {
        matrices was = m;
        m.rows = was.columns;
        m.columns = was.rows;
        m.row_stride = was.column_stride;
        m.column_stride = was.row_stride;
    }
    return m;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static void plan_scratch(product_state *s)
{
    s->wide = s->column_blocks * CPU_BYTE_COLUMNS;
    size_t lane = (size_t)s->wide * sizeof(int32_t);
    size_t rows = s->sums || !s->direct ? (size_t)(s->a.count * s->a.rows) : 0;
    s->zero_offset = lane;
    s->term_offset = 2 * lane;
    s->sum_offset = s->term_offset + (size_t)s->b.count * lane;
    s->a_offset = s->sum_offset + aligned(rows * sizeof(int32_t));
    s->b_offset = s->a_offset + (s->direct ? 0 : aligned(rows * (size_t)cpu_byte_depth(s->a.columns)));
    s->scratch_bytes = s->b_offset + (s->packed_b ? 0 : (size_t)s->b.count * s->b_matrix_bytes);
}

/* M, N, K and the batch axes. */
static gantry_status plan_product(cpu_build *build, product_state *s, bool b_transposed)
{
    const cpu_tensor *a = &build->inputs[s->a_input], *b = &build->inputs[s->b_input],
                     *out = &build->outputs[0];
    if (a->rank == 0 || b->rank == 0)
        return cpu_unsupported(build, "a scalar is no matrix");
    s->a = matrices_of(a, true, false);
    s->b = matrices_of(b, false, b_transposed);
    if (s->b.rows != s->a.columns)
        return cpu_unsupported(build, "inner extents differ");
    uint32_t batch_rank = s->a.rank > s->b.rank ? s->a.rank : s->b.rank;
    s->batches = cpu_product(out->dims, 0, batch_rank);
    cpu_tensor a_matrices = {.rank = s->a.rank}, b_matrices = {.rank = s->b.rank};
    memcpy(a_matrices.dims, s->a.dims, sizeof s->a.dims);
    memcpy(b_matrices.dims, s->b.dims, sizeof s->b.dims);
    const cpu_tensor *operands[2] = {&a_matrices, &b_matrices};
    if (!cpu_nest_broadcast(&s->nest, batch_rank, out->dims, 2, operands))
        return cpu_unsupported(build, "batch axes do not broadcast");
    s->a_dtype = a->dtype;
    s->b_dtype = b->dtype;
    s->row_blocks = (s->a.rows + CPU_BYTE_ROWS - 1) / CPU_BYTE_ROWS;
    s->column_blocks = (s->b.columns + CPU_BYTE_COLUMNS - 1) / CPU_BYTE_COLUMNS;
    s->b_matrix_bytes = aligned(cpu_byte_b_bytes(s->b.rows, s->b.columns));
    s->direct = a->dtype == GANTRY_UINT8 && s->a.columns % 4 == 0;
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
    const char *b;
} pack_job;

static gantry_status fill_b(void *arg, void *packed)
{
    const pack_job *job = arg;
    const product_state *s = job->state;
    for (int64_t batch = 0; batch < s->b.count; batch++)
        cpu_byte_pack_b(s->b_dtype, job->b + offset_of(&s->b, batch), s->b.rows, s->b.columns,
                        s->b.row_stride, s->b.column_stride,
                        (char *)packed + (size_t)batch * s->b_matrix_bytes);
    return GANTRY_OK;
}

static gantry_status finish_product(cpu_build *build, product_state *s, cpu_kernel *out_kernel)
{
    const cpu_tensor *b = &build->inputs[s->b_input];
    bool packs = b->constant && b->data;
    if (packs) {
        pack_job job = {s, b->data};
        uint64_t key = CPU_BYTE_LAYOUT_KEY + (s->b.row_stride == 1 && s->b.column_stride != 1);
        s->packed_b = cpu_pack(build, b, key, (size_t)s->b.count * s->b_matrix_bytes, fill_b, &job);
        if (!s->packed_b)
            return build->err->code;
    }
    s->out_dtype = build->outputs[0].dtype;
    s->sums = cpu_byte_needs_sums(b->dtype, cpu_input(build, s->b_zero));
    s->by_row = s->a_zero_count > 1 || s->a_scale_count > 1;
    plan_scratch(s);
    *out_kernel = cpu_kernel_of(product_run, s);
    out_kernel->packed_inputs = packs ? 1u << s->b_input : 0;
    out_kernel->scratch_bytes = s->scratch_bytes;
    out_kernel->flops = 2.0 * (double)(s->batches * s->a.rows) * (double)(s->b.columns * s->b.rows);
    out_kernel->threads = cpu_threads_for(build, out_kernel->flops / 64);
    out_kernel->isa = cpu_byte_isa_name();
    out_kernel->accumulate = GANTRY_INT32;
    return GANTRY_OK;
}

gantry_status cpu_make_matmul_integer(cpu_build *build, cpu_kernel *out_kernel)
{
    product_state *s = cpu_state(build, sizeof *s);
    if (!s)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    s->a_input = 0;
    s->b_input = 1;
    s->bias = GANTRY_NO_ID;
    s->a_scale_count = 1;
    GT_TRY(plan_product(build, s, false));
    GT_TRY(read_parameter(build, 2, s->a.rows, &s->a_zero, &s->a_zero_count, &s->a_zero_dtype));
    GT_TRY(read_parameter(build, 3, s->b.columns, &s->b_zero, &s->b_zero_count, &s->b_zero_dtype));
    return finish_product(build, s, out_kernel);
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

static gantry_status make_qlinear_matmul(cpu_build *build, cpu_kernel *out_kernel)
{
    int64_t count;
    cpu_qoperands operands = operands_of(build);
    product_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_RUN);
    state->a_input = 0;
    state->b_input = 3;
    GT_TRY(plan_product(build, state, transposed(build)));
    GT_TRY(read_parameter(build, 1, state->a.rows, &state->a_scale, &state->a_scale_count, NULL));
    GT_TRY(
        read_parameter(build, 2, state->a.rows, &state->a_zero, &state->a_zero_count, &state->a_zero_dtype));
    GT_TRY(read_parameter(build, 4, state->b.columns, &state->b_scale, &state->b_scale_count, NULL));
    GT_TRY(read_parameter(build, 5, state->b.columns, &state->b_zero, &state->b_zero_count,
                          &state->b_zero_dtype));
    GT_TRY(read_parameter(build, operands.y_scale, 1, &state->y_scale, &count, NULL));
    GT_TRY(read_parameter(build, operands.y_zero, 1, &state->y_zero, &count, NULL));
    GT_TRY(read_parameter(build, operands.bias, state->b.columns, &state->bias, &count, NULL));
    if (state->bias != GANTRY_NO_ID && count != state->b.columns)
        return cpu_unsupported(build, "the bias has %lld elements for %lld columns", (long long)count,
                               (long long)state->b.columns);
    GT_TRY(cpu_qrange_read(build, state->y_scale, state->y_zero, &state->range));
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
