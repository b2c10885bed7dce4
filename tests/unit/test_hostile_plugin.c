/* A provider that lies (tests/plugins/hostile.c): whatever it answers, there is a status and words that name
 * it and the entry, or the right result; never a crash, a hang, or a wrong number. */
#include "../support/report_reader.h"
#include "../support/test_folder.h"
#include "core/runtime.h"

#define PLUGIN GANTRY_BUILD_FOLDER "/tests/refused/libgantry_hostile.so"

/* What a lie leads to. */
typedef enum outcome {
    NOT_LOADED,
    NOT_CREATED,
    RUN_FAILS,
    WORKS,  /* on the provider */
    ON_HOST /* the right result, computed by the CPU; the words stand in the report */
} outcome;

typedef struct lie {
    const char *config;
    outcome outcome;
    gantry_status status;
    const char *words;
    const char *options;
} lie;

/* y = -x, x of shape [n, 4]. */
static wire negation(void)
{
    wire g = small_graph("neg");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    return small_model(g);
}

/* The report in both forms; the words stand in it. */
static void check_report(small_session *s, const lie *l)
{
    gantry_report *report = NULL;
    const char *text = NULL;
    size_t bytes = 0;
    cr_assert_eq(gantry_session_report(s->session, s->run, &report, &s->err), GANTRY_OK, "%s: %s", l->config,
                 s->err.message);
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_TEXT, &text, &bytes, NULL), GANTRY_OK);
    cr_assert_eq(gantry_report_render(report, GANTRY_REPORT_JSON, &text, &bytes, NULL), GANTRY_OK);
    json_t *document = json_loadb(text, bytes, 0, NULL);
    cr_assert_not_null(document, "%s: the report is no JSON", l->config);
    cr_assert(!l->words || strstr(text, l->words), "%s: \"%s\" is not in the report", l->config, l->words);
    cr_assert_str_eq(string(document, "status.code"), "ok", "%s: %s", l->config,
                     string(document, "status.message"));
    json_t *node = json_array_get(json_object_get(document, "nodes"), 0);
    cr_assert_str_eq(json_string_value(json_object_get(node, "provider")),
                     l->outcome == ON_HOST
                         ? "cpu"
                         : json_string_value(json_object_get(
                               json_array_get(json_object_get(document, "providers"), 0), "name")),
                     "%s", l->config);
    json_decref(document);
    gantry_report_destroy(&report);
}

static void expect_error(const lie *l, gantry_status status, const gantry_error *err)
{
    cr_assert_eq(status, l->status, "%s: status %d: %s", l->config, (int)status, err->message);
    cr_assert_eq(err->code, l->status, "%s: code %d", l->config, (int)err->code);
    cr_assert(strstr(err->message, l->words), "%s: \"%s\" is not in: %s", l->config, l->words, err->message);
    cr_assert(strstr(err->message, "hostile") || strcmp(err->provider, "hostile") == 0,
              "%s: the plugin is not named: %s", l->config, err->message);
}

static void run_negation(small_session *s, const lie *l)
{
    float x[12];
    for (int rows = 3; rows >= 2; rows--) {
        for (int k = 0; k < 12; k++)
            x[k] = (float)(k - 5 * rows);
        cr_assert_eq(small_bind(s, 0, GANTRY_FLOAT32, 2, rows, 4, x), GANTRY_OK, "%s", s->err.message);
        gantry_status status = gantry_run_execute(s->run, &s->err);
        if (l->outcome == RUN_FAILS) {
            expect_error(l, status, &s->err);
            continue;
        }
        cr_assert_eq(status, GANTRY_OK, "%s: %s", l->config, s->err.message);
        gantry_tensor y = small_result(s, 0);
        for (int k = 0; k < 4 * rows; k++)
            cr_assert_eq(small_floats_of(&y)[k], (float)(5 * rows - k), "%s: element %d", l->config, k);
    }
    if (l->outcome != RUN_FAILS)
        check_report(s, l);
}

