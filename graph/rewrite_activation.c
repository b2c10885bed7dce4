/* The rules that recognise activations written out in primitive operators, whatever the order of their
 * operands.
 *
 * An activation is a special function T of a polynomial in x, in a product with x. Both parts are read as
 * polynomials in x and T with number coefficients, and compared with what they must be:
 *
 *     gelu (erf)    T = Erf(x * sqrt(1/2))                          y = x/2 + x*T/2
 *     gelu (tanh)   T = Tanh(sqrt(2/pi) * (x + 0.044715 * x^3))     y = x/2 + x*T/2
 *     silu          T = Sigmoid(x)                                  y = x*T
 *     hard_swish    T = HardSigmoid(x; 1/6, 1/2)                    y = x*T
 *                   T = Clip(x + 3; 0, 6)                           y = x*T/6
 *                   T = Clip(x/6 + 1/2; 0, 1)                       y = x*T
 *
 * So x*(0.5*(1+T)), (x*0.5)*(1+T) and 0.5*(x+x*T) are one case. */
#include "rewrite_internal.h"

#include <math.h>

#define MAX_NODES 16u
#define MAX_DEPTH 6
#define MAX_POWER 4 /* one more than the highest power of x that occurs */
#define MAX_CANDIDATES 24u

/* coefficient[i][j] belongs to x^i T^j. */
typedef struct polynomial {
    double coefficient[MAX_POWER][2];
} polynomial;

typedef struct function_form {
    const char *op_type;   /* of T */
    polynomial argument;   /* in x */
    polynomial result;     /* in x and T */
    double low, high;      /* of Clip; alpha and beta of HardSigmoid */
    const char *attribute; /* value of "approximate" on the composite, or NULL */
} function_form;

typedef struct activation_match {
    gt_rewrite_context *context;
    uint32_t x, t; /* value ids; t GT_NONE while the argument is read */
    uint32_t nodes[MAX_NODES];
    uint32_t node_count;
    uint32_t number_rank; /* the highest rank of a number met on the way */
    double tolerance;
} activation_match;

/* ---- polynomials ----------------------------------------------------------------------------- */

static bool multiply(const polynomial *a, const polynomial *b, polynomial *out)
{
    polynomial product = {0};
    for (int i = 0; i < MAX_POWER * 2; i++)
        for (int k = 0; k < MAX_POWER * 2; k++) {
            double c = a->coefficient[i / 2][i % 2] * b->coefficient[k / 2][k % 2];
            if (c == 0)
                continue;
            if (i / 2 + k / 2 >= MAX_POWER || i % 2 + k % 2 > 1)
                return false;
            product.coefficient[i / 2 + k / 2][i % 2 + k % 2] += c;
        }
    *out = product;
    return true;
}

static void add_scaled(polynomial *inout, const polynomial *other, double factor)
{
    for (int i = 0; i < MAX_POWER; i++)
        for (int j = 0; j < 2; j++)
            inout->coefficient[i][j] += factor * other->coefficient[i][j];
}

static bool is_number(const polynomial *p)
{
    for (int i = 0; i < MAX_POWER; i++)
        for (int j = 0; j < 2; j++)
            if (p->coefficient[i][j] != 0 && (i || j))
                return false;
    return true;
}

static bool is_near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fabs(b);
}

static bool equals(const polynomial *p, const polynomial *wanted, double tolerance)
{
    for (int i = 0; i < MAX_POWER; i++)
        for (int j = 0; j < 2; j++)
            if (!is_near(p->coefficient[i][j], wanted->coefficient[i][j], tolerance))
                return false;
    return true;
}

/* ---- reading a value as a polynomial --------------------------------------------------------- */

static bool read_polynomial(activation_match *match, uint32_t value, int depth, polynomial *out);

static bool take_node(activation_match *match, uint32_t id)
{
    for (uint32_t k = 0; k < match->node_count; k++)
        if (match->nodes[k] == id)
            return true;
    if (match->node_count == MAX_NODES)
        return false;
    match->nodes[match->node_count++] = id;
    return true;
}

static bool read_number(activation_match *match, uint32_t value, polynomial *out)
{
    double number;
    if (!gt_rewrite_scalar(match->context, value, &number))
        return false;
    uint32_t rank = (uint32_t)gt_rewrite_value(match->context, value)->rank;
    if (rank > match->number_rank)
        match->number_rank = rank;
    out->coefficient[0][0] = number;
    return true;
}

static bool combine(const gt_node *node, const polynomial *a, const polynomial *b, polynomial *out)
{
    *out = *a;
    if (gt_rewrite_is_op(node, "Mul"))
        return multiply(a, b, out);
    if (gt_rewrite_is_op(node, "Add") || gt_rewrite_is_op(node, "Sub")) {
        add_scaled(out, b, gt_rewrite_is_op(node, "Sub") ? -1 : 1);
        return true;
    }
    double number = b->coefficient[0][0];
    if (!is_number(b))
        return false;
    if (gt_rewrite_is_op(node, "Div") && number != 0) {
        *out = (polynomial){0};
        add_scaled(out, a, 1 / number);
        return true;
    }
    if (!gt_rewrite_is_op(node, "Pow") || (number != 2 && number != 3) || !multiply(a, a, out))
        return false;
    return number == 2 || multiply(out, a, out);
}

