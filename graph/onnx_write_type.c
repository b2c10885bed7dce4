/* Types and shapes of values in a written file.
 *
 * What inference knows goes first: numbers, and expressions over the names of input extents ("2*batch+1").
 * Where it knows nothing, what the file declared stays. An extent that has no name of its own (an input's
 * "?", a size that depends on data) is left open. */
#include "expr_internal.h"
#include "onnx_write_internal.h"

/* Longer expressions are no names, and their texts are cut. */
#define MAX_NAME_BYTES 128u
#define MAX_VISITED 64u

/* ---- names of extents ------------------------------------------------------------------------ */

/* A symbol that the model's author named. */
static bool is_named(const gt_model *model, const gt_symbol *symbol)
{
    if (symbol->kind != GT_SYMBOL_INPUT_DIM)
        return false;
    const gt_value *input = gt_graph_value(model->root, symbol->value);
    const char *given = input->declared_dim_names ? input->declared_dim_names[symbol->axis] : NULL;
    return given && given[0] && strcmp(given, "?") != 0;
}

static bool has_names(const gt_model *model, gt_expr e, uint32_t *inout_left)
{
    if (e == GT_EXPR_UNKNOWN || *inout_left == 0)
        return false;
    --*inout_left;
    const gt_expr_node *node = &model->exprs.nodes.data[e];
    if (node->kind == GT_EXPR_CONST || node->kind == GT_EXPR_REAL_CONST)
        return true;
    if (node->kind == GT_EXPR_SYMBOL)
        return is_named(model, &model->exprs.symbols.data[node->a]);
    const gt_expr operands[] = {node->a, node->b, node->c};
    unsigned arity = gt_expr_arity(node->kind);
    for (unsigned k = 0; k < 3 && k < arity; k++)
        if (!has_names(model, operands[k], inout_left))
            return false;
    return true;
}

