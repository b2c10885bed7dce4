/* The runtime and its loader: libraries that are refused and why, tables that are checked, what is unwound.
 */
#include "../support/broken_allocator.h"
#include "core/runtime.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define REFUSED GANTRY_BUILD_FOLDER "/tests/refused/libgantry_"

static gantry_runtime *runtime;
static gantry_error error = GANTRY_ERROR_INIT;

static void setup(void)
{
    cr_assert_eq(gantry_runtime_create(NULL, &runtime, &error), GANTRY_OK, "%s", error.message);
}

static void teardown(void)
{
    cr_assert_eq(gantry_runtime_destroy(&runtime, &error), GANTRY_OK);
    cr_assert_null(runtime);
}

TestSuite(runtime, .init = setup, .fini = teardown);

/* Loads what must be refused: the error and the row name it and hold the text. */
static void refuse(const char *path, const char *config, const char *name, const char *text)
{
    const char *row_name, *detail;
    int available;
    uint32_t count = gantry_runtime_provider_count(runtime);
    error.message[0] = 0;
    cr_assert_eq(gantry_runtime_load_provider(runtime, path, config, &error), GANTRY_PROVIDER,
                 "%s was loaded", path);
    cr_assert_eq(error.stage, GANTRY_STAGE_PLUGIN);
    cr_assert(strstr(error.message, text), "\"%s\" is not in: %s", text, error.message);
    cr_assert_str_eq(error.provider, name);
    cr_assert_eq(gantry_runtime_provider_count(runtime), count + 1);
    cr_assert_eq(gantry_runtime_provider(runtime, count, &row_name, &available, &detail), GANTRY_OK);
    cr_assert_str_eq(row_name, name);
    cr_assert_eq(available, 0);
    cr_assert(strstr(detail, text), "\"%s\" is not in the row: %s", text, detail);
}

Test(runtime, it_begins_with_the_cpu)
{
    const char *name, *detail;
    int available;
    cr_assert_eq(gantry_runtime_provider_count(runtime), 1);
    cr_assert_eq(gantry_runtime_provider(runtime, 0, &name, &available, &detail), GANTRY_OK);
    cr_assert_str_eq(name, "cpu");
    cr_assert_eq(available, 1);
    cr_assert_eq(gantry_runtime_provider(runtime, 1, &name, &available, &detail), GANTRY_INVALID_ARGUMENT);
    cr_assert_null(name);
    cr_assert_eq(gt_runtime_find_domain(runtime, "host"), GT_HOST_DOMAIN);
    cr_assert_gt(gantry_runtime_allocation_count(runtime), 0);
}

Test(runtime, a_missing_file)
{
    refuse("/nowhere/libgantry_absent.so", NULL, "absent", "No such file");
    refuse("libgantry_absent.so", NULL, "absent", "No such file");
}

Test(runtime, a_file_that_is_no_library)
{
    char path[] = "/tmp/gantry_textXXXXXX";
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, "this is a text, and long enough for an ELF header to be read from it: no", 72),
                 72);
    close(fd);
    refuse(path, NULL, strrchr(path, '_') + 1, "invalid ELF header");
    unlink(path);
    refuse("/tmp", NULL, "tmp", "/tmp");
}

Test(runtime, a_missing_dependency)
{
    refuse(REFUSED "needs_missing.so", NULL, "needs_missing", "libgantry_missing_library.so: cannot open");
    cr_assert(strstr(error.message, "of the test suite"));
    cr_assert_str_eq(gt_runtime_provider_at(runtime, 1)->info.version, "1.2");
}

Test(runtime, a_manifest_that_does_not_fit)
{
    refuse(REFUSED "no_manifest.so", NULL, "no_manifest", "no manifest");
    refuse(REFUSED "newer_abi.so", NULL, "newer", "7 to 9");
    cr_assert(strstr(error.message, "1 to 1"));
    refuse(REFUSED "odd_cpu.so", NULL, "odd_cpu", "gantry_no_such_feature");
}

