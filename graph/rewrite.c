/* The driver of the rewrites: the table of rules, and the loop that applies them to a graph and its bodies
 * until nothing changes.
 *
 *     infer -> [ rules, rules again until a round changes nothing ] -> infer -> ... until a whole turn
 * changed nothing
 *
 * Inference is the dear part, so rules run to their own fixed point between two inferences. Every rule makes
 * the graph smaller by some measure (nodes, inputs that are not constant, distinct expressions), so the loops
 * end; the bounds below are for the day that a rule is wrong about that. */
#include "rewrite_internal.h"

/* Turns and rounds that real models need are 2 and 4; deep nests of constant Ifs need one turn a level. */
#define MAX_TURNS 64
#define MAX_ROUNDS 64

static const gt_rewrite_rule rules[] = {
    {"dead_code", "removes nodes whose results nobody reads", gt_rewrite_dead_code},
    {"if_inline", "puts the branch in place of an If whose condition is known", gt_rewrite_if_inline},
    {"shape_fold", "makes constants of results that inference knows", gt_rewrite_shape_fold},
    {"fold", "computes nodes whose inputs are all constants", gt_rewrite_fold},
    {"identity", "removes nodes that pass their input through, and merges transposes", gt_rewrite_identity},
    {"cse", "computes equal expressions once", gt_rewrite_cse},
    {"gather_first", "looks rows of a constant table up before computing on them", gt_rewrite_gather_first},
    {"conv_mul", "moves a constant factor per channel into the weights of a convolution",
     gt_rewrite_conv_mul},
    {"conv_add", "moves a constant addend per channel into the bias of a convolution", gt_rewrite_conv_add},
    {"conv_batchnorm", "moves a batch normalization into the convolution before it",
     gt_rewrite_conv_batchnorm},
    {"gemm_batchnorm", "moves a batch normalization into the matrix product before it",
     gt_rewrite_gemm_batchnorm},
    {"layer_norm", "recognises a decomposed layer normalization", gt_rewrite_layer_norm},
    {"gelu", "recognises a decomposed GELU, by erf or by tanh", gt_rewrite_gelu},
    {"silu", "recognises x * sigmoid(x)", gt_rewrite_silu},
    {"hard_swish", "recognises x * hardsigmoid(x), also written with Clip", gt_rewrite_hard_swish},
    {"attention", "recognises softmax(q k^T) v with what splits and merges the heads", gt_rewrite_attention},
};

const gt_rewrite_rule *gt_rewrite_table(uint32_t *out_count)
{
    *out_count = sizeof rules / sizeof rules[0];
    return rules;
}

bool gt_rewrite_is_enabled(const gt_rewrite_options *options, const char *rule)
{
    for (uint32_t k = 0; k < options->disabled_count; k++)
        if (strcmp(options->disabled[k], rule) == 0)
            return false;
    return true;
}

/* Captures of what has become a constant are that constant. */
static gantry_status settle_captures(gt_graph *body, gantry_error *err)
{
    for (uint32_t v = 0; v < body->values.count; v++)
        GT_TRY(gt_graph_settle_capture(body, v, err));
    return GANTRY_OK;
}

/* Applies context->rule to graph, then to the bodies of the nodes that are left. */
static gantry_status apply_to_tree(gt_rewrite_context *context, gt_graph *graph, bool *inout_changed,
                                   gantry_error *err)
{
    bool changed = false;
    gt_arena_clear(&context->scratch);
    GT_TRY(gt_rewrite_index(context, graph, err));
    GT_TRY(context->rule->apply(context, graph, &changed, err));
    if (changed) {
        *inout_changed = true;
        gt_graph_changed(graph);
        GT_TRY(gt_graph_sort(graph, err));
    }
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        for (uint32_t b = 0; b < node->body_count && !node->removed; b++) {
            GT_TRY(settle_captures(node->bodies[b].graph, err));
            GT_TRY(apply_to_tree(context, node->bodies[b].graph, inout_changed, err));
        }
    }
    return GANTRY_OK;
}

static gantry_status apply_round(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                 gantry_error *err)
{
    *out_changed = false;
    context->misses.count = 0;
    for (uint32_t k = 0; k < sizeof rules / sizeof rules[0]; k++) {
        if (!gt_rewrite_is_enabled(context->options, rules[k].name))
            continue;
        context->rule = &rules[k];
        GT_TRY(apply_to_tree(context, graph, out_changed, err));
        if (context->infer_now)
            GT_TRY(gt_infer_graph(graph, err));
        context->infer_now = false;
    }
    return GANTRY_OK;
}

static gantry_status apply_all(gt_rewrite_context *context, gt_graph *graph, gantry_error *err)
{
    for (uint32_t turn = 0; turn < MAX_TURNS; turn++) {
        bool changed = true;
        uint32_t rounds = 0;
        while (changed && rounds < MAX_ROUNDS) {
            GT_TRY(apply_round(context, graph, &changed, err));
            rounds++;
        }
        if (rounds == 1 && !changed)
            break;
        GT_TRY(gt_infer_graph(graph, err));
    }
    GT_TRY(gt_rewrite_commit_misses(context, err));
    return gt_rewrite_note_recomputed(context, graph, err);
}

static gantry_status sort_tree(gt_graph *graph, gantry_error *err)
{
    GT_TRY(gt_graph_sort(graph, err));
    for (uint32_t k = 0; k < graph->order.count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        for (uint32_t b = 0; b < node->body_count; b++)
            GT_TRY(sort_tree(node->bodies[b].graph, err));
    }
    return GANTRY_OK;
}

gantry_status gt_simplify(gt_graph *graph, const gt_rewrite_options *options, gantry_error *err)
{
    GT_TRY(sort_tree(graph, err));
    GT_TRY(gt_infer_graph(graph, err));
    if (!options->enabled)
        return GANTRY_OK;
    gt_allocator *allocator = graph->model->allocator;
    gt_rewrite_context context = {.options = options,
                                  .model = graph->model,
                                  .allocator = allocator,
                                  .is_variant = graph != graph->model->root};
    gt_arena_init(&context.scratch, allocator);
    gt_map_init(&context.evaluate_failures, allocator);
    gantry_status status = apply_all(&context, graph, err);
    gt_arena_clear(&context.scratch);
    gt_map_free(&context.evaluate_failures);
    gt_vec_free(allocator, &context.misses);
    gt_vec_free(allocator, &context.uses);
    gt_vec_free(allocator, &context.values);
    return status;
}
