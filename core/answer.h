/* What plugins answer is checked before anybody believes it: these put words to what a call got wrong. */
#ifndef GT_CORE_ANSWER_H
#define GT_CORE_ANSWER_H

#include "base/status.h"

/* More than any machine has: a plugin that asks for it has not computed what it needs. */
#define GT_MOST_BYTES (SIZE_MAX / 4)

/* Words of an earlier failure are not those of the call that follows. */
static inline void gt_error_clear(gantry_error *err)
{
    if (err && err->struct_bytes >= sizeof *err)
        err->message[0] = 0;
}

/* The status of a call into a provider or a domain, as the caller may see it. made: what the call promised to
 * make; OK without it is a failure. A failure gets words where it has none, which name the entry; a number
 * that is no status is GANTRY_PROVIDER. who: the provider's or the domain's name. */
gantry_status gt_provider_answer(const char *who, const char *entry, gantry_stage stage, gantry_status status,
                                 const void *made, gantry_error *err);
gantry_status gt_domain_answer(const char *who, const char *entry, gantry_stage stage, gantry_status status,
                               const void *made, gantry_error *err);

/* GANTRY_PROVIDER, and what the provider did wrong in words that name it. */
#define gt_provider_wrong(err, stage, who, entry, ...)                                                       \
    (gt_fail_fill((err), GANTRY_PROVIDER, (stage), NULL, __VA_ARGS__),                                       \
     gt_provider_answer((who), (entry), (stage), GANTRY_PROVIDER, NULL, (err)))

#endif
