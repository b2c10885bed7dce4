/* Loading, finding and unloading provider libraries, and the settings that say where they lie. */
#include "../support/broken_allocator.h"
#include "core/runtime.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static gantry_runtime *runtime;
static gantry_error error = GANTRY_ERROR_INIT;
static char folder[] = "/tmp/gantry_loaderXXXXXX";

static void setup(void)
{
    unsetenv("GANTRY_PROVIDER_PATH");
    unsetenv("GANTRY_CACHE");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(gantry_runtime_create(NULL, &runtime, &error), GANTRY_OK, "%s", error.message);
}

static void teardown(void)
{
    char command[128];
    cr_assert_eq(gantry_runtime_destroy(&runtime, &error), GANTRY_OK);
    snprintf(command, sizeof command, "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
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