Test(runtime, every_truncation_of_a_library_is_refused)
{
    char path[] = "/tmp/gantry_cutXXXXXX";
    FILE *source = fopen(FAKE, "rb");
    cr_assert_not_null(source);
    static unsigned char bytes[1 << 20];
    size_t size = fread(bytes, 1, sizeof bytes, source);
    fclose(source);
    int fd = mkstemp(path);
    for (size_t k = 0; k < 64; k++) {
        gantry_manifest manifest;
        size_t cut = size * k / 64;
        cr_assert_eq(ftruncate(fd, 0), 0);
        cr_assert_eq(pwrite(fd, bytes, cut, 0), (ssize_t)cut);
        cr_assert_eq(gt_manifest_read(path, &manifest, &error), GANTRY_DATA);
        cr_assert_eq(manifest.name[0], 0);
    }
    for (size_t k = 0; k < 64; k++) {
        unsigned char header[64];
        gantry_manifest manifest;
        memcpy(header, bytes, sizeof header);
        header[k] ^= 0x5a;
        cr_assert_eq(pwrite(fd, bytes, size, 0), (ssize_t)size);
        cr_assert_eq(pwrite(fd, header, sizeof header, 0), 64);
        gt_manifest_read(path, &manifest, &error);
    }
    close(fd);
    unlink(path);
}

Test(runtime, tables_are_checked)
{
    static const char *const quirks[][2] = {
        {"plugin_size_zero", "struct_bytes of 0"},
        {"plugin_abi_newer", "level 2"},
        {"plugin_abi_zero", "level 0"},
        {"provider_size_zero", "struct_bytes is 0"},
        {"provider_judge_null", "required entry judge is NULL"},
        {"provider_run_cut", "required entry run is NULL"},
        {"provider_info_size_zero", "describe"},
        {"domain_size_zero", "struct_bytes is 0"},
        {"domain_copy_null", "required entry copy is NULL"},
        {"domain_events_partly", "event_wait is NULL"},
    };
    for (size_t k = 0; k < sizeof quirks / sizeof *quirks; k++) {
        char config[128];
        snprintf(config, sizeof config, "{\"devices\": [{\"quirk\": \"%s\"}]}", quirks[k][0]);
        refuse(FAKE, config, "fake", quirks[k][1]);
    }
    cr_assert_eq(gt_runtime_find_domain(runtime, "fake"), GT_NO_PLUGIN,
                 "what was refused left a domain behind");
    cr_assert_eq(gantry_runtime_load_provider(runtime, FAKE, NULL, &error), GANTRY_OK, "%s", error.message);
    cr_assert(gt_runtime_provider_at(runtime, gt_runtime_find_provider(runtime, "fake"))->available);
}

Test(runtime, older_and_larger_tables_work)
{
    cr_assert_eq(gantry_runtime_load_provider(
                     runtime, FAKE,
                     "{\"devices\": [{\"name\": \"older\", \"quirk\": \"provider_size_older\"}]}", &error),
                 GANTRY_OK, "%s", error.message);
    const gantry_provider *table = gt_runtime_provider_at(runtime, 1)->table;
    cr_assert_null(table->format_bytes);
    cr_assert_null(table->memory, "an entry behind the stated size was read");
    cr_assert_not_null(table->run);
    cr_assert_eq(gantry_runtime_load_provider(
                     runtime, FAKE,
                     "{\"devices\": [{\"name\": \"larger\", \"quirk\": \"provider_size_larger\"}]}", &error),
                 GANTRY_OK, "%s", error.message);
    cr_assert_not_null(gt_runtime_provider_at(runtime, 2)->table->memory);
}

Test(runtime, a_failed_open_is_unwound)
{
    refuse(FAKE, "{\"devices\": [{}], \"fail_open\": true}", "fake", "told to fail");
    refuse(FAKE, "{\"devices\": [{\"opps\": {}}]}", "fake", "no key \"opps\"");
    refuse(FAKE, "{", "fake", "config");
}

