/* The report's rows for nodes and partitions: where each node of the file went, and every provider's verdict
 * on it. */
#include "report.h"

/* ---- verdicts -------------------------------------------------------------------------------- */

static const char *const REFUSAL_GROUPS[GANTRY_REFUSE_COUNT] = {
#define GANTRY_REFUSAL(code, group, meaning) [GANTRY_REFUSE_##code] = #group,
#include <gantry/refusals.def>
#undef GANTRY_REFUSAL
};

static const char *group_of(gantry_refusal_code code)
{
    return (size_t)code < GANTRY_REFUSE_COUNT && REFUSAL_GROUPS[code] ? REFUSAL_GROUPS[code] : "unknown";
}

/* A decision of the host about a node that the provider said it can run. */
static bool is_policy(gantry_refusal_code code)
{
    const char *group = group_of(code);
    return strcmp(group, "worth") == 0 || strcmp(group, "user") == 0 ||
           code == GANTRY_REFUSE_precision_policy;
}

static void add_text(json_t *row, const char *key, const char *text)
{
    if (text && text[0])
        json_object_set_new(row, key, gt_report_string(text));
}

static void add_refusal(json_t *row, const gt_kept_verdict *verdict, const char *op)
{
    const gantry_refusal *refusal = verdict->refusal;
    json_object_set_new(row, "reason", json_string(gantry_refusal_text(refusal->code)));
    json_object_set_new(row, "group", json_string(group_of(refusal->code)));
    json_object_set_new(row, "policy", json_boolean(is_policy(refusal->code)));
    add_text(row, "op", op);
    add_text(row, "operand", refusal->operand);
    add_text(row, "actual", refusal->actual);
    add_text(row, "required", refusal->required);
    add_text(row, "remedy", refusal->remedy);
    add_text(row, "detail", refusal->detail);
    json_object_set_new(row, "actual_number", gt_report_number(refusal->actual_number));
    json_object_set_new(row, "limit", gt_report_number(refusal->limit_number));
    if (verdict->boundary_ns != verdict->boundary_ns)
        return;
    json_object_set_new(row, "estimate_here_us", gt_report_us(verdict->estimate_here_ns));
    json_object_set_new(row, "estimate_there_us", gt_report_us(verdict->estimate_there_ns));
    json_object_set_new(row, "boundary_us", gt_report_us(verdict->boundary_ns));
}

/* One provider's answer on one node. */
static json_t *candidate(const char *provider, const gt_kept_verdict *verdict, const char *op)
{
    const gantry_refusal *refusal = verdict->refusal;
    bool late = refusal && strcmp(group_of(refusal->code), "late") == 0;
    bool claimed = verdict->supported || (refusal && (is_policy(refusal->code) || late));
    json_t *row = json_pack("{s:o, s:b, s:b}", "provider", gt_report_string(provider), "supported",
                            verdict->supported, "claimed", claimed);
    if (verdict->estimate_ns > 0) {
        json_object_set_new(row, "estimate_us", gt_report_us(verdict->estimate_ns));
        json_object_set_new(row, "estimate_source", json_string(gt_report_source(verdict->estimate_source)));
    }
    if (refusal)
        add_refusal(row, verdict, op);
    return row;
}

/* Shape arithmetic never leaves the host: of its candidates only the others are shown. */
static json_t *candidates_of(const gantry_session *session, const gt_unit *unit, const char *op, bool host)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; unit && p < session->provider_count; p++) {
        const gt_kept_verdict *verdict = &unit->verdicts[p];
        bool absent = verdict->refusal && verdict->refusal->code == GANTRY_REFUSE_provider_absent;
        if ((verdict->asked || absent) && (host || session->providers[p].domain != 0))
            json_array_append_new(rows, candidate(session->providers[p].name, verdict, op));
    }
    return rows;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

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

static json_t *value_names(const gt_graph *graph, uint32_t count, const uint32_t *ids)
{
    json_t *names = json_array();
    for (uint32_t k = 0; k < count; k++)
        json_array_append_new(names, ids[k] == GT_NONE ? json_null()
                                                       : gt_report_string(graph->values.data[ids[k]]->name));
    return names;
}

