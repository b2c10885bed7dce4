/* Rules about programs, with a few operators that the provider takes: many sizes at once, many threads,
 * timing, memory, stopping, broken constants. */
#include "kit.h"

#include <stdlib.h>

#define MODEL_MAX KIT_MODEL_MAX

/* The models of a rule; false and a skip when the provider takes none. */
bool kit_take_models(kit *k, kit_model **out_models, uint32_t *out_count)
{
    *out_count = 0;
    if (kit_subject_is_foreign(&k->subject)) {
        kit_skip(k, "its domain %s is brought by another plugin", k->subject.provider_info.domain);
        return false;
    }
    kit_doing(k, "judge of operators, to find some that it takes");
    *out_count = kit_supported(k, true, MODEL_MAX, out_models);
    if (*out_count == 0)
        kit_skip(k, "it takes none of the operators that the kit offers");
    return *out_count > 0;
}

bool kit_good(kit *k, const kit_model *m, gantry_status status, const gantry_error *err, const char *call)
{
    char words[2200];
    if (status != GANTRY_OK)
        kit_fail(k, "%s of %s failed: %s", call, m->row->op,
                 kit_error_text(status, err, words, sizeof words));
    return status == GANTRY_OK;
}

static void free_results(kit_array *got)
{
    for (uint32_t o = 0; o < KIT_MAX_OPERANDS; o++)
        kit_array_free(&got[o]);
}

/* One run of an open call, compared. */
static void run_and_compare(kit *k, kit_shaped *shaped, kit_call *call, const kit_data *data)
{
    gantry_error err = GANTRY_ERROR_INIT;
    kit_array got[KIT_MAX_OPERANDS];
    double largest = 0;
    if (kit_good(k, shaped->program->model, kit_call_run(shaped, call, data, got, &err), &err, "run"))
        kit_check_results(k, shaped->program->model, data, call, got, &largest);
    free_results(got);
}

/* ---- one program, opened for one size: what most rules work with ----------------------------- */

typedef struct opened {
    kit_program program;
    kit_data data;
    kit_shaped shaped;
    kit_call call;
} opened;

static bool open_one(kit *k, const kit_model *m, int64_t n, opened *out)
{
    gantry_error err = GANTRY_ERROR_INIT;
    *out = (opened){0};
    kit_doing(k, "compile, reshape and context_create of %s", m->row->op);
    return kit_data_make(m, n, 3, k->cpu, &out->data, &err) &&
           kit_good(k, m, kit_program_compile(&k->subject, m, &out->program, &err), &err, "compile") &&
           kit_good(k, m, kit_shaped_make(&out->program, &out->data, &out->shaped, &err), &err, "reshape") &&
           kit_good(k, m, kit_call_open(&out->shaped, &out->call, &err), &err, "context_create");
}

