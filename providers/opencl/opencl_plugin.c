/* Finds the OpenCL device, fills the tables, and says why when there is none. The config text names the
 * device by its number over all platforms: "1", "device=1" or {"device": 1}; "" is device 0. kernels=groups
 * or kernels=items asks for the kernels of that kind whatever the device is. */
#include "opencl.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>

#define VERSION "0.2.0"

GANTRY_MANIFEST("opencl", VERSION, "", "an OpenCL ICD loader (libOpenCL.so.1) and a driver");

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

/* What the config text says. */
typedef struct opencl_config {
    unsigned long index;
    bool groups, items; /* which kinds of kernels are asked for; none: those that fit the device */
} opencl_config;

static bool read_entry(const char *entry, opencl_config *inout_config)
{
    const char *number = strncmp(entry, "device=", 7) == 0 ? entry + 7 : entry;
    char *end;
    if (strcmp(entry, "kernels=groups") == 0)
        return inout_config->groups = true;
    if (strcmp(entry, "kernels=items") == 0)
        return inout_config->items = true;
    inout_config->index = strtoul(number, &end, 10);
    return !*end && isdigit((unsigned char)*number);
}

/* False when it says what nobody knows. Quotes, braces and blanks are passed over. */
static bool read_config(const char *text, opencl_config *out_config)
{
    char plain[96];
    size_t used = 0;
    *out_config = (opencl_config){.index = 0};
    for (; *text && used + 1 < sizeof plain; text++)
        if (!isspace((unsigned char)*text) && !strchr("{}\"", *text))
            plain[used++] = *text == ':' ? '=' : *text;
    plain[used] = 0;
    for (char *entry = plain, *comma; *entry; entry = comma + 1) {
        comma = entry + strcspn(entry, ",");
        bool last = !*comma;
        *comma = 0;
        if (!read_entry(entry, out_config))
            return false;
        if (last)
            break;
    }
    return !*text;
}

static bool has_extension(cl_device_id id, const char *name)
{
    char text[8192] = "";
    clGetDeviceInfo(id, CL_DEVICE_EXTENSIONS, sizeof text - 1, text, NULL);
    return strstr(text, name) != NULL;
}

/* Kernels of groups need local memory and items that work at the same time. */
static bool runs_items_in_turn(const opencl_device *device, const opencl_config *wanted)
{
    cl_device_type type = 0;
    clGetDeviceInfo(device->id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    if (wanted->groups || wanted->items)
        return wanted->items;
    return type & CL_DEVICE_TYPE_CPU || device->group_size_max < 256 || device->local_bytes < 16384;
}

static void read_facts(opencl_device *device, const opencl_config *wanted)
{
    cl_platform_id platform;
    cl_device_fp_config single = 0;
    cl_device_id id = device->id;
    clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof device->device_name - 1, device->device_name, NULL);
    clGetDeviceInfo(id, CL_DRIVER_VERSION, sizeof device->driver - 1, device->driver, NULL);
    clGetDeviceInfo(id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof device->unit_count, &device->unit_count, NULL);
    clGetDeviceInfo(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof device->group_size_max, &device->group_size_max,
                    NULL);
    clGetDeviceInfo(id, CL_DEVICE_LOCAL_MEM_SIZE, sizeof device->local_bytes, &device->local_bytes, NULL);
    clGetDeviceInfo(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof device->memory_bytes, &device->memory_bytes, NULL);
    clGetDeviceInfo(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof device->allocation_bytes_max,
                    &device->allocation_bytes_max, NULL);
    if (clGetDeviceInfo(id, CL_DEVICE_PLATFORM, sizeof(cl_platform_id), &platform, NULL) == CL_SUCCESS)
        clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof device->platform - 1, device->platform, NULL);
    clGetDeviceInfo(id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof single, &single, NULL);
    device->has_float64 = has_extension(id, "cl_khr_fp64");
    device->runs_items_in_turn = runs_items_in_turn(device, wanted);
    snprintf(device->build_options, sizeof device->build_options, "-cl-std=CL1.2 -w%s",
             single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT ? " -cl-fp32-correctly-rounded-divide-sqrt" : "");
    snprintf(device->fast_build_options, sizeof device->fast_build_options, "%s -cl-fast-relaxed-math",
             device->build_options);
}

