/* The operator table: one row for each operator of ai.onnx, and for the composites that rewrites make (domain
 * "gantry") and the quantized ones of "com.microsoft".
 *
 * Versions, arity, attributes and types come from onnx's schemas (op_versions.def). "from" is the oldest
 * version whose meaning the rules and kernels know; it is 1 where older definitions differ only in attributes
 * that changed nothing. Rows are sorted by domain and name. */
#include "infer_rules.h"
#include "op_versions.def"

#define ONNX(name, from, rule, operands, flags)                                                              \
    {                                                                                                        \
#name, "", GT_SINCE_##name, from, GT_ARITY_##name, operands, flags, gt_rule_##rule,                  \
            GT_SCHEMA_##name, GT_INPUTS_##name                                                               \
    }
#define MICROSOFT(name, least, most, rule, attributes)                                                       \
    {                                                                                                        \
#name, "com.microsoft",                                                                              \
            {1 }, 1, least, most, 1, 1, 0, 0, gt_rule_##rule, attributes, 0, {0 }, 0, NULL                   \
    }
#define GANTRY(name, least, most, rule)                                                                      \
    {                                                                                                        \
#name, "gantry", {1 }, 1, least, most, 1, 1, 0, 0, gt_rule_##rule, "", 0, {0 }, 0, NULL              \
    }

/* Shorter names for the columns below. */
enum {
    ELEMENTWISE = GT_OP_ELEMENTWISE,
    SYMMETRIC = GT_OP_ELEMENTWISE | GT_OP_COMMUTATIVE,
    PROPAGATES = GT_OP_PROPAGATES,
    MOVES = GT_OP_MOVEMENT,
    CONTROL = GT_OP_CONTROL,
    DATA_SIZED = GT_OP_DATA_SIZED,
    RANDOM = GT_OP_RANDOM,
    TRAINING = GT_OP_TRAINING
};

