/* The report's rows for nodes and partitions: where each node of the file went, and every provider's verdict
 * on it. */
#include "report.h"

static const char *estimate_source(char source)
{
    return source == 'm' ? "measured" : source == 'e' ? "estimated" : "assumed";
}

static void add_text(json_t *row, const char *key, const char *text)
{
    if (text && text[0])
        json_object_set_new(row, key, json_string(text));
}

/* One provider's answer on one node. */
static json_t *candidate(const char *provider, const gt_kept_verdict *verdict, const char *op)
{
    json_t *row = json_pack("{s:s, s:b}", "provider", provider, "supported", verdict->supported);
    if (verdict->estimate_ns == verdict->estimate_ns && verdict->estimate_ns > 0) {
        json_object_set_new(row, "estimate_us", gt_report_us(verdict->estimate_ns));
        json_object_set_new(row, "estimate_source", json_string(estimate_source(verdict->estimate_source)));
    }
    const gantry_refusal *refusal = verdict->refusal;
    if (refusal) {
        json_object_set_new(row, "reason", json_string(gantry_refusal_text(refusal->code)));
        json_object_set_new(row, "op", json_string(op));
        add_text(row, "operand", refusal->operand);
        add_text(row, "actual", refusal->actual);
        add_text(row, "required", refusal->required);
        add_text(row, "remedy", refusal->remedy);
        add_text(row, "detail", refusal->detail);
        json_object_set_new(row, "actual_number", gt_report_number(refusal->actual_number));
        json_object_set_new(row, "limit", gt_report_number(refusal->limit_number));
    }
    if (verdict->boundary_ns == verdict->boundary_ns && refusal) {
        json_object_set_new(row, "estimate_here_us", gt_report_us(verdict->estimate_here_ns));
        json_object_set_new(row, "estimate_there_us", gt_report_us(verdict->estimate_there_ns));
        json_object_set_new(row, "boundary_us", gt_report_us(verdict->boundary_ns));
    }
    return row;
}

static json_t *candidates_of(const gantry_session *session, const gt_unit *unit, const char *op)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < session->provider_count; p++)
        if (unit->verdicts[p].asked)
            json_array_append_new(rows, candidate(session->providers[p].name, &unit->verdicts[p], op));
    return rows;
}

/* Shape arithmetic never leaves the host: the others are refused by policy, or could not do it anyway. */
static json_t *host_candidates(const gantry_session *session, const gt_unit *unit, const char *op)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < session->provider_count; p++)
        if (session->providers[p].domain != 0 && unit->verdicts[p].asked)
            json_array_append_new(rows, candidate(session->providers[p].name, &unit->verdicts[p], op));
    return rows;
}

static const char *host_provider(const gantry_session *session)
{
    for (uint32_t p = session->provider_count; p-- > 0;)
        if (session->providers[p].domain == 0)
            return session->providers[p].name;
    return "host";
}

static const char *executed_precision(const gt_report_part *part, const gt_node *node, const gt_unit *unit)
{
    gantry_dtype dtype =
        unit->provider == GT_NONE ? GANTRY_UNDEFINED : unit->verdicts[unit->provider].executes_in;
    for (uint32_t k = 0; !dtype && k < node->output_count; k++)
        if (node->outputs[k] != GT_NONE)
            dtype = part->variant->graph->values.data[node->outputs[k]]->dtype;
    return gantry_dtype_text(dtype);
}

static json_t *inputs_and_outputs(const gt_graph *graph, uint32_t count, const uint32_t *ids)
{
    json_t *names = json_array();
    for (uint32_t k = 0; k < count; k++)
        json_array_append_new(names, ids[k] == GT_NONE ? json_null()
                                                       : json_string(graph->values.data[ids[k]]->name));
    return names;
}

