/* Rules of whole layers: normalization, attention, recurrent cells, quantization, losses. */
#include "infer_rules.h"

#include <float.h>

/* ---- normalization */

gantry_status gt_rule_batch_norm(gt_infer *infer)
{
    gt_expr extent;
    if (infer->node->version < 7 && !gt_attr_int(infer, "is_test", 0))
        return gt_infer_fail(infer, GANTRY_UNSUPPORTED,
                             "version %d without is_test=1 trains, which is not implemented",
                             infer->node->version);
    for (uint32_t k = 1; k < 5; k++)
        if (gt_in_rank(infer, 0) >= 2 && gt_in_rank(infer, k) == 1)
            GT_TRY(gt_infer_same(infer, 0, 1, k, 0, &extent));
    GT_TRY(gt_rule_same(infer));
    for (uint32_t k = 1; k < 5; k++)
        gt_out_like(infer, k, gt_in_dtype(infer, k < 3 ? k + 2 : k), k < 3 ? k + 2 : k);
    return GANTRY_OK;
}

/* Mean and InvStdDev keep the axes before `axis`; the others are 1. */
gantry_status gt_rule_layer_norm(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0), scale = shape;
    int32_t axis;
    int64_t stash = gt_attr_int(infer, "stash_type", GANTRY_FLOAT32);
    GT_TRY(gt_rule_same(infer));
    if (shape.rank >= 0) {
        GT_TRY(gt_infer_axis(infer, gt_attr_int(infer, "axis", -1), shape.rank, &axis));
        for (uint32_t k = 1; k < infer->node->input_count && k < 3; k++) {
            if (gt_in_present(infer, k))
                GT_TRY(gt_infer_broadcast(infer, &scale, k));
            if (scale.rank > shape.rank)
                return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "'%s' has more axes than the input",
                                     gt_in_value(infer, k)->name);
        }
        for (; axis < shape.rank; axis++)
            shape.dims[axis] = gt_number(infer, 1);
    }
    gt_out_shape(infer, 1, stash > 0 && stash < GANTRY_DTYPE_COUNT ? (gantry_dtype)stash : GANTRY_FLOAT32,
                 &shape);
    gt_out_shape(infer, 2, stash > 0 && stash < GANTRY_DTYPE_COUNT ? (gantry_dtype)stash : GANTRY_FLOAT32,
                 &shape);
    return GANTRY_OK;
}

/* ---- attention */

/* Heads and head size of a 4-D [B, heads, length, size] or 3-D [B, length, heads * size] operand. */
typedef struct heads {
    gt_expr batch, heads, length, size;
} heads;

static heads read_heads(const gt_infer *infer, uint32_t k, const char *count_name)
{
    int32_t rank = gt_in_rank(infer, k);
    heads h = {GT_EXPR_UNKNOWN, GT_EXPR_UNKNOWN, GT_EXPR_UNKNOWN, GT_EXPR_UNKNOWN};
    if (rank < 3)
        return h;
    h.batch = gt_in_dim(infer, k, 0);
    h.length = gt_in_dim(infer, k, rank - 2);
    int64_t count = gt_attr_int(infer, count_name, 0);
    h.heads = rank == 4 ? gt_in_dim(infer, k, 1) : count > 0 ? gt_number(infer, count) : GT_EXPR_UNKNOWN;
    h.size = rank == 4 ? gt_in_dim(infer, k, 3)
                       : gt_make(infer, GT_EXPR_FLOORDIV, gt_in_dim(infer, k, 2), h.heads);
    return h;
}

