/* Copies: between devices, through pinned memory, of memory of the caller's; and the ledger, which must agree
 * with what the devices counted. */
#include "transfers_fixture.h"

TestSuite(transfers, .init = begin, .fini = end);
TestSuite(transfers_opencl, .init = begin_opencl, .fini = end);

/* ---- between devices ------------------------------------------------------------------------- */

ON_BOTH(transfers, devices_that_are_no_peers_copy_through_the_host)
{
    small_session s = open_on(there_and_back(), "", BOTH);
    small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
    json_t *ledger = checked_ledger(&s);
    check_there_and_back(&s);
    check_row(ledger, "x", "a", "input", "staged");
    cr_assert_str_eq(json_string_value(json_object_get(row_of(ledger, "x", "a"), "queue")), "compute");
    check_row(ledger, "n", "host", "staging", "staged");
    check_row(ledger, "n", "b", "boundary", "staged");
    check_row(ledger, "r", "a", "boundary", "staged");
    check_row(ledger, "y", "host", "output", "direct");
    cr_assert_eq(json_array_size(json_object_get(ledger, "rows")), 6);
    cr_assert_eq(number(ledger, "crossing_bytes"), 6 * BYTES);
    json_decref(ledger);
    small_close(&s);
}

Test(transfers, peers_copy_from_each_other)
{
    small_session s = open_on(there_and_back(), ", \"peers\": true", BOTH);
    small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
    json_t *ledger = checked_ledger(&s);
    check_there_and_back(&s);
    check_row(ledger, "n", "b", "boundary", "peer");
    check_row(ledger, "r", "a", "boundary", "peer");
    cr_assert_null(row_of(ledger, "n", "host"));
    cr_assert_eq(counted_by(1).copies, 0, "b has nothing to do with the host");
    cr_assert_eq(number(ledger, "crossing_bytes"), 4 * BYTES);
    json_decref(ledger);
    small_close(&s);
}

/* ---- pinned memory --------------------------------------------------------------------------- */

static uint64_t pinned_of(const json_t *ledger)
{
    size_t k;
    json_t *row;
    uint64_t bytes = 0;
    json_array_foreach(json_object_get(ledger, "rows"), k, row) bytes +=
        json_is_true(json_object_get(row, "pinned")) ? number(row, "bytes") : 0;
    return bytes;
}

/* Runs once more; the pinned bytes of the ledger are those that the devices counted, which is *out_bytes. */
static json_t *pinned_ledger(small_session *s, uint64_t *out_bytes)
{
    uint64_t before = counted_by(0).pinned_bytes + counted_by(1).pinned_bytes;
    json_t *ledger = checked_ledger(s);
    *out_bytes = counted_by(0).pinned_bytes + counted_by(1).pinned_bytes - before;
    cr_assert_eq(pinned_of(ledger), *out_bytes);
    return ledger;
}

ON_BOTH(transfers, copies_go_from_and_to_pinned_memory)
{
    uint64_t pinned;
    small_session s = open_on(there_and_back(), "", BOTH);
    small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
    json_t *ledger = pinned_ledger(&s, &pinned);
    cr_assert_eq(pinned, 6 * BYTES, "every copy");
    cr_assert_eq(number(ledger, "pageable_bytes"), 0);
    cr_assert_gt(number(ledger, "pinned_memory_bytes"), 0);
    check_row(ledger, "y", "host", "output", "direct");
    json_decref(ledger);
    /* A buffer of the caller's is pageable: the result goes through pinned memory. */
    float y[COUNT] = {0};
    gantry_tensor out = small_tensor(GANTRY_FLOAT32, 0, NULL, y, sizeof y);
    cr_assert_eq(gantry_run_bind_output(s.run, 0, &out, &s.err), GANTRY_OK);
    ledger = pinned_ledger(&s, &pinned);
    check_row(ledger, "y", "host", "output", "staged");
    cr_assert_eq(pinned, 6 * BYTES);
    check_there_and_back(&s);
    cr_assert_eq(y[0], 5);
    json_decref(ledger);
    small_close(&s);
}

