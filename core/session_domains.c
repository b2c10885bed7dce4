/* What the domains of a session can do with each other. */
#include "session.h"

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

static bool has_copy_queue(const gt_domain_entry *entry)
{
    const gantry_domain *table = entry->table;
    return table && entry->info.queue_count >= 2 && table->event_create && table->event_destroy &&
           table->event_record && table->event_wait;
}

void gt_session_link_domains(gantry_session *session)
{
    for (uint32_t d = 0; d < session->domain_count; d++) {
        session->domains[d].peers = peers_of(session, d);
        session->domains[d].pins =
            d && session->options.staging_limit && session->domains[d].entry->info.separate_memory;
        session->domains[d].copy_queue = has_copy_queue(session->domains[d].entry);
    }
}
