/* Every call into a device fails once: for each kind of call and each N, the Nth one of a session's life. A
 * status and words come back or the host does without, the same step then succeeds, results are right, and
 * nothing is lost. A plain program: a leak fails it under ASan. */
#include "../support/broken_allocator.h"
#include "../support/expect.h"
#include "../support/small_models.h"
#include "core/runtime.h"

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define MOST_CALLS 400

/* ---- what lives ------------------------------------------------------------------------------ */

typedef struct life_case {
    const char *name;
    wire model;
    const char *devices; /* of the fake's config, with room for "fail" in the first */
    const char *providers;
    gantry_status (*run)(small_session *s, int repeats); /* 1 or 3: another shape */
} life_case;

#define ADDS "\"ops\": {\"Add\": [\"float32\"], \"Neg\": [\"float32\"]}"
#define ONE "{\"name\": \"dev\", " ADDS "%s}"
#define TWO_QUEUES "{\"name\": \"dev\", \"queues\": 2, \"share\": true, " ADDS "%s}"
#define TWO_DEVICES                                                                                          \
    "{\"name\": \"dev\", \"device_id\": 0, \"peers\": true, \"ops\": {\"Add\": [\"float32\"]}%s}, "          \
    "{\"name\": \"more\", \"device_id\": 1, \"peers\": true, \"ops\": {\"Relu\": [\"float32\"]}}"
#define NO_PEERS                                                                                             \
    "{\"name\": \"dev\", \"device_id\": 0, " ADDS "%s}, "                                                    \
    "{\"name\": \"more\", \"device_id\": 1, \"ops\": {\"Mul\": [\"float32\"]}}"

