/* How fast the device is: a few small launches and copies, measured when the plugin is opened. Where that
 * does not work, a guess from what the device says of itself. */
#include "opencl_ops.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDS 4
#define STREAM_COUNT (1 << 19)
#define FMA_STEPS 64
#define COPY_BYTES (1 << 20)

static const char source[] = "__kernel void nothing(__global float *x)\n"
                             "{\n"
                             "    if (get_global_id(0) > 100)\n"
                             "        x[0] = 0.0f;\n"
                             "}\n"
                             "__kernel void stream(__global float *x)\n"
                             "{\n"
                             "    size_t k = get_global_id(0);\n"
                             "    x[k + get_global_size(0)] = x[k] + 1.0f;\n"
                             "}\n"
                             "__kernel void multiply(__global float *x)\n"
                             "{\n"
                             "    size_t k = get_global_id(0);\n"
                             "    float a = (float)k, b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;\n"
                             "    for (int step = 0; step < 64; step++) {\n"
                             "        a = fma(a, 0.5f, 1.0f);\n"
                             "        b = fma(b, 0.5f, 1.0f);\n"
                             "        c = fma(c, 0.5f, 1.0f);\n"
                             "        d = fma(d, 0.5f, 1.0f);\n"
                             "    }\n"
                             "    x[k] = a + b + c + d;\n"
                             "}\n";

typedef struct probe {
    opencl_device *device;
    cl_program program;
    cl_mem memory;
    char *host;
} probe;

/* The best of a few rounds; NAN when a call fails. */
static double measure_kernel(const probe *p, const char *name, size_t count)
{
    cl_int result;
    const gantry_host *host = p->device->host;
    double best = NAN;
    cl_kernel kernel = clCreateKernel(p->program, name, &result);
    if (result != CL_SUCCESS)
        return NAN;
    result = clSetKernelArg(kernel, 0, sizeof p->memory, &p->memory);
    for (int round = 0; result == CL_SUCCESS && round < ROUNDS; round++) {
        uint64_t begin = host->now_ns(host);
        result = clEnqueueNDRangeKernel(p->device->own_queue, kernel, 1, NULL, &count, NULL, 0, NULL, NULL);
        if (result == CL_SUCCESS)
            result = clFinish(p->device->own_queue);
        best = fmin(best, (double)(host->now_ns(host) - begin));
    }
    clReleaseKernel(kernel);
    return result == CL_SUCCESS ? best : NAN;
}

static double measure_copy(const probe *p, size_t bytes)
{
    const gantry_host *host = p->device->host;
    double best = NAN;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin = host->now_ns(host);
        if (clEnqueueWriteBuffer(p->device->own_queue, p->memory, CL_TRUE, 0, bytes, p->host, 0, NULL,
                                 NULL) != CL_SUCCESS)
            return NAN;
        best = fmin(best, (double)(host->now_ns(host) - begin));
    }
    return best;
}

/* Orders of magnitude: a few operations a clock in each unit, memory that feeds one of four of them. */
static void guess_speed(opencl_device *device)
{
    cl_uint mhz = 0;
    clGetDeviceInfo(device->id, CL_DEVICE_MAX_CLOCK_FREQUENCY, sizeof mhz, &mhz, NULL);
    double clocks_per_ns = (mhz ? mhz : 1000) / 1e3 * device->unit_count;
    device->speed = (opencl_speed){.launch_ns = 20e3,
                                   .bytes_per_ns = 2 * clocks_per_ns,
                                   .flops_per_ns = 4 * clocks_per_ns,
                                   .copy_ns = 10e3,
                                   .copy_bytes_per_ns = 4,
                                   .source = 'e'};
}

static void measure_speed(const probe *p)
{
    opencl_device *device = p->device;
    double nothing = measure_kernel(p, "nothing", 1), stream = measure_kernel(p, "stream", STREAM_COUNT);
    size_t items = 4096u * device->unit_count < STREAM_COUNT ? 4096u * device->unit_count : STREAM_COUNT;
    double multiply = measure_kernel(p, "multiply", items);
    double small = measure_copy(p, 64), large = measure_copy(p, COPY_BYTES);
    /* Launches are in one queue: only the first waits for its whole latency. */
    if (!(nothing > 0 && stream > 0 && multiply > 0 && small > 0 && large > 0))
        return;
    device->speed = (opencl_speed){.launch_ns = nothing,
                                   .bytes_per_ns = 8.0 * STREAM_COUNT / fmax(stream - nothing, stream / 8),
                                   .flops_per_ns = 8.0 * FMA_STEPS * (double)items /
                                                   fmax(multiply - nothing, multiply / 8),
                                   .copy_ns = small,
                                   .copy_bytes_per_ns = COPY_BYTES / fmax(large - small, large / 8),
                                   .source = 'm'};
}

void opencl_speed_probe(opencl_device *device)
{
    opencl_build_counts counts = {0};
    cl_int result;
    probe p = {.device = device};
    guess_speed(device);
    p.host = opencl_zeroed(COPY_BYTES, 1);
    p.memory =
        clCreateBuffer(device->context, CL_MEM_READ_WRITE, 2 * STREAM_COUNT * sizeof(float), NULL, &result);
    if (p.host && result == CL_SUCCESS &&
        opencl_variant_get(device, source, &counts, &p.program, NULL) == GANTRY_OK)
        measure_speed(&p);
    if (result == CL_SUCCESS)
        clReleaseMemObject(p.memory);
    free(p.host);
}
