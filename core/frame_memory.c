/* Memory of frames: blocks that grow to their high-water mark, what the option memory_limit allows the runs
 * of a session together, and errors that say which value it is that needs so much. */
#include "answer.h"
#include "run.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

#define HOST_ALIGNMENT 64u

static gantry_status host_alloc(gt_allocator *allocator, size_t bytes, void **out_memory)
{
    /* The allocator promises 16; the offset to the next multiple of 64 is kept in the byte before. */
    uint8_t *raw = gt_alloc(allocator, bytes + HOST_ALIGNMENT);
    if (!raw)
        return GANTRY_RESOURCE;
    uint8_t *aligned = (uint8_t *)(((uintptr_t)raw + HOST_ALIGNMENT) & ~(uintptr_t)(HOST_ALIGNMENT - 1));
    aligned[-1] = (uint8_t)(aligned - raw);
    *out_memory = aligned;
    return GANTRY_OK;
}

static void host_free(gt_allocator *allocator, void *memory)
{
    uint8_t *aligned = memory;
    if (aligned)
        gt_free(allocator, aligned - (aligned[-1] ? aligned[-1] : HOST_ALIGNMENT));
}

/* The device domain of a place, or 0. */
static uint32_t device_of(const gantry_session *session, uint32_t place)
{
    return place < session->domain_count ? place : 0;
}

static void unpin(gantry_session *session, gt_block *block)
{
    const gantry_domain *table = session->domains[block->pinned].entry->table;
    table->free(table->self, block->handle, GANTRY_MEMORY_PINNED);
    atomic_fetch_sub(&session->pinned_bytes, block->bytes);
}

void gt_block_free(gantry_session *session, uint32_t place, gt_block *block)
{
    const gantry_domain *table = session->domains[device_of(session, place)].entry->table;
    if (block->handle && block->pinned)
        unpin(session, block);
    else if (block->handle && device_of(session, place) == 0)
        host_free(session->allocator, block->handle);
    else if (block->handle)
        table->free(table->self, block->handle, GANTRY_MEMORY_DEVICE);
    atomic_fetch_sub(&session->held_bytes, block->bytes);
    *block = (gt_block){0};
}

/* Counts bytes more as taken, unless the limit forbids that. */
static bool take_bytes(gantry_session *session, size_t bytes)
{
    uint64_t limit = session->options.memory_limit;
    size_t held = atomic_fetch_add(&session->held_bytes, bytes);
    if (!limit || (held <= limit && bytes <= limit - held))
        return true;
    atomic_fetch_sub(&session->held_bytes, bytes);
    return false;
}

/* Pinned memory of a domain, within staging_limit. What is aligned worse than other memory is not used. */
static bool pin(gantry_session *session, uint32_t domain, size_t bytes, void **out_handle)
{
    const gantry_domain *table = session->domains[domain].entry->table;
    size_t limit = session->options.staging_limit, held = atomic_fetch_add(&session->pinned_bytes, bytes);
    bool fits = held <= limit && bytes <= limit - held;
    *out_handle = NULL;
    if (fits && table->alloc(table->self, bytes, GANTRY_MEMORY_PINNED, out_handle, NULL) == GANTRY_OK) {
        if (*out_handle && (uintptr_t)*out_handle % HOST_ALIGNMENT == 0)
            return true;
        if (*out_handle)
            table->free(table->self, *out_handle, GANTRY_MEMORY_PINNED);
    }
    *out_handle = NULL;
    atomic_fetch_sub(&session->pinned_bytes, bytes);
    return false;
}

bool gt_block_pin(gantry_session *session, uint32_t domain, gt_block *block, size_t bytes)
{
    if (!take_bytes(session, bytes))
        return false;
    if (pin(session, domain, bytes, &block->handle)) {
        block->bytes = bytes;
        block->pinned = domain;
        return true;
    }
    atomic_fetch_sub(&session->held_bytes, bytes);
    return false;
}

