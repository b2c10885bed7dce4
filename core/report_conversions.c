/* The report's rows for conversions: where a provider wants a value in a layout of its own, what the step
 * that converts it cost. They are boundaries inside of a domain. */
#include "report.h"

/* One edge of a partition at which a value changes its format. */
typedef struct conversion {
    const gt_report_part *part;
    uint32_t partition, value;
    bool input;
    gantry_format from, to;
    const gantry_value_view *view;
} conversion;

static bool is_step_of(const conversion *c, const gt_step *step)
{
    return step->kind == GT_STEP_CONVERT && step->value == c->value &&
           step->provider == c->part->variant->placement->partitions[c->partition].provider &&
           step->from.tag == c->from.tag && step->to.tag == c->to.tag;
}

/* ---- what it cost ---------------------------------------------------------------------------- */

typedef struct effort {
    uint64_t executions, bytes, total;
    double ns;
} effort;

static effort effort_of(const conversion *c)
{
    const gt_frame *frame = c->part->frame;
    effort sum = {0, 0, 0, 0};
    for (uint32_t s = 0; frame && s < frame->states.count; s++) {
        const gt_plan_state *state = frame->states.data[s];
        for (uint32_t k = 0; k < state->plan->step_count; k++) {
            const gt_step *step = &state->plan->steps[k];
            if (!is_step_of(c, step))
                continue;
            sum.total += state->executions;
            if (!gt_report_ran(state, frame))
                continue;
            sum.executions += state->run_executions;
            sum.bytes += state->run_executions * state->plan->slots[step->target].bytes;
            sum.ns += gt_report_step_ns(frame, state, k);
        }
    }
    return sum;
}

static void add_effort(const gt_report_scope *scope, const conversion *c, json_t *row)
{
    effort sum = effort_of(c);
    bool run = scope->run != NULL;
    json_object_set_new(row, "executions",
                        run ? gt_report_count(sum.executions) : json_string(GT_NOT_MEASURED));
    json_object_set_new(row, "bytes", run ? gt_report_count(sum.bytes) : json_string(GT_NOT_MEASURED));
    json_object_set_new(row, "executions_total",
                        run ? gt_report_count(sum.total) : json_string(GT_NOT_MEASURED));
    json_object_set_new(row, "us", gt_report_measured_us(run && sum.executions ? sum.ns : __builtin_nan("")));
}

/* In the provider's words, for typical sizes. */
static double estimate_ns(const gt_report_scope *scope, const conversion *c)
{
    const gt_partition *partition = &c->part->variant->placement->partitions[c->partition];
    const gantry_provider *table = scope->session->providers[partition->provider].entry->table;
    if (c->view->rank < 0)
        return __builtin_nan("");
    gantry_shape typical = {(uint32_t)c->view->rank, c->view->typical_dims};
    double ns = table->convert_estimate_ns(table->self, &c->from, &c->to, c->view->dtype, &typical);
    return ns >= 0 ? ns : __builtin_nan("");
}

static double typical_bytes(const gantry_value_view *view)
{
    double count = view->rank < 0 ? __builtin_nan("") : 1;
    for (int32_t d = 0; d < view->rank; d++)
        count *= (double)view->typical_dims[d];
    return count * gantry_dtype_bits(view->dtype) / 8;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool reads(const gt_node *node, uint32_t value)
{
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] == value)
            return true;
    return false;
}

static json_t *consumers_of(const conversion *c)
{
    const gt_variant *variant = c->part->variant;
    json_t *names = json_array();
    for (uint32_t k = 0; k < variant->graph->order.count; k++) {
        uint32_t id = variant->graph->order.data[k];
        const gt_node *node = variant->graph->nodes.data[id];
        bool here = !node->removed && (variant->placement->partition_of_node[id] == c->partition) == c->input;
        if (here && reads(node, c->value))
            json_array_append_new(names, gt_report_string(node->name));
    }
    return names;
}

