/* Binding: evaluates the model's expressions for one set of symbol values, asks every program for these
 * shapes, and builds the plan. */
#include "bind.h"

#include "answer.h"
#include "base/clock.h"
#include "base/half.h"
#include "graph/infer.h"

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

/* A symbol of data that is not known when the segment is bound (its bound stands in for it) has this key. */
#define KEY_UNKNOWN INT64_MIN

static int64_t key_of(const gt_env *env, uint32_t symbol)
{
    return symbol < env->count && env->known[symbol] ? env->values[symbol].i : KEY_UNKNOWN;
}

bool gt_plan_matches(const gt_plan *plan, const gt_segment *segment, const gt_env *env)
{
    for (uint32_t k = 0; k < segment->symbol_count; k++)
        if (plan->key[k] != key_of(env, segment->symbols[k]))
            return false;
    return true;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* Values of all expressions of the model under one env; in the session's scratch, so one at a time, under the
 * lock. */
typedef struct evaluation {
    const gt_exprs *exprs;
    gt_scalar *values;
    uint8_t *known;
} evaluation;

static gantry_status evaluate(gantry_session *session, gt_env *env, evaluation *out_eval, gantry_error *err)
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
    *out_eval = (evaluation){exprs, session->scratch_values, session->scratch_known};
    return GANTRY_OK;
}

/* The deepest expression below e that has no value though its operands do; e itself when a symbol below it is
 * not known. */
static gt_expr find_failure(const evaluation *eval, gt_expr e)
{
    for (;;) {
        const gt_expr_node *node = &eval->exprs->nodes.data[e];
        if (node->kind == GT_EXPR_SYMBOL || node->kind == GT_EXPR_CONST || node->kind == GT_EXPR_REAL_CONST)
            return e;
        gt_expr below = GT_EXPR_UNKNOWN;
        if (node->kind == GT_EXPR_SELECT && eval->known[node->a]) {
            e = eval->values[node->a].i ? node->b : node->c;
            continue;
        }
        const gt_expr operands[3] = {node->a, node->b, node->kind == GT_EXPR_SELECT ? node->c : node->a};
        bool unary = node->kind == GT_EXPR_NOT || node->kind >= GT_EXPR_TO_REAL;
        for (int k = 0; k < 3; k++)
            if (!(unary && k == 1 && node->kind != GT_EXPR_REAL_DIV) && !eval->known[operands[k]] &&
                below == GT_EXPR_UNKNOWN)
                below = operands[k];
        if (below == GT_EXPR_UNKNOWN)
            return e;
        e = below;
    }
}

/* ---- shapes ---------------------------------------------------------------------------------- */

typedef struct binder {
    gt_variant *variant;
    const gt_segment *segment;
    gt_plan *plan;
    evaluation eval;
    const void **bind_data; /* by value id */
    gt_arena scratch;       /* what only the making needs */
    gt_map extents;         /* lists of extents in the plan's arena: many values share one */
    double provider_ns;
    uint32_t negative;          /* a value with an extent below 0, GT_NONE: none */
    uint32_t refused_partition; /* GT_NONE: none */
    gantry_shaped_info refusal;
    gantry_error *err;
} binder;

/* What a loop piles up has memory for what there is, not for the trips that it might take: its bound may be
 * the largest number there is. */
static bool grows_while_made(const gt_graph *graph, const gt_value *value)
{
    const gt_node *node = gt_graph_node(graph, value->producer);
    return node && node->op && (node->op->flags & GT_OP_CONTROL);
}

static gantry_status keep_extents(binder *b, const int64_t *dims, gt_plan_shape *shape)
{
    size_t bytes = shape->rank * sizeof *dims;
    const gt_map_slot *known =
        b->extents.count ? gt_map_probe(&b->extents, dims, bytes, XXH3_64bits(dims, bytes)) : NULL;
    if (known && known->key) {
        shape->dims = (int64_t *)(uintptr_t)known->key;
        return GANTRY_OK;
    }
    shape->dims = gt_arena_copy(&b->plan->arena, dims, bytes);
    return shape->dims && gt_map_set(&b->extents, shape->dims, bytes, 0)
               ? GANTRY_OK
               : gt_out_of_memory(b->err, GANTRY_STAGE_RUN);
}

