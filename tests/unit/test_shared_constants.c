/* Sessions of one runtime share the constants that the CPU provider packs or copies: which are found to be
 * the same, what the report says, and that none outlives its users. */
#include "../support/heavy_model.h"
#include "../support/report_reader.h"
#include "../support/test_folder.h"
#include "core/session.h"

#include <fcntl.h>
#include <sys/stat.h>

static gantry_error error = GANTRY_ERROR_INIT;

static small_session open_beside(gantry_runtime *runtime, wire model, const char *options)
{
    small_session s = {.runtime = runtime, .err = GANTRY_ERROR_INIT};
    small_create(&s, model, options);
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    return s;
}

static small_session open_file(gantry_runtime *runtime, const char *path)
{
    small_session s = {.runtime = runtime, .err = GANTRY_ERROR_INIT};
    cr_assert_eq(gantry_session_create_from_file(runtime, path, NULL, &s.session, NULL, &s.err), GANTRY_OK,
                 "%s", s.err.message);
    cr_assert_eq(gantry_run_create(s.session, &s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    return s;
}

static void close_beside(small_session *s)
{
    s->runtime = NULL;
    small_close(s);
}

static gantry_runtime *new_runtime(void)
{
    gantry_runtime *runtime = NULL;
    cr_assert_eq(gantry_runtime_create(NULL, &runtime, &error), GANTRY_OK, "%s", error.message);
    return runtime;
}

static gt_packed_total total_of(gantry_runtime *runtime)
{
    return gt_packed_count(runtime, &runtime->host);
}

static void expect_same(small_session *s, const float *expected)
{
    float *y = heavy_run(s);
    cr_assert(y, "%s", s->err.message);
    cr_assert(heavy_equal(y, expected), "results differ");
    free(y);
}

/* The results of a session that shares with nobody. */
static float *results_alone(int seed, const char *options)
{
    small_session s = small_open(heavy_model(seed), options);
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    float *y = heavy_run(&s);
    cr_assert(y, "%s", s.err.message);
    small_close(&s);
    return y;
}

/* ---- who shares ------------------------------------------------------------------------------ */

static void two_sessions(bool first_goes_first)
{
    float *expected = results_alone(0, "threads=1");
    gantry_runtime *runtime = new_runtime();
    small_session a = open_beside(runtime, heavy_model(0), "threads=1");
    expect_same(&a, expected);
    gt_packed_total one = total_of(runtime);
    cr_assert_geq(one.forms, HEAVY_FORMS);
    cr_assert_eq(one.users, one.forms);
    small_session b = open_beside(runtime, heavy_model(0), "threads=1");
    expect_same(&b, expected);
    gt_packed_total two = total_of(runtime);
    cr_assert_eq(two.forms, one.forms, "nothing is packed again");
    cr_assert_eq(two.bytes, one.bytes);
    cr_assert_eq(two.users, 2 * one.users);
    small_session *early = first_goes_first ? &a : &b, *late = first_goes_first ? &b : &a;
    close_beside(early);
    cr_assert_eq(total_of(runtime).users, one.users);
    expect_same(late, expected);
    close_beside(late);
    cr_assert_eq(total_of(runtime).forms, 0, "none outlives its users");
    gantry_runtime_destroy(&runtime, NULL);
    free(expected);
}

Test(shared_constants, two_sessions_share_and_the_first_goes_first)
{
    two_sessions(true);
}

Test(shared_constants, two_sessions_share_and_the_second_goes_first)
{
    two_sessions(false);
}

Test(shared_constants, the_report_counts_them_once)
{
    gantry_runtime *runtime = new_runtime();
    small_session a = open_beside(runtime, heavy_model(0), ""), b = open_beside(runtime, heavy_model(0), "");
    free(heavy_run(&a));
    free(heavy_run(&b));
    json_t *document = report_of(&b), *row = at(document, "memory.packed.0");
    gt_packed_total total = total_of(runtime);
    cr_assert_str_eq(string(row, "plugin"), "cpu");
    cr_assert_eq(number(row, "forms"), (double)total.forms);
    cr_assert_eq(number(row, "users"), 2 * (double)total.forms);
    cr_assert_eq(number(row, "bytes"), (double)total.bytes);
    cr_assert_lt(number(row_of(document, "memory.classes", "class", "weights"), "bytes"), 8192,
                 "what is shared is in no class");
    cr_assert_geq(number(document, "memory.provider_bytes"), (double)total.bytes, "memory_limit counts it");
    json_decref(document);
    close_beside(&a);
    close_beside(&b);
    gantry_runtime_destroy(&runtime, NULL);
}

/* Other threads or options may want another form; what is the same is shared, the rest is not mixed up. */
static void beside_another(const char *options, bool other_form)
{
    float *expected = results_alone(0, "threads=2"), *others = results_alone(0, options);
    gantry_runtime *runtime = new_runtime();
    small_session a = open_beside(runtime, heavy_model(0), "threads=2");
    expect_same(&a, expected);
    uint64_t forms = total_of(runtime).forms;
    small_session b = open_beside(runtime, heavy_model(0), options);
    expect_same(&b, others);
    if (other_form)
        cr_assert_gt(total_of(runtime).forms, forms, "%s has a form of its own", options);
    expect_same(&a, expected);
    close_beside(&a);
    expect_same(&b, others);
    close_beside(&b);
    cr_assert_eq(total_of(runtime).forms, 0);
    gantry_runtime_destroy(&runtime, NULL);
    free(expected);
    free(others);
}

Test(shared_constants, sessions_with_other_threads)
{
    beside_another("threads=1", false);
}

Test(shared_constants, sessions_that_compute_exactly)
{
    beside_another("threads=2;exact=on", true);
}

Test(shared_constants, sessions_without_a_type)
{
    beside_another("threads=2;cpu.disable_types=float64", false);
}

Test(shared_constants, other_weights_of_the_same_sizes)
{
    float *expected = results_alone(0, ""), *others = results_alone(1, "");
    gantry_runtime *runtime = new_runtime();
    small_session a = open_beside(runtime, heavy_model(0), ""), b = open_beside(runtime, heavy_model(1), "");
    expect_same(&a, expected);
    expect_same(&b, others);
    gt_packed_total total = total_of(runtime);
    cr_assert_eq(total.users, total.forms, "nothing is shared");
    cr_assert_not(heavy_equal(expected, others));
    close_beside(&a);
    close_beside(&b);
    gantry_runtime_destroy(&runtime, NULL);
    free(expected);
    free(others);
}

/* ---- equal bytes, read in another way -------------------------------------------------------- */

/* y = x w or x w^T, w of 64 by 64. */
static wire square(bool transposed)
{
    const int64_t dims[2] = {64, 64};
    wire g = small_graph("square"), node = onnx_node("Gemm", "gemm", "x,w", "y");
    heavy_weights(&g, "w", 2, dims, 3);
    onnx_set_int(&node, "transB", transposed);
    wire_message(&g, GRAPH_NODE, node);
    small_input(&g, "x", SMALL_F32, 2, 1, 64);
    small_output(&g, "y", SMALL_F32, 2, 1, 64);
    return small_model(g);
}

Test(shared_constants, a_matrix_and_its_transpose_are_two_forms)
{
    gantry_runtime *runtime = new_runtime();
    small_session sessions[2];
    float x[64] = {0};
    x[1] = 1;
    for (int t = 0; t < 2; t++) {
        sessions[t] = open_beside(runtime, square(t), "");
        cr_assert_eq(small_bind(&sessions[t], 0, SMALL_F32, 2, 1, 64, x), GANTRY_OK);
        cr_assert_eq(gantry_run_execute(sessions[t].run, &error), GANTRY_OK, "%s", error.message);
        gantry_tensor y = small_result(&sessions[t], 0);
        for (int n = 0; n < 64; n++) {
            int element = t ? n * 64 + 1 : 64 + n;
            cr_assert_eq(small_floats_of(&y)[n], (float)((element * 7 + 9) % 5 - 2), "%d, column %d", t, n);
        }
    }
    cr_assert_eq(total_of(runtime).users, total_of(runtime).forms);
    close_beside(&sessions[0]);
    close_beside(&sessions[1]);
    gantry_runtime_destroy(&runtime, NULL);
}

/* y = x + (w - zero) * scale, computed when the session is created. */
static wire dequantized(float scale)
{
    static int8_t bytes[100 * 64];
    const int64_t dims[2] = {100, 64};
    for (int k = 0; k < 100 * 64; k++)
        bytes[k] = (int8_t)(k % 100 - 50);
    wire g = small_graph("dequantized");
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", GANTRY_INT8, 2, dims, bytes, sizeof bytes));
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("scale", SMALL_F32, 0, NULL, &scale, sizeof scale));
    wire_message(&g, GRAPH_NODE, onnx_node("DequantizeLinear", "dequantize", "w,scale", "d"));
    wire_message(&g, GRAPH_NODE, onnx_node("MatMul", "product", "x,d", "y"));
    small_input(&g, "x", SMALL_F32, 2, 1, 100);
    small_output(&g, "y", SMALL_F32, 2, 1, 64);
    return small_model(g);
}

Test(shared_constants, dequantized_weights_are_shared_by_their_scale)
{
    gantry_runtime *runtime = new_runtime();
    const float scales[3] = {0.5f, 0.5f, 2};
    small_session sessions[3];
    uint64_t forms[3];
    float x[100] = {1};
    for (int k = 0; k < 3; k++) {
        sessions[k] = open_beside(runtime, dequantized(scales[k]), "");
        cr_assert_eq(small_bind(&sessions[k], 0, SMALL_F32, 2, 1, 100, x), GANTRY_OK);
        cr_assert_eq(gantry_run_execute(sessions[k].run, &error), GANTRY_OK, "%s", error.message);
        gantry_tensor y = small_result(&sessions[k], 0);
        for (int n = 0; n < 64; n++)
            cr_assert_eq(small_floats_of(&y)[n], (float)(n - 50) * scales[k]);
        forms[k] = total_of(runtime).forms;
    }
    cr_assert_gt(forms[0], 0);
    cr_assert_eq(forms[1], forms[0]);
    cr_assert_eq(forms[2], 2 * forms[0], "another scale is another constant");
    for (int k = 0; k < 3; k++)
        close_beside(&sessions[k]);
    cr_assert_eq(total_of(runtime).forms, 0);
    gantry_runtime_destroy(&runtime, NULL);
}

/* ---- files ----------------------------------------------------------------------------------- */

static const char *put_model(const char *name, int seed)
{
    wire model = heavy_model(seed);
    put_file(inside(name), model.data, model.size);
    wire_free(&model);
    return inside(name);
}

static uint32_t hashed_count(const gantry_session *session)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < session->model->constants.count; k++)
        count += session->model->constants.data[k].hashed;
    return count;
}

