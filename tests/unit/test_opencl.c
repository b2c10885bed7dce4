/* The OpenCL plugin through the ABI: copies, Add with broadcast, MatMul, Relu, offsets, events, and no
 * device. */
#include "tests/support/test_device.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

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
    device = test_device_open(OPENCL, NULL, &error);
    if (!device || !device->domain)
        cr_skip_test("%s", device ? device->plugin.unavailable[0] : error.message);
}

static void teardown(void)
{
    if (device)
        cr_assert_eq(test_device_close(device), 0);
}

TestSuite(opencl, .init = setup, .fini = teardown);

#define OK(call) cr_assert_eq((call), GANTRY_OK, "%s", device->net->error.message)

static int64_t count_of(uint32_t value)
{
    int64_t count = 1;
    for (int32_t k = 0; k < device->net->values[value].view.rank; k++)
        count *= device->net->values[value].dims[k];
    return count;
}

static uint32_t value(uint32_t rank, const int64_t *dims)
{
    return test_value_add(device->net, GANTRY_FLOAT32, rank, dims);
}

/* A net of one node with two inputs, run on the device with operands that begin inside their buffers. */
static void run_binary(const char *op, uint32_t a, const float *a_data, uint32_t b, const float *b_data,
                       uint32_t c, float *out)
{
    uint32_t operands[] = {a, b};
    test_input(device->net, a);
    test_input(device->net, b);
    test_output(device->net, c);
    test_node_add(device->net, "", op, 13, 2, operands, 1, &c);
    gantry_verdict verdict = {.struct_bytes = sizeof verdict};
    uint32_t node = 0;
    OK(device->provider->judge(device->provider->self, &device->net->graph, &node, 1, &verdict));
    cr_assert_eq(verdict.supported, 1, "%s", verdict.refusal.operand);
    OK(test_device_build(device));
    gantry_buffer in[] = {test_device_alloc(device, 64 + (size_t)count_of(a) * 4),
                          test_device_alloc(device, 64 + (size_t)count_of(b) * 4)};
    gantry_buffer result = test_device_alloc(device, 128 + (size_t)count_of(c) * 4);
    in[0].offset_bytes = in[1].offset_bytes = 64;
    result.offset_bytes = 128;
    OK(test_device_put(device, in[0], a_data, (size_t)count_of(a) * 4));
    OK(test_device_put(device, in[1], b_data, (size_t)count_of(b) * 4));
    OK(test_device_run(device, in, &result, NULL, 0, NULL));
    OK(test_device_get(device, out, result, (size_t)count_of(c) * 4));
    OK(test_device_sync(device));
}

Test(opencl, add)
{
    const int64_t dims[] = {3, 5};
    float a[15], b[15], out[15];
    test_fill(a, 15, 1);
    test_fill(b, 15, 2);
    run_binary("Add", value(2, dims), a, value(2, dims), b, value(2, dims), out);
    for (int k = 0; k < 15; k++)
        cr_assert_eq(out[k], a[k] + b[k]);
}

Test(opencl, add_broadcasts_both_operands)
{
    const int64_t left[] = {2, 1, 4}, right[] = {3, 1}, result[] = {2, 3, 4};
    float a[8], b[3], out[24];
    test_fill(a, 8, 3);
    test_fill(b, 3, 4);
    run_binary("Add", value(3, left), a, value(2, right), b, value(3, result), out);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++)
                cr_assert_eq(out[(i * 3 + j) * 4 + k], a[i * 4 + k] + b[j]);
}

static void check_matmul(int64_t batches, int64_t b_batches, int64_t rows, int64_t depth, int64_t columns)
{
    const int64_t a_dims[] = {batches, rows, depth}, b_dims[] = {b_batches, depth, columns};
    const int64_t c_dims[] = {batches, rows, columns};
    static float a[20000], b[20000], out[20000], wanted[20000];
    test_fill(a, batches * rows * depth, 5);
    test_fill(b, b_batches * depth * columns, 6);
    for (int64_t n = 0; n < batches; n++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                double sum = 0;
                for (int64_t k = 0; k < depth; k++)
                    sum += (double)a[(n * rows + i) * depth + k] *
                           b[((b_batches > 1 ? n : 0) * depth + k) * columns + j];
                wanted[(n * rows + i) * columns + j] = (float)sum;
            }
    uint32_t second = b_batches > 1 ? value(3, b_dims) : value(2, b_dims + 1);
    run_binary("MatMul", value(3, a_dims), a, second, b, value(3, c_dims), out);
    cr_assert_lt(test_difference(out, wanted, batches * rows * columns), 1e-5);
}

