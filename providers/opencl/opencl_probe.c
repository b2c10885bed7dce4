/* How fast the device is: a few small launches and copies, measured when the plugin is opened. Where that
 * does not work, a guess from what the device says of itself. */
#include "opencl_ops.h"

#include <math.h>

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
    result = clSetKernelArg(kernel, 0, sizeof(cl_mem), &p->memory);
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

static cl_int copy(const probe *p, bool to_device, size_t bytes)
{
    cl_command_queue queue = p->device->own_queue;
    return to_device ? clEnqueueWriteBuffer(queue, p->memory, CL_TRUE, 0, bytes, p->host, 0, NULL, NULL)
                     : clEnqueueReadBuffer(queue, p->memory, CL_TRUE, 0, bytes, p->host, 0, NULL, NULL);
}

static double measure_copy(const probe *p, bool to_device, size_t bytes)
{
    const gantry_host *host = p->device->host;
    double best = NAN;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin = host->now_ns(host);
        if (copy(p, to_device, bytes) != CL_SUCCESS)
            return NAN;
        best = fmin(best, (double)(host->now_ns(host) - begin));
    }
    return best;
}

static bool measure_direction(const probe *p, bool to_device, double *out_ns, double *out_bytes_per_ns)
{
    double small = measure_copy(p, to_device, 64), large = measure_copy(p, to_device, COPY_BYTES);
    *out_ns = small;
    *out_bytes_per_ns = COPY_BYTES / fmax(large - small, large / 8);
    return small > 0 && large > 0;
}

static bool open_probe(probe *p)
{
    cl_int result;
    p->host = opencl_alloc(p->device, COPY_BYTES, 1);
    p->memory = clCreateBuffer(p->device->context, CL_MEM_READ_WRITE, 2 * STREAM_COUNT * sizeof(float), NULL,
                               &result);
    if (result != CL_SUCCESS)
        p->memory = NULL;
    return p->host && p->memory;
}

static void close_probe(probe *p)
{
    if (p->memory)
        clReleaseMemObject(p->memory);
    opencl_free(p->device, p->host);
}

static bool measure_copies(const probe *p, opencl_speed *out)
{
    return measure_direction(p, true, &out->to_device_ns, &out->to_device_bytes_per_ns) &&
           measure_direction(p, false, &out->to_host_ns, &out->to_host_bytes_per_ns);
}

bool opencl_copies_measure(opencl_device *device, opencl_speed *out_speed)
{
    probe p = {.device = device};
    bool measured = open_probe(&p) && measure_copies(&p, out_speed);
    close_probe(&p);
    return measured;
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
                                   .to_device_ns = 10e3,
                                   .to_host_ns = 10e3,
                                   .to_device_bytes_per_ns = 4,
                                   .to_host_bytes_per_ns = 4,
                                   .source = 'e'};
}

/* A launch is timed with its wait; memory and arithmetic without. */
static void measure_speed(const probe *p)
{
    opencl_device *device = p->device;
    size_t items = 4096u * device->unit_count < STREAM_COUNT ? 4096u * device->unit_count : STREAM_COUNT;
    double nothing = measure_kernel(p, "nothing", 1), stream = measure_kernel(p, "stream", STREAM_COUNT);
    double multiply = measure_kernel(p, "multiply", items);
    opencl_speed speed = {.launch_ns = nothing, .source = 'm'};
    speed.bytes_per_ns = 8.0 * STREAM_COUNT / fmax(stream - nothing, stream / 8);
    speed.flops_per_ns = 8.0 * FMA_STEPS * (double)items / fmax(multiply - nothing, multiply / 8);
    if (nothing > 0 && stream > 0 && multiply > 0 && measure_copies(p, &speed))
        device->speed = speed;
}

void opencl_speed_probe(opencl_device *device)
{
    opencl_build_counts counts = {0};
    probe p = {.device = device};
    guess_speed(device);
    if (open_probe(&p) && opencl_variant_get(device, source, false, &counts, &p.program, NULL) == GANTRY_OK)
        measure_speed(&p);
    close_probe(&p);
}
