/* The keys of session options: one table with their parser, default and meaning, and the parsers. */
#include "options_keys.h"

#include <stddef.h>

#define MAX_THREADS 4096u

static gantry_status bad_value(const char *key, const char *name, const char *value, const char *wanted,
                               gantry_error *err)
{
    return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                   "option %s%s: \"%s\" is not a value it takes; it takes %s", key, name, value, wanted);
}

/* ---- parsers --------------------------------------------------------------------------------- */

static gantry_status list_words(const gt_option_key *key, const char *name, const char *value,
                                gantry_error *err)
{
    char wanted[128] = "";
    for (uint32_t k = 0; key->words[k]; k++) {
        size_t used = strlen(wanted);
        snprintf(wanted + used, sizeof wanted - used, "%s%s", k ? ", " : "", key->words[k]);
    }
    return bad_value(key->key, name, value, wanted, err);
}

static bool find_word(const gt_option_key *key, const char *value, int *out_index)
{
    for (int k = 0; key->words[k]; k++)
        if (strcmp(key->words[k], value) == 0) {
            *out_index = k;
            return true;
        }
    return false;
}

/* words[0] is false, words[1] true. */
static gantry_status parse_switch(gt_options *options, const gt_option_key *key, const char *name,
                                  const char *value, gantry_error *err)
{
    int index;
    if (!find_word(key, value, &index))
        return list_words(key, name, value, err);
    *(bool *)((char *)options + key->field) = index == 1;
    return GANTRY_OK;
}

/* The index of the word, into an int or enum. */
static gantry_status parse_word(gt_options *options, const gt_option_key *key, const char *name,
                                const char *value, gantry_error *err)
{
    int index;
    if (!find_word(key, value, &index))
        return list_words(key, name, value, err);
    memcpy((char *)options + key->field, &index, sizeof index);
    return GANTRY_OK;
}

/* Decimal digits only: no sign, no blanks, no overflow. */
static bool read_number(const char *text, size_t length, uint64_t *out_number)
{
    uint64_t number = 0;
    if (length == 0)
        return false;
    for (size_t k = 0; k < length; k++) {
        if (text[k] < '0' || text[k] > '9' || number > (UINT64_MAX - 9) / 10)
            return false;
        number = number * 10 + (uint64_t)(text[k] - '0');
    }
    *out_number = number;
    return true;
}

static gantry_status read_ranged(const gt_option_key *key, const char *value, uint64_t *out_number,
                                 gantry_error *err)
{
    char wanted[96];
    if (read_number(value, strlen(value), out_number) && *out_number >= key->low && *out_number <= key->high)
        return GANTRY_OK;
    snprintf(wanted, sizeof wanted, "a whole number from %llu to %llu", (unsigned long long)key->low,
             (unsigned long long)key->high);
    return bad_value(key->key, "", value, wanted, err);
}

static gantry_status parse_u64(gt_options *options, const gt_option_key *key, const char *name,
                               const char *value, gantry_error *err)
{
    return read_ranged(key, value, (uint64_t *)((char *)options + key->field), err);
}

static gantry_status parse_u32(gt_options *options, const gt_option_key *key, const char *name,
                               const char *value, gantry_error *err)
{
    uint64_t number = 0;
    GT_TRY(read_ranged(key, value, &number, err));
    *(uint32_t *)((char *)options + key->field) = (uint32_t)number;
    return GANTRY_OK;
}

static gantry_status parse_threads(gt_options *options, const gt_option_key *key, const char *name,
                                   const char *value, gantry_error *err)
{
    uint64_t number = 0;
    GT_TRY(read_ranged(key, value, &number, err));
    options->threads = (int)number;
    return GANTRY_OK;
}

/* The parts of a comma-separated list without the blanks around them; false at the end. */
static bool next_part(const char **inout_rest, const char **out_part, size_t *out_length)
{
    const char *begin = *inout_rest;
    if (!begin)
        return false;
    const char *end = strchr(begin, ',');
    *inout_rest = end ? end + 1 : NULL;
    if (!end)
        end = begin + strlen(begin);
    while (begin < end && *begin == ' ')
        begin++;
    while (end > begin && end[-1] == ' ')
        end--;
    *out_part = begin;
    *out_length = (size_t)(end - begin);
    return true;
}

static gantry_status parse_providers(gt_options *options, const gt_option_key *key, const char *name,
                                     const char *value, gantry_error *err)
{
    const char *rest = value, *part;
    size_t length;
    options->provider_count = 0;
    while (next_part(&rest, &part, &length)) {
        const char *provider = gt_arena_text(&options->arena, part, length);
        if (!provider)
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
        if (length == 0 || options->provider_count == GT_MAX_PROVIDERS)
            return bad_value(key->key, "", value, "1 to 32 provider names, comma-separated", err);
        for (uint32_t k = 0; k < options->provider_count; k++)
            if (strcmp(options->providers[k], provider) == 0)
                return bad_value(key->key, "", value, "each provider name once", err);
        options->providers[options->provider_count++] = provider;
    }
    return GANTRY_OK;
}

