/* Chains of elementwise operators on OpenCL: one kernel, with the bits of the operators by themselves; what
 * keeps operators apart is in the report; results that lie where an operand does. */
#include "../support/opencl_rows.h"
#include "../support/test_device.h"

#define ROWS 5
#define WIDTH 7
#define COUNT (ROWS * WIDTH)
#define ON "providers=opencl,cpu;plan=priority;threads=1;fold=off;rewrites=off"

TestSuite(opencl_chain, .init = rows_setup, .fini = rows_teardown);

typedef const char *node_text[3]; /* operator, inputs, output; names are those of the operators and places */

/* x, z [5,7], s [7], c [1] of the type; y is the output, and u where the graph has it. */
static wire model_of(gantry_dtype dtype, const node_text *nodes, int count, bool shows_u)
{
    static const int64_t full[2] = {ROWS, WIDTH}, row_dims[1] = {WIDTH}, one[1] = {1};
    wire g = small_graph("chain"), model = {0};
    for (int k = 0; k < count; k++) {
        char name[24];
        snprintf(name, sizeof name, "%s%d", nodes[k][0], k);
        wire node = onnx_node(nodes[k][0], name, nodes[k][1], nodes[k][2]);
        if (strcmp(nodes[k][0], "Cast") == 0)
            onnx_set_int(&node, "to", *nodes[k][2] == 'i' ? GANTRY_INT32 : (int64_t)dtype);
        wire_message(&g, GRAPH_NODE, node);
    }
    wire_message(&g, GRAPH_INPUT, onnx_value("x", (int)dtype, 2, full));
    wire_message(&g, GRAPH_INPUT, onnx_value("z", (int)dtype, 2, full));
    wire_message(&g, GRAPH_INPUT, onnx_value("s", (int)dtype, 1, row_dims));
    wire_message(&g, GRAPH_INPUT, onnx_value("c", (int)dtype, 1, one));
    wire_message(&g, GRAPH_OUTPUT, onnx_value("y", (int)dtype, -1, NULL));
    if (shows_u)
        wire_message(&g, GRAPH_OUTPUT, onnx_value("u", (int)dtype, -1, NULL));
    wire_int(&model, 1, 10);
    onnx_import(&model, 8, "", 21);
    wire_message(&model, 7, g);
    return model;
}

static small_session run_model(wire model, gantry_dtype dtype, const char *options)
{
    static operand operands[4];
    static const char *const shapes[] = {"[5,7]", "[5,7]+", "[7]", "[1]"};
    small_session s = {.err = GANTRY_ERROR_INIT, .runtime = runtime};
    small_create(&s, model, options);
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    for (uint32_t k = 0; k < 4; k++) {
        char text[32];
        snprintf(text, sizeof text, "%s%s",
                 dtype == GANTRY_FLOAT16 ? "f16"
                 : dtype == GANTRY_INT32 ? "i32"
                                         : "f32",
                 shapes[k]);
        read_operand(text, k, &operands[k]);
        const operand *o = &operands[k];
        gantry_tensor t = small_tensor(o->dtype, o->rank, o->dims, (void *)(uintptr_t)o->data, o->bytes);
        cr_assert_eq(gantry_run_bind_input(s.run, k, &t, &s.err), GANTRY_OK, "%s", s.err.message);
    }
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    return s;
}

static void close_model(small_session *s)
{
    s->runtime = NULL;
    small_close(s);
}

static json_t *report_of(small_session *s)
{
    gantry_report *report = NULL;
    const char *text;
    size_t length;
    cr_assert_eq(gantry_session_report(s->session, s->run, &report, &s->err), GANTRY_OK);
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_JSON, &text, &length, &s->err), GANTRY_OK);
    json_t *document = json_loadb(text, length, 0, NULL);
    gantry_report_destroy(&report);
    return document;
}

/* Records of chains with this guard ("" for those that were made), and the operators in them. */
static int chains_of(const json_t *document, const char *guard, size_t *out_nodes)
{
    size_t k;
    json_t *row;
    int found = 0;
    *out_nodes = 0;
    json_array_foreach(json_object_get(document, "fusions"), k, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "rule")), "elementwise_chain") != 0 ||
            !strstr(json_string_value(json_object_get(row, "guard")), guard) ||
            json_is_true(json_object_get(row, "applied")) != !*guard)
            continue;
        found++;
        *out_nodes += json_array_size(json_object_get(row, "nodes"));
    }
    return found;
}

