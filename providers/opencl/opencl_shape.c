/* Reshaping: a program for one set of shapes. Every node adds its launches, every value gets its place, the
 * workspace is planned. */
#include "opencl_program.h"

/* ---- an empty one ---------------------------------------------------------------------------- */

void opencl_shaped_free(gantry_shaped *shaped)
{
    if (!shaped)
        return;
    const opencl_device *device = shaped->program->device;
    for (uint32_t p = 0; shaped->places && p < shaped->place_count; p++)
        if (shaped->places[p].memory)
            clReleaseMemObject(shaped->places[p].memory);
    for (uint32_t k = 0; k < shaped->launch_count; k++)
        if (shaped->launches[k].site)
            opencl_site_drop(shaped->program->device, shaped->launches[k].site);
    opencl_free(device, shaped->places);
    opencl_free(device, shaped->launches);
    opencl_free(device, shaped->arguments);
    opencl_free(device, shaped->data);
    opencl_free(device, shaped->run_at);
    opencl_free(device, shaped->chained);
    opencl_free(device, shaped->output_plans);
    opencl_free(device, shaped);
}

gantry_status opencl_shaped_new(gantry_program *program, gantry_shaped **out_shaped, gantry_error *err)
{
    const gantry_graph_view *graph = program->graph;
    gantry_shaped *shaped = opencl_alloc(program->device, 1, sizeof *shaped);
    *out_shaped = NULL;
    if (!shaped)
        return opencl_out_of_memory(err);
    shaped->program = program;
    shaped->places = opencl_alloc(program->device, graph->value_count, sizeof *shaped->places);
    shaped->output_plans = opencl_alloc(program->device, graph->output_count, sizeof *shaped->output_plans);
    shaped->run_at = opencl_alloc(program->device, graph->node_count, sizeof *shaped->run_at);
    shaped->chained = opencl_alloc(program->device, graph->node_count, sizeof *shaped->chained);
    if (!shaped->places || !shaped->output_plans || !shaped->run_at || !shaped->chained) {
        opencl_shaped_free(shaped);
        return opencl_out_of_memory(err);
    }
    shaped->place_count = shaped->place_capacity = graph->value_count;
    for (uint32_t k = 0; k < graph->output_count; k++)
        shaped->output_plans[k] = (gantry_output_plan){-1, 0, -1};
    for (uint32_t v = 0; v < graph->value_count; v++)
        shaped->places[v].view_of = GANTRY_NO_ID;
    for (uint32_t n = 0; n < graph->node_count; n++)
        shaped->run_at[n] = n;
    *out_shaped = shaped;
    return GANTRY_OK;
}

/* ---- where values lie ------------------------------------------------------------------------ */

static size_t shape_bytes(gantry_dtype dtype, gantry_shape shape)
{
    size_t bytes = opencl_dtype_bytes(dtype);
    for (uint32_t k = 0; k < shape.rank; k++)
        bytes *= (size_t)shape.dims[k];
    return bytes;
}

static bool reads_on_host(const gantry_node_view *node, uint32_t input)
{
    const opencl_op *op = opencl_op_find(node);
    return op && input < 32 && op->host_inputs >> input & 1;
}

/* A value that the host computed for this shape and that nobody hands to a run, but kernels read. */
static gantry_status keep_host_value(gantry_shaped *shaped, uint32_t value, const void *data,
                                     gantry_error *err)
{
    opencl_place *place = &shaped->places[value];
    cl_int result;
    place->kind = OPENCL_PLACE_FIXED;
    if (!place->bytes)
        return GANTRY_OK;
    place->memory = clCreateBuffer(shaped->program->device->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                                   place->bytes, (void *)data, &result);
    return opencl_check(result, "clCreateBuffer", err);
}

static bool is_made_inside(const gantry_graph_view *graph, uint32_t value)
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
    const gantry_graph_view *graph = shaped->program->graph;
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->input_count; k++) {
            uint32_t value = graph->nodes[n]->inputs[k];
            if (value == GANTRY_NO_ID || shaped->places[value].kind != OPENCL_PLACE_NONE ||
                !args->host_values || !args->host_values[value] || reads_on_host(graph->nodes[n], k) ||
                is_made_inside(graph, value))
                continue;
            gantry_status status = keep_host_value(shaped, value, args->host_values[value], err);
            if (status != GANTRY_OK)
                return status;
        }
    return GANTRY_OK;
}

