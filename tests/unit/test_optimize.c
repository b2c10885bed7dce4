/* gantry_model_optimize: what the file holds, what does not blow it up, fixed shapes, the account of it,
 * errors. */
#include "../support/broken_allocator.h"
#include "../support/small_models.h"
#include "../support/test_folder.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

static gantry_runtime *runtime;
static gantry_options *options;
static gantry_report *report;
static json_t *document;
static gantry_optimize_target target;
static gantry_error error;

static void begin(void)
{
    error = (gantry_error)GANTRY_ERROR_INIT;
    test_folder_open();
    cr_assert_eq(gantry_runtime_create(NULL, &runtime, &error), GANTRY_OK, "%s", error.message);
    cr_assert_eq(gantry_options_create(&options, &error), GANTRY_OK);
    target = (gantry_optimize_target)GANTRY_OPTIMIZE_TARGET_INIT;
    static char path[128];
    snprintf(path, sizeof path, "%s", inside("out.onnx"));
    target.path = path;
}

static void end(void)
{
    json_decref(document);
    gantry_report_destroy(&report);
    gantry_options_destroy(&options);
    cr_assert_eq(gantry_runtime_destroy(&runtime, &error), GANTRY_OK, "%s", error.message);
    static const char *const names[] = {"in.onnx", "out.onnx", "again.onnx", "w.bin"};
    test_folder_expect_only(sizeof names / sizeof *names, names);
    test_folder_close();
}

TestSuite(optimize, .init = begin, .fini = end);

static void set(const char *key, const char *value)
{
    cr_assert_eq(gantry_options_set(options, key, value, &error), GANTRY_OK, "%s", error.message);
}

static void put_model(wire model)
{
    put_file(inside("in.onnx"), model.data, model.size);
    wire_free(&model);
}

static gantry_status try_optimize(wire graph)
{
    put_model(small_model(graph));
    return gantry_model_optimize(runtime, inside("in.onnx"), options, &target, &report, &error);
}

/* Optimizes, reads the account, and makes sure that another turn gives the same bytes. */
static void optimize(wire graph)
{
    const char *text;
    gantry_status status = try_optimize(graph);
    cr_assert_eq(status, GANTRY_OK, "status %d: %s", status, error.message);
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_JSON, &text, NULL, &error), GANTRY_OK);
    document = json_loads(text, 0, NULL);
    cr_assert(document);
    const char *first = target.path;
    target.path = inside("again.onnx");
    status = gantry_model_optimize(runtime, first, options, &target, NULL, &error);
    cr_assert_eq(status, GANTRY_OK, "status %d: %s", status, error.message);
    char command[400];
    snprintf(command, sizeof command, "cmp %s %s", first, target.path);
    cr_assert_eq(system(command), 0);
    target.path = first;
}

static json_int_t number(const char *part, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(document, part), key));
}

static json_int_t operators(const char *part, const char *op_type)
{
    return json_integer_value(
        json_object_get(json_object_get(json_object_get(document, part), "operators"), op_type));
}

static json_int_t rule(const char *name, const char *key)
{
    size_t index;
    json_t *row;
    json_array_foreach(json_object_get(document, "rules"), index,
                       row) if (strcmp(json_string_value(json_object_get(row, "rule")), name) ==
                                0) return json_integer_value(json_object_get(row, key));
    return 0;
}

static json_int_t skipped(const char *name, const char *guard)
{
    size_t index;
    json_t *row;
    json_array_foreach(
        json_object_get(document, "rules"), index,
        row) if (strcmp(json_string_value(json_object_get(row, "rule")), name) ==
                 0) return json_integer_value(json_object_get(json_object_get(row, "skipped"), guard));
    return 0;
}

static void put_node(wire *graph, const char *op, const char *name, const char *inputs, const char *outputs)
{
    wire_message(graph, GRAPH_NODE, onnx_node(op, name, inputs, outputs));
}

static void put_ints(wire *graph, const char *name, int64_t a, int64_t b)
{
    const int64_t values[] = {a, b}, dims[] = {2};
    wire_message(graph, GRAPH_INITIALIZER, onnx_raw_tensor(name, SMALL_I64, 1, dims, values, sizeof values));
}

static void put_matrix(wire *graph, const char *name, int type, int64_t rows, int64_t columns, size_t bytes)
{
    static const uint8_t zeros[1 << 20];
    const int64_t dims[] = {rows, columns};
    cr_assert_leq(bytes, sizeof zeros);
    wire_message(graph, GRAPH_INITIALIZER, onnx_raw_tensor(name, type, 2, dims, zeros, bytes));
}

/* ---- growth ---------------------------------------------------------------------------------- */

