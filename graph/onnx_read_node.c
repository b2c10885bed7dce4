/* Reading the nodes of a graph, body or function: all their names first, because the file's order may be any.
 */
#include "onnx_read.h"

/* ---- names ----------------------------------------------------------------------------------- */

static bool is_taken(const gt_reader *reader, const char *name)
{
    return gt_map_get(&reader->model->node_names, name, strlen(name), GT_NONE) != GT_NONE;
}

/* "prefix + name", or "prefix + OP_k" when the node has none. */
static const char *base_name(gt_reader *reader, const gt_scope *scope, const GtOnnx__Node *node, size_t k)
{
    char number[24];
    const char *text = gt_read_text(reader, &reader->temp, node->name.len ? node->name : node->op_type);
    if (!text)
        return NULL;
    if (node->name.len && !*scope->prefix)
        return text;
    snprintf(number, sizeof number, "_%zu", k);
    return gt_read_join(reader, scope->prefix, text, node->name.len ? "" : number);
}

static const char *take_name(gt_reader *reader, const GtOnnx__Node *node, const char *base, size_t k)
{
    char number[24];
    snprintf(number, sizeof number, "_%zu", k);
    if (base && node->name.len && is_taken(reader, base))
        base = gt_read_join(reader, base, number, "");
    return base ? gt_model_take_node_name(reader->model, base, "node") : NULL;
}

/* Names in the file come first: a node without one must not take the name of a later one. */
static gantry_status name_nodes(gt_reader *reader, const gt_scope *scope, GtOnnx__Node *const *nodes,
                                size_t count, const char **names)
{
    for (size_t k = 0; k < count; k++) {
        if (nodes[k]->name.len == 0)
            continue;
        const char *base = base_name(reader, scope, nodes[k], k);
        if (base && is_taken(reader, base))
            continue;
        if (!(names[k] = take_name(reader, nodes[k], base, k)))
            return gt_read_no_memory(reader);
    }
    for (size_t k = 0; k < count; k++)
        if (!names[k] && !(names[k] = take_name(reader, nodes[k], base_name(reader, scope, nodes[k], k), k)))
            return gt_read_no_memory(reader);
    return GANTRY_OK;
}

/* *out_notes stays NULL where there are none. */
static gantry_status read_notes(gt_reader *reader, const GtOnnx__Node *node,
                                const gt_source_notes **out_notes)
{
    gt_arena *arena = &reader->model->arena;
    *out_notes = NULL;
    if (!node->doc_string.len && !node->n_metadata_props)
        return GANTRY_OK;
    gt_source_notes *notes = GT_ARENA_NEW(arena, gt_source_notes);
    gt_metadata *metadata = GT_ARENA_ARRAY(arena, gt_metadata, node->n_metadata_props);
    if (!notes || !metadata)
        return gt_read_no_memory(reader);
    *notes = (gt_source_notes){gt_read_text(reader, arena, node->doc_string),
                               (uint32_t)node->n_metadata_props, metadata};
    bool fits = notes->doc != NULL;
    for (size_t k = 0; k < node->n_metadata_props && fits; k++) {
        metadata[k].key = gt_read_text(reader, arena, node->metadata_props[k]->key);
        metadata[k].value = gt_read_text(reader, arena, node->metadata_props[k]->value);
        fits = metadata[k].key && metadata[k].value;
    }
    *out_notes = notes;
    return fits ? GANTRY_OK : gt_read_no_memory(reader);
}

