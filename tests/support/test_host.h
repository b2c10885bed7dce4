/* A small host for driving a provider through its tables, and a builder of the graph views it is given.
 *
 * Constants are handed out as fresh copies that are overwritten and freed on unmap, so a provider that keeps
 * the pointer is caught. One thread at a time. */
#ifndef TEST_HOST_H
#define TEST_HOST_H

#include <gantry/provider.h>

#define TEST_MAX_VALUES 256
#define TEST_MAX_NODES 128
#define TEST_MAX_ATTRIBUTES 16
#define TEST_MAX_RECORDS 256

/* What a provider recorded, as "op name layout" lines. */
struct gantry_recorder {
    uint32_t kernel_count, fusion_count;
    char kernels[TEST_MAX_RECORDS][160];
    char fusions[TEST_MAX_RECORDS][160];
    int applied[TEST_MAX_RECORDS];
};

typedef struct test_constant {
    const void *data;
    size_t bytes;
    void *mapped;
} test_constant;

typedef struct test_node {
    gantry_node_view view;
    uint32_t inputs[16], outputs[8];
    gantry_attribute attributes[TEST_MAX_ATTRIBUTES];
} test_node;

typedef struct test_value {
    gantry_value_view view;
    int64_t dims[GANTRY_MAX_RANK];
    char name[16];
} test_value;

/* A graph under construction; net is big: allocate it. */
typedef struct test_net {
    gantry_host host;
    long live_blocks; /* allocations not freed yet */
    long allocations; /* made so far */
    long fail_at;     /* the allocation that fails; 0: none */
    const char *disable_types;
    bool exact; /* compile with the option */
    test_constant constants[TEST_MAX_VALUES];
    uint32_t constant_count;
    test_value values[TEST_MAX_VALUES];
    test_node nodes[TEST_MAX_NODES];
    const gantry_value_view *value_list[TEST_MAX_VALUES];
    const gantry_node_view *node_list[TEST_MAX_NODES];
    uint32_t inputs[32], outputs[32];
    gantry_graph_view graph;
    gantry_shape shapes[TEST_MAX_VALUES];
    const void *host_values[TEST_MAX_VALUES];
    struct gantry_recorder recorder;
    gantry_plugin plugin;
    const gantry_provider *provider;
    gantry_program *program;
    gantry_shaped *shaped;
    gantry_context *context;
    gantry_shaped_info info;
    void *workspace;
    gantry_error error;
} test_net;

/* Opens the CPU provider in a fresh net. */
test_net *test_net_open(void);
/* Destroys everything; returns the blocks still alive, which must be 0. */
long test_net_close(test_net *net);

uint32_t test_value_add(test_net *net, gantry_dtype dtype, uint32_t rank, const int64_t *dims);
/* data must stay valid as long as the net. */
uint32_t test_constant_add(test_net *net, gantry_dtype dtype, uint32_t rank, const int64_t *dims,
                           const void *data);
void test_input(test_net *net, uint32_t value);
void test_output(test_net *net, uint32_t value);
/* A node; GANTRY_NO_ID for operands left out. Attributes go to the newest node. */
uint32_t test_node_add(test_net *net, const char *domain, const char *op, int32_t version,
                       uint32_t input_count, const uint32_t *inputs, uint32_t output_count,
                       const uint32_t *outputs);
void test_int(test_net *net, const char *name, int64_t value);
void test_float(test_net *net, const char *name, float value);
void test_text(test_net *net, const char *name, const char *value);
/* values must stay valid as long as the net. */
void test_ints(test_net *net, const char *name, uint32_t count, const int64_t *values);
void test_floats(test_net *net, const char *name, uint32_t count, const float *values);
void test_texts(test_net *net, const char *name, uint32_t count, const char *const *values);

/* Compiles once, makes the shaped program and a context for the values' dims. */
gantry_status test_net_build(test_net *net, int threads);
/* Runs with a buffer for each input and output, in the order they were declared. */
gantry_status test_net_run(test_net *net, int threads, void *const *inputs, void *const *outputs);
/* Whether the provider says that it applied a fusion whose words hold the rule. */
bool test_net_fused(const test_net *net, const char *rule);

/* Numbers in -1..1 from a fixed sequence. */
void test_fill(float *values, int64_t count, uint32_t seed);
/* Such numbers in memory of their own, for the caller to free. */
float *test_filled(int64_t count, uint32_t seed);
/* Bytes of all values from a fixed sequence. */
void test_fill_bytes(uint8_t *bytes, int64_t count, uint32_t seed);
/* The biggest |a-b| / (1 + |b|); NaN counts as infinite unless both are. */
double test_difference(const float *a, const float *b, int64_t count);

#endif
