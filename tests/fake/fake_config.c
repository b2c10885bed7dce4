/* What the JSON text given with the plugin asks for. Unknown keys are refused: a misspelt one would test
 * nothing. */
#include "fake.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>

gantry_status fake_fail(gantry_error *err, gantry_status code, gantry_stage stage, const char *format, ...)
{
    if (!err || err->struct_bytes < sizeof *err)
        return code;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    err->code = code;
    err->stage = stage;
    return code;
}

static gantry_status bad(gantry_error *err, const char *key, const char *wanted)
{
    return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN, "fake device: \"%s\" must be %s", key,
                     wanted);
}

static const struct {
    const char *name;
    uint32_t bits;
} dtypes[GANTRY_DTYPE_COUNT] = {
    {"undefined", 0},    {"float32", 32},  {"uint8", 8},   {"int8", 8},    {"uint16", 16},
    {"int16", 16},       {"int32", 32},    {"int64", 64},  {"string", 0},  {"bool", 8},
    {"float16", 16},     {"float64", 64},  {"uint32", 32}, {"uint64", 64}, {"complex64", 64},
    {"complex128", 128}, {"bfloat16", 16},
};

uint32_t fake_dtype_bits(gantry_dtype dtype)
{
    return (size_t)dtype < GANTRY_DTYPE_COUNT ? dtypes[dtype].bits : 0;
}

const char *fake_dtype_text(gantry_dtype dtype)
{
    return (size_t)dtype < GANTRY_DTYPE_COUNT && dtypes[dtype].name ? dtypes[dtype].name : "another type";
}

static bool parse_dtype(const char *text, gantry_dtype *out_dtype)
{
    for (int k = 0; text && k < GANTRY_DTYPE_COUNT; k++)
        if (dtypes[k].name && strcmp(dtypes[k].name, text) == 0) {
            *out_dtype = (gantry_dtype)k;
            return true;
        }
    return false;
}

/* ---- values ---------------------------------------------------------------------------------- */

typedef gantry_status (*parse_fn)(fake_config *config, const char *key, const json_t *value, size_t field,
                                  gantry_error *err);

static gantry_status parse_text(fake_config *config, const char *key, const json_t *value, size_t field,
                                gantry_error *err)
{
    if (!json_is_string(value))
        return bad(err, key, "a text");
    snprintf((char *)config + field, 32, "%s", json_string_value(value));
    return GANTRY_OK;
}

static gantry_status parse_name(fake_config *config, const char *key, const json_t *value, size_t field,
                                gantry_error *err)
{
    if (!json_is_string(value) || !*json_string_value(value) || json_string_length(value) > 63)
        return bad(err, key, "a name of at most 63 bytes");
    snprintf(config->name, sizeof config->name, "%s", json_string_value(value));
    return GANTRY_OK;
}

static gantry_status parse_unavailable(fake_config *config, const char *key, const json_t *value,
                                       size_t field, gantry_error *err)
{
    if (!json_is_string(value))
        return bad(err, key, "a text");
    snprintf(config->unavailable, sizeof config->unavailable, "%s", json_string_value(value));
    return GANTRY_OK;
}

static gantry_status parse_exclude(fake_config *config, const char *key, const json_t *value, size_t field,
                                   gantry_error *err)
{
    if (!json_is_string(value) || json_string_length(value) >= sizeof config->exclude)
        return bad(err, key, "a text of at most 127 bytes");
    snprintf(config->exclude, sizeof config->exclude, "%s", json_string_value(value));
    return GANTRY_OK;
}

static gantry_status parse_device_id(fake_config *config, const char *key, const json_t *value, size_t field,
                                     gantry_error *err)
{
    if (!json_is_integer(value))
        return bad(err, key, "a whole number");
    snprintf(config->domain, sizeof config->domain, "fake:%lld", (long long)json_integer_value(value));
    return GANTRY_OK;
}

static gantry_status parse_number(fake_config *config, const char *key, const json_t *value, size_t field,
                                  gantry_error *err)
{
    if (!json_is_number(value) || json_number_value(value) < 0)
        return bad(err, key, "a number that is not negative");
    *(double *)((char *)config + field) = json_number_value(value);
    return GANTRY_OK;
}

static gantry_status parse_switch(fake_config *config, const char *key, const json_t *value, size_t field,
                                  gantry_error *err)
{
    if (!json_is_boolean(value))
        return bad(err, key, "true or false");
    *(bool *)((char *)config + field) = json_is_true(value);
    return GANTRY_OK;
}

