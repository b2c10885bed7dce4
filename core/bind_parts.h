/* Parts of binding in several files. All of it under the session's lock. */
#ifndef GT_CORE_BIND_PARTS_H
#define GT_CORE_BIND_PARTS_H

#include "bind.h"

/* Values of all expressions of the model under one env; in the session's scratch, so one at a time, under the
 * lock. */
typedef struct gt_evaluation {
    const gt_exprs *exprs;
    gt_scalar *values;
    uint8_t *known;
} gt_evaluation;

/* One plan while it is made. */
typedef struct gt_binder {
    gt_variant *variant;
    const gt_segment *segment;
    gt_plan *plan;
    gt_evaluation eval;
    const void **bind_data; /* by value id */
    gt_arena scratch;       /* what only the making needs */
    gt_map extents;         /* lists of extents in the plan's arena: many values share one */
    double provider_ns;
    uint32_t negative;          /* a value with an extent below 0, GT_NONE: none */
    uint32_t refused_partition; /* GT_NONE: none */
    gantry_shaped_info refusal;
    gantry_error *err;
} gt_binder;

/* bind_sizes.c: the extents of a value, into the plan; one that has none yet is marked dynamic. */
gantry_status gt_bind_shape(gt_binder *b, uint32_t id);
/* Whether everything the segment needs has a size, after all shapes are bound; the error says why not. */
gantry_status gt_bind_check_sizes(gt_binder *b);
/* Elements of a value that are all known now, dense in the value's type. */
gantry_status gt_bind_elements(gt_binder *b, uint32_t id);

/* bind.c. A new plan; *out_refused (with GANTRY_OK and no plan) as for gt_bind_segment. */
gantry_status gt_plan_make(gt_variant *variant, uint32_t segment, gt_env *env, const int64_t *key,
                           uint64_t hash, gt_plan **out_plan, bool *out_refused, gantry_error *err);

#endif
