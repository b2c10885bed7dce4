/* Graph views: ids and indexes, constants, what is known when, captures, partitions. */
#include "core/view.h"

#include <criterion/criterion.h>

static gt_allocator allocator;
static gt_model *model;
static gt_arena arena;
static gt_view view;
static gantry_error error = GANTRY_ERROR_INIT;

#define OK(call) cr_assert_eq((call), GANTRY_OK, "%s", error.message)

static void setup(void)
{
    gt_allocator_init(&allocator, NULL);
    OK(gt_model_create(&allocator, &model, &error));
    gt_arena_init(&arena, &allocator);
    if (!model->root)
        OK(gt_graph_create(model, NULL, GT_NONE, "g", "", &model->root, &error));
}

static void teardown(void)
{
    gt_arena_clear(&arena);
    gt_model_destroy(&model);
}

TestSuite(view, .init = setup, .fini = teardown);

/* A float32 value with one dim. */
static uint32_t add_value(gt_graph *graph, const char *name, gt_expr dim)
{
    uint32_t id;
    OK(gt_graph_add_value(graph, name, &id, &error));
    gt_value *value = gt_graph_value(graph, id);
    gt_expr *dims = gt_arena_copy(&model->arena, &dim, sizeof dim);
    value->kind = GANTRY_KIND_TENSOR;
    value->dtype = GANTRY_FLOAT32;
    value->rank = 1;
    value->dims = dims;
    return id;
}

static uint32_t add_input(gt_graph *graph, const char *name, gt_expr dim)
{
    uint32_t id = add_value(graph, name, dim);
    gt_graph_value(graph, id)->input_index = (int32_t)graph->inputs.count;
    gt_vec_push(&allocator, &graph->inputs, id);
    return id;
}

static void add_output(gt_graph *graph, uint32_t id)
{
    gt_graph_value(graph, id)->is_output = true;
    gt_vec_push(&allocator, &graph->outputs, id);
}

static uint32_t add_node(gt_graph *graph, const char *op, uint32_t count, const uint32_t *inputs,
                         uint32_t output)
{
    uint32_t id;
    OK(gt_graph_add_node(graph, NULL, "", op, 13, count, inputs, 1, &output, &id, &error));
    return id;
}

static gt_expr number(int64_t value)
{
    return gt_expr_const(&model->exprs, value);
}

static gt_expr symbol(gt_symbol_kind kind, const char *name, uint32_t segment)
{
    gt_symbol s = {
        .kind = kind, .name = name, .segment = segment, .bound = GT_EXPR_UNKNOWN, .range_typical = 7};
    return gt_expr_symbol(&model->exprs, &s);
}

static const gantry_value_view *seen(uint32_t id)
{
    cr_assert_neq(view.value_index[id], GANTRY_NO_ID);
    cr_assert_eq(view.value_ids[view.value_index[id]], id);
    const gantry_value_view *value = view.view.values[view.value_index[id]];
    cr_assert_eq(value->id, id);
    return value;
}

