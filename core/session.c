/* Sessions: reading, simplifying, placing and compiling a model, with the time of each phase; and what a
 * model says about itself. */
#include "bind.h"

#include "base/clock.h"
#include "graph/infer.h"
#include "graph/onnx_write.h"

static void add_phase(gantry_session *session, const char *name, double ns)
{
    /* A phase that can't be noted only makes the remainder larger. */
    (void)gt_vec_push(session->allocator, &session->phases, ((gt_phase){name, ns}));
}

void gt_session_phase(gantry_session *session, const char *name, uint64_t since_ns)
{
    add_phase(session, name, (double)(gt_now_ns() - since_ns));
}

/* ---- folding --------------------------------------------------------------------------------- */

/* One node on constants, with the CPU's kernels: the only interpreter there is. */
static gantry_status evaluate(void *self, const gt_graph *graph, uint32_t node, const gantry_tensor *inputs,
                              gantry_tensor *outputs, gt_arena *arena, gantry_error *err)
{
    gantry_session *session = self;
    uint64_t begin = gt_now_ns();
    gt_provider_entry *entry = gt_runtime_provider_at(session->runtime, session->evaluator);
    const gt_node *n = graph->nodes.data[node];
    if (!entry->table || !entry->table->evaluate)
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_LOAD, n->name,
                       "the CPU provider can't evaluate");
    gt_arena scratch;
    gt_arena_init(&scratch, session->allocator);
    gt_view view;
    gantry_status status = gt_view_nodes(&scratch, graph, 1, &node, 0, NULL, 0, NULL, &view, err);
    for (uint32_t k = 0; k < n->output_count && status == GANTRY_OK; k++) {
        gantry_tensor *out = &outputs[k];
        if (!out->dtype || (out->rank && !out->dims)) {
            status = gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_LOAD, n->name,
                             "the shape of output %u is not known", k);
            break;
        }
        uint64_t count = 1;
        for (uint32_t d = 0; d < out->rank; d++)
            count *= (uint64_t)out->dims[d];
        out->size_bytes = gantry_dtype_bytes(out->dtype, count);
        out->buffer = (gantry_buffer){gt_arena_alloc(arena, out->size_bytes), 0};
        if (!out->buffer.handle)
            status = gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    }
    if (status == GANTRY_OK)
        status = entry->table->evaluate(entry->table->self, &view.view, 0, inputs, outputs, err);
    gt_arena_clear(&scratch);
    session->fold_ns += (double)(gt_now_ns() - begin);
    return status;
}

