/* Which entries of a plugin's tables are required, and which go together: for the loader and for the kit. */
#ifndef GT_BASE_TABLE_ENTRIES_H
#define GT_BASE_TABLE_ENTRIES_H

#include <gantry/provider.h>

#include <stddef.h>
#include <string.h>

typedef struct gt_table_entry {
    const char *name;
    size_t offset;
    int group; /* 0: required; else optional, all of a group or none */
} gt_table_entry;

#define GT_ENTRY(type, name, group)                                                                          \
    {                                                                                                        \
#name, offsetof(type, name), group                                                                   \
    }

static const gt_table_entry gt_domain_entries[] = {
    GT_ENTRY(gantry_domain, describe, 0),       GT_ENTRY(gantry_domain, alloc, 0),
    GT_ENTRY(gantry_domain, free, 0),           GT_ENTRY(gantry_domain, queue_open, 0),
    GT_ENTRY(gantry_domain, queue_close, 0),    GT_ENTRY(gantry_domain, queue_sync, 0),
    GT_ENTRY(gantry_domain, copy, 0),           GT_ENTRY(gantry_domain, event_create, 1),
    GT_ENTRY(gantry_domain, event_destroy, 1),  GT_ENTRY(gantry_domain, event_record, 1),
    GT_ENTRY(gantry_domain, event_wait, 1),     GT_ENTRY(gantry_domain, event_sync, 1),
    GT_ENTRY(gantry_domain, event_elapsed, 1),  GT_ENTRY(gantry_domain, peer, 2),
    GT_ENTRY(gantry_domain, copy_from_peer, 2),
};

static const gt_table_entry gt_provider_entries[] = {
    GT_ENTRY(gantry_provider, describe, 0),
    GT_ENTRY(gantry_provider, judge, 0),
    GT_ENTRY(gantry_provider, compile, 0),
    GT_ENTRY(gantry_provider, program_destroy, 0),
    GT_ENTRY(gantry_provider, reshape, 0),
    GT_ENTRY(gantry_provider, shaped_destroy, 0),
    GT_ENTRY(gantry_provider, context_create, 0),
    GT_ENTRY(gantry_provider, context_destroy, 0),
    GT_ENTRY(gantry_provider, run, 0),
    GT_ENTRY(gantry_provider, format_bytes, 1),
    GT_ENTRY(gantry_provider, convert, 1),
    GT_ENTRY(gantry_provider, convert_estimate_ns, 1),
    GT_ENTRY(gantry_provider, blob_save, 2),
    GT_ENTRY(gantry_provider, blob_load, 2),
};
#define GT_ENTRY_GROUPS 3

static inline bool gt_has_entry(const void *table, size_t offset)
{
    void (*function)(void);
    memcpy(&function, (const char *)table + offset, sizeof function);
    return function != NULL;
}

#undef GT_ENTRY

#endif
