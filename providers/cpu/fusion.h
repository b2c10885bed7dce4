/* Which nodes can follow a convolution or product inside its kernel. */
#ifndef CPU_FUSION_H
#define CPU_FUSION_H

#include "program.h"

/* Who reads the values of a partition. */
typedef struct cpu_uses {
    uint32_t *count;    /* for each value: reads by nodes */
    uint32_t *consumer; /* for each value: one node that reads it */
    uint32_t *producer; /* for each value: the node that makes it, or GANTRY_NO_ID */
    uint8_t *is_output;
} cpu_uses;

/* Groups under construction. */
typedef struct cpu_fuser {
    cpu_program *program;
    const gantry_compile_args *args;
    gantry_error *err;
    cpu_uses uses;
    const uint32_t *transposed; /* cpu_find_transposed_weights */
    uint32_t *taken_by;         /* for each node: the node that leads its group */
    uint32_t *last;             /* for each leading node: the last node of its group */
    cpu_group *led;             /* for each leading node: its group */
} cpu_fuser;

/* Joins what lies between DequantizeLinear and QuantizeLinear into integer kernels (fusion_qdq.c), before
 * anything else is joined. */
gantry_status cpu_fuse_qdq(cpu_fuser *fuser);

/* What fusing one more node would mean. matched: the node is of a kind that can be a post-op; guard: why it
 * is not one here, NULL when it is. */
typedef struct cpu_post_match {
    bool matched;
    const char *guard;
    cpu_post post;
    uint32_t operand; /* BIAS, RESIDUAL: value index of the other operand */
} cpu_post_match;

/* Whether node can be the next post-op of a group whose last value is `value`. */
cpu_post_match cpu_post_of_node(const cpu_program *program, const gantry_compile_args *args,
                                const cpu_group *group, const gantry_node_view *node, uint32_t value);

/* For each value that is the 2-D transposition of a float32 constant and read by nothing but products as
 * their second operand: that constant; GANTRY_NO_ID for all others. In the program's arena; NULL when out of
 * memory. */
const uint32_t *cpu_find_transposed_weights(const cpu_program *program, const cpu_uses *uses);
/* One scalar float32 constant operand; false when it is anything else. An operand that is left out leaves
 * *inout_value alone. */
bool cpu_read_scalar(const cpu_program *program, const gantry_compile_args *args,
                     const gantry_node_view *node, uint32_t input, float *inout_value);

#endif