static small_session open_on(const lie *l, wire model)
{
    char options[256];
    snprintf(options, sizeof options, "providers=%s,cpu;plan=priority;threads=1%s%s",
             strcmp(l->config, "endless_name") == 0
                 ? "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
                 : "hostile",
             l->options ? ";" : "", l->options ? l->options : "");
    small_session s = {.err = GANTRY_ERROR_INIT};
    cr_assert_eq(gantry_runtime_create(NULL, &s.runtime, &s.err), GANTRY_OK);
    gantry_status loaded = gantry_runtime_load_provider(s.runtime, PLUGIN, l->config, &s.err);
    if (l->outcome == NOT_LOADED)
        expect_error(l, loaded, &s.err);
    else
        cr_assert_eq(loaded, GANTRY_OK, "%s: %s", l->config, s.err.message);
    small_create(&s, model, options);
    return s;
}

/* What ran before or fails later is no matter of the next session, and the plugin goes. */
static void check_afterwards(small_session *s, const lie *l)
{
    gantry_run_destroy(&s->run);
    gantry_report_destroy(&s->report);
    cr_assert_eq(gantry_session_destroy(&s->session, &s->err), GANTRY_OK, "%s: %s", l->config,
                 s->err.message);
    const lie none = {l->config, WORKS, GANTRY_OK, NULL, NULL};
    small_session other = {.runtime = s->runtime, .err = GANTRY_ERROR_INIT, .status = GANTRY_OK};
    small_create(&other, negation(), "providers=cpu");
    run_negation(&other, &none);
    gantry_run_destroy(&other.run);
    gantry_report_destroy(&other.report);
    gantry_session_destroy(&other.session, NULL);
    if (l->outcome != NOT_LOADED)
        cr_assert_eq(gantry_runtime_unload_provider(s->runtime, "hostile", &s->err), GANTRY_OK, "%s: %s",
                     l->config, s->err.message);
    cr_assert_eq(gantry_runtime_destroy(&s->runtime, NULL), GANTRY_OK);
}

static void check_lie(const lie *l)
{
    small_session s = open_on(l, negation());
    if (l->outcome == NOT_CREATED)
        expect_error(l, s.status, &s.err);
    else
        cr_assert_eq(s.status, GANTRY_OK, "%s: %s", l->config, s.err.message);
    if (s.status == GANTRY_OK && l->outcome != NOT_LOADED)
        run_negation(&s, l);
    check_afterwards(&s, l);
}

static void check_lies(const lie *lies, size_t count)
{
    for (size_t k = 0; k < count; k++)
        check_lie(&lies[k]);
}

#define CHECK(list) check_lies(list, sizeof list / sizeof *list)

Test(hostile_plugin, what_it_brings)
{
    static const lie LIES[] = {
        {"", WORKS, 0, NULL, NULL},
        {"device ", WORKS, 0, NULL, NULL},
        {"open_fails", NOT_LOADED, GANTRY_PROVIDER, "gantry_plugin_open failed and does not say why", NULL},
        {"open_endless", NOT_LOADED, GANTRY_PROVIDER, "xxxxxxxx", NULL},
        {"domains_many", NOT_LOADED, GANTRY_PROVIDER, "counts 4294967295 domains", NULL},
        {"providers_many", NOT_LOADED, GANTRY_PROVIDER, "4294967295 providers", NULL},
        {"operators_many", NOT_LOADED, GANTRY_PROVIDER, "4294967295 operators", NULL},
        {"providers_null", NOT_LOADED, GANTRY_PROVIDER, "a list is NULL", NULL},
        {"provider_null", NOT_LOADED, GANTRY_PROVIDER, "provider 0 of the plugin: the table is NULL", NULL},
        {"device cost_nan", NOT_LOADED, GANTRY_PROVIDER, "describe gives nan as a cost", NULL},
        {"device cost_negative", NOT_LOADED, GANTRY_PROVIDER, "describe gives -1 as a cost", NULL},
        {"device alignment_3", NOT_LOADED, GANTRY_PROVIDER, "alignment is 3", NULL},
        {"device alignment_huge", NOT_LOADED, GANTRY_PROVIDER, "no power of two up to 2097152", NULL},
        {"device alignment_4096", WORKS, 0, NULL, NULL},
        {"device endless_domain", NOT_LOADED, GANTRY_PROVIDER, "which nobody brings", NULL},
        {"endless_name", WORKS, 0, NULL, NULL},
        {"endless_info", WORKS, 0, NULL, NULL},
        {"class_77", WORKS, 0, NULL, NULL},
        {"precision_99", WORKS, 0, NULL, NULL},
        {"device many_queues", WORKS, 0, NULL, NULL},
        {"options_size_8", WORKS, 0, NULL, NULL},
        {"options_null", WORKS, 0, NULL, NULL},
        {"options_origin", WORKS, 0, "\"unknown\"", NULL},
        {"memory_all", WORKS, 0, NULL, NULL},
        {"classes_many", WORKS, 0, "xxxxxxxx", NULL},
    };
    CHECK(LIES);
}

