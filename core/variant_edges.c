/* Where the inputs, outputs and captures of a control node's bodies lie. Each has one domain, chosen before
 * the body is compiled, from where a first placement of the body computes:
 *
 *     carried value   one home for its input and its output: iterations swap buffers there, and the graph
 *                     around brings the first value and takes the last one
 *     other outputs   where they cost least, between who makes them and who reads them outside
 *     captures        once in each domain that reads them; moved at most once per entry, by the graph around
 *
 * What the host decides with stays with the host: the round, conditions, and whatever has elements or extents
 * that are known only once the body runs. */
#include "session.h"
#include "variant_parts.h"

/* How often a loop is taken to run when nobody can say. */
#define ASSUMED_ITERATIONS 16
/* Of two homes that cost the same by the domains' own words, the one with fewer copies: devices may say
 * nothing of what a copy costs. */
#define COPY_NS 1.0
#define COPY_BYTE_NS 1e-3

const gt_variant *gt_variant_outer(const gt_variant *variant)
{
    while (variant->parent && variant->parent->choice_count)
        variant = variant->parent;
    return variant->parent;
}

static bool is_loop(const gt_node *node)
{
    return strcmp(node->op_type, "Loop") == 0;
}

/* ---- where values are, and who reads them ---------------------------------------------------- */

/* Of the control node of that partition. NULL: it has no bodies, or they are not made yet. */
static const gt_variant *body_of(const gt_variant *variant, uint32_t partition)
{
    const gt_program *program = variant->programs ? &variant->programs[partition] : NULL;
    return !program ? NULL : program->bodies[0] ? program->bodies[0] : program->bodies[1];
}

uint32_t gt_variant_value_domain(const gt_variant *variant, uint32_t value)
{
    const gt_value *v = variant->graph->values.data[value];
    if (v->input_index >= 0)
        return variant->input_domains[v->input_index];
    if (v->captured != GT_NONE)
        return v->constant == GT_NONE ? gt_variant_value_domain(gt_variant_outer(variant), v->captured) : 0;
    uint32_t partition =
        v->producer == GT_NONE ? GT_NONE : variant->placement->partition_of_node[v->producer];
    if (partition == GT_NONE)
        return 0;
    if (!variant->placement->partitions[partition].control)
        return variant->session->providers[variant->placement->partitions[partition].provider].domain;
    const gt_variant *body = body_of(variant, partition);
    if (!body)
        return 0;
    return body->output_domains[v->producer_output + is_loop(variant->graph->nodes.data[v->producer])];
}

static bool elements_known(const gt_value *value)
{
    for (uint32_t k = 0; value->elements && k < value->element_count; k++)
        if (value->elements[k] == GT_EXPR_UNKNOWN)
            return false;
    return value->elements != NULL;
}

static uint64_t bit(uint32_t domain)
{
    return (uint64_t)1 << domain;
}

/* Where a control node needs an operand, or (index GT_NONE) what its bodies capture. */
static uint64_t control_readers(const gt_variant *variant, uint32_t partition, const gt_node *node,
                                uint32_t value, uint32_t index)
{
    const gt_program *program = variant->programs ? &variant->programs[partition] : NULL;
    uint64_t domains = 0;
    if (index != GT_NONE && index < (is_loop(node) ? 2u : 1u))
        return bit(0);
    if (!program)
        return 0;
    if (index != GT_NONE)
        return program->bodies[0] ? bit(program->bodies[0]->input_domains[index]) : 0;
    for (int b = 0; b < 2; b++)
        for (uint32_t k = 0; program->bodies[b] && k < program->bodies[b]->capture_count; k++)
            if (program->bodies[b]->graph->values.data[program->bodies[b]->captures[k]]->captured == value)
                domains |= bit(program->bodies[b]->capture_domains[k]);
    return domains;
}

