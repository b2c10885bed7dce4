/* A provider that negates float32 tensors, compiled against one release's header each: libgantry_abi_1_0.so,
 * _now, _newer (see CMakeLists.txt). It fills the host's structs by whole assignments, as a careless plugin
 * does: one of a newer header then writes more than the host's.
 *
 * Its config is words:  name=X  device (a domain of its own)  null=ENTRY (of a table: "provider.run")
 *                       null=events  bytes=provider:N, domain:N, plugin:N, info:N  abi=N  fail=open */
#include <gantry/provider.h>

GANTRY_MANIFEST(ABI_NAME, "1.0", "", "nothing but the C library");

typedef struct state {
    const gantry_host *host;
    char name[64];
    int device;
    size_t info_bytes;
    gantry_domain domain;
    gantry_provider provider;
    const gantry_domain *domains[1];
    const gantry_provider *providers[1];
} state;

struct gantry_queue {
    uint64_t waits;
};

struct gantry_event {
    uint64_t ns;
};

struct gantry_program {
    uint64_t shapes;
};

struct gantry_shaped {
    size_t count;
};

struct gantry_context {
    size_t count;
};

static gantry_status fail(gantry_error *err, gantry_status status, const char *text)
{
    if (err && err->struct_bytes >= sizeof *err) {
        err->code = status;
        snprintf(err->message, sizeof err->message, ABI_NAME ": %s", text);
    }
    return status;
}

/* Zeroed memory of the host's. */
static gantry_status make(void *self, size_t bytes, void *out_pointer, gantry_error *err)
{
    const gantry_host *host = ((state *)self)->host;
    void *made = host->alloc(host, bytes, 16);
    if (!made)
        return fail(err, GANTRY_RESOURCE, "out of memory");
    memset(made, 0, bytes);
    memcpy(out_pointer, &made, sizeof made);
    return GANTRY_OK;
}

static void drop(void *self, void *made)
{
    const gantry_host *host = ((state *)self)->host;
    host->free(host, made);
}

/* ---- the domain: addresses with the top bit set, which fault when the host follows them ------ */

static void *turn(void *handle)
{
    return (void *)((uintptr_t)handle ^ ((uintptr_t)1 << 63));
}

static char *device_bytes(gantry_buffer buffer)
{
    return (char *)turn(buffer.handle) + buffer.offset_bytes;
}

static gantry_status domain_describe(void *self, gantry_domain_info *out_info)
{
    const state *s = self;
    *out_info = (gantry_domain_info){.struct_bytes = s->info_bytes ? s->info_bytes - 1 : sizeof *out_info,
                                     .device = "addresses turned round",
                                     .alignment = 64,
                                     .separate_memory = 1,
                                     .has_clock = 1,
                                     .to_device_bytes_per_ns = 10,
                                     .to_host_bytes_per_ns = 10,
                                     .cost_source = 'a'};
    snprintf(out_info->name, sizeof out_info->name, "%s", s->name);
    return GANTRY_OK;
}

static gantry_status domain_alloc(void *self, size_t bytes, gantry_memory_kind kind, void **out_handle,
                                  gantry_error *err)
{
    const gantry_host *host = ((state *)self)->host;
    void *memory = host->alloc(host, bytes ? bytes : 1, 64);
    *out_handle = memory && kind == GANTRY_MEMORY_DEVICE ? turn(memory) : memory;
    return memory ? GANTRY_OK : fail(err, GANTRY_RESOURCE, "out of memory");
}

static void domain_free(void *self, void *handle, gantry_memory_kind kind)
{
    drop(self, kind == GANTRY_MEMORY_DEVICE ? turn(handle) : handle);
}

static gantry_status domain_memory_info(void *self, uint64_t *out_free_bytes, uint64_t *out_total_bytes)
{
    *out_free_bytes = *out_total_bytes = 1u << 30;
    return GANTRY_OK;
}

static gantry_status queue_open(void *self, gantry_queue **out_queue, gantry_error *err)
{
    return make(self, sizeof **out_queue, out_queue, err);
}

static void queue_close(void *self, gantry_queue *queue)
{
    drop(self, queue);
}

static gantry_status queue_sync(void *self, gantry_queue *queue, gantry_error *err)
{
    queue->waits++;
    return GANTRY_OK;
}

static void *queue_native(void *self, gantry_queue *queue)
{
    return queue;
}

