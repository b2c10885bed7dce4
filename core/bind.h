/* Binding: from the values of symbols to a plan, found in the cache or made. */
#ifndef GT_CORE_BIND_H
#define GT_CORE_BIND_H

#include "session.h"

/* Values of symbols in one run, by symbol index. Grows with the model's symbols. */
typedef struct gt_env {
    gt_scalar *values;
    uint8_t *known;
    uint32_t count;
} gt_env;

gantry_status gt_env_reserve(gt_allocator *allocator, gt_env *env, uint32_t count, gantry_error *err);
void gt_env_free(gt_allocator *allocator, gt_env *env);

/* True when the plan is the one for these symbol values: the whole cost of finding a plan in a steady-state
 * run. */
bool gt_plan_matches(const gt_plan *plan, const gt_segment *segment, const gt_env *env);

/* Follows choices from variant to the one to run. Takes the session's lock. */
gantry_status gt_bind_variant(gt_variant *variant, gt_env *env, gt_variant **out_leaf, gantry_error *err);

/* The variant to use for these symbol values when a provider refused their shapes before; variant itself
 * otherwise. Takes the session's lock only when some shape was refused. */
gt_variant *gt_bind_refused(gt_variant *variant, const gt_env *env);

/* The plan of one segment for these symbol values, with a reference that gt_plan_release gives back;
 * *out_made says whether it is a new one. *out_refused (with GANTRY_OK and no plan): a provider refused the
 * shapes; gt_bind_refused now knows the variant that is placed without it. Takes the session's lock. */
gantry_status gt_bind_segment(gt_variant *variant, uint32_t segment, gt_env *env, gt_plan **out_plan,
                              bool *out_refused, bool *out_made, gantry_error *err);
void gt_plan_release(gantry_session *session, gt_plan **plan);

#endif
