/* What a graph's plans depend on: the symbols of each segment, those it makes, and the conditions known at
 * bind. */
#include "session.h"
#include "variant_parts.h"

/* ---- symbols of segments --------------------------------------------------------------------- */

/* Marks the symbols that e is built of. */
static void mark_symbols(const gt_exprs *exprs, gt_expr e, uint8_t *seen, uint8_t *symbols)
{
    if (e == GT_EXPR_UNKNOWN || seen[e])
        return;
    seen[e] = 1;
    const gt_expr_node *node = &exprs->nodes.data[e];
    switch ((gt_expr_kind)node->kind) {
    case GT_EXPR_CONST:
    case GT_EXPR_REAL_CONST:
        return;
    case GT_EXPR_SYMBOL:
        symbols[node->a] = 1;
        mark_symbols(exprs, exprs->symbols.data[node->a].bound, seen, symbols);
        return;
    case GT_EXPR_SELECT:
        mark_symbols(exprs, node->c, seen, symbols);
        /* fall through */
    default:
        mark_symbols(exprs, node->b, seen, symbols);
        mark_symbols(exprs, node->a, seen, symbols);
    }
}

static void mark_value(const gt_graph *graph, uint32_t id, uint8_t *seen, uint8_t *symbols)
{
    const gt_value *value = gt_graph_value(graph, id);
    if (!value)
        return;
    for (int32_t d = 0; d < value->rank; d++)
        mark_symbols(&graph->model->exprs, value->dims[d], seen, symbols);
    if (value->elements)
        for (uint32_t k = 0; k < value->element_count; k++)
            mark_symbols(&graph->model->exprs, value->elements[k], seen, symbols);
}

/* The symbol that e is, if it is one of that kind that this value makes; GT_NONE otherwise. */
static uint32_t symbol_of(const gt_graph *graph, uint32_t value, gt_expr e, gt_symbol_kind kind)
{
    const gt_exprs *exprs = &graph->model->exprs;
    if (e == GT_EXPR_UNKNOWN || exprs->nodes.data[e].kind != GT_EXPR_SYMBOL)
        return GT_NONE;
    uint32_t index = exprs->nodes.data[e].a;
    const gt_symbol *symbol = &exprs->symbols.data[index];
    return symbol->kind == kind && symbol->graph == graph && symbol->value == value ? index : GT_NONE;
}

typedef GT_VEC(gt_result_symbol) result_list;

/* Symbols of data that a value of this segment is the first to have are results, not keys. */
static bool list_results(gt_allocator *allocator, const gt_graph *graph, uint32_t id, uint8_t *symbols,
                         result_list *results)
{
    const gt_value *value = gt_graph_value(graph, id);
    for (int32_t d = 0; value && d < value->rank; d++) {
        uint32_t symbol = symbol_of(graph, id, value->dims[d], GT_SYMBOL_DATA_DIM);
        if (symbol != GT_NONE && symbols[symbol]) {
            symbols[symbol] = 0;
            if (!gt_vec_push(allocator, results, ((gt_result_symbol){symbol, id, (uint32_t)d, false})))
                return false;
        }
    }
    for (uint32_t k = 0; value && value->elements && k < value->element_count; k++) {
        uint32_t symbol = symbol_of(graph, id, value->elements[k], GT_SYMBOL_DATA_ELEMENT);
        if (symbol != GT_NONE && symbols[symbol]) {
            symbols[symbol] = 0;
            if (!gt_vec_push(allocator, results, ((gt_result_symbol){symbol, id, k, true})))
                return false;
        }
    }
    return true;
}

static gantry_status list_symbols(gt_variant *variant, const uint8_t *marks, uint32_t *out_count,
                                  const uint32_t **out_symbols, gantry_error *err)
{
    uint32_t total = variant->graph->model->exprs.symbols.count, count = 0;
    for (uint32_t k = 0; k < total; k++)
        count += marks[k];
    uint32_t *symbols = GT_ARENA_ARRAY(&variant->arena, uint32_t, count + 1);
    if (!symbols)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    count = 0;
    for (uint32_t k = 0; k < total; k++)
        if (marks[k])
            symbols[count++] = k;
    *out_count = count;
    *out_symbols = symbols;
    return GANTRY_OK;
}

