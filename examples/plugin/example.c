/* The smallest whole provider: LeakyRelu in float32, in host memory. docs/plugin-guide.md walks through it.
 *
 *     judge -> compile -> reshape -> context_create -> run        (a program may hold several nodes) */
#include <gantry/provider.h>

GANTRY_MANIFEST("example", "1.0", "", "nothing but the C library");

typedef struct example {
    const gantry_host *host;
    gantry_provider table;
    const gantry_provider *list[1];
} example;

/* Where a value lies during a run: a buffer of the host's, or the workspace. */
typedef struct place {
    enum { PLACE_WORKSPACE, PLACE_INPUT, PLACE_OUTPUT } kind;
    size_t at; /* index of the buffer, or offset in the workspace */
    int64_t count;
} place;

struct gantry_program {
    const gantry_graph_view *graph; /* lives as long as the program */
};

struct gantry_shaped {
    const gantry_graph_view *graph;
    place places[]; /* by value */
};

struct gantry_context {
    const gantry_shaped *shaped;
};

static gantry_status fail(gantry_error *err, gantry_status status, const char *text)
{
    if (err && err->struct_bytes >= sizeof *err) {
        err->code = status;
        snprintf(err->message, sizeof err->message, "example: %s", text);
    }
    return status;
}

static void *make(void *self, size_t bytes, gantry_error *err)
{
    const gantry_host *host = ((example *)self)->host;
    void *made = host->alloc(host, bytes, 16);
    if (!made)
        fail(err, GANTRY_RESOURCE, "out of memory");
    return made;
}

static void drop(void *self, void *made)
{
    const gantry_host *host = ((example *)self)->host;
    host->free(host, made);
}

static gantry_status describe(void *self, gantry_provider_info *out_info)
{
    (void)self;
    snprintf(out_info->name, sizeof out_info->name, "example");
    snprintf(out_info->version, sizeof out_info->version, "1.0");
    snprintf(out_info->domain, sizeof out_info->domain, "host");
    snprintf(out_info->fingerprint, sizeof out_info->fingerprint, "portable C");
    out_info->concurrency = GANTRY_CONCURRENCY_FREE;
    return GANTRY_OK;
}

/* ---- judge: pure, from several threads, as often as the host likes --------------------------- */

static int takes(const gantry_graph_view *graph, const gantry_node_view *node, gantry_verdict *verdict)
{
    const gantry_value_view *x = gantry_node_input(graph, node, 0);
    if (strcmp(node->op, "LeakyRelu") != 0 || *node->domain)
        gantry_refuse(verdict, GANTRY_REFUSE_no_kernel, node->op, node->op, "LeakyRelu", "");
    else if (!x || x->dtype != GANTRY_FLOAT32)
        gantry_refuse(verdict, GANTRY_REFUSE_dtype, x ? x->name : "X", "no float32", "float32",
                      "insert_cast");
    else if (x->flags & (GANTRY_VALUE_CONSTANT | GANTRY_VALUE_BOUNDED))
        gantry_refuse(verdict, GANTRY_REFUSE_shape_dynamic, x->name, "a constant, or sized by data",
                      "an input whose size is known before the run", "");
    else
        return 1;
    return 0;
}

static gantry_status judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    double elements = 0;
    (void)self;
    out_verdict->refusal.actual_number = out_verdict->refusal.limit_number = __builtin_nan("");
    for (uint32_t n = 0; n < count; n++) {
        const gantry_node_view *node = graph->nodes[nodes[n]];
        if (!takes(graph, node, out_verdict))
            return GANTRY_OK;
        const gantry_value_view *x = gantry_node_input(graph, node, 0);
        double size = 1;
        for (int32_t d = 0; d < x->rank; d++)
            size *= (double)x->typical_dims[d];
        elements += size;
    }
    out_verdict->supported = 1;
    out_verdict->estimate_ns = 500.0 * count + elements * 0.5; /* 8 bytes an element at 16 GB/s */
    out_verdict->estimate_source = 'a';
    return GANTRY_OK;
}

/* ---- compile: once a partition --------------------------------------------------------------- */

static gantry_status compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err)
{
    const gantry_host *host = ((example *)self)->host;
    gantry_program *program = *out_program = make(self, sizeof *program, err);
    if (!program)
        return GANTRY_RESOURCE;
    program->graph = args->graph;
    for (uint32_t n = 0; n < args->graph->node_count; n++) {
        gantry_kernel_record record = {.struct_bytes = sizeof record,
                                       .index = n,
                                       .op = "LeakyRelu",
                                       .name = "plain",
                                       .isa = "portable",
                                       .layout = "dense",
                                       .node_count = 1,
                                       .node_ids = &args->graph->nodes[n]->id,
                                       .precision_in = GANTRY_FLOAT32,
                                       .precision_out = GANTRY_FLOAT32,
                                       .accumulate = GANTRY_FLOAT32,
                                       .bytes = -1,
                                       .flops = -1};
        host->record_kernel(args->recorder, &record);
    }
    return GANTRY_OK;
}

static void program_destroy(void *self, gantry_program *program)
{
    drop(self, program);
}

