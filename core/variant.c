/* Variants: from a graph to placed, partitioned and compiled programs; and the choice of branches known at
 * bind. */
#include "session.h"

#include "base/clock.h"
#include "graph/infer.h"

gantry_status gt_variant_create(gantry_session *session, gt_variant *parent, gt_graph *graph,
                                gt_variant **out_variant, gantry_error *err)
{
    *out_variant = NULL;
    gt_variant *variant = GT_NEW(session->allocator, gt_variant);
    if (!variant)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    variant->session = session;
    variant->parent = parent;
    variant->graph = graph;
    gt_arena_init(&variant->arena, session->allocator);
    *out_variant = variant;
    return GANTRY_OK;
}

static void destroy_program(gantry_session *session, const gt_placement *placement, gt_program *programs,
                            uint32_t index)
{
    gt_program *slot = &programs[index];
    if (slot->program) {
        const gantry_provider *table = session->providers[placement->partitions[index].provider].entry->table;
        table->program_destroy(table->self, slot->program);
    }
    gt_variant_destroy(&slot->bodies[0]);
    gt_variant_destroy(&slot->bodies[1]);
    gt_vec_free(session->allocator, &slot->records.kernels);
    gt_vec_free(session->allocator, &slot->records.fusions);
    gt_arena_clear(&slot->arena);
    *slot = (gt_program){0};
}

static void drop_programs(gt_variant *variant)
{
    gantry_session *session = variant->session;
    if (variant->programs)
        for (uint32_t k = 0; k < variant->placement->partition_count; k++)
            destroy_program(session, variant->placement, variant->programs, k);
    gt_free(session->allocator, variant->programs);
    variant->programs = NULL;
}

void gt_variant_destroy(gt_variant **inout_variant)
{
    gt_variant *variant = *inout_variant;
    if (!variant)
        return;
    gantry_session *session = variant->session;
    for (uint32_t k = 0; k < variant->children.count; k++)
        gt_variant_destroy(&variant->children.data[k].variant);
    gt_vec_free(session->allocator, &variant->children);
    for (uint32_t k = 0; k < variant->refused.count; k++)
        gt_variant_destroy(&variant->refused.data[k].alternate);
    gt_vec_free(session->allocator, &variant->refused);
    for (uint32_t k = 0; k < variant->plans.count; k++)
        gt_plan_destroy(&variant->plans.data[k]);
    gt_vec_free(session->allocator, &variant->plans);
    drop_programs(variant);
    gt_placement_destroy(session->allocator, &variant->placement);
    gt_vec_free(session->allocator, &variant->late);
    gt_arena_clear(&variant->arena);
    gt_free(session->allocator, variant);
    *inout_variant = NULL;
}

/* ---- judging --------------------------------------------------------------------------------- */

/* The graph that providers are asked about, as they see it. */
typedef struct shown_graph {
    gt_arena *arena;
    gt_view view;
    uint32_t *indexes; /* room for the nodes of one unit */
    uint32_t capacity;
} shown_graph;

typedef struct judge_self {
    const gantry_provider *table;
    const shown_graph *shown;
    const gt_options *options;
} judge_self;

/* Placement asks about another graph now: the body of a composite, or the graph after one was expanded. */
static gantry_status show_graph(void *self, const gt_graph *graph, gantry_error *err)
{
    shown_graph *shown = self;
    shown->capacity = graph->nodes.count + 1;
    shown->indexes = GT_ARENA_ARRAY(shown->arena, uint32_t, shown->capacity);
    if (!shown->indexes)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    return gt_view_graph(shown->arena, graph, &shown->view, err);
}

/* Our node ids become indexes of the view that the providers see. */
static gantry_status judge(void *self, const gt_graph *graph, const uint32_t *nodes, uint32_t count,
                           gantry_verdict *out_verdict)
{
    const judge_self *judge = self;
    const shown_graph *shown = judge->shown;
    for (uint32_t k = 0; k < count && k < shown->capacity; k++)
        shown->indexes[k] = shown->view.node_index[nodes[k]];
    out_verdict->session_options = judge->options;
    return judge->table->judge(judge->table->self, &shown->view.view, shown->indexes, count, out_verdict);
}

