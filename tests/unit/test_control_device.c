/* If and Loop with bodies on a device: carried values, captures and scan outputs stay where they are made and
 * read, what the host decides with comes to it, and the ledger says what the device counted. */
#include "../support/both_devices.h"
#include "../support/counting_allocator.h"
#include "../support/fake_counters.h"
#include "../support/small_models.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#define ON_DEV "providers=dev,cpu;plan=priority"
#define WIDTH 4
#define BYTES (WIDTH * sizeof(float))

static float x[WIDTH] = {1, -2, 3, 0.5f}, w[WIDTH] = {10, 20, 30, 40};

static void begin(void)
{
    snprintf(counters_path, sizeof counters_path, "/tmp/gantry_controlXXXXXX");
    close(mkstemp(counters_path));
}

static void end(void)
{
    unlink(counters_path);
}

static void begin_opencl(void)
{
    both_use_opencl();
    begin();
}

TestSuite(control_device, .init = begin, .fini = end);
TestSuite(control_device_opencl, .init = begin_opencl, .fini = end);

/* dev has arithmetic and comparisons, the host has Neg too; `keys` are further ones. */
static const char *config(const char *keys)
{
    static char text[1200];
    snprintf(
        text, sizeof text,
        "{\"counters_file\": \"%s\", \"devices\": [{\"name\": \"dev\", \"ops\": {\"Add\": [\"float32\"], "
        "\"Sub\": [\"float32\"], \"Mul\": [\"float32\"], \"Abs\": [\"float32\"], \"Less\": [\"float32\"], "
        "\"Concat\": [\"float32\"], \"ReduceSum\": [\"float32\"]}%s}]}",
        counters_path, keys);
    return text;
}

static small_session open_on(wire model, const char *keys, const char *options)
{
    small_session s = small_open_with(model, both_plugin, config(keys), options);
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    return s;
}

/* ---- models ---------------------------------------------------------------------------------- */

static wire loop_body(const char *name)
{
    wire body = small_graph(name);
    small_input(&body, "i", SMALL_I64, 0, 0, 0);
    small_input(&body, "go", SMALL_BOOL, 0, 0, 0);
    return body;
}

static void add_nodes(wire *graph, const char *const nodes[][4], int count)
{
    for (int k = 0; k < count; k++)
        wire_message(graph, GRAPH_NODE, onnx_node(nodes[k][0], nodes[k][1], nodes[k][2], nodes[k][3]));
}

#define NODES(graph, ...)                                                                                    \
    add_nodes(graph, (const char *const[][4]){__VA_ARGS__},                                                  \
              (int)(sizeof((const char *const[][4]){__VA_ARGS__}) / sizeof(const char *[4])))

static void add_one_constant(wire *g)
{
    const float one = 1;
    small_floats(g, "one", 1, &one);
}

/* s_out = s_in after `trips` times (s + one) [through Neg on the host, twice]. */
static wire carried(bool host_inside)
{
    wire body = loop_body("body"), g = small_graph("carried");
    NODES(&body, {"Identity", "keep", "go", "goes_on"}, {"Add", "add1", "s,one", "t"});
    if (host_inside)
        NODES(&body, {"Neg", "neg1", "t", "u"}, {"Sub", "sub1", "zero,u", "s_next"});
    else
        NODES(&body, {"Abs", "abs1", "t", "u"}, {"Mul", "mul1", "u,one", "s_next"});
    small_input(&body, "s", SMALL_F32, 1, WIDTH, 0);
    small_output(&body, "goes_on", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "s_next", SMALL_F32, 1, WIDTH, 0);
    const float zero = 0;
    add_one_constant(&g);
    small_floats(&g, "zero", 1, &zero);
    wire loop = onnx_node("Loop", "loop1", "trips,,s_in", "s_out");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    small_input(&g, "trips", SMALL_I64, 0, 0, 0);
    small_input(&g, "s_in", SMALL_F32, 1, WIDTH, 0);
    small_output(&g, "s_out", SMALL_F32, 1, WIDTH, 0);
    return small_model(g);
}

