/* Placement of small graphs by hand-written verdicts: worth, composites, control nodes, copies, limits. */
#include "base/clock.h"
#include "place_fixture.h"

/* ---- worth ----------------------------------------------------------------------------------- */

static void make_alternating(fixture *f, uint32_t pairs)
{
    char from[16] = "x", name[16], to[16];
    input(f, "x");
    for (uint32_t k = 0; k < pairs; k++) {
        snprintf(name, sizeof name, "neg%u", k);
        snprintf(to, sizeof to, "a%u", k);
        node(f, name, "Neg", from, NULL, to);
        snprintf(name, sizeof name, "sub%u", k);
        snprintf(from, sizeof from, "b%u", k);
        node(f, name, "Sub", to, NULL, from);
    }
    output(f, from);
}

Test(place, tiny_alternating_nodes_go_to_the_host)
{
    fixture *f = make();
    f->domains[1].to_device_ns = f->domains[1].to_host_ns = 1e6;
    answers(f, "dev", "Neg", 500);
    answers(f, "cpu", ANY, 800);
    make_alternating(f, 50);
    must_place(f);
    cr_assert_eq(f->placement->partition_count, 100);
    cr_assert_eq(f->placement->boundary_count, 100);
    f->options.by_cost = true;
    must_place(f);
    cr_assert_eq(f->placement->partition_count, 1);
    cr_assert_eq(f->placement->boundary_count, 0);
    cr_assert_leq(f->placement->chosen_ns, f->placement->all_cpu_ns);
    for (uint32_t k = 0; k < 50; k++) {
        char name[16];
        snprintf(name, sizeof name, "neg%u", k);
        ON(name, "cpu");
        REFUSED(name, "dev", island_not_worth);
        const gt_kept_verdict *v = verdict(f, name, "dev");
        cr_assert_eq(v->estimate_here_ns, 500);
        cr_assert_eq(v->estimate_there_ns, 800);
        cr_assert_gt(v->estimate_here_ns + v->boundary_ns, v->estimate_there_ns);
    }
    drop(f);
}

Test(place, an_island_that_gains_more_than_its_boundaries_stays)
{
    fixture *f = make();
    answers(f, "dev", "Conv", 1000);
    answers(f, "cpu", "Conv", 1000 + 2 * 2024 + 1);
    answers(f, "cpu", ANY, 10);
    input(f, "x");
    node(f, "a", "Neg", "x", NULL, "va");
    node(f, "conv", "Conv", "va", NULL, "vb");
    node(f, "c", "Neg", "vb", NULL, "y");
    output(f, "y");
    f->options.by_cost = true;
    must_place(f);
    ON("conv", "dev");
    f->answers[1].estimate_ns = 1000 + 2 * 2024 - 1;
    must_place(f);
    ON("conv", "cpu");
    cr_assert_float_eq(verdict(f, "conv", "dev")->boundary_ns, 2 * 2024, 1e-9);
    drop(f);
}

Test(place, neighbours_on_one_device_are_weighed_together)
{
    fixture *f = make();
    f->provider_count = 1;
    add_provider(f, "dev2", 1);
    add_provider(f, "cpu", 0);
    answers(f, "dev", "Conv", 10);
    answers(f, "dev2", "Relu", 10);
    answers(f, "cpu", ANY, 20);
    input(f, "x");
    node(f, "conv", "Conv", "x", NULL, "a");
    node(f, "relu", "Relu", "a", NULL, "y");
    output(f, "y");
    must_place(f);
    ON("relu", "dev2");
    f->options.by_cost = true;
    must_place(f); /* each alone would only move the crossing; both together save it */
    ON("conv", "cpu");
    ON("relu", "cpu");
    REFUSED("conv", "dev", island_not_worth);
    REFUSED("relu", "dev2", island_not_worth);
    cr_assert_eq(f->placement->boundary_count, 0);
    drop(f);
}