/* Who made an input: a partition's provider, or the domain where it came to lie. */
static const char *maker_of(const gt_report_scope *scope, const conversion *c, uint32_t domain)
{
    const gt_placement *placement = c->part->variant->placement;
    uint32_t producer = c->part->variant->graph->values.data[c->value]->producer;
    uint32_t maker = producer == GT_NONE ? GT_NONE : placement->partition_of_node[producer];
    return maker == GT_NONE || placement->partitions[maker].control
               ? scope->session->domains[domain].name
               : scope->session->providers[placement->partitions[maker].provider].name;
}

static json_t *conversion_row(const gt_report_scope *scope, const conversion *c)
{
    const gt_graph *graph = c->part->variant->graph;
    const gt_value *value = graph->values.data[c->value];
    const gt_session_provider *provider =
        &scope->session->providers[c->part->variant->placement->partitions[c->partition].provider];
    const char *domain = scope->session->domains[provider->domain].name;
    bool outer = c->input ? value->input_index >= 0 : value->is_output;
    json_t *row =
        json_pack("{s:o, s:s, s:s, s:i, s:s, s:b, s:b, s:s}", "tensor", gt_report_string(value->name), "type",
                  c->from.dtype == c->to.dtype ? "layout" : "precision", "scope",
                  outer ? "boundary" : "inner", "graph", (int)c->part->number, "direction", "inside",
                  "pinned", 0, "synchronizing", 0, "estimate_source", "estimated");
    json_object_set_new(row, "source",
                        gt_report_string(c->input ? maker_of(scope, c, provider->domain) : provider->name));
    json_object_set_new(row, "target", gt_report_string(c->input ? provider->name : domain));
    json_object_set_new(row, "source_domain", gt_report_string(domain));
    json_object_set_new(row, "target_domain", gt_report_string(domain));
    json_object_set_new(
        row, "producer",
        gt_report_string(value->producer == GT_NONE ? NULL : graph->nodes.data[value->producer]->name));
    json_object_set_new(row, "consumers", consumers_of(c));
    json_object_set_new(row, "graph_input", json_boolean(value->input_index >= 0));
    json_object_set_new(row, "graph_output", json_boolean(!c->input && value->is_output));
    json_object_set_new(row, "bytes_typical", gt_report_number(typical_bytes(c->view)));
    json_object_set_new(row, "estimate_us", gt_report_us(estimate_ns(scope, c)));
    add_effort(scope, c, row);
    return row;
}

static void add_edge(const gt_report_scope *scope, const gt_report_part *part, uint32_t partition, uint32_t k,
                     bool input, json_t *rows)
{
    const gt_partition *of = &part->variant->placement->partitions[partition];
    const gt_program *program = &part->variant->programs[partition];
    const gantry_format *format = input ? &program->input_formats[k] : &program->output_formats[k];
    const gantry_graph_view *view = &program->view.view;
    if (!format->tag || (input ? gt_formats_is_given(part->variant, partition, k)
                               : !gt_formats_needs_default(part->variant, partition, k)))
        return;
    conversion c = {part,
                    partition,
                    input ? of->inputs[k] : of->outputs[k],
                    input,
                    *format,
                    *format,
                    view->values[input ? view->inputs[k] : view->outputs[k]]};
    *(input ? &c.from : &c.to) = (gantry_format){c.view->dtype, 0, 0};
    json_array_append_new(rows, conversion_row(scope, &c));
}

void gt_report_conversions(const gt_report_scope *scope, const gt_report_part *part, json_t *rows)
{
    for (uint32_t p = 0; part->variant->programs && p < part->variant->placement->partition_count; p++) {
        const gt_partition *partition = &part->variant->placement->partitions[p];
        if (partition->control || !part->variant->programs[p].program)
            continue;
        for (uint32_t k = 0; k < partition->input_count; k++)
            add_edge(scope, part, p, k, true, rows);
        for (uint32_t k = 0; k < partition->output_count; k++)
            add_edge(scope, part, p, k, false, rows);
    }
}
