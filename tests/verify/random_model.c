/* Random models from a seed: nodes are added with known classes of shapes, inference does the rest. */
#include "random_model.h"

#include "graph/infer.h"

#define OPSET 21
#define MAX_INPUTS 4 /* of an elementwise node */

random_model_shape random_model_choose(random_source *random, uint32_t max_nodes)
{
    random_model_shape shape = {.node_count = 1 + random_below(random, max_nodes),
                                .input_count = 1 + random_below(random, 4),
                                .open = random_chance(random, 40),
                                .splits = random_chance(random, 40),
                                .movement = random_chance(random, 50),
                                .shapes = random_chance(random, 35),
                                .data_sized = random_chance(random, 35),
                                .control = random_chance(random, 15)};
    shape.locality =
        random_chance(random, 30) ? 3 : 1 + random_below(random, shape.node_count + shape.input_count);
    return shape;
}

/* ---- making one ------------------------------------------------------------------------------ */

/* Values of one class have equal extents. */
typedef struct value_class {
    uint32_t rows; /* 0: not a constant */
    uint32_t columns;
} value_class;

typedef struct made {
    uint32_t value;
    uint32_t kind; /* a class, or one of these */
} made;
enum { CLASS_ROW, FIRST_FREE_CLASS };

typedef struct maker {
    gt_model *model;
    gt_graph *graph;
    random_source *random;
    const random_model_shape *shape;
    gt_allocator *allocator;
    GT_VEC(value_class) classes; /* 0: constants of one row */
    GT_VEC(made) floats;
    GT_VEC(uint32_t) vectors; /* int64[2]: shapes of something, known at bind */
    GT_VEC(uint32_t) others;  /* what only outputs and casts read */
    uint32_t open_class[MODEL_OPENS];
    uint32_t ints[2]; /* constants int64[1]: 0 and MODEL_WIDTH */
    uint32_t unit;    /* a constant bfloat16[1,1] */
    uint32_t nodes;
    gantry_error *err;
} maker;

static gantry_status no_memory(maker *m)
{
    return gt_out_of_memory(m->err, GANTRY_STAGE_LOAD);
}

#define PUSH(m, list, value)                                                                                 \
    do {                                                                                                     \
        if (!gt_vec_push((m)->allocator, list, value))                                                       \
            return no_memory(m);                                                                             \
    } while (0)

static gantry_status add_class(maker *m, uint32_t rows, uint32_t columns, uint32_t *out_class)
{
    for (uint32_t k = FIRST_FREE_CLASS; rows && k < m->classes.count; k++)
        if (m->classes.data[k].rows == rows && m->classes.data[k].columns == columns) {
            *out_class = k;
            return GANTRY_OK;
        }
    *out_class = m->classes.count;
    PUSH(m, &m->classes, ((value_class){rows, columns}));
    return GANTRY_OK;
}

static gantry_status add_float(maker *m, uint32_t value, uint32_t kind)
{
    PUSH(m, &m->floats, ((made){value, kind}));
    return GANTRY_OK;
}

static gantry_status add_node(maker *m, const char *op, uint32_t input_count, const uint32_t *inputs,
                              uint32_t output_count, uint32_t *outputs, uint32_t *out_node)
{
    char name[32];
    uint32_t node;
    snprintf(name, sizeof name, "%s%u", op, m->nodes++);
    for (uint32_t k = 0; k < output_count; k++)
        GT_TRY(gt_graph_add_value(m->graph, NULL, &outputs[k], m->err));
    GT_TRY(gt_graph_add_node(m->graph, name, "", op, OPSET, input_count, inputs, output_count, outputs, &node,
                             m->err));
    if (out_node)
        *out_node = node;
    return GANTRY_OK;
}

static gantry_status add_one(maker *m, const char *op, uint32_t a, uint32_t b, uint32_t *out_value)
{
    uint32_t inputs[2] = {a, b};
    return add_node(m, op, b == GT_NONE ? 1 : 2, inputs, 1, out_value, NULL);
}

/* ---- inputs and constants -------------------------------------------------------------------- */

static gantry_status add_graph_input(maker *m, gt_graph *graph, const char *name, uint32_t *out_value)
{
    GT_TRY(gt_graph_add_value(graph, name, out_value, m->err));
    graph->values.data[*out_value]->input_index = (int32_t)graph->inputs.count;
    PUSH(m, &graph->inputs, *out_value);
    return GANTRY_OK;
}

