/* The session API: creation and its report, bindings, shapes, sizes that depend on data, control flow. */
#include "../support/small_models.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static float a[32], b[32];

static void fill(void)
{
    for (int k = 0; k < 32; k++) {
        a[k] = (float)(k - 8);
        b[k] = (float)(k % 3);
    }
}

static void check_add(small_session *s, int64_t rows)
{
    gantry_tensor y = small_result(s, 0);
    cr_assert_eq(s->status, GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(y.rank, 2);
    cr_assert_eq(y.dims[0], rows);
    for (int64_t k = 0; k < rows * 4; k++)
        cr_assert_eq(small_floats_of(&y)[k], a[k] + b[k] > 0 ? a[k] + b[k] : 0);
}

Test(session, runs_and_allocates_its_output)
{
    fill();
    small_session s = small_open(small_add(3), "");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(small_bind(&s, 0, GANTRY_FLOAT32, 2, 3, 4, a), GANTRY_OK);
    cr_assert_eq(small_bind(&s, 1, GANTRY_FLOAT32, 2, 3, 4, b), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    check_add(&s, 3);
    small_close(&s);
    cr_assert_null(s.runtime);
}

Test(session, writes_into_the_callers_buffer)
{
    fill();
    float y[16] = {0};
    small_session s = small_open(small_add(3), "");
    small_bind(&s, 0, GANTRY_FLOAT32, 2, 3, 4, a);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, 3, 4, b);
    gantry_tensor out = small_tensor(GANTRY_FLOAT32, 0, NULL, y, sizeof y);
    cr_assert_eq(gantry_run_bind_output(s.run, 0, &out, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK);
    cr_assert_eq(small_result(&s, 0).buffer.handle, (void *)y);
    check_add(&s, 3);
    out.size_bytes = 40;
    gantry_run_bind_output(s.run, 0, &out, &s.err);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_INPUT_SHAPE);
    cr_assert(strstr(s.err.message, "48") && strstr(s.err.message, "40") && strstr(s.err.message, "y"), "%s",
              s.err.message);
    cr_assert_eq(gantry_run_bind_output(s.run, 0, NULL, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "the run works again after the error");
    check_add(&s, 3);
    small_close(&s);
}

Test(session, refuses_tensors_without_memory_or_dims)
{
    fill();
    small_session s = small_open(small_add(3), "");
    gantry_tensor t = small_tensor(GANTRY_FLOAT32, 2, NULL, a, sizeof a);
    cr_assert_eq(gantry_run_bind_input(s.run, 0, &t, &s.err), GANTRY_INVALID_ARGUMENT);
    t = small_tensor(GANTRY_FLOAT32, 2, (int64_t[]){3, 4}, a, sizeof a);
    t.rank = 1000;
    cr_assert_eq(gantry_run_bind_input(s.run, 0, &t, &s.err), GANTRY_INPUT_SHAPE);
    cr_assert(strstr(s.err.message, "rank 1000"), "%s", s.err.message);
    t = small_tensor(GANTRY_FLOAT32, 0, NULL, NULL, 48);
    cr_assert_eq(gantry_run_bind_output(s.run, 0, &t, &s.err), GANTRY_INVALID_ARGUMENT);
    small_close(&s);
}

/* Nodes may read an input after an output was written: shared memory would give wrong numbers. */
Test(session, refuses_an_output_that_overlaps_an_input)
{
    fill();
    float y[16] = {0};
    small_session s = small_open(small_add(3), "");
    small_bind(&s, 0, GANTRY_FLOAT32, 2, 3, 4, a);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, 3, 4, b);
    gantry_tensor out = small_tensor(GANTRY_FLOAT32, 0, NULL, a + 11, 48);
    cr_assert_eq(gantry_run_bind_output(s.run, 0, &out, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(s.err.message, "output y overlaps that of input a"), "%s", s.err.message);
    out.buffer.handle = a + 12;
    cr_assert_eq(gantry_run_bind_output(s.run, 0, &out, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    out.buffer.handle = y;
    gantry_run_bind_output(s.run, 0, &out, &s.err);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK);
    check_add(&s, 3);
    small_close(&s);
}

Test(session, gives_no_output_of_a_run_that_failed)
{
    fill();
    small_session s = small_open(small_add(3), "");
    gantry_tensor y = {.struct_bytes = sizeof y};
    cr_assert_eq(gantry_run_output(s.run, 0, &y, &s.err), GANTRY_INVALID_ARGUMENT);
    small_bind(&s, 0, GANTRY_FLOAT32, 2, 3, 4, a);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, 3, 4, b);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_run_output(s.run, 0, &y, &s.err), GANTRY_OK);
    gantry_run_bind_input(s.run, 1, NULL, &s.err);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_run_output(s.run, 0, &y, &s.err), GANTRY_INVALID_ARGUMENT);
    small_close(&s);
}