Test(runtime, a_device_that_is_absent_is_listed)
{
    const char *name, *detail;
    int available;
    cr_assert_eq(
        gantry_runtime_load_provider(
            runtime, FAKE, "{\"devices\": [{\"name\": \"gone\", \"unavailable\": \"no device 7\"}]}", &error),
        GANTRY_OK);
    cr_assert_eq(gantry_runtime_provider(runtime, 1, &name, &available, &detail), GANTRY_OK);
    cr_assert_str_eq(name, "gone");
    cr_assert_eq(available, 0);
    cr_assert_str_eq(detail, "no device 7");
    cr_assert_null(gt_runtime_provider_at(runtime, 1)->table);
}

Test(runtime, providers_of_one_device_share_its_domain)
{
    cr_assert_eq(gantry_runtime_load_provider(runtime, FAKE,
                                              "{\"devices\": [{\"name\": \"a\", \"device_id\": 3}, "
                                              "{\"name\": \"b\", \"device_id\": 3}, {\"name\": \"c\"}]}",
                                              &error),
                 GANTRY_OK, "%s", error.message);
    cr_assert_eq(gt_runtime_provider_at(runtime, 1)->domain, gt_runtime_provider_at(runtime, 2)->domain);
    cr_assert_neq(gt_runtime_provider_at(runtime, 1)->domain, gt_runtime_provider_at(runtime, 3)->domain);
    cr_assert_str_eq(gt_runtime_domain_at(runtime, gt_runtime_provider_at(runtime, 1)->domain)->info.name,
                     "fake:3");
    refuse(FAKE, "{\"devices\": [{\"name\": \"a\"}]}", "fake", "provider \"a\" already");
    refuse(FAKE, "{\"devices\": [{\"name\": \"d\", \"device_id\": 3}]}", "fake", "domain \"fake:3\" already");
}

