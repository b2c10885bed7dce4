/* Rows of tests: an operator with its operands and attributes as text, run on the OpenCL provider, where all
 * of it has to run, and on the CPU, whose results it has to give. For one test program: functions are static.
 */
#ifndef GT_TESTS_OPENCL_ROWS_H
#define GT_TESTS_OPENCL_ROWS_H

#include "small_models.h"
#include "test_host.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>

#define OPENCL GANTRY_BUILD_FOLDER "/libgantry_opencl.so"
#define MAX_INPUTS 8
#define MAX_BYTES 65536

/* The driver keeps what it allocated until the process ends. LeakSanitizer asks for this by name. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libpocl\nleak:libLLVM\nleak:libOpenCL\n";
}

/* inputs: "f32[2,3]" random; "f32[2]+" above 0; "i64[4]%3" below 3; "i64{1,2}" a constant; "_" left out.
 * attributes: "axis=1 alpha=.5 mode=edge axes=1,2 perm=0,": a comma makes a list, a point a float. */
typedef struct row {
    const char *op, *inputs, *attributes, *output;
    int opset; /* 0: 21 */
    double tolerance;
    const char *domain;
    int outputs;
} row;

typedef struct operand {
    char name[8];
    gantry_dtype dtype;
    int64_t dims[8];
    uint32_t rank;
    int64_t count;
    size_t bytes;
    bool is_constant, is_absent;
    _Alignas(8) uint8_t data[MAX_BYTES];
} operand;

static gantry_runtime *runtime;

/* ---- reading a row --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    gantry_dtype dtype;
} types[] = {{"f32", GANTRY_FLOAT32}, {"f16", GANTRY_FLOAT16}, {"f64", GANTRY_FLOAT64}, {"i64", GANTRY_INT64},
             {"i32", GANTRY_INT32},   {"i16", GANTRY_INT16},   {"i8", GANTRY_INT8},     {"u8", GANTRY_UINT8},
             {"u32", GANTRY_UINT32},  {"u64", GANTRY_UINT64},  {"b", GANTRY_BOOL}};

static gantry_dtype read_type(const char **text)
{
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (strncmp(*text, types[k].name, strlen(types[k].name)) == 0) {
            *text += strlen(types[k].name);
            return types[k].dtype;
        }
    cr_assert_fail("no type in %s", *text);
    return GANTRY_UNDEFINED;
}

static uint16_t half_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) < 0x38800000)
        return (uint16_t)(bits >> 16 & 0x8000);
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 13 & 0x3ffff) - (112u << 10)));
}

static float float_of(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double value = exponent == 0    ? ldexp(mantissa, -24)
                   : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                    : ldexp(1024 + mantissa, exponent - 25);
    return (float)(half & 0x8000 ? -value : value);
}

static void put(operand *o, int64_t k, double value)
{
    float single = (float)value;
    uint16_t half = half_of(single);
    int64_t whole = (int64_t)value;
    size_t bytes = gantry_dtype_bytes(o->dtype, 1);
    const void *from = o->dtype == GANTRY_FLOAT32   ? (const void *)&single
                       : o->dtype == GANTRY_FLOAT64 ? (const void *)&value
                       : o->dtype == GANTRY_FLOAT16 ? (const void *)&half
                                                    : (const void *)&whole;
    memcpy(o->data + (size_t)k * bytes, from, bytes);
}

/* modulus 0: none. Integers without one are small and of both signs. */
static void fill(operand *o, uint32_t seed, bool positive, int64_t modulus)
{
    static float random[MAX_BYTES];
    bool is_signed = o->dtype != GANTRY_BOOL && o->dtype != GANTRY_UINT8 && o->dtype != GANTRY_UINT32 &&
                     o->dtype != GANTRY_UINT64;
    bool is_real = o->dtype == GANTRY_FLOAT32 || o->dtype == GANTRY_FLOAT16 || o->dtype == GANTRY_FLOAT64;
    test_fill(random, o->count, seed);
    for (int64_t k = 0; k < o->count; k++) {
        double value = positive || !is_signed ? fabs((double)random[k]) + 0.01 : (double)random[k];
        if (modulus)
            value = floor(fabs((double)random[k]) * (double)modulus * 0.999);
        else if (!is_real)
            value = floor(value * (o->dtype == GANTRY_BOOL ? 1.99 : 20));
        else
            value *= 3;
        put(o, k, value);
    }
}

