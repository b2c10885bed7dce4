/* The kit's own host table: memory with guards that counts, constants at odd addresses that are gone after
 * the call, records that are checked. It is no copy of the runtime's: what a plugin needs is what the header
 * says. */
#include "kit.h"

#include <stdlib.h>
#include <time.h>

/* ---- memory ---------------------------------------------------------------------------------- */

#define BLOCK_MAGIC UINT64_C(0x6b69742d626c6f63)
#define GUARD_BYTES 16

typedef struct block {
    uint64_t magic;
    size_t bytes;
    void *raw;
} block;

static kit_host *kit_of(const gantry_host *host)
{
    return host->self;
}

static void problem(kit_host *own, const char *format, ...) GANTRY_PRINTF(2, 3);
static void problem(kit_host *own, const char *format, ...)
{
    va_list args;
    pthread_mutex_lock(&own->lock);
    va_start(args, format);
    if (!*own->problem)
        vsnprintf(own->problem, sizeof own->problem, format, args);
    va_end(args);
    pthread_mutex_unlock(&own->lock);
}

void kit_host_take_problem(kit_host *host, char *out_text, size_t capacity)
{
    pthread_mutex_lock(&host->lock);
    snprintf(out_text, capacity, "%s", host->problem);
    *host->problem = 0;
    pthread_mutex_unlock(&host->lock);
}

void kit_host_fail_at(kit_host *host, int64_t number)
{
    atomic_store(&host->fail_at, number);
}

