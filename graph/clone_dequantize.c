/* A DequantizeLinear that several providers read gets a copy for each of them, so that the quantized bytes
 * cross the boundary and not four times as many. */
#include "place_parts.h"

#define PASS "clone_dequantize"

/* One copy to make: of the node of `unit`, on `provider`, read by users[first_user..] of that provider. */
typedef struct copy_order {
    uint32_t unit;
    uint32_t provider;
    uint32_t node; /* once it is made */
} copy_order;

typedef struct copy_list {
    GT_VEC(copy_order) orders;
} copy_list;

static bool is_dequantize(const gt_node *node)
{
    return strcmp(node->op_type, "DequantizeLinear") == 0 && node->domain[0] == 0 && node->output_count == 1;
}

/* Bits of the providers that read the value as a tensor; the executor's control nodes stay with the original.
 */
static uint32_t reading_providers(const gt_placer *placer, uint32_t value)
{
    const gt_edges *edges = &placer->edges;
    uint32_t readers = 0;
    for (uint32_t k = edges->user_first[value]; k < edges->user_first[value + 1]; k++) {
        uint32_t unit = placer->placement->unit_of_node[edges->users[k]];
        if (!placer->executor[unit])
            readers |= 1u << placer->placement->units[unit].provider;
    }
    return readers;
}

static gantry_status order_copies(gt_placer *placer, uint32_t unit_index, copy_list *list, gantry_error *err)
{
    const gt_unit *unit = &placer->placement->units[unit_index];
    const gt_node *node = placer->graph->nodes.data[unit->nodes[0]];
    uint32_t readers = reading_providers(placer, node->outputs[0]);
    bool several =
        (readers & (readers - 1)) || (readers && placer->graph->values.data[node->outputs[0]]->is_output);
    for (uint32_t p = 0; several && p < placer->provider_count; p++) {
        if (p == unit->provider || !(readers & 1u << p) || !unit->verdicts[p].supported)
            continue;
        if (!gt_vec_push(placer->allocator, &list->orders, ((copy_order){unit_index, p, GT_NONE})))
            return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    }
    return GANTRY_OK;
}

static void describe_alike(gt_value *value, const gt_value *like)
{
    value->kind = like->kind;
    value->dtype = like->dtype;
    value->rank = like->rank;
    value->dims = like->dims;
    value->element_count = like->element_count;
    value->elements = like->elements;
}

static gantry_status make_copy(gt_placer *placer, copy_order *order, gantry_error *err)
{
    gt_graph *graph = placer->graph;
    uint32_t original = placer->placement->units[order->unit].nodes[0];
    const gt_node *node = graph->nodes.data[original];
    char name[512];
    snprintf(name, sizeof name, "%s/%s", node->name, placer->providers[order->provider].name);
    uint32_t output;
    GT_TRY(gt_graph_add_value(graph, NULL, &output, err));
    GT_TRY(gt_graph_add_node(graph, name, node->domain, node->op_type, node->opset, node->input_count,
                             node->inputs, 1, &output, &order->node, err));
    gt_node *copy = graph->nodes.data[order->node];
    copy->attribute_count = node->attribute_count;
    copy->attributes = node->attributes;
    GT_TRY(gt_lineage_join(graph->model, graph, &original, 1, PASS, &copy->lineage, err));
    copy->segment = node->segment;
    copy->version = node->version;
    describe_alike(graph->values.data[output], graph->values.data[node->outputs[0]]);
    return GANTRY_OK;
}

/* The readers on the copy's provider read the copy. */
static void redirect_readers(gt_placer *placer, const copy_order *order)
{
    gt_graph *graph = placer->graph;
    const gt_edges *edges = &placer->edges;
    uint32_t from = graph->nodes.data[placer->placement->units[order->unit].nodes[0]]->outputs[0];
    uint32_t to = graph->nodes.data[order->node]->outputs[0];
    for (uint32_t k = edges->user_first[from]; k < edges->user_first[from + 1]; k++) {
        uint32_t unit = placer->placement->unit_of_node[edges->users[k]];
        if (placer->executor[unit] || placer->placement->units[unit].provider != order->provider)
            continue;
        gt_node *reader = graph->nodes.data[edges->users[k]];
        for (uint32_t i = 0; i < reader->input_count; i++)
            if (reader->inputs[i] == from)
                reader->inputs[i] = to;
    }
}

