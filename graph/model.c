/* The model: what its graphs share (constants, files, sources, logs), and its end. */
#include "graph_internal.h"

gantry_status gt_model_create(gt_allocator *allocator, gt_model **out_model, gantry_error *err)
{
    *out_model = NULL;
    gt_model *model = GT_NEW(allocator, gt_model);
    if (!model)
        return gt_graph_no_memory(err);
    model->allocator = allocator;
    gt_arena_init(&model->arena, allocator);
    gt_exprs_init(&model->exprs, allocator);
    gt_map_init(&model->node_names, allocator);
    *out_model = model;
    return GANTRY_OK;
}

static void graph_free(gt_allocator *allocator, gt_graph *graph)
{
    gt_vec_free(allocator, &graph->values);
    gt_vec_free(allocator, &graph->nodes);
    gt_vec_free(allocator, &graph->order);
    gt_vec_free(allocator, &graph->inputs);
    gt_vec_free(allocator, &graph->outputs);
    gt_map_free(&graph->value_names);
    gt_free(allocator, graph->uses);
    gt_free(allocator, graph->uses_first);
}

void gt_model_destroy(gt_model **inout_model)
{
    gt_model *model = inout_model ? *inout_model : NULL;
    if (!model)
        return;
    gt_allocator *allocator = model->allocator;
    for (uint32_t k = 0; k < model->graphs.count; k++)
        graph_free(allocator, model->graphs.data[k]);
    gt_model_drop_scaled(model);
    gt_model_close_files(model);
    gt_vec_free(allocator, &model->graphs);
    gt_vec_free(allocator, &model->constants);
    gt_vec_free(allocator, &model->files);
    gt_vec_free(allocator, &model->sources);
    gt_vec_free(allocator, &model->rewrites);
    gt_vec_free(allocator, &model->notes);
    gt_vec_free(allocator, &model->opsets);
    gt_vec_free(allocator, &model->metadata);
    gt_map_free(&model->node_names);
    gt_exprs_free(&model->exprs);
    gt_arena_clear(&model->arena);
    gt_free(allocator, model);
    *inout_model = NULL;
}

int64_t gt_model_opset(const gt_model *model)
{
    for (uint32_t k = 0; k < model->opsets.count; k++)
        if (!model->opsets.data[k].domain[0])
            return model->opsets.data[k].version;
    return 0;
}

const char *gt_model_take_node_name(gt_model *model, const char *wanted, const char *op_type)
{
    size_t length = wanted ? strlen(wanted) : 0;
    bool taken = !length || gt_map_get(&model->node_names, wanted, length, GT_NONE) != GT_NONE;
    const char *base = length ? wanted : op_type;
    size_t room = strlen(base) + 16;
    char *name = gt_arena_alloc(&model->arena, room);
    if (!name)
        return NULL;
    memcpy(name, base, room - 16);
    while (taken) {
        snprintf(name, room, "%s_%u", base, model->next_name++);
        taken = gt_map_get(&model->node_names, name, strlen(name), GT_NONE) != GT_NONE;
    }
    return gt_map_set(&model->node_names, name, strlen(name), 1) ? name : NULL;
}

gantry_status gt_model_add_constant(gt_model *model, const gt_constant *constant, uint32_t *out_constant,
                                    gantry_error *err)
{
    *out_constant = model->constants.count;
    if (!gt_vec_push(model->allocator, &model->constants, *constant))
        return gt_graph_no_memory(err);
    model->constants.data[*out_constant].hashed = false; /* a copy of another one has other bytes */
    return GANTRY_OK;
}

/* NULL stays NULL; *inout_ok becomes false when out of memory. */
static const char *copy_text(gt_model *model, const char *text, bool *inout_ok)
{
    if (!text)
        return NULL;
    const char *copy = gt_arena_text(&model->arena, text, strlen(text));
    if (!copy)
        *inout_ok = false;
    return copy;
}

gantry_status gt_model_log_rewrite(gt_model *model, const char *rule, const char *node, const char *state,
                                   const char *guard, gantry_error *err)
{
    bool ok = true;
    gt_rewrite_record record = {.rule = copy_text(model, rule, &ok),
                                .node = copy_text(model, node, &ok),
                                .state = copy_text(model, state, &ok),
                                .guard = copy_text(model, guard, &ok)};
    if (!ok || !gt_vec_push(model->allocator, &model->rewrites, record))
        return gt_graph_no_memory(err);
    return GANTRY_OK;
}

gantry_status gt_model_note(gt_model *model, const char *code, const char *node, gantry_error *err,
                            const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = gt_arena_alloc(&model->arena, (size_t)(length < 0 ? 0 : length) + 1);
    if (text && length >= 0)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    bool ok = text != NULL;
    gt_note note = {copy_text(model, code, &ok), copy_text(model, node, &ok), text};
    if (!ok || !gt_vec_push(model->allocator, &model->notes, note))
        return gt_graph_no_memory(err);
    return GANTRY_OK;
}
