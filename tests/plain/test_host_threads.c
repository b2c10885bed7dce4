/* Threads that meet in the host: providers that take one call at a time, packed constants, cache files. A
 * plain program, so that ThreadSanitizer runs it. */
#include "../support/expect.h"
#include "../support/small_models.h"
#include "core/session.h"

#include <dirent.h>
#include <jansson.h>
#include <pthread.h>
#include <unistd.h>

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define THREADS 8
#define TURNS 12

typedef struct worker {
    const small_session *on;
    int number;
    pthread_t thread;
    uint64_t waits; /* that the report of its run tells of */
    double wait_us;
} worker;

static void work_together(const small_session *on, void *(*work)(void *), worker *workers)
{
    for (int k = 0; k < THREADS; k++) {
        workers[k] = (worker){.on = on, .number = k};
        EXPECT(pthread_create(&workers[k].thread, NULL, work, &workers[k]) == 0, "thread %d", k);
    }
    for (int k = 0; k < THREADS; k++)
        pthread_join(workers[k].thread, NULL);
}

/* ---- one call at a time ---------------------------------------------------------------------- */

static json_t *document_of(const gantry_session *session, const gantry_run *run)
{
    gantry_report *report = NULL;
    const char *text = "{}";
    gantry_error err = GANTRY_ERROR_INIT;
    EXPECT(gantry_session_report(session, run, &report, &err) == GANTRY_OK, "%s", err.message);
    gantry_report_render(report, GANTRY_REPORT_JSON, &text, NULL, &err);
    json_t *document = json_loads(text, 0, NULL);
    gantry_report_destroy(&report);
    return document;
}

/* The classes and the remainder are the wall time; what is taken out of one for another leaves none below 0.
 */
static void check_account(const json_t *run)
{
    size_t k;
    json_t *row;
    const json_t *account = json_object_get(run, "account");
    double wall = json_number_value(json_object_get(account, "wall_us")), sum = 0, lock_us = 0;
    json_array_foreach(json_object_get(account, "classes"), k, row)
    {
        double us = json_number_value(json_object_get(row, "us"));
        EXPECT(us > -1, "class %s has %g us", json_string_value(json_object_get(row, "name")), us);
        sum += us;
        if (strcmp(json_string_value(json_object_get(row, "name")), "lock_wait") == 0)
            lock_us = us;
    }
    sum += json_number_value(json_object_get(account, "remainder_us"));
    EXPECT(sum > wall * 0.999 && sum < wall * 1.001, "%g of %g us", sum, wall);
    const json_t *wait = json_array_get(json_object_get(run, "lock_waits"), 0);
    double us = json_number_value(json_object_get(wait, "us"));
    EXPECT(lock_us > us - 0.01 && lock_us < us + 0.01, "%g us in the account, %g us beside it", lock_us, us);
}

static void *run_many(void *arg)
{
    worker *w = arg;
    small_session s = {.session = w->on->session, .err = GANTRY_ERROR_INIT};
    float a[48], b[48];
    for (int k = 0; k < 48; k++) {
        a[k] = (float)(k * w->number);
        b[k] = (float)(1 - k);
    }
    EXPECT(gantry_run_create(w->on->session, &s.run, &s.err) == GANTRY_OK, "%s", s.err.message);
    for (int turn = 0; turn < TURNS; turn++) {
        int64_t rows = 1 + (turn + w->number) % 3;
        small_bind(&s, 0, GANTRY_FLOAT32, 2, rows, 4, a);
        small_bind(&s, 1, GANTRY_FLOAT32, 2, rows, 4, b);
        gantry_status status = gantry_run_execute(s.run, &s.err);
        EXPECT(status == GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0);
        for (int k = 0; status == GANTRY_OK && k < 4 * rows; k++)
            EXPECT(small_floats_of(&y)[k] == (a[k] + b[k] > 0 ? a[k] + b[k] : 0), "thread %d, element %d",
                   w->number, k);
    }
    json_t *document = document_of(w->on->session, s.run);
    const json_t *run = json_object_get(document, "run");
    const json_t *wait = json_array_get(json_object_get(run, "lock_waits"), 0);
    w->waits = (uint64_t)json_integer_value(json_object_get(wait, "total_count"));
    w->wait_us = json_number_value(json_object_get(wait, "total_us"));
    check_account(run);
    json_decref(document);
    gantry_run_destroy(&s.run);
    return NULL;
}

