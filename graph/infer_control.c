/* Rules of If, Loop and Scan: bodies are inferred with their own values, and what leaves a body is said in
 * terms of the graph around it. */
#include "infer_rules.h"

/* Inferring a loop's body takes two or three passes; loops nested deeper than this would multiply them, so
 * that their carried values are taken for changing from the start. */
#define PRECISE_LOOPS 3
#define MAX_PASSES 6

static gt_graph *find_body(const gt_infer *infer, const char *name)
{
    for (uint32_t b = 0; b < infer->node->body_count; b++)
        if (strcmp(infer->node->bodies[b].name, name) == 0)
            return infer->node->bodies[b].graph;
    return NULL;
}

static const gt_value *body_output(const gt_graph *body, uint32_t k)
{
    return gt_graph_value(body, body->outputs.data[k]);
}

static gt_shape shape_of(const gt_value *value)
{
    gt_shape shape = {.rank = value->rank <= GANTRY_MAX_RANK ? value->rank : -1};
    for (int32_t axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = value->dims[axis];
    return shape;
}

static void set_kind(const gt_infer *infer, uint32_t k, gantry_value_kind kind)
{
    gt_value *out =
        k < infer->node->output_count ? gt_graph_value(infer->graph, infer->node->outputs[k]) : NULL;
    if (out)
        out->kind = kind;
}

/* One element of that type, as far as it is known by now. */
static gantry_status require_single(const gt_infer *infer, const gt_value *value, gantry_dtype dtype,
                                    const char *what)
{
    int64_t count = 1, extent;
    if (value->dtype && value->dtype != dtype)
        return gt_infer_fail(infer, GANTRY_MODEL_TYPE, "the %s must be %s, '%s' is %s", what,
                             gantry_dtype_text(dtype), value->name, gantry_dtype_text(value->dtype));
    for (int32_t axis = 0; axis < value->rank; axis++)
        if (!gt_is_const(infer, value->dims[axis], &extent) || __builtin_mul_overflow(count, extent, &count))
            return GANTRY_OK;
    if (value->rank < 0 || count == 1)
        return GANTRY_OK;
    return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the %s must have exactly one element, '%s' has %lld",
                         what, value->name, (long long)count);
}

static gantry_status require_single_input(const gt_infer *infer, uint32_t k, gantry_dtype dtype,
                                          const char *what)
{
    return gt_in_present(infer, k)
               ? require_single(infer, gt_graph_value(infer->graph, infer->node->inputs[k]), dtype, what)
               : GANTRY_OK;
}

/* ---- If */

typedef struct branches {
    gt_expr condition; /* GT_EXPR_UNKNOWN: only running tells */
    const gt_value *yes, *no;
    const gt_graph *yes_graph, *no_graph;
} branches;

static gt_expr join_extents(gt_infer *infer, const branches *b, uint32_t k, uint32_t axis, gt_expr yes,
                            gt_expr no)
{
    bool local = gt_infer_is_local(infer, yes) || gt_infer_is_local(infer, no);
    if (yes == no && !local && yes != GT_EXPR_UNKNOWN)
        return yes;
    if (b->condition != GT_EXPR_UNKNOWN && !local)
        return gt_select(infer, b->condition, yes, no);
    return gt_out_data_dim(infer, k, axis, local ? GT_EXPR_UNKNOWN : gt_make(infer, GT_EXPR_MAX, yes, no));
}

static void join_elements(gt_infer *infer, const branches *b, uint32_t k)
{
    gt_expr joined[GT_MAX_ELEMENTS];
    uint32_t count = b->yes->element_count;
    if (!b->yes->elements || !b->no->elements || count != b->no->element_count || count > GT_MAX_ELEMENTS)
        return;
    for (uint32_t e = 0; e < count; e++) {
        gt_expr yes = b->yes->elements[e], no = b->no->elements[e];
        joined[e] = yes == no ? yes : gt_select(infer, b->condition, yes, no);
        if (gt_infer_is_local(infer, joined[e]))
            return;
    }
    gt_out_elements(infer, k, joined, count);
}

