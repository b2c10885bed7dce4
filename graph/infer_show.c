/* Tensors as the errors of shapes show them: extents aligned on the right, where each tensor comes from, what
 * bound the symbols. */
#include "infer_show.h"

#define MAX_SHOWN_ELEMENTS 16u
#define MOST_NAME_COLUMNS 40 /* longer names push their row to the right */

bool gt_bound_value(const gt_exprs *exprs, gt_expr e, const gt_binding *at, int64_t *out)
{
    if (gt_expr_is_const(exprs, e, out))
        return true;
    if (!at || e == GT_EXPR_UNKNOWN || !at->known[e])
        return false;
    *out = at->values[e].i;
    return true;
}

void gt_dim_text(const gt_exprs *exprs, gt_expr e, const gt_binding *at, gt_allocator *allocator, char *out)
{
    gt_text text;
    int64_t value;
    gt_text_init(&text, allocator);
    gt_expr_print(exprs, e, &text);
    const char *expression = text.data ? text.data : "?";
    bool bound = gt_bound_value(exprs, e, at, &value);
    if (bound && gt_expr_is_const(exprs, e, NULL))
        snprintf(out, GT_DIM_TEXT, "%lld", (long long)value);
    else if (bound)
        snprintf(out, GT_DIM_TEXT, "%.18s=%lld", expression, (long long)value);
    else
        snprintf(out, GT_DIM_TEXT, "%.36s", expression);
    gt_text_free(&text);
}

/* ---- operands that decide shapes: what the operator calls them, and their elements */

/* The name of input k in the operator's definition; false when there is none. */
static bool operand_name(const gt_node *node, uint32_t k, const char **out_name, int *out_length)
{
    const char *at = node->version >= node->op->names_from ? node->op->input_names : NULL;
    for (; at && k > 0; k--) {
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    if (!at || !*at)
        return false;
    *out_name = at;
    *out_length = (int)strcspn(at, " ");
    return true;
}

static void print_expr_element(const gt_exprs *exprs, gt_expr e, const gt_binding *at, gt_text *text)
{
    int64_t value;
    if (e == GT_EXPR_UNKNOWN)
        gt_text_printf(text, "?");
    else if (exprs->nodes.data[e].kind == GT_EXPR_REAL_CONST)
        gt_text_printf(text, "%.9g", exprs->nodes.data[e].constant.r);
    else if (gt_expr_is_real(exprs, e) && at && at->known[e])
        gt_text_printf(text, "%.9g", at->values[e].r);
    else if (!gt_expr_is_real(exprs, e) && gt_bound_value(exprs, e, at, &value))
        gt_text_printf(text, "%lld", (long long)value);
    else
        gt_expr_print(exprs, e, text);
}

/* Only what lies in memory: small constants do, and runs that fail at once must not fetch the others. */
static void print_constant(const gt_constant *constant, gt_text *text)
{
    uint64_t count = 1;
    bool real;
    for (uint32_t axis = 0; axis < constant->rank; axis++)
        count *= (uint64_t)constant->dims[axis];
    if (count == 0 || count > MAX_SHOWN_ELEMENTS || !constant->data)
        return;
    bool readable = gt_dtype_is_symbolic(constant->dtype, &real);
    for (uint32_t k = 0; k < count; k++) {
        gt_text_printf(text, k ? "," : " = [");
        gt_scalar element = readable ? gt_scalar_read(constant->dtype, constant->data, k) : (gt_scalar){0};
        if (!readable)
            gt_text_printf(text, "?");
        else if (real)
            gt_text_printf(text, "%.9g", element.r);
        else
            gt_text_printf(text, "%lld", (long long)element.i);
    }
    gt_text_printf(text, "]");
}

/* ", steps = [1,0]" */
static void operand_text(const gt_graph *graph, const gt_shown *one, const gt_binding *at, gt_text *text)
{
    const gt_node *node = one->reader;
    const gt_value *value = one->value;
    const char *name;
    int length;
    if (!node || !node->op || one->operand >= 32 || !(node->op->shape_operands >> one->operand & 1) ||
        !operand_name(node, one->operand, &name, &length))
        return;
    gt_text_printf(text, ", its %.*s", length, name);
    if (!value->elements && value->constant != GT_NONE) {
        print_constant(&graph->model->constants.data[value->constant], text);
        return;
    }
    for (uint32_t k = 0; value->elements && k < value->element_count && k < MAX_SHOWN_ELEMENTS; k++) {
        gt_text_printf(text, k ? "," : " = [");
        print_expr_element(&graph->model->exprs, value->elements[k], at, text);
    }
    if (value->elements && value->element_count)
        gt_text_printf(text, value->element_count > MAX_SHOWN_ELEMENTS ? ",...]" : "]");
}

/* ---- tensors */

static void origin_text(const gt_graph *graph, const gt_value *value, gt_text *text)
{
    const gt_node *node = gt_graph_node(graph, value->producer);
    const gt_node *outer = graph->parent ? gt_graph_node(graph->parent, graph->parent_node) : NULL;
    if (node)
        gt_text_printf(text, "from node '%s' (%s)", node->name, node->op_type);
    else if (value->constant != GT_NONE)
        gt_text_printf(text, "a constant");
    else if (value->captured != GT_NONE)
        gt_text_printf(text, "captured from the outer graph");
    else if (outer)
        gt_text_printf(text, "an input of the body of '%s' (%s)", outer->name, outer->op_type);
    else
        gt_text_printf(text, "a graph input");
}

void gt_show_value(const gt_graph *graph, uint32_t id, const gt_node *reader, const gt_binding *at,
                   gt_shown *out)
{
    out->value = gt_graph_value(graph, id);
    out->reader = NULL;
    out->operand = out->mark = 0;
    for (uint32_t k = 0; reader && k < reader->input_count && !out->reader; k++)
        if (reader->inputs[k] == id) {
            out->reader = reader;
            out->operand = k;
        }
    int32_t rank = out->value->rank;
    for (int32_t k = 0; k < rank && k < GANTRY_MAX_RANK; k++)
        gt_dim_text(&graph->model->exprs, out->value->dims[rank - 1 - k], at, graph->model->allocator,
                    out->dims[k]);
}

uint32_t gt_show_inputs(const gt_graph *graph, const gt_node *node, const gt_binding *at, gt_shown *out)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < node->input_count && count < GT_MAX_SHOWN; k++) {
        if (node->inputs[k] == GT_NONE)
            continue;
        gt_show_value(graph, node->inputs[k], node, at, &out[count]);
        out[count++].operand = k;
    }
    return count;
}

