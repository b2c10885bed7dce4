/* One node as an ONNX model: the few messages of protobuf that it takes, written by hand. */
#include "kit.h"

#include <stdlib.h>

static void put(kit_bytes *out, const void *data, size_t count)
{
    if (out->count + count > out->capacity) {
        size_t capacity = 2 * (out->count + count) + 64;
        unsigned char *grown = realloc(out->data, capacity);
        out->failed |= !grown;
        if (!grown)
            return;
        out->data = grown;
        out->capacity = capacity;
    }
    if (count)
        memcpy(out->data + out->count, data, count);
    out->count += count;
}

static void put_varint(kit_bytes *out, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;
    for (; value >= 128; value >>= 7)
        bytes[count++] = (unsigned char)(value | 128);
    bytes[count++] = (unsigned char)value;
    put(out, bytes, count);
}

static void put_int(kit_bytes *out, uint32_t field, int64_t value)
{
    put_varint(out, field << 3);
    put_varint(out, (uint64_t)value);
}

static void put_float(kit_bytes *out, uint32_t field, float value)
{
    put_varint(out, field << 3 | 5);
    put(out, &value, sizeof value);
}

static void put_block(kit_bytes *out, uint32_t field, const void *data, size_t count)
{
    put_varint(out, field << 3 | 2);
    put_varint(out, count);
    put(out, data, count);
}

static void put_text(kit_bytes *out, uint32_t field, const char *text)
{
    put_block(out, field, text, strlen(text));
}

/* Takes the inner message over. */
static void put_message(kit_bytes *out, uint32_t field, kit_bytes *inner)
{
    put_block(out, field, inner->data, inner->count);
    out->failed |= inner->failed;
    free(inner->data);
    *inner = (kit_bytes){0};
}

/* ---- the parts ------------------------------------------------------------------------------- */

static void write_tensor(kit_bytes *out, uint32_t field, const char *name, gantry_dtype dtype, uint32_t rank,
                         const int64_t *dims, const void *data, size_t bytes)
{
    kit_bytes tensor = {0};
    for (uint32_t k = 0; k < rank; k++)
        put_int(&tensor, 1, dims[k]);
    put_int(&tensor, 2, dtype);
    if (*name)
        put_text(&tensor, 8, name);
    put_block(&tensor, 9, data, bytes);
    put_message(out, field, &tensor);
}

static void write_attribute(kit_bytes *out, const gantry_attribute *a)
{
    kit_bytes attribute = {0};
    put_text(&attribute, 1, a->name);
    switch (a->kind) {
    case GANTRY_ATTR_FLOAT:
        put_float(&attribute, 2, a->f);
        break;
    case GANTRY_ATTR_INT:
        put_int(&attribute, 3, a->i);
        break;
    case GANTRY_ATTR_STRING:
        put_block(&attribute, 4, a->s, a->length);
        break;
    case GANTRY_ATTR_TENSOR:
        write_tensor(&attribute, 5, "", a->tensors->dtype, a->tensors->rank, a->tensors->dims,
                     (const char *)a->tensors->buffer.handle + a->tensors->buffer.offset_bytes,
                     a->tensors->size_bytes);
        break;
    case GANTRY_ATTR_FLOATS:
        for (uint32_t k = 0; k < a->count; k++)
            put_float(&attribute, 7, a->floats[k]);
        break;
    case GANTRY_ATTR_INTS:
        for (uint32_t k = 0; k < a->count; k++)
            put_int(&attribute, 8, a->ints[k]);
        break;
    case GANTRY_ATTR_STRINGS:
        for (uint32_t k = 0; k < a->count; k++)
            put_text(&attribute, 9, a->strings[k]);
        break;
    case GANTRY_ATTR_TENSORS:
        break;
    }
    put_int(&attribute, 20, a->kind);
    put_message(out, 5, &attribute);
}

static void write_type(kit_bytes *out, uint32_t field, const char *name, const kit_array *array,
                       gantry_dtype dtype)
{
    kit_bytes shape = {0}, tensor = {0}, type = {0}, info = {0};
    put_int(&tensor, 1, array ? array->dtype : dtype);
    for (uint32_t k = 0; array && k < array->rank; k++) {
        kit_bytes dim = {0};
        if (array->dims[k] < 0)
            put_text(&dim, 2, "n");
        else
            put_int(&dim, 1, array->dims[k]);
        put_message(&shape, 1, &dim);
    }
    if (array)
        put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&info, 1, name);
    put_message(&info, 2, &type);
    put_message(out, field, &info);
}

