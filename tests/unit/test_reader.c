/* Reading ONNX: values, constants, names, bodies, functions, and what hostile bytes get. */
#include "../support/onnx_writer.h"
#include "graph/graph.h"

#include <criterion/criterion.h>

static gt_allocator allocator;
static gt_model *model;
static gantry_error error;

static void begin(void)
{
    gt_allocator_init(&allocator, NULL);
    model = NULL;
    error = (gantry_error)GANTRY_ERROR_INIT;
}

/* Bytes that constants point into: freed after the model. */
static wire kept[256];
static uint32_t kept_count;

static void end(void)
{
    gt_model_destroy(&model);
    while (kept_count)
        wire_free(&kept[--kept_count]);
}

TestSuite(reader, .init = begin, .fini = end);

static gantry_status read_bytes(const void *bytes, size_t count)
{
    gt_model_destroy(&model);
    return gt_onnx_read_memory(&allocator, bytes, count, NULL, NULL, &model, &error);
}

/* Keeps the bytes. */
static gantry_status read_wire(wire w)
{
    cr_assert_lt(kept_count, 256);
    kept[kept_count++] = w;
    return read_bytes(w.data, w.size);
}

static void read_good(wire graph)
{
    gantry_status status = read_wire(onnx_model(graph));
    cr_assert_eq(status, GANTRY_OK, "%s", error.message);
}

static void assert_fails(wire w, gantry_status status, const char *mentions)
{
    gantry_status got = read_wire(w);
    cr_assert_eq(got, status, "status %d instead of %d: %s", got, status, error.message);
    cr_assert_null(model);
    cr_assert(strstr(error.message, mentions), "'%s' is not in: %s", mentions, error.message);
}

static const gt_value *value_of(const gt_graph *graph, const char *name)
{
    uint32_t id = gt_map_get(&graph->value_names, name, strlen(name), GT_NONE);
    cr_assert_neq(id, GT_NONE, "no value '%s'", name);
    return graph->values.data[id];
}

static const gt_node *node_of(const gt_graph *graph, const char *name)
{
    for (uint32_t k = 0; k < graph->nodes.count; k++)
        if (strcmp(graph->nodes.data[k]->name, name) == 0)
            return graph->nodes.data[k];
    cr_assert_fail("no node '%s'", name);
    return NULL;
}

static const void *bytes_of(const gt_graph *graph, const char *name, size_t count)
{
    const gt_value *value = value_of(graph, name);
    cr_assert_neq(value->constant, GT_NONE, "'%s' is no constant", name);
    cr_assert_eq(model->constants.data[value->constant].bytes, count);
    const void *data;
    cr_assert_eq(gt_constant_data(model, value->constant, &data, &error), GANTRY_OK, "%s", error.message);
    return data;
}

static const gt_source *source_of(const char *name)
{
    for (uint32_t k = 0; k < model->sources.count; k++)
        if (strcmp(model->sources.data[k].name, name) == 0)
            return &model->sources.data[k];
    cr_assert_fail("no source '%s'", name);
    return NULL;
}

/* x -> op -> y, with more to be added. */
static wire small_graph(void)
{
    wire g = {0};
    wire_text(&g, GRAPH_NAME, "g");
    onnx_put_float(&g, GRAPH_INPUT, "x");
    onnx_put_float(&g, GRAPH_OUTPUT, "y");
    return g;
}

static void put_node(wire *graph, const char *op, const char *name, const char *inputs, const char *outputs)
{
    wire_message(graph, GRAPH_NODE, onnx_node(op, name, inputs, outputs));
}

/* ---- structure ------------------------------------------------------------------------------- */

Test(reader, a_small_model_is_read_as_it_is)
{
    wire g = small_graph();
    const int64_t dims[] = {-1, 3};
    wire_message(&g, GRAPH_VALUE, onnx_value("t", 1, 2, dims));
    put_node(&g, "Relu", "second", "t", "y");
    wire n = onnx_node("LeakyRelu", "first", "x", "t");
    onnx_set_float(&n, "alpha", 0.25f);
    onnx_set_int(&n, "count", -7);
    wire_message(&g, GRAPH_NODE, n);
    wire m = onnx_model(g);
    onnx_entry(&m, 14, "license", "none");
    wire_text(&m, 2, "a writer");
    cr_assert_eq(read_wire(m), GANTRY_OK, "%s", error.message);

    const gt_graph *root = model->root;
    cr_assert_eq(root->nodes.count, 2);
    cr_assert_eq(root->order.data[0], 1);
    cr_assert_eq(root->order.data[1], 0);
    const gt_node *first = node_of(root, "first");
    cr_assert_str_eq(first->op_type, "LeakyRelu");
    cr_assert_str_eq(first->domain, "");
    cr_assert_eq(first->opset, 17);
    cr_assert_float_eq(gt_node_float(first, "alpha", 0), 0.25f, 0);
    cr_assert_eq(gt_node_int(first, "count", 0), -7);
    cr_assert_eq(gt_node_int(first, "other", 5), 5);
    const gt_value *t = value_of(root, "t");
    cr_assert_eq(t->declared_rank, 2);
    cr_assert_eq(t->declared_dims[0], -1);
    cr_assert_str_eq(t->declared_dim_names[0], "n");
    cr_assert_eq(t->declared_dims[1], 3);
    cr_assert_eq(t->declared_dtype, GANTRY_FLOAT32);
    cr_assert_eq(value_of(root, "x")->input_index, 0);
    cr_assert(value_of(root, "y")->is_output);
    cr_assert_eq(first->lineage.count, 1);
    cr_assert_str_eq(model->sources.data[first->lineage.sources[0]].name, "first");
    cr_assert_eq(model->custom_metadata_count, 1);
    cr_assert_str_eq(model->metadata.data[0].key, "license");
    cr_assert_str_eq(model->metadata.data[1].value, "a writer");
    cr_assert_str_eq(model->metadata.data[model->metadata.count - 1].value, "ai.onnx 17");
}