/* The second version lies in the same file, of the same size and with the times of the first. */
static void edit(const char *path, int seed)
{
    struct stat s;
    cr_assert_eq(stat(path, &s), 0);
    wire model = heavy_model(seed);
    FILE *file = fopen(path, "r+b");
    cr_assert(file);
    cr_assert_eq((size_t)s.st_size, model.size);
    cr_assert_eq(fwrite(model.data, 1, model.size, file), model.size);
    cr_assert_eq(fclose(file), 0);
    const struct timespec times[2] = {s.st_atim, s.st_mtim};
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    wire_free(&model);
}

Test(shared_constants, a_file_is_known_without_being_read, .init = test_folder_open,
     .fini = test_folder_close)
{
    float *expected = results_alone(0, ""), *others = results_alone(1, "");
    gantry_runtime *runtime = new_runtime();
    const char *path = put_model("heavy.onnx", 0);
    small_session fresh = open_file(runtime, path);
    cr_assert_gt(hashed_count(fresh.session), 0, "a file this young is known by its bytes");
    close_beside(&fresh);
    usleep(2200000);
    small_session a = open_file(runtime, path), b = open_file(runtime, path);
    expect_same(&a, expected);
    expect_same(&b, expected);
    gt_packed_total total = total_of(runtime);
    cr_assert_eq(hashed_count(a.session) + hashed_count(b.session), 0);
    cr_assert_geq(total.forms, HEAVY_FORMS);
    cr_assert_eq(total.users, 2 * total.forms);
    edit(path, 1);
    small_session c = open_file(runtime, path);
    expect_same(&c, others);
    cr_assert_eq(total_of(runtime).forms, 2 * total.forms, "an edited file has its own");
    expect_same(&a, expected);
    close_beside(&a);
    close_beside(&b);
    expect_same(&c, others);
    close_beside(&c);
    gantry_runtime_destroy(&runtime, NULL);
    free(expected);
    free(others);
}

Test(shared_constants, a_file_and_memory_with_the_same_bytes, .init = test_folder_open,
     .fini = test_folder_close)
{
    float *expected = results_alone(0, "");
    gantry_runtime *runtime = new_runtime();
    small_session a = open_beside(runtime, heavy_model(0), "");
    small_session b = open_file(runtime, put_model("heavy.onnx", 0));
    expect_same(&a, expected);
    expect_same(&b, expected);
    cr_assert_eq(total_of(runtime).users, 2 * total_of(runtime).forms);
    close_beside(&a);
    expect_same(&b, expected);
    close_beside(&b);
    cr_assert_eq(total_of(runtime).forms, 0);
    gantry_runtime_destroy(&runtime, NULL);
    free(expected);
}
