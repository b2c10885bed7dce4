/* Chains of elementwise operators on one tensor of bytes, with scalar constants, from a DequantizeLinear to a
 * QuantizeLinear: whatever they compute is a table of 256 results, made here by the operators' own kernels. A
 * chain goes on through further pairs of QuantizeLinear and DequantizeLinear, and may fork and join. */
#include "fusion_qdq.h"

#define COUNT 256

static bool is_elementwise(const gantry_node_view *node)
{
    static const char *const names[] = {"Add",     "Sub",         "Mul",       "Div",       "Relu", "Clip",
                                        "Sigmoid", "HardSigmoid", "HardSwish", "LeakyRelu", "Tanh", "Erf",
                                        "Elu",     "Softplus",    "Exp",       "Sqrt",      "Neg",  "Abs",
                                        "Gelu",    "Silu",        "Swish",     "Min",       "Max",  "Pow"};
    if (node->domain[0] != 0 && strcmp(node->domain, "gantry") != 0)
        return false;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strcmp(node->op, names[k]) == 0)
            return node->output_count == 1;
    return false;
}

static bool is_scalar_constant(const cpu_qdq *q, uint32_t value)
{
    const gantry_value_view *view = cpu_qdq_value(q, value);
    int64_t count = 1;
    for (int32_t k = 0; k < view->rank; k++)
        count *= view->dims[k];
    return view->constant_id != GANTRY_NO_ID && view->rank >= 0 && count == 1;
}

/* The bytes that a value is a function of; GANTRY_NO_ID: none, it is constant. False: it is not such a
 * function. */
static bool root_of(const cpu_qdq *q, uint32_t value, uint32_t *out_root)
{
    *out_root = q->roots[value].root;
    return q->roots[value].found;
}

static bool root_of_inputs(const cpu_qdq *q, const gantry_node_view *node, uint32_t count, uint32_t *out_root)
{
    *out_root = GANTRY_NO_ID;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t root = GANTRY_NO_ID;
        if (node->inputs[k] == GANTRY_NO_ID)
            continue;
        if (!root_of(q, node->inputs[k], &root) ||
            (root != GANTRY_NO_ID && *out_root != GANTRY_NO_ID && root != *out_root))
            return false;
        *out_root = root != GANTRY_NO_ID ? root : *out_root;
    }
    return true;
}

static bool compute_root(const cpu_qdq *q, uint32_t value, uint32_t *out_root)
{
    const gantry_node_view *node = cpu_qdq_producer(q, value);
    const gantry_value_view *view = cpu_qdq_value(q, value);
    bool is_byte = cpu_qdq_is_byte(view);
    *out_root = GANTRY_NO_ID;
    if (view->constant_id != GANTRY_NO_ID)
        return is_scalar_constant(q, value);
    if (node && (cpu_qdq_is_op(node, "QuantizeLinear") || cpu_qdq_is_op(node, "DequantizeLinear")) &&
        node->input_count >= 2 && cpu_qdq_params(q, node).scalar && root_of(q, node->inputs[0], out_root) &&
        *out_root != GANTRY_NO_ID)
        return is_byte || view->dtype == GANTRY_FLOAT32;
    *out_root = value;
    if (is_byte)
        return true;
    if (node && cpu_qdq_is_op(node, "DequantizeLinear") && node->input_count >= 2 &&
        cpu_qdq_params(q, node).scalar && is_scalar_constant(q, node->inputs[0])) {
        *out_root = GANTRY_NO_ID;
        return true;
    }
    return node && view->dtype == GANTRY_FLOAT32 && is_elementwise(node) &&
           root_of_inputs(q, node, node->input_count, out_root) && *out_root != GANTRY_NO_ID &&
           cpu_qdq_value(q, *out_root)->rank == view->rank;
}

/* The roots of what the value is made from are known. A chain too long for a group ends: bytes in it are
 * roots of what follows. */
static void find_root(cpu_qdq *q, uint32_t value)
{
    cpu_qdq_root *r = &q->roots[value];
    const gantry_node_view *node = cpu_qdq_producer(q, value);
    r->found = compute_root(q, value, &r->root);
    if (!node || !r->found || r->root == value)
        return;
    for (uint32_t k = 0; k < node->input_count; k++) {
        uint32_t before = node->inputs[k] == GANTRY_NO_ID ? 0 : q->roots[node->inputs[k]].depth;
        r->depth = r->depth > before ? r->depth : before;
    }
    if (++r->depth > CPU_QDQ_MAX_NODES)
        *r = (cpu_qdq_root){.found = cpu_qdq_is_byte(cpu_qdq_value(q, value)), .root = value};
}

