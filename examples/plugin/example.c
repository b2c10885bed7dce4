/* The smallest whole provider: LeakyRelu in float32, in host memory. docs/plugin-guide.md explains it. */
#include <gantry/provider.h>

GANTRY_MANIFEST("example", "1.0", "", "nothing but the C library");

typedef struct example {   /* one opened plugin */
    gantry_provider table; /* its self is the host: that is all that the entries need */
    const gantry_provider *list[1];
} example;

struct gantry_shaped {
    const gantry_graph_view *graph;
    gantry_place places[]; /* of all values */
};

static gantry_status describe(void *self, gantry_provider_info *out_info)
{
    (void)self; /* out_info comes zeroed: in the domain of the host, contexts run at the same time */
    snprintf(out_info->name, sizeof out_info->name, "example");
    snprintf(out_info->version, sizeof out_info->version, "1.0");
    snprintf(out_info->fingerprint, sizeof out_info->fingerprint, "portable C");
    return GANTRY_OK;
}

static gantry_status judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    (void)self; /* pure: from several threads, as often as the host likes */
    for (uint32_t n = 0; n < count; n++) {
        const gantry_node_view *node = graph->nodes[nodes[n]];
        const gantry_value_view *x = gantry_node_input(graph, node, 0);
        if (strcmp(node->op, "LeakyRelu") != 0 || *node->domain)
            return gantry_refuse(out_verdict, GANTRY_REFUSE_no_kernel, node->op, node->op, "LeakyRelu", "");
        if (!x || x->dtype != GANTRY_FLOAT32)
            return gantry_refuse(out_verdict, GANTRY_REFUSE_dtype, x ? x->name : "X", "no float32", "float32",
                                 "insert_cast");
        if (x->flags & (GANTRY_VALUE_CONSTANT | GANTRY_VALUE_BOUNDED))
            return gantry_refuse(out_verdict, GANTRY_REFUSE_shape_dynamic, x->name,
                                 "a constant, or sized by data", "a size known before the run", "");
        out_verdict->estimate_ns += 500 + gantry_value_elements(x) * 0.5; /* 8 bytes at 16 GB/s */
    }
    out_verdict->supported = 1;
    out_verdict->estimate_source = 'a';
    return GANTRY_OK;
}

static gantry_status compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err)
{
    const gantry_host *host = self;
    (void)err; /* once a partition, of one or more nodes */
    for (uint32_t n = 0; n < args->graph->node_count; n++) {
        gantry_kernel_record record = gantry_kernel_of_node(args->graph, n, "plain", "portable");
        host->record_kernel(args->recorder, &record);
    }
    *out_program = (gantry_program *)(uintptr_t)args->graph; /* lives as long as the program */
    return GANTRY_OK;
}

static gantry_status reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    const gantry_host *host = self; /* once a set of shapes: all sizes are known now */
    const gantry_graph_view *graph = (const gantry_graph_view *)program;
    gantry_shaped *s = *out_shaped =
        host->alloc(host, sizeof *s + graph->value_count * sizeof *s->places, 16);
    if (!s)
        return gantry_fail(err, GANTRY_RESOURCE, "example: out of memory");
    s->graph = graph;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        size_t bytes = (size_t)gantry_shape_elements(&args->shapes[v]) * sizeof(float);
        s->places[v] = gantry_place_value(graph, v, bytes, &out_info->workspace_bytes);
    }
    return GANTRY_OK;
}

static void shaped_destroy(void *self, gantry_shaped *shaped)
{
    ((const gantry_host *)self)->free(self, shaped);
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

static gantry_status run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    const gantry_host *host = self;
    const gantry_shaped *s = (const gantry_shaped *)context;
    uint32_t timed = 0;
    for (uint32_t n = 0; n < s->graph->node_count; n++) {
        const gantry_node_view *node = s->graph->nodes[n];
        const gantry_place *x = &s->places[node->inputs[0]], *y = &s->places[node->outputs[0]];
        if (gantry_stop_asked(args->stop))
            return gantry_fail(err, GANTRY_CANCELLED, "example: stopped");
        uint64_t begin = host->now_ns(host);
        job j = {gantry_place_address(x, args), gantry_place_address(y, args),
                 gantry_node_float(node, "alpha", 0.01f)};
        host->parallel_for(host, args->threads, (int64_t)(x->bytes / sizeof(float)), 16384, leaky_relu, &j);
        gantry_timing_add(args, &timed, n, begin, host->now_ns(host));
    }
    return GANTRY_OK;
}

static void close_plugin(void *self)
{
    const gantry_host *host = ((example *)self)->table.self;
    host->free(host, self);
}

gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi, gantry_plugin *out_plugin,
                                 gantry_error *err)
{
    if (abi < 1)
        return gantry_fail(err, GANTRY_PROVIDER, "example: needs ABI level 1 and was offered %u", abi);
    example *e = host->alloc(host, sizeof *e, 16);
    if (!e)
        return gantry_fail(err, GANTRY_RESOURCE, "example: out of memory");
    *e = (example){.table = {.struct_bytes = sizeof e->table, /* entries not named are NULL: not there */
                             .self = (void *)(uintptr_t)host,
                             .describe = describe,
                             .judge = judge,
                             .compile = compile,
                             .program_destroy = gantry_program_keep,
                             .reshape = reshape,
                             .shaped_destroy = shaped_destroy,
                             .context_create = gantry_context_of_shaped,
                             .context_destroy = gantry_context_keep,
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
    return gantry_plugin_fill(out_plugin, &plugin); /* no further than an older host reads */
}
