/* Help shared by the plain kernel families: attributes, axes and loop nests over broadcast operands. */
#include "kernels.h"
#include "half.h"

void cpu_strides(uint32_t rank, const int64_t *dims, int64_t *out_strides)
{
    int64_t stride = 1;
    for (uint32_t k = rank; k-- > 0;) {
        out_strides[k] = stride;
        stride *= dims[k];
    }
}

int64_t cpu_physical_count(const cpu_tensor *tensor)
{
    if (tensor->layout != CPU_NCHW16C || tensor->rank < 2)
        return tensor->count;
    int64_t channels = (tensor->dims[1] + 15) / 16 * 16;
    return tensor->dims[0] * channels * cpu_product(tensor->dims, 2, tensor->rank);
}

gantry_status cpu_resolve_axis(cpu_build *build, int64_t axis, uint32_t rank, uint32_t *out_axis)
{
    int64_t resolved = axis < 0 ? axis + rank : axis;
    *out_axis = 0;
    if (resolved < 0 || resolved >= (int64_t)rank)
        return cpu_unsupported(build, "axis %lld is outside of a tensor of rank %u; use -%u..%d",
                               (long long)axis, rank, rank, (int)rank - 1);
    *out_axis = (uint32_t)resolved;
    return GANTRY_OK;
}

const int64_t *cpu_ints(const gantry_node_view *node, const char *name, uint32_t *out_count)
{
    const gantry_attribute *a = gantry_node_attribute(node, name);
    *out_count = 0;
    if (!a || (a->kind != GANTRY_ATTR_INTS && a->kind != GANTRY_ATTR_INT))
        return NULL;
    *out_count = a->kind == GANTRY_ATTR_INT ? 1 : a->count;
    return a->kind == GANTRY_ATTR_INT ? &a->i : a->ints;
}

const float *cpu_attr_floats(const gantry_node_view *node, const char *name, uint32_t *out_count)
{
    const gantry_attribute *a = gantry_node_attribute(node, name);
    *out_count = 0;
    if (!a || a->kind != GANTRY_ATTR_FLOATS)
        return NULL;
    *out_count = a->count;
    return a->floats;
}

gantry_status cpu_ints_operand(cpu_build *build, const char *name, uint32_t k, int64_t *out_values,
                               uint32_t capacity, uint32_t *out_count, bool *out_given)
{
    /* A version that takes an input has no such attribute, whatever the file says: inference does not look at
     * it. */
    const gantry_attribute *attribute = k == GANTRY_NO_ID ? gantry_node_attribute(build->node, name) : NULL;
    const cpu_tensor *input = k == GANTRY_NO_ID ? NULL : cpu_input(build, k);
    *out_count = 0;
    *out_given = attribute != NULL || input != NULL;
    if (attribute) {
        const int64_t *values = cpu_ints(build->node, name, out_count);
        if (*out_count > capacity)
            return cpu_unsupported(build, "%s has %u elements; at most %u are taken", name, *out_count,
                                   capacity);
        if (*out_count)
            memcpy(out_values, values, *out_count * sizeof *out_values);
    } else if (input) {
        if (!cpu_read_ints(input, out_values, capacity, out_count))
            return cpu_unsupported(build, "%s is not known before the run; it must be a constant or a shape",
                                   name);
        if (*out_count > capacity)
            return cpu_unsupported(build, "%s has %u elements; at most %u are taken", name, *out_count,
                                   capacity);
    }
    return GANTRY_OK;
}

double cpu_load_double(gantry_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case GANTRY_FLOAT32:
        return ((const float *)data)[index];
    case GANTRY_FLOAT64:
        return ((const double *)data)[index];
    case GANTRY_FLOAT16:
        return cpu_f16_to_f32(((const uint16_t *)data)[index]);
    case GANTRY_BFLOAT16:
        return cpu_bf16_to_f32(((const uint16_t *)data)[index]);
    case GANTRY_UINT64:
        return (double)((const uint64_t *)data)[index];
    default:
        return (double)cpu_load_int(dtype, data, index);
    }
}

int64_t cpu_load_int(gantry_dtype dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case GANTRY_INT8:
        return ((const int8_t *)data)[index];
    case GANTRY_UINT8:
    case GANTRY_BOOL:
        return ((const uint8_t *)data)[index];
    case GANTRY_INT16:
        return ((const int16_t *)data)[index];
    case GANTRY_UINT16:
        return ((const uint16_t *)data)[index];
    case GANTRY_INT32:
        return ((const int32_t *)data)[index];
    case GANTRY_UINT32:
        return ((const uint32_t *)data)[index];
    case GANTRY_INT64:
    case GANTRY_UINT64:
        return ((const int64_t *)data)[index];
    case GANTRY_FLOAT32:
    case GANTRY_FLOAT64:
    case GANTRY_FLOAT16:
    case GANTRY_BFLOAT16:
        return cpu_saturate_to_i64(cpu_load_double(dtype, data, index));
    default:
        return 0;
    }
}