/* ---- reshape: once a set of shapes; all sizes are known now ---------------------------------- */

static size_t place_values(gantry_shaped *shaped, const gantry_shape *shapes)
{
    const gantry_graph_view *graph = shaped->graph;
    size_t workspace = 0;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        place *p = &shaped->places[v];
        *p = (place){PLACE_WORKSPACE, workspace, 1};
        for (uint32_t d = 0; d < shapes[v].rank; d++)
            p->count *= shapes[v].dims[d];
        for (uint32_t k = 0; k < graph->input_count; k++)
            if (graph->inputs[k] == v)
                *p = (place){PLACE_INPUT, k, p->count};
        for (uint32_t k = 0; k < graph->output_count; k++)
            if (graph->outputs[k] == v)
                *p = (place){PLACE_OUTPUT, k, p->count};
        if (p->kind == PLACE_WORKSPACE) /* host->plan_memory would let values share it */
            workspace += ((size_t)p->count * sizeof(float) + 63) / 64 * 64;
    }
    return workspace;
}

static gantry_status reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    size_t bytes = sizeof(gantry_shaped) + program->graph->value_count * sizeof(place);
    gantry_shaped *shaped = *out_shaped = make(self, bytes, err);
    if (!shaped)
        return GANTRY_RESOURCE;
    shaped->graph = program->graph;
    out_info->workspace_bytes = place_values(shaped, args->shapes);
    return GANTRY_OK;
}

static void shaped_destroy(void *self, gantry_shaped *shaped)
{
    drop(self, shaped);
}

/* ---- context and run: one caller at a time --------------------------------------------------- */

static gantry_status context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                    gantry_error *err)
{
    gantry_context *context = *out_context = make(self, sizeof *context, err);
    if (!context)
        return GANTRY_RESOURCE;
    context->shaped = shaped;
    return GANTRY_OK;
}

static void context_destroy(void *self, gantry_context *context)
{
    drop(self, context);
}

typedef struct job {
    const float *x;
    float *y;
    float alpha;
} job;

static void leaky_relu(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    (void)thread;
    for (int64_t k = begin; k < end; k++)
        j->y[k] = j->x[k] < 0 ? j->x[k] * j->alpha : j->x[k];
}

static void *address(const place *p, const gantry_run_args *args)
{
    gantry_buffer buffer = p->kind == PLACE_INPUT    ? args->inputs[p->at]
                           : p->kind == PLACE_OUTPUT ? args->outputs[p->at]
                                                     : args->workspace;
    return (char *)buffer.handle + buffer.offset_bytes + (p->kind == PLACE_WORKSPACE ? p->at : 0);
}

static gantry_status run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    const gantry_host *host = ((example *)self)->host;
    const gantry_shaped *shaped = context->shaped;
    uint32_t timed = 0;
    for (uint32_t n = 0; n < shaped->graph->node_count; n++) {
        const gantry_node_view *node = shaped->graph->nodes[n];
        const place *x = &shaped->places[node->inputs[0]], *y = &shaped->places[node->outputs[0]];
        if (gantry_stop_asked(args->stop))
            return fail(err, GANTRY_CANCELLED, "stopped");
        uint64_t begin = host->now_ns(host);
        job j = {address(x, args), address(y, args), gantry_node_float(node, "alpha", 0.01f)};
        host->parallel_for(host, args->threads, x->count, 16384, leaky_relu, &j);
        if (args->timing && timed < args->timing_capacity)
            args->timing[timed++] = (gantry_timing_event){n, begin, host->now_ns(host) - begin};
    }
    if (args->out_timing_count)
        *args->out_timing_count = timed;
    return GANTRY_OK;
}

/* ---- the plugin ------------------------------------------------------------------------------ */

static void close_plugin(void *self)
{
    drop(self, self);
}

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err);

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err)
{
    if (abi < 1)
        return fail(err, GANTRY_PROVIDER, "needs ABI level 1 and was offered 0");
    example *e = host->alloc(host, sizeof *e, 16);
    if (!e)
        return fail(err, GANTRY_RESOURCE, "out of memory");
    *e = (example){.host = host,
                   .table = {.struct_bytes = sizeof e->table, /* entries not named are NULL: not there */
                             .self = e,
                             .describe = describe,
                             .judge = judge,
                             .compile = compile,
                             .program_destroy = program_destroy,
                             .reshape = reshape,
                             .shaped_destroy = shaped_destroy,
                             .context_create = context_create,
                             .context_destroy = context_destroy,
                             .run = run}};
    e->list[0] = &e->table;
    gantry_plugin plugin = {.struct_bytes = sizeof plugin,
                            .abi = 1,
                            .self = e,
                            .name = "example",
                            .version = "1.0",
                            .provider_count = 1,
                            .providers = e->list,
                            .close = close_plugin};
    if (plugin.struct_bytes > out_plugin->struct_bytes) /* an older host: write no further than it reads */
        plugin.struct_bytes = out_plugin->struct_bytes;
    memcpy(out_plugin, &plugin, plugin.struct_bytes);
    return GANTRY_OK;
}
