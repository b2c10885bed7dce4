/* The edges of a graph as placement sees them: which node reads which value how, and in which segment it can
 * run. */
#include "place_parts.h"

/* Values read by one node are merged: slot[value] is where this node's read of it stands. */
typedef struct edge_builder {
    gt_placer *placer;
    uint32_t *owner; /* by value: 1 + the node that read it last */
    uint32_t *slot;
    GT_VEC(gt_read) reads;
} edge_builder;

bool gt_edges_is_known(const gt_graph *graph, uint32_t value_id)
{
    const gt_value *value = graph->values.data[value_id];
    return gt_value_is_fixed(value) ||
           (value->producer != GT_NONE && graph->nodes.data[value->producer]->at_bind);
}

static bool elements_known(const gt_value *value)
{
    if (!value->elements)
        return false;
    for (uint32_t k = 0; k < value->element_count; k++)
        if (value->elements[k] == GT_EXPR_UNKNOWN)
            return false;
    return true;
}

static gt_read_kind operand_kind(const gt_graph *graph, const gt_node *node, uint32_t index)
{
    const gt_value *value = graph->values.data[node->inputs[index]];
    bool known = gt_edges_is_known(graph, node->inputs[index]);
    bool shape_operand = node->op && index < 32 && node->op->shape_operands & 1u << index;
    if (shape_operand && (known || elements_known(value)))
        return GT_READ_HOST;
    return known ? GT_READ_KNOWN : GT_READ_TENSOR;
}

/* The executor itself reads the condition of an If and the trip count and condition of a Loop; all else it
 * hands on. */
static gt_read_kind executor_kind(const gt_graph *graph, const gt_node *node, uint32_t index)
{
    uint32_t own = strcmp(node->op_type, "If") == 0 ? 1 : strcmp(node->op_type, "Loop") == 0 ? 2 : 0;
    if (gt_edges_is_known(graph, node->inputs[index]))
        return GT_READ_KNOWN;
    return index < own ? GT_READ_TENSOR : GT_READ_ANYWHERE;
}

static gantry_status add_read(edge_builder *builder, uint32_t node, uint32_t value, gt_read_kind kind,
                              gantry_error *err)
{
    if (gt_value_is_fixed(builder->placer->graph->values.data[value]))
        return GANTRY_OK;
    if (builder->owner[value] == node + 1) {
        gt_read *read = &builder->reads.data[builder->slot[value]];
        if (read->kind < kind)
            read->kind = kind;
        return GANTRY_OK;
    }
    builder->owner[value] = node + 1;
    builder->slot[value] = builder->reads.count;
    return gt_vec_push(builder->placer->allocator, &builder->reads, ((gt_read){value, kind}))
               ? GANTRY_OK
               : gt_out_of_memory(err, GANTRY_STAGE_PLACE);
}

static gantry_status add_reads_of(edge_builder *builder, uint32_t node_id, gantry_error *err)
{
    const gt_placer *placer = builder->placer;
    const gt_graph *graph = placer->graph;
    const gt_node *node = graph->nodes.data[node_id];
    bool executor = placer->executor[placer->placement->unit_of_node[node_id]];
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] != GT_NONE)
            GT_TRY(add_read(builder, node_id, node->inputs[k],
                            executor ? executor_kind(graph, node, k) : operand_kind(graph, node, k), err));
    for (uint32_t b = 0; b < node->body_count; b++) {
        const gt_graph *body = node->bodies[b].graph;
        for (uint32_t v = 0; v < body->values.count; v++) {
            uint32_t outer = body->values.data[v]->captured;
            if (outer == GT_NONE)
                continue;
            gt_read_kind kind = gt_edges_is_known(graph, outer) ? GT_READ_KNOWN
                                : executor                      ? GT_READ_ANYWHERE
                                                                : GT_READ_TENSOR;
            GT_TRY(add_read(builder, node_id, outer, kind, err));
        }
    }
    return GANTRY_OK;
}

/* From reads by node to users by value. */
static gantry_status turn_around(gt_placer *placer, gantry_error *err)
{
    const gt_graph *graph = placer->graph;
    gt_edges *edges = &placer->edges;
    uint32_t value_count = graph->values.count;
    uint32_t total = edges->read_first[graph->nodes.count];
    edges->user_first = GT_ARENA_ARRAY(&placer->scratch, uint32_t, value_count + 2);
    edges->users = GT_ARENA_ARRAY(&placer->scratch, uint32_t, total + 1);
    edges->user_kinds = GT_ARENA_ARRAY(&placer->scratch, gt_read_kind, total + 1);
    if (!edges->user_first || !edges->users || !edges->user_kinds)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    /* Counted two places up, summed one up: filling then moves each start to where it belongs. */
    for (uint32_t k = 0; k < total; k++)
        edges->user_first[edges->reads[k].value + 2]++;
    for (uint32_t v = 2; v < value_count + 2; v++)
        edges->user_first[v] += edges->user_first[v - 1];
    for (uint32_t k = 0; k < graph->order.count; k++) {
        uint32_t node = graph->order.data[k];
        for (uint32_t r = edges->read_first[node]; r < edges->read_first[node + 1]; r++) {
            uint32_t at = edges->user_first[edges->reads[r].value + 1]++;
            edges->users[at] = node;
            edges->user_kinds[at] = edges->reads[r].kind;
        }
    }
    return GANTRY_OK;
}

