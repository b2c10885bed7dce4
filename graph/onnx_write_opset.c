/* One opset for a written file, whose nodes may come from several: those of functions have their own. */
#include "onnx_write_internal.h"

#define WELL_KNOWN_OPSET 13 /* for a model that has none of its own: an old one that every runtime takes */

/* Opsets that give all nodes looked at so far the definitions they have, and who set the bounds. */
typedef struct opset_range {
    int32_t low, high;
    const gt_node *sets_low, *sets_high;
} opset_range;

/* Between two changes of its operator a node does not care. */
static void range_of(const gt_node *node, int32_t *out_low, int32_t *out_high)
{
    *out_low = *out_high = node->opset;
    if (!node->op || !node->version)
        return;
    *out_low = node->version;
    *out_high = GT_NEWEST_OPSET;
    for (int k = 0; k < GT_OP_MAX_VERSIONS && node->op->since[k]; k++)
        if (node->op->since[k] > node->version) {
            *out_high = node->op->since[k] - 1;
            return;
        }
}

static void narrow(const gt_graph *graph, opset_range *range)
{
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        int32_t low, high;
        for (uint32_t b = 0; b < node->body_count; b++)
            narrow(node->bodies[b].graph, range);
        if (node->domain[0])
            continue;
        range_of(node, &low, &high);
        if (low > range->low) {
            range->low = low;
            range->sets_low = node;
        }
        if (high < range->high) {
            range->high = high;
            range->sets_high = node;
        }
    }
}

gantry_status gt_write_choose_opset(const gt_model *model, int64_t *out_opset, gantry_error *err)
{
    opset_range range = {.low = 1, .high = GT_NEWEST_OPSET};
    int64_t own = gt_model_opset(model);
    narrow(model->root, &range);
    if (range.sets_low && range.sets_high && range.low > range.high)
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_LOAD, range.sets_low->name,
                       "node '%s' (%s) needs opset %d or later, but node '%s' (%s) means what it does up to "
                       "opset %d only (functions may name opsets of their own): no opset fits both, and "
                       "nodes are not converted. Convert the model to one opset first.",
                       range.sets_low->name, range.sets_low->op_type, range.low, range.sets_high->name,
                       range.sets_high->op_type, range.high);
    if (!own)
        own = WELL_KNOWN_OPSET;
    *out_opset = own < range.low ? range.low : own > range.high ? range.high : own;
    return GANTRY_OK;
}
