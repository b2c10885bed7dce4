/* Memory of a plan: an arena for each domain, in which slots that are never live at the same time share
 * bytes.
 */
#include "plan_parts.h"

static gantry_status plan_domain(gt_plan_builder *b, uint32_t domain)
{
    uint32_t count = 0, at = 0;
    for (uint32_t k = 0; k < b->slots.count; k++)
        count += b->slots.data[k].kind == GT_SLOT_ARENA && b->slots.data[k].domain == domain &&
                 b->drafts.data[k].root == k;
    if (!count)
        return GANTRY_OK;
    size_t *bytes = GT_NEW_ARRAY(b->allocator, size_t, count),
           *offsets = GT_NEW_ARRAY(b->allocator, size_t, count);
    uint32_t *first = GT_NEW_ARRAY(b->allocator, uint32_t, count),
             *last = GT_NEW_ARRAY(b->allocator, uint32_t, count);
    gantry_status status = bytes && offsets && first && last ? GANTRY_OK : gt_plan_no_memory(b);
    for (uint32_t k = 0; status == GANTRY_OK && k < b->slots.count; k++)
        if (b->slots.data[k].kind == GT_SLOT_ARENA && b->slots.data[k].domain == domain &&
            b->drafts.data[k].root == k) {
            bytes[at] = b->slots.data[k].bytes;
            first[at] = b->drafts.data[k].first;
            last[at++] = b->drafts.data[k].last;
        }
    if (status == GANTRY_OK)
        status = gt_plan_intervals(b->allocator, count, bytes, first, last, offsets,
                                   &b->plan->arena_bytes[domain], b->err);
    at = 0;
    for (uint32_t k = 0; status == GANTRY_OK && k < b->slots.count; k++)
        if (b->slots.data[k].kind == GT_SLOT_ARENA && b->slots.data[k].domain == domain &&
            b->drafts.data[k].root == k)
            b->slots.data[k].offset_bytes = offsets[at++];
    gt_free(b->allocator, bytes);
    gt_free(b->allocator, offsets);
    gt_free(b->allocator, first);
    gt_free(b->allocator, last);
    return status;
}

gantry_status gt_plan_layout(gt_plan_builder *b)
{
    b->plan->arena_bytes = GT_ARENA_ARRAY(&b->plan->arena, size_t, b->session->domain_count);
    if (!b->plan->arena_bytes)
        return gt_plan_no_memory(b);
    for (uint32_t d = 0; d < b->session->domain_count; d++)
        GT_TRY(plan_domain(b, d));
    for (uint32_t k = 0; k < b->slots.count; k++)
        if (b->slots.data[k].kind == GT_SLOT_ARENA && b->drafts.data[k].root != k)
            b->slots.data[k].offset_bytes += b->slots.data[b->drafts.data[k].root].offset_bytes;
    return GANTRY_OK;
}
