/* The report's rows for boundaries and plans: what crosses between domains and precisions, how often, and how
 * many bytes. */
#include "report.h"

static const char *partition_name(const gt_report_scope *scope, const gt_variant *variant, uint32_t partition,
                                  const char *otherwise)
{
    return partition == GT_NONE
               ? otherwise
               : scope->session->providers[variant->placement->partitions[partition].provider].name;
}

/* Executions and bytes of the copies of one value between two domains, in the last run. */
typedef struct traffic {
    uint64_t run_executions, run_bytes, total_executions;
    bool counted;
} traffic;

static void count_state(const gt_frame *frame, const gt_plan_state *state, const gt_boundary *boundary,
                        traffic *sum)
{
    for (uint32_t k = 0; k < state->plan->step_count; k++) {
        const gt_step *step = &state->plan->steps[k];
        if (step->kind != GT_STEP_TRANSFER || step->value != boundary->value)
            continue;
        uint32_t from = state->plan->slots[step->source].domain, to = state->plan->slots[step->target].domain;
        if (from == to || from != boundary->source_domain || to != boundary->target_domain)
            continue;
        bool now = state->run_number == frame->run->number;
        uint64_t bytes = step->true_size ? state->true_bytes[k] : step->bytes;
        sum->run_executions += now ? state->run_executions : 0;
        sum->run_bytes += now ? state->run_executions * bytes : 0;
        sum->total_executions += state->executions;
    }
}

static traffic count_traffic(const gt_report_part *part, const gt_boundary *boundary)
{
    traffic sum = {.counted = part->frame != NULL};
    for (uint32_t k = 0; part->frame && k < part->frame->states.count; k++)
        count_state(part->frame, part->frame->states.data[k], boundary, &sum);
    return sum;
}

static json_t *boundary_row(const gt_report_scope *scope, const gt_report_part *part,
                            const gt_boundary *boundary)
{
    const gt_variant *variant = part->variant;
    bool device = boundary->source_domain != boundary->target_domain;
    bool outer = boundary->source_partition == GT_NONE || boundary->target_partition == GT_NONE;
    const char *host = "host";
    json_t *row = json_pack("{s:s, s:s, s:s, s:i}", "tensor",
                            variant->graph->values.data[boundary->value]->name, "type",
                            device                ? "device"
                            : boundary->precision ? "precision"
                                                  : "layout",
                            "scope", outer ? "boundary" : "inner", "graph", (int)part->number);
    json_object_set_new(row, "source",
                        json_string(partition_name(scope, variant, boundary->source_partition, host)));
    json_object_set_new(row, "target",
                        json_string(partition_name(scope, variant, boundary->target_partition, host)));
    json_object_set_new(row, "source_domain",
                        json_string(scope->session->domains[boundary->source_domain].name));
    json_object_set_new(row, "target_domain",
                        json_string(scope->session->domains[boundary->target_domain].name));
    uint32_t producer = variant->graph->values.data[boundary->value]->producer;
    json_object_set_new(row, "producer",
                        producer == GT_NONE ? json_null()
                                            : json_string(variant->graph->nodes.data[producer]->name));
    json_object_set_new(row, "bytes_typical", json_real(boundary->bytes));
    json_object_set_new(row, "estimate_us", gt_report_us(boundary->estimate_ns));
    json_object_set_new(row, "estimate_source", json_string("estimated"));
    traffic sum = count_traffic(part, boundary);
    bool counted = sum.counted && device;
    json_object_set_new(row, "executions",
                        counted ? json_integer((json_int_t)sum.run_executions) : json_string("not measured"));
    json_object_set_new(row, "bytes",
                        counted ? json_integer((json_int_t)sum.run_bytes) : json_string("not measured"));
    json_object_set_new(row, "executions_total",
                        counted ? json_integer((json_int_t)sum.total_executions)
                                : json_string("not measured"));
    json_object_set_new(row, "us", json_string("not measured"));
    json_object_set_new(row, "pinned", json_false());
    json_object_set_new(row, "synchronizing", json_boolean(device && boundary->target_domain == 0));
    return row;
}

json_t *gt_report_boundaries(const gt_report_scope *scope)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_placement *placement = scope->parts[p].variant->placement;
        for (uint32_t k = 0; k < placement->boundary_count; k++)
            json_array_append_new(rows, boundary_row(scope, &scope->parts[p], &placement->boundaries[k]));
    }
    return rows;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static json_t *plan_key(const gt_plan *plan)
{
    const gt_exprs *exprs = &plan->variant->graph->model->exprs;
    const gt_segment *segment = &plan->variant->segments[plan->segment];
    json_t *key = json_object();
    for (uint32_t k = 0; k < segment->symbol_count; k++) {
        const gt_symbol *symbol = &exprs->symbols.data[segment->symbols[k]];
        json_object_set_new(key, symbol->name,
                            plan->key[k] == INT64_MIN ? json_string("not known before the run")
                                                      : json_integer(plan->key[k]));
    }
    return key;
}

static json_t *plan_row(const gt_report_scope *scope, const gt_report_part *part, const gt_plan *plan)
{
    static const char *const KINDS[] = {"transfer", "convert", "run", "wait", "control"};
    json_t *steps = json_object();
    for (int kind = 0; kind < 5; kind++) {
        uint32_t count = 0;
        for (uint32_t k = 0; k < plan->step_count; k++)
            count += plan->steps[k].kind == (gt_step_kind)kind;
        json_object_set_new(steps, KINDS[kind], json_integer(count));
    }
    json_t *arenas = json_object();
    for (uint32_t d = 0; d < scope->session->domain_count; d++)
        json_object_set_new(arenas, scope->session->domains[d].name,
                            json_integer((json_int_t)plan->arena_bytes[d]));
    json_t *row = json_pack("{s:i, s:i, s:i, s:o, s:o, s:o}", "number", (int)plan->number, "graph",
                            (int)part->number, "segment", (int)plan->segment, "key", plan_key(plan), "steps",
                            steps, "arena_bytes", arenas);
    json_object_set_new(row, "plan_bytes", json_integer((json_int_t)plan->arena.total_bytes));
    json_object_set_new(row, "bind_us", gt_report_us(plan->bind_ns));
    json_object_set_new(row, "core_bind_us", gt_report_us(plan->core_bind_ns));
    return row;
}

static void note_executions(const gt_report_part *part, const gt_plan *plan, json_t *row)
{
    uint64_t total = 0, last = 0;
    for (uint32_t k = 0; part->frame && k < part->frame->states.count; k++) {
        const gt_plan_state *state = part->frame->states.data[k];
        if (state->plan != plan)
            continue;
        total = state->executions;
        last = state->run_number == part->frame->run->number ? state->run_executions : 0;
    }
    json_object_set_new(row, "executions_total", json_integer((json_int_t)total));
    json_object_set_new(row, "executions", json_integer((json_int_t)last));
}

json_t *gt_report_plans(const gt_report_scope *scope)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_variant *variant = scope->parts[p].variant;
        for (uint32_t k = 0; k < variant->plans.count; k++) {
            json_t *row = plan_row(scope, &scope->parts[p], variant->plans.data[k]);
            note_executions(&scope->parts[p], variant->plans.data[k], row);
            json_array_append_new(rows, row);
        }
    }
    json_t *cache =
        json_pack("{s:o, s:i, s:i, s:i, s:i}", "rows", rows, "made", (int)scope->session->plans_made, "kept",
                  (int)scope->session->plan_count, "evicted", (int)scope->session->plans_evicted, "limit",
                  (int)scope->session->options.plan_cache);
    return cache;
}
