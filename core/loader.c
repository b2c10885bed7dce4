/* Checks what a plugin brings, before anything of it is called, and registers it. Tables are copied up to the
 * size the plugin states, so that an entry it does not know is NULL here and never read behind its end. */
#include "runtime.h"

#include "base/table_entries.h"
#include "graph/own_ops.h"

#include <math.h>

/* A plugin that counts more has not counted. */
#define MOST_LISTED 1024u
/* A huge page: more would waste what it aligns. */
#define MOST_ALIGNED (2u << 20)

/* ---- tables ---------------------------------------------------------------------------------- */

static gantry_status check_entries(const void *table, const gt_table_entry *entries, size_t count,
                                   const char *what, gantry_error *err)
{
    const char *present[GT_ENTRY_GROUPS] = {NULL}, *missing[GT_ENTRY_GROUPS] = {NULL};
    for (size_t k = 0; k < count; k++)
        *(gt_has_entry(table, entries[k].offset) ? &present[entries[k].group] : &missing[entries[k].group]) =
            entries[k].name;
    if (missing[0])
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s: the required entry %s is NULL",
                       what, missing[0]);
    for (int group = 1; group < GT_ENTRY_GROUPS; group++)
        if (present[group] && missing[group])
            return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                           "%s: the entry %s is NULL while others that go with it are not", what,
                           missing[group]);
    return GANTRY_OK;
}

/* Copies what the plugin's table has of ours; its first member is its size in both. */
static gantry_status copy_table(void *target, size_t target_bytes, const void *source, const char *what,
                                gantry_error *err)
{
    size_t bytes = source ? *(const size_t *)source : 0;
    if (!source)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s: the table is NULL", what);
    if (bytes < 2 * sizeof(void *) || bytes % sizeof(void *) != 0)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "%s: struct_bytes is %zu; a table states its own size, %zu at this level", what, bytes,
                       target_bytes);
    memset(target, 0, target_bytes);
    memcpy(target, source, bytes < target_bytes ? bytes : target_bytes);
    *(size_t *)target = target_bytes;
    return GANTRY_OK;
}

static gantry_status check_described(gantry_status status, size_t struct_bytes, const char *name,
                                     const char *what, gantry_error *err)
{
    if (status != GANTRY_OK)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s: describe failed (%s)", what,
                       gantry_status_text(status));
    if (struct_bytes == 0 || !*name)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s: describe gave %s", what,
                       *name ? "a struct_bytes of 0" : "no name");
    return GANTRY_OK;
}

/* ---- staging: everything is made and checked before the runtime sees any of it --------------- */

typedef struct staging {
    gt_allocator *allocator;
    GT_VEC(gt_domain_entry *) domains;
    GT_VEC(gt_provider_entry *) providers;
    GT_VEC(gt_operator_entry) operators;
} staging;

static gt_provider_entry *make_provider_entry(gt_allocator *allocator)
{
    gt_provider_entry *entry = GT_NEW(allocator, gt_provider_entry);
    if (entry)
        pthread_mutex_init(&entry->serial, NULL);
    return entry;
}

void gt_provider_entry_free(gt_allocator *allocator, gt_provider_entry *entry)
{
    if (entry)
        pthread_mutex_destroy(&entry->serial);
    gt_free(allocator, entry);
}

static void staging_free(staging *s)
{
    for (uint32_t k = 0; k < s->domains.count; k++)
        gt_free(s->allocator, s->domains.data[k]);
    for (uint32_t k = 0; k < s->providers.count; k++)
        gt_provider_entry_free(s->allocator, s->providers.data[k]);
    for (uint32_t k = 0; k < s->operators.count; k++)
        gt_free(s->allocator, s->operators.data[k].op);
    gt_vec_free(s->allocator, &s->domains);
    gt_vec_free(s->allocator, &s->providers);
    gt_vec_free(s->allocator, &s->operators);
}

