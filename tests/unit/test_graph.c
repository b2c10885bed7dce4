/* Changing graphs: uses, order, replacing values, lineage, clones, and bodies put in place of their node. */
#include "graph/graph.h"

#include <criterion/criterion.h>

static gt_allocator allocator;
static gt_model *model;
static gt_graph *root;
static gantry_error error;

#define GOOD(call) cr_assert_eq((call), GANTRY_OK, "%s", error.message)

static void begin(void)
{
    gt_allocator_init(&allocator, NULL);
    error = (gantry_error)GANTRY_ERROR_INIT;
    GOOD(gt_model_create(&allocator, &model, &error));
    GOOD(gt_graph_create(model, NULL, GT_NONE, "main", "", &root, &error));
    model->root = root;
}

static void end(void)
{
    gt_model_destroy(&model);
    cr_assert_null(model);
}

TestSuite(graph, .init = begin, .fini = end);

static uint32_t add_value(gt_graph *graph, const char *name)
{
    uint32_t id;
    GOOD(gt_graph_add_value(graph, name, &id, &error));
    return id;
}

static uint32_t add_input(gt_graph *graph, const char *name)
{
    uint32_t id = add_value(graph, name);
    graph->values.data[id]->input_index = (int32_t)graph->inputs.count;
    cr_assert(gt_vec_push(&allocator, &graph->inputs, id));
    return id;
}

static void add_output(gt_graph *graph, uint32_t value)
{
    graph->values.data[value]->is_output = true;
    cr_assert(gt_vec_push(&allocator, &graph->outputs, value));
}

/* A node of the file: it has a source. Makes its output value when `output` is a name. */
static uint32_t add_node(gt_graph *graph, const char *op, const char *name, uint32_t a, uint32_t b,
                         const char *output)
{
    const uint32_t inputs[] = {a, b};
    uint32_t node, value = add_value(graph, output);
    GOOD(gt_graph_add_node(graph, name, "", op, 17, b == GT_NONE ? 1 : 2, inputs, 1, &value, &node, &error));
    uint32_t *source = gt_arena_alloc(&model->arena, sizeof *source);
    *source = model->sources.count;
    gt_source record = {.name = name, .op = op, .domain = "", .holders = 1};
    cr_assert(gt_vec_push(&allocator, &model->sources, record));
    graph->nodes.data[node]->lineage = (gt_lineage){1, source, NULL};
    return node;
}

static uint32_t output_of(const gt_graph *graph, uint32_t node)
{
    return graph->nodes.data[node]->outputs[0];
}

static uint32_t find(const gt_graph *graph, const char *name)
{
    return gt_map_get(&graph->value_names, name, strlen(name), GT_NONE);
}

static uint32_t use_count(gt_graph *graph, uint32_t value)
{
    const gt_use *uses;
    uint32_t count;
    GOOD(gt_graph_uses(graph, value, &uses, &count, &error));
    return count;
}

static gt_graph *add_body(gt_graph *graph, uint32_t node, const char *role)
{
    gt_node *owner = graph->nodes.data[node];
    char scope[64];
    snprintf(scope, sizeof scope, "%s.%s.", owner->name, role);
    gt_body *bodies = gt_arena_alloc(&model->arena, (owner->body_count + 1) * sizeof *bodies);
    if (owner->body_count)
        memcpy(bodies, owner->bodies, owner->body_count * sizeof *bodies);
    gt_body *body = &bodies[owner->body_count++];
    body->name = role;
    GOOD(gt_graph_create(model, graph, node, role, scope, &body->graph, &error));
    owner->bodies = bodies;
    gt_graph_changed(graph);
    return body->graph;
}

static uint32_t capture(gt_graph *body, const char *name, uint32_t outer)
{
    uint32_t id = add_value(body, name);
    body->values.data[id]->captured = outer;
    return id;
}

/* ---- building -------------------------------------------------------------------------------- */

Test(graph, names_are_unique)
{
    uint32_t id, x = add_input(root, "x");
    cr_assert_eq(gt_graph_add_value(root, "x", &id, &error), GANTRY_MODEL_GRAPH);
    uint32_t fresh = add_value(root, NULL);
    cr_assert_neq(root->values.data[fresh]->name[0], 0);
    cr_assert_eq(find(root, root->values.data[fresh]->name), fresh);
    uint32_t a = add_node(root, "Neg", "n", x, GT_NONE, "a"), b = add_node(root, "Neg", "n", x, GT_NONE, "b");
    cr_assert_str_eq(root->nodes.data[a]->name, "n");
    cr_assert_str_neq(root->nodes.data[b]->name, "n");
    cr_assert_eq(root->values.data[output_of(root, b)]->producer, b);
}

