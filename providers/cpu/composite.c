/* Large operators: those of the domain "gantry", which stand for patterns the rewrites recognised, and those
 * of language models that ONNX has itself. */
#include "attention.h"
#include "elementwise.h"
#include "normalization.h"

#define HALF_OR_SINGLE (CPU_BIT(GANTRY_FLOAT32) | CPU_HALVES)

/* Two products: each score costs a key's size, each result of a query a value for every key. */
static double fused_flops(const gantry_graph_view *graph, const gantry_node_view *node)
{
    uint32_t count = 0;
    const int64_t *k = cpu_ints(node, "k", &count);
    const gantry_value_view *y = gantry_node_output(graph, node, 0);
    const gantry_value_view *keys = k && count == 7 ? gantry_node_input(graph, node, (uint32_t)k[0]) : NULL;
    if (!keys || !y || !keys->typical_dims || !y->typical_dims || k[3] < 0 || k[3] >= keys->rank)
        return 1;
    double flops = 4 * (double)keys->typical_dims[k[3]];
    for (int32_t a = 0; a < y->rank; a++)
        flops *= (double)y->typical_dims[a];
    return flops;
}

static const cpu_op_row rows[] = {
    {.op = "Gelu",
     .domain = "gantry",
     .types = {CPU_REALS},
     .make = cpu_make_gelu,
     .flags = CPU_ROW_ANY_LAYOUT},
    {.op = "Silu",
     .domain = "gantry",
     .types = {CPU_REALS},
     .make = cpu_make_unary_op,
     .flags = CPU_ROW_ANY_LAYOUT},
    {.op = "HardSwish",
     .domain = "gantry",
     .types = {CPU_REALS},
     .make = cpu_make_unary_op,
     .flags = CPU_ROW_ANY_LAYOUT},
    {.op = "Mish",
     .domain = "gantry",
     .types = {CPU_REALS},
     .make = cpu_make_unary_op,
     .flags = CPU_ROW_ANY_LAYOUT},
    {.op = "LayerNorm", .domain = "gantry", .types = {CPU_REALS}, .make = cpu_make_layer_norm},
    {.op = "Attention",
     .domain = "gantry",
     .types = {CPU_BIT(GANTRY_FLOAT32), CPU_BIT(GANTRY_FLOAT32) | CPU_TRUTH},
     .make = cpu_make_fused_attention,
     .flops = fused_flops},
    {.op = "Attention",
     .domain = "",
     .types = {HALF_OR_SINGLE, HALF_OR_SINGLE, HALF_OR_SINGLE, HALF_OR_SINGLE | CPU_TRUTH, HALF_OR_SINGLE,
               HALF_OR_SINGLE, CPU_BIT(GANTRY_INT64)},
     .make = cpu_make_attention},
    {.op = "RotaryEmbedding",
     .domain = "",
     .types = {HALF_OR_SINGLE, HALF_OR_SINGLE, HALF_OR_SINGLE, CPU_BIT(GANTRY_INT64)},
     .make = cpu_make_rotary},
    {.op = "SwiGLU", .domain = "", .types = {HALF_OR_SINGLE}, .make = cpu_make_swiglu},
};

cpu_op_family cpu_composite_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