static void read_operand(const char *text, uint32_t index, operand *o)
{
    memset(o, 0, offsetof(operand, data));
    snprintf(o->name, sizeof o->name, "x%u", index);
    if (*text == '_') {
        o->is_absent = true;
        return;
    }
    o->dtype = read_type(&text);
    o->is_constant = *text == '{';
    o->count = 1;
    while (*text == '[' || *text == '{' || *text == ',') {
        char *end;
        double value = strtod(text + 1, &end);
        if (end == text + 1) { /* "[]" or "{}" */
            text++;
            break;
        }
        if (o->is_constant) {
            put(o, o->dims[0]++, value);
        } else {
            o->dims[o->rank++] = (int64_t)value;
            o->count *= (int64_t)value;
        }
        text = end;
    }
    if (o->is_constant) {
        o->rank = 1;
        o->count = o->dims[0];
    } else {
        text += *text == ']';
        fill(o, index * 7 + 3, *text == '+', *text == '%' ? strtoll(text + 1, NULL, 10) : 0);
    }
    o->bytes = gantry_dtype_bytes(o->dtype, (uint64_t)o->count);
}

static uint32_t read_operands(const char *inputs, operand *out)
{
    char text[256], *rest = NULL;
    uint32_t count = 0;
    snprintf(text, sizeof text, "%s", inputs);
    for (char *item = strtok_r(text, " ", &rest); item; item = strtok_r(NULL, " ", &rest), count++)
        read_operand(item, count, &out[count]);
    return count;
}

/* ---- the model ------------------------------------------------------------------------------- */

static void set_list(wire *node, const char *name, const char *text)
{
    bool real = strchr(text, '.') != NULL;
    wire a = onnx_attribute(name, real ? 6 : 7);
    while (*text) {
        char *end;
        double value = strtod(text, &end);
        if (real)
            wire_float(&a, 7, (float)value);
        else
            wire_int(&a, 8, (int64_t)value);
        text = end + (*end == ',');
    }
    wire_message(node, 5, a);
}

static void set_attribute(wire *node, const char *name, const char *text)
{
    if (strchr(text, ','))
        set_list(node, name, text);
    else if (strchr("+-.0123456789", *text) && strchr(text, '.'))
        onnx_set_float(node, name, strtof(text, NULL));
    else if (strchr("+-0123456789", *text))
        onnx_set_int(node, name, strtoll(text, NULL, 10));
    else {
        wire a = onnx_attribute(name, 3);
        wire_text(&a, 4, text);
        wire_message(node, 5, a);
    }
}

