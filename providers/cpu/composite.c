/* Large operators: those of the domain "gantry", which stand for patterns the rewrites recognised, and those
 * of language models that ONNX has itself. */
#include "attention.h"
#include "elementwise.h"
#include "normalization.h"

#define HALF_OR_SINGLE (CPU_BIT(GANTRY_FLOAT32) | CPU_HALVES)

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
