/* Growable arrays: GT_VEC(type) is a struct {data, count, capacity}; zero is an empty one. */
#ifndef GT_BASE_VEC_H
#define GT_BASE_VEC_H

#include "alloc.h"

#define GT_VEC(type)                                                                                         \
    struct {                                                                                                 \
        type *data;                                                                                          \
        uint32_t count;                                                                                      \
        uint32_t capacity;                                                                                   \
    }

/* By type: sizeof of an expression that is a pointer is what checkers take for a forgotten star. */
#define GT_VEC_ELEMENT_BYTES(vec) sizeof(__typeof__(*(vec)->data))

/* Room for at least `wanted` elements; false when out of memory, and the array is as it was. */
static inline bool gt_vec_grow(gt_allocator *allocator, void **inout_data, uint32_t *inout_capacity,
                               uint32_t wanted, size_t size)
{
    if (wanted <= *inout_capacity)
        return true;
    uint32_t capacity = *inout_capacity < 8                ? 8
                        : *inout_capacity > UINT32_MAX / 2 ? UINT32_MAX
                                                           : *inout_capacity * 2;
    if (capacity < wanted)
        capacity = wanted;
    if (capacity > SIZE_MAX / 2 / size)
        return false;
    void *data = gt_resize(allocator, *inout_data, *inout_capacity * size, capacity * size);
    if (!data)
        return false;
    *inout_data = data;
    *inout_capacity = capacity;
    return true;
}

#define gt_vec_reserve(allocator, vec, wanted)                                                               \
    gt_vec_grow((allocator), (void **)&(vec)->data, &(vec)->capacity, (wanted), GT_VEC_ELEMENT_BYTES(vec))
/* Appends; false when out of memory. */
#define gt_vec_push(allocator, vec, value)                                                                   \
    (gt_vec_reserve((allocator), (vec), (vec)->count + 1) ? ((vec)->data[(vec)->count++] = (value), true)    \
                                                          : false)
/* Gives back what grew in vain, for arrays that grow no more; keeps them as they are when out of memory. */
static inline void gt_vec_shrink(gt_allocator *allocator, void **inout_data, uint32_t *inout_capacity,
                                 uint32_t count, size_t size)
{
    if (count == *inout_capacity || count == 0)
        return;
    void *data = gt_resize(allocator, *inout_data, *inout_capacity * size, count * size);
    if (!data)
        return;
    *inout_data = data;
    *inout_capacity = count;
}
#define gt_vec_trim(allocator, vec)                                                                          \
    gt_vec_shrink((allocator), (void **)&(vec)->data, &(vec)->capacity, (vec)->count,                        \
                  GT_VEC_ELEMENT_BYTES(vec))
#define gt_vec_free(allocator, vec)                                                                          \
    (gt_free((allocator), (vec)->data), (vec)->data = NULL, (vec)->count = (vec)->capacity = 0)

#endif
