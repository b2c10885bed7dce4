/* Writing ONNX: what is read again is what was written: attributes, types, bodies, names, opsets. */
#include "write_fixture.h"

TestSuite(onnx_write, .init = begin, .fini = end);

/* ---- attributes ------------------------------------------------------------------------------ */

static void put_attribute(wire *node, const char *name, int type, uint32_t field, const void *bytes,
                          size_t count)
{
    wire a = onnx_attribute(name, type);
    wire_bytes(&a, field, bytes, count);
    wire_message(node, 5, a);
}

static void put_lists(wire *node)
{
    const float floats[] = {1.5f, -2};
    put_attribute(node, "floats", GANTRY_ATTR_FLOATS, 7, floats, sizeof floats);
    wire ints = onnx_attribute("ints", GANTRY_ATTR_INTS);
    wire_int(&ints, 8, -3);
    wire_int(&ints, 8, INT64_MAX);
    wire_message(node, 5, ints);
    wire strings = onnx_attribute("strings", GANTRY_ATTR_STRINGS);
    wire_text(&strings, 9, "one");
    wire_text(&strings, 9, "");
    wire_message(node, 5, strings);
    wire_message(node, 5, onnx_attribute("none", GANTRY_ATTR_INTS));
}

static void put_tensors(wire *node)
{
    const int64_t two[] = {2}, one[] = {1};
    const int16_t numbers[] = {7, -7};
    onnx_set_message(node, "tensor", GANTRY_ATTR_TENSOR, 5,
                     onnx_raw_tensor("t", GANTRY_INT16, 1, two, numbers, sizeof numbers));
    wire tensors = onnx_attribute("tensors", GANTRY_ATTR_TENSORS),
         text = onnx_tensor("s", GANTRY_STRING, 1, one);
    wire_text(&text, 6, "a text");
    wire_message(&tensors, 10, onnx_raw_tensor("t", GANTRY_INT16, 1, two, numbers, sizeof numbers));
    wire_message(&tensors, 10, text);
    wire_message(node, 5, tensors);
}

Test(onnx_write, every_kind_of_attribute_comes_back)
{
    wire g = small_graph(), n = foreign_node("n", "x", "y");
    onnx_set_float(&n, "float", -0.0f);
    onnx_set_int(&n, "int", INT64_MIN);
    put_attribute(&n, "string", GANTRY_ATTR_STRING, 4, "a\0b", 3);
    put_lists(&n);
    put_tensors(&n);
    wire_message(&g, GRAPH_NODE, n);
    read_and_round_trip(foreign_model(g));

    const gt_node *node = node_of(model->root, "n");
    cr_assert_eq(node->attribute_count, 9);
    cr_assert_str_eq(node->domain, "some.where");
    cr_assert_eq(node->opset, 3);
    float zero = gt_node_float(node, "float", 1);
    cr_assert(zero == 0 && __builtin_signbit(zero));
    cr_assert_eq(gt_node_int(node, "int", 0), INT64_MIN);
    const gantry_attribute *string = gt_node_attribute(node, "string");
    cr_assert_eq(string->length, 3);
    cr_assert_arr_eq(string->s, "a\0b", 3);
    const gantry_attribute *floats = gt_node_attribute(node, "floats");
    cr_assert(floats->count == 2 && floats->floats[0] == 1.5f && floats->floats[1] == -2);
    uint32_t count;
    const int64_t *ints = gt_node_ints(node, "ints", &count);
    cr_assert(count == 2 && ints[0] == -3 && ints[1] == INT64_MAX);
    const gantry_attribute *strings = gt_node_attribute(node, "strings");
    cr_assert_eq(strings->count, 2);
    cr_assert_str_eq(strings->strings[0], "one");
    cr_assert_str_eq(strings->strings[1], "");
    cr_assert_eq(gt_node_attribute(node, "none")->kind, GANTRY_ATTR_INTS);
    cr_assert_eq(gt_node_attribute(node, "none")->count, 0);
    const gantry_tensor *tensor = gt_node_attribute(node, "tensor")->tensors;
    cr_assert_eq(tensor->dtype, GANTRY_INT16);
    cr_assert_eq(((const int16_t *)tensor->buffer.handle)[1], -7);
    const gantry_attribute *tensors = gt_node_attribute(node, "tensors");
    cr_assert_eq(tensors->count, 2);
    cr_assert_str_eq(((const char *const *)tensors->tensors[1].buffer.handle)[0], "a text");
}

