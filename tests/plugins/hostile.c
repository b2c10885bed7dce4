/* A provider that lies: Neg and NonZero of float32, in host memory or in a domain of its own, with one answer
 * that no honest provider gives. The config text names it, after "device " for the domain. What core has to
 * do about each stands in tests/unit/test_hostile_plugin.c. */
#include <gantry/provider.h>

#include <math.h>
#include <stdlib.h>

GANTRY_MANIFEST("hostile", "1.0", "", "nothing");

struct gantry_program {
    const gantry_graph_view *graph;
    gantry_recorder *recorder;
    uint32_t in_tag, out_tag;
};

struct gantry_shaped {
    gantry_recorder *of_compile;
    uint32_t in_tag, out_tag;
    int64_t count;
    int nonzero;
    gantry_output_plan plan;
};

struct gantry_context {
    const gantry_shaped *shaped;
};

struct gantry_queue {
    int unused;
};

struct gantry_event {
    uint64_t ns;
};

typedef struct state {
    const gantry_host *host;
    const char *lie;
    int device, trimmed;
    gantry_domain domain;
    gantry_provider provider;
    const gantry_domain *domains[1];
    const gantry_provider *providers[1];
    gantry_option_info options[2];
    gantry_operator operator;
    const gantry_operator *operators[1];
} state;

static int lies(const void *self, const char *lie)
{
    return strcmp(((const state *)self)->lie, lie) == 0;
}

static void fill(char *text, size_t bytes)
{
    memset(text, 'x', bytes);
}

static void *garbage(void)
{
    return (void *)(uintptr_t)0x5a5a5a5a;
}

/* Words without an end. */
static gantry_status endless(gantry_error *err, gantry_status status)
{
    if (err)
        fill(err->message, sizeof err->message);
    return status;
}

/* ---- the domain ------------------------------------------------------------------------------ */

static gantry_status domain_describe(void *self, gantry_domain_info *out_info)
{
    *out_info = (gantry_domain_info){.struct_bytes = sizeof *out_info,
                                     .name = "hostile",
                                     .alignment = 64,
                                     .separate_memory = lies(self, "pinned_null"),
                                     .has_clock = 1,
                                     .cost_source = 'a'};
    if (lies(self, "cost_nan"))
        out_info->to_device_ns = NAN;
    if (lies(self, "cost_negative"))
        out_info->to_host_bytes_per_ns = -1;
    if (lies(self, "alignment_4096") || lies(self, "alignment_huge"))
        out_info->alignment = lies(self, "alignment_huge") ? (size_t)1 << 62 : 4096;
    if (lies(self, "alignment_3"))
        out_info->alignment = 3;
    if (lies(self, "endless_domain"))
        fill(out_info->name, sizeof out_info->name);
    if (lies(self, "many_queues"))
        out_info->queue_count = UINT64_MAX;
    return GANTRY_OK;
}

static gantry_status domain_alloc(void *self, size_t bytes, gantry_memory_kind kind, void **out_handle,
                                  gantry_error *err)
{
    int fails = lies(self, "alloc_null") || (kind == GANTRY_MEMORY_PINNED && lies(self, "pinned_null"));
    if (lies(self, "alloc_fails")) {
        *out_handle = garbage();
        return GANTRY_RESOURCE;
    }
    *out_handle = fails ? NULL : aligned_alloc(64, (bytes + 127) / 64 * 64);
    return fails || *out_handle ? GANTRY_OK : GANTRY_RESOURCE;
}

static void domain_free(void *self, void *handle, gantry_memory_kind kind)
{
    free(handle);
}

static gantry_status queue_open(void *self, gantry_queue **out_queue, gantry_error *err)
{
    if (lies(self, "queue_fails")) {
        *out_queue = garbage();
        return (gantry_status)-3;
    }
    *out_queue = lies(self, "queue_null") ? NULL : malloc(sizeof **out_queue);
    return GANTRY_OK;
}

