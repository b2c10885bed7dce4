/* The options that the fake device states, set by its config or by a session, and the phases it records. */
#include "fake.h"

#include <stdarg.h>

static const struct {
    const char *key, *description;
} OPTIONS[FAKE_OPTION_COUNT] = {
    [FAKE_OPTION_FUSE] = {"fuse", "chains of nodes as one kernel: on, off"},
    [FAKE_OPTION_SHARE] = {"share", "constants shared by sessions: on, off"},
    [FAKE_OPTION_CACHE] = {"cache", "kernels kept in the cache folder: on, off"},
    [FAKE_OPTION_EXCLUDE] = {"exclude", "operators to refuse, comma-separated"},
};

/* What the config gives differs from the default, or is not told apart from it. */
void fake_options_table(fake_provider *provider)
{
    const fake_config *config = &provider->config;
    const char *values[FAKE_OPTION_COUNT] = {[FAKE_OPTION_FUSE] = config->fuse ? "on" : "off",
                                             [FAKE_OPTION_SHARE] = config->share ? "on" : "off",
                                             [FAKE_OPTION_CACHE] = config->cache ? "on" : "off",
                                             [FAKE_OPTION_EXCLUDE] = config->exclude};
    static const char *const defaults[FAKE_OPTION_COUNT] = {"on", "off", "off", ""};
    for (int k = 0; k < FAKE_OPTION_COUNT; k++)
        provider->options[k] = (gantry_option_info){
            .struct_bytes = sizeof provider->options[k],
            .key = OPTIONS[k].key,
            .value = values[k],
            .origin = strcmp(values[k], defaults[k]) ? GANTRY_OPTION_CONFIG : GANTRY_OPTION_DEFAULT,
            .description = OPTIONS[k].description};
    provider->table.options = provider->options;
    provider->table.option_count = FAKE_OPTION_COUNT;
}

const char *fake_option(const fake_provider *provider, const void *session_options, fake_option_key key)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", provider->config.name, OPTIONS[key].key);
    const char *asked = provider->host->option(provider->host, session_options, name);
    return asked ? asked : provider->options[key].value;
}

bool fake_option_is_on(const fake_provider *provider, const void *session_options, fake_option_key key)
{
    return strcmp(fake_option(provider, session_options, key), "on") == 0;
}

bool fake_excludes(const fake_provider *provider, const void *session_options, const char *op)
{
    const char *list = fake_option(provider, session_options, FAKE_OPTION_EXCLUDE);
    for (size_t length; *list; list += length + (list[length] == ',')) {
        length = strcspn(list, ",");
        if (strlen(op) == length && strncmp(op, list, length) == 0)
            return true;
    }
    return false;
}

/* ---- phases ---------------------------------------------------------------------------------- */

fake_phase fake_phase_begin(const fake_provider *provider, gantry_recorder *recorder, const char *name)
{
    return (fake_phase){provider->host, recorder, name, provider->host->now_ns(provider->host)};
}

void fake_phase_end(const fake_phase *phase, const char *format, ...)
{
    char detail[600];
    va_list args;
    if (!GANTRY_HAS(gantry_host, phase->host, record_phase))
        return;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    gantry_phase_record record = {sizeof record, phase->name, detail, phase->begin_ns,
                                  phase->host->now_ns(phase->host) - phase->begin_ns};
    phase->host->record_phase(phase->recorder, &record);
}