static gantry_status segment_results(gt_variant *variant, gt_segment *segment, uint8_t *symbols,
                                     gantry_error *err)
{
    gt_allocator *allocator = variant->session->allocator;
    result_list results = {0};
    bool fits = true;
    for (uint32_t p = segment->first_partition; p < segment->first_partition + segment->partition_count;
         p++) {
        const gt_partition *partition = &variant->placement->partitions[p];
        for (uint32_t n = 0; n < partition->node_count; n++) {
            const gt_node *node = variant->graph->nodes.data[partition->nodes[n]];
            for (uint32_t k = 0; k < node->output_count; k++)
                fits = fits && list_results(allocator, variant->graph, node->outputs[k], symbols, &results);
        }
    }
    segment->results = gt_arena_copy(&variant->arena, results.data, results.count * sizeof *results.data);
    segment->result_count = results.count;
    gt_vec_free(allocator, &results);
    return fits && segment->results ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
}

static gantry_status segment_symbols(gt_variant *variant, gt_segment *segment, uint8_t *seen,
                                     uint8_t *symbols, gantry_error *err)
{
    const gt_graph *graph = variant->graph;
    memset(seen, 0, graph->model->exprs.nodes.count + 1);
    memset(symbols, 0, graph->model->exprs.symbols.count + 1);
    for (uint32_t p = segment->first_partition; p < segment->first_partition + segment->partition_count;
         p++) {
        const gt_partition *partition = &variant->placement->partitions[p];
        for (uint32_t n = 0; n < partition->node_count; n++) {
            const gt_node *node = graph->nodes.data[partition->nodes[n]];
            for (uint32_t k = 0; k < node->input_count; k++)
                mark_value(graph, node->inputs[k], seen, symbols);
            for (uint32_t k = 0; k < node->output_count; k++)
                mark_value(graph, node->outputs[k], seen, symbols);
        }
        for (uint32_t k = 0; k < partition->input_count; k++)
            mark_value(graph, partition->inputs[k], seen, symbols);
    }
    /* A plan stands for shapes that passed the checks: what they rest on is part of its key even where no
     * node reads it. */
    for (uint32_t k = 0; k < graph->check_count; k++)
        if (gt_expr_segment(&graph->model->exprs, graph->checks[k].expr) <= segment->number)
            mark_symbols(&graph->model->exprs, graph->checks[k].expr, seen, symbols);
    GT_TRY(segment_results(variant, segment, symbols, err));
    return list_symbols(variant, symbols, &segment->symbol_count, &segment->symbols, err);
}

/* The last segment delivers the outputs that no step makes. When they wait for what it makes itself, that is
 * one more, without a partition. */
static gantry_status deliver_last(gt_variant *variant, uint8_t *seen, uint8_t *symbols, gantry_error *err)
{
    const gt_graph *graph = variant->graph;
    gt_segment *last = &variant->segments[variant->segment_count - 1];
    bool waits = false;
    memset(seen, 0, graph->model->exprs.nodes.count + 1);
    memset(symbols, 0, graph->model->exprs.symbols.count + 1);
    for (uint32_t k = 0; k < graph->outputs.count; k++) {
        const gt_value *value = graph->values.data[graph->outputs.data[k]];
        if (value->producer == GT_NONE || graph->nodes.data[value->producer]->at_bind)
            mark_value(graph, graph->outputs.data[k], seen, symbols);
    }
    for (uint32_t k = 0; k < last->result_count; k++)
        waits |= symbols[last->results[k].symbol];
    for (uint32_t k = 0; k < last->symbol_count && !waits; k++)
        symbols[last->symbols[k]] = 1;
    if (waits) {
        variant->segments[variant->segment_count++] = (gt_segment){
            .number = last->number + 1, .first_partition = last->first_partition + last->partition_count};
        last++;
    }
    return list_symbols(variant, symbols, &last->symbol_count, &last->symbols, err);
}

/* Groups the partitions by segment (placement keeps them in an order in which they can run, so segments come
 * ascending). */