/* Asked before every run, as bindings to other languages do, it may not grow. */
Test(session, declarations_are_made_once)
{
    small_session s = small_open(small_add(-1), "");
    gantry_value_info first = {.struct_bytes = sizeof first}, again = first;
    cr_assert_eq(gantry_session_input(s.session, 0, &first, &s.err), GANTRY_OK);
    cr_assert(first.dims[0] == -1 && first.dims[1] == 4 && strcmp(first.dim_names[0], "n") == 0);
    gantry_session_output(s.session, 0, &again, &s.err);
    uint64_t before = gantry_runtime_allocation_count(s.runtime);
    for (int k = 0; k < 20000; k++) {
        cr_assert_eq(gantry_session_input(s.session, 0, &again, &s.err), GANTRY_OK);
        cr_assert_eq(again.dims, first.dims);
        cr_assert_eq(gantry_session_output(s.session, 0, &again, &s.err), GANTRY_OK);
    }
    cr_assert_eq(gantry_runtime_allocation_count(s.runtime), before);
    small_close(&s);
}

/* The true size comes with the data, also when there is no data. */
Test(session, finds_nothing_in_an_empty_tensor)
{
    fill();
    wire g = small_graph("find");
    wire_message(&g, GRAPH_NODE, onnx_node("NonZero", "find", "x", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_I64, 2, 2, -1);
    small_session s = small_open(small_model(g), "");
    for (int64_t rows = 2; rows >= 0; rows -= 2) {
        small_bind(&s, 0, GANTRY_FLOAT32, 2, rows, 4, a);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0);
        cr_assert_eq(y.rank, 2);
        cr_assert_eq(y.dims[0], 2);
        cr_assert_eq(y.dims[1], rows * 4);
    }
    small_close(&s);
}

Test(session, refuses_what_does_not_fit)
{
    fill();
    small_session s = small_open(small_add(3), "");
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(s.err.message, "input a is not bound"), "%s", s.err.message);
    cr_assert_eq(small_bind(&s, 0, GANTRY_FLOAT32, 2, 5, 4, a), GANTRY_INPUT_SHAPE);
    cr_assert(strstr(s.err.message, "a") && strstr(s.err.message, "[3,4]") && strstr(s.err.message, "[5,4]"),
              "%s", s.err.message);
    cr_assert_eq(small_bind(&s, 0, GANTRY_INT64, 2, 3, 4, a), GANTRY_INPUT_SHAPE);
    cr_assert_eq(small_bind(&s, 0, GANTRY_FLOAT32, 1, 12, 0, a), GANTRY_INPUT_SHAPE);
    cr_assert_eq(small_bind(&s, 2, GANTRY_FLOAT32, 2, 3, 4, a), GANTRY_INVALID_ARGUMENT);
    gantry_tensor small = small_tensor(GANTRY_FLOAT32, 2, (int64_t[]){3, 4}, a, 47);
    cr_assert_eq(gantry_run_bind_input(s.run, 0, &small, &s.err), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(s.err.message, "48") && strstr(s.err.message, "47"), "%s", s.err.message);
    small_close(&s);
}

Test(session, keeps_a_bounded_number_of_plans)
{
    fill();
    small_session s = small_open(small_add(-1), "plan_cache=2");
    for (int turn = 0; turn < 3; turn++)
        for (int64_t rows = 0; rows < 6; rows++) {
            small_bind(&s, 0, GANTRY_FLOAT32, 2, rows, 4, a);
            small_bind(&s, 1, GANTRY_FLOAT32, 2, rows, 4, b);
            cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
            check_add(&s, rows);
        }
    gantry_report *report = NULL;
    const char *json;
    cr_assert_eq(gantry_session_report(s.session, s.run, &report, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_JSON, &json, NULL, &s.err), GANTRY_OK);
    cr_assert(strstr(json, "\"kept\": 2"), "%s", json);
    cr_assert(strstr(json, "\"evicted\": 16"));
    gantry_report_destroy(&report);
    small_close(&s);
}

Test(session, says_both_extents_of_one_name_in_strict_mode)
{
    fill();
    small_session s = small_open(small_add(-1), "strict=on");
    small_bind(&s, 0, GANTRY_FLOAT32, 2, 3, 4, a);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, 1, 4, b);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_INPUT_SHAPE);
    cr_assert(strstr(s.err.message, "3") && strstr(s.err.message, "1") && strstr(s.err.message, "n"), "%s",
              s.err.message);
    small_close(&s);
}

