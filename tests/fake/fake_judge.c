/* Verdicts of the fake device: operators, element types, Q/DQ form, limits, inputs read on the host. */
#include "fake.h"

void fake_op_name(const gantry_node_view *node, char *out_name, size_t capacity)
{
    if (node->domain && *node->domain)
        snprintf(out_name, capacity, "%s.%s", node->domain, node->op);
    else
        snprintf(out_name, capacity, "%s", node->op);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void append(char *text, size_t capacity, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, capacity - used, "%s%s", used ? ", " : "", more);
}

static void list_types(const fake_rule *rule, char *out_text, size_t capacity)
{
    *out_text = 0;
    for (uint32_t k = 0; k < rule->type_count; k++)
        append(out_text, capacity, fake_dtype_text(rule->types[k]));
}

/* The types of the data operands: of a QLinear operator the two factors and the result, without scales and
 * zero points; of any other all inputs. */
static void list_operands(const gantry_graph_view *graph, const gantry_node_view *node, char *out_text,
                          size_t capacity)
{
    bool qlinear = strncmp(node->op, "QLinear", 7) == 0;
    *out_text = 0;
    for (uint32_t k = 0; k < node->input_count; k++) {
        const gantry_value_view *value = gantry_node_input(graph, node, k);
        if (value && (!qlinear || k == 0 || k == 3))
            append(out_text, capacity, fake_dtype_text(value->dtype));
    }
    const gantry_value_view *result = gantry_node_output(graph, node, 0);
    if (qlinear && result)
        append(out_text, capacity, fake_dtype_text(result->dtype));
}

/* ---- Q/DQ form ------------------------------------------------------------------------------- */

static const gantry_node_view *find_producer(const gantry_graph_view *graph, uint32_t value)
{
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->output_count; k++)
            if (graph->nodes[n]->outputs[k] == value)
                return graph->nodes[n];
    return NULL;
}

static bool is_op(const gantry_node_view *node, const char *op)
{
    return node && strcmp(node->op, op) == 0 && (!node->domain || !*node->domain);
}

/* Whether all that read the value are QuantizeLinear nodes, and there is one. */
static bool is_quantized(const gantry_graph_view *graph, uint32_t value)
{
    bool found = false;
    for (uint32_t k = 0; k < graph->output_count; k++)
        if (graph->outputs[k] == value)
            return false;
    for (uint32_t n = 0; n < graph->node_count; n++)
        for (uint32_t k = 0; k < graph->nodes[n]->input_count; k++)
            if (graph->nodes[n]->inputs[k] == value) {
                if (!is_op(graph->nodes[n], "QuantizeLinear") || k != 0)
                    return false;
                found = true;
            }
    return found;
}

static bool is_float(gantry_dtype dtype)
{
    return dtype == GANTRY_FLOAT32 || dtype == GANTRY_FLOAT16 || dtype == GANTRY_FLOAT64 ||
           dtype == GANTRY_BFLOAT16;
}

/* The bias of these three may stay in float. */
static bool is_bias(const gantry_node_view *node, uint32_t input)
{
    return input >= 2 && (is_op(node, "Conv") || is_op(node, "ConvTranspose") || is_op(node, "Gemm"));
}

static bool refuse_no_range(const gantry_value_view *value, const char *actual, const char *required,
                            gantry_verdict *verdict)
{
    gantry_refuse(verdict, GANTRY_REFUSE_no_range, value->name, actual, required, "insert_qdq");
    snprintf(verdict->refusal.detail, sizeof verdict->refusal.detail,
             "float operators run in Q/DQ form only");
    return false;
}

/* A float operator on a device that computes in int8. */
static bool takes_in_qdq_form(const gantry_graph_view *graph, const gantry_node_view *node,
                              const fake_rule *rule, gantry_verdict *verdict)
{
    char wanted[96];
    list_types(rule, wanted, sizeof wanted);
    for (uint32_t k = 0; k < node->input_count; k++) {
        const gantry_value_view *value = gantry_node_input(graph, node, k);
        if (!value || !is_float(value->dtype) || is_bias(node, k))
            continue;
        const gantry_node_view *producer = find_producer(graph, node->inputs[k]);
        if (!is_op(producer, "DequantizeLinear"))
            return refuse_no_range(value, "no scale", "the output of a DequantizeLinear", verdict);
        const gantry_value_view *quantized = gantry_node_input(graph, producer, 0);
        if (quantized && !fake_rule_takes(rule, quantized->dtype)) {
            gantry_refuse(verdict, GANTRY_REFUSE_dtype, quantized->name, fake_dtype_text(quantized->dtype),
                          wanted, "");
            return false;
        }
    }
    const gantry_value_view *result = gantry_node_output(graph, node, 0);
    if (result && !is_quantized(graph, node->outputs[0]))
        return refuse_no_range(result, "no scale", "read by QuantizeLinear only", verdict);
    return true;
}

