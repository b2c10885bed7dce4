/* What reports say of providers: their options with origins, bytes by class, shared constants, and what
 * compiling spent its time on. */
#include "../support/report_reader.h"
#include "../support/test_folder.h"
#include "core/session.h"

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define DEVICE(more)                                                                                         \
    "{\"devices\": [{\"name\": \"dev\", \"ops\": {\"MatMul\": [\"float32\"], \"Add\": [\"float32\"], "       \
    "\"Relu\": [\"float32\"]}" more "}]}"
#define ON_DEVICE "providers=dev,cpu;plan=priority"
#define WEIGHT_BYTES (64.0 * 64 * 4)

/* y = x W + b, W of 16 KiB. */
static wire weighty(void)
{
    static float w[64 * 64], b[64];
    const int64_t dims[2] = {64, 64};
    for (int k = 0; k < 64 * 64; k++)
        w[k] = (float)(k % 7);
    wire g = small_graph("weighty");
    wire_message(&g, GRAPH_INITIALIZER, onnx_raw_tensor("w", SMALL_F32, 2, dims, w, sizeof w));
    small_floats(&g, "b", 64, b);
    wire_message(&g, GRAPH_NODE, onnx_node("MatMul", "product", "x,w", "p"));
    wire_message(&g, GRAPH_NODE, onnx_node("Add", "bias", "p,b", "y"));
    small_input(&g, "x", SMALL_F32, 2, 2, 64);
    small_output(&g, "y", SMALL_F32, 2, 2, 64);
    return small_model(g);
}

static small_session open_on_device(const char *config, const char *options)
{
    small_session s = small_open_with(weighty(), FAKE, config, options);
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    return s;
}

static void run_once(small_session *s)
{
    static float x[128];
    cr_assert_eq(small_bind(s, 0, GANTRY_FLOAT32, 2, 2, 64, x), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK, "%s", s->err.message);
}

/* ---- options --------------------------------------------------------------------------------- */

static void expect_option(json_t *document, const char *provider, const char *key, const char *value,
                          const char *origin)
{
    size_t k;
    json_t *row;
    json_array_foreach(at(row_of(document, "providers", "name", provider), "options"), k, row)
    {
        if (strcmp(string(row, "key"), key) != 0)
            continue;
        cr_assert_str_eq(string(row, "value"), value, "%s.%s", provider, key);
        cr_assert_str_eq(string(row, "origin"), origin, "%s.%s", provider, key);
        cr_assert_gt(strlen(string(row, "description")), 0);
        return;
    }
    cr_assert_fail("provider %s has no option %s", provider, key);
}

Test(held, options_have_a_value_and_an_origin)
{
    small_session s = open_on_device(DEVICE(", \"exclude\": \"Relu\""),
                                     ON_DEVICE ";dev.fuse=off;cpu.disable_types=float64");
    json_t *document = report_of(&s);
    expect_option(document, "dev", "fuse", "off", "session");
    expect_option(document, "dev", "exclude", "Relu", "config");
    expect_option(document, "dev", "share", "off", "default");
    expect_option(document, "cpu", "disable_types", "float64", "session");
    gantry_report *report = NULL;
    cr_assert_eq(gantry_session_report(s.session, NULL, &report, &s.err), GANTRY_OK);
    cr_assert(
        strstr(text_of(report), "options: fuse=off (session), share=off, cache=off, exclude=Relu (config)"),
        "%s", text_of(report));
    gantry_report_destroy(&report);
    json_decref(document);
    small_close(&s);
}

Test(held, an_option_changes_what_its_provider_does)
{
    small_session s = open_on_device(DEVICE(""), ON_DEVICE ";dev.exclude=Relu,Add");
    run_once(&s);
    json_t *document = report_of(&s);
    cr_assert_str_eq(string(row_of(document, "nodes", "name", "bias"), "provider"), "cpu");
    cr_assert_str_eq(string(row_of(document, "nodes", "name", "product"), "provider"), "dev");
    json_decref(document);
    small_close(&s);
}

