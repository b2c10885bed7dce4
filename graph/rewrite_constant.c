/* Constants as numbers: reading elements as doubles, rounding doubles once to an element type, new constants.
 */
#include "rewrite_internal.h"

#include "base/half.h"

#define GT_REWRITE_NUMBERS(X)                                                                                \
    X(GANTRY_FLOAT32, float)                                                                                 \
    X(GANTRY_FLOAT64, double)                                                                                \
    X(GANTRY_INT8, int8_t)                                                                                   \
    X(GANTRY_UINT8, uint8_t)                                                                                 \
    X(GANTRY_BOOL, uint8_t)                                                                                  \
    X(GANTRY_INT16, int16_t)                                                                                 \
    X(GANTRY_UINT16, uint16_t)                                                                               \
    X(GANTRY_INT32, int32_t)                                                                                 \
    X(GANTRY_UINT32, uint32_t)                                                                               \
    X(GANTRY_INT64, int64_t)                                                                                 \
    X(GANTRY_UINT64, uint64_t)

bool gt_rewrite_is_number(gantry_dtype dtype)
{
    switch (dtype) {
#define X(id, type) case id:
        GT_REWRITE_NUMBERS(X)
#undef X
    case GANTRY_FLOAT16:
    case GANTRY_BFLOAT16:
        return true;
    default:
        return false;
    }
}

double gt_rewrite_load(gantry_dtype dtype, const void *data, uint64_t k)
{
    switch (dtype) {
#define X(id, type)                                                                                          \
    case id: {                                                                                               \
        type element;                                                                                        \
        memcpy(&element, (const char *)data + k * sizeof element, sizeof element);                           \
        return (double)element;                                                                              \
    }
        GT_REWRITE_NUMBERS(X)
#undef X
    case GANTRY_FLOAT16:
    case GANTRY_BFLOAT16: {
        uint16_t bits;
        memcpy(&bits, (const char *)data + 2 * k, 2);
        return gt_small_value(dtype == GANTRY_FLOAT16 ? GT_HALF_FORMAT : GT_BRAIN_FORMAT, bits);
    }
    default:
        return NAN;
    }
}

void gt_rewrite_store(gantry_dtype dtype, void *data, uint64_t k, double value)
{
    if (dtype == GANTRY_FLOAT32) {
        float narrow = (float)value;
        memcpy((char *)data + 4 * k, &narrow, 4);
    } else if (dtype == GANTRY_FLOAT64) {
        memcpy((char *)data + 8 * k, &value, 8);
    } else {
        uint16_t bits = gt_small_bits(dtype == GANTRY_FLOAT16 ? GT_HALF_FORMAT : GT_BRAIN_FORMAT, value);
        memcpy((char *)data + 2 * k, &bits, 2);
    }
}

uint64_t gt_rewrite_element_count(const gt_constant *constant)
{
    uint64_t count = 1;
    for (uint32_t k = 0; k < constant->rank; k++)
        count *= (uint64_t)constant->dims[k];
    return count;
}

gantry_status gt_rewrite_constant(const gt_rewrite_context *context, uint32_t value_id,
                                  const gt_constant **out_constant, const void **out_data, gantry_error *err)
{
    const gt_value *value = gt_rewrite_value(context, value_id);
    *out_constant = NULL;
    *out_data = NULL;
    if (!value || !gt_value_is_constant(value))
        return GANTRY_OK;
    GT_TRY(gt_constant_data(context->model, value->constant, out_data, err));
    *out_constant = &context->model->constants.data[value->constant];
    return GANTRY_OK;
}

bool gt_rewrite_scalar(const gt_rewrite_context *context, uint32_t value, double *out_number)
{
    const gt_constant *constant;
    const void *data;
    if (gt_rewrite_constant(context, value, &constant, &data, NULL) != GANTRY_OK || !constant ||
        gt_rewrite_element_count(constant) != 1 || !gt_rewrite_is_number(constant->dtype))
        return false;
    *out_number = gt_rewrite_load(constant->dtype, data, 0);
    return true;
}

