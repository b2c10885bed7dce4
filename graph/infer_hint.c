/* Hints of shape errors: what would make two tensors fit. A hint is given only for what surely helps with the
 * extents that are known; where something is symbolic nothing is guessed. */
#include "infer_show.h"

typedef struct pair {
    const gt_graph *graph;
    const gt_exprs *exprs;
    const gt_binding *at;
    const gt_node *node;
    const gt_value *a, *b;
    const gt_shape_check *check;
} pair;

/* ---- extents */

static bool equal(const pair *p, gt_expr x, gt_expr y)
{
    int64_t n, m;
    if (x == GT_EXPR_UNKNOWN || y == GT_EXPR_UNKNOWN)
        return false;
    return x == y ||
           (gt_bound_value(p->exprs, x, p->at, &n) && gt_bound_value(p->exprs, y, p->at, &m) && n == m);
}

static bool is_one(const pair *p, gt_expr e)
{
    int64_t value;
    return gt_bound_value(p->exprs, e, p->at, &value) && value == 1;
}

static bool broadcast(const pair *p, gt_expr x, gt_expr y)
{
    return is_one(p, x) || is_one(p, y) || equal(p, x, y);
}

/* ---- elementwise operators */

/* Whether b, with `shift` axes of extent 1 added on its right, broadcasts with a. */
static bool fits_shifted(const pair *p, const gt_value *a, const gt_value *b, int32_t shift)
{
    for (int32_t k = 1; k <= b->rank; k++)
        if (!broadcast(p, gt_extent_from_right(a, (uint32_t)(k + shift)),
                       gt_extent_from_right(b, (uint32_t)k)))
            return false;
    return true;
}

static bool fits_transposed(const pair *p, const gt_value *a, const gt_value *b)
{
    if (a->rank != b->rank || b->rank < 2)
        return false;
    for (uint32_t k = 1; k <= (uint32_t)b->rank; k++)
        if (!broadcast(p, gt_extent_from_right(a, k), gt_extent_from_right(b, k <= 2 ? 3 - k : k)))
            return false;
    return true;
}

static bool hint_unsqueeze(const pair *p, gt_text *text)
{
    const gt_value *a = p->a->rank < p->b->rank ? p->b : p->a, *b = a == p->a ? p->b : p->a;
    for (int32_t shift = 1; shift <= a->rank - b->rank; shift++)
        if (fits_shifted(p, a, b, shift)) {
            gt_text_printf(text, "'%s' would fit with %d ax%s of extent 1 added on the right (Unsqueeze)",
                           b->name, shift, shift == 1 ? "is" : "es");
            return true;
        }
    return false;
}

static bool hint_transpose(const pair *p, gt_text *text)
{
    if (!fits_transposed(p, p->a, p->b))
        return false;
    gt_text_printf(text, "'%s' would fit with its last two axes exchanged (Transpose)", p->b->name);
    return true;
}

/* ---- products */

static bool hint_matmul(const pair *p, gt_text *text)
{
    const gt_value *turned = NULL;
    if (p->check->axis_a != 1 || p->check->axis_b != 2)
        return false;
    if (p->b->rank >= 2 && equal(p, gt_extent_from_right(p->a, 1), gt_extent_from_right(p->b, 1)))
        turned = p->b;
    else if (p->a->rank >= 2 && equal(p, gt_extent_from_right(p->a, 2), gt_extent_from_right(p->b, 2)))
        turned = p->a;
    if (turned)
        gt_text_printf(text, "'%s' would fit with its last two axes exchanged (Transpose)", turned->name);
    return turned != NULL;
}

static bool hint_gemm(const pair *p, gt_text *text)
{
    bool is_product = p->node->input_count > 1 && p->node->inputs[1] == p->check->b;
    if (!is_product || p->a->rank != 2 || p->b->rank != 2)
        return false;
    const char *name = NULL;
    if (equal(p, gt_extent_from_right(p->a, p->check->axis_a),
              gt_extent_from_right(p->b, 3 - p->check->axis_b)))
        name = "transB";
    else if (equal(p, gt_extent_from_right(p->a, 3 - p->check->axis_a),
                   gt_extent_from_right(p->b, p->check->axis_b)))
        name = "transA";
    if (name)
        gt_text_printf(text, "they would fit with %s=%d", name, gt_node_int(p->node, name, 0) == 0);
    return name != NULL;
}

/* ---- Concat */

