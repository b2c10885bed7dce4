/* The fake device through the ABI: memory that faults, work that is late, counters, limits, precision,
 * failures. */
#include "tests/support/test_device.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define OPS                                                                                                  \
    "\"ops\": {\"Neg\": [\"float32\"], \"Add\": [\"float32\"], \"Relu\": [\"float32\"], \"Reshape\": "       \
    "[\"float32\"]}"

static test_device *device;
static gantry_error error = GANTRY_ERROR_INIT;

static void open_device(const char *config)
{
    device = test_device_open(FAKE, config, &error);
    cr_assert_not_null(device, "%s", error.message);
}

static void teardown(void)
{
    if (device)
        cr_assert_eq(test_device_close(device), 0);
}

TestSuite(fake, .fini = teardown);

#define OK(call) cr_assert_eq((call), GANTRY_OK, "%s", device->net->error.message)

static uint32_t value(uint32_t rank, const int64_t *dims)
{
    return test_value_add(device->net, GANTRY_FLOAT32, rank, dims);
}

static uint32_t node(const char *op, uint32_t input_count, const uint32_t *inputs, uint32_t output)
{
    return test_node_add(device->net, "", op, 13, input_count, inputs, 1, &output);
}

static gantry_verdict judge(uint32_t index)
{
    gantry_verdict verdict = {.struct_bytes = sizeof verdict};
    cr_assert_eq(device->provider->judge(device->provider->self, &device->net->graph, &index, 1, &verdict),
                 GANTRY_OK);
    return verdict;
}

/* x -> Neg -> Relu -> y over 8 elements. */
static void build_chain(void)
{
    const int64_t dims[] = {8};
    uint32_t x = value(1, dims), a = value(1, dims), y = value(1, dims);
    test_input(device->net, x);
    test_output(device->net, y);
    node("Neg", 1, &x, a);
    node("Relu", 1, &a, y);
    OK(test_device_build(device));
}

static const float eight[8] = {1, -2, 3, -4, 5, -6, 7, -8};

Test(fake, it_computes_on_its_own_memory)
{
    float out[8] = {0};
    open_device("{\"devices\": [{" OPS "}]}");
    build_chain();
    cr_assert_gt(device->net->info.workspace_bytes, 0);
    gantry_buffer x = test_device_alloc(device, sizeof eight), y = test_device_alloc(device, sizeof eight);
    OK(test_device_put(device, x, eight, sizeof eight));
    OK(test_device_run(device, &x, &y, NULL, 0, NULL));
    OK(test_device_get(device, out, y, sizeof out));
    OK(test_device_sync(device));
    for (int k = 0; k < 8; k++)
        cr_assert_eq(out[k], eight[k] < 0 ? -eight[k] : 0);
}

static int child_of(void (*body)(void *), void *arg)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        body(arg);
        _exit(0);
    }
    cr_assert_gt(child, 0);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

static void read_it(void *address)
{
    volatile char c = *(volatile char *)address;
    (void)c;
}

static void write_it(void *address)
{
    *(volatile char *)address = 1;
}

static void do_nothing(void *address)
{
}

Test(fake, the_host_cannot_touch_its_memory)
{
    open_device(NULL);
    gantry_buffer x = test_device_alloc(device, 64);
    gantry_domain_info info = {.struct_bytes = sizeof info};
    OK(device->domain->describe(device->domain->self, &info));
    cr_assert_eq(info.separate_memory, 1);
    cr_assert_eq(child_of(do_nothing, x.handle), 0);
    int status = child_of(read_it, x.handle);
    cr_assert(WIFSIGNALED(status) || WEXITSTATUS(status) != 0, "a host read of device memory went unnoticed");
    status = child_of(write_it, x.handle);
    cr_assert(WIFSIGNALED(status) || WEXITSTATUS(status) != 0,
              "a host write to device memory went unnoticed");
}

Test(fake, nothing_is_visible_before_a_wait)
{
    float out[8] = {0}, in[8];
    open_device("{\"devices\": [{" OPS "}]}");
    memcpy(in, eight, sizeof in);
    gantry_buffer x = test_device_alloc(device, sizeof in);
    OK(test_device_put(device, x, in, sizeof in));
    OK(test_device_get(device, out, x, sizeof out));
    usleep(20000);
    cr_assert_eq(out[0], 0, "the copy was done without a wait");
    in[0] = 99;
    OK(test_device_sync(device));
    cr_assert_eq(out[0], 99, "host memory is read when the queue passes the copy");
    cr_assert_eq(out[7], -8);
}

