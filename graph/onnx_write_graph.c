/* Graphs, nodes and attributes of a written file. */
#include "onnx_write_internal.h"

/* Value of AttributeProto.type for a body; the other kinds have the numbers of gantry_attribute_kind. */
#define TYPE_GRAPH 5

/* ---- attributes ------------------------------------------------------------------------------ */

static gantry_status set_strings(gt_writer *writer, const gantry_attribute *from, GtOnnx__Attribute *to)
{
    to->n_strings = from->count;
    to->strings = GT_ARENA_ARRAY(&writer->arena, ProtobufCBinaryData, from->count);
    if (!to->strings)
        return gt_write_no_memory(writer);
    for (uint32_t k = 0; k < from->count; k++)
        to->strings[k] = gt_write_text(from->strings[k]);
    return GANTRY_OK;
}

static gantry_status set_tensors(gt_writer *writer, const gantry_attribute *from, GtOnnx__Attribute *to)
{
    to->n_tensors = from->count;
    to->tensors = GT_ARENA_ARRAY(&writer->arena, GtOnnx__Tensor *, from->count);
    if (!to->tensors)
        return gt_write_no_memory(writer);
    for (uint32_t k = 0; k < from->count; k++)
        GT_TRY(gt_write_tensor(writer, &from->tensors[k], &to->tensors[k]));
    return GANTRY_OK;
}

static gantry_status set_value(gt_writer *writer, const gantry_attribute *from, GtOnnx__Attribute *to)
{
    switch (from->kind) {
    case GANTRY_ATTR_FLOAT:
        to->has_f = true;
        to->f = from->f;
        return GANTRY_OK;
    case GANTRY_ATTR_INT:
        to->has_i = true;
        to->i = from->i;
        return GANTRY_OK;
    case GANTRY_ATTR_STRING:
        to->has_s = true;
        to->s = (ProtobufCBinaryData){from->length, (uint8_t *)(uintptr_t)from->s};
        return GANTRY_OK;
    case GANTRY_ATTR_TENSOR:
        return gt_write_tensor(writer, from->tensors, &to->t);
    case GANTRY_ATTR_FLOATS:
        to->n_floats = from->count;
        to->floats = (float *)(uintptr_t)from->floats;
        return GANTRY_OK;
    case GANTRY_ATTR_INTS:
        to->n_ints = from->count;
        to->ints = (int64_t *)(uintptr_t)from->ints;
        return GANTRY_OK;
    case GANTRY_ATTR_STRINGS:
        return set_strings(writer, from, to);
    case GANTRY_ATTR_TENSORS:
        return set_tensors(writer, from, to);
    }
    return GT_WRITE_FAIL(writer, GANTRY_INTERNAL, NULL, "attribute '%.200s' has the unknown kind %d",
                         from->name, (int)from->kind);
}

static GtOnnx__Attribute *new_attribute(gt_writer *writer, const char *name, int32_t type)
{
    GtOnnx__Attribute *attribute = GT_WRITE_NEW(writer, GtOnnx__Attribute, GT_ONNX__ATTRIBUTE__INIT);
    if (!attribute)
        return NULL;
    attribute->has_name = attribute->has_type = true;
    attribute->name = gt_write_text(name);
    attribute->type = type;
    return attribute;
}

static gantry_status write_attribute(gt_writer *writer, const gantry_attribute *from, GtOnnx__Attribute **out)
{
    *out = new_attribute(writer, from->name, (int32_t)from->kind);
    return *out ? set_value(writer, from, *out) : gt_write_no_memory(writer);
}

static void *take_memory(void *self, size_t bytes)
{
    return gt_arena_take(self, bytes);
}

static void leave_memory(void *self, void *block)
{
    (void)self;
    (void)block;
}

ProtobufCAllocator gt_write_allocator(gt_writer *writer)
{
    return (ProtobufCAllocator){take_memory, leave_memory, &writer->arena};
}

static gantry_status write_kept(gt_writer *writer, const gt_kept_attribute *kept, GtOnnx__Attribute **out)
{
    ProtobufCAllocator allocator = gt_write_allocator(writer);
    *out = gt_onnx__attribute__unpack(&allocator, kept->size, kept->bytes);
    return *out ? GANTRY_OK : gt_write_no_memory(writer);
}

static gantry_status write_body(gt_writer *writer, gt_written *written, const gt_body *body,
                                GtOnnx__Attribute **out)
{
    *out = new_attribute(writer, body->name, TYPE_GRAPH);
    if (!*out)
        return gt_write_no_memory(writer);
    return gt_write_graph(writer, written->bodies[written->next_body++], &(*out)->g);
}