static bool read_node(activation_match *match, uint32_t value, int depth, polynomial *out)
{
    polynomial a, b;
    const gt_node *node = gt_rewrite_producer(match->context, value, NULL);
    if (!node || depth == 0 || node->input_count != 2 || node->output_count != 1)
        return false;
    static const char *const known[] = {"Mul", "Add", "Sub", "Div", "Pow"};
    bool is_known = false;
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        is_known |= gt_rewrite_is_op(node, known[k]);
    return is_known && take_node(match, gt_rewrite_value(match->context, value)->producer) &&
           read_polynomial(match, node->inputs[0], depth - 1, &a) &&
           read_polynomial(match, node->inputs[1], depth - 1, &b) && combine(node, &a, &b, out);
}

static bool read_polynomial(activation_match *match, uint32_t value, int depth, polynomial *out)
{
    *out = (polynomial){0};
    if (value == match->x)
        out->coefficient[1][0] = 1;
    else if (value == match->t)
        out->coefficient[0][1] = 1;
    else if (!read_number(match, value, out))
        return read_node(match, value, depth, out);
    return true;
}

/* ---- the argument of T: which value is x ----------------------------------------------------- */

static uint32_t collect_candidates(const gt_rewrite_context *context, uint32_t value, int depth,
                                   uint32_t *candidates, uint32_t count)
{
    if (value == GT_NONE || count == MAX_CANDIDATES || gt_rewrite_is_constant(context, value))
        return count;
    candidates[count++] = value;
    const gt_node *node = gt_rewrite_producer(context, value, NULL);
    for (uint32_t k = 0; depth && node && k < node->input_count && node->input_count <= 2; k++)
        count = collect_candidates(context, node->inputs[k], depth - 1, candidates, count);
    return count;
}

/* Finds x such that argument is wanted(x); the nodes in between are taken. */
static bool match_argument(activation_match *match, uint32_t argument, const polynomial *wanted)
{
    uint32_t candidates[MAX_CANDIDATES];
    uint32_t count = collect_candidates(match->context, argument, 4, candidates, 0);
    polynomial found;
    match->t = GT_NONE;
    for (uint32_t k = 0; k < count; k++) {
        match->x = candidates[k];
        match->node_count = match->number_rank = 0;
        if (read_polynomial(match, argument, MAX_DEPTH, &found) && equals(&found, wanted, match->tolerance))
            return true;
    }
    return false;
}

/* ---- from T down to the result --------------------------------------------------------------- */

/* Finds the result below value, which depends on T, and takes the nodes that it is made of. */
static uint32_t match_result(activation_match *match, uint32_t value, int depth, const polynomial *wanted)
{
    uint32_t cursor = GT_NONE, id;
    while (depth && (id = gt_rewrite_next_consumer(match->context, value, &cursor)) != GT_NONE) {
        const gt_node *node = match->context->graph->nodes.data[id];
        uint32_t kept_count = match->node_count;
        polynomial found;
        if (node->domain[0] || node->output_count != 1 || node->body_count ||
            !read_polynomial(match, node->outputs[0], MAX_DEPTH, &found)) {
            match->node_count = kept_count;
            continue;
        }
        if (equals(&found, wanted, match->tolerance))
            return node->outputs[0];
        match->node_count = kept_count;
        uint32_t result = match_result(match, node->outputs[0], depth - 1, wanted);
        if (result != GT_NONE)
            return result;
    }
    return GT_NONE;
}

/* ---- the rules ------------------------------------------------------------------------------- */

/* Roundings of the written constants: of floats to their type, of halves to theirs and through one product.
 */
static double tolerance_of(gantry_dtype dtype)
{
    return dtype == GANTRY_FLOAT16 ? 3e-3 : dtype == GANTRY_BFLOAT16 ? 2e-2 : 2e-6;
}

/* A bound of Clip: an attribute until opset 10, an input since. */
static bool read_bound(const gt_rewrite_context *context, const gt_node *node, uint32_t input,
                       const char *attribute, double *out_bound)
{
    const gantry_attribute *a = gt_node_attribute(node, attribute);
    if (a && a->kind == GANTRY_ATTR_FLOAT) {
        *out_bound = (double)a->f;
        return true;
    }
    return gt_rewrite_scalar(context, gt_rewrite_input(node, input), out_bound);
}