gantry_status gt_rule_attention(gt_infer *infer)
{
    int32_t rank = gt_in_rank(infer, 0);
    gt_shape out = gt_in_shape(infer, 0), four = {.rank = 4}, unknown = {.rank = -1};
    heads q = read_heads(infer, 0, "q_num_heads"), k = read_heads(infer, 1, "kv_num_heads"),
          v = read_heads(infer, 2, "kv_num_heads");
    gt_expr total = k.length;
    if (gt_in_present(infer, 4))
        total = gt_add(infer, gt_in_dim(infer, 4, 2), k.length);
    if (rank >= 0 && rank != 3 && rank != 4)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the query must have 3 or 4 axes, it has %d", rank);
    if (rank == 3)
        out.dims[2] = gt_mul(infer, q.heads, v.size);
    else if (rank == 4)
        out.dims[3] = v.size;
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
    four.dims[0] = k.batch, four.dims[1] = k.heads, four.dims[2] = total, four.dims[3] = k.size;
    gt_out_shape(infer, 1, gt_in_dtype(infer, 1), rank < 0 ? &unknown : &four);
    four.dims[0] = v.batch, four.dims[1] = v.heads, four.dims[3] = v.size;
    gt_out_shape(infer, 2, gt_in_dtype(infer, 2), rank < 0 ? &unknown : &four);
    four.dims[0] = q.batch, four.dims[1] = q.heads, four.dims[2] = q.length, four.dims[3] = total;
    gt_out_shape(infer, 3, gt_in_dtype(infer, 0), rank < 0 ? &unknown : &four);
    return GANTRY_OK;
}

gantry_status gt_rule_linear_attention(gt_infer *infer)
{
    heads q = read_heads(infer, 0, "q_num_heads"), k = read_heads(infer, 1, "kv_num_heads"),
          v = read_heads(infer, 2, "kv_num_heads");
    gt_shape out = {.rank = 3, .dims = {q.batch, q.length, gt_mul(infer, q.heads, v.size)}};
    gt_shape state = {.rank = 4, .dims = {k.batch, k.heads, k.size, v.size}};
    gantry_dtype past = gt_in_present(infer, 3) ? gt_in_dtype(infer, 3) : gt_in_dtype(infer, 0);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &out);
    gt_out_shape(infer, 1, past, &state);
    return GANTRY_OK;
}

gantry_status gt_rule_causal_conv(gt_infer *infer)
{
    gt_shape state = {.rank = 3,
                      .dims = {gt_in_dim(infer, 0, 0), gt_in_dim(infer, 0, 1),
                               gt_sub(infer, gt_in_dim(infer, 1, 2), gt_number(infer, 1))}};
    GT_TRY(gt_rule_same(infer));
    gt_out_shape(infer, 1, gt_in_dtype(infer, 0), &state);
    return GANTRY_OK;
}

/* ---- recurrent cells: LSTM, GRU, RNN */

gantry_status gt_rule_recurrent(gt_infer *infer)
{
    bool both = strcmp(gt_node_string(infer->node, "direction", "forward"), "bidirectional") == 0;
    bool batch_first = infer->node->version >= 14 && gt_attr_int(infer, "layout", 0);
    int64_t hidden_size = gt_attr_int(infer, "hidden_size", 0), found;
    gt_expr sequence = gt_in_dim(infer, 0, batch_first), batch = gt_in_dim(infer, 0, !batch_first);
    gt_expr directions = gt_number(infer, both ? 2 : 1);
    gt_expr hidden = hidden_size > 0 ? gt_number(infer, hidden_size) : gt_in_dim(infer, 2, 2);
    if (gt_in_rank(infer, 0) >= 0 && gt_in_rank(infer, 0) != 3)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE,
                             "x must have 3 axes (sequence, batch, input), it has %d", gt_in_rank(infer, 0));
    if (gt_is_const(infer, gt_in_dim(infer, 1, 0), &found) && found != (both ? 2 : 1))
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "the weights have %lld directions, the node has %d",
                             (long long)found, both ? 2 : 1);
    gt_shape all = {.rank = 4, .dims = {sequence, directions, batch, hidden}};
    gt_shape last = {.rank = 3, .dims = {directions, batch, hidden}};
    if (batch_first) {
        all = (gt_shape){.rank = 4, .dims = {batch, sequence, directions, hidden}};
        last = (gt_shape){.rank = 3, .dims = {batch, directions, hidden}};
    }
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &all);
    gt_out_shape(infer, 1, gt_in_dtype(infer, 0), &last);
    gt_out_shape(infer, 2, gt_in_dtype(infer, 0), &last);
    return GANTRY_OK;
}

