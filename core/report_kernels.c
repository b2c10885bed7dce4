/* The report's rows for kernels and fusions: what providers said while compiling and reshaping, which nodes
 * of the file each kernel computes, and how long it took. */
#include "report.h"

/* Names of the nodes of the file behind the ids, and the pass that made each of them what it is now (null: it
 * is as in the file). */
static json_t *node_names(const gt_model *model, const gt_graph *graph, const uint32_t *ids, uint32_t count,
                          json_t *passes)
{
    json_t *names = json_array();
    for (uint32_t k = 0; k < count; k++) {
        if (ids[k] >= graph->nodes.count)
            continue;
        const gt_node *node = graph->nodes.data[ids[k]];
        for (uint32_t m = 0; m < node->lineage.count; m++)
            json_array_append_new(names,
                                  gt_report_string(model->sources.data[node->lineage.sources[m]].name));
        if (!node->lineage.count)
            json_array_append_new(names, gt_report_string(node->name));
        for (uint32_t m = 0; passes && (m == 0 || m < node->lineage.count); m++)
            json_array_append_new(passes, gt_report_string(node->lineage.pass));
    }
    return names;
}

/* ---- times ----------------------------------------------------------------------------------- */

/* What a kernel took in the last run, in all its executions. */
typedef struct kernel_time {
    bool ran;
    uint64_t executions;
    double ns;          /* NAN: not measured */
    const char *source; /* "kernel", or "partition" when it is alone in one */
} kernel_time;

