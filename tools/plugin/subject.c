/* The plugin under test: loaded, opened, its tables copied; and memory of the domain that its provider
 * computes in. */
#include "kit.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void kit_copy_table(void *target, size_t bytes, const void *source)
{
    size_t stated = source ? *(const size_t *)source : 0;
    memset(target, 0, bytes);
    if (stated)
        memcpy(target, source, stated < bytes ? stated : bytes);
}

gantry_plugin_open_fn kit_load(const char *path, char *out_text, size_t capacity)
{
    gantry_plugin_open_fn open = NULL;
    char *resolved = realpath(path, NULL);
    void *library = dlopen(resolved ? resolved : path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol = library ? dlsym(library, GANTRY_PLUGIN_ENTRY) : NULL;
    if (!symbol)
        snprintf(out_text, capacity, "%s", dlerror());
    free(resolved);
    memcpy(&open, &symbol, sizeof open);
    return open;
}

const char *kit_error_text(gantry_status status, const gantry_error *err, char *out_text, size_t capacity)
{
    snprintf(out_text, capacity, "status %d (%s): %s", (int)status, gantry_status_text(status),
             *err->message ? err->message : "no words");
    return out_text;
}

const char *kit_subject_unavailable(const kit_subject *subject, uint32_t provider)
{
    return subject->plugin.unavailable ? subject->plugin.unavailable[provider] : NULL;
}

static gantry_status find_domain(kit_subject *s, gantry_error *err)
{
    for (uint32_t k = 0; k < s->plugin.domain_count; k++) {
        gantry_domain table;
        gantry_domain_info info = {.struct_bytes = sizeof info};
        KIT_COPY_TABLE(table, s->plugin.domains[k]);
        gantry_status status = table.describe ? table.describe(table.self, &info) : GANTRY_PROVIDER;
        if (status != GANTRY_OK) {
            snprintf(err->message, sizeof err->message, "describe of domain %u failed", k);
            return status;
        }
        if (strcmp(info.name, s->provider_info.domain) != 0)
            continue;
        s->own_domain = true;
        s->domain = table;
        s->domain_info = info;
    }
    return GANTRY_OK;
}

gantry_status kit_subject_open(gantry_plugin_open_fn open, kit_host *host, uint32_t provider,
                               kit_subject *out_subject, gantry_error *err)
{
    kit_subject *s = out_subject;
    *s = (kit_subject){.host = host};
    gantry_plugin *plugin = calloc(1, host->plugin_bytes);
    if (!plugin)
        return GANTRY_RESOURCE;
    plugin->struct_bytes = host->plugin_bytes;
    gantry_status status = open(host->shown, host->shown->abi, plugin, err);
    if (status == GANTRY_OK)
        KIT_COPY_TABLE(s->plugin, plugin);
    free(plugin);
    if (status != GANTRY_OK)
        return status;
    s->open = true;
    if (provider >= s->plugin.provider_count || !s->plugin.providers || kit_subject_unavailable(s, provider))
        return GANTRY_OK;
    KIT_COPY_TABLE(s->provider, s->plugin.providers[provider]);
    s->provider_info.struct_bytes = sizeof s->provider_info;
    if (s->provider.describe && s->provider.describe(s->provider.self, &s->provider_info) != GANTRY_OK) {
        snprintf(err->message, sizeof err->message, "describe of provider %u failed", provider);
        return GANTRY_PROVIDER;
    }
    if (!*s->provider_info.domain)
        snprintf(s->provider_info.domain, sizeof s->provider_info.domain, "host");
    return find_domain(s, err);
}

void kit_subject_close(kit_subject *subject)
{
    if (subject->open && subject->plugin.close)
        subject->plugin.close(subject->plugin.self);
    subject->open = false;
}

bool kit_subject_is_foreign(const kit_subject *subject)
{
    return !subject->own_domain && strcmp(subject->provider_info.domain, "host") != 0;
}

void *kit_at_the_edge(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + page - 1) / page * page;
    char *map = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + room, page, PROT_NONE) != 0)
        return NULL;
    return map + room - bytes;
}

/* ---- memory ---------------------------------------------------------------------------------- */

gantry_status kit_memory_alloc(kit_subject *s, size_t bytes, void **out_handle, gantry_error *err)
{
    *out_handle = NULL;
    if (s->own_domain)
        return s->domain.alloc(s->domain.self, bytes, GANTRY_MEMORY_DEVICE, out_handle, err);
    return posix_memalign(out_handle, 64, bytes ? bytes : 64) == 0 ? GANTRY_OK : GANTRY_RESOURCE;
}

void kit_memory_free(kit_subject *s, void *handle)
{
    if (!handle)
        return;
    if (s->own_domain)
        s->domain.free(s->domain.self, handle, GANTRY_MEMORY_DEVICE);
    else
        free(handle);
}

gantry_status kit_upload(kit_subject *s, gantry_queue *queue, gantry_buffer target, const void *source,
                         size_t bytes, gantry_error *err)
{
    gantry_buffer from = {(void *)(uintptr_t)source, 0};
    if (s->own_domain)
        return s->domain.copy(s->domain.self, queue, GANTRY_COPY_TO_DEVICE, target, from, bytes, err);
    memcpy((char *)target.handle + target.offset_bytes, source, bytes);
    return GANTRY_OK;
}

gantry_status kit_download(kit_subject *s, gantry_queue *queue, void *target, gantry_buffer source,
                           size_t bytes, gantry_error *err)
{
    gantry_buffer to = {target, 0};
    if (s->own_domain)
        return s->domain.copy(s->domain.self, queue, GANTRY_COPY_TO_HOST, to, source, bytes, err);
    memcpy(target, (const char *)source.handle + source.offset_bytes, bytes);
    return GANTRY_OK;
}

gantry_status kit_sync(kit_subject *s, gantry_queue *queue, gantry_error *err)
{
    return s->own_domain ? s->domain.queue_sync(s->domain.self, queue, err) : GANTRY_OK;
}
