/* Where the operands of a shaped program lie: writes in place where nobody reads the old value again, puts
 * partition outputs straight into their buffers, and packs the rest into one workspace.
 *
 * A storage may be overwritten by a step only when the step is its last reader, no partition output lies in
 * it, and the sizes agree; then both are one storage (merged_into points to the older). */
#include "program.h"

static uint32_t root_of(const cpu_shaped *shaped, uint32_t storage)
{
    while (shaped->storages.data[storage].merged_into != GANTRY_NO_ID)
        storage = shaped->storages.data[storage].merged_into;
    return storage;
}

static cpu_storage *storage_at(cpu_shaped *shaped, uint32_t storage)
{
    return &shaped->storages.data[root_of(shaped, storage)];
}

static void note_reads(cpu_shaped *shaped)
{
    for (uint32_t k = 0; k < shaped->steps.count; k++) {
        const cpu_step *step = &shaped->steps.data[k];
        for (uint32_t j = 0; j < step->input_count + step->output_count; j++) {
            uint32_t storage = shaped->places.data[step->first_place + j].storage;
            if (storage != GANTRY_NO_ID && shaped->storages.data[storage].last < k)
                shaped->storages.data[storage].last = k;
        }
    }
}

/* Whether the step reads that storage through another operand than the one it may overwrite; an equal one
 * does not matter to a kernel that goes element by element. */
static bool reads_elsewhere(const cpu_shaped *shaped, const cpu_step *step, const cpu_place *operand)
{
    uint32_t root = root_of(shaped, operand->storage);
    bool alone = step->kernel.overwrite_alone;
    for (uint32_t j = 0; j < step->input_count; j++) {
        const cpu_place *other = &shaped->places.data[step->first_place + j];
        if (other == operand || other->storage == GANTRY_NO_ID || root_of(shaped, other->storage) != root)
            continue;
        if (alone || other->offset_bytes != operand->offset_bytes || other->bytes != operand->bytes)
            return true;
    }
    return false;
}

/* The operand that the output of step k may take the place of, or NULL. */
static const cpu_place *overwritable(cpu_shaped *shaped, uint32_t k)
{
    const cpu_step *step = &shaped->steps.data[k];
    int which = step->kernel.overwrite_input;
    if (which < 0 || step->output_count == 0)
        return NULL;
    const cpu_place *operand = &shaped->places.data[step->first_place + (uint32_t)which];
    const cpu_place *output = &shaped->places.data[step->first_place + step->input_count];
    if (operand->storage == GANTRY_NO_ID || output->storage == GANTRY_NO_ID)
        return NULL;
    const cpu_storage *old = storage_at(shaped, operand->storage);
    const cpu_storage *fresh = storage_at(shaped, output->storage);
    bool whole = operand->offset_bytes == 0 && output->offset_bytes == 0 && operand->bytes == old->bytes &&
                 output->bytes == fresh->bytes && old->bytes == fresh->bytes;
    if (old == fresh || !whole || old->last != k || old->kept || reads_elsewhere(shaped, step, operand))
        return NULL;
    return operand;
}

static void merge_in_place(cpu_shaped *shaped)
{
    for (uint32_t k = 0; k < shaped->steps.count; k++) {
        const cpu_place *operand = overwritable(shaped, k);
        if (!operand)
            continue;
        const cpu_step *step = &shaped->steps.data[k];
        uint32_t old = root_of(shaped, operand->storage);
        uint32_t fresh = root_of(shaped, shaped->places.data[step->first_place + step->input_count].storage);
        cpu_storage *kept = &shaped->storages.data[old], *gone = &shaped->storages.data[fresh];
        if (kept->base != CPU_BASE_WORKSPACE)
            continue; /* inputs of the partition: offered to the executor instead */
        kept->last = gone->last;
        kept->kept = gone->kept;
        gone->merged_into = old;
    }
}

/* ---- partition outputs ----------------------------------------------------------------------- */

typedef struct copy_state {
    size_t bytes;
} copy_state;

static gantry_status copy_run(const void *self, const cpu_call *call)
{
    const copy_state *state = self;
    if (state->bytes)
        memcpy(call->outputs[0], call->inputs[0], state->bytes);
    return GANTRY_OK;
}

/* A copy into output j, for a value that lies where an output cannot: a constant, a part of something, or
 * the buffer of another output. */
static gantry_status append_copy(cpu_shaped *shaped, const cpu_place *source, uint32_t output,
                                 gantry_error *err)
{
    gt_allocator *allocator = shaped->arena.allocator;
    copy_state *state = GT_ARENA_NEW(&shaped->arena, copy_state);
    cpu_storage storage = {.base = CPU_BASE_OUTPUT,
                           .index = output,
                           .bytes = source->bytes,
                           .merged_into = GANTRY_NO_ID,
                           .kept = true};
    cpu_place target = {shaped->storages.count, 0, source->bytes}, scratch = {GANTRY_NO_ID, 0, 0};
    if (!state || !gt_vec_push(allocator, &shaped->storages, storage) ||
        !gt_vec_reserve(allocator, &shaped->places, shaped->places.count + 3) ||
        !gt_vec_reserve(allocator, &shaped->steps, shaped->steps.count + 1))
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    state->bytes = source->bytes;
    cpu_step step = {.kernel = cpu_kernel_of(copy_run, state),
                     .first_place = shaped->places.count,
                     .input_count = 1,
                     .output_count = 1,
                     .group = GANTRY_NO_ID};
    step.kernel.name = "copy";
    if (source->storage != GANTRY_NO_ID)
        storage_at(shaped, source->storage)->last = shaped->steps.count;
    shaped->places.data[shaped->places.count++] = *source;
    shaped->places.data[shaped->places.count++] = target;
    shaped->places.data[shaped->places.count++] = scratch;
    shaped->steps.data[shaped->steps.count++] = step;
    return GANTRY_OK;
}

