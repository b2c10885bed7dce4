/* Model-local functions: found by domain, name and overload, checked as a whole, and put in place of their
 * callers.
 *
 * A function's nodes go into the caller's graph under names "caller/node". Its inputs are the caller's
 * values, its outputs are written straight into the caller's; only what it merely passes through becomes an
 * Identity. */
#include "onnx_read.h"

/* While functions are checked: who is being looked at, and what a finished one costs. */
typedef struct gt_function_state {
    bool open, done;
    uint64_t cost; /* nodes it becomes, weighted by what they hold */
} gt_function_state;

/* A node with many inputs or numbers takes the memory of several: otherwise few calls of a big node could
 * take any. */
#define ITEMS_PER_NODE 16u
#define TENSOR_BYTES_PER_NODE 4096u

/* ---- finding --------------------------------------------------------------------------------- */

/* The three parts with their lengths, so that no two keys are equal by accident. */
static gantry_status function_key(gt_reader *reader, gt_bytes domain, gt_bytes name, gt_bytes overload,
                                  uint8_t **out_key, size_t *out_bytes)
{
    if (gt_bytes_are(domain, "ai.onnx"))
        domain.len = 0;
    const gt_bytes parts[] = {domain, name, overload};
    *out_bytes = domain.len + name.len + overload.len + 3 * sizeof(size_t);
    uint8_t *at = *out_key = gt_arena_alloc(&reader->temp, *out_bytes);
    if (!at)
        return gt_read_no_memory(reader);
    for (size_t k = 0; k < 3; k++) {
        memcpy(at, &parts[k].len, sizeof(size_t));
        at += sizeof(size_t);
        if (parts[k].len)
            memcpy(at, parts[k].data, parts[k].len);
        at += parts[k].len;
    }
    return GANTRY_OK;
}

static gantry_status find_function(gt_reader *reader, const GtOnnx__Node *node, uint32_t *out_index)
{
    *out_index = GT_NONE;
    if (reader->proto->n_functions == 0)
        return GANTRY_OK;
    uint8_t *key;
    size_t bytes;
    GT_TRY(function_key(reader, node->domain, node->op_type, node->overload, &key, &bytes));
    *out_index = gt_map_get(&reader->functions, key, bytes, GT_NONE);
    return GANTRY_OK;
}

gantry_status gt_find_function(gt_reader *reader, const GtOnnx__Node *node,
                               const GtOnnx__Function **out_function)
{
    uint32_t index;
    *out_function = NULL;
    GT_TRY(find_function(reader, node, &index));
    *out_function = index == GT_NONE ? NULL : reader->proto->functions[index];
    return GANTRY_OK;
}

/* ---- checking -------------------------------------------------------------------------------- */

typedef struct checker {
    gt_reader *reader;
    uint32_t *path; /* functions that are open, outermost first */
    uint32_t depth;
} checker;

static gantry_status cost_of_nodes(checker *c, GtOnnx__Node *const *nodes, size_t count,
                                   uint64_t *inout_cost);

static uint64_t tensor_cost(const gt_reader *reader, const GtOnnx__Tensor *tensor)
{
    const gt_onnx_record *record = &reader->scan.records.data[tensor->record];
    return (record->end - record->begin) / TENSOR_BYTES_PER_NODE;
}

static gantry_status cost_of_attribute(checker *c, const GtOnnx__Attribute *a, uint64_t *inout_cost)
{
    *inout_cost += (a->n_floats + a->n_ints + a->n_strings * 4 + a->s.len / 8) / ITEMS_PER_NODE;
    if (a->t)
        *inout_cost += tensor_cost(c->reader, a->t);
    for (size_t k = 0; k < a->n_tensors; k++)
        *inout_cost += 1 + tensor_cost(c->reader, a->tensors[k]);
    if (!a->g)
        return GANTRY_OK;
    *inout_cost +=
        (a->g->n_input + a->g->n_output + a->g->n_value_info + a->g->n_initializer) / ITEMS_PER_NODE;
    return cost_of_nodes(c, a->g->node, a->g->n_node, inout_cost);
}

static gantry_status fail_recursion(const checker *c, uint32_t index)
{
    gt_text text;
    gt_text_init(&text, c->reader->allocator);
    uint32_t from = c->depth;
    while (from > 0 && c->path[from - 1] != index)
        from--;
    for (uint32_t k = from ? from - 1 : 0; k < c->depth; k++)
        gt_text_printf(&text, "'%s' -> ",
                       gt_read_show(c->reader, c->reader->proto->functions[c->path[k]]->name));
    const char *name = gt_read_show(c->reader, c->reader->proto->functions[index]->name);
    gantry_status status =
        GT_READ_FAIL(c->reader, GANTRY_MODEL_GRAPH, NULL,
                     "function '%s' calls itself, which ONNX does not allow (recursion): %.1000s'%s'", name,
                     text.data ? text.data : "", name);
    gt_text_free(&text);
    return status;
}