Test(reader, names_of_nodes_become_unique_and_stay_the_same)
{
    wire g = small_graph();
    put_node(&g, "Neg", "", "x", "a");
    put_node(&g, "Neg", "n", "a", "b");
    put_node(&g, "Neg", "n", "b", "c");
    put_node(&g, "Neg", "Neg_0", "c", "d");
    wire odd = onnx_node("Neg", "", "d", "y");
    wire_bytes(&odd, 3, "z\0\xff\xc3\xa9", 5);
    wire_message(&g, GRAPH_NODE, odd);
    read_good(g);
    const char *const expected[] = {"Neg_0_0", "n", "n_2", "Neg_0", "z\\x00\\xff\xc3\xa9"};
    for (uint32_t k = 0; k < 5; k++) {
        const char *name = model->root->nodes.data[k]->name;
        if (k > 0)
            cr_assert_str_eq(name, expected[k]);
        else
            cr_assert_str_neq(name, "Neg_0");
        cr_assert_str_eq(model->sources.data[k].name, name);
    }
}

Test(reader, a_graph_must_hang_together)
{
    wire g = small_graph();
    put_node(&g, "Add", "add1", "x,ghost", "y");
    assert_fails(onnx_model(g), GANTRY_MODEL_GRAPH, "'ghost'");
    cr_assert_str_eq(error.node, "add1");

    g = small_graph();
    put_node(&g, "Relu", "n1", "x", "y");
    put_node(&g, "Relu", "n2", "x", "y");
    assert_fails(onnx_model(g), GANTRY_MODEL_GRAPH, "'n1' and by node 'n2'");

    g = small_graph();
    put_node(&g, "Add", "n1", "x,b", "a");
    put_node(&g, "Relu", "n2", "a", "b");
    put_node(&g, "Relu", "n3", "a", "y");
    assert_fails(onnx_model(g), GANTRY_MODEL_GRAPH, "cycle");
    cr_assert(strstr(error.message, "'n1' needs 'b' of 'n2', 'n2' needs 'a' of 'n1'"), "%s", error.message);

    g = small_graph();
    assert_fails(onnx_model(g), GANTRY_MODEL_GRAPH, "output 'y'");

    g = small_graph();
    put_node(&g, "Relu", "n1", "x", "y");
    wire n = onnx_node("Conv", "conv1", "x", "z");
    onnx_set_int(&n, "group", 1);
    onnx_set_int(&n, "group", 2);
    wire_message(&g, GRAPH_NODE, n);
    assert_fails(onnx_model(g), GANTRY_MODEL_GRAPH, "'group' of node 'conv1'");
}

Test(reader, opset_imports_are_checked)
{
    wire g = small_graph(), m = {0};
    put_node(&g, "Relu", "n1", "x", "y");
    wire_int(&m, 1, 8);
    wire_message(&m, 7, g);
    assert_fails(m, GANTRY_MODEL_GRAPH, "opset import");
    g = small_graph();
    wire n = onnx_node("Thing", "n1", "x", "y");
    wire_text(&n, 7, "elsewhere");
    wire_message(&g, GRAPH_NODE, n);
    assert_fails(onnx_model(g), GANTRY_MODEL_GRAPH, "'elsewhere'");
    m = onnx_model(small_graph());
    onnx_import(&m, 8, "ai.onnx", 99);
    assert_fails(m, GANTRY_MODEL_GRAPH, "99");
    m = onnx_model(small_graph());
    onnx_import(&m, 8, "other", 0);
    assert_fails(m, GANTRY_MODEL_GRAPH, "version 0 of domain 'other'");
}

/* ---- constants ------------------------------------------------------------------------------- */

/* A graph whose one output is the initializer. */
static wire constant_graph(wire tensor)
{
    wire g = {0};
    const int64_t dims[] = {2};
    wire_message(&g, GRAPH_OUTPUT, onnx_value("w", 1, 1, dims));
    wire_message(&g, GRAPH_INITIALIZER, tensor);
    return g;
}

