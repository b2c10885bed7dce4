/* What a shape rule sees of its node, how it says what it found, and the list of rules.
 *
 * A rule reads input types and dims (all may be unknown), builds expressions, and sets outputs. It returns a
 * status only for what is wrong with the model; memory running out is remembered by the context. */
#ifndef GT_GRAPH_INFER_RULES_H
#define GT_GRAPH_INFER_RULES_H

#include "infer.h"

/* Elements of one value of which some may be unknown: what is completely known goes to gt_value.elements. */
typedef struct gt_part {
    uint32_t count;
    gt_expr *elements; /* NULL: nothing known */
    /* What the inference before this one found, to be kept when it is found again. */
    int32_t old_rank;
    const gt_expr *old_dims;
} gt_part;

typedef struct gt_infer_state {
    const struct gt_infer_state *parent;
    gt_graph *graph;
    gt_arena *scratch; /* of the whole inference, bodies included */
    gt_part *parts;    /* by value id */
    /* What checks make equal, as a forest: the parent of each expression that has one. Extents are read and
     * set as the root, so that shapes do not grow with every input of the same batch size. */
    gt_expr *equal;
    uint32_t equal_count;
    uint32_t segment; /* the segment in which this graph begins to run */
    uint32_t depth;   /* graphs around this one */
    uint32_t loops;   /* loops around this one */
    bool failed;      /* memory ran out */
} gt_infer_state;

struct gt_infer {
    gt_graph *graph;
    gt_model *model;
    gt_exprs *exprs;
    gt_infer_state *state;
    gt_node *node;
    uint32_t node_id;
    gantry_error *err;
};

/* A shape while it is being made. rank -1: unknown. */
typedef struct gt_shape {
    int32_t rank;
    gt_expr dims[GANTRY_MAX_RANK];
} gt_shape;

/* ---- inputs: k past the end or left out reads as absent */

bool gt_in_present(const gt_infer *infer, uint32_t k);
const gt_value *gt_in_value(const gt_infer *infer, uint32_t k); /* NULL when absent */
gantry_dtype gt_in_dtype(const gt_infer *infer, uint32_t k);
int32_t gt_in_rank(const gt_infer *infer, uint32_t k);
gt_shape gt_in_shape(const gt_infer *infer, uint32_t k);
gt_expr gt_in_dim(const gt_infer *infer, uint32_t k, int32_t axis); /* axis may be negative */
/* The product of all extents; unknown when one is. */
gt_expr gt_in_size(const gt_infer *infer, uint32_t k);
/* True when k has a known number of elements, at most GT_MAX_ELEMENTS. */
bool gt_in_is_small(const gt_infer *infer, uint32_t k, uint32_t *out_count);
/* Cheap: true when gt_in_elements may find something without reading a constant. */
bool gt_in_has_elements(const gt_infer *infer, uint32_t k);
/* The known elements (some may be GT_EXPR_UNKNOWN), or NULL. */
const gt_expr *gt_in_elements(gt_infer *infer, uint32_t k, uint32_t *out_count);
/* The elements of an operand that decides shapes, all known: what nobody can say becomes symbols of data.
 * NULL when the operand is absent or has no known, small number of elements. */
const gt_expr *gt_in_shape_operand(gt_infer *infer, uint32_t k, uint32_t *out_count);
/* The elements of an operand when all are constant integers. */
bool gt_in_constants(gt_infer *infer, uint32_t k, int64_t *out_values, uint32_t limit, uint32_t *out_count);

/* Makes the elements of a small constant known; nothing for other values. */
void gt_infer_load_constant(const gt_infer *infer, uint32_t value);

/* ---- outputs */

bool gt_out_present(const gt_infer *infer, uint32_t k);
void gt_out_shape(gt_infer *infer, uint32_t k, gantry_dtype dtype, const gt_shape *shape);
void gt_out_like(gt_infer *infer, uint32_t k, gantry_dtype dtype, uint32_t input); /* dims of an input */
/* Elements that may be partly unknown; ignored when count is not the output's element count. */
void gt_out_elements(gt_infer *infer, uint32_t k, const gt_expr *elements, uint32_t count);
/* A size of output k that only running can tell: a symbol of data with an upper bound (or GT_EXPR_UNKNOWN).
 */
gt_expr gt_out_data_dim(gt_infer *infer, uint32_t k, uint32_t axis, gt_expr bound);

