/* The runtime's life: the host domain, the linked-in CPU provider, and the lists of what was loaded. */
#include "runtime.h"

#include "base/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* What the processor calls itself; the kernel's list takes milliseconds to read on large machines. */
static void name_processor(char *out_text, size_t bytes)
{
    snprintf(out_text, bytes, "the host's memory");
#if defined(__x86_64__)
    unsigned words[13] = {0};
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u)
        return;
    for (unsigned k = 0; k < 3; k++)
        __get_cpuid(0x80000002u + k, &words[4 * k], &words[4 * k + 1], &words[4 * k + 2], &words[4 * k + 3]);
    const char *name = (const char *)words;
    snprintf(out_text, bytes, "%s", name + strspn(name, " "));
#endif
}

static gantry_status add_host_domain(gantry_runtime *runtime, gantry_error *err)
{
    gt_domain_entry *host = GT_NEW(&runtime->allocator, gt_domain_entry);
    if (!host || !gt_vec_push(&runtime->allocator, &runtime->domains, host)) {
        gt_free(&runtime->allocator, host);
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    }
    host->plugin = GT_NO_PLUGIN;
    host->info = (gantry_domain_info){
        .struct_bytes = sizeof host->info, .alignment = 64, .has_clock = 1, .cost_source = 'a'};
    snprintf(host->info.name, sizeof host->info.name, "host");
    name_processor(host->info.device, sizeof host->info.device);
    return GANTRY_OK;
}

/* The CPU provider obeys the contract of a plugin, so it is checked and registered as one. */
static gantry_status add_cpu_provider(gantry_runtime *runtime, gantry_error *err)
{
    uint64_t begin = gt_now_ns();
    gt_host_table_init(&runtime->host, runtime, "");
    gantry_plugin plugin = {.struct_bytes = sizeof plugin};
    GT_TRY(gt_cpu_plugin_open(&runtime->host, GANTRY_PROVIDER_ABI, &plugin, err));
    gantry_status status = gt_runtime_register(runtime, &plugin, GT_NO_PLUGIN, err);
    if (status != GANTRY_OK) {
        if (plugin.close)
            plugin.close(plugin.self);
        return status;
    }
    runtime->cpu_plugin = plugin;
    runtime->cpu = gt_runtime_find_provider(runtime, "cpu");
    if (runtime->cpu == GT_NO_PLUGIN)
        return gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_PLUGIN, NULL,
                       "the linked-in provider is not named \"cpu\"");
    runtime->cpu_provider = runtime->providers.data[runtime->cpu];
    runtime->cpu_load_ns = (double)(gt_now_ns() - begin);
    return GANTRY_OK;
}

/* Accepts a half-built one. Plugins close in the reverse order of their opening; the CPU provider, which the
 * others may evaluate with, is the last. */
static void destroy(gantry_runtime *runtime)
{
    gt_allocator allocator = runtime->allocator;
    gt_plugins_close(runtime);
    gt_packed_drop(runtime, &runtime->host);
    if (runtime->cpu_plugin.close)
        runtime->cpu_plugin.close(runtime->cpu_plugin.self);
    for (uint32_t k = 0; k < runtime->providers.count; k++)
        gt_provider_entry_free(&allocator, runtime->providers.data[k]);
    for (uint32_t k = 0; k < runtime->domains.count; k++)
        gt_free(&allocator, runtime->domains.data[k]);
    for (uint32_t k = 0; k < runtime->plugins.count; k++) {
        gt_free(&allocator, runtime->plugins.data[k]->config);
        gt_free(&allocator, runtime->plugins.data[k]);
    }
    for (uint32_t k = 0; k < runtime->operators.count; k++)
        gt_free(&allocator, runtime->operators.data[k].op);
    gt_vec_free(&allocator, &runtime->operators);
    gt_vec_free(&allocator, &runtime->providers);
    gt_vec_free(&allocator, &runtime->domains);
    gt_vec_free(&allocator, &runtime->plugins);
    gt_vec_free(&allocator, &runtime->sinks);
    gt_runtime_settings_free(runtime);
    gt_packed_store_free(runtime);
    pthread_mutex_destroy(&runtime->lock);
    pthread_mutex_destroy(&runtime->log_lock);
    pthread_mutex_destroy(&runtime->constants_lock);
    pthread_mutex_destroy(&runtime->probe_lock);
    gt_free(&allocator, runtime);
}

gantry_status gantry_runtime_create(const gantry_allocator *allocator, gantry_runtime **out_runtime,
                                    gantry_error *err)
{
    if (!out_runtime)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL, "out_runtime is NULL");
    *out_runtime = NULL;
    if (allocator && (allocator->struct_bytes < sizeof *allocator || !allocator->resize))
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL,
                       "the allocator's struct_bytes is %zu (it takes %zu) or its resize is NULL",
                       allocator->struct_bytes, sizeof *allocator);
    gt_allocator handle;
    gt_allocator_init(&handle, allocator);
    gantry_runtime *runtime = GT_NEW(&handle, gantry_runtime);
    if (!runtime)
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    gt_allocator_init(&runtime->allocator, allocator);
    pthread_mutex_init(&runtime->lock, NULL);
    pthread_mutex_init(&runtime->log_lock, NULL);
    pthread_mutex_init(&runtime->constants_lock, NULL);
    pthread_mutex_init(&runtime->probe_lock, NULL);
    gt_packed_store_init(&runtime->packed);
    gantry_status status = add_host_domain(runtime, err);
    if (status == GANTRY_OK)
        status = add_cpu_provider(runtime, err);
    if (status != GANTRY_OK) {
        destroy(runtime);
        return status;
    }
    *out_runtime = runtime;
    return GANTRY_OK;
}

