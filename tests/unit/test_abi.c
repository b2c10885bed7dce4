/* The plugin ABI over releases: layouts are pinned, plugins of older and newer headers run with this host,
 * tables that break the rules are refused. The plugins are tests/abi/plugin.c. */
#include "../support/broken_allocator.h"
#include "../support/small_models.h"
#include "core/runtime.h"

#include <criterion/criterion.h>

/* ---- layouts: a field of a release never moves ----------------------------------------------- */

#define FIELD(type, field, offset, bytes)                                                                    \
    _Static_assert(offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == (bytes),               \
                   #type "." #field " has moved since a release");
#define FIXED(type, bytes) _Static_assert(sizeof(type) == (bytes), #type " has changed, and never may");
#define GROWS(type, bytes) _Static_assert(sizeof(type) >= (bytes), #type " has become smaller");
#include "../abi/layout_1_0.def"
#include "../abi/layout_1_1.def"

/* ---- plugins --------------------------------------------------------------------------------- */

#define PLUGIN(name) GANTRY_BUILD_FOLDER "/tests/libgantry_abi_" name ".so"

static const char *const RELEASES[] = {"abi_1_0", "abi_1_1", "abi_now", "abi_newer"};
static const char *const PATHS[] = {PLUGIN("1_0"), PLUGIN("1_1"), PLUGIN("now"), PLUGIN("newer")};
#define RELEASE_COUNT (sizeof RELEASES / sizeof *RELEASES)

static gantry_runtime *runtime;
static gantry_error error = GANTRY_ERROR_INIT;
static broken_allocator memory;
static gantry_allocator counting;

static void setup(void)
{
    counting = broken_hooks(&memory);
    cr_assert_eq(gantry_runtime_create(&counting, &runtime, &error), GANTRY_OK, "%s", error.message);
}

static void teardown(void)
{
    cr_assert_eq(gantry_runtime_destroy(&runtime, &error), GANTRY_OK);
    cr_assert_eq(memory.blocks, 0, "%ld blocks are left", memory.blocks);
}

TestSuite(abi, .init = setup, .fini = teardown);

static gantry_status load(const char *path, const char *config)
{
    error.message[0] = 0;
    return gantry_runtime_load_provider(runtime, path, config, &error);
}

#define OK(call) cr_assert_eq(call, GANTRY_OK, "%s", error.message)

static void unload(const char *name)
{
    OK(gantry_runtime_unload_provider(runtime, name, &error));
}

static void refuse(const char *path, const char *config, const char *words)
{
    uint32_t domains = runtime->domains.count;
    cr_assert_eq(load(path, config), GANTRY_PROVIDER, "\"%s\" was loaded", config);
    cr_assert(strstr(error.message, words), "%s: \"%s\" is not in: %s", config, words, error.message);
    cr_assert_eq(runtime->domains.count, domains, "%s: a domain is left", config);
}

/* y = -x on that provider, which the report must say executed it. */
static void run_on(const char *provider, const char *options)
{
    float x[12], sum = 0;
    char text[128], row[96];
    const char *report;
    wire g = small_graph("neg");
    wire_message(&g, GRAPH_NODE, onnx_node("Neg", "neg1", "x", "y"));
    small_input(&g, "x", SMALL_F32, 2, -1, 4);
    small_output(&g, "y", SMALL_F32, 2, -1, 4);
    snprintf(text, sizeof text, "providers=%s,cpu;plan=priority;%s", provider, options);
    small_session s = {.runtime = runtime, .err = GANTRY_ERROR_INIT, .status = GANTRY_OK};
    small_create(&s, small_model(g), text);
    cr_assert_eq(s.status, GANTRY_OK, "%s: %s", provider, s.err.message);
    for (int64_t rows = 3; rows >= 2; rows--) {
        for (int k = 0; k < 12; k++)
            x[k] = (float)(k - 5);
        cr_assert_eq(small_bind(&s, 0, GANTRY_FLOAT32, 2, rows, 4, x), GANTRY_OK, "%s", s.err.message);
        cr_assert_eq(gantry_run_execute(s.run, &s.err), GANTRY_OK, "%s", s.err.message);
        gantry_tensor y = small_result(&s, 0);
        for (int k = 0; k < 4 * rows; k++)
            cr_assert_eq(small_floats_of(&y)[k], 5 - (float)k, "%s", provider);
        sum += small_floats_of(&y)[0];
    }
    cr_assert_eq(sum, 10);
    gantry_report_destroy(&s.report);
    OK(gantry_session_report(s.session, s.run, &s.report, &error));
    size_t bytes;
    OK(gantry_report_render(s.report, GANTRY_REPORT_JSON, &report, &bytes, &error));
    snprintf(row, sizeof row, "\"name\": \"%s\"", provider);
    const char *found = strstr(report, row);
    cr_assert(found && (found = strstr(found, "\"nodes_executed\": ")), "%s has no row", provider);
    cr_assert_eq(found[strlen("\"nodes_executed\": ")], '1', "%s executed nothing", provider);
    gantry_run_destroy(&s.run);
    gantry_report_destroy(&s.report);
    OK(gantry_session_destroy(&s.session, &error));
}

Test(abi, plugins_of_all_releases_run)
{
    for (size_t k = 0; k < RELEASE_COUNT; k++) {
        OK(load(PATHS[k], ""));
        OK(load(PATHS[k], "name=device device"));
        run_on(RELEASES[k], "");
        run_on("device", "");
        run_on("device", "timing=fenced");
        unload("device");
        run_on(RELEASES[k], "");
        unload(RELEASES[k]);
    }
}

Test(abi, plugins_of_all_releases_work_together)
{
    for (size_t k = 0; k < RELEASE_COUNT; k++)
        OK(load(PATHS[k], "device"));
    for (size_t k = 0; k < RELEASE_COUNT; k++)
        run_on(RELEASES[k], "");
}

Test(abi, an_older_plugin_has_none_of_the_newer_entries)
{
    OK(load(PLUGIN("1_0"), "device"));
    const gt_provider_entry *row =
        gt_runtime_provider_at(runtime, gt_runtime_find_provider(runtime, "abi_1_0"));
    const gt_domain_entry *domain = gt_runtime_domain_at(runtime, row->domain);
    cr_assert_null(row->table->options);
    cr_assert_eq(row->table->option_count, 0);
    cr_assert_null(row->table->memory_classes);
    cr_assert_null(row->table->blob_save);
    cr_assert_not_null(row->table->evaluate);
    cr_assert_null(domain->table->probe);
    cr_assert_null(domain->table->copy_from_peer);
    cr_assert_not_null(domain->table->lost);
    cr_assert_eq(domain->info.queue_count, 0);
}

Test(abi, a_newer_plugin_works_at_the_level_of_the_host)
{
    gantry_manifest manifest;
    OK(gt_manifest_read(PLUGIN("newer"), &manifest, &error));
    cr_assert_eq(manifest.abi_max, GANTRY_PROVIDER_ABI + 1);
    cr_assert_gt(manifest.struct_bytes, sizeof manifest);
    OK(load(PLUGIN("newer"), "device"));
    const gt_provider_entry *row =
        gt_runtime_provider_at(runtime, gt_runtime_find_provider(runtime, "abi_newer"));
    cr_assert_eq(runtime->plugins.data[row->plugin]->plugin.abi, GANTRY_PROVIDER_ABI);
    cr_assert_eq(row->table->struct_bytes, sizeof *row->table);
    unload("abi_newer");
    refuse(PLUGIN("newer"), "abi=2", "level 2; this host offers 1 to 1");
    refuse(PLUGIN("newer"), "abi=0", "level 0; this host offers 1 to 1");
}

/* Entries that came after 1.0, in today's structs and in larger ones of the future. */
Test(abi, appended_entries_are_used)
{
    for (size_t k = 1; k < RELEASE_COUNT; k++) {
        char text[128];
        const char *report;
        size_t bytes;
        OK(load(PATHS[k], "device"));
        snprintf(text, sizeof text, "providers=%s,cpu;probe=on;%s.second=5", RELEASES[k], RELEASES[k]);
        small_session s = {.runtime = runtime, .err = GANTRY_ERROR_INIT, .status = GANTRY_OK};
        small_create(&s, small_add(3), text);
        cr_assert_eq(s.status, GANTRY_OK, "%s", s.err.message);
        OK(gantry_report_render(s.report, GANTRY_REPORT_JSON, &report, &bytes, &error));
        cr_assert(strstr(report, "\"to_device_us\": 1.111"), "%s measured nothing", RELEASES[k]);
        cr_assert(strstr(report, "\"to_host_us\": 2.222"));
        const char *first = strstr(report, "\"key\": \"first\""),
                   *second = strstr(report, "\"key\": \"second\"");
        cr_assert(first && second && first < second, "the options of %s are not in the report", RELEASES[k]);
        gantry_run_destroy(&s.run);
        gantry_report_destroy(&s.report);
        OK(gantry_session_destroy(&s.session, &error));
        snprintf(text, sizeof text, "providers=%s,cpu;%s.third=5", RELEASES[k], RELEASES[k]);
        s.status = GANTRY_OK;
        small_create(&s, small_add(3), text);
        cr_assert_eq(s.status, GANTRY_INVALID_ARGUMENT,
                     "an option that the provider does not take was taken");
        cr_assert(strstr(s.err.message, "third"), "%s", s.err.message);
        gantry_report_destroy(&s.report);
    }
}

/* ---- tables that break the rules ------------------------------------------------------------- */

static const char *const REQUIRED[] = {
    "domain.describe",
    "domain.alloc",
    "domain.free",
    "domain.queue_open",
    "domain.queue_close",
    "domain.queue_sync",
    "domain.copy",
    "provider.describe",
    "provider.judge",
    "provider.compile",
    "provider.program_destroy",
    "provider.reshape",
    "provider.shaped_destroy",
    "provider.context_create",
    "provider.context_destroy",
    "provider.run",
};

Test(abi, each_required_entry_is_required)
{
    for (size_t k = 0; k < sizeof REQUIRED / sizeof *REQUIRED; k++) {
        char config[96], words[96];
        snprintf(config, sizeof config, "device null=%s", REQUIRED[k]);
        snprintf(words, sizeof words, "the required entry %s is NULL", strchr(REQUIRED[k], '.') + 1);
        refuse(PLUGIN("now"), config, words);
    }
}

/* The size of a table is another way to leave entries out. */
Test(abi, entries_behind_the_stated_size_are_not_there)
{
    char config[96];
    snprintf(config, sizeof config, "device bytes=provider:%zu", offsetof(gantry_provider, run));
    refuse(PLUGIN("now"), config, "the required entry run is NULL");
    snprintf(config, sizeof config, "device bytes=provider:%zu", offsetof(gantry_provider, run) + 4);
    refuse(PLUGIN("now"), config, "a table states its own size"); /* half a pointer */
    snprintf(config, sizeof config, "device bytes=domain:%zu", offsetof(gantry_domain, copy));
    refuse(PLUGIN("now"), config, "the required entry copy is NULL");
    snprintf(config, sizeof config, "device bytes=provider:%zu", offsetof(gantry_provider, format_bytes));
    OK(load(PLUGIN("now"), config));
    run_on("abi_now", "");
    unload("abi_now");
    snprintf(config, sizeof config, "device bytes=domain:%zu", offsetof(gantry_domain, event_create));
    OK(load(PLUGIN("now"), config));
    run_on("abi_now", "");
}

Test(abi, sizes_of_zero_are_refused)
{
    refuse(PLUGIN("now"), "device bytes=provider:0", "struct_bytes is 0");
    refuse(PLUGIN("now"), "device bytes=domain:0", "struct_bytes is 0");
    refuse(PLUGIN("now"), "device bytes=plugin:0", "struct_bytes of 0");
    refuse(PLUGIN("now"), "bytes=info:0", "provider 0 of the plugin: describe gave a struct_bytes of 0");
    refuse(PLUGIN("now"), "device bytes=info:0", "domain 0 of the plugin: describe gave a struct_bytes of 0");
}

Test(abi, each_optional_entry_is_optional)
{
    static const char *const OPTIONAL[] = {
        "domain.memory_info", "domain.queue_native", "domain.lost",       "events",
        "provider.formats",   "provider.memory",     "provider.evaluate", "provider.trim",
    };
    for (size_t k = 0; k < sizeof OPTIONAL / sizeof *OPTIONAL; k++) {
        char config[96];
        snprintf(config, sizeof config, "device null=%s", OPTIONAL[k]);
        OK(load(PLUGIN("now"), config));
        run_on("abi_now", "timing=events");
        run_on("abi_now", "memory_limit=1000000");
        unload("abi_now");
    }
}

Test(abi, entries_that_go_together_do)
{
    static const char *const EVENTS[] = {"event_create", "event_destroy", "event_record",
                                         "event_wait",   "event_sync",    "event_elapsed"};
    for (size_t k = 0; k < sizeof EVENTS / sizeof *EVENTS; k++) {
        char config[96], words[96];
        snprintf(config, sizeof config, "device null=domain.%s", EVENTS[k]);
        snprintf(words, sizeof words, "the entry %s is NULL while others that go with it are not", EVENTS[k]);
        refuse(PLUGIN("now"), config, words);
    }
}

/* ---- lives ----------------------------------------------------------------------------------- */

Test(abi, a_failed_open_leaves_nothing_and_may_be_repeated)
{
    for (size_t k = 0; k < RELEASE_COUNT; k++) {
        refuse(PATHS[k], "device fail=open", "told to fail when opened");
        refuse(PATHS[k], "walk", "not known");
        uint32_t rows = gantry_runtime_provider_count(runtime);
        refuse(PATHS[k], "walk", "not known");
        cr_assert_eq(gantry_runtime_provider_count(runtime), rows);
        OK(load(PATHS[k], "device"));
        run_on(RELEASES[k], "");
    }
}

Test(abi, a_hundred_lives_leave_nothing)
{
    long blocks = 0;
    for (int k = 0; k < 100; k++) {
        size_t release = (size_t)k % RELEASE_COUNT;
        OK(load(PATHS[release], k % 2 ? "" : "device"));
        run_on(RELEASES[release], "");
        unload(RELEASES[release]);
        if (k == 12)
            blocks = memory.blocks;
    }
    cr_assert_eq(memory.blocks, blocks, "%ld blocks more", memory.blocks - blocks);
    cr_assert_eq(runtime->plugins.count, RELEASE_COUNT);
}

/* Each allocation of a load, a session and an unload fails once; what can be said is said, the next life
 * works. */
Test(abi, every_allocation_of_a_life_may_fail)
{
    gantry_status status = GANTRY_RESOURCE;
    for (long n = 1; status != GANTRY_OK; n++) {
        cr_assert_lt(n, 20000);
        memory.fails_at = memory.calls + n;
        status = load(PLUGIN("now"), "device");
        memory.fails_at = 0;
        if (status == GANTRY_OK)
            break;
        cr_assert_eq(status, GANTRY_RESOURCE, "%s", error.message);
        OK(load(PLUGIN("now"), "device"));
        unload("abi_now");
    }
    run_on("abi_now", "");
}