Test(fake, events_order_two_queues)
{
    float out[8] = {0};
    open_device(NULL);
    const gantry_domain *d = device->domain;
    gantry_queue *other;
    gantry_event *event;
    OK(d->queue_open(d->self, &other, &error));
    OK(d->event_create(d->self, &event, &error));
    gantry_buffer x = test_device_alloc(device, sizeof eight);
    OK(test_device_put(device, x, eight, sizeof eight));
    OK(d->event_record(d->self, device->queue, event, &error));
    OK(d->event_wait(d->self, other, event, &error));
    OK(d->copy(d->self, other, GANTRY_COPY_TO_HOST, (gantry_buffer){out, 0}, x, sizeof out, &error));
    OK(d->queue_sync(d->self, other, &error));
    cr_assert_eq(out[2], 3);
    OK(d->event_record(d->self, device->queue, event, &error));
    OK(d->event_sync(d->self, event, &error));
    d->event_destroy(d->self, event);
    d->queue_close(d->self, other);
}

/* Never shorter than asked. How much longer is up to the machine, which may be busy: that is no test. */
Test(fake, copies_and_work_take_their_time)
{
    open_device("{\"devices\": [{" OPS
                ", \"copy_us\": 3000, \"enqueue_us\": 200, \"work_us\": {\"Neg\": 5000}}]}");
    const gantry_domain *d = device->domain;
    gantry_event *begin, *end;
    build_chain();
    OK(d->event_create(d->self, &begin, &error));
    OK(d->event_create(d->self, &end, &error));
    gantry_buffer x = test_device_alloc(device, sizeof eight), y = test_device_alloc(device, sizeof eight);
    for (int round = 0; round < 3; round++) {
        gantry_timing_event timing[4] = {{0}};
        uint32_t count = 0;
        double copy_ns = 0;
        OK(d->event_record(d->self, device->queue, begin, &error));
        OK(test_device_put(device, x, eight, sizeof eight));
        OK(d->event_record(d->self, device->queue, end, &error));
        uint64_t before = device->net->host.now_ns(&device->net->host);
        OK(test_device_run(device, &x, &y, timing, 4, &count));
        double launch_ns = (double)(device->net->host.now_ns(&device->net->host) - before);
        OK(test_device_sync(device));
        OK(d->event_elapsed(d->self, begin, end, &copy_ns));
        cr_assert_eq(count, 2);
        cr_assert_eq(timing[1].kernel_index, 1);
        cr_assert_geq(timing[1].begin_ns, timing[0].begin_ns + timing[0].duration_ns);
        cr_assert(copy_ns >= 3e6 && launch_ns >= 4e5 && timing[0].duration_ns >= 5000000);
    }
    d->event_destroy(d->self, begin);
    d->event_destroy(d->self, end);
}

Test(fake, a_device_without_a_clock_says_so)
{
    double ns;
    gantry_timing_event timing[4];
    uint32_t count = 9;
    open_device("{\"devices\": [{" OPS ", \"timing\": false}]}");
    gantry_domain_info info = {.struct_bytes = sizeof info};
    OK(device->domain->describe(device->domain->self, &info));
    cr_assert_eq(info.has_clock, 0);
    cr_assert_eq(device->domain->event_elapsed(device->domain->self, NULL, NULL, &ns), GANTRY_UNSUPPORTED);
    build_chain();
    gantry_buffer x = test_device_alloc(device, 32), y = test_device_alloc(device, 32);
    OK(test_device_put(device, x, eight, 32));
    OK(test_device_run(device, &x, &y, timing, 4, &count));
    OK(test_device_sync(device));
    cr_assert_eq(count, 0);
}

