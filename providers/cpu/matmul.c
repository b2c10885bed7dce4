/* MatMul and Gemm: which of the ways a product is computed. */
#include "product.h"

/* Own panels for few rows, own tiles over packed weights, else oneDNN, else plain loops; each says
 * GANTRY_UNSUPPORTED without a text when the product is not for it. */
static gantry_status make_product(cpu_build *build, const cpu_product *product, cpu_kernel *out_kernel)
{
    gantry_status status = cpu_product_dots(build, product, out_kernel);
    if (status == GANTRY_UNSUPPORTED)
        status = cpu_product_small(build, product, out_kernel);
    if (status == GANTRY_UNSUPPORTED)
        status = cpu_product_tiled(build, product, out_kernel);
    if (status == GANTRY_UNSUPPORTED)
        status = cpu_product_dnnl(build, product, out_kernel);
    if (status == GANTRY_UNSUPPORTED)
        status = cpu_product_plain(build, product, out_kernel);
    return status;
}

static gantry_status make_matmul(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_product product;
    GT_TRY(cpu_product_of_matmul(build, &product));
    return make_product(build, &product, out_kernel);
}

static gantry_status make_gemm(cpu_build *build, cpu_kernel *out_kernel)
{
    cpu_product product;
    GT_TRY(cpu_product_of_gemm(build, &product));
    return make_product(build, &product, out_kernel);
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
    {"MatMul", "", {PRODUCT_TYPES}, make_matmul, NULL, matmul_flops, CPU_ROW_PACKS},
    {"Gemm", "", {PRODUCT_TYPES}, make_gemm, NULL, matmul_flops, CPU_ROW_PACKS},
};

cpu_op_family cpu_matmul_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof *rows};
}