/* ---- errors and checks */

/* Fails with "node 'n' (Op): ..." and a line for each input: name, shape, where it comes from. What follows
 * GT_HINT in the message comes last. */
#define GT_HINT "\n  hint: "
#define gt_infer_fail(infer, code, ...) (gt_infer_fail_fill((infer), (code), __VA_ARGS__), gt_failed(code))
void gt_infer_fail_fill(const gt_infer *infer, gantry_status code, const char *format, ...)
    GANTRY_PRINTF(3, 4);
/* The axis counted from 0, or an error when it is not among rank axes. */
gantry_status gt_infer_axis(const gt_infer *infer, int64_t axis, int32_t rank, int32_t *out_axis);
/* The extent that two inputs must share: an error when both are constant and differ, a check at bind when
 * that can't be decided. Axes count from 0. */
gantry_status gt_infer_same(gt_infer *infer, uint32_t a, int32_t axis_a, uint32_t b, int32_t axis_b,
                            gt_expr *out);
/* Fails with both tensors of a check. */
gantry_status gt_infer_fail_pair(const gt_infer *infer, const gt_shape_check *check);
/* The simplest extent that is equal to e whenever the checks hold. */
gt_expr gt_infer_root(const gt_infer *infer, gt_expr e);
/* From here on both are taken for equal: a check says so. */
void gt_infer_unite(gt_infer *infer, gt_expr a, gt_expr b);
/* Remembers that expr, a BROADCAST or SAME, must have a value at bind; axes counted from the right, 0: the
 * whole tensor. Nothing when it surely has one. */
void gt_infer_check(gt_infer *infer, gt_expr expr, uint32_t a, uint32_t axis_a, uint32_t b, uint32_t axis_b);
/* What the operator demands of its inputs: an error when the condition is surely false, a check at bind when
 * that can't be decided. rule is a sentence that lives as long as the program. */
gantry_status gt_infer_require(gt_infer *infer, gt_expr condition, const char *rule);
/* The extent that x and y broadcast to when the check of both holds. */
gt_expr gt_infer_broadcast_extent(gt_infer *infer, gt_expr x, gt_expr y, const gt_shape_check *both);
/* Broadcasts inout_shape, which came from inputs below k, with input k. */
gantry_status gt_infer_broadcast(gt_infer *infer, gt_shape *inout_shape, uint32_t k);
/* What every elementwise operator does first: all inputs first..last-1 broadcast. */
gantry_status gt_infer_broadcast_inputs(gt_infer *infer, uint32_t first, uint32_t last, gt_shape *out_shape);
/* All present inputs of mask have one type. */
gantry_status gt_infer_same_types(gt_infer *infer, uint32_t first, uint32_t last);

/* Appends " name float32[...] from node (Op)" for a value. */
void gt_infer_describe(const gt_graph *graph, uint32_t value, gt_text *text);

/* ---- axes that only a bind knows: infer_axes.c */

/* True, as an expression, when axis (maybe negative) is the expected one of rank. */
gt_expr gt_axis_is(const gt_infer *infer, gt_expr axis, int32_t rank, int32_t expected);
void gt_axes_mask(const gt_infer *infer, const gt_expr *axes, uint32_t count, int32_t rank,
                  gt_expr *out_mask);
gantry_status gt_axes_drop(gt_infer *infer, const gt_expr *mask, uint32_t count, gt_shape *inout_shape);
gantry_status gt_axes_insert(gt_infer *infer, const gt_expr *mask, int32_t rank, gt_shape *inout_shape);

/* ---- expressions, shortly */

static inline gt_expr gt_number(const gt_infer *infer, int64_t value)
{
    return gt_expr_const(infer->exprs, value);
}
static inline gt_expr gt_make(const gt_infer *infer, gt_expr_kind kind, gt_expr a, gt_expr b)
{
    return gt_expr_make(infer->exprs, kind, a, b, 0);
}
static inline gt_expr gt_add(const gt_infer *infer, gt_expr a, gt_expr b)
{
    return gt_make(infer, GT_EXPR_ADD, a, b);
}
static inline gt_expr gt_sub(const gt_infer *infer, gt_expr a, gt_expr b)
{
    return gt_make(infer, GT_EXPR_SUB, a, b);
}
static inline gt_expr gt_mul(const gt_infer *infer, gt_expr a, gt_expr b)
{
    return gt_make(infer, GT_EXPR_MUL, a, b);
}
static inline gt_expr gt_select(const gt_infer *infer, gt_expr condition, gt_expr yes, gt_expr no)
{
    return gt_expr_make(infer->exprs, GT_EXPR_SELECT, condition, yes, no);
}
static inline bool gt_is_const(const gt_infer *infer, gt_expr e, int64_t *out)
{
    return gt_expr_is_const(infer->exprs, e, out);
}
static inline int64_t gt_attr_int(const gt_infer *infer, const char *name, int64_t otherwise)
{
    return gt_node_int(infer->node, name, otherwise);
}

