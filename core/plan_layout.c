/* Memory of a plan: an arena for each place, in which slots that are never live at the same time share
 * bytes.
 */
#include "answer.h"
#include "frame.h"
#include "plan_parts.h"

/* Whether a slot has memory of its own in the arena of a place. */
static bool is_in(const gt_plan_builder *b, uint32_t slot, uint32_t place)
{
    const gt_slot *s = &b->slots.data[slot];
    return s->kind == GT_SLOT_ARENA && b->drafts.data[slot].root == slot &&
           gt_slot_place(b->session->domain_count, s) == place;
}

/* What offsets are multiples of: the planner's 64, or more where the domain asks for it. */
#define UNIT ((size_t)64)

static size_t alignment_of(const gt_plan_builder *b, uint32_t place)
{
    size_t asked = place < b->session->domain_count ? b->session->domains[place].info.alignment : 0;
    return asked > UNIT ? asked : UNIT;
}

/* Bytes as the planner counts them: in units of 64, each of which stands for one of the alignment. What can't
 * be addressed stays so. */
static size_t in_units(size_t bytes, size_t alignment)
{
    return alignment == UNIT || bytes > GT_MOST_BYTES ? bytes : (bytes + alignment - 1) / alignment * UNIT;
}

static gantry_status plan_place(gt_plan_builder *b, uint32_t place)
{
    size_t alignment = alignment_of(b, place);
    uint32_t count = 0, at = 0;
    for (uint32_t k = 0; k < b->slots.count; k++)
        count += is_in(b, k, place);
    if (!count)
        return GANTRY_OK;
    size_t *bytes = GT_NEW_ARRAY(b->allocator, size_t, count),
           *offsets = GT_NEW_ARRAY(b->allocator, size_t, count);
    uint32_t *first = GT_NEW_ARRAY(b->allocator, uint32_t, count),
             *last = GT_NEW_ARRAY(b->allocator, uint32_t, count);
    gantry_status status = bytes && offsets && first && last ? GANTRY_OK : gt_plan_no_memory(b);
    for (uint32_t k = 0; status == GANTRY_OK && k < b->slots.count; k++)
        if (is_in(b, k, place)) {
            bytes[at] = in_units(b->slots.data[k].bytes, alignment);
            first[at] = b->drafts.data[k].first;
            last[at++] = b->drafts.data[k].last;
        }
    if (status == GANTRY_OK)
        status = gt_plan_intervals(b->allocator, count, bytes, first, last, offsets,
                                   &b->plan->arena_bytes[place], b->err);
    at = 0;
    if (status == GANTRY_OK &&
        __builtin_mul_overflow(b->plan->arena_bytes[place], alignment / UNIT, &b->plan->arena_bytes[place]))
        status =
            gt_plan_too_large(b->plan, b->err, "this run needs more bytes of memory than can be addressed");
    for (uint32_t k = 0; status == GANTRY_OK && k < b->slots.count; k++)
        if (is_in(b, k, place))
            b->slots.data[k].offset_bytes = offsets[at++] * (alignment / UNIT);
    gt_free(b->allocator, bytes);
    gt_free(b->allocator, offsets);
    gt_free(b->allocator, first);
    gt_free(b->allocator, last);
    return status;
}

/* What a loop carries is what its body gave in the iteration before: its output is pinned for the copies of
 * its input. The inputs of a body are the round, the condition, and what is carried; its outputs the same
 * without the round. */
static void pin_carried(gt_plan_builder *b, const gt_slot *input, uint32_t domain)
{
    if (!b->variant->body || input->kind != GT_SLOT_INPUT || input->index < 2 ||
        input->index >= b->graph->inputs.count)
        return;
    for (uint32_t k = 0; k < b->slots.count; k++) {
        gt_slot *slot = &b->slots.data[k];
        if (slot->kind == GT_SLOT_OUTPUT && slot->index == input->index - 1 && slot->domain == 0 &&
            !slot->pinned)
            slot->pinned = domain;
    }
}

/* Memory of the run's own at the host end of a copy had better be pinned: by the first device that copies. */
static void pin_host_ends(gt_plan_builder *b)
{
    for (uint32_t k = 0; k < b->steps.count; k++) {
        const gt_step *step = &b->steps.data[k];
        if (step->kind != GT_STEP_TRANSFER || !b->session->domains[step->domain].pins)
            continue;
        uint32_t end = b->slots.data[step->source].domain ? step->target : step->source;
        gt_slot *root = &b->slots.data[b->drafts.data[end].root];
        bool own = root->kind == GT_SLOT_ARENA || root->kind == GT_SLOT_OUTPUT || root->kind == GT_SLOT_CARRY;
        if (root->domain == 0 && own && !root->pinned)
            root->pinned = step->domain;
        if (root->domain == 0)
            pin_carried(b, root, step->domain);
    }
    for (uint32_t k = 0; k < b->slots.count; k++)
        b->slots.data[k].pinned = b->slots.data[b->drafts.data[k].root].pinned;
}

gantry_status gt_plan_layout(gt_plan_builder *b)
{
    b->plan->arena_bytes = GT_ARENA_ARRAY(&b->plan->arena, size_t, 2 * b->session->domain_count);
    if (!b->plan->arena_bytes)
        return gt_plan_no_memory(b);
    pin_host_ends(b);
    for (uint32_t p = 0; p < 2 * b->session->domain_count; p++)
        GT_TRY(plan_place(b, p));
    for (uint32_t k = 0; k < b->slots.count; k++)
        if (b->slots.data[k].kind == GT_SLOT_ARENA && b->drafts.data[k].root != k)
            b->slots.data[k].offset_bytes += b->slots.data[b->drafts.data[k].root].offset_bytes;
    return GANTRY_OK;
}
