/* The report: each question it answers, on small models, and what it says when something failed or was not
 * measured. */
#include "../support/report_reader.h"

#include <math.h>

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define ADD_ON_DEVICE                                                                                        \
    "{\"devices\": [{\"name\": \"dev\", \"ops\": {\"Add\": [\"float32\"]}, \"late\": false, "                \
    "\"enqueue_us\": 100, "                                                                                  \
    "\"copy_us\": 200, \"work_us\": {\"Add\": 1000}}]}"
#define ADD_WITHOUT_CLOCK                                                                                    \
    "{\"devices\": [{\"name\": \"dev\", \"ops\": {\"Add\": [\"float32\"]}, \"late\": false, \"timing\": "    \
    "false}]}"
#define ON_DEVICE "providers=dev,cpu;plan=priority"

/* ---- sums ------------------------------------------------------------------------------------ */

static void check_creation(json_t *document)
{
    size_t k, m;
    json_t *row, *part;
    double sum = 0, total = number(document, "creation.total_ms");
    json_array_foreach(at(document, "creation.phases"), k, row)
    {
        double inside = 0, ms = number(row, "ms");
        cr_assert_geq(ms, 0, "%s", string(row, "name"));
        json_array_foreach(json_object_get(row, "providers"), m, part) inside += number(part, "ms");
        cr_assert_leq(inside, ms * 1.001 + 1e-6, "%s: the providers took more than the phase",
                      string(row, "name"));
        sum += ms;
    }
    cr_assert_float_eq(sum + number(document, "creation.remainder_ms"), total, 1e-6);
}

static void check_nodes(json_t *document)
{
    static const char *const STATES[] = {"placed", "at_bind", "removed", "unplaced", "waiting", "not_placed"};
    double rows = 0;
    for (size_t k = 0; k < 6; k++)
        rows += number(at(document, "totals.nodes"), STATES[k]);
    cr_assert_eq(rows, json_array_size(at(document, "nodes")));
    cr_assert_eq(number(document, "totals.nodes.remainder"), 0);
}

static void check_account(json_t *document)
{
    size_t k;
    json_t *row;
    double sum = 0, wall = number(document, "run.account.wall_us");
    json_array_foreach(at(document, "run.account.classes"), k, row) sum += number(row, "us");
    cr_assert_float_eq(sum + number(document, "run.account.remainder_us"), wall, 1e-3);
    /* Small models: what one preemption may take must not fail the test. */
    cr_assert_lt(fabs(number(document, "run.account.remainder_us")), 0.05 * wall + 200);
    cr_assert_gt(number(document, "run.account.stamps"), 0);
    cr_assert_gt(number(document, "run.account.stamp_ns"), 0);
    cr_assert_gt(number(document, "run.account.overhead_us"), 0);
}

static void check_copies(json_t *document)
{
    cr_assert_eq(number(document, "totals.boundaries.executions"),
                 number(document, "totals.boundaries.copies"));
    cr_assert_eq(number(document, "totals.boundaries.remainder_bytes"), 0);
}

/* ---- a session without trouble --------------------------------------------------------------- */

Test(report, sums_of_a_plain_session_close)
{
    small_session s = small_open(small_add(3), "");
    run_add(&s, 3, 1);
    json_t *document = report_of(&s);
    cr_assert_str_eq(string(document, "schema"), "gantry-report");
    cr_assert_str_eq(string(document, "status.code"), "ok");
    check_creation(document);
    check_nodes(document);
    cr_assert_eq(number(document, "totals.nodes.placed"), 2);
    cr_assert_str_eq(string(document, "creation.before.0.provider"), "cpu");
    cr_assert_eq(json_array_size(at(document, "boundaries")), 0);
    json_decref(document);
    small_close(&s);
}