static void queue_close(void *self, gantry_queue *queue)
{
    free(queue);
}

static gantry_status queue_sync(void *self, gantry_queue *queue, gantry_error *err)
{
    return lies(self, "sync_fails") ? GANTRY_PROVIDER : GANTRY_OK;
}

static char *at(gantry_buffer buffer)
{
    return (char *)buffer.handle + buffer.offset_bytes;
}

static gantry_status domain_copy(void *self, gantry_queue *queue, gantry_copy_kind kind, gantry_buffer target,
                                 gantry_buffer source, size_t bytes, gantry_error *err)
{
    if (lies(self, "copy_fails"))
        return (gantry_status)99;
    memmove(at(target), at(source), bytes);
    return GANTRY_OK;
}

static gantry_status event_create(void *self, gantry_event **out_event, gantry_error *err)
{
    if (lies(self, "event_fails")) {
        *out_event = garbage();
        return GANTRY_PROVIDER;
    }
    *out_event = lies(self, "event_null") ? NULL : calloc(1, sizeof **out_event);
    return GANTRY_OK;
}

static void event_destroy(void *self, gantry_event *event)
{
    free(event);
}

static gantry_status event_call(void *self, gantry_queue *queue, gantry_event *event, gantry_error *err)
{
    return GANTRY_OK;
}

static gantry_status event_sync(void *self, gantry_event *event, gantry_error *err)
{
    return GANTRY_OK;
}

static gantry_status event_elapsed(void *self, gantry_event *from, gantry_event *to, double *out_ns)
{
    *out_ns = lies(self, "elapsed_nan") ? NAN : lies(self, "elapsed_negative") ? -1e9 : 1000;
    return GANTRY_OK;
}

/* ---- the provider: before a run -------------------------------------------------------------- */

static gantry_status describe(void *self, gantry_provider_info *out_info)
{
    *out_info = (gantry_provider_info){.struct_bytes = sizeof *out_info, .name = "hostile", .version = "1"};
    snprintf(out_info->domain, sizeof out_info->domain, "%s", ((state *)self)->device ? "hostile" : "host");
    if (strstr(((const state *)self)->lie, "joins")) { /* the domain of another instance; no lie either */
        snprintf(out_info->name, sizeof out_info->name, "joiner");
        snprintf(out_info->domain, sizeof out_info->domain, "hostile");
    }
    if (lies(self, "endless_info")) {
        fill(out_info->version, sizeof out_info->version);
        fill(out_info->fingerprint, sizeof out_info->fingerprint);
        fill(out_info->libraries, sizeof out_info->libraries);
    }
    if (lies(self, "endless_name"))
        fill(out_info->name, sizeof out_info->name);
    if (lies(self, "class_77"))
        out_info->concurrency = (gantry_concurrency)77;
    if (lies(self, "precision_99"))
        out_info->precision = (gantry_dtype)99;
    return GANTRY_OK;
}

static void spoil_verdict(const void *self, gantry_verdict *verdict)
{
    verdict->estimate_ns = lies(self, "estimate_nan")        ? NAN
                           : lies(self, "estimate_negative") ? -1e9
                           : lies(self, "estimate_infinite") ? INFINITY
                                                             : 1;
    if (lies(self, "executes_in_77"))
        verdict->executes_in = (gantry_dtype)77;
    if (lies(self, "refuses_all"))
        verdict->supported = 0;
    if (lies(self, "refusal_endless")) {
        verdict->supported = 0;
        memset(&verdict->refusal, 'x', sizeof verdict->refusal);
    }
}

