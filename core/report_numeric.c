/* The report's part on the numeric check: which tensors of the last run are not what the CPU's kernels make
 * of the same inputs, and how far they are off. */
#include "report.h"

static json_t *numeric_row(const gantry_session *session, const gt_numeric_row *r)
{
    json_t *row = json_pack("{s:o, s:o, s:o, s:o, s:o, s:s}", "tensor", gt_report_string(r->tensor),
                            "producer", gt_report_string(r->producer), "op", gt_report_string(r->op), "pass",
                            gt_report_string(r->pass), "provider",
                            gt_report_string(session->providers[r->provider].name), "finding", r->finding);
    json_object_set_new(row, "partition", json_integer(r->partition));
    json_object_set_new(row, "partition_nodes", json_integer(r->node_count));
    json_object_set_new(row, "elements", gt_report_count(r->elements));
    json_object_set_new(row, "differing_elements", gt_report_count(r->differing));
    json_object_set_new(row, "not_finite", gt_report_count(r->not_finite));
    json_object_set_new(row, "max_error", gt_report_number(r->max_error));
    json_object_set_new(row, "mean_error", gt_report_number(r->mean_error));
    json_object_set_new(row, "largest_expected", gt_report_number(r->largest));
    json_object_set_new(row, "tolerance_absolute", gt_report_number(r->tolerance_absolute));
    json_object_set_new(row, "tolerance_relative", gt_report_number(r->tolerance_relative));
    return row;
}

json_t *gt_report_numeric(const gt_report_scope *scope)
{
    bool on = scope->session->options.numeric_check;
    const gt_numeric *numeric = on && scope->run ? &scope->run->numeric : NULL;
    json_t *rows = json_array();
    for (uint32_t k = 0; numeric && k < numeric->rows.count; k++)
        json_array_append_new(rows, numeric_row(scope->session, &numeric->rows.data[k]));
    json_t *object = json_pack("{s:b, s:o}", "enabled", on, "rows", rows);
    json_object_set_new(object, "checked",
                        numeric ? gt_report_count(numeric->checked) : json_string(GT_NOT_MEASURED));
    json_object_set_new(object, "unchecked",
                        numeric ? gt_report_count(numeric->unchecked) : json_string(GT_NOT_MEASURED));
    json_object_set_new(object, "wrong",
                        numeric ? gt_report_count(numeric->wrong) : json_string(GT_NOT_MEASURED));
    return object;
}