Test(opencl, matmul_with_one_matrix_for_all)
{
    check_matmul(3, 1, 17, 33, 9);
}

Test(opencl, matmul_in_batches)
{
    check_matmul(2, 2, 5, 64, 31);
}

/* x -> MatMul(w) -> Add(b) -> Relu -> y: constants, a workspace, two kernels. */
Test(opencl, a_layer)
{
    const int64_t x_dims[] = {4, 8}, w_dims[] = {8, 6}, b_dims[] = {6}, y_dims[] = {4, 6};
    float x[32], w[48], b[6], out[24];
    test_fill(x, 32, 7);
    test_fill(w, 48, 8);
    test_fill(b, 6, 9);
    x[3] = NAN;
    test_net *net = device->net;
    uint32_t in = value(2, x_dims), product = value(2, y_dims), sum = value(2, y_dims), y = value(2, y_dims);
    uint32_t weight = test_constant_add(net, GANTRY_FLOAT32, 2, w_dims, w);
    uint32_t bias = test_constant_add(net, GANTRY_FLOAT32, 1, b_dims, b);
    uint32_t mul[] = {in, weight}, add[] = {product, bias};
    test_input(net, in);
    test_output(net, y);
    test_node_add(net, "", "MatMul", 13, 2, mul, 1, &product);
    test_node_add(net, "", "Add", 13, 2, add, 1, &sum);
    test_node_add(net, "", "Relu", 13, 1, &sum, 1, &y);
    OK(test_device_build(device));
    cr_assert_geq(net->info.workspace_bytes, 96);
    cr_assert_eq(device->provider->memory(device->provider->self, net->program), sizeof w + sizeof b);
    gantry_buffer from = test_device_alloc(device, sizeof x), to = test_device_alloc(device, sizeof out);
    for (int round = 0; round < 3; round++) {
        OK(test_device_put(device, from, x, sizeof x));
        OK(test_device_run(device, &from, &to, NULL, 0, NULL));
        OK(test_device_get(device, out, to, sizeof out));
        OK(test_device_sync(device));
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 6; j++) {
            double wanted = b[j];
            for (int k = 0; k < 8; k++)
                wanted += (double)x[i * 8 + k] * w[k * 6 + j];
            float got = out[i * 6 + j];
            if (i == 0)
                cr_assert(isnan(got), "NaN goes through Relu");
            else
                cr_assert_lt(fabs(got - (wanted > 0 ? wanted : 0)), 1e-5);
        }
}

Test(opencl, another_shape_of_the_same_program)
{
    const int64_t dims[] = {4};
    uint32_t x = value(1, dims), y = value(1, dims);
    float in[100], out[100];
    test_fill(in, 100, 10);
    test_input(device->net, x);
    test_output(device->net, y);
    test_node_add(device->net, "", "Relu", 13, 1, &x, 1, &y);
    gantry_buffer from = test_device_alloc(device, sizeof in), to = test_device_alloc(device, sizeof out);
    static const int64_t sizes[] = {4, 100, 0, 7};
    for (int s = 0; s < 4; s++) {
        size_t bytes = (size_t)sizes[s] * 4;
        device->net->values[x].dims[0] = device->net->values[y].dims[0] = sizes[s];
        OK(test_device_build(device));
        OK(test_device_put(device, from, in, bytes));
        OK(test_device_run(device, &from, &to, NULL, 0, NULL));
        OK(test_device_get(device, out, to, bytes));
        OK(test_device_sync(device));
        for (int64_t k = 0; k < sizes[s]; k++)
            cr_assert_eq(out[k], in[k] > 0 ? in[k] : 0);
    }
}