Test(report, runs_are_kept_apart_first_second_steady)
{
    small_session s = small_open(small_add(3), "");
    run_add(&s, 3, 1);
    json_t *document = report_of(&s);
    cr_assert_gt(number(document, "run.first_us"), 0);
    cr_assert(not_measured(document, "run.second_us"));
    cr_assert(not_measured(document, "run.steady.p50_us"));
    json_decref(document);
    run_add(&s, 3, 300);
    document = report_of(&s);
    cr_assert_eq(number(document, "run.finished"), 301);
    cr_assert_eq(number(document, "run.steady.count"), 299);
    cr_assert_eq(number(document, "run.steady.kept"), 256);
    cr_assert_gt(number(document, "run.second_us"), 0);
    cr_assert_leq(number(document, "run.steady.min_us"), number(document, "run.steady.p50_us"));
    cr_assert_leq(number(document, "run.steady.p50_us"), number(document, "run.steady.p90_us"));
    cr_assert_leq(number(document, "run.steady.p90_us"), number(document, "run.steady.max_us"));
    json_decref(document);
    small_close(&s);
}

Test(report, plans_say_what_made_them)
{
    small_session s = small_open(small_add(-1), "");
    run_add(&s, 2, 2);
    run_add(&s, 3, 2);
    run_add(&s, 2, 1);
    json_t *document = report_of(&s);
    cr_assert_eq(number(document, "plans.made"), 2);
    cr_assert_eq(number(document, "run.plan_lookups.made"), 2);
    cr_assert_eq(number(document, "run.plan_lookups.same"), 2);
    cr_assert_eq(number(document, "run.plan_lookups.held"), 1);
    cr_assert_str_eq(string(document, "plans.rows.0.reason.code"), "first");
    cr_assert_str_eq(string(document, "plans.rows.1.reason.code"), "new_size");
    cr_assert_str_eq(string(document, "plans.rows.1.reason.tensor"), "a");
    cr_assert_eq(number(document, "plans.rows.1.reason.before"), 2);
    cr_assert_eq(number(document, "plans.rows.1.reason.now"), 3);
    json_decref(document);
    gantry_run *other = NULL, *first = s.run;
    cr_assert_eq(gantry_run_create(s.session, &other, &s.err), GANTRY_OK);
    s.run = other;
    run_add(&s, 3, 1);
    document = report_of(&s);
    cr_assert_eq(number(document, "run.plan_lookups.cached"), 1);
    cr_assert_eq(number(document, "run.plan_lookups.made"), 0);
    json_decref(document);
    gantry_run_destroy(&first);
    small_close(&s);
}

Test(report, options_say_who_set_them)
{
    small_session s = small_open(small_add(3), "rewrites=off;threads=2");
    json_t *document = report_of(&s), *row = row_of(document, "options", "key", "fold");
    cr_assert_str_eq(string(row, "effective"), "off");
    cr_assert_str_eq(string(row, "overridden_by"), "rewrites=off");
    row = row_of(document, "options", "key", "threads");
    cr_assert_str_eq(string(row, "asked"), "2");
    cr_assert_str_eq(string(row, "origin"), "user");
    cr_assert(json_is_null(at(row, "overridden_by")));
    cr_assert_not_null(strstr(string(row_of(document, "providers", "name", "cpu"), "libraries"), "oneDNN"));
    cr_assert_gt(strlen(string(row_of(document, "domains", "name", "host"), "device")), 0);
    json_decref(document);
    small_close(&s);
}

/* ---- two providers --------------------------------------------------------------------------- */