/* Of what nobody computes with the bytes are kept: a sequence's type, and that of an input. */
Test(onnx_write, types_that_are_no_tensors_come_back)
{
    wire g = {0}, tensor = {0}, element = {0}, sequence = {0}, type = {0}, input = {0};
    wire_text(&g, GRAPH_NAME, "g");
    wire_int(&tensor, 1, GANTRY_INT32);
    wire_message(&element, 1, tensor);
    wire_message(&sequence, 1, element);
    wire_message(&type, 4, sequence);
    wire copy = {0};
    wire_put(&copy, type.data, type.size);
    cr_assert(copy.data);
    wire_text(&input, 1, "x");
    wire_message(&input, 2, type);
    wire_message(&g, GRAPH_INPUT, input);
    onnx_put_float(&g, GRAPH_OUTPUT, "y");
    wire n = foreign_node("n", "x", "y"), attribute = onnx_attribute("kind", 13);
    wire_bytes(&attribute, 14, copy.data, copy.size);
    wire_message(&n, 5, attribute);
    wire_message(&g, GRAPH_NODE, n);
    read_and_round_trip(foreign_model(g));

    const gt_value *x = value_of(model->root, "x");
    cr_assert_eq(x->kind, GANTRY_KIND_SEQUENCE);
    cr_assert_eq(x->declared_type_bytes, copy.size);
    cr_assert_arr_eq(x->declared_type, copy.data, copy.size);
    const gt_node *node = node_of(model->root, "n");
    cr_assert_eq(node->kept_count, 1);
    cr_assert_str_eq(node->kept[0].name, "kind");
    cr_assert(memmem(node->kept[0].bytes, node->kept[0].size, copy.data, copy.size));
    wire_free(&copy);
}

/* ---- tensors --------------------------------------------------------------------------------- */

Test(onnx_write, a_constant_of_every_type_comes_back)
{
    uint8_t bytes[16 * 3];
    const int64_t three[] = {3};
    char name[16], inputs[200] = "x";
    int used = 1;
    for (size_t k = 0; k < sizeof bytes; k++)
        bytes[k] = (uint8_t)(k % 2); /* bools too */
    wire g = small_graph();
    for (int type = 1; type < GANTRY_DTYPE_COUNT; type++) {
        snprintf(name, sizeof name, "c%d", type);
        used += snprintf(inputs + used, sizeof inputs - (size_t)used, ",%s", name);
        wire t = onnx_tensor(name, type, 1, three);
        for (int k = 0; type == GANTRY_STRING && k < 3; k++)
            wire_text(&t, 6, k == 1 ? "" : "text");
        if (type != GANTRY_STRING)
            wire_bytes(&t, 9, bytes, gantry_dtype_bytes((gantry_dtype)type, 3));
        wire_message(&g, GRAPH_INITIALIZER, t);
    }
    wire_message(&g, GRAPH_NODE, foreign_node("n", inputs, "y"));
    read_and_round_trip(foreign_model(g));

    for (int type = 1; type < GANTRY_DTYPE_COUNT; type++) {
        snprintf(name, sizeof name, "c%d", type);
        const gt_value *value = value_of(model->root, name);
        cr_assert_eq(value->dtype, (gantry_dtype)type);
        cr_assert_eq(model->constants.data[value->constant].dims[0], 3);
        const void *data = bytes_of(value);
        if (type == GANTRY_STRING)
            cr_assert_str_eq(((const char *const *)data)[2], "text");
        else
            cr_assert_arr_eq(data, bytes, gantry_dtype_bytes((gantry_dtype)type, 3));
    }
}

