/* Loads provider libraries and checks what they bring, before anything of it is called.
 *
 *     manifest (from the file)  ->  dlopen  ->  gantry_plugin_open  ->  tables checked and copied  ->
 * registered
 *
 * A library that stops on the way leaves one row "unavailable" with the reason. Tables are copied up to the
 * size the plugin states, so that an entry it does not know is NULL here and never read behind its end. */
#include "runtime.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>

/* ---- tables ---------------------------------------------------------------------------------- */

typedef struct table_entry {
    const char *name;
    size_t offset;
    int group; /* 0: required; else optional, all of a group or none */
} table_entry;

#define ENTRY(type, name, group)                                                                             \
    {                                                                                                        \
#name, offsetof(type, name), group                                                                   \
    }

static const table_entry domain_entries[] = {
    ENTRY(gantry_domain, describe, 0),      ENTRY(gantry_domain, alloc, 0),
    ENTRY(gantry_domain, free, 0),          ENTRY(gantry_domain, queue_open, 0),
    ENTRY(gantry_domain, queue_close, 0),   ENTRY(gantry_domain, queue_sync, 0),
    ENTRY(gantry_domain, copy, 0),          ENTRY(gantry_domain, event_create, 1),
    ENTRY(gantry_domain, event_destroy, 1), ENTRY(gantry_domain, event_record, 1),
    ENTRY(gantry_domain, event_wait, 1),    ENTRY(gantry_domain, event_sync, 1),
    ENTRY(gantry_domain, event_elapsed, 1),
};

static const table_entry provider_entries[] = {
    ENTRY(gantry_provider, describe, 0),
    ENTRY(gantry_provider, judge, 0),
    ENTRY(gantry_provider, compile, 0),
    ENTRY(gantry_provider, program_destroy, 0),
    ENTRY(gantry_provider, reshape, 0),
    ENTRY(gantry_provider, shaped_destroy, 0),
    ENTRY(gantry_provider, context_create, 0),
    ENTRY(gantry_provider, context_destroy, 0),
    ENTRY(gantry_provider, run, 0),
    ENTRY(gantry_provider, format_bytes, 1),
    ENTRY(gantry_provider, convert, 1),
    ENTRY(gantry_provider, convert_estimate_ns, 1),
};

static bool has_entry(const void *table, size_t offset)
{
    void (*function)(void);
    memcpy(&function, (const char *)table + offset, sizeof function);
    return function != NULL;
}

static gantry_status check_entries(const void *table, const table_entry *entries, size_t count,
                                   const char *what, gantry_error *err)
{
    bool group_present = false, group_missing = false;
    const char *missing = "";
    for (size_t k = 0; k < count; k++) {
        bool present = has_entry(table, entries[k].offset);
        if (entries[k].group == 0 && !present)
            return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                           "%s: the required entry %s is NULL", what, entries[k].name);
        if (entries[k].group != 0 && present)
            group_present = true;
        if (entries[k].group != 0 && !present) {
            group_missing = true;
            missing = entries[k].name;
        }
    }
    if (group_present && group_missing)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "%s: the entry %s is NULL while others that go with it are not", what, missing);
    return GANTRY_OK;
}

/* Copies what the plugin's table has of ours; its first member is its size in both. */
static gantry_status copy_table(void *target, size_t target_bytes, const void *source, const char *what,
                                gantry_error *err)
{
    size_t bytes = source ? *(const size_t *)source : 0;
    if (!source)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s: the table is NULL", what);
    if (bytes < 2 * sizeof(void *))
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
} staging;

/* Entries and the copy of their table are one block: the table follows the entry. */
static void *make_entry(gt_allocator *allocator, size_t entry_bytes, size_t table_bytes, void **out_table)
{
    size_t offset = (entry_bytes + 15) & ~(size_t)15;
    char *block = gt_alloc_array(allocator, 1, offset + table_bytes);
    *out_table = block ? block + offset : NULL;
    return block;
}

static void staging_free(staging *s)
{
    for (uint32_t k = 0; k < s->domains.count; k++)
        gt_free(s->allocator, s->domains.data[k]);
    for (uint32_t k = 0; k < s->providers.count; k++) {
        pthread_mutex_destroy(&s->providers.data[k]->serial);
        gt_free(s->allocator, s->providers.data[k]);
    }
    gt_vec_free(s->allocator, &s->domains);
    gt_vec_free(s->allocator, &s->providers);
}