static gantry_status parse_memory(fake_config *config, const char *key, const json_t *value, size_t field,
                                  gantry_error *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > 1 << 20)
        return bad(err, key, "a whole number of MiB, 1 or more");
    config->memory_bytes = (uint64_t)json_integer_value(value) << 20;
    return GANTRY_OK;
}

static gantry_status parse_queues(fake_config *config, const char *key, const json_t *value, size_t field,
                                  gantry_error *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > 8)
        return bad(err, key, "a whole number from 1 to 8");
    config->queues = (uint32_t)json_integer_value(value);
    return GANTRY_OK;
}

static gantry_status parse_compute(fake_config *config, const char *key, const json_t *value, size_t field,
                                   gantry_error *err)
{
    gantry_dtype dtype = GANTRY_UNDEFINED;
    parse_dtype(json_string_value(value), &dtype);
    if (dtype != GANTRY_FLOAT32 && dtype != GANTRY_FLOAT16 && dtype != GANTRY_INT8)
        return bad(err, key, "\"float32\", \"float16\" or \"int8\"");
    config->compute = dtype == GANTRY_FLOAT32 ? GANTRY_UNDEFINED : dtype;
    return GANTRY_OK;
}

static gantry_status parse_concurrency(fake_config *config, const char *key, const json_t *value,
                                       size_t field, gantry_error *err)
{
    static const char *const words[] = {"free", "per_context", "serial"};
    for (int k = 0; k < 3; k++)
        if (json_is_string(value) && strcmp(json_string_value(value), words[k]) == 0) {
            config->concurrency = (gantry_concurrency)k;
            return GANTRY_OK;
        }
    return bad(err, key, "\"free\", \"per_context\" or \"serial\"");
}

/* ---- tables ---------------------------------------------------------------------------------- */

static gantry_status parse_rules(const json_t *value, const char *key, fake_rule *rules, uint32_t *out_count,
                                 gantry_error *err)
{
    const char *name;
    json_t *types, *type;
    size_t k;
    if (!json_is_object(value) || json_object_size(value) > FAKE_MAX_RULES)
        return bad(err, key, "an object of at most 64 entries");
    json_object_foreach((json_t *)value, name, types)
    {
        fake_rule *rule = &rules[(*out_count)++];
        snprintf(rule->name, sizeof rule->name, "%s", name);
        if (!json_is_array(types) || json_array_size(types) > FAKE_MAX_TYPES)
            return bad(err, name, "a list of element types");
        json_array_foreach(types, k, type)
        {
            if (!parse_dtype(json_string_value(type), &rule->types[rule->type_count++]))
                return bad(err, name, "a list of element types");
        }
    }
    return GANTRY_OK;
}

static gantry_status parse_ops(fake_config *config, const char *key, const json_t *value, size_t field,
                               gantry_error *err)
{
    return parse_rules(value, key, config->ops, &config->op_count, err);
}

static gantry_status parse_fused(fake_config *config, const char *key, const json_t *value, size_t field,
                                 gantry_error *err)
{
    return parse_rules(value, key, config->fused, &config->fused_count, err);
}

/* {"op": "TopK", "what": "input0.dim[-1]", "max": 1024} */
static gantry_status parse_limits(fake_config *config, const char *key, const json_t *value, size_t field,
                                  gantry_error *err)
{
    json_t *entry;
    size_t k;
    if (!json_is_array(value) || json_array_size(value) > FAKE_MAX_RULES)
        return bad(err, key, "a list of at most 64 entries");
    json_array_foreach((json_t *)value, k, entry)
    {
        fake_limit *limit = &config->limits[config->limit_count++];
        const char *op = json_string_value(json_object_get(entry, "op"));
        const char *what = json_string_value(json_object_get(entry, "what"));
        json_t *max = json_object_get(entry, "max");
        if (!op || !what || !json_is_integer(max) ||
            sscanf(what, "input%u.dim[%d]", &limit->input, &limit->axis) != 2)
            return bad(err, key, "a list of {op, what: \"inputN.dim[K]\", max}");
        snprintf(limit->op, sizeof limit->op, "%s", op);
        limit->max = json_integer_value(max);
    }
    return GANTRY_OK;
}

static gantry_status parse_host_inputs(fake_config *config, const char *key, const json_t *value,
                                       size_t field, gantry_error *err)
{
    const char *op;
    json_t *list, *input;
    size_t k;
    if (!json_is_object(value))
        return bad(err, key, "an object");
    json_object_foreach((json_t *)value, op, list)
    {
        json_array_foreach(list, k, input)
        {
            if (config->host_input_count == FAKE_MAX_RULES || !json_is_integer(input))
                return bad(err, key, "an object of lists of input numbers");
            fake_host_input *entry = &config->host_inputs[config->host_input_count++];
            snprintf(entry->op, sizeof entry->op, "%s", op);
            entry->input = (uint32_t)json_integer_value(input);
        }
    }
    return GANTRY_OK;
}