Test(hostile_plugin, verdicts)
{
    static const lie LIES[] = {
        {"estimate_nan", WORKS, 0, NULL, NULL},
        {"estimate_negative", WORKS, 0, NULL, NULL},
        {"estimate_infinite", WORKS, 0, NULL, NULL},
        {"executes_in_77", WORKS, 0, NULL, NULL},
        {"executes_in_77", WORKS, 0, NULL, "precision=model"},
        {"refuses_all", ON_HOST, 0, "no_kernel", NULL},
        {"refusal_endless", ON_HOST, 0, "no_kernel", NULL},
        {"judge_status", ON_HOST, 0, "its judge returned status 12345", NULL},
    };
    CHECK(LIES);
}

Test(hostile_plugin, programs)
{
    static const lie LIES[] = {
        {"compile_null", ON_HOST, 0, "compile returned OK, and nothing of what it makes", NULL},
        {"compile_fails", ON_HOST, 0, "compile failed (provider) and does not say why", NULL},
        {"compile_endless", ON_HOST, 0, "xxxxxxxx", NULL},
        {"compile_cancelled", ON_HOST, 0, "compile failed (cancelled)", NULL},
        {"formats_fails", ON_HOST, 0, "formats failed (provider)", NULL},
        {"format_alone", ON_HOST, 0, "formats requires a layout, and the provider has no convert", NULL},
        {"format_dtype", ON_HOST, 0, "formats requires a type that is none", NULL},
        {"format_half", ON_HOST, 0, "formats requires the default layout in another type", NULL},
        {"format_huge", RUN_FAILS, GANTRY_PROVIDER, "format_bytes gives 18446744073709551615 bytes", NULL},
        {"format_own", WORKS, 0, "\"layout\"", NULL},
        {"device format_own", WORKS, 0, "\"conversion\"", "timing=events"},
        {"format_own_fails", RUN_FAILS, GANTRY_PROVIDER, "convert failed (provider)", NULL},
        {"device format_own_fails", RUN_FAILS, GANTRY_PROVIDER, "convert failed (provider)", NULL},
        {"kernel_index", WORKS, 0, NULL, "timing=events"},
        {"kernel_bytes", WORKS, 0, NULL, "timing=events"},
    };
    CHECK(LIES);
}

