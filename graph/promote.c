/* Promotion: nodes of float16 or bfloat16 that no provider computes in their own type run in float32, and so
 * do their neighbours on the host. Values between two of them stay float32, so there is one Cast for each
 * value that enters or leaves a group, however long its chains are; constants are widened when they are
 * mapped, never in a run.
 *
 *     x -> [Gemm -> Relu -> Mul] -> y      x -> Cast -> [Gemm -> Relu -> Mul] -> Cast -> y
 *     float16 throughout                        float32 in the brackets
 */
#include "place.h"

#include "graph_internal.h"

#include "base/text.h"

#define PASS "promote"
#define MAX_NAMED 8u

typedef struct promotion {
    gt_graph *graph;
    gt_arena scratch;
    uint8_t *chosen; /* by node id */
    uint32_t *wide;  /* by value id of the graph as it was: its float32 twin, or GT_NONE */
    uint32_t value_count, node_count;
    uint32_t promoted_count, cast_count;
    uint64_t constant_bytes;
    gantry_dtype dtype; /* of the first promoted node */
    const char *first, *refused_by;
} promotion;

static bool is_narrow(const gt_value *value)
{
    return value && value->kind == GANTRY_KIND_TENSOR &&
           (value->dtype == GANTRY_FLOAT16 || value->dtype == GANTRY_BFLOAT16);
}

/* ---- which nodes ----------------------------------------------------------------------------- */

/* The first input of a type that promotion widens, or NULL. */
static const gt_value *narrow_input(const gt_graph *graph, const gt_node *node)
{
    for (uint32_t k = 0; k < node->input_count; k++) {
        const gt_value *value = gt_graph_value(graph, node->inputs[k]);
        if (is_narrow(value))
            return value;
    }
    return NULL;
}

/* The provider whose only objection is an element type that promotion takes away, or GT_NONE. */
static uint32_t refused_for_type(const gt_unit *unit, uint32_t provider_count)
{
    for (uint32_t p = 0; p < provider_count; p++) {
        const gantry_refusal *refusal = unit->verdicts[p].refusal;
        if (unit->verdicts[p].asked && refusal && refusal->code == GANTRY_REFUSE_dtype &&
            (strcmp(refusal->actual, "float16") == 0 || strcmp(refusal->actual, "bfloat16") == 0))
            return p;
    }
    return GT_NONE;
}

static bool can_promote(const gt_graph *graph, const gt_unit *unit)
{
    const gt_node *node = graph->nodes.data[unit->nodes[0]];
    return unit->node_count == 1 && !node->body_count && !node->composite &&
           strcmp(node->op_type, "Cast") != 0 && narrow_input(graph, node) != NULL;
}

static void choose_refused(promotion *p, const gt_placement *placement, const gt_place_provider *providers,
                           uint32_t provider_count)
{
    for (uint32_t k = 0; k < placement->unit_count; k++) {
        const gt_unit *unit = &placement->units[k];
        bool nobody = unit->provider == GT_NONE && can_promote(p->graph, unit);
        uint32_t provider = nobody ? refused_for_type(unit, provider_count) : GT_NONE;
        if (provider == GT_NONE)
            continue;
        const gt_node *node = p->graph->nodes.data[unit->nodes[0]];
        p->chosen[unit->nodes[0]] = 1;
        if (p->promoted_count++ == 0) {
            p->first = node->name;
            p->dtype = narrow_input(p->graph, node)->dtype;
            p->refused_by = providers[provider].name;
        }
    }
}

/* Their neighbours on the host: it converts what it computes in these types anyway, and between two promoted
 * nodes there is no Cast. */
static void choose_neighbours(promotion *p, const gt_placement *placement, const gt_place_provider *providers)
{
    for (uint32_t k = 0; k < placement->unit_count; k++) {
        const gt_unit *unit = &placement->units[k];
        bool on_host = unit->provider != GT_NONE && providers[unit->provider].domain == 0;
        if (!on_host || !can_promote(p->graph, unit))
            continue;
        p->chosen[unit->nodes[0]] = 1;
        p->promoted_count++;
    }
}

