/* What the host offers a provider: memory, log, threads, constants, records, the arena planner, evaluation.
 */
#include "host_parts.h"
#include "options.h"

#include "base/clock.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static void host_log(const gantry_host *host, int level, const char *text)
{
    gantry_runtime *runtime = gt_host_runtime(host);
    pthread_mutex_lock(&runtime->log_lock);
    for (uint32_t k = 0; k < runtime->sinks.count; k++)
        if (level <= runtime->sinks.data[k].level)
            runtime->sinks.data[k].log(runtime->sinks.data[k].user, level, text ? text : "");
    pthread_mutex_unlock(&runtime->log_lock);
}

gantry_status gt_runtime_log_add(gantry_runtime *runtime, int level, gantry_log_fn log, void *user,
                                 gantry_error *err)
{
    if (!log)
        return GANTRY_OK;
    gt_log_sink sink = {level, log, user};
    pthread_mutex_lock(&runtime->log_lock);
    bool added = gt_vec_push(&runtime->allocator, &runtime->sinks, sink);
    pthread_mutex_unlock(&runtime->log_lock);
    return added ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
}

void gt_runtime_log_remove(gantry_runtime *runtime, gantry_log_fn log, void *user)
{
    pthread_mutex_lock(&runtime->log_lock);
    for (uint32_t k = 0; k < runtime->sinks.count; k++)
        if (runtime->sinks.data[k].log == log && runtime->sinks.data[k].user == user) {
            runtime->sinks.data[k] = runtime->sinks.data[--runtime->sinks.count];
            break;
        }
    pthread_mutex_unlock(&runtime->log_lock);
}

/* ---- memory: the block that the allocator gave stands right before the aligned address ------- */

void *gt_host_alloc(const gantry_host *host, size_t bytes, size_t alignment)
{
    if (alignment < sizeof(void *) * 2)
        alignment = sizeof(void *) * 2;
    if ((alignment & (alignment - 1)) != 0 || bytes > SIZE_MAX - alignment - sizeof(void *))
        return NULL;
    char *block = gt_alloc(&gt_host_runtime(host)->allocator, bytes + alignment + sizeof(void *));
    if (!block)
        return NULL;
    uintptr_t address = ((uintptr_t)block + sizeof(void *) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    ((void **)address)[-1] = block;
    return (void *)address;
}

void gt_host_free(const gantry_host *host, void *memory)
{
    if (memory)
        gt_free(&gt_host_runtime(host)->allocator, ((void **)memory)[-1]);
}

static uint64_t host_now_ns(const gantry_host *host)
{
    return gt_now_ns();
}

/* ---- threads --------------------------------------------------------------------------------- */

static int current_thread(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

static void host_parallel_for(const gantry_host *host, int threads, int64_t count, int64_t chunk,
                              gantry_parallel_fn fn, void *arg)
{
    if (count <= 0)
        return;
    chunk = chunk > 0 ? chunk : 1;
    int64_t chunk_count = (count - 1) / chunk + 1;
    bool alone = threads <= 1 || chunk_count == 1;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(alone ? 1 : threads) if (!alone)
#endif
    for (int64_t k = 0; k < chunk_count; k++) {
        int64_t begin = k * chunk, end = count - begin < chunk ? count : begin + chunk;
        fn(arg, begin, end, alone ? 0 : current_thread());
    }
}

/* ---- constants ------------------------------------------------------------------------------- */

gantry_status gt_host_constant_map(const gantry_host *host, gantry_constants *constants, uint32_t constant_id,
                                   const void **out_data, size_t *out_bytes, gantry_error *err)
{
    gantry_runtime *runtime = gt_host_runtime(host);
    gt_model *model = (gt_model *)constants;
    *out_data = NULL;
    *out_bytes = 0;
    if (!model || constant_id >= model->constants.count)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE, NULL,
                       "constant %u was asked for; the session has %u", constant_id,
                       model ? model->constants.count : 0);
    pthread_mutex_lock(&runtime->constants_lock);
    gantry_status status = gt_constant_map(model, constant_id, out_data, err);
    pthread_mutex_unlock(&runtime->constants_lock);
    if (status == GANTRY_OK)
        *out_bytes = model->constants.data[constant_id].bytes;
    return status;
}

void gt_host_constant_unmap(const gantry_host *host, gantry_constants *constants, uint32_t constant_id)
{
    gantry_runtime *runtime = gt_host_runtime(host);
    gt_model *model = (gt_model *)constants;
    if (!model || constant_id >= model->constants.count)
        return;
    pthread_mutex_lock(&runtime->constants_lock);
    gt_constant_unmap(model, constant_id);
    pthread_mutex_unlock(&runtime->constants_lock);
}

static gantry_status host_constant_read(const gantry_host *host, gantry_constants *constants,
                                        uint32_t constant_id, size_t offset, size_t bytes, void *target,
                                        gantry_error *err)
{
    const void *data;
    size_t size;
    GT_TRY(gt_host_constant_map(host, constants, constant_id, &data, &size, err));
    gantry_status status = GANTRY_OK;
    if (offset > size || bytes > size - offset || (bytes && !target))
        status = gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE, NULL,
                         "%zu bytes from offset %zu of constant %u were asked for; it has %zu", bytes, offset,
                         constant_id, size);
    else if (bytes)
        memcpy(target, (const char *)data + offset, bytes);
    gt_host_constant_unmap(host, constants, constant_id);
    return status;
}