Test(held, unknown_options_are_refused_with_those_there_are)
{
    small_session s = small_open_with(weighty(), FAKE, DEVICE(""), ON_DEVICE ";dev.fusee=off");
    cr_assert_eq(s.status, GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(s.err.message, "provider dev has no option \"fusee\"; it has"), "%s", s.err.message);
    cr_assert(strstr(s.err.message, "dev.fuse=on  chains of nodes"), "%s", s.err.message);
    cr_assert(strstr(s.err.message, "dev.exclude="), "%s", s.err.message);
    cr_assert_null(s.session);
    small_close(&s);
    s = small_open(weighty(), "cpu.speed=high");
    cr_assert_eq(s.status, GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(s.err.message, "cpu.disable_types="), "%s", s.err.message);
    small_close(&s);
    s = small_open_with(weighty(), FAKE, DEVICE(""), "providers=cpu;dev.fusee=off");
    cr_assert_eq(s.status, GANTRY_OK, "a provider that takes no part is not asked: %s", s.err.message);
    small_close(&s);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static double class_bytes(json_t *document, const char *provider, const char *name)
{
    size_t k;
    json_t *row;
    json_array_foreach(at(document, "memory.classes"), k,
                       row) if (strcmp(string(row, "provider"), provider) == 0 &&
                                strcmp(string(row, "class"), name) == 0) return number(row, "bytes");
    cr_assert_fail("%s tells of no class %s", provider, name);
    return 0;
}

Test(held, memory_adds_up_and_is_told_by_class)
{
    small_session s = open_on_device(DEVICE(""), ON_DEVICE ";dev.exclude=Add");
    run_once(&s);
    json_t *document = report_of(&s);
    cr_assert_eq(number(document, "memory.held_bytes"), number(document, "memory.constant_bytes") +
                                                            number(document, "memory.provider_bytes") +
                                                            number(document, "memory.run_bytes"));
    cr_assert_gt(number(document, "memory.run_bytes"), 0);
    cr_assert_eq(class_bytes(document, "dev", "weights"), WEIGHT_BYTES);
    cr_assert_gt(class_bytes(document, "cpu", "weights"), 0);
    cr_assert_gt(class_bytes(document, "cpu", "kernels"), 0);
    json_t *domain = row_of(document, "domains", "name", "dev");
    cr_assert_leq(number(domain, "memory_free_bytes"), number(domain, "memory_total_bytes") - WEIGHT_BYTES);
    json_decref(document);

    gantry_memory_class classes[4] = {{.struct_bytes = sizeof *classes}};
    const gantry_provider *cpu = s.session->providers[1].entry->table;
    const gantry_provider *dev = s.session->providers[0].entry->table;
    gantry_run_destroy(&s.run);
    cr_assert_eq(gantry_session_destroy(&s.session, NULL), GANTRY_OK);
    cr_assert_eq(cpu->memory_classes(cpu->self, classes, 4), 3);
    for (int k = 0; k < 3; k++)
        cr_assert_eq(classes[k].bytes, 0, "%s keeps %llu", classes[k].name,
                     (unsigned long long)classes[k].bytes);
    cr_assert_eq(dev->memory_classes(dev->self, classes, 1), 1);
    cr_assert_eq(classes[0].bytes, 0);
    small_close(&s);
}

Test(held, sessions_share_constants_and_the_report_counts_them_once)
{
    small_session s = open_on_device(DEVICE(", \"share\": true"), ON_DEVICE ";cpu.disable_types=float64");
    gantry_options *options = NULL;
    gantry_session *second = NULL;
    cr_assert_eq(gantry_options_create(&options, &s.err), GANTRY_OK);
    cr_assert_eq(gantry_options_set(options, "providers", "dev,cpu", &s.err), GANTRY_OK);
    cr_assert_eq(gantry_options_set(options, "plan", "priority", &s.err), GANTRY_OK);
    wire model = weighty();
    cr_assert_eq(
        gantry_session_create_from_memory(s.runtime, model.data, model.size, options, &second, NULL, &s.err),
        GANTRY_OK, "%s", s.err.message);
    wire_free(&model);
    gantry_options_destroy(&options);
    run_once(&s);
    json_t *document = report_of(&s), *row = at(document, "memory.packed.0");
    cr_assert_str_eq(string(row, "plugin"), "fake");
    cr_assert_eq(number(row, "forms"), 2, "w and b");
    cr_assert_eq(number(row, "users"), 4);
    cr_assert_eq(number(row, "bytes"), WEIGHT_BYTES + 256);
    cr_assert_eq(class_bytes(document, "dev", "weights"), 0, "they are not counted twice");
    json_decref(document);
    cr_assert_eq(gantry_session_destroy(&second, NULL), GANTRY_OK);
    document = report_of(&s);
    cr_assert_eq(number(document, "memory.packed.0.users"), 2);
    run_once(&s);
    json_decref(document);
    small_close(&s);
}

/* ---- phases ---------------------------------------------------------------------------------- */

static json_t *phase_of(json_t *document, const char *name)
{
    size_t k;
    json_t *row;
    json_array_foreach(at(document, "partitions.0.phases"), k,
                       row) if (strcmp(string(row, "name"), name) == 0)
    {
        cr_assert_str_eq(string(row, "during"), "compile");
        cr_assert_geq(number(row, "ms"), 0);
        return row;
    }
    cr_assert_fail("no phase %s", name);
    return NULL;
}

Test(held, phases_say_what_compiling_did, .init = test_folder_open, .fini = test_folder_close)
{
    unsetenv("GANTRY_CACHE");
    small_session s = open_on_device(DEVICE(", \"cache\": true"), ON_DEVICE);
    json_t *document = report_of(&s);
    cr_assert_str_eq(string(phase_of(document, "upload"), "detail"), "2 constants");
    cr_assert_str_eq(string(phase_of(document, "build"), "detail"), "2 kernels");
    cr_assert_str_eq(string(phase_of(document, "cache"), "detail"), "no cache folder is set");
    json_decref(document);
    small_close(&s);

    setenv("GANTRY_CACHE", folder, 1);
    for (int turn = 0; turn < 2; turn++) {
        s = open_on_device(DEVICE(", \"cache\": true"), ON_DEVICE);
        document = report_of(&s);
        const char *detail = string(phase_of(document, "cache"), "detail");
        cr_assert(strstr(detail, turn ? "bytes of kernels" : "there is no cache file"), "%s", detail);
        json_decref(document);
        small_close(&s);
    }
    unsetenv("GANTRY_CACHE");
}
