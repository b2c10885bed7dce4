/* Constants as kernels read them, packed or copied: made once for all shapes of a program and, through the
 * host, for the programs of all sessions of a runtime.
 *
 *     chunk:  | chunk | head | packed weight | head | packed weight | ... free
 *
 * Weights lie side by side, so that huge pages are full. A chunk goes when the last of its weights is
 * released, which may be long after the program that made it. */
#include "program.h"

#include "base/map.h"

#include <sys/mman.h>

/* What a chunk begins with. users: its weights, and the program that still adds some; atomic. The rest is
 * that program's. */
struct cpu_pack_chunk {
    cpu_provider *provider;
    size_t bytes, used;
    size_t touched; /* no less than used where threads clear pages together */
    uint32_t users;
};

/* What stands in front of a packed weight. */
typedef struct pack_head {
    cpu_pack_chunk *chunk;
    size_t bytes; /* with the head */
} pack_head;

#define HEAD_BYTES ((size_t)64) /* of a chunk and of a weight, which is aligned to it */
#define PAGE_BYTES ((uintptr_t)4096)

/* Chunks double up to this size; what is not used of one is never touched. */
#define LAST_CHUNK_BYTES ((size_t)32 << 20)
#define TOUCH_BYTES ((size_t)4 << 20) /* two pages; more costs memory behind the last weight of a chunk */
#define FIRST_CHUNK_BYTES ((size_t)256 << 10)

/* ---- memory ---------------------------------------------------------------------------------- */

static cpu_pack_chunk *new_chunk(cpu_provider *provider, size_t bytes)
{
    cpu_pack_chunk *chunk = cpu_alloc(provider, bytes);
    if (chunk)
        *chunk = (cpu_pack_chunk){provider, bytes, HEAD_BYTES, HEAD_BYTES, 1};
    return chunk;
}

static void leave_chunk(cpu_pack_chunk *chunk)
{
    if (chunk && __atomic_sub_fetch(&chunk->users, 1, __ATOMIC_ACQ_REL) == 0)
        cpu_free(chunk->provider, chunk);
}

static pack_head *head_of(void *data)
{
    return (pack_head *)((char *)data - HEAD_BYTES);
}

/* The pages of a weight that is gone while others of its chunk are not. A hint: never wrong. */
static void give_pages_back(char *data, size_t bytes)
{
    uintptr_t begin = ((uintptr_t)data + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)data + bytes) & ~(PAGE_BYTES - 1);
    if (begin < end)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* gantry_packed.release. Any thread. */
static void release_pack(void *self, void *data)
{
    (void)self;
    const pack_head *head = head_of(data);
    cpu_pack_chunk *chunk = head->chunk;
    if (__atomic_load_n(&chunk->users, __ATOMIC_RELAXED) > 1)
        give_pages_back(data, head->bytes - HEAD_BYTES);
    leave_chunk(chunk);
}

/* Pages a little ahead of what is used are cleared by all threads: one weight fills too few of them. */
static void touch_chunk(const cpu_program *program, cpu_pack_chunk *chunk)
{
    if (chunk->bytes < TOUCH_BYTES || chunk->used <= chunk->touched)
        return;
    size_t end = (chunk->used + TOUCH_BYTES - 1) & ~(TOUCH_BYTES - 1);
    end = end < chunk->bytes ? end : chunk->bytes;
    cpu_touch_fresh(program->threads, (char *)chunk + chunk->touched, end - chunk->touched);
    chunk->touched = end;
}

/* The program's open chunk with that much room, or NULL. */
static cpu_pack_chunk *open_chunk(cpu_program *program, size_t bytes)
{
    cpu_pack_chunk *open = program->chunk;
    if (open && open->bytes - open->used >= bytes)
        return open;
    size_t size = open ? open->bytes * 2 : FIRST_CHUNK_BYTES;
    size = size < LAST_CHUNK_BYTES ? size : LAST_CHUNK_BYTES;
    size = size < bytes + HEAD_BYTES ? bytes + HEAD_BYTES : size;
    cpu_pack_chunk *chunk = new_chunk(program->provider, size);
    if (!chunk)
        return NULL;
    leave_chunk(open);
    return program->chunk = chunk;
}

static size_t bytes_with_head(size_t bytes)
{
    return HEAD_BYTES + ((bytes + HEAD_BYTES - 1) & ~(HEAD_BYTES - 1));
}