/* ---- quantization */

static gantry_dtype output_dtype(const gt_infer *infer, gantry_dtype otherwise)
{
    int64_t given = gt_attr_int(infer, "output_dtype", 0);
    return given > 0 && given < GANTRY_DTYPE_COUNT ? (gantry_dtype)given : otherwise;
}

/* Scales that say nothing are found now rather than in numbers. */
static gantry_status check_scale(const gt_infer *infer, uint32_t k)
{
    const gt_value *scale = gt_in_value(infer, k);
    const void *data;
    float value;
    if (!scale || !gt_value_is_fixed(scale) || scale->dtype != GANTRY_FLOAT32 || scale->rank != 0 ||
        gt_constant_data(infer->model, scale->constant, &data, NULL) != GANTRY_OK || !data)
        return GANTRY_OK;
    memcpy(&value, data, sizeof value);
    if (value > 0 && value <= FLT_MAX)
        return GANTRY_OK;
    return gt_infer_fail(infer, GANTRY_MODEL_GRAPH,
                         "the scale '%s' is %g; it must be a finite number above 0", scale->name,
                         (double)value);
}

gantry_status gt_rule_quantize(gt_infer *infer)
{
    GT_TRY(check_scale(infer, 1));
    gantry_dtype zero_point =
        gt_in_present(infer, 2) ? gt_in_dtype(infer, 2) : output_dtype(infer, GANTRY_UINT8);
    gt_out_like(infer, 0, zero_point, 0);
    return GANTRY_OK;
}

gantry_status gt_rule_dequantize(gt_infer *infer)
{
    if (gt_in_dtype(infer, 0) && gt_in_dtype(infer, 2) && gt_in_dtype(infer, 0) != gt_in_dtype(infer, 2))
        return gt_infer_fail(infer, GANTRY_MODEL_TYPE,
                             "'%s' is %s, but its zero point '%s' is %s; both must be the same",
                             gt_in_value(infer, 0)->name, gantry_dtype_text(gt_in_dtype(infer, 0)),
                             gt_in_value(infer, 2)->name, gantry_dtype_text(gt_in_dtype(infer, 2)));
    GT_TRY(check_scale(infer, 1));
    gt_out_like(infer, 0, output_dtype(infer, gt_in_dtype(infer, 1)), 0);
    return GANTRY_OK;
}

gantry_status gt_rule_dynamic_quantize(gt_infer *infer)
{
    const gt_shape scalar = {.rank = 0};
    gt_out_like(infer, 0, GANTRY_UINT8, 0);
    gt_out_shape(infer, 1, GANTRY_FLOAT32, &scalar);
    gt_out_shape(infer, 2, GANTRY_UINT8, &scalar);
    return GANTRY_OK;
}

/* ---- losses: a scalar, or one number for each label */

gantry_status gt_rule_loss(gt_infer *infer)
{
    gt_shape shape = {.rank = 0};
    if (strcmp(gt_node_string(infer->node, "reduction", "mean"), "none") == 0)
        shape = gt_in_shape(infer, 1);
    gt_out_shape(infer, 0, gt_in_dtype(infer, 0), &shape);
    gt_out_like(infer, 1, gt_in_dtype(infer, 0), 0);
    return GANTRY_OK;
}

/* ---- texts, sequences and what has no rule */