Test(view, a_graph_with_a_constant_and_a_symbol)
{
    gt_graph *g = model->root;
    uint32_t x = add_input(g, "x", symbol(GT_SYMBOL_INPUT_DIM, "batch", 0)), c;
    const int64_t one[] = {1};
    const float two = 2;
    OK(gt_graph_add_constant(g, "c", GANTRY_FLOAT32, 1, one, &two, &c, &error));
    uint32_t t = add_value(g, "t", number(4)), y = add_value(g, "y", GT_EXPR_UNKNOWN);
    uint32_t operands[] = {x, c, GT_NONE};
    uint32_t add = add_node(g, "Add", 3, operands, t), neg = add_node(g, "Neg", 1, &t, y);
    add_output(g, y);
    OK(gt_graph_sort(g, &error));
    OK(gt_view_graph(&arena, g, &view, &error));
    cr_assert_eq(view.view.node_count, 2);
    cr_assert_eq(view.view.input_count, 1, "a constant is no input");
    cr_assert_eq(view.view.values[view.view.inputs[0]]->id, x);
    cr_assert_eq(view.view.values[view.view.outputs[0]]->id, y);
    const gantry_node_view *node = view.view.nodes[view.node_index[add]];
    cr_assert_eq(node->id, add);
    cr_assert_str_eq(node->op, "Add");
    cr_assert_eq(node->inputs[2], GANTRY_NO_ID);
    cr_assert_eq(gantry_node_input(&view.view, node, 1)->id, c);
    cr_assert_eq(view.view.nodes[view.node_index[neg]]->inputs[0], node->outputs[0]);
    cr_assert_eq(seen(x)->dims[0], GANTRY_DIM_UNKNOWN);
    cr_assert_str_eq(seen(x)->dim_names[0], "batch");
    cr_assert_eq(seen(x)->typical_dims[0], 7);
    cr_assert_eq(seen(t)->dims[0], 4);
    cr_assert_null(seen(t)->dim_names[0]);
    cr_assert_eq(seen(y)->dims[0], GANTRY_DIM_UNKNOWN);
    cr_assert_geq(seen(y)->typical_dims[0], 0);
    cr_assert_eq(seen(c)->flags, GANTRY_VALUE_CONSTANT);
    cr_assert_eq(seen(c)->constant_id, gt_graph_value(g, c)->constant);
    cr_assert_eq(seen(x)->constant_id, GANTRY_NO_ID);
}

Test(view, an_input_with_a_default_is_no_constant)
{
    gt_graph *g = model->root;
    uint32_t c;
    const int64_t one[] = {1};
    const float two = 2;
    OK(gt_graph_add_constant(g, "w", GANTRY_FLOAT32, 1, one, &two, &c, &error));
    gt_graph_value(g, c)->input_index = 0;
    gt_vec_push(&allocator, &g->inputs, c);
    uint32_t y = add_value(g, "y", number(1));
    add_node(g, "Neg", 1, &c, y);
    add_output(g, y);
    OK(gt_graph_sort(g, &error));
    OK(gt_view_graph(&arena, g, &view, &error));
    cr_assert_eq(view.view.input_count, 1);
    cr_assert_eq(seen(c)->flags & GANTRY_VALUE_CONSTANT, 0);
    cr_assert_eq(seen(c)->constant_id, GANTRY_NO_ID);
}

/* count depends on data: NonZero -> Neg -> Abs; the size is known from segment 1 on. */
Test(view, sizes_that_depend_on_data)
{
    gt_graph *g = model->root;
    gt_expr size = symbol(GT_SYMBOL_DATA_DIM, "n", 1);
    uint32_t x = add_input(g, "x", number(8)), n = add_value(g, "n", size), a = add_value(g, "a", size);
    uint32_t first = add_node(g, "NonZero", 1, &x, n), second = add_node(g, "Neg", 1, &n, a);
    gt_graph_node(g, second)->segment = 1;
    gt_value *shape = gt_graph_value(g, a);
    shape->element_count = 1;
    shape->elements = gt_arena_copy(&model->arena, &size, sizeof size);
    add_output(g, a);
    OK(gt_graph_sort(g, &error));
    OK(gt_view_graph(&arena, g, &view, &error));
    cr_assert(seen(n)->flags & GANTRY_VALUE_BOUNDED);
    cr_assert_not(seen(a)->flags & GANTRY_VALUE_BOUNDED);
    OK(gt_view_nodes(&arena, g, 1, &first, 1, &x, 1, &n, &view, &error));
    cr_assert(seen(n)->flags & GANTRY_VALUE_BOUNDED);
    OK(gt_view_nodes(&arena, g, 1, &second, 1, &n, 1, &a, &view, &error));
    cr_assert_not(seen(n)->flags & GANTRY_VALUE_BOUNDED, "a later segment knows the true size");
    cr_assert(seen(a)->flags & GANTRY_VALUE_HOST_KNOWN);
    uint32_t both[] = {first};
    OK(gt_view_nodes(&arena, g, 1, both, 2, (uint32_t[]){x, a}, 1, &n, &view, &error));
    cr_assert_not(seen(a)->flags & GANTRY_VALUE_HOST_KNOWN, "segment 0 does not know it yet");
}