static void close_one(opened *o)
{
    if (o->shaped.program) {
        kit_call_close(&o->shaped, &o->call);
        kit_shaped_destroy(&o->shaped);
    }
    kit_program_destroy(&o->program);
    kit_data_free(&o->data);
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* Destroyed at each stage, without the next. */
static void check_early_end(kit *k)
{
    kit_model *models[MODEL_MAX];
    uint32_t count;
    if (kit_take_models(k, models, &count))
        for (uint32_t m = 0; m < count && !kit_failed(k); m++) {
            gantry_error err = GANTRY_ERROR_INIT;
            kit_program program;
            kit_shaped shaped = {0};
            kit_data data;
            if (!kit_data_make(models[m], KIT_TYPICAL_N, 1, k->cpu, &data, &err))
                continue;
            kit_doing(k, "compile of %s, and program_destroy at once", models[m]->row->op);
            if (kit_good(k, models[m], kit_program_compile(&k->subject, models[m], &program, &err), &err,
                         "compile"))
                kit_program_destroy(&program);
            kit_doing(k, "reshape of %s, and shaped_destroy at once", models[m]->row->op);
            if (kit_good(k, models[m], kit_program_compile(&k->subject, models[m], &program, &err), &err,
                         "compile")) {
                kit_shaped_make(&program, &data, &shaped, &err);
                kit_shaped_destroy(&shaped);
                kit_program_destroy(&program);
            }
            kit_data_free(&data);
        }
    kit_models_free(count, models);
}

#define SIZE_COUNT 3u

static void run_sizes(kit *k, const kit_model *m)
{
    static const int64_t SIZES[SIZE_COUNT] = {3, 1, 17};
    gantry_error err = GANTRY_ERROR_INIT;
    kit_program program;
    kit_shaped shaped[SIZE_COUNT] = {{0}};
    kit_call calls[SIZE_COUNT] = {{0}};
    kit_data data[SIZE_COUNT] = {{0}};
    bool open[SIZE_COUNT] = {false};
    if (!kit_good(k, m, kit_program_compile(&k->subject, m, &program, &err), &err, "compile"))
        return;
    for (uint32_t s = 0; s < SIZE_COUNT; s++)
        open[s] = kit_data_make(m, m->n < 0 ? SIZES[s] : m->n, s + 1, k->cpu, &data[s], &err) &&
                  kit_shaped_make(&program, &data[s], &shaped[s], &err) == GANTRY_OK &&
                  kit_call_open(&shaped[s], &calls[s], &err) == GANTRY_OK;
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t s = 0; s < SIZE_COUNT; s++)
            if (open[s] && !kit_failed(k)) {
                kit_doing(k, "a run of %s, size %u of %u that are bound at once", m->row->op, s, SIZE_COUNT);
                run_and_compare(k, &shaped[s], &calls[s], &data[s]);
            }
    for (uint32_t s = SIZE_COUNT; s-- > 0;) {
        if (open[s])
            kit_call_close(&shaped[s], &calls[s]);
        if (shaped[s].shaped)
            kit_shaped_destroy(&shaped[s]);
        kit_data_free(&data[s]);
    }
    kit_program_destroy(&program);
}

static void check_sizes(kit *k)
{
    kit_model *models[MODEL_MAX];
    uint32_t count;
    if (kit_take_models(k, models, &count))
        for (uint32_t m = 0; m < count && !kit_failed(k); m++)
            run_sizes(k, models[m]);
    kit_models_free(count, models);
}

/* The same context, with other data at other places. */
static void check_other_buffers(kit *k)
{
    kit_model *models[MODEL_MAX];
    uint32_t count;
    if (kit_take_models(k, models, &count))
        for (uint32_t m = 0; m < count && !kit_failed(k); m++) {
            opened o;
            bool open = open_one(k, models[m], KIT_TYPICAL_N, &o);
            for (uint32_t round = 0; open && round < 5 && !kit_failed(k); round++) {
                gantry_error err = GANTRY_ERROR_INIT;
                kit_data data;
                if (!kit_data_make(models[m], KIT_TYPICAL_N, 10 + round, k->cpu, &data, &err))
                    break;
                kit_doing(k, "run %u of one context of %s, with other buffers each time", round,
                          models[m]->row->op);
                run_and_compare(k, &o.shaped, &o.call, &data);
                kit_data_free(&data);
            }
            close_one(&o);
        }
    kit_models_free(count, models);
}

/* ---- threads --------------------------------------------------------------------------------- */

#define THREADS 3
#define RUNS 10

typedef struct caller {
    kit *k;
    kit_shaped *shaped;
    uint32_t seed;
    pthread_mutex_t *create, *run; /* what the host locks for the provider's class, or NULL */
} caller;

static void lock(pthread_mutex_t *mutex)
{
    if (mutex)
        pthread_mutex_lock(mutex);
}

static void unlock(pthread_mutex_t *mutex)
{
    if (mutex)
        pthread_mutex_unlock(mutex);
}