static void describe_domains(const gantry_session *session, gt_place_domain *domains)
{
    for (uint32_t k = 0; k < session->domain_count; k++) {
        const gantry_domain_info *info = &session->domains[k].entry->info;
        domains[k] =
            (gt_place_domain){session->domains[k].name,   info->to_device_ns,
                              info->to_host_ns,           info->to_device_bytes_per_ns,
                              info->to_host_bytes_per_ns, info->cost_source ? info->cost_source : 'a'};
    }
}

static gantry_status place(gt_variant *variant, gantry_error *err)
{
    gantry_session *session = variant->session;
    gt_arena arena;
    gt_arena_init(&arena, session->allocator);
    shown_graph shown = {.arena = &arena};
    gantry_status status = show_graph(&shown, variant->graph, err);
    gt_place_provider *providers = GT_ARENA_ARRAY(&arena, gt_place_provider, session->provider_count);
    judge_self *selves = GT_ARENA_ARRAY(&arena, judge_self, session->provider_count);
    gt_place_domain *domains = GT_ARENA_ARRAY(&arena, gt_place_domain, session->domain_count);
    if (status == GANTRY_OK && (!providers || !selves || !domains))
        status = gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    if (status != GANTRY_OK)
        goto done;
    for (uint32_t k = 0; k < session->provider_count; k++) {
        const gt_session_provider *p = &session->providers[k];
        bool available = p->entry && p->entry->available;
        selves[k] = (judge_self){available ? p->entry->table : NULL, &shown, &session->options};
        providers[k] =
            (gt_place_provider){.name = p->name,
                                .domain = p->domain,
                                .precision = available ? p->entry->info.precision : GANTRY_UNDEFINED,
                                .available = available,
                                .detail = p->entry ? p->entry->detail : "no provider of that name is loaded",
                                .judge = judge,
                                .self = &selves[k]};
    }
    describe_domains(session, domains);
    uint32_t *source_domain = NULL;
    if (!variant->body) {
        source_domain = GT_ARENA_ARRAY(&arena, uint32_t, variant->graph->values.count + 1);
        if (!source_domain) {
            status = gt_out_of_memory(err, GANTRY_STAGE_PLACE);
            goto done;
        }
        memset(source_domain, 0xff, variant->graph->values.count * sizeof *source_domain);
        for (uint32_t k = 0; k < variant->graph->inputs.count; k++)
            source_domain[variant->graph->inputs.data[k]] = session->input_domains[k];
    }
    gt_place_options options = {.source_domain = source_domain,
                                .output_domain = variant->body ? NULL : session->output_domains,
                                .by_cost = session->options.plan_by_cost,
                                .model_precision = session->options.model_precision,
                                .pins = session->options.pins.data,
                                .pin_count = session->options.pins.count,
                                .late = variant->late.data,
                                .late_count = variant->late.count,
                                .show_graph = show_graph,
                                .show_self = &shown};
    gt_placement_destroy(session->allocator, &variant->placement);
    status = gt_place(variant->graph, providers, session->provider_count, domains, session->domain_count,
                      &options, &variant->placement, err);
done:
    gt_arena_clear(&arena);
    return status;
}

/* ---- compiling ------------------------------------------------------------------------------- */

static const char *const BODY_ROLES[2][2] = {{"body", NULL}, {"then_branch", "else_branch"}};

static gantry_status compile_control(gt_variant *variant, gt_program *slot, const gt_node *node,
                                     gantry_error *err)
{
    const char *const *roles = strcmp(node->op_type, "If") == 0 ? BODY_ROLES[1] : BODY_ROLES[0];
    for (int r = 0; r < 2 && roles[r]; r++)
        for (uint32_t b = 0; b < node->body_count; b++)
            if (strcmp(node->bodies[b].name, roles[r]) == 0) {
                GT_TRY(gt_variant_create(variant->session, variant, node->bodies[b].graph, &slot->bodies[r],
                                         err));
                slot->bodies[r]->body = true;
                GT_TRY(gt_variant_compile(slot->bodies[r], err));
            }
    return GANTRY_OK;
}