static wire make_model(const row *r, const operand *operands, uint32_t count)
{
    wire g = small_graph("one"), model = {0};
    char inputs[8 * MAX_INPUTS + MAX_INPUTS + 8] = "", outputs[64] = "", text[256], *rest = NULL;
    size_t used = 0;
    const char *output = r->output;
    gantry_dtype dtype = read_type(&output);
    for (uint32_t k = 0; k < count; k++)
        used += (size_t)snprintf(inputs + used, sizeof inputs - used, "%s%.7s", k ? "," : "",
                                 operands[k].is_absent ? "" : operands[k].name);
    used = 0;
    for (int k = 0; k < (r->outputs ? r->outputs : 1); k++)
        used += (size_t)snprintf(outputs + used, sizeof outputs - used, "%sy%d", k ? "," : "", k);
    wire node = onnx_node(r->op, "node", inputs, outputs);
    if (r->domain)
        wire_text(&node, 7, r->domain);
    snprintf(text, sizeof text, "%s", r->attributes);
    for (char *item = strtok_r(text, " ", &rest); item; item = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(item, '=');
        *equals = 0;
        set_attribute(&node, item, equals + 1);
    }
    wire_message(&g, GRAPH_NODE, node);
    for (uint32_t k = 0; k < count; k++) {
        const operand *o = &operands[k];
        if (o->is_constant)
            wire_message(&g, GRAPH_INITIALIZER,
                         onnx_raw_tensor(o->name, (int)o->dtype, (int)o->rank, o->dims, o->data, o->bytes));
        else if (!o->is_absent)
            wire_message(&g, GRAPH_INPUT, onnx_value(o->name, (int)o->dtype, (int)o->rank, o->dims));
    }
    for (int k = 0; k < (r->outputs ? r->outputs : 1); k++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", k);
        gantry_dtype own = k && strcmp(r->op, "TopK") == 0 ? GANTRY_INT64 : dtype;
        wire_message(&g, GRAPH_OUTPUT, onnx_value(name, (int)own, -1, NULL));
    }
    wire_int(&model, 1, 10);
    onnx_import(&model, 8, "", r->opset ? r->opset : 21);
    wire_message(&model, 7, g);
    return model;
}

/* ---- running and comparing ------------------------------------------------------------------- */

static int64_t nodes_on(small_session *s, const char *provider)
{
    gantry_report *report = NULL;
    const char *text;
    size_t length;
    int64_t nodes = -1;
    cr_assert_eq(gantry_session_report(s->session, s->run, &report, &s->err), GANTRY_OK, "%s",
                 s->err.message);
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_JSON, &text, &length, &s->err), GANTRY_OK);
    json_t *document = json_loadb(text, length, 0, NULL), *p;
    size_t k;
    json_array_foreach(json_object_get(document, "providers"), k,
                       p) if (strcmp(json_string_value(json_object_get(p, "name")), provider) == 0) nodes =
        json_integer_value(json_object_get(p, "nodes_executed"));
    json_decref(document);
    gantry_report_destroy(&report);
    return nodes;
}

static void run_row(const row *r, const operand *operands, uint32_t count, const char *options,
                    small_session *out)
{
    uint32_t index = 0;
    *out = (small_session){.err = GANTRY_ERROR_INIT, .runtime = runtime};
    small_create(out, make_model(r, operands, count), options);
    cr_assert_eq(out->status, GANTRY_OK, "%s(%s): %s", r->op, r->inputs, out->err.message);
    for (uint32_t k = 0; k < count; k++) {
        const operand *o = &operands[k];
        if (o->is_constant || o->is_absent)
            continue;
        gantry_tensor t = small_tensor(o->dtype, o->rank, o->dims, (void *)o->data, o->bytes);
        cr_assert_eq(gantry_run_bind_input(out->run, index++, &t, &out->err), GANTRY_OK, "%s",
                     out->err.message);
    }
    cr_assert_eq(gantry_run_execute(out->run, &out->err), GANTRY_OK, "%s(%s): %s", r->op, r->inputs,
                 out->err.message);
}

static double read_number(const gantry_tensor *t, int64_t k)
{
    const char *data = (const char *)t->buffer.handle + t->buffer.offset_bytes;
    float single;
    double wide;
    uint16_t half;
    int64_t whole = 0;
    switch (t->dtype) {
    case GANTRY_FLOAT32:
        memcpy(&single, data + 4 * k, 4);
        return (double)single;
    case GANTRY_FLOAT64:
        memcpy(&wide, data + 8 * k, 8);
        return wide;
    case GANTRY_FLOAT16:
        memcpy(&half, data + 2 * k, 2);
        return (double)float_of(half);
    default:
        memcpy(&whole, data + (size_t)k * gantry_dtype_bytes(t->dtype, 1), gantry_dtype_bytes(t->dtype, 1));
        return (double)whole;
    }
}

