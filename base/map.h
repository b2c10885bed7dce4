/* A hash map from byte strings to 32-bit numbers: names to ids, keys to indexes. Keys are not copied. One
 * thread at a time. */
#ifndef GT_BASE_MAP_H
#define GT_BASE_MAP_H

#include "alloc.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

typedef struct gt_map_slot {
    const void *key; /* NULL: empty */
    size_t bytes;
    uint64_t hash;
    uint32_t number;
} gt_map_slot;

typedef struct gt_map {
    gt_allocator *allocator;
    gt_map_slot *slots;
    uint32_t count;
    uint32_t capacity; /* a power of two, or 0 */
} gt_map;

static inline void gt_map_init(gt_map *map, gt_allocator *allocator)
{
    *map = (gt_map){.allocator = allocator};
}

static inline void gt_map_free(gt_map *map)
{
    gt_free(map->allocator, map->slots);
    map->slots = NULL;
    map->count = map->capacity = 0;
}

static inline gt_map_slot *gt_map_probe(const gt_map *map, const void *key, size_t bytes, uint64_t hash)
{
    for (uint32_t k = (uint32_t)hash & (map->capacity - 1);; k = (k + 1) & (map->capacity - 1)) {
        gt_map_slot *slot = &map->slots[k];
        if (!slot->key || (slot->hash == hash && slot->bytes == bytes && memcmp(slot->key, key, bytes) == 0))
            return slot;
    }
}

/* The number of key, or `otherwise`. */
static inline uint32_t gt_map_get(const gt_map *map, const void *key, size_t bytes, uint32_t otherwise)
{
    if (!map->capacity)
        return otherwise;
    const gt_map_slot *slot = gt_map_probe(map, key, bytes, XXH3_64bits(key, bytes));
    return slot->key ? slot->number : otherwise;
}

/* Sets key to number, new or not; false when out of memory. key must stay valid as long as the map. */
static inline bool gt_map_set(gt_map *map, const void *key, size_t bytes, uint32_t number)
{
    if (map->count * 4 + 4 > map->capacity * 3) {
        gt_map bigger = {.allocator = map->allocator, .capacity = map->capacity ? map->capacity * 2 : 16};
        bigger.slots = GT_NEW_ARRAY(map->allocator, gt_map_slot, bigger.capacity);
        if (!bigger.slots)
            return false;
        for (uint32_t k = 0; k < map->capacity; k++)
            if (map->slots[k].key)
                *gt_map_probe(&bigger, map->slots[k].key, map->slots[k].bytes, map->slots[k].hash) =
                    map->slots[k];
        bigger.count = map->count;
        gt_free(map->allocator, map->slots);
        *map = bigger;
    }
    uint64_t hash = XXH3_64bits(key, bytes);
    gt_map_slot *slot = gt_map_probe(map, key, bytes, hash);
    if (!slot->key) {
        *slot = (gt_map_slot){key, bytes, hash, number};
        map->count++;
    }
    slot->number = number;
    return true;
}

#endif