/* ---- records --------------------------------------------------------------------------------- */

/* Kernels of a model have few names: each is copied once. */
static const char *keep_text(gantry_recorder *recorder, const char *text)
{
    text = text ? text : "";
    size_t bytes = strlen(text) + 1;
    if (recorder->texts.count) {
        const gt_map_slot *known = gt_map_probe(&recorder->texts, text, bytes, XXH3_64bits(text, bytes));
        if (known->key)
            return known->key;
    }
    const char *kept = gt_arena_copy(recorder->arena, text, bytes);
    if (kept && recorder->texts.allocator && !gt_map_set(&recorder->texts, kept, bytes, 0))
        kept = NULL;
    recorder->failed |= !kept;
    return kept ? kept : "";
}

static const uint32_t *keep_ids(gantry_recorder *recorder, const uint32_t *ids, uint32_t *inout_count)
{
    const uint32_t *kept = ids ? gt_arena_copy(recorder->arena, ids, *inout_count * sizeof *ids) : NULL;
    recorder->failed |= ids && !kept;
    if (!kept)
        *inout_count = 0;
    return kept;
}

/* The plugin's struct may be shorter or longer than ours: what it does not have is zero. */
static bool copy_struct(void *target, size_t target_bytes, const void *source)
{
    size_t bytes = source ? *(const size_t *)source : 0;
    memset(target, 0, target_bytes);
    memcpy(target, source ? source : target, bytes < target_bytes ? bytes : target_bytes);
    return bytes != 0;
}

static void host_record_kernel(gantry_recorder *recorder, const gantry_kernel_record *record)
{
    gantry_kernel_record r;
    if (!recorder || !copy_struct(&r, sizeof r, record))
        return;
    gt_kernel_row row = {.op = keep_text(recorder, r.op),
                         .name = keep_text(recorder, r.name),
                         .isa = keep_text(recorder, r.isa),
                         .layout = keep_text(recorder, r.layout),
                         .index = r.index,
                         .node_count = r.node_count,
                         .precision_in = r.precision_in,
                         .precision_out = r.precision_out,
                         .accumulate = r.accumulate,
                         .bytes = r.bytes,
                         .flops = r.flops};
    row.node_ids = keep_ids(recorder, r.node_ids, &row.node_count);
    recorder->failed |= !gt_vec_push(recorder->arena->allocator, &recorder->kernels, row);
}