static gantry_status domain_copy(void *self, gantry_queue *queue, gantry_copy_kind kind, gantry_buffer target,
                                 gantry_buffer source, size_t bytes, gantry_error *err)
{
    char *to =
        kind == GANTRY_COPY_TO_HOST ? (char *)target.handle + target.offset_bytes : device_bytes(target);
    char *from =
        kind == GANTRY_COPY_TO_DEVICE ? (char *)source.handle + source.offset_bytes : device_bytes(source);
    memmove(to, from, bytes);
    return GANTRY_OK;
}

static gantry_status event_create(void *self, gantry_event **out_event, gantry_error *err)
{
    return make(self, sizeof **out_event, out_event, err);
}

static void event_destroy(void *self, gantry_event *event)
{
    drop(self, event);
}

static gantry_status event_record(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    const gantry_host *host = ((state *)self)->host;
    event->ns = host->now_ns(host);
    return GANTRY_OK;
}

static gantry_status event_wait(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    return GANTRY_OK;
}

static gantry_status event_sync(void *self, gantry_event *event, gantry_error *err)
{
    return GANTRY_OK;
}

static gantry_status event_elapsed(void *self, gantry_event *from, gantry_event *to, double *out_ns)
{
    *out_ns = (double)to->ns - (double)from->ns;
    return GANTRY_OK;
}

static int domain_lost(void *self)
{
    return 0;
}

#ifdef ABI_APPENDED
static gantry_status probe(void *self, gantry_domain_info *inout_info, gantry_error *err)
{
    gantry_domain_info measured = {.struct_bytes = sizeof measured,
                                   .alignment = 64,
                                   .to_device_ns = 1111,
                                   .to_host_ns = 2222,
                                   .to_device_bytes_per_ns = 3,
                                   .to_host_bytes_per_ns = 4,
                                   .cost_source = 'm'};
    *inout_info = measured;
    return GANTRY_OK;
}

static const gantry_option_info OPTIONS[] = {
    {.struct_bytes = sizeof *OPTIONS, .key = "first", .value = "1", .description = "of no use"},
    {.struct_bytes = sizeof *OPTIONS, .key = "second", .value = "2", .description = "of no use either"},
};
#endif

/* ---- the provider ---------------------------------------------------------------------------- */

static gantry_status describe(void *self, gantry_provider_info *out_info)
{
    const state *s = self;
    *out_info = (gantry_provider_info){.struct_bytes = s->info_bytes ? s->info_bytes - 1 : sizeof *out_info,
                                       .version = "1.0",
                                       .fingerprint = "portable C",
                                       .libraries = "none"};
    snprintf(out_info->name, sizeof out_info->name, "%s", s->name);
    snprintf(out_info->domain, sizeof out_info->domain, "%s", s->device ? s->name : "host");
    return GANTRY_OK;
}

static gantry_status judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    const gantry_node_view *node = graph->nodes[nodes[0]];
    const gantry_value_view *x = gantry_node_input(graph, node, 0);
    *out_verdict =
        (gantry_verdict){.struct_bytes = sizeof *out_verdict, .estimate_source = 'a', .estimate_ns = 1};
    if (count != 1 || strcmp(node->op, "Neg") != 0 || *node->domain || x->dtype != GANTRY_FLOAT32)
        gantry_refuse(out_verdict, GANTRY_REFUSE_no_kernel, node->op, node->op, "Neg of float32", "");
    else
        out_verdict->supported = 1;
    return GANTRY_OK;
}

static gantry_status formats(void *self, const gantry_graph_view *partition, gantry_edge_format *inputs,
                             gantry_edge_format *outputs)
{
    return GANTRY_OK;
}

static gantry_status compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err)
{
    const state *s = self;
    gantry_kernel_record record = {.struct_bytes = sizeof record,
                                   .op = "Neg",
                                   .name = "loop",
                                   .isa = "C",
                                   .layout = "",
                                   .node_count = 1,
                                   .node_ids = &args->graph->nodes[0]->id,
                                   .precision_in = GANTRY_FLOAT32,
                                   .precision_out = GANTRY_FLOAT32,
                                   .accumulate = GANTRY_FLOAT32,
                                   .bytes = -1,
                                   .flops = -1};
    if (args->graph->node_count != 1)
        return fail(err, GANTRY_PROVIDER, "one node at a time");
    s->host->record_kernel(args->recorder, &record);
    return make(self, sizeof **out_program, out_program, err);
}

