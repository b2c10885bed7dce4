/* Kernel states with equal bytes become one; others stay apart. */
#include "providers/cpu/program_states.h"

#include <criterion/criterion.h>

static gantry_status run_a(const void *state, const cpu_call *call)
{
    return GANTRY_OK;
}

static gantry_status run_b(const void *state, const cpu_call *call)
{
    return GANTRY_DATA;
}

typedef struct fixture {
    gt_allocator allocator;
    gt_arena arena;
    cpu_states states;
} fixture;

static void fixture_init(fixture *f)
{
    gt_allocator_init(&f->allocator, NULL);
    gt_arena_init(&f->arena, &f->allocator);
    cpu_states_init(&f->states, &f->arena);
}

static void fixture_free(fixture *f)
{
    cpu_states_free(&f->states);
    gt_arena_clear(&f->arena);
}

/* What a maker does: a state of `count` numbers in the arena. */
static cpu_kernel make(fixture *f, cpu_kernel_fn run, int count, int first)
{
    cpu_build build = {.arena = &f->arena};
    cpu_state_begin begin;
    cr_assert(cpu_states_begin(&f->states, &begin));
    int *state = cpu_state(&build, (size_t)count * sizeof *state);
    for (int k = 0; k < count; k++)
        state[k] = first + k;
    cpu_kernel kernel = cpu_kernel_of(run, state);
    cpu_states_share(&f->states, &begin, &kernel);
    return kernel;
}

Test(cpu_states, equal_states_are_one)
{
    fixture f;
    fixture_init(&f);
    cpu_kernel a = make(&f, run_a, 10, 1);
    gt_arena_mark before = gt_arena_here(&f.arena);
    cpu_kernel same = make(&f, run_a, 10, 1);
    cr_assert_eq(same.state, a.state);
    cr_assert_eq(f.arena.used, before.used, "the second one's memory is given back");
    cr_assert_neq(make(&f, run_a, 10, 2).state, a.state);
    cr_assert_neq(make(&f, run_a, 14, 1).state, a.state);
    cr_assert_neq(make(&f, run_b, 10, 1).state, a.state, "another function reads it");
    cr_assert_eq(make(&f, run_a, 10, 1).state, a.state);
    for (int k = 0; k < 10; k++)
        cr_assert_eq(((const int *)a.state)[k], 1 + k);
    fixture_free(&f);
}

/* The arena's memory held other things before: each time others. */
static void soil(fixture *f, int byte)
{
    gt_arena_mark before = gt_arena_here(&f->arena);
    memset(gt_arena_take(&f->arena, 512), byte, 512);
    gt_arena_return(&f->arena, before);
}

Test(cpu_states, what_lies_between_states_does_not_count)
{
    fixture f;
    fixture_init(&f);
    soil(&f, 0x11);
    cpu_kernel a = make(&f, run_a, 9, 1);
    soil(&f, 0x22);
    cr_assert_eq(make(&f, run_a, 9, 1).state, a.state);
    fixture_free(&f);
}

Test(cpu_states, states_across_blocks_and_with_owners_stay)
{
    fixture f;
    fixture_init(&f);
    cpu_kernel big = make(&f, run_a, 5000, 7); /* more than a block: the start lies in another one */
    cr_assert_neq(make(&f, run_a, 5000, 7).state, big.state);
    cpu_state_begin begin;
    cpu_kernel owners[2];
    for (int k = 0; k < 2; k++) {
        cr_assert(cpu_states_begin(&f.states, &begin));
        owners[k] = cpu_kernel_of(run_a, gt_arena_alloc(&f.arena, 64));
        owners[k].destroy = free;
        cpu_states_share(&f.states, &begin, &owners[k]);
    }
    cr_assert_neq(owners[0].state, owners[1].state, "each is destroyed");
    fixture_free(&f);
}

Test(cpu_states, a_view_keeps_nothing)
{
    fixture f;
    fixture_init(&f);
    make(&f, run_a, 4, 0);
    gt_arena_mark before = gt_arena_here(&f.arena);
    make(&f, NULL, 100, 0);
    cr_assert_eq(f.arena.used, before.used);
    fixture_free(&f);
}