static gantry_status add_source(gt_reader *reader, const GtOnnx__Node *node, const char *name)
{
    gt_arena *arena = &reader->model->arena;
    gt_source source = {.name = name, .op = NULL, .domain = ""};
    source.op = gt_read_text(reader, arena, node->op_type);
    GT_TRY(read_notes(reader, node, &source.notes));
    if (node->domain.len && !gt_bytes_are(node->domain, "ai.onnx"))
        source.domain = gt_read_text(reader, arena, node->domain);
    if (!source.op || !source.domain || !gt_vec_push(reader->allocator, &reader->model->sources, source))
        return gt_read_no_memory(reader);
    return GANTRY_OK;
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* An output of a function which the caller has a value for; true once for each. */
static bool claim_pending(gt_scope *scope, gt_bytes name)
{
    for (uint32_t k = 0; k < scope->pending_count; k++)
        if (!scope->pending[k].produced && gt_bytes_equal(scope->pending[k].name, name))
            return scope->pending[k].produced = true;
    return false;
}

static const char *earlier_writer(GtOnnx__Node *const *nodes, const char *const *names, size_t before,
                                  gt_bytes name)
{
    for (size_t k = 0; k < before; k++)
        for (size_t j = 0; j < nodes[k]->n_output; j++)
            if (gt_bytes_equal(nodes[k]->output[j], name))
                return names[k];
    return NULL;
}

static gantry_status declare_output(gt_reader *reader, gt_scope *scope, GtOnnx__Node *const *nodes,
                                    const char *const *names, size_t k, gt_bytes name)
{
    uint32_t id;
    if (claim_pending(scope, name))
        return GANTRY_OK;
    gantry_status status = gt_scope_declare(reader, scope, name, "output", names[k], &id);
    const char *other = status == GANTRY_MODEL_GRAPH ? earlier_writer(nodes, names, k, name) : NULL;
    if (other)
        return GT_READ_FAIL(
            reader, status, names[k],
            "value '%s' is written by node '%.300s' and by node '%.300s': each can be written only once",
            gt_read_show(reader, name), other, names[k]);
    return status;
}

static gantry_status declare_outputs(gt_reader *reader, gt_scope *scope, GtOnnx__Node *const *nodes,
                                     size_t count, const char *const *names)
{
    for (size_t k = 0; k < count; k++)
        for (size_t j = 0; j < nodes[k]->n_output; j++)
            if (nodes[k]->output[j].len)
                GT_TRY(declare_output(reader, scope, nodes, names, k, nodes[k]->output[j]));
    return GANTRY_OK;
}

/* ---- one node -------------------------------------------------------------------------------- */

static gantry_status find_opset(gt_reader *reader, const gt_scope *scope, const GtOnnx__Node *node,
                                const char *name, int32_t *out_opset)
{
    bool standard = node->domain.len == 0 || gt_bytes_are(node->domain, "ai.onnx");
    for (uint32_t k = 0; k < scope->opset_count; k++) {
        const gt_opset *opset = &scope->opsets[k];
        if (standard ? *opset->domain == 0 : gt_bytes_are(node->domain, opset->domain)) {
            *out_opset = (int32_t)opset->version;
            return GANTRY_OK;
        }
    }
    return GT_READ_FAIL(reader, GANTRY_MODEL_GRAPH, name,
                        "node '%.300s' (%s) is of domain '%s', but %s has no opset import for that domain",
                        name, gt_read_show(reader, node->op_type),
                        standard ? "ai.onnx" : gt_read_show(reader, node->domain),
                        scope->call ? "its function" : "the model");
}

static gantry_status find_inputs(gt_reader *reader, gt_scope *scope, const GtOnnx__Node *node,
                                 const char *name, uint32_t *out_inputs)
{
    for (size_t k = 0; k < node->n_input; k++) {
        bool found = true;
        out_inputs[k] = GT_NONE;
        if (node->input[k].len)
            GT_TRY(gt_scope_find(reader, scope, node->input[k], &out_inputs[k], &found));
        if (!found)
            return GT_READ_FAIL(
                reader, GANTRY_MODEL_GRAPH, name,
                "input %zu of node '%.300s' (%s) is '%s', which nothing defines: no graph input, "
                "initializer or node output has this name",
                k, name, gt_read_show(reader, node->op_type), gt_read_show(reader, node->input[k]));
    }
    return GANTRY_OK;
}

static gantry_status find_outputs(gt_reader *reader, gt_scope *scope, const GtOnnx__Node *node,
                                  uint32_t *out_outputs)
{
    for (size_t k = 0; k < node->n_output; k++) {
        bool found;
        out_outputs[k] = GT_NONE;
        if (node->output[k].len)
            GT_TRY(gt_scope_find(reader, scope, node->output[k], &out_outputs[k], &found));
    }
    return GANTRY_OK;
}

/* What became of a node that is not one of ours. */
static void retire_source(gt_reader *reader, uint32_t source, const char *by, const char *pass)
{
    reader->model->sources.data[source].removed_by = by;
    reader->model->sources.data[source].removed_pass = pass;
}

static gantry_status put_node(gt_reader *reader, gt_scope *scope, const GtOnnx__Node *proto, const char *name,
                              uint32_t source, const uint32_t *inputs, const uint32_t *outputs)
{
    gt_arena *arena = &reader->model->arena;
    int32_t opset;
    uint32_t id;
    GT_TRY(find_opset(reader, scope, proto, name, &opset));
    GT_TRY(gt_graph_put_node(scope->graph, name, reader->model->sources.data[source].domain,
                             reader->model->sources.data[source].op, opset, (uint32_t)proto->n_input, inputs,
                             (uint32_t)proto->n_output, outputs, &id, reader->err));
    uint32_t *sources = gt_arena_copy(arena, &source, sizeof source);
    if (!sources)
        return gt_read_no_memory(reader);
    scope->graph->nodes.data[id]->lineage = (gt_lineage){1, sources, NULL};
    reader->model->sources.data[source].holders = 1;
    return gt_read_attributes(reader, scope, proto, id);
}

static gantry_status read_node(gt_reader *reader, gt_scope *scope, const GtOnnx__Node *proto,
                               const char *name, uint32_t source)
{
    uint32_t *inputs = GT_ARENA_ARRAY(&reader->temp, uint32_t, proto->n_input);
    uint32_t *outputs = GT_ARENA_ARRAY(&reader->temp, uint32_t, proto->n_output);
    if (!inputs || !outputs)
        return gt_read_no_memory(reader);
    if (proto->n_input > UINT16_MAX * 64u || proto->n_output > UINT16_MAX * 64u)
        return GT_READ_FAIL(reader, GANTRY_RESOURCE, name,
                            "node '%.300s' has %zu inputs and %zu outputs: too many", name, proto->n_input,
                            proto->n_output);
    GT_TRY(find_inputs(reader, scope, proto, name, inputs));
    GT_TRY(find_outputs(reader, scope, proto, outputs));
    const GtOnnx__Function *function;
    GT_TRY(gt_find_function(reader, proto, &function));
    if (function) {
        retire_source(reader, source, "inlined", "functions");
        return gt_inline_function(reader, scope, proto, function, name, inputs, outputs);
    }
    bool standard = proto->domain.len == 0 || gt_bytes_are(proto->domain, "ai.onnx");
    if (standard && gt_bytes_are(proto->op_type, "Constant")) {
        retire_source(reader, source, "constant", "read");
        return gt_read_constant_node(reader, scope, proto, name, proto->n_output ? outputs[0] : GT_NONE);
    }
    return put_node(reader, scope, proto, name, source, inputs, outputs);
}

gantry_status gt_read_nodes(gt_reader *reader, gt_scope *scope, GtOnnx__Node *const *nodes, size_t count)
{
    const char **names = GT_ARENA_ARRAY(&reader->temp, const char *, count);
    if (!names)
        return gt_read_no_memory(reader);
    GT_TRY(name_nodes(reader, scope, nodes, count, names));
    uint32_t first_source = reader->model->sources.count;
    for (size_t k = 0; k < count; k++)
        GT_TRY(add_source(reader, nodes[k], names[k]));
    GT_TRY(declare_outputs(reader, scope, nodes, count, names));
    for (size_t k = 0; k < count; k++)
        GT_TRY(read_node(reader, scope, nodes[k], names[k], first_source + (uint32_t)k));
    return GANTRY_OK;
}
