/* The key under which a compiled program is kept: all that it depends on, as lines that a person can read. */
#ifndef GT_CORE_PROGRAM_KEY_H
#define GT_CORE_PROGRAM_KEY_H

#include "session.h"

/* Appends lines of "component=value"; a value that is long or no text is "#" and its hash. The first
 * *out_identity_bytes are the same for the same nodes on the same provider. Reads the constants of the
 * partition. */
gantry_status gt_program_key_make(const gantry_session *session, const gt_provider_entry *entry,
                                  const gantry_compile_args *args, gt_text *inout_text,
                                  size_t *out_identity_bytes, gantry_error *err);

/* Appends in words in which components two keys differ. */
void gt_program_key_compare(const char *before, const char *now, gt_text *inout_text);

#endif
