/* Small models as bytes, and a session with one run on each: what tests of the session API stand on. */
#ifndef GT_TESTS_SMALL_MODELS_H
#define GT_TESTS_SMALL_MODELS_H

#include "onnx_writer.h"

#include <gantry/gantry.h>
#include <stdio.h>

#define SMALL_F32 GANTRY_FLOAT32
#define SMALL_I64 GANTRY_INT64
#define SMALL_BOOL GANTRY_BOOL

static inline wire small_model(wire graph)
{
    wire model = {0};
    wire_int(&model, 1, 10);
    wire_text(&model, 2, "gantry-tests");
    onnx_import(&model, 8, "", 17);
    wire_message(&model, 7, graph);
    return model;
}

static inline void small_input(wire *graph, const char *name, int type, int rank, int64_t d0, int64_t d1)
{
    int64_t dims[2] = {d0, d1};
    wire_message(graph, GRAPH_INPUT, onnx_value(name, type, rank, dims));
}

static inline void small_output(wire *graph, const char *name, int type, int rank, int64_t d0, int64_t d1)
{
    int64_t dims[2] = {d0, d1};
    wire_message(graph, GRAPH_OUTPUT, onnx_value(name, type, rank, dims));
}

static inline void small_floats(wire *graph, const char *name, int count, const float *values)
{
    int64_t dims[1] = {count};
    wire_message(graph, GRAPH_INITIALIZER,
                 onnx_raw_tensor(name, SMALL_F32, 1, dims, values, (size_t)count * sizeof *values));
}

static inline void small_scalar(wire *graph, const char *name, int64_t value)
{
    wire_message(graph, GRAPH_INITIALIZER, onnx_raw_tensor(name, SMALL_I64, 0, NULL, &value, sizeof value));
}

static inline wire small_graph(const char *name)
{
    wire graph = {0};
    wire_text(&graph, GRAPH_NAME, name);
    return graph;
}

/* y = Relu(a + b), a and b of shape [rows, 4]; rows below 0: symbolic. */
static inline wire small_add(int64_t rows)
{
    wire g = small_graph("add");
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "a,b", "t"));
    wire_message(&g, GRAPH_NODE, onnx_node("Relu", "relu1", "t", "y"));
    small_input(&g, "a", SMALL_F32, 2, rows, 4);
    small_input(&g, "b", SMALL_F32, 2, rows, 4);
    small_output(&g, "y", SMALL_F32, 2, rows, 4);
    return small_model(g);
}

/* s_out = s_in + trips, counted one by one in a Loop whose trip count is an input. */
static inline wire small_loop(void)
{
    wire body = small_graph("body"), g = small_graph("loop");
    wire_message(&body, GRAPH_NODE, onnx_node("Identity", "keep", "cond_in", "cond_out"));
    wire_message(&body, GRAPH_NODE, onnx_node("Add", "count", "s,one", "s_next"));
    small_input(&body, "i", SMALL_I64, 0, 0, 0);
    small_input(&body, "cond_in", SMALL_BOOL, 0, 0, 0);
    small_input(&body, "s", SMALL_F32, 1, 4, 0);
    small_output(&body, "cond_out", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "s_next", SMALL_F32, 1, 4, 0);
    const float one = 1;
    small_floats(&g, "one", 1, &one);
    wire loop = onnx_node("Loop", "loop1", "trips,,s_in", "s_out");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    small_input(&g, "trips", SMALL_I64, 0, 0, 0);
    small_input(&g, "s_in", SMALL_F32, 1, 4, 0);
    small_output(&g, "s_out", SMALL_F32, 1, 4, 0);
    return small_model(g);
}

/* picked = x[NonZero(x)], twice as large: a size that depends on data, and a segment after it. */
static inline wire small_nonzero(void)
{
    wire g = small_graph("nonzero");
    const int64_t zero = 0, one_dim[1] = {1};
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("zero", SMALL_I64, 1, one_dim, &zero, sizeof zero));
    wire_message(&g, GRAPH_NODE, onnx_node("NonZero", "nonzero1", "x", "where"));
    wire_message(&g, GRAPH_NODE, onnx_node("Squeeze", "squeeze1", "where,zero", "flat"));
    wire_message(&g, GRAPH_NODE, onnx_node("Gather", "gather1", "x,flat", "found"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "found,found", "picked"));
    small_input(&g, "x", SMALL_F32, 1, -1, 0);
    small_output(&g, "where", SMALL_I64, 2, 1, -1);
    small_output(&g, "picked", SMALL_F32, 1, -1, 0);
    return small_model(g);
}

/* y = flag ? x + x : Concat(x, x): a branch that the data decides, with two shapes. */
static inline wire small_if(void)
{
    wire yes = small_graph("yes"), no = small_graph("no"), g = small_graph("if");
    wire_message(&yes, GRAPH_NODE, onnx_node("Add", "twice", "x,x", "sum"));
    small_output(&yes, "sum", SMALL_F32, 1, -1, 0);
    wire concat = onnx_node("Concat", "both", "x,x", "pair");
    onnx_set_int(&concat, "axis", 0);
    wire_message(&no, GRAPH_NODE, concat);
    small_output(&no, "pair", SMALL_F32, 1, -1, 0);
    const float limit = 0;
    small_floats(&g, "limit", 1, &limit);
    wire_message(&g, GRAPH_NODE, onnx_node("Greater", "greater1", "s,limit", "positive"));
    wire_message(&g, GRAPH_NODE, onnx_node("Squeeze", "squeeze1", "positive", "flag"));
    wire branch = onnx_node("If", "if1", "flag", "y");
    onnx_set_graph(&branch, "then_branch", yes);
    onnx_set_graph(&branch, "else_branch", no);
    wire_message(&g, GRAPH_NODE, branch);
    small_input(&g, "s", SMALL_F32, 1, 1, 0);
    small_input(&g, "x", SMALL_F32, 1, -1, 0);
    small_output(&g, "y", SMALL_F32, 1, -1, 0);
    return small_model(g);
}