/* One chain of so many operators; its bits are those of the operators by themselves. */
static void check_chain(gantry_dtype dtype, const node_text *nodes, int count, size_t chained)
{
    size_t members;
    small_session fused = run_model(model_of(dtype, nodes, count, false), dtype, ON);
    small_session apart = run_model(model_of(dtype, nodes, count, false), dtype, ON ";opencl.fuse=off");
    gantry_tensor a = small_result(&fused, 0), b = small_result(&apart, 0);
    json_t *document = report_of(&fused), *other = report_of(&apart);
    cr_assert_eq(chains_of(document, "", &members), 1, "%s ...", nodes[0][0]);
    cr_assert_eq(members, chained, "%s ...: %zu operators", nodes[0][0], members);
    cr_assert_eq(chains_of(other, "", &members), 0);
    cr_assert_eq(json_array_size(json_object_get(document, "kernels")) + chained - 1,
                 json_array_size(json_object_get(other, "kernels")));
    cr_assert_eq(a.dtype, b.dtype);
    cr_assert_eq(memcmp((const char *)a.buffer.handle + a.buffer.offset_bytes,
                        (const char *)b.buffer.handle + b.buffer.offset_bytes,
                        gantry_dtype_bytes(dtype, COUNT)),
                 0, "%s ...: other bits", nodes[0][0]);
    cr_assert_eq(nodes_on(&fused, "cpu"), 0);
    json_decref(document);
    json_decref(other);
    close_model(&fused);
    close_model(&apart);
}

#define CHAIN(dtype, chained, ...)                                                                           \
    check_chain(dtype, (const node_text[]){__VA_ARGS__},                                                     \
                (int)(sizeof((const node_text[]){__VA_ARGS__}) / sizeof(node_text)), chained)

Test(opencl_chain, one_kernel_with_the_same_bits)
{
    static const gantry_dtype types[] = {GANTRY_FLOAT32, GANTRY_FLOAT16};
    for (int k = 0; k < 2; k++) {
        CHAIN(types[k], 5, {"Mul", "x,s", "a"}, {"Add", "a,c", "b"}, {"Sigmoid", "b", "d"},
              {"Add", "x,c", "e"}, {"Mul", "e,d", "y"});
        CHAIN(types[k], 6, {"Exp", "x", "a"}, {"Sqrt", "z", "b"}, {"Div", "a,b", "d"}, {"Max", "d,s,c", "e"},
              {"Clip", "e,,", "f"}, {"Tanh", "f", "y"});
        CHAIN(types[k], 4, {"Greater", "x,s", "m"}, {"Neg", "x", "n"}, {"Abs", "n", "p"},
              {"Where", "m,p,z", "y"});
    }
}

Test(opencl_chain, integers_and_conversions)
{
    CHAIN(GANTRY_INT32, 3, {"Div", "x,z", "a"}, {"Min", "a,s", "b"}, {"Mod", "b,z", "y"});
    CHAIN(GANTRY_FLOAT32, 4, {"Floor", "x", "a"}, {"Cast", "a", "i"}, {"Cast", "i", "f"},
          {"Sub", "x,f", "y"});
}

static void check_apart(const node_text *nodes, int count, bool shows_u, const char *guard, int chains)
{
    size_t members;
    small_session fused = run_model(model_of(GANTRY_FLOAT32, nodes, count, shows_u), GANTRY_FLOAT32, ON);
    small_session host = run_model(model_of(GANTRY_FLOAT32, nodes, count, shows_u), GANTRY_FLOAT32,
                                   "providers=cpu;threads=1;fold=off");
    json_t *document = report_of(&fused);
    cr_assert_geq(chains_of(document, guard, &members), 1, "%s", guard);
    cr_assert_eq(chains_of(document, "", &members), chains, "%s", guard);
    gantry_tensor a = small_result(&fused, 0), b = small_result(&host, 0);
    for (size_t k = 0; k < COUNT; k++)
        cr_assert_float_eq(small_floats_of(&a)[k], small_floats_of(&b)[k], 1e-5, "element %zu", k);
    json_decref(document);
    close_model(&fused);
    close_model(&host);
}