static gantry_status describe_domain(gt_domain_entry *entry, const char *what, gantry_error *err)
{
    GT_ROOMY(gantry_domain_info) filled = {.value.struct_bytes = sizeof(gantry_domain_info)};
    gantry_status status = entry->own.describe(entry->own.self, &filled.value);
    gantry_domain_info *info = &entry->info;
    *info = filled.value;
    entry->probed = false;
    info->name[sizeof info->name - 1] = 0;
    info->device[sizeof info->device - 1] = 0;
    GT_TRY(check_described(status, info->struct_bytes, info->name, what, err));
    if (info->alignment == 0 || (info->alignment & (info->alignment - 1)) != 0 ||
        info->alignment > MOST_ALIGNED)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "domain %s: the alignment is %zu, no power of two up to %u", info->name,
                       info->alignment, MOST_ALIGNED);
    if (!info->cost_source)
        info->cost_source = 'a';
    const double costs[] = {info->to_device_ns, info->to_host_ns, info->to_device_bytes_per_ns,
                            info->to_host_bytes_per_ns};
    for (size_t k = 0; k < sizeof costs / sizeof *costs; k++)
        if (!isfinite(costs[k]) || costs[k] < 0)
            return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                           "domain %s: describe gives %g as a cost of copies", info->name, costs[k]);
    return GANTRY_OK;
}

static gantry_status stage_domain(staging *s, const gantry_domain *source, uint32_t index, gantry_error *err)
{
    char what[64];
    gt_domain_entry *entry = GT_NEW(s->allocator, gt_domain_entry);
    if (!entry || !gt_vec_push(s->allocator, &s->domains, entry)) {
        gt_free(s->allocator, entry);
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    }
    snprintf(what, sizeof what, "domain %u of the plugin", index);
    GT_TRY(copy_table(&entry->own, sizeof entry->own, source, what, err));
    GT_TRY(check_entries(&entry->own, gt_domain_entries, sizeof gt_domain_entries / sizeof *gt_domain_entries,
                         what, err));
    return describe_domain(entry, what, err);
}

static gantry_status describe_provider(gt_provider_entry *entry, const char *what, gantry_error *err)
{
    GT_ROOMY(gantry_provider_info) filled = {.value.struct_bytes = sizeof(gantry_provider_info)};
    gantry_status status = entry->own.describe(entry->own.self, &filled.value);
    gantry_provider_info *info = &entry->info;
    *info = filled.value;
    info->name[sizeof info->name - 1] = 0;
    info->version[sizeof info->version - 1] = 0;
    info->domain[sizeof info->domain - 1] = 0;
    info->fingerprint[sizeof info->fingerprint - 1] = 0;
    info->libraries[sizeof info->libraries - 1] = 0;
    if (!*info->domain)
        snprintf(info->domain, sizeof info->domain, "host");
    /* A class that came later: what asks for least is right for it. */
    if (info->concurrency < GANTRY_CONCURRENCY_FREE || info->concurrency > GANTRY_CONCURRENCY_SERIAL)
        info->concurrency = GANTRY_CONCURRENCY_SERIAL;
    return check_described(status, info->struct_bytes, info->name, what, err);
}

static gantry_status stage_provider(staging *s, const gantry_provider *source, const char *unavailable,
                                    uint32_t index, gantry_error *err)
{
    char what[64];
    gt_provider_entry *entry = make_provider_entry(s->allocator);
    if (!entry || !gt_vec_push(s->allocator, &s->providers, entry)) {
        gt_provider_entry_free(s->allocator, entry);
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    }
    snprintf(what, sizeof what, "provider %u of the plugin", index);
    GT_TRY(copy_table(&entry->own, sizeof entry->own, source, what, err));
    size_t count = unavailable ? 1 : sizeof gt_provider_entries / sizeof *gt_provider_entries;
    GT_TRY(check_entries(&entry->own, gt_provider_entries, count, what, err));
    GT_TRY(describe_provider(entry, what, err));
    entry->available = !unavailable;
    snprintf(entry->detail, sizeof entry->detail, "%s", unavailable ? unavailable : "");
    return GANTRY_OK;
}

