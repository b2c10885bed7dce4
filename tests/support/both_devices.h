/* Tests that run on the fake device and, where there is an OpenCL device, on that one too: behind the plugin
 * of tests/counted, which has the fake device's configuration and counters. For one test program: functions
 * are static.
 *
 *     TestSuite(things, .init = begin, .fini = end);
 *     TestSuite(things_opencl, .init = begin_opencl, .fini = end);    begin_opencl: both_use_opencl(),
 * begin() ON_BOTH(things, name) { ... both_plugin ... } */
#ifndef GT_TESTS_BOTH_DEVICES_H
#define GT_TESTS_BOTH_DEVICES_H

#include <criterion/criterion.h>
#include <gantry/gantry.h>
#include <stdlib.h>
#include <unistd.h>

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"
#define COUNTED GANTRY_BUILD_FOLDER "/tests/libgantry_counted.so"

/* The driver keeps what it allocated until the process ends. LeakSanitizer asks for this by name. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libpocl\nleak:libLLVM\nleak:libOpenCL\n";
}

/* What has to be loaded with the JSON text of the devices. */
static const char *both_plugin = FAKE;

/* Keys that only the fake device has: a test of them has nothing to do elsewhere. */
static inline bool both_is_fake(void)
{
    return both_plugin[0] && strcmp(both_plugin, FAKE) == 0;
}

/* Skips the test where the plugin was not built or no OpenCL driver is installed. */
static inline void both_use_opencl(void)
{
    gantry_runtime *runtime = NULL;
    gantry_error err = GANTRY_ERROR_INIT;
    if (access(COUNTED, R_OK) != 0)
        cr_skip_test("OpenCL is not installed");
    setenv("POCL_CACHE_DIR", GANTRY_BUILD_FOLDER "/pocl-cache", 0);
    cr_assert_eq(gantry_runtime_create(NULL, &runtime, &err), GANTRY_OK);
    gantry_status status = gantry_runtime_load_provider(
        runtime, COUNTED, "{\"devices\": [{\"name\": \"one\", \"ops\": {\"Neg\": [\"float32\"]}}]}", &err);
    gantry_buffer buffer = {0};
    if (status == GANTRY_OK)
        status = gantry_memory_alloc(runtime, "one", 4, &buffer, &err);
    if (status == GANTRY_OK)
        gantry_memory_free(runtime, "one", &buffer);
    gantry_runtime_destroy(&runtime, NULL);
    if (status != GANTRY_OK)
        cr_skip_test("%s", err.message);
    both_plugin = COUNTED;
}

#define ON_BOTH(suite, name)                                                                                 \
    static void name(void);                                                                                  \
    Test(suite, name)                                                                                        \
    {                                                                                                        \
        (name)();                                                                                            \
    }                                                                                                        \
    Test(suite##_opencl, name)                                                                               \
    {                                                                                                        \
        (name)();                                                                                            \
    }                                                                                                        \
    static void name(void)

#endif