Test(session, broadcasts_two_extents_of_one_name_otherwise)
{
    fill();
    small_session s = small_open(small_add(-1), "");
    small_bind(&s, 0, GANTRY_FLOAT32, 2, 3, 4, a);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, 1, 4, b);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    gantry_tensor y = small_result(&s, 0);
    cr_assert_eq(y.dims[0], 3);
    cr_assert_eq(small_floats_of(&y)[11], a[11] + b[3]);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, 2, 4, b);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_INPUT_SHAPE, "3 and 2 rows: %s", s.err.message);
    cr_assert_eq(s.err.stage, GANTRY_STAGE_RUN);
    cr_assert(strstr(s.err.message, "add1"), "%s", s.err.message);
    small_close(&s);
}

Test(session, prepares_without_running)
{
    fill();
    small_session s = small_open(small_add(-1), "");
    small_bind(&s, 0, GANTRY_FLOAT32, 2, 5, 4, a);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, 5, 4, b);
    cr_assert_eq(gantry_run_prepare(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    gantry_tensor y = small_result(&s, 0);
    cr_assert_eq(y.dims[0], 5);
    cr_assert_null(y.buffer.handle);
    small_close(&s);
}

Test(session, follows_sizes_that_depend_on_data)
{
    small_session s = small_open(small_nonzero(), "");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    for (int count = 0; count < 6; count++) {
        float x[6] = {0};
        for (int k = 0; k < count; k++)
            x[5 - k] = (float)(k + 1);
        small_bind(&s, 0, GANTRY_FLOAT32, 1, 6, 0, x);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor where = small_result(&s, 0), picked = small_result(&s, 1);
        cr_assert_eq(where.dims[1], count);
        cr_assert_eq(picked.rank, 1);
        cr_assert_eq(picked.dims[0], count);
        for (int k = 0; k < count; k++)
            cr_assert_eq(small_floats_of(&picked)[k], 2 * x[6 - count + k]);
    }
    small_close(&s);
}

Test(session, checks_a_bound_buffer_against_the_true_size)
{
    int64_t where[2];
    float x[6] = {1, 0, 0, 0, 0, 2};
    small_session s = small_open(small_nonzero(), "");
    small_bind(&s, 0, GANTRY_FLOAT32, 1, 6, 0, x);
    gantry_tensor out = small_tensor(GANTRY_INT64, 0, NULL, where, sizeof where);
    gantry_run_bind_output(s.run, 0, &out, &s.err);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "two of at most six fit: %s", s.err.message);
    cr_assert_eq(where[1], 5);
    x[2] = 3;
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_INPUT_SHAPE);
    cr_assert(strstr(s.err.message, "24") && strstr(s.err.message, "16"), "%s", s.err.message);
    small_close(&s);
}

Test(session, takes_the_branch_that_data_decide)
{
    small_session s = small_open(small_if(), "");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    float sign = 1, x[3] = {1, 2, 3};
    for (int turn = 0; turn < 4; turn++, sign = -sign) {
        small_bind(&s, 0, GANTRY_FLOAT32, 1, 1, 0, &sign);
        small_bind(&s, 1, GANTRY_FLOAT32, 1, 3, 0, x);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0);
        cr_assert_eq(y.dims[0], sign > 0 ? 3 : 6);
        cr_assert_eq(small_floats_of(&y)[2], sign > 0 ? 6 : 3);
    }
    small_close(&s);
}

/* y = op(x, i), with i of shape [2] or [2,2]. */
static wire index_model(const char *op, int rank)
{
    wire g = small_graph("index");
    wire_message(&g, GRAPH_NODE, onnx_node(op, "pick1", "x,i", "y"));
    small_input(&g, "x", SMALL_F32, 2, 3, 4);
    small_input(&g, "i", SMALL_I64, rank, 2, 2);
    small_output(&g, "y", SMALL_F32, strcmp(op, "GatherND") == 0 ? 1 : 2, -1, -1);
    return small_model(g);
}