static void open_context(opencl_device *device)
{
    cl_int result;
    device->context = clCreateContext(NULL, 1, &device->id, NULL, NULL, &result);
    if (result == CL_SUCCESS)
        device->own_queue = clCreateCommandQueue(device->context, device->id, 0, &result);
    if (result == CL_SUCCESS)
        opencl_speed_probe(device);
    else
        snprintf(device->unavailable, sizeof device->unavailable, "clCreateContext: OpenCL error %d", result);
}

static gantry_status open_device(opencl_device *device, gantry_error *err)
{
    cl_device_id ids[MAX_DEVICES];
    uint32_t count = list_devices(ids, MAX_DEVICES);
    opencl_config wanted;
    if (!read_config(device->host->config, &wanted))
        return opencl_fail(
            err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN,
            "opencl: the config \"%s\" is not the number of a device; write device=N, and after "
            "a comma kernels=groups or kernels=items",
            device->host->config);
    unsigned long index = wanted.index;
    snprintf(device->domain_name, sizeof device->domain_name, "opencl:%lu", index);
    if (index >= count) {
        snprintf(device->unavailable, sizeof device->unavailable,
                 "OpenCL lists %u devices; number %lu was asked for", count, index);
        return GANTRY_OK;
    }
    device->index = (uint32_t)index;
    device->id = ids[index];
    read_facts(device, &wanted);
    open_context(device);
    return GANTRY_OK;
}

static gantry_status describe(void *self, gantry_provider_info *out_info)
{
    const opencl_device *device = self;
    snprintf(out_info->name, sizeof out_info->name, "opencl");
    snprintf(out_info->version, sizeof out_info->version, VERSION);
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
    opencl_variants_free(device);
    if (device->own_queue)
        clReleaseCommandQueue(device->own_queue);
    if (device->context)
        clReleaseContext(device->context);
    pthread_mutex_destroy(&device->memory_lock);
    pthread_mutex_destroy(&device->lock);
    device->host->free(device->host, device);
}

static void fill_plugin(opencl_device *device, gantry_plugin *out_plugin)
{
    device->provider = (gantry_provider){
        .struct_bytes = sizeof device->provider, .self = device, .describe = describe, .judge = opencl_judge};
    opencl_program_table(device);
    opencl_shape_table(device);
    opencl_run_table(device);
    opencl_options_table(device);
    opencl_domain_table(device);
    bool available = !*device->unavailable;
    device->domain_list[0] = &device->domain;
    device->provider_list[0] = &device->provider;
    device->unavailable_list[0] = available ? NULL : device->unavailable;
    gantry_plugin filled = {.struct_bytes = out_plugin->struct_bytes,
                            .abi = 1,
                            .self = device,
                            .name = "opencl",
                            .version = VERSION,
                            .domain_count = available ? 1 : 0,
                            .domains = device->domain_list,
                            .provider_count = 1,
                            .providers = device->provider_list,
                            .unavailable = device->unavailable_list,
                            .close = close_plugin};
    size_t bytes = sizeof filled < out_plugin->struct_bytes ? sizeof filled : out_plugin->struct_bytes;
    memcpy(out_plugin, &filled, bytes);
}

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err);

GANTRY_PLUGIN_EXPORT gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi,
                                                      gantry_plugin *out_plugin, gantry_error *err)
{
    if (abi < 1 || host->struct_bytes < offsetof(gantry_host, constant_read) ||
        out_plugin->struct_bytes < offsetof(gantry_plugin, operator_count))
        return opencl_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_PLUGIN,
                           "opencl: needs ABI level 1; the host offers %u", abi);
    opencl_device *device = host->alloc(host, sizeof *device, 64);
    if (!device)
        return opencl_fail(err, GANTRY_RESOURCE, GANTRY_STAGE_PLUGIN, "opencl: out of memory");
    memset(device, 0, sizeof *device);
    device->host = host;
    device->keeps = -1;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_init(&device->memory_lock, NULL);
    gantry_status status = open_device(device, err);
    if (status != GANTRY_OK) {
        close_plugin(device);
        return status;
    }
    fill_plugin(device, out_plugin);
    return GANTRY_OK;
}
