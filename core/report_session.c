/* The report's parts about the session as a whole: providers, domains, creation, options, rewrites, notes. */
#include "report.h"

/* ---- providers ------------------------------------------------------------------------------- */

/* How many rows of nodes a provider claimed, got, and executed in the last run. */
static void count_nodes(const json_t *nodes, const char *provider, json_t *row)
{
    uint64_t claimed = 0, assigned = 0, executed = 0;
    size_t k, m;
    json_t *node, *candidate;
    json_array_foreach(nodes, k, node)
    {
        if (strcmp(gt_report_text_at(node, "state"), "at_bind") == 0)
            continue;
        json_array_foreach(json_object_get(node, "candidates"), m, candidate) claimed +=
            strcmp(gt_report_text_at(candidate, "provider"), provider) == 0 &&
            json_is_true(json_object_get(candidate, "claimed"));
        if (strcmp(gt_report_text_at(node, "provider"), provider) != 0)
            continue;
        assigned++;
        executed += gt_report_number_at(node, "executions") > 0;
    }
    json_object_set_new(row, "nodes_supported", gt_report_count(claimed));
    json_object_set_new(row, "nodes_assigned", gt_report_count(assigned));
    json_object_set_new(row, "nodes_executed", gt_report_count(executed));
}

/* The file that brought a provider, or would have. */
static void describe_library(const gantry_session *session, uint32_t plugin, json_t *row)
{
    gt_plugin_row library;
    bool found = gt_runtime_plugin_row(session->runtime, plugin, &library);
    const char *path = found && *library.file.path ? library.file.path : NULL;
    json_object_set_new(row, "path", gt_report_string(path));
    json_object_set_new(row, "plugin_version",
                        gt_report_string(found ? library.file.version : gantry_version()));
    double load_ns = found ? (double)library.load_ns : session->runtime->cpu_load_ns;
    json_object_set_new(row, "load_ms", json_real(load_ns / 1e6));
}

static void describe_provider(const gt_provider_row *provider, json_t *row)
{
    static const char *const CONCURRENCY[] = {"free", "per_context", "serial"};
    const gantry_provider_info *info = &provider->info;
    const char *version = info->version[0] ? info->version : gt_report_text_at(row, "plugin_version");
    json_object_set_new(row, "version", gt_report_string(version));
    json_object_set_new(row, "domain", gt_report_string(info->domain));
    json_object_set_new(row, "precision",
                        gt_report_string(info->precision ? gantry_dtype_text(info->precision) : "model"));
    json_object_set_new(row, "libraries", gt_report_string(info->libraries));
    json_object_set_new(row, "fingerprint", gt_report_string(info->fingerprint));
    if ((size_t)info->concurrency < 3)
        json_object_set_new(row, "concurrency", json_string(CONCURRENCY[info->concurrency]));
    json_object_set_new(row, "lock_waits", gt_report_count(provider->lock_waits));
    json_object_set_new(row, "lock_wait_us", gt_report_us((double)provider->lock_wait_ns));
}

/* Providers that are loaded or failed to load but that the session did not ask for belong to the picture too.
 */
static void add_other_providers(const gantry_session *session, json_t *rows)
{
    gt_provider_row other;
    for (uint32_t k = 0; gt_runtime_provider_row(session->runtime, k, &other); k++) {
        bool listed = false;
        for (uint32_t m = 0; session->providers && m < session->provider_count; m++)
            listed |= session->providers[m].row == k;
        if (listed)
            continue;
        json_t *row =
            json_pack("{s:o, s:n, s:b, s:b, s:o}", "name", gt_report_string(other.info.name), "rank",
                      "requested", 0, "created", other.available, "detail", gt_report_string(other.detail));
        describe_library(session, other.plugin, row);
        if (other.available)
            describe_provider(&other, row);
        json_array_append_new(rows, row);
    }
}

