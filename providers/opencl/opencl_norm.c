/* Softmax and the normalizations: kernels over rows, a group of items each, and BatchNormalization and LRN,
 * an item for each element. */
#include "opencl_heavy.h"

#define ROW_ITEMS 64

opencl_launch *opencl_rows_add(opencl_build *build, const opencl_node *node, const char *defines,
                               const char *name)
{
    char all[256];
    snprintf(all, sizeof all, "%s#define ITEMS %d\n", defines,
             node->device->runs_items_in_turn ? 1 : ROW_ITEMS);
    return opencl_heavy_add(build, &node->inputs[0], all, opencl_norm_source, name);
}

void opencl_rows_launch(opencl_launch *launch, const opencl_node *node, int64_t rows, const char *variant)
{
    size_t items = node->device->runs_items_in_turn ? 1 : ROW_ITEMS;
    double bytes = (double)opencl_bytes(&node->inputs[0]) + (double)opencl_bytes(&node->outputs[0]);
    opencl_launch_size(launch, rows * (int64_t)items, 1, 1);
    opencl_launch_groups(launch, items, 1, 1);
    opencl_launch_describe(launch, variant, bytes, 5 * (double)opencl_count(&node->inputs[0]));
}

/* ---- Softmax, LogSoftmax --------------------------------------------------------------------- */

static bool softmax_limits(const opencl_node *node, gantry_verdict *verdict)
{
    if (node->inputs[0].rank < 1)
        return opencl_refuse_rank(verdict, &node->inputs[0], "1 or more");
    return opencl_same_types(node, verdict);
}

/* Before version 13 the dims from the axis on are one row. */
static void prepare_softmax(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = &node->inputs[0];
    bool flat = node->view->version < 13;
    uint32_t axis = opencl_axis(gantry_node_int(node->view, "axis", flat ? 1 : -1), x->rank);
    int64_t length = opencl_count_dims(x, axis, flat ? x->rank : axis + 1);
    int64_t inner = flat ? 1 : opencl_count_dims(x, axis + 1, x->rank);
    opencl_launch *launch = opencl_rows_add(build, node, node->op->more, "softmax_rows");
    opencl_arg_input(launch, x);
    opencl_arg_output(launch, &node->outputs[0]);
    opencl_arg_int(launch, (int32_t)length);
    opencl_arg_int(launch, (int32_t)inner);
    opencl_rows_launch(launch, node, length ? opencl_count(x) / length : 0, "softmax:rows");
}

/* ---- normalizations of rows ------------------------------------------------------------------ */

/* Element e of row r has scale and bias number (r % groups * span + e) / inner. */
typedef struct norm {
    int64_t rows, length, groups, span, inner;
    float epsilon;
    const char *name;
} norm;

static void add_norm(opencl_build *build, const opencl_node *node, const norm *n, const char *defines)
{
    const opencl_operand *x = &node->inputs[0], *bias = opencl_input(node, 2);
    const opencl_operand *mean = opencl_output(node, 1), *inverse = opencl_output(node, 2);
    bool statistics = opencl_is_there(mean) || opencl_is_there(inverse);
    uint32_t spare = statistics ? opencl_scratch_add(build, (size_t)n->rows * sizeof(float)) : 0;
    char all[160];
    snprintf(all, sizeof all, "%s#define SCALE\n%s%s", defines, opencl_is_there(bias) ? "#define BIAS\n" : "",
             statistics ? "#define STATISTICS\n" : "");
    opencl_launch *launch = opencl_rows_add(build, node, all, "normalize_rows");
    opencl_arg_input(launch, x);
    opencl_arg_input(launch, &node->inputs[1]);
    opencl_arg_input(launch, opencl_is_there(bias) ? bias : x);
    opencl_arg_output(launch, &node->outputs[0]);
    for (uint32_t k = 1; statistics && k < 3; k++) {
        if (opencl_is_there(opencl_output(node, k)))
            opencl_arg_output(launch, opencl_output(node, k));
        else
            opencl_arg_scratch(launch, spare, sizeof(float));
    }
    opencl_arg_int(launch, (int32_t)n->length);
    opencl_arg_int(launch, (int32_t)n->groups);
    opencl_arg_int(launch, (int32_t)n->span);
    opencl_arg_int(launch, (int32_t)n->inner);
    opencl_arg_float(launch, n->epsilon);
    opencl_rows_launch(launch, node, n->rows, n->name);
}

/* ---- LayerNormalization, RMSNormalization ---------------------------------------------------- */

static uint32_t layer_axis(const opencl_node *node)
{
    return opencl_axis(gantry_node_int(node->view, "axis", -1), node->inputs[0].rank);
}

/* One factor for all rows' elements. */
static bool is_single(const opencl_node *node, const opencl_operand *operand)
{
    const opencl_operand *x = &node->inputs[0];
    return opencl_count(operand) == 1 && opencl_count_dims(x, layer_axis(node), x->rank) != 1;
}