/* A layout of the provider's own: each conversion is a boundary, with its count, bytes and estimate. */
Test(hostile_plugin, a_layout_of_its_own_is_a_boundary)
{
    for (int device = 0; device < 2; device++) {
        const lie l = {device ? "device format_own" : "format_own", WORKS, 0, NULL, "timing=fenced"};
        small_session s = open_on(&l, negation());
        cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
        run_negation(&s, &l);
        json_t *document = report_of(&s), *row;
        size_t k, found = 0;
        json_array_foreach(json_object_get(document, "boundaries"), k, row)
        {
            bool layout = strcmp(string(row, "type"), "layout") == 0;
            cr_assert(layout || device, "there is one domain");
            if (!layout)
                continue;
            bool input = strcmp(string(row, "tensor"), "x") == 0;
            cr_assert_str_eq(string(row, input ? "target" : "source"), "hostile");
            cr_assert_str_eq(string(row, input ? "source" : "target"), device ? "hostile" : "host");
            cr_assert_str_eq(string(row, "direction"), "inside");
            cr_assert_eq(number(row, "executions"), 1);
            cr_assert_eq(number(row, "executions_total"), 2);
            cr_assert_eq(number(row, "bytes"), input ? 2 * 16 + 64 : 2 * 16);
            cr_assert_eq(number(row, "estimate_us"), 1);
            cr_assert_gt(number(row, "us"), 0);
            found++;
        }
        cr_assert_eq(found, 2);
        cr_assert_eq(number(document, "totals.boundaries.remainder_bytes"), 0);
        json_decref(document);
        check_afterwards(&s, &l);
    }
}

Test(hostile_plugin, shapes)
{
    static const lie LIES[] = {
        {"reshape_null", RUN_FAILS, GANTRY_PROVIDER, "reshape returned OK, and nothing of what it makes",
         NULL},
        {"reshape_fails", RUN_FAILS, GANTRY_DATA, "reshape failed (data) and does not say why", NULL},
        {"reshape_endless", RUN_FAILS, GANTRY_PROVIDER, "xxxxxxxx", NULL},
        {"refuses_shape", ON_HOST, 0, "shape_limit", NULL},
        {"refuses_many", ON_HOST, 0, "shape_limit", NULL},
        {"refuses_endless", ON_HOST, 0, "no_kernel", NULL},
        {"refuses_nobody", RUN_FAILS, GANTRY_UNSUPPORTED, "reshape failed (unsupported)", NULL},
        {"refuses_stranger", RUN_FAILS, GANTRY_PROVIDER, "reshape refuses 1 nodes, none of which", NULL},
        {"workspace_all", RUN_FAILS, GANTRY_PROVIDER, "reshape asks for a workspace of 1844674407", NULL},
        {"workspace_half", RUN_FAILS, GANTRY_PROVIDER, "reshape asks for a workspace of 922337203", NULL},
        {"workspace_large", RUN_FAILS, GANTRY_RESOURCE, "the workspace of provider hostile",
         "memory_limit=100000000"},
        {"view_of_99", RUN_FAILS, GANTRY_PROVIDER, "reshape says that output y is a view of its input 99",
         NULL},
        {"view_of_minus_9", WORKS, 0, NULL, NULL},
        {"view_far", RUN_FAILS, GANTRY_PROVIDER, "is a view of its input 0", NULL},
        {"view_behind", RUN_FAILS, GANTRY_PROVIDER, "is a view of its input 0", NULL},
        {"view_odd", RUN_FAILS, GANTRY_PROVIDER, "from byte 1 on", NULL},
        {"overwrites_99", WORKS, 0, NULL, NULL},
        {"endless_sizes", WORKS, 0, NULL, NULL},
        {"context_null", RUN_FAILS, GANTRY_PROVIDER, "context_create returned OK, and nothing", NULL},
        {"context_fails", RUN_FAILS, GANTRY_RESOURCE, "context_create failed (resource)", NULL},
    };
    CHECK(LIES);
}

