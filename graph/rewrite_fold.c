/* Folding: nodes whose results never change become constants, through the evaluator or through what inference
 * knows.
 *
 * A chain of constant nodes is evaluated from node to node in scratch memory; only the results that somebody
 * outside the chain reads become constants of the model. A result is "derived" when it depends on constants
 * only; derived nodes that stay (folding is off, or the result is too large) are computed again in every run
 * and get a note. */
#include "rewrite_internal.h"

/* Evaluated results of one node, with the memory they lie in. */
typedef struct folded_node {
    gt_arena memory;
    gantry_tensor *outputs; /* NULL: not evaluated */
} folded_node;

typedef struct fold_state {
    gt_rewrite_context *context;
    gt_graph *graph;
    folded_node *nodes;  /* by node id */
    uint32_t *folded_by; /* by value id: the evaluated node that computed it, or GT_NONE */
    uint32_t node_count;
    /* Of a graph that will be written (gt_rewrite_plan_growth), by node id: what is computed, and what of it
     * stays in the graph nevertheless. NULL otherwise. */
    uint8_t *computed, *stays;
    uint64_t *sizes; /* by value id: bytes of candidates' results; UINT64_MAX until one is computed */
} fold_state;

/* DequantizeLinear of weights stays: providers want the integers. */
static bool is_foldable_op(const gt_node *node)
{
    if (!node->op || node->removed || node->composite || node->body_count || node->input_count == 0)
        return false;
    if (node->op->flags & (GT_OP_RANDOM | GT_OP_CONTROL))
        return false;
    return !gt_rewrite_is_op(node, "DequantizeLinear");
}

/* A large weight that products read through a 2-D Transpose stays as it is: packing takes either order, and a
 * transposed copy would double the memory of a model whose head shares its weights with its embedding. */
#define LARGE_WEIGHT_BYTES ((size_t)1 << 20)

static bool is_read_by_products(const gt_rewrite_context *context, uint32_t value)
{
    uint32_t cursor = GT_NONE, consumer, count = 0;
    while ((consumer = gt_rewrite_next_consumer(context, value, &cursor)) != GT_NONE) {
        const gt_node *node = context->graph->nodes.data[consumer];
        if ((!gt_rewrite_is_op(node, "MatMul") && !gt_rewrite_is_op(node, "Gemm")) ||
            node->inputs[0] == value || node->inputs[1] != value)
            return false;
        count++;
    }
    return count > 0 && count == gt_rewrite_use_count(context, value);
}

static bool transposes_large_weight(const gt_graph *graph, const gt_node *node)
{
    if (!gt_rewrite_is_op(node, "Transpose") || !gt_value_is_constant(graph->values.data[node->inputs[0]]))
        return false;
    const gt_constant *constant =
        &graph->model->constants.data[graph->values.data[node->inputs[0]]->constant];
    return constant->rank == 2 && constant->dtype == GANTRY_FLOAT32 && constant->bytes >= LARGE_WEIGHT_BYTES;
}

static bool is_transposed_weight(const fold_state *state, const gt_node *node)
{
    return !state->context->options->for_file && transposes_large_weight(state->graph, node) &&
           is_read_by_products(state->context, node->outputs[0]);
}

static bool has_known_bytes(gantry_dtype dtype)
{
    return dtype != GANTRY_STRING && dtype != GANTRY_UNDEFINED;
}

static bool is_evaluated(const fold_state *state, uint32_t value)
{
    return state->folded_by[value] != GT_NONE;
}

static const gantry_tensor *evaluated_tensor(const fold_state *state, uint32_t value)
{
    uint32_t id = state->folded_by[value], k = 0;
    while (state->graph->nodes.data[id]->outputs[k] != value)
        k++;
    return &state->nodes[id].outputs[k];
}

/* Whether every input is a constant or an evaluated result. */
static bool has_constant_inputs(const fold_state *state, const gt_node *node)
{
    bool any = false;
    for (uint32_t k = 0; k < node->input_count; k++) {
        if (node->inputs[k] == GT_NONE)
            continue;
        const gt_value *value = state->graph->values.data[node->inputs[k]];
        if (!gt_value_is_constant(value) && !is_evaluated(state, node->inputs[k]))
            return false;
        if (value->kind != GANTRY_KIND_TENSOR || !has_known_bytes(value->dtype))
            return false;
        any = true;
    }
    return any;
}