static gantry_status agree_on_formats(const gantry_provider *table, gt_program *slot, gantry_error *err)
{
    const gantry_graph_view *view = &slot->view.view;
    gantry_edge_format *edges =
        GT_ARENA_ARRAY(&slot->arena, gantry_edge_format, view->input_count + view->output_count);
    slot->input_formats = GT_ARENA_ARRAY(&slot->arena, gantry_format, view->input_count);
    slot->output_formats = GT_ARENA_ARRAY(&slot->arena, gantry_format, view->output_count);
    if (!edges || !slot->input_formats || !slot->output_formats)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    for (uint32_t k = 0; k < view->input_count; k++)
        edges[k].preferred.dtype = view->values[view->inputs[k]]->dtype;
    for (uint32_t k = 0; k < view->output_count; k++)
        edges[view->input_count + k].preferred.dtype = view->values[view->outputs[k]]->dtype;
    if (table->formats)
        GT_TRY(table->formats(table->self, view, edges, edges + view->input_count));
    /* A format that is only preferred needs the same tag at the other end; until two partitions of one domain
     * meet there, the default is used. */
    for (uint32_t k = 0; k < view->input_count; k++)
        slot->input_formats[k] = edges[k].required
                                     ? edges[k].preferred
                                     : (gantry_format){view->values[view->inputs[k]]->dtype, 0, 0};
    for (uint32_t k = 0; k < view->output_count; k++) {
        const gantry_edge_format *edge = &edges[view->input_count + k];
        slot->output_formats[k] =
            edge->required ? edge->preferred : (gantry_format){view->values[view->outputs[k]]->dtype, 0, 0};
    }
    return GANTRY_OK;
}

static gantry_status compile_partition(gt_variant *variant, uint32_t index, gantry_error *err)
{
    gantry_session *session = variant->session;
    const gt_partition *partition = &variant->placement->partitions[index];
    gt_program *slot = &variant->programs[index];
    gt_arena_init(&slot->arena, session->allocator);
    slot->records = (struct gantry_recorder){.arena = &slot->arena};
    GT_TRY(gt_view_nodes(&slot->arena, variant->graph, partition->node_count, partition->nodes,
                         partition->input_count, partition->inputs, partition->output_count,
                         partition->outputs, &slot->view, err));
    if (partition->control)
        return compile_control(variant, slot, variant->graph->nodes.data[partition->nodes[0]], err);
    gt_session_provider *provider = &session->providers[partition->provider];
    const gantry_provider *table = provider->entry->table;
    GT_TRY(agree_on_formats(table, slot, err));
    gantry_compile_args args = {.struct_bytes = sizeof args,
                                .graph = &slot->view.view,
                                .constants = gt_constants_of((struct gt_model *)session->model),
                                .session_options = &session->options,
                                .threads = session->options.threads,
                                .exact = session->options.exact,
                                .input_formats = slot->input_formats,
                                .output_formats = slot->output_formats,
                                .recorder = &slot->records};
    uint64_t begin = gt_now_ns();
    gantry_status status = table->compile(table->self, &args, &slot->program, err);
    slot->compile_ns = (double)(gt_now_ns() - begin);
    if (status != GANTRY_OK && err)
        snprintf(err->provider, sizeof err->provider, "%s", provider->name);
    return status;
}

/* A compile failure is a late verdict on every node of the partition: they are offered to the next provider.
 */
static gantry_status refuse_partition(gt_variant *variant, const gt_partition *partition,
                                      const gantry_error *failure, gantry_error *err)
{
    for (uint32_t k = 0; k < partition->node_count; k++) {
        gt_late_refusal late = {.node = partition->nodes[k], .provider = partition->provider};
        late.refusal.code = GANTRY_REFUSE_compile_failed;
        late.refusal.actual_number = late.refusal.limit_number = __builtin_nan("");
        snprintf(late.refusal.detail, sizeof late.refusal.detail, "%.190s", failure->message);
        if (!gt_vec_push(variant->session->allocator, &variant->late, late))
            return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    }
    return GANTRY_OK;
}

