/* Strides of broadcast operands, and the text that walks them. */
#include "opencl_broadcast.h"

void opencl_walk_begin(opencl_walk *walk, uint32_t rank, const int64_t *dims)
{
    memset(walk, 0, sizeof *walk);
    walk->rank = rank ? rank : 1;
    walk->count = 1;
    walk->dims[0] = 1;
    for (uint32_t k = 0; k < rank; k++) {
        walk->dims[k] = (int32_t)dims[rank - 1 - k];
        walk->count *= dims[k];
    }
}

void opencl_walk_broadcast(opencl_walk *walk, const opencl_operand *operand)
{
    int32_t *strides = walk->strides[walk->operand_count++];
    int64_t stride = 1;
    for (uint32_t k = 0; k < walk->rank && k < operand->rank; k++) {
        int64_t extent = operand->dims[operand->rank - 1 - k];
        strides[k] = extent == 1 ? 0 : (int32_t)stride;
        stride *= extent;
    }
}

void opencl_walk_strided(opencl_walk *walk, const int64_t *strides)
{
    int32_t *own = walk->strides[walk->operand_count++];
    for (uint32_t k = 0; k < walk->rank; k++)
        own[k] = walk->count ? (int32_t)strides[walk->rank - 1 - k] : 0;
}

static bool can_join(const opencl_walk *walk, uint32_t inner, uint32_t outer)
{
    if (walk->dims[inner] == 1 || walk->dims[outer] == 1)
        return true;
    for (uint32_t p = 0; p < walk->operand_count; p++)
        if (walk->strides[p][outer] != walk->strides[p][inner] * walk->dims[inner])
            return false;
    return true;
}

void opencl_walk_join(opencl_walk *walk)
{
    uint32_t last = 0;
    for (uint32_t k = 1; k < walk->rank; k++) {
        bool joins = can_join(walk, last, k);
        bool takes_over = joins && walk->dims[last] == 1;
        if (!joins)
            last++;
        for (uint32_t p = 0; p < walk->operand_count && (!joins || takes_over); p++)
            walk->strides[p][last] = walk->strides[p][k];
        walk->dims[last] = joins ? walk->dims[last] * walk->dims[k] : walk->dims[k];
    }
    walk->rank = last + 1;
}

/* int8 or int16. */
static int vector_width(const opencl_walk *walk)
{
    return walk->rank > 8 ? 16 : 8;
}

void opencl_walk_parameters(const opencl_walk *walk, opencl_text *text)
{
    opencl_text_add(text, ", int%d extents", vector_width(walk));
    for (uint32_t p = 0; p < walk->operand_count; p++)
        opencl_text_add(text, ", int%d steps%u", vector_width(walk), p);
}

void opencl_walk_indexes(const opencl_walk *walk, opencl_text *text)
{
    opencl_text_add(text, "    uint rest = (uint)k;\n");
    for (uint32_t p = 0; p < walk->operand_count; p++)
        opencl_text_add(text, "    long i%u = 0;\n", p);
    for (uint32_t axis = 0; axis < walk->rank; axis++) {
        bool last = axis + 1 == walk->rank;
        if (last)
            opencl_text_add(text, "    { uint r = rest;");
        else
            opencl_text_add(
                text, "    { uint t = rest / (uint)extents.s%x, r = rest - t * (uint)extents.s%x; rest = t;",
                axis, axis);
        for (uint32_t p = 0; p < walk->operand_count; p++)
            opencl_text_add(text, " i%u += (long)(int)r * steps%u.s%x;", p, p, axis);
        opencl_text_add(text, " }\n");
    }
}

void opencl_walk_arguments(const opencl_walk *walk, opencl_launch *launch)
{
    size_t bytes = (size_t)vector_width(walk) * sizeof walk->dims[0];
    opencl_arg_bytes(launch, walk->dims, bytes);
    for (uint32_t p = 0; p < walk->operand_count; p++)
        opencl_arg_bytes(launch, walk->strides[p], bytes);
}