/* y = x + ones(rows, 100), said in 16 bytes. */
static wire constant_of_shape(int64_t rows)
{
    wire g = small_graph("g");
    small_input(&g, "x", SMALL_F32, 2, rows, 100);
    small_output(&g, "y", SMALL_F32, 2, rows, 100);
    put_ints(&g, "shape", rows, 100);
    put_node(&g, "ConstantOfShape", "zeros", "shape", "z");
    put_node(&g, "Exp", "exp", "z", "ones");
    put_node(&g, "Add", "add", "x,ones", "y");
    return g;
}

Test(optimize, small_results_are_folded)
{
    optimize(constant_of_shape(10));
    cr_assert_eq(number("source", "nodes"), 3);
    cr_assert_eq(number("target", "nodes"), 1);
    cr_assert_eq(rule("fold", "nodes_removed"), 2);
    cr_assert_eq(number("target", "initializer_bytes"), 4000);
}

Test(optimize, large_results_stay_nodes)
{
    optimize(constant_of_shape(1000));
    cr_assert_eq(number("target", "nodes"), 3);
    cr_assert_eq(number("target", "initializer_bytes"), 16);
    cr_assert_eq(skipped("fold", "file_growth"), 2);
    cr_assert_lt(number("target", "bytes"), 1000);
}

Test(optimize, the_limit_of_growth_can_be_set)
{
    target.growth_limit_bytes = 1000000;
    optimize(constant_of_shape(1000));
    cr_assert_eq(number("target", "nodes"), 1);
    cr_assert_eq(number("target", "initializer_bytes"), 400000);
}

/* What is large only on the way is computed all the same. */
Test(optimize, a_large_value_on_the_way_to_a_small_one_is_folded)
{
    const int64_t axes[] = {0, 1}, dims[] = {2};
    wire g = small_graph("g");
    small_input(&g, "x", SMALL_F32, 1, 4, 0);
    small_output(&g, "y", SMALL_F32, 1, 4, 0);
    put_ints(&g, "shape", 1000, 100);
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("axes", SMALL_I64, 1, dims, axes, sizeof axes));
    put_node(&g, "ConstantOfShape", "zeros", "shape", "z");
    put_node(&g, "Exp", "exp", "z", "ones");
    wire sum = onnx_node("ReduceSum", "sum", "ones,axes", "s");
    onnx_set_int(&sum, "keepdims", 0);
    wire_message(&g, GRAPH_NODE, sum);
    put_node(&g, "Add", "add", "x,s", "y");
    optimize(g);
    cr_assert_eq(number("target", "nodes"), 1);
    cr_assert_eq(number("target", "initializer_bytes"), 4);
}

/* A result whose size only its data says is weighed when it is there: all of 100000 positions, 16 bytes each.
 */
Test(optimize, a_large_result_of_unknown_size_stays)
{
    wire g = small_graph("g");
    small_input(&g, "x", SMALL_I64, 2, 2, 1);
    small_output(&g, "y", SMALL_I64, 2, 2, -1);
    put_ints(&g, "shape", 1000, 100);
    put_node(&g, "ConstantOfShape", "zeros", "shape", "z");
    put_node(&g, "Exp", "exp", "z", "ones");
    put_node(&g, "NonZero", "where", "ones", "w");
    put_node(&g, "Add", "add", "x,w", "y");
    optimize(g);
    cr_assert_eq(number("target", "nodes"), 4);
    cr_assert_lt(number("target", "bytes"), 2000);
}

/* Weights kept as bytes stay bytes. */
Test(optimize, casts_of_weights_stay)
{
    wire g = small_graph("g"), cast = onnx_node("Cast", "cast", "w", "wide");
    small_input(&g, "x", SMALL_F32, 2, 4, 400);
    small_output(&g, "y", SMALL_F32, 2, 4, 400);
    put_matrix(&g, "w", GANTRY_INT8, 400, 400, 160000);
    onnx_set_int(&cast, "to", GANTRY_FLOAT32);
    wire_message(&g, GRAPH_NODE, cast);
    put_node(&g, "MatMul", "product", "x,wide", "y");
    optimize(g);
    cr_assert_eq(operators("target", "Cast"), 1);
    cr_assert_eq(number("target", "initializer_bytes"), 160000);
}

static wire transposed_weight(bool shared)
{
    wire g = small_graph("g");
    small_input(&g, "x", SMALL_F32, 2, 4, 400);
    small_output(&g, "y", SMALL_F32, 2, 4, 400);
    put_matrix(&g, "w", SMALL_F32, 400, 400, 640000);
    put_node(&g, "Transpose", "turn", "w", "t");
    put_node(&g, "MatMul", "product", "x,t", shared ? "p" : "y");
    if (shared)
        put_node(&g, "MatMul", "other", "p,w", "y");
    return g;
}