static gantry_status check_function(checker *c, uint32_t index, uint64_t *out_cost)
{
    gt_function_state *state = &c->reader->function_states[index];
    if (state->open)
        return fail_recursion(c, index);
    if (!state->done) {
        if (c->depth == c->reader->limits.max_depth)
            return GT_READ_FAIL(c->reader, GANTRY_RESOURCE, NULL,
                                "functions call each other more than %u deep, which is the limit", c->depth);
        const GtOnnx__Function *function = c->reader->proto->functions[index];
        state->open = true;
        c->path[c->depth++] = index;
        GT_TRY(cost_of_nodes(c, function->node, function->n_node, &state->cost));
        c->depth--;
        state->open = false;
        state->done = true;
    }
    *out_cost = state->cost;
    return GANTRY_OK;
}

static gantry_status cost_of_nodes(checker *c, GtOnnx__Node *const *nodes, size_t count, uint64_t *inout_cost)
{
    for (size_t k = 0; k < count; k++) {
        const GtOnnx__Node *node = nodes[k];
        uint32_t index;
        uint64_t cost = 0;
        GT_TRY(find_function(c->reader, node, &index));
        if (index != GT_NONE)
            GT_TRY(check_function(c, index, &cost));
        *inout_cost += 1 + cost + (node->n_input + node->n_output) / ITEMS_PER_NODE;
        for (size_t j = 0; j < node->n_attribute; j++)
            GT_TRY(cost_of_attribute(c, node->attribute[j], inout_cost));
        if (*inout_cost > c->reader->limits.max_nodes)
            return GT_READ_FAIL(
                c->reader, GANTRY_RESOURCE, NULL,
                "with its functions in place of their calls '%.500s' has too many nodes (limit %u)",
                c->reader->what, c->reader->limits.max_nodes);
    }
    return GANTRY_OK;
}

static gantry_status index_functions(gt_reader *reader)
{
    const GtOnnx__Model *proto = reader->proto;
    for (size_t k = 0; k < proto->n_functions; k++) {
        const GtOnnx__Function *f = proto->functions[k];
        uint8_t *key;
        size_t bytes;
        GT_TRY(function_key(reader, f->domain, f->name, f->overload, &key, &bytes));
        if (gt_map_get(&reader->functions, key, bytes, GT_NONE) != GT_NONE)
            return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, NULL,
                                "function '%s' of domain '%s' is there twice", gt_read_show(reader, f->name),
                                gt_read_show(reader, f->domain));
        if (!gt_map_set(&reader->functions, key, bytes, (uint32_t)k))
            return gt_read_no_memory(reader);
    }
    return GANTRY_OK;
}

gantry_status gt_read_functions(gt_reader *reader)
{
    const GtOnnx__Model *proto = reader->proto;
    if (proto->n_functions == 0)
        return GANTRY_OK;
    GT_TRY(index_functions(reader));
    checker c = {reader, GT_ARENA_ARRAY(&reader->temp, uint32_t, reader->limits.max_depth), 0};
    reader->function_states = GT_ARENA_ARRAY(&reader->temp, gt_function_state, proto->n_functions);
    if (!c.path || !reader->function_states)
        return gt_read_no_memory(reader);
    uint64_t cost = 0;
    return cost_of_nodes(&c, proto->graph->node, proto->graph->n_node, &cost);
}

/* ---- inlining -------------------------------------------------------------------------------- */

/* An output that no node of the function writes for the caller: an input passed through, or a name given
 * twice. */
typedef struct passed_output {
    gt_bytes name;
    uint32_t value;
} passed_output;

static gantry_status check_arity(gt_reader *reader, const GtOnnx__Function *f, const GtOnnx__Node *caller,
                                 const char *name)
{
    if (caller->n_input <= f->n_input && caller->n_output <= f->n_output)
        return GANTRY_OK;
    return GT_READ_FAIL(
        reader, GANTRY_MODEL_GRAPH, name,
        "node '%.300s' gives function '%s' %zu inputs and takes %zu outputs; it has %zu and %zu", name,
        gt_read_show(reader, f->name), caller->n_input, caller->n_output, f->n_input, f->n_output);
}

static gantry_status bind_inputs(gt_reader *reader, gt_scope *scope, const uint32_t *inputs)
{
    const gt_call *call = scope->call;
    for (size_t k = 0; k < call->function->n_input; k++) {
        uint32_t value = k < call->caller->n_input ? inputs[k] : GT_NONE;
        if (!gt_scope_set(scope, call->function->input[k], value))
            return gt_read_no_memory(reader);
    }
    return GANTRY_OK;
}

static bool is_known(const gt_scope *scope, gt_bytes name)
{
    return gt_map_get(&scope->names, name.data, name.len, GT_NONE - 1) != GT_NONE - 1;
}