static void *call_often(void *arg)
{
    caller *c = arg;
    gantry_error err = GANTRY_ERROR_INIT;
    kit_data data;
    kit_call call;
    const kit_model *m = c->shaped->program->model;
    if (!kit_data_make(m, c->shaped->data->n, c->seed, c->k->cpu, &data, &err))
        return NULL;
    lock(c->create);
    bool open = kit_good(c->k, m, kit_call_open(c->shaped, &call, &err), &err, "context_create");
    unlock(c->create);
    for (int r = 0; open && r < RUNS && !kit_failed(c->k); r++) {
        lock(c->run);
        run_and_compare(c->k, c->shaped, &call, &data);
        unlock(c->run);
    }
    if (open)
        kit_call_close(c->shaped, &call);
    kit_data_free(&data);
    return NULL;
}

static void run_threads(kit *k, kit_shaped *shaped)
{
    pthread_t threads[THREADS];
    caller callers[THREADS];
    bool started[THREADS];
    pthread_mutex_t create, run;
    gantry_concurrency class = k->subject.provider_info.concurrency;
    pthread_mutex_init(&create, NULL);
    pthread_mutex_init(&run, NULL);
    for (uint32_t t = 0; t < THREADS; t++) {
        callers[t] = (caller){.k = k, .shaped = shaped, .seed = 100 + t};
        callers[t].create = class == GANTRY_CONCURRENCY_FREE ? NULL : &create;
        callers[t].run = class == GANTRY_CONCURRENCY_SERIAL ? &run : NULL;
        started[t] = pthread_create(&threads[t], NULL, call_often, &callers[t]) == 0;
    }
    for (uint32_t t = 0; t < THREADS; t++)
        if (started[t])
            pthread_join(threads[t], NULL);
    pthread_mutex_destroy(&create);
    pthread_mutex_destroy(&run);
}

static void check_threads(kit *k)
{
    static const char *const CLASSES[] = {"free", "per context", "serial"};
    gantry_concurrency class = k->subject.provider_info.concurrency;
    kit_model *models[MODEL_MAX];
    uint32_t count;
    if (kit_take_models(k, models, &count))
        for (uint32_t m = 0; m < count && !kit_failed(k); m++) {
            opened o;
            if (open_one(k, models[m], 17, &o)) {
                kit_doing(k, "runs of %s from %d threads, as the class \"%s\" allows", models[m]->row->op,
                          THREADS, CLASSES[class]);
                run_threads(k, &o.shaped);
            }
            close_one(&o);
        }
    kit_pass(k, "%d threads with a context each, class \"%s\"", THREADS, CLASSES[class]);
    kit_models_free(count, models);
}

/* ---- records and times ----------------------------------------------------------------------- */

static void check_records(kit *k)
{
    kit_model *models[MODEL_MAX];
    uint32_t count, kernels = 0;
    if (kit_take_models(k, models, &count))
        for (uint32_t m = 0; m < count && !kit_failed(k); m++) {
            opened o;
            if (open_one(k, models[m], KIT_TYPICAL_N, &o))
                kernels += o.program.recorder.kernel_count;
            close_one(&o);
        }
    if (kernels == 0)
        kit_skip(k, "record_kernel is never called: the report has no rows for this provider's kernels");
    else
        kit_pass(k, "%u kernels recorded for %u programs", kernels, count);
    kit_models_free(count, models);
}

/* What a timed run wrote; its sum, or -1 when a rule is broken. */
static double sum_events(kit *k, const opened *o)
{
    double sum = 0;
    if (o->call.event_count > KIT_MAX_EVENTS) {
        kit_fail(k, "out_timing_count is %u, the room was for %u", o->call.event_count, KIT_MAX_EVENTS);
        return -1;
    }
    for (uint32_t e = 0; e < o->call.event_count; e++) {
        const gantry_timing_event *event = &o->call.events[e];
        if (event->begin_ns == UINT64_MAX || event->duration_ns == UINT64_MAX) {
            kit_fail(k, "event %u of %u was counted and not written when the queue had passed the run", e,
                     o->call.event_count);
            return -1;
        }
        if (o->program.recorder.kernel_count && event->kernel_index > o->program.recorder.index_max)
            kit_fail(k, "event %u names kernel %u, which was not recorded", e, event->kernel_index);
        sum += (double)event->duration_ns;
    }
    return sum;
}