Test(optimize, a_weight_that_only_its_transpose_reads_is_turned)
{
    optimize(transposed_weight(false));
    cr_assert_eq(number("target", "nodes"), 1);
    cr_assert_eq(number("target", "initializer_bytes"), 640000);
}

Test(optimize, a_weight_that_others_read_is_not_written_twice)
{
    optimize(transposed_weight(true));
    cr_assert_eq(operators("target", "Transpose"), 1);
    cr_assert_eq(number("target", "initializer_bytes"), 640000);
}

/* ---- options --------------------------------------------------------------------------------- */

/* Two nodes that do nothing, then Abs. */
static wire idle_nodes(void)
{
    wire g = small_graph("g");
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    put_node(&g, "Identity", "first", "x", "a");
    put_node(&g, "Dropout", "second", "a", "b");
    put_node(&g, "Abs", "abs", "b", "y");
    return g;
}

Test(optimize, every_node_says_what_it_was_made_from)
{
    optimize(idle_nodes());
    const json_t *nodes = json_object_get(document, "nodes"), *removed = json_object_get(document, "removed");
    cr_assert_eq(json_array_size(nodes), 1);
    const json_t *sources = json_object_get(json_array_get(nodes, 0), "sources");
    cr_assert_eq(json_array_size(sources), 1);
    cr_assert_str_eq(json_string_value(json_array_get(sources, 0)), "abs");
    cr_assert_eq(json_array_size(removed), 2);
    cr_assert_str_eq(json_string_value(json_object_get(json_array_get(removed, 0), "by")), "identity");
}

Test(optimize, rewrites_are_switched_off_by_name)
{
    set("rewrites.identity", "off");
    optimize(idle_nodes());
    cr_assert_eq(number("target", "nodes"), 3);
    cr_assert_eq(rule("identity", "applied"), 0);
}

Test(optimize, all_rewrites_are_switched_off)
{
    set("rewrites", "off");
    optimize(constant_of_shape(10));
    cr_assert_eq(number("target", "nodes"), 3);
    cr_assert_eq(json_array_size(json_object_get(document, "rules")), 0);
}

Test(optimize, the_account_is_a_text_too)
{
    const char *text;
    optimize(idle_nodes());
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_TEXT, &text, NULL, &error), GANTRY_OK);
    static const char *const wanted[] = {"in.onnx -> ", "before", "Identity", "Dropout", "identity"};
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
        cr_assert(strstr(text, wanted[k]), "%s is not in:\n%s", wanted[k], text);
}

static void assert_input_extent(int64_t extent)
{
    gantry_session *session;
    gantry_value_info info = {.struct_bytes = sizeof info};
    cr_assert_eq(gantry_session_create_from_file(runtime, target.path, NULL, &session, NULL, &error),
                 GANTRY_OK, "%s", error.message);
    cr_assert_eq(gantry_session_input(session, 0, &info, &error), GANTRY_OK);
    cr_assert_eq(info.dims[0], extent);
    cr_assert_eq(gantry_session_output(session, 0, &info, &error), GANTRY_OK);
    cr_assert_eq(info.dims[0], extent);
    cr_assert_eq(gantry_session_destroy(&session, &error), GANTRY_OK);
}

Test(optimize, a_shape_fixes_extents)
{
    set("shape.x", "5,?");
    optimize(idle_nodes());
    assert_input_extent(5);
}

Test(optimize, a_dim_is_fixed_by_name)
{
    set("dim.n", "7");
    cr_assert_eq(try_optimize(idle_nodes()), GANTRY_OK, "%s", error.message);
    assert_input_extent(7);
}

Test(optimize, a_dim_is_fixed_by_position)
{
    set("dim.x[0]", "7");
    optimize(idle_nodes());
    assert_input_extent(7);
}

Test(optimize, names_of_open_extents_stay)
{
    optimize(idle_nodes());
    assert_input_extent(-1);
}

static void assert_refused(gantry_status wanted, const char *mentions)
{
    gantry_status status = try_optimize(idle_nodes());
    cr_assert_eq(status, wanted, "status %d: %s", status, error.message);
    cr_assert(strstr(error.message, mentions), "'%s' is not in: %s", mentions, error.message);
    cr_assert_null(report);
    cr_assert_not(is_there("out.onnx"));
}

Test(optimize, a_shape_that_does_not_fit_is_refused)
{
    set("shape.x", "5,6");
    assert_refused(GANTRY_INVALID_ARGUMENT, "extent 4 on axis 1");
}

Test(optimize, a_shape_of_another_rank_is_refused)
{
    set("shape.x", "5");
    assert_refused(GANTRY_INVALID_ARGUMENT, "1 extents");
}

