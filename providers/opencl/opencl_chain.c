/* Chains of elementwise operators: a node whose result only the next one reads, element by element, is
 * computed in that one's kernel, with the same roundings as by itself.
 *
 *     x --Mul--> t --Add--> u --Relu--> y        t and u lie nowhere; all run where Relu does
 *          ^s         ^b
 *
 * Every node of a chain but the last has one reader, so a chain is a tree whose root comes last: what its
 * nodes read from outside was made before the root, and stays until then. */
#include "opencl_elementwise.h"

#define RULE "elementwise_chain"

/* ---- which nodes go together ------------------------------------------------------------------ */

/* By value: the only node that reads it. */
enum { NOBODY = GANTRY_NO_ID, SEVERAL = GANTRY_NO_ID - 1 };

typedef struct plan {
    opencl_build *build;
    const gantry_graph_view *graph;
    const gantry_shape *shapes;
    gantry_recorder *recorder;
    uint32_t *reader; /* by value */
    uint32_t *maker;  /* by value: the node */
    uint32_t *count;  /* by node: operators of the chain that ends there; 0: the node is not elementwise */
    uint32_t *inputs; /* by node: OPENCL_MAX_WALKED values that this chain reads */
    uint32_t *input_count;
} plan;

static void note_reader(uint32_t *inout_reader, uint32_t node)
{
    *inout_reader = *inout_reader == NOBODY || *inout_reader == node ? node : SEVERAL;
}

static void find_readers(const gantry_graph_view *graph, uint32_t *out_reader)
{
    for (uint32_t v = 0; v < graph->value_count; v++)
        out_reader[v] = NOBODY;
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->input_count; k++)
            if (graph->nodes[n]->inputs[k] != GANTRY_NO_ID)
                note_reader(&out_reader[graph->nodes[n]->inputs[k]], n);
    for (uint32_t k = 0; k < graph->output_count; k++)
        out_reader[graph->outputs[k]] = SEVERAL;
}

static void find_makers(const gantry_graph_view *graph, uint32_t *out_maker)
{
    for (uint32_t v = 0; v < graph->value_count; v++)
        out_maker[v] = NOBODY;
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->output_count; k++)
            if (graph->nodes[n]->outputs[k] != GANTRY_NO_ID)
                out_maker[graph->nodes[n]->outputs[k]] = n;
}

static bool same_dims(const gantry_graph_view *graph, const gantry_shape *shapes, uint32_t a, uint32_t b)
{
    int32_t rank = shapes ? (int32_t)shapes[a].rank : graph->values[a]->rank;
    if (rank != (shapes ? (int32_t)shapes[b].rank : graph->values[b]->rank) || rank < 0)
        return false;
    const int64_t *left = shapes ? shapes[a].dims : graph->values[a]->typical_dims;
    const int64_t *right = shapes ? shapes[b].dims : graph->values[b]->typical_dims;
    for (int32_t k = 0; k < rank; k++)
        if (left[k] != right[k])
            return false;
    return true;
}

static void record(const plan *p, uint32_t count, const uint32_t *ids, const char *guard)
{
    const gantry_host *host = p->build->device->host;
    gantry_fusion_record fusion = {.struct_bytes = sizeof fusion,
                                   .rule = RULE,
                                   .node_count = count,
                                   .node_ids = ids,
                                   .applied = !*guard,
                                   .guard = guard};
    if (p->recorder)
        host->record_fusion(p->recorder, &fusion);
}

/* Adds a value to those that the chain of a root reads; false when there is no room. */
static bool read_value(plan *p, uint32_t root, uint32_t value)
{
    uint32_t *inputs = p->inputs + (size_t)root * OPENCL_MAX_WALKED;
    for (uint32_t k = 0; k < p->input_count[root]; k++)
        if (inputs[k] == value)
            return true;
    if (p->input_count[root] == OPENCL_MAX_WALKED)
        return false;
    inputs[p->input_count[root]++] = value;
    return true;
}

