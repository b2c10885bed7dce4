/* Finds the OpenCL device, fills the tables, and says why when there is none. The config text is the number
 * of the device, counted over all platforms ("": 0). */
#include "opencl.h"

#include <stdarg.h>
#include <stdlib.h>

GANTRY_MANIFEST("opencl", "0.1.0", "", "an OpenCL ICD loader (libOpenCL.so.1) and a driver");

#define MAX_DEVICES 64

void opencl_fail_fill(gantry_error *err, gantry_status status, gantry_stage stage, const char *format, ...)
{
    if (!err || err->struct_bytes < sizeof *err)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    err->code = status;
    err->stage = stage;
}

gantry_status opencl_check(cl_int result, const char *call, gantry_error *err)
{
    if (result == CL_SUCCESS)
        return GANTRY_OK;
    bool memory = result == CL_MEM_OBJECT_ALLOCATION_FAILURE || result == CL_OUT_OF_RESOURCES ||
                  result == CL_OUT_OF_HOST_MEMORY;
    return opencl_fail(err, memory ? GANTRY_RESOURCE : GANTRY_PROVIDER, GANTRY_STAGE_RUN,
                       "%s: OpenCL error %d%s", call, result, memory ? " (out of memory or resources)" : "");
}

/* ---- the device ------------------------------------------------------------------------------ */

static uint32_t list_devices(cl_device_id *out_ids, uint32_t capacity)
{
    cl_platform_id platforms[16];
    cl_uint platform_count = 0;
    uint32_t count = 0;
    if (clGetPlatformIDs(16, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (cl_uint p = 0; p < platform_count && p < 16; p++) {
        cl_uint found = 0;
        if (count < capacity && clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, capacity - count,
                                               out_ids + count, &found) == CL_SUCCESS)
            count += found < capacity - count ? found : capacity - count;
    }
    return count;
}

static gantry_status open_device(opencl_device *device, gantry_error *err)
{
    cl_device_id ids[MAX_DEVICES];
    uint32_t count = list_devices(ids, MAX_DEVICES);
    char *end;
    unsigned long index = strtoul(device->host->config, &end, 10);
    if (*end)
        return opencl_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN,
                           "opencl: the config \"%s\" is not the number of a device", device->host->config);
    snprintf(device->domain_name, sizeof device->domain_name, "opencl:%lu", index);
    if (index >= count) {
        snprintf(device->unavailable, sizeof device->unavailable,
                 "OpenCL lists %u devices; number %lu was asked for", count, index);
        return GANTRY_OK;
    }
    cl_int result;
    device->id = ids[index];
    clGetDeviceInfo(device->id, CL_DEVICE_NAME, sizeof device->device_name - 1, device->device_name, NULL);
    clGetDeviceInfo(device->id, CL_DRIVER_VERSION, sizeof device->driver - 1, device->driver, NULL);
    device->context = clCreateContext(NULL, 1, &device->id, NULL, NULL, &result);
    if (result != CL_SUCCESS)
        snprintf(device->unavailable, sizeof device->unavailable, "clCreateContext: OpenCL error %d", result);
    return GANTRY_OK;
}

static gantry_status describe(void *self, gantry_provider_info *out_info)
{
    const opencl_device *device = self;
    snprintf(out_info->name, sizeof out_info->name, "opencl");
    snprintf(out_info->version, sizeof out_info->version, "0.1.0");
    snprintf(out_info->domain, sizeof out_info->domain, "%s", device->domain_name);
    snprintf(out_info->fingerprint, sizeof out_info->fingerprint, "%.60s %.60s", device->device_name,
             device->driver);
    snprintf(out_info->libraries, sizeof out_info->libraries, "OpenCL driver %.100s", device->driver);
    out_info->precision = GANTRY_UNDEFINED;
    out_info->concurrency = GANTRY_CONCURRENCY_FREE;
    return GANTRY_OK;
}

/* ---- the plugin ------------------------------------------------------------------------------ */

static void close_plugin(void *self)
{
    opencl_device *device = self;
    if (device->program)
        clReleaseProgram(device->program);
    if (device->context)
        clReleaseContext(device->context);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static void fill_plugin(opencl_device *device, gantry_plugin *out_plugin)
{
    device->provider = (gantry_provider){
        .struct_bytes = sizeof device->provider, .self = device, .describe = describe, .judge = opencl_judge};
    opencl_program_table(device);
    opencl_domain_table(device);
    bool available = !*device->unavailable;
    device->domain_list[0] = &device->domain;
    device->provider_list[0] = &device->provider;
    device->unavailable_list[0] = available ? NULL : device->unavailable;
    *out_plugin = (gantry_plugin){.struct_bytes = sizeof *out_plugin,
                                  .abi = 1,
                                  .self = device,
                                  .name = "opencl",
                                  .version = "0.1.0",
                                  .domain_count = available ? 1 : 0,
                                  .domains = device->domain_list,
                                  .provider_count = 1,
                                  .providers = device->provider_list,
                                  .unavailable = device->unavailable_list,
                                  .close = close_plugin};
}

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err);

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err)
{
    if (abi < 1 || host->struct_bytes < sizeof *host || out_plugin->struct_bytes < sizeof *out_plugin)
        return opencl_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN,
                           "opencl: needs ABI level 1; the host offers %u", abi);
    opencl_device *device = calloc(1, sizeof *device);
    if (!device)
        return opencl_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_PLUGIN, "opencl: out of memory");
    device->host = host;
    pthread_mutex_init(&device->lock, NULL);
    gantry_status status = open_device(device, err);
    if (status != GANTRY_OK) {
        close_plugin(device);
        return status;
    }
    fill_plugin(device, out_plugin);
    return GANTRY_OK;
}
