/* Opens an instance of the other plugin for each device that is asked for; counters lie in a file as the fake
 * device's do. */
#include "counted.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

GANTRY_MANIFEST("counted", "0.1.0", "", "another plugin");

#define HEADER_BYTES 16 /* as fake_device.c writes it: "GFAKECNT", the number of domains */
#define COUNTERS_BYTES (HEADER_BYTES + FAKE_MAX_DEVICES * sizeof(fake_counters))

typedef struct counted_plugin {
    fake_configs configs;
    counted_device devices[FAKE_MAX_DEVICES];
    const gantry_domain *domains[FAKE_MAX_DEVICES];
    const gantry_provider *providers[FAKE_MAX_DEVICES];
    const char *unavailable[FAKE_MAX_DEVICES];
    uint32_t domain_count;
    void *counters_map;
} counted_plugin;

static void close_plugin(void *self)
{
    counted_plugin *p = self;
    for (uint32_t k = 0; k < p->configs.count; k++) {
        if (p->devices[k].opened)
            p->devices[k].plugin.close(p->devices[k].plugin.self);
        pthread_mutex_destroy(&p->devices[k].lock);
    }
    if (p->counters_map)
        munmap(p->counters_map, COUNTERS_BYTES);
    free(p);
}

static gantry_status open_counters(counted_plugin *p, gantry_error *err)
{
    const char *path = p->configs.counters_file;
    if (!*path)
        return GANTRY_OK;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    void *map = fd >= 0 && ftruncate(fd, (off_t)COUNTERS_BYTES) == 0
                    ? mmap(NULL, COUNTERS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                    : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    if (map == MAP_FAILED)
        return fake_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_PLUGIN, "counted device: %s can't be mapped",
                         path);
    p->counters_map = map;
    return GANTRY_OK;
}

static gantry_plugin_open_fn other_plugin(gantry_error *err)
{
    gantry_plugin_open_fn open = NULL;
    void *library = dlopen(COUNTED_PLUGIN, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol = library ? dlsym(library, GANTRY_PLUGIN_ENTRY) : NULL;
    if (symbol)
        memcpy(&open, &symbol, sizeof symbol);
    else
        fake_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, "counted device: %s", dlerror());
    return open;
}

/* Every device is an instance on the same hardware, with memory and queues of its own. */
static gantry_status open_device(counted_plugin *p, uint32_t index, gantry_plugin_open_fn open,
                                 const gantry_host *host, gantry_error *err)
{
    counted_device *d = &p->devices[index];
    d->config = &p->configs.devices[index];
    d->host = *host;
    d->host.config = "device=0";
    d->counters = p->counters_map ? (fake_counters *)((char *)p->counters_map + HEADER_BYTES) + index
                                  : &d->own_counters;
    snprintf(d->counters->domain, sizeof d->counters->domain, "%s", d->config->domain);
    d->plugin.struct_bytes = sizeof d->plugin;
    gantry_status status = open(&d->host, GANTRY_PROVIDER_ABI, &d->plugin, err);
    if (status != GANTRY_OK)
        return status;
    d->opened = true;
    d->inner = d->plugin.providers[0];
    p->unavailable[index] = d->plugin.unavailable ? d->plugin.unavailable[0] : NULL;
    counted_provider_table(d);
    p->providers[index] = &d->provider;
    if (p->unavailable[index])
        return GANTRY_OK;
    d->inner_domain = d->plugin.domains[0];
    counted_domain_table(d);
    p->domains[p->domain_count++] = &d->domain;
    return GANTRY_OK;
}

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err);

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err)
{
    counted_plugin *p = calloc(1, sizeof *p);
    if (!p)
        return fake_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_PLUGIN, "counted device: out of memory");
    for (uint32_t k = 0; k < FAKE_MAX_DEVICES; k++)
        pthread_mutex_init(&p->devices[k].lock, NULL);
    gantry_plugin_open_fn open = other_plugin(err);
    gantry_status status = open ? fake_configs_parse(host->config, &p->configs, err) : GANTRY_PROVIDER;
    if (status == GANTRY_OK)
        status = open_counters(p, err);
    for (uint32_t k = 0; k < p->configs.count && status == GANTRY_OK; k++)
        status = open_device(p, k, open, host, err);
    if (status != GANTRY_OK) {
        close_plugin(p);
        return status;
    }
    gantry_plugin filled = {.struct_bytes = sizeof filled,
                            .abi = GANTRY_PROVIDER_ABI,
                            .self = p,
                            .name = "counted",
                            .version = "0.1.0",
                            .domain_count = p->domain_count,
                            .domains = p->domains,
                            .provider_count = p->configs.count,
                            .providers = p->providers,
                            .unavailable = p->unavailable,
                            .close = close_plugin};
    return gantry_plugin_fill(out_plugin, &filled);
}