/* A value that nobody computes any more. */
static bool is_gone(const gt_graph *graph, const gt_value *value)
{
    return value->producer != GT_NONE && graph->nodes.data[value->producer]->removed;
}

static gantry_status bind_shape(binder *b, uint32_t id)
{
    const gt_value *value = b->variant->graph->values.data[id];
    gt_plan_shape *shape = &b->plan->shapes[id];
    if (value->rank < 0) {
        shape->dynamic = true;
        return GANTRY_OK;
    }
    int64_t dims[GANTRY_MAX_RANK];
    for (int32_t d = 0; d < value->rank; d++) {
        gt_expr e = value->dims[d];
        if (e != GT_EXPR_UNKNOWN && b->eval.known[e]) {
            dims[d] = b->eval.values[e].i;
        } else {
            gt_expr bound = GT_EXPR_UNKNOWN;
            if (!grows_while_made(b->variant->graph, value) && e != GT_EXPR_UNKNOWN &&
                b->eval.exprs->nodes.data[e].kind == GT_EXPR_SYMBOL)
                bound = b->eval.exprs->symbols.data[b->eval.exprs->nodes.data[e].a].bound;
            if (bound == GT_EXPR_UNKNOWN || !b->eval.known[bound]) {
                shape->dynamic = true;
                return GANTRY_OK;
            }
            shape->bounded = true;
            dims[d] = b->eval.values[bound].i;
        }
        if (dims[d] < 0) {
            b->negative = id;
            shape->dynamic = true;
            return GANTRY_OK;
        }
    }
    shape->rank = (uint32_t)value->rank;
    return keep_extents(b, dims, shape);
}

/* Says why a value that a program needs has no size. */
static gantry_status explain_size(binder *b, const gt_node *node, uint32_t id)
{
    const gt_value *value = b->variant->graph->values.data[id];
    for (int32_t d = 0; d < value->rank; d++) {
        gt_expr e = value->dims[d];
        if (e == GT_EXPR_UNKNOWN || b->eval.known[e])
            continue;
        gt_expr failed = find_failure(&b->eval, e);
        if (b->eval.exprs->nodes.data[failed].kind != GT_EXPR_SYMBOL)
            return gt_infer_explain_extent(b->variant->graph, id, d, failed, b->eval.values, b->eval.known,
                                           b->err);
    }
    return gt_fail(b->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, node->name,
                   "the shape of %s, which node %s (%s) uses, can't be known before it is computed; its rank "
                   "or an extent depends on data",
                   value->name, node->name, node->op_type);
}

/* What operators demand and these inputs break. With `below`: also what can't be told because an expression
 * below it failed, which is for when nothing else explains that. */
static gantry_status check_rules(binder *b, bool below)
{
    const gt_graph *graph = b->variant->graph;
    for (uint32_t k = 0; k < graph->check_count; k++) {
        gt_expr e = graph->checks[k].expr;
        if (b->eval.known[e])
            continue;
        gt_expr failed = find_failure(&b->eval, e);
        bool ours = failed == e || (below && gt_expr_segment(b->eval.exprs, e) <= b->segment->number);
        if (ours && b->eval.exprs->nodes.data[failed].kind != GT_EXPR_SYMBOL)
            return gt_infer_explain_check(graph, k, failed, b->eval.values, b->eval.known, b->err);
    }
    return GANTRY_OK;
}

static int32_t negative_axis(const binder *b, uint32_t id)
{
    const gt_value *value = gt_graph_value(b->variant->graph, id);
    for (int32_t d = 0; value && d < value->rank; d++) {
        gt_expr e = value->dims[d];
        if (e != GT_EXPR_UNKNOWN && b->eval.known[e] && b->eval.values[e].i < 0)
            return d;
    }
    return -1;
}