void cpu_qdq_find_roots(cpu_qdq *q)
{
    const gantry_graph_view *graph = q->f->program->graph;
    for (uint32_t k = 0; k < graph->value_count; k++)
        if (q->f->uses.producer[k] == GANTRY_NO_ID)
            find_root(q, k);
    for (uint32_t k = 0; k < graph->node_count; k++)
        for (uint32_t j = 0; j < graph->nodes[k]->output_count; j++)
            if (graph->nodes[k]->outputs[j] != GANTRY_NO_ID)
                find_root(q, graph->nodes[k]->outputs[j]);
}

/* ---- results --------------------------------------------------------------------------------- */

static gantry_tensor tensor_over(gantry_dtype dtype, const int64_t *dims, void *data)
{
    gantry_tensor tensor = {
        .struct_bytes = sizeof tensor, .dtype = dtype, .rank = dims ? 1 : 0, .dims = dims};
    tensor.buffer.handle = data;
    return tensor;
}

static const void *results_of(cpu_qdq *q, cpu_qdq_match *m, uint32_t value, uint32_t root);

/* The operand of one node: constants as they are, else 256 results. */
static bool fill_operand(cpu_qdq *q, cpu_qdq_match *m, uint32_t value, uint32_t root,
                         gantry_tensor *out_tensor)
{
    static const int64_t dims[1] = {COUNT};
    const gantry_value_view *view = cpu_qdq_value(q, value);
    uint32_t own;
    if (view->constant_id != GANTRY_NO_ID) {
        void *copy = gt_arena_alloc(&q->scratch, 16);
        size_t bytes = 0;
        *out_tensor = tensor_over(view->dtype, NULL, copy);
        return copy && cpu_qdq_read(q, value, copy, 16, &bytes) && bytes <= 16;
    }
    if (!root_of(q, value, &own))
        return false;
    const void *data = results_of(q, m, value, root);
    *out_tensor = tensor_over(view->dtype, own == GANTRY_NO_ID ? NULL : dims, (void *)data);
    return data != NULL;
}

/* All 256 results of a value, or the one of a constant; the nodes on the way are absorbed. */
static const void *results_of(cpu_qdq *q, cpu_qdq_match *m, uint32_t value, uint32_t root)
{
    static const int64_t dims[1] = {COUNT};
    gantry_tensor inputs[8], output;
    uint8_t *out = gt_arena_alloc(&q->scratch, COUNT * sizeof(float));
    if (!out)
        return NULL;
    for (int k = 0; k < COUNT && value == root; k++)
        out[k] = (uint8_t)k;
    if (value == root)
        return out;
    const gantry_node_view *node = cpu_qdq_producer(q, value);
    uint32_t own, index = q->f->uses.producer[value];
    if (node->input_count > 8 || !root_of(q, value, &own))
        return NULL;
    for (uint32_t k = 0; k < node->input_count; k++) {
        inputs[k] = (gantry_tensor){.struct_bytes = sizeof inputs[k]};
        if (node->inputs[k] != GANTRY_NO_ID && !fill_operand(q, m, node->inputs[k], root, &inputs[k]))
            return NULL;
    }
    output = tensor_over(cpu_qdq_value(q, value)->dtype, own == GANTRY_NO_ID ? NULL : dims, out);
    cpu_provider *provider = q->f->program->provider;
    gantry_error unused = GANTRY_ERROR_INIT;
    bool good = cpu_evaluate(provider, q->f->program->graph, index, inputs, &output, &unused) == GANTRY_OK;
    return good && cpu_qdq_absorb(m, index) ? out : NULL;
}

bool cpu_qdq_table(cpu_qdq *q, uint32_t quantize, cpu_qdq_match *m)
{
    const gantry_node_view *node = q->f->program->graph->nodes[quantize];
    uint32_t root;
    if (!root_of(q, node->outputs[0], &root) || root == GANTRY_NO_ID || root == node->outputs[0])
        return false;
    const void *results = results_of(q, m, node->outputs[0], root);
    m->table = results ? gt_arena_copy(&q->f->program->arena, results, COUNT) : NULL;
    if (!m->table)
        return false;
    const gantry_node_view *before = cpu_qdq_producer(q, node->inputs[0]);
    m->node = before && !cpu_qdq_is_op(before, "DequantizeLinear") ? before : node;
    m->row = &cpu_table_row;
    m->rule = "qdq_table";
    cpu_qdq_operand(q, m, root);
    return true;
}
