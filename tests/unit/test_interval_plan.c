/* The arena planner, checked by a dumber program: no two buffers that live together share a byte. */
#include "base/clock.h"
#include "core/runtime.h"

#include <criterion/criterion.h>

static gt_allocator allocator;

static void setup(void)
{
    gt_allocator_init(&allocator, NULL);
}

TestSuite(interval_plan, .init = setup);

static uint64_t seed = 1;

static uint32_t random_below(uint32_t bound)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % bound;
}

#define MOST 3000
static size_t bytes[MOST], offsets[MOST];
static uint32_t first[MOST], last[MOST];

static size_t plan(uint32_t count)
{
    size_t total = 0;
    gantry_error error = GANTRY_ERROR_INIT;
    gantry_status status = gt_plan_intervals(&allocator, count, bytes, first, last, offsets, &total, &error);
    cr_assert_eq(status, GANTRY_OK, "%s", error.message);
    for (uint32_t i = 0; i < count; i++) {
        cr_assert_eq(offsets[i] % 64, 0);
        cr_assert_leq(offsets[i] + bytes[i], total);
        for (uint32_t j = 0; j < i; j++) {
            bool together = first[i] <= last[j] && first[j] <= last[i];
            bool share = offsets[i] < offsets[j] + bytes[j] && offsets[j] < offsets[i] + bytes[i];
            cr_assert_not(together && share, "buffers %u and %u of %u", i, j, count);
        }
    }
    return total;
}

/* What no planner can go below. */
static size_t largest_moment(uint32_t count)
{
    size_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t alive = 0;
        for (uint32_t j = 0; j < count; j++)
            if (first[j] <= first[i] && first[i] <= last[j])
                alive += (bytes[j] + 63) & ~(size_t)63;
        most = alive > most ? alive : most;
    }
    return most;
}

Test(interval_plan, random_graphs)
{
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t count = random_below(60), span = 1 + random_below(80), life = 1 + random_below(12);
        for (uint32_t k = 0; k < count; k++) {
            first[k] = random_below(span) * (round % 3 == 0 ? 1000003 : 1);
            last[k] = first[k] + random_below(life);
            bytes[k] = random_below(4) ? random_below(100000) : 0;
        }
        plan(count);
    }
}

Test(interval_plan, a_chain_takes_two_buffers)
{
    for (uint32_t k = 0; k < 100; k++) {
        first[k] = k;
        last[k] = k + 1;
        bytes[k] = 1000;
    }
    cr_assert_eq(plan(100), 2048);
}

Test(interval_plan, residual_networks_come_near_the_largest_moment)
{
    uint32_t count = 600;
    for (uint32_t k = 0; k < count; k++) {
        first[k] = k;
        last[k] = k + (k % 5 == 0 ? 5 : 1);
        bytes[k] = (size_t)4096 * (1 + random_below(64));
    }
    cr_assert_leq((double)plan(count), 1.25 * (double)largest_moment(count));
}

Test(interval_plan, nothing_and_empty_buffers)
{
    cr_assert_eq(plan(0), 0);
    bytes[0] = 0;
    first[0] = last[0] = UINT32_MAX;
    cr_assert_eq(plan(1), 0);
}

Test(interval_plan, bad_intervals_are_refused)
{
    size_t total;
    bytes[0] = 64;
    first[0] = 2;
    last[0] = 1;
    cr_assert_eq(gt_plan_intervals(&allocator, 1, bytes, first, last, offsets, &total, NULL),
                 GANTRY_INVALID_ARGUMENT);
    bytes[0] = bytes[1] = SIZE_MAX / 2 - 100;
    first[0] = first[1] = last[1] = 1;
    cr_assert_eq(gt_plan_intervals(&allocator, 2, bytes, first, last, offsets, &total, NULL),
                 GANTRY_RESOURCE);
}

Test(interval_plan, out_of_memory_is_a_status)
{
    gantry_status status = GANTRY_RESOURCE;
    for (uint32_t k = 0; k < 100; k++) {
        first[k] = k;
        last[k] = k + 3;
        bytes[k] = 100;
    }
    for (int n = 0; status != GANTRY_OK; n++) {
        size_t total;
        cr_assert_lt(n, 50);
        atomic_store(&allocator.fail_after, n);
        status = gt_plan_intervals(&allocator, 100, bytes, first, last, offsets, &total, NULL);
        cr_assert(status == GANTRY_OK || status == GANTRY_RESOURCE);
    }
}

Test(interval_plan, thousands_of_buffers_take_milliseconds)
{
    for (uint32_t k = 0; k < MOST; k++) {
        first[k] = k;
        last[k] = k + random_below(6);
        bytes[k] = 64 * (size_t)random_below(10000);
    }
    size_t total;
    uint64_t best = UINT64_MAX;
    for (int round = 0; round < 5; round++) {
        uint64_t begin = gt_now_ns();
        gt_plan_intervals(&allocator, MOST, bytes, first, last, offsets, &total, NULL);
        uint64_t ns = gt_now_ns() - begin;
        best = ns < best ? ns : best;
    }
    cr_log_info("%u buffers: %.2f ms\n", MOST, (double)best / 1e6);
    cr_assert_lt(best, 50000000u);
}