Test(report, providers_verdicts_and_boundaries)
{
    small_session s = small_open_with(small_add(3), FAKE, ADD_ON_DEVICE, ON_DEVICE);
    run_add(&s, 3, 2);
    json_t *document = report_of(&s), *row = row_of(document, "providers", "name", "dev");
    cr_assert_eq(number(row, "nodes_supported"), 1);
    cr_assert_eq(number(row, "nodes_assigned"), 1);
    cr_assert_eq(number(row, "nodes_executed"), 1);
    cr_assert_not_null(strstr(string(row, "path"), "libgantry_fake.so"));
    cr_assert_gt(number(row, "load_ms"), 0);
    row = row_of(document, "nodes", "name", "relu1");
    cr_assert_str_eq(string(row, "provider"), "cpu");
    cr_assert_str_eq(string(row, "candidates.0.provider"), "dev");
    cr_assert_str_eq(string(row, "candidates.0.reason"), "no_kernel");
    cr_assert_str_eq(string(row, "candidates.0.group"), "ability");
    cr_assert(json_is_false(at(row, "candidates.0.policy")));
    cr_assert(json_is_false(at(row, "candidates.0.claimed")));
    cr_assert_eq(json_array_size(at(document, "boundaries")), 3);
    row = row_of(document, "boundaries", "tensor", "a");
    cr_assert_str_eq(string(row, "direction"), "to_device");
    cr_assert(json_is_null(at(row, "producer")));
    cr_assert_str_eq(string(row, "consumers.0"), "add1");
    cr_assert(json_is_false(at(row, "synchronizing")));
    row = row_of(document, "boundaries", "tensor", "t");
    cr_assert_str_eq(string(row, "direction"), "to_host");
    cr_assert_str_eq(string(row, "producer"), "add1");
    cr_assert_str_eq(string(row, "consumers.0"), "relu1");
    cr_assert(json_is_true(at(row, "synchronizing")));
    cr_assert_eq(number(row, "executions"), 1);
    cr_assert_eq(number(row, "executions_total"), 2);
    cr_assert_eq(number(row, "bytes"), 48);
    cr_assert(not_measured(row, "us"));
    cr_assert_eq(number(document, "totals.boundaries.bytes"), 144);
    check_copies(document);
    check_nodes(document);
    json_decref(document);
    small_close(&s);
}

Test(report, policy_is_no_inability)
{
    small_session s = small_open_with(small_add(3), FAKE, ADD_ON_DEVICE, "providers=dev,cpu;pin.add1=cpu");
    run_add(&s, 3, 1);
    json_t *document = report_of(&s), *row = row_of(document, "nodes", "name", "add1");
    cr_assert_str_eq(string(row, "candidates.0.reason"), "user_pinned");
    cr_assert(json_is_true(at(row, "candidates.0.policy")));
    cr_assert(json_is_true(at(row, "candidates.0.claimed")));
    cr_assert(json_is_false(at(row, "candidates.0.supported")));
    row = row_of(document, "providers", "name", "dev");
    cr_assert_eq(number(row, "nodes_supported"), 1);
    cr_assert_eq(number(row, "nodes_assigned"), 0);
    json_decref(document);
    small_close(&s);
}

Test(report, timed_runs_add_up)
{
    small_session s = small_open_with(small_add(3), FAKE, ADD_ON_DEVICE, ON_DEVICE ";timing=events");
    run_add(&s, 3, 3);
    json_t *document = report_of(&s), *row = row_of(document, "kernels", "op", "Add");
    cr_assert_str_eq(string(document, "run.account.mode"), "events");
    check_account(document);
    check_copies(document);
    cr_assert_geq(number(row, "us"), 1000);
    cr_assert_geq(number(row, "launch_us"), 100);
    cr_assert_str_eq(string(row, "us_source"), "kernel");
    cr_assert_geq(number(row_of(document, "boundaries", "tensor", "t"), "us"), 200);
    cr_assert_gt(number(row_of(document, "kernels", "op", "Relu"), "us"), 0);
    cr_assert_str_eq(string(document, "totals.boundaries.share_source"), "measured");
    cr_assert_geq(number(document, "run.account.devices.0.programs_us"), 1000);
    cr_assert_eq(number(document, "run.account.devices.0.copies"), 3);
    json_decref(document);
    small_close(&s);
}

