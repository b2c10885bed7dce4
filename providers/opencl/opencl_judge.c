/* What the OpenCL provider can run, and what it would take. */
#include "opencl.h"

static bool is_one_of_ours(const gantry_node_view *node)
{
    static const char *const ops[] = {"Add", "MatMul", "Relu"};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        if (strcmp(node->op, ops[k]) == 0 && !*node->domain)
            return true;
    return false;
}

static bool refuse_rank(gantry_verdict *verdict, const char *tensor, uint32_t rank, const char *required)
{
    char actual[32];
    snprintf(actual, sizeof actual, "%u", rank);
    gantry_refuse(verdict, GANTRY_REFUSE_rank, tensor, actual, required, "");
    verdict->refusal.actual_number = rank;
    return false;
}

bool opencl_takes_shapes(const gantry_node_view *node, const char *tensor_a, gantry_shape a, gantry_shape b,
                         gantry_verdict *verdict)
{
    if (strcmp(node->op, "Add") == 0 && (a.rank > OPENCL_MAX_RANK || b.rank > OPENCL_MAX_RANK))
        return refuse_rank(verdict, tensor_a, a.rank > b.rank ? a.rank : b.rank, "at most 8");
    if (strcmp(node->op, "MatMul") != 0)
        return true;
    if (a.rank < 2 || b.rank < 2)
        return refuse_rank(verdict, tensor_a, a.rank < b.rank ? a.rank : b.rank, "2 or more");
    if (b.rank != 2 && b.rank != a.rank)
        return refuse_rank(verdict, tensor_a, b.rank,
                           "a second operand of rank 2 or of the first one's rank");
    for (uint32_t k = 0; b.rank > 2 && k + 2 < a.rank; k++)
        if (a.dims[k] >= 0 && b.dims[k] >= 0 && a.dims[k] != b.dims[k]) {
            gantry_refuse(verdict, GANTRY_REFUSE_layout, tensor_a, "batches that are broadcast",
                          "equal batches", "");
            return false;
        }
    return true;
}

static bool judge_node(const gantry_graph_view *graph, const gantry_node_view *node, gantry_verdict *verdict)
{
    if (!is_one_of_ours(node)) {
        const gantry_value_view *first = gantry_node_input(graph, node, 0);
        gantry_refuse(verdict, GANTRY_REFUSE_no_kernel, node->op, "", "Add, MatMul or Relu", "");
        if (first)
            snprintf(verdict->refusal.detail, sizeof verdict->refusal.detail, "input 0 is %s", first->name);
        return false;
    }
    gantry_shape shapes[2] = {{0, NULL}, {0, NULL}};
    const char *names[2] = {"", ""};
    for (uint32_t k = 0; k < node->input_count && k < 2; k++) {
        const gantry_value_view *value = gantry_node_input(graph, node, k);
        if (!value || value->dtype != GANTRY_FLOAT32) {
            gantry_refuse(verdict, GANTRY_REFUSE_dtype, value ? value->name : "", "no float32", "float32",
                          "insert_cast");
            return false;
        }
        if (value->rank < 0) {
            gantry_refuse(verdict, GANTRY_REFUSE_shape_dynamic, value->name, "unknown rank", "a known rank",
                          "");
            return false;
        }
        if (value->flags & GANTRY_VALUE_BOUNDED) {
            gantry_refuse(verdict, GANTRY_REFUSE_shape_dynamic, value->name, "a size that depends on data",
                          "a size known before the run", "");
            return false;
        }
        names[k] = value->name;
        shapes[k] = (gantry_shape){(uint32_t)value->rank, value->dims};
    }
    return opencl_takes_shapes(node, names[0], shapes[0], shapes[1], verdict);
}

static double count_typical(const gantry_value_view *value)
{
    double count = value ? 1 : 0;
    for (int32_t k = 0; value && k < value->rank; k++)
        count *= (double)value->typical_dims[k];
    return count;
}

/* A launch takes about 10 us; the naive kernels compute about 10 operations a nanosecond and move 10 bytes.
 */
static double estimate_ns(const gantry_graph_view *graph, const gantry_node_view *node)
{
    double elements = count_typical(gantry_node_output(graph, node, 0)), depth = 1;
    const gantry_value_view *a = gantry_node_input(graph, node, 0);
    if (strcmp(node->op, "MatMul") == 0 && a && a->rank > 0)
        depth = 2 * (double)a->typical_dims[a->rank - 1];
    return 10e3 + elements * (depth / 10 + 1.2);
}

gantry_status opencl_judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    double total_ns = 0;
    out_verdict->refusal.actual_number = out_verdict->refusal.limit_number = __builtin_nan("");
    for (uint32_t k = 0; k < count; k++) {
        if (!judge_node(graph, graph->nodes[nodes[k]], out_verdict))
            return GANTRY_OK;
        total_ns += estimate_ns(graph, graph->nodes[nodes[k]]);
    }
    out_verdict->supported = 1;
    out_verdict->estimate_ns = total_ns;
    out_verdict->estimate_source = 'a';
    return GANTRY_OK;
}