static gantry_status run_add(small_session *s, int repeats)
{
    static float a[12] = {1, -2, 3, -4, 1, -2, 3, -4, 1, -2, 3, -4},
                 b[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const float expected[4] = {2, 0, 4, 0};
    small_bind(s, 0, SMALL_F32, 2, repeats, 4, a);
    small_bind(s, 1, SMALL_F32, 2, repeats, 4, b);
    gantry_status status = gantry_run_execute(s->run, &s->err);
    if (status != GANTRY_OK)
        return status;
    gantry_tensor y = small_result(s, 0);
    for (int k = 0; k < 4 * repeats; k++)
        EXPECT(small_floats_of(&y)[k] == expected[k % 4], "element %d is %f", k, small_floats_of(&y)[k]);
    return GANTRY_OK;
}

/* y = -x * (x + x): two values for the second device. */
static wire hand_over(void)
{
    wire g = small_graph("values");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "n"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "add1", "x,x", "t"));
    wire_message(&g, GRAPH_NODE, onnx_node("Mul", "mul1", "n,t", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    return small_model(g);
}

static gantry_status run_hand_over(small_session *s, int repeats)
{
    static float a[12] = {1, -2, 3, -4, 1, -2, 3, -4, 1, -2, 3, -4};
    small_bind(s, 0, SMALL_F32, 2, repeats, 4, a);
    gantry_status status = gantry_run_execute(s->run, &s->err);
    if (status != GANTRY_OK)
        return status;
    gantry_tensor y = small_result(s, 0);
    for (int k = 0; k < 4 * repeats; k++)
        EXPECT(small_floats_of(&y)[k] == -2 * a[k] * a[k], "element %d is %f", k, small_floats_of(&y)[k]);
    return GANTRY_OK;
}

static gantry_status run_loop(small_session *s, int repeats)
{
    static float start[4] = {1, 1, 1, 1};
    static int64_t trips;
    trips = repeats;
    small_bind(s, 0, SMALL_I64, 0, 0, 0, &trips);
    small_bind(s, 1, SMALL_F32, 1, 4, 0, start);
    gantry_status status = gantry_run_execute(s->run, &s->err);
    if (status != GANTRY_OK)
        return status;
    gantry_tensor y = small_result(s, 0);
    for (int k = 0; k < 4; k++)
        EXPECT(small_floats_of(&y)[k] == (float)(1 + repeats), "element %d is %f", k, small_floats_of(&y)[k]);
    return GANTRY_OK;
}

static gantry_status run_nonzero(small_session *s, int repeats)
{
    static float x[12] = {0, 5, 0, 7, 0, 5, 0, 7, 0, 5, 0, 7};
    static const float expected[2] = {10, 14};
    small_bind(s, 0, SMALL_F32, 1, 4 * repeats, 0, x);
    gantry_status status = gantry_run_execute(s->run, &s->err);
    if (status != GANTRY_OK)
        return status;
    gantry_tensor y = small_result(s, 1);
    for (int k = 0; k < 2 * repeats; k++)
        EXPECT(small_floats_of(&y)[k] == expected[k % 2], "element %d is %f", k, small_floats_of(&y)[k]);
    return GANTRY_OK;
}

/* ---- one life -------------------------------------------------------------------------------- */

typedef struct life {
    const life_case *what;
    const char *call;
    int number;
    bool lost;                  /* the device stays away once it failed */
    broken_allocator allocator; /* only counts */
    atomic_int scripted;        /* failures the device told of */
    int seen;                   /* steps that failed */
    small_session s;
    gantry_options *options;
} life;

static void listen(void *user, int level, const char *text)
{
    life *l = user;
    (void)level;
    if (strcmp(text, "fake device: a scripted failure") == 0)
        atomic_fetch_add(&l->scripted, 1);
}

static gantry_status create_session(life *l)
{
    const wire *model = &l->what->model;
    gantry_status status = gantry_session_create_from_memory(l->s.runtime, model->data, model->size,
                                                             l->options, &l->s.session, NULL, &l->s.err);
    EXPECT((status == GANTRY_OK) == (l->s.session != NULL), "status %d", status);
    return status;
}

static gantry_status create_run(life *l)
{
    return gantry_run_create(l->s.session, &l->s.run, &l->s.err);
}

static gantry_status run_small(life *l)
{
    return l->what->run(&l->s, 1);
}

static gantry_status run_large(life *l)
{
    return l->what->run(&l->s, 3);
}

static gantry_status make_report(life *l)
{
    gantry_report *report = NULL;
    const char *text = NULL;
    gantry_status status = gantry_session_report(l->s.session, l->s.run, &report, &l->s.err);
    if (status == GANTRY_OK)
        status = gantry_report_render(report, GANTRY_REPORT_TEXT, &text, NULL, &l->s.err);
    gantry_report_destroy(&report);
    return status;
}

static const struct {
    const char *name;
    gantry_status (*step)(life *l);
} steps[] = {{"create session", create_session},
             {"create run", create_run},
             {"run", run_small},
             {"run large", run_large},
             {"run again", run_small},
             {"run again", run_large},
             {"report", make_report}};

static void expect_second_success(life *l, const char *name, gantry_status (*step)(life *l))
{
    const life_case *what = l->what;
    l->s.err = (gantry_error)GANTRY_ERROR_INIT;
    gantry_status status = step(l);
    if (status == GANTRY_OK)
        return;
    EXPECT(l->seen++ == 0 || l->lost, "%s, %s call %d, %s: a second failure: %s", what->name, l->call,
           l->number, name, l->s.err.message);
    EXPECT(l->s.err.code == status && l->s.err.message[0], "%s, %s call %d, %s: status %d, error %d: %s",
           what->name, l->call, l->number, name, status, l->s.err.code, l->s.err.message);
    EXPECT(status == GANTRY_PROVIDER || (status == GANTRY_RESOURCE && strcmp(l->call, "alloc") == 0),
           "%s, %s call %d, %s: status %d: %s", what->name, l->call, l->number, name, status,
           l->s.err.message);
    status = step(l);
    if (l->lost)
        EXPECT(status == GANTRY_PROVIDER, "%s, lost at %d, %s: status %d", what->name, l->number, name,
               status);
    else
        EXPECT(status == GANTRY_OK, "%s, %s call %d, %s again: status %d: %s", what->name, l->call, l->number,
               name, status, l->s.err.message);
}

static void open_runtime(life *l)
{
    char config[1000], devices[800], fail[80];
    gantry_allocator hooks = broken_hooks(&l->allocator);
    gantry_error *err = &l->s.err;
    snprintf(fail, sizeof fail, ", \"fail\": {\"%s\": %d}", l->call, l->number);
    snprintf(devices, sizeof devices, l->what->devices, fail);
    snprintf(config, sizeof config, "{\"devices\": [%s]}", devices);
    *err = (gantry_error)GANTRY_ERROR_INIT;
    bool good = gantry_runtime_create(&hooks, &l->s.runtime, err) == GANTRY_OK &&
                gantry_runtime_load_provider(l->s.runtime, FAKE, config, err) == GANTRY_OK &&
                gantry_options_create(&l->options, err) == GANTRY_OK &&
                gantry_options_set(l->options, "threads", "1", err) == GANTRY_OK &&
                gantry_options_set(l->options, "providers", l->what->providers, err) == GANTRY_OK &&
                gantry_options_set(l->options, "plan", "priority", err) == GANTRY_OK &&
                gantry_options_set(l->options, "timing", "events", err) == GANTRY_OK &&
                gantry_options_set(l->options, "log_level", "debug", err) == GANTRY_OK &&
                gantry_options_set_log(l->options, listen, l, err) == GANTRY_OK;
    EXPECT(good, "%s: %s", l->what->name, err->message);
}

static void expect_nothing_held(life *l)
{
    for (uint32_t k = 0; k < l->s.runtime->domains.count; k++) {
        const gantry_domain *table = l->s.runtime->domains.data[k]->table;
        uint64_t available = 0, total = 0;
        if (!table)
            continue;
        table->memory_info(table->self, &available, &total);
        EXPECT(available == total, "%s, %s call %d: %llu bytes are left on a device", l->what->name, l->call,
               l->number, (unsigned long long)(total - available));
    }
}

/* False when fewer calls were made. */
static bool live(const life_case *what, const char *call, int number)
{
    life l = {.what = what, .call = call, .number = number, .lost = strcmp(call, "lost") == 0};
    int before = failures;
    open_runtime(&l);
    for (size_t k = 0; k < sizeof steps / sizeof *steps && failures == before; k++)
        if (k < 2 || !l.lost || !l.seen || k + 1 == sizeof steps / sizeof *steps)
            expect_second_success(&l, steps[k].name, steps[k].step);
    gantry_run_destroy(&l.s.run);
    EXPECT(gantry_session_destroy(&l.s.session, NULL) == GANTRY_OK, "%s, %s call %d", what->name, call,
           number);
    gantry_options_destroy(&l.options);
    expect_nothing_held(&l);
    EXPECT(gantry_runtime_destroy(&l.s.runtime, NULL) == GANTRY_OK, "%s, %s call %d", what->name, call,
           number);
    EXPECT(atomic_load(&l.allocator.blocks) == 0, "%s, %s call %d: %ld blocks are lost", what->name, call,
           number, atomic_load(&l.allocator.blocks));
    EXPECT(!l.seen || l.lost || atomic_load(&l.scripted), "%s, %s call %d: a failure nobody asked for",
           what->name, call, number);
    return l.lost ? l.seen != 0 : atomic_load(&l.scripted) != 0;
}

static void fail_every_call(const life_case *what)
{
    static const char *const calls[] = {"compile", "reshape", "context", "run",   "run_late",
                                        "alloc",   "copy",    "sync",    "lost",  "queue",
                                        "event",   "record",  "wait",    "await", "judge"};
    printf("%s:", what->name);
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
        int number = 1;
        while (failures < MOST_FAILURES_PRINTED && number < MOST_CALLS && live(what, calls[k], number))
            number++;
        EXPECT(number < MOST_CALLS, "%s: %s calls without end", what->name, calls[k]);
        printf(" %d %s", number - 1, calls[k]);
    }
    printf("\n");
}

