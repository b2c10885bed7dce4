/* The CPU provider's own objects: the provider, a compiled partition, the same for one set of shapes, and
 * what one caller's run needs of it.
 *
 *     nodes of the view --fusion.c--> groups --program_shape.c--> steps (kernels + where their operands lie)
 *                                                 --program_memory.c--> offsets in one workspace
 *     context: the operands as addresses, renewed only when a buffer moved
 */
#ifndef CPU_PROGRAM_H
#define CPU_PROGRAM_H

#include "cpu.h"

#include <pthread.h>

/* What the provider counts its memory by. */
typedef enum cpu_held {
    CPU_HELD_WEIGHTS,  /* packed or copied constants */
    CPU_HELD_PROGRAMS, /* groups of nodes */
    CPU_HELD_KERNELS,  /* kernels made for shapes, and what contexts need of their own */
    CPU_HELD_COUNT
} cpu_held;

/* Thread-safe once opened: nothing changes but counters, and what lies inside oneDNN's own caches. */
struct cpu_provider {
    const gantry_host *host;
    gt_allocator allocator;
    gantry_provider table;
    const gantry_provider *tables[1];
    void *dnnl_engine; /* dnnl_engine_t; NULL when oneDNN gives no CPU engine: plain kernels only */
    bool sgemv_right;  /* the OpenBLAS in use passed the known product */
    int channel_block; /* of blocked layouts: 16, or 8 without AVX-512 */
    const char *isa;   /* the instruction set oneDNN uses */
    uint64_t held[CPU_HELD_COUNT]; /* bytes in all programs; atomic */
    bool exact_bytes;              /* oneDNN's 8-bit products do not saturate between (VNNI, AMX) */
};

/* Memory from the host's allocator, 64-byte aligned (2 MiB and in huge pages when big); NULL when there is
 * none. */
void *cpu_alloc(cpu_provider *provider, size_t bytes);
void cpu_free(cpu_provider *provider, void *memory);

/* Whether a row's kernels can take that element type as that input. */
bool cpu_row_takes(const cpu_op_row *row, uint32_t index, gantry_dtype dtype);

gantry_status cpu_judge(void *self, const gantry_graph_view *graph, const uint32_t *nodes, uint32_t count,
                        gantry_verdict *out_verdict);
gantry_status cpu_evaluate(void *self, const gantry_graph_view *graph, uint32_t node_index,
                           const gantry_tensor *inputs, const gantry_tensor *outputs, gantry_error *err);

/* ---- program --------------------------------------------------------------------------------- */

/* One or more nodes that one kernel computes. */
typedef struct cpu_group {
    const gantry_node_view *node; /* the one whose row makes the kernel */
    const cpu_op_row *row;
    uint32_t input_count, output_count; /* value indexes, GANTRY_NO_ID where left out */
    const uint32_t *inputs;
    const uint32_t *outputs;
    uint32_t post_count;
    const cpu_post *posts;
    bool b_transposed;            /* inputs[1] stands in front of a Transpose */
    const uint8_t *table;         /* quantized_table.c: the 256 results, else NULL */
    const struct cpu_qrows *rows; /* quantized_rows.c: the chain, else NULL */
    uint32_t node_count;
    const uint32_t *node_ids;
    const char *label; /* "Conv+Relu" */
} cpu_group;

/* A packed form that the program has, found by its constant and layout. */
typedef struct cpu_pack_entry {
    uint32_t constant_id;
    uint64_t layout_key;
    const void *data;
} cpu_pack_entry;

/* A packed form or copy that the program gives back at its end: to the host when it is shared. */
typedef struct cpu_held_pack {
    gantry_packed packed;
    bool shared;
} cpu_held_pack;

typedef struct cpu_pack_chunk cpu_pack_chunk; /* program_packs.c */

#define CPU_DERIVED_ID 0x80000000u /* marks the constant_id of a derived value */

/* A value that was computed from constants when the program was compiled: from this one, by a rule with
 * parameters that form is a hash of. */
typedef struct cpu_derived {
    uint32_t constant_id;
    uint64_t form;
} cpu_derived;

/* A compiled partition. The graph and groups never change; owned and packs only grow, under lock, in
 * reshape. */
typedef struct cpu_program {
    cpu_provider *provider;
    const gantry_graph_view *graph;
    int threads;
    bool exact;
    uint64_t memory_limit; /* bytes, of the session; 0: none */
    gt_arena arena;
    uint32_t group_count;
    cpu_group *groups;
    pthread_mutex_t lock;
    const void **owned;          /* for each value: the copy of its constant, or NULL */
    uint8_t *kept;               /* for each value: a constant that some kernel reads as it is */
    const cpu_derived **derived; /* for each value: how it was computed from constants, and owned; or NULL */
    uint8_t *carried; /* for each value: the type it has inside fused groups; GANTRY_UNDEFINED: its own */
    GT_VEC(cpu_pack_entry) packs;
    GT_VEC(cpu_held_pack) held;
    cpu_pack_chunk *chunk;   /* where the next weight goes, or NULL */
    uint64_t held_bytes;     /* of weights that are its own; only grows */
    uint64_t shared_bytes;   /* of those it shares; only grows */
    uint64_t compiled_bytes; /* of the arena, once compiled */
    uint64_t shaped_bytes;   /* of shaped programs and contexts; atomic */
} cpu_program;

/* Counts bytes in the program and, unless the host counts them, in the provider. The caller holds
 * program->lock, or has the program to itself. */