Test(session, names_an_index_that_is_out_of_range)
{
    fill();
    static const struct {
        const char *op;
        int rank;
        int64_t indices[4];
        const char *words;
    } cases[] = {{"Gather", 1, {-3, 1000}, "input 'i' holds 1000, -3 to 2 are allowed"},
                 {"Gather", 1, {-4, 1000}, "input 'i' holds -4, -3 to 2 are allowed"},
                 {"GatherND", 2, {2, -4, 0, 4}, "input 'i' holds 4, -4 to 3 are allowed"},
                 {"GatherElements", 2, {2, 1, 0, 3}, "input 'i' holds 3, -3 to 2 are allowed"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        small_session s = small_open(index_model(cases[k].op, cases[k].rank), "");
        cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
        small_bind(&s, 0, GANTRY_FLOAT32, 2, 3, 4, a);
        int64_t indices[4];
        memcpy(indices, cases[k].indices, sizeof indices);
        small_bind(&s, 1, GANTRY_INT64, (uint32_t)cases[k].rank, 2, 2, indices);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_DATA);
        cr_assert(strstr(s.err.message, cases[k].words) && strstr(s.err.message, "pick1"), "%s",
                  s.err.message);
        memset(indices, 0, sizeof indices);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        small_close(&s);
    }
}

Test(session, loops)
{
    small_session s = small_open(small_loop(), "");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    float start[4] = {1, 2, 3, 4};
    static const int64_t TRIPS[] = {0, 1, 2, 1000, 0, 3};
    for (size_t k = 0; k < sizeof TRIPS / sizeof *TRIPS; k++) {
        int64_t trips = TRIPS[k];
        small_bind(&s, 0, GANTRY_INT64, 0, 0, 0, &trips);
        small_bind(&s, 1, GANTRY_FLOAT32, 1, 4, 0, start);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor out = small_result(&s, 0);
        for (int e = 0; e < 4; e++)
            cr_assert_eq(small_floats_of(&out)[e], start[e] + (float)trips);
    }
    small_close(&s);
}

Test(session, delivers_constants_and_inputs_as_outputs)
{
    small_session s = small_open(small_pass_through(), "");
    float x[2] = {3, 4};
    small_bind(&s, 0, GANTRY_FLOAT32, 1, 2, 0, x);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    static const float WANT[3][2] = {{-3, -4}, {5, 6}, {3, 4}};
    for (uint32_t k = 0; k < 3; k++) {
        gantry_tensor t = small_result(&s, k);
        cr_assert_eq(small_floats_of(&t)[0], WANT[k][0]);
        cr_assert_eq(small_floats_of(&t)[1], WANT[k][1]);
    }
    small_close(&s);
}

Test(session, uses_the_default_of_an_input_until_it_is_bound)
{
    small_session s = small_open(small_default(), "");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    gantry_value_info info = {.struct_bytes = sizeof info};
    cr_assert_eq(gantry_session_input(s.session, 1, &info, &s.err), GANTRY_OK);
    cr_assert_str_eq(info.name, "d");
    cr_assert_eq(info.has_default, 1);
    float x[2] = {1, 2}, d = 100;
    small_bind(&s, 0, GANTRY_FLOAT32, 1, 2, 0, x);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    gantry_tensor y = small_result(&s, 0);
    cr_assert_eq(small_floats_of(&y)[1], 12);
    small_bind(&s, 1, GANTRY_FLOAT32, 1, 1, 0, &d);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK);
    y = small_result(&s, 0);
    cr_assert_eq(small_floats_of(&y)[1], 102);
    gantry_run_bind_input(s.run, 1, NULL, &s.err);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK);
    y = small_result(&s, 0);
    cr_assert_eq(small_floats_of(&y)[1], 12);
    small_close(&s);
}

Test(session, refuses_to_go_while_it_is_used)
{
    small_session s = small_open(small_add(3), "");
    cr_assert_eq(gantry_session_destroy(&s.session, &s.err), GANTRY_INVALID_ARGUMENT);
    cr_assert_not_null(s.session);
    cr_assert_eq(gantry_runtime_destroy(&s.runtime, &s.err), GANTRY_INVALID_ARGUMENT);
    cr_assert_not_null(s.runtime);
    small_close(&s);
    cr_assert_null(s.session);
    cr_assert_null(s.runtime);
}

Test(session, reports_a_failed_creation)
{
    small_session s = small_open(small_unknown(), "");
    cr_assert_eq(s.status, GANTRY_UNSUPPORTED, "%s", s.err.message);
    cr_assert(strstr(s.err.message, "Frobnicate") && strstr(s.err.message, "frob1"), "%s", s.err.message);
    cr_assert_null(s.session);
    cr_assert_not_null(s.report);
    const char *text;
    cr_assert_eq(gantry_report_render(s.report, GANTRY_REPORT_JSON, &text, NULL, &s.err), GANTRY_OK);
    cr_assert(strstr(text, "\"no_kernel\"") && strstr(text, "frob1"), "%s", text);
    cr_assert_eq(gantry_report_render(s.report, GANTRY_REPORT_TEXT, &text, NULL, &s.err), GANTRY_OK);
    cr_assert(strstr(text, "could not be created"), "%s", text);
    small_close(&s);
}