Test(runtime, destroying_is_refused_while_a_session_lives)
{
    runtime->session_count = 1;
    cr_assert_eq(gantry_runtime_destroy(&runtime, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_not_null(runtime);
    cr_assert(strstr(error.message, "1 session"));
    runtime->session_count = 0;
}

Test(runtime, bad_arguments)
{
    gantry_allocator odd = {0};
    gantry_runtime *other;
    cr_assert_eq(gantry_runtime_create(NULL, NULL, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_runtime_create(&odd, &other, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_null(other);
    cr_assert_eq(gantry_runtime_load_provider(NULL, FAKE, NULL, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_runtime_load_provider(runtime, "", NULL, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_runtime_destroy(NULL, NULL), GANTRY_OK);
    cr_assert_eq(gantry_runtime_load_provider(runtime, "/nowhere/x.so", NULL, NULL), GANTRY_PROVIDER);
}

/* ---- memory ---------------------------------------------------------------------------------- */

Test(runtime, a_hundred_lives_leave_nothing)
{
    broken_allocator memory = {0};
    gantry_allocator counting = broken_hooks(&memory);
    for (int k = 0; k < 100; k++) {
        gantry_runtime *other;
        cr_assert_eq(gantry_runtime_create(&counting, &other, &error), GANTRY_OK);
        cr_assert_eq(gantry_runtime_load_provider(other, FAKE, NULL, &error), GANTRY_OK, "%s", error.message);
        cr_assert_eq(gantry_runtime_load_provider(other, "/nowhere/x.so", NULL, &error), GANTRY_PROVIDER);
        cr_assert_eq(gantry_runtime_destroy(&other, &error), GANTRY_OK);
        cr_assert_eq(memory.blocks, 0, "life %d", k);
    }
}

Test(runtime, every_allocation_may_fail)
{
    gantry_status status = GANTRY_RESOURCE;
    for (long n = 0; status != GANTRY_OK; n++) {
        gantry_runtime *other = NULL;
        cr_assert_lt(n, 1000);
        broken_allocator memory = {.fails_at = n + 1, .lasting = true};
        gantry_allocator failing = broken_hooks(&memory);
        status = gantry_runtime_create(&failing, &other, &error);
        if (status == GANTRY_OK)
            status = gantry_runtime_load_provider(other, FAKE, NULL, &error);
        gantry_runtime_destroy(&other, NULL);
        cr_assert_eq(memory.blocks, 0, "after %ld allocations, %ld blocks are left", n, memory.blocks);
    }
}

/* ---- the host table -------------------------------------------------------------------------- */

Test(runtime, host_memory_is_aligned)
{
    const gantry_host *host = &runtime->host;
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        void *memory = host->alloc(host, 100, alignment);
        cr_assert_not_null(memory);
        cr_assert_eq((uintptr_t)memory % alignment, 0);
        memset(memory, 1, 100);
        host->free(host, memory);
    }
    cr_assert_null(host->alloc(host, 100, 48));
    cr_assert_null(host->alloc(host, SIZE_MAX - 8, 64));
    host->free(host, NULL);
}

static void mark(void *arg, int64_t begin, int64_t end, int thread)
{
    for (int64_t k = begin; k < end; k++)
        __atomic_fetch_add(&((int *)arg)[k], 1, __ATOMIC_RELAXED);
}

Test(runtime, host_loops_cover_everything_once)
{
    static const int64_t counts[] = {0, 1, 7, 64, 1000};
    for (int threads = 1; threads <= 3; threads++)
        for (size_t c = 0; c < 5; c++) {
            int seen[1000] = {0};
            runtime->host.parallel_for(&runtime->host, threads, counts[c], 16, mark, seen);
            for (int64_t k = 0; k < 1000; k++)
                cr_assert_eq(seen[k], k < counts[c]);
        }
}

static void keep_line(void *user, int level, const char *text)
{
    snprintf(user, 64, "%d %s", level, text);
}

Test(runtime, log_lines_reach_the_sinks_of_their_level)
{
    char line[64] = "";
    cr_assert_eq(gt_runtime_log_add(runtime, 1, keep_line, line, &error), GANTRY_OK);
    runtime->host.log(&runtime->host, 2, "info");
    cr_assert_str_eq(line, "");
    runtime->host.log(&runtime->host, 1, "warning");
    cr_assert_str_eq(line, "1 warning");
    gt_runtime_log_remove(runtime, keep_line, line);
    runtime->host.log(&runtime->host, 0, "error");
    cr_assert_str_eq(line, "1 warning");
}

Test(runtime, records_are_copied)
{
    gt_arena arena;
    gt_arena_init(&arena, &runtime->allocator);
    gantry_recorder recorder = {.arena = &arena};
    uint32_t ids[2] = {4, 7};
    char name[] = "jit";
    gantry_kernel_record record = {
        .struct_bytes = sizeof record, .op = "Conv+Relu", .name = name, .node_count = 2, .node_ids = ids};
    runtime->host.record_kernel(&recorder, &record);
    name[0] = 'x';
    ids[1] = 0;
    record.struct_bytes = 0;
    runtime->host.record_kernel(&recorder, &record);
    record.struct_bytes = offsetof(gantry_kernel_record, node_count);
    runtime->host.record_kernel(&recorder, &record);
    cr_assert_eq(recorder.kernels.count, 2);
    cr_assert_str_eq(recorder.kernels.data[0].name, "jit");
    cr_assert_str_eq(recorder.kernels.data[0].isa, "");
    cr_assert_eq(recorder.kernels.data[0].node_ids[1], 7);
    cr_assert_eq(recorder.kernels.data[1].node_count, 0, "a field behind the stated size was read");
    gantry_fusion_record fusion = {sizeof fusion, "conv_relu", 2, ids, 0, "graph_output"};
    runtime->host.record_fusion(&recorder, &fusion);
    cr_assert_str_eq(recorder.fusions.data[0].guard, "graph_output");
    gt_vec_free(&runtime->allocator, &recorder.kernels);
    gt_vec_free(&runtime->allocator, &recorder.fusions);
    gt_arena_clear(&arena);
}
