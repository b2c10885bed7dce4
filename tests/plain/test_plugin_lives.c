/* Threads that load and unload a library, use it in sessions and look at what is loaded, all at once. A plain
 * program, so that ThreadSanitizer can watch it. */
#include "tests/support/small_models.h"

#include <pthread.h>
#include <stdlib.h>

#define PLUGIN GANTRY_BUILD_FOLDER "/tests/libgantry_abi_now.so"
#define ROUNDS 60

static gantry_runtime *runtime;
static int failures;

#define CHECK(condition, words)                                                                              \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s is false (line %d): %s\n", #condition, __LINE__, words);                     \
            __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);                                              \
        }                                                                                                    \
    } while (0)

/* An unload may come while a session holds the library: it is then refused, and the next load too. */
static void *load_and_unload(void *arg)
{
    gantry_error err = GANTRY_ERROR_INIT;
    for (int k = 0; k < ROUNDS; k++) {
        if (gantry_runtime_load_provider(runtime, PLUGIN, "device", &err) != GANTRY_OK)
            CHECK(strstr(err.message, "already"), err.message);
        if (gantry_runtime_unload_provider(runtime, "abi_now", &err) != GANTRY_OK)
            CHECK(err.code == GANTRY_INVALID_ARGUMENT, err.message);
    }
    return arg;
}

static wire negation(void)
{
    wire g = small_graph("neg");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "y"));
    small_input(&g, "x", SMALL_F32, 1, 4, 0);
    small_output(&g, "y", SMALL_F32, 1, 4, 0);
    return small_model(g);
}

/* Whether the library is there or not, the result is right, and the report agrees with the session. */
static void *use(void *arg)
{
    float x[4] = {1, -2, 3, -4};
    for (int k = 0; k < ROUNDS; k++) {
        const char *name, *detail, *text;
        int created;
        size_t bytes;
        small_session s = {.runtime = runtime, .err = GANTRY_ERROR_INIT, .status = GANTRY_OK};
        small_create(&s, negation(), "providers=abi_now,cpu;plan=priority;threads=1");
        CHECK(s.status == GANTRY_OK, s.err.message);
        if (s.status != GANTRY_OK)
            return arg;
        small_bind(&s, 0, GANTRY_FLOAT32, 1, 4, 0, x);
        CHECK(gantry_run_execute(s.run, &s.err) == GANTRY_OK, s.err.message);
        gantry_tensor y = small_result(&s, 0);
        for (int m = 0; m < 4; m++)
            CHECK(small_floats_of(&y)[m] == -x[m], "a number is wrong");
        gantry_session_provider(s.session, 0, &name, &created, &detail);
        CHECK(created == !*detail, detail);
        CHECK(gantry_report_render(s.report, GANTRY_REPORT_JSON, &text, &bytes, &s.err) == GANTRY_OK,
              s.err.message);
        gantry_run_destroy(&s.run);
        gantry_report_destroy(&s.report);
        CHECK(gantry_session_destroy(&s.session, &s.err) == GANTRY_OK, s.err.message);
    }
    return arg;
}

/* Memory in the domain, while there is one. */
static void *hold_memory(void *arg)
{
    gantry_error err = GANTRY_ERROR_INIT;
    for (int k = 0; k < 10 * ROUNDS; k++) {
        float in[4] = {1, 2, 3, (float)k}, out[4] = {0};
        gantry_buffer buffer;
        if (gantry_memory_alloc(runtime, "abi_now", sizeof in, &buffer, &err) != GANTRY_OK)
            continue;
        CHECK(gantry_memory_copy(runtime, "abi_now", buffer, "host", (gantry_buffer){in, 0}, sizeof in,
                                 &err) == GANTRY_OK,
              err.message);
        CHECK(gantry_memory_copy(runtime, "host", (gantry_buffer){out, 0}, "abi_now", buffer, sizeof in,
                                 &err) == GANTRY_OK,
              err.message);
        for (size_t k = 0; k < sizeof in / sizeof in[0]; k++)
            CHECK(in[k] == out[k], "memory of the domain has other bytes");
        gantry_memory_free(runtime, "abi_now", &buffer);
    }
    return arg;
}

int main(void)
{
    static void *(*const WORK[])(void *) = {load_and_unload, load_and_unload, use, use, hold_memory};
    enum { THREADS = sizeof WORK / sizeof *WORK };
    pthread_t threads[THREADS];
    gantry_error err = GANTRY_ERROR_INIT;
    if (gantry_runtime_create(NULL, &runtime, &err) != GANTRY_OK)
        return 1;
    for (int k = 0; k < THREADS; k++)
        if (pthread_create(&threads[k], NULL, WORK[k], NULL) != 0)
            return 1;
    for (int k = 0; k < THREADS; k++)
        pthread_join(threads[k], NULL);
    CHECK(gantry_runtime_destroy(&runtime, &err) == GANTRY_OK, err.message);
    return failures != 0;
}
