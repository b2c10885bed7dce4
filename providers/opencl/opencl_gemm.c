/* MatMul and Gemm, and the product that convolutions share: which kernel, with which strides. */
#include "opencl_heavy.h"

#define TILE 64
#define SIDE 16

/* ---- a product as one launch ----------------------------------------------------------------- */

/* Which kernel computes it, its defines, and how it is launched. */
typedef struct product_plan {
    const char *kernel;
    char defines[64];
    int64_t size[2];
    size_t groups[2];
} product_plan;

static int64_t round_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b * b;
}

static product_plan plan_tiles(const opencl_product *p)
{
    return (product_plan){
        .kernel = "product_tiles",
        .size = {round_up(p->columns, TILE) / TILE * SIDE, round_up(p->rows, TILE) / TILE * SIDE},
        .groups = {SIDE, SIDE}};
}

/* Few rows on a device with many items at work: they share the depth. */
static product_plan plan_vector(const opencl_product *p)
{
    size_t wide = p->column_strides[1] == 1 && p->columns >= 16 ? 32 : 1, slices = wide == 1 ? 64 : 8;
    product_plan plan = {.kernel = "product_vector",
                         .size = {round_up(p->columns, (int64_t)wide), p->rows * (int64_t)slices},
                         .groups = {wide, slices}};
    snprintf(plan.defines, sizeof plan.defines, "#define WIDE %zu\n#define SLICES %zu\n", wide, slices);
    return plan;
}

/* Registers hold as many rows as there are, 8 at most. */
static product_plan plan_rows(const opencl_product *p, bool dots)
{
    int32_t each = p->rows >= 8 && !dots ? 8 : p->rows >= 4 ? 4 : p->rows >= 2 ? 2 : 1;
    product_plan plan = {
        .kernel = dots ? "product_dots" : "product_rows",
        .size = {dots ? p->columns : round_up(p->columns, 16) / 16, round_up(p->rows, each) / each},
        .groups = {4, 1}};
    snprintf(plan.defines, sizeof plan.defines, "#define EACH_ROWS %d\n", each);
    return plan;
}

static product_plan plan_product(const opencl_device *device, const opencl_product *p)
{
    bool serial = device->runs_items_in_turn;
    if (serial && p->column_strides[1] == 1)
        return plan_rows(p, false);
    if (serial && p->row_strides[1] == 1 && p->column_strides[0] == 1)
        return plan_rows(p, true);
    return p->rows <= 4 ? plan_vector(p) : plan_tiles(p);
}

opencl_product opencl_product_of(const opencl_operand *a, const opencl_operand *b, const opencl_operand *c)
{
    opencl_product p = {.a = a, .b = b, .c = c, .alpha = 1, .beta = 1, .name = "matmul"};
    for (uint32_t k = 0; k < 8; k++)
        p.batch_dims[k] = 1;
    return p;
}

static int64_t count_batches(const opencl_product *p)
{
    int64_t count = 1;
    for (uint32_t k = 0; k < 8; k++)
        count *= p->batch_dims[k];
    return count;
}

static void add_numbers(opencl_launch *launch, const opencl_product *p)
{
    const int32_t *const eights[] = {p->batch_dims, p->a_batch, p->b_batch, p->bias_batch, p->c_batch};
    opencl_arg_int(launch, p->rows);
    opencl_arg_int(launch, p->columns);
    opencl_arg_int(launch, p->depth);
    opencl_arg_int(launch, p->c_begin);
    for (uint32_t k = 0; k < 5; k++)
        opencl_arg_bytes(launch, eights[k], 8 * sizeof(int32_t));
    opencl_arg_bytes(launch, p->row_strides, 4 * sizeof(int32_t));
    opencl_arg_bytes(launch, p->column_strides, 4 * sizeof(int32_t));
    opencl_arg_float(launch, p->alpha);
    opencl_arg_float(launch, p->beta);
}