/* ---- edges ----------------------------------------------------------------------------------- */

static gantry_status add_value_like(promotion *p, uint32_t like, const char *suffix, uint32_t *out_value,
                                    gantry_error *err)
{
    char name[256];
    int length = snprintf(name, sizeof name, "%s:%s", p->graph->values.data[like]->name, suffix);
    bool usable = length < (int)sizeof name && gt_graph_find_value(p->graph, name) == GT_NONE;
    return gt_graph_add_value(p->graph, usable ? name : NULL, out_value, err);
}

/* A Cast from one value to the other beside node `of`. It stands for no node of the file. */
static gantry_status add_cast(promotion *p, uint32_t from, uint32_t to, gantry_dtype dtype, uint32_t of,
                              gantry_error *err)
{
    gt_graph *graph = p->graph;
    const gt_node *served = graph->nodes.data[of];
    char name[512];
    uint32_t id;
    snprintf(name, sizeof name, "%.400s:%s", graph->values.data[from]->name, gantry_dtype_text(dtype));
    GT_TRY(gt_graph_add_node(graph, name, "", "Cast", served->domain[0] ? 13 : served->opset, 1, &from, 1,
                             &to, &id, err));
    GT_TRY(gt_node_set_int(graph, id, "to", (int64_t)dtype, err)); /* gantry_dtype has the file's numbers */
    p->cast_count++;
    gt_node *cast = graph->nodes.data[id];
    cast->segment = served->segment;
    cast->lineage.pass = PASS;
    return GANTRY_OK;
}

static gantry_status widen_constant(promotion *p, uint32_t id, uint32_t *out_wide, gantry_error *err)
{
    gt_model *model = p->graph->model;
    uint32_t constant;
    GT_TRY(add_value_like(p, id, "float32", out_wide, err));
    GT_TRY(gt_model_add_widened(model, p->graph->values.data[*out_wide]->name,
                                p->graph->values.data[id]->constant, &constant, err));
    p->constant_bytes += model->constants.data[constant].bytes;
    return gt_value_set_constant(p->graph, *out_wide, constant, err);
}

/* The float32 twin of what node `reader` reads; made when nobody has asked for it before. */
static gantry_status wide_input(promotion *p, uint32_t id, uint32_t reader, uint32_t *out_wide,
                                gantry_error *err)
{
    if (p->wide[id] == GT_NONE) {
        if (gt_value_is_constant(p->graph->values.data[id])) {
            GT_TRY(widen_constant(p, id, &p->wide[id], err));
        } else {
            GT_TRY(add_value_like(p, id, "float32", &p->wide[id], err));
            GT_TRY(add_cast(p, id, p->wide[id], GANTRY_FLOAT32, reader, err));
        }
    }
    *out_wide = p->wide[id];
    return GANTRY_OK;
}

static gantry_status promote_node(promotion *p, uint32_t id, gantry_error *err)
{
    gt_graph *graph = p->graph;
    gt_node *node = graph->nodes.data[id];
    for (uint32_t k = 0; k < node->input_count; k++)
        if (is_narrow(gt_graph_value(graph, node->inputs[k])))
            GT_TRY(wide_input(p, node->inputs[k], id, &node->inputs[k], err));
    for (uint32_t k = 0; k < node->output_count; k++) {
        uint32_t narrow = node->outputs[k];
        if (!is_narrow(gt_graph_value(graph, narrow)))
            continue;
        GT_TRY(add_value_like(p, narrow, "float32", &p->wide[narrow], err));
        gt_value *wide = graph->values.data[p->wide[narrow]];
        wide->producer = id;
        wide->producer_output = k;
        node->outputs[k] = p->wide[narrow];
        graph->values.data[narrow]->producer = GT_NONE;
    }
    node->lineage.pass = PASS;
    return gt_model_log_rewrite(graph->model, PASS, node->name, "applied", "", err);
}