/* A tensor with its values as varints in field, packed or one by one. */
static wire typed_tensor(int type, int64_t count, uint32_t field, bool packed, const int64_t *values,
                         size_t number)
{
    wire w = onnx_tensor("w", type, 1, &count), list = {0};
    for (size_t k = 0; k < number; k++) {
        if (packed)
            wire_varint(&list, (uint64_t)values[k]);
        else
            wire_int(&w, field, values[k]);
    }
    if (packed)
        wire_message(&w, field, list);
    return w;
}

Test(reader, typed_values_become_the_bytes_of_their_type)
{
    const struct {
        int type;
        uint32_t field;
        int64_t count, values[4];
        size_t number, bytes;
        uint8_t expected[16];
    } cases[] = {
        {GANTRY_INT8, 5, 3, {-1, 127, -128}, 3, 3, {255, 127, 128}},
        {GANTRY_UINT8, 5, 2, {0, 255}, 2, 2, {0, 255}},
        {GANTRY_UINT16, 5, 1, {65535}, 1, 2, {255, 255}},
        {GANTRY_INT32, 5, 2, {-2, 1}, 2, 8, {254, 255, 255, 255, 1}},
        {GANTRY_INT64, 7, 1, {-2}, 1, 8, {254, 255, 255, 255, 255, 255, 255, 255}},
        {GANTRY_UINT32, 11, 1, {4294967295}, 1, 4, {255, 255, 255, 255}},
        {GANTRY_UINT64, 11, 1, {-1}, 1, 8, {255, 255, 255, 255, 255, 255, 255, 255}},
        {GANTRY_BOOL, 5, 3, {0, 1, 77}, 3, 3, {0, 1, 1}},
        {GANTRY_FLOAT16, 5, 1, {0x3c00}, 1, 2, {0, 0x3c}},
        {GANTRY_BFLOAT16, 5, 1, {0xbf80}, 1, 2, {0x80, 0xbf}},
        {GANTRY_INT4, 5, 3, {0x21, 0x0f}, 2, 2, {0x21, 0x0f}},
        {GANTRY_UINT2, 5, 5, {0xe4, 1}, 2, 2, {0xe4, 1}},
    };
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        size_t c = k / 2;
        read_good(constant_graph(typed_tensor(cases[c].type, cases[c].count, cases[c].field, k & 1,
                                              cases[c].values, cases[c].number)));
        const void *data = bytes_of(model->root, "w", cases[c].bytes);
        cr_assert_arr_eq(data, cases[c].expected, cases[c].bytes, "type %d", cases[c].type);
        cr_assert_eq(value_of(model->root, "w")->dtype, (gantry_dtype)cases[c].type);
    }
}

Test(reader, floats_doubles_and_complex_numbers)
{
    const float floats[] = {1.5f, -2};
    const double doubles[] = {0.1, 3};
    const int64_t two[] = {2}, one[] = {1};
    wire w = onnx_tensor("w", GANTRY_FLOAT32, 1, two);
    wire_float(&w, 4, floats[0]);
    wire_float(&w, 4, floats[1]);
    read_good(constant_graph(w));
    cr_assert_arr_eq(bytes_of(model->root, "w", 8), floats, 8);
    w = onnx_tensor("w", GANTRY_COMPLEX64, 1, one);
    wire_bytes(&w, 4, floats, sizeof floats);
    read_good(constant_graph(w));
    cr_assert_arr_eq(bytes_of(model->root, "w", 8), floats, 8);
    w = onnx_tensor("w", GANTRY_FLOAT64, 1, two);
    wire_bytes(&w, 10, doubles, sizeof doubles);
    read_good(constant_graph(w));
    cr_assert_arr_eq(bytes_of(model->root, "w", 16), doubles, 16);
    w = onnx_tensor("w", GANTRY_STRING, 1, two);
    wire_text(&w, 6, "one");
    wire_text(&w, 6, "");
    read_good(constant_graph(w));
    const char *const *texts = bytes_of(model->root, "w", 2 * sizeof *texts);
    cr_assert_str_eq(texts[0], "one");
    cr_assert_str_eq(texts[1], "");
}

