/* Writing a model: opset imports, metadata, the order of the parts, and the limit of a file. */
#include "onnx_write_internal.h"

/* From here on an initializer need not be an input of the graph, which would make it replaceable. */
#define OLDEST_IR 4
#define PRODUCER "gantry"
#define SOURCE_KEY "gantry.source_producer"

/* ---- opset imports --------------------------------------------------------------------------- */

typedef struct import_list {
    gt_writer *writer;
    GT_VEC(gt_opset) imports;
    gt_written *root;
} import_list;

static gt_opset *find_import(import_list *list, const char *domain)
{
    for (uint32_t k = 0; k < list->imports.count; k++)
        if (strcmp(list->imports.data[k].domain, domain) == 0)
            return &list->imports.data[k];
    return NULL;
}

static gantry_status add_import(import_list *list, const char *domain, int64_t version)
{
    gt_opset import = {domain, version};
    return gt_vec_push(list->writer->allocator, &list->imports, import) ? GANTRY_OK
                                                                        : gt_write_no_memory(list->writer);
}

/* Other domains have no table of versions here: all nodes of one must have the same. */
static gantry_status import_nodes(import_list *list, const gt_graph *graph)
{
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        const gt_opset *import = find_import(list, node->domain);
        if (!import)
            GT_TRY(add_import(list, node->domain, node->opset));
        else if (node->domain[0] && import->version != node->opset)
            return GT_WRITE_FAIL(
                list->writer, GANTRY_UNSUPPORTED, node->name,
                "node '%s' (%s) is of opset %d of domain '%s', another of opset %lld (functions may name "
                "opsets of their own): one file cannot hold both",
                node->name, node->op_type, node->opset, node->domain, (long long)import->version);
        for (uint32_t b = 0; b < node->body_count; b++)
            GT_TRY(import_nodes(list, node->bodies[b].graph));
    }
    return GANTRY_OK;
}

/* The domain of functions that are inlined: nothing in the file is of it any more. */
static bool is_function_domain(const gt_model *model, const char *domain)
{
    for (uint32_t k = 0; domain[0] && k < model->sources.count; k++) {
        const gt_source *source = &model->sources.data[k];
        if (source->removed_pass && strcmp(source->removed_pass, "functions") == 0 &&
            strcmp(source->domain, domain) == 0)
            return true;
    }
    return false;
}

static gantry_status list_imports(import_list *list, int64_t opset)
{
    gt_model *model = list->writer->model;
    for (uint32_t k = 0; k < model->opsets.count; k++) {
        const gt_opset *own = &model->opsets.data[k];
        if (!is_function_domain(model, own->domain))
            GT_TRY(add_import(list, own->domain, own->domain[0] ? own->version : opset));
    }
    GT_TRY(import_nodes(list, model->root));
    gt_opset *standard = find_import(list, "");
    if (!standard) /* an Identity that the writer adds is of this domain; checkers want it in any case */
        return add_import(list, "", opset);
    standard->version = opset;
    return GANTRY_OK;
}

static gantry_status write_imports(gt_writer *writer, GtOnnx__Model *to)
{
    import_list list = {.writer = writer};
    gantry_status status = gt_write_choose_opset(writer->model, &writer->result->opset, writer->err);
    if (status == GANTRY_OK)
        status = list_imports(&list, writer->result->opset);
    uint32_t count = list.imports.count;
    to->n_opset_import = count;
    to->opset_import = GT_ARENA_ARRAY(&writer->arena, GtOnnx__OperatorSetId *, count);
    for (uint32_t k = 0; k < count && status == GANTRY_OK; k++) {
        GtOnnx__OperatorSetId *import =
            GT_WRITE_NEW(writer, GtOnnx__OperatorSetId, GT_ONNX__OPERATOR_SET_ID__INIT);
        if (!import || !to->opset_import) {
            status = gt_write_no_memory(writer);
            break;
        }
        import->has_domain = import->has_version = true;
        import->domain = gt_write_text(list.imports.data[k].domain);
        import->version = list.imports.data[k].version;
        to->opset_import[k] = import;
    }
    gt_vec_free(writer->allocator, &list.imports);
    return status;
}

/* ---- metadata -------------------------------------------------------------------------------- */

static const char *fixed_metadata(const gt_model *model, const char *key)
{
    for (uint32_t k = model->custom_metadata_count; k < model->metadata.count; k++)
        if (strcmp(model->metadata.data[k].key, key) == 0)
            return model->metadata.data[k].value;
    return "";
}

gantry_status gt_write_entry(gt_writer *writer, const char *key, const char *value,
                             GtOnnx__StringStringEntry **out_entry)
{
    GtOnnx__StringStringEntry *entry = *out_entry =
        GT_WRITE_NEW(writer, GtOnnx__StringStringEntry, GT_ONNX__STRING_STRING_ENTRY__INIT);
    if (!entry || !value)
        return gt_write_no_memory(writer);
    entry->has_key = entry->has_value = true;
    entry->key = gt_write_text(key);
    entry->value = gt_write_text(value);
    return GANTRY_OK;
}

