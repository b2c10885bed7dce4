/* Sizes for estimates: extents with every symbol at its typical value. */
#include "place_parts.h"

/* What an extent that nobody can name is taken for; the same as an input extent without a range. */
#define ASSUMED_EXTENT 128

/* Every expression of a model with its symbols at their typical values. */
typedef struct typical_values {
    gt_scalar *values;
    uint8_t *known;
} typical_values;

static bool typical_evaluate(const gt_exprs *exprs, uint32_t count, gt_arena *arena,
                             typical_values *out_typical)
{
    uint32_t symbol_count = exprs->symbols.count;
    gt_scalar *symbols = GT_ARENA_ARRAY(arena, gt_scalar, symbol_count + 1);
    uint8_t *known = (uint8_t *)gt_arena_alloc(arena, symbol_count + 1);
    out_typical->values = GT_ARENA_ARRAY(arena, gt_scalar, count + 1);
    out_typical->known = (uint8_t *)gt_arena_alloc(arena, count + 1);
    if (!symbols || !known || !out_typical->values || !out_typical->known)
        return false;
    for (uint32_t k = 0; k < symbol_count; k++) {
        const gt_symbol *symbol = &exprs->symbols.data[k];
        known[k] = 1;
        if (symbol->real)
            symbols[k].r = (double)symbol->range_typical;
        else
            symbols[k].i = symbol->range_typical;
    }
    gt_expr failed;
    gt_exprs_evaluate(exprs, 0, count, symbols, known, out_typical->values, out_typical->known, &failed);
    return true;
}

static int64_t typical_extent(const typical_values *typical, gt_expr dim)
{
    if (dim == GT_EXPR_UNKNOWN || !typical->known[dim])
        return ASSUMED_EXTENT;
    return typical->values[dim].i > 0 ? typical->values[dim].i : 0;
}

static int64_t saturating_product(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static int64_t typical_count(const typical_values *typical, const gt_value *value, int64_t *out_dims)
{
    if (value->rank < 0)
        return ASSUMED_EXTENT;
    int64_t count = 1;
    for (int32_t k = 0; k < value->rank; k++) {
        int64_t extent = typical_extent(typical, value->dims[k]);
        if (out_dims)
            out_dims[k] = extent;
        count = saturating_product(count, extent);
    }
    return count;
}

/* An extent that is a number, a symbol or unknown: nothing has to be evaluated. */
static bool plain_extent(const gt_exprs *exprs, gt_expr dim, int64_t *out_extent)
{
    *out_extent = ASSUMED_EXTENT;
    if (dim == GT_EXPR_UNKNOWN || gt_expr_is_const(exprs, dim, out_extent))
        return true;
    const gt_expr_node *node = &exprs->nodes.data[dim];
    if (node->kind != GT_EXPR_SYMBOL || node->real)
        return false;
    int64_t typical = exprs->symbols.data[node->a].range_typical;
    *out_extent = typical > 0 ? typical : 0;
    return true;
}

static bool plain_shape(const gt_exprs *exprs, const gt_value *value, int64_t *out_dims, int64_t *out_count)
{
    *out_count = 1;
    for (int32_t k = 0; k < value->rank; k++) {
        if (!plain_extent(exprs, value->dims[k], &out_dims[k]))
            return false;
        *out_count = saturating_product(*out_count, out_dims[k]);
    }
    return true;
}

int64_t gt_typical_shape(const gt_graph *graph, uint32_t value_id, int64_t *out_dims)
{
    const gt_exprs *exprs = &graph->model->exprs;
    const gt_value *value = gt_graph_value(graph, value_id);
    int64_t count;
    if (value->rank < 0 || value->rank > GANTRY_MAX_RANK)
        return ASSUMED_EXTENT;
    if (plain_shape(exprs, value, out_dims, &count))
        return count;
    /* Operands have lower indexes than results: nothing above the last extent is needed. */
    uint32_t needed = 0;
    for (int32_t k = 0; k < value->rank; k++)
        if (value->dims[k] != GT_EXPR_UNKNOWN && value->dims[k] >= needed)
            needed = value->dims[k] + 1;
    gt_arena arena;
    gt_arena_init(&arena, graph->model->allocator);
    typical_values all;
    if (typical_evaluate(exprs, needed, &arena, &all)) {
        count = typical_count(&all, value, out_dims);
    } else {
        /* An estimate is no reason to fail: without memory every extent is assumed. */
        count = 1;
        for (int32_t k = 0; k < value->rank; k++)
            count = saturating_product(count, out_dims[k] = ASSUMED_EXTENT);
    }
    gt_arena_clear(&arena);
    return count;
}

gantry_status gt_typical_bytes(const gt_graph *graph, gt_arena *arena, double **out_bytes, gantry_error *err)
{
    gt_arena work;
    gt_arena_init(&work, graph->model->allocator);
    typical_values all;
    *out_bytes = GT_ARENA_ARRAY(arena, double, graph->values.count + 1);
    bool fits =
        *out_bytes && typical_evaluate(&graph->model->exprs, graph->model->exprs.nodes.count, &work, &all);
    for (uint32_t k = 0; fits && k < graph->values.count; k++) {
        const gt_value *value = graph->values.data[k];
        double bits = (double)typical_count(&all, value, NULL) * gantry_dtype_bits(value->dtype);
        (*out_bytes)[k] = ceil(bits / 8);
    }
    gt_arena_clear(&work);
    return fits ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_PLACE);
}
