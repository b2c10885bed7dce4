/* Pools: windows, one item for each result; and global ones, a group of items for each plane. */
#include "opencl_heavy.h"

/* `more` of a row: what its kernel is compiled with. */
static const char norm[] = "#define NORM\n";

/* ---- windows --------------------------------------------------------------------------------- */

static bool window_limits(const opencl_node *node, gantry_verdict *verdict)
{
    const gantry_attribute *kernel = gantry_node_attribute(node->view, "kernel_shape");
    if (!kernel || kernel->kind != GANTRY_ATTR_INTS || kernel->count == 0)
        return opencl_refuse_attribute(verdict, "kernel_shape", "missing", "one entry each spatial dim");
    if (node->inputs[0].rank != kernel->count + 2)
        return opencl_refuse_rank(verdict, &node->inputs[0], "two more than kernel_shape has entries");
    return opencl_window_limits(node, kernel->ints, verdict) && opencl_same_types(node, verdict);
}

/* Its second result is where the maxima lie. */
static bool max_limits(const opencl_node *node, gantry_verdict *verdict)
{
    return window_limits(node, verdict) && opencl_takes_type(opencl_output(node, 1), OPENCL_I64, verdict);
}

static bool sum_limits(const opencl_node *node, gantry_verdict *verdict)
{
    return window_limits(node, verdict) && opencl_only_first_output(node, verdict);
}

static bool norm_limits(const opencl_node *node, gantry_verdict *verdict)
{
    if (gantry_node_int(node->view, "p", 2) < 1)
        return opencl_refuse_attribute(verdict, "p", "below 1", "1 or more");
    if (node->view->version < 2)
        return opencl_refuse_attribute(verdict, "p", "the fraction of version 1", "an integer");
    return sum_limits(node, verdict);
}

static opencl_window read_window(const opencl_node *node)
{
    opencl_window window;
    opencl_window_read(node, gantry_node_attribute(node->view, "kernel_shape")->ints, &window);
    return window;
}

static void launch_windows(opencl_launch *launch, const opencl_node *node, const opencl_window *window,
                           const char *variant)
{
    double count = (double)opencl_count(&node->outputs[0]);
    double bytes = (double)opencl_bytes(&node->inputs[0]) + (double)opencl_bytes(&node->outputs[0]);
    opencl_launch_items(launch, opencl_product3(window->out), opencl_count_dims(&node->inputs[0], 0, 2), 1);
    opencl_launch_describe(launch, variant, bytes, count * (double)opencl_product3(window->kernel));
}

static void prepare_max(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = &node->inputs[0], *indices = opencl_output(node, 1);
    opencl_window window = read_window(node);
    bool wanted = opencl_is_there(indices), columns = gantry_node_int(node->view, "storage_order", 0) != 0;
    char defines[64];
    snprintf(defines, sizeof defines, "%s%s", wanted ? "#define INDICES\n" : "",
             wanted && columns ? "#define COLUMN_MAJOR\n" : "");
    opencl_launch *launch = opencl_heavy_add(build, x, defines, opencl_pool_source, "pool_max");
    opencl_arg_input(launch, x);
    opencl_arg_output(launch, &node->outputs[0]);
    if (wanted)
        opencl_arg_output(launch, indices);
    opencl_window_args(launch, &window, 7);
    launch_windows(launch, node, &window, "pool:max");
}

static void prepare_sum(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = &node->inputs[0];
    opencl_window window = read_window(node);
    opencl_launch *launch = opencl_heavy_add(build, x, node->op->more, opencl_pool_source, "pool_sum");
    opencl_arg_input(launch, x);
    opencl_arg_output(launch, &node->outputs[0]);
    opencl_window_args(launch, &window, 7);
    opencl_arg_int(launch, gantry_node_int(node->view, "count_include_pad", 0) != 0);
    opencl_arg_float(launch, (float)gantry_node_int(node->view, "p", 2));
    launch_windows(launch, node, &window, node->op->more == norm ? "pool:norm" : "pool:average");
}

/* ---- global ---------------------------------------------------------------------------------- */

static bool global_limits(const opencl_node *node, gantry_verdict *verdict)
{
    if (node->inputs[0].rank < 2)
        return opencl_refuse_rank(verdict, &node->inputs[0], "2 or more");
    if (node->op->more == norm && (node->view->version < 2 || gantry_node_int(node->view, "p", 2) < 1))
        return opencl_refuse_attribute(verdict, "p", "below 1, or a fraction", "an integer, 1 or more");
    return opencl_same_types(node, verdict);
}

static void prepare_global(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = &node->inputs[0];
    opencl_launch *launch = opencl_rows_add(build, node, node->op->more, "pool_row");
    int64_t planes = opencl_count_dims(x, 0, 2), length = opencl_count_dims(x, 2, x->rank);
    opencl_arg_input(launch, x);
    opencl_arg_output(launch, &node->outputs[0]);
    opencl_arg_int(launch, (int32_t)length);
    opencl_arg_float(launch, (float)gantry_node_int(node->view, "p", 2));
    opencl_rows_launch(launch, node, planes, "pool:global");
}

static const opencl_op ops[] = {
    {.name = "MaxPool",
     .domain = "",
     .types = OPENCL_SINGLE_OR_HALF,
     .limits = max_limits,
     .prepare = prepare_max},
    {.name = "AveragePool",
     .domain = "",
     .types = OPENCL_SINGLE_OR_HALF,
     .limits = sum_limits,
     .prepare = prepare_sum,
     .more = ""},
    {.name = "LpPool",
     .domain = "",
     .types = OPENCL_SINGLE_OR_HALF,
     .limits = norm_limits,
     .prepare = prepare_sum,
     .more = norm},
    {.name = "GlobalAveragePool",
     .domain = "",
     .types = OPENCL_SINGLE_OR_HALF,
     .limits = global_limits,
     .prepare = prepare_global,
     .more = ""},
    {.name = "GlobalMaxPool",
     .domain = "",
     .types = OPENCL_SINGLE_OR_HALF,
     .limits = global_limits,
     .prepare = prepare_global,
     .more = "#define MAXIMUM\n"},
    {.name = "GlobalLpPool",
     .domain = "",
     .types = OPENCL_SINGLE_OR_HALF,
     .limits = global_limits,
     .prepare = prepare_global,
     .more = norm},
};
const opencl_op_table opencl_pool_ops = {ops, sizeof ops / sizeof *ops};