/* Rules whose result has no standard operator in the model's opset would only move names around. */
static gantry_status disable_for_file(gantry_session *session, gantry_error *err)
{
    int64_t opset = gt_model_opset(session->model);
    uint32_t count;
    const gt_rewrite_rule *rules = gt_rewrite_table(&count);
    for (uint32_t k = 0; k < count; k++)
        if (gt_write_rule_opset(rules[k].name) > opset &&
            !gt_vec_push(session->allocator, &session->options.disabled_rewrites, rules[k].name))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

gantry_status gt_session_simplify(gantry_session *session, gt_graph *graph, gantry_error *err)
{
    if (session->for_file)
        GT_TRY(disable_for_file(session, err));
    gt_rewrite_options options = {.enabled = session->options.rewrites,
                                  .fold = session->options.fold,
                                  .fold_limit_bytes = session->options.fold_limit_bytes,
                                  .disabled = session->options.disabled_rewrites.data,
                                  .disabled_count = session->options.disabled_rewrites.count,
                                  .for_file = session->for_file != NULL,
                                  .growth_limit_bytes =
                                      session->for_file ? session->for_file->growth_limit_bytes : 0,
                                  .evaluate = evaluate,
                                  .evaluate_self = session};
    return gt_simplify(graph, &options, err);
}

/* ---- providers ------------------------------------------------------------------------------- */

static uint32_t session_domain(gantry_session *session, gt_domain_entry *entry)
{
    for (uint32_t k = 0; k < session->domain_count; k++)
        if (session->domains[k].entry == entry)
            return k;
    session->domains[session->domain_count] = (gt_session_domain){.name = entry->info.name, .entry = entry};
    return session->domain_count++;
}

/* A session counts once as the user of a plugin: with the first of its providers. */
static bool is_counted(const gantry_session *session, uint32_t index)
{
    const gt_session_provider *provider = &session->providers[index];
    for (uint32_t k = 0; k < index; k++)
        if (session->providers[k].entry && session->providers[k].plugin == provider->plugin)
            return true;
    return false;
}

/* A device that is gone stays so: its plugin has to be loaded anew. */
static bool is_lost(const gantry_session *session, const gt_provider_entry *entry)
{
    const gantry_domain *table = gt_runtime_domain_at(session->runtime, entry->domain)->table;
    return table && table->lost && table->lost(table->self);
}

/* Acquires the provider: its library stays loaded until the session is gone. */
static gantry_status find_provider(gantry_session *session, uint32_t index, gantry_error *err)
{
    gt_provider_use use;
    gt_session_provider *provider = &session->providers[index];
    const char *name = session->options.providers[index];
    gt_provider_entry *entry = gt_runtime_acquire(session->runtime, name, &use);
    if (entry && is_lost(session, entry)) {
        snprintf(use.reason, sizeof use.reason, "its device (%s) is lost; " GT_LOST_REMEDY,
                 entry->info.domain);
        gt_runtime_release(session->runtime, entry);
        entry = NULL;
    }
    const char *reason = gt_arena_text(&session->options.arena, use.reason, strlen(use.reason));
    *provider = (gt_session_provider){
        .name = name, .entry = entry, .row = use.row, .plugin = use.plugin, .reason = reason ? reason : ""};
    if (entry && is_counted(session, index))
        gt_runtime_release(session->runtime, entry);
    if (entry)
        provider->domain = session_domain(session, gt_runtime_domain_at(session->runtime, entry->domain));
    return reason ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

static void release_providers(gantry_session *session)
{
    for (uint32_t k = 0; k < session->provider_count; k++)
        if (session->providers[k].entry && !is_counted(session, k))
            gt_runtime_release(session->runtime, session->providers[k].entry);
}

static gantry_status fail_strict(const gt_session_provider *provider, gantry_error *err)
{
    gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "provider %s can't be used: %s", provider->name,
            provider->reason);
    if (err && err->struct_bytes >= sizeof *err)
        snprintf(err->provider, sizeof err->provider, "%s", provider->name);
    return GANTRY_PROVIDER;
}

static gantry_status find_providers(gantry_session *session, gantry_error *err)
{
    gantry_runtime *runtime = session->runtime;
    uint32_t count = session->options.provider_count;
    session->providers = GT_NEW_ARRAY(session->allocator, gt_session_provider, count + 1);
    session->domains = GT_NEW_ARRAY(session->allocator, gt_session_domain, count + 1);
    if (!session->providers || !session->domains)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    session_domain(session, gt_runtime_domain_at(runtime, GT_HOST_DOMAIN));
    for (uint32_t k = 0; k < count; k++) {
        session->provider_count = k + 1;
        GT_TRY(find_provider(session, k, err));
    }
    for (uint32_t k = 0; k < count && session->options.strict; k++)
        if (!session->providers[k].entry)
            return fail_strict(&session->providers[k], err);
    session->evaluator = runtime->cpu;
    gt_session_link_domains(session);
    return GANTRY_OK;
}

/* ---- constants ------------------------------------------------------------------------------- */

static void need_constant(const gt_graph *graph, uint32_t id, uint8_t *packed)
{
    const gt_value *value = gt_graph_value(graph, id);
    if (value && value->constant != GT_NONE)
        packed[value->constant] = 0;
}

/* Programs hold what they need of constants. Core itself reads defaults of inputs, constants that are
 * outputs, and what control nodes and their bodies read. */
static void need_constants(const gt_graph *graph, uint8_t *packed)
{
    for (uint32_t k = 0; k < graph->inputs.count; k++)
        need_constant(graph, graph->inputs.data[k], packed);
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        need_constant(graph, graph->outputs.data[k], packed);
    for (uint32_t k = 0; k < graph->nodes.count; k++) {
        const gt_node *node = graph->nodes.data[k];
        if (node->removed || !node->body_count)
            continue;
        for (uint32_t m = 0; m < node->input_count; m++)
            need_constant(graph, node->inputs[m], packed);
        for (uint32_t b = 0; b < node->body_count; b++)
            need_constants(node->bodies[b].graph, packed);
    }
}

/* Kernels read an input as aligned elements, which those of a file need not be. */
static gantry_status own_defaults(gantry_session *session, gantry_error *err)
{
    const gt_graph *graph = session->model->root;
    for (uint32_t k = 0; k < graph->inputs.count; k++) {
        const gt_value *value = graph->values.data[graph->inputs.data[k]];
        if (value->constant != GT_NONE)
            GT_TRY(gt_constant_own(session->model, value->constant, err));
    }
    return GANTRY_OK;
}

/* Leaves no constant behind that lies in a mapped file. What programs may still ask for is read again from
 * the file (which is then checked to be the same); a model from memory has no file, so everything in use is
 * copied. */
gantry_status gt_session_own_constants(gantry_session *session, gantry_error *err)
{
    gt_model *model = session->model;
    if (session->options.weights_mapped) {
        GT_TRY(own_defaults(session, err));
        gt_session_charge_constants(session);
        return GANTRY_OK;
    }
    uint32_t count = model->constants.count;
    uint8_t *packed = GT_NEW_ARRAY(session->allocator, uint8_t, count + 1);
    if (!packed)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    for (uint32_t k = 0; k < count; k++) {
        const gt_constant *constant = &model->constants.data[k];
        packed[k] = constant->origin == GT_CONSTANT_SCALED ||
                    (constant->origin == GT_CONSTANT_FILE && model->files.data[constant->file].fd >= 0);
    }
    need_constants(model->root, packed);
    gantry_status status = gt_model_own_constants(model, packed, err);
    gt_free(session->allocator, packed);
    if (status == GANTRY_OK)
        gt_session_charge_constants(session);
    return status;
}

/* A model without symbolic sizes is bound at once: weights are packed straight from the mapped file, and the
 * first run is like any other. One that needs too much memory says so when it runs, as those with symbolic
 * sizes do. */
static gantry_status bind_static(gantry_session *session, gantry_error *err)
{
    gt_variant *root = session->root;
    if (!root->compiled || root->segments[0].symbol_count)
        return GANTRY_OK;
    gt_env env = {0};
    gt_plan *plan = NULL;
    bool refused, made;
    gantry_error own = GANTRY_ERROR_INIT;
    gantry_status status = gt_bind_segment(root, 0, &env, &plan, &refused, &made, &own);
    gt_plan_release(session, &plan);
    gt_env_free(session->allocator, &env);
    if (status == GANTRY_OK || status == GANTRY_RESOURCE)
        return GANTRY_OK;
    if (err && err->struct_bytes >= sizeof *err)
        *err = own;
    return status;
}

/* ---- creation -------------------------------------------------------------------------------- */

typedef struct source {
    const char *path;
    const void *bytes;
    size_t size;
} source;

static gantry_status read_model(gantry_session *session, const source *from, gantry_error *err)
{
    uint64_t begin = gt_now_ns();
    GT_TRY(gt_operators_acquire(session->runtime, &session->own_ops, err));
    gt_read_limits limits = {.keep_notes = session->for_file != NULL, .own_ops = &session->own_ops};
    gantry_status status =
        from->path ? gt_onnx_read_file(session->allocator, from->path, &limits, &session->model, err)
                   : gt_onnx_read_memory(session->allocator, from->bytes, from->size, session->options.base,
                                         &limits, &session->model, err);
    gt_session_phase(session, "read", begin);
    return status;
}

static gantry_status bind_domain(gantry_session *session, const gt_pin *bind, gantry_error *err)
{
    const gt_graph *graph = session->model->root;
    uint32_t domain = GT_NONE;
    for (uint32_t d = 0; d < session->domain_count; d++)
        if (strcmp(session->domains[d].name, bind->provider) == 0)
            domain = d;
    if (domain == GT_NONE)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                       "bind.%s names the domain %s, which no provider of this session has", bind->node,
                       bind->provider);
    bool found = false;
    for (uint32_t k = 0; k < graph->inputs.count; k++)
        if (strcmp(graph->values.data[graph->inputs.data[k]]->name, bind->node) == 0) {
            session->input_domains[k] = domain;
            found = true;
        }
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        if (strcmp(graph->values.data[graph->outputs.data[k]]->name, bind->node) == 0) {
            session->output_domains[k] = domain;
            found = true;
        }
    return found ? GANTRY_OK
                 : gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                           "bind.%s names no input or output of the model", bind->node);
}