static uint32_t elements_segment(const gt_graph *graph, const gt_value *value)
{
    uint32_t segment = 0;
    for (uint32_t k = 0; value->elements && k < value->element_count; k++) {
        uint32_t s = value->elements[k] == GT_EXPR_UNKNOWN
                         ? 0
                         : gt_expr_segment(&graph->model->exprs, value->elements[k]);
        segment = s > segment ? s : segment;
    }
    return segment;
}

/* A node runs in no segment before its own, nor before those of its operands. What a node at bind computes is
 * known when the symbols in it are. */
static gantry_status find_segments(gt_placer *placer, gantry_error *err)
{
    const gt_graph *graph = placer->graph;
    placer->segments = GT_ARENA_ARRAY(&placer->scratch, uint32_t, graph->nodes.count + 1);
    if (!placer->segments)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    for (uint32_t k = 0; k < graph->order.count; k++) {
        uint32_t id = graph->order.data[k], segment = graph->nodes.data[id]->segment;
        const gt_node *node = graph->nodes.data[id];
        for (uint32_t o = 0; node->at_bind && o < node->output_count; o++)
            if (node->outputs[o] != GT_NONE) {
                uint32_t s = elements_segment(graph, graph->values.data[node->outputs[o]]);
                segment = s > segment ? s : segment;
            }
        for (uint32_t r = placer->edges.read_first[id]; r < placer->edges.read_first[id + 1]; r++) {
            const gt_read *read = &placer->edges.reads[r];
            const gt_value *value = graph->values.data[read->value];
            uint32_t s = value->producer == GT_NONE ? 0 : placer->segments[value->producer];
            if (read->kind == GT_READ_HOST) {
                uint32_t known = elements_segment(graph, value);
                s = known > s ? known : s;
            }
            segment = s > segment ? s : segment;
        }
        placer->segments[id] = segment;
    }
    return GANTRY_OK;
}

static gantry_status collect_reads(gt_placer *placer, edge_builder *builder, gantry_error *err)
{
    const gt_graph *graph = placer->graph;
    uint32_t node_count = graph->nodes.count;
    builder->owner = GT_ARENA_ARRAY(&placer->scratch, uint32_t, graph->values.count + 1);
    builder->slot = GT_ARENA_ARRAY(&placer->scratch, uint32_t, graph->values.count + 1);
    placer->edges.read_first = GT_ARENA_ARRAY(&placer->scratch, uint32_t, node_count + 2);
    if (!builder->owner || !builder->slot || !placer->edges.read_first)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    for (uint32_t id = 0; id < node_count; id++) {
        placer->edges.read_first[id] = builder->reads.count;
        if (placer->placement->unit_of_node[id] != GT_NONE)
            GT_TRY(add_reads_of(builder, id, err));
    }
    placer->edges.read_first[node_count] = builder->reads.count;
    placer->edges.reads = (gt_read *)gt_arena_copy(&placer->scratch, builder->reads.data,
                                                   builder->reads.count * sizeof(gt_read));
    return placer->edges.reads ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_PLACE);
}

gantry_status gt_edges_build(gt_placer *placer, gantry_error *err)
{
    edge_builder builder = {.placer = placer};
    gantry_status status = collect_reads(placer, &builder, err);
    gt_vec_free(placer->allocator, &builder.reads);
    GT_TRY(status);
    GT_TRY(turn_around(placer, err));
    return find_segments(placer, err);
}

uint32_t gt_edges_source_domain(const gt_placer *placer, uint32_t value_id)
{
    const gt_value *value = placer->graph->values.data[value_id];
    uint32_t unit = value->producer == GT_NONE ? GT_NONE : placer->placement->unit_of_node[value->producer];
    if (unit != GT_NONE && !placer->executor[unit])
        return gt_placer_domain(placer, placer->placement->units[unit].provider);
    const uint32_t *given = placer->options->source_domain;
    return given && given[value_id] != GT_NONE ? given[value_id] : 0;
}

double gt_edges_outside_share(const gt_placer *placer, uint32_t value_id)
{
    const gt_value *value = placer->graph->values.data[value_id];
    uint32_t unit = value->producer == GT_NONE ? GT_NONE : placer->placement->unit_of_node[value->producer];
    if (!placer->options->outside_share || (unit != GT_NONE && !placer->executor[unit]))
        return -1;
    return placer->options->outside_share[value_id];
}

uint32_t gt_edges_output_domain(const gt_placer *placer, uint32_t output)
{
    const uint32_t *given = placer->options->output_domain;
    return given && given[output] != GT_NONE ? given[output] : 0;
}