static uint64_t use_readers(const gt_variant *variant, uint32_t value, const gt_use *use)
{
    const gt_placement *placement = variant->placement;
    uint32_t partition = use->node == GT_NONE ? GT_NONE : placement->partition_of_node[use->node];
    if (partition == GT_NONE)
        return 0;
    const gt_node *node = variant->graph->nodes.data[use->node];
    if (placement->partitions[partition].control)
        return control_readers(variant, partition, node, value, use->index);
    bool shape_operand = node->op && use->index < 32 && node->op->shape_operands >> use->index & 1;
    if (shape_operand && elements_known(variant->graph->values.data[value]))
        return 0;
    return bit(variant->session->providers[placement->partitions[partition].provider].domain);
}

/* The domains, as bits, in which the placed graph reads a value as a tensor; its outputs where they are
 * wanted. */
static gantry_status find_readers(const gt_variant *variant, uint32_t value, uint64_t *out_domains,
                                  gantry_error *err)
{
    const gt_use *uses;
    uint32_t count;
    *out_domains = 0;
    GT_TRY(gt_graph_uses(variant->graph, value, &uses, &count, err));
    for (uint32_t k = 0; k < count; k++)
        *out_domains |= use_readers(variant, value, &uses[k]);
    return GANTRY_OK;
}

/* ---- captures -------------------------------------------------------------------------------- */

static bool has_own_elements(const gt_graph *graph, uint32_t id)
{
    const gt_value *value = graph->values.data[id];
    const gt_exprs *exprs = &graph->model->exprs;
    for (uint32_t k = 0; value->elements && k < value->element_count; k++) {
        gt_expr e = value->elements[k];
        if (e == GT_EXPR_UNKNOWN || exprs->nodes.data[e].kind != GT_EXPR_SYMBOL)
            continue;
        const gt_symbol *symbol = &exprs->symbols.data[exprs->nodes.data[e].a];
        if (symbol->kind == GT_SYMBOL_DATA_ELEMENT && symbol->value == id)
            return true;
    }
    return false;
}

/* Where this graph needs a captured value; where it lies when nothing needs more than its extents. */
static gantry_status capture_places(const gt_variant *variant, uint32_t id, uint64_t *out_domains,
                                    gantry_error *err)
{
    const gt_graph *graph = variant->graph;
    *out_domains = bit(0);
    if (!variant->placement || variant->session->domain_count == 1)
        return GANTRY_OK;
    GT_TRY(find_readers(variant, id, out_domains, err));
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        if (graph->outputs.data[k] == id)
            *out_domains |= bit(variant->output_domains[k]);
    if (has_own_elements(graph, id))
        *out_domains |= bit(0);
    if (!*out_domains)
        *out_domains = bit(gt_variant_value_domain(variant, id));
    return GANTRY_OK;
}

/* A graph placed for other choices or another shape has what the graph around gives to the first one. */
static uint64_t given_places(const gt_variant *first, uint32_t outer)
{
    uint64_t domains = 0;
    for (uint32_t k = 0; k < first->capture_count; k++)
        if (first->graph->values.data[first->captures[k]]->captured == outer)
            domains |= bit(first->capture_domains[k]);
    return domains;
}