static inline void cpu_hold_weights(cpu_program *program, size_t bytes, bool shared)
{
    if (shared) {
        program->shared_bytes += bytes;
        return;
    }
    program->held_bytes += bytes;
    __atomic_fetch_add(&program->provider->held[CPU_HELD_WEIGHTS], bytes, __ATOMIC_RELAXED);
}

static inline void cpu_hold_kernels(cpu_program *program, size_t bytes)
{
    __atomic_fetch_add(&program->shaped_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&program->provider->held[CPU_HELD_KERNELS], bytes, __ATOMIC_RELAXED);
}

static inline void cpu_drop_kernels(cpu_program *program, size_t bytes)
{
    __atomic_fetch_sub(&program->shaped_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&program->provider->held[CPU_HELD_KERNELS], bytes, __ATOMIC_RELAXED);
}

/* The element type that kernels see a value in. */
static inline gantry_dtype cpu_program_dtype(const cpu_program *program, uint32_t value)
{
    gantry_dtype carried = (gantry_dtype)program->carried[value];
    return carried != GANTRY_UNDEFINED ? carried : program->graph->values[value]->dtype;
}

gantry_status cpu_program_compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                                  gantry_error *err);
void cpu_program_destroy(void *self, gantry_program *program);
uint64_t cpu_program_memory(void *self, const gantry_program *program);

/* Joins nodes into groups and records which fusions were made (fusion.c). */
gantry_status cpu_program_group(cpu_program *program, const gantry_compile_args *args, gantry_error *err);

/* A form of a constant to be found or made. alone: its memory is its own, because fill writes it on all
 * threads.
 */
typedef struct cpu_pack_job {
    const cpu_tensor *weight;
    uint64_t layout_key; /* tells forms of one constant apart */
    size_t bytes;
    gantry_status (*fill)(void *arg, void *packed);
    void *arg;
    bool alone;
} cpu_pack_job;

/* The form of the job, which other programs of the runtime may have made, until the end of the program. The
 * caller holds program->lock, or has the program to itself. GANTRY_RESOURCE, or what fill returned, without
 * an error text (program_packs.c). */
gantry_status cpu_program_hold(cpu_program *program, gantry_constants *constants, const cpu_pack_job *job,
                               const void **out_data);
/* The same for the bytes of a constant as they are; tensor->data is where they lie now. */
gantry_status cpu_program_copy(cpu_program *program, gantry_constants *constants, const cpu_tensor *tensor,
                               const void **out_data);
/* Gives back all that the two above gave. */
void cpu_program_release(cpu_program *program);

/* ---- shaped program -------------------------------------------------------------------------- */

/* Where a stretch of memory comes from in a run. */
typedef enum cpu_base {
    CPU_BASE_NONE,
    CPU_BASE_INPUT,     /* index: input of the partition */
    CPU_BASE_OUTPUT,    /* index: output of the partition */
    CPU_BASE_WORKSPACE, /* offset_bytes from its start */
    CPU_BASE_CONSTANT   /* address */
} cpu_base;

/* A stretch of memory that values live in, several of them when some are views or written in place. */
typedef struct cpu_storage {
    cpu_base base;
    uint32_t index;
    const void *address;
    size_t bytes;
    size_t offset_bytes;  /* in the workspace, once planned */
    uint32_t first, last; /* steps that write and read it */
    uint32_t merged_into; /* GANTRY_NO_ID, or the storage it shares (written in place) */
    bool kept;            /* a partition output lies in it: nothing may overwrite it */
} cpu_storage;

/* One operand of a step, or one place where a value lies: GANTRY_NO_ID storage for none. */
typedef struct cpu_place {
    uint32_t storage;
    size_t offset_bytes;
    size_t bytes;
} cpu_place;

/* One kernel call. places: inputs, then outputs, then scratch, in shaped->places from first_place on. */
typedef struct cpu_step {
    cpu_kernel kernel;
    uint32_t first_place;
    uint32_t input_count, output_count;
    size_t context_offset;
    uint32_t group;                           /* GANTRY_NO_ID: a conversion or copy made by the program */
    gantry_dtype precision_in, precision_out; /* for the record */
    cpu_layout layout;
    const uint32_t *bounded_outputs; /* for each output: the partition output whose true dims it writes, or
                                        NO_ID; NULL: none */
} cpu_step;

/* A program for one set of shapes. Immutable once made. */
typedef struct cpu_shaped {
    cpu_program *program;
    gt_arena arena;
    GT_VEC(cpu_storage) storages;
    GT_VEC(cpu_place) places;
    GT_VEC(cpu_step) steps;
    size_t workspace_bytes;
    size_t context_bytes; /* of all kernels */
    size_t counted_bytes; /* what program->shaped_bytes has of this one */
    gantry_output_plan *output_plans;
    bool threaded; /* some kernel was made for more than one thread */
} cpu_shaped;

gantry_status cpu_shaped_create(void *self, gantry_program *program, const gantry_reshape_args *args,
                                gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err);
void cpu_shaped_destroy(void *self, gantry_shaped *shaped);

/* Writes in place where that is legal, puts partition outputs into their buffers, and gives the rest offsets
 * in one workspace (program_memory.c). outputs: for each partition output the place where its value lies. */
gantry_status cpu_shaped_plan(cpu_shaped *shaped, const cpu_place *outputs, gt_arena *scratch,
                              gantry_error *err);

gantry_status cpu_context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                 gantry_error *err);
void cpu_context_destroy(void *self, gantry_context *context);
gantry_status cpu_context_run(void *self, gantry_context *context, const gantry_run_args *args,
                              gantry_error *err);

#endif