gantry_status gt_variant_make_segments(gt_variant *variant, gantry_error *err)
{
    const gt_placement *placement = variant->placement;
    uint32_t count = 0;
    for (uint32_t p = 0; p < placement->partition_count; p++)
        count += p == 0 || placement->partitions[p].segment != placement->partitions[p - 1].segment;
    variant->segments = GT_ARENA_ARRAY(&variant->arena, gt_segment, count + 2);
    uint8_t *seen =
        GT_NEW_ARRAY(variant->session->allocator, uint8_t, variant->graph->model->exprs.nodes.count + 1);
    uint8_t *symbols =
        GT_NEW_ARRAY(variant->session->allocator, uint8_t, variant->graph->model->exprs.symbols.count + 1);
    gantry_status status = GANTRY_OK;
    if (!variant->segments || !seen || !symbols)
        status = gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    for (uint32_t p = 0; status == GANTRY_OK && p < placement->partition_count; p++) {
        if (p == 0 || placement->partitions[p].segment != placement->partitions[p - 1].segment)
            variant->segments[variant->segment_count++] =
                (gt_segment){.number = placement->partitions[p].segment, .first_partition = p};
        variant->segments[variant->segment_count - 1].partition_count++;
    }
    /* A graph without partitions still has outputs to deliver. */
    if (status == GANTRY_OK && variant->segment_count == 0)
        variant->segments[variant->segment_count++] = (gt_segment){0};
    for (uint32_t s = 0; status == GANTRY_OK && s < variant->segment_count; s++)
        status = segment_symbols(variant, &variant->segments[s], seen, symbols, err);
    if (status == GANTRY_OK)
        status = deliver_last(variant, seen, symbols, err);
    gt_free(variant->session->allocator, seen);
    gt_free(variant->session->allocator, symbols);
    return status;
}

/* ---- choices --------------------------------------------------------------------------------- */

/* An If whose condition is an expression over what is known when this graph is entered. */
static bool is_choice(const gt_graph *graph, const gt_node *node)
{
    if (node->removed || strcmp(node->op_type, "If") != 0 || node->domain[0])
        return false;
    const gt_value *condition = gt_graph_value(graph, node->input_count ? node->inputs[0] : GT_NONE);
    return condition && condition->elements && condition->element_count == 1 &&
           condition->elements[0] != GT_EXPR_UNKNOWN &&
           gt_expr_segment(&graph->model->exprs, condition->elements[0]) == 0;
}

gantry_status gt_variant_find_choices(gt_variant *variant, gantry_error *err)
{
    const gt_graph *graph = variant->graph;
    uint32_t count = 0;
    for (uint32_t k = 0; k < graph->nodes.count; k++)
        count += is_choice(graph, graph->nodes.data[k]);
    variant->choices = GT_ARENA_ARRAY(&variant->arena, gt_choice, count + 1);
    if (!variant->choices)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    variant->choice_count = 0;
    for (uint32_t k = 0; k < graph->nodes.count; k++)
        if (is_choice(graph, graph->nodes.data[k]))
            variant->choices[variant->choice_count++] =
                (gt_choice){k, graph->values.data[graph->nodes.data[k]->inputs[0]]->elements[0]};
    if (!count)
        return GANTRY_OK;
    uint8_t *seen = GT_NEW_ARRAY(variant->session->allocator, uint8_t, graph->model->exprs.nodes.count + 1);
    uint8_t *symbols =
        GT_NEW_ARRAY(variant->session->allocator, uint8_t, graph->model->exprs.symbols.count + 1);
    gantry_status status = seen && symbols ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    for (uint32_t k = 0; status == GANTRY_OK && k < count; k++)
        mark_symbols(&graph->model->exprs, variant->choices[k].condition, seen, symbols);
    if (status == GANTRY_OK)
        status = list_symbols(variant, symbols, &variant->choice_symbol_count, &variant->choice_symbols, err);
    gt_free(variant->session->allocator, seen);
    gt_free(variant->session->allocator, symbols);
    return status;
}

uint32_t gt_variant_output_segment(const gt_variant *variant, uint32_t output)
{
    uint32_t producer = variant->graph->values.data[variant->graph->outputs.data[output]]->producer;
    uint32_t partition = producer == GT_NONE ? GT_NONE : variant->placement->partition_of_node[producer];
    uint32_t segment = 0;
    while (segment + 1 < variant->segment_count &&
           (partition == GT_NONE || partition >= variant->segments[segment].first_partition +
                                                     variant->segments[segment].partition_count))
        segment++;
    return segment;
}