Test(view, a_partition_holds_what_it_touches)
{
    gt_graph *g = model->root;
    uint32_t x = add_input(g, "x", number(2)), t = add_value(g, "t", number(2)),
             u = add_value(g, "u", number(2));
    uint32_t y = add_value(g, "y", number(2)), far = add_value(g, "far", number(2));
    uint32_t operands[] = {t, x};
    add_node(g, "Neg", 1, &x, t);
    uint32_t sum = add_node(g, "Add", 2, operands, u), last = add_node(g, "Relu", 1, &u, y);
    add_node(g, "Abs", 1, &y, far);
    add_output(g, far);
    OK(gt_graph_sort(g, &error));
    uint32_t nodes[] = {sum, last}, inputs[] = {t, x};
    OK(gt_view_nodes(&arena, g, 2, nodes, 2, inputs, 1, &y, &view, &error));
    cr_assert_eq(view.view.node_count, 2);
    cr_assert_eq(view.view.value_count, 4);
    cr_assert_eq(view.value_index[far], GANTRY_NO_ID);
    cr_assert_eq(view.view.values[view.view.inputs[0]]->id, t);
    cr_assert_eq(view.view.values[view.view.inputs[1]]->id, x);
    cr_assert_eq(view.view.nodes[0]->id, sum);
    cr_assert_eq(view.view.nodes[1]->id, last);
}

Test(view, bodies_and_their_captures)
{
    gt_graph *g = model->root, *body;
    uint32_t cond = add_input(g, "cond", number(1)), x = add_input(g, "x", number(3)),
             y = add_value(g, "y", number(3));
    uint32_t node = add_node(g, "If", 1, &cond, y);
    OK(gt_graph_create(model, g, node, "then_branch", "if.then_branch.", &body, &error));
    uint32_t inner_x = add_value(body, "x", number(3)), inner_y = add_value(body, "r", number(3));
    gt_graph_value(body, inner_x)->captured = x;
    add_node(body, "Neg", 1, &inner_x, inner_y);
    add_output(body, inner_y);
    gt_body *bodies = GT_ARENA_NEW(&model->arena, gt_body);
    *bodies = (gt_body){"then_branch", body};
    gt_graph_node(g, node)->bodies = bodies;
    gt_graph_node(g, node)->body_count = 1;
    add_output(g, y);
    gt_graph_changed(g);
    OK(gt_graph_sort(body, &error));
    OK(gt_graph_sort(g, &error));
    OK(gt_view_graph(&arena, g, &view, &error));
    const gantry_node_view *seen_node = view.view.nodes[view.node_index[node]];
    cr_assert_eq(seen_node->body_count, 1);
    cr_assert_str_eq(seen_node->bodies[0]->name, "then_branch");
    const gantry_graph_view *inner = seen_node->bodies[0]->graph;
    cr_assert_eq(inner->input_count, 1);
    const gantry_value_view *capture = inner->values[inner->inputs[0]];
    cr_assert_eq(capture->id, inner_x);
    cr_assert(capture->flags & GANTRY_VALUE_CAPTURE);
    cr_assert_eq(seen(x)->flags & GANTRY_VALUE_CAPTURE, 0);
    OK(gt_view_nodes(&arena, g, 1, &node, 2, (uint32_t[]){cond, x}, 1, &y, &view, &error));
    cr_assert_neq(view.value_index[x], GANTRY_NO_ID, "a captured value is part of the partition");
}

Test(view, out_of_memory_is_a_status)
{
    gt_graph *g = model->root;
    uint32_t x = add_input(g, "x", number(2)), y = add_value(g, "y", number(2));
    add_node(g, "Neg", 1, &x, y);
    add_output(g, y);
    OK(gt_graph_sort(g, &error));
    gantry_status status = GANTRY_RESOURCE;
    for (int n = 0; status != GANTRY_OK; n++) {
        cr_assert_lt(n, 50);
        gt_arena_clear(&arena);
        atomic_store(&allocator.fail_after, n);
        status = gt_view_graph(&arena, g, &view, &error);
        cr_assert(status == GANTRY_OK || status == GANTRY_RESOURCE);
    }
    atomic_store(&allocator.fail_after, -1);
}
