/* Random graphs from a seed. */
#include "random_graph.h"

#define WIDTH 4
#define MAX_ROWS 16u
#define OPSET 21

uint64_t random_next(random_source *random)
{
    if (random->count) {
        random->count--;
        return random_hash(*random->bytes++, 0, 0);
    }
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint32_t random_below(random_source *random, uint32_t limit)
{
    if (limit == 0)
        return 0;
    if (random->count) {
        random->count--;
        return *random->bytes++ % limit;
    }
    return (uint32_t)((random_next(random) >> 32) * limit >> 32);
}

bool random_chance(random_source *random, uint32_t percent)
{
    return random_below(random, 100) < percent;
}

uint64_t random_hash(uint64_t seed, uint64_t a, uint64_t b)
{
    random_source random = {.state = seed ^ a * 0x9e3779b97f4a7c15u ^ b * 0xc2b2ae3d27d4eb4fu};
    random_next(&random);
    return random_next(&random);
}

random_graph_shape random_graph_choose(random_source *random, uint32_t max_nodes)
{
    random_graph_shape shape = {.node_count = 1 + random_below(random, max_nodes),
                                .input_count = 1 + random_below(random, 4),
                                .constant_count = random_below(random, 3),
                                .two_outputs = random_chance(random, 50)};
    shape.locality =
        random_chance(random, 30) ? 3 : 1 + random_below(random, shape.node_count + shape.input_count);
    return shape;
}

/* ---- making one ------------------------------------------------------------------------------ */

typedef struct maker {
    gt_graph *graph;
    random_source *random;
    const random_graph_shape *shape;
    GT_VEC(uint32_t) values; /* what nodes may read */
    uint32_t *rows;          /* by place in values */
    gantry_error *err;
} maker;

static gantry_status describe(maker *m, uint32_t value_id, uint32_t rows)
{
    gt_exprs *exprs = &m->graph->model->exprs;
    gt_expr *dims = GT_ARENA_ARRAY(&m->graph->model->arena, gt_expr, 2);
    if (!dims)
        return gt_out_of_memory(m->err, GANTRY_STAGE_LOAD);
    dims[0] = gt_expr_const(exprs, rows);
    dims[1] = gt_expr_const(exprs, WIDTH);
    gt_value *value = m->graph->values.data[value_id];
    value->kind = GANTRY_KIND_TENSOR;
    value->dtype = GANTRY_FLOAT32;
    value->rank = 2;
    value->dims = dims;
    m->rows[m->values.count] = rows;
    return gt_vec_push(m->graph->model->allocator, &m->values, value_id)
               ? GANTRY_OK
               : gt_out_of_memory(m->err, GANTRY_STAGE_LOAD);
}

static gantry_status add_input(maker *m, uint32_t index)
{
    char name[32];
    uint32_t value;
    snprintf(name, sizeof name, "in%u", index);
    GT_TRY(gt_graph_add_value(m->graph, name, &value, m->err));
    m->graph->values.data[value]->input_index = (int32_t)index;
    if (!gt_vec_push(m->graph->model->allocator, &m->graph->inputs, value))
        return gt_out_of_memory(m->err, GANTRY_STAGE_LOAD);
    return describe(m, value, 1u << random_below(m->random, 5));
}

static gantry_status add_constant(maker *m, uint32_t index)
{
    static const float data[WIDTH] = {1, -2, 0.5f, 3};
    static const int64_t dims[2] = {1, WIDTH};
    char name[32];
    uint32_t value;
    snprintf(name, sizeof name, "const%u", index);
    GT_TRY(gt_graph_add_constant(m->graph, name, GANTRY_FLOAT32, 2, dims, data, &value, m->err));
    return describe(m, value, 1);
}

/* A place in values: one of the latest, or now and then any. */
static uint32_t pick(maker *m)
{
    uint32_t count = m->values.count, back = m->shape->locality < count ? m->shape->locality : count;
    return random_chance(m->random, 10) ? random_below(m->random, count)
                                        : count - 1 - random_below(m->random, back);
}

/* Rows broadcast only from 1: another place with the same rows as `with`, or 1, or `with` itself. */
static uint32_t pick_partner(maker *m, uint32_t with)
{
    for (uint32_t tries = 0; tries < 8; tries++) {
        uint32_t place = pick(m);
        if (m->rows[place] == m->rows[with] || m->rows[place] == 1)
            return place;
    }
    return with;
}

static gantry_status add_split(maker *m, const char *name, uint32_t place)
{
    uint32_t node, outputs[2];
    uint32_t rows = m->rows[place] / 2;
    GT_TRY(gt_graph_add_value(m->graph, NULL, &outputs[0], m->err));
    GT_TRY(gt_graph_add_value(m->graph, NULL, &outputs[1], m->err));
    GT_TRY(gt_graph_add_node(m->graph, name, "", "Split", OPSET, 1, &m->values.data[place], 2, outputs, &node,
                             m->err));
    GT_TRY(gt_node_set_int(m->graph, node, "axis", 0, m->err));
    GT_TRY(gt_node_set_int(m->graph, node, "num_outputs", 2, m->err));
    GT_TRY(describe(m, outputs[0], rows));
    return describe(m, outputs[1], rows);
}

static gantry_status add_elementwise(maker *m, const char *name, uint32_t place)
{
    static const char *const ops[3][3] = {
        {"Neg", "Relu", "Abs"}, {"Add", "Mul", "Sub"}, {"Sum", "Max", "Min"}};
    uint32_t inputs[3], node, output, count = 1 + random_below(m->random, 3);
    inputs[0] = m->values.data[place];
    for (uint32_t k = 1; k < count; k++)
        inputs[k] = m->values.data[pick_partner(m, place)];
    GT_TRY(gt_graph_add_value(m->graph, NULL, &output, m->err));
    GT_TRY(gt_graph_add_node(m->graph, name, "", ops[count - 1][random_below(m->random, 3)], OPSET, count,
                             inputs, 1, &output, &node, m->err));
    return describe(m, output, m->rows[place]);
}

static gantry_status add_node(maker *m, uint32_t index)
{
    char name[32];
    snprintf(name, sizeof name, "node%u", index);
    uint32_t place = pick(m);
    if (m->shape->two_outputs && m->rows[place] > 1 && random_chance(m->random, 15))
        return add_split(m, name, place);
    return add_elementwise(m, name, place);
}

static gantry_status add_output(maker *m, uint32_t value)
{
    m->graph->values.data[value]->is_output = true;
    return gt_vec_push(m->graph->model->allocator, &m->graph->outputs, value)
               ? GANTRY_OK
               : gt_out_of_memory(m->err, GANTRY_STAGE_LOAD);
}

static gantry_status choose_outputs(maker *m)
{
    GT_TRY(add_output(m, m->values.data[m->values.count - 1]));
    uint32_t more = random_below(m->random, 4);
    for (uint32_t k = 0; k < more; k++)
        GT_TRY(add_output(m, m->values.data[random_below(m->random, m->values.count)]));
    return GANTRY_OK;
}

static gantry_status fill(maker *m)
{
    for (uint32_t k = 0; k < m->shape->input_count; k++)
        GT_TRY(add_input(m, k));
    for (uint32_t k = 0; k < m->shape->constant_count; k++)
        GT_TRY(add_constant(m, k));
    if (!m->values.data)
        return gt_fail(m->err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                       "a random graph begins with an input or a constant");
    for (uint32_t k = 0; k < m->shape->node_count; k++)
        GT_TRY(add_node(m, k));
    GT_TRY(choose_outputs(m));
    return gt_graph_sort(m->graph, m->err);
}

gantry_status random_graph_make(gt_allocator *allocator, random_source *random,
                                const random_graph_shape *shape, gt_model **out_model, gantry_error *err)
{
    maker m = {.random = random, .shape = shape, .err = err};
    *out_model = NULL;
    GT_TRY(gt_model_create(allocator, out_model, err));
    m.rows = GT_NEW_ARRAY(allocator, uint32_t,
                          shape->input_count + shape->constant_count + 2 * shape->node_count + 1);
    gantry_status status = m.rows ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    if (status == GANTRY_OK && !(*out_model)->root)
        status = gt_graph_create(*out_model, NULL, GT_NONE, "random", "", &(*out_model)->root, err);
    m.graph = (*out_model)->root;
    if (status == GANTRY_OK)
        status = fill(&m);
    gt_vec_free(allocator, &m.values);
    gt_free(allocator, m.rows);
    if (status != GANTRY_OK)
        gt_model_destroy(out_model);
    return status;
}