static bool has_alternative(const gt_variant *variant, const gt_partition *partition)
{
    return variant->session->provider_count > 1 && partition->provider + 1 < variant->session->provider_count;
}

static bool same_partition(const gt_partition *a, const gt_partition *b)
{
    return a->provider == b->provider && a->node_count == b->node_count && a->input_count == b->input_count &&
           a->output_count == b->output_count &&
           memcmp(a->nodes, b->nodes, a->node_count * sizeof *a->nodes) == 0 &&
           memcmp(a->inputs, b->inputs, a->input_count * sizeof *a->inputs) == 0 &&
           memcmp(a->outputs, b->outputs, a->output_count * sizeof *a->outputs) == 0;
}

/* Moves programs of partitions that did not change from the placement before. */
static void keep_programs(gt_program *programs, const gt_placement *placement, gt_program *old,
                          const gt_placement *before)
{
    for (uint32_t k = 0; k < placement->partition_count; k++)
        for (uint32_t m = 0; m < before->partition_count; m++)
            if ((old[m].program || old[m].bodies[0]) &&
                same_partition(&placement->partitions[k], &before->partitions[m])) {
                programs[k] = old[m];
                programs[k].records.arena = &programs[k].arena;
                old[m] = (gt_program){0};
            }
}

static gantry_status compile_placed(gt_variant *variant, bool *out_again, gantry_error *err)
{
    gantry_error failure = GANTRY_ERROR_INIT;
    *out_again = false;
    for (uint32_t k = 0; k < variant->placement->partition_count; k++) {
        const gt_partition *partition = &variant->placement->partitions[k];
        if (variant->programs[k].program || variant->programs[k].bodies[0])
            continue;
        gantry_status status = compile_partition(variant, k, &failure);
        if (status == GANTRY_OK)
            continue;
        if (err && failure.code)
            *err = failure;
        if (status == GANTRY_RESOURCE || status == GANTRY_DATA || partition->control ||
            !has_alternative(variant, partition))
            return status;
        *out_again = true;
        return refuse_partition(variant, partition, &failure, err);
    }
    return GANTRY_OK;
}

/* Verdicts only turn from yes to no, so this ends. */
static gantry_status place_and_compile(gt_variant *variant, gantry_error *err)
{
    gantry_session *session = variant->session;
    for (bool again = true; again;) {
        gt_placement *before = variant->placement;
        gt_program *old = variant->programs;
        variant->placement = NULL;
        variant->programs = NULL;
        uint64_t begin = gt_now_ns();
        gantry_status status = place(variant, err);
        uint64_t placed = gt_now_ns();
        variant->place_ns += (double)(placed - begin);
        if (status == GANTRY_OK) {
            variant->programs =
                GT_NEW_ARRAY(session->allocator, gt_program, variant->placement->partition_count);
            if (!variant->programs)
                status = gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
        }
        if (old) {
            if (variant->programs)
                keep_programs(variant->programs, variant->placement, old, before);
            for (uint32_t k = 0; k < before->partition_count; k++)
                destroy_program(session, before, old, k);
            gt_free(session->allocator, old);
        }
        gt_placement_destroy(session->allocator, &before);
        if (status != GANTRY_OK)
            return status;
        status = compile_placed(variant, &again, err);
        variant->compile_ns += (double)(gt_now_ns() - placed);
        if (status != GANTRY_OK)
            return status;
    }
    return GANTRY_OK;
}

/* ---- symbols of segments --------------------------------------------------------------------- */