Test(report, what_has_no_clock_is_not_measured)
{
    small_session s = small_open_with(small_add(3), FAKE, ADD_WITHOUT_CLOCK, ON_DEVICE ";timing=events");
    run_add(&s, 3, 1);
    json_t *document = report_of(&s);
    cr_assert(not_measured(row_of(document, "kernels", "op", "Add"), "us"));
    cr_assert(not_measured(row_of(document, "boundaries", "tensor", "t"), "us"));
    cr_assert(not_measured(document, "totals.boundaries.us"));
    cr_assert(not_measured(document, "run.account.devices.0.programs_us"));
    check_account(document);
    json_decref(document);
    small_close(&s);
    s = small_open_with(small_add(3), FAKE, ADD_WITHOUT_CLOCK, ON_DEVICE ";timing=fenced");
    run_add(&s, 3, 1);
    document = report_of(&s);
    cr_assert_str_eq(string(document, "run.account.mode"), "fenced");
    cr_assert_gt(number(row_of(document, "boundaries", "tensor", "t"), "us"), 0);
    cr_assert_gt(number(row_of(document, "kernels", "op", "Add"), "us"), 0);
    cr_assert_str_eq(string(row_of(document, "kernels", "op", "Add"), "us_source"), "partition");
    check_account(document);
    json_decref(document);
    small_close(&s);
}

Test(report, plain_runs_are_not_timed)
{
    small_session s = small_open(small_add(3), "");
    run_add(&s, 3, 1);
    json_t *document = report_of(&s);
    cr_assert_str_eq(string(document, "run.account.mode"), "off");
    cr_assert(not_measured(document, "run.account.remainder_us"));
    cr_assert(not_measured(document, "kernels.0.us"));
    cr_assert_eq(number(document, "run.account.stamps"), 0);
    cr_assert_eq(json_array_size(at(document, "run.account.classes")), 0);
    json_decref(document);
    small_close(&s);
}

Test(report, timed_steady_runs_allocate_nothing)
{
    small_session s = small_open(small_add(-1), "timing=events");
    run_add(&s, 3, 3);
    uint64_t before = gantry_runtime_allocation_count(s.runtime);
    run_add(&s, 3, 50);
    cr_assert_eq(gantry_runtime_allocation_count(s.runtime), before);
    small_close(&s);
}

/* ---- control flow ---------------------------------------------------------------------------- */

