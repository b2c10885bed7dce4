/* The example provider, broken in one way that the config text names: what `gantry plugin check` has to find.
 */
#include <gantry/provider.h>

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* The entry of examples/plugin/example.c, which is linked in under this name. */
gantry_status example_open(const gantry_host *host, uint32_t abi, gantry_plugin *out_plugin,
                           gantry_error *err);

/* One instance: the example's plugin, and a table in which some entries are ours. */
typedef struct broken {
    gantry_plugin inner;
    const gantry_provider *own; /* the example's */
    const gantry_host *host;
    const char *how;
    gantry_provider table;
    const gantry_provider *list[1];
    gantry_operator twice;
    const gantry_operator *operators[1];
    int calls;
} broken;

struct gantry_shaped {
    gantry_shaped *own; /* the example's */
    int64_t count;      /* elements of x and of y */
};

struct gantry_context {
    gantry_context *own;
    const gantry_shaped *shaped;
};

static int is(const void *self, const char *how)
{
    return strcmp(((const broken *)self)->how, how) == 0;
}

static gantry_status broken_describe(void *self, gantry_provider_info *out_info)
{
    broken *b = self;
    gantry_status status = b->own->describe(b->own->self, out_info);
    if (is(self, "describe_changes"))
        snprintf(out_info->version, sizeof out_info->version, "%d", b->calls++);
    if (is(self, "named_cpu"))
        snprintf(out_info->name, sizeof out_info->name, "cpu");
    return status;
}

static gantry_status broken_judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes,
                                  uint32_t count, gantry_verdict *out_verdict)
{
    broken *b = self;
    if (is(self, "judge_hangs"))
        for (;;)
            pause();
    if (is(self, "judge_reads_dims") && graph->values[0]->dims[0] == 12345)
        return GANTRY_INTERNAL;
    gantry_status status = b->own->judge(b->own->self, graph, nodes, count, out_verdict);
    if (is(self, "judge_impure"))
        out_verdict->estimate_ns += b->calls++;
    if (is(self, "judge_takes_all") && !out_verdict->supported)
        out_verdict->supported = 1;
    if (is(self, "judge_no_code") && !out_verdict->supported)
        memset(&out_verdict->refusal, 0, sizeof out_verdict->refusal);
    if (is(self, "judge_no_words") && !out_verdict->supported)
        gantry_refuse(out_verdict, GANTRY_REFUSE_no_kernel, "", "", "", "");
    return status;
}

static gantry_status out_of_memory(gantry_error *err)
{
    return gantry_fail(err, GANTRY_RESOURCE, "broken: out of memory");
}

static gantry_status broken_compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                                    gantry_error *err)
{
    broken *b = self;
    uint32_t stranger = 4711;
    gantry_kernel_record record = {.struct_bytes = sizeof record,
                                   .op = "LeakyRelu",
                                   .name = "x",
                                   .node_count = 1,
                                   .node_ids = &stranger};
    if (is(self, "compile_fails"))
        return gantry_fail(err, GANTRY_PROVIDER, "not today");
    if (is(self, "record_stranger"))
        b->host->record_kernel(args->recorder, &record);
    if (is(self, "compile_ignores_memory")) {
        char *scratch = b->host->alloc(b->host, 100, 16);
        scratch[0] = 1;
        b->host->free(b->host, scratch);
    }
    if (is(self, "block_overrun")) {
        char *scratch = b->host->alloc(b->host, 100, 16);
        if (!scratch)
            return out_of_memory(err);
        scratch[100] = 1;
        b->host->free(b->host, scratch);
    }
    if (is(self, "compile_leaks")) {
        void *first = b->host->alloc(b->host, 100, 16);
        void *second = first ? b->host->alloc(b->host, 100, 16) : NULL;
        if (!second)
            return out_of_memory(err);
        b->host->free(b->host, second);
        b->host->free(b->host, first);
    }
    return b->own->compile(b->own->self, args, out_program, err);
}

