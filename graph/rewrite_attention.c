/* The rule that recognises attention written out in primitive operators.
 *
 *     q ---- MatMul --- scale --- Where --- Add --- Softmax --- MatMul --- Transpose --- y
 *     k -----'                    fill      mask      root        '--- v     merges heads
 *
 * The search starts at the softmax. What splits the heads (Transpose, Gather of one of several parts, Slice
 * and Squeeze) and scales them is not computed by the composite's kernels: they read the value before it, in
 * that order. An operand is described by seven numbers, the attributes "q", "k" and "v":
 *
 *     input of the node; its axes for batch (or -1), head, position and size;
 *     an axis of which only one index is read (or -1), and that index
 *
 * Mask and condition broadcast to the scores [batch, head, query, key]. */
#include "rewrite_internal.h"

#define MAX_NODES 32u
#define MAX_STEPS 8 /* nodes between an operand of a product and what the composite reads */

enum { BATCH, HEAD, POSITION, SIZE, AXES };

typedef struct operand {
    uint32_t value;
    int32_t axes[AXES];
    int32_t picked_axis;
    int64_t picked;
} operand;

typedef struct attention_match {
    gt_rewrite_context *context;
    uint32_t nodes[MAX_NODES];
    uint32_t node_count;
    operand q, k, v;
    uint32_t mask, condition, output; /* value ids; mask and condition may be GT_NONE */
    double scale, fill;
    bool merged; /* the heads of the result lie side by side: [batch, position, head, size] */
} attention_match;