void opencl_product_add(opencl_build *build, const opencl_node *node, const opencl_product *p)
{
    product_plan plan = plan_product(node->device, p);
    int64_t batches = count_batches(p);
    double results = (double)p->rows * p->columns * (double)batches;
    size_t element = opencl_dtype_bytes(p->a->dtype);
    char defines[128], variant[64];
    snprintf(defines, sizeof defines, "%s%s", plan.defines, p->bias ? "#define BIAS\n" : "");
    snprintf(variant, sizeof variant, "%s:%s", p->name, plan.kernel + strlen("product_"));
    opencl_launch *launch = opencl_heavy_add(build, p->a, defines, opencl_product_source, plan.kernel);
    opencl_arg_input(launch, p->a);
    if (p->b_is_scratch)
        opencl_arg_scratch(launch, p->b_scratch, element);
    else
        opencl_arg_input(launch, p->b);
    opencl_arg_input(launch, p->bias ? p->bias : p->a);
    opencl_arg_output(launch, p->c);
    add_numbers(launch, p);
    opencl_launch_size(launch, plan.size[0], plan.size[1], batches);
    opencl_launch_groups(launch, plan.groups[0], plan.groups[1], 1);
    opencl_launch_describe(launch, variant,
                           ((double)(p->rows + p->columns) * p->depth * (double)batches + results) *
                               (double)element,
                           2 * results * p->depth);
}

/* ---- MatMul ---------------------------------------------------------------------------------- */

static int64_t dim_from_end(const opencl_operand *operand, uint32_t k)
{
    return k < operand->rank ? operand->dims[operand->rank - 1 - k] : 1;
}

/* Strides of an operand along the batch axes of the result, from the third dim from the end on. */
static void batch_strides(const opencl_operand *operand, int64_t matrix, int32_t *out_strides)
{
    int64_t stride = matrix;
    for (uint32_t k = 2; k < operand->rank; k++) {
        out_strides[k - 2] = dim_from_end(operand, k) == 1 ? 0 : (int32_t)stride;
        stride *= dim_from_end(operand, k);
    }
}

static bool matmul_limits(const opencl_node *node, gantry_verdict *verdict)
{
    for (uint32_t k = 0; k < 2; k++)
        if (node->inputs[k].rank < 1)
            return opencl_refuse_rank(verdict, &node->inputs[k], "1 or more");
    for (uint32_t k = 2; k < OPENCL_MAX_RANK; k++) {
        int64_t left = dim_from_end(&node->inputs[0], k), right = dim_from_end(&node->inputs[1], k);
        if (left == right || left == 1 || right == 1 || left < 0 || right < 0)
            continue;
        gantry_refuse(verdict, GANTRY_REFUSE_layout, node->inputs[0].view->name, "batches that do not fit",
                      "equal batches, or 1", "");
        return false;
    }
    return opencl_same_types(node, verdict);
}

/* A vector on the left is a row, one on the right a column; neither has batches. */
static void prepare_matmul(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *a = &node->inputs[0], *b = &node->inputs[1], *c = &node->outputs[0];
    opencl_product p = opencl_product_of(a, b, c);
    p.depth = (int32_t)dim_from_end(a, 0);
    p.rows = (int32_t)dim_from_end(a, 1);
    p.columns = b->rank > 1 ? (int32_t)dim_from_end(b, 0) : 1;
    p.row_strides[0] = p.depth;
    p.row_strides[1] = p.row_strides[3] = p.columns;
    p.column_strides[0] = p.column_strides[1] = p.column_strides[3] = 1;
    uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    if (b->rank <= 2 || opencl_count_dims(b, 0, b->rank - 2) == 1) {
        /* One matrix for all: rows of all batches are one matrix's. */
        p.rows = (int32_t)(a->rank > 1 ? opencl_count_dims(a, 0, a->rank - 1) : 1);
        opencl_product_add(build, node, &p);
        return;
    }
    batch_strides(a, (int64_t)p.rows * p.depth, p.a_batch);
    batch_strides(b, (int64_t)p.depth * p.columns, p.b_batch);
    int64_t stride = (int64_t)p.rows * p.columns;
    for (uint32_t k = 2; k < rank; k++) {
        int64_t left = dim_from_end(a, k), right = dim_from_end(b, k);
        p.batch_dims[k - 2] = (int32_t)(left == 1 ? right : left);
        p.c_batch[k - 2] = (int32_t)stride;
        stride *= p.batch_dims[k - 2];
    }
    opencl_product_add(build, node, &p);
}

