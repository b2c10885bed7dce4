/* Programs, shaped programs and contexts of the OpenCL provider: what compile, reshape and run share. */
#ifndef GANTRY_OPENCL_PROGRAM_H
#define GANTRY_OPENCL_PROGRAM_H

#include "opencl_ops.h"

/* A constant on the device, and on the host where a node reads it there. */
typedef struct opencl_constant {
    cl_mem memory;        /* NULL: no kernel reads it */
    gantry_packed packed; /* where it is shared with other sessions: to be released; else data is NULL */
    void *host;           /* NULL: no node reads it on the host */
    size_t bytes;
} opencl_constant;

struct gantry_program {
    opencl_device *device;
    const gantry_graph_view *graph;
    bool is_fast;               /* the option fast_math */
    bool fuses;                 /* the option fuse */
    opencl_constant *constants; /* by value index */
    uint64_t constant_bytes;
};

typedef enum opencl_place_kind {
    OPENCL_PLACE_NONE, /* not made yet: will lie in the workspace */
    OPENCL_PLACE_INPUT,
    OPENCL_PLACE_OUTPUT,
    OPENCL_PLACE_WORKSPACE,
    OPENCL_PLACE_FIXED /* a constant, or known on the host */
} opencl_place_kind;

/* Where a value lies, or a piece of scratch memory (those follow the values). */
typedef struct opencl_place {
    opencl_place_kind kind;
    uint32_t index; /* of the input or output */
    size_t offset_bytes;
    size_t bytes;
    cl_mem memory;    /* OPENCL_PLACE_FIXED */
    uint32_t view_of; /* the place it is a part of, from view_offset_bytes on; GANTRY_NO_ID: none */
    size_t view_offset_bytes;
    bool made;            /* by a node, or scratch */
    uint32_t first, last; /* nodes between which it is needed, when it is none of the host's */
} opencl_place;

typedef enum opencl_argument_kind {
    OPENCL_ARGUMENT_BUFFER,
    OPENCL_ARGUMENT_DATA,
    OPENCL_ARGUMENT_LOCAL,
    OPENCL_ARGUMENT_ERRORS /* the queue's words, and the launch's site */
} opencl_argument_kind;

typedef struct opencl_argument {
    opencl_argument_kind kind;
    uint32_t place;         /* BUFFER */
    uint32_t element_bytes; /* BUFFER: the unit of its offset */
    uint32_t at;            /* DATA: where in the shaped program's data */
    size_t bytes;           /* DATA, LOCAL */
} opencl_argument;

/* A kernel with its arguments; or, with program NULL, a copy of bytes between two places. */
struct opencl_launch {
    opencl_build *build;
    cl_program program;
    char kernel[48];
    char variant[48];
    uint32_t node;                           /* index in the graph's nodes */
    uint32_t chain_begin, chain_count;       /* in the shaped program's chained nodes; 0: node alone */
    uint32_t in_place;                       /* bit k: argument k may lie where the last buffer does */
    int32_t site;                            /* what its errors are told apart by; 0: it has none */
    uint32_t argument_begin, argument_count; /* in the shaped program's arguments */
    cl_uint dimensions;
    bool has_groups;
    size_t size[3], groups[3];
    double bytes, flops;
    uint32_t source, target; /* of a copy: places */
    size_t source_offset, target_offset, copy_bytes;
};

struct gantry_shaped {
    gantry_program *program;
    opencl_place *places;
    uint32_t place_count, place_capacity;
    opencl_launch *launches;
    uint32_t launch_count, launch_capacity;
    opencl_argument *arguments;
    uint32_t argument_count, argument_capacity;
    uint32_t *run_at; /* by node: at which node it is computed: itself, or the last of its chain */
    uint32_t *chained;
    uint32_t chained_count;
    char *data;
    uint32_t data_bytes, data_capacity;
    gantry_output_plan *output_plans;
    size_t workspace_bytes;
    bool may_fail; /* a launch has a site */
};

/* An operator of a chain: its operands and its expression. */
typedef struct opencl_step opencl_step;

/* What one reshape, or the first building of kernels in compile, works with. */
struct opencl_build {
    opencl_device *device;
    gantry_shaped *shaped;
    uint32_t node;      /* whose prepare runs */
    opencl_step *steps; /* of nodes that chains have, in order */
    uint32_t step_count;
    opencl_step *step; /* not NULL: an expression goes here, and no launch is added */
    opencl_build_counts counts;
    gantry_status status;
    gantry_error *err;
    opencl_launch failed; /* handed out when there is no other */
};

/* ---- chains of elementwise operators (opencl_chain.c) ---- */

#define OPENCL_MAX_STEPS 12
#define OPENCL_MAX_STEP_OPERANDS 3

struct opencl_step {
    uint32_t node;
    uint32_t operand_count;
    opencl_operand operands[OPENCL_MAX_STEP_OPERANDS], output;
    char expression[256];
    float p, q;
};

/* Decides which nodes are computed together. shapes: by value; NULL: what is typical. recorder may be NULL.
 */
void opencl_chains_plan(opencl_build *build, const gantry_shape *shapes, gantry_recorder *recorder);
/* What opencl_op.prepare does, for a node that may be part of a chain. */
void opencl_chain_prepare(opencl_build *build, const opencl_node *node);
void opencl_chains_free(opencl_build *build);
/* When all launches are there: which outputs may lie where an input does. */
void opencl_plan_overwrites(gantry_shaped *shaped);

/* An empty shaped program of the given one with places for its values; free it with opencl_shaped_free. */
gantry_status opencl_shaped_new(gantry_program *program, gantry_shaped **out_shaped, gantry_error *err);
void opencl_shaped_free(gantry_shaped *shaped);
/* The launch that was added last; NULL: the build failed, or there is none. */
opencl_launch *opencl_launch_last(opencl_build *build);
/* The place that a place is part of, and how far in. */
uint32_t opencl_place_root(const gantry_shaped *shaped, uint32_t place, size_t *out_offset_bytes);

#endif
