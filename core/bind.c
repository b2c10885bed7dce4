/* Binding: evaluates the model's expressions for one set of symbol values, asks every program for these
 * shapes, and builds the plan. */
#include "bind_parts.h"

#include "answer.h"
#include "base/clock.h"

gantry_status gt_env_reserve(gt_allocator *allocator, gt_env *env, uint32_t count, gantry_error *err)
{
    if (count <= env->count)
        return GANTRY_OK;
    gt_scalar *values =
        gt_resize(allocator, env->values, env->count * sizeof *values, count * sizeof *values);
    if (values)
        env->values = values;
    uint8_t *known = gt_resize(allocator, env->known, env->count, count);
    if (known)
        env->known = known;
    if (!values || !known)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    memset(env->known + env->count, 0, count - env->count);
    env->count = count;
    return GANTRY_OK;
}

void gt_env_free(gt_allocator *allocator, gt_env *env)
{
    gt_free(allocator, env->values);
    gt_free(allocator, env->known);
    *env = (gt_env){0};
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static gantry_status evaluate(gantry_session *session, gt_env *env, gt_evaluation *out_eval,
                              gantry_error *err)
{
    const gt_exprs *exprs = &session->model->exprs;
    uint32_t count = exprs->nodes.count;
    GT_TRY(gt_env_reserve(session->allocator, env, exprs->symbols.count, err));
    if (count > session->scratch_count) {
        uint32_t room = count + count / 4 + 64;
        gt_free(session->allocator, session->scratch_values);
        gt_free(session->allocator, session->scratch_known);
        session->scratch_count = 0;
        session->scratch_values = GT_NEW_ARRAY(session->allocator, gt_scalar, room);
        session->scratch_known = GT_NEW_ARRAY(session->allocator, uint8_t, room);
        if (!session->scratch_values || !session->scratch_known)
            return gt_out_of_memory(err, GANTRY_STAGE_RUN);
        session->scratch_count = room;
    }
    gt_expr failed;
    gt_exprs_evaluate(exprs, 0, count, env->values, env->known, session->scratch_values,
                      session->scratch_known, &failed);
    *out_eval = (gt_evaluation){exprs, session->scratch_values, session->scratch_known};
    return GANTRY_OK;
}

/* ---- programs at these shapes ---------------------------------------------------------------- */

static gantry_status record_shaped(gt_plan *plan, gt_shaped_slot *slot,
                                   const struct gantry_recorder *recorder, gantry_error *err)
{
    slot->kernel_count = recorder->kernels.count;
    slot->fusion_count = recorder->fusions.count;
    slot->kernels = gt_arena_copy(&plan->arena, recorder->kernels.data,
                                  recorder->kernels.count * sizeof *recorder->kernels.data);
    slot->fusions = gt_arena_copy(&plan->arena, recorder->fusions.data,
                                  recorder->fusions.count * sizeof *recorder->fusions.data);
    slot->phase_count = recorder->phases.count;
    slot->phases = gt_arena_copy(&plan->arena, recorder->phases.data,
                                 recorder->phases.count * sizeof *recorder->phases.data);
    return slot->kernels && slot->fusions && slot->phases ? GANTRY_OK
                                                          : gt_out_of_memory(err, GANTRY_STAGE_RUN);
}

static bool is_of(const gt_partition *partition, uint32_t node)
{
    for (uint32_t k = 0; k < partition->node_count; k++)
        if (partition->nodes[k] == node)
            return true;
    return false;
}

/* Only nodes of the partition can be taken from the provider: a refusal without any would come again and
 * again. */
static gantry_status check_refusal(const gt_partition *partition, const char *provider,
                                   gantry_shaped_info *info, gantry_error *err)
{
    const uint32_t most = sizeof info->refused_nodes / sizeof *info->refused_nodes,
                   given = info->refused_count;
    info->refused_count = 0;
    for (uint32_t k = 0; k < given && k < most; k++)
        if (is_of(partition, info->refused_nodes[k]))
            info->refused_nodes[info->refused_count++] = info->refused_nodes[k];
    return info->refused_count
               ? GANTRY_OK
               : gt_provider_wrong(err, GANTRY_STAGE_RUN, provider, "reshape",
                                   "provider %s: reshape refuses %u nodes, none of which is in the partition",
                                   provider, given);
}

static gantry_status check_shaped(const gt_shaped_slot *slot, const char *provider, gantry_error *err)
{
    if (slot->info.workspace_bytes <= GT_MOST_BYTES)
        return GANTRY_OK;
    return gt_provider_wrong(err, GANTRY_STAGE_RUN, provider, "reshape",
                             "provider %s: reshape asks for a workspace of %zu bytes", provider,
                             slot->info.workspace_bytes);
}

static gantry_status reshape_partition(gt_binder *b, uint32_t index)
{
    gantry_session *session = b->variant->session;
    const gt_partition *partition = &b->variant->placement->partitions[index];
    const gt_program *program = &b->variant->programs[index];
    const gantry_graph_view *view = &program->view.view;
    gantry_shape *shapes = GT_ARENA_ARRAY(&b->scratch, gantry_shape, view->value_count);
    const void **host_values = GT_ARENA_ARRAY(&b->scratch, const void *, view->value_count);
    if (!shapes || !host_values)
        return gt_out_of_memory(b->err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < view->value_count; k++) {
        const gt_plan_shape *shape = &b->plan->shapes[program->view.value_ids[k]];
        shapes[k] = (gantry_shape){shape->rank, shape->dims};
        host_values[k] = b->bind_data[program->view.value_ids[k]];
    }
    struct gantry_recorder recorder = {.arena = &b->plan->arena};
    gt_map_init(&recorder.texts, session->allocator);
    gantry_reshape_args args = {sizeof args, shapes, host_values,
                                gt_constants_of((struct gt_model *)session->model), &recorder};
    gt_shaped_slot *slot = &b->plan->shaped[b->plan->shaped_count];
    *slot = (gt_shaped_slot){.partition = index};
    GT_ROOMY(gantry_shaped_info) filled = {.value.struct_bytes = sizeof slot->info};
    gt_provider_entry *entry = session->providers[partition->provider].entry;
    const gantry_provider *table = entry->table;
    bool serial = gt_provider_is_serial(entry);
    if (serial)
        gt_provider_lock(entry);
    gt_error_clear(b->err);
    uint64_t begin = gt_now_ns();
    gantry_status status =
        table->reshape(table->self, program->program, &args, &slot->shaped, &filled.value, b->err);
    slot->info = filled.value;
    slot->reshape_ns = (double)(gt_now_ns() - begin);
    if (serial)
        gt_provider_unlock(entry);
    gt_session_charge_program(session, table, &b->variant->programs[index]);
    b->provider_ns += slot->reshape_ns;
    if (!session->created)
        session->providers[partition->provider].bind_ns += slot->reshape_ns;
    const char *name = session->providers[partition->provider].name;
    status = gt_provider_answer(name, "reshape", GANTRY_STAGE_RUN, status, slot->shaped, b->err);
    if (status == GANTRY_UNSUPPORTED && slot->info.refused_count) {
        gantry_status fits = check_refusal(partition, name, &slot->info, b->err);
        status = fits == GANTRY_OK ? status : fits;
        b->refused_partition = fits == GANTRY_OK ? index : GT_NONE;
        b->refusal = slot->info;
    }
    if (status == GANTRY_OK) {
        b->plan->shaped_count++;
        status = check_shaped(slot, name, b->err);
    }
    if (status == GANTRY_OK)
        status = record_shaped(b->plan, slot, &recorder, b->err);
    gt_recorder_free(&recorder);
    gt_map_free(&recorder.texts);
    return status;
}

/* ---- the plan -------------------------------------------------------------------------------- */

void gt_plan_destroy(gt_plan **inout_plan)
{
    gt_plan *plan = *inout_plan;
    if (!plan)
        return;
    gantry_session *session = plan->variant->session;
    for (uint32_t k = 0; k < plan->shaped_count; k++) {
        const gt_partition *partition = &plan->variant->placement->partitions[plan->shaped[k].partition];
        const gantry_provider *table = session->providers[partition->provider].entry->table;
        table->shaped_destroy(table->self, plan->shaped[k].shaped);
        gt_session_charge_program(session, table, &plan->variant->programs[plan->shaped[k].partition]);
    }
    gt_arena_clear(&plan->arena);
    gt_free(session->allocator, plan);
    *inout_plan = NULL;
}

/* The numeric check computes nodes that read them. */
static gantry_status keep_known(gt_binder *b)
{
    gt_plan *plan = b->plan;
    plan->known_data = GT_ARENA_ARRAY(&plan->arena, const void *, plan->value_count + 1);
    for (uint32_t id = 0; plan->known_data && id < plan->value_count; id++) {
        const gt_value *value = b->variant->graph->values.data[id];
        if (!b->bind_data[id])
            continue;
        plan->known_data[id] = gt_arena_copy(&plan->arena, b->bind_data[id],
                                             gantry_dtype_bytes(value->dtype, value->element_count));
        if (!plan->known_data[id])
            return gt_out_of_memory(b->err, GANTRY_STAGE_RUN);
    }
    return plan->known_data ? GANTRY_OK : gt_out_of_memory(b->err, GANTRY_STAGE_RUN);
}

/* A value that nobody computes any more. */
static bool is_gone(const gt_graph *graph, const gt_value *value)
{
    return value->producer != GT_NONE && graph->nodes.data[value->producer]->removed;
}

static gantry_status fill_plan(gt_binder *b)
{
    gt_plan *plan = b->plan;
    uint32_t count = b->variant->graph->values.count;
    plan->value_count = count;
    plan->shapes = GT_ARENA_ARRAY(&plan->arena, gt_plan_shape, count);
    plan->shaped = GT_ARENA_ARRAY(&plan->arena, gt_shaped_slot, b->segment->partition_count + 1);
    b->bind_data = GT_ARENA_ARRAY(&b->scratch, const void *, count);
    if (!plan->shapes || !plan->shaped || !b->bind_data)
        return gt_out_of_memory(b->err, GANTRY_STAGE_RUN);
    for (uint32_t id = 0; id < count; id++) {
        if (is_gone(b->variant->graph, b->variant->graph->values.data[id]))
            continue;
        GT_TRY(gt_bind_shape(b, id));
        GT_TRY(gt_bind_elements(b, id));
    }
    GT_TRY(gt_bind_check_sizes(b));
    for (uint32_t p = b->segment->first_partition;
         p < b->segment->first_partition + b->segment->partition_count; p++)
        if (!b->variant->placement->partitions[p].control)
            GT_TRY(reshape_partition(b, p));
    if (b->variant->session->options.numeric_check)
        GT_TRY(keep_known(b));
    return gt_plan_build(plan, b->bind_data, b->err);
}

static bool has_mapped_file(const gt_model *model)
{
    for (uint32_t k = 0; k < model->files.count; k++)
        if (model->files.data[k].mapped)
            return true;
    return false;
}

gantry_status gt_plan_make(gt_variant *variant, uint32_t segment, gt_env *env, const int64_t *key,
                           uint64_t hash, gt_plan **out_plan, bool *out_refused, gantry_error *err)
{
    gantry_session *session = variant->session;
    uint64_t begin = gt_now_ns();
    gt_binder b = {.variant = variant,
                   .segment = &variant->segments[segment],
                   .negative = GT_NONE,
                   .refused_partition = GT_NONE,
                   .err = err};
    gt_plan *plan = GT_NEW(session->allocator, gt_plan);
    if (!plan)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    gt_arena_init(&plan->arena, session->allocator);
    plan->variant = variant;
    plan->segment = segment;
    plan->key_hash = hash;
    plan->key = gt_arena_copy(&plan->arena, key, b.segment->symbol_count * sizeof *key);
    b.plan = plan;
    gt_arena_init(&b.scratch, session->allocator);
    gt_map_init(&b.extents, session->allocator);
    gantry_status status =
        plan->key ? evaluate(session, env, &b.eval, err) : gt_out_of_memory(err, GANTRY_STAGE_RUN);
    if (status == GANTRY_OK)
        status = fill_plan(&b);
    gt_arena_clear(&b.scratch);
    gt_map_free(&b.extents);
    if (status != GANTRY_OK) {
        gt_plan_destroy(&plan);
        /* Only where nothing ran yet can the graph be placed anew; the last provider's refusal stands. */
        if (b.refused_partition != GT_NONE && segment == 0 &&
            gt_variant_has_alternative(variant, &variant->placement->partitions[b.refused_partition])) {
            *out_refused = true;
            return gt_variant_refuse(variant, b.refused_partition, &b.refusal, key, err);
        }
        return status;
    }
    /* Programs may have read weights for the first time. */
    if (session->created && has_mapped_file(session->model))
        status = gt_session_own_constants(session, err);
    if (status == GANTRY_OK && session->created)
        status = gt_session_check_held(session, err);
    if (status != GANTRY_OK) {
        gt_plan_destroy(&plan);
        return status;
    }
    plan->number = ++session->plans_made;
    plan->bind_ns = (double)(gt_now_ns() - begin);
    plan->core_bind_ns = plan->bind_ns - b.provider_ns;
    *out_plan = plan;
    return GANTRY_OK;
}

/* ---- choices --------------------------------------------------------------------------------- */

static gantry_status choose_branches(gt_variant *variant, gt_env *env, gt_variant **out_child,
                                     gantry_error *err)
{
    gantry_session *session = variant->session;
    gt_evaluation eval;
    GT_TRY(evaluate(session, env, &eval, err));
    uint8_t *branches = GT_NEW_ARRAY(session->allocator, uint8_t, variant->choice_count);
    if (!branches)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    gantry_status status = GANTRY_OK;
    for (uint32_t k = 0; k < variant->choice_count && status == GANTRY_OK; k++) {
        gt_expr e = variant->choices[k].condition;
        if (eval.known[e])
            branches[k] = eval.values[e].i != 0;
        else
            status = gt_fail(err, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN,
                             variant->graph->nodes.data[variant->choices[k].node]->name,
                             "the condition of If %s has no value for these inputs",
                             variant->graph->nodes.data[variant->choices[k].node]->name);
    }
    if (status == GANTRY_OK)
        status = gt_variant_choose(variant, branches, out_child, err);
    gt_free(session->allocator, branches);
    return status;
}

gantry_status gt_bind_variant(gt_variant *variant, gt_env *env, gt_variant **out_leaf, gantry_error *err)
{
    gantry_session *session = variant->session;
    gantry_status status = GANTRY_OK;
    pthread_mutex_lock(&session->lock);
    while (status == GANTRY_OK && variant->choice_count)
        status = choose_branches(variant, env, &variant, err);
    pthread_mutex_unlock(&session->lock);
    *out_leaf = status == GANTRY_OK ? variant : NULL;
    if (status != GANTRY_OK && err)
        err->stage = GANTRY_STAGE_RUN;
    return status;
}