/* Names the first node that makes an extent below 0. */
static gantry_status explain_negative(binder *b)
{
    const gt_graph *graph = b->variant->graph;
    uint32_t id = GT_NONE;
    for (uint32_t n = 0; n < graph->order.count && id == GT_NONE; n++) {
        const gt_node *node = graph->nodes.data[graph->order.data[n]];
        for (uint32_t k = 0; k < node->output_count && id == GT_NONE; k++)
            if (negative_axis(b, node->outputs[k]) >= 0)
                id = node->outputs[k];
    }
    id = id == GT_NONE ? b->negative : id;
    int32_t axis = negative_axis(b, id);
    return gt_infer_explain_extent(graph, id, axis < 0 ? 0 : axis, GT_EXPR_UNKNOWN, b->eval.values,
                                   b->eval.known, b->err);
}

static gantry_status check_sizes(binder *b)
{
    const gt_graph *graph = b->variant->graph;
    GT_TRY(check_rules(b, false));
    if (b->negative != GT_NONE)
        return explain_negative(b);
    for (uint32_t p = b->segment->first_partition;
         p < b->segment->first_partition + b->segment->partition_count; p++) {
        const gt_partition *partition = &b->variant->placement->partitions[p];
        for (uint32_t n = 0; n < partition->node_count; n++) {
            const gt_node *node = graph->nodes.data[partition->nodes[n]];
            for (uint32_t k = 0; k < node->input_count; k++)
                if (node->inputs[k] != GT_NONE && b->plan->shapes[node->inputs[k]].dynamic)
                    return explain_size(b, node, node->inputs[k]);
            for (uint32_t k = 0; k < node->output_count && !partition->control; k++)
                if (node->outputs[k] != GT_NONE && b->plan->shapes[node->outputs[k]].dynamic)
                    return explain_size(b, node, node->outputs[k]);
        }
    }
    return check_rules(b, true);
}

/* ---- elements -------------------------------------------------------------------------------- */

static void store_element(gantry_dtype dtype, void *data, uint32_t k, bool real, gt_scalar v)
{
    /* A real where integers are wanted is a whole one; of other dtypes it may be anything. */
    bool fits = v.r > -0x1p63 && v.r < 0x1p63;
    int64_t i = !real ? v.i : fits ? (int64_t)v.r : INT64_MIN;
    double r = real ? v.r : (double)v.i;
    switch (dtype) {
    case GANTRY_INT64:
    case GANTRY_UINT64:
        ((int64_t *)data)[k] = i;
        break;
    case GANTRY_INT32:
    case GANTRY_UINT32:
        ((int32_t *)data)[k] = (int32_t)i;
        break;
    case GANTRY_INT16:
    case GANTRY_UINT16:
        ((int16_t *)data)[k] = (int16_t)i;
        break;
    case GANTRY_INT8:
    case GANTRY_UINT8:
        ((int8_t *)data)[k] = (int8_t)i;
        break;
    case GANTRY_BOOL:
        ((uint8_t *)data)[k] = real ? r != 0 : i != 0;
        break;
    case GANTRY_FLOAT16:
        ((uint16_t *)data)[k] = gt_half_bits(r);
        break;
    case GANTRY_FLOAT32:
        ((float *)data)[k] = (float)r;
        break;
    case GANTRY_FLOAT64:
        ((double *)data)[k] = r;
        break;
    default:
        break;
    }
}

static bool can_store(gantry_dtype dtype)
{
    return (dtype >= GANTRY_FLOAT32 && dtype <= GANTRY_INT64) || dtype == GANTRY_BOOL ||
           dtype == GANTRY_FLOAT64 || dtype == GANTRY_FLOAT16 || dtype == GANTRY_UINT32 ||
           dtype == GANTRY_UINT64;
}