/* One factor for all, or one for each element of a row. */
static bool is_row(const opencl_node *node, const opencl_operand *operand)
{
    const opencl_operand *x = &node->inputs[0];
    uint32_t axis = layer_axis(node);
    if (opencl_count(operand) == 1)
        return true;
    if (opencl_count(operand) != opencl_count_dims(x, axis, x->rank))
        return false;
    for (uint32_t k = 0; k < operand->rank && k < x->rank - axis; k++)
        if (operand->dims[operand->rank - 1 - k] != x->dims[x->rank - 1 - k])
            return false;
    return true;
}

static bool layer_limits(const opencl_node *node, gantry_verdict *verdict)
{
    const opencl_operand *x = &node->inputs[0];
    int64_t axis = gantry_node_int(node->view, "axis", -1);
    if (x->rank < 1)
        return opencl_refuse_rank(verdict, x, "1 or more");
    if (axis < -(int64_t)x->rank || axis >= (int64_t)x->rank)
        return opencl_refuse_attribute(verdict, "axis", "beyond the rank", "an axis of the input");
    if (!opencl_same_types(node, verdict))
        return false;
    for (uint32_t k = 1; k < 3; k++)
        if (!opencl_takes_type(opencl_output(node, k), OPENCL_F32, verdict))
            return false;
    for (uint32_t k = 1; k < 3 && node->final; k++) {
        const opencl_operand *factor = opencl_input(node, k);
        if (!opencl_is_there(factor) ||
            (is_row(node, factor) && is_single(node, factor) == is_single(node, &node->inputs[1])))
            continue;
        gantry_refuse(verdict, GANTRY_REFUSE_layout, factor->view->name, "factors that differ by row",
                      "scale and bias of one element, or of one for each element of a row", "");
        return false;
    }
    return true;
}

static void prepare_layer(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = &node->inputs[0];
    uint32_t axis = layer_axis(node);
    int64_t length = opencl_count_dims(x, axis, x->rank);
    norm n = {.rows = opencl_count_dims(x, 0, axis),
              .length = length,
              .groups = 1,
              .inner = is_single(node, &node->inputs[1]) ? length : 1,
              .epsilon = gantry_node_float(node->view, "epsilon", 1e-5f),
              .name = "layer_norm:rows"};
    add_norm(build, node, &n, node->op->more);
}

/* ---- InstanceNormalization, GroupNormalization ----------------------------------------------- */

static bool group_limits(const opencl_node *node, gantry_verdict *verdict)
{
    const opencl_operand *x = &node->inputs[0];
    int64_t groups = gantry_node_int(node->view, "num_groups", 1);
    if (x->rank < 2)
        return opencl_refuse_rank(verdict, x, "2 or more");
    if (groups < 1 || (node->final && x->dims[1] % groups))
        return opencl_refuse_attribute(verdict, "num_groups", "no divisor of the channels", "a divisor");
    return opencl_same_types(node, verdict) && opencl_only_first_output(node, verdict);
}

/* GroupNormalization of version 18 has one factor a group, later ones one a channel. */
static void prepare_group(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = &node->inputs[0];
    bool instance = node->op->more != NULL;
    int64_t channels = x->dims[1], inner = opencl_count_dims(x, 2, x->rank);
    int64_t groups = instance ? channels : gantry_node_int(node->view, "num_groups", 1);
    int64_t length = (groups ? channels / groups : 0) * inner;
    norm n = {.rows = x->dims[0] * groups,
              .length = length,
              .groups = groups,
              .span = length,
              .inner = !instance && node->view->version < 21 ? length : inner,
              .epsilon = gantry_node_float(node->view, "epsilon", 1e-5f),
              .name = instance ? "instance_norm:rows" : "group_norm:rows"};
    add_norm(build, node, &n, "");
}

/* ---- BatchNormalization, LRN ----------------------------------------------------------------- */

static bool batch_limits(const opencl_node *node, gantry_verdict *verdict)
{
    if (node->inputs[0].rank < 2)
        return opencl_refuse_rank(verdict, &node->inputs[0], "2 or more");
    if (gantry_node_int(node->view, "training_mode", 0))
        return opencl_refuse_attribute(verdict, "training_mode", "1", "0");
    if (gantry_node_int(node->view, "spatial", 1) == 0)
        return opencl_refuse_attribute(verdict, "spatial", "0", "1");
    return opencl_same_types(node, verdict) && opencl_only_first_output(node, verdict);
}

static void launch_channels(opencl_launch *launch, const opencl_node *node, const char *variant, double flops)
{
    const opencl_operand *x = &node->inputs[0];
    opencl_launch_items(launch, opencl_count_dims(x, 2, x->rank), x->dims[1], x->dims[0]);
    opencl_launch_describe(launch, variant, 2 * (double)opencl_bytes(x), flops * (double)opencl_count(x));
}

