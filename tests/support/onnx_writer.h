/* Writes ONNX models byte by byte, so that tests can build what no exporter would: every function appends to
 * a growing buffer, and a child message is consumed by its parent. */
#ifndef GT_TESTS_ONNX_WRITER_H
#define GT_TESTS_ONNX_WRITER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct wire {
    uint8_t *data;
    size_t size, capacity;
} wire;

/* Both abort when out of memory. Not inline: what explores all paths of a test would explore those of each
 * byte that it writes. */
void wire_put(wire *w, const void *bytes, size_t count);
void wire_varint(wire *w, uint64_t value);

static inline void wire_free(wire *w)
{
    free(w->data);
    *w = (wire){0};
}

static inline void wire_int(wire *w, uint32_t field, int64_t value)
{
    wire_varint(w, (uint64_t)field << 3);
    wire_varint(w, (uint64_t)value);
}

static inline void wire_bytes(wire *w, uint32_t field, const void *bytes, size_t count)
{
    wire_varint(w, (uint64_t)field << 3 | 2);
    wire_varint(w, count);
    wire_put(w, bytes, count);
}

static inline void wire_text(wire *w, uint32_t field, const char *text)
{
    wire_bytes(w, field, text, strlen(text));
}

static inline void wire_float(wire *w, uint32_t field, float value)
{
    wire_varint(w, (uint64_t)field << 3 | 5);
    wire_put(w, &value, sizeof value);
}

static inline void wire_message(wire *w, uint32_t field, wire child)
{
    wire_bytes(w, field, child.data, child.size);
    wire_free(&child);
}

/* ---- ONNX ------------------------------------------------------------------------------------ */

/* "a,b,,c": four texts, the third empty; "" is none. */
static inline void onnx_list(wire *w, uint32_t field, const char *list)
{
    while (*list) {
        size_t length = strcspn(list, ",");
        wire_bytes(w, field, list, length);
        list += length + (list[length] == ',');
    }
}

static inline wire onnx_node(const char *op, const char *name, const char *inputs, const char *outputs)
{
    wire w = {0};
    onnx_list(&w, 1, inputs);
    onnx_list(&w, 2, outputs);
    if (*name)
        wire_text(&w, 3, name);
    wire_text(&w, 4, op);
    return w;
}

static inline wire onnx_attribute(const char *name, int type)
{
    wire w = {0};
    wire_text(&w, 1, name);
    wire_int(&w, 20, type);
    return w;
}

static inline void onnx_set_int(wire *node, const char *name, int64_t value)
{
    wire a = onnx_attribute(name, 2);
    wire_int(&a, 3, value);
    wire_message(node, 5, a);
}

static inline void onnx_set_float(wire *node, const char *name, float value)
{
    wire a = onnx_attribute(name, 1);
    wire_float(&a, 2, value);
    wire_message(node, 5, a);
}

static inline void onnx_set_message(wire *node, const char *name, int type, uint32_t field, wire child)
{
    wire a = onnx_attribute(name, type);
    wire_message(&a, field, child);
    wire_message(node, 5, a);
}

static inline void onnx_set_graph(wire *node, const char *name, wire graph)
{
    onnx_set_message(node, name, 5, 6, graph);
}

static inline void onnx_set_reference(wire *node, const char *name, int type, const char *of_caller)
{
    wire a = onnx_attribute(name, type);
    wire_text(&a, 21, of_caller);
    wire_message(node, 5, a);
}

/* A tensor type; dims below 0 are symbols named "n"; rank below 0: no shape. */
static inline wire onnx_value(const char *name, int type, int rank, const int64_t *dims)
{
    wire shape = {0}, tensor = {0}, kind = {0}, value = {0};
    for (int k = 0; k < rank; k++) {
        wire dim = {0};
        if (dims[k] < 0)
            wire_text(&dim, 2, "n");
        else
            wire_int(&dim, 1, dims[k]);
        wire_message(&shape, 1, dim);
    }
    wire_int(&tensor, 1, type);
    if (rank >= 0)
        wire_message(&tensor, 2, shape);
    wire_message(&kind, 1, tensor);
    wire_text(&value, 1, name);
    wire_message(&value, 2, kind);
    return value;
}

/* Without its values. */
static inline wire onnx_tensor(const char *name, int type, int rank, const int64_t *dims)
{
    wire w = {0};
    for (int k = 0; k < rank; k++)
        wire_int(&w, 1, dims[k]);
    wire_int(&w, 2, type);
    wire_text(&w, 8, name);
    return w;
}

static inline wire onnx_raw_tensor(const char *name, int type, int rank, const int64_t *dims,
                                   const void *bytes, size_t count)
{
    wire w = onnx_tensor(name, type, rank, dims);
    wire_bytes(&w, 9, bytes, count);
    return w;
}

static inline void onnx_entry(wire *w, uint32_t field, const char *key, const char *value)
{
    wire entry = {0};
    wire_text(&entry, 1, key);
    wire_text(&entry, 2, value);
    wire_message(w, field, entry);
}

/* offset and length NULL: left out. */
static inline wire onnx_external_tensor(const char *name, int type, int rank, const int64_t *dims,
                                        const char *location, const char *offset, const char *length)
{
    wire w = onnx_tensor(name, type, rank, dims);
    onnx_entry(&w, 13, "location", location);
    if (offset)
        onnx_entry(&w, 13, "offset", offset);
    if (length)
        onnx_entry(&w, 13, "length", length);
    wire_int(&w, 14, 1);
    return w;
}

static inline void onnx_import(wire *w, uint32_t field, const char *domain, int64_t version)
{
    wire opset = {0};
    wire_text(&opset, 1, domain);
    wire_int(&opset, 2, version);
    wire_message(w, field, opset);
}

/* Fields of a graph. */
enum {
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_VALUE = 13,
    GRAPH_SPARSE = 15
};

/* An input or output of type float32 and rank 1. */
static inline void onnx_put_float(wire *graph, uint32_t field, const char *name)
{
    const int64_t dims[] = {2};
    wire_message(graph, field, onnx_value(name, 1, 1, dims));
}

/* A model of that graph, IR 8, opset 17; functions and more can be appended. */
static inline wire onnx_model(wire graph)
{
    wire w = {0};
    wire_int(&w, 1, 8);
    wire_message(&w, 7, graph);
    onnx_import(&w, 8, "", 17);
    return w;
}

#endif
