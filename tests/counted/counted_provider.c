/* The inner provider under another name, which takes the operators and the shapes of the configuration. */
#include "counted.h"

#include <stdlib.h>

struct gantry_program {
    void *inner; /* the other plugin's gantry_program */
    const gantry_graph_view *graph;
};

static gantry_status describe(void *self, gantry_provider_info *out_info)
{
    counted_device *d = self;
    gantry_status status = d->inner->describe(d->inner->self, out_info);
    snprintf(out_info->name, sizeof out_info->name, "%s", d->config->name);
    snprintf(out_info->domain, sizeof out_info->domain, "%s", d->config->domain);
    return status;
}

/* ---- what it takes --------------------------------------------------------------------------- */

static bool takes(const fake_config *config, const gantry_graph_view *graph, const gantry_node_view *node)
{
    const gantry_value_view *first = gantry_node_input(graph, node, 0);
    for (uint32_t k = 0; first && k < config->op_count; k++)
        for (uint32_t t = 0; t < config->ops[k].type_count; t++)
            if (strcmp(config->ops[k].name, node->op) == 0 && config->ops[k].types[t] == first->dtype)
                return true;
    return false;
}

static bool breaks_limit(const fake_config *config, const gantry_graph_view *graph,
                         const gantry_node_view *node, const gantry_shape *shapes,
                         gantry_refusal *out_refusal)
{
    for (uint32_t k = 0; k < config->limit_count; k++) {
        const fake_limit *limit = &config->limits[k];
        if (strcmp(limit->op, node->op) != 0 || limit->input >= node->input_count)
            continue;
        const gantry_shape *shape = &shapes[node->inputs[limit->input]];
        int64_t axis = limit->axis < 0 ? (int64_t)shape->rank + limit->axis : limit->axis;
        if (axis < 0 || axis >= shape->rank || shape->dims[axis] <= limit->max)
            continue;
        gantry_verdict verdict = {.struct_bytes = sizeof verdict};
        char actual[32], required[32];
        snprintf(actual, sizeof actual, "%lld", (long long)shape->dims[axis]);
        snprintf(required, sizeof required, "at most %lld", (long long)limit->max);
        gantry_refuse(&verdict, GANTRY_REFUSE_shape_limit, node->op, actual, required, "");
        *out_refusal = verdict.refusal;
        return true;
    }
    return false;
}

static gantry_status judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    counted_device *d = self;
    for (uint32_t k = 0; k < count; k++) {
        const gantry_node_view *node = graph->nodes[nodes[k]];
        if (takes(d->config, graph, node))
            continue;
        gantry_refuse(out_verdict, node->body_count ? GANTRY_REFUSE_control_flow : GANTRY_REFUSE_no_kernel,
                      node->op, "", "an operator of the configuration", "");
        return GANTRY_OK;
    }
    return d->inner->judge(d->inner->self, graph, nodes, count, out_verdict);
}

/* ---- programs -------------------------------------------------------------------------------- */

static void program_destroy(void *self, gantry_program *program)
{
    counted_device *d = self;
    if (program && program->inner)
        d->inner->program_destroy(d->inner->self, program->inner);
    free(program);
}

static gantry_status compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                             gantry_error *err)
{
    counted_device *d = self;
    gantry_program *program = calloc(1, sizeof *program), *inner = NULL;
    *out_program = NULL;
    if (!program)
        return fake_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_COMPILE, "counted device: out of memory");
    atomic_fetch_add(&d->counters->compiles, 1);
    program->graph = args->graph;
    gantry_status status = d->inner->compile(d->inner->self, args, &inner, err);
    program->inner = inner;
    if (status != GANTRY_OK) {
        free(program);
        return status;
    }
    *out_program = program;
    return GANTRY_OK;
}

static gantry_status reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    counted_device *d = self;
    const gantry_graph_view *graph = program->graph;
    atomic_fetch_add(&d->counters->reshapes, 1);
    *out_shaped = NULL;
    out_info->refused_count = 0;
    for (uint32_t n = 0; n < graph->node_count && out_info->refused_count < 16; n++)
        if (breaks_limit(d->config, graph, graph->nodes[n], args->shapes, &out_info->refusal))
            out_info->refused_nodes[out_info->refused_count++] = graph->nodes[n]->id;
    if (out_info->refused_count)
        return fake_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, "counted device: past a limit");
    return d->inner->reshape(d->inner->self, program->inner, args, out_shaped, out_info, err);
}

static void shaped_destroy(void *self, gantry_shaped *shaped)
{
    const gantry_provider *inner = ((counted_device *)self)->inner;
    inner->shaped_destroy(inner->self, shaped);
}

static gantry_status context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                    gantry_error *err)
{
    const gantry_provider *inner = ((counted_device *)self)->inner;
    return inner->context_create(inner->self, shaped, out_context, err);
}

static void context_destroy(void *self, gantry_context *context)
{
    const gantry_provider *inner = ((counted_device *)self)->inner;
    inner->context_destroy(inner->self, context);
}

static gantry_status run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err)
{
    counted_device *d = self;
    atomic_fetch_add(&d->counters->runs, 1);
    return d->inner->run(d->inner->self, context, args, err);
}

void counted_provider_table(counted_device *device)
{
    device->provider = (gantry_provider){.struct_bytes = sizeof device->provider,
                                         .self = device,
                                         .describe = describe,
                                         .judge = judge,
                                         .compile = compile,
                                         .program_destroy = program_destroy,
                                         .reshape = reshape,
                                         .shaped_destroy = shaped_destroy,
                                         .context_create = context_create,
                                         .context_destroy = context_destroy,
                                         .run = run,
                                         .options = device->inner->options,
                                         .option_count = device->inner->option_count};
}
