/* Small help for makers of kernels: refusing a build, reading known integers, names of types. */
#include "cpu.h"

void cpu_unsupported_fill(cpu_build *build, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    gt_fail(build->err, GANTRY_UNSUPPORTED, GANTRY_STAGE_COMPILE, build->node->name,
            "%s (node '%s') has no CPU kernel here: %s", build->node->op, build->node->name, text);
}

bool cpu_read_ints(const cpu_tensor *tensor, int64_t *out_values, uint32_t capacity, uint32_t *out_count)
{
    *out_count = 0;
    bool wide = tensor->dtype == GANTRY_INT64;
    if (!tensor->present || (!wide && tensor->dtype != GANTRY_INT32))
        return false;
    if (tensor->count && !tensor->data)
        return false;
    *out_count = tensor->count > UINT32_MAX ? UINT32_MAX : (uint32_t)tensor->count;
    for (uint32_t k = 0; k < *out_count && k < capacity; k++)
        out_values[k] = wide ? ((const int64_t *)tensor->data)[k] : ((const int32_t *)tensor->data)[k];
    return true;
}

const char *cpu_dtype_name(gantry_dtype dtype)
{
    static const char *const names[GANTRY_DTYPE_COUNT] = {
        "undefined",      "float32",  "uint8",        "int8",           "uint16",
        "int16",          "int32",    "int64",        "string",         "bool",
        "float16",        "float64",  "uint32",       "uint64",         "complex64",
        "complex128",     "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2",
        "float8e5m2fnuz", "uint4",    "int4",         "float4e2m1",     "float8e8m0",
        "uint2",          "int2"};
    return (unsigned)dtype < GANTRY_DTYPE_COUNT ? names[dtype] : "unknown";
}
