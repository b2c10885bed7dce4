/* Entries of the host table that have files of their own; see gantry_host in provider.h. */
#ifndef GT_CORE_HOST_PARTS_H
#define GT_CORE_HOST_PARTS_H

#include "runtime.h"

static inline gantry_runtime *gt_host_runtime(const gantry_host *host)
{
    return host->self;
}

/* host_table.c */
gantry_status gt_host_constant_map(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                   const void **out_data, size_t *out_bytes, gantry_error *err);
void gt_host_constant_unmap(const gantry_host *host, gantry_constants *constants, uint32_t constant_id);
void *gt_host_alloc(const gantry_host *host, size_t bytes, size_t alignment);
void gt_host_free(const gantry_host *host, void *memory);

/* packed.c */
gantry_status gt_host_packed_get(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                 uint64_t form, gantry_packed *out_packed);
gantry_status gt_host_packed_put(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                 uint64_t form, const gantry_packed *packed, gantry_packed *out_packed,
                                 gantry_error *err);
void gt_host_packed_release(const gantry_host *host, const gantry_packed *packed);

/* cache.c */
gantry_status gt_host_cache_get(const gantry_host *host, const char *key, void **out_data, size_t *out_bytes,
                                gantry_error *err);
void gt_host_cache_put(const gantry_host *host, const char *key, const void *data, size_t bytes);

#endif