static gantry_status describe_domain(gt_domain_entry *entry, const char *what, gantry_error *err)
{
    gantry_domain_info *info = &entry->info;
    info->struct_bytes = sizeof *info;
    gantry_status status = entry->table->describe(entry->table->self, info);
    info->name[sizeof info->name - 1] = 0;
    info->device[sizeof info->device - 1] = 0;
    GT_TRY(check_described(status, info->struct_bytes, info->name, what, err));
    if (info->alignment == 0 || (info->alignment & (info->alignment - 1)) != 0)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "domain %s: the alignment is %zu, no power of two", info->name, info->alignment);
    if (!info->cost_source)
        info->cost_source = 'a';
    return GANTRY_OK;
}

static gantry_status stage_domain(staging *s, const gantry_domain *source, uint32_t index, gantry_error *err)
{
    char what[64];
    void *table;
    gt_domain_entry *entry = make_entry(s->allocator, sizeof *entry, sizeof *source, &table);
    if (!entry || !gt_vec_push(s->allocator, &s->domains, entry)) {
        gt_free(s->allocator, entry);
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    }
    snprintf(what, sizeof what, "domain %u of the plugin", index);
    entry->table = table;
    GT_TRY(copy_table(table, sizeof *source, source, what, err));
    GT_TRY(check_entries(table, domain_entries, sizeof domain_entries / sizeof *domain_entries, what, err));
    return describe_domain(entry, what, err);
}

static gantry_status describe_provider(gt_provider_entry *entry, const gantry_provider *table,
                                       const char *what, gantry_error *err)
{
    gantry_provider_info *info = &entry->info;
    info->struct_bytes = sizeof *info;
    gantry_status status = table->describe(table->self, info);
    info->name[sizeof info->name - 1] = 0;
    info->version[sizeof info->version - 1] = 0;
    info->domain[sizeof info->domain - 1] = 0;
    info->fingerprint[sizeof info->fingerprint - 1] = 0;
    info->libraries[sizeof info->libraries - 1] = 0;
    if (!*info->domain)
        snprintf(info->domain, sizeof info->domain, "host");
    return check_described(status, info->struct_bytes, info->name, what, err);
}

static gantry_status stage_provider(staging *s, const gantry_provider *source, const char *unavailable,
                                    uint32_t index, gantry_error *err)
{
    char what[64];
    void *table;
    gt_provider_entry *entry = make_entry(s->allocator, sizeof *entry, sizeof *source, &table);
    if (!entry)
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    pthread_mutex_init(&entry->serial, NULL);
    if (!gt_vec_push(s->allocator, &s->providers, entry)) {
        gt_free(s->allocator, entry);
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    }
    snprintf(what, sizeof what, "provider %u of the plugin", index);
    GT_TRY(copy_table(table, sizeof *source, source, what, err));
    size_t count = unavailable ? 1 : sizeof provider_entries / sizeof *provider_entries;
    GT_TRY(check_entries(table, provider_entries, count, what, err));
    GT_TRY(describe_provider(entry, table, what, err));
    entry->available = !unavailable;
    entry->table = unavailable ? NULL : table;
    snprintf(entry->detail, sizeof entry->detail, "%s", unavailable ? unavailable : "");
    return GANTRY_OK;
}

static gantry_status check_plugin(gantry_plugin *plugin, gantry_error *err)
{
    if (plugin->struct_bytes == 0)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "gantry_plugin_open left a struct_bytes of 0; it states the size of what it filled");
    if (plugin->struct_bytes < sizeof *plugin)
        memset((char *)plugin + plugin->struct_bytes, 0, sizeof *plugin - plugin->struct_bytes);
    if (plugin->abi < 1 || plugin->abi > GANTRY_PROVIDER_ABI)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "the plugin works at ABI level %u; this host offers 1 to %u", plugin->abi,
                       GANTRY_PROVIDER_ABI);
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
    return GANTRY_OK;
}

/* ---- registering, under the runtime's lock --------------------------------------------------- */

static uint32_t find_domain(const gantry_runtime *runtime, const char *name)
{
    for (uint32_t k = 0; k < runtime->domains.count; k++)
        if (strcmp(runtime->domains.data[k]->info.name, name) == 0)
            return k;
    return GT_NO_PLUGIN;
}