/* An axis along which both could be joined: all others are equal. */
static bool hint_concat(const pair *p, gt_text *text)
{
    for (uint32_t axis = 1; p->a->rank == p->b->rank && axis <= (uint32_t)p->a->rank; axis++) {
        bool fits = true;
        for (uint32_t k = 1; k <= (uint32_t)p->a->rank; k++)
            fits =
                fits && (k == axis || equal(p, gt_extent_from_right(p->a, k), gt_extent_from_right(p->b, k)));
        if (fits) {
            gt_text_printf(text, "they would fit with axis=%d", p->a->rank - (int32_t)axis);
            return true;
        }
    }
    return false;
}

/* ---- Reshape */

/* The usual cause: the file has the batch size that it was exported with. */
static bool hint_fixed_batch(const pair *p, gt_text *text)
{
    int64_t asked, have;
    if (!p->b->elements || !p->b->element_count || p->a->rank < 1 ||
        !gt_expr_is_const(p->exprs, p->b->elements[0], &asked) || asked < 1 ||
        gt_expr_is_const(p->exprs, p->a->dims[0], NULL) ||
        !gt_bound_value(p->exprs, p->a->dims[0], p->at, &have) || have == asked)
        return false;
    gt_text_printf(text,
                   "the shape begins with %lld, but '%s' has %lld there: the file seems to keep the size it "
                   "was exported "
                   "with. Export it with that axis dynamic, or give inputs of that size",
                   (long long)asked, p->a->name, (long long)have);
    return true;
}

/* ---- symbols of one name */

static const gt_symbol *symbol_of(const pair *p, gt_expr e)
{
    bool is_symbol = e != GT_EXPR_UNKNOWN && p->exprs->nodes.data[e].kind == GT_EXPR_SYMBOL;
    const gt_symbol *symbol = is_symbol ? &p->exprs->symbols.data[p->exprs->nodes.data[e].a] : NULL;
    return symbol && symbol->kind == GT_SYMBOL_INPUT_DIM ? symbol : NULL;
}

static bool hint_one_name(const pair *p, gt_text *text)
{
    const gt_symbol *x = symbol_of(p, gt_extent_from_right(p->a, p->check->axis_a)),
                    *y = symbol_of(p, gt_extent_from_right(p->b, p->check->axis_b));
    const gt_graph *root = p->graph->model->root;
    if (!x || !y || x == y || strcmp(x->name, y->name) != 0 || x->value >= root->values.count ||
        y->value >= root->values.count)
        return false;
    gt_text_printf(
        text, "the model calls axis %u of input '%s' and axis %u of input '%s' both %s: give them one extent",
        x->axis, root->values.data[x->value]->name, y->axis, root->values.data[y->value]->name, x->name);
    return true;
}

/* ---- the table */

static const struct {
    const char *op_type; /* NULL: every operator that broadcasts */
    bool (*hint)(const pair *p, gt_text *text);
} hints[] = {{"MatMul", hint_matmul}, {"MatMulInteger", hint_matmul}, {"QLinearMatMul", hint_matmul},
             {"Gemm", hint_gemm},     {"Concat", hint_concat},        {"Reshape", hint_fixed_batch},
             {NULL, hint_unsqueeze},  {NULL, hint_transpose}};

void gt_hint_pair(const gt_graph *graph, const gt_shape_check *check, const gt_binding *at, gt_text *text)
{
    const pair p = {.graph = graph,
                    .exprs = &graph->model->exprs,
                    .at = at,
                    .node = gt_graph_node(graph, check->node),
                    .a = gt_graph_value(graph, check->a),
                    .b = gt_graph_value(graph, check->b),
                    .check = check};
    if (!p.node || !p.a || !p.b || p.a == p.b || p.a->rank < 0 || p.b->rank < 0)
        return;
    bool special = false, broadcasts = p.exprs->nodes.data[check->expr].kind == GT_EXPR_BROADCAST;
    for (size_t k = 0; k < sizeof hints / sizeof *hints; k++)
        special = special || (hints[k].op_type && strcmp(hints[k].op_type, p.node->op_type) == 0);
    size_t length = text->length;
    gt_text_printf(text, "\n  hint: ");
    bool given = hint_one_name(&p, text);
    for (size_t k = 0; k < sizeof hints / sizeof *hints && !given; k++)
        if (hints[k].op_type ? strcmp(hints[k].op_type, p.node->op_type) == 0 : broadcasts && !special)
            given = hints[k].hint(&p, text);
    if (!given && text->data && text->length > length)
        text->data[text->length = length] = 0;
}
