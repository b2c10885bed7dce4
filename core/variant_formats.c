/* In which format values cross the edges of partitions: the default, unless both ends, in one domain, name
 * the same other one, or an end requires its own and converts.
 *
 *     ask     what each partition prefers or requires, before any of them is compiled
 *     settle  required formats stand; a preferred one is taken where the other end names it too
 *
 * A value that one partition leaves in a format that others read is not converted for them. */
#include "answer.h"
#include "session.h"
#include "variant_parts.h"

static bool same_format(const gantry_format *a, const gantry_format *b)
{
    return a && b && a->tag == b->tag && a->dtype == b->dtype && a->quantization == b->quantization;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Dense elements are of the value's own type, and another layout needs somebody who converts. */
static gantry_status check_format(const gantry_provider *table, const char *provider,
                                  const gantry_edge_format *edge, const gantry_value_view *value,
                                  gantry_error *err)
{
    const gantry_format *format = &edge->preferred;
    bool own = edge->required || format->tag;
    const char *wrong = !own                                                        ? NULL
                        : format->dtype <= 0 || format->dtype >= GANTRY_DTYPE_COUNT ? "a type that is none"
                        : !format->tag && format->dtype != value->dtype ? "the default layout in another type"
                        : format->tag && !table->convert ? "a layout, and the provider has no convert"
                                                         : NULL;
    return wrong ? gt_provider_wrong(err, GANTRY_STAGE_COMPILE, provider, "formats",
                                     "provider %s: formats requires %s for %.200s (type %d, tag %u)",
                                     provider, wrong, value->name, (int)format->dtype, format->tag)
                 : GANTRY_OK;
}

gantry_status gt_formats_ask(const gantry_provider *table, const char *provider, gt_program *slot,
                             gantry_error *err)
{
    const gantry_graph_view *view = &slot->view.view;
    uint32_t count = view->input_count + view->output_count;
    slot->edges = GT_ARENA_ARRAY(&slot->arena, gantry_edge_format, count);
    slot->input_formats = GT_ARENA_ARRAY(&slot->arena, gantry_format, view->input_count);
    slot->output_formats = GT_ARENA_ARRAY(&slot->arena, gantry_format, view->output_count);
    if (!slot->edges || !slot->input_formats || !slot->output_formats)
        return gt_out_of_memory(err, GANTRY_STAGE_COMPILE);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t at = k < view->input_count ? view->inputs[k] : view->outputs[k - view->input_count];
        slot->edges[k].preferred.dtype = view->values[at]->dtype;
    }
    gt_error_clear(err);
    if (table->formats)
        GT_TRY(gt_provider_answer(
            provider, "formats", GANTRY_STAGE_COMPILE,
            table->formats(table->self, view, slot->edges, slot->edges + view->input_count), table, err));
    for (uint32_t k = 0; k < count; k++) {
        uint32_t at = k < view->input_count ? view->inputs[k] : view->outputs[k - view->input_count];
        GT_TRY(check_format(table, provider, &slot->edges[k], view->values[at], err));
    }
    return GANTRY_OK;
}

/* ---- both ends ------------------------------------------------------------------------------- */

/* Whether a value can go from one partition to the other without leaving its memory. */
static bool are_close(const gt_variant *variant, uint32_t a, uint32_t b)
{
    const gt_partition *partitions = variant->placement->partitions;
    const gt_session_provider *providers = variant->session->providers;
    return !partitions[a].control && !partitions[b].control &&
           partitions[a].segment == partitions[b].segment &&
           providers[partitions[a].provider].domain == providers[partitions[b].provider].domain;
}

static uint32_t input_of(const gt_partition *partition, uint32_t value)
{
    for (uint32_t k = 0; k < partition->input_count; k++)
        if (partition->inputs[k] == value)
            return k;
    return GT_NONE;
}

static uint32_t output_of(const gt_partition *partition, uint32_t value)
{
    for (uint32_t k = 0; k < partition->output_count; k++)
        if (partition->outputs[k] == value)
            return k;
    return GT_NONE;
}

/* What an end names: of a program that is kept, what it was compiled for. NULL: it was not asked. */
static const gantry_format *named_input(const gt_program *program, uint32_t k)
{
    return program->program ? &program->input_formats[k]
           : program->edges ? &program->edges[k].preferred
                            : NULL;
}