json_t *gt_report_providers(const gt_report_scope *scope, const json_t *nodes)
{
    const gantry_session *session = scope->session;
    json_t *rows = json_array();
    for (uint32_t k = 0; session->providers && k < session->provider_count; k++) {
        const gt_session_provider *provider = &session->providers[k];
        json_t *row = json_pack("{s:o, s:i, s:b, s:b, s:o}", "name", gt_report_string(provider->name), "rank",
                                (int)k + 1, "requested", 1, "created", provider->entry != NULL, "detail",
                                gt_report_string(provider->reason));
        if (provider->row != GT_NO_PLUGIN)
            describe_library(session, provider->plugin, row);
        gt_provider_row known;
        if (provider->entry && gt_runtime_provider_row(session->runtime, provider->row, &known))
            describe_provider(&known, row);
        if (provider->entry)
            json_object_set_new(row, "options", gt_report_provider_options(session, provider->entry));
        count_nodes(nodes, gt_report_text_at(row, "name"), row);
        json_array_append_new(rows, row);
    }
    add_other_providers(session, rows);
    return rows;
}

/* ---- domains --------------------------------------------------------------------------------- */

static void add_memory(const gantry_domain *table, json_t *row)
{
    uint64_t available, total;
    if (!table || !table->memory_info || table->memory_info(table->self, &available, &total) != GANTRY_OK)
        return;
    json_object_set_new(row, "memory_free_bytes", gt_report_count(available));
    json_object_set_new(row, "memory_total_bytes", gt_report_count(total));
}

