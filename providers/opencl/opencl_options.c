/* The options that a session may give the provider: "opencl.KEY=VALUE". */
#include "opencl.h"

static const gantry_option_info options[] = {
    {sizeof(gantry_option_info), "fast_math", "off", GANTRY_OPTION_DEFAULT,
     "kernels built with -cl-fast-relaxed-math, which may be less exact and ignore NaN: on, off"},
    {sizeof(gantry_option_info), "fuse", "on", GANTRY_OPTION_DEFAULT,
     "chains of elementwise operators run as one kernel, with the same results: on, off"},
    {sizeof(gantry_option_info), "exclude", "", GANTRY_OPTION_DEFAULT,
     "operators to leave to other providers, comma-separated"},
};

static const char *find_option(const opencl_device *device, const void *session_options, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "opencl.%s", key);
    return device->host->option(device->host, session_options, name);
}

gantry_status opencl_option_switch(const opencl_device *device, const void *session_options, const char *key,
                                   bool *inout_on, gantry_error *err)
{
    const char *value = find_option(device, session_options, key);
    if (value)
        *inout_on = strcmp(value, "on") == 0;
    if (!value || *inout_on || strcmp(value, "off") == 0)
        return GANTRY_OK;
    return opencl_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_COMPILE,
                       "option opencl.%s: \"%.100s\" is not a value it takes; it takes off, on", key, value);
}

bool opencl_option_excludes(const opencl_device *device, const void *session_options, const char *op)
{
    const char *list = find_option(device, session_options, "exclude");
    for (size_t length; list && *list; list += length + (list[length] == ',')) {
        length = strcspn(list, ",");
        if (strlen(op) == length && strncmp(op, list, length) == 0)
            return true;
    }
    return false;
}

void opencl_options_table(opencl_device *device)
{
    device->provider.options = options;
    device->provider.option_count = sizeof options / sizeof *options;
}
