/* Session options: each key's values, what is refused where it is set, and what the report's rows say. */
#include "core/options.h"

#include <criterion/criterion.h>
#include <sched.h>

static gantry_options *options;
static gt_options resolved;
static gt_allocator allocator;
static gantry_error error = GANTRY_ERROR_INIT;

static void setup(void)
{
    gt_allocator_init(&allocator, NULL);
    cr_assert_eq(gantry_options_create(&options, &error), GANTRY_OK);
}

static void teardown(void)
{
    gt_options_free(&resolved);
    gantry_options_destroy(&options);
    cr_assert_null(options);
    gantry_options_destroy(&options);
}

TestSuite(options, .init = setup, .fini = teardown);

static void set(const char *key, const char *value)
{
    cr_assert_eq(gantry_options_set(options, key, value, &error), GANTRY_OK, "%s", error.message);
}

static void resolve(void)
{
    cr_assert_eq(gt_options_resolve(&allocator, options, &resolved, &error), GANTRY_OK, "%s", error.message);
}

static const gt_option_row *row(const char *key)
{
    for (uint32_t k = 0; k < resolved.rows.count; k++)
        if (strcmp(resolved.rows.data[k].key, key) == 0)
            return &resolved.rows.data[k];
    cr_assert_fail("no row %s", key);
    return NULL;
}

Test(options, defaults)
{
    cpu_set_t mask;
    cr_assert_eq(gt_options_resolve(&allocator, NULL, &resolved, &error), GANTRY_OK);
    cr_assert_eq(sched_getaffinity(0, sizeof mask, &mask), 0);
    cr_assert_eq(resolved.threads, CPU_COUNT(&mask));
    cr_assert_str_eq(row("threads")->origin, "mask");
    cr_assert_eq(resolved.provider_count, 1);
    cr_assert_str_eq(resolved.providers[0], "cpu");
    cr_assert(resolved.plan_by_cost && resolved.rewrites && resolved.fold);
    cr_assert(!resolved.strict && !resolved.exact && !resolved.model_precision && !resolved.weights_mapped);
    cr_assert_eq(resolved.fold_limit_bytes, 16777216);
    cr_assert_eq(resolved.plan_cache, 64);
    cr_assert_eq(resolved.timing, GT_TIMING_OFF);
    cr_assert_eq(resolved.log_level, 1);
    cr_assert_null(resolved.base);
    cr_assert_str_eq(row("plan")->origin, "default");
    cr_assert_null(row("plan")->asked);
    cr_assert_str_eq(row("plan")->effective, "cost");
}

