/* Reshaping on the fake device: limits are checked, every value gets its place, the workspace is planned. */
#include "fake_program.h"

/* ---- reshape --------------------------------------------------------------------------------- */

static gantry_status set_extents(const gantry_value_view *value, const gantry_shape *shape, place *out,
                                 gantry_error *err)
{
    uint64_t count = 1;
    if (shape->rank > GANTRY_MAX_RANK)
        return fake_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, "fake device: %s has rank %u",
                         value->name, shape->rank);
    out->dtype = value->dtype;
    out->rank = shape->rank;
    for (uint32_t d = 0; d < shape->rank; d++) {
        if (shape->dims[d] < 0)
            return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN,
                             "fake device: reshape got extent %lld for dim %u of %s",
                             (long long)shape->dims[d], d, value->name);
        out->dims[d] = shape->dims[d];
        count *= (uint64_t)shape->dims[d];
    }
    out->empty = count == 0;
    out->bytes = (size_t)((count * fake_dtype_bits(value->dtype) + 7) / 8);
    return GANTRY_OK;
}

static void place_known(const gantry_shaped *shaped, const known_value *known, place *out)
{
    gantry_buffer buffer = {known->shown, 0};
    out->kind = PLACE_KNOWN;
    out->own = fake_memory_own(&shaped->program->provider->domain->memory, buffer, known->bytes);
    out->host = known->host;
}

/* Inputs, outputs, constants, and values that only the host knows. What remains is made by nodes. */
static gantry_status place_fixed(gantry_shaped *shaped, const gantry_reshape_args *args, gantry_error *err)
{
    gantry_program *program = shaped->program;
    const gantry_graph_view *graph = program->graph;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        gantry_status status = set_extents(graph->values[v], &args->shapes[v], &shaped->places[v], err);
        if (status != GANTRY_OK)
            return status;
        if (program->known[v].shown)
            place_known(shaped, &program->known[v], &shaped->places[v]);
    }
    for (uint32_t k = 0; k < graph->input_count; k++) {
        shaped->places[graph->inputs[k]].kind = PLACE_INPUT;
        shaped->places[graph->inputs[k]].index = k;
    }
    for (uint32_t k = 0; k < graph->output_count; k++)
        if (shaped->places[graph->outputs[k]].kind == PLACE_NONE) {
            shaped->places[graph->outputs[k]].kind = PLACE_OUTPUT;
            shaped->places[graph->outputs[k]].index = k;
        }
    return GANTRY_OK;
}

static bool is_produced(const gantry_graph_view *graph, uint32_t value)
{
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->output_count; k++)
            if (graph->nodes[n]->outputs[k] == value)
                return true;
    return false;
}

static gantry_status keep_host_values(gantry_shaped *shaped, const gantry_reshape_args *args,
                                      gantry_error *err)
{
    gantry_program *program = shaped->program;
    const gantry_graph_view *graph = program->graph;
    for (uint32_t v = 0; args->host_values && v < graph->value_count; v++) {
        place *p = &shaped->places[v];
        bool on_host = fake_is_read_on_host(&program->provider->config, graph, v);
        bool nowhere = p->kind == PLACE_NONE && !is_produced(graph, v);
        if (!args->host_values[v] || p->kind == PLACE_KNOWN || (!on_host && !nowhere))
            continue;
        gantry_status status =
            fake_upload(program->provider, &shaped->known[v], args->host_values[v], p->bytes, on_host, err);
        if (status != GANTRY_OK)
            return status;
        p->host = shaped->known[v].host;
        if (nowhere)
            place_known(shaped, &shaped->known[v], p);
    }
    return GANTRY_OK;
}

static bool only_moves(const char *op)
{
    static const char *const ops[] = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        if (strcmp(ops[k], op) == 0)
            return true;
    return false;
}

static bool works_in_place(const char *op)
{
    return strcmp(op, "Relu") == 0 || strcmp(op, "Neg") == 0 || strcmp(op, "Abs") == 0;
}