static gantry_status declare(maker *m, uint32_t id, gantry_dtype dtype, int32_t rank, const int64_t *dims,
                             const char *open)
{
    gt_value *value = m->graph->values.data[id];
    const char **names = GT_ARENA_ARRAY(&m->model->arena, const char *, GANTRY_MAX_RANK);
    int64_t *kept = gt_arena_copy(&m->model->arena, dims, (size_t)rank * sizeof *dims);
    if (!names || !kept)
        return no_memory(m);
    names[0] = open;
    value->kind = GANTRY_KIND_TENSOR;
    value->declared_dtype = dtype;
    value->declared_rank = rank;
    value->declared_dims = kept;
    value->declared_dim_names = names;
    return GANTRY_OK;
}

/* An input that need not be given. */
static gantry_status add_default(maker *m, uint32_t input, const int64_t *dims)
{
    uint16_t data[16 * MODEL_WIDTH];
    uint32_t constant;
    for (uint32_t k = 0; k < 16 * MODEL_WIDTH; k++)
        data[k] = (uint16_t)random_next(m->random);
    GT_TRY(gt_graph_add_constant(m->graph, NULL, GANTRY_BFLOAT16, 2, dims, data, &constant, m->err));
    m->graph->values.data[input]->constant = m->graph->values.data[constant]->constant;
    return GANTRY_OK;
}

static gantry_status add_float_input(maker *m, uint32_t index)
{
    static const char *const opens[MODEL_OPENS] = {"n0", "n1"};
    char name[32];
    uint32_t value, kind, open = random_below(m->random, MODEL_OPENS);
    uint32_t rows = m->shape->open && random_chance(m->random, 70) ? 0 : 1u << random_below(m->random, 5);
    int64_t dims[2] = {rows ? (int64_t)rows : -1, MODEL_WIDTH};
    snprintf(name, sizeof name, "in%u", index);
    GT_TRY(add_graph_input(m, m->graph, name, &value));
    GT_TRY(declare(m, value, GANTRY_BFLOAT16, 2, dims, rows ? NULL : opens[open]));
    if (rows)
        GT_TRY(add_class(m, rows, MODEL_WIDTH, &kind));
    else if (m->open_class[open])
        kind = m->open_class[open];
    else
        GT_TRY(add_class(m, 0, MODEL_WIDTH, &kind));
    if (!rows)
        m->open_class[open] = kind;
    else if (random_chance(m->random, 10))
        GT_TRY(add_default(m, value, dims));
    return add_float(m, value, kind);
}

static gantry_status add_constants(maker *m)
{
    static const uint16_t row[MODEL_WIDTH] = {0x3c00, 0x4000, 0xbc00, 0x1234};
    static const int64_t row_dims[2] = {1, MODEL_WIDTH}, unit_dims[2] = {1, 1}, one[1] = {1}, zero = 0,
                         width = MODEL_WIDTH;
    uint32_t value, count = random_below(m->random, 3);
    PUSH(m, &m->classes, ((value_class){1, MODEL_WIDTH}));
    for (uint32_t k = 0; k < count || k == 0; k++) {
        GT_TRY(gt_graph_add_constant(m->graph, NULL, GANTRY_BFLOAT16, 2, row_dims, row, &value, m->err));
        GT_TRY(add_float(m, value, CLASS_ROW));
    }
    GT_TRY(gt_graph_add_constant(m->graph, NULL, GANTRY_BFLOAT16, 2, unit_dims, row, &m->unit, m->err));
    GT_TRY(gt_graph_add_constant(m->graph, NULL, GANTRY_INT64, 1, one, &zero, &m->ints[0], m->err));
    return gt_graph_add_constant(m->graph, NULL, GANTRY_INT64, 1, one, &width, &m->ints[1], m->err);
}

/* ---- nodes on floats ------------------------------------------------------------------------- */

/* A place in floats: one of the latest, or now and then any. */
static uint32_t pick(maker *m)
{
    uint32_t count = m->floats.count, back = m->shape->locality < count ? m->shape->locality : count;
    return random_chance(m->random, 10) ? random_below(m->random, count)
                                        : count - 1 - random_below(m->random, back);
}