Test(onnx_write, scalars_and_empty_tensors_come_back)
{
    const float number = 4;
    const int64_t empty[] = {0, 5};
    wire g = small_graph();
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("scalar", 1, 0, NULL, &number, 4));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("empty", 1, 2, empty, "", 0));
    wire_message(&g, GRAPH_NODE, foreign_node("n", "x,scalar,empty", "y"));
    read_and_round_trip(foreign_model(g));
    cr_assert_eq(value_of(model->root, "scalar")->rank, 0);
    cr_assert_eq(*(const float *)bytes_of(value_of(model->root, "scalar")), 4);
    cr_assert_eq(value_of(model->root, "empty")->rank, 2);
    cr_assert_eq(model->constants.data[value_of(model->root, "empty")->constant].dims[1], 5);
}

/* Dense it would have 80000 bytes. */
Test(onnx_write, sparse_constants_stay_sparse)
{
    const float values[] = {5, 7};
    const int64_t indices[] = {3, 19000}, two[] = {2}, dims[] = {20000};
    wire g = small_graph(), sparse = {0};
    wire_message(&sparse, 1, onnx_raw_tensor("w", 1, 1, two, values, sizeof values));
    wire_message(&sparse, 2, onnx_raw_tensor("", 7, 1, two, indices, sizeof indices));
    wire_int(&sparse, 3, dims[0]);
    wire_message(&g, GRAPH_SPARSE, sparse);
    wire_message(&g, GRAPH_NODE, foreign_node("n", "x,w", "y"));
    read_model(foreign_model(g));
    infer();
    wire file = write_model();
    cr_assert_lt(file.size, 400);
    read_model(file);
    const float *dense = bytes_of(value_of(model->root, "w"));
    cr_assert(dense[3] == 5 && dense[4] == 0 && dense[19000] == 7);
    infer();
    round_trip();
}

/* Weights that a rewrite scaled exist only while somebody asks: the writer asks, and gives them back. */
Test(onnx_write, scaled_constants_are_written_as_numbers)
{
    const float weights[] = {1, 2, 3, 4};
    const int64_t dims[] = {4};
    const double factor[] = {10, 100};
    wire g = small_graph();
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", 1, 1, dims, weights, sizeof weights));
    wire_message(&g, GRAPH_NODE, foreign_node("n", "x,w", "y"));
    read_model(foreign_model(g));
    gt_value *w = (gt_value *)(uintptr_t)value_of(model->root, "w");
    gt_scaling scaling = {w->constant, 1, 1, 2, 2, factor};
    bool finite;
    GOOD(gt_model_add_scaled(model, "w", &scaling, &w->constant, &finite, &error));
    infer();
    uint32_t scaled = w->constant;
    wire file = write_model();
    cr_assert_null(model->constants.data[scaled].data);
    read_model(file);
    const float wanted[] = {10, 20, 300, 400};
    cr_assert_arr_eq(bytes_of(value_of(model->root, "w")), wanted, sizeof wanted);
}

/* ---- names and shapes ------------------------------------------------------------------------ */