ON_BOTH(transfers, without_pinned_memory_copies_go_straight)
{
    static const struct {
        const char *keys, *options;
        bool wanted;
    } ways[] = {{", \"pinned\": false", BOTH, true},
                {"", BOTH ";staging_limit=0", false},
                {"", BOTH ";staging_limit=100", true}};
    for (int k = 0; k < 3; k++) {
        uint64_t pinned;
        small_session s = open_on(there_and_back(), ways[k].keys, ways[k].options);
        small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
        json_t *ledger = pinned_ledger(&s, &pinned);
        cr_assert_eq(pinned, 0, "%s%s", ways[k].keys, ways[k].options);
        check_row(ledger, "x", "a", "input", "direct");
        cr_assert_eq(number(ledger, "pageable_bytes"), ways[k].wanted ? 6 * BYTES : 0);
        check_there_and_back(&s);
        json_decref(ledger);
        small_close(&s);
    }
}

#define LARGE_ROWS 200000
#define LARGE ((size_t)LARGE_ROWS * 4)

/* Much more than the halves that it goes through: every piece has to be the right one. */
static void check_large(const char *keys, const char *options, uint64_t limit)
{
    uint64_t pinned;
    float *in = malloc(LARGE * sizeof *in), *out = malloc(LARGE * sizeof *out);
    small_session s = open_on(there_and_back(), keys, options);
    gantry_tensor y = small_tensor(GANTRY_FLOAT32, 0, NULL, out, LARGE * sizeof *out);
    small_bind(&s, 0, GANTRY_FLOAT32, 2, LARGE_ROWS, 4, in);
    gantry_run_bind_output(s.run, 0, &y, &s.err);
    for (int round = 0; round < 3; round++) {
        for (size_t k = 0; k < LARGE; k++)
            in[k] = (float)(k % 100003) - (float)(round * 40000);
        json_t *ledger = pinned_ledger(&s, &pinned);
        const json_t *row = row_of(ledger, "x", "a");
        cr_assert_eq(number(row, "executions"), 1);
        cr_assert_gt(number(row, "copies"), 3, "it goes in pieces");
        cr_assert_leq(number(ledger, "pinned_memory_bytes"), limit);
        cr_assert_geq(pinned, 2 * LARGE * sizeof *in, "input and output");
        json_decref(ledger);
        for (size_t k = 0; k < LARGE; k++)
            cr_assert_eq(out[k], in[k] < 0 ? -in[k] : 0, "element %zu", k);
    }
    small_close(&s);
    free(in);
    free(out);
}

ON_BOTH(transfers, large_copies_go_in_pieces)
{
    check_large("", BOTH, 64 << 20);
    check_large(both_is_fake() ? ", \"queues\": 2, \"peers\": true" : ", \"queues\": 2",
                BOTH ";staging_limit=100000", 100000);
    check_large(", \"late\": false, \"queues\": 2", BOTH ";staging_limit=1000000", 1000000);
}

ON_BOTH(transfers, pinned_memory_is_part_of_memory_limit)
{
    small_session s = open_on(there_and_back(), "", BOTH ";memory_limit=4000");
    small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
    json_t *ledger = checked_ledger(&s);
    check_there_and_back(&s);
    cr_assert_leq(number(ledger, "pinned_memory_bytes"), 4000);
    json_decref(ledger);
    small_close(&s);
}

/* ---- memory of the caller on devices --------------------------------------------------------- */

static gantry_buffer take(small_session *s, const char *domain, const void *data)
{
    gantry_buffer buffer;
    cr_assert_eq(gantry_memory_alloc(s->runtime, domain, BYTES, &buffer, &s->err), GANTRY_OK);
    if (data)
        cr_assert_eq(gantry_memory_copy(s->runtime, domain, buffer, "host",
                                        (gantry_buffer){(void *)(uintptr_t)data, 0}, BYTES, &s->err),
                     GANTRY_OK, "%s", s->err.message);
    return buffer;
}

static gantry_tensor tensor_in(const char *domain, gantry_buffer buffer, const int64_t *dims)
{
    return (gantry_tensor){sizeof(gantry_tensor), GANTRY_FLOAT32, 2, dims, NULL, domain, buffer, BYTES};
}

static const int64_t SHAPE[2] = {ROWS, 4};

