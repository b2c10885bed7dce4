/* The report's parts about what providers hold and were told: options with their origin, bytes by class, what
 * compiling and reshaping spent its time on, and what the cache of programs did. */
#include "report.h"

#define MAX_CLASSES 32u

/* ---- options --------------------------------------------------------------------------------- */

json_t *gt_report_provider_options(const gantry_session *session, const gt_provider_entry *entry)
{
    static const char *const ORIGINS[] = {"default", "session", "config"};
    json_t *rows = json_array();
    gantry_option_info info;
    for (uint32_t k = 0; gt_provider_option(entry, k, &info); k++) {
        const char *asked = gt_session_provider_option(session, entry->info.name, info.key);
        const char *origin = asked                     ? ORIGINS[GANTRY_OPTION_SESSION]
                             : (size_t)info.origin < 3 ? ORIGINS[info.origin]
                                                       : "unknown";
        json_array_append_new(rows, json_pack("{s:o, s:o, s:s, s:o}", "key", gt_report_string(info.key),
                                              "value", gt_report_string(asked ? asked : info.value), "origin",
                                              origin, "description",
                                              gt_report_string(info.description ? info.description : "")));
    }
    return rows;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* All that the provider holds, for other sessions of the runtime too: it cannot tell them apart. */
static void add_classes(const gt_provider_entry *entry, json_t *rows)
{
    gantry_memory_class classes[MAX_CLASSES];
    if (!entry->table->memory_classes)
        return;
    for (uint32_t k = 0; k < MAX_CLASSES; k++)
        classes[k] = (gantry_memory_class){.struct_bytes = sizeof classes[k]};
    uint32_t count = entry->table->memory_classes(entry->table->self, classes, MAX_CLASSES);
    for (uint32_t k = 0; k < count && k < MAX_CLASSES; k++) {
        gantry_memory_class *class = &classes[k];
        class->name[sizeof class->name - 1] = class->domain[sizeof class->domain - 1] = 0;
        json_array_append_new(
            rows, json_pack("{s:o, s:o, s:o, s:o}", "provider", gt_report_string(entry->info.name), "class",
                            gt_report_string(class->name), "domain",
                            gt_report_string(class->domain[0] ? class->domain : entry->info.domain), "bytes",
                            gt_report_count(class->bytes)));
    }
}

/* Packed constants belong to a plugin: its providers come one after the other, and one row is for all. */
static void add_packed(const gantry_session *session, const gt_provider_entry *entry, json_t *rows)
{
    gt_plugin_row plugin;
    const char *name =
        gt_runtime_plugin_row(session->runtime, entry->plugin, &plugin) ? plugin.file.name : entry->info.name;
    gt_packed_total total = gt_packed_count(session->runtime, gt_runtime_host_of(session->runtime, entry));
    size_t k;
    json_t *row;
    json_array_foreach(rows, k, row) if (json_integer_value(json_object_get(row, "index")) ==
                                         (json_int_t)entry->plugin) return;
    if (!total.forms)
        return;
    json_array_append_new(rows,
                          json_pack("{s:o, s:I, s:I, s:I, s:I}", "plugin", gt_report_string(name), "index",
                                    (json_int_t)entry->plugin, "forms", (json_int_t)total.forms, "users",
                                    (json_int_t)total.users, "bytes", (json_int_t)total.bytes));
}

json_t *gt_report_memory(const gantry_session *session)
{
    size_t held = atomic_load(&session->held_bytes), constants = atomic_load(&session->constant_bytes),
           providers = atomic_load(&session->provider_bytes);
    json_t *classes = json_array(), *packed = json_array(), *memory = json_object();
    for (uint32_t k = 0; session->providers && k < session->provider_count; k++) {
        const gt_provider_entry *entry = session->providers[k].entry;
        if (!entry || !entry->available)
            continue;
        add_classes(entry, classes);
        add_packed(session, entry, packed);
    }
    json_object_set_new(memory, "limit_bytes", gt_report_count(session->options.memory_limit));
    json_object_set_new(memory, "held_bytes", gt_report_count(held));
    json_object_set_new(memory, "constant_bytes", gt_report_count(constants));
    json_object_set_new(memory, "provider_bytes", gt_report_count(providers));
    json_object_set_new(memory, "run_bytes", gt_report_count(held - constants - providers));
    json_object_set_new(memory, "classes", classes);
    json_object_set_new(memory, "packed", packed);
    return memory;
}

/* ---- phases ---------------------------------------------------------------------------------- */

static void add_phases(const gt_phase_row *phases, uint32_t count, const gt_plan *plan, json_t *rows)
{
    for (uint32_t k = 0; k < count; k++)
        json_array_append_new(
            rows, json_pack("{s:s, s:o, s:o, s:o, s:f}", "during", plan ? "reshape" : "compile", "plan",
                            plan ? gt_report_count(plan->number) : json_null(), "name",
                            gt_report_string(phases[k].name), "detail", gt_report_string(phases[k].detail),
                            "ms", (double)phases[k].duration_ns / 1e6));
}

json_t *gt_report_phases(const gt_report_part *part, uint32_t partition)
{
    json_t *rows = json_array();
    const gt_variant *variant = part->variant;
    if (!variant->programs)
        return rows;
    const struct gantry_recorder *records = &variant->programs[partition].records;
    add_phases(records->phases.data, records->phases.count, NULL, rows);
    for (uint32_t k = 0; k < variant->plans.count; k++)
        for (uint32_t m = 0; m < variant->plans.data[k]->shaped_count; m++) {
            const gt_shaped_slot *slot = &variant->plans.data[k]->shaped[m];
            if (slot->partition == partition)
                add_phases(slot->phases, slot->phase_count, variant->plans.data[k], rows);
        }
    return rows;
}

/* ---- the cache of programs ------------------------------------------------------------------- */

/* Lines of "component=value" as an array. */
static json_t *lines_of(const char *text)
{
    char line[400];
    json_t *rows = json_array();
    for (size_t length; *text; text += length + (text[length] == '\n')) {
        length = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)(length < sizeof line ? length : sizeof line - 1), text);
        json_array_append_new(rows, gt_report_string(line));
    }
    return rows;
}

json_t *gt_report_cache(const gt_report_part *part, uint32_t partition)
{
    const gt_variant *variant = part->variant;
    const gt_cache_event *event = variant->programs ? &variant->programs[partition].cache : NULL;
    if (!event || !event->state)
        return json_null();
    json_t *row = json_pack("{s:s, s:o, s:o, s:o, s:o}", "state", event->state, "detail",
                            gt_report_string(event->detail), "file", gt_report_string(event->file),
                            "not_kept", gt_report_string(event->not_kept), "key", lines_of(event->key));
    json_object_set_new(row, "bytes", gt_report_count(event->bytes));
    json_object_set_new(row, "lookup_us", gt_report_us(event->lookup_ns));
    json_object_set_new(row, "keep_us", gt_report_us(event->keep_ns));
    return row;
}