/* The clock of a device may run a little faster than the host's. */
#define TIMING_SLACK 1.05
#define TIMING_SLACK_NS 20000.0

static void time_one(kit *k, const kit_model *m, uint32_t *inout_events)
{
    opened o;
    if (open_one(k, m, 17, &o)) {
        o.call.timed = true;
        for (int round = 0; round < 3 && !kit_failed(k); round++) {
            kit_doing(k, "a timed run of %s", m->row->op);
            run_and_compare(k, &o.shaped, &o.call, &o.data);
            double sum = kit_failed(k) ? -1 : sum_events(k, &o);
            *inout_events += o.call.event_count;
            if (sum > (double)o.call.wall_ns * TIMING_SLACK + TIMING_SLACK_NS)
                kit_fail(k, "the events of a run of %s sum up to %.0f us; it took %.0f us", m->row->op,
                         sum / 1e3, (double)o.call.wall_ns / 1e3);
        }
    }
    close_one(&o);
}

static void check_timing(kit *k)
{
    kit_model *models[MODEL_MAX];
    uint32_t count, events = 0;
    if (kit_take_models(k, models, &count))
        for (uint32_t m = 0; m < count && !kit_failed(k); m++)
            time_one(k, models[m], &events);
    if (events == 0)
        kit_skip(k, "runs give no timing events: kernels are \"not measured\" in reports");
    else
        kit_pass(k, "%u events; their sum is never more than the run took", events);
    kit_models_free(count, models);
}

/* ---- memory ---------------------------------------------------------------------------------- */

#define CLASS_MAX 16u

static void check_classes(kit *k, char *out_text, size_t capacity)
{
    gantry_provider *table = &k->subject.provider;
    gantry_memory_class classes[CLASS_MAX + 1];
    for (uint32_t c = 0; c <= CLASS_MAX; c++)
        classes[c] = (gantry_memory_class){.struct_bytes = sizeof classes[c], .bytes = UINT64_MAX};
    kit_doing(k, "memory_classes with room for none");
    (void)table->memory_classes(table->self, classes, 0);
    kit_doing(k, "memory_classes");
    if (classes[0].bytes != UINT64_MAX)
        kit_fail(k, "memory_classes wrote a class where there was room for none");
    uint32_t count = table->memory_classes(table->self, classes, CLASS_MAX);
    if (classes[CLASS_MAX].bytes != UINT64_MAX)
        kit_fail(k, "memory_classes wrote more classes than there was room for");
    for (uint32_t c = 0; c < count && c < CLASS_MAX; c++) {
        if (!memchr(classes[c].name, 0, sizeof classes[c].name) || !*classes[c].name ||
            classes[c].bytes > UINT64_MAX / 2)
            kit_fail(k, "memory class %u has no name or no bytes", c);
        snprintf(out_text + strlen(out_text), capacity - strlen(out_text), ", %.31s %llu", classes[c].name,
                 (unsigned long long)classes[c].bytes);
    }
}