Test(place, a_slower_provider_of_the_same_domain_is_not_faster)
{
    fixture *f = make();
    f->provider_count = 1;
    add_provider(f, "dev2", 1);
    add_provider(f, "cpu", 0);
    answers(f, "dev", ANY, 500);
    answers(f, "dev2", ANY, 100);
    answers(f, "cpu", ANY, 1e7);
    input(f, "x");
    node(f, "a", "Neg", "x", NULL, "y");
    output(f, "y");
    f->options.by_cost = true;
    must_place(f);
    ON("a", "dev2");
    REFUSED("a", "dev", not_faster);
    cr_assert_eq(verdict(f, "a", "dev")->boundary_ns, 0);
    drop(f);
}

Test(place, unknown_estimates_move_nothing)
{
    fixture *f = make();
    answers(f, "dev", "Neg", NAN);
    answers(f, "cpu", ANY, 1);
    make_alternating(f, 3);
    f->options.by_cost = true;
    must_place(f);
    ON("neg0", "dev");
    cr_assert(isnan(f->placement->chosen_ns));
    cr_assert_eq(f->placement->all_cpu_ns, 6);
    drop(f);
}

/* ---- composites, control, copies ------------------------------------------------------------- */

static gantry_status show(void *self, const gt_graph *graph, gantry_error *err)
{
    ((fixture *)self)->shown = graph;
    return GANTRY_OK;
}

/* x -> gelu -> y, which stands for Neg -> Relu. */
static uint32_t make_composite(fixture *f)
{
    input(f, "x");
    uint32_t id = node(f, "gelu", "Gelu", "x", NULL, "y");
    output(f, "y");
    gt_graph *body;
    cr_assert_eq(gt_graph_create(f->model, NULL, GT_NONE, "gelu", "", &body, &f->err), GANTRY_OK);
    input_of(f, body, "in");
    node_in(f, body, "inner_neg", "Neg", "in", NULL, "t");
    node_in(f, body, "inner_relu", "Relu", "t", NULL, "out");
    output_of(f, body, "out");
    cr_assert_eq(gt_graph_sort(body, &f->err), GANTRY_OK);
    f->graph->nodes.data[id]->composite = body;
    f->options.show_graph = show;
    f->options.show_self = f;
    f->shown = f->graph;
    return id;
}

Test(place, a_composite_is_taken_whole_where_it_can_be)
{
    fixture *f = make();
    answers(f, "dev", "Gelu", 1);
    answers(f, "cpu", ANY, 1);
    make_composite(f);
    must_place(f);
    ON("gelu", "dev");
    cr_assert_str_eq(unit(f, "gelu")->kind, "composite");
    drop(f);
}

Test(place, a_composite_nobody_takes_whole_is_placed_node_by_node)
{
    fixture *f = make();
    answers(f, "dev", "Neg", 1);
    answers(f, "cpu", "Relu", 1);
    uint32_t id = make_composite(f);
    must_place(f);
    ON("inner_neg", "dev");
    ON("inner_relu", "cpu");
    cr_assert(f->graph->nodes.data[id]->removed);
    cr_assert_eq(f->graph->outputs.data[0], value(f, "y"));
    cr_assert_eq(partition(f, "inner_relu")->outputs[0], value(f, "y"));
    cr_assert_str_eq(f->model->rewrites.data[f->model->rewrites.count - 1].rule, "expand_composite");
    drop(f);
}

Test(place, a_provider_that_runs_all_its_nodes_keeps_them)
{
    fixture *f = make();
    answers(f, "dev", "Neg", 1);
    answers(f, "dev", "Relu", 1);
    answers(f, "cpu", ANY, 1);
    make_composite(f);
    must_place(f);
    ON("inner_neg", "dev");
    ON("inner_relu", "dev");
    cr_assert_eq(f->placement->partition_count, 1);
    drop(f);
}

Test(place, a_provider_that_runs_only_some_of_its_nodes_does_not_open_it)
{
    fixture *f = make();
    answers(f, "dev", "Neg", 1);
    answers(f, "cpu", ANY, 1);
    make_composite(f);
    must_place(f);
    ON("gelu", "cpu");
    drop(f);
}

