/* A graph under construction, and questions to what inference made of it: for the tests of shape inference.
 */
#ifndef INFER_FIXTURE_H
#define INFER_FIXTURE_H

#include "graph/infer.h"

#include <criterion/criterion.h>
#include <math.h>

static gt_allocator allocator;
static gt_model *model;
static gt_graph *graph;
static gantry_error error;

#define OK(call) cr_assert_eq((call), GANTRY_OK, "%s: %s", #call, error.message)

static inline void setup(void)
{
    error = (gantry_error)GANTRY_ERROR_INIT;
    gt_allocator_init(&allocator, NULL);
    OK(gt_model_create(&allocator, &model, &error));
    OK(gt_graph_create(model, NULL, GT_NONE, "main", "", &graph, &error));
    model->root = graph;
}

static inline void teardown(void)
{
    gt_model_destroy(&model);
}

TestSuite(infer, .init = setup, .fini = teardown);

/* ---- building */

/* shape: "n,3,h": names make symbols, "" is a scalar. */
static inline uint32_t input_of(gt_graph *where, const char *name, gantry_dtype dtype, const char *shape)
{
    uint32_t id;
    int64_t *dims = gt_arena_array(&model->arena, GANTRY_MAX_RANK, sizeof *dims);
    const char **names = gt_arena_array(&model->arena, GANTRY_MAX_RANK, sizeof *names);
    OK(gt_graph_add_value(where, name, &id, &error));
    gt_value *value = where->values.data[id];
    value->declared_dtype = dtype;
    value->declared_rank = 0;
    value->declared_dims = dims;
    value->declared_dim_names = names;
    value->input_index = (int32_t)where->inputs.count;
    while (*shape) {
        size_t length = strcspn(shape, ",");
        char *end, *text = gt_arena_text(&model->arena, shape, length);
        int64_t extent = strtoll(text, &end, 10);
        dims[value->declared_rank] = *end ? -1 : extent;
        names[value->declared_rank++] = *end ? text : NULL;
        shape += length + (shape[length] == ',');
    }
    cr_assert(gt_vec_push(&allocator, &where->inputs, id));
    return id;
}

static inline uint32_t input(const char *name, gantry_dtype dtype, const char *shape)
{
    return input_of(graph, name, dtype, shape);
}

static inline uint32_t ints_of(gt_graph *where, uint32_t count, const int64_t *values)
{
    uint32_t id;
    OK(gt_graph_add_constant(where, NULL, GANTRY_INT64, 1, (int64_t[]){count}, values, &id, &error));
    return id;
}
#define INTS(...)                                                                                            \
    ints_of(graph, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

static inline uint32_t scalar(int64_t value)
{
    uint32_t id;
    OK(gt_graph_add_constant(graph, NULL, GANTRY_INT64, 0, NULL, &value, &id, &error));
    return id;
}

static uint32_t last_node; /* id of the node added last */

static inline uint32_t node_in(gt_graph *where, const char *op, int32_t opset, uint32_t count,
                               const uint32_t *inputs, uint32_t outputs)
{
    uint32_t ids[4];
    for (uint32_t k = 0; k < outputs; k++)
        OK(gt_graph_add_value(where, NULL, &ids[k], &error));
    OK(gt_graph_add_node(where, NULL, "", op, opset, count, inputs, outputs, ids, &last_node, &error));
    return ids[0];
}
#define NODE(op, opset, ...)                                                                                 \
    node_in(graph, op, opset, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t),                          \
            (const uint32_t[]){__VA_ARGS__}, 1)

static inline void set_int(const char *name, int64_t value)
{
    OK(gt_node_set_int(graph, last_node, name, value, &error));
}
#define SET_INTS(name, ...)                                                                                  \
    OK(gt_node_set_ints(graph, last_node, name, (const int64_t[]){__VA_ARGS__},                              \
                        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), &error))

static inline void infer(void)
{
    OK(gt_graph_sort(graph, &error));
    OK(gt_infer_inputs(model, NULL, &error));
    OK(gt_infer_graph(graph, &error));
}

static inline gantry_status infer_status(void)
{
    OK(gt_graph_sort(graph, &error));
    OK(gt_infer_inputs(model, NULL, &error));
    return gt_infer_graph(graph, &error);
}

/* ---- asking */

static inline const char *shape_text(uint32_t id)
{
    static char out[400];
    const gt_value *value = graph->values.data[id];
    gt_text text;
    gt_text_init(&text, &allocator);
    for (int32_t axis = 0; axis < value->rank; axis++) {
        gt_text_printf(&text, "%s", axis ? "," : "");
        gt_expr_print(&model->exprs, value->dims[axis], &text);
    }
    snprintf(out, sizeof out, "%s", value->rank < 0 ? "unknown" : text.data ? text.data : "");
    gt_text_free(&text);
    return out;
}
#define SHAPE(id, expected) cr_assert_str_eq(shape_text(id), expected)

typedef struct values {
    gt_scalar *of;
    uint8_t *known;
} values;

/* Evaluates everything with symbols named in `names` bound to numbers; others stay unknown. */
static inline values evaluate(uint32_t count, const char *const *names, const int64_t *numbers)
{
    gt_exprs *exprs = &model->exprs;
    gt_scalar *symbols = gt_arena_array(&model->arena, exprs->symbols.count + 1, sizeof *symbols);
    uint8_t *given = gt_arena_array(&model->arena, exprs->symbols.count + 1, 1);
    for (uint32_t s = 0; s < exprs->symbols.count; s++)
        for (uint32_t k = 0; k < count; k++)
            if (strcmp(exprs->symbols.data[s].name, names[k]) == 0) {
                if (exprs->symbols.data[s].real)
                    symbols[s].r = (double)numbers[k];
                else
                    symbols[s].i = numbers[k];
                given[s] = 1;
            }
    cr_assert(symbols && given);
    values v = {gt_arena_array(&model->arena, exprs->nodes.count, sizeof(gt_scalar)),
                gt_arena_array(&model->arena, exprs->nodes.count, 1)};
    cr_assert(v.of && v.known);
    gt_exprs_evaluate(exprs, 0, exprs->nodes.count, symbols, given, v.of, v.known, NULL);
    return v;
}

static inline int64_t extent_at(uint32_t id, int32_t axis, uint32_t count, const char *const *names,
                                const int64_t *numbers)
{
    gt_expr e = graph->values.data[id]->dims[axis];
    values v = evaluate(count, names, numbers);
    return e != GT_EXPR_UNKNOWN && v.known[e] ? v.of[e].i : -1;
}

#endif