static json_t *placed_row(const gt_report_scope *scope, const gt_report_part *part, uint32_t id)
{
    const gt_node *node = part->variant->graph->nodes.data[id];
    const gt_placement *placement = part->variant->placement;
    uint32_t unit = id < part->variant->graph->nodes.count ? placement->unit_of_node[id] : GT_NONE;
    json_t *row = json_pack("{s:s, s:s, s:s, s:i}", "node", node->name, "op", node->op_type, "domain",
                            node->domain, "graph", (int)part->number);
    json_object_set_new(row, "inputs",
                        inputs_and_outputs(part->variant->graph, node->input_count, node->inputs));
    json_object_set_new(row, "outputs",
                        inputs_and_outputs(part->variant->graph, node->output_count, node->outputs));
    if (node->lineage.pass)
        json_object_set_new(row, "pass", json_string(node->lineage.pass));
    if (unit == GT_NONE) {
        uint32_t host_unit = placement->host_unit_of_node ? placement->host_unit_of_node[id] : GT_NONE;
        json_object_set_new(row, "state", json_string("at_bind"));
        json_object_set_new(row, "provider", json_string(host_provider(scope->session)));
        json_object_set_new(
            row, "candidates",
            host_unit == GT_NONE
                ? json_array()
                : host_candidates(scope->session, &placement->host_units[host_unit], node->op_type));
        return row;
    }
    const gt_unit *u = &placement->units[unit];
    json_object_set_new(row, "state", json_string(u->provider == GT_NONE ? "unplaced" : "placed"));
    json_object_set_new(row, "provider",
                        u->provider == GT_NONE ? json_null()
                                               : json_string(scope->session->providers[u->provider].name));
    uint32_t partition = placement->partition_of_node ? placement->partition_of_node[id] : GT_NONE;
    json_object_set_new(row, "partition", partition == GT_NONE ? json_null() : json_integer(partition));
    json_object_set_new(row, "unit", json_string(u->kind));
    json_object_set_new(row, "precision", json_string(executed_precision(part, node, u)));
    json_object_set_new(row, "candidates", candidates_of(scope->session, u, node->op_type));
    return row;
}

/* A row for each node of the file that `id` stands for; one under its own name when it stands for none. */
static void add_rows(const gt_report_scope *scope, const gt_report_part *part, uint32_t id, json_t *rows)
{
    const gt_node *node = part->variant->graph->nodes.data[id];
    const gt_model *model = scope->session->model;
    json_t *row = placed_row(scope, part, id);
    for (uint32_t k = 0; k < node->lineage.count; k++) {
        json_t *copy = k + 1 < node->lineage.count ? json_copy(row) : json_incref(row);
        const gt_source *source = &model->sources.data[node->lineage.sources[k]];
        json_object_set_new(copy, "name", json_string(source->name));
        json_object_set_new(copy, "op", json_string(source->op));
        json_array_append_new(rows, copy);
    }
    if (!node->lineage.count) {
        json_object_set_new(row, "name", json_string(node->name));
        json_array_append(rows, row);
    }
    json_decref(row);
}

json_t *gt_report_nodes(const gt_report_scope *scope)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_graph *graph = scope->parts[p].variant->graph;
        for (uint32_t k = 0; k < graph->order.count; k++)
            if (!graph->nodes.data[graph->order.data[k]]->removed)
                add_rows(scope, &scope->parts[p], graph->order.data[k], rows);
    }
    const gt_model *model = scope->session->model;
    for (uint32_t k = 0; model && k < model->sources.count; k++) {
        const gt_source *source = &model->sources.data[k];
        if (source->removed_by)
            json_array_append_new(
                rows, json_pack("{s:s, s:s, s:s, s:s, s:s, s:s?}", "name", source->name, "op", source->op,
                                "domain", source->domain ? source->domain : "", "state", "removed", "reason",
                                source->removed_by, "pass", source->removed_pass));
    }
    return rows;
}

json_t *gt_report_partitions(const gt_report_scope *scope)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_variant *variant = scope->parts[p].variant;
        for (uint32_t k = 0; k < variant->placement->partition_count; k++) {
            const gt_partition *partition = &variant->placement->partitions[k];
            json_t *nodes = json_array();
            for (uint32_t n = 0; n < partition->node_count; n++)
                json_array_append_new(nodes,
                                      json_string(variant->graph->nodes.data[partition->nodes[n]]->name));
            json_t *row = json_pack("{s:i, s:i, s:s, s:i, s:b, s:o}", "id", (int)k, "graph",
                                    (int)scope->parts[p].number, "provider",
                                    scope->session->providers[partition->provider].name, "segment",
                                    (int)partition->segment, "control", partition->control, "nodes", nodes);
            json_object_set_new(
                row, "inputs", inputs_and_outputs(variant->graph, partition->input_count, partition->inputs));
            json_object_set_new(
                row, "outputs",
                inputs_and_outputs(variant->graph, partition->output_count, partition->outputs));
            json_object_set_new(row, "compile_us",
                                variant->programs ? gt_report_us(variant->programs[k].compile_ns)
                                                  : json_null());
            json_array_append_new(rows, row);
        }
    }
    return rows;
}
