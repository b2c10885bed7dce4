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
    program->owned = GT_ARENA_ARRAY(&program->arena, const void *, args->graph->value_count);
    program->carried = GT_ARENA_ARRAY(&program->arena, uint8_t, args->graph->value_count);
    program->derived = GT_ARENA_ARRAY(&program->arena, const cpu_derived *, args->graph->value_count);
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
    cpu_program_release(program);
    gt_arena_clear(&program->arena);
    pthread_mutex_destroy(&program->lock);
    gt_free(&provider->allocator, program);
}

uint64_t cpu_program_memory(void *self, const gantry_program *handle)
{
    const cpu_program *program = (const cpu_program *)handle;
    cpu_program *locked = (cpu_program *)handle;
    pthread_mutex_lock(&locked->lock);
    uint64_t bytes = program->held_bytes + program->shared_bytes + program->arena.total_bytes +
                     __atomic_load_n(&locked->shaped_bytes, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&locked->lock);
    return bytes;
}
