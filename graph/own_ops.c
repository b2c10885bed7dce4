/* Operators that plugins bring: checked, found beside the table, and inferred with the plugin's rule. */
#include "own_ops.h"

#include "infer_rules.h"

/* ---- making one ------------------------------------------------------------------------------ */

static const char *const reserved_domains[] = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "gantry"};

static gantry_status check(const gantry_operator *op, gantry_error *err)
{
    const char *wrong = NULL;
    for (size_t k = 0; k < sizeof reserved_domains / sizeof *reserved_domains && op->domain; k++)
        if (strcmp(op->domain, reserved_domains[k]) == 0)
            wrong = "its domain is one of ONNX or Gantry";
    if (!op->domain || !op->name || !*op->name)
        wrong = "its domain or its name is missing";
    else if (gt_op_find(op->domain, op->name))
        wrong = "Gantry has it itself";
    else if (op->since_version < 1)
        wrong = "its since_version is less than 1";
    else if (op->input_min > op->input_max || op->output_min > op->output_max || op->output_max == 0)
        wrong = "its numbers of inputs or outputs are no range";
    else if (!op->infer)
        wrong = "it has no shape rule (infer is NULL)";
    if (wrong)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL, "operator \"%.100s.%.100s\": %s",
                       op->domain ? op->domain : "?", op->name ? op->name : "?", wrong);
    return GANTRY_OK;
}

static int16_t limit_of(uint32_t count)
{
    return count > INT16_MAX ? -1 : (int16_t)count;
}

gantry_status gt_own_op_create(gt_allocator *allocator, const gantry_operator *source, gt_own_op **out_op,
                               gantry_error *err)
{
    gantry_operator op = {0};
    size_t bytes = source ? source->struct_bytes : 0;
    *out_op = NULL;
    if (bytes < offsetof(gantry_operator, infer) + sizeof op.infer)
        return gt_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN, NULL,
                       "an operator of the plugin states a struct_bytes of %zu; at least %zu are needed",
                       bytes, sizeof op);
    memcpy(&op, source, bytes < sizeof op ? bytes : sizeof op);
    GT_TRY(check(&op, err));
    size_t domain = strlen(op.domain) + 1, name = strlen(op.name) + 1;
    gt_own_op *own = gt_alloc(allocator, sizeof *own + domain + name);
    if (!own)
        return gt_out_of_memory(err, GANTRY_STAGE_PLUGIN);
    char *text = (char *)(own + 1);
    op.domain = memcpy(text, op.domain, domain);
    op.name = memcpy(text + domain, op.name, name);
    *own = (gt_own_op){.source = op,
                       .row = {.name = op.name,
                               .domain = op.domain,
                               .since = {op.since_version},
                               .implemented_from = op.since_version,
                               .min_inputs = limit_of(op.input_min),
                               .max_inputs = limit_of(op.input_max),
                               .min_outputs = limit_of(op.output_min),
                               .max_outputs = limit_of(op.output_max),
                               .shape_operands = op.shape_inputs,
                               .flags = GT_OP_RANDOM, /* nothing is known of it: never folded or merged */
                               .infer = gt_rule_own,
                               .attributes = ""}};
    *out_op = own;
    return GANTRY_OK;
}

/* ---- finding it ------------------------------------------------------------------------------ */

/* The newest version that opset allows; where none does the oldest, for the error that says so. */
static const gt_op *find_own(const gt_own_ops *ops, const char *domain, const char *name, int32_t opset)
{
    const gt_op *best = NULL;
    for (uint32_t k = 0; ops && k < ops->count; k++) {
        const gt_op *row = &ops->data[k]->row;
        if (strcmp(row->name, name) != 0 || strcmp(row->domain, domain) != 0)
            continue;
        bool allowed = row->since[0] <= opset, newer = !best || row->since[0] > best->since[0];
        bool best_allowed = best && best->since[0] <= opset;
        if (!best || (allowed ? !best_allowed || newer : !best_allowed && !newer))
            best = row;
    }
    return best;
}

const gt_op *gt_model_find_op(const gt_model *model, const char *domain, const char *name, int32_t opset)
{
    const gt_op *op = gt_op_find(domain, name);
    return op || !domain ? op : find_own(model->own_ops, domain, name, opset);
}

/* ---- the builder of extents: GANTRY_NO_ID and GT_EXPR_UNKNOWN are the same number ------------- */

_Static_assert(GANTRY_NO_ID == GT_EXPR_UNKNOWN, "an unknown extent is passed on as it is");