/* Outputs that no node makes: a constant and an input. */
static inline wire small_pass_through(void)
{
    wire g = small_graph("pass");
    const float values[2] = {5, 6};
    small_floats(&g, "c", 2, values);
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "y"));
    small_input(&g, "x", SMALL_F32, 1, 2, 0);
    small_output(&g, "y", SMALL_F32, 1, 2, 0);
    small_output(&g, "c", SMALL_F32, 1, 2, 0);
    small_output(&g, "x", SMALL_F32, 1, 2, 0);
    return small_model(g);
}

/* y = x + d, where d is an input with a default of 10. */
static inline wire small_default(void)
{
    wire g = small_graph("default");
    const float ten = 10;
    small_floats(&g, "d", 1, &ten);
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "x,d", "y"));
    small_input(&g, "x", SMALL_F32, 1, 2, 0);
    small_input(&g, "d", SMALL_F32, 1, 1, 0);
    small_output(&g, "y", SMALL_F32, 1, 2, 0);
    return small_model(g);
}

/* A model with an operator that does not exist. */
static inline wire small_unknown(void)
{
    wire g = small_graph("unknown");
    wire_message(&g, GRAPH_NODE, onnx_node("Frobnicate", "frob1", "x", "y"));
    small_input(&g, "x", SMALL_F32, 1, 2, 0);
    small_output(&g, "y", SMALL_F32, 1, 2, 0);
    return small_model(g);
}

/* ---- a session on one of them ---------------------------------------------------------------- */

typedef struct small_session {
    gantry_runtime *runtime;
    gantry_session *session;
    gantry_run *run;
    gantry_report *report;
    gantry_error err;
    gantry_status status;
} small_session;

static const gantry_allocator *small_allocator; /* of the runtimes that are made; NULL: malloc */

/* Creates the session in s->runtime, when s->status is fine. options: "key=value;key=value". Takes over the
 * bytes. */
static inline void small_create(small_session *s, wire model, const char *options)
{
    gantry_options *o = NULL;
    if (s->status == GANTRY_OK)
        s->status = gantry_options_create(&o, &s->err);
    char text[512], *rest = NULL;
    snprintf(text, sizeof text, "%s", options);
    for (char *item = strtok_r(text, ";", &rest); item && s->status == GANTRY_OK;
         item = strtok_r(NULL, ";", &rest)) {
        char *equals = strchr(item, '=');
        *equals = 0;
        s->status = gantry_options_set(o, item, equals + 1, &s->err);
    }
    if (s->status == GANTRY_OK)
        s->status = gantry_session_create_from_memory(s->runtime, model.data, model.size, o, &s->session,
                                                      &s->report, &s->err);
    gantry_options_destroy(&o);
    wire_free(&model);
    if (s->status == GANTRY_OK)
        s->status = gantry_run_create(s->session, &s->run, &s->err);
}

/* plugin: a provider library to load first, with its config; NULL: none. status is that of creation; a
 * library that can't be loaded is the report's matter. */
static inline small_session small_open_with(wire model, const char *plugin, const char *config,
                                            const char *options)
{
    small_session s = {.err = GANTRY_ERROR_INIT};
    s.status = gantry_runtime_create(small_allocator, &s.runtime, &s.err);
    if (s.status == GANTRY_OK && plugin)
        (void)gantry_runtime_load_provider(s.runtime, plugin, config, &s.err);
    small_create(&s, model, options);
    return s;
}

static inline small_session small_open(wire model, const char *options)
{
    return small_open_with(model, NULL, NULL, options);
}

static inline void small_close(small_session *s)
{
    gantry_run_destroy(&s->run);
    gantry_report_destroy(&s->report);
    gantry_session_destroy(&s->session, NULL);
    gantry_runtime_destroy(&s->runtime, NULL);
}

static inline gantry_tensor small_tensor(gantry_dtype dtype, uint32_t rank, const int64_t *dims, void *data,
                                         size_t bytes)
{
    return (gantry_tensor){sizeof(gantry_tensor), dtype, rank, dims, NULL, NULL, {data, 0}, bytes};
}

static inline gantry_status small_bind(small_session *s, uint32_t index, gantry_dtype dtype, uint32_t rank,
                                       int64_t d0, int64_t d1, void *data)
{
    const int64_t dims[2] = {d0, d1};
    int64_t count = (rank > 0 ? d0 : 1) * (rank > 1 ? d1 : 1);
    gantry_tensor t = small_tensor(dtype, rank, dims, data, gantry_dtype_bytes(dtype, (uint64_t)count));
    return gantry_run_bind_input(s->run, index, &t, &s->err);
}

static inline gantry_tensor small_result(small_session *s, uint32_t index)
{
    gantry_tensor t = {.struct_bytes = sizeof t};
    s->status = gantry_run_output(s->run, index, &t, &s->err);
    return t;
}

static inline const float *small_floats_of(const gantry_tensor *t)
{
    return (const float *)((const char *)t->buffer.handle + t->buffer.offset_bytes);
}

#endif