static void host_record_fusion(gantry_recorder *recorder, const gantry_fusion_record *record)
{
    gantry_fusion_record r;
    if (!recorder || !copy_struct(&r, sizeof r, record))
        return;
    gt_fusion_row row = {.rule = keep_text(recorder, r.rule),
                         .guard = keep_text(recorder, r.guard),
                         .node_count = r.node_count,
                         .applied = r.applied != 0};
    row.node_ids = keep_ids(recorder, r.node_ids, &row.node_count);
    recorder->failed |= !gt_vec_push(recorder->arena->allocator, &recorder->fusions, row);
}

static void host_record_phase(gantry_recorder *recorder, const gantry_phase_record *record)
{
    gantry_phase_record r;
    if (!recorder || !copy_struct(&r, sizeof r, record))
        return;
    gt_phase_row row = {keep_text(recorder, r.name), keep_text(recorder, r.detail), r.begin_ns,
                        r.duration_ns};
    recorder->failed |= !gt_vec_push(recorder->arena->allocator, &recorder->phases, row);
}

void gt_recorder_free(struct gantry_recorder *recorder)
{
    if (!recorder->arena)
        return;
    gt_allocator *allocator = recorder->arena->allocator;
    gt_vec_free(allocator, &recorder->kernels);
    gt_vec_free(allocator, &recorder->fusions);
    gt_vec_free(allocator, &recorder->phases);
}

/* ---- planning, evaluation, options ----------------------------------------------------------- */

static gantry_status host_plan_memory(const gantry_host *host, uint32_t count, const size_t *bytes,
                                      const uint32_t *first, const uint32_t *last, size_t *out_offsets,
                                      size_t *out_total, gantry_error *err)
{
    return gt_plan_intervals(&gt_host_runtime(host)->allocator, count, bytes, first, last, out_offsets,
                             out_total, err);
}

static gantry_status host_evaluate(const gantry_host *host, const gantry_graph_view *graph,
                                   uint32_t node_index, const gantry_tensor *inputs,
                                   const gantry_tensor *outputs, gantry_error *err)
{
    const gt_provider_entry *cpu = gt_host_runtime(host)->cpu_provider;
    if (!cpu || !cpu->table->evaluate)
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_RUN, NULL,
                       "there is no provider that evaluates nodes");
    if (!graph || node_index >= graph->node_count)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                       "node %u was to be evaluated; the graph has %u", node_index,
                       graph ? graph->node_count : 0);
    return cpu->table->evaluate(cpu->table->self, graph, node_index, inputs, outputs, err);
}

static const char *host_option(const gantry_host *host, const void *session_options, const char *key)
{
    return session_options && key ? gt_options_text(session_options, key) : NULL;
}

void gt_host_table_init(gantry_host *host, gantry_runtime *runtime, const char *config)
{
    *host = (gantry_host){.struct_bytes = sizeof *host,
                          .abi = GANTRY_PROVIDER_ABI,
                          .self = runtime,
                          .config = config ? config : "",
                          .log = host_log,
                          .alloc = gt_host_alloc,
                          .free = gt_host_free,
                          .now_ns = host_now_ns,
                          .parallel_for = host_parallel_for,
                          .constant_map = gt_host_constant_map,
                          .constant_unmap = gt_host_constant_unmap,
                          .record_kernel = host_record_kernel,
                          .record_fusion = host_record_fusion,
                          .plan_memory = host_plan_memory,
                          .evaluate = host_evaluate,
                          .option = host_option,
                          .constant_read = host_constant_read,
                          .packed_get = gt_host_packed_get,
                          .packed_put = gt_host_packed_put,
                          .packed_release = gt_host_packed_release,
                          .cache_get = gt_host_cache_get,
                          .cache_put = gt_host_cache_put,
                          .record_phase = host_record_phase};
}