/* clang-format off */
static const gt_op table[] = {
    /*   name, from, rule, operands that decide shapes, flags */
    ONNX(Abs, 1, abs, 0, ELEMENTWISE | PROPAGATES),
    ONNX(Acos, 7, same, 0, ELEMENTWISE),
    ONNX(Acosh, 9, same, 0, ELEMENTWISE),
    ONNX(Add, 1, add, 0, SYMMETRIC | PROPAGATES),
    ONNX(AffineGrid, 20, affine_grid, 1u << 1, 0),
    ONNX(And, 1, and, 0, SYMMETRIC | PROPAGATES),
    ONNX(ArgMax, 1, arg, 0, 0),
    ONNX(ArgMin, 1, arg, 0, 0),
    ONNX(Asin, 7, same, 0, ELEMENTWISE),
    ONNX(Asinh, 9, same, 0, ELEMENTWISE),
    ONNX(Atan, 7, same, 0, ELEMENTWISE),
    ONNX(Atanh, 9, same, 0, ELEMENTWISE),
    ONNX(Attention, 23, attention, 0, 0),
    ONNX(AveragePool, 1, pool, 0, 0),
    ONNX(BatchNormalization, 1, batch_norm, 0, 0),
    ONNX(Bernoulli, 15, random_like, 0, RANDOM),
    ONNX(BitCast, 26, bit_cast, 0, ELEMENTWISE),
    ONNX(BitShift, 11, broadcast, 0, ELEMENTWISE),
    ONNX(BitwiseAnd, 18, broadcast, 0, SYMMETRIC),
    ONNX(BitwiseNot, 18, same, 0, ELEMENTWISE),
    ONNX(BitwiseOr, 18, broadcast, 0, SYMMETRIC),
    ONNX(BitwiseXor, 18, broadcast, 0, SYMMETRIC),
    ONNX(BlackmanWindow, 17, window, 1u << 0, 0),
    ONNX(Cast, 6, cast, 0, ELEMENTWISE | PROPAGATES),
    ONNX(CastLike, 15, cast_like, 0, ELEMENTWISE | PROPAGATES),
    ONNX(CausalConvWithState, 27, causal_conv, 0, 0),
    ONNX(Ceil, 1, ceil, 0, ELEMENTWISE | PROPAGATES),
    ONNX(Celu, 12, same, 0, ELEMENTWISE),
    ONNX(CenterCropPad, 18, center_crop_pad, 1u << 1, MOVES),
    ONNX(Clip, 1, clip, 0, ELEMENTWISE | PROPAGATES),
    ONNX(Col2Im, 18, col2im, 0x6, 0),
    ONNX(Compress, 9, compress, 0, DATA_SIZED),
    ONNX(Concat, 4, concat, 0, MOVES | PROPAGATES),
    ONNX(ConcatFromSequence, 11, unknown, 0, 0),
    ONNX(Constant, 1, constant, 0, 0),
    ONNX(ConstantOfShape, 9, constant_of_shape, 1u << 0, 0),
    ONNX(Conv, 1, conv, 0, 0),
    ONNX(ConvInteger, 10, conv_integer, 0, 0),
    ONNX(ConvTranspose, 1, conv_transpose, 0, 0),
    ONNX(Cos, 7, same, 0, ELEMENTWISE),
    ONNX(Cosh, 9, same, 0, ELEMENTWISE),
    ONNX(CumProd, 26, same, 0, 0),
    ONNX(CumSum, 11, same, 0, 0),
    ONNX(DFT, 17, dft, 1u << 1 | 1u << 2, 0),
    ONNX(DeformConv, 19, deform_conv, 0, 0),
    ONNX(DepthToSpace, 1, depth_to_space, 0, MOVES),
    ONNX(DequantizeLinear, 10, dequantize, 0, 0),
    ONNX(Det, 11, det, 0, 0),
    ONNX(Div, 1, div, 0, ELEMENTWISE | PROPAGATES),
    ONNX(Dropout, 7, dropout, 0, 0),
    ONNX(DynamicQuantizeLinear, 11, dynamic_quantize, 0, 0),
    ONNX(Einsum, 12, einsum, 0, 0),
    ONNX(Elu, 1, same, 0, ELEMENTWISE),
    ONNX(Equal, 1, equal, 0, SYMMETRIC | PROPAGATES),
    ONNX(Erf, 9, same, 0, ELEMENTWISE),
    ONNX(Exp, 1, same, 0, ELEMENTWISE),
    ONNX(Expand, 8, expand, 1u << 1, MOVES | PROPAGATES),
    ONNX(EyeLike, 9, eye_like, 0, 0),
    ONNX(Flatten, 1, flatten, 0, MOVES | PROPAGATES),
    ONNX(Floor, 1, floor, 0, ELEMENTWISE | PROPAGATES),
    ONNX(GRU, 7, recurrent, 0, 0),
    ONNX(Gather, 1, gather, 0, MOVES | PROPAGATES),
    ONNX(GatherElements, 11, gather_elements, 0, MOVES),
    ONNX(GatherND, 11, gather_nd, 0, MOVES),
    ONNX(Gelu, 20, same, 0, ELEMENTWISE),
    ONNX(Gemm, 1, gemm, 0, 0),
    ONNX(GlobalAveragePool, 1, global_pool, 0, 0),
    ONNX(GlobalLpPool, 2, global_pool, 0, 0),
    ONNX(GlobalMaxPool, 1, global_pool, 0, 0),
    ONNX(Greater, 1, greater, 0, ELEMENTWISE | PROPAGATES),
    ONNX(GreaterOrEqual, 12, greater_equal, 0, ELEMENTWISE | PROPAGATES),
    ONNX(GridSample, 16, grid_sample, 0, 0),
    ONNX(GroupNormalization, 18, same, 0, 0),
    ONNX(HammingWindow, 17, window, 1u << 0, 0),
    ONNX(HannWindow, 17, window, 1u << 0, 0),
    ONNX(HardSigmoid, 1, same, 0, ELEMENTWISE),
    ONNX(HardSwish, 14, same, 0, ELEMENTWISE),
    ONNX(Hardmax, 1, same, 0, 0),
    ONNX(Identity, 1, identity, 0, MOVES | PROPAGATES),
    ONNX(If, 1, if, 0, CONTROL),
    ONNX(ImageDecoder, 20, image, 0, 0),
    ONNX(InstanceNormalization, 1, same, 0, 0),
    ONNX(IsInf, 10, same_bool, 0, ELEMENTWISE),
    ONNX(IsNaN, 9, same_bool, 0, ELEMENTWISE),
    ONNX(LRN, 1, same, 0, 0),
    ONNX(LSTM, 7, recurrent, 0, 0),
    ONNX(LayerNormalization, 17, layer_norm, 0, 0),
    ONNX(LeakyRelu, 1, same, 0, ELEMENTWISE),
    ONNX(Less, 1, less, 0, ELEMENTWISE | PROPAGATES),
    ONNX(LessOrEqual, 12, less_equal, 0, ELEMENTWISE | PROPAGATES),
    ONNX(LinearAttention, 27, linear_attention, 0, 0),
    ONNX(Log, 1, same, 0, ELEMENTWISE),
    ONNX(LogSoftmax, 1, same, 0, 0),
    ONNX(Loop, 1, loop, 0, CONTROL),
    ONNX(LpNormalization, 1, same, 0, 0),
    ONNX(LpPool, 2, pool, 0, 0),
    ONNX(MatMul, 1, matmul, 0, 0),
    ONNX(MatMulInteger, 10, matmul_integer, 0, 0),
    ONNX(Max, 1, max, 0, SYMMETRIC | PROPAGATES),
    ONNX(MaxPool, 1, pool, 0, 0),
    ONNX(MaxRoiPool, 1, roi_pool, 0, 0),
    ONNX(MaxUnpool, 9, max_unpool, 1u << 2, 0),
    ONNX(Mean, 1, mean, 0, SYMMETRIC),
    ONNX(MeanVarianceNormalization, 9, same, 0, 0),
    ONNX(MelWeightMatrix, 17, mel_weights, 0x3, 0),
    ONNX(Min, 1, min, 0, SYMMETRIC | PROPAGATES),
    ONNX(Mish, 18, same, 0, ELEMENTWISE),
    ONNX(Mod, 10, mod, 0, ELEMENTWISE | PROPAGATES),
    ONNX(Mul, 1, mul, 0, SYMMETRIC | PROPAGATES),
    ONNX(Multinomial, 7, multinomial, 0, RANDOM),
    ONNX(Neg, 1, neg, 0, ELEMENTWISE | PROPAGATES),
    ONNX(NegativeLogLikelihoodLoss, 12, loss, 0, TRAINING),
    ONNX(NonMaxSuppression, 10, nms, 0, DATA_SIZED),
    ONNX(NonZero, 9, non_zero, 0, DATA_SIZED),
    ONNX(Not, 1, not, 0, ELEMENTWISE | PROPAGATES),
    ONNX(OneHot, 9, one_hot, 1u << 1, 0),
    ONNX(Optional, 15, sequence, 0, 0),
    ONNX(OptionalGetElement, 15, optional_get, 0, 0),
    ONNX(OptionalHasElement, 15, optional_has, 0, 0),
    ONNX(Or, 1, or, 0, SYMMETRIC | PROPAGATES),
    ONNX(PRelu, 7, prelu, 0, ELEMENTWISE),
    ONNX(Pad, 2, pad, 1u << 1 | 1u << 3, MOVES),
    ONNX(Pow, 1, pow, 0, ELEMENTWISE),
    ONNX(QLinearConv, 10, qlinear_conv, 0, 0),
    ONNX(QLinearMatMul, 10, qlinear_matmul, 0, 0),
    ONNX(QuantizeLinear, 10, quantize, 0, 0),
    ONNX(RMSNormalization, 23, layer_norm, 0, 0),
    ONNX(RNN, 7, recurrent, 0, 0),
    ONNX(RandomNormal, 1, random, 0, RANDOM),
    ONNX(RandomNormalLike, 1, random_like, 0, RANDOM),
    ONNX(RandomUniform, 1, random, 0, RANDOM),
    ONNX(RandomUniformLike, 1, random_like, 0, RANDOM),
    ONNX(Range, 11, range, 0x7, PROPAGATES),
    ONNX(Reciprocal, 1, same, 0, ELEMENTWISE),
    ONNX(ReduceL1, 1, reduce, 1u << 1, 0),
    ONNX(ReduceL2, 1, reduce, 1u << 1, 0),
    ONNX(ReduceLogSum, 1, reduce, 1u << 1, 0),
    ONNX(ReduceLogSumExp, 1, reduce, 1u << 1, 0),
    ONNX(ReduceMax, 1, reduce_max, 1u << 1, PROPAGATES),
    ONNX(ReduceMean, 1, reduce, 1u << 1, 0),
    ONNX(ReduceMin, 1, reduce_min, 1u << 1, PROPAGATES),
    ONNX(ReduceProd, 1, reduce_prod, 1u << 1, PROPAGATES),
    ONNX(ReduceSum, 1, reduce_sum, 1u << 1, PROPAGATES),
    ONNX(ReduceSumSquare, 1, reduce, 1u << 1, 0),
    ONNX(RegexFullMatch, 20, regex, 0, 0),
    ONNX(Relu, 1, same, 0, ELEMENTWISE),
    ONNX(Reshape, 5, reshape, 1u << 1, MOVES | PROPAGATES),
    ONNX(Resize, 10, resize, 0xe, 0),
    ONNX(ReverseSequence, 10, reverse_sequence, 0, MOVES),
    ONNX(RoiAlign, 10, roi_align, 0, 0),
    ONNX(RotaryEmbedding, 23, same, 0, 0),
    ONNX(Round, 11, same, 0, ELEMENTWISE),
    ONNX(STFT, 17, stft, 1u << 1 | 1u << 3, 0),
    ONNX(Scan, 9, scan, 0, CONTROL),
    ONNX(Scatter, 9, scatter, 0, 0),
    ONNX(ScatterElements, 11, scatter, 0, 0),
    ONNX(ScatterND, 11, scatter, 0, 0),
    ONNX(Selu, 1, same, 0, ELEMENTWISE),
    ONNX(SequenceAt, 11, unknown, 0, 0),
    ONNX(SequenceConstruct, 11, sequence, 0, 0),
    ONNX(SequenceEmpty, 11, sequence, 0, 0),
    ONNX(SequenceErase, 11, sequence, 0, 0),
    ONNX(SequenceInsert, 11, sequence, 0, 0),
    ONNX(SequenceLength, 11, sequence_length, 0, 0),
    ONNX(SequenceMap, 17, sequence, 0, CONTROL),
    ONNX(Shape, 1, shape, 0, 0),
    ONNX(Shrink, 9, same, 0, ELEMENTWISE),
    ONNX(Sigmoid, 1, same, 0, ELEMENTWISE),
    ONNX(Sign, 9, same, 0, ELEMENTWISE),
    ONNX(Sin, 7, same, 0, ELEMENTWISE),
    ONNX(Sinh, 9, same, 0, ELEMENTWISE),
    ONNX(Size, 1, size, 0, 0),
    ONNX(Slice, 1, slice, 0x1e, MOVES | PROPAGATES),
    ONNX(Softmax, 1, same, 0, 0),
    ONNX(SoftmaxCrossEntropyLoss, 12, loss, 0, TRAINING),
    ONNX(Softplus, 1, same, 0, ELEMENTWISE),
    ONNX(Softsign, 1, same, 0, ELEMENTWISE),
    ONNX(SpaceToDepth, 1, space_to_depth, 0, MOVES),
    ONNX(Split, 2, split, 1u << 1, MOVES | PROPAGATES),
    ONNX(SplitToSequence, 11, sequence, 0, 0),
    ONNX(Sqrt, 1, sqrt, 0, ELEMENTWISE | PROPAGATES),
    ONNX(Squeeze, 1, squeeze, 1u << 1, MOVES | PROPAGATES),
    ONNX(StringConcat, 20, to_string, 0, 0),
    ONNX(StringNormalizer, 10, to_string, 0, 0),
    ONNX(StringSplit, 20, string_split, 0, 0),
    ONNX(Sub, 1, sub, 0, ELEMENTWISE | PROPAGATES),
    ONNX(Sum, 1, add, 0, SYMMETRIC | PROPAGATES),
    ONNX(SwiGLU, 28, same_pair, 0, ELEMENTWISE),
    ONNX(Swish, 24, same, 0, ELEMENTWISE),
    ONNX(Tan, 7, same, 0, ELEMENTWISE),
    ONNX(Tanh, 1, same, 0, ELEMENTWISE),
    ONNX(TensorScatter, 24, tensor_scatter, 0, 0),
    ONNX(TfIdfVectorizer, 9, tfidf, 0, 0),
    ONNX(ThresholdedRelu, 10, same, 0, ELEMENTWISE),
    ONNX(Tile, 6, tile, 1u << 1, MOVES | PROPAGATES),
    ONNX(TopK, 1, top_k, 1u << 1, 0),
    ONNX(Transpose, 1, transpose, 0, MOVES | PROPAGATES),
    ONNX(Trilu, 14, same, 0, 0),
    ONNX(Unique, 11, unique, 0, DATA_SIZED),
    ONNX(Unsqueeze, 1, unsqueeze, 1u << 1, MOVES | PROPAGATES),
    ONNX(Upsample, 7, upsample, 1u << 1, 0),
    ONNX(Where, 9, where, 0, ELEMENTWISE | PROPAGATES),
    ONNX(Xor, 1, xor, 0, SYMMETRIC | PROPAGATES),
    MICROSOFT(QGemm, 6, 9, qgemm, "alpha:f transA:i transB:i"),
    MICROSOFT(QLinearAdd, 7, 8, qlinear_binary, ""),
    MICROSOFT(QLinearGlobalAveragePool, 5, 5, qlinear_global_pool, "channels_last:i"),
    MICROSOFT(QLinearMul, 7, 8, qlinear_binary, ""),
    GANTRY(Attention, 1, 5, attention_parts),
    GANTRY(Gelu, 1, 1, same),
    GANTRY(HardSwish, 1, 1, same),
    GANTRY(LayerNorm, 3, 3, layer_norm),
    GANTRY(Silu, 1, 1, same),
};
/* clang-format on */

#define TABLE_COUNT ((uint32_t)(sizeof table / sizeof *table))

/* "ai.onnx" is another name of the default domain. */
static int compare(const gt_op *op, const char *domain, const char *name)
{
    int order = strcmp(op->domain, domain);
    return order ? order : strcmp(op->name, name);
}

const gt_op *gt_op_find(const char *domain, const char *name)
{
    if (!domain || strcmp(domain, "ai.onnx") == 0)
        domain = "";
    uint32_t low = 0, high = TABLE_COUNT;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = compare(&table[middle], domain, name);
        if (order == 0)
            return &table[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

int32_t gt_op_version(const gt_op *op, int32_t opset)
{
    int32_t version = 0;
    for (int k = 0; k < GT_OP_MAX_VERSIONS && op->since[k] && op->since[k] <= opset; k++)
        version = op->since[k];
    return version;
}

const gt_op *gt_op_table(uint32_t *out_count)
{
    *out_count = TABLE_COUNT;
    return table;
}