/* loop1(trip, cond, x) -> y; its body captures w. */
static uint32_t make_loop(fixture *f)
{
    uint32_t inputs[3], result = value(f, "y"), id;
    gt_graph *body;
    input(f, "trip");
    input(f, "cond");
    node(f, "w_maker", "Neg", "x", NULL, "w");
    node(f, "x_maker", "Neg", "x", NULL, "state");
    input(f, "x");
    inputs[0] = value(f, "trip");
    inputs[1] = value(f, "cond");
    inputs[2] = value(f, "state");
    cr_assert_eq(gt_graph_add_node(f->graph, "loop1", "", "Loop", 21, 3, inputs, 1, &result, &id, &f->err),
                 GANTRY_OK);
    cr_assert_eq(gt_graph_create(f->model, f->graph, id, "body", "loop1.body.", &body, &f->err), GANTRY_OK);
    node_in(f, body, "loop1.body.add", "Neg", "w_inside", NULL, "v");
    body->values.data[value_in(f, body, "w_inside")]->captured = value(f, "w");
    output_of(f, body, "v");
    gt_body *bodies = GT_ARENA_ARRAY(&f->model->arena, gt_body, 1);
    bodies[0] = (gt_body){"body", body};
    f->graph->nodes.data[id]->bodies = bodies;
    f->graph->nodes.data[id]->body_count = 1;
    gt_graph_changed(f->graph);
    output(f, "y");
    return id;
}

Test(place, control_nodes_nobody_takes_are_run_by_the_executor)
{
    fixture *f = make();
    answers(f, "dev", "Neg", 1);
    refuses(f, "dev", "Loop", GANTRY_REFUSE_control_flow);
    refuses(f, "cpu", "Loop", GANTRY_REFUSE_control_flow);
    answers(f, "cpu", ANY, 1);
    make_loop(f);
    must_place(f);
    const gt_partition *p = partition(f, "loop1");
    cr_assert(p->control);
    cr_assert_eq(p->node_count, 1);
    ON("loop1", "cpu");
    REFUSED("loop1", "dev", control_flow);
    cr_assert_str_eq(unit(f, "loop1")->kind, "control");
    cr_assert(lists(p->inputs, p->input_count, value(f, "w")), "captures are inputs");
    cr_assert_null(boundary(f, "w"), "what the body reads is the body's boundary");
    cr_assert_null(boundary(f, "state"));
    cr_assert(isnan(f->placement->chosen_ns));
    drop(f);
}

Test(place, a_provider_may_take_a_control_node_whole)
{
    fixture *f = make();
    answers(f, "dev", ANY, 1);
    answers(f, "cpu", ANY, 1);
    make_loop(f);
    must_place(f);
    ON("loop1", "dev");
    cr_assert(!partition(f, "loop1")->control);
    cr_assert_eq(f->placement->partition_count, 1);
    cr_assert(!isnan(f->placement->chosen_ns));
    drop(f);
}

Test(place, a_dequantize_read_by_two_providers_is_copied)
{
    fixture *f = make();
    answers(f, "dev", "DequantizeLinear", 1);
    answers(f, "dev", "Neg", 1);
    answers(f, "cpu", ANY, 1);
    input(f, "q");
    info(f, "q")->dtype = GANTRY_INT8;
    uint32_t dq = node(f, "dq", "DequantizeLinear", "q", NULL, "d");
    node(f, "a", "Neg", "d", NULL, "va");
    node(f, "b", "Abs", "d", NULL, "vb");
    output(f, "va");
    output(f, "vb");
    must_place(f);
    ON("dq", "dev");
    ON("dq/cpu", "cpu");
    cr_assert_null(boundary(f, "d"), "only the quantized bytes cross");
    cr_assert_eq(boundary(f, "q")->bytes, 8 * 32);
    cr_assert_eq(f->graph->nodes.data[node_id(f, "b")]->inputs[0],
                 f->graph->nodes.data[node_id(f, "dq/cpu")]->outputs[0]);
    cr_assert_str_eq(f->graph->nodes.data[node_id(f, "dq/cpu")]->lineage.pass, "clone_dequantize");
    cr_assert_eq(f->graph->nodes.data[node_id(f, "a")]->inputs[0], f->graph->nodes.data[dq]->outputs[0]);
    uint32_t count = f->graph->nodes.count;
    must_place(f);
    cr_assert_eq(f->graph->nodes.count, count, "placing again copies nothing");
    drop(f);
}

