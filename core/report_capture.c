/* The report's answer to "could the work of the devices be recorded once and replayed?": every node that
 * makes the host act between two pieces of device work, and why. */
#include "report.h"

/* A placed graph whose partitions are looked at. */
typedef struct capture_part {
    const gt_report_scope *scope;
    const gt_variant *variant;
    const gt_placement *placement;
    uint8_t *after, *before; /* by partition: reads what a device made; makes what a device reads */
    json_t *rows;
} capture_part;

static bool on_device(const gt_report_scope *scope, const gt_partition *partition)
{
    return !partition->control && scope->session->providers[partition->provider].domain != 0;
}

static bool has_device_work(const gt_report_scope *scope)
{
    for (uint32_t k = 0; k < scope->part_count; k++) {
        const gt_placement *placement = scope->parts[k].variant->placement;
        for (uint32_t p = 0; placement && p < placement->partition_count; p++)
            if (on_device(scope, &placement->partitions[p]))
                return true;
    }
    return false;
}

static void add_row(const capture_part *part, uint32_t node, const char *cause, const char *detail)
{
    const gt_graph *graph = part->variant->graph;
    json_array_append_new(part->rows, json_pack("{s:o, s:o, s:s, s:s}", "node",
                                                gt_report_string(graph->nodes.data[node]->name), "op",
                                                gt_report_string(graph->nodes.data[node]->op_type), "cause",
                                                cause, "detail", detail));
}

/* The partition that makes a value, GT_NONE for inputs, constants and what is known at bind. */
static uint32_t maker_of(const capture_part *part, uint32_t value)
{
    uint32_t node = part->variant->graph->values.data[value]->producer;
    return node == GT_NONE ? GT_NONE : part->placement->partition_of_node[node];
}

/* Partitions stand in an order in which they can run: one pass each way is enough. */
static void follow_values(const capture_part *part)
{
    const gt_placement *placement = part->placement;
    for (uint32_t p = 0; p < placement->partition_count; p++)
        for (uint32_t k = 0; k < placement->partitions[p].input_count; k++) {
            uint32_t maker = maker_of(part, placement->partitions[p].inputs[k]);
            if (maker != GT_NONE)
                part->after[p] |= part->after[maker] || on_device(part->scope, &placement->partitions[maker]);
        }
    for (uint32_t p = placement->partition_count; p-- > 0;)
        for (uint32_t k = 0; k < placement->partitions[p].input_count; k++) {
            uint32_t maker = maker_of(part, placement->partitions[p].inputs[k]);
            if (maker != GT_NONE)
                part->before[maker] |= part->before[p] || on_device(part->scope, &placement->partitions[p]);
        }
}

static void add_host_work(const capture_part *part)
{
    for (uint32_t p = 0; p < part->placement->partition_count; p++) {
        const gt_partition *partition = &part->placement->partitions[p];
        bool between =
            !partition->control && !on_device(part->scope, partition) && part->after[p] && part->before[p];
        if (partition->control)
            add_row(part, partition->nodes[0], "control_flow", "the host decides what runs next");
        for (uint32_t k = 0; between && k < partition->node_count; k++)
            add_row(part, partition->nodes[k], "host_between",
                    "it runs on the host, reads what a device made and makes what a device reads");
    }
}

/* A size that only running tells, and device work after it. */
static void add_sizes(const capture_part *part)
{
    const gt_variant *variant = part->variant;
    uint32_t last = 0;
    for (uint32_t p = 0; p < part->placement->partition_count; p++)
        if (on_device(part->scope, &part->placement->partitions[p]))
            last = part->placement->partitions[p].segment;
    for (uint32_t s = 0; s < variant->segment_count; s++)
        for (uint32_t k = 0; variant->segments[s].number < last && k < variant->segments[s].result_count;
             k++) {
            uint32_t node = variant->graph->values.data[variant->segments[s].results[k].value]->producer;
            if (node != GT_NONE)
                add_row(part, node, "data_dependent_size",
                        "a size of its output is known only when it has run");
        }
}

static void add_part(const gt_report_scope *scope, const gt_variant *variant, json_t *rows)
{
    gt_allocator *allocator = scope->session->allocator;
    uint32_t count = variant->placement->partition_count;
    capture_part part = {.scope = scope,
                         .variant = variant,
                         .placement = variant->placement,
                         .after = GT_NEW_ARRAY(allocator, uint8_t, count + 1),
                         .before = GT_NEW_ARRAY(allocator, uint8_t, count + 1),
                         .rows = rows};
    if (part.after && part.before) {
        follow_values(&part);
        add_host_work(&part);
        add_sizes(&part);
    }
    gt_free(allocator, part.after);
    gt_free(allocator, part.before);
}

json_t *gt_report_capture(const gt_report_scope *scope)
{
    bool device = scope->session->created && has_device_work(scope);
    json_t *rows = json_array();
    /* What lies in the body of a control node is that node's doing. */
    for (uint32_t k = 0; device && k < scope->part_count; k++)
        if (scope->parts[k].variant->placement && !scope->parts[k].variant->body)
            add_part(scope, scope->parts[k].variant, rows);
    json_t *possible = device ? json_boolean(json_array_size(rows) == 0) : json_null();
    return json_pack("{s:o, s:o}", "possible", possible, "blockers", rows);
}