static bool take(attention_match *match, const gt_node *node)
{
    uint32_t id = match->context->graph->values.data[node->outputs[0]]->producer;
    for (uint32_t k = 0; k < match->node_count; k++)
        if (match->nodes[k] == id)
            return true;
    if (match->node_count == MAX_NODES)
        return false;
    match->nodes[match->node_count++] = id;
    return true;
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* The operand of a product with one number, and the factor; GT_NONE when node is no such product. */
static uint32_t scaled_operand(const attention_match *match, const gt_node *node, double *out_factor)
{
    bool mul = gt_rewrite_is_op(node, "Mul"), div = gt_rewrite_is_op(node, "Div");
    if ((!mul && !div) || node->input_count != 2)
        return GT_NONE;
    for (uint32_t k = 2; k-- > 0;) {
        uint32_t number = node->inputs[k], other = node->inputs[1 - k];
        const gt_value *scaled = gt_rewrite_value(match->context, other);
        if ((div && k == 0) || !scaled || !gt_rewrite_scalar(match->context, number, out_factor))
            continue;
        if (gt_rewrite_value(match->context, number)->rank > scaled->rank || (div && *out_factor == 0))
            return GT_NONE;
        *out_factor = div ? 1 / *out_factor : *out_factor;
        return other;
    }
    return GT_NONE;
}

/* ---- what splits the heads ------------------------------------------------------------------- */

static bool move_axes(operand *o, const int64_t *perm, uint32_t count)
{
    for (int a = 0; a < AXES; a++)
        if (o->axes[a] >= (int32_t)count)
            return false;
    for (int a = 0; a < AXES; a++)
        o->axes[a] = o->axes[a] < 0 ? -1 : (int32_t)perm[o->axes[a]];
    o->picked_axis = o->picked_axis < 0 ? -1 : (int32_t)perm[o->picked_axis];
    return true;
}

/* One more axis in front of which the others make room. */
static bool pick(operand *o, int32_t axis, int64_t index)
{
    if (o->picked_axis >= 0 || index < 0 || axis < 0)
        return false;
    for (int a = 0; a < AXES; a++)
        o->axes[a] += o->axes[a] >= axis;
    o->picked_axis = axis;
    o->picked = index;
    return true;
}

/* Counted from 0; -1 when the rank is not known. */
static int32_t axis_of(const attention_match *match, const gt_node *node, int64_t axis)
{
    int32_t rank = gt_rewrite_value(match->context, node->inputs[0])->rank;
    return rank < 0 || axis >= rank ? -1 : (int32_t)(axis < 0 ? axis + rank : axis);
}

static bool read_transpose(attention_match *match, const gt_node *node, operand *o)
{
    uint32_t count = 0;
    const int64_t *perm = gt_node_ints(node, "perm", &count);
    return perm && move_axes(o, perm, count) && (o->value = node->inputs[0], true);
}

static bool read_gather(attention_match *match, const gt_node *node, operand *o)
{
    uint32_t count = 0;
    const int64_t *index = gt_rewrite_ints(match->context, gt_rewrite_input(node, 1), &count);
    const gt_value *indices = gt_rewrite_value(match->context, gt_rewrite_input(node, 1));
    if (!index || count != 1 || indices->rank != 0 ||
        !pick(o, axis_of(match, node, gt_node_int(node, "axis", 0)), index[0]))
        return false;
    o->value = node->inputs[0];
    return true;
}

/* The one number of an operand of Slice or Squeeze. */
static bool read_one(attention_match *match, const gt_node *node, const char *name, uint32_t input,
                     int64_t *out_number)
{
    uint32_t count = 0;
    const int64_t *numbers = gt_node_ints(node, name, &count);
    if (!numbers)
        numbers = gt_rewrite_ints(match->context, gt_rewrite_input(node, input), &count);
    if (!numbers || count != 1)
        return false;
    *out_number = numbers[0];
    return true;
}

/* Squeeze(Slice(x, i, i + 1, axis), axis). */
static bool read_squeezed_slice(attention_match *match, const gt_node *squeeze, operand *o)
{
    const gt_node *slice = gt_rewrite_producer(match->context, squeeze->inputs[0], "Slice");
    int64_t axis, slice_axis, start, end, step = 1;
    if (!slice || gt_rewrite_inner_guard(match->context, squeeze->inputs[0], 1) ||
        !read_one(match, squeeze, "axes", 1, &axis) || !read_one(match, slice, "axes", 3, &slice_axis) ||
        !read_one(match, slice, "starts", 1, &start) || !read_one(match, slice, "ends", 2, &end) ||
        (gt_rewrite_input(slice, 4) != GT_NONE && !read_one(match, slice, "steps", 4, &step)))
        return false;
    axis = axis_of(match, squeeze, axis);
    if (axis != axis_of(match, slice, slice_axis) || step != 1 || start < 0 || start == INT64_MAX ||
        end != start + 1 || !pick(o, (int32_t)axis, start) || !take(match, slice))
        return false;
    o->value = slice->inputs[0];
    return true;
}

/* Takes the node that makes the operand when it only moves or scales elements. */
static bool read_step(attention_match *match, operand *o, bool scales)
{
    const gt_node *node = gt_rewrite_producer(match->context, o->value, NULL);
    double factor;
    uint32_t scaled;
    if (!node || node->output_count != 1 || node->input_count == 0)
        return false;
    bool read = false;
    if (gt_rewrite_is_op(node, "Transpose"))
        read = read_transpose(match, node, o);
    else if (gt_rewrite_is_op(node, "Gather"))
        read = read_gather(match, node, o);
    else if (gt_rewrite_is_op(node, "Squeeze"))
        read = read_squeezed_slice(match, node, o);
    else if (scales && (scaled = scaled_operand(match, node, &factor)) != GT_NONE) {
        match->scale *= factor;
        o->value = scaled;
        read = true;
    }
    return read && take(match, node);
}

/* Goes up as long as nobody else reads what is passed; a factor of queries or keys is one of the scores. */
static void read_operand(attention_match *match, operand *o, bool scales)
{
    for (int step = 0; step < MAX_STEPS; step++) {
        attention_match kept = *match;
        operand before = *o;
        if (gt_rewrite_inner_guard(match->context, o->value, 1) || !read_step(match, o, scales)) {
            *match = kept;
            *o = before;
            return;
        }
    }
}

/* The Transpose that splits packed queries, keys and values has three readers, all of them ours. */
static void read_shared_transpose(attention_match *match)
{
    uint32_t value = match->q.value;
    const gt_node *node = gt_rewrite_producer(match->context, value, "Transpose");
    attention_match kept = *match;
    if (!node || match->k.value != value || match->v.value != value ||
        gt_rewrite_inner_guard(match->context, value, 3))
        return;
    if (!read_transpose(match, node, &match->q) || !read_transpose(match, node, &match->k) ||
        !read_transpose(match, node, &match->v) || !take(match, node))
        *match = kept;
}

/* ---- from the softmax up to the product of queries and keys ----------------------------------- */

static bool leads_to_product(const attention_match *match, uint32_t value, int depth)
{
    double factor;
    const gt_node *node = gt_rewrite_producer(match->context, value, NULL);
    if (!node || depth == 0)
        return false;
    if (gt_rewrite_is_op(node, "MatMul"))
        return true;
    if (gt_rewrite_is_op(node, "Where"))
        return node->input_count == 3 && leads_to_product(match, node->inputs[1], depth - 1);
    if (gt_rewrite_is_op(node, "Add"))
        return node->input_count == 2 && (leads_to_product(match, node->inputs[0], depth - 1) ||
                                          leads_to_product(match, node->inputs[1], depth - 1));
    uint32_t scaled = scaled_operand(match, node, &factor);
    return scaled != GT_NONE && leads_to_product(match, scaled, depth - 1);
}

static bool read_mask(attention_match *match, uint32_t *inout_value)
{
    const gt_node *node = gt_rewrite_producer(match->context, *inout_value, "Add");
    if (!node || node->input_count != 2)
        return true;
    uint32_t scores = leads_to_product(match, node->inputs[0], 4) ? 0 : 1;
    if (!take(match, node))
        return false;
    *inout_value = node->inputs[scores];
    match->mask = node->inputs[1 - scores];
    return true;
}

static bool read_condition(attention_match *match, uint32_t *inout_value)
{
    const gt_node *node = gt_rewrite_producer(match->context, *inout_value, "Where");
    if (!node || node->input_count != 3)
        return true;
    if (!gt_rewrite_scalar(match->context, node->inputs[2], &match->fill) || !take(match, node) ||
        gt_rewrite_value(match->context, node->inputs[2])->rank > 4)
        return false;
    *inout_value = node->inputs[1];
    match->condition = node->inputs[0];
    return true;
}

/* The product that made the scores, or NULL: mask, condition and scale come in this order only. */
static const gt_node *read_scores(attention_match *match, uint32_t value)
{
    double factor;
    if (!read_mask(match, &value) || !read_condition(match, &value))
        return NULL;
    for (int step = 0; step < 2; step++) {
        const gt_node *node = gt_rewrite_producer(match->context, value, NULL);
        uint32_t scaled = node ? scaled_operand(match, node, &factor) : GT_NONE;
        if (scaled == GT_NONE || !take(match, node))
            break;
        match->scale *= factor;
        value = scaled;
    }
    const gt_node *product = gt_rewrite_producer(match->context, value, "MatMul");
    return product && take(match, product) ? product : NULL;
}

/* The Transpose behind the result, when it puts the heads of a position side by side. */
static void read_merge(attention_match *match)
{
    uint32_t id = gt_rewrite_only_consumer(match->context, match->output), count = 0;
    const gt_node *node = id == GT_NONE ? NULL : match->context->graph->nodes.data[id];
    if (!node || !gt_rewrite_is_op(node, "Transpose") ||
        gt_rewrite_inner_guard(match->context, match->output, 1))
        return;
    const int64_t *perm = gt_node_ints(node, "perm", &count);
    if (perm && count == 4 && perm[0] == 0 && perm[1] == 2 && perm[2] == 1 && perm[3] == 3 &&
        take(match, node)) {
        match->output = node->outputs[0];
        match->merged = true;
    }
}

/* ---- the rule -------------------------------------------------------------------------------- */

static operand plain_operand(uint32_t value, int32_t rank, bool transposed)
{
    operand o = {.value = value, .picked_axis = -1};
    for (int a = 0; a < AXES; a++)
        o.axes[a] = rank - AXES + a < 0 ? -1 : rank - AXES + a;
    if (transposed) {
        o.axes[POSITION] = rank - 1;
        o.axes[SIZE] = rank - 2;
    }
    return o;
}

static bool is_dequantized(const attention_match *match, uint32_t value)
{
    return gt_rewrite_producer(match->context, value, "DequantizeLinear") != NULL;
}

static const char *check(const attention_match *match, const gt_node *scores, const gt_node *result)
{
    const gt_value *values[] = {gt_rewrite_value(match->context, scores->inputs[0]),
                                gt_rewrite_value(match->context, scores->inputs[1]),
                                gt_rewrite_value(match->context, result->inputs[1])};
    for (int k = 0; k < 3; k++) {
        if (!values[k] || !gt_rewrite_is_float(values[k]->dtype))
            return "dtype";
        if (values[k]->rank != values[0]->rank || (values[k]->rank != 3 && values[k]->rank != 4))
            return "rank";
    }
    uint32_t others[] = {match->mask, match->condition};
    for (int k = 0; k < 2; k++) {
        const gt_value *value = gt_rewrite_value(match->context, others[k]);
        if (value && (value->rank < 0 || value->rank > values[0]->rank))
            return "rank";
    }
    if (is_dequantized(match, scores->inputs[0]) || is_dequantized(match, scores->inputs[1]) ||
        is_dequantized(match, result->inputs[1]))
        return "quantized";
    return NULL;
}

static uint32_t input_index(uint32_t *inputs, uint32_t *inout_count, uint32_t value)
{
    for (uint32_t k = 0; k < *inout_count; k++)
        if (inputs[k] == value)
            return k;
    inputs[*inout_count] = value;
    return (*inout_count)++;
}

static gantry_status describe(gt_graph *graph, uint32_t node, const char *name, const operand *o,
                              uint32_t input, gantry_error *err)
{
    int64_t numbers[] = {input, o->axes[0], o->axes[1], o->axes[2], o->axes[3], o->picked_axis, o->picked};
    return gt_node_set_ints(graph, node, name, numbers, 7, err);
}

static gantry_status fuse(attention_match *match, gantry_error *err)
{
    gt_graph *graph = match->context->graph;
    uint32_t inputs[5], count = 0, node;
    uint32_t q = input_index(inputs, &count, match->q.value), k = input_index(inputs, &count, match->k.value),
             v = input_index(inputs, &count, match->v.value);
    uint32_t mask = match->mask == GT_NONE ? GT_NONE : input_index(inputs, &count, match->mask),
             condition =
                 match->condition == GT_NONE ? GT_NONE : input_index(inputs, &count, match->condition);
    gt_rewrite_pattern pattern = {"Attention", match->nodes, match->node_count, inputs, count, match->output};
    GT_TRY(gt_rewrite_fuse(match->context, &pattern, &node, err));
    GT_TRY(describe(graph, node, "q", &match->q, q, err));
    GT_TRY(describe(graph, node, "k", &match->k, k, err));
    GT_TRY(describe(graph, node, "v", &match->v, v, err));
    if (match->mask != GT_NONE)
        GT_TRY(gt_node_set_int(graph, node, "mask", mask, err));
    if (match->condition != GT_NONE) {
        GT_TRY(gt_node_set_int(graph, node, "condition", condition, err));
        GT_TRY(gt_node_set_float(graph, node, "fill", (float)match->fill, err));
    }
    GT_TRY(gt_node_set_int(graph, node, "merged", match->merged, err));
    return gt_node_set_float(graph, node, "scale", (float)match->scale, err);
}

static bool runs_over_last_axis(const attention_match *match, const gt_node *softmax)
{
    int32_t rank = gt_rewrite_value(match->context, softmax->outputs[0])->rank;
    int64_t axis = gt_node_int(softmax, "axis", softmax->version < 13 ? 1 : -1);
    return axis == -1 || (rank > 0 && axis == rank - 1);
}

/* Everything behind the products, as far as nobody else reads it; the guard that forbids it all, or NULL. */
static const char *read_around(attention_match *match, const gt_node *scores, const gt_node *result)
{
    int32_t rank = gt_rewrite_value(match->context, scores->inputs[0])->rank;
    match->q = plain_operand(scores->inputs[0], rank, false);
    match->k = plain_operand(scores->inputs[1], rank, true);
    match->v = plain_operand(result->inputs[1], rank, false);
    read_operand(match, &match->q, true);
    read_operand(match, &match->k, true);
    read_operand(match, &match->v, false);
    read_shared_transpose(match);
    match->output = result->outputs[0];
    read_merge(match);
    gt_rewrite_pattern pattern = {
        .nodes = match->nodes, .node_count = match->node_count, .output = match->output};
    return gt_rewrite_pattern_guard(match->context, &pattern);
}

static gantry_status visit_root(gt_rewrite_context *context, const gt_node *root, bool *out_changed,
                                gantry_error *err)
{
    attention_match match = {
        .context = context, .mask = GT_NONE, .condition = GT_NONE, .scale = 1, .output = GT_NONE};
    uint32_t id = gt_rewrite_only_consumer(context, root->outputs[0]);
    const gt_node *result = id == GT_NONE ? NULL : context->graph->nodes.data[id], *scores = NULL;
    if (!result || !gt_rewrite_is_op(result, "MatMul") || result->inputs[0] != root->outputs[0] ||
        result->inputs[1] == root->outputs[0] || !leads_to_product(&match, root->inputs[0], 5))
        return GANTRY_OK;
    const char *guard = runs_over_last_axis(&match, root) ? NULL : "axis";
    if (!guard &&
        (!take(&match, root) || !take(&match, result) || !(scores = read_scores(&match, root->inputs[0]))))
        guard = "order";
    if (!guard)
        guard = check(&match, scores, result);
    if (!guard)
        guard = read_around(&match, scores, result);
    if (guard)
        return gt_rewrite_log_miss(context, root->name, guard, err);
    *out_changed = true;
    return fuse(&match, err);
}

gantry_status gt_rewrite_attention(gt_rewrite_context *context, gt_graph *graph, bool *out_changed,
                                   gantry_error *err)
{
    uint32_t order_count = graph->order.count;
    for (uint32_t k = 0; k < order_count; k++) {
        const gt_node *node = graph->nodes.data[graph->order.data[k]];
        if (!node->removed && gt_rewrite_is_op(node, "Softmax") && node->input_count == 1)
            GT_TRY(visit_root(context, node, out_changed, err));
    }
    return GANTRY_OK;
}
