/* The OpenCL domain beyond copies and events: pinned memory, imported handles, memory info, the probe; and
 * kernels that a second process of the same cache folder need not build. */
#include "../support/small_models.h"
#include "../support/test_device.h"
#include "../support/test_folder.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <jansson.h>

#define OPENCL GANTRY_BUILD_FOLDER "/libgantry_opencl.so"

/* The driver keeps what it allocated until the process ends. LeakSanitizer asks for this by name. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libpocl\nleak:libLLVM\nleak:libOpenCL\n";
}

static test_device *device;
static gantry_error error = GANTRY_ERROR_INIT;

/* Skips where the plugin was not built or no OpenCL driver is installed. */
static void setup(void)
{
    setenv("POCL_CACHE_DIR", GANTRY_BUILD_FOLDER "/pocl-cache", 0);
    device = test_device_open(OPENCL, "device=0", &error);
    if (!device || !device->domain)
        cr_skip_test("%s", device ? device->plugin.unavailable[0] : error.message);
}

static void teardown(void)
{
    if (device)
        cr_assert_eq(test_device_close(device), 0);
}

TestSuite(opencl_domain, .init = setup, .fini = teardown);

#define OK(call) cr_assert_eq((call), GANTRY_OK, "%s", error.message)

Test(opencl_domain, pinned_memory_is_the_hosts_and_the_devices)
{
    const gantry_domain *d = device->domain;
    void *from, *to;
    OK(d->alloc(d->self, 4000, GANTRY_MEMORY_PINNED, &from, &error));
    OK(d->alloc(d->self, 4000, GANTRY_MEMORY_PINNED, &to, &error));
    test_fill(from, 1000, 5);
    memset(to, 0, 4000);
    gantry_buffer memory = test_device_alloc(device, 4000);
    OK(test_device_put(device, memory, from, 4000));
    OK(test_device_get(device, to, memory, 4000));
    OK(test_device_sync(device));
    cr_assert_eq(memcmp(from, to, 4000), 0);
    d->free(d->self, from, GANTRY_MEMORY_PINNED);
    d->free(d->self, to, GANTRY_MEMORY_PINNED);
    d->free(d->self, NULL, GANTRY_MEMORY_PINNED);
}