Test(report, a_loop_holds_its_body)
{
    float start[4] = {0};
    int64_t trips = 5;
    small_session s = small_open(small_loop(), "timing=events");
    cr_assert_eq(small_bind(&s, 0, GANTRY_INT64, 0, 0, 0, &trips), GANTRY_OK);
    cr_assert_eq(small_bind(&s, 1, GANTRY_FLOAT32, 1, 4, 0, start), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    json_t *document = report_of(&s), *row = row_of(document, "nodes", "name", "loop1.body.count");
    cr_assert_str_eq(string(row, "inside"), "loop1");
    cr_assert_eq(number(row, "executions"), 5);
    cr_assert(json_is_null(at(row_of(document, "nodes", "name", "loop1"), "inside")));
    cr_assert_geq(number(row_of(document, "nodes", "name", "loop1"), "us"), number(row, "us"));
    check_account(document);
    check_nodes(document);
    json_decref(document);
    small_close(&s);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Host nodes before, between and after device nodes: only what lies between keeps the device's work from
 * being recorded; a loop whose body the device runs does as well. */
Test(report, what_blocks_capture)
{
    static const char *const CONFIG =
        "{\"devices\": [{\"name\": \"dev\", \"ops\": {\"Neg\": [\"float32\"], \"Add\": [\"float32\"]}}]}";
    static const char *const CHAIN[2][5] = {{"Exp", "Neg", "Neg", "Abs", "Abs"},
                                            {"Exp", "Neg", "Abs", "Neg", "Abs"}};
    for (int k = 0; k < 2; k++) {
        wire g = small_graph("chain");
        const char *const names[] = {"x", "a", "b", "c", "d", "y"};
        for (int n = 0; n < 5; n++) {
            char name[8];
            snprintf(name, sizeof name, "n%d", n);
            wire_message(&g, GRAPH_NODE, onnx_node(CHAIN[k][n], name, names[n], names[n + 1]));
        }
        small_input(&g, "x", SMALL_F32, 1, 4, 0);
        small_output(&g, "y", SMALL_F32, 1, 4, 0);
        small_session s = small_open_with(small_model(g), FAKE, CONFIG, ON_DEVICE);
        cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
        json_t *document = report_of(&s);
        cr_assert_eq(json_is_true(at(document, "capture.possible")), k == 0);
        cr_assert_eq(json_array_size(at(document, "capture.blockers")), (size_t)k);
        if (k) {
            cr_assert_str_eq(json_string_value(at(document, "capture.blockers.0.node")), "n2");
            cr_assert_str_eq(json_string_value(at(document, "capture.blockers.0.cause")), "host_between");
        }
        json_decref(document);
        small_close(&s);
    }
    small_session s = small_open_with(small_loop(), FAKE, CONFIG, ON_DEVICE);
    json_t *document = report_of(&s);
    cr_assert_str_eq(json_string_value(at(document, "capture.blockers.0.node")), "loop1");
    cr_assert_str_eq(json_string_value(at(document, "capture.blockers.0.cause")), "control_flow");
    json_decref(document);
    small_close(&s);
    s = small_open(small_add(3), "");
    document = report_of(&s);
    cr_assert(json_is_null(at(document, "capture.possible")), "there is no device");
    json_decref(document);
    small_close(&s);
}

/* A device whose kernel overflows: blamed where it happens, and not where it is passed on. */
Test(report, numeric_check_blames_the_first_wrong_tensor)
{
    static const char *const CONFIG = "{\"devices\": [{\"name\": \"dev\", \"ops\": {\"Mul\": [\"float32\"], "
                                      "\"Neg\": [\"float32\"]}, \"compute\": "
                                      "\"float16\"}]}";
    static const float large[4] = {60000, 60000, 60000, 60000};
    float x[4] = {1, 2, 3, 4};
    wire g = small_graph("overflow");
    small_floats(&g, "large", 4, large);
    wire_message(&g, GRAPH_NODE, onnx_node("Mul", "mul1", "x,large", "p"));
    wire_message(&g, GRAPH_NODE, onnx_node("Abs", "abs1", "p", "a"));
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "a", "y"));
    small_input(&g, "x", SMALL_F32, 1, 4, 0);
    small_output(&g, "y", SMALL_F32, 1, 4, 0);
    small_session s = small_open_with(small_model(g), FAKE, CONFIG, ON_DEVICE ";numeric_check=on");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    for (int turn = 0; turn < 2; turn++) {
        small_bind(&s, 0, GANTRY_FLOAT32, 1, 4, 0, x);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    }
    json_t *document = report_of(&s);
    cr_assert_eq(json_integer_value(at(document, "numeric_check.wrong")), 1, "each run begins anew");
    cr_assert_eq(json_integer_value(at(document, "numeric_check.checked")), 3);
    cr_assert_str_eq(json_string_value(at(document, "numeric_check.rows.0.producer")), "mul1");
    cr_assert_str_eq(json_string_value(at(document, "numeric_check.rows.0.finding")), "not_finite");
    cr_assert_eq(json_integer_value(at(document, "numeric_check.rows.0.differing_elements")), 3);
    json_decref(document);
    small_close(&s);
    s = small_open(small_add(3), "numeric_check=on");
    float a[12] = {1, -2, 3}, b[12] = {2, 1};
    small_bind(&s, 0, GANTRY_FLOAT32, 2, 3, 4, a);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, 3, 4, b);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    document = report_of(&s);
    cr_assert_eq(json_integer_value(at(document, "numeric_check.wrong")), 0);
    cr_assert_eq(json_integer_value(at(document, "numeric_check.checked")), 1);
    json_decref(document);
    small_close(&s);
}

