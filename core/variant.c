/* Variants: from a graph to placed, partitioned and compiled programs; and the choice of branches known at
 * bind. */
#include "session.h"
#include "variant_parts.h"

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
    variant->input_domains = session->input_domains;
    variant->output_domains = session->output_domains;
    variant->iterations = 1;
    gt_arena_init(&variant->arena, session->allocator);
    *out_variant = variant;
    return GANTRY_OK;
}

static void drop_programs(gt_variant *variant)
{
    gantry_session *session = variant->session;
    if (variant->programs)
        for (uint32_t k = 0; k < variant->placement->partition_count; k++)
            gt_variant_destroy_program(session, variant->placement, variant->programs, k);
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

/* ---- choices --------------------------------------------------------------------------------- */

gantry_status gt_variant_compile(gt_variant *variant, gantry_error *err)
{
    if (variant->compiled || (variant->choice_count && variant->captures))
        return GANTRY_OK;
    GT_TRY(gt_variant_find_choices(variant, err));
    if (variant->choice_count)
        return gt_variant_find_captures(variant, err);
    GT_TRY(gt_variant_place(variant, err));
    GT_TRY(gt_variant_find_captures(variant, err));
    GT_TRY(gt_variant_make_segments(variant, err));
    variant->compiled = true;
    return GANTRY_OK;
}

/* The graph around a body gives and takes the same, whichever way the body is placed. */
static void keep_edges(gt_variant *variant, const gt_variant *first)
{
    variant->body = first->body;
    variant->first = first->first ? first->first : first;
    variant->input_domains = first->input_domains;
    variant->output_domains = first->output_domains;
    variant->iterations = first->iterations;
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
    keep_edges(child.variant, variant);
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

/* ---- refused shapes -------------------------------------------------------------------------- */

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
        if (late.refusal.code <= GANTRY_REFUSE_NONE || late.refusal.code >= GANTRY_REFUSE_COUNT)
            late.refusal.code = GANTRY_REFUSE_no_kernel;
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
    keep_edges(shape.alternate, variant);
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
