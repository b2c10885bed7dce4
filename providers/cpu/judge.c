/* What the CPU provider answers when asked about a unit: rules and an assumed cost, no device work. */
#include "program.h"

#include <math.h>

/* Assumed speeds of one core; every estimate made from them says so (source 'a'). */
static const struct {
    double vendor_flops_per_ns; /* float32 products through oneDNN */
    double plain_flops_per_ns;  /* our own C loops */
    double bytes_per_ns;        /* main memory */
    double kernel_ns;           /* one call, whatever its size */
} assumed = {60.0, 2.0, 8.0, 300.0};

/* The elements of a value at its typical dims; 1 when its rank is unknown. */
static double typical_count(const gantry_value_view *value)
{
    double count = 1;
    for (int32_t k = 0; value->typical_dims && k < value->rank; k++)
        count *= (double)value->typical_dims[k];
    return count;
}

static double typical_bytes(const gantry_value_view *value)
{
    return value ? typical_count(value) * cpu_dtype_bits(value->dtype) / 8 : 0;
}

static double estimate_ns(const gantry_graph_view *graph, const gantry_node_view *node, const cpu_op_row *row)
{
    double bytes = 0, count = 0;
    for (uint32_t k = 0; k < node->input_count; k++)
        bytes += typical_bytes(gantry_node_input(graph, node, k));
    for (uint32_t k = 0; k < node->output_count; k++) {
        const gantry_value_view *output = gantry_node_output(graph, node, k);
        bytes += typical_bytes(output);
        count += output ? typical_count(output) : 0;
    }
    const gantry_value_view *first = gantry_node_input(graph, node, 0);
    bool library = row->flops && first && first->dtype == GANTRY_FLOAT32;
    double flops = row->flops ? row->flops(graph, node) : count;
    double compute_ns = flops / (library ? assumed.vendor_flops_per_ns : assumed.plain_flops_per_ns);
    double memory_ns = bytes / assumed.bytes_per_ns;
    return assumed.kernel_ns + (compute_ns > memory_ns ? compute_ns : memory_ns);
}

static uint32_t mask_of_input(const cpu_op_row *row, uint32_t index)
{
    const uint32_t capacity = sizeof row->types / sizeof *row->types;
    uint32_t last = 0;
    for (uint32_t k = 0; k < capacity; k++)
        if (row->types[k])
            last = k;
    return row->types[index < last ? index : last];
}

bool cpu_row_takes(const cpu_op_row *row, uint32_t index, gantry_dtype dtype)
{
    if (cpu_dtype_bits(dtype) == 0)
        return false;
    uint32_t mask = row->types[0] ? mask_of_input(row, index) : 0;
    return mask == 0 || (mask & CPU_BIT(dtype));
}

static void print_types(uint32_t mask, char *text, size_t capacity)
{
    size_t length = 0;
    text[0] = 0;
    for (unsigned t = 1; t < GANTRY_DTYPE_COUNT && length < capacity; t++)
        if (mask & CPU_BIT(t))
            length += (size_t)snprintf(text + length, capacity - length, "%s%s", length ? ", " : "",
                                       cpu_dtype_name((gantry_dtype)t));
}

/* "uint8, int8": the types of a node's inputs, for refusals. */
static void print_input_types(const gantry_graph_view *graph, const gantry_node_view *node, char *text,
                              size_t capacity)
{
    size_t length = 0;
    text[0] = 0;
    for (uint32_t k = 0; k < node->input_count && length < capacity; k++) {
        const gantry_value_view *value = gantry_node_input(graph, node, k);
        length += (size_t)snprintf(text + length, capacity - length, "%s%s", k ? ", " : "",
                                   value ? cpu_dtype_name(value->dtype) : "-");
    }
}