/* Marks the symbols that e is built of. */
static void mark_symbols(const gt_exprs *exprs, gt_expr e, uint8_t *seen, uint8_t *symbols)
{
    if (e == GT_EXPR_UNKNOWN || seen[e])
        return;
    seen[e] = 1;
    const gt_expr_node *node = &exprs->nodes.data[e];
    switch ((gt_expr_kind)node->kind) {
    case GT_EXPR_CONST:
    case GT_EXPR_REAL_CONST:
        return;
    case GT_EXPR_SYMBOL:
        symbols[node->a] = 1;
        mark_symbols(exprs, exprs->symbols.data[node->a].bound, seen, symbols);
        return;
    case GT_EXPR_SELECT:
        mark_symbols(exprs, node->c, seen, symbols);
        /* fall through */
    default:
        mark_symbols(exprs, node->b, seen, symbols);
        mark_symbols(exprs, node->a, seen, symbols);
    }
}

static void mark_value(const gt_graph *graph, uint32_t id, uint8_t *seen, uint8_t *symbols)
{
    const gt_value *value = gt_graph_value(graph, id);
    if (!value)
        return;
    for (int32_t d = 0; d < value->rank; d++)
        mark_symbols(&graph->model->exprs, value->dims[d], seen, symbols);
    if (value->elements)
        for (uint32_t k = 0; k < value->element_count; k++)
            mark_symbols(&graph->model->exprs, value->elements[k], seen, symbols);
}

/* The symbol that e is, if it is one of that kind; GT_NONE otherwise. */
static uint32_t symbol_of(const gt_exprs *exprs, gt_expr e, gt_symbol_kind kind)
{
    if (e == GT_EXPR_UNKNOWN || exprs->nodes.data[e].kind != GT_EXPR_SYMBOL)
        return GT_NONE;
    uint32_t symbol = exprs->nodes.data[e].a;
    return exprs->symbols.data[symbol].kind == kind ? symbol : GT_NONE;
}

typedef GT_VEC(gt_result_symbol) result_list;

/* Symbols of data that a value of this segment is the first to have are results, not keys. */
static bool list_results(gt_allocator *allocator, const gt_graph *graph, uint32_t id, uint8_t *symbols,
                         result_list *results)
{
    const gt_exprs *exprs = &graph->model->exprs;
    const gt_value *value = gt_graph_value(graph, id);
    for (int32_t d = 0; value && d < value->rank; d++) {
        uint32_t symbol = symbol_of(exprs, value->dims[d], GT_SYMBOL_DATA_DIM);
        if (symbol != GT_NONE && symbols[symbol] && exprs->symbols.data[symbol].value == id) {
            symbols[symbol] = 0;
            if (!gt_vec_push(allocator, results, ((gt_result_symbol){symbol, id, (uint32_t)d, false})))
                return false;
        }
    }
    for (uint32_t k = 0; value && value->elements && k < value->element_count; k++) {
        uint32_t symbol = symbol_of(exprs, value->elements[k], GT_SYMBOL_DATA_ELEMENT);
        if (symbol != GT_NONE && symbols[symbol] && exprs->symbols.data[symbol].value == id) {
            symbols[symbol] = 0;
            if (!gt_vec_push(allocator, results, ((gt_result_symbol){symbol, id, k, true})))
                return false;
        }
    }
    return true;
}

static gantry_status list_symbols(gt_variant *variant, const uint8_t *marks, uint32_t *out_count,
                                  const uint32_t **out_symbols, gantry_error *err)
{
    uint32_t total = variant->graph->model->exprs.symbols.count, count = 0;
    for (uint32_t k = 0; k < total; k++)
        count += marks[k];
    uint32_t *symbols = GT_ARENA_ARRAY(&variant->arena, uint32_t, count + 1);
    if (!symbols)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    count = 0;
    for (uint32_t k = 0; k < total; k++)
        if (marks[k])
            symbols[count++] = k;
    *out_count = count;
    *out_symbols = symbols;
    return GANTRY_OK;
}

