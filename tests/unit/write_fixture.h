/* What tests of the ONNX writer share: a model that is read from bytes made here, written into memory, and
 * looked at. */
#ifndef GT_TEST_WRITE_FIXTURE_H
#define GT_TEST_WRITE_FIXTURE_H

#include "../support/onnx_writer.h"
#include "graph/graph_internal.h"
#include "graph/onnx_write.h"
#include "graph/rewrite.h"

#include <criterion/criterion.h>
#include <stdio.h>

static gt_allocator allocator;
static gt_model *model;
static gantry_error error;

/* Bytes that constants point into: freed after the models. */
static wire kept[64];
static uint32_t kept_count;

static inline void begin(void)
{
    gt_allocator_init(&allocator, NULL);
    model = NULL;
    error = (gantry_error)GANTRY_ERROR_INIT;
}

static inline void end(void)
{
    gt_model_destroy(&model);
    while (kept_count)
        wire_free(&kept[--kept_count]);
}

#define GOOD(call)                                                                                           \
    do {                                                                                                     \
        gantry_status status_ = (call);                                                                      \
        cr_assert_eq(status_, GANTRY_OK, "%s: status %d: %s", #call, status_, error.message);                \
    } while (0)

static inline void read_model(wire w)
{
    static const gt_read_limits limits = {.keep_notes = true};
    cr_assert_lt(kept_count, 64);
    kept[kept_count++] = w;
    gt_model_destroy(&model);
    GOOD(gt_onnx_read_memory(&allocator, w.data, w.size, NULL, &limits, &model, &error));
}

static inline void infer(void)
{
    GOOD(gt_infer_inputs(model, NULL, &error));
    GOOD(gt_infer_graph(model->root, &error));
}

static inline gantry_status put(void *self, const void *bytes, size_t count, gantry_error *err)
{
    wire_put(self, bytes, count);
    return GANTRY_OK;
}

static inline gantry_status write_with(const gt_write_options *options, wire *file, wire *external,
                                       gt_write_result *result)
{
    gt_write_sink to_file = {file, put}, to_external = {external, put};
    return gt_onnx_write(model, options, &to_file, external ? &to_external : NULL, result, &error);
}

static inline wire write_model(void)
{
    wire file = {0};
    gt_write_result result;
    gt_write_options options = {.version = "9.9"};
    GOOD(write_with(&options, &file, NULL, &result));
    cr_assert_eq(result.model_bytes, file.size);
    return file;
}

/* Writes the model and reads what was written in its place; a second writing gives the same bytes. */
static inline void round_trip(void)
{
    wire file = write_model();
    read_model(file);
    infer();
    wire again = write_model();
    cr_assert_eq(again.size, file.size);
    cr_assert_arr_eq(again.data, file.data, file.size);
    wire_free(&again);
}

static inline void read_and_round_trip(wire w)
{
    read_model(w);
    infer();
    round_trip();
}

static inline const gt_value *value_of(const gt_graph *graph, const char *name)
{
    uint32_t id = gt_graph_find_value(graph, name);
    cr_assert_neq(id, GT_NONE, "no value '%s'", name);
    return graph->values.data[id];
}

static inline const gt_node *node_of(const gt_graph *graph, const char *name)
{
    for (uint32_t k = 0; k < graph->nodes.count; k++)
        if (strcmp(graph->nodes.data[k]->name, name) == 0)
            return graph->nodes.data[k];
    cr_assert_fail("no node '%s'", name);
    return NULL;
}

static inline const void *bytes_of(const gt_value *value)
{
    const void *data;
    cr_assert_neq(value->constant, GT_NONE, "'%s' is no constant", value->name);
    GOOD(gt_constant_data(model, value->constant, &data, &error));
    return data;
}

static inline wire small_graph(void)
{
    wire g = {0};
    wire_text(&g, GRAPH_NAME, "g");
    onnx_put_float(&g, GRAPH_INPUT, "x");
    onnx_put_float(&g, GRAPH_OUTPUT, "y");
    return g;
}

static inline void put_node(wire *graph, const char *op, const char *name, const char *inputs,
                            const char *outputs)
{
    wire_message(graph, GRAPH_NODE, onnx_node(op, name, inputs, outputs));
}

/* A node of a domain that nobody knows: its attributes are not looked at. */
static inline wire foreign_node(const char *name, const char *inputs, const char *outputs)
{
    wire n = onnx_node("Thing", name, inputs, outputs);
    wire_text(&n, 7, "some.where");
    return n;
}

static inline wire foreign_model(wire graph)
{
    wire m = onnx_model(graph);
    onnx_import(&m, 8, "some.where", 3);
    return m;
}

static inline bool has_text(wire w, const char *text)
{
    return w.data && memmem(w.data, w.size, text, strlen(text)) != NULL;
}

#endif