static gantry_refusal_code refusal_of(uint32_t node)
{
    gantry_verdict verdict = {.struct_bytes = sizeof verdict};
    OK(device->provider->judge(device->provider->self, &device->net->graph, &node, 1, &verdict));
    cr_assert_eq(verdict.supported, 0);
    cr_assert(*verdict.refusal.operand && *verdict.refusal.actual && *verdict.refusal.required);
    return verdict.refusal.code;
}

Test(opencl, what_it_refuses)
{
    const int64_t dims[] = {2, 3, 4}, one[] = {4}, batches[] = {5, 4, 4},
                  nine[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    test_net *net = device->net;
    uint32_t f = value(3, dims), i = test_value_add(net, GANTRY_BOOL, 3, dims), v = value(1, one);
    uint32_t other = value(3, batches), deep = value(9, nine);
    uint32_t vector[] = {f, v}, uneven[] = {f, other}, deeper[] = {deep, deep};
    test_node_add(net, "", "NonZero", 13, 1, &f, 1, &f);
    test_node_add(net, "", "Relu", 13, 1, &i, 1, &i);
    test_node_add(net, "", "Gemm", 13, 2, vector, 1, &f);
    test_node_add(net, "", "MatMul", 13, 2, uneven, 1, &f);
    test_node_add(net, "", "Add", 13, 2, deeper, 1, &deep);
    test_node_add(net, "gantry", "Add", 1, 2, vector, 1, &f);
    cr_assert_eq(refusal_of(0), GANTRY_REFUSE_no_kernel);
    cr_assert_eq(refusal_of(1), GANTRY_REFUSE_dtype);
    cr_assert_eq(refusal_of(2), GANTRY_REFUSE_rank);
    cr_assert_eq(refusal_of(3), GANTRY_REFUSE_layout);
    cr_assert_eq(refusal_of(4), GANTRY_REFUSE_rank);
    cr_assert_eq(refusal_of(5), GANTRY_REFUSE_no_kernel);
}

Test(opencl, events_order_two_queues)
{
    const gantry_domain *d = device->domain;
    gantry_queue *other;
    gantry_event *begin, *end;
    float in[1000], out[1000] = {0};
    double ns = -1;
    test_fill(in, 1000, 11);
    OK(d->queue_open(d->self, &other, &error));
    OK(d->event_create(d->self, &begin, &error));
    OK(d->event_create(d->self, &end, &error));
    gantry_buffer x = test_device_alloc(device, sizeof in), y = test_device_alloc(device, sizeof in);
    OK(d->event_record(d->self, device->queue, begin, &error));
    OK(test_device_put(device, x, in, sizeof in));
    OK(d->copy(d->self, device->queue, GANTRY_COPY_INSIDE, y, x, sizeof in, &error));
    OK(d->event_record(d->self, device->queue, end, &error));
    OK(d->event_wait(d->self, other, end, &error));
    OK(d->copy(d->self, other, GANTRY_COPY_TO_HOST, (gantry_buffer){out, 0}, y, sizeof out, &error));
    OK(d->queue_sync(d->self, other, &error));
    cr_assert_eq(memcmp((const void *)in, (const void *)out, sizeof in), 0);
    OK(d->event_elapsed(d->self, begin, end, &ns));
    cr_assert(ns >= 0 && ns < 1e9, "%g", ns);
    OK(d->event_sync(d->self, end, &error));
    d->event_destroy(d->self, begin);
    d->event_destroy(d->self, end);
    d->queue_close(d->self, other);
}

Test(opencl, a_device_that_is_not_there)
{
    test_device *absent = test_device_open(OPENCL, "41", &error);
    cr_assert_not_null(absent, "%s", error.message);
    cr_assert_null(absent->domain);
    cr_assert(strstr(absent->plugin.unavailable[0], "number 41"));
    cr_assert_eq(test_device_close(absent), 0);
    cr_assert_null(test_device_open(OPENCL, "gpu", &error));
    cr_assert(strstr(error.message, "gpu"));
}