struct gantry_dim_builder {
    gt_infer *infer;
    bool wrong; /* an extent that nobody made was given */
};

static gantry_dim combine(gantry_dim_builder *builder, gt_expr_kind kind, gantry_dim a, gantry_dim b)
{
    gt_exprs *exprs = builder->infer->exprs;
    bool unknown = a == GANTRY_NO_ID || b == GANTRY_NO_ID;
    bool wrong =
        (a != GANTRY_NO_ID && a >= exprs->nodes.count) || (b != GANTRY_NO_ID && b >= exprs->nodes.count);
    builder->wrong = builder->wrong || wrong;
    return unknown || wrong ? GANTRY_NO_ID : gt_expr_make(exprs, kind, a, b, 0);
}

static gantry_dim dim_number(gantry_dim_builder *builder, int64_t value)
{
    return gt_number(builder->infer, value);
}

static gantry_dim dim_add(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, GT_EXPR_ADD, a, b);
}

static gantry_dim dim_subtract(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, GT_EXPR_SUB, a, b);
}

static gantry_dim dim_multiply(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, GT_EXPR_MUL, a, b);
}

static gantry_dim dim_floor_divide(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, GT_EXPR_FLOORDIV, a, b);
}

static gantry_dim dim_minimum(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, GT_EXPR_MIN, a, b);
}

static gantry_dim dim_maximum(gantry_dim_builder *builder, gantry_dim a, gantry_dim b)
{
    return combine(builder, GT_EXPR_MAX, a, b);
}

static int dim_is_number(gantry_dim_builder *builder, gantry_dim a, int64_t *out_value)
{
    bool known = a != GANTRY_NO_ID && a < builder->infer->exprs->nodes.count;
    return known && gt_is_const(builder->infer, a, out_value);
}

static gantry_dim dim_element(gantry_dim_builder *builder, uint32_t input, uint32_t index)
{
    uint32_t count = 0;
    bool declared = input < 32 && (builder->infer->node->op->shape_operands >> input & 1);
    const gt_expr *elements = declared ? gt_in_shape_operand(builder->infer, input, &count) : NULL;
    bool usable = elements && index < count && elements[index] != GT_EXPR_UNKNOWN &&
                  !gt_expr_is_real(builder->infer->exprs, elements[index]);
    return usable ? elements[index] : GANTRY_NO_ID;
}

static gantry_dim dim_at_most(gantry_dim_builder *builder, uint32_t output, uint32_t axis, gantry_dim bound)
{
    bool known = bound != GANTRY_NO_ID && bound < builder->infer->exprs->nodes.count;
    builder->wrong = builder->wrong || (bound != GANTRY_NO_ID && !known) || axis >= GANTRY_MAX_RANK;
    if (builder->wrong || !gt_out_present(builder->infer, output))
        return GANTRY_NO_ID;
    return gt_out_data_dim(builder->infer, output, axis, known ? bound : GT_EXPR_UNKNOWN);
}

static const gantry_dim_table dim_table = {.struct_bytes = sizeof dim_table,
                                           .number = dim_number,
                                           .add = dim_add,
                                           .subtract = dim_subtract,
                                           .multiply = dim_multiply,
                                           .floor_divide = dim_floor_divide,
                                           .minimum = dim_minimum,
                                           .maximum = dim_maximum,
                                           .is_number = dim_is_number,
                                           .element = dim_element,
                                           .at_most = dim_at_most};

/* ---- the rule -------------------------------------------------------------------------------- */

/* Arrays of one call: types, ranks and extents of inputs and outputs. */
typedef struct call {
    gantry_dtype *dtypes;
    int32_t *ranks;
    gantry_dim **dims;
} call;

static bool make_call(gt_infer *infer, uint32_t count, call *out)
{
    gt_arena *scratch = infer->state->scratch;
    out->dtypes = gt_arena_array(scratch, count + 1, sizeof *out->dtypes);
    out->ranks = gt_arena_array(scratch, count + 1, sizeof *out->ranks);
    out->dims = gt_arena_array(scratch, count + 1, sizeof *out->dims);
    gantry_dim *room = gt_arena_array(scratch, (size_t)count * GANTRY_MAX_RANK + 1, sizeof *room);
    if (!out->dtypes || !out->ranks || !out->dims || !room)
        return false;
    for (uint32_t k = 0; k < count; k++) {
        out->dtypes[k] = GANTRY_UNDEFINED;
        out->ranks[k] = -1;
        out->dims[k] = room + (size_t)k * GANTRY_MAX_RANK;
        for (uint32_t axis = 0; axis < GANTRY_MAX_RANK; axis++)
            out->dims[k][axis] = GANTRY_NO_ID;
    }
    return true;
}