static gantry_status judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    const gantry_node_view *node = graph->nodes[nodes[0]];
    const gantry_value_view *x = gantry_node_input(graph, node, 0);
    int takes = count == 1 && x && x->dtype == GANTRY_FLOAT32 && !*node->domain &&
                (strcmp(node->op, "Neg") == 0 || (strcmp(node->op, "NonZero") == 0 && x->rank == 1));
    out_verdict->supported = takes;
    out_verdict->estimate_source = 'e';
    if (takes)
        spoil_verdict(self, out_verdict);
    else
        gantry_refuse(out_verdict, GANTRY_REFUSE_no_kernel, node->op, node->op, "Neg", "");
    return lies(self, "judge_status") ? (gantry_status)12345 : GANTRY_OK;
}

/* No lie, but a layout of its own: elements from the last to the first, behind 64 bytes. */
static int has_layout(const void *self)
{
    return strncmp(((const state *)self)->lie, "format_own", 10) == 0;
}

static gantry_status formats(void *self, const gantry_graph_view *partition, gantry_edge_format *inputs,
                             gantry_edge_format *outputs)
{
    gantry_edge_format *edge = partition->input_count ? &inputs[0] : &outputs[0];
    int required = edge->required = !strstr(((const state *)self)->lie, "prefers");
    if (lies(self, "format_alone") || lies(self, "format_huge"))
        edge->preferred.tag = 7;
    for (uint32_t k = 0; has_layout(self) && k < partition->input_count; k++)
        inputs[k] = (gantry_edge_format){{GANTRY_FLOAT32, 7, 0}, required};
    for (uint32_t k = 0; has_layout(self) && k < partition->output_count; k++)
        outputs[k] = (gantry_edge_format){{GANTRY_FLOAT32, 7, 0}, required};
    if (lies(self, "format_dtype"))
        edge->preferred.dtype = (gantry_dtype)99;
    if (lies(self, "format_half"))
        edge->preferred.dtype = GANTRY_FLOAT16;
    return lies(self, "formats_fails") ? GANTRY_PROVIDER : GANTRY_OK;
}

static int64_t elements(const gantry_shape *shape)
{
    int64_t count = 1;
    for (uint32_t d = 0; d < shape->rank; d++)
        count *= shape->dims[d];
    return count;
}

static size_t format_bytes(void *self, const gantry_format *format, gantry_dtype dtype,
                           const gantry_shape *shape)
{
    return has_layout(self) ? (size_t)elements(shape) * sizeof(float) + 64 : SIZE_MAX;
}

static gantry_status convert(void *self, gantry_queue *queue, const gantry_format *from,
                             const gantry_format *to, gantry_dtype dtype, const gantry_shape *shape,
                             gantry_buffer source, gantry_buffer target, gantry_error *err)
{
    const float *in = (const float *)(const void *)(at(source) + (from->tag ? 64 : 0));
    float *out = (float *)(void *)(at(target) + (to->tag ? 64 : 0));
    int64_t count = elements(shape);
    if (!has_layout(self) || lies(self, "format_own_fails"))
        return GANTRY_PROVIDER;
    for (int64_t k = 0; k < count; k++)
        out[k] = in[count - 1 - k];
    return GANTRY_OK;
}

static double convert_estimate_ns(void *self, const gantry_format *from, const gantry_format *to,
                                  gantry_dtype dtype, const gantry_shape *shape)
{
    return has_layout(self) ? 1000 : NAN;
}

static void record(const state *s, gantry_recorder *recorder)
{
    static const uint32_t strangers[3] = {4711, UINT32_MAX, 0};
    gantry_kernel_record r = {.struct_bytes = sizeof r,
                              .index = lies(s, "kernel_index") ? UINT32_MAX - 1 : 0,
                              .name = lies(s, "kernel_bytes") ? "\xff\xfe\n\"" : NULL,
                              .node_count = 3,
                              .node_ids = strangers,
                              .precision_in = (gantry_dtype)-1,
                              .accumulate = (gantry_dtype)1000,
                              .bytes = NAN,
                              .flops = INFINITY};
    gantry_phase_record phase = {.struct_bytes = sizeof phase, .duration_ns = UINT64_MAX};
    gantry_fusion_record fusion = {.struct_bytes = 8, .node_count = UINT32_MAX};
    s->host->record_kernel(recorder, &r);
    s->host->record_kernel(recorder, NULL);
    s->host->record_fusion(recorder, &fusion);
    s->host->record_phase(recorder, &phase);
    s->host->record_phase(NULL, &phase);
}