/* As above, but the body captures w, [and the host reads it too], and a scan output piles up 2 * s. */
static wire capturing(bool host_reads, bool scan)
{
    wire body = loop_body("body"), g = small_graph("capturing");
    NODES(&body, {"Identity", "keep", "go", "goes_on"}, {"Add", "add1", "s,v", "s_next"});
    if (host_reads)
        NODES(&body, {"Neg", "neg1", "v", "minus"}, {"Sub", "sub1", "s_next,minus", "shown"});
    else
        NODES(&body, {"Add", "add2", "s,s", "shown"});
    small_input(&body, "s", SMALL_F32, 1, WIDTH, 0);
    small_output(&body, "goes_on", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "s_next", SMALL_F32, 1, WIDTH, 0);
    small_output(&body, "shown", SMALL_F32, 1, WIDTH, 0);
    add_one_constant(&g);
    NODES(&g, {"Add", "add3", "w,w", "v"});
    wire loop = onnx_node("Loop", "loop1", "trips,,s_in", scan ? "s_out,all" : "s_out");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    if (scan)
        NODES(&g, {"Abs", "abs1", "all", "big"});
    small_input(&g, "trips", SMALL_I64, 0, 0, 0);
    small_input(&g, "s_in", SMALL_F32, 1, WIDTH, 0);
    small_input(&g, "w", SMALL_F32, 1, WIDTH, 0);
    small_output(&g, "s_out", SMALL_F32, 1, WIDTH, 0);
    if (scan)
        small_output(&g, "big", SMALL_F32, 2, -1, WIDTH);
    return small_model(g);
}

/* Doubles until the sum of all elements is not below 100: the condition is computed on the device. */
static wire until(void)
{
    wire body = loop_body("body"), g = small_graph("until");
    wire sum = onnx_node("ReduceSum", "sum1", "s_next", "total");
    onnx_set_int(&sum, "keepdims", 0);
    NODES(&body, {"Add", "add1", "s,s", "s_next"});
    wire_message(&body, GRAPH_NODE, sum);
    NODES(&body, {"Less", "less1", "total,limit", "goes_on"});
    small_input(&body, "s", SMALL_F32, 1, WIDTH, 0);
    small_output(&body, "goes_on", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "s_next", SMALL_F32, 1, WIDTH, 0);
    const float limit = 100;
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("limit", SMALL_F32, 0, NULL, &limit, sizeof limit));
    wire loop = onnx_node("Loop", "loop1", ",,s_in", "s_out");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    small_input(&g, "s_in", SMALL_F32, 1, WIDTH, 0);
    small_output(&g, "s_out", SMALL_F32, 1, WIDTH, 0);
    return small_model(g);
}

/* grown = x after `trips` times Concat(grown, w): the carried value changes its size. */
static wire growing(void)
{
    wire body = loop_body("body"), g = small_graph("growing"),
         concat = onnx_node("Concat", "join", "s,w", "s_next");
    onnx_set_int(&concat, "axis", 0);
    NODES(&body, {"Identity", "keep", "go", "goes_on"});
    wire_message(&body, GRAPH_NODE, concat);
    small_input(&body, "s", SMALL_F32, 1, -1, 0);
    small_output(&body, "goes_on", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "s_next", SMALL_F32, 1, -1, 0);
    wire loop = onnx_node("Loop", "loop1", "trips,,s_in", "grown");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    small_input(&g, "trips", SMALL_I64, 0, 0, 0);
    small_input(&g, "s_in", SMALL_F32, 1, -1, 0);
    small_input(&g, "w", SMALL_F32, 1, WIDTH, 0);
    small_output(&g, "grown", SMALL_F32, 1, -1, 0);
    return small_model(g);
}

/* y = Abs(total < 0 ? t + w : t * w) with the total of x and t = x + total: the data decide. */
static wire branching(void)
{
    wire yes = small_graph("yes"), no = small_graph("no"), g = small_graph("branching");
    NODES(&yes, {"Add", "add2", "t,w", "sum"});
    NODES(&no, {"Mul", "mul2", "t,w", "product"});
    small_output(&yes, "sum", SMALL_F32, 1, WIDTH, 0);
    small_output(&no, "product", SMALL_F32, 1, WIDTH, 0);
    const float zero = 0;
    wire sum = onnx_node("ReduceSum", "sum1", "x", "total");
    onnx_set_int(&sum, "keepdims", 0);
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("zero", SMALL_F32, 0, NULL, &zero, sizeof zero));
    wire_message(&g, GRAPH_NODE, sum);
    NODES(&g, {"Less", "less1", "total,zero", "flag"}, {"Add", "add1", "x,total", "t"});
    wire branch = onnx_node("If", "if1", "flag", "picked");
    onnx_set_graph(&branch, "then_branch", yes);
    onnx_set_graph(&branch, "else_branch", no);
    wire_message(&g, GRAPH_NODE, branch);
    NODES(&g, {"Abs", "abs1", "picked", "y"});
    small_input(&g, "x", SMALL_F32, 1, WIDTH, 0);
    small_input(&g, "w", SMALL_F32, 1, WIDTH, 0);
    small_output(&g, "y", SMALL_F32, 1, WIDTH, 0);
    return small_model(g);
}

