/* Finds kernel states with equal bytes. Equal bytes are equal states: a state that points into itself never
 * equals another, and what two states point to outside is the same thing. */
#include "program_states.h"

void cpu_states_init(cpu_states *states, gt_arena *arena)
{
    *states = (cpu_states){.arena = arena};
    gt_map_init(&states->map, arena->allocator);
}

void cpu_states_free(cpu_states *states)
{
    gt_map_free(&states->map);
    gt_vec_free(states->arena->allocator, &states->known);
}

bool cpu_states_begin(cpu_states *states, cpu_state_begin *out_begin)
{
    out_begin->mark = gt_arena_here(states->arena);
    out_begin->run = gt_arena_alloc(states->arena, GT_ARENA_ALIGNMENT);
    return out_begin->run != NULL;
}

/* The bytes from begin to where the arena stands; 0 when they lie in two blocks. */
static size_t bytes_since(const cpu_states *states, const cpu_state_begin *begin)
{
    const gt_arena *arena = states->arena;
    const char *first = (const char *)begin->run, *block = (const char *)arena->blocks;
    const char *end = block + GT_ARENA_HEADER_BYTES + arena->used;
    return first > block && first < end ? (size_t)(end - first) : 0;
}

void cpu_states_share(cpu_states *states, const cpu_state_begin *begin, cpu_kernel *kernel)
{
    size_t bytes = bytes_since(states, begin);
    if (!kernel->run) { /* a view: nobody calls it */
        gt_arena_return(states->arena, begin->mark);
        return;
    }
    if (kernel->destroy || !bytes)
        return;
    *begin->run = kernel->run;
    uint32_t found = gt_map_get(&states->map, begin->run, bytes, GANTRY_NO_ID);
    if (found == GANTRY_NO_ID) {
        cpu_known_state known = {kernel->state, kernel->name, kernel->isa};
        if (gt_vec_push(states->arena->allocator, &states->known, known))
            (void)gt_map_set(&states->map, begin->run, bytes, states->known.count - 1);
        return;
    }
    const cpu_known_state *known = &states->known.data[found];
    kernel->state = known->state;
    kernel->name = known->name;
    kernel->isa = known->isa;
    gt_arena_return(states->arena, begin->mark);
}
