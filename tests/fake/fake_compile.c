/* Compiling on the fake device: weights go into its memory, nodes become kernels, chains of nodes fused ones.
 */
#include "fake_program.h"

#include <ctype.h>

/* ---- constants ------------------------------------------------------------------------------- */

static gantry_status keep_constant(gantry_program *program, uint32_t value, gantry_constants *constants,
                                   bool shared, gantry_error *err)
{
    fake_provider *provider = program->provider;
    const gantry_host *host = provider->host;
    constant c = {constants, program->graph->values[value]->constant_id, NULL, 0};
    gantry_status status = host->constant_map(host, constants, c.id, &c.data, &c.bytes, err);
    if (status != GANTRY_OK)
        return status;
    status = fake_keep_constant(provider, shared, &c, &program->known[value],
                                fake_is_read_on_host(&provider->config, program->graph, value), err);
    host->constant_unmap(host, constants, c.id);
    return status;
}

static gantry_status upload_constants(gantry_program *program, const gantry_compile_args *args,
                                      gantry_error *err)
{
    fake_phase phase = fake_phase_begin(program->provider, args->recorder, "upload");
    bool shared = fake_option_is_on(program->provider, args->session_options, FAKE_OPTION_SHARE);
    gantry_status status = GANTRY_OK;
    uint32_t count = 0;
    for (uint32_t v = 0; status == GANTRY_OK && v < program->graph->value_count; v++) {
        if (program->graph->values[v]->constant_id == GANTRY_NO_ID)
            continue;
        status = keep_constant(program, v, args->constants, shared, err);
        count++;
    }
    fake_phase_end(&phase, "%u constants%s", count, shared ? ", shared" : "");
    return status;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* The one node that reads the value, or GANTRY_NO_ID when there are more or it leaves the partition. */
static uint32_t find_reader(const gantry_graph_view *graph, uint32_t value)
{
    uint32_t reader = GANTRY_NO_ID;
    for (uint32_t k = 0; k < graph->output_count; k++)
        if (graph->outputs[k] == value)
            return GANTRY_NO_ID;
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->input_count; k++)
            if (graph->nodes[n]->inputs[k] == value) {
                if (reader != GANTRY_NO_ID && reader != n)
                    return GANTRY_NO_ID;
                reader = n;
            }
    return reader;
}

/* Nodes that match "Conv+Add+Relu" from `node` on; their count, 0 for no match. */
static uint32_t match_chain(const gantry_graph_view *graph, const char *pattern, uint32_t node,
                            uint32_t *out_nodes)
{
    uint32_t count = 0;
    for (const char *at = pattern; *at;) {
        size_t length = strcspn(at, "+");
        const gantry_node_view *view = node == GANTRY_NO_ID ? NULL : graph->nodes[node];
        if (!view || count == FAKE_MAX_CHAIN || strlen(view->op) != length ||
            strncmp(view->op, at, length) != 0)
            return 0;
        out_nodes[count++] = node;
        at += length + (at[length] == '+');
        node = *at ? find_reader(graph, view->outputs[0]) : GANTRY_NO_ID;
    }
    return count;
}

static void record_fusion(const gantry_program *program, gantry_recorder *recorder, const fusion *f)
{
    char rule[96];
    uint32_t ids[FAKE_MAX_CHAIN];
    size_t k = 0;
    const char *pattern = program->provider->config.fused[f->pattern].name;
    for (; pattern[k] && k < sizeof rule - 1; k++)
        rule[k] = pattern[k] == '+' ? '_' : (char)tolower((unsigned char)pattern[k]);
    rule[k] = 0;
    for (uint32_t n = 0; n < f->node_count; n++)
        ids[n] = program->graph->nodes[f->nodes[n]]->id;
    gantry_fusion_record record = {
        sizeof record, rule, f->node_count, ids, f->applied != 0, f->applied ? "" : "no_kernel"};
    program->provider->host->record_fusion(recorder, &record);
}

/* The kernel that begins with a node: a fused chain when there is a kernel for its type, else the node. */
static void choose_kernel(gantry_program *program, uint32_t node, kernel *out)
{
    const fake_config *config = &program->provider->config;
    const gantry_value_view *value = gantry_node_input(program->graph, program->graph->nodes[node], 0);
    *out = (kernel){.node_count = 1, .nodes = {node}};
    for (uint32_t k = 0; value && program->fuse && k < config->fused_count; k++) {
        fusion f = {.pattern = k};
        f.node_count = match_chain(program->graph, config->fused[k].name, node, f.nodes);
        if (f.node_count < 2)
            continue;
        f.applied = out->node_count == 1 && fake_rule_takes(&config->fused[k], value->dtype);
        program->fusions[program->fusion_count++] = f;
        if (f.applied) {
            out->node_count = f.node_count;
            memcpy(out->nodes, f.nodes, sizeof f.nodes);
        }
    }
}