Test(reader, data_and_shape_must_agree)
{
    const int64_t two[] = {2}, huge[] = {(int64_t)1 << 40}, negative[] = {-2},
                  wraps[] = {(int64_t)1 << 32, (int64_t)1 << 32};
    const int64_t many[17] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint8_t bytes[16] = {0};
    assert_fails(onnx_model(constant_graph(onnx_raw_tensor("w", 1, 1, two, bytes, 4))), GANTRY_DATA,
                 "has 4 bytes of raw data, but float32[2] needs 8");
    assert_fails(onnx_model(constant_graph(onnx_raw_tensor("w", 1, 1, two, bytes, 12))), GANTRY_DATA,
                 "12 bytes");
    assert_fails(onnx_model(constant_graph(onnx_raw_tensor("w", 1, 1, huge, bytes, 8))), GANTRY_DATA,
                 "1099511627776");
    assert_fails(onnx_model(constant_graph(onnx_tensor("w", 1, 1, huge))), GANTRY_DATA, "1099511627776");
    assert_fails(onnx_model(constant_graph(onnx_tensor("w", 1, 1, negative))), GANTRY_MODEL_SHAPE, "-2");
    assert_fails(onnx_model(constant_graph(onnx_tensor("w", 1, 2, wraps))), GANTRY_MODEL_SHAPE, "overflow");
    assert_fails(onnx_model(constant_graph(onnx_raw_tensor("w", 1, 17, many, bytes, 4))), GANTRY_MODEL_SHAPE,
                 "rank 17");
    assert_fails(onnx_model(constant_graph(onnx_raw_tensor("w", 99, 1, two, bytes, 8))), GANTRY_MODEL_TYPE,
                 "99");
    assert_fails(onnx_model(constant_graph(onnx_raw_tensor("w", 0, 1, two, bytes, 8))), GANTRY_MODEL_TYPE,
                 "undefined");
    assert_fails(onnx_model(constant_graph(onnx_raw_tensor("w", 8, 1, two, bytes, 2))), GANTRY_DATA,
                 "string");
    const int64_t values[] = {1, 300};
    assert_fails(onnx_model(constant_graph(typed_tensor(GANTRY_UINT8, 2, 5, true, values, 2))), GANTRY_DATA,
                 "300");
    assert_fails(onnx_model(constant_graph(typed_tensor(GANTRY_INT32, 2, 5, true, values, 1))), GANTRY_DATA,
                 "needs 2 values in int32_data, but has 1");
    assert_fails(onnx_model(constant_graph(typed_tensor(GANTRY_INT32, 2, 7, true, values, 2))),
                 GANTRY_MODEL_TYPE, "int64_data");
    wire both = onnx_raw_tensor("w", 1, 1, two, bytes, 8);
    wire_float(&both, 4, 1);
    assert_fails(onnx_model(constant_graph(both)), GANTRY_DATA, "both raw data and float_data");
}

Test(reader, big_raw_data_stay_in_the_file)
{
    const int64_t dims[] = {1 << 16};
    size_t count = sizeof(float) << 16;
    float *data = malloc(count);
    for (int k = 0; k < 1 << 16; k++)
        data[k] = (float)k;
    read_good(constant_graph(onnx_raw_tensor("w", 1, 1, dims, data, count)));
    const gt_constant *c = &model->constants.data[0];
    cr_assert_eq(c->origin, GT_CONSTANT_FILE);
    cr_assert_eq(c->file, 0);
    cr_assert_null(c->data);
    const uint8_t *bytes = bytes_of(model->root, "w", count);
    cr_assert_eq(bytes, model->files.data[0].map + c->offset);
    cr_assert_eq(memcmp(bytes, data, count), 0);
    cr_assert_eq(gt_model_own_constants(model, NULL, &error), GANTRY_OK);
    cr_assert_neq(c->data, (const void *)bytes);
    cr_assert_eq(memcmp(c->data, data, count), 0);
    free(data);
}

Test(reader, an_initializer_of_an_input_is_a_default_since_ir_4)
{
    const float two[] = {1, 2};
    const int64_t dims[] = {2};
    for (int ir = 3; ir <= 4; ir++) {
        wire g = small_graph(), m = {0};
        onnx_put_float(&g, GRAPH_INPUT, "w");
        wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", 1, 1, dims, two, 8));
        put_node(&g, "Add", "add1", "x,w", "y");
        wire_int(&m, 1, ir);
        wire_message(&m, 7, g);
        onnx_import(&m, 8, "", 8);
        cr_assert_eq(read_wire(m), GANTRY_OK, "%s", error.message);
        cr_assert_eq(model->root->inputs.count, ir == 3 ? 1 : 2);
        cr_assert_eq(value_of(model->root, "w")->input_index, ir == 3 ? -1 : 1);
        cr_assert_arr_eq(bytes_of(model->root, "w", 8), two, 8);
    }
}

static wire sparse(const char *name, int type, int index_rank, const int64_t *index_dims,
                   const int64_t *indices, size_t index_bytes, const void *values, int64_t count,
                   size_t bytes, int rank, const int64_t *dims)
{
    wire w = {0};
    wire_message(&w, 1, onnx_raw_tensor(name, type, 1, &count, values, bytes));
    wire_message(&w, 2, onnx_raw_tensor("", GANTRY_INT64, index_rank, index_dims, indices, index_bytes));
    for (int k = 0; k < rank; k++)
        wire_int(&w, 3, dims[k]);
    return w;
}

