/* Placement in one straight line: units, verdicts, policies, choice, worth, partitions, boundaries, totals.
 */
#include "place_parts.h"

#include "infer.h"

#include "base/text.h"

/* Domains are bits of a 64-bit set. */
#define MAX_DOMAINS 64u
/* An error names this many nodes without a provider; the report has them all. */
#define MAX_NAMED 8u

static gantry_status check_arguments(const gt_placer *placer, gantry_error *err)
{
    if (placer->provider_count == 0 || placer->provider_count > GT_MAX_PROVIDERS)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLACE, NULL,
                       "%u providers were asked for; 1 to %u are possible (option providers)",
                       placer->provider_count, GT_MAX_PROVIDERS);
    if (placer->domain_count == 0 || placer->domain_count > MAX_DOMAINS)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLACE, NULL,
                       "%u domains; 1 to %u are possible", placer->domain_count, MAX_DOMAINS);
    for (uint32_t p = 0; p < placer->provider_count; p++)
        if (placer->providers[p].domain >= placer->domain_count)
            return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLACE, NULL,
                           "provider '%s' is in domain %u of %u", placer->providers[p].name,
                           placer->providers[p].domain, placer->domain_count);
    return GANTRY_OK;
}

/* ---- choice ---------------------------------------------------------------------------------- */

/* The executor runs a control node when every refusal says no more than that the provider has no control
 * flow. */
static bool executor_may_run(const gt_placer *placer, const gt_unit *unit)
{
    if (strcmp(unit->kind, "control") != 0 || placer->host == GT_NONE)
        return false;
    const gt_kept_verdict *host = &unit->verdicts[placer->host];
    return host->refusal && (host->refusal->code == GANTRY_REFUSE_control_flow ||
                             host->refusal->code == GANTRY_REFUSE_no_kernel);
}

static void choose_provider(gt_placer *placer, uint32_t index)
{
    gt_unit *unit = &placer->placement->units[index];
    for (uint32_t p = 0; p < placer->provider_count && unit->provider == GT_NONE; p++)
        if (unit->verdicts[p].supported)
            unit->provider = p;
    if (unit->provider != GT_NONE || !executor_may_run(placer, unit))
        return;
    gt_kept_verdict *verdict = &unit->verdicts[placer->host];
    unit->provider = placer->host;
    verdict->supported = true;
    verdict->refusal = NULL;
    placer->executor[index] = 1;
}

/* ---- nobody supports it ---------------------------------------------------------------------- */

static void describe_types(const gt_graph *graph, const gt_node *node, gt_text *text)
{
    for (uint32_t k = 0, shown = 0; k < node->input_count; k++)
        if (node->inputs[k] != GT_NONE)
            gt_text_printf(text, "%s%s", shown++ ? ", " : "",
                           gantry_dtype_text(graph->values.data[node->inputs[k]]->dtype));
}

static void describe_refusal(const gt_place_provider *provider, const gantry_refusal *refusal, gt_text *text)
{
    gt_text_printf(text, "%s: %s", provider->name, gantry_refusal_text(refusal->code));
    if (refusal->operand[0])
        gt_text_printf(text, " (%s)", refusal->operand);
    if (refusal->actual[0])
        gt_text_printf(text, ", found %s", refusal->actual);
    if (refusal->required[0])
        gt_text_printf(text, ", needs %s", refusal->required);
    if (!isnan(refusal->actual_number) && !isnan(refusal->limit_number))
        gt_text_printf(text, ", %g against a limit of %g", refusal->actual_number, refusal->limit_number);
    if (refusal->detail[0])
        gt_text_printf(text, " (%s)", refusal->detail);
}

static void describe_unsupported(const gt_placer *placer, const gt_unit *unit, gt_text *text)
{
    const gt_node *node = placer->graph->nodes.data[unit->nodes[0]];
    gt_text_printf(text, "no provider supports node '%s' (%s%s%s version %d, inputs ", node->name,
                   node->domain, node->domain[0] ? "." : "", node->op_type, node->version);
    describe_types(placer->graph, node, text);
    gt_text_printf(text, "): ");
    for (uint32_t p = 0; p < placer->provider_count; p++) {
        gt_text_printf(text, "%s", p ? "; " : "");
        describe_refusal(&placer->providers[p], unit->verdicts[p].refusal, text);
    }
}

static gantry_status unsupported(const gt_placer *placer, uint32_t first, uint32_t count, gantry_error *err)
{
    const gt_placement *placement = placer->placement;
    const char *name = placer->graph->nodes.data[placement->units[first].nodes[0]]->name;
    gt_text text;
    gt_text_init(&text, placer->allocator);
    describe_unsupported(placer, &placement->units[first], &text);
    if (count > 1)
        gt_text_printf(&text, ". %u nodes have no provider:", count);
    for (uint32_t k = first, shown = 0; count > 1 && k < placement->unit_count && shown < MAX_NAMED; k++)
        if (placement->units[k].provider == GT_NONE)
            gt_text_printf(&text, "%s '%s'", shown++ ? "," : "",
                           placer->graph->nodes.data[placement->units[k].nodes[0]]->name);
    gt_text_printf(&text,
                   ". Name a provider that can run %s in option providers; the report lists every refusal",
                   count > 1 ? "them" : "it");
    gantry_status status = text.failed
                               ? gt_out_of_memory(err, GANTRY_STAGE_PLACE)
                               : gt_fail(err, GANTRY_UNSUPPORTED, GANTRY_STAGE_PLACE, name, "%s", text.data);
    gt_text_free(&text);
    return status;
}

