/* Settings of a runtime: text that holds for all its sessions, with an environment variable behind each. */
#include "runtime.h"

#include <errno.h>
#include <sys/stat.h>

/* Checks a value and writes what is kept of it. */
typedef gantry_status (*setting_check_fn)(const char *value, char out_text[GT_SETTING_BYTES],
                                          gantry_error *err);

static gantry_status check_folders(const char *value, char out_text[GT_SETTING_BYTES], gantry_error *err)
{
    size_t length = strlen(value);
    if (length && (*value == ':' || value[length - 1] == ':' || strstr(value, "::")))
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "provider_path=%.1000s has an empty folder; \".\" is the working directory", value);
    memcpy(out_text, value, length + 1);
    return GANTRY_OK;
}

/* The folder is kept as an absolute path, since the working directory may change. */
static gantry_status check_cache(const char *value, char out_text[GT_SETTING_BYTES], gantry_error *err)
{
    struct stat about;
    *out_text = 0;
    if (!*value)
        return GANTRY_OK;
    if (mkdir(value, 0700) != 0 && errno != EEXIST)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "cache=%.1000s: the folder cannot be made: %s", value, strerror(errno));
    if (stat(value, &about) != 0 || !S_ISDIR(about.st_mode))
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL, "cache=%.1000s is no folder",
                       value);
    char *resolved = realpath(value, NULL);
    bool fits = resolved && strlen(resolved) < GT_SETTING_BYTES;
    if (fits)
        memcpy(out_text, resolved, strlen(resolved) + 1);
    free(resolved);
    return fits ? GANTRY_OK
                : gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                          "cache=%.1000s: its absolute path cannot be found or has more than %d bytes", value,
                          GT_SETTING_BYTES - 1);
}

static const struct {
    const char *key, *variable;
    setting_check_fn check;
} SETTINGS[GT_SETTING_COUNT] = {
    [GT_SETTING_PROVIDER_PATH] = {"provider_path", "GANTRY_PROVIDER_PATH", check_folders},
    [GT_SETTING_CACHE] = {"cache", "GANTRY_CACHE", check_cache},
};

static gantry_status keep(gantry_runtime *runtime, int setting, const char *text, gantry_error *err)
{
    size_t bytes = text ? strlen(text) + 1 : 0;
    char *kept = text ? gt_alloc(&runtime->allocator, bytes) : NULL;
    if (text && !kept)
        return gt_out_of_memory(err, GANTRY_STAGE_NONE);
    if (text)
        memcpy(kept, text, bytes);
    pthread_mutex_lock(&runtime->lock);
    char *old = runtime->settings[setting];
    runtime->settings[setting] = kept;
    pthread_mutex_unlock(&runtime->lock);
    gt_free(&runtime->allocator, old);
    return GANTRY_OK;
}

gantry_status gantry_runtime_set(gantry_runtime *runtime, const char *key, const char *value,
                                 gantry_error *err)
{
    char text[GT_SETTING_BYTES];
    if (!runtime || !key)
        return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                       "gantry_runtime_set: %s is NULL", !runtime ? "runtime" : "key");
    for (int k = 0; k < GT_SETTING_COUNT; k++) {
        if (strcmp(SETTINGS[k].key, key) != 0)
            continue;
        if (value && strlen(value) >= sizeof text)
            return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                           "%s has %zu bytes; at most %zu are taken", key, strlen(value), sizeof text - 1);
        if (value)
            GT_TRY(SETTINGS[k].check(value, text, err));
        return keep(runtime, k, value ? text : NULL, err);
    }
    return gt_fail(err, GANTRY_INVALID_ARGUMENT, GANTRY_STAGE_NONE, NULL,
                   "a runtime has no setting \"%.200s\"; there are provider_path and cache", key);
}

void gt_runtime_setting(gantry_runtime *runtime, gt_setting setting, char out_text[GT_SETTING_BYTES])
{
    pthread_mutex_lock(&runtime->lock);
    const char *kept = runtime->settings[setting];
    bool is_set = kept != NULL;
    snprintf(out_text, GT_SETTING_BYTES, "%s", is_set ? kept : "");
    pthread_mutex_unlock(&runtime->lock);
    const char *variable = is_set ? NULL : secure_getenv(SETTINGS[setting].variable);
    if (variable && strlen(variable) < GT_SETTING_BYTES)
        memcpy(out_text, variable, strlen(variable) + 1);
}

void gt_runtime_settings_free(gantry_runtime *runtime)
{
    for (int k = 0; k < GT_SETTING_COUNT; k++)
        gt_free(&runtime->allocator, runtime->settings[k]);
}
