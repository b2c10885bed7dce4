/* What plugins answer is checked before anybody believes it: statuses that are none, failures without words,
 * successes without what they promised. */
#include "answer.h"

#include <gantry/gantry.h>

static gantry_status known_status(gantry_status status)
{
    return status > GANTRY_OK && status <= GANTRY_INTERNAL ? status : GANTRY_PROVIDER;
}

/* A plugin that filled all of the message left no terminator. */
static bool has_words(gantry_error *err)
{
    err->message[sizeof err->message - 1] = 0;
    err->node[sizeof err->node - 1] = 0;
    return *err->message != 0;
}

static void put_words(const char *what, const char *who, const char *entry, gantry_status status,
                      gantry_error *err)
{
    if (status == GANTRY_OK)
        gt_fail_fill(err, GANTRY_PROVIDER, GANTRY_STAGE_NONE, NULL,
                     "%s %s: %s returned OK, and nothing of what it makes", what, who, entry);
    else if (known_status(status) != status)
        gt_fail_fill(err, GANTRY_PROVIDER, GANTRY_STAGE_NONE, NULL,
                     "%s %s: %s returned %d, which is no status", what, who, entry, (int)status);
    else if (!has_words(err))
        gt_fail_fill(err, status, GANTRY_STAGE_NONE, NULL, "%s %s: %s failed (%s) and does not say why", what,
                     who, entry, gantry_status_text(status));
}

static gantry_status answer(const char *what, const char *who, const char *entry, gantry_stage stage,
                            gantry_status status, const void *made, gantry_error *err)
{
    if (status == GANTRY_OK && made)
        return GANTRY_OK;
    if (!err || err->struct_bytes < sizeof *err)
        return known_status(status);
    put_words(what, who, entry, status, err);
    err->code = known_status(status);
    err->stage = stage;
    return err->code;
}

gantry_status gt_provider_answer(const char *who, const char *entry, gantry_stage stage, gantry_status status,
                                 const void *made, gantry_error *err)
{
    status = answer("provider", who, entry, stage, status, made, err);
    if (status != GANTRY_OK && err && err->struct_bytes >= sizeof *err)
        snprintf(err->provider, sizeof err->provider, "%s", who);
    return status;
}

gantry_status gt_domain_answer(const char *who, const char *entry, gantry_stage stage, gantry_status status,
                               const void *made, gantry_error *err)
{
    return answer("domain", who, entry, stage, status, made, err);
}