static void matmul_work(const opencl_node *node, opencl_work *inout_work)
{
    inout_work->flops =
        2 * (double)opencl_count(&node->outputs[0]) * (double)dim_from_end(&node->inputs[0], 0);
    inout_work->efficiency = 0.3;
}

/* ---- Gemm ------------------------------------------------------------------------------------ */

static bool gemm_limits(const opencl_node *node, gantry_verdict *verdict)
{
    for (uint32_t k = 0; k < 2; k++)
        if (node->inputs[k].rank != 2)
            return opencl_refuse_rank(verdict, &node->inputs[k], "2");
    if (node->input_count > 2 && opencl_is_there(&node->inputs[2]) && node->inputs[2].rank > 2)
        return opencl_refuse_rank(verdict, &node->inputs[2], "at most 2");
    return opencl_same_types(node, verdict);
}

static void set_bias(opencl_product *p, const opencl_operand *bias)
{
    p->bias = bias;
    p->column_strides[2] = dim_from_end(bias, 0) == 1 ? 0 : 1;
    p->row_strides[2] = dim_from_end(bias, 1) == 1 ? 0 : (int32_t)dim_from_end(bias, 0);
}

static void prepare_gemm(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *a = &node->inputs[0], *b = &node->inputs[1], *c = &node->outputs[0];
    bool a_turned = gantry_node_int(node->view, "transA", 0) != 0;
    bool b_turned = gantry_node_int(node->view, "transB", 0) != 0;
    opencl_product p = opencl_product_of(a, b, c);
    p.name = "gemm";
    p.rows = (int32_t)c->dims[0];
    p.columns = (int32_t)c->dims[1];
    p.depth = (int32_t)a->dims[a_turned ? 0 : 1];
    p.row_strides[0] = a_turned ? 1 : p.depth;
    p.column_strides[0] = a_turned ? p.rows : 1;
    p.row_strides[1] = b_turned ? 1 : p.columns;
    p.column_strides[1] = b_turned ? p.depth : 1;
    p.row_strides[3] = p.columns;
    p.alpha = gantry_node_float(node->view, "alpha", 1);
    p.beta = gantry_node_float(node->view, "beta", 1);
    if (opencl_is_there(opencl_input(node, 2)))
        set_bias(&p, opencl_input(node, 2));
    opencl_product_add(build, node, &p);
}

static void gemm_work(const opencl_node *node, opencl_work *inout_work)
{
    const opencl_operand *a = &node->inputs[0];
    int64_t depth = a->dims[gantry_node_int(node->view, "transA", 0) ? 0 : 1];
    inout_work->flops = 2 * (double)opencl_count(&node->outputs[0]) * (double)depth;
    inout_work->efficiency = 0.3;
}

static const opencl_op ops[] = {
    {.name = "MatMul",
     .domain = "",
     .types = OPENCL_SINGLE_OR_HALF,
     .limits = matmul_limits,
     .prepare = prepare_matmul,
     .work = matmul_work},
    {.name = "Gemm",
     .domain = "",
     .types = OPENCL_SINGLE_OR_HALF,
     .limits = gemm_limits,
     .prepare = prepare_gemm,
     .work = gemm_work},
};
const opencl_op_table opencl_gemm_ops = {ops, sizeof ops / sizeof *ops};
