/* Compiling a partition: nodes become groups; constants are fetched later, when a shape's kernels are made,
 * and kept either packed or as a copy, never as a pointer into the model file. */
#include "program.h"

static gantry_status check_formats(const gantry_format *formats, uint32_t count, gantry_error *err)
{
    for (uint32_t k = 0; formats && k < count; k++)
        if (formats[k].tag != 0)
            return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE, NULL,
                           "the CPU provider takes default formats only, edge %u asks for tag %u", k,
                           formats[k].tag);
    return GANTRY_OK;
}

static gantry_status compile(cpu_program *program, const gantry_compile_args *args, gantry_error *err)
{
    GT_TRY(check_formats(args->input_formats, args->graph->input_count, err));
    GT_TRY(check_formats(args->output_formats, args->graph->output_count, err));
    program->owned = GT_ARENA_ARRAY(&program->arena, void *, args->graph->value_count);
    program->carried = GT_ARENA_ARRAY(&program->arena, uint8_t, args->graph->value_count);
    program->derived = GT_ARENA_ARRAY(&program->arena, uint8_t, args->graph->value_count);
    if (!program->owned || !program->carried || !program->derived)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    return cpu_program_group(program, args, err);
}

gantry_status cpu_program_compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                                  gantry_error *err)
{
    cpu_provider *provider = self;
    *out_program = NULL;
    cpu_program *program = GT_NEW(&provider->allocator, cpu_program);
    if (!program)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    program->provider = provider;
    program->graph = args->graph;
    program->threads = args->threads > 0 ? args->threads : 1;
    program->exact = args->exact != 0;
    const char *limit = provider->host->option(provider->host, args->session_options, "memory_limit");
    program->memory_limit = limit ? strtoull(limit, NULL, 10) : 0;
    gt_arena_init(&program->arena, &provider->allocator);
    pthread_mutex_init(&program->lock, NULL);
    gantry_status status = compile(program, args, err);
    program->compiled_bytes = program->arena.total_bytes;
    __atomic_fetch_add(&provider->held[CPU_HELD_PROGRAMS], program->compiled_bytes, __ATOMIC_RELAXED);
    *out_program = (gantry_program *)program;
    if (status != GANTRY_OK) {
        cpu_program_destroy(self, *out_program);
        *out_program = NULL;
    }
    return status;
}

void cpu_program_destroy(void *self, gantry_program *handle)
{
    cpu_provider *provider = self;
    cpu_program *program = (cpu_program *)handle;
    if (!program)
        return;
    __atomic_fetch_sub(&provider->held[CPU_HELD_PROGRAMS], program->compiled_bytes, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&provider->held[CPU_HELD_WEIGHTS], program->held_bytes, __ATOMIC_RELAXED);
    for (uint32_t k = 0; program->owned && k < program->graph->value_count; k++)
        cpu_free(provider, program->owned[k]);
    for (uint32_t k = 0; k < program->chunks.count; k++)
        cpu_free(provider, program->chunks.data[k].memory);
    gt_vec_free(&provider->allocator, &program->chunks);
    gt_vec_free(&provider->allocator, &program->packs);
    gt_arena_clear(&program->arena);
    pthread_mutex_destroy(&program->lock);
    gt_free(&provider->allocator, program);
}

uint64_t cpu_program_memory(void *self, const gantry_program *handle)
{
    const cpu_program *program = (const cpu_program *)handle;
    cpu_program *locked = (cpu_program *)handle;
    pthread_mutex_lock(&locked->lock);
    uint64_t bytes = program->held_bytes + program->arena.total_bytes +
                     __atomic_load_n(&locked->shaped_bytes, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&locked->lock);
    return bytes;
}

/* Chunks double up to this size; what is not used of one is never touched. */
#define LAST_CHUNK_BYTES ((size_t)32 << 20)
#define TOUCH_BYTES ((size_t)4 << 20) /* two pages; more costs memory behind the last weight of a chunk */
#define FIRST_CHUNK_BYTES ((size_t)256 << 10)