/* ---- sizes, limits, memory ------------------------------------------------------------------- */

Test(place, typical_shapes_take_the_symbols_at_their_typical_values)
{
    fixture *f = make();
    gt_symbol batch = {.kind = GT_SYMBOL_INPUT_DIM, .name = "n", .range_typical = 5, .range_high = INT64_MAX};
    gt_expr n = gt_expr_symbol(&f->model->exprs, &batch);
    gt_expr *dims = GT_ARENA_ARRAY(&f->model->arena, gt_expr, 3);
    dims[0] = gt_expr_make(&f->model->exprs, GT_EXPR_MUL, n, number(f, 2), 0);
    dims[1] = GT_EXPR_UNKNOWN;
    dims[2] = number(f, 3);
    gt_value *v = info(f, "x");
    v->rank = 3;
    v->dims = dims;
    int64_t shape[GANTRY_MAX_RANK];
    cr_assert_eq(gt_typical_shape(f->graph, value(f, "x"), shape), 10 * 128 * 3);
    cr_assert_eq(shape[0], 10);
    cr_assert_eq(shape[1], 128);
    cr_assert_eq(shape[2], 3);
    cr_assert_eq(gt_typical_shape(f->graph, value(f, "other"), shape), 8 * 32);
    drop(f);
}

Test(place, wrong_arguments_are_refused)
{
    fixture *f = make();
    input(f, "x");
    output(f, "x");
    f->provider_count = 0;
    cr_assert_eq(place(f), GANTRY_INVALID_ARGUMENT);
    f->provider_count = 2;
    f->providers[0].domain = 7;
    cr_assert_eq(place(f), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(f->err.message, "'dev'"), "%s", f->err.message);
    f->providers[0].domain = 1;
    must_place(f); /* an empty graph: nothing to place, nothing to move */
    cr_assert_eq(f->placement->partition_count, 0);
    cr_assert_eq(f->placement->boundary_count, 0);
    cr_assert_eq(f->placement->chosen_ns, 0);
    drop(f);
}

Test(place, every_failed_allocation_is_a_status)
{
    fixture *f = make();
    answers(f, "dev", "Neg", 10);
    answers(f, "cpu", ANY, 10);
    make_alternating(f, 20);
    gt_pin pins[] = {{"neg3", "cpu"}};
    f->options.by_cost = true;
    f->options.pins = pins;
    f->options.pin_count = 1;
    must_place(f);
    gantry_status status = GANTRY_RESOURCE;
    uint32_t failures = 0;
    for (int64_t n = 0; status == GANTRY_RESOURCE; n++) {
        gt_placement_destroy(&f->allocator, &f->placement);
        gt_graph_changed(f->graph);
        atomic_store(&f->allocator.fail_after, n);
        status = gt_place(f->graph, f->providers, f->provider_count, f->domains, f->domain_count, &f->options,
                          &f->placement, &f->err);
        atomic_store(&f->allocator.fail_after, -1);
        failures += status == GANTRY_RESOURCE;
        cr_assert(status == GANTRY_OK || !f->placement);
    }
    cr_assert_eq(status, GANTRY_OK, "%s", f->err.message);
    cr_assert_gt(failures, 10);
    drop(f);
}

Test(place, a_hundred_thousand_nodes_are_placed_in_linear_time)
{
    fixture *f = make();
    answers(f, "dev", "Neg", 10);
    answers(f, "cpu", ANY, 10);
    make_alternating(f, 50000);
    cr_assert_eq(gt_graph_sort(f->graph, &f->err), GANTRY_OK);
    f->options.by_cost = true;
    uint64_t begin = gt_now_ns();
    must_place(f);
    double seconds = (double)(gt_now_ns() - begin) * 1e-9;
    cr_assert_eq(f->placement->partition_count, 1);
    cr_assert_lt(seconds, 5, "%g s", seconds); /* about 0.3; a quadratic loop takes minutes */
    drop(f);
}
