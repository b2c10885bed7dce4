/* The life of provider libraries in a runtime.
 *
 *     loading -> open -> closing -> unloaded -+
 *        |                                    |
 *        +-> failed --------------------------+-> loading again, in the same entry and rows
 *
 * Code that was loaded stays mapped. Entries never move and are never freed before the runtime: a report or a
 * caller may hold their texts. */
#include "runtime.h"

#include "base/clock.h"

/* ---- entries --------------------------------------------------------------------------------- */

/* Whether a load may take over the entry: the same library, and for one that failed the same config too, so
 * that each way to fail keeps its row. A name that was found nowhere has no path. */
static bool is_reusable(const gt_plugin_entry *entry, const gt_library *library, const char *config)
{
    if (strcmp(entry->path, library->path) != 0)
        return false;
    if (entry->state == GT_PLUGIN_UNLOADED)
        return *entry->path != 0;
    return entry->state == GT_PLUGIN_FAILED && strcmp(entry->config, config) == 0 &&
           (*entry->path || strcmp(entry->name, library->name) == 0);
}

/* Under the lock. */
static gt_plugin_entry *take_or_add(gantry_runtime *runtime, const gt_library *library, const char *config,
                                    uint32_t *out_index)
{
    for (*out_index = 0; *out_index < runtime->plugins.count; ++*out_index)
        if (is_reusable(runtime->plugins.data[*out_index], library, config))
            return runtime->plugins.data[*out_index];
    gt_plugin_entry *entry = GT_NEW(&runtime->allocator, gt_plugin_entry);
    if (entry && gt_vec_push(&runtime->allocator, &runtime->plugins, entry))
        return entry;
    gt_free(&runtime->allocator, entry);
    return NULL;
}

static gantry_status claim_entry(gantry_runtime *runtime, const gt_library *library, const char *config,
                                 gt_plugin_entry **out_entry, uint32_t *out_index, gantry_error *err)
{
    gt_allocator *allocator = &runtime->allocator;
    size_t bytes = strlen(config) + 1;
    char *kept = gt_alloc(allocator, bytes), *old = kept;
    if (!kept)
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    memcpy(kept, config, bytes);
    pthread_mutex_lock(&runtime->lock);
    gt_plugin_entry *entry = take_or_add(runtime, library, config, out_index);
    if (entry) {
        old = entry->config;
        entry->config = kept;
        entry->state = GT_PLUGIN_LOADING;
        entry->load_ns = 0;
        memcpy(entry->path, library->path, sizeof entry->path);
        memcpy(entry->name, library->name, sizeof entry->name);
        memcpy(entry->version, library->version, sizeof entry->version);
    }
    pthread_mutex_unlock(&runtime->lock);
    gt_free(allocator, old);
    *out_entry = entry;
    return entry ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
}

/* The loader gives the code it has of a path, whatever lies there now: it would not be what the manifest
 * says. */
static gantry_status check_unchanged(gantry_runtime *runtime, const gt_library *library, gantry_error *err)
{
    bool changed = false;
    pthread_mutex_lock(&runtime->lock);
    for (uint32_t k = 0; k < runtime->plugins.count; k++) {
        const gt_plugin_entry *entry = runtime->plugins.data[k];
        changed |= entry->mapped_stamp && entry->mapped_stamp != library->stamp &&
                   strcmp(entry->path, library->path) == 0;
    }
    pthread_mutex_unlock(&runtime->lock);
    return changed
               ? gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                         "%s was replaced since this process loaded it, and a process keeps the code that it "
                         "has: start it again, or give the new file another name",
                         library->path)
               : GANTRY_OK;
}

