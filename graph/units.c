/* Units: the nodes that are placed together, and the composites that are put back into their nodes.
 *
 * Units are disjoint and convex. Today each has one node: a composite is one node that stands for several,
 * and Q/DQ groups are left to the providers, who see the neighbours of the node they judge. */
#include "place_parts.h"

/* What the executor can run itself. */
static bool is_control(const gt_node *node)
{
    return !node->domain[0] && (strcmp(node->op_type, "If") == 0 || strcmp(node->op_type, "Loop") == 0);
}

static const char *unit_kind(const gt_node *node)
{
    if (is_control(node))
        return "control";
    return node->composite ? "composite" : "node";
}

/* Where units are put while they are made: one array for all nodes, one for all verdicts. */
typedef struct unit_maker {
    gt_placer *placer;
    uint32_t *nodes;
    gt_kept_verdict *verdicts;
} unit_maker;

static gt_unit make_unit(unit_maker *maker, uint32_t node, const char *kind)
{
    gt_unit unit = {.node_count = 1,
                    .nodes = maker->nodes,
                    .kind = kind,
                    .provider = GT_NONE,
                    .verdicts = maker->verdicts};
    *maker->nodes++ = node;
    maker->verdicts += maker->placer->provider_count;
    return unit;
}

static uint32_t *no_units(gt_arena *arena, uint32_t node_count)
{
    uint32_t *units = GT_ARENA_ARRAY(arena, uint32_t, node_count + 1);
    if (units)
        memset(units, 0xff, node_count * sizeof *units);
    return units;
}

gantry_status gt_units_form(gt_placer *placer, gantry_error *err)
{
    gt_graph *graph = placer->graph;
    gt_placement *placement = placer->placement;
    gt_arena *arena = &placement->arena;
    uint32_t count = graph->order.count;
    unit_maker maker = {.placer = placer};
    maker.nodes = GT_ARENA_ARRAY(arena, uint32_t, count + 1);
    maker.verdicts = GT_ARENA_ARRAY(arena, gt_kept_verdict, (size_t)count * placer->provider_count + 1);
    placement->units = GT_ARENA_ARRAY(arena, gt_unit, count + 1);
    placement->host_units = GT_ARENA_ARRAY(arena, gt_unit, count + 1);
    placement->unit_of_node = no_units(arena, graph->nodes.count);
    placement->host_unit_of_node = no_units(arena, graph->nodes.count);
    placer->able = GT_ARENA_ARRAY(&placer->scratch, uint32_t, count + 1);
    placer->executor = (uint8_t *)gt_arena_alloc(&placer->scratch, count + 1);
    if (!maker.nodes || !maker.verdicts || !placement->units || !placement->host_units ||
        !placement->unit_of_node || !placement->host_unit_of_node || !placer->able || !placer->executor)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t id = graph->order.data[k];
        const gt_node *node = graph->nodes.data[id];
        if (gt_node_runs(node)) {
            placement->unit_of_node[id] = placement->unit_count;
            placement->units[placement->unit_count++] = make_unit(&maker, id, unit_kind(node));
        } else if (!node->removed) {
            placement->host_unit_of_node[id] = placement->host_unit_count;
            placement->host_units[placement->host_unit_count++] = make_unit(&maker, id, "host");
        }
    }
    return GANTRY_OK;
}

/* ---- composites ------------------------------------------------------------------------------ */

static bool types_known(const gt_graph *graph)
{
    for (uint32_t k = 0; k < graph->values.count; k++)
        if (graph->values.data[k]->dtype == GANTRY_UNDEFINED)
            return false;
    return true;
}

static gantry_status runs_whole_body(gt_placer *placer, const gt_graph *body, uint32_t provider,
                                     bool *out_runs, gantry_error *err)
{
    *out_runs = true;
    for (uint32_t k = 0; *out_runs && k < body->order.count; k++) {
        gt_kept_verdict verdict;
        GT_TRY(gt_verdicts_judge(placer, body, &body->order.data[k], 1, provider, &verdict, err));
        *out_runs = verdict.supported;
    }
    return GANTRY_OK;
}

/* Provider by provider: the whole, then the body. A provider that does not know the composite but all its
 * nodes must not lose them because we recognised a pattern. Only refusals of the composite itself open it:
 * pins and policies hold for its nodes as well. */
static gantry_status better_apart(gt_placer *placer, uint32_t index, bool *out_apart, gantry_error *err)
{
    const gt_unit *unit = &placer->placement->units[index];
    const gt_graph *body = placer->graph->nodes.data[unit->nodes[0]]->composite;
    bool shown = false;
    *out_apart = false;
    for (uint32_t p = 0; p < placer->provider_count; p++) {
        if (unit->verdicts[p].supported)
            return GANTRY_OK;
        if (!placer->providers[p].available || placer->able[index] & 1u << p || !types_known(body))
            continue;
        if (!shown)
            GT_TRY(placer->options->show_graph(placer->options->show_self, body, err));
        shown = true;
        GT_TRY(runs_whole_body(placer, body, p, out_apart, err));
        if (*out_apart)
            return GANTRY_OK;
    }
    *out_apart = true; /* nobody takes the whole */
    return GANTRY_OK;
}

gantry_status gt_units_expand(gt_placer *placer, bool *out_changed, gantry_error *err)
{
    *out_changed = false;
    if (!placer->options->show_graph)
        return GANTRY_OK;
    uint32_t count = placer->placement->unit_count;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t node = placer->placement->units[k].nodes[0];
        bool apart = false;
        if (!placer->graph->nodes.data[node]->composite)
            continue;
        GT_TRY(better_apart(placer, k, &apart, err));
        if (!apart)
            continue;
        GT_TRY(gt_graph_expand_composite(placer->graph, node, err));
        *out_changed = true;
    }
    return GANTRY_OK;
}