/* Elements that have no arithmetic are not read as if they were 64-bit integers. */
Test(report, numeric_check_leaves_what_is_no_number)
{
    enum { COUNT = 1 << 20 };
    wire g = small_graph("g"), cast = onnx_node("Cast", "cast1", "x", "y");
    onnx_set_int(&cast, "to", GANTRY_FLOAT8E4M3FN);
    wire_message(&g, GRAPH_NODE, cast);
    small_input(&g, "x", SMALL_F32, 1, COUNT, 0);
    small_output(&g, "y", GANTRY_FLOAT8E4M3FN, 1, COUNT, 0);
    small_session s = small_open(small_model(g), "numeric_check=on");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    float *x = calloc(COUNT, sizeof *x);
    small_bind(&s, 0, GANTRY_FLOAT32, 1, COUNT, 0, x);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    json_t *document = report_of(&s);
    cr_assert_eq(json_integer_value(at(document, "numeric_check.checked")), 0);
    cr_assert_eq(json_integer_value(at(document, "numeric_check.unchecked")), 1);
    json_decref(document);
    small_close(&s);
    free(x);
}

Test(report, a_failed_placement_has_a_report)
{
    small_session s = small_open(small_unknown(), "");
    cr_assert_eq(s.status, GANTRY_UNSUPPORTED);
    cr_assert_not_null(s.report);
    json_t *document = json_of(s.report), *row = row_of(document, "nodes", "name", "frob1");
    cr_assert_str_eq(string(document, "status.code"), "unsupported");
    cr_assert_str_eq(string(document, "status.node"), "frob1");
    cr_assert_str_eq(string(row, "state"), "unplaced");
    cr_assert_str_eq(string(row, "candidates.0.reason"), "no_kernel");
    cr_assert(json_is_null(at(document, "run")));
    cr_assert_not_null(strstr(string(document, "summary.0.text"), "could not be created"));
    check_creation(document);
    check_nodes(document);
    check_text(s.report);
    cr_assert_not_null(strstr(text_of(s.report), "NO PROVIDER"));
    json_decref(document);
    small_close(&s);
}

/* Its table keeps its columns. */
Test(report, an_error_of_several_lines_leads_it)
{
    wire g = small_graph("bad");
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "x,z", "y"));
    small_input(&g, "x", SMALL_F32, 2, 2, 15);
    small_input(&g, "z", SMALL_F32, 2, 2, 64);
    small_output(&g, "y", SMALL_F32, 2, 2, 64);
    small_session s = small_open(small_model(g), "");
    cr_assert_eq(s.status, GANTRY_MODEL_SHAPE);
    cr_assert_not_null(s.report);
    check_text(s.report);
    cr_assert(strstr(text_of(s.report), "* the session could not be created:\n    node 'add1' (Add): "), "%s",
              text_of(s.report));
    cr_assert(strstr(text_of(s.report),
                     "\n      x  float32 [2,15]  a graph input\n      z  float32 [2,64]  a graph "
                     "input\n                    ^^\n"),
              "%s", text_of(s.report));
    small_close(&s);
}

Test(report, a_failure_before_placement_has_a_report)
{
    wire bad = {0};
    wire_text(&bad, 2, "no graph");
    small_session s = small_open(bad, "");
    cr_assert_neq(s.status, GANTRY_OK);
    cr_assert_not_null(s.report);
    json_t *document = json_of(s.report);
    cr_assert_str_neq(string(document, "status.code"), "ok");
    cr_assert_eq(json_array_size(at(document, "nodes")), 0);
    check_creation(document);
    check_text(s.report);
    json_decref(document);
    small_close(&s);
}