static gantry_status broken_reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                                    gantry_shaped **out_shaped, gantry_shaped_info *out_info,
                                    gantry_error *err)
{
    broken *b = self;
    if (is(self, "reshape_refuses") && args->shapes[0].dims[0] == 17)
        return gantry_fail(err, GANTRY_UNSUPPORTED, "17 is no number");
    gantry_shaped *shaped = b->host->alloc(b->host, sizeof *shaped, 16);
    if (!shaped)
        return out_of_memory(err);
    shaped->count = gantry_shape_elements(&args->shapes[0]);
    gantry_status status = b->own->reshape(b->own->self, program, args, &shaped->own, out_info, err);
    if (status == GANTRY_OK)
        *out_shaped = shaped;
    else
        b->host->free(b->host, shaped);
    return status;
}

static void broken_shaped_destroy(void *self, gantry_shaped *shaped)
{
    broken *b = self;
    b->own->shaped_destroy(b->own->self, shaped->own);
    b->host->free(b->host, shaped);
}

static gantry_status broken_context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                           gantry_error *err)
{
    broken *b = self;
    gantry_context *context = b->host->alloc(b->host, sizeof *context, 16);
    if (!context)
        return out_of_memory(err);
    context->shaped = shaped;
    gantry_status status = b->own->context_create(b->own->self, shaped->own, &context->own, err);
    if (status == GANTRY_OK)
        *out_context = context;
    else
        b->host->free(b->host, context);
    return status;
}

static void broken_context_destroy(void *self, gantry_context *context)
{
    broken *b = self;
    b->own->context_destroy(b->own->self, context->own);
    b->host->free(b->host, context);
}

static float *scratch_of_all;
static volatile int *volatile nowhere;

static gantry_status broken_run(void *self, gantry_context *context, const gantry_run_args *args,
                                gantry_error *err)
{
    broken *b = self;
    if (is(self, "run_crashes"))
        *nowhere = 1;
    if (is(self, "run_exits"))
        _exit(3);
    gantry_status status = b->own->run(b->own->self, context->own, args, err);
    float *y = (float *)(void *)((char *)args->outputs[0].handle + args->outputs[0].offset_bytes);
    float *x = (float *)(void *)((char *)args->inputs[0].handle + args->inputs[0].offset_bytes);
    int64_t count = context->shaped->count;
    if (is(self, "run_wrong") && count > 3)
        y[3] += 0.5f;
    if (is(self, "run_overruns"))
        y[count] = 0;
    if (is(self, "run_writes_input") && count)
        x[0] = 3;
    if (is(self, "run_times_too_much") && args->timing && count)
        args->timing[0].duration_ns += 1000000000u;
    if (is(self, "run_shares_scratch") && count) {
        float *mine = malloc((size_t)count * sizeof *mine);
        memcpy(mine, y, (size_t)count * sizeof *mine);
        scratch_of_all = mine;
        usleep(300);
        memcpy(y, scratch_of_all,
               (size_t)count * sizeof *mine); /* leaked: whoever is last may still read it */
    }
    return status;
}

/* y[2 * n, c] from x[n, c]; the attribute "more" is added to n. */
static gantry_status infer_twice(const broken *b, const gantry_infer_args *args, int64_t more,
                                 gantry_error *err)
{
    const gantry_dim_table *dims = args->dims;
    gantry_dim rows = args->input_dims[0][0], *y = args->output_dims[0];
    int64_t number;
    args->output_dtypes[0] = args->input_dtypes[0];
    if (args->input_ranks[0] == -1 && !is(b, "shapes_refuse_unknown"))
        return GANTRY_OK;
    if (args->input_ranks[0] != 2)
        return gantry_fail(err, GANTRY_MODEL_SHAPE, "x has to have two dims");
    rows = dims->multiply(args->builder, rows, dims->number(args->builder, 2));
    if (is(b, "shapes_take_one") && !dims->is_number(args->builder, rows, &number))
        rows = dims->number(args->builder, 1);
    args->output_ranks[0] = 2;
    y[0] = dims->add(args->builder, rows, dims->number(args->builder, more));
    y[1] = is(b, "shapes_strange_extent") ? 77777 : args->input_dims[0][1];
    if (is(b, "shapes_elements"))
        y[1] = dims->element(args->builder, 0, 1);
    if (is(b, "shapes_overrun"))
        y[GANTRY_MAX_RANK] = y[0];
    return GANTRY_OK;
}