/* A loop in a loop: y = x + trips * trips; w goes in and out again in each outer round. */
static wire nested(void)
{
    wire inner = loop_body("inner"), outer = small_graph("outer"), g = small_graph("nested");
    NODES(&inner, {"Identity", "keep2", "go", "goes_on"}, {"Add", "add1", "s,one", "s_next"});
    small_input(&inner, "s", SMALL_F32, 1, WIDTH, 0);
    small_output(&inner, "goes_on", SMALL_BOOL, 0, 0, 0);
    small_output(&inner, "s_next", SMALL_F32, 1, WIDTH, 0);
    small_input(&outer, "j", SMALL_I64, 0, 0, 0);
    small_input(&outer, "on", SMALL_BOOL, 0, 0, 0);
    small_input(&outer, "r", SMALL_F32, 1, WIDTH, 0);
    NODES(&outer, {"Identity", "keep1", "on", "still"}, {"Add", "add2", "r,w", "begun"});
    wire loop = onnx_node("Loop", "loop2", "trips,,begun", "ended");
    onnx_set_graph(&loop, "body", inner);
    wire_message(&outer, GRAPH_NODE, loop);
    NODES(&outer, {"Sub", "sub1", "ended,w", "r_next"});
    small_output(&outer, "still", SMALL_BOOL, 0, 0, 0);
    small_output(&outer, "r_next", SMALL_F32, 1, WIDTH, 0);
    add_one_constant(&g);
    wire first = onnx_node("Loop", "loop1", "trips,,x", "y");
    onnx_set_graph(&first, "body", outer);
    wire_message(&g, GRAPH_NODE, first);
    small_input(&g, "trips", SMALL_I64, 0, 0, 0);
    small_input(&g, "x", SMALL_F32, 1, WIDTH, 0);
    small_input(&g, "w", SMALL_F32, 1, WIDTH, 0);
    small_output(&g, "y", SMALL_F32, 1, WIDTH, 0);
    return small_model(g);
}

/* ---- running --------------------------------------------------------------------------------- */

static json_t *report_of(small_session *s)
{
    gantry_report *report = NULL;
    const char *text = NULL;
    size_t bytes = 0;
    cr_assert_eq(gantry_session_report(s->session, s->run, &report, &s->err), GANTRY_OK);
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_JSON, &text, &bytes, NULL), GANTRY_OK);
    json_t *document = json_loadb(text, bytes, 0, NULL);
    gantry_report_destroy(&report);
    return document;
}

static const json_t *node_row(const json_t *document, const char *name)
{
    size_t k;
    json_t *row;
    json_array_foreach(json_object_get(document, "nodes"), k,
                       row) if (strcmp(json_string_value(json_object_get(row, "name")), name) ==
                                0) return row;
    return NULL;
}

static uint64_t number(const json_t *row, const char *key)
{
    cr_assert(json_is_integer(json_object_get(row, key)), "%s is no count", key);
    return (uint64_t)json_integer_value(json_object_get(row, key));
}

/* The ledger against the device's own counters, and boundaries against the ledger. */
static void check_ledger(small_session *s, const counters *before, const counters *now)
{
    json_t *document = report_of(s), *ledger = json_object_get(document, "ledger");
    const json_t *row = json_array_get(json_object_get(ledger, "devices"), 0);
    const json_t *totals = json_object_get(json_object_get(document, "totals"), "boundaries");
    cr_assert_eq(number(row, "copies"), now->copies - before->copies);
    cr_assert_eq(number(row, "bytes"), now->copied_bytes - before->copied_bytes);
    cr_assert_eq(number(row, "inside_copies"), now->inside_copies - before->inside_copies);
    cr_assert_eq(number(row, "inside_bytes"), now->inside_bytes - before->inside_bytes);
    /* A copy of nothing is executed, but no copy. */
    cr_assert_geq(number(totals, "executions"), now->copies - before->copies);
    cr_assert_eq(number(totals, "bytes"), now->copied_bytes - before->copied_bytes);
    json_decref(document);
}