Test(graph, attributes_are_copied_and_replaced)
{
    uint32_t x = add_input(root, "x"), n = add_node(root, "Pad", "pad1", x, GT_NONE, "y");
    int64_t pads[] = {1, 2};
    const char *words[] = {"one", "two"};
    GOOD(gt_node_set_ints(root, n, "pads", pads, 2, &error));
    GOOD(gt_node_set_float(root, n, "value", 1.5f, &error));
    GOOD(gt_node_set_int(root, n, "value", 3, &error));
    gantry_attribute text = {sizeof text, "mode", GANTRY_ATTR_STRING, .count = 1, .s = "a\0b", .length = 3};
    GOOD(gt_node_set_attribute(root, n, &text, &error));
    gantry_attribute list = {sizeof list, "list", GANTRY_ATTR_STRINGS, .count = 2, .strings = words};
    GOOD(gt_node_set_attribute(root, n, &list, &error));
    pads[0] = 9;
    words[0] = "changed";
    const gt_node *node = root->nodes.data[n];
    uint32_t count;
    cr_assert_eq(gt_node_ints(node, "pads", &count)[0], 1);
    cr_assert_eq(count, 2);
    cr_assert_eq(gt_node_int(node, "value", 0), 3);
    cr_assert_float_eq(gt_node_float(node, "value", 7), 7, 0, "it is no float any more");
    cr_assert_eq(node->attribute_count, 4);
    cr_assert_eq(memcmp(gt_node_attribute(node, "mode")->s, "a\0b", 4), 0);
    cr_assert_str_eq(gt_node_attribute(node, "list")->strings[0], "one");
    cr_assert_null(gt_node_ints(node, "none", &count));
    cr_assert_str_eq(gt_node_string(node, "none", "default"), "default");
}

Test(graph, values_are_printed_with_their_shape)
{
    const int64_t dims[] = {2, 3};
    const float data[6] = {0};
    uint32_t w, x = add_input(root, "x");
    GOOD(gt_graph_add_constant(root, "w", GANTRY_FLOAT32, 2, dims, data, &w, &error));
    gt_text text;
    gt_text_init(&text, &allocator);
    gt_value_print(root, w, &text);
    gt_text_printf(&text, "; ");
    gt_value_print(root, x, &text);
    cr_assert_str_eq(text.data, "w: float32[2,3]; x: undefined[...]");
    gt_text_free(&text);
}

/* ---- order ----------------------------------------------------------------------------------- */

Test(graph, order_is_the_files_where_it_can_be)
{
    uint32_t x = add_input(root, "x"), late = add_value(root, "late"), node;
    uint32_t a = add_node(root, "Neg", "a", x, GT_NONE, "va");
    uint32_t b = add_node(root, "Add", "b", output_of(root, a), late, "vb");
    uint32_t c = add_node(root, "Neg", "c", x, GT_NONE, "vc");
    GOOD(gt_graph_add_node(root, "d", "", "Neg", 17, 1, &x, 1, &late, &node, &error));
    GOOD(gt_graph_sort(root, &error));
    const uint32_t expected[] = {a, node, b, c};
    cr_assert_arr_eq(root->order.data, expected, sizeof expected);
    gt_graph_remove_node(root, c, "dead", "dead_code");
    GOOD(gt_graph_sort(root, &error));
    cr_assert_eq(root->order.count, 3);
    root->nodes.data[a]->inputs[0] = output_of(root, b);
    gt_graph_changed(root);
    cr_assert_eq(gt_graph_sort(root, &error), GANTRY_MODEL_GRAPH);
    cr_assert(strstr(error.message, "'a' needs 'vb' of 'b', 'b' needs 'va' of 'a'"), "%s", error.message);
}

Test(graph, a_long_chain_is_sorted_without_recursion)
{
    uint32_t value = add_input(root, "x"), first = value;
    for (int k = 0; k < 200000; k++) {
        uint32_t next = add_value(root, NULL), node;
        GOOD(gt_graph_add_node(root, NULL, "", "Neg", 17, 1, &value, 1, &next, &node, &error));
        value = next;
    }
    uint32_t node, seed = add_value(root, "seed");
    root->nodes.data[0]->inputs[0] = seed;
    GOOD(gt_graph_add_node(root, NULL, "", "Neg", 17, 1, &first, 1, &seed, &node, &error));
    GOOD(gt_graph_sort(root, &error));
    cr_assert_eq(root->order.data[0], node);
    cr_assert_eq(root->order.data[200000], 199999);
}

