/* What a program, a shaped program and a context of the fake device are.
 *
 *     kernel: one node, or a fused chain; it runs where its last node stands
 *     value:  input k | output k | workspace + offset | constant or host value in a block of its own */
#ifndef FAKE_PROGRAM_H
#define FAKE_PROGRAM_H

#include "fake.h"

#include <stdlib.h>

#define FAKE_MAX_CHAIN 8

typedef struct kernel {
    uint32_t node_count;
    uint32_t nodes[FAKE_MAX_CHAIN];
    double work_us; /* < 0: as long as it takes */
} kernel;

/* A chain that a pattern of the config matches, whether there is a kernel for it or not. */
typedef struct fusion {
    uint32_t pattern; /* index into the config's */
    uint32_t node_count;
    uint32_t nodes[FAKE_MAX_CHAIN];
    uint32_t applied;
} fusion;

/* A value known before any run, in device memory and, where a node reads it there, on the host. */
typedef struct known_value {
    void *shown;
    size_t bytes;
    void *host;
    bool counted;
    gantry_packed shared; /* its data is not NULL: the rest is the host's to release */
} known_value;

typedef struct constant {
    gantry_constants *constants;
    uint32_t id;
    const void *data;
    size_t bytes;
} constant;

struct gantry_program {
    fake_provider *provider;
    const gantry_graph_view *graph;
    bool fuse;
    uint32_t kernel_count;
    kernel *kernels;
    uint32_t *kernel_of_node;
    uint32_t fusion_count, fusion_capacity;
    fusion *fusions;
    known_value *known;          /* by value index */
    struct fake_bodies **bodies; /* by node: constants of control nodes' bodies, else NULL */
};

typedef enum place_kind { PLACE_NONE, PLACE_INPUT, PLACE_OUTPUT, PLACE_WORKSPACE, PLACE_KNOWN } place_kind;

typedef struct place {
    place_kind kind;
    uint32_t index; /* of the input or output */
    size_t offset;  /* in the workspace */
    void *own;      /* PLACE_KNOWN */
    void *host;
    size_t bytes;
    gantry_dtype dtype;
    uint32_t rank;
    int64_t dims[GANTRY_MAX_RANK];
    bool empty;
} place;

struct gantry_shaped {
    gantry_program *program;
    place *places; /* by value index */
    known_value *known;
    gantry_output_plan *output_plans;
    bool *is_view; /* by node: its output is a view, nothing runs */
    size_t workspace_bytes;
};

struct gantry_context {
    gantry_shaped *shaped;
    gantry_tensor *tensors; /* of all operands of all nodes, inputs first */
    uint32_t *first_tensor; /* by node */
    void *task;
    size_t task_bytes;
};

typedef struct run_task {
    gantry_context *context;
    gantry_timing_event *timing;
    uint32_t timing_count;
    void *workspace;
    void *buffers[]; /* inputs, then outputs: the device's own addresses */
} run_task;

/* fake_compile.c: a program's constants and kernels. */
gantry_status fake_compile(void *self, const gantry_compile_args *args, gantry_program **out_program,
                           gantry_error *err);
void fake_program_destroy(void *self, gantry_program *program);
/* A program without constants and kernels; NULL when out of memory. */
gantry_program *fake_program_create(fake_provider *provider, const gantry_compile_args *args);
gantry_status fake_read_bodies(gantry_program *program, gantry_constants *constants, gantry_error *err);
void fake_index_kernels(gantry_program *program);
/* Tells the host which kernels and fusions there are. */
void fake_record_program(const gantry_program *program, gantry_recorder *recorder);

/* fake_blob.c: a program as bytes. */
gantry_status fake_blob_save(void *self, const gantry_program *program, void **out_data, size_t *out_bytes,
                             gantry_error *err);
gantry_status fake_blob_load(void *self, const gantry_compile_args *args, const void *data, size_t bytes,
                             gantry_program **out_program, gantry_error *err);

/* fake_constants.c */
gantry_status fake_upload(fake_provider *provider, known_value *known, const void *data, size_t bytes,
                          bool on_host, gantry_error *err);
gantry_status fake_keep_constant(fake_provider *provider, bool shared, const constant *c, known_value *known,
                                 bool on_host, gantry_error *err);
void fake_drop_known(fake_provider *provider, known_value *known, uint32_t count);
bool fake_is_read_on_host(const fake_config *config, const gantry_graph_view *graph, uint32_t value);
uint32_t fake_memory_classes(void *self, gantry_memory_class *out_classes, uint32_t capacity);

/* fake_control.c: the constants that a control node's bodies read. */
gantry_status fake_bodies_create(fake_provider *provider, const gantry_node_view *node,
                                 gantry_constants *constants, struct fake_bodies **out_bodies,
                                 gantry_error *err);
void fake_bodies_destroy(fake_provider *provider, struct fake_bodies *bodies);

/* fake_reshape.c: where every value lies for one set of shapes. */
gantry_status fake_reshape(void *self, gantry_program *program, const gantry_reshape_args *args,
                           gantry_shaped **out_shaped, gantry_shaped_info *out_info, gantry_error *err);
void fake_shaped_destroy(void *self, gantry_shaped *shaped);

/* fake_run.c */
gantry_status fake_context_create(void *self, gantry_shaped *shaped, gantry_context **out_context,
                                  gantry_error *err);
gantry_status fake_run(void *self, gantry_context *context, const gantry_run_args *args, gantry_error *err);

/* fake_class.c: entries that notice when the host does not keep to the concurrency class. */
void fake_keep_class(fake_provider *provider);

#endif