static void bind_on_devices(small_session *s, const char *input, gantry_buffer in, const char *output,
                            gantry_buffer out)
{
    gantry_tensor x_tensor = tensor_in(input, in, SHAPE), y_tensor = tensor_in(output, out, SHAPE);
    cr_assert_eq(gantry_run_bind_input(s->run, 0, &x_tensor, &s->err), GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(gantry_run_bind_output(s->run, 0, &y_tensor, &s->err), GANTRY_OK, "%s", s->err.message);
}

/* The input lies on b, the output on the other device: only what changes devices is copied. */
ON_BOTH(transfers, inputs_and_outputs_lie_on_two_devices)
{
    for (int peers = 0; peers < PEERS; peers++) {
        float y[COUNT];
        small_session s =
            open_on(there_and_back(), peers ? ", \"peers\": true" : "", BOTH ";bind.x=b;bind.y=b");
        gantry_buffer in = take(&s, "b", x), out = take(&s, "b", NULL);
        bind_on_devices(&s, "b", in, "b", out);
        json_t *ledger = checked_ledger(&s);
        check_row(ledger, "x", "a", "input", peers ? "peer" : "staged");
        check_row(ledger, "y", "b", "output", peers ? "peer" : "staged");
        cr_assert_eq(number(ledger, "crossing_bytes"), (peers ? 4 : 8) * BYTES);
        cr_assert_eq(gantry_memory_copy(s.runtime, "host", (gantry_buffer){y, 0}, "b", out, BYTES, &s.err),
                     GANTRY_OK);
        for (int k = 0; k < COUNT; k++)
            cr_assert_eq(y[k], x[k] < 0 ? -x[k] : 0, "element %d", k);
        json_decref(ledger);
        gantry_memory_free(s.runtime, "b", &in);
        gantry_memory_free(s.runtime, "b", &out);
        small_close(&s);
    }
}

/* y = Abs(Neg(x)) stays on a, and comes back as x 64 times. */
static wire one_device(void)
{
    wire g = small_graph("one");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "n"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "n,x2", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_input(&g, "x2", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    return small_model(g);
}

ON_BOTH(transfers, state_that_is_fed_back_on_a_device_is_never_copied)
{
    float y[COUNT];
    small_session s = open_on(one_device(), "", BOTH ";bind.x=a;bind.x2=a;bind.y=a");
    gantry_buffer state[2] = {take(&s, "a", x), take(&s, "a", NULL)}, other = take(&s, "a", z);
    gantry_tensor z_tensor = tensor_in("a", other, SHAPE);
    cr_assert_eq(gantry_run_bind_input(s.run, 1, &z_tensor, &s.err), GANTRY_OK);
    counters before = counted_by(0);
    for (int k = 0; k < 64; k++) {
        bind_on_devices(&s, "a", state[k % 2], "a", state[(k + 1) % 2]);
        run(&s);
    }
    counters after = counted_by(0);
    cr_assert_eq(after.copied_bytes, before.copied_bytes);
    cr_assert_eq(after.inside_bytes, before.inside_bytes);
    cr_assert_eq(after.runs, before.runs + 64);
    cr_assert_eq(gantry_memory_copy(s.runtime, "host", (gantry_buffer){y, 0}, "a", state[0], BYTES, &s.err),
                 GANTRY_OK);
    for (int k = 0; k < COUNT; k++)
        cr_assert_eq(y[k], x[k], "64 times z - x is x again");
    for (int k = 0; k < 2; k++)
        gantry_memory_free(s.runtime, "a", &state[k]);
    gantry_memory_free(s.runtime, "a", &other);
    small_close(&s);
}

ON_BOTH(transfers, memory_that_others_made_is_imported)
{
    float y[COUNT];
    gantry_buffer mine, none;
    small_session s = open_on(there_and_back(), "", BOTH ";bind.x=a");
    gantry_buffer native = take(&s, "a", x);
    cr_assert_eq(gantry_memory_import(s.runtime, "a", native.handle, BYTES, &mine, &s.err), GANTRY_OK, "%s",
                 s.err.message);
    gantry_memory_free(s.runtime, "a", &native);
    gantry_tensor t = tensor_in("a", mine, SHAPE);
    cr_assert_eq(gantry_run_bind_input(s.run, 0, &t, &s.err), GANTRY_OK);
    run(&s);
    check_there_and_back(&s);
    if (both_is_fake()) { /* a driver of OpenCL looks into what it is given */
        cr_assert_eq(gantry_memory_import(s.runtime, "a", y, BYTES, &none, &s.err), GANTRY_INVALID_ARGUMENT);
        cr_assert_null(none.handle);
    }
    cr_assert_eq(gantry_memory_import(s.runtime, "host", y, BYTES, &none, &s.err), GANTRY_UNSUPPORTED);
    cr_assert_eq(gantry_memory_import(s.runtime, "c", y, BYTES, &none, &s.err), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_memory_import(s.runtime, "a", mine.handle, BYTES + 1, &none, &s.err),
                 GANTRY_INVALID_ARGUMENT, "larger than it is");
    gantry_memory_free(s.runtime, "a", &mine);
    cr_assert_null(mine.handle);
    small_close(&s);
}

ON_BOTH(transfers, the_caller_copies_from_device_to_device)
{
    for (int peers = 0; peers < PEERS; peers++) {
        float y[COUNT] = {0};
        small_session s = open_on(there_and_back(), peers ? ", \"peers\": true" : "", BOTH);
        gantry_buffer a = take(&s, "a", z), b = take(&s, "b", NULL);
        counters before = counted_by(1);
        cr_assert_eq(gantry_memory_copy(s.runtime, "b", b, "a", a, BYTES, &s.err), GANTRY_OK, "%s",
                     s.err.message);
        cr_assert_eq(counted_by(1).peer_bytes - before.peer_bytes, peers ? BYTES : 0);
        cr_assert_eq(counted_by(1).copied_bytes - before.copied_bytes, peers ? 0 : BYTES);
        cr_assert_eq(gantry_memory_copy(s.runtime, "host", (gantry_buffer){y, 0}, "b", b, BYTES, &s.err),
                     GANTRY_OK);
        for (int k = 0; k < COUNT; k++)
            cr_assert_eq(y[k], z[k], "element %d", k);
        gantry_memory_free(s.runtime, "a", &a);
        gantry_memory_free(s.runtime, "b", &b);
        small_close(&s);
    }
}

/* Handles of a device are no addresses: two of them never overlap, however close they are. */
ON_BOTH(transfers, buffers_of_devices_overlap_only_in_one_handle)
{
    small_session s = open_on(there_and_back(), "", BOTH ";bind.x=a;bind.y=a");
    gantry_buffer in = take(&s, "a", x), out = take(&s, "a", NULL);
    bind_on_devices(&s, "a", in, "a", (gantry_buffer){in.handle, 64});
    cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_INVALID_ARGUMENT);
    bind_on_devices(&s, "a", in, "a", out);
    run(&s);
    gantry_memory_free(s.runtime, "a", &in);
    gantry_memory_free(s.runtime, "a", &out);
    small_close(&s);
}

/* ---- measured costs -------------------------------------------------------------------------- */

static double cost_of(small_session *s, const char **out_source)
{
    gantry_report *report = NULL;
    const char *text = NULL;
    cr_assert_eq(gantry_session_report(s->session, NULL, &report, &s->err), GANTRY_OK);
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_JSON, &text, NULL, NULL), GANTRY_OK);
    json_t *document = json_loads(text, 0, NULL),
           *domain = json_array_get(json_object_get(document, "domains"), 1);
    double us = json_number_value(json_object_get(domain, "to_device_us"));
    *out_source = strcmp(json_string_value(json_object_get(domain, "cost_source")), "measured") == 0
                      ? "measured"
                      : "assumed";
    json_decref(document);
    gantry_report_destroy(&report);
    return us;
}

