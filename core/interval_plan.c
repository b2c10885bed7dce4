/* Plans one arena: an offset for each buffer such that buffers alive at the same time share no bytes.
 *
 *     offset ^    [ a      ][ d  ]      The largest buffers are placed first; each takes the tightest gap
 *            |    [ b ][ c         ]    between the placed buffers whose lifetimes meet its own.
 *            +---------------------> time
 *
 * Which placed buffers a lifetime [first, last] meets is answered without looking at all of them: those that
 * were alive at `first` lie on one path of a tree over time (each lifetime is cut into the O(log T) tree
 * nodes that cover it), and the rest begin in (first, last] and are found in lists by beginning. */
#include "runtime.h"

#define ALIGNMENT ((size_t)64)
#define END UINT32_MAX

typedef struct cover {
    uint32_t buffer;
    uint32_t next;
} cover;

typedef struct planner {
    gt_allocator *allocator;
    uint32_t count;
    uint32_t time_count; /* a power of two */
    const size_t *bytes; /* as given: not rounded */
    uint32_t *first, *last;
    uint32_t *order; /* by decreasing size */
    uint32_t *begin_list, *begin_next;
    uint32_t *tree; /* 2 * time_count lists of covers */
    GT_VEC(cover) covers;
    uint32_t *met;
    size_t *offsets;
} planner;