static uint64_t tensor_bytes(const gantry_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t k = 0; k < tensor->rank; k++)
        count *= (uint64_t)tensor->dims[k];
    return gantry_dtype_bytes(tensor->dtype, count);
}

uint64_t gt_rewrite_static_bytes(const gt_rewrite_context *context, const gt_value *value)
{
    int64_t dims[GANTRY_MAX_RANK];
    uint64_t count = 1;
    if (!has_known_bytes(value->dtype) || !gt_rewrite_static_dims(context, value, dims))
        return UINT64_MAX;
    for (int32_t k = 0; k < value->rank; k++)
        if (__builtin_mul_overflow(count, (uint64_t)dims[k], &count))
            return UINT64_MAX;
    return gantry_dtype_bytes(value->dtype, count);
}

static uint64_t input_bytes(const fold_state *state, const gt_node *node)
{
    uint64_t total = 0;
    for (uint32_t k = 0; k < node->input_count; k++) {
        if (node->inputs[k] == GT_NONE)
            continue;
        const gt_value *value = state->graph->values.data[node->inputs[k]];
        uint64_t bytes = gt_value_is_constant(value)
                             ? state->context->model->constants.data[value->constant].bytes
                             : gt_rewrite_static_bytes(state->context, value);
        if (bytes != UINT64_MAX)
            total += bytes;
    }
    return total;
}

/* Results of a size that depends on data can't exceed a few times the inputs, which are in memory already. */
static bool is_within_cap(const fold_state *state, const gt_node *node)
{
    uint64_t limit = state->context->options->fold_limit_bytes, inputs = input_bytes(state, node);
    for (uint32_t k = 0; k < node->output_count; k++) {
        if (node->outputs[k] == GT_NONE)
            continue;
        uint64_t bytes = gt_rewrite_static_bytes(state->context, state->graph->values.data[node->outputs[k]]);
        if (bytes == UINT64_MAX && (node->op->flags & GT_OP_DATA_SIZED))
            continue;
        if (bytes > limit && bytes > inputs)
            return false;
    }
    return true;
}

