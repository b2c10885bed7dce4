/* External data: where a tensor's file may lie, how errors say what is wrong, and that files are not needed
 * afterwards. */
#include "../support/onnx_writer.h"
#include "../support/test_folder.h"
#include "graph/graph.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* outside.bin lies above model/, where the model is. */
static char model_folder[80];
static gt_allocator allocator;
static gt_model *model;
static gantry_error error;

static const float weights[4] = {1, 2, 3, 4};

/* The path of a file in the model's folder. */
static const char *beside(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "model/%s", name);
    return inside(path);
}

static void begin(void)
{
    test_folder_open();
    snprintf(model_folder, sizeof model_folder, "%s", inside("model"));
    cr_assert_eq(mkdir(model_folder, 0700), 0);
    cr_assert_eq(mkdir(beside("weights"), 0700), 0);
    gt_allocator_init(&allocator, NULL);
    error = (gantry_error)GANTRY_ERROR_INIT;
    model = NULL;
}

static void end(void)
{
    gt_model_destroy(&model);
    test_folder_close();
}

TestSuite(external, .init = begin, .fini = end);

static wire model_of(wire tensor)
{
    const int64_t dims[] = {4};
    wire g = {0};
    wire_message(&g, GRAPH_OUTPUT, onnx_value("w0", 1, 1, dims));
    wire_message(&g, GRAPH_INITIALIZER, tensor);
    return onnx_model(g);
}

/* Reads a model whose tensor w0 (float32[4]) is at location. */
static gantry_status read_at(const char *location, const char *offset, const char *length)
{
    const int64_t dims[] = {4};
    wire m = model_of(onnx_external_tensor("w0", 1, 1, dims, location, offset, length));
    put_file(beside("model.onnx"), m.data, m.size);
    wire_free(&m);
    gt_model_destroy(&model);
    return gt_onnx_read_file(&allocator, beside("model.onnx"), NULL, &model, &error);
}

static void assert_read(const char *location, const char *offset, const char *length)
{
    cr_assert_eq(read_at(location, offset, length), GANTRY_OK, "%s", error.message);
    const void *data;
    cr_assert_eq(gt_constant_data(model, 0, &data, &error), GANTRY_OK);
    cr_assert_arr_eq(data, weights, sizeof weights);
}

static void assert_refused(const char *location, const char *offset, const char *length, const char *mentions)
{
    cr_assert_eq(read_at(location, offset, length), GANTRY_DATA, "%s", error.message);
    cr_assert(strstr(error.message, "'w0'"), "%s", error.message);
    cr_assert(strstr(error.message, mentions), "'%s' is not in: %s", mentions, error.message);
    cr_assert_null(model);
}

Test(external, data_are_found_beside_the_model)
{
    uint8_t padded[16 + sizeof weights];
    memset(padded, 0xee, sizeof padded);
    memcpy(padded + 16, weights, sizeof weights);
    put_file(beside("w.bin"), weights, sizeof weights);
    put_file(beside("weights/w.bin"), padded, sizeof padded);
    assert_read("w.bin", NULL, NULL);
    assert_read("w.bin", "0", "16");
    assert_read("weights/w.bin", "16", "16");
    assert_read("weights/w.bin", "16", NULL);
    assert_read("weights/../w.bin", NULL, NULL);
    assert_read("./w.bin", NULL, NULL);
    cr_assert_eq(chdir("/"), 0);
    assert_read("w.bin", NULL, NULL);
    cr_assert_eq(chdir(model_folder), 0);
    gt_model_destroy(&model);
    cr_assert_eq(gt_onnx_read_file(&allocator, "model.onnx", NULL, &model, &error), GANTRY_OK, "%s",
                 error.message);
}

