/* A provider that brings operators of its own, for tests: test.own.RepeatRows, whose second input decides the
 * size of the result, and test.own.KeepPositive, whose size comes with the data. In host memory, float32. */
#include <gantry/provider.h>

#include <stdlib.h>

GANTRY_MANIFEST("own_operators", "1.0", "", "");

/* ---- shape rules ----------------------------------------------------------------------------- */

/* y[r * n + extra, c] from x[r, c] and n[1]; extra is an attribute, 0 when absent. */
static gantry_status infer_repeat(void *self, const gantry_infer_args *args, gantry_error *err)
{
    const gantry_dim_table *dims = args->dims;
    gantry_node_view node = {.attribute_count = args->attribute_count, .attributes = args->attributes};
    int64_t extra = gantry_node_int(&node, "extra", 0);
    (void)self;
    if (args->input_dtypes[0] != GANTRY_FLOAT32)
        return gantry_fail(err, GANTRY_MODEL_TYPE, "x has to be float32");
    if (args->input_ranks[0] != 2 && args->input_ranks[0] != -1)
        return gantry_fail(err, GANTRY_MODEL_SHAPE, "x has to have two dims");
    gantry_dim rows =
        dims->multiply(args->builder, args->input_dims[0][0], dims->element(args->builder, 1, 0));
    args->output_dtypes[0] = GANTRY_FLOAT32;
    args->output_ranks[0] = 2;
    args->output_dims[0][0] = dims->add(args->builder, rows, dims->number(args->builder, extra));
    args->output_dims[0][1] = args->input_dims[0][1];
    return GANTRY_OK;
}

/* y[m] from x[n], m <= n. */
static gantry_status infer_keep(void *self, const gantry_infer_args *args, gantry_error *err)
{
    (void)self;
    if (args->input_ranks[0] != 1 && args->input_ranks[0] != -1)
        return gantry_fail(err, GANTRY_MODEL_SHAPE, "x has to have one dim");
    args->output_dtypes[0] = args->input_dtypes[0];
    args->output_ranks[0] = 1;
    args->output_dims[0][0] = args->dims->at_most(args->builder, 0, 0, args->input_dims[0][0]);
    return GANTRY_OK;
}

static const gantry_operator repeat_operator = {.struct_bytes = sizeof repeat_operator,
                                                .domain = "test.own",
                                                .name = "RepeatRows",
                                                .since_version = 2,
                                                .input_min = 2,
                                                .input_max = 2,
                                                .output_min = 1,
                                                .output_max = 1,
                                                .shape_inputs = 1u << 1,
                                                .infer = infer_repeat};
static const gantry_operator keep_operator = {.struct_bytes = sizeof keep_operator,
                                              .domain = "test.own",
                                              .name = "KeepPositive",
                                              .since_version = 1,
                                              .input_min = 1,
                                              .input_max = 1,
                                              .output_min = 1,
                                              .output_max = 1,
                                              .infer = infer_keep};
static const gantry_operator *const operators[] = {&repeat_operator, &keep_operator};

/* ---- the provider: one node a program -------------------------------------------------------- */

struct gantry_program {
    const gantry_graph_view *graph;
};

struct gantry_shaped {
    const gantry_node_view *node;
    int64_t x_count, y_count;
};

struct gantry_context {
    const gantry_shaped *shaped;
};

static gantry_status describe(void *self, gantry_provider_info *out_info)
{
    (void)self;
    snprintf(out_info->name, sizeof out_info->name, "own");
    snprintf(out_info->version, sizeof out_info->version, "1.0");
    return GANTRY_OK;
}

static gantry_status judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    const gantry_node_view *node = graph->nodes[nodes[0]];
    (void)self;
    if (count != 1 || strcmp(node->domain, "test.own") != 0) {
        gantry_refuse(out_verdict, GANTRY_REFUSE_no_kernel, node->op, node->op, "an operator of test.own",
                      "");
        return GANTRY_OK;
    }
    out_verdict->supported = 1;
    out_verdict->estimate_ns = 1000;
    out_verdict->estimate_source = 'a';
    return GANTRY_OK;
}

