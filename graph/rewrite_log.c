/* The log of the rewrites: what was applied is written at once, near misses when no later round made them
 * true. */
#include "rewrite_internal.h"

static gantry_status record_removed(gt_rewrite_context *context, gt_rewrite_record *record,
                                    const uint32_t *nodes, uint32_t node_count, gantry_error *err)
{
    const char **names = GT_ARENA_ARRAY(&context->model->arena, const char *, node_count);
    if (!names)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    for (uint32_t k = 0; k < node_count; k++)
        names[k] = gt_graph_node(context->graph, nodes[k])->name;
    record->removed = names;
    record->removed_count = node_count;
    return GANTRY_OK;
}

gantry_status gt_rewrite_log(gt_rewrite_context *context, const char *node, const char *state,
                             const char *guard, const uint32_t *nodes, uint32_t node_count, const char *added,
                             gantry_error *err)
{
    gt_model *model = context->model;
    GT_TRY(gt_model_log_rewrite(model, context->rule->name, node, state, guard, err));
    gt_rewrite_record *record = &model->rewrites.data[model->rewrites.count - 1];
    record->added = added;
    return node_count ? record_removed(context, record, nodes, node_count, err) : GANTRY_OK;
}

gantry_status gt_rewrite_log_miss(gt_rewrite_context *context, const char *node, const char *guard,
                                  gantry_error *err)
{
    gt_rewrite_miss miss = {context->rule->name, node, guard};
    if (!gt_vec_push(context->allocator, &context->misses, miss))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

gantry_status gt_rewrite_commit_misses(gt_rewrite_context *context, gantry_error *err)
{
    for (uint32_t k = 0; k < context->misses.count; k++) {
        const gt_rewrite_miss *miss = &context->misses.data[k];
        GT_TRY(gt_model_log_rewrite(context->model, miss->rule, miss->node, "skipped", miss->guard, err));
    }
    context->misses.count = 0;
    return GANTRY_OK;
}
