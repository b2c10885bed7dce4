/* gantry plugin show: what a library brings, in its own words. Opened in a child, as for the check. */
#include "kit.h"

static const char *const CLASSES[] = {"free", "per context", "serial"};

static void show_provider(kit *k, uint32_t index)
{
    gantry_provider table;
    gantry_provider_info info = {.struct_bytes = sizeof info};
    const char *absent = kit_subject_unavailable(&k->subject, index);
    KIT_COPY_TABLE(table, k->subject.plugin.providers[index]);
    if (!table.describe || table.describe(table.self, &info) != GANTRY_OK || !kit_rule_begin(k, info.name))
        return;
    if (absent)
        kit_pass(k, "provider %s, not available: %s", info.version, absent);
    kit_pass(k, "provider %s, in the domain %s, concurrency %s, computes in %s%s%s%s%s", info.version,
             *info.domain ? info.domain : "host",
             info.concurrency <= GANTRY_CONCURRENCY_SERIAL ? CLASSES[info.concurrency] : "?",
             info.precision ? gantry_dtype_text(info.precision) : "the model's types",
             *info.libraries ? ", with " : "", info.libraries, *info.fingerprint ? ", fingerprint " : "",
             info.fingerprint);
    for (uint32_t o = 0; table.options && o < table.option_count; o++) {
        gantry_option_info option;
        char name[160];
        KIT_COPY_TABLE(option, (const char *)table.options + o * table.options[0].struct_bytes);
        snprintf(name, sizeof name, "%s.%.64s", info.name, option.key ? option.key : "?");
        if (kit_rule_begin(k, name))
            kit_pass(k, "option, \"%s\": %s", option.value ? option.value : "",
                     option.description ? option.description : "");
    }
}

static void show_domain(kit *k, uint32_t index)
{
    gantry_domain table;
    gantry_domain_info info = {.struct_bytes = sizeof info};
    KIT_COPY_TABLE(table, k->subject.plugin.domains[index]);
    if (!table.describe || table.describe(table.self, &info) != GANTRY_OK || !kit_rule_begin(k, info.name))
        return;
    kit_pass(k,
             "domain of %s, %s memory, %llu queues%s%s; copies: %.3g us + %.3g GB/s there, %.3g us + %.3g "
             "GB/s back (%c)",
             *info.device ? info.device : "a device", info.separate_memory ? "separate" : "unified",
             (unsigned long long)(info.queue_count ? info.queue_count : 1), info.has_clock ? ", a clock" : "",
             table.event_create ? ", events" : "", info.to_device_ns / 1e3, info.to_device_bytes_per_ns,
             info.to_host_ns / 1e3, info.to_host_bytes_per_ns, info.cost_source ? info.cost_source : 'a');
}

void kit_group_show(kit *k)
{
    const gantry_plugin *p = &k->subject.plugin;
    for (uint32_t d = 0; p->domains && d < p->domain_count; d++)
        show_domain(k, d);
    for (uint32_t r = 0; p->providers && r < p->provider_count; r++)
        show_provider(k, r);
    for (uint32_t o = 0; p->operators && o < p->operator_count; o++) {
        gantry_operator op;
        KIT_COPY_TABLE(op, p->operators[o]);
        if (op.name && kit_rule_begin(k, op.name))
            kit_pass(k, "operator of the domain %s, from version %d on", op.domain ? op.domain : "",
                     (int)op.since_version);
    }
}
