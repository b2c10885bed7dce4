/* The device driver of test_device.h, and the naive evaluate that it hands to the device. */
#include "test_device.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

/* ---- evaluate -------------------------------------------------------------------------------- */

static int64_t count_of(const gantry_tensor *tensor)
{
    int64_t count = 1;
    for (uint32_t k = 0; k < tensor->rank; k++)
        count *= tensor->dims[k];
    return count;
}

static float *floats_of(const gantry_tensor *tensor)
{
    return (float *)((char *)tensor->buffer.handle + tensor->buffer.offset_bytes);
}

static void matmul(const gantry_tensor *a, const gantry_tensor *b, const gantry_tensor *c)
{
    int64_t rows = a->dims[0], depth = a->dims[1], columns = b->dims[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            float sum = 0;
            for (int64_t k = 0; k < depth; k++)
                sum += floats_of(a)[i * depth + k] * floats_of(b)[k * columns + j];
            floats_of(c)[i * columns + j] = sum;
        }
}

static void rms_norm(const gantry_tensor *x, const gantry_tensor *scale, const gantry_tensor *y)
{
    int64_t width = x->dims[x->rank - 1];
    for (int64_t r = 0; r < count_of(x) / width; r++) {
        float sum = 0;
        for (int64_t k = 0; k < width; k++)
            sum += floats_of(x)[r * width + k] * floats_of(x)[r * width + k];
        for (int64_t k = 0; k < width; k++)
            floats_of(y)[r * width + k] =
                floats_of(x)[r * width + k] / sqrtf(sum / (float)width) * floats_of(scale)[k];
    }
}

static bool is_unary(const char *op)
{
    return strcmp(op, "Neg") == 0 || strcmp(op, "Relu") == 0 || strcmp(op, "Sqrt") == 0;
}

static float apply(const char *op, float x)
{
    return strcmp(op, "Neg") == 0 ? -x : strcmp(op, "Relu") == 0 ? (x > 0 ? x : 0) : sqrtf(x);
}

static gantry_status evaluate(const gantry_host *host, const gantry_graph_view *graph, uint32_t node,
                              const gantry_tensor *inputs, const gantry_tensor *outputs, gantry_error *err)
{
    const char *op = graph->nodes[node]->op;
    if (inputs[0].dtype != GANTRY_FLOAT32 || outputs[0].dtype != GANTRY_FLOAT32)
        return GANTRY_UNSUPPORTED;
    if (strcmp(op, "MatMul") == 0)
        matmul(&inputs[0], &inputs[1], &outputs[0]);
    else if (strcmp(op, "RMSNormalization") == 0)
        rms_norm(&inputs[0], &inputs[1], &outputs[0]);
    else
        for (int64_t k = 0; k < count_of(&outputs[0]); k++) {
            float x = floats_of(&inputs[0])[k];
            if (is_unary(op))
                floats_of(&outputs[0])[k] = apply(op, x);
            else if (strcmp(op, "Add") == 0)
                floats_of(&outputs[0])[k] = x + floats_of(&inputs[1])[k % count_of(&inputs[1])];
            else if (strcmp(op, "Reshape") == 0)
                floats_of(&outputs[0])[k] = x;
            else
                return GANTRY_UNSUPPORTED;
        }
    return GANTRY_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

test_device *test_device_open(const char *path, const char *config, gantry_error *out_err)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) {
        snprintf(out_err->message, sizeof out_err->message, "%s", dlerror());
        return NULL;
    }
    gantry_plugin_open_fn open;
    void *symbol = dlsym(library, GANTRY_PLUGIN_ENTRY);
    memcpy(&open, &symbol, sizeof symbol);
    test_device *device = calloc(1, sizeof *device);
    device->net = test_net_open();
    device->net->host.config = config ? config : "";
    device->net->host.evaluate = evaluate;
    device->plugin.struct_bytes = sizeof device->plugin;
    if (open(&device->net->host, GANTRY_PROVIDER_ABI, &device->plugin, out_err) != GANTRY_OK) {
        test_net_close(device->net);
        free(device);
        return NULL;
    }
    device->provider = device->plugin.providers[0];
    bool absent = device->plugin.unavailable && device->plugin.unavailable[0];
    if (!absent && device->plugin.domain_count) {
        device->domain = device->plugin.domains[0];
        device->domain->queue_open(device->domain->self, &device->queue, out_err);
    }
    return device;
}

static void drop_programs(test_device *device)
{
    test_net *net = device->net;
    const gantry_provider *p = device->provider;
    if (net->context)
        p->context_destroy(p->self, net->context);
    if (net->shaped)
        p->shaped_destroy(p->self, net->shaped);
    if (net->program)
        p->program_destroy(p->self, net->program);
    net->context = NULL;
    net->shaped = NULL;
    net->program = NULL;
}

long test_device_close(test_device *device)
{
    if (device->queue)
        device->domain->queue_close(device->domain->self, device->queue);
    drop_programs(device);
    for (uint32_t k = 0; k < device->handle_count; k++)
        device->domain->free(device->domain->self, device->handles[k], GANTRY_MEMORY_DEVICE);
    device->plugin.close(device->plugin.self);
    long live = test_net_close(device->net);
    free(device);
    return live;
}

/* ---- memory ---------------------------------------------------------------------------------- */

gantry_buffer test_device_alloc(test_device *device, size_t bytes)
{
    void *handle = NULL;
    if (device->domain->alloc(device->domain->self, bytes, GANTRY_MEMORY_DEVICE, &handle,
                              &device->net->error) == GANTRY_OK)
        device->handles[device->handle_count++] = handle;
    return (gantry_buffer){handle, 0};
}

gantry_status test_device_put(test_device *device, gantry_buffer target, const void *data, size_t bytes)
{
    gantry_buffer source = {(void *)data, 0};
    return device->domain->copy(device->domain->self, device->queue, GANTRY_COPY_TO_DEVICE, target, source,
                                bytes, &device->net->error);
}

gantry_status test_device_get(test_device *device, void *data, gantry_buffer source, size_t bytes)
{
    gantry_buffer target = {data, 0};
    return device->domain->copy(device->domain->self, device->queue, GANTRY_COPY_TO_HOST, target, source,
                                bytes, &device->net->error);
}

gantry_status test_device_sync(test_device *device)
{
    return device->domain->queue_sync(device->domain->self, device->queue, &device->net->error);
}

/* ---- programs -------------------------------------------------------------------------------- */

gantry_status test_device_build(test_device *device)
{
    test_net *net = device->net;
    const gantry_provider *cpu = net->provider;
    net->provider = device->provider;
    gantry_status status = test_net_build(net, 1);
    net->provider = cpu;
    if (status == GANTRY_OK && net->info.workspace_bytes > device->workspace_bytes) {
        device->workspace = test_device_alloc(device, net->info.workspace_bytes).handle;
        device->workspace_bytes = net->info.workspace_bytes;
    }
    return status;
}

gantry_status test_device_run(test_device *device, const gantry_buffer *inputs, const gantry_buffer *outputs,
                              gantry_timing_event *timing, uint32_t capacity, uint32_t *out_count)
{
    static uint64_t bindings;
    volatile int stop = 0;
    gantry_run_args args = {.struct_bytes = sizeof args,
                            .queue = device->queue,
                            .inputs = inputs,
                            .outputs = outputs,
                            .workspace = {device->workspace, 0},
                            .bindings = ++bindings,
                            .threads = 1,
                            .stop = &stop,
                            .timing = timing,
                            .timing_capacity = capacity,
                            .out_timing_count = out_count};
    return device->provider->run(device->provider->self, device->net->context, &args, &device->net->error);
}
