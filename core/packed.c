/* Constants in providers' own forms, shared by the sessions of one runtime: who holds which, and when it
 * goes.
 *
 * An entry is found by what it was made of (content of the constant, form, plugin) and by what it is (data).
 * The plugin is told apart by the host table it was opened with: a second instance of a library shares
 * nothing with the first, whose device it may not reach. */
#include "host_parts.h"

#include "graph/graph.h"

#define FIRST_BUCKETS 64u

typedef struct packed_key {
    uint64_t hash[2]; /* of the constant's bytes */
    uint64_t bytes;
    uint64_t form;
    const gantry_host *host;
} packed_key;

typedef struct gt_packed_entry gt_packed_entry;
struct gt_packed_entry {
    packed_key key;
    gantry_packed packed;
    uint64_t users;
    gt_packed_entry *next_of_key, *next_of_data;
};

void gt_packed_store_init(gt_packed_store *store)
{
    pthread_mutex_init(&store->lock, NULL);
}

void gt_packed_store_free(gantry_runtime *runtime)
{
    gt_free(&runtime->allocator, runtime->packed.by_key);
    gt_free(&runtime->allocator, runtime->packed.by_data);
    pthread_mutex_destroy(&runtime->packed.lock);
}

/* ---- what a constant holds ------------------------------------------------------------------- */

/* Texts with their ends: an array of pointers says nothing about what it holds. */
static XXH128_hash_t hash_texts(const char *const *texts, size_t count)
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t k = 0; k < count; k++)
        XXH3_128bits_update(&state, texts[k], strlen(texts[k]) + 1);
    return XXH3_128bits_digest(&state);
}

static void keep_hash(gantry_runtime *runtime, gt_constant *constant, XXH128_hash_t hash)
{
    pthread_mutex_lock(&runtime->constants_lock);
    constant->hash[0] = hash.low64;
    constant->hash[1] = hash.high64;
    constant->hashed = true;
    pthread_mutex_unlock(&runtime->constants_lock);
}

/* The bytes are read once in a constant's life. */
static gantry_status make_key(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                              uint64_t form, packed_key *out_key, gantry_error *err)
{
    gantry_runtime *runtime = gt_host_runtime(host);
    const void *data;
    size_t bytes;
    GT_TRY(gt_host_constant_map(host, constants, constant_id, &data, &bytes, err));
    gt_constant *constant = &((gt_model *)constants)->constants.data[constant_id];
    pthread_mutex_lock(&runtime->constants_lock);
    bool hashed = constant->hashed;
    pthread_mutex_unlock(&runtime->constants_lock);
    if (!hashed)
        keep_hash(runtime, constant,
                  constant->dtype == GANTRY_STRING ? hash_texts(data, bytes / sizeof(char *))
                                                   : XXH3_128bits(data, bytes));
    *out_key = (packed_key){{constant->hash[0], constant->hash[1]}, bytes, form, host};
    gt_host_constant_unmap(host, constants, constant_id);
    return GANTRY_OK;
}

/* ---- the tables, under the lock -------------------------------------------------------------- */

static gt_packed_entry **bucket_of_key(const gt_packed_store *store, const packed_key *key)
{
    return &store->by_key[XXH3_64bits(key, sizeof *key) & (store->bucket_count - 1)];
}

static gt_packed_entry **bucket_of_data(const gt_packed_store *store, const void *data)
{
    return &store->by_data[XXH3_64bits(&data, sizeof data) & (store->bucket_count - 1)];
}

static gt_packed_entry *find_key(const gt_packed_store *store, const packed_key *key)
{
    gt_packed_entry *entry = store->bucket_count ? *bucket_of_key(store, key) : NULL;
    while (entry && memcmp(&entry->key, key, sizeof *key) != 0)
        entry = entry->next_of_key;
    return entry;
}

static gt_packed_entry *find_data(const gt_packed_store *store, const gantry_host *host, const void *data)
{
    gt_packed_entry *entry = store->bucket_count ? *bucket_of_data(store, data) : NULL;
    while (entry && !(entry->packed.data == data && entry->key.host == host))
        entry = entry->next_of_data;
    return entry;
}