/* What the device counted in one more run. */
static counters run_counted(small_session *s)
{
    counters before = counted_by(0);
    cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK, "%s", s->err.message);
    counters now = counted_by(0), spent = now;
    check_ledger(s, &before, &now);
    spent.copies -= before.copies;
    spent.copied_bytes -= before.copied_bytes;
    spent.inside_copies -= before.inside_copies;
    spent.inside_bytes -= before.inside_bytes;
    spent.runs -= before.runs;
    spent.syncs -= before.syncs;
    spent.allocations -= before.allocations;
    return spent;
}

static void bind_vector(small_session *s, uint32_t index, float *values)
{
    cr_assert_eq(small_bind(s, index, GANTRY_FLOAT32, 1, WIDTH, 0, values), GANTRY_OK, "%s", s->err.message);
}

static void bind_trips(small_session *s, int64_t *trips)
{
    cr_assert_eq(small_bind(s, 0, GANTRY_INT64, 0, 0, 0, trips), GANTRY_OK);
}

/* Output k is factor * x + addend * w + constant, element by element. */
static void check_output(small_session *s, uint32_t k, float factor, float addend, float constant)
{
    gantry_tensor y = small_result(s, k);
    cr_assert_eq(y.rank, 1);
    for (int e = 0; e < WIDTH; e++)
        cr_assert_eq(small_floats_of(&y)[e], factor * x[e] + addend * w[e] + constant, "element %d: %g", e,
                     (double)small_floats_of(&y)[e]);
}

/* ---- carried values -------------------------------------------------------------------------- */

static float after(float value, int64_t trips, bool host_inside)
{
    for (int64_t k = 0; k < trips; k++)
        value = host_inside || value + 1 > 0 ? value + 1 : -(value + 1);
    return value;
}

static void check_carried(small_session *s, int64_t trips, bool host_inside)
{
    gantry_tensor y = small_result(s, 0);
    for (int e = 0; e < WIDTH; e++)
        cr_assert_eq(small_floats_of(&y)[e], after(x[e], trips, host_inside), "element %d after %d trips", e,
                     (int)trips);
}

ON_BOTH(control_device, state_stays_on_the_device)
{
    static const int64_t TRIPS[] = {64, 1, 2, 0, 64, 3};
    small_session s = open_on(carried(false), "", ON_DEV);
    bind_vector(&s, 1, x);
    for (size_t k = 0; k < sizeof TRIPS / sizeof *TRIPS; k++) {
        int64_t trips = TRIPS[k];
        bind_trips(&s, &trips);
        counters spent = run_counted(&s);
        check_carried(&s, trips, false);
        cr_assert_eq(spent.copies, 2, "one in, one out");
        cr_assert_eq(spent.copied_bytes, 2 * BYTES);
        cr_assert_eq(spent.inside_copies, trips == 0, "the last buffer is handed over; the first is copied");
        cr_assert_eq(spent.runs, (uint64_t)trips);
        cr_assert_leq(spent.syncs, 3, "%d waits: iterations wait for nothing", (int)spent.syncs);
    }
    small_close(&s);
}

/* R3: two static edges inside, 128 executed copies, and one way in and out. */
ON_BOTH(control_device, a_host_node_in_the_body_costs_two_copies_an_iteration)
{
    int64_t trips = 64;
    small_session s = open_on(carried(true), "", ON_DEV);
    bind_trips(&s, &trips);
    bind_vector(&s, 1, x);
    for (int turn = 0; turn < 3; turn++) {
        counters spent = run_counted(&s);
        check_carried(&s, trips, true);
        cr_assert_eq(spent.copies, 2 * 64 + 2);
    }
    small_close(&s);
}

ON_BOTH(control_device, a_pinned_body_costs_nothing)
{
    int64_t trips = 64;
    small_session s = open_on(carried(true), "", ON_DEV ";pin.loop1.body=cpu");
    bind_trips(&s, &trips);
    bind_vector(&s, 1, x);
    cr_assert_eq(run_counted(&s).copies, 0);
    check_carried(&s, trips, true);
    small_close(&s);
}

