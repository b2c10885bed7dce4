/* Session options: what the caller set, and what holds for this process. */
#include "options_keys.h"

#include <errno.h>
#include <sched.h>

typedef struct setting {
    char *key;
    char *value;
} setting;

/* What the caller set, in the order in which the keys were first set. Each was parsed once when it was set.
 */
struct gantry_options {
    gt_allocator allocator;
    GT_VEC(setting) settings;
    gantry_log_fn log;
    void *log_user;
};

/* ---- gantry_options -------------------------------------------------------------------------- */

gantry_status gantry_options_create(gantry_options **out_options, gantry_error *err)
{
    if (!out_options)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL, "out_options is NULL");
    gt_allocator allocator;
    gt_allocator_init(&allocator, NULL);
    *out_options = GT_NEW(&allocator, gantry_options);
    if (!*out_options)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    gt_allocator_init(&(*out_options)->allocator, NULL);
    return GANTRY_OK;
}

void gantry_options_destroy(gantry_options **options)
{
    if (!options || !*options)
        return;
    gantry_options *o = *options;
    gt_allocator allocator;
    gt_allocator_init(&allocator, NULL);
    for (uint32_t k = 0; k < o->settings.count; k++) {
        gt_free(&allocator, o->settings.data[k].key);
        gt_free(&allocator, o->settings.data[k].value);
    }
    gt_vec_free(&allocator, &o->settings);
    gt_free(&allocator, o);
    *options = NULL;
}

static char *copy_text(gt_allocator *allocator, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = gt_alloc(allocator, bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

/* Takes over both texts, or frees them. */
static gantry_status store_setting(gantry_options *options, char *key, char *value, gantry_error *err)
{
    setting fresh = {key, value};
    for (uint32_t k = 0; key && value && k < options->settings.count; k++) {
        setting *old = &options->settings.data[k];
        if (strcmp(old->key, key) == 0) {
            gt_free(&options->allocator, old->key);
            gt_free(&options->allocator, old->value);
            *old = fresh;
            return GANTRY_OK;
        }
    }
    if (key && value && gt_vec_push(&options->allocator, &options->settings, fresh))
        return GANTRY_OK;
    gt_free(&options->allocator, key);
    gt_free(&options->allocator, value);
    return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

gantry_status gantry_options_set(gantry_options *options, const char *key, const char *value,
                                 gantry_error *err)
{
    if (!options || !key || !value)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL, "%s is NULL",
                       !options ? "options"
                       : !key   ? "key"
                                : "value");
    gt_options scratch = {.timing = GT_TIMING_OFF};
    gt_arena_init(&scratch.arena, &options->allocator);
    gantry_status status = gt_option_parse(&scratch, key, value, err);
    gt_options_free(&scratch);
    GT_TRY(status);
    return store_setting(options, copy_text(&options->allocator, key), copy_text(&options->allocator, value),
                         err);
}

gantry_status gantry_options_set_log(gantry_options *options, gantry_log_fn log, void *user,
                                     gantry_error *err)
{
    if (!options)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL, "options is NULL");
    options->log = log;
    options->log_user = user;
    return GANTRY_OK;
}

/* ---- resolving ------------------------------------------------------------------------------- */

static const char *setting_value(const gantry_options *options, const char *key)
{
    for (uint32_t k = 0; options && k < options->settings.count; k++)
        if (strcmp(options->settings.data[k].key, key) == 0)
            return options->settings.data[k].value;
    return NULL;
}

/* CPUs this process may run on; the mask of a large machine does not fit a cpu_set_t. */
static int count_cpus(void)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 4) {
        cpu_set_t *mask = CPU_ALLOC((size_t)cpus);
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int result = mask ? sched_getaffinity(0, bytes, mask) : -1;
        int count = result == 0 ? CPU_COUNT_S(bytes, mask) : 0;
        int too_small = mask && result != 0 && errno == EINVAL;
        if (mask)
            CPU_FREE(mask);
        if (!too_small)
            return count > 0 ? count : 1;
    }
    return 1;
}

