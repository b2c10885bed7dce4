/* Placement of small graphs by hand-written verdicts: partitions, boundaries, choice and policies. */
#include "place_fixture.h"

/* ---- partitions and boundaries --------------------------------------------------------------- */

Test(place, diamond_has_three_partitions_and_no_cycle)
{
    fixture *f = make();
    answers(f, "dev", "Neg", 1);
    answers(f, "dev", "Add", 1);
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    node(f, "A", "Neg", "x", NULL, "a");
    node(f, "B", "Abs", "a", NULL, "b");
    node(f, "C", "Add", "a", "b", "y");
    output(f, "y");
    must_place(f);
    ON("A", "dev");
    ON("B", "cpu");
    ON("C", "dev");
    REFUSED("B", "dev", no_kernel);
    cr_assert_eq(f->placement->partition_count, 3);
    cr_assert_neq(partition(f, "A"), partition(f, "C"));
    cr_assert_eq(f->placement->boundary_count, 4); /* x, a, b, y */
    const gt_boundary *a = boundary(f, "a");
    cr_assert_eq(a->source_domain, 1);
    cr_assert_eq(a->target_domain, 0);
    cr_assert_eq(a->bytes, 8 * 32 * 4);
    cr_assert_float_eq(a->estimate_ns, 1000 + 1024, 1e-9);
    cr_assert_eq(boundary(f, "x")->source_partition, GT_NONE);
    cr_assert_eq(boundary(f, "y")->target_partition, GT_NONE);
    cr_assert_float_eq(f->placement->chosen_ns, 3 + 4 * 2024, 1e-6);
    cr_assert_float_eq(f->placement->all_cpu_ns, 3, 1e-9);
    drop(f);
}

Test(place, order_of_the_file_does_not_cut_partitions)
{
    fixture *f = make();
    answers(f, "dev", "Neg", 1);
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    output(f, "x");
    for (uint32_t k = 0; k < 10; k++) {
        char name[16], made[16];
        snprintf(name, sizeof name, "n%u", k);
        snprintf(made, sizeof made, "v%u", k);
        node(f, name, k % 2 ? "Neg" : "Abs", "x", NULL, made);
        output(f, made);
    }
    must_place(f);
    cr_assert_eq(f->placement->partition_count, 2);
    cr_assert_eq(boundary(f, "x")->target_domain, 1);
    cr_assert_eq(f->placement->boundary_count, 1 + 5); /* x once for five readers, and five outputs */
    drop(f);
}

Test(place, constants_and_inputs_as_outputs_are_in_no_partition)
{
    fixture *f = make();
    answers(f, "dev", ANY, 1);
    answers(f, "cpu", ANY, 1);
    const float data[2] = {1, 2};
    const int64_t dims[1] = {2};
    uint32_t constant;
    input(f, "x");
    cr_assert_eq(gt_graph_add_constant(f->graph, "c", GANTRY_FLOAT32, 1, dims, data, &constant, &f->err),
                 GANTRY_OK);
    node(f, "neg", "Add", "x", "c", "y");
    output(f, "y");
    output(f, "c");
    output(f, "x");
    must_place(f);
    cr_assert_eq(f->placement->partition_count, 1);
    const gt_partition *p = partition(f, "neg");
    cr_assert_eq(p->input_count, 1);
    cr_assert_eq(p->inputs[0], value(f, "x"));
    cr_assert_eq(p->output_count, 1);
    cr_assert_eq(f->placement->boundary_count, 2); /* x in, y out */
    drop(f);
}

Test(place, segments_are_never_mixed)
{
    fixture *f = make();
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    node(f, "a", "Neg", "x", NULL, "va");
    uint32_t late = node(f, "b", "Neg", "va", NULL, "vb");
    node(f, "c", "Neg", "vb", NULL, "vc"); /* says segment 0 itself, and depends on segment 1 */
    node(f, "d", "Neg", "x", NULL, "vd");
    output(f, "vc");
    output(f, "vd");
    f->graph->nodes.data[late]->segment = 1;
    must_place(f);
    cr_assert_eq(f->placement->partition_count, 2);
    cr_assert_eq(partition(f, "a"), partition(f, "d"));
    cr_assert_eq(partition(f, "b"), partition(f, "c"));
    cr_assert_eq(partition(f, "c")->segment, 1);
    drop(f);
}