json_t *gt_report_domains(const gantry_session *session)
{
    json_t *rows = json_array();
    for (uint32_t k = 0; session->domains && k < session->domain_count; k++) {
        const gt_domain_entry *entry = session->domains[k].entry;
        const gantry_domain_info *info = &session->domains[k].info;
        json_t *row =
            json_pack("{s:o, s:o, s:b, s:b, s:s}", "name", gt_report_string(session->domains[k].name),
                      "device", gt_report_string(info->device), "separate_memory", info->separate_memory,
                      "has_clock", info->has_clock, "cost_source", gt_report_source(info->cost_source));
        json_object_set_new(row, "to_device_us", gt_report_us(info->to_device_ns));
        json_object_set_new(row, "to_host_us", gt_report_us(info->to_host_ns));
        json_object_set_new(row, "to_device_gbps", gt_report_number(info->to_device_bytes_per_ns));
        json_object_set_new(row, "to_host_gbps", gt_report_number(info->to_host_bytes_per_ns));
        add_memory(entry->table, row);
        json_array_append_new(rows, row);
    }
    return rows;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* What each provider took of a phase. */
static json_t *shares_of(const gantry_session *session, const char *phase)
{
    json_t *rows = json_array();
    for (uint32_t k = 0; session->providers && k < session->provider_count; k++) {
        const gt_session_provider *provider = &session->providers[k];
        double ns = strcmp(phase, "place") == 0     ? provider->judge_ns
                    : strcmp(phase, "compile") == 0 ? provider->compile_ns
                    : strcmp(phase, "bind") == 0    ? provider->bind_ns
                                                    : 0;
        if (ns > 0)
            json_array_append_new(
                rows, json_pack("{s:o, s:f}", "provider", gt_report_string(provider->name), "ms", ns / 1e6));
    }
    return rows;
}

static json_t *loads_of(const gantry_session *session)
{
    gantry_runtime *runtime = session->runtime;
    json_t *rows = json_array();
    json_array_append_new(rows, json_pack("{s:s, s:s, s:n, s:f}", "name", "load_provider", "provider", "cpu",
                                          "path", "ms", runtime->cpu_load_ns / 1e6));
    gt_plugin_row plugin;
    for (uint32_t k = 0; gt_runtime_plugin_row(runtime, k, &plugin); k++) {
        if (plugin.load_ns == 0)
            continue; /* another thread is loading it */
        const char *path = *plugin.file.path ? plugin.file.path : NULL;
        json_array_append_new(rows, json_pack("{s:s, s:o, s:o, s:f}", "name", "load_provider", "provider",
                                              gt_report_string(plugin.file.name), "path",
                                              gt_report_string(path), "ms", (double)plugin.load_ns / 1e6));
    }
    return rows;
}

json_t *gt_report_creation(const gantry_session *session)
{
    json_t *rows = json_array();
    double sum = 0;
    for (uint32_t k = 0; k < session->phases.count; k++) {
        const gt_phase *phase = &session->phases.data[k];
        json_t *row = json_pack("{s:s, s:f}", "name", phase->name, "ms", phase->ns / 1e6);
        json_t *shares = shares_of(session, phase->name);
        if (json_array_size(shares))
            json_object_set(row, "providers", shares);
        json_decref(shares);
        json_array_append_new(rows, row);
        sum += phase->ns;
    }
    json_t *account = json_pack("{s:f, s:o}", "total_ms", session->create_ns / 1e6, "phases", rows);
    json_object_set_new(account, "remainder_ms", json_real((session->create_ns - sum) / 1e6));
    json_object_set_new(account, "before", loads_of(session));
    return account;
}

/* ---- logs ------------------------------------------------------------------------------------ */

json_t *gt_report_options(const gantry_session *session)
{
    static const char OVERRIDDEN[] = "overridden by ";
    json_t *rows = json_array();
    for (uint32_t k = 0; k < session->options.rows.count; k++) {
        const gt_option_row *option = &session->options.rows.data[k];
        bool overridden = option->origin && strncmp(option->origin, OVERRIDDEN, sizeof OVERRIDDEN - 1) == 0;
        json_t *row = json_object();
        json_object_set_new(row, "key", gt_report_string(option->key));
        json_object_set_new(row, "asked", gt_report_string(option->asked));
        json_object_set_new(row, "effective", gt_report_string(option->effective));
        json_object_set_new(row, "origin", gt_report_string(option->origin));
        json_object_set_new(row, "overridden_by",
                            gt_report_string(overridden ? option->origin + sizeof OVERRIDDEN - 1 : NULL));
        json_array_append_new(rows, row);
    }
    return rows;
}

json_t *gt_report_rewrites(const gantry_session *session)
{
    json_t *rows = json_array();
    for (uint32_t k = 0; session->model && k < session->model->rewrites.count; k++) {
        const gt_rewrite_record *record = &session->model->rewrites.data[k];
        json_t *removed = json_array(), *row = json_object();
        for (uint32_t m = 0; m < record->removed_count; m++)
            json_array_append_new(removed, gt_report_string(record->removed[m]));
        json_object_set_new(row, "rule", gt_report_string(record->rule));
        json_object_set_new(row, "node", gt_report_string(record->node));
        json_object_set_new(row, "state", gt_report_string(record->state));
        json_object_set_new(row, "guard", gt_report_string(record->guard));
        json_object_set_new(row, "removed", removed);
        json_object_set_new(row, "added", gt_report_string(record->added));
        json_array_append_new(rows, row);
    }
    return rows;
}

static void note_probes(const gantry_session *session, json_t *rows)
{
    for (uint32_t d = 1; d < session->domain_count; d++) {
        char text[512];
        const char *why = session->domains[d].probe_failure;
        if (!why || !*why)
            continue;
        snprintf(
            text, sizeof text,
            "probe=on, but the copies of %.100s were not measured (%s): their costs are what its plugin says",
            session->domains[d].name, why);
        json_array_append_new(rows, json_pack("{s:s, s:n, s:o}", "code", "probe_failed", "node", "text",
                                              gt_report_string(text)));
    }
}

json_t *gt_report_notes(const gantry_session *session)
{
    json_t *rows = json_array();
    note_probes(session, rows);
    for (uint32_t k = 0; session->model && k < session->model->notes.count; k++) {
        const gt_note *note = &session->model->notes.data[k];
        json_t *row = json_object();
        json_object_set_new(row, "code", gt_report_string(note->code));
        json_object_set_new(row, "node", gt_report_string(note->node));
        json_object_set_new(row, "text", gt_report_string(note->text));
        json_array_append_new(rows, row);
    }
    return rows;
}
