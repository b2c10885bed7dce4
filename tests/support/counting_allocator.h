/* Counts what the thread of the test asks for: queues of the fake device compute with the host's kernels,
 * which allocate, on threads of their own. */
#ifndef GT_TESTS_COUNTING_ALLOCATOR_H
#define GT_TESTS_COUNTING_ALLOCATOR_H

#include <gantry/gantry.h>

#include <stdlib.h>

static _Thread_local uint64_t asked;

static void *count_resize(void *self, void *memory, size_t old_bytes, size_t new_bytes)
{
    asked++;
    if (new_bytes)
        return realloc(memory, new_bytes);
    free(memory);
    return NULL;
}

static const gantry_allocator counting_allocator = {sizeof counting_allocator, NULL, count_resize};

#endif
