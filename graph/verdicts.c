/* Verdicts: every provider is asked about every unit once, and what it answers is kept. */
#include "place_parts.h"

static void copy_text(char *target, const char *source, size_t size)
{
    memcpy(target, source, strnlen(source, size - 1));
}

/* Keeps one copy of equal refusals. What lies behind terminators and between fields is cleared first, so that
 * equal refusals have equal bytes. */
static gantry_status intern_refusal(gt_placer *placer, const gantry_refusal *refusal,
                                    const gantry_refusal **out_refusal, gantry_error *err)
{
    gantry_refusal key;
    memset(&key, 0, sizeof key);
    key.code = refusal->code;
    copy_text(key.operand, refusal->operand, sizeof key.operand);
    copy_text(key.actual, refusal->actual, sizeof key.actual);
    copy_text(key.required, refusal->required, sizeof key.required);
    copy_text(key.remedy, refusal->remedy, sizeof key.remedy);
    copy_text(key.detail, refusal->detail, sizeof key.detail);
    key.actual_number = refusal->actual_number;
    key.limit_number = refusal->limit_number;
    uint32_t found = gt_map_get(&placer->refusals, &key, sizeof key, GT_NONE);
    if (found != GT_NONE) {
        *out_refusal = placer->refusal_list.data[found];
        return GANTRY_OK;
    }
    gantry_refusal *copy = (gantry_refusal *)gt_arena_copy(&placer->placement->arena, &key, sizeof key);
    if (!copy || !gt_map_set(&placer->refusals, copy, sizeof *copy, placer->refusal_list.count) ||
        !gt_vec_push(placer->allocator, &placer->refusal_list, copy))
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    *out_refusal = copy;
    return GANTRY_OK;
}

/* A no without a code of the closed set counts as no_kernel. */
static void complete_refusal(gantry_refusal *refusal, const char *op_type)
{
    if (refusal->code > GANTRY_REFUSE_NONE && refusal->code < GANTRY_REFUSE_COUNT)
        return;
    refusal->code = GANTRY_REFUSE_no_kernel;
    snprintf(refusal->operand, sizeof refusal->operand, "%s", op_type);
}

static gantry_status keep_verdict(gt_placer *placer, gantry_verdict *verdict, const char *op_type,
                                  gt_kept_verdict *out_kept, gantry_error *err)
{
    out_kept->asked = true;
    if (!verdict->supported) {
        complete_refusal(&verdict->refusal, op_type);
        return intern_refusal(placer, &verdict->refusal, &out_kept->refusal, err);
    }
    out_kept->supported = true;
    out_kept->estimate_source = verdict->estimate_source ? verdict->estimate_source : 'e';
    /* A verdict starts from zero: without a number and without a source there is no estimate. */
    bool given = verdict->estimate_ns > 0 || verdict->estimate_source;
    bool sane = isfinite(verdict->estimate_ns) && verdict->estimate_ns >= 0;
    out_kept->estimate_ns = given && sane ? verdict->estimate_ns : NAN;
    out_kept->executes_in = verdict->executes_in;
    return GANTRY_OK;
}

static gantry_status keep_absence(gt_placer *placer, const gt_place_provider *provider,
                                  gt_kept_verdict *out_kept, gantry_error *err)
{
    gantry_refusal refusal = {
        .code = GANTRY_REFUSE_provider_absent, .actual_number = NAN, .limit_number = NAN};
    snprintf(refusal.detail, sizeof refusal.detail, "%s", provider->detail ? provider->detail : "");
    return intern_refusal(placer, &refusal, &out_kept->refusal, err);
}

/* A judge that fails has not refused: its words are kept as the reason, and the next provider is asked. */
static void judge_failed(gantry_verdict *verdict, gantry_status status)
{
    verdict->supported = 0;
    verdict->refusal =
        (gantry_refusal){.code = GANTRY_REFUSE_provider_error, .actual_number = NAN, .limit_number = NAN};
    snprintf(verdict->refusal.detail, sizeof verdict->refusal.detail, "its judge returned status %d",
             (int)status);
}

gantry_status gt_verdicts_judge(gt_placer *placer, const gt_graph *graph, const uint32_t *nodes,
                                uint32_t count, uint32_t provider_index, gt_kept_verdict *out_verdict,
                                gantry_error *err)
{
    const gt_place_provider *provider = &placer->providers[provider_index];
    *out_verdict = (gt_kept_verdict){
        .estimate_ns = NAN, .estimate_here_ns = NAN, .estimate_there_ns = NAN, .boundary_ns = NAN};
    if (!provider->available)
        return keep_absence(placer, provider, out_verdict, err);
    gantry_verdict verdict = {.struct_bytes = sizeof verdict};
    verdict.refusal.actual_number = verdict.refusal.limit_number = NAN;
    gantry_status status = provider->judge(provider->self, graph, nodes, count, &verdict);
    if (status == GANTRY_RESOURCE)
        return gt_out_of_memory(err, GANTRY_STAGE_PLACE);
    if (status != GANTRY_OK)
        judge_failed(&verdict, status);
    return keep_verdict(placer, &verdict, graph->nodes.data[nodes[0]]->op_type, out_verdict, err);
}

static gantry_status judge_unit(gt_placer *placer, gt_unit *unit, uint32_t *out_able, gantry_error *err)
{
    for (uint32_t p = 0; p < placer->provider_count; p++) {
        GT_TRY(gt_verdicts_judge(placer, placer->graph, unit->nodes, unit->node_count, p, &unit->verdicts[p],
                                 err));
        if (unit->verdicts[p].supported)
            *out_able |= 1u << p;
    }
    return GANTRY_OK;
}

/* The host computes it at bind, whoever could. */
static gantry_status judge_host_unit(gt_placer *placer, gt_unit *unit, gantry_error *err)
{
    uint32_t able = 0;
    GT_TRY(judge_unit(placer, unit, &able, err));
    for (uint32_t p = 0; p < placer->provider_count; p++)
        if (able & 1u << p && gt_placer_domain(placer, p) != 0)
            GT_TRY(gt_verdicts_overrule(placer, &unit->verdicts[p], GANTRY_REFUSE_host_policy, "",
                                        "its result is known at bind", "host", "", err));
    return GANTRY_OK;
}

gantry_status gt_verdicts_collect(gt_placer *placer, gantry_error *err)
{
    gt_placement *placement = placer->placement;
    for (uint32_t k = 0; k < placement->unit_count; k++)
        GT_TRY(judge_unit(placer, &placement->units[k], &placer->able[k], err));
    for (uint32_t k = 0; k < placement->host_unit_count; k++)
        GT_TRY(judge_host_unit(placer, &placement->host_units[k], err));
    return GANTRY_OK;
}

gantry_status gt_verdicts_overrule_with(gt_placer *placer, gt_kept_verdict *verdict,
                                        const gantry_refusal *refusal, gantry_error *err)
{
    verdict->supported = false;
    return intern_refusal(placer, refusal, &verdict->refusal, err);
}

gantry_status gt_verdicts_overrule(gt_placer *placer, gt_kept_verdict *verdict, gantry_refusal_code code,
                                   const char *operand, const char *actual, const char *required,
                                   const char *remedy, gantry_error *err)
{
    gantry_verdict refused = {.struct_bytes = sizeof refused};
    refused.refusal.actual_number = refused.refusal.limit_number = NAN;
    gantry_refuse(&refused, code, operand, actual, required, remedy);
    return gt_verdicts_overrule_with(placer, verdict, &refused.refusal, err);
}