/* Another operand of an elementwise node: of the same class, or one row. */
static uint32_t pick_partner(maker *m, uint32_t with)
{
    const made *first = &m->floats.data[with];
    for (uint32_t tries = 0; tries < 8; tries++) {
        const made *other = &m->floats.data[pick(m)];
        bool row = other->kind == CLASS_ROW && m->classes.data[first->kind].columns == MODEL_WIDTH;
        if (other->kind == first->kind || row)
            return other->value;
    }
    return first->value;
}

static const char *elementwise_op(maker *m, uint32_t inputs)
{
    static const char *const ops[3][3] = {
        {"Neg", "Relu", "Abs"}, {"Add", "Mul", "Sub"}, {"Sum", "Max", "Min"}};
    return ops[inputs < 3 ? inputs - 1 : 2][random_below(m->random, 3)];
}

static gantry_status add_elementwise(maker *m, uint32_t place)
{
    uint32_t inputs[MAX_INPUTS], output, count = 1 + random_below(m->random, MAX_INPUTS);
    made first = m->floats.data[place];
    inputs[0] = first.value;
    for (uint32_t k = 1; k < count; k++)
        inputs[k] = pick_partner(m, place);
    GT_TRY(add_node(m, elementwise_op(m, count), count, inputs, 1, &output, NULL));
    return add_float(m, output, first.kind);
}

static gantry_status add_split(maker *m, uint32_t place)
{
    uint32_t node, outputs[2], kinds[2];
    made from = m->floats.data[place];
    value_class whole = m->classes.data[from.kind];
    if (whole.rows % 2)
        return add_elementwise(m, place);
    GT_TRY(add_node(m, "Split", 1, &from.value, 2, outputs, &node));
    GT_TRY(gt_node_set_int(m->graph, node, "axis", 0, m->err));
    GT_TRY(gt_node_set_int(m->graph, node, "num_outputs", 2, m->err));
    for (uint32_t k = 0; k < 2; k++) {
        GT_TRY(add_class(m, whole.rows / 2, whole.columns, &kinds[k]));
        GT_TRY(add_float(m, outputs[k], kinds[k]));
    }
    return GANTRY_OK;
}

/* Identity, or Reshape to half the columns, to the shape of something, or to what it has. */
static gantry_status add_movement(maker *m, uint32_t place)
{
    static const int64_t two[1] = {2}, half[2] = {-1, MODEL_WIDTH / 2};
    made from = m->floats.data[place];
    value_class c = m->classes.data[from.kind];
    uint32_t output, shape, kind = from.kind, how = random_below(m->random, 3);
    if (how == 0 || c.columns != MODEL_WIDTH || from.kind == CLASS_ROW) {
        GT_TRY(add_one(m, "Identity", from.value, GT_NONE, &output));
        return add_float(m, output, kind);
    }
    if (how == 1) {
        GT_TRY(gt_graph_add_constant(m->graph, NULL, GANTRY_INT64, 1, two, half, &shape, m->err));
        GT_TRY(add_class(m, c.rows * 2, MODEL_WIDTH / 2, &kind));
    } else {
        GT_TRY(add_one(m, "Shape", from.value, GT_NONE, &shape));
        PUSH(m, &m->vectors, shape);
    }
    GT_TRY(add_one(m, "Reshape", from.value, shape, &output));
    return add_float(m, output, kind);
}

/* ---- nodes on shapes ------------------------------------------------------------------------- */

static gantry_status add_cast(maker *m, uint32_t from, gantry_dtype to, uint32_t *out_value)
{
    uint32_t node;
    GT_TRY(add_node(m, "Cast", 1, &from, 1, out_value, &node));
    return gt_node_set_int(m->graph, node, "to", to, m->err);
}

static gantry_status add_shape(maker *m, uint32_t place)
{
    uint32_t output, kind, how = random_below(m->random, 4), count = m->vectors.count;
    made from = m->floats.data[place];
    if (how == 0 || !count) {
        if (m->classes.data[from.kind].columns == 1)
            return add_elementwise(m, place);
        GT_TRY(add_one(m, "Shape", from.value, GT_NONE, &output));
        PUSH(m, &m->vectors, output);
        return GANTRY_OK;
    }
    uint32_t a = m->vectors.data[random_below(m->random, count)],
             b = m->vectors.data[random_below(m->random, count)];
    if (how == 1) {
        GT_TRY(add_one(m, random_chance(m->random, 50) ? "Add" : "Mul", a, b, &output));
        PUSH(m, &m->others, output);
        return GANTRY_OK;
    }
    if (how == 2) {
        GT_TRY(add_cast(m, a, GANTRY_BFLOAT16, &output));
        GT_TRY(add_class(m, 2, 1, &kind));
        return add_float(m, output, kind);
    }
    GT_TRY(add_one(m, "Expand", m->unit, a, &output));
    GT_TRY(add_class(m, 0, 3, &kind));
    return add_float(m, output, kind);
}