static bool has_provider(const gantry_runtime *runtime, const char *name)
{
    for (uint32_t k = 0; k < runtime->providers.count; k++)
        if (runtime->providers.data[k]->available && strcmp(runtime->providers.data[k]->info.name, name) == 0)
            return true;
    return false;
}

static gantry_status check_names(const gantry_runtime *runtime, const staging *s, gantry_error *err)
{
    for (uint32_t k = 0; k < s->domains.count; k++) {
        const char *name = s->domains.data[k]->info.name;
        bool taken = find_domain(runtime, name) != GT_NO_PLUGIN;
        for (uint32_t j = 0; j < k; j++)
            taken |= strcmp(s->domains.data[j]->info.name, name) == 0;
        if (taken)
            return gt_fail(
                err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                "the runtime has a domain \"%s\" already; a plugin that joins it brings no table of it",
                name);
    }
    for (uint32_t k = 0; k < s->providers.count; k++) {
        const char *name = s->providers.data[k]->info.name;
        bool taken = has_provider(runtime, name);
        for (uint32_t j = 0; j < k; j++)
            taken |= strcmp(s->providers.data[j]->info.name, name) == 0;
        if (taken && s->providers.data[k]->available)
            return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                           "the runtime has a provider \"%s\" already", name);
    }
    return GANTRY_OK;
}

static gantry_status resolve_domains(const gantry_runtime *runtime, const staging *s, gantry_error *err)
{
    for (uint32_t k = 0; k < s->providers.count; k++) {
        gt_provider_entry *entry = s->providers.data[k];
        entry->domain = find_domain(runtime, entry->info.domain);
        for (uint32_t j = 0; j < s->domains.count; j++)
            if (strcmp(s->domains.data[j]->info.name, entry->info.domain) == 0)
                entry->domain = runtime->domains.count + j;
        if (entry->domain != GT_NO_PLUGIN)
            continue;
        if (entry->available)
            return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                           "provider \"%s\" computes in the domain \"%s\", which nobody brings",
                           entry->info.name, entry->info.domain);
        entry->domain = GT_HOST_DOMAIN;
    }
    return GANTRY_OK;
}

static gantry_status commit(gantry_runtime *runtime, staging *s, uint32_t plugin, gantry_error *err)
{
    gt_allocator *allocator = &runtime->allocator;
    GT_TRY(check_names(runtime, s, err));
    GT_TRY(resolve_domains(runtime, s, err));
    if (!gt_vec_reserve(allocator, &runtime->domains, runtime->domains.count + s->domains.count) ||
        !gt_vec_reserve(allocator, &runtime->providers, runtime->providers.count + s->providers.count))
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    for (uint32_t k = 0; k < s->domains.count; k++)
        runtime->domains.data[runtime->domains.count++] = s->domains.data[k];
    for (uint32_t k = 0; k < s->providers.count; k++) {
        s->providers.data[k]->plugin = plugin;
        runtime->providers.data[runtime->providers.count++] = s->providers.data[k];
    }
    s->domains.count = s->providers.count = 0;
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

/* ---- one library ----------------------------------------------------------------------------- */

/* "/x/libgantry_fake.so" -> "fake". */
static void name_after_file(const char *path, char *out_name, size_t capacity)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (strncmp(base, "lib", 3) == 0 && base[3] && base[3] != '.')
        base += 3;
    if (strncmp(base, "gantry_", 7) == 0 && base[7] && base[7] != '.')
        base += 7;
    const char *end = strstr(base, ".so");
    size_t length = end && end != base ? (size_t)(end - base) : strlen(base);
    if (length == 0) {
        base = "unnamed";
        length = strlen(base);
    }
    snprintf(out_name, capacity, "%.*s", (int)(length < capacity ? length : capacity - 1), base);
}

/* The loader searches its own folders for a name without '/': it always gets an absolute path. */
static gantry_status absolute_path(const char *path, gt_plugin_entry *entry, gantry_error *err)
{
    char folder[sizeof entry->path] = "";
    char *resolved = realpath(path, NULL);
    if (!resolved && *path != '/' && !getcwd(folder, sizeof folder))
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s: the working directory: %s", path,
                       strerror(errno));
    int length = resolved       ? snprintf(entry->path, sizeof entry->path, "%s", resolved)
                 : *path == '/' ? snprintf(entry->path, sizeof entry->path, "%s", path)
                                : snprintf(entry->path, sizeof entry->path, "%s/%s", folder, path);
    free(resolved);
    if (length < 0 || (size_t)length >= sizeof entry->path)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL,
                       "the path has %d bytes; at most %zu are taken", length, sizeof entry->path - 1);
    return GANTRY_OK;
}