Test(fake, it_counts_what_it_copies)
{
    char path[] = "/tmp/gantry_countersXXXXXX", config[256];
    close(mkstemp(path));
    snprintf(config, sizeof config, "{\"devices\": [{" OPS "}], \"counters_file\": \"%s\"}", path);
    open_device(config);
    const int64_t dims[] = {8};
    uint32_t x = value(1, dims), y = value(1, dims);
    uint32_t c = test_constant_add(device->net, GANTRY_FLOAT32, 1, dims, eight);
    uint32_t operands[] = {x, c};
    float out[8];
    test_input(device->net, x);
    test_output(device->net, y);
    node("Add", 2, operands, y);
    OK(test_device_build(device));
    gantry_buffer a = test_device_alloc(device, 32), b = test_device_alloc(device, 32);
    for (int k = 0; k < 3; k++) {
        OK(test_device_put(device, a, eight, 32));
        OK(test_device_run(device, &a, &b, NULL, 0, NULL));
        OK(device->domain->copy(device->domain->self, device->queue, GANTRY_COPY_INSIDE, a, b, 32, &error));
        OK(test_device_get(device, out, b, 32));
    }
    OK(test_device_sync(device));
    cr_assert_eq(out[0], 2);
    struct {
        char magic[8];
        uint64_t count;
        char name[64];
        uint64_t numbers[12];
    } counters;
    FILE *file = fopen(path, "rb");
    cr_assert_eq(fread(&counters, sizeof counters, 1, file), 1);
    fclose(file);
    unlink(path);
    static const uint64_t wanted[12] = {6, 192, 3, 96, 3, 3, 1, 2, 96, 32, 1, 1};
    cr_assert_eq(memcmp(counters.magic, "GFAKECNT", 8), 0);
    cr_assert_eq(counters.count, 1);
    cr_assert_str_eq(counters.name, "fake");
    for (int k = 0; k < 12; k++)
        cr_assert_eq(counters.numbers[k], wanted[k], "number %d is %llu", k,
                     (unsigned long long)counters.numbers[k]);
}

Test(fake, accesses_outside_its_blocks_are_refused)
{
    float out[8];
    open_device(NULL);
    gantry_buffer x = test_device_alloc(device, 32), past = {x.handle, 4}, far = {x.handle, 1 << 20};
    OK(test_device_put(device, x, eight, 32));
    cr_assert_eq(test_device_put(device, past, eight, 32), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(device->net->error.message, "target"));
    cr_assert_eq(test_device_get(device, out, far, 4), GANTRY_INVALID_ARGUMENT);
    gantry_buffer host = {out, 0};
    cr_assert_eq(test_device_put(device, host, eight, 32), GANTRY_INVALID_ARGUMENT);
    device->domain->free(device->domain->self, x.handle, GANTRY_MEMORY_DEVICE);
    device->handle_count = 0;
    cr_assert_eq(test_device_put(device, x, eight, 32), GANTRY_INVALID_ARGUMENT);
    cr_assert_neq(test_device_sync(device), GANTRY_OK,
                  "its block was freed before the queue passed the copy");
    OK(test_device_sync(device));
}

Test(fake, its_memory_ends)
{
    open_device("{\"devices\": [{\"memory_mib\": 1}]}");
    void *handle;
    uint64_t free_bytes, total;
    gantry_buffer x = test_device_alloc(device, 600000);
    cr_assert_not_null(x.handle);
    cr_assert_eq(device->domain->alloc(device->domain->self, 600000, GANTRY_MEMORY_DEVICE, &handle, &error),
                 GANTRY_RESOURCE);
    cr_assert_null(handle);
    cr_assert(strstr(error.message, "600000"));
    OK(device->domain->memory_info(device->domain->self, &free_bytes, &total));
    cr_assert_eq(total, 1 << 20);
    cr_assert_eq(free_bytes, (1 << 20) - 600000);
}

/* ---- verdicts -------------------------------------------------------------------------------- */

Test(fake, unknown_operators_and_types)
{
    open_device("{\"devices\": [{\"ops\": {\"Neg\": [\"float16\", \"float32\"]}}]}");
    const int64_t dims[] = {1, 4};
    gantry_dtype types[] = {GANTRY_UINT8, GANTRY_FLOAT32, GANTRY_UINT8, GANTRY_INT8, GANTRY_FLOAT32,
                            GANTRY_INT8,  GANTRY_FLOAT32, GANTRY_UINT8, GANTRY_INT32};
    uint32_t inputs[9];
    for (int k = 0; k < 9; k++)
        inputs[k] = test_value_add(device->net, types[k], 2, dims);
    uint32_t y = test_value_add(device->net, GANTRY_UINT8, 2, dims);
    node("QLinearConv", 9, inputs, y);
    node("Neg", 1, &inputs[8], y);
    node("Neg", 1, &inputs[1], y);
    gantry_verdict v = judge(0);
    cr_assert_eq(v.supported, 0);
    cr_assert_eq(v.refusal.code, GANTRY_REFUSE_no_kernel);
    cr_assert_str_eq(v.refusal.operand, "QLinearConv");
    cr_assert_str_eq(v.refusal.actual, "uint8, int8, uint8");
    v = judge(1);
    cr_assert_eq(v.refusal.code, GANTRY_REFUSE_dtype);
    cr_assert_str_eq(v.refusal.operand, "v8");
    cr_assert_str_eq(v.refusal.actual, "int32");
    cr_assert_str_eq(v.refusal.required, "float16, float32");
    v = judge(2);
    cr_assert_eq(v.supported, 1);
    cr_assert_gt(v.estimate_ns, 0);
    cr_assert_eq(v.estimate_source, 'a');
}