Test(reader, sparse_initializers_become_dense)
{
    const float values[] = {5, 7}, expected[] = {0, 5, 0, 0, 0, 7};
    const int64_t linear[] = {1, 5}, tuples[] = {0, 1, 1, 2}, two[] = {2}, square[] = {2, 2}, dims[] = {2, 3};
    for (int k = 0; k < 2; k++) {
        wire g = {0};
        wire_message(&g, GRAPH_OUTPUT, onnx_value("w", 1, 2, dims));
        wire_message(&g, GRAPH_SPARSE,
                     k == 0 ? sparse("w", 1, 1, two, linear, sizeof linear, values, 2, 8, 2, dims)
                            : sparse("w", 1, 2, square, tuples, sizeof tuples, values, 2, 8, 2, dims));
        read_good(g);
        cr_assert_arr_eq(bytes_of(model->root, "w", 24), expected, 24);
    }
    const int64_t outside[] = {1, 6}, huge[] = {1 << 20, 1 << 20}, falling[] = {5, 1};
    wire g = {0};
    wire_message(&g, GRAPH_SPARSE, sparse("w", 1, 1, two, outside, sizeof outside, values, 2, 8, 2, dims));
    assert_fails(onnx_model(g), GANTRY_DATA, "index 6");
    g = (wire){0};
    wire_message(&g, GRAPH_SPARSE, sparse("w", 1, 1, two, falling, sizeof falling, values, 2, 8, 2, dims));
    assert_fails(onnx_model(g), GANTRY_DATA, "ascend");
    g = (wire){0};
    wire_message(&g, GRAPH_SPARSE, sparse("w", 1, 1, two, linear, sizeof linear, values, 2, 8, 2, huge));
    assert_fails(onnx_model(g), GANTRY_RESOURCE, "limit");
}

Test(reader, every_form_of_constant)
{
    const float floats[] = {1, 2};
    const int64_t two[] = {2}, ints[] = {3, 4};
    wire g = {0};
    wire n = onnx_node("Constant", "c1", "", "tensor");
    onnx_set_message(&n, "value", 4, 5, onnx_raw_tensor("", 1, 1, two, floats, 8));
    wire_message(&g, GRAPH_NODE, n);
    n = onnx_node("Constant", "c2", "", "float");
    onnx_set_float(&n, "value_float", 2.5f);
    wire_message(&g, GRAPH_NODE, n);
    n = onnx_node("Constant", "c3", "", "ints");
    wire a = onnx_attribute("value_ints", 7);
    wire_int(&a, 8, 3);
    wire_int(&a, 8, 4);
    wire_message(&n, 5, a);
    wire_message(&g, GRAPH_NODE, n);
    n = onnx_node("Constant", "c4", "", "text");
    a = onnx_attribute("value_string", 3);
    wire_text(&a, 4, "hello");
    wire_message(&n, 5, a);
    wire_message(&g, GRAPH_NODE, n);
    n = onnx_node("Constant", "c5", "", "sparse");
    onnx_set_message(&n, "sparse_value", 11, 22,
                     sparse("w", 1, 1, two, (const int64_t[]){0, 1}, 16, floats, 2, 8, 1, two));
    wire_message(&g, GRAPH_NODE, n);
    for (const char *const *o = (const char *const[]){"tensor", "float", "ints", "text", "sparse", NULL}; *o;
         o++)
        onnx_put_float(&g, GRAPH_OUTPUT, *o);
    read_good(g);
    cr_assert_eq(model->root->nodes.count, 0);
    cr_assert_arr_eq(bytes_of(model->root, "tensor", 8), floats, 8);
    cr_assert_float_eq(*(const float *)bytes_of(model->root, "float", 4), 2.5f, 0);
    cr_assert_eq(value_of(model->root, "float")->rank, 0);
    cr_assert_arr_eq(bytes_of(model->root, "ints", 16), ints, 16);
    cr_assert_str_eq(*(const char *const *)bytes_of(model->root, "text", sizeof(char *)), "hello");
    cr_assert_arr_eq(bytes_of(model->root, "sparse", 8), floats, 8);
    cr_assert_str_eq(source_of("c1")->removed_by, "constant");
}

/* ---- bodies ---------------------------------------------------------------------------------- */

/* A branch: output "NAME_out" is op(inputs). */
static wire branch(const char *op, const char *node, const char *inputs, const char *output)
{
    wire g = {0};
    put_node(&g, op, node, inputs, output);
    onnx_put_float(&g, GRAPH_OUTPUT, output);
    return g;
}

