/* Rules about programs as bytes (blob_save, blob_load): what is loaded is what was saved, in another instance
 * of the plugin and under other ids too; damaged bytes and memory that runs out give a status. */
#include "kit.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CUT_MAX 64u     /* lengths to which a blob is cut */
#define FAILURE_MAX 64u /* allocations that fail in turn */
#define OTHER_IDS 900u

/* A model that was compiled and saved, and what it computed. */
typedef struct saved {
    const kit_model *model;
    kit_data data;
    kit_array computed[KIT_MAX_OPERANDS];
    uint64_t digest; /* of its records */
    void *bytes;
    size_t count;
} saved;

static bool run_once(kit *k, kit_program *program, const kit_data *data, kit_array *out_got)
{
    gantry_error err = GANTRY_ERROR_INIT;
    const kit_model *m = program->model;
    kit_shaped shaped = {0};
    kit_call call = {0};
    double largest = 0;
    bool ran = kit_good(k, m, kit_shaped_make(program, data, &shaped, &err), &err, "reshape") &&
               kit_good(k, m, kit_call_open(&shaped, &call, &err), &err, "context_create") &&
               kit_good(k, m, kit_call_run(&shaped, &call, data, out_got, &err), &err, "run");
    if (ran)
        kit_check_results(k, m, data, &call, out_got, &largest);
    if (shaped.shaped) {
        kit_call_close(&shaped, &call);
        kit_shaped_destroy(&shaped);
    }
    return ran && !kit_failed(k);
}

static gantry_status save_program(kit *k, const kit_program *program, saved *out, gantry_error *err)
{
    gantry_provider *table = &k->subject.provider;
    out->bytes = NULL;
    out->count = 0;
    kit_doing(k, "blob_save of %s", program->model->row->op);
    gantry_status status = table->blob_save(table->self, program->program, &out->bytes, &out->count, err);
    if (status != GANTRY_OK)
        out->bytes = NULL;
    else if (!out->bytes || !out->count)
        kit_fail(k,
                 "blob_save of %s gives OK and no bytes: GANTRY_UNSUPPORTED says that this one is not kept",
                 program->model->row->op);
    return status;
}

static void forget(kit *k, saved *s)
{
    for (uint32_t o = 0; o < KIT_MAX_OPERANDS; o++)
        kit_array_free(&s->computed[o]);
    kit_data_free(&s->data);
    k->host.table.free(&k->host.table, s->bytes);
    *s = (saved){0};
}

/* False when the rule failed, or the provider does not keep this program. */
static bool compile_and_save(kit *k, const kit_model *m, saved *out)
{
    gantry_error err = GANTRY_ERROR_INIT;
    kit_program program = {0};
    gantry_status status = GANTRY_OK;
    *out = (saved){.model = m};
    kit_doing(k, "compile of %s, to save it", m->row->op);
    bool good = kit_data_make(m, KIT_TYPICAL_N, 2, k->cpu, &out->data, &err) &&
                kit_good(k, m, kit_program_compile(&k->subject, m, &program, &err), &err, "compile");
    out->digest = program.recorder.digest;
    if (good && run_once(k, &program, &out->data, out->computed))
        status = save_program(k, &program, out, &err);
    if (status != GANTRY_UNSUPPORTED)
        kit_good(k, m, status, &err, "blob_save");
    kit_program_destroy(&program);
    return out->bytes && !kit_failed(k);
}

/* ---- what is loaded -------------------------------------------------------------------------- */

static void compare_bits(kit *k, const saved *s, const kit_array *got)
{
    for (uint32_t o = 0; o < s->model->result_count && !kit_failed(k); o++)
        if (got[o].bytes != s->computed[o].bytes ||
            (got[o].bytes && memcmp(got[o].data, s->computed[o].data, got[o].bytes) != 0))
            kit_fail(
                k,
                "output %u of %s differs between the compiled program and the one loaded from its bytes: "
                "they have to be the same to the last bit",
                o, s->model->row->op);
}

/* model: that of the blob, or the same under other ids. */
static void load_and_compare(kit *k, kit_subject *subject, const kit_model *model, const saved *s,
                             const char *where)
{
    gantry_error err = GANTRY_ERROR_INIT;
    kit_program program = {0};
    kit_array got[KIT_MAX_OPERANDS] = {{0}};
    kit_doing(k, "blob_load of %s %s", model->row->op, where);
    if (!kit_good(k, model, kit_program_load(subject, model, s->bytes, s->count, &program, &err), &err,
                  "blob_load"))
        return;
    if (program.recorder.digest != s->digest)
        kit_fail(
            k,
            "blob_load of %s %s records other kernels and fusions than compile did: reports would change "
            "with the cache",
            model->row->op, where);
    else if (run_once(k, &program, &s->data, got))
        compare_bits(k, s, got);
    for (uint32_t o = 0; o < KIT_MAX_OPERANDS; o++)
        kit_array_free(&got[o]);
    kit_program_destroy(&program);
}