Test(onnx_write, names_and_metadata_stay)
{
    const int64_t dims[] = {-1, 3};
    wire g = {0};
    wire_text(&g, GRAPH_NAME, "the graph");
    wire_message(&g, GRAPH_INPUT, onnx_value("x", 1, 2, dims));
    wire_message(&g, GRAPH_OUTPUT, onnx_value("y/0:1", 1, 2, dims));
    put_node(&g, "Relu", "", "x", "t");
    put_node(&g, "Abs", "a/b c", "t", "y/0:1");
    wire m = onnx_model(g);
    wire_text(&m, 2, "pytorch");
    wire_text(&m, 3, "2.1");
    wire_text(&m, 4, "org.example");
    wire_int(&m, 5, 12);
    wire_text(&m, 6, "words");
    onnx_entry(&m, 14, "license", "none");
    onnx_import(&m, 8, "unused.domain", 4);
    read_and_round_trip(m);

    cr_assert_str_eq(model->root->name, "the graph");
    node_of(model->root, "a/b c");
    node_of(model->root, "Relu_0");
    cr_assert_str_eq(value_of(model->root, "y/0:1")->declared_dim_names[0], "n");
    cr_assert_str_eq(value_of(model->root, "t")->declared_dim_names[0], "n");
    cr_assert_eq(value_of(model->root, "t")->declared_dims[1], 3);
    cr_assert_eq(model->opsets.count, 2);
    cr_assert_eq(model->opsets.data[0].version, 17);
    cr_assert_str_eq(model->opsets.data[1].domain, "unused.domain");
    static const char *const wanted[][2] = {
        {"license", "none"},         {"gantry.source_producer", "pytorch 2.1"},
        {"producer_name", "gantry"}, {"producer_version", "9.9"},
        {"domain", "org.example"},   {"doc_string", "words"},
        {"graph_name", "the graph"}, {"model_version", "12"}};
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
        cr_assert_str_eq(model->metadata.data[k].key, wanted[k][0]);
        cr_assert_str_eq(model->metadata.data[k].value, wanted[k][1]);
    }
}

/* Exporters say there where a node comes from. */
Test(onnx_write, notes_on_nodes_stay)
{
    wire g = small_graph(), n = onnx_node("Relu", "relu", "x", "t");
    wire_text(&n, 6, "line 12");
    onnx_entry(&n, 9, "module", "encoder.0");
    onnx_entry(&n, 9, "stack", "");
    wire_message(&g, GRAPH_NODE, n);
    put_node(&g, "Abs", "abs", "t", "y");
    read_and_round_trip(onnx_model(g));
    const gt_source *relu = &model->sources.data[0], *abs = &model->sources.data[1];
    cr_assert_str_eq(relu->notes->doc, "line 12");
    cr_assert_eq(relu->notes->count, 2);
    cr_assert_str_eq(relu->notes->metadata[0].key, "module");
    cr_assert_str_eq(relu->notes->metadata[0].value, "encoder.0");
    cr_assert_str_eq(relu->notes->metadata[1].value, "");
    cr_assert_null(abs->notes);
    gt_model_destroy(&model);
    GOOD(gt_onnx_read_memory(&allocator, kept[0].data, kept[0].size, NULL, NULL, &model, &error));
    cr_assert_null(model->sources.data[0].notes);
}

/* What depends on named extents has a name; what depends on an input's unnamed one is left open. */
Test(onnx_write, shapes_are_what_inference_knows)
{
    const int64_t named[] = {-1, 3};
    wire g = {0}, shape = {0}, tensor = {0}, type = {0}, input = {0}, no_name = {0};
    wire_text(&g, GRAPH_NAME, "g");
    wire_message(&g, GRAPH_INPUT, onnx_value("x", 1, 2, named));
    wire_message(&shape, 1, no_name); /* a dim without a number or a name */
    wire_int(&tensor, 1, 1);
    wire_message(&tensor, 2, shape);
    wire_message(&type, 1, tensor);
    wire_text(&input, 1, "z");
    wire_message(&input, 2, type);
    wire_message(&g, GRAPH_INPUT, input);
    wire concat = onnx_node("Concat", "concat", "x,x", "t");
    onnx_set_int(&concat, "axis", 0);
    wire_message(&g, GRAPH_NODE, concat);
    put_node(&g, "Relu", "relu", "z", "u");
    put_node(&g, "Abs", "one", "t", "y");
    put_node(&g, "Abs", "two", "u", "v");
    wire_message(&g, GRAPH_OUTPUT, onnx_value("y", 1, -1, NULL));
    wire_message(&g, GRAPH_OUTPUT, onnx_value("v", 1, -1, NULL));
    read_and_round_trip(onnx_model(g));
    cr_assert_str_eq(value_of(model->root, "t")->declared_dim_names[0], "2*n");
    cr_assert_str_eq(value_of(model->root, "y")->declared_dim_names[0], "2*n");
    const gt_value *u = value_of(model->root, "u");
    cr_assert_eq(u->declared_rank, 1);
    cr_assert(u->declared_dims[0] == -1 && (!u->declared_dim_names[0] || !u->declared_dim_names[0][0]));
}