static bool list_has(const char *list, const char *word, size_t length)
{
    for (const char *at = list; (at = strstr(at, word)); at += length) {
        bool begins = at == list || at[-1] == ' ' || at[-1] == '\t';
        if (begins && (at[length] == ' ' || at[length] == '\n' || at[length] == 0))
            return true;
    }
    return false;
}

/* The CPU's feature words, as the kernel lists them; false when they cannot be read. */
static bool read_cpu_features(char *out_text, size_t capacity)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    bool found = false;
    while (file && !found && fgets(out_text, (int)capacity, file))
        found = strncmp(out_text, "flags", 5) == 0 || strncmp(out_text, "Features", 8) == 0;
    if (file)
        fclose(file);
    return found;
}

static gantry_status check_cpu_features(const gantry_manifest *manifest, gantry_error *err)
{
    char features[8192];
    if (!manifest->cpu_features[0] || !read_cpu_features(features, sizeof features))
        return GANTRY_OK;
    for (const char *begin = manifest->cpu_features; *begin;) {
        size_t length = strcspn(begin, ",");
        char word[128];
        snprintf(word, sizeof word, "%.*s", (int)length, begin);
        if (length && !list_has(features, word, length))
            return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                           "the library needs the CPU feature %s, which this machine does not have", word);
        begin += length + (begin[length] == ',');
    }
    return GANTRY_OK;
}

/* Reads and checks the manifest. A file that is no ELF library goes to the loader for its own words. */
static gantry_status check_manifest(gt_plugin_entry *entry, gantry_manifest *out_manifest, gantry_error *err)
{
    gantry_status status = gt_manifest_read(entry->path, out_manifest, err);
    if (status != GANTRY_OK) {
        unsigned char magic[4] = {0};
        FILE *file = fopen(entry->path, "rbe");
        bool is_elf = file && fread(magic, 1, 4, file) == 4 && memcmp(magic, "\177ELF", 4) == 0;
        if (file)
            fclose(file);
        if (!is_elf && !dlopen(entry->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))
            return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s", dlerror());
        return status;
    }
    snprintf(entry->name, sizeof entry->name, "%s", *out_manifest->name ? out_manifest->name : entry->name);
    snprintf(entry->version, sizeof entry->version, "%s", out_manifest->version);
    if (out_manifest->abi_min > GANTRY_PROVIDER_ABI || out_manifest->abi_max < 1 ||
        out_manifest->abi_min > out_manifest->abi_max)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "%s: the library works at ABI levels %u to %u, this host at 1 to %u", entry->path,
                       out_manifest->abi_min, out_manifest->abi_max, GANTRY_PROVIDER_ABI);
    return check_cpu_features(out_manifest, err);
}

static gantry_status open_library(gt_plugin_entry *entry, const gantry_manifest *manifest,
                                  gantry_plugin_open_fn *out_open, gantry_error *err)
{
    entry->library = dlopen(entry->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!entry->library)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s%s%s", dlerror(),
                       *manifest->dependencies ? "; the provider needs " : "", manifest->dependencies);
    void *symbol = dlsym(entry->library, GANTRY_PLUGIN_ENTRY);
    if (!symbol)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "%s", dlerror());
    memcpy(out_open, &symbol, sizeof symbol);
    return GANTRY_OK;
}

/* Calls gantry_plugin_open and registers what it brings; on failure the plugin is closed again. */
static gantry_status open_plugin(gantry_runtime *runtime, gt_plugin_entry *entry, gantry_plugin_open_fn open,
                                 uint32_t index, gantry_error *err)
{
    gantry_error inner = GANTRY_ERROR_INIT;
    gt_host_table_init(&entry->host, runtime, entry->config);
    entry->plugin = (gantry_plugin){.struct_bytes = sizeof entry->plugin};
    gantry_status status = open(&entry->host, GANTRY_PROVIDER_ABI, &entry->plugin, &inner);
    if (status != GANTRY_OK)
        return gt_fail(err, status == GANTRY_RESOURCE ? status : GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "%s: %s", entry->name, *inner.message ? inner.message : gantry_status_text(status));
    status = gt_runtime_register(runtime, &entry->plugin, index, err);
    if (status != GANTRY_OK && entry->plugin.close)
        entry->plugin.close(entry->plugin.self);
    entry->open = status == GANTRY_OK;
    return status;
}