/* The expression as a name in writer->text; false when it has none that says all. */
static bool print_name(gt_writer *writer, gt_expr e)
{
    uint32_t left = MAX_VISITED;
    writer->text.length = 0;
    if (!has_names(writer->model, e, &left))
        return false;
    gt_expr_print(&writer->model->exprs, e, &writer->text);
    return !writer->text.failed && writer->text.length && writer->text.length <= MAX_NAME_BYTES;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void set_number(GtOnnx__Dimension *dim, int64_t extent)
{
    dim->has_dim_value = true;
    dim->dim_value = extent;
}

static gantry_status set_name(gt_writer *writer, GtOnnx__Dimension *dim, const char *name)
{
    const char *copy = gt_arena_text(&writer->arena, name, strlen(name));
    if (!copy)
        return gt_write_no_memory(writer);
    dim->has_dim_param = true;
    dim->dim_param = gt_write_text(copy);
    return GANTRY_OK;
}

static const char *declared_name(const gt_value *value, int32_t axis)
{
    bool fits = value->declared_rank > axis && value->declared_dim_names && value->declared_dims[axis] < 0;
    const char *name = fits ? value->declared_dim_names[axis] : NULL;
    return name && name[0] ? name : NULL;
}

static gantry_status set_declared(gt_writer *writer, const gt_value *value, int32_t axis,
                                  GtOnnx__Dimension *dim)
{
    const char *name = declared_name(value, axis);
    if (name)
        return set_name(writer, dim, name);
    if (value->declared_rank > axis && value->declared_dims[axis] >= 0)
        set_number(dim, value->declared_dims[axis]);
    return GANTRY_OK;
}

/* Inputs and outputs keep the names that callers know; a number that inference contradicts goes. */
static gantry_status set_dim(gt_writer *writer, const gt_value *value, int32_t axis, GtOnnx__Dimension *dim)
{
    gt_expr e = value->rank > axis ? value->dims[axis] : GT_EXPR_UNKNOWN;
    int64_t extent;
    if (e == GT_EXPR_UNKNOWN)
        return set_declared(writer, value, axis, dim);
    if (gt_expr_is_const(&writer->model->exprs, e, &extent)) {
        if (extent >= 0) /* a branch that is never taken may be wrong */
            set_number(dim, extent);
        return GANTRY_OK;
    }
    const char *declared = declared_name(value, axis);
    if (declared && (value->input_index >= 0 || value->is_output))
        return set_name(writer, dim, declared);
    if (!print_name(writer, e))
        return GANTRY_OK;
    char *end;
    long long number = strtoll(writer->text.data, &end, 10);
    if (!*end && number >= 0) { /* "64": what n broadcast against 64 can only be */
        set_number(dim, number);
        return GANTRY_OK;
    }
    return set_name(writer, dim, writer->text.data);
}

static gantry_status make_shape(gt_writer *writer, const gt_value *value, GtOnnx__TensorShape **out_shape)
{
    int32_t rank = value->rank >= 0 ? value->rank : value->declared_rank;
    *out_shape = NULL;
    if (rank < 0)
        return GANTRY_OK;
    GtOnnx__TensorShape *shape = GT_WRITE_NEW(writer, GtOnnx__TensorShape, GT_ONNX__TENSOR_SHAPE__INIT);
    GtOnnx__Dimension *dims = GT_ARENA_ARRAY(&writer->arena, GtOnnx__Dimension, (size_t)rank);
    if (!shape || !dims)
        return gt_write_no_memory(writer);
    shape->n_dim = (size_t)rank;
    shape->dim = GT_ARENA_ARRAY(&writer->arena, GtOnnx__Dimension *, (size_t)rank);
    if (!shape->dim)
        return gt_write_no_memory(writer);
    for (int32_t axis = 0; axis < rank; axis++) {
        dims[axis] = (GtOnnx__Dimension)GT_ONNX__DIMENSION__INIT;
        shape->dim[axis] = &dims[axis];
        GT_TRY(set_dim(writer, value, axis, &dims[axis]));
    }
    *out_shape = shape;
    return GANTRY_OK;
}

/* ---- types ----------------------------------------------------------------------------------- */

static gantry_dtype dtype_of(const gt_value *value)
{
    return value->dtype ? value->dtype : value->declared_dtype;
}

bool gt_write_has_type(const gt_value *value)
{
    return value->kind == GANTRY_KIND_TENSOR ? dtype_of(value) != GANTRY_UNDEFINED
                                             : value->declared_type != NULL;
}

static gantry_status unpack_type(gt_writer *writer, const gt_value *value, GtOnnx__Type **out_type)
{
    ProtobufCAllocator allocator = gt_write_allocator(writer);
    *out_type = gt_onnx__type__unpack(&allocator, value->declared_type_bytes, value->declared_type);
    return *out_type ? GANTRY_OK : gt_write_no_memory(writer);
}

static gantry_status tensor_type(gt_writer *writer, const gt_value *value, GtOnnx__Type **out_type)
{
    GtOnnx__Type *type = GT_WRITE_NEW(writer, GtOnnx__Type, GT_ONNX__TYPE__INIT);
    GtOnnx__TensorType *tensor = GT_WRITE_NEW(writer, GtOnnx__TensorType, GT_ONNX__TENSOR_TYPE__INIT);
    if (!type || !tensor)
        return gt_write_no_memory(writer);
    tensor->has_elem_type = true;
    tensor->elem_type = (int32_t)dtype_of(value);
    type->tensor_type = tensor;
    *out_type = type;
    return make_shape(writer, value, &tensor->shape);
}

gantry_status gt_write_value_info(gt_writer *writer, const gt_written *written, uint32_t id, const char *name,
                                  bool declared, GtOnnx__ValueInfo **out_info)
{
    gt_value known = *written->graph->values.data[id];
    const gt_value *value = &known;
    if (!declared) {
        known.declared_rank = -1;
        known.declared_dtype = GANTRY_UNDEFINED;
    }
    GtOnnx__ValueInfo *info = GT_WRITE_NEW(writer, GtOnnx__ValueInfo, GT_ONNX__VALUE_INFO__INIT);
    *out_info = info;
    if (!info)
        return gt_write_no_memory(writer);
    info->has_name = true;
    info->name = gt_write_text(name);
    if (!gt_write_has_type(value))
        return GANTRY_OK;
    return value->kind == GANTRY_KIND_TENSOR ? tensor_type(writer, value, &info->type)
                                             : unpack_type(writer, value, &info->type);
}