/* Who makes a value of a branch, for errors. */
static const char *maker(const gt_graph *body, const gt_value *value)
{
    const gt_node *node = gt_graph_node(body, value->producer);
    return node ? node->name : "what is given to it";
}

static gantry_status types_differ(const gt_infer *infer, const branches *b, uint32_t k)
{
    return gt_infer_fail(
        infer, GANTRY_MODEL_TYPE,
        "output %u is %s in then_branch ('%s', from '%s') and %s in else_branch ('%s', from '%s'); both "
        "must have one type" GT_HINT "insert a Cast into one of the branches",
        k, gantry_dtype_text(b->yes->dtype), b->yes->name, maker(b->yes_graph, b->yes),
        gantry_dtype_text(b->no->dtype), b->no->name, maker(b->no_graph, b->no));
}

static gantry_status join_output(gt_infer *infer, const branches *b, uint32_t k)
{
    gt_shape yes = shape_of(b->yes), no = shape_of(b->no);
    if (b->yes->dtype && b->no->dtype && b->yes->dtype != b->no->dtype)
        return types_differ(infer, b, k);
    if (yes.rank != no.rank)
        yes.rank = -1;
    for (int32_t axis = 0; axis < yes.rank; axis++)
        yes.dims[axis] = join_extents(infer, b, k, (uint32_t)axis, yes.dims[axis], no.dims[axis]);
    set_kind(infer, k, b->yes->kind);
    gt_out_shape(infer, k, b->yes->dtype ? b->yes->dtype : b->no->dtype, &yes);
    join_elements(infer, b, k);
    return GANTRY_OK;
}

/* A branch that is never taken may be wrong: nobody runs it, and it will be dropped. */
static gantry_status infer_branch(gt_infer *infer, gt_graph *body, bool taken)
{
    gantry_error *err = infer->err;
    if (!taken)
        infer->err = NULL;
    gantry_status status = gt_infer_body(infer, body);
    infer->err = err;
    if (!taken && status != GANTRY_RESOURCE)
        return GANTRY_OK;
    return status == GANTRY_RESOURCE ? gt_out_of_memory(err, GANTRY_STAGE_LOAD) : status;
}

gantry_status gt_rule_if(gt_infer *infer)
{
    gt_graph *yes = find_body(infer, "then_branch"), *no = find_body(infer, "else_branch");
    uint32_t count, outputs = infer->node->output_count;
    int64_t taken = 0;
    if (!yes || !no || yes->outputs.count < outputs || no->outputs.count < outputs)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "two branches with %u outputs each are needed",
                             outputs);
    if (!gt_in_present(infer, 0))
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "input 0, the condition, is required");
    GT_TRY(require_single_input(infer, 0, GANTRY_BOOL, "condition"));
    const gt_expr *condition = gt_in_elements(infer, 0, &count);
    branches b = {.condition = condition && count == 1 ? condition[0] : GT_EXPR_UNKNOWN};
    bool decided = gt_is_const(infer, b.condition, &taken);
    b.yes_graph = decided && !taken ? no : yes;
    b.no_graph = decided && taken ? yes : no;
    GT_TRY(infer_branch(infer, yes, !decided || taken));
    GT_TRY(infer_branch(infer, no, !decided || !taken));
    for (uint32_t k = 0; k < outputs; k++) {
        b.yes = body_output(b.yes_graph, k);
        b.no = body_output(b.no_graph, k);
        GT_TRY(join_output(infer, &b, k));
    }
    return GANTRY_OK;
}

/* ---- values that go around in a loop */

static void set_body_input(gt_infer *infer, gt_graph *body, uint32_t k, gantry_dtype dtype,
                           const gt_shape *shape)
{
    gt_value *value = gt_graph_value(body, body->inputs.data[k]);
    value->dtype = dtype;
    value->rank = shape->rank;
    value->elements = NULL;
    value->element_count = 0;
    if (shape->rank < 0)
        return;
    value->dims = gt_arena_copy(&infer->model->arena, shape->dims, (size_t)shape->rank * sizeof(gt_expr));
    infer->state->failed = infer->state->failed || !value->dims;
}

