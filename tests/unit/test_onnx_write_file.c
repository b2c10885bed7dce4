/* Writing ONNX: external data, limits, what fails on the way, and the files. */
#include "../support/test_folder.h"
#include "write_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

TestSuite(onnx_write_data, .init = begin, .fini = end);

/* ---- external data and limits ---------------------------------------------------------------- */

static float large[512];

static wire large_model(void)
{
    const int64_t dims[] = {512}, few[] = {2};
    for (size_t k = 0; k < 512; k++)
        large[k] = (float)k;
    wire g = small_graph();
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("small", 1, 1, few, large, 8));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("first", 1, 1, dims, large, sizeof large));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("second", 1, 1, dims, large, sizeof large));
    wire_message(&g, GRAPH_NODE, foreign_node("n", "x,small,first,second", "y"));
    return foreign_model(g);
}

Test(onnx_write_data, large_constants_go_outside)
{
    read_model(large_model());
    infer();
    wire file = {0}, external = {0};
    gt_write_result result;
    gt_write_options options = {.version = "9.9", .external_name = "w.bin"};
    GOOD(write_with(&options, &file, &external, &result));
    cr_assert_eq(result.external_bytes, 2 * sizeof large);
    cr_assert_eq(external.size, 2 * sizeof large);
    cr_assert_arr_eq(external.data, large, sizeof large);
    cr_assert_arr_eq(external.data + sizeof large, large, sizeof large);
    cr_assert_lt(file.size, 600);
    cr_assert(has_text(file, "w.bin") && has_text(file, "2048"));
    wire_free(&file);
    wire_free(&external);
}

Test(onnx_write_data, places_outside_are_aligned)
{
    read_model(large_model());
    model->constants.data[value_of(model->root, "first")->constant].bytes = 2044;
    infer();
    wire file = {0}, external = {0};
    gt_write_result result;
    gt_write_options options = {.version = "9.9", .external_name = "w.bin"};
    GOOD(write_with(&options, &file, &external, &result));
    cr_assert_eq(result.external_bytes, 2048 + sizeof large);
    cr_assert_arr_eq(external.data + 2048, large, sizeof large);
    wire_free(&file);
    wire_free(&external);
}

Test(onnx_write_data, a_model_above_the_limit_says_what_to_do)
{
    read_model(large_model());
    infer();
    wire file = {0}, external = {0};
    gt_write_result result;
    gt_write_options options = {.version = "9.9", .max_bytes = 2000};
    cr_assert_eq(write_with(&options, &file, NULL, &result), GANTRY_RESOURCE);
    cr_assert(strstr(error.message, "external data") && strstr(error.message, "2000"), "%s", error.message);
    cr_assert_eq(file.size, 0);
    options.external_name = "w.bin";
    GOOD(write_with(&options, &file, &external, &result));
    wire_free(&file);
    wire_free(&external);
}

static gantry_status refuse(void *self, const void *bytes, size_t count, gantry_error *err)
{
    return gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_LOAD, NULL, "the disk is full");
}

Test(onnx_write_data, a_sink_that_fails_ends_the_writing)
{
    read_model(large_model());
    infer();
    gt_write_sink sink = {NULL, refuse};
    gt_write_result result;
    gt_write_options options = {.version = "9.9"};
    cr_assert_eq(gt_onnx_write(model, &options, &sink, NULL, &result, &error), GANTRY_RESOURCE);
    cr_assert_str_eq(error.message, "the disk is full");
}

