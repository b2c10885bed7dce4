/* The options that providers state: which keys a session may set, and what each is in the end. */
#include "session.h"

bool gt_provider_option(const gt_provider_entry *entry, uint32_t index, gantry_option_info *out_info)
{
    const gantry_provider *table = entry ? entry->table : NULL;
    if (!table || !table->options || index >= table->option_count)
        return false;
    size_t bytes = table->options[0].struct_bytes; /* the plugin's struct may be longer than ours */
    if (bytes < sizeof *out_info)
        return false;
    *out_info = *(const gantry_option_info *)((const char *)table->options + index * bytes);
    return out_info->key && out_info->value;
}

const char *gt_session_provider_option(const gantry_session *session, const char *provider, const char *key)
{
    size_t length = strlen(provider);
    for (uint32_t k = 0; k < session->options.rows.count; k++) {
        const gt_option_row *row = &session->options.rows.data[k];
        if (row->asked && strncmp(row->key, provider, length) == 0 && row->key[length] == '.' &&
            strcmp(row->key + length + 1, key) == 0)
            return row->asked;
    }
    return NULL;
}

static bool takes_key(const gt_provider_entry *entry, const char *key)
{
    gantry_option_info info;
    for (uint32_t k = 0; gt_provider_option(entry, k, &info); k++)
        if (strcmp(info.key, key) == 0)
            return true;
    return false;
}

static gantry_status refuse_key(const gantry_session *session, const gt_session_provider *provider,
                                const char *key, gantry_error *err)
{
    gt_text known;
    gantry_option_info info;
    gt_text_init(&known, session->allocator);
    for (uint32_t k = 0; gt_provider_option(provider->entry, k, &info); k++)
        gt_text_printf(&known, "\n    %s.%.200s=%.200s  %.300s", provider->name, info.key, info.value,
                       info.description ? info.description : "");
    gantry_status status =
        gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                "option %.300s: provider %s has no option \"%.200s\"; it has%s", key, provider->name,
                key + strlen(provider->name) + 1, known.data ? known.data : " none");
    gt_text_free(&known);
    return status;
}

gantry_status gt_session_check_provider_options(const gantry_session *session, gantry_error *err)
{
    for (uint32_t k = 0; k < session->options.rows.count; k++) {
        const gt_option_row *row = &session->options.rows.data[k];
        for (uint32_t p = 0; p < session->provider_count; p++) {
            const gt_session_provider *provider = &session->providers[p];
            size_t length = strlen(provider->name);
            bool own = row->asked && strncmp(row->key, provider->name, length) == 0 &&
                       row->key[length] == '.' && provider->entry && provider->entry->available;
            if (own && provider->entry->table->options && !takes_key(provider->entry, row->key + length + 1))
                return refuse_key(session, provider, row->key, err);
        }
    }
    return GANTRY_OK;
}
