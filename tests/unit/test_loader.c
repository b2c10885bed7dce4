/* Finding, loading and unloading provider libraries, and what sessions say of those that are not there. */
#include "../support/broken_allocator.h"
#include "../support/small_models.h"
#include "../support/test_folder.h"
#include "core/runtime.h"

#include <sys/stat.h>

#define TESTS GANTRY_BUILD_FOLDER "/tests"
#define FAKE TESTS "/libgantry_fake.so"

static gantry_runtime *runtime;
static gantry_error error = GANTRY_ERROR_INIT;

static void setup(void)
{
    unsetenv("GANTRY_PROVIDER_PATH");
    unsetenv("GANTRY_CACHE");
    test_folder_open();
    cr_assert_eq(gantry_runtime_create(small_allocator, &runtime, &error), GANTRY_OK, "%s", error.message);
}

static void teardown(void)
{
    cr_assert_eq(gantry_runtime_destroy(&runtime, &error), GANTRY_OK);
    test_folder_close();
}

TestSuite(loader, .init = setup, .fini = teardown);

/* ---- settings -------------------------------------------------------------------------------- */

static void expect_setting(gt_setting setting, const char *expected)
{
    char text[GT_SETTING_BYTES];
    gt_runtime_setting(runtime, setting, text);
    cr_assert_str_eq(text, expected);
}

Test(loader, a_setting_counts_before_the_environment)
{
    expect_setting(GT_SETTING_PROVIDER_PATH, "");
    setenv("GANTRY_PROVIDER_PATH", "/from/environment", 1);
    expect_setting(GT_SETTING_PROVIDER_PATH, "/from/environment");
    cr_assert_eq(gantry_runtime_set(runtime, "provider_path", "/a:/b", &error), GANTRY_OK);
    expect_setting(GT_SETTING_PROVIDER_PATH, "/a:/b");
    cr_assert_eq(gantry_runtime_set(runtime, "provider_path", "", &error), GANTRY_OK);
    expect_setting(GT_SETTING_PROVIDER_PATH, "");
    cr_assert_eq(gantry_runtime_set(runtime, "provider_path", NULL, &error), GANTRY_OK);
    expect_setting(GT_SETTING_PROVIDER_PATH, "/from/environment");
}

Test(loader, the_cache_folder_is_made_and_kept_absolute)
{
    struct stat about;
    char path[128], *real = realpath(folder, NULL);
    cr_assert_eq(chdir(folder), 0);
    cr_assert_eq(gantry_runtime_set(runtime, "cache", "kernels", &error), GANTRY_OK, "%s", error.message);
    snprintf(path, sizeof path, "%s/kernels", real);
    expect_setting(GT_SETTING_CACHE, path);
    cr_assert(stat(path, &about) == 0 && S_ISDIR(about.st_mode));
    cr_assert_eq(gantry_runtime_set(runtime, "cache", path, &error), GANTRY_OK);
    cr_assert_eq(gantry_runtime_set(runtime, "cache", "", &error), GANTRY_OK);
    setenv("GANTRY_CACHE", "/elsewhere", 1);
    expect_setting(GT_SETTING_CACHE, "");
    free(real);
}