Test(reader, bodies_capture_values_and_share_constants)
{
    const float two[] = {1, 2};
    const int64_t dims[] = {2};
    wire g = small_graph();
    wire_message(&g, GRAPH_INPUT, onnx_value("c", GANTRY_BOOL, 0, NULL));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", 1, 1, dims, two, 8));
    wire inner = onnx_node("If", "inner", "c", "p");
    onnx_set_graph(&inner, "then_branch", branch("Add", "deep", "x,w", "q"));
    onnx_set_graph(&inner, "else_branch", branch("Add", "other", "t,late", "r"));
    wire then = {0};
    wire_message(&then, GRAPH_NODE, inner);
    onnx_put_float(&then, GRAPH_OUTPUT, "p");
    wire n = onnx_node("If", "outer", "c", "y");
    onnx_set_graph(&n, "then_branch", then);
    onnx_set_graph(&n, "else_branch", branch("Neg", "neg1", "x", "s"));
    wire_message(&g, GRAPH_NODE, n);
    put_node(&g, "Relu", "relu1", "x", "t");
    n = onnx_node("Constant", "c1", "", "late");
    onnx_set_float(&n, "value_float", 1);
    wire_message(&g, GRAPH_NODE, n);
    read_good(g);

    gt_graph *root = model->root;
    const gt_node *outer = node_of(root, "outer");
    cr_assert_eq(outer->body_count, 2);
    cr_assert_str_eq(outer->bodies[0].name, "then_branch");
    gt_graph *middle = outer->bodies[0].graph;
    cr_assert_str_eq(middle->scope, "outer.then_branch.");
    cr_assert_eq(middle->parent, root);
    const gt_node *nested = node_of(middle, "outer.then_branch.inner");
    gt_graph *deep = nested->bodies[0].graph;
    node_of(deep, "outer.then_branch.inner.then_branch.deep");
    const gt_value *x = value_of(deep, "x");
    cr_assert_eq(middle->values.data[x->captured], value_of(middle, "x"));
    cr_assert_eq(root->values.data[value_of(middle, "x")->captured], value_of(root, "x"));
    cr_assert_eq(value_of(deep, "w")->captured, GT_NONE);
    cr_assert_eq(value_of(deep, "w")->constant, value_of(root, "w")->constant);
    cr_assert_eq(value_of(nested->bodies[1].graph, "late")->constant, value_of(root, "late")->constant,
                 "a Constant that comes later in the file is one all the same");
    cr_assert_eq(root->order.data[0], 1, "the branch reads what relu1 makes");

    const gt_use *uses;
    uint32_t count;
    cr_assert_eq(gt_graph_uses(root, 0, &uses, &count, &error), GANTRY_OK);
    cr_assert_eq(count, 3);
    cr_assert_eq(uses[0].index, GT_NONE);
    cr_assert_eq(uses[0].node, 0);
    cr_assert_eq(uses[2].node, 1);
    cr_assert_eq(uses[2].index, 0);
}

Test(reader, a_body_may_not_hide_outer_names)
{
    wire g = small_graph();
    wire_message(&g, GRAPH_INPUT, onnx_value("c", GANTRY_BOOL, 0, NULL));
    wire n = onnx_node("If", "if1", "c", "y");
    onnx_set_graph(&n, "then_branch", branch("Neg", "neg1", "x", "t"));
    onnx_set_graph(&n, "else_branch", branch("Neg", "neg2", "x", "u"));
    wire_message(&g, GRAPH_NODE, n);
    put_node(&g, "Relu", "relu1", "x", "t");
    assert_fails(onnx_model(g), GANTRY_MODEL_GRAPH, "outside of the body");
    cr_assert_str_eq(error.node, "if1.then_branch.neg1");
}

Test(reader, a_capture_of_a_later_value_is_a_cycle)
{
    wire g = small_graph();
    wire_message(&g, GRAPH_INPUT, onnx_value("c", GANTRY_BOOL, 0, NULL));
    wire n = onnx_node("If", "if1", "c", "t");
    onnx_set_graph(&n, "then_branch", branch("Neg", "neg1", "y", "p"));
    onnx_set_graph(&n, "else_branch", branch("Neg", "neg2", "x", "q"));
    wire_message(&g, GRAPH_NODE, n);
    put_node(&g, "Relu", "n1", "t", "y");
    assert_fails(onnx_model(g), GANTRY_MODEL_GRAPH, "'if1' needs 'y' of 'n1'");
}

/* ---- functions ------------------------------------------------------------------------------- */

static wire function(const char *name, const char *inputs, const char *outputs)
{
    wire f = {0};
    wire_text(&f, 1, name);
    onnx_list(&f, 4, inputs);
    onnx_list(&f, 5, outputs);
    wire_text(&f, 10, "local");
    onnx_import(&f, 9, "", 15);
    onnx_import(&f, 9, "local", 1);
    return f;
}

static wire call(const char *name, const char *node, const char *inputs, const char *outputs)
{
    wire n = onnx_node(name, node, inputs, outputs);
    wire_text(&n, 7, "local");
    return n;
}

static wire function_model(wire graph, wire f)
{
    wire m = onnx_model(graph);
    wire_message(&m, 25, f);
    return m;
}

