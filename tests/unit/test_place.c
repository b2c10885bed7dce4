/* Placement of small graphs by hand-written verdicts. */
#include "base/clock.h"
#include "base/text.h"
#include "graph/op.h"
#include "graph/place.h"

#include <criterion/criterion.h>
#include <math.h>

/* ---- a graph to place
 * -------------------------------------------------------------------------------------------- */

#define MAX_ROWS 32
#define ANY ((const char *)NULL)

/* What one provider answers for an operator or for a node of that name; the first row that fits counts. */
typedef struct answer {
    const char *provider;
    const char *what; /* operator type or node name; ANY: all others */
    double estimate_ns;
    gantry_dtype executes_in;
    gantry_refusal_code refusal; /* 0: supported */
} answer;

typedef struct fixture {
    gt_allocator allocator;
    gt_model *model;
    gt_graph *graph;
    answer answers[MAX_ROWS];
    uint32_t answer_count;
    const gt_graph *shown; /* the graph that judges see, when show is the hook */
    gt_place_provider providers[4];
    const char *names[4];
    struct judge_self {
        struct fixture *fixture;
        const char *name;
    } selves[4];
    uint32_t provider_count;
    gt_place_domain domains[3];
    uint32_t domain_count;
    gt_place_options options;
    gt_placement *placement;
    gantry_error err;
} fixture;

static gantry_status judge(void *self, const gt_graph *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    const struct judge_self *me = (const struct judge_self *)self;
    const gt_node *node = graph->nodes.data[nodes[0]];
    const fixture *f = me->fixture;
    if (f->shown)
        cr_assert_eq(f->shown, graph, "judged %s without being shown its graph", node->name);
    for (uint32_t k = 0; k < f->answer_count; k++) {
        const answer *a = &f->answers[k];
        if (strcmp(a->provider, me->name) != 0 ||
            (a->what && strcmp(a->what, node->op_type) != 0 && strcmp(a->what, node->name) != 0))
            continue;
        if (a->refusal) {
            gantry_refuse(out_verdict, a->refusal, node->op_type, "float32", "int8", "");
            return GANTRY_OK;
        }
        out_verdict->supported = 1;
        out_verdict->estimate_ns = a->estimate_ns;
        out_verdict->executes_in = a->executes_in;
        return GANTRY_OK;
    }
    return GANTRY_OK; /* no answer at all: counts as no_kernel */
}

static void add_provider(fixture *f, const char *name, uint32_t domain)
{
    uint32_t k = f->provider_count++;
    f->selves[k] = (struct judge_self){f, name};
    f->providers[k] = (gt_place_provider){.name = name,
                                          .domain = domain,
                                          .available = true,
                                          .detail = "",
                                          .judge = judge,
                                          .self = &f->selves[k]};
}

static void answers(fixture *f, const char *provider, const char *what, double estimate_ns)
{
    f->answers[f->answer_count++] =
        (answer){provider, what, estimate_ns, GANTRY_UNDEFINED, GANTRY_REFUSE_NONE};
}

static void computes_in(fixture *f, const char *provider, const char *what, gantry_dtype dtype)
{
    f->answers[f->answer_count++] = (answer){provider, what, 100, dtype, GANTRY_REFUSE_NONE};
}

static void refuses(fixture *f, const char *provider, const char *what, gantry_refusal_code code)
{
    f->answers[f->answer_count++] = (answer){provider, what, 0, GANTRY_UNDEFINED, code};
}

/* "dev" in domain 1 and "cpu" on the host, 1 us and 1 byte/ns apart. */
static fixture *make(void)
{
    fixture *f = calloc(1, sizeof *f);
    gt_allocator_init(&f->allocator, NULL);
    f->err.struct_bytes = sizeof f->err;
    cr_assert_eq(gt_model_create(&f->allocator, &f->model, &f->err), GANTRY_OK);
    if (!f->model->root)
        cr_assert_eq(gt_graph_create(f->model, NULL, GT_NONE, "test", "", &f->model->root, &f->err),
                     GANTRY_OK);
    f->graph = f->model->root;
    add_provider(f, "dev", 1);
    add_provider(f, "cpu", 0);
    f->domains[0].name = "host";
    f->domains[1] = (gt_place_domain){"dev:0", 1000, 1000, 1, 1, 'a'};
    f->domains[2] = (gt_place_domain){"dev:1", 1000, 1000, 1, 1, 'a'};
    f->domain_count = 3;
    return f;
}

static void drop(fixture *f)
{
    gt_placement_destroy(&f->allocator, &f->placement);
    gt_model_destroy(&f->model);
    free(f);
}

static gt_expr number(fixture *f, int64_t value)
{
    return gt_expr_const(&f->model->exprs, value);
}

static uint32_t value_in(fixture *f, gt_graph *graph, const char *name)
{
    uint32_t id = gt_map_get(&graph->value_names, name, strlen(name), GT_NONE);
    if (id != GT_NONE)
        return id;
    cr_assert_eq(gt_graph_add_value(graph, name, &id, &f->err), GANTRY_OK, "%s", f->err.message);
    gt_expr *dims = GT_ARENA_ARRAY(&f->model->arena, gt_expr, 2);
    dims[0] = number(f, 8);
    dims[1] = number(f, 32);
    gt_value *value = graph->values.data[id];
    value->kind = GANTRY_KIND_TENSOR;
    value->dtype = GANTRY_FLOAT32;
    value->rank = 2;
    value->dims = dims;
    return id;
}