static gantry_status load(gantry_runtime *runtime, gt_plugin_entry *entry, uint32_t index, gantry_error *err)
{
    gantry_manifest manifest;
    gantry_plugin_open_fn open = NULL;
    GT_TRY(check_manifest(entry, &manifest, err));
    GT_TRY(open_library(entry, &manifest, &open, err));
    return open_plugin(runtime, entry, open, index, err);
}

static gantry_status add_unavailable(gantry_runtime *runtime, gt_plugin_entry *entry, uint32_t index,
                                     const gantry_error *reason, gantry_error *err)
{
    gt_provider_entry *row = GT_NEW(&runtime->allocator, gt_provider_entry);
    if (!row)
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    snprintf(entry->detail, sizeof entry->detail, "%.*s", (int)sizeof entry->detail - 1, reason->message);
    memcpy(row->detail, entry->detail, sizeof row->detail);
    row->info.struct_bytes = sizeof row->info;
    snprintf(row->info.name, sizeof row->info.name, "%s", entry->name);
    snprintf(row->info.version, sizeof row->info.version, "%s", entry->version);
    snprintf(row->info.domain, sizeof row->info.domain, "host");
    row->plugin = index;
    pthread_mutex_init(&row->serial, NULL);
    pthread_mutex_lock(&runtime->lock);
    bool added = gt_vec_push(&runtime->allocator, &runtime->providers, row);
    pthread_mutex_unlock(&runtime->lock);
    if (!added) {
        pthread_mutex_destroy(&row->serial);
        gt_free(&runtime->allocator, row);
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    }
    return GANTRY_OK;
}

static gantry_status make_plugin_entry(gantry_runtime *runtime, const char *path, const char *config,
                                       gt_plugin_entry **out_entry, uint32_t *out_index, gantry_error *err)
{
    gt_allocator *allocator = &runtime->allocator;
    size_t bytes = strlen(config) + 1;
    gt_plugin_entry *entry = GT_NEW(allocator, gt_plugin_entry);
    gantry_status status =
        entry ? absolute_path(path, entry, err) : gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    if (status == GANTRY_OK && !(entry->config = gt_alloc(allocator, bytes)))
        status = gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    if (status == GANTRY_OK) {
        memcpy(entry->config, config, bytes);
        name_after_file(entry->path, entry->name, sizeof entry->name);
        pthread_mutex_lock(&runtime->lock);
        *out_index = runtime->plugins.count;
        if (!gt_vec_push(allocator, &runtime->plugins, entry))
            status = gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
        pthread_mutex_unlock(&runtime->lock);
    }
    if (status != GANTRY_OK && entry) {
        gt_free(allocator, entry->config);
        gt_free(allocator, entry);
        entry = NULL;
    }
    *out_entry = entry;
    return status;
}

gantry_status gantry_runtime_load_provider(gantry_runtime *runtime, const char *path, const char *config,
                                           gantry_error *err)
{
    if (!runtime || !path || !*path)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL, "%s",
                       !runtime ? "runtime is NULL" : "the path of the provider library is empty");
    uint64_t begin_ns = gt_now_ns();
    gantry_error reason = GANTRY_ERROR_INIT;
    gt_plugin_entry *entry;
    uint32_t index;
    GT_TRY(make_plugin_entry(runtime, path, config ? config : "", &entry, &index, err));
    gantry_status status = load(runtime, entry, index, &reason);
    uint64_t ns = gt_now_ns() - begin_ns;
    atomic_store(&entry->load_ns, ns ? ns : 1);
    if (status == GANTRY_OK)
        return GANTRY_OK;
    GT_TRY(add_unavailable(runtime, entry, index, &reason, err));
    status = status == GANTRY_RESOURCE ? status : GANTRY_PROVIDER;
    gt_fail(err, status, GANTRY_STAGE_PLUGIN, NULL, "%.2000s", reason.message);
    if (err && err->struct_bytes >= sizeof *err)
        snprintf(err->provider, sizeof err->provider, "%s", entry->name);
    return status;
}