Test(place, values_bound_by_the_caller_on_the_device_do_not_cross)
{
    fixture *f = make();
    answers(f, "dev", ANY, 1);
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    node(f, "a", "Neg", "x", NULL, "y");
    output(f, "y");
    uint32_t sources[2] = {1, GT_NONE}, outputs[1] = {1};
    f->options.source_domain = sources;
    f->options.output_domain = outputs;
    must_place(f);
    cr_assert_eq(f->placement->boundary_count, 0);
    drop(f);
}

Test(place, precision_transitions_on_one_device_are_boundaries)
{
    fixture *f = make();
    f->providers[0].name = f->selves[0].name = "int8";
    f->providers[1] = f->providers[0];
    f->provider_count = 1;
    add_provider(f, "fp16", 1);
    add_provider(f, "cpu", 0);
    computes_in(f, "int8", "Conv", GANTRY_INT8);
    computes_in(f, "fp16", ANY, GANTRY_FLOAT16);
    answers(f, "cpu", ANY, 1000);
    input(f, "x");
    node(f, "conv", "Conv", "x", NULL, "c");
    node(f, "act", "HardSwish", "c", NULL, "h");
    node(f, "conv2", "Conv", "h", NULL, "y");
    output(f, "y");
    must_place(f);
    ON("act", "fp16");
    REFUSED("act", "int8", no_kernel);
    cr_assert_eq(f->placement->partition_count, 3);
    const gt_boundary *c = boundary(f, "c");
    cr_assert(c && c->precision);
    cr_assert_eq(c->source_domain, c->target_domain);
    cr_assert_gt(c->estimate_ns, 0);
    cr_assert(boundary(f, "h") && boundary(f, "h")->precision);
    cr_assert_eq(f->placement->below_precision_count, 3);
    drop(f);
}

/* ---- choice and policies --------------------------------------------------------------------- */

Test(place, every_provider_is_asked_and_the_first_yes_counts)
{
    fixture *f = make();
    refuses(f, "dev", "Abs", GANTRY_REFUSE_dtype);
    answers(f, "dev", "Neg", 1);
    answers(f, "cpu", ANY, 1);
    f->providers[2] = f->providers[1];
    f->selves[2] = f->selves[1];
    f->providers[1] = f->providers[0];
    f->providers[1].name = "gone";
    f->providers[1].available = false;
    f->providers[1].detail = "libgone.so: cannot open shared object file";
    f->providers[2].self = &f->selves[2];
    f->provider_count = 3;
    input(f, "x");
    node(f, "a", "Neg", "x", NULL, "va");
    node(f, "b", "Abs", "va", NULL, "y");
    output(f, "y");
    must_place(f);
    ON("a", "dev");
    ON("b", "cpu");
    REFUSED("b", "dev", dtype);
    REFUSED("b", "gone", provider_absent);
    REFUSED("a", "gone", provider_absent);
    cr_assert(verdict(f, "a", "cpu")->asked && verdict(f, "a", "cpu")->supported);
    cr_assert(!verdict(f, "a", "gone")->asked);
    cr_assert_str_eq(verdict(f, "a", "gone")->refusal->detail, "libgone.so: cannot open shared object file");
    drop(f);
}

Test(place, a_judge_that_fails_is_a_refusal)
{
    fixture *f = make();
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    node(f, "a", "Neg", "x", NULL, "y");
    output(f, "y");
    must_place(f);
    REFUSED("a", "dev", no_kernel); /* said nothing */
    cr_assert_str_eq(verdict(f, "a", "dev")->refusal->operand, "Neg");
    drop(f);
}

Test(place, unsupported_nodes_are_named_with_all_reasons)
{
    fixture *f = make();
    refuses(f, "dev", "Foo", GANTRY_REFUSE_no_kernel);
    refuses(f, "cpu", "Foo", GANTRY_REFUSE_dtype);
    answers(f, "cpu", "Neg", 1);
    input(f, "x");
    node(f, "a", "Neg", "x", NULL, "va");
    node(f, "b", "Foo", "va", NULL, "vb");
    node(f, "c", "Foo", "vb", NULL, "y");
    output(f, "y");
    cr_assert_eq(place(f), GANTRY_UNSUPPORTED);
    cr_assert_eq(f->err.stage, GANTRY_STAGE_PLACE);
    cr_assert_str_eq(f->err.node, "b");
    const char *const words[] = {"'b'", "Foo", "dev: no_kernel", "cpu: dtype", "float32", "2 nodes", "'c'"};
    for (uint32_t k = 0; k < sizeof words / sizeof *words; k++)
        cr_assert(strstr(f->err.message, words[k]), "'%s' is not in: %s", words[k], f->err.message);
    cr_assert_not_null(f->placement);
    ON("a", "cpu");
    ON("b", "none");
    REFUSED("b", "cpu", dtype);
    drop(f);
}

