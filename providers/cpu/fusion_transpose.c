/* Weights that a product reads through a Transpose: packing takes any strides, so the transposed copy is
 * never made. */
#include "fusion.h"

static bool swaps_two_axes(const gantry_node_view *node)
{
    const gantry_attribute *perm = gantry_node_attribute(node, "perm");
    return !perm || !perm->count || (perm->count == 2 && perm->ints[0] == 1 && perm->ints[1] == 0);
}

static bool is_transposed_weight(const cpu_program *program, const gantry_node_view *node)
{
    const gantry_value_view *from = gantry_node_input(program->graph, node, 0);
    return node->domain[0] == 0 && strcmp(node->op, "Transpose") == 0 && from && from->rank == 2 &&
           from->dtype == GANTRY_FLOAT32 && from->constant_id != GANTRY_NO_ID && swaps_two_axes(node);
}

static bool is_product(const gantry_node_view *node)
{
    return node->domain[0] == 0 && (strcmp(node->op, "MatMul") == 0 || strcmp(node->op, "Gemm") == 0);
}

const uint32_t *cpu_find_transposed_weights(const cpu_program *program, const cpu_uses *uses)
{
    const gantry_graph_view *graph = program->graph;
    uint32_t *source = GT_ARENA_ARRAY((gt_arena *)&program->arena, uint32_t, graph->value_count);
    if (!source)
        return NULL;
    memset(source, 0xFF, graph->value_count * sizeof *source);
    for (uint32_t k = 0; k < graph->node_count; k++)
        if (is_transposed_weight(program, graph->nodes[k]) && !uses->is_output[graph->nodes[k]->outputs[0]])
            source[graph->nodes[k]->outputs[0]] = graph->nodes[k]->inputs[0];
    for (uint32_t k = 0; k < graph->node_count; k++)
        for (uint32_t j = 0; j < graph->nodes[k]->input_count; j++) {
            uint32_t value = graph->nodes[k]->inputs[j];
            if (value != GANTRY_NO_ID && !(j == 1 && is_product(graph->nodes[k])))
                source[value] = GANTRY_NO_ID;
        }
    return source;
}