static void program_destroy(void *self, gantry_program *program)
{
    drop(self, program);
}

static gantry_status reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    const gantry_shape *x = &args->shapes[0];
    gantry_status status = make(self, sizeof **out_shaped, out_shaped, err);
    *out_info = (gantry_shaped_info){.struct_bytes = sizeof *out_info};
    if (status != GANTRY_OK)
        return status;
    (*out_shaped)->count = 1;
    for (uint32_t d = 0; d < x->rank; d++)
        (*out_shaped)->count *= (size_t)x->dims[d];
    program->shapes++;
    return GANTRY_OK;
}

static void shaped_destroy(void *self, gantry_shaped *shaped)
{
    drop(self, shaped);
}

static gantry_status context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                    gantry_error *err)
{
    gantry_status status = make(self, sizeof **out_context, out_context, err);
    if (status == GANTRY_OK)
        (*out_context)->count = shaped->count;
    return status;
}

static void context_destroy(void *self, gantry_context *context)
{
    drop(self, context);
}

static gantry_status run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    const state *s = self;
    gantry_buffer in = args->inputs[0], out = args->outputs[0];
    char *source = s->device ? device_bytes(in) : (char *)in.handle + in.offset_bytes;
    char *target = s->device ? device_bytes(out) : (char *)out.handle + out.offset_bytes;
    for (size_t k = 0; k < context->count; k++) {
        float x;
        memcpy(&x, source + k * sizeof x, sizeof x);
        x = -x;
        memcpy(target + k * sizeof x, &x, sizeof x);
    }
    if (args->timing && args->out_timing_count)
        *args->out_timing_count = 0;
    return GANTRY_OK;
}

static uint64_t memory(void *self, const gantry_program *program)
{
    return sizeof *program;
}

static void trim(void *self)
{
}

static gantry_status evaluate(void *self, const gantry_graph_view *graph, uint32_t node_index,
                              const gantry_tensor *inputs, const gantry_tensor *outputs, gantry_error *err)
{
    const gantry_host *host = ((state *)self)->host;
    return host->evaluate(host, graph, node_index, inputs, outputs, err);
}

/* ---- the tables, and how a test spoils them -------------------------------------------------- */

static void fill_tables(state *s)
{
    s->domain = (gantry_domain){.struct_bytes = sizeof s->domain,
                                .self = s,
                                .describe = domain_describe,
                                .alloc = domain_alloc,
                                .free = domain_free,
                                .memory_info = domain_memory_info,
                                .queue_open = queue_open,
                                .queue_close = queue_close,
                                .queue_sync = queue_sync,
                                .queue_native = queue_native,
                                .copy = domain_copy,
                                .event_create = event_create,
                                .event_destroy = event_destroy,
                                .event_record = event_record,
                                .event_wait = event_wait,
                                .event_sync = event_sync,
                                .event_elapsed = event_elapsed,
                                .lost = domain_lost};
    s->provider = (gantry_provider){.struct_bytes = sizeof s->provider,
                                    .self = s,
                                    .describe = describe,
                                    .judge = judge,
                                    .formats = formats,
                                    .compile = compile,
                                    .program_destroy = program_destroy,
                                    .reshape = reshape,
                                    .shaped_destroy = shaped_destroy,
                                    .context_create = context_create,
                                    .context_destroy = context_destroy,
                                    .run = run,
                                    .memory = memory,
                                    .trim = trim,
                                    .evaluate = evaluate};
#ifdef ABI_APPENDED
    s->domain.probe = probe;
    s->provider.options = OPTIONS;
    s->provider.option_count = sizeof OPTIONS / sizeof *OPTIONS;
#endif
}

#define ENTRY(table, entry)                                                                                  \
    {                                                                                                        \
#table "." #entry, offsetof(state, table.entry)                                                      \
    }