static gantry_status compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err)
{
    state *s = self;
    if (strncmp(s->lie, "kernel_", 7) == 0)
        record(s, args->recorder);
    *out_program = garbage();
    if (lies(self, "compile_fails"))
        return GANTRY_PROVIDER;
    if (lies(self, "compile_endless"))
        return endless(err, GANTRY_PROVIDER);
    if (lies(self, "compile_cancelled"))
        return GANTRY_CANCELLED;
    *out_program = lies(self, "compile_null") ? NULL : malloc(sizeof **out_program);
    if (*out_program)
        **out_program = (gantry_program){args->graph, args->recorder,
                                         args->graph->input_count ? args->input_formats[0].tag : 0,
                                         args->graph->output_count ? args->output_formats[0].tag : 0};
    return GANTRY_OK;
}

static void program_destroy(void *self, gantry_program *program)
{
    free(program);
}

/* Refusals of a shape. */
static gantry_status refuse(void *self, const gantry_program *program, gantry_shaped_info *info)
{
    const gantry_node_view *node = program->graph->nodes[0];
    info->refused_count = 1;
    info->refused_nodes[0] = node->id;
    info->refusal.code = GANTRY_REFUSE_shape_limit;
    if (lies(self, "refuses_stranger"))
        info->refused_nodes[0] = 4711;
    if (lies(self, "refuses_many"))
        info->refused_count = UINT32_MAX;
    if (lies(self, "refuses_nobody"))
        info->refused_count = 0;
    if (lies(self, "refuses_endless"))
        memset(&info->refusal, 'x', sizeof info->refusal);
    return GANTRY_UNSUPPORTED;
}

static gantry_output_plan output_plan(const void *self, int64_t count)
{
    gantry_output_plan plan = {-1, 0, -1};
    if (strncmp(((const state *)self)->lie, "view_", 5) == 0)
        plan.view_of_input = lies(self, "view_of_99") ? 99 : lies(self, "view_of_minus_9") ? -9 : 0;
    if (lies(self, "view_far"))
        plan.view_offset_bytes = SIZE_MAX - 8;
    if (lies(self, "view_behind"))
        plan.view_offset_bytes = (size_t)count * 4;
    if (lies(self, "view_odd"))
        plan.view_offset_bytes = 1;
    if (lies(self, "overwrites_99"))
        plan.overwrite_input = 99;
    return plan;
}

static gantry_status reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    const gantry_node_view *node = program->graph->nodes[0];
    const gantry_shape *x = &args->shapes[node->inputs[0]];
    *out_shaped = garbage();
    if (strncmp(((state *)self)->lie, "refuses_", 8) == 0)
        return refuse(self, program, out_info);
    if (lies(self, "reshape_fails"))
        return GANTRY_DATA;
    if (lies(self, "reshape_endless"))
        return endless(err, GANTRY_PROVIDER);
    *out_shaped = NULL;
    if (lies(self, "reshape_null"))
        return GANTRY_OK;
    gantry_shaped *shaped = calloc(1, sizeof *shaped);
    shaped->count = elements(x);
    shaped->of_compile = program->recorder;
    shaped->in_tag = program->in_tag;
    shaped->out_tag = program->out_tag;
    shaped->nonzero = strcmp(node->op, "NonZero") == 0;
    shaped->plan = output_plan(self, shaped->count);
    out_info->output_plans = &shaped->plan;
    out_info->workspace_bytes = lies(self, "workspace_all")     ? SIZE_MAX
                                : lies(self, "workspace_half")  ? SIZE_MAX / 2
                                : lies(self, "workspace_large") ? (size_t)1 << 52
                                : lies(self, "alignment_4096")  ? 100
                                                                : 0;
    if (lies(self, "endless_sizes"))
        out_info->struct_bytes = SIZE_MAX;
    *out_shaped = shaped;
    return GANTRY_OK;
}