/* ---- nodes whose sizes depend on data -------------------------------------------------------- */

static gantry_status add_non_zero(maker *m, uint32_t place)
{
    uint32_t output, cast, kind, shape;
    GT_TRY(add_one(m, "NonZero", m->floats.data[place].value, GT_NONE, &output));
    PUSH(m, &m->others, output);
    if (random_chance(m->random, 40)) {
        GT_TRY(add_one(m, "Shape", output, GT_NONE, &shape));
        PUSH(m, &m->vectors, shape);
    }
    if (random_chance(m->random, 30))
        return GANTRY_OK;
    GT_TRY(add_cast(m, output, GANTRY_BFLOAT16, &cast));
    GT_TRY(add_class(m, 0, 3, &kind));
    return add_float(m, cast, kind);
}

/* A number of rows that a node computes: Expand(row, [ArgMax(Concat(x, row))[0], columns]). x itself may be
 * empty, and then has no greatest element. */
static gantry_status add_computed_rows(maker *m, uint32_t place)
{
    made from = m->floats.data[place];
    uint32_t node, rows, most, one, both, inputs[2] = {from.value, m->floats.data[0].value}, output, kind;
    if (m->classes.data[from.kind].columns != MODEL_WIDTH)
        return add_non_zero(m, place);
    GT_TRY(add_node(m, "Concat", 2, inputs, 1, &rows, &node));
    GT_TRY(gt_node_set_int(m->graph, node, "axis", 0, m->err));
    PUSH(m, &m->others, rows);
    GT_TRY(add_node(m, "ArgMax", 1, &rows, 1, &most, &node));
    GT_TRY(gt_node_set_int(m->graph, node, "axis", 0, m->err));
    GT_TRY(gt_node_set_int(m->graph, node, "keepdims", 0, m->err));
    PUSH(m, &m->others, most);
    GT_TRY(add_one(m, "Gather", most, m->ints[0], &one));
    inputs[0] = one;
    inputs[1] = m->ints[1];
    GT_TRY(add_node(m, "Concat", 2, inputs, 1, &both, &node));
    GT_TRY(gt_node_set_int(m->graph, node, "axis", 0, m->err));
    PUSH(m, &m->others, both);
    GT_TRY(add_one(m, "Expand", m->floats.data[0].value, both, &output));
    GT_TRY(add_class(m, 0, MODEL_WIDTH, &kind));
    return add_float(m, output, kind);
}

/* ---- If and Loop ----------------------------------------------------------------------------- */

static gantry_status add_body(maker *m, uint32_t node, const char *role, gt_graph **out_body)
{
    gt_node *owner = m->graph->nodes.data[node];
    char scope[96];
    snprintf(scope, sizeof scope, "%s.%s.", owner->name, role);
    gt_body *bodies = GT_ARENA_ARRAY(&m->model->arena, gt_body, owner->body_count + 1);
    if (!bodies)
        return no_memory(m);
    if (owner->body_count)
        memcpy(bodies, owner->bodies, owner->body_count * sizeof *bodies);
    GT_TRY(gt_graph_create(m->model, m->graph, node, role, scope, out_body, m->err));
    bodies[owner->body_count] = (gt_body){role, *out_body};
    owner->bodies = bodies;
    owner->body_count++;
    return GANTRY_OK;
}

static gantry_status add_capture(maker *m, gt_graph *body, uint32_t outer, uint32_t *out_value)
{
    for (uint32_t k = 0; k < body->values.count; k++)
        if (body->values.data[k]->captured == outer) {
            *out_value = k;
            return GANTRY_OK;
        }
    GT_TRY(gt_graph_add_value(body, NULL, out_value, m->err));
    const gt_value *value = m->graph->values.data[outer];
    if (value->constant != GT_NONE)
        body->values.data[*out_value]->constant = value->constant;
    else
        body->values.data[*out_value]->captured = outer;
    return GANTRY_OK;
}

static gantry_status add_graph_output(maker *m, gt_graph *graph, uint32_t value)
{
    graph->values.data[value]->is_output = true;
    PUSH(m, &graph->outputs, value);
    return GANTRY_OK;
}