Test(hostile_plugin, runs)
{
    static const lie LIES[] = {
        {"run_fails", RUN_FAILS, GANTRY_PROVIDER, "run failed (provider) and does not say why", NULL},
        {"device run_fails", RUN_FAILS, GANTRY_PROVIDER, "run failed (provider)", "timing=events"},
        {"run_status", RUN_FAILS, GANTRY_PROVIDER, "run returned 4711, which is no status", NULL},
        {"run_negative", RUN_FAILS, GANTRY_PROVIDER, "run returned -1, which is no status", NULL},
        {"run_endless", RUN_FAILS, GANTRY_DATA, "xxxxxxxx", NULL},
        {"run_cancels", RUN_FAILS, GANTRY_PROVIDER, "run ended as if it had been stopped (cancelled)", NULL},
        {"run_late", RUN_FAILS, GANTRY_PROVIDER, "run ended as if it had been stopped (deadline", NULL},
        {"timing_many", WORKS, 0, NULL, "timing=events"},
        {"timing_index", WORKS, 0, NULL, "timing=fenced"},
        {"device timing_many", WORKS, 0, NULL, "timing=events"},
        {"device elapsed_nan", WORKS, 0, "not measured", "timing=events"},
        {"device elapsed_negative", WORKS, 0, "not measured", "timing=events"},
    };
    CHECK(LIES);
}

Test(hostile_plugin, its_domain)
{
    static const lie LIES[] = {
        {"device alloc_null", RUN_FAILS, GANTRY_PROVIDER, "domain hostile: alloc returned OK, and nothing",
         NULL},
        {"device alloc_fails", RUN_FAILS, GANTRY_RESOURCE, "domain hostile: alloc failed (resource)", NULL},
        {"device pinned_null", WORKS, 0, NULL, NULL},
        {"device queue_null", NOT_CREATED, GANTRY_PROVIDER, "domain hostile: queue_open returned OK", NULL},
        {"device queue_fails", NOT_CREATED, GANTRY_PROVIDER, "queue_open returned -3, which is no status",
         NULL},
        {"device sync_fails", RUN_FAILS, GANTRY_PROVIDER, "domain hostile: queue_sync failed (provider)",
         NULL},
        {"device copy_fails", RUN_FAILS, GANTRY_PROVIDER, "copy returned 99, which is no status", NULL},
        {"device event_null", RUN_FAILS, GANTRY_PROVIDER, "event_create returned OK", "timing=events"},
        {"device event_fails", RUN_FAILS, GANTRY_PROVIDER, "event_create failed (provider)", "timing=events"},
    };
    CHECK(LIES);
}

Test(hostile_plugin, trim_reaches_all_providers)
{
    const lie l = {"", WORKS, 0, NULL, NULL};
    small_session s = open_on(&l, negation());
    run_negation(&s, &l);
    for (int trimmed = 0; trimmed < 2; trimmed++) {
        json_t *document = report_of(&s), *row = row_of(document, "memory.classes", "provider", "hostile");
        cr_assert_str_eq(string(row, "class"), "cache");
        cr_assert_eq(number(row, "bytes"), trimmed ? 0 : 100);
        json_decref(document);
        gantry_runtime_trim(s.runtime);
        run_negation(&s, &l);
    }
    gantry_runtime_trim(NULL);
    check_afterwards(&s, &l);
}

Test(hostile_plugin, memory_of_the_caller_in_its_domain)
{
    gantry_buffer buffer;
    const lie null = {"device alloc_null", WORKS, GANTRY_PROVIDER, "alloc returned OK, and nothing", NULL};
    small_session s = open_on(&null, negation());
    gantry_status status = gantry_memory_alloc(s.runtime, "hostile", 64, &buffer, &s.err);
    cr_assert_null(buffer.handle);
    expect_error(&null, status, &s.err);
    small_close(&s);
    const lie sync = {"device sync_fails", WORKS, GANTRY_PROVIDER, "queue_sync failed", NULL};
    float x[4] = {0};
    s = open_on(&sync, negation());
    cr_assert_eq(gantry_memory_alloc(s.runtime, "hostile", sizeof x, &buffer, &s.err), GANTRY_OK);
    status =
        gantry_memory_copy(s.runtime, "hostile", buffer, "host", (gantry_buffer){x, 0}, sizeof x, &s.err);
    expect_error(&sync, status, &s.err);
    gantry_memory_free(s.runtime, "hostile", &buffer);
    small_close(&s);
}