static gantry_status place_outputs(cpu_shaped *shaped, const cpu_place *outputs, gantry_error *err)
{
    for (uint32_t j = 0; j < shaped->program->graph->output_count; j++) {
        gantry_output_plan *plan = &shaped->output_plans[j];
        *plan = (gantry_output_plan){-1, 0, -1};
        const cpu_place *place = &outputs[j];
        if (place->storage == GANTRY_NO_ID)
            continue;
        cpu_storage *storage = storage_at(shaped, place->storage);
        if (storage->base == CPU_BASE_INPUT) {
            plan->view_of_input = (int32_t)storage->index;
            plan->view_offset_bytes = place->offset_bytes;
        } else if (storage->base == CPU_BASE_WORKSPACE && place->offset_bytes == 0 &&
                   place->bytes == storage->bytes) {
            storage->base = CPU_BASE_OUTPUT;
            storage->index = j;
        } else {
            GT_TRY(append_copy(shaped, place, j, err));
        }
    }
    return GANTRY_OK;
}

/* An output that a step may write over a partition input, which is then read by nobody later. */
static void offer_overwrites(cpu_shaped *shaped)
{
    for (uint32_t k = 0; k < shaped->steps.count; k++) {
        const cpu_step *step = &shaped->steps.data[k];
        const cpu_place *operand = overwritable(shaped, k);
        if (!operand)
            continue;
        const cpu_storage *old = storage_at(shaped, operand->storage);
        const cpu_storage *fresh =
            storage_at(shaped, shaped->places.data[step->first_place + step->input_count].storage);
        if (old->base == CPU_BASE_INPUT && fresh->base == CPU_BASE_OUTPUT && fresh->first == k)
            shaped->output_plans[fresh->index].overwrite_input = (int32_t)old->index;
    }
}

/* ---- workspace ------------------------------------------------------------------------------- */

static gantry_status plan_workspace(cpu_shaped *shaped, gt_arena *scratch, gantry_error *err)
{
    const gantry_host *host = shaped->program->provider->host;
    uint32_t capacity = shaped->storages.count, count = 0;
    size_t *bytes = GT_ARENA_ARRAY(scratch, size_t, capacity);
    size_t *offsets = GT_ARENA_ARRAY(scratch, size_t, capacity);
    uint32_t *first = GT_ARENA_ARRAY(scratch, uint32_t, capacity);
    uint32_t *last = GT_ARENA_ARRAY(scratch, uint32_t, capacity);
    uint32_t *which = GT_ARENA_ARRAY(scratch, uint32_t, capacity);
    if (!bytes || !offsets || !first || !last || !which)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    for (uint32_t k = 0; k < capacity; k++) {
        const cpu_storage *storage = &shaped->storages.data[k];
        if (storage->base != CPU_BASE_WORKSPACE || storage->merged_into != GANTRY_NO_ID || !storage->bytes)
            continue;
        bytes[count] = storage->bytes;
        first[count] = storage->first;
        last[count] = storage->last;
        which[count++] = k;
    }
    if (count)
        GT_TRY(host->plan_memory(host, count, bytes, first, last, offsets, &shaped->workspace_bytes, err));
    for (uint32_t k = 0; k < count; k++)
        shaped->storages.data[which[k]].offset_bytes = offsets[k];
    return GANTRY_OK;
}

gantry_status cpu_shaped_plan(cpu_shaped *shaped, const cpu_place *outputs, gt_arena *scratch,
                              gantry_error *err)
{
    note_reads(shaped);
    for (uint32_t j = 0; j < shaped->program->graph->output_count; j++)
        if (outputs[j].storage != GANTRY_NO_ID)
            shaped->storages.data[outputs[j].storage].kept = true;
    merge_in_place(shaped);
    GT_TRY(place_outputs(shaped, outputs, err));
    offer_overwrites(shaped);
    GT_TRY(plan_workspace(shaped, scratch, err));
    for (uint32_t k = 0; k < shaped->places.count; k++)
        if (shaped->places.data[k].storage != GANTRY_NO_ID)
            shaped->places.data[k].storage = root_of(shaped, shaped->places.data[k].storage);
    gt_vec_trim(shaped->arena.allocator, &shaped->storages);
    gt_vec_trim(shaped->arena.allocator, &shaped->places);
    gt_vec_trim(shaped->arena.allocator, &shaped->steps);
    return GANTRY_OK;
}
