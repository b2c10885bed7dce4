/* What a session holds besides the memory of its runs, constants and what providers keep, and how the option
 * memory_limit counts it. */
#include "session.h"

/* Counters only; differences may be negative, which wraps to the right sum. */
static void charge(gantry_session *session, atomic_size_t *part, uint64_t more)
{
    atomic_fetch_add(part, (size_t)more);
    atomic_fetch_add(&session->held_bytes, (size_t)more);
}

void gt_session_charge_program(gantry_session *session, const gantry_provider *table, gt_program *program)
{
    uint64_t bytes = program->program && table->memory ? table->memory(table->self, program->program) : 0;
    uint64_t before = __atomic_exchange_n(&program->held_bytes, bytes, __ATOMIC_RELAXED);
    charge(session, &session->provider_bytes, bytes - before);
}

void gt_session_charge_constants(gantry_session *session)
{
    uint64_t bytes = gt_model_held_bytes(session->model);
    charge(session, &session->constant_bytes, bytes - atomic_load(&session->constant_bytes));
}

void gt_session_describe_held(const gantry_session *session, char *out_text)
{
    size_t held = atomic_load(&session->held_bytes), constants = atomic_load(&session->constant_bytes),
           providers = atomic_load(&session->provider_bytes);
    snprintf(out_text, GT_HELD_TEXT,
             "memory_limit is %llu; the session holds %zu bytes (%zu of constants, %zu that providers keep, "
             "%zu of its runs)",
             (unsigned long long)session->options.memory_limit, held, constants, providers,
             held - constants - providers);
}

/* Appends "'w' float32[4,8] (128 bytes)". */
static void describe_constant(const gt_constant *constant, gt_text *text)
{
    gt_text_printf(text, "'%.200s' %s[", constant->name ? constant->name : "",
                   gantry_dtype_text(constant->dtype));
    for (uint32_t d = 0; d < constant->rank; d++)
        gt_text_printf(text, d ? ",%lld" : "%lld", (long long)constant->dims[d]);
    gt_text_printf(text, "] (%zu bytes)", constant->bytes);
}

static gantry_status refuse(const gantry_session *session, const char *what, uint32_t largest,
                            gantry_error *err)
{
    gt_text text;
    gt_text_init(&text, session->allocator);
    if (largest != GT_NONE) {
        gt_text_printf(&text, "; the largest constant is ");
        describe_constant(&session->model->constants.data[largest], &text);
    }
    gantry_status status = gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_COMPILE, NULL,
                                   "%s%s; give the session a larger memory_limit, or none (0)", what,
                                   text.data ? text.data : "");
    gt_text_free(&text);
    return status;
}

gantry_status gt_session_check_constants(const gantry_session *session, gantry_error *err)
{
    uint64_t bytes;
    uint32_t largest;
    char what[GT_HELD_TEXT];
    if (!session->options.memory_limit)
        return GANTRY_OK;
    GT_TRY(gt_model_count_constants(session->model, &bytes, &largest, err));
    if (bytes <= session->options.memory_limit)
        return GANTRY_OK;
    snprintf(what, sizeof what, "memory_limit is %llu; the constants that nodes read take %llu bytes",
             (unsigned long long)session->options.memory_limit, (unsigned long long)bytes);
    return refuse(session, what, largest, err);
}

gantry_status gt_session_check_held(const gantry_session *session, gantry_error *err)
{
    uint64_t bytes;
    uint32_t largest;
    char what[GT_HELD_TEXT];
    if (!session->options.memory_limit || atomic_load(&session->held_bytes) <= session->options.memory_limit)
        return GANTRY_OK;
    GT_TRY(gt_model_count_constants(session->model, &bytes, &largest, err));
    gt_session_describe_held(session, what);
    return refuse(session, what, largest, err);
}