static gantry_status add_row(gt_options *options, const char *key, const char *asked, const char *effective,
                             const char *origin, gantry_error *err)
{
    const char *in_force = gt_arena_text(&options->arena, effective, strlen(effective));
    gt_option_row row = {.key = gt_arena_text(&options->arena, key, strlen(key)),
                         .asked = asked ? gt_arena_text(&options->arena, asked, strlen(asked)) : NULL,
                         .effective = in_force,
                         .origin = origin};
    if (!row.key || (asked && !row.asked) || !row.effective ||
        !gt_vec_push(options->arena.allocator, &options->rows, row))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

static gantry_status resolve_key(gt_options *options, const gt_option_key *key, const char *asked,
                                 gantry_error *err)
{
    char number[16];
    const char *effective = asked ? asked : key->fallback, *origin = asked ? "user" : "default";
    GT_TRY(key->parse(options, key, "", effective, err));
    if (strcmp(key->key, "threads") == 0 && options->threads == 0) {
        options->threads = count_cpus();
        snprintf(number, sizeof number, "%d", options->threads);
        effective = number;
        origin = "mask";
    }
    if (strcmp(key->key, "fold") == 0 && options->fold && !options->rewrites) {
        options->fold = false;
        effective = "off";
        origin = "overridden by rewrites=off";
    }
    return add_row(options, key->key, asked, effective, origin, err);
}

static bool is_listed(const gt_options *options, const char *provider, size_t length)
{
    for (uint32_t k = 0; k < options->provider_count; k++)
        if (strlen(options->providers[k]) == length && strncmp(options->providers[k], provider, length) == 0)
            return true;
    return false;
}

/* Keys that are not in the table by themselves: prefixes and PROVIDER.KEY. */
static gantry_status resolve_named(gt_options *options, const setting *s, gantry_error *err)
{
    const char *name, *effective = s->value, *origin = "user";
    const gt_option_key *key = gt_option_find(s->key, &name);
    GT_TRY(gt_option_parse(options, s->key, s->value, err));
    if (key && strcmp(key->key, "rewrites.") == 0 && !options->rewrites && strcmp(effective, "off") != 0) {
        effective = "off";
        origin = "overridden by rewrites=off";
    }
    if (!key && !is_listed(options, s->key, (size_t)(strchr(s->key, '.') - s->key)))
        origin = "user; its provider is not in the list";
    return add_row(options, s->key, s->value, effective, origin, err);
}

gantry_status gt_options_resolve(gt_allocator *allocator, const gantry_options *options,
                                 gt_options *out_options, gantry_error *err)
{
    *out_options = (gt_options){.threads = 1};
    gt_arena_init(&out_options->arena, allocator);
    uint32_t key_count;
    const gt_option_key *keys = gt_option_keys(&key_count);
    gantry_status status = GANTRY_OK;
    for (uint32_t k = 0; status == GANTRY_OK && k < key_count; k++)
        if (keys[k].fallback)
            status = resolve_key(out_options, &keys[k], setting_value(options, keys[k].key), err);
    for (uint32_t k = 0; status == GANTRY_OK && options && k < options->settings.count; k++) {
        const char *name;
        const gt_option_key *key = gt_option_find(options->settings.data[k].key, &name);
        if (!key || !key->fallback)
            status = resolve_named(out_options, &options->settings.data[k], err);
    }
    if (status != GANTRY_OK) {
        gt_options_free(out_options);
        return status;
    }
    out_options->log = options ? options->log : NULL;
    out_options->log_user = options ? options->log_user : NULL;
    return GANTRY_OK;
}

void gt_options_free(gt_options *options)
{
    if (!options || !options->arena.allocator)
        return;
    gt_allocator *allocator = options->arena.allocator;
    gt_vec_free(allocator, &options->disabled_rewrites);
    gt_vec_free(allocator, &options->dims);
    gt_vec_free(allocator, &options->shapes);
    gt_vec_free(allocator, &options->pins);
    gt_vec_free(allocator, &options->binds);
    gt_vec_free(allocator, &options->cpu_disabled);
    gt_vec_free(allocator, &options->rows);
    gt_arena_clear(&options->arena);
    *options = (gt_options){.threads = 1};
}

const char *gt_options_text(const gt_options *options, const char *key)
{
    for (uint32_t k = 0; options && k < options->rows.count; k++)
        if (strcmp(options->rows.data[k].key, key) == 0)
            return options->rows.data[k].asked;
    return NULL;
}
