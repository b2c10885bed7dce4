/* An allocator that fails once, or from one call on, and counts what is not freed. */
#ifndef GT_TESTS_BROKEN_ALLOCATOR_H
#define GT_TESTS_BROKEN_ALLOCATOR_H

#include <gantry/gantry.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* Thread-safe: an asynchronous run allocates on its own thread. */
typedef struct broken_allocator {
    atomic_long calls;    /* that ask for memory */
    atomic_long fails_at; /* the number of the call that fails; 0: none */
    atomic_bool lasting;  /* those after it fail as well, until fails_at is 0 again */
    atomic_long blocks;   /* that are not freed */
} broken_allocator;

static inline void *broken_resize(void *self, void *memory, size_t old_bytes, size_t new_bytes)
{
    broken_allocator *a = self;
    (void)old_bytes;
    if (new_bytes == 0) {
        if (memory)
            atomic_fetch_sub(&a->blocks, 1);
        free(memory);
        return NULL;
    }
    long call = atomic_fetch_add(&a->calls, 1) + 1, fails_at = atomic_load(&a->fails_at);
    if (fails_at && (call == fails_at || (call > fails_at && atomic_load(&a->lasting))))
        return NULL;
    void *resized = realloc(memory, new_bytes);
    if (resized && !memory)
        atomic_fetch_add(&a->blocks, 1);
    return resized;
}

static inline gantry_allocator broken_hooks(broken_allocator *allocator)
{
    return (gantry_allocator){sizeof(gantry_allocator), allocator, broken_resize};
}

#endif
