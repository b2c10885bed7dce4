/* Which nodes can follow a convolution or product inside its kernel. */
#ifndef CPU_FUSION_H
#define CPU_FUSION_H

#include "program.h"

/* Who reads the values of a partition. */
typedef struct cpu_uses {
    uint32_t *count;    /* for each value: reads by nodes */
    uint32_t *consumer; /* for each value: one node that reads it */
    uint8_t *is_output;
} cpu_uses;

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

#endif