static void fill_inputs(gt_infer *infer, call *inputs)
{
    for (uint32_t k = 0; k < infer->node->input_count; k++) {
        gt_shape shape = gt_in_shape(infer, k);
        inputs->dtypes[k] = gt_in_dtype(infer, k);
        inputs->ranks[k] = shape.rank;
        for (int32_t axis = 0; axis < shape.rank; axis++)
            inputs->dims[k][axis] = shape.dims[axis];
    }
}

/* Nothing that a plugin says is believed unread. */
static gantry_status take_outputs(gt_infer *infer, const call *outputs)
{
    const gt_op *op = infer->node->op;
    for (uint32_t k = 0; k < infer->node->output_count; k++) {
        gt_shape shape = {.rank = outputs->ranks[k]};
        gantry_dtype dtype = outputs->dtypes[k];
        if (dtype >= GANTRY_DTYPE_COUNT || shape.rank < -1 || shape.rank > GANTRY_MAX_RANK)
            return gt_infer_fail(infer, GANTRY_PROVIDER,
                                 "the shape rule of %s.%s gives output %u the type %d and the rank %d",
                                 op->domain, op->name, k, (int)dtype, shape.rank);
        for (int32_t axis = 0; axis < shape.rank; axis++) {
            int64_t number;
            shape.dims[axis] = outputs->dims[k][axis];
            if (shape.dims[axis] == GT_EXPR_UNKNOWN)
                continue;
            if (shape.dims[axis] >= infer->exprs->nodes.count)
                return gt_infer_fail(infer, GANTRY_PROVIDER,
                                     "the shape rule of %s.%s gives output %u an extent that it did not make",
                                     op->domain, op->name, k);
            if (gt_is_const(infer, shape.dims[axis], &number) && number < 0)
                return gt_infer_fail(infer, GANTRY_MODEL_SHAPE, "extent %d of output %u would be %lld", axis,
                                     k, (long long)number);
        }
        gt_out_shape(infer, k, dtype, &shape);
    }
    return GANTRY_OK;
}

gantry_status gt_rule_own(gt_infer *infer)
{
    const gantry_operator *op = &((const gt_own_op *)infer->node->op)->source;
    const gt_node *node = infer->node;
    call inputs, outputs;
    if (!make_call(infer, node->input_count, &inputs) || !make_call(infer, node->output_count, &outputs)) {
        infer->state->failed = true;
        return GANTRY_OK;
    }
    fill_inputs(infer, &inputs);
    gantry_dim_builder builder = {.infer = infer};
    gantry_infer_args args = {.struct_bytes = sizeof args,
                              .node_name = node->name,
                              .attribute_count = node->attribute_count,
                              .attributes = node->attributes,
                              .input_count = node->input_count,
                              .input_dtypes = inputs.dtypes,
                              .input_ranks = inputs.ranks,
                              .input_dims = (const gantry_dim *const *)inputs.dims,
                              .output_count = node->output_count,
                              .output_dtypes = outputs.dtypes,
                              .output_ranks = outputs.ranks,
                              .output_dims = (gantry_dim *const *)outputs.dims,
                              .builder = &builder,
                              .dims = &dim_table};
    gantry_error own = GANTRY_ERROR_INIT;
    gantry_status status = op->infer(op->self, &args, &own);
    own.message[sizeof own.message - 1] = 0;
    if (status == GANTRY_RESOURCE)
        return gt_out_of_memory(infer->err, GANTRY_STAGE_LOAD);
    if (status < GANTRY_OK || status > GANTRY_INTERNAL)
        return gt_infer_fail(infer, GANTRY_PROVIDER,
                             "the shape rule of %s.%s returned %d, which is no status", op->domain, op->name,
                             (int)status);
    if (status != GANTRY_OK)
        return gt_infer_fail(infer, status == GANTRY_MODEL_TYPE ? status : GANTRY_MODEL_SHAPE, "%s",
                             *own.message ? own.message : "the operator's shape rule refuses it");
    if (builder.wrong)
        return gt_infer_fail(infer, GANTRY_PROVIDER,
                             "the shape rule of %s.%s combines extents that nobody made", op->domain,
                             op->name);
    return take_outputs(infer, &outputs);
}