static void prepare_batch(opencl_build *build, const opencl_node *node)
{
    opencl_launch *launch = opencl_rows_add(build, node, "", "batch_normalize");
    for (uint32_t k = 0; k < 5; k++)
        opencl_arg_input(launch, &node->inputs[k]);
    opencl_arg_output(launch, &node->outputs[0]);
    opencl_arg_int(launch, (int32_t)opencl_count_dims(&node->inputs[0], 2, node->inputs[0].rank));
    opencl_arg_float(launch, gantry_node_float(node->view, "epsilon", 1e-5f));
    launch_channels(launch, node, "batch_norm", 6);
}

static bool lrn_limits(const opencl_node *node, gantry_verdict *verdict)
{
    int64_t size = gantry_node_int(node->view, "size", 0);
    if (node->inputs[0].rank < 2)
        return opencl_refuse_rank(verdict, &node->inputs[0], "2 or more");
    if (size < 1 || size > INT32_MAX / 2)
        return opencl_refuse_attribute(verdict, "size", "no number of channels", "1 or more");
    return opencl_same_types(node, verdict);
}

static void prepare_lrn(opencl_build *build, const opencl_node *node)
{
    opencl_launch *launch = opencl_rows_add(build, node, "", "local_response");
    opencl_arg_input(launch, &node->inputs[0]);
    opencl_arg_output(launch, &node->outputs[0]);
    opencl_arg_int(launch, (int32_t)opencl_count_dims(&node->inputs[0], 2, node->inputs[0].rank));
    opencl_arg_int(launch, (int32_t)gantry_node_int(node->view, "size", 1));
    opencl_arg_float(launch, gantry_node_float(node->view, "alpha", 1e-4f));
    opencl_arg_float(launch, gantry_node_float(node->view, "beta", 0.75f));
    opencl_arg_float(launch, gantry_node_float(node->view, "bias", 1.0f));
    launch_channels(launch, node, "lrn", 2 * (double)gantry_node_int(node->view, "size", 1) + 10);
}

/* ---- composites ------------------------------------------------------------------------------ */

static bool activation_limits(const opencl_node *node, gantry_verdict *verdict)
{
    return opencl_same_types(node, verdict);
}

static void prepare_activation(opencl_build *build, const opencl_node *node)
{
    const opencl_operand *x = &node->inputs[0];
    bool by_tanh = strcmp(gantry_node_string(node->view, "approximate", "none"), "tanh") == 0;
    char defines[96];
    snprintf(defines, sizeof defines, "#define APPLY %s\n",
             by_tanh ? "gelu_by_tanh" : (const char *)node->op->more);
    opencl_launch *launch = opencl_rows_add(build, node, defines, "activate");
    opencl_arg_input(launch, x);
    opencl_arg_output(launch, &node->outputs[0]);
    opencl_arg_int(launch, (int32_t)opencl_count(x));
    opencl_launch_items(launch, opencl_count(x), 1, 1);
    opencl_launch_describe(launch, node->op->more, 2 * (double)opencl_bytes(x), 10 * (double)opencl_count(x));
}

#define ROW(name_, domain_, limits_, prepare_, more_)                                                        \
    {                                                                                                        \
        .name = (name_), .domain = (domain_), .types = OPENCL_SINGLE_OR_HALF, .limits = (limits_),           \
        .prepare = (prepare_), .more = (more_)                                                               \
    }
/* The last column: what the kernel is compiled with, which function it applies, or whether each channel is a
 * group of its own. */
static const opencl_op ops[] = {
    ROW("Softmax", "", softmax_limits, prepare_softmax, ""),
    ROW("LogSoftmax", "", softmax_limits, prepare_softmax, "#define LOGARITHM\n"),
    ROW("LayerNormalization", "", layer_limits, prepare_layer, ""),
    ROW("RMSNormalization", "", layer_limits, prepare_layer, "#define RMS\n"),
    ROW("LayerNorm", "gantry", layer_limits, prepare_layer, ""),
    ROW("InstanceNormalization", "", group_limits, prepare_group, "instance"),
    ROW("GroupNormalization", "", group_limits, prepare_group, NULL),
    ROW("BatchNormalization", "", batch_limits, prepare_batch, NULL),
    ROW("LRN", "", lrn_limits, prepare_lrn, NULL),
    ROW("Gelu", "gantry", activation_limits, prepare_activation, "gelu"),
    ROW("Silu", "gantry", activation_limits, prepare_activation, "silu"),
    ROW("HardSwish", "gantry", activation_limits, prepare_activation, "hard_swish"),
};
const opencl_op_table opencl_norm_ops = {ops, sizeof ops / sizeof *ops};
