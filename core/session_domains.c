/* What the domains of a session can do with each other, and what copies cost. */
#include "session.h"

#include <math.h>

static uint64_t peers_of(const gantry_session *session, uint32_t domain)
{
    const gantry_domain *table = session->domains[domain].entry->table;
    uint64_t peers = 0;
    if (!table || !GANTRY_HAS(gantry_domain, table, peer) ||
        !GANTRY_HAS(gantry_domain, table, copy_from_peer))
        return 0;
    for (uint32_t d = 1; d < session->domain_count; d++)
        if (d != domain &&
            table->peer(table->self, session->domains[d].name, session->domains[d].entry->table) == 1)
            peers |= (uint64_t)1 << d;
    return peers;
}

static bool has_events(const gantry_domain *table)
{
    return table && table->event_create && table->event_destroy && table->event_record && table->event_wait &&
           table->event_sync;
}

static bool is_cost(double number)
{
    return number >= 0 && number < HUGE_VAL;
}

static bool are_costs(const gantry_domain_info *info)
{
    return is_cost(info->to_device_ns) && is_cost(info->to_host_ns) &&
           is_cost(info->to_device_bytes_per_ns) && is_cost(info->to_host_bytes_per_ns);
}

static gantry_status call_probe(const gantry_domain *table, gantry_domain_info *inout_info, gantry_error *err)
{
    if (!GANTRY_HAS(gantry_domain, table, probe))
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_NONE, NULL, "its plugin has no probe");
    gantry_status status = table->probe(table->self, inout_info, err);
    if (status != GANTRY_OK && err->message[0] == 0)
        return gt_fail(err, status, GANTRY_STAGE_NONE, NULL, "status %d, without words", (int)status);
    if (status == GANTRY_OK && !are_costs(inout_info))
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_NONE, NULL,
                       "it gave %g and %g ns, %g and %g bytes/ns: not all of these are costs",
                       inout_info->to_device_ns, inout_info->to_host_ns, inout_info->to_device_bytes_per_ns,
                       inout_info->to_host_bytes_per_ns);
    return status;
}

/* Once for each domain of a runtime: a measurement that fails, or gives what is no cost, leaves what the
 * domain said of itself. */
static void measure(gt_domain_entry *entry)
{
    GT_ROOMY(gantry_domain_info) filled = {.value = entry->info};
    const gantry_domain_info *info = &filled.value;
    gantry_error err = GANTRY_ERROR_INIT;
    entry->probed = true;
    entry->measured = entry->info;
    entry->probe_failure[0] = 0;
    if (call_probe(entry->table, &filled.value, &err) != GANTRY_OK) {
        snprintf(entry->probe_failure, sizeof entry->probe_failure, "%.250s", err.message);
        return;
    }
    entry->measured.to_device_ns = info->to_device_ns;
    entry->measured.to_host_ns = info->to_host_ns;
    entry->measured.to_device_bytes_per_ns = info->to_device_bytes_per_ns;
    entry->measured.to_host_bytes_per_ns = info->to_host_bytes_per_ns;
    entry->measured.cost_source = 'm';
}

static void probe(gantry_runtime *runtime, gt_session_domain *domain)
{
    pthread_mutex_lock(&runtime->probe_lock);
    if (!domain->entry->probed)
        measure(domain->entry);
    domain->info = domain->entry->measured;
    domain->probe_failure = domain->entry->probe_failure;
    pthread_mutex_unlock(&runtime->probe_lock);
}

void gt_session_link_domains(gantry_session *session)
{
    for (uint32_t d = 0; d < session->domain_count; d++) {
        session->domains[d].info = session->domains[d].entry->info;
        session->domains[d].probe_failure = "";
        if (d && session->options.probe)
            probe(session->runtime, &session->domains[d]);
        session->domains[d].peers = peers_of(session, d);
        session->domains[d].pins =
            d && session->options.staging_limit && session->domains[d].info.separate_memory;
        session->domains[d].events = has_events(session->domains[d].entry->table);
        session->domains[d].copy_queue =
            session->domains[d].events && session->domains[d].info.queue_count >= 2;
    }
}
