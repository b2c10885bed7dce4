/* Errors of shapes, worded for users: the node, its tensors with shapes aligned on the right, where each
 * comes from, what bound the symbols, and what would make it legal. */
#include "infer_rules.h"

#define DIM_TEXT 40
#define MAX_SHOWN 8
#define MAX_SHOWN_ELEMENTS 16u

/* Values of expressions at bind; NULL while a session is created. */
typedef struct binding {
    const gt_scalar *values;
    const uint8_t *known;
} binding;

typedef struct shown {
    const gt_value *value;
    const gt_node *reader; /* of which it is input `operand`; NULL: it is not shown as that */
    uint32_t operand;
    char dims[GANTRY_MAX_RANK][DIM_TEXT]; /* from the right */
} shown;

static bool bound_value(const gt_exprs *exprs, gt_expr e, const binding *at, int64_t *out)
{
    if (gt_expr_is_const(exprs, e, out))
        return true;
    if (!at || e == GT_EXPR_UNKNOWN || !at->known[e])
        return false;
    *out = at->values[e].i;
    return true;
}

/* "64", "n=3", "past+1=128", "k1" when it is not bound yet. */
static void dim_text(const gt_exprs *exprs, gt_expr e, const binding *at, gt_allocator *allocator, char *out)
{
    gt_text text;
    int64_t value;
    gt_text_init(&text, allocator);
    gt_expr_print(exprs, e, &text);
    const char *expression = text.data ? text.data : "?";
    bool bound = bound_value(exprs, e, at, &value);
    if (bound && gt_expr_is_const(exprs, e, NULL))
        snprintf(out, DIM_TEXT, "%lld", (long long)value);
    else if (bound)
        snprintf(out, DIM_TEXT, "%.18s=%lld", expression, (long long)value);
    else
        snprintf(out, DIM_TEXT, "%.36s", expression);
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

static void print_expr_element(const gt_exprs *exprs, gt_expr e, const binding *at, gt_text *text)
{
    int64_t value;
    if (e == GT_EXPR_UNKNOWN)
        gt_text_printf(text, "?");
    else if (exprs->nodes.data[e].kind == GT_EXPR_REAL_CONST)
        gt_text_printf(text, "%.9g", exprs->nodes.data[e].constant.r);
    else if (gt_expr_is_real(exprs, e) && at && at->known[e])
        gt_text_printf(text, "%.9g", at->values[e].r);
    else if (!gt_expr_is_real(exprs, e) && bound_value(exprs, e, at, &value))
        gt_text_printf(text, "%lld", (long long)value);
    else
        gt_expr_print(exprs, e, text);
}

/* False when the type is not one that operands of shapes have. */
static bool print_constant_element(gantry_dtype dtype, const void *data, uint32_t k, gt_text *text)
{
    switch (dtype) {
    case GANTRY_INT64:
        gt_text_printf(text, "%lld", (long long)((const int64_t *)data)[k]);
        return true;
    case GANTRY_INT32:
        gt_text_printf(text, "%d", (int)((const int32_t *)data)[k]);
        return true;
    case GANTRY_FLOAT32:
        gt_text_printf(text, "%.9g", (double)((const float *)data)[k]);
        return true;
    case GANTRY_FLOAT64:
        gt_text_printf(text, "%.9g", ((const double *)data)[k]);
        return true;
    default:
        return false;
    }
}

static void print_constant(gt_model *model, const gt_constant *constant, uint32_t index, gt_text *text)
{
    const void *data = NULL;
    uint64_t count = 1;
    for (uint32_t axis = 0; axis < constant->rank; axis++)
        count *= (uint64_t)constant->dims[axis];
    if (count == 0 || count > MAX_SHOWN_ELEMENTS ||
        gt_constant_data(model, index, &data, NULL) != GANTRY_OK || !data)
        return;
    for (uint32_t k = 0; k < count; k++) {
        gt_text_printf(text, k ? "," : " = [");
        if (!print_constant_element(constant->dtype, data, k, text))
            gt_text_printf(text, "?");
    }
    gt_text_printf(text, "]");
}

/* ", steps = [1,0]" */
static void operand_text(const gt_graph *graph, const shown *one, const binding *at, gt_text *text)
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
        print_constant(graph->model, &graph->model->constants.data[value->constant], value->constant, text);
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
    if (node)
        gt_text_printf(text, "from node '%s' (%s)", node->name, node->op_type);
    else if (value->constant != GT_NONE)
        gt_text_printf(text, "a constant");
    else if (value->captured != GT_NONE)
        gt_text_printf(text, "captured from the outer graph");
    else
        gt_text_printf(text, graph->parent ? "an input of the body" : "a graph input");
}