static void shaped_destroy(void *self, gantry_shaped *shaped)
{
    free(shaped);
}

static gantry_status context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                    gantry_error *err)
{
    *out_context = garbage();
    if (lies(self, "context_fails"))
        return GANTRY_RESOURCE;
    *out_context = lies(self, "context_null") ? NULL : malloc(sizeof **out_context);
    if (*out_context)
        (*out_context)->shaped = shaped;
    return GANTRY_OK;
}

static void context_destroy(void *self, gantry_context *context)
{
    free(context);
}

/* ---- the provider: a run --------------------------------------------------------------------- */

static void run_nonzero(const void *self, const float *x, int64_t count, const gantry_run_args *args)
{
    int64_t *y = (int64_t *)(void *)at(args->outputs[0]), *dims = args->true_dims[0], found = 0;
    for (int64_t k = 0; k < count; k++)
        if (x[k] != 0)
            y[found++] = k;
    if (!dims || lies(self, "size_untold"))
        return;
    dims[0] = lies(self, "size_other_axis") ? 2 : 1;
    dims[1] = lies(self, "size_negative") ? -1 : lies(self, "size_above") ? count + 1 : found;
    if (lies(self, "size_huge"))
        dims[1] = INT64_MAX;
}

static void report_times(const void *self, const gantry_run_args *args)
{
    if (!args->timing || !args->out_timing_count)
        return;
    *args->out_timing_count = lies(self, "timing_many") ? UINT32_MAX : args->timing_capacity ? 1 : 0;
    if (args->timing_capacity)
        args->timing[0] = (gantry_timing_event){lies(self, "timing_index") ? UINT32_MAX : 0, UINT64_MAX,
                                                lies(self, "kernel_bytes") ? UINT64_MAX : 5};
}

static gantry_status run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    static const struct {
        const char *lie;
        int status;
    } ENDS[] = {{"run_fails", GANTRY_PROVIDER}, {"run_status", 4711},
                {"run_negative", -1},           {"run_cancels", GANTRY_CANCELLED},
                {"run_late", GANTRY_DEADLINE},  {"run_endless", GANTRY_DATA}};
    for (size_t k = 0; k < sizeof ENDS / sizeof *ENDS; k++)
        if (lies(self, ENDS[k].lie))
            return lies(self, "run_endless") ? endless(err, GANTRY_DATA) : (gantry_status)ENDS[k].status;
    const float *x = (const float *)(void *)at(args->inputs[0]);
    const gantry_shaped *shaped = context->shaped;
    report_times(self, args);
    if (lies(self, "alignment_4096") && /* no lie: offsets are multiples of it */
        (args->inputs[0].offset_bytes | args->outputs[0].offset_bytes | args->workspace.offset_bytes) % 4096)
        return GANTRY_INTERNAL;
    if (lies(self, "records_late")) /* for the check of plugins: a real host has anything there now */
        record(self, shaped->of_compile);
    if (shaped->nonzero) {
        run_nonzero(self, x, shaped->count, args);
        return GANTRY_OK;
    }
    float *y = (float *)(void *)at(args->outputs[0]);
    x += shaped->in_tag ? 16 : 0;
    y += shaped->out_tag ? 16 : 0;
    for (int64_t k = 0; k < shaped->count; k++)
        y[!shaped->in_tag == !shaped->out_tag ? k : shaped->count - 1 - k] = -x[k];
    return GANTRY_OK;
}

static uint64_t memory(void *self, const gantry_program *program)
{
    return lies(self, "memory_all") ? UINT64_MAX : 16;
}