Test(place, pins_overrule_and_refused_pins_name_both)
{
    fixture *f = make();
    answers(f, "dev", "Neg", 1);
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    node(f, "a", "Neg", "x", NULL, "va");
    node(f, "loop1.body.b", "Neg", "va", NULL, "vb");
    node(f, "c", "Abs", "vb", NULL, "y");
    output(f, "y");
    gt_pin pins[] = {{"loop1.body", "cpu"}};
    f->options.pins = pins;
    f->options.pin_count = 1;
    must_place(f);
    ON("a", "dev");
    ON("loop1.body.b", "cpu");
    REFUSED("loop1.body.b", "dev", user_pinned);
    gt_pin refused[] = {{"c", "dev"}};
    f->options.pins = refused;
    cr_assert_eq(place(f), GANTRY_UNSUPPORTED);
    cr_assert(strstr(f->err.message, "'c'") && strstr(f->err.message, "'dev'") &&
                  strstr(f->err.message, "no_kernel"),
              "%s", f->err.message);
    cr_assert_str_eq(f->err.provider, "dev");
    gt_pin unknown[] = {{"c", "gpu"}};
    f->options.pins = unknown;
    cr_assert_eq(place(f), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(f->err.message, "'gpu'"), "%s", f->err.message);
    drop(f);
}

Test(place, a_pin_holds_for_the_node_that_took_over)
{
    fixture *f = make();
    answers(f, "dev", ANY, 1);
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    uint32_t id = node(f, "conv1_fused", "Conv", "x", NULL, "y");
    output(f, "y");
    static const uint32_t sources[] = {0, 1};
    cr_assert(gt_vec_push(&f->allocator, &f->model->sources, ((gt_source){.name = "conv1"})));
    cr_assert(gt_vec_push(&f->allocator, &f->model->sources, ((gt_source){.name = "bn1"})));
    f->graph->nodes.data[id]->lineage = (gt_lineage){2, sources, "conv_batchnorm"};
    gt_pin pins[] = {{"bn1", "cpu"}, {"conv1", "dev"}};
    f->options.pins = pins;
    f->options.pin_count = 1;
    must_place(f);
    ON("conv1_fused", "cpu");
    f->options.pin_count = 2;
    cr_assert_eq(place(f), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(f->err.message, "conv1") && strstr(f->err.message, "bn1"), "%s", f->err.message);
    drop(f);
}

Test(place, precision_model_forbids_less_than_the_model_has)
{
    fixture *f = make();
    computes_in(f, "dev", ANY, GANTRY_FLOAT16);
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    node(f, "a", "Neg", "x", NULL, "y");
    output(f, "y");
    must_place(f);
    ON("a", "dev");
    cr_assert_eq(f->placement->below_precision_count, 1);
    f->options.model_precision = true;
    must_place(f);
    ON("a", "cpu");
    REFUSED("a", "dev", precision_policy);
    cr_assert_str_eq(verdict(f, "a", "dev")->refusal->actual, "float16");
    cr_assert_str_eq(verdict(f, "a", "dev")->refusal->required, "float32");
    cr_assert_eq(f->placement->below_precision_count, 0);
    drop(f);
}

Test(place, int8_between_dq_and_q_is_the_models_own_precision)
{
    fixture *f = make();
    computes_in(f, "dev", ANY, GANTRY_INT8);
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    info(f, "x")->dtype = GANTRY_INT8;
    node(f, "dq", "DequantizeLinear", "x", NULL, "d");
    node(f, "conv", "Conv", "d", NULL, "c");
    node(f, "q", "QuantizeLinear", "c", NULL, "cq");
    info(f, "cq")->dtype = GANTRY_INT8;
    node(f, "dq2", "DequantizeLinear", "cq", NULL, "e");
    node(f, "act", "Relu", "e", NULL, "y"); /* no Q after it: this one would lose precision */
    output(f, "y");
    f->options.model_precision = true;
    must_place(f);
    ON("conv", "dev");
    ON("act", "cpu");
    REFUSED("act", "dev", precision_policy);
    drop(f);
}