/* Values that somebody still reads in their own type: graph outputs, bodies, nodes that are not promoted. */
static gantry_status narrow_again(promotion *p, gantry_error *err)
{
    gt_graph *graph = p->graph;
    gt_graph_changed(graph);
    for (uint32_t v = 0; v < p->value_count; v++) {
        uint32_t count, maker = p->wide[v] == GT_NONE ? GT_NONE : graph->values.data[p->wide[v]]->producer;
        const gt_use *uses;
        if (maker >= p->node_count || !p->chosen[maker])
            continue;
        GT_TRY(gt_graph_uses(graph, v, &uses, &count, err));
        if (count)
            GT_TRY(add_cast(p, p->wide[v], v, graph->values.data[v]->dtype, maker, err));
    }
    return GANTRY_OK;
}

/* ---- the straight line ----------------------------------------------------------------------- */

static void name_nodes(const promotion *p, gt_text *text)
{
    uint32_t shown = 0;
    for (uint32_t k = 0; k < p->node_count && shown < MAX_NAMED; k++)
        if (p->chosen[k])
            gt_text_printf(text, "%s%s", shown++ ? ", " : "", p->graph->nodes.data[k]->name);
    if (p->promoted_count > shown)
        gt_text_printf(text, " and %u more", p->promoted_count - shown);
}

static gantry_status note(const promotion *p, gantry_error *err)
{
    gt_model *model = p->graph->model;
    const char *type = gantry_dtype_text(p->dtype);
    gt_text names;
    gt_text_init(&names, model->allocator);
    name_nodes(p, &names);
    gantry_status status = names.failed ? gt_graph_no_memory(err) : GANTRY_OK;
    if (status == GANTRY_OK)
        status = gt_model_note(model, "promoted", p->first, err,
                               "%u nodes of %s (%s) run in float32, because %s does not compute all of them "
                               "in %s: %u casts at the "
                               "edges; %llu bytes of constants are widened when the session is created. "
                               "Values between these nodes are "
                               "not rounded to %s: what would overflow there does not overflow here. "
                               "rewrites.promote=off refuses the "
                               "model instead",
                               p->promoted_count, type, names.data, p->refused_by, type, p->cast_count,
                               (unsigned long long)p->constant_bytes, type);
    gt_text_free(&names);
    return status;
}

static gantry_status promote(promotion *p, gantry_error *err)
{
    gt_graph *graph = p->graph;
    for (uint32_t k = 0; k < graph->order.count; k++)
        if (graph->order.data[k] < p->node_count && p->chosen[graph->order.data[k]])
            GT_TRY(promote_node(p, graph->order.data[k], err));
    GT_TRY(narrow_again(p, err));
    gt_graph_changed(graph);
    GT_TRY(gt_graph_sort(graph, err));
    return note(p, err);
}

gantry_status gt_promote(gt_graph *graph, const gt_placement *placement, const gt_place_provider *providers,
                         uint32_t provider_count, bool *out_changed, gantry_error *err)
{
    promotion p = {.graph = graph, .value_count = graph->values.count, .node_count = graph->nodes.count};
    *out_changed = false;
    gt_arena_init(&p.scratch, graph->model->allocator);
    p.chosen = GT_ARENA_ARRAY(&p.scratch, uint8_t, p.node_count + 1);
    p.wide = GT_ARENA_ARRAY(&p.scratch, uint32_t, p.value_count + 1);
    gantry_status status = p.chosen && p.wide ? GANTRY_OK : gt_graph_no_memory(err);
    if (status == GANTRY_OK) {
        memset(p.wide, 0xff, p.value_count * sizeof *p.wide);
        choose_refused(&p, placement, providers, provider_count);
        *out_changed = p.promoted_count > 0;
        if (*out_changed)
            choose_neighbours(&p, placement, providers);
    }
    if (*out_changed)
        status = promote(&p, err);
    gt_arena_clear(&p.scratch);
    return status;
}
