/* The expression table: hash-consed nodes and symbols, and what is known of each without binding anything. */
#include "expr_internal.h"

#include <math.h>

/* What makes two nodes equal; every byte is set, so that it can be hashed. */
typedef struct node_key {
    uint32_t kind;
    gt_expr a, b, c;
    uint64_t constant;
} node_key;

typedef struct symbol_key {
    const void *graph;
    uint32_t kind, axis, segment, input;
    char name[];
} symbol_key;

void gt_exprs_init(gt_exprs *exprs, gt_allocator *allocator)
{
    *exprs = (gt_exprs){.allocator = allocator};
    gt_map_init(&exprs->index, allocator);
    gt_map_init(&exprs->reusables, allocator);
    gt_arena_init(&exprs->keys, allocator);
}

void gt_exprs_free(gt_exprs *exprs)
{
    if (!exprs->allocator)
        return;
    gt_vec_free(exprs->allocator, &exprs->nodes);
    gt_vec_free(exprs->allocator, &exprs->facts);
    gt_vec_free(exprs->allocator, &exprs->symbols);
    gt_map_free(&exprs->index);
    gt_map_free(&exprs->reusables);
    gt_arena_clear(&exprs->keys);
}

unsigned gt_expr_arity(gt_expr_kind kind)
{
    static const uint8_t arity[GT_EXPR_KIND_COUNT] = {
        [GT_EXPR_ADD] = 2,       [GT_EXPR_SUB] = 2,       [GT_EXPR_MUL] = 2,
        [GT_EXPR_MIN] = 2,       [GT_EXPR_MAX] = 2,       [GT_EXPR_FLOORDIV] = 2,
        [GT_EXPR_CEILDIV] = 2,   [GT_EXPR_TRUNCDIV] = 2,  [GT_EXPR_MOD] = 2,
        [GT_EXPR_SAME] = 2,      [GT_EXPR_BROADCAST] = 2, [GT_EXPR_EQ] = 2,
        [GT_EXPR_LT] = 2,        [GT_EXPR_AND] = 2,       [GT_EXPR_OR] = 2,
        [GT_EXPR_NOT] = 1,       [GT_EXPR_SELECT] = 3,    [GT_EXPR_TO_REAL] = 1,
        [GT_EXPR_TO_INT] = 1,    [GT_EXPR_REAL_DIV] = 2,  [GT_EXPR_REAL_FLOOR] = 1,
        [GT_EXPR_REAL_CEIL] = 1, [GT_EXPR_REAL_SQRT] = 1, [GT_EXPR_REAL_ROUND32] = 1,
    };
    return arity[kind];
}

static bool kind_is_real(const gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b)
{
    switch (kind) {
    case GT_EXPR_SYMBOL:
        return exprs->symbols.data[a].real;
    case GT_EXPR_ADD:
    case GT_EXPR_SUB:
    case GT_EXPR_MUL:
    case GT_EXPR_MIN:
    case GT_EXPR_MAX:
        return exprs->nodes.data[a].real;
    case GT_EXPR_SELECT:
        return exprs->nodes.data[b].real;
    case GT_EXPR_REAL_CONST:
    case GT_EXPR_TO_REAL:
    case GT_EXPR_REAL_DIV:
    case GT_EXPR_REAL_FLOOR:
    case GT_EXPR_REAL_CEIL:
    case GT_EXPR_REAL_SQRT:
    case GT_EXPR_REAL_ROUND32:
        return true;
    default:
        return false;
    }
}

static gt_expr_facts node_facts(const gt_exprs *exprs, const gt_expr_node *node)
{
    gt_expr_facts facts = {INT64_MIN, INT64_MAX, 0, 0};
    const gt_expr operands[3] = {node->a, node->b, node->c};
    unsigned arity = gt_expr_arity(node->kind);
    for (unsigned k = 0; k < 3 && k < arity; k++) {
        const gt_expr_facts *of = &exprs->facts.data[operands[k]];
        facts.segment = of->segment > facts.segment ? of->segment : facts.segment;
        facts.depth = of->depth > facts.depth ? of->depth : facts.depth;
    }
    if (node->kind == GT_EXPR_CONST)
        facts.low = facts.high = node->constant.i;
    else if (arity && !node->real)
        gt_expr_range(exprs, node->kind, node->a, node->b, node->c, &facts.low, &facts.high);
    return facts;
}

/* Adds a node that is not in the table; key is copied. */
static gt_expr node_add(gt_exprs *exprs, const node_key *key, gt_expr_node node, gt_expr_facts facts)
{
    void *kept = gt_arena_copy(&exprs->keys, key, sizeof *key);
    if (!kept || exprs->nodes.count >= GT_EXPR_UNKNOWN - 1 ||
        !gt_vec_reserve(exprs->allocator, &exprs->nodes, exprs->nodes.count + 1) ||
        !gt_vec_reserve(exprs->allocator, &exprs->facts, exprs->facts.count + 1) ||
        !gt_map_set(&exprs->index, kept, sizeof *key, exprs->nodes.count)) {
        exprs->failed = true;
        return GT_EXPR_UNKNOWN;
    }
    exprs->nodes.data[exprs->nodes.count++] = node;
    exprs->facts.data[exprs->facts.count++] = facts;
    return exprs->nodes.count - 1;
}

