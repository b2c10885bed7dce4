/* Expressions as people write them: "2*batch+1", "(h-1)/2+1". */
#include "expr_internal.h"

/* An expression is a DAG: written out it can be exponentially long. */
#define PRINT_LIMIT 200u

enum { LOOSEST, CHOICE, COMPARE, SUM, PRODUCT, ATOM };

typedef struct printer {
    const gt_exprs *exprs;
    gt_text *text;
    size_t limit;
} printer;

static void print(printer *p, gt_expr e, int around);

static void print_infix(printer *p, const gt_expr_node *node, const char *sign, int strength, int around)
{
    bool brackets = strength < around;
    int64_t factor;
    if (node->kind == GT_EXPR_MUL && gt_expr_is_const(p->exprs, node->a, &factor) && factor == -1) {
        gt_text_printf(p->text, "%s-", around > SUM ? "(" : "");
        print(p, node->b, PRODUCT);
        gt_text_printf(p->text, "%s", around > SUM ? ")" : "");
        return;
    }
    gt_text_printf(p->text, "%s", brackets ? "(" : "");
    print(p, node->a, strength);
    gt_text_printf(p->text, "%s", sign);
    /* a-(b+c), a/(b*c), a*(b/c): the right side binds tighter unless it is of the same kind. */
    bool joins = (node->kind == GT_EXPR_ADD || node->kind == GT_EXPR_MUL) &&
                 p->exprs->nodes.data[node->b].kind == node->kind;
    print(p, node->b, strength + !joins);
    gt_text_printf(p->text, "%s", brackets ? ")" : "");
}

static void print_call(printer *p, const gt_expr_node *node, const char *name)
{
    gt_text_printf(p->text, "%s(", name);
    print(p, node->a, LOOSEST);
    if (gt_expr_arity(node->kind) > 1) {
        gt_text_printf(p->text, ",");
        print(p, node->b, LOOSEST);
    }
    gt_text_printf(p->text, ")");
}

static void print_quotient(printer *p, const gt_expr_node *node, const char *name)
{
    gt_text_printf(p->text, "%s(", name);
    print(p, node->a, PRODUCT);
    gt_text_printf(p->text, "/");
    print(p, node->b, ATOM);
    gt_text_printf(p->text, ")");
}

static void print_select(printer *p, const gt_expr_node *node, int around)
{
    gt_text_printf(p->text, "%s", around > CHOICE ? "(" : "");
    print(p, node->a, COMPARE);
    gt_text_printf(p->text, "?");
    print(p, node->b, COMPARE);
    gt_text_printf(p->text, ":");
    print(p, node->c, CHOICE);
    gt_text_printf(p->text, "%s", around > CHOICE ? ")" : "");
}

/* The one name of all symbols that e is broadcast from, or NULL: broadcast(batch, batch) is "batch". */
static const char *common_name(const gt_exprs *exprs, gt_expr e, unsigned depth)
{
    const gt_expr_node *node = &exprs->nodes.data[e];
    if (node->kind == GT_EXPR_SYMBOL)
        return exprs->symbols.data[node->a].name;
    if (node->kind != GT_EXPR_BROADCAST || depth > 8)
        return NULL;
    const char *left = common_name(exprs, node->a, depth + 1),
               *right = common_name(exprs, node->b, depth + 1);
    return left && right && strcmp(left, right) == 0 ? left : NULL;
}

/* The constant that e can only be when it has a value: broadcast(n, 64) is 64. */
static bool broadcast_constant(const gt_exprs *exprs, gt_expr e, unsigned depth, int64_t *out)
{
    const gt_expr_node *node = &exprs->nodes.data[e];
    if (gt_expr_is_const(exprs, e, out))
        return *out != 1;
    return node->kind == GT_EXPR_BROADCAST && depth < 8 &&
           (broadcast_constant(exprs, node->a, depth + 1, out) ||
            broadcast_constant(exprs, node->b, depth + 1, out));
}

static void print_broadcast(printer *p, gt_expr e, const gt_expr_node *node, int around)
{
    int64_t value;
    const char *name = common_name(p->exprs, e, 0);
    if (broadcast_constant(p->exprs, e, 0, &value))
        gt_text_printf(p->text, "%lld", (long long)value);
    else if (name)
        gt_text_printf(p->text, "%s", name);
    else
        print_call(p, node, "broadcast");
}

static void print(printer *p, gt_expr e, int around)
{
    if (e == GT_EXPR_UNKNOWN) {
        gt_text_printf(p->text, "?");
        return;
    }
    if (p->text->length > p->limit || p->text->failed) {
        gt_text_printf(p->text, "..");
        return;
    }
    const gt_expr_node *node = &p->exprs->nodes.data[e];
    static const char *const calls[GT_EXPR_KIND_COUNT] = {
        [GT_EXPR_MIN] = "min",          [GT_EXPR_MAX] = "max",        [GT_EXPR_TO_INT] = "int",
        [GT_EXPR_REAL_FLOOR] = "floor", [GT_EXPR_REAL_CEIL] = "ceil", [GT_EXPR_REAL_SQRT] = "sqrt",
        [GT_EXPR_REAL_ROUND32] = "f32", [GT_EXPR_SAME] = "same",      [GT_EXPR_TO_REAL] = "real",
    };
    static const struct {
        const char *sign;
        int strength;
    } signs[GT_EXPR_KIND_COUNT] = {
        [GT_EXPR_ADD] = {"+", SUM},     [GT_EXPR_SUB] = {"-", SUM},
        [GT_EXPR_MUL] = {"*", PRODUCT}, [GT_EXPR_FLOORDIV] = {"/", PRODUCT},
        [GT_EXPR_MOD] = {"%", PRODUCT}, [GT_EXPR_REAL_DIV] = {"/", PRODUCT},
        [GT_EXPR_EQ] = {"==", COMPARE}, [GT_EXPR_LT] = {"<", COMPARE},
        [GT_EXPR_AND] = {"&", CHOICE},  [GT_EXPR_OR] = {"|", CHOICE},
    };
    if (signs[node->kind].sign) {
        print_infix(p, node, signs[node->kind].sign, signs[node->kind].strength, around);
        return;
    }
    if (calls[node->kind]) {
        print_call(p, node, calls[node->kind]);
        return;
    }
    switch ((gt_expr_kind)node->kind) {
    case GT_EXPR_CONST:
        gt_text_printf(p->text, "%lld", (long long)node->constant.i);
        break;
    case GT_EXPR_REAL_CONST:
        gt_text_printf(p->text, "%.9g", node->constant.r);
        break;
    case GT_EXPR_SYMBOL:
        gt_text_printf(p->text, "%s", p->exprs->symbols.data[node->a].name);
        break;
    case GT_EXPR_CEILDIV:
        print_quotient(p, node, "ceil");
        break;
    case GT_EXPR_TRUNCDIV:
        print_quotient(p, node, "trunc");
        break;
    case GT_EXPR_NOT:
        gt_text_printf(p->text, "!");
        print(p, node->a, ATOM);
        break;
    case GT_EXPR_SELECT:
        print_select(p, node, around);
        break;
    default:
        print_broadcast(p, e, node, around);
        break;
    }
}

void gt_expr_print(const gt_exprs *exprs, gt_expr e, gt_text *text)
{
    printer p = {exprs, text, text->length + PRINT_LIMIT};
    print(&p, e, LOOSEST);
}