/* Sizes that come with the data: at most what reshape was told. */
static void check_size(const char *config, const char *words)
{
    float x[6] = {0, 1, 0, 2, 3, 0};
    wire g = small_graph("nonzero");
    wire_message(&g, GRAPH_NODE, onnx_node("NonZero", "nonzero1", "x", "y"));
    small_input(&g, "x", SMALL_F32, 1, -1, 0);
    small_output(&g, "y", SMALL_I64, 2, 1, -1);
    const lie l = {config, words ? RUN_FAILS : WORKS, GANTRY_PROVIDER, words, NULL};
    small_session s = open_on(&l, small_model(g));
    cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
    for (int round = 0; round < 2; round++) {
        small_bind(&s, 0, GANTRY_FLOAT32, 1, 6, 0, x);
        gantry_status status = gantry_run_execute(s.run, &s.err);
        if (words) {
            expect_error(&l, status, &s.err);
            continue;
        }
        cr_assert_eq(status, GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0);
        cr_assert_eq(y.dims[1], 3);
        cr_assert_eq(((const int64_t *)y.buffer.handle)[1], 3);
    }
    check_afterwards(&s, &l);
}

Test(hostile_plugin, sizes_that_come_with_the_data)
{
    static const char *const WHERE[] = {"", "device "};
    static const char *const LIES[][2] = {
        {"", NULL},
        {"size_untold", "run left axis 0 of y out of true_dims"},
        {"size_negative", "run says that axis 1 of y is -1; 0 to 6 are possible"},
        {"size_above", "run says that axis 1 of y is 7"},
        {"size_huge", "run says that axis 1 of y is 9223372036854775807"},
        {"size_other_axis", "run says that axis 0 of y is 2; 0 to 1 are possible"},
    };
    for (size_t w = 0; w < sizeof WHERE / sizeof *WHERE; w++)
        for (size_t k = 0; k < sizeof LIES / sizeof *LIES; k++) {
            char config[64];
            snprintf(config, sizeof config, "%s%s", WHERE[w], LIES[k][0]);
            check_size(config, LIES[k][1]);
        }
}

/* Nobody computes the operator: the model fails, by its rule or because of that. */
Test(hostile_plugin, shape_rules)
{
    static const struct {
        const char *lie;
        gantry_status status;
        const char *words;
    } LIES[] = {
        {"infer_dtype", GANTRY_PROVIDER, "test.hostile.Lie gives output 0 the type 99"},
        {"infer_rank_99", GANTRY_PROVIDER, "the shape rule of test.hostile.Lie gives output 0"},
        {"infer_rank_minus_2", GANTRY_PROVIDER, "the shape rule of test.hostile.Lie gives output 0"},
        {"infer_stranger", GANTRY_PROVIDER, "test.hostile.Lie gives output 0 an extent"},
        {"infer_mixes", GANTRY_PROVIDER, "test.hostile.Lie combines extents"},
        {"infer_negative", GANTRY_MODEL_SHAPE, "extent 0 of output 0 would be -5"},
        {"infer_zero", GANTRY_UNSUPPORTED, "no provider supports node 'lie1'"},
        {"infer_axis", GANTRY_PROVIDER, "test.hostile.Lie combines extents"},
        {"infer_output", GANTRY_UNSUPPORTED, "no provider supports node 'lie1'"},
        {"infer_element", GANTRY_UNSUPPORTED, "no provider supports node 'lie1'"},
        {"infer_silent", GANTRY_MODEL_SHAPE, "the operator's shape rule refuses it"},
        {"infer_status", GANTRY_PROVIDER, "test.hostile.Lie returned 4711, which"},
        {"infer_endless", GANTRY_MODEL_SHAPE, "xxxxxxxx"},
    };
    for (size_t k = 0; k < sizeof LIES / sizeof *LIES; k++) {
        wire g = small_graph("own"), model = {0}, node = onnx_node("Lie", "lie1", "x", "y");
        wire_text(&node, 7, "test.hostile");
        wire_message(&g, GRAPH_NODE, node);
        small_input(&g, "x", SMALL_F32, 1, -1, 0);
        small_output(&g, "y", SMALL_F32, 1, -1, 0);
        wire_int(&model, 1, 10);
        onnx_import(&model, 8, "", 17);
        onnx_import(&model, 8, "test.hostile", 1);
        wire_message(&model, 7, g);
        const lie l = {LIES[k].lie, NOT_CREATED, LIES[k].status, LIES[k].words, NULL};
        small_session s = open_on(&l, model);
        cr_assert_eq(s.status, l.status, "%s: status %d: %s", l.config, (int)s.status, s.err.message);
        cr_assert(strstr(s.err.message, l.words), "%s: %s", l.config, s.err.message);
        cr_assert_not_null(strstr(s.err.message, "lie1"), "the node is not named: %s", s.err.message);
        check_afterwards(&s, &l);
    }
}

