/* Matching of DequantizeLinear -> operators -> QuantizeLinear, in several files. */
#ifndef CPU_FUSION_QDQ_H
#define CPU_FUSION_QDQ_H

#include "fusion.h"
#include "quantized.h"

#define CPU_QDQ_MAX_NODES 64u
#define CPU_QDQ_MAX_INPUTS 16u

/* Which bytes a value is a function of (fusion_table.c). */
typedef struct cpu_qdq_root {
    bool found;
    uint32_t root;
    uint32_t depth; /* nodes on the longest way from the root */
} cpu_qdq_root;

typedef struct cpu_qdq {
    gt_arena scratch;    /* for this pass only */
    cpu_qdq_root *roots; /* for each value */
    cpu_fuser *f;
    uint8_t *wanted;    /* for each node: something outside of groups, or a group, reads its result */
    uint32_t *absorber; /* for each node: the QuantizeLinear whose group computes it too, or GANTRY_NO_ID */
    uint32_t *bytes; /* for each float value: the QuantizeLinear whose bytes it is made as, or GANTRY_NO_ID */
    const char **rule; /* for each node that ends a group */
} cpu_qdq;

/* What a QuantizeLinear or DequantizeLinear says. */
typedef struct cpu_qparams {
    uint32_t value, scale, zero; /* indexes of values */
    gantry_dtype dtype;          /* of the bytes, where the caller filled it in */
    bool constant;               /* scale and zero point are constants */
    bool scalar;                 /* and single, and the scale is positive */
    float scale_value;           /* if scalar */
    int32_t zero_value;
} cpu_qparams;

/* A group that could be made. */
typedef struct cpu_qdq_match {
    const gantry_node_view *node;
    const cpu_op_row *row;
    const char *rule;
    uint32_t input_count, post_count, absorbed_count;
    uint32_t inputs[CPU_QDQ_MAX_INPUTS + 8];
    cpu_post posts[2];
    uint32_t absorbed[CPU_QDQ_MAX_NODES]; /* indexes of nodes */
    const uint8_t *table;
    const struct cpu_qrows *rows;
} cpu_qdq_match;

static inline bool cpu_qdq_is_op(const gantry_node_view *node, const char *op)
{
    return node->domain[0] == 0 && strcmp(node->op, op) == 0;
}

static inline bool cpu_qdq_is_byte(const gantry_value_view *value)
{
    return value && (value->dtype == GANTRY_UINT8 || value->dtype == GANTRY_INT8);
}

/* A value between two nodes of a group: nobody else may read it. */
static inline bool cpu_qdq_is_private(const cpu_qdq *q, uint32_t value)
{
    return q->f->uses.count[value] == 1 && !q->f->uses.is_output[value];
}

static inline bool cpu_qdq_is_constant(const cpu_qdq *q, uint32_t value)
{
    return value != GANTRY_NO_ID && q->f->program->graph->values[value]->constant_id != GANTRY_NO_ID;
}

const gantry_node_view *cpu_qdq_producer(const cpu_qdq *q, uint32_t value);
const gantry_value_view *cpu_qdq_value(const cpu_qdq *q, uint32_t value);
cpu_qparams cpu_qdq_params(const cpu_qdq *q, const gantry_node_view *node);
/* Whether a value is bytes that are no constant, dequantized with one constant scale. */
bool cpu_qdq_bytes(const cpu_qdq *q, uint32_t value, cpu_qparams *out_params);
/* Whether a value is those very bytes y, dequantized. */
bool cpu_qdq_same_bytes(const cpu_qdq *q, uint32_t value, const cpu_qparams *y, cpu_qparams *out_x);
/* The bytes of a constant until they are unmapped; NULL when it is none or cannot be mapped. Unmapping NULL
 * is nothing. */
const void *cpu_qdq_map(const cpu_qdq *q, uint32_t value, size_t *out_bytes);
void cpu_qdq_unmap(const cpu_qdq *q, uint32_t value, const void *data);
/* Copies at most capacity bytes of a constant; *out_bytes is what it has. */
bool cpu_qdq_read(const cpu_qdq *q, uint32_t value, void *out, size_t capacity, size_t *out_bytes);
bool cpu_qdq_absorb(cpu_qdq_match *m, uint32_t node);
bool cpu_qdq_absorb_producer(const cpu_qdq *q, cpu_qdq_match *m, uint32_t value);
void cpu_qdq_operand(const cpu_qdq *q, cpu_qdq_match *m, uint32_t value);
void cpu_qdq_operands(const cpu_qdq *q, cpu_qdq_match *m, const cpu_qparams *p);

/* Why no integer kernel makes the bytes y of a float value, or NULL; fills m then (fusion_qdq_center.c). */
const char *cpu_qdq_center(const cpu_qdq *q, uint32_t value, const cpu_qparams *y, cpu_qdq_match *m);

/* Whether a node is a DequantizeLinear of constants, and computing it once (fusion_derived.c). */
bool cpu_qdq_is_derived(const cpu_fuser *f, const gantry_node_view *node);
gantry_status cpu_qdq_derive(cpu_fuser *f, uint32_t index);

/* Fills q->roots, in the order of the nodes: graphs are deeper than a stack (fusion_table.c). */
void cpu_qdq_find_roots(cpu_qdq *q);
/* Whether the result of that QuantizeLinear is a function of one byte (fusion_table.c); fills m then. */
bool cpu_qdq_table(cpu_qdq *q, uint32_t quantize, cpu_qdq_match *m);

/* Whether the bytes y of a float value can be computed by rows from bytes and floats (fusion_rows.c); fills m
 * then. */
bool cpu_qdq_rows(const cpu_qdq *q, uint32_t value, const cpu_qparams *y, cpu_qdq_match *m);

#endif
