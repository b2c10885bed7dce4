/* The stable texts of the public enums: versions, status, stages, refusals and element types. */
#include <gantry/gantry.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *gantry_version(void)
{
    return TEXT(GANTRY_VERSION_MAJOR) "." TEXT(GANTRY_VERSION_MINOR) "." TEXT(GANTRY_VERSION_PATCH);
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const status_texts[] = {
    [GANTRY_OK] = "ok",
    [GANTRY_INVALID_ARGUMENT] = "invalid argument",
    [GANTRY_MODEL_PARSE] = "model parse",
    [GANTRY_MODEL_GRAPH] = "model graph",
    [GANTRY_MODEL_TYPE] = "model type",
    [GANTRY_MODEL_SHAPE] = "model shape",
    [GANTRY_INPUT_SHAPE] = "input shape",
    [GANTRY_DATA] = "data",
    [GANTRY_UNSUPPORTED] = "unsupported",
    [GANTRY_PROVIDER] = "provider",
    [GANTRY_RESOURCE] = "resource",
    [GANTRY_CANCELLED] = "cancelled",
    [GANTRY_DEADLINE] = "deadline",
    [GANTRY_INTERNAL] = "internal",
};

static const char *const stage_texts[] = {
    [GANTRY_STAGE_NONE] = "none",       [GANTRY_STAGE_LOAD] = "load", [GANTRY_STAGE_PLACE] = "place",
    [GANTRY_STAGE_COMPILE] = "compile", [GANTRY_STAGE_RUN] = "run",   [GANTRY_STAGE_PLUGIN] = "plugin",
};

const char *gantry_status_text(gantry_status status)
{
    return (size_t)status < COUNT(status_texts) ? status_texts[status] : "unknown status";
}

const char *gantry_stage_text(gantry_stage stage)
{
    return (size_t)stage < COUNT(stage_texts) ? stage_texts[stage] : "unknown stage";
}

typedef struct refusal_text {
    const char *code, *meaning;
} refusal_text;

static const refusal_text refusal_texts[GANTRY_REFUSE_COUNT] = {
    [GANTRY_REFUSE_NONE] = {"none", "nothing was refused"},
#define GANTRY_REFUSAL(code, group, meaning) [GANTRY_REFUSE_##code] = {#code, meaning},
#include <gantry/refusals.def>
#undef GANTRY_REFUSAL
};

const char *gantry_refusal_text(gantry_refusal_code code)
{
    return (size_t)code < COUNT(refusal_texts) ? refusal_texts[code].code : "unknown refusal";
}

const char *gantry_refusal_meaning(gantry_refusal_code code)
{
    return (size_t)code < COUNT(refusal_texts) ? refusal_texts[code].meaning
                                               : "a code that this version does not know";
}

typedef struct dtype_text {
    const char *name;
    uint32_t bits;
} dtype_text;

static const dtype_text dtype_texts[GANTRY_DTYPE_COUNT] = {
    [GANTRY_UNDEFINED] = {"undefined", 0},
    [GANTRY_FLOAT32] = {"float32", 32},
    [GANTRY_UINT8] = {"uint8", 8},
    [GANTRY_INT8] = {"int8", 8},
    [GANTRY_UINT16] = {"uint16", 16},
    [GANTRY_INT16] = {"int16", 16},
    [GANTRY_INT32] = {"int32", 32},
    [GANTRY_INT64] = {"int64", 64},
    [GANTRY_STRING] = {"string", 0},
    [GANTRY_BOOL] = {"bool", 8},
    [GANTRY_FLOAT16] = {"float16", 16},
    [GANTRY_FLOAT64] = {"float64", 64},
    [GANTRY_UINT32] = {"uint32", 32},
    [GANTRY_UINT64] = {"uint64", 64},
    [GANTRY_COMPLEX64] = {"complex64", 64},
    [GANTRY_COMPLEX128] = {"complex128", 128},
    [GANTRY_BFLOAT16] = {"bfloat16", 16},
    [GANTRY_FLOAT8E4M3FN] = {"float8e4m3fn", 8},
    [GANTRY_FLOAT8E4M3FNUZ] = {"float8e4m3fnuz", 8},
    [GANTRY_FLOAT8E5M2] = {"float8e5m2", 8},
    [GANTRY_FLOAT8E5M2FNUZ] = {"float8e5m2fnuz", 8},
    [GANTRY_UINT4] = {"uint4", 4},
    [GANTRY_INT4] = {"int4", 4},
    [GANTRY_FLOAT4E2M1] = {"float4e2m1", 4},
    [GANTRY_FLOAT8E8M0] = {"float8e8m0", 8},
    [GANTRY_UINT2] = {"uint2", 2},
    [GANTRY_INT2] = {"int2", 2},
};

const char *gantry_dtype_text(gantry_dtype dtype)
{
    return (size_t)dtype < COUNT(dtype_texts) ? dtype_texts[dtype].name : "unknown type";
}

uint32_t gantry_dtype_bits(gantry_dtype dtype)
{
    return (size_t)dtype < COUNT(dtype_texts) ? dtype_texts[dtype].bits : 0;
}

size_t gantry_dtype_bytes(gantry_dtype dtype, uint64_t count)
{
    uint32_t bits = gantry_dtype_bits(dtype);
    if (bits >= 8)
        return count > SIZE_MAX / (bits / 8) ? SIZE_MAX : (size_t)count * (bits / 8);
    uint32_t per_byte = bits ? 8 / bits : 1;
    return bits ? (size_t)(count / per_byte) + (count % per_byte != 0) : 0;
}
