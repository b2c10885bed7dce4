/* Which nodes become one kernel: each node alone, or a convolution or product with what follows it. */
#include "program.h"

static gantry_status group_of_node(cpu_program *program, const gantry_node_view *node, cpu_group *group,
                                   gantry_error *err)
{
    const cpu_op_row *row = cpu_find_op(node->domain, node->op);
    if (!row)
        return gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_COMPILE, node->name,
                       "the CPU has no kernel for %s (node '%s')", node->op, node->name);
    *group = (cpu_group){.node = node,
                         .row = row,
                         .input_count = node->input_count,
                         .inputs = node->inputs,
                         .output_count = node->output_count,
                         .outputs = node->outputs,
                         .node_count = 1,
                         .node_ids = &node->id,
                         .label = node->op};
    return GANTRY_OK;
}

gantry_status cpu_program_group(cpu_program *program, gantry_recorder *recorder, gantry_error *err)
{
    const gantry_graph_view *graph = program->graph;
    program->groups = GT_ARENA_ARRAY(&program->arena, cpu_group, graph->node_count);
    if (!program->groups)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    for (uint32_t k = 0; k < graph->node_count; k++)
        GT_TRY(group_of_node(program, graph->nodes[k], &program->groups[program->group_count++], err));
    return GANTRY_OK;
}
