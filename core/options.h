/* Session options: text in, typed values out, and who set each (for the report). */
#ifndef GT_CORE_OPTIONS_H
#define GT_CORE_OPTIONS_H

#include "graph/place.h"
#include "graph/rewrite.h"

typedef struct gt_option_row {
    const char *key;
    const char *asked;     /* what the caller set, or NULL */
    const char *effective; /* what is in force, as text */
    const char *origin;    /* "default", "user", "mask", "overridden by ..." */
} gt_option_row;

typedef enum gt_timing { GT_TIMING_OFF, GT_TIMING_EVENTS, GT_TIMING_FENCED } gt_timing;

/* Typed values of the keys in gantry.h. Texts live in the arena. */
typedef struct gt_options {
    gt_arena arena;
    int threads; /* effective, >= 1 */
    uint32_t provider_count;
    const char *providers[GT_MAX_PROVIDERS];
    bool plan_by_cost, strict, model_precision, exact, rewrites, fold, weights_mapped, numeric_check, probe;
    uint64_t fold_limit_bytes, memory_limit, staging_limit, deadline_ms;
    uint32_t plan_cache;
    gt_timing timing;
    const char *base;
    GT_VEC(const char *) disabled_rewrites;
    GT_VEC(gt_dim_range) dims;
    GT_VEC(gt_input_shape) shapes;
    GT_VEC(gt_pin) pins;
    GT_VEC(gt_pin) binds; /* node = tensor name, provider = domain name */
    GT_VEC(gantry_dtype) cpu_disabled;
    GT_VEC(gt_option_row) rows; /* every key in force, for the report; PROVIDER.KEY ones included */
    int log_level;
    gantry_log_fn log;
    void *log_user;
} gt_options;

/* Values of gantry_options (NULL: defaults) resolved for this process; fills *out_options, which
 * gt_options_free releases. */
gantry_status gt_options_resolve(gt_allocator *allocator, const gantry_options *options,
                                 gt_options *out_options, gantry_error *err);
void gt_options_free(gt_options *options);
/* The value of "PROVIDER.KEY" as the caller set it, or NULL: what gantry_host.option answers, with
 * session_options = this struct. */
const char *gt_options_text(const gt_options *options, const char *key);

#endif
