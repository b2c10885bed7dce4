/* The fake device's tables, its counters' file, and gantry_plugin_open. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

GANTRY_MANIFEST("fake", "1.0", "", "libjansson.so.4");

typedef struct fake_plugin {
    const gantry_host *host;
    fake_configs configs;
    uint32_t domain_count, provider_count;
    fake_domain *domains[FAKE_MAX_DEVICES];
    fake_provider *providers[FAKE_MAX_DEVICES];
    const gantry_domain *domain_tables[FAKE_MAX_DEVICES];
    const gantry_provider *provider_tables[FAKE_MAX_DEVICES];
    const char *unavailable[FAKE_MAX_DEVICES];
    void *counters_map;
    size_t counters_bytes;
    fake_log log;
} fake_plugin;

/* ---- counters -------------------------------------------------------------------------------- */

typedef struct counters_header {
    char magic[8];
    uint64_t domain_count;
} counters_header;

/* Maps the file; without one every domain counts in its own memory. */
static gantry_status open_counters(fake_plugin *plugin, gantry_error *err)
{
    const char *path = plugin->configs.counters_file;
    if (!*path)
        return GANTRY_OK;
    size_t bytes = sizeof(counters_header) + FAKE_MAX_DEVICES * sizeof(fake_counters);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void *map = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0
                    ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                    : MAP_FAILED;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return fake_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_PLUGIN, "fake device: counters_file %s: %s", path,
                         strerror(error));
    plugin->counters_map = map;
    plugin->counters_bytes = bytes;
    memcpy(((counters_header *)map)->magic, "GFAKECNT", 8);
    return GANTRY_OK;
}

static void place_counters(fake_plugin *plugin, fake_domain *domain)
{
    domain->counters = &domain->own_counters;
    if (plugin->counters_map) {
        counters_header *header = plugin->counters_map;
        domain->counters = (fake_counters *)(header + 1) + plugin->domain_count;
        header->domain_count = plugin->domain_count + 1;
    }
    snprintf(domain->counters->domain, sizeof domain->counters->domain, "%s", domain->config->domain);
}

/* ---- domains and providers ------------------------------------------------------------------- */

static gantry_status find_or_open_domain(fake_plugin *plugin, const fake_config *config,
                                         fake_domain **out_domain, gantry_error *err)
{
    for (uint32_t k = 0; k < plugin->domain_count; k++)
        if (strcmp(plugin->domains[k]->config->domain, config->domain) == 0) {
            *out_domain = plugin->domains[k];
            return GANTRY_OK;
        }
    fake_domain *domain = fake_zeroed(plugin->host, 1, sizeof *domain);
    if (!domain)
        return fake_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    domain->host = plugin->host;
    domain->config = config;
    domain->log = &plugin->log;
    domain->script.fail = config->fail;
    gantry_status status = fake_memory_open(&domain->memory, plugin->host, config->memory_bytes, err);
    if (status != GANTRY_OK) {
        plugin->host->free(plugin->host, domain);
        return status;
    }
    pthread_mutex_init(&domain->pinned_lock, NULL);
    place_counters(plugin, domain);
    fake_domain_table(domain);
    plugin->domain_tables[plugin->domain_count] = &domain->table;
    plugin->domains[plugin->domain_count++] = domain;
    *out_domain = domain;
    return GANTRY_OK;
}

static gantry_status provider_describe(void *self, gantry_provider_info *out_info)
{
    fake_provider *provider = self;
    const fake_config *config = &provider->config;
    gantry_status status = fake_call_begin(provider->domain, &provider->script, FAKE_CALL_DESCRIBE, NULL);
    if (status != GANTRY_OK)
        return status;
    snprintf(out_info->name, sizeof out_info->name, "%s", config->name);
    snprintf(out_info->version, sizeof out_info->version, "1.0");
    snprintf(out_info->domain, sizeof out_info->domain, "%s", config->domain);
    snprintf(out_info->fingerprint, sizeof out_info->fingerprint, "fake device 1.0");
    snprintf(out_info->libraries, sizeof out_info->libraries, "the host's evaluate");
    out_info->precision = config->compute;
    out_info->concurrency = config->concurrency;
    if (strcmp(config->quirk, "provider_info_size_zero") == 0)
        out_info->struct_bytes = 0;
    return GANTRY_OK;
}

static gantry_status open_provider(fake_plugin *plugin, const fake_config *config, gantry_error *err)
{
    fake_provider *provider = fake_zeroed(plugin->host, 1, sizeof *provider);
    if (!provider)
        return fake_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    plugin->providers[plugin->provider_count] = provider;
    plugin->provider_tables[plugin->provider_count] = &provider->table;
    plugin->unavailable[plugin->provider_count++] = *config->unavailable ? config->unavailable : NULL;
    provider->config = *config;
    provider->host = plugin->host;
    provider->script.fail = provider->config.fail;
    provider->table.struct_bytes = sizeof provider->table;
    provider->table.self = provider;
    provider->table.describe = provider_describe;
    provider->table.judge = fake_judge;
    fake_programs_table(provider);
    return find_or_open_domain(plugin, config, &provider->domain, err);
}

/* Entries that break a rule: what `gantry plugin check` has to find. */
static int peer_of_all(void *self, const char *other_name, const gantry_domain *other)
{
    return 1;
}

static gantry_status copy_too_little(void *self, gantry_queue *queue, const gantry_domain *other,
                                     gantry_buffer target, gantry_buffer source, size_t bytes,
                                     gantry_error *err)
{
    return fake_copy_from_peer(self, queue, other, target, source, bytes ? bytes - 1 : 0, err);
}