static void add_placement(const gt_report_scope *scope, const gt_report_part *part, uint32_t id, json_t *row)
{
    const gt_node *node = part->variant->graph->nodes.data[id];
    const gt_placement *placement = part->variant->placement;
    const gantry_session *session = scope->session;
    uint32_t unit = placement->unit_of_node[id];
    if (unit == GT_NONE) {
        uint32_t host = placement->host_unit_of_node ? placement->host_unit_of_node[id] : GT_NONE;
        json_object_set_new(row, "state", json_string("at_bind"));
        json_object_set_new(row, "provider", gt_report_string(host_provider(session)));
        json_object_set_new(row, "candidates",
                            candidates_of(session, host == GT_NONE ? NULL : &placement->host_units[host],
                                          node->op_type, false));
        return;
    }
    const gt_unit *u = &placement->units[unit];
    uint32_t partition = placement->partition_of_node ? placement->partition_of_node[id] : GT_NONE;
    json_object_set_new(row, "state", json_string(u->provider == GT_NONE ? "unplaced" : "placed"));
    json_object_set_new(row, "provider",
                        u->provider == GT_NONE ? json_null()
                                               : gt_report_string(session->providers[u->provider].name));
    json_object_set_new(row, "partition", partition == GT_NONE ? json_null() : json_integer(partition));
    json_object_set_new(row, "unit", gt_report_string(u->kind));
    json_object_set_new(row, "precision", json_string(executed_precision(part, node, u)));
    json_object_set_new(row, "candidates", candidates_of(session, u, node->op_type, true));
    gt_report_ran_partition ran = {0, 0, 0};
    if (partition != GT_NONE)
        ran = gt_report_partition_ran(part, partition);
    json_object_set_new(row, "executions",
                        scope->run ? gt_report_count(ran.executions) : json_string(GT_NOT_MEASURED));
    if (partition != GT_NONE && placement->partitions[partition].control) {
        json_object_set_new(row, "us", gt_report_measured_us(ran.ns));
        json_object_set_new(row, "us_nodes", json_integer(1));
    }
}

static json_t *node_row(const gt_report_scope *scope, const gt_report_part *part, uint32_t id)
{
    const gt_graph *graph = part->variant->graph;
    const gt_node *node = graph->nodes.data[id];
    json_t *row = json_pack("{s:n, s:o, s:o, s:o, s:i}", "name", "op", gt_report_string(node->op_type),
                            "domain", gt_report_string(node->domain), "node", gt_report_string(node->name),
                            "graph", (int)part->number);
    add_placement(scope, part, id, row);
    json_object_set_new(row, "pass", gt_report_string(node->lineage.pass));
    json_object_set_new(row, "inserted", json_boolean(!node->lineage.count));
    json_object_set_new(row, "inputs", value_names(graph, node->input_count, node->inputs));
    json_object_set_new(row, "outputs", value_names(graph, node->output_count, node->outputs));
    return row;
}

/* A row for each node of the file that `id` stands for; one under its own name when it stands for none. */
static void add_rows(const gt_report_scope *scope, const gt_report_part *part, uint32_t id, uint8_t *listed,
                     json_t *rows)
{
    const gt_node *node = part->variant->graph->nodes.data[id];
    const gt_model *model = scope->session->model;
    json_t *row = node_row(scope, part, id);
    for (uint32_t k = 0; k < node->lineage.count; k++) {
        const gt_source *source = &model->sources.data[node->lineage.sources[k]];
        json_t *copy = json_copy(row);
        listed[node->lineage.sources[k]] = 1;
        json_object_set_new(copy, "name", gt_report_string(source->name));
        json_object_set_new(copy, "op", gt_report_string(source->op));
        json_array_append_new(rows, copy);
    }
    if (!node->lineage.count) {
        json_object_set_new(row, "name", gt_report_string(node->name));
        json_array_append(rows, row);
    }
    json_decref(row);
}

/* A node of the file that no placed graph computes: a pass removed it, or its graph was not placed (so far).
 */
static json_t *other_row(const gantry_session *session, const gt_source *source)
{
    const char *state = source->removed_by ? "removed" : session->created ? "waiting" : "not_placed";
    json_t *row = json_pack("{s:o, s:o, s:o, s:s}", "name", gt_report_string(source->name), "op",
                            gt_report_string(source->op), "domain",
                            gt_report_string(source->domain ? source->domain : ""), "state", state);
    if (source->removed_by) {
        json_object_set_new(row, "reason", gt_report_string(source->removed_by));
        json_object_set_new(row, "pass", gt_report_string(source->removed_pass));
    }
    return row;
}