gantry_status gantry_runtime_destroy(gantry_runtime **runtime, gantry_error *err)
{
    if (!runtime || !*runtime)
        return GANTRY_OK;
    pthread_mutex_lock(&(*runtime)->lock);
    uint32_t sessions = (*runtime)->session_count;
    pthread_mutex_unlock(&(*runtime)->lock);
    if (sessions)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL,
                       "%u session%s of the runtime still live%s; destroy them first", sessions,
                       sessions == 1 ? "" : "s", sessions == 1 ? "s" : "");
    destroy(*runtime);
    *runtime = NULL;
    return GANTRY_OK;
}

/* ---- what is known --------------------------------------------------------------------------- */

uint32_t gantry_runtime_provider_count(const gantry_runtime *runtime)
{
    if (!runtime)
        return 0;
    pthread_mutex_t *lock = (pthread_mutex_t *)&runtime->lock;
    pthread_mutex_lock(lock);
    uint32_t count = runtime->providers.count;
    pthread_mutex_unlock(lock);
    return count;
}

gt_provider_entry *gt_runtime_provider_at(gantry_runtime *runtime, uint32_t index)
{
    pthread_mutex_lock(&runtime->lock);
    gt_provider_entry *entry = index < runtime->providers.count ? runtime->providers.data[index] : NULL;
    pthread_mutex_unlock(&runtime->lock);
    return entry;
}

gt_domain_entry *gt_runtime_domain_at(gantry_runtime *runtime, uint32_t index)
{
    pthread_mutex_lock(&runtime->lock);
    gt_domain_entry *entry = index < runtime->domains.count ? runtime->domains.data[index] : NULL;
    pthread_mutex_unlock(&runtime->lock);
    return entry;
}

const gantry_host *gt_runtime_host_of(gantry_runtime *runtime, const gt_provider_entry *entry)
{
    if (entry->plugin == GT_NO_PLUGIN)
        return &runtime->host;
    pthread_mutex_lock(&runtime->lock);
    const gantry_host *host = &runtime->plugins.data[entry->plugin]->host;
    pthread_mutex_unlock(&runtime->lock);
    return host;
}

bool gt_runtime_provider_row(gantry_runtime *runtime, uint32_t index, gt_provider_row *out_row)
{
    pthread_mutex_lock(&runtime->lock);
    const gt_provider_entry *entry = index < runtime->providers.count ? runtime->providers.data[index] : NULL;
    if (entry) {
        *out_row = (gt_provider_row){.info = entry->info,
                                     .plugin = entry->plugin,
                                     .available = entry->available,
                                     .lock_waits = entry->lock_waits,
                                     .lock_wait_ns = entry->lock_wait_ns};
        memcpy(out_row->detail, entry->detail, sizeof out_row->detail);
    }
    pthread_mutex_unlock(&runtime->lock);
    return entry != NULL;
}

bool gt_runtime_plugin_row(gantry_runtime *runtime, uint32_t index, gt_plugin_row *out_row)
{
    pthread_mutex_lock(&runtime->lock);
    const gt_plugin_entry *entry = index < runtime->plugins.count ? runtime->plugins.data[index] : NULL;
    if (entry) {
        memcpy(out_row->file.path, entry->path, sizeof entry->path);
        memcpy(out_row->file.name, entry->name, sizeof entry->name);
        memcpy(out_row->file.version, entry->version, sizeof entry->version);
        out_row->load_ns = entry->load_ns;
    }
    pthread_mutex_unlock(&runtime->lock);
    return entry != NULL;
}

gantry_status gantry_runtime_provider(const gantry_runtime *runtime, uint32_t index, const char **out_name,
                                      int *out_available, const char **out_detail)
{
    if (out_name)
        *out_name = NULL;
    if (out_available)
        *out_available = 0;
    if (out_detail)
        *out_detail = NULL;
    const gt_provider_entry *entry =
        runtime ? gt_runtime_provider_at((gantry_runtime *)runtime, index) : NULL;
    if (!entry)
        return GANTRY_INVALID_ARGUMENT;
    if (out_name)
        *out_name = entry->info.name;
    if (out_available)
        *out_available = entry->available;
    if (out_detail)
        *out_detail = entry->detail;
    return GANTRY_OK;
}

/* An available one first: a library that failed to load may have been loaded again from another path. */
uint32_t gt_runtime_find_provider(gantry_runtime *runtime, const char *name)
{
    uint32_t found = GT_NO_PLUGIN;
    pthread_mutex_lock(&runtime->lock);
    for (uint32_t k = 0; k < runtime->providers.count; k++) {
        const gt_provider_entry *entry = runtime->providers.data[k];
        if (strcmp(entry->info.name, name) == 0 && (found == GT_NO_PLUGIN || entry->available))
            found = k;
    }
    pthread_mutex_unlock(&runtime->lock);
    return found;
}

uint32_t gt_runtime_find_domain(gantry_runtime *runtime, const char *name)
{
    uint32_t found = GT_NO_PLUGIN;
    pthread_mutex_lock(&runtime->lock);
    for (uint32_t k = 0; k < runtime->domains.count && found == GT_NO_PLUGIN; k++)
        if (!runtime->domains.data[k]->spare && strcmp(runtime->domains.data[k]->info.name, name) == 0)
            found = k;
    pthread_mutex_unlock(&runtime->lock);
    return found;
}

uint64_t gantry_runtime_allocation_count(const gantry_runtime *runtime)
{
    return runtime ? atomic_load_explicit(&((gantry_runtime *)runtime)->allocator.calls, memory_order_relaxed)
                   : 0;
}