/* Where the caller keeps inputs and outputs: the host, or what bind.TENSOR says. */
static gantry_status bind_domains(gantry_session *session, gantry_error *err)
{
    const gt_graph *graph = session->model->root;
    session->input_domains = GT_NEW_ARRAY(session->allocator, uint32_t, graph->inputs.count + 1);
    session->output_domains = GT_NEW_ARRAY(session->allocator, uint32_t, graph->outputs.count + 1);
    if (!session->input_domains || !session->output_domains)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    for (uint32_t k = 0; k < session->options.binds.count; k++)
        GT_TRY(bind_domain(session, &session->options.binds.data[k], err));
    return GANTRY_OK;
}

static gantry_status simplify_model(gantry_session *session, gantry_error *err)
{
    gt_infer_options infer = {session->options.dims.data, session->options.dims.count};
    uint64_t begin = gt_now_ns();
    gantry_status status = gt_fix_shapes(session->model, infer.ranges, infer.range_count,
                                         session->options.shapes.data, session->options.shapes.count, err);
    if (status == GANTRY_OK)
        status = gt_infer_inputs(session->model, &infer, err);
    gt_session_phase(session, "infer_inputs", begin);
    GT_TRY(status);
    begin = gt_now_ns();
    status = gt_session_simplify(session, session->model->root, err);
    add_phase(session, "simplify", (double)(gt_now_ns() - begin) - session->fold_ns);
    add_phase(session, "fold", session->fold_ns);
    return status;
}

