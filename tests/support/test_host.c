/* The small host and the view builder of test_host.h. */
#include "test_host.h"

#include "providers/cpu/cpu_plugin.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static test_net *net_of(const gantry_host *host)
{
    return host->self;
}

static void host_log(const gantry_host *host, int level, const char *text)
{
}

static void *host_alloc(const gantry_host *host, size_t bytes, size_t alignment)
{
    void *memory = NULL;
    long number = __atomic_add_fetch(&net_of(host)->allocations, 1, __ATOMIC_RELAXED);
    if (number == net_of(host)->fail_at)
        return NULL;
    if (posix_memalign(&memory, alignment < 16 ? 16 : alignment, bytes ? bytes : 1) != 0)
        return NULL;
    memset(memory, 0xCD, bytes < 4096 ? bytes : 4096);
    __atomic_fetch_add(&net_of(host)->live_blocks, 1, __ATOMIC_RELAXED);
    return memory;
}

static void host_free(const gantry_host *host, void *memory)
{
    if (memory)
        __atomic_fetch_sub(&net_of(host)->live_blocks, 1, __ATOMIC_RELAXED);
    free(memory);
}

static uint64_t host_now_ns(const gantry_host *host)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void host_parallel_for(const gantry_host *host, int threads, int64_t count, int64_t chunk,
                              gantry_parallel_fn fn, void *arg)
{
    if (count > 0)
        fn(arg, 0, count, 0);
}

static gantry_status host_constant_map(const gantry_host *host, gantry_constants *constants, uint32_t id,
                                       const void **out_data, size_t *out_bytes, gantry_error *err)
{
    test_constant *constant = &net_of(host)->constants[id];
    if (!constant->mapped) {
        /* As in a model file: at an address that is no multiple of anything. */
        constant->mapped = malloc(constant->bytes + 1);
        memcpy((char *)constant->mapped + 1, constant->data, constant->bytes);
    }
    *out_data = (char *)constant->mapped + 1;
    *out_bytes = constant->bytes;
    return GANTRY_OK;
}

static void host_constant_unmap(const gantry_host *host, gantry_constants *constants, uint32_t id)
{
    test_constant *constant = &net_of(host)->constants[id];
    if (constant->mapped)
        memset(constant->mapped, 0xEE, constant->bytes + 1);
    free(constant->mapped);
    constant->mapped = NULL;
}

static void host_record_kernel(gantry_recorder *recorder, const gantry_kernel_record *record)
{
    if (recorder->kernel_count < TEST_MAX_RECORDS)
        snprintf(recorder->kernels[recorder->kernel_count++], 160, "%s %s %s", record->op, record->name,
                 record->layout);
}

static void host_record_fusion(gantry_recorder *recorder, const gantry_fusion_record *record)
{
    if (recorder->fusion_count >= TEST_MAX_RECORDS)
        return;
    recorder->applied[recorder->fusion_count] = record->applied;
    snprintf(recorder->fusions[recorder->fusion_count++], 160, "%s %s", record->rule, record->guard);
}

/* First fit, in the order given: a dumber planner than the real one. */
static gantry_status host_plan_memory(const gantry_host *host, uint32_t count, const size_t *bytes,
                                      const uint32_t *first, const uint32_t *last, size_t *out_offsets,
                                      size_t *out_total, gantry_error *err)
{
    *out_total = 0;
    for (uint32_t k = 0; k < count; k++) {
        size_t offset = 0;
        for (uint32_t j = 0; j < k; j++) {
            size_t end = (out_offsets[j] + bytes[j] + 63) & ~(size_t)63;
            bool together = first[j] <= last[k] && first[k] <= last[j];
            if (together && offset < end && out_offsets[j] < offset + bytes[k]) {
                offset = end;
                j = UINT32_MAX; /* start over at the new offset */
            }
        }
        out_offsets[k] = offset;
        if (offset + bytes[k] > *out_total)
            *out_total = offset + bytes[k];
    }
    return GANTRY_OK;
}

static gantry_status host_evaluate(const gantry_host *host, const gantry_graph_view *graph, uint32_t node,
                                   const gantry_tensor *inputs, const gantry_tensor *outputs,
                                   gantry_error *err)
{
    return GANTRY_UNSUPPORTED;
}

static const char *host_option(const gantry_host *host, const void *options, const char *key)
{
    return strcmp(key, "cpu.disable_types") == 0 ? net_of(host)->disable_types : NULL;
}

