/* A bump allocator: many small things that die together. Blocks grow; nothing is freed one by one. One thread
 * at a time. */
#ifndef GT_BASE_ARENA_H
#define GT_BASE_ARENA_H

#include "alloc.h"

typedef struct gt_arena_block {
    struct gt_arena_block *next;
    size_t bytes; /* usable bytes behind this header */
} gt_arena_block;

typedef struct gt_arena {
    gt_allocator *allocator;
    gt_arena_block *blocks; /* the newest first */
    size_t used;            /* of the newest block */
    size_t total_bytes;     /* of all blocks */
} gt_arena;

#define GT_ARENA_ALIGNMENT 16u
#define GT_ARENA_HEADER_BYTES                                                                                \
    ((sizeof(gt_arena_block) + GT_ARENA_ALIGNMENT - 1) & ~(size_t)(GT_ARENA_ALIGNMENT - 1))
#define GT_ARENA_FIRST_BLOCK 4096u
#define GT_ARENA_LAST_BLOCK                                                                                  \
    65536u /* half of the newest block is unused on average: many arenas live as long as a plan */

static inline void gt_arena_init(gt_arena *arena, gt_allocator *allocator)
{
    *arena = (gt_arena){.allocator = allocator};
}

/* Frees all blocks; the arena can be used again. */
static inline void gt_arena_clear(gt_arena *arena)
{
    while (arena->blocks) {
        gt_arena_block *block = arena->blocks;
        arena->blocks = block->next;
        gt_free(arena->allocator, block);
    }
    arena->used = arena->total_bytes = 0;
}

/* Memory aligned to 16 whose bytes may be anything; NULL when out of memory. */
static inline void *gt_arena_take(gt_arena *arena, size_t bytes)
{
    const size_t header = GT_ARENA_HEADER_BYTES;
    if (bytes > SIZE_MAX / 4)
        return NULL;
    bytes = (bytes + GT_ARENA_ALIGNMENT - 1) & ~(size_t)(GT_ARENA_ALIGNMENT - 1);
    if (!arena->blocks || arena->blocks->bytes - arena->used < bytes) {
        size_t size = arena->blocks ? arena->blocks->bytes * 2 : GT_ARENA_FIRST_BLOCK;
        if (size > GT_ARENA_LAST_BLOCK)
            size = GT_ARENA_LAST_BLOCK;
        if (size < bytes)
            size = bytes;
        gt_arena_block *block = gt_alloc(arena->allocator, header + size);
        if (!block)
            return NULL;
        block->next = arena->blocks;
        block->bytes = size;
        arena->blocks = block;
        arena->used = 0;
        arena->total_bytes += size;
    }
    void *memory = (char *)arena->blocks + header + arena->used;
    arena->used += bytes;
    return memory;
}

/* Zeroed memory, aligned to 16; NULL when out of memory. */
static inline void *gt_arena_alloc(gt_arena *arena, size_t bytes)
{
    void *memory = gt_arena_take(arena, bytes);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static inline void *gt_arena_array(gt_arena *arena, size_t count, size_t size)
{
    if (size && count > SIZE_MAX / 4 / size)
        return NULL;
    return gt_arena_alloc(arena, count * size);
}

static inline void *gt_arena_copy(gt_arena *arena, const void *source, size_t bytes)
{
    void *memory = gt_arena_take(arena, bytes);
    if (memory && bytes)
        memcpy(memory, source, bytes);
    return memory;
}

static inline char *gt_arena_text(gt_arena *arena, const char *text, size_t length)
{
    char *copy = (char *)gt_arena_alloc(arena, length + 1);
    if (copy && length)
        memcpy(copy, text, length);
    return copy;
}

/* A place to go back to: what was taken since is given back when it lies in the block of the mark. */
typedef struct gt_arena_mark {
    const gt_arena_block *block;
    size_t used;
} gt_arena_mark;

static inline gt_arena_mark gt_arena_here(const gt_arena *arena)
{
    return (gt_arena_mark){arena->blocks, arena->used};
}

static inline void gt_arena_return(gt_arena *arena, gt_arena_mark mark)
{
    if (arena->blocks == mark.block)
        arena->used = mark.used;
}

#define GT_ARENA_NEW(arena, type) ((type *)gt_arena_array((arena), 1, sizeof(type)))
#define GT_ARENA_ARRAY(arena, type, count) ((type *)gt_arena_array((arena), (count), sizeof(type)))

#endif
