/* The CPU provider's tables: opening it, what it says about itself, and memory from the host. */
#include "cpu_plugin.h"
#include "dnnl_kernel.h"
#include "program.h"

#include <sys/mman.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20) /* weights of this size and more go into huge pages */

void *cpu_alloc(cpu_provider *provider, size_t bytes)
{
    bool huge = bytes >= HUGE_PAGE_BYTES;
    void *memory = provider->host->alloc(provider->host, bytes ? bytes : 1, huge ? HUGE_PAGE_BYTES : 64);
    /* Whole pages only: a last one that is hardly used would count in full. A hint: never wrong. */
    if (memory && huge)
        (void)madvise(memory, bytes & ~(HUGE_PAGE_BYTES - 1), MADV_HUGEPAGE);
    return memory;
}

void cpu_free(cpu_provider *provider, void *memory)
{
    if (memory)
        provider->host->free(provider->host, memory);
}

/* gantry_allocator over the host's alloc and free. */
static void *host_resize(void *self, void *memory, size_t old_bytes, size_t new_bytes)
{
    const gantry_host *host = self;
    void *fresh = NULL;
    if (new_bytes) {
        fresh = host->alloc(host, new_bytes, 64);
        if (!fresh)
            return NULL;
        if (memory)
            memcpy(fresh, memory, old_bytes < new_bytes ? old_bytes : new_bytes);
    }
    if (memory)
        host->free(host, memory);
    return fresh;
}

static gantry_status describe(void *self, gantry_provider_info *out_info)
{
    const cpu_provider *provider = self;
    gantry_provider_info info = {
        .struct_bytes = sizeof info, .precision = GANTRY_UNDEFINED, .concurrency = GANTRY_CONCURRENCY_FREE};
    snprintf(info.name, sizeof info.name, "cpu");
    snprintf(info.version, sizeof info.version, "0.1.0");
    snprintf(info.domain, sizeof info.domain, "host");
    cpu_dnnl_describe(provider, info.libraries, sizeof info.libraries);
    snprintf(info.fingerprint, sizeof info.fingerprint, "cpu %s %.80s", provider->isa, info.libraries);
    size_t bytes = out_info->struct_bytes;
    if (bytes < sizeof info.struct_bytes)
        return GANTRY_INVALID_ARGUMENT;
    memcpy(out_info, &info, bytes < sizeof info ? bytes : sizeof info);
    out_info->struct_bytes = bytes;
    return GANTRY_OK;
}

/* oneDNN does not say what its cache of kernels takes. */
static uint32_t memory_classes(void *self, gantry_memory_class *out_classes, uint32_t capacity)
{
    static const char *const NAMES[CPU_HELD_COUNT] = {"weights", "programs", "kernels"};
    cpu_provider *provider = self;
    size_t bytes = capacity ? out_classes[0].struct_bytes : 0;
    for (uint32_t k = 0; k < CPU_HELD_COUNT && k < capacity; k++) {
        gantry_memory_class class = {.bytes = __atomic_load_n(&provider->held[k], __ATOMIC_RELAXED)};
        snprintf(class.name, sizeof class.name, "%s", NAMES[k]);
        class.struct_bytes = bytes;
        memcpy((char *)out_classes + k * bytes, &class, bytes < sizeof class ? bytes : sizeof class);
    }
    return CPU_HELD_COUNT;
}

static const gantry_option_info OPTIONS[] = {
    {sizeof *OPTIONS, "disable_types", "", GANTRY_OPTION_DEFAULT,
     "element types not to compute in, comma-separated"},
};

static void trim(void *self)
{
    cpu_dnnl_trim(self);
}

static void close_plugin(void *self)
{
    cpu_provider *provider = self;
    if (!provider)
        return;
    cpu_dnnl_close(provider);
    provider->host->free(provider->host, provider);
}

static void fill_table(cpu_provider *provider)
{
    provider->table = (gantry_provider){.struct_bytes = sizeof(gantry_provider),
                                        .self = provider,
                                        .describe = describe,
                                        .judge = cpu_judge,
                                        .compile = cpu_program_compile,
                                        .program_destroy = cpu_program_destroy,
                                        .reshape = cpu_shaped_create,
                                        .shaped_destroy = cpu_shaped_destroy,
                                        .context_create = cpu_context_create,
                                        .context_destroy = cpu_context_destroy,
                                        .run = cpu_context_run,
                                        .memory = cpu_program_memory,
                                        .trim = trim,
                                        .evaluate = cpu_evaluate,
                                        .options = OPTIONS,
                                        .option_count = sizeof OPTIONS / sizeof *OPTIONS,
                                        .memory_classes = memory_classes};
    provider->tables[0] = &provider->table;
}

gantry_status gt_cpu_plugin_open(const gantry_host *host, uint32_t abi, gantry_plugin *out_plugin,
                                 gantry_error *err)
{
    if (abi < GANTRY_PROVIDER_ABI || host->struct_bytes < sizeof(gantry_host) ||
        out_plugin->struct_bytes < sizeof(gantry_plugin))
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, NULL,
                       "the CPU provider needs provider ABI %u, the host offers %u", GANTRY_PROVIDER_ABI,
                       abi);
    cpu_provider *provider = host->alloc(host, sizeof *provider, 64);
    if (!provider)
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    memset(provider, 0, sizeof *provider);
    provider->host = host;
    gantry_allocator hooks = {sizeof hooks, (void *)host, host_resize};
    gt_allocator_init(&provider->allocator, &hooks);
    cpu_dnnl_open(provider);
    fill_table(provider);
    *out_plugin = (gantry_plugin){.struct_bytes = sizeof(gantry_plugin),
                                  .abi = GANTRY_PROVIDER_ABI,
                                  .self = provider,
                                  .name = "cpu",
                                  .version = "0.1.0",
                                  .provider_count = 1,
                                  .providers = provider->tables,
                                  .close = close_plugin};
    return GANTRY_OK;
}