static double kernel_work_us(const gantry_program *program, const kernel *k)
{
    double total = -1;
    for (uint32_t n = 0; n < k->node_count; n++) {
        char op[128];
        fake_op_name(program->graph->nodes[k->nodes[n]], op, sizeof op);
        double us = fake_work_us(&program->provider->config, op);
        if (us >= 0)
            total = (total < 0 ? 0 : total) + us;
    }
    return total;
}

static int compare_kernels(const void *a_, const void *b_)
{
    const kernel *a = a_, *b = b_;
    uint32_t x = a->nodes[a->node_count - 1], y = b->nodes[b->node_count - 1];
    return (x > y) - (x < y);
}

void fake_index_kernels(gantry_program *program)
{
    for (uint32_t k = 0; k < program->kernel_count; k++)
        for (uint32_t i = 0; i < program->kernels[k].node_count; i++)
            program->kernel_of_node[program->kernels[k].nodes[i]] = k;
}

static gantry_status choose_kernels(gantry_program *program, gantry_error *err)
{
    const gantry_host *host = program->provider->host;
    uint32_t node_count = program->graph->node_count;
    bool *taken = fake_zeroed(host, node_count, sizeof *taken);
    if (!taken)
        return fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
    for (uint32_t n = 0; n < node_count; n++) {
        if (taken[n])
            continue;
        kernel *k = &program->kernels[program->kernel_count++];
        choose_kernel(program, n, k);
        k->work_us = kernel_work_us(program, k);
        for (uint32_t i = 0; i < k->node_count; i++)
            taken[k->nodes[i]] = true;
    }
    host->free(host, taken);
    qsort(program->kernels, program->kernel_count, sizeof *program->kernels, compare_kernels);
    fake_index_kernels(program);
    return GANTRY_OK;
}

static bool has_fault(const fake_config *config, const char *op, fake_fault_kind kind)
{
    for (uint32_t k = 0; k < config->fault_count; k++)
        if (config->faults[k].kind == kind && strcmp(config->faults[k].op, op) == 0)
            return true;
    return false;
}

static gantry_dtype record_dtype(const fake_config *config, const gantry_graph_view *graph,
                                 const gantry_node_view *node, const gantry_value_view *value)
{
    gantry_dtype executes_in = fake_executes_in(config, graph, node);
    return executes_in != GANTRY_UNDEFINED ? executes_in : value ? value->dtype : GANTRY_UNDEFINED;
}

static void record_kernels(const gantry_program *program, gantry_recorder *recorder)
{
    const fake_config *config = &program->provider->config;
    const gantry_graph_view *graph = program->graph;
    for (uint32_t k = 0; k < program->kernel_count; k++) {
        const kernel *kernel_ = &program->kernels[k];
        const gantry_node_view *first = graph->nodes[kernel_->nodes[0]];
        const gantry_node_view *last = graph->nodes[kernel_->nodes[kernel_->node_count - 1]];
        char op[256] = "";
        uint32_t ids[FAKE_MAX_CHAIN];
        for (uint32_t n = 0; n < kernel_->node_count; n++) {
            size_t used = strlen(op);
            ids[n] = graph->nodes[kernel_->nodes[n]]->id;
            snprintf(op + used, sizeof op - used, "%s%s", n ? "+" : "", graph->nodes[kernel_->nodes[n]]->op);
        }
        bool half = has_fault(config, first->op, FAKE_FAULT_ACCUMULATE_FLOAT16);
        gantry_dtype in = record_dtype(config, graph, first, gantry_node_input(graph, first, 0));
        gantry_kernel_record record = {
            .struct_bytes = sizeof record,
            .index = k,
            .op = op,
            .name = half ? "fake_half" : "fake",
            .isa = "fake",
            .layout = "plain",
            .node_count = kernel_->node_count,
            .node_ids = ids,
            .precision_in = in,
            .precision_out = record_dtype(config, graph, last, gantry_node_output(graph, last, 0)),
            .accumulate = half                ? GANTRY_FLOAT16
                          : in == GANTRY_INT8 ? GANTRY_INT32
                                              : GANTRY_FLOAT32,
            .bytes = -1,
            .flops = -1};
        program->provider->host->record_kernel(recorder, &record);
    }
}

void fake_record_program(const gantry_program *program, gantry_recorder *recorder)
{
    for (uint32_t k = 0; k < program->fusion_count; k++)
        record_fusion(program, recorder, &program->fusions[k]);
    record_kernels(program, recorder);
}