static gantry_status alloc_on_device(const gt_session_domain *domain, size_t bytes, gt_block *block,
                                     gantry_error *err)
{
    const gantry_domain *table = domain->entry->table;
    gt_error_clear(err);
    gantry_status status =
        table->alloc(table->self, bytes ? bytes : 1, GANTRY_MEMORY_DEVICE, &block->handle, err);
    status = gt_domain_answer(domain->name, "alloc", GANTRY_STAGE_RUN, status, block->handle, err);
    if (status != GANTRY_OK)
        block->handle = NULL;
    return status;
}

static gantry_status alloc_in(gantry_session *session, uint32_t place, size_t bytes, gt_block *block,
                              gantry_error *err)
{
    uint32_t domain = device_of(session, place);
    if (domain)
        return alloc_on_device(&session->domains[domain], bytes, block, err);
    if (place && pin(session, place - session->domain_count, bytes, &block->handle)) {
        block->pinned = place - session->domain_count;
        return GANTRY_OK;
    }
    return host_alloc(session->allocator, bytes, &block->handle) == GANTRY_OK
               ? GANTRY_OK
               : gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, NULL,
                         "out of memory: a block of %zu bytes on the host", bytes);
}

gantry_status gt_block_grow(gantry_session *session, uint32_t place, gt_block *block, size_t bytes,
                            bool *out_moved, gantry_error *err)
{
    if (bytes <= block->bytes && block->handle)
        return GANTRY_OK;
    if (!take_bytes(session, bytes - block->bytes)) {
        char held_text[GT_HELD_TEXT];
        gt_session_describe_held(session, held_text);
        return gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, NULL, "%s, and %zu more are needed in %s",
                       held_text, bytes - block->bytes, session->domains[device_of(session, place)].name);
    }
    atomic_fetch_add(&session->held_bytes, block->bytes); /* gt_block_free takes them off */
    gt_block_free(session, place, block);
    *out_moved = true;
    gantry_status status = alloc_in(session, place, bytes, block, err);
    if (status == GANTRY_OK)
        block->bytes = bytes;
    else
        atomic_fetch_sub(&session->held_bytes, bytes);
    return status;
}

/* ---- what needs so much ---------------------------------------------------------------------- */

