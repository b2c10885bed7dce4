/* The shapes of MatMul and Gemm, and products in plain C for every type: correct first. */
#include "product.h"

#include "half.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Fills the batch part: dims broadcast from the right, strides 0 where an operand has extent 1. */
static gantry_status fill_batch(cpu_build *build, cpu_product *p, const cpu_tensor *a, const cpu_tensor *b)
{
    uint32_t a_batch = a->rank > 2 ? a->rank - 2 : 0, b_batch = b->rank > 2 ? b->rank - 2 : 0;
    p->batch_rank = a_batch > b_batch ? a_batch : b_batch;
    p->batch_count = 1;
    int64_t a_stride = a_batch ? p->m * p->k : 0, b_stride = b_batch ? p->k * p->n : 0;
    for (uint32_t k = 0; k < p->batch_rank; k++) {
        uint32_t at = p->batch_rank - 1 - k;
        int64_t a_dim = k < a_batch ? a->dims[a_batch - 1 - k] : 1;
        int64_t b_dim = k < b_batch ? b->dims[b_batch - 1 - k] : 1;
        if (a_dim != b_dim && a_dim != 1 && b_dim != 1)
            return cpu_unsupported(build, "batch dims %lld and %lld do not broadcast", (long long)a_dim,
                                   (long long)b_dim);
        p->batch_dims[at] = a_dim == 1 ? b_dim : a_dim;
        p->a_batch[at] = a_dim == 1 ? 0 : a_stride;
        p->b_batch[at] = b_dim == 1 ? 0 : b_stride;
        a_stride *= a_dim;
        b_stride *= b_dim;
        p->batch_count *= p->batch_dims[at];
    }
    return GANTRY_OK;
}

/* Batches that only A has are more rows: one big product instead of many small ones. */
static void fold_batch_into_rows(cpu_product *p, const cpu_tensor *a)
{
    for (uint32_t k = 0; k < p->batch_rank; k++)
        if (p->b_batch[k] != 0 || (p->a_batch[k] == 0 && p->batch_dims[k] != 1))
            return;
    if (a->rank < 2)
        return;
    p->m *= p->batch_count;
    p->batch_count = 1;
    p->batch_rank = 0;
}

gantry_status cpu_product_of_matmul(cpu_build *build, cpu_product *out_product)
{
    const cpu_tensor *a = &build->inputs[0], *b = &build->inputs[1];
    cpu_product p = {.dtype = a->dtype, .alpha = 1, .beta = 0};
    if (a->rank < 1 || b->rank < 1)
        return cpu_unsupported(build, "an operand is a scalar");
    p.k = a->dims[a->rank - 1];
    p.m = a->rank > 1 ? a->dims[a->rank - 2] : 1;
    int64_t b_k = b->rank > 1 ? b->dims[b->rank - (build->b_transposed ? 1 : 2)] : b->dims[0];
    p.n = b->rank > 1 ? b->dims[b->rank - (build->b_transposed ? 2 : 1)] : 1;
    if (p.k != b_k)
        return cpu_unsupported(build, "inner dims are %lld and %lld", (long long)p.k, (long long)b_k);
    p.a_row = p.k;
    p.a_column = 1;
    p.b_row = build->b_transposed ? 1 : p.n;
    p.b_column = build->b_transposed ? p.k : 1;
    GT_TRY(fill_batch(build, &p, a, b));
    fold_batch_into_rows(&p, a);
    *out_product = p;
    return GANTRY_OK;
}

/* Strides of C broadcast to [m, n]. */
static gantry_status fill_addend(cpu_build *build, cpu_product *p, const cpu_tensor *c)
{
    int64_t rows = c->rank > 1 ? c->dims[c->rank - 2] : 1;
    int64_t columns = c->rank > 0 ? c->dims[c->rank - 1] : 1;
    if (c->rank > 2 || (rows != 1 && rows != p->m) || (columns != 1 && columns != p->n))
        return cpu_unsupported(build, "C does not broadcast to [%lld, %lld]", (long long)p->m,
                               (long long)p->n);
    p->c_present = true;
    p->c_row = rows == 1 ? 0 : columns;
    p->c_column = columns == 1 ? 0 : 1;
    return GANTRY_OK;
}

gantry_status cpu_product_of_gemm(cpu_build *build, cpu_product *out_product)
{
    const cpu_tensor *a = &build->inputs[0], *b = &build->inputs[1];
    bool trans_a = gantry_node_int(build->node, "transA", 0) != 0;
    bool trans_b = (gantry_node_int(build->node, "transB", 0) != 0) != build->b_transposed;
    if (a->rank != 2 || b->rank != 2)
        return cpu_unsupported(build, "A and B must have rank 2");
    cpu_product p = {.dtype = a->dtype,
                     .m = a->dims[trans_a],
                     .k = a->dims[!trans_a],
                     .n = b->dims[!trans_b],
                     .a_row = trans_a ? 1 : a->dims[1],
                     .a_column = trans_a ? a->dims[1] : 1,
                     .b_row = trans_b ? 1 : b->dims[1],
                     .b_column = trans_b ? b->dims[1] : 1,
                     .batch_count = 1,
                     .alpha = gantry_node_float(build->node, "alpha", 1.0f),
                     .beta = gantry_node_float(build->node, "beta", 1.0f)};
    if (p.k != b->dims[trans_b])
        return cpu_unsupported(build, "inner dims are %lld and %lld", (long long)p.k,
                               (long long)b->dims[trans_b]);
    if (build->input_count > 2 && build->node->input_count > 2 && build->inputs[2].present && p.beta != 0)
        GT_TRY(fill_addend(build, &p, &build->inputs[2]));
    *out_product = p;
    return GANTRY_OK;
}