Test(onnx_write, constants_nobody_reads_are_left_out_and_defaults_stay)
{
    const float numbers[] = {1, 2};
    const int64_t dims[] = {2};
    wire g = small_graph();
    onnx_put_float(&g, GRAPH_INPUT, "d");
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("d", 1, 1, dims, numbers, sizeof numbers));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("idle", 1, 1, dims, numbers, sizeof numbers));
    put_node(&g, "Add", "add", "x,d", "y");
    read_and_round_trip(onnx_model(g));
    cr_assert_eq(model->root->inputs.count, 2);
    cr_assert_neq(value_of(model->root, "d")->constant, GT_NONE);
    cr_assert_eq(gt_graph_find_value(model->root, "idle"), GT_NONE);
}

/* Before IR 4 every initializer was an input, and a constant all the same. */
Test(onnx_write, initializers_of_old_files_are_no_inputs)
{
    const float numbers[] = {1, 2};
    const int64_t dims[] = {2};
    wire g = small_graph();
    onnx_put_float(&g, GRAPH_INPUT, "w");
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", 1, 1, dims, numbers, sizeof numbers));
    put_node(&g, "Add", "add", "x,w", "y");
    wire m = {0};
    wire_int(&m, 1, 3);
    wire_message(&m, 7, g);
    onnx_import(&m, 8, "", 8);
    read_and_round_trip(m);
    cr_assert_eq(model->ir_version, 4);
    cr_assert_eq(model->root->inputs.count, 1);
    cr_assert_eq(model->opsets.data[0].version, 8);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static wire branch(const char *name, const char *output)
{
    wire g = {0};
    wire_text(&g, GRAPH_NAME, name);
    onnx_put_float(&g, GRAPH_OUTPUT, output);
    return g;
}

static wire condition_input(void)
{
    return onnx_value("c", GANTRY_BOOL, 0, NULL);
}

/* A branch reads an outer value and an outer constant, has a constant of its own, and the other hands an
 * outer value out as it is. */
Test(onnx_write, bodies_capture_by_name)
{
    const float numbers[] = {1, 2};
    const int64_t dims[] = {2};
    wire g = small_graph();
    wire_message(&g, GRAPH_INPUT, condition_input());
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", 1, 1, dims, numbers, sizeof numbers));
    put_node(&g, "Neg", "neg", "x", "t");
    wire then_branch = branch("then", "a");
    wire_message(&then_branch, GRAPH_INITIALIZER,
                 onnx_raw_tensor("own", 1, 1, dims, numbers, sizeof numbers));
    put_node(&then_branch, "Add", "add", "t,w", "s");
    put_node(&then_branch, "Mul", "", "s,own", "a");
    wire else_branch = branch("else", "t"), node = onnx_node("If", "if", "c", "y");
    onnx_set_graph(&node, "then_branch", then_branch);
    onnx_set_graph(&node, "else_branch", else_branch);
    wire_message(&g, GRAPH_NODE, node);
    read_and_round_trip(onnx_model(g));

    const gt_node *control = node_of(model->root, "if");
    cr_assert_eq(control->body_count, 2);
    const gt_graph *then_graph = control->bodies[0].graph, *else_graph = control->bodies[1].graph;
    cr_assert_str_eq(then_graph->name, "then");
    node_of(then_graph, "if.then_branch.add");
    node_of(then_graph, "if.then_branch.Mul_1");
    cr_assert_neq(value_of(then_graph, "t")->captured, GT_NONE);
    cr_assert_eq(value_of(then_graph, "w")->constant, value_of(model->root, "w")->constant);
    cr_assert_neq(value_of(then_graph, "own")->constant, value_of(model->root, "w")->constant);
    cr_assert_eq(gt_graph_find_value(model->root, "own"), GT_NONE);
    /* ONNX wants a body's output to be made in it. */
    cr_assert_eq(else_graph->nodes.count, 1);
    cr_assert_str_eq(else_graph->nodes.data[0]->op_type, "Identity");
    cr_assert_str_eq(else_graph->values.data[else_graph->outputs.data[0]]->name, "t_1");
}

/* After rewrites a body may have a value of a name that the graph around it has too. */
Test(onnx_write, a_body_does_not_hide_names_around_it)
{
    wire g = small_graph(), then_branch = branch("then", "a"), else_branch = branch("else", "b");
    wire_message(&g, GRAPH_INPUT, condition_input());
    put_node(&g, "Neg", "neg", "x", "t");
    put_node(&then_branch, "Abs", "abs", "t", "a");
    put_node(&else_branch, "Abs", "abs", "t", "b");
    wire node = onnx_node("If", "if", "c", "y");
    onnx_set_graph(&node, "then_branch", then_branch);
    onnx_set_graph(&node, "else_branch", else_branch);
    wire_message(&g, GRAPH_NODE, node);
    read_model(onnx_model(g));
    gt_graph *body = node_of(model->root, "if")->bodies[0].graph;
    cr_assert(gt_graph_rename_value(body, gt_graph_find_value(body, "t"), "local"));
    cr_assert(gt_graph_rename_value(body, gt_graph_find_value(body, "a"), "t"));
    infer();
    round_trip();
    const gt_graph *again = node_of(model->root, "if")->bodies[0].graph;
    cr_assert_str_eq(again->values.data[again->outputs.data[0]]->name, "t_1");
    cr_assert_neq(value_of(again, "t")->captured, GT_NONE);
}

Test(onnx_write, a_body_hands_one_value_out_twice)
{
    wire g = small_graph(), bodies[] = {branch("then", "a"), branch("else", "b")};
    onnx_put_float(&g, GRAPH_OUTPUT, "z");
    wire_message(&g, GRAPH_INPUT, condition_input());
    onnx_put_float(&bodies[0], GRAPH_OUTPUT, "a");
    onnx_put_float(&bodies[1], GRAPH_OUTPUT, "b2");
    put_node(&bodies[0], "Abs", "abs", "x", "a");
    put_node(&bodies[1], "Neg", "neg", "x", "b");
    put_node(&bodies[1], "Exp", "exp", "x", "b2");
    wire node = onnx_node("If", "if", "c", "y,z");
    onnx_set_graph(&node, "then_branch", bodies[0]);
    onnx_set_graph(&node, "else_branch", bodies[1]);
    wire_message(&g, GRAPH_NODE, node);
    read_and_round_trip(onnx_model(g));
    const gt_graph *body = node_of(model->root, "if")->bodies[0].graph;
    cr_assert_eq(body->outputs.count, 2);
    cr_assert_neq(body->outputs.data[0], body->outputs.data[1]);
    cr_assert_eq(body->nodes.count, 2);
}

/* ---- opsets ---------------------------------------------------------------------------------- */

/* A model of opset 17 whose function has another. */
static wire model_with_function(int64_t opset, const char *op, const char *more_op)
{
    wire g = small_graph(), f = {0}, call = onnx_node("F", "call", "x", "t");
    wire_text(&call, 7, "local");
    wire_message(&g, GRAPH_NODE, call);
    put_node(&g, more_op, "after", "t", "y");
    wire_text(&f, 1, "F");
    wire_text(&f, 4, "a");
    wire_text(&f, 5, "b");
    wire_message(&f, 7, onnx_node(op, "inner", "a", "b"));
    onnx_import(&f, 9, "", opset);
    wire_text(&f, 10, "local");
    wire m = onnx_model(g);
    onnx_import(&m, 8, "local", 1);
    wire_message(&m, 25, f);
    return m;
}

Test(onnx_write, functions_are_inlined_and_their_domain_goes)
{
    read_and_round_trip(model_with_function(17, "Abs", "Neg"));
    node_of(model->root, "call/inner");
    cr_assert_eq(model->opsets.count, 1);
    cr_assert_eq(model->opsets.data[0].version, 17);
}

/* Mish came with opset 18; Neg means the same there. */
Test(onnx_write, the_opset_is_one_that_all_nodes_mean_the_same_in)
{
    read_and_round_trip(model_with_function(18, "Mish", "Neg"));
    cr_assert_eq(model->opsets.data[0].version, 18);
}

/* ReduceMean of opset 18 is another one than that of 17, which the model has. */
Test(onnx_write, opsets_that_exclude_each_other_are_refused)
{
    read_model(model_with_function(18, "ReduceMean", "ReduceMax"));
    infer();
    wire file = {0};
    gt_write_result result;
    gt_write_options options = {.version = "9.9"};
    cr_assert_eq(write_with(&options, &file, NULL, &result), GANTRY_UNSUPPORTED);
    cr_assert(strstr(error.message, "call/inner") && strstr(error.message, "after"), "%s", error.message);
    cr_assert_eq(file.size, 0);
}

/* ---- composites ------------------------------------------------------------------------------ */

/* x * sigmoid(x) and its like become one node where the opset has it, and stay what they were elsewhere. */
static void simplify_gelu(int64_t opset)
{
    const float half = 0.5f, one = 1, root = 1.41421356f;
    wire g = small_graph(), m = {0};
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("half", 1, 0, NULL, &half, 4));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("one", 1, 0, NULL, &one, 4));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("root", 1, 0, NULL, &root, 4));
    put_node(&g, "Div", "div", "x,root", "d");
    put_node(&g, "Erf", "erf", "d", "e");
    put_node(&g, "Add", "add", "e,one", "s");
    put_node(&g, "Mul", "mul", "x,s", "p");
    put_node(&g, "Mul", "last", "p,half", "y");
    wire_int(&m, 1, 8);
    wire_message(&m, 7, g);
    onnx_import(&m, 8, "", opset);
    read_model(m);
    GOOD(gt_infer_inputs(model, NULL, &error));
    gt_rewrite_options options = {.enabled = true};
    GOOD(gt_simplify(model->root, &options, &error));
    cr_assert_eq(model->root->order.count, 1);
    GOOD(gt_graph_make_standard(model->root, &error));
}