/* A few nodes on `value` of the body, and perhaps what it captures of the same class; the result is new. */
static gantry_status fill_body(maker *m, gt_graph *body, uint32_t place, uint32_t value, uint32_t *out_value)
{
    gt_graph *outer = m->graph;
    gantry_status status = GANTRY_OK;
    uint32_t count = 1 + random_below(m->random, 3), inputs[2] = {value, value};
    *out_value = value;
    for (uint32_t k = 0; k < count && status == GANTRY_OK; k++) {
        bool pair = random_chance(m->random, 50);
        if (pair && random_chance(m->random, 60))
            status = add_capture(m, body, pick_partner(m, place), &inputs[1]);
        m->graph = body;
        bool same = random_chance(m->random, 15);
        if (status == GANTRY_OK)
            status = add_node(m, same ? "Identity" : elementwise_op(m, 1 + pair), same ? 1 : 1 + pair, inputs,
                              1, out_value, NULL);
        m->graph = outer;
        inputs[0] = inputs[1] = *out_value;
    }
    return status;
}

/* A bool scalar: an input that is known at bind, or one that is computed. */
static gantry_status add_condition(maker *m, uint32_t place, uint32_t *out_value)
{
    uint32_t node, most;
    if (random_chance(m->random, 30)) {
        char name[32];
        snprintf(name, sizeof name, "flag%u", m->nodes);
        GT_TRY(add_graph_input(m, m->graph, name, out_value));
        return declare(m, *out_value, GANTRY_BOOL, 0, NULL, NULL);
    }
    GT_TRY(add_node(m, "ReduceMax", 1, &m->floats.data[place].value, 1, &most, &node));
    GT_TRY(gt_node_set_int(m->graph, node, "keepdims", 0, m->err));
    return add_cast(m, most, GANTRY_BOOL, out_value);
}

static gantry_status add_if(maker *m, uint32_t place)
{
    static const char *const roles[2] = {"then_branch", "else_branch"};
    made from = m->floats.data[place];
    uint32_t condition = GT_NONE, output, node;
    GT_TRY(add_condition(m, pick(m), &condition));
    GT_TRY(add_node(m, "If", 1, &condition, 1, &output, &node));
    for (int k = 0; k < 2; k++) {
        gt_graph *body;
        uint32_t captured, result;
        GT_TRY(add_body(m, node, roles[k], &body));
        GT_TRY(add_capture(m, body, from.value, &captured));
        GT_TRY(fill_body(m, body, place, captured, &result));
        GT_TRY(add_graph_output(m, body, result));
        GT_TRY(gt_graph_sort(body, m->err));
    }
    gt_graph_changed(m->graph);
    return add_float(m, output, from.kind);
}

/* Of a second carried value it may make the first as it came in: they swap. */
static gantry_status fill_loop(maker *m, gt_graph *body, uint32_t place, uint32_t count, bool scan)
{
    uint32_t round, condition, carried[2], kept, result, more;
    gt_graph *outer = m->graph;
    GT_TRY(add_graph_input(m, body, "round", &round));
    GT_TRY(add_graph_input(m, body, "condition", &condition));
    GT_TRY(add_graph_input(m, body, "carried", &carried[0]));
    if (count > 1)
        GT_TRY(add_graph_input(m, body, "other", &carried[1]));
    m->graph = body;
    gantry_status status = add_one(m, "Identity", condition, GT_NONE, &kept);
    m->graph = outer;
    GT_TRY(status);
    GT_TRY(fill_body(m, body, place, carried[count - 1], &result));
    GT_TRY(add_graph_output(m, body, kept));
    GT_TRY(add_graph_output(m, body, result));
    if (count > 1) {
        more = carried[0];
        if (random_chance(m->random, 50))
            GT_TRY(fill_body(m, body, place, carried[0], &more));
        GT_TRY(add_graph_output(m, body, more));
    }
    if (scan) {
        GT_TRY(fill_body(m, body, place, carried[0], &more));
        GT_TRY(add_graph_output(m, body, more));
    }
    return gt_graph_sort(body, m->err);
}

static uint32_t pick_alike(maker *m, uint32_t place)
{
    for (uint32_t tries = 0; tries < 8; tries++) {
        const made *other = &m->floats.data[pick(m)];
        if (other->kind == m->floats.data[place].kind)
            return other->value;
    }
    return m->floats.data[place].value;
}