/* ---- two libraries in one domain ------------------------------------------------------------- */

static void note_line(void *user, int level, const char *text)
{
    size_t used = strlen(user);
    snprintf((char *)user + used, 200 - used, "%s;", text);
}

/* Values of boundaries that are of the type layout, in order. */
static void list_layouts(json_t *document, char *out_names, size_t bytes)
{
    size_t k, used = 0;
    json_t *row;
    *out_names = 0;
    json_array_foreach(json_object_get(document, "boundaries"), k,
                       row) if (strcmp(string(row, "type"), "layout") == 0) used +=
        (size_t)snprintf(out_names + used, bytes - used, "%s ", string(row, "tensor"));
}

/* y = -(-x), the first on one provider, the second on the other. layouts: the values that are converted. */
static void run_both(small_session *s, const char *layouts)
{
    char names[64];
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    wire g = small_graph("both");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "t"));
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg2", "t", "y"));
    small_input(&g, "x", SMALL_F32, 2, 2, 4);
    small_output(&g, "y", SMALL_F32, 2, 2, 4);
    small_create(s, small_model(g),
                 "providers=hostile,joiner,cpu;plan=priority;rewrites=off;pin.neg1=hostile;pin.neg2=joiner");
    cr_assert_eq(s->status, GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(small_bind(s, 0, GANTRY_FLOAT32, 2, 2, 4, x), GANTRY_OK);
    cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK, "%s", s->err.message);
    gantry_tensor y = small_result(s, 0);
    for (int k = 0; k < 8; k++)
        cr_assert_eq(small_floats_of(&y)[k], x[k], "element %d", k);
    json_t *document = report_of(s);
    cr_assert_str_eq(string(row_of(document, "nodes", "name", "neg1"), "provider"), "hostile");
    cr_assert_str_eq(string(row_of(document, "nodes", "name", "neg2"), "provider"), "joiner");
    cr_assert_eq(number(document, "totals.boundaries.device"), 2, "what is between them stays where it is");
    list_layouts(document, names, sizeof names);
    cr_assert_str_eq(names, layouts);
    json_decref(document);
    gantry_run_destroy(&s->run);
    gantry_report_destroy(&s->report);
    cr_assert_eq(gantry_session_destroy(&s->session, &s->err), GANTRY_OK);
}

static gantry_status load(small_session *s, const char *config)
{
    return gantry_runtime_load_provider(s->runtime, PLUGIN, config, &s->err);
}

