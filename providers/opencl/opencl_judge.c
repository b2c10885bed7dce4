/* What the OpenCL provider can run, and what it would take. */
#include "opencl_ops.h"

static bool judge_node(const opencl_device *device, const gantry_graph_view *graph,
                       const gantry_node_view *view, double *inout_ns, gantry_verdict *verdict)
{
    opencl_node node;
    if (opencl_option_excludes(device, verdict->session_options, view->op)) {
        gantry_refuse(verdict, GANTRY_REFUSE_no_kernel, view->op, "named in opencl.exclude",
                      "an operator that is not", "");
        return false;
    }
    if (!opencl_node_fill(device, graph, view, NULL, false, &node, verdict) ||
        !opencl_node_takes(&node, verdict) ||
        !opencl_node_fill(device, graph, view, NULL, true, &node, verdict))
        return false;
    opencl_work work;
    opencl_node_work(&node, &work);
    if (opencl_is_expression(graph, view))
        opencl_chain_spare(graph, view, &work);
    *inout_ns += opencl_work_ns(device, &work);
    return true;
}

gantry_status opencl_judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    const opencl_device *device = self;
    double total_ns = 0;
    out_verdict->refusal.actual_number = out_verdict->refusal.limit_number = __builtin_nan("");
    for (uint32_t k = 0; k < count; k++)
        if (!judge_node(device, graph, graph->nodes[nodes[k]], &total_ns, out_verdict))
            return GANTRY_OK;
    out_verdict->supported = 1;
    out_verdict->estimate_ns = total_ns;
    out_verdict->estimate_source = device->speed.source;
    return GANTRY_OK;
}