static void meet_in_a_provider(const char *concurrency, uint64_t least_waits)
{
    char config[300];
    snprintf(config, sizeof config,
             "{\"devices\": [{\"name\": \"dev\", \"concurrency\": \"%s\", \"enqueue_us\": 2000, "
             "\"ops\": {\"Add\": [\"float32\"]}}]}",
             concurrency);
    small_session s =
        small_open_with(small_add(-1), FAKE, config, "providers=dev,cpu;timing=events;plan=priority");
    EXPECT(s.status == GANTRY_OK, "%s", s.err.message);
    worker workers[THREADS];
    work_together(&s, run_many, workers);
    uint64_t waits = 0;
    double us = 0;
    for (int k = 0; k < THREADS; k++) {
        waits += workers[k].waits;
        us += workers[k].wait_us;
    }
    EXPECT(waits >= least_waits, "%s: %llu waits", concurrency, (unsigned long long)waits);
    EXPECT((us > 0) == (waits > 0), "%g us in %llu waits", us, (unsigned long long)waits);
    json_t *document = document_of(s.session, NULL);
    const json_t *row = json_array_get(json_object_get(document, "providers"), 0);
    EXPECT((uint64_t)json_integer_value(json_object_get(row, "lock_waits")) >= waits,
           "the provider tells of all");
    json_decref(document);
    small_close(&s);
}

/* ---- packed constants ------------------------------------------------------------------------ */

static atomic_int alive;

static void drop(void *self, void *data)
{
    atomic_fetch_sub(&alive, 1);
    free(data);
}

static void *pack_many(void *arg)
{
    const worker *w = arg;
    const gantry_host *host = &w->on->runtime->host;
    gantry_constants *constants = gt_constants_of(w->on->session->model);
    gantry_error err = GANTRY_ERROR_INIT;
    for (uint64_t turn = 0; turn < 400; turn++) {
        uint64_t form = turn % 5;
        gantry_packed got = {.struct_bytes = sizeof got};
        if (host->packed_get(host, constants, 0, form, &got) != GANTRY_OK) {
            uint64_t *data = malloc(sizeof *data);
            *data = form;
            atomic_fetch_add(&alive, 1);
            gantry_packed given = {sizeof given, data, sizeof *data, drop, NULL};
            EXPECT(host->packed_put(host, constants, 0, form, &given, &got, &err) == GANTRY_OK, "%s",
                   err.message);
        }
        EXPECT(*(uint64_t *)got.data == form, "form %llu", (unsigned long long)form);
        host->packed_release(host, &got);
    }
    return NULL;
}

/* ---- cache files ----------------------------------------------------------------------------- */

static void *cache_many(void *arg)
{
    const worker *w = arg;
    const gantry_host *host = &w->on->runtime->host;
    gantry_error err = GANTRY_ERROR_INIT;
    char mine[4000], *data;
    memset(mine, 'a' + w->number, sizeof mine);
    for (int turn = 0; turn < 40; turn++) {
        size_t bytes;
        host->cache_put(host, "one key", mine, sizeof mine - (size_t)(w->number * 100));
        gantry_status status = host->cache_get(host, "one key", (void **)&data, &bytes, &err);
        EXPECT(status == GANTRY_OK, "%s", err.message);
        if (status != GANTRY_OK)
            continue;
        EXPECT(bytes == sizeof mine - (size_t)(data[0] - 'a') * 100 && data[bytes - 1] == data[0],
               "an entry of two writers");
        host->free(host, data);
    }
    return NULL;
}

static void meet_in_the_cache(small_session *s)
{
    char folder[] = "/tmp/gantry-cache-XXXXXX", path[600];
    EXPECT(mkdtemp(folder) != NULL, "%s", folder);
    EXPECT(gantry_runtime_set(s->runtime, "cache", folder, &s->err) == GANTRY_OK, "%s", s->err.message);
    worker workers[THREADS];
    work_together(s, cache_many, workers);
    int files = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; (entry = readdir(entries));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        files += unlink(path) == 0;
    }
    closedir(entries);
    rmdir(folder);
    EXPECT(files == 1, "%d files are left", files);
}

int main(void)
{
    worker workers[THREADS];
    meet_in_a_provider("serial", 1);
    meet_in_a_provider("per_context", 0);
    meet_in_a_provider("free", 0);
    small_session s = small_open(small_loop(), "");
    EXPECT(s.status == GANTRY_OK && s.session->model->constants.count > 0, "%s", s.err.message);
    work_together(&s, pack_many, workers);
    EXPECT(atomic_load(&alive) == 0, "%d packed constants are left", atomic_load(&alive));
    meet_in_the_cache(&s);
    small_close(&s);
    return failures != 0;
}