static void list_kernels(const gantry_program *program, char *out_text, size_t capacity)
{
    size_t used = (size_t)snprintf(out_text, capacity, "kernels of %s:", program->provider->config.name);
    for (uint32_t k = 0; k < program->kernel_count && used + 100 < capacity; k++)
        used += (size_t)snprintf(out_text + used, capacity - used, " %.90s",
                                 program->graph->nodes[program->kernels[k].nodes[0]]->op);
}

/* What a device that makes code would keep: here the list itself stands for it. */
static void find_in_cache(const gantry_program *program, gantry_recorder *recorder)
{
    const gantry_host *host = program->provider->host;
    char key[4000];
    void *data;
    size_t bytes;
    gantry_error reason = GANTRY_ERROR_INIT;
    fake_phase phase = fake_phase_begin(program->provider, recorder, "cache");
    list_kernels(program, key, sizeof key);
    if (host->cache_get(host, key, &data, &bytes, &reason) == GANTRY_OK) {
        fake_phase_end(&phase, "%zu bytes of kernels", bytes);
        host->free(host, data);
        return;
    }
    host->cache_put(host, key, key, strlen(key));
    fake_phase_end(&phase, "%s", reason.message);
}

static gantry_status build_kernels(gantry_program *program, const gantry_compile_args *args,
                                   gantry_error *err)
{
    fake_phase phase = fake_phase_begin(program->provider, args->recorder, "build");
    gantry_status status = choose_kernels(program, err);
    fake_phase_end(&phase, "%u kernels", program->kernel_count);
    bool cached = fake_option_is_on(program->provider, args->session_options, FAKE_OPTION_CACHE);
    if (status == GANTRY_OK && cached && GANTRY_HAS(gantry_host, program->provider->host, cache_put))
        find_in_cache(program, args->recorder);
    return status;
}

gantry_status fake_read_bodies(gantry_program *program, gantry_constants *constants, gantry_error *err)
{
    const gantry_graph_view *graph = program->graph;
    program->bodies = fake_zeroed(program->provider->host, graph->node_count, sizeof(struct fake_bodies *));
    gantry_status status = program->bodies ? GANTRY_OK : fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
    for (uint32_t n = 0; status == GANTRY_OK && n < graph->node_count; n++)
        if (graph->nodes[n]->body_count)
            status =
                fake_bodies_create(program->provider, graph->nodes[n], constants, &program->bodies[n], err);
    return status;
}

/* ---- compile --------------------------------------------------------------------------------- */

void fake_program_destroy(void *self, gantry_program *program)
{
    if (!program)
        return;
    const gantry_host *host = program->provider->host;
    fake_drop_known(program->provider, program->known, program->graph->value_count);
    for (uint32_t n = 0; program->bodies && n < program->graph->node_count; n++)
        fake_bodies_destroy(program->provider, program->bodies[n]);
    host->free(host, program->bodies);
    host->free(host, program->kernels);
    host->free(host, program->kernel_of_node);
    host->free(host, program->fusions);
    host->free(host, program);
}

gantry_program *fake_program_create(fake_provider *provider, const gantry_compile_args *args)
{
    const gantry_host *host = provider->host;
    const gantry_graph_view *graph = args->graph;
    gantry_program *program = fake_zeroed(host, 1, sizeof *program);
    if (!program)
        return NULL;
    program->provider = provider;
    program->graph = graph;
    program->fuse = fake_option_is_on(provider, args->session_options, FAKE_OPTION_FUSE);
    program->fusion_capacity = graph->node_count * provider->config.fused_count;
    program->known = fake_zeroed(host, graph->value_count, sizeof *program->known);
    program->kernels = fake_zeroed(host, graph->node_count, sizeof *program->kernels);
    program->kernel_of_node = fake_zeroed(host, graph->node_count, sizeof *program->kernel_of_node);
    program->fusions = fake_zeroed(host, program->fusion_capacity, sizeof *program->fusions);
    if (program->known && program->kernels && program->kernel_of_node && program->fusions)
        return program;
    fake_program_destroy(provider, program);
    return NULL;
}

gantry_status fake_compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                           gantry_error *err)
{
    fake_provider *provider = self;
    *out_program = NULL;
    atomic_fetch_add(&provider->domain->counters->compiles, 1);
    gantry_status status = fake_call_begin(provider->domain, &provider->script, FAKE_CALL_COMPILE, err);
    if (status != GANTRY_OK)
        return status;
    gantry_program *program = fake_program_create(provider, args);
    if (!program)
        return fake_out_of_memory(err, GANTRY_STAGE_COMPILE);
    status = upload_constants(program, args, err);
    if (status == GANTRY_OK)
        status = fake_read_bodies(program, args->constants, err);
    if (status == GANTRY_OK)
        status = build_kernels(program, args, err);
    if (status != GANTRY_OK) {
        fake_program_destroy(self, program);
        return status;
    }
    fake_record_program(program, args->recorder);
    *out_program = program;
    return GANTRY_OK;
}