gantry_status gt_variant_find_captures(gt_variant *variant, gantry_error *err)
{
    const gt_graph *graph = variant->graph;
    size_t room = 0;
    for (uint32_t k = 0; k < graph->values.count; k++)
        room += graph->values.data[k]->captured != GT_NONE && graph->values.data[k]->constant == GT_NONE;
    room = room * variant->session->domain_count + 1;
    uint32_t *captures = GT_ARENA_ARRAY(&variant->arena, uint32_t, room);
    uint32_t *domains = GT_ARENA_ARRAY(&variant->arena, uint32_t, room);
    if (!captures || !domains)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    variant->capture_count = 0;
    for (uint32_t k = 0; k < graph->values.count; k++) {
        uint32_t outer = graph->values.data[k]->captured;
        uint64_t places;
        if (outer == GT_NONE || graph->values.data[k]->constant != GT_NONE)
            continue;
        if (variant->first)
            places = given_places(variant->first, outer);
        else
            GT_TRY(capture_places(variant, k, &places, err));
        for (uint32_t d = 0; d < variant->session->domain_count; d++)
            if (places & bit(d)) {
                captures[variant->capture_count] = k;
                domains[variant->capture_count++] = d;
            }
    }
    variant->captures = captures;
    variant->capture_domains = domains;
    return GANTRY_OK;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* One control node whose bodies are about to be compiled. */
typedef struct chooser {
    const gt_variant *outer;
    const gt_node *node;
    gt_variant *const *bodies;
    double iterations;
    gantry_error *err;
} chooser;

static double leg_ns(const gantry_session *session, uint32_t domain, bool to_device, double bytes)
{
    const gantry_domain_info *info = &session->domains[domain].info;
    double speed = to_device ? info->to_device_bytes_per_ns : info->to_host_bytes_per_ns;
    return (to_device ? info->to_device_ns : info->to_host_ns) + (speed > 0 ? bytes / speed : 0) + COPY_NS +
           bytes * COPY_BYTE_NS;
}

static double move_ns(const gantry_session *session, uint32_t source, uint32_t target, double bytes)
{
    double ns = 0;
    if (source != target && source != 0)
        ns += leg_ns(session, source, false, bytes);
    if (source != target && target != 0)
        ns += leg_ns(session, target, true, bytes);
    return ns;
}

static double moves_ns(const gantry_session *session, uint32_t source, uint64_t targets, double bytes)
{
    double ns = 0;
    for (uint32_t d = 0; d < session->domain_count; d++)
        if (targets & bit(d))
            ns += move_ns(session, source, d, bytes);
    return ns;
}

static double typical_bytes(const gt_graph *graph, uint32_t value)
{
    int64_t dims[GANTRY_MAX_RANK];
    return (double)gt_typical_shape(graph, value, dims) *
           gantry_dtype_bits(graph->values.data[value]->dtype) / 8;
}

/* Larger expressions than this are not looked through: what they say the size of stays on the host. */
#define MAX_LOOKS 64

/* True when e has a value before any node of the graph has run. */
static bool known_at_entry(const gt_graph *graph, gt_expr e, int *inout_looks)
{
    const gt_exprs *exprs = &graph->model->exprs;
    if (e == GT_EXPR_UNKNOWN || --*inout_looks < 0)
        return false;
    const gt_expr_node *node = &exprs->nodes.data[e];
    if (node->kind == GT_EXPR_CONST || node->kind == GT_EXPR_REAL_CONST || gt_expr_segment(exprs, e) == 0)
        return true;
    if (node->kind == GT_EXPR_SYMBOL) {
        const gt_symbol *symbol = &exprs->symbols.data[node->a];
        bool data = symbol->kind == GT_SYMBOL_DATA_DIM || symbol->kind == GT_SYMBOL_DATA_ELEMENT;
        return !data || symbol->graph != graph || graph->values.data[symbol->value]->producer == GT_NONE;
    }
    bool unary =
        node->kind == GT_EXPR_NOT || (node->kind >= GT_EXPR_TO_REAL && node->kind != GT_EXPR_REAL_DIV);
    return known_at_entry(graph, node->a, inout_looks) &&
           (unary || known_at_entry(graph, node->b, inout_looks)) &&
           (node->kind != GT_EXPR_SELECT || known_at_entry(graph, node->c, inout_looks));
}

/* A device may hold what has a size before the body runs, and whose elements no size is made of. */
static bool may_lie_on_device(const gt_graph *graph, uint32_t id)
{
    const gt_value *value = graph->values.data[id];
    bool may = value->kind == GANTRY_KIND_TENSOR && gantry_dtype_bits(value->dtype) && value->rank >= 0 &&
               !has_own_elements(graph, id);
    int looks = MAX_LOOKS;
    for (int32_t d = 0; may && d < value->rank; d++)
        may = known_at_entry(graph, value->dims[d], &looks);
    return may;
}

/* The domain that makes a value of a placed body; GT_NONE: nobody moves anything to make it (an input). */
static uint32_t maker_domain(const gt_variant *body, uint32_t value)
{
    const gt_value *v = body->graph->values.data[value];
    if (v->input_index >= 0 && v->constant == GT_NONE)
        return GT_NONE;
    if (v->producer != GT_NONE) {
        uint32_t partition = body->placement->partition_of_node[v->producer];
        if (partition != GT_NONE && body->placement->partitions[partition].control)
            return GT_NONE;
    }
    return gt_variant_value_domain(body, value);
}

/* Who reads output k of the control node, outside. */
static gantry_status outside_readers(const chooser *c, uint32_t k, uint64_t *out_domains)
{
    const gt_graph *graph = c->outer->graph;
    uint32_t value = k < c->node->output_count ? c->node->outputs[k] : GT_NONE;
    *out_domains = 0;
    if (value == GT_NONE)
        return GANTRY_OK;
    GT_TRY(find_readers(c->outer, value, out_domains, c->err));
    for (uint32_t o = 0; o < graph->outputs.count; o++)
        if (graph->outputs.data[o] == value)
            *out_domains |= bit(c->outer->output_domains[o]);
    return GANTRY_OK;
}

/* Ties go to the first of them: the host. */
static uint32_t cheapest(uint32_t count, const double *ns)
{
    uint32_t best = 0;
    for (uint32_t d = 1; d < count; d++)
        if (ns[d] < ns[best])
            best = d;
    return best;
}

/* Domains are bits of a 64-bit set. */
#define MAX_DOMAINS 64

/* The home of carried value k: what an iteration moves, as often as there are any, and the way in and out. */
static gantry_status choose_home(const chooser *c, uint32_t k, uint32_t *inputs, uint32_t *outputs)
{
    const gt_variant *body = c->bodies[0];
    const gantry_session *session = body->session;
    uint32_t in = body->graph->inputs.data[2 + k], out = body->graph->outputs.data[1 + k];
    uint64_t inside, outside;
    double bytes = typical_bytes(body->graph, in), ns[MAX_DOMAINS];
    if (!may_lie_on_device(body->graph, in) || !may_lie_on_device(body->graph, out))
        return GANTRY_OK;
    GT_TRY(find_readers(body, in, &inside, c->err));
    GT_TRY(outside_readers(c, k, &outside));
    uint32_t maker = maker_domain(body, out),
             first = gt_variant_value_domain(c->outer, c->node->inputs[2 + k]);
    for (uint32_t d = 0; d < session->domain_count; d++)
        ns[d] = c->iterations * (moves_ns(session, d, inside, bytes) +
                                 (maker == GT_NONE ? 0 : move_ns(session, maker, d, bytes))) +
                move_ns(session, first, d, bytes) + moves_ns(session, d, outside, bytes);
    inputs[2 + k] = outputs[1 + k] = cheapest(session->domain_count, ns);
    return GANTRY_OK;
}

/* Output `out` of the bodies, output k of the node; what the rounds of a loop make piles up there. */
static gantry_status choose_output(const chooser *c, uint32_t out, uint32_t k, uint32_t *outputs)
{
    const gantry_session *session = c->outer->session;
    uint64_t outside;
    double ns[MAX_DOMAINS] = {0};
    GT_TRY(outside_readers(c, k, &outside));
    for (int b = 0; b < 2 && c->bodies[b]; b++) {
        const gt_graph *graph = c->bodies[b]->graph;
        if (out >= graph->outputs.count || !may_lie_on_device(graph, graph->outputs.data[out]))
            return GANTRY_OK;
        double bytes = typical_bytes(graph, graph->outputs.data[out]);
        uint32_t maker = maker_domain(c->bodies[b], graph->outputs.data[out]);
        for (uint32_t d = 0; d < session->domain_count; d++)
            ns[d] += c->iterations * (maker == GT_NONE ? 0 : move_ns(session, maker, d, bytes)) +
                     moves_ns(session, d, outside, c->iterations * bytes);
    }
    outputs[out] = cheapest(session->domain_count, ns);
    return GANTRY_OK;
}

static double typical_iterations(const gt_graph *graph, const gt_node *node)
{
    const gt_value *trips = node->input_count ? gt_graph_value(graph, node->inputs[0]) : NULL;
    int64_t count;
    if (!is_loop(node))
        return 1;
    if (!trips || !trips->elements || trips->element_count != 1 || trips->elements[0] == GT_EXPR_UNKNOWN ||
        !gt_expr_is_const(&graph->model->exprs, trips->elements[0], &count))
        return ASSUMED_ITERATIONS;
    return count > 1 ? (double)count : 1;
}

static gantry_status all_on_host(gt_variant *body, uint32_t **out_inputs, uint32_t **out_outputs,
                                 gantry_error *err)
{
    *out_inputs = GT_ARENA_ARRAY(&body->arena, uint32_t, body->graph->inputs.count + 1);
    *out_outputs = GT_ARENA_ARRAY(&body->arena, uint32_t, body->graph->outputs.count + 1);
    body->input_domains = *out_inputs;
    body->output_domains = *out_outputs;
    return *out_inputs && *out_outputs ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
}

static gantry_status choose_all(const chooser *c, uint32_t *inputs[2], uint32_t *outputs[2])
{
    const gt_graph *graph = c->bodies[0]->graph;
    uint32_t carried = is_loop(c->node) && c->node->input_count > 2 ? c->node->input_count - 2 : 0;
    uint32_t first = is_loop(c->node) ? 1 : 0;
    if (is_loop(c->node) && (graph->inputs.count != 2 + carried || graph->outputs.count < 1 + carried))
        return GANTRY_OK; /* the run says so */
    for (uint32_t k = 0; k < carried; k++)
        if (c->node->inputs[2 + k] != GT_NONE)
            GT_TRY(choose_home(c, k, inputs[0], outputs[0]));
    for (uint32_t out = first + carried; out < graph->outputs.count; out++)
        GT_TRY(choose_output(c, out, out - first, outputs[0]));
    if (c->bodies[1])
        for (uint32_t out = 0; out < c->bodies[1]->graph->outputs.count && out < graph->outputs.count; out++)
            outputs[1][out] = outputs[0][out];
    return GANTRY_OK;
}

/* A body whose branches are chosen when it is entered has no placement of its own: its edges stay on the
 * host. */
gantry_status gt_variant_choose_edges(const gt_variant *outer, const gt_node *node,
                                      gt_variant *const bodies[2], gantry_error *err)
{
    uint32_t *inputs[2] = {NULL, NULL}, *outputs[2] = {NULL, NULL};
    chooser c = {outer, node, bodies, typical_iterations(outer->graph, node), err};
    bool open = bodies[0] && outer->session->domain_count > 1;
    for (int b = 0; b < 2; b++) {
        if (!bodies[b])
            continue;
        bodies[b]->iterations = c.iterations;
        GT_TRY(all_on_host(bodies[b], &inputs[b], &outputs[b], err));
        GT_TRY(gt_variant_find_choices(bodies[b], err));
        open = open && !bodies[b]->choice_count;
    }
    if (!open)
        return GANTRY_OK;
    gantry_status status = GANTRY_OK;
    for (int b = 0; b < 2 && status == GANTRY_OK && bodies[b]; b++)
        status = gt_variant_place_open(bodies[b], node, err);
    if (status == GANTRY_OK)
        status = choose_all(&c, inputs, outputs);
    /* What could not be placed is kept for the report. */
    for (int b = 0; b < 2 && status == GANTRY_OK; b++)
        if (bodies[b])
            gt_placement_destroy(outer->session->allocator, &bodies[b]->placement);
    return status;
}