/* Evaluators expect elements at their natural alignment; bytes in a mapped model file lie anywhere. */
static gantry_status align_data(gt_arena *memory, gantry_dtype dtype, const void **inout_data, size_t bytes,
                                gantry_error *err)
{
    if ((uintptr_t)*inout_data % gantry_dtype_bytes(dtype, 1) == 0)
        return GANTRY_OK;
    *inout_data = gt_arena_copy(memory, *inout_data, bytes);
    return *inout_data ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

static gantry_status input_tensor(fold_state *state, uint32_t value_id, gt_arena *memory,
                                  gantry_tensor *out_tensor, gantry_error *err)
{
    gt_model *model = state->context->model;
    *out_tensor = (gantry_tensor){.struct_bytes = sizeof *out_tensor};
    if (value_id == GT_NONE)
        return GANTRY_OK;
    const gt_value *value = state->graph->values.data[value_id];
    if (!gt_value_is_constant(value)) {
        *out_tensor = *evaluated_tensor(state, value_id);
        return GANTRY_OK;
    }
    const void *data;
    GT_TRY(gt_constant_data(model, value->constant, &data, err));
    const gt_constant *constant = &model->constants.data[value->constant];
    GT_TRY(align_data(memory, constant->dtype, &data, constant->bytes, err));
    out_tensor->dtype = constant->dtype;
    out_tensor->rank = constant->rank;
    out_tensor->dims = constant->dims;
    out_tensor->buffer.handle = (void *)(uintptr_t)data;
    out_tensor->size_bytes = constant->bytes;
    return GANTRY_OK;
}

/* What inference knows of an output; when it does not know the shape, nothing is set: rank 0 would be a
 * shape. */
static gantry_status output_tensor(fold_state *state, uint32_t value_id, gt_arena *memory,
                                   gantry_tensor *out_tensor, gantry_error *err)
{
    *out_tensor = (gantry_tensor){.struct_bytes = sizeof *out_tensor};
    int64_t dims[GANTRY_MAX_RANK];
    if (value_id == GT_NONE)
        return GANTRY_OK;
    const gt_value *value = state->graph->values.data[value_id];
    if (!gt_rewrite_static_dims(state->context, value, dims))
        return GANTRY_OK;
    out_tensor->dtype = value->dtype;
    out_tensor->rank = (uint32_t)value->rank;
    out_tensor->dims = gt_arena_copy(memory, dims, (size_t)value->rank * sizeof *dims);
    return out_tensor->dims ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

/* An evaluator that leaves a wanted output without data has failed, whatever it returned. */
static bool is_complete(const gt_node *node, const gantry_tensor *outputs)
{
    for (uint32_t k = 0; k < node->output_count; k++)
        if (node->outputs[k] != GT_NONE &&
            (!has_known_bytes(outputs[k].dtype) || (outputs[k].rank && !outputs[k].dims) ||
             (!outputs[k].buffer.handle && tensor_bytes(&outputs[k]))))
            return false;
    return true;
}

/* *out_evaluated is false when the evaluator could not; only lack of memory on our side is an error. */
static gantry_status evaluate(fold_state *state, uint32_t id, bool *out_evaluated, gantry_error *err)
{
    const gt_node *node = state->graph->nodes.data[id];
    const gt_rewrite_options *options = state->context->options;
    gt_arena *memory = &state->nodes[id].memory;
    gt_arena_init(memory, state->context->allocator);
    gantry_tensor *inputs = GT_ARENA_ARRAY(memory, gantry_tensor, node->input_count);
    gantry_tensor *outputs = GT_ARENA_ARRAY(memory, gantry_tensor, node->output_count);
    *out_evaluated = false;
    if (!inputs || !outputs)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    for (uint32_t k = 0; k < node->input_count; k++)
        GT_TRY(input_tensor(state, node->inputs[k], memory, &inputs[k], err));
    for (uint32_t k = 0; k < node->output_count; k++)
        GT_TRY(output_tensor(state, node->outputs[k], memory, &outputs[k], err));
    gantry_error reason = GANTRY_ERROR_INIT;
    gantry_status status =
        options->evaluate(options->evaluate_self, state->graph, id, inputs, outputs, memory, &reason);
    if (status != GANTRY_OK || !is_complete(node, outputs)) {
        gt_arena_clear(memory);
        return GANTRY_OK;
    }
    state->nodes[id].outputs = outputs;
    for (uint32_t k = 0; k < node->output_count; k++)
        if (node->outputs[k] != GT_NONE)
            state->folded_by[node->outputs[k]] = id;
    *out_evaluated = true;
    return GANTRY_OK;
}

/* Memory of evaluated inputs that nobody reads any more is given back, so that a long chain needs two
 * results'. */
static void release_inputs(fold_state *state, const gt_node *node)
{
    for (uint32_t k = 0; k < node->input_count; k++) {
        if (node->inputs[k] == GT_NONE || !is_evaluated(state, node->inputs[k]))
            continue;
        uint32_t producer = state->folded_by[node->inputs[k]];
        const gt_node *from = state->graph->nodes.data[producer];
        uint32_t uses = 0;
        for (uint32_t o = 0; o < from->output_count; o++)
            if (from->outputs[o] != GT_NONE)
                uses += gt_rewrite_use_count(state->context, from->outputs[o]);
        if (uses == 0)
            gt_arena_clear(&state->nodes[producer].memory);
    }
}

static gantry_status fold_node(fold_state *state, uint32_t id, bool *out_changed, gantry_error *err)
{
    gt_rewrite_context *context = state->context;
    const gt_node *node = state->graph->nodes.data[id];
    size_t length = strlen(node->name);
    bool evaluated = false;
    if (gt_map_get(&context->evaluate_failures, node->name, length, 0) == 0)
        GT_TRY(evaluate(state, id, &evaluated, err));
    if (!evaluated) {
        if (!gt_map_set(&context->evaluate_failures, node->name, length, 1))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
        return gt_rewrite_log_miss(context, node->name, "evaluate_failed", err);
    }
    GT_TRY(gt_rewrite_log(context, node->name, "applied", NULL, &id, 1, NULL, err));
    gt_rewrite_remove(context, id, "constant_folded");
    release_inputs(state, node);
    *out_changed = true;
    return GANTRY_OK;
}

/* Results that are still read become constants of the model. */
static gantry_status keep_results(fold_state *state, uint32_t id, gantry_error *err)
{
    const gt_node *node = state->graph->nodes.data[id];
    for (uint32_t k = 0; k < node->output_count; k++) {
        uint32_t value = node->outputs[k];
        if (value == GT_NONE || gt_rewrite_use_count(state->context, value) == 0)
            continue;
        const gantry_tensor *tensor = &state->nodes[id].outputs[k];
        const char *data = (const char *)tensor->buffer.handle + tensor->buffer.offset_bytes;
        GT_TRY(gt_rewrite_make_constant(state->context, state->graph, value, tensor->dtype, tensor->rank,
                                        tensor->dims, data, (size_t)tensor_bytes(tensor), err));
    }
    return GANTRY_OK;
}

/* ---- of a graph that will be written --------------------------------------------------------- */

static bool failed_before(const fold_state *state, const gt_node *node)
{
    return gt_map_get(&state->context->evaluate_failures, node->name, strlen(node->name), 0) != 0;
}

/* Nodes that could be folded if their results had any size. */
static void find_candidates(fold_state *state, uint8_t *candidates)
{
    const gt_graph *graph = state->graph;
    memset(state->folded_by, 0xff, graph->values.count * sizeof *state->folded_by); /* GT_NONE */
    memset(candidates, 0, state->node_count);
    for (uint32_t k = 0; k < graph->order.count; k++) {
        uint32_t id = graph->order.data[k];
        const gt_node *node = graph->nodes.data[id];
        if (!is_foldable_op(node) || failed_before(state, node) || !has_constant_inputs(state, node) ||
            !is_within_cap(state, node))
            continue;
        candidates[id] = 1;
        for (uint32_t o = 0; o < node->output_count; o++)
            if (node->outputs[o] != GT_NONE)
                state->folded_by[node->outputs[o]] = id;
    }
}

/* False when a size was not known before: the plan was made without it. */
static bool note_sizes(fold_state *state, uint32_t id)
{
    const gt_node *node = state->graph->nodes.data[id];
    bool all_known = true;
    for (uint32_t k = 0; k < node->output_count; k++) {
        uint32_t output = node->outputs[k];
        if (output == GT_NONE || state->sizes[output] != UINT64_MAX)
            continue;
        state->sizes[output] = tensor_bytes(&state->nodes[id].outputs[k]);
        all_known = false;
    }
    return all_known;
}

/* What is planned is computed first, all of it: one node that cannot be, or one whose result is larger than
 * could be known, changes the plan for the others. */
static gantry_status compute_planned(fold_state *state, bool *out_complete, gantry_error *err)
{
    const gt_graph *graph = state->graph;
    *out_complete = true;
    for (uint32_t k = 0; k < graph->order.count && *out_complete; k++) {
        uint32_t id = graph->order.data[k];
        const gt_node *node = graph->nodes.data[id];
        if (!state->computed[id] || state->nodes[id].outputs)
            continue;
        GT_TRY(evaluate(state, id, out_complete, err));
        if (*out_complete) {
            *out_complete = note_sizes(state, id);
            continue;
        }
        if (!gt_map_set(&state->context->evaluate_failures, node->name, strlen(node->name), 1))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
        GT_TRY(gt_rewrite_log_miss(state->context, node->name, "evaluate_failed", err));
    }
    return GANTRY_OK;
}

static gantry_status remove_planned(fold_state *state, const uint8_t *candidates, bool *out_changed,
                                    gantry_error *err)
{
    gt_rewrite_context *context = state->context;
    const gt_graph *graph = state->graph;
    for (uint32_t k = 0; k < graph->order.count; k++) {
        uint32_t id = graph->order.data[k];
        const gt_node *node = graph->nodes.data[id];
        if (candidates[id] && state->stays[id])
            GT_TRY(gt_rewrite_log_miss(context, node->name, "file_growth", err));
        if (!state->computed[id] || state->stays[id])
            continue;
        GT_TRY(gt_rewrite_log(context, node->name, "applied", NULL, &id, 1, NULL, err));
        gt_rewrite_remove(context, id, "constant_folded");
        *out_changed = true;
    }
    return GANTRY_OK;
}

static gantry_status fold_for_file(fold_state *state, bool *out_changed, gantry_error *err)
{
    gt_arena *scratch = &state->context->scratch;
    uint8_t *candidates = gt_arena_alloc(scratch, state->node_count);
    state->computed = gt_arena_alloc(scratch, state->node_count);
    state->stays = gt_arena_alloc(scratch, state->node_count);
    state->sizes = GT_ARENA_ARRAY(scratch, uint64_t, state->graph->values.count);
    if (!candidates || !state->computed || !state->stays || !state->sizes)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    for (uint32_t v = 0; v < state->graph->values.count; v++)
        state->sizes[v] = gt_rewrite_static_bytes(state->context, state->graph->values.data[v]);
    for (bool complete = false; !complete;) {
        find_candidates(state, candidates);
        GT_TRY(gt_rewrite_plan_growth(state->context, state->graph, candidates, state->sizes, state->computed,
                                      state->stays, err));
        GT_TRY(compute_planned(state, &complete, err));
    }
    return remove_planned(state, candidates, out_changed, err);
}

static gantry_status fold_all(fold_state *state, bool *out_changed, gantry_error *err)
{
    gt_graph *graph = state->graph;
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        if (is_foldable_op(node) && has_constant_inputs(state, node) && is_within_cap(state, node) &&
            !is_transposed_weight(state, node))
            GT_TRY(fold_node(state, graph->order.data[k], out_changed, err));
    }
    return GANTRY_OK;
}

static gantry_status fold_graph(fold_state *state, bool *out_changed, gantry_error *err)
{
    GT_TRY(state->context->options->for_file ? fold_for_file(state, out_changed, err)
                                             : fold_all(state, out_changed, err));
    for (uint32_t id = 0; id < state->node_count; id++)
        if (state->nodes[id].outputs && state->graph->nodes.data[id]->removed)
            GT_TRY(keep_results(state, id, err));
    return GANTRY_OK;
}

gantry_status gt_rewrite_fold(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                              gantry_error *err)
{
    fold_state state = {.context = context, .graph = graph, .node_count = graph->nodes.count};
    if (!context->options->fold || !context->options->evaluate)
        return GANTRY_OK;
    state.folded_by = GT_ARENA_ARRAY(&context->scratch, uint32_t, graph->values.count);
    state.nodes = GT_NEW_ARRAY(context->allocator, folded_node, state.node_count);
    if (!state.nodes || !state.folded_by) {
        gt_free(context->allocator, state.nodes);
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    }
    memset(state.folded_by, 0xff, graph->values.count * sizeof *state.folded_by); /* GT_NONE */
    gantry_status status = fold_graph(&state, out_changed, err);
    for (uint32_t id = 0; id < state.node_count; id++)
        if (state.nodes[id].memory.allocator)
            gt_arena_clear(&state.nodes[id].memory);
    gt_free(context->allocator, state.nodes);
    return status;
}

/* ---- what inference knows -------------------------------------------------------------------- */

/* The bytes of a value all of whose elements are constant expressions; NULL: it is no such value, or memory
 * ran out. */
static void *known_bytes(gt_rewrite_context *context, const gt_value *value)
{
    const gt_exprs *exprs = &context->model->exprs;
    size_t width = gantry_dtype_bytes(value->dtype, 1);
    if (!value->elements || !gt_rewrite_is_number(value->dtype))
        return NULL;
    char *bytes = gt_arena_array(&context->scratch, value->element_count, width);
    for (uint32_t k = 0; bytes && k < value->element_count; k++) {
        const gt_expr_node *node =
            value->elements[k] == GT_EXPR_UNKNOWN ? NULL : &exprs->nodes.data[value->elements[k]];
        if (node && node->kind == GT_EXPR_REAL_CONST && gt_rewrite_is_float(value->dtype))
            gt_rewrite_store(value->dtype, bytes, k, node->constant.r);
        else if (node && node->kind == GT_EXPR_CONST && !gt_rewrite_is_float(value->dtype))
            memcpy(bytes + k * width, &node->constant.i, width); /* little endian: the low bytes */
        else
            return NULL;
    }
    return bytes;
}

static bool has_known_outputs(gt_rewrite_context *context, const gt_node *node)
{
    int64_t dims[GANTRY_MAX_RANK];
    if (node->removed || node->body_count || node->composite || gt_rewrite_is_op(node, "DequantizeLinear"))
        return false;
    for (uint32_t k = 0; k < node->output_count; k++) {
        const gt_value *value = gt_rewrite_value(context, node->outputs[k]);
        if (!value || !gt_rewrite_use_count(context, node->outputs[k]))
            continue;
        if (!gt_rewrite_static_dims(context, value, dims) || !known_bytes(context, value))
            return false;
    }
    return node->output_count > 0;
}

static gantry_status fold_known(gt_rewrite_context *context, uint32_t id, gantry_error *err)
{
    int64_t dims[GANTRY_MAX_RANK];
    const gt_node *node = context->graph->nodes.data[id];
    GT_TRY(gt_rewrite_log(context, node->name, "applied", NULL, &id, 1, NULL, err));
    gt_rewrite_remove(context, id, "shape_folded");
    for (uint32_t k = 0; k < node->output_count; k++) {
        const gt_value *value = gt_rewrite_value(context, node->outputs[k]);
        if (!value || !gt_rewrite_use_count(context, node->outputs[k]))
            continue;
        const void *bytes = known_bytes(context, value);
        if (!bytes || !gt_rewrite_static_dims(context, value, dims))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
        GT_TRY(gt_rewrite_make_constant(context, context->graph, node->outputs[k], value->dtype,
                                        (uint32_t)value->rank, dims, bytes,
                                        gantry_dtype_bytes(value->dtype, value->element_count), err));
    }
    return GANTRY_OK;
}

gantry_status gt_rewrite_shape_fold(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                    gantry_error *err)
{
    for (uint32_t k = 0; context->options->fold && k < graph->order.count; k++) {
        if (!has_known_outputs(context, graph->nodes.data[graph->order.data[k]]))
            continue;
        GT_TRY(fold_known(context, graph->order.data[k], err));
        *out_changed = true;
    }
    return GANTRY_OK;
}

/* ---- notes ----------------------------------------------------------------------------------- */

static bool reads_only_derived(const gt_graph *graph, const gt_node *node, const uint8_t *derived)
{
    bool any = false;
    for (uint32_t k = 0; k < node->input_count; k++) {
        if (node->inputs[k] == GT_NONE)
            continue;
        if (!gt_value_is_constant(graph->values.data[node->inputs[k]]) && !derived[node->inputs[k]])
            return false;
        any = true;
    }
    return any;
}

static bool is_folding(const gt_rewrite_options *options)
{
    return options->fold && gt_rewrite_is_enabled(options, "fold");
}

/* The graph of another choice of branches has the nodes of the first one, and their notes are there. */
static bool is_noted(const gt_model *model, const char *node)
{
    for (uint32_t k = 0; k < model->notes.count; k++)
        if (model->notes.data[k].node && strcmp(model->notes.data[k].node, node) == 0 &&
            strcmp(model->notes.data[k].code, "constant_recomputed") == 0)
            return true;
    return false;
}

static gantry_status note_node(gt_rewrite_context *context, const gt_node *node, gantry_error *err)
{
    if (context->is_variant && is_noted(context->model, node->name))
        return GANTRY_OK;
    return gt_model_note(
        context->model, "constant_recomputed", node->name, err,
        "%s %s reads only constants and is computed again in every run: %s", node->op_type, node->name,
        is_folding(context->options) ? "its result is larger than its inputs and than the folding limit"
                                     : "folding is off");
}

static gantry_status note_graph(gt_rewrite_context *context, const gt_graph *graph, uint8_t *derived,
                                gantry_error *err)
{
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        if (!is_foldable_op(node) || node->at_bind || !reads_only_derived(graph, node, derived) ||
            (is_folding(context->options) && transposes_large_weight(graph, node)) ||
            gt_map_get(&context->evaluate_failures, node->name, strlen(node->name), 0))
            continue;
        for (uint32_t o = 0; o < node->output_count; o++)
            if (node->outputs[o] != GT_NONE)
                derived[node->outputs[o]] = 1;
        GT_TRY(note_node(context, node, err));
    }
    return GANTRY_OK;
}

gantry_status gt_rewrite_note_recomputed(gt_rewrite_context *context, gt_graph *graph, gantry_error *err)
{
    if (is_folding(context->options) && !context->options->evaluate)
        return GANTRY_OK; /* nothing was decided: nobody could fold */
    uint8_t *derived = GT_NEW_ARRAY(context->allocator, uint8_t, graph->values.count);
    if (!derived)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    gantry_status status = note_graph(context, graph, derived, err);
    gt_free(context->allocator, derived);
    GT_TRY(status);
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        for (uint32_t b = 0; b < node->body_count; b++)
            GT_TRY(gt_rewrite_note_recomputed(context, node->bodies[b].graph, err));
    }
    return GANTRY_OK;
}