gantry_status gt_rule_to_string(gt_infer *infer)
{
    gt_shape shape;
    GT_TRY(gt_infer_broadcast_inputs(infer, 0, infer->node->input_count, &shape));
    if (strcmp(infer->node->op_type, "StringNormalizer") == 0 && shape.rank > 0)
        shape.dims[shape.rank - 1] = gt_out_data_dim(infer, 0, (uint32_t)shape.rank - 1, GT_EXPR_UNKNOWN);
    gt_out_shape(infer, 0, GANTRY_STRING, &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_regex(gt_infer *infer)
{
    gt_out_like(infer, 0, GANTRY_BOOL, 0);
    return GANTRY_OK;
}

gantry_status gt_rule_string_split(gt_infer *infer)
{
    gt_shape shape = gt_in_shape(infer, 0);
    if (shape.rank >= 0 && shape.rank < GANTRY_MAX_RANK) {
        shape.dims[shape.rank] = gt_out_data_dim(infer, 0, (uint32_t)shape.rank, GT_EXPR_UNKNOWN);
        shape.rank++;
    } else {
        shape.rank = -1;
    }
    gt_out_shape(infer, 0, GANTRY_STRING, &shape);
    gt_out_like(infer, 1, GANTRY_INT64, 0);
    return GANTRY_OK;
}

gantry_status gt_rule_tfidf(gt_infer *infer)
{
    uint32_t count;
    gt_shape shape = gt_in_shape(infer, 0);
    const int64_t *indexes = gt_node_ints(infer->node, "ngram_indexes", &count);
    int64_t most = -1;
    for (uint32_t k = 0; indexes && k < count; k++)
        most = indexes[k] > most ? indexes[k] : most;
    if (most == INT64_MAX)
        return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "ngram_indexes holds %lld: an axis has no such place",
                             (long long)most);
    if (shape.rank == 0)
        shape.rank = 1;
    if (shape.rank > 0)
        shape.dims[shape.rank - 1] = gt_number(infer, most + 1);
    gt_out_shape(infer, 0, GANTRY_FLOAT32, &shape);
    return GANTRY_OK;
}

gantry_status gt_rule_sequence_length(gt_infer *infer)
{
    const gt_shape scalar = {.rank = 0};
    gt_out_shape(infer, 0, GANTRY_INT64, &scalar);
    return GANTRY_OK;
}

gantry_status gt_rule_optional_has(gt_infer *infer)
{
    const gt_shape scalar = {.rank = 0};
    gt_out_shape(infer, 0, GANTRY_BOOL, &scalar);
    return GANTRY_OK;
}

/* A sequence or optional: its elements' type is carried, their shapes are not. */
gantry_status gt_rule_sequence(gt_infer *infer)
{
    const gt_shape unknown = {.rank = -1};
    bool optional = strcmp(infer->node->op_type, "Optional") == 0;
    for (uint32_t k = 0; k < infer->node->output_count; k++) {
        gt_value *out = gt_graph_value(infer->graph, infer->node->outputs[k]);
        if (!out)
            continue;
        out->kind = optional ? GANTRY_KIND_OPTIONAL : GANTRY_KIND_SEQUENCE;
        gt_out_shape(infer, k, gt_in_dtype(infer, 0), &unknown);
    }
    return GANTRY_OK;
}

gantry_status gt_rule_unknown(gt_infer *infer)
{
    const gt_shape unknown = {.rank = -1};
    for (uint32_t k = 0; k < infer->node->output_count; k++)
        gt_out_shape(infer, k, gt_in_dtype(infer, 0), &unknown);
    return GANTRY_OK;
}

/* Of a tensor itself since version 18; of an optional nothing is known. */
gantry_status gt_rule_optional_get(gt_infer *infer)
{
    bool tensor = gt_in_present(infer, 0) && gt_in_value(infer, 0)->kind == GANTRY_KIND_TENSOR;
    return tensor ? gt_rule_identity(infer) : gt_rule_unknown(infer);
}

gantry_status gt_rule_image(gt_infer *infer)
{
    gt_shape shape = {.rank = 3};
    bool gray = strcmp(gt_node_string(infer->node, "pixel_format", "RGB"), "Grayscale") == 0;
    shape.dims[0] = gt_out_data_dim(infer, 0, 0, GT_EXPR_UNKNOWN);
    shape.dims[1] = gt_out_data_dim(infer, 0, 1, GT_EXPR_UNKNOWN);
    shape.dims[2] = gt_number(infer, gray ? 1 : 3);
    gt_out_shape(infer, 0, GANTRY_UINT8, &shape);
    return GANTRY_OK;
}
