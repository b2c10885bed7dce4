/* What users of devices suffer from, and cases of the corpus cannot build: a provider that breaks its word
 * (R6) or is lost, widths in rotation (R16), an input that is being filled (R20), a thousand runs of random
 * sizes (R22). On the fake device. */
#include "../support/broken_allocator.h"
#include "../support/fake_counters.h"
#include "../support/report_reader.h"
#include "core/session.h"

#include <unistd.h>

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define ON_DEVICE "providers=dev,cpu;plan=priority;threads=1"
#define DEVICE(more)                                                                                         \
    "{\"counters_file\": \"%s\", \"devices\": [{\"name\": \"dev\", \"ops\": {\"Neg\": [\"float32\"], "       \
    "\"Abs\": [\"float32\"], \"Relu\": [\"float32\"], \"Add\": [\"float32\"]}" more "}]}"

static char config[800];

static void begin(void)
{
    snprintf(counters_path, sizeof counters_path, "/tmp/gantry_casesXXXXXX");
    close(mkstemp(counters_path));
}

static void end(void)
{
    unlink(counters_path);
    small_allocator = NULL;
}

TestSuite(user_cases, .init = begin, .fini = end);

static small_session open_on(wire model, const char *format, const char *options)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(config, sizeof config, format, counters_path);
#pragma GCC diagnostic pop
    small_session s = small_open_with(model, FAKE, config, options);
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    return s;
}

/* ---- R6: a promise that turns out wrong ------------------------------------------------------ */

/* y = Relu(Sign(Neg(Abs(Neg(x))))): three nodes on the device, one on the host, one on the device. */
static wire two_groups(void)
{
    static const char *const OPS[] = {"Neg", "Abs", "Neg", "Sign", "Relu"}, *const NAMES[] = {"x", "a", "b",
                                                                                              "c", "d", "y"},
                             *const NODES[] = {"neg1", "abs1", "neg2", "sign1", "relu1"};
    wire g = small_graph("groups");
    for (int k = 0; k < 5; k++)
        wire_message(&g, GRAPH_NODE, onnx_node(OPS[k], NODES[k], NAMES[k], NAMES[k + 1]));
    small_input(&g, "x", SMALL_F32, 2, 2, 4);
    small_output(&g, "y", SMALL_F32, 2, 2, 4);
    return small_model(g);
}

static gantry_status run_groups(small_session *s)
{
    float x[8] = {1, -2, 3, 0, 0, 5, -6, 0};
    cr_assert_eq(small_bind(s, 0, GANTRY_FLOAT32, 2, 2, 4, x), GANTRY_OK);
    gantry_status status = gantry_run_execute(s->run, &s->err);
    if (status != GANTRY_OK)
        return status;
    gantry_tensor y = small_result(s, 0);
    for (int k = 0; k < 8; k++)
        cr_assert_eq(small_floats_of(&y)[k], 0, "Relu of a sign of what is not positive");
    return GANTRY_OK;
}

static void expect_place(json_t *document, const char *node, const char *provider, const char *reason)
{
    json_t *row = row_of(document, "nodes", "name", node);
    cr_assert_str_eq(string(row, "provider"), provider, "%s", node);
    if (!reason)
        return;
    cr_assert_str_eq(string(row, "candidates.0.provider"), "dev");
    cr_assert_str_eq(string(row, "candidates.0.reason"), reason, "%s", node);
}

Test(user_cases, a_group_that_does_not_compile_goes_to_the_next_provider)
{
    static const char *const GROUP[] = {"neg1", "abs1", "neg2"};
    small_session s = open_on(two_groups(), DEVICE(", \"fail\": {\"compile\": 1}"), ON_DEVICE);
    cr_assert_eq(run_groups(&s), GANTRY_OK, "%s", s.err.message);
    json_t *document = report_of(&s);
    for (int k = 0; k < 3; k++) {
        expect_place(document, GROUP[k], "cpu", "compile_failed");
        cr_assert_not_null(strstr(string(row_of(document, "nodes", "name", GROUP[k]), "candidates.0.detail"),
                                  "the scripted failure of compile call 1"));
    }
    cr_assert_str_eq(string(document, "status.code"), "ok", "the session is there");
    expect_place(document, "sign1", "cpu", "no_kernel");
    expect_place(document, "relu1", "dev", NULL);
    cr_assert_eq(counted_by(0).compiles, 2, "once what failed, once the other partition");
    cr_assert_eq(counted_by(0).runs, 1);
    json_decref(document);
    small_close(&s);
}