static bool read_operands(plan *p, uint32_t root, const gantry_node_view *node)
{
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] != GANTRY_NO_ID && !read_value(p, root, node->inputs[k]))
            return false;
    return true;
}

/* The chain reads the operands of the node instead of its result; false, and it is as before, when they are
 * too many. */
static bool take_node(plan *p, uint32_t root, const gantry_node_view *node)
{
    uint32_t *inputs = p->inputs + (size_t)root * OPENCL_MAX_WALKED, count = p->input_count[root], at = 0;
    uint32_t before[OPENCL_MAX_WALKED];
    memcpy(before, inputs, sizeof before);
    while (at < count && inputs[at] != node->outputs[0])
        at++;
    if (at < count)
        inputs[at] = inputs[--p->input_count[root]];
    if (read_operands(p, root, node))
        return true;
    memcpy(inputs, before, sizeof before);
    p->input_count[root] = count;
    return false;
}

/* Nodes come from last to first: the chain of the reader is known. */
static void plan_node(plan *p, uint32_t index)
{
    const gantry_node_view *node = p->graph->nodes[index];
    if (!opencl_is_expression(p->graph, node))
        return;
    uint32_t reader = p->reader[node->outputs[0]], *run_at = p->build->shaped->run_at;
    bool has_reader = reader != NOBODY && reader != SEVERAL;
    p->count[index] = 1;
    read_operands(p, index, node);
    if (!has_reader || !p->count[reader])
        return;
    uint32_t root = run_at[reader], pair[2] = {node->id, p->graph->nodes[reader]->id};
    if (!same_dims(p->graph, p->shapes, node->outputs[0], p->graph->nodes[reader]->outputs[0]))
        record(p, 2, pair, "the second one's result has another shape");
    else if (p->count[root] == OPENCL_MAX_STEPS)
        record(p, 2, pair, "the chain has 12 operators already");
    else if (!take_node(p, root, node))
        record(p, 2, pair, "the chain would read more than 8 values");
    else {
        run_at[index] = root;
        p->count[root]++;
    }
}

/* Pairs that only another reader keeps apart. */
static void record_shared(const plan *p, uint32_t index)
{
    const gantry_node_view *node = p->graph->nodes[index];
    for (uint32_t k = 0; p->count[index] && k < node->input_count; k++) {
        uint32_t value = node->inputs[k], maker = value == GANTRY_NO_ID ? NOBODY : p->maker[value];
        if (maker == NOBODY || p->reader[value] != SEVERAL || !p->count[maker])
            continue;
        uint32_t pair[2] = {p->graph->nodes[maker]->id, node->id};
        record(p, 2, pair, "the value between them is read elsewhere, too");
    }
}

static void record_chain(const plan *p, uint32_t root)
{
    uint32_t ids[OPENCL_MAX_STEPS], count = 0;
    for (uint32_t n = 0; n <= root && p->count[root] > 1; n++)
        if (p->build->shaped->run_at[n] == root && count < OPENCL_MAX_STEPS)
            ids[count++] = p->graph->nodes[n]->id;
    if (count)
        record(p, count, ids, "");
}

static uint32_t count_steps(const plan *p)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < p->graph->node_count; n++)
        count += p->build->shaped->run_at[n] == n && p->count[n] > 1 ? p->count[n] : 0;
    return count;
}