static void compare(const row *r, const gantry_tensor *got, const gantry_tensor *want)
{
    bool real =
        want->dtype == GANTRY_FLOAT32 || want->dtype == GANTRY_FLOAT16 || want->dtype == GANTRY_FLOAT64;
    double tolerance = !real                           ? 0
                       : r->tolerance > 0              ? r->tolerance
                       : want->dtype == GANTRY_FLOAT16 ? 2e-3
                                                       : 2e-6;
    int64_t count = 1;
    cr_assert_eq(got->dtype, want->dtype, "%s(%s)", r->op, r->inputs);
    cr_assert_eq(got->rank, want->rank, "%s(%s)", r->op, r->inputs);
    for (uint32_t k = 0; k < want->rank; k++) {
        cr_assert_eq(got->dims[k], want->dims[k], "%s(%s): axis %u", r->op, r->inputs, k);
        count *= want->dims[k];
    }
    for (int64_t k = 0; k < count; k++) {
        double a = read_number(got, k), b = read_number(want, k);
        cr_assert(a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(b)),
                  "%s(%s) {%s}: element %ld is %.9g, on the CPU %.9g", r->op, r->inputs, r->attributes,
                  (long)k, a, b);
    }
}

static void check_row(const row *r)
{
    static operand operands[MAX_INPUTS];
    uint32_t count = read_operands(r->inputs, operands);
    small_session device, host;
    run_row(r, operands, count, "providers=opencl,cpu;plan=priority;threads=1;fold=off;rewrites=off",
            &device);
    run_row(r, operands, count, "providers=cpu;threads=1;fold=off", &host);
    cr_assert_gt(nodes_on(&device, "opencl"), 0, "%s(%s) {%s} does not run on opencl", r->op, r->inputs,
                 r->attributes);
    cr_assert_eq(nodes_on(&device, "cpu"), 0, "%s(%s) {%s} runs on the CPU too", r->op, r->inputs,
                 r->attributes);
    for (int k = 0; k < (r->outputs ? r->outputs : 1); k++) {
        gantry_tensor got = small_result(&device, (uint32_t)k), want = small_result(&host, (uint32_t)k);
        cr_assert_eq(device.status, GANTRY_OK, "%s", device.err.message);
        cr_assert_eq(host.status, GANTRY_OK, "%s", host.err.message);
        compare(r, &got, &want);
    }
    device.runtime = host.runtime = NULL;
    small_close(&device);
    small_close(&host);
}

__attribute__((unused)) static void check_rows(const row *rows, size_t count)
{
    for (size_t k = 0; k < count; k++)
        check_row(&rows[k]);
}

#define CHECK(rows) check_rows(rows, sizeof(rows) / sizeof *(rows))

/* Skips where the plugin was not built or no OpenCL driver is installed. */
static void rows_setup_with(const char *config)
{
    gantry_error err = GANTRY_ERROR_INIT;
    setenv("POCL_CACHE_DIR", GANTRY_BUILD_FOLDER "/pocl-cache", 0);
    cr_assert_eq(gantry_runtime_create(NULL, &runtime, &err), GANTRY_OK);
    if (gantry_runtime_load_provider(runtime, OPENCL, config, &err) != GANTRY_OK)
        cr_skip_test("%s", err.message);
    small_session s = {.err = GANTRY_ERROR_INIT, .runtime = runtime};
    small_create(&s, small_add(2), "providers=opencl;plan=priority");
    bool works = s.status == GANTRY_OK;
    s.runtime = NULL;
    small_close(&s);
    if (!works)
        cr_skip_test("%s", s.err.message);
}

static void rows_setup(void)
{
    rows_setup_with("");
}

static void rows_teardown(void)
{
    gantry_runtime_destroy(&runtime, NULL);
}

#endif