/* What the manifest said: the plugin and its rows are named after it from now on. */
static void name_entry(gantry_runtime *runtime, gt_plugin_entry *entry, const gt_library *library,
                       bool is_mapped)
{
    pthread_mutex_lock(&runtime->lock);
    if (is_mapped)
        entry->mapped_stamp = library->stamp;
    memcpy(entry->name, library->name, sizeof entry->name);
    memcpy(entry->version, library->version, sizeof entry->version);
    pthread_mutex_unlock(&runtime->lock);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Calls gantry_plugin_open and registers what it brings; on failure the plugin is closed again. */
static gantry_status open_plugin(gantry_runtime *runtime, gt_plugin_entry *entry, gantry_plugin_open_fn open,
                                 uint32_t index, gantry_error *err)
{
    gantry_error inner = GANTRY_ERROR_INIT;
    GT_ROOMY(gantry_plugin) filled = {.value.struct_bytes = sizeof(gantry_plugin)};
    gt_host_table_init(&entry->host, runtime, entry->config);
    gantry_status status = open(&entry->host, GANTRY_PROVIDER_ABI, &filled.value, &inner);
    inner.message[sizeof inner.message - 1] = 0;
    if (status != GANTRY_OK)
        return gt_fail(err, status == GANTRY_RESOURCE ? status : GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "%s: %.1900s", entry->name,
                       *inner.message ? inner.message : "gantry_plugin_open failed and does not say why");
    entry->plugin = filled.value;
    status = gt_runtime_register(runtime, &entry->plugin, index, err);
    if (status == GANTRY_OK)
        return GANTRY_OK;
    gt_packed_drop(runtime, &entry->host);
    if (entry->plugin.close)
        entry->plugin.close(entry->plugin.self);
    return status;
}

static void finish(gantry_runtime *runtime, gt_plugin_entry *entry, gantry_status status, uint64_t begin_ns)
{
    uint64_t ns = gt_now_ns() - begin_ns;
    pthread_mutex_lock(&runtime->lock);
    entry->state = status == GANTRY_OK ? GT_PLUGIN_OPEN : GT_PLUGIN_FAILED;
    entry->order = status == GANTRY_OK ? ++runtime->opened_count : 0;
    entry->load_ns = ns ? ns : 1;
    pthread_mutex_unlock(&runtime->lock);
}

static gantry_status check_load(gantry_runtime *runtime, const char *path, gantry_error *err)
{
    return runtime && path && *path
               ? GANTRY_OK
               : gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL, "%s",
                         !runtime ? "runtime is NULL" : "the path of the provider library is empty");
}

gantry_status gantry_runtime_load_provider(gantry_runtime *runtime, const char *path, const char *config,
                                           gantry_error *err)
{
    GT_TRY(check_load(runtime, path, err));
    uint64_t begin_ns = gt_now_ns();
    gantry_error reason = GANTRY_ERROR_INIT;
    gantry_plugin_open_fn open = NULL;
    gt_plugin_entry *entry;
    uint32_t index;
    gt_library library;
    gantry_status status = gt_library_find(runtime, path, &library, &reason);
    GT_TRY(claim_entry(runtime, &library, config ? config : "", &entry, &index, err));
    if (status == GANTRY_OK)
        status = check_unchanged(runtime, &library, &reason);
    if (status == GANTRY_OK)
        status = gt_library_open(&library, &open, &reason);
    name_entry(runtime, entry, &library, status == GANTRY_OK);
    if (status == GANTRY_OK)
        status = open_plugin(runtime, entry, open, index, &reason);
    gantry_status added =
        status == GANTRY_OK ? GANTRY_OK : gt_runtime_add_unavailable(runtime, index, reason.message, err);
    finish(runtime, entry, status, begin_ns);
    GT_TRY(added);
    if (status == GANTRY_OK)
        return GANTRY_OK;
    status = status == GANTRY_RESOURCE ? status : GANTRY_PROVIDER;
    gt_fail(err, status, GANTRY_STAGE_PLUGIN, NULL, "%s", reason.message);
    if (err && err->struct_bytes >= sizeof *err)
        snprintf(err->provider, sizeof err->provider, "%s", library.name);
    return status;
}

/* ---- unloading ------------------------------------------------------------------------------- */