Test(external, links_may_not_lead_outside)
{
    put_file(inside("outside.bin"), weights, sizeof weights);
    put_file(beside("weights/real.bin"), weights, sizeof weights);
    cr_assert_eq(symlink("weights/real.bin", beside("in.bin")), 0);
    cr_assert_eq(symlink("../outside.bin", beside("out.bin")), 0);
    cr_assert_eq(symlink("/dev/zero", beside("device.bin")), 0);
    cr_assert_eq(symlink("loop.bin", beside("loop.bin")), 0);
    cr_assert_eq(symlink("..", beside("up")), 0);
    assert_read("in.bin", NULL, NULL);
    assert_refused("out.bin", NULL, NULL, "outside of the model's folder");
    assert_refused("device.bin", NULL, NULL, "outside of the model's folder");
    assert_refused("up/outside.bin", NULL, NULL, "outside of the model's folder");
    assert_refused("loop.bin", NULL, NULL, "loop.bin");
    assert_refused("../outside.bin", NULL, NULL, "../outside.bin");
    assert_refused("weights/../../outside.bin", NULL, NULL, "outside of the model's folder");
    assert_refused(inside("outside.bin"), NULL, NULL, "absolute");
}

Test(external, only_regular_files_are_read)
{
    cr_assert_eq(mkfifo(beside("pipe"), 0600), 0);
    assert_refused("pipe", NULL, NULL, "not a regular file");
    assert_refused(".", NULL, NULL, "not a regular file");
    assert_refused("weights/none.bin", NULL, NULL, "model/weights/none.bin");
    assert_refused("", NULL, NULL, "location");
    assert_refused("weights\\w.bin", NULL, NULL, "'/'");
}

Test(external, ranges_are_checked_without_wrapping)
{
    put_file(beside("w.bin"), weights, sizeof weights);
    assert_refused("w.bin", "4", "16", "at offset 4 (length 16) of");
    assert_refused("w.bin", "4", "16", "which has 16 bytes");
    assert_refused("w.bin", "18446744073709551612", "16", "18446744073709551612");
    assert_refused("w.bin", "0", "12", "needs 16 bytes");
    assert_refused("w.bin", "4", NULL, "has 12");
    assert_refused("w.bin", "-8", "16", "'-8'");
    assert_refused("w.bin", "12abc", "16", "'12abc'");
    assert_refused("w.bin", "", "16", "offset ''");
    assert_refused("w.bin", "18446744073709551616", "16", "18446744073709551616");
    const int64_t dims[] = {4};
    wire tensor = onnx_external_tensor("w0", 1, 1, dims, "w.bin", NULL, NULL);
    wire_bytes(&tensor, 9, weights, sizeof weights);
    wire m = model_of(tensor);
    cr_assert_eq(gt_onnx_read_memory(&allocator, m.data, m.size, model_folder, NULL, &model, &error),
                 GANTRY_DATA);
    cr_assert(strstr(error.message, "has data here too"), "%s", error.message);
    wire_free(&m);
}

Test(external, a_model_from_memory_needs_a_base)
{
    const int64_t dims[] = {4};
    put_file(beside("w.bin"), weights, sizeof weights);
    wire m = model_of(onnx_external_tensor("w0", 1, 1, dims, "w.bin", NULL, NULL));
    cr_assert_eq(gt_onnx_read_memory(&allocator, m.data, m.size, NULL, NULL, &model, &error), GANTRY_DATA);
    cr_assert(strstr(error.message, "'w0'") && strstr(error.message, "'w.bin'") &&
                  strstr(error.message, "'base'"),
              "%s", error.message);
    cr_assert_eq(gt_onnx_read_memory(&allocator, m.data, m.size, model_folder, NULL, &model, &error),
                 GANTRY_OK, "%s", error.message);
    gt_model_destroy(&model);
    cr_assert_eq(gt_onnx_read_memory(&allocator, m.data, m.size, "/no/such/folder", NULL, &model, &error),
                 GANTRY_INVALID_ARGUMENT);
    wire_free(&m);
}

Test(external, one_file_is_opened_once_for_many_tensors)
{
    const int64_t dims[] = {2};
    wire g = {0};
    wire_message(&g, GRAPH_INITIALIZER, onnx_external_tensor("a", 1, 1, dims, "w.bin", "0", "8"));
    wire_message(&g, GRAPH_INITIALIZER, onnx_external_tensor("b", 1, 1, dims, "w.bin", "4", "8"));
    onnx_put_float(&g, GRAPH_OUTPUT, "a");
    onnx_put_float(&g, GRAPH_OUTPUT, "b");
    wire m = onnx_model(g);
    put_file(beside("w.bin"), weights, sizeof weights);
    cr_assert_eq(gt_onnx_read_memory(&allocator, m.data, m.size, model_folder, NULL, &model, &error),
                 GANTRY_OK);
    cr_assert_eq(model->files.count, 2);
    const void *data;
    cr_assert_eq(gt_constant_data(model, 1, &data, &error), GANTRY_OK);
    cr_assert_arr_eq(data, weights + 1, 8);
    wire_free(&m);
}