static gantry_status segment_results(gt_variant *variant, gt_segment *segment, uint8_t *symbols,
                                     gantry_error *err)
{
    gt_allocator *allocator = variant->session->allocator;
    result_list results = {0};
    bool fits = true;
    for (uint32_t p = segment->first_partition; p < segment->first_partition + segment->partition_count;
         p++) {
        const gt_partition *partition = &variant->placement->partitions[p];
        for (uint32_t n = 0; n < partition->node_count; n++) {
            const gt_node *node = variant->graph->nodes.data[partition->nodes[n]];
            for (uint32_t k = 0; k < node->output_count; k++)
                fits = fits && list_results(allocator, variant->graph, node->outputs[k], symbols, &results);
        }
    }
    segment->results = gt_arena_copy(&variant->arena, results.data, results.count * sizeof *results.data);
    segment->result_count = results.count;
    gt_vec_free(allocator, &results);
    return fits && segment->results ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
}

static gantry_status segment_symbols(gt_variant *variant, gt_segment *segment, uint8_t *seen,
                                     uint8_t *symbols, gantry_error *err)
{
    const gt_graph *graph = variant->graph;
    memset(seen, 0, graph->model->exprs.nodes.count + 1);
    memset(symbols, 0, graph->model->exprs.symbols.count + 1);
    for (uint32_t p = segment->first_partition; p < segment->first_partition + segment->partition_count;
         p++) {
        const gt_partition *partition = &variant->placement->partitions[p];
        for (uint32_t n = 0; n < partition->node_count; n++) {
            const gt_node *node = graph->nodes.data[partition->nodes[n]];
            for (uint32_t k = 0; k < node->input_count; k++)
                mark_value(graph, node->inputs[k], seen, symbols);
            for (uint32_t k = 0; k < node->output_count; k++)
                mark_value(graph, node->outputs[k], seen, symbols);
        }
        for (uint32_t k = 0; k < partition->input_count; k++)
            mark_value(graph, partition->inputs[k], seen, symbols);
    }
    GT_TRY(segment_results(variant, segment, symbols, err));
    if (segment->first_partition + segment->partition_count == variant->placement->partition_count)
        for (uint32_t k = 0; k < graph->outputs.count; k++) {
            const gt_value *value = graph->values.data[graph->outputs.data[k]];
            if (value->producer == GT_NONE || graph->nodes.data[value->producer]->at_bind)
                mark_value(graph, graph->outputs.data[k], seen, symbols);
        }
    return list_symbols(variant, symbols, &segment->symbol_count, &segment->symbols, err);
}

/* Groups the partitions by segment (placement keeps them in an order in which they can run, so segments come
 * ascending). */
static gantry_status make_segments(gt_variant *variant, gantry_error *err)
{
    const gt_placement *placement = variant->placement;
    uint32_t count = 0;
    for (uint32_t p = 0; p < placement->partition_count; p++)
        count += p == 0 || placement->partitions[p].segment != placement->partitions[p - 1].segment;
    variant->segments = GT_ARENA_ARRAY(&variant->arena, gt_segment, count + 1);
    uint8_t *seen =
        GT_NEW_ARRAY(variant->session->allocator, uint8_t, variant->graph->model->exprs.nodes.count + 1);
    uint8_t *symbols =
        GT_NEW_ARRAY(variant->session->allocator, uint8_t, variant->graph->model->exprs.symbols.count + 1);
    gantry_status status = GANTRY_OK;
    if (!variant->segments || !seen || !symbols)
        status = gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    for (uint32_t p = 0; status == GANTRY_OK && p < placement->partition_count; p++) {
        if (p == 0 || placement->partitions[p].segment != placement->partitions[p - 1].segment)
            variant->segments[variant->segment_count++] =
                (gt_segment){.number = placement->partitions[p].segment, .first_partition = p};
        variant->segments[variant->segment_count - 1].partition_count++;
    }
    /* A graph without partitions still has outputs to deliver. */
    if (status == GANTRY_OK && variant->segment_count == 0)
        variant->segments[variant->segment_count++] = (gt_segment){0};
    for (uint32_t s = 0; status == GANTRY_OK && s < variant->segment_count; s++)
        status = segment_symbols(variant, &variant->segments[s], seen, symbols, err);
    gt_free(variant->session->allocator, seen);
    gt_free(variant->session->allocator, symbols);
    return status;
}

/* ---- choices --------------------------------------------------------------------------------- */

