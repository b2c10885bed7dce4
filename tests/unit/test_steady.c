/* A steady run allocates nothing: the runtime's allocator is not called once its high-water marks are
 * reached. */
#include "../support/small_models.h"

#include <criterion/criterion.h>
#include <stdio.h>

static uint64_t calls_in_steady_runs(small_session *s)
{
    for (int k = 0; k < 3; k++)
        cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK, "%s", s->err.message);
    uint64_t before = gantry_runtime_allocation_count(s->runtime);
    cr_assert_gt(before, 0);
    for (int k = 0; k < 50; k++)
        cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK);
    return gantry_runtime_allocation_count(s->runtime) - before;
}

Test(steady, static_and_symbolic_shapes)
{
    float a[12] = {1}, b[12] = {2};
    for (int64_t rows = -1; rows <= 3; rows += 4) {
        small_session s = small_open(small_add(rows), "");
        small_bind(&s, 0, GANTRY_FLOAT32, 2, 3, 4, a);
        small_bind(&s, 1, GANTRY_FLOAT32, 2, 3, 4, b);
        cr_assert_eq(calls_in_steady_runs(&s), 0);
        small_close(&s);
    }
}

Test(steady, alternating_shapes_once_seen)
{
    float a[32] = {1}, b[32] = {2};
    small_session s = small_open(small_add(-1), "");
    uint64_t before = 0;
    for (int turn = 0; turn < 6; turn++) {
        for (int64_t rows = 1; rows < 8; rows++) {
            small_bind(&s, 0, GANTRY_FLOAT32, 2, rows, 4, a);
            small_bind(&s, 1, GANTRY_FLOAT32, 2, rows, 4, b);
            cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK);
        }
        if (turn == 1)
            before = gantry_runtime_allocation_count(s.runtime);
    }
    cr_assert_eq(gantry_runtime_allocation_count(s.runtime), before);
    small_close(&s);
}

Test(steady, sizes_that_depend_on_data)
{
    float x[6] = {0, 1, 0, 2, 3, 0};
    small_session s = small_open(small_nonzero(), "");
    small_bind(&s, 0, GANTRY_FLOAT32, 1, 6, 0, x);
    cr_assert_eq(calls_in_steady_runs(&s), 0);
    small_close(&s);
}

Test(steady, control_flow)
{
    float start[4] = {0}, sign = -1, x[3] = {1, 2, 3};
    int64_t trips = 7;
    small_session loop = small_open(small_loop(), ""), branch = small_open(small_if(), "");
    small_bind(&loop, 0, GANTRY_INT64, 0, 0, 0, &trips);
    small_bind(&loop, 1, GANTRY_FLOAT32, 1, 4, 0, start);
    cr_assert_eq(calls_in_steady_runs(&loop), 0);
    small_bind(&branch, 0, GANTRY_FLOAT32, 1, 1, 0, &sign);
    small_bind(&branch, 1, GANTRY_FLOAT32, 1, 3, 0, x);
    cr_assert_eq(calls_in_steady_runs(&branch), 0);
    small_close(&loop);
    small_close(&branch);
}
