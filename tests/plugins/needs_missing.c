/* A provider whose dependency is not where the loader looks. */
#include <gantry/provider.h>

GANTRY_MANIFEST("needs_missing", "1.2", "", "libgantry_missing_library.so of the test suite");

int missing_library_answer(void);
gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi, gantry_plugin *out_plugin,
                                 gantry_error *err);

gantry_status gantry_plugin_open(const gantry_host *host, uint32_t abi, gantry_plugin *out_plugin,
                                 gantry_error *err)
{
    return missing_library_answer() == 42 ? GANTRY_OK : GANTRY_INTERNAL;
}
