/* Constants in providers' own forms, shared by the sessions of one runtime: who holds which, and when it
 * goes.
 *
 * An entry is found by its form and plugin, then by the constant it was made of (core/identity.c says when
 * two are the same), and by what it is (data). The plugin is told apart by the host table it was opened with:
 * a second instance of a library shares nothing with the first, whose device it may not reach. */
#include "host_parts.h"

#include "graph/graph.h"

#define FIRST_BUCKETS 64u

/* What all constants of a list of by_form have in common; every byte is set. */
typedef struct packed_form {
    uint64_t form;
    uint64_t bytes; /* of the constant */
    const gantry_host *host;
} packed_form;

typedef struct packed_key {
    packed_form form;
    gt_identity constant;
} packed_key;

typedef struct gt_packed_entry gt_packed_entry;
struct gt_packed_entry {
    packed_key key;
    gantry_packed packed;
    uint64_t users;
    gt_packed_entry *next_of_form, *next_of_data;
};

void gt_packed_store_init(gt_packed_store *store)
{
    pthread_mutex_init(&store->lock, NULL);
}

void gt_packed_store_free(gantry_runtime *runtime)
{
    gt_free(&runtime->allocator, runtime->packed.by_form);
    gt_free(&runtime->allocator, runtime->packed.by_data);
    pthread_mutex_destroy(&runtime->packed.lock);
}

/* ---- the tables, under the lock -------------------------------------------------------------- */

static gt_packed_entry **bucket_of_form(const gt_packed_store *store, const packed_form *form)
{
    return &store->by_form[XXH3_64bits(form, sizeof *form) & (store->bucket_count - 1)];
}

static gt_packed_entry **bucket_of_data(const gt_packed_store *store, const void *data)
{
    return &store->by_data[XXH3_64bits(&data, sizeof data) & (store->bucket_count - 1)];
}

/* *out_doubt: no entry was found, but one that is known by its content was passed, and that of the key is not
 * known. */
static gt_packed_entry *find_key(const gt_packed_store *store, const packed_key *key, bool *out_doubt)
{
    gt_packed_entry *entry = store->bucket_count ? *bucket_of_form(store, &key->form) : NULL;
    *out_doubt = false;
    for (; entry; entry = entry->next_of_form) {
        if (memcmp(&entry->key.form, &key->form, sizeof key->form) != 0)
            continue;
        if (gt_identity_equal(&entry->key.constant, &key->constant))
            break;
        *out_doubt = *out_doubt || (entry->key.constant.has_content && !key->constant.has_content);
    }
    *out_doubt = *out_doubt && !entry;
    return entry;
}

static gt_packed_entry *find_data(const gt_packed_store *store, const gantry_host *host, const void *data)
{
    gt_packed_entry *entry = store->bucket_count ? *bucket_of_data(store, data) : NULL;
    while (entry && !(entry->packed.data == data && entry->key.form.host == host))
        entry = entry->next_of_data;
    return entry;
}

static void link_entry(gt_packed_store *store, gt_packed_entry *entry)
{
    gt_packed_entry **of_key = bucket_of_form(store, &entry->key.form);
    gt_packed_entry **of_data = bucket_of_data(store, entry->packed.data);
    entry->next_of_form = *of_key;
    entry->next_of_data = *of_data;
    *of_key = *of_data = entry;
    store->count++;
}

static void unlink_entry(gt_packed_store *store, gt_packed_entry *entry)
{
    gt_packed_entry **at = bucket_of_form(store, &entry->key.form);
    while (*at != entry)
        at = &(*at)->next_of_form;
    *at = entry->next_of_form;
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
    bigger.by_form = GT_NEW_ARRAY(allocator, gt_packed_entry *, bigger.bucket_count);
    bigger.by_data = GT_NEW_ARRAY(allocator, gt_packed_entry *, bigger.bucket_count);
    if (!bigger.by_form || !bigger.by_data) {
        gt_free(allocator, bigger.by_form);
        gt_free(allocator, bigger.by_data);
        return false;
    }
    for (uint32_t k = 0; k < store->bucket_count; k++)
        for (gt_packed_entry *entry = store->by_form[k], *next; entry; entry = next) {
            next = entry->next_of_form;
            link_entry(&bigger, entry);
        }
    gt_free(allocator, store->by_form);
    gt_free(allocator, store->by_data);
    store->by_form = bigger.by_form;
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

static gantry_status make_key(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                              uint64_t form, packed_key *out_key, gantry_error *err)
{
    const gt_model *model = (gt_model *)constants;
    GT_TRY(gt_identity_make(host, constants, constant_id, &out_key->constant, err));
    out_key->form = (packed_form){form, model->constants.data[constant_id].bytes, host};
    return GANTRY_OK;
}

/* One user more of what is there, or NULL. */
static gt_packed_entry *use_key(gt_packed_store *store, const packed_key *key, gantry_packed *out_packed,
                                bool *out_doubt)
{
    pthread_mutex_lock(&store->lock);
    gt_packed_entry *entry = find_key(store, key, out_doubt);
    if (entry) {
        entry->users++;
        give(&entry->packed, out_packed);
    }
    pthread_mutex_unlock(&store->lock);
    return entry;
}

gantry_status gt_host_packed_get(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                 uint64_t form, gantry_packed *out_packed)
{
    gt_packed_store *store = &gt_host_runtime(host)->packed;
    packed_key key;
    bool doubt;
    if (!out_packed || out_packed->struct_bytes < sizeof *out_packed)
        return GANTRY_INVALID_ARGUMENT;
    GT_TRY(make_key(host, constants, constant_id, form, &key, NULL));
    if (use_key(store, &key, out_packed, &doubt))
        return GANTRY_OK;
    if (!doubt)
        return GANTRY_DATA;
    GT_TRY(gt_identity_add_content(host, constants, constant_id, &key.constant, NULL));
    return use_key(store, &key, out_packed, &doubt) ? GANTRY_OK : GANTRY_DATA;
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
    gt_packed_entry *same_data = find_data(store, (*inout_fresh)->key.form.host, packed->data);
    bool doubt; /* costs a second copy at most: get settles it before */
    *out_used = find_key(store, &(*inout_fresh)->key, &doubt);
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
        for (gt_packed_entry *entry = store->by_form[k], *next; entry; entry = next) {
            next = entry->next_of_form;
            if (entry->key.form.host != host)
                continue;
            unlink_entry(store, entry);
            entry->next_of_form = left;
            left = entry;
        }
    pthread_mutex_unlock(&store->lock);
    for (gt_packed_entry *next; left; left = next) {
        next = left->next_of_form;
        release_entry(runtime, left);
    }
}

gt_packed_total gt_packed_count(gantry_runtime *runtime, const gantry_host *host)
{
    const gt_packed_store *store = &runtime->packed;
    gt_packed_total total = {0};
    pthread_mutex_lock(&runtime->packed.lock);
    for (uint32_t k = 0; k < store->bucket_count; k++)
        for (const gt_packed_entry *entry = store->by_form[k]; entry; entry = entry->next_of_form)
            if (entry->key.form.host == host) {
                total.forms++;
                total.users += entry->users;
                total.bytes += entry->packed.bytes;
            }
    pthread_mutex_unlock(&runtime->packed.lock);
    return total;
}