/* The device says that copies cost nothing; they take 3 ms. */
Test(transfers, probed_costs_replace_assumed_ones)
{
    const char *const keys =
        ", \"assumed_latency_us\": 0, \"assumed_gbps\": 100, \"copy_us\": 3000, \"work_us\": "
        "{\"Neg\": 0.001, \"Abs\": 0.001, \"Relu\": 0.001}";
    const char *source;
    small_session plain = open_on(there_and_back(), keys, "providers=a,b,cpu");
    cr_assert_lt(cost_of(&plain, &source), 3000);
    cr_assert_str_eq(source, "assumed");
    uint64_t copies = counted_by(0).copies;
    cr_assert_eq(copies, 0, "nobody measured");
    small_close(&plain);
    small_session probed = open_on(there_and_back(), keys, "providers=a,b,cpu;probe=on");
    cr_assert_geq(cost_of(&probed, &source), 3000);
    cr_assert_str_eq(source, "measured");
    copies = counted_by(0).copies;
    cr_assert_gt(copies, 0);
    small_bind(&probed, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
    run(&probed);
    check_there_and_back(&probed);
    cr_assert_eq(counted_by(0).copies, copies, "copies of 3 ms are worth no Neg of 8 rows");
    gantry_session *second = NULL;
    gantry_options *options = NULL;
    wire model = there_and_back();
    cr_assert_eq(gantry_options_create(&options, NULL), GANTRY_OK);
    cr_assert_eq(gantry_options_set(options, "providers", "a,b,cpu", NULL), GANTRY_OK);
    cr_assert_eq(gantry_options_set(options, "probe", "on", NULL), GANTRY_OK);
    cr_assert_eq(gantry_session_create_from_memory(probed.runtime, model.data, model.size, options, &second,
                                                   NULL, NULL),
                 GANTRY_OK);
    cr_assert_eq(counted_by(0).copies, copies, "once a runtime");
    gantry_session_destroy(&second, NULL);
    gantry_options_destroy(&options);
    wire_free(&model);
    small_close(&probed);
}

/* The first copy of the device fails: that is the measurement's. */
Test(transfers, a_measurement_that_fails_is_in_the_report)
{
    static const struct {
        const char *keys, *options, *note;
    } cases[] = {{", \"fail\": {\"copy\": 1}", BOTH ";probe=on", "scripted failure"},
                 {", \"fail\": {\"copy\": 1000}", BOTH ";probe=on", NULL},
                 {", \"fail\": {\"copy\": 1000}", BOTH, NULL}};
    for (int k = 0; k < 3; k++) {
        const char *source, *text = NULL;
        gantry_report *report = NULL;
        small_session s = open_on(there_and_back(), cases[k].keys, cases[k].options);
        cost_of(&s, &source);
        cr_assert_str_eq(source, k == 1 ? "measured" : "assumed");
        cr_assert_eq(gantry_session_report(s.session, NULL, &report, &s.err), GANTRY_OK);
        cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_TEXT, &text, NULL, NULL), GANTRY_OK);
        cr_assert_eq(strstr(text, "probe_failed") != NULL, cases[k].note != NULL, "%s", text);
        if (cases[k].note)
            cr_assert_not_null(strstr(text, cases[k].note), "%s", text);
        gantry_report_destroy(&report);
        small_bind(&s, 0, GANTRY_FLOAT32, 2, ROWS, 4, x);
        run(&s);
        check_there_and_back(&s);
        small_close(&s);
    }
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* A body on a device: what its iterations copy is counted one by one. */
ON_BOTH(transfers, copies_of_a_loop_are_counted_one_by_one)
{
    small_session s = open_on(small_loop(), "", BOTH);
    int64_t trips = 64;
    small_bind(&s, 0, GANTRY_INT64, 0, 0, 0, &trips);
    small_bind(&s, 1, GANTRY_FLOAT32, 1, 4, 0, x);
    json_t *ledger = checked_ledger(&s);
    gantry_tensor y = small_result(&s, 0);
    for (int k = 0; k < 4; k++)
        cr_assert_eq(small_floats_of(&y)[k], x[k] + 64);
    cr_assert_gt(counted_by(0).runs, 0, "the body is on the device");
    trips = 3;
    json_t *fewer = checked_ledger(&s);
    cr_assert_lt(number(fewer, "bytes"), number(ledger, "bytes"), "counts are those of the last run");
    json_decref(fewer);
    json_decref(ledger);
    small_close(&s);
}