static gantry_status bind_outputs(gt_reader *reader, gt_scope *scope, const uint32_t *outputs,
                                  passed_output *passed, uint32_t *out_passed_count)
{
    const gt_call *call = scope->call;
    *out_passed_count = 0;
    for (size_t k = 0; k < call->caller->n_output; k++) {
        gt_bytes name = call->function->output[k];
        if (outputs[k] == GT_NONE)
            continue;
        if (is_known(scope, name)) {
            passed[(*out_passed_count)++] = (passed_output){name, outputs[k]};
            continue;
        }
        scope->pending[scope->pending_count++] = (gt_pending_output){name, outputs[k], false};
        if (!gt_scope_set(scope, name, outputs[k]))
            return gt_read_no_memory(reader);
    }
    return GANTRY_OK;
}

static gantry_status check_produced(gt_reader *reader, const gt_scope *scope, const char *name)
{
    for (uint32_t k = 0; k < scope->pending_count; k++)
        if (!scope->pending[k].produced)
            return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, name,
                                "function '%s' (called by '%.300s') has no node that makes its output '%s'",
                                gt_read_show(reader, scope->call->function->name), name,
                                gt_read_show(reader, scope->pending[k].name));
    return GANTRY_OK;
}

static gantry_status pass_through(gt_reader *reader, gt_scope *scope, const char *name,
                                  const passed_output *passed)
{
    uint32_t from, node;
    bool found;
    GT_TRY(gt_scope_find(reader, scope, passed->name, &from, &found));
    if (from == GT_NONE)
        return GT_READ_FAIL(
            reader, GANTRY_MODEL_GRAPH, name,
            "function '%s' (called by '%.300s') passes input '%s' through, which the caller leaves out",
            gt_read_show(reader, scope->call->function->name), name, gt_read_show(reader, passed->name));
    int32_t opset = 1;
    for (uint32_t k = 0; k < scope->opset_count; k++)
        if (*scope->opsets[k].domain == 0)
            opset = (int32_t)scope->opsets[k].version;
    const char *base = gt_read_join(reader, scope->prefix, "Identity", "");
    if (!base)
        return gt_read_no_memory(reader);
    return gt_graph_add_node(scope->graph, base, "", "Identity", opset, 1, &from, 1, &passed->value, &node,
                             reader->err);
}

static gantry_status read_function(gt_reader *reader, gt_scope *scope, const char *name,
                                   const uint32_t *inputs, const uint32_t *outputs)
{
    const GtOnnx__Function *f = scope->call->function;
    size_t output_count = scope->call->caller->n_output;
    passed_output *passed = GT_ARENA_ARRAY(&reader->temp, passed_output, output_count);
    scope->pending = GT_ARENA_ARRAY(&reader->temp, gt_pending_output, output_count);
    if (!passed || !scope->pending)
        return gt_read_no_memory(reader);
    uint32_t passed_count;
    GT_TRY(bind_inputs(reader, scope, inputs));
    GT_TRY(bind_outputs(reader, scope, outputs, passed, &passed_count));
    GT_TRY(gt_read_nodes(reader, scope, f->node, f->n_node));
    GT_TRY(check_produced(reader, scope, name));
    for (uint32_t k = 0; k < passed_count; k++)
        GT_TRY(pass_through(reader, scope, name, &passed[k]));
    return gt_read_hints(reader, scope, f->value_info, f->n_value_info);
}

/* A function names its own opsets; one that does not is read with its caller's. */
static gantry_status function_opsets(gt_reader *reader, const gt_scope *caller, gt_scope *scope)
{
    const GtOnnx__Function *f = scope->call->function;
    char where[300];
    scope->opsets = caller->opsets;
    scope->opset_count = caller->opset_count;
    if (f->n_opset_import == 0)
        return GANTRY_OK;
    gt_opset *opsets;
    snprintf(where, sizeof where, "function '%s'", gt_read_show(reader, f->name));
    GT_TRY(gt_read_opsets(reader, f->opset_import, f->n_opset_import, where, &opsets, &scope->opset_count));
    scope->opsets = opsets;
    return GANTRY_OK;
}

gantry_status gt_inline_function(gt_reader *reader, gt_scope *caller_scope, const GtOnnx__Node *caller,
                                 const GtOnnx__Function *function, const char *name, const uint32_t *inputs,
                                 const uint32_t *outputs)
{
    gt_call call = {function, caller, caller_scope};
    gt_scope scope = {.graph = caller_scope->graph, .call = &call, .depth = caller_scope->depth + 1};
    GT_TRY(check_arity(reader, function, caller, name));
    scope.prefix = scope.value_prefix = gt_read_join(reader, name, "/", "");
    if (!scope.prefix)
        return gt_read_no_memory(reader);
    GT_TRY(function_opsets(reader, caller_scope, &scope));
    gt_map_init(&scope.names, reader->allocator);
    gantry_status status = read_function(reader, &scope, name, inputs, outputs);
    gt_map_free(&scope.names);
    return status;
}