static bool is_read_as(const gt_variant *variant, uint32_t index, uint32_t value, const gantry_format *format)
{
    for (uint32_t p = 0; p < variant->placement->partition_count; p++) {
        uint32_t k = p != index && are_close(variant, index, p)
                         ? input_of(&variant->placement->partitions[p], value)
                         : GT_NONE;
        if (k != GT_NONE && same_format(named_input(&variant->programs[p], k), format))
            return true;
    }
    return false;
}

bool gt_formats_is_given(const gt_variant *variant, uint32_t index, uint32_t k)
{
    const gt_partition *partition = &variant->placement->partitions[index];
    uint32_t producer = variant->graph->values.data[partition->inputs[k]]->producer;
    uint32_t maker = producer == GT_NONE ? GT_NONE : variant->placement->partition_of_node[producer];
    if (maker == GT_NONE || maker == index || !are_close(variant, maker, index))
        return false;
    uint32_t output = output_of(&variant->placement->partitions[maker], partition->inputs[k]);
    const gantry_format *format = output == GT_NONE || !variant->programs[maker].output_formats
                                      ? NULL
                                      : &variant->programs[maker].output_formats[output];
    return format && format->tag && same_format(format, named_input(&variant->programs[index], k));
}

void gt_formats_settle_outputs(gt_variant *variant, uint32_t index)
{
    gt_program *slot = &variant->programs[index];
    const gantry_graph_view *view = &slot->view.view;
    for (uint32_t k = 0; k < view->output_count; k++) {
        const gantry_edge_format *edge = &slot->edges[view->input_count + k];
        bool taken =
            edge->required ||
            (edge->preferred.tag &&
             is_read_as(variant, index, variant->placement->partitions[index].outputs[k], &edge->preferred));
        slot->output_formats[k] =
            taken ? edge->preferred : (gantry_format){view->values[view->outputs[k]]->dtype, 0, 0};
    }
}

void gt_formats_settle_inputs(gt_variant *variant, uint32_t index)
{
    gt_program *slot = &variant->programs[index];
    const gantry_graph_view *view = &slot->view.view;
    for (uint32_t k = 0; k < view->input_count; k++)
        slot->input_formats[k] = slot->edges[k].required || gt_formats_is_given(variant, index, k)
                                     ? slot->edges[k].preferred
                                     : (gantry_format){view->values[view->inputs[k]]->dtype, 0, 0};
}

/* ---- what a plan has to do ------------------------------------------------------------------- */

static bool is_graph_output(const gt_graph *graph, uint32_t value)
{
    for (uint32_t k = 0; k < graph->outputs.count; k++)
        if (graph->outputs.data[k] == value)
            return true;
    return false;
}

static bool is_result(const gt_variant *variant, uint32_t value)
{
    for (uint32_t s = 0; s < variant->segment_count; s++)
        for (uint32_t k = 0; k < variant->segments[s].result_count; k++)
            if (variant->segments[s].results[k].value == value)
                return true;
    return false;
}

/* A body that captures a value gets it from the graph around. */
static bool is_captured(const gt_variant *variant, const gt_partition *partition, uint32_t value)
{
    for (uint32_t n = 0; partition->control && n < partition->node_count; n++) {
        const gt_node *node = variant->graph->nodes.data[partition->nodes[n]];
        for (uint32_t b = 0; b < node->body_count; b++)
            for (uint32_t v = 0; v < node->bodies[b].graph->values.count; v++)
                if (node->bodies[b].graph->values.data[v]->captured == value)
                    return true;
    }
    return false;
}

bool gt_formats_needs_default(const gt_variant *variant, uint32_t index, uint32_t k)
{
    uint32_t value = variant->placement->partitions[index].outputs[k];
    bool needs = is_graph_output(variant->graph, value) || is_result(variant, value);
    for (uint32_t p = 0; p < variant->placement->partition_count && !needs; p++) {
        uint32_t input = p != index ? input_of(&variant->placement->partitions[p], value) : GT_NONE;
        needs =
            (input != GT_NONE && !(are_close(variant, index, p) && gt_formats_is_given(variant, p, input))) ||
            is_captured(variant, &variant->placement->partitions[p], value);
    }
    return needs;
}