/* A constant that no caller can replace (an initializer that is an input too has only a default). */
static inline bool gt_value_is_fixed(const gt_value *value)
{
    return value->constant != GT_NONE && value->input_index < 0;
}

/* Moves elements: out[i] = in[index of i], where the input is read with one stride and offset for each output
 * axis. Both shapes are constant and small, else nothing is set. */
void gt_out_strided(gt_infer *infer, uint32_t k, uint32_t input, const int64_t *strides, int64_t offset);
/* Row-major strides of input k when all its extents are constants. */
bool gt_in_strides(const gt_infer *infer, uint32_t k, int64_t *out_strides);

/* Version, arity, types and attributes against the operator table; sets the node's version. */
gantry_status gt_infer_check_node(gt_infer *infer);
/* Infers a body of the node at hand, whose inputs have been given types and dims: infer.c. */
gantry_status gt_infer_body(gt_infer *infer, gt_graph *body);
/* A symbol for an extent of a body's input that differs between its entries. */
gt_expr gt_infer_body_dim(const gt_infer *infer, const gt_graph *body, uint32_t value, uint32_t axis);
/* True when e needs symbols that only exist deeper than this graph. */
bool gt_infer_is_local(const gt_infer *infer, gt_expr e);

/* Every rule of the operator table. */
/* clang-format off */
#define GT_RULES(X) \
    X(same) X(same_bool) X(identity) X(not) X(abs) X(neg) X(floor) X(ceil) X(sqrt) X(cast) \
    X(cast_like) X(bit_cast) X(clip) X(dropout) X(prelu) X(same_pair) X(add) X(sub) X(mul) X(div) \
    X(mod) X(min) X(max) X(broadcast) X(pow) X(equal) X(less) X(greater) X(less_equal) \
    X(greater_equal) X(and) X(or) X(xor) X(where) X(mean) X(reshape) X(flatten) X(squeeze) \
    X(unsqueeze) X(transpose) X(expand) X(tile) X(concat) X(split) X(slice) X(pad) \
    X(depth_to_space) X(space_to_depth) X(center_crop_pad) X(reverse_sequence) X(shape) X(size) \
    X(constant) X(constant_of_shape) X(range) X(eye_like) X(random) X(random_like) X(window) \
    X(mel_weights) X(multinomial) X(gather) X(gather_elements) X(gather_nd) X(scatter) X(one_hot) \
    X(top_k) X(non_zero) X(nms) X(compress) X(unique) X(arg) X(tensor_scatter) X(reduce) \
    X(reduce_sum) X(reduce_prod) X(reduce_min) X(reduce_max) X(det) X(conv) X(conv_integer) \
    X(qlinear_conv) X(conv_transpose) X(deform_conv) X(pool) X(global_pool) X(max_unpool) \
    X(roi_pool) X(roi_align) X(grid_sample) X(affine_grid) X(col2im) X(resize) X(upsample) \
    X(matmul) X(matmul_integer) X(qlinear_matmul) X(qlinear_binary) \
    X(qlinear_global_pool) X(qgemm) X(gemm) X(einsum) X(batch_norm) X(layer_norm) \
    X(attention) X(attention_parts) X(linear_attention) X(causal_conv) X(recurrent) X(quantize) X(dequantize) \
    X(dynamic_quantize) X(dft) X(stft) X(if) X(loop) X(scan) X(sequence) X(to_string) X(regex) \
    X(string_split) X(loss) X(unknown) X(tfidf) X(sequence_length) X(optional_has) X(optional_get) \
    X(image) X(own)
/* clang-format on */

#define GT_RULE_DECLARE(name) gantry_status gt_rule_##name(gt_infer *infer);
GT_RULES(GT_RULE_DECLARE)
#undef GT_RULE_DECLARE

#endif