Test(fake, int8_wants_the_quantized_form)
{
    open_device("{\"devices\": [{\"compute\": \"int8\", \"ops\": {\"Add\": [\"int8\"], \"DequantizeLinear\": "
                "[\"int8\"],"
                " \"QuantizeLinear\": [\"float32\"]}}]}");
    const int64_t dims[] = {4};
    test_net *net = device->net;
    uint32_t q = test_value_add(net, GANTRY_INT8, 1, dims), s = value(0, dims),
             z = test_value_add(net, GANTRY_INT8, 0, dims);
    uint32_t a = value(1, dims), x = value(1, dims), sum = value(1, dims),
             out = test_value_add(net, GANTRY_INT8, 1, dims);
    uint32_t dq[] = {q, s, z}, mixed[] = {a, x}, both[] = {a, a}, qi[] = {sum, s, z};
    node("DequantizeLinear", 3, dq, a);
    node("Add", 2, mixed, sum);
    node("QuantizeLinear", 3, qi, out);
    cr_assert_eq(judge(0).supported, 1);
    cr_assert_eq(judge(0).executes_in, GANTRY_INT8);
    gantry_verdict v = judge(1);
    cr_assert_eq(v.refusal.code, GANTRY_REFUSE_no_range);
    cr_assert_str_eq(v.refusal.operand, net->values[x].name);
    memcpy(net->nodes[1].inputs, both, sizeof both);
    v = judge(1);
    cr_assert_eq(v.supported, 1, "%s", v.refusal.operand);
    cr_assert_eq(v.executes_in, GANTRY_INT8);
    test_output(net, sum);
    v = judge(1);
    cr_assert_eq(v.refusal.code, GANTRY_REFUSE_no_range);
    cr_assert_str_eq(v.refusal.operand, net->values[sum].name);
}

Test(fake, limits_hold_at_judge_and_at_reshape)
{
    open_device("{\"devices\": [{" OPS
                ", \"limits\": [{\"op\": \"Neg\", \"what\": \"input0.dim[-1]\", \"max\": 1024}]}]}");
    const int64_t dims[] = {2, 2048};
    uint32_t x = value(2, dims), y = value(2, dims);
    test_input(device->net, x);
    test_output(device->net, y);
    node("Neg", 1, &x, y);
    gantry_verdict v = judge(0);
    cr_assert_eq(v.refusal.code, GANTRY_REFUSE_shape_limit);
    cr_assert_eq(v.refusal.actual_number, 2048);
    cr_assert_eq(v.refusal.limit_number, 1024);
    device->net->values[x].dims[1] = GANTRY_DIM_UNKNOWN;
    cr_assert_eq(judge(0).supported, 1);
    device->net->values[x].dims[1] = 2048;
    cr_assert_eq(test_device_build(device), GANTRY_UNSUPPORTED);
    cr_assert_eq(device->net->info.refused_count, 1);
    cr_assert_eq(device->net->info.refused_nodes[0], 0);
    cr_assert_eq(device->net->info.refusal.code, GANTRY_REFUSE_shape_limit);
    cr_assert_str_eq(device->net->info.refusal.actual, "2048");
    device->net->values[x].dims[1] = device->net->values[y].dims[1] = 512;
    OK(test_device_build(device));
}