static const char *operand_name(const gantry_graph_view *graph, uint32_t value)
{
    return value == GANTRY_NO_ID ? "" : graph->values[value]->name;
}

/* first and result: other names for the first operand and the first result, or NULL. */
static void write_node(kit_bytes *graph_out, const gantry_graph_view *graph, const gantry_node_view *node,
                       const char *first, const char *result)
{
    kit_bytes out = {0};
    for (uint32_t k = 0; k < node->input_count; k++)
        put_text(&out, 1, k == 0 && first ? first : operand_name(graph, node->inputs[k]));
    for (uint32_t k = 0; k < node->output_count; k++)
        put_text(&out, 2, k == 0 && result ? result : operand_name(graph, node->outputs[k]));
    put_text(&out, 3, result ? result : "node");
    put_text(&out, 4, node->op);
    for (uint32_t k = 0; k < node->attribute_count; k++)
        write_attribute(&out, (const gantry_attribute *)((const char *)node->attributes +
                                                         k * node->attributes[0].struct_bytes));
    put_text(&out, 7, node->domain);
    put_message(graph_out, 1, &out);
}

/* A value that several inputs read is written once. */
static bool is_first_use(const gantry_node_view *node, uint32_t input)
{
    for (uint32_t k = 0; k < input; k++)
        if (node->inputs[k] == node->inputs[input])
            return false;
    return node->inputs[input] != GANTRY_NO_ID;
}

static void write_inputs(kit_bytes *graph, const gantry_graph_view *view, const gantry_node_view *node,
                         const kit_array *inputs)
{
    for (uint32_t k = 0; k < node->input_count; k++)
        if (is_first_use(node, k) && inputs[k].data)
            write_tensor(graph, 5, operand_name(view, node->inputs[k]), inputs[k].dtype, inputs[k].rank,
                         inputs[k].dims, inputs[k].data, inputs[k].bytes);
    for (uint32_t k = 0; k < node->input_count; k++)
        if (is_first_use(node, k) && !inputs[k].data)
            write_type(graph, 11, operand_name(view, node->inputs[k]), &inputs[k], inputs[k].dtype);
}

static void write_model(kit_bytes *out, kit_bytes *graph, const gantry_node_view *node)
{
    kit_bytes opset = {0};
    put_text(graph, 2, "kit");
    put_int(out, 1, 10);
    put_message(out, 7, graph);
    put_text(&opset, 1, node->domain);
    put_int(&opset, 2, node->version);
    put_message(out, 8, &opset);
}

void kit_onnx_write(const gantry_graph_view *view, uint32_t node_index, const kit_array *inputs,
                    kit_bytes *out_bytes)
{
    const gantry_node_view *node = view->nodes[node_index];
    kit_bytes graph = {0};
    *out_bytes = (kit_bytes){0};
    write_node(&graph, view, node, NULL, NULL);
    write_inputs(&graph, view, node, inputs);
    for (uint32_t k = 0; k < node->output_count; k++)
        if (node->outputs[k] != GANTRY_NO_ID)
            write_type(&graph, 12, operand_name(view, node->outputs[k]), NULL,
                       view->values[node->outputs[k]]->dtype);
    write_model(out_bytes, &graph, node);
}

void kit_onnx_write_chain(const gantry_graph_view *view, uint32_t node_count, const kit_array *inputs,
                          kit_bytes *out_bytes)
{
    const gantry_node_view *node = view->nodes[0];
    gantry_dtype dtype = view->values[node->outputs[0]]->dtype;
    kit_bytes graph = {0};
    char before[16] = "", name[16] = "";
    *out_bytes = (kit_bytes){0};
    for (uint32_t k = 0; k < node_count; k++) {
        snprintf(before, sizeof before, "%s", name);
        snprintf(name, sizeof name, "chain%u", k);
        write_node(&graph, view, node, k ? before : NULL, name);
    }
    write_inputs(&graph, view, node, inputs);
    write_type(&graph, 12, name, NULL, dtype);
    write_type(&graph, 12, "chain0", NULL, dtype);
    write_model(out_bytes, &graph, node);
}