static uint32_t value(fixture *f, const char *name)
{
    return value_in(f, f->graph, name);
}

static gt_value *info(fixture *f, const char *name)
{
    uint32_t id = value(f, name); /* may move the array of values */
    return f->graph->values.data[id];
}

static void input_of(fixture *f, gt_graph *graph, const char *name)
{
    uint32_t id = value_in(f, graph, name);
    graph->values.data[id]->input_index = (int32_t)graph->inputs.count;
    cr_assert(gt_vec_push(&f->allocator, &graph->inputs, id));
}

static void output_of(fixture *f, gt_graph *graph, const char *name)
{
    uint32_t id = value_in(f, graph, name);
    graph->values.data[id]->is_output = true;
    cr_assert(gt_vec_push(&f->allocator, &graph->outputs, id));
}

static void input(fixture *f, const char *name)
{
    input_of(f, f->graph, name);
}

static void output(fixture *f, const char *name)
{
    output_of(f, f->graph, name);
}

/* A node with up to two inputs (NULL: none) and one output. */
static uint32_t node_in(fixture *f, gt_graph *graph, const char *name, const char *op, const char *a,
                        const char *b, const char *out)
{
    uint32_t inputs[2], count = 0, id, result = value_in(f, graph, out);
    if (a)
        inputs[count++] = value_in(f, graph, a);
    if (b)
        inputs[count++] = value_in(f, graph, b);
    cr_assert_eq(gt_graph_add_node(graph, name, "", op, 21, count, inputs, 1, &result, &id, &f->err),
                 GANTRY_OK, "%s", f->err.message);
    return id;
}

static uint32_t node(fixture *f, const char *name, const char *op, const char *a, const char *b,
                     const char *out)
{
    return node_in(f, f->graph, name, op, a, b, out);
}

static gantry_status place(fixture *f)
{
    gt_placement_destroy(&f->allocator, &f->placement);
    cr_assert_eq(gt_graph_sort(f->graph, &f->err), GANTRY_OK, "%s", f->err.message);
    return gt_place(f->graph, f->providers, f->provider_count, f->domains, f->domain_count, &f->options,
                    &f->placement, &f->err);
}

static void must_place(fixture *f)
{
    gantry_status status = place(f);
    cr_assert_eq(status, GANTRY_OK, "status %d: %s", status, f->err.message);
}

static uint32_t node_id(const fixture *f, const char *name)
{
    for (uint32_t k = 0; k < f->graph->nodes.count; k++)
        if (!f->graph->nodes.data[k]->removed && strcmp(f->graph->nodes.data[k]->name, name) == 0)
            return k;
    cr_assert_fail("no node %s", name);
    return GT_NONE;
}

static const gt_unit *unit(const fixture *f, const char *name)
{
    uint32_t index = f->placement->unit_of_node[node_id(f, name)];
    cr_assert_neq(index, GT_NONE, "%s has no unit", name);
    return &f->placement->units[index];
}

static const char *provider_of(const fixture *f, const char *name)
{
    const gt_unit *u = unit(f, name);
    return u->provider == GT_NONE ? "none" : f->providers[u->provider].name;
}

#define ON(name, provider)                                                                                   \
    cr_assert_str_eq(provider_of(f, name), provider, "%s is on %s", name, provider_of(f, name))

static const gt_kept_verdict *verdict(const fixture *f, const char *name, const char *provider)
{
    for (uint32_t p = 0; p < f->provider_count; p++)
        if (strcmp(f->providers[p].name, provider) == 0)
            return &unit(f, name)->verdicts[p];
    cr_assert_fail("no provider %s", provider);
    return NULL;
}

static gantry_refusal_code refusal(const fixture *f, const char *name, const char *provider)
{
    const gt_kept_verdict *v = verdict(f, name, provider);
    return v->refusal ? v->refusal->code : GANTRY_REFUSE_NONE;
}

#define REFUSED(name, provider, code)                                                                        \
    cr_assert_eq(refusal(f, name, provider), GANTRY_REFUSE_##code, "%s on %s: %s", name, provider,           \
                 gantry_refusal_text(refusal(f, name, provider)))

static const gt_boundary *boundary(fixture *f, const char *name)
{
    uint32_t id = value(f, name);
    for (uint32_t k = 0; k < f->placement->boundary_count; k++)
        if (f->placement->boundaries[k].value == id)
            return &f->placement->boundaries[k];
    return NULL;
}

static const gt_partition *partition(const fixture *f, const char *name)
{
    return &f->placement->partitions[f->placement->partition_of_node[node_id(f, name)]];
}

static bool lists(const uint32_t *list, uint32_t count, uint32_t id)
{
    for (uint32_t k = 0; k < count; k++)
        if (list[k] == id)
            return true;
    return false;
}

/* ---- partitions and boundaries
 * ----------------------------------------------------------------------------------- */

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

/* ---- choice and policies
 * ----------------------------------------------------------------------------------------- */

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

/* ---- shape arithmetic
 * -------------------------------------------------------------------------------------------- */

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

/* ---- worth
 * ------------------------------------------------------------------------------------------------------- */

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

/* ---- composites, control, copies
 * --------------------------------------------------------------------------------- */

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

/* ---- sizes, limits, memory
 * --------------------------------------------------------------------------------------- */

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