static gantry_status place_values(gantry_shaped *shaped, const gantry_reshape_args *args, gantry_error *err)
{
    const gantry_program *program = shaped->program;
    const gantry_graph_view *graph = program->graph;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        opencl_place *place = &shaped->places[v];
        place->bytes = shape_bytes(graph->values[v]->dtype, args->shapes[v]);
        if (graph->values[v]->constant_id == GANTRY_NO_ID)
            continue;
        place->kind = OPENCL_PLACE_FIXED;
        place->memory = program->constants[v].memory;
        if (place->memory)
            clRetainMemObject(place->memory);
    }
    for (uint32_t k = 0; k < graph->output_count; k++) {
        shaped->places[graph->outputs[k]].kind = OPENCL_PLACE_OUTPUT;
        shaped->places[graph->outputs[k]].index = k;
    }
    for (uint32_t k = 0; k < graph->input_count; k++) {
        shaped->places[graph->inputs[k]].kind = OPENCL_PLACE_INPUT;
        shaped->places[graph->inputs[k]].index = k;
    }
    return keep_host_values(shaped, args, err);
}

/* ---- the workspace --------------------------------------------------------------------------- */

static void keep_until(opencl_place *place, uint32_t node)
{
    if (place->last < node)
        place->last = node;
}

/* From the node that makes a value, or the first view of it, to its last reader. Scratch knows already; what
 * lies inside of a chain lies nowhere. */
static void measure_lifetimes(gantry_shaped *shaped)
{
    const gantry_graph_view *graph = shaped->program->graph;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        uint32_t at = shaped->run_at[n];
        for (uint32_t k = 0; k < graph->nodes[n]->output_count; k++) {
            uint32_t value = graph->nodes[n]->outputs[k];
            if (value == GANTRY_NO_ID || at != n)
                continue;
            uint32_t root = opencl_place_root(shaped, value, NULL);
            if (root == value) {
                shaped->places[root].first = n;
                shaped->places[root].made = true;
            }
            keep_until(&shaped->places[root], n);
        }
        for (uint32_t k = 0; k < graph->nodes[n]->input_count; k++)
            if (graph->nodes[n]->inputs[k] != GANTRY_NO_ID)
                keep_until(&shaped->places[opencl_place_root(shaped, graph->nodes[n]->inputs[k], NULL)], at);
    }
}

static bool needs_workspace(const opencl_place *place)
{
    return place->made && place->kind == OPENCL_PLACE_NONE && place->view_of == GANTRY_NO_ID;
}