/* Widths of the table's columns; extents are counted from the right. */
typedef struct columns {
    int name, type, axes, extent[GANTRY_MAX_RANK];
} columns;

static int shown_rank(const gt_shown *one)
{
    return one->value->rank < GANTRY_MAX_RANK ? one->value->rank : GANTRY_MAX_RANK;
}

static int larger(int a, size_t b)
{
    return a > (int)b ? a : (int)b;
}

static columns measure(const gt_shown *all, uint32_t count)
{
    columns c = {0};
    for (uint32_t k = 0; k < count; k++) {
        int rank = shown_rank(&all[k]);
        c.name = larger(c.name, strlen(all[k].value->name));
        c.type = larger(c.type, strlen(gantry_dtype_text(all[k].value->dtype)));
        c.axes = rank > c.axes ? rank : c.axes;
        for (int d = 0; d < rank; d++)
            c.extent[d] = larger(c.extent[d], strlen(all[k].dims[d]));
    }
    c.name = c.name > MOST_NAME_COLUMNS ? MOST_NAME_COLUMNS : c.name;
    return c;
}

static void show_row(const gt_graph *graph, const gt_shown *one, const columns *c, const gt_binding *at,
                     gt_text *text)
{
    int rank = shown_rank(one);
    gt_text_printf(text, "\n  %-*s  %-*s ", c->name, one->value->name, c->type,
                   gantry_dtype_text(one->value->dtype));
    if (rank < 0)
        gt_text_printf(text, "of unknown rank");
    for (int d = c->axes - 1; d >= 0; d--)
        gt_text_printf(text, "%s%*s%s", d < rank ? (d == rank - 1 ? "[" : ",") : " ", c->extent[d],
                       d < rank ? one->dims[d] : "", d == 0 && d < rank ? "]" : "");
    if (rank == 0)
        gt_text_printf(text, "[]");
    gt_text_printf(text, "  ");
    origin_text(graph, one->value, text);
    operand_text(graph, one, at, text);
}