Test(onnx_write, composites_become_operators_that_the_opset_has)
{
    simplify_gelu(20);
    round_trip();
    cr_assert_eq(model->root->nodes.count, 1);
    const gt_node *gelu = model->root->nodes.data[0];
    cr_assert_str_eq(gelu->op_type, "Gelu");
    cr_assert_str_eq(gelu->domain, "");
    cr_assert_str_eq(gt_node_string(gelu, "approximate", ""), "none");
    cr_assert_eq(model->opsets.data[0].version, 20);
}

Test(onnx_write, composites_become_the_nodes_they_were)
{
    simplify_gelu(19);
    round_trip();
    cr_assert_eq(model->root->nodes.count, 5);
    static const char *const names[] = {"div", "erf", "add", "mul", "last"};
    static const char *const values[] = {"d", "e", "s", "p", "y", "half", "one", "root"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        node_of(model->root, names[k]);
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
        value_of(model->root, values[k]);
}

Test(onnx_write, rules_without_an_operator_are_known)
{
    cr_assert_eq(gt_write_rule_opset("gelu"), 20);
    cr_assert_eq(gt_write_rule_opset("layer_norm"), 17);
    cr_assert_eq(gt_write_rule_opset("silu"), INT32_MAX);
    cr_assert_eq(gt_write_rule_opset("fold"), 0);
}