test_net *test_net_open(void)
{
    test_net *net = calloc(1, sizeof *net);
    net->host = (gantry_host){.struct_bytes = sizeof(gantry_host),
                              .abi = GANTRY_PROVIDER_ABI,
                              .self = net,
                              .config = "",
                              .log = host_log,
                              .alloc = host_alloc,
                              .free = host_free,
                              .now_ns = host_now_ns,
                              .parallel_for = host_parallel_for,
                              .constant_map = host_constant_map,
                              .constant_unmap = host_constant_unmap,
                              .record_kernel = host_record_kernel,
                              .record_fusion = host_record_fusion,
                              .plan_memory = host_plan_memory,
                              .evaluate = host_evaluate,
                              .option = host_option};
    net->graph = (gantry_graph_view){.struct_bytes = sizeof net->graph,
                                     .nodes = net->node_list,
                                     .values = net->value_list,
                                     .inputs = net->inputs,
                                     .outputs = net->outputs};
    net->error.struct_bytes = sizeof net->error;
    net->plugin.struct_bytes = sizeof net->plugin;
    if (gt_cpu_plugin_open(&net->host, GANTRY_PROVIDER_ABI, &net->plugin, &net->error) == GANTRY_OK)
        net->provider = net->plugin.providers[0];
    return net;
}

static void drop_shape(test_net *net)
{
    const gantry_provider *p = net->provider;
    p->context_destroy(p->self, net->context);
    p->shaped_destroy(p->self, net->shaped);
    net->context = NULL;
    net->shaped = NULL;
    free(net->workspace);
    net->workspace = NULL;
}

long test_net_close(test_net *net)
{
    if (net->provider) {
        drop_shape(net);
        net->provider->program_destroy(net->provider->self, net->program);
        net->plugin.close(net->plugin.self);
    }
    for (uint32_t k = 0; k < net->constant_count; k++)
        free(net->constants[k].mapped);
    long live = net->live_blocks;
    free(net);
    return live;
}

uint32_t test_value_add(test_net *net, gantry_dtype dtype, uint32_t rank, const int64_t *dims)
{
    uint32_t id = net->graph.value_count++;
    test_value *value = &net->values[id];
    if (rank)
        memcpy(value->dims, dims, rank * sizeof *dims);
    snprintf(value->name, sizeof value->name, "v%u", id);
    value->view = (gantry_value_view){.struct_bytes = sizeof value->view,
                                      .id = id,
                                      .name = value->name,
                                      .kind = GANTRY_KIND_TENSOR,
                                      .dtype = dtype,
                                      .rank = (int32_t)rank,
                                      .dims = value->dims,
                                      .typical_dims = value->dims,
                                      .constant_id = GANTRY_NO_ID};
    net->value_list[id] = &value->view;
    net->shapes[id] = (gantry_shape){rank, value->dims};
    return id;
}

uint32_t test_constant_add(test_net *net, gantry_dtype dtype, uint32_t rank, const int64_t *dims,
                           const void *data)
{
    static const uint8_t bytes_of[GANTRY_DTYPE_COUNT] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};
    uint32_t id = test_value_add(net, dtype, rank, dims);
    size_t bytes = bytes_of[dtype];
    for (uint32_t k = 0; k < rank; k++)
        bytes *= (size_t)dims[k];
    net->values[id].view.constant_id = net->constant_count;
    net->values[id].view.flags = GANTRY_VALUE_CONSTANT;
    net->constants[net->constant_count++] = (test_constant){data, bytes, NULL};
    return id;
}

void test_input(test_net *net, uint32_t value)
{
    net->inputs[net->graph.input_count++] = value;
}

void test_output(test_net *net, uint32_t value)
{
    net->outputs[net->graph.output_count++] = value;
}

uint32_t test_node_add(test_net *net, const char *domain, const char *op, int32_t version,
                       uint32_t input_count, const uint32_t *inputs, uint32_t output_count,
                       const uint32_t *outputs)
{
    uint32_t id = net->graph.node_count++;
    test_node *node = &net->nodes[id];
    memcpy(node->inputs, inputs, input_count * sizeof *inputs);
    memcpy(node->outputs, outputs, output_count * sizeof *outputs);
    node->view = (gantry_node_view){.struct_bytes = sizeof node->view,
                                    .id = id,
                                    .name = op,
                                    .op = op,
                                    .domain = domain,
                                    .version = version,
                                    .input_count = input_count,
                                    .inputs = node->inputs,
                                    .output_count = output_count,
                                    .outputs = node->outputs,
                                    .attributes = node->attributes};
    net->node_list[id] = &node->view;
    return id;
}

static void add_attribute(test_net *net, gantry_attribute attribute)
{
    test_node *node = &net->nodes[net->graph.node_count - 1];
    attribute.struct_bytes = sizeof attribute;
    node->attributes[node->view.attribute_count++] = attribute;
}

void test_int(test_net *net, const char *name, int64_t value)
{
    add_attribute(net, (gantry_attribute){.name = name, .kind = GANTRY_ATTR_INT, .count = 1, .i = value});
}

void test_float(test_net *net, const char *name, float value)
{
    add_attribute(net, (gantry_attribute){.name = name, .kind = GANTRY_ATTR_FLOAT, .count = 1, .f = value});
}

void test_text(test_net *net, const char *name, const char *value)
{
    add_attribute(
        net, (gantry_attribute){
                 .name = name, .kind = GANTRY_ATTR_STRING, .count = 1, .s = value, .length = strlen(value)});
}

void test_ints(test_net *net, const char *name, uint32_t count, const int64_t *values)
{
    add_attribute(net,
                  (gantry_attribute){.name = name, .kind = GANTRY_ATTR_INTS, .count = count, .ints = values});
}