/* plan NULL: the kernels are those of the program, whatever the plan. */
static kernel_time time_kernel(const gt_report_part *part, uint32_t partition, const gt_plan *plan,
                               uint32_t index, bool alone)
{
    kernel_time sum = {.ns = __builtin_nan(""), .source = "kernel"};
    for (uint32_t s = 0; part->frame && s < part->frame->states.count; s++) {
        const gt_plan_state *state = part->frame->states.data[s];
        if (!gt_report_ran(state, part->frame) || (plan && state->plan != plan))
            continue;
        for (uint32_t k = 0; k < state->plan->step_count; k++) {
            const gt_step *step = &state->plan->steps[k];
            if (step->kind != GT_STEP_RUN || step->partition != partition)
                continue;
            double ns = state->times && index < state->times[k].kernel_count
                            ? state->times[k].kernel_ns[index]
                            : __builtin_nan("");
            if (ns != ns && alone) {
                ns = gt_report_step_ns(part->frame, state, k);
                sum.source = "partition";
            }
            sum.ns = sum.ran ? sum.ns + ns : ns;
            sum.ran = true;
            sum.executions += state->run_executions;
        }
    }
    return sum;
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct kernel_list {
    const gt_report_scope *scope;
    const gt_report_part *part;
    uint32_t partition;
    const gt_plan *plan; /* NULL: recorded by compile */
    uint32_t count;
    const gt_kernel_row *rows;
    bool alone;
} kernel_list;

static json_t *kernel_row(const kernel_list *list, const gt_kernel_row *kernel)
{
    const gt_variant *variant = list->part->variant;
    const gantry_session *session = list->scope->session;
    const char *provider = session->providers[variant->placement->partitions[list->partition].provider].name;
    json_t *row =
        json_pack("{s:o, s:i, s:i, s:i, s:o}", "provider", gt_report_string(provider), "graph",
                  (int)list->part->number, "partition", (int)list->partition, "index", (int)kernel->index,
                  "plan", list->plan ? gt_report_count(list->plan->number) : json_null());
    json_object_set_new(row, "op", gt_report_string(kernel->op));
    json_object_set_new(row, "kernel", gt_report_string(kernel->name));
    json_object_set_new(row, "isa", gt_report_string(kernel->isa));
    json_object_set_new(row, "layout", gt_report_string(kernel->layout));
    json_t *passes = json_array();
    json_object_set_new(
        row, "nodes",
        node_names(session->model, variant->graph, kernel->node_ids, kernel->node_count, passes));
    json_object_set_new(row, "passes", passes);
    json_object_set_new(row, "inserted_by", kernel->node_count ? json_null() : gt_report_string(provider));
    json_object_set_new(row, "precision_in", json_string(gantry_dtype_text(kernel->precision_in)));
    json_object_set_new(row, "precision_out", json_string(gantry_dtype_text(kernel->precision_out)));
    json_object_set_new(row, "accumulate", json_string(gantry_dtype_text(kernel->accumulate)));
    json_object_set_new(row, "bytes", kernel->bytes < 0 ? json_null() : gt_report_number(kernel->bytes));
    json_object_set_new(row, "flops", kernel->flops < 0 ? json_null() : gt_report_number(kernel->flops));
    kernel_time time = time_kernel(list->part, list->partition, list->plan, kernel->index, list->alone);
    json_object_set_new(row, "executions",
                        list->scope->run ? gt_report_count(time.executions) : json_string(GT_NOT_MEASURED));
    json_object_set_new(row, "us", gt_report_measured_us(time.ns));
    json_object_set_new(row, "us_source", time.ns == time.ns ? json_string(time.source) : json_null());
    bool device = session->providers[variant->placement->partitions[list->partition].provider].domain != 0;
    double launch_ns = gt_report_partition_ran(list->part, list->partition).launch_ns / list->count;
    json_object_set_new(row, "launch_us", device ? gt_report_measured_us(launch_ns) : json_null());
    return row;
}

static void add_kernels(const kernel_list *list, json_t *rows)
{
    for (uint32_t k = 0; k < list->count; k++)
        json_array_append_new(rows, kernel_row(list, &list->rows[k]));
}

static void add_fusions(const gt_report_scope *scope, const gt_report_part *part, uint32_t partition,
                        const gt_fusion_row *fusions, uint32_t count, json_t *rows)
{
    const char *provider =
        scope->session->providers[part->variant->placement->partitions[partition].provider].name;
    for (uint32_t k = 0; k < count; k++) {
        json_t *row =
            json_pack("{s:o, s:b}", "provider", gt_report_string(provider), "applied", fusions[k].applied);
        json_object_set_new(row, "rule", gt_report_string(fusions[k].rule));
        json_object_set_new(row, "guard", gt_report_string(fusions[k].guard));
        json_object_set_new(row, "nodes",
                            node_names(scope->session->model, part->variant->graph, fusions[k].node_ids,
                                       fusions[k].node_count, NULL));
        json_array_append_new(rows, row);
    }
}

static void add_plan(const gt_report_scope *scope, const gt_report_part *part, const gt_plan *plan,
                     json_t *rows, json_t *fusions)
{
    for (uint32_t k = 0; k < plan->shaped_count; k++) {
        const gt_shaped_slot *slot = &plan->shaped[k];
        uint32_t compiled = part->variant->programs[slot->partition].records.kernels.count;
        add_kernels(&(kernel_list){scope, part, slot->partition, plan, slot->kernel_count, slot->kernels,
                                   slot->kernel_count == 1 && !compiled},
                    rows);
        add_fusions(scope, part, slot->partition, slot->fusions, slot->fusion_count, fusions);
    }
}

static void add_programs(const gt_report_scope *scope, const gt_report_part *part, json_t *rows,
                         json_t *fusions)
{
    for (uint32_t k = 0; part->variant->programs && k < part->variant->placement->partition_count; k++) {
        const struct gantry_recorder *records = &part->variant->programs[k].records;
        add_kernels(&(kernel_list){scope, part, k, NULL, records->kernels.count, records->kernels.data,
                                   records->kernels.count == 1},
                    rows);
        add_fusions(scope, part, k, records->fusions.data, records->fusions.count, fusions);
    }
}

/* Plans that the last run used; those it is prepared for when it used none; all there are without a run. */
static void add_plans(const gt_report_scope *scope, const gt_report_part *part, json_t *rows, json_t *fusions)
{
    bool any = false;
    for (uint32_t s = 0; part->frame && s < part->frame->states.count; s++)
        if (gt_report_ran(part->frame->states.data[s], part->frame)) {
            add_plan(scope, part, part->frame->states.data[s]->plan, rows, fusions);
            any = true;
        }
    for (uint32_t s = 0; !any && part->frame && part->frame->current && s < part->variant->segment_count; s++)
        if (part->frame->current[s])
            add_plan(scope, part, part->frame->current[s]->plan, rows, fusions);
    for (uint32_t k = 0; !part->frame && k < part->variant->plans.count; k++)
        add_plan(scope, part, part->variant->plans.data[k], rows, fusions);
}

json_t *gt_report_kernels(const gt_report_scope *scope, json_t *fusions)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < scope->part_count; p++) {
        add_programs(scope, &scope->parts[p], rows, fusions);
        add_plans(scope, &scope->parts[p], rows, fusions);
    }
    return rows;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* A kernel of several nodes took its time for all of them together: the row says for how many. */
void gt_report_time_nodes(json_t *nodes, const json_t *kernels)
{
    json_t *by_node = json_object();
    size_t k, m;
    json_t *row, *name;
    json_array_foreach(kernels, k, row) json_array_foreach(json_object_get(row, "nodes"), m, name)
        json_object_set(by_node, json_string_value(name), row);
    json_array_foreach(nodes, k, row)
    {
        const json_t *kernel = json_object_get(by_node, gt_report_text_at(row, "name"));
        if (!kernel || strcmp(gt_report_text_at(row, "state"), "placed") != 0)
            continue;
        json_object_set(row, "us", json_object_get(kernel, "us"));
        json_object_set(row, "launch_us", json_object_get(kernel, "launch_us"));
        json_object_set_new(row, "us_nodes",
                            gt_report_count(json_array_size(json_object_get(kernel, "nodes"))));
    }
    json_decref(by_node);
}
