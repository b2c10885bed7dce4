/* Fixing extents of the model's inputs to numbers, before anything is inferred from them. */
#include "graph_internal.h"
#include "infer.h"

/* In a copy: bodies that capture the input have the same array. */
static gantry_status set_extent(gt_model *model, gt_value *value, uint32_t axis, int64_t extent,
                                gantry_error *err)
{
    int64_t own = value->declared_dims[axis];
    if (own >= 0 && own != extent)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                       "input '%s' has the extent %lld on axis %u; it cannot be %lld", value->name,
                       (long long)own, axis, (long long)extent);
    int64_t *dims =
        gt_arena_copy(&model->arena, value->declared_dims, (size_t)value->declared_rank * sizeof *dims);
    if (!dims)
        return gt_graph_no_memory(err);
    dims[axis] = extent;
    value->declared_dims = dims;
    return GANTRY_OK;
}

static bool has_name(const gt_value *value, uint32_t axis, const char *name)
{
    char position[320];
    const char *given = value->declared_dim_names ? value->declared_dim_names[axis] : NULL;
    snprintf(position, sizeof position, "%.300s[%u]", value->name, axis);
    return strcmp(position, name) == 0 || (given && strcmp(given, name) == 0);
}

static gantry_status fix_dim(gt_model *model, const gt_dim_range *range, gantry_error *err)
{
    const gt_graph *root = model->root;
    bool found = false;
    for (uint32_t k = 0; k < root->inputs.count; k++) {
        gt_value *value = root->values.data[root->inputs.data[k]];
        for (int32_t axis = 0; axis < value->declared_rank; axis++) {
            if (!has_name(value, (uint32_t)axis, range->name))
                continue;
            GT_TRY(set_extent(model, value, (uint32_t)axis, range->low, err));
            found = true;
        }
    }
    return found ? GANTRY_OK
                 : gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                           "no input has a dim '%.300s'; one without a name is written INPUT[axis]",
                           range->name);
}

static gantry_status declare_shape(gt_model *model, gt_value *value, const gt_input_shape *shape,
                                   gantry_error *err)
{
    value->declared_dims = gt_arena_copy(&model->arena, shape->dims, shape->rank * sizeof *shape->dims);
    value->declared_dim_names = GT_ARENA_ARRAY(&model->arena, const char *, shape->rank);
    value->declared_rank = (int32_t)shape->rank;
    return value->declared_dims && value->declared_dim_names ? GANTRY_OK : gt_graph_no_memory(err);
}

static gantry_status fix_shape(gt_model *model, const gt_input_shape *shape, gantry_error *err)
{
    uint32_t id = gt_graph_find_value(model->root, shape->input);
    gt_value *value = gt_graph_value(model->root, id);
    if (!value || value->input_index < 0)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                       "shape.%.300s: the model has no input of that name", shape->input);
    if (value->declared_rank < 0)
        return declare_shape(model, value, shape, err);
    if ((uint32_t)value->declared_rank != shape->rank)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_LOAD, NULL,
                       "shape.%.300s gives %u extents; the input has %d", shape->input, shape->rank,
                       value->declared_rank);
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        if (shape->dims[axis] >= 0)
            GT_TRY(set_extent(model, value, axis, shape->dims[axis], err));
    return GANTRY_OK;
}

gantry_status gt_fix_shapes(gt_model *model, const gt_dim_range *ranges, uint32_t range_count,
                            const gt_input_shape *shapes, uint32_t shape_count, gantry_error *err)
{
    for (uint32_t k = 0; k < range_count; k++)
        if (ranges[k].fixed)
            GT_TRY(fix_dim(model, &ranges[k], err));
    for (uint32_t k = 0; k < shape_count; k++)
        GT_TRY(fix_shape(model, &shapes[k], err));
    return GANTRY_OK;
}