const double *gt_rewrite_doubles(gt_rewrite_context *context, uint32_t value, uint64_t *out_count)
{
    const gt_constant *constant;
    const void *data;
    *out_count = 0;
    if (gt_rewrite_constant(context, value, &constant, &data, NULL) != GANTRY_OK || !constant ||
        !gt_rewrite_is_float(constant->dtype))
        return NULL;
    uint64_t count = gt_rewrite_element_count(constant);
    double *numbers = GT_ARENA_ARRAY(&context->scratch, double, count);
    for (uint64_t k = 0; numbers && k < count; k++)
        numbers[k] = gt_rewrite_load(constant->dtype, data, k);
    *out_count = numbers ? count : 0;
    return numbers;
}

/* A constant with room for its bytes, held by no value yet. */
static gantry_status new_constant(gt_model *model, const char *name, gantry_dtype dtype, uint32_t rank,
                                  const int64_t *dims, size_t bytes, void **out_data, uint32_t *out_constant,
                                  gantry_error *err)
{
    void *data = gt_arena_take(&model->arena, bytes);
    gt_constant constant = {.name = name,
                            .dtype = dtype,
                            .rank = rank,
                            .dims = gt_arena_copy(&model->arena, dims, rank * sizeof *dims),
                            .bytes = bytes,
                            .origin = GT_CONSTANT_MEMORY,
                            .data = data};
    if (!data || !constant.dims)
        return gt_out_of_memory(err, GANTRY_STAGE_LOAD);
    *out_data = data;
    return gt_model_add_constant(model, &constant, out_constant, err);
}

/* A value of the graph under a fresh name built on `stem`. */
static gantry_status add_value(gt_rewrite_context *context, const char *stem, uint32_t *out_value,
                               gantry_error *err)
{
    char name[256];
    gt_graph *graph = context->graph;
    int length = snprintf(name, sizeof name, "%s:%s", stem, context->rule->name);
    bool usable = length > 0 && length < (int)sizeof name && gt_graph_find_value(graph, name) == GT_NONE;
    return gt_graph_add_value(graph, usable ? name : NULL, out_value, err);
}

gantry_status gt_rewrite_add_constant(gt_rewrite_context *context, const char *stem, gantry_dtype dtype,
                                      uint32_t rank, const int64_t *dims, size_t bytes, void **out_data,
                                      uint32_t *out_value, gantry_error *err)
{
    uint32_t constant;
    GT_TRY(add_value(context, stem, out_value, err));
    GT_TRY(new_constant(context->model, gt_rewrite_value(context, *out_value)->name, dtype, rank, dims, bytes,
                        out_data, &constant, err));
    return gt_value_set_constant(context->graph, *out_value, constant, err);
}

gantry_status gt_rewrite_add_scaled(gt_rewrite_context *context, const char *stem, const gt_scaling *scaling,
                                    uint32_t *out_value, bool *out_finite, gantry_error *err)
{
    uint32_t constant;
    GT_TRY(add_value(context, stem, out_value, err));
    GT_TRY(gt_model_add_scaled(context->model, gt_rewrite_value(context, *out_value)->name, scaling,
                               &constant, out_finite, err));
    return gt_value_set_constant(context->graph, *out_value, constant, err);
}

gantry_status gt_rewrite_make_constant(gt_rewrite_context *context, gt_graph *graph, uint32_t value_id,
                                       gantry_dtype dtype, uint32_t rank, const int64_t *dims,
                                       const void *bytes, size_t byte_count, gantry_error *err)
{
    gt_value *value = graph->values.data[value_id];
    void *data;
    uint32_t constant;
    GT_TRY(new_constant(context->model, value->name, dtype, rank, dims, byte_count, &data, &constant, err));
    if (byte_count)
        memcpy(data, bytes, byte_count);
    value->producer = GT_NONE;
    value->producer_output = 0;
    return gt_value_set_constant(graph, value_id, constant, err);
}
