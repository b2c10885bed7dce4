/* Rules about memory that runs out: at each stage the Nth call of host->alloc fails, for every N. A status
 * comes back, nothing stays behind, and the same call works the next time. */
#include "kit.h"

#include <stdlib.h>

/* More allocations of one stage than these are not walked. */
#define FAILURE_MAX 64

typedef enum stage { STAGE_OPEN, STAGE_COMPILE, STAGE_RESHAPE, STAGE_CONTEXT, STAGE_RUN, STAGE_COUNT } stage;
static const char *const STAGES[] = {"gantry_plugin_open", "compile", "reshape",
                                     "queue_open or context_create", "run"};

/* One life of a program, with the failure at one stage. */
typedef struct life {
    kit *k;
    const kit_model *model;
    const kit_data *data;
    stage at;
    int number;   /* of the allocation that fails */
    bool reached; /* it was asked for */
    bool failed;  /* the stage gave a status */
} life;

/* Arms the failure when this is its stage; disarm says whether it struck. */
static bool arm(life *l, stage s)
{
    bool here = l->at == s;
    kit_host_fail_at(&l->k->host, here ? l->number : 0);
    if (here)
        kit_doing(l->k, "%s of %s while allocation %d of it fails", STAGES[s],
                  l->model ? l->model->row->op : "the plugin", l->number);
    else
        kit_doing(l->k, "%s in a life in which allocation %d of %s fails", STAGES[s], l->number,
                  STAGES[l->at]);
    return here;
}

static void disarm(life *l, bool here, gantry_status status, const gantry_error *err)
{
    char words[2200];
    if (here)
        l->reached = atomic_load(&l->k->host.fail_at) <= 0;
    kit_host_fail_at(&l->k->host, 0);
    if (here && status != GANTRY_OK) {
        l->failed = true;
        if (!l->reached)
            kit_fail(l->k, "%s failed, and no allocation did: %s", STAGES[l->at],
                     kit_error_text(status, err, words, sizeof words));
        else if (!*err->message)
            kit_fail(l->k, "%s fails without words when host->alloc gives NULL", STAGES[l->at]);
    } else if (status != GANTRY_OK) {
        kit_fail(l->k, "%s failed after one before had run out of memory: %s", STAGES[l->at],
                 kit_error_text(status, err, words, sizeof words));
    }
}

/* Each step: with the failure, and when it failed once more without. */
#define STEP(l, s, call)                                                                                     \
    do {                                                                                                     \
        *err.message = 0;                                                                                    \
        bool here = arm(l, s);                                                                               \
        status = (call);                                                                                     \
        disarm(l, here, status, &err);                                                                       \
        if (here && status != GANTRY_OK && !kit_failed((l)->k)) {                                            \
            kit_doing((l)->k, "%s again, after one that ran out of memory", STAGES[s]);                      \
            status = (call);                                                                                 \
            disarm(l, false, status, &err);                                                                  \
        }                                                                                                    \
    } while (0)

static void live(life *l)
{
    kit *k = l->k;
    gantry_error err = GANTRY_ERROR_INIT;
    gantry_status status;
    kit_program program = {0};
    kit_shaped shaped = {0};
    kit_call call = {0};
    kit_array got[KIT_MAX_OPERANDS] = {{0}};
    double largest = 0;
    STEP(l, STAGE_OPEN, kit_subject_open(k->open, &k->host, k->provider, &k->subject, &err));
    if (status == GANTRY_OK && l->model)
        STEP(l, STAGE_COMPILE, kit_program_compile(&k->subject, l->model, &program, &err));
    if (status == GANTRY_OK && program.program)
        STEP(l, STAGE_RESHAPE, kit_shaped_make(&program, l->data, &shaped, &err));
    if (status == GANTRY_OK && shaped.shaped)
        STEP(l, STAGE_CONTEXT, kit_call_open(&shaped, &call, &err));
    if (status == GANTRY_OK && call.context) {
        STEP(l, STAGE_RUN, kit_call_run(&shaped, &call, l->data, got, &err));
        if (status == GANTRY_OK)
            kit_check_results(k, l->model, l->data, &call, got, &largest);
    }
    for (uint32_t o = 0; o < KIT_MAX_OPERANDS; o++)
        kit_array_free(&got[o]);
    kit_doing(k, "the end of a life in which allocation %d of %s failed", l->number, STAGES[l->at]);
    if (call.context)
        kit_call_close(&shaped, &call);
    if (shaped.shaped)
        kit_shaped_destroy(&shaped);
    if (program.program)
        kit_program_destroy(&program);
    kit_subject_close(&k->subject);
}

static void check_left(life *l)
{
    kit *k = l->k;
    uint64_t left = atomic_load(&k->host.live_blocks);
    if (left)
        kit_fail(k,
                 "%llu blocks of host->alloc stay behind when allocation %d of %s fails: free what was made "
                 "before",
                 (unsigned long long)left, l->number, STAGES[l->at]);
    atomic_store(&k->host.live_blocks, 0);
}

/* How many allocations of that stage were made to fail. */
static int walk(kit *k, stage at, const kit_model *model, const kit_data *data)
{
    int struck = 0;
    for (int number = 1; number <= FAILURE_MAX && !kit_failed(k); number++) {
        life l = {.k = k, .model = model, .data = data, .at = at, .number = number};
        live(&l);
        check_left(&l);
        if (!l.reached)
            break;
        struck++;
    }
    return struck;
}

/* A model that the provider takes, and its data; NULL: none. */
static kit_model *find_model(kit *k, kit_data *out_data)
{
    gantry_error err = GANTRY_ERROR_INIT;
    kit_model *model = NULL;
    if (kit_subject_open(k->open, &k->host, k->provider, &k->subject, &err) == GANTRY_OK &&
        !kit_subject_is_foreign(&k->subject))
        kit_supported(k, true, 1, &model);
    kit_subject_close(&k->subject);
    if (model && !kit_data_make(model, KIT_TYPICAL_N, 1, k->cpu, out_data, &err)) {
        kit_models_free(1, &model);
        model = NULL;
    }
    return model;
}

void kit_group_faults(kit *k)
{
    static const char *const NAMES[] = {"out of memory: open", "out of memory: compile",
                                        "out of memory: reshape", "out of memory: context",
                                        "out of memory: run"};
    kit_data data = {0};
    kit_model *model = find_model(k, &data);
    for (uint32_t s = 0; s < STAGE_COUNT; s++) {
        if (!kit_rule_begin(k, NAMES[s]))
            continue;
        if (s > STAGE_OPEN && !model) {
            kit_skip(k, "it takes none of the operators that the kit offers");
        } else {
            int struck = walk(k, (stage)s, model, &data);
            if (struck == 0)
                kit_skip(
                    k,
                    "%s takes nothing from host->alloc: right when it needs no memory; the application's "
                    "allocator and limits do not hold for what it takes elsewhere",
                    STAGES[s]);
            else
                kit_pass(k,
                         "each of %d allocations: a status or none needed, nothing left behind, works the "
                         "next time",
                         struck);
        }
        kit_rule_end(k, "");
    }
    kit_data_free(&data);
    if (model)
        kit_models_free(1, &model);
}