static gantry_status compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err)
{
    (void)self;
    if (args->graph->node_count != 1)
        return gantry_fail(err, GANTRY_UNSUPPORTED, "one node a program");
    *out_program = malloc(sizeof **out_program);
    if (!*out_program)
        return GANTRY_RESOURCE;
    (*out_program)->graph = args->graph;
    return GANTRY_OK;
}

static void program_destroy(void *self, gantry_program *program)
{
    (void)self;
    free(program);
}

static int64_t count_of(const gantry_shape *shape)
{
    int64_t count = 1;
    for (uint32_t d = 0; d < shape->rank; d++)
        count *= shape->dims[d];
    return count;
}

static gantry_status reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    const gantry_node_view *node = program->graph->nodes[0];
    (void)self, (void)out_info, (void)err;
    *out_shaped = malloc(sizeof **out_shaped);
    if (!*out_shaped)
        return GANTRY_RESOURCE;
    **out_shaped = (gantry_shaped){node, count_of(&args->shapes[node->inputs[0]]),
                                   count_of(&args->shapes[node->outputs[0]])};
    return GANTRY_OK;
}

static void shaped_destroy(void *self, gantry_shaped *shaped)
{
    (void)self;
    free(shaped);
}

static gantry_status context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                    gantry_error *err)
{
    (void)self, (void)err;
    *out_context = malloc(sizeof **out_context);
    if (!*out_context)
        return GANTRY_RESOURCE;
    (*out_context)->shaped = shaped;
    return GANTRY_OK;
}

static void context_destroy(void *self, gantry_context *context)
{
    (void)self;
    free(context);
}

static gantry_status run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    const gantry_shaped *s = context->shaped;
    const float *x = (const void *)((const char *)args->inputs[0].handle + args->inputs[0].offset_bytes);
    float *y = (void *)((char *)args->outputs[0].handle + args->outputs[0].offset_bytes);
    (void)self, (void)err;
    if (strcmp(s->node->op, "RepeatRows") == 0) {
        for (int64_t k = 0; k < s->y_count; k++)
            y[k] = s->x_count ? x[k % s->x_count] : 0;
        return GANTRY_OK;
    }
    int64_t kept = 0;
    for (int64_t k = 0; k < s->x_count; k++)
        if (x[k] > 0)
            y[kept++] = x[k];
    *args->true_dims[0] = kept;
    return GANTRY_OK;
}

static const gantry_provider provider = {.struct_bytes = sizeof provider,
                                         .describe = describe,
                                         .judge = judge,
                                         .compile = compile,
                                         .program_destroy = program_destroy,
                                         .reshape = reshape,
                                         .shaped_destroy = shaped_destroy,
                                         .context_create = context_create,
                                         .context_destroy = context_destroy,
                                         .run = run};
static const gantry_provider *const providers[] = {&provider};

/* config "twice": the same operator twice, "no_rule": one without a rule, "ours": one that Gantry has. */
static void spoil(gantry_plugin *plugin, const char *config)
{
    static gantry_operator bad;
    static const gantry_operator *const twice[] = {&repeat_operator, &repeat_operator};
    static const gantry_operator *const one[] = {&bad};
    bad = keep_operator;
    if (strcmp(config, "twice") == 0) {
        plugin->operators = twice;
        return;
    }
    if (strcmp(config, "no_rule") == 0)
        bad.infer = NULL;
    else if (strcmp(config, "ours") == 0)
        bad.domain = "com.microsoft", bad.name = "QLinearAdd";
    else if (strcmp(config, "reserved") == 0)
        bad.domain = "gantry";
    else
        return;
    plugin->operators = one;
    plugin->operator_count = 1;
}

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *given, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err);

gantry_status gantry_plugin_open(const gantry_host *given, uint32_t abi, gantry_plugin *out_plugin,
                                 gantry_error *err)
{
    if (abi < 1 || out_plugin->struct_bytes < sizeof *out_plugin)
        return gantry_fail(err, GANTRY_PROVIDER, "needs a host that knows operators of plugins");
    *out_plugin = (gantry_plugin){.struct_bytes = sizeof *out_plugin,
                                  .abi = 1,
                                  .name = "own_operators",
                                  .version = "1.0",
                                  .provider_count = 1,
                                  .providers = providers,
                                  .operator_count = 2,
                                  .operators = operators};
    spoil(out_plugin, given->config);
    return GANTRY_OK;
}