static void *host_alloc(const gantry_host *host, size_t bytes, size_t alignment)
{
    kit_host *own = kit_of(host);
    atomic_fetch_add(&own->allocations, 1);
    if (atomic_load(&own->fail_at) > 0 && atomic_fetch_sub(&own->fail_at, 1) == 1)
        return NULL;
    alignment = alignment < 16 ? 16 : alignment;
    if ((alignment & (alignment - 1)) != 0) {
        problem(own, "host->alloc was asked for an alignment of %zu, which is no power of two", alignment);
        return NULL;
    }
    if (bytes > SIZE_MAX / 2 || alignment > SIZE_MAX / 4)
        return NULL;
    char *raw = malloc(bytes + alignment + sizeof(block) + GUARD_BYTES);
    if (!raw)
        return NULL;
    uintptr_t at = ((uintptr_t)raw + sizeof(block) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    block *head = (block *)at - 1;
    *head = (block){BLOCK_MAGIC, bytes, raw};
    memset((void *)at, 0xbe, bytes); /* nobody promised zeros */
    memset((char *)at + bytes, 0xa5, GUARD_BYTES);
    atomic_fetch_add(&own->live_blocks, 1);
    atomic_fetch_add(&own->live_bytes, bytes);
    return (void *)at;
}

static void host_free(const gantry_host *host, void *memory)
{
    kit_host *own = kit_of(host);
    if (!memory)
        return;
    block *head = (block *)memory - 1;
    if (head->magic != BLOCK_MAGIC) {
        problem(own, "host->free got an address that host->alloc did not give, or that was freed before");
        return;
    }
    const unsigned char *guard = (unsigned char *)memory + head->bytes;
    for (size_t k = 0; k < GUARD_BYTES; k++)
        if (guard[k] != 0xa5) {
            problem(own, "the plugin wrote past the end of a block of %zu bytes from host->alloc",
                    head->bytes);
            break;
        }
    atomic_fetch_sub(&own->live_blocks, 1);
    atomic_fetch_sub(&own->live_bytes, head->bytes);
    head->magic = 0;
    void *raw = head->raw;
    memset(memory, 0xdd, head->bytes);
    free(raw);
}

static uint64_t host_now_ns(const gantry_host *host)
{
    struct timespec t;
    (void)host;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void host_log(const gantry_host *host, int level, const char *text)
{
    (void)text;
    if (level < 0 || level > 3)
        problem(kit_of(host), "host->log got the level %d; there are 0 to 3", level);
    atomic_fetch_add(&kit_of(host)->logged, 1);
}

/* ---- threads --------------------------------------------------------------------------------- */

typedef struct team {
    gantry_parallel_fn fn;
    void *arg;
    int64_t count, chunk;
    atomic_int_least64_t next;
    atomic_int thread;
} team;

static void *work(void *arg)
{
    team *t = arg;
    int thread = atomic_fetch_add(&t->thread, 1);
    for (;;) {
        int64_t begin = atomic_fetch_add(&t->next, t->chunk);
        if (begin >= t->count)
            return NULL;
        t->fn(t->arg, begin, t->count - begin < t->chunk ? t->count : begin + t->chunk, thread);
    }
}

static void host_parallel_for(const gantry_host *host, int threads, int64_t count, int64_t chunk,
                              gantry_parallel_fn fn, void *arg)
{
    pthread_t others[3];
    int started = 0;
    team t = {.fn = fn, .arg = arg, .count = count, .chunk = chunk > 0 ? chunk : 1};
    (void)host;
    if (count <= 0)
        return;
    for (int k = 1; k < threads && k < 4 && k < (count - 1) / t.chunk + 1; k++)
        started += pthread_create(&others[started], NULL, work, &t) == 0;
    work(&t);
    for (int k = 0; k < started; k++)
        pthread_join(others[k], NULL);
}

/* ---- constants: at an odd address, until the call is over ------------------------------------ */

static gantry_status fail(gantry_error *err, gantry_status status, const char *text)
{
    if (err && err->struct_bytes >= sizeof *err) {
        err->code = status;
        snprintf(err->message, sizeof err->message, "%s", text);
    }
    return status;
}

/* The constant's bytes, or NULL with the failure in *out_status. */
static const kit_array *find_constant(kit_host *own, const gantry_constants *constants, uint32_t id,
                                      gantry_status *out_status, gantry_error *err)
{
    atomic_fetch_add(&own->mapped, 1);
    if (!constants || !constants->model || id >= constants->model->operand_count ||
        !constants->model->constants[id].data) {
        problem(own, "constant %u was asked for, which the graph does not have, or with no constants at hand",
                id);
        *out_status = fail(err, GANTRY_INVALID_ARGUMENT, "there is no such constant");
        return NULL;
    }
    if (atomic_load(&own->constants_broken)) {
        *out_status = fail(err, GANTRY_DATA, "the kit pretends that the model file has changed");
        return NULL;
    }
    *out_status = GANTRY_OK;
    return &constants->model->constants[id];
}

static gantry_status host_constant_map(const gantry_host *host, gantry_constants *constants,
                                       uint32_t constant_id, const void **out_data, size_t *out_bytes,
                                       gantry_error *err)
{
    kit_host *own = kit_of(host);
    gantry_status status;
    *out_data = NULL;
    *out_bytes = 0;
    const kit_array *array = find_constant(own, constants, constant_id, &status, err);
    if (!array)
        return status;
    kit_mapping *mapping = calloc(1, sizeof *mapping);
    char *data = mapping ? malloc(array->bytes + 1) : NULL;
    if (!data) {
        free(mapping);
        return fail(err, GANTRY_RESOURCE, "out of memory");
    }
    memcpy(data + 1, array->data, array->bytes);
    *mapping =
        (kit_mapping){.block = data, .shown = data + 1, .bytes = array->bytes, .constant = constant_id};
    pthread_mutex_lock(&own->lock);
    mapping->next = constants->mappings;
    constants->mappings = mapping;
    pthread_mutex_unlock(&own->lock);
    *out_data = mapping->shown;
    *out_bytes = array->bytes;
    return GANTRY_OK;
}

/* The bytes stay allocated and become nonsense, so that a late reader computes nonsense and does not crash.
 */
static void host_constant_unmap(const gantry_host *host, gantry_constants *constants, uint32_t constant_id)
{
    kit_host *own = kit_of(host);
    kit_mapping *mapping;
    if (!constants)
        return;
    pthread_mutex_lock(&own->lock);
    for (mapping = constants->mappings; mapping; mapping = mapping->next)
        if (mapping->constant == constant_id && mapping->shown) {
            memset(mapping->shown, 0xff, mapping->bytes);
            mapping->shown = NULL;
            break;
        }
    pthread_mutex_unlock(&own->lock);
    if (!mapping)
        problem(own, "constant %u was unmapped more often than mapped", constant_id);
}

void kit_constants_end(gantry_constants *constants)
{
    while (constants->mappings) {
        kit_mapping *mapping = constants->mappings;
        constants->mappings = mapping->next;
        memset(mapping->block, 0xff, mapping->bytes + 1);
        free(mapping->block);
        free(mapping);
    }
}

static gantry_status host_constant_read(const gantry_host *host, gantry_constants *constants,
                                        uint32_t constant_id, size_t offset, size_t bytes, void *target,
                                        gantry_error *err)
{
    gantry_status status;
    const kit_array *array = find_constant(kit_of(host), constants, constant_id, &status, err);
    if (!array)
        return status;
    if (offset > array->bytes || bytes > array->bytes - offset)
        return fail(err, GANTRY_INVALID_ARGUMENT, "the range is past the end of the constant");
    memcpy(target, (const char *)array->data + offset, bytes);
    return GANTRY_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

static void check_ids(gantry_recorder *recorder, const char *call, uint32_t count, const uint32_t *ids)
{
    for (uint32_t k = 0; ids && k < count; k++) {
        bool known = false;
        for (uint32_t n = 0; n < recorder->graph->node_count; n++)
            known |= recorder->graph->nodes[n]->id == ids[k];
        if (!known)
            problem(recorder->host, "%s names node %u; the ids are those of the graph's node views", call,
                    ids[k]);
    }
}

/* A recorder is gone with the call that it was handed to: what a real host has there then is anything. */
static bool is_late(const gantry_recorder *recorder, const char *call)
{
    if (recorder->over)
        problem(recorder->host, "%s was called when the call that the recorder was handed to was over", call);
    return recorder->over;
}

/* Two programs that record the same have the same digest. Texts and numbers, mixed one after the other. */
static void digest_number(gantry_recorder *recorder, uint64_t number)
{
    recorder->digest = (recorder->digest ^ number) * UINT64_C(0x9e3779b97f4a7c15);
    recorder->digest ^= recorder->digest >> 29;
}

static void digest_text(gantry_recorder *recorder, const char *text)
{
    for (const char *c = text ? text : ""; *c; c++)
        digest_number(recorder, (unsigned char)*c);
    digest_number(recorder, 256);
}

/* By index: the same node has another id in another session. */
static void digest_nodes(gantry_recorder *recorder, uint32_t count, const uint32_t *ids)
{
    digest_number(recorder, count);
    for (uint32_t n = 0; ids && n < count; n++)
        for (uint32_t k = 0; recorder->graph && k < recorder->graph->node_count; k++)
            if (recorder->graph->nodes[k]->id == ids[n])
                digest_number(recorder, k);
}

static void digest_kernel(gantry_recorder *recorder, const gantry_kernel_record *record)
{
    if (record->struct_bytes < sizeof *record)
        return;
    digest_number(recorder, record->index);
    digest_text(recorder, record->op);
    digest_text(recorder, record->name);
    digest_text(recorder, record->isa);
    digest_text(recorder, record->layout);
    digest_nodes(recorder, record->node_count, record->node_ids);
    digest_number(recorder, (uint64_t)record->precision_in << 32 | (uint64_t)record->precision_out << 16 |
                                (uint64_t)record->accumulate);
}

static void digest_fusion(gantry_recorder *recorder, const gantry_fusion_record *record)
{
    if (record->struct_bytes < sizeof *record)
        return;
    digest_text(recorder, record->rule);
    digest_nodes(recorder, record->node_count, record->node_ids);
    digest_number(recorder, record->applied != 0);
    digest_text(recorder, record->guard);
}

static void record_kernel(gantry_recorder *recorder, const gantry_kernel_record *record)
{
    if (!recorder || !record || is_late(recorder, "record_kernel"))
        return;
    if (record->struct_bytes < sizeof(size_t) + sizeof(uint32_t))
        problem(recorder->host, "record_kernel got a record whose struct_bytes is %zu", record->struct_bytes);
    else if (!record->name || !record->op)
        problem(recorder->host, "record_kernel got a record without name or op");
    else
        check_ids(recorder, "record_kernel", record->node_count, record->node_ids);
    digest_kernel(recorder, record);
    recorder->kernel_count++;
    if (record->index > recorder->index_max || recorder->kernel_count == 1)
        recorder->index_max = record->index;
}

static void record_fusion(gantry_recorder *recorder, const gantry_fusion_record *record)
{
    if (!recorder || !record || is_late(recorder, "record_fusion"))
        return;
    if (record->struct_bytes == 0 || !record->rule)
        problem(recorder->host, "record_fusion got a record without size or rule");
    else
        check_ids(recorder, "record_fusion", record->node_count, record->node_ids);
    digest_fusion(recorder, record);
}

static void record_phase(gantry_recorder *recorder, const gantry_phase_record *record)
{
    if (!recorder || !record || is_late(recorder, "record_phase"))
        return;
    if (record->struct_bytes == 0 || !record->name)
        problem(recorder->host, "record_phase got a record without size or name");
}

/* ---- packed constants and cached files: of this child only ----------------------------------- */

struct kit_packed_row {
    const kit_model *model;
    uint32_t constant;
    uint64_t form;
    uint32_t users;
    gantry_packed packed;
    kit_packed_row *next;
};

static kit_packed_row *find_packed(kit_host *own, const kit_model *model, uint32_t constant, uint64_t form)
{
    for (kit_packed_row *row = own->packed; row; row = row->next)
        if (row->model == model && row->constant == constant && row->form == form)
            return row;
    return NULL;
}

static gantry_status host_packed_get(const gantry_host *host, gantry_constants *constants,
                                     uint32_t constant_id, uint64_t form, gantry_packed *out_packed)
{
    kit_host *own = kit_of(host);
    pthread_mutex_lock(&own->lock);
    kit_packed_row *row = find_packed(own, constants ? constants->model : NULL, constant_id, form);
    if (row) {
        row->users++;
        *out_packed = row->packed;
    }
    pthread_mutex_unlock(&own->lock);
    return row ? GANTRY_OK : GANTRY_DATA;
}

static gantry_status host_packed_put(const gantry_host *host, gantry_constants *constants,
                                     uint32_t constant_id, uint64_t form, const gantry_packed *packed,
                                     gantry_packed *out_packed, gantry_error *err)
{
    kit_host *own = kit_of(host);
    if (!packed->release) {
        problem(own, "packed_put got a packed constant without a release");
        return fail(err, GANTRY_INVALID_ARGUMENT, "a packed constant without a release");
    }
    kit_packed_row *made = calloc(1, sizeof *made);
    if (!made)
        return fail(err, GANTRY_RESOURCE, "out of memory");
    *made = (kit_packed_row){.model = constants ? constants->model : NULL,
                             .constant = constant_id,
                             .form = form,
                             .packed = *packed};
    pthread_mutex_lock(&own->lock);
    kit_packed_row *row = find_packed(own, made->model, constant_id, form);
    if (!row) {
        made->next = own->packed;
        own->packed = row = made;
    }
    row->users++;
    *out_packed = row->packed;
    pthread_mutex_unlock(&own->lock);
    if (row != made) {
        free(made);
        packed->release(packed->self, packed->data);
    }
    return GANTRY_OK;
}

static void host_packed_release(const gantry_host *host, const gantry_packed *packed)
{
    kit_host *own = kit_of(host);
    kit_packed_row *gone = NULL;
    bool known = false;
    pthread_mutex_lock(&own->lock);
    for (kit_packed_row **at = &own->packed; *at && !known; at = &(*at)->next) {
        if ((*at)->packed.data != packed->data)
            continue;
        known = true;
        if (--(*at)->users == 0) {
            gone = *at;
            *at = gone->next;
            break;
        }
    }
    pthread_mutex_unlock(&own->lock);
    if (!known)
        problem(own, "packed_release got a packed constant that has no users left");
    if (gone)
        gone->packed.release(gone->packed.self, gone->packed.data);
    free(gone);
}

struct kit_cache_row {
    char *key;
    void *data;
    size_t bytes;
    kit_cache_row *next;
};

static gantry_status host_cache_get(const gantry_host *host, const char *key, void **out_data,
                                    size_t *out_bytes, gantry_error *err)
{
    kit_host *own = kit_of(host);
    const kit_cache_row *row;
    *out_data = NULL;
    *out_bytes = 0;
    pthread_mutex_lock(&own->lock);
    for (row = own->cache; row && strcmp(row->key, key) != 0;)
        row = row->next;
    pthread_mutex_unlock(&own->lock);
    if (!row)
        return fail(err, GANTRY_DATA, "nothing is cached under this key");
    *out_data = host_alloc(host, row->bytes, 16);
    if (!*out_data)
        return fail(err, GANTRY_RESOURCE, "out of memory");
    memcpy(*out_data, row->data, row->bytes);
    *out_bytes = row->bytes;
    return GANTRY_OK;
}

static void host_cache_put(const gantry_host *host, const char *key, const void *data, size_t bytes)
{
    kit_host *own = kit_of(host);
    kit_cache_row *row = calloc(1, sizeof *row);
    char *kept = row ? strdup(key) : NULL;
    void *copy = kept ? malloc(bytes ? bytes : 1) : NULL;
    if (!copy) {
        free(kept);
        free(row);
        return;
    }
    memcpy(copy, data, bytes);
    *row = (kit_cache_row){.key = kept, .data = copy, .bytes = bytes};
    pthread_mutex_lock(&own->lock);
    row->next = own->cache;
    own->cache = row;
    pthread_mutex_unlock(&own->lock);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Nothing shares bytes: the worst plan is a legal one. */
static gantry_status host_plan_memory(const gantry_host *host, uint32_t count, const size_t *bytes,
                                      const uint32_t *first, const uint32_t *last, size_t *out_offsets,
                                      size_t *out_total, gantry_error *err)
{
    size_t total = 0;
    for (uint32_t k = 0; k < count; k++) {
        if (first[k] > last[k])
            problem(kit_of(host), "plan_memory: interval %u begins at %u and ends at %u", k, first[k],
                    last[k]);
        if (bytes[k] > SIZE_MAX / 2 - total)
            return fail(err, GANTRY_RESOURCE, "the arena is too large");
        out_offsets[k] = total;
        total += (bytes[k] + 63) / 64 * 64;
    }
    *out_total = total;
    return GANTRY_OK;
}

static const char *host_option(const gantry_host *host, const void *session_options, const char *key)
{
    (void)host;
    (void)session_options;
    (void)key;
    return NULL;
}

void kit_host_init(kit_host *host, const char *config, kit_cpu *cpu)
{
    *host = (kit_host){.cpu = cpu, .shown = &host->table, .plugin_bytes = sizeof(gantry_plugin)};
    pthread_mutex_init(&host->lock, NULL);
    host->table = (gantry_host){.struct_bytes = sizeof host->table,
                                .abi = GANTRY_PROVIDER_ABI,
                                .self = host,
                                .config = config,
                                .log = host_log,
                                .alloc = host_alloc,
                                .free = host_free,
                                .now_ns = host_now_ns,
                                .parallel_for = host_parallel_for,
                                .constant_map = host_constant_map,
                                .constant_unmap = host_constant_unmap,
                                .record_kernel = record_kernel,
                                .record_fusion = record_fusion,
                                .plan_memory = host_plan_memory,
                                .evaluate = kit_host_evaluate,
                                .option = host_option,
                                .constant_read = host_constant_read,
                                .packed_get = host_packed_get,
                                .packed_put = host_packed_put,
                                .packed_release = host_packed_release,
                                .cache_get = host_cache_get,
                                .cache_put = host_cache_put,
                                .record_phase = record_phase};
}

void kit_host_free(kit_host *host)
{
    while (host->cache) {
        kit_cache_row *row = host->cache;
        host->cache = row->next;
        free(row->key);
        free(row->data);
        free(row);
    }
    pthread_mutex_destroy(&host->lock);
}