static uint32_t count_reads(const gantry_graph_view *graph, uint32_t value)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->input_count; k++)
            count += graph->nodes[n]->inputs[k] == value;
    return count;
}

/* With "views": an output that only renames an input is a view of it, and one that is computed element by
 * element may take its memory. */
static void plan_outputs(gantry_shaped *shaped)
{
    const gantry_graph_view *graph = shaped->program->graph;
    for (uint32_t k = 0; k < graph->output_count; k++)
        shaped->output_plans[k] = (gantry_output_plan){-1, 0, -1};
    if (!shaped->program->provider->config.views)
        return;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const gantry_node_view *node = graph->nodes[n];
        place *out = node->output_count ? &shaped->places[node->outputs[0]] : NULL;
        const place *in =
            node->input_count && node->inputs[0] != GANTRY_NO_ID ? &shaped->places[node->inputs[0]] : NULL;
        if (!out || !in || out->kind != PLACE_OUTPUT || in->kind != PLACE_INPUT || out->bytes != in->bytes)
            continue;
        if (only_moves(node->op)) {
            shaped->output_plans[out->index].view_of_input = (int32_t)in->index;
            shaped->is_view[n] = true;
            out->kind = PLACE_INPUT;
            out->index = in->index;
        } else if (works_in_place(node->op) && count_reads(graph, node->inputs[0]) == 1) {
            shaped->output_plans[out->index].overwrite_input = (int32_t)in->index;
        }
    }
}

typedef struct lifetimes {
    uint32_t count;
    uint32_t *values, *first, *last;
    size_t *bytes, *offsets;
} lifetimes;

static void measure_lifetimes(const gantry_shaped *shaped, lifetimes *l)
{
    const gantry_program *program = shaped->program;
    const gantry_graph_view *graph = program->graph;
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->output_count; k++) {
            uint32_t v = graph->nodes[n]->outputs[k];
            if (v == GANTRY_NO_ID || shaped->places[v].kind != PLACE_NONE)
                continue;
            uint32_t last = program->kernel_of_node[n];
            for (uint32_t r = 0; r < graph->node_count; r++)
                for (uint32_t i = 0; i < fake_count_captures(graph, graph->nodes[r]); i++)
                    if (fake_capture(graph, graph->nodes[r], i) == v && program->kernel_of_node[r] > last)
                        last = program->kernel_of_node[r];
            for (uint32_t r = 0; r < graph->node_count; r++)
                for (uint32_t i = 0; i < graph->nodes[r]->input_count; i++)
                    if (graph->nodes[r]->inputs[i] == v && program->kernel_of_node[r] > last)
                        last = program->kernel_of_node[r];
            l->values[l->count] = v;
            l->bytes[l->count] = shaped->places[v].bytes;
            l->first[l->count] = program->kernel_of_node[n];
            l->last[l->count++] = last;
        }
}

static gantry_status plan_workspace(gantry_shaped *shaped, gantry_error *err)
{
    const gantry_host *host = shaped->program->provider->host;
    uint32_t capacity = shaped->program->graph->value_count;
    lifetimes l = {.values = fake_zeroed(host, 3 * (size_t)capacity, sizeof *l.values),
                   .bytes = fake_zeroed(host, 2 * (size_t)capacity, sizeof *l.bytes)};
    gantry_status status = GANTRY_OK;
    if (!l.values || !l.bytes) {
        status = fake_out_of_memory(err, GANTRY_STAGE_RUN);
    } else {
        l.first = l.values + capacity;
        l.last = l.first + capacity;
        l.offsets = l.bytes + capacity;
        measure_lifetimes(shaped, &l);
        status = host->plan_memory(host, l.count, l.bytes, l.first, l.last, l.offsets,
                                   &shaped->workspace_bytes, err);
        for (uint32_t k = 0; status == GANTRY_OK && k < l.count; k++) {
            shaped->places[l.values[k]].kind = PLACE_WORKSPACE;
            shaped->places[l.values[k]].offset = l.offsets[k];
        }
    }
    host->free(host, l.values);
    host->free(host, l.bytes);
    return status;
}

