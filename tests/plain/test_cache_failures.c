/* The cache of programs while memory runs out and the device's calls fail: a session comes about with or
 * without it, results are the same bits, and nothing is lost. A plain program: a leak fails it under ASan. */
#include "../support/broken_allocator.h"
#include "../support/small_models.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define CONFIG                                                                                               \
    "{\"devices\": [{\"name\": \"dev\", \"blobs\": true%s, \"ops\": {\"MatMul\": [\"float32\"], "            \
    "\"Add\": [\"float32\"], \"Relu\": [\"float32\"]}, \"fused\": {\"MatMul+Add\": [\"float32\"]}}]}"
#define MOST_FAILURES_PRINTED 20
#define MOST_ALLOCATIONS 5000
#define SESSIONS 3

static int failures;
static char folder[] = "/tmp/gantry-test-XXXXXX";

#define EXPECT(condition, ...)                                                                               \
    do {                                                                                                     \
        if (!(condition) && failures++ < MOST_FAILURES_PRINTED) {                                            \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                  \
            fprintf(stderr, __VA_ARGS__);                                                                    \
            fputc('\n', stderr);                                                                             \
        }                                                                                                    \
    } while (0)

/* y = Relu(x W + b) */
static wire net(void)
{
    wire g = small_graph("net");
    const float w[16] = {1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4, -5, -6, -7, -8}, b[4] = {0.5f, 1, 2, 3};
    const int64_t dims[2] = {4, 4};
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", SMALL_F32, 2, dims, w, sizeof w));
    small_floats(&g, "b", 4, b);
    wire_message(&g, GRAPH_NODE, onnx_node("MatMul", "product", "x,w", "p"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "bias", "p,b", "s"));
    wire_message(&g, GRAPH_NODE, onnx_node("Relu", "relu", "s", "y"));
    small_input(&g, "x", SMALL_F32, 2, 1, 4);
    small_output(&g, "y", SMALL_F32, 2, 1, 4);
    return small_model(g);
}

/* Removes what the folder holds; how many files that were, of those the whole ones. */
static int empty_folder(void)
{
    int whole = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (entry->d_name[0] == '.')
            continue;
        EXPECT(dot && strcmp(dot, ".program") == 0, "%s is left in the folder", entry->d_name);
        whole++;
        (void)unlinkat(dirfd(entries), entry->d_name, 0);
    }
    if (entries)
        closedir(entries);
    return whole;
}

/* ---- a life: some sessions in one runtime ---------------------------------------------------- */

typedef struct life {
    const char *what;
    long number; /* of what fails */
    broken_allocator allocator;
    wire model;
    gantry_options *options;
    small_session s;
} life;

static gantry_status open_runtime(life *l, const char *more)
{
    char config[800];
    gantry_allocator hooks = broken_hooks(&l->allocator);
    snprintf(config, sizeof config, CONFIG, more);
    gantry_status status = gantry_runtime_create(&hooks, &l->s.runtime, &l->s.err);
    if (status == GANTRY_OK)
        status = gantry_runtime_set(l->s.runtime, "cache", folder, &l->s.err);
    if (status == GANTRY_OK)
        status = gantry_runtime_load_provider(l->s.runtime, FAKE, config, &l->s.err);
    if (status != GANTRY_OK)
        EXPECT(gantry_runtime_destroy(&l->s.runtime, NULL) == GANTRY_OK, "%s %ld", l->what, l->number);
    return status;
}

static gantry_status create_session(life *l)
{
    return gantry_session_create_from_memory(l->s.runtime, l->model.data, l->model.size, l->options,
                                             &l->s.session, NULL, &l->s.err);
}