/* A body is placed while its control node is compiled. */
static double placing_ns(const gt_variant *variant)
{
    double ns = variant->place_ns;
    for (uint32_t p = 0; variant->programs && p < variant->placement->partition_count; p++)
        for (int b = 0; b < 2; b++)
            if (variant->programs[p].bodies[b])
                ns += placing_ns(variant->programs[p].bodies[b]);
    return ns;
}

static gantry_status compile_model(gantry_session *session, gantry_error *err)
{
    GT_TRY(gt_session_check_constants(session, err));
    GT_TRY(gt_variant_create(session, NULL, session->model->root, &session->root, err));
    uint64_t begin = gt_now_ns();
    gantry_status status = gt_variant_compile(session->root, err);
    double total = (double)(gt_now_ns() - begin), placing = placing_ns(session->root);
    add_phase(session, "place", placing);
    add_phase(session, "compile", total - placing);
    if (status != GANTRY_OK)
        return status;
    begin = gt_now_ns();
    status = bind_static(session, err);
    gt_session_phase(session, "bind", begin);
    if (status != GANTRY_OK)
        return status;
    begin = gt_now_ns();
    status = gt_session_own_constants(session, err);
    gt_session_phase(session, "own_constants", begin);
    return status == GANTRY_OK ? gt_session_check_held(session, err) : status;
}

static gantry_status build(gantry_session *session, const gantry_options *options, const source *from,
                           gantry_error *err)
{
    uint64_t begin = gt_now_ns();
    GT_TRY(gt_options_resolve(session->allocator, options, &session->options, err));
    GT_TRY(gt_runtime_log_add(session->runtime, session->options.log_level, session->options.log,
                              session->options.log_user, err));
    session->logs = session->options.log != NULL;
    gt_session_phase(session, "options", begin);
    begin = gt_now_ns();
    gantry_status status = find_providers(session, err);
    if (status == GANTRY_OK)
        status = gt_session_check_provider_options(session, err);
    gt_session_phase(session, "find_providers", begin);
    GT_TRY(status);
    GT_TRY(read_model(session, from, err));
    GT_TRY(bind_domains(session, err));
    GT_TRY(simplify_model(session, err));
    return session->for_file ? GANTRY_OK : compile_model(session, err);
}

void gt_session_free(gantry_session *session)
{
    if (!session)
        return;
    gt_allocator *allocator = session->allocator;
    gt_variant_destroy(&session->root);
    gt_model_destroy(&session->model);
    release_providers(session);
    gt_operators_release(session->runtime, &session->own_ops);
    if (session->logs)
        gt_runtime_log_remove(session->runtime, session->options.log, session->options.log_user);
    gt_options_free(&session->options);
    gt_vec_free(allocator, &session->phases);
    gt_free(allocator, session->providers);
    gt_free(allocator, session->domains);
    gt_free(allocator, session->scratch_values);
    gt_free(allocator, session->scratch_known);
    gt_free(allocator, session->told_dims);
    gt_free(allocator, session->path);
    gt_free(allocator, session->input_domains);
    gt_free(allocator, session->output_domains);
    pthread_mutex_destroy(&session->lock);
    pthread_mutex_lock(&session->runtime->lock);
    session->runtime->session_count--;
    pthread_mutex_unlock(&session->runtime->lock);
    gt_free(allocator, session);
}