static gantry_status write_attributes(gt_writer *writer, gt_written *written, const gt_node *from,
                                      GtOnnx__Node *to)
{
    size_t count = (size_t)from->attribute_count + from->kept_count + from->body_count;
    GtOnnx__Attribute **next = to->attribute = GT_ARENA_ARRAY(&writer->arena, GtOnnx__Attribute *, count);
    if (!next)
        return gt_write_no_memory(writer);
    to->n_attribute = count;
    for (uint32_t k = 0; k < from->attribute_count; k++)
        GT_TRY(write_attribute(writer, &from->attributes[k], next++));
    for (uint32_t k = 0; k < from->kept_count; k++)
        GT_TRY(write_kept(writer, &from->kept[k], next++));
    for (uint32_t k = 0; k < from->body_count; k++)
        GT_TRY(write_body(writer, written, &from->bodies[k], next++));
    return GANTRY_OK;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static gantry_status write_names(gt_writer *writer, const gt_written *written, const uint32_t *ids,
                                 uint32_t count, ProtobufCBinaryData **out_names)
{
    *out_names = GT_ARENA_ARRAY(&writer->arena, ProtobufCBinaryData, count);
    if (!*out_names)
        return gt_write_no_memory(writer);
    for (uint32_t k = 0; k < count; k++)
        (*out_names)[k] = gt_write_text(gt_written_name(written, ids[k]));
    return GANTRY_OK;
}

/* Names of nodes in bodies begin with their owner's in the model, and do again when the file is read. */
static const char *name_in_graph(const gt_graph *graph, const char *name)
{
    size_t length = strlen(graph->scope);
    return strncmp(name, graph->scope, length) == 0 && name[length] ? name + length : name;
}

static GtOnnx__Node *new_node(gt_writer *writer, const char *name, const char *domain, const char *op_type)
{
    GtOnnx__Node *node = GT_WRITE_NEW(writer, GtOnnx__Node, GT_ONNX__NODE__INIT);
    if (!node)
        return NULL;
    node->has_name = node->has_op_type = true;
    node->name = gt_write_text(name);
    node->op_type = gt_write_text(op_type);
    node->has_domain = domain[0] != 0;
    node->domain = gt_write_text(domain);
    writer->result->node_count++;
    return node;
}

/* Of the file's node that has its name; what a rewrite made has none. */
static const gt_source_notes *notes_of(const gt_writer *writer, const gt_node *node)
{
    for (uint32_t k = 0; k < node->lineage.count; k++) {
        const gt_source *source = &writer->model->sources.data[node->lineage.sources[k]];
        if (strcmp(source->name, node->name) == 0)
            return source->notes;
    }
    return NULL;
}

static gantry_status write_notes(gt_writer *writer, const gt_node *from, GtOnnx__Node *to)
{
    const gt_source_notes *notes = notes_of(writer, from);
    if (!notes)
        return GANTRY_OK;
    to->has_doc_string = notes->doc[0] != 0;
    to->doc_string = gt_write_text(notes->doc);
    to->metadata_props = GT_ARENA_ARRAY(&writer->arena, GtOnnx__StringStringEntry *, notes->count);
    if (!to->metadata_props)
        return gt_write_no_memory(writer);
    for (uint32_t k = 0; k < notes->count; k++)
        GT_TRY(gt_write_entry(writer, notes->metadata[k].key, notes->metadata[k].value,
                              &to->metadata_props[to->n_metadata_props++]));
    return GANTRY_OK;
}

static gantry_status write_node(gt_writer *writer, gt_written *written, const gt_node *from,
                                GtOnnx__Node **out_node)
{
    GtOnnx__Node *node =
        new_node(writer, name_in_graph(written->graph, from->name), from->domain, from->op_type);
    *out_node = node;
    if (!node)
        return gt_write_no_memory(writer);
    node->n_input = from->input_count;
    node->n_output = from->output_count;
    GT_TRY(write_names(writer, written, from->inputs, from->input_count, &node->input));
    GT_TRY(write_names(writer, written, from->outputs, from->output_count, &node->output));
    GT_TRY(write_notes(writer, from, node));
    return write_attributes(writer, written, from, node);
}

/* An output of a body that is a value from outside, or one that is handed out twice. */
static bool needs_identity(const gt_written *written, uint32_t output)
{
    uint32_t id = written->graph->outputs.data[output];
    return strcmp(written->outputs[output], gt_written_name(written, id)) != 0;
}

static gantry_status write_identity(gt_writer *writer, const gt_written *written, uint32_t output,
                                    GtOnnx__Node **out_node)
{
    const char *name = written->outputs[output];
    GtOnnx__Node *node = *out_node = new_node(writer, name, "", "Identity");
    ProtobufCBinaryData from = gt_write_text(gt_written_name(written, written->graph->outputs.data[output]));
    ProtobufCBinaryData to = gt_write_text(name);
    if (!node || !(node->input = gt_arena_copy(&writer->arena, &from, sizeof from)) ||
        !(node->output = gt_arena_copy(&writer->arena, &to, sizeof to)))
        return gt_write_no_memory(writer);
    node->n_input = node->n_output = 1;
    return GANTRY_OK;
}

static gantry_status write_nodes(gt_writer *writer, gt_written *written, GtOnnx__Graph *to)
{
    const gt_graph *graph = written->graph;
    to->node =
        GT_ARENA_ARRAY(&writer->arena, GtOnnx__Node *, (size_t)graph->order.count + graph->outputs.count);
    if (!to->node)
        return gt_write_no_memory(writer);
    for (uint32_t k = 0; k < graph->order.count; k++)
        GT_TRY(write_node(writer, written, graph->nodes.data[graph->order.data[k]], &to->node[to->n_node++]));
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        if (needs_identity(written, k))
            GT_TRY(write_identity(writer, written, k, &to->node[to->n_node++]));
    return GANTRY_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Sparse ones stay sparse: dense they can be any number of times as large. */
static gantry_status write_initializer(gt_writer *writer, const gt_written *written, uint32_t id,
                                       GtOnnx__Graph *to)
{
    uint32_t constant = written->graph->values.data[id]->constant;
    const char *name = written->names[id];
    if (writer->model->constants.data[constant].sparse)
        return gt_write_sparse(writer, constant, name, &to->sparse_initializer[to->n_sparse_initializer++]);
    return gt_write_constant(writer, constant, name, &to->initializer[to->n_initializer++]);
}

/* Defaults of inputs come first: so they do when the file is read again. */
static gantry_status write_initializers(gt_writer *writer, const gt_written *written, GtOnnx__Graph *to)
{
    const gt_graph *graph = written->graph;
    to->initializer = GT_ARENA_ARRAY(&writer->arena, GtOnnx__Tensor *, graph->values.count);
    to->sparse_initializer = GT_ARENA_ARRAY(&writer->arena, GtOnnx__SparseTensor *, graph->values.count);
    if (!to->initializer || !to->sparse_initializer)
        return gt_write_no_memory(writer);
    for (uint32_t k = 0; k < graph->inputs.count; k++)
        if (graph->values.data[graph->inputs.data[k]]->constant != GT_NONE)
            GT_TRY(write_initializer(writer, written, graph->inputs.data[k], to));
    for (uint32_t id = 0; id < graph->values.count; id++)
        if (gt_value_is_constant(graph->values.data[id]) && gt_written_is_held(written, id))
            GT_TRY(write_initializer(writer, written, id, to));
    return GANTRY_OK;
}

static gantry_status write_interface(gt_writer *writer, const gt_written *written, const uint32_t *ids,
                                     uint32_t count, const char *const *names, GtOnnx__ValueInfo ***out_infos)
{
    *out_infos = GT_ARENA_ARRAY(&writer->arena, GtOnnx__ValueInfo *, count);
    if (!*out_infos)
        return gt_write_no_memory(writer);
    for (uint32_t k = 0; k < count; k++) {
        const char *name = names ? names[k] : written->names[ids[k]];
        /* What is declared of a body's input, or outside of it, is not said again of an output that is the
         * same value: read again, that would be more than is known now. */
        bool passed =
            names && written->graph->parent && written->graph->values.data[ids[k]]->producer == GT_NONE;
        GT_TRY(gt_write_value_info(writer, written, ids[k], name, !passed, &(*out_infos)[k]));
    }
    return GANTRY_OK;
}

static gantry_status write_value_info(gt_writer *writer, const gt_written *written, uint32_t id,
                                      GtOnnx__Graph *to)
{
    const gt_value *value = gt_graph_value(written->graph, id);
    if (!value || value->is_output || !gt_write_has_type(value))
        return GANTRY_OK;
    return gt_write_value_info(writer, written, id, written->names[id], true,
                               &to->value_info[to->n_value_info++]);
}

/* In the order of nodes: that of ids depends on what was rewritten. */
static gantry_status write_value_infos(gt_writer *writer, const gt_written *written, GtOnnx__Graph *to)
{
    const gt_graph *graph = written->graph;
    to->value_info = GT_ARENA_ARRAY(&writer->arena, GtOnnx__ValueInfo *, graph->values.count);
    if (!to->value_info)
        return gt_write_no_memory(writer);
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        for (uint32_t o = 0; o < node->output_count; o++)
            GT_TRY(write_value_info(writer, written, node->outputs[o], to));
    }
    return GANTRY_OK;
}

gantry_status gt_write_graph(gt_writer *writer, gt_written *written, GtOnnx__Graph **out_graph)
{
    const gt_graph *graph = written->graph;
    GtOnnx__Graph *to = *out_graph = GT_WRITE_NEW(writer, GtOnnx__Graph, GT_ONNX__GRAPH__INIT);
    if (!to)
        return gt_write_no_memory(writer);
    to->has_name = true;
    to->name = gt_write_text(graph->name[0] ? graph->name : "graph"); /* checkers want one */
    to->n_input = graph->inputs.count;
    to->n_output = graph->outputs.count;
    GT_TRY(write_initializers(writer, written, to));
    GT_TRY(write_nodes(writer, written, to));
    GT_TRY(write_interface(writer, written, graph->inputs.data, graph->inputs.count, NULL, &to->input));
    GT_TRY(write_interface(writer, written, graph->outputs.data, graph->outputs.count, written->outputs,
                           &to->output));
    return write_value_infos(writer, written, to);
}