static void show(const gt_graph *graph, uint32_t id, const binding *at, shown *out)
{
    out->value = gt_graph_value(graph, id);
    out->reader = NULL;
    int32_t rank = out->value->rank;
    for (int32_t k = 0; k < rank && k < GANTRY_MAX_RANK; k++)
        dim_text(&graph->model->exprs, out->value->dims[rank - 1 - k], at, graph->model->allocator,
                 out->dims[k]);
}

/* The inputs of a node, at most MAX_SHOWN. */
static uint32_t show_inputs(const gt_graph *graph, const gt_node *node, const binding *at, shown *out)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < node->input_count && count < MAX_SHOWN; k++) {
        if (node->inputs[k] == GT_NONE)
            continue;
        show(graph, node->inputs[k], at, &out[count]);
        out[count].reader = node;
        out[count++].operand = k;
    }
    return count;
}

/* One line for each value, extents in columns counted from the right. */
static void show_all(const gt_graph *graph, const shown *all, uint32_t count, const binding *at,
                     gt_text *text)
{
    int width[GANTRY_MAX_RANK] = {0}, name_width = 0, type_width = 0, most = 0;
    for (uint32_t k = 0; k < count; k++) {
        int rank = all[k].value->rank < GANTRY_MAX_RANK ? all[k].value->rank : GANTRY_MAX_RANK;
        int name = (int)strlen(all[k].value->name),
            type = (int)strlen(gantry_dtype_text(all[k].value->dtype));
        name_width = name > name_width ? name : name_width;
        type_width = type > type_width ? type : type_width;
        most = rank > most ? rank : most;
        for (int d = 0; d < rank; d++)
            width[d] = (int)strlen(all[k].dims[d]) > width[d] ? (int)strlen(all[k].dims[d]) : width[d];
    }
    name_width = name_width > 40 ? 40 : name_width;
    for (uint32_t k = 0; k < count; k++) {
        int rank = all[k].value->rank < GANTRY_MAX_RANK ? all[k].value->rank : GANTRY_MAX_RANK;
        gt_text_printf(text, "\n  %-*s  %-*s ", name_width, all[k].value->name, type_width,
                       gantry_dtype_text(all[k].value->dtype));
        if (rank < 0)
            gt_text_printf(text, "of unknown rank");
        for (int d = most - 1; d >= 0; d--)
            gt_text_printf(text, "%s%*s%s", d < rank ? (d == rank - 1 ? "[" : ",") : " ", width[d],
                           d < rank ? all[k].dims[d] : "", d == 0 && d < rank ? "]" : "");
        if (rank == 0)
            gt_text_printf(text, "[]");
        gt_text_printf(text, "  ");
        origin_text(graph, all[k].value, text);
        operand_text(graph, &all[k], at, text);
    }
}

void gt_infer_describe(const gt_graph *graph, uint32_t value, gt_text *text)
{
    shown one;
    show(graph, value, NULL, &one);
    show_all(graph, &one, 1, NULL, text);
}

static gantry_status report(gantry_error *err, gantry_status code, gantry_stage stage, const gt_node *node,
                            const char *message, gt_text *details)
{
    gt_fail(err, code, stage, node ? node->name : NULL, "node '%s' (%s): %s%s", node ? node->name : "?",
            node ? node->op_type : "?", message, details->data ? details->data : "");
    gt_text_free(details);
    return code;
}

void gt_infer_fail_fill(const gt_infer *infer, gantry_status code, const char *format, ...)
{
    char message[768];
    shown all[MAX_SHOWN];
    gt_text details;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    gt_text_init(&details, infer->model->allocator);
    show_all(infer->graph, all, show_inputs(infer->graph, infer->node, NULL, all), NULL, &details);
    report(infer->err, code, GANTRY_STAGE_LOAD, infer->node, message, &details);
}

/* ---- hints: what would make two shapes fit */

static bool fits(const gt_exprs *exprs, gt_expr a, gt_expr b, const binding *at)
{
    int64_t x, y;
    if (a == b || !bound_value(exprs, a, at, &x) || !bound_value(exprs, b, at, &y))
        return true;
    return x == y || x == 1 || y == 1;
}

/* Whether b's extents, those of axes `from`.. shifted by `shift` to the left, broadcast with a. */
static bool fits_shifted(const gt_exprs *exprs, const gt_value *a, const gt_value *b, int32_t shift,
                         const binding *at)
{
    for (int32_t k = 0; k < b->rank; k++) {
        int32_t axis = a->rank - 1 - shift - k;
        if (axis < 0 || !fits(exprs, a->dims[axis], b->dims[b->rank - 1 - k], at))
            return false;
    }
    return true;
}