Test(loader, bad_settings_are_refused_and_change_nothing)
{
    static char longer[GT_SETTING_BYTES + 1];
    memset(longer, 'x', sizeof longer - 1);
    static const char *const refused[][3] = {
        {"provider_paths", "/a", "provider_path and cache"},
        {"", "/a", "no setting"},
        {"provider_path", ":/a", "empty folder"},
        {"provider_path", "/a::/b", "empty folder"},
        {"provider_path", "/a:", "empty folder"},
        {"provider_path", longer, "4096 bytes"},
        {"cache", "/nowhere/at/all", "No such file"},
        {"cache", "/dev/null", "no folder"},
    };
    cr_assert_eq(gantry_runtime_set(runtime, "provider_path", "/kept", &error), GANTRY_OK);
    for (size_t k = 0; k < sizeof refused / sizeof *refused; k++) {
        cr_assert_eq(gantry_runtime_set(runtime, refused[k][0], refused[k][1], &error),
                     GANTRY_INVALID_ARGUMENT);
        cr_assert(strstr(error.message, refused[k][2]), "%s", error.message);
    }
    cr_assert_eq(gantry_runtime_set(NULL, "cache", "", &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_runtime_set(runtime, NULL, "", NULL), GANTRY_INVALID_ARGUMENT);
    expect_setting(GT_SETTING_PROVIDER_PATH, "/kept");
    expect_setting(GT_SETTING_CACHE, "");
}

/* ---- finding --------------------------------------------------------------------------------- */

#define OK(call) cr_assert_eq(call, GANTRY_OK, "%s", error.message)

static gantry_status load(const char *path, const char *config)
{
    error.message[0] = 0;
    return gantry_runtime_load_provider(runtime, path, config, &error);
}

static gantry_status unload(const char *name)
{
    error.message[0] = 0;
    return gantry_runtime_unload_provider(runtime, name, &error);
}

static void expect_words(const char *words)
{
    cr_assert(strstr(error.message, words), "\"%s\" is not in: %s", words, error.message);
}

/* The row of that name: whether it is available and what it says. */
static void expect_row(const char *name, int available, const char *words)
{
    for (uint32_t k = 0; k < gantry_runtime_provider_count(runtime); k++) {
        const char *row_name, *detail;
        int row_available;
        cr_assert_eq(gantry_runtime_provider(runtime, k, &row_name, &row_available, &detail), GANTRY_OK);
        if (strcmp(row_name, name) != 0)
            continue;
        cr_assert_eq(row_available, available, "%s: %s", name, detail);
        cr_assert(strstr(detail, words), "%s: \"%s\" is not in: %s", name, words, detail);
        return;
    }
    cr_assert(false, "no row is named %s", name);
}

Test(loader, a_name_is_looked_for_in_the_folders_that_were_set)
{
    char folders[512];
    snprintf(folders, sizeof folders, "%s:/nowhere:%s", folder, TESTS);
    OK(gantry_runtime_set(runtime, "provider_path", folders, &error));
    OK(load("fake", "{\"devices\": [{\"name\": \"one\"}]}"));
    expect_row("one", 1, "");
    setenv("GANTRY_PROVIDER_PATH", TESTS, 1);
    OK(gantry_runtime_set(runtime, "provider_path", NULL, &error));
    OK(load("fake", "{\"devices\": [{\"name\": \"two\"}]}"));
    expect_row("two", 1, "");
    OK(gantry_runtime_set(runtime, "provider_path", folder, &error));
    cr_assert_eq(load("fake", NULL), GANTRY_PROVIDER, "the environment counts beside a setting");
}

Test(loader, a_name_that_is_not_found_lists_what_was_tried)
{
    char folders[512];
    snprintf(folders, sizeof folders, "%s:/nowhere", folder);
    OK(gantry_runtime_set(runtime, "provider_path", folders, &error));
    cr_assert_eq(load("cuda-int8", NULL), GANTRY_PROVIDER);
    expect_words("no library of the provider \"cuda-int8\" was found");
    expect_words(inside("libgantry_cuda_int8.so"));
    expect_words("/nowhere/libgantry_cuda_int8.so");
    expect_words("/gantry/libgantry_cuda_int8.so");
    cr_assert_str_eq(error.provider, "cuda-int8");
    expect_row("cuda-int8", 0, "/nowhere/libgantry_cuda_int8.so");
    uint32_t count = gantry_runtime_provider_count(runtime);
    cr_assert_eq(load("cuda-int8", NULL), GANTRY_PROVIDER);
    cr_assert_eq(gantry_runtime_provider_count(runtime), count, "the same failure got a second row");
    char longer[256];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    cr_assert_eq(load(longer, NULL), GANTRY_PROVIDER);
    expect_words("255 bytes");
}

/* The first file found is the one: what is wrong with it is not papered over by a later folder. */
Test(loader, a_broken_library_that_comes_first_is_not_passed_over)
{
    char folders[512];
    static const char text[128] = "no library at all, but long enough to hold the header of one";
    put_file(inside("libgantry_fake.so"), text, sizeof text);
    snprintf(folders, sizeof folders, "%s:%s", folder, TESTS);
    OK(gantry_runtime_set(runtime, "provider_path", folders, &error));
    cr_assert_eq(load("fake", NULL), GANTRY_PROVIDER);
    expect_words(inside("libgantry_fake.so"));
    expect_words("invalid ELF header");
}

/* ---- unloading ------------------------------------------------------------------------------- */

#define OPS "\"ops\": {\"Add\": [\"float32\"], \"Relu\": [\"float32\"]}"
#define ONE(name) "{\"name\": \"" name "\", " OPS "}"
#define DEVICE(name) "{\"devices\": [" ONE(name) "]}"

static small_session open_session(wire model, const char *options)
{
    small_session s = {.runtime = runtime, .err = GANTRY_ERROR_INIT, .status = GANTRY_OK};
    small_create(&s, model, options);
    return s;
}

static void close_session(small_session *s)
{
    gantry_run_destroy(&s->run);
    gantry_report_destroy(&s->report);
    cr_assert_eq(gantry_session_destroy(&s->session, &error), GANTRY_OK, "%s", error.message);
}

/* y = Relu(a + b) in 3 rows, right whoever computes it. */
static void run_session(small_session *s)
{
    float a[12], b[12];
    for (int k = 0; k < 12; k++) {
        a[k] = (float)(k - 6);
        b[k] = 1;
    }
    cr_assert_eq(s->status, GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(small_bind(s, 0, GANTRY_FLOAT32, 2, 3, 4, a), GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(small_bind(s, 1, GANTRY_FLOAT32, 2, 3, 4, b), GANTRY_OK, "%s", s->err.message);
    cr_assert_eq(gantry_run_execute(s->run, &s->err), GANTRY_OK, "%s", s->err.message);
    gantry_tensor y = small_result(s, 0);
    for (int k = 0; k < 12; k++)
        cr_assert_eq(small_floats_of(&y)[k], k < 5 ? 0 : (float)(k - 5));
}

/* The document's text from the row of that provider on, up to `bytes` of it. */
static void expect_report(gantry_report *report, const char *provider, const char *words)
{
    const char *text, *row;
    char name[64];
    size_t bytes;
    snprintf(name, sizeof name, "\"name\": \"%s\"", provider);
    OK(gantry_report_render(report, GANTRY_REPORT_JSON, &text, &bytes, &error));
    cr_assert(row = strstr(text, name), "no provider %s in %s", provider, text);
    const char *end = strchr(row, '}'), *found = strstr(row, words);
    cr_assert(found && found < end, "\"%s\" is not in: %.*s", words, (int)(end - row), row);
}

Test(loader, unloading_is_refused_while_a_session_uses_the_library)
{
    OK(load(FAKE, "{\"devices\": [" ONE("a") ", " ONE("b") "]}"));
    small_session s = open_session(small_add(3), "providers=a,b,cpu;plan=priority");
    small_session other = open_session(small_add(3), "providers=cpu");
    run_session(&s);
    cr_assert_eq(unload("a"), GANTRY_INVALID_ARGUMENT);
    expect_words("a session still uses the library of the provider \"a\"");
    cr_assert_eq(unload("b"), GANTRY_INVALID_ARGUMENT);
    run_session(&s);
    close_session(&s);
    OK(unload("b"));
    expect_row("a", 0, "unloaded");
    expect_row("b", 0, "unloaded");
    run_session(&other);
    close_session(&other);
}

Test(loader, a_failed_session_does_not_hold_a_library)
{
    OK(load(FAKE, NULL));
    small_session s = open_session(small_unknown(), "providers=fake,cpu");
    cr_assert_neq(s.status, GANTRY_OK);
    close_session(&s);
    s = open_session(small_add(3), "providers=fake,absent;strict=on");
    cr_assert_eq(s.status, GANTRY_PROVIDER);
    close_session(&s);
    OK(unload("fake"));
}

Test(loader, what_is_not_loaded_is_not_unloaded)
{
    cr_assert_eq(unload("cpu"), GANTRY_INVALID_ARGUMENT);
    expect_words("part of the library");
    cr_assert_eq(unload("fake"), GANTRY_INVALID_ARGUMENT);
    expect_words("no library is loaded that brings a provider \"fake\"");
    cr_assert_eq(load("/nowhere/libgantry_fake.so", NULL), GANTRY_PROVIDER);
    cr_assert_eq(unload("fake"), GANTRY_INVALID_ARGUMENT);
    OK(load(FAKE, NULL));
    OK(unload("fake"));
    cr_assert_eq(unload("fake"), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_runtime_unload_provider(runtime, NULL, NULL), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_runtime_unload_provider(NULL, "fake", &error), GANTRY_INVALID_ARGUMENT);
}

Test(loader, a_library_is_unloaded_by_its_own_name_too)
{
    OK(load(FAKE, DEVICE("x")));
    OK(unload("fake"));
    expect_row("x", 0, "unloaded");
    OK(load(FAKE, "{\"devices\": [{\"name\": \"gone\", \"unavailable\": \"no device 7\"}]}"));
    OK(unload("gone"));
    expect_row("gone", 0, "unloaded");
}

Test(loader, memory_in_a_domain_holds_its_library)
{
    gantry_buffer buffer, refused;
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    OK(load(FAKE, NULL));
    OK(gantry_memory_alloc(runtime, "fake", sizeof in, &buffer, &error));
    OK(gantry_memory_copy(runtime, "fake", buffer, "host", (gantry_buffer){in, 0}, sizeof in, &error));
    cr_assert_eq(unload("fake"), GANTRY_INVALID_ARGUMENT);
    expect_words("1 blocks of gantry_memory_alloc in the domain \"fake\"");
    OK(gantry_memory_copy(runtime, "host", (gantry_buffer){out, 0}, "fake", buffer, sizeof in, &error));
    cr_assert_arr_eq(in, out, sizeof in);
    cr_assert_neq(gantry_memory_alloc(runtime, "fake", (size_t)1 << 40, &refused, &error), GANTRY_OK);
    gantry_memory_free(runtime, "fake", &buffer);
    OK(unload("fake"));
    cr_assert_eq(gantry_memory_alloc(runtime, "fake", 4, &buffer, &error), GANTRY_INVALID_ARGUMENT);
    cr_assert_null(buffer.handle);
}

Test(loader, a_hundred_lives_use_one_entry)
{
    for (int k = 0; k < 100; k++) {
        OK(load(FAKE, k % 2 ? NULL : "{\"devices\": [" ONE("fake") ", " ONE("second") "]}"));
        small_session s = open_session(small_add(3), "providers=fake,cpu;plan=priority");
        run_session(&s);
        expect_report(s.report, "fake", "\"created\": true");
        close_session(&s);
        OK(unload("fake"));
        cr_assert_eq(runtime->plugins.count, 1, "life %d", k);
        cr_assert_leq(runtime->domains.count, 3);
        cr_assert_leq(gantry_runtime_provider_count(runtime), 3);
        expect_row("fake", 0, "unloaded");
    }
}

Test(loader, a_session_keeps_what_it_was_told_of_a_provider)
{
    const char *name, *detail;
    int created;
    cr_assert_eq(load(FAKE, "{\"devices\": [{}], \"fail_open\": true}"), GANTRY_PROVIDER);
    small_session s = open_session(small_add(3), "providers=fake,cpu");
    OK(load(FAKE, NULL));
    OK(gantry_session_provider(s.session, 0, &name, &created, &detail));
    cr_assert_str_eq(name, "fake");
    cr_assert_eq(created, 0);
    cr_assert(strstr(detail, "told to fail"), "%s", detail);
    gantry_report_destroy(&s.report);
    run_session(&s);
    OK(gantry_session_report(s.session, s.run, &s.report, &error));
    expect_report(s.report, "fake", "\"created\": false");
    close_session(&s);
    s = open_session(small_add(3), "providers=fake,cpu;plan=priority");
    run_session(&s);
    expect_report(s.report, "fake", "\"created\": true");
    close_session(&s);
}

/* A library from another place, so that it may be replaced. */
static void copy_library(const char *from)
{
    static unsigned char bytes[1 << 21];
    FILE *file = fopen(from, "rb");
    cr_assert_not_null(file);
    size_t count = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    unlink(inside("libgantry_copy.so"));
    put_file(inside("libgantry_copy.so"), bytes, count);
}

Test(loader, a_file_that_was_replaced_is_not_taken_for_the_code_that_is_loaded)
{
    copy_library(TESTS "/libgantry_abi_1_0.so");
    OK(load(inside("libgantry_copy.so"), NULL));
    OK(unload("abi_1_0"));
    OK(load(inside("libgantry_copy.so"), NULL));
    OK(unload("abi_1_0"));
    copy_library(TESTS "/libgantry_abi_newer.so");
    cr_assert_eq(load(inside("libgantry_copy.so"), NULL), GANTRY_PROVIDER);
    expect_words("was replaced since this process loaded it");
    cr_assert_eq(load(inside("libgantry_copy.so"), "name=x"), GANTRY_PROVIDER);
    expect_words("was replaced since this process loaded it");
    OK(load(TESTS "/libgantry_abi_newer.so", NULL));
}

/* ---- two of a kind, and the end -------------------------------------------------------------- */

Test(loader, two_of_a_kind_work_side_by_side)
{
    OK(load(FAKE, DEVICE("left")));
    cr_assert_eq(load(FAKE, DEVICE("left")), GANTRY_PROVIDER);
    expect_words("domain \"left\" already, from " FAKE);
    cr_assert_eq(load(FAKE, "{\"devices\": [{\"name\": \"left\", \"device_id\": 1}]}"), GANTRY_PROVIDER);
    expect_words("provider \"left\" already, from " FAKE);
    expect_words("name this one otherwise in its config, or unload that one first");
    OK(load(FAKE, DEVICE("right")));
    small_session s = open_session(small_add(3), "providers=left,right,cpu;plan=priority;pin.relu1=right");
    run_session(&s);
    close_session(&s);
    OK(unload("left"));
    s = open_session(small_add(3), "providers=left,right,cpu;plan=priority");
    run_session(&s);
    expect_report(s.report, "left", "\"created\": false");
    expect_report(s.report, "right", "\"created\": true");
    close_session(&s);
    OK(load(FAKE, DEVICE("left")));
    OK(unload("right"));
    OK(unload("left"));
}

Test(loader, a_runtime_ends_with_libraries_in_any_state)
{
    OK(load(FAKE, DEVICE("first")));
    OK(load(FAKE, DEVICE("second")));
    OK(unload("first"));
    OK(load(FAKE, DEVICE("third")));
    cr_assert_eq(load(FAKE, DEVICE("third")), GANTRY_PROVIDER);
}

/* ---- providers that are not there: strict and lenient (R5) ----------------------------------- */

/* A session that asks for the provider first: words stand in the error, the API, the report. */
static void expect_absent(const char *provider, const char *words)
{
    const char *name, *detail;
    int created = 1;
    char options[128];
    snprintf(options, sizeof options, "providers=%s,cpu;strict=on", provider);
    small_session s = open_session(small_add(3), options);
    cr_assert_eq(s.status, GANTRY_PROVIDER, "strict: %s", provider);
    cr_assert_null(s.session);
    cr_assert_eq(s.err.stage, GANTRY_STAGE_PLUGIN);
    cr_assert_str_eq(s.err.provider, provider);
    cr_assert(strstr(s.err.message, words), "\"%s\" is not in: %s", words, s.err.message);
    expect_report(s.report, provider, "\"created\": false");
    close_session(&s);
    snprintf(options, sizeof options, "providers=%s,cpu;strict=off", provider);
    s = open_session(small_add(3), options);
    run_session(&s);
    cr_assert_eq(gantry_session_provider_count(s.session), 2);
    OK(gantry_session_provider(s.session, 0, &name, &created, &detail));
    cr_assert_str_eq(name, provider);
    cr_assert_eq(created, 0);
    cr_assert(strstr(detail, words), "\"%s\" is not in: %s", words, detail);
    gantry_report_destroy(&s.report);
    OK(gantry_session_report(s.session, s.run, &s.report, &error));
    expect_report(s.report, provider, "\"requested\": true");
    expect_report(s.report, provider, "\"created\": false");
    expect_report(s.report, provider, words);
    expect_report(s.report, provider, "\"nodes_executed\": 0");
    OK(gantry_session_provider(s.session, 1, &name, &created, &detail));
    cr_assert(strcmp(name, "cpu") == 0 && created == 1 && !*detail);
    expect_report(s.report, "cpu", "\"created\": true");
    close_session(&s);
}

Test(loader, a_dependency_that_is_not_there)
{
    cr_assert_eq(load(TESTS "/refused/libgantry_needs_missing.so", NULL), GANTRY_PROVIDER);
    expect_absent(
        "needs_missing",
        "libgantry_missing_library.so: cannot open shared object file: No such file or directory; the "
        "provider needs libgantry_missing_library.so of the test suite");
}

Test(loader, a_path_that_does_not_exist)
{
    cr_assert_eq(load("/nowhere/libgantry_absent.so", NULL), GANTRY_PROVIDER);
    expect_absent("absent", "/nowhere/libgantry_absent.so: cannot open shared object file: No such file");
}

Test(loader, a_file_that_is_no_library)
{
    static const char text[128] = "no library at all, but long enough to hold the header of one";
    put_file(inside("libgantry_text.so"), text, sizeof text);
    cr_assert_eq(load(inside("libgantry_text.so"), NULL), GANTRY_PROVIDER);
    expect_absent("text", "libgantry_text.so: invalid ELF header");
}

/* Nobody waits for the other end of a pipe. */
Test(loader, a_path_that_is_no_file)
{
    cr_assert_eq(mkfifo(inside("libgantry_pipe.so"), 0600), 0);
    cr_assert_eq(load(inside("libgantry_pipe.so"), NULL), GANTRY_PROVIDER);
    expect_absent("pipe", "no regular file");
    cr_assert_eq(mkdir(inside("libgantry_folder.so"), 0700), 0);
    cr_assert_eq(load(inside("libgantry_folder.so"), NULL), GANTRY_PROVIDER);
    expect_absent("folder", "Is a directory");
    cr_assert_eq(unlink(inside("libgantry_pipe.so")), 0);
    cr_assert_eq(rmdir(inside("libgantry_folder.so")), 0);
}

Test(loader, a_device_that_is_not_there_and_a_name_that_nobody_brought)
{
    OK(load(FAKE, "{\"devices\": [{\"name\": \"gone\", \"unavailable\": \"no device 7\"}]}"));
    expect_absent("gone", "no device 7");
    expect_absent("unheard_of", "no provider of that name is loaded");
    OK(load(FAKE, NULL));
    OK(unload("fake"));
    expect_absent("fake", "unloaded");
    OK(gantry_runtime_set(runtime, "provider_path", folder, &error));
    cr_assert_eq(load("nobody", NULL), GANTRY_PROVIDER);
    expect_absent("nobody", inside("libgantry_nobody.so"));
}

Test(loader, what_a_session_may_be_asked_about_its_providers)
{
    const char *name = "x", *detail = "x";
    int created = 1;
    small_session s = open_session(small_add(3), "providers=cpu");
    OK(gantry_session_provider(s.session, 0, NULL, NULL, NULL));
    cr_assert_eq(gantry_session_provider(s.session, 1, &name, &created, &detail), GANTRY_INVALID_ARGUMENT);
    cr_assert(!name && !created && !detail);
    cr_assert_eq(gantry_session_provider(NULL, 0, &name, &created, &detail), GANTRY_INVALID_ARGUMENT);
    cr_assert_eq(gantry_session_provider_count(NULL), 0);
    close_session(&s);
}
