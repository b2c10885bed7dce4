/* Composites as standard operators: what the rewrites recognise is written as the operator that ONNX has for
 * it, when the model's opset and the element type are ones where those who run the file have it too; else as
 * the nodes it was.
 *
 *     gantry.LayerNorm(x, scale, bias)   float32 since opset 17: LayerNormalization
 *                                        else: ReduceMean, Sub, Pow ... */
#include "infer.h"
#include "onnx_write.h"
#include "place.h"

#define F16_F32 (1u << GANTRY_FLOAT16 | 1u << GANTRY_FLOAT32)

typedef struct standard_form {
    const char *rule;      /* that makes the composite */
    const char *composite; /* in the domain "gantry" */
    const char *op_type; /* of ai.onnx, with the same inputs and attributes; NULL: always the nodes it was */
    int32_t opset;
    uint32_t types; /* element types (bits) for which runtimes that run the nodes have the operator too */
} standard_form;

/* x * sigmoid(x) is Swish since opset 24, but runtimes that know the opset do not all know the operator. Our
 * attention reads its operands before their heads are split, which no operator does. */
static const standard_form forms[] = {
    {"layer_norm", "LayerNorm", "LayerNormalization", 17, F16_F32 | 1u << GANTRY_FLOAT64},
    {"gelu", "Gelu", "Gelu", 20, F16_F32},
    {"silu", "Silu", NULL, INT32_MAX, 0},
    {"hard_swish", "HardSwish", "HardSwish", 14, F16_F32},
    {"attention", "Attention", NULL, INT32_MAX, 0},
};
#define FORM_COUNT (sizeof forms / sizeof *forms)

int32_t gt_write_rule_opset(const char *rule)
{
    for (size_t k = 0; k < FORM_COUNT; k++)
        if (strcmp(forms[k].rule, rule) == 0)
            return forms[k].opset;
    return 0;
}

static const standard_form *form_of(const gt_graph *graph, const gt_node *node, int64_t opset)
{
    const gt_value *x = gt_graph_value(graph, node->inputs[0]);
    for (size_t k = 0; k < FORM_COUNT; k++)
        if (strcmp(forms[k].composite, node->op_type) == 0)
            return opset >= forms[k].opset && (forms[k].types >> x->dtype & 1) ? &forms[k] : NULL;
    return NULL;
}

/* The node stays what it is, under another operator's name. */
static void rename_operator(gt_node *node, const standard_form *form, int64_t opset)
{
    node->op = gt_op_find("", form->op_type);
    node->op_type = node->op->name;
    node->domain = node->op->domain;
    node->opset = (int32_t)opset;
    node->version = gt_op_version(node->op, node->opset);
    node->composite = NULL;
}

static gantry_status make_standard(gt_graph *graph, int64_t opset, gantry_error *err)
{
    /* Nodes that an expansion adds come last, and composites among them are seen too. */
    for (uint32_t id = 0; id < graph->nodes.count; id++) {
        gt_node *node = graph->nodes.data[id];
        if (node->removed)
            continue;
        if (node->composite) {
            const standard_form *form = form_of(graph, node, opset);
            if (form)
                rename_operator(node, form, opset);
            else
                GT_TRY(gt_graph_expand_composite(graph, id, err));
        }
        for (uint32_t b = 0; b < node->body_count; b++)
            GT_TRY(make_standard(node->bodies[b].graph, opset, err));
    }
    return gt_graph_sort(graph, err);
}

gantry_status gt_graph_make_standard(gt_graph *graph, gantry_error *err)
{
    GT_TRY(make_standard(graph, gt_model_opset(graph->model), err));
    return gt_infer_graph(graph, err);
}
