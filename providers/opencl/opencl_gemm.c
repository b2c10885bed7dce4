/* Products of matrices. */
#include "opencl_ops.h"

/* c[batch][row][column]; a batch stride of 0: one matrix for all. */
static const char source[] =
    "__kernel void matmul(__global const T *a, ulong a0, __global const T *b, ulong b0, __global T *c, ulong "
    "c0,\n"
    "                     uint depth, ulong a_batch, ulong b_batch)\n"
    "{\n"
    "    size_t column = get_global_id(0), row = get_global_id(1), batch = get_global_id(2);\n"
    "    size_t columns = get_global_size(0), rows = get_global_size(1);\n"
    "    __global const T *x = a + a0 + batch * a_batch + row * depth;\n"
    "    __global const T *y = b + b0 + batch * b_batch + column;\n"
    "    T sum = 0;\n"
    "    for (uint k = 0; k < depth; k++)\n"
    "        sum = fma(x[k], y[k * columns], sum);\n"
    "    c[c0 + (batch * rows + row) * columns + column] = sum;\n"
    "}\n";

static bool matmul_limits(const opencl_node *node, gantry_verdict *verdict)
{
    const opencl_operand *a = opencl_input(node, 0), *b = opencl_input(node, 1);
    if (a->rank < 2)
        return opencl_refuse_rank(verdict, a, "2 or more");
    if (b->rank < 2)
        return opencl_refuse_rank(verdict, b, "2 or more");
    if (b->rank != 2 && b->rank != a->rank)
        return opencl_refuse_rank(verdict, b, "2, or the first operand's rank");
    for (uint32_t k = 0; b->rank > 2 && k + 2 < a->rank; k++)
        if (a->dims[k] >= 0 && b->dims[k] >= 0 && a->dims[k] != b->dims[k]) {
            gantry_refuse(verdict, GANTRY_REFUSE_layout, a->view->name, "batches that are broadcast",
                          "equal batches", "");
            return false;
        }
    return opencl_takes_type(b, OPENCL_TYPE(a->dtype), verdict);
}

static void matmul_prepare(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *a = opencl_input(node, 0), *b = opencl_input(node, 1), *c = opencl_output(node, 0);
    int64_t rows = c->dims[c->rank - 2], columns = c->dims[c->rank - 1], depth = a->dims[a->rank - 1];
    char defines[64];
    snprintf(defines, sizeof defines, "#define T %s\n", opencl_dtype_name(a->dtype));
    opencl_launch *launch = opencl_launch_add(build, defines, source, "matmul");
    opencl_arg_input(launch, a);
    opencl_arg_input(launch, b);
    opencl_arg_output(launch, c);
    opencl_arg_int(launch, (int32_t)depth);
    opencl_arg_long(launch, rows * depth);
    opencl_arg_long(launch, b->rank == 2 ? 0 : depth * columns);
    opencl_launch_size(launch, columns, rows, opencl_count_dims(c, 0, c->rank - 2));
    opencl_launch_describe(launch, "matmul_plain", -1, 2.0 * (double)opencl_count(c) * (double)depth);
}

static void matmul_work(const opencl_node *node, opencl_work *inout_work)
{
    const opencl_operand *a = opencl_input(node, 0);
    double depth = (double)opencl_count_dims(a, a->rank - 1, a->rank);
    inout_work->flops = 2 * depth * (double)opencl_count(opencl_output(node, 0));
    inout_work->efficiency = 0.1;
}

static const opencl_op ops[] = {
    {.name = "MatMul",
     .domain = "",
     .types = OPENCL_F32,
     .limits = matmul_limits,
     .prepare = matmul_prepare,
     .work = matmul_work},
};

const opencl_op_table opencl_gemm_ops = {ops, sizeof ops / sizeof *ops};