static gantry_status parse_work(fake_config *config, const char *key, const json_t *value, size_t field,
                                gantry_error *err)
{
    const char *op;
    json_t *us;
    if (!json_is_object(value) || json_object_size(value) > FAKE_MAX_RULES)
        return bad(err, key, "an object of at most 64 entries");
    json_object_foreach((json_t *)value, op, us)
    {
        if (!json_is_number(us))
            return bad(err, key, "an object of numbers");
        fake_work *work = &config->work[config->work_count++];
        snprintf(work->op, sizeof work->op, "%s", op);
        work->us = json_number_value(us);
    }
    return GANTRY_OK;
}

static gantry_status parse_faults(fake_config *config, const char *key, const json_t *value, size_t field,
                                  gantry_error *err)
{
    static const char *const kinds[] = {"none", "accumulate_float16", "zero", "nan", "offset"};
    json_t *entry;
    size_t k;
    if (!json_is_array(value) || json_array_size(value) > FAKE_MAX_RULES)
        return bad(err, key, "a list of at most 64 entries");
    json_array_foreach((json_t *)value, k, entry)
    {
        fake_fault *fault = &config->faults[config->fault_count++];
        const char *op = json_string_value(json_object_get(entry, "op"));
        const char *kind = json_string_value(json_object_get(entry, "kind"));
        for (int j = 1; kind && j < 5; j++)
            if (strcmp(kinds[j], kind) == 0)
                fault->kind = (fake_fault_kind)j;
        bool odd = fault->kind == FAKE_FAULT_ACCUMULATE_FLOAT16 && op && strcmp(op, "RMSNormalization") != 0;
        if (!op || fault->kind == FAKE_FAULT_NONE || odd)
            return bad(err, key, "a list of {op, kind}; accumulate_float16 is known for RMSNormalization");
        snprintf(fault->op, sizeof fault->op, "%s", op);
    }
    return GANTRY_OK;
}

static gantry_status parse_fail(fake_config *config, const char *key, const json_t *value, size_t field,
                                gantry_error *err)
{
    static const char *const calls[FAKE_CALL_COUNT] = {
        "compile", "reshape", "context", "run",   "run_late", "alloc",    "copy", "sync", "lost", "queue",
        "event",   "record",  "wait",    "await", "judge",    "describe", "save", "load", "stale"};
    const char *call;
    json_t *number;
    if (!json_is_object(value))
        return bad(err, key, "an object");
    json_object_foreach((json_t *)value, call, number)
    {
        int found = -1;
        for (int k = 0; k < FAKE_CALL_COUNT; k++)
            if (strcmp(calls[k], call) == 0)
                found = k;
        if (found < 0 || !json_is_integer(number) || json_integer_value(number) < 1)
            return bad(err, call, "a call that can fail, with the number of the one that does, from 1");
        config->fail[found] = (uint64_t)json_integer_value(number);
    }
    return GANTRY_OK;
}

static gantry_status parse_nothing(fake_config *config, const char *key, const json_t *value, size_t field,
                                   gantry_error *err)
{
    return GANTRY_OK;
}

/* ---- devices --------------------------------------------------------------------------------- */

#define FIELD(name) offsetof(fake_config, name)

static const struct {
    const char *key;
    parse_fn parse;
    size_t field;
} keys[] = {
    {"name", parse_name, 0},
    {"note", parse_nothing, 0},
    {"device_id", parse_device_id, 0},
    {"unavailable", parse_unavailable, 0},
    {"quirk", parse_text, FIELD(quirk)},
    {"ops", parse_ops, 0},
    {"fused", parse_fused, 0},
    {"limits", parse_limits, 0},
    {"host_inputs", parse_host_inputs, 0},
    {"work_us", parse_work, 0},
    {"faults", parse_faults, 0},
    {"fail", parse_fail, 0},
    {"compute", parse_compute, 0},
    {"concurrency", parse_concurrency, 0},
    {"memory_mib", parse_memory, 0},
    {"transfer_gbps", parse_number, FIELD(transfer_gbps)},
    {"pageable_gbps", parse_number, FIELD(pageable_gbps)},
    {"assumed_gbps", parse_number, FIELD(assumed_gbps)},
    {"assumed_latency_us", parse_number, FIELD(assumed_latency_us)},
    {"queues", parse_queues, 0},
    {"peers", parse_switch, FIELD(peers)},
    {"pinned", parse_switch, FIELD(pinned)},
    {"latency_us", parse_number, FIELD(latency_us)},
    {"copy_us", parse_number, FIELD(copy_us)},
    {"enqueue_us", parse_number, FIELD(enqueue_us)},
    {"reshape_us", parse_number, FIELD(reshape_us)},
    {"timing", parse_switch, FIELD(timing)},
    {"late", parse_switch, FIELD(late)},
    {"views", parse_switch, FIELD(views)},
    {"blobs", parse_switch, FIELD(blobs)},
    {"fuse", parse_switch, FIELD(fuse)},
    {"share", parse_switch, FIELD(share)},
    {"cache", parse_switch, FIELD(cache)},
    {"exclude", parse_exclude, 0},
};