/* ---- one node -------------------------------------------------------------------------------- */

static bool takes_types(const fake_config *config, const gantry_graph_view *graph,
                        const gantry_node_view *node, const fake_rule *rule, gantry_verdict *verdict)
{
    const gantry_value_view *value = gantry_node_input(graph, node, 0);
    bool is_quantizer = is_op(node, "QuantizeLinear") || is_op(node, "DequantizeLinear");
    if (!value)
        value = gantry_node_output(graph, node, 0);
    if (!value)
        return true;
    if (config->compute == GANTRY_INT8 && is_float(value->dtype) && !is_quantizer)
        return takes_in_qdq_form(graph, node, rule, verdict);
    if (fake_rule_takes(rule, value->dtype))
        return true;
    char wanted[96];
    list_types(rule, wanted, sizeof wanted);
    gantry_refuse(verdict, GANTRY_REFUSE_dtype, value->name, fake_dtype_text(value->dtype), wanted,
                  "insert_cast");
    return false;
}

/* Extent `axis` of a value, from the shapes of a reshape or from the view. */
static int64_t find_extent(const gantry_graph_view *graph, uint32_t value, int32_t axis,
                           const gantry_shape *shapes)
{
    const gantry_value_view *view = graph->values[value];
    int32_t rank = shapes ? (int32_t)shapes[value].rank : view->rank;
    const int64_t *dims = shapes ? shapes[value].dims : view->dims;
    int32_t k = axis < 0 ? axis + rank : axis;
    return rank < 0 || k < 0 || k >= rank ? GANTRY_DIM_UNKNOWN : dims[k];
}

bool fake_breaks_limit(const fake_config *config, const gantry_graph_view *graph,
                       const gantry_node_view *node, const gantry_shape *shapes_of_values,
                       gantry_verdict *verdict)
{
    char op[128];
    fake_op_name(node, op, sizeof op);
    for (uint32_t k = 0; k < config->limit_count; k++) {
        const fake_limit *limit = &config->limits[k];
        const gantry_value_view *value = gantry_node_input(graph, node, limit->input);
        if (strcmp(limit->op, op) != 0 || !value)
            continue;
        int64_t extent = find_extent(graph, node->inputs[limit->input], limit->axis, shapes_of_values);
        if (extent == GANTRY_DIM_UNKNOWN || extent <= limit->max)
            continue;
        char actual[32], required[32];
        snprintf(actual, sizeof actual, "%lld", (long long)extent);
        snprintf(required, sizeof required, "at most %lld", (long long)limit->max);
        gantry_refuse(verdict, GANTRY_REFUSE_shape_limit, value->name, actual, required, "");
        snprintf(verdict->refusal.detail, sizeof verdict->refusal.detail, "%s: input%u.dim[%d]", op,
                 limit->input, limit->axis);
        verdict->refusal.actual_number = (double)extent;
        verdict->refusal.limit_number = (double)limit->max;
        return true;
    }
    return false;
}

bool fake_reads_on_host(const fake_config *config, const gantry_node_view *node, uint32_t input)
{
    char op[128];
    fake_op_name(node, op, sizeof op);
    for (uint32_t k = 0; k < config->host_input_count; k++)
        if (config->host_inputs[k].input == input && strcmp(config->host_inputs[k].op, op) == 0)
            return true;
    return false;
}

/* Inputs it reads on the host are known before the run; no size is found out by running. */
static bool knows_enough(const fake_config *config, const gantry_graph_view *graph,
                         const gantry_node_view *node, gantry_verdict *verdict)
{
    for (uint32_t k = 0; k < node->input_count; k++) {
        const gantry_value_view *value = gantry_node_input(graph, node, k);
        if (!value || !fake_reads_on_host(config, node, k) ||
            (value->flags & (GANTRY_VALUE_CONSTANT | GANTRY_VALUE_HOST_KNOWN)))
            continue;
        gantry_refuse(verdict, GANTRY_REFUSE_shape_dynamic, value->name, "computed by the run",
                      "known before the run", "");
        return false;
    }
    for (uint32_t k = 0; k < node->output_count; k++) {
        const gantry_value_view *value = gantry_node_output(graph, node, k);
        if (!value || !(value->flags & GANTRY_VALUE_BOUNDED))
            continue;
        gantry_refuse(verdict, GANTRY_REFUSE_shape_dynamic, value->name, "a size that depends on data",
                      "a size known before the run", "");
        return false;
    }
    return true;
}

