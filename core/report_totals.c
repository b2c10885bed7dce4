/* The report's totals: estimates of the whole, and accounts of nodes and of boundaries that add up. */
#include "report.h"

static const double nothing = __builtin_nan("");

/* ---- nodes ----------------------------------------------------------------------------------- */

static json_t *count_nodes(const gantry_session *session, const json_t *nodes)
{
    static const char *const STATES[] = {"placed", "at_bind", "removed", "unplaced", "waiting", "not_placed"};
    json_t *row = json_object(), *seen = json_object();
    size_t k, inserted = 0, counts[sizeof STATES / sizeof *STATES] = {0};
    json_t *node;
    json_array_foreach(nodes, k, node)
    {
        const char *state = gt_report_text_at(node, "state");
        for (size_t m = 0; m < sizeof STATES / sizeof *STATES; m++)
            counts[m] += strcmp(state, STATES[m]) == 0;
        if (json_is_true(json_object_get(node, "inserted")))
            inserted++;
        else
            json_object_set_new(seen, gt_report_text_at(node, "name"), json_true());
    }
    json_int_t file = session->model ? session->model->sources.count : 0;
    json_object_set_new(row, "in_file", json_integer(file));
    for (size_t m = 0; m < sizeof STATES / sizeof *STATES; m++)
        json_object_set_new(row, STATES[m], gt_report_count(counts[m]));
    json_object_set_new(row, "inserted", gt_report_count(inserted));
    json_object_set_new(row, "remainder", json_integer(file - (json_int_t)json_object_size(seen)));
    json_decref(seen);
    return row;
}

/* ---- boundaries ------------------------------------------------------------------------------ */

/* Copies that the plans' steps made in the last run: between domains, and inside one. */
typedef struct copy_count {
    uint64_t crossing, crossing_bytes, inside, inside_bytes;
} copy_count;

/* Those that control nodes made themselves. */
static void count_controls(const gt_frame *frame, copy_count *sum)
{
    for (uint32_t p = 0; p < frame->control_count; p++) {
        uint32_t count;
        const gt_control_copies *copies = gt_control_copies_of(frame->controls[p], &count);
        for (uint32_t k = 0; k < count; k++) {
            if (copies[k].run_number != frame->run->number)
                continue;
            sum->inside += copies[k].count;
            sum->inside_bytes += copies[k].bytes;
        }
    }
}

static copy_count count_copies(const gt_report_scope *scope)
{
    copy_count sum = {0, 0, 0, 0};
    for (uint32_t p = 0; p < scope->part_count; p++) {
        const gt_frame *frame = scope->parts[p].frame;
        if (frame)
            count_controls(frame, &sum);
        for (uint32_t s = 0; frame && s < frame->states.count; s++) {
            const gt_plan_state *state = frame->states.data[s];
            for (uint32_t k = 0; gt_report_ran(state, frame) && k < state->plan->step_count; k++) {
                const gt_step *step = &state->plan->steps[k];
                if (step->kind != GT_STEP_TRANSFER)
                    continue;
                bool crossing =
                    state->plan->slots[step->source].domain != state->plan->slots[step->target].domain;
                uint64_t bytes = step->true_size ? state->true_bytes[k] : state->run_executions * step->bytes;
                *(crossing ? &sum.crossing : &sum.inside) += state->run_executions;
                *(crossing ? &sum.crossing_bytes : &sum.inside_bytes) += bytes;
            }
        }
    }
    return sum;
}

static json_t *count_boundaries(const gt_report_scope *scope, const json_t *boundaries, double chosen_us,
                                double wall_us)
{
    size_t k, device = 0;
    uint64_t executions = 0, bytes = 0;
    double us = 0, estimate = 0;
    bool timed = true;
    json_t *row;
    json_array_foreach(boundaries, k, row)
    {
        if (strcmp(gt_report_text_at(row, "type"), "device") != 0)
            continue;
        device++;
        executions += (uint64_t)gt_report_number_at(row, "executions");
        bytes += (uint64_t)gt_report_number_at(row, "bytes");
        us += gt_report_number_at(row, "us");
        estimate += gt_report_number_at(row, "estimate_us");
        timed = timed &&
                (json_is_number(json_object_get(row, "us")) || gt_report_number_at(row, "executions") == 0);
    }
    timed = timed && scope->run && wall_us > 0 && scope->run->stamp_ns > 0;
    copy_count copies = count_copies(scope);
    json_t *total = json_object();
    json_object_set_new(total, "rows", gt_report_count(json_array_size(boundaries)));
    json_object_set_new(total, "device", gt_report_count(device));
    json_object_set_new(total, "executions",
                        scope->run ? gt_report_count(executions) : json_string(GT_NOT_MEASURED));
    json_object_set_new(total, "bytes", scope->run ? gt_report_count(bytes) : json_string(GT_NOT_MEASURED));
    json_object_set_new(total, "us", gt_report_measured(timed ? us : nothing));
    json_object_set_new(total, "estimate_us", json_real(estimate));
    json_object_set_new(total, "share",
                        gt_report_number(timed           ? us / wall_us
                                         : chosen_us > 0 ? estimate / chosen_us
                                                         : nothing));
    json_object_set_new(total, "share_source", json_string(timed ? "measured" : "estimated"));
    json_object_set_new(total, "copies", gt_report_count(copies.crossing));
    json_object_set_new(total, "copied_bytes", gt_report_count(copies.crossing_bytes));
    json_object_set_new(total, "remainder_bytes",
                        json_integer(scope->run ? (json_int_t)copies.crossing_bytes - (json_int_t)bytes : 0));
    json_object_set_new(total, "copies_inside", gt_report_count(copies.inside));
    json_object_set_new(total, "copied_bytes_inside", gt_report_count(copies.inside_bytes));
    return total;
}

/* ---- all ------------------------------------------------------------------------------------- */

json_t *gt_report_totals(const gt_report_scope *scope, const json_t *document)
{
    const gt_placement *root = scope->part_count ? scope->parts[0].variant->placement : NULL;
    const gantry_run *run = scope->run;
    uint32_t below = 0;
    for (uint32_t k = 0; k < scope->part_count; k++)
        below += scope->parts[k].variant->placement->below_precision_count;
    double wall = run && run->executed ? (double)(run->last_end_ns - run->last_begin_ns) : nothing;
    json_t *totals = json_object();
    json_object_set_new(totals, "chosen_us", gt_report_us(root ? root->chosen_ns : nothing));
    json_object_set_new(totals, "all_cpu_us", gt_report_us(root ? root->all_cpu_ns : nothing));
    json_object_set_new(totals, "source", json_string("estimated"));
    json_object_set_new(totals, "measured_us", gt_report_measured_us(wall));
    json_object_set_new(totals, "nodes_below_model_precision", gt_report_count(below));
    json_object_set_new(totals, "nodes", count_nodes(scope->session, json_object_get(document, "nodes")));
    json_object_set_new(totals, "boundaries",
                        count_boundaries(scope, json_object_get(document, "boundaries"),
                                         root ? root->chosen_ns / 1e3 : nothing, wall / 1e3));
    return totals;
}