/* Whether axis `outer` can be walked as part of axis `inner` of extent n by every operand. */
static bool axes_merge(const cpu_nest *nest, uint32_t outer, const int64_t *inner_strides,
                       int64_t inner_extent)
{
    for (uint32_t k = 0; k < nest->operand_count; k++)
        if (nest->strides[k][outer] != inner_strides[k] * inner_extent)
            return false;
    return true;
}

/* Invariant: nest->dims[0..rank) and strides hold the axes seen so far, each not mergeable with the next; a
 * new inner axis is merged into the last one when every operand walks both without a gap. */
void cpu_nest_make(cpu_nest *nest, uint32_t rank, const int64_t *dims, uint32_t operand_count,
                   const int64_t *const *strides)
{
    *nest = (cpu_nest){.operand_count = operand_count, .rows = 1, .inner = 1};
    for (uint32_t axis = 0; axis < rank; axis++) {
        if (dims[axis] == 1)
            continue;
        int64_t axis_strides[CPU_NEST_OPERANDS] = {0};
        for (uint32_t k = 0; k < operand_count; k++)
            axis_strides[k] = strides[k][axis];
        bool merged = nest->rank && axes_merge(nest, nest->rank - 1, axis_strides, dims[axis]);
        uint32_t at = merged ? nest->rank - 1 : nest->rank++;
        nest->dims[at] = merged ? nest->dims[at] * dims[axis] : dims[axis];
        for (uint32_t k = 0; k < operand_count; k++)
            nest->strides[k][at] = axis_strides[k];
    }
    if (nest->rank) {
        nest->rank--;
        nest->inner = nest->dims[nest->rank];
        for (uint32_t k = 0; k < operand_count; k++)
            nest->step[k] = nest->strides[k][nest->rank];
    }
    nest->rows = cpu_product(nest->dims, 0, nest->rank);
}

bool cpu_broadcast_strides(const cpu_tensor *operand, uint32_t rank, const int64_t *dims,
                           int64_t *out_strides)
{
    if (operand->rank > rank)
        return false;
    uint32_t skip = rank - operand->rank;
    int64_t stride = 1;
    for (uint32_t axis = rank; axis-- > 0;) {
        int64_t extent = axis < skip ? 1 : operand->dims[axis - skip];
        if (extent != 1 && extent != dims[axis])
            return false;
        out_strides[axis] = extent == 1 ? 0 : stride;
        stride *= extent;
    }
    return true;
}

bool cpu_nest_broadcast(cpu_nest *nest, uint32_t rank, const int64_t *dims, uint32_t operand_count,
                        const cpu_tensor *const *operands)
{
    int64_t strides[CPU_NEST_OPERANDS][GANTRY_MAX_RANK];
    const int64_t *pointers[CPU_NEST_OPERANDS];
    for (uint32_t k = 0; k < operand_count; k++) {
        if (!cpu_broadcast_strides(operands[k], rank, dims, strides[k]))
            return false;
        pointers[k] = strides[k];
    }
    cpu_nest_make(nest, rank, dims, operand_count, pointers);
    return true;
}

void cpu_nest_seek(const cpu_nest *nest, int64_t row, cpu_nest_position *out_position)
{
    for (uint32_t k = 0; k < nest->operand_count; k++)
        out_position->offset[k] = 0;
    for (uint32_t axis = nest->rank; axis-- > 0;) {
        int64_t extent = nest->dims[axis] ? nest->dims[axis] : 1; /* an empty nest has a position too */
        int64_t index = row % extent;
        row /= extent;
        out_position->index[axis] = index;
        for (uint32_t k = 0; k < nest->operand_count; k++)
            out_position->offset[k] += index * nest->strides[k][axis];
    }
}

void cpu_nest_next(const cpu_nest *nest, cpu_nest_position *position)
{
    for (uint32_t axis = nest->rank; axis-- > 0;) {
        bool wraps = ++position->index[axis] == nest->dims[axis];
        for (uint32_t k = 0; k < nest->operand_count; k++)
            position->offset[k] +=
                wraps ? nest->strides[k][axis] * (1 - nest->dims[axis]) : nest->strides[k][axis];
        if (!wraps)
            return;
        position->index[axis] = 0;
    }
}