void opencl_chains_plan(opencl_build *build, const gantry_shape *shapes, gantry_recorder *recorder)
{
    const gantry_graph_view *graph = build->shaped->program->graph;
    plan p = {.build = build, .graph = graph, .shapes = shapes, .recorder = recorder};
    if (!build->shaped->program->fuses || graph->node_count < 2)
        return;
    p.reader = opencl_build_alloc(build, graph->value_count, sizeof *p.reader);
    p.maker = opencl_build_alloc(build, graph->value_count, sizeof *p.maker);
    p.count = opencl_build_alloc(build, graph->node_count, sizeof *p.count);
    p.input_count = opencl_build_alloc(build, graph->node_count, sizeof *p.input_count);
    p.inputs = opencl_build_alloc(build, (size_t)graph->node_count * OPENCL_MAX_WALKED, sizeof *p.inputs);
    if (build->status == GANTRY_OK) {
        find_readers(graph, p.reader);
        find_makers(graph, p.maker);
        for (uint32_t n = graph->node_count; n-- > 0;)
            plan_node(&p, n);
        for (uint32_t n = 0; n < graph->node_count && recorder; n++) {
            record_chain(&p, n);
            record_shared(&p, n);
        }
        build->steps = opencl_build_alloc(build, count_steps(&p), sizeof *build->steps);
    }
    opencl_build_free(build, p.reader);
    opencl_build_free(build, p.maker);
    opencl_build_free(build, p.count);
    opencl_build_free(build, p.input_count);
    opencl_build_free(build, p.inputs);
}

void opencl_chains_free(opencl_build *build)
{
    opencl_build_free(build, build->steps);
    build->steps = NULL;
    build->step_count = 0;
}

/* ---- preparing them -------------------------------------------------------------------------- */

/* Nodes of the chain that come before the root; GANTRY_NO_ID: one was left out, for want of extents. */
static uint32_t count_members(const opencl_build *build, uint32_t root)
{
    uint32_t noted = 0, members = 0;
    for (uint32_t n = 0; n < root; n++)
        members += build->shaped->run_at[n] == root;
    for (uint32_t s = 0; s < build->step_count; s++)
        noted += build->shaped->run_at[build->steps[s].node] == root;
    return noted == members ? members : GANTRY_NO_ID;
}

static void note_step(opencl_build *build, const opencl_node *node)
{
    build->step = &build->steps[build->step_count++];
    build->step->node = build->node;
    node->op->prepare(build, node);
    build->step = NULL;
}

static void add_chain(opencl_build *build, uint32_t root)
{
    gantry_shaped *shaped = build->shaped;
    opencl_step steps[OPENCL_MAX_STEPS] = {{0}};
    uint32_t count = 0, begin = shaped->chained_count;
    for (uint32_t s = 0; s < build->step_count; s++)
        if (shaped->run_at[build->steps[s].node] == root)
            steps[count++] = build->steps[s];
    opencl_chain_add(build, steps, count);
    opencl_launch *launch = opencl_launch_last(build);
    if (!launch)
        return;
    for (uint32_t s = 0; s < count; s++)
        shaped->chained[shaped->chained_count++] = steps[s].node;
    launch->chain_begin = begin;
    launch->chain_count = count;
}

void opencl_chain_prepare(opencl_build *build, const opencl_node *node)
{
    uint32_t root = build->shaped->run_at[build->node];
    uint32_t members = root == build->node ? count_members(build, root) : 1;
    if (members == 0 || build->status != GANTRY_OK) {
        node->op->prepare(build, node);
        return;
    }
    if (members == GANTRY_NO_ID)
        return;
    note_step(build, node);
    if (root == build->node)
        add_chain(build, root);
}

/* ---- what chains spare ----------------------------------------------------------------------- */

static double typical_bytes(const gantry_value_view *value)
{
    double bytes = (double)opencl_dtype_bytes(value->dtype);
    for (int32_t k = 0; k < value->rank; k++)
        bytes *= (double)value->typical_dims[k];
    return bytes;
}

/* The only node that reads the value; NULL: none, several, or somebody outside. */
static const gantry_node_view *only_reader(const gantry_graph_view *graph, uint32_t value)
{
    uint32_t reader = NOBODY;
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->input_count; k++)
            if (graph->nodes[n]->inputs[k] == value)
                note_reader(&reader, n);
    for (uint32_t k = 0; k < graph->output_count; k++)
        if (graph->outputs[k] == value)
            return NULL;
    return reader == NOBODY || reader == SEVERAL ? NULL : graph->nodes[reader];
}

static const gantry_node_view *maker_of(const gantry_graph_view *graph, uint32_t value)
{
    for (uint32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n]->output_count == 1 && graph->nodes[n]->outputs[0] == value)
            return graph->nodes[n];
    return NULL;
}