void fake_shaped_destroy(void *self, gantry_shaped *shaped)
{
    if (!shaped)
        return;
    const gantry_host *host = shaped->program->provider->host;
    fake_drop_known(shaped->program->provider, shaped->known, shaped->program->graph->value_count);
    host->free(host, shaped->places);
    host->free(host, shaped->output_plans);
    host->free(host, shaped->is_view);
    host->free(host, shaped);
}

/* Nodes whose limits this shape breaks. */
static gantry_status refuse_nodes(const gantry_program *program, const gantry_reshape_args *args,
                                  gantry_shaped_info *out_info, gantry_error *err)
{
    const gantry_graph_view *graph = program->graph;
    out_info->refused_count = 0;
    for (uint32_t n = 0; n < graph->node_count && out_info->refused_count < 16; n++) {
        gantry_verdict verdict = {.struct_bytes = sizeof verdict};
        if (!fake_breaks_limit(&program->provider->config, graph, graph->nodes[n], args->shapes, &verdict))
            continue;
        if (out_info->refused_count == 0)
            out_info->refusal = verdict.refusal;
        out_info->refused_nodes[out_info->refused_count++] = graph->nodes[n]->id;
    }
    if (out_info->refused_count == 0)
        return GANTRY_OK;
    return fake_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN,
                     "fake device: %s has extent %s, and it takes %s", out_info->refusal.operand,
                     out_info->refusal.actual, out_info->refusal.required);
}

static gantry_status make_shaped(gantry_shaped *shaped, const gantry_reshape_args *args, gantry_error *err)
{
    const gantry_graph_view *graph = shaped->program->graph;
    const gantry_host *host = shaped->program->provider->host;
    shaped->places = fake_zeroed(host, graph->value_count, sizeof *shaped->places);
    shaped->known = fake_zeroed(host, graph->value_count, sizeof *shaped->known);
    shaped->output_plans = fake_zeroed(host, graph->output_count, sizeof *shaped->output_plans);
    shaped->is_view = fake_zeroed(host, graph->node_count, sizeof *shaped->is_view);
    if (!shaped->places || !shaped->known || !shaped->output_plans || !shaped->is_view)
        return fake_out_of_memory(err, GANTRY_STAGE_RUN);
    gantry_status status = place_fixed(shaped, args, err);
    if (status == GANTRY_OK)
        status = keep_host_values(shaped, args, err);
    if (status != GANTRY_OK)
        return status;
    plan_outputs(shaped);
    return plan_workspace(shaped, err);
}

gantry_status fake_reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                           gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    fake_provider *provider = self;
    fake_domain *domain = provider->domain;
    uint64_t begin = domain->host->now_ns(domain->host);
    *out_shaped = NULL;
    atomic_fetch_add(&domain->counters->reshapes, 1);
    gantry_status status = fake_call_begin(domain, &provider->script, FAKE_CALL_RESHAPE, err);
    if (status == GANTRY_OK)
        status = refuse_nodes(program, args, out_info, err);
    if (status != GANTRY_OK)
        return status;
    gantry_shaped *shaped = fake_zeroed(domain->host, 1, sizeof *shaped);
    if (!shaped)
        return fake_out_of_memory(err, GANTRY_STAGE_RUN);
    shaped->program = program;
    status = make_shaped(shaped, args, err);
    if (status != GANTRY_OK) {
        fake_shaped_destroy(self, shaped);
        return status;
    }
    out_info->workspace_bytes = shaped->workspace_bytes;
    out_info->output_plans = shaped->output_plans;
    *out_shaped = shaped;
    fake_sleep_until(domain, begin + (uint64_t)(provider->config.reshape_us * 1e3));
    return GANTRY_OK;
}
