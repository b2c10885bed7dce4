/* Running on the fake device: a run resolves addresses and enqueues one task; the queue's thread computes. */
#include "fake_program.h"

/* ---- contexts -------------------------------------------------------------------------------- */

static void context_destroy(void *self, gantry_context *context)
{
    const fake_provider *provider = self;
    const gantry_host *host = provider->host;
    if (!context)
        return;
    host->free(host, context->tensors);
    host->free(host, context->first_tensor);
    host->free(host, context->task);
    host->free(host, context);
}

static void fill_tensor(const gantry_shaped *shaped, uint32_t value, gantry_tensor *out)
{
    *out = (gantry_tensor){.struct_bytes = sizeof *out};
    if (value == GANTRY_NO_ID)
        return;
    const place *p = &shaped->places[value];
    out->dtype = p->dtype;
    out->rank = p->rank;
    out->dims = p->dims;
    out->size_bytes = p->bytes;
}

gantry_status fake_context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                  gantry_error *err)
{
    fake_provider *provider = self;
    const gantry_graph_view *graph = shaped->program->graph;
    size_t total = 0;
    *out_context = NULL;
    gantry_status status = fake_call_begin(provider->domain, &provider->script, FAKE_CALL_CONTEXT, err);
    if (status != GANTRY_OK)
        return status;
    for (uint32_t n = 0; n < graph->node_count; n++)
        total += graph->nodes[n]->input_count + graph->nodes[n]->output_count +
                 fake_count_captures(graph, graph->nodes[n]);
    gantry_context *context = fake_zeroed(provider->host, 1, sizeof *context);
    if (!context)
        return fake_out_of_memory(err, GANTRY_STAGE_RUN);
    context->shaped = shaped;
    context->tensors = fake_zeroed(provider->host, total, sizeof *context->tensors);
    context->first_tensor = fake_zeroed(provider->host, graph->node_count, sizeof *context->first_tensor);
    context->task_bytes =
        sizeof(run_task) + ((size_t)graph->input_count + graph->output_count) * sizeof(void *);
    context->task = fake_zeroed(provider->host, context->task_bytes, 1);
    if (!context->tensors || !context->first_tensor || !context->task) {
        context_destroy(self, context);
        return fake_out_of_memory(err, GANTRY_STAGE_RUN);
    }
    uint32_t at = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        context->first_tensor[n] = at;
        for (uint32_t k = 0; k < graph->nodes[n]->input_count; k++)
            fill_tensor(shaped, graph->nodes[n]->inputs[k], &context->tensors[at++]);
        for (uint32_t k = 0; k < graph->nodes[n]->output_count; k++)
            fill_tensor(shaped, graph->nodes[n]->outputs[k], &context->tensors[at++]);
        for (uint32_t k = 0; k < fake_count_captures(graph, graph->nodes[n]); k++)
            fill_tensor(shaped, fake_capture(graph, graph->nodes[n], k), &context->tensors[at++]);
    }
    *out_context = context;
    return GANTRY_OK;
}

/* ---- running, on the queue's thread ---------------------------------------------------------- */

static void *address(const run_task *task, const gantry_graph_view *graph, const place *p, bool on_host)
{
    if (on_host && p->host)
        return p->host;
    switch (p->kind) {
    case PLACE_INPUT:
        return task->buffers[p->index];
    case PLACE_OUTPUT:
        return task->buffers[graph->input_count + p->index];
    case PLACE_WORKSPACE:
        return (char *)task->workspace + p->offset;
    case PLACE_KNOWN:
        return p->own;
    case PLACE_NONE:
        break;
    }
    return NULL;
}

static gantry_status run_control(const run_task *task, uint32_t n, gantry_tensor *tensors, gantry_error *err)
{
    const gantry_shaped *shaped = task->context->shaped;
    const gantry_program *program = shaped->program;
    const gantry_node_view *node = program->graph->nodes[n];
    gantry_tensor *outputs = tensors + node->input_count, *captures = outputs + node->output_count;
    for (uint32_t k = 0; k < fake_count_captures(program->graph, node); k++)
        captures[k].buffer.handle =
            address(task, program->graph, &shaped->places[fake_capture(program->graph, node, k)], false);
    return fake_compute_control(program->provider, node, program->bodies[n], tensors, outputs, captures, err);
}

static gantry_status run_node(const run_task *task, uint32_t n, gantry_error *err)
{
    const gantry_context *context = task->context;
    const gantry_shaped *shaped = context->shaped;
    const gantry_program *program = shaped->program;
    const gantry_node_view *node = program->graph->nodes[n];
    gantry_tensor *tensors = context->tensors + context->first_tensor[n];
    bool empty = true;
    for (uint32_t k = 0; k < node->input_count + node->output_count; k++) {
        bool is_input = k < node->input_count;
        uint32_t v = is_input ? node->inputs[k] : node->outputs[k - node->input_count];
        if (v == GANTRY_NO_ID)
            continue;
        const place *p = &shaped->places[v];
        bool on_host = is_input && fake_reads_on_host(&program->provider->config, node, k);
        tensors[k].buffer.handle = address(task, program->graph, p, on_host);
        empty &= is_input || p->empty;
        if (!tensors[k].buffer.handle && !p->empty)
            return fake_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_RUN,
                             "fake device: %s of node %s has no memory", program->graph->values[v]->name,
                             node->name);
    }
    if (shaped->is_view[n] || empty)
        return GANTRY_OK;
    atomic_fetch_add(&program->provider->domain->counters->kernels, 1);
    if (program->bodies[n])
        return run_control(task, n, tensors, err);
    return fake_compute(program->provider, program->graph, n, tensors, tensors + node->input_count, err);
}