bool fake_judge_node(const fake_config *config, const gantry_graph_view *graph, const gantry_node_view *node,
                     gantry_verdict *verdict)
{
    char op[128];
    fake_op_name(node, op, sizeof op);
    const fake_rule *rule = fake_find_rule(config->ops, config->op_count, op);
    if (!rule) {
        char types[96];
        list_operands(graph, node, types, sizeof types);
        gantry_refuse(verdict, node->body_count ? GANTRY_REFUSE_control_flow : GANTRY_REFUSE_no_kernel,
                      node->op, types, "", "");
        return false;
    }
    return takes_types(config, graph, node, rule, verdict) && knows_enough(config, graph, node, verdict) &&
           !fake_breaks_limit(config, graph, node, NULL, verdict) &&
           (!node->body_count || fake_takes_bodies(config, graph, node, verdict));
}

/* ---- the unit -------------------------------------------------------------------------------- */

static double count_elements(const gantry_graph_view *graph, const gantry_node_view *node)
{
    double total = 0;
    for (uint32_t k = 0; k < node->output_count; k++) {
        const gantry_value_view *value = gantry_node_output(graph, node, k);
        double count = value ? 1 : 0;
        for (int32_t d = 0; value && d < value->rank; d++)
            count *= (double)value->typical_dims[d];
        total += count;
    }
    return total;
}

/* Work as scripted, else a device that takes 1 us a kernel and 0.05 ns an element. */
static double estimate_ns(const fake_config *config, const gantry_graph_view *graph,
                          const gantry_node_view *node)
{
    char op[128];
    fake_op_name(node, op, sizeof op);
    double us = fake_work_us(config, op);
    double work = us >= 0 ? us * 1e3 : 1e3 + 0.05 * count_elements(graph, node);
    return work + config->enqueue_us * 1e3;
}

gantry_dtype fake_executes_in(const fake_config *config, const gantry_graph_view *graph,
                              const gantry_node_view *node)
{
    if (config->compute != GANTRY_FLOAT16)
        return config->compute;
    for (uint32_t k = 0; k < node->input_count + node->output_count; k++) {
        const gantry_value_view *value = k < node->input_count
                                             ? gantry_node_input(graph, node, k)
                                             : gantry_node_output(graph, node, k - node->input_count);
        if (value && (value->dtype == GANTRY_FLOAT32 || value->dtype == GANTRY_FLOAT16))
            return GANTRY_FLOAT16;
    }
    return GANTRY_UNDEFINED;
}

gantry_status fake_judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                         gantry_verdict *out_verdict)
{
    const fake_provider *provider = self;
    out_verdict->refusal.actual_number = out_verdict->refusal.limit_number = __builtin_nan("");
    if (provider->script.fail[FAKE_CALL_JUDGE] &&
        fake_call_begin(provider->domain, &((fake_provider *)self)->script, FAKE_CALL_JUDGE, NULL) !=
            GANTRY_OK)
        return GANTRY_PROVIDER;
    for (uint32_t k = 0; k < count; k++)
        if (fake_excludes(provider, out_verdict->session_options, graph->nodes[nodes[k]]->op)) {
            gantry_refuse(out_verdict, GANTRY_REFUSE_no_kernel, graph->nodes[nodes[k]]->op, "excluded", "",
                          "");
            return GANTRY_OK;
        }
    for (uint32_t k = 0; k < count; k++)
        if (!fake_judge_node(&provider->config, graph, graph->nodes[nodes[k]], out_verdict))
            return GANTRY_OK;
    out_verdict->supported = 1;
    out_verdict->estimate_source = 'a';
    out_verdict->estimate_ns = 0;
    out_verdict->executes_in = GANTRY_UNDEFINED;
    for (uint32_t k = 0; k < count; k++) {
        const gantry_node_view *node = graph->nodes[nodes[k]];
        gantry_dtype executes_in = fake_executes_in(&provider->config, graph, node);
        out_verdict->estimate_ns += estimate_ns(&provider->config, graph, node);
        if (executes_in != GANTRY_UNDEFINED)
            out_verdict->executes_in = executes_in;
    }
    return GANTRY_OK;
}