Test(fake, inputs_that_it_reads_on_the_host)
{
    open_device("{\"devices\": [{" OPS ", \"host_inputs\": {\"Reshape\": [1]}}]}");
    const int64_t dims[] = {8}, two[] = {2}, square[] = {2, 4};
    uint32_t x = value(1, dims), shape = test_value_add(device->net, GANTRY_INT64, 1, two),
             y = value(2, square);
    uint32_t operands[] = {x, shape};
    float out[8];
    test_input(device->net, x);
    test_output(device->net, y);
    node("Reshape", 2, operands, y);
    cr_assert_eq(judge(0).refusal.code, GANTRY_REFUSE_shape_dynamic);
    device->net->values[shape].view.flags = GANTRY_VALUE_HOST_KNOWN;
    cr_assert_eq(judge(0).supported, 1);
    device->net->host_values[shape] = square;
    OK(test_device_build(device));
    gantry_buffer a = test_device_alloc(device, 32), b = test_device_alloc(device, 32);
    OK(test_device_put(device, a, eight, 32));
    OK(test_device_run(device, &a, &b, NULL, 0, NULL));
    OK(test_device_get(device, out, b, 32));
    OK(test_device_sync(device));
    cr_assert_eq(memcmp((const void *)out, (const void *)eight, sizeof out), 0);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static float run_one(const char *op, float in)
{
    float out = 0;
    const int64_t dims[] = {1};
    uint32_t x = value(1, dims), y = value(1, dims);
    test_input(device->net, x);
    test_output(device->net, y);
    node(op, 1, &x, y);
    OK(test_device_build(device));
    gantry_buffer a = test_device_alloc(device, 4), b = test_device_alloc(device, 4);
    OK(test_device_put(device, a, &in, 4));
    OK(test_device_run(device, &a, &b, NULL, 0, NULL));
    OK(test_device_get(device, &out, b, 4));
    OK(test_device_sync(device));
    return out;
}

Test(fake, half_precision_rounds_results)
{
    open_device("{\"devices\": [{\"compute\": \"float16\", " OPS "}]}");
    cr_assert_eq(run_one("Neg", 2049.0f), -2048.0f);
    cr_assert_eq(judge(0).executes_in, GANTRY_FLOAT16);
}

Test(fake, half_precision_overflows)
{
    open_device("{\"devices\": [{\"compute\": \"float16\", " OPS "}]}");
    cr_assert_eq(run_one("Neg", 70000.0f), -INFINITY);
}

Test(fake, half_precision_has_small_numbers)
{
    open_device("{\"devices\": [{\"compute\": \"float16\", " OPS "}]}");
    cr_assert_eq(run_one("Neg", 0x1.8p-24f), -0x1p-23f);
}

Test(fake, faults_show)
{
    open_device("{\"devices\": [{" OPS ", \"faults\": [{\"op\": \"Neg\", \"kind\": \"offset\"}]}]}");
    cr_assert_eq(run_one("Neg", 3.0f), -2.0f);
}

/* 4 values of 300: exact in float32, and all squares overflow in float16. */
static void run_rms_norm(const char *faults, uint16_t *out)
{
    static const uint16_t x300[4] = {0x5cb0, 0xdcb0, 0x5cb0, 0xdcb0},
                          one[4] = {0x3c00, 0x3c00, 0x3c00, 0x3c00};
    char config[256];
    const int64_t dims[] = {4};
    snprintf(config, sizeof config,
             "{\"devices\": [{\"ops\": {\"RMSNormalization\": [\"float16\"]}, \"faults\": [%s]}]}", faults);
    open_device(config);
    uint32_t x = test_value_add(device->net, GANTRY_FLOAT16, 1, dims);
    uint32_t scale = test_constant_add(device->net, GANTRY_FLOAT16, 1, dims, one);
    uint32_t y = test_value_add(device->net, GANTRY_FLOAT16, 1, dims), operands[] = {x, scale};
    test_input(device->net, x);
    test_output(device->net, y);
    node("RMSNormalization", 2, operands, y);
    OK(test_device_build(device));
    gantry_buffer a = test_device_alloc(device, 8), b = test_device_alloc(device, 8);
    OK(test_device_put(device, a, x300, 8));
    OK(test_device_run(device, &a, &b, NULL, 0, NULL));
    OK(test_device_get(device, out, b, 8));
    OK(test_device_sync(device));
}

Test(fake, float16_goes_through_float32_where_the_host_has_no_kernel)
{
    uint16_t out[4];
    run_rms_norm("", out);
    cr_assert(out[0] == 0x3c00 && out[1] == 0xbc00 && out[2] == 0x3c00 && out[3] == 0xbc00);
}

Test(fake, accumulating_in_float16_gives_zero)
{
    uint16_t out[4];
    run_rms_norm("{\"op\": \"RMSNormalization\", \"kind\": \"accumulate_float16\"}", out);
    for (int k = 0; k < 4; k++)
        cr_assert_eq(out[k] & 0x7fff, 0);
    cr_assert(strstr(device->net->recorder.kernels[0], "fake_half"));
}

/* ---- fusion, views, failures ----------------------------------------------------------------- */

static void build_fusable(const char *types)
{
    char config[512];
    const int64_t dims[] = {8};
    snprintf(config, sizeof config, "{\"devices\": [{" OPS ", \"fused\": {\"Add+Relu\": [%s]}}]}", types);
    open_device(config);
    uint32_t x = value(1, dims), b = test_constant_add(device->net, GANTRY_FLOAT32, 1, dims, eight);
    uint32_t s = value(1, dims), y = value(1, dims), operands[] = {x, b};
    test_input(device->net, x);
    test_output(device->net, y);
    node("Add", 2, operands, s);
    node("Relu", 1, &s, y);
    OK(test_device_build(device));
    cr_assert_eq(device->net->recorder.fusion_count, 1);
}

Test(fake, a_pattern_with_a_kernel_is_fused)
{
    gantry_timing_event timing[4];
    uint32_t count;
    float out[8];
    build_fusable("\"float32\"");
    cr_assert_eq(device->net->recorder.applied[0], 1);
    gantry_buffer a = test_device_alloc(device, 32), b = test_device_alloc(device, 32);
    OK(test_device_put(device, a, eight, 32));
    OK(test_device_run(device, &a, &b, timing, 4, &count));
    OK(test_device_get(device, out, b, 32));
    OK(test_device_sync(device));
    cr_assert_eq(count, 1);
    cr_assert(out[0] == 2 && out[1] == 0 && out[6] == 14);
}

Test(fake, a_pattern_without_a_kernel_is_not_fused)
{
    build_fusable("\"float16\"");
    cr_assert_eq(device->net->recorder.applied[0], 0);
    cr_assert_str_eq(device->net->recorder.fusions[0], "add_relu no_kernel");
}

Test(fake, views_are_offered)
{
    open_device("{\"devices\": [{" OPS ", \"views\": true}]}");
    const int64_t dims[] = {8}, square[] = {2, 4};
    uint32_t x = value(1, dims), z = value(1, dims), y = value(2, square), n = value(1, dims);
    test_input(device->net, x);
    test_input(device->net, z);
    test_output(device->net, y);
    test_output(device->net, n);
    node("Reshape", 1, &x, y);
    node("Neg", 1, &z, n);
    OK(test_device_build(device));
    cr_assert_eq(device->net->info.output_plans[0].view_of_input, 0);
    cr_assert_eq(device->net->info.output_plans[1].view_of_input, -1);
    cr_assert_eq(device->net->info.output_plans[1].overwrite_input, 1);
}

Test(fake, scripted_failures_come_once)
{
    float out[8];
    open_device("{\"devices\": [{" OPS
                ", \"fail\": {\"compile\": 2, \"run\": 1, \"run_late\": 1, \"alloc\": 3}}]}");
    build_chain();
    gantry_buffer x = test_device_alloc(device, 32), y = test_device_alloc(device, 32);
    cr_assert_null(y.handle, "alloc 1 was the workspace, 2 x, 3 fails");
    y = test_device_alloc(device, 32);
    cr_assert_eq(test_device_run(device, &x, &y, NULL, 0, NULL), GANTRY_PROVIDER);
    cr_assert(strstr(device->net->error.message, "scripted failure of run call 1"));
    OK(test_device_put(device, x, eight, 32));
    OK(test_device_run(device, &x, &y, NULL, 0, NULL));
    cr_assert_eq(test_device_sync(device), GANTRY_PROVIDER, "a late failure is reported by the wait");
    OK(test_device_run(device, &x, &y, NULL, 0, NULL));
    OK(test_device_get(device, out, y, 32));
    OK(test_device_sync(device));
    cr_assert_eq(out[1], 2);
    gantry_program *program;
    gantry_compile_args args = {.struct_bytes = sizeof args,
                                .graph = &device->net->graph,
                                .constants = (gantry_constants *)device->net,
                                .recorder = &device->net->recorder};
    cr_assert_eq(device->provider->compile(device->provider->self, &args, &program, &error), GANTRY_PROVIDER);
    cr_assert_null(program);
}

Test(fake, a_lost_device_stays_lost)
{
    open_device("{\"devices\": [{" OPS ", \"fail\": {\"lost\": 1}}]}");
    build_chain();
    gantry_buffer x = test_device_alloc(device, 32), y = test_device_alloc(device, 32);
    cr_assert_eq(device->domain->lost(device->domain->self), 0);
    cr_assert_eq(test_device_run(device, &x, &y, NULL, 0, NULL), GANTRY_PROVIDER);
    cr_assert_eq(device->domain->lost(device->domain->self), 1);
    cr_assert_eq(test_device_put(device, x, eight, 32), GANTRY_PROVIDER);
}
