/* Source texts built for the device: found among those built before, in the host's cache as binaries, or
 * built now. */
#include "opencl_ops.h"

#include <inttypes.h>

#define FULL_PROFILE_MAX (64u << 20)

const char opencl_prelude[] = "#pragma OPENCL FP_CONTRACT OFF\n"
                              "#ifdef cl_khr_fp16\n"
                              "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n"
                              "#endif\n"
                              "#ifdef cl_khr_fp64\n"
                              "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
                              "#endif\n"
                              "#define FAIL(index, extent) { if (atomic_cmpxchg(errors, 0, site) == 0) { \\\n"
                              "    errors[1] = (int)(index); errors[2] = (int)((long)(index) >> 32); \\\n"
                              "    errors[3] = (int)(extent); } }\n";

/* ---- the host's cache ------------------------------------------------------------------------ */

static uint64_t hash_text(const char *text, uint64_t seed)
{
    uint64_t hash = seed ^ 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return hash ^ hash >> 29;
}

static void cache_key(const opencl_device *device, const char *source, const char *build_options,
                      char *out_key, size_t capacity)
{
    snprintf(out_key, capacity, "%s|%s|%s|%s|%zu|%016" PRIx64 "%016" PRIx64, device->platform,
             device->device_name, device->driver, build_options, strlen(source), hash_text(source, 0),
             hash_text(source, 0x9e3779b97f4a7c15u));
}

/* NULL when there is none, or the driver no longer takes it. */
static cl_program load_binary(const opencl_device *device, const char *build_options, const char *key)
{
    const gantry_host *host = device->host;
    void *data = NULL;
    size_t bytes = 0;
    cl_int result, loaded = CL_INVALID_BINARY;
    if (!GANTRY_HAS(gantry_host, host, cache_get) ||
        host->cache_get(host, key, &data, &bytes, NULL) != GANTRY_OK)
        return NULL;
    const unsigned char *binary = data;
    cl_program program =
        clCreateProgramWithBinary(device->context, 1, &device->id, &bytes, &binary, &loaded, &result);
    host->free(host, data);
    if (result == CL_SUCCESS && loaded == CL_SUCCESS &&
        clBuildProgram(program, 1, &device->id, build_options, NULL, NULL) == CL_SUCCESS)
        return program;
    if (result == CL_SUCCESS && program)
        clReleaseProgram(program);
    return NULL;
}

/* Under lock. A host without a cache folder takes binaries and drops them, and some drivers compile a program
 * a second time to give one. */
static bool host_keeps(opencl_device *device)
{
    static const char key[] = "whether anything is kept";
    const gantry_host *host = device->host;
    void *data = NULL;
    size_t bytes = 0;
    if (device->keeps >= 0 || !GANTRY_HAS(gantry_host, host, cache_put) ||
        !GANTRY_HAS(gantry_host, host, cache_get))
        return device->keeps > 0;
    device->keeps = 0;
    if (host->cache_get(host, key, &data, &bytes, NULL) != GANTRY_OK) {
        host->cache_put(host, key, key, sizeof key);
        if (host->cache_get(host, key, &data, &bytes, NULL) != GANTRY_OK)
            return false;
    }
    host->free(host, data);
    device->keeps = 1;
    return true;
}

static void keep_binary(opencl_device *device, const char *key, cl_program program)
{
    const gantry_host *host = device->host;
    size_t bytes = 0;
    if (!host_keeps(device) ||
        clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) != CL_SUCCESS ||
        bytes == 0 || bytes > FULL_PROFILE_MAX)
        return;
    unsigned char *binary = opencl_alloc(device, bytes, 1);
    if (binary && clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
        host->cache_put(host, key, binary, bytes);
    opencl_free(device, binary);
}

/* ---- building -------------------------------------------------------------------------------- */

static gantry_status report_failure(const opencl_device *device, cl_program program, cl_int result,
                                    gantry_error *err)
{
    char log[1024] = "";
    char *whole = NULL;
    size_t bytes = 0;
    clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
    whole = opencl_alloc(device, bytes + 1, 1);
    if (whole &&
        clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, bytes, whole, NULL) == CL_SUCCESS) {
        whole[bytes] = 0;
        snprintf(log, sizeof log, "%s", whole);
    }
    opencl_free(device, whole);
    return opencl_fail(err, GANTRY_PROVIDER, GANTRY_STAGE_COMPILE, "clBuildProgram: OpenCL error %d: %s",
                       result, log);
}