Test(session, takes_null_where_it_says_so)
{
    gantry_run *run = NULL;
    gantry_session *session = NULL;
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_run_destroy(NULL);
    gantry_run_destroy(&run);
    gantry_run_cancel(NULL);
    gantry_report_destroy(NULL);
    cr_assert_eq(gantry_session_destroy(NULL, NULL), GANTRY_OK);
    cr_assert_eq(gantry_session_destroy(&session, &err), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(NULL, &err), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_run_create(NULL, &run, &err), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_session_create_from_file(NULL, "x", NULL, &session, NULL, &err),
                 GANTRY_INVALID_ARGUMENT);
}

/* ---- constants of a file --------------------------------------------------------------------- */

#define MANY 300000 /* so large that it stays in the mapped file until something copies it */

static void write_file(char *path, const wire *model)
{
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, model->data, model->size) == (ssize_t)model->size);
    close(fd);
}

/* y = x + c, and c itself is an output: the plan has to know where c lies after the file is unmapped. */
static void run_constant_of_a_file(const char *weights)
{
    float *values = malloc(MANY * sizeof *values);
    cr_assert_not_null(values);
    for (int k = 0; k < MANY; k++)
        values[k] = (float)k;
    wire g = small_graph("constant_out");
    small_floats(&g, "c", MANY, values);
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "x,c", "y"));
    small_input(&g, "x", SMALL_F32, 1, 1, 0);
    small_output(&g, "y", SMALL_F32, 1, MANY, 0);
    small_output(&g, "c", SMALL_F32, 1, MANY, 0);
    wire model = small_model(g);
    char path[] = "/tmp/gantry-constant-XXXXXX";
    write_file(path, &model);
    wire_free(&model);
    small_session s = {.err = GANTRY_ERROR_INIT};
    gantry_options *options = NULL;
    float one = 1;
    cr_assert_eq(gantry_runtime_create(NULL, &s.runtime, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_options_create(&options, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_options_set(options, "weights", weights, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_session_create_from_file(s.runtime, path, options, &s.session, NULL, &s.err),
                 GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(gantry_run_create(s.session, &s.run, &s.err), GANTRY_OK);
    cr_assert_eq(small_bind(&s, 0, SMALL_F32, 1, 1, 0, &one), GANTRY_OK);
    for (int turn = 0; turn < 2; turn++) {
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0), c = small_result(&s, 1);
        cr_assert_eq(small_floats_of(&y)[MANY - 1], values[MANY - 1] + 1);
        for (int k = 0; k < MANY; k++)
            cr_assert_eq(small_floats_of(&c)[k], values[k]);
    }
    small_close(&s);
    gantry_options_destroy(&options);
    unlink(path);
    free(values);
}

Test(session, constants_of_a_file_are_outputs)
{
    run_constant_of_a_file("copy");
    run_constant_of_a_file("mapped");
}

/* ---- buffers that cannot be used ------------------------------------------------------------- */

Test(session, refuses_misaligned_and_missing_memory)
{
    small_session s = small_open(small_add(-1), "");
    const int64_t dims[2] = {1, 4};
    gantry_tensor odd = small_tensor(GANTRY_FLOAT32, 2, dims, (char *)a + 1, 16);
    cr_assert_eq(gantry_run_bind_input(s.run, 0, &odd, &s.err), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(s.err.message, "no multiple of 4"), "%s", s.err.message);
    cr_assert_eq(gantry_run_bind_output(s.run, 0, &odd, &s.err), GANTRY_INVALID_ARGUMENT);
    odd.buffer = (gantry_buffer){(char *)a + 1, 3};
    cr_assert_eq(gantry_run_bind_input(s.run, 0, &odd, &s.err), GANTRY_OK, "%s", s.err.message);
    gantry_tensor missing = small_tensor(GANTRY_FLOAT32, 2, NULL, a, 16);
    cr_assert_eq(gantry_run_bind_input(s.run, 1, &missing, &s.err), GANTRY_INVALID_ARGUMENT);
    missing = small_tensor(GANTRY_FLOAT32, 2, dims, NULL, 16);
    cr_assert_eq(gantry_run_bind_output(s.run, 0, &missing, &s.err), GANTRY_INVALID_ARGUMENT);
    small_close(&s);
}