ON_BOTH(control_device, bound_on_the_device_nothing_crosses)
{
    int64_t trips = 5, dims[1] = {WIDTH};
    small_session s = open_on(carried(false), "", ON_DEV ";bind.s_in=dev;bind.s_out=dev");
    gantry_buffer in = {0}, out = {0};
    float y[WIDTH];
    cr_assert_eq(gantry_memory_alloc(s.runtime, "dev", BYTES, &in, &s.err), GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(gantry_memory_alloc(s.runtime, "dev", BYTES, &out, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_memory_copy(s.runtime, "dev", in, "host", (gantry_buffer){x, 0}, BYTES, &s.err),
                 GANTRY_OK);
    gantry_tensor tensor = small_tensor(GANTRY_FLOAT32, 1, dims, in.handle, BYTES);
    tensor.domain = "dev";
    bind_trips(&s, &trips);
    cr_assert_eq(gantry_run_bind_input(s.run, 1, &tensor, &s.err), GANTRY_OK, "%s", s.err.message);
    tensor.buffer = out;
    cr_assert_eq(gantry_run_bind_output(s.run, 0, &tensor, &s.err), GANTRY_OK, "%s", s.err.message);
    counters spent = run_counted(&s);
    cr_assert_eq(spent.copies, 0);
    cr_assert_eq(spent.inside_copies, 1, "into the caller's buffer");
    cr_assert_eq(gantry_memory_copy(s.runtime, "host", (gantry_buffer){y, 0}, "dev", out, BYTES, &s.err),
                 GANTRY_OK);
    for (int e = 0; e < WIDTH; e++)
        cr_assert_eq(y[e], after(x[e], trips, false));
    gantry_memory_free(s.runtime, "dev", &in);
    gantry_memory_free(s.runtime, "dev", &out);
    small_close(&s);
}

ON_BOTH(control_device, a_carried_value_may_grow)
{
    static const int64_t TRIPS[] = {3, 0, 7, 1, 7};
    small_session s = open_on(growing(), "", ON_DEV);
    bind_vector(&s, 1, x);
    bind_vector(&s, 2, w);
    for (size_t k = 0; k < sizeof TRIPS / sizeof *TRIPS; k++) {
        int64_t trips = TRIPS[k];
        bind_trips(&s, &trips);
        counters spent = run_counted(&s);
        cr_assert_eq(spent.copies, 3, "x and w in, the result out: %d", (int)spent.copies);
        cr_assert_eq(spent.copied_bytes, (2 + 1 + (uint64_t)trips) * BYTES);
        gantry_tensor y = small_result(&s, 0);
        cr_assert_eq(y.dims[0], WIDTH * (1 + trips));
        for (int e = 0; e < y.dims[0]; e++)
            cr_assert_eq(small_floats_of(&y)[e], e < WIDTH ? x[e] : w[e % WIDTH]);
    }
    small_close(&s);
}

/* ---- captures and scan outputs --------------------------------------------------------------- */

ON_BOTH(control_device, captures_move_once_an_entry)
{
    int64_t trips = 10;
    small_session s = open_on(capturing(false, false), "", ON_DEV);
    bind_trips(&s, &trips);
    bind_vector(&s, 1, x);
    bind_vector(&s, 2, w);
    for (int turn = 0; turn < 2; turn++) {
        cr_assert_eq(run_counted(&s).copies, 3, "s_in and w in, s_out out");
        check_output(&s, 0, 1, 20, 0);
    }
    small_close(&s);
}

ON_BOTH(control_device, a_capture_that_both_sides_read_is_on_both)
{
    int64_t trips = 10;
    small_session s = open_on(capturing(true, true), "", ON_DEV);
    bind_trips(&s, &trips);
    bind_vector(&s, 1, x);
    bind_vector(&s, 2, w);
    /* s_in, w and v once; the host's result in each round; both results out. */
    counters spent = run_counted(&s);
    cr_assert_eq(spent.copies, 3 + 10 + 2, "%d copies", (int)spent.copies);
    check_output(&s, 0, 1, 20, 0);
    small_close(&s);
}

ON_BOTH(control_device, scan_outputs_pile_up_on_the_device)
{
    static const int64_t TRIPS[] = {5, 40, 0, 40, 1};
    small_session s = open_on(capturing(false, true), "", ON_DEV);
    bind_vector(&s, 1, x);
    bind_vector(&s, 2, w);
    for (size_t k = 0; k < sizeof TRIPS / sizeof *TRIPS; k++) {
        int64_t trips = TRIPS[k];
        bind_trips(&s, &trips);
        counters spent = run_counted(&s);
        cr_assert_eq(spent.copies, trips ? 4 : 3,
                     "s_in and w in, both results out (nothing of an empty one)");
        gantry_tensor big = small_result(&s, 1);
        cr_assert_eq(big.dims[0], trips);
        for (int e = 0; e < trips * WIDTH; e++) {
            float made = 2 * (x[e % WIDTH] + (float)(int)(e / WIDTH) * 2 * w[e % WIDTH]);
            cr_assert_eq(small_floats_of(&big)[e], made < 0 ? -made : made, "element %d", e);
        }
    }
    small_close(&s);
}

/* ---- conditions ------------------------------------------------------------------------------ */

ON_BOTH(control_device, a_condition_on_the_device_costs_one_small_copy_an_iteration)
{
    small_session s = open_on(until(), "", ON_DEV);
    bind_vector(&s, 0, x);
    counters spent = run_counted(&s);
    /* The sum of x is 2.5: 40 after four times, 160 after six. */
    cr_assert_eq(spent.runs, 6);
    cr_assert_eq(spent.copies, 2 + 6);
    cr_assert_eq(spent.copied_bytes, 2 * BYTES + 6);
    check_output(&s, 0, 64, 0, 0);
    small_close(&s);
}

static void check_branch(small_session *s, const float *given)
{
    gantry_tensor y = small_result(s, 0);
    float total = given[0] + given[1] + given[2] + given[3];
    for (int e = 0; e < WIDTH; e++) {
        float picked = total < 0 ? given[e] + total + w[e] : (given[e] + total) * w[e];
        cr_assert_eq(small_floats_of(&y)[e], picked < 0 ? -picked : picked, "element %d", e);
    }
}

ON_BOTH(control_device, branches_leave_their_results_on_the_device)
{
    float given[WIDTH] = {1, -2, 3, 0.5f};
    small_session s = open_on(branching(), "", ON_DEV);
    bind_vector(&s, 0, given);
    bind_vector(&s, 1, w);
    for (int turn = 0; turn < 4; turn++) {
        for (int e = 0; e < WIDTH; e++)
            given[e] = -given[e];
        cr_assert_eq(run_counted(&s).copies, 4, "x and w in, the condition and y out");
        check_branch(&s, given);
    }
    small_close(&s);
}

ON_BOTH(control_device, loops_inside_of_loops)
{
    small_session s = open_on(nested(), "", ON_DEV);
    bind_vector(&s, 1, x);
    bind_vector(&s, 2, w);
    for (int64_t trips = 4; trips >= 0; trips--) {
        bind_trips(&s, &trips);
        counters spent = run_counted(&s);
        cr_assert_eq(spent.copies, 3, "x and w in, y out: %d", (int)spent.copies);
        check_output(&s, 0, 1, 0, (float)(trips * trips));
    }
    small_close(&s);
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void check_steady(wire model, int64_t trips, int vectors, const char *what)
{
    small_allocator = &counting_allocator;
    small_session s = open_on(model, "", ON_DEV);
    bind_trips(&s, &trips);
    bind_vector(&s, 1, x);
    if (vectors > 1)
        bind_vector(&s, 2, w);
    for (int k = 0; k < 4; k++)
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
    uint64_t before = asked, own = counted_by(0).allocations;
    for (int k = 0; k < 10; k++)
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK);
    cr_assert_eq(asked, before, "%s: %d allocations", what, (int)(asked - before));
    cr_assert_eq(counted_by(0).allocations, own, "%s: blocks of the device", what);
    small_close(&s);
}

ON_BOTH(control_device, steady_iterations_allocate_nothing)
{
    check_steady(carried(false), 9, 1, "carried");
    check_steady(carried(true), 9, 1, "with a host node");
    check_steady(capturing(false, true), 9, 2, "scan output");
    check_steady(nested(), 3, 2, "nested");
}

/* A shape that the device refuses inside of a body: the same edges, another placement of the body. */
ON_BOTH(control_device, a_refused_shape_inside_of_a_body)
{
    static const int64_t WIDTHS[] = {4, 64, 4, 64};
    wire body = loop_body("body"), g = small_graph("limited");
    NODES(&body, {"Identity", "keep", "go", "goes_on"}, {"Add", "add1", "s,one", "t"},
          {"Abs", "abs1", "t", "s_next"});
    small_input(&body, "s", SMALL_F32, 1, -1, 0);
    small_output(&body, "goes_on", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "s_next", SMALL_F32, 1, -1, 0);
    add_one_constant(&g);
    wire loop = onnx_node("Loop", "loop1", "trips,,s_in", "s_out");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    small_input(&g, "trips", SMALL_I64, 0, 0, 0);
    small_input(&g, "s_in", SMALL_F32, 1, -1, 0);
    small_output(&g, "s_out", SMALL_F32, 1, -1, 0);
    small_session s =
        open_on(small_model(g),
                ", \"limits\": [{\"op\": \"Abs\", \"what\": \"input0.dim[-1]\", \"max\": 16}]", ON_DEV);
    int64_t trips = 6;
    float wide[64];
    for (int k = 0; k < 64; k++)
        wide[k] = (float)k;
    bind_trips(&s, &trips);
    for (size_t k = 0; k < 4; k++) {
        cr_assert_eq(small_bind(&s, 1, GANTRY_FLOAT32, 1, WIDTHS[k], 0, wide), GANTRY_OK);
        counters spent = run_counted(&s);
        cr_assert_eq(spent.copies, WIDTHS[k] == 4 ? 2 : 2 + 2 * 6, "turn %d: %d copies", (int)k,
                     (int)spent.copies);
        gantry_tensor y = small_result(&s, 0);
        for (int e = 0; e < WIDTHS[k]; e++)
            cr_assert_eq(small_floats_of(&y)[e], wide[e] + 6, "turn %d, element %d", (int)k, e);
    }
    small_close(&s);
}

/* Every call of the device may fail; the next run is right. */
Test(control_device, failures_inside_of_a_body)
{
    static const char *const CALLS[] = {"run", "copy", "sync", "alloc", "run_late"};
    for (size_t c = 0; c < sizeof CALLS / sizeof *CALLS; c++)
        for (int nth = 1; nth < 12; nth++) {
            char keys[64];
            snprintf(keys, sizeof keys, ", \"fail\": {\"%s\": %d}", CALLS[c], nth);
            small_session s = small_open_with(nested(), FAKE, config(keys), ON_DEV);
            if (s.status != GANTRY_OK) {
                small_close(&s);
                continue;
            }
            int64_t trips = 2;
            bind_trips(&s, &trips);
            bind_vector(&s, 1, x);
            bind_vector(&s, 2, w);
            for (int turn = 0, failed = 0; turn < 4; turn++) {
                gantry_status status = gantry_run_execute(s.run, &s.err);
                failed += status != GANTRY_OK;
                cr_assert(status == GANTRY_OK || strstr(s.err.message, "scripted failure"), "%s %d: %s",
                          CALLS[c], nth, s.err.message);
                cr_assert_leq(failed, 1, "%s %d", CALLS[c], nth);
                if (status == GANTRY_OK)
                    check_output(&s, 0, 1, 0, 4);
            }
            small_close(&s);
        }
}

ON_BOTH(control_device, timed_and_checked_iterations)
{
    static const char *const MODES[] = {ON_DEV ";timing=events", ON_DEV ";timing=fenced",
                                        ON_DEV ";numeric_check=on"};
    for (size_t m = 0; m < sizeof MODES / sizeof *MODES; m++) {
        int64_t trips = 5;
        small_session s = open_on(carried(true), "", MODES[m]);
        bind_trips(&s, &trips);
        bind_vector(&s, 1, x);
        for (int turn = 0; turn < 3; turn++) {
            cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
            check_carried(&s, trips, true);
        }
        json_t *document = report_of(&s);
        const json_t *row = node_row(document, "loop1.body.add1");
        cr_assert_eq(number(row, "executions"), 5);
        cr_assert(m == 2 || json_is_real(json_object_get(row, "us")), "%s", MODES[m]);
        json_decref(document);
        small_close(&s);
    }
}

/* ---- control nodes as a whole ---------------------------------------------------------------- */

/* The first device refuses control flow, the second takes the node with its bodies: one program, no step of
 * the executor's. */
static const char *second_takes(const char *ops)
{
    static char text[1200];
    snprintf(
        text, sizeof text,
        "{\"counters_file\": \"%s\", \"devices\": [{\"name\": \"dev\", \"ops\": {\"Neg\": [\"float32\"]}}, "
        "{\"name\": \"whole\", \"ops\": {\"Add\": [\"float32\"], \"Sub\": [\"float32\"], \"Mul\": "
        "[\"float32\"], \"Abs\": [\"float32\"]%s}}]}",
        counters_path, ops);
    return text;
}

static void check_whole(small_session *s, const char *name, const char *op)
{
    json_t *document = report_of(s);
    const json_t *row = node_row(document, name);
    cr_assert_not_null(row);
    cr_assert_str_eq(json_string_value(json_object_get(row, "provider")), "whole");
    const json_t *candidate = json_array_get(json_object_get(row, "candidates"), 0);
    cr_assert_str_eq(json_string_value(json_object_get(candidate, "reason")), "control_flow", "%s on dev",
                     op);
    size_t k;
    json_t *partition;
    json_array_foreach(json_object_get(document, "partitions"), k, partition)
        cr_assert(json_is_false(json_object_get(partition, "control")));
    json_decref(document);
}

Test(control_device, a_provider_takes_a_loop_with_its_body)
{
    int64_t trips = 10;
    small_session s = small_open_with(capturing(false, false), FAKE, second_takes(", \"Loop\": [\"int64\"]"),
                                      "providers=dev,whole,cpu;plan=priority");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    bind_vector(&s, 1, x);
    bind_vector(&s, 2, w);
    for (; trips >= 0; trips -= 5) {
        bind_trips(&s, &trips);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        check_output(&s, 0, 1, 2 * (float)trips, 0);
    }
    check_whole(&s, "loop1", "Loop");
    small_close(&s);
}

Test(control_device, a_provider_takes_an_if_with_its_branches)
{
    float given[WIDTH] = {1, -2, 3, 0.5f};
    small_session s = small_open_with(branching(), FAKE, second_takes(", \"If\": [\"bool\"]"),
                                      "providers=dev,whole,cpu;plan=priority");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    bind_vector(&s, 0, given);
    bind_vector(&s, 1, w);
    for (int turn = 0; turn < 4; turn++) {
        for (int e = 0; e < WIDTH; e++)
            given[e] = -given[e];
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        check_branch(&s, given);
    }
    check_whole(&s, "if1", "If");
    small_close(&s);
}

/* ---- several devices ------------------------------------------------------------------------- */

/* The first device refuses wide shapes of Abs, inside of the body; the second takes them. */
ON_BOTH(control_device, a_shape_moves_to_the_second_device_and_back)
{
    static const int64_t WIDTHS[] = {4, 64, 4, 64};
    char text[1200];
    snprintf(text, sizeof text,
             "{\"counters_file\": \"%s\", \"devices\": [{\"name\": \"a\", \"ops\": {\"Add\": [\"float32\"], "
             "\"Abs\": [\"float32\"]}, \"limits\": [{\"op\": \"Abs\", \"what\": \"input0.dim[-1]\", \"max\": "
             "16}]}, "
             "{\"name\": \"b\", \"ops\": {\"Abs\": [\"float32\"]}}]}",
             counters_path);
    wire body = loop_body("body"), g = small_graph("two_devices");
    NODES(&body, {"Identity", "keep", "go", "goes_on"}, {"Add", "add1", "s,one", "t"},
          {"Abs", "abs1", "t", "s_next"});
    small_input(&body, "s", SMALL_F32, 1, -1, 0);
    small_output(&body, "goes_on", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "s_next", SMALL_F32, 1, -1, 0);
    add_one_constant(&g);
    wire loop = onnx_node("Loop", "loop1", "trips,,s_in", "s_out");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    small_input(&g, "trips", SMALL_I64, 0, 0, 0);
    small_input(&g, "s_in", SMALL_F32, 1, -1, 0);
    small_output(&g, "s_out", SMALL_F32, 1, -1, 0);
    small_session s = small_open_with(small_model(g), both_plugin, text, "providers=a,b,cpu;plan=priority");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    int64_t trips = 6;
    uint64_t made = 0;
    float wide[64];
    for (int k = 0; k < 64; k++)
        wide[k] = (float)k;
    bind_trips(&s, &trips);
    for (size_t k = 0; k < 4; k++) {
        cr_assert_eq(small_bind(&s, 1, GANTRY_FLOAT32, 1, WIDTHS[k], 0, wide), GANTRY_OK);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0);
        for (int e = 0; e < WIDTHS[k]; e++)
            cr_assert_eq(small_floats_of(&y)[e], wide[e] + 6, "turn %d, element %d", (int)k, e);
        json_t *document = report_of(&s);
        const json_t *row = node_row(document, "loop1.body.abs1");
        cr_assert_str_eq(json_string_value(json_object_get(row, "provider")), WIDTHS[k] == 4 ? "a" : "b");
        const json_t *lookups = json_object_get(json_object_get(document, "run"), "plan_lookups");
        if (k >= 2)
            cr_assert_eq(number(lookups, "made"), made, "turn %d uses the plans of turn %d", (int)k,
                         (int)k - 2);
        made = number(lookups, "made");
        json_decref(document);
    }
    small_close(&s);
}
