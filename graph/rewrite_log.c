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

/* A session simplifies its graph again for each choice of branches; what it missed before it misses again. */
static gantry_status first_time(gt_rewrite_context *context, gt_map *seen, const char *code, const char *node,
                                const char *text, bool *out_first, gantry_error *err)
{
    size_t lengths[] = {strlen(code) + 1, strlen(node) + 1, strlen(text) + 1};
    size_t length = lengths[0] + lengths[1] + lengths[2];
    char *key = gt_arena_alloc(&context->scratch, length);
    if (!key)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    memcpy(key, code, lengths[0]);
    memcpy(key + lengths[0], node, lengths[1]);
    memcpy(key + lengths[0] + lengths[1], text, lengths[2]);
    *out_first = gt_map_get(seen, key, length, 0) == 0;
    return gt_map_set(seen, key, length, 1) ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

static gantry_status commit(gt_rewrite_context *context, gt_map *seen, gantry_error *err)
{
    gt_model *model = context->model;
    bool first;
    for (uint32_t k = 0; k < model->rewrites.count; k++) {
        const gt_rewrite_record *record = &model->rewrites.data[k];
        if (record->node && record->guard)
            GT_TRY(first_time(context, seen, record->rule, record->node, record->guard, &first, err));
    }
    for (uint32_t k = 0; k < context->misses.count; k++) {
        const gt_rewrite_miss *miss = &context->misses.data[k];
        GT_TRY(first_time(context, seen, miss->rule, miss->node, miss->guard, &first, err));
        if (first)
            GT_TRY(gt_model_log_rewrite(model, miss->rule, miss->node, "skipped", miss->guard, err));
    }
    context->misses.count = 0;
    return GANTRY_OK;
}

gantry_status gt_rewrite_commit_misses(gt_rewrite_context *context, gantry_error *err)
{
    gt_map seen;
    if (context->misses.count == 0)
        return GANTRY_OK;
    gt_map_init(&seen, context->allocator);
    gantry_status status = commit(context, &seen, err);
    gt_map_free(&seen);
    return status;
}