Test(reader, functions_are_put_in_place_of_their_calls)
{
    wire inner = function("Inner", "a,b", "r"), outer = function("Outer", "a,unused", "r,same,a");
    wire n = onnx_node("LeakyRelu", "leaky", "a", "t");
    onnx_set_reference(&n, "alpha", 1, "slope");
    wire_message(&inner, 7, n);
    n = onnx_node("If", "choose", "b", "r");
    onnx_set_graph(&n, "then_branch", branch("Neg", "neg", "t", "p"));
    onnx_set_graph(&n, "else_branch", branch("Relu", "relu", "a", "q"));
    wire_message(&inner, 7, n);
    wire fallback = onnx_attribute("slope", 1);
    wire_float(&fallback, 2, 0.5f);
    wire_message(&inner, 11, fallback);
    n = onnx_node("Constant", "", "", "flag");
    onnx_set_message(&n, "value", 4, 5, onnx_raw_tensor("", GANTRY_BOOL, 0, NULL, "\1", 1));
    wire_message(&outer, 7, n);
    n = call("Inner", "one", "a,flag", "t");
    onnx_set_reference(&n, "slope", 1, "tilt");
    wire_message(&outer, 7, n);
    wire_message(&outer, 7, call("Inner", "two", "t,flag", "r"));

    wire g = small_graph();
    onnx_put_float(&g, GRAPH_OUTPUT, "z");
    n = call("Outer", "call1", "x", "y,,z");
    onnx_set_float(&n, "tilt", 0.75f);
    wire_message(&g, GRAPH_NODE, n);
    wire m = function_model(g, inner);
    wire_message(&m, 25, outer);
    cr_assert_eq(read_wire(m), GANTRY_OK, "%s", error.message);

    const gt_graph *root = model->root;
    const gt_node *first = node_of(root, "call1/one/leaky"), *second = node_of(root, "call1/two/leaky");
    cr_assert_float_eq(gt_node_float(first, "alpha", 0), 0.75f, 0, "from the caller of the caller");
    cr_assert_float_eq(gt_node_float(second, "alpha", 0), 0.5f, 0, "the default");
    cr_assert_eq(first->opset, 15);
    const gt_node *choose = node_of(root, "call1/two/choose");
    cr_assert_eq(root->values.data[choose->outputs[0]], value_of(root, "y"));
    const gt_graph *body = choose->bodies[0].graph;
    const gt_node *neg = node_of(body, "call1/two/choose.then_branch.neg");
    cr_assert_eq(body->values.data[neg->inputs[0]]->captured, second->outputs[0]);
    cr_assert_eq(root->values.data[choose->inputs[0]]->constant,
                 root->values.data[node_of(root, "call1/one/choose")->inputs[0]]->constant);
    const gt_node *identity = root->nodes.data[value_of(root, "z")->producer];
    cr_assert_str_eq(identity->op_type, "Identity");
    cr_assert_eq(root->values.data[identity->inputs[0]], value_of(root, "x"));
    cr_assert_str_eq(source_of("call1")->removed_by, "inlined");
    cr_assert_str_eq(source_of("call1/one")->removed_by, "inlined");
    cr_assert_null(source_of("call1/one/leaky")->removed_by);
}

Test(reader, functions_may_not_call_themselves_or_grow_without_bound)
{
    wire f = function("F", "a", "b");
    wire_message(&f, 7, call("F", "again", "a", "b"));
    wire g = small_graph();
    wire_message(&g, GRAPH_NODE, call("F", "top", "x", "y"));
    assert_fails(function_model(g, f), GANTRY_MODEL_GRAPH, "'F' -> 'F'");

    g = small_graph();
    wire_message(&g, GRAPH_NODE, call("F0", "top", "x", "y"));
    wire m = onnx_model(g);
    for (int k = 0; k < 40; k++) {
        char name[16], next[16];
        snprintf(name, sizeof name, "F%d", k);
        snprintf(next, sizeof next, "F%d", k + 1);
        f = function(name, "a", "b");
        wire_message(&f, 7, call(next, "l", "a", "t"));
        wire_message(&f, 7, call(next, "r", "t", "b"));
        wire_message(&m, 25, f);
    }
    f = function("F40", "a", "b");
    wire_message(&f, 7, onnx_node("Neg", "", "a", "b"));
    wire_message(&m, 25, f);
    assert_fails(m, GANTRY_RESOURCE, "limit");

    f = function("F", "a", "b");
    wire_message(&f, 7, onnx_node("Neg", "", "a", "c"));
    g = small_graph();
    wire_message(&g, GRAPH_NODE, call("F", "top", "x", "y"));
    assert_fails(function_model(g, f), GANTRY_MODEL_GRAPH, "output 'b'");

    f = function("F", "a", "b");
    wire_message(&f, 7, onnx_node("Neg", "", "a", "b"));
    g = small_graph();
    wire_message(&g, GRAPH_NODE, call("F", "top", "x,x", "y"));
    assert_fails(function_model(g, f), GANTRY_MODEL_GRAPH, "2 inputs");
}

/* ---- hostile bytes --------------------------------------------------------------------------- */