/* The open plugin that brought a provider of that name, else the last one that has the name itself. */
static uint32_t find_plugin(const gantry_runtime *runtime, const char *name)
{
    uint32_t found = GT_NO_PLUGIN;
    for (uint32_t k = 0; k < runtime->plugins.count; k++) {
        const gt_plugin_entry *entry = runtime->plugins.data[k];
        if (entry->state == GT_PLUGIN_OPEN && strcmp(entry->name, name) == 0)
            found = k;
    }
    for (uint32_t k = 0; k < runtime->providers.count; k++) {
        const gt_provider_entry *row = runtime->providers.data[k];
        bool open = row->plugin != GT_NO_PLUGIN && !row->spare &&
                    runtime->plugins.data[row->plugin]->state == GT_PLUGIN_OPEN;
        if (open && strcmp(row->info.name, name) == 0)
            return row->plugin;
    }
    return found;
}

/* Another plugin may compute in a domain of this one, and callers may hold memory in it. */
static gantry_status check_domains(const gantry_runtime *runtime, uint32_t plugin, gantry_error *err)
{
    for (uint32_t k = 0; k < runtime->domains.count; k++) {
        const gt_domain_entry *domain = runtime->domains.data[k];
        if (domain->plugin == plugin && domain->user_count)
            return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL,
                           "%u blocks of gantry_memory_alloc in the domain \"%s\" are still there; free them "
                           "first",
                           domain->user_count, domain->info.name);
    }
    for (uint32_t k = 0; k < runtime->providers.count; k++) {
        const gt_provider_entry *row = runtime->providers.data[k];
        const gt_domain_entry *domain = runtime->domains.data[row->domain];
        if (row->available && row->plugin != plugin && domain->plugin == plugin)
            return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL,
                           "the provider \"%s\" of another library computes in the domain \"%s\"; unload it "
                           "first",
                           row->info.name, domain->info.name);
    }
    return GANTRY_OK;
}

static gantry_status check_unload(const gantry_runtime *runtime, uint32_t plugin, const char *name,
                                  gantry_error *err)
{
    if (plugin == GT_NO_PLUGIN)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL,
                       strcmp(name, "cpu") == 0 ? "the provider \"%.200s\" is part of the library"
                                                : "no library is loaded that brings a provider \"%.200s\"",
                       name);
    if (runtime->plugins.data[plugin]->session_count)
        return gt_fail(
            err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL,
            "a session still uses the library of the provider \"%s\" (a provider or an operator of "
            "it); destroy it first",
            name);
    return check_domains(runtime, plugin, err);
}

gantry_status gantry_runtime_unload_provider(gantry_runtime *runtime, const char *name, gantry_error *err)
{
    if (!runtime || !name)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL, "%s is NULL",
                       !runtime ? "runtime" : "the provider's name");
    pthread_mutex_lock(&runtime->lock);
    uint32_t index = find_plugin(runtime, name);
    gantry_status status = check_unload(runtime, index, name, err);
    gt_plugin_entry *entry = status == GANTRY_OK ? runtime->plugins.data[index] : NULL;
    if (entry) {
        entry->state = GT_PLUGIN_CLOSING;
        gt_runtime_unregister(runtime, index);
    }
    pthread_mutex_unlock(&runtime->lock);
    if (!entry)
        return status;
    gt_plugin_close(runtime, entry);
    pthread_mutex_lock(&runtime->lock);
    entry->state = GT_PLUGIN_UNLOADED;
    pthread_mutex_unlock(&runtime->lock);
    return GANTRY_OK;
}

void gt_plugin_close(gantry_runtime *runtime, gt_plugin_entry *entry)
{
    gt_packed_drop(runtime, &entry->host);
    if (entry->plugin.close)
        entry->plugin.close(entry->plugin.self);
}

