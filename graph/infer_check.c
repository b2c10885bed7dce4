/* Is a node what the operator table says: version, number of inputs and outputs, attributes, types. */
#include "infer_rules.h"

static gantry_status check_version(gt_infer *infer)
{
    const gt_op *op = infer->node->op;
    gt_node *node = infer->node;
    if (node->opset > GT_NEWEST_OPSET && !op->domain[0])
        return gt_fail(
            infer->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_LOAD, node->name,
            "node '%s': the model uses %s of opset %d; opsets up to %d are known. Convert the model to one "
            "of these.",
            node->name, op->name, node->opset, GT_NEWEST_OPSET);
    node->version = gt_op_version(op, node->opset);
    if (node->version == 0)
        return gt_fail(infer->err, GANTRY_MODEL_GRAPH, GANTRY_STAGE_LOAD, node->name,
                       "node '%s': operator %s came with opset %d, but the model is stamped opset %d",
                       node->name, op->name, op->since[0], node->opset);
    if (node->version < op->implemented_from)
        return gt_fail(
            infer->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_LOAD, node->name,
            "node '%s': %s version %d (the model is stamped opset %d) is not implemented; version %d and "
            "later are. Convert the model to opset %d or later.",
            node->name, op->name, node->version, node->opset, op->implemented_from, op->implemented_from);
    return GANTRY_OK;
}

static gantry_status check_arity(gt_infer *infer)
{
    const gt_op *op = infer->node->op;
    const gt_node *node = infer->node;
    int32_t inputs = (int32_t)node->input_count, outputs = (int32_t)node->output_count;
    if (inputs < op->min_inputs || (op->max_inputs >= 0 && inputs > op->max_inputs))
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "%d inputs are given, %s version %d takes %d to %d",
                             inputs, op->name, node->version, op->min_inputs,
                             op->max_inputs < 0 ? inputs : op->max_inputs);
    if (outputs < op->min_outputs || (op->max_outputs >= 0 && outputs > op->max_outputs))
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH,
                             "%d outputs are asked for, %s version %d has %d to %d", outputs, op->name,
                             node->version, op->min_outputs, op->max_outputs < 0 ? outputs : op->max_outputs);
    if (op->flags & GT_OP_CONTROL)
        return GANTRY_OK;
    for (int32_t k = 0; k < op->min_inputs; k++)
        if (!gt_in_present(infer, (uint32_t)k) && op->max_inputs >= 0)
            return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "input %d is left out, but required", k);
    return GANTRY_OK;
}

/* ---- types */

static void list_types(uint32_t mask, char *out, size_t room)
{
    size_t used = 0;
    out[0] = 0;
    for (unsigned t = 1; t < GANTRY_DTYPE_COUNT && used < room; t++)
        if (mask >> t & 1)
            used += (size_t)snprintf(out + used, room - used, "%s%s", used ? ", " : "",
                                     gantry_dtype_text((gantry_dtype)t));
}

static gantry_status check_types(gt_infer *infer)
{
    const gt_op *op = infer->node->op;
    for (uint32_t k = 0; k < infer->node->input_count && op->typed_inputs > 0; k++) {
        const gt_value *value = gt_in_value(infer, k);
        uint32_t mask = op->input_types[k < (uint32_t)op->typed_inputs ? k : (uint32_t)op->typed_inputs - 1];
        if (!value || !mask || !value->dtype || value->kind != GANTRY_KIND_TENSOR ||
            (mask >> value->dtype & 1))
            continue;
        char list[400];
        list_types(mask, list, sizeof list);
        return gt_infer_fail(infer, GANTRY_MODEL_TYPE, "input %u, '%s', is %s, but %s takes %s there", k,
                             value->name, gantry_dtype_text(value->dtype), op->name, list);
    }
    return GANTRY_OK;
}

/* ---- attributes */

/* The kinds of an attribute in the table's list, or NULL when it is not there. */
static const char *find_attribute(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, name, length) == 0 && at[length] == ':')
            return at + length + 1;
    return NULL;
}

static const struct {
    gantry_attribute_kind kind;
    char letter;
    const char *text;
} attribute_kinds[] = {{GANTRY_ATTR_FLOAT, 'f', "a float"},
                       {GANTRY_ATTR_INT, 'i', "an integer"},
                       {GANTRY_ATTR_STRING, 's', "a string"},
                       {GANTRY_ATTR_TENSOR, 't', "a tensor"},
                       {GANTRY_ATTR_FLOATS, 'F', "a list of floats"},
                       {GANTRY_ATTR_INTS, 'I', "a list of integers"},
                       {GANTRY_ATTR_STRINGS, 'S', "a list of strings"}};
#define KIND_COUNT (sizeof attribute_kinds / sizeof *attribute_kinds)

static const char *kind_text(char letter)
{
    for (size_t k = 0; k < KIND_COUNT; k++)
        if (attribute_kinds[k].letter == letter)
            return attribute_kinds[k].text;
    return "of another kind";
}

/* Attributes that the table does not know are left alone: files carry all sorts of notes. */
static gantry_status check_attributes(gt_infer *infer)
{
    const gt_op *op = infer->node->op;
    for (uint32_t k = 0; k < infer->node->attribute_count; k++) {
        const gantry_attribute *a = &infer->node->attributes[k];
        const char *kinds = find_attribute(op->attributes, a->name);
        char own = 0;
        for (size_t i = 0; i < KIND_COUNT; i++)
            own = attribute_kinds[i].kind == a->kind ? attribute_kinds[i].letter : own;
        if (!kinds || !own || memchr(kinds, own, strcspn(kinds, " ")))
            continue;
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "attribute '%.100s' is %s; %s takes %s", a->name,
                             kind_text(own), op->name, kind_text(kinds[0]));
    }
    return GANTRY_OK;
}

gantry_status gt_infer_check_node(gt_infer *infer)
{
    GT_TRY(check_version(infer));
    GT_TRY(check_arity(infer));
    GT_TRY(check_types(infer));
    return check_attributes(infer);
}