Test(user_cases, a_run_that_fails_is_an_error_and_not_tried_again)
{
    small_session s = open_on(two_groups(), DEVICE(", \"fail\": {\"run\": 1}"), ON_DEVICE);
    uint64_t kernels = counted_by(0).kernels;
    cr_assert_eq(run_groups(&s), GANTRY_PROVIDER);
    cr_assert_eq(s.err.stage, GANTRY_STAGE_RUN);
    cr_assert_str_eq(s.err.provider, "dev");
    cr_assert_not_null(strstr(s.err.message, "the scripted failure of run call 1"));
    cr_assert_eq(counted_by(0).kernels, kernels, "nothing was computed in its place");
    gantry_tensor y = small_result(&s, 0);
    cr_assert_neq(s.status, GANTRY_OK, "a failed run has no output");
    cr_assert_null(y.buffer.handle);
    cr_assert_eq(run_groups(&s), GANTRY_OK, "%s", s.err.message);
    json_t *document = report_of(&s);
    for (int k = 0; k < 2; k++)
        expect_place(document, k ? "neg1" : "relu1", "dev", NULL);
    json_decref(document);
    small_close(&s);
}

/* ---- a device that is gone ------------------------------------------------------------------- */

Test(user_cases, a_lost_device_is_named_until_it_is_loaded_again)
{
    const char *name, *detail;
    int created = 1;
    small_session s = open_on(two_groups(), DEVICE(", \"fail\": {\"lost\": 2}"), ON_DEVICE);
    cr_assert_eq(run_groups(&s), GANTRY_PROVIDER, "the second partition's run loses it");
    for (int turn = 0; turn < 2; turn++) {
        cr_assert_not_null(
            strstr(s.err.message, "the device dev is lost; end its sessions, unload the provider"), "%s",
            s.err.message);
        cr_assert_eq(run_groups(&s), GANTRY_PROVIDER);
    }
    small_session next = {.runtime = s.runtime, .err = GANTRY_ERROR_INIT, .status = GANTRY_OK};
    small_create(&next, two_groups(), ON_DEVICE);
    cr_assert_eq(run_groups(&next), GANTRY_OK, "on the CPU: %s", next.err.message);
    cr_assert_eq(gantry_session_provider(next.session, 0, &name, &created, &detail), GANTRY_OK);
    cr_assert(strcmp(name, "dev") == 0 && !created && strstr(detail, "its device (dev) is lost"), "%s",
              detail);
    gantry_run_destroy(&next.run);
    gantry_report_destroy(&next.report);
    cr_assert_eq(gantry_session_destroy(&next.session, NULL), GANTRY_OK);
    small_create(&next, two_groups(), ON_DEVICE ";strict=on");
    cr_assert_eq(next.status, GANTRY_PROVIDER);
    gantry_report_destroy(&next.report);
    gantry_run_destroy(&s.run);
    gantry_report_destroy(&s.report);
    cr_assert_eq(gantry_session_destroy(&s.session, NULL), GANTRY_OK);
    cr_assert_eq(gantry_runtime_unload_provider(s.runtime, "dev", &s.err), GANTRY_OK, "%s", s.err.message);
    snprintf(config, sizeof config, DEVICE(""), counters_path);
    cr_assert_eq(gantry_runtime_load_provider(s.runtime, FAKE, config, &s.err), GANTRY_OK);
    s.status = GANTRY_OK;
    small_create(&s, two_groups(), ON_DEVICE);
    cr_assert_eq(run_groups(&s), GANTRY_OK, "%s", s.err.message);
    cr_assert_gt(counted_by(0).runs, 0);
    small_close(&s);
}

/* ---- R20: an input that is filled while the run begins --------------------------------------- */