Test(optimize, a_shape_for_nobody_is_refused)
{
    set("shape.z", "5");
    assert_refused(GANTRY_INVALID_ARGUMENT, "no input of that name");
}

Test(optimize, a_dim_for_nobody_is_refused)
{
    set("dim.batch", "5");
    assert_refused(GANTRY_INVALID_ARGUMENT, "'batch'");
}

Test(optimize, a_session_takes_fixed_shapes_too)
{
    gantry_session *session;
    gantry_value_info info = {.struct_bytes = sizeof info};
    set("shape.x", "3,4");
    put_model(small_model(idle_nodes()));
    cr_assert_eq(gantry_session_create_from_file(runtime, inside("in.onnx"), options, &session, NULL, &error),
                 GANTRY_OK, "%s", error.message);
    cr_assert_eq(gantry_session_input(session, 0, &info, &error), GANTRY_OK);
    cr_assert_eq(info.dims[0], 3);
    cr_assert_eq(gantry_session_destroy(&session, &error), GANTRY_OK);
}

/* ---- bad use --------------------------------------------------------------------------------- */

Test(optimize, arguments_are_checked)
{
    put_model(small_model(idle_nodes()));
    const char *in = inside("in.onnx");
    cr_assert_eq(gantry_model_optimize(NULL, in, NULL, &target, NULL, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_model_optimize(runtime, NULL, NULL, &target, NULL, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_model_optimize(runtime, in, NULL, NULL, NULL, &error), GANTRY_INVALID_ARGUMENT);
    gantry_optimize_target bad = target;
    bad.struct_bytes = 0;
    cr_assert_eq(gantry_model_optimize(runtime, in, NULL, &bad, NULL, &error), GANTRY_INVALID_ARGUMENT);
    bad = target;
    bad.path = "";
    cr_assert_eq(gantry_model_optimize(runtime, in, NULL, &bad, NULL, &error), GANTRY_INVALID_ARGUMENT);
    bad.path = in;
    cr_assert_eq(gantry_model_optimize(runtime, in, NULL, &bad, NULL, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "read from"), "%s", error.message);
    cr_assert_eq(gantry_model_optimize(runtime, in, NULL, &target, NULL, &error), GANTRY_OK, "%s",
                 error.message);
}

Test(optimize, a_broken_model_leaves_no_file)
{
    wire g = idle_nodes();
    put_node(&g, "Abs", "late", "nobody", "z");
    cr_assert_eq(try_optimize(g), GANTRY_MODEL_GRAPH);
    cr_assert_null(report);
    cr_assert_not(is_there("out.onnx"));
}

Test(optimize, constants_go_beside_the_model)
{
    target.external_data = "w.bin";
    put_model(small_model(transposed_weight(true)));
    cr_assert_eq(gantry_model_optimize(runtime, inside("in.onnx"), options, &target, NULL, &error), GANTRY_OK,
                 "%s", error.message);
    struct stat about;
    cr_assert_eq(stat(inside("w.bin"), &about), 0);
    cr_assert_eq(about.st_size, 640000);
    cr_assert_eq(stat(target.path, &about), 0);
    cr_assert_lt(about.st_size, 1000);
}

/* ---- memory ---------------------------------------------------------------------------------- */

Test(optimize, every_allocation_may_fail)
{
    broken_allocator memory = {0};
    gantry_allocator hooks = broken_hooks(&memory);
    gantry_runtime *fragile;
    put_model(small_model(constant_of_shape(10)));
    cr_assert_eq(gantry_runtime_create(&hooks, &fragile, &error), GANTRY_OK);
    long blocks = memory.blocks;
    gantry_status status = GANTRY_RESOURCE;
    for (long n = 0; status != GANTRY_OK; n++) {
        unlink(target.path);
        memory.fails_at = memory.calls + 1 + n;
        status = gantry_model_optimize(fragile, inside("in.onnx"), options, &target, &report, &error);
        bool reached = memory.calls >= memory.fails_at;
        memory.fails_at = 0;
        gantry_report_destroy(&report);
        cr_assert_eq(memory.blocks, blocks, "allocation %ld: %ld blocks are left", n, memory.blocks - blocks);
        cr_assert(status == GANTRY_OK || (status == GANTRY_RESOURCE && access(target.path, F_OK) != 0),
                  "allocation %ld: status %d: %s", n, status, error.message);
        if (status == GANTRY_OK && reached)
            status = GANTRY_RESOURCE; /* it did without */
        cr_assert_lt(n, 20000);
    }
    cr_assert_eq(gantry_runtime_destroy(&fragile, &error), GANTRY_OK);
}