/* Elements of a value that are all known now, dense in the value's type. */
static gantry_status bind_elements(binder *b, uint32_t id)
{
    const gt_value *value = b->variant->graph->values.data[id];
    if (!value->elements || value->constant != GT_NONE || !can_store(value->dtype))
        return GANTRY_OK;
    for (uint32_t k = 0; k < value->element_count; k++)
        if (value->elements[k] == GT_EXPR_UNKNOWN || !b->eval.known[value->elements[k]])
            return GANTRY_OK;
    void *data = gt_arena_alloc(&b->scratch, gantry_dtype_bytes(value->dtype, value->element_count) + 16);
    if (!data)
        return gt_out_of_memory(b->err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < value->element_count; k++)
        store_element(value->dtype, data, k, gt_expr_is_real(b->eval.exprs, value->elements[k]),
                      b->eval.values[value->elements[k]]);
    b->bind_data[id] = data;
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

static gantry_status reshape_partition(binder *b, uint32_t index)
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
static gantry_status keep_known(binder *b)
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

static gantry_status fill_plan(binder *b)
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
        GT_TRY(bind_shape(b, id));
        GT_TRY(bind_elements(b, id));
    }
    GT_TRY(check_sizes(b));
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

static gantry_status make_plan(gt_variant *variant, uint32_t segment, gt_env *env, const int64_t *key,
                               uint64_t hash, gt_plan **out_plan, bool *out_refused, gantry_error *err)
{
    gantry_session *session = variant->session;
    uint64_t begin = gt_now_ns();
    binder b = {.variant = variant,
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

/* ---- the cache ------------------------------------------------------------------------------- */

static void drop_plan(gt_variant *variant, uint32_t index)
{
    gt_plan_destroy(&variant->plans.data[index]);
    variant->plans.data[index] = variant->plans.data[--variant->plans.count];
    variant->session->plan_count--;
}

/* The least recently used plan that no run holds, in this variant and below it. */
static void find_oldest(gt_variant *variant, gt_variant **inout_owner, uint32_t *inout_index,
                        uint64_t *inout_tick)
{
    for (uint32_t k = 0; k < variant->plans.count; k++)
        if (!variant->plans.data[k]->references && variant->plans.data[k]->last_used < *inout_tick) {
            *inout_owner = variant;
            *inout_index = k;
            *inout_tick = variant->plans.data[k]->last_used;
        }
    for (uint32_t k = 0; k < variant->refused.count; k++)
        find_oldest(variant->refused.data[k].alternate, inout_owner, inout_index, inout_tick);
    for (uint32_t k = 0; k < variant->children.count; k++)
        find_oldest(variant->children.data[k].variant, inout_owner, inout_index, inout_tick);
    for (uint32_t p = 0; variant->programs && p < variant->placement->partition_count; p++)
        for (int body = 0; body < 2; body++)
            if (variant->programs[p].bodies[body])
                find_oldest(variant->programs[p].bodies[body], inout_owner, inout_index, inout_tick);
}

static void trim_plans(gantry_session *session)
{
    while (session->plan_count > session->options.plan_cache) {
        gt_variant *owner = NULL;
        uint32_t index = 0;
        uint64_t tick = UINT64_MAX;
        find_oldest(session->root, &owner, &index, &tick);
        if (!owner)
            return;
        drop_plan(owner, index);
        session->plans_evicted++;
    }
}

void gt_plan_release(gantry_session *session, gt_plan **inout_plan)
{
    if (!*inout_plan)
        return;
    pthread_mutex_lock(&session->lock);
    (*inout_plan)->references--;
    trim_plans(session);
    pthread_mutex_unlock(&session->lock);
    *inout_plan = NULL;
}

/* Why there was no plan yet: the first symbol whose value differs from the plan used last. */
static void note_trigger(const gt_variant *variant, gt_plan *plan)
{
    const gt_plan *before = NULL;
    for (uint32_t k = 0; k < variant->plans.count; k++) {
        const gt_plan *other = variant->plans.data[k];
        if (other->segment == plan->segment && (!before || other->last_used > before->last_used))
            before = other;
    }
    plan->trigger = GT_NONE;
    const gt_segment *segment = &variant->segments[plan->segment];
    for (uint32_t k = 0; before && k < segment->symbol_count && plan->trigger == GT_NONE; k++)
        if (before->key[k] != plan->key[k]) {
            plan->trigger = k;
            plan->trigger_before = before->key[k];
        }
}

static gantry_status find_or_make(gt_variant *variant, uint32_t segment, gt_env *env, gt_plan **out_plan,
                                  bool *out_refused, bool *out_made, gantry_error *err)
{
    gantry_session *session = variant->session;
    const gt_segment *seg = &variant->segments[segment];
    int64_t few[64], *key = few;
    if (seg->symbol_count > 64 && !(key = GT_NEW_ARRAY(session->allocator, int64_t, seg->symbol_count)))
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < seg->symbol_count; k++)
        key[k] = key_of(env, seg->symbols[k]);
    uint64_t hash = XXH3_64bits(key, seg->symbol_count * sizeof *key);
    gantry_status status = GANTRY_OK;
    for (uint32_t k = 0; k < variant->plans.count && !*out_plan; k++) {
        gt_plan *plan = variant->plans.data[k];
        if (plan->segment == segment && plan->key_hash == hash && gt_plan_matches(plan, seg, env))
            *out_plan = plan;
    }
    *out_made = !*out_plan;
    if (*out_made) {
        status = make_plan(variant, segment, env, key, hash, out_plan, out_refused, err);
        if (status == GANTRY_OK && *out_plan)
            note_trigger(variant, *out_plan);
        if (status == GANTRY_OK && *out_plan &&
            !gt_vec_push(session->allocator, &variant->plans, *out_plan)) {
            gt_plan_destroy(out_plan);
            status = gt_out_of_memory(err, GANTRY_STAGE_RUN);
        }
        session->plan_count += *out_plan != NULL;
    }
    if (key != few)
        gt_free(session->allocator, key);
    return status;
}

gantry_status gt_bind_segment(gt_variant *variant, uint32_t segment, gt_env *env, gt_plan **out_plan,
                              bool *out_refused, bool *out_made, gantry_error *err)
{
    gantry_session *session = variant->session;
    *out_plan = NULL;
    *out_refused = false;
    pthread_mutex_lock(&session->lock);
    gantry_status status = find_or_make(variant, segment, env, out_plan, out_refused, out_made, err);
    if (status == GANTRY_OK && *out_plan) {
        (*out_plan)->references++;
        (*out_plan)->last_used = ++session->tick;
        trim_plans(session);
    }
    pthread_mutex_unlock(&session->lock);
    return status;
}

/* ---- refused shapes -------------------------------------------------------------------------- */

gt_variant *gt_bind_refused(gt_variant *variant, const gt_env *env)
{
    /* An alternate may refuse the same shape again, for the next provider. */
    for (bool found = true; found;) {
        found = false;
        if (!atomic_load(&variant->refused_count))
            return variant;
        pthread_mutex_lock(&variant->session->lock);
        for (uint32_t k = 0; k < variant->refused.count && !found; k++) {
            const gt_refused_shape *shape = &variant->refused.data[k];
            found = true;
            for (uint32_t s = 0; s < variant->segments[0].symbol_count; s++)
                found = found && shape->key[s] == key_of(env, variant->segments[0].symbols[s]);
            if (found) {
                pthread_mutex_unlock(&variant->session->lock);
                variant = shape->alternate;
                break;
            }
        }
        if (!found)
            pthread_mutex_unlock(&variant->session->lock);
    }
    return variant;
}

/* ---- choices --------------------------------------------------------------------------------- */

static gantry_status choose_branches(gt_variant *variant, gt_env *env, gt_variant **out_child,
                                     gantry_error *err)
{
    gantry_session *session = variant->session;
    evaluation eval;
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