static gantry_status broken_infer(void *self, const gantry_infer_args *args, gantry_error *err)
{
    broken *b = self;
    gantry_node_view node = {.attribute_count = args->attribute_count, .attributes = args->attributes};
    for (uint32_t a = 0; is(b, "shapes_step") && a < args->attribute_count; a++)
        if (strcmp(args->attributes[a].name, "more") == 0)
            return GANTRY_MODEL_TYPE;
    gantry_status status = infer_twice(b, args, gantry_node_int(&node, "more", 0), err);
    if (is(b, "shapes_impure") && b->calls++ % 2)
        args->output_ranks[0] = -1;
    if (status != GANTRY_OK && is(b, "shapes_no_words") && err)
        *err->message = 0;
    if (status != GANTRY_OK && is(b, "shapes_need_words"))
        snprintf(err->message, sizeof err->message, "two dims, please");
    return status != GANTRY_OK && is(b, "shapes_status") ? GANTRY_INTERNAL : status;
}

static void broken_close(void *self)
{
    broken *b = self;
    b->inner.close(b->inner.self);
    if (!is(self, "close_leaks"))
        b->host->free(b->host, b);
}

static void broken_program_destroy(void *self, gantry_program *program)
{
    const gantry_provider *own = ((broken *)self)->own;
    own->program_destroy(own->self, program);
}

static void spoil_open(const gantry_host *host, const char *how, gantry_plugin *out_plugin)
{
    if (strcmp(how, "open_crashes") == 0)
        abort();
    if (strcmp(how, "open_keeps_file") == 0 && open("/dev/null", O_RDONLY) < 0)
        return;
    if (strcmp(how, "open_leaks") == 0)
        scratch_of_all = malloc(100000);
    if (strcmp(how, "open_asks_nobody") == 0 && host->cache_get && !host->packed_get)
        return;
    if (strcmp(how, "open_writes_all") == 0)
        memset(out_plugin + 0, 0, sizeof *out_plugin);
}

gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi, gantry_plugin *out_plugin,
                                 gantry_error *err)
{
    const char *how = host->config;
    spoil_open(host, how, out_plugin);
    broken *b = host->alloc(host, sizeof *b, 16);
    if (!b)
        return out_of_memory(err);
    *b = (broken){.inner = {.struct_bytes = sizeof b->inner}, .host = host, .how = how};
    gantry_status status =
        example_open(host, abi == 0 && strcmp(how, "takes_abi_0") == 0 ? 1 : abi, &b->inner, err);
    if (status != GANTRY_OK) {
        if (strcmp(how, "failed_open_leaks") != 0)
            host->free(host, b);
        if (strcmp(how, "open_no_words") == 0 && err)
            *err->message = 0;
        return status;
    }
    b->own = b->inner.providers[0];
    b->table = *b->own;
    b->table.self = b;
    b->table.describe = broken_describe;
    b->table.judge = broken_judge;
    b->table.compile = broken_compile;
    b->table.program_destroy = broken_program_destroy;
    b->table.reshape = broken_reshape;
    b->table.shaped_destroy = broken_shaped_destroy;
    b->table.context_create = broken_context_create;
    b->table.context_destroy = broken_context_destroy;
    b->table.run = broken_run;
    b->list[0] = &b->table;
    b->twice = (gantry_operator){.struct_bytes = sizeof b->twice,
                                 .domain = "test.broken",
                                 .name = "Twice",
                                 .since_version = 1,
                                 .input_min = 1,
                                 .input_max = 1,
                                 .output_min = 1,
                                 .output_max = 1,
                                 .self = b,
                                 .infer = broken_infer};
    b->operators[0] = &b->twice;
    gantry_plugin plugin = b->inner;
    plugin.operator_count = 1;
    plugin.operators = b->operators;
    plugin.self = b;
    plugin.providers = b->list;
    plugin.close = broken_close;
    return gantry_plugin_fill(out_plugin, &plugin);
}
