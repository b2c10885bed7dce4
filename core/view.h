/* The graph as providers see it, built from ours. */
#ifndef GT_CORE_VIEW_H
#define GT_CORE_VIEW_H

#include "graph/graph.h"

/* A view and the maps between its indexes and the graph's ids. Everything lives in `arena`. */
typedef struct gt_view {
    gantry_graph_view view;
    uint32_t *value_ids;   /* view index -> graph value id */
    uint32_t *value_index; /* graph value id -> view index, GANTRY_NO_ID when absent */
    uint32_t *node_index;  /* graph node id -> view index, GANTRY_NO_ID when absent */
} gt_view;

/* A view of the whole graph, bodies and composites included (for judging). In every view of one graph value
 * ids and node ids are the graph's own. Composite and body graphs of a node use the ids of their own
 * gt_graph. */
gantry_status gt_view_graph(gt_arena *arena, const gt_graph *graph, gt_view *out_view, gantry_error *err);

/* A view of some nodes only, with given inputs and outputs (value ids): a partition. */
gantry_status gt_view_nodes(gt_arena *arena, const gt_graph *graph, uint32_t node_count,
                            const uint32_t *nodes, uint32_t input_count, const uint32_t *inputs,
                            uint32_t output_count, const uint32_t *outputs, gt_view *out_view,
                            gantry_error *err);

#endif