static gantry_status parse_text(gt_options *options, const gt_option_key *key, const char *name,
                                const char *value, gantry_error *err)
{
    const char *text = gt_arena_text(&options->arena, value, strlen(value));
    if (!text)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    *(const char **)((char *)options + key->field) = *text ? text : NULL;
    return GANTRY_OK;
}

static gantry_status parse_types(gt_options *options, const gt_option_key *key, const char *name,
                                 const char *value, gantry_error *err)
{
    const char *rest = *value ? value : NULL, *part;
    size_t length;
    options->cpu_disabled.count = 0;
    while (next_part(&rest, &part, &length)) {
        gantry_dtype dtype = GANTRY_UNDEFINED;
        for (int k = 1; k < GANTRY_DTYPE_COUNT; k++) {
            const char *text = gantry_dtype_text((gantry_dtype)k);
            if (strlen(text) == length && strncmp(text, part, length) == 0)
                dtype = (gantry_dtype)k;
        }
        if (dtype == GANTRY_UNDEFINED)
            return bad_value(key->key, "", value, "element types such as float16, comma-separated", err);
        if (!gt_vec_push(options->arena.allocator, &options->cpu_disabled, dtype))
            return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    }
    return GANTRY_OK;
}

/* Rules of the table, and what placement does to the graph. */
static gantry_status check_rule(const char *key, const char *name, const char *value, gantry_error *err)
{
    char known[512] = "promote";
    uint32_t count;
    const gt_rewrite_rule *rules = gt_rewrite_table(&count);
    bool found = strcmp(name, known) == 0;
    for (uint32_t k = 0; k < count; k++) {
        size_t used = strlen(known);
        found = found || strcmp(name, rules[k].name) == 0;
        snprintf(known + used, sizeof known - used, ", %s", rules[k].name);
    }
    return found ? GANTRY_OK
                 : gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                           "option %s%s=%s: there is no rewrite of that name; there are %s", key, name, value,
                           known);
}

