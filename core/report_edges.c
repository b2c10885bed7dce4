/* The report's rows for boundaries: what crosses between domains and precisions, who makes it and who reads
 * it, how often, and how many bytes. */
#include "report.h"

/* Who is at one end: a provider, or the memory of the caller or of a control node's bodies. */
static const char *end_name(const gt_report_scope *scope, const gt_variant *variant, uint32_t partition,
                            uint32_t domain)
{
    return partition == GT_NONE || variant->placement->partitions[partition].control
               ? scope->session->domains[domain].name
               : scope->session->providers[variant->placement->partitions[partition].provider].name;
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* Executions, bytes and time of what one boundary caused, in the last run. */
typedef struct traffic {
    uint64_t run_executions, run_bytes, total_executions;
    double run_ns;
    bool timed;    /* every execution */
    bool pageable; /* some copy had its host end in memory that is not pinned */
} traffic;

static bool has_host_boundary(const gt_placement *placement, uint32_t value)
{
    for (uint32_t k = 0; k < placement->boundary_count; k++)
        if (placement->boundaries[k].value == value && placement->boundaries[k].source_domain != 0 &&
            placement->boundaries[k].target_domain == 0)
            return true;
    return false;
}

/* Between two devices a value goes through the host: both copies are the boundary's, unless the host wanted
 * the value itself. */
static bool is_copy_of(const gt_plan *plan, const gt_step *step, const gt_boundary *boundary)
{
    if (step->kind != GT_STEP_TRANSFER || step->value != boundary->value)
        return false;
    uint32_t from = plan->slots[step->source].domain, to = plan->slots[step->target].domain;
    if (from == to)
        return false;
    if (to == boundary->target_domain)
        return from == boundary->source_domain || from == 0;
    return from == boundary->source_domain && to == 0 && boundary->target_domain != 0 &&
           !has_host_boundary(plan->variant->placement, boundary->value);
}

static void count_state(const gt_frame *frame, const gt_plan_state *state, const gt_boundary *boundary,
                        traffic *sum)
{
    for (uint32_t k = 0; k < state->plan->step_count; k++) {
        const gt_step *step = &state->plan->steps[k];
        if (!is_copy_of(state->plan, step, boundary))
            continue;
        sum->total_executions += state->executions;
        if (!gt_report_ran(state, frame))
            continue;
        double ns = gt_report_step_ns(frame, state, k);
        sum->run_executions += state->run_executions;
        for (int way = 0; way < GT_WAY_COUNT; way++)
            sum->run_bytes += state->copies[k].bytes[way];
        sum->timed = sum->timed && ns == ns;
        sum->pageable |= step->path != GT_PATH_PEER && state->copies[k].executions[GT_WAY_PAGEABLE];
        sum->run_ns += ns;
    }
}

static size_t value_bytes(const gt_variant *variant, const gt_plan *plan, uint32_t value)
{
    const gt_plan_shape *shape = &plan->shapes[value];
    uint64_t count = shape->dims ? 1 : 0;
    for (uint32_t d = 0; shape->dims && d < shape->rank; d++)
        count *= (uint64_t)shape->dims[d];
    return gantry_dtype_bytes(variant->graph->values.data[value]->dtype, count);
}

/* A change of precision happens where the value is read, each time the reader runs. */
static void count_readings(const gt_report_part *part, const gt_plan_state *state,
                           const gt_boundary *boundary, traffic *sum)
{
    for (uint32_t k = 0; k < state->plan->step_count; k++) {
        const gt_step *step = &state->plan->steps[k];
        if (step->kind != GT_STEP_RUN || step->partition != boundary->target_partition)
            continue;
        sum->total_executions += state->executions;
        if (!gt_report_ran(state, part->frame))
            continue;
        sum->run_executions += state->run_executions;
        sum->run_bytes += state->run_executions * value_bytes(part->variant, state->plan, boundary->value);
    }
}

static traffic count_traffic(const gt_report_part *part, const gt_boundary *boundary)
{
    bool device = boundary->source_domain != boundary->target_domain;
    traffic sum = {.timed = device};
    for (uint32_t k = 0; part->frame && k < part->frame->states.count; k++)
        if (device)
            count_state(part->frame, part->frame->states.data[k], boundary, &sum);
        else
            count_readings(part, part->frame->states.data[k], boundary, &sum);
    return sum;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* As an input, or in a body. */
static bool reads(const gt_node *node, uint32_t value)
{
    for (uint32_t k = 0; k < node->input_count; k++)
        if (node->inputs[k] == value)
            return true;
    for (uint32_t b = 0; b < node->body_count; b++) {
        const gt_graph *body = node->bodies[b].graph;
        for (uint32_t v = 0; v < body->values.count; v++)
            if (body->values.data[v]->captured == value)
                return true;
    }
    return false;
}

/* The nodes that read the value where this boundary brings it. */
static json_t *consumers_of(const gt_report_scope *scope, const gt_variant *variant,
                            const gt_boundary *boundary)
{
    const gt_placement *placement = variant->placement;
    json_t *names = json_array();
    for (uint32_t k = 0; k < variant->graph->order.count; k++) {
        uint32_t id = variant->graph->order.data[k];
        const gt_node *node = variant->graph->nodes.data[id];
        uint32_t partition = node->removed ? GT_NONE : placement->partition_of_node[id];
        if (partition == GT_NONE)
            continue;
        const gt_partition *reader = &placement->partitions[partition];
        /* Where a control node reads is up to its bodies: it stands where the boundary names it. */
        bool here = reader->control
                        ? partition == boundary->target_partition
                        : scope->session->providers[reader->provider].domain == boundary->target_domain;
        if (!here ||
            (boundary->source_domain == boundary->target_domain && partition != boundary->target_partition))
            continue;
        if (reads(node, boundary->value))
            json_array_append_new(names, gt_report_string(node->name));
    }
    return names;
}

static void add_counts(const gt_report_scope *scope, const gt_report_part *part, const gt_boundary *boundary,
                       json_t *row)
{
    if (!scope->run) {
        json_object_set_new(row, "executions", json_string(GT_NOT_MEASURED));
        json_object_set_new(row, "bytes", json_string(GT_NOT_MEASURED));
        json_object_set_new(row, "executions_total", json_string(GT_NOT_MEASURED));
        json_object_set_new(row, "us", json_string(GT_NOT_MEASURED));
        return;
    }
    traffic sum = count_traffic(part, boundary);
    bool timed = sum.timed && sum.run_executions;
    json_object_set_new(row, "executions", gt_report_count(sum.run_executions));
    json_object_set_new(row, "bytes", gt_report_count(sum.run_bytes));
    json_object_set_new(row, "executions_total", gt_report_count(sum.total_executions));
    json_object_set_new(row, "us", gt_report_measured_us(timed ? sum.run_ns : __builtin_nan("")));
    bool host_end = boundary->source_domain != boundary->target_domain;
    json_object_set_new(row, "pinned", json_boolean(host_end && sum.run_executions && !sum.pageable));
}

static const char *direction_of(const gt_boundary *boundary)
{
    return boundary->source_domain == boundary->target_domain ? "inside"
           : boundary->source_domain == 0                     ? "to_device"
           : boundary->target_domain == 0                     ? "to_host"
                                                              : "device_to_device";
}

static json_t *boundary_row(const gt_report_scope *scope, const gt_report_part *part,
                            const gt_boundary *boundary)
{
    const gt_variant *variant = part->variant;
    const gantry_session *session = scope->session;
    const gt_value *value = variant->graph->values.data[boundary->value];
    bool device = boundary->source_domain != boundary->target_domain;
    bool outer = boundary->source_partition == GT_NONE || boundary->target_partition == GT_NONE;
    json_t *row = json_pack("{s:o, s:s, s:s, s:i, s:s}", "tensor", gt_report_string(value->name), "type",
                            device                ? "device"
                            : boundary->precision ? "precision"
                                                  : "layout",
                            "scope", outer ? "boundary" : "inner", "graph", (int)part->number, "direction",
                            direction_of(boundary));
    json_object_set_new(
        row, "source",
        gt_report_string(end_name(scope, variant, boundary->source_partition, boundary->source_domain)));
    json_object_set_new(
        row, "target",
        gt_report_string(end_name(scope, variant, boundary->target_partition, boundary->target_domain)));
    json_object_set_new(row, "source_domain",
                        gt_report_string(session->domains[boundary->source_domain].name));
    json_object_set_new(row, "target_domain",
                        gt_report_string(session->domains[boundary->target_domain].name));
    json_object_set_new(row, "producer",
                        gt_report_string(value->producer == GT_NONE
                                             ? NULL
                                             : variant->graph->nodes.data[value->producer]->name));
    json_object_set_new(row, "consumers", consumers_of(scope, variant, boundary));
    json_object_set_new(row, "graph_input", json_boolean(value->input_index >= 0));
    json_object_set_new(row, "graph_output", json_boolean(value->is_output && boundary->target_domain == 0));
    json_object_set_new(row, "bytes_typical", gt_report_number(boundary->bytes));
    json_object_set_new(row, "estimate_us", gt_report_us(boundary->estimate_ns));
    json_object_set_new(row, "estimate_source", json_string("estimated"));
    json_object_set_new(row, "pinned", json_false());
    add_counts(scope, part, boundary, row);
    json_object_set_new(row, "synchronizing", json_boolean(device && boundary->source_domain != 0));
    return row;
}

json_t *gt_report_boundaries(const gt_report_scope *scope)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_placement *placement = scope->parts[p].variant->placement;
        for (uint32_t k = 0; k < placement->boundary_count; k++)
            json_array_append_new(rows, boundary_row(scope, &scope->parts[p], &placement->boundaries[k]));
        gt_report_conversions(scope, &scope->parts[p], rows);
    }
    return rows;
}
