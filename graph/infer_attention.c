/* The shape of the composite Attention (rewrite_attention.c): its operands are read along axes that its
 * attributes name. */
#include "infer_rules.h"

enum { BATCH, HEAD, POSITION, SIZE };

/* Where an operand is, as "q", "k" and "v" describe it. */
typedef struct operand {
    uint32_t input;
    const int64_t *axes; /* by the enumeration; -1: no such axis */
} operand;

static bool read_operand(const gt_infer *infer, const char *name, operand *out)
{
    uint32_t count = 0;
    const int64_t *numbers = gt_node_ints(infer->node, name, &count);
    if (!numbers || count != 7 || numbers[0] < 0 || numbers[0] >= infer->node->input_count)
        return false;
    *out = (operand){(uint32_t)numbers[0], numbers + 1};
    for (int a = 0; a < 4; a++)
        if (gt_in_rank(infer, out->input) >= 0 && out->axes[a] >= gt_in_rank(infer, out->input))
            return false;
    return true;
}

static gt_expr extent(const gt_infer *infer, const operand *o, int which)
{
    return o->axes[which] < 0 ? gt_number(infer, 1) : gt_in_dim(infer, o->input, (int32_t)o->axes[which]);
}

static gantry_status same(gt_infer *infer, const operand *a, int which_a, const operand *b, int which_b)
{
    gt_expr unused;
    return gt_infer_same(infer, a->input, (int32_t)a->axes[which_a], b->input, (int32_t)b->axes[which_b],
                         &unused);
}

/* Batches and heads broadcast as those of a MatMul. */
static gt_expr common(gt_infer *infer, gt_expr x, const operand *a, const operand *b, int which)
{
    gt_expr y = extent(infer, b, which);
    gt_shape_check check = {.node = infer->node_id,
                            .a = infer->node->inputs[a->input],
                            .b = infer->node->inputs[b->input],
                            .axis_a = (uint32_t)(gt_in_rank(infer, a->input) - a->axes[which]),
                            .axis_b = (uint32_t)(gt_in_rank(infer, b->input) - b->axes[which])};
    return x == y ? x : gt_infer_broadcast_extent(infer, x, y, &check);
}

static gantry_status add_input(gt_infer *infer, const char *name, gt_shape *inout_scores)
{
    int64_t input = gt_attr_int(infer, name, -1);
    return input >= 0 ? gt_infer_broadcast(infer, inout_scores, (uint32_t)input) : GANTRY_OK;
}

gantry_status gt_rule_attention_parts(gt_infer *infer)
{
    operand q, k, v;
    gt_shape out = {.rank = -1};
    if (!read_operand(infer, "q", &q) || !read_operand(infer, "k", &k) || !read_operand(infer, "v", &v))
        return gt_infer_fail(infer, GANTRY_MODEL_GRAPH, "its attributes do not describe its inputs");
    if (gt_in_rank(infer, q.input) >= 0 && gt_in_rank(infer, k.input) >= 0 &&
        gt_in_rank(infer, v.input) >= 0) {
        GT_TRY(same(infer, &q, SIZE, &k, SIZE));
        GT_TRY(same(infer, &k, POSITION, &v, POSITION));
        gt_shape scores = {.rank = 4};
        for (int a = BATCH; a <= HEAD; a++) {
            scores.dims[a] = common(infer, extent(infer, &q, a), &q, &k, a);
            scores.dims[a] = common(infer, scores.dims[a], &q, &v, a);
        }
        scores.dims[2] = extent(infer, &q, POSITION);
        scores.dims[3] = extent(infer, &k, POSITION);
        GT_TRY(add_input(infer, "condition", &scores));
        GT_TRY(add_input(infer, "mask", &scores));
        bool merged = gt_attr_int(infer, "merged", 0) != 0;
        out = (gt_shape){.rank = 4, .dims = {scores.dims[0], scores.dims[1], scores.dims[2]}};
        if (merged)
            out.dims[1] = scores.dims[2], out.dims[2] = scores.dims[1];
        out.dims[3] = extent(infer, &v, SIZE);
        if (q.axes[BATCH] < 0) {
            out.rank = 3;
            memmove(out.dims, out.dims + 1, 3 * sizeof *out.dims);
        }
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, q.input), &out);
    return GANTRY_OK;
}