/* As in another process: nothing of the instance that saved is there. */
static void load_in_another_instance(kit *k, const saved *s)
{
    gantry_error err = GANTRY_ERROR_INIT;
    kit_subject other;
    kit_doing(k, "gantry_plugin_open of a second instance, for blob_load");
    gantry_status status = kit_subject_open(k->open, &k->host, k->provider, &other, &err);
    if (kit_good(k, s->model, status, &err, "a second instance for blob_load"))
        load_and_compare(k, &other, s->model, s, "in another instance of the plugin");
    kit_subject_close(&other);
}

static void load_under_other_ids(kit *k, const saved *s)
{
    gantry_error err = GANTRY_ERROR_INIT;
    kit_model *model = calloc(1, sizeof *model);
    if (model && kit_model_make(s->model->row, s->model->n, k->cpu, model, &err)) {
        model->node.id += OTHER_IDS;
        for (uint32_t v = 0; v < model->view.value_count; v++)
            model->values[v].id += OTHER_IDS;
        load_and_compare(k, &k->subject, model, s, "under other ids, as another session has");
        kit_models_free(1, &model);
        return;
    }
    free(model);
}

/* Whether the same program gives the same bytes; nobody has to. */
static bool saves_the_same(kit *k, const saved *s)
{
    saved again;
    bool same = compile_and_save(k, s->model, &again) && again.count == s->count &&
                memcmp(again.bytes, s->bytes, s->count) == 0;
    forget(k, &again);
    return same;
}

/* The models, when the provider has the entries; else the rule is skipped. */
static bool begin(kit *k, kit_model **out_models, uint32_t *out_count)
{
    const gantry_provider *table = &k->subject.provider;
    *out_count = 0;
    if (GANTRY_HAS(gantry_provider, table, blob_save) && GANTRY_HAS(gantry_provider, table, blob_load))
        return kit_take_models(k, out_models, out_count);
    kit_skip(k, "it has no blob_save and blob_load: programs are compiled in each process");
    return false;
}

void kit_check_blobs(kit *k)
{
    kit_model *models[KIT_MODEL_MAX];
    uint32_t count, kept = 0;
    size_t bytes = 0;
    bool same = true, any = begin(k, models, &count);
    for (uint32_t m = 0; any && m < count && !kit_failed(k); m++) {
        saved s;
        if (compile_and_save(k, models[m], &s)) {
            kept++;
            bytes += s.count;
            load_and_compare(k, &k->subject, models[m], &s, "at once");
            if (!kit_failed(k))
                load_under_other_ids(k, &s);
            if (!kit_failed(k))
                load_in_another_instance(k, &s);
            same = same && saves_the_same(k, &s);
        }
        forget(k, &s);
    }
    if (kept)
        kit_pass(
            k,
            "%u programs, %zu bytes, %s each time: loaded again they compute the same bits and record the "
            "same",
            kept, bytes, same ? "the same" : "others (which is fine)");
    else if (any)
        kit_skip(k, "blob_save says GANTRY_UNSUPPORTED for what the kit offers");
    kit_models_free(count, models);
}

/* ---- what is damaged ------------------------------------------------------------------------- */

/* The bytes end where memory ends: one that is read behind them is a crash. */
typedef struct fenced {
    char *map, *data;
    size_t map_bytes;
} fenced;