static size_t add_bytes(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

size_t gt_plan_value_bytes(const gt_plan *plan, uint32_t value)
{
    const gt_plan_shape *shape = &plan->shapes[value];
    uint64_t count = shape->dims ? 1 : 0;
    for (uint32_t d = 0; shape->dims && d < shape->rank; d++)
        if (shape->dims[d] == 0)
            return 0;
    for (uint32_t d = 0; shape->dims && d < shape->rank; d++)
        if (__builtin_mul_overflow(count, (uint64_t)shape->dims[d], &count) || count > SIZE_MAX / 16)
            return SIZE_MAX;
    return gantry_dtype_bytes(plan->variant->graph->values.data[value]->dtype, count);
}

/* The output of a node of the plan's segment that has most bytes, the last of several; or GT_NONE. */
static uint32_t find_largest(const gt_plan *plan, size_t *out_bytes)
{
    const gt_graph *graph = plan->variant->graph;
    const gt_segment *segment = &plan->variant->segments[plan->segment];
    uint32_t largest = GT_NONE;
    *out_bytes = 0;
    for (uint32_t p = segment->first_partition; p < segment->first_partition + segment->partition_count;
         p++) {
        const gt_partition *partition = &plan->variant->placement->partitions[p];
        for (uint32_t n = 0; n < partition->node_count; n++) {
            const gt_node *node = graph->nodes.data[partition->nodes[n]];
            for (uint32_t k = 0; k < node->output_count; k++) {
                uint32_t id = node->outputs[k];
                size_t bytes = id == GT_NONE ? 0 : gt_plan_value_bytes(plan, id);
                if (bytes && bytes >= *out_bytes) {
                    *out_bytes = bytes;
                    largest = id;
                }
            }
        }
    }
    return largest;
}

/* The workspace that takes most, when it is more than `than` bytes; else NULL. */
static const gt_shaped_slot *find_workspace(const gt_plan *plan, size_t than)
{
    const gt_shaped_slot *found = NULL;
    for (uint32_t k = 0; k < plan->shaped_count; k++)
        if (plan->shaped[k].info.workspace_bytes > than) {
            found = &plan->shaped[k];
            than = found->info.workspace_bytes;
        }
    return found;
}

gantry_status gt_plan_too_large(const gt_plan *plan, gantry_error *err, const char *what)
{
    const gt_graph *graph = plan->variant->graph;
    size_t bytes;
    uint32_t id = find_largest(plan, &bytes);
    const gt_shaped_slot *shaped = find_workspace(plan, bytes);
    if (shaped) {
        const gt_partition *partition = &plan->variant->placement->partitions[shaped->partition];
        return gt_fail(
            err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, graph->nodes.data[partition->nodes[0]]->name,
            "%s; most of it is the workspace of provider %s (%zu bytes) for %u nodes from node '%s' on", what,
            plan->variant->session->providers[partition->provider].name, shaped->info.workspace_bytes,
            partition->node_count, graph->nodes.data[partition->nodes[0]]->name);
    }
    if (id == GT_NONE)
        return gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, NULL, "%s", what);
    const gt_value *value = graph->values.data[id];
    const gt_node *node = graph->nodes.data[value->producer];
    char dims[GANTRY_MAX_RANK * 21 + 1] = "", size[32] = "more than can be addressed";
    size_t used = 0;
    for (uint32_t d = 0; d < plan->shapes[id].rank; d++)
        used += (size_t)snprintf(dims + used, sizeof dims - used, d ? ",%lld" : "%lld",
                                 (long long)plan->shapes[id].dims[d]);
    if (bytes != SIZE_MAX)
        snprintf(size, sizeof size, "%zu bytes", bytes);
    return gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, node->name,
                   "%s; most of it is '%s' %s[%s] (%s), made by node '%s' (%s)", what, value->name,
                   gantry_dtype_text(value->dtype), dims, size, node->name, node->op_type);
}

/* ---- memory of a plan ------------------------------------------------------------------------ */

/* True when the frame itself has to have memory for this slot, besides its arenas. */
static bool wants_block(const gt_frame *frame, const gt_plan *plan, const gt_slot *slot)
{
    if (slot->kind == GT_SLOT_CARRY)
        return plan->shapes[slot->value].dims != NULL;
    return slot->kind == GT_SLOT_OUTPUT && !slot->offset_bytes && !plan->shapes[slot->value].bounded &&
           !plan->shapes[slot->value].dynamic && !frame->outputs[slot->index].given;
}

static const gt_block *block_of(const gt_frame *frame, const gt_slot *slot)
{
    return slot->kind == GT_SLOT_CARRY ? &frame->carries[slot->index].block
                                       : &frame->outputs[slot->index].own;
}

static size_t growth(const gt_block *block, size_t bytes)
{
    return bytes > block->bytes ? bytes - block->bytes : 0;
}

/* Refuses a plan before any of its memory is taken. */
static gantry_status check_limit(const gt_frame *frame, const gt_plan *plan, gantry_error *err)
{
    const gantry_session *session = frame->run->session;
    uint64_t limit = session->options.memory_limit;
    size_t held = atomic_load(&session->held_bytes), more = 0;
    if (!limit)
        return GANTRY_OK;
    for (uint32_t p = 0; p < 2 * session->domain_count; p++)
        more = add_bytes(more, growth(&frame->arenas[p], plan->arena_bytes[p]));
    for (uint32_t k = 0; k < plan->slot_count; k++)
        if (wants_block(frame, plan, &plan->slots[k]))
            more = add_bytes(more, growth(block_of(frame, &plan->slots[k]), plan->slots[k].bytes));
    if (held <= limit && more <= limit - held)
        return GANTRY_OK;
    char what[GT_HELD_TEXT + 64];
    gt_session_describe_held(session, what);
    size_t used = strlen(what);
    snprintf(what + used, sizeof what - used, ", and this run needs %zu more", more);
    return gt_plan_too_large(plan, err, what);
}