static gantry_status build_source(const opencl_device *device, const char *source, const char *build_options,
                                  cl_program *out_program, gantry_error *err)
{
    cl_int result;
    *out_program = NULL;
    cl_program program = clCreateProgramWithSource(device->context, 1, &source, NULL, &result);
    if (result != CL_SUCCESS)
        return opencl_check(result, "clCreateProgramWithSource", err);
    result = clBuildProgram(program, 1, &device->id, build_options, NULL, NULL);
    if (result != CL_SUCCESS) {
        gantry_status status = report_failure(device, program, result, err);
        clReleaseProgram(program);
        return status;
    }
    *out_program = program;
    return GANTRY_OK;
}

/* Under lock. Takes the program over. */
static gantry_status keep_variant(opencl_device *device, const char *source, const char *build_options,
                                  cl_program program, gantry_error *err)
{
    opencl_variant *variant = opencl_alloc(device, 1, sizeof *variant);
    char *copy = opencl_alloc(device, strlen(source) + 1, 1);
    if (!variant || !copy) {
        opencl_free(device, variant);
        opencl_free(device, copy);
        clReleaseProgram(program);
        return opencl_out_of_memory(err);
    }
    memcpy(copy, source, strlen(source) + 1);
    *variant = (opencl_variant){copy, build_options, program, device->variants};
    device->variants = variant;
    return GANTRY_OK;
}

/* Under lock. */
static gantry_status make_program(opencl_device *device, const char *source, const char *build_options,
                                  opencl_build_counts *inout_counts, cl_program *out_program,
                                  gantry_error *err)
{
    char key[640];
    uint64_t begin = device->host->now_ns(device->host);
    cache_key(device, source, build_options, key, sizeof key);
    *out_program = load_binary(device, build_options, key);
    if (*out_program) {
        inout_counts->cached++;
        inout_counts->cache_ns += device->host->now_ns(device->host) - begin;
        return GANTRY_OK;
    }
    gantry_status status = build_source(device, source, build_options, out_program, err);
    if (status != GANTRY_OK)
        return status;
    keep_binary(device, key, *out_program);
    inout_counts->built++;
    inout_counts->build_ns += device->host->now_ns(device->host) - begin;
    return GANTRY_OK;
}

gantry_status opencl_variant_get(opencl_device *device, const char *source, bool fast,
                                 opencl_build_counts *inout_counts, cl_program *out_program,
                                 gantry_error *err)
{
    const char *build_options = fast ? device->fast_build_options : device->build_options;
    gantry_status status = GANTRY_OK;
    pthread_mutex_lock(&device->lock);
    opencl_variant *variant = device->variants;
    while (variant && (variant->build_options != build_options || strcmp(variant->source, source) != 0))
        variant = variant->next;
    if (variant) {
        *out_program = variant->program;
    } else {
        status = make_program(device, source, build_options, inout_counts, out_program, err);
        if (status == GANTRY_OK)
            status = keep_variant(device, source, build_options, *out_program, err);
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

void opencl_variants_free(opencl_device *device)
{
    while (device->variants) {
        opencl_variant *variant = device->variants;
        device->variants = variant->next;
        clReleaseProgram(variant->program);
        opencl_free(device, variant->source);
        opencl_free(device, variant);
    }
}

/* ---- for the report -------------------------------------------------------------------------- */

static void record_phase(const opencl_device *device, gantry_recorder *recorder, const char *name,
                         uint32_t count, uint64_t duration_ns, uint64_t end_ns)
{
    char detail[64];
    snprintf(detail, sizeof detail, "%u kernel program%s", count, count == 1 ? "" : "s");
    gantry_phase_record record = {sizeof record, name, detail, end_ns - duration_ns, duration_ns};
    device->host->record_phase(recorder, &record);
}

void opencl_record_builds(const opencl_device *device, gantry_recorder *recorder,
                          const opencl_build_counts *counts)
{
    if (!GANTRY_HAS(gantry_host, device->host, record_phase))
        return;
    uint64_t now = device->host->now_ns(device->host);
    if (counts->cached)
        record_phase(device, recorder, "cache", counts->cached, counts->cache_ns, now - counts->build_ns);
    if (counts->built)
        record_phase(device, recorder, "build", counts->built, counts->build_ns, now);
}