/* A bit of everything. */
static wire rich_model(void)
{
    const float two[] = {1, 2};
    const int64_t dims[] = {2}, big[] = {20000};
    static float many[20000];
    wire g = small_graph();
    wire_message(&g, GRAPH_INPUT, onnx_value("c", GANTRY_BOOL, 0, NULL));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", 1, 1, dims, two, 8));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("big", 1, 1, big, many, sizeof many));
    wire_message(&g, GRAPH_SPARSE, sparse("v", 1, 1, dims, (const int64_t[]){0, 1}, 16, two, 2, 8, 1, dims));
    wire n = onnx_node("If", "if1", "c", "t");
    onnx_set_graph(&n, "then_branch", branch("Neg", "neg1", "x", "p"));
    onnx_set_graph(&n, "else_branch", branch("Add", "", "x,w", "q"));
    wire_message(&g, GRAPH_NODE, n);
    n = call("F", "top", "t", "y");
    onnx_set_float(&n, "slope", 1);
    wire_message(&g, GRAPH_NODE, n);
    n = onnx_node("Constant", "", "", "unused");
    onnx_set_message(&n, "value", 4, 5, typed_tensor(GANTRY_INT32, 1, 5, true, dims, 1));
    wire_message(&g, GRAPH_NODE, n);
    wire f = function("F", "a", "b");
    n = onnx_node("LeakyRelu", "", "a", "b");
    onnx_set_reference(&n, "alpha", 1, "slope");
    wire_message(&f, 7, n);
    return function_model(g, f);
}

Test(reader, every_prefix_and_every_changed_byte_has_a_status)
{
    wire m = rich_model();
    cr_assert_eq(read_wire(m), GANTRY_OK, "%s", error.message);
    uint32_t refused = 0;
    for (size_t k = 0; k < m.size; k += k < 1000 || k + 1000 > m.size ? 1 : 997) {
        uint8_t *prefix = malloc(k ? k : 1); /* exactly as long, so that a sanitizer sees a read past it */
        memcpy(prefix, m.data, k);
        refused += read_bytes(prefix, k) != GANTRY_OK;
        gt_model_destroy(&model);
        free(prefix);
        for (int flip = 0; flip < 3; flip++) {
            uint8_t kept = m.data[k];
            m.data[k] = flip == 0 ? kept ^ 0xff : flip == 1 ? kept + 1 : kept ^ 0x80;
            refused += read_bytes(m.data, m.size) != GANTRY_OK;
            m.data[k] = kept;
        }
    }
    cr_assert_gt(refused, m.size / 1000);
    gt_model_destroy(&model);
}

Test(reader, out_of_memory_is_a_status_wherever_it_happens)
{
    wire m = rich_model();
    gantry_status status = GANTRY_RESOURCE;
    uint32_t failures = 0;
    for (; status != GANTRY_OK && failures < 2000; failures++) {
        atomic_store(&allocator.fail_after, (int64_t)failures);
        status = read_bytes(m.data, m.size);
        cr_assert(status == GANTRY_OK || status == GANTRY_RESOURCE, "%d: %s", status, error.message);
        atomic_store(&allocator.fail_after, -1);
    }
    cr_assert_eq(status, GANTRY_OK);
    cr_assert_gt(failures, 20);
    kept[kept_count++] = m;
}

Test(reader, depth_is_bounded)
{
    for (int depth = 50; depth <= 100; depth += 50) {
        wire g = branch("Neg", "", "x", "t");
        for (int k = 0; k < depth; k++) {
            char output[16];
            snprintf(output, sizeof output, "o%d", k);
            wire n = onnx_node("If", "i", "c", output), outer = {0};
            onnx_set_graph(&n, "then_branch", g);
            wire_message(&outer, GRAPH_NODE, n);
            onnx_put_float(&outer, GRAPH_OUTPUT, output);
            g = outer;
        }
        onnx_put_float(&g, GRAPH_INPUT, "x");
        wire_message(&g, GRAPH_INPUT, onnx_value("c", GANTRY_BOOL, 0, NULL));
        if (depth == 50)
            read_good(g);
        else
            assert_fails(onnx_model(g), GANTRY_MODEL_PARSE, "nested more than");
    }
}

Test(reader, limits_are_kept)
{
    wire g = small_graph();
    put_node(&g, "Neg", "", "x", "t");
    put_node(&g, "Neg", "", "t", "y");
    wire m = kept[kept_count++] = onnx_model(g);
    const gt_read_limits one_node = {.max_nodes = 1}, few_bytes = {.max_bytes = 20};
    cr_assert_eq(gt_onnx_read_memory(&allocator, m.data, m.size, NULL, &one_node, &model, &error),
                 GANTRY_RESOURCE);
    cr_assert(strstr(error.message, "more nodes than the limit of 1"));
    cr_assert_eq(gt_onnx_read_memory(&allocator, m.data, m.size, NULL, &few_bytes, &model, &error),
                 GANTRY_RESOURCE);
    assert_fails((wire){0}, GANTRY_MODEL_PARSE, "0 bytes");
    wire text = {0};
    wire_put(&text, "this is not a model, this is not a model", 40);
    assert_fails(text, GANTRY_MODEL_PARSE, "not an ONNX model");
    wire twice = onnx_model(small_graph());
    wire_message(&twice, 7, small_graph());
    assert_fails(twice, GANTRY_MODEL_PARSE, "twice");
}