static const struct {
    const char *name;
    size_t offset;
} ENTRIES[] = {
    ENTRY(domain, describe),
    ENTRY(domain, alloc),
    ENTRY(domain, free),
    ENTRY(domain, memory_info),
    ENTRY(domain, queue_open),
    ENTRY(domain, queue_close),
    ENTRY(domain, queue_sync),
    ENTRY(domain, queue_native),
    ENTRY(domain, copy),
    ENTRY(domain, event_create),
    ENTRY(domain, event_destroy),
    ENTRY(domain, event_record),
    ENTRY(domain, event_wait),
    ENTRY(domain, event_sync),
    ENTRY(domain, event_elapsed),
    ENTRY(domain, lost),
    ENTRY(provider, describe),
    ENTRY(provider, judge),
    ENTRY(provider, formats),
    ENTRY(provider, compile),
    ENTRY(provider, program_destroy),
    ENTRY(provider, reshape),
    ENTRY(provider, shaped_destroy),
    ENTRY(provider, context_create),
    ENTRY(provider, context_destroy),
    ENTRY(provider, run),
    ENTRY(provider, memory),
    ENTRY(provider, trim),
    ENTRY(provider, evaluate),
};

static int begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* "events" is all entries whose name has "event_". */
static void forget(state *s, const char *name)
{
    for (size_t k = 0; k < sizeof ENTRIES / sizeof *ENTRIES; k++) {
        int event = strcmp(name, "events") == 0 && begins(ENTRIES[k].name, "domain.event_");
        if (event || strcmp(ENTRIES[k].name, name) == 0)
            memset((char *)s + ENTRIES[k].offset, 0, sizeof(void (*)(void)));
    }
}

static size_t number(const char *text)
{
    size_t value = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        value = value * 10 + (size_t)(*text - '0');
    return value;
}

static gantry_status obey(state *s, const char *word, gantry_plugin *out_plugin, gantry_error *err)
{
    if (begins(word, "name="))
        snprintf(s->name, sizeof s->name, "%.63s", word + 5);
    else if (strcmp(word, "device") == 0)
        s->device = 1;
    else if (begins(word, "null="))
        forget(s, word + 5);
    else if (begins(word, "bytes=provider:"))
        s->provider.struct_bytes = number(word + 15);
    else if (begins(word, "bytes=domain:"))
        s->domain.struct_bytes = number(word + 13);
    else if (begins(word, "bytes=plugin:"))
        out_plugin->struct_bytes = number(word + 13);
    else if (begins(word, "bytes=info:"))
        s->info_bytes = number(word + 11) + 1;
    else if (begins(word, "abi="))
        out_plugin->abi = (uint32_t)number(word + 4);
    else if (strcmp(word, "fail=open") == 0)
        return fail(err, GANTRY_PROVIDER, "told to fail when opened");
    else
        return fail(err, GANTRY_INVALID_ARGUMENT, "a word of the config is not known");
    return GANTRY_OK;
}

static gantry_status obey_all(state *s, gantry_plugin *out_plugin, gantry_error *err)
{
    gantry_status status = GANTRY_OK;
    for (const char *at = s->host->config; *at && status == GANTRY_OK;) {
        char word[128];
        size_t length = strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        if (length)
            status = obey(s, word, out_plugin, err);
        at += length + (at[length] == ' ');
    }
    out_plugin->domain_count = s->device ? 1 : 0;
    return status;
}

static void plugin_close(void *self)
{
    drop(self, self);
}

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err);

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err)
{
    state *s, start = {.host = host, .name = ABI_NAME};
    gantry_status status = make(&start, sizeof *s, &s, err);
    if (status != GANTRY_OK)
        return status;
    *s = start;
    fill_tables(s);
    s->domains[0] = &s->domain;
    s->providers[0] = &s->provider;
    *out_plugin = (gantry_plugin){.struct_bytes = sizeof *out_plugin,
                                  .abi = abi < GANTRY_PROVIDER_ABI ? abi : GANTRY_PROVIDER_ABI,
                                  .self = s,
                                  .name = ABI_NAME,
                                  .version = "1.0",
                                  .domains = s->domains,
                                  .provider_count = 1,
                                  .providers = s->providers,
                                  .close = plugin_close};
#ifdef ABI_NEWER
    memset(out_plugin->of_the_future, 0xa5, sizeof out_plugin->of_the_future);
    memset(s->provider.of_the_future, 0xa5, sizeof s->provider.of_the_future);
    memset(s->domain.of_the_future, 0xa5, sizeof s->domain.of_the_future);
#endif
    status = obey_all(s, out_plugin, err);
    if (status != GANTRY_OK)
        plugin_close(s);
    return status;
}