static bool fits_transposed(const gt_exprs *exprs, const gt_value *a, const gt_value *b, const binding *at)
{
    if (a->rank != b->rank || b->rank < 2)
        return false;
    for (int32_t k = 0; k < b->rank; k++) {
        int32_t from = k < 2 ? b->rank - 2 + k : b->rank - 1 - k;
        if (!fits(exprs, a->dims[a->rank - 1 - k], b->dims[from], at))
            return false;
    }
    return true;
}

static void hint(const gt_graph *graph, const gt_value *a, const gt_value *b, const binding *at,
                 gt_text *text)
{
    const gt_exprs *exprs = &graph->model->exprs;
    if (a->rank < b->rank) {
        const gt_value *t = a;
        a = b;
        b = t;
    }
    for (int32_t shift = 1; shift <= a->rank - b->rank; shift++)
        if (fits_shifted(exprs, a, b, shift, at)) {
            gt_text_printf(text,
                           "\n  hint: '%s' would fit with %d axes of extent 1 added on the right (Unsqueeze)",
                           b->name, shift);
            return;
        }
    if (fits_transposed(exprs, a, b, at))
        gt_text_printf(text, "\n  hint: '%s' would fit with its last two axes exchanged (Transpose)",
                       b->name);
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
        if (*count < MAX_SHOWN)
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

static void show_symbols(const gt_graph *graph, const gt_value *const *shapes, uint32_t count,
                         const binding *at, gt_text *text)
{
    const gt_exprs *exprs = &graph->model->exprs;
    uint32_t symbols[MAX_SHOWN], found = 0;
    for (uint32_t k = 0; k < count; k++)
        for (int32_t axis = 0; shapes[k] && axis < shapes[k]->rank; axis++)
            collect_symbols(exprs, shapes[k]->dims[axis], symbols, &found, 0);
    for (uint32_t k = 0; k < found; k++) {
        const gt_symbol *symbol = &exprs->symbols.data[symbols[k]];
        gt_text_printf(text, "%s%s", k ? "; " : "\n  symbols: ", symbol->name);
        for (gt_expr e = 0; at && e < exprs->nodes.count; e++)
            if (exprs->nodes.data[e].kind == GT_EXPR_SYMBOL && exprs->nodes.data[e].a == symbols[k] &&
                at->known[e])
                gt_text_printf(text, symbol->real ? "=%g" : "=%.0f",
                               symbol->real ? at->values[e].r : (double)at->values[e].i);
        gt_text_printf(text, " is ");
        symbol_text(graph->model->root, symbols[k], text);
    }
}

/* ---- two tensors that don't fit */

static void extent_text(const gt_graph *graph, const gt_value *value, uint32_t axis, const binding *at,
                        char *out)
{
    int64_t extent;
    gt_expr e =
        axis && axis <= (uint32_t)value->rank ? value->dims[value->rank - (int32_t)axis] : GT_EXPR_UNKNOWN;
    if (bound_value(&graph->model->exprs, e, at, &extent))
        snprintf(out, DIM_TEXT, "%lld", (long long)extent);
    else
        dim_text(&graph->model->exprs, e, at, graph->model->allocator, out);
}

static gantry_status explain_pair(const gt_graph *graph, const gt_shape_check *check, const binding *at,
                                  gantry_status code, gantry_stage stage, gantry_error *err)
{
    const gt_node *node = gt_graph_node(graph, check->node);
    const gt_value *a = gt_graph_value(graph, check->a), *b = gt_graph_value(graph, check->b);
    const gt_value *both[2] = {a, b};
    bool broadcast = graph->model->exprs.nodes.data[check->expr].kind == GT_EXPR_BROADCAST;
    char message[512], x[DIM_TEXT] = "", y[DIM_TEXT] = "";
    shown shapes[2];
    gt_text details;
    gt_text_init(&details, graph->model->allocator);
    show(graph, check->a, at, &shapes[0]);
    if (b)
        show(graph, check->b, at, &shapes[1]);
    extent_text(graph, a, check->axis_a, at, x);
    if (b)
        extent_text(graph, b, check->axis_b, at, y);
    if (!check->axis_a)
        snprintf(message, sizeof message, "the elements of '%.80s' do not fit into the shape asked for",
                 a->name);
    else if (!b)
        snprintf(message, sizeof message,
                 "'%.80s' has extent %s on axis -%u, which does not fit the operator", a->name, x,
                 check->axis_a);
    else if (broadcast)
        snprintf(
            message, sizeof message,
            "'%.80s' and '%.80s' can't be broadcast: on axis -%u (from the right) one has %s, the other %s",
            a->name, b->name, check->axis_a, x, y);
    else
        snprintf(message, sizeof message,
                 "axis -%u of '%.80s' is %s, but axis -%u of '%.80s' is %s; they must be equal",
                 check->axis_a, a->name, x, check->axis_b, b->name, y);
    show_all(graph, shapes, b ? 2 : 1, at, &details);
    show_symbols(graph, both, b ? 2 : 1, at, &details);
    if (b && broadcast)
        hint(graph, a, b, at, &details);
    return report(err, code, stage, node, message, &details);
}

gantry_status gt_infer_fail_pair(const gt_infer *infer, const gt_shape_check *check)
{
    return explain_pair(infer->graph, check, NULL, GANTRY_MODEL_SHAPE, GANTRY_STAGE_LOAD, infer->err);
}

/* ---- at bind */

/* Checks nest: one whose operand failed is not the culprit. */
static bool check_is_broken(const gt_exprs *exprs, const gt_shape_check *check, const uint8_t *known)
{
    const gt_expr_node *node = &exprs->nodes.data[check->expr];
    return known[node->a] && known[node->b] && !known[check->expr];
}

uint32_t gt_infer_first_failure(const gt_graph *graph, const uint8_t *known)
{
    for (uint32_t c = 0; c < graph->check_count; c++)
        if (check_is_broken(&graph->model->exprs, &graph->checks[c], known))
            return c;
    return GT_NONE;
}

/* All inputs of the node, with what bound their symbols. */
static gantry_status report_inputs(const gt_graph *graph, const gt_node *node, const char *message,
                                   const binding *at, gantry_error *err)
{
    const gt_value *involved[MAX_SHOWN];
    shown shapes[MAX_SHOWN];
    gt_text details;
    gt_text_init(&details, graph->model->allocator);
    uint32_t count = show_inputs(graph, node, at, shapes);
    for (uint32_t k = 0; k < count; k++)
        involved[k] = shapes[k].value;
    show_all(graph, shapes, count, at, &details);
    show_symbols(graph, involved, count, at, &details);
    return report(err, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN, node, message, &details);
}

/* "a*b overflows 64 bits": why an expression has no value though its operands do. */
static void reason_text(const gt_exprs *exprs, gt_expr failed, const binding *at, gt_allocator *allocator,
                        char *out, size_t room)
{
    const gt_expr_node *node = &exprs->nodes.data[failed];
    bool whole = node->kind == GT_EXPR_TO_INT;
    gt_text text;
    gt_text_init(&text, allocator);
    gt_expr_print(exprs, whole ? node->a : failed, &text);
    const char *expression = text.data ? text.data : "it";
    if (whole)
        snprintf(out, room, "%.160s is %.9g", expression, at->values[node->a].r);
    else if (node->kind == GT_EXPR_ADD || node->kind == GT_EXPR_SUB || node->kind == GT_EXPR_MUL)
        snprintf(out, room, "%.160s overflows 64 bits", expression);
    else if (node->kind >= GT_EXPR_FLOORDIV && node->kind <= GT_EXPR_MOD)
        snprintf(out, room, "%.160s divides by 0", expression);
    else
        snprintf(out, room, "%.160s has no value", expression);
    gt_text_free(&text);
}

gantry_status gt_infer_explain_check(const gt_graph *graph, uint32_t index, gt_expr failed,
                                     const gt_scalar *values, const uint8_t *known, gantry_error *err)
{
    const binding at = {values, known};
    const gt_shape_check *check = &graph->checks[index];
    const gt_node *node = gt_graph_node(graph, check->node);
    char reason[256];
    if (failed != check->expr) {
        reason_text(&graph->model->exprs, failed, &at, graph->model->allocator, reason, sizeof reason);
        return report_inputs(graph, node, reason, &at, err);
    }
    if (check->rule)
        return report_inputs(graph, node, check->rule, &at, err);
    return explain_pair(graph, check, &at, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN, err);
}

gantry_status gt_infer_explain_extent(const gt_graph *graph, uint32_t value, int32_t axis, gt_expr failed,
                                      const gt_scalar *values, const uint8_t *known, gantry_error *err)
{
    const binding at = {values, known};
    const gt_value *of = gt_graph_value(graph, value);
    const gt_node *node = gt_graph_node(graph, of->producer);
    char message[512], reason[256];
    for (uint32_t c = 0; c < graph->check_count; c++)
        if (graph->checks[c].expr == failed)
            return gt_infer_explain_check(graph, c, failed, values, known, err);
    if (failed == GT_EXPR_UNKNOWN)
        snprintf(message, sizeof message, "axis %d of '%.80s' would have the extent %lld for these inputs",
                 axis, of->name, (long long)values[of->dims[axis]].i);
    else {
        reason_text(&graph->model->exprs, failed, &at, graph->model->allocator, reason, sizeof reason);
        snprintf(message, sizeof message, "axis %d of '%.80s' has no extent for these inputs: %s", axis,
                 of->name, reason);
    }
    if (!node)
        return gt_fail(err, GANTRY_INPUT_SHAPE, GANTRY_STAGE_RUN, NULL, "%s", message);
    return report_inputs(graph, node, message, &at, err);
}