/* A plugin whose provider cannot say what it is, is not loaded, and another one is. */
static void fail_describe(void)
{
    gantry_runtime *runtime = NULL;
    gantry_error err = GANTRY_ERROR_INIT;
    EXPECT(gantry_runtime_create(NULL, &runtime, &err) == GANTRY_OK, "%s", err.message);
    EXPECT(gantry_runtime_load_provider(runtime, FAKE, "{\"devices\": [{\"fail\": {\"describe\": 1}}]}",
                                        &err) == GANTRY_PROVIDER,
           "%s", err.message);
    EXPECT(strstr(err.message, "describe failed") != NULL, "%s", err.message);
    EXPECT(gantry_runtime_load_provider(runtime, FAKE, "", &err) == GANTRY_OK, "%s", err.message);
    gantry_runtime_destroy(&runtime, NULL);
}

int main(void)
{
    life_case cases[] = {{"one device", small_add(-1), ONE, "dev,cpu", run_add},
                         {"one device, fixed sizes", small_loop(), ONE, "dev,cpu", run_loop},
                         {"sizes from data", small_nonzero(), ONE, "dev,cpu", run_nonzero},
                         {"two queues", small_add(-1), TWO_QUEUES, "dev,cpu", run_add},
                         {"two devices", small_add(-1), TWO_DEVICES, "dev,more,cpu", run_add},
                         {"a hand-over", hand_over(), NO_PEERS, "dev,more,cpu", run_hand_over}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        fail_every_call(&cases[k]);
        wire_free(&cases[k].model);
    }
    fail_describe();
    if (failures)
        printf("%d failed\n", failures);
    return failures > 0;
}
