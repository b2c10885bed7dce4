/* A process may end while a library is loaded, a session is alive and a thread of the device waits: nothing
 * is taken down, and nothing crashes or hangs. A program of its own, as its end is the test. */
#include "../support/expect.h"
#include "../support/small_models.h"

#define FAKE GANTRY_BUILD_FOLDER "/tests/libgantry_fake.so"

static small_session left;

/* That the device's thread is there at the end is what is tested, and what is left is left on purpose. The
 * sanitizers ask for these by name; LeakSanitizer's tracer dies of such a thread, so it is not to look. They
 * find only what a program exports. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void);

const char *__tsan_default_options(void)
{
    return "report_thread_leaks=0";
}

const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

int main(void)
{
    static float a[12], b[12];
    left = small_open_with(small_add(3), FAKE, NULL, "providers=fake,cpu;plan=priority;threads=1");
    EXPECT(left.status == GANTRY_OK, "%s", left.err.message);
    if (failures)
        return 1;
    for (int k = 0; k < 12; k++) {
        a[k] = (float)(k - 6);
        b[k] = 1;
    }
    EXPECT(small_bind(&left, 0, GANTRY_FLOAT32, 2, 3, 4, a) == GANTRY_OK, "%s", left.err.message);
    EXPECT(small_bind(&left, 1, GANTRY_FLOAT32, 2, 3, 4, b) == GANTRY_OK, "%s", left.err.message);
    EXPECT(gantry_run_execute(left.run, &left.err) == GANTRY_OK, "%s", left.err.message);
    gantry_tensor y = small_result(&left, 0);
    for (int k = 0; k < 12; k++)
        EXPECT(small_floats_of(&y)[k] == (k < 5 ? 0 : (float)(k - 5)), "element %d", k);
    return failures != 0;
}