static gantry_status add_entry(gt_writer *writer, GtOnnx__Model *to, const char *key, const char *value)
{
    return gt_write_entry(writer, key, value, &to->metadata_props[to->n_metadata_props++]);
}

/* Who made the model that this one was made from; that of the first of several turns stays. */
static gantry_status add_source_producer(gt_writer *writer, GtOnnx__Model *to)
{
    const gt_model *model = writer->model;
    const char *name = fixed_metadata(model, "producer_name");
    const char *version = fixed_metadata(model, "producer_version");
    if (!name[0] || strcmp(name, PRODUCER) == 0)
        return GANTRY_OK;
    for (uint32_t k = 0; k < model->custom_metadata_count; k++)
        if (strcmp(model->metadata.data[k].key, SOURCE_KEY) == 0)
            return GANTRY_OK;
    writer->text.length = 0;
    gt_text_printf(&writer->text, "%s%s%s", name, version[0] ? " " : "", version);
    const char *text =
        writer->text.failed ? NULL : gt_arena_text(&writer->arena, writer->text.data, writer->text.length);
    return text ? add_entry(writer, to, SOURCE_KEY, text) : gt_write_no_memory(writer);
}

static gantry_status write_metadata(gt_writer *writer, GtOnnx__Model *to)
{
    const gt_model *model = writer->model;
    const char *domain = fixed_metadata(model, "domain"), *doc = fixed_metadata(model, "doc_string");
    to->has_ir_version = to->has_producer_name = to->has_producer_version = to->has_model_version = true;
    to->ir_version = model->ir_version < OLDEST_IR ? OLDEST_IR : model->ir_version;
    to->producer_name = gt_write_text(PRODUCER);
    to->producer_version = gt_write_text(writer->options->version ? writer->options->version : "");
    to->model_version = strtoll(fixed_metadata(model, "model_version"), NULL, 10);
    to->has_domain = domain[0] != 0;
    to->domain = gt_write_text(domain);
    to->has_doc_string = doc[0] != 0;
    to->doc_string = gt_write_text(doc);
    size_t count = (size_t)model->custom_metadata_count + 1;
    to->metadata_props = GT_ARENA_ARRAY(&writer->arena, GtOnnx__StringStringEntry *, count);
    if (!to->metadata_props)
        return gt_write_no_memory(writer);
    for (uint32_t k = 0; k < model->custom_metadata_count; k++)
        GT_TRY(add_entry(writer, to, model->metadata.data[k].key, model->metadata.data[k].value));
    return add_source_producer(writer, to);
}

/* ---- the model ------------------------------------------------------------------------------- */

static gantry_status check_size(gt_writer *writer, const GtOnnx__Model *proto)
{
    uint64_t limit = writer->options->max_bytes ? writer->options->max_bytes : GT_WRITE_MAX_BYTES;
    writer->result->model_bytes = gt_onnx__model__get_packed_size(proto);
    if (writer->result->model_bytes <= limit)
        return GANTRY_OK;
    return GT_WRITE_FAIL(writer, GANTRY_RESOURCE, NULL,
                         "the model would have %llu bytes; a model file can have %llu. %s",
                         (unsigned long long)writer->result->model_bytes, (unsigned long long)limit,
                         writer->options->external_name
                             ? "Even with its large constants in a file of their own it does not fit."
                             : "Give a file for its constants (external data).");
}

static gantry_status write_model(gt_writer *writer, const gt_write_sink *file, const gt_write_sink *external)
{
    GtOnnx__Model proto = GT_ONNX__MODEL__INIT;
    gt_written *root;
    GT_TRY(write_metadata(writer, &proto));
    GT_TRY(write_imports(writer, &proto));
    GT_TRY(gt_write_plan_names(writer, writer->model->root, &root));
    GT_TRY(gt_write_graph(writer, root, &proto.graph));
    GT_TRY(check_size(writer, &proto));
    if (external && writer->external.count)
        GT_TRY(gt_write_external(writer, external));
    return gt_write_message(writer, &proto.base, file);
}

gantry_status gt_onnx_write(gt_model *model, const gt_write_options *options, const gt_write_sink *file,
                            const gt_write_sink *external, gt_write_result *out_result, gantry_error *err)
{
    *out_result = (gt_write_result){0};
    gt_writer writer = {.model = model,
                        .allocator = model->allocator,
                        .options = options,
                        .result = out_result,
                        .stand_ins = gt_alloc(model->allocator, (size_t)model->constants.count + 1),
                        .err = err};
    gt_arena_init(&writer.arena, model->allocator);
    gt_text_init(&writer.text, model->allocator);
    gantry_status status =
        writer.stand_ins ? write_model(&writer, file, external) : gt_write_no_memory(&writer);
    for (uint32_t k = 0; k < writer.graphs.count; k++)
        gt_written_free(writer.graphs.data[k]);
    gt_vec_free(writer.allocator, &writer.graphs);
    gt_vec_free(writer.allocator, &writer.external);
    gt_text_free(&writer.text);
    gt_arena_clear(&writer.arena);
    gt_free(writer.allocator, writer.stand_ins);
    return status;
}