/* s = Concat(Neg(s), one), again and again: each iteration has another size, and so another plan. */
static wire growing_loop(void)
{
    wire body = small_graph("body"), g = small_graph("growing");
    wire_message(&body, GRAPH_NODE, onnx_node("Identity", "keep", "cond_in", "cond_out"));
    wire_message(&body, GRAPH_NODE, onnx_node("Neg", "neg1", "s", "n"));
    wire join = onnx_node("Concat", "join", "n,one", "s_next");
    onnx_set_int(&join, "axis", 0);
    wire_message(&body, GRAPH_NODE, join);
    small_input(&body, "i", SMALL_I64, 0, 0, 0);
    small_input(&body, "cond_in", SMALL_BOOL, 0, 0, 0);
    small_input(&body, "s", SMALL_F32, 1, -1, 0);
    small_output(&body, "cond_out", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "s_next", SMALL_F32, 1, -1, 0);
    const float one = 1;
    small_floats(&g, "one", 1, &one);
    wire loop = onnx_node("Loop", "loop1", "trips,,s_in", "s_out");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    small_input(&g, "trips", SMALL_I64, 0, 0, 0);
    small_input(&g, "s_in", SMALL_F32, 1, -1, 0);
    small_output(&g, "s_out", SMALL_F32, 1, -1, 0);
    return small_model(g);
}