static bool joins(const gantry_graph_view *graph, const gantry_node_view *node,
                  const gantry_node_view *reader)
{
    return node && reader && opencl_is_expression(graph, node) && opencl_is_expression(graph, reader) &&
           same_dims(graph, NULL, node->outputs[0], reader->outputs[0]);
}

/* As if the device got the neighbours as well; that a chain may be full is left out. */
void opencl_chain_spare(const gantry_graph_view *graph, const gantry_node_view *node, opencl_work *inout_work)
{
    if (joins(graph, node, only_reader(graph, node->outputs[0]))) {
        inout_work->bytes -= typical_bytes(graph->values[node->outputs[0]]);
        inout_work->launches = 0;
    }
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t value = node->inputs[k];
        const gantry_node_view *maker = value == GANTRY_NO_ID ? NULL : maker_of(graph, value);
        if (joins(graph, maker, node) && only_reader(graph, value) == node)
            inout_work->bytes -= typical_bytes(graph->values[value]);
    }
    if (inout_work->bytes < 0)
        inout_work->bytes = 0;
}

/* ---- in place -------------------------------------------------------------------------------- */

static bool uses_place(const gantry_shaped *shaped, const opencl_launch *launch, uint32_t place)
{
    if (!launch->program)
        return opencl_place_root(shaped, launch->source, NULL) == place ||
               opencl_place_root(shaped, launch->target, NULL) == place;
    for (uint32_t k = 0; k < launch->argument_count; k++) {
        const opencl_argument *a = &shaped->arguments[launch->argument_begin + k];
        if (a->kind == OPENCL_ARGUMENT_BUFFER && opencl_place_root(shaped, a->place, NULL) == place)
            return true;
    }
    return false;
}

/* No other launch reads the input from this one on, and none made part of the output before. */
static bool is_last_use(const gantry_shaped *shaped, uint32_t index, uint32_t input, uint32_t output)
{
    for (uint32_t k = 0; k < shaped->launch_count; k++)
        if ((k < index && uses_place(shaped, &shaped->launches[k], output)) ||
            (k > index && uses_place(shaped, &shaped->launches[k], input)))
            return false;
    return true;
}

static bool is_promised(const gantry_shaped *shaped, uint32_t input)
{
    for (uint32_t k = 0; k < shaped->program->graph->output_count; k++)
        if (shaped->output_plans[k].view_of_input == (int32_t)input ||
            shaped->output_plans[k].overwrite_input == (int32_t)input)
            return true;
    return false;
}

static void plan_launch(gantry_shaped *shaped, uint32_t index)
{
    const opencl_launch *launch = &shaped->launches[index];
    uint32_t count = 0;
    while (count < launch->argument_count &&
           shaped->arguments[launch->argument_begin + count].kind == OPENCL_ARGUMENT_BUFFER)
        count++;
    if (!launch->in_place || count < 2)
        return;
    size_t offset, output_offset;
    uint32_t output = opencl_place_root(shaped, shaped->arguments[launch->argument_begin + count - 1].place,
                                        &output_offset);
    if (shaped->places[output].kind != OPENCL_PLACE_OUTPUT || output_offset)
        return;
    for (uint32_t k = 0; k + 1 < count; k++) {
        uint32_t input =
            opencl_place_root(shaped, shaped->arguments[launch->argument_begin + k].place, &offset);
        const opencl_place *place = &shaped->places[input];
        if (!(launch->in_place >> k & 1) || place->kind != OPENCL_PLACE_INPUT || offset ||
            place->bytes != shaped->places[output].bytes || is_promised(shaped, place->index) ||
            !is_last_use(shaped, index, input, output))
            continue;
        shaped->output_plans[shaped->places[output].index].overwrite_input = (int32_t)place->index;
        return;
    }
}

void opencl_plan_overwrites(gantry_shaped *shaped)
{
    for (uint32_t k = 0; k < shaped->launch_count; k++)
        plan_launch(shaped, k);
}