static gantry_status choose_all(gt_placer *placer, gantry_error *err)
{
    gt_placement *placement = placer->placement;
    uint32_t first = GT_NONE, count = 0;
    for (uint32_t k = 0; k < placement->unit_count; k++) {
        choose_provider(placer, k);
        if (placement->units[k].provider != GT_NONE)
            continue;
        count++;
        first = first == GT_NONE ? k : first;
    }
    return count ? unsupported(placer, first, count, err) : GANTRY_OK;
}

/* ---- the straight line ----------------------------------------------------------------------- */

static void forget_units(gt_placer *placer)
{
    gt_map_free(&placer->refusals);
    placer->refusal_list.count = 0;
    gt_arena_clear(&placer->scratch);
    gt_arena_clear(&placer->placement->arena);
    *placer->placement =
        (gt_placement){.arena = placer->placement->arena, .chosen_ns = NAN, .all_cpu_ns = NAN};
}

/* Shapes flow from the root into bodies: inference starts there. */
static gantry_status infer_again(gt_placer *placer, gantry_error *err)
{
    gt_graph *root = placer->graph;
    GT_TRY(gt_graph_sort(placer->graph, err));
    while (root->parent)
        root = root->parent;
    GT_TRY(gt_infer_graph(root, err));
    return placer->options->show_graph(placer->options->show_self, placer->graph, err);
}

/* Each round expands at least one composite, and bodies hold fewer nodes than the model: this ends. */
static gantry_status judge_units(gt_placer *placer, gantry_error *err)
{
    for (bool again = true; again;) {
        forget_units(placer);
        GT_TRY(gt_units_form(placer, err));
        GT_TRY(gt_verdicts_collect(placer, err));
        GT_TRY(gt_policies_apply_late(placer, err));
        GT_TRY(gt_units_expand(placer, &again, err));
        if (again)
            GT_TRY(infer_again(placer, err));
    }
    GT_TRY(gt_typical_bytes(placer->graph, &placer->scratch, &placer->bytes, err));
    return gt_policies_apply(placer, err);
}

static gantry_status place_units(gt_placer *placer, gantry_error *err)
{
    GT_TRY(judge_units(placer, err));
    GT_TRY(choose_all(placer, err));
    GT_TRY(gt_edges_build(placer, err));
    if (placer->options->by_cost)
        GT_TRY(gt_cost_demote(placer, err));
    GT_TRY(gt_dequantize_clone(placer, err));
    GT_TRY(gt_partitions_form(placer, err));
    GT_TRY(gt_boundaries_find(placer, err));
    placer->placement->below_precision_count = gt_policies_count_below(placer);
    return gt_cost_totals(placer, err);
}

/* The CPU where there is one: the last provider that computes on the host. */
static uint32_t find_host(const gt_place_provider *providers, uint32_t count)
{
    for (uint32_t p = count; p-- > 0;)
        if (providers[p].domain == 0 && providers[p].available)
            return p;
    return GT_NONE;
}

gantry_status gt_place(gt_graph *graph, const gt_place_provider *providers, uint32_t provider_count,
                       const gt_place_domain *domains, uint32_t domain_count, const gt_place_options *options,
                       gt_placement **out_placement, gantry_error *err)
{
    gt_placer placer = {.graph = graph,
                        .providers = providers,
                        .provider_count = provider_count,
                        .domains = domains,
                        .domain_count = domain_count,
                        .options = options,
                        .allocator = graph->model->allocator};
    *out_placement = NULL;
    GT_TRY(check_arguments(&placer, err));
    placer.placement = GT_NEW(placer.allocator, gt_placement);
    if (!placer.placement)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    gt_arena_init(&placer.placement->arena, placer.allocator);
    gt_arena_init(&placer.scratch, placer.allocator);
    gt_map_init(&placer.refusals, placer.allocator);
    placer.host = find_host(providers, provider_count);
    gantry_status status = place_units(&placer, err);
    gt_vec_free(placer.allocator, &placer.refusal_list);
    gt_map_free(&placer.refusals);
    gt_arena_clear(&placer.scratch);
    if (status == GANTRY_OK || status == GANTRY_UNSUPPORTED)
        *out_placement = placer.placement;
    else
        gt_placement_destroy(placer.allocator, &placer.placement);
    return status;
}

void gt_placement_destroy(gt_allocator *allocator, gt_placement **placement)
{
    if (!placement || !*placement)
        return;
    gt_arena_clear(&(*placement)->arena);
    gt_free(allocator, *placement);
    *placement = NULL;
}
