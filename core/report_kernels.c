/* The report's rows for kernels and fusions: what providers said while compiling and reshaping. */
#include "report.h"

static json_t *node_names(const gt_model *model, const gt_graph *graph, const uint32_t *ids, uint32_t count)
{
    json_t *names = json_array();
    for (uint32_t k = 0; k < count; k++) {
        if (ids[k] >= graph->nodes.count)
            continue;
        const gt_node *node = graph->nodes.data[ids[k]];
        for (uint32_t m = 0; m < node->lineage.count; m++)
            json_array_append_new(names, json_string(model->sources.data[node->lineage.sources[m]].name));
        if (!node->lineage.count)
            json_array_append_new(names, json_string(node->name));
    }
    return names;
}

static void add_kernels(const gt_report_scope *scope, const gt_report_part *part, uint32_t partition,
                        const gt_kernel_row *kernels, uint32_t count, uint32_t plan, json_t *rows)
{
    const gt_variant *variant = part->variant;
    const char *provider = scope->session->providers[variant->placement->partitions[partition].provider].name;
    for (uint32_t k = 0; k < count; k++) {
        const gt_kernel_row *kernel = &kernels[k];
        json_t *row =
            json_pack("{s:s, s:i, s:i, s:i, s:s?, s:s?, s:s?, s:s?}", "provider", provider, "graph",
                      (int)part->number, "partition", (int)partition, "index", (int)kernel->index, "op",
                      kernel->op, "kernel", kernel->name, "isa", kernel->isa, "layout", kernel->layout);
        json_object_set_new(row, "plan", plan ? json_integer(plan) : json_null());
        json_object_set_new(
            row, "nodes",
            node_names(scope->session->model, variant->graph, kernel->node_ids, kernel->node_count));
        json_object_set_new(row, "precision_in", json_string(gantry_dtype_text(kernel->precision_in)));
        json_object_set_new(row, "precision_out", json_string(gantry_dtype_text(kernel->precision_out)));
        json_object_set_new(row, "accumulate", json_string(gantry_dtype_text(kernel->accumulate)));
        json_object_set_new(row, "bytes", kernel->bytes < 0 ? json_null() : json_real(kernel->bytes));
        json_object_set_new(row, "flops", kernel->flops < 0 ? json_null() : json_real(kernel->flops));
        json_object_set_new(row, "us", json_string("not measured"));
        json_array_append_new(rows, row);
    }
}

static void add_fusions(const gt_report_scope *scope, const gt_report_part *part, uint32_t partition,
                        const gt_fusion_row *fusions, uint32_t count, json_t *rows)
{
    const char *provider =
        scope->session->providers[part->variant->placement->partitions[partition].provider].name;
    for (uint32_t k = 0; k < count; k++)
        json_array_append_new(rows, json_pack("{s:s, s:s?, s:b, s:s?, s:o}", "provider", provider, "rule",
                                              fusions[k].rule, "applied", fusions[k].applied, "guard",
                                              fusions[k].guard, "nodes",
                                              node_names(scope->session->model, part->variant->graph,
                                                         fusions[k].node_ids, fusions[k].node_count)));
}

static void add_plan(const gt_report_scope *scope, const gt_report_part *part, const gt_plan *plan,
                     json_t *rows, json_t *fusions)
{
    for (uint32_t k = 0; k < plan->shaped_count; k++) {
        const gt_shaped_slot *slot = &plan->shaped[k];
        add_kernels(scope, part, slot->partition, slot->kernels, slot->kernel_count, plan->number, rows);
        add_fusions(scope, part, slot->partition, slot->fusions, slot->fusion_count, fusions);
    }
}

json_t *gt_report_kernels(const gt_report_scope *scope, json_t *fusions)
{
    json_t *rows = json_array();
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_report_part *part = &scope->parts[p];
        for (uint32_t k = 0; part->variant->programs && k < part->variant->placement->partition_count; k++) {
            const gt_program *program = &part->variant->programs[k];
            add_kernels(scope, part, k, program->records.kernels.data, program->records.kernels.count, 0,
                        rows);
            add_fusions(scope, part, k, program->records.fusions.data, program->records.fusions.count,
                        fusions);
        }
        if (part->frame && part->frame->current) {
            for (uint32_t s = 0; s < part->variant->segment_count; s++)
                if (part->frame->current[s])
                    add_plan(scope, part, part->frame->current[s]->plan, rows, fusions);
        } else {
            for (uint32_t k = 0; k < part->variant->plans.count; k++)
                add_plan(scope, part, part->variant->plans.data[k], rows, fusions);
        }
    }
    return rows;
}