/* Names of nodes in bodies begin with "CONTROL.ROLE.", whatever became of the control node. */
static const char *containing(const gt_model *model, const uint32_t *controls, uint32_t count,
                              const char *name)
{
    static const char *const ROLES[] = {"body.", "then_branch.", "else_branch."};
    const char *inner = NULL;
    for (uint32_t k = 0; k < count; k++) {
        const char *outer = model->sources.data[controls[k]].name;
        size_t length = strlen(outer);
        if (strncmp(name, outer, length) != 0 || name[length] != '.' || (inner && strlen(inner) > length))
            continue;
        for (size_t r = 0; r < sizeof ROLES / sizeof *ROLES; r++)
            if (strncmp(name + length + 1, ROLES[r], strlen(ROLES[r])) == 0)
                inner = outer;
    }
    return inner;
}

static void note_containing(const gt_report_scope *scope, json_t *rows)
{
    const gt_model *model = scope->session->model;
    gt_allocator *allocator = scope->session->allocator;
    uint32_t *controls = GT_NEW_ARRAY(allocator, uint32_t, model->sources.count + 1), count = 0;
    for (uint32_t k = 0; controls && k < model->sources.count; k++) {
        const char *op = model->sources.data[k].op;
        if (strcmp(op, "If") == 0 || strcmp(op, "Loop") == 0 || strcmp(op, "Scan") == 0)
            controls[count++] = k;
    }
    size_t k;
    json_t *row;
    json_array_foreach(rows, k, row) json_object_set_new(
        row, "inside", gt_report_string(containing(model, controls, count, gt_report_text_at(row, "name"))));
    gt_free(allocator, controls);
}

json_t *gt_report_nodes(const gt_report_scope *scope)
{
    const gt_model *model = scope->session->model;
    gt_allocator *allocator = scope->session->allocator;
    json_t *rows = json_array();
    uint8_t *listed = model ? GT_NEW_ARRAY(allocator, uint8_t, model->sources.count + 1) : NULL;
    if (!listed)
        return rows;
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_graph *graph = scope->parts[p].variant->graph;
        for (uint32_t k = 0; k < graph->order.count; k++)
            if (!graph->nodes.data[graph->order.data[k]]->removed)
                add_rows(scope, &scope->parts[p], graph->order.data[k], listed, rows);
    }
    for (uint32_t k = 0; k < model->sources.count; k++)
        if (!listed[k])
            json_array_append_new(rows, other_row(scope->session, &model->sources.data[k]));
    gt_free(allocator, listed);
    note_containing(scope, rows);
    return rows;
}

/* ---- partitions ------------------------------------------------------------------------------ */

static json_t *partition_row(const gt_report_scope *scope, const gt_report_part *part, uint32_t index)
{
    const gt_variant *variant = part->variant;
    const gt_partition *partition = &variant->placement->partitions[index];
    json_t *nodes = json_array();
    for (uint32_t n = 0; n < partition->node_count; n++)
        json_array_append_new(nodes, gt_report_string(variant->graph->nodes.data[partition->nodes[n]]->name));
    json_t *row =
        json_pack("{s:i, s:i, s:o, s:i, s:b, s:o}", "id", (int)index, "graph", (int)part->number, "provider",
                  gt_report_string(scope->session->providers[partition->provider].name), "segment",
                  (int)partition->segment, "control", partition->control, "nodes", nodes);
    json_object_set_new(row, "inputs",
                        value_names(variant->graph, partition->input_count, partition->inputs));
    json_object_set_new(row, "outputs",
                        value_names(variant->graph, partition->output_count, partition->outputs));
    json_object_set_new(row, "compile_us",
                        variant->programs && variant->programs[index].program
                            ? gt_report_us(variant->programs[index].compile_ns)
                            : json_null());
    json_object_set_new(row, "phases", gt_report_phases(part, index));
    json_object_set_new(row, "cache", gt_report_cache(part, index));
    gt_report_ran_partition ran = gt_report_partition_ran(part, index);
    bool device = !partition->control && scope->session->providers[partition->provider].domain != 0;
    json_object_set_new(row, "executions",
                        scope->run ? gt_report_count(ran.executions) : json_string(GT_NOT_MEASURED));
    json_object_set_new(row, "us", gt_report_measured_us(ran.ns));
    json_object_set_new(row, "launch_us", device ? gt_report_measured_us(ran.launch_ns) : json_null());
    return row;
}

json_t *gt_report_partitions(const gt_report_scope *scope)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < scope->part_count; p++)
        for (uint32_t k = 0; k < scope->parts[p].variant->placement->partition_count; k++)
            json_array_append_new(rows, partition_row(scope, &scope->parts[p], k));
    return rows;
}