static void show_mark(const gt_shown *one, const columns *c, gt_text *text)
{
    int axis = (int)one->mark - 1, length = (int)strlen(one->dims[axis]);
    int before = 2 + larger(c->name, strlen(one->value->name)) + 2 + c->type + 1;
    for (int d = c->axes - 1; d > axis; d--)
        before += 1 + c->extent[d];
    gt_text_printf(text, "\n%*s", before + 1 + c->extent[axis] - length, "");
    for (int k = 0; k < length; k++)
        gt_text_printf(text, "^");
}

void gt_show_table(const gt_graph *graph, const gt_shown *all, uint32_t count, const gt_binding *at,
                   gt_text *text)
{
    columns c = measure(all, count);
    for (uint32_t k = 0; k < count; k++) {
        show_row(graph, &all[k], &c, at, text);
        bool repeated = k + 1 < count && all[k + 1].mark == all[k].mark;
        if (all[k].mark && (int)all[k].mark <= shown_rank(&all[k]) && !repeated)
            show_mark(&all[k], &c, text);
    }
}

/* ---- symbols of the extents shown */

static void collect_symbols(const gt_exprs *exprs, gt_expr e, uint32_t *symbols, uint32_t *count,
                            unsigned depth)
{
    if (e == GT_EXPR_UNKNOWN || depth > 12)
        return;
    const gt_expr_node *node = &exprs->nodes.data[e];
    if (node->kind == GT_EXPR_SYMBOL) {
        for (uint32_t k = 0; k < *count; k++)
            if (symbols[k] == node->a)
                return;
        if (*count < GT_MAX_SHOWN)
            symbols[(*count)++] = node->a;
        return;
    }
    if (node->kind == GT_EXPR_CONST || node->kind == GT_EXPR_REAL_CONST)
        return;
    collect_symbols(exprs, node->a, symbols, count, depth + 1);
    collect_symbols(exprs, node->b, symbols, count, depth + 1);
    if (node->kind == GT_EXPR_SELECT)
        collect_symbols(exprs, node->c, symbols, count, depth + 1);
}

static void symbol_text(const gt_graph *root, uint32_t index, gt_text *text)
{
    const gt_symbol *symbol = &root->model->exprs.symbols.data[index];
    if (symbol->kind == GT_SYMBOL_INPUT_DIM && symbol->value < root->values.count)
        gt_text_printf(text, "axis %u of input '%s'", symbol->axis, root->values.data[symbol->value]->name);
    else if (symbol->kind == GT_SYMBOL_INPUT_ELEMENT && symbol->value < root->values.count)
        gt_text_printf(text, "element %u of input '%s'", symbol->axis,
                       root->values.data[symbol->value]->name);
    else
        gt_text_printf(text, "computed by the graph");
}

static void show_symbol(const gt_graph *graph, uint32_t index, const gt_binding *at, gt_text *text)
{
    const gt_exprs *exprs = &graph->model->exprs;
    const gt_symbol *symbol = &exprs->symbols.data[index];
    gt_text_printf(text, "%s", symbol->name);
    for (gt_expr e = 0; at && e < exprs->nodes.count; e++)
        if (exprs->nodes.data[e].kind == GT_EXPR_SYMBOL && exprs->nodes.data[e].a == index && at->known[e])
            gt_text_printf(text, symbol->real ? "=%g" : "=%.0f",
                           symbol->real ? at->values[e].r : (double)at->values[e].i);
    gt_text_printf(text, " is ");
    symbol_text(graph->model->root, index, text);
}

void gt_show_symbols(const gt_graph *graph, const gt_shown *all, uint32_t count, const gt_binding *at,
                     gt_text *text)
{
    uint32_t symbols[GT_MAX_SHOWN], found = 0;
    for (uint32_t k = 0; k < count; k++)
        for (int32_t axis = 0; axis < all[k].value->rank; axis++)
            collect_symbols(&graph->model->exprs, all[k].value->dims[axis], symbols, &found, 0);
    for (uint32_t k = 0; k < found; k++) {
        gt_text_printf(text, k ? "; " : "\n  symbols: ");
        show_symbol(graph, symbols[k], at, text);
    }
}