/* Memory for a weight, 64-byte aligned, or NULL; release_pack gives it back. */
static void *take_pack(cpu_program *program, size_t bytes, bool alone)
{
    size_t size = bytes_with_head(bytes ? bytes : 1);
    cpu_pack_chunk *chunk =
        alone ? new_chunk(program->provider, HEAD_BYTES + size) : open_chunk(program, size);
    if (!chunk)
        return NULL;
    pack_head *head = (pack_head *)((char *)chunk + chunk->used);
    chunk->used += size;
    if (!alone) {
        __atomic_fetch_add(&chunk->users, 1, __ATOMIC_RELAXED);
        touch_chunk(program, chunk);
    }
    *head = (pack_head){chunk, size};
    return (char *)head + HEAD_BYTES;
}

/* The weight that was taken last is gone again. */
static void untake_pack(cpu_program *program, size_t bytes, bool alone)
{
    if (!alone)
        program->chunk->used -= bytes_with_head(bytes ? bytes : 1);
}

/* ---- sharing --------------------------------------------------------------------------------- */

/* Smaller constants cost more to find than to hold twice. */
#define SHARED_BYTES 4096u

/* What the host knows a packed form by. */
typedef struct shared_name {
    const gantry_host *host;
    gantry_constants *constants;
    uint32_t constant_id;
    uint64_t form;
} shared_name;

/* All that a packed form depends on but the bytes of its constant, and what is the same in a whole process.
 */
static uint64_t form_of(const cpu_pack_job *job, uint64_t derivation)
{
    struct {
        uint64_t layout_key, derivation, bytes, dtype, rank;
        int64_t dims[GANTRY_MAX_RANK];
    } form = {job->layout_key, derivation, job->bytes, (uint64_t)job->weight->dtype, job->weight->rank, {0}};
    memcpy(form.dims, job->weight->dims, job->weight->rank * sizeof *form.dims);
    return XXH3_64bits(&form, sizeof form);
}

/* False: the form is the program's alone. */
static bool name_shared(const cpu_program *program, gantry_constants *constants, const cpu_pack_job *job,
                        shared_name *out_name)
{
    const gantry_host *host = program->provider->host;
    if (!constants || cpu_tensor_bytes(job->weight) < SHARED_BYTES ||
        !GANTRY_HAS(gantry_host, host, packed_get) || !GANTRY_HAS(gantry_host, host, packed_put) ||
        !GANTRY_HAS(gantry_host, host, packed_release))
        return false;
    uint32_t id = job->weight->constant_id;
    const cpu_derived *derived = id & CPU_DERIVED_ID ? program->derived[id & ~CPU_DERIVED_ID] : NULL;
    *out_name = (shared_name){host, constants, derived ? derived->constant_id : id,
                              form_of(job, derived ? derived->form : 0)};
    return true;
}

/* Hands a fresh one over; another program's may have come first. What cannot be shared stays the program's.
 */
static void offer(cpu_program *program, const shared_name *name, const cpu_pack_job *job, cpu_held_pack *held)
{
    gantry_packed used = {.struct_bytes = sizeof used};
    const void *own = held->packed.data;
    if (name->host->packed_put(name->host, name->constants, name->constant_id, name->form, &held->packed,
                               &used, NULL) != GANTRY_OK)
        return;
    if (used.data != own)
        untake_pack(program, job->bytes, job->alone);
    *held = (cpu_held_pack){used, true};
}

static gantry_status make_pack(cpu_program *program, const cpu_pack_job *job, cpu_held_pack *out_held)
{
    void *data = take_pack(program, job->bytes, job->alone);
    if (!data)
        return GANTRY_RESOURCE;
    out_held->packed = (gantry_packed){sizeof out_held->packed, data, job->bytes, release_pack, NULL};
    gantry_status status = job->fill(job->arg, data);
    if (status != GANTRY_OK) {
        release_pack(NULL, data);
        untake_pack(program, job->bytes, job->alone);
    }
    return status;
}