/* What is put on the run's own queue comes before its work; a copy of the caller's waits. */
Test(user_cases, an_input_on_the_device_is_filled_on_the_runs_queue)
{
    float x[8] = {1, -2, 3, 0, 0, 5, -6, 0}, ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t dims[2] = {2, 4};
    gantry_buffer in;
    small_session s =
        open_on(small_add(2), DEVICE(", \"copy_us\": 20000, \"queues\": 2"), ON_DEVICE ";bind.a=dev");
    cr_assert_eq(gantry_memory_alloc(s.runtime, "dev", sizeof x, &in, &s.err), GANTRY_OK);
    gantry_tensor a = small_tensor(GANTRY_FLOAT32, 2, dims, NULL, sizeof x);
    a.domain = "dev";
    a.buffer = in;
    cr_assert_eq(gantry_run_bind_input(s.run, 0, &a, &s.err), GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(small_bind(&s, 1, GANTRY_FLOAT32, 2, 2, 4, ones), GANTRY_OK);
    cr_assert_null(gantry_run_native_queue(s.run, "nowhere"));
    cr_assert_null(gantry_run_native_queue(s.run, "host"));
    gantry_queue *queue = gantry_run_native_queue(s.run, "dev");
    cr_assert_not_null(queue);
    const gantry_domain *device = s.session->domains[1].entry->table;
    for (int turn = 0; turn < 3; turn++) {
        x[0] = (float)turn;
        cr_assert_eq(device->copy(device->self, queue, GANTRY_COPY_TO_DEVICE, in, (gantry_buffer){x, 0},
                                  sizeof x, &s.err),
                     GANTRY_OK);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0);
        for (int k = 0; k < 8; k++)
            cr_assert_eq(small_floats_of(&y)[k], x[k] + 1 > 0 ? x[k] + 1 : 0, "turn %d, element %d", turn, k);
        memset(x + 1, 0, sizeof x - sizeof *x);
    }
    gantry_memory_free(s.runtime, "dev", &in);
    small_close(&s);
}

/* ---- R16: sizes in rotation ------------------------------------------------------------------ */

static void run_rows(small_session *s, int64_t rows)
{
    static float a[1024], b[1024];
    for (int64_t k = 0; k < 4 * rows; k++) {
        a[k] = (float)(k - 6);
        b[k] = (float)rows;
    }
    cr_assert_eq(small_bind(s, 0, GANTRY_FLOAT32, 2, rows, 4, a), GANTRY_OK);
    cr_assert_eq(small_bind(s, 1, GANTRY_FLOAT32, 2, rows, 4, b), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK, "%s", s->err.message);
    gantry_tensor y = small_result(s, 0);
    cr_assert_eq(y.dims[0], rows);
    for (int64_t k = 0; k < 4 * rows; k++)
        cr_assert_eq(small_floats_of(&y)[k], a[k] + b[k] > 0 ? a[k] + b[k] : 0);
}

Test(user_cases, what_a_new_size_costs_is_paid_once_and_not_in_the_steady_times)
{
    enum { WIDTHS = 16, SHAPE_US = 20000 };
    small_session s = open_on(small_add(-1), DEVICE(", \"reshape_us\": 20000"), ON_DEVICE);
    for (int pass = 0; pass < 3; pass++) {
        for (int64_t rows = 1; rows <= WIDTHS; rows++)
            run_rows(&s, rows);
        cr_assert_eq(counted_by(0).reshapes, WIDTHS, "pass %d: %d reshapes", pass,
                     (int)counted_by(0).reshapes);
    }
    json_t *document = report_of(&s);
    cr_assert_geq(number(document, "run.first_us"), SHAPE_US);
    cr_assert_eq(number(document, "run.steady.count"), 2 * WIDTHS);
    cr_assert_lt(number(document, "run.steady.p50_us"), SHAPE_US);
    cr_assert_eq(number(document, "plans.made"), WIDTHS);
    json_decref(document);
    small_close(&s);
}