static gantry_status run_program(void *arg, gantry_error *err)
{
    const run_task *task = arg;
    const gantry_program *program = task->context->shaped->program;
    fake_provider *provider = program->provider;
    fake_domain *domain = provider->domain;
    gantry_status status = fake_call_begin(domain, &provider->script, FAKE_CALL_RUN_LATE, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < program->kernel_count; k++) {
        const kernel *kernel_ = &program->kernels[k];
        uint64_t begin = domain->host->now_ns(domain->host);
        const char *name = program->graph->nodes[kernel_->nodes[kernel_->node_count - 1]]->name;
        fake_note(domain, "begin kernel %s", name);
        for (uint32_t n = 0; status == GANTRY_OK && n < kernel_->node_count; n++)
            status = run_node(task, kernel_->nodes[n], err);
        if (kernel_->work_us >= 0)
            fake_sleep_until(domain, begin + (uint64_t)(kernel_->work_us * 1e3));
        fake_note(domain, "end kernel %s", name);
        if (k < task->timing_count)
            task->timing[k] = (gantry_timing_event){k, begin, domain->host->now_ns(domain->host) - begin};
    }
    atomic_fetch_add(&domain->counters->runs, 1);
    return status;
}

static gantry_status resolve_buffers(gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    run_task *task = context->task;
    const gantry_shaped *shaped = context->shaped;
    const gantry_graph_view *graph = shaped->program->graph;
    fake_memory *memory = &shaped->program->provider->domain->memory;
    for (uint32_t k = 0; k < graph->input_count + graph->output_count; k++) {
        bool is_input = k < graph->input_count;
        uint32_t v = is_input ? graph->inputs[k] : graph->outputs[k - graph->input_count];
        gantry_buffer buffer = is_input ? args->inputs[k] : args->outputs[k - graph->input_count];
        size_t bytes = shaped->places[v].bytes;
        task->buffers[k] = bytes ? fake_memory_own(memory, buffer, bytes) : NULL;
        bool is_view = !is_input && shaped->output_plans[k - graph->input_count].view_of_input >= 0;
        if (bytes && !task->buffers[k] && !is_view)
            return fake_fail(
                err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN,
                "fake device: the buffer of %s (%zu bytes) lies in no living block of its memory",
                graph->values[v]->name, bytes);
    }
    task->workspace =
        shaped->workspace_bytes ? fake_memory_own(memory, args->workspace, shaped->workspace_bytes) : NULL;
    if (shaped->workspace_bytes && (!task->workspace || (uintptr_t)task->workspace % 64 != 0))
        return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN,
                         "fake device: a workspace of %zu bytes, aligned to 64, was asked for and not given",
                         shaped->workspace_bytes);
    return GANTRY_OK;
}

static void offer_timing(gantry_context *context, const gantry_run_args *args)
{
    run_task *task = context->task;
    const gantry_program *program = context->shaped->program;
    bool wanted = args->timing && program->provider->domain->config->timing;
    uint32_t count =
        program->kernel_count < args->timing_capacity ? program->kernel_count : args->timing_capacity;
    task->timing = wanted ? args->timing : NULL;
    task->timing_count = wanted ? count : 0;
    if (args->out_timing_count)
        *args->out_timing_count = task->timing_count;
}

gantry_status fake_run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    fake_provider *provider = self;
    fake_domain *domain = provider->domain;
    uint64_t begin = domain->host->now_ns(domain->host);
    if (gantry_stop_asked(args->stop))
        return GANTRY_CANCELLED;
    if (!args->queue)
        return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, "fake device: a run needs a queue");
    gantry_status status = fake_call_begin(domain, &provider->script, FAKE_CALL_LOST, err);
    if (status == GANTRY_OK)
        status = fake_call_begin(domain, &provider->script, FAKE_CALL_RUN, err);
    if (status == GANTRY_OK)
        status = resolve_buffers(context, args, err);
    if (status != GANTRY_OK)
        return status;
    offer_timing(context, args);
    ((run_task *)context->task)->context = context;
    status = fake_queue_push(args->queue, run_program, context->task, context->task_bytes, err);
    double enqueue_us = provider->config.enqueue_us * context->shaped->program->kernel_count;
    fake_sleep_until(domain, begin + (uint64_t)(enqueue_us * 1e3));
    return status;
}

static uint64_t program_memory(void *self, const gantry_program *program)
{
    uint64_t bytes = 0;
    for (uint32_t v = 0; v < program->graph->value_count; v++)
        bytes += program->known[v].bytes;
    return bytes;
}

void fake_programs_table(fake_provider *provider)
{
    provider->table.compile = fake_compile;
    provider->table.program_destroy = fake_program_destroy;
    provider->table.reshape = fake_reshape;
    provider->table.shaped_destroy = fake_shaped_destroy;
    provider->table.context_create = fake_context_create;
    provider->table.context_destroy = context_destroy;
    provider->table.run = fake_run;
    provider->table.memory = program_memory;
    provider->table.memory_classes = fake_memory_classes;
    if (provider->config.blobs) {
        provider->table.blob_save = fake_blob_save;
        provider->table.blob_load = fake_blob_load;
    }
    fake_options_table(provider);
    fake_keep_class(provider);
}
