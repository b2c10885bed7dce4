/* Which layout each operand of a group is read and written in. */
#ifndef CPU_PROGRAM_LAYOUT_H
#define CPU_PROGRAM_LAYOUT_H

#include "program.h"

/* Where one value lies: in each layout it was made in. */
typedef struct cpu_places {
    cpu_place at[CPU_LAYOUT_COUNT];
    bool known[CPU_LAYOUT_COUNT];
} cpu_places;

/* The layout that kernels of convolutions keep this tensor in between them: blocks of channels for floats,
 * channels last for 8-bit integers. */
cpu_layout cpu_private_layout(const cpu_tensor *tensor);

/* Bytes of a tensor in that layout, padding of the channels included. */
size_t cpu_layout_bytes(const cpu_provider *provider, const cpu_tensor *tensor, cpu_layout layout);

/* Whether the plain and the private layout of this tensor are the same bytes (a vector of channels). */
bool cpu_layouts_agree(const cpu_provider *provider, const cpu_tensor *tensor);

/* Whether a float32 tensor of this shape can be blocked at all. */
bool cpu_can_block(const cpu_tensor *tensor);

/* Sets the layouts of build's inputs and outputs as the group's row allows, and makes the kernel. */
gantry_status cpu_layout_make(const cpu_places *places, cpu_build *build, const cpu_group *group,
                              cpu_kernel *out_kernel);

#endif