Test(opencl_domain, a_handle_of_the_device_can_be_imported)
{
    const gantry_domain *d = device->domain;
    float in[16], out[16] = {0};
    void *imported = NULL, *none = NULL;
    gantry_buffer own = test_device_alloc(device, sizeof in);
    test_fill(in, 16, 6);
    OK(test_device_put(device, own, in, sizeof in));
    OK(d->import(d->self, own.handle, sizeof in, &imported, &error));
    OK(test_device_get(device, out, (gantry_buffer){imported, 0}, sizeof out));
    OK(test_device_sync(device));
    cr_assert_eq(memcmp((const void *)in, (const void *)out, sizeof in), 0);
    d->free(d->self, imported, GANTRY_MEMORY_DEVICE);
    OK(test_device_put(device, own, in, sizeof in)); /* the first owner still has it */
    OK(test_device_sync(device));
    cr_assert_eq(d->import(d->self, own.handle, 1 << 20, &none, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(error.message, "1048576") && !none, "%s", error.message);
    cr_assert_eq(d->import(d->self, NULL, 4, &none, &error), GANTRY_INVALID_ARGUMENT);
}

Test(opencl_domain, memory_info_counts_what_is_allocated)
{
    const gantry_domain *d = device->domain;
    uint64_t before, after, total;
    void *memory;
    OK(d->memory_info(d->self, &before, &total));
    OK(d->alloc(d->self, 1 << 20, GANTRY_MEMORY_DEVICE, &memory, &error));
    OK(d->memory_info(d->self, &after, &total));
    cr_assert_eq(before - after, 1 << 20);
    cr_assert(before <= total && total > 0);
    d->free(d->self, memory, GANTRY_MEMORY_DEVICE);
    OK(d->memory_info(d->self, &after, &total));
    cr_assert_eq(before, after);
    cr_assert_eq(d->lost(d->self), 0);
}

Test(opencl_domain, the_probe_measures_copies)
{
    const gantry_domain *d = device->domain;
    gantry_domain_info info = {.struct_bytes = sizeof info};
    OK(d->describe(d->self, &info));
    cr_assert_str_eq(info.name, "opencl:0");
    info.to_host_ns = info.to_device_bytes_per_ns = 0;
    OK(d->probe(d->self, &info, &error));
    cr_assert_eq(info.cost_source, 'm');
    cr_assert(info.to_device_ns > 0 && info.to_host_ns > 0 && info.to_device_bytes_per_ns > 0 &&
              info.to_host_bytes_per_ns > 0);
}

/* ---- two queues ------------------------------------------------------------------------------ */

Test(opencl_domain, copies_have_a_queue_of_their_own)
{
    const gantry_domain *d = device->domain;
    gantry_domain_info info = {.struct_bytes = sizeof info};
    gantry_queue *copier;
    gantry_event *sent, *begin, *end;
    float in[1000], out[1000] = {0};
    double ns = -1;
    OK(d->describe(d->self, &info));
    cr_assert_eq(info.queue_count, 2);
    OK(d->queue_open(d->self, &copier, &error));
    OK(d->event_create(d->self, &sent, &error));
    OK(d->event_create(d->self, &begin, &error));
    OK(d->event_create(d->self, &end, &error));
    gantry_buffer x = test_device_alloc(device, sizeof in), y = test_device_alloc(device, sizeof in);
    for (int round = 0; round < 10; round++) {
        test_fill(in, 1000, (uint32_t)round + 1);
        OK(d->event_record(d->self, copier, begin, &error));
        OK(d->copy(d->self, copier, GANTRY_COPY_TO_DEVICE, x, (gantry_buffer){in, 0}, sizeof in, &error));
        OK(d->event_record(d->self, copier, sent, &error));
        OK(d->event_wait(d->self, device->queue, sent, &error));
        OK(d->copy(d->self, device->queue, GANTRY_COPY_INSIDE, y, x, sizeof in, &error));
        OK(d->event_record(d->self, device->queue, end, &error));
        OK(d->event_wait(d->self, copier, end, &error));
        OK(d->copy(d->self, copier, GANTRY_COPY_TO_HOST, (gantry_buffer){out, 0}, y, sizeof out, &error));
        OK(d->queue_sync(d->self, copier, &error));
        cr_assert_eq(memcmp((const void *)in, (const void *)out, sizeof in), 0);
        OK(d->event_elapsed(d->self, begin, end, &ns));
        cr_assert(ns >= 0 && ns < 1e9, "%g", ns);
    }
    d->event_destroy(d->self, sent);
    d->event_destroy(d->self, begin);
    d->event_destroy(d->self, end);
    d->queue_close(d->self, copier);
}

/* Gather with indexes that the data decide, on the queue that computes. */
static void gather(const gantry_buffer *in, gantry_buffer out, const int64_t *indexes)
{
    OK(test_device_put(device, in[1], indexes, 3 * sizeof *indexes));
    OK(test_device_run(device, in, &out, NULL, 0, NULL));
}

/* Whoever waits for a queue that waited for the kernel gets what it found wrong, once. */
Test(opencl_domain, errors_come_along_with_events)
{
    static const int64_t good[3] = {2, 0, 4}, bad[3] = {1, 7, 0};
    const int64_t x_dims[2] = {5, 4}, i_dims[1] = {3}, y_dims[2] = {3, 4};
    const gantry_domain *d = device->domain;
    test_net *net = device->net;
    uint32_t x = test_value_add(net, GANTRY_FLOAT32, 2, x_dims),
             i = test_value_add(net, GANTRY_INT64, 1, i_dims);
    uint32_t y = test_value_add(net, GANTRY_FLOAT32, 2, y_dims), operands[2] = {x, i};
    float data[20], out[12];
    gantry_queue *copier;
    gantry_event *done;
    test_fill(data, 20, 3);
    test_input(net, x);
    test_input(net, i);
    test_output(net, y);
    test_node_add(net, "", "Gather", 13, 2, operands, 1, &y);
    OK(test_device_build(device));
    OK(d->queue_open(d->self, &copier, &error));
    OK(d->event_create(d->self, &done, &error));
    gantry_buffer in[2] = {test_device_alloc(device, sizeof data), test_device_alloc(device, sizeof good)};
    gantry_buffer result = test_device_alloc(device, sizeof out);
    OK(test_device_put(device, in[0], data, sizeof data));
    for (int round = 0; round < 6; round++) {
        bool fails = round % 3 == 1;
        gather(in, result, fails ? bad : good);
        OK(d->event_record(d->self, device->queue, done, &error));
        OK(d->event_wait(d->self, copier, done, &error));
        OK(d->copy(d->self, copier, GANTRY_COPY_TO_HOST, (gantry_buffer){out, 0}, result, sizeof out,
                   &error));
        gantry_status status = round > 2 ? d->event_sync(d->self, done, &error) : GANTRY_OK;
        if (status == GANTRY_OK)
            status = d->queue_sync(d->self, copier, &error);
        else
            OK(d->queue_sync(d->self, copier, &error));
        cr_assert_eq(status, fails ? GANTRY_DATA : GANTRY_OK, "round %d: %s", round, error.message);
        cr_assert(!fails || strstr(error.message, "hold 7"), "%s", error.message);
        OK(test_device_sync(device)); /* it was said already */
        for (int k = 0; k < 12 && !fails; k++)
            cr_assert_eq(out[k], data[good[k / 4] * 4 + k % 4]);
    }
    d->event_destroy(d->self, done);
    d->queue_close(d->self, copier);
}

/* ---- memory that the application made -------------------------------------------------------- */

/* What is needed of OpenCL itself. */
typedef struct opencl_calls {
    int (*info)(void *memory, unsigned what, size_t capacity, void *out, size_t *out_bytes);
    void *(*create)(void *context, uint64_t flags, size_t bytes, void *data, int *out_error);
    int (*release)(void *memory);
} opencl_calls;

#define MEM_CONTEXT 0x1106
#define MEM_READ_WRITE 1u
#define MEM_COPY_HOST_PTR 32u

static void load_call(void *library, const char *name, void *out_call)
{
    void *symbol = dlsym(library, name);
    cr_assert_not_null(symbol, "%s", name);
    memcpy(out_call, &symbol, sizeof symbol);
}

static opencl_calls load_calls(void)
{
    opencl_calls calls;
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    cr_assert_not_null(library);
    load_call(library, "clGetMemObjectInfo", &calls.info);
    load_call(library, "clCreateBuffer", &calls.create);
    load_call(library, "clReleaseMemObject", &calls.release);
    return calls;
}

/* y = Relu(a + b) with a and y in cl_mems of the application's, in the context of the domain's memory. */
Test(opencl_domain, a_cl_mem_of_the_application_is_bound)
{
    opencl_calls cl = load_calls();
    const int64_t dims[2] = {2, 4};
    float a[8], b[8], y[8];
    void *context = NULL, *mine[2];
    gantry_buffer any, imported[2];
    small_session s = small_open_with(small_add(2), OPENCL, "",
                                      "providers=opencl;plan=priority;bind.a=opencl:0;bind.y=opencl:0");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    test_fill(a, 8, 1);
    test_fill(b, 8, 2);
    OK(gantry_memory_alloc(s.runtime, "opencl:0", 4, &any, &error));
    cr_assert_eq(cl.info(any.handle, MEM_CONTEXT, sizeof(void *), &context, NULL), 0);
    for (int k = 0; k < 2; k++) {
        mine[k] =
            cl.create(context, MEM_READ_WRITE | (k ? 0 : MEM_COPY_HOST_PTR), sizeof a, k ? NULL : a, NULL);
        OK(gantry_memory_import(s.runtime, "opencl:0", mine[k], sizeof a, &imported[k], &error));
    }
    gantry_tensor tensor = small_tensor(GANTRY_FLOAT32, 2, dims, NULL, sizeof a);
    tensor.domain = "opencl:0";
    tensor.buffer = imported[0];
    OK(gantry_run_bind_input(s.run, 0, &tensor, &error));
    small_bind(&s, 1, GANTRY_FLOAT32, 2, 2, 4, b);
    tensor.buffer = imported[1];
    OK(gantry_run_bind_output(s.run, 0, &tensor, &error));
    OK(gantry_run_execute(s.run, &error));
    OK(gantry_memory_copy(s.runtime, "host", (gantry_buffer){y, 0}, "opencl:0", imported[1], sizeof y,
                          &error));
    for (int k = 0; k < 8; k++)
        cr_assert_eq(y[k], a[k] + b[k] > 0 ? a[k] + b[k] : 0);
    gantry_memory_free(s.runtime, "opencl:0", &any);
    for (int k = 0; k < 2; k++) {
        gantry_memory_free(s.runtime, "opencl:0", &imported[k]);
        cr_assert_eq(cl.info(mine[k], MEM_CONTEXT, sizeof(void *), &context, NULL), 0,
                     "it is still the caller's");
        cr_assert_eq(cl.release(mine[k]), 0);
    }
    small_close(&s);
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Kernel programs that the compile of the only partition got by that way. */
static int programs_from(small_session *s, const char *way)
{
    const char *text;
    size_t length;
    int count = 0;
    cr_assert_eq(gantry_report_render(s->report, GANTRY_REPORT_JSON, &text, &length, &s->err), GANTRY_OK);
    json_t *document = json_loadb(text, length, 0, NULL);
    json_t *partition = json_array_get(json_object_get(document, "partitions"), 0), *phase;
    size_t k;
    json_array_foreach(json_object_get(partition, "phases"), k,
                       phase) if (strcmp(json_string_value(json_object_get(phase, "name")), way) == 0)
        count += (int)strtol(json_string_value(json_object_get(phase, "detail")), NULL, 10);
    json_decref(document);
    return count;
}

static void check_build(const char *folder, int built, int cached)
{
    small_session s = {.err = GANTRY_ERROR_INIT};
    cr_assert_eq(gantry_runtime_create(NULL, &s.runtime, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_runtime_set(s.runtime, "cache", folder, &s.err), GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(gantry_runtime_load_provider(s.runtime, OPENCL, "", &s.err), GANTRY_OK, "%s", s.err.message);
    small_create(&s, small_add(3), "providers=opencl;plan=priority");
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(programs_from(&s, "build"), built);
    cr_assert_eq(programs_from(&s, "cache"), cached);
    small_close(&s);
}

Test(opencl_domain, kernels_come_from_the_cache_of_the_host)
{
    char folder[64] = "/tmp/gantry_opencl_cacheXXXXXX", command[128];
    cr_assert_not_null(mkdtemp(folder));
    check_build(folder, 1, 0);
    check_build(folder, 0, 1);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}