/* A block of a device may be in use until its queues are idle. */
static gantry_status grow_block(gt_frame *frame, uint32_t place, gt_block *block, size_t bytes,
                                gantry_error *err)
{
    bool moved = false;
    if (bytes <= block->bytes && block->handle)
        return GANTRY_OK;
    uint32_t device = device_of(frame->run->session, place);
    if (device && block->handle)
        GT_TRY(gt_run_settle(frame->run, device, err));
    gantry_status status = gt_block_grow(frame->run->session, place, block, bytes, &moved, err);
    frame->version += moved;
    return status;
}

static gantry_status grow_arenas(gt_frame *frame, const gt_plan *plan, gantry_error *err)
{
    for (uint32_t p = 0; p < 2 * frame->run->session->domain_count; p++)
        if (plan->arena_bytes[p])
            GT_TRY(grow_block(frame, p, &frame->arenas[p], plan->arena_bytes[p], err));
    return GANTRY_OK;
}

static gantry_status grow_output(gt_frame *frame, uint32_t index, uint32_t place, size_t bytes,
                                 gantry_error *err)
{
    gt_frame_output *output = &frame->outputs[index];
    gantry_status status = grow_block(frame, place, &output->own, bytes, err);
    output->buffer = (gantry_buffer){output->own.handle, 0};
    output->capacity = output->own.bytes;
    return status;
}

static gantry_status grow_slot(gt_frame *frame, const gt_plan *plan, const gt_slot *slot, gantry_error *err)
{
    uint32_t place = gt_slot_place(frame->run->session->domain_count, slot);
    if (wants_block(frame, plan, slot))
        return slot->kind == GT_SLOT_CARRY ? gt_frame_grow_carry(frame, slot->index, place, slot->bytes, err)
                                           : grow_output(frame, slot->index, place, slot->bytes, err);
    if (slot->kind != GT_SLOT_OUTPUT || slot->offset_bytes || plan->shapes[slot->value].bounded ||
        plan->shapes[slot->value].dynamic || frame->outputs[slot->index].capacity >= slot->bytes)
        return GANTRY_OK;
    return gt_fail(err, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN, NULL,
                   "output %s needs %zu bytes; the buffer bound for it has %zu",
                   frame->entry->graph->values.data[frame->entry->graph->outputs.data[slot->index]]->name,
                   slot->bytes, frame->outputs[slot->index].capacity);
}

gantry_status gt_frame_grow(gt_frame *frame, const gt_plan *plan, gantry_error *err)
{
    GT_TRY(check_limit(frame, plan, err));
    gantry_status status = grow_arenas(frame, plan, err);
    for (uint32_t k = 0; status == GANTRY_OK && k < plan->slot_count; k++)
        status = grow_slot(frame, plan, &plan->slots[k], err);
    if (status != GANTRY_RESOURCE || !err)
        return status;
    char what[sizeof err->message];
    snprintf(what, sizeof what, "%.300s", err->message);
    return gt_plan_too_large(plan, err, what);
}

uint32_t gt_frame_output_domain(const gt_frame *frame, uint32_t index)
{
    return frame->entry->output_domains[index];
}

gantry_status gt_frame_grow_carry(gt_frame *frame, uint32_t value, uint32_t place, size_t bytes,
                                  gantry_error *err)
{
    frame->carries[value].domain = device_of(frame->run->session, place);
    return grow_block(frame, place, &frame->carries[value].block, bytes, err);
}

gantry_status gt_frame_grow_output(gt_frame *frame, uint32_t index, size_t bytes, gantry_error *err)
{
    return grow_output(frame, index, gt_frame_output_domain(frame, index), bytes, err);
}