/* ---- replacing ------------------------------------------------------------------------------- */

Test(graph, a_replaced_value_has_no_reader_left)
{
    uint32_t x = add_input(root, "x"), c = add_input(root, "c");
    uint32_t old = output_of(root, add_node(root, "Neg", "n1", x, GT_NONE, "old"));
    uint32_t new = output_of(root, add_node(root, "Abs", "n2", x, GT_NONE, "new"));
    uint32_t reader = add_node(root, "Add", "n3", old, old, "sum"),
             branch = add_node(root, "If", "if1", c, GT_NONE, "y");
    gt_graph *body = add_body(root, branch, "then_branch");
    uint32_t captured = capture(body, "old", old);
    add_output(body, output_of(body, add_node(body, "Neg", "if1.then_branch.n", captured, GT_NONE, "p")));
    cr_assert_eq(use_count(root, old), 3);
    GOOD(gt_graph_replace_value(root, old, new, &error));
    cr_assert_eq(use_count(root, old), 0);
    cr_assert_eq(use_count(root, new), 3);
    cr_assert_eq(root->nodes.data[reader]->inputs[1], new);
    cr_assert_eq(body->values.data[captured]->captured, new);
}

Test(graph, an_output_keeps_its_name_when_it_is_replaced)
{
    uint32_t x = add_input(root, "x");
    uint32_t y = output_of(root, add_node(root, "Identity", "n1", x, GT_NONE, "y"));
    uint32_t t = output_of(root, add_node(root, "Neg", "n2", x, GT_NONE, "t"));
    add_output(root, y);
    add_output(root, y);
    GOOD(gt_graph_replace_value(root, y, t, &error));
    cr_assert_eq(root->outputs.data[0], t);
    cr_assert_eq(root->outputs.data[1], t);
    cr_assert_str_eq(root->values.data[t]->name, "y");
    cr_assert_eq(find(root, "y"), t);
    cr_assert_eq(find(root, "t"), y);
    cr_assert(root->values.data[t]->is_output);
    cr_assert_not(root->values.data[y]->is_output);

    GOOD(gt_graph_replace_value(root, t, x, &error));
    uint32_t output = root->outputs.data[0];
    cr_assert_str_eq(root->values.data[output]->name, "y");
    const gt_node *identity = root->nodes.data[root->values.data[output]->producer];
    cr_assert_str_eq(identity->op_type, "Identity");
    cr_assert_eq(identity->inputs[0], x);
    cr_assert_str_eq(root->values.data[x]->name, "x");
}

Test(graph, a_capture_of_what_became_a_constant_is_one)
{
    const float one = 1;
    uint32_t x = add_input(root, "x"), c = add_input(root, "c"), folded;
    uint32_t old = output_of(root, add_node(root, "Neg", "n1", x, GT_NONE, "old"));
    uint32_t outer = add_node(root, "If", "if1", c, GT_NONE, "y");
    gt_graph *middle = add_body(root, outer, "then_branch");
    uint32_t in_middle = capture(middle, "old", old);
    uint32_t nested = add_node(middle, "If", "if1.then_branch.if2", in_middle, GT_NONE, "p");
    gt_graph *deep = add_body(middle, nested, "then_branch");
    uint32_t in_deep = capture(deep, "old", in_middle);
    add_output(deep, output_of(deep, add_node(deep, "Neg", "deep", in_deep, GT_NONE, "q")));
    add_output(middle, output_of(middle, nested));
    add_output(root, output_of(root, outer));
    GOOD(gt_graph_add_constant(root, "folded", GANTRY_FLOAT32, 0, NULL, &one, &folded, &error));
    GOOD(gt_graph_replace_value(root, old, folded, &error));
    uint32_t constant = root->values.data[folded]->constant;
    cr_assert_eq(middle->values.data[in_middle]->constant, constant);
    cr_assert_eq(middle->values.data[in_middle]->captured, GT_NONE);
    cr_assert_eq(deep->values.data[in_deep]->constant, constant);
    cr_assert_eq(deep->values.data[in_deep]->captured, GT_NONE);
    cr_assert_eq(deep->values.data[in_deep]->dtype, GANTRY_FLOAT32);
}

/* ---- lineage --------------------------------------------------------------------------------- */