static void set_body_element(gt_infer *infer, gt_graph *body, uint32_t k, int64_t element)
{
    gt_value *value = gt_graph_value(body, body->inputs.data[k]);
    gt_expr e = gt_number(infer, element);
    if (value->rank == 0) {
        value->elements = gt_arena_copy(&infer->model->arena, &e, sizeof e);
        value->element_count = value->elements != NULL;
    }
}

gt_expr gt_infer_body_dim(const gt_infer *infer, const gt_graph *body, uint32_t value, uint32_t axis)
{
    char name[320];
    snprintf(name, sizeof name, "%.300s.shape[%u]", body->values.data[value]->name, axis);
    gt_symbol symbol = {.kind = GT_SYMBOL_DATA_DIM,
                        .name = name,
                        .value = value,
                        .axis = axis,
                        .segment = infer->node->segment + 1,
                        .bound = GT_EXPR_UNKNOWN,
                        .range_low = 0,
                        .range_typical = 128,
                        .range_high = INT64_MAX,
                        .graph = body,
                        .depth = infer->state->depth + 1};
    return gt_expr_symbol_again(infer->exprs, &symbol);
}

/* A carried value's shape as the body sees it in every round; changes[axis] marks extents of the body's own.
 */
typedef struct carried {
    gantry_dtype dtype;
    gt_shape shape;
    bool changes[GANTRY_MAX_RANK];
} carried;

static void widen_axis(gt_infer *infer, gt_graph *body, uint32_t input, carried *c, int32_t axis)
{
    c->changes[axis] = true;
    c->shape.dims[axis] = gt_infer_body_dim(infer, body, body->inputs.data[input], (uint32_t)axis);
}

/* What comes out of the body against what went in; true when the next round must be inferred again. */
static bool widen(gt_infer *infer, gt_graph *body, uint32_t input, const gt_value *out, carried *c)
{
    bool changed = false;
    if (c->shape.rank >= 0 && out->rank != c->shape.rank) {
        c->shape.rank = -1;
        return true;
    }
    for (int32_t axis = 0; axis < c->shape.rank; axis++)
        if (!c->changes[axis] && out->dims[axis] != c->shape.dims[axis]) {
            widen_axis(infer, body, input, c, axis);
            changed = true;
        }
    return changed;
}

/* Infers the body until what goes in and what comes out agree. first_input and first_output are where carried
 * values stand among the body's inputs and outputs, first_initial among the node's inputs. */
static gantry_status infer_rounds(gt_infer *infer, gt_graph *body, uint32_t count, uint32_t first_input,
                                  uint32_t first_output, uint32_t first_initial, carried *out)
{
    bool again = true;
    for (uint32_t k = 0; k < count; k++) {
        if (!gt_in_present(infer, first_initial + k))
            return gt_infer_fail(infer, GANTRY_MODEL_GRAPH,
                                 "the initial value of carried value %u (input %u) is left out", k,
                                 first_initial + k);
        out[k].shape = gt_in_shape(infer, first_initial + k);
        out[k].dtype = gt_in_dtype(infer, first_initial + k);
        gt_graph_value(body, body->inputs.data[first_input + k])->kind =
            gt_in_value(infer, first_initial + k)->kind;
        for (int32_t axis = 0; axis < out[k].shape.rank && infer->state->loops >= PRECISE_LOOPS; axis++)
            widen_axis(infer, body, first_input + k, &out[k], axis);
    }
    for (int pass = 0; again && pass < MAX_PASSES; pass++) {
        again = false;
        for (uint32_t k = 0; k < count; k++)
            set_body_input(infer, body, first_input + k, out[k].dtype, &out[k].shape);
        GT_TRY(gt_infer_body(infer, body));
        for (uint32_t k = 0; k < count; k++) {
            const gt_value *value = body_output(body, first_output + k);
            if (value->dtype && out[k].dtype && value->dtype != out[k].dtype)
                return gt_infer_fail(infer, GANTRY_MODEL_TYPE,
                                     "carried value %u begins as %s, but the body makes it %s ('%s')", k,
                                     gantry_dtype_text(out[k].dtype), gantry_dtype_text(value->dtype),
                                     value->name);
            again = widen(infer, body, first_input + k, value, &out[k]) || again;
        }
        if (infer->state->loops >= PRECISE_LOOPS || pass + 2 == MAX_PASSES)
            for (uint32_t k = 0; k < count && again; k++)
                out[k].shape.rank = -1;
    }
    return GANTRY_OK;
}