static gantry_status stage_operator(staging *s, const gantry_operator *source, gantry_error *err)
{
    gt_operator_entry entry = {.plugin = GT_NO_PLUGIN};
    GT_TRY(gt_own_op_create(s->allocator, source, &entry.op, err));
    if (gt_vec_push(s->allocator, &s->operators, entry))
        return GANTRY_OK;
    gt_free(s->allocator, entry.op);
    return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
}

static gantry_status check_plugin(gantry_plugin *plugin, gantry_error *err)
{
    if (plugin->struct_bytes == 0 || plugin->struct_bytes % sizeof(void *) != 0)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "gantry_plugin_open left a struct_bytes of %zu; it states the size of what it filled",
                       plugin->struct_bytes);
    if (plugin->struct_bytes < sizeof *plugin)
        memset((char *)plugin + plugin->struct_bytes, 0, sizeof *plugin - plugin->struct_bytes);
    plugin->struct_bytes = sizeof *plugin;
    if (plugin->abi < 1 || plugin->abi > GANTRY_PROVIDER_ABI)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "the plugin works at ABI level %u; this host offers 1 to %u", plugin->abi,
                       GANTRY_PROVIDER_ABI);
    if (plugin->domain_count > MOST_LISTED || plugin->provider_count > MOST_LISTED ||
        (plugin->operators && plugin->operator_count > MOST_LISTED))
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "the plugin counts %u domains, %u providers and %u operators; %u of each are possible",
                       plugin->domain_count, plugin->provider_count, plugin->operator_count, MOST_LISTED);
    if ((plugin->domain_count && !plugin->domains) || (plugin->provider_count && !plugin->providers))
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "the plugin counts %u domains and %u providers, and a list is NULL",
                       plugin->domain_count, plugin->provider_count);
    return GANTRY_OK;
}

static gantry_status stage_all(staging *s, const gantry_plugin *plugin, gantry_error *err)
{
    for (uint32_t k = 0; k < plugin->domain_count; k++)
        GT_TRY(stage_domain(s, plugin->domains[k], k, err));
    for (uint32_t k = 0; k < plugin->provider_count; k++)
        GT_TRY(stage_provider(s, plugin->providers[k], plugin->unavailable ? plugin->unavailable[k] : NULL, k,
                              err));
    for (uint32_t k = 0; plugin->operators && k < plugin->operator_count; k++)
        GT_TRY(stage_operator(s, plugin->operators[k], err));
    return GANTRY_OK;
}

/* ---- registering, under the runtime's lock --------------------------------------------------- */

static uint32_t find_domain(const gantry_runtime *runtime, const char *name)
{
    for (uint32_t k = 0; k < runtime->domains.count; k++)
        if (!runtime->domains.data[k]->spare && strcmp(runtime->domains.data[k]->info.name, name) == 0)
            return k;
    return GT_NO_PLUGIN;
}

static uint32_t find_provider(const gantry_runtime *runtime, const char *name)
{
    for (uint32_t k = 0; k < runtime->providers.count; k++)
        if (runtime->providers.data[k]->available && strcmp(runtime->providers.data[k]->info.name, name) == 0)
            return k;
    return GT_NO_PLUGIN;
}

static const char *path_of(const gantry_runtime *runtime, uint32_t plugin)
{
    return plugin == GT_NO_PLUGIN ? "this library itself" : runtime->plugins.data[plugin]->path;
}

