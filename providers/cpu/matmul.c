/* MatMul and Gemm. */
#include "product.h"

static gantry_status make_matmul(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_product product;
    GT_TRY(cpu_product_of_matmul(build, &product));
    return cpu_product_plain(build, &product, out_kernel);
}

static gantry_status make_gemm(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_product product;
    GT_TRY(cpu_product_of_gemm(build, &product));
    return cpu_product_plain(build, &product, out_kernel);
}

static double matmul_flops(const gantry_graph_view *graph, const gantry_node_view *node)
{
    const gantry_value_view *a = gantry_node_input(graph, node, 0);
    const gantry_value_view *y = gantry_node_output(graph, node, 0);
    if (!a || !y || a->rank < 1 || !a->typical_dims || !y->typical_dims)
        return 1;
    bool trans_a = gantry_node_int(node, "transA", 0) != 0;
    double flops = 2 * (double)a->typical_dims[trans_a ? 0 : a->rank - 1];
    for (int32_t k = 0; k < y->rank; k++)
        flops *= (double)y->typical_dims[k];
    return flops;
}

#define PRODUCT_TYPES                                                                                        \
    (CPU_FLOATS | CPU_BIT(GANTRY_INT32) | CPU_BIT(GANTRY_UINT32) | CPU_BIT(GANTRY_INT64) |                   \
     CPU_BIT(GANTRY_UINT64))

static const cpu_op_row rows[] = {
    {"MatMul", "", {PRODUCT_TYPES}, make_matmul, NULL, matmul_flops, 0},
    {"Gemm", "", {PRODUCT_TYPES}, make_gemm, NULL, matmul_flops, 0},
};

cpu_op_family cpu_matmul_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof *rows};
}