void test_floats(test_net *net, const char *name, uint32_t count, const float *values)
{
    add_attribute(
        net, (gantry_attribute){.name = name, .kind = GANTRY_ATTR_FLOATS, .count = count, .floats = values});
}

void test_texts(test_net *net, const char *name, uint32_t count, const char *const *values)
{
    add_attribute(net, (gantry_attribute){
                           .name = name, .kind = GANTRY_ATTR_STRINGS, .count = count, .strings = values});
}

static gantry_status compile(test_net *net, int threads)
{
    gantry_compile_args args = {.struct_bytes = sizeof args,
                                .graph = &net->graph,
                                .constants = (gantry_constants *)net,
                                .threads = threads,
                                .exact = net->exact,
                                .recorder = &net->recorder};
    return net->provider->compile(net->provider->self, &args, &net->program, &net->error);
}

gantry_status test_net_build(test_net *net, int threads)
{
    const gantry_provider *p = net->provider;
    if (!net->program) {
        gantry_status status = compile(net, threads);
        if (status != GANTRY_OK)
            return status;
    }
    drop_shape(net);
    net->recorder.kernel_count = 0;
    gantry_reshape_args args = {.struct_bytes = sizeof args,
                                .shapes = net->shapes,
                                .host_values = net->host_values,
                                .constants = (gantry_constants *)net,
                                .recorder = &net->recorder};
    net->info = (gantry_shaped_info){.struct_bytes = sizeof net->info};
    gantry_status status = p->reshape(p->self, net->program, &args, &net->shaped, &net->info, &net->error);
    if (status != GANTRY_OK)
        return status;
    if (posix_memalign(&net->workspace, 64, net->info.workspace_bytes + 64) != 0)
        return GANTRY_RESOURCE;
    memset(net->workspace, 0xFF, net->info.workspace_bytes); /* NaN: a read before a write shows */
    return p->context_create(p->self, net->shaped, &net->context, &net->error);
}

static size_t bytes_of_value(const test_net *net, uint32_t value)
{
    static const uint8_t sizes[GANTRY_DTYPE_COUNT] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};
    size_t bytes = sizes[net->values[value].view.dtype];
    for (uint32_t k = 0; k < net->shapes[value].rank; k++)
        bytes *= (size_t)net->values[value].dims[k];
    return bytes;
}

/* What the executor does for an output that the provider says is a view of an input. */
static void copy_views(const test_net *net, void *const *inputs, void *const *outputs)
{
    for (uint32_t k = 0; k < net->graph.output_count; k++) {
        const gantry_output_plan *plan = &net->info.output_plans[k];
        if (plan->view_of_input >= 0)
            memcpy(outputs[k], (const char *)inputs[plan->view_of_input] + plan->view_offset_bytes,
                   bytes_of_value(net, net->outputs[k]));
    }
}

gantry_status test_net_run(test_net *net, int threads, void *const *inputs, void *const *outputs)
{
    static uint64_t bindings;
    gantry_buffer in[32], out[32];
    for (uint32_t k = 0; k < net->graph.input_count; k++)
        in[k] = (gantry_buffer){inputs[k], 0};
    for (uint32_t k = 0; k < net->graph.output_count; k++)
        out[k] = (gantry_buffer){outputs[k], 0};
    volatile int stop = 0;
    gantry_run_args args = {.struct_bytes = sizeof args,
                            .inputs = in,
                            .outputs = out,
                            .workspace = {net->workspace, 0},
                            .bindings = ++bindings,
                            .threads = threads,
                            .stop = &stop};
    const gantry_provider *p = net->provider;
    gantry_status status = p->run(p->self, net->context, &args, &net->error);
    copy_views(net, inputs, outputs);
    return status;
}

bool test_net_fused(const test_net *net, const char *rule)
{
    for (uint32_t k = 0; k < net->recorder.fusion_count; k++)
        if (strstr(net->recorder.fusions[k], rule) && net->recorder.applied[k])
            return true;
    return false;
}

void test_fill(float *values, int64_t count, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 12345u;
    for (int64_t k = 0; k < count; k++) {
        state = state * 1664525u + 1013904223u;
        values[k] = (float)((int32_t)(state >> 8) - (1 << 23)) / (float)(1 << 23);
    }
}

float *test_filled(int64_t count, uint32_t seed)
{
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    test_fill(values, count, seed);
    return values;
}

void test_fill_bytes(uint8_t *bytes, int64_t count, uint32_t seed)
{
    for (int64_t k = 0; k < count; k++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[k] = (uint8_t)(seed >> 24);
    }
}

double test_difference(const float *a, const float *b, int64_t count)
{
    double worst = 0;
    for (int64_t k = 0; k < count; k++) {
        if (isnan(a[k]) && isnan(b[k]))
            continue;
        double difference = a[k] == b[k] ? 0 : fabs((double)a[k] - b[k]) / (1 + fabs((double)b[k]));
        if (isnan(difference))
            return INFINITY;
        if (difference > worst)
            worst = difference;
    }
    return worst;
}