static gantry_status check_domain_names(const gantry_runtime *runtime, const staging *s, gantry_error *err)
{
    for (uint32_t k = 0; k < s->domains.count; k++) {
        const char *name = s->domains.data[k]->info.name;
        uint32_t taken = find_domain(runtime, name);
        if (taken != GT_NO_PLUGIN)
            return gt_fail(
                err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                "the runtime has a domain \"%s\" already, from %s; a plugin that joins it brings no table of "
                "it, and one that has another device names it otherwise",
                name, path_of(runtime, runtime->domains.data[taken]->plugin));
        for (uint32_t j = 0; j < k; j++)
            if (strcmp(s->domains.data[j]->info.name, name) == 0)
                return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                               "the plugin brings two domains \"%s\"", name);
    }
    return GANTRY_OK;
}

static gantry_status check_provider_names(const gantry_runtime *runtime, const staging *s, gantry_error *err)
{
    for (uint32_t k = 0; k < s->providers.count; k++) {
        const char *name = s->providers.data[k]->info.name;
        uint32_t taken = s->providers.data[k]->available ? find_provider(runtime, name) : GT_NO_PLUGIN;
        if (taken != GT_NO_PLUGIN)
            return gt_fail(
                err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                "the runtime has a provider \"%s\" already, from %s; name this one otherwise in its "
                "config, or unload that one first",
                name, path_of(runtime, runtime->providers.data[taken]->plugin));
        for (uint32_t j = 0; j < k; j++)
            if (strcmp(s->providers.data[j]->info.name, name) == 0)
                return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                               "the plugin brings two providers \"%s\"", name);
    }
    return GANTRY_OK;
}

static bool brings_domain(const staging *s, const char *name)
{
    for (uint32_t k = 0; k < s->domains.count; k++)
        if (strcmp(s->domains.data[k]->info.name, name) == 0)
            return true;
    return false;
}

static gantry_status check_provider_domains(const gantry_runtime *runtime, const staging *s,
                                            gantry_error *err)
{
    for (uint32_t k = 0; k < s->providers.count; k++) {
        const gt_provider_entry *entry = s->providers.data[k];
        const char *domain = entry->info.domain;
        if (entry->available && !brings_domain(s, domain) && find_domain(runtime, domain) == GT_NO_PLUGIN)
            return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                           "provider \"%s\" computes in the domain \"%s\", which nobody brings",
                           entry->info.name, domain);
    }
    return GANTRY_OK;
}

/* Takes over a spare entry of the plugin, else adds the staged one, for which there is room. */
static void commit_domain(gantry_runtime *runtime, gt_domain_entry **inout_staged, uint32_t plugin)
{
    gt_domain_entry *entry = NULL;
    for (uint32_t k = 0; k < runtime->domains.count && !entry; k++)
        if (runtime->domains.data[k]->spare && runtime->domains.data[k]->plugin == plugin)
            entry = runtime->domains.data[k];
    if (entry) {
        *entry = **inout_staged;
    } else {
        entry = runtime->domains.data[runtime->domains.count++] = *inout_staged;
        *inout_staged = NULL;
    }
    entry->plugin = plugin;
    entry->table = &entry->own;
}

/* A spare row of the plugin, one of the same name first; NULL when there is none. */
static gt_provider_entry *spare_row(gantry_runtime *runtime, uint32_t plugin, const char *name)
{
    gt_provider_entry *found = NULL;
    for (uint32_t k = 0; k < runtime->providers.count; k++) {
        gt_provider_entry *row = runtime->providers.data[k];
        if (row->spare && row->plugin == plugin && (!found || strcmp(row->info.name, name) == 0))
            found = row;
    }
    return found;
}

static void commit_provider(gantry_runtime *runtime, gt_provider_entry **inout_staged, uint32_t plugin)
{
    const gt_provider_entry *staged = *inout_staged;
    gt_provider_entry *row = spare_row(runtime, plugin, staged->info.name);
    if (row) {
        row->own = staged->own;
        row->info = staged->info;
        row->available = staged->available;
        row->lock_waits = row->lock_wait_ns = 0;
        memcpy(row->detail, staged->detail, sizeof row->detail);
    } else {
        row = runtime->providers.data[runtime->providers.count++] = *inout_staged;
        *inout_staged = NULL;
    }
    uint32_t domain = find_domain(runtime, row->info.domain);
    row->spare = false;
    row->plugin = plugin;
    row->table = row->available ? &row->own : NULL;
    row->domain = domain == GT_NO_PLUGIN ? GT_HOST_DOMAIN : domain;
}