/* A plugin may use the domain of one that was opened before it. */
void gt_plugins_close(gantry_runtime *runtime)
{
    for (gt_plugin_entry *last; true; last->state = GT_PLUGIN_UNLOADED) {
        last = NULL;
        for (uint32_t k = 0; k < runtime->plugins.count; k++) {
            gt_plugin_entry *entry = runtime->plugins.data[k];
            if (entry->state == GT_PLUGIN_OPEN && (!last || entry->order > last->order))
                last = entry;
        }
        if (!last)
            return;
        gt_plugin_close(runtime, last);
    }
}

/* ---- who uses what --------------------------------------------------------------------------- */

static const char *reason_of(const gt_provider_entry *row)
{
    return row ? row->detail : "no provider of that name is loaded";
}

gt_provider_entry *gt_runtime_acquire(gantry_runtime *runtime, const char *name, gt_provider_use *out_use)
{
    gt_provider_entry *found = NULL;
    *out_use = (gt_provider_use){.row = GT_NO_PLUGIN, .plugin = GT_NO_PLUGIN};
    pthread_mutex_lock(&runtime->lock);
    for (uint32_t k = 0; k < runtime->providers.count; k++) {
        gt_provider_entry *row = runtime->providers.data[k];
        if (strcmp(row->info.name, name) != 0 || (found && !row->available))
            continue;
        found = row;
        out_use->row = k;
        out_use->plugin = row->plugin;
    }
    bool available = found && found->available;
    if (available && found->plugin != GT_NO_PLUGIN)
        runtime->plugins.data[found->plugin]->session_count++;
    if (!available)
        snprintf(out_use->reason, sizeof out_use->reason, "%s", reason_of(found));
    pthread_mutex_unlock(&runtime->lock);
    return available ? found : NULL;
}

/* The name of the provider of a row that can be used now; false past the end. */
static bool usable_name(gantry_runtime *runtime, uint32_t index, char out_name[64])
{
    pthread_mutex_lock(&runtime->lock);
    bool there = index < runtime->providers.count;
    const gt_provider_entry *row = there ? runtime->providers.data[index] : NULL;
    snprintf(out_name, 64, "%s", row && row->available ? row->info.name : "");
    pthread_mutex_unlock(&runtime->lock);
    return there;
}

/* Their library stays loaded meanwhile, as for a session. */
void gantry_runtime_trim(gantry_runtime *runtime)
{
    char name[64];
    for (uint32_t k = 0; runtime && usable_name(runtime, k, name); k++) {
        gt_provider_use use;
        gt_provider_entry *entry = *name ? gt_runtime_acquire(runtime, name, &use) : NULL;
        if (entry && entry->table->trim) {
            gt_provider_lock(entry);
            entry->table->trim(entry->table->self);
            gt_provider_unlock(entry);
        }
        gt_runtime_release(runtime, entry);
    }
}

void gt_runtime_release(gantry_runtime *runtime, const gt_provider_entry *entry)
{
    if (!entry || entry->plugin == GT_NO_PLUGIN)
        return;
    pthread_mutex_lock(&runtime->lock);
    runtime->plugins.data[entry->plugin]->session_count--;
    pthread_mutex_unlock(&runtime->lock);
}

bool gt_runtime_domain_use(gantry_runtime *runtime, const char *name, gt_domain_entry **out_entry)
{
    *out_entry = NULL;
    pthread_mutex_lock(&runtime->lock);
    for (uint32_t k = 0; k < runtime->domains.count && !*out_entry; k++)
        if (!runtime->domains.data[k]->spare && strcmp(runtime->domains.data[k]->info.name, name) == 0)
            *out_entry = runtime->domains.data[k];
    if (*out_entry)
        (*out_entry)->user_count++;
    pthread_mutex_unlock(&runtime->lock);
    return *out_entry != NULL;
}

void gt_runtime_domain_leave(gantry_runtime *runtime, gt_domain_entry *entry)
{
    pthread_mutex_lock(&runtime->lock);
    entry->user_count--;
    pthread_mutex_unlock(&runtime->lock);
}