gantry_status cpu_program_hold(cpu_program *program, gantry_constants *constants, const cpu_pack_job *job,
                               const void **out_data)
{
    cpu_held_pack held = {.packed = {.struct_bytes = sizeof held.packed}};
    shared_name name;
    *out_data = NULL;
    if (!gt_vec_reserve(&program->provider->allocator, &program->held, program->held.count + 1))
        return GANTRY_RESOURCE;
    bool shared = name_shared(program, constants, job, &name);
    held.shared = shared && name.host->packed_get(name.host, constants, name.constant_id, name.form,
                                                  &held.packed) == GANTRY_OK;
    if (!held.shared)
        GT_TRY(make_pack(program, job, &held));
    if (!held.shared && shared)
        offer(program, &name, job, &held);
    program->held.data[program->held.count++] = held;
    cpu_hold_weights(program, job->bytes, held.shared);
    *out_data = held.packed.data;
    return GANTRY_OK;
}

void cpu_program_release(cpu_program *program)
{
    const gantry_host *host = program->provider->host;
    for (uint32_t k = 0; k < program->held.count; k++) {
        const cpu_held_pack *held = &program->held.data[k];
        if (held->shared)
            host->packed_release(host, &held->packed);
        else
            release_pack(NULL, held->packed.data);
    }
    leave_chunk(program->chunk);
    gt_vec_free(&program->provider->allocator, &program->held);
    gt_vec_free(&program->provider->allocator, &program->packs);
}

/* ---- copies ---------------------------------------------------------------------------------- */

#define COPY_LAYOUT_KEY 0x434f5059u /* "COPY" */

typedef struct copy_job {
    int threads;
    const void *from;
    size_t bytes;
} copy_job;

static gantry_status fill_copy(void *arg, void *packed)
{
    const copy_job *job = arg;
    cpu_copy_fresh(job->threads, packed, job->from, job->bytes);
    return GANTRY_OK;
}

gantry_status cpu_program_copy(cpu_program *program, gantry_constants *constants, const cpu_tensor *tensor,
                               const void **out_data)
{
    size_t bytes = cpu_tensor_bytes(tensor);
    copy_job copy = {program->threads, tensor->data, bytes};
    cpu_pack_job job = {tensor, COPY_LAYOUT_KEY, bytes, fill_copy, &copy, true};
    return cpu_program_hold(program, constants, &job, out_data);
}

/* ---- weights of kernels ---------------------------------------------------------------------- */

/* The caller holds program->lock (reshape does, through all of it). */
static gantry_status program_pack(cpu_build *build, const cpu_pack_job *job, const void **out_data)
{
    cpu_program *program = build->program;
    for (uint32_t k = 0; k < program->packs.count; k++) {
        const cpu_pack_entry *entry = &program->packs.data[k];
        if (entry->constant_id == job->weight->constant_id && entry->layout_key == job->layout_key) {
            *out_data = entry->data;
            return GANTRY_OK;
        }
    }
    if (!gt_vec_reserve(&build->provider->allocator, &program->packs, program->packs.count + 1))
        return GANTRY_RESOURCE;
    GT_TRY(cpu_program_hold(program, build->constants, job, out_data));
    program->packs.data[program->packs.count++] =
        (cpu_pack_entry){job->weight->constant_id, job->layout_key, *out_data};
    return GANTRY_OK;
}

/* For a node that is evaluated alone, or a weight that is none of the model's. */
static gantry_status arena_pack(cpu_build *build, const cpu_pack_job *job, const void **out_data)
{
    char *memory = cpu_state(build, job->bytes + HEAD_BYTES);
    if (!memory)
        return GANTRY_RESOURCE;
    memory += (HEAD_BYTES - (uintptr_t)memory % HEAD_BYTES) % HEAD_BYTES;
    *out_data = memory;
    return job->fill(job->arg, memory);
}

const void *cpu_pack(cpu_build *build, const cpu_tensor *weight, uint64_t layout_key, size_t bytes,
                     gantry_status (*fill)(void *arg, void *packed), void *arg)
{
    const cpu_pack_job job = {weight, layout_key, bytes, fill, arg, false};
    const void *data = NULL;
    bool kept = build->program && weight->constant_id != GANTRY_NO_ID;
    gantry_status status = kept ? program_pack(build, &job, &data) : arena_pack(build, &job, &data);
    if (status == GANTRY_OK)
        return data;
    if (status == GANTRY_RESOURCE)
        gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
    else
        gt_fail(build->err, status, GANTRY_STAGE_COMPILE, build->node->name,
                "packing a weight of %s (node '%s') failed", build->node->op, build->node->name);
    return NULL;
}
