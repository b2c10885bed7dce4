/* The domain "gantry": nodes that stand for patterns the rewrites recognised. */
#include "elementwise.h"
#include "normalization.h"

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
};

cpu_op_family cpu_composite_ops(void)
{
    return (cpu_op_family){rows, sizeof rows / sizeof rows[0]};
}