/* An If whose condition is an expression over what is known when this graph is entered. */
static bool is_choice(const gt_graph *graph, const gt_node *node)
{
    if (node->removed || strcmp(node->op_type, "If") != 0 || node->domain[0])
        return false;
    const gt_value *condition = gt_graph_value(graph, node->input_count ? node->inputs[0] : GT_NONE);
    return condition && condition->elements && condition->element_count == 1 &&
           condition->elements[0] != GT_EXPR_UNKNOWN &&
           gt_expr_segment(&graph->model->exprs, condition->elements[0]) == 0;
}

static gantry_status find_choices(gt_variant *variant, gantry_error *err)
{
    const gt_graph *graph = variant->graph;
    uint32_t count = 0;
    for (uint32_t k = 0; k < graph->nodes.count; k++)
        count += is_choice(graph, graph->nodes.data[k]);
    variant->choices = GT_ARENA_ARRAY(&variant->arena, gt_choice, count + 1);
    if (!variant->choices)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    variant->choice_count = 0;
    for (uint32_t k = 0; k < graph->nodes.count; k++)
        if (is_choice(graph, graph->nodes.data[k]))
            variant->choices[variant->choice_count++] =
                (gt_choice){k, graph->values.data[graph->nodes.data[k]->inputs[0]]->elements[0]};
    if (!count)
        return GANTRY_OK;
    uint8_t *seen = GT_NEW_ARRAY(variant->session->allocator, uint8_t, graph->model->exprs.nodes.count + 1);
    uint8_t *symbols =
        GT_NEW_ARRAY(variant->session->allocator, uint8_t, graph->model->exprs.symbols.count + 1);
    gantry_status status = seen && symbols ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    for (uint32_t k = 0; status == GANTRY_OK && k < count; k++)
        mark_symbols(&graph->model->exprs, variant->choices[k].condition, seen, symbols);
    if (status == GANTRY_OK)
        status = list_symbols(variant, symbols, &variant->choice_symbol_count, &variant->choice_symbols, err);
    gt_free(variant->session->allocator, seen);
    gt_free(variant->session->allocator, symbols);
    return status;
}

static gantry_status find_captures(gt_variant *variant, gantry_error *err)
{
    const gt_graph *graph = variant->graph;
    uint32_t *captures = GT_ARENA_ARRAY(&variant->arena, uint32_t, graph->values.count + 1);
    if (!captures)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    variant->capture_count = 0;
    for (uint32_t k = 0; k < graph->values.count; k++)
        if (graph->values.data[k]->captured != GT_NONE && graph->values.data[k]->constant == GT_NONE)
            captures[variant->capture_count++] = k;
    variant->captures = captures;
    return GANTRY_OK;
}

gantry_status gt_variant_compile(gt_variant *variant, gantry_error *err)
{
    if (variant->compiled || variant->choice_count)
        return GANTRY_OK;
    GT_TRY(find_captures(variant, err));
    GT_TRY(find_choices(variant, err));
    if (variant->choice_count)
        return GANTRY_OK;
    GT_TRY(place_and_compile(variant, err));
    GT_TRY(make_segments(variant, err));
    variant->compiled = true;
    return GANTRY_OK;
}

/* A copy of the graph in which the chosen branches stand in place of their Ifs. */
static gantry_status inline_choices(gt_variant *variant, const uint8_t *branches, gt_graph **out_graph,
                                    gantry_error *err)
{
    gt_graph *graph = NULL;
    GT_TRY(gt_graph_clone(variant->graph, &graph, err));
    for (uint32_t k = 0; k < variant->choice_count; k++) {
        const gt_node *node = graph->nodes.data[variant->choices[k].node];
        const char *role = branches[k] ? "then_branch" : "else_branch";
        uint32_t body = 0;
        while (body < node->body_count && strcmp(node->bodies[body].name, role) != 0)
            body++;
        if (body == node->body_count)
            return gt_fail(err, GANTRY_MODEL_GRAPH, GANTRY_STAGE_LOAD, node->name,
                           "If %s has no attribute %s", node->name, role);
        GT_TRY(gt_graph_inline_body(graph, variant->choices[k].node, body, err));
    }
    *out_graph = graph;
    return GANTRY_OK;
}

