/* The cache of compiled programs: what blob_save of a provider gives is kept in the runtime's cache folder,
 * and blob_load makes a program of it in the next process. Nothing that goes wrong here fails a session: the
 * partition is compiled, and the report says why. */
#include "answer.h"
#include "host_parts.h"
#include "program_key.h"
#include "variant_parts.h"

#include "base/clock.h"

/* One partition on its way through the cache. */
typedef struct cached_program {
    gantry_session *session;
    gt_session_provider *provider;
    const gantry_host *host;
    gt_program *slot;
    gt_text key_text;
    gt_cache_key key;
    gt_cache_file file;
    const char *state;
    gantry_error reason; /* why it is not loaded */
    gt_text detail;      /* the same, when there is more to say */
    void *saved;
    size_t saved_bytes;
    gantry_error not_kept;
    double lookup_ns, keep_ns;
} cached_program;

static bool takes_part(gantry_session *session, const gantry_provider *table)
{
    char folder[GT_SETTING_BYTES];
    if (!GANTRY_HAS(gantry_provider, table, blob_save) || !GANTRY_HAS(gantry_provider, table, blob_load))
        return false;
    gt_runtime_setting(session->runtime, GT_SETTING_CACHE, folder);
    return *folder != 0;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Which component of the key is to blame: the entry used last for the same nodes tells. */
static void explain_miss(cached_program *c)
{
    char *before = gt_cache_relative(c->host, &c->key);
    c->state = "miss";
    if (before)
        gt_program_key_compare(before, c->key.text, &c->detail);
    else
        gt_text_printf(&c->detail, "nothing is kept for these nodes");
    gt_host_free(c->host, before);
}

/* False when the cache can do nothing for this partition. */
static bool look_up(cached_program *c, const gantry_compile_args *args)
{
    uint64_t begin = gt_now_ns();
    c->state = "miss";
    gantry_status status = gt_program_key_make(c->session, c->provider->entry, args, &c->key_text,
                                               &c->key.identity_bytes, &c->reason);
    bool made = status == GANTRY_OK;
    c->key.text = c->key_text.data;
    if (made)
        status = gt_cache_read(c->host, &c->key, &c->file, &c->reason);
    bool usable = made && (status == GANTRY_OK || status == GANTRY_DATA);
    if (usable && !c->file.exists)
        explain_miss(c);
    else if (usable && status == GANTRY_DATA)
        c->state = "damaged";
    else if (!usable)
        c->not_kept = c->reason;
    c->lookup_ns = (double)(gt_now_ns() - begin);
    return usable;
}

/* ---- with the provider, under its lock where it asks for it ---------------------------------- */

/* A load that failed halfway may have recorded what the compile records again. */
static void forget_records(struct gantry_recorder *recorder)
{
    recorder->kernels.count = recorder->fusions.count = recorder->phases.count = 0;
    recorder->failed = false;
}

static bool load(cached_program *c, const gantry_compile_args *args)
{
    const gantry_provider *table = c->provider->entry->table;
    if (!c->file.data)
        return false;
    gt_error_clear(&c->reason);
    gantry_status status =
        table->blob_load(table->self, args, c->file.data, c->file.bytes, &c->slot->program, &c->reason);
    status = gt_provider_answer(c->provider->name, "blob_load", GANTRY_STAGE_COMPILE, status,
                                c->slot->program, &c->reason);
    c->state = status == GANTRY_OK ? "hit" : "refused";
    if (status == GANTRY_OK)
        return true;
    c->slot->program = NULL;
    forget_records(&c->slot->records);
    return false;
}

static void save(cached_program *c)
{
    const gantry_provider *table = c->provider->entry->table;
    uint64_t begin = gt_now_ns();
    gt_error_clear(&c->not_kept);
    gantry_status said =
        table->blob_save(table->self, c->slot->program, &c->saved, &c->saved_bytes, &c->not_kept);
    bool whole = c->saved_bytes && c->saved_bytes <= GT_MOST_BYTES;
    gantry_status status = gt_provider_answer(c->provider->name, "blob_save", GANTRY_STAGE_COMPILE, said,
                                              whole ? c->saved : NULL, &c->not_kept);
    if (status == GANTRY_OK)
        gt_error_clear(&c->not_kept);
    else if (said == GANTRY_OK)
        gt_host_free(c->host, c->saved);
    if (status != GANTRY_OK)
        c->saved = NULL; /* whatever a failed call left there is not ours to free */
    c->keep_ns = (double)(gt_now_ns() - begin);
}

/* c NULL: without the cache. */
static gantry_status load_or_compile(cached_program *c, gt_session_provider *provider,
                                     const gantry_compile_args *args, gt_program *slot, gantry_error *err)
{
    const gantry_provider *table = provider->entry->table;
    bool serial = gt_provider_is_serial(provider->entry);
    if (serial)
        gt_provider_lock(provider->entry);
    uint64_t begin = gt_now_ns();
    bool loaded = c && load(c, args);
    gt_error_clear(err);
    gantry_status status = loaded ? GANTRY_OK : table->compile(table->self, args, &slot->program, err);
    slot->compile_ns = (double)(gt_now_ns() - begin);
    if (c && !loaded && status == GANTRY_OK && slot->program)
        save(c);
    if (serial)
        gt_provider_unlock(provider->entry);
    return status;
}

/* ---- afterwards ------------------------------------------------------------------------------ */

static void publish(cached_program *c)
{
    uint64_t begin = gt_now_ns();
    if (!c->saved)
        return;
    gt_cache_write(c->host, &c->key, c->saved, c->saved_bytes, &c->not_kept);
    gt_host_free(c->host, c->saved);
    c->keep_ns += (double)(gt_now_ns() - begin);
}

static const char *keep_text(gt_arena *arena, const char *text)
{
    text = text ? text : "";
    return gt_arena_copy(arena, text, strlen(text) + 1);
}

/* What cannot be kept for want of memory is not said. */
static void tell(cached_program *c)
{
    gt_arena *arena = &c->slot->arena;
    bool hit = strcmp(c->state, "hit") == 0;
    const char *slash = strrchr(c->file.path, '/');
    gt_cache_event event = {.state = c->state, .lookup_ns = c->lookup_ns, .keep_ns = c->keep_ns};
    event.detail = keep_text(arena, hit ? "" : c->detail.length ? c->detail.data : c->reason.message);
    event.key = keep_text(arena, c->key.text);
    event.file = keep_text(arena, slash ? slash + 1 : "");
    event.not_kept = keep_text(arena, c->not_kept.message);
    event.bytes = hit ? c->file.bytes : c->not_kept.message[0] ? 0 : c->saved_bytes;
    if (event.detail && event.key && event.file && event.not_kept)
        c->slot->cache = event;
}

/* What a user may want to do something about. */
static void note(const cached_program *c)
{
    gt_model *model = c->session->model;
    const char *node = c->slot->view.view.nodes[0]->name;
    if (strcmp(c->state, "damaged") == 0 || strcmp(c->state, "refused") == 0)
        (void)gt_model_note(model, "program_cache", node, NULL,
                            "compiled by %s although the cache has it: %.900s", c->provider->name,
                            c->reason.message);
    if (c->not_kept.message[0] && c->not_kept.code != GANTRY_UNSUPPORTED)
        (void)gt_model_note(model, "program_cache", node, NULL, "not kept for the next time: %.900s",
                            c->not_kept.message);
}

gantry_status gt_program_make(gantry_session *session, gt_session_provider *provider,
                              const gantry_compile_args *args, gt_program *slot, gantry_error *err)
{
    if (!takes_part(session, provider->entry->table))
        return load_or_compile(NULL, provider, args, slot, err);
    cached_program c = {.session = session,
                        .provider = provider,
                        .host = gt_runtime_host_of(session->runtime, provider->entry),
                        .slot = slot,
                        .reason = GANTRY_ERROR_INIT,
                        .not_kept = GANTRY_ERROR_INIT};
    gt_text_init(&c.key_text, session->allocator);
    gt_text_init(&c.detail, session->allocator);
    bool found = look_up(&c, args);
    gantry_status status = load_or_compile(found ? &c : NULL, provider, args, slot, err);
    gt_host_free(c.host, c.file.data);
    publish(&c);
    if (status == GANTRY_OK) {
        tell(&c);
        note(&c);
    }
    gt_text_free(&c.key_text);
    gt_text_free(&c.detail);
    return status;
}