static bool same_bits(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static gantry_status run_session(life *l)
{
    static float x[4] = {1, 0.5f, -2, 0.25f};
    static const float expected[4] = {4.75f, 8.5f, 12.75f, 17};
    gantry_status status = l->s.run ? GANTRY_OK : gantry_run_create(l->s.session, &l->s.run, &l->s.err);
    if (status == GANTRY_OK)
        status = small_bind(&l->s, 0, SMALL_F32, 2, 1, 4, x);
    if (status == GANTRY_OK)
        status = gantry_run_execute(l->s.run, &l->s.err);
    if (status != GANTRY_OK)
        return status;
    gantry_tensor y = small_result(&l->s, 0);
    EXPECT(y.size_bytes == sizeof expected && same_bits(small_floats_of(&y), expected, sizeof expected),
           "%s %ld: another result: %f %f %f %f", l->what, l->number, small_floats_of(&y)[0],
           small_floats_of(&y)[1], small_floats_of(&y)[2], small_floats_of(&y)[3]);
    return GANTRY_OK;
}

static gantry_status report_session(life *l)
{
    gantry_report *report = NULL;
    const char *text;
    gantry_status status = gantry_session_report(l->s.session, l->s.run, &report, &l->s.err);
    if (status == GANTRY_OK)
        status = gantry_report_render(report, GANTRY_REPORT_TEXT, &text, NULL, &l->s.err);
    gantry_report_destroy(&report);
    return status;
}

/* Calls step until it works: it may fail once, for want of memory. */
static void expect_success(life *l, gantry_status (*step)(life *l), const char *name)
{
    l->s.err = (gantry_error)GANTRY_ERROR_INIT;
    gantry_status status = step(l);
    if (status != GANTRY_OK && atomic_load(&l->allocator.fails_at)) {
        EXPECT(status == GANTRY_RESOURCE && l->s.err.message[0], "%s %ld, %s: status %d: %s", l->what,
               l->number, name, status, l->s.err.message);
        atomic_store(&l->allocator.fails_at, 0);
        status = step(l);
    }
    EXPECT(status == GANTRY_OK, "%s %ld, %s: status %d: %s", l->what, l->number, name, status,
           l->s.err.message);
}

static void close_session(life *l)
{
    gantry_run_destroy(&l->s.run);
    EXPECT(gantry_session_destroy(&l->s.session, NULL) == GANTRY_OK, "%s %ld", l->what, l->number);
}

static void begin(life *l)
{
    l->model = net();
    EXPECT(gantry_options_create(&l->options, NULL) == GANTRY_OK &&
               gantry_options_set(l->options, "threads", "1", NULL) == GANTRY_OK &&
               gantry_options_set(l->options, "providers", "dev,cpu", NULL) == GANTRY_OK &&
               gantry_options_set(l->options, "plan", "priority", NULL) == GANTRY_OK,
           "options");
}

static void end(life *l)
{
    gantry_options_destroy(&l->options);
    wire_free(&l->model);
    EXPECT(gantry_runtime_destroy(&l->s.runtime, NULL) == GANTRY_OK, "%s %ld", l->what, l->number);
    EXPECT(atomic_load(&l->allocator.blocks) == 0, "%s %ld: %ld blocks are lost", l->what, l->number,
           atomic_load(&l->allocator.blocks));
}

/* ---- memory ---------------------------------------------------------------------------------- */

static gantry_status open_plain(life *l)
{
    return open_runtime(l, "");
}

/* Two sessions: one that compiles and saves, or loads when the folder is not emptied before; and one that
 * loads. False when fewer allocations were asked for. */
static bool live_without_memory(long number, bool lasting, bool warm)
{
    life l = {.what = warm ? "loading, allocation" : "saving, allocation", .number = number};
    int before = failures;
    if (!warm)
        empty_folder();
    atomic_store(&l.allocator.fails_at, number);
    atomic_store(&l.allocator.lasting, lasting);
    begin(&l);
    expect_success(&l, open_plain, "open");
    for (int k = 0; k < 2 && failures == before; k++) {
        expect_success(&l, create_session, "create");
        if (failures == before)
            expect_success(&l, run_session, "run");
        if (failures == before)
            expect_success(&l, report_session, "report");
        close_session(&l);
    }
    end(&l);
    return atomic_load(&l.allocator.calls) >= number;
}

static void fail_every_allocation(bool warm)
{
    long number = 1;
    while (failures < MOST_FAILURES_PRINTED && number < MOST_ALLOCATIONS &&
           live_without_memory(number, false, warm) && live_without_memory(number, true, warm))
        number++;
    EXPECT(number > 100 && number < MOST_ALLOCATIONS, "%ld allocations", number);
    printf("%s: %ld allocations failed in turn\n", warm ? "loading" : "saving", number - 1);
    int whole = empty_folder();
    EXPECT(whole == 1, "%d entries", whole);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Each session comes about at once, whatever the device's saves and loads do. */
static void live_with_failure(const char *call, long number)
{
    char more[80];
    life l = {.what = call, .number = number};
    empty_folder();
    begin(&l);
    snprintf(more, sizeof more, ", \"fail\": {\"%s\": %ld}", call, number);
    EXPECT(open_runtime(&l, more) == GANTRY_OK, "%s", l.s.err.message);
    for (int k = 0; k < SESSIONS; k++) {
        expect_success(&l, create_session, "create");
        expect_success(&l, run_session, "run");
        expect_success(&l, report_session, "report");
        close_session(&l);
    }
    end(&l);
    int whole = empty_folder();
    EXPECT(whole == 1, "%s %ld: %d entries", call, number, whole);
}

int main(void)
{
    static const char *const calls[] = {"save", "load", "stale"};
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
        for (long number = 1; number <= SESSIONS; number++)
            live_with_failure(calls[k], number);
    fail_every_allocation(false);
    fail_every_allocation(true);
    empty_folder();
    (void)rmdir(folder);
    if (failures)
        printf("%d failed\n", failures);
    return failures > 0;
}