static void trim(void *self)
{
    ((state *)self)->trimmed = 1;
}

static uint32_t memory_classes(void *self, gantry_memory_class *out_classes, uint32_t capacity)
{
    if (!lies(self, "classes_many") && capacity) {
        snprintf(out_classes[0].name, sizeof out_classes[0].name, "cache");
        out_classes[0].bytes = ((const state *)self)->trimmed ? 0 : 100;
        return 1;
    }
    for (uint32_t k = 0; k < capacity; k++) {
        fill(out_classes[k].name, sizeof out_classes[k].name);
        fill(out_classes[k].domain, sizeof out_classes[k].domain);
        out_classes[k].bytes = UINT64_MAX;
    }
    return UINT32_MAX;
}

/* ---- programs that outlive the process ------------------------------------------------------- */

static gantry_status blob_save(void *self, const gantry_program *program, void **out_data, size_t *out_bytes,
                               gantry_error *err)
{
    const gantry_host *host = ((state *)self)->host;
    *out_data = lies(self, "blob_null")         ? NULL
                : lies(self, "blob_save_fails") ? garbage()
                                                : host->alloc(host, 64, 16);
    *out_bytes = lies(self, "blob_huge") ? SIZE_MAX : lies(self, "blob_empty") ? 0 : 64;
    if (*out_data && !lies(self, "blob_save_fails"))
        memset(*out_data, 1, 64);
    return lies(self, "blob_save_fails") ? (gantry_status)-7 : GANTRY_OK;
}

static gantry_status blob_load(void *self, const gantry_compile_args *args, const void *data, size_t bytes,
                               gantry_program **out_program, gantry_error *err)
{
    *out_program = lies(self, "blob_load_null") ? NULL : garbage();
    return lies(self, "blob_load_null") ? GANTRY_OK : endless(err, (gantry_status)321);
}

/* ---- an operator, whose shape rule lies ------------------------------------------------------ */