Test(options, the_mask_decides_the_threads)
{
    cpu_set_t mask, one;
    cr_assert_eq(sched_getaffinity(0, sizeof mask, &mask), 0);
    CPU_ZERO(&one);
    for (int k = 0; k < CPU_SETSIZE && CPU_COUNT(&one) == 0; k++)
        if (CPU_ISSET(k, &mask))
            CPU_SET(k, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    set("threads", "0");
    resolve();
    cr_assert_eq(sched_setaffinity(0, sizeof mask, &mask), 0);
    cr_assert_eq(resolved.threads, 1);
    cr_assert_str_eq(row("threads")->effective, "1");
    cr_assert_str_eq(row("threads")->asked, "0");
}

Test(options, every_key)
{
    set("threads", "3");
    set("providers", "dev_int8, dev_fp16,cpu");
    set("plan", "priority");
    set("strict", "on");
    set("precision", "model");
    set("exact", "on");
    set("fold", "off");
    set("fold_limit_bytes", "100");
    set("base", "/data");
    set("weights", "mapped");
    set("plan_cache", "5");
    set("memory_limit", "1000000");
    set("deadline_ms", "250");
    set("timing", "fenced");
    set("numeric_check", "on");
    set("cpu.disable_types", "float16,bfloat16");
    set("log_level", "debug");
    set("rewrites.gelu", "off");
    set("rewrites.cse", "on");
    set("pin.loop1.body", "cpu");
    set("dim.batch", "1..4..64");
    set("dim.x[2]", "0..128..512");
    set("bind.state", "cuda:0");
    set("dev_fp16.tiles", "64x64");
    resolve();
    cr_assert_eq(resolved.threads, 3);
    cr_assert_eq(resolved.provider_count, 3);
    cr_assert_str_eq(resolved.providers[1], "dev_fp16");
    cr_assert(!resolved.plan_by_cost && resolved.strict && resolved.model_precision && resolved.exact);
    cr_assert(!resolved.fold && resolved.weights_mapped && resolved.numeric_check);
    cr_assert_eq(resolved.fold_limit_bytes, 100);
    cr_assert_str_eq(resolved.base, "/data");
    cr_assert_eq(resolved.plan_cache, 5);
    cr_assert_eq(resolved.memory_limit, 1000000);
    cr_assert_eq(resolved.deadline_ms, 250);
    cr_assert_eq(resolved.timing, GT_TIMING_FENCED);
    cr_assert_eq(resolved.log_level, 3);
    cr_assert_eq(resolved.cpu_disabled.count, 2);
    cr_assert_eq(resolved.cpu_disabled.data[1], GANTRY_BFLOAT16);
    cr_assert_eq(resolved.disabled_rewrites.count, 1);
    cr_assert_str_eq(resolved.disabled_rewrites.data[0], "gelu");
    cr_assert_eq(resolved.pins.count, 1);
    cr_assert_str_eq(resolved.pins.data[0].node, "loop1.body");
    cr_assert_eq(resolved.dims.count, 2);
    cr_assert_str_eq(resolved.dims.data[1].name, "x[2]");
    cr_assert_eq(resolved.dims.data[1].typical, 128);
    cr_assert_str_eq(resolved.binds.data[0].provider, "cuda:0");
    cr_assert_str_eq(gt_options_text(&resolved, "dev_fp16.tiles"), "64x64");
    cr_assert_str_eq(gt_options_text(&resolved, "cpu.disable_types"), "float16,bfloat16");
    cr_assert_null(gt_options_text(&resolved, "dev_fp16.other"));
    cr_assert_str_eq(row("dev_fp16.tiles")->origin, "user");
}

Test(options, bad_settings_are_refused_where_they_are_set)
{
    static const char *const bad[][2] = {
        {"thread", "1"},
        {"threads", "-1"},
        {"threads", "4097"},
        {"threads", ""},
        {"threads", "1 "},
        {"plan", "fast"},
        {"strict", "yes"},
        {"exact", ""},
        {"plan_cache", "0"},
        {"dim.", "1..2..3"},
        {"dim.n", "3..2..9"},
        {"dim.n", "1..2"},
        {"dim.n", "1..2..3..4"},
        {"dim.n", "-1..2..3"},
        {"pin.", "cpu"},
        {"pin.a", ""},
        {"bind.a", ""},
        {"rewrites.gelu", "maybe"},
        {"rewrites.walk", "off"},
        {"shape.x", "1,-3"},
        {"providers", ""},
        {"providers", "a,,b"},
        {"providers", "cpu,cpu"},
        {"log_level", "loud"},
        {"timing", "on"},
        {"cpu.disable_types", "float17"},
        {".x", "1"},
        {"x.", "1"},
        {"", "1"},
        {"memory_limit", "99999999999999999999"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        error.message[0] = 0;
        cr_assert_eq(gantry_options_set(options, bad[k][0], bad[k][1], &error), GANTRY_INVALID_ARGUMENT,
                     "%s=%s", bad[k][0], bad[k][1]);
        cr_assert(*error.message);
    }
    cr_assert_eq(gantry_options_set(options, NULL, "1", &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_options_set(options, "plan", NULL, &error), GANTRY_INVALID_ARGUMENT);
    gantry_options_set(options, "plan", "fast", &error);
    cr_assert(strstr(error.message, "priority") && strstr(error.message, "fast"));
    resolve();
    cr_assert(resolved.plan_by_cost);
}

Test(options, the_last_setting_of_a_key_holds)
{
    set("plan", "priority");
    set("plan", "cost");
    set("pin.a", "x");
    set("pin.a", "y");
    resolve();
    cr_assert(resolved.plan_by_cost);
    cr_assert_eq(resolved.pins.count, 1);
    cr_assert_str_eq(resolved.pins.data[0].provider, "y");
}

Test(options, what_another_option_overrides_is_said)
{
    set("rewrites", "off");
    set("rewrites.gelu", "on");
    set("fold", "on");
    set("gpu.x", "1");
    resolve();
    cr_assert(!resolved.fold);
    cr_assert_str_eq(row("fold")->effective, "off");
    cr_assert_str_eq(row("fold")->origin, "overridden by rewrites=off");
    cr_assert_str_eq(row("rewrites.gelu")->effective, "off");
    cr_assert(strstr(row("gpu.x")->origin, "not in the list"));
}

Test(options, out_of_memory_is_a_status)
{
    set("providers", "a,b,c");
    set("pin.a", "x");
    set("dim.n", "1..2..3");
    gantry_status status = GANTRY_RESOURCE;
    for (int n = 0; status != GANTRY_OK; n++) {
        cr_assert_lt(n, 200);
        atomic_store(&allocator.fail_after, n);
        status = gt_options_resolve(&allocator, options, &resolved, &error);
        cr_assert(status == GANTRY_OK || status == GANTRY_RESOURCE);
    }
}