#define APART(shows_u, guard, chains, ...)                                                                   \
    check_apart((const node_text[]){__VA_ARGS__},                                                            \
                (int)(sizeof((const node_text[]){__VA_ARGS__}) / sizeof(node_text)), shows_u, guard, chains)

Test(opencl_chain, what_keeps_operators_apart)
{
    APART(true, "read elsewhere", 0, {"Neg", "x", "u"}, {"Abs", "u", "y"});
    APART(false, "another shape", 0, {"Neg", "s", "a"}, {"Add", "a,x", "y"});
    APART(false, "12 operators", 1, {"Neg", "x", "a"}, {"Abs", "a", "b"}, {"Neg", "b", "d"},
          {"Abs", "d", "e"}, {"Neg", "e", "f"}, {"Abs", "f", "g"}, {"Neg", "g", "h"}, {"Abs", "h", "i1"},
          {"Neg", "i1", "j"}, {"Abs", "j", "k"}, {"Neg", "k", "l"}, {"Abs", "l", "m"}, {"Neg", "m", "y"});
}

/* y = Relu(x + b): y may lie where x does. */
Test(opencl_chain, a_result_may_lie_where_an_operand_does)
{
    gantry_error err = GANTRY_ERROR_INIT;
    const int64_t dims[2] = {ROWS, WIDTH}, b_dims[1] = {WIDTH};
    float in[COUNT], b[WIDTH], out[COUNT];
    test_device *device = test_device_open(OPENCL, NULL, &err);
    cr_assert_not_null(device);
    uint32_t x = test_value_add(device->net, GANTRY_FLOAT32, 2, dims);
    uint32_t s = test_value_add(device->net, GANTRY_FLOAT32, 1, b_dims);
    uint32_t t = test_value_add(device->net, GANTRY_FLOAT32, 2, dims);
    uint32_t y = test_value_add(device->net, GANTRY_FLOAT32, 2, dims), operands[2] = {s, x};
    test_input(device->net, s);
    test_input(device->net, x);
    test_output(device->net, y);
    test_node_add(device->net, "", "Add", 13, 2, operands, 1, &t);
    test_node_add(device->net, "", "Relu", 13, 1, &t, 1, &y);
    double ns[2];
    for (uint32_t node = 0; node < 2; node++) {
        gantry_verdict verdict = {.struct_bytes = sizeof verdict};
        cr_assert_eq(device->provider->judge(device->provider->self, &device->net->graph, &node, 1, &verdict),
                     GANTRY_OK);
        cr_assert_eq(verdict.supported, 1);
        ns[node] = verdict.estimate_ns;
    }
    cr_assert(ns[0] >= 0 && ns[0] < ns[1], "Add has no launch of its own: %g and %g ns", ns[0], ns[1]);
    cr_assert_eq(test_device_build(device), GANTRY_OK, "%s", device->net->error.message);
    cr_assert_eq(device->net->info.output_plans[0].overwrite_input, 1);
    cr_assert_eq(device->net->info.output_plans[0].view_of_input, -1);
    cr_assert_eq(device->net->info.workspace_bytes, 0, "nothing lies between the two");
    test_fill(in, COUNT, 1);
    test_fill(b, WIDTH, 2);
    gantry_buffer buffers[2] = {test_device_alloc(device, sizeof b), test_device_alloc(device, sizeof in)};
    test_device_put(device, buffers[0], b, sizeof b);
    test_device_put(device, buffers[1], in, sizeof in);
    cr_assert_eq(test_device_run(device, buffers, &buffers[1], NULL, 0, NULL), GANTRY_OK);
    test_device_get(device, out, buffers[1], sizeof out);
    cr_assert_eq(test_device_sync(device), GANTRY_OK);
    for (int k = 0; k < COUNT; k++) {
        float sum = in[k] + b[k % WIDTH];
        cr_assert_eq(out[k], sum > 0 ? sum : 0);
    }
    cr_assert_eq(test_device_close(device), 0);
}