static void carried_output(gt_infer *infer, uint32_t k, const carried *c, const gt_value *from)
{
    gt_shape shape = c->shape;
    for (int32_t axis = 0; axis < shape.rank; axis++)
        if (c->changes[axis])
            shape.dims[axis] = gt_out_data_dim(infer, k, (uint32_t)axis, GT_EXPR_UNKNOWN);
    set_kind(infer, k, from->kind);
    gt_out_shape(infer, k, c->dtype ? c->dtype : from->dtype, &shape);
}

/* All rounds' values of a body output, stacked along an axis. */
static gantry_status stacked_output(gt_infer *infer, uint32_t k, const gt_value *each, gt_expr rounds,
                                    int64_t axis)
{
    gt_shape shape = shape_of(each),
             out = {.rank = shape.rank < 0 || shape.rank >= GANTRY_MAX_RANK ? -1 : shape.rank + 1};
    int32_t at = 0;
    if (out.rank > 0)
        GT_TRY(gt_infer_axis(infer, axis, out.rank, &at));
    for (int32_t d = 0, from = 0; d < out.rank; d++) {
        if (d == at) {
            out.dims[d] = rounds;
            continue;
        }
        out.dims[d] = shape.dims[from++];
        if (gt_infer_is_local(infer, out.dims[d]))
            out.dims[d] = gt_out_data_dim(infer, k, (uint32_t)d, GT_EXPR_UNKNOWN);
    }
    gt_out_shape(infer, k, each->dtype, &out);
    return GANTRY_OK;
}

/* ---- Loop */

/* How often the body runs, when only the trip count decides; else GT_EXPR_UNKNOWN and an upper bound. */
static gt_expr count_rounds(gt_infer *infer, const gt_graph *body, gt_expr *out_bound)
{
    uint32_t count;
    int64_t value;
    const gt_expr *trips = gt_in_elements(infer, 0, &count);
    *out_bound =
        trips && count == 1 ? gt_make(infer, GT_EXPR_MAX, trips[0], gt_number(infer, 0)) : GT_EXPR_UNKNOWN;
    const gt_expr *start = gt_in_present(infer, 1) ? gt_in_elements(infer, 1, &count) : NULL;
    bool starts =
        !gt_in_present(infer, 1) || (start && count == 1 && gt_is_const(infer, start[0], &value) && value);
    const gt_value *condition = body_output(body, 0);
    bool goes_on = condition->elements && condition->element_count == 1 &&
                   gt_is_const(infer, condition->elements[0], &value) && value;
    return starts && goes_on ? *out_bound : GT_EXPR_UNKNOWN;
}

/* The declared shape of the round number and condition when it is [1] (older exporters), else a scalar. */
static gt_shape flag_shape(const gt_infer *infer, const gt_graph *body, uint32_t k)
{
    const gt_value *value = gt_graph_value(body, body->inputs.data[k]);
    gt_shape shape = {.rank = value->declared_rank == 1 && value->declared_dims[0] == 1};
    shape.dims[0] = gt_number(infer, 1);
    return shape;
}

