/* Operators that plugins bring: rows like those of the operator table, made from a gantry_operator. */
#ifndef GT_GRAPH_OWN_OPS_H
#define GT_GRAPH_OWN_OPS_H

#include "op.h"

#include <gantry/provider.h>

/* row comes first: a gt_op whose infer is gt_rule_own is one of these. */
typedef struct gt_own_op {
    gt_op row;
    gantry_operator source; /* what the plugin's struct had of ours; its texts are copied behind this one */
} gt_own_op;

/* The operators that a model may use; fixed while it lives. */
typedef struct gt_own_ops {
    uint32_t count;
    const gt_own_op *const *data;
} gt_own_ops;

/* Checks and copies one; freed with gt_free. GANTRY_PROVIDER says what is wrong with it. */
gantry_status gt_own_op_create(gt_allocator *allocator, const gantry_operator *source, gt_own_op **out_op,
                               gantry_error *err);

#endif