/* Who brings a domain goes after those who joined it. */
Test(hostile_plugin, a_library_may_join_the_domain_of_another)
{
    char said[200] = "";
    small_session s = {.err = GANTRY_ERROR_INIT};
    cr_assert_eq(gantry_runtime_create(NULL, &s.runtime, &s.err), GANTRY_OK);
    cr_assert_eq(gt_runtime_log_add(s.runtime, 3, note_line, said, &s.err), GANTRY_OK);
    cr_assert_eq(load(&s, "joins"), GANTRY_PROVIDER);
    cr_assert(strstr(s.err.message, "computes in the domain \"hostile\", which nobody brings"), "%s",
              s.err.message);
    *said = 0;
    cr_assert_eq(load(&s, "device "), GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(load(&s, "joins"), GANTRY_OK, "%s", s.err.message);
    run_both(&s, "");
    cr_assert_eq(gantry_runtime_unload_provider(s.runtime, "hostile", &s.err), GANTRY_INVALID_ARGUMENT);
    cr_assert(strstr(s.err.message, "the provider \"joiner\" of another library computes in the domain"),
              "%s", s.err.message);
    cr_assert_eq(gantry_runtime_unload_provider(s.runtime, "joiner", &s.err), GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(gantry_runtime_unload_provider(s.runtime, "hostile", &s.err), GANTRY_OK, "%s",
                 s.err.message);
    cr_assert_str_eq(said, "joiner closes;hostile closes;");
    *said = 0;
    cr_assert_eq(load(&s, "device "), GANTRY_OK, "%s", s.err.message);
    cr_assert_eq(load(&s, "joins"), GANTRY_OK, "%s", s.err.message);
    run_both(&s, "");
    cr_assert_eq(gantry_runtime_destroy(&s.runtime, &s.err), GANTRY_OK, "%s", s.err.message);
    cr_assert_str_eq(said, "joiner closes;hostile closes;", "the last one opened is the first to close");
}

/* A format that both ends name is nobody's to convert; one that is only preferred is taken where the other
 * end names it, and nowhere else. */
Test(hostile_plugin, a_format_that_both_ends_name_is_not_converted)
{
    static const char *const CASES[][3] = {
        {"device format_own", "format_own_joins", "x y "},
        {"device format_own", "format_own_joins_prefers", "x "},
        {"device format_own_prefers", "format_own_joins", "y "},
        {"device format_own_prefers", "format_own_joins_prefers", ""},
        {"device format_own", "joins", "x t "},
        {"device format_own_prefers", "joins", ""},
        {"device ", "format_own_joins", "t y "},
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        small_session s = {.err = GANTRY_ERROR_INIT};
        cr_assert_eq(gantry_runtime_create(NULL, &s.runtime, &s.err), GANTRY_OK);
        cr_assert_eq(load(&s, CASES[k][0]), GANTRY_OK, "%s", s.err.message);
        cr_assert_eq(load(&s, CASES[k][1]), GANTRY_OK, "%s", s.err.message);
        run_both(&s, CASES[k][2]);
        cr_assert_eq(gantry_runtime_destroy(&s.runtime, &s.err), GANTRY_OK, "%s", s.err.message);
    }
}

/* Nothing that goes wrong with a kept program fails a session: the partition is compiled. */
Test(hostile_plugin, kept_programs, .init = test_folder_open, .fini = test_folder_close)
{
    static const char *const LIES[][2] = {
        {"blob_null", "blob_save returned OK, and nothing of what it makes"},
        {"blob_empty", "blob_save returned OK, and nothing of what it makes"},
        {"blob_huge", "blob_save returned OK, and nothing of what it makes"},
        {"blob_save_fails", "blob_save returned -7, which is no status"},
        {"blob_load_null", "blob_load returned OK, and nothing of what it makes"},
        {"blob_load_fails", "blob_load returned 321, which is no status"},
    };
    for (size_t k = 0; k < sizeof LIES / sizeof *LIES; k++)
        for (int turn = 0; turn < 2; turn++) {
            const lie l = {LIES[k][0], WORKS, 0, turn ? LIES[k][1] : NULL, NULL};
            small_session s = {.err = GANTRY_ERROR_INIT};
            cr_assert_eq(gantry_runtime_create(NULL, &s.runtime, &s.err), GANTRY_OK);
            cr_assert_eq(gantry_runtime_set(s.runtime, "cache", folder, &s.err), GANTRY_OK);
            cr_assert_eq(load(&s, l.config), GANTRY_OK, "%s", s.err.message);
            small_create(&s, negation(), "providers=hostile,cpu;plan=priority;threads=1");
            cr_assert_eq(s.status, GANTRY_OK, "%s: %s", l.config, s.err.message);
            run_negation(&s, &l);
            check_afterwards(&s, &l);
        }
}