static gantry_session *make_session(gantry_runtime *runtime, const char *path)
{
    gantry_session *session = GT_NEW(&runtime->allocator, gantry_session);
    if (!session)
        return NULL;
    session->runtime = runtime;
    session->allocator = &runtime->allocator;
    session->failure = (gantry_error)GANTRY_ERROR_INIT;
    pthread_mutex_init(&session->lock, NULL);
    pthread_mutex_lock(&runtime->lock);
    runtime->session_count++;
    pthread_mutex_unlock(&runtime->lock);
    size_t bytes = path ? strlen(path) + 1 : 0;
    if (path && (session->path = gt_alloc(session->allocator, bytes)))
        memcpy(session->path, path, bytes);
    return session;
}

static gantry_status create(gantry_runtime *runtime, const source *from, const gantry_options *options,
                            gantry_session **out_session, gantry_report **out_report, gantry_error *err)
{
    gantry_session *session = make_session(runtime, from->path);
    if (!session)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    uint64_t begin = gt_now_ns();
    gantry_status status = build(session, options, from, &session->failure);
    if (status == GANTRY_OK) /* what a provider failed at went to the next one, and is a verdict */
        session->failure = (gantry_error)GANTRY_ERROR_INIT;
    session->create_ns = (double)(gt_now_ns() - begin);
    session->created = status == GANTRY_OK;
    if (status != GANTRY_OK) {
        session->failure.code = status;
        if (err && err->struct_bytes >= sizeof *err)
            *err = session->failure;
    }
    /* A report that can't be made does not make a good session bad. */
    if (out_report)
        (void)gt_report_create(session, NULL, out_report, NULL);
    if (status != GANTRY_OK) {
        gt_session_free(session);
        return status;
    }
    *out_session = session;
    return GANTRY_OK;
}

gantry_status gt_session_open_for_file(gantry_runtime *runtime, const char *path,
                                       const gantry_options *options, const gt_file_rules *rules,
                                       gantry_session **out_session, gantry_error *err)
{
    *out_session = NULL;
    gantry_session *session = make_session(runtime, path);
    if (!session)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    session->for_file = rules;
    gantry_status status = build(session, options, &(source){.path = path}, err);
    if (status == GANTRY_OK)
        *out_session = session;
    else
        gt_session_free(session);
    return status;
}

static gantry_status check_create(gantry_runtime *runtime, const void *model, gantry_session **out_session,
                                  gantry_report **out_report, const char *call, gantry_error *err)
{
    if (out_session)
        *out_session = NULL;
    if (out_report)
        *out_report = NULL;
    if (!runtime || !model || !out_session)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL, "%s: %s is NULL", call,
                       !runtime ? "runtime"
                       : !model ? "the model"
                                : "out_session");
    return GANTRY_OK;
}

gantry_status gantry_session_create_from_file(gantry_runtime *runtime, const char *path,
                                              const gantry_options *options, gantry_session **out_session,
                                              gantry_report **out_report, gantry_error *err)
{
    GT_TRY(check_create(runtime, path, out_session, out_report, "gantry_session_create_from_file", err));
    return create(runtime, &(source){.path = path}, options, out_session, out_report, err);
}

gantry_status gantry_session_create_from_memory(gantry_runtime *runtime, const void *bytes, size_t size,
                                                const gantry_options *options, gantry_session **out_session,
                                                gantry_report **out_report, gantry_error *err)
{
    GT_TRY(check_create(runtime, bytes, out_session, out_report, "gantry_session_create_from_memory", err));
    return create(runtime, &(source){.bytes = bytes, .size = size}, options, out_session, out_report, err);
}

gantry_status gantry_session_destroy(gantry_session **session, gantry_error *err)
{
    if (!session || !*session)
        return GANTRY_OK;
    uint32_t runs = atomic_load(&(*session)->run_count);
    if (runs)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "the session still has %u gantry_run; destroy them first", runs);
    gt_session_free(*session);
    *session = NULL;
    return GANTRY_OK;
}