static gantry_status append_units(gt_placer *placer, const copy_list *list, gantry_error *err)
{
    gt_placement *placement = placer->placement;
    gt_arena *arena = &placement->arena;
    uint32_t old_count = placement->unit_count, count = old_count + list->orders.count;
    uint32_t old_nodes = list->orders.data[0].node, node_count = placer->graph->nodes.count;
    size_t verdict_bytes = placer->provider_count * sizeof(gt_kept_verdict);
    gt_unit *units = GT_ARENA_ARRAY(arena, gt_unit, count);
    uint32_t *unit_of_node = GT_ARENA_ARRAY(arena, uint32_t, node_count);
    uint32_t *host_unit_of_node = GT_ARENA_ARRAY(arena, uint32_t, node_count);
    uint8_t *executor = (uint8_t *)gt_arena_alloc(&placer->scratch, count);
    uint32_t *able = GT_ARENA_ARRAY(&placer->scratch, uint32_t, count);
    if (!units || !unit_of_node || !host_unit_of_node || !executor || !able)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    memcpy(units, placement->units, old_count * sizeof *units);
    memcpy(unit_of_node, placement->unit_of_node, old_nodes * sizeof *unit_of_node);
    memset(host_unit_of_node, 0xff, node_count * sizeof *host_unit_of_node);
    memcpy(host_unit_of_node, placement->host_unit_of_node, old_nodes * sizeof *host_unit_of_node);
    memcpy(executor, placer->executor, old_count);
    memcpy(able, placer->able, old_count * sizeof *able);
    for (uint32_t k = 0; k < list->orders.count; k++) {
        const copy_order *order = &list->orders.data[k];
        gt_unit *unit = &units[old_count + k];
        *unit = units[order->unit];
        unit->provider = order->provider;
        unit->nodes = (const uint32_t *)gt_arena_copy(arena, &order->node, sizeof order->node);
        unit->verdicts = (gt_kept_verdict *)gt_arena_copy(arena, unit->verdicts, verdict_bytes);
        if (!unit->nodes || !unit->verdicts)
            return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
        able[old_count + k] = able[order->unit];
        unit_of_node[order->node] = old_count + k;
    }
    placement->units = units;
    placement->unit_of_node = unit_of_node;
    placement->host_unit_of_node = host_unit_of_node;
    placement->unit_count = count;
    placer->executor = executor;
    placer->able = able;
    return GANTRY_OK;
}

static gantry_status make_copies(gt_placer *placer, copy_list *list, gantry_error *err)
{
    for (uint32_t k = 0; k < list->orders.count; k++)
        GT_TRY(make_copy(placer, &list->orders.data[k], err));
    for (uint32_t k = 0; k < list->orders.count; k++)
        redirect_readers(placer, &list->orders.data[k]);
    gt_graph_changed(placer->graph);
    GT_TRY(append_units(placer, list, err));
    GT_TRY(gt_graph_sort(placer->graph, err));
    GT_TRY(gt_typical_bytes(placer->graph, &placer->scratch, &placer->bytes, err));
    return gt_edges_build(placer, err);
}

gantry_status gt_dequantize_clone(gt_placer *placer, gantry_error *err)
{
    copy_list list = {0};
    gantry_status status = GANTRY_OK;
    for (uint32_t k = 0; status == GANTRY_OK && k < placer->placement->unit_count; k++) {
        const gt_unit *unit = &placer->placement->units[k];
        if (unit->node_count == 1 && is_dequantize(placer->graph->nodes.data[unit->nodes[0]]))
            status = order_copies(placer, k, &list, err);
    }
    if (status == GANTRY_OK && list.orders.count)
        status = make_copies(placer, &list, err);
    gt_vec_free(placer->allocator, &list.orders);
    return status;
}