static bool fenced_make(const void *bytes, size_t count, fenced *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (count + page) / page * page;
    out->map_bytes = room + page;
    out->map = mmap(NULL, out->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (out->map == MAP_FAILED || mprotect(out->map + room, page, PROT_NONE) != 0)
        return false;
    out->data = out->map + room - count;
    if (count)
        memcpy(out->data, bytes, count);
    return true;
}

static void refuse_bytes(kit *k, const saved *s, const void *bytes, size_t count, const char *what)
{
    char words[2200];
    gantry_error err = GANTRY_ERROR_INIT;
    kit_program program = {0};
    fenced copy = {0};
    uint64_t before = atomic_load(&k->host.live_blocks);
    if (kit_failed(k) || !fenced_make(bytes, count, &copy))
        return;
    kit_doing(k, "blob_load of %s, with %s (%zu of %zu bytes)", s->model->row->op, what, count, s->count);
    gantry_status status = kit_program_load(&k->subject, s->model, copy.data, count, &program, &err);
    kit_program_destroy(&program);
    if (status != GANTRY_DATA)
        kit_fail(
            k,
            "blob_load of %s, with %s (%zu of %zu bytes), gives %s, not GANTRY_DATA: check sizes and a mark "
            "of your own before anything else",
            s->model->row->op, what, count, s->count, kit_error_text(status, &err, words, sizeof words));
    else if (!*err.message)
        kit_fail(k, "blob_load of %s, with %s, gives GANTRY_DATA without words", s->model->row->op, what);
    else if (atomic_load(&k->host.live_blocks) != before)
        kit_fail(k, "blob_load of %s, with %s, leaves blocks of host->alloc behind", s->model->row->op, what);
    munmap(copy.map, copy.map_bytes);
}

/* Lengths from 0 to all but one byte, evenly. */
static uint32_t refuse_cuts(kit *k, const saved *s)
{
    uint32_t count = s->count < CUT_MAX ? (uint32_t)s->count : CUT_MAX;
    for (uint32_t c = 0; c < count; c++)
        refuse_bytes(k, s, s->bytes, c + 1 == count ? s->count - 1 : s->count * c / count, "the end cut off");
    return count;
}

void kit_check_damaged_blobs(kit *k)
{
    kit_model *models[KIT_MODEL_MAX];
    uint32_t count, refused = 0;
    bool any = begin(k, models, &count);
    for (uint32_t m = 0; any && m < count && !kit_failed(k); m++) {
        saved s;
        if (compile_and_save(k, models[m], &s)) {
            refused += refuse_cuts(k, &s);
            refuse_bytes(k, &s, "not a blob", 10, "other bytes");
            refused++;
            if (!kit_failed(k))
                load_and_compare(k, &k->subject, models[m], &s, "after damaged ones");
        }
        forget(k, &s);
    }
    if (refused)
        kit_pass(k, "%u cut or strange ones give GANTRY_DATA, and none is read past its end", refused);
    else if (any)
        kit_skip(k, "blob_save says GANTRY_UNSUPPORTED for what the kit offers");
    kit_models_free(count, models);
}

/* ---- memory that runs out -------------------------------------------------------------------- */

/* Whether the allocation that was to fail was asked for. */
static bool struck(kit *k, const saved *s, const char *call, uint32_t number, gantry_status status,
                   const gantry_error *err)
{
    bool asked = atomic_load(&k->host.fail_at) <= 0;
    kit_host_fail_at(&k->host, 0);
    if (status != GANTRY_OK && !asked)
        kit_good(k, s->model, status, err, call);
    else if (status != GANTRY_OK && !*err->message)
        kit_fail(k, "%s of %s fails without words when allocation %u gives NULL", call, s->model->row->op,
                 number);
    return asked;
}

static void expect_blocks(kit *k, uint64_t before, const char *call, uint32_t number)
{
    uint64_t now = atomic_load(&k->host.live_blocks);
    if (now != before)
        kit_fail(k, "%llu blocks of host->alloc stay behind when allocation %u of %s fails",
                 (unsigned long long)(now - before), number, call);
}

static uint32_t fail_saves(kit *k, const saved *s)
{
    gantry_error err = GANTRY_ERROR_INIT;
    kit_program program = {0};
    uint32_t number = 0;
    bool asked =
        kit_good(k, s->model, kit_program_compile(&k->subject, s->model, &program, &err), &err, "compile");
    while (asked && number < FAILURE_MAX && !kit_failed(k)) {
        saved again = {0};
        uint64_t before = atomic_load(&k->host.live_blocks);
        kit_host_fail_at(&k->host, ++number);
        *err.message = 0;
        gantry_status status = save_program(k, &program, &again, &err);
        asked = struck(k, s, "blob_save", number, status, &err);
        k->host.table.free(&k->host.table, again.bytes);
        expect_blocks(k, before, "blob_save", number);
    }
    kit_program_destroy(&program);
    return number ? number - 1 : 0;
}

static uint32_t fail_loads(kit *k, const saved *s)
{
    uint32_t number = 0;
    for (bool asked = true; asked && number < FAILURE_MAX && !kit_failed(k);) {
        gantry_error err = GANTRY_ERROR_INIT;
        kit_program program = {0};
        uint64_t before = atomic_load(&k->host.live_blocks);
        kit_host_fail_at(&k->host, ++number);
        kit_doing(k, "blob_load of %s while allocation %u of it fails", s->model->row->op, number);
        gantry_status status = kit_program_load(&k->subject, s->model, s->bytes, s->count, &program, &err);
        asked = struck(k, s, "blob_load", number, status, &err);
        kit_program_destroy(&program);
        expect_blocks(k, before, "blob_load", number);
        if (asked && !kit_failed(k))
            load_and_compare(k, &k->subject, s->model, s, "after one that ran out of memory");
    }
    return number ? number - 1 : 0;
}

void kit_check_blob_memory(kit *k)
{
    kit_model *models[KIT_MODEL_MAX];
    uint32_t count, failures = 0;
    saved s = {0};
    bool any = begin(k, models, &count);
    if (any && compile_and_save(k, models[0], &s)) {
        failures = fail_saves(k, &s);
        failures += kit_failed(k) ? 0 : fail_loads(k, &s);
    }
    forget(k, &s);
    if (failures)
        kit_pass(k, "each of %u allocations: a status or none needed, nothing left behind", failures);
    else if (any)
        kit_skip(k, "they take nothing from host->alloc, or nothing is kept");
    kit_models_free(count, models);
}