static gantry_status add_loop(maker *m, uint32_t place)
{
    static const int64_t one[1] = {1};
    made from = m->floats.data[place];
    int64_t trips = random_below(m->random, 4);
    uint32_t inputs[4] = {GT_NONE, GT_NONE, from.value}, outputs[3], node;
    uint32_t count = random_chance(m->random, 40) ? 2 : 1;
    bool scan = random_chance(m->random, 40);
    gt_graph *body;
    if (count > 1)
        inputs[3] = pick_alike(m, place);
    if (random_chance(m->random, 50))
        GT_TRY(
            add_one(m, "Gather", m->vectors.count ? m->vectors.data[0] : m->ints[1], m->ints[0], &inputs[0]));
    else
        GT_TRY(gt_graph_add_constant(m->graph, NULL, GANTRY_INT64, 1, one, &trips, &inputs[0], m->err));
    GT_TRY(add_node(m, "Loop", 2 + count, inputs, scan ? count + 1 : count, outputs, &node));
    GT_TRY(add_body(m, node, "body", &body));
    GT_TRY(fill_loop(m, body, place, count, scan));
    gt_graph_changed(m->graph);
    if (scan)
        PUSH(m, &m->others, outputs[count]);
    if (count > 1)
        GT_TRY(add_float(m, outputs[1], from.kind));
    return add_float(m, outputs[0], from.kind);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static gantry_status add_any(maker *m)
{
    const random_model_shape *shape = m->shape;
    uint32_t place = pick(m);
    if (shape->splits && random_chance(m->random, 15))
        return add_split(m, place);
    if (shape->movement && random_chance(m->random, 25))
        return add_movement(m, place);
    if (shape->shapes && random_chance(m->random, 20))
        return add_shape(m, place);
    if (shape->data_sized && random_chance(m->random, 16))
        return random_chance(m->random, 50) ? add_non_zero(m, place) : add_computed_rows(m, place);
    if (shape->control && random_chance(m->random, 12) && m->floats.data[place].kind != CLASS_ROW)
        return random_chance(m->random, 60) ? add_if(m, place) : add_loop(m, place);
    return add_elementwise(m, place);
}

static gantry_status choose_outputs(maker *m)
{
    GT_TRY(add_graph_output(m, m->graph, m->floats.data[m->floats.count - 1].value));
    for (uint32_t more = random_below(m->random, 4); more > 0; more--) {
        uint32_t from = random_below(m->random, 4);
        if (from == 0 && m->vectors.count)
            GT_TRY(add_graph_output(m, m->graph, m->vectors.data[random_below(m->random, m->vectors.count)]));
        else if (from == 1 && m->others.count)
            GT_TRY(add_graph_output(m, m->graph, m->others.data[random_below(m->random, m->others.count)]));
        else
            GT_TRY(add_graph_output(m, m->graph,
                                    m->floats.data[random_below(m->random, m->floats.count)].value));
    }
    return GANTRY_OK;
}

static gantry_status fill(maker *m)
{
    GT_TRY(add_constants(m));
    for (uint32_t k = 0; k < m->shape->input_count; k++)
        GT_TRY(add_float_input(m, k));
    for (uint32_t k = 0; k < m->shape->node_count; k++)
        GT_TRY(add_any(m));
    GT_TRY(choose_outputs(m));
    GT_TRY(gt_graph_sort(m->graph, m->err));
    GT_TRY(gt_infer_inputs(m->model, NULL, m->err));
    return gt_infer_graph(m->graph, m->err);
}

gantry_status random_model_make(gt_allocator *allocator, random_source *random,
                                const random_model_shape *shape, gt_model **out_model, gantry_error *err)
{
    maker m = {.random = random, .shape = shape, .allocator = allocator, .err = err};
    *out_model = NULL;
    GT_TRY(gt_model_create(allocator, out_model, err));
    m.model = *out_model;
    gantry_status status = gt_graph_create(m.model, NULL, GT_NONE, "random", "", &m.model->root, err);
    m.graph = m.model->root;
    if (status == GANTRY_OK)
        status = fill(&m);
    gt_vec_free(allocator, &m.classes);
    gt_vec_free(allocator, &m.floats);
    gt_vec_free(allocator, &m.vectors);
    gt_vec_free(allocator, &m.others);
    if (status != GANTRY_OK)
        gt_model_destroy(out_model);
    return status;
}