Test(place, late_refusals_move_only_their_node)
{
    fixture *f = make();
    answers(f, "dev", ANY, 1);
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    node(f, "a", "Neg", "x", NULL, "va");
    uint32_t topk = node(f, "topk", "TopK", "va", NULL, "vb");
    node(f, "c", "Neg", "vb", NULL, "y");
    output(f, "y");
    gt_late_refusal late = {.node = topk, .provider = 0};
    late.refusal.code = GANTRY_REFUSE_shape_limit;
    late.refusal.actual_number = 2048;
    late.refusal.limit_number = 1024;
    f->options.late = &late;
    f->options.late_count = 1;
    must_place(f);
    ON("a", "dev");
    ON("topk", "cpu");
    ON("c", "dev");
    REFUSED("topk", "dev", shape_limit);
    cr_assert_eq(verdict(f, "topk", "dev")->refusal->limit_number, 1024);
    cr_assert_eq(verdict(f, "topk", "dev")->refusal->actual_number, 2048);
    drop(f);
}

/* ---- shape arithmetic ------------------------------------------------------------------------ */

static const gt_op RESHAPE = {.name = "Reshape", .domain = "", .shape_operands = 2};

static void make_numbers(fixture *f, const char *name)
{
    gt_value *v = info(f, name);
    gt_expr *dims = GT_ARENA_ARRAY(&f->model->arena, gt_expr, 1);
    dims[0] = number(f, 2);
    v->dtype = GANTRY_INT64;
    v->rank = 1;
    v->dims = dims;
}

Test(place, nodes_known_at_bind_are_not_placed_and_their_values_do_not_cross)
{
    fixture *f = make();
    answers(f, "dev", ANY, 1);
    answers(f, "cpu", ANY, 1);
    input(f, "x");
    node(f, "relu", "Relu", "x", NULL, "a");
    uint32_t shape = node(f, "shape", "Shape", "a", NULL, "sh");
    uint32_t reshape = node(f, "reshape", "Reshape", "a", "sh", "r");
    node(f, "gather", "Gather", "r", "sh", "y");
    output(f, "y");
    make_numbers(f, "sh");
    f->graph->nodes.data[shape]->at_bind = true;
    f->graph->nodes.data[reshape]->op = &RESHAPE;
    must_place(f);
    cr_assert_eq(f->placement->unit_of_node[shape], GT_NONE);
    const gt_unit *host = &f->placement->host_units[f->placement->host_unit_of_node[shape]];
    cr_assert_eq(host->nodes[0], shape);
    cr_assert_str_eq(host->kind, "host");
    cr_assert_eq(host->verdicts[0].refusal->code, GANTRY_REFUSE_host_policy);
    cr_assert(host->verdicts[1].supported);
    cr_assert_eq(f->placement->partition_of_node[shape], GT_NONE);
    cr_assert_eq(f->placement->partition_count, 1);
    cr_assert_eq(f->placement->boundary_count, 2);
    const gt_partition *p = partition(f, "reshape");
    cr_assert(lists(p->inputs, p->input_count, value(f, "sh")), "Gather needs it as a tensor");
    f->graph->nodes.data[node_id(f, "gather")]->op = &RESHAPE;
    must_place(f);
    p = partition(f, "reshape");
    cr_assert(!lists(p->inputs, p->input_count, value(f, "sh")), "shape operands are host values");
    drop(f);
}

Test(place, shapes_computed_from_data_stay_on_the_host_by_policy)
{
    fixture *f = make();
    answers(f, "dev", ANY, 1);
    answers(f, "cpu", ANY, 1);
    refuses(f, "cpu", "Odd", GANTRY_REFUSE_no_kernel);
    input(f, "x");
    node(f, "max", "ReduceMax", "x", NULL, "m");
    node(f, "cast", "Cast", "m", NULL, "n");
    node(f, "mul", "Mul", "n", NULL, "s");
    uint32_t reshape = node(f, "reshape", "Reshape", "x", "s", "y");
    output(f, "y");
    make_numbers(f, "n");
    make_numbers(f, "s");
    f->graph->nodes.data[reshape]->op = &RESHAPE;
    must_place(f);
    ON("max", "dev"); /* its result is data */
    ON("cast", "cpu");
    ON("mul", "cpu");
    ON("reshape", "dev");
    REFUSED("cast", "dev", host_policy);
    REFUSED("mul", "dev", host_policy);
    gt_pin pins[] = {{"mul", "dev"}};
    f->options.pins = pins;
    f->options.pin_count = 1;
    must_place(f);
    ON("mul", "dev");
    drop(f);
}