/* ---- after creation -------------------------------------------------------------------------- */

enum { MANY = 1 << 16 };

/* Two tensors too large to be copied at once: w0 in the model, w1 beside it. */
static void read_large(void)
{
    float *data = malloc(MANY * sizeof *data);
    for (int k = 0; k < MANY; k++)
        data[k] = (float)k;
    const int64_t dims[] = {MANY};
    wire g = {0};
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w0", 1, 1, dims, data, MANY * sizeof *data));
    wire_message(&g, GRAPH_INITIALIZER, onnx_external_tensor("w1", 1, 1, dims, "w.bin", NULL, NULL));
    wire_message(&g, GRAPH_OUTPUT, onnx_value("w0", 1, 1, dims));
    wire_message(&g, GRAPH_OUTPUT, onnx_value("w1", 1, 1, dims));
    wire m = onnx_model(g);
    put_file(beside("model.onnx"), m.data, m.size);
    put_file(beside("w.bin"), data, MANY * sizeof *data);
    wire_free(&m);
    free(data);
    cr_assert_eq(gt_onnx_read_file(&allocator, beside("model.onnx"), NULL, &model, &error), GANTRY_OK, "%s",
                 error.message);
}

static void assert_large(uint32_t constant)
{
    const void *data;
    cr_assert_eq(gt_constant_data(model, constant, &data, &error), GANTRY_OK, "%s", error.message);
    float value;
    memcpy(&value, (const uint8_t *)data + (MANY - 1) * sizeof value, sizeof value);
    cr_assert_float_eq(value, MANY - 1, 0);
}

Test(external, owned_constants_need_no_file)
{
    read_large();
    cr_assert_eq(gt_model_own_constants(model, NULL, &error), GANTRY_OK, "%s", error.message);
    cr_assert_eq(truncate(beside("model.onnx"), 0), 0);
    cr_assert_eq(truncate(beside("w.bin"), 0), 0);
    assert_large(0);
    assert_large(1);
    for (uint32_t k = 0; k < model->files.count; k++)
        cr_assert_null(model->files.data[k].map);
}

Test(external, packed_constants_are_read_again_while_the_file_is_the_same)
{
    const uint8_t packed[] = {1, 1};
    read_large();
    cr_assert_eq(gt_model_own_constants(model, packed, &error), GANTRY_OK);
    cr_assert_null(model->constants.data[0].data);
    cr_assert_null(model->constants.data[1].data);
    assert_large(0);
    assert_large(1);
    cr_assert_eq(gt_model_own_constants(model, packed, &error), GANTRY_OK);
    cr_assert_eq(truncate(beside("w.bin"), 8), 0);
    const void *data;
    cr_assert_eq(gt_constant_data(model, 1, &data, &error), GANTRY_DATA);
    cr_assert(strstr(error.message, "was changed"), "%s", error.message);
    assert_large(0);
}

Test(external, a_model_must_be_a_regular_file)
{
    cr_assert_eq(mkfifo(beside("pipe"), 0600), 0);
    cr_assert_eq(gt_onnx_read_file(&allocator, beside("pipe"), NULL, &model, &error), GANTRY_DATA);
    cr_assert_eq(gt_onnx_read_file(&allocator, model_folder, NULL, &model, &error), GANTRY_DATA);
    cr_assert_eq(gt_onnx_read_file(&allocator, beside("none.onnx"), NULL, &model, &error),
                 GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "none.onnx"), "%s", error.message);
    put_file(beside("empty.onnx"), "", 0);
    cr_assert_eq(gt_onnx_read_file(&allocator, beside("empty.onnx"), NULL, &model, &error),
                 GANTRY_MODEL_PARSE);
}