/* ---- plain loops ----------------------------------------------------------------------------- */

/* Rows of one output matrix. Integers wrap, as their unsigned counterparts do. */
#define PLAIN_ROWS(name, type, sum_type, from_sum)                                                           \
    static void name(const cpu_product *p, const void *a_, const void *b_, const void *c_, void *y_,         \
                     int64_t begin, int64_t end)                                                             \
    {                                                                                                        \
        const type *a = a_, *b = b_, *c = c_;                                                                \
        type *y = y_;                                                                                        \
        for (int64_t m = begin; m < end; m++)                                                                \
            for (int64_t n = 0; n < p->n; n++) {                                                             \
                sum_type sum = 0;                                                                            \
                for (int64_t k = 0; k < p->k; k++)                                                           \
                    sum += (sum_type)a[m * p->a_row + k * p->a_column] *                                     \
                           (sum_type)b[k * p->b_row + n * p->b_column];                                      \
                type addend = c ? c[m * p->c_row + n * p->c_column] : 0;                                     \
                y[m * p->n + n] = from_sum;                                                                  \
            }                                                                                                \
    }

#define FLOAT_RESULT(type) (type)(p->alpha * sum + (c ? p->beta * addend : 0))
#define INTEGER_RESULT(type, from_double)                                                                    \
    p->alpha == 1 && (!c || p->beta == 1) ? (type)(sum + (uint64_t)addend)                                   \
                                          : (type)from_double((double)p->alpha *(double)(type)sum +          \
                                                              (c ? (double)p->beta * (double)addend : 0))

PLAIN_ROWS(rows_float32, float, double, FLOAT_RESULT(float))
PLAIN_ROWS(rows_float64, double, double, FLOAT_RESULT(double))
PLAIN_ROWS(rows_int32, int32_t, uint64_t, INTEGER_RESULT(int32_t, cpu_saturate_to_i64))
PLAIN_ROWS(rows_uint32, uint32_t, uint64_t, INTEGER_RESULT(uint32_t, cpu_saturate_to_i64))
PLAIN_ROWS(rows_int64, int64_t, uint64_t, INTEGER_RESULT(int64_t, cpu_saturate_to_i64))
PLAIN_ROWS(rows_uint64, uint64_t, uint64_t, INTEGER_RESULT(uint64_t, cpu_saturate_to_u64))

typedef void (*rows_fn)(const cpu_product *p, const void *a, const void *b, const void *c, void *y,
                        int64_t begin, int64_t end);

static const rows_fn plain_rows[GANTRY_DTYPE_COUNT] = {
    [GANTRY_FLOAT32] = rows_float32, [GANTRY_FLOAT64] = rows_float64, [GANTRY_INT32] = rows_int32,
    [GANTRY_UINT32] = rows_uint32,   [GANTRY_INT64] = rows_int64,     [GANTRY_UINT64] = rows_uint64};

typedef struct plain_state {
    cpu_product product;
    uint32_t post_count;
    const cpu_post *posts;
} plain_state;

typedef struct plain_job {
    const plain_state *state;
    const cpu_call *call;
} plain_job;

/* Rows of all matrices of the batch are one range. */
static void plain_chunk(void *arg, int64_t begin, int64_t end)
{
    const plain_job *job = arg;
    const cpu_product *p = &job->state->product;
    size_t size = cpu_dtype_bits(p->dtype) / 8;
    while (begin < end) {
        int64_t matrix = begin / p->m, first = begin % p->m, a, b;
        int64_t rows = end - begin < p->m - first ? end - begin : p->m - first;
        cpu_product_offsets(p, matrix, &a, &b);
        plain_rows[p->dtype](
            p, (const char *)job->call->inputs[0] + (size_t)a * size,
            (const char *)job->call->inputs[1] + (size_t)b * size, p->c_present ? job->call->inputs[2] : NULL,
            (char *)job->call->outputs[0] + (size_t)(matrix * p->m * p->n) * size, first, first + rows);
        for (int64_t r = first; r < first + rows && job->state->post_count; r++) {
            int64_t at = (matrix * p->m + r) * p->n;
            cpu_posts_apply(job->state->posts, job->state->post_count, job->call,
                            (float *)job->call->outputs[0] + at, p->n, at, 0, 1);
        }
        begin += rows;
    }
}

static gantry_status plain_run(const void *self, const cpu_call *call)
{
    const plain_state *state = self;
    const cpu_product *p = &state->product;
    plain_job job = {state, call};
    cpu_parallel(call, p->batch_count * p->m, 16, plain_chunk, &job);
    return GANTRY_OK;
}

gantry_status cpu_product_plain(cpu_build *build, const cpu_product *product, cpu_kernel *out_kernel)
{
    if (!plain_rows[product->dtype])
        return cpu_unsupported(build, "no product for %s", cpu_dtype_name(product->dtype));
    plain_state *state = cpu_state(build, sizeof *state);
    if (!state)
        return gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    *state = (plain_state){*product, build->post_count, build->posts};
    double work = (double)product->batch_count * (double)product->m * (double)product->n * (double)product->k;
    *out_kernel = cpu_kernel_of(plain_run, state);
    out_kernel->threads = work < CPU_TINY_ELEMENTS ? 1 : build->threads;
    out_kernel->flops = 2 * work;
    out_kernel->accumulate = product->dtype == GANTRY_FLOAT32 ? GANTRY_FLOAT64 : product->dtype;
    return GANTRY_OK;
}
