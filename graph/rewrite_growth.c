/* What folding may add to a file: results that are much larger than the constants they are made of stay
 * nodes.
 *
 *     [1, 4096] -> ConstantOfShape (16 MB) -> Add(x)       stays: 16 bytes in the file
 *     [1, 4096] -> ConstantOfShape -> NonZero (small)      goes, with the result that only it needs
 *
 * Backwards through the order: whether a result has to be in the file is known once its readers are decided.
 * A node that stays wants its inputs in the file, so they are decided after it. */
#include "rewrite_internal.h"

typedef struct growth_plan {
    const gt_rewrite_context *context;
    const gt_graph *graph;
    const uint8_t *candidates;
    const uint64_t *sizes;
    uint8_t *computed, *stays;
    uint64_t *sources;  /* by node id: bytes of constants that go when the node and what only it reads go */
    uint32_t *gone;     /* by value id: readers that go */
    uint8_t *is_wanted; /* by value id: a reader is computed */
} growth_plan;

static bool is_candidate(const growth_plan *plan, uint32_t node)
{
    return node != GT_NONE && plan->candidates[node];
}

static uint64_t file_bytes(const gt_constant *constant)
{
    const gt_sparse *sparse = constant->sparse;
    return sparse ? sparse->values.size_bytes + sparse->indices.size_bytes : constant->bytes;
}

static void sum_sources(growth_plan *plan, uint32_t id)
{
    const gt_node *node = plan->graph->nodes.data[id];
    uint64_t total = 0;
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t input = node->inputs[k];
        const gt_value *value = gt_graph_value(plan->graph, input);
        if (!value || gt_rewrite_use_count(plan->context, input) != 1)
            continue;
        if (gt_value_is_constant(value))
            total += file_bytes(&plan->context->model->constants.data[value->constant]);
        else if (is_candidate(plan, value->producer))
            total += plan->sources[value->producer];
    }
    plan->sources[id] = total;
}

/* Bytes of results that somebody who stays reads. A size that depends on data counts as nothing until it is
 * computed. */
static uint64_t needed_bytes(const growth_plan *plan, const gt_node *node)
{
    uint64_t total = 0;
    for (uint32_t k = 0; k < node->output_count; k++) {
        uint32_t output = node->outputs[k];
        if (output == GT_NONE || gt_rewrite_use_count(plan->context, output) <= plan->gone[output])
            continue;
        total += plan->sizes[output] == UINT64_MAX ? 0 : plan->sizes[output];
    }
    return total;
}

static bool wanted_by_computed(const growth_plan *plan, const gt_node *node)
{
    for (uint32_t k = 0; k < node->output_count; k++)
        if (node->outputs[k] != GT_NONE && plan->is_wanted[node->outputs[k]])
            return true;
    return false;
}

static void decide(growth_plan *plan, uint32_t id)
{
    const gt_node *node = plan->graph->nodes.data[id];
    uint64_t limit = plan->context->options->growth_limit_bytes, needed = needed_bytes(plan, node);
    plan->stays[id] = needed > plan->sources[id] && needed - plan->sources[id] > limit;
    plan->computed[id] = !plan->stays[id] || wanted_by_computed(plan, node);
    for (uint32_t k = 0; k < node->input_count; k++) {
        if (node->inputs[k] == GT_NONE)
            continue;
        plan->gone[node->inputs[k]] += !plan->stays[id];
        plan->is_wanted[node->inputs[k]] |= plan->computed[id];
    }
}

gantry_status gt_rewrite_plan_growth(gt_rewrite_context *context, const gt_graph *graph,
                                     const uint8_t *candidates, const uint64_t *sizes, uint8_t *out_computed,
                                     uint8_t *out_stays, gantry_error *err)
{
    gt_arena *scratch = &context->scratch;
    growth_plan plan = {.context = context,
                        .graph = graph,
                        .candidates = candidates,
                        .sizes = sizes,
                        .computed = out_computed,
                        .stays = out_stays,
                        .sources = GT_ARENA_ARRAY(scratch, uint64_t, graph->nodes.count),
                        .gone = GT_ARENA_ARRAY(scratch, uint32_t, graph->values.count),
                        .is_wanted = gt_arena_alloc(scratch, graph->values.count)};
    if (!plan.sources || !plan.gone || !plan.is_wanted)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    memset(out_computed, 0, graph->nodes.count);
    memset(out_stays, 0, graph->nodes.count);
    for (uint32_t k = 0; k < graph->order.count; k++)
        if (candidates[graph->order.data[k]])
            sum_sources(&plan, graph->order.data[k]);
    for (uint32_t k = graph->order.count; k-- > 0;)
        if (candidates[graph->order.data[k]])
            decide(&plan, graph->order.data[k]);
    return GANTRY_OK;
}