static gantry_status commit(gantry_runtime *runtime, staging *s, uint32_t plugin, gantry_error *err)
{
    gt_allocator *allocator = &runtime->allocator;
    GT_TRY(check_domain_names(runtime, s, err));
    GT_TRY(check_provider_names(runtime, s, err));
    GT_TRY(check_provider_domains(runtime, s, err));
    GT_TRY(gt_operators_check(runtime, s->operators.data, s->operators.count, err));
    if (!gt_vec_reserve(allocator, &runtime->domains, runtime->domains.count + s->domains.count) ||
        !gt_vec_reserve(allocator, &runtime->providers, runtime->providers.count + s->providers.count) ||
        !gt_vec_reserve(allocator, &runtime->operators, runtime->operators.count + s->operators.count))
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    for (uint32_t k = 0; k < s->domains.count; k++)
        commit_domain(runtime, &s->domains.data[k], plugin);
    for (uint32_t k = 0; k < s->providers.count; k++)
        commit_provider(runtime, &s->providers.data[k], plugin);
    gt_operators_add(runtime, s->operators.data, s->operators.count, plugin);
    s->operators.count = 0;
    return GANTRY_OK;
}

gantry_status gt_runtime_register(gantry_runtime *runtime, gantry_plugin *inout_plugin, uint32_t plugin,
                                  gantry_error *err)
{
    staging s = {.allocator = &runtime->allocator};
    GT_TRY(check_plugin(inout_plugin, err));
    gantry_status status = stage_all(&s, inout_plugin, err);
    if (status == GANTRY_OK) {
        pthread_mutex_lock(&runtime->lock);
        status = commit(runtime, &s, plugin, err);
        pthread_mutex_unlock(&runtime->lock);
    }
    staging_free(&s);
    return status;
}

void gt_runtime_unregister(gantry_runtime *runtime, uint32_t plugin)
{
    gt_operators_remove(runtime, plugin);
    for (uint32_t k = 0; k < runtime->domains.count; k++)
        if (runtime->domains.data[k]->plugin == plugin) {
            runtime->domains.data[k]->table = NULL;
            runtime->domains.data[k]->spare = true;
        }
    for (uint32_t k = 0; k < runtime->providers.count; k++) {
        gt_provider_entry *row = runtime->providers.data[k];
        if (row->plugin != plugin)
            continue;
        row->table = NULL;
        row->available = false;
        row->spare = true;
        row->domain = GT_HOST_DOMAIN;
        snprintf(row->detail, sizeof row->detail, "unloaded");
    }
}

gantry_status gt_runtime_add_unavailable(gantry_runtime *runtime, uint32_t plugin, const char *detail,
                                         gantry_error *err)
{
    pthread_mutex_lock(&runtime->lock);
    const gt_plugin_entry *entry = runtime->plugins.data[plugin];
    gt_provider_entry *row = spare_row(runtime, plugin, entry->name);
    if (!row && (row = make_provider_entry(&runtime->allocator)) != NULL &&
        !gt_vec_push(&runtime->allocator, &runtime->providers, row)) {
        gt_provider_entry_free(&runtime->allocator, row);
        row = NULL;
    }
    if (row) {
        row->info = (gantry_provider_info){.struct_bytes = sizeof row->info, .domain = "host"};
        snprintf(row->info.name, sizeof row->info.name, "%s", entry->name);
        snprintf(row->info.version, sizeof row->info.version, "%s", entry->version);
        snprintf(row->detail, sizeof row->detail, "%s", detail);
        row->plugin = plugin;
        row->spare = true;
    }
    pthread_mutex_unlock(&runtime->lock);
    return row ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
}
