/* Kernel states of a shaped program that hold the same bytes are one: the layers of a model are alike. */
#ifndef CPU_PROGRAM_STATES_H
#define CPU_PROGRAM_STATES_H

#include "program.h"

#include "base/map.h"

/* What a kernel that came before has: the arena keeps it. */
typedef struct cpu_known_state {
    const void *state;
    const char *name, *isa;
} cpu_known_state;

/* Lives while one shaped program is made. */
typedef struct cpu_states {
    gt_arena *arena; /* where states are made */
    gt_map map;      /* bytes a maker left in the arena -> index into known */
    GT_VEC(cpu_known_state) known;
} cpu_states;

/* Where a maker starts. */
typedef struct cpu_state_begin {
    gt_arena_mark mark;
    cpu_kernel_fn *run; /* first of the bytes that are compared: kernels of two functions are never alike */
} cpu_state_begin;

void cpu_states_init(cpu_states *states, gt_arena *arena);
void cpu_states_free(cpu_states *states);

/* Before a maker runs. False when out of memory. */
bool cpu_states_begin(cpu_states *states, cpu_state_begin *out_begin);
/* After it made the kernel: when all it left behind equals what another kernel has, that is used instead. A
 * kernel that owns more than arena memory is left alone, and lack of memory only shares less. */
void cpu_states_share(cpu_states *states, const cpu_state_begin *begin, cpu_kernel *inout_kernel);

#endif
