/* Which families of operators the CPU provider has, and how a row is found. */
#include "cpu.h"

typedef cpu_op_family (*family_fn)(void);

/* A later family wins over an earlier one: the library-backed ones come last. */
static const family_fn families[] = {
    cpu_elementwise_ops, cpu_reduce_ops,    cpu_movement_ops,  cpu_indexing_ops,      cpu_shape_ops,
    cpu_image_ops,       cpu_quantized_ops, cpu_composite_ops, cpu_normalization_ops, cpu_recurrent_ops,
    cpu_signal_ops,      cpu_pool_ops,      cpu_conv_ops,      cpu_matmul_ops,
};

static const cpu_op_row *find_in(cpu_op_family family, const char *domain, const char *op)
{
    for (uint32_t k = 0; k < family.count; k++)
        if (strcmp(family.rows[k].op, op) == 0 && strcmp(family.rows[k].domain, domain) == 0)
            return &family.rows[k];
    return NULL;
}

const cpu_op_row *cpu_find_op(const char *domain, const char *op)
{
    if (strcmp(domain, "ai.onnx") == 0)
        domain = "";
    for (size_t k = sizeof families / sizeof *families; k-- > 0;) {
        const cpu_op_row *row = find_in(families[k](), domain, op);
        if (row)
            return row;
    }
    return NULL;
}