static gantry_status infer(void *self, const gantry_infer_args *args, gantry_error *err)
{
    const gantry_dim_table *dims = args->dims;
    gantry_dim n = args->input_dims[0][0];
    args->output_dtypes[0] = lies(self, "infer_dtype") ? (gantry_dtype)99 : GANTRY_FLOAT32;
    args->output_ranks[0] = lies(self, "infer_rank_99") ? 99 : lies(self, "infer_rank_minus_2") ? -2 : 1;
    args->output_dims[0][0] = lies(self, "infer_stranger")   ? 0x7fffffff
                              : lies(self, "infer_mixes")    ? dims->add(args->builder, n, 0x7ffffff0)
                              : lies(self, "infer_negative") ? dims->number(args->builder, -5)
                              : lies(self, "infer_zero")
                                  ? dims->floor_divide(args->builder, n, dims->number(args->builder, 0))
                              : lies(self, "infer_axis")    ? dims->at_most(args->builder, 0, 4000000000u, n)
                              : lies(self, "infer_output")  ? dims->at_most(args->builder, 77, 0, n)
                              : lies(self, "infer_element") ? dims->element(args->builder, 4000000000u, 7)
                                                            : n;
    if (lies(self, "infer_silent"))
        return GANTRY_MODEL_SHAPE;
    if (lies(self, "infer_status"))
        return (gantry_status)4711;
    return lies(self, "infer_endless") ? endless(err, GANTRY_MODEL_SHAPE) : GANTRY_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void fill_provider(state *s)
{
    int formats_lie = strncmp(s->lie, "format", 6) == 0, converts = lies(s, "format_huge") || has_layout(s);
    s->provider = (gantry_provider){.struct_bytes = sizeof s->provider,
                                    .self = s,
                                    .describe = describe,
                                    .judge = judge,
                                    .formats = formats_lie ? formats : NULL,
                                    .compile = compile,
                                    .program_destroy = program_destroy,
                                    .reshape = reshape,
                                    .shaped_destroy = shaped_destroy,
                                    .context_create = context_create,
                                    .context_destroy = context_destroy,
                                    .run = run,
                                    .format_bytes = converts ? format_bytes : NULL,
                                    .convert = converts ? convert : NULL,
                                    .convert_estimate_ns = converts ? convert_estimate_ns : NULL,
                                    .memory = memory,
                                    .trim = trim,
                                    .memory_classes = memory_classes};
    s->options[0] = (gantry_option_info){.struct_bytes = lies(s, "options_size_8") ? 8 : sizeof *s->options,
                                         .key = lies(s, "options_null") ? NULL : "key",
                                         .value = "value",
                                         .origin = (gantry_option_origin)99};
    s->operator=(gantry_operator){.struct_bytes = sizeof s->operator,
                                  .domain = "test.hostile",
                                  .name = "Lie",
                                  .since_version = 1,
                                  .input_min = 1,
                                  .input_max = 1,
                                  .output_min = 1,
                                  .output_max = 1,
                                  .self = s,
                                  .infer = infer};
    s->options[1] = (gantry_option_info){.struct_bytes = sizeof *s->options};
    if (strncmp(s->lie, "blob_", 5) == 0) {
        s->provider.blob_save = blob_save;
        s->provider.blob_load = blob_load;
    }
    if (strncmp(s->lie, "options_", 8) == 0) {
        s->provider.options = s->options;
        s->provider.option_count = 2;
    }
}

static void fill_domain(state *s)
{
    s->domain = (gantry_domain){.struct_bytes = sizeof s->domain,
                                .self = s,
                                .describe = domain_describe,
                                .alloc = domain_alloc,
                                .free = domain_free,
                                .queue_open = queue_open,
                                .queue_close = queue_close,
                                .queue_sync = queue_sync,
                                .copy = domain_copy,
                                .event_create = event_create,
                                .event_destroy = event_destroy,
                                .event_record = event_call,
                                .event_wait = event_call,
                                .event_sync = event_sync,
                                .event_elapsed = event_elapsed};
}

static void plugin_close(void *self)
{
    const gantry_host *host = ((state *)self)->host;
    host->log(host, 2, strstr(((state *)self)->lie, "joins") ? "joiner closes" : "hostile closes");
    free(self);
}

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err);

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err)
{
    state *s = calloc(1, sizeof *s);
    s->host = host;
    s->device = strncmp(host->config, "device ", 7) == 0;
    s->lie = host->config + (s->device ? 7 : 0);
    fill_provider(s);
    fill_domain(s);
    s->domains[0] = &s->domain;
    s->providers[0] = &s->provider;
    if (lies(s, "open_fails") || lies(s, "open_endless")) {
        int endless_words = lies(s, "open_endless");
        free(s);
        return endless_words ? endless(err, (gantry_status)1000) : GANTRY_PROVIDER;
    }
    *out_plugin = (gantry_plugin){.struct_bytes = sizeof *out_plugin,
                                  .abi = 1,
                                  .self = s,
                                  .name = "hostile",
                                  .version = "1.0",
                                  .domain_count = lies(s, "domains_many") ? UINT32_MAX : (uint32_t)s->device,
                                  .domains = s->domains,
                                  .provider_count = lies(s, "providers_many") ? UINT32_MAX : 1,
                                  .providers = lies(s, "providers_null") ? NULL : s->providers,
                                  .close = plugin_close};
    if (lies(s, "provider_null"))
        s->providers[0] = NULL;
    s->operators[0] = &s->operator;
    if (strncmp(s->lie, "infer_", 6) == 0) {
        out_plugin->operators = s->operators;
        out_plugin->operator_count = 1;
    }
    if (lies(s, "operators_many")) {
        out_plugin->operators = (const gantry_operator *const *)(const void *)s->providers;
        out_plugin->operator_count = UINT32_MAX;
    }
    return GANTRY_OK;
}
