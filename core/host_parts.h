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

/* identity.c: which constant it is. Two are the same when their places or their contents are. */
typedef struct gt_identity {
    bool has_place, has_content;
    uint64_t place[2];   /* in a file, or what was made of one there */
    uint64_t content[2]; /* XXH3 (128 bits) of the bytes */
} gt_identity;
/* The place of the constant, or its content when it has none that is sure; fails as constant_map does. */
gantry_status gt_identity_make(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                               gt_identity *out_identity, gantry_error *err);
/* The bytes are read once in a constant's life. */
gantry_status gt_identity_add_content(const gantry_host *host, gantry_constants *constants,
                                      uint32_t constant_id, gt_identity *inout_identity, gantry_error *err);
bool gt_identity_equal(const gt_identity *a, const gt_identity *b);

/* packed.c */
gantry_status gt_host_packed_get(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                 uint64_t form, gantry_packed *out_packed);
gantry_status gt_host_packed_put(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                 uint64_t form, const gantry_packed *packed, gantry_packed *out_packed,
                                 gantry_error *err);
void gt_host_packed_release(const gantry_host *host, const gantry_packed *packed);

/* cache.c */
#define GT_CACHE_PATH_BYTES (GT_SETTING_BYTES + 256) /* a folder and the name of a file in it */
/* identity_bytes: how much of the text stays when what is kept is made anew with other options or weights; 0:
 * a provider's own key. */
typedef struct gt_cache_key {
    const char *text;
    size_t identity_bytes;
} gt_cache_key;
typedef struct gt_cache_file {
    void *data; /* to be given back with gt_host_free; NULL: it is not used */
    size_t bytes;
    bool exists;
    char path[GT_CACHE_PATH_BYTES]; /* "" when there is no folder */
} gt_cache_file;
/* GANTRY_DATA, with the reason, when there is none (exists is false) or it is damaged. */
gantry_status gt_cache_read(const gantry_host *host, const gt_cache_key *key, gt_cache_file *out_file,
                            gantry_error *err);
/* A few files of one identity are kept, those used last. */
gantry_status gt_cache_write(const gantry_host *host, const gt_cache_key *key, const void *data, size_t bytes,
                             gantry_error *err);
/* The text of another key of that identity, the one used last; NULL: there is none. gt_host_free. */
char *gt_cache_relative(const gantry_host *host, const gt_cache_key *key);
/* Of the plugin that was opened with that table. */
void gt_host_plugin_name(const gantry_host *host, char out_name[64], char out_version[32]);
gantry_status gt_host_cache_get(const gantry_host *host, const char *key, void **out_data, size_t *out_bytes,
                                gantry_error *err);
void gt_host_cache_put(const gantry_host *host, const char *key, const void *data, size_t bytes);

#endif
