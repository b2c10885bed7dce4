/* The operator table: one row per operator, with its versions, arity, shape rule and the operands that decide
 * shapes. */
#ifndef GT_GRAPH_OP_H
#define GT_GRAPH_OP_H

#include "graph.h"

/* The newest opset of ai.onnx whose definitions the table was made from. */
#define GT_NEWEST_OPSET 28

enum {
    GT_OP_DATA_SIZED = 1u << 0,  /* some output size depends on data: NonZero, NonMaxSuppression */
    GT_OP_CONTROL = 1u << 1,     /* If, Loop, Scan */
    GT_OP_RANDOM = 1u << 2,      /* never folded, never merged */
    GT_OP_ELEMENTWISE = 1u << 3, /* output element depends on the broadcast elements of the inputs only */
    GT_OP_COMMUTATIVE = 1u << 4,
    GT_OP_TRAINING = 1u << 5,
    GT_OP_MOVEMENT = 1u << 6,  /* moves or views elements without arithmetic */
    GT_OP_PROPAGATES = 1u << 7 /* inference computes its elements when those of its inputs are known */
};

typedef struct gt_infer gt_infer; /* infer.c: what a rule sees */
typedef gantry_status (*gt_infer_fn)(gt_infer *infer);

#define GT_OP_MAX_VERSIONS 12
#define GT_OP_MAX_TYPED_INPUTS 10

/* since: the opsets at which the definition changed, ascending, 0-terminated, up to opset 28.
 * implemented_from..: every version at or above this is implemented (older ones are refused with found and
 * supported versions). shape_operands: bit k is set when input k's elements decide output shapes. */
struct gt_op {
    const char *name;
    const char *domain;
    int32_t since[GT_OP_MAX_VERSIONS];
    int32_t implemented_from;
    int16_t min_inputs, max_inputs; /* max -1: any number */
    int16_t min_outputs, max_outputs;
    uint32_t shape_operands;
    uint32_t flags;
    gt_infer_fn infer;
    /* "name:kinds" of all versions, separated by blanks; kinds are letters: f i s t (one), F I S (a list). */
    const char *attributes;
    /* Bit mask over gantry_dtype for each input; 0: any. A variadic input's mask is the last one. */
    int32_t typed_inputs;
    uint32_t input_types[GT_OP_MAX_TYPED_INPUTS];
    /* What the operator's definition calls its inputs from version names_from on, separated by blanks. */
    int32_t names_from;
    const char *input_names;
};

const gt_op *gt_op_find(const char *domain, const char *name);
/* The largest since <= opset, or 0 when the operator came later than opset. */
int32_t gt_op_version(const gt_op *op, int32_t opset);
/* That operator, or one of a plugin (own_ops.h), in the version that holds at opset. */
const gt_op *gt_model_find_op(const gt_model *model, const char *domain, const char *name, int32_t opset);
/* All rows, for the generated coverage table. */
const gt_op *gt_op_table(uint32_t *out_count);

#endif