ON_BOTH(transfers, what_given_up_plans_copied_is_in_the_sums)
{
    small_session s = open_on(growing_loop(), "", BOTH ";plan_cache=2");
    int64_t trips = 12;
    small_bind(&s, 0, GANTRY_INT64, 0, 0, 0, &trips);
    small_bind(&s, 1, GANTRY_FLOAT32, 1, 4, 0, x);
    json_t *ledger = checked_ledger(&s);
    gantry_tensor y = small_result(&s, 0);
    cr_assert_eq(y.dims[0], 16);
    for (int k = 0; k < 4; k++)
        cr_assert_eq(small_floats_of(&y)[k], x[k]);
    cr_assert_eq(small_floats_of(&y)[15], 1);
    cr_assert_eq(small_floats_of(&y)[14], -1);
    cr_assert_geq(counted_by(0).runs, 12, "the body is on the device");
    cr_assert_gt(number(ledger, "forgotten_bytes"), 0);
    json_decref(ledger);
    small_close(&s);
}

/* s = Max(Neg(s), Sign(s)): a has Neg; the state stays on the host, where two read it. */
static wire host_state(void)
{
    wire body = small_graph("body"), g = small_graph("state");
    wire_message(&body, GRAPH_NODE, onnx_node("Identity", "keep", "cond_in", "cond_out"));
    wire_message(&body, GRAPH_NODE, onnx_node("Neg", "neg1", "s", "n"));
    wire_message(&body, GRAPH_NODE, onnx_node("Sign", "sign1", "s", "g"));
    wire_message(&body, GRAPH_NODE, onnx_node("Max", "max1", "n,g", "s_next"));
    small_input(&body, "i", SMALL_I64, 0, 0, 0);
    small_input(&body, "cond_in", SMALL_BOOL, 0, 0, 0);
    small_input(&body, "s", SMALL_F32, 2, ROWS, 4);
    small_output(&body, "cond_out", SMALL_BOOL, 0, 0, 0);
    small_output(&body, "s_next", SMALL_F32, 2, ROWS, 4);
    wire loop = onnx_node("Loop", "loop1", "trips,,s_in", "s_out");
    onnx_set_graph(&loop, "body", body);
    wire_message(&g, GRAPH_NODE, loop);
    small_input(&g, "trips", SMALL_I64, 0, 0, 0);
    small_input(&g, "s_in", SMALL_F32, 2, ROWS, 4);
    small_output(&g, "s_out", SMALL_F32, 2, ROWS, 4);
    return small_model(g);
}

/* The caller's memory is copied by way of pinned memory; what an iteration made lies in pinned memory. */
ON_BOTH(transfers, what_a_loop_carries_on_the_host_lies_in_pinned_memory)
{
    uint64_t pinned;
    int64_t trips = 6;
    small_session s = open_on(host_state(), "", BOTH);
    small_bind(&s, 0, GANTRY_INT64, 0, 0, 0, &trips);
    small_bind(&s, 1, GANTRY_FLOAT32, 2, ROWS, 4, x);
    json_t *ledger = pinned_ledger(&s, &pinned), *row;
    uint64_t direct = 0, staged = 0;
    size_t k;
    json_array_foreach(json_object_get(ledger, "rows"), k, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "tensor")), "s") != 0)
            continue;
        bool is_staged = strcmp(json_string_value(json_object_get(row, "path")), "staged") == 0;
        *(is_staged ? &staged : &direct) += number(row, "executions");
        cr_assert(json_is_true(json_object_get(row, "pinned")));
        cr_assert_eq(number(row, "bytes"), number(row, "executions") * BYTES);
    }
    cr_assert_eq(staged, 1, "the first iteration's");
    cr_assert_eq(direct, 5);
    cr_assert_eq(number(ledger, "pageable_bytes"), 0);
    float state[COUNT];
    memcpy(state, x, sizeof state);
    for (int round = 0; round < trips; round++)
        for (int m = 0; m < COUNT; m++) {
            float sign = state[m] > 0 ? 1 : state[m] < 0 ? -1 : 0;
            state[m] = -state[m] > sign ? -state[m] : sign;
        }
    gantry_tensor y = small_result(&s, 0);
    for (int m = 0; m < COUNT; m++)
        cr_assert_eq(small_floats_of(&y)[m], state[m], "element %d", m);
    json_decref(ledger);
    small_close(&s);
}