gantry_status gt_variant_choose(gt_variant *variant, const uint8_t *branches, gt_variant **out_child,
                                gantry_error *err)
{
    *out_child = NULL;
    gantry_session *session = variant->session;
    for (uint32_t k = 0; k < variant->children.count; k++)
        if (memcmp(variant->children.data[k].branches, branches, variant->choice_count) == 0) {
            *out_child = variant->children.data[k].variant;
            return (*out_child)->compiled || (*out_child)->choice_count
                       ? GANTRY_OK
                       : gt_fail(err, GANTRY_INTERNAL, GANTRY_STAGE_RUN, NULL,
                                 "the branches chosen could not be compiled before");
        }
    uint64_t begin = gt_now_ns();
    gt_graph *graph = NULL;
    gt_variant_child child = {.branches = gt_arena_copy(&variant->arena, branches, variant->choice_count)};
    if (!child.branches)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    GT_TRY(inline_choices(variant, branches, &graph, err));
    GT_TRY(gt_session_simplify(session, graph, err));
    GT_TRY(gt_variant_create(session, variant, graph, &child.variant, err));
    child.variant->body = variant->body;
    child.variant->simplify_ns = (double)(gt_now_ns() - begin);
    gantry_status status = gt_variant_compile(child.variant, err);
    if (status == GANTRY_OK && !gt_vec_push(session->allocator, &variant->children, child))
        status = gt_out_of_memory(err, GANTRY_STAGE_RUN);
    if (status != GANTRY_OK) {
        gt_variant_destroy(&child.variant);
        return status;
    }
    *out_child = child.variant;
    return GANTRY_OK;
}

/* ---- refused shapes --------------------------------------------------------------------------- */

static gantry_status add_refusals(gt_variant *alternate, const gt_variant *variant,
                                  const gt_partition *partition, const gantry_shaped_info *info,
                                  gantry_error *err)
{
    gt_allocator *allocator = variant->session->allocator;
    bool fits = true;
    for (uint32_t k = 0; k < variant->late.count; k++)
        fits = fits && gt_vec_push(allocator, &alternate->late, variant->late.data[k]);
    for (uint32_t k = 0; k < info->refused_count && k < 16; k++) {
        gt_late_refusal late = {info->refused_nodes[k], partition->provider, info->refusal};
        fits = fits && gt_vec_push(allocator, &alternate->late, late);
    }
    return fits ? GANTRY_OK : gt_out_of_memory(err, GANTRY_STAGE_RUN);
}

gantry_status gt_variant_refuse(gt_variant *variant, uint32_t partition, const gantry_shaped_info *info,
                                const int64_t *key, gantry_error *err)
{
    gantry_session *session = variant->session;
    gt_refused_shape shape = {0};
    shape.key = gt_arena_copy(&variant->arena, key, variant->segments[0].symbol_count * sizeof *key);
    if (!shape.key)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    /* Placement changes a graph (it clones and expands nodes), and this one has programs: ids are those of
     * the copy too. */
    gt_graph *graph = NULL;
    GT_TRY(gt_graph_clone(variant->graph, &graph, err));
    GT_TRY(gt_infer_graph(graph, err));
    GT_TRY(gt_variant_create(session, variant->parent, graph, &shape.alternate, err));
    shape.alternate->body = variant->body;
    gantry_status status =
        add_refusals(shape.alternate, variant, &variant->placement->partitions[partition], info, err);
    if (status == GANTRY_OK)
        status = gt_variant_compile(shape.alternate, err);
    if (status == GANTRY_OK && !gt_vec_push(session->allocator, &variant->refused, shape))
        status = gt_out_of_memory(err, GANTRY_STAGE_RUN);
    if (status == GANTRY_OK)
        atomic_fetch_add(&variant->refused_count, 1);
    else
        gt_variant_destroy(&shape.alternate);
    return status;
}