static size_t rounded(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

static int compare_times(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int compare_sizes(const void *a, const void *b, void *planner_)
{
    const planner *p = planner_;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (p->bytes[i] != p->bytes[j])
        return p->bytes[i] < p->bytes[j] ? 1 : -1;
    if (p->first[i] != p->first[j])
        return p->first[i] < p->first[j] ? -1 : 1;
    return (i > j) - (i < j);
}

static int compare_offsets(const void *a, const void *b, void *planner_)
{
    const planner *p = planner_;
    size_t x = p->offsets[*(const uint32_t *)a], y = p->offsets[*(const uint32_t *)b];
    return (x > y) - (x < y);
}

static uint32_t time_rank(const uint32_t *times, uint32_t count, uint32_t time)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (times[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Replaces times by their rank among all times that occur, so that the tree stays small. */
static void compress_times(planner *p, const uint32_t *first, const uint32_t *last, uint32_t *times)
{
    uint32_t largest = 0;
    for (uint32_t k = 0; k < p->count; k++)
        largest = last[k] > largest ? last[k] : largest;
    memcpy(p->first, first, p->count * sizeof *first);
    memcpy(p->last, last, p->count * sizeof *last);
    if (largest >= 2 * p->count) {
        memcpy(times, first, p->count * sizeof *first);
        memcpy(times + p->count, last, p->count * sizeof *last);
        qsort(times, 2 * (size_t)p->count, sizeof *times, compare_times);
        uint32_t unique = 1;
        for (uint32_t k = 1; k < 2 * p->count; k++)
            if (times[k] != times[unique - 1])
                times[unique++] = times[k];
        for (uint32_t k = 0; k < p->count; k++) {
            p->first[k] = time_rank(times, unique, first[k]);
            p->last[k] = time_rank(times, unique, last[k]);
        }
        largest = unique - 1;
    }
    p->time_count = 1;
    while (p->time_count <= largest)
        p->time_count *= 2;
}

/* Enters a placed buffer under the tree nodes that cover its lifetime. */
static bool enter(planner *p, uint32_t buffer)
{
    p->begin_next[buffer] = p->begin_list[p->first[buffer]];
    p->begin_list[p->first[buffer]] = buffer;
    uint32_t low = p->first[buffer] + p->time_count, high = p->last[buffer] + p->time_count + 1;
    for (; low < high; low /= 2, high /= 2) {
        uint32_t nodes[2], node_count = 0;
        if (low & 1)
            nodes[node_count++] = low++;
        if (high & 1)
            nodes[node_count++] = --high;
        for (uint32_t k = 0; k < node_count; k++) {
            cover entry = {buffer, p->tree[nodes[k]]};
            if (!gt_vec_push(p->allocator, &p->covers, entry))
                return false;
            p->tree[nodes[k]] = p->covers.count - 1;
        }
    }
    return true;
}

/* Lists the placed buffers that are alive at some time of `buffer`'s life; returns how many. */
static uint32_t find_met(planner *p, uint32_t buffer)
{
    uint32_t count = 0;
    for (uint32_t node = p->first[buffer] + p->time_count; node; node /= 2)
        for (uint32_t c = p->tree[node]; c != END; c = p->covers.data[c].next)
            p->met[count++] = p->covers.data[c].buffer;
    for (uint32_t t = p->first[buffer] + 1; t <= p->last[buffer]; t++)
        for (uint32_t k = p->begin_list[t]; k != END; k = p->begin_next[k])
            p->met[count++] = k;
    return count;
}

/* The start of the tightest gap between the met buffers that holds `bytes`, else the first byte above them.
 */
static size_t find_gap(planner *p, uint32_t met_count, size_t bytes)
{
    size_t top = 0, best = SIZE_MAX, best_size = SIZE_MAX;
    qsort_r(p->met, met_count, sizeof *p->met, compare_offsets, p);
    for (uint32_t k = 0; k < met_count; k++) {
        size_t offset = p->offsets[p->met[k]], end = offset + rounded(p->bytes[p->met[k]]);
        if (offset > top && offset - top >= bytes && offset - top < best_size) {
            best = top;
            best_size = offset - top;
        }
        top = end > top ? end : top;
    }
    return best_size != SIZE_MAX ? best : top;
}

static gantry_status place_all(planner *p, size_t *out_total, gantry_error *err)
{
    for (uint32_t k = 0; k < p->count; k++) {
        uint32_t buffer = p->order[k];
        size_t bytes = rounded(p->bytes[buffer]);
        if (bytes == 0) {
            p->offsets[buffer] = 0;
            continue;
        }
        size_t offset = find_gap(p, find_met(p, buffer), bytes);
        p->offsets[buffer] = offset;
        *out_total = offset + bytes > *out_total ? offset + bytes : *out_total;
        if (!enter(p, buffer))
            return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    }
    return GANTRY_OK;
}

static gantry_status validate(uint32_t count, const size_t *bytes, const uint32_t *first,
                              const uint32_t *last, gantry_error *err)
{
    const size_t limit = SIZE_MAX / 2 - ALIGNMENT;
    size_t sum = 0;
    if (count > UINT32_MAX / 4)
        return gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, NULL,
                       "%u buffers are more than one arena can plan (%u)", count, UINT32_MAX / 4);
    for (uint32_t k = 0; k < count; k++) {
        if (first[k] > last[k])
            return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_RUN, NULL,
                           "buffer %u lives from %u to %u: the end comes before the beginning", k, first[k],
                           last[k]);
        if (sum > limit || bytes[k] > limit - sum)
            return gt_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_RUN, NULL,
                           "buffer %u of %zu bytes does not fit the address space", k, bytes[k]);
        sum += rounded(bytes[k]);
    }
    return GANTRY_OK;
}

gantry_status gt_plan_intervals(gt_allocator *allocator, uint32_t count, const size_t *bytes,
                                const uint32_t *first, const uint32_t *last, size_t *out_offsets,
                                size_t *out_total, gantry_error *err)
{
    planner p = {.allocator = allocator, .count = count, .bytes = bytes, .offsets = out_offsets};
    uint32_t *lists = NULL;
    *out_total = 0;
    GT_TRY(validate(count, bytes, first, last, err));
    if (count == 0)
        return GANTRY_OK;

    gantry_status status = gt_out_of_memory(NULL, GANTRY_STAGE_RUN);
    uint32_t *block = GT_NEW_ARRAY(allocator, uint32_t, (size_t)count * 7);
    if (!block)
        return gt_out_of_memory(err, GANTRY_STAGE_RUN);
    p.first = block;
    p.last = block + count;
    p.order = block + 2 * (size_t)count;
    p.begin_next = block + 3 * (size_t)count;
    p.met = block + 4 * (size_t)count;
    compress_times(&p, first, last, block + 5 * (size_t)count);
    lists = GT_NEW_ARRAY(allocator, uint32_t, 3 * (size_t)p.time_count);
    if (!lists) {
        gt_out_of_memory(err, GANTRY_STAGE_RUN);
        goto done;
    }
    memset(lists, 0xff, 3 * (size_t)p.time_count * sizeof *lists);
    p.begin_list = lists;
    p.tree = lists + p.time_count;
    for (uint32_t k = 0; k < count; k++)
        p.order[k] = k;
    qsort_r(p.order, count, sizeof *p.order, compare_sizes, &p);
    status = place_all(&p, out_total, err);
done:
    gt_vec_free(allocator, &p.covers);
    gt_free(allocator, lists);
    gt_free(allocator, block);
    return status;
}