static gt_expr intern(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c, gt_scalar constant)
{
    node_key key = {.kind = kind, .a = a, .b = b, .c = c};
    memcpy(&key.constant, &constant, sizeof key.constant);
    gt_expr found = gt_map_get(&exprs->index, &key, sizeof key, GT_EXPR_UNKNOWN);
    if (found != GT_EXPR_UNKNOWN)
        return found;
    gt_expr_node node = {.kind = (uint8_t)kind, .a = a, .b = b, .c = c, .constant = constant};
    node.real = kind_is_real(exprs, kind, a, b);
    return node_add(exprs, &key, node, node_facts(exprs, &node));
}

gt_expr gt_expr_intern(gt_exprs *exprs, gt_expr_kind kind, gt_expr a, gt_expr b, gt_expr c)
{
    return intern(exprs, kind, a, b, c, (gt_scalar){.i = 0});
}

gt_expr gt_expr_const(gt_exprs *exprs, int64_t value)
{
    return intern(exprs, GT_EXPR_CONST, 0, 0, 0, (gt_scalar){.i = value});
}

gt_expr gt_expr_real(gt_exprs *exprs, double value)
{
    return intern(exprs, GT_EXPR_REAL_CONST, 0, 0, 0, (gt_scalar){.r = value});
}

gt_expr gt_expr_symbol(gt_exprs *exprs, const gt_symbol *symbol)
{
    gt_symbol kept = *symbol;
    kept.name = gt_arena_text(&exprs->keys, symbol->name, strlen(symbol->name));
    if (!kept.name || !gt_vec_push(exprs->allocator, &exprs->symbols, kept)) {
        exprs->failed = true;
        return GT_EXPR_UNKNOWN;
    }
    uint32_t index = exprs->symbols.count - 1;
    bool is_dim = symbol->kind == GT_SYMBOL_INPUT_DIM || symbol->kind == GT_SYMBOL_DATA_DIM;
    node_key key = {.kind = GT_EXPR_SYMBOL, .a = index};
    gt_expr_node node = {.kind = GT_EXPR_SYMBOL, .real = symbol->real, .a = index};
    gt_expr_facts facts = {is_dim ? 0 : INT64_MIN, INT64_MAX, symbol->segment, symbol->depth};
    if (symbol->kind == GT_SYMBOL_DATA_DIM)
        facts.high = gt_expr_known_facts(exprs, symbol->bound).high;
    return node_add(exprs, &key, node, facts);
}

gt_expr gt_expr_symbol_again(gt_exprs *exprs, const gt_symbol *symbol)
{
    size_t length = strlen(symbol->name), bytes = sizeof(symbol_key) + length;
    symbol_key *key = gt_arena_alloc(&exprs->keys, bytes);
    if (!key) {
        exprs->failed = true;
        return GT_EXPR_UNKNOWN;
    }
    *key = (symbol_key){symbol->graph, symbol->kind, symbol->axis, symbol->segment, symbol->input};
    memcpy(key->name, symbol->name, length);
    gt_expr found = gt_map_get(&exprs->reusables, key, bytes, GT_EXPR_UNKNOWN);
    if (found != GT_EXPR_UNKNOWN) {
        gt_symbol *kept = &exprs->symbols.data[exprs->nodes.data[found].a];
        kept->value = symbol->value;
        return found;
    }
    gt_expr made = gt_expr_symbol(exprs, symbol);
    if (made != GT_EXPR_UNKNOWN && !gt_map_set(&exprs->reusables, key, bytes, made))
        exprs->failed = true;
    return made;
}

const gt_symbol *gt_expr_as_symbol(const gt_exprs *exprs, gt_expr e)
{
    if (e == GT_EXPR_UNKNOWN || exprs->nodes.data[e].kind != GT_EXPR_SYMBOL)
        return NULL;
    return &exprs->symbols.data[exprs->nodes.data[e].a];
}

bool gt_expr_is_const(const gt_exprs *exprs, gt_expr e, int64_t *out_value)
{
    if (e == GT_EXPR_UNKNOWN || exprs->nodes.data[e].kind != GT_EXPR_CONST)
        return false;
    if (out_value)
        *out_value = exprs->nodes.data[e].constant.i;
    return true;
}

bool gt_expr_is_real(const gt_exprs *exprs, gt_expr e)
{
    return e != GT_EXPR_UNKNOWN && exprs->nodes.data[e].real;
}

gt_expr_facts gt_expr_known_facts(const gt_exprs *exprs, gt_expr e)
{
    return e == GT_EXPR_UNKNOWN ? (gt_expr_facts){INT64_MIN, INT64_MAX, 0, 0} : exprs->facts.data[e];
}

bool gt_expr_is_nonnegative(const gt_exprs *exprs, gt_expr e)
{
    return e != GT_EXPR_UNKNOWN && !exprs->nodes.data[e].real && exprs->facts.data[e].low >= 0;
}

uint32_t gt_expr_segment(const gt_exprs *exprs, gt_expr e)
{
    return e == GT_EXPR_UNKNOWN ? 0 : exprs->facts.data[e].segment;
}