static bool has_parameters(const gt_rewrite_context *context, const gt_node *node, const function_form *form,
                           double tolerance)
{
    double low = 0, high = 0;
    if (gt_rewrite_is_op(node, "Clip")) {
        if (!read_bound(context, node, 1, "min", &low) || !read_bound(context, node, 2, "max", &high))
            return false;
    } else if (gt_rewrite_is_op(node, "HardSigmoid")) {
        low = (double)gt_node_float(node, "alpha", 0.2f);
        high = (double)gt_node_float(node, "beta", 0.5f);
        tolerance = tolerance < 1e-4 ? 1e-4 : tolerance; /* exporters write 0.1667 as 0.16666670 and less */
    }
    return is_near(low, form->low, tolerance) && is_near(high, form->high, tolerance);
}

/* Numbers of one element keep the shape of x unless they have more axes than it. */
static const char *check(const activation_match *match, const gt_rewrite_pattern *pattern)
{
    const gt_value *x = gt_rewrite_value(match->context, match->x);
    if (!gt_rewrite_is_float(x->dtype))
        return "dtype";
    if (match->number_rank && (int32_t)match->number_rank > x->rank)
        return "shape";
    return gt_rewrite_pattern_guard(match->context, pattern);
}

static gantry_status visit_function(gt_rewrite_context *context, uint32_t id, const char *op_type,
                                    const function_form *form, bool *out_changed, gantry_error *err)
{
    const gt_node *node = context->graph->nodes.data[id];
    activation_match match = {.context = context};
    match.tolerance = tolerance_of(gt_rewrite_value(context, node->outputs[0])->dtype);
    if (node->input_count == 0 || node->inputs[0] == GT_NONE ||
        !has_parameters(context, node, form, match.tolerance) ||
        !match_argument(&match, node->inputs[0], &form->argument))
        return GANTRY_OK;
    match.t = node->outputs[0];
    if (!take_node(&match, id))
        return GANTRY_OK;
    uint32_t result = match_result(&match, match.t, MAX_DEPTH, &form->result), fused;
    if (result == GT_NONE)
        return GANTRY_OK;
    gt_rewrite_pattern pattern = {op_type, match.nodes, match.node_count, &match.x, 1, result};
    const char *guard = check(&match, &pattern);
    if (guard)
        return gt_rewrite_log_miss(context, node->name, guard, err);
    GT_TRY(gt_rewrite_fuse(context, &pattern, &fused, err));
    *out_changed = true;
    if (!form->attribute)
        return GANTRY_OK;
    gantry_attribute attribute = {.struct_bytes = sizeof attribute,
                                  .name = "approximate",
                                  .kind = GANTRY_ATTR_STRING,
                                  .count = 1,
                                  .s = form->attribute,
                                  .length = strlen(form->attribute)};
    return gt_node_set_attribute(context->graph, fused, &attribute, err);
}

static gantry_status find_functions(gt_rewrite_context *context, gt_graph *graph, const char *op_type,
                                    const function_form *forms, uint32_t form_count, bool *out_changed,
                                    gantry_error *err)
{
    uint32_t order_count = graph->order.count;
    for (uint32_t k = 0; k < order_count; k++)
        for (uint32_t f = 0; f < form_count; f++) {
            uint32_t id = graph->order.data[k];
            const gt_node *node = graph->nodes.data[id];
            if (!node->removed && gt_rewrite_is_op(node, forms[f].op_type))
                GT_TRY(visit_function(context, id, op_type, &forms[f], out_changed, err));
        }
    return GANTRY_OK;
}

#define TERM(power, function, number) .coefficient[power][function] = (number)
#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_BY_PI 0.79788456080286535588

gantry_status gt_rewrite_gelu(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                              gantry_error *err)
{
    static const function_form forms[] = {
        {"Erf", {TERM(1, 0, SQRT_HALF)}, {TERM(1, 0, 0.5), TERM(1, 1, 0.5)}, 0, 0, "none"},
        {"Tanh",
         {TERM(1, 0, SQRT_2_BY_PI), TERM(3, 0, SQRT_2_BY_PI * 0.044715)},
         {TERM(1, 0, 0.5), TERM(1, 1, 0.5)},
         0,
         0,
         "tanh"},
    };
    return find_functions(context, graph, "Gelu", forms, sizeof forms / sizeof forms[0], out_changed, err);
}

gantry_status gt_rewrite_silu(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                              gantry_error *err)
{
    static const function_form form = {"Sigmoid", {TERM(1, 0, 1)}, {TERM(1, 1, 1)}, 0, 0, NULL};
    return find_functions(context, graph, "Silu", &form, 1, out_changed, err);
}

gantry_status gt_rewrite_hard_swish(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                    gantry_error *err)
{
    static const function_form forms[] = {
        {"HardSigmoid", {TERM(1, 0, 1)}, {TERM(1, 1, 1)}, 1.0 / 6, 0.5, NULL},
        {"Clip", {TERM(0, 0, 3), TERM(1, 0, 1)}, {TERM(1, 1, 1.0 / 6)}, 0, 6, NULL},
        {"Clip", {TERM(0, 0, 0.5), TERM(1, 0, 1.0 / 6)}, {TERM(1, 1, 1)}, 0, 1, NULL},
    };
    return find_functions(context, graph, "HardSwish", forms, sizeof forms / sizeof forms[0], out_changed,
                          err);
}