static void link_entry(gt_packed_store *store, gt_packed_entry *entry)
{
    gt_packed_entry **of_key = bucket_of_key(store, &entry->key);
    gt_packed_entry **of_data = bucket_of_data(store, entry->packed.data);
    entry->next_of_key = *of_key;
    entry->next_of_data = *of_data;
    *of_key = *of_data = entry;
    store->count++;
}

static void unlink_entry(gt_packed_store *store, gt_packed_entry *entry)
{
    gt_packed_entry **at = bucket_of_key(store, &entry->key);
    while (*at != entry)
        at = &(*at)->next_of_key;
    *at = entry->next_of_key;
    at = bucket_of_data(store, entry->packed.data);
    while (*at != entry)
        at = &(*at)->next_of_data;
    *at = entry->next_of_data;
    store->count--;
}

/* Room for one entry more; false when out of memory, and nothing has changed. */
static bool reserve(gt_allocator *allocator, gt_packed_store *store)
{
    if (store->count < store->bucket_count)
        return true;
    gt_packed_store bigger = {.bucket_count = store->bucket_count ? store->bucket_count * 2 : FIRST_BUCKETS};
    bigger.by_key = GT_NEW_ARRAY(allocator, gt_packed_entry *, bigger.bucket_count);
    bigger.by_data = GT_NEW_ARRAY(allocator, gt_packed_entry *, bigger.bucket_count);
    if (!bigger.by_key || !bigger.by_data) {
        gt_free(allocator, bigger.by_key);
        gt_free(allocator, bigger.by_data);
        return false;
    }
    for (uint32_t k = 0; k < store->bucket_count; k++)
        for (gt_packed_entry *entry = store->by_key[k], *next; entry; entry = next) {
            next = entry->next_of_key;
            link_entry(&bigger, entry);
        }
    gt_free(allocator, store->by_key);
    gt_free(allocator, store->by_data);
    store->by_key = bigger.by_key;
    store->by_data = bigger.by_data;
    store->bucket_count = bigger.bucket_count;
    return true;
}

/* ---- get, put, release ----------------------------------------------------------------------- */

/* The plugin's struct may be longer than ours, and keeps its size. */
static void give(const gantry_packed *packed, gantry_packed *out_packed)
{
    size_t struct_bytes = out_packed->struct_bytes;
    *out_packed = *packed;
    out_packed->struct_bytes = struct_bytes;
}

gantry_status gt_host_packed_get(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                 uint64_t form, gantry_packed *out_packed)
{
    gt_packed_store *store = &gt_host_runtime(host)->packed;
    packed_key key;
    if (!out_packed || out_packed->struct_bytes < sizeof *out_packed)
        return GANTRY_INVALID_ARGUMENT;
    GT_TRY(make_key(host, constants, constant_id, form, &key, NULL));
    pthread_mutex_lock(&store->lock);
    gt_packed_entry *entry = find_key(store, &key);
    if (entry) {
        entry->users++;
        give(&entry->packed, out_packed);
    }
    pthread_mutex_unlock(&store->lock);
    return entry ? GANTRY_OK : GANTRY_DATA;
}

static gantry_status check_packed(const gantry_packed *packed, const gantry_packed *out_packed,
                                  gantry_error *err)
{
    if (!packed || !out_packed || packed->struct_bytes < sizeof *packed ||
        out_packed->struct_bytes < sizeof *packed)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE, NULL,
                       "packed_put: packed or out_packed is NULL, or its struct_bytes is less than %zu",
                       sizeof *packed);
    if (!packed->data || !packed->release)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE, NULL,
                       "packed_put: data or release is NULL; data tells packed constants apart");
    return GANTRY_OK;
}

/* Under the lock. *out_used is the entry to use from now on: the fresh one, which is then *inout_fresh no
 * more, or one that was there. */
