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

/* Once for each domain of a runtime: a measurement that fails, or gives what is no cost, leaves what the
 * domain said of itself. */
static void measure(gt_domain_entry *entry)
{
    const gantry_domain *table = entry->table;
    GT_ROOMY(gantry_domain_info) filled = {.value = entry->info};
    const gantry_domain_info *info = &filled.value;
    entry->probed = true;
    entry->measured = entry->info;
    if (!GANTRY_HAS(gantry_domain, table, probe) ||
        table->probe(table->self, &filled.value, NULL) != GANTRY_OK || !is_cost(info->to_device_ns) ||
        !is_cost(info->to_host_ns) || !is_cost(info->to_device_bytes_per_ns) ||
        !is_cost(info->to_host_bytes_per_ns))
        return;
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
    pthread_mutex_unlock(&runtime->probe_lock);
}

void gt_session_link_domains(gantry_session *session)
{
    for (uint32_t d = 0; d < session->domain_count; d++) {
        session->domains[d].info = session->domains[d].entry->info;
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