static void check_memory(kit *k)
{
    gantry_provider *table = &k->subject.provider;
    kit_model *models[MODEL_MAX];
    char text[512] = "";
    uint32_t count;
    opened o = {0};
    if (!table->memory && !GANTRY_HAS(gantry_provider, table, memory_classes) && !table->trim) {
        kit_skip(k, "it has none of memory, memory_classes and trim");
        return;
    }
    if (kit_take_models(k, models, &count) && open_one(k, models[0], KIT_TYPICAL_N, &o)) {
        if (table->memory) {
            kit_doing(k, "memory of a program");
            uint64_t bytes = table->memory(table->self, o.program.program);
            if (bytes > UINT64_C(1) << 40)
                kit_fail(k, "a program of one small operator is said to hold %llu bytes",
                         (unsigned long long)bytes);
            snprintf(text, sizeof text, "a program of %s holds %llu bytes", models[0]->row->op,
                     (unsigned long long)bytes);
        }
        if (GANTRY_HAS(gantry_provider, table, memory_classes))
            check_classes(k, text, sizeof text);
        if (table->trim) {
            kit_doing(k, "trim, and a run after it");
            table->trim(table->self);
            run_and_compare(k, &o.shaped, &o.call, &o.data);
        }
        kit_pass(k, "%s", text);
    }
    close_one(&o);
    kit_models_free(count, models);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void check_stop(kit *k)
{
    kit_model *models[MODEL_MAX];
    uint32_t count;
    opened o = {0};
    if (kit_take_models(k, models, &count) && open_one(k, models[0], KIT_TYPICAL_N, &o)) {
        gantry_error err = GANTRY_ERROR_INIT;
        kit_array got[KIT_MAX_OPERANDS];
        o.call.stopped = true;
        kit_doing(k, "a run whose stop flag is set");
        gantry_status status = kit_call_run(&o.shaped, &o.call, &o.data, got, &err);
        free_results(got);
        if (status != GANTRY_OK && status != GANTRY_CANCELLED)
            kit_good(k, models[0], status, &err, "a run whose stop flag is set");
        o.call.stopped = false;
        kit_doing(k, "a run after one that was stopped");
        run_and_compare(k, &o.shaped, &o.call, &o.data);
        kit_pass(k, "a run whose stop flag is set %s; the next one is right",
                 status == GANTRY_CANCELLED ? "gives GANTRY_CANCELLED" : "ends well");
    }
    close_one(&o);
    kit_models_free(count, models);
}

static void check_broken_constant(kit *k)
{
    kit_model *models[MODEL_MAX];
    uint32_t count, broken = 0;
    bool taken = kit_take_models(k, models, &count);
    for (uint32_t m = 0; taken && m < count && !kit_failed(k); m++) {
        gantry_error err = GANTRY_ERROR_INIT;
        kit_program program;
        double largest = 0;
        kit_data data;
        if (!models[m]->has_constants)
            continue;
        kit_doing(k, "compile of %s while constants can't be read", models[m]->row->op);
        uint64_t before = k->host.mapped;
        atomic_store(&k->host.constants_broken, true);
        gantry_status status = kit_program_compile(&k->subject, models[m], &program, &err);
        atomic_store(&k->host.constants_broken, false);
        bool asked = k->host.mapped != before;
        broken += asked;
        if (asked && status == GANTRY_OK)
            kit_fail(k, "compile of %s succeeds although constant_map failed: pass its status on",
                     models[m]->row->op);
        else if (status != GANTRY_OK && !*err.message)
            kit_fail(k, "compile of %s fails without words", models[m]->row->op);
        if (status == GANTRY_OK)
            kit_program_destroy(&program);
        if (kit_data_make(models[m], KIT_TYPICAL_N, 1, k->cpu, &data, &err)) {
            kit_try(k, models[m], &data, &largest);
            kit_data_free(&data);
        }
    }
    if (broken == 0)
        kit_skip(k, "it reads no constants in compile");
    else
        kit_pass(k, "compile fails with the status of constant_map, and works again afterwards");
    kit_models_free(count, models);
}

void kit_group_programs(kit *k)
{
    static const kit_rule RULES[] = {
        {"ended early", check_early_end, "destroyed after compile, and after reshape"},
        {"several sizes at once", check_sizes, "three sizes of one program, bound at once and run in turn"},
        {"other buffers", check_other_buffers, "five runs of one context, each with other buffers"},
        {"threads", check_threads, NULL},
        {"records", check_records, NULL},
        {"timing", check_timing, NULL},
        {"memory report", check_memory, NULL},
        {"blobs", kit_check_blobs, NULL},
        {"damaged blobs", kit_check_damaged_blobs, NULL},
        {"out of memory: blobs", kit_check_blob_memory, NULL},
        {"stop flag", check_stop, NULL},
        {"broken constant", check_broken_constant, NULL}};
    kit_run_rules(k, RULES, sizeof RULES / sizeof *RULES);
}