static gantry_status insert(gantry_runtime *runtime, gt_packed_entry **inout_fresh,
                            gt_packed_entry **out_used, gantry_error *err)
{
    gt_packed_store *store = &runtime->packed;
    const gantry_packed *packed = &(*inout_fresh)->packed;
    gt_packed_entry *same_data = find_data(store, (*inout_fresh)->key.host, packed->data);
    *out_used = find_key(store, &(*inout_fresh)->key);
    if (same_data && same_data != *out_used)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE, NULL,
                       "packed_put: the data %p is that of another packed constant", packed->data);
    if (!*out_used && !reserve(&runtime->allocator, store))
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    if (!*out_used) {
        link_entry(store, *inout_fresh);
        *out_used = *inout_fresh;
        *inout_fresh = NULL;
    }
    (*out_used)->users++;
    return GANTRY_OK;
}

gantry_status gt_host_packed_put(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                 uint64_t form, const gantry_packed *packed, gantry_packed *out_packed,
                                 gantry_error *err)
{
    gantry_runtime *runtime = gt_host_runtime(host);
    packed_key key;
    GT_TRY(check_packed(packed, out_packed, err));
    GT_TRY(make_key(host, constants, constant_id, form, &key, err));
    gt_packed_entry *fresh = GT_NEW(&runtime->allocator, gt_packed_entry), *used = NULL;
    if (!fresh)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    fresh->key = key;
    fresh->packed = *packed;
    const gantry_packed given = *packed; /* out_packed may be the same struct */
    pthread_mutex_lock(&runtime->packed.lock);
    gantry_status status = insert(runtime, &fresh, &used, err);
    if (status == GANTRY_OK)
        give(&used->packed, out_packed);
    bool twice = fresh && status == GANTRY_OK && used->packed.data != given.data;
    pthread_mutex_unlock(&runtime->packed.lock);
    gt_free(&runtime->allocator, fresh);
    if (twice)
        given.release(given.self, given.data);
    return status;
}

static void release_entry(gantry_runtime *runtime, gt_packed_entry *entry)
{
    entry->packed.release(entry->packed.self, entry->packed.data);
    gt_free(&runtime->allocator, entry);
}

void gt_host_packed_release(const gantry_host *host, const gantry_packed *packed)
{
    gantry_runtime *runtime = gt_host_runtime(host);
    if (!packed)
        return;
    pthread_mutex_lock(&runtime->packed.lock);
    gt_packed_entry *entry = find_data(&runtime->packed, host, packed->data);
    bool last = entry && --entry->users == 0;
    if (last)
        unlink_entry(&runtime->packed, entry);
    pthread_mutex_unlock(&runtime->packed.lock);
    if (last)
        release_entry(runtime, entry);
}

/* ---- a plugin's end, and the report ---------------------------------------------------------- */

void gt_packed_drop(gantry_runtime *runtime, const gantry_host *host)
{
    gt_packed_store *store = &runtime->packed;
    gt_packed_entry *left = NULL;
    pthread_mutex_lock(&store->lock);
    for (uint32_t k = 0; k < store->bucket_count; k++)
        for (gt_packed_entry *entry = store->by_key[k], *next; entry; entry = next) {
            next = entry->next_of_key;
            if (entry->key.host != host)
                continue;
            unlink_entry(store, entry);
            entry->next_of_key = left;
            left = entry;
        }
    pthread_mutex_unlock(&store->lock);
    for (gt_packed_entry *next; left; left = next) {
        next = left->next_of_key;
        release_entry(runtime, left);
    }
}

gt_packed_total gt_packed_count(gantry_runtime *runtime, const gantry_host *host)
{
    const gt_packed_store *store = &runtime->packed;
    gt_packed_total total = {0};
    pthread_mutex_lock(&runtime->packed.lock);
    for (uint32_t k = 0; k < store->bucket_count; k++)
        for (const gt_packed_entry *entry = store->by_key[k]; entry; entry = entry->next_of_key)
            if (entry->key.host == host) {
                total.forms++;
                total.users += entry->users;
                total.bytes += entry->packed.bytes;
            }
    pthread_mutex_unlock(&runtime->packed.lock);
    return total;
}