static cpu_pack_chunk *last_chunk(const cpu_program *program)
{
    return &program->chunks.data[program->chunks.count - 1];
}

static bool add_chunk(cpu_program *program, size_t bytes)
{
    size_t size = program->chunks.count ? last_chunk(program)->bytes * 2 : FIRST_CHUNK_BYTES;
    size = size < LAST_CHUNK_BYTES ? size : LAST_CHUNK_BYTES;
    size = size < bytes ? bytes : size;
    cpu_pack_chunk chunk = {cpu_alloc(program->provider, size), size, 0, 0};
    if (chunk.memory && gt_vec_push(&program->provider->allocator, &program->chunks, chunk))
        return true;
    cpu_free(program->provider, chunk.memory);
    return false;
}

/* Pages a little ahead of what is used are cleared by all threads: one weight fills too few of them. */
static void touch_chunk(const cpu_program *program, cpu_pack_chunk *chunk)
{
    if (chunk->bytes < TOUCH_BYTES || chunk->used <= chunk->touched)
        return;
    size_t end = (chunk->used + TOUCH_BYTES - 1) & ~(TOUCH_BYTES - 1);
    end = end < chunk->bytes ? end : chunk->bytes;
    cpu_touch_fresh(program->threads, chunk->memory + chunk->touched, end - chunk->touched);
    chunk->touched = end;
}

/* 64-byte aligned memory that lives as long as the program, or NULL. */
static void *take_pack(cpu_program *program, size_t bytes)
{
    bytes = (bytes + 63) & ~(size_t)63;
    bool fits = program->chunks.count && last_chunk(program)->bytes - last_chunk(program)->used >= bytes;
    if (!fits && !add_chunk(program, bytes))
        return NULL;
    cpu_pack_chunk *last = last_chunk(program);
    void *memory = last->memory + last->used;
    last->used += bytes;
    touch_chunk(program, last);
    return memory;
}

/* The caller holds program->lock (reshape does, through all of it). */
static const void *program_pack(cpu_build *build, const cpu_tensor *weight, uint64_t layout_key, size_t bytes,
                                gantry_status (*fill)(void *arg, void *packed), void *arg)
{
    cpu_program *program = build->program;
    for (uint32_t k = 0; k < program->packs.count; k++) {
        const cpu_pack_entry *entry = &program->packs.data[k];
        if (entry->constant_id == weight->constant_id && entry->layout_key == layout_key)
            return entry->data;
    }
    cpu_pack_entry entry = {weight->constant_id, layout_key, take_pack(program, bytes), bytes};
    if (!entry.data ||
        !gt_vec_reserve(&build->provider->allocator, &program->packs, program->packs.count + 1)) {
        gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
        return NULL;
    }
    gantry_status status = fill(arg, entry.data);
    if (status != GANTRY_OK) {
        gt_fail(build->err, status, GANTRY_STAGE_COMPILE, build->node->name,
                "packing a weight of %s (node '%s') failed", build->node->op, build->node->name);
        return NULL;
    }
    program->packs.data[program->packs.count++] = entry;
    cpu_hold_weights(program, bytes);
    return entry.data;
}

const void *cpu_pack(cpu_build *build, const cpu_tensor *weight, uint64_t layout_key, size_t bytes,
                     gantry_status (*fill)(void *arg, void *packed), void *arg)
{
    if (build->program && weight->constant_id != GANTRY_NO_ID)
        return program_pack(build, weight, layout_key, bytes, fill, arg);
    char *memory = cpu_state(build, bytes + 64);
    if (!memory) {
        gt_out_of_memory(build->err, GANTRY_STAGE_COMPILE);
        return NULL;
    }
    memory += (64 - (uintptr_t)memory % 64) % 64;
    if (fill(arg, memory) == GANTRY_OK)
        return memory;
    gt_fail(build->err, GANTRY_PROVIDER, GANTRY_STAGE_COMPILE, build->node->name,
            "packing a weight of %s (node '%s') failed", build->node->op, build->node->name);
    return NULL;
}