/* Whether type is listed in the option "cpu.disable_types" ("float64,int64"). */
static bool is_disabled(const cpu_provider *provider, const gantry_verdict *verdict, gantry_dtype type)
{
    const char *list = provider->host->option(provider->host, verdict->session_options, "cpu.disable_types");
    if (!list)
        return false;
    const char *name = cpu_dtype_name(type);
    size_t length = strlen(name);
    for (const char *at = list; *at;) {
        at += strspn(at, ", ");
        size_t word = strcspn(at, ", ");
        if (word == length && memcmp(at, name, length) == 0)
            return true;
        at += word;
    }
    return false;
}

/* Refuses values no kernel of this provider can hold. A Cast only converts: it may read and write types that
 * are not to be computed in, or nobody could get out of them. */
static bool value_is_refused(const cpu_provider *provider, const gantry_node_view *node,
                             const gantry_value_view *value, gantry_verdict *verdict)
{
    if (!value)
        return false;
    if (value->kind != GANTRY_KIND_TENSOR)
        gantry_refuse(verdict, GANTRY_REFUSE_no_kernel, value->name, "no tensor", "tensor", "");
    else if (value->rank > GANTRY_MAX_RANK)
        gantry_refuse(verdict, GANTRY_REFUSE_rank, value->name, "", "rank 16 or less", "");
    else if (cpu_dtype_bits(value->dtype) == 0 ||
             (strcmp(node->op, "Cast") != 0 && is_disabled(provider, verdict, value->dtype)))
        gantry_refuse(verdict, GANTRY_REFUSE_dtype, value->name, cpu_dtype_name(value->dtype),
                      cpu_dtype_bits(value->dtype) ? "a type not in cpu.disable_types" : "a numeric type",
                      "insert_cast");
    else
        return false;
    return true;
}

static bool types_are_refused(const gantry_graph_view *graph, const gantry_node_view *node,
                              const cpu_op_row *row, gantry_verdict *verdict)
{
    for (uint32_t k = 0; k < node->input_count; k++) {
        const gantry_value_view *value = gantry_node_input(graph, node, k);
        if (!value || cpu_row_takes(row, k, value->dtype))
            continue;
        char required[96];
        print_types(mask_of_input(row, k), required, sizeof required);
        gantry_refuse(verdict, GANTRY_REFUSE_dtype, value->name, cpu_dtype_name(value->dtype), required,
                      "insert_cast");
        snprintf(verdict->refusal.detail, sizeof verdict->refusal.detail, "%s takes no %s as input %u",
                 node->op, cpu_dtype_name(value->dtype), k);
        return true;
    }
    return false;
}

static void judge_node(const cpu_provider *provider, const gantry_graph_view *graph,
                       const gantry_node_view *node, gantry_verdict *verdict)
{
    verdict->supported = 1;
    char types[96];
    print_input_types(graph, node, types, sizeof types);
    const cpu_op_row *row = cpu_find_op(node->domain, node->op);
    if (!row) {
        gantry_refuse(verdict, node->body_count ? GANTRY_REFUSE_control_flow : GANTRY_REFUSE_no_kernel,
                      node->op, types, "", "");
        return;
    }
    for (uint32_t k = 0; k < node->input_count; k++)
        if (value_is_refused(provider, node, gantry_node_input(graph, node, k), verdict))
            return;
    for (uint32_t k = 0; k < node->output_count; k++)
        if (value_is_refused(provider, node, gantry_node_output(graph, node, k), verdict))
            return;
    if (types_are_refused(graph, node, row, verdict))
        return;
    if (row->judge)
        row->judge(graph, node, verdict);
    if (verdict->supported)
        verdict->estimate_ns += estimate_ns(graph, node, row);
}

gantry_status cpu_judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                        gantry_verdict *out_verdict)
{
    if (out_verdict->struct_bytes < sizeof(gantry_verdict))
        return GANTRY_INVALID_ARGUMENT;
    out_verdict->estimate_ns = 0;
    out_verdict->estimate_source = 'a';
    out_verdict->executes_in = GANTRY_UNDEFINED;
    out_verdict->supported = 0;
    for (uint32_t k = 0; k < count; k++) {
        judge_node(self, graph, graph->nodes[nodes[k]], out_verdict);
        if (!out_verdict->supported)
            return GANTRY_OK;
    }
    return GANTRY_OK;
}