static gantry_status measure_nothing(void *self, gantry_domain_info *inout_info, gantry_error *err)
{
    return GANTRY_OK;
}

static gantry_status measure_too_much(void *self, gantry_domain_info *inout_info, gantry_error *err)
{
    inout_info->queue_count = 2;
    return fake_domain_probe(self, inout_info, err);
}

/* Spoils the tables as a test of the loader asks: sizes, levels, missing entries. */
static gantry_status apply_quirk(fake_plugin *plugin, const char *quirk, gantry_plugin *out_plugin,
                                 gantry_error *err)
{
    gantry_provider *provider = &plugin->providers[0]->table;
    gantry_domain *domain = &plugin->domains[0]->table;
    if (!*quirk || strcmp(quirk, "provider_info_size_zero") == 0 || strncmp(quirk, "blob_", 5) == 0)
        return GANTRY_OK;
    if (strcmp(quirk, "plugin_size_zero") == 0)
        out_plugin->struct_bytes = 0;
    else if (strcmp(quirk, "plugin_abi_newer") == 0)
        out_plugin->abi = GANTRY_PROVIDER_ABI + 1;
    else if (strcmp(quirk, "plugin_abi_zero") == 0)
        out_plugin->abi = 0;
    else if (strcmp(quirk, "provider_size_zero") == 0)
        provider->struct_bytes = 0;
    else if (strcmp(quirk, "provider_size_older") == 0)
        provider->struct_bytes = offsetof(gantry_provider, format_bytes);
    else if (strcmp(quirk, "provider_size_larger") == 0)
        provider->struct_bytes += 64;
    else if (strcmp(quirk, "provider_judge_null") == 0)
        provider->judge = NULL;
    else if (strcmp(quirk, "provider_run_cut") == 0)
        provider->struct_bytes = offsetof(gantry_provider, run);
    else if (strcmp(quirk, "domain_size_zero") == 0)
        domain->struct_bytes = 0;
    else if (strcmp(quirk, "domain_copy_null") == 0)
        domain->copy = NULL;
    else if (strcmp(quirk, "domain_events_partly") == 0)
        domain->event_wait = NULL;
    else if (strcmp(quirk, "peer_of_all") == 0)
        domain->peer = peer_of_all;
    else if (strcmp(quirk, "peer_copies_less") == 0)
        domain->copy_from_peer = copy_too_little;
    else if (strcmp(quirk, "probe_nothing") == 0)
        domain->probe = measure_nothing;
    else if (strcmp(quirk, "probe_too_much") == 0)
        domain->probe = measure_too_much;
    else
        return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN,
                         "fake device: there is no quirk \"%s\"", quirk);
    return GANTRY_OK;
}

/* ---- the plugin ------------------------------------------------------------------------------ */

/* Accepts a half-built one. */
static void plugin_close(void *self)
{
    fake_plugin *plugin = self;
    const gantry_host *host = plugin->host;
    for (uint32_t k = 0; k < plugin->provider_count; k++)
        host->free(host, plugin->providers[k]);
    for (uint32_t k = 0; k < plugin->domain_count; k++) {
        fake_memory_close(&plugin->domains[k]->memory);
        pthread_mutex_destroy(&plugin->domains[k]->pinned_lock);
        host->free(host, plugin->domains[k]);
    }
    fake_log_close(&plugin->log);
    if (plugin->counters_map)
        munmap(plugin->counters_map, plugin->counters_bytes);
    host->free(host, plugin);
}

static gantry_status open_all(fake_plugin *plugin, gantry_plugin *out_plugin, gantry_error *err)
{
    gantry_status status = fake_configs_parse(plugin->host->config, &plugin->configs, err);
    if (status == GANTRY_OK)
        status = open_counters(plugin, err);
    if (status == GANTRY_OK)
        status = fake_log_open(&plugin->log, plugin->configs.log_file, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < plugin->configs.count; k++)
        status = open_provider(plugin, &plugin->configs.devices[k], err);
    if (status == GANTRY_OK && plugin->configs.fail_open)
        status =
            fake_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, "fake device: told to fail when opened");
    if (status != GANTRY_OK)
        return status;
    *out_plugin = (gantry_plugin){.struct_bytes = sizeof *out_plugin,
                                  .abi = GANTRY_PROVIDER_ABI,
                                  .self = plugin,
                                  .name = "fake",
                                  .version = "1.0",
                                  .domain_count = plugin->domain_count,
                                  .domains = plugin->domain_tables,
                                  .provider_count = plugin->provider_count,
                                  .providers = plugin->provider_tables,
                                  .unavailable = plugin->unavailable,
                                  .close = plugin_close};
    return apply_quirk(plugin, plugin->configs.devices[0].quirk, out_plugin, err);
}

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err);

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err)
{
    if (abi < 1 || host->struct_bytes < sizeof *host || out_plugin->struct_bytes < sizeof *out_plugin)
        return fake_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN,
                         "fake device: needs ABI level 1; the host offers %u", abi);
    fake_plugin *plugin = fake_zeroed(host, 1, sizeof *plugin);
    if (!plugin)
        return fake_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    plugin->host = host;
    plugin->log.fd = -1;
    pthread_mutex_init(&plugin->log.lock, NULL);
    gantry_status status = open_all(plugin, out_plugin, err);
    if (status != GANTRY_OK) {
        plugin_close(plugin);
        *out_plugin = (gantry_plugin){.struct_bytes = sizeof *out_plugin};
    }
    return status;
}