Test(onnx_write_data, every_allocation_may_fail)
{
    read_model(large_model());
    infer();
    gantry_status status = GANTRY_RESOURCE;
    for (int64_t n = 0; status != GANTRY_OK; n++) {
        wire file = {0}, external = {0};
        gt_write_result result;
        gt_write_options options = {.version = "9.9", .external_name = "w.bin"};
        atomic_store(&allocator.fail_after, n);
        status = write_with(&options, &file, &external, &result);
        atomic_store(&allocator.fail_after, -1);
        cr_assert(status == GANTRY_OK || status == GANTRY_RESOURCE, "status %d", status);
        wire_free(&file);
        wire_free(&external);
        cr_assert_lt(n, 10000);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static void begin_files(void)
{
    begin();
    test_folder_open();
    wire m = large_model();
    put_file(inside("in.onnx"), m.data, m.size);
    wire_free(&m);
    GOOD(gt_onnx_read_file(&allocator, inside("in.onnx"), NULL, &model, &error));
    infer();
}

static void end_files(void)
{
    static const char *const names[] = {"in.onnx", "out.onnx", "w.bin"};
    test_folder_expect_only(sizeof names / sizeof *names, names);
    test_folder_close();
    end();
}

TestSuite(onnx_write_file, .init = begin_files, .fini = end_files);

Test(onnx_write_file, model_and_data_are_found_again)
{
    gt_write_result result;
    gt_write_options options = {.version = "9.9", .external_name = "w.bin"};
    GOOD(gt_onnx_write_file(model, inside("out.onnx"), &options, &result, &error));
    gt_model_destroy(&model);
    GOOD(gt_onnx_read_file(&allocator, inside("out.onnx"), NULL, &model, &error));
    cr_assert_arr_eq(bytes_of(value_of(model->root, "second")), large, sizeof large);
    cr_assert_eq(model->files.count, 2);
    cr_assert_arr_eq(bytes_of(value_of(model->root, "small")), large, 8);
}

Test(onnx_write_file, what_was_there_is_replaced)
{
    put_file(inside("out.onnx"), "old", 3);
    gt_write_result result;
    gt_write_options options = {.version = "9.9"};
    GOOD(gt_onnx_write_file(model, inside("out.onnx"), &options, &result, &error));
    struct stat about;
    cr_assert_eq(stat(inside("out.onnx"), &about), 0);
    cr_assert_eq((uint64_t)about.st_size, result.model_bytes);
    cr_assert_eq(about.st_mode & 0400, 0400);
}

Test(onnx_write_file, the_file_that_is_read_is_not_overwritten)
{
    gt_write_result result;
    gt_write_options options = {.version = "9.9"};
    cr_assert_eq(symlink(inside("in.onnx"), inside("w.bin")), 0);
    cr_assert_eq(gt_onnx_write_file(model, inside("in.onnx"), &options, &result, &error),
                 GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gt_onnx_write_file(model, inside("w.bin"), &options, &result, &error),
                 GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "read from"), "%s", error.message);
    options.external_name = "in.onnx";
    cr_assert_eq(gt_onnx_write_file(model, inside("out.onnx"), &options, &result, &error),
                 GANTRY_INVALID_ARGUMENT);
    cr_assert_not(is_there("out.onnx"));
}

Test(onnx_write_file, bad_places_are_refused_and_leave_nothing)
{
    gt_write_result result;
    gt_write_options options = {.version = "9.9", .external_name = "../w.bin"};
    cr_assert_eq(gt_onnx_write_file(model, inside("out.onnx"), &options, &result, &error),
                 GANTRY_INVALID_ARGUMENT);
    options.external_name = "out.onnx";
    cr_assert_eq(gt_onnx_write_file(model, inside("out.onnx"), &options, &result, &error),
                 GANTRY_INVALID_ARGUMENT);
    options.external_name = "w.bin";
    options.max_bytes = 100;
    cr_assert_eq(gt_onnx_write_file(model, inside("out.onnx"), &options, &result, &error), GANTRY_RESOURCE);
    options.max_bytes = 0;
    cr_assert_eq(gt_onnx_write_file(model, inside("no/out.onnx"), &options, &result, &error),
                 GANTRY_RESOURCE);
    cr_assert(strstr(error.message, "no/"), "%s", error.message);
    cr_assert_eq(gt_onnx_write_file(model, folder, &options, &result, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert(!is_there("out.onnx") && !is_there("w.bin"));
}