static gantry_status parse_rewrite(gt_options *options, const gt_option_key *key, const char *name,
                                   const char *value, gantry_error *err)
{
    int index;
    if (!find_word(key, value, &index))
        return list_words(key, name, value, err);
    GT_TRY(check_rule(key->key, name, value, err));
    if (index == 1)
        return GANTRY_OK;
    const char *rule = gt_arena_text(&options->arena, name, strlen(name));
    if (!rule || !gt_vec_push(options->arena.allocator, &options->disabled_rewrites, rule))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

static gantry_status add_pair(gt_options *options, const gt_option_key *key, const char *name,
                              const char *value, const char *wanted, bool is_pin, gantry_error *err)
{
    if (!*value)
        return bad_value(key->key, name, value, wanted, err);
    gt_pin pin = {gt_arena_text(&options->arena, name, strlen(name)),
                  gt_arena_text(&options->arena, value, strlen(value))};
    gt_allocator *allocator = options->arena.allocator;
    if (!pin.node || !pin.provider ||
        !(is_pin ? gt_vec_push(allocator, &options->pins, pin)
                 : gt_vec_push(allocator, &options->binds, pin)))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

static gantry_status parse_pin(gt_options *options, const gt_option_key *key, const char *name,
                               const char *value, gantry_error *err)
{
    return add_pair(options, key, name, value, "the name of a provider", true, err);
}

static gantry_status parse_bind(gt_options *options, const gt_option_key *key, const char *name,
                                const char *value, gantry_error *err)
{
    return add_pair(options, key, name, value, "the name of a domain, such as \"cuda:0\"", false, err);
}

static gantry_status parse_dim(gt_options *options, const gt_option_key *key, const char *name,
                               const char *value, gantry_error *err)
{
    static const char wanted[] = "lo..opt..hi, whole numbers with 0 <= lo <= opt <= hi, or one whole number";
    uint64_t numbers[3];
    const char *begin = value;
    bool fixed = read_number(value, strlen(value), &numbers[0]) && numbers[0] <= INT64_MAX;
    numbers[1] = numbers[2] = numbers[0];
    for (int k = 0; k < 3 && !fixed; k++) {
        const char *end = k < 2 ? strstr(begin, "..") : begin + strlen(begin);
        if (!end || !read_number(begin, (size_t)(end - begin), &numbers[k]) || numbers[k] > INT64_MAX)
            return bad_value(key->key, name, value, wanted, err);
        begin = end + 2;
    }
    if (numbers[0] > numbers[1] || numbers[1] > numbers[2])
        return bad_value(key->key, name, value, wanted, err);
    gt_dim_range range = {gt_arena_text(&options->arena, name, strlen(name)), (int64_t)numbers[0],
                          (int64_t)numbers[1], (int64_t)numbers[2], fixed};
    if (!range.name || !gt_vec_push(options->arena.allocator, &options->dims, range))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

/* "1,3,?,224"; an empty text is a scalar's. */
static gantry_status parse_shape(gt_options *options, const gt_option_key *key, const char *name,
                                 const char *value, gantry_error *err)
{
    int64_t dims[GANTRY_MAX_RANK];
    const char *rest = *value ? value : NULL, *part;
    size_t length;
    gt_input_shape shape = {.input = gt_arena_text(&options->arena, name, strlen(name))};
    while (next_part(&rest, &part, &length)) {
        uint64_t number = 0;
        bool open = length == 1 && *part == '?';
        if (shape.rank == GANTRY_MAX_RANK ||
            (!open && (!read_number(part, length, &number) || number > INT64_MAX)))
            return bad_value(key->key, name, value, "up to 16 whole numbers or ?, comma-separated", err);
        dims[shape.rank++] = open ? -1 : (int64_t)number;
    }
    shape.dims = gt_arena_copy(&options->arena, dims, shape.rank * sizeof *dims);
    if (!shape.input || !shape.dims || !gt_vec_push(options->arena.allocator, &options->shapes, shape))
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    return GANTRY_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define FIELD(name) offsetof(gt_options, name)
#define SWITCH(key, fallback, name, off, on)                                                                 \
    {                                                                                                        \
        key, fallback, parse_switch, FIELD(name), {off, on}, 0, 0                                            \
    }
#define ON_OFF(key, fallback, name) SWITCH(key, fallback, name, "off", "on")

/* gantry.h says what each key means. Prefixes come last and have no default. */
static const gt_option_key keys[] = {
    {"threads", "0", parse_threads, 0, {NULL}, 0, MAX_THREADS},
    {"providers", "cpu", parse_providers, 0, {NULL}, 0, 0},
    SWITCH("plan", "cost", plan_by_cost, "priority", "cost"),
    ON_OFF("strict", "off", strict),
    SWITCH("precision", "any", model_precision, "any", "model"),
    ON_OFF("exact", "off", exact),
    ON_OFF("rewrites", "on", rewrites),
    ON_OFF("fold", "on", fold),
    {"fold_limit_bytes", "16777216", parse_u64, FIELD(fold_limit_bytes), {NULL}, 0, INT64_MAX},
    {"base", "", parse_text, FIELD(base), {NULL}, 0, 0},
    SWITCH("weights", "copy", weights_mapped, "copy", "mapped"),
    {"plan_cache", "64", parse_u32, FIELD(plan_cache), {NULL}, 1, 1000000},
    {"memory_limit", "0", parse_u64, FIELD(memory_limit), {NULL}, 0, INT64_MAX},
    {"staging_limit", "67108864", parse_u64, FIELD(staging_limit), {NULL}, 0, INT64_MAX},
    {"deadline_ms", "0", parse_u64, FIELD(deadline_ms), {NULL}, 0, INT32_MAX},
    {"timing", "off", parse_word, FIELD(timing), {"off", "events", "fenced"}, 0, 0},
    ON_OFF("probe", "off", probe),
    ON_OFF("numeric_check", "off", numeric_check),
    {"cpu.disable_types", "", parse_types, 0, {NULL}, 0, 0},
    {"log_level", "warning", parse_word, FIELD(log_level), {"error", "warning", "info", "debug"}, 0, 0},
    {"rewrites.", NULL, parse_rewrite, 0, {"off", "on"}, 0, 0},
    {"pin.", NULL, parse_pin, 0, {NULL}, 0, 0},
    {"dim.", NULL, parse_dim, 0, {NULL}, 0, 0},
    {"bind.", NULL, parse_bind, 0, {NULL}, 0, 0},
    {"shape.", NULL, parse_shape, 0, {NULL}, 0, 0},
};
#define KEY_COUNT (sizeof keys / sizeof *keys)

const gt_option_key *gt_option_keys(uint32_t *out_count)
{
    *out_count = KEY_COUNT;
    return keys;
}

const gt_option_key *gt_option_find(const char *key, const char **out_name)
{
    for (size_t k = 0; k < KEY_COUNT; k++) {
        size_t length = strlen(keys[k].key);
        bool is_prefix = !keys[k].fallback;
        if (is_prefix ? strncmp(keys[k].key, key, length) == 0 && key[length]
                      : strcmp(keys[k].key, key) == 0) {
            *out_name = key + length;
            return &keys[k];
        }
    }
    return NULL;
}

/* "PROVIDER.KEY", and not one of our own prefixes with nothing behind. */
static bool is_provider_key(const char *key)
{
    const char *dot = strchr(key, '.');
    if (!dot || dot == key || !dot[1])
        return false;
    for (size_t k = 0; k < KEY_COUNT; k++)
        if (!keys[k].fallback && strncmp(keys[k].key, key, (size_t)(dot - key) + 1) == 0)
            return false;
    return true;
}

gantry_status gt_option_parse(gt_options *options, const char *key, const char *value, gantry_error *err)
{
    const char *name;
    const gt_option_key *row = gt_option_find(key, &name);
    if (row)
        return row->parse(options, row, name, value, err);
    if (is_provider_key(key))
        return GANTRY_OK;
    return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                   "there is no option \"%s\"; a provider's own option is written PROVIDER.KEY", key);
}