Test(user_cases, plans_beyond_the_bound_are_given_up_and_memory_stays_flat)
{
    enum { WIDTHS = 200, BOUND = 64 };
    broken_allocator memory = {0};
    gantry_allocator counting = broken_hooks(&memory);
    small_allocator = &counting;
    small_session s = open_on(small_add(-1), DEVICE(""), ON_DEVICE ";plan_cache=64");
    long blocks = 0;
    uint64_t bytes = 0;
    for (int pass = 0; pass < 3; pass++) {
        for (int64_t rows = WIDTHS; rows > 0; rows--)
            run_rows(&s, rows);
        cr_assert(pass == 0 || (atomic_load(&memory.blocks) == blocks && counted_by(0).live_bytes == bytes),
                  "pass %d: %ld blocks, %ld before; %llu bytes, %llu before", pass,
                  atomic_load(&memory.blocks), blocks, (unsigned long long)counted_by(0).live_bytes,
                  (unsigned long long)bytes);
        blocks = atomic_load(&memory.blocks);
        bytes = counted_by(0).live_bytes;
    }
    json_t *document = report_of(&s);
    cr_assert_eq(number(document, "plans.made"), 3 * WIDTHS);
    cr_assert_eq(number(document, "plans.evicted"), 3 * WIDTHS - BOUND);
    json_decref(document);
    small_close(&s);
    cr_assert_eq(atomic_load(&memory.blocks), 0);
}

/* ---- R22: a thousand runs, fifty lives ------------------------------------------------------- */

Test(user_cases, a_thousand_runs_of_random_sizes_take_no_more_memory)
{
    broken_allocator memory = {0};
    gantry_allocator counting = broken_hooks(&memory);
    small_allocator = &counting;
    small_session s = open_on(small_add(-1), DEVICE(", \"queues\": 2"), ON_DEVICE ";plan_cache=8");
    uint32_t random = 7;
    for (int64_t rows = 200; rows > 180; rows--)
        run_rows(&s, rows);
    uint64_t bytes = counted_by(0).live_bytes;
    long blocks = atomic_load(&memory.blocks);
    for (int k = 0; k < 1000; k++) {
        random = random * 1664525u + 1013904223u;
        run_rows(&s, 1 + (int64_t)(random >> 16) % 200);
        cr_assert_leq(counted_by(0).live_bytes, bytes, "run %d", k);
        cr_assert_leq(atomic_load(&memory.blocks), blocks + 8, "run %d: %ld blocks, %ld before", k,
                      atomic_load(&memory.blocks), blocks);
    }
    small_close(&s);
    cr_assert_eq(atomic_load(&memory.blocks), 0);
}

Test(user_cases, fifty_lives_leave_what_the_process_had)
{
    broken_allocator memory = {0};
    gantry_allocator counting = broken_hooks(&memory);
    small_allocator = &counting;
    small_session first = open_on(small_add(-1), DEVICE(", \"share\": true"), ON_DEVICE);
    run_rows(&first, 3);
    gantry_buffer kept;
    cr_assert_eq(gantry_memory_alloc(first.runtime, "dev", 4096, &kept, &first.err), GANTRY_OK);
    long blocks = atomic_load(&memory.blocks);
    uint64_t bytes = counted_by(0).live_bytes;
    for (int life = 0; life < 50; life++) {
        small_session s = {.runtime = first.runtime, .err = GANTRY_ERROR_INIT, .status = GANTRY_OK};
        small_create(&s, small_add(-1), ON_DEVICE);
        cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
        run_rows(&s, 1 + life);
        gantry_run_destroy(&s.run);
        gantry_report_destroy(&s.report);
        cr_assert_eq(gantry_session_destroy(&s.session, &s.err), GANTRY_OK, "%s", s.err.message);
        cr_assert_eq(atomic_load(&memory.blocks), blocks, "life %d", life);
        cr_assert_eq(counted_by(0).live_bytes, bytes, "life %d", life);
    }
    gantry_run_destroy(&first.run);
    gantry_report_destroy(&first.report);
    cr_assert_eq(gantry_session_destroy(&first.session, NULL), GANTRY_OK);
    cr_assert_geq(counted_by(0).live_bytes, 4096, "the caller's block");
    cr_assert_eq(gantry_runtime_unload_provider(first.runtime, "dev", &first.err), GANTRY_INVALID_ARGUMENT);
    cr_assert_not_null(strstr(first.err.message, "1 blocks of gantry_memory_alloc in the domain \"dev\""));
    gantry_memory_free(first.runtime, "dev", &kept);
    cr_assert_eq(counted_by(0).live_bytes, 0);
    small_close(&first);
    cr_assert_eq(atomic_load(&memory.blocks), 0);
}
