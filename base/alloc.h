/* The one allocator handle everything goes through: counts its calls, checks size arithmetic, and can be told
 * to fail. */
#ifndef GT_BASE_ALLOC_H
#define GT_BASE_ALLOC_H

#include <gantry/gantry.h>

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Thread-safe. fail_after counts down on each allocation and makes that one fail when it reaches 0; negative:
 * never. */
typedef struct gt_allocator {
    gantry_allocator hooks;
    atomic_uint_least64_t calls;
    atomic_int_least64_t fail_after;
} gt_allocator;

static inline void *gt_malloc_resize(void *self, void *memory, size_t old_bytes, size_t new_bytes)
{
    (void)self;
    (void)old_bytes;
    if (new_bytes == 0) {
        free(memory);
        return NULL;
    }
    return realloc(memory, new_bytes);
}

/* hooks NULL: malloc. */
static inline void gt_allocator_init(gt_allocator *allocator, const gantry_allocator *hooks)
{
    allocator->hooks = hooks ? *hooks : (gantry_allocator){sizeof(gantry_allocator), NULL, gt_malloc_resize};
    atomic_init(&allocator->calls, 0);
    atomic_init(&allocator->fail_after, -1);
}

/* Grows or shrinks; memory NULL allocates. NULL when out of memory; the old block is then still valid.
 * new_bytes 0 gives a unique block. */
static inline void *gt_resize(gt_allocator *allocator, void *memory, size_t old_bytes, size_t new_bytes)
{
    atomic_fetch_add_explicit(&allocator->calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&allocator->fail_after, memory_order_relaxed) >= 0 &&
        atomic_fetch_sub_explicit(&allocator->fail_after, 1, memory_order_relaxed) == 0)
        return NULL;
    return allocator->hooks.resize(allocator->hooks.self, memory, old_bytes, new_bytes ? new_bytes : 1);
}

static inline void *gt_alloc(gt_allocator *allocator, size_t bytes)
{
    return gt_resize(allocator, NULL, 0, bytes);
}

/* count * size zeroed bytes; NULL when out of memory or when the product does not fit. */
static inline void *gt_alloc_array(gt_allocator *allocator, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / size)
        return NULL;
    void *memory = gt_alloc(allocator, count * size);
    if (memory)
        memset(memory, 0, count * size);
    return memory;
}

static inline void gt_free(gt_allocator *allocator, void *memory)
{
    if (memory)
        allocator->hooks.resize(allocator->hooks.self, memory, 0, 0);
}

#define GT_NEW(allocator, type) ((type *)gt_alloc_array((allocator), 1, sizeof(type)))
#define GT_NEW_ARRAY(allocator, type, count) ((type *)gt_alloc_array((allocator), (count), sizeof(type)))

#endif