Test(graph, a_source_is_removed_when_nobody_stands_for_it)
{
    uint32_t x = add_input(root, "x");
    uint32_t a = add_node(root, "Neg", "a", x, GT_NONE, "va"),
             b = add_node(root, "Neg", "b", x, GT_NONE, "vb");
    const uint32_t both[] = {b, a};
    for (int first_remove = 0; first_remove < 2; first_remove++) {
        uint32_t fused = add_node(root, "Fused", "f", x, GT_NONE, NULL);
        if (first_remove) {
            gt_graph_remove_node(root, a, "fused", "pass");
            gt_graph_remove_node(root, b, "fused", "pass");
        }
        gt_lineage lineage;
        GOOD(gt_lineage_join(model, root, both, 2, "pass", &lineage, &error));
        root->nodes.data[fused]->lineage = lineage;
        cr_assert_eq(lineage.count, 2);
        cr_assert_lt(lineage.sources[0], lineage.sources[1]);
        cr_assert_str_eq(lineage.pass, "pass");
        cr_assert_null(model->sources.data[0].removed_by);
        cr_assert_null(model->sources.data[1].removed_by);
        if (!first_remove) {
            gt_graph_remove_node(root, fused, "undone", "pass");
            cr_assert_null(model->sources.data[0].removed_by, "a itself is still there");
        }
    }
    cr_assert_eq(root->values.data[output_of(root, a)]->producer, GT_NONE);
    gt_graph_remove_node(root, root->nodes.count - 1, "dead", "dead_code");
    cr_assert_str_eq(model->sources.data[0].removed_by, "dead");
    cr_assert_str_eq(model->sources.data[1].removed_pass, "dead_code");
}

/* ---- bodies ---------------------------------------------------------------------------------- */

typedef struct branches {
    uint32_t x, c, control;
    gt_graph *then_branch, *else_branch, *deep;
    uint32_t constant;
} branches;

/* y, same, passed, w = If(c): then {a = Neg x; b = If(x) {q = Neg a, reads captured x}; outputs b, b, x, w}
 */
static branches add_branches(void)
{
    const float one = 1;
    branches s = {.x = add_input(root, "x"), .c = add_input(root, "c")};
    uint32_t outputs[4];
    static const char *const names[] = {"y", "same", "passed", "w_out"};
    for (int k = 0; k < 4; k++)
        outputs[k] = add_value(root, names[k]);
    GOOD(gt_graph_add_node(root, "if1", "", "If", 17, 1, &s.c, 4, outputs, &s.control, &error));
    for (int k = 0; k < 4; k++)
        add_output(root, outputs[k]);

    gt_graph *body = s.then_branch = add_body(root, s.control, "then_branch");
    uint32_t x = capture(body, "x", s.x), w;
    GOOD(gt_graph_add_constant(body, "w", GANTRY_FLOAT32, 0, NULL, &one, &w, &error));
    s.constant = body->values.data[w]->constant;
    uint32_t a = output_of(body, add_node(body, "Neg", "if1.then_branch.neg", x, GT_NONE, "a"));
    uint32_t nested = add_node(body, "If", "if1.then_branch.if2", x, GT_NONE, "b");
    s.deep = add_body(body, nested, "then_branch");
    uint32_t deep_a = capture(s.deep, "a", a), deep_x = capture(s.deep, "x", x);
    add_output(s.deep, output_of(s.deep, add_node(s.deep, "Add", "if1.then_branch.if2.then_branch.add",
                                                  deep_a, deep_x, "q")));
    uint32_t b = output_of(body, nested);
    add_output(body, b);
    add_output(body, b);
    add_output(body, x);
    add_output(body, w);
    GOOD(gt_graph_sort(body, &error));

    gt_graph *other = s.else_branch = add_body(root, s.control, "else_branch");
    uint32_t other_x = capture(other, "x", s.x);
    add_output(other, output_of(other, add_node(other, "Neg", "if1.else_branch.neg", other_x, GT_NONE, "n")));
    GOOD(gt_graph_sort(root, &error));
    return s;
}

static const gt_node *producer_of(const gt_graph *graph, const char *name)
{
    return graph->nodes.data[graph->values.data[find(graph, name)]->producer];
}