gantry_status gt_rule_loop(gt_infer *infer)
{
    gt_graph *body = find_body(infer, "body");
    uint32_t count = infer->node->input_count > 2 ? infer->node->input_count - 2 : 0;
    if (!body || body->inputs.count != count + 2 || body->outputs.count < count + 1 ||
        infer->node->output_count > body->outputs.count - 1)
        return gt_infer_fail(
            infer, GANTRY_MODEL_GRAPH,
            "a body with %u inputs and at least %u outputs is needed (round, condition, carried values)",
            count + 2, count + 1);
    GT_TRY(require_single_input(infer, 0, GANTRY_INT64, "trip count"));
    GT_TRY(require_single_input(infer, 1, GANTRY_BOOL, "condition"));
    carried *values = gt_arena_array(infer->state->scratch, count + 1, sizeof *values);
    if (!values) {
        infer->state->failed = true;
        return GANTRY_OK;
    }
    gt_shape round = flag_shape(infer, body, 0), condition = flag_shape(infer, body, 1);
    set_body_input(infer, body, 0, GANTRY_INT64, &round);
    set_body_input(infer, body, 1, GANTRY_BOOL, &condition);
    /* The body runs only while the condition holds. */
    set_body_element(infer, body, 1, 1);
    GT_TRY(infer_rounds(infer, body, count, 2, 1, 2, values));
    GT_TRY(require_single(infer, body_output(body, 0), GANTRY_BOOL, "condition that the body gives"));
    gt_expr bound, rounds = count_rounds(infer, body, &bound);
    for (uint32_t k = 0; k < infer->node->output_count; k++) {
        if (infer->node->outputs[k] == GT_NONE)
            continue;
        if (k < count)
            carried_output(infer, k, &values[k], body_output(body, 1 + k));
        else
            GT_TRY(stacked_output(infer, k, body_output(body, 1 + k),
                                  rounds != GT_EXPR_UNKNOWN ? rounds : gt_out_data_dim(infer, k, 0, bound),
                                  0));
    }
    return GANTRY_OK;
}

/* ---- Scan */

static int64_t listed(const gt_infer *infer, const char *name, uint32_t k, int64_t otherwise)
{
    uint32_t count;
    const int64_t *values = gt_node_ints(infer->node, name, &count);
    return values && k < count ? values[k] : otherwise;
}

/* A scanned input as one round sees it: without the axis that is scanned. */
static gantry_status scanned_input(gt_infer *infer, gt_graph *body, uint32_t input, uint32_t scan,
                                   gt_expr *inout_rounds)
{
    gt_shape shape = gt_in_shape(infer, input), slice = {.rank = shape.rank - 1};
    int32_t axis = 0;
    int64_t value;
    if (!gt_in_present(infer, input))
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "the input to scan, %u, is left out", input);
    if (shape.rank < 0)
        slice.rank = -1;
    if (shape.rank == 0)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "'%s' is a scalar and can't be scanned",
                             gt_in_value(infer, input)->name);
    if (shape.rank > 0) {
        GT_TRY(gt_infer_axis(infer, listed(infer, "scan_input_axes", scan, 0), shape.rank, &axis));
        for (int32_t d = 0, to = 0; d < shape.rank; d++)
            if (d != axis)
                slice.dims[to++] = shape.dims[d];
        if (!gt_is_const(infer, *inout_rounds, &value))
            *inout_rounds = shape.dims[axis];
    }
    set_body_input(infer, body, input, gt_in_dtype(infer, input), &slice);
    return GANTRY_OK;
}

gantry_status gt_rule_scan(gt_infer *infer)
{
    gt_graph *body = find_body(infer, "body");
    int64_t scans = gt_attr_int(infer, "num_scan_inputs", 0);
    uint32_t inputs = infer->node->input_count, outputs = infer->node->output_count;
    if (!body || scans < 1 || scans > (int64_t)inputs || body->inputs.count != inputs ||
        body->outputs.count < outputs || body->outputs.count < inputs - (uint32_t)scans)
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "a body with %u inputs and %u outputs is needed",
                             inputs, outputs);
    uint32_t states = inputs - (uint32_t)scans;
    gt_expr rounds = GT_EXPR_UNKNOWN;
    carried *values = gt_arena_array(infer->state->scratch, states + 1, sizeof *values);
    if (!values) {
        infer->state->failed = true;
        return GANTRY_OK;
    }
    for (uint32_t k = states; k < inputs; k++)
        GT_TRY(scanned_input(infer, body, k, k - states, &rounds));
    GT_TRY(infer_rounds(infer, body, states, 0, 0, 0, values));
    for (uint32_t k = 0; k < outputs; k++) {
        if (k < states)
            carried_output(infer, k, &values[k], body_output(body, k));
        else
            GT_TRY(stacked_output(infer, k, body_output(body, k), rounds,
                                  listed(infer, "scan_output_axes", k - states, 0)));
    }
    return GANTRY_OK;
}