static gantry_status parse_device(const json_t *device, fake_config *config, gantry_error *err)
{
    const char *key;
    json_t *value;
    *config = (fake_config){.name = "fake",
                            .copy_us = -1,
                            .queues = 1,
                            .assumed_gbps = -1,
                            .assumed_latency_us = -1,
                            .pinned = true,
                            .timing = true,
                            .late = true,
                            .fuse = true,
                            .memory_bytes = 1ull << 32};
    if (!json_is_object(device))
        return bad(err, "devices", "a list of objects");
    json_object_foreach((json_t *)device, key, value)
    {
        size_t k = 0;
        while (k < sizeof keys / sizeof *keys && strcmp(keys[k].key, key) != 0)
            k++;
        if (k == sizeof keys / sizeof *keys)
            return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN,
                             "fake device: there is no key \"%s\"", key);
        gantry_status status = keys[k].parse(config, key, value, keys[k].field, err);
        if (status != GANTRY_OK)
            return status;
    }
    if (!*config->domain)
        memcpy(config->domain, config->name, sizeof config->domain);
    return GANTRY_OK;
}

static const char default_config[] =
    "{\"devices\": [{\"name\": \"fake\", \"ops\": {\"Add\": [\"float32\"],"
    " \"Mul\": [\"float32\"], \"Neg\": [\"float32\"], \"Relu\": [\"float32\"],"
    " \"MatMul\": [\"float32\"]}}]}";

static gantry_status parse_root(const json_t *root, fake_configs *out, gantry_error *err)
{
    const json_t *devices = json_object_get(root, "devices");
    const char *file = json_string_value(json_object_get(root, "counters_file"));
    if (!json_is_array(devices) || json_array_size(devices) < 1 ||
        json_array_size(devices) > FAKE_MAX_DEVICES)
        return bad(err, "devices", "a list of 1 to 8 devices");
    if (file && strlen(file) >= sizeof out->counters_file)
        return bad(err, "counters_file", "a path of at most 1023 bytes");
    snprintf(out->counters_file, sizeof out->counters_file, "%s", file ? file : "");
    const char *log = json_string_value(json_object_get(root, "log_file"));
    if (log && strlen(log) >= sizeof out->log_file)
        return bad(err, "log_file", "a path of at most 1023 bytes");
    snprintf(out->log_file, sizeof out->log_file, "%s", log ? log : "");
    out->fail_open = json_is_true(json_object_get(root, "fail_open"));
    for (out->count = 0; out->count < json_array_size(devices); out->count++) {
        gantry_status status =
            parse_device(json_array_get(devices, out->count), &out->devices[out->count], err);
        if (status != GANTRY_OK)
            return status;
    }
    return GANTRY_OK;
}

gantry_status fake_configs_parse(const char *text, fake_configs *out_configs, gantry_error *err)
{
    json_error_t where;
    memset(out_configs, 0, sizeof *out_configs);
    json_t *root = json_loads(text && *text ? text : default_config, 0, &where);
    if (!root)
        return fake_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_PLUGIN,
                         "fake device: line %d of the config: %s", where.line, where.text);
    gantry_status status = parse_root(root, out_configs, err);
    json_decref(root);
    return status;
}

/* ---- looking up ------------------------------------------------------------------------------ */

const fake_rule *fake_find_rule(const fake_rule *rules, uint32_t count, const char *name)
{
    for (uint32_t k = 0; k < count; k++)
        if (strcmp(rules[k].name, name) == 0)
            return &rules[k];
    return NULL;
}

bool fake_rule_takes(const fake_rule *rule, gantry_dtype dtype)
{
    for (uint32_t k = 0; k < rule->type_count; k++)
        if (rule->types[k] == dtype)
            return true;
    return false;
}

double fake_work_us(const fake_config *config, const char *op)
{
    for (uint32_t k = 0; k < config->work_count; k++)
        if (strcmp(config->work[k].op, op) == 0)
            return config->work[k].us;
    return -1;
}
