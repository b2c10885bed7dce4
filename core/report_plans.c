/* The report's rows for plans: the sizes each one is for, why it was made, and how often it ran. */
#include "report.h"

static json_t *key_value(const gt_symbol *symbol, int64_t key)
{
    if (key == INT64_MIN)
        return json_string("not known before the run");
    return symbol->real ? gt_report_number(((gt_scalar){.i = key}).r) : json_integer(key);
}

static const gt_symbol *key_symbol(const gt_plan *plan, uint32_t index)
{
    const gt_segment *segment = &plan->variant->segments[plan->segment];
    return &plan->variant->graph->model->exprs.symbols.data[segment->symbols[index]];
}

static json_t *plan_key(const gt_plan *plan)
{
    json_t *key = json_object();
    for (uint32_t k = 0; k < plan->variant->segments[plan->segment].symbol_count; k++)
        gt_report_set_named(key, key_symbol(plan, k)->name, key_value(key_symbol(plan, k), plan->key[k]));
    return key;
}

/* Why no plan that was there could be used. */
static json_t *plan_reason(const gt_plan *plan)
{
    if (plan->trigger == GT_NONE)
        return json_pack("{s:s}", "code", "first");
    const gt_symbol *symbol = key_symbol(plan, plan->trigger);
    const gt_graph *root = plan->variant->session->model->root;
    bool input = symbol->kind == GT_SYMBOL_INPUT_DIM || symbol->kind == GT_SYMBOL_INPUT_ELEMENT;
    json_t *reason = json_pack(
        "{s:s, s:o, s:o, s:o}", "code", "new_size", "symbol", gt_report_string(symbol->name), "before",
        key_value(symbol, plan->trigger_before), "now", key_value(symbol, plan->key[plan->trigger]));
    json_object_set_new(reason, "tensor",
                        gt_report_string(input && symbol->input < root->inputs.count
                                             ? root->values.data[root->inputs.data[symbol->input]]->name
                                             : NULL));
    return reason;
}

static void note_executions(const gt_report_part *part, const gt_plan *plan, json_t *row)
{
    uint64_t total = 0, last = 0;
    for (uint32_t k = 0; part->frame && k < part->frame->states.count; k++) {
        const gt_plan_state *state = part->frame->states.data[k];
        if (state->plan != plan)
            continue;
        total = state->executions;
        last = gt_report_ran(state, part->frame) ? state->run_executions : 0;
    }
    json_object_set_new(row, "executions_total", gt_report_count(total));
    json_object_set_new(row, "executions", gt_report_count(last));
}

static json_t *plan_row(const gt_report_scope *scope, const gt_report_part *part, const gt_plan *plan)
{
    static const char *const KINDS[] = {"transfer", "convert", "run", "wait", "control"};
    json_t *steps = json_object(), *arenas = json_object();
    for (int kind = 0; kind < 5; kind++) {
        uint32_t count = 0;
        for (uint32_t k = 0; k < plan->step_count; k++)
            count += plan->steps[k].kind == (gt_step_kind)kind;
        json_object_set_new(steps, KINDS[kind], gt_report_count(count));
    }
    for (uint32_t d = 0; d < scope->session->domain_count; d++)
        gt_report_set_named(arenas, scope->session->domains[d].name, gt_report_count(plan->arena_bytes[d]));
    json_t *row = json_pack("{s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "number", (int)plan->number, "graph",
                            (int)part->number, "segment", (int)plan->segment, "key", plan_key(plan), "reason",
                            plan_reason(plan), "steps", steps, "arena_bytes", arenas);
    json_object_set_new(row, "plan_bytes", gt_report_count(plan->arena.total_bytes));
    json_object_set_new(row, "bind_us", gt_report_us(plan->bind_ns));
    json_object_set_new(row, "core_bind_us", gt_report_us(plan->core_bind_ns));
    note_executions(part, plan, row);
    return row;
}

json_t *gt_report_plans(const gt_report_scope *scope)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_variant *variant = scope->parts[p].variant;
        for (uint32_t k = 0; k < variant->plans.count; k++)
            json_array_append_new(rows, plan_row(scope, &scope->parts[p], variant->plans.data[k]));
    }
    return json_pack("{s:o, s:i, s:i, s:i, s:i}", "rows", rows, "made", (int)scope->session->plans_made,
                     "kept", (int)scope->session->plan_count, "evicted", (int)scope->session->plans_evicted,
                     "limit", (int)scope->session->options.plan_cache);
}
