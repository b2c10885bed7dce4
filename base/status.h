/* How internal functions fail: they fill the caller's gantry_error and return its code, in one statement. */
#ifndef GT_BASE_STATUS_H
#define GT_BASE_STATUS_H

#include <gantry/types.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

GANTRY_PRINTF(5, 6)
static inline void gt_fail_fill(gantry_error *err, gantry_status code, gantry_stage stage, const char *node,
                                const char *format, ...)
{
    if (!err || err->struct_bytes < sizeof(gantry_error))
        return;
    err->code = code;
    err->stage = stage;
    err->provider[0] = 0;
    snprintf(err->node, sizeof err->node, "%s", node ? node : "");
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
}

/* A call rather than the bare value: callers may ignore it. */
static inline gantry_status gt_failed(gantry_status code)
{
    return code;
}

/* Fills *err (NULL is fine) and gives code. node may be NULL. Messages name the value and the bound it broke,
 * and what to do. A macro, because no compiler inlines a variadic function: callers then see that a failure
 * is never GANTRY_OK. */
#define gt_fail(err, code, stage, node, ...)                                                                 \
    (gt_fail_fill((err), (code), (stage), (node), __VA_ARGS__), gt_failed(code))

static inline gantry_status gt_out_of_memory(gantry_error *err, gantry_stage stage)
{
    return gt_fail(err, GANTRY_RESOURCE, stage, NULL, "out of memory");
}

#define GT_TRY(call)                                                                                         \
    do {                                                                                                     \
        gantry_status gt_status_ = (call);                                                                   \
        if (gt_status_ != GANTRY_OK)                                                                         \
            return gt_status_;                                                                               \
    } while (0)

#endif
