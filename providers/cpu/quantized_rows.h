/* Chains of float operators from bytes to bytes as a short program over rows (fusion_rows.c writes it,
 * quantized_rows.c runs it): real numbers exist in a few rows of cache only. */
#ifndef CPU_QUANTIZED_ROWS_H
#define CPU_QUANTIZED_ROWS_H

#include "quantized.h"

#define CPU_QROWS_MAX_OPS 24u
#define CPU_QROWS_MAX_INPUTS 8u
#define CPU_QROWS_REGISTERS 4u /* rows of floats; longer expressions stay separate kernels */

typedef enum cpu_qrow_kind {
    CPU_QROW_DEQUANTIZE, /* target = (a - zero) * p[0]; a: an input of bytes */
    CPU_QROW_LOAD,       /* target = a, broadcast */
    CPU_QROW_UNARY,      /* target = function(a), parameters p */
    CPU_QROW_BINARY,     /* target = function(a, b); one of them is a register */
    CPU_QROW_SOFTMAX,    /* along the row, in place */
    CPU_QROW_NORMALIZE   /* LayerNormalization along the row, in place; p[0]: epsilon */
} cpu_qrow_kind;

typedef struct cpu_qrow_source {
    enum { CPU_QROW_NONE, CPU_QROW_REGISTER, CPU_QROW_INPUT, CPU_QROW_SCALAR } kind;
    uint32_t index; /* of the register or input */
    float value;    /* of the scalar */
} cpu_qrow_source;

typedef struct cpu_qrow_op {
    cpu_qrow_kind kind;
    uint32_t function; /* cpu_unary or cpu_binary */
    uint32_t target;   /* register */
    cpu_qrow_source a, b, gain, bias;
    float p[4];
    int32_t zero;
    bool is_signed;
} cpu_qrow_op;

/* The result is what register 0 holds after the last op, quantized. */
typedef struct cpu_qrows {
    uint32_t op_count, register_count;
    cpu_qrow_op ops[CPU_QROWS_MAX_OPS];
    bool whole; /* some op needs whole rows along the last axis */
    float scale;
    int32_t zero;
} cpu_qrows;

/* A group that is such a chain: build->rows has the program. */
extern const cpu_op_row cpu_qrows_row;

#endif