Test(report, a_library_that_does_not_load_is_quoted)
{
    small_session s =
        small_open_with(small_add(3), "/nowhere/\xff/libgantry_gone.so", NULL, "providers=gone,cpu");
    run_add(&s, 3, 1);
    json_t *document = report_of(&s), *row = row_of(document, "providers", "name", "gone");
    cr_assert(json_is_true(at(row, "requested")));
    cr_assert(json_is_false(at(row, "created")));
    cr_assert_not_null(strstr(string(row, "detail"), "/nowhere/\xef\xbf\xbd/libgantry_gone.so"));
    cr_assert_str_eq(string(row_of(document, "nodes", "name", "add1"), "candidates.0.reason"),
                     "provider_absent");
    cr_assert_not_null(strstr(string(document, "summary.0.text"), "gone"));
    json_decref(document);
    small_close(&s);
    s = small_open_with(small_add(3), "/nowhere/libgantry_gone.so", NULL, "providers=gone,cpu;strict=on");
    cr_assert_eq(s.status, GANTRY_PROVIDER);
    document = json_of(s.report);
    cr_assert(json_is_false(at(row_of(document, "providers", "name", "gone"), "created")));
    check_text(s.report);
    json_decref(document);
    small_close(&s);
}

/* ---- names of any bytes ---------------------------------------------------------------------- */

Test(report, names_of_any_bytes)
{
    static const char NODE[] = "ev\xff\x1b[31mil\n\xe2\x80\xae\xc2\x9b"
                               "9",
                      INPUT[] = "\xed\xa0\x80\xf5x";
    char long_name[400];
    memset(long_name, 'n', sizeof long_name - 1);
    memcpy(long_name, "\xe6\x97\xa5\xe6\x9c", 5);
    long_name[sizeof long_name - 1] = 0;
    wire g = small_graph("names");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", NODE, INPUT, "t"));
    wire_message(&g, GRAPH_NODE, onnx_node("Relu", long_name, "t", "y"));
    int64_t dims[2] = {-1, 4};
    wire_message(&g, GRAPH_INPUT, onnx_value(INPUT, SMALL_F32, 2, dims));
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    small_session s = small_open(small_model(g), "");
    float x[8] = {0};
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(small_bind(&s, 0, GANTRY_FLOAT32, 2, 2, 4, x), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    json_t *document = report_of(&s), *row = row_of(document, "nodes", "op", "Neg");
    cr_assert_not_null(strstr(string(row, "name"), "mil\n\xe2\x80\xae\xc2\x9b"
                                                   "9"));
    check_nodes(document);
    json_decref(document);
    small_close(&s);
}

/* ---- documentation --------------------------------------------------------------------------- */

Test(report, every_refusal_code_is_documented)
{
    static const char *const CODES[] = {
#define GANTRY_REFUSAL(code, group, meaning) "| `" #code "` | " #group " | " meaning,
#include <gantry/refusals.def>
#undef GANTRY_REFUSAL
    };
    static char text[200000];
    FILE *file = fopen("docs/report.md", "rb");
    cr_assert_not_null(file, "docs/report.md: the test runs in the repository's root");
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    for (size_t k = 0; k < sizeof CODES / sizeof *CODES; k++)
        cr_assert_not_null(strstr(text, CODES[k]), "docs/report.md has no line \"%s\"", CODES[k]);
}

/* Who was asked, in order, and what the node computes in where it is. */
Test(report, prints_the_ladder_of_each_node)
{
    static const char config[] =
        "{\"devices\": [{\"name\": \"first\", \"ops\": {\"Neg\": [\"float32\"]}}, {\"name\": \"second\", "
        "\"ops\": {\"Add\": [\"float32\"]}, \"compute\": \"float16\"}]}";
    small_session s = small_open_with(small_add(3), GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so", config,
                                      "providers=first,second,cpu;plan=priority");
    const char *text = NULL;
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(gantry_report_render(s.report, GANTRY_REPORT_TEXT, &text, NULL, &s.err), GANTRY_OK);
    cr_assert_not_null(strstr(text, "1 x Add: first no_kernel > second float16 > cpu could (add1)"), "%s",
                       text);
    cr_assert_not_null(strstr(text, "1 x Relu: first no_kernel > second no_kernel > cpu float32 (relu1)"),
                       "%s", text);
    small_close(&s);
}