Test(graph, a_chosen_branch_takes_the_place_of_its_node)
{
    branches s = add_branches();
    add_value(root, "a"); /* the branch has one of this name too */
    GOOD(gt_graph_inline_body(root, s.control, 0, &error));
    GOOD(gt_graph_sort(root, &error));
    cr_assert(root->nodes.data[s.control]->removed);
    const gt_node *nested = producer_of(root, "y");
    cr_assert_str_eq(nested->name, "if1.then_branch.if2");
    cr_assert_eq(nested->inputs[0], s.x);
    cr_assert_eq(s.deep->parent, root);
    cr_assert_eq(root->nodes.data[s.deep->parent_node], nested);
    const gt_node *neg = producer_of(root, "if1.then_branch.a");
    cr_assert_str_eq(neg->name, "if1.then_branch.neg");
    cr_assert_eq(s.deep->values.data[find(s.deep, "a")]->captured, neg->outputs[0]);
    cr_assert_eq(s.deep->values.data[find(s.deep, "x")]->captured, s.x);
    for (const char *const *name = (const char *const[]){"same", "passed", "w_out", NULL}; *name; name++)
        cr_assert_str_eq(producer_of(root, *name)->op_type, "Identity", "%s", *name);
    cr_assert_eq(producer_of(root, "passed")->inputs[0], s.x);
    cr_assert_eq(root->values.data[producer_of(root, "w_out")->inputs[0]]->constant, s.constant);
    cr_assert_eq(root->outputs.count, 4);
    cr_assert_eq(root->outputs.data[0], find(root, "y"));
    for (uint32_t k = 0; k < model->sources.count; k++) {
        bool other = strcmp(model->sources.data[k].name, "if1.else_branch.neg") == 0;
        cr_assert_eq(model->sources.data[k].removed_by != NULL, other, "%s", model->sources.data[k].name);
        if (other)
            cr_assert_str_eq(model->sources.data[k].removed_by, "branch_not_taken");
    }
    cr_assert_eq(use_count(root, s.x), 4, "neg, if2, the capture inside it, and the Identity");
}

Test(graph, a_clone_is_a_world_of_its_own)
{
    branches s = add_branches();
    gt_graph *clone;
    GOOD(gt_graph_clone(root, &clone, &error));
    cr_assert_eq(clone->values.count, root->values.count);
    cr_assert_eq(find(clone, "passed"), find(root, "passed"));
    GOOD(gt_graph_inline_body(clone, s.control, 0, &error));
    GOOD(gt_graph_sort(clone, &error));
    cr_assert_eq(clone->order.count, 5);

    cr_assert_eq(root->order.count, 1);
    cr_assert_not(root->nodes.data[s.control]->removed);
    cr_assert_eq(root->nodes.data[s.control]->bodies[0].graph, s.then_branch);
    cr_assert_eq(s.then_branch->nodes.count, 2);
    cr_assert_eq(s.deep->parent, s.then_branch);
    cr_assert_eq(use_count(root, s.x), 2);
    for (uint32_t k = 0; k < model->sources.count; k++)
        cr_assert_null(model->sources.data[k].removed_by, "the original still has %s",
                       model->sources.data[k].name);
    GOOD(gt_graph_inline_body(root, s.control, 1, &error) == GANTRY_MODEL_GRAPH ? GANTRY_OK
                                                                                : GANTRY_INTERNAL);
}

Test(graph, unread_captures_do_not_order_anything)
{
    uint32_t c = add_input(root, "c");
    uint32_t control = add_node(root, "If", "if1", c, GT_NONE, "t");
    uint32_t y = output_of(root, add_node(root, "Relu", "n1", output_of(root, control), GT_NONE, "y"));
    gt_graph *body = add_body(root, control, "then_branch");
    uint32_t captured = capture(body, "y", y);
    cr_assert_eq(use_count(root, y), 0);
    GOOD(gt_graph_sort(root, &error));
    cr_assert_eq(body->values.data[captured]->captured, GT_NONE);
}

/* ---- out of memory --------------------------------------------------------------------------- */

static gantry_status clone_and_inline(uint32_t control)
{
    gt_graph *clone;
    const gt_use *uses;
    uint32_t count;
    GT_TRY(gt_graph_clone(root, &clone, &error));
    GT_TRY(gt_graph_inline_body(clone, control, 0, &error));
    GT_TRY(gt_graph_sort(clone, &error));
    return gt_graph_uses(clone, 0, &uses, &count, &error);
}

Test(graph, out_of_memory_is_a_status)
{
    branches s = add_branches();
    gantry_status status = GANTRY_RESOURCE;
    uint32_t k = 0;
    for (; status != GANTRY_OK && k < 1000; k++) {
        atomic_store(&allocator.fail_after, (int64_t)k);
        status = clone_and_inline(s.control);
        cr_assert(status == GANTRY_OK || status == GANTRY_RESOURCE, "%d: %s", status, error.message);
    }
    atomic_store(&allocator.fail_after, -1);
    cr_assert_eq(status, GANTRY_OK);
    cr_assert_gt(k, 10);
}