static gantry_status plan_workspace(gantry_shaped *shaped, gantry_error *err)
{
    const opencl_device *device = shaped->program->device;
    const gantry_host *host = device->host;
    uint32_t count = shaped->place_count;
    uint32_t *first = opencl_alloc(device, 2 * (size_t)count, sizeof *first),
             *last = first ? first + count : NULL;
    size_t *bytes = opencl_alloc(device, 2 * (size_t)count, sizeof *bytes),
           *offsets = bytes ? bytes + count : NULL;
    gantry_status status = first && bytes ? GANTRY_OK : opencl_out_of_memory(err);
    if (first && bytes) {
        measure_lifetimes(shaped);
        for (uint32_t p = 0; p < count; p++) {
            bytes[p] = needs_workspace(&shaped->places[p]) ? shaped->places[p].bytes : 0;
            first[p] = shaped->places[p].first;
            last[p] = shaped->places[p].last;
        }
        status = host->plan_memory(host, count, bytes, first, last, offsets, &shaped->workspace_bytes, err);
    }
    for (uint32_t p = 0; offsets && status == GANTRY_OK && p < count; p++)
        if (needs_workspace(&shaped->places[p])) {
            shaped->places[p].kind = OPENCL_PLACE_WORKSPACE;
            shaped->places[p].offset_bytes = offsets[p];
        }
    opencl_free(device, first);
    opencl_free(device, bytes);
    return status;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void give_host_inputs(const gantry_program *program, const gantry_reshape_args *args,
                             opencl_node *node)
{
    for (uint32_t k = 0; k < node->input_count && k < 32; k++) {
        uint32_t value = node->inputs[k].value;
        if (!(node->op->host_inputs >> k & 1) || value == GANTRY_NO_ID)
            continue;
        node->inputs[k].host = program->constants[value].host;
        if (!node->inputs[k].host && args->host_values)
            node->inputs[k].host = args->host_values[value];
    }
}

static void refuse_node(const gantry_node_view *node, const gantry_verdict *verdict,
                        gantry_shaped_info *out_info)
{
    if (out_info->refused_count == 0)
        out_info->refusal = verdict->refusal;
    if (out_info->refused_count < 16)
        out_info->refused_nodes[out_info->refused_count++] = node->id;
}

/* Launches of all nodes; nodes that don't take these shapes are refused together. */
static gantry_status prepare_nodes(opencl_build *build, const gantry_reshape_args *args,
                                   gantry_shaped_info *out_info)
{
    const gantry_program *program = build->shaped->program;
    const gantry_graph_view *graph = program->graph;
    out_info->refused_count = 0;
    for (uint32_t n = 0; n < graph->node_count && build->status == GANTRY_OK; n++) {
        gantry_verdict verdict = {.struct_bytes = sizeof verdict};
        opencl_node node;
        build->node = n;
        bool taken =
            opencl_node_fill(build->device, graph, graph->nodes[n], args->shapes, false, &node, &verdict);
        if (taken) {
            give_host_inputs(program, args, &node);
            taken = opencl_node_takes(&node, &verdict);
        }
        if (!taken)
            refuse_node(graph->nodes[n], &verdict, out_info);
        else if (out_info->refused_count == 0)
            opencl_chain_prepare(build, &node);
    }
    if (build->status != GANTRY_OK || out_info->refused_count == 0)
        return build->status;
    const gantry_refusal *r = &out_info->refusal;
    return opencl_fail(build->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, "opencl: %s: %s, and it takes %s",
                       r->operand, r->actual, r->required);
}

/* ---- for the report -------------------------------------------------------------------------- */

/* Narrow floats are only stored. */
static gantry_dtype accumulates_in(const gantry_value_view *in)
{
    bool narrow = in && (in->dtype == GANTRY_FLOAT16 || in->dtype == GANTRY_BFLOAT16);
    return narrow ? GANTRY_FLOAT32 : in ? in->dtype : GANTRY_UNDEFINED;
}

static void record_launch(const gantry_shaped *shaped, uint32_t index, gantry_recorder *recorder)
{
    const opencl_launch *launch = &shaped->launches[index];
    const gantry_graph_view *graph = shaped->program->graph;
    const gantry_node_view *node = graph->nodes[launch->node];
    const gantry_value_view *in = gantry_node_input(graph, node, 0),
                            *out = gantry_node_output(graph, node, 0);
    char name[64], op[160] = "";
    uint32_t ids[OPENCL_MAX_STEPS] = {node->id}, count = launch->chain_count ? launch->chain_count : 1;
    size_t used = 0;
    for (uint32_t k = 0; k < launch->chain_count; k++) {
        const gantry_node_view *part = graph->nodes[shaped->chained[launch->chain_begin + k]];
        ids[k] = part->id;
        used += (size_t)snprintf(op + used, sizeof op - used, "%s%.11s", k ? "+" : "", part->op);
    }
    snprintf(name, sizeof name, "opencl:%s", launch->variant);
    gantry_kernel_record record = {.struct_bytes = sizeof record,
                                   .index = index,
                                   .op = launch->chain_count ? op : node->op,
                                   .name = name,
                                   .isa = shaped->program->device->device_name,
                                   .layout = "plain",
                                   .node_count = count,
                                   .node_ids = ids,
                                   .precision_in = in ? in->dtype : GANTRY_UNDEFINED,
                                   .precision_out = out ? out->dtype : GANTRY_UNDEFINED,
                                   .accumulate = accumulates_in(in),
                                   .bytes = launch->bytes,
                                   .flops = launch->flops};
    shaped->program->device->host->record_kernel(recorder, &record);
}

/* ---- reshape --------------------------------------------------------------------------------- */

static void shaped_destroy(void *self, gantry_shaped *shaped)
{
    opencl_shaped_free(shaped);
}

static gantry_status reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                             gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err)
{
    gantry_shaped *shaped = NULL;
    *out_shaped = NULL;
    gantry_status status = opencl_shaped_new(program, &shaped, err);
    if (status != GANTRY_OK || !shaped)
        return status;
    opencl_build build = {.device = self, .shaped = shaped, .err = err};
    status = place_values(shaped, args, err);
    if (status == GANTRY_OK) {
        opencl_chains_plan(&build, args->shapes, args->recorder);
        status = build.status;
    }
    if (status == GANTRY_OK)
        status = prepare_nodes(&build, args, out_info);
    opencl_chains_free(&build);
    if (status == GANTRY_OK)
        status = plan_workspace(shaped, err);
    if (status == GANTRY_OK)
        opencl_plan_overwrites(shaped);
    if (status != GANTRY_OK) {
        opencl_shaped_free(shaped);
        return status;
    }
    opencl_record_builds(self, args->recorder, &build.counts);
    for (uint32_t k = 0; k < shaped->launch_count; k++)
        record_launch(shaped, k, args->recorder);
    out_info->workspace_bytes = shaped->workspace_bytes;
    out_info->output_plans = shaped->output_plans;
    *out_shaped = shaped;
    return GANTRY_OK;
}

void opencl_shape_table(opencl_device *device)
{
    device->provider.reshape = reshape;
    device->provider.shaped_destroy = shaped_destroy;
}
